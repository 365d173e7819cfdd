//! The directory in which this process last made a file: a program makes many in one.
//!
//! What is remembered is that this text, from this start, led to this inode, what its canonical path was, and that it had
//! no default ACL. It holds while the text leads to the same inode (the caller has just asked), no directory was renamed,
//! and for at most a second, because an ACL can be set without leaving a trace that we could look for.

use crate::path::Path;
use crate::process;
use crate::remembered::Remembered;
use core::sync::atomic::Ordering::*;
use terrace_index::Index;

/// Longer texts are not remembered.
const TEXT_MAX: usize = 256;

#[derive(Clone, Copy)]
struct Directory {
    dirfd: i32,
    dev: u64,
    ino: u64,
    now: u32,
    renames: u32,
    cwd_changes: u32,
    text_len: usize,
    name_len: usize,
    text: [u8; TEXT_MAX],
    name: [u8; TEXT_MAX],
}

static RECENT: Remembered<Directory> = Remembered::new(Directory {
    dirfd: 0,
    dev: 0,
    ino: 0,
    now: 0,
    renames: 0,
    cwd_changes: 0,
    text_len: 0,
    name_len: 0,
    text: [0; TEXT_MAX],
    name: [0; TEXT_MAX],
});

pub fn find(index: Index, dirfd: i32, text: &[u8], status: &libc::stat, name: &mut Path) -> bool {
    let found = RECENT.read(|seen| {
        let is_it = seen.name_len > 0
            && seen.name_len <= TEXT_MAX
            && seen.text_len <= TEXT_MAX
            && seen.dirfd == dirfd
            && (seen.dev, seen.ino) == (status.st_dev, status.st_ino)
            && seen.now == index.header.now.load(Relaxed)
            && seen.renames == index.header.dir_renamed.load(Acquire)
            && seen.cwd_changes == process::cwd_changes()
            && &seen.text[..seen.text_len] == text;
        is_it.then(|| {
            name.clear();
            name.push(&seen.name[..seen.name_len])
        })
    });
    found == Some(true)
}

pub fn remember(index: Index, dirfd: i32, text: &[u8], status: &libc::stat, name: &[u8]) {
    // A descriptor's number can come to mean another directory with nothing that tells.
    if dirfd != libc::AT_FDCWD || text.len() > TEXT_MAX || name.len() > TEXT_MAX {
        return;
    }
    let mut directory = Directory {
        dirfd,
        dev: status.st_dev,
        ino: status.st_ino,
        now: index.header.now.load(Relaxed),
        renames: index.header.dir_renamed.load(Acquire),
        cwd_changes: process::cwd_changes(),
        text_len: text.len(),
        name_len: name.len(),
        text: [0; TEXT_MAX],
        name: [0; TEXT_MAX],
    };
    directory.text[..text.len()].copy_from_slice(text);
    directory.name[..name.len()].copy_from_slice(name);
    RECENT.write(directory);
}
