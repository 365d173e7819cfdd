//! For whom this library decides: the program that it is loaded into, or, in the supervisor, programs that can't load it.
//!
//! In the supervisor each thread announces the record of a new file before its name is made (`terrace_index::proxy::Intent`), and says
//! when it is about to wait.

use crate::gate;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use terrace_index::proxy::Intent;

static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The supervisor's threads, by their id, and where each announces what it creates.
struct Announcer {
    thread: AtomicU32,
    intent: AtomicPtr<Intent>,
}

const THREADS_MAX: usize = 128;
static ANNOUNCING: [Announcer; THREADS_MAX] =
    [const { Announcer { thread: AtomicU32::new(0), intent: AtomicPtr::new(core::ptr::null_mut()) } }; THREADS_MAX];

/// True in the supervisor.
#[inline]
pub fn is_supervisor() -> bool {
    ACTIVE.load(Relaxed)
}

fn thread() -> u32 {
    // SAFETY: gettid has no arguments.
    unsafe { gate::call0(libc::SYS_gettid) as u32 }
}

/// The record is about to get its name.
pub fn announce(record: u32, serial: u64) {
    let thread = thread();
    if let Some(announcer) = ANNOUNCING.iter().find(|announcer| announcer.thread.load(Acquire) == thread) {
        // SAFETY: the supervisor's board lives as long as its process.
        let intent = unsafe { &*announcer.intent.load(Acquire) };
        intent.serial.store(serial, Release);
        intent.record.store(record + 1, Release);
    }
}

/// Called before a thread waits.
static ABOUT_TO_WAIT: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// The calling thread will wait for the agent: another one of the supervisor's is to receive calls meanwhile.
pub fn about_to_wait() {
    let hook = ABOUT_TO_WAIT.load(Acquire);
    if !hook.is_null() {
        // SAFETY: stored by `announce_to` with this type.
        unsafe { core::mem::transmute::<*mut (), extern "C" fn()>(hook)() };
    }
}

/// From now on this library decides for others.
pub fn activate() {
    ACTIVE.store(true, Release);
}

/// `Table::announce_to`.
pub unsafe extern "C" fn announce_to(intent: *const Intent, about_to_wait: extern "C" fn()) {
    ABOUT_TO_WAIT.store(about_to_wait as *mut (), Release);
    let thread = thread();
    for announcer in &ANNOUNCING {
        let owner = announcer.thread.load(Acquire);
        if owner == thread || owner == 0 && announcer.thread.compare_exchange(0, u32::MAX, AcqRel, Relaxed).is_ok() {
            announcer.intent.store(intent as *mut Intent, Release);
            announcer.thread.store(thread, Release);
            return;
        }
    }
}
