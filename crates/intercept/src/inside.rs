//! Which directories lie in a placed one: a program looks at many names of one directory, and to ask the kernel where each of them is
//! would cost several times the look itself.
//!
//!   path up to its last component ─▶ remembered? ──no──▶ ask the kernel where that directory is ─▶ remember
//!
//! What is remembered holds until a name may have come to lead to another directory (`ways` in the index, which programs with the library
//! tell), and for at most a second, while an agent is there, because others do not. Who is told the wrong thing for that long is told another
//! `st_dev` and `st_ino` of a file: one that no other file has.
//!
//! Invariants: it is about the directory; where a last component leads, if it is a link, has to be asked. And nothing is made or removed by
//! it: who does that asks the kernel on which file system the name is, or the file that it made.

use crate::path::{Parent, Path, split};
use crate::remembered::Remembered;
use crate::{caller, placed, process, readable, spill, stat};
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering::*;
use terrace_index::Index;
use twox_hash::XxHash3_128;

/// So many that the directories in which the threads of a program are at work seldom take one another's place.
const DIRECTORIES: usize = 64;
const FILES: usize = 64;

/// A directory on a file system that has a tier.
#[derive(Clone, Copy)]
pub struct Directory {
    pub dev: u64,
    /// By so much the inodes in it differ from what programs see; 0: it lies in no placed directory.
    base: u64,
}

impl Directory {
    pub fn base(&self) -> Option<u64> {
        (self.base != 0).then_some(self.base)
    }
}

#[derive(Clone, Copy)]
struct Known {
    directory: Directory,
    start: Start,
    now: u32,
    ways: u32,
    text: u128,
}

/// Where a text leads from: the root of all, the working directory as it was set last, or the directory of this device and inode.
type Start = (u64, u64);
const FROM_ROOT: Start = (0, 0);
const FROM_WORKING_DIRECTORY: u64 = u64::MAX;

static KNOWN: [Remembered<Known>; DIRECTORIES] = [const {
    Remembered::new(Known { directory: Directory { dev: 0, base: 0 }, start: FROM_ROOT, now: 0, ways: 0, text: 0 })
}; DIRECTORIES];

/// A file as it was looked at last. Whoever renames it, or gives its inode to another one, gives it another time of change, if that is not of the
/// same tick of the file system's clock.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    dev: u64,
    ino: u64,
    changed: (i64, i64),
    now: u32,
    ways: u32,
}

impl Seen {
    /// `None`: another look at it may lead elsewhere, or to another one of its names.
    fn of(index: Index, status: &libc::stat) -> Option<Seen> {
        let has_one_place = match status.st_mode & libc::S_IFMT {
            libc::S_IFREG => status.st_nlink <= 1,
            kind => kind == libc::S_IFDIR,
        };
        (has_one_place && !spill::any(index) && is_past(status.st_ctime)).then(|| Seen {
            dev: status.st_dev,
            ino: status.st_ino,
            changed: (status.st_ctime, status.st_ctime_nsec),
            now: index.header.now.load(Relaxed),
            ways: index.header.ways.load(Acquire),
        })
    }

    fn slot(&self) -> &'static Remembered<(Seen, u64)> {
        &SEEN[self.ino as usize % FILES]
    }
}

/// Before the tick of any file system's clock that goes on: those of some are a second.
fn is_past(seconds: i64) -> bool {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it fills what it is given, and asks no kernel.
    let known = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) } == 0;
    known && now.tv_sec - seconds >= 2
}

/// Files, each with the base of the directory that it is in.
static SEEN: [Remembered<(Seen, u64)>; FILES] =
    [const { Remembered::new((Seen { dev: 0, ino: 0, changed: (0, 0), now: 0, ways: 0 }, 0)) }; FILES];

/// The base of the directory that this file is in, if it was looked at just now. Who opens a file looks at it more than once.
pub fn base_of_seen(index: Index, status: &libc::stat) -> Option<u64> {
    let seen = Seen::of(index, status)?;
    seen.slot().read(|(known, base)| (*known == seen).then_some(*base))
}

/// This file, as the kernel tells of it, is in a directory of this base.
pub fn remember_seen(index: Index, status: &libc::stat, base: u64) {
    if let Some(seen) = Seen::of(index, status) {
        seen.slot().write((seen, base));
    }
}

/// A path up to its last component: a hash of its text (XXH3, of 128 bits: two texts of one are not to be expected), and its start.
struct Key {
    text: u128,
    start: Start,
}

impl Key {
    /// `None`: the last component is no name, or the text leads each caller elsewhere.
    fn of(dirfd: i32, path: *const c_char, identity: impl FnOnce() -> Option<Start>) -> Option<Key> {
        // The supervisor's paths begin with /proc/TID.
        if caller::is_supervisor() || !readable::is_text(path) {
            return None;
        }
        // SAFETY: the program's C string, which is there as long as its call.
        let (text, _) = split(unsafe { CStr::from_ptr(path) }.to_bytes())?;
        if [&b"/proc/"[..], b"/dev/fd/", b"//"].iter().any(|start| text.starts_with(start)) {
            return None;
        }
        let start = match dirfd {
            _ if text.first() == Some(&b'/') => FROM_ROOT,
            libc::AT_FDCWD => (FROM_WORKING_DIRECTORY, process::cwd_changes() as u64),
            _ => identity()?,
        };
        Some(Key { text: XxHash3_128::oneshot(text), start })
    }

    fn slot(&self) -> &'static Remembered<Known> {
        &KNOWN[(self.text as u64 ^ self.start.1) as usize % DIRECTORIES]
    }

    fn find(&self, index: Index) -> Option<Directory> {
        self.slot().read(|known| {
            let is_it = known.text == self.text
                && known.start == self.start
                && known.ways == index.header.ways.load(Acquire)
                && known.now == index.header.now.load(Relaxed);
            is_it.then_some(known.directory)
        })
    }

    fn ask(&self, index: Index, dirfd: i32, path: *const c_char) -> Option<Directory> {
        let (ways, now) = (index.header.ways.load(Acquire), index.header.now.load(Relaxed));
        let parent = Parent::of(dirfd, path).ok()??;
        let status = stat::kernel_stat(parent.fd, c"".as_ptr(), libc::AT_EMPTY_PATH)?;
        let mut name = Path::new();
        // Where spilled files lie, what is told of one depends on its name.
        if !name.of_descriptor(parent.fd) || index.is_for_spilled(name.get()) {
            return None;
        }
        let directory = Directory { dev: status.st_dev, base: placed::inode_base(index, name.get()).unwrap_or(0) };
        self.slot().write(Known { directory, start: self.start, now, ways, text: self.text });
        Some(directory)
    }
}

/// The directory that a name is in, if that is remembered and takes no system call.
#[inline]
pub fn remembered(index: Index, dirfd: i32, path: *const c_char) -> Option<Directory> {
    if !placed::any(index) || path.is_null() {
        return None;
    }
    Key::of(dirfd, path, || None)?.find(index)
}

/// The name is of something in a placed directory, and no link of ours: none is there but those of spilled files.
pub fn is_in_placed(index: Index, dirfd: i32, path: *const c_char) -> bool {
    placed_directory(index, dirfd, path).is_some_and(|directory| {
        let found = stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW);
        found.is_some_and(|found| found.st_dev == directory.dev)
    })
}

/// As `remembered`, of a placed directory with nothing spilled, in whose file system the root does not lie.
pub fn placed_directory(index: Index, dirfd: i32, path: *const c_char) -> Option<Directory> {
    let directory = remembered(index, dirfd, path).filter(|directory| directory.base().is_some())?;
    (!spill::any(index) && directory.dev != index.header.root_dev.load(Relaxed)).then_some(directory)
}

/// The directory that a name is in.
pub fn ask(index: Index, dirfd: i32, path: *const c_char) -> Option<Directory> {
    let identity = || {
        let status = stat::kernel_stat(dirfd, c"".as_ptr(), libc::AT_EMPTY_PATH)?;
        Some((status.st_dev, status.st_ino))
    };
    let key = Key::of(dirfd, path, identity)?;
    key.find(index).or_else(|| key.ask(index, dirfd, path))
}
