//! The file system: each request is done in the source by the system call it came from, after its wait.
//!
//! Requests are served by many threads, one request each, so a wait holds up nobody else. Permissions are checked by the
//! kernel (`default_permissions`) against the source's own attributes. Files are kept in the kernel's cache across opens:
//! the source may be changed only through the mount.

use crate::inodes::Inodes;
use crate::limits::{Limits, LimitsSpec};
use fuser::{Errno, FileAttr, FileHandle, INodeNo, Request};
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use terrace_passthrough::{Answer, Change, Handle, Handles, Target, attributes, calls, give};

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
    /// What has lost its last name is `ESTALE` for who has a handle of it: the server does not open it again, and knows no attributes of links.
    pub stale: bool,
}

pub struct SlowFs {
    pub(crate) inodes: Inodes,
    pub(crate) handles: Handles,
    pub(crate) limits: Arc<Limits>,
    pub(crate) caching: Caching,
    is_root: bool,
}

impl SlowFs {
    /// `source`: a descriptor of the directory to show.
    pub fn new(source: OwnedFd, limits: LimitsSpec, caching: Caching) -> io::Result<SlowFs> {
        let inodes = Inodes::new(source).map_err(|error| io::Error::from_raw_os_error(error.code()))?;
        Ok(SlowFs {
            inodes,
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

    pub(crate) fn entry(&self, parent: &OwnedFd, name: &CStr) -> Answer<FileAttr> {
        self.inodes.look_up(parent, name).map(|stat| attributes(&stat))
    }

    pub(crate) fn attributes_of(&self, ino: INodeNo, handle: Option<FileHandle>) -> Answer<FileAttr> {
        let mut stat = match handle.map(|handle| self.handles.get(handle)).transpose()?.as_deref() {
            Some(Handle::File { file, .. }) => calls::stat(file)?,
            _ => calls::stat(&*self.inodes.get(ino)?)?,
        };
        if self.caching.stale && stat.st_nlink == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return Err(Errno::ESTALE);
        }
        stat.st_ino = ino.0;
        Ok(attributes(&stat))
    }

    /// Does `act` on a name in a directory, after the wait for a metadata request.
    pub(crate) fn at<T>(
        &self,
        kind: &'static str,
        parent: INodeNo,
        name: &OsStr,
        act: impl FnOnce(&OwnedFd, &CString) -> Answer<T>,
    ) -> Answer<T> {
        self.limits.metadata(kind);
        act(&*self.inodes.get(parent)?, &calls::name(name)?)
    }

    /// Does `act` on a node, after the wait for a metadata request.
    pub(crate) fn on<T>(
        &self,
        kind: &'static str,
        ino: INodeNo,
        act: impl FnOnce(Target<'_>) -> Answer<T>,
    ) -> Answer<T> {
        self.limits.metadata(kind);
        act(Target::Held(&*self.inodes.get(ino)?))
    }

    /// Does `make` in the parent, gives what it made to the caller, and looks it up.
    pub(crate) fn make(
        &self,
        kind: &'static str,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        make: impl FnOnce(&OwnedFd, &CString) -> Answer<()>,
    ) -> Answer<FileAttr> {
        self.at(kind, parent, name, |parent, name| {
            make(parent, name)?;
            self.give(request, parent, name, mode)?;
            self.entry(parent, name)
        })
    }

    /// What a root server made belongs to root; natively it belongs to the caller.
    pub(crate) fn give(&self, request: &Request, parent: &OwnedFd, name: &CStr, mode: u32) -> Answer<()> {
        if self.is_root { give(request, parent, name, mode) } else { Ok(()) }
    }

    /// The source's file for `flags` of an open. Offsets come with each request, so the source needs no `O_APPEND`; the
    /// kernel's cache may read what a program only writes.
    pub(crate) fn source_flags(&self, flags: i32) -> i32 {
        let dropped =
            libc::O_APPEND | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_DIRECT | libc::O_NOCTTY;
        let mut flags = flags & !dropped;
        if self.caching.write_back && flags & libc::O_ACCMODE == libc::O_WRONLY {
            flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR;
        }
        flags
    }

    pub(crate) fn open_file(&self, ino: INodeNo, flags: i32) -> Answer<FileHandle> {
        let node = self.inodes.get(ino)?;
        if self.caching.stale && calls::stat(&node)?.st_nlink == 0 {
            return Err(Errno::ESTALE);
        }
        let wanted = self.source_flags(flags);
        let file = calls::open_held(&node, wanted).or_else(|error| match error {
            Errno::EACCES if flags & libc::O_ACCMODE == libc::O_WRONLY => {
                calls::open_held(&node, (wanted & !libc::O_ACCMODE) | libc::O_WRONLY)
            }
            error => Err(error),
        })?;
        Ok(self.handles.add(Handle::of_file(Arc::new(file))))
    }

    pub(crate) fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Answer<(FileAttr, FileHandle)> {
        self.at("create", parent, name, |parent, name| {
            let how = self.source_flags(flags) | libc::O_NOFOLLOW;
            // Asked for exclusively first: only what this request made is given to the caller.
            let file = match calls::open_at(parent, name, how | libc::O_CREAT | libc::O_EXCL, mode & 0o7777) {
                Ok(file) => {
                    self.give(request, parent, name, mode)?;
                    file
                }
                Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => calls::open_at(parent, name, how, 0)?,
                Err(error) => return Err(error),
            };
            Ok((self.entry(parent, name)?, self.handles.add(Handle::of_file(Arc::new(file)))))
        })
    }

    pub(crate) fn change(
        &self,
        request: &Request,
        ino: INodeNo,
        change: Change,
        handle: Option<FileHandle>,
    ) -> Answer<FileAttr> {
        let open = handle.map(|handle| self.handles.get(handle)).transpose()?;
        let open = open.as_ref().and_then(|handle| handle.file().ok());
        self.on("setattr", ino, |target| change.apply(request, target, open.map(|file| &**file)))?;
        self.attributes_of(ino, handle)
    }
}
