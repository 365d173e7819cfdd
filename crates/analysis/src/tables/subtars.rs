//! The list of a container's subTARs: which boxes of cells were loaded. Other cells are no rows.
//!
//! ```text
//!   load: cells into every array ─▶ presence, where single cells are present ─▶ one record in `terrace.subtars`
//! ```
//!
//! Invariant: what a record says was put before the record; so a reader that reads the list first sees a subTAR whole or not at all.

use crate::axis::Axis;
use crate::error::{Error, Result};
use crate::grid::{Column, Dimension, Grid, MemoryArray, Source};
use arrow::buffer::Buffer;
use std::ops::Range;
use std::sync::Arc;
use terrace_client::{Array, ArraySpec, Create, DataType, Kind, Region, Session};

/// Arrays whose names begin so say something of their container; they are no columns.
pub const RESERVED: &str = "terrace.";
pub const SUBTARS: &str = "terrace.subtars";
pub const PRESENT: &str = "terrace.present";

/// How a subTAR's cells were said to lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Specification {
    Ordered,
    Partial,
    Total,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubTar {
    pub specification: Specification,
    /// Real indexes in each dimension.
    pub bounds: Vec<Range<u64>>,
}

impl SubTar {
    pub fn cells(&self) -> u64 {
        self.bounds.iter().map(|range| range.end - range.start).product()
    }
    pub fn overlaps(&self, other: &SubTar) -> bool {
        self.bounds.iter().zip(&other.bounds).all(|(own, other)| own.start < other.end && other.start < own.end)
    }
    pub fn region(&self) -> Result<Region> {
        region(&self.bounds)
    }
}

pub fn region(bounds: &[Range<u64>]) -> Result<Region> {
    let offset: Vec<u64> = bounds.iter().map(|range| range.start).collect();
    let count: Vec<u64> = bounds.iter().map(|range| range.end - range.start).collect();
    Ok(Region::block(&offset, &count)?)
}

/// Numbers of one record: how it was specified, and first and last index of each dimension.
fn record_length(rank: usize) -> u64 {
    1 + 2 * rank as u64
}

fn path_of(container: &str, name: &str) -> String {
    format!("{container}/{name}")
}

/// An empty list: the container's cells are those that subTARs bring.
pub fn create(session: &Session, container: &str) -> Result<()> {
    let spec = ArraySpec::new(DataType::Int64, &[0]).unlimited(0).chunks(&[4096]).dimensions(&[SUBTARS]);
    session.create_array(&path_of(container, SUBTARS), &spec, Create::New)?;
    Ok(())
}

/// The array of the list; `None`: the container was not made as a TAR.
pub fn open(session: &Session, container: &str, writable: bool) -> Result<Option<Array>> {
    match session.open_array(&path_of(container, SUBTARS), writable) {
        Ok(array) => Ok(Some(array)),
        Err(error) if matches!(error.kind, Kind::NotFound | Kind::WrongKind) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// All records, in the order in which they were loaded.
pub fn read(list: &Array, rank: usize) -> Result<Vec<SubTar>> {
    let length = list.shape()?[0];
    let values: Vec<i64> = list.get_values(&Region::block(&[0], &[length])?)?;
    let damaged = || Error::new(Kind::Damaged, "the list of subTARs is damaged");
    let records = values.chunks_exact(record_length(rank) as usize);
    if !records.remainder().is_empty() {
        return Err(damaged());
    }
    records
        .map(|record| {
            let specification = match record[0] {
                1 => Specification::Ordered,
                2 => Specification::Partial,
                3 => Specification::Total,
                _ => return Err(damaged()),
            };
            let pairs = record[1..].chunks_exact(2);
            let bounds = pairs.map(|pair| match (u64::try_from(pair[0]), u64::try_from(pair[1])) {
                (Ok(first), Ok(last)) if first <= last && last < 1 << 62 => Ok(first..last + 1),
                _ => Err(damaged()),
            });
            Ok(SubTar { specification, bounds: bounds.collect::<Result<_>>()? })
        })
        .collect()
}

/// One more record, behind `known` others. The list is locked by the caller.
pub fn append(list: &Array, rank: usize, known: usize, subtar: &SubTar) -> Result<()> {
    let mut record = vec![match subtar.specification {
        Specification::Ordered => 1i64,
        Specification::Partial => 2,
        Specification::Total => 3,
    }];
    record.extend(subtar.bounds.iter().flat_map(|range| [range.start as i64, range.end as i64 - 1]));
    let length = record_length(rank);
    Ok(list.put_values(&Region::block(&[known as u64 * length], &[length])?, &record)?)
}

/// What a table of subTARs shows: the box around them, and in it the cells that are there.
pub struct Loaded {
    pub subtars: Vec<SubTar>,
    /// Where some subTAR has not all of its box.
    pub present: Option<Arc<dyn Source>>,
}

impl Loaded {
    /// `None`: the container was not made as a TAR. To be read before the container's arrays.
    pub fn read(session: &Session, container: &str, rank: usize) -> Result<Option<Loaded>> {
        let Some(list) = open(session, container, false)? else { return Ok(None) };
        let subtars = read(&list, rank)?;
        let present = match subtars.iter().all(|subtar| subtar.specification == Specification::Ordered) {
            true => None,
            false => {
                let array = session.open_array(&path_of(container, PRESENT), false)?;
                Some(Arc::new(array.view()?) as Arc<dyn Source>)
            }
        };
        Ok(Some(Loaded { subtars, present }))
    }

    /// The box around all subTARs.
    fn hull(&self, rank: usize) -> Vec<Range<u64>> {
        let mut hull = vec![0..0; rank];
        for (number, subtar) in self.subtars.iter().enumerate() {
            for (own, range) in hull.iter_mut().zip(&subtar.bounds) {
                *own = if number == 0 { range.clone() } else { own.start.min(range.start)..own.end.max(range.end) };
            }
        }
        hull
    }

    /// Cuts a grid to what was loaded.
    pub fn cut(&self, grid: Grid) -> Result<Grid> {
        let hull = self.hull(grid.rank());
        let mut dimensions: Vec<Dimension> = vec![];
        for (dimension, range) in grid.dimensions.iter().zip(&hull) {
            let extent = range.end - range.start;
            if matches!(&dimension.axis, Axis::Explicit(values) if range.end > values.len() as u64) {
                return Err(Error::new(Kind::Damaged, "subTARs reach beyond the coordinates"));
            }
            let axis = dimension.axis.part(range.clone());
            dimensions.push(Dimension { name: dimension.name.clone(), extent, axis });
        }
        let moved = |column: &Column| {
            column.moved(column.along.iter().map(|&(d, shift)| (d, shift + hull[d].start as i64)).collect())
        };
        let mut columns: Vec<Column> = grid.columns.iter().map(moved).collect();
        let fields = grid.fields.clone();
        let names = grid.schema().fields().iter().map(|field| field.name().clone()).collect();
        let all: u64 = hull.iter().map(|range| range.end - range.start).product();
        let loaded: u64 = self.subtars.iter().map(SubTar::cells).sum();
        let along = |shifted: bool| {
            hull.iter().enumerate().map(|(d, range)| (d, if shifted { range.start as i64 } else { 0 })).collect()
        };
        let mut presence = vec![];
        if let Some(present) = &self.present {
            presence.push(columns.len());
            columns.push(Column::new(PRESENT, present.clone(), along(true)));
        } else if loaded < all {
            presence.push(columns.len());
            columns.push(Column::new(PRESENT, self.boxes(&hull)?, along(false)));
        }
        let mut cut = Grid::with_fields(&grid.name, dimensions, columns, grid.axes, (fields, names), grid.is_sparse)?;
        cut.presence = presence;
        Ok(cut)
    }

    /// Ones where a subTAR is, in an array that begins where the hull does.
    fn boxes(&self, hull: &[Range<u64>]) -> Result<Arc<dyn Source>> {
        let shape: Vec<u64> = hull.iter().map(|range| range.end - range.start).collect();
        let most = self.subtars.iter().map(SubTar::cells).max().unwrap_or(0);
        // All boxes see the same ones.
        let ones = Buffer::from_vec(vec![1u8; most as usize]);
        let mut boxes = MemoryArray::new(DataType::UInt8, &shape);
        for subtar in &self.subtars {
            let bounds: Vec<Range<u64>> = subtar
                .bounds
                .iter()
                .zip(hull)
                .map(|(own, hull)| own.start - hull.start..own.end - hull.start)
                .collect();
            boxes.put(region(&bounds)?, ones.slice_with_length(0, subtar.cells() as usize))?;
        }
        Ok(Arc::new(boxes))
    }
}
