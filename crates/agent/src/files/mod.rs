//! Files of the root that lie in tiers: their records, and the few operations that all who work on them need.
//!
//! Order of what is taken: a claim on a record, then the commit barrier, then the catalogue; never a claim while the
//! catalogue is locked.

pub mod catalogue;
mod closings;
mod crossing;
pub mod directories;
mod events;
pub mod exchange;
mod existing;
mod growth;
pub mod kept;
pub mod mover;
mod records;
pub mod recover;
mod reopen;
pub mod requests;
mod spilled;
mod walk;

use crate::error::{Context, Result};
use crate::files::catalogue::{BlockReason, Catalogue};
use crate::files::closings::Closings;
use crate::files::events::EventReader;
use crate::files::exchange::Exchanges;
use crate::files::growth::GrowthTracker;
use crate::files::kept::Mirrors;
use crate::files::mover::directory_times::DirectoryTimes;
use crate::files::mover::early::EarlyCopies;
use crate::shared::index_file::{is_dead, object_name};
use crate::shared::path::{as_path, read_link};
use crate::shared::{DECLARED_GONE, Shared};
use rustix::fs::{AtFlags, Statx, StatxFlags};
use std::ffi::OsStr;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use terrace_index::guard::Domain;
use terrace_index::{Record, State, listing_time};
use terrace_tier::journal::{Batch, FileKey, Place, StepEntry, StepId, Task};
use terrace_tier::{BandwidthCap, DirectoryTier, Journal, Safety, Space, Step, Tier};

/// A program that resolved a link just before its commit needs the object a moment longer.
pub const EVICTION_GRACE: Duration = Duration::from_millis(1000);
/// The same when a program waits for room: it can look again (`evictions_seq`).
pub const EVICTION_GRACE_URGENT: Duration = Duration::from_millis(20);

/// The files of the root that lie in tiers. What other subjects use as well is in `Shared`, and reached as if it were here.
pub struct Files {
    shared: Arc<Shared>,
    pub root_tier: DirectoryTier,
    root_space: Mutex<Option<(Instant, Space)>>,
    pub catalogue: Mutex<Catalogue>,
    event_reader: Mutex<EventReader>,
    closings: Closings,
    pub exchanges: Exchanges,
    growth: Mutex<GrowthTracker>,
    journal: Option<Journal>,
    cap: Option<BandwidthCap>,
    /// Keys of evicted objects, and since when: oldest first.
    late_keys: Mutex<Vec<(Instant, u64, u32)>>,
    directory_times: DirectoryTimes,
    mirrors: Mirrors,
    early_copies: EarlyCopies,
    /// One file of a placed directory moves at a time.
    spilling: Mutex<()>,
    /// Files on their way from object stores.
    pub arrivals: crate::peers::Arrivals,
    /// Other nodes that are registered at the root.
    pub other_nodes: Mutex<u32>,
    /// `synchronize` flips an epoch twice: two at once would undo each other's flips.
    grace: [Mutex<()>; 2],
}

impl Deref for Files {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// Held while a commit changes a name: directories are not renamed meanwhile.
pub struct CommitBarrier<'a>(&'a Files);

impl Drop for CommitBarrier<'_> {
    fn drop(&mut self) {
        self.0.index.header.committing.fetch_sub(1, SeqCst);
    }
}

/// A program that is stopped or very slow inside a guard holds a commit up at most this long; then it is tried again later.
const GRACE_PATIENCE: Duration = Duration::from_secs(5);
/// A directory's rename is a few milliseconds; one that "lasts" this long is a program that was killed.
const STUCK_RENAME: Duration = Duration::from_secs(1);
/// A commit waits until no listing was read on for so long (milliseconds), but no longer than that.
const LISTING_QUIET: u32 = 50;
const LISTING_PATIENCE: Duration = Duration::from_secs(3);

/// A program reads a listing, in which a name must not move.
fn is_listed(at: u32) -> bool {
    if at == 0 {
        return false;
    }
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    listing_time(now.tv_sec, now.tv_nsec).wrapping_sub(at) < LISTING_QUIET
}
/// How old what is said of the root's room may be.
const SPACE_KNOWN: Duration = Duration::from_secs(1);

impl Files {
    pub fn new(shared: Arc<Shared>, journal: Option<Journal>) -> Result<Files> {
        let settings = &shared.settings;
        let root_tier = DirectoryTier::open_shared_root("root", &settings.root, &shared.private_name())?;
        let closings = Closings::new().context("watch", &settings.runtime)?;
        let cap = settings.mover.bandwidth_bytes_s.map(BandwidthCap::new);
        Ok(Files {
            shared,
            root_tier,
            root_space: Mutex::default(),
            catalogue: Mutex::default(),
            event_reader: Mutex::default(),
            closings,
            exchanges: Exchanges::default(),
            growth: Mutex::default(),
            journal,
            cap,
            late_keys: Mutex::default(),
            directory_times: DirectoryTimes::default(),
            mirrors: Mirrors::default(),
            early_copies: EarlyCopies::default(),
            spilling: Mutex::default(),
            arrivals: Default::default(),
            other_nodes: Mutex::default(),
            grace: Default::default(),
        })
    }

    /// The room of the root's file system, as it was a second ago or later: each look is a request.
    pub fn root_space(&self) -> terrace_tier::Result<Space> {
        let mut known = self.root_space.lock().unwrap();
        if let Some((since, space)) = *known
            && since.elapsed() < SPACE_KNOWN
        {
            return Ok(space);
        }
        let space = self.root_tier.space()?;
        *known = Some((Instant::now(), space));
        Ok(space)
    }

    pub fn catalogue(&self) -> MutexGuard<'_, Catalogue> {
        self.catalogue.lock().unwrap()
    }

    pub fn record(&self, number: u32) -> &Record {
        &self.index.records[number as usize]
    }

    pub fn serial(&self, number: u32) -> u64 {
        self.record(number).serial.load(Acquire)
    }

    /// The name of a record's object in its device's directory.
    pub fn object_name(&self, number: u32) -> PathBuf {
        object_name(number, self.record(number).random.load(Acquire))
    }

    pub fn device_of(&self, number: u32) -> usize {
        (self.record(number).device.load(Acquire) as usize).min(self.devices.len() - 1)
    }

    /// Removes a record's object, when its name has gone: whom the old link led nowhere sees that, and looks again.
    pub fn remove_object(&self, number: u32) -> terrace_tier::Result<()> {
        self.index.header.removals_seq.fetch_add(1, SeqCst);
        self.object_tiers[self.device_of(number)].remove(&self.object_name(number))
    }

    pub fn object_path(&self, number: u32) -> PathBuf {
        if self.is_directory(number) {
            return self.object_path_of_directory(number);
        }
        self.devices[self.device_of(number)].dir.join(self.object_name(number))
    }

    /// The name in the root is a link to this record's object.
    pub fn links_to(&self, path: &[u8], number: u32) -> bool {
        if self.index.header.others.load(Acquire) > 0 {
            let _ = self.looked_at(path);
        }
        self.is_link_to(as_path(path), number)
    }

    /// What has the name now, whatever another node did to it: a file system's cache of names may be a second old.
    pub fn looked_at(&self, path: &[u8]) -> Option<Statx> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::NLINK;
        rustix::fs::statx(rustix::fs::CWD, as_path(path), flags, wanted).ok()
    }

    /// As `links_to`, by what is known here.
    pub fn is_link_to(&self, path: &Path, number: u32) -> bool {
        let text = read_link(path.as_os_str().as_bytes());
        text.is_some_and(|text| text == self.object_path(number).as_os_str().as_bytes())
    }

    /// Waits until no program is inside a call of this domain that began before. False: not within the patience.
    pub fn synchronize(&self, domain: Domain) -> bool {
        let _alone = self.grace[domain as usize].lock().unwrap();
        let start = Instant::now();
        let mut looks = 0u32;
        let dead = |pid: u32| looks_dead(pid, start.elapsed());
        self.index.synchronize(domain, dead, || {
            looks += 1;
            match looks {
                0..50 => std::hint::spin_loop(),
                50..200 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
            start.elapsed() < GRACE_PATIENCE
        })
    }

    /// Begins a time in which no directory changes its name. `None`: too many do just now.
    pub fn commit_barrier(&self) -> Option<CommitBarrier<'_>> {
        self.commit_barrier_unless_listed(&|| true)
    }

    /// As `commit_barrier`; and until somebody waits for it, a time in which no program reads a listing, where that matters.
    pub fn commit_barrier_unless_listed(&self, is_awaited: &dyn Fn() -> bool) -> Option<CommitBarrier<'_>> {
        let header = &self.index.header;
        let patience = Instant::now() + LISTING_PATIENCE;
        let waits = || is_listed(header.listed_at.load(SeqCst)) && Instant::now() < patience && !is_awaited();
        let mut start = Instant::now();
        let first = header.dir_renames.load(SeqCst);
        let mut is_constant = true;
        loop {
            while waits() {
                std::thread::sleep(Duration::from_millis(5));
                start = Instant::now();
            }
            header.committing.fetch_add(1, SeqCst);
            let now = header.dir_renames.load(SeqCst);
            if now == 0 && !waits() {
                header.commits_seq.fetch_add(1, SeqCst);
                return Some(CommitBarrier(self));
            }
            header.committing.fetch_sub(1, SeqCst);
            is_constant &= now == first;
            if start.elapsed() >= STUCK_RENAME {
                if is_constant {
                    let _ = header.dir_renames.compare_exchange(now, 0, SeqCst, SeqCst);
                } else {
                    return None;
                }
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Tells the header how many records are `Clean` and `Durable`, after a record's state changed.
    pub fn recount(&self, number: u32, serial: u64) {
        self.count_as(number, serial, self.counted(number));
    }

    /// How the record counts: (`Clean`, `Clean` or `Durable`).
    pub fn counted(&self, number: u32) -> (bool, bool) {
        let state = self.record(number).state();
        (state == State::Clean, matches!(state, State::Clean | State::Durable))
    }

    /// Counts a record before its state changes: a program that looks at the count first must not miss it.
    pub fn count_as(&self, number: u32, serial: u64, counted: (bool, bool)) {
        let mut catalogue = self.catalogue();
        let (clean, durable) = catalogue.recount(number, serial, counted);
        self.index.header.clean_count.fetch_add(clean, SeqCst);
        self.index.header.durable_count.fetch_add(durable, SeqCst);
    }

    /// Gives back what the record took from its device.
    pub fn unreserve(&self, number: u32) -> i64 {
        let record = self.record(number);
        let reserved = record.reserved.swap(0, AcqRel);
        self.index.header.devices[self.device_of(number)].unreserve(reserved);
        reserved
    }

    /// The key by which programs find the record of an object's descriptor.
    pub fn object_key(&self, number: u32) -> u64 {
        self.index.object_key(self.device_of(number) as u32, self.record(number).object_ino.load(Acquire))
    }

    pub fn note_blocked(&self, number: u32, serial: u64, blocked_by: BlockReason) {
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(number, serial);
        entry.tries += 1;
        entry.failures = if matches!(blocked_by, BlockReason::Failed(_)) { entry.failures + 1 } else { 0 };
        let path = entry.path.clone();
        if let BlockReason::Failed(reason) = &blocked_by
            && !path.is_empty()
        {
            let reason = if self.is_declared_gone() { DECLARED_GONE.into() } else { reason.clone() };
            self.failures.lock().unwrap().insert(path, reason);
        }
        entry.blocked_by = Some(blocked_by);
    }

    pub fn note_success(&self, number: u32, serial: u64) {
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(number, serial);
        entry.tries += 1;
        entry.failures = 0;
        entry.blocked_by = None;
        self.failures.lock().unwrap().remove(&entry.path);
    }

    pub fn key(&self, number: u32) -> FileKey {
        FileKey { record: number, serial: self.serial(number) }
    }

    pub fn place(&self, number: u32) -> Place {
        Place::new(&self.devices[self.device_of(number)].dir, self.object_name(number))
    }

    /// Writes down work that is about to change what others see. The tree alone is enough to recover; the journal spares
    /// a walk and keeps what the tree can't tell, so a journal that fails is a warning.
    pub fn begin_steps(&self, entries: Vec<StepEntry>) -> Vec<StepId> {
        let Some(journal) = &self.journal else { return vec![] };
        let mut batch = Batch::default();
        let ids: Vec<StepId> = entries
            .into_iter()
            .map(|entry| {
                let id = journal.new_step();
                batch.begin(id, entry);
                id
            })
            .collect();
        self.write_journal(batch);
        ids
    }

    pub fn finish_steps(&self, ids: &[StepId]) {
        let mut batch = Batch::default();
        ids.iter().for_each(|id| batch.finish(*id));
        self.write_journal(batch);
    }

    pub fn write_journal(&self, batch: Batch) {
        if let Some(journal) = &self.journal
            && !batch.is_empty()
            && let Err(error) = journal.write(batch, Safety::Process)
        {
            self.warn(format!("{error}; a recovery would have to walk the whole tree"));
        }
    }

    /// A step entry for a record as it is.
    pub fn step(&self, task: Task, step: Step, number: u32, path: &[u8]) -> StepEntry {
        StepEntry {
            task,
            step,
            file: self.key(number),
            path: Path::new(OsStr::from_bytes(path)).to_path_buf(),
            source: Some(self.place(number)),
            destination: None,
            temporary: PathBuf::new(),
            ino: self.record(number).ino.load(Relaxed),
        }
    }
}

/// A look at `/proc` only after a while: most guards are left within microseconds.
fn looks_dead(pid: u32, waited: Duration) -> bool {
    waited > Duration::from_millis(2) && is_dead(pid)
}
