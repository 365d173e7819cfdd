//! The protocol between nodes as models whose every state is visited: ownership and names (`names`), a file that is given to
//! another node (`giving`), what is told of a directory's files (`promises`), replicas and leases (`replicas`).
//!
//! Each model has *slips*: one thing that a builder may leave out, with the invariant that it breaks. A test shows for each of them that
//! the explorer finds the broken state, so that an invariant that holds is known to be able to fail (docs/design/histories.md has the
//! list, as what an implementation must do).
//!
//! The explorer is ours, some 60 lines: the crate `stateright` changes features of `serde` and `ahash`, and with them all of the
//! workspace would be compiled again, for a breadth-first search.

mod explore;
mod giving;
mod names;
mod promises;
mod replicas;

pub use explore::{Bounds, Explored, Model, explore};
pub use giving::Giving;
pub use names::Names;
pub use promises::Promises;
pub use replicas::Replicas;
