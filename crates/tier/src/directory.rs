//! A tier that is a directory.
//!
//! Objects' directories and the root itself are both one: they differ in where temporaries lie.
//!
//!   beside the names    DIR/.terrace-tmp-…       an object directory: flat, ours alone
//!   in a directory      ROOT/.terrace/tmp/…      the root: users don't see temporaries, recovery finds them in one place
//!   in lanes below it   ROOT/.terrace/tmp/.terrace-tmp-lane-N/…   made by several threads at a time
//!
//! A name on another file system than the temporary directory (a mount below the root) gets its temporary beside it,
//! for `rename` can't cross. Temporaries start with `TEMPORARY_PREFIX`; listings leave them out.

mod attributes;
mod file;

pub use file::{FileReading, Left};

use crate::tier::{Entry, EntryKind, Reading, Space, Tier, Writing};
use crate::{Error, Result};
use file::FileWriting;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatxFlags, openat, statvfs, unlinkat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// What Terrace keeps in a root; never listed.
pub const PRIVATE_DIRECTORY: &str = ".terrace";
pub const TEMPORARY_PREFIX: &str = ".terrace-tmp-";
/// The kernel makes one file at a time in a directory, and waits for the server's answer meanwhile.
const LANES: usize = 8;

#[derive(Clone, Debug)]
pub struct DirectoryTier {
    label: String,
    directory: Arc<PathBuf>,
    /// Held open: the tier stays the same directory whatever happens to its path.
    fd: Arc<OwnedFd>,
    temporaries: Option<Arc<Temporaries>>,
    /// By the root's own file system.
    refuses_exchange: Arc<AtomicBool>,
}

/// The directory of a root's temporaries, which is ours alone.
#[derive(Debug)]
struct Temporaries {
    /// Relative to the tier.
    directory: PathBuf,
    /// A new file in it has no extended attributes: a default ACL or a label would give it some. Found by the first one.
    makes_bare_files: OnceLock<bool>,
    /// Directories in it, made when they are first used, or not to be had.
    lanes: [OnceLock<bool>; LANES],
}

impl DirectoryTier {
    /// A directory whose temporaries lie beside the names.
    pub fn open(label: impl Into<String>, directory: impl Into<PathBuf>) -> Result<DirectoryTier> {
        let directory = directory.into();
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&directory, flags, Mode::empty())
            .map_err(|error| Error::io("open the directory", &directory, error))?;
        Ok(DirectoryTier {
            label: label.into(),
            directory: Arc::new(directory),
            fd: Arc::new(fd),
            temporaries: None,
            refuses_exchange: Arc::default(),
        })
    }

    /// A root: temporaries lie in `ROOT/.terrace/tmp`, which is made when the first one is.
    pub fn open_root(label: impl Into<String>, root: impl Into<PathBuf>) -> Result<DirectoryTier> {
        DirectoryTier::open_shared_root(label, root, Path::new(PRIVATE_DIRECTORY))
    }

    /// A root that several use: temporaries lie in the part of its private directory that is this one's.
    pub fn open_shared_root(
        label: impl Into<String>,
        root: impl Into<PathBuf>,
        private: &Path,
    ) -> Result<DirectoryTier> {
        let mut tier = DirectoryTier::open(label, root)?;
        tier.temporaries = Some(Arc::new(Temporaries {
            directory: private.join("tmp"),
            makes_bare_files: OnceLock::new(),
            lanes: Default::default(),
        }));
        Ok(tier)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// For messages and for calls that this trait doesn't have; the name is checked.
    pub fn path_of(&self, name: &Path) -> Result<PathBuf> {
        Ok(self.directory.join(checked(name)?))
    }

    /// Removes temporaries that a process which died has left: those in the temporary directory and those beside the names
    /// of `directories`. How many. Only for one who knows that nobody is writing.
    pub fn discard_temporaries<'a>(&self, directories: impl IntoIterator<Item = &'a Path>) -> Result<usize> {
        let mut count = 0;
        let own = self.temporaries.iter().map(|own| own.directory.clone());
        for directory in own.chain(directories.into_iter().map(Path::to_path_buf)) {
            let entries = match self.entries(&directory) {
                Ok(entries) => entries,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            for entry in entries.iter().filter(|entry| is_temporary(&entry.name)) {
                if entry.kind == EntryKind::Directory {
                    count += self.discard_lane(&entry.name)?;
                    continue;
                }
                match self.remove(&entry.name) {
                    Ok(()) => count += 1,
                    Err(error) if error.is_not_found() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(count)
    }

    fn discard_lane(&self, lane: &Path) -> Result<usize> {
        let mut count = 0;
        for entry in self.entries(lane)?.iter().filter(|entry| is_temporary(&entry.name)) {
            self.remove(&entry.name)?;
            count += 1;
        }
        // What else is in it is nobody's temporary, and keeps it.
        let _ = unlinkat(&*self.fd, lane, AtFlags::REMOVEDIR);
        Ok(count)
    }

    /// The directory of a lane's temporaries, if it can be had.
    fn lane(&self, own: &Temporaries, lane: usize) -> Option<PathBuf> {
        let lane = lane % LANES;
        let directory = own.directory.join(format!("{TEMPORARY_PREFIX}lane-{lane}"));
        let is_made = || matches!(rustix::fs::mkdirat(&*self.fd, &directory, Mode::RWXU), Ok(()) | Err(Errno::EXIST));
        own.lanes[lane].get_or_init(is_made).then_some(directory)
    }

    fn entries(&self, directory: &Path) -> Result<Vec<Entry>> {
        let shown = || self.directory.join(directory);
        let error = |error: Errno| Error::io("list", shown(), error);
        let at = if directory.as_os_str().is_empty() { Path::new(".") } else { checked(directory)? };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = openat(&*self.fd, at, flags, Mode::empty()).map_err(error)?;
        let mut entries = vec![];
        for entry in Dir::new(fd).map_err(error)? {
            let entry = entry.map_err(error)?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let name = directory.join(OsStr::from_bytes(name));
            let kind = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(&*self.fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(error(errno)),
                },
                known => known,
            };
            let kind = match kind {
                FileType::RegularFile => EntryKind::File,
                FileType::Directory => EntryKind::Directory,
                FileType::Symlink => EntryKind::Link,
                _ => EntryKind::Other,
            };
            entries.push(Entry { name, kind });
        }
        Ok(entries)
    }

    /// Where a temporary for `name` goes: relative to the tier, on the file system of `name`.
    fn temporary_directory(&self, name: &Path) -> Result<PathBuf> {
        let beside = name.parent().unwrap_or(Path::new("")).to_path_buf();
        let Some(temporaries) = &self.temporaries else { return Ok(beside) };
        let temporaries = temporaries.directory.as_path();
        let there = match self.device_of(temporaries) {
            Err(Errno::NOENT) => {
                self.make_private(temporaries)?;
                self.device_of(temporaries)
            }
            found => found,
        }
        .map_err(|error| Error::io("use the temporary directory", self.directory.join(temporaries), error))?;
        let parent = self
            .device_of(&beside)
            .map_err(|error| Error::io("find the directory", self.directory.join(&beside), error))?;
        Ok(if parent == there { temporaries.to_path_buf() } else { beside })
    }

    /// Which file system a directory is on. Files come and go in it, so its attributes are never known to the kernel: nothing but
    /// the file system is wanted, and no server is asked.
    fn device_of(&self, directory: &Path) -> Result<(u32, u32), Errno> {
        let at = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        match rustix::fs::statx(&*self.fd, at, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) {
            Ok(found) => Ok((found.stx_dev_major, found.stx_dev_minor)),
            Err(Errno::NOSYS) => {
                let device = rustix::fs::statat(&*self.fd, at, AtFlags::empty())?.st_dev;
                Ok((rustix::fs::major(device), rustix::fs::minor(device)))
            }
            Err(error) => Err(error),
        }
    }

    /// As `create`, for a file that will have this mode: a temporary that has it from the start needs no call to set it. Threads
    /// that make files at the same time name a lane each, so that none waits for the others.
    pub fn create_with_mode(&self, name: &Path, mode: u32, lane: Option<usize>) -> Result<Box<dyn Writing>> {
        let name = checked(name)?;
        let mut directory = self.temporary_directory(name)?;
        let private = self.temporaries.as_ref().filter(|own| own.directory == directory);
        if let Some(own) = private
            && let Some(lane) = lane.and_then(|lane| self.lane(own, lane))
        {
            directory = lane;
        }
        // Where others could open it, only its owner may until it is whole. The owner's own right to write is needed for the
        // extended attributes.
        let shown = if private.is_some() { Mode::from_raw_mode(mode & 0o777) } else { Mode::empty() };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            let temporary = directory.join(temporary_name());
            match openat(&*self.fd, &temporary, flags, shown | Mode::RUSR | Mode::WUSR) {
                Ok(fd) => {
                    let is_bare =
                        private.is_some_and(|own| *own.makes_bare_files.get_or_init(|| attributes::is_bare(&fd)));
                    return Ok(Box::new(FileWriting::new(self.clone(), fd, temporary, is_bare)));
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(Error::io("create", self.directory.join(&temporary), error)),
            }
        }
    }

    fn make_private(&self, temporaries: &Path) -> Result<()> {
        let mut directories: Vec<&Path> =
            temporaries.ancestors().filter(|directory| !directory.as_os_str().is_empty()).collect();
        directories.reverse();
        for directory in directories {
            match rustix::fs::mkdirat(&*self.fd, directory, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(Error::io("make", self.directory.join(directory), error)),
            }
        }
        Ok(())
    }
}

impl Tier for DirectoryTier {
    fn label(&self) -> &str {
        &self.label
    }

    fn space(&self) -> Result<Space> {
        let error = |error| Error::io("ask for the free space of", &*self.directory, error);
        let known = rustix::fs::fstatvfs(&*self.fd).map_err(error)?;
        let unit = known.f_frsize.max(1);
        Ok(Space { capacity: known.f_blocks.saturating_mul(unit), free: known.f_bavail.saturating_mul(unit) })
    }

    fn create(&self, name: &Path) -> Result<Box<dyn Writing>> {
        self.create_with_mode(name, 0o600, None)
    }

    fn open(&self, name: &Path) -> Result<Box<dyn Reading>> {
        let name = checked(name)?;
        Ok(Box::new(FileReading::open_at(&self.fd, name, self.directory.join(name))?))
    }

    fn remove(&self, name: &Path) -> Result<()> {
        let name = checked(name)?;
        unlinkat(&*self.fd, name, AtFlags::empty())
            .map_err(|error| Error::io("remove", self.directory.join(name), error))
    }

    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        let mut entries = self.entries(directory)?;
        entries.retain(|entry| !is_temporary(&entry.name) && entry.name.as_os_str() != PRIVATE_DIRECTORY);
        Ok(entries)
    }

    fn sync_name(&self, name: &Path) -> Result<()> {
        let parent = match checked(name)?.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let error = |error| Error::io("sync the directory", self.directory.join(parent), error);
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let fd = openat(&*self.fd, parent, flags, Mode::empty()).map_err(error)?;
        match rustix::fs::fsync(&fd) {
            // Some file systems can't sync a directory because they have nothing to sync.
            Ok(()) | Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
            Err(errno) => Err(error(errno)),
        }
    }
}

/// Names stay below the tier.
fn checked(name: &Path) -> Result<&Path> {
    let reason = if name.as_os_str().is_empty() {
        "it is empty"
    } else if name.as_os_str().as_bytes().contains(&0) {
        "it contains a zero byte"
    } else if name.components().any(|part| matches!(part, Component::ParentDir)) {
        "it contains `..`"
    } else if name.is_absolute() {
        "it is absolute"
    } else if name.components().all(|part| part == Component::CurDir) {
        "it names the tier itself"
    } else {
        return Ok(name);
    };
    Err(Error::Name { path: name.to_path_buf(), reason })
}

fn is_temporary(name: &Path) -> bool {
    name.file_name().is_some_and(|name| name.as_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()))
}

/// Distinct among processes that live at the same time; `O_EXCL` settles the rest.
fn temporary_name() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    format!("{TEMPORARY_PREFIX}{:x}-{:x}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Room of the file system that `directory` is on, for one who has no tier there (yet).
pub fn space_of(directory: &Path) -> Result<Space> {
    let known = statvfs(directory).map_err(|error| Error::io("ask for the free space of", directory, error))?;
    let unit = known.f_frsize.max(1);
    Ok(Space { capacity: known.f_blocks.saturating_mul(unit), free: known.f_bavail.saturating_mul(unit) })
}

#[cfg(test)]
mod tests;
