//! What of a grid a query reads: the cells that its conditions select by their coordinates, the conditions that are left, and the tiles that
//! may have rows for which they hold.

use crate::error::Result;
use crate::grid::{Column, Grid, Selection, Tile, finer, select};
use crate::nodes::{Share, own_tiles};
use crate::predicate::Predicate;
use datafusion::logical_expr::Expr;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone)]
pub struct Scope {
    /// The conditions, all of which are to hold.
    pub filters: Vec<Expr>,
    pub selection: Selection,
    /// What the selection does not say.
    pub predicate: Option<Arc<Predicate>>,
    pub tiles: Arc<Vec<Tile>>,
    /// Tiles that can't have rows.
    pruned: usize,
    /// Nodes agree on whose each tile is.
    pub can_be_shared: bool,
}

impl Scope {
    /// As yet without tiles.
    pub fn new(grid: &Grid, filters: Vec<Expr>) -> Result<Scope> {
        let selection = select(grid, &filters)?;
        let predicate = Predicate::new(grid, &selection.rest)?.map(Arc::new);
        Ok(Scope { filters, selection, predicate, tiles: Arc::default(), pruned: 0, can_be_shared: false })
    }

    /// Finds the tiles that are read for these columns and those of the conditions; of several nodes, those that are in this one's share.
    pub fn read(mut self, grid: &Grid, mut columns: Vec<usize>, share: Option<&Share>) -> Result<Scope> {
        columns.extend(self.predicate.iter().flat_map(|predicate| predicate.columns(grid)));
        columns.sort_unstable();
        columns.dedup();
        let read: Vec<&Column> = columns.iter().map(|&column| &grid.columns[column]).collect();
        let (all, can_be_shared) = own_tiles(grid, &read, &self.selection, share)?;
        let all_count = all.len();
        let tiles = match &self.predicate {
            Some(predicate) => predicate.possible(grid, all),
            None => all,
        };
        self.pruned = all_count - tiles.len();
        self.tiles = Arc::new(tiles);
        self.can_be_shared = can_be_shared;
        Ok(self)
    }

    /// In tiles of at most about so many cells.
    pub fn in_finer_tiles(mut self, cells: u64) -> Scope {
        self.tiles = Arc::new(finer(&self.tiles, cells));
        self
    }

    /// For `EXPLAIN`, after what the query makes of it.
    pub fn describe(&self) -> String {
        let mut text = match self.pruned {
            0 => String::new(),
            pruned => format!(", pruned={pruned}"),
        };
        if !self.filters.is_empty() {
            let filters: Vec<String> = self.filters.iter().map(|filter| filter.to_string()).collect();
            text += &format!(", filter={}", filters.join(" AND "));
        }
        text
    }

    /// Of the tiles.
    pub fn cells(&self) -> u64 {
        self.tiles.iter().map(Tile::cells).sum()
    }

    /// The tiles of one of so many partitions.
    pub fn part(&self, partition: usize, partitions: usize) -> Range<usize> {
        let begin = |number: usize| self.tiles.len() * number / partitions;
        begin(partition)..begin(partition + 1)
    }

    /// By what is known of this tile now, no row of it passes.
    pub fn holds_nowhere(&self, grid: &Grid, tile: &Tile) -> bool {
        self.predicate.as_ref().is_some_and(|predicate| predicate.holds_nowhere(grid, tile))
    }

    /// The query has read all of it: what it has seen is kept for the next one.
    pub fn was_read(&self, grid: &Grid) {
        if let Some(predicate) = &self.predicate {
            predicate.learn_ranges(grid);
        }
        grid.gather();
    }
}
