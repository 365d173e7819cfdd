//! Histories of file operations, and whether a file system may have given them (docs/design/histories.md has the model in words).
//!
//!   recorder ──logs──▶ History::read ──by group──▶ check ──▶ fine, or the smallest relevant part of what can't be explained
//!   (programs on nodes)  operations with start and end        (linearizability, state by state)
//!
//! Invariant: `check` accepts a history only if there is an order of its operations, each at one moment between its start and its end,
//! in which the model gives each result that was seen. What it refuses it can show.
//!
//! Groups of names that no operation connects are checked apart: a history is linearizable if it is so for each of them.

mod check;
mod explain;
mod log;
mod model;
mod operation;
#[cfg(test)]
mod tests;

pub use check::{UNDECIDED, Verdict, check};
pub use log::History;
pub use model::{Killed, Rules, Unreachable};
pub use operation::{Action, Flags, Operation, Seen};
