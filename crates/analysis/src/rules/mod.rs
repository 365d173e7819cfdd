//! Recognises plans that arrays answer better than rows do, and puts plans of this crate in their place:
//!
//! ```text
//!   Aggregate by dimensions (grid)                          ──▶ GridReduce: no rows, no coordinates
//!   Aggregate by whole numbers of values (grid)             ──▶ GridClasses: states of groups, which DataFusion merges
//!   Join on dimensions (grid, grid or reduced grid)         ──▶ one grid with the columns of both: a zip, no hash table
//!   Window along a dimension (grid)                         ──▶ its columns at several shifts: nothing is sorted
//! ```
//!
//! What is not recognised goes DataFusion's way over the same tables, with the same answer.

mod aggregate;
mod classes;
mod join;
mod resolve;
mod window;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use std::sync::Arc;

/// All of them, for `SessionStateBuilder::with_optimizer_rule`.
pub fn array_rules() -> [Arc<dyn OptimizerRule + Send + Sync>; 2] {
    [Arc::new(ArrayPlans), Arc::new(ArrayWindows)]
}

#[derive(Debug)]
struct ArrayPlans;

impl OptimizerRule for ArrayPlans {
    fn name(&self) -> &str {
        "array_plans"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }
    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let replaced = match &plan {
            LogicalPlan::Aggregate(aggregate) => match aggregate::replaced(aggregate)? {
                None => classes::replaced(aggregate)?,
                replaced => replaced,
            },
            LogicalPlan::Join(join) => join::replaced(join)?,
            _ => None,
        };
        Ok(match replaced {
            Some(replaced) => Transformed::yes(replaced),
            None => Transformed::no(plan),
        })
    }
}

/// Windows above one another are one grid's: the uppermost is looked at first.
#[derive(Debug)]
struct ArrayWindows;

impl OptimizerRule for ArrayWindows {
    fn name(&self) -> &str {
        "array_windows"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let replaced = match &plan {
            LogicalPlan::Window(window) => window::replaced(window)?,
            _ => None,
        };
        Ok(replaced.map_or_else(|| Transformed::no(plan), Transformed::yes))
    }
}
