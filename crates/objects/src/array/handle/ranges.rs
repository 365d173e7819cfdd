//! Least and greatest values of extents: looked at once, by whoever has the time (a flush) or the need (a query), and then said in the
//! log for everybody.

use super::super::log::{Log, State, ValueRange};
use super::super::mapped::MappedFile;
use super::copy;
use super::{ArrayHandle, ExtentId};
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};
use terrace_core::objects::{DataType, Result};

/// Cells are looked at in pieces that stay in a core's cache; a multiple of every cell that has an order.
const PIECE: usize = 128 << 10;

/// An extent, and the ranges of so many of its cells each, one after the other; `None`: a cell is NaN.
pub type Zones = (ExtentId, Vec<Option<(f64, f64)>>);

impl ArrayHandle {
    /// Sees to it that the ranges of all staged extents are known, as far as they have any.
    pub fn say_ranges(&self) -> Result<()> {
        self.zones((PIECE / self.spec.data_type.size()) as u64, &|_| false).map(drop)
    }

    /// The same, and gives those of so many cells each, of extents that have more and are wanted.
    pub fn zones(&self, cells_each: u64, is_wanted: &dyn Fn(&ExtentId) -> bool) -> Result<Vec<Zones>> {
        let (log, extents) = {
            let mut inner = self.locked();
            self.current(&mut inner, false)?;
            let Some(staged) = &mut inner.staged else { return Ok(vec![]) };
            let mut extents = vec![];
            for extent in staged.extents.iter().copied().collect::<Vec<_>>() {
                let id = staged.extent_id(extent.record);
                let is_unknown = staged.log.range(extent.record) == ValueRange::Unknown;
                let is_wanted = extent.region.cells() > cells_each && is_wanted(&id);
                if !is_unknown && !is_wanted {
                    continue;
                }
                // A segment that can't be had belongs to a generation that has just ended.
                let Ok(file) = staged.mapped.get(&self.place, &staged.stage, extent.spot.segment) else { continue };
                if (extent.spot.position + extent.spot.bytes) as usize <= file.len() {
                    extents.push((extent, id, is_unknown, is_wanted, file));
                }
            }
            (staged.log.clone(), extents)
        };
        let mut found = vec![];
        for (extent, id, is_unknown, is_wanted, file) in extents {
            let spot = extent.spot;
            let zones =
                zones_of(self.spec.data_type, &file, spot.position as usize, spot.bytes as usize, cells_each as usize);
            // An extent that was buried meanwhile may have had other cells already.
            fence(SeqCst);
            if log.state(extent.record) != State::Committed {
                continue;
            }
            if is_unknown {
                log.say_range(extent.record, whole(&zones));
            }
            if is_wanted && !zones.is_empty() {
                found.push((id, zones));
            }
        }
        Ok(found)
    }
}

/// Between what all lie, where all are known.
pub fn whole(zones: &[Option<(f64, f64)>]) -> Option<(f64, f64)> {
    let (first, others) = zones.split_first()?;
    others
        .iter()
        .try_fold((*first)?, |(least, greatest), zone| zone.map(|(low, high)| (least.min(low), greatest.max(high))))
}

impl Log {
    /// The range of a published extent, where it is known.
    pub fn known_range(&self, record: u64) -> Option<(f64, f64)> {
        match self.range(record) {
            ValueRange::Known(low, high) => Some((low, high)),
            ValueRange::Unknown | ValueRange::None => None,
        }
    }
}

/// Empty, where cells have no order.
fn zones_of(
    data_type: DataType,
    file: &Arc<MappedFile>,
    position: usize,
    bytes: usize,
    cells_each: usize,
) -> Vec<Option<(f64, f64)>> {
    if data_type.range(&vec![0; data_type.size()]).is_none() {
        return vec![];
    }
    let each = cells_each * data_type.size();
    let mut piece = vec![0u8; each.min(bytes)];
    let of_zone = |at: usize| {
        let count = each.min(bytes - at);
        // SAFETY: inside the mapping, as the caller has looked; others may change the cells meanwhile, which the caller sees.
        unsafe { copy(file.base().add(position + at), piece.as_mut_ptr(), count, false) };
        data_type.range(&piece[..count])
    };
    (0..bytes).step_by(each).map(of_zone).collect()
}
