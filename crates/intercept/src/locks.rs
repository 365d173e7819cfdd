//! Advisory locks: flock(2), fcntl(2), lockf(3).
//!
//! A lock belongs to an inode, so a file that is locked does not move; and one that moved before it was locked must be locked where it
//! is now.
//!
//!   follow ─▶ lock ─▶ has it moved meanwhile? ──no──▶ done
//!      ▲                     │yes: the descriptor is exchanged, and the lock was one of the file as it was
//!      └─────────────────────┘
//!
//! Invariant: of a file that is looked at for locks when it is `Moving` (the agent), and for moves when it is locked (here), one of the
//! two sees the other. So no guard is held over a call that may wait for another program.

use crate::{data, process, real};
use core::ffi::c_int;
use core::sync::atomic::Ordering::*;
use terrace_index::Index;

/// The file that the descriptor leads to.
fn inode(fd: c_int) -> Option<(u64, u64)> {
    data::fstat(fd).map(|status| (status.st_dev, status.st_ino))
}

/// Locks, unlocks or asks for locks by `call`, which returns the C convention (-1 and errno), on the file that the descriptor is of now.
fn locking(fd: c_int, call: impl Fn() -> c_int) -> c_int {
    match process::index() {
        Some(index) => locking_current(index, fd, call),
        None => call(),
    }
}

fn locking_current(index: Index, fd: c_int, call: impl Fn() -> c_int) -> c_int {
    loop {
        let seq = index.header.moves_seq.load(SeqCst);
        if seq != 0 && !data::follow(index, fd) {
            real::set_errno(libc::EIO);
            return -1;
        }
        let before = inode(fd);
        let result = call();
        let errno = real::errno();
        // Nothing began to move in between, or only other files.
        if index.header.moves_seq.load(SeqCst) == seq || data::follow(index, fd) && inode(fd) == before {
            real::set_errno(errno);
            return result;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn flock(fd: c_int, operation: c_int) -> c_int {
    let real = crate::real!("flock": fn(c_int, c_int) -> c_int);
    // SAFETY: the program's own arguments, here and below.
    locking(fd, || unsafe { real(fd, operation) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf(fd: c_int, command: c_int, length: i64) -> c_int {
    let real = crate::real!("lockf": fn(c_int, c_int, i64) -> c_int);
    locking(fd, || unsafe { real(fd, command, length) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lockf64(fd: c_int, command: c_int, length: i64) -> c_int {
    unsafe { lockf(fd, command, length) }
}

/// fcntl(2) is variadic; its one optional argument arrives in the third register either way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    let real = crate::real!("fcntl": fn(c_int, c_int, usize) -> c_int);
    let call = || unsafe { real(fd, command, argument) };
    match command {
        libc::F_SETLK | libc::F_SETLKW | libc::F_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW | libc::F_OFD_GETLK => {
            locking(fd, call)
        }
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            let new = call();
            data::forget(new);
            new
        }
        _ => call(),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    unsafe { fcntl(fd, command, argument) }
}
