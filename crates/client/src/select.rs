//! Questions about values: which cells of arrays of one shape meet comparisons, joined by *and* and *or*; how many, where, with what data.
//!
//! ```text
//!  tiles, in C order ─▶ is the answer known by the ranges of the extents that cover it? ─▶ else: get its cells, compare ─▶ runs of cells
//! ```
//!
//! Asked is what lies there: functions that are applied to what is got (`hooks`) are not. Ranges are those that extents of this node have, so an array whose cells are on other agents is read.

use crate::array::Array;
use terrace_core::objects::few::Condition;
use terrace_core::objects::{ArraySpec, ObjectError, Overlap, Region, Result, cells};

/// Cells of a tile: as many as are looked at without looking at their neighbours.
const TILE_CELLS: u64 = 64 << 10;
/// Most bins of a histogram.
const BINS_MAX: usize = 1 << 24;

/// A question that each cell answers with yes or no.
#[derive(Clone)]
pub enum Where {
    Meets(Array, Condition),
    And(Vec<Where>),
    Or(Vec<Where>),
}

/// Cells that have met a question, by their positions in C order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    shape: Vec<u64>,
    /// First position and number of cells; in order, none beside the next.
    runs: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    pub low: f64,
    pub high: f64,
    /// Bins of one width; each has its lower end, the last one its upper end, too.
    pub counts: Vec<u64>,
}

impl Where {
    /// Cells of the array that are `> 3.5` (also `<`, `<=`, `>=`, `=`, `!=`). NaN meets nothing.
    pub fn new(array: &Array, comparison: &str) -> Result<Where> {
        let condition = Condition::parse(&[comparison.to_owned()]).map_err(ObjectError::invalid)?;
        check_comparable(array.spec())?;
        Ok(Where::Meets(array.clone(), condition))
    }

    pub fn and(self, other: Where) -> Where {
        Where::And(vec![self, other])
    }

    pub fn or(self, other: Where) -> Where {
        Where::Or(vec![self, other])
    }

    fn arrays<'a>(&'a self, found: &mut Vec<&'a Array>) {
        match self {
            Where::Meets(array, _) if found.iter().any(|known| known.is_same(array)) => {}
            Where::Meets(array, _) => found.push(array),
            Where::And(parts) | Where::Or(parts) => parts.iter().for_each(|part| part.arrays(found)),
        }
    }

    /// Of the whole arrays, or of a block of them.
    pub fn select(&self, within: Option<&Region>) -> Result<Selection> {
        let mut arrays = vec![];
        self.arrays(&mut arrays);
        let sources: Vec<Source> = arrays.into_iter().map(Source::new).collect::<Result<_>>()?;
        let shape = sources[0].shape.clone();
        if let Some(other) = sources.iter().find(|source| source.shape != shape) {
            return Err(ObjectError::invalid(format!(
                "arrays of shape {shape:?} and {:?} can't be asked together: cells are compared with those of the same place",
                other.shape
            )));
        }
        let mut selection = Selection { shape: shape.clone(), runs: vec![] };
        for tile in tiles(&shape, within)? {
            match self.decide(&sources, &tile) {
                Some(false) => {}
                Some(true) => selection.take(&tile, None),
                None => {
                    let mask = self.mask(&sources, &tile)?;
                    selection.take(&tile, Some(&mask));
                }
            }
        }
        selection.sort();
        Ok(selection)
    }

    /// `None`: its cells have to be looked at.
    fn decide(&self, sources: &[Source], tile: &Region) -> Option<bool> {
        match self {
            Where::Meets(array, condition) => {
                let ranges = of(sources, array).ranges(tile)?;
                let mut decided = ranges.into_iter().map(|(low, high)| condition.decide(low, high));
                let first = decided.next()??;
                decided.all(|other| other == Some(first)).then_some(first)
            }
            Where::And(parts) => {
                let decided: Vec<_> = parts.iter().map(|part| part.decide(sources, tile)).collect();
                let is_no = decided.contains(&Some(false));
                if is_no { Some(false) } else { decided.iter().all(|one| *one == Some(true)).then_some(true) }
            }
            Where::Or(parts) => {
                let decided: Vec<_> = parts.iter().map(|part| part.decide(sources, tile)).collect();
                let is_yes = decided.contains(&Some(true));
                if is_yes { Some(true) } else { decided.iter().all(|one| *one == Some(false)).then_some(false) }
            }
        }
    }

    fn mask(&self, sources: &[Source], tile: &Region) -> Result<Vec<bool>> {
        match self {
            Where::Meets(array, condition) => {
                let spec = array.spec();
                let mut bytes = vec![0; tile.cells() as usize * spec.data_type.size()];
                array.get_plain(tile, &mut bytes)?;
                condition.mask(spec.data_type, &bytes).ok_or_else(|| incomparable(spec))
            }
            Where::And(parts) | Where::Or(parts) => {
                let is_and = matches!(self, Where::And(_));
                let mut all = vec![is_and; tile.cells() as usize];
                for part in parts {
                    match part.decide(sources, tile) {
                        Some(known) if known == is_and => {}
                        Some(known) => all.fill(known),
                        None => {
                            let mask = part.mask(sources, tile)?;
                            let join =
                                |all: &mut bool, one: bool| *all = if is_and { *all && one } else { *all || one };
                            all.iter_mut().zip(mask).for_each(|(all, one)| join(all, one));
                        }
                    }
                }
                Ok(all)
            }
        }
    }
}

impl Selection {
    pub fn count(&self) -> u64 {
        self.runs.iter().map(|(_, count)| count).sum()
    }

    /// The arrays' shape when they were asked.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// In C order: of the place [i, j] of an array of m columns i m + j.
    pub fn positions(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|&(first, count)| first..first + count)
    }

    /// The selected cells of an array of the same shape, packed in their order; as they are now.
    pub fn data(&self, array: &Array) -> Result<Vec<u8>> {
        let shape = array.shape()?;
        let is_larger = shape.len() == self.shape.len() && shape.iter().zip(&self.shape).all(|(now, then)| now >= then);
        if !is_larger {
            return Err(ObjectError::invalid(format!(
                "cells were selected in an array of shape {:?}: one of shape {shape:?} has others there",
                self.shape
            )));
        }
        let size = array.spec().data_type.size();
        let (mut data, mut buffer) = (Vec::with_capacity(self.count() as usize * size), vec![]);
        let mut runs = self.runs.iter().copied().peekable();
        for tile in tiles(&self.shape, None)? {
            let (first, end) = span(&self.shape, &tile);
            let mut is_got = false;
            while let Some(&(at, count)) = runs.peek() {
                if at >= end {
                    break;
                }
                if !is_got {
                    buffer.resize(tile.cells() as usize * size, 0);
                    array.get_plain(&tile, &mut buffer)?;
                    is_got = true;
                }
                let until = (at + count).min(end);
                // A run may have begun in an earlier tile.
                let from = at.max(first);
                data.extend_from_slice(&buffer[(from - first) as usize * size..(until - first) as usize * size]);
                if at + count > end {
                    break;
                }
                runs.next();
            }
        }
        Ok(data)
    }

    fn take(&mut self, tile: &Region, mask: Option<&[bool]>) {
        // A tile of a block may be many pieces of the whole: one for each row.
        let row = tile.count().last().copied().unwrap_or(1) as usize;
        let firsts: Vec<u64> = rows(&self.shape, tile).collect();
        for (number, first) in firsts.into_iter().enumerate() {
            match mask {
                None => self.add(first, row as u64),
                Some(mask) => {
                    for (at, _) in mask[number * row..][..row].iter().enumerate().filter(|(_, meets)| **meets) {
                        self.add(first + at as u64, 1);
                    }
                }
            }
        }
    }

    fn add(&mut self, first: u64, count: u64) {
        match self.runs.last_mut() {
            Some((at, known)) if *at + *known == first => *known += count,
            _ => self.runs.push((first, count)),
        }
    }

    /// Tiles of a block come in the block's order, not in that of the whole.
    fn sort(&mut self) {
        self.runs.sort_unstable();
        let runs = std::mem::take(&mut self.runs);
        runs.into_iter().for_each(|(first, count)| self.add(first, count));
    }
}

/// How many cells lie in each of so many bins. `bounds`: `None` for least and greatest of all cells. NaN, and what lies outside, is in none.
pub fn histogram(array: &Array, within: Option<&Region>, bins: usize, bounds: Option<(f64, f64)>) -> Result<Histogram> {
    check_comparable(array.spec())?;
    if bins == 0 || bins > BINS_MAX {
        return Err(ObjectError::invalid(format!("a histogram of {bins} bins: 1 to {BINS_MAX} are possible")));
    }
    let source = Source::new(array)?;
    let tiles = tiles(&source.shape, within)?;
    let values = |tile: &Region| -> Result<Vec<f64>> {
        let mut bytes = vec![0; tile.cells() as usize * array.spec().data_type.size()];
        array.get_plain(tile, &mut bytes)?;
        array.spec().data_type.floats(&bytes).ok_or_else(|| incomparable(array.spec()))
    };
    let (low, high) = match bounds {
        Some((low, high)) if low <= high && low.is_finite() && high.is_finite() => (low, high),
        Some((low, high)) => return Err(ObjectError::invalid(format!("no histogram lies from {low} to {high}"))),
        None => {
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            for tile in &tiles {
                for value in values(tile)?.into_iter().filter(|value| value.is_finite()) {
                    (low, high) = (low.min(value), high.max(value));
                }
            }
            if low <= high { (low, high) } else { (0.0, 0.0) }
        }
    };
    let mut counts = vec![0u64; bins];
    let bin = |value: f64| {
        let is_inside = value >= low && value <= high;
        is_inside.then(|| (((value - low) / (high - low).max(f64::MIN_POSITIVE) * bins as f64) as usize).min(bins - 1))
    };
    for tile in &tiles {
        let known = source.ranges(tile).and_then(|ranges| {
            let mut places = ranges.into_iter().flat_map(|(low, high)| [bin(low), bin(high)]);
            let first = places.next()??;
            places.all(|other| other == Some(first)).then_some(first)
        });
        match known {
            Some(place) => counts[place] += tile.cells(),
            None => values(tile)?.into_iter().filter_map(bin).for_each(|place| counts[place] += 1),
        }
    }
    Ok(Histogram { low, high, counts })
}

/// An array, and what is known of its extents.
struct Source {
    array: Array,
    shape: Vec<u64>,
    /// Newest first.
    extents: Vec<(Region, Option<(f64, f64)>)>,
}

impl Source {
    fn new(array: &Array) -> Result<Source> {
        let shape = array.shape()?;
        let mut extents = vec![];
        if array.handle().is_some() {
            // Looked at once, for all questions.
            array.say_ranges()?;
            let view = array.view()?;
            extents.extend(view.layers.iter().rev().map(|layer| (layer.region, layer.range)));
        }
        Ok(Source { array: array.clone(), shape, extents })
    }

    /// Ranges of all extents that a tile's cells may be in. `None`: some are not known.
    fn ranges(&self, tile: &Region) -> Option<Vec<(f64, f64)>> {
        let mut ranges = vec![];
        for (region, range) in &self.extents {
            let Some(overlap) = Overlap::of(region, tile) else { continue };
            ranges.push((*range)?);
            if overlap.covers_target() {
                return Some(ranges);
            }
        }
        None
    }
}

fn of<'a>(sources: &'a [Source], array: &Array) -> &'a Source {
    sources.iter().find(|source| source.array.is_same(array)).expect("all arrays of the question are among the sources")
}

fn incomparable(spec: &ArraySpec) -> ObjectError {
    ObjectError::invalid(format!("cells of the type {} can't be compared with numbers", spec.data_type))
}

fn check_comparable(spec: &ArraySpec) -> Result<()> {
    spec.data_type.floats(&[]).map(drop).ok_or_else(|| incomparable(spec))
}

/// Blocks that lie in C order, whole in the inner dimensions as far as that goes.
fn tiles(shape: &[u64], within: Option<&Region>) -> Result<Vec<Region>> {
    let whole = Region::whole(shape)?;
    let within = within.unwrap_or(&whole);
    within.check_rank(shape.len())?;
    within.check_within(shape)?;
    if within.stride().iter().any(|&stride| stride != 1) {
        return Err(ObjectError::invalid("cells are selected in blocks, without strides"));
    }
    let (offset, count) = (within.offset(), within.count());
    if within.is_empty() {
        return Ok(vec![]);
    }
    let mut extent = vec![1; count.len()];
    let mut left = TILE_CELLS;
    for d in (0..count.len()).rev() {
        extent[d] = count[d].min(left).max(1);
        left = if extent[d] == count[d] { left / extent[d] } else { 1 };
        left = left.max(1);
    }
    let mut at = vec![0; count.len()];
    let mut found = vec![];
    'all: loop {
        let start: Vec<u64> = at.iter().zip(offset).map(|(at, offset)| at + offset).collect();
        let size: Vec<u64> = (0..at.len()).map(|d| extent[d].min(count[d] - at[d])).collect();
        found.push(Region::block(&start, &size)?);
        for d in (0..at.len()).rev() {
            at[d] += extent[d];
            if at[d] < count[d] {
                continue 'all;
            }
            at[d] = 0;
        }
        return Ok(found);
    }
}

fn position(shape: &[u64], place: &[u64]) -> u64 {
    shape.iter().zip(place).fold(0, |position, (extent, at)| position * extent + at)
}

/// First position of a tile of the whole, and the one after its last.
fn span(shape: &[u64], tile: &Region) -> (u64, u64) {
    let first = position(shape, tile.offset());
    (first, first + tile.cells())
}

/// First positions of a tile's rows.
fn rows(shape: &[u64], tile: &Region) -> impl Iterator<Item = u64> {
    let outer = tile.rank().saturating_sub(1);
    let count: Vec<u64> = tile.count()[..outer].to_vec();
    let (offset, shape) = (tile.offset().to_vec(), shape.to_vec());
    (0..cells(&count).unwrap_or(0).max(1)).map(move |number| {
        let mut place = offset.clone();
        let mut left = number;
        for d in (0..outer).rev() {
            place[d] += left % count[d];
            left /= count[d];
        }
        position(&shape, &place)
    })
}
