//! The supervisor: threads that receive calls, decide with the library, and answer.
//!
//!   slot cleared ─▶ receive (the kernel fills the slot) ─▶ answer of `calls` ─▶ sent ─▶ slot cleared
//!
//! One thread at a time has the floor: it receives, answers, and receives again. Before it does something that may wait, and when
//! more calls are waiting, it gives the floor to another thread, and rests when it is done.
//! Reason: the kernel wakes every thread that waits to receive, for each call.
//!
//! The first thing a supervisor does is to finish what a killed one left on its slots.

use crate::listener::{Answer, Listener, Notification};
use crate::rights::Own;
use crate::state::{SLOTS, SharedState, Slot, UMASKS_VARY};
use crate::target::{Handles, Target};
use crate::{calls, library};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use terrace_index::proxy::{Table, Waiting};

/// Where a thread waits for the floor.
struct Seat {
    has_floor: AtomicBool,
    thread: std::thread::Thread,
}

/// For the library, which says here that it is about to wait, and asks whether it was worth it.
struct AtWork {
    shared: Arc<Supervisor>,
    seat: Arc<Seat>,
    slot: usize,
}

thread_local! {
    static AT_WORK: RefCell<Option<AtWork>> = const { RefCell::new(None) };
}

pub struct Supervisor {
    pub listener: Listener,
    pub state: SharedState,
    pub table: &'static Table,
    pub root_dev: u64,
    /// They may be placed as a whole.
    pub directories: bool,
    /// Inodes that a program's link into `/proc/self` may lead us to, where it leads the program to others: our program's file,
    /// and the top of the tree.
    own: [Option<(u64, u64)>; 2],
    /// What the supervisor began with.
    rights: Arc<Own>,
    /// One bit for each slot that has a thread.
    taken: AtomicU64,
    resting: Mutex<Vec<Arc<Seat>>>,
    /// Warnings for the user, each told once.
    warn: Box<dyn Fn(String) + Send + Sync>,
    warned: Mutex<Vec<String>>,
}

/// One thread's state.
pub struct Worker {
    pub shared: Arc<Supervisor>,
    pub slot: &'static Slot,
    pub own: Arc<Own>,
    umask: Cell<u32>,
    /// For what goes through us: listings, link texts, attributes.
    pub buffer: Vec<u8>,
    pub handles: RefCell<Handles>,
}

/// Serves until the last program under the filter has ended. `warn` gets what the user should know.
pub fn serve(
    listener: OwnedFd,
    state: OwnedFd,
    library: &Path,
    index: &Path,
    warn: impl Fn(String) + Send + Sync + 'static,
) -> io::Result<()> {
    let table = library::load(library, index).inspect_err(|error| {
        warn(format!(
            "programs can't be supervised any more, and the calls that the supervisor would do fail: {error}"
        ));
    })?;
    let shared = Arc::new(Supervisor {
        listener: Listener::new(listener),
        state: SharedState::open(state)?,
        table,
        // SAFETY: no arguments.
        root_dev: unsafe { (table.root_dev)() },
        // SAFETY: no arguments.
        directories: unsafe { (table.places_directories)() },
        own: ["/proc/self/exe", "/"].map(|name| std::fs::metadata(name).ok().map(|found| (found.dev(), found.ino()))),
        rights: Arc::new(Own::of(&this_thread().status().map_err(io::Error::from_raw_os_error)?)),
        taken: AtomicU64::new(0),
        resting: Mutex::new(vec![]),
        warn: Box::new(warn),
        warned: Mutex::new(vec![]),
    });
    // What was left is finished on its own slot; a thread with another one receives.
    let left: Vec<usize> = (0..SLOTS).filter(|&number| shared.state.slot(number).call().is_some()).collect();
    for &number in &left {
        shared.taken.fetch_or(1 << number, AcqRel);
    }
    for &number in &left {
        start(&shared, number, false)?;
    }
    let slot = shared.free_slot().ok_or_else(|| io::Error::other("every slot is taken"))?;
    start(&shared, slot, true)?;
    wait_for_the_end(&shared.listener);
    Ok(())
}

/// All programs have ended when the listener hangs up.
fn wait_for_the_end(listener: &Listener) {
    let mut poll = libc::pollfd { fd: listener.fd().as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one live structure.
    while unsafe { libc::poll(&mut poll, 1, -1) } <= 0 || poll.revents & libc::POLLHUP == 0 {}
}

fn this_thread() -> Target {
    // SAFETY: no arguments.
    Target { thread: unsafe { libc::syscall(libc::SYS_gettid) } as u32 }
}

extern "C" fn about_to_wait() {
    AT_WORK.with_borrow(|at_work| {
        if let Some(AtWork { shared, seat, .. }) = at_work {
            shared.give_floor(seat);
        }
    });
}

/// The program still waits for the answer of the call that this thread has received.
extern "C" fn is_awaited() -> bool {
    AT_WORK.with_borrow(|at_work| {
        let Some(AtWork { shared, slot, .. }) = at_work else { return true };
        shared.state.slot(*slot).call().is_none_or(|call| shared.listener.is_valid(call.id))
    })
}

static WAITING: Waiting = Waiting { begins: about_to_wait, is_worth_it: is_awaited };

fn start(shared: &Arc<Supervisor>, slot: usize, has_floor: bool) -> io::Result<()> {
    let shared = shared.clone();
    std::thread::Builder::new().name(format!("slot {slot}")).stack_size(256 << 10).spawn(move || {
        // A umask, and a view, of this thread's own.
        // SAFETY: by value.
        unsafe {
            libc::unshare(libc::CLONE_FS);
            libc::umask(0);
        }
        // It may have been started in the middle of a call that is done with another user's rights.
        shared.rights.restore();
        let own = shared.rights.clone();
        let slot_state = shared.state.slot(slot);
        // SAFETY: the slot lives as long as the process.
        unsafe { (shared.table.announce_to)(&slot_state.intent, &WAITING) };
        let seat = Arc::new(Seat { has_floor: AtomicBool::new(has_floor), thread: std::thread::current() });
        AT_WORK.set(Some(AtWork { shared: shared.clone(), seat: seat.clone(), slot }));
        let (umask, buffer, handles) = (Cell::new(0), vec![0; 64 << 10], RefCell::default());
        Worker { shared, slot: slot_state, own, umask, buffer, handles }.work(&seat);
    })?;
    Ok(())
}

impl Worker {
    fn work(mut self, seat: &Arc<Seat>) {
        if let Some(call) = self.slot.call() {
            self.finish(&call, true);
            self.slot.clear();
            self.shared.rest(seat);
        }
        let shared = self.shared.clone();
        loop {
            self.slot.clear();
            while !seat.has_floor.load(Acquire) {
                std::thread::park();
            }
            if shared.listener.receive(self.slot.place()).is_err() {
                // Interrupted, or the thread died before we came, or the end, of which another thread takes care.
                if !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EINTR | libc::ENOENT)) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                continue;
            }
            let Some(call) = self.slot.call() else { continue };
            if calls::may_take_long(&call) && shared.listener.has_more() {
                shared.give_floor(seat);
            }
            self.finish(&call, false);
            if !seat.has_floor.load(Acquire) {
                self.slot.clear();
                shared.rest(seat);
            }
        }
    }

    /// `again`: another supervisor had received it and may have done what it asks for.
    fn finish(&mut self, call: &Notification, again: bool) {
        if again && !self.shared.listener.is_valid(call.id) {
            return;
        }
        let answer = match self.slot.given.load(Acquire) {
            0 => self.answer(call, again),
            given => Answer::Value(given as i64 - 1),
        };
        self.shared.listener.answer(call.id, answer);
    }

    /// The umask that the thread's new files get.
    pub fn take_umask(&self, target: Target) {
        let wanted = match self.shared.state.varies(UMASKS_VARY) {
            true => target.status().map_or(self.shared.state.umask(), |status| status.umask),
            false => self.shared.state.umask(),
        };
        if self.umask.replace(wanted) != wanted {
            // SAFETY: by value; this thread's own since it was started.
            unsafe { libc::umask(wanted as libc::mode_t) };
        }
    }
}

impl Supervisor {
    /// Another thread receives from now on, if one can be had.
    fn give_floor(self: &Arc<Self>, seat: &Arc<Seat>) {
        if !seat.has_floor.swap(false, AcqRel) {
            return;
        }
        let rested = self.resting().pop();
        match rested {
            Some(next) => {
                next.has_floor.store(true, Release);
                next.thread.unpark();
            }
            None if self.free_slot().is_some_and(|slot| start(self, slot, true).is_ok()) => {}
            // All are at work: calls wait for this one.
            None => seat.has_floor.store(true, Release),
        }
    }

    fn rest(&self, seat: &Arc<Seat>) {
        self.resting().push(seat.clone());
    }

    fn resting(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Seat>>> {
        self.resting.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A slot that no thread has; it has one from now on.
    fn free_slot(&self) -> Option<usize> {
        let mut taken = self.taken.load(Acquire);
        while taken != u64::MAX {
            let number = taken.trailing_ones();
            match self.taken.compare_exchange_weak(taken, taken | 1 << number, AcqRel, Acquire) {
                Ok(_) => return Some(number as usize),
                Err(now) => taken = now,
            }
        }
        None
    }

    /// What was found may be dressed for a program: it is on the root's file system, and what the program asked about.
    pub fn is_for_us(&self, device: u64, inode: u64) -> bool {
        device == self.root_dev && !self.own.contains(&Some((device, inode)))
    }

    pub fn warn_once(&self, text: String) {
        let mut warned = self.warned.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !warned.contains(&text) {
            warned.push(text.clone());
            (self.warn)(text);
        }
    }
}
