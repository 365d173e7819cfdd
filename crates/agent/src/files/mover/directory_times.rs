//! A commit renames, and a rename changes its directory's times; for programs nothing happened there.
//!
//!   look ─▶ note what programs see ─▶ rename ─▶ put the modification time back ─▶ look ─▶ note how it was left
//!           └──────────── FLAG_RENAMING: the noted times are shown ─────────────┘
//!
//! The change time can't be put back, so it is noted in a record, as it is for files: the library shows the old one as long as
//! the directory is as our rename left it. Programs such as tar compare it and say "file changed as we read it".
//!
//! All renames of a batch in one directory go between two looks at it: each look is a request to the durable tier.
//!
//! Invariant: what happens between two looks at one directory are renames of ours. A change by a program at the very same moment
//! shows in the modification time, which is left alone when it is recent.
//!
//! Another node that renames for this one puts the modification time back itself. Nothing is held while its answer is waited for: it may wait for
//! a rename of ours in the same directory.

use crate::files::Files;
use rustix::fs::{AtFlags, Timespec, Timestamps, UTIME_OMIT};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, SystemTime};
use terrace_index::table::root_key;
use terrace_index::{FLAG_RENAMING, State};
use terrace_tier::Stat;

/// A directory that changed this recently gets its modification time from the commit.
const QUIET: Duration = Duration::from_secs(1);
/// More directories than this show the change times of commits.
const DIRECTORIES_MAX: usize = 1 << 16;

#[derive(Default)]
pub struct DirectoryTimes {
    /// From a directory's inode to the number and serial of its record; in parts, so that commits elsewhere don't wait.
    parts: [Mutex<HashMap<u64, (u32, u64)>>; 16],
    /// How many times a directory was left.
    left: AtomicU64,
}

impl Files {
    /// Does `rename`, which gives names in `directory` to other files, so that the directory's times don't tell.
    pub fn unseen_in<R>(&self, directory: &Path, rename: impl FnOnce() -> R) -> R {
        let DirectoryTimes { parts, left } = &self.directory_times;
        let left_before = left.load(SeqCst);
        let Ok(found) = rustix::fs::stat(directory) else { return rename() };
        let mut known = parts[found.st_ino as usize % parts.len()].lock().unwrap();
        // Nobody has left a directory since: that is what it is still.
        let again = || rustix::fs::stat(directory).ok().filter(|before| before.st_ino == found.st_ino);
        let Some(before) = (if left.load(SeqCst) == left_before { Some(found) } else { again() }) else {
            return rename();
        };
        let Some(number) = self.note_directory(&mut known, &Stat::from(&before)) else { return rename() };
        let result = rename();
        keep_modification_time(directory, &before);
        if let Ok(after) = rustix::fs::stat(directory)
            && after.st_ino == before.st_ino
        {
            self.note_left(number, &Stat::from(&after));
        }
        self.record(number).flags.fetch_and(!FLAG_RENAMING, SeqCst);
        left.fetch_add(1, SeqCst);
        result
    }

    /// As `unseen_in`, of what another node does when `ask` asks it. Programs may see the directory's new change time until it has answered.
    pub fn unseen_elsewhere<R>(&self, directory: &Path, ask: impl FnOnce() -> R) -> R {
        let DirectoryTimes { parts, left } = &self.directory_times;
        let Ok(before) = rustix::fs::stat(directory) else { return ask() };
        let answer = ask();
        let mut known = parts[before.st_ino as usize % parts.len()].lock().unwrap();
        let (before, Ok(after)) = (Stat::from(&before), rustix::fs::stat(directory)) else { return answer };
        let after = Stat::from(&after);
        // A change of these is a program's.
        let kept = |stat: &Stat| (stat.ino, stat.mode, stat.nlink, stat.uid, stat.gid);
        if kept(&before) != kept(&after) || after.ctime == before.ctime {
            return answer;
        }
        // One of ours has left it since we looked: what programs see of it is noted.
        let is_left_since = |number: &u32| self.record(*number).durable_ctime_ns.load(Acquire) > before.ctime.as_ns();
        let noted = self.record_of_directory(&known, before.ino).filter(is_left_since);
        if let Some(number) = noted.or_else(|| self.note_directory(&mut known, &before)) {
            self.note_left(number, &after);
            self.record(number).flags.fetch_and(!FLAG_RENAMING, SeqCst);
            left.fetch_add(1, SeqCst);
        }
        answer
    }

    /// As long as the directory is like this, programs see it as it was noted.
    fn note_left(&self, number: u32, after: &Stat) {
        let record = self.record(number);
        record.durable_size.store(after.size, Release);
        record.durable_mtime_ns.store(after.mtime.as_ns(), Release);
        record.durable_ctime_ns.store(after.ctime.as_ns(), Release);
    }

    fn record_of_directory(&self, known: &HashMap<u64, (u32, u64)>, ino: u64) -> Option<u32> {
        let (number, serial) = known.get(&ino).copied()?;
        let record = self.record(number);
        let is_same = self.serial(number) == serial
            && record.state() == State::Durable
            && record.durable_ino.load(Acquire) == ino
            && record.object_ino.load(Acquire) == 0;
        is_same.then_some(number)
    }

    /// The directory's record, which shows programs what they see now until the rename is over.
    fn note_directory(&self, known: &mut HashMap<u64, (u32, u64)>, before: &Stat) -> Option<u32> {
        let ours = self.record_of_directory(known, before.ino);
        let number = match ours {
            Some(number) => number,
            None if known.len() >= DIRECTORIES_MAX / self.directory_times.parts.len() => return None,
            None => self.index.take_record()?,
        };
        let record = self.record(number);
        if ours.is_none() || record.durable_ctime_ns.load(Acquire) != before.ctime.as_ns() {
            record.ctime_ns.store(before.ctime.as_ns(), Release);
        }
        record.durable_mtime_ns.store(before.mtime.as_ns(), Release);
        record.flags.fetch_or(FLAG_RENAMING, SeqCst);
        if ours.is_none() {
            record.ino.store(before.ino, Release);
            record.durable_ino.store(before.ino, Release);
            record.set_state(State::Durable);
            known.insert(before.ino, (number, self.serial(number)));
            self.index.header.durable_count.fetch_add(1, SeqCst);
        }
        self.index.table_put(root_key(before.ino), number);
        Some(number)
    }
}

fn keep_modification_time(directory: &Path, before: &rustix::fs::Stat) {
    let changed = SystemTime::UNIX_EPOCH + Duration::new(before.st_mtime.max(0) as u64, before.st_mtime_nsec as u32);
    if changed.elapsed().is_ok_and(|age| age < QUIET) {
        return;
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: before.st_mtime, tv_nsec: before.st_mtime_nsec as _ },
    };
    // Only the directory's owner may: for others it shows the time of the commit.
    let _ = rustix::fs::utimensat(rustix::fs::CWD, directory, &times, AtFlags::empty());
}
