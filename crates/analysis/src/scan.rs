//! A grid as a table: rows of the selected cells, tile by tile.
//!
//! Predicates are evaluated on the columns that they need; coordinates and other columns are made for the rows that pass. So are those of a
//! sort with a limit, which says while it runs what comes too late to be among its rows.

use crate::control::reading;
use crate::error::Result;
use crate::exec::{ArrayExec, Seen, Work};
use crate::grid::{Grid, Tile, TileReader, ZONE_CELLS, is_of_rows};
use crate::late::{First, LateFilters, Wanted};
use crate::nodes::{GridRecipe, Recipe, Share, told};
use crate::predicate::{Mask, places};
use crate::scope::Scope;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::PhysicalSortExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub struct GridTable(pub Arc<Grid>);

#[async_trait]
impl TableProvider for GridTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema()
    }
    fn table_type(&self) -> TableType {
        TableType::Base
    }
    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        let pushed = |filter: &&Expr| match is_of_rows(filter) {
            true => TableProviderFilterPushDown::Exact,
            false => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(pushed).collect())
    }
    fn statistics(&self) -> Option<Statistics> {
        let mut statistics = Statistics::new_unknown(&self.0.schema());
        if !self.0.is_sparse && self.0.presence.is_empty() {
            statistics.num_rows = Precision::Exact(self.0.cells() as usize);
        }
        Some(statistics)
    }
    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let fields = projection.cloned().unwrap_or_else(|| (0..self.0.fields.len()).collect());
        let config = session.config();
        // In several parts, so that nodes can have theirs.
        let partitions = (config.target_partitions() / self.0.siblings).max(if self.0.is_shared() { 2 } else { 1 });
        let scan = Scan::plan(self.0.clone(), fields, filters, limit, partitions, config.batch_size(), None)?;
        Ok(Arc::new(ArrayExec::new(Arc::new(scan))))
    }
}

#[derive(Clone)]
pub struct Scan {
    grid: Arc<Grid>,
    fields: Vec<usize>,
    schema: SchemaRef,
    scope: Arc<Scope>,
    partitions: usize,
    batch_size: usize,
    /// Rows that are enough.
    limit: Option<usize>,
    /// What is said of rows while the plan runs.
    dynamic: Arc<[Arc<dyn PhysicalExpr>]>,
    /// How its rows are sorted by whoever takes them.
    first: Option<First>,
}

impl Scan {
    /// `share`: of several nodes, which all have so many partitions.
    pub fn plan(
        grid: Arc<Grid>,
        fields: Vec<usize>,
        filters: &[Expr],
        limit: Option<usize>,
        partitions: usize,
        batch_size: usize,
        share: Option<&Share>,
    ) -> Result<Scan> {
        let schema = Arc::new(grid.schema().project(&fields)?);
        let columns = fields.iter().filter_map(|&field| grid.fields[field].column()).collect();
        let scope = Arc::new(Scope::new(&grid, filters.to_vec())?.read(&grid, columns, share)?);
        let partitions = match share {
            Some(_) => partitions,
            // One of one tile, too, may be beside others that nodes share.
            None => partitions.min(scope.tiles.len()).max(if grid.is_shared() { 2 } else { 1 }),
        };
        Ok(Scan { grid, fields, schema, scope, partitions, batch_size, limit, dynamic: Arc::default(), first: None })
    }

    /// The tiles of a partition.
    fn part(&self, partition: usize) -> Range<usize> {
        self.scope.part(partition, self.partitions)
    }
}

/// Cells of the tiles that are read until so many rows are there.
fn cells_until(tiles: impl Iterator<Item = u64>, limit: u64) -> u64 {
    let mut sum = 0;
    for cells in tiles {
        if sum >= limit {
            break;
        }
        sum += cells;
    }
    sum
}

impl Work for Scan {
    fn name(&self) -> &'static str {
        "GridScan"
    }
    fn describe(&self) -> String {
        let cells: Vec<u64> = (0..self.grid.rank()).map(|d| self.scope.selection.count(d)).collect();
        let tiles = self.scope.tiles.len();
        format!("{}, cells={cells:?}, tiles={tiles}{}", self.grid.name, self.scope.describe())
    }
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn partitions(&self) -> usize {
        self.partitions
    }
    fn rows(&self) -> usize {
        let cells = (0..self.grid.rank()).map(|d| self.scope.selection.count(d)).product::<u64>();
        self.limit.map_or(cells as usize, |limit| limit.min(cells as usize))
    }
    fn cells(&self, partition: usize) -> u64 {
        let tiles = self.scope.tiles[self.part(partition)].iter().map(Tile::cells);
        match (self.limit, &self.scope.predicate) {
            (None, _) => tiles.sum(),
            // It reads until it has the rows: each cell is one.
            (Some(limit), None) => cells_until(tiles, limit as u64),
            // Who knows how many cells pass? No share is told of them.
            (Some(_), Some(_)) => 0,
        }
    }
    fn narrowed(&self, filters: &[Arc<dyn PhysicalExpr>]) -> Option<Arc<dyn Work>> {
        // Its limit is of rows that pass its own filters alone.
        self.limit.is_none().then(|| Arc::new(Scan { dynamic: filters.into(), ..self.clone() }) as Arc<dyn Work>)
    }
    fn sorted(&self, order: &[PhysicalSortExpr]) -> Option<Arc<dyn Work>> {
        let by = order.first().filter(|_| self.limit.is_none())?;
        let column = by.expr.downcast_ref::<Column>()?;
        let column = self.grid.fields[self.fields[column.index()]].column()?;
        let first = Some(First { column, is_descending: by.options.descending });
        // Of as many cells as ranges are known of: whose has none of the first rows is left out.
        let scope = Arc::new(Scope::clone(&self.scope).in_finer_tiles(ZONE_CELLS));
        Some(Arc::new(Scan { first, scope, ..self.clone() }))
    }
    fn recipe(&self) -> Result<Option<Recipe>> {
        let Some(grid) = GridRecipe::of(&self.grid)? else { return Ok(None) };
        let (fields, filters, limit) = (self.fields.clone(), told(&self.scope.filters)?, self.limit);
        Ok(Some(Recipe::Scan { grid, fields, filters, limit, partitions: self.partitions, share: None }))
    }
    fn can_be_shared(&self) -> bool {
        // Of one partition nothing brings the shares together.
        self.scope.can_be_shared && self.partitions > 1
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn stream(&self, partition: usize, _: Arc<TaskContext>, seen: Seen) -> DataFusionResult<SendableRecordBatchStream> {
        let part = self.part(partition);
        let control = seen.control.clone();
        let filters =
            LateFilters { filters: self.dynamic.clone(), fields: self.fields.clone(), schema: self.schema.clone() };
        // Of all rows, none is there sooner.
        let order = match self.first.filter(|_| !self.dynamic.is_empty()) {
            Some(first) => first.order(&self.grid, &self.scope.tiles, part.clone()),
            None => part.clone().collect(),
        };
        let rows = Rows {
            grid: self.grid.clone(),
            fields: self.fields.clone(),
            schema: self.schema.clone(),
            wanted: Wanted::new(filters.clone(), self.grid.clone(), self.scope.tiles.clone(), part),
            scope: self.scope.clone(),
            order: order.into_iter(),
            batch_size: self.batch_size as u64,
            limit: self.limit.unwrap_or(usize::MAX),
            seen,
            mask: vec![],
            ready: VecDeque::new(),
        };
        // On a thread of its own: reading a tile may wait for the root's storage, and takes a processor where it does not.
        let ahead = match self.first.filter(|_| !self.dynamic.is_empty()) {
            // What is read next depends on what whoever sorts has seen.
            Some(_) => 1,
            None => (BATCHES_AHEAD / self.partitions).clamp(AHEAD_EACH.start, AHEAD_EACH.end),
        };
        let mut stream = RecordBatchReceiverStream::builder(self.schema.clone(), ahead);
        let sender = stream.tx();
        let (grid, scope) = (self.grid.clone(), self.scope.clone());
        stream.spawn_blocking(move || {
            reading(&control, || {
                for batch in rows {
                    // Nobody asks for more.
                    if sender.blocking_send(batch.map_err(Into::into)).is_err() {
                        return;
                    }
                }
                filters.learn_ranges(&grid);
                scope.was_read(&grid);
            });
            Ok(())
        });
        Ok(stream.build())
    }
}

/// Batches that are made before they are asked for, of all partitions. Of fewer than two tiles, who makes and who takes them would wait for
/// each other by turns.
const BATCHES_AHEAD: usize = 32;
const AHEAD_EACH: Range<usize> = 4..16;

struct Rows {
    grid: Arc<Grid>,
    fields: Vec<usize>,
    schema: SchemaRef,
    scope: Arc<Scope>,
    wanted: Wanted,
    /// Numbers of those that are left.
    order: std::vec::IntoIter<usize>,
    batch_size: u64,
    limit: usize,
    seen: Seen,
    mask: Mask,
    ready: VecDeque<RecordBatch>,
}

impl Iterator for Rows {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                self.limit = self.limit.saturating_sub(batch.num_rows());
                return Some(Ok(batch));
            }
            let number = self.order.next().filter(|_| self.limit > 0)?;
            if let Err(error) = self.read(number) {
                self.order = vec![].into_iter();
                return Some(Err(error));
            }
        }
    }
}

impl Rows {
    fn read(&mut self, number: usize) -> Result<()> {
        let seen = self.seen.clone();
        let tiles = self.scope.tiles.clone();
        let grid = self.grid.clone();
        if !self.wanted.has(number)? || self.scope.holds_nowhere(&grid, &tiles[number]) {
            return seen.left_out(tiles[number].cells());
        }
        let mut reader = TileReader::new(&grid, &tiles[number]);
        let cells = reader.cells();
        let _timed = seen.tile(cells)?;
        if self.scope.predicate.is_none() && !self.wanted.filters().mask(&mut reader, &mut self.mask)? {
            let mut first = 0;
            while first < cells && (first as usize) < self.limit {
                let count = self.batch_size.min(cells - first);
                self.ready.push_back(reader.batch(&self.schema, &self.fields, first, count)?);
                first += count;
            }
            return Ok(());
        }
        if let Some(predicate) = self.scope.predicate.clone() {
            predicate.mask(&grid, &mut reader, &mut self.mask)?;
        }
        let mut places = places(&self.mask);
        places.truncate(self.limit);
        for places in places.chunks(self.batch_size as usize) {
            let arrays = self.fields.iter().map(|&field| reader.take(field, places)).collect::<Result<Vec<_>>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
            self.ready.push_back(RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?);
        }
        Ok(())
    }
}
