//! Files of placed directories grow beyond their tier: they have no record, and are given one to move by.
//!
//!   no room ─▶ who has it open, or mapped? ─▶ record, `Moving` ─▶ grace (writers wait) ─▶ copy below `spill/` of a lower place
//!           ─▶ who has it now? ─▶ the link and the file exchange their names ─▶ the file's own goes ─▶ `Moved` ─▶ descriptors are exchanged
//!
//! Invariant: the name leads to the file or to its whole copy; and before `Moved` no intercepted call writes the copy, after it none the
//! file. Who is killed in between leaves flags in the record by which the next agent goes on (`resume_spill`).
//! A file that somebody has open without the library, has mapped shared, locked, or named twice, does not move: it goes on to grow where
//! it is as long as the file system has room.

use crate::files::directories::each_below;
use crate::files::exchange::MovedFile;
use crate::files::mover::holders::{DELETED, Wanted, holders};
use crate::files::mover::live::is_locked;
use crate::files::reopen::{handle_of, reopen};
use crate::files::{EVICTION_GRACE_URGENT, Files};
use crate::shared::ended::{Move, now_ns};
use crate::shared::index_file::{object_name, random_half};
use crate::shared::path::{as_path, read_link};
use rustix::fs::{CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use terrace_core::control::MoveKind;
use terrace_index::guard::Domain;
use terrace_index::ring::NO_RECORD;
use terrace_index::{FLAG_NAMED, FLAG_SPILLED, FLAG_SPILLED_ROOT, FLAG_UNRECORDED, INSIDE_BASE, SPILLS, Spill, State};
use terrace_tier::{FileReading, Reading, Stat, Step, Tier, past_leases, reached};

/// The directory above may be renamed while the file is copied.
const NAMINGS: usize = 3;
/// What is made free when a name has no room, and so many files are tried for it.
const NAME_ROOM: u64 = 1 << 20;
const NAME_FILES: usize = 64;
/// A tier's file system with less than this part of the tier's room free, up to so much, gets room before it is full: who writes
/// without the library asks nobody.
const LOW_PART: i64 = 8;
const LOW_MAX: i64 = 64 << 20;

/// Where a file goes.
enum To {
    /// A lower tier with so much room, or the root.
    Lower(i64),
    Root,
}

impl Files {
    /// The file behind `fd`, which has no record, needs `size` bytes in all. `NO_RECORD`: it may grow where it is. Err: an errno, of
    /// which ENOENT means that it lies in no placed directory.
    pub fn grow_unrecorded(&self, fd: &OwnedFd, size: i64) -> Result<u32, i32> {
        let raw = Errno::raw_os_error;
        let _one_at_a_time = self.spilling.lock().unwrap();
        let stat = Stat::from(&rustix::fs::fstat(fd).map_err(raw)?);
        // Another program's call, or thread's, was first.
        if let Some(number) = self.index.record_of_object(stat.dev, stat.ino, stat.nlink) {
            return Ok(number);
        }
        let device = self.device_inside(&name_of(fd, &stat).ok_or(libc::ENOENT)?).ok_or(libc::ENOENT)?;
        if self.has_room_inside(device, size, &stat) {
            return Ok(NO_RECORD);
        }
        let missing = (size - stat.allocated as i64).max(0);
        let free = self.index.header.devices[device].free();
        let short = (missing - free).max(self.shortage(device, size, &stat));
        self.make_room(device, short.max(0) as u64, EVICTION_GRACE_URGENT);
        self.adjust_capacity();
        if self.has_room_inside(device, size, &stat) {
            return Ok(NO_RECORD);
        }
        // From now on programs look for links in placed directories.
        self.index.header.spilling.store(1, SeqCst);
        let moved = match stat.nlink < 2 && !is_locked(&stat) {
            true => self.spill(fd, &stat, device, To::Lower(size.max(stat.size as i64))),
            false => Err(libc::ENOSPC),
        };
        match moved {
            // It can't move: let it grow beyond the capacity, if the bytes can be stored at all.
            Err(_) if self.shortage(device, size, &stat) <= 0 => Ok(NO_RECORD),
            moved => moved,
        }
    }

    /// The file system of a placed directory's tier has no room for another name: replicas go, and large files that nobody has open
    /// move down. Err: nothing could.
    pub fn make_room_for_names(&self, directory: u32) -> Result<(), i32> {
        self.make_room_on(self.device_of(directory), NAME_ROOM).then_some(()).ok_or(libc::ENOSPC)
    }

    /// Where somebody who asks nobody may be writing, a tier's file system is kept from becoming full. True: nothing could be moved.
    pub fn keep_room_for_unseen(&self) -> bool {
        let mut directories: Vec<u32> =
            (0..self.index.records_end()).filter(|&number| self.is_directory(number)).collect();
        directories.sort_by_key(|&number| self.device_of(number));
        directories.dedup_by_key(|number| self.device_of(*number));
        let mut is_stuck = false;
        for device in directories.into_iter().map(|number| self.device_of(number)) {
            let low = (self.devices[device].capacity / LOW_PART).min(LOW_MAX) as u64;
            let free = self.free_on(device);
            if free < low {
                self.index.header.spilling.store(1, SeqCst);
                is_stuck |= !self.make_room_on(device, 2 * low - free);
            }
        }
        is_stuck
    }

    /// What the device's file system has free.
    fn free_on(&self, device: usize) -> u64 {
        self.object_tiers[device].space().map_or(u64::MAX / 2, |space| space.free)
    }

    fn make_room_on(&self, device: usize, bytes: u64) -> bool {
        let _one_at_a_time = self.spilling.lock().unwrap();
        self.forget_exchanged();
        self.keep_link_room(device);
        let before = self.free_on(device);
        let mut freed = self.make_room(device, bytes, EVICTION_GRACE_URGENT);
        if freed < bytes {
            freed += self.move_down(device, bytes - freed);
        }
        self.adjust_capacity();
        freed > 0 || self.free_on(device) >= before + NAME_ROOM
    }

    /// Moves files of placed directories that nobody has open to lower places. The bytes that they had.
    fn move_down(&self, device: usize, bytes: u64) -> u64 {
        let directories = (0..self.index.records_end())
            .filter(|&number| self.is_directory(number) && self.device_of(number) == device);
        let mut files = vec![];
        for number in directories {
            each_below(&self.object_path(number), |entry, found| {
                if found.is_file() && found.blocks() > 0 && found.nlink() == 1 {
                    files.push((found.blocks() * 512, entry.path()));
                }
            });
        }
        files.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
        let mut freed = 0;
        for (size, path) in files.into_iter().take(NAME_FILES) {
            if freed >= bytes {
                break;
            }
            if self.move_one_down(device, &path).is_ok() {
                freed += size;
                // Its space is free when its last descriptor is closed, which is ours.
                self.forget_exchanged();
                self.keep_link_room(device);
            }
        }
        freed
    }

    fn move_one_down(&self, device: usize, path: &Path) -> Result<(), i32> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = past_leases(|| rustix::fs::open(path, flags, Mode::empty())).map_err(Errno::raw_os_error)?;
        let stat = Stat::from(&rustix::fs::fstat(&fd).map_err(Errno::raw_os_error)?);
        let is_known = self.index.record_of_object(stat.dev, stat.ino, stat.nlink).is_some();
        if !stat.is_file() || stat.nlink != 1 || is_known || is_locked(&stat) || !self.nobody_has(&fd, &stat) {
            return Err(libc::EBUSY);
        }
        self.spill(&fd, &stat, device, To::Lower(stat.size as i64)).map(drop)
    }

    fn nobody_has(&self, file: &OwnedFd, stat: &Stat) -> bool {
        let Some(name) = name_of(file, stat) else { return false };
        let wanted = Wanted { dev: stat.dev, ino: stat.ino, name, library: vec![] };
        holders(&wanted).is_some_and(|holders| holders.is_empty())
    }

    /// The file of this name in a placed directory becomes one of the root; where it lies then.
    pub fn spill_to_root(&self, path: &[u8]) -> Result<PathBuf, i32> {
        let raw = Errno::raw_os_error;
        let _one_at_a_time = self.spilling.lock().unwrap();
        if let Some(place) = self.spilled_at(as_path(path)) {
            let is_roots = self.index.spill(place.as_os_str().as_bytes()) == Some(Spill::Root);
            return is_roots.then_some(place).ok_or(libc::EXDEV);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = past_leases(|| rustix::fs::open(as_path(path), flags, Mode::empty())).map_err(raw)?;
        let stat = Stat::from(&rustix::fs::fstat(&fd).map_err(raw)?);
        let device = self.device_inside(path).ok_or(libc::EXDEV)?;
        let is_known = self.index.record_of_object(stat.dev, stat.ino, stat.nlink).is_some();
        if !stat.is_file() || stat.nlink != 1 || is_known || is_locked(&stat) {
            return Err(libc::EXDEV);
        }
        self.index.header.spilling.store(1, SeqCst);
        self.spill(&fd, &stat, device, To::Root).map_err(|_| libc::EXDEV)?;
        self.spilled_at(as_path(path)).ok_or(libc::EXDEV)
    }

    /// The device of a placed directory in which this path lies, or of a spilled file.
    fn device_inside(&self, path: &[u8]) -> Option<usize> {
        match (self.index.inside(path), self.index.spill(path)) {
            (Some((directory, _)), _) => Some(self.device_of(directory)),
            (None, Some(Spill::Device(device))) => Some(device),
            _ => None,
        }
    }

    fn has_room_inside(&self, device: usize, size: i64, stat: &Stat) -> bool {
        let missing = (size - stat.allocated as i64).max(0);
        self.shortage(device, size, stat) <= 0 && self.index.header.devices[device].free() >= missing
    }

    /// Moves the file. Its record.
    fn spill(&self, fd: &OwnedFd, stat: &Stat, device: usize, to: To) -> Result<u32, i32> {
        let begin_ns = now_ns();
        let source = reopen(fd.as_fd()).map_err(Errno::raw_os_error)?;
        if !self.only_the_library_has(&source, stat) {
            return Err(libc::EBUSY); // before anybody waits for it
        }
        let number = self.index.take_record().ok_or(libc::ENOSPC)?;
        let Some(target) = self.index.take_record() else {
            self.index.free_record(number);
            return Err(libc::ENOSPC);
        };
        let (lower, room) = match to {
            To::Lower(room) => (self.reserve(room, self.devices[device].tier as u32, Some(device)), room),
            To::Root => (None, 0),
        };
        let record = self.record(number);
        record.random.store(random_half(), Release);
        record.device.store(device as u32, Release);
        record.object_ino.store(stat.ino, Release);
        record.ino.store(INSIDE_BASE * (1 + device as u64) + stat.ino, Release);
        record.flags.store(FLAG_UNRECORDED, Release);
        let place = self.record(target);
        place.random.store(random_half(), Release);
        place.device.store(lower.unwrap_or(0) as u32, Release);
        place.flags.store(if lower.is_some() { FLAG_SPILLED } else { FLAG_SPILLED_ROOT }, Release);
        place.set_state(State::Dead);
        let path = name_of(&source, stat).unwrap_or_default();
        record.set_state(State::Moving);
        self.index.table_put(self.object_key(number), number);
        self.index.header.moves_seq.fetch_add(1, SeqCst);
        let is_still = self.synchronize(Domain::Data) && self.synchronize(Domain::Names);
        // Who locks it from now on finds that it moves, and looks again.
        let carried = match is_still && !is_locked(stat) {
            true => self.carry_unrecorded(number, target, source, stat),
            false => Err(libc::EBUSY),
        };
        // From now on it is counted by walking.
        if let Some(lower) = lower {
            self.index.header.devices[lower].unreserve(room);
            self.count_spilled();
        }
        if let Err(errno) = carried {
            self.index.table_remove(self.object_key(number), number);
            for record in [number, target] {
                self.catalogue().remove(record);
                self.index.free_record(record);
            }
            if errno != libc::EBUSY {
                let error = Errno::from_raw_os_error(errno).to_string();
                self.note_spill(&path, stat.size, device, begin_ns, Some(&error));
            }
            return Err(errno);
        }
        self.totals.moved_live_files.fetch_add(1, Relaxed);
        self.totals.moved_live_bytes.fetch_add(stat.size, Relaxed);
        self.note_spill(&path, stat.size, device, begin_ns, None);
        reached(Step::MoveDone);
        Ok(number)
    }

    /// `object`: the file's path in its tier; it is told of by its name in the root.
    fn note_spill(&self, object: &[u8], bytes: u64, device: usize, begin_ns: u64, error: Option<&str>) {
        let named = self.index.inside(object).and_then(|(directory, rest)| {
            let path = self.catalogue().path(directory, self.serial(directory))?;
            Some([&path[..], rest].concat())
        });
        let (path, tier) = (named.as_deref().unwrap_or(object), Some(self.devices[device].tier));
        self.ended.note(&Move { kind: MoveKind::LiveMove, path, bytes, tier, begin_ns, error });
    }

    /// The copy, and its name. The record is `Moving`, and `Moved` afterwards; or all is as it was.
    fn carry_unrecorded(&self, number: u32, target: u32, source: OwnedFd, stat: &Stat) -> Result<(), i32> {
        let raw = Errno::raw_os_error;
        let record = self.record(number);
        let copy = self.spilled_path(target).ok_or(libc::EIO)?;
        let (tier, below): (&dyn Tier, _) = match self.record(target).flags.load(Acquire) & FLAG_SPILLED != 0 {
            true => (&self.object_tiers[self.device_of(target)], PathBuf::from(SPILLS)),
            false => (&self.root_tier, self.private_name().join(SPILLS)),
        };
        let relative = below.join(self.object_name(target));
        let reading = FileReading::from_fd(
            source.try_clone().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?,
            self.object_path(number),
        );
        let (sink, copied) = self.copy_for_move(tier, &relative, &reading)?;
        let handle = handle_of(sink.path()).map_err(raw)?;
        reached(Step::MoveCopied);
        let mut name = None;
        if stat.nlink == 0 {
            // Else the temporary's name goes, and the handle keeps the file.
            let is_in_root = self.record(target).flags.load(Acquire) & FLAG_SPILLED == 0;
            name = (is_in_root && self.opens_by_name_only()).then_some(sink);
            self.record(target).flags.store(0, Release);
        } else {
            sink.commit(&relative).map_err(|error| error.errno())?;
            reached(Step::MoveCommitted);
            record.moved_to.store(target + 1, Release);
        }
        let undo = |errno: i32| {
            let _ = std::fs::remove_file(&copy);
            errno
        };
        let is_as_copied = reading.stat().is_ok_and(|now| now.version() == copied.version());
        if !is_as_copied || !self.only_the_library_has(&source, stat) {
            return Err(undo(libc::EBUSY));
        }
        if stat.nlink != 0 {
            self.name_spilled(number, &copy, &source, stat).map_err(undo)?;
        }
        let serial = self.serial(number);
        self.exchanges
            .add(number, MovedFile { serial, old: source, new: handle, target, target_is_object: false, _name: name });
        record.moved_to.store(target + 1, Release);
        // Unlinked first: a file with this inode and a name is then never the one that moved.
        if stat.nlink != 0 {
            let _ = std::fs::remove_file(self.object_path(number));
        }
        reached(Step::MoveUnlinked);
        record.set_state(State::Moved);
        Ok(())
    }

    /// The file and a link to its copy exchange their names: then the file has its record's.
    fn name_spilled(&self, number: u32, copy: &Path, source: &OwnedFd, stat: &Stat) -> Result<(), i32> {
        let link = self.object_path(number);
        let _ = std::fs::remove_file(&link);
        let mut made = rustix::fs::symlink(copy, &link);
        if made == Err(Errno::NOSPC) {
            // On a disk a long text needs a block.
            self.give_up_link_room(self.device_of(number));
            made = rustix::fs::symlink(copy, &link);
        }
        made.map_err(Errno::raw_os_error)?;
        let mut result = Err(libc::EBUSY);
        for _ in 0..NAMINGS {
            let Some(name) = name_of(source, stat) else { break };
            let exchange = || rustix::fs::renameat_with(CWD, &link, CWD, as_path(&name), RenameFlags::EXCHANGE);
            match exchange() {
                Ok(()) => {}
                Err(Errno::NOENT) => continue,
                Err(error) => {
                    result = Err(error.raw_os_error());
                    break;
                }
            }
            reached(Step::MoveRenamed);
            if rustix::fs::lstat(&link).is_ok_and(|found| found.st_ino == stat.ino && found.st_dev == stat.dev) {
                self.record(number).flags.fetch_or(FLAG_NAMED, SeqCst);
                return Ok(());
            }
            // A program was faster, and what has the name is not ours to take away.
            let _ = exchange();
        }
        let _ = std::fs::remove_file(&link);
        result
    }

    /// Nobody has the file open, or mapped to write, but programs whose library sees what they do.
    fn only_the_library_has(&self, file: &OwnedFd, stat: &Stat) -> bool {
        let Some(name) = name_of(file, stat) else { return false };
        let library = self.settings.library.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        let wanted = Wanted { dev: stat.dev, ino: stat.ino, name, library };
        let asynchronous = |pid: u32| {
            let slots = self.index.processes.iter().enumerate();
            slots.into_iter().any(|(slot, process)| {
                (slot == 0 || process.pid.load(Acquire) == pid) && process.is_asynchronous.load(SeqCst) != 0
            })
        };
        holders(&wanted)
            .is_some_and(|holders| holders.iter().all(|holder| holder.has_library && !asynchronous(holder.pid)))
    }

    /// Where the spilled file is whose place this record is.
    pub fn spilled_path(&self, number: u32) -> Option<PathBuf> {
        let record = self.record(number);
        let name = object_name(number, record.random.load(Acquire));
        match record.flags.load(Acquire) & (FLAG_SPILLED | FLAG_SPILLED_ROOT) {
            FLAG_SPILLED => Some(self.devices[self.device_of(number)].dir.join(SPILLS).join(name)),
            FLAG_SPILLED_ROOT => Some(self.root_spills().join(name)),
            _ => None,
        }
    }

    /// After a killed agent, for a record that is `Moving`. False: it is not of such a file.
    pub fn resume_spill(&self, number: u32) -> bool {
        let record = self.record(number);
        let flags = record.flags.load(SeqCst);
        if flags & FLAG_UNRECORDED == 0 {
            return false;
        }
        let link = self.object_path(number);
        let found = rustix::fs::lstat(&link);
        let is_old = found.as_ref().is_ok_and(|found| found.st_ino == record.object_ino.load(Acquire));
        if flags & FLAG_NAMED != 0 || is_old {
            let _ = std::fs::remove_file(&link);
            record.set_state(State::Moved);
            return true;
        }
        // It keeps its name, or has none: it is still what programs have open.
        let _ = std::fs::remove_file(&link);
        if let Some(copy) = record.moved_to.swap(0, AcqRel).checked_sub(1).and_then(|target| self.spilled_path(target))
        {
            let _ = std::fs::remove_file(copy);
        }
        self.index.table_remove(self.object_key(number), number);
        record.set_state(State::Dead);
        true
    }
}

/// The canonical path by which the kernel knows the open file.
fn name_of(fd: &OwnedFd, stat: &Stat) -> Option<Vec<u8>> {
    let text = read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()).as_bytes())?;
    match text.strip_suffix(DELETED) {
        Some(name) if stat.nlink == 0 => Some(name.to_vec()),
        _ => Some(text),
    }
}
