//! The mover: threads that carry files between the tiers and the root.
//!
//!   Current ──flush──▶ Clean ──evict──▶ Durable        (flush.rs, evict.rs)
//!      ▲                 │ ▲               │
//!      └────promote──────┘ └───prefetch────┘           (promote.rs, prefetch.rs)
//!   Current ──live move──▶ Moved, and the bytes elsewhere   (live.rs)

pub mod directory_times;
pub mod evict;
pub mod flush;
pub mod live;
pub mod prefetch;
pub mod promote;
pub mod remove;

use crate::files::Agent;
use crate::shared::schedule::Job;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A program that resolved a link just before its commit needs the object a moment longer.
pub const EVICTION_GRACE: Duration = Duration::from_millis(1000);
/// The same when a program waits for room: it can look again (`evictions_seq`).
pub const EVICTION_GRACE_URGENT: Duration = Duration::from_millis(20);

pub fn start(agent: &Arc<Agent>) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..agent.settings.mover.threads.max(1))
        .map(|number| {
            let agent = agent.clone();
            std::thread::Builder::new().name(format!("mover-{number}")).spawn(move || agent.move_files())
        })
        .collect()
}

impl Agent {
    fn move_files(&self) {
        while let Some(job) = self.schedule.next() {
            match job {
                Job::Look(record) => self.look(record),
                Job::Flush(record) => self.flush_with_others(record),
                Job::Evict(record) => self.evict_planned(record),
                Job::Prefetch(path, tally) => self.prefetch_job(&path, &tally),
            }
            self.schedule.done();
        }
    }
}
