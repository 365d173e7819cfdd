//! One tile, read: pictures of its columns and Arrow arrays of its rows, each made when it is first asked for.

use super::cells::{gather, packed_buffer, whole};
use super::{Grid, Meaning, Picture, Tile};
use crate::axis::Axis;
use crate::error::Result;
use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use std::sync::Arc;

pub struct TileReader<'a> {
    grid: &'a Grid,
    pub tile: &'a Tile,
    pub extents: Vec<u64>,
    pictures: Vec<Option<Picture>>,
}

impl<'a> TileReader<'a> {
    pub fn new(grid: &'a Grid, tile: &'a Tile) -> TileReader<'a> {
        TileReader { grid, tile, extents: tile.extents(), pictures: grid.columns.iter().map(|_| None).collect() }
    }

    pub fn cells(&self) -> u64 {
        self.tile.cells()
    }

    pub fn picture(&mut self, column: usize) -> Result<&Picture> {
        let slot = &mut self.pictures[column];
        match slot {
            Some(picture) => Ok(picture),
            empty => Ok(empty.insert(self.grid.columns[column].picture(&self.tile.bounds)?)),
        }
    }

    /// One that was made before.
    pub fn seen(&self, column: usize) -> &Picture {
        self.pictures[column].as_ref().expect("it was asked for before")
    }

    /// Rows `first .. first + count` of the tile, in C order.
    pub fn array(&mut self, field: usize, first: u64, count: u64) -> Result<ArrayRef> {
        match self.grid.fields[field] {
            Meaning::Dimension(_) | Meaning::Along { .. } => Ok(self.coordinates(field, first, count)),
            Meaning::Column(column) => {
                let data_type = self.grid.columns[column].data_type();
                let extents = self.extents.clone();
                let picture = self.picture(column)?;
                let mut buffer = packed_buffer(picture, &extents, data_type.size(), first, count);
                if !(buffer.as_ptr() as usize).is_multiple_of(data_type.size().next_power_of_two().min(16)) {
                    buffer = arrow::buffer::Buffer::from(buffer.as_slice());
                }
                whole(data_type, buffer, count as usize)
            }
        }
    }

    /// The rows at these places of the tile.
    pub fn take(&mut self, field: usize, places: &[u32]) -> Result<ArrayRef> {
        match self.grid.fields[field] {
            Meaning::Dimension(_) | Meaning::Along { .. } => {
                let (d, axis) = self.grid.coordinates(field).expect("it is a dimension's");
                let unit: u64 = self.extents[d + 1..].iter().product();
                let (start, extent) = (self.tile.bounds[d].start, self.extents[d]);
                // Unsigned 32-bit division is several times as fast as that of 64 bits.
                let (unit, extent) = (unit.min(u32::MAX as u64) as u32, extent.min(u32::MAX as u64) as u32);
                let index = |&place: &u32| start + (place / unit % extent) as u64;
                Ok(match axis {
                    Axis::Integer { low, step } => Arc::new(Int64Array::from_iter_values(
                        places.iter().map(|place| low.wrapping_add(step.wrapping_mul(index(place) as i64))),
                    )),
                    Axis::Real { low, step } => Arc::new(Float64Array::from_iter_values(
                        places.iter().map(|place| low + step * index(place) as f64),
                    )),
                    explicit => explicit.take(&places.iter().map(index).collect::<Vec<u64>>()),
                })
            }
            Meaning::Column(column) => {
                let data_type = self.grid.columns[column].data_type();
                let extents = self.extents.clone();
                let buffer = gather(self.picture(column)?, &extents, data_type.size(), places);
                whole(data_type, buffer, places.len())
            }
        }
    }

    fn coordinates(&self, field: usize, first: u64, count: u64) -> ArrayRef {
        let (d, axis) = self.grid.coordinates(field).expect("it is a dimension's");
        let unit: u64 = self.extents[d + 1..].iter().product();
        let extent = self.extents[d];
        let start = self.tile.bounds[d].start;
        if first / unit == (first + count.max(1) - 1) / unit {
            return axis.repeated(start + first / unit % extent, count as usize);
        }
        match axis {
            Axis::Integer { low, step } => {
                let value = |index| low.wrapping_add(step.wrapping_mul((start + index) as i64));
                Arc::new(Int64Array::from(expand(value, extent, unit, first, count)))
            }
            Axis::Real { low, step } => {
                let value = |index| low + step * (start + index) as f64;
                Arc::new(Float64Array::from(expand(value, extent, unit, first, count)))
            }
            explicit => explicit.take(&expand(|index| start + index, extent, unit, first, count)),
        }
    }

    pub fn batch(&mut self, schema: &SchemaRef, fields: &[usize], first: u64, count: u64) -> Result<RecordBatch> {
        let arrays = fields.iter().map(|&field| self.array(field, first, count)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count as usize));
        Ok(RecordBatch::try_new_with_options(schema.clone(), arrays, &options)?)
    }
}

/// `value(place / unit % extent)` for neighbouring places.
fn expand<T: Copy>(value: impl Fn(u64) -> T, extent: u64, unit: u64, first: u64, count: u64) -> Vec<T> {
    let mut values = Vec::with_capacity(count as usize);
    let end = first + count;
    let mut at = first;
    if unit == 1 {
        while at < end {
            let index = at % extent;
            let run = (extent - index).min(end - at);
            values.extend((index..index + run).map(&value));
            at += run;
        }
        return values;
    }
    while at < end {
        let run = (unit - at % unit).min(end - at);
        let repeated = value(at / unit % extent);
        values.resize(values.len() + run as usize, repeated);
        at += run;
    }
    values
}
