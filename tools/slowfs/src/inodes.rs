//! The inodes that the kernel knows, each held by an `O_PATH` descriptor.
//!
//! A descriptor stays with its inode through renames and unlinks, and while we hold it the source cannot give the
//! inode's number to another file: so the source's own numbers serve as FUSE's, and `st_ino` is what it is natively.
//! Invariant: an inode is in the table exactly as long as the kernel's look-ups of it outnumber its forgets.

use fuser::{Errno, INodeNo};
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use terrace_passthrough::{Answer, calls};

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
    pub fn new(source: OwnedFd) -> Answer<Inodes> {
        let stat = calls::stat(&source)?;
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

    pub fn get(&self, ino: INodeNo) -> Answer<Arc<OwnedFd>> {
        let nodes = self.nodes.lock().expect("no holder of this lock panics");
        nodes.get(&ino.0).map(|node| node.descriptor.clone()).ok_or(Errno::ESTALE)
    }

    /// Looks `name` up in the source and counts one look-up of what is there. Its `st_ino` is the number that is shown.
    pub fn look_up(&self, parent: &OwnedFd, name: &CStr) -> Answer<libc::stat> {
        let descriptor = calls::open_at(parent, name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        let mut stat = calls::stat(&descriptor)?;
        if stat.st_dev != self.source_dev {
            // Two file systems could use one inode number, so only the source's own is shown.
            return Err(Errno::EXDEV);
        }
        stat.st_ino = self.shown(stat.st_ino);
        let mut nodes = self.nodes.lock().expect("no holder of this lock panics");
        let node = nodes.entry(stat.st_ino).or_insert_with(|| Node { descriptor: Arc::new(descriptor), lookups: 0 });
        node.lookups += 1;
        Ok(stat)
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
