//! For whom this library decides: the program that it is loaded into, or, in the supervisor, programs that can't load it.
//!
//! In the supervisor each thread announces the record of a new file before its name is made (`terrace_index::proxy::Intent`), and says
//! when it is about to wait.

use crate::gate;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use terrace_index::proxy::{Intent, Waiting};

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

static WAITING: AtomicPtr<Waiting> = AtomicPtr::new(core::ptr::null_mut());

fn waiting() -> Option<&'static Waiting> {
    // SAFETY: `announce_to` got it as one that lives as long as the process.
    unsafe { WAITING.load(Acquire).as_ref() }
}

/// The calling thread will wait for the agent: another one of the supervisor's is to receive calls meanwhile.
pub fn about_to_wait() {
    if let Some(waiting) = waiting() {
        (waiting.begins)();
    }
}

/// False when the program whose call this is was killed meanwhile: what it asked for is not to be done any more.
pub fn is_still_there() -> bool {
    waiting().is_none_or(|waiting| (waiting.is_worth_it)())
}

/// From now on this library decides for others.
pub fn activate() {
    ACTIVE.store(true, Release);
}

/// `Table::announce_to`.
pub unsafe extern "C" fn announce_to(intent: *const Intent, waiting: &'static Waiting) {
    WAITING.store(core::ptr::from_ref(waiting).cast_mut(), Release);
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
