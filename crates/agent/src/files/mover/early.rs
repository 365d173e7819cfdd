//! Early copies: what a program has written of a large file is copied while it writes on, so that little is left to be done when it
//! closes the file.
//!
//!   grown ─▶ whole chunks, each once, with a hash ─▶ closed ─▶ flush: what is another by now, the rest, sync, commit
//!
//! An early copy is a temporary as any other's: it is committed by a flush or not at all. Chunks that the program changes afterwards are
//! copied twice. Where programs remove more of such files than they keep, none is begun.
//!
//! The object is opened for each turn anew, and the claim on it given back after each: a descriptor of ours would be taken for a program's,
//! and whoever wants to move the file comes first.

use crate::files::Files;
use crate::files::mover::flush::Flushing;
use crate::files::mover::syncs::{Beside, SYNCED_BYTES, Syncs, is_local};
use crate::shared::schedule::Work;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use terrace_index::{GROWN_BYTES, State};
use terrace_tier::{Begun, CopyOptions, Stat, Tier, Writing, copy};

/// A thread works on one file for so long, if nobody else wants it.
const TURN: Duration = Duration::from_millis(50);
/// Between two turns; twice as long each time when the file has not grown, until nobody looks any more before it is told of again.
const PAUSE_MIN: Duration = Duration::from_millis(3);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// While somebody waits for other files, or works on this one.
const GIVE_WAY: Duration = Duration::from_millis(100);
/// So many bytes may have been copied in vain, beyond those that were of use. As many in vain are remembered twice over, and as many of use once.
const VAIN_MAX: i64 = 256 << 20;
/// Bytes of a file that goes to another node count so often: those of a pipeline's next step will go, too.
const GIVEN: u64 = 4;
/// Each is an open file.
const COPIES_MAX: usize = 64;
/// A tier that takes less than this a second is slow: what it has of a copy is synced after a turn, while it is so much.
const SLOW_BYTES_S: f64 = 200e6;
const SYNCED_EARLY: RangeInclusive<u64> = 4 << 20..=SYNCED_BYTES;
/// A faster one has it in memory. From here on it is synced beside the next turns, which wait when there is so much more.
const SYNCED_BESIDE: u64 = SYNCED_BYTES;
const UNSYNCED_MAX: u64 = 96 << 20;
/// What early copies leave free in the root.
const ROOT_ROOM: u64 = 256 << 20;

#[derive(Default)]
pub struct EarlyCopies {
    inner: Mutex<Inner>,
    /// One at a time: they share a disk.
    is_syncing: Arc<AtomicBool>,
}

#[derive(Default)]
struct Inner {
    /// By record, with its serial. `None`: it can't be had, and is not tried again.
    copies: HashMap<u32, (u64, Option<EarlyCopy>)>,
    balance: Balance,
}

/// Bytes that were copied for nothing, less those that were of use or would have been.
#[derive(Default)]
struct Balance(i64);

impl Balance {
    fn add(&mut self, in_vain: u64, of_use: u64) {
        let balance = self.0.saturating_add_unsigned(in_vain).saturating_sub_unsigned(of_use);
        self.0 = balance.clamp(-VAIN_MAX, 2 * VAIN_MAX);
    }

    /// A file of so many bytes has gone to another node, whether it had a copy or not.
    fn given(&mut self, bytes: u64) {
        if bytes >= GROWN_BYTES as u64 {
            self.add(bytes.saturating_mul(GIVEN), 0);
        }
    }

    fn is_in_vain(&self) -> bool {
        self.0 >= VAIN_MAX
    }
}

struct EarlyCopy {
    /// Before the sink: it has ended when that goes.
    beside: Option<Beside>,
    relative: PathBuf,
    sink: Box<dyn Writing>,
    begun: Begun,
    syncs: Syncs,
    /// Bytes since the last sync.
    unsynced: u64,
    pause: Duration,
}

impl EarlyCopy {
    /// Nobody can have the file meanwhile: so there is to be little.
    fn sync_little(&mut self) -> terrace_tier::Result<()> {
        if SYNCED_EARLY.contains(&self.unsynced)
            && let Some(sink) = self.sink.as_fd()
        {
            let synced = self.syncs.sync(sink);
            synced.map_err(|error| terrace_tier::Error::io("sync", self.sink.path(), error))?;
            self.unsynced = 0;
        }
        Ok(())
    }

    /// By another thread, where that holds up nobody who writes to the file: not behind FUSE.
    fn sync_beside(&mut self, is_syncing: &Arc<AtomicBool>) -> terrace_tier::Result<()> {
        if self.unsynced < SYNCED_BESIDE || self.beside.as_ref().is_some_and(Beside::is_under_way) {
            return Ok(());
        }
        let before = self.beside.take().map_or(Ok(()), Beside::end);
        before.map_err(|error| terrace_tier::Error::io("sync", self.sink.path(), error))?;
        let sink = self.sink.as_fd().filter(|sink| rustix::fs::fstatfs(sink).is_ok_and(|found| is_local(&found)));
        if let Some(Ok(sink)) = sink.map(|sink| sink.try_clone_to_owned())
            && !is_syncing.swap(true, AcqRel)
        {
            let ended = Ended(is_syncing.clone());
            self.beside = Beside::begin(sink, move || drop(ended));
            self.unsynced = 0;
        }
        Ok(())
    }

    /// The disk is to come after.
    fn waits_for_sync(&self) -> bool {
        self.unsynced >= UNSYNCED_MAX && self.beside.as_ref().is_some_and(Beside::is_under_way)
    }
}

/// When it is dropped, the next sync may begin.
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// The flush of a large file. If it began with an early copy and is dropped before it is `done`, that was for nothing.
pub struct Judged<'a> {
    files: &'a Files,
    number: u32,
    serial: u64,
    copied_early: u64,
    of_use: u64,
    in_vain: u64,
}

impl<'a> Judged<'a> {
    pub fn new(files: &'a Files, file: &Flushing<'_>, begun: &Begun) -> Option<Judged<'a>> {
        let copied_early = begun.bytes();
        let is_judged = copied_early > 0 || files.might_have_early(file);
        is_judged.then_some(Judged {
            files,
            number: file.number,
            serial: file.serial,
            copied_early,
            of_use: 0,
            in_vain: copied_early,
        })
    }

    /// The file is durable, with so many of the early copy's replaced. Without one, one of all that it has would have been of use.
    pub fn done(&mut self, stat: &Stat, replaced: u64) {
        let copied = if self.copied_early > 0 { self.copied_early } else { stat.allocated };
        self.of_use = copied.min(stat.size).saturating_sub(replaced);
        self.in_vain = self.copied_early.saturating_sub(self.of_use);
    }
}

impl Drop for Judged<'_> {
    fn drop(&mut self) {
        self.files.judge_early(self);
    }
}

impl Files {
    /// The record's file is open, and large or about to be.
    pub fn plan_early(&self, number: u32) {
        let is_large = self.record(number).reserved.load(Acquire) >= GROWN_BYTES;
        if is_large && self.settings.mover.early_copies {
            self.schedule.after_unless_planned(Duration::ZERO, Work::Early, number);
        }
    }

    /// A mover thread's job: goes on for a turn.
    pub fn copy_early(&self, number: u32) {
        let Some(_claim) = self.claims.try_take(number) else {
            return self.schedule.after(GIVE_WAY, Work::Early, number);
        };
        let serial = self.serial(number);
        let Some(relative) = self.wanted_early(number, serial) else { return self.forget_early(number) };
        // A flush goes on with what is there.
        if self.schedule.is_planned(Work::Flush, number) {
            return;
        }
        if self.schedule.is_hurried() {
            return self.schedule.after(GIVE_WAY, Work::Early, number);
        }
        let copy = match self.take_early(number, serial) {
            Some(copy) => copy,
            // It will be told of again.
            None if !self.has_place_for_early() => return,
            None => self.begin_early(number, relative),
        };
        let Some(mut copy) = copy else { return self.keep_early(number, serial, None) };
        if copy.waits_for_sync() {
            self.keep_early(number, serial, Some(copy));
            return self.schedule.after(PAUSE_MIN, Work::Early, number);
        }
        let end = Instant::now() + TURN;
        let is_enough = || Instant::now() >= end || self.claims.is_wanted(number) || self.schedule.is_awaited();
        match self.go_on_early(number, &mut copy, &is_enough) {
            Ok(0) if !is_enough() => copy.pause = (copy.pause * 2).min(2 * PAUSE_MAX),
            Ok(_) => copy.pause = PAUSE_MIN,
            // It was made shorter.
            Err(terrace_tier::Error::SourceChanged { .. }) => {}
            // The flush will meet what is in the way, and say so.
            Err(_) => {
                self.count_vain(&copy);
                return self.keep_early(number, serial, None);
            }
        }
        let pause = copy.pause;
        self.keep_early(number, serial, Some(copy));
        if pause <= PAUSE_MAX {
            self.schedule.after(pause, Work::Early, number);
        }
    }

    /// The name of a file that is to be durable, and is in a tier on another file system than the root's.
    fn wanted_early(&self, number: u32, serial: u64) -> Option<PathBuf> {
        let device = self.devices[self.device_of(number)].dev;
        if self.record(number).state() != State::Current || device == self.index.header.root_dev.load(Relaxed) {
            return None;
        }
        let path = self.catalogue().path(number, serial)?;
        let relative = self.relative(&path)?.to_path_buf();
        self.policy.mode(&relative).flushes().then_some(relative)
    }

    fn has_place_for_early(&self) -> bool {
        let early = self.early();
        !early.balance.is_in_vain() && early.copies.values().filter(|(_, copy)| copy.is_some()).count() < COPIES_MAX
    }

    fn begin_early(&self, number: u32, relative: PathBuf) -> Option<EarlyCopy> {
        let stat = self.open_object(number).and_then(|object| object.stat()).ok()?;
        let sink = self.root_tier.create_with_mode(&relative, stat.mode, None).ok()?;
        Some(EarlyCopy {
            beside: None,
            relative,
            sink,
            begun: Begun::default(),
            syncs: Syncs::default(),
            unsynced: 0,
            pause: PAUSE_MIN,
        })
    }

    fn go_on_early(
        &self,
        number: u32,
        copy: &mut EarlyCopy,
        is_enough: &dyn Fn() -> bool,
    ) -> terrace_tier::Result<u64> {
        let source = self.open_object(number)?;
        // Room that programs may need is not taken.
        if self.root_tier.space()?.free < ROOT_ROOM {
            return Ok(0);
        }
        let options = CopyOptions {
            cap: self.cap.as_ref(),
            abort: Some(&self.abort),
            write_behind: self.settings.mover.fsync,
            ..CopyOptions::default()
        };
        let begun = Instant::now();
        let taken = copy::begin(&mut copy.begun, &*source, &mut *copy.sink, &options, is_enough)?;
        drop(source);
        copy.unsynced += taken;
        let is_slow = (taken as f64) < SLOW_BYTES_S * begun.elapsed().as_secs_f64();
        let is_wanted = self.claims.is_wanted(number) || self.schedule.is_awaited();
        if taken == 0 || is_wanted || self.cap.is_some() || !self.settings.mover.fsync {
            return Ok(taken);
        }
        if !is_slow {
            copy.sync_beside(&self.early_copies.is_syncing)?;
        } else if copy.syncs.is_due() {
            copy.sync_little()?;
        }
        Ok(taken)
    }

    fn early(&self) -> MutexGuard<'_, Inner> {
        self.early_copies.inner.lock().unwrap()
    }

    fn keep_early(&self, number: u32, serial: u64, copy: Option<EarlyCopy>) {
        self.early().copies.insert(number, (serial, copy));
    }

    /// The record's, if it is still the same file's. One of another file is dropped outside the lock: to unlink it takes a while.
    fn take_early(&self, number: u32, serial: u64) -> Option<Option<EarlyCopy>> {
        let (of, copy) = self.early().copies.remove(&number)?;
        if of == serial {
            return Some(copy);
        }
        copy.inspect(|copy| self.count_vain(copy));
        None
    }

    fn count_vain(&self, copy: &EarlyCopy) {
        self.early().balance.add(copy.begun.bytes(), 0);
    }

    /// An early copy of the file would have been of use, had one been made.
    fn might_have_early(&self, file: &Flushing<'_>) -> bool {
        let is_large = file.stat.allocated >= GROWN_BYTES as u64;
        is_large
            && self.settings.mover.early_copies
            && !file.is_snapshot
            && !self.has_early(file.number)
            && self.wanted_early(file.number, file.serial).is_some()
    }

    /// For the flush of a file: where it is copied to, what is there already, and a sync of that which has to end well.
    pub fn sink_of(
        &self,
        file: &Flushing<'_>,
        lane: Option<usize>,
    ) -> terrace_tier::Result<(Box<dyn Writing>, Begun, Option<Beside>)> {
        match self.take_early(file.number, file.serial) {
            // In another directory it might be on another file system.
            Some(Some(copy)) if copy.relative.parent() == file.relative.parent() => {
                return Ok((copy.sink, copy.begun, copy.beside));
            }
            Some(Some(copy)) => self.count_vain(&copy),
            Some(None) => self.keep_early(file.number, file.serial, None),
            None => {}
        }
        let sink = self.root_tier.create_with_mode(&file.relative, file.stat.mode, lane)?;
        Ok((sink, Begun::default(), None))
    }

    /// A flush has come to its end. Of a file whose early copy was of no use, as it was opened again before that, none is begun again.
    fn judge_early(&self, judged: &Judged<'_>) {
        let mut early = self.early();
        early.balance.add(judged.in_vain, judged.of_use);
        if judged.copied_early > 0 && judged.of_use == 0 {
            early.copies.insert(judged.number, (judged.serial, None));
        }
    }

    /// A file of so many bytes has gone to another node. Its copy is dropped by the next look at all of them: somebody waits.
    pub fn judge_given(&self, bytes: u64) {
        self.early().balance.given(bytes);
    }

    /// The record's file may have gone, or may not be to be durable any more: then its copy goes, by a mover thread.
    pub fn look_at_early(&self, number: u32) {
        if self.has_early(number) {
            self.schedule.now(Work::Early, number);
        }
    }

    pub fn has_early(&self, number: u32) -> bool {
        self.early().copies.contains_key(&number)
    }

    /// The record's file has gone, goes elsewhere, or is not to be durable any more. The caller has the claim.
    pub fn forget_early(&self, number: u32) {
        let forgotten = self.early().copies.remove(&number);
        forgotten.and_then(|(_, copy)| copy).inspect(|copy| self.count_vain(copy));
    }

    /// Those of files that have gone without a word.
    pub fn forget_early_copies(&self) {
        let known: Vec<(u32, u64)> =
            self.early().copies.iter().map(|(number, (serial, _))| (*number, *serial)).collect();
        for (number, serial) in known {
            let is_still = self.serial(number) == serial
                && matches!(self.record(number).state(), State::Current | State::Committing);
            if !is_still && let Some(_claim) = self.claims.try_take(number) {
                self.forget_early(number);
            }
        }
    }

    /// Nothing is copied any more.
    pub fn drop_early_copies(&self) {
        let copies = std::mem::take(&mut self.early().copies);
        drop(copies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_in_vain_end_and_files_that_are_kept_begin_them_again() {
        let mut balance = Balance::default();
        balance.add(VAIN_MAX as u64 - 1, 0);
        assert!(!balance.is_in_vain());
        balance.add(1, 0);
        assert!(balance.is_in_vain());
        balance.add(1 << 50, 0);
        balance.add(0, VAIN_MAX as u64);
        assert!(balance.is_in_vain(), "what was copied for nothing is not forgotten at once");
        balance.add(0, 1);
        assert!(!balance.is_in_vain(), "but what is kept then makes up for it, however much it was");
        balance.add(0, 1 << 50);
        balance.add(2 * VAIN_MAX as u64, 0);
        assert!(balance.is_in_vain(), "however much was kept before, what is in vain now counts");
    }

    #[test]
    fn a_large_file_that_goes_to_another_node_ends_them_sooner() {
        let mut balance = Balance::default();
        (0..1000).for_each(|_| balance.given(GROWN_BYTES as u64 - 1));
        assert!(!balance.is_in_vain(), "small files have no early copies");
        balance.given(VAIN_MAX as u64 / GIVEN);
        assert!(balance.is_in_vain());
        balance.add(0, 2 * VAIN_MAX as u64);
        assert!(!balance.is_in_vain());
    }
}
