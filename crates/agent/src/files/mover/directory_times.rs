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
//! Another node that renames for this one puts the modification time back itself, and says what the directory was like before and after that.
//! Nothing is held while its answer is waited for: it may wait for a rename of ours in the same directory.

use crate::files::Files;
use rustix::fs::{AtFlags, CWD, StatxFlags, Timespec, Timestamps, UTIME_OMIT};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{Duration, SystemTime};
use terrace_index::table::root_key;
use terrace_index::{FLAG_RENAMING, State};
use terrace_tier::{Stat, Timestamp};

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
        self.seen_around(directory, rename).0
    }

    /// As `unseen_in`; and what the directory was like before and after that, if it was noted.
    pub fn seen_around<R>(&self, directory: &Path, rename: impl FnOnce() -> R) -> (R, Option<[Stat; 2]>) {
        let DirectoryTimes { parts, left } = &self.directory_times;
        let left_before = left.load(SeqCst);
        // What another node is told of is to be no older than what its own programs have seen.
        let afresh = self.has_others();
        let Some(found) = looked_at(directory, afresh) else { return (rename(), None) };
        let mut known = parts[found.ino as usize % parts.len()].lock().unwrap();
        // Nobody has left a directory since: that is what it is still.
        let again = || looked_at(directory, afresh).filter(|before| before.ino == found.ino);
        let Some(before) = (if left.load(SeqCst) == left_before { Some(found) } else { again() }) else {
            return (rename(), None);
        };
        let Some(number) = self.note_directory(&mut known, &before) else { return (rename(), None) };
        let result = rename();
        keep_modification_time(directory, &before);
        let after = looked_at(directory, false).filter(|after| after.ino == before.ino);
        if let Some(after) = &after {
            self.note_left(number, after);
        }
        self.record(number).flags.fetch_and(!FLAG_RENAMING, SeqCst);
        left.fetch_add(1, SeqCst);
        (result, after.map(|after| [before, after]))
    }

    /// Another node gave a name in the directory to a file of this one: programs here see it as it was `before`.
    pub fn changed_elsewhere(&self, before: &Stat, after: &Stat) {
        let DirectoryTimes { parts, left } = &self.directory_times;
        // A change of these is a program's.
        let kept = |stat: &Stat| (stat.ino, stat.mode, stat.nlink, stat.uid, stat.gid);
        if kept(before) != kept(after) || after.ctime == before.ctime {
            return;
        }
        let mut known = parts[before.ino as usize % parts.len()].lock().unwrap();
        let ours = self.record_of_directory(&known, before.ino);
        let left_at = ours.map_or(0, |number| self.record(number).durable_ctime_ns.load(Acquire));
        if left_at > after.ctime.as_ns() {
            return; // a rename of ours has left it since, and noted that
        }
        // One of ours came in between: what programs see of the directory is noted.
        let noted = ours.filter(|_| left_at > before.ctime.as_ns());
        if let Some(number) = noted.or_else(|| self.note_directory(&mut known, before)) {
            self.note_left(number, after);
            self.record(number).flags.fetch_and(!FLAG_RENAMING, SeqCst);
            left.fetch_add(1, SeqCst);
        }
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

/// `afresh`: as the file system's server has it now, and not as it was known here a moment ago.
fn looked_at(directory: &Path, afresh: bool) -> Option<Stat> {
    let flags = if afresh { AtFlags::STATX_FORCE_SYNC } else { AtFlags::empty() };
    let found = rustix::fs::statx(CWD, directory, flags, StatxFlags::BASIC_STATS).ok()?;
    Some(Stat::from(&found))
}

fn keep_modification_time(directory: &Path, before: &Stat) {
    let Timestamp { seconds, nanoseconds } = before.mtime;
    let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanoseconds);
    if changed.elapsed().is_ok_and(|age| age < QUIET) {
        return;
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() },
    };
    // Only the directory's owner may: for others it shows the time of the commit.
    let _ = rustix::fs::utimensat(CWD, directory, &times, AtFlags::empty());
}
