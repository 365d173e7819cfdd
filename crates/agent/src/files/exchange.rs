//! Descriptors of files that moved live.
//!
//! A program that uses a stale descriptor sends it here and gets the one to use instead. All copies of a descriptor (dup,
//! fork) share one offset, and must share one after the exchange: the first to come makes a new description, kept here
//! under a token, and marks the old one by an offset that no file has. The others are given the same one.
//!
//! A moved file is forgotten when nobody has its old object open any more: the kernel says so by granting an exclusive lease.

use crate::files::Files;
use crate::files::reopen::{handle_of, reopen};
use crate::shared::path::as_path;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, StatxFlags};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::{Mutex, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant, SystemTime};
use terrace_index::{OFFSET_TOKEN_BASE, State};
use terrace_tier::{Lease, Writing};

/// One file that moved while it was open.
pub struct MovedFile {
    pub serial: u64,
    /// The old object, open for reading.
    pub old: OwnedFd,
    /// The new place, as a handle: it counts as no opener.
    pub new: OwnedFd,
    /// The record of the new place.
    pub target: u32,
    /// Whether programs find the new place by that record, or as any file of the root.
    pub target_is_object: bool,
    /// Of a file without a name: the new place's, by which it is opened again where a server does that for no file that has none.
    pub _name: Option<Box<dyn Writing>>,
}

/// All processes' descriptors are looked at so often at most, and for no more than one part in so many of the time.
const LOOK_REST: Duration = Duration::from_millis(500);
const LOOK_PART: u32 = 50;
/// A walk misses a file that is renamed meanwhile.
const WALKS_MAX: usize = 3;

pub struct Exchanges {
    inner: Mutex<Inner>,
    /// Shared by who has a descriptor of a moved file in hand, to give or to close: it is out of `inner`, and not closed yet.
    in_hand: RwLock<()>,
}

struct Inner {
    moved: HashMap<u32, MovedFile>,
    /// Moved under an agent that was killed, and where to: nobody has come with a descriptor yet.
    inherited: HashMap<u32, u32>,
    /// By token: the record whose descriptor it replaces, and the description.
    tokens: HashMap<i64, (u32, OwnedFd)>,
    next: i64,
    /// Tokens of locked descriptions that no descriptor had at the last look.
    unseen: HashSet<i64>,
    /// When they are looked for again.
    next_look: Option<Instant>,
}

impl Default for Exchanges {
    /// Tokens start at the time of day: those of an agent that was killed must mean nothing to us.
    fn default() -> Exchanges {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let next = (now.as_micros() as i64) % (OFFSET_TOKEN_BASE / 2);
        let inner = Inner {
            moved: HashMap::new(),
            inherited: HashMap::new(),
            tokens: HashMap::new(),
            next,
            unseen: HashSet::new(),
            next_look: None,
        };
        Exchanges { inner: Mutex::new(inner), in_hand: RwLock::new(()) }
    }
}

impl Exchanges {
    pub fn add(&self, record: u32, file: MovedFile) {
        self.inner.lock().unwrap().moved.insert(record, file);
    }

    /// Some program may still come with an old descriptor for this place: it must stay what it is.
    pub fn is_awaited(&self, place: u32) -> bool {
        let inner = self.inner.lock().unwrap();
        inner.moved.values().any(|file| file.target == place) || inner.inherited.values().any(|target| *target == place)
    }

    /// To be held from before an exchange until what it gave has been sent and closed.
    pub fn take_in_hand(&self) -> RwLockReadGuard<'_, ()> {
        self.in_hand.read().unwrap()
    }

    pub fn is_empty(&self) -> bool {
        let inner = self.inner.lock().unwrap();
        inner.moved.is_empty() && inner.inherited.is_empty()
    }

    /// A lock goes with its description's last descriptor, and the one here must not be that. So a description that programs have locked
    /// is kept only while one of them has a descriptor of the one that it replaces. Two looks miss no descriptor that is just copied.
    fn let_go_of_locked(&self) {
        let begun = Instant::now();
        let locked: HashSet<i64> = {
            let mut inner = self.inner.lock().unwrap();
            if inner.tokens.is_empty() || inner.next_look.is_some_and(|next| begun < next) {
                return;
            }
            let locked: HashSet<i64> =
                inner.tokens.iter().filter(|(_, (_, new))| has_lock(new)).map(|(token, _)| *token).collect();
            inner.unseen.retain(|token| locked.contains(token));
            locked
        };
        if locked.is_empty() {
            return;
        }
        let seen: HashSet<i64> = descriptors().iter().filter_map(|descriptor| token_of(descriptor)).collect();
        let mut inner = self.inner.lock().unwrap();
        inner.next_look = Some(Instant::now() + LOOK_REST.max(LOOK_PART * begun.elapsed()));
        for token in locked {
            if seen.contains(&token) {
                inner.unseen.remove(&token);
            } else if !inner.unseen.insert(token) {
                inner.unseen.remove(&token);
                inner.tokens.remove(&token);
            }
        }
    }

    /// Takes over a file that moved under an agent which was killed.
    pub fn inherit(&self, record: u32, target: u32) {
        self.inner.lock().unwrap().inherited.insert(record, target);
    }
}

/// What of a description's flags is given to its successor.
fn kept_flags() -> OFlags {
    OFlags::RWMODE | OFlags::APPEND | OFlags::DSYNC | OFlags::SYNC | OFlags::NONBLOCK | OFlags::NOATIME | OFlags::DIRECT
}

impl Files {
    /// The description to use instead of `old`, whose file was `number`'s object.
    pub fn exchange(&self, number: u32, old: &OwnedFd) -> Result<OwnedFd, i32> {
        let mut inner = self.exchanges.inner.lock().unwrap();
        let raw = rustix::io::Errno::raw_os_error;
        let flags = rustix::fs::fcntl_getfl(old).map_err(raw)?;
        let offset = rustix::fs::seek(old, SeekFrom::Current(0)).map_err(raw)? as i64;
        if offset >= OFFSET_TOKEN_BASE {
            let (_, new) = inner.tokens.get(&(offset - OFFSET_TOKEN_BASE)).ok_or(libc::EIO)?;
            return new.try_clone().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        }
        if !inner.moved.contains_key(&number) {
            match self.find_again(number, old)? {
                Some(file) => {
                    inner.inherited.remove(&number);
                    inner.moved.insert(number, file);
                }
                // What it moved to is lost, and it is not: it goes on as it was.
                None => return old.try_clone().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)),
            }
        }
        let is_old = |file: &MovedFile| {
            let (Ok(one), Ok(other)) = (rustix::fs::fstat(&file.old), rustix::fs::fstat(old)) else { return false };
            (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
        };
        // Another thread was faster: the number that this one asked about is of the new place's description by now, whose offset
        // all who have it write at.
        if inner.moved.get(&number).is_some_and(|file| !is_old(file)) {
            return old.try_clone().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        }
        let mut target = number;
        let mut place = None;
        // A file may have moved again before this descriptor was used.
        while let Some(file) = inner.moved.get(&target) {
            if file.serial != self.serial(target) {
                break;
            }
            place = Some(&file.new);
            target = file.target;
        }
        let place = place.ok_or(libc::EIO)?;
        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        let new = open_again(&path, flags & kept_flags())?;
        rustix::fs::seek(&new, SeekFrom::Start(offset as u64)).map_err(raw)?;
        let given = new.try_clone().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let token = inner.next;
        rustix::fs::seek(old, SeekFrom::Start((OFFSET_TOKEN_BASE + token) as u64)).map_err(raw)?;
        inner.next += 1;
        inner.tokens.insert(token, (number, new));
        Ok(given)
    }

    /// A file that moved under an agent which was killed: where it is now. `None`: nowhere but in the old object, for it had no
    /// name and its copy went with that agent.
    fn find_again(&self, number: u32, old: &OwnedFd) -> Result<Option<MovedFile>, i32> {
        let raw = rustix::io::Errno::raw_os_error;
        let mut target = number;
        let object = self.record(number).object_ino.load(Acquire);
        if object != 0 && rustix::fs::fstat(old).map_err(raw)?.st_ino != object {
            return Ok(None); // exchanged already, by another thread
        }
        while self.record(target).state() == State::Moved {
            target = self.record(target).moved_to.load(Acquire).checked_sub(1).ok_or(libc::EIO)?;
        }
        let serial = self.serial(target);
        let is_object = matches!(self.record(target).state(), State::Current | State::Committing | State::Moving);
        let spilled = self.spilled_path(target).filter(|_| self.record(target).state() == State::Dead);
        let was_named = self.record(target).durable_birth_ns.load(Acquire) != 0;
        let new = match self.record(target).state() {
            _ if spilled.is_some() => handle_of(&spilled.expect("it was just looked at")).map_err(raw)?,
            _ if is_object => handle_of(&self.object_path(target)).map_err(raw)?,
            State::Clean | State::Durable => {
                self.named_root_file(target, serial).or_else(|| self.held_root_file(target)).ok_or(libc::ESTALE)?
            }
            // A file of the root that has lost its name since: who came before may have changed it there.
            State::Dead if target != number && was_named => self.held_root_file(target).ok_or(libc::ESTALE)?,
            State::Dead if target != number => {
                self.record(number).moved_to.store(0, Release);
                self.record(number).set_state(State::Dead);
                return Ok(None);
            }
            _ => return Err(libc::EIO),
        };
        let old = reopen(old.as_fd()).map_err(raw)?;
        Ok(Some(MovedFile { serial: self.serial(number), old, new, target, target_is_object: is_object, _name: None }))
    }

    /// The record's file in the root, by its name. Programs of other nodes rename and replace it, and tell nobody here.
    fn named_root_file(&self, number: u32, serial: u64) -> Option<OwnedFd> {
        for _ in 0..WALKS_MAX {
            let path = self.catalogue().path(number, serial);
            if let Some(handle) = path.and_then(|path| handle_of(as_path(&path)).ok())
                && self.is_root_file(number, handle.as_fd())
            {
                return Some(handle);
            }
            self.catalogue().set_path(number, serial, b"");
            self.walk_tree();
        }
        None
    }

    /// The record's file in the root, which has no name any more, by a descriptor that a program has.
    fn held_root_file(&self, number: u32) -> Option<OwnedFd> {
        if self.record(number).durable_birth_ns.load(Acquire) == 0 {
            return None;
        }
        descriptors().into_iter().find_map(|descriptor| {
            // What is known of it without a question to its file system, which may be any, and may hang.
            let found = rustix::fs::statx(CWD, &descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
            if found.stx_ino != self.record(number).durable_ino.load(Acquire) {
                return None;
            }
            let handle = rustix::fs::open(&descriptor, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
            self.is_root_file(number, handle.as_fd()).then_some(handle)
        })
    }

    /// What moved to the root is this file. Its inode number may have been given to another one since.
    fn is_root_file(&self, number: u32, file: BorrowedFd<'_>) -> bool {
        let record = self.record(number);
        let (ino, born) = (record.durable_ino.load(Acquire), record.durable_birth_ns.load(Acquire));
        let Ok(found) = rustix::fs::fstat(file) else { return false };
        let is_there = found.st_dev == self.index.header.root_dev.load(Relaxed) && found.st_ino == ino;
        is_there && (born == 0 || birth_ns(file) == born)
    }

    /// Forgets inherited files whose old object no program has open: what the kernel shows of its descriptors says so, for we
    /// have none.
    fn forget_inherited(&self) {
        let inherited: Vec<u32> = self.exchanges.inner.lock().unwrap().inherited.keys().copied().collect();
        if inherited.is_empty() {
            return;
        }
        let open = open_files();
        for number in inherited {
            let path = self.object_path(number);
            if open.iter().any(|open| open.starts_with(path.as_os_str().as_bytes())) {
                continue;
            }
            let Some(target) = self.exchanges.inner.lock().unwrap().inherited.remove(&number) else { continue };
            if self.record(number).state() == State::Moved {
                self.index.table_remove(self.object_key(number), number);
                self.catalogue().remove(number);
                self.index.free_record(number);
                self.written(target);
            }
        }
    }

    /// Forgets moved files whose old object nobody has open. Their records are free for new files.
    pub fn forget_exchanged(&self) {
        let _in_hand = self.exchanges.take_in_hand();
        self.forget_closed();
    }

    /// As `forget_exchanged`; of the files that it could forget, no thread here has any open afterwards.
    pub fn let_go_of_exchanged(&self) {
        let _nobody = self.exchanges.in_hand.write().unwrap();
        self.forget_closed();
    }

    fn forget_closed(&self) {
        self.forget_inherited();
        self.exchanges.let_go_of_locked();
        let mut done = vec![];
        {
            let mut inner = self.exchanges.inner.lock().unwrap();
            if inner.moved.is_empty() {
                return;
            }
            let idle: Vec<u32> = inner
                .moved
                .iter()
                .filter(|(record, file)| {
                    // One that moved on is where the descriptors of the one before it still lead.
                    !inner.moved.values().any(|earlier| earlier.target == **record)
                        && matches!(Lease::exclusive(file.old.as_fd()), Ok(Some(_)))
                })
                .map(|(record, _)| *record)
                .collect();
            for record in idle {
                inner.tokens.retain(|_, (of, _)| *of != record);
                if let Some(file) = inner.moved.remove(&record) {
                    done.push((record, file));
                }
            }
        }
        for (number, file) in done {
            if self.serial(number) != file.serial {
                continue;
            }
            self.index.table_remove(self.object_key(number), number);
            self.catalogue().remove(number);
            self.index.free_record(number);
            if file.target_is_object {
                // The token's description was closed by us: the kernel tells, unless it was read-only.
                self.written(file.target);
            } else if self.record(file.target).state() == State::Dead {
                self.catalogue().entry(file.target, self.serial(file.target));
            }
        }
    }
}

/// What the descriptors of all processes lead to, as far as we may see them: a program that only holds a descriptor has no
/// slot in the index.
fn open_files() -> Vec<Vec<u8>> {
    let targets = descriptors().into_iter().filter_map(|descriptor| std::fs::read_link(descriptor).ok());
    targets.map(|target| target.into_os_string().into_vec()).collect()
}

/// The descriptors of all other processes, by their names below /proc.
fn descriptors() -> Vec<PathBuf> {
    let mut found = vec![];
    let own = std::process::id().to_string();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        if !name.as_bytes().iter().all(u8::is_ascii_digit) || name.as_bytes() == own.as_bytes() {
            continue;
        }
        let Ok(entries) = std::fs::read_dir(process.path().join("fd")) else { continue };
        found.extend(entries.flatten().map(|entry| entry.path()));
    }
    found
}

/// A flock or an OFD lock of this description is held (proc_pid_fdinfo(5)).
fn has_lock(description: &OwnedFd) -> bool {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", description.as_raw_fd()));
    info.is_ok_and(|info| info.lines().any(|line| line.starts_with("lock:")))
}

/// The token that the offset of another process's descriptor is.
fn token_of(descriptor: &Path) -> Option<i64> {
    let info = descriptor.parent()?.with_file_name("fdinfo").join(descriptor.file_name()?);
    let info = std::fs::read_to_string(info).ok()?;
    let offset: i64 = info.lines().find_map(|line| line.strip_prefix("pos:"))?.trim().parse().ok()?;
    (offset >= OFFSET_TOKEN_BASE).then_some(offset - OFFSET_TOKEN_BASE)
}

/// When a file was made; 0 where its file system doesn't say.
pub fn birth_ns(file: BorrowedFd<'_>) -> i64 {
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME) {
        Ok(found) if found.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            found.stx_btime.tv_sec * 1_000_000_000 + found.stx_btime.tv_nsec as i64
        }
        _ => 0,
    }
}

/// Opens a place anew, also one whose mode forbids its owner what the descriptor was opened for.
fn open_again(path: &str, flags: OFlags) -> Result<OwnedFd, i32> {
    let open = |flags| rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty());
    let raw = rustix::io::Errno::raw_os_error;
    match open(flags) {
        Err(rustix::io::Errno::ACCESS) => {
            let mode = Mode::from_raw_mode(rustix::fs::stat(path).map_err(raw)?.st_mode);
            rustix::fs::chmod(path, mode | Mode::RUSR | Mode::WUSR).map_err(raw)?;
            let opened = open(flags);
            let _ = rustix::fs::chmod(path, mode);
            opened.map_err(raw)
        }
        // The new place's file system may not know what the old one's did.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {
            open(flags & !(OFlags::DIRECT | OFlags::NOATIME)).map_err(raw)
        }
        result => result.map_err(raw),
    }
}
