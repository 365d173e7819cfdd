//! The agent's part in the objects door: flushing staged arrays, making room, tags, and what clients elsewhere ask for.
//!
//! Clients of this node put and get by themselves (`crates/objects`); what is here may be killed at any moment.

mod codecs;
mod fabric;
mod listener;
mod remote;
mod senders;
mod server;
mod staging;

pub use listener::{Door, serve_elsewhere};
pub use server::serve;

use crate::error::Result;
use crate::files::Agent;
use crate::forward::Forwards;
use crate::staged::tags;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use terrace_core::settings::Settings;
use terrace_index::Index;
use terrace_objects::Place;

pub struct Objects {
    pub place: Arc<Place>,
    pub tags: Mutex<tags::Tags>,
    /// One flush or new generation at a time.
    turn: Mutex<()>,
    /// By stage: the tail when it was last looked at, and since when it has been so.
    quiet: Mutex<HashMap<String, (u64, Instant)>>,
    /// Arrays that policy drops at the end of a run, and that had to go into the root meanwhile.
    spilled: Mutex<BTreeSet<PathBuf>>,
    /// Stages that no array leads to, and since when.
    unlocated: Mutex<HashMap<String, Instant>>,
    pub forwards: Forwards,
    /// Agents that forward to this one.
    incoming: senders::Incoming,
    /// What clients elsewhere have open.
    opened: Arc<remote::Opened>,
}

impl Objects {
    /// And what is wrong with the tags' journal.
    pub fn new(settings: &Settings, index: Index) -> Result<(Objects, Option<String>)> {
        let (tags, trouble) = tags::Tags::open(&tags::journal_path(&settings.state));
        let objects = Objects {
            place: Arc::new(Place::of(index, &settings.index())),
            tags: Mutex::new(tags),
            turn: Mutex::default(),
            quiet: Mutex::default(),
            spilled: Mutex::default(),
            unlocated: Mutex::default(),
            forwards: Forwards::new(settings)?,
            incoming: senders::Incoming::default(),
            opened: Arc::default(),
        };
        Ok((objects, trouble))
    }
}

impl Agent {
    /// An object's name as paths are known here: below the root, absolute, in bytes.
    fn object_path_of(&self, name: &str) -> std::path::PathBuf {
        if name.is_empty() { self.settings.root.clone() } else { self.settings.root.join(name) }
    }
}
