//! Which programs make small files, learnt while they run.
//!
//! A small file costs the root's server more by a tier (a link, and later a copy that takes its name) than where it is made in the root at
//! once, and what a tier saves, the wait for its bytes, is little. So a program that has made some small files with a suffix makes the
//! next ones in the root. A few go to a tier as before, and say whether that is still right: it is not when one is large, is opened
//! again and again (replicas cost a server nothing), or is synced (a tier has that for nothing).
//!
//! Words are lost where two habits meet in one slot, or two programs at one moment: then a file lies where it would have been without this.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time in which a server takes so much is about what its requests for the link and the copy take.
pub const SMALL_BYTES: u64 = 64 << 10;
/// A small file that is opened so often gains by a tier.
pub const OFTEN: u32 = 8;
/// So many small files in turn are a habit.
const ENOUGH: u64 = 8;
/// One of so many files is made in a tier all the same.
const SAMPLE: u64 = 32;
const SLOTS: usize = 1 << 10;
/// Longer ones are no suffixes.
const SUFFIX_MAX: usize = 12;

/// Low 16 bits: small files in turn, or `NEVER`. Next 16: files made since. High 32: whose habit it is.
#[repr(C)]
pub struct Habits {
    slots: [AtomicU64; SLOTS],
}

const COUNT: u64 = 0xffff;
const NEVER: u64 = 0xffff;
const MADE: u32 = 16;
const KEY: u32 = 32;

/// Who makes files of what suffix. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

impl Key {
    /// `program` and `directory` are any numbers that tell them apart; `name` is a file's, without its directory.
    pub fn of(program: u64, directory: u64, name: &[u8]) -> Key {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
        let suffix = suffix(name);
        let hash = suffix.iter().fold(mix(mix(0, program), directory), |hash, byte| mix(hash, *byte as u64));
        Key((hash >> 32) as u32 | 1)
    }

    /// As it is noted in a record.
    pub fn number(self) -> u32 {
        self.0
    }

    /// `None`: 0, of a file that is nobody's habit.
    pub fn from_number(number: u32) -> Option<Key> {
        (number != 0).then_some(Key(number))
    }
}

/// What comes after the last dot. Numbers (`out.0001`) are one suffix.
fn suffix(name: &[u8]) -> &[u8] {
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    match dot.map(|dot| &name[dot + 1..]) {
        None => b"",
        Some(suffix) if suffix.len() > SUFFIX_MAX => b"",
        Some(suffix) if !suffix.is_empty() && suffix.iter().all(u8::is_ascii_digit) => b"0",
        Some(suffix) => suffix,
    }
}

impl Habits {
    fn slot(&self, key: Key) -> &AtomicU64 {
        &self.slots[(key.0 >> 1) as usize % SLOTS]
    }

    /// Files of it are made in the root.
    pub fn is_known(&self, key: Key) -> bool {
        let word = self.slot(key).load(Relaxed);
        word >> KEY == key.0 as u64 && (ENOUGH..NEVER).contains(&(word & COUNT))
    }

    /// A new file: it will be small, and is made in the root.
    pub fn is_for_root(&self, key: Key) -> bool {
        let slot = self.slot(key);
        let word = slot.load(Relaxed);
        if !self.is_known(key) {
            return false;
        }
        let made = (word >> MADE) + 1 & COUNT;
        slot.store((key.0 as u64) << KEY | made << MADE | ENOUGH, Relaxed);
        !made.is_multiple_of(SAMPLE)
    }

    /// Whether it is a habit is not known.
    pub fn is_open(&self, key: Key) -> bool {
        let word = self.slot(key).load(Relaxed);
        word >> KEY != key.0 as u64 || word & COUNT < ENOUGH
    }

    /// A file of this habit was closed in a tier with so many bytes.
    pub fn closed(&self, key: Key, bytes: u64) {
        let slot = self.slot(key);
        let word = slot.load(Relaxed);
        let is_known = word >> KEY == key.0 as u64;
        let count = if is_known { word & COUNT } else { 0 };
        let count = match count {
            NEVER => NEVER,
            _ if bytes > SMALL_BYTES => 0,
            count => (count + 1).min(ENOUGH),
        };
        let made = if is_known { word >> MADE & COUNT } else { 0 };
        slot.store((key.0 as u64) << KEY | made << MADE | count, Relaxed);
    }

    /// One of them gained by its tier: they all stay there.
    pub fn gained(&self, key: Key) {
        self.slot(key).store((key.0 as u64) << KEY | NEVER, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(habits: &Habits, key: Key, sizes: impl IntoIterator<Item = u64>) {
        sizes.into_iter().for_each(|bytes| habits.closed(key, bytes));
    }

    #[test]
    fn who_makes_small_files_makes_the_next_ones_in_the_root_but_for_samples() {
        let index = crate::tests::empty_index();
        let key = Key::of(1, 0, b"a.o");
        close(&index.habits, key, [100; ENOUGH as usize - 1]);
        assert!(!index.habits.is_for_root(key));
        close(&index.habits, key, [SMALL_BYTES]);
        let for_root = (0..10 * SAMPLE).filter(|_| index.habits.is_for_root(key)).count() as u64;
        assert_eq!(for_root, 10 * (SAMPLE - 1));
    }

    #[test]
    fn a_large_file_ends_a_habit_and_one_that_gained_by_its_tier_forbids_it() {
        let index = crate::tests::empty_index();
        let key = Key::of(1, 0, b"a.o");
        close(&index.habits, key, [1; 20]);
        close(&index.habits, key, [SMALL_BYTES + 1]);
        assert!(!index.habits.is_for_root(key));
        close(&index.habits, key, [1; ENOUGH as usize]);
        assert!(index.habits.is_for_root(key));
        index.habits.gained(key);
        close(&index.habits, key, [1; 100]);
        assert!(!index.habits.is_for_root(key));
    }

    #[test]
    fn habits_are_of_a_program_a_directory_and_a_suffix() {
        let key = Key::of(1, 2, b"a.o");
        assert_eq!(Key::of(1, 2, b"other.o"), key);
        assert_ne!(Key::of(2, 2, b"a.o"), key);
        assert_ne!(Key::of(1, 3, b"a.o"), key);
        assert_ne!(Key::of(1, 2, b"a.d"), key);
        let alike: [(&[u8], &[u8]); 4] = [
            (b"out.0001", b"out.23"),
            (b"Makefile", b"README"),
            (b".profile", b"README"),
            (b"9f.cc02a1b9ee773388ff", b"README"),
        ];
        alike.iter().for_each(|(one, other)| assert_eq!(suffix(one), suffix(other), "{one:?} {other:?}"));
        assert_eq!(suffix(b"a."), b"");
    }

    #[test]
    fn a_slot_that_another_habit_takes_says_nothing_wrong() {
        let index = crate::tests::empty_index();
        let (mine, other) = (Key(2 * SLOTS as u32 | 1), Key(4 * SLOTS as u32 | 1));
        assert!(core::ptr::eq(index.habits.slot(mine), index.habits.slot(other)));
        close(&index.habits, mine, [1; 20]);
        close(&index.habits, other, [1]);
        assert!(!index.habits.is_for_root(mine) && !index.habits.is_for_root(other));
    }
}
