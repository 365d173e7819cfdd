//! What the command line asks for: flush, evict, prefetch, each until it is done or can't be.

use crate::files::EVICTION_GRACE_URGENT;
use crate::files::Files;
use crate::files::catalogue::BlockReason;
use crate::files::mover::evict::Eviction;
use crate::files::mover::flush::PrepareOptions;
use crate::files::mover::remove::Removal;
use crate::shared::DECLARED_GONE;
use crate::shared::path::as_path;
use crate::shared::request::{FlushOptions, Outcome, Progress, Scope};
use crate::shared::schedule::{Tally, Work};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::control::Failure;
use terrace_core::policy::Mode;
use terrace_index::State;
use terrace_tier::Reading;

const LOOK: Duration = Duration::from_millis(5);
const LOOK_MIN: Duration = Duration::from_micros(200);

/// Looks at what is under way: often at first, for most runs end with little left to do; then ever `LOOK`.
#[derive(Default)]
struct Looks(Duration);

impl Looks {
    fn pause(&mut self) {
        self.0 = (self.0 * 2).clamp(LOOK_MIN, LOOK);
        std::thread::sleep(self.0);
    }
}
const PROGRESS: Duration = Duration::from_millis(100);
/// A program that ends closes its files a moment before or after we are asked.
const OPEN_PATIENCE: Duration = Duration::from_millis(300);
/// A file that can't be moved is tried so often before it is reported; it is tried further in the background.
const FAILURES_MAX: u32 = 3;
const UNLOCATED_MAX: u64 = 3;
/// Removed objects that stay open until the run's end has been answered.
const HELD_OBJECTS_MAX: usize = 512;

/// What a pass over the files that policy removes has done.
#[derive(Default)]
pub struct Removed {
    /// Without names; their memory goes with them.
    objects: Vec<Box<dyn Reading>>,
    refused: Vec<PathBuf>,
}

impl Removed {
    /// Whoever asked gets the answer first.
    pub fn release(self) {
        let _ = std::thread::Builder::new().name("release".into()).spawn(move || drop(self.objects));
    }
}

struct Target {
    number: u32,
    serial: u64,
    path: Vec<u8>,
    bytes: u64,
    open_since: Option<Instant>,
    unlocated: u64,
    tries: u64,
}

impl Files {
    /// All that has happened up to now is known afterwards.
    pub fn catch_up(&self) {
        self.drain_events();
        self.forget_exchanged();
        if self.rescan() {
            self.drain_events();
            self.walk_tree();
        }
        self.make_up_for_losses();
    }

    /// Flushes files. At the end of the last run those that policy removes go as well: `remove_rest` is to follow.
    pub fn flush_files(
        &self,
        scope: &Scope,
        options: &FlushOptions,
        progress: Progress<'_>,
    ) -> (Outcome, Option<Removed>) {
        self.catch_up();
        let is_last = self.runs.lock().unwrap().count() <= 1;
        let settles = options.settle_open || (options.end_of_run && is_last);
        let mut outcome = Outcome::default();
        let mut targets = self.targets(scope, options);
        let files_total = targets.len() as u64;
        let bytes_total: u64 = targets.iter().map(|target| target.bytes).sum();
        let in_flight = self.totals.in_flight_bytes.load(Relaxed);
        let mut told = Instant::now();
        for target in &targets {
            self.schedule.now(Work::Flush, target.number);
        }
        let removes = options.end_of_run && is_last;
        let _hurry = self.schedule.hurry();
        let removed = std::thread::scope(|threads| {
            // What is to go doesn't wait for what is to stay.
            let removable = if removes { self.removable(scope) } else { vec![] };
            let removal = (!removable.is_empty()).then(|| threads.spawn(|| self.remove_files(removable)));
            let is_removing = || removal.as_ref().is_some_and(|removal| !removal.is_finished());
            let mut looks = Looks::default();
            while !targets.is_empty() || is_removing() {
                self.drain_events();
                self.forget_exchanged();
                let mut later = vec![];
                for target in std::mem::take(&mut targets) {
                    if let Some(target) = self.look_at(target, settles, options.end_of_run, &mut outcome) {
                        later.push(target);
                    }
                }
                targets = later;
                if told.elapsed() >= PROGRESS {
                    told = Instant::now();
                    let copied = self.totals.in_flight_bytes.load(Relaxed) - in_flight;
                    let files_done = files_total - (targets.len() as u64).min(files_total);
                    if !progress(files_done, files_total, copied.min(bytes_total), bytes_total) {
                        break;
                    }
                }
                if !targets.is_empty() || is_removing() {
                    looks.pause();
                }
            }
            removal.map_or_else(Removed::default, |removal| removal.join().expect("removal panics never"))
        });
        self.sync_small_files(&mut outcome);
        // Names that were given to others' versions say nothing of it any more.
        if options.end_of_run && self.is_declared_gone() {
            outcome.failures.push(Failure { path: self.settings.root.clone(), reason: DECLARED_GONE.into() });
        }
        (outcome, removes.then_some(removed))
    }

    /// What programs made, or wrote anew, in the root because it is small is to be on its disk, as what is flushed.
    fn sync_small_files(&self, outcome: &mut Outcome) {
        if !self.settings.mover.fsync || self.index.header.small_in_root.load(Acquire) == 0 {
            return;
        }
        let synced = std::fs::File::open(&self.settings.root).and_then(|root| Ok(rustix::fs::syncfs(root)?));
        if let Err(error) = synced {
            outcome.failures.push(Failure { path: self.settings.root.clone(), reason: error.to_string() });
        }
    }

    /// Refused before: a program that has just ended had it open. New: it was not known, or not yet named.
    pub fn remove_rest(&self, scope: &Scope, removed: &mut Removed, outcome: &mut Outcome) {
        let again = self.remove_files(self.removable(scope));
        removed.objects.extend(again.objects);
        outcome.open_files.extend(again.refused);
    }

    fn targets(&self, scope: &Scope, options: &FlushOptions) -> Vec<Target> {
        let mut targets = vec![];
        for number in 0..self.index.records_end() {
            let record = self.record(number);
            let serial = record.serial.load(Acquire);
            if serial == 0 || !matches!(record.state(), State::Current | State::Committing | State::Moving) {
                continue;
            }
            let path = self.catalogue().path(number, serial).unwrap_or_default();
            if !path.is_empty() && (!scope.has(&path) || !(options.all || self.mode(&path).flushes())) {
                continue;
            }
            if path.is_empty() && !scope.0.is_empty() {
                continue;
            }
            let bytes = rustix::fs::lstat(self.object_path(number)).map_or(0, |stat| stat.st_size as u64);
            let mut catalogue = self.catalogue();
            let entry = catalogue.entry(number, serial);
            entry.is_forced |= options.all;
            entry.blocked_by = None;
            entry.failures = 0;
            let tries = entry.tries;
            targets.push(Target { number, serial, path, bytes, open_since: None, unlocated: 0, tries });
        }
        targets
    }

    /// What became of it since the last look; `None`: it is settled one way or another.
    fn look_at(&self, mut target: Target, settles: bool, end_of_run: bool, outcome: &mut Outcome) -> Option<Target> {
        let number = target.number;
        let record = self.record(number);
        if self.serial(number) == target.serial && record.state() == State::Moved {
            // It grew out of its tier meanwhile: what is to be flushed has another record now.
            if let Some(next) = record.moved_to.load(Acquire).checked_sub(1) {
                target.number = next;
                target.serial = self.serial(next);
                self.catalogue().entry(next, target.serial).is_forced = true;
                self.schedule.now(Work::Flush, next);
                return Some(target);
            }
        }
        let is_pending = self.serial(number) == target.serial
            && matches!(record.state(), State::Current | State::Committing | State::Moving);
        if !is_pending {
            if matches!(record.state(), State::Clean | State::Durable) {
                outcome.files += 1;
                outcome.bytes += target.bytes;
                outcome.done.push(as_path(&target.path).into());
            }
            return None;
        }
        let (blocked_by, failures, tries) = {
            let catalogue = self.catalogue();
            let entry = catalogue.get(number, target.serial)?;
            if !entry.path.is_empty() && entry.path != target.path {
                target.path.clone_from(&entry.path);
            }
            (entry.blocked_by.clone(), entry.failures, entry.tries)
        };
        if tries == target.tries {
            return Some(target); // not tried since the last look
        }
        target.tries = tries;
        match blocked_by {
            Some(BlockReason::Open) => return self.still_open(target, settles, end_of_run, outcome),
            Some(BlockReason::Unlocated) => {
                target.unlocated += 1;
                self.walk_tree();
                if target.unlocated > UNLOCATED_MAX {
                    // It has no name: nobody can ask for it, and it must not keep us from leaving.
                    if !self.links_to(&target.path, number) {
                        self.catalogue().set_path(number, target.serial, b"");
                    }
                    return None;
                }
                self.schedule.now(Work::Flush, number);
            }
            Some(BlockReason::Failed(reason)) if failures >= FAILURES_MAX => {
                outcome.failures.push(Failure { path: as_path(&target.path).into(), reason });
                return None;
            }
            Some(BlockReason::Failed(_) | BlockReason::Changed) | None => self.schedule.now(Work::Flush, number),
        }
        Some(target)
    }

    fn still_open(&self, mut target: Target, settles: bool, end_of_run: bool, outcome: &mut Outcome) -> Option<Target> {
        let since = *target.open_since.get_or_insert_with(Instant::now);
        let path = || PathBuf::from(as_path(&target.path));
        if !settles {
            outcome.open_files.push(path());
            return None;
        }
        if end_of_run && since.elapsed() < OPEN_PATIENCE {
            self.schedule.after_unless_planned(Duration::from_millis(20), Work::Flush, target.number);
            self.schedule.now(Work::Flush, target.number);
            std::thread::sleep(LOOK);
            return Some(target);
        }
        let settled = self.settle(target.number);
        // Whoever still writes it after its run has ended writes for nobody; before that, it stays where it is written.
        let done = settled.is_ok() || (end_of_run && self.snapshot(target.number));
        if settled.is_err() {
            outcome.open_files.push(path());
        }
        if done {
            outcome.files += 1;
            outcome.bytes += target.bytes;
            outcome.done.push(path());
        }
        None
    }

    /// A mapped file can't be moved under its program: what it has now is made durable.
    fn snapshot(&self, number: u32) -> bool {
        for _ in 0..5 {
            if let Ok(file) = self
                .prepare(number, &PrepareOptions { whatever_mode: true, snapshot: true, ..PrepareOptions::default() })
                && self.flush_batch(vec![file], self.settings.mover.fsync, true) == 1
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }

    /// What policy removes at the end of a run.
    fn removable(&self, scope: &Scope) -> Vec<(u32, u64, Vec<u8>)> {
        self.catalogue()
            .iter()
            .filter(|(_, entry)| !entry.path.is_empty() && scope.has(&entry.path))
            .filter(|(_, entry)| self.mode(&entry.path) == Mode::Remove)
            .map(|(number, entry)| (number, entry.serial, entry.path.clone()))
            .collect()
    }

    fn remove_files(&self, files: Vec<(u32, u64, Vec<u8>)>) -> Removed {
        let mut removed = Removed::default();
        for (number, serial, path) in files {
            if self.serial(number) != serial || self.record(number).state() != State::Current {
                continue;
            }
            match self.remove_placed(number) {
                Removal::Done(object) if removed.objects.len() < HELD_OBJECTS_MAX => removed.objects.push(object),
                Removal::Done(_) | Removal::NotNeeded => {}
                Removal::Refused => removed.refused.push(as_path(&path).into()),
            }
        }
        removed
    }

    /// Evicts what is clean in scope.
    pub fn evict_files(&self, scope: &Scope, outcome: &mut Outcome) {
        let clean: Vec<(u32, Vec<u8>)> = self
            .catalogue()
            .iter()
            .filter(|(number, entry)| {
                self.record(*number).state() == State::Clean && !entry.path.is_empty() && scope.has(&entry.path)
            })
            .map(|(number, entry)| (number, entry.path.clone()))
            .collect();
        for (number, path) in clean {
            let bytes = self.record(number).durable_size.load(Relaxed);
            let mut result = self.evict(number, EVICTION_GRACE_URGENT);
            for _ in 0..100 {
                let Eviction::Later(delay) = result else { break };
                std::thread::sleep(delay);
                result = self.evict(number, EVICTION_GRACE_URGENT);
            }
            if result == Eviction::Open {
                result = self.evict_open(number);
            }
            match result {
                Eviction::Done => {
                    outcome.files += 1;
                    outcome.bytes += bytes;
                }
                Eviction::NotNeeded => {}
                Eviction::Open | Eviction::Later(_) => outcome.open_files.push(as_path(&path).into()),
                Eviction::Failed(reason) => outcome.failures.push(Failure { path: as_path(&path).into(), reason }),
            }
        }
    }

    pub fn prefetch_all(&self, scope: &Scope, progress: Progress<'_>) -> Outcome {
        self.drain_events();
        let is_listed = !scope.0.is_empty();
        let candidates: Vec<Vec<u8>> = if is_listed {
            scope.0.iter().flat_map(|path| self.prefetch_candidates(path, true)).collect()
        } else if self.policy.prefetches_nothing() {
            vec![]
        } else {
            self.prefetch_candidates(&self.settings.root, false)
        };
        let tally = Arc::new(Tally::default());
        let total = candidates.len() as u64;
        let size = |path: &Vec<u8>| rustix::fs::lstat(as_path(path)).map_or(0, |stat| stat.st_size as u64);
        let bytes_total = candidates.iter().map(size).sum();
        tally.pending.store(total, Release);
        for path in candidates {
            self.schedule.prefetch(path, tally.clone());
        }
        let mut told = Instant::now();
        while tally.pending.load(Acquire) > 0 && !self.abort.load(Relaxed) {
            std::thread::sleep(LOOK);
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                let done = total - tally.pending.load(Relaxed);
                progress(done, total, tally.bytes.load(Relaxed), bytes_total);
            }
        }
        let failures = std::mem::take(&mut *tally.failures.lock().unwrap());
        let to_failure = |(path, reason): (Vec<u8>, String)| Failure { path: as_path(&path).into(), reason };
        Outcome {
            files: tally.files.load(Relaxed),
            bytes: tally.bytes.load(Relaxed),
            failures: failures.into_iter().map(to_failure).collect(),
            ..Outcome::default()
        }
    }

    /// A path as the command line gives it: absolute, through an alias of the root perhaps.
    pub fn canonical(&self, path: &Path) -> PathBuf {
        for alias in &self.settings.aliases {
            if let Ok(rest) = path.strip_prefix(alias) {
                return if rest.as_os_str().is_empty() {
                    self.settings.root.clone()
                } else {
                    self.settings.root.join(rest)
                };
            }
        }
        debug_assert!(path.as_os_str().as_bytes().len() < terrace_index::PATH_MAX);
        path.to_path_buf()
    }
}
