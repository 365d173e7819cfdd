//! What a name leads to, as text: readlink and realpath.

use crate::agent_call::{Request, call};
use crate::path::{Parent, Path};
use crate::placed::{self, Way};
use crate::scratch::Scratch;
use crate::{climbing, entry, gate, link, process, real, spill};
use core::ffi::{CStr, c_char, c_int};
use terrace_index::calls::CallKind;
use terrace_index::climbing::MARK;
use terrace_index::{Index, PATH_MAX, parse_name};

const LOOPS_MAX: usize = 40;

/// readlinkat(2) as the kernel returns it: our links are no links, and a descriptor's magic link shows the file's path.
pub fn readlink_at(dirfd: i32, path: *const c_char, out: *mut c_char, size: usize) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    // SAFETY: the program's own arguments.
    let len = unsafe { gate::call4(libc::SYS_readlinkat, dirfd as usize, path as usize, out as usize, size) };
    let Some(index) = process::index() else { return len };
    if len == -(libc::EFAULT as isize) && link::read(index, dirfd, path).is_some() {
        return -(libc::EINVAL as isize); // of what is no link nothing is written
    }
    if len <= 0 {
        return len;
    }
    // SAFETY: the kernel wrote `len` bytes.
    let text = unsafe { core::slice::from_raw_parts(out as *const u8, len as usize) };
    if placed::any(index) && index.inside(text).is_some() && is_magic(path) {
        let mut shown = Path::new();
        if placed::shown(index, text, &mut shown) {
            let count = shown.get().len().min(size);
            // SAFETY: `out` has `size` bytes.
            unsafe { core::ptr::copy_nonoverlapping(shown.as_ptr(), out, count) };
            return count as isize;
        }
        return len;
    }
    // A short buffer cuts the text: then the whole is read once more.
    let record = match index.record_of_link(text) {
        Some(record) => Some(record),
        None if len as usize == size => link::read(index, dirfd, path).map(|link| link.record),
        None => None,
    };
    if record.is_none() && !is_magic(path) && spill::is_at(index, dirfd, path) {
        return -(libc::EINVAL as isize);
    }
    if record.is_none() && (index.is_elsewhere(text) || len as usize == size && link::is_elsewhere(index, dirfd, path))
    {
        return -(libc::EINVAL as isize);
    }
    let Some(record) = record else {
        let may_climb = text[0] == b'/' && (len as usize == size || text.windows(MARK.len()).any(|part| part == MARK));
        let mut written = Path::new();
        if may_climb && placed::any(index) && !is_magic(path) && climbing::read(index, dirfd, path, &mut written) {
            let count = written.get().len().min(size);
            // SAFETY: `out` has `size` bytes.
            unsafe { core::ptr::copy_nonoverlapping(written.as_ptr(), out, count) };
            return count as isize;
        }
        return len;
    };
    if !is_magic(path) {
        return -(libc::EINVAL as isize);
    }
    let answer = call(index, &Request { kind: CallKind::PathOf, record, size: 0, path: b"", fd: -1 });
    if answer.status != 0 {
        return len;
    }
    // SAFETY: a status of 0 comes with a whole reply; `out` has `size` bytes.
    unsafe {
        let reply = &*answer.reply();
        let count = (reply.path_len as usize).min(PATH_MAX).min(size);
        core::ptr::copy_nonoverlapping(reply.path.as_ptr(), out as *mut u8, count);
        count as isize
    }
}

/// A name in /proc, which leads to a file by other ways than its text.
fn is_magic(path: *const c_char) -> bool {
    // SAFETY: the program's C string.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    name.starts_with(b"/proc/") || name.starts_with(b"/dev/fd/")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, out: *mut c_char, size: usize) -> isize {
    real::outcome(readlink_at(libc::AT_FDCWD, path, out, size))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(dirfd: c_int, path: *const c_char, out: *mut c_char, size: usize) -> isize {
    real::outcome(readlink_at(dirfd, path, out, size))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlink_chk(path: *const c_char, out: *mut c_char, size: usize, limit: usize) -> isize {
    assert!(size <= limit, "a checked readlink beyond its buffer");
    real::outcome(readlink_at(libc::AT_FDCWD, path, out, size))
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlinkat_chk(
    dirfd: c_int,
    path: *const c_char,
    out: *mut c_char,
    size: usize,
    limit: usize,
) -> isize {
    assert!(size <= limit, "a checked readlink beyond its buffer");
    real::outcome(readlink_at(dirfd, path, out, size))
}

/// The canonical path of a placed file: its directory's, and its name. Follows the program's own links to it.
/// 0: not a placed file. Negative: errno.
fn placed_realpath(index: Index, path: *const c_char, out: &mut Path) -> isize {
    let mut current = Path::new();
    // SAFETY: the program's C string.
    if !current.push(unsafe { CStr::from_ptr(path) }.to_bytes()) {
        return -(libc::ENAMETOOLONG as isize);
    }
    for _ in 0..LOOPS_MAX {
        let parent = match Parent::of(libc::AT_FDCWD, current.as_ptr()) {
            Ok(Some(parent)) => parent,
            _ => return 0,
        };
        out.clear();
        if !out.of_descriptor(parent.fd) {
            return 0;
        }
        let mut text = Scratch::new();
        // SAFETY: terminated paths, our buffer.
        let len = unsafe {
            gate::call4(
                libc::SYS_readlinkat,
                parent.fd as usize,
                parent.base as usize,
                text.as_mut_ptr() as usize,
                PATH_MAX - 1,
            )
        };
        if len <= 0 {
            return 0;
        }
        let text = &text.bytes()[..len as usize];
        let separator: &[u8] = if out.get() == b"/" { b"" } else { b"/" };
        if index.record_of_link(text).is_some() || index.spill(text).is_some() {
            return if out.push(separator) && out.push(parent.base()) { 1 } else { -(libc::ENAMETOOLONG as isize) };
        }
        let mut next = Path::new();
        let fits = if text[0] == b'/' {
            next.push(text)
        } else {
            next.push(out.get()) && next.push(separator) && next.push(text)
        };
        if !fits {
            return -(libc::ENAMETOOLONG as isize);
        }
        current = next;
    }
    -(libc::ELOOP as isize)
}

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_char;
    fn free(pointer: *mut core::ffi::c_void);
}

/// Copies the path to the program's buffer, or to one that it will free.
fn give(path: &Path, out: *mut c_char) -> *mut c_char {
    // SAFETY: realpath(3) gives us PATH_MAX bytes, or NULL for a buffer of malloc's.
    unsafe {
        let out = if out.is_null() { malloc(path.get().len() + 1) } else { out };
        if !out.is_null() {
            core::ptr::copy_nonoverlapping(path.as_ptr(), out, path.get().len() + 1);
        }
        out
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, out: *mut c_char) -> *mut c_char {
    let real = crate::real!("realpath": fn(*const c_char, *mut c_char) -> *mut c_char);
    // SAFETY: the program's own arguments.
    let native = || unsafe { real(path, out) };
    let Some(index) = process::index() else { return native() };
    if path.is_null() {
        return native();
    }
    entry::expect_internal_readlink();
    if let Err(error) = crate::elsewhere::brought(index, libc::AT_FDCWD, path, true) {
        real::set_errno(-error as i32);
        return core::ptr::null_mut();
    }
    if placed::any(index) {
        return realpath_shown(index, path, out);
    }
    realpath_of(index, path, out)
}

/// What lies in a placed directory, by its name in the root.
fn realpath_shown(index: Index, path: *const c_char, out: *mut c_char) -> *mut c_char {
    let way = Way::of(libc::AT_FDCWD, path);
    let found = realpath_of(index, way.path(), out);
    if found.is_null() {
        return found;
    }
    let mut shown = Path::new();
    // SAFETY: the C library's string.
    match placed::shown(index, unsafe { CStr::from_ptr(found) }.to_bytes(), &mut shown) {
        true => give_instead(found, &shown, out),
        false => found,
    }
}

/// Gives another path than realpath(3) has found.
fn give_instead(found: *mut c_char, path: &Path, out: *mut c_char) -> *mut c_char {
    forget(found, out);
    give(path, out)
}

fn forget(found: *mut c_char, out: *mut c_char) {
    if out.is_null() {
        // SAFETY: the C library's own buffer, which nobody has seen.
        unsafe { free(found as *mut core::ffi::c_void) }
    }
}

fn realpath_of(index: Index, path: *const c_char, out: *mut c_char) -> *mut c_char {
    let real = crate::real!("realpath": fn(*const c_char, *mut c_char) -> *mut c_char);
    // SAFETY: the program's own arguments.
    let native = unsafe { real(path, out) };
    // Only a path that leads to an object needs our answer: such a one has an object's name. To look at the file would be a request.
    // SAFETY: the C library's string.
    let may_be_object = !native.is_null()
        && unsafe { CStr::from_ptr(native) }
            .to_bytes()
            .rsplit(|&byte| byte == b'/')
            .next()
            .is_some_and(|name| parse_name(name).is_some());
    if !may_be_object {
        return native;
    }
    // SAFETY: a zeroed stat is valid.
    let leads_to_object = unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let raw = gate::call2(libc::SYS_stat, path as usize, &raw mut status as usize);
        raw == 0
            && status.st_mode & libc::S_IFMT == libc::S_IFREG
            && (index.record_of_object(status.st_dev, status.st_ino, status.st_nlink).is_some()
                || spill::is_led_to(index, path))
    };
    if !leads_to_object {
        return native;
    }
    let mut found = Path::new();
    match placed_realpath(index, path, &mut found) {
        1 => give_instead(native, &found, out),
        0 => native,
        errno => {
            forget(native, out);
            real::set_errno(-errno as i32);
            core::ptr::null_mut()
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(path: *const c_char, out: *mut c_char, size: usize) -> *mut c_char {
    assert!(out.is_null() || size >= PATH_MAX, "a checked realpath beyond its buffer");
    unsafe { realpath(path, out) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    unsafe { realpath(path, core::ptr::null_mut()) }
}
