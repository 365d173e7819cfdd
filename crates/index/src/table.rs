//! From an inode to its record: an open-addressing hash table of two words a slot, behind a filter of bits.
//!
//! Neighbouring inodes share a page of the table, because a program that looks at a directory's files looks at
//! neighbouring inodes, and each page that it touches costs it a page fault. The filter, which is small, answers for
//! inodes that never had a record, which are most.
//!
//! Keys are inodes, so no key is inserted by two processes at once, but different keys race for slots: a slot is
//! claimed by a compare-and-swap of its key, then its value is stored. A reader that sees value 0 saw no record.
//! A key may be put for its inode's next file while it is removed for the last one: a value that became 0 stays 0 until the
//! slot is free, and the key goes to another slot.

use crate::{FILTER_WORDS, Index, TABLE_SLOTS};
use core::sync::atomic::{AtomicU64, Ordering::*};

#[repr(C)]
pub struct Slot {
    /// 0: never used, so a search ends here; `REMOVED`: free, but a search goes on.
    key: AtomicU64,
    /// Record number plus 1.
    value: AtomicU64,
}

const REMOVED: u64 = u64::MAX;
/// A search gives up after so many slots: with this fill, only an attacker or a table that is full gets there.
const PROBES: usize = 256;

/// Key of an object: device number of the index and inode on that device.
pub fn object_key(device: u32, ino: u64) -> u64 {
    ((device as u64 + 1) << 56) | (ino & (u64::MAX >> 8))
}

/// Key of a file or a link in the root, by its inode there.
pub fn root_key(ino: u64) -> u64 {
    (0xfe << 56) | (ino & (u64::MAX >> 8))
}

/// Slots of one page (4 KiB), inodes that share it, and the slots that lie between two of them.
const PAGE_SLOTS: usize = 256;
const NEIGHBOURS: usize = 32;
const STRIDE: usize = PAGE_SLOTS / NEIGHBOURS;

fn scatter(value: u64) -> u64 {
    let mixed = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// A page by what neighbouring keys share, a place in it by the rest; devices take different places of a stride.
fn slots_of(key: u64) -> impl Iterator<Item = usize> {
    let page = scatter(key / NEIGHBOURS as u64) as usize % (TABLE_SLOTS / PAGE_SLOTS);
    let place = (key as usize % NEIGHBOURS) * STRIDE + (key >> 56) as usize % STRIDE;
    let start = page * PAGE_SLOTS + place;
    (0..PROBES).map(move |i| (start + i) & (TABLE_SLOTS - 1))
}

fn bit_of(key: u64) -> (usize, u64) {
    let bit = scatter(key / 2).wrapping_add(key % 2) as usize % (FILTER_WORDS * 64);
    (bit / 64, 1 << (bit % 64))
}

impl Index {
    pub fn table_get(&self, key: u64) -> Option<u32> {
        let (word, bit) = bit_of(key);
        if self.filter[word].load(Acquire) & bit == 0 {
            return None;
        }
        for i in slots_of(key) {
            let slot = &self.table[i];
            match slot.key.load(Acquire) {
                0 => return None,
                found if found == key => {
                    let value = slot.value.load(Acquire);
                    // The slot may have been removed and claimed for another key in between.
                    if slot.key.load(Acquire) == key && value != 0 {
                        return Some(value as u32 - 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Puts or replaces. False when there is no slot: the caller then does without (a slower, still right way).
    pub fn table_put(&self, key: u64, record: u32) -> bool {
        // Bits are never taken back: a bit too many costs a look, one too few would hide a record.
        let (word, bit) = bit_of(key);
        self.filter[word].fetch_or(bit, Release);
        let mut removed = None;
        for i in slots_of(key) {
            match self.table[i].key.load(Acquire) {
                found if found == key => {
                    let value = &self.table[i].value;
                    let before = value.load(Acquire);
                    // Value 0 is being removed: the slot is not ours to use again.
                    if before != 0 && value.compare_exchange(before, record as u64 + 1, AcqRel, Acquire).is_ok() {
                        return true;
                    }
                }
                REMOVED => removed = removed.or(Some(i)),
                0 => {
                    removed = removed.or(Some(i));
                    break;
                }
                _ => {}
            }
        }
        let from = removed.into_iter().chain(slots_of(key));
        for i in from {
            let slot = &self.table[i];
            let found = slot.key.load(Acquire);
            if (found == 0 || found == REMOVED) && slot.key.compare_exchange(found, key, AcqRel, Acquire).is_ok() {
                slot.value.store(record as u64 + 1, Release);
                return true;
            }
        }
        false
    }

    /// Removes the key if it leads to this record.
    pub fn table_remove(&self, key: u64, record: u32) {
        for i in slots_of(key) {
            let slot = &self.table[i];
            match slot.key.load(Acquire) {
                0 => return,
                found if found == key => {
                    if slot.value.compare_exchange(record as u64 + 1, 0, AcqRel, Acquire).is_ok() {
                        let _ = slot.key.compare_exchange(key, REMOVED, AcqRel, Acquire);
                        return;
                    }
                    if slot.value.load(Acquire) != 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::empty_index;

    #[test]
    fn what_was_put_is_found_until_it_is_removed() {
        let index = empty_index();
        for ino in 1..5000u64 {
            assert!(index.table_put(object_key(0, ino), ino as u32));
            assert!(index.table_put(root_key(ino), ino as u32 + 7));
        }
        for ino in (1..5000u64).step_by(2) {
            index.table_remove(object_key(0, ino), ino as u32);
        }
        for ino in 1..5000u64 {
            assert_eq!(index.table_get(object_key(0, ino)), (ino % 2 == 0).then_some(ino as u32));
            assert_eq!(index.table_get(root_key(ino)), Some(ino as u32 + 7));
        }
        index.table_remove(root_key(8), 1);
        assert_eq!(index.table_get(root_key(8)), Some(15), "another record's key stays");
    }

    #[test]
    fn a_key_that_is_removed_for_one_file_while_it_is_put_for_the_next_is_not_lost() {
        let index = empty_index();
        for turn in 0..20_000u32 {
            let key = root_key(77);
            index.table_put(key, 2 * turn);
            let remover = std::thread::spawn(move || index.table_remove(key, 2 * turn));
            index.table_put(key, 2 * turn + 1);
            remover.join().unwrap();
            assert_eq!(index.table_get(key), Some(2 * turn + 1), "turn {turn}");
            index.table_remove(key, 2 * turn + 1);
            assert_eq!(index.table_get(key), None);
        }
    }

    #[test]
    fn a_million_files_made_and_removed_leave_the_table_usable() {
        let index = empty_index();
        for ino in 1..1_000_000u64 {
            assert!(index.table_put(object_key(1, ino), 1));
            index.table_remove(object_key(1, ino), 1);
        }
        assert!(index.table_put(object_key(1, 3), 3));
        assert_eq!(index.table_get(object_key(1, 3)), Some(3));
    }
}
