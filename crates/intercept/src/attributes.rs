//! Attributes. By path they reach the object through the link, natively. Left are the calls that say "of the link itself", which
//! for a program is the file, and statfs, whose answer must be the root's. What changes attributes is in `changes`.

use crate::placed::{self, Way};
use crate::{agent_call, elsewhere, gate, link, open, process, readable, real, spill, stat};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering::*;
use terrace_index::Index;
use terrace_index::calls::Looks;

const CWD: c_int = libc::AT_FDCWD;

/// `flags` without AT_SYMLINK_NOFOLLOW if the name is a link of ours.
pub fn follow_if_ours(dirfd: i32, path: *const c_char, flags: i32) -> i32 {
    if flags & libc::AT_SYMLINK_NOFOLLOW != 0 && is_ours(dirfd, path) {
        flags & !libc::AT_SYMLINK_NOFOLLOW
    } else {
        flags
    }
}

pub fn is_ours(dirfd: i32, path: *const c_char) -> bool {
    !path.is_null()
        && process::index()
            .is_some_and(|index| link::read(index, dirfd, path).is_some() || spill::is_at(index, dirfd, path))
}

/// Extended attributes "of the link": of the object, where the link is ours.
macro_rules! xattr_hooks {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty, $own:expr, $through:expr, $elsewhere:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, $($arg: $ty),*) -> $ret {
            let way = Way::of(CWD, path);
            let path = way.path();
            if let Some(answer) = elsewhere::answered(CWD, path, false, $elsewhere) {
                return real::outcome(answer) as $ret;
            }
            let act = || {
                let nr = if is_ours(CWD, path) { $through } else { $own };
                // SAFETY: the program's own arguments.
                unsafe { xattr_call(nr, path as usize, &[$($arg as usize),*]) }
            };
            let result = match process::index() {
                Some(index) => elsewhere::until_here(index, CWD, path, false, || elsewhere::retried(CWD, path, act)),
                None => act(),
            };
            real::outcome(result) as $ret
        }
    )*};
}

/// Looks that the kernel makes through the link, natively, and not where it leads to another node.
macro_rules! look_hooks {
    ($($name:ident($dirfd:expr, $path:ident; $($arg:ident: $ty:ty),*) -> $ret:ty, $elsewhere:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            let real = $crate::real_named!($name: fn($($ty),*) -> $ret);
            let way = Way::of($dirfd, $path);
            let $path = way.path();
            // SAFETY: the program's own arguments, or the same path spelt out.
            let native = || real::raw(unsafe { real($($arg),*) } as isize);
            real::outcome(elsewhere::told_or_retried($dirfd, $path, $elsewhere, native)) as $ret
        }
    )*};
}

/// access(2) of a file in another node's tier, where its mode alone says it: for the file's own user, and for root.
fn may_access(looks: &Looks, mode: c_int) -> Option<isize> {
    if mode == libc::F_OK {
        return Some(0);
    }
    // SAFETY: they take nothing and can't fail.
    let (real, effective) =
        unsafe { (gate::call1(libc::SYS_getuid, 0) as u32, gate::call1(libc::SYS_geteuid, 0) as u32) };
    if real != effective || looks.xattrs > 0 || mode & !(libc::R_OK | libc::W_OK | libc::X_OK) != 0 {
        return None;
    }
    let granted = match effective {
        0 if !may_pass_modes() => return None,
        0 if looks.mode & 0o111 != 0 => 7,
        0 => 6,
        user if user == looks.uid => (looks.mode >> 6 & 7) as c_int,
        _ => return None,
    };
    Some(if mode & !granted == 0 { 0 } else { -(libc::EACCES as isize) })
}

/// This root has CAP_DAC_OVERRIDE (capabilities(7)).
fn may_pass_modes() -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let (header, mut data) = ([VERSION_3, 0], [[0u32; 3]; 2]);
    // SAFETY: structures of this frame, of the sizes that this version has.
    let got = unsafe { gate::call2(libc::SYS_capget, header.as_ptr() as usize, data.as_mut_ptr() as usize) };
    got == 0 && data[0][0] & 1 << 1 != 0
}

/// A file without any has none of this name, if the name is one that a file may have.
fn no_xattr(looks: &Looks, name: *const c_char) -> Option<isize> {
    if looks.xattrs > 0 || !readable::is_text(name) {
        return None;
    }
    // SAFETY: it was looked at just now.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let is_usual = |of: &&[u8]| name.len() > of.len() && name.starts_with(of);
    let usual = [&b"user."[..], b"security.", b"system.posix_acl_"];
    (name.len() <= 255 && usual.iter().any(is_usual)).then_some(-(libc::ENODATA as isize))
}

fn no_xattrs(looks: &Looks) -> Option<isize> {
    (looks.xattrs == 0).then_some(0)
}

look_hooks! {
    access(CWD, path; path: *const c_char, mode: c_int) -> c_int, |looks| may_access(looks, mode);
    eaccess(CWD, path; path: *const c_char, mode: c_int) -> c_int, |looks| may_access(looks, mode);
    euidaccess(CWD, path; path: *const c_char, mode: c_int) -> c_int, |looks| may_access(looks, mode);
    faccessat(dirfd, path; dirfd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int,
        |looks| if flags & !libc::AT_EACCESS == 0 { may_access(looks, mode) } else { None };
    getxattr(CWD, path; path: *const c_char, name: *const c_char, value: *mut c_void, size: usize) -> isize,
        |looks| no_xattr(looks, name);
    listxattr(CWD, path; path: *const c_char, list: *mut c_char, size: usize) -> isize, no_xattrs;
}

pub unsafe fn xattr_call(nr: i64, path: usize, rest: &[usize]) -> isize {
    let arg = |i: usize| rest.get(i).copied().unwrap_or(0);
    // SAFETY: as the caller's.
    unsafe { gate::call5(nr, path, arg(0), arg(1), arg(2), arg(3)) }
}

xattr_hooks! {
    lgetxattr(name: *const c_char, value: *mut c_void, size: usize) -> isize, libc::SYS_lgetxattr, libc::SYS_getxattr,
        |looks| no_xattr(looks, name);
    llistxattr(list: *mut c_char, size: usize) -> isize, libc::SYS_llistxattr, libc::SYS_listxattr, no_xattrs;
}

/// truncate(2) of a placed file counts its room; of a replicated one, makes it current first: as an open for writing does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate(path: *const c_char, length: i64) -> c_int {
    let way = Way::of(CWD, path);
    let path = way.path();
    if let (Some(index), false) = (process::index(), path.is_null()) {
        // SAFETY: a zeroed stat is valid; the program's path.
        let placed = unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            gate::call2(libc::SYS_stat, path as usize, &raw mut status as usize) == 0
                && status.st_mode & libc::S_IFMT == libc::S_IFREG
                && (index.record_of_object(status.st_dev, status.st_ino, status.st_nlink).is_some()
                    || index.header.clean_count.load(Relaxed) > 0 && index.record_of_root_ino(status.st_ino).is_some())
        };
        if placed {
            let fd = open::open_at(CWD, path, libc::O_WRONLY | libc::O_CLOEXEC, 0);
            if fd < 0 {
                return real::outcome(fd) as c_int;
            }
            // SAFETY: our descriptor.
            let result = unsafe { crate::data_calls::ftruncate(fd as c_int, length) };
            let errno = real::errno();
            // SAFETY: our descriptor.
            unsafe { crate::data_calls::close(fd as c_int) };
            real::set_errno(errno);
            return result;
        }
    }
    // SAFETY: the program's own arguments.
    let native = || unsafe { gate::call2(libc::SYS_truncate, path as usize, length as usize) };
    real::outcome(agent_call::changed(elsewhere::retried(CWD, path, native))) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn truncate64(path: *const c_char, length: i64) -> c_int {
    unsafe { truncate(path, length) }
}

/// The root in place of a path that leads to an object.
fn file_system_path(path: *const c_char) -> *const c_char {
    if let (Some(index), false) = (process::index(), path.is_null()) {
        let _ = elsewhere::brought(index, CWD, path, true);
        // SAFETY: a zeroed stat is valid; the program's path.
        unsafe {
            let mut status: libc::stat = core::mem::zeroed();
            if gate::call2(libc::SYS_stat, path as usize, &raw mut status as usize) == 0
                && (index.record_of_object(status.st_dev, status.st_ino, status.st_nlink).is_some()
                    || placed::is_inside(index, CWD, path, &status))
            {
                return root(index);
            }
        }
    }
    path
}

pub fn root(index: Index) -> *const c_char {
    // SAFETY: the index lives as long as the process, and its paths are followed by zeroes.
    let path: &'static [u8] = unsafe { core::mem::transmute(index.header.root.get()) };
    path.as_ptr() as *const c_char
}

fn is_object(fd: c_int) -> Option<Index> {
    let index = process::index()?;
    (crate::data::is_placed(index, fd) || placed::any(index) && placed::inode_base_of(index, fd).is_some())
        .then_some(index)
}

macro_rules! statfs_hooks {
    ($($name:ident $by_fd:ident $out:ty;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, out: *mut $out) -> c_int {
            let real = $crate::real_named!($name: fn(*const c_char, *mut $out) -> c_int);
            let way = Way::of(CWD, path);
            // SAFETY: the program's buffer.
            unsafe { real(file_system_path(way.path()), out) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $by_fd(fd: c_int, out: *mut $out) -> c_int {
            if let Some(index) = is_object(fd) {
                let real = $crate::real_named!($name: fn(*const c_char, *mut $out) -> c_int);
                // SAFETY: the program's buffer.
                return unsafe { real(root(index), out) };
            }
            let real = $crate::real_named!($by_fd: fn(c_int, *mut $out) -> c_int);
            // SAFETY: the program's own arguments.
            unsafe { real(fd, out) }
        }
    )*};
}

statfs_hooks! {
    statfs fstatfs libc::statfs;
    statfs64 fstatfs64 libc::statfs;
    statvfs fstatvfs libc::statvfs;
    statvfs64 fstatvfs64 libc::statvfs;
}

/// Limits of the file system: the root's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pathconf(path: *const c_char, name: c_int) -> i64 {
    let real = crate::real!("pathconf": fn(*const c_char, c_int) -> i64);
    // SAFETY: the program's own path, or the root's.
    unsafe { real(file_system_path(Way::of(CWD, path).path()), name) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fpathconf(fd: c_int, name: c_int) -> i64 {
    if let Some(index) = is_object(fd) {
        let real = crate::real!("pathconf": fn(*const c_char, c_int) -> i64);
        // SAFETY: the root's path.
        return unsafe { real(root(index), name) };
    }
    let real = crate::real!("fpathconf": fn(c_int, c_int) -> i64);
    // SAFETY: the program's own arguments.
    unsafe { real(fd, name) }
}

/// For walkers: the status of what a program calls `path`, without following its own links.
pub fn lstat_shown(path: *const c_char, out: *mut libc::stat) -> bool {
    stat::stat_at(CWD, path, out, libc::AT_SYMLINK_NOFOLLOW) == 0
}

/// The same of what its own links lead to.
pub fn stat_shown(path: *const c_char, out: *mut libc::stat) -> bool {
    stat::stat_at(CWD, path, out, 0) == 0
}
