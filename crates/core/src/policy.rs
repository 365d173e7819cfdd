//! What policy does with a path.
use serde::{Deserialize, Serialize};

/// keep: stays in its tier; copy: flushed; remove: dropped at the end of the run; move: flushed and evicted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Keep,
    Copy,
    Remove,
    Move,
}
