//! What is staged on this node.

pub mod tags;
