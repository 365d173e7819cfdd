//! Neighbouring groups that are computed at once.

use super::Reduced;
use super::groups::Kept;
use crate::grid::Tile;
use std::ops::Range;

/// Groups that are computed at once at most, where memory has no limit.
const GROUPS_AT_ONCE: u64 = 1 << 27;
/// Values that medians keep at once at most, where memory has no limit, unless one group has more.
const VALUES_AT_ONCE: u64 = 1 << 22;

/// Indices of one dimension, as far as they are selected, and the groups of all cells that have them.
pub struct Slab {
    /// `None`: nothing is grouped by.
    dimension: Option<usize>,
    positions: Range<u64>,
    pub groups: Range<usize>,
}

impl Reduced {
    /// Of the groups that are kept, those of neighbours along it lie farthest apart.
    fn outermost(&self) -> Option<&Kept> {
        self.in_order().pop()
    }

    /// The fewest groups that a slab has.
    pub fn fewest_groups(&self) -> u64 {
        self.outermost().map_or(1, |kept| match kept.is_in_order() {
            true => self.strides()[kept.dimension] as u64,
            false => self.groups(),
        })
    }

    pub fn groups_at_once(&self) -> u64 {
        let most = match self.has_median() {
            true => (VALUES_AT_ONCE / self.rows_max().max(1)).max(1),
            false => GROUPS_AT_ONCE,
        };
        self.groups().min(most)
    }

    /// All groups, so many at once; the fewest that go at least.
    pub fn slabs(&self, groups: u64) -> Vec<Slab> {
        let Some(kept) = self.outermost() else {
            return vec![Slab { dimension: None, positions: 0..0, groups: 0..self.groups() as usize }];
        };
        let d = kept.dimension;
        let (stride, extent) = (self.strides()[d] as u64, kept.count(&self.scope.selection));
        if stride == 0 {
            return vec![];
        }
        let step = (groups.max(self.fewest_groups()) / stride).max(1);
        let slab = |start: u64| {
            let end = (start + step).min(extent);
            let groups = (start * stride) as usize..(end * stride) as usize;
            Slab { dimension: Some(d), positions: kept.positions(start..end), groups }
        };
        (0..extent).step_by(step as usize).map(slab).collect()
    }
}

impl Slab {
    /// What of a tile is in these groups.
    pub fn part_of(&self, tile: &Tile) -> Option<Tile> {
        let mut part = tile.clone();
        let Some(d) = self.dimension else { return Some(part) };
        let bounds = &mut part.bounds[d];
        let first = tile.position[d];
        let start = first.max(self.positions.start);
        let end = (first + bounds.end - bounds.start).min(self.positions.end);
        if start >= end {
            return None;
        }
        *bounds = bounds.start + start - first..bounds.start + end - first;
        part.position[d] = start;
        Some(part)
    }
}
