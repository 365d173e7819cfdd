//! The inodes that the kernel knows, each held by an `O_PATH` descriptor.
//!
//! A descriptor stays with its inode through renames and unlinks, and while we hold it the source cannot give the
//! inode's number to another file: so the source's own numbers serve as FUSE's, and `st_ino` is what it is natively.
//! Invariant: an inode is in the table exactly as long as the kernel's look-ups of it outnumber its forgets.

use fuser::{Errno, INodeNo};
use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

struct Node {
    descriptor: Arc<OwnedFd>,
    lookups: u64,
}

pub struct Inodes {
    source_ino: u64,
    source_dev: u64,
    nodes: Mutex<HashMap<u64, Node>>,
}

impl Inodes {
    pub fn new(source: OwnedFd) -> rustix::io::Result<Inodes> {
        let stat = fstat(&source)?;
        let root = Node { descriptor: Arc::new(source), lookups: 1 };
        Ok(Inodes {
            source_ino: stat.st_ino,
            source_dev: stat.st_dev,
            nodes: Mutex::new(HashMap::from([(INodeNo::ROOT.0, root)])),
        })
    }

    /// FUSE's root is inode 1: the source's root and whatever has number 1 there change places.
    pub fn shown(&self, ino: u64) -> u64 {
        match ino {
            _ if ino == self.source_ino => INodeNo::ROOT.0,
            _ if ino == INodeNo::ROOT.0 => self.source_ino,
            _ => ino,
        }
    }

    pub fn get(&self, ino: INodeNo) -> Result<Arc<OwnedFd>, Errno> {
        let nodes = self.nodes.lock().expect("no holder of this lock panics");
        nodes.get(&ino.0).map(|node| node.descriptor.clone()).ok_or(Errno::ESTALE)
    }

    /// Looks `name` up in the source and counts one look-up of what is there.
    pub fn look_up(&self, parent: &OwnedFd, name: &OsStr) -> Result<(Stat, u64), Errno> {
        let descriptor =
            openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        let stat = fstat(&descriptor).map_err(errno)?;
        if stat.st_dev != self.source_dev {
            // Two file systems could use one inode number, so only the source's own is shown.
            return Err(Errno::EXDEV);
        }
        let ino = self.shown(stat.st_ino);
        let mut nodes = self.nodes.lock().expect("no holder of this lock panics");
        let node = nodes.entry(ino).or_insert_with(|| Node { descriptor: Arc::new(descriptor), lookups: 0 });
        node.lookups += 1;
        Ok((stat, ino))
    }

    pub fn forget(&self, ino: u64, lookups: u64) {
        let mut nodes = self.nodes.lock().expect("no holder of this lock panics");
        if let Some(node) = nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 && ino != INodeNo::ROOT.0 {
                nodes.remove(&ino);
            }
        }
    }
}

pub fn errno(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

/// A path to what the descriptor holds, for the calls that don't take an `O_PATH` descriptor.
pub fn proc_path(descriptor: impl AsFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}
