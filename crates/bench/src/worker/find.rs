//! Find: walks everything below a directory and counts what has a name, a size and an age.
//!
//! Every worker lists all directories, because only a listing tells of the directories below, and looks at its own share of the entries: each
//! entry is looked at once, by the worker that its name's hash gives it to.

use super::pass::failed;
use crate::clock::now_ns;
use crate::error::{Error, Result};
use crate::latencies::{encode, histogram};
use crate::protocol::{Assignment, PassReport};
use crate::settings::Workload;
use crate::workload::mix;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::SystemTime;

pub fn top(assignment: &Assignment) -> PathBuf {
    match &assignment.settings.file_name {
        Some(_) => assignment.directory.join(&assignment.file_stem),
        None => assignment.directory.clone(),
    }
}

pub fn perform(assignment: &Assignment) -> Result<PassReport> {
    let Workload::Find(wanted) = &assignment.settings.workload else {
        return Err(Error::failed("the workload finds nothing"));
    };
    let newer_than: Option<SystemTime> = match &wanted.newer_than {
        None => None,
        Some(name) => {
            let path = assignment.directory.join(name);
            let found = std::fs::metadata(&path).and_then(|found| found.modified());
            Some(found.map_err(|error| failed("stat", &path, error))?)
        }
    };
    let workers = u64::from(assignment.settings.workers);
    let mut latencies = histogram();
    let now = now_ns();
    let mut report = PassReport { began_ns: now, opened_ns: now, first_ns: now, last_ns: now, ..PassReport::default() };
    let mut directories = vec![top(assignment)];
    while let Some(directory) = directories.pop() {
        let entries = std::fs::read_dir(&directory).map_err(|error| failed("list", &directory, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed("list", &directory, error))?;
            let name = entry.file_name();
            // Without a look at the entry where the listing tells.
            let kind = entry.file_type().map_err(|error| failed("look at", &entry.path(), error))?;
            if kind.is_dir() {
                directories.push(entry.path());
            }
            let hash = name.as_bytes().iter().fold(0, |hash, byte| mix(hash ^ u64::from(*byte)));
            if hash % workers != u64::from(assignment.worker) {
                continue;
            }
            let began = now_ns();
            report.requests += 1;
            let named = wanted.name_contains.as_ref().is_none_or(|part| contains(name.as_bytes(), part.as_bytes()));
            if named && !kind.is_dir() {
                let found = entry.metadata().map_err(|error| failed("look at", &entry.path(), error))?;
                let sized = wanted.size.is_none_or(|size| found.len() == size.0);
                let aged = newer_than.is_none_or(|than| found.modified().is_ok_and(|at| at > than));
                report.found += u64::from(sized && aged);
            }
            report.last_ns = now_ns();
            latencies.saturating_record((report.last_ns - began).max(1));
        }
    }
    report.last_ns = now_ns();
    report.flushed_ns = report.last_ns;
    report.closed_ns = report.last_ns;
    report.latencies = encode(&latencies);
    Ok(report)
}

fn contains(name: &[u8], part: &[u8]) -> bool {
    part.is_empty() || name.windows(part.len()).any(|window| window == part)
}
