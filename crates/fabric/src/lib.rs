//! Remote memory access by libfabric (fi_rma(3)): cells go between the memory of two nodes without a copy through a socket's buffers,
//! by whatever the cluster has (verbs, cxi, efa), or by TCP.
//!
//!   client: registers its buffer ─▶ tells the agent where, over their connection ─▶ attends
//!   agent:  reads from it, or writes to it, straight from and to its tier ─▶ answers over the connection
//!
//! Only the agent moves bytes, and it exposes none of its own memory. Endpoints are for one thread at a time.
//!
//! Invariant: after a failure the endpoint is closed, and what was on its way goes nowhere any more.

#[cfg(has_libfabric)]
mod shim;
#[cfg(not(has_libfabric))]
#[path = "absent.rs"]
mod shim;

pub use shim::{Endpoint, Exposed};

/// Nothing moved for so long: the other side is lost.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

pub use terrace_core::objects::wire::There;
