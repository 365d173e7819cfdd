//! Objects: flushing staged arrays, making room, tags, and what clients ask for, here and on other nodes.
//!
//! Clients of this node put and get by themselves (`crates/objects`); what is here may be killed at any moment.

mod changing;
mod codecs;
mod fabric;
pub mod gate;
mod incoming;
mod listener;
mod remote;
pub mod server;
mod staging;

pub use listener::{TcpListening, serve_remote};
pub use server::serve;

use crate::forward::Forwarder;
use crate::shared::request::{Outcome, Scope};
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// What objects ask of those who keep files: room in a tier.
pub trait Room: Send + Sync {
    /// Evicts clean replicas until the device has so many bytes more, as far as there are any.
    fn make_room(&self, device: usize, bytes: u64);
}

/// What clients of objects ask for of files and arrays alike.
pub trait Requests: Send + Sync {
    fn flush(&self, scope: &Scope) -> Outcome;
    fn evict(&self, scope: &Scope) -> Outcome;
    fn prefetch(&self, scope: &Scope) -> Outcome;
}

/// The arrays that are staged here, from their flush to their removal. What is forwarded, staged and shared is reached as if it were here.
pub struct Objects {
    forwarder: Arc<Forwarder>,
    room: Arc<dyn Room>,
    /// One flush or new generation at a time.
    turn: Mutex<()>,
    /// By stage: the tail when it was last looked at, and since when it has been so.
    quiet: Mutex<HashMap<String, (u64, Instant)>>,
    /// Arrays that policy drops at the end of a run, and that had to go into the root meanwhile.
    spilled: Mutex<BTreeSet<PathBuf>>,
    /// Stages that no array leads to, and since when.
    unlocated: Mutex<HashMap<String, Instant>>,
    /// Agents that forward to this one.
    incoming: incoming::Incoming,
    /// What remote clients have open.
    opened: Arc<remote::Opened>,
}

/// Answers clients.
pub struct Server {
    pub objects: Arc<Objects>,
    pub requests: Arc<dyn Requests>,
}

impl Objects {
    pub fn new(forwarder: Arc<Forwarder>, room: Arc<dyn Room>) -> Objects {
        Objects {
            forwarder,
            room,
            turn: Mutex::default(),
            quiet: Mutex::default(),
            spilled: Mutex::default(),
            unlocated: Mutex::default(),
            incoming: incoming::Incoming::default(),
            opened: Arc::default(),
        }
    }
}

impl Deref for Objects {
    type Target = Forwarder;

    fn deref(&self) -> &Forwarder {
        &self.forwarder
    }
}

impl Deref for Server {
    type Target = Objects;

    fn deref(&self) -> &Objects {
        &self.objects
    }
}
