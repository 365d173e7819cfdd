//! Region locks of one array: a table in a shared file, so that a lock costs no message.
//!
//!   turn (a word, held for a few hundred nanoseconds) ─▶ does a held slot conflict? ─▶ fill a free slot
//!
//! Invariant: each change of the table is one store of a slot's state, so a process that is killed anywhere leaves it right.
//! The turn of a dead holder is taken over; the locks of a dead holder are dropped by whoever they are in the way of.

use super::mapped::MappedFile;
use crate::calls;
use crate::place::is_dead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};
use terrace_core::objects::{Kind, ObjectError, Overlap, RANK_MAX, Region, Result};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockMode {
    /// Several may hold it.
    Read,
    /// One alone holds it.
    Write,
}

const SLOTS: usize = 1024;
const MAGIC: u64 = u64::from_le_bytes(*b"terlock1");
/// How often a waiter looks whether the holder still lives.
const LOOK: Duration = Duration::from_millis(20);
const SPINS: u32 = 2000;

#[repr(C)]
struct Table {
    magic: AtomicU64,
    /// Who changes the table: pid, 0 for nobody.
    turn: AtomicU32,
    /// Raised at each release; waiters sleep on it.
    releases: AtomicU32,
    waiters: AtomicU32,
    /// Slots that were ever used lie below.
    used: AtomicU32,
    _pad: [u64; 5],
    slots: [Slot; SLOTS],
}

/// 256 bytes.
#[repr(C)]
struct Slot {
    /// 0: free; 1: read; 2: write.
    state: AtomicU32,
    pid: AtomicU32,
    /// When the holder's process began: a pid is used again.
    birth: AtomicU64,
    rank: AtomicU64,
    _pad: u64,
    offset: [AtomicU64; RANK_MAX],
    count: [AtomicU64; RANK_MAX],
    stride: [AtomicU64; RANK_MAX],
    _rest: [u64; 4],
}

pub struct LockTable {
    file: MappedFile,
}

/// Held until it is dropped, or its process ends.
pub struct RegionLock {
    table: Arc<LockTable>,
    slot: usize,
    region: Region,
    mode: LockMode,
    /// A child of a fork inherits the value, not the lock.
    forks: u32,
}

impl LockTable {
    /// The table at this path; made if there is none.
    pub fn open(path: &Path) -> Result<Arc<LockTable>> {
        let len = size_of::<Table>() as u64;
        let file = match MappedFile::open(path) {
            Err(error) if error.kind == Kind::NotFound => {
                let temporary = path.with_extension(format!("{:016x}", crate::place::random()));
                let made = MappedFile::create(&temporary, len, 4096)?;
                // SAFETY: as `table` below; nobody else sees it yet.
                unsafe { &*(made.base() as *const Table) }.magic.store(MAGIC, Release);
                let linked = calls::link(&temporary, path);
                let _ = calls::unlink(&temporary);
                match linked {
                    Ok(()) => made,
                    Err(rustix::io::Errno::EXIST) => MappedFile::open(path)?,
                    Err(errno) => return Err(crate::failure::system("create", path, errno)),
                }
            }
            opened => opened?,
        };
        if (file.len() as u64) < len {
            return Err(ObjectError::new(Kind::Damaged, format!("the lock table {} is too short", path.display())));
        }
        let table = LockTable { file };
        if table.table().magic.load(Acquire) != MAGIC {
            return Err(ObjectError::new(Kind::Damaged, format!("{} is not a lock table", path.display())));
        }
        Ok(Arc::new(table))
    }

    fn table(&self) -> &Table {
        // SAFETY: the mapping is at least this long and page-aligned; all fields are atomics.
        unsafe { &*(self.file.base() as *const Table) }
    }

    /// Which file it is: another one may be put in its place.
    pub fn ino(&self) -> u64 {
        self.file.ino()
    }

    /// Waits so long for the region (`None`: as long as it takes; zero: does not wait).
    pub fn lock(self: &Arc<Self>, region: &Region, mode: LockMode, patience: Option<Duration>) -> Result<RegionLock> {
        let table = self.table();
        let mut start = None;
        loop {
            let seen = table.releases.load(SeqCst);
            match self.try_lock(region, mode)? {
                Ok(slot) => {
                    let forks = crate::place::fork_generation();
                    return Ok(RegionLock { table: self.clone(), slot, region: *region, mode, forks });
                }
                Err(holder) => {
                    let begun = *start.get_or_insert_with(Instant::now);
                    let waited = begun.elapsed();
                    if patience.is_some_and(|patience| waited >= patience) {
                        return Err(ObjectError::new(
                            Kind::Busy,
                            format!("{region} is locked by process {holder}, and was not released in the time given"),
                        ));
                    }
                    let left = patience.map_or(LOOK, |patience| patience - waited);
                    table.waiters.fetch_add(1, SeqCst);
                    wait(&table.releases, seen, left.min(LOOK));
                    table.waiters.fetch_sub(1, SeqCst);
                }
            }
        }
    }

    /// The slot, or the process that holds a lock in the way.
    fn try_lock(&self, region: &Region, mode: LockMode) -> Result<std::result::Result<usize, u32>> {
        let table = self.table();
        let _turn = Turn::take(&table.turn);
        let used = (table.used.load(Acquire) as usize).min(SLOTS);
        let mut free = None;
        for (number, slot) in table.slots[..used].iter().enumerate() {
            let held = slot.state.load(Acquire);
            if held == 0 {
                free = free.or(Some(number));
                continue;
            }
            if mode == LockMode::Read && held == 1 {
                continue;
            }
            let conflicts = slot.region().is_none_or(|other| Overlap::of(&other, region).is_some());
            if conflicts {
                let holder = slot.pid.load(Relaxed);
                if !slot.is_orphan() {
                    return Ok(Err(holder));
                }
                slot.state.store(0, Release);
                free = free.or(Some(number));
            }
        }
        let number = match free {
            Some(number) => number,
            None if used < SLOTS => {
                self.file.allocate(
                    (std::mem::offset_of!(Table, slots) + used * size_of::<Slot>()) as u64,
                    size_of::<Slot>() as u64,
                )?;
                table.used.store(used as u32 + 1, Release);
                used
            }
            None => match table.slots.iter().position(Slot::is_orphan) {
                Some(number) => number,
                None => {
                    return Err(ObjectError::new(
                        Kind::Busy,
                        format!("an array can't have more than {SLOTS} locks at once"),
                    ));
                }
            },
        };
        table.slots[number].hold(region, mode);
        Ok(Ok(number))
    }

    /// Locks that are held by living processes.
    pub fn held(&self) -> usize {
        self.table().slots.iter().filter(|slot| slot.state.load(Acquire) != 0 && !slot.is_orphan()).count()
    }
}

impl Slot {
    fn hold(&self, region: &Region, mode: LockMode) {
        self.state.store(0, Release);
        self.pid.store(std::process::id(), Relaxed);
        self.birth.store(own_birth(), Relaxed);
        self.rank.store(region.rank() as u64, Relaxed);
        for d in 0..region.rank() {
            self.offset[d].store(region.offset()[d], Relaxed);
            self.count[d].store(region.count()[d], Relaxed);
            self.stride[d].store(region.stride()[d], Relaxed);
        }
        self.state.store(if mode == LockMode::Read { 1 } else { 2 }, Release);
    }

    fn region(&self) -> Option<Region> {
        let rank = (self.rank.load(Relaxed) as usize).min(RANK_MAX);
        let column =
            |values: &[AtomicU64; RANK_MAX]| std::array::from_fn::<u64, RANK_MAX, _>(|d| values[d].load(Relaxed));
        Region::strided(&column(&self.offset)[..rank], &column(&self.count)[..rank], &column(&self.stride)[..rank]).ok()
    }

    fn is_orphan(&self) -> bool {
        let pid = self.pid.load(Relaxed);
        is_dead(pid) || birth_of(pid).is_none_or(|birth| birth != self.birth.load(Relaxed))
    }
}

impl RegionLock {
    pub fn region(&self) -> &Region {
        &self.region
    }
    pub fn mode(&self) -> LockMode {
        self.mode
    }
    /// Lets others have the region; so does dropping.
    pub fn release(self) {}
}

impl Drop for RegionLock {
    fn drop(&mut self) {
        if self.forks != crate::place::fork_generation() {
            return;
        }
        let table = self.table.table();
        table.slots[self.slot].state.store(0, SeqCst);
        table.releases.fetch_add(1, SeqCst);
        if table.waiters.load(SeqCst) > 0 {
            wake(&table.releases);
        }
    }
}

/// The right to change the table.
struct Turn<'a>(&'a AtomicU32);

impl<'a> Turn<'a> {
    fn take(word: &'a AtomicU32) -> Turn<'a> {
        let own = std::process::id();
        let mut spins = 0u32;
        loop {
            match word.compare_exchange_weak(0, own, Acquire, Relaxed) {
                Ok(_) => return Turn(word),
                Err(0) => {}
                Err(holder) => {
                    spins += 1;
                    match spins {
                        0..100 => std::hint::spin_loop(),
                        100..SPINS => std::thread::yield_now(),
                        _ => {
                            // Held for microseconds by the living; a stopped process is waited for.
                            if is_dead(holder) {
                                let _ = word.compare_exchange(holder, 0, AcqRel, Relaxed);
                            }
                            std::thread::sleep(Duration::from_micros(50));
                        }
                    }
                }
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

fn wait(word: &AtomicU32, seen: u32, patience: Duration) {
    let time =
        rustix::thread::futex::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos() as i64 };
    let _ = rustix::thread::futex::wait(word, rustix::thread::futex::Flags::empty(), seen, Some(&time));
}

fn wake(word: &AtomicU32) {
    let _ = rustix::thread::futex::wake(word, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
}

fn own_birth() -> u64 {
    static OWN: AtomicU64 = AtomicU64::new(0);
    static FORKS: AtomicU32 = AtomicU32::new(u32::MAX);
    let forks = crate::place::fork_generation();
    if FORKS.load(Acquire) != forks {
        OWN.store(birth_of(std::process::id()).unwrap_or(0), Release);
        FORKS.store(forks, Release);
    }
    OWN.load(Acquire)
}

/// When a process began, in clock ticks since the machine's start; `None`: it is dead, or no more than a zombie.
fn birth_of(pid: u32) -> Option<u64> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let after_name = text.iter().rposition(|&byte| byte == b')')?;
    let mut fields = text[after_name + 1..].split(|&byte| byte == b' ').skip(1);
    let state = fields.next()?;
    if state == b"Z" || state == b"X" {
        return None;
    }
    // starttime is the 22nd field, the 19th after the state.
    std::str::from_utf8(fields.nth(18)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> (tempfile::TempDir, Arc<LockTable>) {
        let place = tempfile::tempdir().unwrap();
        let table = LockTable::open(&place.path().join("locks")).unwrap();
        (place, table)
    }

    fn block(offset: u64, count: u64) -> Region {
        Region::block(&[offset, 0], &[count, 10]).unwrap()
    }

    const NO_WAIT: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn pdc_granted_overlapping_write_locks_to_both() {
        let (_place, table) = table();
        let first = table.lock(&block(0, 5), LockMode::Write, NO_WAIT).unwrap();
        for mode in [LockMode::Read, LockMode::Write] {
            let refused = table.lock(&block(4, 5), mode, NO_WAIT).err().unwrap();
            assert_eq!(refused.kind, Kind::Busy);
            assert!(refused.message.contains(&std::process::id().to_string()));
        }
        let beside = table.lock(&block(5, 5), LockMode::Write, NO_WAIT).unwrap();
        first.release();
        drop(beside);
        table.lock(&block(0, 10), LockMode::Write, NO_WAIT).unwrap();
    }

    #[test]
    fn readers_share_and_a_writer_waits_for_the_last_of_them() {
        let (_place, table) = table();
        let readers: Vec<_> = (0..3).map(|_| table.lock(&block(0, 5), LockMode::Read, NO_WAIT).unwrap()).collect();
        let writer = std::thread::spawn({
            let table = table.clone();
            move || drop(table.lock(&block(0, 1), LockMode::Write, None).unwrap())
        });
        std::thread::sleep(Duration::from_millis(30));
        assert!(!writer.is_finished());
        drop(readers);
        writer.join().unwrap();
    }

    #[test]
    fn the_locks_of_a_process_that_died_are_no_obstacle() {
        let (_place, table) = table();
        // SAFETY: the child makes system calls and stores into the shared table only, and leaves without unwinding.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::mem::forget(table.lock(&block(0, 5), LockMode::Write, None));
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        table.lock(&block(0, 5), LockMode::Write, Some(Duration::from_secs(5))).unwrap();
    }

    #[test]
    fn many_threads_exclude_each_other() {
        let (_place, table) = table();
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let table = table.clone();
                std::thread::spawn(move || {
                    for _ in 0..500 {
                        let _lock = table.lock(&block(0, 5), LockMode::Write, None).unwrap();
                        assert_eq!(INSIDE.fetch_add(1, SeqCst), 0);
                        INSIDE.fetch_sub(1, SeqCst);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
