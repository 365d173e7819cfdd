//! Guards and grace periods (SRCU): how the agent knows that no program is in the middle of a call.
//!
//! A program enters a guard with one locked increment and leaves it with a decrement. The agent flips the
//! domain's epoch and waits until the old epoch's counter is zero in every live process: two flips, so that a
//! program which read the epoch just before the first one is waited for as well.
//! Reason for no lock: a program may be killed, forked or interrupted anywhere inside.

use crate::{Index, PROCESSES};
use core::sync::atomic::{AtomicU32, Ordering::*, fence};

#[derive(Clone, Copy)]
pub enum Domain {
    /// unlink, rename and link of placed files
    Names = 0,
    /// writes to placed files
    Data = 1,
}

/// One process under a run; 64 bytes, a cache line.
#[repr(C, align(64))]
pub struct Process {
    pub pid: AtomicU32,
    /// 1: it writes files without records by calls that nobody waits for (aio_write), so none that it has open may move.
    pub is_asynchronous: AtomicU32,
    /// `[domain][parity of the epoch]`
    inside: [[AtomicU32; 2]; 2],
}

/// Where a guard was entered; give it back to `guard_leave`.
#[derive(Clone, Copy)]
pub struct Entered {
    process: u32,
    domain: u8,
    parity: u8,
}

impl Index {
    /// Claims a slot for `pid`. `is_dead(pid)` tells that a slot's owner is gone. Falls back to slot 0, which all who find no other share.
    pub fn claim_process(&self, pid: u32, is_dead: impl Fn(u32) -> bool) -> u32 {
        let start = (pid as usize).wrapping_mul(31) % (PROCESSES - 1);
        for i in 0..PROCESSES - 1 {
            let number = 1 + (start + i) % (PROCESSES - 1);
            let process = &self.processes[number];
            let owner = process.pid.load(Acquire);
            if owner != 0 && owner != pid && !is_dead(owner) {
                continue;
            }
            if process.pid.compare_exchange(owner, pid, AcqRel, Acquire).is_ok() {
                process.clear();
                return number as u32;
            }
        }
        0
    }

    pub fn guard_enter(&self, process: u32, domain: Domain) -> Entered {
        let parity = (self.header.epoch[domain as usize].load(Relaxed) & 1) as u8;
        // Sequentially consistent, as the state that the caller looks at next and the agent's stores and looks: either the
        // agent sees this increment, or the caller sees what the agent stored before it looked.
        self.processes[process as usize].inside[domain as usize][parity as usize].fetch_add(1, SeqCst);
        Entered { process, domain: domain as u8, parity }
    }

    pub fn guard_leave(&self, entered: Entered) {
        self.processes[entered.process as usize].inside[entered.domain as usize][entered.parity as usize]
            .fetch_sub(1, Release);
    }

    /// Waits until every guard of `domain` that was entered before this call is left.
    /// `pause` is called between looks and returns false to give up (then the result is false: nothing may be assumed).
    pub fn synchronize(&self, domain: Domain, is_dead: impl Fn(u32) -> bool, mut pause: impl FnMut() -> bool) -> bool {
        let epoch = &self.header.epoch[domain as usize];
        for _ in 0..2 {
            fence(SeqCst);
            let old = (epoch.fetch_add(1, SeqCst) & 1) as usize;
            for process in &self.processes {
                let inside = &process.inside[domain as usize][old];
                while inside.load(SeqCst) as i32 > 0 {
                    let pid = process.pid.load(Acquire);
                    if pid != 0 && is_dead(pid) && process.pid.compare_exchange(pid, 0, AcqRel, Acquire).is_ok() {
                        process.clear();
                        break;
                    }
                    if !pause() {
                        return false;
                    }
                }
            }
        }
        true
    }
}

impl Process {
    fn clear(&self) {
        for counter in self.inside.iter().flatten() {
            counter.store(0, Release);
        }
        self.is_asynchronous.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::empty_index;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn synchronize_waits_for_a_guard_and_only_for_its_domain() {
        let index = empty_index();
        let slot = index.claim_process(7, |_| false);
        let entered = index.guard_enter(slot, Domain::Data);
        assert!(index.synchronize(Domain::Names, |_| false, || false));
        assert!(!index.synchronize(Domain::Data, |_| false, || false), "a guard is open");
        index.guard_leave(entered);
        assert!(index.synchronize(Domain::Data, |_| false, || false));
    }

    #[test]
    fn a_dead_process_holds_nobody_up_and_its_slot_is_used_again() {
        let index = empty_index();
        let slot = index.claim_process(7, |_| false);
        index.guard_enter(slot, Domain::Names);
        assert!(index.synchronize(Domain::Names, |pid| pid == 7, || false));
        assert_eq!(index.claim_process(7, |_| false), slot);
    }

    #[test]
    fn no_writer_is_inside_after_synchronize() {
        let index = empty_index();
        static MOVING: AtomicBool = AtomicBool::new(false);
        static INSIDE: AtomicU32 = AtomicU32::new(0);
        let stop: &AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let writers: Vec<_> = (0..3)
            .map(|pid| {
                std::thread::spawn(move || {
                    let slot = index.claim_process(pid + 1, |_| false);
                    while !stop.load(SeqCst) {
                        let entered = index.guard_enter(slot, Domain::Data);
                        if !MOVING.load(SeqCst) {
                            INSIDE.fetch_add(1, SeqCst);
                            std::hint::spin_loop();
                            INSIDE.fetch_sub(1, SeqCst);
                        }
                        index.guard_leave(entered);
                    }
                })
            })
            .collect();
        for _ in 0..500 {
            MOVING.store(true, SeqCst);
            assert!(index.synchronize(
                Domain::Data,
                |_| false,
                || {
                    std::thread::yield_now();
                    true
                }
            ));
            assert_eq!(INSIDE.load(SeqCst), 0);
            MOVING.store(false, SeqCst);
        }
        stop.store(true, SeqCst);
        writers.into_iter().for_each(|w| w.join().unwrap());
    }
}
