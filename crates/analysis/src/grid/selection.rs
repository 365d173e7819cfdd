//! Which indices of each dimension a query asks for: found by evaluating its predicates on the coordinates, so that they mean
//! exactly what they mean row by row.

use super::Grid;
use crate::error::Result;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::physical_expr::execution_props::ExecutionProps;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
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
        dimensions.insert(grid.fields[field].dimension()?);
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

/// Expressions of one dimension.
struct OfDimension<'a> {
    grid: &'a Grid,
    /// All that are this dimension's coordinates.
    fields: Vec<usize>,
    schema: SchemaRef,
    expressions: Vec<Arc<dyn PhysicalExpr>>,
}

impl OfDimension<'_> {
    fn new<'a>(grid: &'a Grid, dimension: usize, expressions: &[Expr]) -> Result<OfDimension<'a>> {
        let is_its = |field: &usize| grid.fields[*field].dimension() == Some(dimension);
        let fields: Vec<usize> = (0..grid.fields.len()).filter(is_its).collect();
        let schema = Arc::new(grid.schema().project(&fields)?);
        let df_schema = DFSchema::try_from(schema.as_ref().clone())?;
        let (properties, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        let physical = |expr: &Expr| create_physical_expr(&unqualified(expr)?, &df_schema, &properties, &planning);
        let expressions = expressions.iter().map(physical).collect::<datafusion::error::Result<_>>()?;
        Ok(OfDimension { grid, fields, schema, expressions })
    }

    /// On the coordinates of these indices.
    fn evaluate(&self, indices: Range<u64>) -> Result<Vec<ArrayRef>> {
        let rows = (indices.end - indices.start) as usize;
        let axis = |&field: &usize| self.grid.coordinates(field).expect("it is a dimension's").1;
        let values = self.fields.iter().map(|field| axis(field).values(indices.clone())).collect();
        let batch = RecordBatch::try_new(self.schema.clone(), values)?;
        let found = self.expressions.iter().map(|expr| expr.evaluate(&batch)?.into_array(rows));
        Ok(found.collect::<datafusion::error::Result<_>>()?)
    }
}

/// What an expression of one dimension is at these of its indices, one after the other.
pub fn of_coordinates(grid: &Grid, dimension: usize, expr: &Expr, ranges: &[Range<u64>]) -> Result<ArrayRef> {
    let expression = OfDimension::new(grid, dimension, std::slice::from_ref(expr))?;
    let parts = ranges.iter().map(|range| Ok(expression.evaluate(range.clone())?.remove(0)));
    let mut parts = parts.collect::<Result<Vec<ArrayRef>>>()?;
    match parts.len() {
        0 => Ok(expression.evaluate(0..0)?.remove(0)),
        1 => Ok(parts.remove(0)),
        _ => Ok(arrow::compute::concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>())?),
    }
}

fn matching(grid: &Grid, dimension: usize, predicates: &[Expr]) -> Result<Vec<Range<u64>>> {
    let predicates = OfDimension::new(grid, dimension, predicates)?;
    let mut ranges: Vec<Range<u64>> = vec![];
    let extent = grid.dimensions[dimension].extent;
    let mut start = 0;
    while start < extent {
        let end = (start + BATCH).min(extent);
        let mut mask: Option<BooleanArray> = None;
        for found in predicates.evaluate(start..end)? {
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
                | Expr::GroupingSet(_)
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
