//! When a file that was written in a tier is closed, and quiet.
//!
//!   made, promoted, closed ──settle──▶ look ──▶ open for writing? ─yes─▶ watch it ─▶ closed
//!                                       │  ▲           │no
//!                                       └──┘ changed   ▼
//!                                       lately?     give back what it reserved and didn't use ─▶ flush, if policy wants it
//!
//! Whether somebody has it open for writing, in any program, is asked by a lease. Only a file that is open so long is
//! watched: a watch on the whole object directory would make every read and write of every file in it slower (the kernel
//! then looks for who is interested in each), and cost a message for each file that is closed.

use crate::files::Files;
use crate::files::catalogue::BlockReason;
use crate::shared::index_file::live_programs;
use crate::shared::schedule::Work;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use terrace_index::habits::Key;
use terrace_index::{FLAG_LEARNT, FLAG_MAPPED, State};
use terrace_tier::{Lease, Tier};

/// In the root, for small files.
const ROOT_ROOM: u64 = 64 << 20;
/// Most programs have written a small file in this time.
const LEARNING: Duration = Duration::from_millis(10);
/// A closing between the look and the watch is not told: one more look finds it.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How often an open file is looked at that can't be watched (the kernel's limit), and one that is.
const UNWATCHED: Duration = Duration::from_millis(500);
const WATCHED: Duration = Duration::from_secs(5);
/// Of an early copy, one chunk may have to be written first.
const EARLY_PATIENCE: Duration = Duration::from_millis(100);
/// A program that told of a name so lately is about to tell of another.
const BUSY: Duration = Duration::from_millis(100);
/// How often a small file looks for a pause: seldom, for there may be very many. It waits at most so long.
const YIELDING: Duration = Duration::from_millis(500);
const YIELDING_MAX: Duration = Duration::from_secs(2);
/// Of a larger one, the copy takes longer than the requests.
const SMALL_BYTES: i64 = 1 << 20;

pub struct Closings {
    inotify: OwnedFd,
    watches: Mutex<Watches>,
}

#[derive(Default)]
struct Watches {
    by_descriptor: HashMap<i32, (u32, u64)>,
    files: HashSet<(u32, u64)>,
}

#[derive(Default)]
pub struct Closed {
    /// Records and their serials.
    pub files: Vec<(u32, u64)>,
    /// The kernel had more to tell than it keeps.
    pub are_incomplete: bool,
}

impl Closings {
    pub fn new() -> rustix::io::Result<Closings> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Closings { inotify, watches: Mutex::default() })
    }

    /// True if the file is watched from now on, and was not before.
    fn watch(&self, object: &Path, file: (u32, u64)) -> rustix::io::Result<bool> {
        let mut watches = self.watches.lock().unwrap();
        if watches.files.contains(&file) {
            return Ok(false);
        }
        let flags = WatchFlags::CLOSE_WRITE | WatchFlags::ONESHOT | WatchFlags::DONT_FOLLOW;
        let descriptor = inotify::add_watch(&self.inotify, object, flags)?;
        if let Some(before) = watches.by_descriptor.insert(descriptor, file) {
            watches.files.remove(&before);
        }
        watches.files.insert(file);
        Ok(true)
    }

    /// What was closed since it was last asked.
    pub fn read(&self) -> Closed {
        let mut closed = Closed::default();
        let mut watches = self.watches.lock().unwrap();
        let mut buffer = [MaybeUninit::uninit(); 4 << 10];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            closed.are_incomplete |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            if event.events().contains(ReadFlags::CLOSE_WRITE) {
                closed.files.extend(watches.by_descriptor.get(&event.wd()));
            }
            // After the one closing that was asked for, and when the object is gone.
            if event.events().contains(ReadFlags::IGNORED)
                && let Some(file) = watches.by_descriptor.remove(&event.wd())
            {
                watches.files.remove(&file);
            }
        }
        closed
    }
}

impl Files {
    pub fn settle_time(&self) -> Duration {
        Duration::from_millis(self.settings.mover.settle_ms)
    }

    /// The record's object was made or closed by one who could write it: look at it soon.
    pub fn written(&self, number: u32) {
        match self.record(number).state() {
            State::Current | State::Committing | State::New | State::Moving => {
                self.schedule.after(self.settle_time(), Work::Look, number);
            }
            State::Directory => self.plan_mirror(number),
            // Unlinked before it was closed: nobody else will give its room back.
            State::Dead => {
                self.unreserve(number);
            }
            _ => {}
        }
    }

    /// A mover thread's job: is the file closed and quiet? Then its surplus is given back, and it is flushed if policy wants.
    pub fn look(&self, number: u32) {
        let serial = self.serial(number);
        match self.record(number).state() {
            State::Current => {}
            State::Committing | State::New | State::Moving => {
                return self.schedule.after(self.settle_time(), Work::Look, number);
            }
            State::Directory => return self.look_into(number),
            _ => return self.forget_mirror(number),
        }
        if let Some(rest) = self.unquiet(number) {
            return self.schedule.after(rest, Work::Look, number);
        }
        match self.trim(number) {
            Trimmed::Open => return self.postpone(number, serial, BlockReason::Open),
            Trimmed::Done | Trimmed::Busy => {}
        }
        if self.yields(number) {
            return self.schedule.after(YIELDING, Work::Look, number);
        }
        let catalogue = self.catalogue();
        let entry = catalogue.get(number, serial);
        let stays =
            entry.is_some_and(|entry| !entry.path.is_empty() && !entry.is_forced && !self.mode(&entry.path).flushes());
        drop(catalogue);
        if !stays {
            self.schedule.now(Work::Flush, number);
        }
    }

    /// For how long the object must still be left alone until it is unchanged for the settling time.
    fn unquiet(&self, number: u32) -> Option<Duration> {
        let found = rustix::fs::lstat(self.object_path(number)).ok()?;
        let changed = Duration::new(found.st_ctime.try_into().ok()?, found.st_ctime_nsec as u32);
        let age = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.checked_sub(changed)?;
        self.settle_time().checked_sub(age).filter(|rest| !rest.is_zero())
    }

    /// A program makes and removes names just now, so the durable tier's server has its requests to answer. What a small file costs
    /// are such requests: it waits for a pause, and goes with others then; but not for long, nor where room may be wanted soon.
    fn yields(&self, number: u32) -> bool {
        if self.schedule.is_hurried() || self.schedule.since_told().is_none_or(|since| since >= BUSY) {
            return false;
        }
        let device = &self.index.header.devices[self.device_of(number)];
        if device.free() < device.capacity.load(Relaxed) / 2 {
            return false;
        }
        let Ok(found) = rustix::fs::lstat(self.object_path(number)) else { return false };
        let changed = UNIX_EPOCH + Duration::new(found.st_ctime.max(0) as u64, found.st_ctime_nsec as u32);
        found.st_size <= SMALL_BYTES && changed.elapsed().is_ok_and(|age| age < self.settle_time() + YIELDING_MAX)
    }

    /// Sees to it that we hear when the file is closed. When it is to be looked at in any case.
    pub fn await_closing(&self, number: u32, serial: u64) -> Duration {
        match self.closings.watch(&self.object_path(number), (number, serial)) {
            Ok(true) => LOOK_AGAIN,
            Ok(false) => WATCHED,
            Err(_) => UNWATCHED,
        }
    }

    /// Gives back what a file that nobody writes has reserved and not used.
    fn trim(&self, number: u32) -> Trimmed {
        let claim = if self.has_early(number) {
            // An early copy gives way at once.
            self.claims.take(number, EARLY_PATIENCE)
        } else {
            self.claims.try_take(number)
        };
        let Some(_claim) = claim else { return Trimmed::Busy };
        let Ok(object) = self.open_object(number) else { return Trimmed::Busy };
        let fd = object.as_fd().expect("an object is a file of a directory");
        let serial = self.serial(number);
        let record = self.record(number);
        if self.exchanges.is_awaited(number) {
            return Trimmed::Open;
        }
        let alone = Lease::exclusive(fd).ok().flatten();
        let is_alone = alone.is_some();
        let lease = match alone {
            Some(lease) => Ok(Some(lease)),
            None => Lease::read(fd),
        };
        let _lease = match lease {
            Ok(Some(lease)) => lease,
            Ok(None) => return Trimmed::Open,
            Err(_) => return Trimmed::Busy,
        };
        if is_alone {
            // A mapping keeps its file open: there is none.
            record.flags.fetch_and(!FLAG_MAPPED, SeqCst);
        }
        let Ok(stat) = object.stat() else { return Trimmed::Busy };
        if record.object_ino.load(Acquire) == stat.ino && record.state() == State::Current {
            let surplus = record.reserved.load(Acquire) - stat.allocated.max(stat.size) as i64;
            let before = record.reserved.fetch_sub(surplus, AcqRel);
            self.index.header.devices[self.device_of(number)].unreserve(surplus);
            self.catalogue().entry(number, serial).trimmed_to = before - surplus;
            // A program has closed a file that it made: by its size the next ones find their place.
            self.index.habits.learn(record, stat.size);
        }
        Trimmed::Done
    }

    /// Small files are made in the root where policy keeps all files, and where nobody may soon wish to have the room in a tier.
    pub fn learn_while_the_root_has_room(&self) {
        let learns = self.settings.small_files.learns(&self.policy);
        let has_room = || self.root_tier.space().is_ok_and(|space| space.free >= ROOT_ROOM);
        self.index.header.learning.store((learns && has_room()) as u32, Relaxed);
    }

    /// A program has made a file: if its habit is not known yet, its size is looked at as soon as it may be closed.
    pub fn plan_learning(&self, number: u32) {
        let key = Key::from_number(self.record(number).habit.load(Relaxed));
        if key.is_some_and(|key| self.index.habits.is_open(key)) {
            self.schedule.after(LEARNING, Work::Learn, number);
        }
    }

    /// A mover thread's job.
    pub fn learn_early(&self, number: u32) {
        let record = self.record(number);
        if record.state() == State::Current && record.flags.load(Relaxed) & FLAG_LEARNT == 0 {
            self.trim(number);
        }
    }

    /// Gives back the room of files that were unlinked while they were open, and are closed by now: no name leads to them, so
    /// who has them open is looked up among the descriptors of the programs.
    pub fn trim_unlinked(&self) {
        let unlinked: Vec<u32> = (0..self.index.records_end())
            .filter(|&number| {
                let record = self.record(number);
                record.state() == State::Dead && record.reserved.load(Acquire) > 0
            })
            .collect();
        if unlinked.is_empty() {
            return;
        }
        let Some(open) = open_files(live_programs(&self.index)) else { return };
        for number in unlinked {
            let record = self.record(number);
            let object = (self.devices[self.device_of(number)].dev, record.object_ino.load(Acquire));
            if record.state() == State::Dead && !open.contains(&object) {
                self.unreserve(number);
            }
        }
    }
}

enum Trimmed {
    Done,
    /// Somebody may write it.
    Open,
    /// Somebody else has it in hand, or it can't be looked at.
    Busy,
}

/// (device, inode) of all that these processes have open. `None` if one of them can't be looked at.
fn open_files(pids: impl Iterator<Item = u32>) -> Option<HashSet<(u64, u64)>> {
    let mut open = HashSet::new();
    for pid in pids {
        match std::fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(descriptors) => {
                let found = descriptors.flatten().filter_map(|entry| std::fs::metadata(entry.path()).ok());
                open.extend(found.map(|found| (found.dev(), found.ino())));
            }
            // It has ended.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    Some(open)
}
