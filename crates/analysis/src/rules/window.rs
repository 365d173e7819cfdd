//! Windows along a dimension: `lag(v) OVER (PARTITION BY y, z ORDER BY x)`, moving averages and extremes. Of rows that are partitioned by all
//! other dimensions and ordered by one, neighbours are cells of the same array at a shift. So rows that have all of their neighbours are
//! those of a grid that has its columns at several shifts, and nothing is sorted; each index near an edge is a grid of its own, with those
//! neighbours that there are.

use super::aggregate::{dimension_of, may_be_null};
use super::resolve::{Resolved, column, renamed, resolve, scan_as};
use crate::grid::{Column, Grid, Meaning, is_of_rows, only_dimension};
use crate::scan::GridTable;
use arrow::datatypes::{DataType as ArrowType, Field, Fields};
use datafusion::common::{Column as ColumnName, DFSchema, ScalarValue, TableReference};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::{greatest, least};
use datafusion::functions::math::expr_fn::nanvl;
use datafusion::logical_expr::expr::{NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union, Window, WindowFrame, WindowFrameBound,
    WindowFrameUnits, WindowFunctionDefinition, lit,
};
use std::collections::{BTreeSet, HashMap};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Indices near the edges that have a grid of their own, at most; what reaches further is sorted.
const REACH_MAX: i64 = 16;
/// With fewer cells for each of many grids, rows are sorted sooner than the grids are planned.
const GRID_CELLS_MIN: u64 = 1 << 14;
const GRIDS_FEW: u64 = 8;

/// Of a window and those below it: other frames and orders are windows of their own.
pub fn replaced(window: &Window) -> Result<Option<LogicalPlan>> {
    let (mut input, mut all) = (&window.input, vec![window]);
    while let LogicalPlan::Window(below) = input.as_ref() {
        input = &below.input;
        all.push(below);
    }
    let Some(resolved) = resolve(input)? else { return Ok(None) };
    let grid = &resolved.grid;
    // Of groups there are few, and nodes can have their shares of them.
    let is_grouped = grid.is_shared() && grid.columns.iter().any(|column| column.source.shared_array().is_none());
    if grid.is_sparse || !grid.presence.is_empty() || is_grouped {
        return Ok(None);
    }
    let mut along = None;
    let mut moving = vec![];
    for expr in all.iter().rev().flat_map(|window| &window.window_expr) {
        let Expr::WindowFunction(function) = expr.clone().unalias() else { return Ok(None) };
        let is_known = |column: &&ColumnName| input.schema().has_column(column);
        if !expr.column_refs().iter().all(is_known) {
            return Ok(None);
        }
        let Some((dimension, one)) = Moving::of(&resolved, &function, input.schema())? else { return Ok(None) };
        if *along.get_or_insert(dimension) != dimension {
            return Ok(None);
        }
        moving.push(one);
    }
    let Some(along) = along else { return Ok(None) };
    // Rows that are left out along it are nobody's neighbours.
    if !resolved.filters.iter().all(|filter| only_dimension(grid, filter).is_some_and(|d| d != along)) {
        return Ok(None);
    }
    let extent = grid.dimensions[along].extent as i64;
    let before = moving.iter().map(|one| one.reach.start().saturating_neg()).max().unwrap_or(0).max(0);
    let behind = moving.iter().map(|one| *one.reach.end()).max().unwrap_or(0).max(0);
    if before.saturating_add(behind) > REACH_MAX || extent == 0 {
        return Ok(None);
    }
    let has_all = before.min(extent)..(extent - behind).max(before).min(extent);
    let mut parts: Vec<Range<i64>> = (0..has_all.start).map(|index| index..index + 1).collect();
    if !has_all.is_empty() {
        parts.push(has_all.clone());
    }
    parts.extend((has_all.end..extent).map(|index| index..index + 1));
    let count = parts.len() as u64;
    if count > GRIDS_FEW && grid.cells() < count * GRID_CELLS_MIN {
        return Ok(None);
    }
    if let [part] = parts.as_slice() {
        return planned(&resolved, along, (part.clone(), 1), &moving, &window.schema).map(Some);
    }
    // A union knows no tables that columns are of, and needs names of its own.
    let name = |number: usize| format!("w{number}");
    let own = |(number, field): (usize, &Arc<Field>)| field.as_ref().clone().with_name(name(number));
    let fields: Fields = window.schema.fields().iter().enumerate().map(own).collect();
    let schema = DFSchema::from_unqualified_fields(fields, HashMap::new())?;
    let planned = |part: Range<i64>| {
        let siblings = if part == has_all { 1 } else { count as usize };
        Ok(Arc::new(planned(&resolved, along, (part, siblings), &moving, &schema)?))
    };
    let union = Union::try_new(parts.into_iter().map(planned).collect::<Result<Vec<_>>>()?)?;
    let named = |(number, (qualifier, field)): (usize, (Option<&TableReference>, &Arc<Field>))| {
        column(&name(number)).alias_qualified(qualifier.cloned(), field.name())
    };
    let named: Vec<Expr> = window.schema.iter().enumerate().map(named).collect();
    LogicalPlanBuilder::new(LogicalPlan::Union(union)).project(named)?.build().map(Some)
}

enum Function {
    /// The value there; else this one, or NULL.
    At(Option<ScalarValue>),
    Count,
    Sum,
    Average,
    Least,
    Greatest,
}

/// One function of a row's neighbours.
struct Moving {
    function: Function,
    argument: Expr,
    /// Which neighbours, in indices of the dimension.
    reach: RangeInclusive<i64>,
}

impl Moving {
    /// And the dimension that it moves along.
    fn of(resolved: &Resolved, function: &WindowFunction, schema: &DFSchema) -> Result<Option<(usize, Moving)>> {
        let WindowFunctionParams { args, partition_by, order_by, window_frame, filter, null_treatment, distinct } =
            &function.params;
        if filter.is_some() || *distinct || matches!(null_treatment, Some(NullTreatment::IgnoreNulls)) {
            return Ok(None);
        }
        let grid = &resolved.grid;
        // A dimension by which rows are told apart.
        let dimension = |expr: &Expr| -> Result<Option<usize>> {
            let expr = resolved.on_grid(expr, schema)?;
            let is_distinct = |&d: &usize| grid.dimensions[d].axis.is_distinct(grid.dimensions[d].extent);
            Ok(dimension_of(grid, &expr).filter(is_distinct))
        };
        let [order] = order_by.as_slice() else { return Ok(None) };
        let Some(along) = dimension(&order.expr)? else { return Ok(None) };
        let mut others = BTreeSet::new();
        for expr in partition_by {
            let Some(d) = dimension(expr)? else { return Ok(None) };
            others.insert(d);
        }
        if others.contains(&along) || others.len() + 1 != grid.rank() {
            return Ok(None);
        }
        let Some(rises) = grid.dimensions[along].axis.rises(grid.dimensions[along].extent) else { return Ok(None) };
        let direction = if rises == order.asc { 1 } else { -1 };
        let Some(argument) = args.first().filter(|argument| is_of_rows(argument)) else { return Ok(None) };
        let argument = resolved.on_grid(argument, schema)?;
        let names = grid.schema();
        // Coordinates of the dimension would have to move, too.
        let stays = |name: &str| names.index_of(name).is_ok_and(|field| grid.fields[field].dimension() != Some(along));
        if !argument.column_refs().iter().all(|column| stays(&column.name)) {
            return Ok(None);
        }
        let on_grid = DFSchema::try_from(grid.schema().as_ref().clone())?;
        let (name, is_aggregate) = match &function.fun {
            WindowFunctionDefinition::AggregateUDF(function) => (function.name(), true),
            WindowFunctionDefinition::WindowUDF(function) => (function.name(), false),
        };
        if !is_aggregate {
            let sign = match name {
                "lag" => -direction,
                "lead" => direction,
                _ => return Ok(None),
            };
            let Some((rows, default)) = shift_and_default(args) else { return Ok(None) };
            let output = argument.get_type(&on_grid)?;
            if default.as_ref().is_some_and(|default| default.cast_to(&output).is_err()) {
                return Ok(None);
            }
            let Some(at) = rows.checked_mul(sign) else { return Ok(None) };
            return Ok(Some((along, Moving { function: Function::At(default), argument, reach: at..=at })));
        }
        let Some((first, last)) = frame(window_frame) else { return Ok(None) };
        if args.len() != 1 || first > last || may_be_null(&argument, &on_grid)? {
            return Ok(None);
        }
        use ArrowType::*;
        let own = argument.get_type(&on_grid)?;
        let is_float = matches!(own, Float32 | Float64);
        // So many of them have a sum that is one of 64 bits.
        let narrow = match &argument {
            Expr::Cast(cast) if own == Int64 => cast.expr.get_type(&on_grid)?,
            _ => own.clone(),
        };
        let is_small = matches!(narrow, Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32);
        let function = match name {
            "count" => Function::Count,
            "sum" if is_float || is_small => Function::Sum,
            "avg" if is_float || is_small => Function::Average,
            "min" if is_float || own.is_integer() => Function::Least,
            "max" if is_float || own.is_integer() => Function::Greatest,
            _ => return Ok(None),
        };
        let reach = if direction > 0 { first..=last } else { -last..=-first };
        Ok(Some((along, Moving { function, argument, reach })))
    }

    /// Of rows that have these neighbours. `at`: an expression of a row, as one of its neighbour.
    fn told(
        &self,
        has: impl Fn(i64) -> bool,
        at: impl Fn(&Expr, i64) -> Result<Expr>,
        output: &ArrowType,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let null = || Ok(Expr::Literal(ScalarValue::try_from(output)?, None));
        // Nobody's neighbours are further away than the dimension is long.
        let neighbours: Vec<i64> = self.reach.clone().filter(|&shift| has(shift)).collect();
        let values = |as_type: &ArrowType| -> Result<Vec<Expr>> {
            neighbours.iter().map(|&shift| at(&self.argument, shift)?.cast_to(as_type, schema)).collect()
        };
        let sum = |values: Vec<Expr>| values.into_iter().reduce(|sum, value| sum + value);
        let found = match &self.function {
            Function::Count => Some(lit(neighbours.len() as i64)),
            Function::At(default) => match (values(output)?.pop(), default) {
                (None, Some(default)) => Some(Expr::Literal(default.cast_to(output)?, None)),
                (found, _) => found,
            },
            Function::Sum => sum(values(output)?),
            Function::Average => sum(values(&ArrowType::Float64)?).map(|sum| sum / lit(neighbours.len() as f64)),
            Function::Least | Function::Greatest => {
                let mut values = values(output)?;
                // To the engine a NaN whose sign is set is less than all numbers.
                if matches!(output, ArrowType::Float16 | ArrowType::Float32 | ArrowType::Float64) {
                    let nan = lit(f64::NAN).cast_to(output, schema)?;
                    values = values.into_iter().map(|value| nanvl(value, nan.clone())).collect();
                }
                match (values.len(), &self.function) {
                    (0 | 1, _) => values.pop(),
                    (_, Function::Least) => Some(least(values)),
                    _ => Some(greatest(values)),
                }
            }
        };
        found.map_or_else(null, |found| found.cast_to(output, schema))
    }
}

/// The rows of a range of indices, as a scan of a grid that has what they need of their neighbours.
fn planned(
    resolved: &Resolved,
    along: usize,
    (part, siblings): (Range<i64>, usize),
    moving: &[Moving],
    schema: &DFSchema,
) -> Result<LogicalPlan> {
    let grid = &resolved.grid;
    let extent = grid.dimensions[along].extent as i64;
    let indices = part.start as u64..part.end as u64;
    let has = |shift: i64| part.start + shift >= 0 && part.end + shift <= extent;
    let mut dimensions = grid.dimensions.clone();
    dimensions[along].extent = indices.end - indices.start;
    dimensions[along].axis = dimensions[along].axis.part(indices.clone());
    let moved = |column: &Column, by: i64| {
        let along =
            column.along.iter().map(|&(d, shift)| (d, if d == along { shift + part.start + by } else { shift }));
        column.moved(along.collect())
    };
    let mut axes = grid.axes.clone();
    for field in &grid.fields {
        if let Meaning::Along { dimension, axis } = *field
            && dimension == along
        {
            axes[axis] = grid.axes[axis].part(indices.clone());
        }
    }
    let mut columns: Vec<Column> = grid.columns.iter().map(|column| moved(column, 0)).collect();
    let mut fields = grid.fields.clone();
    let mut names: Vec<String> = grid.schema().fields().iter().map(|field| field.name().clone()).collect();
    let own = names.len();
    // What each field is called that is at a shift.
    let mut shifted: Vec<(usize, i64, String)> = vec![];
    let shifts: BTreeSet<i64> =
        moving.iter().flat_map(|one| one.reach.clone()).filter(|&by| by != 0 && has(by)).collect();
    for by in shifts {
        for field in 0..own {
            let Some(column) = grid.fields[field].column() else { continue };
            let mut name = format!("{}@{by}", names[field]);
            while names.contains(&name) {
                name.push('\'');
            }
            columns.push(moved(&grid.columns[column], by));
            fields.push(Meaning::Column(columns.len() - 1));
            names.push(name.clone());
            shifted.push((field, by, name));
        }
    }
    let mut new = Grid::with_fields(&grid.name, dimensions, columns, axes, (fields, names), false)?;
    new.siblings = siblings;
    let on_new = DFSchema::try_from(new.schema().as_ref().clone())?;
    let at = |expr: &Expr, by: i64| {
        renamed(expr, |name| {
            let field = grid.schema().index_of(name).expect("a field of this grid");
            let there = shifted.iter().find(|(known, shift, _)| (*known, *shift) == (field, by));
            there.map_or_else(|| name.to_owned(), |(_, _, there)| there.clone())
        })
    };
    let mut outputs = resolved.outputs.clone();
    for (one, field) in moving.iter().zip(schema.fields().iter().skip(outputs.len()).collect::<Vec<_>>()) {
        outputs.push(one.told(has, at, field.data_type(), &on_new)?);
    }
    scan_as("grid_window", Arc::new(GridTable(Arc::new(new))), resolved.filters.clone(), outputs, schema)
}

/// How many rows before or behind, of `lag` and `lead`.
fn shift_and_default(args: &[Expr]) -> Option<(i64, Option<ScalarValue>)> {
    let literal = |expr: &Expr| match expr {
        Expr::Literal(value, _) => Some(value.clone()),
        _ => None,
    };
    let rows = match args.get(1) {
        None => 1,
        Some(rows) => match literal(rows)?.cast_to(&ArrowType::Int64).ok()? {
            ScalarValue::Int64(rows) => rows?,
            _ => return None,
        },
    };
    let default = match args.get(2) {
        None => None,
        Some(default) => Some(literal(default)?),
    };
    Some((rows, default))
}

/// Of rows: the first and the last one, from the row itself on.
fn frame(frame: &WindowFrame) -> Option<(i64, i64)> {
    if frame.units != WindowFrameUnits::Rows {
        return None;
    }
    let rows = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => Some(0),
        WindowFrameBound::Preceding(rows) => number(rows)?.checked_neg(),
        WindowFrameBound::Following(rows) => number(rows),
    };
    Some((rows(&frame.start_bound)?, rows(&frame.end_bound)?))
}

/// `None`: all.
fn number(rows: &ScalarValue) -> Option<i64> {
    match rows.cast_to(&ArrowType::Int64).ok()? {
        ScalarValue::Int64(rows) => rows,
        _ => None,
    }
}
