//! Creating, opening, removing placed files.

use crate::agent_call::{About, call};
use crate::calls;
use crate::failure::{Context, system};
use crate::place::{Place, random, sleep_us};
use crate::placed::file::{BytesFile, Replica};
use rustix::fs::{FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::*};
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_index::calls::CallKind;
use terrace_index::guard::Domain;
use terrace_index::ring::{EventKind, NO_RECORD};
use terrace_index::table::root_key;
use terrace_index::{FLAG_UNLINKED, NAME_LEN, Record, State, write_name};

/// A device with less than this free takes no new files.
const ROOM_MIN: i64 = 64 << 10;
/// A commit or a move of one file lasts seconds at most, and a restarted agent ends it: half a minute.
const WAITS: usize = 60_000;
const WAIT_US: u64 = 500;
const PUBLISH_TRIES: usize = 2000;

/// What a name below the root is now.
pub struct Found {
    pub stat: Stat,
    /// The record of a file whose bytes lie in a tier.
    pub record: Option<u32>,
}

impl Found {
    pub fn is_directory(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::Directory
    }
    pub fn is_file(&self) -> bool {
        FileType::from_raw_mode(self.stat.st_mode) == FileType::RegularFile
    }
}

/// The record of the object that the link at `path` leads to.
pub fn record_at(place: &Place, path: &Path) -> Option<u32> {
    let text = calls::readlink(path).ok()?;
    place.index().record_of_link(text.as_bytes())
}

/// The agent whose object the link at `path` leads to, where a root has several.
pub fn member_of(path: &Path) -> Option<u32> {
    let text = calls::readlink(path).ok()?;
    let directory = Path::new(std::ffi::OsStr::from_bytes(text.as_bytes())).parent()?.file_name()?.to_str()?;
    let (name, _) = terrace_core::nodes::split_tag(directory);
    name.strip_prefix("terrace-").and_then(terrace_core::members::number_of)
}

pub fn look(place: &Place, path: &Path) -> Result<Found> {
    for attempt in 0.. {
        let record = record_at(place, path);
        match calls::stat(path) {
            Ok(stat) => return Ok(Found { stat, record }),
            // The object went between the look at the link and the look at what it leads to.
            Err(Errno::NOENT) if record.is_some() && attempt < 200 => sleep_us(500),
            Err(errno) => return Err(system("find", path, errno)),
        }
    }
    unreachable!("the loop ends by returning")
}

/// A new file at `path`, in the fastest tier with room; `exclusive`: it is an error if there is one, else that one is emptied.
pub fn create(place: &Place, path: &Path, exclusive: bool) -> Result<BytesFile> {
    for _ in 0..100 {
        match create_new(place, path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind == Kind::Exists && !exclusive => {}
            Err(error) => return Err(error),
        }
        let found = match calls::stat(path) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                return Err(ObjectError::new(Kind::WrongKind, format!("{} is a directory", path.display())));
            }
            Ok(stat) => stat,
            Err(_) => continue,
        };
        // Made anew rather than emptied: who reads the old one goes on doing so.
        if record_at(place, path).is_some() || found.st_nlink == 1 {
            match remove(place, path) {
                Ok(()) => continue,
                Err(error) if error.kind == Kind::NotFound => continue,
                Err(error) => return Err(error),
            }
        }
        let mut file = open(place, path, true)?;
        file.set_len(place, 0)?;
        return Ok(file);
    }
    Err(ObjectError::new(Kind::Busy, format!("{} is created and removed again and again by others", path.display())))
}

fn create_new(place: &Place, path: &Path) -> Result<BytesFile> {
    let index = place.index();
    let directory = path.parent().unwrap_or(place.root());
    // Each file that is made in it changes its times, which are nothing to us.
    let stat = calls::stat_known(directory).context("use the directory", directory)?;
    if !takes_files(place, &stat, directory) {
        return create_durable(path);
    }
    let Some(number) = index.take_record() else { return create_durable(path) };
    let group = if stat.st_mode & libc::S_ISGID != 0 { Some(stat.st_gid) } else { None };
    let Some((fd, object)) = create_object(place, number, group) else {
        index.free_record(number);
        return create_durable(path);
    };
    let record = &index.records[number as usize];
    let key = index.object_key(record.device.load(Relaxed), record.object_ino.load(Relaxed));
    let undo = || {
        let _ = calls::unlink(&object);
        index.free_record(number);
    };
    if !index.table_put(key, number) {
        undo();
        return create_durable(path);
    }
    record.set_state(State::Current);
    if let Err(errno) = calls::symlink(&object, path) {
        index.table_remove(key, number);
        undo();
        return match errno {
            Errno::PERM | Errno::OPNOTSUPP | Errno::NOSPC | Errno::DQUOT => create_durable(path),
            errno => Err(system("create", path, errno)),
        };
    }
    publish(place, EventKind::Created, number, path);
    index.header.creates_tier.fetch_add(1, Relaxed);
    Ok(BytesFile::new(path, fd, true, Some(number), index.header.moves_seq.load(SeqCst)))
}

/// A directory on the root's file system in which others may follow our links, and which has no rules of its own for files.
fn takes_files(place: &Place, stat: &Stat, directory: &Path) -> bool {
    let header = &place.index().header;
    header.accepts.load(Acquire) != 0
        && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        && stat.st_dev == header.root_dev.load(Relaxed)
        && stat.st_mode & (libc::S_ISVTX | libc::S_IWOTH) != libc::S_ISVTX | libc::S_IWOTH
        && !has_default_acl(place, stat, directory)
}

/// A program makes many files in one directory, and each look is a request to a server: the last directory without rules is remembered,
/// for at most a second, because they can be set without leaving a trace.
fn has_default_acl(place: &Place, stat: &Stat, directory: &Path) -> bool {
    static WITHOUT: AtomicU64 = AtomicU64::new(0);
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, place.index().header.now.load(Relaxed)).hash(&mut hasher);
    let this = hasher.finish();
    if WITHOUT.load(Relaxed) == this {
        return false;
    }
    let has = rustix::fs::getxattr(directory, "system.posix_acl_default", &mut [0u8; 0][..]).is_ok_and(|size| size > 0);
    if !has {
        WITHOUT.store(this, Relaxed);
    }
    has
}

fn create_durable(path: &Path) -> Result<BytesFile> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let fd = calls::open(path, flags, Mode::from_raw_mode(0o666)).context("create", path)?;
    Ok(BytesFile::new(path, fd, true, None, 0))
}

/// The object file, on the best device that takes it; fills the record.
fn create_object(place: &Place, number: u32, group: Option<u32>) -> Option<(OwnedFd, PathBuf)> {
    let index = place.index();
    let record = &index.records[number as usize];
    let random = random();
    record.random.store(random, Release);
    let mut tried = 0u32;
    while let Some(device) = best_device(place, tried, ROOM_MIN) {
        tried |= 1 << device;
        record.device.store(device, Release);
        let mut name = [0; NAME_LEN];
        write_name(number, random, &mut name);
        let object = PathBuf::from(std::ffi::OsStr::from_bytes(
            &[index.header.devices[device as usize].dir.get(), &name].concat(),
        ));
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let Ok(fd) = calls::open(&object, flags, Mode::from_raw_mode(0o666)) else { continue };
        let inherits =
            group.is_none_or(|group| rustix::fs::fchown(&fd, None, Some(rustix::fs::Gid::from_raw(group))).is_ok());
        match calls::fstat(&fd) {
            Ok(stat) if inherits && stat.st_mode & 0o400 != 0 => record.object_ino.store(stat.st_ino, Release),
            _ => {
                let _ = calls::unlink(&object);
                return None;
            }
        }
        record.used_at.store(index.header.now.load(Relaxed), Relaxed);
        return Some((fd, object));
    }
    None
}

/// The fastest tier with so much room that was not tried; in it, the device with the most room.
pub fn best_device(place: &Place, tried: u32, room: i64) -> Option<u32> {
    let mut best: Option<(u32, u32, i64)> = None;
    for (number, device) in place.index().devices().iter().enumerate() {
        let free = device.free();
        if tried & 1 << number != 0 || device.accepts.load(Relaxed) == 0 || free < room {
            continue;
        }
        let tier = device.tier.load(Relaxed);
        if best.is_none_or(|(_, best_tier, best_free)| tier < best_tier || tier == best_tier && free > best_free) {
            best = Some((number as u32, tier, free));
        }
    }
    best.map(|(number, ..)| number)
}

/// Tells the agent of a name; gives up when its ring stays full: it then walks the tree.
fn publish(place: &Place, kind: EventKind, record: u32, path: &Path) {
    publish_all(place, kind, record, path.as_os_str().as_bytes(), b"");
}

fn publish_all(place: &Place, kind: EventKind, record: u32, path: &[u8], other: &[u8]) {
    for _ in 0..PUBLISH_TRIES {
        let index = place.index();
        let pushed = index.ring_push(std::process::id(), kind, record, path, other);
        if !pushed || index.ring_is_filling() {
            let bell = &index.header.bell;
            if bell.swap(0, AcqRel) != 0 {
                let _ = rustix::thread::futex::wake(bell, rustix::thread::futex::Flags::empty(), 1);
            }
        }
        if pushed {
            return;
        }
        sleep_us(500);
    }
}

/// Gives what lies at `from` another name, which nothing has.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    let renamed = match calls::rename_with(from, to, RenameFlags::NOREPLACE) {
        // A file system that can't look and rename in one.
        Err(Errno::INVAL | Errno::NOSYS) if !to.starts_with(from) => match calls::lstat(to) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => calls::rename(from, to),
            Err(errno) => Err(errno),
        },
        renamed => renamed,
    };
    match renamed {
        Ok(()) => Ok(()),
        Err(Errno::NOENT) if calls::lstat(from).is_err() => Err(system("rename", from, Errno::NOENT)),
        Err(errno) => Err(system("rename to", to, errno)),
    }
}

/// Tells the agent what was renamed: a directory with all that lies below it, or a file in a tier.
pub fn say_renamed(place: &Place, from: &Path, to: &Path) {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let found = calls::lstat(to).map(|found| FileType::from_raw_mode(found.st_mode));
    let (record, from) = match found {
        Ok(FileType::Directory) => (NO_RECORD, bytes(from)),
        Ok(FileType::Symlink) => match record_at(place, to) {
            Some(record) => (record, vec![]),
            None => return,
        },
        _ => return,
    };
    publish_all(place, EventKind::Renamed, record, &from, &bytes(to));
}

/// Opens an existing file, wherever its bytes are.
pub fn open(place: &Place, path: &Path, writable: bool) -> Result<BytesFile> {
    let index = place.index();
    let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
    let mut refusals = 0;
    if !writable && index.header.clean_count.load(Acquire) > 0 {
        // The kernel knows the attributes; to open and close the root's file would be requests to a server.
        let seq = index.header.moves_seq.load(SeqCst);
        match calls::lstat(path) {
            Ok(stat) => {
                if let Some((fd, number, replica)) = replica_of(place, &stat) {
                    return Ok(BytesFile::of_replica(path, fd, number, replica, seq));
                }
            }
            Err(Errno::NOENT) => return Err(system("open", path, Errno::NOENT)),
            Err(_) => {}
        }
    }
    for _ in 0..WAITS {
        let seq = index.header.moves_seq.load(SeqCst);
        let evictions = index.header.evictions_seq.load(Acquire);
        let fd = match calls::open(path, access | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if refusals < 200 && record_at(place, path).is_some() => {
                refusals += 1;
                sleep_us(WAIT_US);
                continue;
            }
            Err(Errno::NOENT) if index.header.evictions_seq.load(Acquire) != evictions => continue,
            Err(errno) => return Err(system("open", path, errno)),
        };
        if index.header.evictions_seq.load(Acquire) != evictions {
            // While this open waited for the agent's lease, the root's file may have been replaced by a link: then it has the old one.
            continue;
        }
        let stat = calls::fstat(&fd).context("look at", path)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => {
                return Err(ObjectError::new(Kind::WrongKind, format!("{} is a directory", path.display())));
            }
            _ => return Err(ObjectError::new(Kind::WrongKind, format!("{} is not a file", path.display()))),
        }
        let record = index.record_of_object(stat.st_dev, stat.st_ino, stat.st_nlink);
        let Some(number) = record else {
            if writable && let Some(number) = replicated(place, &stat) {
                // The agent makes the replica current only if nobody has the root's file open: not even we.
                drop(fd);
                promote(place, path, number)?;
                continue;
            }
            if !writable && let Some((fd, number, replica)) = replica_of(place, &stat) {
                return Ok(BytesFile::of_replica(path, fd, number, replica, seq));
            }
            return Ok(BytesFile::new(path, fd, writable, None, seq));
        };
        match index.records[number as usize].state() {
            State::Clean if writable => {
                drop(fd);
                call(place, CallKind::Promote, About::Record(number), 0)?;
            }
            State::Committing if writable => sleep_us(WAIT_US),
            State::Clean | State::Durable | State::Moved | State::Moving | State::Dead if writable => {
                sleep_us(WAIT_US);
            }
            State::Moved | State::Moving => sleep_us(WAIT_US),
            _ => {
                let record = &index.records[number as usize];
                record.used_at.store(index.header.now.load(Relaxed), Relaxed);
                index.header.opens_tier.fetch_add(1, Relaxed);
                return Ok(BytesFile::new(path, fd, writable, Some(number), seq));
            }
        }
    }
    Err(ObjectError::new(Kind::Busy, format!("{} is being moved between tiers for too long", path.display())))
}

/// The record of a durable file's replica, if it is equal or is just becoming so: then the file must not change in the root.
fn replicated(place: &Place, stat: &Stat) -> Option<u32> {
    let index = place.index();
    if index.header.clean_count.load(Acquire) <= 0 || stat.st_dev != index.header.root_dev.load(Relaxed) {
        return None;
    }
    let number = index.record_of_root_ino(stat.st_ino)?;
    let record = &index.records[number as usize];
    let is_of_it = record.durable_ino.load(Acquire) == stat.st_ino;
    (is_of_it && matches!(record.state(), State::Committing | State::Clean)).then_some(number)
}

/// The replica becomes current, or is given up.
fn promote(place: &Place, path: &Path, number: u32) -> Result<()> {
    let record = &place.index().records[number as usize];
    if record.state() != State::Clean {
        sleep_us(WAIT_US);
        return Ok(());
    }
    let (status, _) = call(place, CallKind::Promote, About::Named(number, path), 0)?;
    if status != 0 {
        record.change_state(State::Clean, State::Durable);
        publish(place, EventKind::Invalidated, number, path);
    }
    Ok(())
}

/// The root's file, which looks so, is as it was when the record's replica was made. Whether there is one still, the record's state says.
pub(super) fn is_equal_to(record: &Record, stat: &Stat) -> bool {
    let nanoseconds = |seconds: i64, rest: u64| seconds.wrapping_mul(1_000_000_000).wrapping_add(rest as i64);
    record.durable_ino.load(Acquire) == stat.st_ino
        && record.durable_size.load(Relaxed) == stat.st_size as u64
        && record.durable_mtime_ns.load(Relaxed) == nanoseconds(stat.st_mtime, stat.st_mtime_nsec)
        && record.durable_ctime_ns.load(Relaxed) == nanoseconds(stat.st_ctime, stat.st_ctime_nsec)
}

/// The clean replica of a durable file, if a tier has one that is still equal.
fn replica_of(place: &Place, stat: &Stat) -> Option<(OwnedFd, u32, Replica)> {
    let index = place.index();
    if index.header.clean_count.load(Acquire) <= 0 || stat.st_dev != index.header.root_dev.load(Relaxed) {
        return None;
    }
    let number = index.record_of_root_ino(stat.st_ino)?;
    let record = &index.records[number as usize];
    let is_same = || record.state() == State::Clean && is_equal_to(record, stat);
    if !is_same() {
        return None;
    }
    let mut name = [0; NAME_LEN];
    let random = record.random.load(Acquire);
    write_name(number, random, &mut name);
    let device = record.device.load(Relaxed) as usize % terrace_index::DEVICES;
    let object = [index.header.devices[device].dir.get(), &name].concat();
    let fd = calls::open(object.as_slice(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    // The record may have been given to another file since we looked: what was opened must be this file.
    let replica = calls::fstat(&fd).ok()?;
    let is_equal = replica.st_size == stat.st_size
        && (replica.st_mtime, replica.st_mtime_nsec) == (stat.st_mtime, stat.st_mtime_nsec)
        && record.object_ino.load(Acquire) == replica.st_ino
        && is_same();
    is_equal.then_some((fd, number, Replica { random, durable_ino: stat.st_ino }))
}

/// Takes a file's name away; its bytes go with its last name.
pub fn remove(place: &Place, path: &Path) -> Result<()> {
    let index = place.index();
    for _ in 0..WAITS {
        let link = record_at(place, path);
        if link.is_some_and(|number| index.records[number as usize].state().is_busy()) {
            sleep_us(WAIT_US);
            continue;
        }
        // Some(Some(n)): removed, and the agent is to be told of n.
        let removed = place.guarded(Domain::Names, || unlink_once(place, path, link));
        match removed {
            Ok(Some(told)) => {
                if let Some(number) = told {
                    publish(place, EventKind::Removed, number, Path::new(""));
                }
                return Ok(());
            }
            Ok(None) => sleep_us(WAIT_US),
            Err(errno) => return Err(system("remove", path, errno)),
        }
    }
    Err(ObjectError::new(Kind::Busy, format!("{} is being moved between tiers for too long", path.display())))
}

/// `Ok(None)`: something is under way with this file; look again.
fn unlink_once(place: &Place, path: &Path, link: Option<u32>) -> rustix::io::Result<Option<Option<u32>>> {
    let index = place.index();
    if record_at(place, path) != link {
        return Ok(None);
    }
    let Some(number) = link else {
        let known = calls::lstat(path).ok().filter(|stat| stat.st_nlink == 1).and_then(|stat| {
            let number = index.record_of_root_ino(stat.st_ino)?;
            let record = &index.records[number as usize];
            (stat.st_dev == index.header.root_dev.load(Relaxed)
                && record.durable_ino.load(Acquire) == stat.st_ino
                && matches!(record.state(), State::Clean | State::Durable))
            .then_some(number)
        });
        calls::unlink(path)?;
        let told = known.filter(|&number| {
            let record = &index.records[number as usize];
            record.flags.fetch_or(FLAG_UNLINKED, SeqCst);
            record.state() == State::Clean
        });
        return Ok(Some(told));
    };
    let record = &index.records[number as usize];
    if record.state().is_busy() {
        return Ok(None);
    }
    // A handle of the link itself tells afterwards whether it was this link that went.
    let handle = calls::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let text = rustix::fs::readlinkat(&handle, "", Vec::with_capacity(512))?;
    if index.record_of_link(text.as_bytes()) != Some(number) {
        return Ok(None);
    }
    calls::unlink(path)?;
    if calls::fstat(&handle)?.st_nlink != 0 {
        return Ok(Some(None));
    }
    record.set_state(State::Dead);
    let _ = calls::unlink(&text);
    index.header.devices[record.device.load(Relaxed) as usize % terrace_index::DEVICES]
        .unreserve(record.reserved.swap(0, AcqRel));
    let ino = record.link_ino.load(Relaxed);
    if ino != 0 {
        index.table_remove(root_key(ino), number);
    }
    Ok(Some(Some(number)))
}

/// Removes a directory and all that is in it; directories in it by `remove_directory`.
pub fn remove_tree(
    place: &Place,
    directory: &Path,
    remove_directory: &dyn Fn(&Place, &Path) -> Result<()>,
) -> Result<()> {
    let entries = std::fs::read_dir(directory).context("list", directory)?;
    for entry in entries {
        let path = entry.context("list", directory)?.path();
        let stat = match calls::lstat(&path) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(system("look at", &path, errno)),
        };
        let removed = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => remove_directory(place, &path),
            _ => remove(place, &path),
        };
        match removed {
            Err(error) if error.kind == Kind::NotFound => {}
            removed => removed?,
        }
    }
    calls::rmdir(directory).context("remove the directory", directory)
}
