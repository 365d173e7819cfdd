//! The event ring: how programs tell the agent which names they gave and took.
//!
//! Bounded, many producers, one consumer (Vyukov's queue). An event carries at most two paths, absolute and
//! canonical at the time of the call. The tree itself is the truth: the agent verifies a name before it acts on
//! it, and walks the tree when events were lost (a producer killed in the middle of one).

use crate::{Index, PATH_MAX, RING_SLOTS};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum EventKind {
    /// `record` is now at `path`.
    Created = 1,
    /// `record` (or `NO_RECORD`: a directory, with everything below it) went from `path` to `path2`.
    Renamed = 2,
    /// `record` lost its last name, and its object was unlinked.
    Removed = 3,
    /// The root's file of a `Clean` record is about to be changed: its replica is worthless.
    Invalidated = 4,
}

pub const NO_RECORD: u32 = u32::MAX;

#[repr(C)]
pub struct EventSlot {
    /// `position + 1` when filled for that position, `position + RING_SLOTS` when free for the next round.
    turn: AtomicU64,
    pid: AtomicU32,
    body: UnsafeCell<Body>,
}

#[repr(C)]
struct Body {
    kind: u32,
    record: u32,
    len: u16,
    len2: u16,
    paths: [u8; 2 * PATH_MAX],
}

#[repr(C)]
pub struct Ring {
    head: AtomicU64,
    tail: AtomicU64,
    slots: [EventSlot; RING_SLOTS],
}

// SAFETY: a body is accessed only by the producer that claimed its position, then, after `turn` says so, by the consumer.
unsafe impl Sync for Ring {}

/// What the consumer sees.
pub enum Next<'a> {
    Empty,
    /// A producer has claimed the next position and not filled it yet; its pid, or 0 if it has not said.
    Busy(u32),
    Event {
        kind: u32,
        record: u32,
        path: &'a [u8],
        path2: &'a [u8],
    },
}

impl Index {
    /// False when the ring is full: the caller waits a little and tries again.
    pub fn ring_push(&self, pid: u32, kind: EventKind, record: u32, path: &[u8], path2: &[u8]) -> bool {
        if path.len() > PATH_MAX || path2.len() > PATH_MAX {
            return true; // the tree walk finds it
        }
        let ring = &self.ring;
        let mut position = ring.head.load(Relaxed);
        loop {
            let slot = &ring.slots[position as usize % RING_SLOTS];
            let turn = slot.turn.load(Acquire);
            let free_turn = if position < RING_SLOTS as u64 { 0 } else { position };
            if turn == free_turn {
                match ring.head.compare_exchange_weak(position, position + 1, AcqRel, Relaxed) {
                    Ok(_) => {
                        slot.pid.store(pid, Release);
                        // SAFETY: this position is ours until `turn` is stored.
                        let body = unsafe { &mut *slot.body.get() };
                        body.kind = kind as u32;
                        body.record = record;
                        body.len = path.len() as u16;
                        body.len2 = path2.len() as u16;
                        body.paths[..path.len()].copy_from_slice(path);
                        body.paths[path.len()..path.len() + path2.len()].copy_from_slice(path2);
                        slot.turn.store(position + 1, Release);
                        return true;
                    }
                    Err(now) => position = now,
                }
            } else if turn < position + 1 {
                return false;
            } else {
                position = ring.head.load(Relaxed);
            }
        }
    }

    /// Agent only: the oldest event. Call `ring_pop` when done with it.
    pub fn ring_peek(&self) -> Next<'_> {
        let ring = &self.ring;
        let position = ring.tail.load(Relaxed);
        if position == ring.head.load(Acquire) {
            return Next::Empty;
        }
        let slot = &ring.slots[position as usize % RING_SLOTS];
        if slot.turn.load(Acquire) != position + 1 {
            return Next::Busy(slot.pid.load(Acquire));
        }
        // SAFETY: `turn` says that the producer is done, and the only consumer is this one.
        let body = unsafe { &*slot.body.get() };
        let (len, len2) = ((body.len as usize).min(PATH_MAX), (body.len2 as usize).min(PATH_MAX));
        Next::Event {
            kind: body.kind,
            record: body.record,
            path: &body.paths[..len],
            path2: &body.paths[len..len + len2],
        }
    }

    /// Agent only: frees the oldest position (also one whose producer died: pass over it).
    pub fn ring_pop(&self) {
        let ring = &self.ring;
        let position = ring.tail.load(Relaxed);
        let slot = &ring.slots[position as usize % RING_SLOTS];
        slot.pid.store(0, Relaxed);
        slot.turn.store(position + RING_SLOTS as u64, Release);
        ring.tail.store(position + 1, Release);
    }

    pub fn ring_is_empty(&self) -> bool {
        self.ring.tail.load(Acquire) == self.ring.head.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::empty_index;

    #[test]
    fn events_of_many_producers_all_arrive_whole_and_in_their_producers_order() {
        let index = empty_index();
        const EACH: u32 = 20_000;
        let producers: Vec<_> = (0..3u32)
            .map(|producer| {
                std::thread::spawn(move || {
                    for i in 0..EACH {
                        let path = format!("/root/{producer}/{i}");
                        while !index.ring_push(producer, EventKind::Created, i, path.as_bytes(), b"x") {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0u32; 3];
        while next.iter().sum::<u32>() < 3 * EACH {
            let Next::Event { kind, record, path, path2 } = index.ring_peek() else {
                std::thread::yield_now();
                continue;
            };
            assert_eq!((kind, path2), (EventKind::Created as u32, b"x".as_slice()));
            let text = std::str::from_utf8(path).unwrap();
            let producer: usize = text.split('/').nth(2).unwrap().parse().unwrap();
            assert_eq!(text, format!("/root/{producer}/{record}"));
            assert_eq!(record, next[producer]);
            next[producer] += 1;
            index.ring_pop();
        }
        producers.into_iter().for_each(|p| p.join().unwrap());
        assert!(index.ring_is_empty());
    }

    #[test]
    fn a_full_ring_says_so() {
        let index = empty_index();
        for _ in 0..RING_SLOTS {
            assert!(index.ring_push(1, EventKind::Removed, 0, b"", b""));
        }
        assert!(!index.ring_push(1, EventKind::Removed, 0, b"", b""));
        index.ring_pop();
        assert!(index.ring_push(1, EventKind::Removed, 0, b"", b""));
    }
}
