//! The whole agent: files, and arrays with what of them is forwarded; and what is asked of all of them at once.
//!
//! Most of what the doors ask for is of files: those are reached as if they were here.

use crate::arrays::Arrays;
use crate::error::Result;
use crate::files::{EVICTION_GRACE_URGENT, Files};
use crate::forward::Forwarder;
use crate::objects::{Objects, Requests, Room};
use crate::peers::Peers;
use crate::shared::Shared;
use crate::shared::request::{FlushOptions, Outcome, Progress, Scope};
use std::ops::Deref;
use std::sync::Arc;
use terrace_core::settings::Settings;
use terrace_tier::Journal;

pub struct Agent {
    pub files: Arc<Files>,
    pub forwarder: Arc<Forwarder>,
    pub objects: Arc<Objects>,
    pub peers: Arc<Peers>,
}

impl Deref for Agent {
    type Target = Files;

    fn deref(&self) -> &Files {
        &self.files
    }
}

impl Agent {
    pub fn new(settings: Settings, journal: Option<Journal>) -> Result<Agent> {
        let shared = Arc::new(Shared::new(settings)?);
        let files = Arc::new(Files::new(shared.clone(), journal)?);
        let (arrays, trouble) = Arrays::new(shared.clone());
        shared.warnings.lock().unwrap().extend(trouble);
        let forwarder = Arc::new(Forwarder::new(Arc::new(arrays))?);
        let objects = Arc::new(Objects::new(forwarder.clone(), files.clone()));
        let peers = Arc::new(Peers::new(files.clone()));
        Ok(Agent { files, forwarder, objects, peers })
    }

    pub fn flush(&self, scope: &Scope, options: &FlushOptions, progress: Progress<'_>) -> Outcome {
        let (mut outcome, removed) = self.files.flush_files(scope, options, progress);
        self.objects.flush_arrays(scope, options.all, &mut outcome);
        if let Some(mut removed) = removed {
            self.files.remove_rest(scope, &mut removed, &mut outcome);
            self.files.end_directories(scope, &mut outcome);
            self.objects.remove_arrays(scope, &mut outcome);
            removed.release();
        } else {
            self.files.flush_directories(scope, &mut outcome);
        }
        outcome
    }

    /// Frees the tiers of what lies in scope.
    pub fn evict_all(&self, scope: &Scope, progress: Progress<'_>) -> Outcome {
        let options = FlushOptions { all: true, end_of_run: false, settle_open: !scope.0.is_empty() };
        let flushed = self.flush(scope, &options, progress);
        let mut outcome = Outcome { failures: flushed.failures, open_files: flushed.open_files, ..Outcome::default() };
        self.files.evict_files(scope, &mut outcome);
        self.objects.evict_arrays(scope, &mut outcome);
        outcome
    }
}

impl Room for Files {
    fn make_room(&self, device: usize, bytes: u64) {
        Files::make_room(self, device, bytes, EVICTION_GRACE_URGENT);
    }
}

impl Requests for Agent {
    fn flush(&self, scope: &Scope) -> Outcome {
        let options = FlushOptions { all: true, end_of_run: false, settle_open: false };
        Agent::flush(self, scope, &options, &mut |_, _, _, _| true)
    }

    fn evict(&self, scope: &Scope) -> Outcome {
        self.evict_all(scope, &mut |_, _, _, _| true)
    }

    fn prefetch(&self, scope: &Scope) -> Outcome {
        self.prefetch_all(scope, &mut |_, _, _, _| true)
    }
}
