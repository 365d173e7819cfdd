//! Recognises plans that arrays answer better than rows do, and puts plans of this crate in their place:
//!
//! ```text
//!   Aggregate by dimensions (grid)                          ──▶ GridReduce: no rows, no coordinates
//!   Join on dimensions (grid, grid or reduced grid)         ──▶ one grid with the columns of both: a zip, no hash table
//! ```
//!
//! What is not recognised goes DataFusion's way over the same tables, with the same answer.

mod aggregate;
mod join;
mod resolve;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

#[derive(Debug)]
pub struct ArrayPlans;

impl OptimizerRule for ArrayPlans {
    fn name(&self) -> &str {
        "array_plans"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }
    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let replaced = match &plan {
            LogicalPlan::Aggregate(aggregate) => aggregate::replaced(aggregate)?,
            LogicalPlan::Join(join) => join::replaced(join)?,
            _ => None,
        };
        Ok(match replaced {
            Some(replaced) => Transformed::yes(replaced),
            None => Transformed::no(plan),
        })
    }
}
