//! The file system: each request is done in the source by the system call it came from, after its wait.
//!
//! Requests are served by many threads, one request each, so a wait holds up nobody else. Permissions are checked by the
//! kernel (`default_permissions`) against the source's own attributes. Files are kept in the kernel's cache across opens:
//! the source may be changed only through the mount.

use crate::attributes::{attributes, timespec};
use crate::files::{Handle, Handles};
use crate::inodes::{Inodes, errno, proc_path};
use crate::limits::{Limits, LimitsSpec};
use fuser::{
    Errno, FileAttr, FileHandle, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr, Request, TimeOrNow,
};
use rustix::fs::{self, AtFlags, Mode, OFlags, Timestamps};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// One request moves at most so much: small enough that a wait is short, large enough that its overhead is not felt.
pub(crate) const TRANSFER_MAX: u32 = 1 << 20;
/// Requests that the kernel sends ahead of need (read-ahead, write-back); fewer than the threads, so that metadata gets through.
pub(crate) const BACKGROUND_MAX: u16 = 16;

/// What the kernel may keep.
#[derive(Clone, Copy, Debug)]
pub struct Caching {
    /// How long names and attributes are taken as known.
    pub ttl: Duration,
    /// Writes gather in the kernel's cache and reach the source later, as on clients of parallel file systems.
    pub write_back: bool,
}

pub struct SlowFs {
    pub(crate) inodes: Inodes,
    pub(crate) handles: Handles,
    pub(crate) limits: Arc<Limits>,
    pub(crate) caching: Caching,
    is_root: bool,
}

pub(crate) type Answer<T> = Result<T, Errno>;

impl SlowFs {
    /// `source`: a descriptor of the directory to show.
    pub fn new(source: OwnedFd, limits: LimitsSpec, caching: Caching) -> rustix::io::Result<SlowFs> {
        Ok(SlowFs {
            inodes: Inodes::new(source)?,
            handles: Handles::default(),
            limits: Arc::new(Limits::new(limits)),
            caching,
            is_root: rustix::process::geteuid().is_root(),
        })
    }

    /// Outlives the mount, so that its traffic can be told afterwards.
    pub fn limits(&self) -> Arc<Limits> {
        self.limits.clone()
    }

    pub(crate) fn entry(&self, parent: &OwnedFd, name: &OsStr) -> Answer<FileAttr> {
        let (stat, ino) = self.inodes.look_up(parent, name)?;
        Ok(attributes(&stat, ino))
    }

    pub(crate) fn attributes_of(&self, ino: INodeNo, handle: Option<FileHandle>) -> Answer<FileAttr> {
        let stat = match handle.map(|handle| self.handles.get(handle)).transpose()?.as_deref() {
            Some(Handle::File(file)) => fs::fstat(file),
            _ => fs::fstat(&*self.inodes.get(ino)?),
        };
        Ok(attributes(&stat.map_err(errno)?, ino.0))
    }

    /// Does `make` in the parent, gives what it made to the caller, and looks it up.
    pub(crate) fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: Option<u32>,
        make: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> Answer<FileAttr> {
        self.limits.metadata();
        let parent = self.inodes.get(parent)?;
        make(&parent).map_err(errno)?;
        self.give_to_caller(request, &parent, name, mode)?;
        self.entry(&parent, name)
    }

    /// What a root server made belongs to root; natively it belongs to the caller (its group to a set-group-id parent).
    pub(crate) fn give_to_caller(
        &self,
        request: &Request,
        parent: &OwnedFd,
        name: &OsStr,
        mode: Option<u32>,
    ) -> Answer<()> {
        if !self.is_root || (request.uid() == 0 && request.gid() == 0) {
            return Ok(());
        }
        let group_is_inherited = fs::fstat(parent).map_err(errno)?.st_mode & libc::S_ISGID != 0;
        let group = (!group_is_inherited).then(|| fs::Gid::from_raw(request.gid()));
        let user = Some(fs::Uid::from_raw(request.uid()));
        fs::chownat(parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW).map_err(errno)?;
        match mode {
            // The change of owner took these bits away.
            Some(mode) if mode & 0o6000 != 0 => {
                fs::chmodat(parent, name, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty()).map_err(errno)
            }
            _ => Ok(()),
        }
    }

    /// The source's file for `flags` of an open. Offsets come with each request, so the source needs no `O_APPEND`; the
    /// kernel's cache may read what a program only writes.
    pub(crate) fn source_flags(&self, flags: i32) -> OFlags {
        let dropped =
            libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_DIRECT | libc::O_NOCTTY;
        let mut flags = flags & !dropped;
        if self.caching.write_back && flags & libc::O_ACCMODE == libc::O_WRONLY {
            flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR;
        }
        OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC
    }

    pub(crate) fn open_file(&self, ino: INodeNo, flags: i32) -> Answer<FileHandle> {
        let path = proc_path(&*self.inodes.get(ino)?);
        let wanted = self.source_flags(flags);
        let file = fs::open(&path, wanted, Mode::empty()).or_else(|error| match error {
            rustix::io::Errno::ACCESS if flags & libc::O_ACCMODE == libc::O_WRONLY => {
                fs::open(&path, (wanted - OFlags::RWMODE) | OFlags::WRONLY, Mode::empty())
            }
            error => Err(error),
        });
        Ok(self.handles.add(Handle::File(file.map_err(errno)?)))
    }

    /// A change by somebody else takes set-user-id and set-group-id from a file; the kernel leaves that to us.
    pub(crate) fn drop_privilege_bits(&self, descriptor: &OwnedFd) -> Answer<()> {
        let mode = fs::fstat(descriptor).map_err(errno)?.st_mode;
        let group_bit = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
        let kept = mode & 0o7777 & !(libc::S_ISUID | group_bit);
        if kept != mode & 0o7777 {
            fs::chmod(proc_path(descriptor), Mode::from_raw_mode(kept)).map_err(errno)?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn change(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        times: (Option<TimeOrNow>, Option<TimeOrNow>),
        handle: Option<FileHandle>,
    ) -> Answer<FileAttr> {
        let node = self.inodes.get(ino)?;
        if let Some(mode) = mode {
            fs::chmod(proc_path(&*node), Mode::from_raw_mode(mode & 0o7777)).map_err(errno)?;
        }
        if uid.is_some() || gid.is_some() {
            let (user, group) = (uid.map(fs::Uid::from_raw), gid.map(fs::Gid::from_raw));
            fs::chownat(&*node, "", user, group, AtFlags::EMPTY_PATH).map_err(errno)?;
        }
        if let Some(size) = size {
            match handle.map(|handle| self.handles.get(handle)).transpose()?.as_deref() {
                Some(Handle::File(file)) => fs::ftruncate(file, size).map_err(errno)?,
                _ => {
                    let file = fs::open(proc_path(&*node), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
                    fs::ftruncate(file.map_err(errno)?, size).map_err(errno)?;
                }
            }
            if request.uid() != 0 {
                self.drop_privilege_bits(&node)?;
            }
        }
        if times.0.is_some() || times.1.is_some() {
            let times = Timestamps { last_access: timespec(times.0), last_modification: timespec(times.1) };
            fs::utimensat(&*node, "", &times, AtFlags::EMPTY_PATH).map_err(errno)?;
        }
        self.attributes_of(ino, handle)
    }

    pub(crate) fn xattr_target(&self, ino: INodeNo) -> Answer<(Arc<OwnedFd>, String)> {
        let node = self.inodes.get(ino)?;
        let path = proc_path(&*node);
        Ok((node, path))
    }
}

/// One extended attribute or list of them, in the way FUSE wants it: its length for size 0, else the bytes.
pub(crate) fn reply_xattr(size: u32, reply: ReplyXattr, read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) {
    let mut buffer = vec![0; size as usize];
    match read(&mut buffer) {
        Ok(length) if size == 0 => reply.size(length as u32),
        Ok(length) => reply.data(&buffer[..length]),
        Err(error) => reply.error(errno(error)),
    }
}

pub(crate) fn reply_empty(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

impl SlowFs {
    pub(crate) fn reply_entry(&self, answer: Answer<FileAttr>, reply: ReplyEntry) {
        match answer {
            Ok(attributes) => reply.entry(&self.caching.ttl, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    pub(crate) fn reply_attributes(&self, answer: Answer<FileAttr>, reply: ReplyAttr) {
        match answer {
            Ok(attributes) => reply.attr(&self.caching.ttl, &attributes),
            Err(error) => reply.error(error),
        }
    }
}

/// FUSE takes a short read for the end of the file.
pub(crate) fn read_fully(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], offset + done as u64)? {
            0 => break,
            length => done += length,
        }
    }
    Ok(done)
}
