//! Flush: make `Current` files durable. Small files go in batches, so that the waits for the disk and for programs are
//! shared.
//!
//!   prepare ─▶ copy ─▶ sync ─▶ Committing ─▶ grace ─▶ check, rename, Clean ─▶ sync directories ─▶ evict?
//!   (lease)    (.terrace/tmp)                └── commit barrier ────┘
//!
//! Each step is done for many files at a time when somebody waits for the flush (`lanes.rs`), and for one after another while the
//! program runs on, which asks the same server. A directory is looked at once for all renames in it.
//!
//! Invariant: until the rename, the link and the object are untouched; from it on, the real file is complete and synced.
//! A step that fails leaves the file `Current`.

use crate::error::text_of;
use crate::files::Files;
use crate::files::catalogue::BlockReason;
use crate::files::mover::early::Judged;
use crate::files::mover::evict::may_have_changed;
use crate::files::mover::give::TOLD;
use crate::files::mover::lanes::spread;
use crate::files::mover::syncs::{Beside, SYNCED_BYTES, Syncs};
use crate::shared::claims::Claim;
use crate::shared::ended::{Move, now_ns};
use crate::shared::path::as_path;
use crate::shared::schedule::Work;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};
use terrace_core::control::MoveKind;
use terrace_core::policy::Mode;
use terrace_index::guard::Domain;
use terrace_index::table::root_key;
use terrace_index::{State, ring::NO_RECORD};
use terrace_tier::journal::{StepId, Task};
use terrace_tier::{Behind, Copied, CopyOptions, Lease, Reading, Stat, Step, Tier, Writing, copy, reached};

/// In a hurry, so many small files are under way at a time for each mover thread.
const LANES: usize = 8;
/// More than the kernel's clock for times of files goes on at once (10 ms at 100 Hz), and a flush of a small file takes.
pub const TICK: Duration = Duration::from_millis(50);
/// A batch ends at so many files, or bytes.
const BATCH_FILES: usize = 64;
const BATCH_BYTES: u64 = 8 << 20;
/// How often is looked whether there is something to sync.
const SYNC_LOOK: Duration = Duration::from_millis(2);

/// A file on its way. Dropping it gives everything back: the temporary, the lease, the claim.
pub struct Flushing<'a> {
    pub number: u32,
    pub serial: u64,
    pub path: Vec<u8>,
    pub relative: PathBuf,
    // The order of these three matters when dropped: the lease goes before the claim.
    pub(super) lease: Option<Lease>,
    pub(super) reading: Box<dyn Reading>,
    sink: Option<Box<dyn Writing>>,
    /// The object as it was before and after the copy.
    pub(super) stat: Stat,
    /// The object may still be open for writing: what is made durable is a snapshot.
    pub(super) is_snapshot: bool,
    pub(super) begin_ns: u64,
    /// Of a large file: what an early copy was good for. How much of it was replaced.
    judged: Option<Judged<'a>>,
    replaced: u64,
    _claim: Claim<'a>,
}

/// Why there is nothing to carry on with.
pub enum Declined {
    /// It is not `Current` any more, or policy doesn't want it flushed.
    NotNeeded,
    /// Another thread has it.
    Busy,
    /// Programs read it, and other nodes may write the root's file as soon as it is there: they are to have that, by a live move.
    Read,
    BlockReason(BlockReason),
}

#[derive(Default)]
pub struct PrepareOptions<'a> {
    /// Also what policy doesn't flush.
    pub whatever_mode: bool,
    /// Also what is open for writing.
    pub snapshot: bool,
    /// Whoever asks has seen the file by this name, which is looked at again before it changes.
    pub seen_as: Option<&'a [u8]>,
    /// So long somebody else may work on the file meanwhile.
    pub patience: Duration,
}

impl Files {
    /// A mover thread's job: this record, and others that are ready, as long as they are small.
    pub fn flush_with_others(&self, first: u32) {
        let start = Instant::now();
        let mut batch = vec![];
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(number) = next {
            if let Some(file) = self.prepare_or_note(number) {
                bytes += file.stat.size;
                batch.push(file);
            }
            if batch.len() >= BATCH_FILES || bytes >= BATCH_BYTES {
                break;
            }
            next = self.schedule.next_flush(self.settings.mover.threads);
        }
        if !batch.is_empty() {
            self.flush_batch(batch, self.settings.mover.fsync, false);
            self.totals.flush_us.fetch_add(start.elapsed().as_micros() as u64, Relaxed);
        }
    }

    fn prepare_or_note(&self, number: u32) -> Option<Flushing<'_>> {
        let begin_ns = now_ns();
        let serial = self.serial(number);
        let (wanted, is_told) = match self.catalogue().get(number, serial) {
            Some(entry) => (entry.is_forced, entry.is_told(Instant::now())),
            None => (false, false),
        };
        if !wanted && !self.schedule.is_hurried() && is_told {
            self.schedule.after(TOLD, Work::Flush, number);
            return None;
        }
        match self.prepare(number, &PrepareOptions { whatever_mode: wanted, ..PrepareOptions::default() }) {
            Ok(file) => Some(file),
            Err(Declined::NotNeeded) => {
                self.look_at_early(number);
                None
            }
            Err(Declined::Busy) => {
                self.schedule.after(Duration::from_millis(20), Work::Flush, number);
                None
            }
            Err(Declined::Read) => {
                match self.move_to_root(number) {
                    Ok(()) => self.note_success(number, serial),
                    Err(libc::ENOENT) => {}
                    Err(_) => self.postpone(number, serial, BlockReason::Open),
                }
                None
            }
            Err(Declined::BlockReason(blocked_by)) => {
                if let BlockReason::Failed(reason) = &blocked_by {
                    self.note_move(MoveKind::Flush, number, serial, 0, begin_ns, Some(reason));
                }
                self.postpone(number, serial, blocked_by);
                None
            }
        }
    }

    fn note_flush(&self, file: &Flushing<'_>, error: Option<&str>) {
        let tier = Some(self.devices[self.device_of(file.number)].tier);
        let (path, bytes, begin_ns) = (&file.path, file.stat.size, file.begin_ns);
        self.ended.note(&Move { kind: MoveKind::Flush, path, bytes, tier, begin_ns, error });
    }

    /// A move of a record's file has ended.
    pub fn note_move(&self, kind: MoveKind, number: u32, serial: u64, bytes: u64, begin_ns: u64, error: Option<&str>) {
        let path = self.catalogue().path(number, serial).unwrap_or_default();
        let tier = Some(self.devices[self.device_of(number)].tier);
        self.ended.note(&Move { kind, path: &path, bytes, tier, begin_ns, error });
    }

    /// Notes why it didn't work, and plans the next try.
    pub fn postpone(&self, number: u32, serial: u64, blocked_by: BlockReason) {
        let delay = match &blocked_by {
            BlockReason::Open => {
                self.plan_early(number);
                self.await_closing(number, serial)
            }
            BlockReason::Unlocated => Duration::from_millis(500),
            BlockReason::Changed => Duration::from_millis(50),
            BlockReason::Failed(_) => {
                let failures = self.catalogue().get(number, serial).map_or(0, |entry| entry.failures);
                Duration::from_millis(100 << failures.min(7))
            }
        };
        if blocked_by == BlockReason::Unlocated {
            self.event_reader.lock().unwrap().wants_walk = true;
        }
        let next = if blocked_by == BlockReason::Open { Work::Look } else { Work::Flush };
        self.note_blocked(number, serial, blocked_by);
        self.schedule.after(delay, next, number);
    }

    /// Opens and leases the object; nothing is written yet.
    pub fn prepare(&self, number: u32, options: &PrepareOptions<'_>) -> Result<Flushing<'_>, Declined> {
        debug_assert_ne!(number, NO_RECORD);
        let begin_ns = now_ns();
        let claim = self.claims.take(number, options.patience).ok_or(Declined::Busy)?;
        let serial = self.serial(number);
        let record = self.record(number);
        match record.state() {
            // A program that writes it has not exchanged its descriptor yet, so the lease alone would not tell.
            State::Current if self.exchanges.is_awaited(number) => {
                return Err(Declined::BlockReason(BlockReason::Open));
            }
            State::Current => {}
            State::New => return Err(Declined::BlockReason(BlockReason::Changed)),
            _ => return Err(Declined::NotNeeded),
        }
        let is_known = |seen: &&[u8]| self.catalogue().path(number, serial).as_deref() == Some(*seen);
        let known = options.seen_as.filter(is_known).map(<[u8]>::to_vec);
        let path = known.or_else(|| self.located(number, serial)).ok_or_else(|| {
            // Between our looks it may have been removed.
            match record.state() {
                State::Current if self.root_is_away() => Declined::BlockReason(BlockReason::Failed(self.away())),
                State::Current => Declined::BlockReason(BlockReason::Unlocated),
                _ => Declined::NotNeeded,
            }
        })?;
        let relative = self.relative(&path).ok_or(Declined::NotNeeded)?.to_path_buf();
        if !options.whatever_mode && !self.policy.mode(&relative).flushes() {
            return Err(Declined::NotNeeded);
        }
        let reading = self.open_object(number).map_err(|error| {
            let gone = error.is_not_found() && record.state() != State::Current;
            if gone { Declined::NotNeeded } else { failed(error) }
        })?;
        let fd = reading.as_fd().expect("an object is a file of a directory");
        let is_read = || matches!(Lease::exclusive(fd), Ok(None)) && matches!(Lease::read(fd), Ok(Some(_)));
        if self.has_others() && !options.snapshot && is_read() {
            return Err(Declined::Read);
        }
        let lease = match Lease::read(fd) {
            Ok(Some(lease)) => Some(lease),
            Ok(None) if options.snapshot => None,
            Ok(None) => return Err(Declined::BlockReason(BlockReason::Open)),
            Err(error) => return Err(failed(error)),
        };
        let stat = reading.stat().map_err(failed)?;
        reached(Step::FlushLeased);
        let is_snapshot = lease.is_none();
        let sink = None;
        Ok(Flushing {
            number,
            serial,
            path,
            relative,
            lease,
            reading,
            sink,
            stat,
            is_snapshot,
            begin_ns,
            judged: None,
            replaced: 0,
            _claim: claim,
        })
    }

    /// A record's object, for reading.
    pub fn open_object(&self, number: u32) -> terrace_tier::Result<Box<dyn Reading>> {
        self.object_tiers[self.device_of(number)].open(&self.object_name(number))
    }

    /// Copies, syncs and commits. How many became durable. `is_awaited`: a program waits for it.
    pub fn flush_batch<'a>(&'a self, mut batch: Vec<Flushing<'a>>, sync: bool, is_awaited: bool) -> usize {
        let lanes = self.lanes();
        let has_lanes = lanes > 1 && batch.len() > lanes;
        batch = self.each(lanes, batch, |file| self.copy_out(file, sync, has_lanes));
        reached(Step::FlushCopied);
        if sync {
            batch = self.each(lanes, batch, |file| {
                let result = file.sink.as_mut().expect("copied").sync();
                result.map_err(|error| BlockReason::Failed(text_of(&error)))
            });
        }
        reached(Step::FlushSynced);
        let committed = self.commit_batch(batch, sync, is_awaited);
        for (file, _) in &committed {
            self.note_success(file.number, file.serial);
        }
        let count = committed.len();
        let evictions: Vec<u32> =
            committed.iter().filter(|(_, mode)| *mode == Mode::Move).map(|(file, _)| file.number).collect();
        drop(committed); // the leases and claims
        for number in evictions {
            self.schedule.after(crate::files::EVICTION_GRACE, Work::Evict, number);
        }
        count
    }

    /// While a program runs, its own requests come first.
    fn lanes(&self) -> usize {
        if self.schedule.is_hurried() { LANES } else { 1 }
    }

    /// Does a step for each file; the files for which it worked. For the others, what was in the way is noted.
    fn each<'a>(
        &self,
        lanes: usize,
        batch: Vec<Flushing<'a>>,
        step: impl Fn(&mut Flushing<'a>) -> Result<(), BlockReason> + Sync,
    ) -> Vec<Flushing<'a>> {
        let done = spread(lanes, batch, |mut file| match step(&mut file) {
            Ok(()) => Some(file),
            Err(blocked_by) => {
                if let BlockReason::Failed(reason) = &blocked_by {
                    self.note_flush(&file, Some(reason));
                }
                self.postpone(file.number, file.serial, blocked_by);
                None
            }
        });
        done.into_iter().flatten().collect()
    }

    /// `has_lanes`: other threads do the same just now.
    fn copy_out<'a>(&'a self, file: &mut Flushing<'a>, sync: bool, has_lanes: bool) -> Result<(), BlockReason> {
        let options = CopyOptions {
            cap: self.cap.as_ref(),
            abort: Some(&self.abort),
            lease: file.lease.as_ref(),
            progress: Some(&self.totals.in_flight_bytes),
            write_behind: sync,
            behind: None,
        };
        let lane = has_lanes.then_some(file.number as usize);
        let (mut sink, begun, beside) = self.sink_of(file, lane).map_err(|error| self.block_reason(file, &error))?;
        file.judged = Judged::new(self, file, &begun);
        let is_large = sync && file.stat.size >= 2 * SYNCED_BYTES;
        let copied = match sink.as_fd().filter(|_| is_large).and_then(|fd| fd.try_clone_to_owned().ok()) {
            Some(fd) => synced_meanwhile(fd, |behind| {
                let options = CopyOptions { behind: Some(behind), ..options };
                copy::finish(&begun, &*file.reading, &mut *sink, &options)
            }),
            None => copy::finish(&begun, &*file.reading, &mut *sink, &options),
        };
        let copied = copied.map_err(|error| self.block_reason(file, &error))?;
        if let Err(error) = beside.map_or(Ok(()), Beside::end) {
            let error = terrace_tier::Error::io("sync", sink.path(), error);
            return Err(self.block_reason(file, &error));
        }
        if !copied.attributes.is_complete() {
            self.warn(format!("{} lost {}", file.relative.display(), copied.attributes));
        }
        file.replaced = copied.replaced;
        file.stat = copied.source;
        file.sink = Some(sink);
        Ok(())
    }

    fn block_reason(&self, file: &Flushing<'_>, error: &terrace_tier::Error) -> BlockReason {
        use terrace_tier::Error::*;
        match error {
            SourceChanged { .. } | LeaseBroken { .. } | Aborted { .. } => BlockReason::Changed,
            // Its directory has another name by now.
            _ if error.is_not_found() && !self.links_to(&file.path, file.number) => BlockReason::Changed,
            _ => BlockReason::Failed(text_of(error)),
        }
    }

    /// Renames all that are still as they were copied. Those that became durable, each with its mode.
    fn commit_batch<'a>(
        &self,
        mut batch: Vec<Flushing<'a>>,
        sync: bool,
        is_awaited: bool,
    ) -> Vec<(Flushing<'a>, Mode)> {
        if batch.is_empty() {
            return vec![];
        }
        let steps = batch.iter().map(|file| self.flush_step(file)).collect();
        // Who opens a file for writing waits for its lease.
        let is_opened = || batch.iter().any(|file| file.lease.as_ref().is_some_and(Lease::is_broken));
        let Some(barrier) = self.commit_barrier_unless_listed(&|| is_awaited || is_opened()) else {
            batch.into_iter().for_each(|file| self.postpone(file.number, file.serial, BlockReason::Changed));
            return vec![];
        };
        let ids: Vec<StepId> = self.begin_steps(steps);
        reached(Step::FlushCommitJournaled);
        batch.retain(|file| {
            let is_still = self.record(file.number).change_state(State::Current, State::Committing);
            if !is_still {
                self.note_blocked(file.number, file.serial, BlockReason::Changed);
            }
            is_still
        });
        let mut committed = vec![];
        if self.synchronize(Domain::Names) {
            committed = self.commit_by_directory(batch);
        } else {
            for file in batch {
                self.record(file.number).change_state(State::Committing, State::Current);
                self.postpone(file.number, file.serial, BlockReason::Changed);
            }
        }
        drop(barrier);
        if sync {
            self.sync_directories(&committed);
            reached(Step::FlushDirectorySynced);
        }
        self.finish_steps(&ids);
        reached(Step::FlushDone);
        committed
    }

    /// Several directories at a time, and several files of each; what became durable.
    fn commit_by_directory<'a>(&self, batch: Vec<Flushing<'a>>) -> Vec<(Flushing<'a>, Mode)> {
        let mut directories: BTreeMap<PathBuf, Vec<Flushing<'a>>> = BTreeMap::new();
        for file in batch {
            let directory = file.relative.parent().unwrap_or(Path::new(""));
            directories.entry(self.settings.root.join(directory)).or_default().push(file);
        }
        let lanes = self.lanes();
        // None is left when programs changed all of them meanwhile.
        let lanes_inside = lanes / directories.len().max(1);
        let committed = spread(lanes, directories.into_iter().collect(), |(directory, files)| {
            self.unseen_in(&directory, || {
                self.each(lanes_inside, files, |file| {
                    self.commit(file).inspect_err(|_| {
                        self.record(file.number).change_state(State::Committing, State::Current);
                    })
                })
            })
        });
        let with_mode = |file: Flushing<'a>| {
            let mode = self.policy.mode(&file.relative);
            (file, mode)
        };
        committed.into_iter().flatten().map(with_mode).collect()
    }

    fn flush_step(&self, file: &Flushing<'_>) -> terrace_tier::journal::StepEntry {
        let mut step = self.step(Task::Flush, Step::FlushSynced, file.number, &file.path);
        if let Some(sink) = &file.sink {
            step.temporary = sink.path().to_path_buf();
            step.ino = sink.stat().map_or(0, |stat| stat.ino);
        }
        step
    }

    /// The critical section of one file: state `Committing`, no program inside a call on its name, the commit barrier up, and its
    /// directory's times noted.
    fn commit(&self, file: &mut Flushing<'_>) -> Result<(), BlockReason> {
        let record = self.record(file.number);
        // Who reads the object would not see what another node writes to the root's file: nobody does, and who begins to waits.
        let is_shared = self.has_others() && !file.is_snapshot;
        if is_shared && !file.lease.as_mut().is_some_and(Lease::upgrade) {
            return Err(BlockReason::Changed);
        }
        let is_unchanged = file.lease.as_ref().is_none_or(|lease| !lease.is_broken())
            && file.reading.stat().is_ok_and(|now| now.version() == file.stat.version())
            && self.links_to(&file.path, file.number);
        if !is_unchanged {
            return Err(BlockReason::Changed);
        }
        let sink = file.sink.take().expect("only what was copied is committed");
        let durable = sink.stat().map_err(|error| BlockReason::Failed(text_of(&error)))?;
        // All that a program may look up by the new inode is there before the inode has the name.
        record.durable_size.store(durable.size, Release);
        record.durable_mtime_ns.store(durable.mtime.as_ns(), Release);
        record.durable_ctime_ns.store(durable.ctime.as_ns(), Release);
        record.ctime_ns.store(file.stat.ctime.as_ns(), Release);
        record.durable_ino.store(durable.ino, Release);
        record.durable_birth_ns.store(0, Release);
        self.index.table_put(root_key(durable.ino), file.number);
        self.count_as(file.number, file.serial, (true, true));
        self.forget_link(file.number);
        // On another node nobody waits: there the name may be taken away, or given to another file, at this moment, too.
        let committed = match is_shared {
            true => sink.commit_over(&file.relative, &|replaced| self.is_link_to(replaced, file.number)),
            false => sink.commit(&file.relative),
        };
        let after = match committed {
            Ok(after) => after,
            Err(error) => {
                self.index.table_remove(root_key(durable.ino), file.number);
                record.durable_ino.store(0, Release);
                self.count_as(file.number, file.serial, (false, false));
                return Err(self.block_reason(file, &error));
            }
        };
        reached(Step::FlushRenamed);
        if let Some(judged) = &mut file.judged {
            judged.done(&file.stat, file.replaced);
        }
        let is_equal = after.size == durable.size && after.mtime == durable.mtime;
        self.attributes_again(file, after, is_shared);
        // Once more: a name that was told of just before may have been noted in between.
        self.forget_link(file.number);
        // Counted first: who sees that nothing is left to be flushed finds it counted.
        self.totals.flushed(self.devices[self.device_of(file.number)].tier, file.stat.size);
        self.note_flush(file, None);
        if file.is_snapshot || !is_equal || is_shared {
            // Somebody may go on writing the object, and nobody will read it there. Or a program that we don't reach wrote
            // the new file at once: then that has the newest bytes. Or another node may.
            record.set_state(State::Durable);
            // Who waited in an open for our lease has the object, and looks at this.
            self.index.header.evictions_seq.fetch_add(1, SeqCst);
        } else {
            record.set_state(State::Clean);
        }
        self.recount(file.number, file.serial);
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(file.number, file.serial);
        entry.since = Instant::now();
        entry.is_forced = false;
        entry.object_ctime_ns = record.ctime_ns.load(Acquire);
        let was_held = std::mem::take(&mut entry.held);
        drop(catalogue);
        // A program that took the name away before the record was `Clean` did not see that there is a replica to tell of.
        let is_named = rustix::fs::lstat(as_path(&file.path)).is_ok_and(|found| found.st_ino == durable.ino);
        if !is_equal || !is_named || is_shared {
            self.schedule.after(crate::files::EVICTION_GRACE, Work::Evict, file.number);
        }
        if was_held {
            self.drop_held(file.number);
        }
        Ok(())
    }

    /// Owner, mode, times or xattrs may have been changed by descriptor between the check and the rename. `is_shared`: nobody here has one, and
    /// another node may have changed the root's file since.
    fn attributes_again(&self, file: &Flushing<'_>, after: Stat, is_shared: bool) {
        let record = self.record(file.number);
        let mut durable = after;
        let may_differ = |now: &Stat| match is_shared {
            true => now.ctime != file.stat.ctime,
            false => may_have_changed(now, file.stat.ctime.as_ns()),
        };
        if let Ok(now) = file.reading.stat()
            && may_differ(&now)
        {
            match self.carry_attributes(file.number, &file.path, &*file.reading) {
                Ok(stat) => durable = stat,
                Err(error) => self.warn(format!("{}: {error}", file.relative.display())),
            }
            record.ctime_ns.store(now.ctime.as_ns(), Release);
        }
        record.durable_size.store(durable.size, Release);
        record.durable_mtime_ns.store(durable.mtime.as_ns(), Release);
        record.durable_ctime_ns.store(durable.ctime.as_ns(), Release);
    }

    fn sync_directories(&self, committed: &[(Flushing<'_>, Mode)]) {
        let directories: BTreeMap<_, _> =
            committed.iter().map(|(file, _)| (file.relative.parent(), &*file.relative)).collect();
        spread(self.lanes(), directories.into_values().collect(), |name: &Path| {
            if let Err(error) = self.root_tier.sync_name(name)
                && !error.is_not_found()
            {
                self.warn(error.to_string());
            }
        });
    }

    /// The link is about to go, and its inode may be another file's the next moment: it must not lead to this record then.
    pub fn forget_link(&self, number: u32) {
        let link = self.record(number).link_ino.swap(0, AcqRel);
        if link != 0 {
            self.index.table_remove(root_key(link), number);
        }
    }

    /// The version in `.terrace/held` was needed only while the object was newer. If programs were shown its inode number it
    /// stays until we end, so that the number isn't given to another file.
    pub fn drop_held(&self, number: u32) {
        let path = self.held_dir().join(self.object_name(number));
        let shown = self.record(number).ino.load(Acquire);
        if rustix::fs::lstat(&path).is_ok_and(|held| held.st_ino != shown) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// While a large file is copied, what is there is synced, so that the disk has little left to do at the end. What could not be written is
/// told once only, to whoever syncs: so it is told here. A copy that failed doesn't wait: a program may be waiting for its lease.
fn synced_meanwhile(
    sink: OwnedFd,
    copy: impl FnOnce(&Behind) -> terrace_tier::Result<Copied>,
) -> terrace_tier::Result<Copied> {
    let behind = Arc::new(Behind::default());
    let is_done = Arc::new(AtomicBool::new(false));
    let follow = {
        let (behind, is_done) = (behind.clone(), is_done.clone());
        move || {
            let (mut synced, mut was_there) = (0, false);
            let mut syncs = Syncs::default();
            while !is_done.load(Acquire) {
                let (written, is_there) = (behind.written.load(Acquire), behind.is_there.load(Acquire));
                let is_much = written - synced >= SYNCED_BYTES || written > synced && syncs.is_due();
                if is_much || is_there && !was_there {
                    (synced, was_there) = (written, is_there);
                    syncs.sync(&sink)?;
                } else {
                    std::thread::sleep(SYNC_LOOK);
                }
            }
            Ok::<(), Errno>(())
        }
    };
    // Without it, the sync at the end does all.
    let syncing = std::thread::Builder::new().name("sync".into()).spawn(follow).ok();
    let copied = copy(&behind);
    is_done.store(true, Release);
    let copied = copied?;
    match syncing.map(|thread| thread.join().expect("it does not panic")) {
        Some(Err(error)) => Err(terrace_tier::Error::io("sync", "a copy", error)),
        _ => Ok(copied),
    }
}

fn failed(error: terrace_tier::Error) -> Declined {
    Declined::BlockReason(BlockReason::Failed(text_of(&error)))
}
