//! Queries by the library's own face: here, and not beside the code, since whatever of the engine a crate's own tests reach is compiled once
//! more for them.

// A selection is a list of ranges, of which one alone is a list too.
#![allow(clippy::single_range_in_vec_init)]

mod complex;
mod plans;
