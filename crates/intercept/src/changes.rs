//! Changes of attributes: mode, owner, times, extended attributes.
//!
//! The kernel does them, through the link or by the descriptor. We see to two things around it:
//!
//! - a commit gives the root's new file the attributes that the object had before: a change waits until the commit of its file is
//!   over (a guard, as for names), so that who looks next sees it;
//! - a clean file is two, the root's file and its replica in a tier, and of two descriptors one may be of each. What changes here
//!   of one changes of the other too.

use crate::attributes::{follow_if_ours, is_ours};
use crate::names::{BUSY, WAIT_US, between_commits, in_guard};
use crate::objects::Object;
use crate::placed::Way;
use crate::{agent_call, caller, data, durable, elsewhere, gate, link, open, process, readable, real, stat};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering::*;
use terrace_index::calls::CallKind;
use terrace_index::{Index, State};

const CWD: c_int = libc::AT_FDCWD;
const NOFOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

/// The file has moved, and this is what is left of it. No error of the kernel's.
const MOVED: isize = isize::MIN + 1;
const EXCHANGES_MAX: usize = 100;

/// The file whose attributes are changed.
#[derive(Clone, Copy)]
enum Known {
    /// By its object, which may be the file or its replica.
    Object(u32),
    /// By the root's file, which may have a replica.
    Durable(u32),
}

impl Known {
    fn of(index: Index, status: &libc::stat) -> Option<Known> {
        if status.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        if status.st_dev != index.header.root_dev.load(Relaxed) {
            return index.record_of_object(status.st_dev, status.st_ino, status.st_nlink).map(Known::Object);
        }
        let number = index.record_of_root_ino(status.st_ino)?;
        (link::record(&index, number).durable_ino.load(Acquire) == status.st_ino).then_some(Known::Durable(number))
    }

    fn number(self) -> u32 {
        match self {
            Known::Object(number) | Known::Durable(number) => number,
        }
    }
}

/// What is left to do for the other of a clean file's two, after the change of one.
#[derive(Clone, Copy)]
enum Twin<'a> {
    /// The mode, the owner and the times of the first.
    Status,
    /// The same call, with another path.
    Again(&'a dyn Fn(*const c_char) -> isize),
}

/// Runs `set`, which changes attributes of the file that `look` finds, while that is not being committed or moved; its raw result.
fn change(index: Index, look: impl Fn() -> Option<libc::stat>, set: impl Fn() -> isize, twin: Twin<'_>) -> isize {
    let state = |known: Known| link::record(&index, known.number()).state();
    let mut changed = None;
    let result = in_guard(index, || {
        let header = &index.header;
        // A commit that begins from here on waits for us, and then finds the change.
        if header.committing.load(SeqCst) == 0 && header.clean_count.load(SeqCst) <= 0 {
            return set();
        }
        let Some((before, known)) = look().and_then(|status| Some((status, Known::of(index, &status)?))) else {
            return set();
        };
        if state(known).is_busy() {
            return BUSY;
        }
        // It moved while we waited: what has the name now is another object, or the root's file.
        if let Known::Object(number) = known
            && (state(known) == State::Moved || link::record(&index, number).moved_to.load(Acquire) != 0)
        {
            return MOVED;
        }
        let is_clean = state(known) == State::Clean;
        let result = set();
        if result == 0 {
            note_version(index, &before, look());
            match known {
                // Within the guard: an eviction gives the root's file what the replica has, so it must not have less.
                Known::Durable(number) if is_clean => renew_replica(index, number, &look, twin),
                Known::Object(number) if is_clean => changed = Some(number),
                _ => {}
            }
        }
        result
    });
    let Some(number) = changed else { return result };
    // The agent carries the change when it takes an open replica away; that is under way.
    while state(Known::Object(number)) == State::Moving {
        process::sleep_us(WAIT_US);
    }
    if state(Known::Object(number)) == State::Clean {
        agent_call::carry(index, number);
    }
    result
}

/// The replica of a file that was changed becomes as that is.
fn renew_replica(index: Index, number: u32, look: impl Fn() -> Option<libc::stat>, twin: Twin<'_>) {
    let object = Object::of(index, number);
    match twin {
        Twin::Again(set) => drop(set(object.path())),
        Twin::Status => drop(look().map(|status| copy_status(&status, object.path()))),
    }
}

/// The root's file has another time of change now. That its bytes are still its replica's, the unchanged rest says.
fn note_version(index: Index, before: &libc::stat, after: Option<libc::stat>) {
    let bytes = |status: &libc::stat| (status.st_ino, status.st_size, status.st_mtime, status.st_mtime_nsec);
    if let Some((_, record)) = durable::record_of_durable(index, before)
        && let Some(after) = after.filter(|after| bytes(after) == bytes(before))
    {
        let changed = durable::nanoseconds(after.st_ctime, after.st_ctime_nsec);
        record.ctime_ns.store(changed, Release);
        record.durable_ctime_ns.store(changed, Release);
    }
}

/// Owner first: that may clear bits of the mode. A replica that can't be changed is left: programs see that it isn't equal.
fn copy_status(status: &libc::stat, path: *const c_char) {
    let time = |seconds, nanoseconds| libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = [time(status.st_atime, status.st_atime_nsec), time(status.st_mtime, status.st_mtime_nsec)];
    let (cwd, path) = (CWD as usize, path as usize);
    // SAFETY: an object's path and times of this frame.
    unsafe {
        gate::call5(libc::SYS_fchownat, cwd, path, status.st_uid as usize, status.st_gid as usize, 0);
        gate::call3(libc::SYS_fchmodat, cwd, path, (status.st_mode & 0o7777) as usize);
        gate::call4(libc::SYS_utimensat, cwd, path, times.as_ptr() as usize, 0);
    }
}

/// A change by name.
fn change_at(dirfd: c_int, path: *const c_char, flags: c_int, set: impl Fn() -> isize, twin: Twin<'_>) -> isize {
    agent_call::changed(match process::index() {
        // The supervisor knows what its paths lead to.
        Some(index) if caller::is_supervisor() || process::may_be_below_root(index, dirfd, path) => {
            let follow = flags & NOFOLLOW == 0;
            let attempt = || change(index, || stat::kernel_stat(dirfd, path, flags & NOFOLLOW), &set, twin);
            // It may go to another node at any moment: then nothing is there, or its link was changed in its place.
            elsewhere::until_here(index, dirfd, path, follow, || {
                elsewhere::retried(dirfd, path, || until_moved(attempt, &set))
            })
        }
        _ => set(),
    })
}

/// A change by descriptor.
fn change_open(fd: c_int, set: impl Fn() -> isize, twin: Twin<'_>) -> isize {
    let Some(index) = process::index() else { return set() };
    if index.header.moves_seq.load(Relaxed) != 0 && !data::follow(index, fd) {
        return -(libc::EIO as isize);
    }
    agent_call::changed(until_moved(|| data::reading(fd, || change(index, || data::fstat(fd), &set, twin)), &set))
}

/// Tries again while what was found has moved: by then the name leads to another one, and the descriptor is exchanged.
fn until_moved(attempt: impl Fn() -> isize, set: impl Fn() -> isize) -> isize {
    for _ in 0..EXCHANGES_MAX {
        match attempt() {
            MOVED => process::sleep_us(WAIT_US),
            result => return result,
        }
    }
    // It can't be exchanged: its file goes on without it.
    set()
}

/// The file at the name may need more than the kernel's call. Err: of another node, which did not give it.
pub fn concerns(dirfd: c_int, path: *const c_char, flags: c_int) -> Result<bool, isize> {
    let Some(index) = process::index() else { return Ok(false) };
    let follow = flags & NOFOLLOW == 0;
    let look = || stat::kernel_stat(dirfd, path, flags & NOFOLLOW);
    // An open file is there, whatever its name leads to by now.
    if elsewhere::is_possible(index) && (!follow || look().is_none()) {
        elsewhere::brought(index, dirfd, path, follow)?;
    }
    let is_concerned = is_ours(dirfd, path)
        || elsewhere::may_be_met(index, dirfd, path, follow)
        || look().is_some_and(|status| Known::of(index, &status).is_some());
    Ok(is_concerned)
}

/// Since Linux 6.6: fchmodat(2) with flags.
pub const SYS_FCHMODAT2: i64 = 452;

/// fchmodat2(2), as the kernel returns it. Not by the C library's function, which the supervisor can't find: the library is loaded
/// behind the C library there.
pub fn fchmodat2(dirfd: c_int, path: *const c_char, mode: u32, flags: c_int) -> isize {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let flags = follow_if_ours(dirfd, path, flags);
    // SAFETY: the program's own arguments.
    let set = || unsafe {
        match flags {
            0 => gate::call3(libc::SYS_fchmodat, dirfd as usize, path as usize, mode as usize),
            _ => gate::call4(SYS_FCHMODAT2, dirfd as usize, path as usize, mode as usize, flags as usize),
        }
    };
    change_at(dirfd, path, flags, set, Twin::Status)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchmodat(dirfd: c_int, path: *const c_char, mode: u32, flags: c_int) -> c_int {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let flags = follow_if_ours(dirfd, path, flags);
    // SAFETY: the program's own arguments, here and below.
    let set = || unsafe {
        if flags == 0 {
            return gate::call3(libc::SYS_fchmodat, dirfd as usize, path as usize, mode as usize);
        }
        let real = crate::real!("fchmodat": fn(c_int, *const c_char, u32, c_int) -> c_int);
        real::raw(real(dirfd, path, mode, flags) as isize)
    };
    real::outcome(change_at(dirfd, path, flags, set, Twin::Status)) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chmod(path: *const c_char, mode: u32) -> c_int {
    unsafe { fchmodat(CWD, path, mode, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lchmod(path: *const c_char, mode: u32) -> c_int {
    unsafe { fchmodat(CWD, path, mode, NOFOLLOW) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchmod(fd: c_int, mode: u32) -> c_int {
    let set = || unsafe { gate::call2(libc::SYS_fchmod, fd as usize, mode as usize) };
    real::outcome(change_open(fd, set, Twin::Status)) as c_int
}

/// The supervisor knows what its paths lead to.
fn may_be_ours(dirfd: c_int, path: *const c_char) -> bool {
    process::index().is_some_and(|index| caller::is_supervisor() || process::may_be_below_root(index, dirfd, path))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchownat(dirfd: c_int, path: *const c_char, owner: u32, group: u32, flags: c_int) -> c_int {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let flags = follow_if_ours(dirfd, path, flags);
    let own = |flags: c_int| unsafe {
        gate::call5(libc::SYS_fchownat, dirfd as usize, path as usize, owner as usize, group as usize, flags as usize)
    };
    let set = || {
        let result = own(flags);
        // The link's owner too: a sticky directory, a quota and protected_symlinks ask for it.
        if result == 0 && flags & NOFOLLOW == 0 && may_be_ours(dirfd, path) && is_ours(dirfd, path) {
            own(flags | NOFOLLOW);
        }
        result
    };
    if flags & libc::AT_EMPTY_PATH != 0 && readable::is_text(path) && stat::is_empty(path) {
        return real::outcome(change_open(dirfd, set, Twin::Status)) as c_int;
    }
    real::outcome(change_at(dirfd, path, flags, set, Twin::Status)) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chown(path: *const c_char, owner: u32, group: u32) -> c_int {
    unsafe { fchownat(CWD, path, owner, group, 0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lchown(path: *const c_char, owner: u32, group: u32) -> c_int {
    unsafe { fchownat(CWD, path, owner, group, NOFOLLOW) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchown(fd: c_int, owner: u32, group: u32) -> c_int {
    let set = || unsafe { gate::call3(libc::SYS_fchown, fd as usize, owner as usize, group as usize) };
    let before = data::fstat(fd);
    let result = change_open(fd, set, Twin::Status);
    let changes = |status: &libc::stat| {
        owner != u32::MAX && owner != status.st_uid || group != u32::MAX && group != status.st_gid
    };
    if result == 0 && before.as_ref().is_some_and(changes) {
        own_link_of(fd, owner, group);
    }
    real::outcome(result) as c_int
}

/// The link by which an open file of a tier is found: the agent knows its name.
pub fn own_link_of(fd: c_int, owner: u32, group: u32) {
    let Some(index) = process::index() else { return };
    let Some(number) = data::fstat(fd).and_then(|status| data::record_of(index, fd, &status)) else { return };
    let answer = agent_call::call(
        index,
        &agent_call::Request { kind: CallKind::PathOf, record: number, size: 0, path: b"", fd: -1 },
    );
    if answer.status != 0 {
        return; // it has no name, or not yet
    }
    // SAFETY: a status of 0 comes with a whole reply, whose path is followed by a terminator.
    let path = unsafe { &raw const (*answer.reply()).path } as *const c_char;
    in_guard(index, || match link::read(index, CWD, path) {
        // SAFETY: the reply's terminated path.
        Some(link) if link.record == number => unsafe {
            gate::call5(
                libc::SYS_fchownat,
                CWD as usize,
                path as usize,
                owner as usize,
                group as usize,
                NOFOLLOW as usize,
            )
        },
        _ => 0,
    });
}

/// Times of the file at a name, by the call that the program made.
fn times_at(dirfd: c_int, path: *const c_char, flags: c_int, set: impl Fn() -> isize) -> c_int {
    let result = match process::index() {
        // A commit puts its directory's time back: it must not be the one from before this call.
        Some(index) if is_directory_of_root(index, dirfd, path, flags) => between_commits(index, set),
        _ => change_at(dirfd, path, flags, set, Twin::Status),
    };
    real::outcome(result) as c_int
}

fn is_directory_of_root(index: Index, dirfd: c_int, path: *const c_char, flags: c_int) -> bool {
    (caller::is_supervisor() || process::may_be_below_root(index, dirfd, path))
        && stat::kernel_stat(dirfd, path, flags & NOFOLLOW).is_some_and(|found| {
            found.st_mode & libc::S_IFMT == libc::S_IFDIR && found.st_dev == index.header.root_dev.load(Relaxed)
        })
}

/// utimensat(2): without a path, of the descriptor.
pub fn times(dirfd: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int {
    let way = Way::of(dirfd, path);
    let (dirfd, path) = (way.dirfd(), way.path());
    let set = |flags: c_int| unsafe {
        gate::call4(libc::SYS_utimensat, dirfd as usize, path as usize, times as usize, flags as usize)
    };
    if path.is_null() {
        return real::outcome(change_open(dirfd, || set(flags), Twin::Status)) as c_int;
    }
    let flags = follow_if_ours(dirfd, path, flags);
    times_at(dirfd, path, flags, || set(flags))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utimensat(
    dirfd: c_int,
    path: *const c_char,
    values: *const libc::timespec,
    flags: c_int,
) -> c_int {
    if path.is_null() {
        // utimensat(2) with NULL means the descriptor; glibc's function refuses it.
        return real::outcome(-(libc::EINVAL as isize)) as c_int;
    }
    times(dirfd, path, values, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimens(fd: c_int, values: *const libc::timespec) -> c_int {
    if fd < 0 {
        return real::outcome(-(libc::EBADF as isize)) as c_int; // AT_FDCWD would be one
    }
    times(fd, core::ptr::null(), values, 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utime(path: *const c_char, values: *const libc::utimbuf) -> c_int {
    let way = Way::of(CWD, path);
    let path = way.path();
    times_at(CWD, path, 0, || unsafe { gate::call2(libc::SYS_utime, path as usize, values as usize) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn utimes(path: *const c_char, values: *const libc::timeval) -> c_int {
    let way = Way::of(CWD, path);
    let path = way.path();
    times_at(CWD, path, 0, || unsafe { gate::call2(libc::SYS_utimes, path as usize, values as usize) })
}

/// futimesat(2): without a path, of the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimesat(dirfd: c_int, path: *const c_char, values: *const libc::timeval) -> c_int {
    let set = || unsafe { gate::call3(libc::SYS_futimesat, dirfd as usize, path as usize, values as usize) };
    if path.is_null() {
        return real::outcome(change_open(dirfd, set, Twin::Status)) as c_int;
    }
    times_at(dirfd, path, 0, set)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn futimes(fd: c_int, values: *const libc::timeval) -> c_int {
    match timespecs(values) {
        Ok(times) => unsafe { futimens(fd, times.as_ref().map_or(core::ptr::null(), |times| times.as_ptr())) },
        Err(errno) => real::outcome(-(errno as isize)) as c_int,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lutimes(path: *const c_char, values: *const libc::timeval) -> c_int {
    match timespecs(values) {
        Ok(times) => unsafe {
            utimensat(CWD, path, times.as_ref().map_or(core::ptr::null(), |times| times.as_ptr()), NOFOLLOW)
        },
        Err(errno) => real::outcome(-(errno as isize)) as c_int,
    }
}

/// Microseconds as nanoseconds; none for now.
fn timespecs(values: *const libc::timeval) -> Result<Option<[libc::timespec; 2]>, c_int> {
    if values.is_null() {
        return Ok(None);
    }
    let mut converted = [libc::timespec { tv_sec: 0, tv_nsec: 0 }; 2];
    for (i, out) in converted.iter_mut().enumerate() {
        // SAFETY: lutimes(3) and futimes(3) take two values.
        let time = unsafe { *values.add(i) };
        if !(0..1_000_000).contains(&time.tv_usec) {
            return Err(libc::EINVAL);
        }
        *out = libc::timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 };
    }
    Ok(Some(converted))
}

/// A value that is set.
#[derive(Clone, Copy)]
struct Value {
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
    flags: c_int,
}

impl Value {
    unsafe fn set(&self, nr: i64, at: usize) -> isize {
        // SAFETY: the program's own arguments.
        unsafe { gate::call5(nr, at, self.name as usize, self.bytes as usize, self.size, self.flags as usize) }
    }

    /// An attribute that the tier's file system can't keep (older kernels' tmpfs): the file becomes a real one first.
    fn set_at(&self, path: *const c_char, follow: bool) -> c_int {
        let way = Way::of(CWD, path);
        let path = way.path();
        let follows = follow || is_ours(CWD, path);
        let nr = if follows { libc::SYS_setxattr } else { libc::SYS_lsetxattr };
        let again = |object: *const c_char| unsafe { self.set(libc::SYS_setxattr, object as usize) };
        let flags = if follows { 0 } else { NOFOLLOW };
        let set = || change_at(CWD, path, flags, || unsafe { self.set(nr, path as usize) }, Twin::Again(&again));
        let mut result = set();
        if result == -(libc::EOPNOTSUPP as isize)
            && !path.is_null()
            && let Some(index) = process::index()
            && open::materialise_path(index, CWD, path, follow)
        {
            result = set();
        }
        real::outcome(result) as c_int
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setxattr(
    path: *const c_char,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    Value { name, bytes, size, flags }.set_at(path, true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lsetxattr(
    path: *const c_char,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    Value { name, bytes, size, flags }.set_at(path, false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsetxattr(
    fd: c_int,
    name: *const c_char,
    bytes: *const c_void,
    size: usize,
    flags: c_int,
) -> c_int {
    let value = Value { name, bytes, size, flags };
    let again = |object: *const c_char| unsafe { value.set(libc::SYS_setxattr, object as usize) };
    let set = || unsafe { value.set(libc::SYS_fsetxattr, fd as usize) };
    real::outcome(change_open(fd, set, Twin::Again(&again))) as c_int
}

fn remove_at(path: *const c_char, name: *const c_char, follow: bool) -> c_int {
    let way = Way::of(CWD, path);
    let path = way.path();
    let follows = follow || is_ours(CWD, path);
    let nr = if follows { libc::SYS_removexattr } else { libc::SYS_lremovexattr };
    let remove = |nr: i64, path: *const c_char| unsafe { gate::call2(nr, path as usize, name as usize) };
    let again = |object: *const c_char| remove(libc::SYS_removexattr, object);
    let flags = if follows { 0 } else { NOFOLLOW };
    real::outcome(change_at(CWD, path, flags, || remove(nr, path), Twin::Again(&again))) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
    remove_at(path, name, true)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
    remove_at(path, name, false)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
    let again = |object: *const c_char| unsafe { gate::call2(libc::SYS_removexattr, object as usize, name as usize) };
    let set = || unsafe { gate::call2(libc::SYS_fremovexattr, fd as usize, name as usize) };
    real::outcome(change_open(fd, set, Twin::Again(&again))) as c_int
}
