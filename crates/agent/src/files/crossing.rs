//! Over the edge of a placed directory: renames from it into the root, and back.
//!
//!   file out   its inode gets an object's name as well ─▶ link in the root ─▶ its name in the directory goes
//!              over another file: the link is made in our own directory, the two exchange their names, and the other one goes
//!   file in    the object gets the name in the directory ─▶ the link in the root goes; a real file is copied before
//!   directory out   a container and a link of its own; at the end of the run it becomes durable, if policy keeps what is in it
//!   directory in    a copy of it gets the name in the directory ─▶ it leaves its name in the root ─▶ was somebody in it? then all goes back
//!   symbolic link   made anew, then the old one goes
//!   another name    the file becomes one of the root (spilled there), which both names lead to
//!
//! Invariant: a file always has a name; who is killed in between leaves it with two. What would take a long copy, or could not be one
//! step for those who look on, is refused (EXDEV), as between two file systems: programs then copy.

use crate::files::Files;
use crate::files::directories::{CONTAINER_MODE, used_places};
use crate::files::mover::mirror::{Look, Mirror};
use crate::shared::index_file::{object_name, random_half};
use crate::shared::path::{as_path, read_link};
use rustix::fs::{AtFlags, CWD, FileType, RenameFlags};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use terrace_index::climbing::{MARK, stored};
use terrace_index::guard::Domain;
use terrace_index::{FLAG_UNLINKED, State};
use terrace_tier::{Lease, Step, reached};

const PATIENCE: Duration = Duration::from_secs(1);
/// A larger file is not copied while its program waits for a rename.
const COPIED_MAX: u64 = 64 << 20;
/// Nor a directory with more names in it.
const COPIED_NAMES_MAX: usize = 10_000;

/// What a file that comes out of a placed directory finds at its new name, with its inode number.
enum Replaced {
    Nothing,
    /// A file or a link that no record is about.
    Plain {
        ino: u64,
    },
    /// A link of ours, the only one to its object.
    Object {
        ino: u64,
        number: u32,
    },
    /// A real file, with a replica or not.
    Durable {
        ino: u64,
        number: u32,
    },
}

impl Files {
    /// What lies at `from` goes to `to`: one of them in a placed directory, and the other not. Err: an errno for rename(2).
    pub fn cross(&self, from: &[u8], to: &[u8]) -> Result<(), i32> {
        match (self.index.inside(from), self.relative(to)) {
            (Some((directory, _)), Some(_)) => self.leave_directory(directory, from, to),
            (None, None) => match (self.relative(from), self.index.inside(to)) {
                (Some(_), Some((directory, _))) => self.enter_directory(directory, from, to),
                _ => Err(libc::EXDEV),
            },
            _ => Err(libc::EXDEV),
        }
    }

    /// From a placed directory to a name in the root.
    fn leave_directory(&self, directory: u32, from: &[u8], to: &[u8]) -> Result<(), i32> {
        let found = rustix::fs::lstat(as_path(from)).map_err(|error| error.raw_os_error())?;
        let kind = FileType::from_raw_mode(found.st_mode);
        match kind {
            FileType::RegularFile if found.st_nlink == 1 => self.file_leaves(directory, from, to, found.st_ino),
            FileType::Directory => self.directory_leaves(directory, from, to),
            FileType::Symlink => self.link_leaves(from, to),
            _ => Err(libc::EXDEV),
        }
    }

    /// The file gets an object's name, the root a link to that; then it loses its name in the directory. It is never without one.
    fn file_leaves(&self, directory: u32, from: &[u8], to: &[u8], ino: u64) -> Result<(), i32> {
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        let replaced = self.replaced(to)?;
        let number = self.index.take_record().ok_or(libc::EXDEV)?;
        let record = self.record(number);
        record.random.store(random_half(), Release);
        record.device.store(self.device_of(directory) as u32, Release);
        record.object_ino.store(ino, Release);
        record.flags.fetch_or(terrace_index::FLAG_MAPPED, SeqCst);
        let object = self.object_path(number);
        let undo = |errno: i32| {
            let _ = std::fs::remove_file(&object);
            self.index.table_remove(self.object_key(number), number);
            self.index.free_record(number);
            errno
        };
        rustix::fs::linkat(CWD, as_path(from), CWD, &object, AtFlags::empty()).map_err(raw).map_err(undo)?;
        self.index.table_put(self.object_key(number), number);
        record.set_state(State::Current);
        self.link_takes(&object, to, &replaced).map_err(undo)?;
        let _ = std::fs::remove_file(as_path(from));
        self.named(number, to);
        self.written(number);
        Ok(())
    }

    /// In a sticky directory the kernel asks whose file it is, and would ask us instead of the program. A file without a record of
    /// ours may have another node's.
    fn may_replace(&self, to: &[u8]) -> bool {
        let parent = as_path(to).parent().map(rustix::fs::stat);
        let is_sticky = !matches!(parent, Some(Ok(found)) if found.st_mode & libc::S_ISVTX == 0);
        !is_sticky && self.index.header.others.load(Acquire) == 0
    }

    /// What has this name, and can be replaced by a link of ours in one step. Err: an errno.
    fn replaced(&self, to: &[u8]) -> Result<Replaced, i32> {
        let there = match rustix::fs::lstat(as_path(to)) {
            Ok(there) => there,
            Err(rustix::io::Errno::NOENT) => return Ok(Replaced::Nothing),
            Err(error) => return Err(error.raw_os_error()),
        };
        let (ino, is_single) = (there.st_ino, there.st_nlink == 1);
        let (number, is_object) = match FileType::from_raw_mode(there.st_mode) {
            FileType::Directory => return Err(libc::EISDIR),
            FileType::RegularFile => (self.index.record_of_root_ino(ino), false),
            FileType::Symlink => {
                let text = read_link(to).ok_or(libc::EXDEV)?;
                let number = self.index.record_of_link(&text);
                if number.is_none() && (self.index.is_elsewhere(&text) || self.spilled_at(as_path(to)).is_some()) {
                    return Err(libc::EXDEV);
                }
                (number, true)
            }
            _ => return Err(libc::EXDEV),
        };
        match number {
            _ if !self.may_replace(to) => Err(libc::EXDEV),
            None => Ok(Replaced::Plain { ino }),
            // With another name it stays, and what is known of its names would be wrong.
            Some(_) if !is_single => Err(libc::EXDEV),
            Some(number) if is_object => Ok(Replaced::Object { ino, number }),
            Some(number) => Ok(Replaced::Durable { ino, number }),
        }
    }

    /// A link with this text gets a name, in one step. What was there is gone as if it had been removed.
    fn link_takes(&self, text: &Path, to: &[u8], replaced: &Replaced) -> Result<(), i32> {
        let ino = match *replaced {
            Replaced::Nothing => {
                return rustix::fs::symlink(text, as_path(to)).map_err(|error| error.raw_os_error());
            }
            Replaced::Plain { ino } => return self.link_replaces(text, to, ino),
            Replaced::Object { ino, .. } | Replaced::Durable { ino, .. } => ino,
        };
        let (&Replaced::Object { number, .. } | &Replaced::Durable { number, .. }) = replaced else { unreachable!() };
        let _claim = self.claims.take(number, PATIENCE).ok_or(libc::EXDEV)?;
        let record = self.record(number);
        if let Replaced::Durable { .. } = replaced {
            // Neither its commit nor its eviction is under way.
            let is_durable = matches!(record.state(), State::Clean | State::Durable) && self.is_of_durable(number, ino);
            if !is_durable {
                return Err(libc::EXDEV);
            }
            self.link_replaces(text, to, ino)?;
            record.flags.fetch_or(FLAG_UNLINKED, SeqCst);
        } else {
            if !record.change_state(State::Current, State::Committing) {
                return Err(libc::EXDEV);
            }
            // Nobody is about to use the name as it was.
            let put = match self.synchronize(Domain::Names) && self.links_to(to, number) {
                true => self.link_replaces(text, to, ino),
                false => Err(libc::EXDEV),
            };
            if let Err(errno) = put {
                record.set_state(State::Current);
                return Err(errno);
            }
            record.set_state(State::Dead);
            let _ = self.remove_object(number);
            self.unreserve(number);
        }
        self.removed(number);
        Ok(())
    }

    /// A link takes the name of what has this inode number, in one step.
    fn link_replaces(&self, text: &Path, to: &[u8], ino: u64) -> Result<(), i32> {
        let beside = self.tmp_dir().join(object_name(terrace_index::RECORDS as u32 - 1, random_half()));
        let exchange = || {
            let exchanged = rustix::fs::renameat_with(CWD, &beside, CWD, as_path(to), RenameFlags::EXCHANGE);
            exchanged.map_err(|error| error.raw_os_error())
        };
        let Some(_barrier) = self.commit_barrier() else { return Err(libc::EXDEV) };
        rustix::fs::symlink(text, &beside).map_err(|error| error.raw_os_error())?;
        if let Err(errno) = exchange() {
            let _ = std::fs::remove_file(&beside);
            // Removed meanwhile, or the root's file system exchanges no names: the program copies.
            return Err(if matches!(errno, libc::EACCES | libc::EPERM) { errno } else { libc::EXDEV });
        }
        if !rustix::fs::lstat(&beside).is_ok_and(|found| found.st_ino == ino) {
            // A program was faster, and what has the name is not ours to take away.
            exchange()?;
            let _ = std::fs::remove_file(&beside);
            return Err(libc::EXDEV);
        }
        self.index.header.removals_seq.fetch_add(1, SeqCst);
        let _ = std::fs::remove_file(&beside);
        Ok(())
    }

    /// A directory inside of a placed one becomes one by itself.
    fn directory_leaves(&self, directory: u32, from: &[u8], to: &[u8]) -> Result<(), i32> {
        let number = self.index.take_record().ok_or(libc::EXDEV)?;
        let record = self.record(number);
        record.random.store(random_half(), Release);
        record.device.store(self.device_of(directory) as u32, Release);
        let (container, contents) = (self.container(number), self.object_path_of_directory(number));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&container);
        let linked =
            made.map_err(|_| libc::EXDEV).and_then(|()| rustix::fs::symlink(&contents, as_path(to)).map_err(taken));
        let moved = linked.and_then(|()| {
            rustix::fs::rename(as_path(from), &contents).map_err(|error| {
                let _ = std::fs::remove_file(as_path(to));
                error.raw_os_error()
            })
        });
        if let Err(errno) = moved {
            let _ = std::fs::remove_dir(&container);
            self.index.free_record(number);
            return Err(errno);
        }
        self.adopt_directory(number);
        let _ = std::fs::set_permissions(&container, std::fs::Permissions::from_mode(CONTAINER_MODE));
        self.index.header.directories.fetch_add(1, SeqCst);
        self.named(number, to);
        Ok(())
    }

    /// A link that a program made gets the program's text.
    fn link_leaves(&self, from: &[u8], to: &[u8]) -> Result<(), i32> {
        if self.spilled_at(as_path(from)).is_some() {
            return Err(libc::EXDEV);
        }
        let text = self.written_in(as_path(from)).map_err(|_| libc::EXDEV)?;
        self.link_takes(&text, to, &self.replaced(to)?)?;
        let _ = std::fs::remove_file(as_path(from));
        Ok(())
    }

    /// The text of a link in this directory of a placed one, so that it leads where a program wants it to.
    fn stored_in(&self, directory: &[u8], text: &[u8]) -> Result<Vec<u8>, i32> {
        let shown = self.shown(directory).ok_or(libc::EXDEV)?;
        let (_, rest) = self.index.inside(directory).ok_or(libc::EXDEV)?;
        let below = rest.iter().filter(|&&byte| byte == b'/').count();
        Ok(match stored(&shown, below, text) {
            Some((base, rest)) => [base, MARK, rest].concat(),
            None => text.to_vec(),
        })
    }

    /// A link that a program made gets a text that leads right from there.
    fn link_enters(&self, text: &[u8], directory: u32, from: &[u8], to: &[u8]) -> Result<(), i32> {
        let unnamed = self.unnamed_in(directory);
        let directory = as_path(to).parent().ok_or(libc::EXDEV)?.as_os_str().as_bytes();
        let stored = self.stored_in(directory, text)?;
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        rustix::fs::symlink(as_path(&stored), &unnamed).map_err(raw)?;
        rustix::fs::rename(&unnamed, as_path(to)).map_err(raw).inspect_err(|_| drop(std::fs::remove_file(&unnamed)))?;
        let _ = std::fs::remove_file(as_path(from));
        Ok(())
    }

    /// A name in the directory's tier for what has none yet.
    fn unnamed_in(&self, directory: u32) -> PathBuf {
        let name = object_name(terrace_index::RECORDS as u32 - 1, random_half());
        self.devices[self.device_of(directory)].dir.join(name)
    }

    /// From a name in the root into a placed directory.
    fn enter_directory(&self, directory: u32, from: &[u8], to: &[u8]) -> Result<(), i32> {
        let found = rustix::fs::lstat(as_path(from)).map_err(|error| error.raw_os_error())?;
        let kind = FileType::from_raw_mode(found.st_mode);
        if kind == FileType::Symlink {
            let text = read_link(from).ok_or(libc::EXDEV)?;
            return match self.index.record_of_link(&text) {
                Some(number) => self.object_enters(number, directory, from, to),
                None if self.index.is_elsewhere(&text) || self.spilled_at(as_path(from)).is_some() => Err(libc::EXDEV),
                None => self.link_enters(&text, directory, from, to),
            };
        }
        if kind == FileType::Directory {
            return self.directory_enters(directory, from, to);
        }
        let is_plain = kind == FileType::RegularFile && found.st_nlink == 1 && found.st_size as u64 <= COPIED_MAX;
        if !is_plain {
            return Err(libc::EXDEV);
        }
        // A flushed file: neither its commit nor its eviction is under way.
        let number = self.index.record_of_root_ino(found.st_ino);
        let _claim = match number {
            Some(number) => Some(self.claims.take(number, PATIENCE).ok_or(libc::EXDEV)?),
            None => None,
        };
        let is_flushed = |&number: &u32| {
            matches!(self.record(number).state(), State::Clean | State::Durable)
                && self.is_of_durable(number, found.st_ino)
        };
        if number.is_some_and(|number| !is_flushed(&number)) {
            return Err(libc::EXDEV);
        }
        let entered = self.file_enters(directory, from, to).map_err(|error| match error.raw_os_error() {
            Some(errno @ (libc::EACCES | libc::EPERM)) => errno,
            _ => libc::EXDEV,
        });
        if let (Ok(()), Some(number)) = (&entered, number) {
            self.record(number).flags.fetch_or(FLAG_UNLINKED, SeqCst);
            self.removed(number);
        }
        entered
    }

    /// The object of a placed file becomes a file of the directory. Descriptors of it stay what they are.
    fn object_enters(&self, number: u32, directory: u32, from: &[u8], to: &[u8]) -> Result<(), i32> {
        let _claim = self.claims.take(number, PATIENCE).ok_or(libc::EXDEV)?;
        let (record, serial) = (self.record(number), self.serial(number));
        if self.device_of(number) != self.device_of(directory)
            || !record.change_state(State::Current, State::Committing)
        {
            return Err(libc::EXDEV);
        }
        let _barrier = self.commit_barrier();
        let object = self.object_path(number);
        let renamed = match self.synchronize(Domain::Names) && self.links_to(from, number) {
            true => rustix::fs::rename(&object, as_path(to)).map_err(|error| error.raw_os_error()),
            false => Err(libc::EXDEV),
        };
        if let Err(errno) = renamed {
            record.set_state(State::Current);
            return Err(errno);
        }
        self.index.header.removals_seq.fetch_add(1, SeqCst);
        let _ = std::fs::remove_file(as_path(from));
        self.unreserve(number);
        self.index.table_remove(self.object_key(number), number);
        record.object_ino.store(0, Release);
        record.set_state(State::Dead);
        self.forget_link(number);
        let mut catalogue = self.catalogue();
        catalogue.set_path(number, serial, b"");
        catalogue.entry(number, serial).since = std::time::Instant::now();
        Ok(())
    }

    /// A directory of the root, of which no file is placed: a copy takes the name, then it leaves its own. Whoever came into it meanwhile
    /// would go on in what has no name: then it gets its name back, and the copy goes.
    fn directory_enters(&self, directory: u32, from: &[u8], to: &[u8]) -> Result<(), i32> {
        let (source, target) = (as_path(from), as_path(to));
        let numbers: Vec<u32> = self.catalogue().below(from).map(|(_, number)| number).collect();
        let claims: Option<Vec<_>> = numbers.iter().map(|&number| self.claims.take(number, PATIENCE)).collect();
        let is_durable = |&number: &u32| {
            !matches!(
                self.record(number).state(),
                State::Current | State::Committing | State::Moving | State::New | State::Directory
            )
        };
        let is_used = || used_places().iter().any(|place| place.starts_with(source));
        if claims.is_none() || !numbers.iter().all(is_durable) || !self.may_be_copied(source) || is_used() {
            return Err(libc::EXDEV);
        }
        let mut copy = Mirror::new(source.to_owned(), self.unnamed_in(directory));
        let written = |link: &Path| {
            let text = std::fs::read_link(link)?;
            let below = link.parent().and_then(|above| above.strip_prefix(source).ok()).unwrap_or(Path::new(""));
            let place = if below.as_os_str().is_empty() { target.to_owned() } else { target.join(below) };
            let stored = self.stored_in(place.as_os_str().as_bytes(), text.as_os_str().as_bytes());
            Ok(as_path(&stored.map_err(std::io::Error::from_raw_os_error)?).to_owned())
        };
        let how = Look { fsync: false, cap: None, spilled: &|_| None, written: &written, ..self.last_look(1) };
        let copied = copy.look(&how).map_err(|_| libc::EXDEV);
        let entered = copied.and_then(|_| self.exchange_for_copy(source, &copy.tree(), target, is_used));
        copy.discard();
        entered?;
        for number in numbers {
            if matches!(self.record(number).state(), State::Clean | State::Durable) {
                self.record(number).flags.fetch_or(FLAG_UNLINKED, SeqCst);
                self.removed(number);
            }
        }
        Ok(())
    }

    /// The last steps of `directory_enters`: there are two directories for a moment, and never none.
    fn exchange_for_copy(
        &self,
        source: &Path,
        copy: &Path,
        target: &Path,
        is_used: impl Fn() -> bool,
    ) -> Result<(), i32> {
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        let aside = self.tmp_dir().join(object_name(terrace_index::RECORDS as u32 - 1, random_half()));
        let found = rustix::fs::lstat(source).map_err(raw)?;
        let Some(_barrier) = self.commit_barrier() else { return Err(libc::EXDEV) };
        rustix::fs::renameat_with(CWD, copy, CWD, target, RenameFlags::NOREPLACE).map_err(taken)?;
        reached(Step::MoveCommitted);
        let give_back = |errno: i32| {
            let _ = rustix::fs::rename(target, copy);
            errno
        };
        rustix::fs::rename(source, &aside).map_err(raw).map_err(give_back)?;
        reached(Step::MoveRenamed);
        self.index.header.dir_renamed.fetch_add(1, SeqCst);
        self.index.header.ways.fetch_add(1, SeqCst);
        let is_it = rustix::fs::lstat(&aside).is_ok_and(|now| now.st_ino == found.st_ino);
        let is_in_use = is_used() || used_places().iter().any(|place| place.starts_with(&aside));
        if !is_it || is_in_use || !is_same_tree(&aside, target) {
            rustix::fs::renameat_with(CWD, &aside, CWD, source, RenameFlags::NOREPLACE).map_err(raw)?;
            return Err(give_back(libc::EXDEV));
        }
        self.index.header.removals_seq.fetch_add(1, SeqCst);
        let _ = std::fs::remove_dir_all(&aside);
        Ok(())
    }

    /// It is small, lies on one file system, has no link of ours and no file with a name elsewhere.
    fn may_be_copied(&self, directory: &Path) -> bool {
        let Ok(top) = std::fs::symlink_metadata(directory) else { return false };
        let (mut names, mut bytes) = (0, 0);
        let mut several: HashMap<u64, u64> = HashMap::new();
        let mut pending = vec![directory.to_owned()];
        while let Some(directory) = pending.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else { return false };
            for entry in entries {
                let Some(found) = entry.as_ref().ok().and_then(|entry| entry.metadata().ok()) else { return false };
                let Ok(entry) = entry else { return false };
                names += 1;
                bytes += found.len();
                if found.dev() != top.dev() || names > COPIED_NAMES_MAX || bytes > COPIED_MAX {
                    return false;
                }
                if found.is_dir() {
                    pending.push(entry.path());
                } else if found.nlink() > 1 {
                    *several.entry(found.ino()).or_insert(found.nlink()) -= 1;
                } else if found.is_symlink() {
                    let Some(text) = read_link(entry.path().as_os_str().as_bytes()) else { return false };
                    let is_ours = self.index.record_of_link(&text).is_some() || self.index.is_elsewhere(&text);
                    if is_ours || self.index.spill(&text).is_some() {
                        return false;
                    }
                }
            }
        }
        several.values().all(|&elsewhere| elsewhere == 0)
    }

    /// A file gets another name, one of the two in a placed directory and the other in the root: it lies in the root, and is spilled there
    /// as the placed directory sees it. Err: an errno for link(2).
    pub fn link_across(&self, from: &[u8], to: &[u8], uid: u32) -> Result<(), i32> {
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        if uid != rustix::process::geteuid().as_raw() || self.has_others() {
            return Err(libc::EXDEV);
        }
        self.index.header.spilling.store(1, SeqCst);
        match (self.index.inside(from), self.index.inside(to)) {
            (Some(_), None) if self.relative(to).is_some() => {
                let file = self.spill_to_root(from)?;
                if self.settings.mover.fsync {
                    std::fs::File::open(&file).and_then(|file| file.sync_all()).map_err(|_| libc::EIO)?;
                }
                rustix::fs::linkat(CWD, &file, CWD, as_path(to), AtFlags::empty()).map_err(raw)
            }
            (None, Some(_)) if self.relative(from).is_some() => self.name_in_directory(from, to),
            _ => Err(libc::EXDEV),
        }
    }

    /// A real file of the root gets a name in a placed directory: the file first, then the link to it.
    fn name_in_directory(&self, from: &[u8], to: &[u8]) -> Result<(), i32> {
        let raw = |error: rustix::io::Errno| error.raw_os_error();
        let found = rustix::fs::lstat(as_path(from)).map_err(raw)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return Err(libc::EXDEV);
        }
        // Who reads its replica would not see what is written by the new name.
        if let Some(number) = self.index.record_of_root_ino(found.st_ino)
            && self.is_of_durable(number, found.st_ino)
        {
            self.let_go_of(number);
            if self.record(number).state() != State::Durable {
                return Err(libc::EXDEV);
            }
        }
        let file = self.root_spills().join(object_name(terrace_index::RECORDS as u32 - 1, random_half()));
        rustix::fs::linkat(CWD, as_path(from), CWD, &file, AtFlags::empty()).map_err(raw)?;
        rustix::fs::symlink(&file, as_path(to)).map_err(raw).inspect_err(|_| drop(std::fs::remove_file(&file)))
    }

    /// A copy, that nobody writes meanwhile, takes the name; then the root's file goes.
    fn file_enters(&self, directory: u32, from: &[u8], to: &[u8]) -> std::io::Result<()> {
        let busy = || std::io::Error::from_raw_os_error(libc::EXDEV);
        let mut source = std::fs::File::open(as_path(from))?;
        // Nobody has it open for writing, and who wants to waits until it is gone.
        let lease = Lease::exclusive(source.as_fd()).ok().flatten().ok_or_else(busy)?;
        let unnamed = self.unnamed_in(directory);
        let copied = crate::files::mover::mirror::copy_one(&mut source, &unnamed);
        let entered = copied.and_then(|()| match lease.is_broken() {
            true => Err(busy()),
            false => std::fs::rename(&unnamed, as_path(to)),
        });
        entered.inspect_err(|_| drop(std::fs::remove_file(&unnamed)))?;
        std::fs::remove_file(as_path(from))
    }
}

/// Both have the same names, files of the same sizes and times, and no more: nobody changed one since the other was copied.
fn is_same_tree(one: &Path, other: &Path) -> bool {
    let versions = |top: &Path| {
        let mut found = vec![];
        let mut pending = vec![top.to_owned()];
        while let Some(directory) = pending.pop() {
            for entry in std::fs::read_dir(&directory).ok()? {
                let (path, status) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))).ok()?;
                let name = path.strip_prefix(top).ok()?.to_owned();
                let file = status.is_file().then(|| (status.len(), status.mtime(), status.mtime_nsec()));
                found.push((name, status.mode(), file));
                if status.is_dir() {
                    pending.push(path);
                }
            }
        }
        found.sort();
        Some(found)
    };
    versions(one).is_some_and(|found| Some(found) == versions(other))
}

/// What is to be replaced takes two steps: the program copies.
fn taken(error: rustix::io::Errno) -> i32 {
    match error {
        rustix::io::Errno::EXIST => libc::EXDEV,
        error => error.raw_os_error(),
    }
}
