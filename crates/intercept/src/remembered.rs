//! A value that threads may lose: under a sequence lock, a reader that was disturbed, and a writer that finds another one, do without.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::*, fence};

pub struct Remembered<T: Copy> {
    /// Odd while somebody writes.
    sequence: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: guarded by `sequence`; a torn read is thrown away.
unsafe impl<T: Copy + Send> Sync for Remembered<T> {}

impl<T: Copy> Remembered<T> {
    /// Of a type for which all bytes are valid: what was read is looked at before it is known to belong together.
    pub const fn new(value: T) -> Remembered<T> {
        Remembered { sequence: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// What `look` makes of the value, unless it was written meanwhile.
    pub fn read<R>(&self, look: impl FnOnce(&T) -> Option<R>) -> Option<R> {
        let before = self.sequence.load(Acquire);
        if !before.is_multiple_of(2) {
            return None;
        }
        // SAFETY: plain numbers and bytes; whether they belong together is checked below.
        let seen = unsafe { core::ptr::read_volatile(self.value.get()) };
        fence(Acquire);
        if self.sequence.load(Relaxed) != before {
            return None;
        }
        look(&seen)
    }

    pub fn write(&self, value: T) {
        let before = self.sequence.load(Acquire);
        if !before.is_multiple_of(2) || self.sequence.compare_exchange(before, before + 1, AcqRel, Acquire).is_err() {
            return;
        }
        // SAFETY: the odd sequence is ours.
        unsafe { core::ptr::write_volatile(self.value.get(), value) };
        self.sequence.store(before.wrapping_add(2), Release);
    }
}
