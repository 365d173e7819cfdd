//! One name of a mirror: a file's bytes and attributes, a link, a special file.
//!
//! Invariant: a file is in the copy as it was at one moment: nobody had it open for writing, and its version is the same afterwards.

use super::{Copied, Found, Kind, Look, Mirror, PERMISSIONS, Version};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Timespec, Timestamps};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use terrace_tier::{Lease, past_leases, with_buffer};
use twox_hash::XxHash3_128;

/// What became of a file that was to be copied.
pub enum Done {
    /// It is in its place, or beside it where an older version is.
    Copied(Copied, Option<PathBuf>),
    /// Somebody has it open for writing, or it changes; a later look will copy it.
    Left,
}

pub struct Copier<'a> {
    pub how: &'a Look<'a>,
    pub mirror: &'a Mirror,
    pub umask: u32,
    pub fsync: bool,
}

impl Copier<'_> {
    pub fn copy(&self, job: usize, relative: &Path, one: &Found) -> io::Result<Done> {
        if one.kind == Kind::File {
            return self.copy_file(job, relative, one);
        }
        let to = self.mirror.tree().join(relative);
        if self.mirror.copied.contains_key(relative) {
            std::fs::remove_file(&to)?;
        }
        let made = self.make(one, &to);
        if made.is_err() {
            let _ = std::fs::remove_file(&to);
        }
        made.map(|()| Done::Copied(Copied::Other { version: Version::of(&one.status) }, None))
    }

    /// A link, or a special file.
    fn make(&self, one: &Found, to: &Path) -> io::Result<()> {
        match one.kind {
            Kind::Link => std::os::unix::fs::symlink((self.how.written)(&one.path)?, to)?,
            _ => {
                let (kind, mode) = (FileType::from_raw_mode(one.status.mode()), one.status.mode() & PERMISSIONS);
                rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(mode), one.status.rdev())?;
            }
        }
        let own = std::fs::symlink_metadata(to)?;
        give_owner(&own, &one.status, |uid, gid| std::os::unix::fs::lchown(to, uid, gid))?;
        if one.kind == Kind::Special && (own.mode() ^ one.status.mode()) & PERMISSIONS != 0 {
            std::fs::set_permissions(to, std::fs::Permissions::from_mode(one.status.mode() & PERMISSIONS))?;
        }
        Ok(rustix::fs::utimensat(CWD, to, &times(&one.status), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    pub fn copy_file(&self, job: usize, relative: &Path, one: &Found) -> io::Result<Done> {
        let is_last = self.how.is_last();
        let left = |why: &'static str| if is_last { Err(io::Error::other(why)) } else { Ok(Done::Left) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || Ok(File::from(past_leases(|| rustix::fs::open(&one.path, flags, Mode::empty()))?));
        let source = match with_rights(&one.path, is_last, open) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return left("it has gone"),
            source => source?,
        };
        let lease = match Lease::read(source.as_fd()) {
            Ok(Some(lease)) => Some(lease),
            Ok(None) => return left("it is open for writing"),
            Err(error) if Lease::is_unsupported(&error) => None,
            Err(error) => return Err(io::Error::from_raw_os_error(error.errno())),
        };
        // A right that was taken for it has changed the inode's time.
        let said = Version::of(&one.status);
        let version = Version::of(&source.metadata()?);
        if !said.is_renamed(&version) {
            return left("it has changed");
        }
        let before = self.mirror.copied.get(relative);
        if let Some(&Copied::File { version: as_copied, hash }) = before
            && as_copied == said
            && self.hash(&source)? == hash
        {
            return Ok(Done::Copied(Copied::File { version, hash }, None));
        }
        let beside = before.map(|_| self.mirror.place.join(format!("new-{job}")));
        let to = beside.clone().unwrap_or_else(|| self.mirror.tree().join(relative));
        let is_still = || lease.as_ref().is_none_or(|lease| !lease.is_broken());
        let copied = self.contents(&source, &to, &one.status, &is_still);
        let is_as = |now: Version| now == version || one.kind == Kind::Linked && version.is_renamed(&now);
        let is_same = || source.metadata().is_ok_and(|now| is_as(Version::of(&now))) && is_still();
        match copied.map(|hash| hash.filter(|_| is_same())) {
            Ok(Some(hash)) => Ok(Done::Copied(Copied::File { version, hash }, beside)),
            not_copied => {
                let _ = std::fs::remove_file(&to);
                not_copied.and_then(|_| left("it changed while it was copied"))
            }
        }
    }

    /// The file's hash; `None`: somebody wants to write it.
    fn contents(
        &self,
        mut source: &File,
        to: &Path,
        status: &Metadata,
        is_still: &dyn Fn() -> bool,
    ) -> io::Result<Option<u128>> {
        let mode = status.mode() & PERMISSIONS;
        let mut target = File::options().write(true).create_new(true).mode(mode & 0o777).open(to)?;
        let own = target.metadata()?;
        let mut hash = XxHash3_128::new();
        let gives_up = || !(self.how.goes_on)() || !is_still();
        let is_whole = with_buffer(|buffer| -> io::Result<bool> {
            loop {
                let count = source.read(buffer)?;
                if count == 0 {
                    return Ok(true);
                }
                if gives_up() || self.how.cap.is_some_and(|cap| !cap.take(count as u64, gives_up)) {
                    return if is_still() { Err(io::ErrorKind::Interrupted.into()) } else { Ok(false) };
                }
                hash.write(&buffer[..count]);
                target.write_all(&buffer[..count])?;
            }
        })??;
        if !is_whole {
            return Ok(None);
        }
        copy_xattrs(source, &target);
        give_owner(&own, status, |uid, gid| std::os::unix::fs::fchown(&target, uid, gid))?;
        if mode & self.umask != 0 || mode & !0o777 != 0 {
            target.set_permissions(std::fs::Permissions::from_mode(mode))?;
        }
        rustix::fs::futimens(&target, &times(status))?;
        if self.fsync {
            target.sync_all()?;
        }
        Ok(Some(hash.finish_128()))
    }

    fn hash(&self, mut source: &File) -> io::Result<u128> {
        let mut hash = XxHash3_128::new();
        with_buffer(|buffer| -> io::Result<()> {
            loop {
                match source.read(buffer)? {
                    0 => return Ok(()),
                    count => hash.write(&buffer[..count]),
                }
            }
        })??;
        source.rewind()?;
        Ok(hash.finish_128())
    }
}

/// One open file, with its attributes.
pub fn copy_one(source: &mut File, to: &Path) -> io::Result<()> {
    let status = source.metadata()?;
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(source, &mut target)?;
    copy_xattrs(source, &target);
    let own = target.metadata()?;
    give_owner(&own, &status, |uid, gid| std::os::unix::fs::fchown(&target, uid, gid))?;
    target.set_permissions(std::fs::Permissions::from_mode(status.mode() & PERMISSIONS))?;
    Ok(rustix::fs::futimens(&target, &times(&status))?)
}

/// Another's file becomes ours where we are not root: its bytes are what must not be lost.
pub fn give_owner(
    own: &Metadata,
    wanted: &Metadata,
    give: impl FnOnce(Option<u32>, Option<u32>) -> io::Result<()>,
) -> io::Result<()> {
    if (own.uid(), own.gid()) == (wanted.uid(), wanted.gid()) {
        return Ok(());
    }
    match give(Some(wanted.uid()), Some(wanted.gid())) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        given => given,
    }
}

pub fn copy_xattrs(source: &File, target: &File) {
    let mut names = vec![0; 64 << 10];
    let Ok(count) = rustix::fs::flistxattr(source, &mut names[..]) else { return };
    for name in names[..count].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let Ok(len) = rustix::fs::fgetxattr(source, name, &mut value[..]) else { continue };
        let _ = rustix::fs::fsetxattr(target, name, &value[..len], rustix::fs::XattrFlags::empty());
    }
}

pub fn times(status: &Metadata) -> Timestamps {
    let time = |tv_sec, tv_nsec: i64| Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: time(status.atime(), status.atime_nsec()),
        last_modification: time(status.mtime(), status.mtime_nsec()),
    }
}

/// Also where a program took its own right to read it, if `is_last`: it gets the mode back.
pub fn with_rights<T>(path: &Path, is_last: bool, open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match open() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && is_last => {
            let mode = std::fs::symlink_metadata(path)?.permissions();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
            let opened = open();
            std::fs::set_permissions(path, mode)?;
            opened
        }
        opened => opened,
    }
}

pub fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let text = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    // Where it can't be known each file is given its mode.
    text.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o777)
}
