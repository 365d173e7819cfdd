//! A new file: an object in the fastest tier with room, and a link to it in the root.
//!
//!   parent directory ─▶ below the root? ─▶ device ─▶ object (O_EXCL) ─▶ record ─▶ link ─▶ event
//!
//! Invariant: the link is made last, so whoever finds the name finds a whole, registered object; and making it is the one
//! atomic step that says who created the file (EEXIST: somebody else did).
//! A small file of a program that makes such is made natively (`habits`).
//! What can't be placed (no room, another file system, a mode its owner may not read) is created natively.

use crate::events::{publish, wake_agent};
use crate::link::{LINK_MAX, record};
use crate::path::{Parent, Path, below_root, descriptor_link, split};
use crate::{caller, data, gate, habits, inside, link, open, placed, process, recent, spill, stat};
use core::ffi::c_char;
use core::sync::atomic::{AtomicU64, Ordering::*};
use terrace_index::habits::Key;
use terrace_index::ring::EventKind;
use terrace_index::{Device, Index, NAME_LEN, State};

/// A device with less than this free takes no new files.
const ROOM_MIN: i64 = 64 << 10;
const UNCOUNTED_ROOM_MAX: i64 = 1 << 30;

pub enum Created {
    /// The raw result of the open: a descriptor, or what the program must see.
    Done(isize),
    /// Not for a tier: create it natively.
    Native,
}

/// Creates `path` as a placed file.
pub fn create(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> Created {
    if index.header.accepts.load(Acquire) == 0 || mode & 0o400 == 0 {
        return Created::Native;
    }
    if open::needs_roots_file(index) {
        return create_in_root(index, dirfd, path, flags, mode);
    }
    if let Some(fd) = create_inside(index, dirfd, path, flags, mode) {
        return Created::Done(fd);
    }
    // Its directory has to be looked at for a tier only.
    if let Some(created) = create_small(index, habits::of_path(index, path), dirfd, path, flags, mode) {
        return created;
    }
    let place = match directory_of(index, dirfd, path) {
        Ok(Some(place)) => place,
        Ok(None) => return spill::create(index, dirfd, path, flags, mode).map_or(Created::Native, spilled),
        Err(error) => return Created::Done(error),
    };
    let habit = habits::of(index, place.name.get());
    if placed::any(index)
        && let Some(created) = create_small(index, habit, dirfd, path, flags, mode)
    {
        return created;
    }
    let Some(number) = index.take_record() else { return Created::Native };
    record(&index, number).habit.store(habit.map_or(0, Key::number), Relaxed);
    match create_object(index, number, flags, mode, place.group) {
        Some(object) => link_object(index, number, object, dirfd, path, &place.name),
        None => {
            index.free_record(number);
            Created::Native
        }
    }
}

/// A new file of a placed directory that lies elsewhere.
fn spilled(result: isize) -> Created {
    data::forget(result as i32);
    Created::Done(result)
}

/// In a placed directory that is known: the kernel makes it there. `None`: to be looked at more closely.
fn create_inside(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> Option<isize> {
    let directory = inside::placed_directory(index, dirfd, path)?;
    let fd = open::native(dirfd, path, flags | libc::O_EXCL, mode);
    if fd == -(libc::EEXIST as isize) && flags & libc::O_EXCL != 0 {
        return Some(fd);
    }
    if fd < 0 {
        return None;
    }
    let found = stat::kernel_stat(fd as i32, c"".as_ptr(), libc::AT_EMPTY_PATH);
    if found.is_some_and(|found| found.st_dev == directory.dev) {
        index.header.creates_tier.fetch_add(1, Relaxed);
        data::opened_unrecorded(fd as i32, flags & libc::O_ACCMODE != libc::O_RDONLY);
    } else {
        // The name leads to another directory since.
        made_natively(index, fd as i32);
    }
    Some(fd)
}

/// Natively, but through no link: one of ours may have been made since we looked.
fn create_in_root(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> Created {
    if flags & libc::O_EXCL != 0 {
        return Created::Native; // the kernel follows none then
    }
    Created::Done(create_new(index, dirfd, path, flags, mode))
}

fn create_new(index: Index, dirfd: i32, path: *const c_char, flags: i32, mode: u32) -> isize {
    let fd = spill::with_root_room(|| open::native(dirfd, path, flags | libc::O_EXCL, mode));
    if fd >= 0 {
        made_natively(index, fd as i32);
    }
    fd
}

fn made_natively(index: Index, fd: i32) {
    data::forget(fd);
    open::forget_last_file(index, fd);
    index.header.creates_durable.fetch_add(1, Relaxed);
}

/// A file that is small by its program's habit, in the root. `None`: it goes to a tier.
fn create_small(
    index: Index,
    habit: Option<Key>,
    dirfd: i32,
    path: *const c_char,
    flags: i32,
    mode: u32,
) -> Option<Created> {
    let key = habit.filter(|key| index.habits.is_known(*key))?;
    // Each write would wait for the disk.
    if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 {
        index.habits.gained(key);
        return None;
    }
    if !index.habits.is_for_root(key) {
        return None;
    }
    let fd = create_new(index, dirfd, path, flags, mode);
    if matches!(-fd as i32, libc::ENOSPC | libc::EDQUOT) {
        index.habits.gained(key);
        return None;
    }
    if fd >= 0 {
        index.header.creates_small.fetch_add(1, Relaxed);
        index.header.small_in_root.store(1, Release);
        data::opened_small(index, fd as i32);
    }
    Some(Created::Done(fd))
}

/// Where a new file is to be.
struct Place {
    /// Its canonical path.
    name: Path,
    /// The group that it inherits (setgid directory), or -1.
    group: i32,
}

/// Looks at the directory of a new file; `None` if the file is not for us.
fn directory_of(index: Index, dirfd: i32, path: *const c_char) -> Result<Option<Place>, isize> {
    // SAFETY: the program's C string, which the caller has looked at.
    let bytes = unsafe { core::ffi::CStr::from_ptr(path) }.to_bytes();
    let Some((dir, base)) = split(bytes) else { return Ok(None) };
    let mut text = Path::new();
    if !text.push(if dir.is_empty() { b"." } else { dir }) {
        return Err(-(libc::ENAMETOOLONG as isize));
    }
    // Each file that is made there changes its times, which are nothing to us: no server is asked for them.
    let status = stat::kernel_stat_or_error(dirfd, text.as_ptr(), libc::AT_STATX_DONT_SYNC)?;
    if !takes_files(index, &status) {
        if placed::any(index) && index.device_of_dev(status.st_dev) {
            inside::ask(index, dirfd, path); // for the next one
        }
        return Ok(None);
    }
    let mut name = Path::new();
    if !known_directory(index, dirfd, text.get(), &status, &mut name) {
        let parent = match Parent::of(dirfd, path)? {
            Some(parent) => parent,
            None => return Ok(None),
        };
        let has_default_acl = has_default_acl(&parent);
        if has_default_acl || !name.of_descriptor(parent.fd) || !below_root(index, name.get()) {
            return Ok(None);
        }
        recent::remember(index, dirfd, text.get(), &status, name.get());
    }
    if !name.push(b"/") || !name.push(base) {
        return Ok(None);
    }
    let group = if status.st_mode & libc::S_ISGID != 0 { status.st_gid as i32 } else { -1 };
    Ok(Some(Place { name, group }))
}

fn known_directory(index: Index, dirfd: i32, text: &[u8], status: &libc::stat, name: &mut Path) -> bool {
    recent::find(index, dirfd, text, status, name)
}

/// A directory on the root's file system in which others may follow our links: not one like /tmp (fs.protected_symlinks).
fn takes_files(index: Index, status: &libc::stat) -> bool {
    status.st_mode & libc::S_IFMT == libc::S_IFDIR
        && status.st_dev == index.header.root_dev.load(Relaxed)
        && others_may_follow(status)
}

/// Not a directory like /tmp (fs.protected_symlinks).
pub fn others_may_follow(directory: &libc::stat) -> bool {
    directory.st_mode & (libc::S_ISVTX | libc::S_IWOTH) != libc::S_ISVTX | libc::S_IWOTH
}

/// A default ACL must be applied by the directory's own file system.
pub fn has_default_acl(parent: &Parent) -> bool {
    let link = descriptor_link(parent.fd);
    // SAFETY: terminated strings; a size of 0 only asks.
    let size = unsafe {
        gate::call4(libc::SYS_getxattr, link.as_ptr() as usize, c"system.posix_acl_default".as_ptr() as usize, 0, 0)
    };
    size > 0
}

/// Of a link for which the root has no room, 5 ms apart.
const LINK_TRIES: u32 = 20;

struct Object {
    fd: i32,
    path: [u8; LINK_MAX],
}

/// The object file, on the best device that takes it; fills the record.
fn create_object(index: Index, number: u32, flags: i32, mode: u32, group: i32) -> Option<Object> {
    let record = record(&index, number);
    let random = random();
    record.random.store(random, Release);
    let mut tried = 0u32;
    while let Some(device) = best_device(index, tried) {
        tried |= 1 << device;
        record.device.store(device, Release);
        let mut path = [0; LINK_MAX];
        link::object_path(index, number, &mut path);
        let kept = flags & !(libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_DIRECTORY);
        // SAFETY: a terminated path of ours; a zeroed stat is valid.
        unsafe {
            let fd = gate::call4(
                libc::SYS_openat,
                libc::AT_FDCWD as usize,
                path.as_ptr() as usize,
                (kept | libc::O_CREAT | libc::O_EXCL) as usize,
                mode as usize,
            );
            if fd < 0 {
                continue;
            }
            let mut status: libc::stat = core::mem::zeroed();
            let known = gate::call2(libc::SYS_fstat, fd as usize, &raw mut status as usize) == 0;
            let inherits =
                group < 0 || gate::call3(libc::SYS_fchown, fd as usize, usize::MAX, group as u32 as usize) == 0;
            // Another group takes these bits away, which a file that the root's own file system makes keeps.
            if inherits && group >= 0 && status.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
                gate::call2(libc::SYS_fchmod, fd as usize, (status.st_mode & 0o7777) as usize);
            }
            if !known || !inherits || status.st_mode & 0o400 == 0 {
                gate::call1(libc::SYS_unlink, path.as_ptr() as usize);
                gate::call1(libc::SYS_close, fd as usize);
                return None;
            }
            record.object_ino.store(status.st_ino, Release);
            index.reads.made(status.st_ino);
            record.used_at.store(index.header.now.load(Relaxed), Relaxed);
            return Some(Object { fd: fd as i32, path });
        }
    }
    None
}

fn link_object(index: Index, number: u32, object: Object, dirfd: i32, path: *const c_char, name: &Path) -> Created {
    let record = record(&index, number);
    let key = index.object_key(record.device.load(Relaxed), record.object_ino.load(Relaxed));
    if !index.table_put(key, number) {
        return undo(index, number, &object, Created::Native);
    }
    record.set_state(State::Current);
    if caller::is_supervisor() {
        data::bind(index, number);
        caller::announce(number, record.serial.load(Relaxed));
    }
    let linked = make_link(index, &object, dirfd, path);
    if linked < 0 {
        index.table_remove(key, number);
        // No links there, or no room for one: a long text needs a block, an empty file doesn't.
        let native = matches!(-linked as i32, libc::EPERM | libc::EOPNOTSUPP | libc::ENOSPC | libc::EDQUOT);
        return undo(index, number, &object, if native { Created::Native } else { Created::Done(linked) });
    }
    publish(index, EventKind::Created, number, name.get(), b"");
    index.header.creates_tier.fetch_add(1, Relaxed);
    data::opened(index, object.fd, number, true);
    habits::made(index, object.fd, number);
    Created::Done(object.fd as isize)
}

/// A long text needs a block of the root's file system, and what a program has just removed there may still be held open by the
/// agent: it lets go as soon as it hears of the removal.
fn make_link(index: Index, object: &Object, dirfd: i32, path: *const c_char) -> isize {
    let mut tries = 0;
    loop {
        // SAFETY: terminated strings.
        let linked =
            unsafe { gate::call3(libc::SYS_symlinkat, object.path.as_ptr() as usize, dirfd as usize, path as usize) };
        tries += 1;
        if linked != -(libc::ENOSPC as isize) || tries > LINK_TRIES {
            return linked;
        }
        wake_agent(index);
        process::sleep_us(5000);
    }
}

fn undo(index: Index, number: u32, object: &Object, result: Created) -> Created {
    // SAFETY: our own object and descriptor.
    unsafe {
        gate::call1(libc::SYS_unlink, object.path.as_ptr() as usize);
        gate::call1(libc::SYS_close, object.fd as usize);
    }
    index.free_record(number);
    result
}

/// What a new file may need before somebody looks: of a program that counts nothing, a part of the device.
pub fn room_min(device: &Device) -> i64 {
    match caller::is_supervisor() {
        true => (device.capacity.load(Relaxed) / 8).clamp(ROOM_MIN, UNCOUNTED_ROOM_MAX),
        false => ROOM_MIN,
    }
}

/// The fastest tier with room that was not tried; in it, the device with the most room.
fn best_device(index: Index, tried: u32) -> Option<u32> {
    let mut best: Option<(u32, u32, i64)> = None;
    for (number, device) in index.devices().iter().enumerate() {
        let free = device.free();
        if tried & 1 << number != 0 || device.accepts.load(Relaxed) == 0 || free < room_min(device) {
            continue;
        }
        let tier = device.tier.load(Relaxed);
        if best.is_none_or(|(_, best_tier, best_free)| tier < best_tier || tier == best_tier && free > best_free) {
            best = Some((number as u32, tier, free));
        }
    }
    best.map(|(number, ..)| number)
}

/// 64 random bits for an object's name.
pub fn random() -> u64 {
    static FALLBACK: AtomicU64 = AtomicU64::new(1);
    if let Some(random) = process::random() {
        return random;
    }
    // A kernel without getrandom: unique is enough then, O_EXCL does the rest.
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: our timespec.
    unsafe { gate::call2(libc::SYS_clock_gettime, libc::CLOCK_REALTIME as usize, &raw mut time as usize) };
    let count = FALLBACK.fetch_add(1, Relaxed);
    (time.tv_nsec as u64 ^ (process::pid() as u64) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(count)
}

const _: () = assert!(NAME_LEN + 1 < LINK_MAX);
