//! The one execution plan of this crate: a leaf that makes record batches of arrays, by a scan, a reduction or a look at the
//! catalogue.

use crate::control::{Control, of_task};
use crate::nodes::{Recipe, leaving};
use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{DynamicFilterTracking, EquivalenceProperties, Partitioning, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, ScopedTimerGuard, Time,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
    SortOrderPushdownResult,
};
use futures::TryStreamExt;
use std::any::Any;
use std::fmt::{Debug, Formatter};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Of threads that plans and expressions are walked on, level by level; what is not used is no memory.
pub const STACK_BYTES: usize = 32 << 20;

/// What the leaf does.
pub trait Work: Send + Sync {
    fn name(&self) -> &'static str;
    /// Of an EXPLAIN.
    fn describe(&self) -> String;
    fn schema(&self) -> SchemaRef;
    fn partitions(&self) -> usize;
    /// About how many there are, over all partitions: joins hold the smaller side.
    fn rows(&self) -> usize;
    /// Those that a partition reads, if it reads all.
    fn cells(&self, partition: usize) -> u64;
    /// The same, leaving out rows for which not all of these hold, as far as it likes. They say more while the plan runs: which rows a
    /// sort with a limit has no use for any more. `None`: it leaves out none.
    fn narrowed(&self, _: &[Arc<dyn PhysicalExpr>]) -> Option<Arc<dyn Work>> {
        None
    }
    /// The same, as far as it likes with those rows first that come first by this order; whoever asks sorts them. `None`: it has none.
    fn sorted(&self, _: &[PhysicalSortExpr]) -> Option<Arc<dyn Work>> {
        None
    }
    fn stream(&self, partition: usize, context: Arc<TaskContext>, seen: Seen) -> Result<SendableRecordBatchStream>;
    /// What another node has to know to do it; `None`: it can be done here only.
    fn recipe(&self) -> crate::error::Result<Option<Recipe>> {
        Ok(None)
    }
    /// Nodes can do it in shares.
    fn can_be_shared(&self) -> bool {
        false
    }
    fn as_any(&self) -> &dyn Any;
}

/// Tells how far a leaf is: its query, and EXPLAIN ANALYZE.
#[derive(Clone)]
pub struct Seen {
    pub control: Arc<Control>,
    tiles: Count,
    /// What was said while the plan ran was known to hold nowhere in them.
    left_out: Count,
    cells: Count,
    /// Of all threads together.
    time: Time,
}

impl Seen {
    fn new(control: Arc<Control>, metrics: &ExecutionPlanMetricsSet, partition: usize) -> Seen {
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        let time = MetricBuilder::new(metrics).subset_time("tiles_time", partition);
        Seen {
            control,
            tiles: counter("tiles_read"),
            left_out: counter("tiles_left_out"),
            cells: counter("cells_read"),
            time,
        }
    }

    /// Of a column that is computed while another leaf reads it: the query's, and no operator's.
    pub fn within(control: Arc<Control>, cells: u64) -> Seen {
        control.planned.fetch_add(cells, Relaxed);
        Seen::new(control, &ExecutionPlanMetricsSet::new(), 0)
    }

    /// A tile is about to be read, unless the query is to end.
    pub fn tile(&self, cells: u64) -> crate::error::Result<ScopedTimerGuard<'_>> {
        self.control.check()?;
        self.control.cells.fetch_add(cells, Relaxed);
        self.tiles.add(1);
        self.cells.add(cells as usize);
        Ok(self.time.timer())
    }

    /// A tile is not read, unless the query is to end.
    pub fn left_out(&self, cells: u64) -> crate::error::Result<()> {
        self.control.check()?;
        self.control.cells.fetch_add(cells, Relaxed);
        self.left_out.add(1);
        Ok(())
    }
}

pub struct ArrayExec {
    work: Arc<dyn Work>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ArrayExec {
    pub fn new(work: Arc<dyn Work>) -> ArrayExec {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(work.schema()),
            Partitioning::UnknownPartitioning(work.partitions()),
            EmissionType::Incremental,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        ArrayExec { work, properties: Arc::new(properties), metrics: ExecutionPlanMetricsSet::new() }
    }

    pub fn work(&self) -> &Arc<dyn Work> {
        &self.work
    }
}

impl Debug for ArrayExec {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.work.name(), self.work.describe())
    }
}

impl DisplayAs for ArrayExec {
    fn fmt_as(&self, _: DisplayFormatType, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.work.name(), self.work.describe())
    }
}

impl ExecutionPlan for ArrayExec {
    fn name(&self) -> &str {
        self.work.name()
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }
    fn partition_statistics(&self, partition: Option<usize>) -> Result<Arc<Statistics>> {
        let parts = partition.map_or(1, |_| self.work.partitions());
        let mut statistics = Statistics::new_unknown(&self.work.schema());
        statistics.num_rows = Precision::Inexact(self.work.rows() / parts);
        Ok(Arc::new(statistics))
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let control = of_task(&context);
        let leaving = leaving(&context);
        control.planned.fetch_add(self.work.cells(partition), Relaxed);
        let seen = Seen::new(control, &self.metrics, partition);
        let stream = self.work.stream(partition, context, seen)?;
        let rows = MetricBuilder::new(&self.metrics).output_rows(partition);
        let counted = stream.inspect_ok(move |batch| rows.add(batch.num_rows())).map_err(leaving);
        let counted = RecordBatchStreamAdapter::new(self.work.schema(), counted);
        Ok(datafusion::physical_plan::coop::make_cooperative(Box::pin(counted)))
    }
    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        if phase != FilterPushdownPhase::Post {
            return Ok(FilterPushdownPropagation::if_all(result));
        }
        let filters: Vec<_> = result.parent_filters.into_iter().map(|asked| asked.filter).collect();
        // Whoever asks looks at all rows itself.
        let told = FilterPushdownPropagation::with_parent_pushdown_result(vec![PushedDown::No; filters.len()]);
        let changes =
            |filter: &Arc<dyn PhysicalExpr>| DynamicFilterTracking::classify(filter).contains_dynamic_filter();
        let filters: Vec<_> = filters.into_iter().filter(changes).collect();
        Ok(match (!filters.is_empty()).then(|| self.work.narrowed(&filters)).flatten() {
            Some(work) => told.with_updated_node(Arc::new(ArrayExec::new(work))),
            None => told,
        })
    }
    fn try_pushdown_sort(&self, order: &[PhysicalSortExpr]) -> Result<SortOrderPushdownResult<Arc<dyn ExecutionPlan>>> {
        Ok(match self.work.sorted(order) {
            Some(work) => SortOrderPushdownResult::Inexact { inner: Arc::new(ArrayExec::new(work)) },
            None => SortOrderPushdownResult::Unsupported,
        })
    }
    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}
