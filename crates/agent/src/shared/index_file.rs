//! The index file: made once, mapped by every program, and taken over by the next agent when one was killed.
//!
//! Invariant: an index that a program may have mapped is never truncated or rewritten. A new one is filled under
//! another name, gets its magic last, and is renamed into place.
//! Reason: programs outlive a killed agent, and go on creating files by what the index says.

use crate::error::{Context, Error, Result};
use crate::files::mover::syncs::is_local;
use rustix::fs::{Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use terrace_core::settings::{Settings, object_dir};
use terrace_index::{ALIASES, DEVICES, INDEX_BYTES, INO_BASE, INO_SERIALS, Index, MAGIC, PRIVATE_DIR};

/// One directory of one tier, as the agent needs it beside what the index says.
#[derive(Clone, Debug)]
pub struct DevicePlace {
    pub tier: usize,
    /// The directory of objects.
    pub dir: PathBuf,
    /// This directory's part of the tier's capacity.
    pub capacity: i64,
    pub reserve: i64,
    pub dev: u64,
}

pub struct OpenedIndex {
    /// No agent before has left it.
    pub is_new: bool,
    pub index: Index,
    /// Tells the file from one that replaced it.
    pub ino: u64,
}

/// How often a directory that others make or remove is made again, and how long it rests in between.
const PRIVATE_TRIES: u32 = 500;
const PRIVATE_REST: Duration = Duration::from_millis(10);
/// Longest object directory, so that a link's text fits what the preload library reads.
const OBJECT_DIR_MAX: usize = 480;

fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Root's programs may switch to another user: an object must then be reachable (not listable) by who can read its link.
fn private_mode() -> u32 {
    if euid() == 0 { 0o711 } else { 0o700 }
}

/// Makes a directory that only this user controls. One that is there already must be ours. True: it was made.
pub fn make_private(path: &Path) -> Result<bool> {
    let mut attempt = 0;
    loop {
        match made_private(path) {
            Ok((is_made, found)) if found.is_dir() && found.uid() == euid() => return Ok(is_made),
            Ok(_) => {
                return Err(Error::Unsafe { path: path.into(), reason: "it is not a directory of this user".into() });
            }
            // An agent that left, here or on another node, has taken it along, or its parent; or it is just being made on another node,
            // and a distributed file system doesn't show it everywhere yet.
            Err((_, error)) if error.kind() == std::io::ErrorKind::NotFound && attempt < PRIVATE_TRIES => {
                if attempt > 0 {
                    std::thread::sleep(PRIVATE_REST);
                }
                attempt += 1;
                if let Some(parent) = path.parent()
                    && !parent.exists()
                {
                    make_private(parent)?;
                }
            }
            Err((what, error)) => return Err(error).context(what, path),
        }
    }
}

/// Whether it was made, and what is there then; Err: what could not be done.
fn made_private(path: &Path) -> std::result::Result<(bool, std::fs::Metadata), (&'static str, std::io::Error)> {
    let is_made = match std::fs::DirBuilder::new().mode(private_mode()).create(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(("make the directory", error)),
        made => made.is_ok(),
    };
    // A file system may give it another mode, or another owner, than it was told to.
    let found = std::fs::symlink_metadata(path).map_err(|error| ("look at", error))?;
    if found.is_dir() && found.uid() == euid() && found.mode() & 0o777 != private_mode() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(private_mode()))
            .map_err(|error| ("set the mode of", error))?;
    }
    Ok((is_made, found))
}

/// Says whose runs they are that keep this user's away from the root.
pub fn or_other_user(error: Error, root: &Path) -> Error {
    let nodes = terrace_core::nodes::directory(root, PRIVATE_DIR);
    match (&error, std::fs::metadata(nodes)) {
        (Error::Io { source, .. }, Ok(found))
            if source.kind() == std::io::ErrorKind::PermissionDenied && found.uid() != euid() =>
        {
            Error::OtherUser { root: root.into(), uid: found.uid() }
        }
        _ => error,
    }
}

/// Makes one directory above or below what `make_private` looks at, if it is not there, with no look at it: on a parallel file system each is a
/// request.
pub fn make_inside(path: &Path) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(private_mode()).create(path) {
        Ok(()) if umask() & private_mode() != 0 => {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(private_mode()))
        }
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The permission bits that new files don't get (umask(2)). It is asked for without being set.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let text = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    text.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o777)
}

/// Object directories of all tiers, made if they are not there.
pub fn make_devices(settings: &Settings) -> Result<Vec<DevicePlace>> {
    let id = settings.id();
    let mut devices = vec![];
    for (tier, wanted) in settings.tiers.iter().enumerate() {
        for base in &wanted.paths {
            if !base.is_dir() {
                return Err(Error::Settings {
                    reason: format!("tier `{}`: {} is not a directory", wanted.name, base.display()),
                });
            }
            let dir = object_dir(base, euid(), &id);
            make_private(&dir)?;
            if dir.as_os_str().len() > OBJECT_DIR_MAX {
                return Err(Error::Settings {
                    reason: format!("tier `{}`: the path {} is too long", wanted.name, base.display()),
                });
            }
            let dev = std::fs::metadata(&dir).context("look at", &dir)?.dev();
            devices.push(DevicePlace {
                tier,
                dir,
                capacity: (wanted.capacity_bytes / wanted.paths.len().max(1) as u64).min(i64::MAX as u64) as i64,
                reserve: wanted.reserve_bytes.min(i64::MAX as u64) as i64,
                dev,
            });
        }
    }
    if devices.len() > DEVICES {
        return Err(Error::Settings { reason: format!("{} tier directories, at most {DEVICES}", devices.len()) });
    }
    Ok(devices)
}

/// Opens the index that is there if it fits, else makes one.
pub fn open(settings: &Settings, devices: &[DevicePlace]) -> Result<OpenedIndex> {
    let path = settings.index();
    if let Some((index, ino)) = open_existing(&path)?
        && fits(index, settings, devices)
    {
        return Ok(OpenedIndex { index, ino, is_new: false });
    }
    let fresh = path.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let fd = rustix::fs::open(
        &fresh,
        OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )
    .context("create", &fresh)?;
    rustix::fs::ftruncate(&fd, INDEX_BYTES as u64).context("size", &fresh)?;
    let index = map(&fd, &fresh)?;
    fill(index, settings, devices)?;
    let ino = rustix::fs::fstat(&fd).context("look at", &fresh)?.st_ino;
    std::fs::rename(&fresh, &path).context("put in place", &path)?;
    Ok(OpenedIndex { index, ino, is_new: true })
}

/// The index that is there, to look at.
pub fn peek(path: &Path) -> Result<Option<Index>> {
    Ok(open_existing(path)?.map(|(index, _)| index))
}

fn open_existing(path: &Path) -> Result<Option<(Index, u64)>> {
    let fd = match rustix::fs::open(path, OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error).context("open", path),
    };
    let found = rustix::fs::fstat(&fd).context("look at", path)?;
    if found.st_size as usize != INDEX_BYTES || found.st_uid != euid() {
        return Ok(None);
    }
    let index = map(&fd, path)?;
    Ok((index.header.magic.load(Acquire) == MAGIC).then_some((index, found.st_ino)))
}

fn map(fd: &OwnedFd, path: &Path) -> Result<Index> {
    // SAFETY: a new mapping of a file of this size, never unmapped.
    let base = unsafe {
        rustix::mm::mmap(
            std::ptr::null_mut(),
            INDEX_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::SHARED | MapFlags::NORESERVE,
            fd,
            0,
        )
    }
    .context("map", path)?;
    // SAFETY: as above; page-aligned and of the right length.
    Ok(unsafe { Index::from_mapping(base as *const u8) })
}

fn with_slash(dir: &Path) -> Vec<u8> {
    [dir.as_os_str().as_bytes(), b"/"].concat()
}

/// The same root and the same object directories in the same order: links and records mean what they meant.
fn fits(index: Index, settings: &Settings, devices: &[DevicePlace]) -> bool {
    index.header.root.get() == settings.root.as_os_str().as_bytes()
        && index.devices().len() == devices.len()
        && index.devices().iter().zip(devices).all(|(found, wanted)| {
            found.dir.get() == with_slash(&wanted.dir)
                && found.tier.load(Relaxed) == wanted.tier as u32
                && found.dev.load(Relaxed) == wanted.dev
        })
}

fn fill(index: Index, settings: &Settings, devices: &[DevicePlace]) -> Result<()> {
    let header = &index.header;
    let root = std::fs::metadata(&settings.root).context("look at", &settings.root)?;
    header.root_dev.store(root.dev(), Relaxed);
    header.root_ino.store(root.ino(), Relaxed);
    header.root.set(settings.root.as_os_str().as_bytes());
    for (slot, alias) in header.aliases.iter().zip(&settings.aliases) {
        slot.set(alias.as_os_str().as_bytes());
    }
    header.alias_count.store(settings.aliases.len().min(ALIASES) as u32, Relaxed);
    header.call_socket.set(settings.call_socket().as_os_str().as_bytes());
    header.library.set(settings.library.as_os_str().as_bytes());
    header.index_path.set(settings.index().as_os_str().as_bytes());
    for (device, place) in header.devices.iter().zip(devices) {
        device.tier.store(place.tier as u32, Relaxed);
        device.dev.store(place.dev, Relaxed);
        device.capacity.store(place.capacity, Relaxed);
        device.dir.set(&with_slash(&place.dir));
    }
    header.device_count.store(devices.len() as u32, Release);
    let tag = settings.node.as_ref().and_then(|tag| u32::from_str_radix(tag, 16).ok());
    header.node.store(tag.unwrap_or(0), Release);
    if tag.is_some() {
        header.inode_salt.store(random_half() % (INO_BASE / INO_SERIALS) * INO_SERIALS, Relaxed);
    }
    header.listed_at.store(moves_names(root.dev()) as u32, Release);
    let is_local = rustix::fs::statfs(&settings.root).is_ok_and(|found| is_local(&found));
    header.forgets_removed.store(!is_local as u32, Release);
    header.magic.store(MAGIC, Release);
    Ok(())
}

/// A GlusterFS: a file that gets a name from elsewhere stays on the brick that it was made on, and a listing goes brick by brick.
fn moves_names(dev: u64) -> bool {
    let device = format!("{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| line.split(' ').nth(2) == Some(&device) && line.contains(" - fuse.glusterfs "))
}

/// Settings that may change from one agent to the next; called by each agent before it listens.
pub fn take_over(index: Index, devices: &[DevicePlace]) {
    for (device, place) in index.header.devices.iter().zip(devices) {
        device.capacity.store(place.capacity, Relaxed);
        device.grant_max.store((place.capacity / 64).clamp(64 << 10, 16 << 20), Relaxed);
        device.accepts.store(1, Relaxed);
    }
    index.header.agent_pid.store(std::process::id(), Relaxed);
    index.header.committing.store(0, SeqCst);
    index.header.dir_renames.store(0, SeqCst);
}

/// An object's place.
pub fn object_name(number: u32, random: u64) -> PathBuf {
    let mut name = [0; terrace_index::NAME_LEN];
    terrace_index::write_name(number, random, &mut name);
    OsStr::from_bytes(&name).into()
}

/// A new random half of an object's name.
pub fn random_half() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer is ours and of this length; getrandom(2) of so few bytes is never short.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert_eq!(got, 8, "the kernel has random numbers from early boot on");
    u64::from_le_bytes(bytes)
}

/// A process that still may use the index.
pub fn live_programs(index: &Index) -> impl Iterator<Item = u32> {
    let slots = index.processes.iter();
    let own = std::process::id();
    slots.map(|slot| slot.pid.load(Acquire)).filter(move |&pid| pid != 0 && pid != own && !is_dead(pid))
}

pub fn is_dead(pid: u32) -> bool {
    match rustix::process::Pid::from_raw(pid as i32) {
        Some(pid) => rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH) || is_zombie(pid),
        None => true,
    }
}

/// A killed process whose parent has not asked for it yet runs no more code (unless other threads of it do).
fn is_zombie(pid: rustix::process::Pid) -> bool {
    let Ok(text) = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())) else { return false };
    let Some(after_name) = text.iter().rposition(|&byte| byte == b')') else { return false };
    let mut fields = text[after_name + 1..].split(|&byte| byte == b' ').skip(1);
    let is_zombie = fields.next().is_some_and(|state| state == b"Z" || state == b"X");
    // num_threads is the 20th field, the 17th after the state.
    is_zombie && fields.nth(16).is_some_and(|threads| threads == b"1" || threads == b"0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_private_directory_is_made_while_agents_of_other_nodes_make_and_remove_its_parents() {
        let place = tempfile::tempdir().unwrap();
        let (parent, ended) = (place.path().join("private"), AtomicBool::new(false));
        let path = parent.join("nodes");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    let _ = std::fs::remove_dir(&path);
                    let _ = std::fs::remove_dir(&parent);
                }
            });
            let made: Vec<_> = (0..200).map(|_| make_private(&path)).filter_map(std::result::Result::err).collect();
            ended.store(true, Relaxed);
            assert!(made.is_empty(), "{} of 200 failed: {}", made.len(), made[0]);
        });
    }
}
