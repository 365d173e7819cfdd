//! Evict: give a clean replica's room back.
//!
//!   Clean ─▶ nobody has it open (exclusive lease) ─▶ Durable ─▶ object unlinked
//!
//! Invariant: an object is removed only while the root's file is equal to it, and no program has it open: the room would
//! not come back, and a reader would miss what is written to the root's file later.

use crate::error::text_of;
use crate::files::Files;
use crate::files::mover::flush::TICK;
use crate::files::{EVICTION_GRACE, EVICTION_GRACE_URGENT};
use crate::shared::ended::now_ns;
use crate::shared::path::as_path;
use crate::shared::schedule::Work;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant, UNIX_EPOCH};
use terrace_core::control::MoveKind;
use terrace_core::policy::Mode;
use terrace_index::guard::Domain;
use terrace_index::table::root_key;
use terrace_index::{FLAG_UNLINKED, State};
use terrace_tier::placement::{self, Replica, Watermarks};
use terrace_tier::{FileReading, Lease, Reading, Stat, Step, reached};

/// How long a program waits for the mover to be done with the file.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a file that is renamed meanwhile is looked for.
const LOOKS_MAX: u32 = 20;
/// An open that waited for a lease has returned after so long.
const LATE_OPENER: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq)]
pub enum Eviction {
    Done,
    /// There is nothing to evict.
    NotNeeded,
    /// Another thread works on it, or it became clean a moment ago.
    Later(Duration),
    /// A program has it open.
    Open,
    Failed(String),
}

/// Its attributes, since its change time was that. Two changes within one tick of the kernel's clock have one time of change.
pub fn may_have_changed(object: &Stat, known_ctime_ns: i64) -> bool {
    let since = UNIX_EPOCH.elapsed().map_or(0, |now| now.as_nanos() as i64) - object.ctime.as_ns();
    known_ctime_ns != 0 && (object.ctime.as_ns() != known_ctime_ns || since < TICK.as_nanos() as i64)
}

impl Files {
    /// A mover thread's job. What policy wants out is tried again until it is.
    pub fn evict_planned(&self, number: u32) {
        let serial = self.serial(number);
        let is_nameless = self.catalogue().get(number, serial).is_some_and(|entry| entry.path.is_empty());
        let is_urgent = is_nameless || self.record(number).state() == State::Durable;
        match self.evict(number, if is_urgent { EVICTION_GRACE_URGENT } else { EVICTION_GRACE }) {
            Eviction::Done | Eviction::NotNeeded => {}
            Eviction::Later(delay) => self.schedule.after(delay, Work::Evict, number),
            // What other nodes write does not reach a replica that programs read.
            Eviction::Open if self.has_others() && self.evict_open(number) == Eviction::Done => {}
            Eviction::Open => self.schedule.after(Duration::from_secs(2), Work::Evict, number),
            Eviction::Failed(reason) => {
                self.warn(format!("can't evict object {}: {reason}", self.object_path(number).display()));
                self.schedule.after(Duration::from_secs(10), Work::Evict, number);
            }
        }
    }

    pub fn evict(&self, number: u32, grace: Duration) -> Eviction {
        let begin_ns = now_ns();
        let serial = self.serial(number);
        let eviction = self.try_evict(number, grace, begin_ns);
        if let Eviction::Failed(reason) = &eviction {
            self.note_move(MoveKind::Evict, number, serial, 0, begin_ns, Some(reason));
        }
        eviction
    }

    fn try_evict(&self, number: u32, grace: Duration, begin_ns: u64) -> Eviction {
        let start = Instant::now();
        let Some(_claim) = self.claims.try_take(number) else { return Eviction::Later(Duration::from_millis(20)) };
        let record = self.record(number);
        let serial = self.serial(number);
        // `Durable` with an object: its root's file was changed by a program, which left the replica to us.
        let has_object = record.object_ino.load(Acquire) != 0;
        if !matches!(record.state(), State::Clean | State::Durable) || serial == 0 || !has_object {
            return Eviction::NotNeeded;
        }
        let since = self.catalogue().get(number, serial).map(|entry| entry.since);
        let age = since.map_or(grace, |since| since.elapsed());
        if age < grace {
            return Eviction::Later(grace - age);
        }
        let reading = match self.open_object(number) {
            Ok(reading) => reading,
            Err(error) if error.is_not_found() => {
                record.change_state(State::Clean, State::Durable);
                self.forget_object(number, serial);
                return Eviction::Done;
            }
            Err(error) => return Eviction::Failed(text_of(&error)),
        };
        let lease = match Lease::exclusive(reading.as_fd().expect("an object is a file of a directory")) {
            Ok(Some(lease)) => lease,
            Ok(None) => return Eviction::Open,
            Err(error) => return Eviction::Failed(text_of(&error)),
        };
        let Ok(object) = reading.stat() else { return Eviction::Later(Duration::from_millis(100)) };
        let known_ctime = self.catalogue().get(number, serial).map_or(0, |entry| entry.object_ctime_ns);
        if record.state() == State::Clean && known_ctime != 0 && object.ctime.as_ns() != known_ctime {
            match self.carry_late_changes(number, serial, &*reading, &object) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => return Eviction::NotNeeded,
                Ok(None) => return Eviction::Later(Duration::from_millis(100)),
                Err(reason) => return Eviction::Failed(reason),
            }
        }
        reached(Step::EvictJournaled);
        if !record.change_state(State::Clean, State::Durable) && record.state() != State::Durable {
            return Eviction::NotNeeded;
        }
        // Before the unlink: a program that still follows the old link began long before.
        self.index.header.evictions_seq.fetch_add(1, SeqCst);
        if let Err(error) = self.remove_object(number)
            && !error.is_not_found()
        {
            return Eviction::Failed(text_of(&error));
        }
        reached(Step::EvictUnlinked);
        self.forget_object(number, serial);
        drop((lease, reading));
        self.totals.evicted_files.fetch_add(1, Relaxed);
        self.totals.evicted_bytes.fetch_add(object.size, Relaxed);
        self.totals.evict_us.fetch_add(start.elapsed().as_micros() as u64, Relaxed);
        self.note_move(MoveKind::Evict, number, serial, object.size, begin_ns, None);
        reached(Step::EvictDone);
        Eviction::Done
    }

    /// Of a clean file, programs are to have the root's own, also those that read the replica: it is about to be written. What a
    /// program has mapped stays.
    pub fn let_go_of(&self, number: u32) {
        for _ in 0..LOOKS_MAX {
            match self.evict(number, Duration::ZERO) {
                Eviction::Later(delay) => std::thread::sleep(delay),
                Eviction::Open if self.evict_open(number) == Eviction::Open => {
                    return self.schedule.after(Duration::from_secs(2), Work::Evict, number);
                }
                _ => return,
            }
        }
    }

    /// The object is gone: its room and its count as well. Its key stays a while: a program whose open waited for our lease
    /// must find that it has an object which is no longer the file.
    fn forget_object(&self, number: u32, serial: u64) {
        self.late_keys.lock().unwrap().push((Instant::now(), self.object_key(number), number));
        self.record(number).object_ino.store(0, Release);
        self.unreserve(number);
        self.recount(number, serial);
        let mut catalogue = self.catalogue();
        catalogue.entry(number, serial).since = Instant::now();
    }

    /// The object of a clean file changed after its flush: by descriptor (owner, mode, times), or by a program that we don't
    /// reach and that resolved the link before. True: the root's file has it all now, the eviction may go on. `None`: not now.
    fn carry_late_changes(
        &self,
        number: u32,
        serial: u64,
        reading: &dyn Reading,
        object: &Stat,
    ) -> Result<Option<bool>, String> {
        let record = self.record(number);
        let is_same_data = |object: &Stat| {
            object.size == record.durable_size.load(Acquire)
                && object.mtime.as_ns() == record.durable_mtime_ns.load(Acquire)
        };
        let found = self.found_durable(number, serial);
        let Some((path, _)) = found.filter(|(_, found)| self.is_durable_version(number, found)) else {
            return Ok(Some(true)); // the root's file was replaced or removed: nobody misses the object
        };
        if !is_same_data(object) {
            return match self.make_current(number, &path) {
                Ok(()) => {
                    self.schedule.now(Work::Flush, number);
                    Ok(Some(false))
                }
                Err(errno) => Err(std::io::Error::from_raw_os_error(errno).to_string()),
            };
        }
        // A program that changes the root's file changes the replica with it, in a guard. While it is in there, what we carry would be
        // older than what the root's file has.
        if !record.change_state(State::Clean, State::Moving) {
            return Ok(Some(false));
        }
        let latest = self.synchronize(Domain::Names).then(|| reading.stat().ok()).flatten();
        let carried = match (latest.filter(is_same_data), self.durable_path(number, serial)) {
            (Some(latest), Some(path)) => {
                self.carry_from(number, serial, &path, (reading, &latest)).map(|()| Some(true))
            }
            _ => Ok(None),
        };
        record.change_state(State::Moving, State::Clean);
        carried.map_err(|error| text_of(&error))
    }

    /// A program changed owner, mode, times or xattrs of a replica by descriptor, and says so: who looks by name sees it. Err: an errno.
    pub fn carry_replica(&self, number: u32) -> Result<(), i32> {
        let _claim = self.claims.take(number, PATIENCE).ok_or(libc::EBUSY)?;
        let serial = self.serial(number);
        if self.record(number).state() != State::Clean {
            return Ok(());
        }
        // What the program did to names before.
        self.drain_events();
        let reading = self.open_object(number).map_err(|error| error.errno())?;
        let object = reading.stat().map_err(|error| error.errno())?;
        for _ in 0..LOOKS_MAX {
            let Some((path, found)) = self.found_durable(number, serial) else { return Ok(()) };
            let carried = if self.is_durable_version(number, &found) {
                self.carry_from(number, serial, &path, (&*reading, &object))
            } else if found.size == object.size {
                // Its times were set by name before: it goes on being no known version.
                self.carry_attributes(number, &path, &*reading).map(drop)
            } else {
                return Ok(()); // somebody wrote it
            };
            match carried {
                Err(error) if error.is_not_found() => self.drain_events(),
                carried => return carried.map_err(|error| error.errno()),
            };
        }
        Err(libc::EBUSY)
    }

    /// Gives the root's file the attributes of the replica, which looks like `object`, and remembers both as equal.
    pub fn carry_from(
        &self,
        number: u32,
        serial: u64,
        path: &[u8],
        (reading, object): (&dyn Reading, &Stat),
    ) -> terrace_tier::Result<()> {
        let record = self.record(number);
        let durable = self.carry_attributes(number, path, reading)?;
        record.ctime_ns.store(object.ctime.as_ns(), Release);
        record.durable_mtime_ns.store(durable.mtime.as_ns(), Release);
        record.durable_ctime_ns.store(durable.ctime.as_ns(), Release);
        self.catalogue().entry(number, serial).object_ctime_ns = object.ctime.as_ns();
        Ok(())
    }

    /// Gives the root's file the object's owner, mode, times and xattrs. Who has a lease on the object has opened it: another open is refused.
    pub fn carry_attributes(&self, number: u32, path: &[u8], object: &dyn Reading) -> terrace_tier::Result<Stat> {
        let attributes = object.attributes()?;
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC;
        let fd = rustix::fs::open(as_path(path), flags, rustix::fs::Mode::empty())
            .map_err(|error| terrace_tier::Error::io("open", as_path(path), error))?;
        let durable = FileReading::from_fd(fd, as_path(path));
        if durable.stat()?.ino != self.record(number).durable_ino.load(Acquire) {
            // Renamed between our look and our open: what has the name now is not to get them.
            let gone = std::io::Error::from_raw_os_error(libc::ENOENT);
            return Err(terrace_tier::Error::io("find the file of", as_path(path), gone));
        }
        let lost = durable.set_attributes(&attributes)?;
        if !lost.is_complete() {
            self.warn(format!("{} lost {lost}", as_path(path).display()));
        }
        durable.stat()
    }

    /// The root's file of a `Clean` or `Durable` record, if it is still the one and unchanged.
    pub fn durable_path(&self, number: u32, serial: u64) -> Option<Vec<u8>> {
        self.durable_name(number, serial, |found| self.is_durable_version(number, found))
    }

    /// The record's name, if what has it `is` the file; also after a directory above it was renamed.
    fn durable_name(&self, number: u32, serial: u64, mut is: impl FnMut(&Stat) -> bool) -> Option<Vec<u8>> {
        let mut has_it = |path: &[u8]| rustix::fs::lstat(as_path(path)).is_ok_and(|found| is(&Stat::from(&found)));
        let path = self.catalogue().path(number, serial)?;
        if has_it(&path) {
            return Some(path);
        }
        let later = self.catalogue().after_renames(&path)?;
        if !has_it(&later) {
            return None;
        }
        self.catalogue().set_path(number, serial, &later);
        Some(later)
    }

    /// The root's file under the record's name, whatever version it is. Where the name that we know is another file's by now, the
    /// tree is searched: of a file with several names, and of one that is renamed while it moves, it may be.
    fn found_durable(&self, number: u32, serial: u64) -> Option<(Vec<u8>, Stat)> {
        let found = || {
            let mut status = None;
            let path = self.durable_name(number, serial, |found| {
                status = Some(*found);
                found.is_file() && self.is_of_durable(number, found.ino)
            })?;
            Some((path, status?))
        };
        found().or_else(|| {
            if !self.is_of_durable(number, self.record(number).durable_ino.load(Acquire)) {
                return None; // it has no name
            }
            self.catalogue().set_path(number, serial, b"");
            self.walk_tree();
            found()
        })
    }

    /// The record's durable file had this inode, and still has a name.
    pub fn is_of_durable(&self, number: u32, ino: u64) -> bool {
        let record = self.record(number);
        record.durable_ino.load(Acquire) == ino && record.flags.load(Acquire) & FLAG_UNLINKED == 0
    }

    pub fn is_durable_version(&self, number: u32, found: &Stat) -> bool {
        let record = self.record(number);
        found.is_file()
            && found.ino == record.durable_ino.load(Acquire)
            && found.size == record.durable_size.load(Acquire)
            && found.mtime.as_ns() == record.durable_mtime_ns.load(Acquire)
            && found.ctime.as_ns() == record.durable_ctime_ns.load(Acquire)
    }

    /// Clean replicas of one device.
    fn replicas(&self, device: usize) -> Vec<Replica> {
        let catalogue = self.catalogue();
        let mut found = vec![];
        for (number, entry) in catalogue.iter() {
            let record = self.record(number);
            if record.state() != State::Clean || record.device.load(Relaxed) as usize != device {
                continue;
            }
            found.push(Replica {
                id: number,
                bytes: record.reserved.load(Relaxed).max(0) as u64,
                used_at: record.used_at.load(Relaxed) as u64,
                evicts: self.mode(&entry.path) == Mode::Move,
            });
        }
        found
    }

    /// Evicts the longest unused until `bytes` are given back, or nothing is left. The bytes that were.
    pub fn make_room(&self, device: usize, bytes: u64, grace: Duration) -> u64 {
        let replicas = self.replicas(device);
        let mut freed = 0;
        let mut waited = false;
        // One that is open, or too young, is passed over: the next one goes instead.
        for id in placement::evictions(&replicas, u64::MAX) {
            if freed >= bytes {
                break;
            }
            let size = replicas.iter().find(|replica| replica.id == id).map_or(0, |replica| replica.bytes);
            match self.evict(id, grace) {
                Eviction::Done => freed += size,
                Eviction::Later(delay) if grace <= EVICTION_GRACE_URGENT && !waited => {
                    std::thread::sleep(delay);
                    waited = true;
                    if self.evict(id, grace) == Eviction::Done {
                        freed += size;
                    }
                }
                _ => {}
            }
        }
        freed
    }

    /// Keeps every device below its high watermark.
    pub fn keep_watermarks(&self) {
        let mover = &self.settings.mover;
        let watermarks = Watermarks { high: mover.high_watermark, low: mover.low_watermark };
        for (number, device) in self.index.devices().iter().enumerate() {
            let excess = watermarks.excess(device.capacity.load(Relaxed), device.used.load(Relaxed));
            if excess > 0 {
                // Room is short, so programs soon look for it: don't wait for the whole grace.
                self.make_room(number, excess, EVICTION_GRACE_URGENT);
            }
        }
    }

    /// Removes keys that no late opener needs any more.
    pub fn forget_late_keys(&self) {
        let mut keys = self.late_keys.lock().unwrap();
        let late = keys.partition_point(|(since, ..)| since.elapsed() > LATE_OPENER);
        for (_, key, number) in keys.drain(..late) {
            self.index.table_remove(key, number);
        }
    }

    /// Forgets a file whose root's file is gone or another: its inode number no longer leads to the record.
    pub fn forget_durable(&self, number: u32) {
        let ino = self.record(number).durable_ino.load(Acquire);
        if ino != 0 {
            self.index.table_remove(root_key(ino), number);
        }
    }
}
