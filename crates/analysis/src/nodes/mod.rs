//! Queries of a root that several agents serve: parts of a plan run beside the agents whose cells they read.
//!
//! ```text
//!   plan of a query ─▶ leaves over shared arrays: a share for each node, of the cells that its agent keeps ─▶ datafusion-distributed:
//!   stages, exchanges ─▶ nodes (`terrace-query node`): GridScan, GridReduce and what lies above them ─▶ results, or states of sums
//! ```
//!
//! Invariant: a cell is in one share, that of the agent that keeps it, whoever cuts the tiles. Where a plan can't be told to other nodes, or
//! an agent has none beside it, cells come to where they are asked for, with the same answer.

mod channel;
mod fault;
mod planner;
mod recipe;
mod share;
mod worker;

pub use fault::{leaving, of_text};
pub use planner::Nodes;
pub use recipe::{GridRecipe, Recipe, ReductionRecipe, told};
pub use share::{Share, own_tiles};
pub use worker::{Parts, QUERY_HEADER, worker_service};
