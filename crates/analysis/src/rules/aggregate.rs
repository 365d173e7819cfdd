//! Aggregates by dimensions of a grid, or by what is computed of one dimension's coordinates each.

use super::resolve::{Resolved, column, resolve, scan_as};
use crate::grid::{Dimension, Grid, Meaning, is_of_rows, only_dimension};
use crate::predicate::General;
use crate::reduce::{Function, Input, Key, Reduced, ReducedTable, Reduction};
use arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, Operator};
use std::sync::Arc;
use terrace_client::DataType;

pub fn replaced(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let Some(resolved) = resolve(&aggregate.input)? else { return Ok(None) };
    let schema = aggregate.input.schema();
    let grid = resolved.grid.clone();
    let mut keys: Vec<Key> = vec![];
    let mut outputs: Vec<Expr> = vec![];
    for expr in &aggregate.group_expr {
        let expr = resolved.on_grid(&expr.clone().unalias(), schema)?;
        let Some(dimension) = only_dimension(&grid, &expr) else { return Ok(None) };
        // An index is a group only where no other index has its coordinate.
        let Dimension { axis, extent, .. } = &grid.dimensions[dimension];
        let is_index = dimension_of(&grid, &expr).is_some() && axis.is_distinct(*extent);
        let number = keys.iter().position(|known| known.dimension == dimension).unwrap_or(keys.len());
        if number == keys.len() {
            keys.push(Key { dimension, of: vec![], is_index });
        }
        let key = &mut keys[number];
        let part = key.of.iter().position(|known| *known == expr).unwrap_or(key.of.len());
        if part == key.of.len() {
            key.of.push(expr);
            key.is_index &= part == 0;
        }
        outputs.push(column(&Reduced::name(number, part)));
    }
    let mut reductions = vec![];
    let on_grid = DFSchema::try_from(grid.schema().as_ref().clone())?;
    for (number, expr) in aggregate.aggr_expr.iter().enumerate() {
        let field = aggregate.schema.field(aggregate.group_expr.len() + number);
        let Expr::AggregateFunction(function) = expr.clone().unalias() else { return Ok(None) };
        match reduction(&resolved, &function, schema, &on_grid, field.data_type())? {
            Some(reduction) => reductions.push(reduction),
            None => return Ok(None),
        }
        outputs.push(column(&format!("a{number}")));
    }
    let Some(reduced) = Reduced::plan(grid, keys, reductions, resolved.filters, None)? else { return Ok(None) };
    let table = Arc::new(ReducedTable(Arc::new(reduced)));
    scan_as("grid_reduce", table, vec![], outputs, &aggregate.schema).map(Some)
}

pub fn dimension_of(grid: &Grid, expr: &Expr) -> Option<usize> {
    let Expr::Column(column) = expr else { return None };
    match grid.fields[grid.schema().index_of(&column.name).ok()?] {
        Meaning::Dimension(dimension) => Some(dimension),
        Meaning::Along { .. } | Meaning::Column(_) => None,
    }
}

pub fn reduction(
    resolved: &Resolved,
    function: &AggregateFunction,
    schema: &DFSchema,
    on_grid: &DFSchema,
    output: &ArrowType,
) -> Result<Option<Reduction>> {
    let params = &function.params;
    let is_plain = !params.distinct
        && params.filter.is_none()
        && params.order_by.is_empty()
        && params.null_treatment.is_none()
        && params.args.len() == 1;
    let which = match function.func.name() {
        "sum" => Function::Sum,
        "avg" => Function::Average,
        "min" => Function::Least,
        "max" => Function::Greatest,
        "count" => Function::Count,
        "median" => Function::Median,
        _ => return Ok(None),
    };
    if !is_plain || !is_of_rows(&params.args[0]) {
        return Ok(None);
    }
    let grid = &resolved.grid;
    let argument = resolved.on_grid(&params.args[0], schema)?;
    let text = format!("{}({argument})", function.func.name());
    let made =
        |input, cells| Some(Reduction { function: which, input, cells, output: output.clone(), text: text.clone() });
    if may_be_null(&argument, on_grid)? {
        return Ok(None);
    }
    if which == Function::Count {
        // What may fail for some row is computed for each.
        let may_fail = |expr: &Expr| match expr {
            Expr::ScalarFunction(_) | Expr::Cast(_) | Expr::Negative(_) => true,
            Expr::BinaryExpr(binary) => matches!(binary.op, Operator::Divide | Operator::Modulo),
            _ => false,
        };
        let may_fail = argument.exists(|expr| Ok(may_fail(expr)))?;
        return Ok(if may_fail { None } else { made(Input::Rows, DataType::Int64) });
    }
    if let Some(column) = number_column(grid, &argument, which) {
        return Ok(made(Input::Column(column), grid.columns[column].data_type()));
    }
    let own = argument.get_type(on_grid)?;
    use ArrowType::*;
    let (cells, wanted) = match own {
        Float64 => (DataType::Float64, None),
        Int64 => (DataType::Int64, None),
        // The middle of two is another one with more digits.
        _ if which == Function::Median => return Ok(None),
        Float32 => (DataType::Float64, Some(Float64)),
        Int8 | Int16 | Int32 | UInt8 | UInt16 | UInt32 => (DataType::Int64, Some(Int64)),
        _ => return Ok(None),
    };
    let argument = match wanted {
        Some(wanted) => argument.cast_to(&wanted, on_grid)?,
        None => argument,
    };
    Ok(made(Input::Expression(General::new(grid, &argument)?), cells))
}

/// Functions that are NULL only where an argument is, which DataFusion does not know of most.
const PLAIN: &str = "abs acos acosh asin asinh atan atan2 atanh cbrt ceil checked_add checked_multiply checked_subtract cos cosh cot \
                     degrees exp floor ln log10 log2 power radians round signum sin sinh sqrt tan tanh trunc";

pub fn may_be_null(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let any = |exprs: &[&Expr]| -> Result<bool> {
        exprs.iter().try_fold(false, |known, expr| Ok(known || may_be_null(expr, schema)?))
    };
    match expr {
        Expr::ScalarFunction(called) if PLAIN.split(' ').any(|known| known == called.func.name()) => {
            any(&called.args.iter().collect::<Vec<_>>())
        }
        Expr::BinaryExpr(binary) => any(&[&binary.left, &binary.right]),
        Expr::Cast(cast) => any(&[&cast.expr]),
        Expr::Negative(inner) => any(&[inner]),
        other => other.nullable(schema),
    }
}

/// A column of numbers, as it is; or cast to a type that holds all of them, where their sum is the same in either.
fn number_column(grid: &Grid, expr: &Expr, function: Function) -> Option<usize> {
    let is_sum = matches!(function, Function::Sum | Function::Average);
    let (expr, wanted) = match expr {
        Expr::Cast(cast) if is_sum => (cast.expr.as_ref(), Some(cast.field.data_type())),
        other => (other, None),
    };
    let Expr::Column(column) = expr else { return None };
    let column = grid.fields[grid.schema().index_of(&column.name).ok()?].column()?;
    let data_type = grid.columns[column].data_type();
    use DataType::*;
    let is_number =
        matches!(data_type, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float32 | Float64);
    // 64-bit sums are kept as signed ones.
    let is_kept = is_number && !(function == Function::Sum && data_type == UInt64);
    let is_same = match wanted {
        None => true,
        // Means are of floats; sums of 64-bit integers may be greater than a 64-bit integer.
        Some(ArrowType::Float64) => function == Function::Average || !matches!(data_type, Int64 | UInt64),
        Some(ArrowType::Int64) => matches!(data_type, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32),
        Some(ArrowType::UInt64) => matches!(data_type, UInt8 | UInt16 | UInt32 | UInt64),
        Some(_) => false,
    };
    (is_kept && is_same).then_some(column)
}
