//! The one execution plan of this crate: a leaf that makes record batches of arrays, by a scan, a reduction or a look at the
//! catalogue.

use arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, Partitioning};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, ReplaceChildrenOptions,
};
use std::fmt::{Debug, Formatter};
use std::sync::Arc;

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
    fn stream(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream>;
}

pub struct ArrayExec {
    work: Arc<dyn Work>,
    properties: Arc<PlanProperties>,
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
        ArrayExec { work, properties: Arc::new(properties) }
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
        let stream = self.work.stream(partition, context)?;
        Ok(datafusion::physical_plan::coop::make_cooperative(stream))
    }
}
