//! Inner joins on dimensions: where dimensions of one side meet dimensions of the other whose coordinates are the same, the two are
//! one grid. Columns of either side are the same along dimensions that only the other one has; in a cross join that is all of them.
//!
//! What meets may be computed (`a.x = b.x + 1`, neighbours): where it is the same ones at a shift, the grid has the coordinates of both.

use super::aggregate::dimension_of;
use super::resolve::{Resolved, renamed, resolve, scan_as};
use crate::axis::{Axis, LOOKED_AT_MAX};
use crate::grid::{Column, Dimension, Grid, Meaning, RANK_MAX, TILE_CELLS, is_of_rows, of_coordinates, only_dimension};
use crate::scan::GridTable;
use datafusion::common::NullEquality;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan};
use std::ops::Range;
use std::sync::Arc;

pub fn replaced(join: &Join) -> Result<Option<LogicalPlan>> {
    if join.join_type != JoinType::Inner {
        return Ok(None);
    }
    let (Some(left), Some(right)) = (resolve(&join.left)?, resolve(&join.right)?) else { return Ok(None) };
    if left.grid.is_sparse || right.grid.is_sparse {
        return Ok(None);
    }
    // All other conditions are filters.
    let mut pairs: Vec<Pair> = vec![];
    let mut conditions: Vec<(Expr, Expr)> = vec![];
    let mut on = vec![];
    for (on_left, on_right) in &join.on {
        let on_left = left.on_grid(on_left, join.left.schema())?;
        let on_right = right.on_grid(on_right, join.right.schema())?;
        let is_plain = matches!((&on_left, &on_right), (Expr::Column(_), Expr::Column(_)));
        on.push((!is_plain, on_left, on_right));
    }
    // Dimensions as they are meet first.
    on.sort_by_key(|(is_computed, ..)| *is_computed);
    for (_, on_left, on_right) in on {
        let pair = Pair::of((&left.grid, &on_left), (&right.grid, &on_right));
        match pair.filter(|new| !pairs.iter().any(|known| known.left == new.left || known.right == new.right)) {
            Some(pair) => pairs.push(pair),
            None => conditions.push((on_left, on_right)),
        }
    }
    // A filter holds for no NULL.
    if !conditions.is_empty() && join.null_equality == NullEquality::NullEqualsNull {
        return Ok(None);
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
    let pairs: Vec<Pair> = pairs.into_iter().map(|pair| if is_swapped { pair.swapped() } else { pair }).collect();
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
fn is_cheap(left: &Resolved, right: &Resolved, pairs: &[Pair]) -> bool {
    let own = |side: &Resolved, met: &dyn Fn(usize) -> bool| {
        let unmet = side.grid.dimensions.iter().enumerate().filter(|(d, _)| !met(*d));
        unmet.fold(1u64, |cells, (_, dimension)| cells.saturating_mul(dimension.extent))
    };
    let (only_left, only_right) = (
        own(left, &|d| pairs.iter().any(|pair| pair.left == d)),
        own(right, &|d| pairs.iter().any(|pair| pair.right == d)),
    );
    let (wide, outer) = match left.grid.cells() < right.grid.cells() {
        true => (right.grid.cells(), only_left),
        false => (left.grid.cells(), only_right),
    };
    let by_values = |side: &Resolved| {
        let of_values = |filter: &Expr| {
            filter.column_refs().iter().any(|column| {
                let field = side.grid.schema().index_of(&column.name);
                field.is_ok_and(|field| side.grid.fields[field].column().is_some())
            })
        };
        !side.grid.presence.is_empty() || side.filters.iter().any(of_values)
    };
    let cells = wide.saturating_mul(outer);
    let tiles = outer.saturating_mul(wide / TILE_CELLS + 1);
    tiles <= PRODUCT_TILES_MAX && (cells <= PRODUCT_SMALL || !(by_values(left) || by_values(right)))
}

/// Dimensions that meet.
struct Pair {
    left: usize,
    right: usize,
    /// By how much an index of the right one is greater.
    shift: i64,
    /// Their coordinates are the same where they meet.
    is_plain: bool,
}

impl Pair {
    fn of((left, on_left): (&Grid, &Expr), (right, on_right): (&Grid, &Expr)) -> Option<Pair> {
        let (l, r) = (only_dimension(left, on_left)?, only_dimension(right, on_right)?);
        let extents = (left.dimensions[l].extent, right.dimensions[r].extent);
        let is_plain = dimension_of(left, on_left).is_some() && dimension_of(right, on_right).is_some();
        let axes = match is_plain {
            true => (left.dimensions[l].axis.clone(), right.dimensions[r].axis.clone()),
            false if extents.0.max(extents.1) > LOOKED_AT_MAX => return None,
            // What fails for some coordinate may do so for one that is no row.
            false => (computed(left, l, on_left).ok()?, computed(right, r, on_right).ok()?),
        };
        let shift = axes.0.shift_to(extents.0, &axes.1, extents.1)?;
        Some(Pair { left: l, right: r, shift, is_plain })
    }

    fn swapped(self) -> Pair {
        Pair { left: self.right, right: self.left, shift: -self.shift, ..self }
    }
}

fn computed(grid: &Grid, dimension: usize, expr: &Expr) -> crate::error::Result<Axis> {
    of_coordinates(grid, dimension, expr, &[0..grid.dimensions[dimension].extent]).map(Axis::Explicit)
}

const PRODUCT_SMALL: u64 = 4 << 20;
const PRODUCT_TILES_MAX: u64 = 1 << 17;

struct Zipped {
    grid: Grid,
    /// What the narrow side's fields are called in the grid.
    names_of_narrow: Vec<String>,
}

/// `pairs`: of dimensions of the wide side with those of the narrow one.
fn zip(wide: &Resolved, narrow: &Resolved, pairs: &[Pair]) -> Result<Option<Zipped>> {
    let (wide, narrow) = (&wide.grid, &narrow.grid);
    // What only the narrow side has comes first: along the others cells lie side by side.
    let own: Vec<usize> = (0..narrow.rank()).filter(|n| !pairs.iter().any(|pair| pair.right == *n)).collect();
    let mut dimensions: Vec<Dimension> = own.iter().map(|&n| narrow.dimensions[n].clone()).collect();
    let cells = dimensions.iter().try_fold(wide.cells(), |cells, dimension| cells.checked_mul(dimension.extent));
    if dimensions.len() + wide.rank() > RANK_MAX || cells.is_none() {
        return Ok(None);
    }
    dimensions.extend(wide.dimensions.iter().cloned());
    let own_count = own.len();
    let mut met = vec![0; narrow.rank()];
    own.iter().enumerate().for_each(|(position, &n)| met[n] = position);
    // Which indices of each side are in the zipped grid: those that meet, or all.
    let whole = |grid: &Grid| grid.dimensions.iter().map(|dimension| 0..dimension.extent).collect::<Vec<_>>();
    let (mut of_wide, mut of_narrow) = (whole(wide), whole(narrow));
    let mut is_plain = vec![true; narrow.rank()];
    for &Pair { left: w, right: n, shift, is_plain: is_same } in pairs {
        let (near, other) = (&wide.dimensions[w], &narrow.dimensions[n]);
        let first = (-shift).max(0).min(near.extent as i64);
        let end = (near.extent as i64).min(other.extent as i64 - shift).max(first);
        met[n] = own_count + w;
        is_plain[n] = is_same;
        of_wide[w] = first as u64..end as u64;
        // None of them may meet.
        let first_of_narrow = (first + shift).clamp(0, other.extent as i64) as u64;
        of_narrow[n] = first_of_narrow..first_of_narrow + (end - first) as u64;
        dimensions[met[n]].extent = (end - first) as u64;
        dimensions[met[n]].axis = near.axis.part(of_wide[w].clone());
    }
    let shifted = |column: &Column, ranges: &[Range<u64>], place: &dyn Fn(usize) -> usize| {
        let along = column.along.iter().map(|&(d, shift)| (place(d), shift + ranges[d].start as i64));
        column.moved(along.collect())
    };
    let mut columns: Vec<Column> =
        wide.columns.iter().map(|column| shifted(column, &of_wide, &|d| own_count + d)).collect();
    columns.extend(narrow.columns.iter().map(|column| shifted(column, &of_narrow, &|d| met[d])));
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
    let mut axes: Vec<Axis> = vec![];
    let mut fields = meanings(wide, &|d| (own_count + d, true), &of_wide, &mut axes);
    let columns_of_wide = wide.columns.len();
    fields.extend(
        meanings(narrow, &|d| (met[d], is_plain[d]), &of_narrow, &mut axes)
            .into_iter()
            .map(|meaning| meaning.column().map_or(meaning, |column| Meaning::Column(columns_of_wide + column))),
    );
    let name = format!("{} ⋈ {}", wide.name, narrow.name);
    let mut grid = Grid::with_fields(&name, dimensions, columns, axes, (fields, names), false)?;
    grid.presence = wide.presence.clone();
    grid.presence.extend(narrow.presence.iter().map(|column| wide.columns.len() + column));
    Ok(Some(Zipped { grid, names_of_narrow }))
}

/// A side's fields in the zipped grid, but for the numbers of columns. `place`: the dimension there, and whether its coordinates are this
/// side's; else they are axes of the grid's, as far as they meet.
fn meanings(
    side: &Grid,
    place: &dyn Fn(usize) -> (usize, bool),
    met: &[Range<u64>],
    axes: &mut Vec<Axis>,
) -> Vec<Meaning> {
    let meaning = |field: usize| match (side.fields[field], side.coordinates(field)) {
        (Meaning::Dimension(d), _) if place(d).1 => Meaning::Dimension(place(d).0),
        (_, Some((d, axis))) => {
            axes.push(axis.part(met[d].clone()));
            Meaning::Along { dimension: place(d).0, axis: axes.len() - 1 }
        }
        (meaning, None) => meaning,
    };
    (0..side.fields.len()).map(meaning).collect()
}
