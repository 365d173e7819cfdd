//! Which cells of a grid one of several nodes takes.

use crate::grid::{Column, Tile};
use serde::{Deserialize, Serialize};

/// The part of one node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    /// The agent of each node.
    pub agents: Vec<u32>,
    /// Which of them takes it.
    pub own: usize,
}

impl Share {
    /// Tiles lie in one chunk of every shared array: `tiles` cuts them so.
    pub fn has(&self, columns: &[&Column], tile: &Tile) -> bool {
        let node = match keeper(columns, tile) {
            Some(agent) => match self.agents.iter().position(|known| *known == agent) {
                Some(node) => node,
                // It has no node beside it: another one reads what it keeps.
                None => agent as usize % self.agents.len(),
            },
            None => {
                let first = tile.bounds.iter().fold(0u64, |sum, range| sum.wrapping_mul(31).wrapping_add(range.start));
                first as usize % self.agents.len()
            }
        };
        node == self.own
    }
}

/// The agent with most bytes for each cell; of columns along fewer dimensions there are few bytes. It must not follow from a tile's size,
/// since others cut the same cells into other tiles.
fn keeper(columns: &[&Column], tile: &Tile) -> Option<u32> {
    let rank = columns.iter().map(|column| column.along.len()).max()?;
    let mut votes: Vec<(u32, usize)> = vec![];
    for column in columns.iter().filter(|column| column.along.len() == rank) {
        let cell: Vec<u64> = (column.along.iter())
            .map(|&(dimension, shift)| (tile.bounds[dimension].start as i64 + shift) as u64)
            .collect();
        let Some(agent) = column.source.keeper(&cell) else { continue };
        let bytes = column.data_type().size();
        match votes.iter_mut().find(|(known, _)| *known == agent) {
            Some((_, sum)) => *sum += bytes,
            None => votes.push((agent, bytes)),
        }
    }
    let most = votes.iter().map(|(_, bytes)| *bytes).max()?;
    votes.into_iter().find(|(_, bytes)| *bytes == most).map(|(agent, _)| agent)
}
