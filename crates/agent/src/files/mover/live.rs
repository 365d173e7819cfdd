//! Live moves: a file goes elsewhere while programs hold it open.
//!
//!   Moving ─▶ grace (writers wait) ─▶ copy ─▶ grace (names) ─▶ rename over the link ─▶ Moved ─▶ descriptors are exchanged
//!
//! Invariant: between `Moving` and `Moved` no intercepted call writes the old object; after `Moved` every intercepted call
//! looks before it uses a descriptor of it.
//! A file that is mapped, or locked (a lock belongs to the object), can't move: it may grow beyond its tier's capacity
//! as long as the file system has room.

use crate::files::EVICTION_GRACE_URGENT;
use crate::files::Files;
use crate::files::catalogue::BlockReason;
use crate::files::exchange::{MovedFile, birth_ns};
use crate::files::mover::evict::Eviction;
use crate::files::mover::evict::may_have_changed;
use crate::files::mover::flush::{Declined, PrepareOptions};
use crate::files::mover::new_link::NewLink;
use crate::files::reopen::{handle_of, reopen};
use crate::shared::claims::Claim;
use crate::shared::ended::now_ns;
use crate::shared::index_file::object_name;
use crate::shared::index_file::random_half;
use crate::shared::path::as_path;
use crate::shared::schedule::Work;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::control::MoveKind;
use terrace_index::guard::Domain;
use terrace_index::table::root_key;
use terrace_index::{FLAG_MAPPED, FLAG_UNLINKED, State};
use terrace_tier::journal::{StepId, Task};
use terrace_tier::{CopyOptions, FileReading, Reading, Stat, Step, Tier, Writing, copy, reached};

const PATIENCE: Duration = Duration::from_secs(60);
/// A move that is in the way of another change of the name is tried again for so long.
const PATIENCE_MOVING: Duration = Duration::from_secs(2);
/// A file that so many walks in a row do not find has no name. One walk misses what is renamed meanwhile.
const WALKS_MAX: u32 = 5;
/// A writer that we don't reach may change the source under the copy: it is done again so often.
const COPIES: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// Another tier's directory, with so many bytes reserved there.
    Device(usize, i64),
    Root,
}

/// Where the bytes are after the move.
struct NewPlace<'a> {
    record: u32,
    claim: Option<Claim<'a>>,
    handle: OwnedFd,
    /// The source as it was when it was copied.
    copied: Stat,
    sink: Option<Box<dyn Writing>>,
    link: Option<NewLink>,
    /// What the journal is to hear of as done when the record says it.
    steps: Vec<StepId>,
}

impl Files {
    /// The object behind `fd` needs `size` bytes in all. 0: the program tries again.
    pub fn grow(&self, number: u32, fd: &OwnedFd, size: i64) -> i32 {
        let Some(claim) = self.claims.take(number, PATIENCE) else { return libc::EBUSY };
        let record = self.record(number);
        if !matches!(record.state(), State::Current | State::Dead) {
            return 0; // it moved meanwhile: the program looks again
        }
        let Ok(stat) = rustix::fs::fstat(fd) else { return libc::EBADF };
        let stat = Stat::from(&stat);
        let device = self.device_of(number);
        if self.has_room(number, device, size, &stat) {
            return 0;
        }
        let missing = size - record.reserved.load(Acquire);
        let short = (missing - self.index.header.devices[device].free()).max(self.shortage(device, size, &stat));
        self.trim_unlinked();
        self.make_room(device, short.max(0) as u64, EVICTION_GRACE_URGENT);
        self.adjust_capacity();
        if self.has_room(number, device, size, &stat) {
            return 0;
        }
        let from = self.devices[device].tier as u32;
        let is_bound = record.flags.load(SeqCst) & FLAG_MAPPED != 0 || is_locked(&stat);
        let mut errno = libc::ENOSPC;
        if !is_bound {
            let slack = self.index.header.devices[device].grant_max.load(Relaxed);
            let room = size.max(stat.size as i64);
            let next = self.reserve(room + slack, from, Some(device)).map(|device| (device, room + slack));
            let next = next.or_else(|| self.reserve(room, from, Some(device)).map(|device| (device, room)));
            let destination = next.map_or(Destination::Root, |(device, bytes)| Destination::Device(device, bytes));
            match self.move_live(number, fd.as_fd(), destination) {
                Ok(()) => return 0,
                Err(failed) => errno = failed,
            }
        }
        drop(claim);
        // It can't move: let it grow where it is, beyond the capacity, if the bytes can be stored at all.
        if self.shortage(device, size, &stat) <= 0 {
            let missing = (size - record.reserved.load(Acquire)).max(0);
            self.index.header.devices[device].used.fetch_add(missing, AcqRel);
            record.reserved.fetch_add(missing, AcqRel);
            return 0;
        }
        errno
    }

    /// Both the reservation and the file system allow the file its size, or the device has free what is missing.
    fn has_room(&self, number: u32, device: usize, size: i64, stat: &Stat) -> bool {
        let missing = size - self.record(number).reserved.load(Acquire);
        self.shortage(device, size, stat) <= 0 && (missing <= 0 || self.index.header.devices[device].free() >= missing)
    }

    /// Bytes that the file system lacks for the file to reach `size`.
    pub fn shortage(&self, device: usize, size: i64, stat: &Stat) -> i64 {
        let free = self.object_tiers[device].space().map_or(0, |space| space.free.min(i64::MAX as u64) as i64);
        (size - stat.allocated as i64).max(4096) - free
    }

    /// Makes the `Current` file a real one in the root, also while it is open. Err: an errno.
    pub fn settle(&self, number: u32) -> Result<(), i32> {
        let (deadline, patience) = (Instant::now() + PATIENCE, Instant::now() + PATIENCE_MOVING);
        let mut walks = 0;
        loop {
            let serial = self.serial(number);
            match self.prepare(number, &PrepareOptions { whatever_mode: true, ..PrepareOptions::default() }) {
                Ok(file) => {
                    self.flush_batch(vec![file], false, true);
                }
                Err(Declined::NotNeeded) => {
                    return match self.record(number).state() {
                        State::Clean | State::Durable | State::Moved => Ok(()),
                        _ => Err(libc::ENOENT),
                    };
                }
                Err(Declined::BlockReason(BlockReason::Open) | Declined::Read) => match self.move_to_root(number) {
                    // It was renamed at that moment, say: unlike a mapped file it can be moved the next one.
                    Err(libc::EBUSY) if !self.is_bound(number) && Instant::now() < patience => {}
                    moved => moved?,
                },
                Err(Declined::BlockReason(BlockReason::Unlocated)) => {
                    self.drain_events();
                    if self.located(number, serial).is_none() && self.walk_tree() {
                        walks += 1;
                    }
                    // Another node has taken its name away, or given it to another file: whoever asks looks at the name again.
                    if walks >= WALKS_MAX && self.has_others() && self.located(number, serial).is_none() {
                        return Err(libc::ENOENT);
                    }
                }
                Err(Declined::Busy | Declined::BlockReason(_)) => {}
            }
            match self.record(number).state() {
                State::Clean if self.has_others() => {
                    self.let_go_of(number);
                    return Ok(());
                }
                State::Clean => {
                    // Readers keep the object; else it goes at once.
                    if self.evict(number, Duration::ZERO) == Eviction::Open {
                        self.schedule.after(Duration::from_secs(2), Work::Evict, number);
                    }
                    return Ok(());
                }
                State::Durable | State::Moved => return Ok(()),
                State::Dead | State::Free => return Err(libc::ENOENT),
                _ if Instant::now() > deadline => return Err(libc::EBUSY),
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// A live move of an open file to its name in the root.
    pub fn move_to_root(&self, number: u32) -> Result<(), i32> {
        let _claim = self.claims.take(number, PATIENCE).ok_or(libc::EBUSY)?;
        if self.record(number).state() != State::Current {
            return Ok(()); // somebody else was faster
        }
        let object = self.open_object(number).map_err(|error| error.errno())?;
        let fd = object.as_fd().ok_or(libc::EIO)?;
        if self.is_bound(number) {
            return Err(libc::EBUSY);
        }
        self.move_live(number, fd, Destination::Root)
    }

    /// A program has it mapped or locked: the object stays.
    fn is_bound(&self, number: u32) -> bool {
        let is_mapped = self.record(number).flags.load(SeqCst) & FLAG_MAPPED != 0;
        is_mapped || self.open_object(number).and_then(|object| object.stat()).is_ok_and(|stat| is_locked(&stat))
    }

    /// Moves an open file. The caller has the claim; `fd` is any descriptor of the object.
    pub fn move_live(&self, number: u32, fd: BorrowedFd<'_>, destination: Destination) -> Result<(), i32> {
        let (begin_ns, serial) = (now_ns(), self.serial(number));
        let result = self.try_move_live(number, fd, destination);
        // A file that is in use just now stays where it is, which is no failure.
        if !matches!(result, Err(libc::EBUSY)) {
            let bytes = rustix::fs::fstat(fd).map_or(0, |stat| stat.st_size as u64);
            let error = result.err().map(|errno| Errno::from_raw_os_error(errno).to_string());
            self.note_move(MoveKind::LiveMove, number, serial, bytes, begin_ns, error.as_deref());
        }
        if result.is_err()
            && let Destination::Device(device, bytes) = destination
        {
            self.index.header.devices[device].unreserve(bytes);
        }
        result
    }

    fn try_move_live(&self, number: u32, fd: BorrowedFd<'_>, destination: Destination) -> Result<(), i32> {
        let record = self.record(number);
        let serial = self.serial(number);
        let before = record.state();
        let path = match before {
            State::Current => Some(self.located_surely(number, serial).ok_or(libc::EBUSY)?),
            State::Dead => None,
            _ => return Err(libc::EBUSY),
        };
        // The room that a copy of it has may be what it needs.
        self.forget_early(number);
        let source = reopen(fd).map_err(Errno::raw_os_error)?;
        if !record.change_state(before, State::Moving) {
            return Err(libc::EBUSY);
        }
        self.index.header.moves_seq.fetch_add(1, SeqCst);
        // Who changes its attributes at this moment is in a guard of names, and the copy has them.
        let is_still = self.synchronize(Domain::Data) && self.synchronize(Domain::Names);
        // Who locks it from now on finds that it moves, and looks again.
        let moved = if !is_still || record.flags.load(SeqCst) & FLAG_MAPPED != 0 || has_locks(&source) {
            Err(libc::EBUSY)
        } else {
            self.carry(number, path.as_deref(), source.as_fd(), destination)
        };
        let new = match moved {
            Ok(new) => new,
            Err(errno) => {
                record.change_state(State::Moving, before);
                return Err(errno);
            }
        };
        reached(Step::MoveNamed);
        let bytes = rustix::fs::fstat(&source).map_or(0, |stat| stat.st_size as u64);
        self.exchanges.add(
            number,
            MovedFile {
                serial,
                old: source,
                new: new.handle,
                target: new.record,
                target_is_object: destination != Destination::Root,
                _name: new.sink,
            },
        );
        record.moved_to.store(new.record + 1, Release);
        // Unlinked first: a file with this inode and a name is then never the one that moved.
        if path.is_some() {
            let _ = self.remove_object(number);
        }
        record.set_state(State::Moved);
        // Not before: to an agent after this one, a move without its step has not happened.
        self.finish_steps(&new.steps);
        reached(Step::MoveUnlinked);
        self.unreserve(number);
        self.forget_link(number);
        self.totals.moved_live_files.fetch_add(1, Relaxed);
        self.totals.moved_live_bytes.fetch_add(bytes, Relaxed);
        reached(Step::MoveDone);
        Ok(())
    }

    fn located_surely(&self, number: u32, serial: u64) -> Option<Vec<u8>> {
        self.located(number, serial).or_else(|| {
            self.drain_events();
            self.located(number, serial)
        })
    }

    /// Evicts a clean replica that programs read at this moment: their descriptors are exchanged for the root's file, so that
    /// they see what is written to it later. Nothing is copied: the root's file is equal.
    pub fn evict_open(&self, number: u32) -> Eviction {
        let begin_ns = now_ns();
        let Some(_claim) = self.claims.take(number, PATIENCE) else { return Eviction::Open };
        let record = self.record(number);
        let serial = self.serial(number);
        let Some(path) = self.durable_path(number, serial) else { return Eviction::Open };
        let is_mapped = || record.flags.load(SeqCst) & FLAG_MAPPED != 0;
        let (Ok(object), Ok(handle)) = (self.open_object(number), handle_of(as_path(&path))) else {
            return Eviction::Open;
        };
        let Some(Ok(source)) = object.as_fd().map(reopen) else { return Eviction::Open };
        let is_same =
            rustix::fs::fstat(&handle).is_ok_and(|found| self.is_durable_version(number, &Stat::from(&found)));
        drop(object);
        if !is_same || is_mapped() || has_locks(&source) || !record.change_state(State::Clean, State::Moving) {
            return Eviction::Open;
        }
        self.index.header.moves_seq.fetch_add(1, SeqCst);
        reached(Step::ExchangeBegun);
        let is_still = self.synchronize(Domain::Data) && self.synchronize(Domain::Names);
        // Who locks it from now on finds that it moves, and looks again.
        let is_ours = is_still && !is_mapped() && !has_locks(&source);
        // Nor is it evicted under its name while that goes.
        let is_ours = is_ours && record.flags.load(SeqCst) & FLAG_UNLINKED == 0;
        let is_ours = is_ours && self.carry_open(number, serial, &path, &source);
        let bytes = rustix::fs::fstat(&source).map_or(0, |stat| stat.st_size as u64);
        if !is_ours || !self.give_roots_file(number, &path, source, handle) {
            record.change_state(State::Moving, State::Clean);
            return Eviction::Open;
        }
        self.totals.evicted_files.fetch_add(1, Relaxed);
        self.totals.evicted_bytes.fetch_add(bytes, Relaxed);
        self.note_move(MoveKind::Evict, number, serial, bytes, begin_ns, None);
        Eviction::Done
    }

    /// An agent was killed in `evict_open`. Who reads the replica gets the root's file, which may have been written since; false: it can't,
    /// as it is mapped or locked.
    pub fn resume_exchange(&self, number: u32, path: &[u8]) -> bool {
        let (Ok(object), Ok(handle)) = (self.open_object(number), handle_of(as_path(path))) else { return false };
        let Some(Ok(source)) = object.as_fd().map(reopen) else { return false };
        if self.record(number).flags.load(SeqCst) & FLAG_MAPPED != 0 || has_locks(&source) {
            return false;
        }
        let serial = self.serial(number);
        self.catalogue().set_path(number, serial, path);
        let is_same =
            rustix::fs::fstat(&handle).is_ok_and(|found| self.is_durable_version(number, &Stat::from(&found)));
        if is_same && !self.carry_open(number, serial, path, &source) {
            self.warn(format!("{}: a change of its attributes may be lost", as_path(path).display()));
        }
        self.give_roots_file(number, path, source, handle)
    }

    /// The record `Moving` of a replica, `old`, becomes `Moved`, to a new one of the root's file, `handle`. False: there is no record left.
    fn give_roots_file(&self, number: u32, path: &[u8], old: OwnedFd, handle: OwnedFd) -> bool {
        let (record, serial) = (self.record(number), self.serial(number));
        let Some(new) = self.index.take_record() else { return false };
        let target = self.record(new);
        for (to, from) in [
            (&target.ino, &record.ino),
            (&target.durable_size, &record.durable_size),
            (&target.durable_ino, &record.durable_ino),
        ] {
            to.store(from.load(Acquire), Release);
        }
        for (to, from) in [
            (&target.durable_mtime_ns, &record.durable_mtime_ns),
            (&target.durable_ctime_ns, &record.durable_ctime_ns),
            (&target.ctime_ns, &record.ctime_ns),
        ] {
            to.store(from.load(Acquire), Release);
        }
        target.durable_birth_ns.store(birth_ns(handle.as_fd()), Release);
        // First: nobody may work on the new place before programs are awaited there.
        self.exchanges
            .add(number, MovedFile { serial, old, new: handle, target: new, target_is_object: false, _name: None });
        self.count_as(new, self.serial(new), (false, true));
        target.set_state(State::Durable);
        self.index.table_put(root_key(target.durable_ino.load(Acquire)), new);
        self.catalogue().set_path(new, self.serial(new), path);
        self.index.header.evictions_seq.fetch_add(1, SeqCst);
        let _ = self.remove_object(number);
        reached(Step::ExchangeUnlinked);
        record.moved_to.store(new + 1, Release);
        record.set_state(State::Moved);
        self.count_as(number, serial, (false, false));
        self.unreserve(number);
        true
    }

    /// Attributes of the replica `source` that a program changed, and did not yet tell of. False: they could not be carried.
    fn carry_open(&self, number: u32, serial: u64, path: &[u8], source: &OwnedFd) -> bool {
        let Ok(source) = source.try_clone() else { return false };
        let reading = FileReading::from_fd(source, as_path(path));
        let Ok(object) = reading.stat() else { return false };
        let known = self.catalogue().get(number, serial).map_or(0, |entry| entry.object_ctime_ns);
        !may_have_changed(&object, known) || self.carry_from(number, serial, path, (&reading, &object)).is_ok()
    }

    /// Copies, and puts the new place under the name. The old record is `Moving`.
    fn carry(
        &self,
        number: u32,
        path: Option<&[u8]>,
        source: BorrowedFd<'_>,
        destination: Destination,
    ) -> Result<NewPlace<'_>, i32> {
        let fd = source.try_clone_to_owned().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let reading = FileReading::from_fd(fd, self.object_path(number));
        let new = self.index.take_record().ok_or(libc::ENOSPC)?;
        // Nobody else may work on the new place before programs are awaited there.
        let Some(claim) = self.claims.take(new, PATIENCE) else {
            self.index.free_record(new);
            return Err(libc::EBUSY);
        };
        let made = self.make_place(number, new, path, &reading, destination);
        let mut place = made.inspect_err(|_| self.index.free_record(new))?;
        reached(Step::MoveCopied);
        let named = match path {
            Some(path) => self.put_name(number, path, &reading, &mut place, destination),
            None => Ok(()),
        };
        if let Err(errno) = named {
            self.index.table_remove(self.object_key(new), new);
            let record = self.record(new);
            let (ino, link) = (record.durable_ino.load(Acquire), record.link_ino.load(Acquire));
            [ino, link].into_iter().filter(|&ino| ino != 0).for_each(|ino| self.index.table_remove(root_key(ino), new));
            if let Destination::Device(..) = destination {
                let _ = self.remove_object(new);
            }
            drop(place.link);
            self.count_as(new, self.serial(new), (false, false));
            self.catalogue().remove(new);
            self.index.free_record(new);
            return Err(errno);
        }
        place.claim = Some(claim);
        Ok(place)
    }

    /// The copy and its record, under no name yet.
    fn make_place(
        &self,
        number: u32,
        new: u32,
        path: Option<&[u8]>,
        reading: &FileReading,
        destination: Destination,
    ) -> Result<NewPlace<'_>, i32> {
        let (old, record) = (self.record(number), self.record(new));
        record.ino.store(old.ino.load(Acquire), Release);
        record.used_at.store(self.index.header.now.load(Relaxed), Relaxed);
        let random = random_half();
        let (tier, name): (&dyn Tier, PathBuf) = match (destination, path) {
            (Destination::Device(device, _), _) => (&self.object_tiers[device], object_name(new, random)),
            (Destination::Root, Some(path)) => (&self.root_tier, self.relative(path).ok_or(libc::EINVAL)?.into()),
            (Destination::Root, None) => {
                (&self.root_tier, self.private_name().join("tmp").join(object_name(new, random)))
            }
        };
        let (sink, copied) = self.copy_for_move(tier, &name, reading)?;
        let handle = handle_of(sink.path()).map_err(Errno::raw_os_error)?;
        let stat = sink.stat().map_err(|error| error.errno())?;
        let mut place = NewPlace { record: new, claim: None, handle, copied, sink: None, link: None, steps: vec![] };
        match destination {
            Destination::Device(device, bytes) => {
                record.random.store(random, Release);
                record.device.store(device as u32, Release);
                record.object_ino.store(stat.ino, Release);
                record.reserved.store(bytes, Release);
                self.index.table_put(self.object_key(new), new);
                if path.is_some() {
                    sink.commit(&name).map_err(|error| error.errno())?;
                    reached(Step::MoveCommitted);
                    record.set_state(State::Current);
                } else {
                    drop(sink); // the temporary's name goes; the handle keeps the file
                    record.set_state(State::Dead);
                }
            }
            Destination::Root if path.is_some() => {
                // Programs find it as any file of the root, under the inode number that they know.
                record.durable_size.store(stat.size, Release);
                record.durable_mtime_ns.store(stat.mtime.as_ns(), Release);
                record.durable_ctime_ns.store(stat.ctime.as_ns(), Release);
                let shown = reading.stat().map_or(stat.ctime, |object| object.ctime);
                record.ctime_ns.store(shown.as_ns(), Release);
                record.durable_ino.store(stat.ino, Release);
                record.durable_birth_ns.store(birth_ns(place.handle.as_fd()), Release);
                self.index.table_put(root_key(stat.ino), new);
                self.count_as(new, self.serial(new), (false, true));
                record.set_state(State::Durable);
                place.sink = Some(sink);
            }
            Destination::Root => {
                place.sink = self.opens_by_name_only().then_some(sink);
                record.set_state(State::Dead);
            }
        }
        Ok(place)
    }

    /// The root's server may open no file again that has lost its name (ESTALE), whoever has a handle of it.
    pub fn opens_by_name_only(&self) -> bool {
        self.index.header.forgets_removed.load(Relaxed) != 0
    }

    pub fn copy_for_move(
        &self,
        tier: &dyn Tier,
        name: &Path,
        reading: &FileReading,
    ) -> Result<(Box<dyn Writing>, Stat), i32> {
        let options = CopyOptions { abort: Some(&self.abort), ..CopyOptions::default() };
        let mut errno = libc::EIO;
        for _ in 0..COPIES {
            let mut sink = tier.create(name).map_err(|error| error.errno())?;
            match copy(reading, &mut *sink, &options) {
                Ok(copied) => return Ok((sink, copied.source)),
                Err(error) => {
                    errno = error.errno();
                    if !matches!(error, terrace_tier::Error::SourceChanged { .. }) {
                        break;
                    }
                }
            }
        }
        Err(errno)
    }

    /// Gives the new place what programs changed of the source's attributes after the copy. They wait by now.
    fn attributes_since(&self, reading: &FileReading, place: &mut NewPlace<'_>) -> terrace_tier::Result<()> {
        let now = reading.stat()?;
        if now.version() == place.copied.version() {
            return Ok(());
        }
        let attributes = reading.attributes()?;
        let Some(sink) = &mut place.sink else {
            let path = self.object_path(place.record);
            let fd = reopen(place.handle.as_fd()).map_err(|error| terrace_tier::Error::io("open", &path, error))?;
            FileReading::from_fd(fd, path).set_attributes(&attributes)?;
            return Ok(());
        };
        sink.set_attributes(&attributes)?;
        let record = self.record(place.record);
        record.durable_mtime_ns.store(sink.stat()?.mtime.as_ns(), Release);
        record.ctime_ns.store(now.ctime.as_ns(), Release);
        Ok(())
    }

    /// Renames the new place over the old link.
    fn put_name(
        &self,
        number: u32,
        path: &[u8],
        reading: &FileReading,
        place: &mut NewPlace<'_>,
        destination: Destination,
    ) -> Result<(), i32> {
        let raw = Errno::raw_os_error;
        let new = place.record;
        if destination != Destination::Root {
            let link = self.new_link(new, &self.object_path(new)).map_err(raw)?;
            let ino = link.inode().map_err(raw)?;
            self.record(new).link_ino.store(ino, Release);
            self.index.table_put(root_key(ino), new);
            place.link = Some(link);
        }
        let mut step = self.step(Task::Move, Step::MoveJournaled, number, path);
        step.destination = (destination != Destination::Root).then(|| self.place(new));
        let _barrier = self.commit_barrier().ok_or(libc::EBUSY)?;
        let ids = self.begin_steps(vec![step]);
        reached(Step::MoveJournaled);
        let is_still = self.synchronize(Domain::Names) && self.links_to(path, number);
        let ready = if is_still {
            self.attributes_since(reading, place).map_err(|error| error.errno())
        } else {
            Err(libc::EBUSY)
        };
        if let Err(errno) = ready {
            self.finish_steps(&ids);
            return Err(errno);
        }
        let target = as_path(path);
        let directory = target.parent().unwrap_or(Path::new("/"));
        // Noted first: as soon as the name leads there, a program may rename it and tell so.
        self.catalogue().set_path(new, self.serial(new), path);
        self.forget_link(number);
        let renamed = self.unseen_in(directory, || match (place.sink.take(), &mut place.link) {
            (Some(sink), _) => match self.relative(path) {
                Some(relative) if self.has_others() => sink
                    .commit_over(relative, &|replaced| self.is_link_to(replaced, number))
                    .map(|after| self.record(new).durable_ctime_ns.store(after.ctime.as_ns(), Release))
                    // It was renamed or removed elsewhere at that moment.
                    .map_err(|error| if error.is_not_found() { libc::EBUSY } else { error.errno() }),
                Some(relative) => sink
                    .commit(relative)
                    // Renaming changes the time of change: what is remembered is what the root's file has now.
                    .map(|after| self.record(new).durable_ctime_ns.store(after.ctime.as_ns(), Release))
                    .map_err(|error| error.errno()),
                None => Err(libc::EINVAL),
            },
            (None, Some(link)) if self.has_others() => {
                let is_ours = |replaced: &Path| self.is_link_to(replaced, number);
                link.replace(&self.root_tier, target, &is_ours)
                    .map_err(|error| if error == Errno::NOENT { libc::EBUSY } else { raw(error) })
            }
            (None, Some(link)) => link.rename(target).map_err(raw),
            (None, None) => Err(libc::EIO),
        });
        if renamed.is_ok() {
            reached(Step::MoveRenamed);
            place.steps = ids;
        } else {
            self.catalogue().set_path(number, self.serial(number), path);
            self.finish_steps(&ids);
        }
        renamed
    }
}

fn has_locks(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| is_locked(&Stat::from(&stat)))
}

/// A program holds a POSIX, OFD or flock lock on the file: a lock stays with the object, so the object stays.
pub fn is_locked(stat: &Stat) -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/locks") else { return false };
    let wanted = format!("{:02x}:{:02x}:{}", rustix::fs::major(stat.dev), rustix::fs::minor(stat.dev), stat.ino);
    text.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1).filter(|field| *field != "->");
        let is_lock = matches!(fields.next(), Some("POSIX" | "FLOCK" | "OFDLCK"));
        is_lock && fields.any(|field| field == wanted)
    })
}
