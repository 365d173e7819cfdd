//! Directory listings: the root's own, in which our links are regular files and our private directory is not shown.

use crate::{elsewhere, entry, gate, link, open, placed, process, real, spill, stat};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*};
use terrace_index::{INSIDE_BASE, Index, PRIVATE_DIR, State, listing_time};

fn on_root(index: Index, fd: i32) -> Option<libc::stat> {
    // What was read of it changed its time of access, for which a server would be asked.
    stat::as_known(fd).filter(|status| status.st_dev == index.header.root_dev.load(Relaxed))
}

/// The directory stream that was last found to be on the root's file system: asking for each entry costs a call.
static ON_ROOT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The stream whose beginning was seen last, and the commits before that.
static BEGUN: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static BEGUN_AT: AtomicU64 = AtomicU64::new(0);

/// The stream whose place was looked at last, and what is added to the inode numbers in it (0: nothing).
static LOOKED_AT: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// Commits so far. Entries that were read with none since have the inodes of the files that they name.
fn commits(index: Index) -> Option<u64> {
    let seq = index.header.commits_seq.load(SeqCst);
    (index.header.committing.load(SeqCst) == 0).then_some(seq)
}

/// So long the last word that a listing is read lasts, until it is told again.
const LISTED_MS: u32 = 10;
/// A commit that is under way is waited for so often, for a millisecond each.
const COMMIT_WAITS: u32 = 500;

/// The commits up to one that did not end, and 1: it is waited for once.
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// Entries are about to be read. Where a commit moves a name to another place of the listing, it would be missed there, or read twice: so
/// none is under way, and none begins.
#[inline]
fn about_to_read(index: Index, is_on_root: impl FnOnce() -> bool) {
    if index.header.listed_at.load(Relaxed) != 0 && is_on_root() {
        keep_commits_away(index);
    }
}

#[cold]
fn keep_commits_away(index: Index) {
    let header = &index.header;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it fills what it is given, and asks no kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    let now = listing_time(time.tv_sec, time.tv_nsec);
    if now.wrapping_sub(header.listed_at.load(Relaxed)) >= LISTED_MS {
        header.listed_at.store(now, SeqCst);
    }
    let commits = header.commits_seq.load(SeqCst);
    if GIVEN_UP.load(Relaxed) == commits + 1 {
        return;
    }
    for _ in 0..COMMIT_WAITS {
        if header.committing.load(SeqCst) == 0 {
            return;
        }
        process::sleep_us(1000);
    }
    GIVEN_UP.store(commits + 1, Relaxed);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(dir: *mut c_void) -> c_int {
    let real = crate::real!("closedir": fn(*mut c_void) -> c_int);
    entry::expect_internal_calls();
    if ON_ROOT.load(Relaxed) == dir {
        ON_ROOT.store(core::ptr::null_mut(), Relaxed);
    }
    if LOOKED_AT.load(Relaxed) == dir {
        LOOKED_AT.store(core::ptr::null_mut(), Relaxed);
    }
    // SAFETY: the program's directory stream.
    unsafe { real(dir) }
}

/// Where the entries come from: a stream, or a descriptor.
trait Source {
    fn fd(&self) -> i32;
    /// The supervisor saw the call, and rewrote the regular files already: a number that is shown may be another file's own.
    fn is_rewritten(&self) -> bool;
    fn is_on_root(&self, index: Index) -> bool {
        on_root(index, self.fd()).is_some()
    }
    /// In a placed directory: what is added to inode numbers.
    fn inside(&self, index: Index) -> Option<u64>;
    /// Commits before the entries were read; none: not known, or one was under way.
    fn read_at(&self) -> Option<u64>;
}

struct Stream(*mut c_void);

impl Source for Stream {
    fn fd(&self) -> i32 {
        dirfd(self.0)
    }
    fn is_rewritten(&self) -> bool {
        gate::is_served()
    }
    fn is_on_root(&self, index: Index) -> bool {
        if ON_ROOT.load(Relaxed) == self.0 {
            return true;
        }
        let is = on_root(index, self.fd()).is_some();
        if is {
            ON_ROOT.store(self.0, Relaxed);
        }
        is
    }
    fn inside(&self, index: Index) -> Option<u64> {
        if LOOKED_AT.load(Acquire) == self.0 {
            return Some(INSIDE.load(Acquire)).filter(|&base| base != 0);
        }
        let base = placed::inode_base_of(index, self.fd());
        LOOKED_AT.store(core::ptr::null_mut(), Release);
        INSIDE.store(base.unwrap_or(0), Release);
        LOOKED_AT.store(self.0, Release);
        base
    }
    fn read_at(&self) -> Option<u64> {
        (BEGUN.load(Acquire) == self.0).then(|| BEGUN_AT.load(Acquire)).filter(|&seq| seq != u64::MAX)
    }
}

impl Stream {
    /// The stream as it gave this entry. It begins with the directory itself.
    unsafe fn at(index: Index, dir: *mut c_void, entry: *const libc::dirent64) -> Stream {
        // SAFETY: libc's entry, with a terminated name.
        if unsafe { (*entry).d_name[0] == b'.' as c_char && (*entry).d_name[1] == 0 } {
            BEGUN.store(core::ptr::null_mut(), Release);
            BEGUN_AT.store(commits(index).unwrap_or(u64::MAX), Release);
            BEGUN.store(dir, Release);
        }
        Stream(dir)
    }
}

/// A descriptor that was looked at before its entries are.
struct Descriptor {
    fd: i32,
    is_on_root: bool,
    is_rewritten: bool,
    read_at: Option<u64>,
    inside: Option<u64>,
}

impl Descriptor {
    fn new(index: Index, fd: i32, is_rewritten: bool, read_at: Option<u64>) -> Descriptor {
        let is_on_root = on_root(index, fd).is_some();
        let may_be_inside = !is_on_root && !is_rewritten && placed::any(index);
        let inside = if may_be_inside { placed::inode_base_of(index, fd) } else { None };
        Descriptor { fd, is_on_root, is_rewritten, read_at, inside }
    }
}

impl Source for Descriptor {
    fn fd(&self) -> i32 {
        self.fd
    }
    fn is_rewritten(&self) -> bool {
        self.is_rewritten
    }
    fn is_on_root(&self, _: Index) -> bool {
        self.is_on_root
    }
    fn inside(&self, _: Index) -> Option<u64> {
        self.inside
    }
    fn read_at(&self) -> Option<u64> {
        self.read_at
    }
}

enum Entry {
    Shown,
    Hidden,
}

/// Makes an entry look as programs know the file.
fn rewrite(index: Index, source: &impl Source, ino: &mut u64, kind: &mut u8, name: *const c_char) -> Entry {
    match *kind {
        libc::DT_LNK => {
            let has_others = elsewhere::is_possible(index);
            let has_links = has_others || index.records_end() > 0;
            if !has_links || !source.is_on_root(index) {
                return Entry::Shown;
            }
            if has_others && link::leads_elsewhere(index, source.fd(), name) {
                *kind = libc::DT_REG;
                return Entry::Shown;
            }
            let known = stat::known_link(index, *ino).filter(|_| is_as_read(index, source));
            if let Some(number) = known.or_else(|| link::read(index, source.fd(), name).map(|link| link.record)) {
                let is_directory = link::record(&index, number).state() == State::Directory;
                *kind = if is_directory { libc::DT_DIR } else { libc::DT_REG };
                *ino = link::record(&index, number).ino.load(Relaxed);
                return Entry::Shown;
            }
            // The program's own link, or one of ours that was committed since the kernel read the directory.
            look_again(source, ino, kind, name);
            // Renamed or removed by another node since: what it was can't be told any more.
            if *kind == libc::DT_LNK && has_others && !open::is_programs_link(index, source.fd(), name) {
                *kind = libc::DT_UNKNOWN;
            }
        }
        libc::DT_REG if index.header.durable_count.load(Relaxed) > 0 && !source.is_rewritten() => {
            let shown = stat::shown_ino(index, *ino, 1);
            if is_as_read(index, source) {
                if let Some(shown) = shown && source.is_on_root(index) {
                    *ino = shown;
                }
            } else if source.is_on_root(index) {
                look_again(source, ino, kind, name);
            }
        }
        libc::DT_DIR
            // SAFETY: the kernel's terminated name.
            if unsafe { CStr::from_ptr(name) }.to_bytes() == PRIVATE_DIR.as_bytes()
                && on_root(index, source.fd()).is_some_and(|dir| dir.st_ino == index.header.root_ino.load(Relaxed))
            => {
                return Entry::Hidden;
            }
        _ => {}
    }
    Entry::Shown
}

/// No name's inode was given to another file by us since the entries were read.
fn is_as_read(index: Index, source: &impl Source) -> bool {
    source.read_at().is_some_and(|seq| index.header.commits_seq.load(SeqCst) == seq)
}

/// What the name is now, if that is a regular file.
fn look_again(source: &impl Source, ino: &mut u64, kind: &mut u8, name: *const c_char) {
    // SAFETY: a zeroed stat is valid; the kernel's terminated name.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let looked = stat::stat_at(source.fd(), name, &mut status, libc::AT_SYMLINK_NOFOLLOW);
        if looked == 0 && status.st_mode & libc::S_IFMT == libc::S_IFREG {
            *kind = libc::DT_REG;
            *ino = status.st_ino;
        }
    }
}

fn dirfd(dir: *mut c_void) -> i32 {
    let dirfd = crate::real!("dirfd": fn(*mut c_void) -> c_int);
    // SAFETY: the program's directory stream.
    unsafe { dirfd(dir) }
}

/// A link in a placed directory: a spilled file, or the program's own link.
unsafe fn rewrite_spilled(index: Index, source: &impl Source, entry: *mut libc::dirent64) {
    // SAFETY: an entry that libc returned, with a terminated name; a zeroed stat is valid.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        let name = (*entry).d_name.as_ptr();
        if stat::stat_at(source.fd(), name, &mut status, libc::AT_SYMLINK_NOFOLLOW) != 0 {
            return;
        }
        (*entry).d_ino = status.st_ino;
        if spill::is_at(index, source.fd(), name) {
            (*entry).d_type = libc::DT_REG;
        }
    }
}

unsafe fn rewrite_dirent(index: Index, source: &impl Source, entry: *mut libc::dirent64) -> Entry {
    // SAFETY: an entry that libc returned; `dirent` and `dirent64` are the same here.
    unsafe {
        let mut ino = (*entry).d_ino;
        let mut kind = (*entry).d_type;
        // The supervisor may have made a regular file of it already, whose number is the root's.
        let may_be_spilled = kind == libc::DT_LNK || kind == libc::DT_REG && ino < INSIDE_BASE && source.is_rewritten();
        if may_be_spilled && spill::any(index) && source.inside(index).is_some() {
            rewrite_spilled(index, source, entry);
            return Entry::Shown;
        }
        let shown = rewrite(index, source, &mut ino, &mut kind, (*entry).d_name.as_ptr());
        if placed::any(index)
            && let Some(base) = source.inside(index)
            && ino < INSIDE_BASE
        {
            ino += base;
        }
        (*entry).d_ino = ino;
        (*entry).d_type = kind;
        shown
    }
}

macro_rules! readdir_hooks {
    ($($readdir:ident $readdir_r:ident $scandir:ident $scandirat:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $readdir(dir: *mut c_void) -> *mut libc::dirent64 {
            let real = $crate::real_named!($readdir: fn(*mut c_void) -> *mut libc::dirent64);
            process::index().map(|index| about_to_read(index, || Stream(dir).is_on_root(index)));
            loop {
                // SAFETY: the program's directory stream.
                let entry = unsafe { real(dir) };
                if entry.is_null() {
                    return entry;
                }
                match process::index() {
                    // SAFETY: libc's entry.
                    Some(index) => match unsafe { rewrite_dirent(index, &Stream::at(index, dir, entry), entry) } {
                        Entry::Shown => return entry,
                        Entry::Hidden => continue,
                    },
                    None => return entry,
                }
            }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $readdir_r(
            dir: *mut c_void,
            entry: *mut libc::dirent64,
            result: *mut *mut libc::dirent64,
        ) -> c_int {
            let real = $crate::real_named!(
                $readdir_r: fn(*mut c_void, *mut libc::dirent64, *mut *mut libc::dirent64) -> c_int);
            process::index().map(|index| about_to_read(index, || Stream(dir).is_on_root(index)));
            loop {
                // SAFETY: the program's own arguments.
                let status = unsafe { real(dir, entry, result) };
                // SAFETY: readdir_r stored the result.
                if status != 0 || unsafe { (*result).is_null() } {
                    return status;
                }
                let Some(index) = process::index() else { return status };
                // SAFETY: libc's entry.
                if let Entry::Shown = unsafe { rewrite_dirent(index, &Stream::at(index, dir, entry), entry) } {
                    return status;
                }
            }
        }

        /// The C library's scan without filter and order, then both over what the program may see.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $scandirat(
            at: c_int,
            path: *const c_char,
            list: *mut *mut *mut libc::dirent64,
            filter: Option<Filter>,
            compare: Option<Compare>,
        ) -> c_int {
            let real = $crate::real_named!($scandirat: fn(
                c_int, *const c_char, *mut *mut *mut libc::dirent64, Option<Filter>, Option<Compare>) -> c_int);
            let Some(index) = process::index() else {
                // SAFETY: the program's own arguments.
                return unsafe { real(at, path, list, filter, compare) };
            };
            about_to_read(index, || true);
            let read_at = commits(index);
            // SAFETY: the program's own arguments.
            let count = unsafe { real(at, path, list, None, None) };
            if count < 0 {
                return count;
            }
            // SAFETY: the C library gave us `count` entries.
            unsafe { choose(index, read_at, at, path, *list, count, filter, compare) }
        }

        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $scandir(
            path: *const c_char,
            list: *mut *mut *mut libc::dirent64,
            filter: Option<Filter>,
            compare: Option<Compare>,
        ) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe { $scandirat(libc::AT_FDCWD, path, list, filter, compare) }
        }
    )*};
}

type Filter = unsafe extern "C" fn(*const libc::dirent64) -> c_int;
type Compare = unsafe extern "C" fn(*const *const libc::dirent64, *const *const libc::dirent64) -> c_int;

readdir_hooks! {
    readdir readdir_r scandir scandirat;
    readdir64 readdir64_r scandir64 scandirat64;
}

unsafe extern "C" {
    fn free(pointer: *mut c_void);
    fn qsort(base: *mut c_void, count: usize, size: usize, compare: Compare);
}

#[allow(clippy::too_many_arguments)] // those of scandirat(3), and two
unsafe fn choose(
    index: Index,
    read_at: Option<u64>,
    at: i32,
    path: *const c_char,
    list: *mut *mut libc::dirent64,
    count: c_int,
    filter: Option<Filter>,
    compare: Option<Compare>,
) -> c_int {
    // SAFETY: `list` has `count` entries of malloc's; a directory that was just scanned.
    unsafe {
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let fd = gate::call4(libc::SYS_openat, at as usize, path as usize, flags as usize, 0) as i32;
        let source = Descriptor::new(index, fd, gate::is_served(), read_at);
        let mut kept = 0;
        for i in 0..count as usize {
            let entry = *list.add(i);
            let hidden = fd >= 0 && matches!(rewrite_dirent(index, &source, entry), Entry::Hidden);
            if hidden || filter.is_some_and(|filter| filter(entry) == 0) {
                free(entry as *mut c_void);
            } else {
                *list.add(kept) = entry;
                kept += 1;
            }
        }
        if fd >= 0 {
            gate::call1(libc::SYS_close, fd as usize);
        }
        if let Some(compare) = compare {
            qsort(list as *mut c_void, kept, size_of::<*mut c_void>(), compare);
        }
        kept as c_int
    }
}

/// getdents64(2) as the kernel returns it, with our entries rewritten and the hidden one taken out.
pub fn getdents(fd: i32, buffer: *mut c_void, size: usize) -> isize {
    loop {
        // SAFETY: the program's own arguments.
        let get = || unsafe { gate::call3(libc::SYS_getdents64, fd as usize, buffer as usize, size) };
        let Some(index) = process::index() else { return get() };
        about_to_read(index, || on_root(index, fd).is_some());
        let read_at = commits(index);
        let len = get();
        if len <= 0 {
            return len;
        }
        let source = Descriptor::new(index, fd, false, read_at);
        let mut at = 0;
        let mut kept = len as usize;
        while at < kept {
            // SAFETY: the kernel filled `len` bytes with whole records.
            unsafe {
                let entry = (buffer as *mut u8).add(at) as *mut libc::dirent64;
                let step = (*entry).d_reclen as usize;
                match rewrite_dirent(index, &source, entry) {
                    Entry::Shown => at += step,
                    Entry::Hidden => {
                        let next = (buffer as *mut u8).add(at + step);
                        core::ptr::copy(next, entry as *mut u8, kept - at - step);
                        kept -= step;
                    }
                }
            }
        }
        // An end of directory must not be made up: read on if only the hidden entry came.
        if kept > 0 {
            return kept as isize;
        }
    }
}

/// getdents(2): the same records, of the same sizes, with the name one byte earlier and the kind in the last byte.
pub fn getdents_old(fd: i32, buffer: *mut c_void, size: usize) -> isize {
    const KIND_AT: usize = core::mem::offset_of!(libc::dirent64, d_type);
    let len = getdents(fd, buffer, size);
    let mut at = 0;
    while (at as isize) < len {
        // SAFETY: `getdents` left `len` bytes of whole records, each with a terminated name and at least one byte after it
        // or the kind's own byte before it.
        unsafe {
            let entry = (buffer as *mut u8).add(at);
            let step = (*(entry as *mut libc::dirent64)).d_reclen as usize;
            let kind = *entry.add(KIND_AT);
            core::ptr::copy(entry.add(KIND_AT + 1), entry.add(KIND_AT), step - KIND_AT - 1);
            *entry.add(step - 1) = kind;
            at += step;
        }
    }
    len
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getdents64(fd: c_int, buffer: *mut c_void, size: usize) -> isize {
    real::outcome(getdents(fd, buffer, size))
}
