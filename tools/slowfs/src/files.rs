//! Open files and directories, by the handle that the kernel has for them.

use crate::attributes::file_type;
use crate::inodes::{Inodes, errno};
use fuser::{Errno, FileHandle, FileType};
use rustix::fs::{Dir, Mode, OFlags, openat};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

pub struct DirectoryEntry {
    pub ino: u64,
    pub kind: FileType,
    pub name: OsString,
}

/// An open directory: a listing as of the last read from the start, so that offsets stay valid while names come and go.
pub struct Directory {
    pub descriptor: OwnedFd,
    pub entries: Mutex<Arc<Vec<DirectoryEntry>>>,
}

impl Directory {
    /// The listing to continue from `offset`; a read from the start looks again.
    pub fn listing(&self, offset: u64, inodes: &Inodes) -> Result<Arc<Vec<DirectoryEntry>>, Errno> {
        let mut entries = self.entries.lock().expect("no holder of this lock panics");
        if offset == 0 {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let descriptor = openat(&self.descriptor, ".", flags, Mode::empty()).map_err(errno)?;
            let mut listing = Vec::new();
            for entry in Dir::new(descriptor).map_err(errno)? {
                let entry = entry.map_err(errno)?;
                listing.push(DirectoryEntry {
                    ino: inodes.shown(entry.ino()),
                    kind: file_type(entry.file_type().as_raw_mode()),
                    name: OsString::from_vec(entry.file_name().to_bytes().to_vec()),
                });
            }
            *entries = Arc::new(listing);
        }
        Ok(entries.clone())
    }
}

pub enum Handle {
    File(OwnedFd),
    Directory(Directory),
}

#[derive(Default)]
pub struct Handles {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<Handle>>>,
}

impl Handles {
    pub fn add(&self, handle: Handle) -> FileHandle {
        let number = self.next.fetch_add(1, Relaxed) + 1;
        self.open.write().expect("no holder of this lock panics").insert(number, Arc::new(handle));
        FileHandle(number)
    }

    pub fn get(&self, handle: FileHandle) -> Result<Arc<Handle>, Errno> {
        self.open.read().expect("no holder of this lock panics").get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    pub fn close(&self, handle: FileHandle) {
        self.open.write().expect("no holder of this lock panics").remove(&handle.0);
    }
}

impl Handle {
    pub fn file(&self) -> Result<&OwnedFd, Errno> {
        match self {
            Handle::File(file) => Ok(file),
            Handle::Directory(_) => Err(Errno::EISDIR),
        }
    }

    pub fn directory(&self) -> Result<&Directory, Errno> {
        match self {
            Handle::Directory(directory) => Ok(directory),
            Handle::File(_) => Err(Errno::ENOTDIR),
        }
    }
}
