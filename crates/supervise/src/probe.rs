//! Can programs be supervised here? Tried in a child, because a filter can't be taken off.

use crate::filter::Filter;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// This process is under another supervisor already (a container's, a run's).
    Nested,
    /// Filters, or notifications, are refused (a container's profile) or not there (an old kernel).
    Refused(i32),
    /// The kernel does not let us look at programs that we start (Yama, a container's profile).
    Blind(i32),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = |errno: i32| std::io::Error::from_raw_os_error(errno);
        match *self {
            Unavailable::Nested => write!(f, "this process is under another supervisor, and the kernel allows one"),
            Unavailable::Refused(errno) => write!(f, "the kernel refuses a seccomp listener: {}", reason(errno)),
            Unavailable::Blind(errno) => {
                write!(
                    f,
                    "the kernel does not let a process look at its programs (kernel.yama.ptrace_scope): {}",
                    reason(errno)
                )
            }
        }
    }
}

/// What a probing child says when all is well.
const FINE: i32 = 0;

/// None if programs can be supervised.
pub fn probe() -> Option<Unavailable> {
    let filter = Filter::new(None, false);
    // SAFETY: no arguments.
    let without_privileges = unsafe { libc::geteuid() } != 0;
    let errno = in_child(|| match filter.install(without_privileges) {
        Ok(_) => FINE,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    });
    match errno {
        FINE => {}
        libc::EBUSY => return Some(Unavailable::Nested),
        errno => return Some(Unavailable::Refused(errno)),
    }
    match look_at_sibling() {
        FINE => None,
        errno => Some(Unavailable::Blind(errno)),
    }
}

/// A supervisor is no ancestor of its programs: two children of ours stand for both.
fn look_at_sibling() -> i32 {
    static WORD: u32 = 0x7e44_ace0;
    let address = &raw const WORD as usize;
    // SAFETY: the child makes nothing but system calls.
    let looked_at = unsafe { libc::fork() };
    if looked_at < 0 {
        return FINE;
    }
    if looked_at == 0 {
        loop {
            // SAFETY: waits to be killed.
            unsafe { libc::pause() };
        }
    }
    let errno = in_child(|| {
        let mut word = 0u32;
        let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: 4 };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: 4 };
        // SAFETY: one live vector of ours, one that the kernel checks.
        match unsafe { libc::process_vm_readv(looked_at, &local, 1, &remote, 1, 0) } {
            4 => FINE,
            _ => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        }
    });
    // SAFETY: our own child.
    unsafe {
        libc::kill(looked_at, libc::SIGKILL);
        libc::waitpid(looked_at, std::ptr::null_mut(), 0);
    }
    errno
}

/// Runs `act`, which makes nothing but system calls, in a child; its result must fit an exit code.
fn in_child(act: impl FnOnce() -> i32) -> i32 {
    // SAFETY: as promised by the caller; the child ends at once.
    unsafe {
        match libc::fork() {
            -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN),
            0 => libc::_exit(act()),
            child => {
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { libc::EIO }
            }
        }
    }
}
