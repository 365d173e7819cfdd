//! `interpolate('run1', 'velocity', z, y, x)`: what a field is at a point between its cells, linearly along each dimension.
//!
//! The table and its column are found when the query is planned, so the field is as the query's other tables are: at one moment, whole
//! steps only. Points are taken block by block of the grid, so that neighbours share what must be read for them.
//!
//! At a coordinate of the grid it is that cell and nothing of its neighbours; outside, or where a coordinate is missing or NaN, NULL.

use crate::axis::is_in_order;
use crate::error::{Error, Result};
use crate::grid::{CellType, Column, Grid, RANK_MAX, with_cell_type};
use crate::scan::GridTable;
use crate::tables::{CATALOG, ROOT_SCHEMA};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, TableReference};
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::prelude::SessionContext;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use terrace_client::Kind;

pub const NAME: &str = "interpolate";
const EXAMPLE: &str =
    "interpolate('run1', 'velocity', z, y, x), with a coordinate for each dimension of the table run1, in their order";
/// Cells of a block: those between its points are read in vain, where they do not lie in one piece of memory.
const BLOCK_CELLS: f64 = 4096.0;
/// Coordinates of a dimension, all of which are looked at.
const EXTENT_MAX: u64 = 1 << 24;

pub fn interpolate() -> ScalarUDF {
    ScalarUDF::new_from_impl(Interpolate { signature: Signature::user_defined(Volatility::Immutable), field: None })
}

/// What a call of `interpolate` reads.
pub fn grid_of(expr: &Expr) -> Option<Arc<Grid>> {
    let Expr::ScalarFunction(called) = expr else { return None };
    let function = called.func.inner().downcast_ref::<Interpolate>()?;
    function.field.as_ref().map(|field| field.grid.clone())
}

#[derive(Debug)]
struct Interpolate {
    signature: Signature,
    /// Known once the query is planned.
    field: Option<Arc<Field>>,
}

impl PartialEq for Interpolate {
    fn eq(&self, other: &Interpolate) -> bool {
        self.field.as_ref().map(Arc::as_ptr) == other.field.as_ref().map(Arc::as_ptr)
    }
}

impl Eq for Interpolate {}

impl Hash for Interpolate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.field.as_ref().map(Arc::as_ptr).hash(state);
    }
}

/// What is interpolated.
struct Field {
    grid: Arc<Grid>,
    column: usize,
    /// Of each dimension.
    coordinates: Vec<Coordinates>,
    /// Extents of a block.
    block: Vec<u64>,
}

impl std::fmt::Debug for Field {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}.{}", self.grid.name, self.column().name)
    }
}

/// A row's point that lies inside.
struct Point {
    row: usize,
    block: u64,
    /// Along each dimension the cell at or before it, and how far it lies on the way to the next one.
    place: [(u64, f64); RANK_MAX],
}

struct Coordinates {
    values: Float64Array,
    descends: bool,
}

impl Coordinates {
    /// The cell at or before a point, and how far the point lies on the way to the next one: 0 up to 1.
    fn place(&self, point: f64) -> Option<(u64, f64)> {
        let values = self.values.values();
        let is_before = |value: &f64| if self.descends { *value >= point } else { *value <= point };
        let after = values.partition_point(is_before);
        let (at, own) = (after.checked_sub(1)?, values[after.checked_sub(1)?]);
        if own == point {
            return Some((at as u64, 0.0));
        }
        let next = values.get(after)?;
        Some((at as u64, (point - own) / (next - own)))
    }
}

/// Plans that ask for it get to know the fields.
pub async fn bound(context: &SessionContext, plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut wanted: Vec<(String, String)> = vec![];
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                wanted.extend(names(expr)?);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    if wanted.is_empty() {
        return Ok(plan);
    }
    let mut known: HashMap<(String, String), Arc<ScalarUDF>> = HashMap::new();
    let mut grids: HashMap<String, Arc<Grid>> = HashMap::new();
    for (table, column) in wanted {
        let grid = match grids.get(&table) {
            Some(grid) => grid.clone(),
            None => {
                let grid = grid_named(context, &table).await?;
                grids.insert(table.clone(), grid.clone());
                grid
            }
        };
        let field = Some(Arc::new(Field::new(grid, &table, &column)?));
        let signature = Signature::user_defined(Volatility::Immutable);
        known.insert((table, column), Arc::new(ScalarUDF::new_from_impl(Interpolate { signature, field })));
    }
    let with_field = |expr: Expr| {
        let Some(func) = names(&expr)?.and_then(|names| known.get(&names)) else { return Ok(Transformed::no(expr)) };
        let Expr::ScalarFunction(ScalarFunction { args, .. }) = expr else { return Ok(Transformed::no(expr)) };
        Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func: func.clone(), args })))
    };
    let bound = plan.transform_up_with_subqueries(|plan| plan.map_expressions(|expr| expr.transform_up(with_field)));
    Ok(bound.data()?)
}

/// The table and the column of such a call.
fn names(expr: &Expr) -> DataFusionResult<Option<(String, String)>> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else { return Ok(None) };
    if func.name() != NAME {
        return Ok(None);
    }
    let text = |number: usize| match args.get(number) {
        Some(Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _)) => Ok(text.clone()),
        _ => {
            Err(Error::invalid("interpolate() begins with the names of a table and of its column, as texts")
                .hint(EXAMPLE))
        }
    };
    Ok(Some((text(0)?, text(1)?)))
}

async fn grid_named(context: &SessionContext, table: &str) -> Result<Arc<Grid>> {
    let missing = || Error::new(Kind::NotFound, format!("interpolate(): there is no table `{table}`")).hint(EXAMPLE);
    let provider = context.table_provider(TableReference::full(CATALOG, ROOT_SCHEMA, table)).await;
    let provider = provider.map_err(|error| match error.find_root() {
        datafusion::error::DataFusionError::External(_) => error.into(),
        _ => missing(),
    })?;
    Ok(provider.downcast_ref::<GridTable>().ok_or_else(missing)?.0.clone())
}

impl Field {
    fn new(grid: Arc<Grid>, table: &str, column: &str) -> Result<Field> {
        let wrong = |why: String| Error::invalid(format!("interpolate(): {why}"));
        let Some(number) = grid.columns.iter().position(|known| known.name == column) else {
            let known: Vec<&str> = grid.columns.iter().map(|column| column.name.as_str()).collect();
            return Err(Error::new(Kind::NotFound, format!("interpolate(): `{table}` has no array `{column}`"))
                .hint(format!("it has {}", known.join(", "))));
        };
        let data_type = grid.columns[number].data_type();
        if with_cell_type!(data_type, T => size_of::<T>() == 0, true) {
            return Err(wrong(format!(
                "`{column}` is of {data_type}; it is of integers and of 32-bit and 64-bit floats"
            )));
        }
        if grid.is_sparse || !grid.presence.is_empty() {
            return Err(wrong(format!("not all cells of `{table}` are there")));
        }
        let coordinates = grid.dimensions.iter().map(|dimension| {
            let values = match dimension.extent {
                0..=EXTENT_MAX => dimension.axis.values(0..dimension.extent),
                more => {
                    return Err(wrong(format!("`{}` has {more} coordinates: at most {EXTENT_MAX}", dimension.name)));
                }
            };
            if !values.data_type().is_numeric() {
                return Err(wrong(format!(
                    "coordinates of `{}` are no numbers but {}",
                    dimension.name,
                    values.data_type()
                )));
            }
            let values = arrow::compute::cast(&values, &DataType::Float64)?;
            if !values.as_primitive::<Float64Type>().values().iter().all(|value| value.is_finite()) {
                return Err(wrong(format!("not all coordinates of `{}` are finite numbers", dimension.name)));
            }
            let descends = match (is_in_order(&values, false), is_in_order(&values, true)) {
                (true, _) => false,
                (_, true) => true,
                _ => return Err(wrong(format!("coordinates of `{}` neither ascend nor descend", dimension.name))),
            };
            Ok(Coordinates { values: values.as_primitive::<Float64Type>().clone(), descends })
        });
        let coordinates = coordinates.collect::<Result<Vec<_>>>()?;
        let side = BLOCK_CELLS.powf(1.0 / grid.rank().max(1) as f64) as u64;
        let block = grid.dimensions.iter().map(|dimension| dimension.extent.clamp(1, side)).collect();
        Ok(Field { grid, column: number, coordinates, block })
    }

    fn column(&self) -> &Column {
        &self.grid.columns[self.column]
    }

    /// `points`: of each dimension a coordinate for each row.
    fn at(&self, points: &[ArrayRef], rows: usize) -> Result<Float64Array> {
        let rank = self.grid.rank();
        let points: Vec<&Float64Array> = points.iter().map(|points| points.as_primitive::<Float64Type>()).collect();
        let mut found = vec![None; rows];
        let mut inside: Vec<Point> = Vec::with_capacity(rows);
        for row in 0..rows {
            let mut place = [(0, 0.0); RANK_MAX];
            let mut block = 0;
            let is_inside = (0..rank).all(|d| {
                let point = points[d].is_valid(row).then(|| points[d].value(row));
                let Some(at) = point.and_then(|point| self.coordinates[d].place(point)) else { return false };
                place[d] = at;
                block = block * self.grid.dimensions[d].extent.div_ceil(self.block[d]) + at.0 / self.block[d];
                true
            });
            if is_inside {
                inside.push(Point { row, block, place });
            }
        }
        inside.sort_by_key(|point| point.block);
        for points in inside.chunk_by(|one, other| one.block == other.block) {
            self.in_block(points, &mut found)?;
        }
        Ok(found.into())
    }

    fn in_block(&self, points: &[Point], found: &mut [Option<f64>]) -> Result<()> {
        let rank = self.grid.rank();
        // All cells that have a part in some row.
        let places = |d: usize| points.iter().map(move |point| point.place[d]);
        let first = |d: usize| places(d).map(|(at, _)| at).min().unwrap_or(0);
        let last = |d: usize| places(d).map(|(at, way)| at + u64::from(way > 0.0)).max().unwrap_or(0);
        let bounds: Vec<Range<u64>> = (0..rank).map(|d| first(d)..last(d) + 1).collect();
        let picture = self.column().picture(&bounds)?;
        let value = |position: usize| {
            // SAFETY: a cell of the box, which the picture keeps; layers are aligned.
            with_cell_type!(self.column().data_type(), T => unsafe { (*picture.base().cast::<T>().add(position)).to_f64() },
                unreachable!("numbers only"))
        };
        for Point { row, place, .. } in points {
            let mut sum = 0.0;
            'corners: for corner in 0..1usize << rank {
                let (mut weight, mut position) = (1.0, 0);
                for d in 0..rank {
                    let (at, way) = place[d];
                    let is_next = corner >> d & 1 == 1;
                    weight *= if is_next { way } else { 1.0 - way };
                    // No part of it, whatever it is: there may be no such cell, or a NaN.
                    if weight == 0.0 {
                        continue 'corners;
                    }
                    position += (at - bounds[d].start + u64::from(is_next)) as usize * picture.strides[d];
                }
                sum += weight * value(position);
            }
            found[*row] = Some(sum);
        }
        Ok(())
    }
}

impl ScalarUDFImpl for Interpolate {
    fn name(&self) -> &str {
        NAME
    }
    fn signature(&self) -> &Signature {
        &self.signature
    }
    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let is_text = |data_type: &DataType| matches!(data_type, DataType::Utf8 | DataType::Utf8View);
        let is_number = |data_type: &DataType| data_type.is_numeric() || data_type.is_null();
        match types {
            [table, column, points @ ..]
                if is_text(table) && is_text(column) && !points.is_empty() && points.iter().all(is_number) =>
            {
                let numbers = points.iter().map(|_| DataType::Float64);
                Ok([table.clone(), column.clone()].into_iter().chain(numbers).collect())
            }
            _ => Err(Error::invalid("interpolate() takes the names of a table and of its column, and numbers")
                .hint(EXAMPLE)
                .into()),
        }
    }
    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Float64)
    }
    fn invoke_with_args(&self, called: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let Some(field) = &self.field else {
            return Err(Error::invalid("interpolate() is known in SQL alone").into());
        };
        let points = &called.args[2..];
        if points.len() != field.grid.rank() {
            let names: Vec<&str> = field.grid.dimensions.iter().map(|dimension| dimension.name.as_str()).collect();
            return Err(Error::invalid(format!(
                "interpolate(): `{}` has {} dimensions ({}), and {} coordinates were given",
                field.grid.name,
                names.len(),
                names.join(", "),
                points.len()
            ))
            .into());
        }
        let is_constant = points.iter().all(|point| matches!(point, ColumnarValue::Scalar(_)));
        let rows = if is_constant { 1 } else { called.number_rows };
        let points = points.iter().map(|point| point.to_array(rows)).collect::<DataFusionResult<Vec<_>>>()?;
        let found = field.at(&points, rows)?;
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&found, 0)?),
            false => ColumnarValue::Array(Arc::new(found)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_between_coordinates_that_ascend_or_descend() {
        let of = |values: &[f64], descends| Coordinates { values: values.to_vec().into(), descends };
        let up = of(&[1.0, 2.0, 4.0], false);
        assert_eq!(up.place(1.0), Some((0, 0.0)));
        assert_eq!(up.place(3.0), Some((1, 0.5)));
        assert_eq!(up.place(4.0), Some((2, 0.0)));
        assert_eq!((up.place(0.9), up.place(4.1), up.place(f64::NAN)), (None, None, None));
        let down = of(&[4.0, 2.0, 1.0], true);
        assert_eq!(down.place(4.0), Some((0, 0.0)));
        assert_eq!(down.place(3.5), Some((0, 0.25)));
        assert_eq!(down.place(1.0), Some((2, 0.0)));
        assert_eq!((down.place(4.1), down.place(0.9), down.place(f64::NAN)), (None, None, None));
    }
}
