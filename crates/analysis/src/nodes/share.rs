//! Which cells of a grid one of several nodes takes.

use crate::error::{Error, Result};
use crate::grid::{Column, Grid, Selection, Tile, can_be_shared, tiles};
use serde::{Deserialize, Serialize};
use terrace_client::Kind;

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

/// A selection's tiles, of a share those that are in it; and whether nodes agree on whose each is.
pub fn own_tiles(
    grid: &Grid,
    columns: &[&Column],
    selection: &Selection,
    share: Option<&Share>,
) -> Result<(Vec<Tile>, bool)> {
    let can_be_shared = grid.is_shared() && can_be_shared(columns, selection);
    let mut tiles = tiles(columns, selection);
    if let Some(share) = share {
        if !can_be_shared {
            return Err(Error::new(Kind::Protocol, "this node cuts the cells in another way than who asks"));
        }
        tiles.retain(|tile| share.has(columns, tile));
    }
    Ok((tiles, can_be_shared))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Axis;
    use crate::grid::{Dimension, Source};
    use proptest::prelude::*;
    use std::sync::Arc;
    use terrace_client::{DataType, Region};

    /// An array in blocks, which several agents keep; one node has some layers over it.
    struct Shared {
        shape: Vec<u64>,
        blocks: Vec<u64>,
        layers: Vec<Region>,
        agents: u32,
        seed: u64,
    }

    impl Source for Shared {
        fn data_type(&self) -> DataType {
            DataType::Int32
        }
        fn shape(&self) -> &[u64] {
            &self.shape
        }
        fn layer_count(&self) -> usize {
            self.layers.len()
        }
        fn region(&self, layer: usize) -> &Region {
            &self.layers[layer]
        }
        fn cells(&self, _: usize) -> Result<*const u8> {
            Err(Error::invalid("nobody reads it"))
        }
        fn read_base(&self, _: &Region, _: &mut [u8]) -> Result<()> {
            Err(Error::invalid("nobody reads it"))
        }
        fn base_blocks(&self) -> Option<&[u64]> {
            Some(&self.blocks)
        }
        fn fill(&self) -> &[u8] {
            &[0; 4]
        }
        fn keeper(&self, cell: &[u64]) -> Option<u32> {
            let block = cell.iter().zip(&self.blocks).map(|(index, extent)| index / extent);
            let mixed =
                block.fold(self.seed, |sum, block| (sum ^ block).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
            Some((mixed % u64::from(self.agents)) as u32)
        }
    }

    fn column(shape: [u64; 2], blocks: [u64; 2], layers: &[(u64, u64, u64, u64)], agents: u32, seed: u64) -> Column {
        let layers = layers.iter().filter_map(|&(y, x, height, width)| {
            let (y, x) = (y % shape[0], x % shape[1]);
            Region::block(&[y, x], &[height.min(shape[0] - y), width.min(shape[1] - x)]).ok()
        });
        let source = Shared { shape: shape.into(), blocks: blocks.into(), layers: layers.collect(), agents, seed };
        Column::new(format!("c{seed}"), Arc::new(source), vec![(0, 0), (1, 0)])
    }

    fn selection(shape: [u64; 2], columns: &[Column]) -> Selection {
        let named = |name: &str, extent| Dimension { name: name.into(), extent, axis: Axis::INDEX };
        let grid = Grid::new("g", vec![named("y", shape[0]), named("x", shape[1])], columns.to_vec(), false).unwrap();
        Selection::all(&grid)
    }

    proptest! {
        #[test]
        fn every_cell_is_in_one_share_whatever_layers_each_node_has(
            shape in [1u64..90, 1u64..90],
            blocks in [1u64..40, 1u64..40],
            other_blocks in [1u64..40, 1u64..40],
            layers in prop::collection::vec(prop::collection::vec((0u64..90, 0u64..90, 1u64..90, 1u64..90), 0..6), 3),
            hole in 0u64..90,
        ) {
            let mut times = vec![0; (shape[0] * shape[1]) as usize];
            for (own, layers) in layers.iter().enumerate() {
                // Agent 3 has no node beside it.
                let share = Share { agents: vec![0, 1, 2], own };
                let columns = [column(shape, blocks, layers, 4, 1), column(shape, other_blocks, &[], 4, 2)];
                let mut selection = selection(shape, &columns);
                if hole < shape[0] {
                    selection.ranges[0] = [0..hole, hole + 1..shape[0]].into_iter().filter(|range| !range.is_empty()).collect();
                }
                let columns: Vec<&Column> = columns.iter().collect();
                prop_assert!(can_be_shared(&columns, &selection));
                for tile in tiles(&columns, &selection).iter().filter(|tile| share.has(&columns, tile)) {
                    for y in tile.bounds[0].clone() {
                        for x in tile.bounds[1].clone() {
                            times[(y * shape[1] + x) as usize] += 1;
                        }
                    }
                }
            }
            for (cell, times) in times.iter().enumerate() {
                prop_assert_eq!(*times, i32::from(cell as u64 / shape[1] != hole), "cell {}", cell);
            }
        }
    }

    #[test]
    fn more_blocks_than_tiles_are_cut_into_are_not_shared() {
        let shape = [700_000, 1];
        for layers in [&[][..], &[(0, 0, 700_000, 1)]] {
            let columns = [column(shape, [10, 1], layers, 2, 1)];
            let selection = selection(shape, &columns);
            assert!(!can_be_shared(&[&columns[0]], &selection));
        }
    }
}
