//! One operation of one run on one worker: prepare (not measured), open, transfer, flush, close.

use super::{Meeting, find, loops, metadata, path_of};
use crate::backend::{self, Backend, Target};
use crate::cache::{self, Residency};
use crate::clock::now_ns;
use crate::error::{Error, Result};
use crate::layout;
use crate::protocol::{Assignment, PassReport};
use crate::settings::{BackendSettings, Check, Existing, Files, Flush, Operation, Verify};
use crate::signature::{Identity, Signature};
use crate::workload::{self, Block};
use std::path::{Path, PathBuf};

/// Backends live as long as runs use the same: a library such as MPI starts once in a process.
#[derive(Default)]
pub struct Keeper {
    made: Option<(BackendSettings, Box<dyn Backend>)>,
}

impl Keeper {
    fn backend(&mut self, assignment: &Assignment) -> Result<&mut dyn Backend> {
        let wanted = &assignment.settings.backend;
        // The null backend's times are drawn anew in each operation.
        let fresh = matches!(wanted, BackendSettings::Null(_));
        if fresh || self.made.as_ref().is_none_or(|(settings, _)| settings != wanted) {
            self.made = None;
            let operation = assignment.operation as u64;
            let seed = [u64::from(assignment.identity.run), u64::from(assignment.worker), operation]
                .into_iter()
                .fold(assignment.draw_seed, |seed, part| workload::mix(seed ^ workload::mix(part + 1)));
            self.made = Some((wanted.clone(), backend::make(&assignment.settings, seed)?));
        }
        let (_, backend) = self.made.as_mut().expect("it was made just now");
        backend.place(&assignment.directory);
        Ok(backend.as_mut())
    }
    pub fn finish(&mut self) {
        self.made = None;
        backend::Shim::finish_all();
    }
}

pub struct Pass<'a> {
    assignment: &'a Assignment,
    keeper: &'a mut Keeper,
    path: PathBuf,
    blocks: Vec<Block>,
    file_bytes: u64,
    cache: Residency,
}

impl<'a> Pass<'a> {
    /// Everything that is not to be measured.
    pub fn prepare(assignment: &'a Assignment, keeper: &'a mut Keeper) -> Result<Pass<'a>> {
        let settings = &assignment.settings;
        keeper.backend(assignment)?;
        if assignment.operation.is_metadata() {
            metadata::prepare(assignment)?;
            let path = assignment.directory.clone();
            return Ok(Pass { assignment, keeper, path, blocks: vec![], file_bytes: 0, cache: Residency::default() });
        }
        if assignment.operation == Operation::Find {
            let path = find::top(assignment);
            return Ok(Pass { assignment, keeper, path, blocks: vec![], file_bytes: 0, cache: Residency::default() });
        }
        let owner = assignment.owner();
        let path = path_of(assignment, owner);
        let part = workload::part(settings, assignment.draw_seed, owner)?;
        let file_bytes = workload::file_bytes(settings, assignment.draw_seed, owner)?;
        let local = settings.backend.has_local_files();
        let mut cache = Residency::default();
        if assignment.operation == Operation::Write {
            // In a shared file worker 0 prepares for all: they open it after the start.
            if local && (settings.files == Files::PerWorker || assignment.worker == 0) {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent).map_err(|error| Error::io("create", parent.display(), error))?;
                }
                match path.symlink_metadata() {
                    Ok(_) if settings.existing == Existing::Overwrite => cut_off(&path, file_bytes)?,
                    _ => layout::set(&settings.layout, &path, file_bytes, assignment.replaces)?,
                }
            } else if !local && (settings.files == Files::PerWorker || assignment.worker == 0) {
                make_room(assignment, keeper, &path)?;
            }
        } else if local {
            cache = cache::force(&path, settings.cache)?;
        }
        Ok(Pass { assignment, keeper, path, blocks: part.blocks, file_bytes, cache })
    }

    pub fn cache(&self) -> Residency {
        self.cache
    }

    pub fn perform(&mut self, meeting: &mut dyn Meeting) -> Result<PassReport> {
        let assignment = self.assignment;
        let settings = &assignment.settings;
        if assignment.operation.is_metadata() {
            return metadata::perform(assignment, meeting);
        }
        if assignment.operation == Operation::Find {
            return find::perform(assignment);
        }
        let owner = assignment.owner();
        let write = assignment.operation != Operation::Read;
        let signature = Signature::new(Identity { file: workload::file_of(settings, owner), ..assignment.identity });
        let target = Target {
            path: &self.path,
            directory: &assignment.directory,
            file_bytes: self.file_bytes,
            write,
            blocks: &self.blocks,
            shared: settings.files == Files::Shared,
            worker: assignment.worker,
        };
        let backend = self.keeper.backend(assignment)?;
        let mut work = loops::Work::prepare(assignment, owner, signature, backend)?;
        let path = self.path.as_path();

        let mut report = PassReport { began_ns: now_ns(), ..PassReport::default() };
        backend.open(&target).map_err(|error| failed("open", path, error))?;
        report.opened_ns = now_ns();
        if settings.barriers {
            meeting.barrier()?;
        }
        let moved = work.run(backend, meeting, path, &mut report);
        let flushed = match (&moved, settings.flush) {
            (Ok(()), Flush::End | Flush::Request) if write => backend.flush(),
            _ => Ok(()),
        };
        report.flushed_ns = now_ns();
        let reads = assignment.operation == Operation::Read && backend.virtual_ns().is_none();
        let later = reads && !matches!(settings.verify, Verify::Plain(false) | Verify::Named(Check::Within));
        // Nobody checks while others are measured still.
        if (settings.barriers || later) && moved.is_ok() {
            meeting.barrier()?;
        }
        let moved = match later && loops::is_checked(assignment) {
            true => moved.and_then(|()| work.check_all(backend, meeting, path, &mut report)),
            false => moved,
        };
        let closing_ns = now_ns();
        // Closing is a call of all workers with MPI: others may be in another one, and wait for us until we have told.
        let alone = moved.is_err() && settings.backend.needs_mpi();
        let closed = if alone { Ok(()) } else { backend.close() };
        // The wait for others is in no phase.
        report.closed_ns = report.flushed_ns + (now_ns() - closing_ns);
        report.virtual_ns = backend.virtual_ns();
        moved?;
        flushed.map_err(|error| failed("flush", path, error))?;
        closed.map_err(|error| failed("close", path, error))?;
        if reads && loops::is_checked(assignment) && report.mismatch.is_none() {
            report.mismatch = grown(assignment, path, self.file_bytes)?;
        }
        if assignment.operation == Operation::Write && assignment.worker == owner {
            report.layout = layout::read_back(&settings.layout, path)?;
        }
        Ok(report)
    }
}

/// A file that is written over in place is not longer than what is written.
fn cut_off(path: &Path, file_bytes: u64) -> Result<()> {
    let file = std::fs::OpenOptions::new().write(true).open(path).map_err(|error| failed("open", path, error))?;
    let long = file.metadata().map_err(|error| failed("stat", path, error))?.len() > file_bytes;
    if long { file.set_len(file_bytes).map_err(|error| failed("shorten", path, error)) } else { Ok(()) }
}

/// What was written is there, and more: somebody else writes the file, or the storage lost its end.
fn grown(assignment: &Assignment, path: &Path, planned: u64) -> Result<Option<String>> {
    let settings = &assignment.settings;
    // Libraries' files have headers, and what a stonewall left out may be there or not.
    let plain = settings.backend.has_local_files()
        && !matches!(settings.backend, BackendSettings::Hdf5(_) | BackendSettings::Netcdf(_));
    let Some(expected) = assignment.file_bytes.or((!assignment.noted).then_some(planned)) else { return Ok(None) };
    if !plain {
        return Ok(None);
    }
    let found = std::fs::metadata(path).map_err(|error| failed("stat", path, error))?.len();
    Ok((found > expected).then(|| {
        format!(
            "{}: the file has grown: {found} bytes, of which {} lie behind the {expected} that were written",
            path.display(),
            found - expected
        )
    }))
}

/// An old object of this experiment goes; one of somebody else is refused.
fn make_room(assignment: &Assignment, keeper: &mut Keeper, path: &Path) -> Result<()> {
    let backend = keeper.backend(assignment)?;
    if !backend.exists(path).map_err(|error| failed("look for", path, error))? {
        return Ok(());
    }
    if !assignment.replaces {
        return Err(crate::claims::refused(path));
    }
    backend.remove(path).map_err(|error| failed("remove the old", path, error))
}

/// Whether the file that this worker would make is there already.
pub fn look(assignment: &Assignment, keeper: &mut Keeper) -> Result<bool> {
    let mine = assignment.settings.files == Files::PerWorker || assignment.worker == 0;
    if !mine || assignment.replaces {
        return Ok(false);
    }
    let path = path_of(assignment, assignment.worker);
    keeper.backend(assignment)?.exists(&path).map_err(|error| failed("look for", &path, error))
}

pub fn failed(doing: &str, path: &Path, error: std::io::Error) -> Error {
    Error::io(doing, path.display(), error)
}

/// Removes this worker's file (of a shared one, worker 0) and says how long it took.
pub fn remove(assignment: &Assignment, keeper: &mut Keeper) -> Result<u64> {
    let settings = &assignment.settings;
    let mine = settings.files == Files::PerWorker || assignment.worker == 0;
    if !mine {
        return Ok(0);
    }
    let path = path_of(assignment, assignment.worker);
    let backend = keeper.backend(assignment)?;
    let began = now_ns();
    match backend.remove(&path) {
        // Of a run that failed, it may never have come.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !settings.backend.has_local_files() => {}
        removed => removed.map_err(|error| failed("remove", &path, error))?,
    }
    let took = now_ns() - began;
    super::leave_directory(assignment, &path);
    Ok(took)
}
