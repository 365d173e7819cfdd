//! Promote and replace: a program wants to write a durable file, and a faster tier takes the writing.
//!
//!   promote    Clean ─▶ the replica becomes the file        ROOT/P ⇄ .terrace/held/NAME (a link to the object)
//!   replace    truncated on open ─▶ a new, empty object     the same
//!
//! The root's file is exchanged with a link in one atomic step, so `held` has the last durable version until the next
//! flush: a tier that is lost takes only what was written since.
//! Whatever is in the way (another name, another opener, no room), the file stays as it is and is written where it lies.

use crate::files::Files;
use crate::shared::index_file::make_inside;
use crate::shared::index_file::object_name;
use crate::shared::index_file::random_half;
use crate::shared::path::as_path;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use terrace_index::State;
use terrace_index::guard::Domain;
use terrace_index::table::root_key;
use terrace_tier::journal::Task;
use terrace_tier::{FileReading, Lease, Reading, Stat, Step, Tier, past_leases, reached};

/// How long a program waits for the mover to be done with the file.
const PATIENCE: Duration = Duration::from_secs(30);

impl Files {
    /// Makes a `Clean` record `Current`. Err: an errno; the program then writes the root's file itself.
    pub fn promote(&self, number: u32, hint: &[u8]) -> Result<(), i32> {
        let _claim = self.claims.take(number, PATIENCE).ok_or(libc::EBUSY)?;
        let serial = self.serial(number);
        match self.record(number).state() {
            State::Current => return Ok(()),
            State::Clean => {}
            _ => return Err(libc::EBUSY),
        }
        let path = match self.durable_path(number, serial) {
            Some(path) => path,
            None => {
                let found = rustix::fs::lstat(as_path(hint)).map_err(|_| libc::EBUSY)?;
                if self.relative(hint).is_none() || !self.is_durable_version(number, &Stat::from(&found)) {
                    return Err(libc::EBUSY);
                }
                self.catalogue().set_path(number, serial, hint);
                hint.to_vec()
            }
        };
        self.make_current(number, &path)
    }

    /// As `promote`, for one who has the claim and the path.
    pub fn make_current(&self, number: u32, path: &[u8]) -> Result<(), i32> {
        let record = self.record(number);
        // What is durable stays durable: a file that policy doesn't flush is written where it lies.
        if self.exchanges.is_awaited(number) || !self.mode(path).flushes() {
            return Err(libc::EBUSY);
        }
        let durable = open_durable(path)?;
        let stat = durable.stat().map_err(|error| error.errno())?;
        if !self.is_durable_version(number, &stat) {
            return Err(libc::EBUSY);
        }
        // A program that reads the root's file by descriptor would miss what is written to the object.
        let lease = lease_of(Lease::exclusive(durable.as_fd().ok_or(libc::EIO)?))?;
        if rustix::fs::lstat(self.object_path(number)).is_err() {
            return Err(libc::EBUSY);
        }
        let _barrier = self.commit_barrier().ok_or(libc::EBUSY)?;
        let ids = self.begin_steps(vec![self.step(Task::Promote, Step::PromoteJournaled, number, path)]);
        reached(Step::PromoteJournaled);
        if !record.change_state(State::Clean, State::Committing) {
            return Err(libc::EBUSY);
        }
        // A program may have changed its attributes since we looked; from here on it would wait.
        let is_still =
            self.synchronize(Domain::Names) && durable.stat().is_ok_and(|now| self.is_durable_version(number, &now));
        let put = if is_still { self.put_link(number, path, &stat, Step::PromoteHeld) } else { Err(libc::EBUSY) };
        // Who waited in an open for our lease gets the old version, and looks at this.
        self.index.header.evictions_seq.fetch_add(1, SeqCst);
        drop(lease);
        match put {
            Ok(()) => {
                reached(Step::PromoteRenamed);
                self.now_current(number, stat.ino);
            }
            Err(_) => {
                // The time of change may be another one because of what we tried.
                if let Ok(now) = durable.stat()
                    && now.mtime == stat.mtime
                    && now.size == stat.size
                {
                    record.durable_ctime_ns.store(now.ctime.as_ns(), Release);
                }
                record.set_state(State::Clean);
            }
        }
        self.finish_steps(&ids);
        reached(Step::PromoteDone);
        put
    }

    /// The name leads to the object now: the record is `Current`, and the durable inode is no longer found by it.
    fn now_current(&self, number: u32, durable_ino: u64) {
        let record = self.record(number);
        let serial = self.serial(number);
        self.index.table_remove(root_key(durable_ino), number);
        record.durable_ino.store(0, Release);
        record.set_state(State::Current);
        self.recount(number, serial);
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(number, serial);
        entry.held = true;
        entry.object_ctime_ns = 0;
        drop(catalogue);
        self.written(number);
    }

    /// Puts a link to the record's object in the place of the root's file, and that in `held`. `link_ino` is set before.
    fn put_link(&self, number: u32, path: &[u8], durable: &Stat, step: Step) -> Result<(), i32> {
        let raw = Errno::raw_os_error;
        let held = self.held_dir().join(self.object_name(number));
        let _ = std::fs::remove_file(&held);
        let object = self.object_path(number);
        match rustix::fs::symlink(&object, &held) {
            Err(Errno::NOENT) => {
                // Nothing above it: at the root's path may be another directory by now.
                make_inside(&self.held_dir()).map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
                rustix::fs::symlink(&object, &held).map_err(raw)?;
            }
            made => made.map_err(raw)?,
        }
        let link = rustix::fs::lstat(&held).map_err(raw)?.st_ino;
        let target = as_path(path);
        let directory = target.parent().unwrap_or(Path::new("/"));
        self.record(number).link_ino.store(link, Release);
        self.index.table_put(root_key(link), number);
        let is_the_one = |path: &Path| {
            rustix::fs::lstat(path).is_ok_and(|found| {
                let found = Stat::from(&found);
                found.ino == durable.ino
                    && found.size == durable.size
                    && found.mtime == durable.mtime
                    && found.nlink == 1
            })
        };
        let result = self.unseen_in(directory, || {
            match self.root_tier.exchange(&held, target) {
                Ok(()) if is_the_one(&held) => Ok(()),
                // The name was given to another file a moment ago: give it back.
                Ok(()) => self.root_tier.exchange(&held, target).map_err(raw).and(Err(libc::EBUSY)),
                Err(Errno::NOTSUP) => self.put_link_in_two(target, &held, is_the_one),
                Err(errno) => Err(raw(errno)),
            }
        });
        match result {
            Ok(()) => reached(step),
            Err(_) => {
                self.record(number).link_ino.store(0, Release);
                self.index.table_remove(root_key(link), number);
                if rustix::fs::lstat(&held).is_ok_and(|found| !Stat::from(&found).is_file()) {
                    let _ = std::fs::remove_file(&held);
                }
            }
        }
        result
    }

    /// For file systems that can't exchange two names: the durable file gets a second name first.
    fn put_link_in_two(&self, target: &Path, held: &Path, is_the_one: impl Fn(&Path) -> bool) -> Result<(), i32> {
        let raw = Errno::raw_os_error;
        let link = self.tmp_dir().join(held.file_name().expect("a held file has its object's name"));
        rustix::fs::rename(held, &link).map_err(raw)?;
        if !is_the_one(target) {
            let _ = std::fs::remove_file(&link);
            return Err(libc::EBUSY);
        }
        rustix::fs::link(target, held).map_err(raw)?;
        rustix::fs::rename(&link, target).map_err(raw).inspect_err(|_| {
            let _ = std::fs::remove_file(held);
        })
    }

    /// A new, empty object takes the place of the root's file that is about to be truncated. The record.
    pub fn replace(&self, path: &[u8]) -> Result<u32, i32> {
        let relative = self.relative(path).ok_or(libc::EINVAL)?;
        let takes_files = self.index.header.accepts.load(Acquire) != 0 && !self.ends.load(Acquire);
        if !takes_files || !self.policy.mode(relative).flushes() {
            return Err(libc::EBUSY);
        }
        let durable = open_durable(path)?;
        let stat = durable.stat().map_err(|error| error.errno())?;
        if stat.nlink != 1 {
            return Err(libc::EMLINK);
        }
        if stat.dev != self.index.header.root_dev.load(Relaxed) {
            return Err(libc::EXDEV);
        }
        let known = self.index.record_of_root_ino(stat.ino);
        let known = known.filter(|&number| self.is_of_durable(number, stat.ino));
        let _claim = match known {
            Some(number) if self.record(number).state() == State::Clean => {
                drop(durable);
                return self.promote(number, path).map(|()| number);
            }
            Some(number) => Some(self.claims.take(number, PATIENCE).ok_or(libc::EBUSY)?),
            None => None,
        };
        if known.is_some_and(|number| {
            self.record(number).state() != State::Durable
                || self.exchanges.is_awaited(number)
                || self.record(number).object_ino.load(Acquire) != 0
        }) {
            return Err(libc::EBUSY);
        }
        let lease = lease_of(Lease::exclusive(durable.as_fd().ok_or(libc::EIO)?))?;
        let attributes = durable.attributes().map_err(|error| error.errno())?;
        let bytes = 64 << 10;
        let device = self.reserve(bytes, 0, None).ok_or(libc::ENOSPC)?;
        let Some(number) = known.or_else(|| self.index.take_record()) else {
            self.index.header.devices[device].unreserve(bytes);
            return Err(libc::EBUSY);
        };
        let ids = self.begin_steps(vec![self.step(Task::Replace, Step::ReplaceJournaled, number, path)]);
        reached(Step::ReplaceJournaled);
        let random = random_half();
        let name = object_name(number, random);
        let tier = &self.object_tiers[device];
        let made = (|| {
            let mut sink = tier.create(&name)?;
            sink.set_attributes(&attributes)?;
            sink.commit(&name)
        })();
        let put = match made {
            Ok(object) => {
                reached(Step::ReplaceCreated);
                let record = self.record(number);
                if known.is_none() {
                    record.ino.store(stat.ino, Release);
                }
                record.random.store(random, Release);
                record.device.store(device as u32, Release);
                record.object_ino.store(object.ino, Release);
                record.reserved.store(bytes, Release);
                record.used_at.store(self.index.header.now.load(Relaxed), Relaxed);
                self.index.table_put(self.object_key(number), number);
                self.take_place(number, path, &durable, &stat)
            }
            Err(error) => Err(error.errno()),
        };
        // Who waited in an open for our lease gets the old version, and looks at this.
        self.index.header.evictions_seq.fetch_add(1, SeqCst);
        drop(lease);
        match put {
            Ok(()) => {
                let serial = self.serial(number);
                self.catalogue().set_path(number, serial, path);
                self.now_current(number, stat.ino);
                self.written(number);
                debug_assert!(self.relative(path) == Some(relative));
            }
            Err(_) => {
                let _ = tier.remove(&name);
                self.index.table_remove(self.object_key(number), number);
                self.record(number).object_ino.store(0, Release);
                self.record(number).reserved.store(0, Release);
                self.index.header.devices[device].unreserve(bytes);
                if known.is_none() {
                    self.index.free_record(number);
                }
            }
        }
        self.finish_steps(&ids);
        reached(Step::ReplaceDone);
        put.map(|()| number)
    }

    fn take_place(&self, number: u32, path: &[u8], durable: &FileReading, before: &Stat) -> Result<(), i32> {
        let _barrier = self.commit_barrier().ok_or(libc::EBUSY)?;
        // Programs that look at the name between the exchange and our last step wait for us.
        let record = self.record(number);
        let state = record.state();
        record.set_state(State::Committing);
        let is_still =
            self.synchronize(Domain::Names) && durable.stat().is_ok_and(|now| now.version() == before.version());
        let put = if is_still { self.put_link(number, path, before, Step::ReplaceHeld) } else { Err(libc::EBUSY) };
        match put {
            Ok(()) => reached(Step::ReplaceRenamed),
            Err(_) => record.set_state(state),
        }
        put
    }
}

fn open_durable(path: &[u8]) -> Result<FileReading, i32> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let fd = past_leases(|| rustix::fs::open(as_path(path), flags, Mode::empty())).map_err(Errno::raw_os_error)?;
    let file = FileReading::from_fd(fd, as_path(path));
    let stat = file.stat().map_err(|error| error.errno())?;
    if stat.is_file() { Ok(file) } else { Err(libc::EINVAL) }
}

/// Without a lease nobody can tell whether the file is open elsewhere.
fn lease_of(taken: terrace_tier::Result<Option<Lease>>) -> Result<Lease, i32> {
    taken.ok().flatten().ok_or(libc::EBUSY)
}
