//! What is in the files: who wrote them, and how much of it.
//!
//!   write done ──Wrote──▶ results' files.jsonl;  of files that are kept also .terrace-bench.jsonl beside them
//!   read       ◀─Origin── the newest note about the file
//!
//! Invariant: a read checks against what was last written, whichever run, repetition, replication or experiment that was; what
//! an earlier one wrote is stale. A file whose write did not end well has no origin, and is not read.

use crate::error::{Error, Result};
use crate::protocol::{Assignment, PassReport};
use crate::settings::{Operation, RunSettings};
use crate::signature::Identity;
use crate::workload;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

pub const BESIDE: &str = ".terrace-bench.jsonl";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// But for the file's number, which the reader knows.
    pub identity: Identity,
    /// What was drawn (sizes, orders) for the write.
    pub draw_seed: u64,
    pub cut: Option<Cut>,
    /// How long each file is, by its number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub file_bytes: BTreeMap<u32, u64>,
}

/// A stonewall ended the write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// Stands for the settings that say which requests there are, and in which order.
    pub requests_of: String,
    /// Of each worker, the first so many.
    pub requests: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// From now on nobody knows what is in there.
    Writes(Vec<PathBuf>),
    Wrote {
        paths: Vec<PathBuf>,
        origin: Origin,
    },
}

/// By the file's name; `None` while it is being written.
pub type Origins = BTreeMap<PathBuf, Option<Origin>>;

pub fn take(origins: &mut Origins, note: Note, full: impl Fn(PathBuf) -> PathBuf) {
    match note {
        Note::Writes(paths) => origins.extend(paths.into_iter().map(|path| (full(path), None))),
        Note::Wrote { paths, origin } => {
            origins.extend(paths.into_iter().map(|path| (full(path), Some(origin.clone()))));
        }
    }
}

impl Origin {
    pub fn of(assignments: &[Assignment], reports: &[Option<PassReport>]) -> Origin {
        let done = || reports.iter().zip(assignments).filter_map(|(report, of)| Some((report.as_ref()?, of)));
        // Of trees the files are counted: they may be empty.
        let is_tree = assignments[0].operation == Operation::Create;
        let is_cut = done().any(|(report, _)| match is_tree {
            true => report.before_stonewall.is_some(),
            false => report.bytes < report.bytes_planned,
        });
        let mut file_bytes = BTreeMap::new();
        for (report, of) in done().filter(|_| !is_tree) {
            let end = match is_cut {
                true => report.end,
                false => workload::file_bytes(&of.settings, of.draw_seed, of.worker).unwrap_or(report.end),
            };
            let known = file_bytes.entry(workload::file_of(&of.settings, of.worker)).or_insert(end);
            *known = end.max(*known);
        }
        Origin {
            file_bytes,
            identity: assignments[0].identity,
            draw_seed: assignments[0].draw_seed,
            cut: is_cut.then(|| Cut {
                requests_of: requests_of(&assignments[0].settings),
                requests: done().map(|(report, of)| (of.worker, report.requests)).collect(),
            }),
        }
    }

    /// Lets the reader know what it will find.
    pub fn tell(&self, path: &Path, assignment: &mut Assignment) -> Result<()> {
        assignment.identity = self.identity;
        assignment.draw_seed = self.draw_seed;
        assignment.written = None;
        assignment.noted = true;
        let file = workload::file_of(&assignment.settings, assignment.owner());
        assignment.file_bytes = self.file_bytes.get(&file).copied();
        if let Some(cut) = &self.cut {
            if cut.requests_of != requests_of(&assignment.settings) {
                return Err(Error::failed(format!(
                    "{}: a stonewall ended its write, and a run with other requests can't tell which bytes are there: read it with the workload, workers and coalescing that wrote it",
                    path.display()
                )));
            }
            assignment.written = Some(cut.requests.get(&assignment.owner()).copied().unwrap_or(0));
        }
        Ok(())
    }
}

fn requests_of(settings: &RunSettings) -> String {
    let what = (&settings.workload, settings.workers, settings.files, settings.coalesce);
    let text = serde_json::to_vec(&what).expect("settings are plain data");
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The notes that lie beside kept files.
pub fn beside(directory: &Path) -> Result<Origins> {
    let path = directory.join(BESIDE);
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Origins::new()),
        read => read.map_err(|error| Error::io("read", path.display(), error))?,
    };
    let mut origins = Origins::new();
    // A line that a crash cut off is of a write that did not end.
    for note in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        take(&mut origins, note, |path| directory.join(path));
    }
    Ok(origins)
}

/// Adds a note beside the files. Names are relative, so that the directory may be moved.
pub fn note_beside(directory: &Path, note: &Note) -> Result<()> {
    let below = |paths: &[PathBuf]| -> Vec<PathBuf> {
        paths.iter().map(|path| path.strip_prefix(directory).unwrap_or(path).to_owned()).collect()
    };
    let note = match note {
        Note::Writes(paths) => Note::Writes(below(paths)),
        Note::Wrote { paths, origin } => Note::Wrote { paths: below(paths), origin: origin.clone() },
    };
    let path = directory.join(BESIDE);
    let mut line = serde_json::to_string(&note).map_err(|error| Error::failed(format!("a file's name: {error}")))?;
    // A line that a crash cut off ends here.
    line.insert(0, '\n');
    line.push('\n');
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()))
        .map_err(|error| Error::io("write", path.display(), error))
}
