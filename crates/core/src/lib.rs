//! Terrace's vocabulary. No I/O.
pub mod control;
pub mod policy;
