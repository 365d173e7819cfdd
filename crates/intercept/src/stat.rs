//! The stat family: a placed file looks like a regular file of the root, with one `st_dev` and `st_ino` for life.

use crate::durable::{nanoseconds, record_of_durable, record_of_named};
use crate::elsewhere::{self, Brought};
use crate::inside::{self, Directory};
use crate::link::{self, is_live, record};
use crate::objects::Object;
use crate::placed::{self, Way};
use crate::{caller, data, gate, process, real, spill};
use core::ffi::{c_char, c_int, c_uint};
use core::sync::atomic::Ordering::*;
use terrace_index::calls::Looks;
use terrace_index::{FLAG_RENAMING, FLAG_UNLINKED, Index, State};

const EMPTY: *const c_char = c"".as_ptr();
const ATTEMPTS: usize = 50;
const SECOND: i64 = 1_000_000_000;

fn native(dirfd: i32, path: *const c_char, out: *mut libc::stat, flags: i32) -> isize {
    // SAFETY: the program's own arguments.
    unsafe { gate::call4(libc::SYS_newfstatat, dirfd as usize, path as usize, out as usize, flags as usize) }
}

/// fstatat(2) as the kernel sees it, where one of our links is a link; or its error, as the kernel returns it.
pub fn kernel_stat_or_error(dirfd: i32, path: *const c_char, flags: i32) -> Result<libc::stat, isize> {
    // SAFETY: a zeroed stat is valid.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    match native(dirfd, path, &mut status, flags) {
        0 => Ok(status),
        raw => Err(raw),
    }
}

/// As `kernel_stat_or_error`, where the error says nothing.
pub fn kernel_stat(dirfd: i32, path: *const c_char, flags: i32) -> Option<libc::stat> {
    kernel_stat_or_error(dirfd, path, flags).ok()
}

/// What never changes of the file behind the descriptor, its mode and its group: no server is asked. Its size, times and count of links may be
/// those that the kernel last heard of.
pub fn as_known(fd: i32) -> Option<libc::stat> {
    as_known_at(fd, c"".as_ptr(), libc::AT_EMPTY_PATH)
}

/// As `as_known`, of the file at a path.
pub fn as_known_at(dirfd: i32, path: *const c_char, flags: i32) -> Option<libc::stat> {
    // SAFETY: zeroed ones are valid. Of a descriptor, fstatat(2) takes no such flag.
    unsafe {
        let mut known: libc::statx = core::mem::zeroed();
        let result = gate::call5(
            libc::SYS_statx,
            dirfd as usize,
            path as usize,
            (flags | libc::AT_STATX_DONT_SYNC) as usize,
            libc::STATX_BASIC_STATS as usize,
            &raw mut known as usize,
        );
        let mut status: libc::stat = core::mem::zeroed();
        status.st_dev = libc::makedev(known.stx_dev_major, known.stx_dev_minor);
        status.st_ino = known.stx_ino;
        status.st_mode = known.stx_mode.into();
        status.st_gid = known.stx_gid;
        status.st_nlink = known.stx_nlink.into();
        status.st_size = known.stx_size as i64;
        match -result as i32 {
            0 => Some(status),
            libc::ENOENT => None,
            // A kernel or a sandbox may not know statx(2).
            _ => kernel_stat(dirfd, path, flags),
        }
    }
}

/// A file in another node's tier, as its agent says.
fn status_of(index: Index, looks: &Looks) -> libc::stat {
    // SAFETY: a zeroed stat is valid.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    let parts = |ns: i64| (ns.div_euclid(SECOND), ns.rem_euclid(SECOND));
    status.st_dev = index.header.root_dev.load(Relaxed);
    status.st_ino = looks.ino;
    status.st_mode = looks.mode;
    status.st_nlink = looks.nlink as u64;
    (status.st_uid, status.st_gid) = (looks.uid, looks.gid);
    (status.st_size, status.st_blocks, status.st_blksize) = (looks.size as i64, looks.blocks as i64, 4096);
    (status.st_atime, status.st_atime_nsec) = parts(looks.atime_ns);
    (status.st_mtime, status.st_mtime_nsec) = parts(looks.mtime_ns);
    (status.st_ctime, status.st_ctime_nsec) = parts(looks.ctime_ns);
    status
}

/// The same, told to the program.
fn told(index: Index, looks: &Looks, out: *mut libc::stat) -> isize {
    // Where the kernel found nothing it has not looked at the program's pointer.
    let checked = native(libc::AT_FDCWD, c"/".as_ptr(), out, 0);
    if checked == -(libc::EFAULT as isize) {
        return checked;
    }
    // SAFETY: the kernel can write there.
    unsafe { *out = status_of(index, looks) };
    0
}

/// The same for statx(2): all basic fields; there is no other.
fn tell_all(status: &libc::stat, mask: u32, out: *mut libc::statx) -> isize {
    let (root, at) = (c"/".as_ptr() as usize, libc::AT_FDCWD as usize);
    // As above. SAFETY: a path of ours; the kernel checks the rest.
    let checked = unsafe { gate::call5(libc::SYS_statx, at, root, 0, mask as usize, out as usize) };
    if checked == -(libc::EFAULT as isize) {
        return checked;
    }
    let time = |seconds: i64, nanoseconds: i64| {
        // SAFETY: a zeroed timestamp is valid.
        let mut time: libc::statx_timestamp = unsafe { core::mem::zeroed() };
        (time.tv_sec, time.tv_nsec) = (seconds, nanoseconds as u32);
        time
    };
    // SAFETY: the kernel can write there; a zeroed statx is valid.
    let out = unsafe {
        *out = core::mem::zeroed();
        &mut *out
    };
    out.stx_mask = libc::STATX_BASIC_STATS;
    out.stx_blksize = status.st_blksize as u32;
    (out.stx_ino, out.stx_nlink) = (status.st_ino, status.st_nlink as u32);
    (out.stx_dev_major, out.stx_dev_minor) = (libc::major(status.st_dev), libc::minor(status.st_dev));
    (out.stx_uid, out.stx_gid) = (status.st_uid, status.st_gid);
    out.stx_mode = status.st_mode as u16;
    (out.stx_size, out.stx_blocks) = (status.st_size as u64, status.st_blocks as u64);
    out.stx_atime = time(status.st_atime, status.st_atime_nsec);
    out.stx_mtime = time(status.st_mtime, status.st_mtime_nsec);
    out.stx_ctime = time(status.st_ctime, status.st_ctime_nsec);
    0
}

/// fstatat(2), as the kernel returns it, for what the program calls the file.
pub fn stat_at(dirfd: i32, path: *const c_char, out: *mut libc::stat, flags: i32) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let Some(index) = process::index() else { return native(dirfd, path, out, flags) };
    if let Some(looks) = elsewhere::look_first(index, dirfd, path) {
        return told(index, &looks, out);
    }
    let mut changed_ns = 0;
    for attempt in 0..ATTEMPTS {
        let evictions = index.header.evictions_seq.load(Acquire);
        let removals = index.header.removals_seq.load(Acquire);
        let frees = frees(index);
        let (result, known) = look(index, dirfd, path, out, flags);
        if result == -(libc::ENOENT as isize)
            && !path.is_null()
            && (index.header.evictions_seq.load(Acquire) != evictions
                || index.header.removals_seq.load(Acquire) != removals && is_there(index, dirfd, path, flags))
        {
            continue;
        }
        if result == -(libc::ENOENT as isize) && !path.is_null() && flags & libc::AT_SYMLINK_NOFOLLOW == 0 {
            let mut looks = None;
            match elsewhere::bring_to_look(index, dirfd, path, true, &mut looks) {
                Brought::Done if let Some(looks) = looks => return told(index, &looks, out),
                // Another node made it a real file between the kernel's look and ours.
                Brought::Not if elsewhere::is_possible(index) && kernel_stat(dirfd, path, flags).is_some() => continue,
                Brought::Not => {}
                Brought::Done => continue,
                Brought::Failed(error) => return error,
            }
        }
        if result != 0 {
            return result;
        }
        // SAFETY: the kernel filled it.
        let status = unsafe { &mut *out };
        if status.st_mode & libc::S_IFMT == libc::S_IFLNK {
            let may_lead = index.may_lead_elsewhere(status.st_size as u64);
            if may_lead && status.st_dev == index.header.root_dev.load(Relaxed) && !is_empty(path) {
                let mut looks = None;
                match elsewhere::bring_to_look(index, dirfd, path, false, &mut looks) {
                    Brought::Done if let Some(looks) = looks => return told(index, &looks, out),
                    Brought::Not => {}
                    Brought::Done => continue,
                    Brought::Failed(error) => return error,
                }
            }
            match look_through(index, dirfd, path, status, flags, frees) {
                Looked::Done => {
                    placed::rewrite_known(index, dirfd, path, flags, status, known);
                    return 0;
                }
                Looked::Spilled => return 0,
                Looked::Again => continue,
            }
        }
        match status.st_mode & libc::S_IFMT {
            libc::S_IFREG if attempt == 0 && has_moved(index, path, status) => continue,
            libc::S_IFREG if !rewrite_regular(index, dirfd, path, status) => continue,
            libc::S_IFDIR if !rewrite_directory(index, status, &mut changed_ns) => continue,
            _ => {}
        }
        placed::rewrite_known(index, dirfd, path, flags, status, known);
        return 0;
    }
    native(dirfd, path, out, flags)
}

/// fstatat(2). Where the directory is known, a look at the name itself tells that what is found is in that; only a link takes another one.
fn look(index: Index, dirfd: i32, path: *const c_char, out: *mut libc::stat, flags: i32) -> (isize, Option<Directory>) {
    if let Some(directory) = inside::remembered(index, dirfd, path) {
        let result = native(dirfd, path, out, flags | libc::AT_SYMLINK_NOFOLLOW);
        // SAFETY: the kernel filled it.
        let found = (result == 0).then(|| unsafe { ((*out).st_mode & libc::S_IFMT, (*out).st_dev) });
        match found {
            Some((libc::S_IFLNK, _)) if flags & libc::AT_SYMLINK_NOFOLLOW == 0 => {}
            Some((_, dev)) if dev == directory.dev => return (result, Some(directory)),
            _ => return (result, None),
        }
    }
    (native(dirfd, path, out, flags), None)
}

/// Where the kernel found nothing: a rename replaced the file, and its object went, while the kernel was on the way there.
fn is_there(index: Index, dirfd: i32, path: *const c_char, flags: i32) -> bool {
    // The supervisor's own paths begin with /proc/TID.
    let may_be_ours = caller::is_supervisor() || process::may_be_below_root(index, dirfd, path);
    if flags & libc::AT_SYMLINK_NOFOLLOW != 0 || !may_be_ours {
        return false;
    }
    kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW).is_some_and(|found| {
        found.st_mode & libc::S_IFMT != libc::S_IFLNK
            || link::read(index, dirfd, path).is_some_and(|link| is_live(record(&index, link.record).state()))
    })
}

/// How often an inode of the root may have been freed by us, and so be another file's: by commits and by unlinks. None: one is at it.
type Frees = Option<(u64, u64)>;

fn frees(index: Index) -> Frees {
    let seq = (index.header.commits_seq.load(SeqCst), index.header.removals_seq.load(SeqCst));
    (index.header.committing.load(SeqCst) == 0).then_some(seq)
}

enum Looked {
    Done,
    /// It is as programs know it: not where its name is.
    Spilled,
    Again,
}

/// `status` is a link's: if it is one of ours, becomes the object's.
/// `frees` is from before the look.
fn look_through(
    index: Index,
    dirfd: i32,
    path: *const c_char,
    status: &mut libc::stat,
    flags: i32,
    frees: Frees,
) -> Looked {
    if spill::look_through(index, dirfd, path, status, flags) {
        return Looked::Spilled;
    }
    if status.st_dev != index.header.root_dev.load(Relaxed) || !index.is_link_len(status.st_size as u64) {
        return Looked::Done;
    }
    // SAFETY: a zeroed stat is valid.
    let mut object: libc::stat = unsafe { core::mem::zeroed() };
    if let Some(number) = known_link(index, status.st_ino) {
        // The agent has seen this link: its object is asked directly, without a second walk through the root.
        let serial = record(&index, number).serial.load(Acquire);
        let at = |dirfd, name| native(dirfd, name, &raw mut object, libc::AT_SYMLINK_NOFOLLOW);
        let found = Object::of(index, number).at(at) == 0;
        let is_this = known_link(index, status.st_ino) == Some(number)
            && record(&index, number).object_ino.load(Acquire) == object.st_ino
            && record(&index, number).serial.load(Acquire) == serial
            && frees.is_some()
            && frees == self::frees(index);
        if found && is_this {
            *status = object;
            rewrite_object(index, number, status);
            return Looked::Done;
        }
    }
    let Some(link) = link::read(index, dirfd, path) else {
        // The program's own link, unless the name was given to another file since we looked.
        let same = native(dirfd, path, &mut object, flags) == 0
            && (object.st_ino, object.st_mode) == (status.st_ino, status.st_mode);
        return if same { Looked::Done } else { Looked::Again };
    };
    if native(dirfd, path, &mut object, flags & !libc::AT_SYMLINK_NOFOLLOW) != 0 {
        if is_live(record(&index, link.record).state()) {
            // A commit in progress, or an object that was lost: then it stays a dangling link, to be seen as such.
            process::sleep_us(200);
        }
        return Looked::Again;
    }
    *status = object;
    if placed::is_directory(&index, &link) {
        placed::rewrite(index, dirfd, path, flags & !libc::AT_SYMLINK_NOFOLLOW, status);
        return Looked::Done;
    }
    if !has_moved(index, path, status) && rewrite_regular(index, dirfd, path, status) {
        Looked::Done
    } else {
        Looked::Again
    }
}

/// An object that lost its name since the kernel looked at it: another look finds where it is now, or that it has no name.
/// (Or another file of the tier's file system, to which the number was given again: one look more does no harm.)
fn has_moved(index: Index, path: *const c_char, status: &libc::stat) -> bool {
    let has_lost_name = || status.st_nlink == 0 && !path.is_null() && !is_empty(path);
    index.device_of_dev(status.st_dev)
        && index.has_object_key(status.st_dev, status.st_ino)
        && (has_lost_name() || index.record_of_object(status.st_dev, status.st_ino, status.st_nlink).is_none())
}

/// Gives a regular file the identity that programs know. False: its descriptor moved, ask again.
fn rewrite_regular(index: Index, dirfd: i32, path: *const c_char, status: &mut libc::stat) -> bool {
    if index.device_of_dev(status.st_dev)
        && let Some(number) = index.record_of_object(status.st_dev, status.st_ino, status.st_nlink)
    {
        let record = record(&index, number);
        let by_descriptor = path.is_null() || is_empty(path);
        if by_descriptor && (record.state() == State::Moved || record.moved_to.load(Acquire) != 0) {
            return data::exchange_fd(index, dirfd, number) != 0;
        }
        rewrite_object(index, number, status);
        return true;
    }
    rewrite_durable(index, status);
    true
}

/// A directory has the times from before the agent's renames in it. False: it changed while we looked, ask again.
fn rewrite_directory(index: Index, status: &mut libc::stat, changed_ns: &mut i64) -> bool {
    if index.header.durable_count.load(Relaxed) <= 0 || status.st_dev != index.header.root_dev.load(Relaxed) {
        return true;
    }
    let Some(number) = index.record_of_root_ino(status.st_ino) else { return true };
    let record = record(&index, number);
    if record.durable_ino.load(Acquire) != status.st_ino || record.state() != State::Durable {
        return true;
    }
    let is_renaming = record.flags.load(SeqCst) & FLAG_RENAMING != 0;
    let (modified, changed) = (record.durable_mtime_ns.load(Acquire), record.ctime_ns.load(Acquire));
    let now = nanoseconds(status.st_ctime, status.st_ctime_nsec);
    if is_renaming || record_of_durable(index, status).is_some() {
        (status.st_mtime, status.st_mtime_nsec) = (modified.div_euclid(SECOND), modified.rem_euclid(SECOND));
        (status.st_ctime, status.st_ctime_nsec) = (changed.div_euclid(SECOND), changed.rem_euclid(SECOND));
        return true;
    }
    // Changed by a program, if a second look finds the same.
    core::mem::replace(changed_ns, now) == now
}

/// A file of the root itself: the inode that programs know, and the change time from before the flush.
pub fn rewrite_durable(index: Index, status: &mut libc::stat) {
    if index.header.durable_count.load(Relaxed) > 0
        && status.st_dev == index.header.root_dev.load(Relaxed)
        && let Some(ino) = shown_ino(index, status.st_ino, status.st_nlink)
    {
        if let Some((_, record)) = record_of_named(index, status) {
            let shown = record.ctime_ns.load(Relaxed);
            if shown != 0 {
                (status.st_ctime, status.st_ctime_nsec) = (shown.div_euclid(SECOND), shown.rem_euclid(SECOND));
            }
        }
        status.st_ino = ino;
    }
}

fn rewrite_object(index: Index, number: u32, status: &mut libc::stat) {
    status.st_dev = index.header.root_dev.load(Relaxed);
    status.st_ino = record(&index, number).ino.load(Relaxed);
}

/// The record of a link by the link's own inode, if the agent has noted it.
pub fn known_link(index: Index, ino: u64) -> Option<u32> {
    // Another node may have removed our link, and the root given its inode to another link: neither is counted here.
    if index.header.others.load(Relaxed) > 0 {
        return None;
    }
    let number = index.record_of_root_ino(ino)?;
    let record = record(&index, number);
    (record.link_ino.load(Relaxed) == ino && is_live(record.state())).then_some(number)
}

pub fn is_empty(path: *const c_char) -> bool {
    // SAFETY: a C string has at least its terminator.
    unsafe { *path == 0 }
}

/// The inode that programs know for a durable file that was placed once.
pub fn shown_ino(index: Index, ino: u64, nlink: u64) -> Option<u64> {
    let record = record(&index, index.record_of_root_ino(ino)?);
    // Also between a commit's rename and its last step, where the name leads to the new inode already; and while a replica that
    // is open goes away.
    let is_another = nlink > 0 && record.flags.load(Relaxed) & FLAG_UNLINKED != 0;
    (!is_another
        && record.durable_ino.load(Acquire) == ino
        && matches!(record.state(), State::Committing | State::Clean | State::Durable | State::Moving))
    .then(|| record.ino.load(Relaxed))
}

fn returned(raw: isize) -> c_int {
    real::outcome(raw) as c_int
}

macro_rules! stat_hooks {
    ($($name:ident($($arg:ident: $ty:ty),*) = $dirfd:expr, $path:expr, $out:expr, $flags:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            returned(stat_at($dirfd, $path, $out, $flags))
        }
    )*};
}

type Out = *mut libc::stat;
const CWD: c_int = libc::AT_FDCWD;
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

stat_hooks! {
    stat(path: *const c_char, out: Out) = CWD, path, out, 0;
    stat64(path: *const c_char, out: Out) = CWD, path, out, 0;
    lstat(path: *const c_char, out: Out) = CWD, path, out, NOFOLLOW;
    lstat64(path: *const c_char, out: Out) = CWD, path, out, NOFOLLOW;
    fstatat(dirfd: c_int, path: *const c_char, out: Out, flags: c_int) = dirfd, path, out, flags;
    fstatat64(dirfd: c_int, path: *const c_char, out: Out, flags: c_int) = dirfd, path, out, flags;
    __xstat(_version: c_int, path: *const c_char, out: Out) = CWD, path, out, 0;
    __xstat64(_version: c_int, path: *const c_char, out: Out) = CWD, path, out, 0;
    __lxstat(_version: c_int, path: *const c_char, out: Out) = CWD, path, out, NOFOLLOW;
    __lxstat64(_version: c_int, path: *const c_char, out: Out) = CWD, path, out, NOFOLLOW;
    __fxstatat(_version: c_int, dirfd: c_int, path: *const c_char, out: Out, flags: c_int) = dirfd, path, out, flags;
    __fxstatat64(_version: c_int, dirfd: c_int, path: *const c_char, out: Out, flags: c_int) = dirfd, path, out, flags;
}

/// A descriptor's status. Negative descriptors are an error here, while newfstatat would take AT_FDCWD.
fn descriptor(fd: c_int, out: Out) -> c_int {
    if fd < 0 {
        return returned(-(libc::EBADF as isize));
    }
    if data::reading(fd, || 0) < 0 {
        return -1;
    }
    returned(stat_at(fd, EMPTY, out, libc::AT_EMPTY_PATH))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat(fd: c_int, out: Out) -> c_int {
    descriptor(fd, out)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fstat64(fd: c_int, out: Out) -> c_int {
    descriptor(fd, out)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat(_version: c_int, fd: c_int, out: Out) -> c_int {
    descriptor(fd, out)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __fxstat64(_version: c_int, fd: c_int, out: Out) -> c_int {
    descriptor(fd, out)
}

/// statx(2): the kernel's answer, with the fields replaced in which a placed file's differ.
pub fn statx_at(dirfd: i32, path: *const c_char, flags: i32, mask: u32, out: *mut libc::statx) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let to = out as usize;
    let ask = |flags: i32| {
        // SAFETY: the program's own arguments.
        unsafe { gate::call5(libc::SYS_statx, dirfd as usize, path as usize, flags as usize, mask as usize, to) }
    };
    let index = process::index();
    if let Some(index) = index
        && let Some(directory) = inside::remembered(index, dirfd, path)
        && ask(flags | libc::AT_SYMLINK_NOFOLLOW) == 0
        // SAFETY: filled by the kernel.
        && placed::rewrite_statx(index, directory, unsafe { &mut *out })
    {
        return 0;
    }
    if let Some(index) = index
        && let Some(looks) = elsewhere::look_first(index, dirfd, path)
    {
        return tell_all(&status_of(index, &looks), mask, out);
    }
    let result = ask(flags);
    let Some(index) = index else { return result };
    if path.is_null() || (result != 0 && result != -(libc::ENOENT as isize)) {
        return result;
    }
    // The identity and the type come from the same look that stat(2) takes; the rest from a statx of the object.
    // SAFETY: a zeroed stat is valid.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    if result == 0 {
        // SAFETY: the kernel filled it.
        let kind = unsafe { (*out).stx_mode } as u32 & libc::S_IFMT;
        let interesting = matches!(kind, libc::S_IFLNK | libc::S_IFREG | libc::S_IFDIR) || placed::any(index);
        if !interesting || !may_be_placed(index, out) {
            return result;
        }
    }
    let looked = stat_at(dirfd, path, &mut status, flags & (libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH));
    if looked != 0 {
        return looked;
    }
    let regular = status.st_mode & libc::S_IFMT == libc::S_IFREG;
    let was_link = result == 0 && {
        // SAFETY: the kernel filled it.
        let kind = unsafe { (*out).stx_mode } as u32 & libc::S_IFMT;
        kind == libc::S_IFLNK && status.st_mode & libc::S_IFMT == libc::S_IFDIR
    };
    let again = if regular || was_link { ask(flags & !libc::AT_SYMLINK_NOFOLLOW) } else { result };
    let is_elsewhere = again == -(libc::ENOENT as isize) && elsewhere::is_possible(index);
    if again != 0 && !is_elsewhere {
        return again;
    }
    if is_elsewhere {
        return tell_all(&status, mask, out);
    }
    // SAFETY: filled by the kernel.
    let out = unsafe { &mut *out };
    out.stx_ino = status.st_ino;
    if status.st_mode & libc::S_IFMT == libc::S_IFLNK {
        out.stx_size = status.st_size as u64;
    }
    if spill::any(index) {
        out.stx_nlink = status.st_nlink as u32;
    }
    out.stx_dev_major = libc::major(status.st_dev);
    out.stx_dev_minor = libc::minor(status.st_dev);
    if !regular {
        out.stx_mtime.tv_sec = status.st_mtime;
        out.stx_mtime.tv_nsec = status.st_mtime_nsec as u32;
    }
    out.stx_ctime.tv_sec = status.st_ctime;
    out.stx_ctime.tv_nsec = status.st_ctime_nsec as u32;
    0
}

/// A cheap test on what statx said, before a second look.
fn may_be_placed(index: Index, out: *const libc::statx) -> bool {
    // SAFETY: filled by the kernel.
    let status = unsafe { &*out };
    let dev = libc::makedev(status.stx_dev_major, status.stx_dev_minor);
    if status.stx_mode as u32 & libc::S_IFMT == libc::S_IFLNK {
        if placed::any(index) && index.device_of_dev(dev) {
            return true;
        }
        let may_lead = index.is_link_len(status.stx_size) || index.may_lead_elsewhere(status.stx_size);
        return dev == index.header.root_dev.load(Relaxed) && may_lead;
    }
    index.device_of_dev(dev)
        || (index.header.durable_count.load(Relaxed) > 0
            && dev == index.header.root_dev.load(Relaxed)
            && shown_ino(index, status.stx_ino, status.stx_nlink as u64).is_some())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    dirfd: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    out: *mut libc::statx,
) -> c_int {
    if dirfd >= 0 && flags & libc::AT_EMPTY_PATH != 0 && data::reading(dirfd, || 0) < 0 {
        return -1;
    }
    returned(statx_at(dirfd, path, flags, mask, out))
}
