//! What cells are grouped by: the indices of a dimension, or what follows from its coordinates (blocks of them, months, phases).

use crate::error::Result;
use crate::grid::{Grid, Selection, of_coordinates};
use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::datatypes::{DataType, Float64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::logical_expr::Expr;
use std::collections::HashMap;
use std::ops::Range;

/// Indices of which an expression is computed at most.
const COMPUTED_MAX: u64 = 1 << 24;

/// As it was asked for.
#[derive(Clone, PartialEq)]
pub struct Key {
    pub dimension: usize,
    /// `None`: by its indices.
    pub of: Option<Expr>,
}

pub struct Kept {
    pub dimension: usize,
    pub mapped: Option<Mapped>,
}

/// Several indices may be in one group.
pub struct Mapped {
    text: String,
    /// Of each selected index.
    pub group_of: Vec<u32>,
    /// What the indices of each group have in common.
    pub values: ArrayRef,
    /// How many indices are in each group.
    pub sizes: Vec<u64>,
    /// Where each group's indices begin, if they are neighbours and the groups follow one another.
    starts: Option<Vec<u64>>,
}

impl Kept {
    /// `None`: the generic way knows which are equal.
    pub fn new(grid: &Grid, selection: &Selection, key: &Key) -> Option<Kept> {
        let dimension = key.dimension;
        let Some(expr) = &key.of else { return Some(Kept { dimension, mapped: None }) };
        if selection.count(dimension) > COMPUTED_MAX {
            return None;
        }
        // What fails for some coordinate may do so for one that is no row.
        let values = of_coordinates(grid, dimension, expr, &selection.ranges[dimension]).ok()?;
        let mapped = Some(Mapped::new(&values, expr.to_string()).ok()??);
        Some(Kept { dimension, mapped })
    }

    pub fn count(&self, selection: &Selection) -> u64 {
        self.mapped.as_ref().map_or(selection.count(self.dimension), |mapped| mapped.sizes.len() as u64)
    }

    /// Selected indices of one group at most.
    pub fn most(&self) -> u64 {
        self.mapped.as_ref().map_or(1, |mapped| mapped.sizes.iter().copied().max().unwrap_or(1))
    }

    pub fn text<'a>(&'a self, grid: &'a Grid) -> &'a str {
        self.mapped.as_ref().map_or(&grid.dimensions[self.dimension].name, |mapped| &mapped.text)
    }

    pub fn data_type(&self, grid: &Grid) -> (DataType, bool) {
        match &self.mapped {
            None => (grid.dimensions[self.dimension].axis.data_type(), false),
            Some(mapped) => (mapped.values.data_type().clone(), mapped.values.null_count() > 0),
        }
    }

    /// Coordinates of these groups.
    pub fn values(&self, grid: &Grid, selection: &Selection, groups: impl Iterator<Item = usize>) -> Result<ArrayRef> {
        Ok(match &self.mapped {
            None => {
                let selected = selection.indices(self.dimension);
                let indices: Vec<u64> = groups.map(|group| selected[group]).collect();
                grid.dimensions[self.dimension].axis.take(&indices)
            }
            Some(mapped) => {
                let groups = UInt32Array::from_iter_values(groups.map(|group| group as u32));
                arrow::compute::take(&mapped.values, &groups, None)?
            }
        })
    }

    /// Groups can be computed some after the others.
    pub fn is_in_order(&self) -> bool {
        self.mapped.as_ref().is_none_or(|mapped| mapped.starts.is_some())
    }

    /// The selected indices, by position, of neighbouring groups; of groups that are in no order all.
    pub fn positions(&self, groups: Range<u64>) -> Range<u64> {
        match &self.mapped {
            None => groups,
            Some(Mapped { starts: Some(starts), .. }) => starts[groups.start as usize]..starts[groups.end as usize],
            Some(mapped) => 0..mapped.group_of.len() as u64,
        }
    }
}

impl Mapped {
    fn new(values: &ArrayRef, text: String) -> Result<Option<Mapped>> {
        if values.data_type().is_floating() {
            // NaNs, and zeroes of both signs, may be the same to some operators.
            let floats = arrow::compute::cast(values, &DataType::Float64)?;
            let is_odd = |value: &f64| value.is_nan() || *value == 0.0 && value.is_sign_negative();
            if floats.as_primitive::<Float64Type>().values().iter().any(is_odd) {
                return Ok(None);
            }
        }
        let field = SortField::new(values.data_type().clone());
        if !RowConverter::supports_fields(std::slice::from_ref(&field)) {
            return Ok(None);
        }
        let rows = RowConverter::new(vec![field])?.convert_columns(std::slice::from_ref(values))?;
        let mut known = HashMap::new();
        let (mut firsts, mut sizes, mut group_of) = (vec![], vec![], Vec::with_capacity(values.len()));
        for (position, row) in rows.iter().enumerate() {
            let group = *known.entry(row).or_insert_with(|| {
                firsts.push(position as u32);
                sizes.push(0);
                sizes.len() as u32 - 1
            });
            sizes[group as usize] += 1;
            group_of.push(group);
        }
        let starts = group_of.is_sorted().then(|| {
            let starts = firsts.iter().map(|&first| u64::from(first));
            starts.chain([values.len() as u64]).collect()
        });
        let values = arrow::compute::take(values, &UInt32Array::from(firsts), None)?;
        Ok(Some(Mapped { text, group_of, values, sizes, starts }))
    }
}
