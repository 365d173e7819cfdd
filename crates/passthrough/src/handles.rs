//! Open files and directories, by the handles that the kernel has for them.

use crate::calls::{self, Answer, ListedName};
use fuser::{Errno, FileHandle};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};

pub enum Handle {
    File {
        file: Arc<OwnedFd>,
        is_written: AtomicBool,
    },
    /// A listing as of the last read from the start, so that offsets hold while names come and go.
    Directory {
        dir: Arc<OwnedFd>,
        names: Mutex<Arc<Vec<ListedName>>>,
    },
}

impl Handle {
    pub fn of_file(file: Arc<OwnedFd>) -> Handle {
        Handle::File { file, is_written: AtomicBool::new(false) }
    }
    pub fn of_directory(dir: Arc<OwnedFd>) -> Handle {
        Handle::Directory { dir, names: Mutex::default() }
    }

    pub fn file(&self) -> Answer<&Arc<OwnedFd>> {
        match self {
            Handle::File { file, .. } => Ok(file),
            Handle::Directory { .. } => Err(Errno::EISDIR),
        }
    }

    pub fn directory(&self) -> Answer<&Arc<OwnedFd>> {
        match self {
            Handle::Directory { dir, .. } => Ok(dir),
            Handle::File { .. } => Err(Errno::ENOTDIR),
        }
    }

    /// The names to continue from `offset`; a read from the start looks again.
    pub fn listing(&self, offset: u64) -> Answer<Arc<Vec<ListedName>>> {
        let Handle::Directory { dir, names } = self else { return Err(Errno::ENOTDIR) };
        if offset == 0 {
            let listed = Arc::new(calls::list(dir)?);
            *names.lock().expect("no holder of this lock panics") = listed;
        }
        Ok(names.lock().expect("no holder of this lock panics").clone())
    }
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

    pub fn get(&self, handle: FileHandle) -> Answer<Arc<Handle>> {
        self.open.read().expect("no holder of this lock panics").get(&handle.0).cloned().ok_or(Errno::EBADF)
    }

    pub fn file(&self, handle: FileHandle) -> Answer<Arc<OwnedFd>> {
        self.get(handle)?.file().cloned()
    }

    pub fn close(&self, handle: FileHandle) {
        self.open.write().expect("no holder of this lock panics").remove(&handle.0);
    }
}
