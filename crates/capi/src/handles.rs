//! Handles: numbers dressed as pointers, so that a closed, foreign or NULL one is refused and never followed.
//!
//!   handle = generation << 32 | slot + 1          slot: {generation, open?, users} in one word, and the value
//!
//! Invariant: a value is dropped by its last user, after its handle was closed.
//! No lock: a child forked while another thread opened something finds no lock held.

use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};

const SLOTS: usize = 1 << 16;
const OPEN: u64 = 1 << 31;
const USERS: u64 = OPEN - 1;

pub struct Handles<T> {
    slots: [Slot<T>; SLOTS],
    /// Where a free slot is looked for first.
    next: AtomicUsize,
}

struct Slot<T> {
    /// generation << 32 | open? | users
    state: AtomicU64,
    value: AtomicPtr<T>,
}

/// A value in use: it stays while this does, even when its handle is closed meanwhile.
pub struct Used<'a, T> {
    slot: &'a Slot<T>,
    value: *const T,
    _value: PhantomData<&'a T>,
}

/// A kind of handle that C sees: what it stands for, and how messages call it.
pub trait Handle: Sized {
    type Value: Send + Sync + 'static;
    /// One of them: "the array".
    const ONE: &'static str;
    /// Several: "arrays".
    const MANY: &'static str;
    fn table() -> &'static Handles<Self::Value>;
}

/// `handle!(terrace_array, Array, "the array", "arrays")`: the table of a kind of handle.
macro_rules! handle {
    ($handle:ty, $value:ty, $one:literal, $many:literal) => {
        impl crate::handles::Handle for $handle {
            type Value = $value;
            const ONE: &'static str = $one;
            const MANY: &'static str = $many;
            fn table() -> &'static crate::handles::Handles<$value> {
                static TABLE: crate::handles::Handles<$value> = crate::handles::Handles::new();
                &TABLE
            }
        }
    };
}
pub(crate) use handle;

impl<T: Send + Sync> Handles<T> {
    pub const fn new() -> Handles<T> {
        Handles {
            slots: [const { Slot { state: AtomicU64::new(0), value: AtomicPtr::new(null_mut()) } }; SLOTS],
            next: AtomicUsize::new(0),
        }
    }

    /// `None`: as many are open as there can be.
    pub fn open(&self, value: T) -> Option<u64> {
        let start = self.next.fetch_add(1, Relaxed);
        for turn in 0..SLOTS {
            let number = (start + turn) % SLOTS;
            let slot = &self.slots[number];
            let state = slot.state.load(Acquire);
            // One user and not open: taken, not yet to be had.
            let taken = state + 1;
            if state & (OPEN | USERS) != 0 || slot.state.compare_exchange(state, taken, AcqRel, Relaxed).is_err() {
                continue;
            }
            let generation = ((state >> 32) + 1) & 0x7fff_ffff;
            slot.value.store(Box::into_raw(Box::new(value)), Release);
            slot.state.store(generation << 32 | OPEN, Release);
            return Some(generation << 32 | (number as u64 + 1));
        }
        None
    }

    pub fn get(&self, handle: u64) -> Option<Used<'_, T>> {
        self.enter(handle, OPEN)
    }

    /// The handle means nothing from now on.
    pub fn close(&self, handle: u64) -> Option<Used<'_, T>> {
        self.enter(handle, 0)
    }

    /// One user more, if the handle is open; it stays so when `open_after` says it.
    fn enter(&self, handle: u64, open_after: u64) -> Option<Used<'_, T>> {
        let slot = self.slots.get(((handle & 0xffff_ffff) as usize).checked_sub(1)?)?;
        let update = |state: u64| {
            (state >> 32 == handle >> 32 && state & OPEN != 0 && state & USERS != USERS)
                .then_some((state & !OPEN | open_after) + 1)
        };
        slot.state.fetch_update(AcqRel, Acquire, update).ok()?;
        Some(Used { slot, value: slot.value.load(Acquire), _value: PhantomData })
    }
}

impl<T> Deref for Used<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: `open` stored it from a box, and it is dropped only after the last user has left.
        unsafe { &*self.value }
    }
}

impl<T> Drop for Used<'_, T> {
    fn drop(&mut self) {
        let leave = |state: u64| (state & (OPEN | USERS) != 1).then(|| state - 1);
        if self.slot.state.fetch_update(AcqRel, Acquire, leave).is_err() {
            // Closed, and we are the last: nobody enters any more, so the slot is ours until its state says that it is free.
            let value = self.slot.value.swap(null_mut(), AcqRel);
            // SAFETY: made by `Box::into_raw` in `open`, and nobody else has it.
            drop(unsafe { Box::from_raw(value) });
            self.slot.state.fetch_sub(1, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// As `handle!` makes them: a table is too large to be built on a thread's stack.
    macro_rules! table {
        () => {{
            static TABLE: Handles<Arc<i32>> = Handles::new();
            &TABLE
        }};
    }

    #[test]
    fn a_closed_or_invented_handle_leads_nowhere() {
        let table = table!();
        let first = table.open(Arc::new(1)).unwrap();
        assert_eq!(**table.get(first).unwrap(), 1);
        assert!(table.close(first).is_some());
        assert!(table.get(first).is_none() && table.close(first).is_none());
        for handle in [0, 1, first + 1, 0x7f12_3456_7890, u64::MAX, u64::MAX << 32, (1 << 32) | (SLOTS as u64 + 1)] {
            assert!(table.get(handle).is_none(), "{handle:#x}");
        }
        // The slot is used again in time, under another handle.
        for _ in 0..2 * SLOTS {
            let handle = table.open(Arc::new(2)).unwrap();
            assert_ne!(handle, first);
            table.close(handle);
        }
    }

    #[test]
    fn a_value_lives_as_long_as_its_last_user() {
        let table = table!();
        let value = Arc::new(7);
        let handle = table.open(value.clone()).unwrap();
        let user = table.get(handle).unwrap();
        drop(table.close(handle));
        assert_eq!((**user, Arc::strong_count(&value)), (7, 2));
        drop(user);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn all_slots_can_be_open_and_then_no_more() {
        let table = table!();
        let handles: Vec<u64> = (0..SLOTS).map(|_| table.open(Arc::new(0)).unwrap()).collect();
        assert!(table.open(Arc::new(0)).is_none());
        drop(table.close(handles[17]));
        assert!(table.open(Arc::new(0)).is_some());
    }

    #[test]
    fn threads_that_use_and_close_one_handle_drop_its_value_once() {
        let table = table!();
        for _ in 0..200 {
            let value = Arc::new(3);
            let handle = table.open(value.clone()).unwrap();
            std::thread::scope(|scope| {
                for closes in [false, true, false, true] {
                    scope.spawn(move || {
                        let used = if closes { table.close(handle) } else { table.get(handle) };
                        used.map_or(3, |value| **value)
                    });
                }
            });
            assert!(table.get(handle).is_none());
            assert_eq!(Arc::strong_count(&value), 1);
        }
    }
}
