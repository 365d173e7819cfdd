//! The directory in which this process last made a file: a program makes many in one.
//!
//! What is remembered is that this text, from this start, led to this inode, what its canonical path was, and that it had
//! no default ACL. It holds while the text leads to the same inode (the caller has just asked), no directory was renamed,
//! and for at most a second, because an ACL can be set without leaving a trace that we could look for.
//!
//! One entry under a sequence lock: a reader that was disturbed, and a writer that finds another one, do without.

use crate::path::Path;
use crate::process;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::*, fence};
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

struct Recent(UnsafeCell<Directory>);

// SAFETY: guarded by `SEQUENCE`; a torn read is thrown away.
unsafe impl Sync for Recent {}

static RECENT: Recent = Recent(UnsafeCell::new(Directory {
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
}));

/// Odd while somebody writes.
static SEQUENCE: AtomicU32 = AtomicU32::new(0);

pub fn find(index: Index, dirfd: i32, text: &[u8], status: &libc::stat, name: &mut Path) -> bool {
    let before = SEQUENCE.load(Acquire);
    if !before.is_multiple_of(2) {
        return false;
    }
    // SAFETY: plain bytes; whether they belong together is checked below.
    let seen = unsafe { core::ptr::read_volatile(RECENT.0.get()) };
    fence(Acquire);
    SEQUENCE.load(Relaxed) == before
        && seen.name_len > 0
        && seen.name_len <= TEXT_MAX
        && seen.text_len <= TEXT_MAX
        && seen.dirfd == dirfd
        && (seen.dev, seen.ino) == (status.st_dev, status.st_ino)
        && seen.now == index.header.now.load(Relaxed)
        && seen.renames == index.header.dir_renamed.load(Acquire)
        && seen.cwd_changes == process::cwd_changes()
        && &seen.text[..seen.text_len] == text
        && {
            name.clear();
            name.push(&seen.name[..seen.name_len])
        }
}

pub fn remember(index: Index, dirfd: i32, text: &[u8], status: &libc::stat, name: &[u8]) {
    // A descriptor's number can come to mean another directory with nothing that tells.
    if dirfd != libc::AT_FDCWD || text.len() > TEXT_MAX || name.len() > TEXT_MAX {
        return;
    }
    let before = SEQUENCE.load(Acquire);
    if !before.is_multiple_of(2) || SEQUENCE.compare_exchange(before, before + 1, AcqRel, Acquire).is_err() {
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
    // SAFETY: the odd sequence is ours.
    unsafe { core::ptr::write_volatile(RECENT.0.get(), directory) };
    SEQUENCE.store(before.wrapping_add(2), Release);
}
