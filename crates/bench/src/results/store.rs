//! The directory of an experiment's results.
//!
//! ```text
//!   experiment.json  what was asked     plan.json  the runs, and their hash     manifest.json  where and with what
//!   .lock            held by the process that is at work: there is one at a time
//!   rows.jsonl       a line for each operation, written as soon as it is done: what `resume` goes on from
//!   attempts.jsonl   rows of repetitions that were interrupted or failed, and done again by `resume`
//!   rows.csv, rows.parquet, summary.json, report.html, *.png   made from the rows
//! ```

use super::row::{Row, Status};
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::plan::Plan;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Store {
    pub directory: PathBuf,
    live: File,
    _lock: File,
}

impl Store {
    /// A new directory of results; one that has results already is not written over.
    pub fn create(directory: &Path, experiment: &Experiment, plan: &Plan, manifest: &Value) -> Result<Store> {
        std::fs::create_dir_all(directory).map_err(|error| Error::io("create", directory.display(), error))?;
        let lock = lock(directory)?;
        if directory.join("rows.jsonl").exists() {
            return Err(Error::input(
                format!("{} has results already", directory.display()),
                "go on with `terrace bench resume`, or name another directory with --output",
            ));
        }
        write_json(&directory.join("experiment.json"), experiment)?;
        write(&directory.join("plan.json"), &plan.text())?;
        write_json(&directory.join("manifest.json"), manifest)?;
        Store::open(directory, lock)
    }

    /// To go on with what was interrupted: with the rows so far.
    pub fn resume(directory: &Path, plan: &Plan) -> Result<(Store, Vec<Row>)> {
        let lock = lock(directory)?;
        Store::mend(directory, plan)?;
        let rows = Store::rows(directory)?;
        Ok((Store::open(directory, lock)?, rows))
    }

    fn open(directory: &Path, lock: File) -> Result<Store> {
        let path = directory.join("rows.jsonl");
        let live = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| Error::io("open", path.display(), error))?;
        Ok(Store { directory: directory.to_owned(), live, _lock: lock })
    }

    pub fn experiment(directory: &Path) -> Result<(Experiment, String)> {
        let path = directory.join("experiment.json");
        let text = std::fs::read_to_string(&path).map_err(|error| {
            Error::input(
                format!("can't read {}: {error}", path.display()),
                "name a directory that `terrace bench run` made",
            )
        })?;
        let experiment = Experiment::parse(&text, crate::experiment::Format::Json)?;
        let path = directory.join("plan.json");
        let plan = std::fs::read_to_string(&path).map_err(|error| Error::io("read", path.display(), error))?;
        Ok((experiment, plan))
    }

    pub fn append(&mut self, row: &Row) -> Result<()> {
        let mut line = serde_json::to_string(row).map_err(|error| Error::failed(format!("a row: {error}")))?;
        line.push('\n');
        self.live
            .write_all(line.as_bytes())
            .map_err(|error| Error::io("write", self.directory.join("rows.jsonl").display(), error))
    }

    /// All rows so far; a last line that was cut off by a crash is left out.
    pub fn rows(directory: &Path) -> Result<Vec<Row>> {
        let path = directory.join("rows.jsonl");
        let file = File::open(&path).map_err(|error| {
            Error::input(
                format!("can't read {}: {error}", path.display()),
                "name a directory that `terrace bench run` made",
            )
        })?;
        let mut rows = Vec::new();
        let mut lines = BufReader::new(file).lines().enumerate().peekable();
        while let Some((number, line)) = lines.next() {
            let line = line.map_err(|error| Error::io("read", path.display(), error))?;
            match serde_json::from_str(&line) {
                Ok(row) => rows.push(row),
                Err(_) if lines.peek().is_none() => break,
                Err(error) => {
                    return Err(Error::failed(format!("{}, line {}: {error}", path.display(), number + 1)));
                }
            }
        }
        Ok(rows)
    }

    /// Removes a line that a crash cut off, so that the next row begins on its own, and what there is of repetitions that
    /// will be done again, so that none counts twice and none that is whole now is shown as failed. Those go to `attempts.jsonl`.
    fn mend(directory: &Path, plan: &Plan) -> Result<()> {
        let path = directory.join("rows.jsonl");
        let mut rows = Store::rows(directory)?;
        let complete = Store::complete(&rows, plan);
        let is_complete = |row: &Row| complete.contains(&(row.run, row.replication, row.repetition));
        let again = lines(rows.iter().filter(|row| !is_complete(row)))?;
        rows.retain(is_complete);
        let text = lines(rows.iter())?;
        if !again.is_empty() {
            let path = directory.join("attempts.jsonl");
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .and_then(|mut file| file.write_all(again.as_bytes()))
                .map_err(|error| Error::io("write", path.display(), error))?;
        }
        let new = path.with_extension("new");
        write(&new, &text)?;
        std::fs::rename(&new, &path).map_err(|error| Error::io("replace", path.display(), error))
    }

    /// Repetitions that are complete: (run, replication, repetition). Operations come in order, so the last one says it.
    pub fn complete(rows: &[Row], plan: &Plan) -> BTreeSet<(u32, u32, u32)> {
        let is_last = |row: &Row| {
            let run = plan.runs.get(row.run as usize);
            run.is_some_and(|run| row.position as usize + 1 == run.settings.operations.len())
        };
        rows.iter()
            .filter(|row| row.status != Status::Partial && is_last(row))
            .map(|row| (row.run, row.replication, row.repetition))
            .collect()
    }
}

fn lines<'a>(rows: impl Iterator<Item = &'a Row>) -> Result<String> {
    let mut text = String::new();
    for row in rows {
        text.push_str(&serde_json::to_string(row).map_err(|error| Error::failed(format!("a row: {error}")))?);
        text.push('\n');
    }
    Ok(text)
}

/// One process at a time writes into a directory of results. The lock ends with the process, however that ends.
fn lock(directory: &Path) -> Result<File> {
    let path = directory.join(".lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .map_err(|error| Error::io("open", path.display(), error))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut process = String::new();
            // For the message only: a process that has just begun has not said its number yet.
            let _ = file.read_to_string(&mut process);
            let process = if process.is_empty() { String::new() } else { format!(" (process {})", process.trim()) };
            return Err(Error::input(
                format!("{}: another `terrace bench`{process} is at work there", directory.display()),
                "wait until it has ended, or name another directory with --output",
            ));
        }
        Err(error) => return Err(Error::io("lock", path.display(), error)),
    }
    file.set_len(0)
        .and_then(|()| file.write_all(std::process::id().to_string().as_bytes()))
        .map_err(|error| Error::io("write", path.display(), error))?;
    Ok(file)
}

pub fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).map_err(|error| Error::io("write", path.display(), error))
}

pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut text =
        serde_json::to_string_pretty(value).map_err(|error| Error::failed(format!("{}: {error}", path.display())))?;
    text.push('\n');
    write(path, &text)
}

/// Where and with what the experiment runs.
pub fn manifest(experiment: &Experiment, plan: &Plan) -> Value {
    let uname = rustix::system::uname();
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
    };
    let version = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next().map(str::trim).map(str::to_owned)
    };
    let (cpu, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let directory = std::fs::canonicalize(&experiment.directory).unwrap_or_else(|_| experiment.directory.clone());
    json!({
        "program": concat!("terrace-bench ", env!("CARGO_PKG_VERSION")),
        "plan_hash": plan.hash(),
        "command": std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>(),
        "started_unix_s": unix_seconds(),
        "host": uname.nodename().to_string_lossy(),
        "kernel": uname.release().to_string_lossy(),
        "machine": uname.machine().to_string_lossy(),
        "cpu": field(&cpu, "model name"),
        "cpus": std::thread::available_parallelism().map(usize::from).unwrap_or(1),
        "memory": field(&memory, "MemTotal"),
        "governor": read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").trim(),
        "load": read("/proc/loadavg").trim(),
        "directory": directory,
        "mount": mount_of(&directory, &read("/proc/self/mountinfo")),
        "mpi": if experiment_needs_mpi(plan) { version("mpirun", "--version") } else { None },
    })
}

fn experiment_needs_mpi(plan: &Plan) -> bool {
    plan.runs.iter().any(|run| run.settings.backend.needs_mpi())
}

pub fn unix_seconds() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// File system, source and options of the mount that a directory is in.
fn mount_of(directory: &Path, mountinfo: &str) -> Value {
    let best = mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<_> = left.split(' ').collect();
            let right: Vec<_> = right.split(' ').collect();
            let point = left.get(4)?.replace("\\040", " ");
            directory.starts_with(&point).then(|| {
                let found = json!({
                    "point": point, "options": left.get(5), "type": right.first(), "source": right.get(1), "super_options": right.get(2)
                });
                (point.len(), found)
            })
        })
        // Of equal points the last one is on top.
        .max_by_key(|(length, _)| *length);
    best.map_or(Value::Null, |(_, found)| found)
}
