//! What programs tell: the ring of names.
//!
//!   ring ─▶ names ─▶ catalogue ─▶ schedule
//!
//! The reader is behind one lock: the event thread drains the ring all the time, and whoever needs to know what has
//! happened up to now (a flush at the end of a run) drains it once more.
//! When something was lost (a program killed while it told us, the kernel's queue full) the tree and the tiers are walked.

use crate::files::Files;
use crate::shared::index_file::is_dead;
use crate::shared::schedule::Work;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::policy::Mode as PolicyMode;
use terrace_index::ring::{EventKind, EventPaths, NO_RECORD, Next};
use terrace_index::table::root_key;
use terrace_index::{Index, PATH_MAX, State};

pub struct EventReader {
    /// Since when the oldest position of the ring is claimed and not filled.
    busy_since: Option<Instant>,
    /// Names were lost: walk the tree.
    pub wants_walk: bool,
    /// Closings were lost: look at every record.
    pub wants_rescan: bool,
    /// Small files that programs had made in the root, of which they tell nothing else.
    small_files: u64,
    paths: Box<EventPaths>,
}

/// A producer that has not even said its pid after so long was killed.
const NAMELESS_PATIENCE: Duration = Duration::from_secs(2);

impl Default for EventReader {
    fn default() -> EventReader {
        EventReader {
            busy_since: None,
            wants_walk: false,
            wants_rescan: false,
            small_files: 0,
            paths: Box::new([0; 2 * PATH_MAX]),
        }
    }
}

impl EventReader {
    /// Since it was last asked.
    fn has_made_small_files(&mut self, index: &Index) -> bool {
        let now = index.header.creates_small.load(Relaxed);
        std::mem::replace(&mut self.small_files, now) != now
    }
}

impl Files {
    /// Takes in all that has been told up to now. How many tidings there were.
    pub fn drain_events(&self) -> usize {
        let mut reader = self.event_reader.lock().unwrap();
        let reader = &mut *reader;
        // Closings first: a file's name is in the ring before it is closed.
        let closed = self.closings.read();
        reader.wants_rescan |= closed.are_incomplete;
        let mut count = closed.files.len();
        loop {
            match self.index.ring_peek(&mut reader.paths) {
                Next::Empty => {
                    reader.busy_since = None;
                    break;
                }
                Next::Busy(pid) => {
                    let since = *reader.busy_since.get_or_insert_with(Instant::now);
                    let is_lost = if pid == 0 { since.elapsed() > NAMELESS_PATIENCE } else { is_dead(pid) };
                    if !is_lost {
                        break;
                    }
                    self.index.ring_pop();
                    reader.busy_since = None;
                    reader.wants_walk = true;
                }
                Next::Event { kind, record, path, path2 } => {
                    reader.busy_since = None;
                    self.take_in(kind, record, path, path2);
                    self.index.ring_pop();
                    count += 1;
                }
            }
        }
        if count > 0 || reader.has_made_small_files(&self.index) {
            self.schedule.note_told();
        }
        for (number, serial) in closed.files {
            if self.serial(number) == serial {
                self.written(number);
            }
        }
        count
    }

    /// Sleeps until a program rings the bell because the ring fills, at most so long.
    pub fn sleep_until_bell(&self, patience: Duration) {
        let bell = &self.index.header.bell;
        bell.store(1, SeqCst);
        if !self.index.ring_is_filling() {
            let timeout = libc::timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos() as i64 };
            // SAFETY: the futex is a word of the mapped index; it says at once if the word is no longer 1.
            unsafe { libc::syscall(libc::SYS_futex, bell as *const _, libc::FUTEX_WAIT, 1, &raw const timeout) };
        }
        bell.store(0, SeqCst);
    }

    /// Ends `sleep_until_bell`.
    pub fn wake_from_sleep(&self) {
        let bell = &self.index.header.bell;
        bell.store(0, SeqCst);
        // SAFETY: the futex is a word of the mapped index.
        unsafe { libc::syscall(libc::SYS_futex, bell as *const _, libc::FUTEX_WAKE, 1) };
    }

    fn take_in(&self, kind: u32, number: u32, path: &[u8], path2: &[u8]) {
        const CREATED: u32 = EventKind::Created as u32;
        const RENAMED: u32 = EventKind::Renamed as u32;
        const REMOVED: u32 = EventKind::Removed as u32;
        const INVALIDATED: u32 = EventKind::Invalidated as u32;
        const UNCOUNTED: u32 = EventKind::Uncounted as u32;
        const GROWN: u32 = EventKind::Grown as u32;
        if kind == RENAMED && number == NO_RECORD {
            let moved = self.catalogue().rename_directory(path, path2);
            moved.into_iter().for_each(|record| self.policy_may_differ(record));
            return;
        }
        if self.index.record(number).is_none() {
            return; // a message that makes no sense is no reason to end
        }
        match kind {
            CREATED => {
                self.named(number, path);
                self.written(number);
                self.plan_learning(number);
            }
            RENAMED => {
                self.named(number, path2);
                self.policy_may_differ(number);
            }
            REMOVED => self.removed(number),
            INVALIDATED => self.invalidated(number),
            UNCOUNTED => self.watch_growth(number),
            GROWN => self.plan_early(number),
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
        if !matches!(record.state(), State::Current | State::Directory) {
            return;
        }
        // Held until it is noted: a commit may remove the link, and its inode number must not be another file's by then, whose
        // entry in the table ours would replace.
        let Some((_link, found)) = self.link_inode(path, number) else { return };
        let before = record.link_ino.swap(found, AcqRel);
        if before != found {
            if before != 0 {
                self.index.table_remove(root_key(before), number);
            }
            self.index.table_put(root_key(found), number);
        }
        if !matches!(record.state(), State::Current | State::Committing | State::Directory) {
            self.forget_link(number);
        }
    }

    /// The inode of the link at `path`, if it leads to this record's object. One handle for both looks: the name may be given
    /// to another link in between.
    fn link_inode(&self, path: &[u8], number: u32) -> Option<(OwnedFd, u64)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let link = rustix::fs::open(OsStr::from_bytes(path), flags, Mode::empty()).ok()?;
        // First what the kernel knows since the link was made: reading a link changes its access time, and a server would be asked.
        let found = rustix::fs::fstat(&link).ok()?;
        let text = rustix::fs::readlinkat(&link, "", Vec::new()).ok()?;
        let is_ours = text.as_bytes() == self.object_path(number).as_os_str().as_bytes();
        is_ours.then_some((link, found.st_ino))
    }

    /// A new name may have another policy.
    fn policy_may_differ(&self, number: u32) {
        self.look_at_early(number);
        match self.record(number).state() {
            State::Current => self.written(number),
            State::Clean => self.plan_eviction(number),
            _ => {}
        }
    }

    /// A clean replica that policy wants out of the tier.
    pub fn plan_eviction(&self, number: u32) {
        let path = self.catalogue().path(number, self.serial(number));
        if path.is_some_and(|path| self.mode(&path) == PolicyMode::Move) {
            self.schedule.after(crate::files::EVICTION_GRACE, Work::Evict, number);
        }
    }

    pub fn removed(&self, number: u32) {
        let serial = self.serial(number);
        let record = self.record(number);
        if self.places_directories() && record.state() == State::Dead {
            // A directory's container has links in it, if they led a program on.
            let container = self.container(number);
            if container.is_dir() {
                self.discard_container(&container);
            }
            self.schedule.now(Work::Look, number); // its mirror goes
        }
        self.look_at_early(number);
        if matches!(record.state(), State::Clean | State::Durable) {
            // The root's file is gone; its replica goes as well, when no reader has it open.
            self.forget_durable(number);
            self.schedule.after(crate::files::EVICTION_GRACE_URGENT, Work::Evict, number);
        }
        let link = record.link_ino.swap(0, AcqRel);
        if link != 0 {
            self.index.table_remove(root_key(link), number);
        }
        self.recount(number, serial);
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(number, serial);
        entry.since = Instant::now();
        entry.blocked_by = None;
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
            let stays = entry.is_some_and(|entry| {
                let is_trimmed = entry.trimmed_to == record.reserved.load(Acquire);
                is_trimmed && !entry.path.is_empty() && !entry.is_forced && !self.mode(&entry.path).flushes()
            });
            drop(catalogue);
            if !stays {
                self.schedule.after_unless_planned(self.settle_time(), Work::Look, number);
            }
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
