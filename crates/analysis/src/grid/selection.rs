//! Which indices of each dimension a query asks for: found by evaluating its predicates on the coordinates, so that they mean
//! exactly what they mean row by row.

use super::{Grid, Meaning};
use crate::error::Result;
use arrow::array::{Array, BooleanArray, RecordBatch};
use arrow::datatypes::{Field, Schema};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_expr::execution_props::ExecutionProps;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct Selection {
    /// For each dimension: ranges of indices, ascending and apart.
    pub ranges: Vec<Vec<Range<u64>>>,
    /// Predicates that the ranges don't say already.
    pub rest: Vec<Expr>,
}

/// A dimension that is cut into more ranges than this is taken whole, and its predicate evaluated row by row.
const RANGES_MAX: usize = 1 << 10;
const RANGES_OF_ALL_MAX: usize = 1 << 14;
/// Coordinates that are evaluated at once.
const BATCH: u64 = 1 << 16;

impl Selection {
    pub fn all(grid: &Grid) -> Selection {
        let whole = |extent: u64| if extent == 0 { vec![] } else { vec![0..extent] };
        Selection { ranges: grid.dimensions.iter().map(|d| whole(d.extent)).collect(), rest: vec![] }
    }

    pub fn is_empty(&self) -> bool {
        self.ranges.iter().any(Vec::is_empty)
    }

    /// From the first to the last selected index.
    pub fn bounds(&self, dimension: usize) -> Range<u64> {
        match (self.ranges[dimension].first(), self.ranges[dimension].last()) {
            (Some(first), Some(last)) => first.start..last.end,
            _ => 0..0,
        }
    }

    /// Selected indices of a dimension.
    pub fn count(&self, dimension: usize) -> u64 {
        self.ranges[dimension].iter().map(|range| range.end - range.start).sum()
    }

    pub fn cells(&self) -> u64 {
        (0..self.ranges.len()).map(|dimension| self.count(dimension)).product()
    }

    /// Indices of a dimension, in order.
    pub fn indices(&self, dimension: usize) -> Vec<u64> {
        self.ranges[dimension].iter().cloned().flatten().collect()
    }
}

/// The one dimension that an expression is about, if it is about one only.
pub fn only_dimension(grid: &Grid, expr: &Expr) -> Option<usize> {
    if !is_of_rows(expr) {
        return None;
    }
    let mut dimensions = BTreeSet::new();
    for column in expr.column_refs() {
        let field = grid.schema().index_of(&column.name).ok()?;
        match grid.fields[field] {
            Meaning::Dimension(dimension) => dimensions.insert(dimension),
            Meaning::Column(_) => return None,
        };
    }
    (dimensions.len() == 1).then(|| *dimensions.first().expect("there is one"))
}

pub fn select(grid: &Grid, filters: &[Expr]) -> Result<Selection> {
    let mut selection = Selection::all(grid);
    let mut of_dimension: Vec<Vec<Expr>> = vec![vec![]; grid.rank()];
    for filter in filters.iter().cloned().flat_map(split_conjunction_owned) {
        match only_dimension(grid, &filter) {
            Some(dimension) => of_dimension[dimension].push(filter),
            None => selection.rest.push(filter),
        }
    }
    let mut pieces = 1;
    for (dimension, predicates) in of_dimension.into_iter().enumerate() {
        if predicates.is_empty() {
            continue;
        }
        let ranges = matching(grid, dimension, &predicates)?;
        pieces *= ranges.len().max(1);
        if ranges.len() <= RANGES_MAX && pieces <= RANGES_OF_ALL_MAX {
            selection.ranges[dimension] = ranges;
        } else {
            pieces /= ranges.len();
            let (first, last) = (ranges[0].start, ranges[ranges.len() - 1].end);
            selection.ranges[dimension] = vec![first..last];
            selection.rest.extend(predicates);
        }
    }
    Ok(selection)
}

fn matching(grid: &Grid, dimension: usize, predicates: &[Expr]) -> Result<Vec<Range<u64>>> {
    let axis = &grid.dimensions[dimension].axis;
    let names: Vec<usize> =
        (0..grid.fields.len()).filter(|&field| grid.fields[field] == Meaning::Dimension(dimension)).collect();
    let fields: Vec<Field> =
        names.iter().map(|&field| Field::new(grid.schema().field(field).name(), axis.data_type(), false)).collect();
    let schema = Arc::new(Schema::new(fields));
    let df_schema = DFSchema::try_from(schema.as_ref().clone())?;
    let (properties, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let physical = predicates
        .iter()
        .map(|predicate| create_physical_expr(&unqualified(predicate)?, &df_schema, &properties, &planning))
        .collect::<datafusion::error::Result<Vec<_>>>()?;
    let mut ranges: Vec<Range<u64>> = vec![];
    let extent = grid.dimensions[dimension].extent;
    let mut start = 0;
    while start < extent {
        let end = (start + BATCH).min(extent);
        let values = axis.values(start..end);
        let batch = RecordBatch::try_new(schema.clone(), vec![values; names.len()])?;
        let mut mask: Option<BooleanArray> = None;
        for predicate in &physical {
            let found = predicate.evaluate(&batch)?.into_array(batch.num_rows())?;
            let found = datafusion::common::cast::as_boolean_array(&found)?.clone();
            mask = Some(match mask {
                Some(mask) => arrow::compute::and_kleene(&mask, &found)?,
                None => found,
            });
        }
        let mask = mask.expect("there is at least one predicate");
        let mask = if mask.null_count() > 0 { arrow::compute::prep_null_mask_filter(&mask) } else { mask };
        for (from, to) in mask.values().set_slices() {
            let (from, to) = (start + from as u64, start + to as u64);
            match ranges.last_mut() {
                Some(last) if last.end == from => last.end = to,
                _ => ranges.push(from..to),
            }
        }
        start = end;
    }
    Ok(ranges)
}

/// Whether an expression's value follows from a row alone: no subquery, no random number, nothing that is not known yet.
pub fn is_of_rows(expr: &Expr) -> bool {
    let is_other = |expr: &Expr| {
        matches!(
            expr,
            Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
        )
    };
    !expr.is_volatile() && !expr.exists(|expr| Ok(is_other(expr))).unwrap_or(true)
}

/// Names of columns alone: a filter that is pushed into a scan may name the table, or not.
pub fn unqualified(expr: &Expr) -> datafusion::error::Result<Expr> {
    let changed = expr.clone().transform(|expr| match expr {
        Expr::Column(column) if column.relation.is_some() => {
            Ok(Transformed::yes(Expr::Column(datafusion::common::Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}
