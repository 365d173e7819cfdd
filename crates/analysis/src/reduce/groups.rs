//! What cells are grouped by: the indices of a dimension, or what follows from its coordinates (blocks of them, months, phases).

use crate::axis::{LOOKED_AT_MAX, is_strictly_monotone};
use crate::error::Result;
use crate::grid::{Grid, Selection, of_coordinates};
use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{cast, partition, take};
use arrow::datatypes::{DataType, Float64Type};
use arrow::row::{RowConverter, SortField};
use datafusion::logical_expr::Expr;
use std::collections::HashMap;
use std::ops::Range;

/// As it was asked for: expressions of one dimension.
#[derive(Clone)]
pub struct Key {
    pub dimension: usize,
    pub of: Vec<Expr>,
    /// It is its coordinates, of which each is there once.
    pub is_index: bool,
}

pub struct Kept {
    pub dimension: usize,
    pub map: Option<Map>,
}

/// Several indices may be in one group.
pub struct Map {
    text: String,
    /// Of each selected index.
    pub group_of: Vec<u32>,
    /// Of each expression what it is in each group.
    values: Vec<ArrayRef>,
    /// How many indices are in each group.
    pub sizes: Vec<u64>,
    /// Where each group's indices begin, if they are neighbours and the groups follow one another.
    starts: Option<Vec<u64>>,
}

impl Kept {
    /// `None`: the generic way knows which are equal.
    pub fn new(grid: &Grid, selection: &Selection, key: &Key) -> Option<Kept> {
        let dimension = key.dimension;
        if key.is_index {
            return Some(Kept { dimension, map: None });
        }
        if selection.count(dimension) > LOOKED_AT_MAX {
            return None;
        }
        // What fails for some coordinate may do so for one that is no row.
        let values = key.of.iter().map(|expr| of_coordinates(grid, dimension, expr, &selection.ranges[dimension]));
        let values = values.collect::<Result<Vec<ArrayRef>>>().ok()?;
        let text = key.of.iter().map(Expr::to_string).collect::<Vec<_>>().join(", ");
        Some(Kept { dimension, map: Some(Map::new(&values, text).ok()??) })
    }

    pub fn count(&self, selection: &Selection) -> u64 {
        self.map.as_ref().map_or(selection.count(self.dimension), |map| map.sizes.len() as u64)
    }

    /// Selected indices of one group at most.
    pub fn most(&self) -> u64 {
        self.map.as_ref().map_or(1, |map| map.sizes.iter().copied().max().unwrap_or(1))
    }

    pub fn text<'a>(&'a self, grid: &'a Grid) -> &'a str {
        self.map.as_ref().map_or(&grid.dimensions[self.dimension].name, |map| &map.text)
    }

    /// Of each column that tells of it, and whether it may be NULL.
    pub fn data_types(&self, grid: &Grid) -> Vec<(DataType, bool)> {
        match &self.map {
            None => vec![(grid.dimensions[self.dimension].axis.data_type(), false)],
            Some(map) => map.values.iter().map(|of| (of.data_type().clone(), of.null_count() > 0)).collect(),
        }
    }

    /// The columns that tell of these groups.
    pub fn values(&self, grid: &Grid, selection: &Selection, groups: &[usize]) -> Result<Vec<ArrayRef>> {
        match &self.map {
            None => {
                let selected = selection.indices(self.dimension);
                let indices: Vec<u64> = groups.iter().map(|&group| selected[group]).collect();
                Ok(vec![grid.dimensions[self.dimension].axis.take(&indices)])
            }
            Some(map) => {
                let groups = UInt32Array::from_iter_values(groups.iter().map(|&group| group as u32));
                map.values.iter().map(|values| Ok(take(values, &groups, None)?)).collect()
            }
        }
    }

    /// Groups can be computed some after the others.
    pub fn is_in_order(&self) -> bool {
        self.map.as_ref().is_none_or(|map| map.starts.is_some())
    }

    /// The selected indices, by position, of neighbouring groups; of groups that are in no order all.
    pub fn positions(&self, groups: Range<u64>) -> Range<u64> {
        match &self.map {
            None => groups,
            Some(Map { starts: Some(starts), .. }) => starts[groups.start as usize]..starts[groups.end as usize],
            Some(map) => 0..map.group_of.len() as u64,
        }
    }
}

impl Map {
    /// `values`: of each expression, at each selected index. `None`: operators may hold different ones to be equal.
    fn new(values: &[ArrayRef], text: String) -> Result<Option<Map>> {
        for values in values.iter().filter(|values| values.data_type().is_floating()) {
            // NaNs, and zeroes of both signs.
            let floats = cast(values, &DataType::Float64)?;
            let is_odd = |value: &f64| value.is_nan() || *value == 0.0 && value.is_sign_negative();
            if floats.as_primitive::<Float64Type>().values().iter().any(is_odd) {
                return Ok(None);
            }
        }
        let fields: Vec<SortField> = values.iter().map(|of| SortField::new(of.data_type().clone())).collect();
        if !RowConverter::supports_fields(&fields) {
            return Ok(None);
        }
        // Neighbours that are the same are looked at as one.
        let runs = partition(values)?.ranges();
        let first = UInt32Array::from_iter_values(runs.iter().map(|run| run.start as u32));
        let of_runs =
            values.iter().map(|values| take(values, &first, None)).collect::<std::result::Result<Vec<_>, _>>()?;
        let group_of_run: Vec<u32> = match &of_runs[..] {
            [one] if is_strictly_monotone(one) => (0..runs.len() as u32).collect(),
            _ => numbered(fields, &of_runs)?,
        };
        let groups = group_of_run.iter().max().map_or(0, |last| *last as usize + 1);
        let (mut sizes, mut firsts) = (vec![0; groups], vec![0u32; groups]);
        let mut group_of = Vec::with_capacity(values[0].len());
        for ((number, run), &group) in runs.iter().enumerate().zip(&group_of_run) {
            if sizes[group as usize] == 0 {
                firsts[group as usize] = number as u32;
            }
            sizes[group as usize] += run.len() as u64;
            group_of.resize(run.end, group);
        }
        let starts = group_of_run.is_sorted().then(|| {
            let begins = firsts.iter().map(|&run| runs[run as usize].start as u64);
            begins.chain([group_of.len() as u64]).collect()
        });
        let firsts = UInt32Array::from(firsts);
        let values = of_runs.iter().map(|of| Ok(take(of, &firsts, None)?)).collect::<Result<Vec<ArrayRef>>>()?;
        Ok(Some(Map { text, group_of, values, sizes, starts }))
    }
}

/// A number for each row, in the order in which they come.
fn numbered(fields: Vec<SortField>, columns: &[ArrayRef]) -> Result<Vec<u32>> {
    let rows = RowConverter::new(fields)?.convert_columns(columns)?;
    let mut known = HashMap::new();
    Ok(rows
        .iter()
        .map(|row| {
            let next = known.len() as u32;
            *known.entry(row).or_insert(next)
        })
        .collect())
}
