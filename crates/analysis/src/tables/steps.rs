//! The steps of a view, as all readers count them.

use terrace_client::{ArrayView, Region};
use terrace_core::objects;

/// Steps from the first on that are complete.
pub fn complete_steps(view: &ArrayView, dimension: usize) -> u64 {
    if let Some(steps) = view.whole_steps() {
        return steps.min(view.shape[dimension]);
    }
    let start = if view.has_base { view.base_shape[dimension] } else { 0 };
    let regions: Vec<Region> = view.layers.iter().map(|layer| layer.region).collect();
    objects::complete_steps(start, &view.shape, &regions, dimension)
}
