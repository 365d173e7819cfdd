//! The directories of objects, held open: so an object is found by one name instead of a walk from `/`.
//!
//! A program may close, or give another meaning to, any descriptor that it finds. So what a descriptor here leads to is
//! never taken on trust: an object's name has 64 random bits, which no other directory has, and a call that fails in any way is
//! made again by the whole path.
//! Processes that look at few objects never open one.

use crate::{gate, link};
use core::ffi::c_char;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::*};
use terrace_index::{DEVICES, Index, NAME_LEN};

/// Descriptors plus 1; 0: none.
static HELD: [AtomicI32; DEVICES] = [const { AtomicI32::new(0) }; DEVICES];
static LOOKS: AtomicU32 = AtomicU32::new(0);
/// So many looks pay for opening a directory.
const LOOKS_MIN: u32 = 16;
/// Programs expect their descriptors to be the lowest numbers, and shells keep theirs from 10 on. But it is one of the 64 that
/// every process has room for: to make room for more takes a process with threads more than 10 ms (a grace period in the kernel).
const NUMBER_MIN: usize = 48;

/// An object, as the arguments of an `…at` call.
pub struct Object {
    path: [u8; link::LINK_MAX],
    /// Where in `path` the last component begins.
    name_at: usize,
    device: usize,
}

impl Object {
    pub fn of(index: Index, number: u32) -> Object {
        let mut path = [0; link::LINK_MAX];
        link::object_path(index, number, &mut path);
        let device = (link::record(&index, number).device.load(Relaxed) as usize).min(DEVICES - 1);
        let name_at = index.header.devices[device].dir.get().len().min(link::LINK_MAX - NAME_LEN - 1);
        Object { path, name_at, device }
    }

    pub fn of_link(index: Index, link: &link::Link) -> Object {
        let device = (link::record(&index, link.record).device.load(Relaxed) as usize).min(DEVICES - 1);
        let name_at = index.header.devices[device].dir.get().len().min(link::LINK_MAX - NAME_LEN - 1);
        Object { path: link.text, name_at, device }
    }

    pub fn path(&self) -> *const c_char {
        self.path.as_ptr() as *const c_char
    }

    /// Runs the call with (directory, name), by the held directory first; its raw result.
    /// Not for calls that make something: they could make it in another directory.
    pub fn at(&self, mut call: impl FnMut(i32, *const c_char) -> isize) -> isize {
        let Some(fd) = held(self) else { return call(libc::AT_FDCWD, self.path()) };
        let result = call(fd, self.path[self.name_at..].as_ptr() as *const c_char);
        if result >= 0 {
            return result;
        }
        let by_path = call(libc::AT_FDCWD, self.path());
        if by_path >= 0 || result == -(libc::EBADF as isize) {
            // The number is not that directory's any more.
            let _ = HELD[self.device].compare_exchange(fd + 1, 0, AcqRel, Relaxed);
        }
        by_path
    }
}

fn held(object: &Object) -> Option<i32> {
    match HELD[object.device].load(Relaxed) {
        0 if LOOKS.fetch_add(1, Relaxed) % LOOKS_MIN == LOOKS_MIN - 1 => open(object),
        0 => None,
        held => Some(held - 1),
    }
}

#[cold]
fn open(object: &Object) -> Option<i32> {
    let mut directory = object.path;
    directory[object.name_at] = 0;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a terminated path of ours; descriptors of ours.
    unsafe {
        let at = directory.as_ptr() as usize;
        let fd = gate::call4(libc::SYS_openat, libc::AT_FDCWD as usize, at, flags as usize, 0);
        if fd < 0 {
            return None;
        }
        let kept = gate::call3(libc::SYS_fcntl, fd as usize, libc::F_DUPFD_CLOEXEC as usize, NUMBER_MIN);
        gate::call1(libc::SYS_close, fd as usize);
        if kept < 0 {
            return None; // a limit below that number
        }
        if HELD[object.device].compare_exchange(0, kept as i32 + 1, AcqRel, Relaxed).is_err() {
            gate::call1(libc::SYS_close, kept as usize); // another thread was faster
            return None;
        }
        Some(kept as i32)
    }
}
