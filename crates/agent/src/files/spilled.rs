//! Spilled files, as the agent sees them: where they go, what room they take, and when they end.
//!
//! Programs make them by themselves when the tier of their placed directory is (nearly) full, and remove them with their names
//! (`crates/intercept/src/spill.rs`). What is left behind goes with the last placed directory.
//!
//! Invariant: no spilled file is removed while there is a placed directory in which its name may be.

use crate::error::Result;
use crate::files::Files;
use crate::files::directories::count;
use crate::shared::index_file::make_private;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use terrace_index::{SPILLS, State};

/// A tier with placed directories that has less than this part of its room free: programs look for links in them.
const NEARLY_FULL: i64 = 4;
/// Beside the spilled files of a tier.
const LINK_ROOM: &str = "room";
const LINK_ROOM_BYTES: usize = 16 << 10;

impl Files {
    /// In the root, for what no tier has room for.
    pub fn root_spills(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join(&SPILLS[..SPILLS.len() - 1])
    }

    fn spill_dirs(&self) -> impl Iterator<Item = PathBuf> {
        let name = &SPILLS[..SPILLS.len() - 1];
        let in_root = (self.places_directories() || self.was_here_before).then(|| self.root_spills());
        self.devices.iter().map(move |place| place.dir.join(name)).chain(in_root)
    }

    /// Directories for them, before a program may want them.
    pub fn make_spill_dirs(&self) -> Result<()> {
        if !self.places_directories() {
            return Ok(());
        }
        self.spill_dirs().try_for_each(|dir| make_private(&dir).map(drop))?;
        let spills = [self.root_spills().as_os_str().as_bytes(), b"/"].concat();
        if self.index.header.spills.get() != spills {
            self.index.header.spills.set(&spills);
        }
        Ok(())
    }

    /// Counts what spilled files take of the tiers, and looks which tier is nearly full.
    pub fn count_spilled(&self) {
        for (number, (device, place)) in self.index.devices().iter().zip(&self.devices).enumerate() {
            let (_, bytes) = count(&place.dir.join(&SPILLS[..SPILLS.len() - 1]));
            let bytes = bytes.saturating_sub(self.keep_link_room(number)) as i64;
            let before = device.spilled.swap(bytes, AcqRel);
            device.used.fetch_add(bytes - before, AcqRel);
        }
        let is_nearly_full = |number: u32| {
            let device = &self.index.devices()[self.device_of(number)];
            device.free() < device.capacity.load(Relaxed) / NEARLY_FULL
        };
        let mut numbers =
            (0..self.index.records_end()).filter(|&number| self.record(number).state() == State::Directory);
        if self.index.header.spilling.load(Relaxed) == 0 && numbers.any(is_nearly_full) {
            self.index.header.spilling.store(1, SeqCst);
        }
    }

    /// A few blocks of a disk with placed directories are kept for links, without which nothing could move when it is full. What they take.
    pub fn keep_link_room(&self, device: usize) -> u64 {
        let room = self.devices[device].dir.join(SPILLS).join(LINK_ROOM);
        let found = std::fs::symlink_metadata(&room).or_else(|_| {
            std::fs::write(&room, [0xff; LINK_ROOM_BYTES]).inspect_err(|_| drop(std::fs::remove_file(&room)))?;
            std::fs::symlink_metadata(&room)
        });
        found.map_or(0, |found| found.blocks() * 512)
    }

    pub fn give_up_link_room(&self, device: usize) {
        let _ = std::fs::remove_file(self.devices[device].dir.join(SPILLS).join(LINK_ROOM));
    }

    /// With the last placed directory the last name of a spilled file has gone.
    pub fn end_spilled(&self) {
        if self.index.header.directories.load(SeqCst) > 0 {
            return;
        }
        for dir in self.spill_dirs() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        for device in self.index.devices() {
            device.used.fetch_sub(device.spilled.swap(0, AcqRel), AcqRel);
        }
    }

    /// When the agent leaves. What holds files of directories that stay is kept.
    pub fn remove_spill_dirs(&self) {
        self.end_spilled();
        self.spill_dirs().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }

    /// The file that a link in a placed directory leads to, if that is a spilled one's.
    pub fn spilled_at(&self, link: &Path) -> Option<PathBuf> {
        let text = std::fs::read_link(link).ok()?;
        self.index.spill(text.as_os_str().as_bytes()).map(|_| text)
    }
}
