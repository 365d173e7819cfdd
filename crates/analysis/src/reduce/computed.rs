//! A reduced grid as a grid itself: its aggregates are arrays along the dimensions that are kept, computed when they are first
//! read. So a join with an aggregate needs no rows either.

use super::Reduced;
use crate::error::Result;
use crate::exec::Seen;
use crate::grid::{Column, Dimension, Grid, Meaning, Source, only_dimension, unqualified};
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType as ArrowType;
use datafusion::common::Column as ColumnName;
use datafusion::logical_expr::{Expr, lit};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use terrace_client::{DataType, Region};

/// Of a result for the cells of a tile, to know between what it lies: a tile has as many cells at least.
const LOOKED_AT_MAX: u64 = 1024;

struct Computed {
    reduced: Arc<Reduced>,
    /// Of the result.
    columns: OnceLock<Vec<ArrayRef>>,
    /// Partitions that come at once compute it once.
    computing: Mutex<()>,
    region: Region,
    shape: Vec<u64>,
}

impl Computed {
    fn columns(&self) -> Result<&[ArrayRef]> {
        if let Some(columns) = self.columns.get() {
            return Ok(columns);
        }
        let _computing = self.computing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(columns) = self.columns.get() {
            return Ok(columns);
        }
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
        let columns = self.reduced.dense(threads)?;
        Ok(self.columns.get_or_init(|| columns))
    }
}

struct ComputedColumn {
    all: Arc<Computed>,
    number: usize,
    data_type: DataType,
}

impl Source for ComputedColumn {
    fn data_type(&self) -> DataType {
        self.data_type
    }
    fn shape(&self) -> &[u64] {
        &self.all.shape
    }
    fn layer_count(&self) -> usize {
        1
    }
    fn is_computed(&self) -> bool {
        true
    }
    fn region(&self, _: usize) -> &Region {
        &self.all.region
    }
    fn cells(&self, _: usize) -> Result<*const u8> {
        let data = self.all.columns()?[self.number].to_data();
        let size = self.data_type.size();
        // SAFETY: the array's values begin so many values into its buffer.
        Ok(unsafe { data.buffers()[0].as_ptr().add(data.offset() * size) })
    }
    fn range_of(&self, _: usize, cells: Range<u64>) -> Option<(f64, f64)> {
        let column = &self.all.columns.get()?[self.number];
        let count = cells.end - cells.start;
        if count > LOOKED_AT_MAX || column.null_count() > 0 {
            return None;
        }
        let data = column.slice(cells.start as usize, count as usize).to_data();
        let size = self.data_type.size();
        self.data_type.range(&data.buffers()[0].as_slice()[data.offset() * size..][..count as usize * size])
    }
    fn read_base(&self, _: &Region, _: &mut [u8]) -> Result<()> {
        unreachable!("its one layer covers it")
    }
    fn base_blocks(&self) -> Option<&[u64]> {
        None
    }
    fn fill(&self) -> &[u8] {
        &[]
    }
}

impl Reduced {
    /// With the filters that its rows have passed already, and its own columns as expressions. `None`: it can't be one.
    #[allow(clippy::type_complexity)] // said above, and used in one place
    pub fn as_grid(self: &Arc<Self>) -> Result<Option<(Grid, Vec<Expr>, Vec<Expr>)>> {
        // The groups are packed in the order of the grid's dimensions.
        if self.has_map() {
            return Ok(None);
        }
        let mut kept: Vec<usize> = self.kept.iter().map(|kept| kept.dimension).collect();
        kept.sort_unstable();
        let ranges: Vec<_> = kept.iter().map(|&d| self.scope.selection.ranges[d].clone()).collect();
        let is_held =
            self.groups() <= super::GROUPS_SHARED_MAX && !self.scope.selection.is_empty() && !self.has_median();
        if !is_held || kept.is_empty() || kept.len() != self.kept.len() || ranges.iter().any(|ranges| ranges.len() != 1)
        {
            return Ok(None);
        }
        let shape: Vec<u64> = ranges.iter().map(|ranges| ranges[0].end - ranges[0].start).collect();
        let dimensions: Vec<Dimension> = kept.iter().map(|&d| self.grid.dimensions[d].clone()).collect();
        let along: Vec<(usize, i64)> =
            ranges.iter().enumerate().map(|(number, ranges)| (number, -(ranges[0].start as i64))).collect();
        let region = Region::whole(&shape)?;
        let all = Arc::new(Computed {
            reduced: self.clone(),
            columns: OnceLock::new(),
            computing: Mutex::new(()),
            region,
            shape,
        });
        let mut columns = vec![];
        for (number, reduction) in self.reductions.iter().enumerate() {
            let data_type = match reduction.output {
                ArrowType::Float64 => DataType::Float64,
                ArrowType::Int64 => DataType::Int64,
                ArrowType::UInt64 => DataType::UInt64,
                ArrowType::Float32 => DataType::Float32,
                ArrowType::Int32 => DataType::Int32,
                _ => return Ok(None),
            };
            let source = Arc::new(ComputedColumn { all: all.clone(), number, data_type });
            columns.push(Column::new(format!("a{number}"), source, along.clone()));
        }
        let mut filters: Vec<Expr> = vec![];
        let names = self.grid.schema();
        let is_own = |filter: &Expr| {
            let of_dimension = |name: &str| {
                names.index_of(name).is_ok_and(|field| matches!(self.grid.fields[field], Meaning::Dimension(_)))
            };
            filter.column_refs().iter().all(|column| of_dimension(&column.name))
        };
        // Within the ranges that the groups are of: the same predicates say so again.
        for filter in
            self.scope.filters.iter().cloned().flat_map(datafusion::logical_expr::utils::split_conjunction_owned)
        {
            if only_dimension(&self.grid, &unqualified(&filter)?).is_some_and(|dimension| kept.contains(&dimension)) {
                // Of other coordinates nothing is kept.
                if !is_own(&filter) {
                    return Ok(None);
                }
                filters.push(filter);
            }
        }
        if self.scope.predicate.is_some() {
            // Groups without rows are no rows.
            let source = Arc::new(ComputedColumn {
                all: all.clone(),
                number: self.reductions.len(),
                data_type: DataType::Int64,
            });
            columns.push(Column::new("rows", source, along));
            filters.push(Expr::Column(ColumnName::new_unqualified("rows")).gt(lit(0i64)));
        }
        // Dimensions keep their names, for the filters.
        let mut fields: Vec<Meaning> = vec![];
        let mut field_names: Vec<String> = vec![];
        let mut first_name = vec![String::new(); kept.len()];
        for (number, &d) in kept.iter().enumerate() {
            for field in (0..self.grid.fields.len()).filter(|&f| self.grid.fields[f] == Meaning::Dimension(d)) {
                fields.push(Meaning::Dimension(number));
                field_names.push(names.field(field).name().clone());
                if first_name[number].is_empty() {
                    first_name[number] = names.field(field).name().clone();
                }
            }
        }
        for (number, column) in columns.iter_mut().enumerate() {
            while field_names.contains(&column.name) {
                column.name.push('\'');
            }
            fields.push(Meaning::Column(number));
            field_names.push(column.name.clone());
        }
        if columns.last().is_some_and(|last| self.scope.predicate.is_some() && last.name != "rows") {
            return Ok(None); // a dimension has that name
        }
        let mut outputs: Vec<Expr> = vec![];
        for own in &self.kept {
            let number = kept.iter().position(|known| *known == own.dimension).expect("sorted from the same");
            outputs.push(Expr::Column(ColumnName::new_unqualified(&first_name[number])));
        }
        for column in &columns[..self.reductions.len()] {
            outputs.push(Expr::Column(ColumnName::new_unqualified(&column.name)));
        }
        let name = format!("reduced {}", self.grid.name);
        let grid = Grid::with_fields(&name, dimensions, columns, vec![], (fields, field_names), false)?;
        Ok(Some((grid, filters, outputs)))
    }

    /// The aggregates of all groups, empty ones too, and the rows of each.
    fn dense(&self, threads: usize) -> Result<Vec<ArrayRef>> {
        let all = self.slabs(self.groups()).pop().expect("some cells are selected");
        let outcome = self.compute(&all, threads, &Seen::within(crate::control::of_thread(), self.scope.cells()))?;
        let groups = self.groups() as usize;
        let counts = self.counts(&outcome, 0..groups);
        let mut arrays = vec![];
        for (reduction, accumulator) in self.reductions.iter().zip(&outcome.accumulators) {
            let results = accumulator.results(reduction.function, &counts, 0)?;
            arrays.push(arrow::compute::cast(&results, &reduction.output)?);
        }
        arrays.push(Arc::new(arrow::array::Int64Array::from_iter_values(counts.iter().map(|&count| count as i64))));
        Ok(arrays)
    }
}
