//! The performance model: how long a workflow's input and output must take on given storage. Pure arithmetic, no I/O.
//!
//! ```text
//!   Machine (nodes, disks, bandwidths) ─┐
//!                                       ├─▶ durable_alone_s   the durable tier does everything      eq. 1–3
//!   Workload (input, intermediate,      ├─▶ page_cache_s      memory absorbs all but first reads    eq. 4
//!             final bytes; file size) ──┴─▶ tiers             memory, then local disks, then root   eq. 5–11
//!
//!   Platform (any number of tiers, ─┬─▶ closed_form  the same equations, with computing and flush, and what limits
//!   processors, latencies) + Job ───┴─▶ simulate     the run event by event: contention, metadata, page cache, movers
//!
//!   RunProfile (bytes a run really moved) + TierRates ─▶ predict_run ─▶ Prediction (with the page cache and without)
//! ```
//!
//! The equations are those of "Sea: A lightweight data-placement library for Big Data scientific computing"
//! (Hayot-Sasson, Dugré and Glatard, arXiv:2207.01737), numbered as each function's documentation says. They add up
//! the time of each transfer at its bandwidth: no overlap of reading with writing, no computing, no latency. So a real
//! run may lie below it (overlap) or above it (metadata, contention): neither is a bound.
//!
//! Units: sizes are bytes, bandwidths are bytes a second, times are seconds. A bandwidth may be infinite ("does not limit").
//! Prediction stays independent of measurement, so that the two can disagree.

mod equations;
mod error;
mod job;
mod ladder;
mod machine;
mod measured;
pub mod platform;
mod run;
pub mod simulate;
mod workload;

pub use equations::{Placement, TierPrediction, durable_alone_s, page_cache_s, place, tiers};
pub use error::ModelError;
pub use job::{Flush, Job, Layout, NextStep};
pub use ladder::{ClosedForm, LargerTier, Term, Times, closed_form, larger_tiers};
pub use machine::Machine;
pub use measured::{MEASUREMENTS_VERSION, MeasuredTier, RatesOfProcesses, TierMeasurements};
pub use platform::Platform;
pub use run::{Prediction, RunProfile, TierRates, TierTraffic, predict_run};
pub use workload::{Incrementation, Workload};

/// Bytes in a mebibyte: `121.0 * MIB` is 121 MiB/s.
pub const MIB: f64 = 1_048_576.0;
