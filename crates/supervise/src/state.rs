//! What outlives a supervisor that is killed: shared memory, held by the keeper.
//!
//!   header: what is known of the run    slot 0 … slot 63: one for each thread, with the call that it is working on
//!
//! The kernel forgets nothing that a dead supervisor had received, and tells nobody of it: such a call would wait for ever. So the
//! kernel writes each call straight into its slot, and the next supervisor begins with the slots that are not empty.
//! Invariant: a slot is empty, or has the call that was received last and not known to be answered.

use crate::listener::Notification;
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use terrace_index::proxy::Intent;

pub const SLOTS: usize = 64;

/// Somebody in the run changed its rights, its view of the file system, or its umask: no longer are all alike.
pub const RIGHTS_VARY: u32 = 1;
pub const VIEWS_VARY: u32 = 2;
pub const UMASKS_VARY: u32 = 4;

#[repr(C)]
struct Header {
    varies: AtomicU32,
    umask: AtomicU32,
}

/// One thread's work. All zeroes is empty.
#[repr(C, align(64))]
pub struct Slot {
    notification: UnsafeCell<Notification>,
    /// 1 once what it asks for may have been done.
    pub acting: AtomicU32,
    /// The program's number of the descriptor that it was given, plus 1.
    pub given: AtomicU32,
    /// What was there before it was done: the inode that is renamed, the offset of a directory that is read.
    pub before: AtomicU64,
    pub intent: Intent,
}

#[repr(C)]
struct Layout {
    header: Header,
    slots: [Slot; SLOTS],
}

// SAFETY: a slot is one thread's, and the rest is atomic.
unsafe impl Sync for Layout {}

pub struct SharedState {
    memory: OwnedFd,
    layout: &'static Layout,
}

impl SharedState {
    /// A new state, all slots empty; every program of the run begins with this umask.
    pub fn create(umask: u32) -> io::Result<SharedState> {
        // SAFETY: a C string; the descriptor is new and ours.
        let memory = unsafe {
            let fd = libc::memfd_create(c"terrace-supervision".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: our own descriptor.
        if unsafe { libc::ftruncate(memory.as_raw_fd(), size_of::<Layout>() as i64) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let state = SharedState::open(memory)?;
        state.layout.header.umask.store(umask, Relaxed);
        Ok(state)
    }

    pub fn open(memory: OwnedFd) -> io::Result<SharedState> {
        // SAFETY: a shared mapping of our own, never unmapped; populated, so that the kernel can write a call into it without
        // a fault, at which it could lose the call.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<Layout>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                memory.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: mapped above with this size; zeroes are a valid layout.
        Ok(SharedState { memory, layout: unsafe { &*(base as *const Layout) } })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    pub fn slot(&self, number: usize) -> &'static Slot {
        &self.layout.slots[number]
    }

    pub fn varies(&self, what: u32) -> bool {
        self.layout.header.varies.load(Acquire) & what != 0
    }

    pub fn note(&self, what: u32) {
        self.layout.header.varies.fetch_or(what, AcqRel);
    }

    pub fn umask(&self) -> u32 {
        self.layout.header.umask.load(Relaxed)
    }
}

impl Slot {
    /// Where the kernel puts the next call.
    pub fn place(&self) -> *mut Notification {
        self.notification.get()
    }

    /// The call on this slot, if there is one.
    pub fn call(&self) -> Option<Notification> {
        // SAFETY: only this slot's thread writes it, before or after this.
        let call = unsafe { *self.notification.get() };
        (call.id != 0).then_some(call)
    }

    pub fn clear(&self) {
        // SAFETY: this slot's thread, between two calls.
        unsafe { (*self.notification.get()) = Notification::default() };
        self.acting.store(0, Relaxed);
        self.given.store(0, Relaxed);
        self.intent.record.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_slot_is_seen_by_who_maps_the_state_next() {
        let state = SharedState::create(0o27).unwrap();
        assert!(state.slot(3).call().is_none());
        // SAFETY: the slot's only user.
        unsafe { *state.slot(3).place() = Notification { id: 7, nr: 87, ..Default::default() } };
        state.note(VIEWS_VARY);
        let next = SharedState::open(state.fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(next.slot(3).call().unwrap().nr, 87);
        assert_eq!(next.umask(), 0o27);
        assert!(next.varies(VIEWS_VARY) && !next.varies(UMASKS_VARY));
        next.slot(3).clear();
        assert!(state.slot(3).call().is_none());
    }
}
