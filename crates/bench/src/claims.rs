//! Which files are the experiment's own: only those are written over and removed.
//!
//! Names are noted in the results' `files.jsonl` before the files are made, so that a resumed experiment knows what an interrupted
//! repetition left. Whatever else has such a name is the user's, and the repetition is refused. What the files hold is noted
//! there as well (see `origins`).

use crate::error::{Error, Result};
use crate::origins::{self, Origin, Origins};
use crate::protocol::{Assignment, PassReport};
use crate::settings::{BackendSettings, Existing, Files, Operation, RunSettings, Workload};
use crate::worker::path_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

#[derive(Default)]
pub struct Claims {
    ours: BTreeSet<PathBuf>,
    /// By the journal, and by what was written since it was opened: that is newer than what others say.
    before: Origins,
    since: Origins,
    journal: Option<(PathBuf, File)>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    Made(Vec<PathBuf>),
    Removed(Vec<PathBuf>),
    #[serde(untagged)]
    Origin(origins::Note),
}

pub fn makes_files(settings: &RunSettings) -> bool {
    let makes = |operation: &Operation| matches!(operation, Operation::Write | Operation::Mixed | Operation::Create);
    settings.operations.iter().any(makes)
}

/// Whose names and contents are noted: the null backend has no files.
fn is_noted(settings: &RunSettings) -> bool {
    !matches!(settings.backend, BackendSettings::Null(_)) && !matches!(settings.workload, Workload::Find(_))
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
        let mut before = Origins::new();
        // A line that a crash cut off was noted before its files were made: there are none.
        for note in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
            match note {
                Note::Made(paths) => ours.extend(paths),
                Note::Removed(paths) => {
                    for path in &paths {
                        ours.remove(path);
                        before.remove(path);
                    }
                }
                Note::Origin(note) => origins::take(&mut before, note, |path| path),
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
        Ok(Claims { ours, before, since: Origins::new(), journal: Some((path, journal)) })
    }

    /// Of each worker, whether its file is ours.
    pub fn ours(&self, settings: &RunSettings, assignments: &[Assignment]) -> Vec<bool> {
        let paths = paths(settings, assignments);
        (0..assignments.len()).map(|worker| self.ours.contains(&paths[worker.min(paths.len() - 1)])).collect()
    }

    /// Takes the names of a repetition that makes files; of each worker, whether its file was ours before.
    pub fn claim(&mut self, settings: &RunSettings, assignments: &[Assignment]) -> Result<Vec<bool>> {
        if !makes_files(settings) || matches!(settings.backend, BackendSettings::Null(_)) {
            return Ok(vec![false; assignments.len()]);
        }
        let paths = paths(settings, assignments);
        let replaces: Vec<bool> = paths.iter().map(|path| self.ours.contains(path)).collect();
        let new: Vec<PathBuf> = paths.iter().filter(|path| !self.ours.contains(*path)).cloned().collect();
        let over = settings.existing == Existing::Overwrite && !matches!(settings.workload, Workload::Metadata(_));
        if !over && let Some(strange) = new.iter().find(|path| path.symlink_metadata().is_ok()) {
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
            self.before.remove(path);
            self.since.remove(path);
        }
        self.note(&Note::Removed(paths))
    }

    /// A write begins: until it has ended, nobody knows what the files hold.
    pub fn write_begins(&mut self, settings: &RunSettings, assignments: &[Assignment]) -> Result<()> {
        if !is_noted(settings) {
            return Ok(());
        }
        let note = origins::Note::Writes(paths(settings, assignments));
        self.note_origin(settings, assignments, note)
    }

    pub fn write_ended(
        &mut self,
        settings: &RunSettings,
        assignments: &[Assignment],
        reports: &[Option<PassReport>],
    ) -> Result<()> {
        if !is_noted(settings) {
            return Ok(());
        }
        let origin = Origin::of(assignments, reports);
        let note = origins::Note::Wrote { paths: paths(settings, assignments), origin };
        self.note_origin(settings, assignments, note)
    }

    fn note_origin(&mut self, settings: &RunSettings, assignments: &[Assignment], note: origins::Note) -> Result<()> {
        let directory = &assignments[0].directory;
        // A file that was kept once is known beside it, and what is said there must stay true.
        let beside = settings.keep
            || match origins::beside(directory) {
                Ok(known) => paths(settings, assignments).iter().any(|path| known.contains_key(path)),
                Err(_) => true,
            };
        origins::take(&mut self.since, note.clone(), |path| path);
        if beside {
            origins::note_beside(directory, &note)?;
        }
        self.note(&Note::Origin(note))
    }

    /// Tells each worker what is in the file that it will read; a file that nobody has noted has what the settings say.
    pub fn tell_origins(&self, settings: &RunSettings, assignments: &mut [Assignment]) -> Result<()> {
        if !is_noted(settings) {
            return Ok(());
        }
        let beside = origins::beside(&assignments[0].directory)?;
        for assignment in assignments {
            let name = match settings.workload {
                Workload::Metadata(_) => assignment.directory.join(&assignment.file_stem),
                _ => name_of(assignment, assignment.owner()),
            };
            let found = self.since.get(&name).or_else(|| beside.get(&name)).or_else(|| self.before.get(&name));
            match found {
                Some(Some(origin)) => origin.tell(&name, assignment)?,
                Some(None) => {
                    return Err(Error::failed(format!(
                        "{}: its last write did not end well, so nobody knows what it holds: write it anew",
                        name.display()
                    )));
                }
                None => {}
            }
        }
        Ok(())
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
    makers.iter().map(|assignment| name_of(assignment, assignment.worker)).collect()
}

/// The file of `worker`; of an object in a store, which is no file below the directory, its own kind of name.
fn name_of(assignment: &Assignment, worker: u32) -> PathBuf {
    let path = path_of(assignment, worker);
    let BackendSettings::S3(s3) = &assignment.settings.backend else { return path };
    let key = path.strip_prefix(&assignment.directory).unwrap_or(&path).display();
    PathBuf::from(format!("s3:{}/{}/{key}", s3.endpoint.as_deref().unwrap_or_default(), s3.bucket))
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
