//! Open files of a directory tier: `pread`, `pwrite`, and a rename at the end.

use super::{DirectoryTier, attributes, checked};
use crate::tier::{Attributes, AttributesReport, Reading, Stat, Timestamp, Writing};
use crate::{Error, Result};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, openat, renameat, renameat_with, unlinkat};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

/// A regular file open for reading; also made of a descriptor, for a file that has no name any more.
#[derive(Debug)]
pub struct FileReading {
    fd: OwnedFd,
    path: PathBuf,
}

impl FileReading {
    /// `path` is for messages.
    pub fn from_fd(fd: OwnedFd, path: impl Into<PathBuf>) -> FileReading {
        FileReading { fd, path: path.into() }
    }

    /// Gives a file that is in place already another's attributes; its bytes stay.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result<AttributesReport> {
        attributes::write(&self.fd, &self.path, attributes, false)
    }

    pub(super) fn open_at(directory: &OwnedFd, name: &Path, path: PathBuf) -> Result<FileReading> {
        let fd = open_quietly(directory, name).map_err(|error| Error::io("open", &path, error))?;
        let reading = FileReading { fd, path };
        if !reading.stat()?.is_file() {
            return Err(Error::io("read as a regular file", reading.path, Errno::INVAL));
        }
        Ok(reading)
    }
}

/// Without changing the access time, without waiting for a fifo's writer, and also where the owner took away their own
/// right to read.
fn open_quietly(directory: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let plain = || openat(directory, name, flags, Mode::empty());
    match openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => plain(), // somebody else's file
        Err(Errno::ACCESS) => open_own_unreadable(directory, name, flags),
        result => result,
    }
}

fn open_own_unreadable(directory: &OwnedFd, name: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let handle = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&handle)?;
    let mode = Mode::from_raw_mode(stat.st_mode);
    let is_own_file = stat.st_uid == rustix::process::geteuid().as_raw()
        && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if !is_own_file || mode.contains(Mode::RUSR) {
        return Err(Errno::ACCESS);
    }
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    rustix::fs::chmod(&path, mode | Mode::RUSR)?;
    let opened = rustix::fs::open(&path, flags.difference(OFlags::NOFOLLOW), Mode::empty());
    rustix::fs::chmod(&path, mode)?;
    opened
}

impl Reading for FileReading {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        retry(|| rustix::io::pread(&self.fd, &mut *buffer, offset))
            .map_err(|error| Error::io("read", &self.path, error))
    }

    fn stat(&self) -> Result<Stat> {
        stat_of(&self.fd, &self.path)
    }

    fn attributes(&self) -> Result<Attributes> {
        attributes::read(&self.fd, &self.path)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        let error = |error| Error::io("find the data of", &self.path, error);
        let start = match rustix::fs::seek(&self.fd, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // No holes are known here: all is data.
            Err(Errno::INVAL | Errno::NOTSUP) => {
                let size = self.stat()?.size;
                return Ok((offset < size).then_some((offset, size)));
            }
            Err(errno) => return Err(error(errno)),
        };
        match rustix::fs::seek(&self.fd, SeekFrom::Hole(start)) {
            Ok(end) if end > start => Ok(Some((start, end))),
            Ok(_) | Err(Errno::NXIO) => Ok(None), // truncated in between
            Err(errno) => Err(error(errno)),
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// A temporary, removed when dropped before it is committed.
pub(super) struct FileWriting {
    tier: DirectoryTier,
    fd: OwnedFd,
    /// Relative to the tier.
    temporary: PathBuf,
    path: PathBuf,
    /// It was made without extended attributes.
    is_bare: bool,
    is_committed: bool,
}

impl FileWriting {
    pub(super) fn new(tier: DirectoryTier, fd: OwnedFd, temporary: PathBuf, is_bare: bool) -> FileWriting {
        let path = tier.directory.join(&temporary);
        FileWriting { tier, fd, temporary, path, is_bare, is_committed: false }
    }

    /// The same file, not open for writing any more. By the descriptor: its name would have to be looked up again.
    fn closed_for_writing(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let itself = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        retry(|| rustix::fs::open(&itself, flags, Mode::empty()))
            .or_else(|_| retry(|| openat(&*self.tier.fd, &self.temporary, flags | OFlags::NOFOLLOW, Mode::empty())))
    }
}

impl Writing for FileWriting {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<usize> {
        retry(|| rustix::io::pwrite(&self.fd, bytes, offset)).map_err(|error| Error::io("write", &self.path, error))
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        if self.stat()?.size == size {
            return Ok(());
        }
        retry(|| rustix::fs::ftruncate(&self.fd, size)).map_err(|error| Error::io("set the size of", &self.path, error))
    }

    fn set_attributes(&mut self, attributes: &Attributes) -> Result<AttributesReport> {
        attributes::write(&self.fd, &self.path, attributes, self.is_bare)
    }

    fn sync(&mut self) -> Result<()> {
        retry(|| rustix::fs::fsync(&self.fd)).map_err(|error| Error::io("sync", &self.path, error))
    }

    fn stat(&self) -> Result<Stat> {
        stat_of(&self.fd, &self.path)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn commit(mut self: Box<Self>, name: &Path) -> Result<Stat> {
        let name = checked(name)?;
        let directory = &*self.tier.fd;
        // Closed for writing before it has its name: a program that somebody starts at once must not be busy.
        self.fd = self.closed_for_writing().map_err(|error| Error::io("open", &self.path, error))?;
        retry(|| rustix::fs::renameat(directory, &self.temporary, directory, name))
            .map_err(|error| Error::io("put in place", self.tier.directory.join(name), error))?;
        self.is_committed = true;
        self.stat()
    }

    fn commit_over(mut self: Box<Self>, name: &Path, is_expected: &dyn Fn(&Path) -> bool) -> Result<Stat> {
        let name = checked(name)?;
        self.fd = self.closed_for_writing().map_err(|error| Error::io("open", &self.path, error))?;
        let replaced = self.tier.replace(&self.temporary, name, &|| is_expected(&self.path));
        // Whatever is under the temporary's name now: it is not ours to remove when it could not be put back.
        self.is_committed = !matches!(replaced, Err((_, Left::Ours)));
        replaced.map_err(|(error, _)| Error::io("put in place", self.tier.directory.join(name), error))?;
        self.stat()
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
}

/// What has the name that the new file had before.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// The new file: nothing happened.
    Ours,
    /// A file that took the place of what was expected at the last moment, and could not be put back: it is to be kept.
    Another,
}

impl DirectoryTier {
    /// The two exchange their names. NOTSUP: the file system can't do that (an old kernel, NFS, GlusterFS), which the root's own is asked once;
    /// one that is mounted below the root, where nothing is private, is asked each time.
    pub fn exchange(&self, one: &Path, other: &Path) -> Result<(), Errno> {
        if self.refuses_exchange.load(Relaxed) && self.is_private(one) {
            return Err(Errno::NOTSUP);
        }
        let directory = self.fd.as_fd();
        match retry(|| renameat_with(directory, one, directory, other, RenameFlags::EXCHANGE)) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
                self.refuses_exchange.fetch_or(self.is_private(one), Relaxed);
                Err(Errno::NOTSUP)
            }
            done => done,
        }
    }

    /// Beside the root's temporaries, or one of them.
    fn is_private(&self, path: &Path) -> bool {
        let private = self.temporaries.as_ref().and_then(|own| own.directory.parent());
        private.is_some_and(|private| path.strip_prefix(&*self.directory).unwrap_or(path).starts_with(private))
    }

    /// Gives what is at `from` the name `to`, over what `is_expected` (which looks at `from`) only; paths that are relative are below the
    /// tier. No call compares and renames at once: the two exchange their names, and what comes out is looked at. Where the file system
    /// can't exchange, it is a rename.
    pub fn replace(&self, from: &Path, to: &Path, is_expected: &dyn Fn() -> bool) -> Result<(), (Errno, Left)> {
        let directory = self.fd.as_fd();
        match self.exchange(from, to) {
            Err(Errno::NOTSUP) => {
                retry(|| renameat(directory, from, directory, to)).map_err(|error| (error, Left::Ours))
            }
            Err(error) => Err((error, Left::Ours)),
            Ok(()) if is_expected() => {
                let _ = unlinkat(directory, from, AtFlags::empty());
                Ok(())
            }
            Ok(()) => match self.exchange(from, to) {
                Ok(()) => Err((Errno::NOENT, Left::Ours)),
                // Somebody has removed the name, and has found the new file there.
                Err(Errno::NOENT) => {
                    match retry(|| renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE)) {
                        Ok(()) => Err((Errno::NOENT, Left::Another)),
                        Err(error) => Err((error, Left::Another)),
                    }
                }
                Err(error) => Err((error, Left::Another)),
            },
        }
    }
}

impl Drop for FileWriting {
    fn drop(&mut self) {
        if !self.is_committed {
            // Nothing more can be done here; recovery discards what stays.
            let _ = rustix::fs::unlinkat(&*self.tier.fd, &self.temporary, AtFlags::empty());
        }
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

pub(super) fn stat_of(fd: impl AsFd, path: &Path) -> Result<Stat> {
    let stat = rustix::fs::fstat(fd).map_err(|error| Error::io("stat", path, error))?;
    Ok(Stat::from(&stat))
}

impl From<&rustix::fs::Stat> for Stat {
    fn from(stat: &rustix::fs::Stat) -> Stat {
        let time = |seconds: i64, nanoseconds: u64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
        Stat {
            dev: stat.st_dev,
            ino: stat.st_ino,
            nlink: stat.st_nlink as _,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: stat.st_size as u64,
            allocated: stat.st_blocks as u64 * 512,
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        }
    }
}

impl From<&rustix::fs::Statx> for Stat {
    fn from(stat: &rustix::fs::Statx) -> Stat {
        let time = |time: &rustix::fs::StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
        Stat {
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            ino: stat.stx_ino,
            nlink: stat.stx_nlink.into(),
            mode: stat.stx_mode.into(),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            allocated: stat.stx_blocks * 512,
            atime: time(&stat.stx_atime),
            mtime: time(&stat.stx_mtime),
            ctime: time(&stat.stx_ctime),
        }
    }
}
