//! The thread that waits for us: its memory, its directories, its rights.
//!
//! Whatever is read of it is its own only if the notification is still valid afterwards; the caller looks.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

pub const PATH_MAX: usize = 4096;
const PAGE: usize = 4096;

#[derive(Clone, Copy)]
pub struct Target {
    /// Thread id; `/proc/TID` works for any thread.
    pub thread: u32,
}

fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

impl Target {
    pub fn read_word(&self, address: u64) -> Result<u64, i32> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).map(|()| u64::from_ne_bytes(bytes))
    }

    /// As many bytes as can be read, at least one.
    fn read_some(&self, address: u64, into: &mut [u8]) -> Result<usize, i32> {
        let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
        // SAFETY: one vector of ours that lives through the call, one of the target's that the kernel checks.
        match unsafe { libc::process_vm_readv(self.thread as i32, &local, 1, &remote, 1, 0) } {
            count if count > 0 => Ok(count as usize),
            _ => Err(last_errno()),
        }
    }

    pub fn read(&self, address: u64, into: &mut [u8]) -> Result<(), i32> {
        match self.read_some(address, into)? {
            count if count == into.len() => Ok(()),
            _ => Err(libc::EFAULT),
        }
    }

    /// A C string of at most `PATH_MAX` bytes with its terminator.
    pub fn read_text(&self, address: u64) -> Result<CString, i32> {
        let mut text = Vec::with_capacity(256);
        let mut chunk = [0u8; 256];
        while text.len() < PATH_MAX {
            let at = address.wrapping_add(text.len() as u64);
            // Not beyond a page in one read: the next one need not be there.
            let size = chunk.len().min(PAGE - at as usize % PAGE);
            let count = self.read_some(at, &mut chunk[..size])?;
            if let Some(end) = chunk[..count].iter().position(|&byte| byte == 0) {
                text.extend_from_slice(&chunk[..end]);
                return Ok(CString::new(text).expect("cut at the first zero"));
            }
            text.extend_from_slice(&chunk[..count]);
        }
        Err(libc::ENAMETOOLONG)
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), i32> {
        let local = libc::iovec { iov_base: bytes.as_ptr() as *mut libc::c_void, iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: as in `read_some`.
        match unsafe { libc::process_vm_writev(self.thread as i32, &local, 1, &remote, 1, 0) } {
            count if count == bytes.len() as isize => Ok(()),
            count if count >= 0 => Err(libc::EFAULT),
            _ => Err(last_errno()),
        }
    }

    /// The text by which we reach what the thread's descriptor (or AT_FDCWD) is.
    pub fn text_of(&self, dirfd: i32) -> String {
        match dirfd {
            libc::AT_FDCWD => format!("/proc/{}/cwd", self.thread),
            fd => format!("/proc/{}/fd/{fd}", self.thread),
        }
    }

    /// A handle of ours of the thread's directory.
    pub fn directory(&self, dirfd: i32) -> Result<OwnedFd, i32> {
        if dirfd < 0 && dirfd != libc::AT_FDCWD {
            return Err(libc::EBADF);
        }
        let text = CString::new(self.text_of(dirfd)).expect("digits and letters");
        let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_DIRECTORY;
        // SAFETY: a C string; the descriptor is new and ours.
        unsafe {
            match libc::open(text.as_ptr(), flags) {
                fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
                _ => Err(if last_errno() == libc::ENOENT { libc::EBADF } else { last_errno() }),
            }
        }
    }

    /// A handle of the thread, by which its descriptors can be had.
    fn handle(&self) -> Result<OwnedFd, i32> {
        /// Since Linux 6.9; a thread that is not the first of its process needs it.
        const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
        // SAFETY: system calls by value; the descriptor is new and ours.
        unsafe {
            let mut handle = libc::syscall(libc::SYS_pidfd_open, self.thread, PIDFD_THREAD);
            if handle < 0 {
                handle = libc::syscall(libc::SYS_pidfd_open, self.process()?, 0);
            }
            if handle < 0 { Err(last_errno()) } else { Ok(OwnedFd::from_raw_fd(handle as i32)) }
        }
    }

    fn process(&self) -> Result<u32, i32> {
        Ok(self.status()?.process)
    }

    pub fn status(&self) -> Result<Status, i32> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.thread))
            .map_err(|error| error.raw_os_error().unwrap_or(libc::ESRCH))?;
        Status::parse(&text).ok_or(libc::EPROTO)
    }

    /// True if the thread sees the same tree as we do, from the same top.
    pub fn shares_our_view(&self) -> bool {
        static OURS: OnceLock<[Option<PathBuf>; 3]> = OnceLock::new();
        let view = |who: &str| {
            ["ns/mnt", "ns/user", "root"].map(|name| std::fs::read_link(format!("/proc/{who}/{name}")).ok())
        };
        let theirs = view(&self.thread.to_string());
        theirs.iter().all(Option::is_some) && theirs == *OURS.get_or_init(|| view("self"))
    }

    /// Its path, whatever its root directory is, as a text from ours; of another mount namespace, what is told of it.
    pub fn as_seen_from_here(&self, dirfd: i32, path: &CStr) -> Option<CString> {
        let from = match path.to_bytes().first()? {
            b'/' => format!("/proc/{}/root", self.thread),
            _ => self.text_of(dirfd),
        };
        let mut whole = std::fs::read_link(from).ok()?.into_os_string().into_vec();
        if whole == b"/" {
            whole.clear();
        }
        whole.push(b'/');
        let path = path.to_bytes();
        whole.extend_from_slice(path.strip_prefix(b"/").unwrap_or(path));
        CString::new(whole).ok()
    }

    /// How many descriptors it may have.
    fn descriptors_max(&self) -> Option<u64> {
        // SAFETY: a zeroed limit is valid, and live.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            let asked = libc::prlimit(self.thread as i32, libc::RLIMIT_NOFILE, std::ptr::null(), &mut limit);
            if asked == 0 {
                return Some(limit.rlim_cur);
            }
        }
        // Asked with the rights of another user, who may only read it.
        let text = std::fs::read_to_string(format!("/proc/{}/limits", self.thread)).ok()?;
        let soft = text.lines().find_map(|line| line.strip_prefix("Max open files"))?.split_whitespace().next()?;
        if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
    }

    fn descriptors_below(&self, limit: u64) -> Option<u64> {
        let entries = std::fs::read_dir(format!("/proc/{}/fd", self.thread)).ok()?;
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        Some(numbers.filter(|&number| number < limit).count() as u64)
    }

    /// The name of its program, for a message.
    pub fn program(&self) -> String {
        let name = std::fs::read(format!("/proc/{}/comm", self.thread)).unwrap_or_default();
        String::from_utf8_lossy(&name).trim_end().to_owned()
    }

    /// `/proc/self/…` and `/dev/fd/…`, however they are spelt, are the thread's own, not ours.
    pub fn translate(&self, path: CString) -> CString {
        let bytes = path.to_bytes();
        let below = match first_two(bytes) {
            Some((b"proc", b"self" | b"thread-self", _)) => "",
            Some((b"dev", b"fd", _)) => "fd/",
            _ => return path,
        };
        let (_, _, rest) = first_two(bytes).expect("it has two");
        let mut text = format!("/proc/{}/{below}", self.thread).into_bytes();
        text.extend_from_slice(rest);
        CString::new(text).expect("no zero in either part")
    }
}

/// Handles of the threads that called last: a program calls many times.
#[derive(Default)]
pub struct Handles(Vec<(u32, OwnedFd)>);

impl Handles {
    const KEPT: usize = 16;

    /// The thread's own open file, shared with us (its offset too).
    pub fn descriptor(&mut self, target: Target, fd: i32) -> Result<OwnedFd, i32> {
        match self.look(target, fd) {
            Err(libc::EMFILE | libc::ENFILE) if !self.0.is_empty() => {
                self.0.clear();
                self.look(target, fd)
            }
            found => found,
        }
    }

    /// The thread can be given one more descriptor: its highest number is free, as it nearly always is, or another one.
    pub fn has_room(&mut self, target: Target) -> bool {
        let Some(limit) = target.descriptors_max() else { return true };
        let Some(highest) = limit.checked_sub(1) else { return false };
        match self.descriptor(target, highest.min(i32::MAX as u64) as i32) {
            Ok(_) => target.descriptors_below(limit).is_none_or(|count| count < limit),
            Err(_) => true,
        }
    }

    fn look(&mut self, target: Target, fd: i32) -> Result<OwnedFd, i32> {
        if let Some(at) = self.0.iter().position(|(thread, _)| *thread == target.thread) {
            match descriptor_of(&self.0[at].1, fd) {
                // The handle is of an earlier thread with this number.
                Err(libc::ESRCH) => drop(self.0.swap_remove(at)),
                found => return found,
            }
        }
        if self.0.len() == Self::KEPT {
            self.0.remove(0);
        }
        let handle = target.handle()?;
        let found = descriptor_of(&handle, fd);
        self.0.push((target.thread, handle));
        found
    }
}

fn descriptor_of(handle: &OwnedFd, fd: i32) -> Result<OwnedFd, i32> {
    // SAFETY: by value; the descriptor is new and ours.
    unsafe {
        match libc::syscall(libc::SYS_pidfd_getfd, handle.as_raw_fd(), fd, 0) {
            found if found >= 0 => Ok(OwnedFd::from_raw_fd(found as i32)),
            _ => Err(last_errno()),
        }
    }
}

/// The first two names of an absolute path and, if a slash follows them, what comes behind it.
fn first_two(path: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (first, rest) = next_name(path)?;
    let (second, rest) = next_name(rest)?;
    Some((first, second, rest.strip_prefix(b"/")?))
}

/// The name behind the slashes (and the dots that mean nothing) that the text begins with, and what follows it.
fn next_name(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = text.strip_prefix(b"/")?;
    loop {
        let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        match &rest[..end] {
            b"" | b"." if end < rest.len() => rest = &rest[end + 1..],
            b"" => return None,
            name => return Some((name, &rest[end..])),
        }
    }
}

/// A name in it means who reads it: behind `proc`, `self` or `thread-self`.
pub fn is_of_its_reader(path: &CStr) -> bool {
    let mut names = path.to_bytes().split(|&byte| byte == b'/');
    names.any(|name| name == b"proc") && names.any(|name| matches!(name, b"self" | b"thread-self"))
}

/// As `is_of_its_reader`, of a path from a directory, which is given by a text of ours.
pub fn names_its_reader(path: &CStr, from: &str) -> bool {
    let has_name = path.to_bytes().split(|&byte| byte == b'/').any(|name| matches!(name, b"self" | b"thread-self"));
    has_name && {
        let from = CString::new(from).expect("digits and letters");
        // SAFETY: a zeroed statfs is valid; a C string.
        unsafe {
            let mut status: libc::statfs = std::mem::zeroed();
            libc::statfs(from.as_ptr(), &mut status) == 0 && status.f_type == libc::PROC_SUPER_MAGIC
        }
    }
}

/// True for names in file systems that show each process something else, or devices.
pub fn is_of_the_system(path: &CStr) -> bool {
    let bytes = path.to_bytes();
    bytes.starts_with(b"/proc/")
        || bytes.starts_with(b"/sys/")
        || bytes.starts_with(b"/dev/") && !bytes.starts_with(b"/dev/shm/")
}

/// What `/proc/TID/status` says of a thread's rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    pub process: u32,
    pub umask: u32,
    pub rights: Rights,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Those that count for files.
    pub user: u32,
    pub group: u32,
    pub groups: Vec<u32>,
    pub capabilities: u64,
}

impl Status {
    fn parse(text: &str) -> Option<Status> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let last_of_four = |name: &str| field(name)?.split_whitespace().nth(3)?.parse().ok();
        let mut groups: Vec<u32> = field("Groups")?.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        groups.sort_unstable();
        Some(Status {
            process: field("Tgid")?.trim().parse().ok()?,
            umask: u32::from_str_radix(field("Umask")?.trim(), 8).ok()?,
            rights: Rights {
                user: last_of_four("Uid")?,
                group: last_of_four("Gid")?,
                groups,
                capabilities: u64::from_str_radix(field("CapEff")?.trim(), 16).ok()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Target {
        // SAFETY: no arguments.
        Target { thread: unsafe { libc::syscall(libc::SYS_gettid) } as u32 }
    }

    #[test]
    fn a_text_is_read_up_to_the_end_of_its_page_and_over_it() {
        // SAFETY: two pages of our own; the second is taken away again.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), 2 * PAGE, protection, flags, -1, 0) as *mut u8;
            std::ptr::copy_nonoverlapping(c"/a/long/name".as_ptr().cast(), base.add(PAGE - 5), 13);
            base
        };
        let address = base as u64 + PAGE as u64 - 5;
        assert_eq!(own().read_text(address).unwrap().to_bytes(), b"/a/long/name");
        // SAFETY: the second page is ours.
        unsafe { libc::munmap(base.add(PAGE).cast(), PAGE) };
        assert_eq!(own().read_text(address), Err(libc::EFAULT));
        assert_eq!(own().read_text(16), Err(libc::EFAULT));
        let long = CString::new(vec![b'x'; 5000]).unwrap();
        assert_eq!(own().read_text(long.as_ptr() as u64), Err(libc::ENAMETOOLONG));
    }

    #[test]
    fn a_thread_s_rights_are_read() {
        let status = own().status().unwrap();
        assert_eq!(status.process, std::process::id());
        // SAFETY: no arguments.
        assert_eq!(status.rights.user, unsafe { libc::geteuid() });
        assert!(own().shares_our_view());
    }

    #[test]
    fn its_own_names_are_translated() {
        let target = Target { thread: 7 };
        let translated = |path: &CStr| target.translate(path.to_owned()).into_string().unwrap();
        assert_eq!(translated(c"/proc/self/fd/3"), "/proc/7/fd/3");
        assert_eq!(translated(c"/dev/fd/3"), "/proc/7/fd/3");
        assert_eq!(translated(c"/proc/selfish"), "/proc/selfish");
        assert_eq!(translated(c"/proc/self"), "/proc/self");
        assert_eq!(translated(c"//proc/.//self/./exe"), "/proc/7/./exe");
        assert_eq!(translated(c"/dev//fd/3"), "/proc/7/fd/3");
        assert_eq!(translated(c"relative/proc/self/exe"), "relative/proc/self/exe");
    }

    #[test]
    fn what_a_path_leaves_to_its_reader_is_seen() {
        for path in [c"/proc/1/../self/exe", c"/x/../proc/self/exe", c"/proc/7/root/proc/thread-self/x", c"/proc/self"]
        {
            assert!(is_of_its_reader(path), "{path:?}");
        }
        for path in [c"/proc/7/exe", c"/root/self/x", c"self/proc/x", c"/self"] {
            assert!(!is_of_its_reader(path), "{path:?}");
        }
    }

    #[test]
    fn room_for_a_descriptor_is_seen() {
        let mut handles = Handles::default();
        assert!(handles.has_room(own()));
        assert_eq!(own().descriptors_below(3), Some(3));
    }
}
