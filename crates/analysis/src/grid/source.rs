//! Where an array's cells come from, and a box of them as a strided picture in memory.

use super::zones::{self, Zones};
use crate::error::{Error, Result};
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use terrace_client::{ArrayView, DataType, OftenRead, Region};
use terrace_tool::filesystem::memory_available_bytes;

/// Most dimensions of an array, and so of a grid.
pub const RANK_MAX: usize = 8;

/// A tenth of the time that others get who want it.
const NICE: i32 = 10;
/// Whoever gathers memory is charged with it: at most so-maniest part of what there is.
const CHARGED_PART: u64 = 4;

/// Work that nobody waits for, of each kind one piece at a time.
struct SpareTime {
    name: &'static str,
    is_taken: AtomicBool,
}

/// Until it is dropped.
struct Taken(&'static SpareTime);

impl SpareTime {
    const fn new(name: &'static str) -> SpareTime {
        SpareTime { name, is_taken: AtomicBool::new(false) }
    }

    fn take(&'static self) -> Option<Taken> {
        (!self.is_taken.swap(true, SeqCst)).then_some(Taken(self))
    }
}

impl Taken {
    /// On a thread of its own; where none can be started, not at all.
    fn spend(self, work: impl FnOnce() + Send + 'static) {
        let begun = std::thread::Builder::new().name(self.0.name.into());
        let _ = begun.spawn(move || {
            let _until_its_end = self;
            // Queries that are asked meanwhile go first.
            let _ = setpriority_process(Some(gettid()), NICE);
            work();
        });
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.is_taken.store(false, SeqCst);
    }
}

/// An array at one moment: layers of packed cells in memory, over a base that is read.
pub trait Source: Send + Sync {
    fn data_type(&self) -> DataType;
    fn shape(&self) -> &[u64];
    fn layer_count(&self) -> usize;
    /// Oldest first.
    fn region(&self, layer: usize) -> &Region;
    /// A layer's cells, aligned where the layer was put by Terrace; readable for as long as the source lives.
    fn cells(&self, layer: usize) -> Result<*const u8>;
    /// A layer's least and greatest value, where they are known; none of its cells is a NaN then.
    fn range(&self, _layer: usize) -> Option<(f64, f64)> {
        None
    }
    /// The same of some of a layer's cells, which it has one after the other.
    fn range_of(&self, layer: usize, _cells: Range<u64>) -> Option<(f64, f64)> {
        self.range(layer)
    }
    /// Its cells are computed when they are first read.
    fn is_computed(&self) -> bool {
        false
    }
    /// A query has compared all values: it would have been better off with the ranges of all layers.
    fn learn_ranges(&self) {}
    /// So many bytes of a layer, where they lie.
    fn was_read(&self, _layer: usize, _bytes: u64) {}
    /// A query has been answered, and whoever asks the next one is better off where what is read often is gathered.
    fn gather(&self) {}
    /// Cells of a region that lie below all layers, packed.
    fn read_base(&self, region: &Region, cells: &mut [u8]) -> Result<()>;
    /// Extents of the blocks that the base is read in, if there is one.
    fn base_blocks(&self) -> Option<&[u64]>;
    fn fill(&self) -> &[u8];
    /// The array's name, and what another one of that name has not, where several agents share it, so that other nodes know it by that.
    fn shared_array(&self) -> Option<(String, u64)> {
        None
    }
    /// The agent that keeps a cell of a shared array; the same for all cells of a block of its base.
    fn keeper(&self, _cell: &[u64]) -> Option<u32> {
        None
    }
    /// The array, of which cells are read by its name while a query runs, and its shape when that was planned; `None`: all cells are held, or
    /// computed.
    fn read_by_name(&self) -> Option<(&terrace_client::Array, &[u64])> {
        None
    }
}

impl Source for ArrayView {
    fn data_type(&self) -> DataType {
        self.array().spec().data_type
    }
    fn shape(&self) -> &[u64] {
        &self.shape
    }
    fn layer_count(&self) -> usize {
        self.layers.len()
    }
    fn region(&self, layer: usize) -> &Region {
        &self.layers[layer].region
    }
    fn cells(&self, layer: usize) -> Result<*const u8> {
        Ok(self.layers[layer].cells())
    }
    fn range(&self, layer: usize) -> Option<(f64, f64)> {
        self.layers[layer].range
    }
    fn range_of(&self, layer: usize, cells: Range<u64>) -> Option<(f64, f64)> {
        zones::range(&self.layers[layer].id, &cells).or(self.layers[layer].range)
    }
    fn learn_ranges(&self) {
        static LEARNING: SpareTime = SpareTime::new("ranges");
        if self.layers.iter().all(|layer| layer.range.is_some()) && zones::are_known(self) {
            return;
        }
        if let Some(learning) = LEARNING.take() {
            // Not the view: while that lives, its owners leave room alone.
            let array = self.array().clone();
            learning.spend(move || zones::learn(&array));
        }
    }
    fn was_read(&self, layer: usize, bytes: u64) {
        self.layers[layer].was_read(bytes);
    }
    fn gather(&self) {
        static GATHERING: SpareTime = SpareTime::new("pages");
        let Some(gathering) = GATHERING.take() else { return };
        let mut often = self.often_read();
        if often.is_empty() {
            return;
        }
        let mut left = memory_available_bytes().unwrap_or(0) / CHARGED_PART;
        often.retain(|memory| {
            let has_room = memory.bytes() <= left;
            left -= if has_room { memory.bytes() } else { 0 };
            has_room
        });
        if !often.is_empty() {
            gathering.spend(move || often.iter().for_each(OftenRead::gather));
        }
    }
    fn read_base(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        Ok(ArrayView::read_base(self, region, cells)?)
    }
    fn base_blocks(&self) -> Option<&[u64]> {
        self.has_base.then_some(self.array().spec().chunks.as_slice()).filter(|chunks| !chunks.is_empty())
    }
    fn fill(&self) -> &[u8] {
        &self.array().spec().fill
    }
    fn shared_array(&self) -> Option<(String, u64)> {
        self.array().shared_name().map(|(name, identity)| (name.into(), identity))
    }
    fn keeper(&self, cell: &[u64]) -> Option<u32> {
        self.array().keeper(cell)
    }
    fn read_by_name(&self) -> Option<(&terrace_client::Array, &[u64])> {
        // What lies in memory is held; the base is read chunk by chunk, and what is on other nodes where it is.
        (self.has_base || self.array().shared_name().is_some()).then(|| (self.array(), self.shape.as_slice()))
    }
}

/// An array without dimensions, as one of one dimension that has one cell.
pub struct OneCell {
    view: Arc<ArrayView>,
    place: Region,
}

impl OneCell {
    pub fn new(view: Arc<ArrayView>) -> Result<OneCell> {
        Ok(OneCell { view, place: Region::whole(&[1])? })
    }
}

impl Source for OneCell {
    fn data_type(&self) -> DataType {
        self.view.data_type()
    }
    fn shape(&self) -> &[u64] {
        self.place.count()
    }
    fn layer_count(&self) -> usize {
        self.view.layer_count()
    }
    fn region(&self, _: usize) -> &Region {
        &self.place
    }
    fn cells(&self, layer: usize) -> Result<*const u8> {
        Source::cells(&*self.view, layer)
    }
    fn range(&self, layer: usize) -> Option<(f64, f64)> {
        Source::range(&*self.view, layer)
    }
    fn read_base(&self, _: &Region, cells: &mut [u8]) -> Result<()> {
        Source::read_base(&*self.view, &Region::whole(&[])?, cells)
    }
    fn base_blocks(&self) -> Option<&[u64]> {
        self.view.has_base.then_some(self.place.count())
    }
    fn fill(&self) -> &[u8] {
        self.view.fill()
    }
    fn read_by_name(&self) -> Option<(&terrace_client::Array, &[u64])> {
        self.view.read_by_name()
    }
}

/// Arrays in memory are small.
const MEMORY_ZONE_CELLS: u64 = 16;

/// An array in this process's memory.
pub struct MemoryArray {
    data_type: DataType,
    shape: Vec<u64>,
    fill: Vec<u8>,
    layers: Vec<(Region, arrow::buffer::Buffer)>,
    zones: Vec<Zones>,
}

impl MemoryArray {
    pub fn new(data_type: DataType, shape: &[u64]) -> MemoryArray {
        MemoryArray { data_type, shape: shape.into(), fill: vec![0; data_type.size()], layers: vec![], zones: vec![] }
    }

    /// Puts packed cells over what is there.
    pub fn put(&mut self, region: Region, cells: arrow::buffer::Buffer) -> Result<()> {
        region.check_within(&self.shape)?;
        if region.cells() * self.data_type.size() as u64 != cells.len() as u64 {
            return Err(Error::invalid(format!("{region} does not have {} bytes", cells.len())));
        }
        self.zones.push(Zones::of(self.data_type, &cells, MEMORY_ZONE_CELLS));
        self.layers.push((region, cells));
        Ok(())
    }
}

impl Source for MemoryArray {
    fn data_type(&self) -> DataType {
        self.data_type
    }
    fn shape(&self) -> &[u64] {
        &self.shape
    }
    fn layer_count(&self) -> usize {
        self.layers.len()
    }
    fn region(&self, layer: usize) -> &Region {
        &self.layers[layer].0
    }
    fn cells(&self, layer: usize) -> Result<*const u8> {
        Ok(self.layers[layer].1.as_ptr())
    }
    fn range(&self, layer: usize) -> Option<(f64, f64)> {
        self.zones[layer].range(&(0..self.layers[layer].0.cells()))
    }
    fn range_of(&self, layer: usize, cells: Range<u64>) -> Option<(f64, f64)> {
        self.zones[layer].range(&cells)
    }
    fn read_base(&self, _: &Region, _: &mut [u8]) -> Result<()> {
        unreachable!("it has no base")
    }
    fn base_blocks(&self) -> Option<&[u64]> {
        None
    }
    fn fill(&self) -> &[u8] {
        &self.fill
    }
}

/// A box of an array: the cell at index `i` lies at `base + (offset + Σ i[d] * strides[d])` cells.
pub struct Picture {
    base: *const u8,
    pub strides: [usize; RANK_MAX],
    keep: Keep,
}

#[derive(Clone)]
pub enum Keep {
    Source(Arc<dyn Source>),
    Owned(Arc<Vec<u64>>),
}

// SAFETY: what it points to is kept, and nobody writes to it.
unsafe impl Send for Picture {}
// SAFETY: as above.
unsafe impl Sync for Picture {}

impl Picture {
    pub fn base(&self) -> *const u8 {
        self.base
    }
    pub fn keep(&self) -> Keep {
        self.keep.clone()
    }
}

/// Finds the layers of a range of the first dimension without a look at all of them: arrays grow by many layers, one after the other.
#[derive(Default)]
pub struct LayerIndex {
    /// Layers by where they begin.
    order: Vec<usize>,
    /// Where the layers up to this one end at most.
    reach: Vec<u64>,
}

impl LayerIndex {
    pub fn new(source: &dyn Source) -> LayerIndex {
        let mut order: Vec<usize> = (0..source.layer_count()).collect();
        order.sort_by_key(|&layer| source.region(layer).offset()[0]);
        let mut most = 0;
        let ends = order.iter().map(|&layer| {
            most = most.max(source.region(layer).end()[0]);
            most
        });
        let reach = ends.collect();
        LayerIndex { order, reach }
    }

    /// Newest first.
    fn meeting(&self, source: &dyn Source, range: &Range<u64>) -> Vec<usize> {
        let end = self.order.partition_point(|&layer| source.region(layer).offset()[0] < range.end);
        let candidates = (0..end).rev().take_while(|&place| self.reach[place] > range.start);
        let mut found: Vec<usize> = candidates.map(|place| self.order[place]).collect();
        found.sort_unstable_by(|a, b| b.cmp(a));
        found
    }
}

fn meets(region: &Region, bounds: &[Range<u64>]) -> bool {
    let end = region.end();
    (0..bounds.len()).all(|d| region.offset()[d] < bounds[d].end && end[d] > bounds[d].start)
}

fn covers(region: &Region, bounds: &[Range<u64>]) -> bool {
    let end = region.end();
    let is_inside = |d: usize| region.offset()[d] <= bounds[d].start && end[d] >= bounds[d].end;
    region.is_block() && (0..bounds.len()).all(is_inside)
}

/// Of a region's packed cells those from the first one in the box to the last; the region meets it.
fn packed(region: &Region, bounds: &[Range<u64>]) -> Range<u64> {
    if !region.is_block() {
        return 0..region.cells();
    }
    let (mut first, mut last) = (0, 0);
    for (d, range) in bounds.iter().enumerate() {
        let (offset, count) = (region.offset()[d], region.count()[d]);
        first = first * count + range.start.saturating_sub(offset);
        last = last * count + range.end.min(offset + count) - 1 - offset;
    }
    first..last + 1
}

/// Between what the values of a box lie, as far as its layers say so.
pub fn range(source: &dyn Source, index: &LayerIndex, bounds: &[Range<u64>]) -> Option<(f64, f64)> {
    let mut all: Option<(f64, f64)> = None;
    for number in index.meeting(source, &bounds[0]) {
        let region = source.region(number);
        if !meets(region, bounds) {
            continue;
        }
        let (low, high) = source.range_of(number, packed(region, bounds))?;
        all = Some(all.map_or((low, high), |(least, greatest)| (least.min(low), greatest.max(high))));
        if covers(region, bounds) {
            return all;
        }
    }
    // What no layer covers lies below them.
    None
}

/// Nobody has put a cell of the box, and nothing lies below.
pub fn is_untouched(source: &dyn Source, index: &LayerIndex, bounds: &[Range<u64>]) -> bool {
    source.base_blocks().is_none()
        && !index.meeting(source, &bounds[0]).into_iter().any(|number| meets(source.region(number), bounds))
}

/// A box of an array: where it lies if one layer has all of it, else put together.
pub fn picture(source: &Arc<dyn Source>, index: &LayerIndex, bounds: &[Range<u64>]) -> Result<Picture> {
    let rank = bounds.len();
    let size = source.data_type().size();
    let offset: Vec<u64> = bounds.iter().map(|range| range.start).collect();
    let count: Vec<u64> = bounds.iter().map(|range| range.end - range.start).collect();
    let wanted = Region::block(&offset, &count)?;
    let mut met: Vec<usize> = vec![];
    let mut is_covered = false;
    for number in index.meeting(source.as_ref(), &bounds[0]) {
        let region = source.region(number);
        if !meets(region, bounds) {
            continue;
        }
        let covers = covers(region, bounds);
        if covers && met.is_empty() {
            let cells = source.cells(number)?;
            if (cells as usize).is_multiple_of(size.next_power_of_two().min(16)) {
                source.was_read(number, wanted.cells() * size as u64);
                return Ok(seen_in(source, region, cells, bounds, size));
            }
        }
        met.push(number);
        if covers {
            is_covered = true;
            break;
        }
    }
    let bytes = wanted.cells() as usize * size;
    // Words, so that cells of every type are aligned; with room for the last one's rest.
    let mut owned = vec![0u64; bytes.div_ceil(8)];
    // SAFETY: the vector has at least so many bytes.
    let cells = unsafe { std::slice::from_raw_parts_mut(owned.as_mut_ptr().cast::<u8>(), bytes) };
    if !is_covered {
        match source.base_blocks() {
            Some(_) => source.read_base(&wanted, cells)?,
            None if source.fill().iter().any(|&byte| byte != 0) => {
                cells.chunks_exact_mut(size).for_each(|cell| cell.copy_from_slice(source.fill()));
            }
            None => {}
        }
    }
    for number in met.into_iter().rev() {
        overlay(source.region(number), source.cells(number)?, &wanted, size, cells);
    }
    let mut strides = [0; RANK_MAX];
    let mut stride = 1;
    for d in (0..rank).rev() {
        strides[d] = stride;
        stride *= count[d] as usize;
    }
    let base = owned.as_ptr().cast();
    Ok(Picture { base, strides, keep: Keep::Owned(Arc::new(owned)) })
}

fn seen_in(source: &Arc<dyn Source>, region: &Region, cells: *const u8, bounds: &[Range<u64>], size: usize) -> Picture {
    let mut strides = [0; RANK_MAX];
    let mut stride = 1;
    let mut position = 0;
    for d in (0..bounds.len()).rev() {
        strides[d] = stride;
        position += (bounds[d].start - region.offset()[d]) as usize * stride;
        stride *= region.count()[d] as usize;
    }
    // SAFETY: the box lies in the layer's region.
    let base = unsafe { cells.add(position * size) };
    Picture { base, strides, keep: Keep::Source(source.clone()) }
}

fn overlay(region: &Region, layer: *const u8, wanted: &Region, size: usize, cells: &mut [u8]) {
    let Some(overlap) = terrace_core::objects::Overlap::of(region, wanted) else { return };
    overlap.for_each_run(|run| {
        let (step, count) = if run.from_step == 1 && run.to_step == 1 { (run.cells, 1) } else { (1, run.cells) };
        for i in 0..count {
            let to = (run.to + i * run.to_step) as usize * size;
            let bytes = step as usize * size;
            // SAFETY: the overlap lies in the layer, which has all cells of its region.
            let from =
                unsafe { std::slice::from_raw_parts(layer.add((run.from + i * run.from_step) as usize * size), bytes) };
            cells[to..to + bytes].copy_from_slice(from);
        }
    });
}
