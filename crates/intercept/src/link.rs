//! Links of ours: reading them, telling them from the program's own.

use crate::{gate, stat};
use core::ffi::c_char;
use core::sync::atomic::Ordering::*;
use terrace_index::{DIRECTORY_SUFFIX, Index, NAME_LEN, Record, State};

/// Longest link text we look at: object directories are checked to be shorter when settings are read.
pub const LINK_MAX: usize = 512;

/// The text of a link of ours, with a terminator, and its record.
pub struct Link {
    pub record: u32,
    pub text: [u8; LINK_MAX],
}

impl Link {
    pub fn object(&self) -> *const c_char {
        self.text.as_ptr() as *const c_char
    }
}

/// Reads the name as a link; `None` if it is none, or not ours.
pub fn read(index: Index, dirfd: i32, path: *const c_char) -> Option<Link> {
    look(index, dirfd, path).ok().flatten()
}

/// The same, or readlinkat(2)'s error as the kernel returns it: EINVAL where the name is something else than a link.
pub fn look(index: Index, dirfd: i32, path: *const c_char) -> Result<Option<Link>, isize> {
    let mut buffer = [0u8; LINK_MAX];
    let len = text(dirfd, path, &mut buffer);
    let text = buffer;
    if len < 0 {
        return Err(len);
    }
    Ok(index.record_of_link(&text[..len as usize]).map(|record| Link { record, text }))
}

/// readlinkat(2), as the kernel returns it. The last byte stays the terminator.
pub fn text(dirfd: i32, path: *const c_char, out: &mut [u8; LINK_MAX]) -> isize {
    // SAFETY: the program's path, our buffer.
    unsafe { gate::call4(libc::SYS_readlinkat, dirfd as usize, path as usize, out.as_mut_ptr() as usize, LINK_MAX - 1) }
}

/// The name is a link to an object of another node. Asked only while there are other nodes.
pub fn is_elsewhere(index: Index, dirfd: i32, path: *const c_char) -> bool {
    crate::elsewhere::is_possible(index) && leads_elsewhere(index, dirfd, path)
}

/// As `is_elsewhere`, and always asked.
pub fn leads_elsewhere(index: Index, dirfd: i32, path: *const c_char) -> bool {
    let mut buffer = [0u8; LINK_MAX];
    let len = text(dirfd, path, &mut buffer);
    len > 0 && index.is_elsewhere(&buffer[..len as usize])
}

/// A handle of the name itself (the link's inode), by which one can tell afterwards whether a call took this very name away:
/// between a look at a name and the call on it, another program may have given the name to another file.
pub struct Handle(i32);

impl Handle {
    /// What the name is: this link of ours, by a handle of it.
    pub fn open(index: Index, dirfd: i32, path: *const c_char) -> Opened {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the program's path; a buffer of ours.
        unsafe {
            let fd = gate::call4(libc::SYS_openat, dirfd as usize, path as usize, flags as usize, 0);
            if fd < 0 {
                return Opened::Nothing(fd);
            }
            let handle = Handle(fd as i32);
            match read(index, fd as i32, c"".as_ptr()) {
                Some(link) => Opened::Link(link, handle),
                None => Opened::NotOurs,
            }
        }
    }

    /// Of whatever has the name.
    pub fn of(dirfd: i32, path: *const c_char) -> Option<Handle> {
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the program's path.
        let fd = unsafe { gate::call4(libc::SYS_openat, dirfd as usize, path as usize, flags as usize, 0) };
        (fd >= 0).then_some(Handle(fd as i32))
    }

    pub fn fd(&self) -> i32 {
        self.0
    }

    /// The link is in no directory any more, as its server says. One that knows nothing of it (GlusterFS: ESTALE) is believed if the kernel here
    /// took away its last name itself: that alone is no proof, since another node may have renamed it a moment before.
    pub fn is_removed(&self) -> bool {
        // First: the server's answer becomes what is known.
        let known = stat::as_known(self.0).map(|status| status.st_nlink);
        match stat::kernel_stat_or_error(self.0, c"".as_ptr(), libc::AT_EMPTY_PATH) {
            Ok(status) if status.st_nlink == 0 => true,
            Ok(_) => known == Some(0) && self.is_stale(),
            Err(error) => known == Some(0) && -error as i32 == libc::ESTALE,
        }
    }

    /// As `is_removed`, of a link in the root: most file systems know it.
    pub fn is_removed_from_root(&self, index: Index) -> bool {
        if index.header.forgets_removed.load(Relaxed) != 0 {
            return self.is_removed();
        }
        stat::kernel_stat(self.0, c"".as_ptr(), libc::AT_EMPTY_PATH).is_some_and(|status| status.st_nlink == 0)
    }

    /// A client may remember attributes for a second: the text of the link is asked for at the server.
    fn is_stale(&self) -> bool {
        let mut text = [0u8; 1];
        // SAFETY: our own descriptor and buffer.
        let result = unsafe {
            let (to, len) = (text.as_mut_ptr() as usize, text.len());
            gate::call4(libc::SYS_readlinkat, self.0 as usize, c"".as_ptr() as usize, to, len)
        };
        -result as i32 == libc::ESTALE
    }
}

/// What `Handle::open` found.
#[allow(clippy::large_enum_variant)] // there is no allocator to box it with, and it lives for one call
pub enum Opened {
    Link(Link, Handle),
    /// Something is there, and it is no link of ours.
    NotOurs,
    /// It could not be opened, with the kernel's error: nothing there, or no descriptor left.
    Nothing(isize),
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { gate::call1(libc::SYS_close, self.0 as usize) };
    }
}

pub fn record(index: &Index, number: u32) -> &Record {
    &index.records[number as usize]
}

/// The object's path, with a terminator.
pub fn object_path(index: Index, number: u32, out: &mut [u8; LINK_MAX]) {
    match record(&index, number).state() {
        State::Directory => directory_path(index, number, out),
        _ => container_path(index, number, out),
    }
}

/// A placed directory's own path, with a terminator.
pub fn directory_path(index: Index, number: u32, out: &mut [u8; LINK_MAX]) {
    container_path(index, number, out);
    let len = out.iter().position(|&byte| byte == 0).unwrap_or(0);
    let suffix = DIRECTORY_SUFFIX.as_bytes();
    out[len..len + suffix.len()].copy_from_slice(suffix);
    out[len + suffix.len()] = 0;
}

/// The path of what has the object's name: the object, or the directory around a placed directory.
pub fn container_path(index: Index, number: u32, out: &mut [u8; LINK_MAX]) {
    use core::sync::atomic::Ordering::*;
    let record = &index.records[number as usize];
    let device = (record.device.load(Relaxed) as usize).min(terrace_index::DEVICES - 1);
    let dir = index.header.devices[device].dir.get();
    let mut name = [0; NAME_LEN];
    terrace_index::write_name(number, record.random.load(Relaxed), &mut name);
    let len = dir.len().min(LINK_MAX - NAME_LEN - DIRECTORY_SUFFIX.len() - 1);
    out[..len].copy_from_slice(&dir[..len]);
    out[len..len + NAME_LEN].copy_from_slice(&name);
    out[len + NAME_LEN] = 0;
}

/// The record's object holds the file's bytes, now or until a move ends.
pub fn is_live(state: State) -> bool {
    matches!(state, State::Current | State::Committing | State::Moving)
}
