//! Terrace's objects for programs. Blocking calls, no runtime, safe to fork.
//!
//! ```no_run
//! # fn main() -> terrace_client::Result<()> {
//! use terrace_client::{Session, Create};
//! let session = Session::connect("")?;                   // the agent of this run; or a root's path
//! session.create_container("study", Create::IfMissing)?; // a directory below the root
//! let table = session.create_bytes("study/table.fits", Create::Replace)?;
//! table.append(&[0; 2880])?;                             // gathered, published by `flush` and by closing
//! table.close()?;
//! // An array with a dimension that grows: put and get regions, in C order.
//! use terrace_client::{ArraySpec, DataType, Region};
//! let spec = ArraySpec::new(DataType::Float64, &[0, 100]).unlimited(0).dimensions(&["time", "x"]);
//! let array = session.create_array("study/temperature", &spec, Create::New)?;
//! array.put_values(&Region::block(&[0, 0], &[1, 100])?, &[1.5f64; 100])?;
//! assert_eq!(array.shape()?, [1, 100]);
//! session.flush("study")?;                               // now a Zarr v3 array in the root
//! let table = session.open_bytes("study/table.fits", false)?;
//! let mut card = [0; 80];
//! table.read_exact_at(0, &mut card)?;                    // no message
//! # Ok(()) }
//! ```
//!
//! Every type here may be used by several threads at once. After `fork` the child may go on with what it inherited: what
//! must not be shared is made anew when it is next used; what the parent had gathered and not published stays the parent's.

mod array;
mod bytes;
mod cluster;
mod creating;
mod fabric;
mod hooks;
mod identity;
mod link;
mod members;
mod membership;
mod memory;
pub mod queries;
mod query_nodes;
mod remote;
mod routing;
mod rpc;
mod select;
mod session;
mod spread;
mod stager;
mod steps;
mod tls;
mod transfer;

pub use array::{Array, ArrayView, Mapped, RegionLock};
pub use bytes::Bytes;
pub use hooks::{Foreign, ForeignRegion, When};
pub use identity::Identity;
pub use link::Link;
pub use members::{of_root as agents_of, token_of_root};
pub use query_nodes::QueryNode;
pub use select::{Histogram, Selection, Where, histogram};
pub use session::{Create, FINGERPRINT_SUFFIX, Session};
pub use stager::{Arrived, Full, Staged, Stager, StagerCounters, StagerSpec};
pub use steps::{STEPS_TAG, StepCursor};
pub use terrace_core::objects::wire::{Entry, ObjectKind, Status};
pub use terrace_core::objects::{
    ArraySpec, DataType, Element, Kind, NAT, ObjectError, Placement, Region, Result, Spreading, TagMatch, TagQuery,
    TagValue, TimeUnit, halves, unicode_text,
};
pub use terrace_objects::array::{ExtentId, Layer, LockMode, OftenRead, Zones, whole};
pub use tls::{Socket as TlsSocket, checked_fingerprint, client_config, fingerprint};
pub use transfer::Transfer;
