//! The journal: which files are placed, and which steps were under way.
//!
//!   files: (record, serial) ─▶ FileEntry      steps: id ─▶ StepEntry
//!
//! Invariant: a batch is there whole or not at all, whenever the agent dies. Batches of several threads that arrive while
//! one is being written are written together (group commit): the thread that finds nobody writing writes for all.
//!
//! `Safety` says what a batch survives. `Process` needs no fsync: the kernel keeps the pages of an agent that is killed.
//! `Power` waits for the disk, and with it all earlier batches are safe as well. What lies in memory tiers is gone after a
//! power cut anyway, and links in the root say where the rest is; so `Power` is for what the tree can't tell.
//!
//! The store is redb, through a backend of ours whose `sync_data` skips the disk for `Process`. A power cut may
//! therefore leave a journal that doesn't check out: that is said (`JournalCorrupt`), and it can be moved aside.

mod backend;
mod entry;

pub use entry::{Batch, DurableVersion, FileEntry, FileKey, FileState, Place, Snapshot, StepEntry, StepId, Task};

use crate::{Error, Result};
use backend::Backend;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};

const FILES: TableDefinition<(u32, u64), &[u8]> = TableDefinition::new("files-1");
const STEPS: TableDefinition<u64, &[u8]> = TableDefinition::new("steps-1");
const CACHE_BYTES: usize = 8 << 20;

/// What a batch survives once `write` has returned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Safety {
    /// The agent is killed at any point.
    Process,
    /// The machine stops as well.
    Power,
}

pub struct Journal {
    path: PathBuf,
    /// `None` only while it is opened again after a failed write.
    database: RwLock<Option<Database>>,
    backend: Arc<Backend>,
    next_step: AtomicU64,
    queue: Mutex<Queue>,
    written: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Batch,
    safety: Option<Safety>,
    /// Number of the group that `waiting` belongs to.
    group: u64,
    /// All groups before this one are on disk, or failed.
    done: u64,
    is_writing: bool,
    /// The last failures, by group: each of its members gets the error.
    failed: Vec<(u64, i32)>,
}

impl Journal {
    /// Opens or makes the journal. Held by one process at a time (`JournalLocked`).
    pub fn open(path: &Path) -> Result<Journal> {
        let backend = Arc::new(Backend::open(path)?);
        let database = open_database(path, &backend)?;
        let journal = Journal {
            path: path.to_path_buf(),
            database: RwLock::new(Some(database)),
            backend,
            next_step: AtomicU64::new(1),
            queue: Mutex::default(),
            written: Condvar::new(),
        };
        journal.write_now(&Batch::default(), Safety::Process)?; // makes the tables
        let last = journal.load()?.steps.last().map_or(0, |(id, _)| id.0);
        journal.next_step.store(last + 1, Ordering::Relaxed);
        Ok(journal)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn put_files(&self, files: impl IntoIterator<Item = (FileKey, FileEntry)>, safety: Safety) -> Result<()> {
        let mut batch = Batch::default();
        files.into_iter().for_each(|(key, entry)| batch.put_file(key, entry));
        self.write(batch, safety)
    }

    pub fn remove_files(&self, keys: impl IntoIterator<Item = FileKey>, safety: Safety) -> Result<()> {
        let mut batch = Batch::default();
        keys.into_iter().for_each(|key| batch.remove_file(key));
        self.write(batch, safety)
    }

    /// A number for `Batch::begin`, never given before.
    pub fn new_step(&self) -> StepId {
        StepId(self.next_step.fetch_add(1, Ordering::Relaxed))
    }

    /// Says that this work is about to change what others see.
    pub fn begin(&self, entry: StepEntry, safety: Safety) -> Result<StepId> {
        let id = self.new_step();
        let mut batch = Batch::default();
        batch.begin(id, entry);
        self.write(batch, safety)?;
        Ok(id)
    }

    pub fn finish(&self, id: StepId, safety: Safety) -> Result<()> {
        let mut batch = Batch::default();
        batch.finish(id);
        self.write(batch, safety)
    }

    /// All changes of the batch, in one transaction, together with those of other threads that wait.
    /// After an error none of the batch is there.
    pub fn write(&self, batch: Batch, safety: Safety) -> Result<()> {
        let mut queue = self.queue.lock().unwrap();
        queue.waiting.append(batch);
        queue.safety = queue.safety.max(Some(safety));
        let group = queue.group;
        loop {
            if queue.done > group {
                return match queue.failed.iter().find(|(failed, _)| *failed == group) {
                    Some(&(_, errno)) => Err(self.error(io::Error::from_raw_os_error(errno))),
                    None => Ok(()),
                };
            }
            if queue.is_writing {
                queue = self.written.wait(queue).unwrap();
                continue;
            }
            let batch = std::mem::take(&mut queue.waiting);
            let safety = queue.safety.take().unwrap_or(Safety::Process);
            queue.group += 1;
            queue.is_writing = true;
            drop(queue);
            let result = self.write_now(&batch, safety);
            queue = self.queue.lock().unwrap();
            queue.is_writing = false;
            queue.done = group + 1;
            if let Err(error) = &result {
                queue.failed.push((group, error.errno()));
                let excess = queue.failed.len().saturating_sub(64);
                queue.failed.drain(..excess);
            }
            self.written.notify_all();
            return result;
        }
    }

    /// Everything that is there, files by record and steps in the order they began.
    pub fn load(&self) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        self.load_into(&mut snapshot).map_err(|error| self.corrupt(error))?;
        Ok(snapshot)
    }

    fn load_into(&self, snapshot: &mut Snapshot) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let database = self.database.read().unwrap();
        let read = database.as_ref().ok_or("it could not be opened again after a failed write")?.begin_read()?;
        for row in read.open_table(FILES)?.iter()? {
            let (key, value) = row?;
            let (record, serial) = key.value();
            snapshot.files.push((FileKey { record, serial }, postcard::from_bytes(value.value())?));
        }
        for row in read.open_table(STEPS)?.iter()? {
            let (key, value) = row?;
            snapshot.steps.push((StepId(key.value()), postcard::from_bytes(value.value())?));
        }
        Ok(())
    }

    fn write_now(&self, batch: &Batch, safety: Safety) -> Result<()> {
        // Only the thread that writes a group gets here, so the level holds for its transaction alone.
        self.backend.set_safety(safety);
        let first = match &*self.database.read().unwrap() {
            Some(database) => transact(database, batch),
            None => Err(io::Error::from_raw_os_error(libc::EIO)),
        };
        // redb refuses everything after a failed write until it is opened again; a disk that was full may have room now.
        first.or_else(|_| self.reopen_and(batch)).map_err(|error| self.error(error))
    }

    fn reopen_and(&self, batch: &Batch) -> io::Result<()> {
        let mut database = self.database.write().unwrap();
        *database = None; // closed before it is opened again
        let opened =
            open_database(&self.path, &self.backend).map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
        transact(database.insert(opened), batch)
    }

    fn error(&self, source: io::Error) -> Error {
        Error::Journal { path: self.path.clone(), source }
    }

    fn corrupt(&self, reason: impl std::fmt::Display) -> Error {
        Error::JournalCorrupt { path: self.path.clone(), reason: reason.to_string() }
    }
}

fn transact(database: &Database, batch: &Batch) -> io::Result<()> {
    let transaction = database.begin_write().map_err(to_io)?;
    {
        let mut files = transaction.open_table(FILES).map_err(to_io)?;
        for (key, entry) in &batch.files {
            let key = (key.record, key.serial);
            match entry {
                Some(entry) => drop(files.insert(key, bytes_of(entry)?.as_slice()).map_err(to_io)?),
                None => drop(files.remove(key).map_err(to_io)?),
            }
        }
        let mut steps = transaction.open_table(STEPS).map_err(to_io)?;
        for (id, entry) in &batch.steps {
            match entry {
                Some(entry) => drop(steps.insert(id.0, bytes_of(entry)?.as_slice()).map_err(to_io)?),
                None => drop(steps.remove(id.0).map_err(to_io)?),
            }
        }
    }
    transaction.commit().map_err(to_io)
}

fn bytes_of(entry: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(entry).map_err(io::Error::other)
}

fn open_database(path: &Path, backend: &Arc<Backend>) -> Result<Database> {
    Database::builder()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(backend::Shared(backend.clone()))
        .map_err(|error| open_error(path, error))
}

/// Keeps the errno where there is one.
fn to_io(error: impl Into<redb::Error>) -> io::Error {
    match error.into() {
        redb::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}

fn open_error(path: &Path, error: DatabaseError) -> Error {
    let path = path.to_path_buf();
    match error {
        DatabaseError::DatabaseAlreadyOpen => Error::JournalLocked { path },
        other => match to_io(other) {
            source if source.raw_os_error().is_some() => Error::Journal { path, source },
            source => Error::JournalCorrupt { path, reason: source.to_string() },
        },
    }
}

#[cfg(test)]
mod tests;
