//! Aggregates by a whole number that is computed of each cell: classes of values, remainders, values of integer arrays.

use super::aggregate::{may_be_null, reduction};
use super::resolve::{column, resolve};
use crate::extreme::extremes;
use crate::grid::is_of_rows;
use crate::predicate::General;
use crate::reduce::{Classes, ClassesTable, Function};
use crate::sum::sum;
use arrow::datatypes::DataType as ArrowType;
use datafusion::common::DFSchema;
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit};
use std::sync::Arc;

pub fn replaced(aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let ([key], Some(resolved)) = (aggregate.group_expr.as_slice(), resolve(&aggregate.input)?) else {
        return Ok(None);
    };
    let schema = aggregate.input.schema();
    let grid = resolved.grid.clone();
    // Nodes have a plan of their own for it; groups of groups are few, and the ones below are computed in shares and within limits.
    let has_computed = grid.columns.iter().any(|column| column.source.is_computed());
    if grid.is_shared() || has_computed || !is_of_rows(key) {
        return Ok(None);
    }
    let key = resolved.on_grid(&key.clone().unalias(), schema)?;
    let on_grid = DFSchema::try_from(grid.schema().as_ref().clone())?;
    use ArrowType::*;
    let is_whole = matches!(key.get_type(&on_grid)?, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32);
    if !is_whole || may_be_null(&key, &on_grid)? {
        return Ok(None);
    }
    let mut reductions = vec![];
    for (number, expr) in aggregate.aggr_expr.iter().enumerate() {
        let field = aggregate.schema.field(1 + number);
        let Expr::AggregateFunction(function) = expr.clone().unalias() else { return Ok(None) };
        match reduction(&resolved, &function, schema, &on_grid, field.data_type())? {
            Some(reduction) => reductions.push(reduction),
            None => return Ok(None),
        }
    }
    let functions: Vec<Function> = reductions.iter().map(|reduction| reduction.function).collect();
    let key = General::new(&grid, &key.cast_to(&Int64, &on_grid)?)?;
    let Some(classes) = Classes::plan(grid, key, reductions, resolved.filters)? else { return Ok(None) };
    // Those of all tables are merged as rows are.
    let [max, min] = extremes().map(|function| {
        let function = Arc::new(function);
        move |of: Expr| {
            Expr::AggregateFunction(AggregateFunction::new_udf(function.clone(), vec![of], false, None, vec![], None))
        }
    });
    let table = provider_as_source(Arc::new(ClassesTable(Arc::new(classes))));
    let states = LogicalPlanBuilder::scan("grid_classes", table, None)?.build()?;
    let mut merged = vec![sum(column(Classes::ROWS)).alias(Classes::ROWS)];
    for (number, function) in functions.iter().enumerate() {
        let state = Classes::state(number);
        merged.extend(match function {
            Function::Count | Function::Median => None,
            Function::Sum | Function::Average => Some(sum(column(&state)).alias(state)),
            Function::Least => Some(min(column(&state)).alias(state)),
            Function::Greatest => Some(max(column(&state)).alias(state)),
        });
    }
    let merged = LogicalPlanBuilder::from(states).aggregate(vec![column(Classes::KEY)], merged)?.build()?;
    let rows = coalesce(vec![column(Classes::ROWS), lit(0i64)]);
    let results = functions.iter().enumerate().map(|(number, function)| {
        let state = column(&Classes::state(number));
        match function {
            Function::Count | Function::Median => rows.clone(),
            Function::Average => state / cast(rows.clone(), Float64),
            Function::Sum | Function::Least | Function::Greatest => state,
        }
    });
    let results: Vec<Expr> = std::iter::once(column(Classes::KEY)).chain(results).collect();
    let named = results.into_iter().zip(aggregate.schema.iter()).map(|(result, (qualifier, field))| {
        let result = result.cast_to(field.data_type(), merged.schema())?;
        Ok(result.alias_qualified(qualifier.cloned(), field.name()))
    });
    let named = named.collect::<Result<Vec<_>>>()?;
    LogicalPlanBuilder::from(merged).project(named)?.build().map(Some)
}
