//! The batch job that a run is in: how long it may go on, how long a SIGTERM leaves, and whether it has other nodes.
//!
//!   Slurm  SLURM_JOB_END_TIME (from 23.02 on), else `squeue` says what is left; KillWait by `scontrol`
//!   PBS    `qstat -f`, else PBS_WALLTIME and the age of the job's shell
//!
//! What a batch system does not say is not guessed: the run tells that it does not know.

use crate::hosts;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace_tool::failure::warn;

/// Tasks of a larger step don't each ask Slurm's controller.
const ASKING_TASKS_MAX: u32 = 256;
/// Of Slurm and PBS, where they don't say it.
const KILL_WAIT_SLURM: Duration = Duration::from_secs(30);
const KILL_WAIT_PBS: Duration = Duration::from_secs(10);
/// Before the SIGKILL all is said.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Programs that start tasks on other nodes.
const STARTERS: [&str; 8] = ["srun", "mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "aprun", "pbsdsh"];
/// A longer file is no script that somebody wrote.
const SCRIPT_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, PartialEq)]
pub enum Limit {
    NoJob,
    Left(Duration),
    None,
    /// In a job that does not say.
    Unknown,
}

pub fn limit(environment: &impl Fn(&str) -> Option<String>) -> Limit {
    if let Some(job) = environment("SLURM_JOB_ID") {
        return slurm_limit(&job, environment);
    }
    match environment("PBS_JOBID") {
        Some(job) => pbs_limit(&job, environment),
        None => Limit::NoJob,
    }
}

fn slurm_limit(job: &str, environment: &impl Fn(&str) -> Option<String>) -> Limit {
    if let Some(end) = environment("SLURM_JOB_END_TIME").and_then(|text| text.parse::<u64>().ok()) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        return Limit::Left(Duration::from_secs(end).saturating_sub(now));
    }
    if is_one_of_many(environment) {
        return Limit::None;
    }
    // An array's number stands for all of its jobs, and for one of them.
    let said = output_of("squeue", &["-h", "-j", job, "-o", "%A %L"]).unwrap_or_default();
    let left = said.lines().find_map(|line| line.trim().strip_prefix(job)?.strip_prefix(' '));
    left.map_or(Limit::Unknown, |left| slurm_left(left.trim()))
}

fn is_one_of_many(environment: &impl Fn(&str) -> Option<String>) -> bool {
    let tasks = environment("SLURM_NTASKS").and_then(|text| text.parse::<u32>().ok());
    tasks.is_some_and(|tasks| tasks > ASKING_TASKS_MAX) && environment("SLURM_STEP_ID").is_some()
}

/// `squeue -o %L`: `[DAYS-]HOURS:MINUTES:SECONDS`, with what is zero in front left out.
fn slurm_left(text: &str) -> Limit {
    if text.eq_ignore_ascii_case("UNLIMITED") {
        return Limit::None;
    }
    let (days, clock) = text.split_once('-').unwrap_or(("0", text));
    match (days.parse::<u64>(), clock_seconds(clock)) {
        (Ok(days), Some(seconds)) => Limit::Left(Duration::from_secs(days * 86_400 + seconds)),
        _ => Limit::Unknown,
    }
}

fn clock_seconds(clock: &str) -> Option<u64> {
    clock.split(':').try_fold(0u64, |sum, part| sum.checked_mul(60)?.checked_add(part.parse().ok()?))
}

fn pbs_limit(job: &str, environment: &impl Fn(&str) -> Option<String>) -> Limit {
    if let Some(limit) = output_of("qstat", &["-f", job]).and_then(|text| pbs_left(&text, SystemTime::now())) {
        return limit;
    }
    // Torque's; it says nothing of the job's begin, which is its shell's.
    let limit = environment("PBS_WALLTIME").and_then(|text| text.parse::<u64>().ok());
    match (limit, age_of_session()) {
        (Some(limit), Some(age)) => Limit::Left(Duration::from_secs(limit).saturating_sub(age)),
        _ => Limit::Unknown,
    }
}

/// From `qstat -f`: what is left, or the limit and since when the job runs.
fn pbs_left(text: &str, now: SystemTime) -> Option<Limit> {
    let of = |key: &str| {
        text.lines().find_map(|line| line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')).map(str::trim)
    };
    if let Some(left) = of("Walltime.Remaining").and_then(|text| text.parse::<u64>().ok()) {
        return Some(Limit::Left(Duration::from_secs(left)));
    }
    let Some(limit) = of("Resource_List.walltime") else { return Some(Limit::None) };
    let limit = Duration::from_secs(clock_seconds(limit)?);
    let used = match of("stime").or_else(|| of("start_time")).and_then(local_time) {
        Some(start) => now.duration_since(start).unwrap_or_default(),
        // Noted from time to time: less than is used.
        None => Duration::from_secs(clock_seconds(of("resources_used.walltime")?)?),
    };
    Some(Limit::Left(limit.saturating_sub(used)))
}

/// `Mon Nov 23 02:17:00 2026`
fn local_time(text: &str) -> Option<SystemTime> {
    let text = std::ffi::CString::new(text).ok()?;
    // SAFETY: C strings; `tm` is plain data that strptime fills and mktime reads.
    let seconds = unsafe {
        let mut broken_down: libc::tm = std::mem::zeroed();
        broken_down.tm_isdst = -1;
        if libc::strptime(text.as_ptr(), c"%a %b %d %H:%M:%S %Y".as_ptr(), &mut broken_down).is_null() {
            return None;
        }
        libc::mktime(&mut broken_down)
    };
    Some(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// How long the process lives that our session began with.
fn age_of_session() -> Option<Duration> {
    let session = rustix::process::getsid(None).ok()?.as_raw_nonzero();
    let stat = std::fs::read_to_string(format!("/proc/{session}/stat")).ok()?;
    // The 22nd field; the second one may have blanks in it.
    let began: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let uptime: f64 = std::fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    // SAFETY: asks only.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    Duration::try_from_secs_f64(uptime - began as f64 / ticks).ok()
}

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// How long the batch system waits between SIGTERM and SIGKILL; `None` outside of a job.
pub fn kill_wait(environment: &impl Fn(&str) -> Option<String>) -> Option<Duration> {
    if environment("SLURM_JOB_ID").is_some() {
        let ask = || output_of("scontrol", &["show", "config"]);
        let config = if is_one_of_many(environment) { None } else { ask() }.unwrap_or_default();
        let said =
            config.lines().find_map(|line| line.strip_prefix("KillWait")?.split_whitespace().nth(1)?.parse().ok());
        return Some(said.map_or(KILL_WAIT_SLURM, Duration::from_secs));
    }
    environment("PBS_JOBID").map(|_| KILL_WAIT_PBS)
}

/// Until when a run that was told to end must have ended.
pub struct TimeLeft {
    kill_wait: Option<Duration>,
    end: Option<Instant>,
}

impl TimeLeft {
    pub fn new(kill_wait: Option<Duration>) -> TimeLeft {
        TimeLeft { kill_wait, end: None }
    }

    /// SIGTERM has come: SIGKILL will.
    pub fn begin(&mut self) {
        if let Some(wait) = self.kill_wait {
            let end = Instant::now() + wait.saturating_sub(LAST_WORDS.min(wait / 4));
            self.end = Some(self.end.map_or(end, |earlier| earlier.min(end)));
        }
    }

    pub fn end(&self) -> Option<Instant> {
        self.end
    }

    pub fn is_up(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// How long a program may take that was told to end; the rest is for its files.
    pub fn of_program(&self) -> Option<Duration> {
        self.kill_wait.map(|wait| wait / 3)
    }
}

/// The run's job has several nodes, and its program starts tasks on them, which are not reached. Says so.
pub fn warn_of_other_nodes(command: &[OsString], environment: &impl Fn(&str) -> Option<String>) {
    let number = |name: &str| environment(name).and_then(|text| text.parse::<usize>().ok());
    let nodes = match (number("SLURM_JOB_NUM_NODES").or_else(|| number("SLURM_NNODES")), environment("PBS_NODEFILE")) {
        (Some(nodes), _) => nodes,
        (None, Some(file)) => hosts::from_slots(Path::new(&file)).map_or(1, |hosts| hosts.len()),
        (None, None) => 1,
    };
    // One of several tasks: each node has a run of its own.
    let ranks = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_NODES"];
    if nodes < 2 || ranks.iter().any(|name| number(name).is_some_and(|count| count > 1)) {
        return;
    }
    if let Some(starter) = starter_in(command) {
        let way = if environment("SLURM_JOB_ID").is_some() { "slurm" } else { "pbs" };
        warn(format!(
            "this job has {nodes} nodes, and only this one ({}) is accelerated: what `{starter}` starts on the others reads and writes \
             the root itself. For all nodes: terrace run --nodes {way} -- …",
            terrace_agent::node::host()
        ));
    }
}

/// A program in the command, or in a script that it names, that starts tasks elsewhere.
fn starter_in(command: &[OsString]) -> Option<&'static str> {
    let in_text = |text: &str| {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "._/-".contains(c)));
        words
            .map(|word| word.rsplit('/').next().unwrap_or_default())
            .find_map(|word| STARTERS.iter().copied().find(|starter| *starter == word))
    };
    command.iter().find_map(|word| {
        in_text(&word.to_string_lossy()).or_else(|| {
            let script = read_script(Path::new(word))?;
            let code: String = script
                .lines()
                .filter(|line| !line.trim_start().starts_with('#'))
                .map(|line| format!("{line}\n"))
                .collect();
            in_text(&code)
        })
    })
}

fn read_script(path: &Path) -> Option<String> {
    let found = path.metadata().ok()?;
    if !found.is_file() || found.len() > SCRIPT_BYTES_MAX {
        return None;
    }
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(SCRIPT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurm_says_is_left_is_understood() {
        let left = |text: &str| slurm_left(text);
        let seconds = |seconds| Limit::Left(Duration::from_secs(seconds));
        assert_eq!(left("59"), seconds(59));
        assert_eq!(left("1:30"), seconds(90));
        assert_eq!(left("23:59:59"), seconds(86_399));
        assert_eq!(left("2-00:00:01"), seconds(172_801));
        assert_eq!(left("UNLIMITED"), Limit::None);
        for bad in ["INVALID", "NOT_SET", "", "1-", "-"] {
            assert_eq!(left(bad), Limit::Unknown, "{bad}");
        }
    }

    #[test]
    fn what_pbs_says_is_understood() {
        let now = local_time("Mon Nov 23 03:00:00 2026").unwrap();
        let pbs_pro = "Job Id: 7.x\n    Resource_List.walltime = 02:00:00\n    stime = Mon Nov 23 02:00:00 2026\n";
        assert_eq!(pbs_left(pbs_pro, now), Some(Limit::Left(Duration::from_secs(3600))));
        let torque = "    Resource_List.walltime = 01:00:00\n    Walltime.Remaining = 77\n";
        assert_eq!(pbs_left(torque, now), Some(Limit::Left(Duration::from_secs(77))));
        let sampled = "    Resource_List.walltime = 01:00:00\n    resources_used.walltime = 00:10:00\n";
        assert_eq!(pbs_left(sampled, now), Some(Limit::Left(Duration::from_secs(3000))));
        assert_eq!(pbs_left("Job Id: 7.x\n", now), Some(Limit::None));
        assert_eq!(pbs_left("    Resource_List.walltime = soon\n", now), None);
    }

    #[test]
    fn a_job_that_does_not_say_its_limit_is_not_taken_for_none() {
        assert_eq!(limit(&|_| None), Limit::NoJob);
        let pbs = |name: &str| (name == "PBS_JOBID").then(|| "no-such-job".to_owned());
        assert_eq!(limit(&pbs), Limit::Unknown);
        let known = |name: &str| match name {
            "SLURM_JOB_ID" => Some("1".to_owned()),
            "SLURM_JOB_END_TIME" => Some("1".to_owned()),
            _ => None,
        };
        assert_eq!(limit(&known), Limit::Left(Duration::ZERO));
    }

    #[test]
    fn a_script_that_starts_tasks_elsewhere_is_found_out() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("job.sh");
        std::fs::write(&script, "#!/bin/sh\n# no srun here\nmodule load x\n/opt/bin/mpirun -n 4 ./app\n").unwrap();
        let found = |words: &[&str]| starter_in(&words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(found(&["srun", "./app"]), Some("srun"));
        assert_eq!(found(&["bash", "-c", "cd x; srun -n2 ./app"]), Some("srun"));
        assert_eq!(found(&["bash", script.to_str().unwrap()]), Some("mpirun"));
        assert_eq!(found(&["./app", "srunner"]), None);
        std::fs::write(&script, "#!/bin/sh\n# srun ./app\nmake\n").unwrap();
        assert_eq!(found(&[script.to_str().unwrap()]), None);
    }
}
