//! The event ring: how programs tell the agent which names they gave and took.
//!
//! Bounded, many producers, one consumer (Vyukov's queue). An event carries at most two paths, absolute and
//! canonical at the time of the call; long ones take several slots in a row. The tree itself is the truth: the agent
//! verifies a name before it acts on it, and walks the tree when events were lost (a producer killed in the middle of one).
//!
//! Slots are small because each page of the ring that a program touches for the first time costs it a page fault.

use crate::{Index, PATH_MAX, RING_SLOTS};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering::*};

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
    /// `record` is open for writing in a program that counts nothing: the agent looks how it grows until it is closed.
    Uncounted = 5,
    /// `record` has outgrown `GROWN_BYTES`, and its program writes on.
    Grown = 6,
}

pub const NO_RECORD: u32 = u32::MAX;
const SLOT_BYTES: usize = 256;
/// Bytes of paths that one slot takes.
const PART: usize = SLOT_BYTES - 32;

/// Room for the paths of the longest event.
pub type EventPaths = [u8; 2 * PATH_MAX];

#[repr(C)]
pub struct EventSlot {
    /// `position + 1` when filled for that position, `position + RING_SLOTS` when free for the next round.
    turn: AtomicU64,
    /// Of an event's first slot: (slots << 32) | pid, said before anything else.
    claim: AtomicU64,
    body: UnsafeCell<Body>,
}

#[repr(C)]
struct Body {
    kind: u32,
    record: u32,
    len: u16,
    len2: u16,
    _pad: u32,
    part: [u8; PART],
}

const _: () = assert!(size_of::<EventSlot>() == SLOT_BYTES);

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

fn slots_for(bytes: usize) -> u64 {
    bytes.div_ceil(PART).max(1) as u64
}

impl Ring {
    fn slot(&self, position: u64) -> &EventSlot {
        &self.slots[position as usize % RING_SLOTS]
    }

    /// Takes `count` positions in a row. `None`: not so many are free.
    fn claim(&self, count: u64) -> Option<u64> {
        let mut position = self.head.load(Relaxed);
        loop {
            // The consumer frees slots in order: if the last one is free, so are those before it.
            let last = position + count - 1;
            let turn = self.slot(last).turn.load(Acquire);
            let free_turn = if last < RING_SLOTS as u64 { 0 } else { last };
            if turn == free_turn {
                match self.head.compare_exchange_weak(position, position + count, AcqRel, Relaxed) {
                    Ok(_) => return Some(position),
                    Err(now) => position = now,
                }
            } else if turn < last + 1 {
                return None;
            } else {
                position = self.head.load(Relaxed);
            }
        }
    }
}

impl Index {
    /// False when the ring is full: the caller waits a little and tries again.
    pub fn ring_push(&self, pid: u32, kind: EventKind, record: u32, path: &[u8], path2: &[u8]) -> bool {
        if path.len() > PATH_MAX || path2.len() > PATH_MAX {
            return true; // the tree walk finds it
        }
        let ring = &self.ring;
        let count = slots_for(path.len() + path2.len());
        let Some(position) = ring.claim(count) else { return false };
        let first = ring.slot(position);
        first.claim.store(count << 32 | pid as u64, Release);
        let mut rest = [path, path2];
        for i in 0..count {
            // SAFETY: these positions are ours until `turn` is stored.
            let body = unsafe { &mut *ring.slot(position + i).body.get() };
            let mut at = 0;
            for path in &mut rest {
                let len = path.len().min(PART - at);
                body.part[at..at + len].copy_from_slice(&path[..len]);
                *path = &path[len..];
                at += len;
            }
        }
        // SAFETY: as above.
        let body = unsafe { &mut *first.body.get() };
        body.kind = kind as u32;
        body.record = record;
        body.len = path.len() as u16;
        body.len2 = path2.len() as u16;
        // The first slot last: when it is filled, all are.
        (0..count).rev().for_each(|i| ring.slot(position + i).turn.store(position + i + 1, Release));
        true
    }

    /// More than half of the ring is taken: the agent should not sleep on.
    pub fn ring_is_filling(&self) -> bool {
        let taken = self.ring.head.load(Relaxed).wrapping_sub(self.ring.tail.load(Relaxed));
        taken as usize > RING_SLOTS / 2
    }

    /// Agent only: the oldest event, its paths in `paths`. Call `ring_pop` when done with it.
    pub fn ring_peek<'a>(&self, paths: &'a mut EventPaths) -> Next<'a> {
        let ring = &self.ring;
        let position = ring.tail.load(Relaxed);
        if position == ring.head.load(Acquire) {
            return Next::Empty;
        }
        let slot = ring.slot(position);
        if slot.turn.load(Acquire) != position + 1 {
            return Next::Busy(slot.claim.load(Acquire) as u32);
        }
        let body_of = |position: u64| {
            // SAFETY: `turn` of the first slot says that the producer is done with all, and the only consumer is this one.
            unsafe { &*ring.slot(position).body.get() }
        };
        let body = body_of(position);
        let (len, len2) = ((body.len as usize).min(PATH_MAX), (body.len2 as usize).min(PATH_MAX));
        for (i, chunk) in paths[..len + len2].chunks_mut(PART).enumerate() {
            chunk.copy_from_slice(&body_of(position + i as u64).part[..chunk.len()]);
        }
        Next::Event { kind: body.kind, record: body.record, path: &paths[..len], path2: &paths[len..len + len2] }
    }

    /// Agent only: frees the oldest event's slots (also those of one whose producer died: pass over them).
    pub fn ring_pop(&self) {
        let ring = &self.ring;
        let position = ring.tail.load(Relaxed);
        // A producer that died before it said how many slots it took leaves the others to be found in the same way.
        let count = (ring.slot(position).claim.load(Acquire) >> 32).clamp(1, slots_for(2 * PATH_MAX));
        for position in position..position + count {
            let slot = ring.slot(position);
            slot.claim.store(0, Relaxed);
            slot.turn.store(position + RING_SLOTS as u64, Release);
        }
        ring.tail.store(position + count, Release);
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
                        // Some take several slots.
                        let long = "x".repeat(if i % 7 == 0 { 300 + i as usize % 3000 } else { 0 });
                        let path = format!("/root/{producer}/{i}/{long}");
                        while !index.ring_push(producer, EventKind::Created, i, path.as_bytes(), b"x") {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let mut next = [0u32; 3];
        let mut paths = [0; 2 * PATH_MAX];
        while next.iter().sum::<u32>() < 3 * EACH {
            let Next::Event { kind, record, path, path2 } = index.ring_peek(&mut paths) else {
                std::thread::yield_now();
                continue;
            };
            assert_eq!((kind, path2), (EventKind::Created as u32, b"x".as_slice()));
            let text = std::str::from_utf8(path).unwrap();
            let producer: usize = text.split('/').nth(2).unwrap().parse().unwrap();
            assert!(text.starts_with(&format!("/root/{producer}/{record}/")));
            assert_eq!(text.matches('x').count(), if record % 7 == 0 { 300 + record as usize % 3000 } else { 0 });
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

    #[test]
    fn the_longest_event_is_told_whole_round_after_round() {
        let index = empty_index();
        let (path, path2) = ([b'a'; PATH_MAX], [b'b'; PATH_MAX]);
        let mut paths = [0; 2 * PATH_MAX];
        for _ in 0..2 * RING_SLOTS / 37 + 2 {
            assert!(index.ring_push(1, EventKind::Renamed, 5, &path, &path2));
            let Next::Event { path: first, path2: second, .. } = index.ring_peek(&mut paths) else {
                panic!("no event")
            };
            assert!(first == path && second == path2);
            index.ring_pop();
        }
        assert!(index.ring_is_empty());
    }

    #[test]
    fn a_producer_that_died_is_passed_over_with_all_its_slots() {
        let index = empty_index();
        let position = index.ring.claim(3).unwrap();
        index.ring.slot(position).claim.store(3 << 32 | 77, Release);
        assert!(index.ring_push(1, EventKind::Created, 9, b"/r/a", b""));
        let mut paths = [0; 2 * PATH_MAX];
        assert!(matches!(index.ring_peek(&mut paths), Next::Busy(77)));
        index.ring_pop();
        assert!(matches!(index.ring_peek(&mut paths), Next::Event { record: 9, path: b"/r/a", .. }));
    }
}
