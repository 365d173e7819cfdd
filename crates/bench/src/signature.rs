//! The data: every eight bytes say where they belong, so that a read can tell that it got something else, and what.
//!
//! The word at 64-bit offset o (a multiple of 8) of a file is scramble(key + o/8 * STEP): a bijection for each key, and
//! cheap enough to fill at memory speed. The key is drawn from the experiment's seed, run, replication, repetition and file.
//! So no two words of a file are equal, at whatever distance, and no word is what another file or replicate has there.

use crate::workload::mix;
use serde::{Deserialize, Serialize};
use std::fmt;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Whose data it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub seed: u64,
    pub run: u32,
    pub replication: u32,
    pub repetition: u32,
    pub file: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct Signature {
    identity: Identity,
    key: u64,
}

/// The first byte that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub offset: u64,
    pub expected: u8,
    pub found: u8,
    /// What the bytes there seem to be.
    pub guess: Guess,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guess {
    /// This file's data of another offset.
    OtherOffset(u64),
    OtherFile(u32),
    /// What another replication or repetition wrote.
    Stale {
        replication: u32,
        repetition: u32,
    },
    FlippedBits(u32),
    Zeros,
    Unknown,
}

/// How far the guesses look.
const FILES_GUESSED: u32 = 4096;

impl Signature {
    pub fn new(identity: Identity) -> Signature {
        let Identity { seed, run, replication, repetition, file } = identity;
        let parts = [seed, u64::from(run), u64::from(replication), u64::from(repetition), u64::from(file)];
        let key = parts.into_iter().fold(STEP, |key, part| mix(key.wrapping_add(STEP) ^ mix(part)));
        Signature { identity, key }
    }

    fn word(&self, index: u64) -> u64 {
        let sum = self.key.wrapping_add(index.wrapping_mul(STEP));
        sum ^ (sum >> 32)
    }

    /// The index that has this word, for some offset at all: `word` is a bijection.
    fn index_of(&self, word: u64) -> u64 {
        let sum = word ^ (word >> 32);
        sum.wrapping_sub(self.key).wrapping_mul(inverse(STEP))
    }

    /// Puts the file's bytes from `offset` on into `buffer`.
    pub fn fill(&self, offset: u64, buffer: &mut [u8]) {
        let (head, middle, tail) = cut(offset, buffer.len());
        self.fill_part(offset, &mut buffer[..head]);
        let first = (offset + head as u64) / 8;
        let mut sum = self.key.wrapping_add(first.wrapping_mul(STEP));
        for bytes in buffer[head..head + middle].chunks_exact_mut(8) {
            bytes.copy_from_slice(&(sum ^ (sum >> 32)).to_le_bytes());
            sum = sum.wrapping_add(STEP);
        }
        let at = buffer.len() - tail;
        self.fill_part(offset + at as u64, &mut buffer[at..]);
    }

    fn fill_part(&self, offset: u64, bytes: &mut [u8]) {
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = self.byte(offset + index as u64);
        }
    }

    fn byte(&self, offset: u64) -> u8 {
        self.word(offset / 8).to_le_bytes()[(offset % 8) as usize]
    }

    /// Whether `buffer` is what the file has from `offset` on.
    pub fn verify(&self, offset: u64, buffer: &[u8]) -> Result<(), Mismatch> {
        let (head, middle, tail) = cut(offset, buffer.len());
        let first = (offset + head as u64) / 8;
        let mut sum = self.key.wrapping_add(first.wrapping_mul(STEP));
        let mut wrong = 0;
        for bytes in buffer[head..head + middle].chunks_exact(8) {
            wrong |= u64::from_le_bytes(bytes.try_into().expect("chunks have 8 bytes")) ^ sum ^ (sum >> 32);
            sum = sum.wrapping_add(STEP);
        }
        let ends = (0..head).chain(buffer.len() - tail..buffer.len());
        let whole = wrong == 0 && ends.into_iter().all(|index| buffer[index] == self.byte(offset + index as u64));
        if whole { Ok(()) } else { Err(self.explain(offset, buffer)) }
    }

    #[cold]
    fn explain(&self, offset: u64, buffer: &[u8]) -> Mismatch {
        let index = (0..buffer.len())
            .find(|index| buffer[*index] != self.byte(offset + *index as u64))
            .expect("some byte is wrong");
        let at = offset + index as u64;
        // The whole word around the first wrong byte, or the next one that is whole.
        let mut start = index - (at % 8).min(index as u64) as usize;
        if !(offset + start as u64).is_multiple_of(8) {
            start += 8 - ((offset + start as u64) % 8) as usize;
        }
        let guess = buffer.get(start..start + 8).map_or(Guess::Unknown, |bytes| {
            self.guess((offset + start as u64) / 8, u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
        });
        let (expected, found) = (self.byte(at), buffer[index]);
        // The next whole word is right: only a part of one is wrong.
        let guess =
            if guess == Guess::FlippedBits(0) { Guess::FlippedBits((expected ^ found).count_ones()) } else { guess };
        Mismatch { offset: at, expected, found, guess }
    }

    fn guess(&self, index: u64, word: u64) -> Guess {
        if word == 0 {
            return Guess::Zeros;
        }
        let flipped = (word ^ self.word(index)).count_ones();
        if flipped <= 3 {
            return Guess::FlippedBits(flipped);
        }
        let belongs = self.index_of(word);
        if belongs < (1 << 60) {
            return Guess::OtherOffset(belongs * 8);
        }
        let identity = self.identity;
        for replication in 0..=identity.replication + 64 {
            for repetition in 0..=identity.repetition + 64 {
                if Signature::new(Identity { replication, repetition, ..identity }).word(index) == word {
                    return Guess::Stale { replication, repetition };
                }
            }
        }
        (0..FILES_GUESSED)
            .find(|file| Signature::new(Identity { file: *file, ..identity }).word(index) == word)
            .map_or(Guess::Unknown, Guess::OtherFile)
    }
}

/// Bytes before the first whole word, in whole words, and behind them.
fn cut(offset: u64, len: usize) -> (usize, usize, usize) {
    let head = ((8 - offset % 8) % 8).min(len as u64) as usize;
    let middle = (len - head) / 8 * 8;
    (head, middle, len - head - middle)
}

/// Of an odd number modulo 2^64, by Newton's iteration.
const fn inverse(value: u64) -> u64 {
    let mut inverse = value;
    let mut round = 0;
    while round < 6 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(value.wrapping_mul(inverse)));
        round += 1;
    }
    inverse
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "wrong data from offset {} on (0x{:02x} instead of 0x{:02x}): ",
            self.offset, self.found, self.expected
        )?;
        match self.guess {
            Guess::OtherOffset(offset) => {
                let distance = i128::from(offset) - i128::from(self.offset / 8 * 8);
                write!(f, "this is the data of offset {offset}, {distance} bytes away")
            }
            Guess::OtherFile(file) => write!(f, "this is the data of file {file}"),
            Guess::Stale { replication, repetition } => {
                write!(f, "this was written by replication {replication}, repetition {repetition}")
            }
            Guess::FlippedBits(bits) => write!(f, "{bits} flipped bit(s)"),
            Guess::Zeros => write!(f, "zeros, never written"),
            Guess::Unknown => write!(f, "no data of this run"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { seed: 1, run: 2, replication: 3, repetition: 0, file: 0 };
    const BLOCK: usize = 4096;

    fn block(identity: Identity, offset: u64) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK];
        Signature::new(identity).fill(offset, &mut bytes);
        bytes
    }
    fn verdict(offset: u64, bytes: &[u8]) -> Mismatch {
        Signature::new(IDENTITY).verify(offset, bytes).unwrap_err()
    }

    #[test]
    fn any_cut_of_the_file_is_the_same_data() {
        let signature = Signature::new(IDENTITY);
        let mut whole = vec![0; 300];
        signature.fill(1000, &mut whole);
        for from in 0..40 {
            for len in 0..60 {
                let mut piece = vec![0; len];
                signature.fill(1000 + from as u64, &mut piece);
                assert_eq!(piece, whole[from..from + len]);
                assert_eq!(signature.verify(1000 + from as u64, &piece), Ok(()));
            }
        }
    }

    #[test]
    fn a_swapped_block_of_one_rank_is_caught() {
        let found = verdict(0, &block(IDENTITY, 65536));
        assert_eq!((found.offset, found.guess), (0, Guess::OtherOffset(65536)));
    }

    #[test]
    fn ior_identical_packets_do_not_hide_a_swap_within_a_request() {
        let mut bytes = block(IDENTITY, 0);
        let (first, second) = bytes.split_at_mut(BLOCK / 2);
        first.swap_with_slice(second);
        assert_eq!(verdict(0, &bytes).guess, Guess::OtherOffset(2048));
    }

    #[test]
    fn ior_32_bit_signatures_do_not_hide_a_shift_by_4_gib() {
        for shift in [1_u64 << 32, 1 << 33, 1 << 35, 1 << 40] {
            let found = verdict(8192, &block(IDENTITY, 8192 + shift));
            assert_eq!((found.offset, found.guess), (8192, Guess::OtherOffset(8192 + shift)));
        }
    }

    #[test]
    fn a_swapped_file_is_caught() {
        assert_eq!(verdict(0, &block(Identity { file: 5, ..IDENTITY }, 0)).guess, Guess::OtherFile(5));
    }

    #[test]
    fn a_stale_replicate_is_caught() {
        let stale = block(Identity { replication: 1, ..IDENTITY }, 4096);
        assert_eq!(verdict(4096, &stale).guess, Guess::Stale { replication: 1, repetition: 0 });
    }

    #[test]
    fn one_flipped_bit_is_caught_wherever_it_is() {
        for at in [0, 1, 7, 8, 2049, BLOCK - 1] {
            let mut bytes = block(IDENTITY, 12);
            bytes[at] ^= 0x10;
            let found = verdict(12, &bytes);
            assert_eq!(found.offset, 12 + at as u64);
            assert!(matches!(found.guess, Guess::FlippedBits(1) | Guess::Unknown), "{found}");
        }
    }

    #[test]
    fn a_hole_is_named() {
        let found = verdict(16, &[0; BLOCK]);
        assert_eq!((found.offset, found.guess), (16, Guess::Zeros));
    }
}
