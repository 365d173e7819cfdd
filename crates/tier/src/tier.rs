//! The contract of a tier: files that appear whole, under names of raw bytes.
//!
//!   create(name) ─▶ Writing ─write_at, set_attributes, sync─▶ commit(name)   (rename over)
//!                      └── dropped: the temporary is removed
//!   open(name)   ─▶ Reading ─read_at, next_data, attributes
//!
//! Invariant: a name shows either what it showed before, or all of what was committed.
//! `conformance::run` executes this contract; a new kind of tier passes it or isn't one.
//!
//! A name is a relative path without `..`; its directories must exist. Both `Writing` and `Reading` may lend their
//! descriptor (`as_fd`) so that `copy` can let the kernel move the bytes; those that must see each byte lend none.

use crate::{Error, Result};
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

/// Room in a tier, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    pub capacity: u64,
    /// What this user may still write.
    pub free: u64,
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Timestamp {
    pub seconds: i64,
    pub nanoseconds: u32,
}

impl Timestamp {
    /// As the shared index stores it; saturates about the year 2262.
    pub fn as_ns(self) -> i64 {
        self.seconds.saturating_mul(1_000_000_000).saturating_add(self.nanoseconds as i64)
    }
    pub fn from_ns(ns: i64) -> Timestamp {
        Timestamp { seconds: ns.div_euclid(1_000_000_000), nanoseconds: ns.rem_euclid(1_000_000_000) as u32 }
    }
}

/// What `fstat` says. Two equal `version`s of one file mean equal contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub nlink: u64,
    /// Type and permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    /// Bytes that the file occupies (holes occupy none).
    pub allocated: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

impl Stat {
    /// What differs between two looks at one file that was written or changed in between. Mode and owner as well: two changes within one
    /// tick of the kernel's clock (4 ms, before Linux 6.13) have one time of change. (Extended attributes are told by that alone.)
    pub fn version(&self) -> (u64, Timestamp, Timestamp, (u32, u32, u32)) {
        (self.size, self.mtime, self.ctime, (self.mode, self.uid, self.gid))
    }
    pub fn is_file(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// What travels with a file's bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    /// Permission bits, with set-user-ID, set-group-ID and sticky (no type bits).
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    /// All extended attributes that this user can read, POSIX ACLs among them, sorted by name.
    pub xattrs: Vec<(OsString, Vec<u8>)>,
}

/// What of `Attributes` could not be kept, and why. Empty: everything was.
#[derive(Debug, Default)]
pub struct AttributesReport {
    pub lost: Vec<(String, std::io::Error)>,
}

impl AttributesReport {
    pub fn is_complete(&self) -> bool {
        self.lost.is_empty()
    }
}

impl std::fmt::Display for AttributesReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (name, reason)) in self.lost.iter().enumerate() {
            write!(f, "{}{name} ({reason})", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    File,
    Directory,
    Link,
    Other,
}

/// One entry of a directory in a tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Relative to the tier, as `open` takes it.
    pub name: PathBuf,
    pub kind: EntryKind,
}

/// A place for files. Shared by threads.
pub trait Tier: Send + Sync {
    /// For people: the tier's name in the settings, or its directory.
    fn label(&self) -> &str;
    fn space(&self) -> Result<Space>;
    /// An empty temporary (mode 0600) that nobody sees under `name`, on the file system where `name` will be.
    fn create(&self, name: &Path) -> Result<Box<dyn Writing>>;
    /// A regular file, for reading. A link or a special file is an error (ELOOP, EINVAL).
    fn open(&self, name: &Path) -> Result<Box<dyn Reading>>;
    /// Removes a file. A missing name is `is_not_found`.
    fn remove(&self, name: &Path) -> Result<()>;
    /// Entries of one directory (`""`: the tier's own), in no order, without temporaries and Terrace's own directory.
    fn list(&self, directory: &Path) -> Result<Vec<Entry>>;
    /// Makes the last change of this name durable (fsync of its directory).
    fn sync_name(&self, name: &Path) -> Result<()>;
}

/// A temporary being filled. Dropping it without `commit` removes it.
pub trait Writing: Send {
    /// May write less than asked; 0 only for an empty buffer.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<usize>;
    /// Truncates or extends with a hole.
    fn set_size(&mut self, size: u64) -> Result<()>;
    /// Owner first, then extended attributes, mode and, last, times: later writes would change them again.
    fn set_attributes(&mut self, attributes: &Attributes) -> Result<AttributesReport>;
    /// Bytes and attributes are durable when this returns.
    fn sync(&mut self) -> Result<()>;
    fn stat(&self) -> Result<Stat>;
    /// Where the temporary is (for messages and the journal).
    fn path(&self) -> &Path;
    /// Gives the temporary its name, atomically replacing what has it. The stat is as after the rename.
    /// After an error the temporary is gone and the name is as it was.
    fn commit(self: Box<Self>, name: &Path) -> Result<Stat>;
    /// As `commit`, over what `is_expected` (by its path, for it has given up the name) and nothing else: otherwise not found, and the name
    /// is as it was. Where a file system can't exchange two names this is `commit`.
    fn commit_over(self: Box<Self>, name: &Path, is_expected: &dyn Fn(&Path) -> bool) -> Result<Stat> {
        let _ = is_expected;
        self.commit(name)
    }
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A file open for reading. Reading does not change its access time where the system allows that.
pub trait Reading: Send + Sync {
    /// May read less than asked; 0 only at the end of the file or for an empty buffer.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    fn stat(&self) -> Result<Stat>;
    fn attributes(&self) -> Result<Attributes>;
    /// The next range `(start, end)` with data at or after `offset`; `None` when only a hole follows.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>>;
    /// For messages.
    fn path(&self) -> &Path;
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Conveniences over `Tier`.
pub trait TierExt: Tier {
    /// A small file in one go, committed but not synced.
    fn write(&self, name: &Path, bytes: &[u8]) -> Result<Stat> {
        let mut writing = self.create(name)?;
        writing.write_all_at(bytes, 0)?;
        writing.commit(name)
    }
    fn read(&self, name: &Path) -> Result<Vec<u8>> {
        let reading = self.open(name)?;
        let mut bytes = vec![0; reading.stat()?.size as usize];
        reading.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }
    fn stat(&self, name: &Path) -> Result<Stat> {
        self.open(name)?.stat()
    }
    fn exists(&self, name: &Path) -> Result<bool> {
        match self.open(name) {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
    /// Removes a file; it is no error if it was gone. True if it was there.
    fn remove_if_present(&self, name: &Path) -> Result<bool> {
        match self.remove(name) {
            Ok(()) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }
    /// All entries that are not directories, below `directory`.
    fn walk(&self, directory: &Path) -> Result<Vec<Entry>> {
        let mut found = vec![];
        let mut pending = vec![directory.to_path_buf()];
        while let Some(directory) = pending.pop() {
            for entry in self.list(&directory)? {
                if entry.kind == EntryKind::Directory { pending.push(entry.name) } else { found.push(entry) }
            }
        }
        Ok(found)
    }
}

impl<T: Tier + ?Sized> TierExt for T {}

pub trait WritingExt: Writing {
    fn write_all_at(&mut self, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        while !bytes.is_empty() {
            let count = self.write_at(bytes, offset)?;
            if count == 0 {
                return Err(Error::io("write", self.path(), std::io::Error::from_raw_os_error(libc::EIO)));
            }
            bytes = &bytes[count..];
            offset += count as u64;
        }
        Ok(())
    }
}

impl<W: Writing + ?Sized> WritingExt for W {}

pub trait ReadingExt: Reading {
    /// Fills the buffer; a file that ends before is `SourceChanged`.
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> Result<()> {
        while !buffer.is_empty() {
            let count = self.read_at(buffer, offset)?;
            if count == 0 {
                return Err(Error::SourceChanged { path: self.path().to_path_buf() });
            }
            buffer = &mut buffer[count..];
            offset += count as u64;
        }
        Ok(())
    }
}

impl<R: Reading + ?Sized> ReadingExt for R {}

impl<T: Tier + ?Sized> Tier for Box<T> {
    fn label(&self) -> &str {
        (**self).label()
    }
    fn space(&self) -> Result<Space> {
        (**self).space()
    }
    fn create(&self, name: &Path) -> Result<Box<dyn Writing>> {
        (**self).create(name)
    }
    fn open(&self, name: &Path) -> Result<Box<dyn Reading>> {
        (**self).open(name)
    }
    fn remove(&self, name: &Path) -> Result<()> {
        (**self).remove(name)
    }
    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        (**self).list(directory)
    }
    fn sync_name(&self, name: &Path) -> Result<()> {
        (**self).sync_name(name)
    }
}
