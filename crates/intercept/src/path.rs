//! Paths in buffers of ours: a descriptor's canonical path, a path's directory and last component, what lies below the root.

use crate::scratch::Scratch;
use crate::{gate, readable, stat};
use core::ffi::c_char;
use terrace_index::{Index, PATH_MAX};

/// A canonical path in a buffer.
pub struct Path {
    bytes: Scratch,
    len: usize,
}

impl Path {
    pub fn new() -> Path {
        let mut path = Path { bytes: Scratch::new(), len: 0 };
        path.clear();
        path
    }
    pub fn get(&self) -> &[u8] {
        &self.bytes.bytes()[..self.len]
    }
    /// With a terminator; the length always leaves room for it.
    pub fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr() as *const c_char
    }
    /// False if it does not fit.
    pub fn push(&mut self, part: &[u8]) -> bool {
        if self.len + part.len() >= PATH_MAX {
            return false;
        }
        let bytes = self.bytes.bytes_mut();
        bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
        bytes[self.len] = 0;
        true
    }
    /// Leaves the directory that the last component is in.
    pub fn cut_to_directory(&mut self) -> bool {
        let Some(slash) = self.get().iter().rposition(|&byte| byte == b'/') else { return false };
        self.len = slash.max(1);
        self.bytes.bytes_mut()[self.len] = 0;
        true
    }
    pub fn clear(&mut self) {
        self.len = 0;
        self.bytes.bytes_mut()[0] = 0;
    }
    /// Fills it with the kernel's word for the working directory.
    pub fn of_working_directory(&mut self) -> bool {
        // SAFETY: our buffer.
        let len = unsafe { gate::call2(libc::SYS_getcwd, self.bytes.as_mut_ptr() as usize, PATH_MAX) };
        self.len = (len - 1).max(0) as usize;
        self.bytes.bytes_mut()[self.len] = 0;
        len > 0
    }
    /// Fills it with what a link says.
    pub fn of_link(&mut self, link: &Path) -> bool {
        // SAFETY: our buffers.
        let len = unsafe {
            gate::call3(libc::SYS_readlink, link.as_ptr() as usize, self.bytes.as_mut_ptr() as usize, PATH_MAX - 1)
        };
        self.len = len.max(0) as usize;
        self.bytes.bytes_mut()[self.len] = 0;
        len > 0
    }
    /// As `of_link`, from a directory.
    pub fn of_link_at(&mut self, dirfd: i32, path: *const c_char) -> bool {
        // SAFETY: the caller's path, our buffer.
        let len = unsafe {
            let (at, out) = (dirfd as usize, self.bytes.as_mut_ptr() as usize);
            gate::call4(libc::SYS_readlinkat, at, path as usize, out, PATH_MAX - 1)
        };
        self.len = len.max(0) as usize;
        self.bytes.bytes_mut()[self.len] = 0;
        len > 0
    }
    /// Fills it with what a descriptor's magic link says.
    pub fn of_descriptor(&mut self, fd: i32) -> bool {
        let name = descriptor_link(fd);
        // SAFETY: our buffers.
        let len = unsafe {
            gate::call4(
                libc::SYS_readlinkat,
                libc::AT_FDCWD as usize,
                name.as_ptr() as usize,
                self.bytes.as_mut_ptr() as usize,
                PATH_MAX - 1,
            )
        };
        self.len = len.max(0) as usize;
        self.bytes.bytes_mut()[self.len] = 0;
        len > 0
    }
}

/// `/proc/self/fd/N`, terminated.
pub fn descriptor_link(fd: i32) -> [u8; 32] {
    let mut name = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mut digits = [0u8; 10];
    let (mut value, mut count) = (fd.max(0) as u32, 0);
    loop {
        digits[count] = b'0' + (value % 10) as u8;
        value /= 10;
        count += 1;
        if value == 0 {
            break;
        }
    }
    for i in 0..count {
        name[14 + i] = digits[count - 1 - i];
    }
    name
}

/// The directory part of a path (with its slash, or empty) and the last component; `None` if that names no new entry.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let base = &path[start..];
    let names = !(base.is_empty() || base == b"." || base == b".." || start >= PATH_MAX);
    names.then_some((&path[..start], base))
}

/// The directory part of a path, opened, and the last component. Closes itself.
pub struct Parent {
    pub fd: i32,
    pub base: *const c_char,
    pub base_len: usize,
}

impl Drop for Parent {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { gate::call1(libc::SYS_close, self.fd as usize) };
    }
}

impl Parent {
    pub fn base(&self) -> &[u8] {
        // SAFETY: points into the program's path, with this length.
        unsafe { core::slice::from_raw_parts(self.base as *const u8, self.base_len) }
    }

    /// `Ok(None)`: the path has no last component that names a new entry (`..`, a trailing slash, empty).
    pub fn of(dirfd: i32, path: *const c_char) -> Result<Option<Parent>, isize> {
        if !readable::is_text(path) {
            return Ok(None);
        }
        // SAFETY: the program's C string.
        let bytes = unsafe { core::ffi::CStr::from_ptr(path) }.to_bytes();
        let Some((text, base)) = split(bytes) else { return Ok(None) };
        let mut dir = Path::new();
        if !dir.push(if text.is_empty() { b"." } else { text }) {
            return Err(-(libc::ENAMETOOLONG as isize));
        }
        // SAFETY: a terminated buffer of ours.
        let fd = unsafe {
            gate::call4(
                libc::SYS_openat,
                dirfd as usize,
                dir.as_ptr() as usize,
                (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize,
                0,
            )
        };
        if fd < 0 {
            return Err(fd);
        }
        Ok(Some(Parent { fd: fd as i32, base: base.as_ptr() as *const c_char, base_len: base.len() }))
    }

    /// Whether names in it may be changed: 0, or the kernel's error.
    pub fn may_change(&self) -> isize {
        // SAFETY: a terminated string.
        unsafe {
            gate::call4(
                libc::SYS_faccessat2,
                self.fd as usize,
                c"".as_ptr() as usize,
                (libc::W_OK | libc::X_OK) as usize,
                (libc::AT_EACCESS | libc::AT_EMPTY_PATH) as usize,
            )
        }
    }

    /// Whether a name in it that leads to a file of that owner may be taken away: in a sticky directory its owner's, the directory's
    /// owner's and root's only (rename(2)). A process with CAP_FOWNER that is not root is refused.
    pub fn may_remove(&self, owner: u32) -> isize {
        let allowed = self.may_change();
        if allowed != 0 {
            return allowed;
        }
        let Some(status) = stat::kernel_stat(self.fd, c"".as_ptr(), libc::AT_EMPTY_PATH) else {
            return -(libc::EACCES as isize);
        };
        // The user that the kernel asks for, who is the supervisor's program while it serves one; an invalid one changes nothing.
        // SAFETY: a number is its argument, and it does not fail.
        let user = unsafe { gate::call1(libc::SYS_setfsuid, usize::MAX) } as u32;
        let is_kept = status.st_mode & libc::S_ISVTX != 0 && ![0, owner, status.st_uid].contains(&user);
        if is_kept { -(libc::EPERM as isize) } else { 0 }
    }

    /// The canonical path of the entry, if its directory lies below the root (and is not ours).
    pub fn path_below_root(&self, index: Index, out: &mut Path) -> bool {
        out.of_descriptor(self.fd) && below_root(index, out.get()) && out.push(b"/") && out.push(self.base())
    }
}

/// A canonical path: the root or something below it, but not in Terrace's own directory.
pub fn below_root(index: Index, path: &[u8]) -> bool {
    let root = index.header.root.get();
    let Some(rest) = path.strip_prefix(root) else { return false };
    if !(rest.is_empty() || rest[0] == b'/') {
        return false;
    }
    !rest.get(1..).is_some_and(terrace_index::is_private)
}
