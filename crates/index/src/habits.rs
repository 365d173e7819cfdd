//! Which programs make small files, learnt while they run.
//!
//! A small file costs the root's server more by a tier (a link, and later a copy that takes its name) than where it is made in the root at
//! once, and what a tier saves, the wait for its bytes, is little. So a program that has made some small files with a suffix makes the
//! next ones in the root. A few go to a tier as before, and say whether that is still right: it is not when one is large, is opened
//! again and again (replicas cost a server nothing), or is synced (a tier has that for nothing).
//!
//! Where two habits meet in one slot, the later one has it: then a file lies where it would have been without this.

use crate::{FLAG_LEARNT, Record};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time in which a server takes so much is about what its requests for the link and the copy take.
pub const SMALL_BYTES: u64 = 64 << 10;
/// A small file that is opened so often gains by a tier.
pub const OFTEN: u32 = 8;
/// So many small files are a habit, where a large one takes away `LARGE`.
const ENOUGH: u64 = 5;
/// Where more than one in six is large, it is none.
const LARGE: u64 = 4;
/// So many takes one away that was made in the root and becomes large.
const GREW: u64 = 8;
/// No more are counted: two large ones among eight end any habit, one in ten does not.
const MOST: u64 = ENOUGH + GREW;
/// After so many files one is made in a tier all the same; then after twice as many, up to `SAMPLE_MAX`: each costs as much as some twenty
/// others.
const SAMPLE_MIN: u64 = 32;
const SAMPLE_MAX: u64 = 256;
const SLOTS: usize = 1 << 10;
/// Longer ones are no suffixes.
const SUFFIX_MAX: usize = 12;
const RANDOM_MIN: usize = 6;

/// In each slot a word: whose habit it is (the high half), and `Word`.
#[repr(C)]
pub struct Habits {
    slots: [AtomicU64; SLOTS],
}

#[derive(Clone, Copy)]
struct Word {
    /// Small files, up to `MOST`, less those for which large ones count; or `NEVER`.
    small: u64,
    /// Files made since.
    made: u64,
}

const COUNT: u64 = 0xffff;
const NEVER: u64 = 0xffff;
const MADE: u32 = 16;
const KEY: u32 = 32;

/// Who makes files of what suffix. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(u32);

impl Key {
    /// `program` is any number that tells it from others; `name` is a file's, without its directory.
    pub fn of(program: u64, name: &[u8]) -> Key {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
        let (is_suffix, kind) = kind(name);
        let hash = kind.iter().fold(mix(is_suffix as u64, program), |hash, byte| mix(hash, *byte as u64));
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

/// What names of one habit have in common, and whether it is a suffix: what comes after the last dot, where numbers (`out.0001`) are one
/// and random texts (`.f.aB3dEf`) none. Without a dot it is the name but for the number at its end (`f12`): a program's single files
/// (`HEAD`, `config`), which may be read often, say nothing of others.
fn kind(name: &[u8]) -> (bool, &[u8]) {
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    match dot {
        Some(dot) => (true, suffix(&name[dot + 1..])),
        None => (false, stem(name)),
    }
}

fn stem(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |last| last + 1);
    let stem = &name[..end];
    let is_random = stem.len() > SUFFIX_MAX || stem.iter().any(u8::is_ascii_digit);
    if is_random { b"" } else { stem }
}

fn suffix(suffix: &[u8]) -> &[u8] {
    let has = |is_of: fn(&u8) -> bool| suffix.iter().any(is_of);
    let is_random = suffix.len() >= RANDOM_MIN
        && has(u8::is_ascii_uppercase)
        && has(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if suffix.len() > SUFFIX_MAX || is_random {
        b""
    } else if !suffix.is_empty() && suffix.iter().all(u8::is_ascii_digit) {
        b"0"
    } else {
        suffix
    }
}

impl Habits {
    fn slot(&self, key: Key) -> &AtomicU64 {
        &self.slots[(key.0 >> 1) as usize % SLOTS]
    }

    /// Files of it are made in the root.
    pub fn is_known(&self, key: Key) -> bool {
        Word::of(key, self.slot(key).load(Relaxed)).is_known()
    }

    /// Its last files were large.
    pub fn is_large(&self, key: Key) -> bool {
        let word = self.slot(key).load(Relaxed);
        word >> KEY == key.0 as u64 && word & COUNT == 0
    }

    /// Whether it is a habit is not known.
    pub fn is_open(&self, key: Key) -> bool {
        Word::of(key, self.slot(key).load(Relaxed)).small < ENOUGH
    }

    /// A new file of a known habit is made: in the root, and not in a tier as a sample.
    pub fn is_for_root(&self, key: Key) -> bool {
        let mut is_for_root = false;
        self.change(key, |word| {
            let made = word.made + 1;
            let is_sample = made.is_multiple_of(SAMPLE_MAX) || made >= SAMPLE_MIN && made.is_power_of_two();
            is_for_root = word.is_known() && !is_sample;
            // It is small until it has become large.
            let small = if is_for_root { word.more() } else { word.small };
            Word { small, made }
        });
        is_for_root
    }

    /// The record's file was closed with so many bytes. It counts once; and again if it has become large.
    pub fn learn(&self, record: &Record, bytes: u64) {
        let Some(key) = Key::from_number(record.habit.load(Relaxed)) else { return };
        let is_first = record.flags.fetch_or(FLAG_LEARNT, Relaxed) & FLAG_LEARNT == 0;
        if is_first || bytes > SMALL_BYTES {
            self.closed(key, bytes);
        }
    }

    /// A file of this habit was closed in a tier with so many bytes. A large sample ends it.
    pub fn closed(&self, key: Key, bytes: u64) {
        self.change(key, |word| match word.small {
            NEVER => word,
            _ if bytes > SMALL_BYTES && word.is_known() => Word { small: 0, made: 0 },
            small if bytes > SMALL_BYTES => Word { small: small.saturating_sub(LARGE), ..word },
            _ => Word { small: word.more(), ..word },
        });
    }

    /// One that was made in the root has become large.
    pub fn grew(&self, key: Key) {
        self.change(key, |word| match word.small {
            NEVER => word,
            small => Word { small: small.saturating_sub(GREW), ..word },
        });
    }

    /// One of them gained by its tier: they all stay there.
    pub fn gained(&self, key: Key) {
        self.change(key, |word| Word { small: NEVER, ..word });
    }

    /// In one step, whoever else changes it.
    fn change(&self, key: Key, mut change: impl FnMut(Word) -> Word) {
        let slot = self.slot(key);
        let mut before = slot.load(Relaxed);
        loop {
            let after = change(Word::of(key, before)).number(key);
            match slot.compare_exchange_weak(before, after, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }
}

impl Word {
    /// What is another's habit is nothing of this one.
    fn of(key: Key, number: u64) -> Word {
        match number >> KEY == key.0 as u64 {
            true => Word { small: number & COUNT, made: number >> MADE & COUNT },
            false => Word { small: 0, made: 0 },
        }
    }

    fn number(self, key: Key) -> u64 {
        (key.0 as u64) << KEY | (self.made & COUNT) << MADE | self.small
    }

    fn more(self) -> u64 {
        (self.small + 1).min(MOST)
    }

    fn is_known(self) -> bool {
        (ENOUGH..NEVER).contains(&self.small)
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
        let key = Key::of(1, b"a.o");
        close(&index.habits, key, [100; ENOUGH as usize - 1]);
        assert!(!index.habits.is_for_root(key));
        close(&index.habits, key, [SMALL_BYTES]);
        let in_tier = |files: u64| (0..files).filter(|_| !index.habits.is_for_root(key)).count() as u64;
        assert_eq!(in_tier(SAMPLE_MAX), 4);
        assert_eq!(in_tier(10 * SAMPLE_MAX), 10);
    }

    #[test]
    fn large_files_end_a_habit_and_one_that_gained_by_its_tier_forbids_it() {
        let index = crate::tests::empty_index();
        let key = Key::of(1, b"a.o");
        close(&index.habits, key, [1; 20]);
        for _ in 0..20 {
            for _ in 0..9 {
                index.habits.is_for_root(key);
            }
            index.habits.grew(key);
            assert!(index.habits.is_known(key), "one in ten");
        }
        for _ in 0..GREW - 1 {
            index.habits.is_for_root(key);
        }
        index.habits.grew(key);
        assert!(!index.habits.is_known(key), "two among eight");
        close(&index.habits, key, [1; ENOUGH as usize]);
        assert!(index.habits.is_known(key));
        close(&index.habits, key, [SMALL_BYTES + 1]);
        let mixed = |small: usize| (0..40).flat_map(move |_| [vec![1; small], vec![SMALL_BYTES + 1]].concat());
        for (small, is_known) in [(4, false), (7, true)] {
            let key = Key::of(small as u64, b"a.py");
            let becomes_known = mixed(small).any(|bytes| {
                index.habits.closed(key, bytes);
                index.habits.is_known(key)
            });
            assert_eq!(becomes_known, is_known, "one in {}", small + 1);
        }
        assert!(!index.habits.is_for_root(key) && index.habits.is_large(key));
        close(&index.habits, key, [1; ENOUGH as usize]);
        assert!(index.habits.is_for_root(key));
        index.habits.gained(key);
        close(&index.habits, key, [1; 100]);
        assert!(!index.habits.is_for_root(key) && !index.habits.is_large(key));
    }

    #[test]
    fn habits_are_of_a_program_and_a_kind_of_names() {
        let key = Key::of(1, b"a.o");
        assert_eq!(Key::of(1, b"other.o"), key);
        assert_ne!(Key::of(2, b"a.o"), key);
        assert_ne!(Key::of(1, b"a.d"), key);
        let alike: [(&[u8], &[u8]); 5] = [
            (b".f.dat.aB3dEf", b"9f.cc02a1b9ee773388ff"),
            (b"out.0001", b"out.23"),
            (b"f1", b"f23"),
            (b"1", b"0002"),
            (b"tmp_obj_aB3dEf", b"02a1b9ee773388ff"),
        ];
        alike.iter().for_each(|(one, other)| assert_eq!(kind(one), kind(other), "{one:?} {other:?}"));
        let apart: [(&[u8], &[u8]); 4] =
            [(b"Makefile", b"README"), (b"f1", b"HEAD"), (b"o", b"a.o"), (b".profile", b"profile")];
        apart.iter().for_each(|(one, other)| assert_ne!(Key::of(1, one), Key::of(1, other), "{one:?} {other:?}"));
        assert_eq!(kind(b"a."), (true, &b""[..]));
    }

    #[test]
    fn a_slot_that_another_habit_takes_says_nothing_wrong() {
        let index = crate::tests::empty_index();
        let (mine, other) = (Key((2 * SLOTS as u32) | 1), Key((4 * SLOTS as u32) | 1));
        assert!(core::ptr::eq(index.habits.slot(mine), index.habits.slot(other)));
        close(&index.habits, mine, [1; 20]);
        close(&index.habits, other, [1]);
        assert!(!index.habits.is_for_root(mine) && !index.habits.is_for_root(other));
    }
}
