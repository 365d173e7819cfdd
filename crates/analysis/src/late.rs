//! What is said of a scan's rows while its plan runs: a sort with a limit says what comes too late to be among its rows, a join which keys
//! its other side has. DataFusion calls them dynamic filters.
//!
//! Tiles of which the ranges of values say that they have no such row are not read at all; so a scan that is sorted begins with those that
//! may have the first rows.

use crate::error::Result;
use crate::grid::{Grid, Tile, TileReader};
use crate::predicate::{Mask, is_exact_in_f64, ones};
use arrow::array::{Array, ArrayRef, BooleanArray, Float64Array, UInt64Array};
use arrow::compute::{cast, prep_null_mask_filter};
use arrow::datatypes::SchemaRef;
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Column as Named, ScalarValue};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, IsNotNullExpr, IsNullExpr, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{conjunction, split_conjunction};
use datafusion::physical_expr_common::physical_expr::{snapshot_generation, snapshot_physical_expr};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::PhysicalExpr;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Of a scan of these fields of its grid.
#[derive(Clone)]
pub struct LateFilters {
    pub filters: Arc<[Arc<dyn PhysicalExpr>]>,
    pub fields: Vec<usize>,
    pub schema: SchemaRef,
}

impl LateFilters {
    /// What is said by now, of columns of the scan at these places.
    fn said(&self) -> impl Iterator<Item = Result<(Arc<dyn PhysicalExpr>, BTreeSet<usize>)>> {
        self.filters.iter().filter_map(|filter| {
            let said = match snapshot_physical_expr(filter.clone()) {
                Ok(said) => said,
                Err(error) => return Some(Err(error.into())),
            };
            let places: BTreeSet<usize> = collect_columns(&said).iter().map(Column::index).collect();
            // It says nothing yet.
            (!places.is_empty()).then_some(Ok((said, places)))
        })
    }

    /// Whether something is said of rows; the mask has those for which it holds then.
    pub fn mask(&self, reader: &mut TileReader<'_>, mask: &mut Mask) -> Result<bool> {
        let cells = reader.cells();
        let mut is_said = false;
        for said in self.said() {
            let (filter, places) = said?;
            let places: Vec<usize> = places.into_iter().collect();
            let schema = Arc::new(self.schema.project(&places)?);
            let fields: Vec<usize> = places.iter().map(|&place| self.fields[place]).collect();
            let batch = reader.batch(&schema, &fields, 0, cells)?;
            let remapped = filter.transform_up(|part| {
                let Some(column) = part.downcast_ref::<Column>() else { return Ok(Transformed::no(part)) };
                let place = places.iter().position(|&place| place == column.index()).unwrap_or_default();
                Ok(Transformed::yes(Arc::new(Column::new(column.name(), place)) as Arc<dyn PhysicalExpr>))
            });
            let holds = remapped.data()?.evaluate(&batch)?.into_array(cells as usize)?;
            let holds = datafusion::common::cast::as_boolean_array(&holds)?;
            if !is_said {
                mask.clear();
                mask.resize(cells as usize, u64::MAX);
                is_said = true;
            }
            let holds = if holds.null_count() > 0 { prep_null_mask_filter(holds) } else { holds.clone() };
            match holds.has_true() {
                true => mask.iter_mut().zip(holds.values().iter()).for_each(|(slot, holds)| *slot &= ones(holds)),
                false => mask.fill(0),
            }
        }
        Ok(is_said)
    }

    /// What has been compared cell by cell could be left out next time.
    pub fn learn_ranges(&self, grid: &Grid) {
        let places = self.said().flatten().flat_map(|(_, places)| places);
        let columns = places.filter_map(|place| grid.fields[self.fields[place]].column());
        columns.for_each(|column| grid.columns[column].source.learn_ranges());
    }
}

/// Some tiles, of which those are left out that have no row for which all holds that is said by now.
pub struct Wanted {
    filters: LateFilters,
    ranges: TileRanges,
    /// Of what was said when this was looked at.
    generation: u64,
    /// By numbers of tiles, from the first one on.
    is_wanted: Vec<bool>,
}

impl Wanted {
    pub fn new(filters: LateFilters, grid: Arc<Grid>, tiles: Arc<Vec<Tile>>, share: Range<usize>) -> Wanted {
        let is_wanted = vec![true; share.len()];
        let known = vec![OnceCell::new(); filters.fields.len()];
        let (schema, fields) = (filters.schema.clone(), filters.fields.clone());
        let ranges = TileRanges { grid, tiles, share, schema, fields, known };
        Wanted { filters, ranges, generation: 0, is_wanted }
    }

    pub fn filters(&self) -> &LateFilters {
        &self.filters
    }

    /// Whether a tile may have such a row.
    pub fn has(&mut self, tile: usize) -> Result<bool> {
        let generation =
            self.filters.filters.iter().fold(0, |sum: u64, filter| sum.wrapping_add(snapshot_generation(filter)));
        if generation != self.generation {
            self.generation = generation;
            self.look()?;
        }
        Ok(self.is_wanted[tile - self.ranges.share.start])
    }

    fn look(&mut self) -> Result<()> {
        for said in self.filters.said() {
            let (filter, places) = said?;
            if !places.iter().any(|&place| self.ranges.of(place).is_some()) {
                continue;
            }
            let parts = split_conjunction(&filter).into_iter().filter(|part| is_plain(part)).cloned();
            let filter = conjunction(parts.collect::<Vec<_>>());
            // What it can't say of ranges is said of each cell.
            let builder = PruningPredicateBuilder::new().with_file_schema(self.ranges.schema.clone());
            let Ok(may_have) = builder.try_build(filter).and_then(|pruning| pruning.prune(&self.ranges)) else {
                continue;
            };
            self.is_wanted.iter_mut().zip(may_have).for_each(|(is_wanted, may_have)| *is_wanted &= may_have);
        }
        Ok(())
    }
}

/// Comparisons of columns as they are: to the engine every cast and negation keeps the order, which some do not.
fn is_plain(part: &Arc<dyn PhysicalExpr>) -> bool {
    use Operator::*;
    let is_known = part.is::<Column>()
        || part.is::<Literal>()
        || part.is::<IsNullExpr>()
        || part.is::<IsNotNullExpr>()
        || part
            .downcast_ref::<BinaryExpr>()
            .is_some_and(|binary| matches!(binary.op(), And | Or | Eq | NotEq | Lt | LtEq | Gt | GtEq));
    is_known && part.children().into_iter().all(is_plain)
}

/// Between what the values of tiles lie, as far as that is known, as DataFusion asks for it.
struct TileRanges {
    grid: Arc<Grid>,
    tiles: Arc<Vec<Tile>>,
    share: Range<usize>,
    schema: SchemaRef,
    fields: Vec<usize>,
    /// Least and greatest of each field.
    known: Vec<OnceCell<Option<(ArrayRef, ArrayRef)>>>,
}

impl TileRanges {
    fn of(&self, place: usize) -> Option<&(ArrayRef, ArrayRef)> {
        let look = || {
            let field = self.fields[place];
            let column = &self.grid.columns[self.grid.fields[field].column()?];
            let own = self.schema.field(place).data_type();
            if !is_exact_in_f64(own) {
                return None;
            }
            let ranges: Vec<Option<(f64, f64)>> =
                self.tiles[self.share.clone()].iter().map(|tile| column.range(&tile.bounds)).collect();
            if ranges.iter().all(Option::is_none) {
                return None;
            }
            // Zeroes of both signs are one number to a range, and two to the engine.
            let least = |(low, _): (f64, f64)| if low == 0.0 { -0.0 } else { low };
            let greatest = |(_, high): (f64, f64)| if high == 0.0 { 0.0 } else { high };
            let told = |of: &dyn Fn((f64, f64)) -> f64| {
                let values: Float64Array = ranges.iter().map(|range| range.map(of)).collect();
                cast(&values, own).ok()
            };
            Some((told(&least)?, told(&greatest)?))
        };
        self.known[place].get_or_init(look).as_ref()
    }

    fn named(&self, column: &Named) -> Option<&(ArrayRef, ArrayRef)> {
        self.of(self.schema.index_of(&column.name).ok()?)
    }
}

impl PruningStatistics for TileRanges {
    fn min_values(&self, column: &Named) -> Option<ArrayRef> {
        self.named(column).map(|(least, _)| least.clone())
    }
    fn max_values(&self, column: &Named) -> Option<ArrayRef> {
        self.named(column).map(|(_, greatest)| greatest.clone())
    }
    fn num_containers(&self) -> usize {
        self.share.len()
    }
    fn null_counts(&self, column: &Named) -> Option<ArrayRef> {
        let field = self.schema.field_with_name(&column.name).ok()?;
        (!field.is_nullable()).then(|| Arc::new(UInt64Array::from(vec![0; self.share.len()])) as ArrayRef)
    }
    fn row_counts(&self) -> Option<ArrayRef> {
        let cells = self.tiles[self.share.clone()].iter().map(|tile| Some(tile.cells()));
        Some(Arc::new(cells.collect::<UInt64Array>()))
    }
    fn contained(&self, _: &Named, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// The order in which a scan's rows are sorted first.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// Of the grid's columns.
    pub column: usize,
    pub is_descending: bool,
}

impl First {
    /// Numbers of tiles: those first that may have the first rows. Of which nothing is known are read in any case.
    pub fn order(self, grid: &Grid, tiles: &[Tile], share: Range<usize>) -> Vec<usize> {
        let first = |number: &usize| match grid.columns[self.column].range(&tiles[*number].bounds) {
            None => f64::NEG_INFINITY,
            Some((_, greatest)) if self.is_descending => -greatest,
            Some((least, _)) => least,
        };
        let mut order: Vec<(f64, usize)> = share.map(|number| (first(&number), number)).collect();
        order.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        order.into_iter().map(|(_, number)| number).collect()
    }
}
