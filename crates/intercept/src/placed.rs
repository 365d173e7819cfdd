//! Placed directories as programs know them: where in the root what lies in them is, and where `..` leads from their top.
//!
//! The kernel, following the link, is in the tier from there on. Three things tell that to a program: `..` of the top, the text of its
//! working directory (or of a descriptor's magic link), and `st_dev` with `st_ino`. Each is answered here.
//!
//! Invariant: while there is no placed directory, all of this costs one look at a number. What is done with a path is decided by asking
//! the kernel and the agent where it leads at that moment; what is only told (`st_dev`, `st_ino`, a name) may be known from before
//! (`inside.rs`).

use crate::agent_call::{Request, call};
use crate::inside::{self, Directory};
use crate::link::{self, Link};
use crate::path::{Path, below_root};
use crate::remembered::Remembered;
use crate::{caller, climbing, gate, process, readable, spill, stat};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering::*};
use terrace_index::calls::CallKind;
use terrace_index::{INSIDE_BASE, Index, State};

#[inline]
pub fn any(index: Index) -> bool {
    index.header.directories.load(Relaxed) > 0
}

/// A name may lead to another directory now: what is remembered of that holds no more.
#[inline]
pub fn ways_changed() {
    if let Some(index) = process::index().filter(|&index| any(index)) {
        index.header.ways.fetch_add(1, SeqCst);
    }
}

pub fn is_directory(index: &Index, link: &Link) -> bool {
    link::record(index, link.record).state() == State::Directory
}

/// The link of ours at a name, if it is a placed directory's.
pub fn link_at(index: Index, dirfd: i32, path: *const c_char) -> Option<Link> {
    if !any(index) {
        return None;
    }
    link::read(index, dirfd, path).filter(|link| is_directory(&index, link))
}

/// The name of the placed directory that was asked for last.
#[derive(Clone, Copy)]
struct Named {
    of: Naming,
    len: usize,
    name: [u8; NAMED_MAX],
}

/// A record, as long as nothing was renamed, and for at most a second.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Naming {
    record: u32,
    serial: u64,
    now: u32,
    renames: u32,
    ways: u32,
}

impl Naming {
    fn of(index: Index, record: u32) -> Naming {
        let header = &index.header;
        Naming {
            record,
            serial: link::record(&index, record).serial.load(Acquire),
            now: header.now.load(Relaxed),
            renames: header.dir_renamed.load(Acquire),
            ways: header.ways.load(Acquire),
        }
    }
}

const NAMED_MAX: usize = 256;
static NAMED: Remembered<Named> = Remembered::new(Named {
    of: Naming { record: 0, serial: 0, now: 0, renames: 0, ways: 0 },
    len: 0,
    name: [0; NAMED_MAX],
});

/// A placed directory's name in the root.
fn name_of(index: Index, record: u32, out: &mut Path) -> bool {
    let of = Naming::of(index, record);
    let answer = call(index, &Request { kind: CallKind::PathOf, record, size: 0, path: b"", fd: -1 });
    out.clear();
    if answer.status != 0 {
        return false;
    }
    // SAFETY: a status of 0 comes with a whole reply.
    let reply = unsafe { &*answer.reply() };
    let name = &reply.path[..(reply.path_len as usize).min(terrace_index::PATH_MAX)];
    if name.len() <= NAMED_MAX {
        let mut named = Named { of, len: name.len(), name: [0; NAMED_MAX] };
        named.name[..name.len()].copy_from_slice(name);
        NAMED.write(named);
    }
    out.push(name)
}

/// As `name_of`, where it is only told.
fn told_name_of(index: Index, record: u32, out: &mut Path) -> bool {
    let of = Naming::of(index, record);
    let known = NAMED.read(|named| (named.of == of && named.len > 0).then_some(*named));
    match known {
        Some(named) => {
            out.clear();
            out.push(&named.name[..named.len])
        }
        None => name_of(index, record, out),
    }
}

/// What a canonical path in a tier is called in the root, to be told; false for all that lies in no placed directory.
pub fn shown(index: Index, text: &[u8], out: &mut Path) -> bool {
    shown_by(index, text, out, told_name_of)
}

/// As `shown`, where something is made by it.
pub fn shown_now(index: Index, text: &[u8], out: &mut Path) -> bool {
    shown_by(index, text, out, name_of)
}

fn shown_by(index: Index, text: &[u8], out: &mut Path, name_of: impl Fn(Index, u32, &mut Path) -> bool) -> bool {
    if !any(index) {
        return false;
    }
    if let Some((record, rest)) = index.inside(text) {
        return name_of(index, record, out) && out.push(rest);
    }
    index.container(text).is_some_and(|record| name_above(index, record, out))
}

/// The directory in the root in which a placed directory has its name.
fn name_above(index: Index, record: u32, out: &mut Path) -> bool {
    let mut name = Path::new();
    if !name_of(index, record, &mut name) || !below_root(index, name.get()) {
        return false;
    }
    let end = name.get().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    out.clear();
    out.push(&name.get()[..end.max(1)])
}

/// The number by which inodes in this canonical directory (or of this file) differ from what programs see.
pub fn inode_base(index: Index, text: &[u8]) -> Option<u64> {
    let device = match index.inside(text) {
        Some((record, _)) => link::record(&index, record).device.load(Relaxed) as u64,
        None => spill::device_of(index, text)? as u64,
    };
    Some(INSIDE_BASE * (1 + device))
}

/// As `inode_base`, by a descriptor.
pub fn inode_base_of(index: Index, fd: i32) -> Option<u64> {
    let mut name = Path::new();
    if name.of_descriptor(fd) { inode_base(index, name.get()) } else { None }
}

/// What lies in a placed directory gets the root's device, and an inode number that the root has not.
pub fn rewrite(index: Index, dirfd: i32, path: *const c_char, flags: i32, status: &mut libc::stat) {
    rewrite_known(index, dirfd, path, flags, status, None);
}

/// As `rewrite`, of what is itself in this directory, and not behind a link there.
pub fn rewrite_known(
    index: Index,
    dirfd: i32,
    path: *const c_char,
    flags: i32,
    status: &mut libc::stat,
    known: Option<Directory>,
) {
    if !any(index) || !index.device_of_dev(status.st_dev) || status.st_ino >= INSIDE_BASE {
        return;
    }
    let is_top = status.st_mode & libc::S_IFMT == libc::S_IFDIR;
    if is_top && let Some(number) = index.record_of_object(status.st_dev, status.st_ino, status.st_nlink) {
        status.st_dev = index.header.root_dev.load(Relaxed);
        status.st_ino = link::record(&index, number).ino.load(Relaxed);
        return;
    }
    let is_link = status.st_mode & libc::S_IFMT == libc::S_IFLNK;
    let length = |dirfd: i32, path: *const c_char| if is_link { climbing::length(index, dirfd, path) } else { None };
    let look = |fd: i32| (inode_base_of(index, fd), length(fd, c"".as_ptr()));
    let by_descriptor = path.is_null() || stat::is_empty(path);
    let seen = if by_descriptor { inside::base_of_seen(index, status) } else { None };
    let (base, length) = if seen.is_some() {
        (seen, None)
    } else if by_descriptor {
        if dirfd == libc::AT_FDCWD { (working_directory_base(index), None) } else { look(dirfd) }
    } else if let Some(directory) = known.or_else(|| directory_of(index, dirfd, path, flags, status)) {
        (directory.base(), directory.base().and_then(|_| length(dirfd, path)))
    } else {
        let flags =
            libc::O_PATH | libc::O_CLOEXEC | if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
        // SAFETY: the program's path; a descriptor of ours.
        unsafe {
            let fd = gate::call4(libc::SYS_openat, dirfd as usize, path as usize, flags as usize, 0);
            if fd < 0 {
                return;
            }
            let found = look(fd as i32);
            gate::call1(libc::SYS_close, fd as usize);
            found
        }
    };
    if let Some(length) = length {
        status.st_size = length as i64;
    }
    if let Some(base) = base {
        if seen.is_none() {
            inside::remember_seen(index, status, base);
        }
        status.st_dev = index.header.root_dev.load(Relaxed);
        status.st_ino = status.st_ino.wrapping_add(base);
    }
}

/// As `rewrite_known`, of a file or directory in it. False: it needs a closer look.
pub fn rewrite_statx(index: Index, directory: Directory, out: &mut libc::statx) -> bool {
    let Some(base) = directory.base() else { return false };
    let dev = libc::makedev(out.stx_dev_major, out.stx_dev_minor);
    let is_plain = matches!(out.stx_mode as u32 & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR);
    if !is_plain || dev != directory.dev || out.stx_ino >= INSIDE_BASE || index.has_object_key(dev, out.stx_ino) {
        return false;
    }
    let root = index.header.root_dev.load(Relaxed);
    (out.stx_dev_major, out.stx_dev_minor) = (libc::major(root), libc::minor(root));
    out.stx_ino = out.stx_ino.wrapping_add(base);
    true
}

/// The directory in which this file is itself; `None`: it may be behind a link, or elsewhere.
fn directory_of(index: Index, dirfd: i32, path: *const c_char, flags: i32, status: &libc::stat) -> Option<Directory> {
    let directory = inside::ask(index, dirfd, path).filter(|directory| directory.dev == status.st_dev)?;
    let is_itself = || {
        let found = stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW);
        found.is_some_and(|found| (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino))
    };
    (flags & libc::AT_SYMLINK_NOFOLLOW != 0 || is_itself()).then_some(directory)
}

/// What the kernel found at a path lies in a placed directory, or is one.
pub fn is_inside(index: Index, dirfd: i32, path: *const c_char, found: &libc::stat) -> bool {
    let mut seen = *found;
    rewrite(index, dirfd, path, 0, &mut seen);
    seen.st_dev != found.st_dev
}

fn working_directory_base(index: Index) -> Option<u64> {
    let mut text = Path::new();
    if text.of_working_directory() { inode_base(index, text.get()) } else { None }
}

/// A path whose `..` have been led out of placed directories by way of the root.
pub struct Way {
    dirfd: i32,
    path: *const c_char,
    text: Option<Path>,
}

impl Way {
    /// As it is, unless it goes up from the top of a placed directory.
    #[inline]
    pub fn of(dirfd: i32, path: *const c_char) -> Way {
        let text = match process::index() {
            Some(index) if any(index) => translate(index, dirfd, path),
            _ => None,
        };
        Way { dirfd, path, text }
    }

    /// The path spelt out, if it had to be.
    pub fn text(&self) -> Option<&Path> {
        self.text.as_ref()
    }

    pub fn dirfd(&self) -> i32 {
        self.dirfd
    }

    pub fn path(&self) -> *const c_char {
        self.text.as_ref().map_or(self.path, Path::as_ptr)
    }
}

fn translate(index: Index, dirfd: i32, path: *const c_char) -> Option<Path> {
    // SAFETY: what was found to be a C string.
    if !readable::is_text(path) || !may_start_in_container(dirfd, path) && !unsafe { process::has_dots(path) } {
        return None;
    }
    // SAFETY: the program's C string.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let goes_up = |name: &[u8]| name == b"..";
    let mut built = Path::new();
    let mut changed = starts_in_container(index, dirfd, bytes, &mut built);
    if !changed && !bytes.split(|&byte| byte == b'/').any(goes_up) {
        return None;
    }
    if bytes.starts_with(b"/") && !changed && !built.push(b"/") {
        return None;
    }
    let rest = if changed { after_start(bytes) } else { bytes };
    let mut parts = rest.split(|&byte| byte == b'/').peekable();
    while let Some(part) = parts.next() {
        if part.is_empty() && parts.peek().is_some() {
            continue;
        }
        if goes_up(part) && go_up(index, dirfd, &mut built) {
            changed = true;
            continue;
        }
        let separator: &[u8] = if matches!(built.get().last(), None | Some(b'/')) { b"" } else { b"/" };
        if !built.push(separator) || !built.push(part) {
            return None;
        }
    }
    changed.then_some(built)
}

/// `/proc/TID/cwd` and `/proc/TID/fd/N`, by which the supervisor names where a program is: how long that is, if the text begins so.
fn magic_start(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"/proc/")?;
    let digits = rest.iter().position(|&byte| byte == b'/')?;
    let end = if rest[digits..].starts_with(b"/cwd") {
        digits + 4
    } else {
        let number = rest[digits..].strip_prefix(b"/fd/")?;
        digits + 4 + number.iter().position(|&byte| byte == b'/').unwrap_or(number.len())
    };
    matches!(rest.get(end), None | Some(b'/')).then_some(b"/proc/".len() + end)
}

/// What follows the directory that a path starts in.
fn after_start(bytes: &[u8]) -> &[u8] {
    magic_start(bytes).map_or(bytes, |end| &bytes[end..])
}

/// Whether `starts_in_container` has to look.
fn may_start_in_container(dirfd: i32, path: *const c_char) -> bool {
    // SAFETY: the program's C string.
    match unsafe { *path } as u8 {
        0 => false,
        b'/' => unsafe { *path.add(1) as u8 == b'p' },
        _ => caller::is_supervisor() || may_start_beside(dirfd),
    }
}

/// A program that has this library goes up by it; but it may have been started from beside a placed directory.
fn may_start_beside(dirfd: i32) -> bool {
    dirfd == libc::AT_FDCWD && !process::has_changed_directory() && !STARTED_ELSEWHERE.load(Relaxed)
}

/// The kernel has led the program into a container (a chdir by `..` that we could not do for it): it is where that stands for.
fn starts_in_container(index: Index, dirfd: i32, bytes: &[u8], out: &mut Path) -> bool {
    let mut text = Path::new();
    let found = match (bytes.first(), magic_start(bytes)) {
        (None, _) => false,
        (Some(b'/'), Some(end)) => {
            let mut start = Path::new();
            start.push(&bytes[..end]) && text.of_link(&start)
        }
        (Some(b'/'), None) => false,
        _ if caller::is_supervisor() => text.of_descriptor(dirfd),
        _ if !may_start_beside(dirfd) => false,
        _ => {
            let found = text.of_working_directory();
            STARTED_ELSEWHERE.store(found && index.container(text.get()).is_none(), Relaxed);
            found
        }
    };
    found && index.container(text.get()).is_some_and(|record| name_above(index, record, out))
}

/// This process was not started in a container: no other directory becomes one.
static STARTED_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Where a program of its own goes up from a placed directory, and on to a name: its container gets a link of that name, so that the
/// kernel goes there. For calls that nobody can do for it (chdir, exec). False: it would go up further, where nothing leads it.
pub fn make_way(index: Index, dirfd: i32, path: *const c_char) -> bool {
    if !any(index) || !readable::is_text(path) {
        return true;
    }
    // SAFETY: the caller's C string.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut built = Path::new();
    let mut text = Path::new();
    let start = magic_start(bytes);
    let begins = match start {
        Some(end) => built.push(&bytes[..end]),
        None if bytes.starts_with(b"/") => built.push(b"/"),
        None => built.push(b"."),
    };
    if !begins || !where_is(dirfd, &built, &mut text) {
        return true;
    }
    let mut above = index.container(text.get());
    for part in after_start(bytes).split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
        match (above, part) {
            (Some(_), b"..") => return false,
            (Some(record), name) => {
                if !lead_on(index, record, name, &mut built) {
                    return true; // the kernel says what is wrong
                }
                above = None;
            }
            (None, b"..") => {
                if !where_is(dirfd, &built, &mut text) {
                    return true;
                }
                match index.inside(text.get()) {
                    Some((record, b"")) => above = Some(record),
                    _ => {
                        if !built.push(b"/..") {
                            return true;
                        }
                    }
                }
            }
            (None, name) => {
                if !built.push(b"/") || !built.push(name) {
                    return true;
                }
            }
        }
    }
    true
}

fn where_is(dirfd: i32, path: &Path, text: &mut Path) -> bool {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a terminated path of ours; a descriptor of ours.
    unsafe {
        let fd = gate::call4(libc::SYS_openat, dirfd as usize, path.as_ptr() as usize, flags as usize, 0);
        let found = fd >= 0 && text.of_descriptor(fd as i32);
        if fd >= 0 {
            gate::call1(libc::SYS_close, fd as usize);
        }
        found
    }
}

/// A link in the container to the name beside the placed directory; `built` becomes that name.
fn lead_on(index: Index, record: u32, name: &[u8], built: &mut Path) -> bool {
    let mut target = Path::new();
    if !name_above(index, record, &mut target) || !target.push(b"/") || !target.push(name) {
        return false;
    }
    let mut container = [0; link::LINK_MAX];
    link::container_path(index, record, &mut container);
    let len = container.iter().position(|&byte| byte == 0).unwrap_or(0);
    let mut place = Path::new();
    if !place.push(&container[..len])
        || !place.push(b"/")
        || !place.push(name)
        || name == &terrace_index::DIRECTORY_SUFFIX.as_bytes()[1..]
    {
        return false;
    }
    // SAFETY: terminated paths of ours.
    unsafe {
        gate::call2(libc::SYS_chmod, container.as_ptr() as usize, 0o700);
        // It may be from before the directory got another name.
        gate::call1(libc::SYS_unlink, place.as_ptr() as usize);
        gate::call2(libc::SYS_symlink, target.as_ptr() as usize, place.as_ptr() as usize);
        gate::call2(libc::SYS_chmod, container.as_ptr() as usize, crate::make_directory::CONTAINER_MODE);
    }
    built.clear();
    built.push(target.get())
}

/// From the top of a placed directory to the directory that its name is in.
fn go_up(index: Index, dirfd: i32, at: &mut Path) -> bool {
    let from = if at.get().is_empty() { c".".as_ptr() } else { at.as_ptr() };
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let mut text = Path::new();
    // SAFETY: a terminated path of ours; a descriptor of ours.
    unsafe {
        let fd = gate::call4(libc::SYS_openat, dirfd as usize, from as usize, flags as usize, 0);
        if fd < 0 {
            return false;
        }
        let found = text.of_descriptor(fd as i32);
        gate::call1(libc::SYS_close, fd as usize);
        if !found {
            return false;
        }
    }
    match index.inside(text.get()) {
        Some((record, b"")) => name_above(index, record, at),
        _ => false,
    }
}

/// The directory of a path, and where it is: in a placed directory (the record), or in the root.
pub fn leads_inside(index: Index, fd: i32) -> Option<u32> {
    let mut text = Path::new();
    if !text.of_descriptor(fd) {
        return None;
    }
    index.inside(text.get()).map(|(record, _)| record)
}

/// The supervisor knows what its paths lead to.
pub fn may_be_ours(index: Index, dirfd: i32, path: *const c_char) -> bool {
    caller::is_supervisor() || process::may_be_below_root(index, dirfd, path)
}
