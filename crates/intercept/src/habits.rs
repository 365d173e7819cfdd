//! Small files that this program makes: in the root, once it was seen to make such (`terrace_index::habits`).

use crate::path::Path;
use crate::{caller, data, link, placed, process, stat};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering::*};
use terrace_index::habits::{Key, OFTEN};
use terrace_index::{Index, Record, State};

/// By which habit a file of this name is made; `None`: none is learnt.
pub fn of(index: Index, path: &[u8]) -> Option<Key> {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (index.header.learning.load(Relaxed) != 0).then(|| Key::of(program(), name))
}

/// As `of`, of a path that has not been looked at. Where directories are placed it may lie in one, which has to be known first.
pub fn of_path(index: Index, path: *const c_char) -> Option<Key> {
    if placed::any(index) {
        return None;
    }
    // SAFETY: the program's C string, which the caller has looked at.
    of(index, unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// The program makes small files of such names, so this one is probably new.
pub fn makes_small_files(index: Index, path: *const c_char) -> bool {
    of_path(index, path).is_some_and(|key| index.habits.is_known(key))
}

/// The file at the path, which is in the root and small, is to be written anew: it stays there, unless its program makes large ones.
pub fn stays_in_root(index: Index, path: &[u8]) -> bool {
    let stays = of(index, path).is_some_and(|key| !index.habits.is_large(key));
    if stays {
        index.header.small_in_root.store(1, Release);
    }
    stays
}

/// By descriptor, the record of the file that it made while its habit was not known; else 0.
static MADE: [AtomicU64; data::CELLS] = [const { AtomicU64::new(0) }; data::CELLS];

/// A record as it was when a descriptor made its file: its number plus 1, and half of its serial.
#[derive(Clone, Copy)]
pub struct Made(u64);

impl Made {
    fn of(index: &Index, number: u32) -> Made {
        Made(link::record(index, number).serial.load(Relaxed) << 32 | (number + 1) as u64)
    }
}

/// A file was made in a tier: what it becomes is looked at when the descriptor is closed. The agent looks, too, but later: of files that are
/// made one after the other it would let many more go to a tier.
pub fn made(index: Index, fd: i32, number: u32) {
    let key = Key::from_number(link::record(&index, number).habit.load(Relaxed));
    if !caller::is_supervisor()
        && key.is_some_and(|key| index.habits.is_open(key))
        && let Some(cell) = MADE.get(fd as usize)
    {
        cell.store(Made::of(&index, number).0, Relaxed);
    }
}

/// The descriptor is about to be closed, or has a new meaning: what it has made, for `closed`.
#[inline]
pub fn take_made(fd: i32) -> Option<Made> {
    let cell = MADE.get(fd as usize).filter(|cell| cell.load(Relaxed) != 0)?;
    Some(Made(cell.swap(0, Relaxed))).filter(|made| made.0 != 0)
}

/// The program has closed the descriptor that made this record's file.
#[cold]
pub fn closed(made: Made) {
    let Some(index) = process::index() else { return };
    let number = made.0 as u32 - 1;
    let is_it = |record: &&Record| record.state() == State::Current && Made::of(&index, number).0 == made.0;
    let Some(record) = index.record(number).filter(is_it) else { return };
    let mut object = [0; link::LINK_MAX];
    link::object_path(index, number, &mut object);
    let path = object.as_ptr().cast();
    let Ok(status) = stat::kernel_stat_or_error(libc::AT_FDCWD, path, libc::AT_STATX_DONT_SYNC) else { return };
    // An empty one may be what a shell has made for another program.
    if status.st_ino == record.object_ino.load(Relaxed) && status.st_size > 0 {
        index.habits.learn(record, status.st_size as u64);
    }
}

/// The file behind the descriptor was made in the root as a small one, and is large.
#[cold]
pub fn grew(index: Index, fd: i32) {
    let mut path = Path::new();
    if path.of_descriptor(fd)
        && let Some(key) = of(index, path.get())
    {
        index.habits.grew(key);
    }
}

/// A program opened the record's file so many times, and not by making it: reading costs a tier nothing, and what is written again
/// and again is flushed once.
#[inline]
pub fn opened(index: Index, record: &Record, times: u32) {
    if let Some(key) = Key::from_number(record.habit.load(Relaxed)) {
        let before = record.opens.fetch_add(times, Relaxed);
        if before < OFTEN && before + times >= OFTEN {
            index.habits.gained(key);
        }
    }
}

/// The record's file was synced, for which a program in the root waits.
pub fn synced(index: Index, record: &Record) {
    if let Some(key) = Key::from_number(record.habit.load(Relaxed)) {
        index.habits.gained(key);
    }
}

/// A number that tells this program from others: that of its file. Kept by fork, and gone after exec. All programs of a supervisor are one.
fn program() -> u64 {
    static PROGRAM: AtomicU64 = AtomicU64::new(0);
    match PROGRAM.load(Relaxed) {
        0 if !caller::is_supervisor() => {
            let file = c"/proc/self/exe".as_ptr();
            let status = stat::kernel_stat_or_error(libc::AT_FDCWD, file, libc::AT_STATX_DONT_SYNC);
            let number = status.map_or(1, |status| (status.st_ino ^ status.st_dev << 48).max(1));
            PROGRAM.store(number, Relaxed);
            number
        }
        number => number,
    }
}
