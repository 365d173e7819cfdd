//! Changes of attributes, and who owns what a server makes.

use crate::attributes::timespec;
use crate::calls::{self, Answer, Target};
use fuser::{Request, TimeOrNow};
use std::ffi::CStr;
use std::os::fd::OwnedFd;

/// What a `setattr` asks for; `None`: as it is.
pub struct Change {
    pub mode: Option<u32>,
    pub user: Option<u32>,
    pub group: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<TimeOrNow>,
    pub modified: Option<TimeOrNow>,
}

impl Change {
    /// `open`: the open file that the program named, which is cut even where its name can't be opened for writing.
    pub fn apply(self, request: &Request, target: Target<'_>, open: Option<&OwnedFd>) -> Answer<()> {
        if let Some(mode) = self.mode {
            target.change_mode(mode & 0o7777)?;
        }
        if self.user.is_some() || self.group.is_some() {
            target.change_owner(self.user.unwrap_or(u32::MAX), self.group.unwrap_or(u32::MAX))?;
        }
        if let Some(size) = self.size {
            open.map_or(target, Target::File).cut(size)?;
            if request.uid() != 0 {
                drop_privileges(target)?;
            }
        }
        if self.accessed.is_some() || self.modified.is_some() {
            target.change_times(&[timespec(self.accessed), timespec(self.modified)])?;
        }
        Ok(())
    }
}

/// What a server of root's made is root's; without the mount it is the program's user's, and of the program's group, unless the
/// directory hands down its own. `mode`: as it was asked for. For a server of root's only.
pub fn give(request: &Request, dir: &OwnedFd, name: &CStr, mode: u32) -> Answer<()> {
    if request.uid() == 0 && request.gid() == 0 {
        return Ok(());
    }
    let is_inherited = calls::stat(dir)?.st_mode & libc::S_ISGID != 0;
    let group = if is_inherited { u32::MAX } else { request.gid() };
    let target = Target::Name(dir, name);
    let made = if mode & 0o6000 != 0 { target.stat()?.st_mode } else { 0 };
    target.change_owner(request.uid(), group)?;
    // The change of owner took these bits away.
    if made & 0o6000 != 0 { target.change_mode(made & 0o7777) } else { Ok(()) }
}

/// A change by somebody who isn't root takes set-user-id and set-group-id from a file. The kernel leaves it to us.
pub fn drop_privileges(target: Target<'_>) -> Answer<()> {
    let mode = target.stat()?.st_mode;
    let group = if mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
    let kept = mode & 0o7777 & !(libc::S_ISUID | group);
    if mode & libc::S_IFMT == libc::S_IFREG && kept != mode & 0o7777 { target.change_mode(kept) } else { Ok(()) }
}
