//! This client's picture of a log: which extents there are, and which of them a region meets.
//!
//! Extents are found by a grid of cells, as large as the extents are; those that reach over many cells of it are in a list of
//! their own. An extent that a newer one covers wholly is left out.

use super::log::{Body, DATA, GROWTH, Log, State};
use super::segments::Spot;
use foldhash::HashMap;
use std::collections::BTreeMap;
use terrace_core::objects::{Overlap, RANK_MAX, Region};

#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub record: u64,
    pub region: Region,
    pub spot: Spot,
}

/// An extent in more cells than this is in the list.
const CELLS_MAX: u64 = 64;
/// A list or a cell longer than this asks for another grid.
const CROWD: usize = 96;
/// Only so many older extents are compared with a new one, to leave out those that it covers.
const PRUNED_MAX: usize = 48;

type Cell = [u64; RANK_MAX];

#[derive(Default)]
pub struct Extents {
    /// Records up to here were looked at.
    scanned: u64,
    /// Claimed below `scanned`, and not settled when they were looked at.
    pending: Vec<u64>,
    by_record: BTreeMap<u64, Extent>,
    by_region: HashMap<Region, u64>,
    grid: HashMap<Cell, Vec<u64>>,
    wide: Vec<u64>,
    /// A grid cell's extent, as powers of two.
    unit: Option<[u32; RANK_MAX]>,
    /// Extents when the grid was last made.
    planned_for: usize,
    /// One past the last cell of any extent.
    pub reach: [u64; RANK_MAX],
}

impl Extents {
    pub fn len(&self) -> usize {
        self.by_record.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.by_record.values()
    }

    /// Takes in what was published since the last look; `covered` hears of each extent that a newer one covers wholly.
    pub fn catch_up(&mut self, log: &Log, mut covered: impl FnMut(Extent)) {
        let tail = log.tail();
        if tail == self.scanned && self.pending.is_empty() {
            return;
        }
        let pending = std::mem::take(&mut self.pending);
        for number in pending.into_iter().chain(self.scanned..tail) {
            self.take_in(log, number, &mut covered);
        }
        self.scanned = tail;
    }

    fn take_in(&mut self, log: &Log, number: u64, covered: &mut dyn FnMut(Extent)) {
        match log.state(number) {
            State::Free => self.pending.push(number),
            State::Dead | State::Aborted => {}
            State::Committed => {
                if let Some(body) = log.body(number) {
                    self.insert(number, &body, covered);
                }
            }
        }
    }

    fn insert(&mut self, record: u64, body: &Body, covered: &mut dyn FnMut(Extent)) {
        let Some(region) = body.region() else { return };
        if body.kind == GROWTH {
            self.reach.iter_mut().zip(region.count()).for_each(|(reach, &count)| *reach = (*reach).max(count));
            return;
        }
        if body.kind != DATA || self.by_record.contains_key(&record) {
            return;
        }
        let end = region.end();
        self.reach.iter_mut().zip(end).for_each(|(reach, end)| *reach = (*reach).max(end));
        let spot = Spot { segment: body.segment, position: body.position, bytes: body.bytes };
        self.leave_out_covered(record, &region, covered);
        if self.by_region.get(&region).is_none_or(|&known| known < record) {
            self.by_region.insert(region, record);
        }
        self.by_record.insert(record, Extent { record, region, spot });
        self.place_in_grid(record, &region);
        let is_crowded = self.wide.len() > CROWD.max(self.by_record.len() / 4);
        if is_crowded && self.by_record.len() > self.planned_for * 2 {
            self.plan();
        }
    }

    fn leave_out_covered(&mut self, record: u64, region: &Region, covered: &mut dyn FnMut(Extent)) {
        if let Some(&same) = self.by_region.get(region)
            && same < record
        {
            self.remove(same).into_iter().for_each(&mut *covered);
        }
        let mut near = vec![];
        self.candidates(region, &mut near);
        for &older in near.iter().take(PRUNED_MAX) {
            let is_covered = older < record
                && self.by_record.get(&older).is_some_and(|extent| {
                    Overlap::of(&extent.region, region).is_some_and(|overlap| overlap.covers_source())
                });
            if is_covered {
                self.remove(older).into_iter().for_each(&mut *covered);
            }
        }
    }

    /// Takes out of the picture what is not there any more; `passed` hears of each.
    pub fn leave_out_below(&mut self, record: u64, mut passed: impl FnMut(Extent)) {
        while let Some((&first, _)) = self.by_record.first_key_value()
            && first < record
        {
            self.remove(first).into_iter().for_each(&mut passed);
        }
    }

    /// Takes an extent out of the picture.
    pub fn remove(&mut self, record: u64) -> Option<Extent> {
        let extent = self.by_record.remove(&record)?;
        if self.by_region.get(&extent.region) == Some(&record) {
            self.by_region.remove(&extent.region);
        }
        match self.cells_of(&extent.region) {
            Some(cells) => {
                for cell in cells {
                    if let Some(list) = self.grid.get_mut(&cell) {
                        list.retain(|&other| other != record);
                        if list.is_empty() {
                            self.grid.remove(&cell);
                        }
                    }
                }
            }
            None => self.wide.retain(|&other| other != record),
        }
        Some(extent)
    }

    fn place_in_grid(&mut self, record: u64, region: &Region) {
        if self.unit.is_none() {
            self.unit = Some(unit_for(std::iter::once(region)));
        }
        match self.cells_of(region) {
            Some(cells) => cells.into_iter().for_each(|cell| self.grid.entry(cell).or_default().push(record)),
            None => self.wide.push(record),
        }
    }

    /// Another grid, for the extents as they are.
    fn plan(&mut self) {
        self.planned_for = self.by_record.len();
        self.unit = Some(unit_for(self.by_record.values().map(|extent| &extent.region)));
        self.grid.clear();
        self.wide.clear();
        let all: Vec<(u64, Region)> = self.by_record.values().map(|extent| (extent.record, extent.region)).collect();
        all.iter().for_each(|(record, region)| self.place_in_grid(*record, region));
    }

    /// The grid's cells that a region lies in; `None`: many.
    fn cells_of(&self, region: &Region) -> Option<Vec<Cell>> {
        let unit = self.unit?;
        let end = region.end();
        let (mut first, mut last) = ([0; RANK_MAX], [0; RANK_MAX]);
        let mut count = 1u64;
        for d in 0..region.rank() {
            first[d] = region.offset()[d] >> unit[d];
            last[d] = end[d].saturating_sub(1) >> unit[d];
            count = count.saturating_mul(last[d].saturating_sub(first[d]) + 1);
        }
        if count > CELLS_MAX {
            return None;
        }
        let mut cells = Vec::with_capacity(count as usize);
        let mut cell = first;
        'all: loop {
            cells.push(cell);
            for d in (0..region.rank()).rev() {
                if cell[d] < last[d] {
                    cell[d] += 1;
                    continue 'all;
                }
                cell[d] = first[d];
            }
            return Some(cells);
        }
    }

    /// Records that may meet the region, in no order.
    fn candidates(&self, region: &Region, out: &mut Vec<u64>) {
        match self.cells_of(region) {
            Some(cells) => {
                for cell in cells {
                    out.extend(self.grid.get(&cell).into_iter().flatten());
                }
                out.extend(&self.wide);
                out.sort_unstable();
                out.dedup();
            }
            None => out.extend(self.by_record.keys()),
        }
    }

    /// Extents that a region meets, newest first, up to one that covers it. True: one does.
    pub fn covering(&self, region: &Region, out: &mut Vec<(Extent, Overlap)>) -> bool {
        let mut records = vec![];
        self.candidates(region, &mut records);
        for record in records.iter().rev() {
            let Some(extent) = self.by_record.get(record) else { continue };
            let Some(overlap) = Overlap::of(&extent.region, region) else { continue };
            let covers = overlap.covers_target();
            out.push((*extent, overlap));
            if covers {
                return true;
            }
        }
        false
    }
}

/// Grid cells as large as the extents are on average.
fn unit_for<'a>(regions: impl Iterator<Item = &'a Region>) -> [u32; RANK_MAX] {
    let (mut sum, mut count) = ([0u128; RANK_MAX], 0u128);
    for region in regions {
        let end = region.end();
        for d in 0..region.rank() {
            sum[d] += (end[d] - region.offset()[d]) as u128;
        }
        count += 1;
    }
    sum.map(|total| {
        let mean = (total / count.max(1)).max(1) as u64;
        mean.next_power_of_two().trailing_zeros()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn region(parts: &[(u64, u64, u64)]) -> Region {
        let column = |get: fn(&(u64, u64, u64)) -> u64| parts.iter().map(get).collect::<Vec<u64>>();
        Region::strided(&column(|p| p.0), &column(|p| p.1), &column(|p| p.2)).unwrap()
    }

    fn body(region: &Region) -> Body {
        Body::data(0, 0, 0, region, 0)
    }

    proptest! {
        /// The grid is only a way to find them: what is found is what a search through all finds.
        #[test]
        fn a_region_meets_the_same_extents_as_by_a_search_through_all(
            puts in proptest::collection::vec(((0u64..40, 1u64..9, 1u64..3), (0u64..40, 1u64..30, 1u64..2)), 1..200),
            get in ((0u64..40, 1u64..20, 1u64..3), (0u64..40, 1u64..20, 1u64..3)),
        ) {
            let mut extents = Extents::default();
            let regions: Vec<Region> = puts.iter().map(|(a, b)| region(&[*a, *b])).collect();
            regions.iter().enumerate().for_each(|(record, region)| extents.insert(record as u64, &body(region), &mut |_| {}));
            let wanted = region(&[get.0, get.1]);
            // For each cell of the wanted region: the newest extent that has it.
            let newest = |row: u64, column: u64| regions.iter().rposition(|region| {
                Overlap::of(region, &Region::block(&[row, column], &[1, 1]).unwrap()).is_some()
            });
            let mut found = vec![];
            extents.covering(&wanted, &mut found);
            prop_assert!(found.windows(2).all(|pair| pair[0].0.record > pair[1].0.record));
            for i in 0..wanted.count()[0] {
                for j in 0..wanted.count()[1] {
                    let (row, column) = (wanted.offset()[0] + i * wanted.stride()[0], wanted.offset()[1] + j * wanted.stride()[1]);
                    let cell = Region::block(&[row, column], &[1, 1]).unwrap();
                    let first = found.iter().find(|(extent, _)| Overlap::of(&extent.region, &cell).is_some());
                    prop_assert_eq!(first.map(|(extent, _)| extent.record as usize), newest(row, column));
                }
            }
        }
    }

    #[test]
    fn a_region_that_is_put_again_and_again_is_one_extent() {
        let mut extents = Extents::default();
        let block = region(&[(0, 8, 1)]);
        (0..1000).for_each(|record| extents.insert(record, &body(&block), &mut |_| {}));
        assert_eq!(extents.iter().map(|extent| extent.record).collect::<Vec<_>>(), [999]);
    }
}
