//! The agents of one root: what lies in another node's tiers, and what others ask of ours.
//!
//! ```text
//!  program ──Bring (call socket)──▶ our agent ──Settle (TCP, TLS, token)──▶ the owner's agent ──▶ the root's file
//!                                       └───────── the name leads elsewhere now ◀───────────────────┘
//! ```
//!
//! *Ownership moves*: a file that nobody has open goes to the node whose program opens it, with its name (`giving`, `taking`).
//! *Flush on demand*: any other, and one that has just come, is made a real file in the root by its owner, and opened there. The owner uses
//! the moves that it has: a flush of a closed file, a live move of one that is open.
//!
//! Invariants:
//! - The link decides. An owner acts on an object only while the name leads to it, and who asks looks at the name again after
//!   every answer. So a lost, late or doubled message changes nothing but time.
//! - The owner never asks another agent in order to answer one: no two agents wait for each other. A program asks outside every guard, so
//!   no grace period waits for it.
//! - Before any program of a node runs, all registered nodes know of it (`announce`): whoever finds nothing at a name looks
//!   whether it leads elsewhere.
//! - What is told of many files at once holds until its owner has broken it, or for a second (`promises`).
//! - An owner that can't be reached is EIO and a warning by name, after `PATIENCE`, never ENOENT and never an older version.
//!
//! Nothing is sent while nobody meets another node's link. Connections are made when they are needed, and kept for the next need.

mod arrivals;
mod asking;
mod door;
mod giving;
mod owner;
mod promises;
mod taking;

pub use arrivals::Arrivals;
pub use asking::reach;
pub use door::{DoorKeeper, serve};

use crate::files::Files;
use crate::shared::path::as_path;
use crate::shared::request::{FlushOptions, Outcome, Scope};
use std::collections::HashMap;
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use terrace_client::Link;
use terrace_index::PRIVATE_DIR;

/// What of this agent's a flush makes durable: arrays, too, which peers know nothing of.
pub type FlushAll = dyn Fn(&Scope, &FlushOptions) -> Outcome + Send + Sync;

pub struct Peers {
    files: Arc<Files>,
    /// Connections on which nothing is under way, by the node's tag.
    idle: Mutex<HashMap<String, Vec<Link>>>,
    /// Nodes that could not be reached, and when that was.
    silent: Mutex<HashMap<String, Instant>>,
    promises: promises::Promises,
    promised: promises::Promised,
}

impl Deref for Peers {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Peers {
    pub fn new(files: Arc<Files>) -> Peers {
        Peers {
            files,
            idle: Mutex::default(),
            silent: Mutex::default(),
            promises: promises::Promises::default(),
            promised: promises::Promised::default(),
        }
    }

    fn nodes(&self) -> PathBuf {
        terrace_core::nodes::directory(&self.settings.root, PRIVATE_DIR)
    }

    fn own_tag(&self) -> &str {
        self.settings.node.as_deref().unwrap_or_default()
    }

    /// A path of the root as it is told to other nodes, on which the root may have another one.
    fn to_others(&self, path: &[u8]) -> Vec<u8> {
        let below = path.strip_prefix(self.settings.root.as_os_str().as_bytes());
        below.and_then(|below| below.strip_prefix(b"/")).unwrap_or_default().to_vec()
    }

    fn of_others(&self, path: &[u8]) -> Vec<u8> {
        match path {
            b"" => vec![],
            below => self.settings.root.join(as_path(below)).into_os_string().into_vec(),
        }
    }
}
