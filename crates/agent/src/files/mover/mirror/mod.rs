//! A placed directory, copied into the root beside its place: `ROOT/.terrace/nodes/TAG/kept/NAME/d`.
//!
//!   a look, again and again ─▶ what is new, quiet and closed is copied, and synced ─▶ its line in `copied`
//!   the last look ─▶ all the rest: links, names, attributes; what was copied before is compared ─▶ (the caller exchanges it for the link)
//!
//! A look costs the durable tier nothing where nothing has changed. What it has copied survives the tier: `restore` takes what is whole of
//! it from its lines in `copied`.
//!
//! Invariant: after the last look the copy is what is there. A file's version (inode, size, times) may lie, for a write through a mapping
//! changes no time in tmpfs: so the last look compares contents, by a hash of what was copied.

mod copying;
mod list;
#[cfg(test)]
mod tests;

pub use copying::copy_one;
pub use list::restore;

use crate::files::mover::syncs::is_local;
use crate::shared::threads::in_threads;
use copying::{Copier, Done, copy_xattrs, give_owner, times, umask, with_rights};
use list::{Line, add_lines};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};
use terrace_tier::BandwidthCap;

/// The copy, in the mirror's own directory.
const TREE: &str = "d";
/// From so many files on, one sync of a local file system costs less than one a file.
const SYNCED_AT_ONCE: usize = 32;
const PERMISSIONS: u32 = 0o7777;

/// What a look is to do.
pub struct Look<'a> {
    /// Files that changed so lately are left for a later look; `None`: nobody works on them any more, and all is copied.
    pub settle: Option<Duration>,
    pub fsync: bool,
    pub threads: usize,
    pub cap: Option<&'a BandwidthCap>,
    /// Where the file of a link lies that only we made.
    pub spilled: &'a (dyn Fn(&Path) -> Option<PathBuf> + Sync),
    /// The text of a link that a program made.
    pub written: &'a (dyn Fn(&Path) -> io::Result<PathBuf> + Sync),
    /// False: it stops.
    pub goes_on: &'a (dyn Fn() -> bool + Sync),
}

impl Look<'_> {
    fn is_last(&self) -> bool {
        self.settle.is_none()
    }
}

/// What a look has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub files: u64,
    pub bytes: u64,
    /// Files that are not in the copy as they are here.
    pub files_left: u64,
    pub bytes_left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    dev: u64,
    ino: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Version {
    fn of(status: &Metadata) -> Version {
        Version {
            dev: status.dev(),
            ino: status.ino(),
            size: status.size(),
            mtime: (status.mtime(), status.mtime_nsec()),
            ctime: (status.ctime(), status.ctime_nsec()),
        }
    }

    /// As it was but for its name: a rename is a change of the inode.
    fn is_renamed(&self, other: &Version) -> bool {
        Version { ctime: other.ctime, ..*self } == *other
    }
}

/// A name in the copy, and what was there when it was made.
#[derive(Clone, Copy, Debug)]
enum Copied {
    File { version: Version, hash: u128 },
    Other { version: Version },
}

impl Copied {
    fn version(&self) -> &Version {
        match self {
            Copied::File { version, .. } | Copied::Other { version } => version,
        }
    }
}

/// A name in the directory.
struct Found {
    /// Where it lies: not below the directory, if it is spilled.
    path: PathBuf,
    status: Metadata,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    /// With one name.
    File,
    /// With several.
    Linked,
    /// Spilled into the root's own file system.
    InRoot,
    Link,
    Special,
}

pub struct Mirror {
    source: PathBuf,
    place: PathBuf,
    copied: BTreeMap<PathBuf, Copied>,
    directories: HashSet<PathBuf>,
    is_begun: bool,
    seen: Seen,
}

impl Mirror {
    /// Of the directory `source`, below `place`, which an earlier one may have left.
    pub fn new(source: PathBuf, place: PathBuf) -> Mirror {
        Mirror {
            source,
            place,
            copied: BTreeMap::new(),
            directories: HashSet::new(),
            is_begun: false,
            seen: Seen::default(),
        }
    }

    pub fn tree(&self) -> PathBuf {
        self.place.join(TREE)
    }

    /// As of the latest look.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    pub fn discard(&mut self) {
        remove(&self.place);
        self.copied.clear();
        self.directories.clear();
        self.is_begun = false;
    }

    fn begin(&mut self) -> io::Result<()> {
        if !self.is_begun {
            remove(&self.place);
            let above = self.place.parent().unwrap_or(&self.place);
            std::fs::create_dir_all(above)?;
            for directory in [&self.place, &self.tree()] {
                std::fs::create_dir(directory)?;
            }
            self.is_begun = true;
        }
        Ok(())
    }

    /// Brings the copy nearer to what is there. Err: something can't be copied; what could be is in the copy.
    pub fn look(&mut self, how: &Look) -> io::Result<Seen> {
        let found = self.walk(how)?;
        let is_file = |one: &&Found| matches!(one.kind, Kind::File | Kind::Linked | Kind::InRoot);
        let files = found.values().filter(is_file);
        let (count, bytes) = files.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.status.size()));
        let now = SystemTime::now();
        let mut jobs: Vec<(&Path, &Found)> = vec![];
        let (mut files_left, mut bytes_left) = (0, 0);
        for (relative, one) in found.iter().filter(|(_, one)| one.kind != Kind::Directory) {
            let copied = self.copied.get(relative);
            let is_copied = copied.is_some_and(|copied| *copied.version() == Version::of(&one.status));
            if is_copied && !(how.is_last() && one.kind == Kind::File) {
                continue;
            }
            let waits = how.settle.is_some_and(|settle| {
                !matches!(one.kind, Kind::File | Kind::Link) || !is_quiet(&one.status, now, settle)
            });
            match waits {
                true if is_file(&one) => (files_left, bytes_left) = (files_left + 1, bytes_left + one.status.size()),
                true => {}
                false => jobs.push((relative, one)),
            }
        }
        let is_gone = |relative: &PathBuf| !found.contains_key(relative);
        let has_gone = self.copied.keys().any(is_gone) || self.directories.iter().any(is_gone);
        if jobs.is_empty() && !has_gone && !how.is_last() {
            self.seen = Seen { files: count, bytes, files_left, bytes_left };
            return Ok(self.seen);
        }
        let brought = self.bring(&found, &jobs, how);
        // What it is like then is not known.
        let (left, failure) = brought.inspect_err(|_| self.discard())?;
        self.seen = Seen { files: count, bytes, files_left: files_left + left.0, bytes_left: bytes_left + left.1 };
        failure.map_or(Ok(self.seen), Err)
    }

    /// What was left (files, bytes), and why something could not be copied.
    fn bring(
        &mut self,
        found: &BTreeMap<PathBuf, Found>,
        jobs: &[(&Path, &Found)],
        how: &Look,
    ) -> io::Result<((u64, u64), Option<io::Error>)> {
        self.begin()?;
        self.make_directories(found, how)?;
        self.rename_and_remove(found)?;
        let is_synced_at_once = how.fsync && jobs.len() >= SYNCED_AT_ONCE && syncs_at_once(&self.place);
        let fsync = how.fsync && !is_synced_at_once;
        let (left, failure) = self.copy_all(jobs, how, fsync)?;
        if how.is_last() && failure.is_none() {
            self.link_all(jobs, found, how, fsync)?;
            self.finish(found, how, fsync)?;
            if is_synced_at_once {
                rustix::fs::syncfs(File::open(&self.place)?)?;
            }
        }
        Ok((left, failure))
    }

    /// What is there now is what was there at the last look. Else a name that differs.
    pub fn difference(&self, how: &Look) -> io::Result<Option<PathBuf>> {
        let found = self.walk(how)?;
        let is_new = |relative: &Path, one: &Found| match one.kind {
            Kind::Directory => !relative.as_os_str().is_empty() && !self.directories.contains(relative),
            // Its names elsewhere come and go: those in the copy, if it lies in the root, and those in other placed directories.
            Kind::InRoot | Kind::Linked => {
                let copied = self.copied.get(relative);
                copied.is_none_or(|copied| !copied.version().is_renamed(&Version::of(&one.status)))
            }
            _ => self.copied.get(relative).is_none_or(|copied| *copied.version() != Version::of(&one.status)),
        };
        let new = found.iter().find(|(relative, one)| is_new(relative, one)).map(|(relative, _)| relative);
        let gone = || self.copied.keys().chain(&self.directories).find(|relative| !found.contains_key(*relative));
        Ok(new.or_else(gone).cloned())
    }

    /// All names below the directory, and itself, by their relative paths: what is above comes before what is below.
    fn walk(&self, how: &Look) -> io::Result<BTreeMap<PathBuf, Found>> {
        let root = std::fs::metadata(self.place.parent().and_then(Path::parent).unwrap_or(&self.place))?.dev();
        let status = std::fs::symlink_metadata(&self.source)?;
        let mut found = BTreeMap::new();
        found.insert(PathBuf::new(), Found { path: self.source.clone(), status, kind: Kind::Directory });
        let mut pending = vec![PathBuf::new()];
        while let Some(above) = pending.pop() {
            let directory = self.source.join(&above);
            let entries = match with_rights(&directory, how.is_last(), || std::fs::read_dir(&directory)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && !how.is_last() => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let mut path = entry.path();
                let mut status = match std::fs::symlink_metadata(&path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    status => status?,
                };
                let mut is_in_root = false;
                if status.is_symlink()
                    && let Some(file) = (how.spilled)(&path)
                {
                    // Between its name and its file a program may be at work.
                    let Ok(of_file) = std::fs::symlink_metadata(&file) else { continue };
                    (path, status) = (file, of_file);
                    is_in_root = status.dev() == root;
                }
                let kind = match () {
                    _ if is_in_root => Kind::InRoot,
                    _ if status.is_dir() => Kind::Directory,
                    _ if status.is_symlink() => Kind::Link,
                    _ if !status.is_file() => Kind::Special,
                    _ if status.nlink() > 1 => Kind::Linked,
                    _ => Kind::File,
                };
                let relative = above.join(entry.file_name());
                if kind == Kind::Directory {
                    pending.push(relative.clone());
                }
                found.insert(relative, Found { path, status, kind });
            }
        }
        Ok(found)
    }

    fn make_directories(&mut self, found: &BTreeMap<PathBuf, Found>, how: &Look) -> io::Result<()> {
        let tree = self.tree();
        let is_new = |relative: &PathBuf| !relative.as_os_str().is_empty() && !self.directories.contains(relative);
        let new: Vec<&PathBuf> = found
            .iter()
            .filter(|(relative, one)| one.kind == Kind::Directory && is_new(relative))
            .map(|(path, _)| path)
            .collect();
        for relative in &new {
            if self.copied.remove(*relative).is_some() {
                std::fs::remove_file(tree.join(relative))?;
            }
        }
        for level in by_depth(&new, |relative| relative) {
            in_threads(how.threads, &level, |relative| std::fs::create_dir(tree.join(relative)))?;
        }
        self.directories.extend(new.into_iter().cloned());
        Ok(())
    }

    /// What has another name now gets it in the copy, and what has none goes.
    fn rename_and_remove(&mut self, found: &BTreeMap<PathBuf, Found>) -> io::Result<()> {
        let tree = self.tree();
        // A file that another one has replaced stays until that is copied.
        let is_there = |relative: &PathBuf, copied: &Copied| {
            let is_file = matches!(copied, Copied::File { .. });
            let is_same_kind = |kind: Kind| kind != Kind::Directory && is_file == (kind == Kind::File);
            found.get(relative).is_some_and(|one| is_same_kind(one.kind))
        };
        let gone: Vec<PathBuf> = self
            .copied
            .iter()
            .filter(|(relative, copied)| !is_there(relative, copied))
            .map(|(path, _)| path.clone())
            .collect();
        if !gone.is_empty() {
            let is_new = |relative: &PathBuf| !self.copied.contains_key(relative);
            let names: HashMap<u64, &PathBuf> = found
                .iter()
                .filter(|(relative, one)| one.kind == Kind::File && is_new(relative))
                .map(|(relative, one)| (one.status.ino(), relative))
                .collect();
            for relative in &gone {
                let copied = self.copied.remove(relative).expect("it is listed");
                let Copied::File { version, hash } = copied else {
                    std::fs::remove_file(tree.join(relative))?;
                    continue;
                };
                let renamed =
                    names.get(&version.ino).filter(|name| version.is_renamed(&Version::of(&found[**name].status)));
                match renamed {
                    Some(name) => {
                        std::fs::rename(tree.join(relative), tree.join(name))?;
                        let version = Version::of(&found[*name].status);
                        self.copied.insert((*name).clone(), Copied::File { version, hash });
                    }
                    None => std::fs::remove_file(tree.join(relative))?,
                }
            }
        }
        let is_directory = |relative: &&PathBuf| found.get(*relative).is_some_and(|one| one.kind == Kind::Directory);
        let mut gone: Vec<PathBuf> =
            self.directories.iter().filter(|relative| !is_directory(relative)).cloned().collect();
        // The deepest first.
        gone.sort_unstable_by(|one, other| other.cmp(one));
        for relative in gone {
            std::fs::remove_dir(tree.join(&relative))?;
            self.directories.remove(&relative);
        }
        Ok(())
    }

    /// Copies by several threads. What was left (files, bytes), and what went wrong first.
    fn copy_all(
        &mut self,
        jobs: &[(&Path, &Found)],
        how: &Look,
        fsync: bool,
    ) -> io::Result<((u64, u64), Option<io::Error>)> {
        let own: Vec<(usize, &(&Path, &Found))> =
            jobs.iter().filter(|(_, one)| !matches!(one.kind, Kind::Linked | Kind::InRoot)).enumerate().collect();
        let copier = Copier { how, mirror: self, umask: umask(), fsync };
        let done: Mutex<Vec<(usize, io::Result<Done>)>> = Mutex::new(vec![]);
        in_threads(how.threads, &own, |(at, (relative, one))| {
            let result = match (how.goes_on)() {
                true => copier.copy(*at, relative, one),
                false => Err(io::Error::from(io::ErrorKind::Interrupted)),
            };
            done.lock().unwrap().push((*at, result));
            Ok(())
        })?;
        let tree = self.tree();
        let (mut left, mut failure) = ((0, 0), None);
        let (mut lines, mut replaced) = (vec![], vec![]);
        for (at, result) in done.into_inner().unwrap() {
            let (relative, one) = own[at].1;
            if !matches!(result, Ok(Done::Copied(..))) {
                left = (left.0 + 1, left.1 + one.status.size());
            }
            match result {
                Ok(Done::Copied(copied, beside)) => {
                    if let Copied::File { version, .. } = copied {
                        lines.push(Line { path: relative.to_path_buf(), size: version.size, mtime: version.mtime });
                    }
                    replaced.extend(beside.map(|beside| (beside, tree.join(relative))));
                    self.copied.insert(relative.to_path_buf(), copied);
                }
                Ok(Done::Left) => {}
                Err(error) => {
                    failure.get_or_insert(in_file(&one.path, error));
                }
            }
        }
        if !how.is_last() && !lines.is_empty() {
            if how.fsync && !fsync {
                rustix::fs::syncfs(File::open(&tree)?)?;
            }
            add_lines(&self.place, &lines, how.fsync)?;
        }
        // Each of the two is whole by its own line.
        for (beside, to) in replaced {
            std::fs::rename(beside, to)?;
        }
        Ok((left, failure))
    }

    /// Files with several names, and those that lie in the root already.
    fn link_all(
        &mut self,
        jobs: &[(&Path, &Found)],
        found: &BTreeMap<PathBuf, Found>,
        how: &Look,
        fsync: bool,
    ) -> io::Result<()> {
        let tree = self.tree();
        let inode = |one: &Found| (one.status.dev(), one.status.ino());
        let is_linked = |relative: &PathBuf, one: &Found| {
            let copied = self.copied.get(relative);
            one.kind == Kind::Linked && copied.is_some_and(|copied| *copied.version() == Version::of(&one.status))
        };
        let mut first: HashMap<(u64, u64), PathBuf> = found
            .iter()
            .filter(|(relative, one)| is_linked(relative, one))
            .map(|(relative, one)| (inode(one), tree.join(relative)))
            .collect();
        for (relative, one) in jobs.iter().filter(|(_, one)| matches!(one.kind, Kind::Linked | Kind::InRoot)) {
            let to = tree.join(relative);
            if self.copied.remove(*relative).is_some() {
                std::fs::remove_file(&to)?;
            }
            let mut version = Version::of(&one.status);
            if one.kind == Kind::InRoot {
                std::fs::hard_link(&one.path, &to)?;
                version = Version::of(&std::fs::symlink_metadata(&one.path)?);
                if fsync {
                    File::open(&to)?.sync_all()?;
                }
            } else if let Some(name) = first.get(&inode(one)) {
                std::fs::hard_link(name, &to)?;
            } else {
                let copier = Copier { how, mirror: self, umask: umask(), fsync };
                let copied = copier.copy_file(0, relative, one).map_err(|error| in_file(&one.path, error))?;
                if let Done::Copied(copied, _) = copied {
                    version = *copied.version();
                }
                first.insert(inode(one), to);
            }
            self.copied.insert(relative.to_path_buf(), Copied::Other { version });
        }
        Ok(())
    }

    /// Directories get their attributes, the deepest first: their times are those from before we wrote into them.
    fn finish(&self, found: &BTreeMap<PathBuf, Found>, how: &Look, fsync: bool) -> io::Result<()> {
        let tree = self.tree();
        let directories: Vec<(&PathBuf, &Found)> =
            found.iter().filter(|(_, one)| one.kind == Kind::Directory).collect();
        let put = |(relative, one): &(&PathBuf, &Found)| {
            let place = if relative.as_os_str().is_empty() { tree.clone() } else { tree.join(relative) };
            let directory = File::open(&place)?;
            let own = directory.metadata()?;
            give_owner(&own, &one.status, |uid, gid| std::os::unix::fs::fchown(&directory, uid, gid))?;
            if let Ok(source) = File::open(&one.path) {
                copy_xattrs(&source, &directory);
            }
            if (own.mode() ^ one.status.mode()) & PERMISSIONS != 0 {
                directory.set_permissions(std::fs::Permissions::from_mode(one.status.mode() & PERMISSIONS))?;
            }
            rustix::fs::futimens(&directory, &times(&one.status))?;
            if fsync { directory.sync_all() } else { Ok(()) }
        };
        by_depth(&directories, |(relative, _)| relative)
            .iter()
            .rev()
            .try_for_each(|level| in_threads(how.threads, level, put))
    }
}

/// Nobody has changed it lately; a time to come says nothing.
fn is_quiet(status: &Metadata, now: SystemTime, settle: Duration) -> bool {
    let changed = Duration::new(status.ctime().max(0) as u64, status.ctime_nsec() as u32);
    now.duration_since(SystemTime::UNIX_EPOCH + changed).map_or(true, |age| age >= settle)
}

/// One sync of the whole file system is a sync of these files: not so where a server of its own has them (FUSE).
fn syncs_at_once(place: &Path) -> bool {
    rustix::fs::statfs(place).is_ok_and(|found| is_local(&found))
}

fn in_file(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn remove(place: &Path) {
    let _ = std::fs::remove_dir_all(place);
}

/// Those with equally many names above them together, the highest first.
fn by_depth<T: Clone>(all: &[T], path: impl Fn(&T) -> &PathBuf) -> Vec<Vec<T>> {
    let mut levels: BTreeMap<usize, Vec<T>> = BTreeMap::new();
    for one in all {
        levels.entry(path(one).components().count()).or_default().push(one.clone());
    }
    levels.into_values().collect()
}
