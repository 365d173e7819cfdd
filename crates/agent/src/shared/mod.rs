//! What all subjects of the agent use. Nothing here knows who uses it.

pub mod accept;
pub mod claims;
pub mod index_file;
pub mod runs;
pub mod schedule;
