//! Which of several agents keeps what: the one that weighs most for it (rendezvous hashing).
//!
//! Nobody keeps a table, and nobody is asked. With one agent more, what moves, moves to that one.

/// The agent, of so many, that keeps what has this key.
pub fn choose(key: u64, agents: u32) -> u32 {
    (0..agents.max(1)).max_by_key(|&agent| mixed(key ^ mixed(agent as u64 + 1))).unwrap_or(0)
}

pub fn key_of_name(name: &str) -> u64 {
    let hash = |hash: u64, byte: u8| (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
    mixed(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
}

/// Of a chunk of an array, by its place in the grid.
pub fn key_of_chunk(identity: u64, chunk: &[u64]) -> u64 {
    chunk.iter().fold(mixed(identity), |key, &index| mixed(key ^ index.wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

/// The last step of splitmix64 (Steele, Lea and Flood 2014): each bit of the answer depends on each of the question.
fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_get_equal_shares() {
        let mut shares = [0; 5];
        (0..5000u64).for_each(|chunk| shares[choose(key_of_chunk(7, &[chunk / 50, chunk % 50]), 5) as usize] += 1);
        assert!(shares.iter().all(|share| (850..1150).contains(share)), "{shares:?}");
    }

    #[test]
    fn with_one_agent_more_things_move_to_that_one_only() {
        let mut moved = 0;
        for number in 0..3000 {
            let key = key_of_name(&format!("object {number}"));
            let (before, after) = (choose(key, 2), choose(key, 3));
            assert!(after == before || after == 2);
            moved += u32::from(after != before);
        }
        assert!((900..1100).contains(&moved), "{moved}");
    }
}
