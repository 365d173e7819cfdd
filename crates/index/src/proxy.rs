//! What the supervisor asks of the preload library, which it loads into its own process.
//!
//! Programs that can't load the library (static, Go, raw system calls) are served by a supervisor outside of them. It
//! must decide as the library does, so it calls the library: one implementation, seen from two sides.
//!
//! Each function takes a directory descriptor and a path of the *supervisor's*, and returns what the kernel would (a negative
//! errno on failure), or `LEAVE` where the kernel's own way is right: then the program's call goes on as it is.

use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Name of the library's function `extern "C" fn(index: *const c_char) -> *const Table`; null if there is no such index.
pub const ENTRY: &core::ffi::CStr = c"terrace_proxy_table";

pub const LEAVE: isize = isize::MIN;

/// Which record a file is about to be created as: noted before its name is made, so that a supervisor that takes over from one
/// that was killed in between can tell its own file from another program's.
#[repr(C)]
pub struct Intent {
    /// Record number plus 1; 0: none.
    pub record: AtomicU32,
    _pad: u32,
    pub serial: AtomicU64,
}

/// `struct open_how` of openat2(2).
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct How {
    pub flags: u64,
    pub mode: u64,
    pub resolve: u64,
}

/// What the supervisor does, and knows, when one of its threads waits.
#[repr(C)]
pub struct Waiting {
    /// Called before a thread waits for the agent, or for something that the agent does.
    pub begins: extern "C" fn(),
    /// Called after another node was waited for: the program is still there, and in the call that this thread answers.
    pub is_worth_it: extern "C" fn() -> bool,
}

#[repr(C)]
pub struct Table {
    /// From now on, files that this thread creates are noted there.
    pub announce_to: unsafe extern "C" fn(*const Intent, waiting: &'static Waiting),
    /// `st_dev` of the root, which every placed file shows.
    pub root_dev: unsafe extern "C" fn() -> u64,
    /// Directories that programs make may be placed.
    pub places_directories: unsafe extern "C" fn() -> bool,
    /// The text begins with the root or one of its aliases, or has dots that may lead there.
    pub may_be_below_root: unsafe extern "C" fn(path: *const c_char) -> bool,
    /// The directory lies in a tier that is full, where names may be spilled files'.
    pub may_be_spilled: unsafe extern "C" fn(directory: i32) -> bool,
    pub open: unsafe extern "C" fn(dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize,
    /// An open whose look-up is restricted (openat2's `resolve` is not 0), which the kernel has nothing to say against.
    pub open_restricted: unsafe extern "C" fn(dirfd: i32, path: *const c_char, how: *const How) -> isize,
    pub stat: unsafe extern "C" fn(dirfd: i32, path: *const c_char, out: *mut c_void, flags: i32) -> isize,
    pub statx: unsafe extern "C" fn(dirfd: i32, path: *const c_char, flags: i32, mask: u32, out: *mut c_void) -> isize,
    pub readlink: unsafe extern "C" fn(dirfd: i32, path: *const c_char, out: *mut c_char, size: usize) -> isize,
    pub getdents: unsafe extern "C" fn(fd: i32, out: *mut c_void, size: usize) -> isize,
    /// In the layout of getdents(2).
    pub getdents_old: unsafe extern "C" fn(fd: i32, out: *mut c_void, size: usize) -> isize,
    /// mkdirat(2): the directory may be placed.
    pub mkdir: unsafe extern "C" fn(dirfd: i32, path: *const c_char, mode: u32) -> isize,
    /// symlinkat(2): the text may climb out of a placed directory.
    pub symlink: unsafe extern "C" fn(target: *const c_char, dirfd: i32, path: *const c_char) -> isize,
    /// What a canonical path in a placed directory is called in the root, written to `out` (PATH_MAX bytes): its length. 0: it is in none.
    pub shown: unsafe extern "C" fn(path: *const c_char, out: *mut c_char) -> isize,
    /// The path, if its `..` lead out of a placed directory, spelt out in `out` (PATH_MAX bytes): its length. 0: it is right as it is.
    pub translate: unsafe extern "C" fn(dirfd: i32, path: *const c_char, out: *mut c_char) -> isize,
    /// The kernel will go this path for the program: its `..` out of a placed directory is to lead it right. False: it can't.
    pub make_way: unsafe extern "C" fn(dirfd: i32, path: *const c_char) -> bool,
    /// The name itself is a placed directory's link.
    pub is_placed_directory: unsafe extern "C" fn(dirfd: i32, path: *const c_char) -> bool,
    pub unlink: unsafe extern "C" fn(dirfd: i32, path: *const c_char, flags: i32) -> isize,
    pub rename:
        unsafe extern "C" fn(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: u32) -> isize,
    pub link:
        unsafe extern "C" fn(olddir: i32, old: *const c_char, newdir: i32, new: *const c_char, flags: i32) -> isize,
    pub chown: unsafe extern "C" fn(dirfd: i32, path: *const c_char, user: u32, group: u32, flags: i32) -> isize,
    pub chmod: unsafe extern "C" fn(dirfd: i32, path: *const c_char, mode: u32, flags: i32) -> isize,
    pub utimens: unsafe extern "C" fn(dirfd: i32, path: *const c_char, times: *const c_void, flags: i32) -> isize,
    /// One of the `l…xattr` calls by its number; its path is absolute, or below `/proc/self/fd`.
    pub xattr: unsafe extern "C" fn(
        nr: i64,
        path: *const c_char,
        name: *const c_char,
        value: *mut c_void,
        size: usize,
        flags: i32,
    ) -> isize,
    pub ftruncate: unsafe extern "C" fn(fd: i32, length: i64) -> isize,
    /// statfs(2); of a placed file, the root's. `LEAVE` unless the path leads to one, or may lead to another node's file.
    pub statfs: unsafe extern "C" fn(dirfd: i32, path: *const c_char, out: *mut c_void) -> isize,
    /// Makes the placed file that the path leads to a real one. 1 if there was one.
    pub materialise: unsafe extern "C" fn(dirfd: i32, path: *const c_char) -> isize,
    /// The record (plus 1) whose link this name is, or whose flushed file, and its serial; 0: none.
    pub record_at: unsafe extern "C" fn(dirfd: i32, path: *const c_char, serial: *mut u64) -> u32,
    /// The name, wherever its text seems to lead, is a placed or durable file or a directory of the root.
    pub leads_to_ours: unsafe extern "C" fn(dirfd: i32, path: *const c_char) -> bool,
}
