//! `srun terrace run -- task`: each task has a run of its own, one agent a node serves them, and the step has one report.
//!
//!   each run's begin and end ──▶ the node's tally (in the state directory)
//!   the last run of a node   ──▶ ROOT/.terrace/launches/STEP/TAG.json
//!   the last run of all      ──▶ the report
//!
//! How it is decided: a run counts as over when it has ended, or when its process is gone. Whoever ends a node's last one writes the
//! node down, and sees how many tasks all nodes have written down. Who sees all of them makes the file `told`; only one can.
//! Reason: no task waits for another one, and whoever is last knows everything.

use crate::keeper::Begun;
use crate::launch::board::Board;
use crate::report::NodeReport;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use terrace_core::control::Status;
use terrace_core::settings::Settings;
use terrace_tool::failure::{Failure, Result};

/// This process's place among the tasks that were started together.
pub struct Step {
    id: String,
    rank: u32,
    tasks: u32,
    tally: PathBuf,
    board: Board,
}

#[derive(Serialize, Deserialize)]
struct Tally {
    before: Status,
    /// By rank.
    runs: BTreeMap<u32, Run>,
    report: Option<NodeReport>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    pid: u32,
    has_ended: bool,
}

impl Step {
    /// `None`: not one of several tasks.
    pub fn of(settings: &Settings, environment: &impl Fn(&str) -> Option<String>) -> Result<Option<Step>> {
        let Some((id, rank, tasks)) = place(environment) else { return Ok(None) };
        let board = Board::of(&settings.root, &id)?;
        Ok(Some(Step { tally: settings.state.join(format!("step-{id}.json")), id, rank, tasks, board }))
    }

    pub fn begin(&self, begun: &Begun) -> Result<()> {
        self.update(|tally| {
            let tally = tally.get_or_insert_with(|| Tally {
                before: begun.before.clone(),
                runs: BTreeMap::new(),
                report: None,
            });
            tally.runs.insert(self.rank, Run { pid: std::process::id(), has_ended: false });
        })
    }

    /// `own`: what this run knows of its node, given the agent's totals before the first one. The nodes of the whole step, if this
    /// run is to tell of them.
    pub fn end(&self, own: impl FnOnce(&Status) -> NodeReport) -> Result<Option<Vec<NodeReport>>> {
        let mut of_node = None;
        self.update(|tally| {
            let Some(tally) = tally else { return };
            let before = tally.report.take();
            let mut report = own(&tally.before);
            if let Some(run) = tally.runs.get_mut(&self.rank) {
                run.has_ended = true;
            }
            report.take_in(before);
            report.tasks = tally.runs.len() as u32;
            tally.report = Some(report.clone());
            if tally.runs.values().all(|run| run.has_ended || is_gone(run.pid)) {
                of_node = Some(report);
            }
        })?;
        let Some(report) = of_node else { return Ok(None) };
        self.board.make()?;
        self.board.put(&report)?;
        let nodes = self.board.all();
        if nodes.iter().map(|node| node.tasks).sum::<u32>() < self.tasks || !self.board.claim_telling() {
            return Ok(None);
        }
        self.board.remove();
        let _ = std::fs::remove_file(&self.tally);
        Ok(Some(nodes))
    }

    /// Under the tally's own lock: runs of one node begin and end at once.
    fn update(&self, change: impl FnOnce(&mut Option<Tally>)) -> Result<()> {
        let failed = |error: std::io::Error| Failure::io("keep the tally of a step", &self.tally, error);
        let mut options = File::options();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.tally)
            .map_err(failed)?;
        flock(&file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let mut text = vec![];
        file.read_to_end(&mut text).map_err(failed)?;
        // One that is empty is new; one that a killed run has torn begins anew.
        let mut tally = serde_json::from_slice(&text).ok();
        change(&mut tally);
        let text = serde_json::to_vec(&tally).expect("a tally is plain data");
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&text)).map_err(failed)
    }

    /// Tallies of steps whose runs never ended would stay: a node's disk is no place for them.
    pub fn sweep(&self) {
        let Some(directory) = self.tally.parent() else { return };
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let is_tally = name.to_string_lossy().starts_with("step-") && !name.to_string_lossy().contains(&self.id);
            let is_old = || {
                entry
                    .metadata()
                    .and_then(|found| found.modified())
                    .is_ok_and(|at| at.elapsed().is_ok_and(|age| age > TALLY_AGE))
            };
            if is_tally && is_old() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

const TALLY_AGE: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 3600);

fn is_gone(pid: u32) -> bool {
    rustix::process::Pid::from_raw(pid as i32)
        .is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
}

/// The step's name, this task's number, and how many there are.
fn place(environment: &impl Fn(&str) -> Option<String>) -> Option<(String, u32, u32)> {
    let number = |name: &str| environment(name).and_then(|text| text.parse::<u32>().ok());
    let mpi = || {
        let space = environment("PMIX_NAMESPACE").or_else(|| environment("PMI_JOBID"))?;
        let rank = number("OMPI_COMM_WORLD_RANK").or_else(|| number("PMI_RANK"))?;
        Some((format!("mpi-{space}"), rank, number("OMPI_COMM_WORLD_SIZE").or_else(|| number("PMI_SIZE"))?))
    };
    let slurm = || {
        let (job, step) = (environment("SLURM_JOB_ID")?, environment("SLURM_STEP_ID")?);
        let tasks = number("SLURM_STEP_NUM_TASKS").or_else(|| number("SLURM_NTASKS"))?;
        Some((format!("slurm-{job}-{step}"), number("SLURM_PROCID")?, tasks))
    };
    let (id, rank, tasks) = mpi().or_else(slurm)?;
    let id = id.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' }).collect();
    (tasks > 1 && rank < tasks).then_some((id, rank, tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_knows_its_step() {
        let of = |variables: &[(&str, &str)]| {
            place(&|name: &str| variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.to_string()))
        };
        let slurm =
            [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "2"), ("SLURM_STEP_NUM_TASKS", "4")];
        assert_eq!(of(&slurm), Some(("slurm-7-0".into(), 2, 4)));
        let mpi = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_NAMESPACE", "123@x/1")];
        assert_eq!(of(&mpi), Some(("mpi-123_x_1".into(), 1, 2)));
        // A job script, an interactive shell, a step of one task.
        assert_eq!(of(&[("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4")]), None);
        assert_eq!(
            of(&[("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]),
            None
        );
        assert_eq!(of(&[]), None);
    }
}
