//! What all subjects of the agent use: settings, the index, tiers, the schedule, totals and what is told. Nothing here knows who uses it.

pub mod accept;
pub mod claims;
pub mod ended;
pub mod index_file;
pub mod path;
pub mod request;
pub mod runs;
pub mod schedule;
pub mod threads;
pub mod totals;

use crate::error::{Context, Result};
use claims::Claims;
use ended::Ended;
use index_file::DevicePlace;
use runs::Runs;
use rustix::fs::{Mode as RawMode, OFlags};
use schedule::Schedule;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Instant;
use terrace_core::policy::{Mode, Policy};
use terrace_core::settings::Settings;
use terrace_index::{Index, PRIVATE_DIR};
use terrace_tier::{DirectoryTier, Tier};
use totals::Totals;

/// Why an agent whose node was declared gone ([`crate::declare_gone`]), and which lives all the same, makes nothing durable.
pub const DECLARED_GONE: &str =
    "this node was declared gone; end its runs and its agent, then run `terrace recover` here";

pub struct Shared {
    pub settings: Settings,
    pub policy: Policy,
    pub index: Index,
    pub index_ino: u64,
    /// It counts from nothing: no agent before this one has left it.
    pub index_is_new: bool,
    /// An agent before this one, which was killed, may have left something in our own directory of the root.
    pub was_here_before: bool,
    pub devices: Vec<DevicePlace>,
    /// The root itself, whatever becomes of its path; keeps its inode number from being given to another.
    root_directory: OwnedFd,
    /// One for each device: its object directory.
    pub object_tiers: Vec<DirectoryTier>,
    pub claims: Claims,
    pub schedule: Schedule,
    pub runs: Mutex<Runs>,
    pub totals: Totals,
    pub ended: Ended,
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
}

impl Shared {
    pub fn new(settings: Settings) -> Result<Shared> {
        let policy = Policy::compile(&settings.policy)?;
        let devices = index_file::make_devices(&settings)?;
        let opened = index_file::open(&settings, &devices)?;
        // From above: nothing is there at the first start, and each look for what isn't is a request to the root's server.
        let own = terrace_core::nodes::private(PRIVATE_DIR, settings.node.as_deref());
        let mut above = settings.root.clone();
        for part in own.parent().into_iter().flat_map(Path::components) {
            above.push(part);
            // It may be another user's; what is in the way is told below.
            let _ = index_file::make_inside(&above);
        }
        let private = settings.root.join(own);
        let was_here_before =
            !index_file::make_private(&private).map_err(|error| index_file::or_other_user(error, &settings.root))?;
        let tmp = private.join("tmp");
        index_file::make_inside(&tmp).context("make the directory", &tmp)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root_directory = rustix::fs::open(&settings.root, flags, RawMode::empty())
            .map_err(std::io::Error::from)
            .context("open", &settings.root)?;
        let object_tiers = devices
            .iter()
            .map(|place| DirectoryTier::open(&settings.tiers[place.tier].name, &place.dir))
            .collect::<terrace_tier::Result<Vec<_>>>()?;
        let tiers = settings.tiers.len();
        Ok(Shared {
            policy,
            index: opened.index,
            index_ino: opened.ino,
            index_is_new: opened.is_new,
            was_here_before,
            clock_base: opened.index.header.now.load(Relaxed),
            devices,
            root_directory,
            object_tiers,
            claims: Claims::default(),
            schedule: Schedule::default(),
            runs: Mutex::default(),
            totals: Totals { written: (0..tiers).map(|_| Default::default()).collect(), ..Totals::default() },
            ended: Ended::default(),
            failures: Mutex::default(),
            warnings: Mutex::default(),
            abort: AtomicBool::new(false),
            ends: AtomicBool::new(false),
            started: Instant::now(),
            settings,
        })
    }

    /// This agent's own directory in the root, relative to it.
    pub fn private_name(&self) -> PathBuf {
        terrace_core::nodes::private(PRIVATE_DIR, self.settings.node.as_deref())
    }

    /// Its user has declared this node gone, on another one (`gone`): a file has the name of our directory.
    pub fn is_declared_gone(&self) -> bool {
        let place = self.settings.root.join(self.private_name());
        std::fs::symlink_metadata(place).is_ok_and(|found| found.is_file())
    }

    /// Made when the first version is held.
    pub fn held_dir(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join("held")
    }

    /// Mirrors of placed directories that are to be durable.
    pub fn kept_dir(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join("kept")
    }

    pub fn tmp_dir(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join("tmp")
    }

    /// Below the root, without a leading slash; `None` for other paths, and for our own directory.
    pub fn relative<'a>(&self, path: &'a [u8]) -> Option<&'a Path> {
        let rest = path.strip_prefix(self.settings.root.as_os_str().as_bytes())?;
        let rest = rest.strip_prefix(b"/")?;
        (!rest.is_empty() && !terrace_index::is_private(rest)).then(|| Path::new(OsStr::from_bytes(rest)))
    }

    pub fn mode(&self, path: &[u8]) -> Mode {
        self.relative(path).map_or(Mode::Copy, |relative| self.policy.mode(relative))
    }

    pub fn warn(&self, text: String) {
        eprintln!("terrace agent: {text}");
        let mut warnings = self.warnings.lock().unwrap();
        if !warnings.contains(&text) && warnings.len() < 100 {
            warnings.push(text);
        }
    }

    /// The root was removed, with all that was in it: nothing is to be made durable any more.
    pub fn root_is_gone(&self) -> bool {
        rustix::fs::fstat(&self.root_directory).is_ok_and(|found| found.st_nlink == 0)
    }

    /// The root is there, but not at its path: it was renamed, or unmounted. Names can't be looked up, and none is missing.
    pub fn root_is_away(&self) -> bool {
        let Ok(ours) = rustix::fs::fstat(&self.root_directory) else { return true };
        let is_there = rustix::fs::stat(&self.settings.root)
            .is_ok_and(|found| (found.st_dev, found.st_ino) == (ours.st_dev, ours.st_ino));
        !is_there && ours.st_nlink != 0
    }

    pub fn away(&self) -> String {
        format!(
            "{} is not the directory any more that the run began in (it was renamed, or unmounted); put it back",
            self.settings.root.display()
        )
    }

    /// At the root's path is another directory than the one that we serve.
    pub fn root_is_replaced(&self) -> bool {
        let Ok(ours) = rustix::fs::fstat(&self.root_directory) else { return false };
        rustix::fs::stat(&self.settings.root)
            .is_ok_and(|found| (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino))
    }

    /// Seconds on the clock that programs stamp records with.
    pub fn tick_clock(&self) {
        let now = self.clock_base.saturating_add(self.started.elapsed().as_secs() as u32);
        self.index.header.now.store(now, Relaxed);
    }

    /// What each device may hold now: its share, less what others took of its file system, within the quota.
    pub fn adjust_capacity(&self) {
        let devices = self.index.devices();
        let used_in_all: i64 = devices.iter().map(|device| device.used.load(Relaxed)).sum();
        let quota = self.settings.quota_bytes.map(|quota| quota.min(i64::MAX as u64) as i64);
        for ((device, place), tier) in devices.iter().zip(&self.devices).zip(&self.object_tiers) {
            let used = device.used.load(Relaxed);
            let mut capacity = place.capacity;
            if let Ok(space) = tier.space() {
                capacity =
                    capacity.min(used.saturating_add(space.free.min(i64::MAX as u64 / 2) as i64) - place.reserve);
            }
            if let Some(quota) = quota {
                capacity = capacity.min(used + quota - used_in_all);
            }
            device.capacity.store(capacity, Relaxed);
        }
    }
}
