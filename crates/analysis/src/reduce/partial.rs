//! Aggregates whose cells several nodes have: each reduces its own to states (sums, extremes, counts), and one merges those of all.
//!
//! ```text
//!   Partial: group, rows (where a predicate decides), a state for each aggregate ─▶ Merge: results of all groups, with their coordinates
//! ```

use super::accumulator::{Accumulator, SUM_STATE};
use super::{Groups, Lines, Outcome, Reduced, packed_strides};
use crate::control::of_task;
use crate::error::Result;
use crate::exec::{Seen, Work};
use crate::nodes::{Recipe, ReductionRecipe};
use arrow::array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::{DataType as ArrowType, Field, Schema, SchemaRef, UInt64Type};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use futures::{StreamExt, TryStreamExt};
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

/// Groups of which one node holds all states at most.
const GROUPS_MERGED_MAX: u64 = 1 << 22;

impl Reduced {
    /// Nodes can reduce their own cells, and that is less than the cells.
    pub fn can_be_split(&self) -> bool {
        self.scope.can_be_shared
            && !self.has_median()
            && self.groups() <= GROUPS_MERGED_MAX.min(self.scope.selection.cells() / 2)
    }

    fn states_schema(&self) -> SchemaRef {
        let mut fields = vec![Field::new("group", ArrowType::UInt64, false)];
        if self.scope.predicate.is_some() {
            fields.push(Field::new("rows", ArrowType::UInt64, false));
        }
        for (number, reduction) in self.reductions.iter().enumerate() {
            if let Some(state) = Accumulator::new(reduction, 0, 0).state_type() {
                fields.push(Field::new(format!("s{number}"), state, false));
            }
        }
        Arc::new(Schema::new(fields))
    }

    /// Groups of a slab that the tiles have cells of, from its first.
    fn touched(&self, outcome: &Outcome, groups: usize) -> Vec<usize> {
        if self.scope.predicate.is_some() {
            return (0..groups).filter(|&group| outcome.counts[group] > 0).collect();
        }
        let strides = self.strides();
        let mut touched = vec![false; groups];
        let is_kept = |d: usize| self.kept.iter().any(|kept| kept.dimension == d);
        for tile in self.scope.tiles.iter() {
            let mut tile = tile.clone();
            // One index stands for all of a dimension that is not kept.
            for d in (0..tile.bounds.len()).filter(|&d| !is_kept(d)) {
                tile.bounds[d].end = tile.bounds[d].start + 1;
            }
            let (apart, first) = self.apart(&tile, &strides);
            let extents = tile.extents();
            let packed = packed_strides(&extents);
            let lines = Lines::new(&extents, &packed, &apart);
            lines.for_each(first, |_, _, groups| match groups {
                Groups::One(group) => touched[group] = true,
                Groups::Each(first) => touched[first..first + lines.count].fill(true),
                Groups::Mapped(mapped) => mapped.for_each(mapped.numbers, None, |group, _| touched[group] = true),
            });
        }
        (0..groups).filter(|&group| touched[group]).collect()
    }

    fn states(&self, outcome: &Outcome, groups: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = vec![];
        arrays.push(Arc::new(UInt64Array::from_iter_values(groups.iter().map(|&group| group as u64))));
        if self.scope.predicate.is_some() {
            arrays.push(Arc::new(UInt64Array::from_iter_values(groups.iter().map(|&group| outcome.counts[group]))));
        }
        arrays.extend(outcome.accumulators.iter().filter_map(|accumulator| accumulator.states(groups)));
        let options = RecordBatchOptions::new().with_row_count(Some(groups.len()));
        Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
    }

    fn take_states(&self, outcome: &mut Outcome, states: &RecordBatch) -> Result<()> {
        let groups: Vec<usize> =
            states.column(0).as_primitive::<UInt64Type>().values().iter().map(|&group| group as usize).collect();
        let mut columns = states.columns()[1..].iter();
        if self.scope.predicate.is_some()
            && let Some(rows) = columns.next()
        {
            for (&group, rows) in groups.iter().zip(rows.as_primitive::<UInt64Type>().values()) {
                outcome.counts[group] += rows;
            }
        }
        for accumulator in outcome.accumulators.iter_mut().filter(|accumulator| accumulator.state_type().is_some()) {
            if let Some(states) = columns.next() {
                accumulator.take_states(&groups, states);
            }
        }
        Ok(())
    }

    fn nothing_yet(&self) -> Outcome {
        let groups = self.groups() as usize;
        Outcome {
            first: 0,
            accumulators: self.reductions.iter().map(|r| Accumulator::new(r, groups, 0)).collect(),
            counts: if self.scope.predicate.is_some() { vec![0; groups] } else { vec![] },
        }
    }
}

/// A leaf that makes states of the cells that it has.
pub struct Partial {
    reduced: Arc<Reduced>,
    schema: SchemaRef,
    threads: usize,
}

impl Partial {
    pub fn new(reduced: Arc<Reduced>, threads: usize) -> Partial {
        let schema = reduced.states_schema();
        Partial { reduced, schema, threads }
    }
}

impl Work for Partial {
    fn name(&self) -> &'static str {
        "GridReduce"
    }
    fn describe(&self) -> String {
        format!("states of {}", self.reduced.describe())
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
    fn recipe(&self) -> Result<Option<Recipe>> {
        let reduction = ReductionRecipe::of(&self.reduced)?;
        Ok(reduction.map(|reduction| Recipe::Partial { reduction, share: None }))
    }
    fn can_be_shared(&self) -> bool {
        self.reduced.can_be_split()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn stream(&self, _: usize, context: Arc<TaskContext>, seen: Seen) -> DataFusionResult<SendableRecordBatchStream> {
        let (reduced, schema, threads) = (self.reduced.clone(), self.schema.clone(), self.threads.max(1));
        let reservation = MemoryConsumer::new("GridReduce").register(context.memory_pool());
        let bytes = (reduced.groups() * reduced.bytes_of_group()) as usize;
        // Each thread has its own states, where there is the memory.
        let threads = match threads > 1 && reservation.try_grow(bytes * threads).is_ok() {
            true => threads,
            false => {
                reservation.try_grow(bytes)?;
                1
            }
        };
        let batch_size = context.session_config().batch_size();
        let computed = async move {
            let computing = tokio::task::spawn_blocking(move || {
                let Some(slab) = reduced.slabs(reduced.groups()).pop() else { return Ok(vec![]) };
                let outcome = reduced.compute(&slab, threads, &seen)?;
                let touched = reduced.touched(&outcome, slab.groups.len());
                let batches = touched.chunks(batch_size).map(|groups| reduced.states(&outcome, groups, &schema));
                batches.collect::<Result<Vec<RecordBatch>>>()
            });
            let batches = computing.await.map_err(|error| DataFusionError::External(Box::new(error)))?;
            drop(reservation);
            Ok::<_, DataFusionError>(futures::stream::iter(batches?.into_iter().map(Ok)))
        };
        let stream = futures::stream::once(computed).try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }
}

/// Makes the groups' results of states that come in one partition.
pub struct Merge {
    reduced: Arc<Reduced>,
    fields: Vec<usize>,
    states: Arc<dyn ExecutionPlan>,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl Merge {
    pub fn new(reduced: Arc<Reduced>, fields: Vec<usize>, states: Arc<dyn ExecutionPlan>) -> Result<Merge> {
        let schema = Arc::new(reduced.schema.project(&fields)?);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        Ok(Merge { reduced, fields, states, schema, properties: Arc::new(properties) })
    }

    fn over(&self, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Merge> {
        let states = children.pop().expect("it has one child");
        Merge::new(self.reduced.clone(), self.fields.clone(), states)
    }

    pub fn recipe(&self) -> Result<Option<Recipe>> {
        let reduction = ReductionRecipe::of(&self.reduced)?;
        Ok(reduction.map(|reduction| Recipe::Merge { reduction, fields: self.fields.clone() }))
    }
}

impl Debug for Merge {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "GridMerge: {}", self.reduced.describe())
    }
}

impl DisplayAs for Merge {
    fn fmt_as(&self, _: DisplayFormatType, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "GridMerge: {}", self.reduced.describe())
    }
}

impl ExecutionPlan for Merge {
    fn name(&self) -> &str {
        "GridMerge"
    }
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.states]
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> DataFusionResult<TreeNodeRecursion>,
    ) -> DataFusionResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(children)?))
    }
    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.over(children)?))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        let (reduced, fields, control) = (self.reduced.clone(), self.fields.clone(), of_task(&context));
        let reservation = MemoryConsumer::new("GridMerge").register(context.memory_pool());
        let groups = reduced.groups();
        reservation.try_grow((groups * reduced.bytes_of_group()) as usize)?;
        let batch_size = context.session_config().batch_size();
        let mut states = self.states.execute(partition, context)?;
        let merged = async move {
            let mut outcome = reduced.nothing_yet();
            while let Some(batch) = states.next().await {
                control.check()?;
                reduced.take_states(&mut outcome, &batch?)?;
            }
            let groups = groups as usize;
            let batches = (0..groups).step_by(batch_size).map(move |first| {
                // Held until all of it is told.
                let _ = &reservation;
                let batch = reduced.batch(&outcome, first, batch_size.min(groups - first))?;
                Ok::<_, DataFusionError>(batch.project(&fields)?)
            });
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        };
        let stream = futures::stream::once(merged).try_flatten().boxed();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream)))
    }
}

impl Accumulator {
    /// How other nodes are told of it; `None`: it follows from the rows alone, or is not told.
    pub fn state_type(&self) -> Option<ArrowType> {
        Some(match self {
            Accumulator::Nothing | Accumulator::Values(_) => return None,
            Accumulator::Real(_) => ArrowType::Float64,
            Accumulator::Integer(_) => SUM_STATE,
            Accumulator::Least(kept) | Accumulator::Greatest(kept) => kept.arrow_type(),
        })
    }
}
