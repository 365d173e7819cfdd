//! Arrays: staged as a log of immutable extents in the tiers, durable as a Zarr v3 array in the root.
//!
//! ```text
//!  ROOT/study/temperature/               an array is a directory
//!    zarr.json, c/0/0, c/0/1 …           its durable form
//!    .staged ──▶ TIER/terrace-UID-ROOTID/a/ID/
//!                  log                   header, then one record for each put
//!                  s00000000 …           segments: packed cells (of any tier: the same ID below its directory)
//!                  locks                 region locks
//! ```
//!
//! put: copy the cells into a segment ─▶ publish a record: one compare-and-swap. No message.
//! get: the newest extents that cover the region, over the durable form, over the fill value.
//!
//! Invariants:
//! 1. A record is published once, by its claimer (`FREE → COMMITTED`), or never (`FREE → ABORTED`, by the agent).
//! 2. Bytes of an extent change only after its record is `DEAD`; a reader looks at the records again after it has copied.
//! 3. Only the agent ends a generation of the log: it freezes the tail, settles what is claimed, and puts a new log in
//!    its place. A put that meets a frozen log is done again in the next generation.
//! 4. The link `.staged` says that there is newer data than the durable form, as a file's link does.

mod base;
mod copying;
mod durable;
mod extents;
mod flush;
mod handle;
mod locks;
mod log;
mod mapped;
mod metadata;
mod reshape;
mod segments;
mod stage;
mod tail;

pub use base::{Base, ChunkSource};
pub use copying::{copy_overlap, fill};
pub use durable::{Cut, Drops, Flushed, compact, directory_of, flush_stage, is_dirty, is_locked, stage_bytes};
pub use handle::{ArrayHandle, ExtentId, Layer, OftenRead, Services, View, Zones, whole};
pub use locks::{LockMode, LockTable, RegionLock};
pub use log::{LIVE, Log, RECORDS_MAX, ValueRange};
pub use metadata::{
    ArrayMetadata, CHUNKS, METADATA_FILE, Metadata, create_array, create_group, read_metadata, write_metadata,
};
pub use reshape::{check_reshape, reshape};
pub use stage::{
    ROOT_DEVICE, STAGED, Stage, all_devices, may_have_stages, relative, remove_directory, remove_stage, room_of,
    stage_of, staged_link, stages, stages_dir, stages_on,
};
pub use tail::{Next, StagedPart, Tail};
