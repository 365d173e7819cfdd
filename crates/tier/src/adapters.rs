//! Tiers that do something more: slower, faulty, or counted. Each is a `Watch` over the same `Watched` tier.
//!
//!   call ──▶ Watch::before ──▶ the tier below ──▶ Watch::after
//!
//! A watched tier lends no descriptors, so that every byte passes by the watch.

mod faulty;
mod metered;
mod throttled;

pub use faulty::{Faults, Faulty};
pub use metered::{Meter, MeterReading, Metered};
pub use throttled::{Throttle, Throttled};

use crate::tier::{Attributes, AttributesReport, Entry, Reading, Space, Stat, Tier, Writing};
use crate::{Error, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Each thing that a tier is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Operation {
    Space,
    Create,
    Open,
    Remove,
    List,
    SyncName,
    WriteAt,
    SetSize,
    SetAttributes,
    Sync,
    Stat,
    Commit,
    ReadAt,
    Attributes,
    NextData,
}

impl Operation {
    pub const ALL: &[Operation] = &[
        Operation::Space,
        Operation::Create,
        Operation::Open,
        Operation::Remove,
        Operation::List,
        Operation::SyncName,
        Operation::WriteAt,
        Operation::SetSize,
        Operation::SetAttributes,
        Operation::Sync,
        Operation::Stat,
        Operation::Commit,
        Operation::ReadAt,
        Operation::Attributes,
        Operation::NextData,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Operation::Space => "space",
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Remove => "remove",
            Operation::List => "list",
            Operation::SyncName => "sync name",
            Operation::WriteAt => "write",
            Operation::SetSize => "set size",
            Operation::SetAttributes => "set attributes",
            Operation::Sync => "sync",
            Operation::Stat => "stat",
            Operation::Commit => "commit",
            Operation::ReadAt => "read",
            Operation::Attributes => "attributes",
            Operation::NextData => "next data",
        }
    }
}

/// Sees each operation of a `Watched` tier. Shared by all its files.
pub trait Watch: Send + Sync {
    /// Before an operation on `bytes` bytes (0 where there are none): how many of them it may have, or the errno it fails with.
    fn before(&self, _operation: Operation, bytes: usize) -> io::Result<usize> {
        Ok(bytes)
    }
    /// After it succeeded.
    fn after(&self, _operation: Operation, _bytes: usize, _elapsed: Duration) {}
    /// What the tier says of its room.
    fn space(&self, space: Space) -> Space {
        space
    }
}

/// A tier seen by a watch.
pub struct Watched<T, W> {
    tier: T,
    watch: Arc<W>,
}

impl<T: Tier, W: Watch> Watched<T, W> {
    pub fn new(tier: T, watch: impl Into<Arc<W>>) -> Self {
        Watched { tier, watch: watch.into() }
    }
    pub fn watch(&self) -> &Arc<W> {
        &self.watch
    }
    pub fn inner(&self) -> &T {
        &self.tier
    }
}

/// One operation under the watch: `call` gets the bytes it may have, and `done` tells how many it had.
fn watched<W: Watch + ?Sized, R>(
    watch: &W,
    operation: Operation,
    path: &Path,
    bytes: usize,
    call: impl FnOnce(usize) -> Result<R>,
    done: impl FnOnce(&R) -> usize,
) -> Result<R> {
    let start = Instant::now();
    let allowed = watch.before(operation, bytes).map_err(|error| Error::io(operation.name(), path, error))?.min(bytes);
    let result = call(allowed)?;
    watch.after(operation, done(&result), start.elapsed());
    Ok(result)
}

fn no_bytes<R>(_: &R) -> usize {
    0
}

impl<T: Tier, W: Watch + 'static> Tier for Watched<T, W> {
    fn label(&self) -> &str {
        self.tier.label()
    }
    fn space(&self) -> Result<Space> {
        let path = Path::new(self.label());
        watched(&*self.watch, Operation::Space, path, 0, |_| self.tier.space(), no_bytes)
            .map(|space| self.watch.space(space))
    }
    fn create(&self, name: &Path) -> Result<Box<dyn Writing>> {
        let inner = watched(&*self.watch, Operation::Create, name, 0, |_| self.tier.create(name), no_bytes)?;
        Ok(Box::new(WatchedWriting { inner, watch: self.watch.clone() }))
    }
    fn open(&self, name: &Path) -> Result<Box<dyn Reading>> {
        let inner = watched(&*self.watch, Operation::Open, name, 0, |_| self.tier.open(name), no_bytes)?;
        Ok(Box::new(WatchedReading { inner, watch: self.watch.clone() }))
    }
    fn remove(&self, name: &Path) -> Result<()> {
        watched(&*self.watch, Operation::Remove, name, 0, |_| self.tier.remove(name), no_bytes)
    }
    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        watched(&*self.watch, Operation::List, directory, 0, |_| self.tier.list(directory), no_bytes)
    }
    fn sync_name(&self, name: &Path) -> Result<()> {
        watched(&*self.watch, Operation::SyncName, name, 0, |_| self.tier.sync_name(name), no_bytes)
    }
}

struct WatchedWriting<W> {
    inner: Box<dyn Writing>,
    watch: Arc<W>,
}

impl<W: Watch> Writing for WatchedWriting<W> {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<usize> {
        let WatchedWriting { inner, watch } = self;
        let path = PathBuf::from(inner.path());
        let call = |allowed: usize| inner.write_at(&bytes[..allowed], offset);
        watched(&**watch, Operation::WriteAt, &path, bytes.len(), call, |&count| count)
    }
    fn set_size(&mut self, size: u64) -> Result<()> {
        let WatchedWriting { inner, watch } = self;
        let path = PathBuf::from(inner.path());
        watched(&**watch, Operation::SetSize, &path, 0, |_| inner.set_size(size), no_bytes)
    }
    fn set_attributes(&mut self, attributes: &Attributes) -> Result<AttributesReport> {
        let WatchedWriting { inner, watch } = self;
        let path = PathBuf::from(inner.path());
        watched(&**watch, Operation::SetAttributes, &path, 0, |_| inner.set_attributes(attributes), no_bytes)
    }
    fn sync(&mut self) -> Result<()> {
        let WatchedWriting { inner, watch } = self;
        let path = PathBuf::from(inner.path());
        watched(&**watch, Operation::Sync, &path, 0, |_| inner.sync(), no_bytes)
    }
    fn stat(&self) -> Result<Stat> {
        watched(&*self.watch, Operation::Stat, self.path(), 0, |_| self.inner.stat(), no_bytes)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn commit(self: Box<Self>, name: &Path) -> Result<Stat> {
        // A commit that the watch forbids drops the temporary below, as the contract says.
        let WatchedWriting { inner, watch } = *self;
        watched(&*watch, Operation::Commit, name, 0, |_| inner.commit(name), no_bytes)
    }
    fn commit_over(self: Box<Self>, name: &Path, is_expected: &dyn Fn(&Path) -> bool) -> Result<Stat> {
        let WatchedWriting { inner, watch } = *self;
        watched(&*watch, Operation::Commit, name, 0, |_| inner.commit_over(name, is_expected), no_bytes)
    }
}

struct WatchedReading<W> {
    inner: Box<dyn Reading>,
    watch: Arc<W>,
}

impl<W: Watch> Reading for WatchedReading<W> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let asked = buffer.len();
        let call = |allowed: usize| self.inner.read_at(&mut buffer[..allowed], offset);
        watched(&*self.watch, Operation::ReadAt, self.path(), asked, call, |&count| count)
    }
    fn stat(&self) -> Result<Stat> {
        watched(&*self.watch, Operation::Stat, self.path(), 0, |_| self.inner.stat(), no_bytes)
    }
    fn attributes(&self) -> Result<Attributes> {
        watched(&*self.watch, Operation::Attributes, self.path(), 0, |_| self.inner.attributes(), no_bytes)
    }
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        watched(&*self.watch, Operation::NextData, self.path(), 0, |_| self.inner.next_data(offset), no_bytes)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

#[cfg(test)]
mod tests;
