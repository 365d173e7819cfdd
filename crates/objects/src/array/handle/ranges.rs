//! Least and greatest values of extents: looked at once, by whoever has the time (a flush) or the need (a query), and then said in the
//! log for everybody.

use super::super::log::{Log, State, ValueRange};
use super::super::mapped::MappedFile;
use super::ArrayHandle;
use super::copy;
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};
use terrace_core::objects::{DataType, Result};

/// Cells are looked at in pieces that stay in a core's cache; a multiple of every cell that has an order.
const PIECE: usize = 128 << 10;

impl ArrayHandle {
    /// Sees to it that the ranges of all staged extents are known, as far as they have any.
    pub fn say_ranges(&self) -> Result<()> {
        let (log, extents) = {
            let mut inner = self.locked();
            self.current(&mut inner, false)?;
            let Some(staged) = &mut inner.staged else { return Ok(()) };
            let unknown: Vec<_> =
                staged.extents.iter().filter(|extent| staged.log.range(extent.record) == ValueRange::Unknown).collect();
            // A segment that can't be had belongs to a generation that has just ended.
            let files = unknown.into_iter().filter_map(|extent| {
                let file = staged.mapped.get(&self.place, &staged.stage, extent.spot.segment).ok()?;
                let is_inside = (extent.spot.position + extent.spot.bytes) as usize <= file.len();
                is_inside.then_some((extent.record, extent.spot, file))
            });
            (staged.log.clone(), files.collect::<Vec<_>>())
        };
        for (record, spot, file) in extents {
            let range = range_of(self.spec.data_type, &file, spot.position as usize, spot.bytes as usize);
            // An extent that was buried meanwhile may have had other cells already.
            fence(SeqCst);
            if log.state(record) == State::Committed {
                log.say_range(record, range);
            }
        }
        Ok(())
    }
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

fn range_of(data_type: DataType, file: &Arc<MappedFile>, position: usize, bytes: usize) -> Option<(f64, f64)> {
    // Without an order: nothing to look at.
    data_type.range(&vec![0; data_type.size()])?;
    let mut piece = vec![0u8; PIECE.min(bytes)];
    let mut found: Option<(f64, f64)> = None;
    let mut at = 0;
    while at < bytes {
        let count = PIECE.min(bytes - at);
        // SAFETY: inside the mapping, as the caller has looked; others may change the cells meanwhile, which the caller sees.
        unsafe { copy(file.base().add(position + at), piece.as_mut_ptr(), count, false) };
        let (low, high) = data_type.range(&piece[..count])?;
        found = Some(found.map_or((low, high), |(least, greatest)| (least.min(low), greatest.max(high))));
        at += count;
    }
    found
}
