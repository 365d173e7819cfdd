//! Counting what is written, and following files that move under open descriptors.
//!
//!   write ─▶ guard ─▶ room left? ──yes──▶ the system call ─▶ count
//!                        │no                     │ENOSPC
//!                        ▼                       ▼
//!                     reserve more  ──no room──▶ agent: evict others, or move this file down ─▶ exchange the descriptor
//!
//! Each descriptor has a cell with the bytes that may still be written without asking. A cell is a hint: it is set when a
//! placed file is opened, taken as unknown after dup, and looked up (one fstat) when it runs out. A stale cell costs
//! an fstat, or a miscount that the agent corrects when the file is closed; never a wrong byte.
//!
//! Invariant: between a guard's entry and its leaving, a record that was seen not `Moving` does not become `Moved`.

use crate::agent_call::{Request, call};
use crate::events::{publish, wake_agent};
use crate::{gate, habits, link, process, real};
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};
use terrace_index::calls::CallKind;
use terrace_index::guard::{Domain, Entered};
use terrace_index::habits::SMALL_BYTES;
use terrace_index::ring::{EventKind, NO_RECORD};
use terrace_index::{FLAG_MAPPED, FLAG_WATCHED, GROWN_BYTES, Index, State};

pub const CELLS: usize = 4096;
const BLOCK: i64 = 4096;
/// Not a placed file: no counting.
const NOT_PLACED: i64 = i64::MAX;
/// Look before the next use.
const UNKNOWN: i64 = i64::MIN;
/// So often the kernel may say that there is no room where the agent has found some: others took it first, or it counts what nobody else
/// does (a quota).
const REFUSALS_MAX: u32 = 64;

/// `UNKNOWN` is stored as 0 after an exclusive or, so that the untouched table takes no memory.
static LEFT: [AtomicI64; CELLS] = [const { AtomicI64::new(0) }; CELLS];
/// `moves_seq` plus 1 when the descriptor was last known to be the current one.
static SEEN: [AtomicU64; CELLS] = [const { AtomicU64::new(0) }; CELLS];

fn left(fd: i32) -> i64 {
    match LEFT.get(fd as usize) {
        Some(cell) => cell.load(Relaxed) ^ UNKNOWN,
        None => UNKNOWN,
    }
}

/// What is left of a descriptor whose writes are counted.
fn counted(fd: i32) -> Option<i64> {
    Some(left(fd)).filter(|&left| left != NOT_PLACED && left != UNKNOWN)
}

fn set_left(fd: i32, bytes: i64) {
    if let Some(cell) = LEFT.get(fd as usize) {
        cell.store(bytes ^ UNKNOWN, Relaxed);
    }
}

fn set_seen(fd: i32, seq: u64) {
    if let Some(cell) = SEEN.get(fd as usize) {
        cell.store(seq + 1, Relaxed);
    }
}

fn seen(fd: i32) -> u64 {
    SEEN.get(fd as usize).map_or(0, |cell| cell.load(Relaxed))
}

/// The descriptor's number has a new meaning that we don't know.
pub fn forget(fd: i32) {
    if fd >= 0 {
        habits::take_made(fd);
        set_left(fd, UNKNOWN);
        if let Some(cell) = SEEN.get(fd as usize) {
            cell.store(0, Relaxed);
        }
    }
}

/// The descriptor is not a placed file (just opened elsewhere).
pub fn not_placed(fd: i32) {
    if fd >= 0 {
        set_left(fd, NOT_PLACED);
    }
}

/// What a call needs before it may run.
#[derive(Clone, Copy)]
pub enum Need {
    /// Only the right descriptor (reading, seeking).
    Nothing,
    /// So many bytes beyond what the file has.
    Growth(i64),
    /// A file of so many bytes.
    Total(i64),
}

impl Need {
    fn growth(self) -> i64 {
        match self {
            Need::Nothing => 0,
            Need::Growth(bytes) => bytes.max(0),
            Need::Total(_) => NOT_PLACED,
        }
    }
}

/// Runs a call that changes a file's bytes. `op` returns the C convention (-1 and errno), and the bytes it wrote.
pub fn writing(fd: i32, need: Need, op: impl Fn() -> isize) -> isize {
    let Some(index) = process::index() else { return op() };
    let growth = need.growth();
    if left(fd) == NOT_PLACED && fd >= 0 {
        return in_root(index, fd, op);
    }
    let mut checked = false;
    let mut refusals = 0;
    // The kernel refused; there may be room now. Leaves errno as it is.
    let mut may_try_again = || {
        let errno = real::errno();
        refusals += 1;
        let has_room = refusals < REFUSALS_MAX && no_room(index, fd, need) == 0;
        real::set_errno(errno);
        has_room
    };
    loop {
        let entered = process::enter(index, Domain::Data);
        let ready = checked || (left(fd) >= growth && left(fd) != UNKNOWN);
        if ready && seen(fd) == index.header.moves_seq.load(SeqCst) + 1 {
            let result = op();
            index.guard_leave(entered);
            if result > 0 {
                if let (Need::Growth(_), Some(left)) = (need, counted(fd)) {
                    set_left(fd, left - result as i64);
                }
            } else if is_refusal(result) && may_try_again() {
                checked = false;
                continue;
            }
            return result;
        }
        index.guard_leave(entered);
        let seq = index.header.moves_seq.load(SeqCst);
        match refresh(index, fd, need, checked) {
            Refreshed::NotPlaced => {
                set_left(fd, NOT_PLACED);
                return in_root(index, fd, op);
            }
            Refreshed::Ready if fd as usize >= CELLS => {
                // No cell remembers the check just made: it holds if nothing began to move since.
                let entered = process::enter(index, Domain::Data);
                let result = (index.header.moves_seq.load(SeqCst) == seq).then(&op);
                index.guard_leave(entered);
                match result {
                    Some(result) if is_refusal(result) && may_try_again() => checked = false,
                    Some(result) => return result,
                    None => checked = true,
                }
            }
            Refreshed::Ready => checked = true,
            Refreshed::Again => checked = false,
            Refreshed::Fails(errno) => {
                real::set_errno(errno);
                return -1;
            }
            Refreshed::Lost => {
                real::set_errno(libc::EIO);
                return -1;
            }
        }
    }
}

/// As `writing`, of a file that lies in no tier.
fn in_root(index: Index, fd: i32, op: impl Fn() -> isize) -> isize {
    let result = op();
    if is_refusal(result) {
        let errno = real::errno();
        let has_asked = fstat(fd).is_some_and(|status| has_let_go_in_root(index, &status));
        real::set_errno(errno);
        return if has_asked { op() } else { result };
    }
    result
}

/// The root's file system is full of files without names, perhaps, that the agent alone has open: they moved there while programs had them
/// open. It has been asked to let go of those that no program has any more.
#[cold]
fn has_let_go_in_root(index: Index, status: &libc::stat) -> bool {
    status.st_dev == index.header.root_dev.load(Relaxed) && has_let_go(index)
}

/// As `has_let_go_in_root`, after ENOSPC for a new name there.
#[cold]
pub fn has_let_go(index: Index) -> bool {
    let may_have_any = index.header.moves_seq.load(Relaxed) != 0;
    may_have_any
        && call(index, &Request { kind: CallKind::MakeRoom, record: NO_RECORD, size: 0, path: b"", fd: -1 }).status == 0
}

fn is_refusal(result: isize) -> bool {
    result < 0 && matches!(real::errno(), libc::ENOSPC | libc::EDQUOT)
}

/// Runs a call that reads, seeks or asks: all it needs is the descriptor that has the bytes now.
#[inline]
pub fn reading(fd: i32, op: impl Fn() -> isize) -> isize {
    if let Some(index) = process::index()
        && index.header.moves_seq.load(Relaxed) != 0
        && !follow(index, fd)
    {
        real::set_errno(libc::EIO);
        return -1;
    }
    op()
}

/// Exchanges the descriptor if its file has moved. False: nobody knows where the file is, and what the descriptor leads to may be old.
pub fn follow(index: Index, fd: i32) -> bool {
    !matches!(followed(index, fd), Refreshed::Lost)
}

/// As `follow`. 0, or the error for which the descriptor may not be that of the file as it is now.
pub fn follow_surely(index: Index, fd: i32) -> i32 {
    match followed(index, fd) {
        Refreshed::Lost => libc::EIO,
        Refreshed::Fails(errno) => errno,
        _ => 0,
    }
}

fn followed(index: Index, fd: i32) -> Refreshed {
    while seen(fd) != index.header.moves_seq.load(SeqCst) + 1 {
        match refresh(index, fd, Need::Nothing, false) {
            Refreshed::NotPlaced => {
                set_seen(fd, index.header.moves_seq.load(SeqCst));
                return Refreshed::NotPlaced;
            }
            Refreshed::Again => continue,
            refreshed => return refreshed,
        }
    }
    Refreshed::Ready
}

/// The descriptor's file was opened in the root, and does not move.
pub fn is_of_root(fd: i32) -> bool {
    fd >= 0 && left(fd) == NOT_PLACED
}

/// The descriptor is one of a file as it was: it has moved.
pub fn has_moved(index: Index, fd: i32) -> bool {
    loop {
        let number = fstat(fd).and_then(|status| record_of(index, fd, &status));
        let Some(record) = number.map(|number| link::record(&index, number)) else { return false };
        match record.state() {
            State::Moving => process::sleep_us(200),
            State::Moved => return true,
            State::Dead => return record.moved_to.load(Acquire) != 0,
            _ => return false,
        }
    }
}

enum Refreshed {
    NotPlaced,
    Ready,
    Again,
    Fails(i32),
    /// Its file moved, and can't be found again.
    Lost,
}

pub fn fstat(fd: i32) -> Option<libc::stat> {
    // SAFETY: a zeroed stat is valid, and the kernel fills it.
    unsafe {
        let mut status: libc::stat = core::mem::zeroed();
        (gate::call2(libc::SYS_fstat, fd as usize, &raw mut status as usize) == 0).then_some(status)
    }
}

/// The file that the descriptor leads to.
pub fn inode(fd: i32) -> Option<(u64, u64)> {
    fstat(fd).map(|status| (status.st_dev, status.st_ino))
}

/// The record of an open descriptor's object; `status` is the descriptor's.
pub fn record_of(index: Index, fd: i32, status: &libc::stat) -> Option<u32> {
    if status.st_mode & libc::S_IFMT != libc::S_IFREG || !index.device_of_dev(status.st_dev) {
        return None;
    }
    let known = |status: &libc::stat| index.record_of_object(status.st_dev, status.st_ino, status.st_nlink);
    // It may have moved, and lost its name by that, between the look at it and the look at its record.
    known(status).or_else(|| known(&fstat(fd)?))
}

/// True if the descriptor is an object of ours, or may lie in a placed directory.
pub fn is_placed(index: Index, fd: i32) -> bool {
    fstat(fd).is_some_and(|status| is_unrecorded(index, &status) || record_of(index, fd, &status).is_some())
}

/// A regular file in a tier that has no record, or none that we looked for: it may lie in a placed directory, and gets a record when its
/// tier has no room for it any more.
pub fn is_unrecorded(index: Index, status: &libc::stat) -> bool {
    index.header.directories.load(Relaxed) > 0
        && status.st_mode & libc::S_IFMT == libc::S_IFREG
        && status.st_dev != index.header.root_dev.load(Relaxed)
        && index.device_of_dev(status.st_dev)
}

/// As `opened`, of a file that lies in a placed directory: what it writes is looked at before.
pub fn opened_unrecorded(fd: i32, writable: bool) {
    forget(fd);
    if writable && !crate::caller::is_supervisor() {
        crate::entry::patch();
    }
}

/// A file was made in the root since its program makes small ones: what is written to it is counted, until it is large.
pub fn opened_small(index: Index, fd: i32) {
    if !crate::caller::is_supervisor() {
        crate::entry::patch();
        set_left(fd, SMALL_BYTES as i64);
        set_seen(fd, index.header.moves_seq.load(SeqCst));
    }
}

/// Looks at the descriptor: what is it, is it current, has its file room for `need`? `checked`: it had when this call looked before.
#[cold]
fn refresh(index: Index, fd: i32, need: Need, checked: bool) -> Refreshed {
    let seq = index.header.moves_seq.load(SeqCst);
    let Some(status) = fstat(fd) else { return Refreshed::NotPlaced };
    let Some(number) = record_of(index, fd, &status) else {
        set_seen(fd, seq);
        // The agent that let a file grow where it is tried to move it first, for which all who write look again.
        return if checked { Refreshed::Ready } else { refresh_unrecorded(index, fd, need, &status) };
    };
    let record = link::record(&index, number);
    match record.state() {
        State::Moving => {
            process::sleep_us(200);
            return Refreshed::Again;
        }
        State::Moved => return exchange(index, fd, number),
        State::Dead if record.moved_to.load(Acquire) != 0 => return exchange(index, fd, number),
        _ => {}
    }
    set_seen(fd, seq);
    let size = status.st_size.max(status.st_blocks * 512);
    let total = match need {
        Need::Nothing => return Refreshed::Ready,
        Need::Growth(bytes) => size.saturating_add(bytes.max(0)),
        Need::Total(bytes) => bytes,
    };
    let mut reserved = record.reserved.load(Acquire);
    if reserved < total {
        // Whole blocks, first no more than is asked for, so that a small file holds nothing that it doesn't need; then as
        // much again as it has, so that a large one, or one that is written over and over, seldom asks.
        let total = total.saturating_add(BLOCK - 1) & !(BLOCK - 1);
        let device = record.device.load(Relaxed) as usize % terrace_index::DEVICES;
        let missing = total - reserved;
        let most = index.header.devices[device].grant_max.load(Relaxed);
        let again = if reserved > 0 { size.max(most / 16) } else { 0 };
        let grant = missing.max(again.min(most));
        let taken = if index.reserve(device, grant) {
            grant
        } else if index.reserve(device, missing) {
            missing
        } else {
            return match no_room(index, fd, need) {
                0 => Refreshed::Again,
                errno => Refreshed::Fails(errno),
            };
        };
        let before = record.reserved.fetch_add(taken, AcqRel);
        reserved = before + taken;
        if before < GROWN_BYTES && reserved >= GROWN_BYTES {
            publish(index, EventKind::Grown, number, b"", b"");
            wake_agent(index);
        }
    }
    set_left(fd, reserved - size);
    Refreshed::Ready
}

/// As `refresh`, of a file without a record. What it takes is counted by the agent, who walks through placed directories.
fn refresh_unrecorded(index: Index, fd: i32, need: Need, status: &libc::stat) -> Refreshed {
    if !is_unrecorded(index, status) {
        return refresh_small(index, fd, need, status);
    }
    let size = status.st_size.max(status.st_blocks * 512);
    let growth = match need {
        Need::Nothing => return Refreshed::Ready,
        Need::Growth(bytes) => bytes.max(0),
        Need::Total(bytes) => bytes.saturating_sub(size).max(0),
    };
    let Some(device) = index.devices().iter().find(|device| device.dev.load(Relaxed) == status.st_dev) else {
        return Refreshed::NotPlaced;
    };
    let most = device.grant_max.load(Relaxed);
    if growth == 0 || device.free() >= growth {
        set_left(fd, device.free().min(most).max(growth));
        return Refreshed::Ready;
    }
    match spill(index, fd, size.saturating_add(growth)) {
        Refreshed::Ready => set_left(fd, most.max(growth)),
        refreshed => return refreshed,
    }
    Refreshed::Ready
}

/// As `refresh`, of a file that lies in no tier. One that was made in the root as a small one may become large.
fn refresh_small(index: Index, fd: i32, need: Need, status: &libc::stat) -> Refreshed {
    let Some(left) = counted(fd).filter(|_| status.st_dev == index.header.root_dev.load(Relaxed)) else {
        return Refreshed::NotPlaced;
    };
    let small = SMALL_BYTES as i64;
    let is_small = match need {
        Need::Nothing => true,
        // What was written over does not count.
        Need::Growth(bytes) if bytes > left => {
            set_left(fd, (small - status.st_size).max(0));
            bytes <= small - status.st_size
        }
        Need::Growth(_) => true,
        Need::Total(bytes) => bytes <= small,
    };
    if is_small {
        return Refreshed::Ready;
    }
    // A file without a name says nothing of others.
    if status.st_nlink > 0 {
        habits::grew(index, fd);
    }
    Refreshed::NotPlaced
}

/// What a call that may move less than it asks for has moved into a file that lies in no tier, and may have been made as a small one.
pub fn noted(index: Index, fd: i32, moved: isize) -> isize {
    if moved > 0
        && counted(fd).is_some()
        && let Some(status) = fstat(fd)
        && let Refreshed::NotPlaced = refresh_small(index, fd, Need::Total(status.st_size), &status)
    {
        set_left(fd, NOT_PLACED);
    }
    moved
}

/// A file without a record needs so many bytes in all. `Ready`: it stays, and may grow where it is.
#[cold]
fn spill(index: Index, fd: i32, size: i64) -> Refreshed {
    match ask_to_grow(index, fd, size) {
        Ok(NO_RECORD) => Refreshed::Ready,
        Ok(_) => Refreshed::Again,
        Err(libc::ENOENT) => Refreshed::NotPlaced,
        Err(libc::ENOSPC | libc::EDQUOT | libc::EBUSY) => Refreshed::Fails(libc::ENOSPC),
        // Nobody answers, or not this user's program: the kernel says what there is room for.
        Err(_) => Refreshed::Ready,
    }
}

/// The record by which a file that had none has moved, or `NO_RECORD`: there is room where it is.
fn ask_to_grow(index: Index, fd: i32, size: i64) -> Result<u32, i32> {
    set_left(fd, UNKNOWN);
    let answer = call(index, &Request { kind: CallKind::Grow, record: NO_RECORD, size, path: b"", fd });
    match answer.status {
        // SAFETY: a status of 0 comes with a whole reply.
        0 => Ok(unsafe { (*answer.reply()).record }),
        status => Err(status),
    }
}

/// The tier is full: the agent makes room or moves the file down. 0: try again; else an errno.
#[cold]
fn no_room(index: Index, fd: i32, need: Need) -> i32 {
    let Some(status) = fstat(fd) else { return libc::EBADF };
    let Some(number) = record_of(index, fd, &status) else {
        let size = status.st_size.max(status.st_blocks * 512);
        let total = match need {
            Need::Nothing => size,
            Need::Growth(bytes) => size.saturating_add(bytes.max(1)),
            Need::Total(bytes) => bytes,
        };
        // It has moved, or room was made meanwhile, for another file or by whoever removed one.
        if is_unrecorded(index, &status) {
            return if ask_to_grow(index, fd, total).is_ok() { 0 } else { libc::ENOSPC };
        }
        // One that was made in the root as a small file: asked for once.
        if counted(fd).is_some() && has_let_go_in_root(index, &status) {
            set_left(fd, NOT_PLACED);
            return 0;
        }
        return libc::ENOSPC;
    };
    let size = match need {
        Need::Nothing => status.st_size,
        Need::Growth(bytes) => status.st_size.max(status.st_blocks * 512).saturating_add(bytes.max(1)),
        Need::Total(bytes) => bytes,
    };
    set_left(fd, UNKNOWN);
    call(index, &Request { kind: CallKind::Grow, record: number, size, path: b"", fd }).status
}

/// Puts the descriptor that has the bytes now in the place of this one, at the same offset, with the same flags.
#[cold]
pub fn exchange_fd(index: Index, fd: i32, record: u32) -> i32 {
    let answer = call(index, &Request { kind: CallKind::Exchange, record, size: 0, path: b"", fd });
    if answer.status != 0 || answer.fd < 0 {
        return if answer.status != 0 { answer.status } else { libc::EIO };
    }
    // SAFETY: descriptors of this process.
    unsafe {
        let flags = gate::call3(libc::SYS_fcntl, fd as usize, libc::F_GETFD as usize, 0);
        let cloexec = if flags > 0 && flags as i32 & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        // Another thread may have done it: to do it again would close a descriptor of the file, and so drop locks on it.
        let result = match inode(fd) == inode(answer.fd) {
            true => 0,
            false => gate::call3(libc::SYS_dup3, answer.fd as usize, fd as usize, cloexec as usize),
        };
        crate::locks::close_unseen(answer.fd);
        forget(fd);
        if result < 0 { -result as i32 } else { 0 }
    }
}

fn exchange(index: Index, fd: i32, record: u32) -> Refreshed {
    match exchange_fd(index, fd, record) {
        0 => Refreshed::Again,
        libc::ESTALE => Refreshed::Lost,
        errno => Refreshed::Fails(errno),
    }
}

/// A placed file was opened (or made) for writing: its cell is looked up at the first write. One that is just being moved
/// is looked at again before its first use.
pub fn opened(index: Index, fd: i32, number: u32, writable: bool) {
    forget(fd);
    // First the sequence, then the state: a move that begins in between has a later sequence.
    let seq = index.header.moves_seq.load(SeqCst);
    if !matches!(link::record(&index, number).state(), State::Moving | State::Moved) {
        set_seen(fd, seq);
    }
    if writable && !crate::caller::is_supervisor() {
        crate::entry::patch();
    }
}

/// From now on the record's descriptors can't be exchanged. False: it has moved already.
pub fn bind(index: Index, number: u32) -> bool {
    let record = link::record(&index, number);
    loop {
        let entered = process::enter(index, Domain::Data);
        let state = record.state();
        let mut is_new = false;
        if state != State::Moving {
            is_new = record.flags.fetch_or(FLAG_MAPPED | FLAG_WATCHED, SeqCst) & FLAG_WATCHED == 0;
        }
        index.guard_leave(entered);
        if is_new {
            publish(index, EventKind::Uncounted, number, b"", b"");
        }
        match state {
            State::Moving => process::sleep_us(200),
            state => return state != State::Moved,
        }
    }
}

/// A shared mapping of a placed file: from now on its descriptors can't be exchanged. Of a file without a record the agent looks who has
/// it mapped: the guard that is returned is to be held until it is.
pub fn mapped(index: Index, fd: i32) -> Option<Entered> {
    follow(index, fd);
    while fstat(fd).is_some_and(|status| is_unrecorded(index, &status)) {
        let entered = process::enter(index, Domain::Data);
        let Some(status) = fstat(fd) else {
            index.guard_leave(entered);
            break;
        };
        match record_of(index, fd, &status).map(|number| link::record(&index, number).state()) {
            None if is_unrecorded(index, &status) => return Some(entered),
            Some(State::Moving) => {
                index.guard_leave(entered);
                process::sleep_us(200);
                follow(index, fd);
            }
            _ => {
                index.guard_leave(entered);
                break;
            }
        }
    }
    if let Some(number) = fstat(fd).and_then(|status| record_of(index, fd, &status)) {
        let record = link::record(&index, number);
        loop {
            let entered = process::enter(index, Domain::Data);
            if record.state() != State::Moving {
                record.flags.fetch_or(FLAG_MAPPED, SeqCst);
                index.guard_leave(entered);
                follow(index, fd);
                return None;
            }
            index.guard_leave(entered);
            process::sleep_us(200);
        }
    }
    None
}

/// The program is about to wait until the file is on its disk, for which it does not wait in a tier.
pub fn synced(fd: i32) {
    let Some(index) = process::index().filter(|index| index.header.learning.load(Relaxed) != 0) else { return };
    if left(fd) != NOT_PLACED
        && let Some(number) = fstat(fd).and_then(|status| record_of(index, fd, &status))
    {
        habits::synced(index, link::record(&index, number));
    }
}

/// Calls that nobody waits for are about to change the file.
pub fn written_later(index: Index, fd: i32) {
    if let Some(entered) = mapped(index, fd) {
        index.processes[process::slot(index) as usize].is_asynchronous.store(1, SeqCst);
        index.guard_leave(entered);
    }
}

/// `forget` for every number in the range.
pub fn forget_range(first: u32, last: u32) {
    for fd in first..=last.min(CELLS as u32 - 1) {
        if left(fd as i32) != UNKNOWN || seen(fd as i32) != 0 || habits::take_made(fd as i32).is_some() {
            forget(fd as i32);
        }
    }
}
