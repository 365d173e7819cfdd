//! Terrace's vocabulary. No I/O.
pub mod control;
pub mod paths;
pub mod policy;
pub mod settings;
