//! The kernel's side of the conversation: notifications in, answers and descriptors out.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// `struct seccomp_notif`: one call of one thread that waits for us. All zeroes before it is received.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Notification {
    pub id: u64,
    pub thread: u32,
    pub flags: u32,
    pub nr: i32,
    pub arch: u32,
    pub instruction_pointer: u64,
    pub args: [u64; 6],
}

#[repr(C)]
struct Response {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

#[repr(C)]
struct AddDescriptor {
    id: u64,
    flags: u32,
    source: u32,
    target: u32,
    target_flags: u32,
}

const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;
const ID_VALID: libc::c_ulong = 0x4008_2102;
const ADD_DESCRIPTOR: libc::c_ulong = 0x4018_2103;
const SET_FLAGS: libc::c_ulong = 0x4008_2104;
/// Wakes the other side on the processor that the waker gives up: without it a call costs ten times as much.
const SYNC_WAKE_UP: u64 = 1;

const _: () = assert!(size_of::<Notification>() == 80 && size_of::<Response>() == 24);

/// What a waiting thread gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    /// The kernel does its call as if we were not there.
    Continue,
    Value(i64),
    Error(i32),
}

/// A kernel's result: a value, or a negative errno.
impl From<isize> for Answer {
    fn from(raw: isize) -> Answer {
        match raw {
            terrace_index::proxy::LEAVE => Answer::Continue,
            -4095..0 => Answer::Error(-raw as i32),
            value => Answer::Value(value as i64),
        }
    }
}

pub struct Listener(OwnedFd);

impl Listener {
    pub fn new(fd: OwnedFd) -> Listener {
        let listener = Listener(fd);
        // An older kernel lacks it, and is slower.
        // SAFETY: the flags are passed by value.
        unsafe { libc::ioctl(listener.0.as_raw_fd(), SET_FLAGS, SYNC_WAKE_UP) };
        listener
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }

    /// Waits for a call. `into` is filled by the kernel in the same step that marks the call as received.
    pub fn receive(&self, into: *mut Notification) -> io::Result<()> {
        // SAFETY: a zeroed notification that lives through the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, into) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Another call waits to be received.
    pub fn has_more(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live structure.
        unsafe { libc::poll(&mut poll, 1, 0) > 0 && poll.revents & libc::POLLIN != 0 }
    }

    /// The thread still waits: what was read of it before this was its own.
    pub fn is_valid(&self, id: u64) -> bool {
        // SAFETY: a live integer.
        unsafe { libc::ioctl(self.0.as_raw_fd(), ID_VALID, &raw const id) == 0 }
    }

    /// A thread that died meanwhile gets nothing.
    pub fn answer(&self, id: u64, answer: Answer) {
        let response = match answer {
            Answer::Continue => {
                Response { id, value: 0, error: 0, flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 }
            }
            Answer::Value(value) => Response { id, value, error: 0, flags: 0 },
            Answer::Error(errno) => Response { id, value: 0, error: -errno, flags: 0 },
        };
        // SAFETY: a live response.
        unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw const response) };
    }

    /// Gives the thread's process this descriptor of ours; the number that it has there. The answer is still to be sent: the
    /// kernel can do both in one step (SECCOMP_ADDFD_FLAG_SEND), but if we are killed in the middle of it, the program
    /// gets 0 for a number.
    pub fn give(&self, id: u64, source: i32, close_on_exec: bool) -> Result<i32, i32> {
        let add = AddDescriptor {
            id,
            flags: 0,
            source: source as u32,
            target: 0,
            target_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: a live request.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), ADD_DESCRIPTOR, &raw const add) } {
            fd if fd >= 0 => Ok(fd),
            _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}
