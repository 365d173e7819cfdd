//! openat2(2): an open whose look-up is restricted (`RESOLVE_BENEATH`, `RESOLVE_NO_SYMLINKS`, …).
//!
//!   path ─▶ its directory, by the kernel under the same restrictions ─▶ the last name there ─▶ an ordinary open of it
//!
//! Reason: to a program one of our links is a regular file, and restrictions on links and on leaving a tree say nothing of it.
//! Invariant: every other step of the way is taken by the kernel under the restrictions that were asked for. What isn't one
//! of our links, or a file of the root, is the kernel's alone.

use crate::path::{Parent, Path, split};
use crate::scratch::Scratch;
use crate::{data, gate, link, open, process, readable, stat};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::Ordering::*;
use terrace_index::proxy::How;
use terrace_index::{Index, PATH_MAX};

const LOOPS_MAX: usize = 40;

fn native(dirfd: i32, path: *const c_char, how: *const How, size: usize) -> isize {
    // SAFETY: the program's own arguments, or ours.
    unsafe { gate::call4(libc::SYS_openat2, dirfd as usize, path as usize, how as usize, size) }
}

/// As the kernel returns it.
pub fn open_how(dirfd: i32, path: *const c_char, how: *const How, size: usize) -> isize {
    let ours = process::index().filter(|_| {
        // Flags, modes and sizes are looked at before the path: of a good request, the kernel minds only that there is none.
        readable::is_text(path)
            // All of it: an end that can't be read is EFAULT, too. More than a page is E2BIG.
            && readable::are_bytes(how as *const c_void, size.clamp(size_of::<How>(), 4096))
            && native(libc::AT_FDCWD, core::ptr::null(), how, size) == -(libc::EFAULT as isize)
    });
    if let Some(index) = ours {
        // SAFETY: the kernel has read it.
        let how = unsafe { &*how };
        let (flags, mode) = (how.flags as i32, how.mode as u32);
        if how.resolve == 0 {
            return open::open_at(dirfd, path, flags, mode);
        }
        let here = |directory, name| open::may_be_written(open::open_below(index, directory, name, flags, mode), flags);
        if let Some(result) = within(index, dirfd, path, how, here) {
            return result;
        }
    }
    let fd = native(dirfd, path, how, size);
    data::forget(fd as i32);
    // SAFETY: the kernel has read it.
    if fd >= 0 { open::may_be_written(fd, unsafe { (*how).flags as i32 }) } else { fd }
}

/// The result of `open` for the directory and the name that the path leads to. `None`: it is for the kernel.
pub fn within(
    index: Index,
    dirfd: i32,
    path: *const c_char,
    how: &How,
    open: impl FnOnce(i32, *const c_char) -> isize,
) -> Option<isize> {
    let mut text = Path::new();
    // SAFETY: the program's C string.
    if !text.push(unsafe { CStr::from_ptr(path) }.to_bytes()) {
        return None;
    }
    for _ in 0..LOOPS_MAX {
        let (directory, base) = split(text.get())?;
        let base = base.as_ptr() as *const c_char;
        let parent = directory_of(dirfd, directory, base, how.resolve)?;
        match stat::kernel_stat(parent.fd, base, libc::AT_SYMLINK_NOFOLLOW) {
            None if how.flags & libc::O_CREAT as u64 == 0 => return None,
            None => {}
            Some(found) if found.st_mode & libc::S_IFMT == libc::S_IFREG => {
                let is_of_root = found.st_dev == index.header.root_dev.load(Relaxed);
                if !is_of_root || !is_reached(parent.fd, base, how.resolve) {
                    return None;
                }
            }
            Some(found) if found.st_mode & libc::S_IFMT != libc::S_IFLNK => return None,
            // A process's own links are the kernel's alone: they lead where their text doesn't say.
            Some(_) if is_in_proc(parent.fd) => return None,
            Some(_) if link::read(index, parent.fd, base).is_none() && !link::is_elsewhere(index, parent.fd, base) => {
                text = follow(&parent, directory, base, how)?;
                continue;
            }
            Some(_) => {}
        }
        if how.resolve & libc::RESOLVE_CACHED != 0 {
            // An answer that every program that asks so expects.
            return Some(-(libc::EAGAIN as isize));
        }
        return Some(open(parent.fd, base));
    }
    None
}

fn directory_of(dirfd: i32, directory: &[u8], base: *const c_char, resolve: u64) -> Option<Parent> {
    let mut name = Path::new();
    if !name.push(if directory.is_empty() { b"." } else { directory }) {
        return None;
    }
    let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as u64;
    let fd = native(dirfd, name.as_ptr(), &How { flags, mode: 0, resolve }, size_of::<How>());
    // SAFETY: a terminated string.
    let base_len = unsafe { CStr::from_ptr(base) }.count_bytes();
    (fd >= 0).then_some(Parent { fd: fd as i32, base, base_len })
}

fn is_in_proc(directory: i32) -> bool {
    // SAFETY: a zeroed statfs is valid, and the kernel fills it.
    unsafe {
        let mut status: libc::statfs = core::mem::zeroed();
        gate::call2(libc::SYS_fstatfs, directory as usize, &raw mut status as usize) == 0
            && status.f_type == libc::PROC_SUPER_MAGIC
    }
}

/// The kernel finds the name too: nothing is mounted over it.
fn is_reached(dirfd: i32, base: *const c_char, resolve: u64) -> bool {
    if resolve & libc::RESOLVE_NO_XDEV == 0 {
        return true;
    }
    let flags = (libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC) as u64;
    let fd = native(dirfd, base, &How { flags, mode: 0, resolve: libc::RESOLVE_NO_XDEV }, size_of::<How>());
    if fd >= 0 {
        // SAFETY: our own descriptor.
        unsafe { gate::call1(libc::SYS_close, fd as usize) };
    }
    fd >= 0
}

/// Where a link of the program's own leads, as a path to be looked up anew from the same directory.
fn follow(parent: &Parent, directory: &[u8], base: *const c_char, how: &How) -> Option<Path> {
    let exclusive = (libc::O_CREAT | libc::O_EXCL) as u64;
    let stays = how.flags & libc::O_NOFOLLOW as u64 != 0
        || how.flags & exclusive == exclusive
        || how.resolve & libc::RESOLVE_NO_SYMLINKS != 0;
    if stays {
        return None;
    }
    let mut target = Scratch::new();
    // SAFETY: a terminated name; a buffer of ours.
    let len = unsafe {
        let out = target.as_mut_ptr() as usize;
        gate::call4(libc::SYS_readlinkat, parent.fd as usize, base as usize, out, PATH_MAX - 1)
    };
    if len <= 0 {
        return None;
    }
    let target = &target.bytes()[..len as usize];
    let is_absolute = target[0] == b'/';
    if is_absolute && how.resolve & libc::RESOLVE_BENEATH != 0 {
        return None;
    }
    let mut next = Path::new();
    let fits = (is_absolute || next.push(directory)) && next.push(target);
    fits.then_some(next)
}
