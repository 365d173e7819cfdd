//! Cuts a selection into tiles: boxes small enough to be shared out among threads, each of which lies in one layer of every
//! column as far as possible, so that it is read where it lies; and in one block of what lies below, as far as that goes, so that
//! one agent has it.

use super::selection::Selection;
use super::{Column, RANK_MAX};
use std::collections::BTreeSet;
use std::ops::Range;

/// A box of the grid, and where it begins among the selected indices of each dimension.
#[derive(Clone, Debug)]
pub struct Tile {
    pub bounds: Vec<Range<u64>>,
    pub position: [u64; RANK_MAX],
}

impl Tile {
    pub fn extents(&self) -> Vec<u64> {
        self.bounds.iter().map(|range| range.end - range.start).collect()
    }
    pub fn cells(&self) -> u64 {
        self.bounds.iter().map(|range| range.end - range.start).product()
    }
}

/// Cells of a tile at most, unless one row of the innermost dimension has more.
pub const TILE_CELLS: u64 = 1 << 17;
/// Where layers cut the grid into more pieces than this, tiles are put together from several layers.
const PIECES_MAX: usize = 1 << 16;

pub fn tiles(columns: &[&Column], selection: &Selection) -> Vec<Tile> {
    if selection.is_empty() {
        return vec![];
    }
    let rank = selection.ranges.len();
    let are_few = |pieces: &Vec<Vec<Piece>>| pieces.iter().map(Vec::len).product::<usize>() <= PIECES_MAX;
    let mut pieces = pieces(selection, &cuts(columns, selection, true));
    if !are_few(&pieces) {
        pieces = blocks(columns, selection).unwrap_or_else(|| pieces_of(selection));
    }
    let mut found = vec![];
    let mut index = vec![0usize; rank];
    'all: loop {
        let mut tile = Tile { bounds: Vec::with_capacity(rank), position: [0; RANK_MAX] };
        for d in 0..rank {
            let (range, position) = &pieces[d][index[d]];
            tile.bounds.push(range.clone());
            tile.position[d] = *position;
        }
        split(tile, TILE_CELLS, &mut found);
        for d in (0..rank).rev() {
            index[d] += 1;
            if index[d] < pieces[d].len() {
                continue 'all;
            }
            index[d] = 0;
        }
        return found;
    }
}

/// Pieces that lie in one block of each column; `None`: there are too many. They are the same whatever layers this node has.
fn blocks(columns: &[&Column], selection: &Selection) -> Option<Vec<Vec<Piece>>> {
    let count_along = |d: usize, blocks: u64| {
        let bounds = selection.bounds(d);
        (bounds.end - bounds.start) / blocks
    };
    let are_few = |column: &&Column| {
        let blocks = column.source.base_blocks().unwrap_or_default();
        column.along.iter().zip(blocks).all(|(&(d, _), &blocks)| count_along(d, blocks) <= PIECES_MAX as u64)
    };
    if !columns.iter().all(are_few) {
        return None;
    }
    let pieces = pieces(selection, &cuts(columns, selection, false));
    (pieces.iter().map(Vec::len).product::<usize>() <= PIECES_MAX).then_some(pieces)
}

/// Every tile lies in one block of each column, so that several nodes agree on whose it is.
pub fn can_be_shared(columns: &[&Column], selection: &Selection) -> bool {
    blocks(columns, selection).is_some()
}

/// Where the blocks of what lies below the columns' layers begin and end; those of the layers, too, if that is wanted.
fn cuts(columns: &[&Column], selection: &Selection, of_layers: bool) -> Vec<BTreeSet<u64>> {
    let mut cuts = vec![BTreeSet::new(); selection.ranges.len()];
    for column in columns {
        let bounds: Vec<Range<u64>> = column
            .along
            .iter()
            .map(|&(d, shift)| {
                let whole = selection.bounds(d);
                (whole.start as i64 + shift) as u64..(whole.end as i64 + shift) as u64
            })
            .collect();
        let mut cut = |number: usize, at: u64| {
            let (dimension, shift) = column.along[number];
            if at > bounds[number].start && at < bounds[number].end {
                cuts[dimension].insert((at as i64 - shift) as u64);
            }
        };
        let mut is_covered = false;
        for number in (0..column.source.layer_count()).rev().filter(|_| of_layers) {
            let region = *column.source.region(number);
            let end = region.end();
            let meets = (0..bounds.len()).all(|d| region.offset()[d] < bounds[d].end && end[d] > bounds[d].start);
            if !meets || !region.is_block() {
                continue;
            }
            for (d, (&first, &end)) in region.offset().iter().zip(&end).enumerate() {
                cut(d, first);
                cut(d, end);
            }
            is_covered = (0..bounds.len()).all(|d| region.offset()[d] <= bounds[d].start && end[d] >= bounds[d].end);
            if is_covered {
                break;
            }
        }
        // Blocks of a shared array are of one agent each, whatever covers them here.
        let first: Vec<u64> = bounds.iter().map(|range| range.start).collect();
        let is_shared = || column.source.keeper(&first).is_some();
        if let Some(blocks) = column.source.base_blocks().filter(|_| !is_covered || is_shared()) {
            for d in 0..bounds.len() {
                let count = (bounds[d].end - bounds[d].start) / blocks[d];
                if count as usize <= PIECES_MAX {
                    let first = bounds[d].start.next_multiple_of(blocks[d]);
                    (first..bounds[d].end).step_by(blocks[d] as usize).for_each(|at| cut(d, at));
                }
            }
        }
    }
    cuts
}

type Piece = (Range<u64>, u64);

fn pieces_of(selection: &Selection) -> Vec<Vec<Piece>> {
    pieces(selection, &vec![BTreeSet::new(); selection.ranges.len()])
}

fn pieces(selection: &Selection, cuts: &[BTreeSet<u64>]) -> Vec<Vec<Piece>> {
    let of_dimension = |(ranges, cuts): (&Vec<Range<u64>>, &BTreeSet<u64>)| {
        let mut position = 0;
        let mut pieces: Vec<Piece> = vec![];
        for range in ranges {
            let mut start = range.start;
            for &cut in cuts.range(range.start + 1..range.end.max(range.start + 1)) {
                pieces.push((start..cut, position + start - range.start));
                start = cut;
            }
            pieces.push((start..range.end, position + start - range.start));
            position += range.end - range.start;
        }
        pieces
    };
    selection.ranges.iter().zip(cuts).map(of_dimension).collect()
}

/// The same cells in tiles of so many at most, unless one row has more.
pub fn finer(tiles: &[Tile], cells_max: u64) -> Vec<Tile> {
    let mut found = vec![];
    tiles.iter().for_each(|tile| split(tile.clone(), cells_max, &mut found));
    found
}

/// Along the outermost dimensions, as evenly as it goes.
fn split(tile: Tile, cells_max: u64, found: &mut Vec<Tile>) {
    let cells = tile.cells();
    if cells <= cells_max {
        return found.push(tile);
    }
    let Some(d) = (0..tile.bounds.len()).find(|&d| tile.bounds[d].end - tile.bounds[d].start > 1) else {
        return found.push(tile);
    };
    let extent = tile.bounds[d].end - tile.bounds[d].start;
    let row = cells / extent;
    let step = (cells_max / row).max(1);
    let mut start = tile.bounds[d].start;
    while start < tile.bounds[d].end {
        let mut part = tile.clone();
        part.bounds[d] = start..(start + step).min(tile.bounds[d].end);
        part.position[d] += start - tile.bounds[d].start;
        start = part.bounds[d].end;
        split(part, cells_max, found);
    }
}
