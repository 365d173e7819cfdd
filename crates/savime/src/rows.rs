//! A query's rows brought back onto the cells of dimensions: what `store`, `save` and `catalyze` write.

use crate::elements::Number;
use crate::relation::{Domain, Kind as ElementKind, Numbers, Relation};
use crate::subtar::indexes_of;
use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::DataType as ArrowType;
use futures::TryStreamExt;
use std::ops::Range;
use std::sync::Arc;
use terrace_analysis::{Axis, Error, Result};
use terrace_client::{DataType, Kind};

/// Bytes of all boxes of one result.
const BYTES_MAX: u64 = 16 << 30;

pub struct Cells {
    pub dimensions: Vec<Side>,
    pub attributes: Vec<Values>,
    /// Of each row, its index in each dimension.
    indexes: Vec<Vec<u64>>,
    pub rows: usize,
}

pub struct Side {
    pub name: String,
    pub role: Option<String>,
    pub domain: Domain,
    /// Of the domain, what rows are in; empty where there are none.
    pub range: Range<u64>,
}

pub struct Values {
    pub name: String,
    pub role: Option<String>,
    pub cell: DataType,
    /// Packed, a cell for each row.
    pub cells: Vec<u8>,
}

impl Cells {
    pub async fn of(relation: &Relation) -> Result<Cells> {
        let schema = Arc::new(relation.frame.schema().as_arrow().clone());
        let batches: Vec<RecordBatch> = terrace_analysis::stream(relation.frame.clone()).await?.try_collect().await?;
        let batch = arrow::compute::concat_batches(&schema, &batches)?;
        let mut cells = Cells { dimensions: vec![], attributes: vec![], indexes: vec![], rows: batch.num_rows() };
        for (number, element) in relation.elements.iter().enumerate() {
            let values = batch.column(number);
            if values.null_count() > 0 {
                return Err(Error::invalid(format!("`{}` has no value for some cells", element.name)));
            }
            match &element.kind {
                ElementKind::Attribute => {
                    let (cell, bytes) = packed(values)?;
                    cells.attributes.push(Values {
                        name: element.name.clone(),
                        role: element.role.clone(),
                        cell,
                        cells: bytes,
                    });
                }
                ElementKind::Dimension(domain) => {
                    let domain = match domain {
                        Some(domain) => domain.clone(),
                        None => seen(values)?,
                    };
                    let indexes = indexes(&domain, values, &element.name)?;
                    let range = match (indexes.iter().min(), indexes.iter().max()) {
                        (Some(first), Some(last)) => *first..*last + 1,
                        _ => 0..0,
                    };
                    let (name, role) = (element.name.clone(), element.role.clone());
                    cells.dimensions.push(Side { name, role, domain, range });
                    cells.indexes.push(indexes);
                }
            }
        }
        if cells.dimensions.is_empty() {
            return Err(Error::invalid("the result has no dimensions, so it can't be a TAR")
                .hint("aggregate by a dimension, or use select"));
        }
        Ok(cells)
    }

    /// The coordinate of each row in a dimension of whole numbers.
    pub fn coordinates_of(&self, dimension: usize) -> Result<Vec<i64>> {
        let side = &self.dimensions[dimension];
        match Numbers::of(&side.domain.coordinates()?)? {
            Numbers::Ints(values) => {
                Ok(self.indexes[dimension].iter().map(|&index| values.value(index as usize)).collect())
            }
            Numbers::Reals(_) => Err(Error::invalid(format!("the dimension `{}` is not of whole numbers", side.name))),
        }
    }

    /// Cells of the box that rows are in.
    pub fn box_cells(&self) -> u64 {
        let extents = self.dimensions.iter().map(|side| side.range.end - side.range.start);
        extents.fold(1u64, |cells, extent| cells.saturating_mul(extent))
    }

    pub fn check_size(&self) -> Result<()> {
        let each: u64 = self.attributes.iter().map(|values| values.cell.size() as u64).sum::<u64>() + 9;
        let bytes = self.box_cells().saturating_mul(each);
        match bytes > BYTES_MAX {
            true => Err(Error::new(
                Kind::NoSpace,
                format!("the box around the result's cells has {bytes} bytes: at most {BYTES_MAX}"),
            )),
            false => Ok(()),
        }
    }

    /// For each row, its place in the box; two rows of one cell are an error.
    pub fn places(&self) -> Result<Vec<usize>> {
        self.check_size()?;
        let mut places = vec![0usize; self.rows];
        for (side, indexes) in self.dimensions.iter().zip(&self.indexes) {
            let extent = (side.range.end - side.range.start) as usize;
            places
                .iter_mut()
                .zip(indexes)
                .for_each(|(place, index)| *place = *place * extent + (index - side.range.start) as usize);
        }
        let mut taken = vec![false; self.box_cells() as usize];
        for &place in &places {
            if std::mem::replace(&mut taken[place], true) {
                return Err(Error::invalid("two rows of the result are of the same cell")
                    .hint("aggregate them by its dimensions first"));
            }
        }
        Ok(places)
    }

    /// Whether every cell of the box has a row.
    pub fn is_whole(&self) -> bool {
        self.rows as u64 == self.box_cells()
    }
}

/// An attribute in the box; zeroes where there is no row.
pub fn in_box(values: &Values, places: &[usize], box_cells: u64) -> Vec<u8> {
    let size = values.cell.size();
    let mut cells = vec![0u8; box_cells as usize * size];
    for (row, place) in places.iter().enumerate() {
        cells[place * size..(place + 1) * size].copy_from_slice(&values.cells[row * size..(row + 1) * size]);
    }
    cells
}

/// Coordinates that are there, each once, ascending.
fn seen(values: &ArrayRef) -> Result<Domain> {
    let coordinates: ArrayRef = match Numbers::of(values)? {
        Numbers::Ints(values) => {
            let mut known = values.values().to_vec();
            known.sort_unstable();
            known.dedup();
            Arc::new(Int64Array::from(known))
        }
        Numbers::Reals(values) => {
            let mut known = values.values().to_vec();
            known.sort_unstable_by(f64::total_cmp);
            known.dedup_by(|a, b| a.to_bits() == b.to_bits());
            Arc::new(Float64Array::from(known))
        }
    };
    Ok(Domain { range: 0..coordinates.len() as u64, axis: Axis::Explicit(coordinates) })
}

fn indexes(domain: &Domain, values: &ArrayRef, name: &str) -> Result<Vec<u64>> {
    let numbers: Vec<Number> = match Numbers::of(values)? {
        Numbers::Ints(values) => values.values().iter().map(|&value| Number::Int(value)).collect(),
        Numbers::Reals(values) => values.values().iter().map(|&value| Number::Real(value)).collect(),
    };
    let found = indexes_of(&domain.axis, None, &numbers)?;
    found
        .into_iter()
        .zip(&numbers)
        .map(|(index, number)| {
            index
                .and_then(|index| index.checked_sub(domain.range.start))
                .ok_or_else(|| Error::invalid(format!("{number} is not a coordinate of the dimension `{name}`")))
        })
        .collect()
}

/// A column as packed cells.
pub fn packed(values: &ArrayRef) -> Result<(DataType, Vec<u8>)> {
    let cell = match values.data_type() {
        ArrowType::Int8 => DataType::Int8,
        ArrowType::Int16 => DataType::Int16,
        ArrowType::Int32 => DataType::Int32,
        ArrowType::Int64 => DataType::Int64,
        ArrowType::UInt8 => DataType::UInt8,
        ArrowType::UInt16 => DataType::UInt16,
        ArrowType::UInt32 => DataType::UInt32,
        ArrowType::UInt64 => DataType::UInt64,
        ArrowType::Float32 => DataType::Float32,
        ArrowType::Float64 => DataType::Float64,
        ArrowType::Boolean => {
            let cells = values.as_boolean().values().iter().map(|is_true| is_true as u8).collect();
            return Ok((DataType::Bool, cells));
        }
        ArrowType::Utf8 => {
            let texts = values.as_string::<i32>();
            let length = texts.iter().flatten().map(str::len).max().unwrap_or(1).max(1);
            let mut cells = vec![0u8; length * texts.len()];
            for (row, text) in texts.iter().enumerate() {
                let text = text.unwrap_or_default().as_bytes();
                cells[row * length..row * length + text.len()].copy_from_slice(text);
            }
            return Ok((DataType::string(length as u32)?, cells));
        }
        other => return Err(Error::invalid(format!("cells of type {other} can't be stored"))),
    };
    let data = values.to_data();
    let (first, bytes) = (data.offset() * cell.size(), values.len() * cell.size());
    Ok((cell, data.buffers()[0].as_slice()[first..first + bytes].to_vec()))
}

/// A batch of one row that says what was done.
pub fn done(message: &str) -> Result<RecordBatch> {
    Ok(RecordBatch::try_from_iter([("done", Arc::new(arrow::array::StringArray::from(vec![message])) as ArrayRef)])?)
}
