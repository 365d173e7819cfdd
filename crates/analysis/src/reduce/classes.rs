//! Aggregates by a whole number that is computed of each cell, as classes of values are.
//!
//! ```text
//!   tiles of a partition ─▶ the group of each cell, by its key ─▶ states of groups (rows, sums, extremes) ─▶ DataFusion merges and ends them
//! ```
//!
//! Keys that lie near one another lead to their groups without a hash. A table with many groups is told, and a new one is begun: so
//! there is no number of groups that is too large. Where hardly two rows are of one group, each is told as it is.

use super::accumulator::{Accumulator, Groups, MappedLine};
use super::{Function, Input, Reduction};
use crate::control::reading;
use crate::error::{Error, Result};
use crate::exec::{ArrayExec, Seen, Work};
use crate::grid::{Grid, Meaning, Tile, TileReader, with_cell_type};
use crate::predicate::{General, Mask, places};
use crate::scope::Scope;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType as ArrowType, Field, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

/// What is computed of so many cells stays in a core's caches.
const CELLS_AT_ONCE: u64 = 1 << 13;
/// A table with more groups is told.
const GROUPS_MAX: usize = 1 << 16;
/// A table is worth it where it has so many rows for each group.
const ROWS_OF_GROUP_MIN: u64 = 4;
/// Keys between the least and the greatest of which a place is kept for each.
const NEAR_MAX: i128 = 1 << 18;
const BATCHES_AHEAD: usize = 2;

/// A table of states of groups, of which some may be of one key: the key, the number of rows, and for each aggregate a sum or an extreme.
pub struct Classes {
    grid: Arc<Grid>,
    /// 64-bit integers.
    key: General,
    reductions: Vec<Reduction>,
    scope: Scope,
    schema: SchemaRef,
}

impl std::fmt::Debug for Classes {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.describe())
    }
}

impl Classes {
    /// `None`: an aggregate has no state that DataFusion could merge.
    pub fn plan(
        grid: Arc<Grid>,
        key: General,
        reductions: Vec<Reduction>,
        filters: Vec<Expr>,
    ) -> Result<Option<Classes>> {
        let mut fields = vec![Field::new(Classes::KEY, ArrowType::Int64, false)];
        fields.push(Field::new(Classes::ROWS, ArrowType::Int64, false));
        for (number, reduction) in reductions.iter().enumerate() {
            match Accumulator::new(reduction, 0, 0) {
                Accumulator::Nothing => {}
                Accumulator::Integer(_) | Accumulator::Values(_) => return Ok(None),
                other => {
                    let state = other.state_type().expect("it is a sum or an extreme");
                    fields.push(Field::new(Classes::state(number), state, false));
                }
            }
        }
        let columns = reductions.iter().flat_map(|reduction| reduction.input.columns(&grid)).chain(key.columns(&grid));
        let scope = Scope::new(&grid, filters)?.read(&grid, columns.collect(), None)?.in_finer_tiles(CELLS_AT_ONCE);
        Ok(Some(Classes { grid, key, reductions, scope, schema: Arc::new(Schema::new(fields)) }))
    }

    // DataFusion's rule for groups with a limit follows a sort to its aggregate by names alone: no column of a query has one of these.
    pub const KEY: &str = "__terrace_key";
    pub const ROWS: &str = "__terrace_rows";

    /// What the column of an aggregate's states is called.
    pub fn state(number: usize) -> String {
        format!("__terrace_state{number}")
    }

    fn describe(&self) -> String {
        let wanted: Vec<&str> = self.reductions.iter().map(|reduction| reduction.text.as_str()).collect();
        let scope = self.scope.describe();
        format!("{}, by=[{}], [{}]{scope}", self.grid.name, self.key.told, wanted.join(", "))
    }

    /// The values that go into an aggregate, of all cells of a tile or of those at some places; `None`: rows alone.
    fn values(
        &self,
        reduction: &Reduction,
        reader: &mut TileReader<'_>,
        places: Option<&[u32]>,
    ) -> Result<Option<ArrayRef>> {
        Ok(match (&reduction.input, places) {
            (Input::Rows, _) => None,
            _ if reduction.function == Function::Count => None,
            (Input::Column(column), places) => {
                let is_it = |field: &Meaning| field.column() == Some(*column);
                let field = self.grid.fields.iter().position(is_it).expect("it was named in the query");
                Some(match places {
                    Some(places) => reader.take(field, places)?,
                    None => reader.array(field, 0, reader.cells())?,
                })
            }
            (Input::Expression(general), places) => {
                let values = evaluated(general, reader, places)?;
                if values.null_count() > 0 {
                    return Err(Error::invalid(format!("`{}` is null for some cells", reduction.text)));
                }
                Some(values)
            }
        })
    }

    /// All rows of a tile that pass.
    fn take(&self, tile: &Tile, mask: &mut Mask, table: &mut Table) -> Result<()> {
        let mut reader = TileReader::new(&self.grid, tile);
        let rows = match &self.scope.predicate {
            None => None,
            Some(predicate) => {
                predicate.mask(&self.grid, &mut reader, mask)?;
                Some(places(mask))
            }
        };
        if rows.as_ref().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        let places = rows.as_deref();
        let keys = evaluated(&self.key, &mut reader, places)?;
        if keys.null_count() > 0 {
            return Err(Error::invalid(format!("`{}` is null for some cells", self.key.told)));
        }
        let values = self.reductions.iter().map(|reduction| self.values(reduction, &mut reader, places));
        let values = values.collect::<Result<Vec<_>>>()?;
        match table.is_worth_it {
            true => table.add(keys.as_primitive::<Int64Type>().values(), &self.reductions, &values),
            false => table.passed.push(self.rows(keys, &values)?),
        }
        Ok(())
    }

    /// Each row as a group of its own.
    fn rows(&self, keys: ArrayRef, values: &[Option<ArrayRef>]) -> Result<RecordBatch> {
        let ones: ArrayRef = Arc::new(Int64Array::from_value(1, keys.len()));
        let states = values.iter().flatten().zip(&self.schema.fields()[2..]);
        let states = states.map(|(values, field)| Ok(cast(values, field.data_type())?)).collect::<Result<Vec<_>>>()?;
        Ok(RecordBatch::try_new(self.schema.clone(), [keys, ones].into_iter().chain(states).collect())?)
    }
}

fn evaluated(general: &General, reader: &mut TileReader<'_>, places: Option<&[u32]>) -> Result<ArrayRef> {
    match places {
        Some(places) => general.evaluate_at(reader, places),
        None => general.evaluate(reader),
    }
}

/// Groups by their keys.
#[derive(Default)]
struct Numbers {
    /// Of each group.
    keys: Vec<i64>,
    /// Of keys from `low` on; `NONE`: there is no such group.
    near: Vec<u32>,
    low: i64,
    /// Of other keys.
    far: HashMap<i64, u32>,
}

const NONE: u32 = u32::MAX;

impl Numbers {
    /// The group of each key.
    fn look_up(&mut self, keys: &[i64], numbers: &mut Vec<u32>) {
        let (least, greatest) =
            keys.iter().fold((i64::MAX, i64::MIN), |(low, high), &key| (low.min(key), high.max(key)));
        numbers.clear();
        if least <= greatest {
            self.reach(least, greatest);
        }
        numbers.resize(keys.len(), NONE);
        for (number, &key) in numbers.iter_mut().zip(keys) {
            let place = key.wrapping_sub(self.low) as usize;
            *number = match self.near.get(place) {
                Some(&known) if known != NONE => known,
                _ => self.number(key, place),
            };
        }
    }

    #[cold]
    fn number(&mut self, key: i64, place: usize) -> u32 {
        let next = self.keys.len() as u32;
        match self.near.get_mut(place) {
            Some(slot) => *slot = next,
            None => match self.far.entry(key) {
                Entry::Occupied(known) => return *known.get(),
                Entry::Vacant(slot) => {
                    slot.insert(next);
                }
            },
        }
        self.keys.push(key);
        next
    }

    /// Sees to places for keys from one to another, unless they lie too far apart.
    fn reach(&mut self, least: i64, greatest: i64) {
        let (low, end) = match self.near.len() {
            0 => (least.into(), i128::from(greatest) + 1),
            len => (
                i128::from(self.low).min(least.into()),
                (i128::from(self.low) + len as i128).max(i128::from(greatest) + 1),
            ),
        };
        let span = end - low;
        if span > NEAR_MAX || span == self.near.len() as i128 {
            return;
        }
        // With some room, so that this is seldom done.
        let room = (span / 2).min((NEAR_MAX - span) / 2);
        let (low, end) = ((low - room).max(i64::MIN.into()), (end + room).min(i128::from(i64::MAX) + 1));
        let mut near = vec![NONE; (end - low) as usize];
        let of = |key: i64| (i128::from(key) - low) as usize;
        if !self.near.is_empty() {
            near[of(self.low)..][..self.near.len()].copy_from_slice(&self.near);
        }
        self.far.retain(|&key, &mut number| {
            let is_near = (low..end).contains(&key.into());
            if is_near {
                near[of(key)] = number;
            }
            !is_near
        });
        (self.near, self.low) = (near, low as i64);
    }

    fn bytes(&self) -> usize {
        // A hash table's entry takes about so much.
        self.keys.capacity() * 8 + self.near.capacity() * 4 + self.far.capacity() * 24
    }
}

/// States of groups, and what was told of rows as they are.
struct Table {
    numbers: Numbers,
    /// Of the last keys.
    found: Vec<u32>,
    rows: Vec<i64>,
    accumulators: Vec<Accumulator>,
    taken: u64,
    is_worth_it: bool,
    passed: Vec<RecordBatch>,
}

impl Table {
    fn new(reductions: &[Reduction], is_worth_it: bool) -> Table {
        let accumulators = reductions.iter().map(|reduction| Accumulator::new(reduction, 0, 0)).collect();
        let (numbers, found, rows, passed) = (Numbers::default(), vec![], vec![], vec![]);
        Table { numbers, found, rows, accumulators, taken: 0, is_worth_it, passed }
    }

    fn add(&mut self, keys: &[i64], reductions: &[Reduction], values: &[Option<ArrayRef>]) {
        self.numbers.look_up(keys, &mut self.found);
        self.taken += keys.len() as u64;
        self.rows.resize(self.numbers.keys.len(), 0);
        for &number in &self.found {
            self.rows[number as usize] += 1;
        }
        let groups = Groups::Mapped(MappedLine { first: 0, numbers: &self.found, stride: 1 });
        for ((reduction, values), accumulator) in reductions.iter().zip(values).zip(&mut self.accumulators) {
            let Some(values) = values else { continue };
            accumulator.grow(self.rows.len());
            with_cell_type!(reduction.cells, T => {
                let cells = values.as_primitive::<<T as crate::grid::CellType>::Arrow>().values();
                accumulator.take::<T>(cells, None, groups);
            }, unreachable!("numbers only"));
        }
    }

    fn is_full(&self) -> bool {
        self.rows.len() > GROUPS_MAX
    }

    fn bytes(&self) -> usize {
        let states = self.accumulators.len() * 16 * self.rows.capacity();
        let passed: usize = self.passed.iter().map(RecordBatch::get_array_memory_size).sum();
        self.numbers.bytes() + self.found.capacity() * 4 + self.rows.capacity() * 8 + states + passed
    }

    /// All that it has, in batches.
    fn told(self, schema: &SchemaRef, batch_size: usize) -> Result<Vec<RecordBatch>> {
        let mut batches = self.passed;
        let groups: Vec<usize> = (0..self.rows.len()).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(self.numbers.keys))];
        columns.push(Arc::new(Int64Array::from(self.rows)));
        columns.extend(self.accumulators.iter().filter_map(|accumulator| accumulator.states(&groups)));
        let all = RecordBatch::try_new(schema.clone(), columns)?;
        batches.extend(
            (0..groups.len()).step_by(batch_size).map(|first| all.slice(first, batch_size.min(groups.len() - first))),
        );
        Ok(batches)
    }
}

#[derive(Debug)]
pub struct ClassesTable(pub Arc<Classes>);

#[async_trait]
impl TableProvider for ClassesTable {
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
        let partitions = session.config().target_partitions().min(self.0.scope.tiles.len()).max(1);
        Ok(Arc::new(ArrayExec::new(Arc::new(Run { classes: self.0.clone(), fields, schema, partitions }))))
    }
}

struct Run {
    classes: Arc<Classes>,
    fields: Vec<usize>,
    schema: SchemaRef,
    partitions: usize,
}

impl Run {
    /// The tiles of a partition.
    fn part(&self, partition: usize) -> Range<usize> {
        self.classes.scope.part(partition, self.partitions)
    }
}

impl Work for Run {
    fn name(&self) -> &'static str {
        "GridClasses"
    }
    fn describe(&self) -> String {
        self.classes.describe()
    }
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn partitions(&self) -> usize {
        self.partitions
    }
    fn rows(&self) -> usize {
        // Who knows how many groups there are? Joins hold the smaller side.
        self.classes.scope.cells() as usize
    }
    fn cells(&self, partition: usize) -> u64 {
        self.classes.scope.tiles[self.part(partition)].iter().map(Tile::cells).sum()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn stream(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
        seen: Seen,
    ) -> DataFusionResult<SendableRecordBatchStream> {
        let (classes, fields, part) = (self.classes.clone(), self.fields.clone(), self.part(partition));
        let reservation = MemoryConsumer::new("GridClasses").register(context.memory_pool());
        let batch_size = context.session_config().batch_size();
        let mut stream = RecordBatchReceiverStream::builder(self.schema.clone(), BATCHES_AHEAD);
        let sender = stream.tx();
        stream.spawn_blocking(move || {
            let control = seen.control.clone();
            reading(&control, || {
                let tell = |table: Table| -> DataFusionResult<bool> {
                    for batch in table.told(&classes.schema, batch_size)? {
                        // Nobody asks for more.
                        if sender.blocking_send(Ok(batch.project(&fields)?)).is_err() {
                            return Ok(false);
                        }
                    }
                    Ok(true)
                };
                classes.compute(part, &seen, &reservation, tell)
            })
        });
        Ok(stream.build())
    }
}

impl Classes {
    /// `tell`: whether more is wanted.
    fn compute(
        &self,
        part: Range<usize>,
        seen: &Seen,
        reservation: &MemoryReservation,
        tell: impl Fn(Table) -> DataFusionResult<bool>,
    ) -> DataFusionResult<()> {
        let (mut mask, mut table) = (vec![], Table::new(&self.reductions, true));
        for tile in &self.scope.tiles[part] {
            if self.scope.holds_nowhere(&self.grid, tile) {
                seen.left_out(tile.cells())?;
                continue;
            }
            {
                let _timed = seen.tile(tile.cells())?;
                self.take(tile, &mut mask, &mut table)?;
            }
            let has_room = reservation.try_resize(table.bytes());
            if table.is_full() || has_room.is_err() || !table.is_worth_it {
                // Where there is no room even for what one tile has, that is an error.
                reservation.try_resize(0)?;
                let is_worth_it = table.is_worth_it && table.taken >= ROWS_OF_GROUP_MIN * table.rows.len() as u64;
                if !tell(std::mem::replace(&mut table, Table::new(&self.reductions, is_worth_it)))? {
                    return Ok(());
                }
            }
        }
        tell(table)?;
        self.scope.was_read(&self.grid);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_key_has_its_group_wherever_it_lies(
            batches in prop::collection::vec(
                prop::collection::vec(
                    prop_oneof![-40i64..40, 1_000_000i64..1_000_100, -200_000i64..200_000, Just(i64::MIN), Just(i64::MAX), any::<i64>()],
                    0..60,
                ),
                0..12,
            ),
        ) {
            let (mut numbers, mut found) = (Numbers::default(), vec![]);
            let mut known: HashMap<i64, u32> = HashMap::new();
            for keys in &batches {
                numbers.look_up(keys, &mut found);
                prop_assert_eq!(found.len(), keys.len());
                for (&key, &number) in keys.iter().zip(&found) {
                    prop_assert_eq!(*known.entry(key).or_insert(number), number);
                    prop_assert_eq!(numbers.keys[number as usize], key);
                }
            }
            prop_assert_eq!(known.len(), numbers.keys.len());
        }
    }
}
