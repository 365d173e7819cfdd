//! A random order of 0..n that needs no list: a Feistel network over the next power of four, walked until it lands below n.

/// A bijection of 0..n.
#[derive(Clone, Debug)]
pub struct Permutation {
    count: u64,
    half_bits: u32,
    keys: [u64; 6],
}

impl Permutation {
    pub fn new(count: u64, seed: u64) -> Permutation {
        let bits = 64 - count.saturating_sub(1).leading_zeros();
        let mut state = seed;
        let keys = std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        });
        Permutation { count, half_bits: bits.div_ceil(2).max(1), keys }
    }

    /// Where `index` (below the count) goes.
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.count);
        let mask = (1_u64 << self.half_bits) - 1;
        let mut value = index;
        // The domain is at most four times the count, so this ends after four rounds on average.
        loop {
            let (mut left, mut right) = (value >> self.half_bits, value & mask);
            for key in self.keys {
                (left, right) = (right, left ^ (mix(right ^ key) & mask));
            }
            value = left << self.half_bits | right;
            if value < self.count {
                return value;
            }
        }
    }
}

/// The finaliser of SplitMix64.
pub fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_hit_once_and_neighbours_are_torn_apart() {
        for count in [1, 2, 3, 5, 64, 1000, 4097] {
            let permutation = Permutation::new(count, 7);
            let mut seen: Vec<u64> = (0..count).map(|index| permutation.at(index)).collect();
            let contiguous = seen.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
            assert!(count < 64 || contiguous < 10, "{contiguous} of {count} requests follow each other");
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count), "{count}");
        }
    }

    #[test]
    fn seeds_give_orders_of_their_own() {
        let order = |seed| (0..100).map(|index| Permutation::new(100, seed).at(index)).collect::<Vec<_>>();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
