//! What programs tell (the ring) and what the kernel tells (a file written in a tier was closed).
//!
//!   ring ─▶ names ─▶ catalogue          inotify ─▶ closed ─▶ schedule
//!
//! The pump is behind one lock: the event thread turns it all the time, and whoever needs to know what has happened up
//! to now (a flush at the end of a run) turns it once more.
//! When something was lost (a program killed while it told us, the kernel's queue full) the tree and the tiers are walked.

use crate::agent::Agent;
use crate::index_file::{DevicePlace, is_dead};
use crate::schedule::Work;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::policy::Mode as PolicyMode;
use terrace_index::ring::{EventKind, NO_RECORD, Next};
use terrace_index::table::root_key;
use terrace_index::{FLAG_MAPPED, State, parse_name};
use terrace_tier::Lease;

pub struct Pump {
    inotify: OwnedFd,
    /// Since when the oldest position of the ring is claimed and not filled.
    busy_since: Option<Instant>,
    /// Names were lost: walk the tree.
    pub wants_walk: bool,
    /// Closings were lost: look at every record.
    pub wants_rescan: bool,
}

/// A producer that has not even said its pid after so long was killed.
const NAMELESS_PATIENCE: Duration = Duration::from_secs(2);

impl Pump {
    pub fn new(devices: &[DevicePlace]) -> rustix::io::Result<Pump> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        for device in devices {
            inotify::add_watch(&inotify, &device.dir, WatchFlags::CLOSE_WRITE)?;
        }
        Ok(Pump { inotify, busy_since: None, wants_walk: false, wants_rescan: false })
    }

    pub fn watch(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

impl Agent {
    /// Takes in all that has been told up to now. How many tidings there were.
    pub fn pump(&self) -> usize {
        let mut pump = self.pump.lock().unwrap();
        // Closings first: a file's name is in the ring before it is closed.
        let closed = self.read_closings(&mut pump);
        let mut count = closed.len();
        loop {
            match self.index.ring_peek() {
                Next::Empty => {
                    pump.busy_since = None;
                    break;
                }
                Next::Busy(pid) => {
                    let since = *pump.busy_since.get_or_insert_with(Instant::now);
                    let is_lost = if pid == 0 { since.elapsed() > NAMELESS_PATIENCE } else { is_dead(pid) };
                    if !is_lost {
                        break;
                    }
                    self.index.ring_pop();
                    pump.busy_since = None;
                    pump.wants_walk = true;
                }
                Next::Event { kind, record, path, path2 } => {
                    pump.busy_since = None;
                    self.take_in(kind, record, path, path2);
                    self.index.ring_pop();
                    count += 1;
                }
            }
        }
        for record in closed {
            self.closed(record);
        }
        count
    }

    fn read_closings(&self, pump: &mut Pump) -> Vec<u32> {
        let mut closed = vec![];
        let mut buffer = [MaybeUninit::uninit(); 16 << 10];
        let mut overflowed = false;
        let mut reader = Reader::new(&pump.inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                overflowed = true;
            }
            if let Some(name) = event.file_name()
                && let Some((number, random)) = parse_name(name.to_bytes())
                && self.index.record(number).is_some_and(|record| record.random.load(Acquire) == random)
            {
                closed.push(number);
            }
        }
        pump.wants_rescan |= overflowed;
        closed
    }

    fn take_in(&self, kind: u32, number: u32, path: &[u8], path2: &[u8]) {
        const CREATED: u32 = EventKind::Created as u32;
        const RENAMED: u32 = EventKind::Renamed as u32;
        const REMOVED: u32 = EventKind::Removed as u32;
        const INVALIDATED: u32 = EventKind::Invalidated as u32;
        if kind == RENAMED && number == NO_RECORD {
            let moved = self.catalogue().rename_directory(path, path2);
            moved.into_iter().for_each(|record| self.policy_may_differ(record));
            return;
        }
        if self.index.record(number).is_none() {
            return; // a message that makes no sense is no reason to end
        }
        match kind {
            CREATED => self.named(number, path),
            RENAMED => {
                self.named(number, path2);
                self.policy_may_differ(number);
            }
            REMOVED => self.removed(number),
            INVALIDATED => self.invalidated(number),
            _ => {}
        }
    }

    /// The record's name is `path`: notes it, and the inode of its link, by which directory listings find the record.
    pub fn named(&self, number: u32, path: &[u8]) {
        let serial = self.serial(number);
        if serial == 0 {
            return;
        }
        self.catalogue().set_path(number, serial, path);
        let record = self.record(number);
        if record.state() != State::Current {
            return;
        }
        let Some(found) = self.link_inode(path, number) else { return };
        let before = record.link_ino.swap(found, AcqRel);
        if before != found {
            if before != 0 {
                self.index.table_remove(root_key(before), number);
            }
            self.index.table_put(root_key(found), number);
        }
    }

    /// The inode of the link at `path`, if it leads to this record's object. One handle for both looks: the name may be given
    /// to another link in between.
    fn link_inode(&self, path: &[u8], number: u32) -> Option<u64> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty()).ok()?;
        let text = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        let is_ours = text.as_bytes() == self.object_path(number).as_os_str().as_bytes();
        is_ours.then(|| rustix::fs::fstat(&link).map(|found| found.st_ino).ok())?
    }

    /// A new name may have another policy.
    fn policy_may_differ(&self, number: u32) {
        match self.record(number).state() {
            State::Current => self.closed(number),
            State::Clean => self.plan_eviction(number),
            _ => {}
        }
    }

    /// The record's object was closed by one who could write it: flush it soon, if policy wants that.
    pub fn closed(&self, number: u32) {
        match self.record(number).state() {
            State::Current | State::Committing | State::New | State::Moving => {
                self.trim(number);
                let settle = Duration::from_millis(self.settings.mover.settle_ms);
                self.schedule.after(settle, Work::Flush, number);
            }
            // Unlinked before it was closed: nobody else will give its room back.
            State::Dead => {
                self.unreserve(number);
            }
            _ => {}
        }
    }

    /// Gives back what a file that nobody writes has reserved and not used.
    fn trim(&self, number: u32) {
        let Some(_claim) = self.claims.try_take(number) else { return };
        let Ok(object) = self.open_object(number) else { return };
        let fd = object.as_fd().expect("an object is a file of a directory");
        let record = self.record(number);
        let alone = Lease::exclusive(fd).ok().flatten();
        let is_alone = alone.is_some();
        let Some(_lease) = alone.or_else(|| Lease::read(fd).ok().flatten()) else { return };
        if is_alone {
            // A mapping keeps its file open: there is none.
            record.flags.fetch_and(!FLAG_MAPPED, SeqCst);
        }
        let Ok(stat) = object.stat() else { return };
        if record.object_ino.load(Acquire) == stat.ino && record.state() == State::Current {
            let surplus = record.reserved.load(Acquire) - stat.allocated.max(stat.size) as i64;
            record.reserved.fetch_sub(surplus, AcqRel);
            self.index.header.devices[self.device_of(number)].unreserve(surplus);
        }
    }

    /// A clean replica that policy wants out of the tier.
    pub fn plan_eviction(&self, number: u32) {
        let path = self.catalogue().path(number, self.serial(number));
        if path.is_some_and(|path| self.mode(&path) == PolicyMode::Move) {
            self.schedule.after(crate::mover::EVICTION_GRACE, Work::Evict, number);
        }
    }

    fn removed(&self, number: u32) {
        let serial = self.serial(number);
        let record = self.record(number);
        if matches!(record.state(), State::Clean | State::Durable) {
            // The root's file is gone; its replica goes as well, when no reader has it open.
            self.forget_durable(number);
            self.schedule.after(crate::mover::EVICTION_GRACE_URGENT, Work::Evict, number);
        }
        let link = record.link_ino.swap(0, AcqRel);
        if link != 0 {
            self.index.table_remove(root_key(link), number);
        }
        self.recount(number, serial);
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(number, serial);
        entry.since = Instant::now();
        entry.obstacle = None;
        let path = std::mem::take(&mut entry.path);
        let held = std::mem::take(&mut entry.held);
        catalogue.set_path(number, serial, b"");
        drop(catalogue);
        self.failures.lock().unwrap().remove(&path);
        if held {
            // Its inode may be the one that programs were shown: kept until we end.
            let _ = std::fs::remove_file(self.held_dir().join(self.object_name(number)));
        }
    }

    fn invalidated(&self, number: u32) {
        let record = self.record(number);
        if record.state() == State::Clean {
            record.change_state(State::Clean, State::Durable);
        }
        self.recount(number, self.serial(number));
        if record.state() == State::Durable && record.object_ino.load(Acquire) != 0 {
            self.schedule.now(Work::Evict, number);
        }
    }

    /// Looks at every record: what is written and closed is planned, and what has no name that we know is searched for.
    pub fn rescan(&self) -> bool {
        let mut is_anything_nameless = false;
        for number in 0..self.index.records_end() {
            let record = self.record(number);
            let serial = record.serial.load(Acquire);
            if serial == 0 || record.state() != State::Current {
                continue;
            }
            let catalogue = self.catalogue();
            let entry = catalogue.get(number, serial);
            is_anything_nameless |= entry.is_none_or(|entry| entry.path.is_empty());
            let stays = entry
                .is_some_and(|entry| !entry.path.is_empty() && !entry.is_forced && !self.mode(&entry.path).flushes());
            drop(catalogue);
            if stays {
                continue;
            }
            self.schedule.after_unless_planned(
                Duration::from_millis(self.settings.mover.settle_ms),
                Work::Flush,
                number,
            );
        }
        is_anything_nameless
    }

    /// A record's name after all events, checked: the link at it is to this record's object.
    pub fn located(&self, number: u32, serial: u64) -> Option<Vec<u8>> {
        let path = self.catalogue().path(number, serial)?;
        if self.links_to(&path, number) {
            return Some(path);
        }
        let later = self.catalogue().after_renames(&path)?;
        if !self.links_to(&later, number) {
            return None;
        }
        self.catalogue().set_path(number, serial, &later);
        Some(later)
    }
}
