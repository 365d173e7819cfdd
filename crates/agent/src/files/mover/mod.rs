//! The mover: threads that carry files between the tiers and the root.
//!
//!   Current ──flush──▶ Clean ──evict──▶ Durable        (flush.rs, evict.rs)
//!      ▲                 │ ▲               │
//!      └────promote──────┘ └───prefetch────┘           (promote.rs, prefetch.rs)
//!   Current, and large, and being written ──early copy──▶ the beginning of a flush   (early.rs)
//!   Current ──live move──▶ Moved, and the bytes elsewhere   (live.rs)
//!   Current ──give──▶ Dead, and Current on another node      (give.rs, take.rs)
//!   a file of a placed directory ──spill──▶ a link there, and the bytes elsewhere   (spill.rs)

pub mod directory_times;
pub mod early;
pub mod evict;
pub mod flush;
pub mod give;
pub mod holders;
mod lanes;
pub mod live;
pub mod mirror;
mod new_link;
pub mod prefetch;
pub mod promote;
pub mod remove;
pub mod spill;
pub mod syncs;
pub mod take;

use crate::files::Files;
use crate::shared::schedule::Job;
use std::sync::Arc;
use std::thread::JoinHandle;

pub fn start(files: &Arc<Files>) -> std::io::Result<Vec<JoinHandle<()>>> {
    (0..files.settings.mover.threads.max(1))
        .map(|number| {
            let files = files.clone();
            std::thread::Builder::new().name(format!("mover-{number}")).spawn(move || files.move_files())
        })
        .collect()
}

impl Files {
    fn move_files(&self) {
        while let Some(job) = self.schedule.next() {
            match job {
                Job::Learn(record) => self.learn_early(record),
                Job::Look(record) => self.look(record),
                Job::Flush(record) => self.flush_with_others(record),
                Job::Evict(record) => self.evict_planned(record),
                Job::Early(record) => self.copy_early(record),
                Job::Prefetch(path, tally) => self.prefetch_job(&path, &tally),
            }
            self.schedule.done();
        }
    }
}
