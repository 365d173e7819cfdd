//! Prefetch: bring a durable file up before it is read.
//!
//!   root's file ─▶ copy to an object ─▶ unchanged? ─▶ record Clean
//!
//! The replica is only for reading: the name in the root stays what it is, and a program that finds the root's file
//! changed doesn't look at the replica.

use crate::error::text_of;
use crate::files::Files;
use crate::files::mover::live::is_locked;
use crate::shared::ended::{Move, now_ns};
use crate::shared::index_file::random_half;
use crate::shared::path::as_path;
use crate::shared::schedule::Tally;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant, SystemTime};
use terrace_core::control::MoveKind;
use terrace_index::State;
use terrace_index::table::root_key;
use terrace_objects::array::METADATA_FILE;
use terrace_tier::placement::{self, Device};
use terrace_tier::{CopyOptions, Lease, Stat, Step, Tier, copy, past_leases, reached};

impl Files {
    pub fn prefetch_job(&self, path: &[u8], tally: &Tally) {
        let (start, begin_ns) = (Instant::now(), now_ns());
        let note = |bytes, tier, error| {
            self.ended.note(&Move { kind: MoveKind::Prefetch, path, bytes, tier, begin_ns, error });
        };
        match self.prefetch(path) {
            Ok((0, _)) => {}
            Ok((bytes, device)) => {
                tally.succeed(bytes);
                self.totals.prefetched_files.fetch_add(1, Relaxed);
                self.totals.prefetched_bytes.fetch_add(bytes, Relaxed);
                note(bytes, Some(self.devices[device].tier), None);
            }
            Err(reason) => {
                note(0, None, Some(&reason));
                tally.fail(path.to_vec(), reason);
            }
        }
        self.totals.prefetch_us.fetch_add(start.elapsed().as_micros() as u64, Relaxed);
        tally.pending.fetch_sub(1, Release);
    }

    /// The devices as placement sees them.
    pub fn device_loads(&self) -> Vec<Device> {
        let devices = self.index.devices().iter();
        devices
            .map(|device| Device {
                tier: device.tier.load(Relaxed),
                capacity: device.capacity.load(Relaxed),
                used: device.used.load(Relaxed),
                accepts: device.accepts.load(Relaxed) != 0,
            })
            .collect()
    }

    /// Takes room for `bytes` in the fastest tier that has it, from tier `from` down, on another device than `except`.
    pub fn reserve(&self, bytes: i64, from: u32, except: Option<usize>) -> Option<usize> {
        self.reserve_on(bytes, from, |device| Some(device) != except)
    }

    /// As `reserve`, of these devices.
    pub fn reserve_on(&self, bytes: i64, from: u32, may: impl Fn(usize) -> bool) -> Option<usize> {
        for _ in 0..8 {
            let mut loads = self.device_loads();
            loads.iter_mut().enumerate().for_each(|(device, load)| load.accepts &= may(device));
            let chosen = match from.checked_sub(1) {
                Some(above) => placement::choose_below(&loads, above, bytes.max(0) as u64),
                None => placement::choose(&loads, bytes.max(0) as u64),
            }?;
            if self.index.reserve(chosen, bytes) {
                return Some(chosen);
            }
        }
        None
    }

    /// Bytes that were brought up, and to which device; 0 bytes for what needs it not (empty, not a regular file, there already).
    fn prefetch(&self, path: &[u8]) -> Result<(u64, usize), String> {
        let relative = self.relative(path).ok_or("it is not below the root")?;
        let reading = match past_leases(|| self.root_tier.open(relative)) {
            Ok(reading) => reading,
            Err(error) if matches!(error.errno(), libc::ELOOP | libc::EINVAL | libc::ENOENT) => return Ok((0, 0)),
            Err(error) => return Err(text_of(&error)),
        };
        let before = reading.stat().map_err(|error| text_of(&error))?;
        if before.size == 0 || before.dev != self.index.header.root_dev.load(Relaxed) {
            return Ok((0, 0));
        }
        let known = self.index.record_of_root_ino(before.ino);
        let known = known.filter(|&number| self.is_of_durable(number, before.ino));
        let _claim = match known {
            Some(number) => match self.claims.try_take(number) {
                Some(claim)
                    if self.record(number).state() == State::Durable
                        && self.record(number).object_ino.load(Acquire) == 0
                        && !self.exchanges.is_awaited(number) =>
                {
                    Some(claim)
                }
                _ => return Ok((0, 0)), // it is there, or on its way
            },
            None => None,
        };
        // Who locks a replica would not keep out who has locked the root's file.
        if is_locked(&before) {
            return Ok((0, 0));
        }
        // A version says nothing while somebody is in the middle of a write.
        let lease = match Lease::read(reading.as_fd().ok_or("it has no descriptor")?) {
            Ok(Some(lease)) => Some(lease),
            Ok(None) => return Ok((0, 0)),
            Err(error) if Lease::is_unsupported(&error) && is_quiet(&before) => None,
            Err(error) => return Err(text_of(&error)),
        };
        let bytes = before.allocated.max(before.size) as i64;
        let device = self.reserve(bytes, 0, None).ok_or("no tier has room for it")?;
        let result = self.bring_up(relative, path, &*reading, lease.as_ref(), known, device, bytes);
        if result.is_err() {
            self.index.header.devices[device].unreserve(bytes);
        }
        result.map(|bytes| (bytes, device))
    }

    #[allow(clippy::too_many_arguments)] // one caller, which has decided all of them
    fn bring_up(
        &self,
        relative: &Path,
        path: &[u8],
        reading: &dyn terrace_tier::Reading,
        lease: Option<&Lease>,
        known: Option<u32>,
        device: usize,
        bytes: i64,
    ) -> Result<u64, String> {
        let text = |error: terrace_tier::Error| text_of(&error);
        let number = known.or_else(|| self.index.take_record()).ok_or("all records are in use")?;
        let give_back = || {
            if known.is_none() {
                self.index.free_record(number);
            }
        };
        let random = random_half();
        let name = crate::shared::index_file::object_name(number, random);
        let tier = &self.object_tiers[device];
        let made = (|| {
            let mut sink = tier.create(&name)?;
            let options = CopyOptions { abort: Some(&self.abort), lease, ..CopyOptions::default() };
            let copied = copy(reading, &mut *sink, &options)?;
            reached(Step::PrefetchCopied);
            let object = sink.commit(&name)?;
            reached(Step::PrefetchCommitted);
            Ok((copied.source, object))
        })();
        let (durable, object) = made.map_err(|error| {
            give_back();
            text(error)
        })?;
        // The name may lead to another file by now.
        let is_still = rustix::fs::lstat(self.settings.root.join(relative)).is_ok_and(|found| {
            terrace_tier::Stat::from(&found).version() == durable.version() && found.st_ino == durable.ino
        });
        if !is_still || lease.is_some_and(Lease::is_broken) {
            let _ = tier.remove(&name);
            give_back();
            self.index.header.devices[device].unreserve(bytes);
            return Ok(0);
        }
        let record = self.record(number);
        let serial = self.serial(number);
        if known.is_none() {
            record.ino.store(durable.ino, Release);
        }
        if known.is_none() || !self.is_durable_version(number, &durable) {
            record.ctime_ns.store(durable.ctime.as_ns(), Release);
        }
        record.random.store(random, Release);
        record.device.store(device as u32, Release);
        record.object_ino.store(object.ino, Release);
        record.reserved.store(bytes, Release);
        record.used_at.store(self.index.header.now.load(Relaxed), Relaxed);
        record.durable_size.store(durable.size, Release);
        record.durable_mtime_ns.store(durable.mtime.as_ns(), Release);
        record.durable_ctime_ns.store(durable.ctime.as_ns(), Release);
        record.durable_ino.store(durable.ino, Release);
        self.index.table_put(self.object_key(number), number);
        self.index.table_put(root_key(durable.ino), number);
        self.catalogue().set_path(number, serial, path);
        self.catalogue().entry(number, serial).since = Instant::now();
        self.count_as(number, serial, (true, true));
        // What evict compares with is the object's own time of change.
        self.catalogue().entry(number, serial).object_ctime_ns = object.ctime.as_ns();
        record.set_state(State::Clean);
        reached(Step::PrefetchDone);
        Ok(durable.size)
    }

    /// Regular files below `path` (or itself) that policy brings up, or all of them. An array's name stands for all of its chunks.
    pub fn prefetch_candidates(&self, path: &Path, all: bool) -> Vec<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let mut found = vec![];
        let mut pending = vec![(path.to_path_buf(), all)];
        while let Some((path, all)) = pending.pop() {
            let Ok(status) = std::fs::symlink_metadata(&path) else { continue };
            let bytes = path.as_os_str().as_bytes();
            if status.is_dir() {
                let is_root = path == self.settings.root;
                if !is_root && self.relative(bytes).is_none() {
                    continue;
                }
                let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
                let is_wanted = |relative| self.policy.decide(relative).prefetch && path.join(METADATA_FILE).exists();
                let all = all || self.relative(bytes).is_some_and(is_wanted);
                pending.extend(entries.map(|entry| (entry.path(), all)));
            } else if status.is_file()
                && let Some(relative) = self.relative(bytes)
                && (all || self.policy.decide(relative).prefetch)
            {
                found.push(as_path(bytes).as_os_str().as_bytes().to_vec());
            }
        }
        found.sort();
        found
    }
}

/// Nobody wrote it lately (where the kernel can't tell who has it open).
fn is_quiet(stat: &Stat) -> bool {
    let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(stat.mtime.as_ns().max(0) as u64);
    changed.elapsed().is_ok_and(|age| age > Duration::from_secs(2))
}
