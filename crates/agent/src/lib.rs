//! The agent: one process per user, node and root. It owns the records, the journal and the mover.
//!
//!   programs ──ring, inotify──▶ events ──▶ catalogue, schedule ──▶ mover threads ──▶ root, tiers
//!            ──call socket────▶ calls  ──▶ live moves, exchanges, promotions
//!   clients  ──objects socket, TCP──▶ objects ──▶ staged arrays ──▶ root, tiers; forward ──▶ other agents
//!   terrace  ──control socket─▶ server ──▶ requests
//!
//! Invariant: a file's newest bytes are always where its name in the root leads. Whatever the agent does, a kill at
//! any point leaves a tree and tiers that the next agent, or `recover`, makes whole (`recover`).
//!
//! Modules, from the top; each uses only what is below it:
//!
//!   lifetime, server, calls, member   start and end; the control and call sockets; this agent among others
//!   preconditions                     what must hold before it begins
//!   agent                             all subjects together, and what is asked of files and arrays at once
//!   gone                              nodes that will not come back, and what they have left
//!   peers/                            the agents of other nodes of this root: files that lie in their tiers, and in ours
//!   objects/                          clients of objects, here and remote; flush and eviction of staged arrays
//!   forward/                          staged regions sent on to other agents
//!   arrays/     files/                staged arrays and tags; files in tiers: records, names, mover, recovery
//!   shared/                           settings, index, tiers, claims, schedule, totals, warnings
//!
//! `files` and the three above `arrays` don't know each other: objects ask for room by `objects::Room`, which files
//! have, and clients' requests go to the whole agent by `objects::Requests`. Each subject reaches what it stands on by
//! `Deref`, so that `self.settings` reads the same everywhere. Nothing below `agent` may hold an `Agent`.
//!
//! One circle of files is left, and is only Rust's idiom: the struct `Files` holds a part of each file in `files/`
//! (`Closings`, `Exchanges`, `DirectoryTimes`…), whose `impl Files` stands beside that part.

mod agent;
mod arrays;
mod calls;
pub mod elsewhere;
mod error;
mod files;
mod forward;
mod gone;
mod lifetime;
mod member;
pub mod node;
mod objects;
mod peers;
mod preconditions;
mod server;
mod shared;
#[cfg(test)]
mod tests;

pub use error::{Error, Result};
pub use files::recover::RecoverReport;
pub use gone::{Declared, declare_gone};

use std::time::{Duration, Instant};
use terrace_core::settings::Settings;

/// Serves the root until the last run has ended and all is flushed. `Error::AlreadyServed` if another agent does.
pub fn serve(settings: Settings) -> Result<()> {
    let running = start_unless_served(&settings)?;
    for (path, reason) in &running.report.lost {
        running.agent.warn(format!("{} is lost: {reason}", path.display()));
    }
    running.serve()
}

/// The agent before may be leaving: it listens no more, and holds its lock a moment longer.
fn start_unless_served(settings: &Settings) -> Result<lifetime::Running> {
    let begun = Instant::now();
    loop {
        match lifetime::start(settings.clone()) {
            Err(Error::AlreadyServed { .. }) if begun.elapsed() < LEAVING_PATIENCE && !server::listens(settings) => {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// An agent that has no run any more leaves by itself, when it is done: a recovery waits for that so long.
const LEAVING_PATIENCE: Duration = Duration::from_secs(30);

fn start_when_free(settings: &Settings) -> Result<lifetime::Running> {
    let start = Instant::now();
    loop {
        match lifetime::start(settings.clone()) {
            Err(Error::AlreadyServed { .. }) if start.elapsed() < LEAVING_PATIENCE && !server::has_runs(settings) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

/// Makes durable what an agent that was killed has left for this root, and clears up behind it.
pub fn recover(settings: &Settings) -> Result<RecoverReport> {
    let mut running = start_when_free(settings)?;
    let report = running.finish();
    running.leave();
    Ok(report)
}
