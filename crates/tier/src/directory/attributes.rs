//! Attributes of a real file, read and written through its descriptor.
//!
//! What can't be kept is told, never silently dropped: a scientist who loses an ACL wants to know.

use super::file::stat_of;
use crate::tier::{Attributes, AttributesReport, Stat, Timestamp};
use crate::{Error, Result};
use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;

pub(super) fn read(fd: &OwnedFd, path: &Path) -> Result<Attributes> {
    let stat = stat_of(fd, path)?;
    let mut xattrs = vec![];
    for name in names(fd).map_err(|error| Error::io("list the extended attributes of", path, error))? {
        match value(fd, &name) {
            Ok(value) => xattrs.push((name, value)),
            // Removed in between (the change of ctime tells), or not for this user to see.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::NOTSUP) => {}
            Err(error) => return Err(Error::io("read the extended attributes of", path, error)),
        }
    }
    xattrs.sort();
    Ok(Attributes {
        mode: stat.mode & 0o7777,
        uid: stat.uid,
        gid: stat.gid,
        atime: stat.atime,
        mtime: stat.mtime,
        xattrs,
    })
}

/// `is_bare`: the file has no extended attributes, so nobody needs to ask which.
pub(super) fn write(fd: &OwnedFd, path: &Path, wanted: &Attributes, is_bare: bool) -> Result<AttributesReport> {
    let mut report = AttributesReport::default();
    let found = stat_of(fd, path)?;
    let mode = wanted.mode & 0o7777 & !set_owner(fd, &found, wanted, &mut report);
    set_xattrs(fd, path, wanted, is_bare, &mut report)?;
    // A change of owner may take bits away, and an ACL speaks of the same bits as the mode.
    let is_as_wanted = is_bare
        && wanted.xattrs.is_empty()
        && (found.mode & 0o7777, found.uid, found.gid) == (mode, wanted.uid, wanted.gid);
    if !is_as_wanted {
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode)).map_err(|error| Error::io("set the mode of", path, error))?;
    }
    let times = Timestamps { last_access: timespec(wanted.atime), last_modification: timespec(wanted.mtime) };
    rustix::fs::futimens(fd, &times).map_err(|error| Error::io("set the times of", path, error))?;
    Ok(report)
}

/// The bits that must not be set because the owner or group they speak of could not be kept.
fn set_owner(fd: &OwnedFd, found: &Stat, wanted: &Attributes, report: &mut AttributesReport) -> u32 {
    let mut dropped = 0;
    if found.gid != wanted.gid
        && let Err(error) = rustix::fs::fchown(fd, None, Some(Gid::from_raw(wanted.gid)))
    {
        report.lost.push((format!("group {}", wanted.gid), error.into()));
        dropped |= SET_GID & wanted.mode;
    }
    if found.uid != wanted.uid
        && let Err(error) = rustix::fs::fchown(fd, Some(Uid::from_raw(wanted.uid)), None)
    {
        report.lost.push((format!("owner {}", wanted.uid), error.into()));
        dropped |= SET_UID & wanted.mode;
    }
    if dropped != 0 {
        report.lost.push((format!("mode bits {dropped:o}"), io::Error::from_raw_os_error(libc::EPERM)));
    }
    dropped
}

fn set_xattrs(
    fd: &OwnedFd,
    path: &Path,
    wanted: &Attributes,
    is_bare: bool,
    report: &mut AttributesReport,
) -> Result<()> {
    // A new file may have some already: a default ACL, a security label.
    let own = if is_bare { Ok(vec![]) } else { names(fd) };
    for name in own.map_err(|error| Error::io("list the extended attributes of", path, error))? {
        let is_wanted = wanted.xattrs.iter().any(|(kept, _)| *kept == name);
        if !is_wanted && let Err(error) = rustix::fs::fremovexattr(fd, &name) {
            report.lost.push((format!("absence of {}", name.display()), error.into()));
        }
    }
    for (name, wanted) in &wanted.xattrs {
        match rustix::fs::fsetxattr(fd, name, wanted, XattrFlags::empty()) {
            Ok(()) => {}
            // Also when only this inode's attributes are full: the copy would not be the file.
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                return Err(Error::io("set an extended attribute of", path, error));
            }
            Err(_) if value(fd, name).is_ok_and(|found| found == *wanted) => {}
            Err(error) => report.lost.push((name.display().to_string(), error.into())),
        }
    }
    Ok(())
}

/// The file has no extended attributes.
pub(super) fn is_bare(fd: &OwnedFd) -> bool {
    names(fd).is_ok_and(|names| names.is_empty())
}

/// Names of all extended attributes that are the file's; none where the file system has no such thing.
fn names(fd: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    let list = match grown(|buffer| rustix::fs::flistxattr(fd, buffer)) {
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(vec![]),
        list => list?,
    };
    let names = list.split(|&byte| byte == 0).filter(|name| !name.is_empty() && !is_of_the_place(name));
    Ok(names.map(|name| OsString::from_vec(name.to_vec())).collect())
}

fn value(fd: &OwnedFd, name: &OsStr) -> Result<Vec<u8>, Errno> {
    grown(|buffer| rustix::fs::fgetxattr(fd, name, buffer))
}

/// Calls with a buffer of the size that the call itself asks for; it may grow in between.
fn grown(mut call: impl FnMut(&mut Vec<u8>) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 256];
    loop {
        match call(&mut buffer) {
            Ok(len) => {
                buffer.truncate(len);
                return Ok(buffer);
            }
            Err(Errno::RANGE) => {
                let len = (buffer.len() * 4).min(1 << 20);
                if len == buffer.len() {
                    return Err(Errno::TOOBIG);
                }
                buffer.resize(len, 0);
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Labels that a system gives by itself; they describe where the file lies rather than the file.
fn is_of_the_place(name: &[u8]) -> bool {
    const PREFIXES: &[&[u8]] = &[b"security.selinux", b"lustre.", b"trusted.lov", b"trusted.lma", b"trusted.lin"];
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn timespec(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds as _ }
}
