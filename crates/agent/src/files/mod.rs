//! What all threads of the agent share, and the few operations that all of them need.
//!
//! Order of what is taken: a claim on a record, then the commit gate, then the catalogue; never a claim while the
//! catalogue is locked.

pub mod catalogue;
mod closings;
mod events;
pub mod exchange;
mod growth;
pub mod mover;
pub mod recover;
pub mod requests;
mod walk;

use crate::error::{Context, Result};
use crate::files::catalogue::{Catalogue, Obstacle};
use crate::files::closings::Closings;
use crate::files::events::Pump;
use crate::files::exchange::Exchanges;
use crate::files::growth::Growing;
use crate::files::mover::directory_times::DirectoryTimes;
use crate::objects::Objects;
use crate::shared::claims::Claims;
use crate::shared::index_file::{self, DevicePlace, is_dead, object_name};
use crate::shared::runs::Runs;
use crate::shared::schedule::Schedule;
use rustix::fs::{Mode as RawMode, OFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use terrace_core::control::Counters;
use terrace_core::policy::{Mode, Policy};
use terrace_core::settings::Settings;
use terrace_index::guard::Domain;
use terrace_index::{Index, PRIVATE_DIR, Record, State};
use terrace_tier::journal::{Batch, FileKey, Place, StepEntry, StepId, Task};
use terrace_tier::{BandwidthCap, DirectoryTier, Journal, Safety, Step, Tier};

/// Totals since the start, as `control::Counters` tells them; seconds in microseconds.
#[derive(Default)]
pub struct Totals {
    pub flushed_files: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub flush_us: AtomicU64,
    pub evicted_files: AtomicU64,
    pub evicted_bytes: AtomicU64,
    pub evict_us: AtomicU64,
    pub prefetched_files: AtomicU64,
    pub prefetched_bytes: AtomicU64,
    pub prefetch_us: AtomicU64,
    pub moved_live_files: AtomicU64,
    pub moved_live_bytes: AtomicU64,
    pub removed_files: AtomicU64,
    pub removed_bytes: AtomicU64,
    /// Bytes of flushes under way that are copied already.
    pub in_flight_bytes: AtomicU64,
    /// By tier: files made there and their bytes, counted when a file is durable, removed or listed.
    pub written: Vec<(AtomicU64, AtomicU64)>,
}

impl Totals {
    /// A file of this tier, with so many bytes, is durable now.
    pub fn flushed(&self, tier: usize, size: u64) {
        let (files, bytes) = &self.written[tier];
        for (total, more) in [(&self.flushed_files, 1), (&self.flushed_bytes, size), (files, 1), (bytes, size)] {
            total.fetch_add(more, Relaxed);
        }
    }

    pub fn counters(&self) -> Counters {
        let count = |value: &AtomicU64| value.load(Relaxed);
        let seconds = |value: &AtomicU64| value.load(Relaxed) as f64 / 1e6;
        Counters {
            flushed_files: count(&self.flushed_files),
            flushed_bytes: count(&self.flushed_bytes),
            flush_s: seconds(&self.flush_us),
            evicted_files: count(&self.evicted_files),
            evicted_bytes: count(&self.evicted_bytes),
            evict_s: seconds(&self.evict_us),
            prefetched_files: count(&self.prefetched_files),
            prefetched_bytes: count(&self.prefetched_bytes),
            prefetch_s: seconds(&self.prefetch_us),
            moved_live_files: count(&self.moved_live_files),
            moved_live_bytes: count(&self.moved_live_bytes),
            removed_files: count(&self.removed_files),
            removed_bytes: count(&self.removed_bytes),
            ..Counters::default()
        }
    }
}

pub struct Agent {
    pub settings: Settings,
    pub policy: Policy,
    pub index: Index,
    pub index_ino: u64,
    /// It counts from nothing: no agent before this one has left it.
    pub index_is_new: bool,
    pub devices: Vec<DevicePlace>,
    pub root_tier: DirectoryTier,
    /// The root itself, whatever becomes of its path; keeps its inode number from being given to another.
    root_directory: OwnedFd,
    /// One for each device: its object directory.
    pub object_tiers: Vec<DirectoryTier>,
    pub catalogue: Mutex<Catalogue>,
    pub claims: Claims,
    pub schedule: Schedule,
    pub pump: Mutex<Pump>,
    pub closings: Closings,
    pub exchanges: Exchanges,
    pub growing: Mutex<Growing>,
    pub objects: Objects,
    pub runs: Mutex<Runs>,
    pub journal: Option<Journal>,
    pub cap: Option<BandwidthCap>,
    /// Keys of evicted objects, and since when: oldest first.
    pub late_keys: Mutex<Vec<(Instant, u64, u32)>>,
    pub directory_times: DirectoryTimes,
    pub totals: Totals,
    /// Files that could not be moved at the last try, by path.
    pub failures: Mutex<BTreeMap<Vec<u8>, String>>,
    pub warnings: Mutex<Vec<String>>,
    /// Ends copies under way.
    pub abort: AtomicBool,
    /// Somebody asked us to end (SIGTERM, `Shutdown`).
    pub ends: AtomicBool,
    pub started: Instant,
    /// `Header::now` at our start.
    pub clock_base: u32,
    /// `synchronize` flips an epoch twice: two at once would undo each other's flips.
    grace: [Mutex<()>; 2],
}

/// Held while a commit changes a name: directories are not renamed meanwhile.
pub struct Gate<'a>(&'a Agent);

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.0.index.header.committing.fetch_sub(1, SeqCst);
    }
}

/// A program that is stopped or very slow inside a guard holds a commit up at most this long; then it is tried again later.
const GRACE_PATIENCE: Duration = Duration::from_secs(5);
/// A directory's rename is a few milliseconds; one that "lasts" this long is a program that was killed.
const STUCK_RENAME: Duration = Duration::from_secs(1);

impl Agent {
    pub fn new(settings: Settings, journal: Option<Journal>) -> Result<Agent> {
        let policy = Policy::compile(&settings.policy)?;
        let devices = index_file::make_devices(&settings)?;
        let opened = index_file::open(&settings, &devices)?;
        let member = settings.member.as_ref().map(|member| member.number);
        let private_name = terrace_core::members::private(PRIVATE_DIR, member);
        let private = settings.root.join(&private_name);
        for dir in [settings.root.join(PRIVATE_DIR), private.clone(), private.join("tmp"), private.join("held")] {
            index_file::make_private(&dir)?;
        }
        let root_tier = DirectoryTier::open_shared_root("root", &settings.root, &private_name)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_directory = rustix::fs::open(&settings.root, flags, RawMode::empty())
            .map_err(std::io::Error::from)
            .context("open", &settings.root)?;
        let object_tiers = devices
            .iter()
            .map(|place| DirectoryTier::open(&settings.tiers[place.tier].name, &place.dir))
            .collect::<terrace_tier::Result<Vec<_>>>()?;
        let closings = Closings::new().context("watch", &settings.runtime)?;
        let cap = settings.mover.bandwidth_bytes_s.map(BandwidthCap::new);
        let tiers = settings.tiers.len();
        let (objects, trouble) = Objects::new(&settings, opened.index)?;
        let warnings = Mutex::new(trouble.into_iter().collect());
        Ok(Agent {
            policy,
            index: opened.index,
            index_ino: opened.ino,
            index_is_new: opened.is_new,
            clock_base: opened.index.header.now.load(Relaxed),
            devices,
            root_tier,
            root_directory,
            object_tiers,
            catalogue: Mutex::default(),
            claims: Claims::default(),
            schedule: Schedule::default(),
            pump: Mutex::default(),
            closings,
            exchanges: Exchanges::default(),
            growing: Mutex::default(),
            objects,
            runs: Mutex::default(),
            journal,
            cap,
            late_keys: Mutex::default(),
            directory_times: DirectoryTimes::default(),
            totals: Totals { written: (0..tiers).map(|_| Default::default()).collect(), ..Totals::default() },
            failures: Mutex::default(),
            warnings,
            abort: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            started: Instant::now(),
            grace: Default::default(),
            settings,
        })
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

    /// This agent's own directory in the root, relative to it.
    pub fn private_name(&self) -> PathBuf {
        terrace_core::members::private(PRIVATE_DIR, self.settings.member.as_ref().map(|member| member.number))
    }

    pub fn held_dir(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join("held")
    }

    pub fn tmp_dir(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join("tmp")
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
        self.devices[self.device_of(number)].dir.join(self.object_name(number))
    }

    /// Below the root, without a leading slash; `None` for other paths, and for our own directory.
    pub fn relative<'a>(&self, path: &'a [u8]) -> Option<&'a Path> {
        let rest = path.strip_prefix(self.settings.root.as_os_str().as_bytes())?;
        let rest = rest.strip_prefix(b"/")?;
        let private = PRIVATE_DIR.as_bytes();
        let is_ours = rest.starts_with(private) && matches!(rest.get(private.len()), None | Some(b'/'));
        (!rest.is_empty() && !is_ours).then(|| Path::new(OsStr::from_bytes(rest)))
    }

    pub fn mode(&self, path: &[u8]) -> Mode {
        self.relative(path).map_or(Mode::Copy, |relative| self.policy.mode(relative))
    }

    /// The name in the root is a link to this record's object.
    pub fn links_to(&self, path: &[u8], number: u32) -> bool {
        read_link(path).is_some_and(|text| text == self.object_path(number).as_os_str().as_bytes())
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
    pub fn gate(&self) -> Option<Gate<'_>> {
        let header = &self.index.header;
        let start = Instant::now();
        let first = header.dir_renames.load(SeqCst);
        let mut is_constant = true;
        loop {
            header.committing.fetch_add(1, SeqCst);
            let now = header.dir_renames.load(SeqCst);
            if now == 0 {
                header.commits_seq.fetch_add(1, SeqCst);
                return Some(Gate(self));
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

    pub fn note_obstacle(&self, number: u32, serial: u64, obstacle: Obstacle) {
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(number, serial);
        entry.tries += 1;
        entry.failures = if matches!(obstacle, Obstacle::Failed(_)) { entry.failures + 1 } else { 0 };
        let path = entry.path.clone();
        if let Obstacle::Failed(reason) = &obstacle
            && !path.is_empty()
        {
            self.failures.lock().unwrap().insert(path, reason.clone());
        }
        entry.obstacle = Some(obstacle);
    }

    pub fn note_success(&self, number: u32, serial: u64) {
        let mut catalogue = self.catalogue();
        let entry = catalogue.entry(number, serial);
        entry.tries += 1;
        entry.failures = 0;
        entry.obstacle = None;
        self.failures.lock().unwrap().remove(&entry.path);
    }

    pub fn warn(&self, text: String) {
        eprintln!("terrace agent: {text}");
        let mut warnings = self.warnings.lock().unwrap();
        if !warnings.contains(&text) && warnings.len() < 100 {
            warnings.push(text);
        }
    }

    pub fn key(&self, number: u32) -> FileKey {
        FileKey { record: number, serial: self.serial(number) }
    }

    /// The root was removed, with all that was in it: nothing is to be made durable any more.
    pub fn root_is_gone(&self) -> bool {
        rustix::fs::fstat(&self.root_directory).is_ok_and(|found| found.st_nlink == 0)
    }

    /// At the root's path is another directory than the one that we serve.
    pub fn root_is_replaced(&self) -> bool {
        let Ok(ours) = rustix::fs::fstat(&self.root_directory) else { return false };
        rustix::fs::stat(&self.settings.root)
            .is_ok_and(|found| (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino))
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

    /// Seconds on the clock that programs stamp records with.
    pub fn tick_clock(&self) {
        let now = self.clock_base.saturating_add(self.started.elapsed().as_secs() as u32);
        self.index.header.now.store(now, Relaxed);
    }
}

/// A look at `/proc` only after a while: most guards are left within microseconds.
fn looks_dead(pid: u32, waited: Duration) -> bool {
    waited > Duration::from_millis(2) && is_dead(pid)
}

pub fn read_link(path: &[u8]) -> Option<Vec<u8>> {
    rustix::fs::readlink(OsStr::from_bytes(path), Vec::new()).ok().map(|text| text.into_bytes())
}

/// A new random half of an object's name.
pub fn random_half() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is ours and of this length; getrandom(2) of so few bytes is never short.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, 8, "the kernel has random numbers from early boot on");
    u64::from_le_bytes(bytes)
}
