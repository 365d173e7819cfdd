//! Directories as a whole in a tier: mkdir, rmdir, and renames of them, into them and out of them.
//!
//!   mkdir ─▶ the agent: does policy drop all below? ─▶ container and directory in the tier ─▶ link in the root
//!   rmdir ─▶ directory in the tier (ENOTEMPTY?) ─▶ link ─▶ container
//!   rename ─▶ of the top: the link's, by the root's own file system; over the edge: the agent, or EXDEV
//!   link ─▶ over the edge: the agent, or EXDEV
//!
//! Invariant: the link is made last and taken away first of what others can see: who finds the name finds the directory.
//! A kill in between leaves a container that no name leads to, or a link to no directory: recovery clears either.

use crate::agent_call::{Request, call, materialise_below};
use crate::create::others_may_follow;
use crate::events::publish;
use crate::link::{self, LINK_MAX, Link, record};
use crate::names::in_guard;
use crate::path::{Parent, Path};
use crate::placed::{self, Way};
use crate::{gate, process, readable, real, spill, stat};
use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::Ordering::*;
use terrace_index::calls::CallKind;
use terrace_index::ring::EventKind;
use terrace_index::{Index, State};

const CWD: c_int = libc::AT_FDCWD;
const REMOVEDIR: i32 = libc::AT_REMOVEDIR;
pub const CONTAINER_MODE: usize = 0o511;

/// The path without the slashes at its end.
pub fn plain(path: *const c_char, out: &mut Path) -> bool {
    // SAFETY: the program's C string, which the caller has looked at.
    let text = unsafe { CStr::from_ptr(path) }.to_bytes();
    let len = text.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    len > 0 && out.push(&text[..len])
}

/// The path names a placed directory, maybe with slashes at its end.
pub fn is_placed(index: Index, dirfd: i32, path: *const c_char) -> bool {
    let mut name = Path::new();
    placed::any(index)
        && readable::is_text(path)
        && plain(path, &mut name)
        && placed::link_at(index, dirfd, name.as_ptr()).is_some()
}

/// mkdirat(2), as the kernel returns it.
pub fn mkdir_at(dirfd: i32, path: *const c_char, mode: u32) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    // SAFETY: the program's own arguments.
    let make = || unsafe { gate::call3(libc::SYS_mkdirat, dirfd as usize, path as usize, mode as usize) };
    let native = || {
        let made = spill::with_room(dirfd, path, make);
        if made == 0 {
            count_unplaced(dirfd, path);
        }
        made
    };
    let made = match process::index() {
        Some(index)
            if index.header.places_directories.load(Relaxed) != 0
                && readable::is_text(path)
                && placed::may_be_ours(index, dirfd, path) =>
        {
            place(index, dirfd, path, mode).unwrap_or_else(native)
        }
        _ => native(),
    };
    if made == 0 {
        placed::ways_changed();
    }
    made
}

/// A directory was made in the root, that might have been placed by another setting.
fn count_unplaced(dirfd: i32, path: *const c_char) {
    let Some(index) = process::index() else { return };
    let counts = index.header.counts_directories.load(Relaxed) != 0 && index.header.others.load(Relaxed) == 0;
    let mut name = Path::new();
    if counts
        && process::may_be_below_root(index, dirfd, path)
        && plain(path, &mut name)
        && let Ok(Some(parent)) = Parent::of(dirfd, name.as_ptr())
        && parent.path_below_root(index, &mut Path::new())
    {
        index.header.unplaced_directories.fetch_add(1, Relaxed);
    }
}

/// `None`: it is to be made in the root.
fn place(index: Index, dirfd: i32, path: *const c_char, mode: u32) -> Option<isize> {
    let mut name = Path::new();
    let mut whole = Path::new();
    if !plain(path, &mut name) {
        return None;
    }
    let parent = Parent::of(dirfd, name.as_ptr()).ok()??;
    if !parent.path_below_root(index, &mut whole) {
        return None;
    }
    let status = stat::as_known(parent.fd)?;
    let takes = status.st_dev == index.header.root_dev.load(Relaxed)
        && others_may_follow(&status)
        && !crate::create::has_default_acl(&parent);
    if !takes || stat::kernel_stat(parent.fd, parent.base, libc::AT_SYMLINK_NOFOLLOW).is_some() {
        return None;
    }
    let request = Request { kind: CallKind::MakeDirectory, record: u32::MAX, size: 0, path: whole.get(), fd: -1 };
    let answer = call(index, &request);
    if answer.status != 0 {
        return None;
    }
    // SAFETY: a status of 0 comes with a whole reply.
    let number = unsafe { (*answer.reply()).record };
    let group = if status.st_mode & libc::S_ISGID != 0 { status.st_gid as i32 } else { -1 };
    let made = make(index, number, mode, group, &parent);
    if made == 0 {
        publish(index, EventKind::Created, number, whole.get(), b"");
    }
    match -made as i32 {
        // No links there, or no room for one: a directory may do.
        libc::EPERM | libc::EOPNOTSUPP | libc::ENOSPC | libc::EDQUOT => None,
        _ => Some(made),
    }
}

/// The directory behind a record, and its container.
struct Places {
    directory: [u8; LINK_MAX],
    container: [u8; LINK_MAX],
}

impl Places {
    fn of(index: Index, number: u32) -> Places {
        let mut container = [0; LINK_MAX];
        link::container_path(index, number, &mut container);
        let mut directory = [0; LINK_MAX];
        link::directory_path(index, number, &mut directory);
        Places { directory, container }
    }

    fn open_container(&self, mode: usize) {
        // SAFETY: a terminated path of ours.
        unsafe { gate::call2(libc::SYS_chmod, self.container.as_ptr() as usize, mode) };
    }

    /// rmdir(2) of the directory; a container that it leaves empty stays open for its own removal.
    fn remove_directory(&self) -> isize {
        self.open_container(0o700);
        // SAFETY: a terminated path of ours.
        let removed = unsafe { gate::call1(libc::SYS_rmdir, self.directory.as_ptr() as usize) };
        if removed != 0 {
            self.open_container(CONTAINER_MODE);
        }
        removed
    }

    fn remove_container(&self) {
        // SAFETY: a terminated path of ours.
        unsafe { gate::call1(libc::SYS_rmdir, self.container.as_ptr() as usize) };
    }
}

fn make(index: Index, number: u32, mode: u32, group: i32, parent: &Parent) -> isize {
    let places = Places::of(index, number);
    let record = record(&index, number);
    let at = places.directory.as_ptr();
    // SAFETY: terminated paths of ours; a zeroed stat is valid.
    unsafe {
        let mut made = gate::call2(libc::SYS_mkdir, at as usize, mode as usize);
        if made == 0 && group >= 0 {
            let mut status: libc::stat = core::mem::zeroed();
            gate::call2(libc::SYS_stat, at as usize, &raw mut status as usize);
            made = gate::call3(libc::SYS_chown, at as usize, usize::MAX, group as u32 as usize);
            gate::call2(libc::SYS_chmod, at as usize, (status.st_mode & 0o7777 | libc::S_ISGID) as usize);
        }
        let Some(status) = stat::kernel_stat(CWD, at as *const c_char, 0).filter(|_| made == 0) else {
            places.remove_directory();
            places.remove_container();
            index.free_record(number);
            return -(libc::EPERM as isize); // in the root, then
        };
        places.open_container(CONTAINER_MODE);
        record.object_ino.store(status.st_ino, Release);
        let key = index.object_key(record.device.load(Relaxed), status.st_ino);
        index.table_put(key, number);
        record.set_state(State::Directory);
        index.header.directories.fetch_add(1, SeqCst);
        let linked = gate::call3(libc::SYS_symlinkat, at as usize, parent.fd as usize, parent.base as usize);
        if linked < 0 {
            index.header.directories.fetch_sub(1, SeqCst);
            record.set_state(State::New);
            index.table_remove(key, number);
            places.remove_directory();
            places.remove_container();
            index.free_record(number);
        }
        linked
    }
}

/// unlinkat(2) with AT_REMOVEDIR, as the kernel returns it.
pub fn rmdir_at(dirfd: i32, path: *const c_char) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    // SAFETY: the program's own arguments.
    let result = unsafe { gate::call3(libc::SYS_unlinkat, dirfd as usize, path as usize, REMOVEDIR as usize) };
    let Some(index) = process::index() else { return result };
    if result == 0 {
        placed::ways_changed();
    }
    if result != -(libc::ENOTDIR as isize) || !placed::any(index) || !readable::is_text(path) {
        return result;
    }
    let mut name = Path::new();
    if !plain(path, &mut name) {
        return result;
    }
    let mut removed = None;
    let answer = in_guard(index, || {
        let Some(link) = placed::link_at(index, dirfd, name.as_ptr()) else { return result };
        let gone = remove_link(index, dirfd, name.as_ptr(), &link);
        if gone == 0 {
            removed = Some(link.record);
        }
        gone
    });
    if let Some(number) = removed {
        index.header.ways.fetch_add(1, SeqCst);
        publish(index, EventKind::Removed, number, b"", b"");
    }
    answer
}

/// The directory must be empty; then it goes, and its link. In a guard.
fn remove_link(index: Index, dirfd: i32, name: *const c_char, link: &Link) -> isize {
    let allowed = match Parent::of(dirfd, name) {
        Ok(Some(parent)) => match stat::kernel_stat(parent.fd, parent.base, libc::AT_SYMLINK_NOFOLLOW) {
            Some(status) => parent.may_remove(status.st_uid),
            None => -(libc::ENOENT as isize),
        },
        Ok(None) => 0,
        Err(errno) => errno,
    };
    if allowed != 0 {
        return allowed;
    }
    let places = Places::of(index, link.record);
    let removed = places.remove_directory();
    if removed != 0 {
        return removed;
    }
    index.header.removals_seq.fetch_add(1, SeqCst);
    // SAFETY: the program's path.
    let unlinked = unsafe { gate::call3(libc::SYS_unlinkat, dirfd as usize, name as usize, 0) };
    forget(index, link.record);
    places.remove_container();
    unlinked
}

/// The record of a directory that is gone.
fn forget(index: Index, number: u32) {
    let record = record(&index, number);
    if record.change_state(State::Directory, State::Dead) {
        index.header.directories.fetch_sub(1, SeqCst);
        let ino = record.object_ino.load(Relaxed);
        index.table_remove(index.object_key(record.device.load(Relaxed), ino), number);
        let device = &index.header.devices[record.device.load(Relaxed) as usize % terrace_index::DEVICES];
        device.unreserve(record.reserved.swap(0, AcqRel));
        let root_ino = record.link_ino.load(Relaxed);
        if root_ino != 0 {
            index.table_remove(terrace_index::table::root_key(root_ino), number);
        }
    }
}

/// One end of a rename.
struct End {
    parent: Parent,
    /// The link, if it is a placed directory's.
    link: Option<Link>,
    /// The placed directory in which the name lies.
    inside: Option<u32>,
    kind: Option<u32>,
    owner: u32,
    /// It is named as a directory is: with a slash at its end.
    has_slash: bool,
}

impl End {
    fn of(index: Index, dirfd: i32, path: *const c_char, name: &mut Path) -> Option<End> {
        if !plain(path, name) {
            return None;
        }
        // SAFETY: the program's C string, which the caller has looked at.
        let has_slash = unsafe { CStr::from_ptr(path) }.to_bytes().ends_with(b"/");
        let parent = Parent::of(dirfd, name.as_ptr()).ok()??;
        let link = placed::link_at(index, parent.fd, parent.base);
        let inside = placed::leads_inside(index, parent.fd);
        let status = stat::kernel_stat(parent.fd, parent.base, libc::AT_SYMLINK_NOFOLLOW);
        let (kind, owner) =
            (status.map(|status| status.st_mode & libc::S_IFMT), status.map_or(0, |status| status.st_uid));
        Some(End { parent, link, inside, kind, owner, has_slash })
    }

    fn is_directory(&self) -> bool {
        self.link.is_some() || self.kind == Some(libc::S_IFDIR)
    }

    fn text(&self, out: &mut Path) -> bool {
        out.of_descriptor(self.parent.fd) && out.push(b"/") && out.push(self.parent.base())
    }
}

/// rename(2) where a placed directory is concerned; `None`: none is.
pub fn rename(
    index: Index,
    olddir: i32,
    old: *const c_char,
    newdir: i32,
    new: *const c_char,
    flags: u32,
) -> Option<isize> {
    if !placed::any(index) || !readable::is_text(old) || !readable::is_text(new) {
        return None;
    }
    let (mut first, mut second) = (Path::new(), Path::new());
    let source = End::of(index, olddir, old, &mut first)?;
    let target = End::of(index, newdir, new, &mut second)?;
    let crosses = source.inside.is_some() != target.inside.is_some();
    if source.link.is_none() && target.link.is_none() && !crosses {
        return None;
    }
    let error = |errno: i32| Some(-(errno as isize));
    let exchanges = flags & libc::RENAME_EXCHANGE != 0;
    if source.kind.is_none() {
        return error(libc::ENOENT);
    }
    if flags & libc::RENAME_NOREPLACE != 0 && target.kind.is_some() {
        return error(libc::EEXIST);
    }
    if !exchanges && !source.is_directory() && (source.has_slash || target.has_slash) {
        return error(libc::ENOTDIR);
    }
    if !exchanges && target.kind.is_some() {
        match (source.is_directory(), target.is_directory()) {
            (true, false) => return error(libc::ENOTDIR),
            (false, true) => return error(libc::EISDIR),
            _ => {}
        }
    }
    if let Some(link) = &source.link
        && target.inside == Some(link.record)
    {
        return error(libc::EINVAL);
    }
    let (mut from, mut to) = (Path::new(), Path::new());
    if !source.text(&mut from) || !target.text(&mut to) {
        return error(libc::ENAMETOOLONG);
    }
    if exchanges {
        if crosses || target.inside.is_some() {
            return error(libc::EXDEV);
        }
        return Some(rename_links(index, &source, &target, flags, &from, &to));
    }
    // Into a placed directory a link of the root can't go.
    if source.link.is_some() && target.inside.is_some() {
        return error(libc::EXDEV);
    }
    if crosses {
        return Some(cross(index, &source, &target, &from, &to));
    }
    Some(rename_links(index, &source, &target, flags, &from, &to))
}

/// What is at the target, an empty directory, makes room; then the kernel renames.
fn rename_links(index: Index, source: &End, target: &End, flags: u32, from: &Path, to: &Path) -> isize {
    let exchanges = flags & libc::RENAME_EXCHANGE != 0;
    let same = source.link.as_ref().zip(target.link.as_ref()).is_some_and(|(one, other)| one.record == other.record);
    if same {
        return 0;
    }
    let mut removed = None;
    let result = in_guard(index, || {
        if !exchanges && target.is_directory() {
            let cleared = clear(index, target, &mut removed);
            if cleared != 0 {
                return cleared;
            }
        }
        // SAFETY: both names.
        unsafe {
            gate::call5(
                libc::SYS_renameat2,
                source.parent.fd as usize,
                source.parent.base as usize,
                target.parent.fd as usize,
                target.parent.base as usize,
                flags as usize,
            )
        }
    });
    if let Some(number) = removed {
        publish(index, EventKind::Removed, number, b"", b"");
    }
    if result == 0 {
        let number = |end: &End| end.link.as_ref().map_or(terrace_index::ring::NO_RECORD, |link| link.record);
        index.header.dir_renamed.fetch_add(1, SeqCst);
        publish(index, EventKind::Renamed, number(source), from.get(), to.get());
        if exchanges {
            publish(index, EventKind::Renamed, number(target), to.get(), from.get());
        }
    }
    result
}

/// The directory at the target of a rename goes, if it is empty. In a guard.
fn clear(index: Index, target: &End, removed: &mut Option<u32>) -> isize {
    let (at, name) = (target.parent.fd, target.parent.base);
    let Some(link) = &target.link else {
        // SAFETY: the target's name.
        return unsafe { gate::call3(libc::SYS_unlinkat, at as usize, name as usize, REMOVEDIR as usize) };
    };
    let cleared = remove_link(index, at, name, link);
    if cleared == 0 {
        *removed = Some(link.record);
    }
    cleared
}

/// From a placed directory into the root, or back: the agent does what needs no copying.
fn cross(index: Index, source: &End, target: &End, from: &Path, to: &Path) -> isize {
    for end in [source, target] {
        let allowed = if end.kind.is_some() { end.parent.may_remove(end.owner) } else { end.parent.may_change() };
        if allowed != 0 {
            return allowed;
        }
    }
    let mut both = Path::new();
    if !both.push(from.get()) || !both.push(to.get()) {
        return -(libc::EXDEV as isize);
    }
    let is_there = target.is_directory();
    let mode = match is_there {
        true => stat::kernel_stat(target.parent.fd, target.parent.base, 0).map_or(0o755, |status| status.st_mode),
        false => 0,
    };
    // A directory of the root is copied, as real files.
    if source.is_directory() && source.inside.is_none() && materialise_below(index, from.get()) != 0 {
        return -(libc::EXDEV as isize);
    }
    let mut removed = None;
    let cleared = if is_there { in_guard(index, || clear(index, target, &mut removed)) } else { 0 };
    if is_there {
        placed::ways_changed();
    }
    if let Some(number) = removed {
        publish(index, EventKind::Removed, number, b"", b"");
    }
    if cleared != 0 {
        return cleared;
    }
    let size = from.get().len() as i64;
    let answer = call(index, &Request { kind: CallKind::Cross, record: u32::MAX, size, path: both.get(), fd: -1 });
    if answer.status != 0 && is_there {
        let (at, name) = (target.parent.fd as usize, target.parent.base as usize);
        // SAFETY: the target's name, which gets an empty directory again.
        unsafe { gate::call3(libc::SYS_mkdirat, at, name, (mode & 0o7777) as usize) };
    }
    -(answer.status as isize)
}

/// link(2) of a regular file from a placed directory into the root, or back; `None`: it goes over no edge. By then the file of the root is
/// a real one.
pub fn link_over_edge(
    index: Index,
    (olddir, old): (i32, *const c_char),
    (newdir, new): (i32, *const c_char),
) -> Option<isize> {
    if !placed::any(index) {
        return None;
    }
    let (mut first, mut second) = (Path::new(), Path::new());
    let source = End::of(index, olddir, old, &mut first)?;
    let target = End::of(index, newdir, new, &mut second)?;
    if source.inside.is_some() == target.inside.is_some() || source.has_slash || target.has_slash {
        return None;
    }
    let is_file = source.kind == Some(libc::S_IFREG) || spill::is_at(index, source.parent.fd, source.parent.base);
    if source.is_directory() && target.kind.is_none() {
        return Some(-(libc::EPERM as isize));
    }
    if !is_file || target.kind.is_some() {
        return None; // the kernel says what is wrong, or EXDEV
    }
    let allowed = target.parent.may_change();
    if allowed != 0 {
        return Some(allowed);
    }
    let (mut from, mut to, mut both) = (Path::new(), Path::new(), Path::new());
    if !source.text(&mut from) || !target.text(&mut to) || !both.push(from.get()) || !both.push(to.get()) {
        return Some(-(libc::EXDEV as isize));
    }
    spill::begin(index);
    let size = from.get().len() as i64;
    let request = Request { kind: CallKind::LinkAcross, record: u32::MAX, size, path: both.get(), fd: -1 };
    Some(-(call(index, &request).status as isize))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdir(path: *const c_char, mode: u32) -> c_int {
    real::outcome(mkdir_at(CWD, path, mode)) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn mkdirat(dirfd: c_int, path: *const c_char, mode: u32) -> c_int {
    real::outcome(mkdir_at(dirfd, path, mode)) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    real::outcome(rmdir_at(CWD, path)) as c_int
}
