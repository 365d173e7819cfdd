//! Plans that look at their query's control where DataFusion's operators do not let go for long.

use super::Control;
use crate::nodes::leaving;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_plan::coop::make_cooperative;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_distributed::{DistributedExec, NetworkBoundaryExt};
use futures::StreamExt;
use std::fmt::{Debug, Display, Formatter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};

/// The same plan, which ends when it is to. What reads of other operators without making more rows looks when they do. What other nodes
/// do is checked there.
pub fn checked(plan: Arc<dyn ExecutionPlan>, control: &Arc<Control>) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.is_network_boundary() {
        return Ok(plan);
    }
    let children = plan.children().into_iter().map(|child| checked(child.clone(), control));
    let children = children.collect::<Result<Vec<_>>>()?;
    let plan = if children.is_empty() { plan } else { replaced(plan, children)? };
    let may_make_many = plan.children().is_empty()
        || matches!(plan.cardinality_effect(), CardinalityEffect::Unknown | CardinalityEffect::GreaterEqual);
    // It is what runs a plan, and is known by its type.
    if !may_make_many || plan.is::<DistributedExec>() {
        return Ok(plan);
    }
    let plan = with_checked_filter(plan, control)?;
    Ok(Arc::new(CheckedExec { plan, control: control.clone() }))
}

fn replaced(plan: Arc<dyn ExecutionPlan>, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

/// Joins evaluate their filter for every few thousand pairs, and say nothing while none passes.
fn with_checked_filter(plan: Arc<dyn ExecutionPlan>, control: &Arc<Control>) -> Result<Arc<dyn ExecutionPlan>> {
    let of = |filter: &JoinFilter| {
        let expression = Arc::new(CheckedExpr { expression: filter.expression().clone(), control: control.clone() });
        JoinFilter::new(expression, filter.column_indices().to_vec(), filter.schema().clone())
    };
    if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>()
        && let Some(filter) = join.filter()
    {
        let filter = of(filter);
        return Ok(Arc::new(NestedLoopJoinExecBuilder::from(join).with_filter(Some(filter)).build()?));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        // Keys are computed for each batch that goes into the table.
        let key = |(left, right): &(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)| {
            let left = CheckedExpr { expression: left.clone(), control: control.clone() };
            (Arc::new(left) as Arc<dyn PhysicalExpr>, right.clone())
        };
        let on = join.on().iter().map(key).collect();
        return join.builder().with_on(on).with_filter(join.filter().map(of)).build_exec();
    }
    Ok(plan)
}

struct CheckedExec {
    plan: Arc<dyn ExecutionPlan>,
    control: Arc<Control>,
}

impl Debug for CheckedExec {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "Checked")
    }
}

impl DisplayAs for CheckedExec {
    fn fmt_as(&self, _: DisplayFormatType, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "Checked")
    }
}

impl ExecutionPlan for CheckedExec {
    fn name(&self) -> &str {
        "Checked"
    }
    fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }
    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }
    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }
    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
    }
    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }
    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = children.pop().expect("it has one child");
        Ok(Arc::new(CheckedExec { plan, control: self.control.clone() }))
    }
    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = children.pop().expect("it has one child");
        Ok(Arc::new(CheckedExec { plan, control: self.control.clone() }))
    }
    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }
    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let leaving = leaving(&context);
        let stream = self.plan.execute(partition, context)?;
        let (schema, control) = (stream.schema(), self.control.clone());
        let checked =
            stream.map(move |batch| control.check().map_err(DataFusionError::from).and(batch).map_err(&leaving));
        Ok(make_cooperative(Box::pin(RecordBatchStreamAdapter::new(schema, checked))))
    }
}

/// An expression that fails when its query is to end.
struct CheckedExpr {
    expression: Arc<dyn PhysicalExpr>,
    control: Arc<Control>,
}

impl Debug for CheckedExpr {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:?}", self.expression)
    }
}

impl Display for CheckedExpr {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}", self.expression)
    }
}

impl PartialEq for CheckedExpr {
    fn eq(&self, other: &CheckedExpr) -> bool {
        self.expression.eq(&other.expression)
    }
}
impl Eq for CheckedExpr {}
impl Hash for CheckedExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}

impl PhysicalExpr for CheckedExpr {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.expression.data_type(schema)
    }
    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.expression.nullable(schema)
    }
    fn return_field(&self, schema: &Schema) -> Result<FieldRef> {
        self.expression.return_field(schema)
    }
    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        self.control.check().map_err(DataFusionError::from)?;
        self.expression.evaluate(batch)
    }
    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.expression]
    }
    fn with_new_children(self: Arc<Self>, mut children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        let expression = children.pop().expect("it has one child");
        Ok(Arc::new(CheckedExpr { expression, control: self.control.clone() }))
    }
    fn fmt_sql(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        self.expression.fmt_sql(out)
    }
}
