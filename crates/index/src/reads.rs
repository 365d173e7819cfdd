//! How much programs read, for the report of a run: bytes of the files that they opened for reading, each as a whole, by what the file was.
//!
//! Reads are the kernel's alone, so they can't be counted; opens are. Who has been seen is remembered in a table of bits, which is
//! never wrong about a file that was seen, and takes one that was not for one that was as often as the table is full: of 100,000
//! files, one in twenty on average.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

const SEEN_BITS_LOG2: u32 = 20;
const SEEN_WORDS: usize = 1 << (SEEN_BITS_LOG2 - 6);

/// Whose inode number it is. Each has its own half of the truth: objects and the root's files may have the same numbers.
#[derive(Clone, Copy)]
enum What {
    Root = 1,
    Object = 2,
    /// An object that a program made: also when it is the replica of a file that was flushed.
    Made = 3,
}

#[repr(C)]
pub struct Reads {
    /// Of files that were there before, opened for the first time.
    pub input_bytes: AtomicU64,
    /// Of files that programs had made in a tier, opened for the first time.
    pub read_back_bytes: AtomicU64,
    /// Of either, opened again.
    pub reread_bytes: AtomicU64,
    seen: [AtomicU64; SEEN_WORDS],
}

impl Reads {
    /// A file of the root was opened for reading; it stands for so many opens.
    pub fn of_root(&self, ino: u64, bytes: u64, opens: u64) {
        let to = if self.see(What::Root, ino) { &self.reread_bytes } else { &self.input_bytes };
        to.fetch_add(bytes.saturating_mul(opens), Relaxed);
    }

    /// An object was opened for reading.
    pub fn of_object(&self, ino: u64, bytes: u64, opens: u64) {
        let to = match (self.see(What::Object, ino), self.has_seen(What::Made, ino)) {
            (true, _) => &self.reread_bytes,
            (false, true) => &self.read_back_bytes,
            (false, false) => &self.input_bytes,
        };
        to.fetch_add(bytes.saturating_mul(opens), Relaxed);
    }

    /// A program has made this object. Inode numbers come again: whoever had it before, it is a new file.
    pub fn made(&self, ino: u64) {
        let (word, bit) = self.place(What::Object, ino);
        word.fetch_and(!bit, Relaxed);
        self.see(What::Made, ino);
    }

    /// True if it was seen before.
    fn see(&self, what: What, ino: u64) -> bool {
        let (word, bit) = self.place(what, ino);
        // Looked at first: a line that all processes only read is in the caches of all.
        word.load(Relaxed) & bit != 0 || word.fetch_or(bit, Relaxed) & bit != 0
    }

    fn has_seen(&self, what: What, ino: u64) -> bool {
        let (word, bit) = self.place(what, ino);
        word.load(Relaxed) & bit != 0
    }

    fn place(&self, what: What, ino: u64) -> (&AtomicU64, u64) {
        let mixed = (ino ^ (what as u64) << 60).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = mixed >> (u64::BITS - SEEN_BITS_LOG2);
        (&self.seen[(at >> 6) as usize], 1 << (at & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(reads: &Reads) -> (u64, u64, u64) {
        let of = |count: &AtomicU64| count.load(Relaxed);
        (of(&reads.input_bytes), of(&reads.read_back_bytes), of(&reads.reread_bytes))
    }

    #[test]
    fn input_what_is_read_back_and_what_is_read_again_are_told_apart() {
        let index = crate::tests::empty_index();
        let reads = &index.reads;
        reads.of_root(17, 100, 1);
        assert_eq!(counted(reads), (100, 0, 0));
        reads.of_root(17, 100, 2);
        assert_eq!(counted(reads), (100, 0, 200));
        // A copy of an input, brought up by a prefetch.
        reads.of_object(17, 10, 1);
        assert_eq!(counted(reads), (110, 0, 200));
        reads.made(18);
        reads.of_object(18, 7, 1);
        reads.of_object(18, 7, 1);
        assert_eq!(counted(reads), (110, 7, 207));
        // The same inode number, for another file.
        reads.made(18);
        reads.of_object(18, 5, 1);
        assert_eq!(counted(reads), (110, 12, 207));
    }

    #[test]
    fn neighbouring_numbers_are_different_files() {
        let index = crate::tests::empty_index();
        (1..=1000).for_each(|ino| index.reads.of_root(ino, 1, 1));
        assert_eq!(counted(&index.reads), (1000, 0, 0));
    }
}
