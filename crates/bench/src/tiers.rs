//! Measures the tiers of a configuration: what each reads and writes, past the page cache and through it, and how long one
//! small request takes. The numbers are what the performance model asks for.
//!
//! | measured | how |
//! | --- | --- |
//! | write | sequential, 1 MiB requests, until the storage has it |
//! | cached write | the same, until the page cache has it |
//! | read | sequential, 1 MiB requests, with a cold cache (proven) |
//! | cached read | the same, with a warm one (proven) |
//! | latency | 4 KiB requests one by one: reads at random places of a cold file, writes each flushed |
//!
//! A tier in memory has no page cache before it: what would be cold can't be, and its numbers are the warm ones.

use crate::error::{Error, Result};
use crate::execute::{Executor, Progress};
use crate::experiment::{Experiment, Format};
use crate::plan::Plan;
use crate::results::{Row, Store, manifest};
use crate::statistics::{Interval, summarise};
use crate::stop::Stop;
use rustix::fs::{statfs, statvfs};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_core::size::show_bytes;

pub struct Wish {
    pub tiers: Vec<(String, PathBuf)>,
    pub bytes: u64,
    pub workers: u32,
    pub replications: u32,
}

/// The shape of `terrace_model::TierRates`.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    pub tier: String,
    pub read_bytes_s: f64,
    pub write_bytes_s: f64,
    pub cached_read_bytes_s: Option<f64>,
    pub cached_write_bytes_s: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    pub rates: Rates,
    pub path: PathBuf,
    pub in_memory: bool,
    pub read_latency_s: f64,
    pub write_latency_s: f64,
    /// Of each median: what was measured to its 95% interval.
    pub intervals: BTreeMap<String, Interval>,
}

const TMPFS_MAGIC: i64 = 0x0102_1994;
const LATENCY_REQUESTS: u64 = 1000;

/// Measures all tiers and returns the document that is stored.
pub fn measure(wish: &Wish, progress: &mut dyn Progress, stop: &Arc<Stop>) -> Result<Value> {
    let mut measured = Vec::new();
    let mut environment = Value::Null;
    for (name, path) in &wish.tiers {
        check_room(name, path, wish)?;
    }
    for (name, path) in &wish.tiers {
        // Others may have filled it meanwhile.
        check_room(name, path, wish)?;
        let work = tempfile::Builder::new().prefix(".terrace-bench-").tempdir_in(path).map_err(|error| {
            Error::input(
                format!("tier `{name}`: can't write below {}: {error}", path.display()),
                "name a directory that exists",
            )
        })?;
        let in_memory = in_memory(path)?;
        let experiment = experiment(work.path(), wish, in_memory)?;
        let plan = Plan::of(&experiment)?;
        let results = tempfile::tempdir().map_err(|error| Error::io("make", "a temporary directory", error))?;
        environment = manifest(&experiment, &plan);
        let store = Store::create(&results.path().join("results"), &experiment, &plan, &environment)?;
        let mut executor = Executor::new(&experiment, &plan, store, vec![], stop);
        // What was made is removed with its directory.
        if let Some(signal) = executor.run(progress)?.stopped {
            return Err(Error::Stopped(signal));
        }
        if let Some(failed) = executor.rows().iter().find(|row| !row.counts()) {
            return Err(Error::failed(format!("tier `{name}`: {}", failed.error.as_deref().unwrap_or("a run failed"))));
        }
        measured.push(tier(name, path, in_memory, executor.rows())?);
    }
    Ok(
        json!({ "version": 1, "manifest": environment, "bytes": wish.bytes, "workers": wish.workers, "tiers": measured }),
    )
}

/// A file system is left a twentieth of its size, and memory a tenth of what is free: others work there.
fn check_room(name: &str, path: &Path, wish: &Wish) -> Result<()> {
    let found = statvfs(path).map_err(|error| {
        Error::input(
            format!(
                "tier `{name}`: can't look at the file system of {}: {}",
                path.display(),
                std::io::Error::from(error)
            ),
            "name a directory that exists",
        )
    })?;
    let mut room = (found.f_bavail * found.f_frsize).saturating_sub(found.f_blocks * found.f_frsize / 20);
    if in_memory(path)? {
        room = room.min(available_memory().unwrap_or(u64::MAX) / 10 * 9);
    }
    // One run's files are there at a time.
    let needed = (per_worker(wish) * u64::from(wish.workers.max(1))).max(small_bytes(wish));
    if needed <= room {
        return Ok(());
    }
    Err(Error::input(
        format!(
            "tier `{name}`: {} are to be written to {}, where {} are free and {} may be used",
            show_bytes(needed),
            path.display(),
            show_bytes(found.f_bavail * found.f_frsize),
            show_bytes(room)
        ),
        "make room, or measure with less: `--size SIZE`",
    ))
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// What each worker streams.
fn per_worker(wish: &Wish) -> u64 {
    (wish.bytes / u64::from(wish.workers.max(1))).max(1 << 20)
}

fn small_bytes(wish: &Wish) -> u64 {
    (LATENCY_REQUESTS * 4096).min(wish.bytes.max(1 << 20))
}

fn in_memory(path: &Path) -> Result<bool> {
    let found = statfs(path).map_err(|error| Error::io("look at the file system of", path.display(), error))?;
    Ok(found.f_type as i64 == TMPFS_MAGIC)
}

fn experiment(directory: &Path, wish: &Wish, in_memory: bool) -> Result<Experiment> {
    let per_worker = per_worker(wish);
    let stream = json!({ "offset": { "data_size": per_worker, "request_size": (1_u64 << 20).min(per_worker) } });
    let small = small_bytes(wish);
    let read = if in_memory { "as_is" } else { "cold" };
    let mut runs = vec![
        json!({ "name": "stream", "settings": { "workload": stream, "cache": read, "flush": "end" } }),
        json!({ "name": "latency", "settings": {
            "workers": 1, "cache": read, "flush": "request",
            "workload": { "offset": { "pattern": "random", "data_size": small, "request_size": 4096 } } } }),
    ];
    if !in_memory {
        runs.push(json!({ "name": "cached", "settings": { "workload": stream, "cache": "warm", "flush": "never" } }));
    }
    let text = json!({
        "name": "tiers", "directory": directory, "replications": wish.replications, "runs": runs,
        "base": { "workers": wish.workers, "files": "per_worker" }
    });
    Experiment::parse(&text.to_string(), Format::Json)
}

fn tier(name: &str, path: &Path, in_memory: bool, rows: &[Row]) -> Result<Measured> {
    let mut intervals = BTreeMap::new();
    let mut median = |run: &str, operation: &str, what: &str, value: &dyn Fn(&Row) -> f64| {
        let values: Vec<f64> = rows
            .iter()
            .filter(|row| row.factors.get("run").is_some_and(|name| name == run) && row.operation == operation)
            .map(value)
            .collect();
        let summary =
            summarise(&values, 0.95).ok_or_else(|| Error::failed(format!("tier `{name}`: nothing was measured")))?;
        intervals.insert(what.to_owned(), summary.interval);
        Ok::<f64, Error>(summary.median)
    };
    let rate = |row: &Row| row.rate_bytes_s;
    let latency = |row: &Row| row.latency_median_ns as f64 / 1e9;
    let rates = Rates {
        tier: name.to_owned(),
        read_bytes_s: median("stream", "read", "read_bytes_s", &rate)?,
        write_bytes_s: median("stream", "write", "write_bytes_s", &rate)?,
        cached_read_bytes_s: (!in_memory)
            .then(|| median("cached", "read", "cached_read_bytes_s", &rate))
            .transpose()?,
        cached_write_bytes_s: (!in_memory)
            .then(|| median("cached", "write", "cached_write_bytes_s", &rate))
            .transpose()?,
    };
    let read_latency_s = median("latency", "read", "read_latency_s", &latency)?;
    let write_latency_s = median("latency", "write", "write_latency_s", &latency)?;
    Ok(Measured { rates, path: path.to_owned(), in_memory, read_latency_s, write_latency_s, intervals })
}
