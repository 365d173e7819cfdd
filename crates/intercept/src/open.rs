//! The open family.
//!
//! The kernel opens: a link of ours leads it to the object. What is left to do is small: create new files in a tier, read a
//! durable file from its clean replica, make a replica current again before it is written, and notice when a file was
//! committed or moved while the open waited (the mover's lease holds a writer back).

use crate::agent_call::{Request, call, call_back, materialise};
use crate::create::{Created, create};
use crate::durable::record_of_durable;
use crate::elsewhere::{self, Brought};
use crate::events::publish;
use crate::objects::Object;
use crate::path::{Path, below_root};
use crate::placed::{self, Way};
use crate::{caller, data, gate, habits, link, process, readable, real, spill, stat};
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use terrace_index::calls::CallKind;
use terrace_index::habits::{OFTEN, SMALL_BYTES};
use terrace_index::proxy::LEAVE;
use terrace_index::ring::EventKind;
use terrace_index::{Index, Record, State};

const ATTEMPTS: usize = 200;
const WAIT_US: i64 = 100;
/// Half a minute.
const WAITS: usize = 300_000;
/// So often a file is asked to be made a real one before it is taken as it is.
const SETTLES: usize = 3;
const SAMPLE: u32 = 16;
const COUNTED: u32 = 64;
/// Opens for reading that needed no look so far.
static OPENS: AtomicU32 = AtomicU32::new(0);

pub fn native(dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize {
    // SAFETY: the program's own arguments.

    unsafe { gate::call4(libc::SYS_openat, dirfd as usize, path as usize, flags as usize, mode as usize) }
}

/// openat(2), as the kernel returns it.
pub fn open_at(dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize {
    may_be_written(open_anywhere(dirfd, path, flags, mode), flags)
}

/// Of a descriptor by which a file is written, wherever its name was: before the program has it, nobody relies on what that file was like.
pub fn may_be_written(fd: isize, flags: i32) -> isize {
    // A file can be cut by an open for reading, too.
    let is_plain = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & libc::O_TRUNC == 0;
    if fd >= 0
        && !is_plain
        && let Some(index) = process::index()
    {
        call_back(index);
    }
    fd
}

fn open_anywhere(dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize {
    if path.is_null() {
        return -(libc::EFAULT as isize);
    }
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    match process::index() {
        Some(index) if process::may_be_below_root(index, dirfd, path) => open_below(index, dirfd, path, flags, mode),
        known => {
            let fd = native(dirfd, path, flags, mode);
            // A link from outside leads to the root, and there to a link of ours, which is none.
            if fd == -(libc::ELOOP as isize)
                && flags & libc::O_NOFOLLOW != 0
                && let Some(index) = known
                && (is_a_link_of_ours(index, dirfd, path) || link::is_elsewhere(index, dirfd, path))
            {
                return open_below(index, dirfd, path, flags, mode);
            }
            if fd == -(libc::ENOENT as isize)
                && flags & libc::O_CREAT == 0
                && let Some(index) = known
                && let Some(Opened::Again) = brought(index, dirfd, path, true)
            {
                return open_below(index, dirfd, path, flags, mode);
            }
            // A directory of a tier that is full, in which the program is.
            if fd == -(libc::ENOSPC as isize)
                && (known.is_some_and(spill::begin) || flags & libc::O_CREAT != 0 && spill::has_made_room(dirfd, path))
            {
                return open_anywhere(dirfd, path, flags, mode);
            }
            data::forget(fd as i32);
            if fd >= 0 && known.is_some_and(|index| may_be_inside(index, path)) {
                data::opened_unrecorded(fd as i32, flags & libc::O_ACCMODE != libc::O_RDONLY);
            }
            fd
        }
    }
}

/// A text that does not lead into the root, of a program that may be in a placed directory.
pub fn may_be_inside(index: Index, path: *const c_char) -> bool {
    // SAFETY: a C string.
    placed::any(index) && readable::is_text(path) && unsafe { *path } as u8 != b'/'
}

fn is_a_link_of_ours(index: Index, dirfd: i32, path: *const c_char) -> bool {
    link::read(index, dirfd, path).is_some() || spill::is_at(index, dirfd, path)
}

const NOFOLLOW_MASK: i32 = libc::O_NOFOLLOW | libc::O_PATH | libc::O_CREAT | libc::O_TRUNC | libc::O_DIRECTORY;
/// The last open without following met a link of ours (tar, find and rsync open all their files so): then the next one is read
/// as a link first, rather than tried in vain.
static NOFOLLOW_MEETS_OURS: AtomicBool = AtomicBool::new(false);

/// Opens the object that the name leads to. `None`: it is not a link of ours, or not any more.
fn open_link(index: Index, dirfd: i32, path: *const c_char, flags: i32) -> Option<isize> {
    let Some(link) = link::read(index, dirfd, path) else {
        NOFOLLOW_MEETS_OURS.store(false, Relaxed);
        return None;
    };
    if placed::is_directory(&index, &link) {
        return None;
    }
    let fd = Object::of_link(index, &link).at(|dirfd, name| native(dirfd, name, flags, 0));
    if fd < 0 {
        return None;
    }
    if flags & libc::O_ACCMODE == libc::O_RDONLY && is_fine_for_reading(index) {
        data::forget(fd as i32);
        return Some(fd);
    }
    let status = fstat(fd as i32);
    let number = data::record_of(index, fd as i32, &status);
    let accepted = match number {
        Some(number) if number == link.record => accept_object(index, fd as i32, number, &status, flags, 0, &mut None),
        _ => {
            close(fd as i32);
            return None;
        }
    };
    match accepted {
        Opened::Done(fd) => Some(fd),
        // It has closed the descriptor.
        Opened::Again | Opened::Wait => None,
    }
}

const NEW_MASK: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_DIRECTORY | libc::O_PATH;
/// What the last open that might create found. If no file, the next one makes the link at once, which says if there was one: to look
/// first would be one more request to a server. So does the first open of a program that makes small files.
static NAMES: AtomicU32 = AtomicU32::new(NAMES_UNKNOWN);
const NAMES_UNKNOWN: u32 = 0;
const NAMES_NEW: u32 = 1;
const NAMES_OLD: u32 = 2;
/// For so many opens of a small file counts one to write it again.
const WRITING_AGAIN: u32 = OFTEN / 2;
const PLAIN_READING_MASK: i32 =
    libc::O_ACCMODE | libc::O_PATH | libc::O_CREAT | libc::O_TRUNC | libc::O_DIRECTORY | libc::O_DIRECT;
/// So many looks for a replica may still be in vain. While there are any, a replica is looked for before the root's file is
/// opened: on a parallel file system each open and close is a request to a server, where attributes are cached.
static LOOKS_FOR_REPLICAS: AtomicU32 = AtomicU32::new(LOOKS_IN_VAIN);
const LOOKS_IN_VAIN: u32 = 8;

/// Opens the replica of the clean file that has this name. `None`: it has none, or it changed meanwhile. What the name itself is
/// says enough, and following a link of ours would be one more request.
fn open_replica_first(index: Index, dirfd: i32, path: *const c_char, flags: i32) -> Option<isize> {
    let nothing = -(libc::ENOENT as isize);
    let opened = match stat::kernel_stat_or_error(dirfd, path, libc::AT_SYMLINK_NOFOLLOW) {
        Ok(status) if status.st_dev == index.header.root_dev.load(Relaxed) => open_replica(index, &status, flags),
        Err(errno) if errno == nothing => return Some(nothing),
        _ => None,
    };
    let Some((fd, number)) = opened else {
        // Not exact among threads, which does no harm.
        LOOKS_FOR_REPLICAS.store(LOOKS_FOR_REPLICAS.load(Relaxed).saturating_sub(1), Relaxed);
        return None;
    };
    LOOKS_FOR_REPLICAS.store(LOOKS_IN_VAIN, Relaxed);
    data::opened(index, fd, number, false);
    Some(fd as isize)
}

/// A descriptor of the replica that serves readers of a clean file, and its record.
fn open_replica(index: Index, status: &libc::stat, flags: i32) -> Option<(i32, u32)> {
    if needs_roots_file(index) {
        return None;
    }
    let (number, record) = record_of_durable(index, status)?;
    if record.state() != State::Clean {
        return None;
    }
    let replica = Object::of(index, number).at(|dirfd, name| native(dirfd, name, flags & !libc::O_CREAT, 0)) as i32;
    if replica < 0 {
        return None;
    }
    // The record may have been given to another file since we looked: what was opened must be this file.
    if !is_replica_of(&fstat(replica), status, record) {
        close(replica);
        return None;
    }
    record.used_at.store(index.header.now.load(Relaxed), Relaxed);
    index.header.opens_tier.fetch_add(1, Relaxed);
    index.reads.of_object(record.object_ino.load(Relaxed), status.st_size as u64, 1);
    habits::opened(index, record, 1);
    Some((replica, number))
}

/// Nobody exchanges this program's descriptors, and another node may change its files at any time: it gets the root's own file.
pub fn needs_roots_file(index: Index) -> bool {
    caller::is_supervisor() && elsewhere::is_possible(index)
}

enum Opened {
    Done(isize),
    /// Something changed meanwhile: open again.
    Again,
    /// A commit is under way: open again when it has passed.
    Wait,
}

pub fn open_below(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize {
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return open_unnamed(index, dirfd, path, flags, mode);
    }
    let mut flags = flags;
    let mut replace = true;
    let (mut attempt, mut waits) = (0, 0);
    // The record of a file that the agent can't move.
    let mut stays = None;
    if flags & NOFOLLOW_MASK == libc::O_NOFOLLOW
        && NOFOLLOW_MEETS_OURS.load(Relaxed)
        && let Some(fd) = open_link(index, dirfd, path, flags)
    {
        return fd;
    }
    if flags & PLAIN_READING_MASK == libc::O_RDONLY
        && LOOKS_FOR_REPLICAS.load(Relaxed) > 0
        && index.header.clean_count.load(Acquire) > 0
        && let Some(fd) = open_replica_first(index, dirfd, path, flags)
    {
        return fd;
    }
    let is_likely_new = || match NAMES.load(Relaxed) {
        NAMES_NEW => true,
        NAMES_UNKNOWN => habits::makes_small_files(index, path),
        _ => false,
    };
    if flags & NEW_MASK == libc::O_CREAT && is_likely_new() {
        match create(index, dirfd, path, flags, mode) {
            Created::Done(fd) if fd >= 0 => return fd,
            _ => NAMES.store(NAMES_OLD, Relaxed),
        }
    }
    while attempt < ATTEMPTS {
        let evictions = index.header.evictions_seq.load(Acquire);
        let removals = index.header.removals_seq.load(Acquire);
        // With O_DIRECTORY the kernel has an error of its own.
        let fd = if flags & (libc::O_CREAT | libc::O_EXCL | libc::O_DIRECTORY) == libc::O_CREAT | libc::O_EXCL {
            -(libc::ENOENT as isize)
        } else {
            native(dirfd, path, first_flags(flags), mode)
        };
        let outcome = if fd >= 0 && flags & libc::O_PATH == 0 && is_old_version(index, fd as i32, evictions) {
            close(fd as i32);
            Opened::Again
        } else if fd >= 0 {
            accept(index, fd as i32, dirfd, path, flags, mode, attempt, (&mut replace, &mut stays))
        } else {
            refused(index, -fd as i32, dirfd, path, &mut flags, mode, Seen { evictions, removals })
        };
        match outcome {
            Opened::Done(result) => return result,
            // As long as the agent may need for it, also one that was restarted meanwhile.
            Opened::Wait if waits < WAITS => {
                waits += 1;
                process::sleep_us(WAIT_US);
            }
            Opened::Wait | Opened::Again => attempt += 1,
        }
    }
    // A name that changes under every attempt; the kernel's own answer is as good as any.
    if caller::is_supervisor() {
        return LEAVE;
    }
    native(dirfd, path, flags, mode)
}

/// A file without a name. In a placed directory it grows as others there do.
fn open_unnamed(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize {
    let mut fd = native(dirfd, path, flags, mode);
    if fd == -(libc::ENOSPC as isize) && placed::any(index) {
        let directory = native(dirfd, path, libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        if directory >= 0 {
            if spill::has_made_room_in(index, directory as i32) {
                fd = native(dirfd, path, flags, mode);
            }
            close(directory as i32);
        }
    }
    data::forget(fd as i32);
    if fd >= 0 && placed::any(index) && data::is_unrecorded(index, &fstat(fd as i32)) {
        data::opened_unrecorded(fd as i32, true);
    }
    fd
}

/// While this open waited for the agent's lease, the root's file may have been replaced by a link: then it has the old one.
fn is_old_version(index: Index, fd: i32, evictions: u64) -> bool {
    index.header.evictions_seq.load(Acquire) != evictions && fstat(fd).st_mode & libc::S_IFMT == libc::S_IFREG
}

/// We create and truncate ourselves: opening must not do it on the way.
fn first_flags(flags: i32) -> i32 {
    let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let truncates = if writable { libc::O_TRUNC } else { 0 };
    // O_CREAT is kept for a directory: the kernel's own errors for that mix are wanted.
    if flags & libc::O_DIRECTORY != 0 { flags } else { flags & !(libc::O_CREAT | truncates) }
}

/// What had gone before the kernel looked.
struct Seen {
    evictions: u64,
    removals: u64,
}

fn refused(
    index: Index,
    errno: i32,
    dirfd: i32,
    path: *const c_char,
    flags: &mut i32,
    mode: u32,
    before: Seen,
) -> Opened {
    match errno {
        // Its bytes may be in another node's tier. Who hears ENOENT makes the file anew.
        libc::ENOENT
            if *flags & (libc::O_CREAT | libc::O_EXCL) != libc::O_CREAT | libc::O_EXCL
                && let Some(opened) = brought(index, dirfd, path, true) =>
        {
            opened
        }
        libc::ENOENT if *flags & libc::O_CREAT != 0 && *flags & libc::O_DIRECTORY == 0 => {
            match create(index, dirfd, path, *flags, mode) {
                Created::Done(result) if result == -(libc::EEXIST as isize) && *flags & libc::O_EXCL == 0 => {
                    exists_after_all(index, dirfd, path, *flags, mode)
                }
                Created::Done(result) => {
                    NAMES.store(if result >= 0 { NAMES_NEW } else { NAMES_OLD }, Relaxed);
                    Opened::Done(result)
                }
                Created::Native => {
                    if caller::is_supervisor() {
                        index.header.creates_durable.fetch_add(1, Relaxed);
                        return Opened::Done(LEAVE);
                    }
                    let fd = native(dirfd, path, *flags, mode);
                    data::forget(fd as i32);
                    if fd == -(libc::ENOSPC as isize) && (spill::begin(index) || spill::has_made_room(dirfd, path)) {
                        return Opened::Again;
                    }
                    let is_inside = fd >= 0 && placed::any(index) && index.device_of_dev(fstat(fd as i32).st_dev);
                    let count = if is_inside { &index.header.creates_tier } else { &index.header.creates_durable };
                    count.fetch_add(1, Relaxed);
                    if is_inside {
                        data::opened_unrecorded(fd as i32, *flags & libc::O_ACCMODE != libc::O_RDONLY);
                    }
                    if fd >= 0 {
                        forget_last_file(index, fd as i32);
                    }
                    Opened::Done(fd)
                }
            }
        }
        libc::ENOENT if index.header.evictions_seq.load(Acquire) != before.evictions => Opened::Again,
        // Another node made it a real file between the kernel's look and ours.
        libc::ENOENT if elsewhere::is_possible(index) && stat::kernel_stat(dirfd, path, 0).is_some() => Opened::Again,
        // No object went meanwhile, so there is no name, or a link whose object was lost before.
        libc::ENOENT if index.header.removals_seq.load(Acquire) == before.removals => Opened::Done(-(errno as isize)),
        // A rename or a commit replaced the file, and its object went, while the kernel was on the way there.
        libc::ENOENT if stat::kernel_stat(dirfd, path, 0).is_some() => Opened::Again,
        // The object is gone and the link is not: a commit in progress, or a tier that was lost.
        libc::ENOENT if link::read(index, dirfd, path).is_some() => {
            process::sleep_us(1000);
            Opened::Again
        }
        libc::ENOENT => Opened::Done(-(errno as isize)),
        // A file, and a slash behind it: of what might be made the kernel says EISDIR.
        libc::ENOTDIR if *flags & libc::O_CREAT != 0 => Opened::Done(native(dirfd, path, *flags, mode)),
        // A placed directory, of which it is told that it is to be one.
        libc::ENOTDIR if *flags & libc::O_NOFOLLOW != 0 && placed::link_at(index, dirfd, path).is_some() => {
            *flags &= !libc::O_NOFOLLOW;
            Opened::Again
        }
        libc::ELOOP if *flags & libc::O_NOFOLLOW != 0 && is_a_link_of_ours(index, dirfd, path) => {
            *flags &= !libc::O_NOFOLLOW;
            NOFOLLOW_MEETS_OURS.store(true, Relaxed);
            Opened::Again
        }
        libc::ELOOP
            if *flags & libc::O_NOFOLLOW != 0
                && let Some(opened) = brought(index, dirfd, path, false) =>
        {
            opened
        }
        // Committed, renamed or brought between the looks: it is a real file now, or gone, or a link of ours after all.
        libc::ELOOP if *flags & libc::O_NOFOLLOW != 0 && !is_programs_link(index, dirfd, path) => Opened::Again,
        // O_NONBLOCK meets the mover's lease: it gives way within milliseconds, or when another node has answered.
        libc::EWOULDBLOCK if link::read(index, dirfd, path).is_some() => Opened::Wait,
        libc::EWOULDBLOCK => {
            process::sleep_us(1000);
            Opened::Again
        }
        _ => Opened::Done(-(errno as isize)),
    }
}

/// `None`: it does not lead to another node.
fn brought(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> Option<Opened> {
    match elsewhere::bring_to_open(index, dirfd, path, follow) {
        Brought::Not => None,
        Brought::Done => Some(Opened::Again),
        Brought::Failed(error) => Some(Opened::Done(error)),
    }
}

/// A file born in the root may have the inode of one that was placed once, and is gone: it is not that one.
pub fn forget_last_file(index: Index, fd: i32) {
    if index.header.durable_count.load(Relaxed) <= 0 {
        return;
    }
    let status = fstat(fd);
    if status.st_dev == index.header.root_dev.load(Relaxed)
        && let Some(number) = index.record_of_root_ino(status.st_ino)
    {
        index.table_remove(terrace_index::table::root_key(status.st_ino), number);
    }
}

/// Not there, and yet the link could not be made: another program was faster, or the name is a dangling link.
fn exists_after_all(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> Opened {
    let dangling = stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW).is_some_and(|found| is_link(&found));
    if dangling {
        match elsewhere::bring_surely(index, dirfd, path, true) {
            Brought::Not => {}
            Brought::Done => return Opened::Again,
            Brought::Failed(error) => return Opened::Done(error),
        }
    }
    if dangling && link::read(index, dirfd, path).is_none() {
        // The program's own dangling link: the kernel creates its target.
        if caller::is_supervisor() {
            return Opened::Done(LEAVE);
        }
        let fd = native(dirfd, path, flags, mode);
        data::forget(fd as i32);
        return Opened::Done(fd);
    }
    process::sleep_us(100);
    Opened::Again
}

/// The last part of the path is a link, and neither of ours nor of another node's: one look at one text.
pub fn is_programs_link(index: Index, dirfd: i32, path: *const c_char) -> bool {
    let mut text = [0u8; link::LINK_MAX];
    let len = link::text(dirfd, path, &mut text);
    // What can't be read as a link may be none in the last part only: the kernel met another one on the way.
    match len {
        len if len > 0 => {
            let text = &text[..len as usize];
            index.record_of_link(text).is_none() && !index.is_elsewhere(text)
        }
        len => len != -(libc::EINVAL as isize) && len != -(libc::ENOENT as isize),
    }
}

fn is_link(status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFLNK
}

fn fstat(fd: i32) -> libc::stat {
    // SAFETY: an open descriptor of ours; a zeroed stat is valid.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        gate::call2(libc::SYS_fstat, fd as usize, &raw mut status as usize);
        status
    }
}

fn close(fd: i32) {
    // SAFETY: a descriptor that nobody else has seen yet.
    unsafe { gate::call1(libc::SYS_close, fd as usize) };
}

/// The kernel opened something: is it what the program wants?
#[allow(clippy::too_many_arguments)] // one caller; the arguments are open's own
fn accept(
    index: Index,
    fd: i32,
    dirfd: i32,
    path: *const c_char,
    flags: i32,
    mode: u32,
    attempt: usize,
    (replace, stays): (&mut bool, &mut Option<u32>),
) -> Opened {
    if flags & (libc::O_ACCMODE | libc::O_PATH | libc::O_TRUNC | libc::O_CREAT) == libc::O_RDONLY
        && is_fine_for_reading(index)
    {
        data::forget(fd);
        return Opened::Done(fd as isize);
    }
    // Whoever writes asks for what never changes; a server would be asked for the rest after each write.
    let status = if flags & libc::O_ACCMODE == libc::O_RDONLY {
        fstat(fd)
    } else {
        stat::as_known(fd).unwrap_or_else(|| fstat(fd))
    };
    let kind = status.st_mode & libc::S_IFMT;
    if kind == libc::S_IFDIR && flags & (libc::O_CREAT | libc::O_PATH) == libc::O_CREAT {
        // The kernel opens no directory that it might have to make; it was asked without O_CREAT.
        close(fd);
        return Opened::Done(-(libc::EISDIR as isize));
    }
    if flags & libc::O_PATH != 0 {
        // O_PATH | O_NOFOLLOW opens the link itself.
        if kind == libc::S_IFLNK && is_a_link_of_ours(index, dirfd, path) {
            close(fd);
            return Opened::Done(native(dirfd, path, flags & !libc::O_NOFOLLOW, mode));
        }
        if kind == libc::S_IFLNK
            && !stat::is_empty(path)
            && let Some(opened) = brought(index, dirfd, path, false)
        {
            close(fd);
            return opened;
        }
        data::forget(fd);
        return Opened::Done(fd as isize);
    }
    if kind != libc::S_IFREG {
        data::forget(fd);
        return Opened::Done(fd as isize);
    }
    if let Some(number) = data::record_of(index, fd, &status) {
        return accept_object(index, fd, number, &status, flags, attempt, stays);
    }
    if data::is_unrecorded(index, &status) {
        data::opened_unrecorded(fd, flags & libc::O_ACCMODE != libc::O_RDONLY);
        return Opened::Done(truncated(fd, flags));
    }
    if status.st_dev != index.header.root_dev.load(Relaxed) {
        data::not_placed(fd);
        return Opened::Done(truncated(fd, flags));
    }
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        accept_durable_writing(index, fd, &status, flags, replace)
    } else {
        accept_durable_reading(index, fd, &status, flags)
    }
}

/// No replica to read instead and nothing that ever moved: whatever the kernel opened is right, and a look would only
/// count. A process's first opens are all counted, later ones by looking at one of `SAMPLE`.
fn is_fine_for_reading(index: Index) -> bool {
    index.header.clean_count.load(Acquire) <= 0
        && index.header.moves_seq.load(Relaxed) == 0
        && !needs_roots_file(index)
        && {
            let opens = OPENS.fetch_add(1, Relaxed);
            opens >= COUNTED && !opens.is_multiple_of(SAMPLE)
        }
}

/// How many opens for reading the one just looked at stands for.
fn opens_meant(index: Index) -> u64 {
    let sampled = index.header.clean_count.load(Relaxed) <= 0
        && index.header.moves_seq.load(Relaxed) == 0
        && OPENS.load(Relaxed) > COUNTED;
    if sampled { SAMPLE as u64 } else { 1 }
}

fn truncated(fd: i32, flags: i32) -> isize {
    if flags & libc::O_TRUNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
        // The open may have waited, for a lease or for the agent.
        if !caller::is_still_there() {
            close(fd);
            return -(libc::EINTR as isize);
        }
        // SAFETY: our descriptor; the hook counts placed files.
        if unsafe { crate::data_calls::ftruncate(fd, 0) } < 0 {
            let errno = real::errno();
            close(fd);
            return -(errno as isize);
        }
    }
    fd as isize
}

fn accept_object(
    index: Index,
    fd: i32,
    number: u32,
    status: &libc::stat,
    flags: i32,
    attempt: usize,
    stays: &mut Option<u32>,
) -> Opened {
    let record = link::record(&index, number);
    let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
    // One that is mapped, or locked, by a program of this node stays where it is.
    if needs_roots_file(index) && *stays != Some(number) && record.state() != State::Dead {
        close(fd);
        return match materialise(index, number) {
            libc::EBUSY => {
                *stays = (attempt + 1 >= SETTLES).then_some(number);
                Opened::Again
            }
            libc::EIO => Opened::Again,
            // A name that is given to one new file after another is waited for: bound, a file could not follow what other nodes write.
            _ => Opened::Wait,
        };
    }
    match record.state() {
        State::Clean if writable => {
            // By the name while it was committed, or by a reader's descriptor (/proc/self/fd): its replica must be current.
            close(fd);
            call(index, &Request { kind: CallKind::Promote, record: number, size: 0, path: b"", fd: -1 });
            return Opened::Again;
        }
        // Only a reader passes here while a commit runs: the lease holds writers back until it has ended.
        State::Committing if writable => {
            close(fd);
            return Opened::Wait;
        }
        // Committed or moved while we were on the way: the name leads elsewhere now. A descriptor's magic link doesn't,
        // and what it leads to is what the program holds already.
        State::Clean | State::Durable | State::Moved if writable || attempt < 3 => {
            close(fd);
            process::sleep_us(100);
            return Opened::Again;
        }
        _ => {}
    }
    if writable && caller::is_supervisor() && !data::bind(index, number) {
        close(fd);
        return Opened::Again;
    }
    record.used_at.store(index.header.now.load(Relaxed), Relaxed);
    let opens = if writable { 1 } else { opens_meant(index) };
    index.header.opens_tier.fetch_add(opens, Relaxed);
    if !writable {
        index.reads.of_object(status.st_ino, status.st_size as u64, opens);
    }
    habits::opened(index, record, if writable { WRITING_AGAIN } else { opens as u32 });
    data::opened(index, fd, number, writable);
    Opened::Done(truncated(fd, flags))
}

fn accept_durable_writing(index: Index, fd: i32, status: &libc::stat, flags: i32, replace: &mut bool) -> Opened {
    if index.header.clean_count.load(Acquire) > 0
        && let Some(number) = index.record_of_root_ino(status.st_ino)
    {
        let record = link::record(&index, number);
        let is_of_record = record.durable_ino.load(Acquire) == status.st_ino;
        if is_of_record && record.state() == State::Committing {
            // Renamed a moment ago, and not yet known to be equal to its object: it must not change before it is.
            close(fd);
            return Opened::Wait;
        }
        if is_of_record && record.state() == State::Clean {
            let mut name = Path::new();
            name.of_descriptor(fd);
            close(fd);
            let request = Request { kind: CallKind::Promote, record: number, size: 0, path: name.get(), fd: -1 };
            if call(index, &request).status != 0 {
                record.change_state(State::Clean, State::Durable);
                publish(index, EventKind::Invalidated, number, name.get(), b"");
            }
            return Opened::Again;
        }
    }
    let truncates = flags & libc::O_TRUNC != 0 && status.st_size > 0;
    if truncates && *replace && index.header.accepts.load(Relaxed) != 0 {
        let mut name = Path::new();
        let stays = |name: &[u8]| status.st_size as u64 <= SMALL_BYTES && habits::stays_in_root(index, name);
        if name.of_descriptor(fd) && below_root(index, name.get()) && !stays(name.get()) && fstat(fd).st_nlink == 1 {
            // The agent replaces it only if nobody has it open: not even we.
            close(fd);
            *replace = false;
            let request = Request { kind: CallKind::Replace, record: u32::MAX, size: 0, path: name.get(), fd: -1 };
            if call(index, &request).status != 0 {
                index.header.fallbacks.fetch_add(1, Relaxed);
            }
            return Opened::Again;
        }
    }
    index.header.opens_durable.fetch_add(1, Relaxed);
    data::not_placed(fd);
    Opened::Done(truncated(fd, flags))
}

fn is_replica_of(replica: &libc::stat, durable: &libc::stat, record: &Record) -> bool {
    replica.st_size == durable.st_size
        && (replica.st_mtime, replica.st_mtime_nsec) == (durable.st_mtime, durable.st_mtime_nsec)
        && record.object_ino.load(Acquire) == replica.st_ino
        && record.durable_ino.load(Acquire) == durable.st_ino
        && record.state() == State::Clean
}

/// A clean replica in a tier serves the reader, if there is one.
fn accept_durable_reading(index: Index, fd: i32, status: &libc::stat, flags: i32) -> Opened {
    data::not_placed(fd);
    if index.header.clean_count.load(Acquire) > 0
        && flags & (libc::O_DIRECT | libc::O_TRUNC) == 0
        && let Some((replica, number)) = open_replica(index, status, flags)
    {
        // SAFETY: two descriptors of ours.
        unsafe { gate::call3(libc::SYS_dup3, replica as usize, fd as usize, (flags & libc::O_CLOEXEC) as usize) };
        close(replica);
        LOOKS_FOR_REPLICAS.store(LOOKS_IN_VAIN, Relaxed);
        data::opened(index, fd, number, false);
        return Opened::Done(fd as isize);
    }
    let opens = opens_meant(index);
    index.header.opens_durable.fetch_add(opens, Relaxed);
    index.reads.of_root(status.st_ino, status.st_size as u64, opens);
    Opened::Done(fd as isize)
}

/// Makes the placed file that `path` leads to a real one; for what only the root's own file system can do.
/// True if there was one: then the caller tries its call again.
pub fn materialise_path(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> bool {
    materialise_name(index, dirfd, path, follow) == Some(0)
}

/// As `materialise_path`: the agent's answer. `None`: there was no placed file.
pub fn materialise_name(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> Option<i32> {
    // It is real when it has been brought.
    let _ = elsewhere::brought(index, dirfd, path, follow);
    let number = match follow {
        true => stat::kernel_stat(dirfd, path, 0)
            .and_then(|status| index.record_of_object(status.st_dev, status.st_ino, status.st_nlink)),
        false => link::read(index, dirfd, path).map(|link| link.record),
    };
    number.map(|number| materialise(index, number))
}

macro_rules! open_hooks {
    ($($name:ident($dirfd:expr; $($arg:ident: $ty:ty),*; $path:ident, $flags:expr, $mode:expr);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            real::outcome(open_at($dirfd, $path, $flags, $mode)) as c_int
        }
    )*};
}

// `open` is variadic; its optional mode arrives in the same register either way, and is used only with O_CREAT or O_TMPFILE.
open_hooks! {
    open(libc::AT_FDCWD; path: *const c_char, flags: c_int, mode: u32; path, flags, mode);
    open64(libc::AT_FDCWD; path: *const c_char, flags: c_int, mode: u32; path, flags | libc::O_LARGEFILE, mode);
    openat(dirfd; dirfd: c_int, path: *const c_char, flags: c_int, mode: u32; path, flags, mode);
    openat64(dirfd; dirfd: c_int, path: *const c_char, flags: c_int, mode: u32; path, flags | libc::O_LARGEFILE, mode);
    __open_2(libc::AT_FDCWD; path: *const c_char, flags: c_int; path, flags, 0);
    __open64_2(libc::AT_FDCWD; path: *const c_char, flags: c_int; path, flags | libc::O_LARGEFILE, 0);
    __openat_2(dirfd; dirfd: c_int, path: *const c_char, flags: c_int; path, flags, 0);
    __openat64_2(dirfd; dirfd: c_int, path: *const c_char, flags: c_int; path, flags | libc::O_LARGEFILE, 0);
    creat(libc::AT_FDCWD; path: *const c_char, mode: u32; path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode);
    creat64(libc::AT_FDCWD; path: *const c_char, mode: u32; path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode);
}
