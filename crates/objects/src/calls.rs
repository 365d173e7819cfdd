//! Calls that take paths, and looks at files, straight to the kernel.
//!
//! Under the supervisor's filter such calls are trapped: answered by another process, ten times slower, and as programs are to see files,
//! with links hidden. We want to see links. So there they are made from the gate, the page whose calls the filter lets through; it
//! is the preload library's where that is in the process, else made here.

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, Stat};
use rustix::io::{Errno, Result};
use rustix::path::Arg;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU8, Ordering::*};

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const THERE: u8 = 2;
static GATE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// A process comes under the filter before it begins, and keeps the page over forks.
fn has_gate() -> bool {
    match GATE.load(Acquire) {
        UNKNOWN => {
            let found = if gate::is_served() && gate::raise() { THERE } else { NONE };
            GATE.store(found, Release);
            found == THERE
        }
        found => found == THERE,
    }
}

/// # Safety
/// That of the system call; there is a gate.
unsafe fn call(number: i64, arguments: [usize; 5]) -> Result<usize> {
    // SAFETY: as the caller promises.
    let result = unsafe { gate::enter(number, arguments) };
    if result < 0 { Err(Errno::from_raw_os_error(-result as i32)) } else { Ok(result as usize) }
}

const HERE: usize = libc::AT_FDCWD as isize as usize;

pub fn open(path: impl Arg, flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    if !has_gate() {
        return rustix::fs::open(path, flags, mode);
    }
    path.into_with_c_str(|path| {
        let arguments = [HERE, path.as_ptr() as usize, flags.bits() as usize, mode.bits() as usize, 0];
        // SAFETY: a path with its end; the descriptor is new.
        unsafe { call(libc::SYS_openat, arguments).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
    })
}

fn look(directory: usize, path: &CStr, flags: i32) -> Result<Stat> {
    let mut found = std::mem::MaybeUninit::<Stat>::uninit();
    let arguments = [directory, path.as_ptr() as usize, found.as_mut_ptr() as usize, flags as usize, 0];
    // SAFETY: a path with its end; the kernel fills the structure, which has its own layout, when it says that all is well.
    unsafe { call(libc::SYS_newfstatat, arguments).map(|_| found.assume_init()) }
}

pub fn stat(path: impl Arg) -> Result<Stat> {
    if !has_gate() {
        return rustix::fs::stat(path);
    }
    path.into_with_c_str(|path| look(HERE, path, 0))
}

/// As `stat`, of what this node knows of the last component: no server is asked again because its times may have changed.
pub fn stat_known(path: impl Arg) -> Result<Stat> {
    path.into_with_c_str(|path| match has_gate() {
        true => look(HERE, path, libc::AT_STATX_DONT_SYNC),
        false => rustix::fs::statat(rustix::fs::CWD, path, AtFlags::from_bits_retain(libc::AT_STATX_DONT_SYNC as u32)),
    })
}

pub fn lstat(path: impl Arg) -> Result<Stat> {
    if !has_gate() {
        return rustix::fs::lstat(path);
    }
    path.into_with_c_str(|path| look(HERE, path, libc::AT_SYMLINK_NOFOLLOW))
}

pub fn fstat(fd: impl AsFd) -> Result<Stat> {
    if !has_gate() {
        return rustix::fs::fstat(fd);
    }
    look(fd.as_fd().as_raw_fd() as usize, c"", libc::AT_EMPTY_PATH)
}

pub fn readlink(path: impl Arg) -> Result<CString> {
    if !has_gate() {
        return rustix::fs::readlink(path, Vec::with_capacity(512));
    }
    path.into_with_c_str(|path| {
        let mut text = vec![0u8; 512];
        loop {
            let arguments = [HERE, path.as_ptr() as usize, text.as_mut_ptr() as usize, text.len(), 0];
            // SAFETY: a path with its end, and as much room as is said.
            let count = unsafe { call(libc::SYS_readlinkat, arguments)? };
            if count < text.len() {
                text.truncate(count);
                return CString::new(text).map_err(|_| Errno::IO);
            }
            text.resize(text.len() * 2, 0);
        }
    })
}

/// One call with two paths.
fn two(number: i64, from: impl Arg, to: impl Arg, arguments: impl Fn(usize, usize) -> [usize; 5]) -> Result<()> {
    from.into_with_c_str(|from| {
        to.into_with_c_str(|to| {
            // SAFETY: both paths have their ends.
            unsafe { call(number, arguments(from.as_ptr() as usize, to.as_ptr() as usize)).map(|_| ()) }
        })
    })
}

pub fn symlink(target: impl Arg, link: impl Arg) -> Result<()> {
    if !has_gate() {
        return rustix::fs::symlink(target, link);
    }
    two(libc::SYS_symlinkat, target, link, |target, link| [target, HERE, link, 0, 0])
}

pub fn link(old: impl Arg, new: impl Arg) -> Result<()> {
    if !has_gate() {
        return rustix::fs::link(old, new);
    }
    two(libc::SYS_linkat, old, new, |old, new| [HERE, old, HERE, new, 0])
}

pub fn rename(from: impl Arg, to: impl Arg) -> Result<()> {
    rename_with(from, to, RenameFlags::empty())
}

pub fn rename_with(from: impl Arg, to: impl Arg, flags: RenameFlags) -> Result<()> {
    if !has_gate() {
        return rustix::fs::renameat_with(rustix::fs::CWD, from, rustix::fs::CWD, to, flags);
    }
    two(libc::SYS_renameat2, from, to, |from, to| [HERE, from, HERE, to, flags.bits() as usize])
}

fn remove(path: impl Arg, flags: i32) -> Result<()> {
    path.into_with_c_str(|path| {
        // SAFETY: a path with its end.
        unsafe { call(libc::SYS_unlinkat, [HERE, path.as_ptr() as usize, flags as usize, 0, 0]).map(|_| ()) }
    })
}

pub fn unlink(path: impl Arg) -> Result<()> {
    if has_gate() { remove(path, 0) } else { rustix::fs::unlink(path) }
}

pub fn rmdir(path: impl Arg) -> Result<()> {
    if has_gate() { remove(path, libc::AT_REMOVEDIR) } else { rustix::fs::rmdir(path) }
}

#[cfg(target_arch = "x86_64")]
mod gate {
    use std::arch::asm;
    use terrace_index::{GATE, SERVED_ANSWER, SERVED_QUESTION};

    const PAGE: usize = 4096;
    /// `syscall; ret`
    const CODE: [u8; 3] = [0x0f, 0x05, 0xc3];

    /// The filter of this process is our supervisor's. Asked without the C library, which a program may have wrapped.
    pub fn is_served() -> bool {
        let answer: isize;
        // SAFETY: prctl with an option that a kernel does not know, and refuses.
        unsafe {
            asm!("syscall", inlateout("rax") libc::SYS_prctl as isize => answer, in("rdi") SERVED_QUESTION as usize, in("rsi") 0,
                in("rdx") 0, in("r10") 0, in("r8") 0, out("rcx") _, out("r11") _, options(nostack));
        }
        answer == -(SERVED_ANSWER as isize)
    }

    /// Finds the page, or makes it. False: something else lies there.
    pub fn raise() -> bool {
        // SAFETY: a new page of our own, filled before it is used; else a look at a page that may not be there, by the kernel.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let page = libc::mmap(GATE as *mut _, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            if page as usize == GATE {
                std::ptr::copy_nonoverlapping(CODE.as_ptr(), page.cast(), CODE.len());
                return libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC) == 0;
            }
            if page != libc::MAP_FAILED {
                libc::munmap(page, PAGE);
                return false;
            }
            let mut found = [0u8; 3];
            let to = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: found.len() };
            let from = libc::iovec { iov_base: GATE as *mut _, iov_len: found.len() };
            libc::process_vm_readv(libc::getpid(), &to, 1, &from, 1, 0) == found.len() as isize && found == CODE
        }
    }

    /// # Safety
    /// That of the system call; the page is there.
    pub unsafe fn enter(number: i64, [a, b, c, d, e]: [usize; 5]) -> isize {
        let result: isize;
        // SAFETY: the page has `syscall; ret`; the kernel keeps all registers but these.
        unsafe {
            asm!("call {gate}", gate = in(reg) GATE, inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b,
                in("rdx") c, in("r10") d, in("r8") e, out("rcx") _, out("r11") _);
        }
        result
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod gate {
    pub fn is_served() -> bool {
        false
    }
    pub fn raise() -> bool {
        false
    }
    /// # Safety
    /// There is no gate, so this is not called.
    pub unsafe fn enter(_number: i64, _arguments: [usize; 5]) -> isize {
        -(libc::ENOSYS as isize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a process that has no filter: without a gate, and then by one that we make.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_by_the_gate_say_what_the_kernel_says() {
        assert!(!has_gate());
        what_the_kernel_says();
        assert!(gate::raise() && gate::raise(), "made, and then found");
        GATE.store(THERE, Release);
        what_the_kernel_says();
        GATE.store(NONE, Release);
    }

    fn what_the_kernel_says() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let file = open(path("file"), OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, Mode::RUSR | Mode::WUSR).unwrap();
        assert_eq!(open(path("file"), OFlags::CREATE | OFlags::EXCL, Mode::RUSR).unwrap_err(), Errno::EXIST);
        rustix::fs::ftruncate(&file, 777).unwrap();
        assert_eq!(fstat(&file).unwrap().st_size, 777);
        assert_eq!(stat(path("file")).unwrap().st_ino, rustix::fs::fstat(&file).unwrap().st_ino);
        let long = "x".repeat(3000);
        symlink(long.as_str(), path("link")).unwrap();
        assert_eq!(readlink(path("link")).unwrap().as_bytes(), long.as_bytes());
        assert_eq!(lstat(path("link")).unwrap().st_size, 3000);
        link(path("file"), path("second")).unwrap();
        rename(path("second"), path("third")).unwrap();
        assert_eq!(rename_with(path("third"), path("file"), RenameFlags::NOREPLACE), Err(Errno::EXIST));
        assert_eq!(fstat(&file).unwrap().st_nlink, 2);
        std::fs::create_dir(path("directory")).unwrap();
        rmdir(path("directory")).unwrap();
        unlink(path("third")).unwrap();
        assert_eq!(unlink(path("third")), Err(Errno::NOENT));
    }
}
