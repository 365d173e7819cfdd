//! Small files that this program makes: in the root, once it was seen to make such (`terrace_index::habits`).

use crate::{caller, placed, stat};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering::*};
use terrace_index::habits::{Key, OFTEN};
use terrace_index::{Index, Record};

const NOTHING: u32 = 0;
const IN_DIRECTORIES: u32 = 1;
const OF_PROGRAMS: u32 = 2;

/// By which habit a file of this name is made; `None`: none is learnt.
pub fn of(index: Index, directory: u64, path: &[u8]) -> Option<Key> {
    let learning = index.header.learning.load(Relaxed);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    (learning != NOTHING).then(|| Key::of(program(), if learning == IN_DIRECTORIES { directory } else { 0 }, name))
}

/// Habits are of a program in a directory.
pub fn is_in_directories(index: Index) -> bool {
    index.header.learning.load(Relaxed) == IN_DIRECTORIES
}

/// This new file is made in the root, and counted.
pub fn is_for_root(index: Index, key: Key) -> bool {
    let is_for_root = index.habits.is_for_root(key);
    if is_for_root {
        index.header.creates_small.fetch_add(1, Relaxed);
    }
    is_for_root
}

/// The habit that a path alone tells: of a program, where no directory is anything else than others.
fn of_path(index: Index, path: *const c_char) -> Option<Key> {
    if index.header.learning.load(Relaxed) != OF_PROGRAMS || placed::any(index) {
        return None;
    }
    // SAFETY: the program's C string, which the caller has looked at.
    of(index, 0, unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// The program makes small files of such names, so this one is probably new.
pub fn makes_small_files(index: Index, path: *const c_char) -> bool {
    of_path(index, path).is_some_and(|key| index.habits.is_known(key))
}

/// As `is_for_root`.
pub fn makes_small_file(index: Index, path: *const c_char) -> bool {
    of_path(index, path).is_some_and(|key| is_for_root(index, key))
}

/// The file at the path, which is in the root and small, is to be written anew: it stays there.
pub fn stays_in_root(index: Index, path: &[u8]) -> bool {
    // In which directory it lies would be one more request.
    !is_in_directories(index) && of(index, 0, path).is_some_and(|key| index.habits.is_for_root(key))
}

/// The record's file was opened for reading.
#[inline]
pub fn opened(index: Index, record: &Record) {
    if let Some(key) = Key::from_number(record.habit.load(Relaxed))
        && record.opens.fetch_add(1, Relaxed) + 1 == OFTEN
    {
        index.habits.gained(key);
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
