//! The library inside the supervisor: the same decisions for programs that can't load it.
//!
//! The supervisor translates a program's directory descriptors to its own and calls these functions; what they do is what the
//! hooks do. Three things differ: what the kernel does right by itself is left to the program's own call (`LEAVE`), so that
//! it can't happen twice; a file that is open for writing is noted as one whose descriptors can't be exchanged; and the
//! record of a new file is announced before its name is made (see `terrace_index::proxy::Intent`).

use crate::caller::{self, announce_to};
use crate::durable::record_of_durable;
use crate::path::Path;
use crate::placed::{self, Way};
use crate::{
    attributes, changes, data, data_calls, directory, elsewhere, gate, link, make_directory, names, open, open_how,
    process, real, spill, stat,
};
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU64, Ordering::*};
use terrace_index::Index;
use terrace_index::proxy::{How, LEAVE, Table};

unsafe extern "C" fn root_dev() -> u64 {
    process::index().map_or(0, |index| index.header.root_dev.load(Relaxed))
}

unsafe extern "C" fn places_directories() -> bool {
    process::index().is_some_and(|index| index.header.places_directories.load(Relaxed) != 0 || placed::any(index))
}

unsafe extern "C" fn may_be_below_root(path: *const c_char) -> bool {
    // SAFETY: the supervisor's C string.
    process::index().is_some_and(|index| unsafe { process::begins_with_root(index, path) || process::has_dots(path) })
}

unsafe extern "C" fn leads_to_ours(dirfd: i32, path: *const c_char) -> bool {
    process::index().is_some_and(|index| names::leads_to_ours(index, dirfd, path))
}

unsafe extern "C" fn open(dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize {
    let Some(index) = process::index() else { return LEAVE };
    if flags & libc::O_PATH != 0 {
        // The kernel's own call finds it then.
        let _ = elsewhere::brought(index, dirfd, path, flags & libc::O_NOFOLLOW == 0);
        return open_for_look(index, dirfd, path, flags);
    }
    let is_plain_reading = flags & (libc::O_ACCMODE | libc::O_TRUNC | libc::O_CREAT | libc::O_NOFOLLOW) == 0
        // By the time of the kernel's call it may be placed.
        && !open::needs_roots_file(index);
    let is_left = |status: &libc::stat| is_plain_reading && !is_placed(index, status) && names_stay(index);
    match stat::kernel_stat_or_error(dirfd, path, 0) {
        Ok(status) if !may_be_ours(index, &status) || is_left(&status) => return LEAVE,
        Err(raw) if raw != NOTHING => return LEAVE,
        _ => {}
    }
    match open::may_be_written(open::open_below(index, dirfd, path, flags | libc::O_CLOEXEC, mode), flags) {
        // What it is that is not there is for the kernel to say; but not what is there by then, where a link is not to be followed.
        NOTHING if flags & libc::O_CREAT == 0 && !open::needs_roots_file(index) => LEAVE,
        raw => raw,
    }
}

const NOTHING: isize = -(libc::ENOENT as isize);

/// No placed file has lost its name since the last time. Where names are replaced all the time, the kernel may meet a link in a name that was
/// a real file's at our look, and find nothing behind it: nobody looks again for a program's own call.
fn names_stay(index: Index) -> bool {
    static REMOVALS: AtomicU64 = AtomicU64::new(u64::MAX);
    let now = index.header.removals_seq.load(Acquire);
    REMOVALS.swap(now, Relaxed) == now
}

/// A regular file of the root's file system or of a tier's. What is elsewhere (behind a link to `/proc/self`, say, which for
/// the kernel is then the supervisor) is for the program's own call.
fn may_be_ours(index: Index, status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFREG
        && (status.st_dev == index.header.root_dev.load(Relaxed) || index.device_of_dev(status.st_dev))
}

/// An open that only names the file (O_PATH), of one of our links: it gets the object. The kernel hands no descriptor of that
/// kind from one process to another, so this one can read too.
fn open_for_look(index: Index, dirfd: i32, path: *const c_char, flags: i32) -> isize {
    let is_spilled = spill::is_at(index, dirfd, path);
    if flags & libc::O_DIRECTORY != 0 || !is_spilled && link::read(index, dirfd, path).is_none() {
        return LEAVE;
    }
    let fd = open::native(dirfd, path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
    if fd < 0 {
        return LEAVE;
    }
    let is_object = stat::kernel_stat(fd as i32, c"".as_ptr(), libc::AT_EMPTY_PATH)
        .is_some_and(|status| index.record_of_object(status.st_dev, status.st_ino, status.st_nlink).is_some());
    if !is_object && !is_spilled {
        // SAFETY: a descriptor that nobody else has seen.
        unsafe { gate::call1(libc::SYS_close, fd as usize) };
        return LEAVE;
    }
    fd
}

/// A directory in a tier, where names may be spilled files'.
unsafe extern "C" fn may_be_spilled(directory: i32) -> bool {
    process::index().is_some_and(|index| {
        spill::any(index) && data::fstat(directory).is_some_and(|status| index.device_of_dev(status.st_dev))
    })
}

unsafe extern "C" fn open_restricted(dirfd: i32, path: *const c_char, how: *const How) -> isize {
    let Some(index) = process::index() else { return LEAVE };
    // SAFETY: the supervisor's structure and path.
    let how = unsafe { &*how };
    let here = |directory, name| unsafe { open(directory, name, how.flags as i32, how.mode as u32) };
    open_how::within(index, dirfd, path, how, here).unwrap_or(LEAVE)
}

/// Its bytes are in a tier: there may be a better way to them than the kernel's, and its object may go while the kernel is on the way.
fn is_placed(index: Index, status: &libc::stat) -> bool {
    index.record_of_object(status.st_dev, status.st_ino, status.st_nlink).is_some()
        || index.header.clean_count.load(Acquire) > 0 && record_of_durable(index, status).is_some()
}

unsafe extern "C" fn stat_at(dirfd: i32, path: *const c_char, out: *mut c_void, flags: i32) -> isize {
    stat::stat_at(dirfd, path, out as *mut libc::stat, flags)
}

unsafe extern "C" fn statx_at(dirfd: i32, path: *const c_char, flags: i32, mask: u32, out: *mut c_void) -> isize {
    stat::statx_at(dirfd, path, flags, mask, out as *mut libc::statx)
}

unsafe extern "C" fn readlink_at(dirfd: i32, path: *const c_char, out: *mut c_char, size: usize) -> isize {
    crate::canonical::readlink_at(dirfd, path, out, size)
}

unsafe extern "C" fn getdents(fd: i32, out: *mut c_void, size: usize) -> isize {
    directory::getdents(fd, out, size)
}

unsafe extern "C" fn getdents_old(fd: i32, out: *mut c_void, size: usize) -> isize {
    directory::getdents_old(fd, out, size)
}

unsafe extern "C" fn mkdir(dirfd: i32, path: *const c_char, mode: u32) -> isize {
    make_directory::mkdir_at(dirfd, path, mode)
}

unsafe extern "C" fn symlink(target: *const c_char, dirfd: i32, path: *const c_char) -> isize {
    crate::climbing::symlink_at(target, dirfd, path)
}

unsafe extern "C" fn shown(path: *const c_char, out: *mut c_char) -> isize {
    let mut shown = Path::new();
    // SAFETY: the supervisor's C string, here and below.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    match process::index() {
        Some(index) if placed::shown(index, text, &mut shown) => copy_out(&shown, out),
        _ => 0,
    }
}

unsafe extern "C" fn translate(dirfd: i32, path: *const c_char, out: *mut c_char) -> isize {
    let way = Way::of(dirfd, path);
    way.text().map_or(0, |text| copy_out(text, out))
}

unsafe extern "C" fn make_way(dirfd: i32, path: *const c_char) -> bool {
    process::index().is_none_or(|index| placed::make_way(index, dirfd, path))
}

unsafe extern "C" fn is_placed_directory(dirfd: i32, path: *const c_char) -> bool {
    process::index().is_some_and(|index| placed::link_at(index, dirfd, path).is_some())
}

/// With its terminator, for which a path of ours has always room.
fn copy_out(path: &Path, out: *mut c_char) -> isize {
    let len = path.get().len();
    // SAFETY: the supervisor's buffer of PATH_MAX bytes.
    unsafe { core::ptr::copy_nonoverlapping(path.as_ptr(), out, len + 1) };
    len as isize
}

unsafe extern "C" fn unlink(dirfd: i32, path: *const c_char, flags: i32) -> isize {
    names::unlink_at(dirfd, path, flags)
}

unsafe extern "C" fn rename(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: u32) -> isize {
    names::rename_at(olddir, old, newdir, new, flags)
}

unsafe extern "C" fn link(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: i32) -> isize {
    names::link_at(olddir, old, newdir, new, flags)
}

/// The answer to a change of attributes that is not made here: it is the kernel's (`LEAVE`), or it can't be made.
fn unchanged(dirfd: i32, path: *const c_char, flags: i32) -> Option<isize> {
    match changes::concerns(dirfd, path, flags) {
        Ok(true) => None,
        Ok(false) => Some(LEAVE),
        Err(error) => Some(error),
    }
}

unsafe extern "C" fn chown(dirfd: i32, path: *const c_char, user: u32, group: u32, flags: i32) -> isize {
    if let Some(answer) = unchanged(dirfd, path, flags) {
        return answer;
    }
    // SAFETY: the supervisor's own arguments, here and below.
    let result = real::raw(unsafe { changes::fchownat(dirfd, path, user, group, flags) } as isize);
    // Of an open file, by the path of the supervisor's own copy of its descriptor.
    // SAFETY: the supervisor's C string.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    if result == 0
        && let Some(digits) = text.strip_prefix(b"/proc/self/fd/")
        && let Some(fd) = core::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok())
    {
        changes::own_link_of(fd, user, group);
    }
    result
}

unsafe extern "C" fn chmod(dirfd: i32, path: *const c_char, mode: u32, flags: i32) -> isize {
    if let Some(answer) = unchanged(dirfd, path, flags) {
        return answer;
    }
    changes::fchmodat2(dirfd, path, mode, flags)
}

unsafe extern "C" fn utimens(dirfd: i32, path: *const c_char, times: *const c_void, flags: i32) -> isize {
    real::raw(changes::times(dirfd, path, times as *const libc::timespec, flags) as isize)
}

unsafe extern "C" fn xattr(
    nr: i64,
    path: *const c_char,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
    flags: i32,
) -> isize {
    let follows = matches!(nr, libc::SYS_setxattr | libc::SYS_removexattr);
    if let Some(answer) = unchanged(libc::AT_FDCWD, path, if follows { 0 } else { libc::AT_SYMLINK_NOFOLLOW }) {
        return answer;
    }
    unsafe {
        match nr {
            libc::SYS_setxattr => real::raw(changes::setxattr(path, name, value, size, flags) as isize),
            libc::SYS_lsetxattr => real::raw(changes::lsetxattr(path, name, value, size, flags) as isize),
            libc::SYS_removexattr => real::raw(changes::removexattr(path, name) as isize),
            libc::SYS_lremovexattr => real::raw(changes::lremovexattr(path, name) as isize),
            libc::SYS_lgetxattr => real::raw(attributes::lgetxattr(path, name, value, size)),
            libc::SYS_llistxattr => real::raw(attributes::llistxattr(path, value as *mut c_char, size)),
            _ => LEAVE,
        }
    }
}

unsafe extern "C" fn ftruncate(fd: i32, length: i64) -> isize {
    real::raw(unsafe { data_calls::ftruncate(fd, length) } as isize)
}

unsafe extern "C" fn statfs(dirfd: i32, path: *const c_char, out: *mut c_void) -> isize {
    let Some(index) = process::index() else { return LEAVE };
    let _ = elsewhere::brought(index, dirfd, path, true);
    let object = stat::kernel_stat(dirfd, path, 0)
        .and_then(|status| index.record_of_object(status.st_dev, status.st_ino, status.st_nlink));
    // SAFETY: the supervisor's arguments.
    let of = |path: *const c_char| unsafe { gate::call2(libc::SYS_statfs, path as usize, out as usize) };
    match object {
        Some(_) => of(attributes::root(index)),
        None if elsewhere::may_be_met(index, dirfd, path, true) => elsewhere::retried(dirfd, path, || of(path)),
        None => LEAVE,
    }
}

unsafe extern "C" fn materialise(dirfd: i32, path: *const c_char) -> isize {
    process::index().is_some_and(|index| open::materialise_path(index, dirfd, path, true)) as isize
}

unsafe extern "C" fn record_at(dirfd: i32, path: *const c_char, serial: *mut u64) -> u32 {
    let Some(index) = process::index() else { return 0 };
    let flushed = || {
        let status = stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW)?;
        let number = index.record_of_root_ino(status.st_ino)?;
        (link::record(&index, number).durable_ino.load(Acquire) == status.st_ino).then_some(number)
    };
    let Some(found) = link::read(index, dirfd, path).map(|link| link.record).or_else(flushed) else { return 0 };
    // SAFETY: the supervisor's variable.
    unsafe { *serial = link::record(&index, found).serial.load(Acquire) };
    found + 1
}

static TABLE: Table = Table {
    announce_to,
    root_dev,
    places_directories,
    may_be_below_root,
    may_be_spilled,
    open,
    open_restricted,
    stat: stat_at,
    statx: statx_at,
    readlink: readlink_at,
    getdents,
    getdents_old,
    mkdir,
    symlink,
    shown,
    translate,
    make_way,
    is_placed_directory,
    unlink,
    rename,
    link,
    chown,
    chmod,
    utimens,
    xattr,
    ftruncate,
    statfs,
    materialise,
    record_at,
    leads_to_ours,
};

/// `terrace_index::proxy::ENTRY`: the supervisor's way in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_proxy_table(index: *const c_char) -> *const Table {
    caller::activate();
    // SAFETY: the supervisor's C string.
    match process::map(unsafe { CStr::from_ptr(index) }) {
        Some(_) => &raw const TABLE,
        None => core::ptr::null(),
    }
}
