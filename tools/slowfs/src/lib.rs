//! A pass-through file system that is as slow as it is told to be.
//!
//!   program ─▶ kernel (FUSE, page cache) ─▶ passthrough ─▶ limits ─▶ source directory
//!
//! Terrace is measured against a parallel file system, which a laptop or a CI machine has not got. This stands in for
//! one: all files share one write and one read bandwidth, and each metadata request takes a while, as it does when a
//! server is asked. What the kernel caches costs nothing, as on the clients of such systems.
//!
//! Invariant: contents, names and attributes are the source's own; only time is changed.
//! Reason for FUSE: it needs no server, works for a user who is not root, and one process sees every byte (`Traffic`).

mod inodes;
mod limits;
mod passthrough;
mod requests;

pub use limits::{Limits, LimitsSpec, Traffic};
pub use passthrough::{Caching, SlowFs};
