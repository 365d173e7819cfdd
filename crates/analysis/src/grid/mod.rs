//! A grid: arrays that share dimensions, seen as a table of one row per cell. Stays n-dimensional until rows are asked for.
//!
//! ```text
//!   fields of the table ──▶ Dimension (axis: computed coordinates)
//!                       ──▶ Column (source: layers in tier memory; its dimensions are some of the grid's, shifted or not)
//!   selection: for each dimension, ranges of indices ──▶ tiles: boxes that lie in one layer of each column ──▶ pictures
//! ```

mod cells;
mod reader;
mod selection;
mod source;
mod tiles;
mod zones;

pub(crate) use cells::with_cell_type;
pub use cells::{CellType, arrow_type, may_be_null, whole};
pub use reader::TileReader;
pub use selection::{Selection, is_of_rows, of_coordinates, only_dimension, select, unqualified};
pub use source::{MemoryArray, OneCell, Picture, RANK_MAX, Source};
pub use tiles::{TILE_CELLS, Tile, can_be_shared, finer, tiles};
pub use zones::ZONE_CELLS;

use crate::axis::Axis;
use crate::error::{Error, Result};
use arrow::datatypes::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

#[derive(Clone, Debug)]
pub struct Dimension {
    pub name: String,
    pub extent: u64,
    pub axis: Axis,
}

#[derive(Clone)]
pub struct Column {
    pub name: String,
    pub source: Arc<dyn Source>,
    /// For each dimension of the array: the grid's dimension, and by how much the array's index is greater.
    pub along: Vec<(usize, i64)>,
    index: Arc<OnceLock<source::LayerIndex>>,
}

impl Column {
    pub fn new(name: impl Into<String>, source: Arc<dyn Source>, along: Vec<(usize, i64)>) -> Column {
        Column { name: name.into(), source, along, index: Arc::default() }
    }

    /// The same array along other dimensions, or at another shift.
    pub fn moved(&self, along: Vec<(usize, i64)>) -> Column {
        Column { along, ..self.clone() }
    }

    pub fn data_type(&self) -> terrace_client::DataType {
        self.source.data_type()
    }

    /// The box of the array that belongs to a box of the grid.
    fn bounds(&self, bounds: &[Range<u64>]) -> Vec<Range<u64>> {
        let shifted = |index: u64, shift: i64| (index as i64 + shift) as u64;
        self.along
            .iter()
            .map(|&(dimension, shift)| {
                let range = &bounds[dimension];
                shifted(range.start, shift)..shifted(range.end, shift)
            })
            .collect()
    }

    fn layers(&self) -> &source::LayerIndex {
        self.index.get_or_init(|| source::LayerIndex::new(self.source.as_ref()))
    }

    /// Between what the values of a box of the grid lie, where that is known; none of them is a NaN then.
    pub fn range(&self, bounds: &[Range<u64>]) -> Option<(f64, f64)> {
        source::range(self.source.as_ref(), self.layers(), &self.bounds(bounds))
    }

    /// All cells of a box of the grid have the fill value, because nobody has put one.
    pub fn is_untouched(&self, bounds: &[Range<u64>]) -> bool {
        source::is_untouched(self.source.as_ref(), self.layers(), &self.bounds(bounds))
    }

    /// A box of the grid; strides are those of the grid's dimensions, 0 along dimensions that the array does not have.
    pub fn picture(&self, bounds: &[Range<u64>]) -> Result<Picture> {
        let mut picture = source::picture(&self.source, self.layers(), &self.bounds(bounds))?;
        let own = picture.strides;
        picture.strides = [0; RANK_MAX];
        for (number, &(dimension, _)) in self.along.iter().enumerate() {
            picture.strides[dimension] = own[number];
        }
        Ok(picture)
    }
}

/// What a column of the table is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Meaning {
    Dimension(usize),
    /// Other coordinates of a dimension: of the grid's axes by number.
    Along {
        dimension: usize,
        axis: usize,
    },
    Column(usize),
}

impl Meaning {
    /// The dimension whose coordinates it is.
    pub fn dimension(self) -> Option<usize> {
        match self {
            Meaning::Dimension(dimension) | Meaning::Along { dimension, .. } => Some(dimension),
            Meaning::Column(_) => None,
        }
    }

    pub fn column(self) -> Option<usize> {
        match self {
            Meaning::Column(column) => Some(column),
            Meaning::Dimension(_) | Meaning::Along { .. } => None,
        }
    }
}

#[derive(Clone)]
pub struct Grid {
    pub name: String,
    pub dimensions: Vec<Dimension>,
    pub columns: Vec<Column>,
    /// Coordinates that dimensions have beside their own: those of the other side of a join that does not equate them as they are.
    pub axes: Vec<Axis>,
    pub fields: Vec<Meaning>,
    /// Cells whose columns all have the fill value are no rows.
    pub is_sparse: bool,
    /// Columns that say which cells there are: those where all of them are not zero. They need not be among the fields.
    pub presence: Vec<usize>,
    /// One of so many small ones that are read at once.
    pub siblings: usize,
    schema: SchemaRef,
}

impl std::fmt::Debug for Grid {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}{:?}", self.name, self.dimensions.iter().map(|d| (&d.name, d.extent)).collect::<Vec<_>>())
    }
}

impl Grid {
    /// What is read again and again, is to be read faster from now on.
    pub fn gather(&self) {
        self.columns.iter().for_each(|column| column.source.gather());
    }

    /// The table's columns: the dimensions, then the arrays.
    pub fn new(name: &str, dimensions: Vec<Dimension>, columns: Vec<Column>, is_sparse: bool) -> Result<Grid> {
        let dimension_fields = (0..dimensions.len()).map(Meaning::Dimension);
        let fields: Vec<Meaning> = dimension_fields.chain((0..columns.len()).map(Meaning::Column)).collect();
        let names = dimensions.iter().map(|d| d.name.clone()).chain(columns.iter().map(|c| c.name.clone())).collect();
        Grid::with_fields(name, dimensions, columns, vec![], (fields, names), is_sparse)
    }

    /// With the table's columns as given; several may mean the same.
    pub fn with_fields(
        name: &str,
        dimensions: Vec<Dimension>,
        columns: Vec<Column>,
        axes: Vec<Axis>,
        (fields, names): (Vec<Meaning>, Vec<String>),
        is_sparse: bool,
    ) -> Result<Grid> {
        if dimensions.len() > RANK_MAX {
            return Err(Error::invalid(format!(
                "the table `{name}` would have {} dimensions: at most {RANK_MAX}",
                dimensions.len()
            )));
        }
        let schema_fields: Vec<Field> = fields
            .iter()
            .zip(&names)
            .map(|(field, name)| match *field {
                Meaning::Dimension(d) => Field::new(name, dimensions[d].axis.data_type(), false),
                Meaning::Along { axis, .. } => Field::new(name, axes[axis].data_type(), false),
                Meaning::Column(c) => {
                    let cells = columns[c].data_type();
                    Field::new(name, arrow_type(cells), may_be_null(cells))
                }
            })
            .collect();
        let schema = Arc::new(Schema::new(schema_fields));
        Ok(Grid {
            name: name.into(),
            dimensions,
            columns,
            axes,
            fields,
            is_sparse,
            presence: vec![],
            siblings: 1,
            schema,
        })
    }

    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    /// The coordinates that a field is, and whose.
    pub fn coordinates(&self, field: usize) -> Option<(usize, &Axis)> {
        match self.fields[field] {
            Meaning::Dimension(dimension) => Some((dimension, &self.dimensions[dimension].axis)),
            Meaning::Along { dimension, axis } => Some((dimension, &self.axes[axis])),
            Meaning::Column(_) => None,
        }
    }
    pub fn rank(&self) -> usize {
        self.dimensions.len()
    }
    /// Several agents share an array of it.
    pub fn is_shared(&self) -> bool {
        self.columns.iter().any(|column| column.source.shared_array().is_some())
    }
    pub fn cells(&self) -> u64 {
        self.dimensions.iter().map(|dimension| dimension.extent).product()
    }
}
