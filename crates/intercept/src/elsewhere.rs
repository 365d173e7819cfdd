//! Names that lead to another node's object.
//!
//! The kernel finds nothing there, or sees a link. Before a program hears of either, the agent has the file's owner make it a real
//! file in the root (`CallKind::Bring`), and the call is made again.
//!
//! Invariant: asked outside every guard. The owner waits for its own programs' guards; if one of those waited in its guard for us,
//! both would wait for each other.
//! While no other node is registered (`header.others`) nothing here makes a system call.

use crate::agent_call::{Request, call};
use crate::link::{self, LINK_MAX};
use crate::path::{Parent, Path};
use crate::{caller, gate, open, process, readable, stat};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, Ordering::*};
use terrace_index::Index;
use terrace_index::calls::{CallKind, Looks};
use terrace_index::ring::NO_RECORD;

/// Links of the program's own on the way to one of ours, as many as the kernel follows.
const LOOPS_MAX: usize = 40;
/// Files up to so many bytes come to this node when they are opened; larger ones are made real ones in the root.
const MOST_OPENED: i64 = 4 << 30;
/// A file that comes and goes between nodes as often as this while one call looks at it, which takes some ten seconds: others rename over
/// it again and again, or an agent that is in the middle of it has no processor.
const TRIES: u32 = 100;
const REST_US: i64 = 10;
const REST_MAX_US: i64 = 100_000;

pub enum Brought {
    /// It does not lead to another node.
    Not,
    /// Look again.
    Done,
    /// The error, as the kernel returns one.
    Failed(isize),
}

/// There are other nodes: a name may lead to one.
pub fn is_possible(index: Index) -> bool {
    index.header.others.load(Relaxed) > 0
}

/// What is wanted of another node's file.
enum Want<'a> {
    /// It is to be the root's own.
    RootFile,
    /// That, or one of this node's.
    AnyFile,
    /// What it looks like, or any of these.
    Looks(&'a mut Option<Looks>),
}

/// The file that the name leads to, through links of the program's own if `follow`, as a real one in the root.
pub fn bring(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> Brought {
    bring_if_possible(index, dirfd, path, follow, Want::RootFile)
}

/// As `bring`, to be opened: it may become one of this node's. A program without the library needs the root's own
/// (`open::needs_roots_file`).
pub fn bring_to_open(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> Brought {
    let want = if caller::is_supervisor() { Want::RootFile } else { Want::AnyFile };
    bring_if_possible(index, dirfd, path, follow, want)
}

/// As `bring`, to be looked at: where that is enough, what it looks like is in `looks`, and it stays where it is.
pub fn bring_to_look(
    index: Index,
    dirfd: i32,
    path: *const c_char,
    follow: bool,
    looks: &mut Option<Looks>,
) -> Brought {
    let want = if caller::is_supervisor() { Want::RootFile } else { Want::Looks(looks) };
    bring_if_possible(index, dirfd, path, follow, want)
}

/// The last file that was looked at is another node's: the next one may be, too.
static LOOKS_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// In a listing of another node's files, what the next one looks like: its name is read as a link before the kernel is asked to follow it, which
/// is fewer requests to the root's servers. `None`: it is to be looked at as any file.
pub fn look_first(index: Index, dirfd: i32, path: *const c_char) -> Option<Looks> {
    if !LOOKS_ELSEWHERE.load(Relaxed) || !is_possible(index) || path.is_null() || caller::is_supervisor() {
        return None;
    }
    let mut text = [0u8; LINK_MAX];
    let len = link::text(dirfd, path, &mut text);
    // What the kernel has read can be read; an empty one is of a descriptor, whatever the call makes of that.
    if len <= 0 || stat::is_empty(path) || !index.is_elsewhere(&text[..len as usize]) {
        LOOKS_ELSEWHERE.store(false, Relaxed);
        return None;
    }
    look_only(index, &text_and_name(index, dirfd, path, &text[..len as usize]))
}

fn bring_if_possible(index: Index, dirfd: i32, path: *const c_char, follow: bool, mut want: Want<'_>) -> Brought {
    match is_possible(index) {
        true => bring_wanted(index, dirfd, path, follow, &mut want),
        false => Brought::Not,
    }
}

/// What a call that only looks at a file answers, where it can be told from what a file in another node's tier looks like.
pub fn answered(
    dirfd: i32,
    path: *const c_char,
    follow: bool,
    answer: impl Fn(&Looks) -> Option<isize>,
) -> Option<isize> {
    let index = process::index().filter(|index| is_possible(*index) && !path.is_null())?;
    let mut looks = None;
    match bring_to_look(index, dirfd, path, follow, &mut looks) {
        Brought::Failed(error) => Some(error),
        Brought::Done | Brought::Not => answer(&looks?),
    }
}

/// As `bring`, also if no other node has been heard of yet.
#[cold]
pub fn bring_surely(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> Brought {
    bring_wanted(index, dirfd, path, follow, &mut Want::RootFile)
}

#[cold]
fn bring_wanted(index: Index, dirfd: i32, path: *const c_char, follow: bool, want: &mut Want<'_>) -> Brought {
    match bring_name(index, dirfd, path, follow, want) {
        Brought::Not if stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW).is_none() => {
            bring_above(index, dirfd, path)
        }
        brought => brought,
    }
}

/// A directory on the way may be one that another node has placed as a whole.
fn bring_above(index: Index, dirfd: i32, path: *const c_char) -> Brought {
    if !readable::is_text(path) {
        return Brought::Not;
    }
    // SAFETY: the program's C string.
    let mut left = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut name = Path::new();
    while let Some(slash) = left.iter().rposition(|&byte| byte == b'/').filter(|&slash| slash > 0) {
        left = &left[..slash];
        name.clear();
        if !name.push(left) {
            return Brought::Not;
        }
        match bring_name(index, dirfd, name.as_ptr(), true, &mut Want::RootFile) {
            Brought::Not if stat::kernel_stat(dirfd, name.as_ptr(), 0).is_none() => {}
            brought => return brought,
        }
    }
    Brought::Not
}

fn bring_name(index: Index, dirfd: i32, path: *const c_char, follow: bool, want: &mut Want<'_>) -> Brought {
    let mut text = [0u8; LINK_MAX];
    let read = |at: i32, name: *const c_char, text: &mut [u8; LINK_MAX]| {
        // SAFETY: a path of the program's or of ours, which the kernel checks; our buffer, whose last byte stays the terminator.
        unsafe {
            gate::call4(libc::SYS_readlinkat, at as usize, name as usize, text.as_mut_ptr() as usize, LINK_MAX - 1)
        }
    };
    let mut len = read(dirfd, path, &mut text);
    if len <= 0 {
        return Brought::Not;
    }
    if index.is_elsewhere(&text[..len as usize]) {
        return ask(index, dirfd, path, &text[..len as usize], want);
    }
    if !follow {
        return Brought::Not;
    }
    let mut name = Path::new();
    let mut parent: Option<Parent> = Parent::of(dirfd, path).ok().flatten();
    for _ in 0..LOOPS_MAX {
        let Some(directory) = &parent else { return Brought::Not };
        name.clear();
        if len as usize >= LINK_MAX - 1 || !name.push(&text[..len as usize]) {
            return Brought::Not;
        }
        let Ok(Some(next)) = Parent::of(directory.fd, name.as_ptr()) else { return Brought::Not };
        len = read(next.fd, next.base, &mut text);
        if len <= 0 {
            return Brought::Not;
        }
        if index.is_elsewhere(&text[..len as usize]) {
            return ask(index, next.fd, next.base, &text[..len as usize], want);
        }
        parent = Some(next);
    }
    Brought::Not
}

/// The agent's answer, which may take seconds: then the program may be gone, and must not cut or rename a file after its death.
fn ask(index: Index, dirfd: i32, path: *const c_char, text: &[u8], want: &mut Want<'_>) -> Brought {
    let brought = ask_agent(index, dirfd, path, text, want);
    if caller::is_still_there() { brought } else { Brought::Failed(-(libc::EINTR as isize)) }
}

/// What the owner tells of the file, which stays where it is. `None`: it is to be brought.
fn look_only(index: Index, both: &Path) -> Option<Looks> {
    let request = Request { kind: CallKind::Look, record: NO_RECORD, size: 0, path: both.get(), fd: -1 };
    let answer = call(index, &request);
    LOOKS_ELSEWHERE.store(answer.status == 0, Relaxed);
    // SAFETY: a status of 0 comes with a whole reply, which begins with these numbers.
    (answer.status == 0)
        .then(|| unsafe { core::ptr::read_unaligned((&raw const (*answer.reply()).path).cast::<Looks>()) })
}

/// The link's text, and where it was met if that is known.
fn text_and_name(index: Index, dirfd: i32, path: *const c_char, text: &[u8]) -> Path {
    let mut both = Path::new();
    let mut whole = Path::new();
    // SAFETY: readlink read it just now; a terminated path.
    let has_name = !path.is_null() && !unsafe { CStr::from_ptr(path) }.is_empty();
    both.push(text);
    if has_name
        && let Ok(Some(parent)) = Parent::of(dirfd, path)
        && parent.path_below_root(index, &mut whole)
        && text.len() + 1 + whole.get().len() < terrace_index::PATH_MAX
    {
        both.push(b"\0");
        both.push(whole.get());
    }
    both
}

fn ask_agent(index: Index, dirfd: i32, path: *const c_char, text: &[u8], want: &mut Want<'_>) -> Brought {
    let both = text_and_name(index, dirfd, path, text);
    if let Want::Looks(looks) = want {
        **looks = look_only(index, &both);
        if looks.is_some() {
            return Brought::Done;
        }
    }
    let size = if matches!(want, Want::AnyFile) { MOST_OPENED } else { 0 };
    let request = Request { kind: CallKind::Bring, record: NO_RECORD, size, path: both.get(), fd: -1 };
    match call(index, &request).status {
        0 => Brought::Done,
        // The caller is about to put the file there itself.
        libc::ECANCELED => Brought::Not,
        errno => Brought::Failed(-(errno as isize)),
    }
}

/// Something has this name, and it is not a link that leads to nothing: of the program's own, or to an object that is lost.
fn is_there(index: Index, dirfd: i32, path: *const c_char) -> bool {
    stat::kernel_stat(dirfd, path, 0).is_some()
        || stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW).is_some()
            && !open::is_programs_link(index, dirfd, path)
            && link::read(index, dirfd, path).is_none()
}

/// The kernel, when the program itself asks it, may meet another node's link at this name of the root's own file: it may be there by now, and may
/// be put there at any moment. What a link of the program's own leads to is not looked at: that may be another file for each who asks.
pub fn may_be_met(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> bool {
    if !is_possible(index) || open::is_programs_link(index, dirfd, path) {
        return false;
    }
    let is_of_root = |status: &libc::stat| status.st_dev == index.header.root_dev.load(Relaxed);
    match stat::kernel_stat(dirfd, path, if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW }) {
        Some(status) => status.st_mode & libc::S_IFMT == libc::S_IFREG && is_of_root(&status),
        None => stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW).is_some_and(|status| is_of_root(&status)),
    }
}

/// After the first looks each waits twice as long for the next.
fn rest(attempt: u32) {
    if attempt > 1 {
        process::sleep_us((REST_US << attempt.min(20)).min(REST_MAX_US));
    }
}

/// Makes a call by a name that the kernel follows, again when what it leads to has been brought.
pub fn retried(dirfd: i32, path: *const c_char, mut act: impl FnMut() -> isize) -> isize {
    let mut result = act();
    for attempt in 0..TRIES {
        if result != -(libc::ENOENT as isize) || path.is_null() {
            return result;
        }
        let Some(index) = process::index() else { return result };
        match bring(index, dirfd, path, true) {
            // Another node made it a real file between the kernel's look and ours, or it went on to a third one.
            Brought::Not if is_possible(index) && is_there(index, dirfd, path) => {}
            Brought::Not => return result,
            Brought::Failed(error) => return error,
            Brought::Done => {}
        }
        rest(attempt);
        result = act();
    }
    // Something is there, so it is not that.
    if result == -(libc::ENOENT as isize) { -(libc::EIO as isize) } else { result }
}

/// As `retried`, of a call that only looks: where what a file in another node's tier looks like says enough, it stays there.
pub fn told_or_retried(
    dirfd: i32,
    path: *const c_char,
    answer: impl Fn(&Looks) -> Option<isize>,
    mut act: impl FnMut() -> isize,
) -> isize {
    let mut seen = Some(act());
    if seen == Some(-(libc::ENOENT as isize))
        && let Some(told) = answered(dirfd, path, true, answer)
    {
        return told;
    }
    retried(dirfd, path, || seen.take().unwrap_or_else(&mut act))
}

/// A call on a name that may go to another node while it is made: brought before, and again as long as what was met is another node's link.
pub fn until_here(
    index: Index,
    dirfd: i32,
    path: *const c_char,
    follow: bool,
    mut act: impl FnMut() -> isize,
) -> isize {
    for attempt in 0..TRIES {
        rest(attempt);
        if let Err(error) = brought(index, dirfd, path, follow) {
            return error;
        }
        // What may be another node's link, by its length, with the number of its inode.
        let met = || {
            let status = stat::kernel_stat(dirfd, path, libc::AT_SYMLINK_NOFOLLOW)?;
            let may_be =
                status.st_mode & libc::S_IFMT == libc::S_IFLNK && index.may_lead_elsewhere(status.st_size as u64);
            may_be.then_some((status.st_ino, status.st_size))
        };
        let is_asked = !follow && is_possible(index);
        let before = if is_asked { met().filter(|_| !link::is_elsewhere(index, dirfd, path)) } else { None };
        let result = act();
        // It was tried for long.
        if follow || !is_possible(index) || result == -(libc::EIO as isize) {
            return result;
        }
        // To read a link changes its time of access, which may be what was set: the program's own is known from before.
        let is_another = met().is_some_and(|now| before != Some(now));
        if !is_another || !link::is_elsewhere(index, dirfd, path) {
            return result;
        }
    }
    -(libc::EIO as isize)
}

/// Before a call that must find a file of the root's own at the name: none of another node's is there any more, or the error.
pub fn brought(index: Index, dirfd: i32, path: *const c_char, follow: bool) -> Result<(), isize> {
    for attempt in 0..TRIES {
        match bring(index, dirfd, path, follow) {
            Brought::Not => return Ok(()),
            Brought::Failed(error) => return Err(error),
            Brought::Done => rest(attempt),
        }
    }
    Err(-(libc::EIO as isize))
}
