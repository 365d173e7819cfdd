//! The engine of the objects door on one node. Whoever has the index mapped works by himself; the agent is asked only for
//! rare things.
//!
//!   place    the shared index of a root: which tiers there are, guards, reservations
//!   placed   bytes objects: files below the root whose bytes lie in a tier, exactly as a program's are
//!
//! Invariant: what a call has returned for is in a tier's files, so it survives a kill of any process.
//! All system calls go straight to the kernel (`calls.rs`): a process that the preload library is in as well sees what is
//! really there (links), and no hook waits for a guard that we hold.

mod agent_call;
pub mod array;
mod calls;
mod failure;
mod place;
pub mod placed;

pub use place::{Place, fork_generation, normal_path};
pub use terrace_core::objects::{Kind, ObjectError, Result};
