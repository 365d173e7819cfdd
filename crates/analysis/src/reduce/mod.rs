//! Aggregates along dimensions: sums, means, counts and extremes of columns for each combination of some dimensions'
//! coordinates, or of what is computed of them, without making a row.
//!
//! ```text
//!   selection ─▶ tiles ─▶ threads: each tile's lines of cells go into one group, or one cell into each of neighbouring groups
//!             ─▶ merge ─▶ batches of groups, with their coordinates
//! ```
//!
//! Where the groups, or the values that a median keeps, don't fit into the query's memory, neighbouring groups are computed after one
//! another: slabs of the outermost dimension that is kept. Each reads its own part of the tiles.

mod accumulator;
mod classes;
mod computed;
mod groups;
mod kernels;
mod partial;
mod slabs;

use crate::control::reading;
use crate::error::{Error, Result};
use crate::exec::{ArrayExec, STACK_BYTES, Seen, Work};
use crate::grid::with_cell_type;
use crate::grid::{Grid, RANK_MAX, Tile, TileReader};
use crate::nodes::Share;
use crate::predicate::{General, Mask, places};
use crate::scope::Scope;
use accumulator::{Accumulator, Extreme, Groups, MappedLine};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType as ArrowType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
pub use classes::{Classes, ClassesTable};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, TryStreamExt};
use groups::Kept;
pub use groups::Key;
pub use partial::{Merge, Partial};
use serde::{Deserialize, Serialize};
use slabs::Slab;
use std::any::Any;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_client::DataType;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Function {
    Sum,
    Average,
    Least,
    Greatest,
    Count,
    Median,
}

/// What goes into an aggregate.
pub enum Input {
    /// Rows are counted.
    Rows,
    /// A column of the grid.
    Column(usize),
    /// Of columns and coordinates; 64-bit floats or integers, never null.
    Expression(General),
}

impl Input {
    /// Of the grid, that it is computed of.
    fn columns(&self, grid: &Grid) -> Vec<usize> {
        match self {
            Input::Rows => vec![],
            Input::Column(column) => vec![*column],
            Input::Expression(general) => general.columns(grid),
        }
    }
}

pub struct Reduction {
    pub function: Function,
    pub input: Input,
    /// Of the input.
    pub cells: DataType,
    /// Of the result.
    pub output: ArrowType,
    pub text: String,
}

/// A table of groups: the coordinates of the dimensions that are kept, then the aggregates.
pub struct Reduced {
    pub grid: Arc<Grid>,
    pub keys_asked: Vec<Key>,
    kept: Vec<Kept>,
    /// Columns that tell of what is kept.
    keys: usize,
    pub reductions: Vec<Reduction>,
    pub scope: Scope,
    schema: SchemaRef,
}

/// Where rows are fewer than one of so many cells, expressions are computed for them alone.
const FEW: u64 = 8;
/// With more groups than this one thread does it all, so that there is one set of sums.
const GROUPS_SHARED_MAX: u64 = 1 << 22;

impl std::fmt::Debug for Reduced {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.describe())
    }
}

impl Reduced {
    /// Names of the result's columns are made up; whoever plans it knows their order. `None`: it can't be told which cells are of one
    /// group.
    pub fn plan(
        grid: Arc<Grid>,
        keys_asked: Vec<Key>,
        reductions: Vec<Reduction>,
        filters: Vec<Expr>,
        share: Option<&Share>,
    ) -> Result<Option<Reduced>> {
        let mut scope = Scope::new(&grid, filters)?;
        let kept: Option<Vec<Kept>> = keys_asked.iter().map(|key| Kept::new(&grid, &scope.selection, key)).collect();
        let Some(kept) = kept else { return Ok(None) };
        if scope.predicate.is_some() || reductions.iter().any(|r| r.function != Function::Count) {
            let columns = reductions.iter().flat_map(|reduction| reduction.input.columns(&grid)).collect();
            scope = scope.read(&grid, columns, share)?;
        }
        let mut fields: Vec<Field> = vec![];
        for (number, kept) in kept.iter().enumerate() {
            for (part, (data_type, may_be_null)) in kept.data_types(&grid).into_iter().enumerate() {
                fields.push(Field::new(Reduced::name(number, part), data_type, may_be_null));
            }
        }
        let keys = fields.len();
        fields.extend(reductions.iter().enumerate().map(|(number, reduction)| {
            Field::new(format!("a{number}"), reduction.output.clone(), reduction.function != Function::Count)
        }));
        let schema = Arc::new(Schema::new(fields));
        let reduced = Reduced { grid, keys_asked, kept, keys, reductions, scope, schema };
        // Each group has room for the values of the largest.
        let room = reduced.groups().saturating_mul(reduced.rows_max());
        let is_uneven = reduced.has_map() && reduced.has_median() && room / 2 > reduced.scope.selection.cells();
        Ok((!is_uneven).then_some(reduced))
    }

    /// What the column of a key's part is called.
    pub fn name(key: usize, part: usize) -> String {
        format!("d{key}_{part}")
    }

    fn has_map(&self) -> bool {
        self.kept.iter().any(|kept| kept.map.is_some())
    }

    /// What is kept, from what has its groups next to each other to what has them farthest apart: that is one whose groups follow one
    /// another, where there is one, so that some can be computed after others.
    fn in_order(&self) -> Vec<&Kept> {
        let mut order: Vec<&Kept> = self.kept.iter().collect();
        order.sort_by_key(|kept| std::cmp::Reverse(kept.dimension));
        if let Some(place) = order.iter().rposition(|kept| kept.is_in_order()) {
            let kept = order.remove(place);
            order.push(kept);
        }
        order
    }

    /// Groups, empty or not.
    fn groups(&self) -> u64 {
        self.kept.iter().map(|kept| kept.count(&self.scope.selection)).product()
    }

    /// Of one group at most.
    fn rows_max(&self) -> u64 {
        self.cells_of_index() * self.kept.iter().map(Kept::most).product::<u64>()
    }

    /// Of one index of each dimension that is kept.
    fn cells_of_index(&self) -> u64 {
        let is_kept = |d: usize| self.kept.iter().any(|kept| kept.dimension == d);
        (0..self.grid.rank()).filter(|&d| !is_kept(d)).map(|d| self.scope.selection.count(d)).product()
    }

    /// Rows of each of these groups.
    fn counts(&self, outcome: &Outcome, groups: Range<usize>) -> Vec<u64> {
        if self.scope.predicate.is_some() {
            return outcome.counts[groups.start - outcome.first..groups.end - outcome.first].to_vec();
        }
        let mut counts = vec![self.cells_of_index(); groups.len()];
        let strides = self.strides();
        for Kept { dimension, map } in &self.kept {
            let Some(map) = map else { continue };
            for (count, group) in counts.iter_mut().zip(groups.clone()) {
                *count *= map.sizes[group / strides[*dimension] % map.sizes.len()];
            }
        }
        counts
    }

    fn has_median(&self) -> bool {
        self.reductions.iter().any(|reduction| reduction.function == Function::Median)
    }

    /// So that there is one set of sums, or of values.
    fn is_for_one_thread(&self, groups: u64) -> bool {
        groups > GROUPS_SHARED_MAX || self.has_median()
    }

    /// That one group takes, in one thread.
    fn bytes_of_group(&self) -> u64 {
        let bytes = |reduction: &Reduction| match reduction.function {
            Function::Median => 8 * (self.rows_max() + 1),
            Function::Sum => 16,
            _ => 8,
        };
        8 + self.reductions.iter().map(bytes).sum::<u64>()
    }

    fn describe(&self) -> String {
        let names: Vec<&str> = self.kept.iter().map(|kept| kept.text(&self.grid)).collect();
        let wanted: Vec<&str> = self.reductions.iter().map(|reduction| reduction.text.as_str()).collect();
        let scope = self.scope.describe();
        format!("{}, by=[{}], [{}]{scope}", self.grid.name, names.join(", "), wanted.join(", "))
    }

    /// Distance of neighbouring groups along each dimension of the grid; 0 along those that are not kept.
    fn strides(&self) -> [usize; RANK_MAX] {
        let mut strides = [0; RANK_MAX];
        let mut stride = 1;
        for kept in self.in_order() {
            strides[kept.dimension] = stride;
            stride *= kept.count(&self.scope.selection) as usize;
        }
        strides
    }

    /// How groups follow one another along each dimension of a tile, and the one that its first cell is in.
    fn apart<'a>(&'a self, tile: &Tile, strides: &[usize; RANK_MAX]) -> ([Apart<'a>; RANK_MAX], usize) {
        let mut apart = [Apart::Evenly(0); RANK_MAX];
        let mut first_group = 0;
        for Kept { dimension, map } in &self.kept {
            let (first, stride) = (tile.position[*dimension] as usize, strides[*dimension]);
            let count = (tile.bounds[*dimension].end - tile.bounds[*dimension].start) as usize;
            let numbers = map.as_ref().map(|map| &map.group_of[first..first + count]);
            first_group += numbers.map_or(first, |numbers| numbers[0] as usize) * stride;
            apart[*dimension] = match numbers {
                None => Apart::Evenly(stride),
                Some(numbers) if numbers.iter().all(|number| *number == numbers[0]) => Apart::Evenly(0),
                Some(numbers) => Apart::Mapped { numbers, stride },
            };
        }
        (apart, first_group)
    }

    fn compute(&self, slab: &Slab, threads: usize, seen: &Seen) -> Result<Outcome> {
        let groups = slab.groups.len();
        let strides = self.strides();
        let threads = if self.is_for_one_thread(groups as u64) { 1 } else { threads };
        let threads = threads.min(self.scope.tiles.len()).max(1);
        let next = AtomicUsize::new(0);
        let share = || -> Result<Outcome> {
            let mut outcome = Outcome {
                first: slab.groups.start,
                accumulators: self.reductions.iter().map(|r| Accumulator::new(r, groups, self.rows_max())).collect(),
                counts: if self.scope.predicate.is_some() { vec![0; groups] } else { vec![] },
            };
            let mut mask = vec![];
            while let Some(tile) = self.scope.tiles.get(next.fetch_add(1, Relaxed)) {
                let Some(tile) = slab.part_of(tile) else { continue };
                if self.scope.holds_nowhere(&self.grid, &tile) {
                    seen.left_out(tile.cells())?;
                    continue;
                }
                let _timed = seen.tile(tile.cells())?;
                self.take(&tile, &strides, &mut mask, &mut outcome)?;
            }
            Ok(outcome)
        };
        let work = || reading(&seen.control, share);
        let mut outcomes = std::thread::scope(|scope| {
            // As many as there may be.
            let spawn = |_| std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work).ok();
            let others: Vec<_> = (1..threads).filter_map(spawn).collect();
            let own = work();
            let others = others.into_iter().map(|other| {
                other
                    .join()
                    .unwrap_or_else(|_| Err(Error::new(terrace_client::Kind::System, "a thread of a query died")))
            });
            std::iter::once(own).chain(others.collect::<Vec<_>>()).collect::<Result<Vec<_>>>()
        })?
        .into_iter();
        self.scope.was_read(&self.grid);
        let mut all = outcomes.next().expect("there is at least one thread");
        for other in outcomes {
            all.accumulators.iter_mut().zip(other.accumulators).for_each(|(own, other)| own.merge(other));
            all.counts.iter_mut().zip(other.counts).for_each(|(own, other)| *own += other);
        }
        Ok(all)
    }

    fn take(&self, tile: &Tile, strides: &[usize; RANK_MAX], mask: &mut Mask, outcome: &mut Outcome) -> Result<()> {
        let mut reader = TileReader::new(&self.grid, tile);
        let extents = reader.extents.clone();
        let (apart, first_group) = self.apart(tile, strides);
        let first_group = first_group - outcome.first;
        let packed = packed_strides(&extents);
        if let Some(predicate) = &self.scope.predicate {
            predicate.mask(&self.grid, &mut reader, mask)?;
            let lines = Lines::new(&extents, &packed, &apart);
            let counts = &mut outcome.counts;
            lines.for_each(first_group, |_, place, groups| {
                let line = &mask[place..place + lines.count];
                match groups {
                    Groups::One(group) => counts[group] += kernels::count(line),
                    Groups::Each(first) => kernels::add_count(&mut counts[first..first + lines.count], line),
                    Groups::Mapped(mapped) => mapped.for_each(line, None, |group, mask| counts[group] += mask & 1),
                }
            });
        }
        let mask = self.scope.predicate.is_some().then_some(mask.as_slice());
        let rows = mask.map_or(reader.cells(), kernels::count);
        if rows == 0 {
            return Ok(());
        }
        for (reduction, accumulator) in self.reductions.iter().zip(&mut outcome.accumulators) {
            if reduction.function == Function::Count {
                continue;
            }
            match &reduction.input {
                Input::Rows => {}
                Input::Column(column) => {
                    let picture = reader.picture(*column)?;
                    let lines = Lines::new(&extents, &picture.strides, &apart);
                    with_cell_type!(reduction.cells, T => {
                        lines.feed::<T>(picture.base().cast(), first_group, mask, accumulator);
                    }, unreachable!("numbers only"));
                }
                Input::Expression(general) => {
                    let (values, is_of_rows) = match mask {
                        Some(mask) if rows < reader.cells() / FEW => {
                            (general.evaluate_at(&mut reader, &places(mask))?, true)
                        }
                        Some(mask) => match general.evaluate(&mut reader) {
                            Ok(values) => (values, false),
                            // It may have failed for a cell that is no row.
                            Err(_) => (general.evaluate_at(&mut reader, &places(mask))?, true),
                        },
                        None => (general.evaluate(&mut reader)?, false),
                    };
                    if values.null_count() > 0 {
                        return Err(Error::invalid(format!("`{}` is null for some cells", reduction.text)));
                    }
                    let lines = Lines::new(&extents, &packed, &apart);
                    match reduction.cells {
                        DataType::Int64 => {
                            let values = values.as_primitive::<Int64Type>().values();
                            let values = spread(values, mask.filter(|_| is_of_rows));
                            lines.feed::<i64>(values.as_ptr(), first_group, mask, accumulator);
                        }
                        _ => {
                            let values = values.as_primitive::<Float64Type>().values();
                            let values = spread(values, mask.filter(|_| is_of_rows));
                            lines.feed::<f64>(values.as_ptr(), first_group, mask, accumulator);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Results of so many groups from `first` on; those without rows are left out, unless nothing is grouped by.
    fn batch(&self, outcome: &Outcome, first: usize, count: usize) -> Result<RecordBatch> {
        let place = first - outcome.first;
        let counts = self.counts(outcome, first..first + count);
        let strides = self.strides();
        let mut arrays: Vec<ArrayRef> = vec![];
        for kept in &self.kept {
            let (stride, own) = (strides[kept.dimension], kept.count(&self.scope.selection) as usize);
            let groups: Vec<usize> = (first..first + count).map(|group| group / stride % own).collect();
            arrays.extend(kept.values(&self.grid, &self.scope.selection, &groups)?);
        }
        for (number, (reduction, accumulator)) in self.reductions.iter().zip(&outcome.accumulators).enumerate() {
            let results = accumulator.results(reduction.function, &counts, place)?;
            let wanted = self.schema.field(self.keys + number).data_type();
            arrays.push(arrow::compute::cast(&results, wanted)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        // A dimension that is not kept may have no index that is selected.
        if !self.kept.is_empty() && counts.contains(&0) {
            let has_rows: BooleanArray = counts.iter().map(|&count| Some(count > 0)).collect();
            return Ok(arrow::compute::filter_record_batch(&batch, &has_rows)?);
        }
        Ok(batch)
    }
}

/// Values of a tile's cells; those of its rows alone are brought to where the mask has them.
fn spread<'a, T: Copy + Default>(values: &'a [T], rows: Option<&[u64]>) -> Cow<'a, [T]> {
    let Some(mask) = rows else { return Cow::Borrowed(values) };
    let mut all = vec![T::default(); mask.len()];
    places(mask).into_iter().zip(values).for_each(|(place, value)| all[place as usize] = *value);
    Cow::Owned(all)
}

struct Outcome {
    /// The first group that it is of.
    first: usize,
    accumulators: Vec<Accumulator>,
    /// Rows of each group, where a predicate decides.
    counts: Vec<u64>,
}

fn packed_strides(extents: &[u64]) -> [usize; RANK_MAX] {
    let mut strides = [0; RANK_MAX];
    let mut stride = 1;
    for d in (0..extents.len()).rev() {
        strides[d] = stride;
        stride *= extents[d] as usize;
    }
    strides
}

/// How far the groups of a dimension's indices lie apart.
#[derive(Clone, Copy)]
enum Apart<'a> {
    /// Those of neighbours.
    Evenly(usize),
    /// Of each index the group, by number, and how far groups of following numbers do.
    Mapped { numbers: &'a [u32], stride: usize },
}

impl Apart<'_> {
    /// From that of no number, or of the first index.
    fn at(self, index: usize) -> usize {
        match self {
            Apart::Evenly(stride) => index * stride,
            Apart::Mapped { numbers, stride } => numbers[index] as usize * stride,
        }
    }

    fn is_evenly(self, stride: usize) -> bool {
        matches!(self, Apart::Evenly(own) if own == stride)
    }
}

/// A tile as lines of cells that go into one group, one by one into neighbouring groups, or into those that a map says.
struct Lines<'a> {
    extents: &'a [u64],
    strides: &'a [usize; RANK_MAX],
    apart: &'a [Apart<'a>; RANK_MAX],
    /// Dimensions before this one are looped over.
    outer: usize,
    stride: usize,
    /// Of a line.
    along: Apart<'a>,
    count: usize,
}

impl<'a> Lines<'a> {
    fn new(extents: &'a [u64], strides: &'a [usize; RANK_MAX], apart: &'a [Apart<'a>; RANK_MAX]) -> Lines<'a> {
        let rank = extents.len();
        let inner = (0..rank).rev().find(|&d| extents[d] > 1).unwrap_or(rank - 1);
        let (stride, along) = (strides[inner], apart[inner]);
        // Groups of the innermost dimension lie apart when a dimension behind it is kept as well, of one index here.
        if matches!(along, Apart::Evenly(2..)) {
            return Lines { extents, strides, apart, outer: inner + 1, stride, along: Apart::Evenly(0), count: 1 };
        }
        let (mut count, mut outer) = (extents[inner] as usize, inner);
        while outer > 0 {
            let d = outer - 1;
            let same_groups = match along {
                Apart::Evenly(0) => apart[d].is_evenly(0),
                Apart::Evenly(_) => apart[d].is_evenly(count),
                Apart::Mapped { .. } => false,
            };
            if extents[d] != 1 && !(strides[d] == count * stride && same_groups) {
                break;
            }
            count *= extents[d] as usize;
            outer = d;
        }
        Lines { extents, strides, apart, outer, stride, along, count }
    }

    /// `act(position, place, groups)`
    fn for_each(&self, first_group: usize, mut act: impl FnMut(usize, usize, Groups<'_>)) {
        let number_of_lines: u64 = self.extents[..self.outer].iter().product();
        let mut index = [0u64; RANK_MAX];
        let (mut position, mut group) = (0, first_group);
        for number in 0..number_of_lines as usize {
            let groups = match self.along {
                Apart::Evenly(0) => Groups::One(group),
                Apart::Evenly(_) => Groups::Each(group),
                // The group is that of its first cell.
                Apart::Mapped { numbers, stride } => {
                    Groups::Mapped(MappedLine { first: group.wrapping_sub(self.along.at(0)), numbers, stride })
                }
            };
            act(position, number * self.count, groups);
            for d in (0..self.outer).rev() {
                let apart = self.apart[d];
                let before = apart.at(index[d] as usize);
                index[d] += 1;
                position += self.strides[d];
                if index[d] < self.extents[d] {
                    group = group.wrapping_add(apart.at(index[d] as usize)).wrapping_sub(before);
                    break;
                }
                position -= self.extents[d] as usize * self.strides[d];
                group = group.wrapping_add(apart.at(0)).wrapping_sub(before);
                index[d] = 0;
            }
        }
    }

    fn feed<T: Extreme>(
        &self,
        base: *const T,
        first_group: usize,
        mask: Option<&[u64]>,
        accumulator: &mut Accumulator,
    ) {
        let mut row: Vec<T> = vec![];
        self.for_each(first_group, |position, place, groups| {
            let mask = mask.map(|mask| &mask[place..place + self.count]);
            // SAFETY: a line of the tile's box; layers are aligned, and what was put together is.
            let cells = unsafe {
                if self.stride == 1 || self.count == 1 {
                    std::slice::from_raw_parts(base.add(position), self.count)
                } else {
                    row.clear();
                    row.extend((0..self.count).map(|i| *base.add(position + i * self.stride)));
                    row.as_slice()
                }
            };
            accumulator.take(cells, mask, groups);
        });
    }
}

/// A table whose rows are computed when they are asked for.
#[derive(Debug)]
pub struct ReducedTable(pub Arc<Reduced>);

#[async_trait]
impl TableProvider for ReducedTable {
    fn schema(&self) -> SchemaRef {
        self.0.schema.clone()
    }
    fn table_type(&self) -> TableType {
        TableType::Temporary
    }
    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let fields = projection.cloned().unwrap_or_else(|| (0..self.0.schema.fields().len()).collect());
        let schema = Arc::new(self.0.schema.project(&fields)?);
        let threads = session.config().target_partitions();
        let run = Run { reduced: self.0.clone(), fields, schema, threads };
        Ok(Arc::new(ArrayExec::new(Arc::new(run))))
    }
}

pub struct Run {
    pub reduced: Arc<Reduced>,
    pub fields: Vec<usize>,
    schema: SchemaRef,
    pub threads: usize,
}

impl Work for Run {
    fn name(&self) -> &'static str {
        "GridReduce"
    }
    fn describe(&self) -> String {
        self.reduced.describe()
    }
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn partitions(&self) -> usize {
        1
    }
    fn rows(&self) -> usize {
        self.reduced.groups() as usize
    }
    fn cells(&self, _: usize) -> u64 {
        self.reduced.scope.cells()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn stream(&self, _: usize, context: Arc<TaskContext>, seen: Seen) -> DataFusionResult<SendableRecordBatchStream> {
        let reduced = self.reduced.clone();
        let reservation = MemoryConsumer::new("GridReduce").register(context.memory_pool());
        let bytes = |groups: u64, threads: usize| {
            // Threads work on slabs of their own, or each has its part of the sums of one.
            let has_sets = reduced.has_median() || !reduced.is_for_one_thread(groups);
            (groups * reduced.bytes_of_group()) as usize * if has_sets { threads } else { 1 }
        };
        let most = match context.memory_pool().memory_limit() {
            // Whoever takes the groups needs some, too.
            MemoryLimit::Finite(most) => most / 2,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        let fewest = reduced.fewest_groups();
        let threads = if bytes(fewest, self.threads) > most { 1 } else { self.threads.max(1) };
        let mut groups = reduced.groups_at_once();
        while bytes(groups, threads) > most && groups > fewest {
            groups /= 2;
        }
        let slabs_at_once = if reduced.has_median() { threads } else { 1 };
        let slabs = reduced.slabs(groups);
        let largest = slabs.iter().map(|slab| slab.groups.len() as u64).max().unwrap_or(0);
        reservation.try_grow(bytes(largest, threads))?;
        let batch_size = context.session_config().batch_size();
        let fields = self.fields.clone();
        let computed = futures::stream::iter(slabs).map(move |slab| {
            let (reduced, seen) = (reduced.clone(), seen.clone());
            async move {
                let computing = tokio::task::spawn_blocking(move || {
                    let outcome = reduced.compute(&slab, threads, &seen)?;
                    Ok::<_, Error>((reduced, slab, outcome))
                });
                computing
                    .await
                    .map_err(|error| DataFusionError::External(Box::new(error)))?
                    .map_err(DataFusionError::from)
            }
        });
        let told = computed.buffered(slabs_at_once).map_ok(move |(reduced, slab, outcome)| {
            // Held until all of it is told.
            let _ = &reservation;
            let fields = fields.clone();
            let starts = slab.groups.clone().step_by(batch_size);
            futures::stream::iter(starts.map(move |first| {
                let batch = reduced.batch(&outcome, first, batch_size.min(slab.groups.end - first))?;
                Ok::<_, DataFusionError>(batch.project(&fields)?)
            }))
        });
        let stream = told.try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }
}
