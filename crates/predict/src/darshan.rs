//! A Darshan log as a workload: what a job did on the storage that it had, read by pydarshan.
//!
//! ```text
//!   LOG ──darshan.py (pydarshan)──▶ sums of bytes, times, pieces ──▶ workload, and the durable tier's bandwidths where nobody said them
//! ```
//!
//! The log's format is Darshan's own business, so its own library reads it; that is a Python package, and asked for when it is needed.

use crate::args::StorageArgs;
use serde::Deserialize;
use std::path::Path;
use std::process::Command;
use terrace_core::size::{show_bytes, show_seconds};
use terrace_tool::failure::{Failure, Result};

const SCRIPT: &str = include_str!("darshan.py");
const PYTHON_VARIABLE: &str = "TERRACE_DARSHAN_PYTHON";

#[derive(Debug, Deserialize)]
pub struct Log {
    pub processes: u32,
    pub run_s: f64,
    seconds: Seconds,
    bytes_read: u64,
    bytes_written: u64,
    modules: Vec<String>,
    pub input: u64,
    pub intermediate: u64,
    pub output: u64,
    /// Read again, though read or written before.
    again: u64,
    pieces: u64,
    files: u64,
}

/// Over all processes.
#[derive(Debug, Deserialize)]
struct Seconds {
    read: f64,
    write: f64,
    meta: f64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Found {
    Log(Log),
    Missing { missing: String },
}

pub fn read(file: &Path) -> Result<Log> {
    let python = std::env::var_os(PYTHON_VARIABLE).unwrap_or_else(|| "python3".into());
    let shown = Path::new(&python).display().to_string();
    let hint = format!("install it (`pip install darshan`), and name that Python in {PYTHON_VARIABLE}");
    if !file.is_file() {
        return Err(Failure::bad_input(
            format!("there is no Darshan log {}", file.display()),
            "give a file that exists",
        ));
    }
    let output = Command::new(&python).args(["-c", SCRIPT]).arg(file).output().map_err(|error| {
        Failure::bad_input(format!("can't run {shown}, which reads Darshan's logs: {error}"), &hint)
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.trim().lines().last().unwrap_or("it did not say why").to_owned();
        return Err(Failure::bad_input(
            format!("{} can't be read as a Darshan log: {reason}", file.display()),
            "give a log that Darshan wrote, whole",
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.trim().lines().last().unwrap_or_default();
    let found = serde_json::from_str(line)
        .map_err(|error| Failure::bad_input(format!("{shown} said no sums of {}: {error}", file.display()), &hint))?;
    let log = match found {
        Found::Log(log) => log,
        Found::Missing { missing } => {
            return Err(Failure::bad_input(
                format!("{shown} has no pydarshan, which reads Darshan's logs: {missing}"),
                hint,
            ));
        }
    };
    if log.bytes_read + log.bytes_written == 0 {
        return Err(Failure::bad_input(
            format!("{} tells of no bytes that were read or written by POSIX calls or streams", file.display()),
            "give the log of a job that did, with Darshan's modules POSIX or STDIO",
        ));
    }
    Ok(log)
}

impl Log {
    /// What one process does at a time: a shared file is as many pieces as processes that use it.
    pub fn file_bytes(&self) -> u64 {
        (self.input + self.intermediate + self.output).div_ceil(self.pieces.max(1)).max(1)
    }

    pub fn processes_on(&self, nodes: u32) -> u32 {
        self.processes.div_ceil(nodes.max(1)).max(1)
    }

    /// Processor time over all processes that was neither reading nor writing.
    pub fn compute_s(&self) -> f64 {
        let storage = self.seconds.read + self.seconds.write + self.seconds.meta;
        (self.run_s * f64::from(self.processes) - storage).max(0.0)
    }

    /// What all processes together had while they read, or wrote.
    fn rate(&self, bytes: u64, seconds: f64) -> Option<u64> {
        let rate = bytes as f64 / (seconds / f64::from(self.processes.max(1)));
        (bytes > 0 && seconds > 0.0 && rate.is_finite()).then(|| (rate as u64).max(1))
    }

    /// Bandwidths of the durable tier that nobody has said are those that the job had. Returns notes on what was assumed.
    pub fn put_bandwidths(&self, args: &mut StorageArgs) -> Vec<String> {
        let each = |seconds: f64| show_seconds(seconds / f64::from(self.processes.max(1)));
        let mut notes = vec![format!(
            "the log: {} processes ran {}, each read {}, wrote {} and looked after names for {} of it on average; {} files, by {}",
            self.processes,
            show_seconds(self.run_s),
            each(self.seconds.read),
            each(self.seconds.write),
            each(self.seconds.meta),
            self.files,
            self.modules.join(" and ")
        )];
        if self.again > 0 {
            notes.push(format!(
                "{} more were read again: taken as found in the page cache, or in a tier",
                show_bytes(self.again)
            ));
        }
        if args.platform.is_some() || args.tiers.is_some() {
            return notes;
        }
        let (read, write) =
            (self.rate(self.bytes_read, self.seconds.read), self.rate(self.bytes_written, self.seconds.write));
        for (flag, name, rate) in
            [(&mut args.read_bandwidth, "read", read.or(write)), (&mut args.write_bandwidth, "write", write.or(read))]
        {
            if let (None, Some(rate)) = (&flag, rate) {
                *flag = Some(rate);
                notes.push(format!(
                    "--{name}-bandwidth is not given: {}/s, as the job had (its page cache included)",
                    show_bytes(rate)
                ));
            }
        }
        notes
    }
}
