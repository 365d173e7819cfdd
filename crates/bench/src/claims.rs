//! Which files are the experiment's own: only those are written over and removed.
//!
//! Names are noted in the results' `files.jsonl` before the files are made, so that a resumed experiment knows what an interrupted
//! repetition left. Whatever else has such a name is the user's, and the repetition is refused.

use crate::error::{Error, Result};
use crate::protocol::Assignment;
use crate::settings::{BackendSettings, Files, Operation, RunSettings, Workload};
use crate::worker::path_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

#[derive(Default)]
pub struct Claims {
    ours: BTreeSet<PathBuf>,
    journal: Option<(PathBuf, File)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    Made(Vec<PathBuf>),
    Removed(Vec<PathBuf>),
}

pub fn makes_files(settings: &RunSettings) -> bool {
    let makes = |operation: &Operation| matches!(operation, Operation::Write | Operation::Mixed | Operation::Create);
    settings.operations.iter().any(makes)
}

pub fn refused(path: &Path) -> Error {
    Error::input(
        format!("{} is there already, and this experiment did not make it", path.display()),
        "give another `file_name` or `directory`, or remove it yourself; a run that only reads may use it",
    )
}

impl Claims {
    /// What earlier repetitions with these results made and did not remove.
    pub fn open(results: &Path) -> Result<Claims> {
        let path = results.join("files.jsonl");
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| Error::io("read", path.display(), error))?,
        };
        let mut ours = BTreeSet::new();
        // A line that a crash cut off was noted before its files were made: there are none.
        for note in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match note {
                Note::Made(paths) => ours.extend(paths),
                Note::Removed(paths) => {
                    for path in &paths {
                        ours.remove(path);
                    }
                }
            }
        }
        let mut journal = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| Error::io("open", path.display(), error))?;
        if !text.is_empty() && !text.ends_with('\n') {
            journal.write_all(b"\n").map_err(|error| Error::io("write", path.display(), error))?;
        }
        Ok(Claims { ours, journal: Some((path, journal)) })
    }

    /// Takes the names of a repetition that makes files; of each worker, whether its file was ours before.
    pub fn claim(&mut self, settings: &RunSettings, assignments: &[Assignment]) -> Result<Vec<bool>> {
        if !makes_files(settings) || matches!(settings.backend, BackendSettings::Null(_)) {
            return Ok(vec![false; assignments.len()]);
        }
        let paths = paths(settings, assignments);
        let replaces: Vec<bool> = paths.iter().map(|path| self.ours.contains(path)).collect();
        let new: Vec<PathBuf> = paths.iter().filter(|path| !self.ours.contains(*path)).cloned().collect();
        if let Some(strange) = new.iter().find(|path| path.symlink_metadata().is_ok()) {
            return Err(refused(strange));
        }
        if !new.is_empty() {
            self.note(&Note::Made(new.clone()))?;
            self.ours.extend(new);
        }
        if matches!(settings.workload, Workload::Metadata(_)) {
            make_top(settings, &paths[0], replaces[0])?;
        }
        Ok((0..assignments.len()).map(|worker| replaces[worker.min(replaces.len() - 1)]).collect())
    }

    /// The repetition's files are gone: whatever has such a name from now on is another's.
    pub fn release(&mut self, settings: &RunSettings, assignments: &[Assignment]) -> Result<()> {
        let paths = paths(settings, assignments);
        for path in &paths {
            self.ours.remove(path);
        }
        self.note(&Note::Removed(paths))
    }

    fn note(&mut self, note: &Note) -> Result<()> {
        let Some((path, journal)) = &mut self.journal else { return Ok(()) };
        let mut line = serde_json::to_string(note).map_err(|error| Error::failed(format!("a file's name: {error}")))?;
        line.push('\n');
        journal.write_all(line.as_bytes()).map_err(|error| Error::io("write", path.display(), error))
    }
}

/// What the workers make: a tree, a shared file, or a file each.
fn paths(settings: &RunSettings, assignments: &[Assignment]) -> Vec<PathBuf> {
    if matches!(settings.workload, Workload::Metadata(_)) {
        return vec![assignments[0].directory.join(&assignments[0].file_stem)];
    }
    let one = settings.files == Files::Shared && !settings.directory_per_worker;
    let makers = if one { &assignments[..1] } else { assignments };
    makers.iter().map(|assignment| path_of(assignment, assignment.worker)).collect()
}

/// A tree that an interrupted repetition left would be in the way of the files that are made anew.
fn make_top(settings: &RunSettings, top: &Path, ours: bool) -> Result<()> {
    if ours && settings.keep {
        return Ok(());
    }
    if ours {
        match std::fs::remove_dir_all(top) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::io("remove the old", top.display(), error));
            }
            _ => {}
        }
    }
    if !matches!(settings.backend, BackendSettings::Posix(_)) {
        return Ok(());
    }
    if let Some(parent) = top.parent() {
        std::fs::create_dir_all(parent).map_err(|error| Error::io("create", parent.display(), error))?;
    }
    match std::fs::create_dir(top) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(refused(top)),
        made => made.map_err(|error| Error::io("create", top.display(), error)),
    }
}
