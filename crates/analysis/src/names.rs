//! A query of which an array was replaced while it ran, or made smaller, has no answer: what was read by the array's name may be of either, and
//! what was cut off reads as the fill value.
//!
//! Reason: cells in this node's memory are held for as long as a query reads them. Those in the root, and those that other nodes keep, are
//! read by name, piece by piece. So names are looked at again when all is read.

use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::interpolate;
use crate::reduce::ReducedTable;
use crate::scan::GridTable;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use std::sync::{Arc, OnceLock};
use terrace_client::{Array, Kind};

/// The grid that a plan's leaf reads.
pub fn grid_of(plan: &LogicalPlan) -> Option<Arc<Grid>> {
    let LogicalPlan::TableScan(scan) = plan else { return None };
    let provider = source_as_provider(&scan.source).ok()?;
    let grid = provider.downcast_ref::<GridTable>().map(|table| &table.0);
    grid.or(provider.downcast_ref::<ReducedTable>().map(|table| &table.0.grid)).cloned()
}

/// Arrays that a query reads by their names; known when it is planned.
#[derive(Clone, Default)]
pub struct ReadByName(Arc<OnceLock<Vec<Read>>>);

/// An array, and its shape as it was planned with.
type Read = (Array, Vec<u64>);

impl ReadByName {
    /// A deep plan is walked where there is room for it: where plans are made.
    pub fn learn(&self, plan: &LogicalPlan) -> Result<()> {
        if self.0.get().is_some() {
            return Ok(());
        }
        let mut arrays = vec![];
        plan.apply_with_subqueries(|plan| {
            let mut grids: Vec<Arc<Grid>> = grid_of(plan).into_iter().collect();
            for expr in plan.expressions() {
                expr.apply(|expr| {
                    grids.extend(interpolate::grid_of(expr));
                    Ok(TreeNodeRecursion::Continue)
                })?;
            }
            let columns = grids.iter().flat_map(|grid| &grid.columns);
            let read = columns.filter_map(|column| column.source.read_by_name());
            arrays.extend(read.map(|(array, shape)| (array.clone(), shape.to_owned())));
            Ok(TreeNodeRecursion::Continue)
        })?;
        let _ = self.0.set(arrays);
        Ok(())
    }

    /// The same rows, and an error after them if one of the arrays was replaced meanwhile.
    pub fn checked(self, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        if self.0.get().is_none_or(Vec::is_empty) {
            return rows;
        }
        let schema = rows.schema();
        let end = async move {
            // The file system may take its time.
            let looked = tokio::task::spawn_blocking(move || look(self.0.get().map_or(&[], Vec::as_slice)));
            looked.await.unwrap_or_else(|error| Err(DataFusionError::External(Box::new(error)))).err().map(Err)
        };
        let end = futures::stream::once(end).filter_map(std::future::ready);
        Box::pin(RecordBatchStreamAdapter::new(schema, rows.chain(end)))
    }
}

fn look(arrays: &[Read]) -> DataFusionResult<()> {
    for (array, planned) in arrays {
        let what = if !array.is_its_name() {
            "removed, renamed, or replaced by another one"
        } else if array.shape().map_err(Error::from)?.iter().zip(planned).any(|(now, planned)| now < planned) {
            "made smaller"
        } else {
            continue;
        };
        let message = format!("the array `{}` was {what}, while the query ran", array.name());
        return Err(Error::new(Kind::NotFound, message).hint("ask again").into());
    }
    Ok(())
}
