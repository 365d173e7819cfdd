//! What a tier is and where data goes.
//!
//!   placement ──▶ Tier::create ──▶ copy ──▶ Writing::sync ──▶ journal ──▶ Writing::commit ──▶ Tier::sync_name
//!   (which)       (a temporary)    (bytes)  (durable)         (intent)    (rename over)       (durable name)
//!
//! Invariant: nothing is visible under its final name before all its bytes and attributes are there.
//! Everything blocks and runs on the caller's thread, but that one thread compares while another copies. The mover (`terrace-agent`) decides when
//! a step runs; this crate knows how.

pub mod adapters;
pub mod buffer;
pub mod cap;
pub mod conformance;
pub mod copy;
pub mod directory;
pub mod error;
pub mod journal;
pub mod lease;
pub mod placement;
pub mod step;
pub mod tier;

pub use adapters::{Faulty, Metered, Operation, Throttled};
pub use buffer::with_buffer;
pub use cap::BandwidthCap;
pub use copy::{Begun, Behind, Copied, CopyOptions, copy};
pub use directory::{DirectoryTier, FileReading, Left};
pub use error::{Error, Next, Result};
pub use journal::{Journal, Safety};
pub use lease::{Lease, past_leases};
pub use step::{Step, reached};
pub use tier::{
    Attributes, AttributesReport, Entry, EntryKind, Reading, ReadingExt, Space, Stat, Tier, TierExt, Timestamp,
    Writing, WritingExt,
};
