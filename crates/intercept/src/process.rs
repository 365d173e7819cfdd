//! What this process knows: the mapped index, its slot for guards, whether its working directory lies below the root.
//!
//! Initialised by whoever comes first (another library's constructor may call us before ours ran); two threads that race map
//! twice and one of them unmaps. What is this process's alone (its number, its slot, its random numbers) is on a page that
//! `fork` wipes, so that a child gets its own.

use crate::scratch::Scratch;
use crate::{gate, readable, real};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use terrace_index::guard::{Domain, Entered};
use terrace_index::{INDEX_BYTES, INDEX_ENV, Index, MAGIC};

static BASE: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
/// 1: there is no index to use in this process.
static NONE: AtomicU32 = AtomicU32::new(0);
/// A page wiped by fork.
static OWN: AtomicPtr<Own> = AtomicPtr::new(core::ptr::null_mut());
const OWN_BYTES: usize = 4096;
const RANDOMS: usize = 32;

/// What a child must not have of its parent; all zeroes is nothing known.
struct Own {
    pid: AtomicU32,
    /// Slot number plus 1.
    slot: AtomicU32,
    /// The number to be looked at next.
    turn: AtomicU32,
    /// Random numbers from the kernel, got several at a time; one that is taken leaves 0.
    randoms: [AtomicU64; RANDOMS],
}

const _: () = assert!(size_of::<Own>() <= OWN_BYTES);
static CWD: AtomicU32 = AtomicU32::new(CWD_UNKNOWN);

const CWD_UNKNOWN: u32 = 0;
const CWD_NEAR: u32 = 1;
const CWD_OUTSIDE: u32 = 2;
/// In a placed directory, where names are looked at while files are spilled.
const CWD_PLACED: u32 = 3;

/// The index of this run; `None` outside of one.
#[inline]
pub fn index() -> Option<Index> {
    let base = BASE.load(Acquire);
    if !base.is_null() {
        // SAFETY: mapped below, never unmapped once stored.
        return Some(unsafe { Index::from_mapping(base) });
    }
    if NONE.load(Relaxed) != 0 { None } else { initialise() }
}

/// The value of an environment variable, straight from `environ` (getenv may be hooked or not ready).
pub fn env(name: &[u8]) -> Option<&'static CStr> {
    // SAFETY: `environ` is a null-terminated array of C strings, or null before libc is ready.
    unsafe {
        let mut entry = real::environ;
        while !entry.is_null() && !(*entry).is_null() {
            if let Some(value) = value_of(*entry, name) {
                return Some(CStr::from_ptr(value));
            }
            entry = entry.add(1);
        }
        None
    }
}

/// The text behind `name=` if this entry is that variable.
///
/// # Safety
/// `entry` is a C string.
pub unsafe fn value_of(entry: *const c_char, name: &[u8]) -> Option<*const c_char> {
    // SAFETY: reads no further than the first difference, which is at the terminator at the latest.
    unsafe {
        for (i, byte) in name.iter().enumerate() {
            if *entry.add(i) as u8 != *byte {
                return None;
            }
        }
        (*entry.add(name.len()) as u8 == b'=').then(|| entry.add(name.len() + 1))
    }
}

#[cold]
fn initialise() -> Option<Index> {
    // SAFETY: environ is libc's.
    if unsafe { real::environ.is_null() } {
        return None; // too early: look again at the next call
    }
    let Some(path) = env(INDEX_ENV.as_bytes()) else {
        NONE.store(1, Relaxed);
        return None;
    };
    gate::raise();
    map(path)
}

/// Maps this index, whatever the environment says.
pub fn map(path: &CStr) -> Option<Index> {
    // SAFETY: system calls on our own descriptor and mapping.
    unsafe {
        let fd = gate::call4(
            libc::SYS_openat,
            libc::AT_FDCWD as usize,
            path.as_ptr() as usize,
            (libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW) as usize,
            0,
        );
        if fd < 0 {
            NONE.store(1, Relaxed);
            return None;
        }
        let mut status: libc::stat = core::mem::zeroed();
        gate::call2(libc::SYS_fstat, fd as usize, &raw mut status as usize);
        let base = if status.st_size as usize == INDEX_BYTES {
            gate::call6(
                libc::SYS_mmap,
                0,
                INDEX_BYTES,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize,
                fd as usize,
                0,
            )
        } else {
            -1
        };
        gate::call1(libc::SYS_close, fd as usize);
        if base < 0 && base > -4096 {
            NONE.store(1, Relaxed);
            return None;
        }
        let index = Index::from_mapping(base as *const u8);
        if index.header.magic.load(Acquire) != MAGIC {
            gate::call2(libc::SYS_munmap, base as usize, INDEX_BYTES);
            NONE.store(1, Relaxed);
            return None;
        }
        if BASE.compare_exchange(core::ptr::null_mut(), base as *mut u8, AcqRel, Acquire).is_err() {
            gate::call2(libc::SYS_munmap, base as usize, INDEX_BYTES);
        }
        Some(Index::from_mapping(BASE.load(Acquire)))
    }
}

pub fn pid() -> u32 {
    // SAFETY: getpid has no arguments.
    let ask = || unsafe { gate::call0(libc::SYS_getpid) as u32 };
    let Some(own) = own() else { return ask() };
    match own.pid.load(Relaxed) {
        0 => {
            let pid = ask();
            own.pid.store(pid, Relaxed);
            pid
        }
        known => known,
    }
}

/// 64 random bits of the kernel's; `None` if it has none to give.
pub fn random() -> Option<u64> {
    let own = own();
    if let Some(own) = own {
        let at = own.turn.fetch_add(1, Relaxed) as usize % RANDOMS;
        let taken = own.randoms[at].swap(0, AcqRel);
        if taken != 0 {
            return Some(taken);
        }
    }
    let mut fresh = [0u64; RANDOMS];
    let wanted = if own.is_some() { RANDOMS } else { 1 };
    // SAFETY: our buffer.
    let got = unsafe { gate::call3(libc::SYS_getrandom, fresh.as_mut_ptr() as usize, wanted * 8, 0) };
    if got != wanted as isize * 8 {
        return None;
    }
    for (number, fresh) in own.iter().flat_map(|own| &own.randoms).zip(&fresh).skip(1) {
        number.store(*fresh, Release);
    }
    Some(fresh[0])
}

fn is_dead(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { gate::call2(libc::SYS_kill, pid as usize, 0) == -(libc::ESRCH as isize) }
}

/// Enters a guard (see `terrace_index::guard`); a first call claims this process's slot.
pub fn enter(index: Index, domain: Domain) -> Entered {
    index.guard_enter(slot(index), domain)
}

fn own() -> Option<&'static Own> {
    let mut page = OWN.load(Acquire);
    if page.is_null() {
        // SAFETY: an anonymous page of our own, kept forever; the loser of a race unmaps its own.
        unsafe {
            let made = gate::call6(
                libc::SYS_mmap,
                0,
                OWN_BYTES,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
                usize::MAX,
                0,
            );
            if made < 0 && made > -4096 {
                return None;
            }
            gate::call3(libc::SYS_madvise, made as usize, OWN_BYTES, libc::MADV_WIPEONFORK as usize);
            if OWN.compare_exchange(core::ptr::null_mut(), made as *mut Own, AcqRel, Acquire).is_err() {
                gate::call2(libc::SYS_munmap, made as usize, OWN_BYTES);
            }
        }
        page = OWN.load(Acquire);
    }
    // SAFETY: the page stays mapped; zeroes are a valid `Own`.
    Some(unsafe { &*page })
}

/// This process's slot in the index, claimed if it has none.
pub fn slot(index: Index) -> u32 {
    let Some(own) = own() else { return 0 };
    match own.slot.load(Acquire) {
        0 => {
            let claimed = index.claim_process(pid(), is_dead);
            own.slot.store(claimed + 1, Release);
            claimed
        }
        known => known - 1,
    }
}

pub fn sleep_us(us: i64) {
    crate::caller::about_to_wait();
    let time = libc::timespec { tv_sec: 0, tv_nsec: us * 1000 };
    // SAFETY: a valid timespec.
    unsafe { gate::call2(libc::SYS_nanosleep, &raw const time as usize, 0) };
}

/// True unless the path certainly lies outside the root: what is true is looked at more closely, what is false is native.
#[inline]
pub fn may_be_below_root(index: Index, dirfd: i32, path: *const c_char) -> bool {
    if !readable::is_text(path) {
        return false; // the kernel says EFAULT
    }
    // SAFETY: `path` is the program's C string.
    unsafe {
        if *path as u8 == b'/' {
            return begins_with_root(index, path) || has_dots(path);
        }
        dirfd != libc::AT_FDCWD || cwd_is_near(index) || has_dots(path)
    }
}

/// The root, or another spelling of it, and then a slash or nothing.
pub unsafe fn begins_with_root(index: Index, path: *const c_char) -> bool {
    // SAFETY: stops at the first difference, which is at the terminator at the latest.
    let begins = |root: &[u8]| unsafe {
        for (i, byte) in root.iter().enumerate() {
            if *path.add(i) as u8 != *byte {
                return false;
            }
        }
        matches!(*path.add(root.len()) as u8, 0 | b'/')
    };
    let aliases = (index.header.alias_count.load(Relaxed) as usize).min(terrace_index::ALIASES);
    begins(index.header.root.get()) || index.header.aliases[..aliases].iter().any(|alias| begins(alias.get()))
}

/// `//`, or a component `.` or `..`: the text doesn't tell where the path leads.
pub unsafe fn has_dots(path: *const c_char) -> bool {
    // Eight bytes at a time: every call on a path outside the root comes here.
    let mut at = path;
    // SAFETY: bytes up to the terminator, and an aligned word lies on one page with its first byte.
    unsafe {
        if *at as u8 == b'.' {
            return has_dots_from(at, true);
        }
        while !(at as usize).is_multiple_of(8) {
            if *at == 0 {
                return false;
            }
            if *at as u8 == b'/' && matches!(*at.add(1) as u8, b'/' | b'.') {
                return has_dots_from(path, true);
            }
            at = at.add(1);
        }
        loop {
            let word = (at as *const u64).read();
            let slashes = bytes_that_are(word, b'/');
            // What follows the word's last byte is looked at by itself.
            let suspects = slashes << 8 & (bytes_that_are(word, b'.') | slashes);
            if bytes_that_are(word, 0) != 0 {
                return suspects != 0 && has_dots_from(path, true);
            }
            at = at.add(8);
            if suspects != 0 || slashes >> 63 != 0 && matches!(*at as u8, b'/' | b'.') {
                return has_dots_from(path, true);
            }
        }
    }
}

/// The highest bit of each byte that has this value.
fn bytes_that_are(word: u64, value: u8) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let difference = word ^ (value as u64 * 0x0101_0101_0101_0101);
    !(((difference & LOW) + LOW) | difference | LOW)
}

unsafe fn has_dots_from(path: *const c_char, after_slash: bool) -> bool {
    let (mut at, mut after_slash) = (path, after_slash);
    // SAFETY: each look is at most one byte behind one that was not the terminator.
    let byte = |at: *const c_char, offset: usize| unsafe { *at.add(offset) as u8 };
    let ends = |byte: u8| byte == 0 || byte == b'/';
    loop {
        match byte(at, 0) {
            0 => return false,
            b'.' if after_slash && (ends(byte(at, 1)) || byte(at, 1) == b'.' && ends(byte(at, 2))) => return true,
            b'/' if after_slash && at != path => return true,
            other => after_slash = other == b'/',
        }
        // SAFETY: not yet at the terminator.
        at = unsafe { at.add(1) };
    }
}

fn cwd_is_near(index: Index) -> bool {
    let known = CWD.load(Relaxed);
    if known != CWD_UNKNOWN {
        return known == CWD_NEAR || known == CWD_PLACED && crate::spill::any(index);
    }
    let mut buffer = Scratch::new();
    // SAFETY: the buffer is ours.
    let len = unsafe { gate::call2(libc::SYS_getcwd, buffer.as_mut_ptr() as usize, terrace_index::PATH_MAX) };
    let near = if len > 0 {
        let cwd = &buffer.bytes()[..len as usize - 1];
        let root = index.header.root.get();
        // Below the root, or above it (then a relative path may lead into it).
        let is_placed = crate::placed::any(index) && index.inside(cwd).is_some();
        match cwd.starts_with(root) || root.starts_with(cwd) {
            true => CWD_NEAR,
            false if is_placed => CWD_PLACED,
            false => CWD_OUTSIDE,
        }
    } else {
        CWD_NEAR
    };
    CWD.store(near, Relaxed);
    near == CWD_NEAR || near == CWD_PLACED && crate::spill::any(index)
}

static CWD_CHANGES: AtomicU32 = AtomicU32::new(0);

/// After chdir, fchdir, and what may have done so by itself.
pub fn forget_cwd() {
    CWD.store(CWD_UNKNOWN, Relaxed);
    CWD_CHANGES.fetch_add(1, Release);
}

/// This process has gone to where it is by us.
pub fn has_changed_directory() -> bool {
    CWD_CHANGES.load(Relaxed) != 0
}

pub fn cwd_changes() -> u32 {
    CWD_CHANGES.load(Acquire)
}

/// chdir(2) or fchdir(2).
pub fn change_directory(nr: i64, to: usize) -> isize {
    let way = (nr == libc::SYS_chdir).then(|| crate::placed::Way::of(libc::AT_FDCWD, to as *const c_char));
    let to = way.as_ref().map_or(to, |way| way.path() as usize);
    forget_cwd();
    // SAFETY: the program's own argument, or the same path spelt out.
    let result = unsafe { gate::call1(nr, to) };
    forget_cwd();
    result
}

macro_rules! cwd_hook {
    ($name:ident($($arg:ident: $ty:ty),*), $nr:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            real::outcome(change_directory($nr, $($arg as usize),*)) as i32
        }
    };
}
cwd_hook!(chdir(path: *const c_char), libc::SYS_chdir);
cwd_hook!(fchdir(fd: i32), libc::SYS_fchdir);

/// daemon(3) goes to `/` by itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(stays: i32, keeps: i32) -> i32 {
    let real = crate::real!("daemon": fn(i32, i32) -> i32);
    // SAFETY: the program's own arguments.
    let result = unsafe { real(stays, keeps) };
    forget_cwd();
    result
}
