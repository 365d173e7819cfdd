//! Where an array's staged form lies, how it is found, made and removed.

use super::flush::at_once;
use super::log::{LIVE, Log, REMOVED};
use crate::calls;
use crate::failure::{Context, system};
use crate::place::{Place, random};
use crate::placed::best_device;
use rustix::fs::Mode;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::*;
use terrace_core::objects::{Kind, ObjectError, Result};

/// How the names of links to staged forms begin.
pub const STAGED: &str = ".staged";

/// The name, in an array's directory, of the link to its staged form: one for each agent that has a part of it.
pub fn staged_link(place: &Place) -> String {
    format!("{STAGED}{}", place.member().map_or(String::new(), terrace_core::members::suffix))
}
const LOG: &str = "log";
const LOCKS: &str = "locks";
/// The directory of staged arrays, in the directory of files' objects.
const STAGES: &str = "a";
/// The root's own storage, where every faster tier is full.
pub const ROOT_DEVICE: u32 = 255;
/// What a new stage takes of a tier's room.
const STAGE_BYTES: i64 = 64 << 10;

/// Another thread helps for each so many bytes that are given back.
const REMOVED_BYTES: i64 = 64 << 20;

/// A staged array: one name, below the directory of stages of each device that has a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// Of the log.
    pub device: u32,
    pub name: String,
}

/// The directory of stages of a device.
pub fn stages_dir(place: &Place, device: u32) -> PathBuf {
    if device == ROOT_DEVICE {
        return place.private().join(STAGES);
    }
    let index = place.index();
    let objects = index.header.devices[device as usize % terrace_index::DEVICES].dir.get();
    Path::new(OsStr::from_bytes(objects)).join(STAGES)
}

/// Devices of the tiers, and the root's.
pub fn all_devices(place: &Place) -> impl Iterator<Item = u32> {
    let count = place.index().devices().len() as u32;
    (0..count).chain([ROOT_DEVICE])
}

impl Stage {
    pub fn dir(&self, place: &Place, device: u32) -> PathBuf {
        stages_dir(place, device).join(&self.name)
    }
    pub fn log(&self, place: &Place) -> PathBuf {
        self.dir(place, self.device).join(LOG)
    }
    pub fn locks(&self, place: &Place) -> PathBuf {
        self.dir(place, self.device).join(LOCKS)
    }
    pub fn segment(&self, place: &Place, segment: u32) -> PathBuf {
        self.dir(place, segment >> 24).join(format!("s{:08x}", segment & 0xff_ffff))
    }

    /// Makes the stage's directory on a device; it may be there.
    pub fn make_dir(&self, place: &Place, device: u32) -> Result<PathBuf> {
        if device == ROOT_DEVICE {
            place.index().header.stages_in_root.store(1, SeqCst);
        }
        let dir = self.dir(place, device);
        make_private(&dir)?;
        Ok(dir)
    }
}

/// A directory of this user alone, with those above it that are missing.
fn make_private(dir: &Path) -> Result<()> {
    match rustix::fs::mkdir(dir, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => {
            make_private(dir.parent().unwrap_or(Path::new("/")))?;
            match rustix::fs::mkdir(dir, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(system("make the directory", dir, errno)),
            }
        }
        Err(errno) => Err(system("make the directory", dir, errno)),
    }
}

/// The stage that the array in `directory` has now.
pub fn stage_of(place: &Place, directory: &Path) -> Option<Stage> {
    let text = calls::readlink(directory.join(staged_link(place))).ok()?;
    stage_of_link(place, Path::new(OsStr::from_bytes(text.as_bytes())))
}

fn stage_of_link(place: &Place, target: &Path) -> Option<Stage> {
    let name = target.file_name()?.to_str()?;
    if name.len() != 16 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let device = all_devices(place).find(|&device| target.parent() == Some(&stages_dir(place, device)))?;
    Some(Stage { device, name: name.into() })
}

/// The stage's log, if it is that of this directory and not of one that this was copied from.
pub fn open_log(place: &Place, stage: &Stage, directory: &Path) -> Result<Option<Log>> {
    let log = match Log::open(&stage.log(place)) {
        Ok(log) => log,
        Err(error) if error.kind == Kind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = calls::stat(directory).context("look at", directory)?;
    if log.header().directory_ino.load(Relaxed) != found.st_ino || log.header().life.load(Acquire) == REMOVED {
        return Ok(None);
    }
    if let Some(path) = relative(place, directory) {
        log.set_array_path(&path);
    }
    Ok(Some(log))
}

pub fn relative(place: &Place, directory: &Path) -> Option<String> {
    directory.strip_prefix(place.root()).ok()?.to_str().map(str::to_owned)
}

/// The array's log; made if it has none. `has_base`: the durable form may have cells.
pub fn ensure(place: &Place, directory: &Path, shape: &[u64], has_base: bool) -> Result<(Stage, Log)> {
    for _ in 0..1000 {
        if let Some(stage) = stage_of(place, directory) {
            if let Some(log) = open_log(place, &stage, directory)? {
                return Ok((stage, log));
            }
            // A link to nothing, or to another array's stage: this directory was copied, or its stage was lost.
            clear_foreign_link(place, directory, &stage)?;
            continue;
        }
        match create(place, directory, shape, has_base)? {
            Some(made) => return Ok(made),
            None => continue,
        }
    }
    Err(ObjectError::new(Kind::Busy, format!("{} is staged and removed again and again", directory.display())))
}

fn clear_foreign_link(place: &Place, directory: &Path, stage: &Stage) -> Result<()> {
    let link = directory.join(staged_link(place));
    let aside = place.private().join("tmp").join(format!("staged-{:016x}", random()));
    // Moved aside first, so that a stage that was linked meanwhile is not unlinked by mistake.
    match calls::rename(&link, &aside) {
        Ok(()) => {
            let text = calls::readlink(&aside).context("look at", &aside)?;
            let moved = stage_of_link(place, Path::new(OsStr::from_bytes(text.as_bytes())));
            if moved.as_ref() == Some(stage) {
                calls::unlink(&aside).context("remove", &aside)
            } else {
                calls::rename(&aside, &link).context("put back", &link)
            }
        }
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(system("remove", &link, errno)),
    }
}

/// `None`: somebody else was faster.
fn create(place: &Place, directory: &Path, shape: &[u64], has_base: bool) -> Result<Option<(Stage, Log)>> {
    let device = best_device(place, 0, STAGE_BYTES).unwrap_or(ROOT_DEVICE);
    let stage = Stage { device, name: format!("{:016x}", random()) };
    let dir = stage.make_dir(place, device)?;
    let discard = || {
        let _ = calls::unlink(stage.log(place));
        let _ = calls::rmdir(&dir);
    };
    let ino = calls::stat(directory).context("look at", directory)?.st_ino;
    let log = Log::create(&stage.log(place), shape.len(), shape, ino, 0).inspect_err(|_| discard())?;
    log.header().has_base.store(has_base as u64, Release);
    if let Some(path) = relative(place, directory) {
        log.set_array_path(&path);
    }
    match calls::symlink(&dir, directory.join(staged_link(place))) {
        Ok(()) => {
            take_room(place, device, STAGE_BYTES);
            Ok(Some((stage, log)))
        }
        Err(errno) => {
            discard();
            if errno == Errno::EXIST { Ok(None) } else { Err(system("stage", directory, errno)) }
        }
    }
}

/// Counts bytes that are taken whether there is room or not (a log's own).
pub fn take_room(place: &Place, device: u32, bytes: i64) {
    if device != ROOT_DEVICE {
        place.index().header.devices[device as usize % terrace_index::DEVICES].used.fetch_add(bytes, AcqRel);
    }
}

/// Takes bytes where there is room for them.
pub fn reserve_room(place: &Place, device: u32, bytes: i64) -> bool {
    device == ROOT_DEVICE || place.index().header.devices[device as usize % terrace_index::DEVICES].reserve(bytes)
}

pub fn give_room(place: &Place, device: u32, bytes: i64) {
    take_room(place, device, -bytes);
}

/// Room that a file of a stage has taken of its tier.
pub fn room_of(path: &Path) -> i64 {
    match path.file_name().and_then(OsStr::to_str) {
        Some(LOG) => STAGE_BYTES + Log::open(path).map_or(0, |log| log.growth()),
        Some(name) if name.starts_with('s') => std::fs::symlink_metadata(path).map_or(0, |found| found.len() as i64),
        _ => 0,
    }
}

/// Removes a stage with all its parts. Whoever has it mapped keeps what he has; a put finds the log removed.
pub fn remove_stage(place: &Place, stage: &Stage) {
    if let Ok(log) = Log::open(&stage.log(place)) {
        log.header().tail.fetch_or(super::log::FROZEN, SeqCst);
        log.header().life.compare_exchange(LIVE, REMOVED, SeqCst, SeqCst).ok();
    }
    for device in all_devices(place) {
        let dir = stage.dir(place, device);
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        let files: Vec<(i64, PathBuf)> =
            entries.flatten().map(|entry| entry.path()).map(|path| (room_of(&path), path)).collect();
        let room: i64 = files.iter().map(|(room, _)| room).sum();
        let next = AtomicUsize::new(0);
        // To give memory back to the kernel takes a core a second for some gibibytes.
        let _ = at_once("remove", (room / REMOVED_BYTES) as usize, || {
            while let Some((room, path)) = files.get(next.fetch_add(1, Relaxed)) {
                // What can't be removed stays.
                if calls::unlink(path).is_ok() {
                    give_room(place, device, *room);
                }
            }
            Ok(())
        });
        let _ = calls::rmdir(&dir);
    }
}

/// All stages that have a log, on any device.
pub fn stages(place: &Place) -> Vec<Stage> {
    all_devices(place).flat_map(|device| stages_on(place, device)).collect()
}

/// Of the root's device a server is asked only where this is so.
pub fn may_have_stages(place: &Place, device: u32) -> bool {
    device != ROOT_DEVICE || place.index().header.stages_in_root.load(SeqCst) != 0
}

/// Those of one device.
pub fn stages_on(place: &Place, device: u32) -> Vec<Stage> {
    if !may_have_stages(place, device) {
        return vec![];
    }
    let Ok(entries) = std::fs::read_dir(stages_dir(place, device)) else { return vec![] };
    let with_log = entries.flatten().filter(|entry| entry.path().join(LOG).exists());
    with_log.filter_map(|entry| entry.file_name().into_string().ok()).map(|name| Stage { device, name }).collect()
}

/// Removes an array, or a container with all that is in it: its name goes at once, then staged forms and files.
pub fn remove_directory(place: &Place, directory: &Path) -> Result<()> {
    let aside = place.private().join("tmp").join(format!("removed-{:016x}", random()));
    calls::rename(directory, &aside).context("remove", directory)?;
    remove_below(place, &aside)
}

fn remove_below(place: &Place, directory: &Path) -> Result<()> {
    if let Some(stage) = stage_of(place, directory)
        && let Ok(Some(_)) = open_log(place, &stage, directory)
    {
        remove_stage(place, &stage);
    }
    crate::placed::remove_tree(place, directory, &remove_below)
}
