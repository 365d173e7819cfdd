//! The vocabulary of the objects door: what an array is, which part of it is meant, what is said about it.
//!
//!   DataType × shape (× chunks, fill) = ArraySpec          Region: which cells          TagValue: what a tag says
//!   wire: how client and agent, or two nodes, say all this to each other
//!
//! Invariant: what comes from outside (a message, a file, an application) is checked here, once, by a constructor; the
//! engine computes with values that can't overflow or lie out of bounds.

mod data_type;
mod error;
pub mod few;
mod overlap;
mod parts;
mod region;
mod rendezvous;
mod spec;
mod spreading;
mod steps;
mod tags;
pub mod wire;

pub use data_type::{DataType, Element, NAT, TimeUnit, halves, unicode_cell, unicode_text};
pub use error::{Kind, ObjectError, Result};
pub use overlap::{Overlap, Run};
pub use parts::for_each_part;
pub use region::{Region, cells};
pub use rendezvous::{choose, key_of_chunk, key_of_name};
pub use spec::{ArraySpec, Placement};
pub use spreading::Spreading;
pub use steps::complete_steps;
pub use tags::{KEY_MAX, MEMBER_KEY, TagMatch, TagQuery, TagValue, check_key, fits, member_key};

/// Most dimensions of an array.
pub const RANK_MAX: usize = 8;
