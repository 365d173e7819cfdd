//! A placed directory, copied into the root beside its place: `ROOT/.terrace/nodes/TAG/tmp/NAME`.
//!
//!   files, links, directories ─▶ attributes ─▶ syncs, all together ─▶ (the caller exchanges it for the link)
//!
//! Invariant: what was copied is what is there: a file that changed meanwhile, or that a program has open for writing, makes the whole
//! copy fail, and the caller tries again later.

use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use terrace_tier::Lease;

struct Copied {
    from: PathBuf,
    before: std::fs::Metadata,
    /// Until all is copied, nobody opens it for writing unseen.
    lease: Option<Lease>,
}

/// Copies a tree; the files in it, and their bytes.
/// `spilled`: where the file of a link lies that only we made. `written`: the text of one that a program made.
pub fn copy_tree(
    from: &Path,
    to: &Path,
    sync: bool,
    spilled: &dyn Fn(&Path) -> Option<PathBuf>,
    written: &dyn Fn(&Path) -> io::Result<PathBuf>,
) -> io::Result<(u64, u64)> {
    let own = std::fs::metadata(to.parent().unwrap_or(to))?;
    let mut links: HashMap<(u64, u64), PathBuf> = HashMap::new();
    let mut copied: Vec<Copied> = vec![];
    let mut directories: Vec<(PathBuf, std::fs::Metadata)> = vec![];
    let mut files: Vec<File> = vec![];
    let mut pending = vec![(from.to_owned(), to.to_owned())];
    let mut bytes = 0;
    while let Some((source, target)) = pending.pop() {
        let found = std::fs::symlink_metadata(&source)?;
        std::fs::create_dir(&target)?;
        for entry in std::fs::read_dir(&source)? {
            let entry = entry?;
            let (mut one, other) = (entry.path(), target.join(entry.file_name()));
            let mut status = entry.metadata()?;
            if status.is_dir() {
                pending.push((one, other));
                continue;
            }
            if status.is_symlink()
                && let Some(file) = spilled(&one)
            {
                status = std::fs::symlink_metadata(&file)?;
                one = file;
            }
            // A file of the root that is spilled from here may have names there: it stays that file.
            if one.parent() != Some(&*source) && status.dev() == own.dev() {
                std::fs::hard_link(&one, &other)?;
                files.extend(File::open(&other).ok());
                continue;
            }
            if status.nlink() > 1 {
                let name = (status.dev(), status.ino());
                if let Some(first) = links.get(&name) {
                    std::fs::hard_link(first, &other)?;
                    continue;
                }
                links.insert(name, other.clone());
            }
            if status.is_file() {
                let (file, lease) = copy_file(&one, &other)?;
                attributes(&other, &status)?;
                bytes += status.len();
                files.push(file);
                copied.push(Copied { from: one, before: status, lease: Some(lease) });
            } else {
                match status.is_symlink() {
                    true => std::os::unix::fs::symlink(written(&one)?, &other)?,
                    false => make_special(&other, &status)?,
                }
                attributes(&other, &status)?;
                copied.push(Copied { from: one, before: status, lease: None });
            }
        }
        directories.push((target, found));
    }
    // The deepest first: a directory's times are those from before we wrote into it.
    for (target, found) in directories.iter().rev() {
        attributes(target, found)?;
    }
    if sync {
        files.iter().try_for_each(File::sync_all)?;
        directories.iter().try_for_each(|(target, _)| File::open(target)?.sync_all())?;
    }
    for file in &copied {
        let now = std::fs::symlink_metadata(&file.from)?;
        let version =
            |of: &std::fs::Metadata| (of.ino(), of.size(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec());
        let is_held = file.lease.as_ref().is_none_or(|lease| !lease.is_broken());
        if version(&now) != version(&file.before) || !is_held {
            return Err(io::Error::other(format!("{} changed while it was copied", file.from.display())));
        }
    }
    Ok((files.len() as u64, bytes))
}

fn copy_file(from: &Path, to: &Path) -> io::Result<(File, Lease)> {
    let mut source = File::open(from)?;
    let lease = match Lease::read(source.as_fd()) {
        Ok(Some(lease)) => lease,
        Ok(None) => return Err(io::Error::other(format!("{} is open for writing", from.display()))),
        Err(error) => return Err(io::Error::from_raw_os_error(error.errno())),
    };
    Ok((copy_contents(&mut source, to)?, lease))
}

fn copy_contents(source: &mut File, to: &Path) -> io::Result<File> {
    let mut target = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(source, &mut target)?;
    let mut names = vec![0; 64 << 10];
    if let Ok(count) = rustix::fs::flistxattr(&*source, &mut names[..]) {
        for name in names[..count].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 64 << 10];
            let Ok(len) = rustix::fs::fgetxattr(&*source, name, &mut value[..]) else { continue };
            let _ = rustix::fs::fsetxattr(&target, name, &value[..len], rustix::fs::XattrFlags::empty());
        }
    }
    Ok(target)
}

/// One open file, with its attributes.
pub fn copy_one(source: &mut File, to: &Path) -> io::Result<()> {
    copy_contents(source, to)?;
    attributes(to, &source.metadata()?)
}

fn make_special(to: &Path, status: &std::fs::Metadata) -> io::Result<()> {
    let kind = FileType::from_raw_mode(status.mode());
    Ok(rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(status.mode() & 0o7777), status.rdev())?)
}

/// Owner (where we may), mode and times, of the name itself.
fn attributes(to: &Path, status: &std::fs::Metadata) -> io::Result<()> {
    let own = std::fs::symlink_metadata(to)?;
    if (own.uid(), own.gid()) != (status.uid(), status.gid()) {
        std::os::unix::fs::lchown(to, Some(status.uid()), Some(status.gid()))?;
    }
    if !status.file_type().is_symlink() {
        rustix::fs::chmod(to, Mode::from_raw_mode(status.mode() & 0o7777))?;
    }
    let time = |tv_sec, tv_nsec: i64| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(status.atime(), status.atime_nsec()),
        last_modification: time(status.mtime(), status.mtime_nsec()),
    };
    Ok(rustix::fs::utimensat(CWD, to, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}
