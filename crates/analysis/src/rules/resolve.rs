//! Sees through projections, aliases and filters to the grid below a plan.

use crate::grid::{Grid, is_of_rows, unqualified};
use crate::reduce::ReducedTable;
use crate::scan::GridTable;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use std::sync::Arc;

/// A plan as a grid: its rows, and its columns as expressions on the grid's fields.
pub struct Resolved {
    pub grid: Arc<Grid>,
    pub filters: Vec<Expr>,
    pub outputs: Vec<Expr>,
}

pub fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

pub fn resolve(plan: &LogicalPlan) -> Result<Option<Resolved>> {
    match plan {
        LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
            let Ok(provider) = source_as_provider(&scan.source) else { return Ok(None) };
            let mut resolved = if let Some(table) = provider.downcast_ref::<GridTable>() {
                let names = table.0.schema();
                let outputs = names.fields().iter().map(|field| column(field.name())).collect();
                Resolved { grid: table.0.clone(), filters: vec![], outputs }
            } else if let Some(table) = provider.downcast_ref::<ReducedTable>() {
                match table.0.as_grid()? {
                    Some((grid, filters, outputs)) => Resolved { grid: Arc::new(grid), filters, outputs },
                    None => return Ok(None),
                }
            } else {
                return Ok(None);
            };
            for filter in &scan.filters {
                if !is_of_rows(filter) {
                    return Ok(None);
                }
                // Of a reduced grid nothing is pushed into the scan.
                resolved.filters.push(unqualified(filter)?);
            }
            if let Some(projection) = &scan.projection {
                resolved.outputs = projection.iter().map(|&field| resolved.outputs[field].clone()).collect();
            }
            Ok(Some(resolved))
        }
        LogicalPlan::SubqueryAlias(alias) => resolve(&alias.input),
        LogicalPlan::Filter(filter) if is_of_rows(&filter.predicate) => {
            let Some(mut resolved) = resolve(&filter.input)? else { return Ok(None) };
            let predicate = resolved.on_grid(&filter.predicate, filter.input.schema())?;
            // Joins ask for keys that are not null: cells never are.
            let on_grid = DFSchema::try_from(resolved.grid.schema().as_ref().clone())?;
            let says_nothing =
                |expr: &Expr| matches!(expr, Expr::IsNotNull(inner) if inner.nullable(&on_grid).is_ok_and(|is| !is));
            let parts = split_conjunction_owned(predicate);
            resolved.filters.extend(parts.into_iter().filter(|part| !says_nothing(part)));
            Ok(Some(resolved))
        }
        LogicalPlan::Projection(projection) => {
            let Some(mut resolved) = resolve(&projection.input)? else { return Ok(None) };
            let schema = projection.input.schema();
            let is_fixed = projection.expr.iter().all(is_of_rows);
            let outputs: Result<Vec<Expr>> =
                projection.expr.iter().map(|expr| resolved.on_grid(&expr.clone().unalias(), schema)).collect();
            resolved.outputs = outputs?;
            Ok(is_fixed.then_some(resolved))
        }
        _ => Ok(None),
    }
}

impl Resolved {
    /// An expression on the plan's columns, as one on the grid's fields.
    pub fn on_grid(&self, expr: &Expr, schema: &DFSchema) -> Result<Expr> {
        let changed = expr.clone().transform(|expr| match expr {
            Expr::Column(column) => {
                let number = schema.index_of_column(&column)?;
                Ok(Transformed::yes(self.outputs[number].clone()))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.data)
    }
}

/// Names of columns in an expression on a grid's fields changed.
pub fn renamed(expr: &Expr, name: impl Fn(&str) -> String) -> Result<Expr> {
    let changed = expr.clone().transform(|expr| match expr {
        Expr::Column(old) => Ok(Transformed::yes(column(&name(&old.name)))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// A scan of a table of this crate below a projection that has the given schema.
pub fn scan_as(
    name: &str,
    provider: Arc<dyn datafusion::catalog::TableProvider>,
    filters: Vec<Expr>,
    outputs: Vec<Expr>,
    schema: &DFSchema,
) -> Result<LogicalPlan> {
    let table = TableReference::bare(name);
    let qualified = |expr: &Expr| -> Result<Expr> {
        let changed = expr.clone().transform(|expr| match expr {
            Expr::Column(column) => Ok(Transformed::yes(Expr::Column(Column::new(Some(table.clone()), column.name)))),
            other => Ok(Transformed::no(other)),
        })?;
        Ok(changed.data)
    };
    let filters = filters.iter().map(qualified).collect::<Result<Vec<_>>>()?;
    let scan = LogicalPlanBuilder::scan_with_filters(table.clone(), provider_as_source(provider), None, filters)?;
    let named = outputs
        .iter()
        .zip(schema.iter())
        .map(|(output, (qualifier, field))| Ok(qualified(output)?.alias_qualified(qualifier.cloned(), field.name())))
        .collect::<Result<Vec<_>>>()?;
    scan.project(named)?.build()
}
