//! Which of several agents keeps which chunk of an array that is spread over them.
//!
//! Chunks beside each other are kept by different agents, along every dimension, so that any subset is spread as evenly as it can be (disk
//! modulo allocation: Du and Sobolewski, ACM TODS 7, 1982). Which one begins follows from the array's identity; but arrays with many chunks
//! whose dimensions have the same names, and the same chunks, begin with the same one, whatever containers they are in: what is asked of two of
//! them at once moves no cells. Few chunks would be the same agent's burden, of all such arrays: a step that is one chunk, for one.

use super::ArraySpec;
use super::rendezvous::{key_of_chunk, key_of_name};

/// So many chunks for each agent are many.
const CHUNKS_MIN: u64 = 4;

/// What decides it, beside the number of agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spreading {
    /// The array's own pattern.
    pub own: u64,
    /// The same of arrays that are spread in the same way.
    pub common: u64,
    /// Of a step: of all indices along the dimensions that don't grow, and one along those that do.
    pub chunks: u64,
}

impl Spreading {
    /// `identity`: the array's, whatever it is called. Its extents along dimensions that don't grow are those that it has for ever.
    pub fn of(identity: u64, spec: &ArraySpec) -> Spreading {
        let own = key_of_chunk(identity, &[]);
        let common = match spec.dimensions.is_empty() {
            true => own,
            false => key_of_chunk(key_of_name(&spec.dimensions.join("\0")), &spec.chunks),
        };
        let along = spec.shape.iter().zip(&spec.chunks).zip(&spec.unlimited);
        let chunks = along
            .filter(|(_, grows)| !**grows)
            .fold(1u64, |product, ((extent, chunk), _)| product.saturating_mul(extent.div_ceil((*chunk).max(1))));
        Spreading { own, common, chunks }
    }

    /// The agent, of so many, that keeps the chunk at this place in the grid.
    pub fn keeper(self, chunk: &[u64], agents: u32) -> u32 {
        let agents = u64::from(agents.max(1));
        let first = if self.chunks >= CHUNKS_MIN * agents { self.common } else { self.own };
        chunk.iter().fold(first % agents, |sum, index| (sum + index % agents) % agents) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::DataType;
    use proptest::prelude::*;

    fn spec(names: &[&str], shape: &[u64], chunks: &[u64]) -> ArraySpec {
        ArraySpec::new(DataType::Float64, shape).chunks(chunks).dimensions(names)
    }

    #[test]
    fn arrays_of_few_chunks_are_spread_and_so_are_steps_of_few() {
        let few = spec(&["x"], &[200], &[100]);
        let steps = spec(&["t", "x"], &[1000, 200], &[1, 100]).unlimited(0);
        for (like, chunks) in [(few, [vec![0], vec![1]]), (steps, [vec![70, 0], vec![70, 1]])] {
            for chunk in chunks {
                let mut shares = [0; 3];
                (0..3000).for_each(|identity| shares[Spreading::of(identity, &like).keeper(&chunk, 3) as usize] += 1);
                assert!(shares.iter().all(|share| (900..1100).contains(share)), "{chunk:?}: {shares:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn arrays_of_many_chunks_and_equal_dimensions_are_together(
            identities: [u64; 2], chunk in prop::collection::vec(0u64..10, 2), agents in 1u32..9,
        ) {
            let like = spec(&["y", "x"], &[100, 200], &[10, 20]);
            let [one, other] = identities.map(|identity| Spreading::of(identity, &like).keeper(&chunk, agents));
            prop_assert!(one == other && one < agents);
        }

        #[test]
        fn every_row_of_chunks_is_spread_evenly(
            identity: u64, from in prop::collection::vec(0u64..50, 3), along in 0usize..3, count in 1u64..40, agents in 1u32..9, is_named: bool,
        ) {
            let names: &[&str] = if is_named { &["z", "y", "x"] } else { &[] };
            let spreading = Spreading::of(identity, &spec(names, &[90, 180, 270], &[1, 2, 3]));
            let mut shares = vec![0u64; agents as usize];
            for step in 0..count {
                let mut chunk = from.clone();
                chunk[along] += step;
                shares[spreading.keeper(&chunk, agents) as usize] += 1;
            }
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        }
    }
}
