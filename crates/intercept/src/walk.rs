//! Walkers that look inside libc: fts(3), ftw(3), nftw(3).
//!
//! fts calls `lstat` past our hook, so what it returns is corrected entry by entry. ftw and nftw are written again on
//! top of fts. glob(3) and wordexp(3) need nothing: they ask only whether a name exists and is a directory, and a link to
//! an object answers both as the file would.

use crate::attributes::{lstat_shown, stat_shown};
use crate::{gate, placed, process, real};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::*;

/// glibc's FTSENT on 64-bit Linux.
#[repr(C)]
pub struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: i64,
    pointer: *mut c_void,
    access_path: *const c_char,
    path: *const c_char,
    errno: c_int,
    symlink_fd: c_int,
    path_len: u16,
    name_len: u16,
    ino: u64,
    dev: u64,
    nlink: u64,
    level: i16,
    info: u16,
    flags: u16,
    instruction: u16,
    status: *mut libc::stat,
    name: [c_char; 1],
}

mod info {
    pub const D: u16 = 1;
    pub const DC: u16 = 2;
    pub const DNR: u16 = 4;
    pub const DP: u16 = 6;
    pub const ERR: u16 = 7;
    pub const F: u16 = 8;
    pub const NS: u16 = 10;
    pub const SL: u16 = 12;
    pub const SLNONE: u16 = 13;
}

unsafe fn correct(entry: *mut Entry) {
    if entry.is_null() || process::index().is_none() {
        return;
    }
    // SAFETY: an entry that fts returned, valid until its next call.
    unsafe {
        if (*entry).status.is_null() {
            return;
        }
        let mut status: libc::stat = core::mem::zeroed();
        if (*entry).info == info::D {
            // Only what the program sees: by the rest the walk finds its own way back.
            let is_there = is_beyond_root(entry) && stat_shown((*entry).access_path, &mut status);
            if is_there && status.st_mode & libc::S_IFMT == libc::S_IFDIR {
                *(*entry).status = status;
            }
            return;
        }
        if !matches!((*entry).info, info::SL | info::SLNONE | info::F) {
            return;
        }
        let is_regular = |status: &libc::stat| status.st_mode & libc::S_IFMT == libc::S_IFREG;
        let path = (*entry).access_path;
        // A file that is still no file by its own name was met by a link of the program's, which the walk follows.
        let follows = (*entry).info == info::F;
        let is_there = lstat_shown(path, &mut status);
        let is_found =
            is_there && (is_regular(&status) || follows && stat_shown(path, &mut status) && is_regular(&status));
        if is_there && !is_found && !follows && is_beyond_root(entry) {
            *(*entry).status = status; // the program's own link
        }
        if is_found {
            *(*entry).status = status;
            (*entry).ino = status.st_ino;
            (*entry).dev = status.st_dev;
            (*entry).nlink = status.st_nlink;
            (*entry).info = info::F;
        }
    }
}

/// It lies on a tier's file system. Of what is no directory, the walk has the device in its status only.
unsafe fn is_beyond_root(entry: *mut Entry) -> bool {
    // SAFETY: as the caller's, who has looked at the status.
    let dev = unsafe { (*(*entry).status).st_dev };
    process::index().is_some_and(|index| placed::any(index) && index.device_of_dev(dev))
}

/// A link that is a directory to the program: the walk is to go in.
unsafe fn is_placed_directory(entry: *mut Entry) -> bool {
    // SAFETY: as the caller's.
    unsafe {
        !entry.is_null()
            && (*entry).info == info::SL
            && process::index()
                .is_some_and(|index| placed::link_at(index, libc::AT_FDCWD, (*entry).access_path).is_some())
    }
}

/// True for Terrace's own directory at the top of the root: walkers skip it.
unsafe fn is_private(entry: *mut Entry) -> bool {
    let Some(index) = process::index() else { return false };
    // SAFETY: as above; the name is terminated.
    unsafe {
        let name = core::ffi::CStr::from_ptr((&raw const (*entry).name) as *const c_char);
        if !matches!((*entry).info, info::D | info::DP | info::DNR)
            || name.to_bytes() != terrace_index::PRIVATE_DIR.as_bytes()
        {
            return false;
        }
        let parent = (*entry).parent;
        !parent.is_null()
            && (*parent).ino == index.header.root_ino.load(Relaxed)
            && (*parent).dev == index.header.root_dev.load(Relaxed)
    }
}

macro_rules! fts_hooks {
    ($($read:ident $children:ident $set:ident $close:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $close(walk: *mut c_void) -> c_int {
            let real = $crate::real_named!($close: fn(*mut c_void) -> c_int);
            // SAFETY: the program's walk.
            let result = unsafe { real(walk) };
            process::forget_cwd();
            result
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $read(walk: *mut c_void) -> *mut Entry {
            let real = $crate::real_named!($read: fn(*mut c_void) -> *mut Entry);
            let set = $crate::real_named!($set: fn(*mut c_void, *mut Entry, c_int) -> c_int);
            // SAFETY: the program's walk.
            unsafe {
                loop {
                    let entry = real(walk);
                    process::forget_cwd(); // it goes from directory to directory by itself
                    if is_placed_directory(entry) {
                        set(walk, entry, FTS_FOLLOW);
                        continue;
                    }
                    correct(entry);
                    if !entry.is_null() && is_private(entry) {
                        set(walk, entry, FTS_SKIP);
                        continue;
                    }
                    return entry;
                }
            }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $children(walk: *mut c_void, options: c_int) -> *mut Entry {
            let real = $crate::real_named!($children: fn(*mut c_void, c_int) -> *mut Entry);
            // SAFETY: the program's walk; a list linked by `link`.
            unsafe {
                let first = real(walk, options);
                process::forget_cwd();
                let mut entry = first;
                while !entry.is_null() {
                    correct(entry);
                    entry = (*entry).link;
                }
                first
            }
        }
    )*};
}

fts_hooks! {
    fts_read fts_children fts_set fts_close;
    fts64_read fts64_children fts64_set fts64_close;
}

const FTS_LOGICAL: c_int = 2;
const FTS_NOCHDIR: c_int = 4;
const FTS_PHYSICAL: c_int = 16;
const FTS_SKIP: c_int = 4;
/// The next read gives the entry again, as what the link leads to.
const FTS_FOLLOW: c_int = 2;

const FTW_PHYS: c_int = 1;
const FTW_MOUNT: c_int = 2;
const FTW_CHDIR: c_int = 4;
const FTW_DEPTH: c_int = 8;
const FTW_ACTIONRETVAL: c_int = 16;

const FTW_F: c_int = 0;
const FTW_D: c_int = 1;
const FTW_DNR: c_int = 2;
const FTW_NS: c_int = 3;
const FTW_SL: c_int = 4;
const FTW_DP: c_int = 5;
const FTW_SLN: c_int = 6;

const FTW_STOP: c_int = 1;
const FTW_SKIP_SUBTREE: c_int = 2;
const FTW_SKIP_SIBLINGS: c_int = 3;

#[repr(C)]
pub struct Position {
    base: c_int,
    level: c_int,
}

type NftwCall = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int, *mut Position) -> c_int;
type FtwCall = unsafe extern "C" fn(*const c_char, *const libc::stat, c_int) -> c_int;

#[derive(Clone, Copy)]
enum Call {
    Ftw(FtwCall),
    Nftw(NftwCall),
}

fn type_of(entry: &Entry, flags: c_int) -> Option<c_int> {
    let depth = flags & FTW_DEPTH != 0;
    match entry.info {
        info::D => (!depth).then_some(FTW_D),
        info::DP => depth.then_some(FTW_DP),
        info::DNR => Some(FTW_DNR),
        info::NS => Some(FTW_NS),
        info::SL => Some(FTW_SL),
        info::SLNONE => Some(FTW_SLN),
        info::DC | info::ERR => None,
        _ => Some(FTW_F),
    }
}

unsafe fn walk(path: *const c_char, call: Call, flags: c_int) -> c_int {
    let open = crate::real!("fts_open": fn(*const *const c_char, c_int, *const c_void) -> *mut c_void);
    let mut options = if flags & FTW_PHYS != 0 { FTS_PHYSICAL } else { FTS_LOGICAL };
    if flags & FTW_CHDIR == 0 {
        options |= FTS_NOCHDIR;
    }
    let path = Start::of(path);
    let paths = [path.0 as *const c_char, core::ptr::null()];
    if path.0.is_null() {
        return -1;
    }
    // SAFETY: the program's path and call-back; entries are valid until the next read.
    unsafe {
        let walk = open(paths.as_ptr(), options, core::ptr::null());
        if walk.is_null() {
            return -1;
        }
        let mut result = 0;
        let mut device = 0;
        let mut seen = Seen(core::ptr::null_mut());
        let mut skip_level: Option<i16> = None;
        loop {
            real::set_errno(0);
            let entry = fts_read(walk);
            if entry.is_null() {
                if real::errno() != 0 {
                    result = -1;
                }
                break;
            }
            let entry = &mut *entry;
            // Siblings of one that said FTW_SKIP_SIBLINGS, until the walk is back at their parent.
            if let Some(level) = skip_level {
                if entry.level >= level {
                    fts_set_skip(walk, entry);
                    continue;
                }
                skip_level = None;
            }
            if entry.level == 0 && entry.info == info::NS {
                real::set_errno(entry.errno);
                result = -1;
                break;
            }
            if entry.level == 0 && !entry.status.is_null() {
                device = (*entry.status).st_dev;
            }
            let is_known = !entry.status.is_null() && entry.info != info::NS;
            let is_elsewhere = flags & FTW_MOUNT != 0 && is_known && (*entry.status).st_dev != device;
            // By links a directory may be met several times.
            let is_again = entry.info == info::D && flags & FTW_PHYS == 0 && !seen.insert(&*entry.status);
            if is_elsewhere || is_again {
                entry.number = LEFT_OUT;
                fts_set_skip(walk, entry);
                continue;
            }
            if entry.number == LEFT_OUT {
                continue;
            }
            let Some(mut kind) = type_of(entry, flags) else { continue };
            if kind == FTW_D && is_unreadable(entry) {
                // fts gives it as a directory first.
                kind = FTW_DNR;
                fts_set_skip(walk, entry);
            }
            let mut position =
                Position { base: entry.path_len as c_int - entry.name_len as c_int, level: entry.level as c_int };
            if entry.level == 0 {
                position.base = base_of(entry);
            }
            let answer = match call {
                Call::Nftw(call) => call(entry.path, entry.status, kind, &mut position),
                Call::Ftw(call) => {
                    if kind == FTW_SLN {
                        kind = FTW_NS;
                    }
                    call(entry.path, entry.status, kind)
                }
            };
            if answer == 0 {
                continue;
            }
            if flags & FTW_ACTIONRETVAL != 0 && answer == FTW_SKIP_SUBTREE {
                fts_set_skip(walk, entry);
            } else if flags & FTW_ACTIONRETVAL != 0 && answer == FTW_SKIP_SIBLINGS {
                fts_set_skip(walk, entry);
                skip_level = Some(entry.level);
            } else {
                result = if flags & FTW_ACTIONRETVAL != 0 && answer == FTW_STOP { FTW_STOP } else { answer };
                break;
            }
        }
        let errno = real::errno();
        fts_close(walk);
        real::set_errno(errno);
        result
    }
}

/// Where a walk begins: without slashes at the end, as libc's walks.
struct Start(*mut c_char);

impl Start {
    fn of(path: *const c_char) -> Start {
        // SAFETY: the program's terminated path, and a copy of it.
        unsafe {
            let copy = libc::strdup(path);
            if !copy.is_null() {
                let mut end = libc::strlen(copy);
                while end > 1 && *copy.add(end - 1) == b'/' as c_char {
                    end -= 1;
                }
                *copy.add(end) = 0;
            }
            Start(copy)
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        // SAFETY: from `strdup`, or null.
        unsafe { libc::free(self.0 as *mut c_void) };
    }
}

/// In the program's own field of an entry: a directory that is not the walk's.
const LEFT_OUT: i64 = 1;

/// A directory that the program may not list.
fn is_unreadable(entry: &Entry) -> bool {
    let (path, mode, flags) = (entry.access_path as usize, libc::R_OK as usize, libc::AT_EACCESS as usize);
    // SAFETY: fts's terminated path, as seen from the working directory.
    let allowed = unsafe { gate::call4(libc::SYS_faccessat2, libc::AT_FDCWD as usize, path, mode, flags) };
    allowed == -(libc::EACCES as isize)
}

/// The directories that a walk has met: libc's search tree of (device, inode).
struct Seen(*mut c_void);

type Compare = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

unsafe extern "C" fn compare(one: *const c_void, other: *const c_void) -> c_int {
    // SAFETY: keys that `insert` made.
    unsafe { (*(one as *const (u64, u64))).cmp(&*(other as *const (u64, u64))) as c_int }
}

impl Seen {
    /// False: it was met before.
    fn insert(&mut self, status: &libc::stat) -> bool {
        let search = crate::real!("tsearch": fn(*const c_void, *mut *mut c_void, Compare) -> *mut *mut c_void);
        // SAFETY: memory of a key's size; the tree keeps it if there was none like it.
        unsafe {
            let key = libc::malloc(size_of::<(u64, u64)>()) as *mut (u64, u64);
            if key.is_null() {
                return true;
            }
            *key = (status.st_dev, status.st_ino);
            let place = search(key as *const c_void, &mut self.0, compare);
            if !place.is_null() && *place == key as *mut c_void {
                return true;
            }
            libc::free(key as *mut c_void);
            place.is_null()
        }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let destroy = crate::real!("tdestroy": fn(*mut c_void, unsafe extern "C" fn(*mut c_void)) -> ());
        // SAFETY: a tree of keys from `malloc`.
        unsafe { destroy(self.0, libc::free) };
    }
}

unsafe fn fts_set_skip(walk: *mut c_void, entry: *mut Entry) {
    let set = crate::real!("fts_set": fn(*mut c_void, *mut Entry, c_int) -> c_int);
    // SAFETY: an entry of this walk.
    unsafe { set(walk, entry, FTS_SKIP) };
}

/// Offset of the last component in the walk's first path.
fn base_of(entry: &Entry) -> c_int {
    // SAFETY: fts's terminated path.
    let path = unsafe { core::ffi::CStr::from_ptr(entry.path) }.to_bytes();
    path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash as c_int + 1)
}

macro_rules! ftw_hooks {
    ($($ftw:ident $nftw:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $ftw(path: *const c_char, call: FtwCall, descriptors: c_int) -> c_int {
            if process::index().is_none() {
                let real = $crate::real_named!($ftw: fn(*const c_char, FtwCall, c_int) -> c_int);
                // SAFETY: the program's own arguments.
                return unsafe { real(path, call, descriptors) };
            }
            // SAFETY: the program's own arguments.
            unsafe { walk(path, Call::Ftw(call), 0) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $nftw(path: *const c_char, call: NftwCall, descriptors: c_int, flags: c_int) -> c_int {
            if process::index().is_none() {
                let real = $crate::real_named!($nftw: fn(*const c_char, NftwCall, c_int, c_int) -> c_int);
                // SAFETY: the program's own arguments.
                return unsafe { real(path, call, descriptors, flags) };
            }
            // SAFETY: the program's own arguments.
            unsafe { walk(path, Call::Nftw(call), flags) }
        }
    )*};
}

ftw_hooks! {
    ftw nftw;
    ftw64 nftw64;
}
