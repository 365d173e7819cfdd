//! Least and greatest values of parts of extents, so that queries leave out what they have no use for (small materialized aggregates:
//! Moerkotte, VLDB 1998). Each process looks for itself, in time that nobody wants, when a query has compared all cells of an array.
//!
//! Invariant: what is known of an extent is true for as long as there is that extent, since its cells never change.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use terrace_client::{Array, ArrayView, DataType, ExtentId, whole};

/// A smaller extent has one range, which its log knows.
pub const ZONE_CELLS: u64 = 1 << 15;
/// Of all extents together, 24 bytes each; then all are forgotten.
const ZONES_MAX: usize = 1 << 20;

/// What meets more of them is hardly better known by them than by all.
const MEETING_MAX: u64 = 64;

/// Ranges of the values of so many cells each, one after the other as an extent has them.
pub struct Zones {
    cells_each: u64,
    /// `None`: a cell is NaN.
    ranges: Vec<Option<(f64, f64)>>,
    whole: Option<(f64, f64)>,
}

impl Zones {
    pub fn new(cells_each: u64, ranges: Vec<Option<(f64, f64)>>) -> Zones {
        let whole = whole(&ranges);
        Zones { cells_each, ranges, whole }
    }

    pub fn of(data_type: DataType, cells: &[u8], cells_each: u64) -> Zones {
        let ranges = cells.chunks(cells_each as usize * data_type.size()).map(|zone| data_type.range(zone)).collect();
        Zones::new(cells_each, ranges)
    }

    /// Between what some of the cells lie, and maybe some more.
    pub fn range(&self, cells: &Range<u64>) -> Option<(f64, f64)> {
        let (first, end) = (cells.start / self.cells_each, cells.end.div_ceil(self.cells_each));
        match end - first {
            0..=MEETING_MAX => whole(self.ranges.get(first as usize..end as usize)?),
            _ => self.whole,
        }
    }
}

#[derive(Default)]
struct Known {
    extents: HashMap<ExtentId, Arc<Zones>>,
    zones: usize,
}

static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

fn of(extent: &ExtentId) -> Option<Arc<Zones>> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).extents.get(extent).cloned()
}

/// Between what some of an extent's cells lie, where somebody has looked.
pub fn range(extent: &ExtentId, cells: &Range<u64>) -> Option<(f64, f64)> {
    of(extent)?.range(cells)
}

/// Whether there is nothing to look at in these layers.
pub fn are_known(view: &ArrayView) -> bool {
    let has_zones = |cells: u64| cells > ZONE_CELLS;
    // Of more than all together may have, none stays.
    let all: u64 = view.layers.iter().map(|layer| layer.region.cells() / ZONE_CELLS).sum();
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    all > ZONES_MAX as u64 / 2
        || view.layers.iter().all(|layer| !has_zones(layer.region.cells()) || known.extents.contains_key(&layer.id))
}

/// Looks at all cells of the array's extents here of which nothing is known.
pub fn learn(array: &Array) {
    // Without ranges queries are slower, and no less right.
    let Ok(found) = array.zones(ZONE_CELLS, &|extent| of(extent).is_none()) else { return };
    for (extent, ranges) in found {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        if known.zones + ranges.len() > ZONES_MAX {
            *known = Known::default();
        }
        known.zones += ranges.len();
        known.extents.insert(extent, Arc::new(Zones::new(ZONE_CELLS, ranges)));
    }
}
