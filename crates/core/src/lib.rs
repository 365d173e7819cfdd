//! Terrace's vocabulary. No I/O.
pub mod arrivals;
pub mod contradictions;
pub mod control;
pub mod declared;
pub mod forwards;
pub mod members;
pub mod nodes;
pub mod objects;
pub mod paths;
pub mod peers;
pub mod policy;
pub mod refusal;
pub mod sea;
pub mod settings;
pub mod size;
pub mod wanted;
