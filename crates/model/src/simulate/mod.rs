//! Discrete-event simulation of a job on a platform: what the closed form can't add up.
//!
//! ```text
//!   Platform ─▶ hardware (resources, and what a read, a write, a metadata operation uses of them)
//!   Job ──────▶ program  (each process's steps, one after another)  ─┐
//!               movers   (Terrace's flush beside the program)       ─┼─▶ fabric (clock, max-min fair sharing)
//!               pools    (dirty pages on their way to disks)        ─┘
//! ```
//!
//! Bandwidth is shared as flows, not packets: a transfer holds every resource on its way at once and gets its max-min fair
//! part, together with all that are like it. That is what makes 10,000 nodes a matter of seconds (benchmarks/predict/scale.py),
//! and it is exact where queues are long.
//!
//! Terrace is simulated as it works: a file goes whole to the fastest tier with room; it is flushed from the moment that it is
//! closed, by a number of mover threads in each node; clean replicas are dropped above the watermark; the run ends when the
//! program has ended and the last file is flushed. Where a job's next step runs on another node, a file goes there from tier to tier, as
//! ownership moves (docs/design/nodes.md), if policy flushes it and it was not flushed yet; else it is made durable first.
//!
//! The same seed gives the same run, to the last digit.

mod fabric;
mod hardware;
mod movers;
mod program;
#[cfg(test)]
mod tests;
mod world;

pub use fabric::{ActivityId, Fabric, ResourceId};

use crate::error::ModelError;
use crate::job::Job;
use crate::platform::Platform;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The program as it is, on the durable tier.
    Alone,
    Terrace,
}

/// What one simulated run did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// Until the program has ended and all that is to be flushed is.
    pub makespan_s: f64,
    /// Until the last process ended.
    pub program_s: f64,
    pub traffic: Traffic,
    /// Part of the time that Terrace's mover threads had a file in hand, over all of them.
    pub movers_busy: f64,
    /// Busiest first.
    pub busy: Vec<Busy>,
    pub events: u64,
}

/// Bytes by where they went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    pub durable_read_bytes: f64,
    /// By the program.
    pub durable_written_bytes: f64,
    pub flushed_bytes: f64,
    pub cache_read_bytes: f64,
    /// Of each fast tier.
    pub tier_read_bytes: Vec<f64>,
    pub tier_written_bytes: Vec<f64>,
    pub evicted_bytes: f64,
    /// From a tier of one node to one of another.
    #[serde(default)]
    pub brought_bytes: f64,
}

/// How much of a kind of resource was taken, over the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    pub what: String,
    /// Over all of the kind.
    pub mean: f64,
    /// Of the one that was taken most.
    pub most: f64,
}

/// Several runs of one job, each with a seed of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub least_s: f64,
    pub median_s: f64,
    pub most_s: f64,
    /// The run with the median time.
    pub median_run: Simulated,
    /// What its time was spent on.
    pub limited_by: String,
}

/// Above this, a resource explains a run's time by itself; below half of the time, none does.
const LIMITING: f64 = 0.8;
const HALF: f64 = 0.5;

const NODES_MAX: f64 = 1e6;
const PARTS_MAX: f64 = 4e6;
const ITERATIONS_MAX: f64 = 1e7;

pub fn simulate(platform: &Platform, job: &Job, way: Way, seed: u64) -> Result<Simulated, ModelError> {
    platform.check()?;
    job.check()?;
    fits(platform, job)?;
    world::World::new(platform, job, way, seed).run()
}

/// What is simulated one by one must fit into memory.
fn fits(platform: &Platform, job: &Job) -> Result<(), ModelError> {
    let each = |what: &'static str, value: f64, limit: f64| match value <= limit {
        true => Ok(()),
        false => Err(ModelError::TooLarge { what, value, limit }),
    };
    let nodes = f64::from(platform.nodes);
    each("nodes", nodes, NODES_MAX)?;
    // Processes that get no item do nothing, however many there are.
    let with_work = platform.processes().min(job.items()) as f64;
    each("nodes x processes_per_node", with_work, PARTS_MAX)?;
    each("processes x durable.stripe_disks", with_work * f64::from(platform.durable.stripe_disks), PARTS_MAX)?;
    each("iterations", f64::from(job.iterations), ITERATIONS_MAX)?;
    each("nodes x other_threads", nodes * f64::from(platform.other_threads), PARTS_MAX)?;
    for tier in &platform.tiers {
        each("nodes x tier.devices", nodes * f64::from(tier.devices), PARTS_MAX)?;
    }
    each("durable.disks", f64::from(platform.durable.disks), PARTS_MAX)?;
    each("durable.servers", f64::from(platform.durable.servers), PARTS_MAX)
}

/// Runs with the seeds `seed..seed + runs`.
pub fn spread(platform: &Platform, job: &Job, way: Way, seed: u64, runs: u32) -> Result<Spread, ModelError> {
    let mut done = (0..u64::from(runs.max(1)))
        .map(|run| simulate(platform, job, way, seed.wrapping_add(run)))
        .collect::<Result<Vec<_>, _>>()?;
    done.sort_by(|a, b| a.makespan_s.total_cmp(&b.makespan_s));
    let (least_s, most_s) = (done[0].makespan_s, done[done.len() - 1].makespan_s);
    let median_run = done.swap_remove(done.len() / 2);
    let limited_by = match median_run.busy.first() {
        Some(busiest) if busiest.most >= LIMITING => busiest.what.clone(),
        _ if median_run.movers_busy >= LIMITING => "Terrace's mover threads, too few to keep the disks busy".into(),
        Some(busiest) if busiest.most >= HALF => busiest.what.clone(),
        _ => "no single resource: latency, or steps of the program that wait for each other".into(),
    };
    Ok(Spread { least_s, median_s: median_run.makespan_s, most_s, median_run, limited_by })
}
