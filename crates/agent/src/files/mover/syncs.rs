//! Syncs of a copy that is under way, so that little is left to be done at its end.

use rustix::io::Errno;
use std::os::fd::AsFd;
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
