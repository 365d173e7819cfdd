//! Leases: the kernel tells whether a file is open elsewhere, and when somebody opens it.
//!
//! A read lease is granted only while nobody has the file open for writing, an exclusive one only while nobody else has
//! it open at all. An open that conflicts later waits (at most `/proc/sys/fs/lease-break-time` seconds) until the
//! lease is dropped; so whoever holds one looks at `is_broken` often (`copy` does, every MiB) and lets go.
//!
//! The kernel announces a break by a signal. We ask for SIGURG, which is ignored unless somebody handles it: SIGIO, the
//! default, would end the process.

use crate::{Error, Result};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

const F_SETSIG: i32 = 10;

/// Released when dropped. The descriptor given must belong to a description opened by this process, for the lease belongs
/// to the description; the lease keeps it open.
#[derive(Debug)]
pub struct Lease {
    fd: OwnedFd,
    kind: i32,
}

impl Lease {
    /// Granted while nobody, in any program, has the file open for writing; `None` when somebody has.
    /// `fd` must be open for reading only. A file system without leases gives an error (`is_unsupported`).
    pub fn read(fd: BorrowedFd<'_>) -> Result<Option<Lease>> {
        Lease::take(fd, libc::F_RDLCK)
    }

    /// Granted while nobody else has the file open at all.
    pub fn exclusive(fd: BorrowedFd<'_>) -> Result<Option<Lease>> {
        Lease::take(fd, libc::F_WRLCK)
    }

    fn take(fd: BorrowedFd<'_>, kind: i32) -> Result<Option<Lease>> {
        let place = || format!("/proc/self/fd/{}", fd.as_raw_fd());
        let fd = fd.try_clone_to_owned().map_err(|error| Error::io("duplicate", place(), error))?;
        // SAFETY: plain fcntl on a descriptor that we own.
        if unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) } < 0 {
            return Err(Error::io("choose the lease signal of", place(), io::Error::last_os_error()));
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) } == 0 {
            return Ok(Some(Lease { fd, kind }));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EBUSY) => Ok(None),
            _ => Err(Error::io("lease", place(), error)),
        }
    }

    /// Makes it an exclusive one, if nobody else has the file open at all. It goes on as it was if not.
    pub fn upgrade(&mut self) -> bool {
        // SAFETY: plain fcntl on a descriptor that we own.
        let is_alone = unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) } == 0;
        if is_alone {
            self.kind = libc::F_WRLCK;
        }
        is_alone
    }

    /// Somebody waits in an open that conflicts (or the kernel took the lease away).
    pub fn is_broken(&self) -> bool {
        // SAFETY: plain fcntl on a descriptor that we own.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_GETLEASE) != self.kind }
    }

    /// The file system has no leases (or this user may not take one on somebody else's file).
    pub fn is_unsupported(error: &Error) -> bool {
        matches!(error.errno(), libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EACCES | libc::EPERM)
    }
}

/// For this long who opens waits for a lease.
const PATIENCE: Duration = Duration::from_secs(2);

/// An open with O_NONBLOCK, which waits for no other end of a fifo, and for no lease either (EWOULDBLOCK). A lease of another thread of the mover is
/// dropped within milliseconds of the first try: so it is tried again. Not for who has a lease on the file.
pub fn past_leases<T, E: PartialEq<Errno>>(open: impl Fn() -> std::result::Result<T, E>) -> std::result::Result<T, E> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error) if error == Errno::WOULDBLOCK && begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1))
            }
            opened => return opened,
        }
    }
}

impl AsFd for Lease {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // SAFETY: plain fcntl on a descriptor that we own.
        unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;

    fn scratch() -> tempfile::NamedTempFile {
        tempfile::NamedTempFile::new_in("/dev/shm").unwrap()
    }

    #[test]
    fn a_read_lease_is_refused_while_somebody_writes() {
        let file = scratch(); // open for writing
        let reader = File::open(file.path()).unwrap();
        assert!(Lease::read(reader.as_fd()).unwrap().is_none());
        let path = file.into_temp_path();
        let other_reader = File::open(&path).unwrap();
        let lease = Lease::read(reader.as_fd()).unwrap().unwrap();
        assert!(!lease.is_broken());
        File::open(&path).unwrap();
        assert!(!lease.is_broken(), "readers don't disturb it");
        drop(other_reader);
    }

    #[test]
    fn an_exclusive_lease_is_refused_while_anybody_has_it_open() {
        let path = scratch().into_temp_path();
        let mine = File::open(&path).unwrap();
        let other = File::open(&path).unwrap();
        assert!(Lease::exclusive(mine.as_fd()).unwrap().is_none());
        drop(other);
        let lease = Lease::exclusive(mine.as_fd()).unwrap().unwrap();
        assert!(!lease.is_broken());
    }

    #[test]
    fn a_read_lease_becomes_exclusive_when_the_last_reader_has_gone() {
        let path = scratch().into_temp_path();
        let mine = File::open(&path).unwrap();
        let mut lease = Lease::read(mine.as_fd()).unwrap().unwrap();
        let other = File::open(&path).unwrap();
        assert!(!lease.upgrade());
        assert!(!lease.is_broken(), "it is a read lease still");
        drop(other);
        assert!(lease.upgrade());
        assert!(!lease.is_broken());
    }

    #[test]
    fn a_break_is_seen_kills_nobody_and_lets_the_writer_in_once_the_lease_is_dropped() {
        let path = scratch().into_temp_path();
        let mine = File::open(&path).unwrap();
        let lease = Lease::read(mine.as_fd()).unwrap().unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut file = File::options().write(true).open(&path).unwrap();
                file.write_all(b"x").unwrap();
            });
            while !lease.is_broken() {
                assert!(start.elapsed() < Duration::from_secs(5));
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(lease);
            writer.join().unwrap();
        });
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn who_opens_without_waiting_gets_past_a_lease_that_is_dropped_when_it_breaks() {
        let path = scratch().into_temp_path();
        let mine = File::open(&path).unwrap();
        let lease = Lease::exclusive(mine.as_fd()).unwrap().unwrap();
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NONBLOCK;
        let open = || rustix::fs::open(&*path, flags, rustix::fs::Mode::empty());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| past_leases(open));
            while !lease.is_broken() {
                std::thread::yield_now();
            }
            assert_eq!(open().unwrap_err(), Errno::WOULDBLOCK);
            drop(lease);
            reader.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_lease_outlives_the_descriptor_it_was_made_of() {
        let path = scratch().into_temp_path();
        let lease = {
            let file = File::open(&path).unwrap();
            Lease::read(file.as_fd()).unwrap().unwrap()
        };
        assert!(!lease.is_broken());
    }

    #[test]
    fn what_has_no_leases_says_so() {
        let error = Lease::read(File::open("/").unwrap().as_fd()).unwrap_err();
        assert!(Lease::is_unsupported(&error), "{error}");
    }
}
