//! A query's predicates on values, on the cells of a tile: comparisons of one column with a number, or with another one of its type, where
//! they lie, anything else by DataFusion on Arrow arrays.
//!
//! Invariant: both ways give the same rows. To DataFusion zeroes of both signs are one number, and a NaN is greater than all numbers: so
//! a comparison falls back to it where a tile has a NaN.

use crate::arithmetic::faster;
use crate::error::Result;
use crate::grid::with_cell_type;
use crate::grid::{CellType, Grid, Picture, Tile, TileReader, unqualified};
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_expr::execution_props::ExecutionProps;
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use std::ops::Range;
use std::sync::Arc;

pub struct Predicate {
    comparisons: Vec<Comparison>,
    /// What is not such a comparison.
    rest: Option<General>,
    /// All of it, for tiles in which floats are not plain numbers.
    all: Option<General>,
    /// Cells of which all columns have the fill value are left out.
    leaves_out_fill: bool,
    /// Columns that must not be zero.
    presence: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Comparison {
    column: usize,
    operator: Operator,
    with: Compared,
}

/// What a column is compared with.
#[derive(Clone, Copy, Debug)]
enum Compared {
    Value(f64),
    /// Of the same type.
    Column(usize),
}

/// An expression on some of a grid's fields.
pub struct General {
    pub expression: Arc<dyn PhysicalExpr>,
    pub fields: Vec<usize>,
    pub schema: SchemaRef,
    /// As other nodes are told of it.
    pub told: Expr,
}

impl General {
    pub fn new(grid: &Grid, expr: &Expr) -> Result<General> {
        let expr = unqualified(expr)?;
        let mut fields = vec![];
        for column in expr.column_refs() {
            fields.push(grid.schema().index_of(&column.name)?);
        }
        fields.sort_unstable();
        let schema =
            Arc::new(Schema::new(fields.iter().map(|&field| grid.schema().field(field).clone()).collect::<Vec<_>>()));
        let df_schema = DFSchema::try_from(schema.as_ref().clone())?;
        let expression =
            create_physical_expr(&expr, &df_schema, &ExecutionProps::new(), &PhysicalPlanningContext::default())?;
        Ok(General { expression: faster(expression)?, fields, schema, told: expr })
    }

    /// Of the grid, that it is computed of; coordinates are none.
    pub fn columns(&self, grid: &Grid) -> Vec<usize> {
        self.fields.iter().filter_map(|&field| grid.fields[field].column()).collect()
    }

    pub fn evaluate(&self, reader: &mut TileReader<'_>) -> Result<ArrayRef> {
        let cells = reader.cells();
        let batch = reader.batch(&self.schema, &self.fields, 0, cells)?;
        Ok(self.expression.evaluate(&batch)?.into_array(cells as usize)?)
    }

    /// At these places of the tile only.
    pub fn evaluate_at(&self, reader: &mut TileReader<'_>, places: &[u32]) -> Result<ArrayRef> {
        let arrays = self.fields.iter().map(|&field| reader.take(field, places)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)?;
        Ok(self.expression.evaluate(&batch)?.into_array(places.len())?)
    }

    /// Leaves those cells of a mask for which it holds. What fails for some cell may do so for one that is no row: then it is
    /// evaluated again, for the rows alone.
    fn narrow(&self, reader: &mut TileReader<'_>, mask: &mut Mask) -> Result<()> {
        match self.mask(reader) {
            Ok(found) => mask.iter_mut().zip(found.values().iter()).for_each(|(slot, found)| *slot &= ones(found)),
            Err(_) => {
                let places = places(mask);
                let found = without_nulls(&self.evaluate_at(reader, &places)?)?;
                for (&place, found) in places.iter().zip(found.values().iter()) {
                    mask[place as usize] &= ones(found);
                }
            }
        }
        Ok(())
    }

    fn mask(&self, reader: &mut TileReader<'_>) -> Result<BooleanArray> {
        without_nulls(&self.evaluate(reader)?)
    }
}

fn without_nulls(found: &ArrayRef) -> Result<BooleanArray> {
    let mask = datafusion::common::cast::as_boolean_array(found)?;
    Ok(if mask.null_count() > 0 { arrow::compute::prep_null_mask_filter(mask) } else { mask.clone() })
}

/// For each cell of a tile, in C order: all ones or all zeroes.
pub type Mask = Vec<u64>;

/// Of the cells that are rows.
pub fn places(mask: &[u64]) -> Vec<u32> {
    let mut places: Vec<u32> = Vec::with_capacity(mask.len() / 16);
    for (chunk, slots) in mask.chunks(16).enumerate() {
        // Most of a selective filter's mask is zeroes.
        if slots.iter().fold(0, |any, slot| any | slot) != 0 {
            let first = chunk as u32 * 16;
            places.extend((first..).zip(slots).filter(|(_, slot)| **slot != 0).map(|(place, _)| place));
        }
    }
    places
}

impl Predicate {
    /// `None`: all rows pass.
    pub fn new(grid: &Grid, filters: &[Expr]) -> Result<Option<Predicate>> {
        let presence = grid.presence.clone();
        let Some(all) = conjunction(filters.iter().cloned()) else {
            let is_any = grid.is_sparse || !presence.is_empty();
            let leaves_out_fill = grid.is_sparse;
            let no_filter = Predicate { comparisons: vec![], rest: None, all: None, leaves_out_fill, presence };
            return Ok(is_any.then_some(no_filter));
        };
        let (mut comparisons, mut rest) = (vec![], vec![]);
        for filter in filters {
            match Comparison::of(grid, filter) {
                Some(comparison) => comparisons.push(comparison),
                None => rest.push(filter.clone()),
            }
        }
        let rest = conjunction(rest).map(|rest| General::new(grid, &rest)).transpose()?;
        let all = if comparisons.is_empty() { None } else { Some(General::new(grid, &all)?) };
        Ok(Some(Predicate { comparisons, rest, all, leaves_out_fill: grid.is_sparse, presence }))
    }

    /// Columns that are read for it.
    pub fn columns(&self, grid: &Grid) -> Vec<usize> {
        if self.leaves_out_fill {
            return (0..grid.columns.len()).collect();
        }
        let fields = self.all.as_ref().or(self.rest.as_ref()).map_or(&[][..], |general| &general.fields);
        let of_filters = fields.iter().filter_map(|&field| grid.fields[field].column());
        of_filters.chain(self.presence.iter().copied()).collect()
    }

    /// Of the tiles, those that may have rows: what is known of their values does not say otherwise.
    pub fn possible(&self, grid: &Grid, tiles: Vec<Tile>) -> Vec<Tile> {
        let is_possible = |tile: &Tile| {
            let is_fill = self.leaves_out_fill && grid.columns.iter().all(|column| column.is_untouched(&tile.bounds));
            !is_fill && !self.holds_nowhere(grid, tile)
        };
        tiles.into_iter().filter(is_possible).collect()
    }

    /// As far as the ranges of values say so: those of columns that are computed only when they have been.
    pub fn holds_nowhere(&self, grid: &Grid, tile: &Tile) -> bool {
        self.comparisons.iter().any(|comparison| comparison.known(grid, &tile.bounds) == Some(false))
    }

    /// What has been compared cell by cell could be left out next time.
    pub fn learn_ranges(&self, grid: &Grid) {
        let columns = self.comparisons.iter().flat_map(Comparison::columns);
        columns.for_each(|column| grid.columns[column].source.learn_ranges());
    }

    pub fn mask(&self, grid: &Grid, reader: &mut TileReader<'_>, mask: &mut Mask) -> Result<()> {
        self.begin(grid, reader, mask)?;
        for comparison in &self.comparisons {
            if comparison.known(grid, &reader.tile.bounds) == Some(true) {
                continue;
            }
            if !comparison.narrow(grid, reader, mask)? {
                self.begin(grid, reader, mask)?;
                return self.all.as_ref().expect("there are comparisons").narrow(reader, mask);
            }
        }
        if let Some(rest) = &self.rest {
            rest.narrow(reader, mask)?;
        }
        Ok(())
    }
}

impl Predicate {
    /// All cells that are rows.
    fn begin(&self, grid: &Grid, reader: &mut TileReader<'_>, mask: &mut Mask) -> Result<()> {
        mask.clear();
        if self.leaves_out_fill {
            mask.resize(reader.cells() as usize, 0);
            for column in (0..grid.columns.len()).filter(|column| !self.presence.contains(column)) {
                keep_what_is_not_fill(grid, column, reader, mask)?;
            }
        } else {
            mask.resize(reader.cells() as usize, u64::MAX);
        }
        for &column in &self.presence {
            let extents = reader.extents.clone();
            let is_there = Comparison { column, operator: Operator::NotEq, with: Compared::Value(0.0) };
            is_there.narrow_by_value::<u8>(0.0, reader.picture(column)?, &extents, mask);
        }
        Ok(())
    }
}

fn keep_what_is_not_fill(grid: &Grid, column: usize, reader: &mut TileReader<'_>, mask: &mut [u64]) -> Result<()> {
    let source = grid.columns[column].source.clone();
    let size = source.data_type().size();
    let extents = reader.extents.clone();
    let picture = reader.picture(column)?;
    for_each_line(picture, &extents, |position, stride, first, count| {
        for (i, slot) in mask[first..first + count].iter_mut().enumerate() {
            // SAFETY: a cell of the box.
            let cell = unsafe { std::slice::from_raw_parts(picture.base().add((position + i * stride) * size), size) };
            *slot |= ones(cell != source.fill());
        }
    });
    Ok(())
}

/// Every value is a 64-bit float, too, in the same order.
pub fn is_exact_in_f64(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(data_type, Float64 | Float32 | Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32)
}

pub fn ones(is_so: bool) -> u64 {
    0u64.wrapping_sub(is_so as u64)
}

impl Comparison {
    fn of(grid: &Grid, filter: &Expr) -> Option<Comparison> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = filter else { return None };
        use Operator::*;
        if !matches!(op, Gt | GtEq | Lt | LtEq | Eq | NotEq) {
            return None;
        }
        let (column, literal, operator) = match (left.as_ref(), right.as_ref()) {
            (Expr::Column(column), Expr::Column(other)) => {
                let ((column, own), (other, others)) = (column_of(grid, column)?, column_of(grid, other)?);
                let are_alike = own == others && grid.columns[column].data_type() == grid.columns[other].data_type();
                return are_alike.then_some(Comparison { column, operator: *op, with: Compared::Column(other) });
            }
            (column, Expr::Literal(literal, _)) => (column, literal, *op),
            (Expr::Literal(literal, _), column) => (column, literal, op.swap()?),
            _ => return None,
        };
        // A wider type holds the same numbers.
        let (column, is_cast) = match column {
            Expr::Cast(cast) => (cast.expr.as_ref(), true),
            column => (column, false),
        };
        let Expr::Column(column) = column else { return None };
        let (column, own) = column_of(grid, column)?;
        let value = match literal {
            ScalarValue::Float64(Some(value)) => *value,
            ScalarValue::Float32(Some(value)) => *value as f64,
            other => match other.cast_to(&DataType::Int64).ok()? {
                ScalarValue::Int64(Some(value)) if value.unsigned_abs() < 1 << 53 => value as f64,
                _ => return None,
            },
        };
        let is_compared_as = matches!(literal.data_type(), DataType::Float64) || !is_cast && literal.data_type() == own;
        let with = Compared::Value(value);
        (is_compared_as && !value.is_nan()).then_some(Comparison { column, operator, with })
    }

    fn columns(&self) -> impl Iterator<Item = usize> + use<> {
        let other = match self.with {
            Compared::Value(_) => None,
            Compared::Column(column) => Some(column),
        };
        std::iter::once(self.column).chain(other)
    }

    /// Whether it holds for all cells of a box, or for none, where the ranges of the values say so.
    fn known(&self, grid: &Grid, bounds: &[Range<u64>]) -> Option<bool> {
        let (low, high) = grid.columns[self.column].range(bounds)?;
        let (least, greatest) = match self.with {
            Compared::Value(value) => (value, value),
            Compared::Column(column) => grid.columns[column].range(bounds)?,
        };
        let (are_one, are_apart) = (low == high && least == greatest && low == least, greatest < low || least > high);
        let (all, none) = match self.operator {
            Operator::Gt => (low > greatest, high <= least),
            Operator::GtEq => (low >= greatest, high < least),
            Operator::Lt => (high < least, low >= greatest),
            Operator::LtEq => (high <= least, low > greatest),
            Operator::Eq => (are_one, are_apart),
            _ => (are_apart, are_one),
        };
        if all { Some(true) } else { none.then_some(false) }
    }

    /// Leaves those cells of a mask for which it holds. False: there is a NaN.
    fn narrow(&self, grid: &Grid, reader: &mut TileReader<'_>, mask: &mut [u64]) -> Result<bool> {
        let data_type = grid.columns[self.column].data_type();
        let extents = reader.extents.clone();
        Ok(match self.with {
            Compared::Value(value) => {
                let picture = reader.picture(self.column)?;
                with_cell_type!(data_type, T => self.narrow_by_value::<T>(value, picture, &extents, mask), false)
            }
            Compared::Column(other) => {
                reader.picture(self.column)?;
                reader.picture(other)?;
                let pictures = [reader.seen(self.column), reader.seen(other)];
                with_cell_type!(data_type, T => self.narrow_by_column::<T>(pictures, &extents, mask), false)
            }
        })
    }

    fn narrow_by_value<T: CellType>(&self, value: f64, picture: &Picture, extents: &[u64], mask: &mut [u64]) -> bool {
        let base = picture.base().cast::<T>();
        let mut is_plain = true;
        for_each_line(picture, extents, |position, stride, first, count| {
            let mask = &mut mask[first..first + count];
            // SAFETY: a line of the box; layers are aligned.
            is_plain &= unsafe {
                match stride {
                    1 => line(std::slice::from_raw_parts(base.add(position), count), value, mask, self.operator),
                    _ => {
                        let cells = (0..count).map(|i| *base.add(position + i * stride));
                        narrowed(cells.map(|cell| (cell.to_f64(), value)), mask, self.operator)
                    }
                }
            };
        });
        is_plain
    }

    fn narrow_by_column<T: CellType>(&self, pictures: [&Picture; 2], extents: &[u64], mask: &mut [u64]) -> bool {
        let [base, other] = pictures.map(|picture| picture.base().cast::<T>());
        let mut is_plain = true;
        for_each_line_of(pictures, extents, |[position, at], [stride, step], first, count| {
            let mask = &mut mask[first..first + count];
            // SAFETY: lines of the box, of both; layers are aligned.
            is_plain &= unsafe {
                let cells = |base: *const T, position| std::slice::from_raw_parts(base.add(position), count);
                match (stride, step) {
                    (1, 0) => line(cells(base, position), (*other.add(at)).to_f64(), mask, self.operator),
                    (1, 1) => {
                        let pairs = cells(base, position).iter().zip(cells(other, at));
                        narrowed(pairs.map(|(cell, other)| (cell.to_f64(), other.to_f64())), mask, self.operator)
                    }
                    _ => {
                        let pairs = (0..count).map(|i| (*base.add(position + i * stride), *other.add(at + i * step)));
                        narrowed(pairs.map(|(cell, other)| (cell.to_f64(), other.to_f64())), mask, self.operator)
                    }
                }
            };
        });
        is_plain
    }
}

/// A column of the grid whose values are exact in 64-bit floats, and the type that the table has.
fn column_of(grid: &Grid, named: &Column) -> Option<(usize, DataType)> {
    let field = grid.schema().index_of(&named.name).ok()?;
    let own = grid.schema().field(field).data_type().clone();
    let column = grid.fields[field].column()?;
    is_exact_in_f64(&own).then_some((column, own))
}

fn line<T: CellType>(cells: &[T], value: f64, mask: &mut [u64], operator: Operator) -> bool {
    narrowed(cells.iter().map(|cell| (cell.to_f64(), value)), mask, operator)
}

/// Leaves those of a mask for which it holds. False: there is a NaN.
#[inline(always)]
fn narrowed(pairs: impl Iterator<Item = (f64, f64)>, mask: &mut [u64], operator: Operator) -> bool {
    match operator {
        Operator::Gt => narrowed_by(pairs, mask, |cell, other| cell > other),
        Operator::GtEq => narrowed_by(pairs, mask, |cell, other| cell >= other),
        Operator::Lt => narrowed_by(pairs, mask, |cell, other| cell < other),
        Operator::LtEq => narrowed_by(pairs, mask, |cell, other| cell <= other),
        Operator::Eq => narrowed_by(pairs, mask, |cell, other| cell == other),
        _ => narrowed_by(pairs, mask, |cell, other| cell != other),
    }
}

#[inline(always)]
fn narrowed_by(pairs: impl Iterator<Item = (f64, f64)>, mask: &mut [u64], holds: impl Fn(f64, f64) -> bool) -> bool {
    let mut plain = u64::MAX;
    for ((cell, other), slot) in pairs.zip(mask) {
        *slot &= ones(holds(cell, other));
        plain &= ones(!cell.is_nan() & !other.is_nan());
    }
    plain == u64::MAX
}

/// Calls `act(position, stride, place, count)` for each line of a box: runs along the innermost dimension, or longer ones where
/// the dimensions before it go on without a gap.
pub fn for_each_line(picture: &Picture, extents: &[u64], mut act: impl FnMut(usize, usize, usize, usize)) {
    for_each_line_of([picture], extents, |[position], [stride], place, count| act(position, stride, place, count));
}

/// The same of several pictures of one box.
fn for_each_line_of<const N: usize>(
    pictures: [&Picture; N],
    extents: &[u64],
    mut act: impl FnMut([usize; N], [usize; N], usize, usize),
) {
    let rank = extents.len();
    let mut inner = (0..rank).rev().find(|&d| extents[d] > 1).unwrap_or(rank - 1);
    let mut count = extents[inner] as usize;
    let strides = pictures.map(|picture| picture.strides[inner]);
    let goes_on = |d: usize, count: usize| {
        pictures.iter().zip(strides).all(|(picture, stride)| picture.strides[d] == count * stride)
    };
    while inner > 0 && (extents[inner - 1] == 1 || goes_on(inner - 1, count)) {
        inner -= 1;
        count *= extents[inner] as usize;
    }
    let lines: u64 = extents[..inner].iter().product();
    let mut index = [0u64; crate::grid::RANK_MAX];
    let mut positions = [0; N];
    for number in 0..lines as usize {
        act(positions, strides, number * count, count);
        for d in (0..inner).rev() {
            let steps = pictures.map(|picture| picture.strides[d]);
            index[d] += 1;
            positions.iter_mut().zip(steps).for_each(|(position, step)| *position += step);
            if index[d] < extents[d] {
                break;
            }
            positions.iter_mut().zip(steps).for_each(|(position, step)| *position -= extents[d] as usize * step);
            index[d] = 0;
        }
    }
}
