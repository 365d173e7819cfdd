//! Files opened again by a descriptor: a description of our own, or none that counts as an opener.

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// A description of our own, for reading, of a file that may have no name.
pub fn reopen(fd: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    match rustix::fs::open(&path, OFlags::RDONLY | OFlags::NOATIME | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
            rustix::fs::chmod(&path, mode | Mode::RUSR)?;
            let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            rustix::fs::chmod(&path, mode)?;
            opened
        }
        Err(Errno::PERM) => rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()),
        result => result,
    }
}

/// Keeps a file without being one of its openers.
pub fn handle_of(path: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}
