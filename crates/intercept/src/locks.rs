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

use crate::{data, gate, process, real};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering::*};
use terrace_index::Index;

/// This process has locked by process, as fcntl(2) and lockf(3) do.
static BY_PROCESS: AtomicBool = AtomicBool::new(false);

/// Closes a descriptor that the program does not know of. One of a file that somebody has locked stays open: it may be this process, which
/// loses its locks on a file when it closes any descriptor of it.
pub fn close_unseen(fd: c_int) {
    // SAFETY: a zeroed flock is valid, and the kernel fills it.
    let is_locked = BY_PROCESS.load(Acquire)
        && unsafe {
            let mut lock: libc::flock = core::mem::zeroed();
            lock.l_type = libc::F_WRLCK as i16;
            // The open file asks, to which the process is somebody else.
            let asked = gate::call3(libc::SYS_fcntl, fd as usize, libc::F_OFD_GETLK as usize, &raw mut lock as usize);
            asked == 0 && lock.l_type != libc::F_UNLCK as i16
        };
    if !is_locked {
        // SAFETY: the caller's own descriptor.
        unsafe { gate::call1(libc::SYS_close, fd as usize) };
    }
}

/// Locks or unlocks by `call`, which returns the C convention (-1 and errno), on the file that the descriptor is of now.
fn locking(fd: c_int, call: impl Fn() -> c_int) -> c_int {
    let Some(index) = process::index().filter(|_| !data::is_of_root(fd)) else { return call() };
    loop {
        let seq = index.header.moves_seq.load(SeqCst);
        if !is_followed(index, fd) {
            return -1;
        }
        let before = data::inode(fd);
        let result = call();
        let errno = real::errno();
        if index.header.moves_seq.load(SeqCst) == seq || result < 0 && errno == libc::EINTR {
            return result;
        }
        // Who waits for a lock on the file as it was, and shares that, waits for the file as it is.
        let has_moved = data::has_moved(index, fd);
        if has_moved {
            release(fd);
        }
        if !has_moved && data::inode(fd) == before {
            real::set_errno(errno);
            return result;
        }
    }
}

/// False: it is not the file as it is now, and errno says why.
fn is_followed(index: Index, fd: c_int) -> bool {
    let failed = match index.header.moves_seq.load(SeqCst) {
        0 => 0,
        _ => data::follow_surely(index, fd),
    };
    if failed != 0 {
        real::set_errno(failed);
    }
    failed == 0
}

/// Gives back what was locked by the open file; what was locked by the process goes when the descriptor is exchanged.
fn release(fd: c_int) {
    // SAFETY: a zeroed flock is the whole file, and the kernel reads it.
    unsafe {
        let mut lock: libc::flock = core::mem::zeroed();
        lock.l_type = libc::F_UNLCK as i16;
        gate::call2(libc::SYS_flock, fd as usize, libc::LOCK_UN as usize);
        gate::call3(libc::SYS_fcntl, fd as usize, libc::F_OFD_SETLK as usize, &raw mut lock as usize);
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
    BY_PROCESS.store(true, Release);
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
        libc::F_SETLK | libc::F_SETLKW => {
            BY_PROCESS.store(true, Release);
            locking(fd, call)
        }
        libc::F_OFD_SETLK | libc::F_OFD_SETLKW => locking(fd, call),
        // The answer was true when it was asked, and stands where the question was.
        libc::F_GETLK | libc::F_OFD_GETLK => {
            let index = process::index().filter(|_| !data::is_of_root(fd));
            if index.is_none_or(|index| is_followed(index, fd)) { call() } else { -1 }
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
