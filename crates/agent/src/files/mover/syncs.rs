//! Syncs of a copy that is under way, so that little is left to be done at its end.

use rustix::fs::StatFs;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So much is synced at a time.
pub const SYNCED_BYTES: u64 = 16 << 20;
/// Less is where that takes a third of the time at most: some file systems (FUSE) let nobody write to a file while it is synced.
const PAUSE: Duration = Duration::from_millis(20);
const SHARE: u32 = 2;

#[derive(Default)]
pub struct Syncs {
    /// Not before, unless there is much.
    next: Option<Instant>,
}

impl Syncs {
    pub fn is_due(&self) -> bool {
        self.next.is_none_or(|next| Instant::now() >= next)
    }

    pub fn sync(&mut self, file: impl AsFd) -> Result<(), Errno> {
        let begun = Instant::now();
        let synced = rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&file));
        self.next = Some(Instant::now() + (begun.elapsed() * SHARE).max(PAUSE));
        synced
    }
}

/// A file system of this machine's own: no server has its files.
pub fn is_local(found: &StatFs) -> bool {
    [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::F2FS_SUPER_MAGIC, libc::TMPFS_MAGIC]
        .contains(&found.f_type)
}

/// A sync by a thread of its own. Who drops it waits for it: the file may be given away or removed then.
pub struct Beside(Option<JoinHandle<Result<(), Errno>>>);

impl Beside {
    /// `file` is a duplicate of the one that is written to: what could not be written is told once to both together. `None`: there is no thread.
    pub fn begin(file: OwnedFd, then: impl FnOnce() + Send + 'static) -> Option<Beside> {
        let sync = move || {
            let synced = rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&file));
            drop(file);
            then();
            synced
        };
        Some(Beside(Some(std::thread::Builder::new().name("sync".into()).spawn(sync).ok()?)))
    }

    pub fn is_under_way(&self) -> bool {
        self.0.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// What it told.
    pub fn end(mut self) -> Result<(), Errno> {
        self.0.take().map_or(Ok(()), |thread| thread.join().expect("it does not panic"))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.take().map(JoinHandle::join);
    }
}
