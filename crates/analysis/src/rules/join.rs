//! Inner joins on dimensions: where dimensions of one side meet dimensions of the other whose coordinates are the same, the two are
//! one grid. Columns of either side are the same along dimensions that only the other one has; in a cross join that is all of them.

use super::aggregate::dimension_of;
use super::resolve::{Resolved, renamed, resolve, scan_as};
use crate::axis::Axis;
use crate::grid::{Column, Dimension, Grid, Meaning, RANK_MAX, TILE_CELLS, is_of_rows};
use crate::scan::GridTable;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan};
use std::sync::Arc;

pub fn replaced(join: &Join) -> Result<Option<LogicalPlan>> {
    if join.join_type != JoinType::Inner {
        return Ok(None);
    }
    let (Some(left), Some(right)) = (resolve(&join.left)?, resolve(&join.right)?) else { return Ok(None) };
    if left.grid.is_sparse || right.grid.is_sparse {
        return Ok(None);
    }
    // Pairs of dimensions; all other conditions are filters.
    let mut pairs: Vec<(usize, usize)> = vec![];
    let mut conditions: Vec<(Expr, Expr)> = vec![];
    for (on_left, on_right) in &join.on {
        let on_left = left.on_grid(on_left, join.left.schema())?;
        let on_right = right.on_grid(on_right, join.right.schema())?;
        match (dimension_of(&left.grid, &on_left), dimension_of(&right.grid, &on_right)) {
            (Some(l), Some(r)) if !pairs.iter().any(|&(known_l, known_r)| l == known_l || r == known_r) => {
                pairs.push((l, r));
            }
            _ => conditions.push((on_left, on_right)),
        }
    }
    let is_covered = |side: &Resolved| pairs.len() == side.grid.rank();
    let is_product = !is_covered(&left) && !is_covered(&right);
    if is_product && !(conditions.is_empty() && is_cheap(&left, &right, &pairs)) {
        return Ok(None);
    }
    let is_swapped = match is_product {
        true => left.grid.cells() < right.grid.cells(),
        false => !is_covered(&right),
    };
    let (wide, narrow) = if is_swapped { (&right, &left) } else { (&left, &right) };
    let pairs: Vec<(usize, usize)> = pairs.into_iter().map(|(l, r)| if is_swapped { (r, l) } else { (l, r) }).collect();
    let Some(zipped) = zip(wide, narrow, &pairs)? else { return Ok(None) };
    let Zipped { grid, names_of_narrow } = zipped;
    let of_narrow = |expr: &Expr| {
        renamed(expr, |name| {
            let field = narrow.grid.schema().index_of(name).expect("a field of this grid");
            names_of_narrow[field].clone()
        })
    };
    let of_left = |expr: &Expr| if is_swapped { of_narrow(expr) } else { Ok(expr.clone()) };
    let of_right = |expr: &Expr| if is_swapped { Ok(expr.clone()) } else { of_narrow(expr) };
    let mut filters = left.filters.iter().map(of_left).collect::<Result<Vec<_>>>()?;
    filters.extend(right.filters.iter().map(of_right).collect::<Result<Vec<_>>>()?);
    for (on_left, on_right) in &conditions {
        filters.push(of_left(on_left)?.eq(of_right(on_right)?));
    }
    let mut outputs = left.outputs.iter().map(of_left).collect::<Result<Vec<_>>>()?;
    outputs.extend(right.outputs.iter().map(of_right).collect::<Result<Vec<_>>>()?);
    let grid = Arc::new(grid);
    if let Some(filter) = &join.filter {
        let both = Resolved { grid: grid.clone(), filters: vec![], outputs: outputs.clone() };
        filters.push(both.on_grid(filter, &join.schema)?);
    }
    if !filters.iter().all(is_of_rows) {
        return Ok(None);
    }
    scan_as("grid_zip", Arc::new(GridTable(grid)), filters, outputs, &join.schema).map(Some)
}

/// A product is read tile by tile, however few of its cells are rows: where values decide which are, or must be equal, a join of
/// rows looks at fewer, unless there are not many at all. And all tiles are known before the first is read.
fn is_cheap(left: &Resolved, right: &Resolved, pairs: &[(usize, usize)]) -> bool {
    let own = |side: &Resolved, met: &dyn Fn(usize) -> bool| {
        let unmet = side.grid.dimensions.iter().enumerate().filter(|(d, _)| !met(*d));
        unmet.fold(1u64, |cells, (_, dimension)| cells.saturating_mul(dimension.extent))
    };
    let (only_left, only_right) =
        (own(left, &|d| pairs.iter().any(|pair| pair.0 == d)), own(right, &|d| pairs.iter().any(|pair| pair.1 == d)));
    let (wide, outer) = match left.grid.cells() < right.grid.cells() {
        true => (right.grid.cells(), only_left),
        false => (left.grid.cells(), only_right),
    };
    let by_values = |side: &Resolved| {
        let of_values = |filter: &Expr| {
            filter.column_refs().iter().any(|column| {
                let field = side.grid.schema().index_of(&column.name);
                field.is_ok_and(|field| matches!(side.grid.fields[field], Meaning::Column(_)))
            })
        };
        !side.grid.presence.is_empty() || side.filters.iter().any(of_values)
    };
    let cells = wide.saturating_mul(outer);
    let tiles = outer.saturating_mul(wide / TILE_CELLS + 1);
    tiles <= PRODUCT_TILES_MAX && (cells <= PRODUCT_SMALL || !(by_values(left) || by_values(right)))
}

const PRODUCT_SMALL: u64 = 4 << 20;
const PRODUCT_TILES_MAX: u64 = 1 << 17;

struct Zipped {
    grid: Grid,
    /// What the narrow side's fields are called in the grid.
    names_of_narrow: Vec<String>,
}

fn zip(wide: &Resolved, narrow: &Resolved, pairs: &[(usize, usize)]) -> Result<Option<Zipped>> {
    let (wide, narrow) = (&wide.grid, &narrow.grid);
    // What only the narrow side has comes first: along the others cells lie side by side.
    let own: Vec<usize> = (0..narrow.rank()).filter(|n| !pairs.iter().any(|(_, met)| met == n)).collect();
    let mut dimensions: Vec<Dimension> = own.iter().map(|&n| narrow.dimensions[n].clone()).collect();
    let cells = dimensions.iter().try_fold(wide.cells(), |cells, dimension| cells.checked_mul(dimension.extent));
    if dimensions.len() + wide.rank() > RANK_MAX || cells.is_none() {
        return Ok(None);
    }
    dimensions.extend(wide.dimensions.iter().cloned());
    let own_count = own.len();
    // By how much an index of each side is greater than that of the zipped grid.
    let mut wide_shift = vec![0i64; wide.rank()];
    let mut narrow_shift = vec![0i64; narrow.rank()];
    let mut met = vec![0; narrow.rank()];
    own.iter().enumerate().for_each(|(position, &n)| met[n] = position);
    for &(w, n) in pairs {
        let (near, other) = (&wide.dimensions[w], &narrow.dimensions[n]);
        let Some(shift) = near.axis.shift_to(near.extent, &other.axis, other.extent) else { return Ok(None) };
        let first = (-shift).max(0);
        let end = (near.extent as i64).min(other.extent as i64 - shift).max(first);
        met[n] = own_count + w;
        dimensions[met[n]].extent = (end - first) as u64;
        if let Axis::Integer { low, step } = near.axis {
            dimensions[met[n]].axis = Axis::Integer { low: low.wrapping_add(step.wrapping_mul(first)), step };
        }
        wide_shift[w] = first;
        narrow_shift[n] = first + shift;
    }
    let shifted = |column: &Column, dimension: &dyn Fn(usize) -> (usize, i64)| {
        let along = column.along.iter().map(|&(d, shift)| {
            let (d, more) = dimension(d);
            (d, shift + more)
        });
        column.moved(along.collect())
    };
    let mut columns: Vec<Column> =
        wide.columns.iter().map(|column| shifted(column, &|d| (own_count + d, wide_shift[d]))).collect();
    columns.extend(narrow.columns.iter().map(|column| shifted(column, &|d| (met[d], narrow_shift[d]))));
    let mut names: Vec<String> = wide.schema().fields().iter().map(|field| field.name().clone()).collect();
    let mut names_of_narrow = vec![];
    for field in narrow.schema().fields() {
        let mut name = field.name().clone();
        while names.contains(&name) {
            name.push('\'');
        }
        names.push(name.clone());
        names_of_narrow.push(name);
    }
    let of_wide = wide.fields.iter().map(|field| match *field {
        Meaning::Dimension(d) => Meaning::Dimension(own_count + d),
        Meaning::Column(c) => Meaning::Column(c),
    });
    let mut fields: Vec<Meaning> = of_wide.collect();
    fields.extend(narrow.fields.iter().map(|field| match *field {
        Meaning::Dimension(d) => Meaning::Dimension(met[d]),
        Meaning::Column(c) => Meaning::Column(wide.columns.len() + c),
    }));
    let name = format!("{} ⋈ {}", wide.name, narrow.name);
    let mut grid = Grid::with_fields(&name, dimensions, columns, fields, names, false)?;
    grid.presence = wide.presence.clone();
    grid.presence.extend(narrow.presence.iter().map(|column| wide.columns.len() + column));
    Ok(Some(Zipped { grid, names_of_narrow }))
}
