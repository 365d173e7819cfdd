//! redb's storage: one locked file whose syncs go to the disk only when the batch is to survive a power cut.

use super::Safety;
use crate::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug)]
pub(super) struct Backend {
    file: File,
    syncs_to_disk: AtomicBool,
    #[cfg(test)]
    refusals: std::sync::atomic::AtomicU32,
}

const LOCK_TRIES: u32 = 50;

impl Backend {
    pub(super) fn open(path: &Path) -> Result<Backend> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let error = |source: rustix::io::Errno| Error::Journal { path: path.to_path_buf(), source: source.into() };
        let file = File::from(open(path, flags, Mode::RUSR | Mode::WUSR).map_err(error)?);
        // A child that was forked has our descriptors until it runs its program: a lock just given back may be held a moment more.
        let mut locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        for _ in 0..LOCK_TRIES {
            if locked != Err(rustix::io::Errno::WOULDBLOCK) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
        }
        match locked {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::JournalLocked { path: path.to_path_buf() }),
            // Some network file systems have no locks; the agent's own lock in memory guards the journal as well.
            Err(rustix::io::Errno::NOTSUP | rustix::io::Errno::NOSYS | rustix::io::Errno::NOLCK) => {}
            Err(errno) => return Err(error(errno)),
        }
        Ok(Backend {
            file,
            syncs_to_disk: AtomicBool::new(false),
            #[cfg(test)]
            refusals: Default::default(),
        })
    }

    pub(super) fn set_safety(&self, safety: Safety) {
        self.syncs_to_disk.store(safety == Safety::Power, Ordering::Relaxed);
    }

    /// The next writes find the disk full.
    #[cfg(test)]
    pub(super) fn refuse_writes(&self, count: u32) {
        self.refusals.store(count, Ordering::Relaxed);
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        #[cfg(test)]
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        self.file.write_all_at(data, offset)
    }
}

/// The handle that redb owns.
#[derive(Debug)]
pub(super) struct Shared(pub(super) Arc<Backend>);

impl redb::StorageBackend for Shared {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.file.metadata()?.len())
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.file.read_exact_at(out, offset)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.file.set_len(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.0.syncs_to_disk.load(Ordering::Relaxed) { self.0.file.sync_data() } else { Ok(()) }
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}
