//! The queries door: containers as tables over the memory where their arrays lie, SQL and plans on them.
//!
//! ```text
//!   SQL, plans, front ends (terrace-savime) ─▶ DataFusion: parse, optimise ─▶ rules: aggregates along dimensions, joins on dimensions
//!              ─▶ GridScan / GridReduce over tiles of tier memory ─▶ Arrow batches, not copied where cells lie in a row
//! ```
//!
//! ```no_run
//! # async fn f() -> terrace_analysis::Result<()> {
//! use terrace_analysis::{Options, Queries};
//! let session = terrace_client::Session::connect("/lustre/me/study")?;
//! let queries = Queries::new(session, &Options::default())?;
//! let means = queries.sql("SELECT x, avg(velocity) FROM run1 GROUP BY x").await?.collect().await?;
//! // The same as a plan: a DataFrame has filter, select, aggregate, join …
//! use datafusion::functions_aggregate::expr_fn::avg;
//! use datafusion::prelude::col;
//! let means = queries.table("run1").await?.aggregate(vec![col("x")], vec![avg(col("velocity"))])?.collect().await?;
//! # Ok(()) }
//! ```
//!
//! Invariant: every plan gives what DataFusion's own operators give over the same tables; `Options::array_plans` turns the
//! array-native ones off, and tests compare the two.

// A selection is a list of ranges, of which one alone is a list too.
#![allow(clippy::single_range_in_vec_init)]

mod arithmetic;
mod axis;
mod catalogue;
mod cf_time;
mod complex;
mod control;
mod error;
mod exact;
mod exec;
mod extreme;
mod grid;
mod interpolate;
mod late;
mod names;
mod nesting;
mod nodes;
mod parameters;
mod planning;
#[cfg(test)]
mod plans;
mod predicate;
mod reduce;
mod rounding;
mod rules;
mod scan;
mod scope;
mod session;
mod spill;
mod sum;
mod tables;
mod watch;

pub use axis::Axis;
pub use control::{Control, End, Limits, Query, Register, answer, on_behalf};
pub use error::{Error, Result};
pub use exec::STACK_BYTES;
pub use grid::{Column, Dimension, Grid, Meaning, MemoryArray, Source};
pub use nodes::{Parts, QUERY_HEADER, worker_service};
pub use parameters::{Values, numbered, parameters};
pub use rules::array_rules;
pub use scan::GridTable;
pub use session::{Batches, Engine, Options, Queries, asked, context, plan, plan_with, stream};
pub use sum::exact_sum;
pub use tables::{Objects, complete_steps, dimension_names, tags};
pub use watch::{Answer, Watch};

/// What a front end of another language needs beside tables and plans: `terrace-savime` is one. Not for programs that ask.
pub mod front_end {
    /// All objects below a container.
    pub use crate::catalogue::{Found, walk};
    /// Cells in a row as an array.
    pub use crate::grid::whole;
    /// What a command's panic is told as.
    pub use crate::session::engine_failed;
    /// A call of the exact `sum` that SQL has too.
    pub use crate::sum::sum;
    /// Which boxes of a container's cells were loaded.
    pub use crate::tables::subtars;
}

/// The versions that this crate's interfaces speak.
pub use arrow;
pub use datafusion;
