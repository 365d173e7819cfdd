//! What a run did, for people (a table on stderr) and for programs (`--report FILE`, JSON).
//!
//! JSON, all sizes in bytes, all times in seconds; `version` grows when a field changes its meaning or goes:
//!
//!   version, terrace, command, root, started_unix_s
//!   door                 the way that programs were reached: both, preload, supervise, mount
//!   exit_code            of `terrace run`; program_exit_code: the program's own
//!   program_s            the program's time; flush_wait_s: how much longer the final flush took; total_s: all, with start-up
//!   tiers[]              name, durable, capacity_bytes, used_bytes, files, written_files, written_bytes
//!   counters             as `terrace status --json` has them, since this run's start
//!   hits                 opens_tier, opens_durable, ratio (null when nothing was opened)
//!   final_flush          files, bytes, failures[] (path, reason), open_files[]; null when it could not be asked
//!   bandwidths[]         tier, in_memory, read_bytes_s, write_bytes_s, measured_by: of the faster tiers (with --report), of the root's flushes
//!   prediction           closed form of the writes and the flush: without_page_cache_s, with_page_cache_s, durable_alone_s, flush_s, basis;
//!                        or reason, when there is none
//!   nodes[]              of a launch (`--nodes`), this node first; empty for a run on one node. All else is of this node
//!   agent_restarts, shared (other runs used the same agent meanwhile, so counters are of all of them), warnings[]

mod bandwidth;
mod gain;
mod nodes;
pub mod page;
pub mod timeline;

pub use nodes::NodeReport;

use self::bandwidth::Bandwidth;
use crate::door::Door;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use terrace_core::control::{Counters, Failure, Status, TierStatus};
use terrace_core::size::{show_bytes, show_seconds};
use terrace_model::{RunProfile, TierRates, TierTraffic, predict_run};
use terrace_tool::control_client::Moved;
use terrace_tool::resolve::Resolved;
use terrace_tool::table::Table;

/// Flushed bytes below this say little about a bandwidth.
const MEASURABLE_BYTES: u64 = 8 << 20;
/// So do files below this, on average: their time is the latency of the durable tier.
const MEASURABLE_FILE_BYTES: u64 = 1 << 20;

#[derive(Debug, Serialize)]
pub struct Report {
    pub version: u32,
    pub terrace: &'static str,
    pub command: Vec<String>,
    #[serde(with = "terrace_core::paths")]
    pub root: PathBuf,
    pub started_unix_s: f64,
    pub door: Door,
    pub exit_code: i32,
    pub program_exit_code: i32,
    pub program_s: f64,
    pub flush_wait_s: f64,
    pub total_s: f64,
    pub tiers: Vec<TierStatus>,
    pub counters: Counters,
    pub hits: Hits,
    pub final_flush: Option<FinalFlush>,
    pub bandwidths: Vec<Bandwidth>,
    pub prediction: Prediction,
    pub nodes: Vec<NodeReport>,
    pub agent_restarts: u32,
    pub shared: bool,
    pub warnings: Vec<String>,
}

#[derive(Debug, Serialize, PartialEq)]
pub struct Hits {
    pub opens_tier: u64,
    pub opens_durable: u64,
    pub ratio: Option<f64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FinalFlush {
    pub files: u64,
    pub bytes: u64,
    pub failures: Vec<Failure>,
    #[serde(with = "terrace_core::paths::list")]
    pub open_files: Vec<PathBuf>,
}

impl FinalFlush {
    fn of(moved: &Moved) -> FinalFlush {
        FinalFlush {
            files: moved.files,
            bytes: moved.bytes,
            failures: moved.failures.clone(),
            open_files: moved.open_files.clone(),
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Prediction {
    Of {
        /// What is counted, and where the bandwidths come from.
        basis: String,
        without_page_cache_s: f64,
        with_page_cache_s: f64,
        durable_alone_s: f64,
        flush_s: f64,
    },
    None {
        reason: String,
    },
}

pub struct Facts<'a> {
    pub resolved: &'a Resolved,
    pub door: Door,
    pub command: &'a [String],
    pub started_unix_s: f64,
    pub program_exit_code: i32,
    pub program_s: f64,
    pub flush_wait_s: f64,
    pub total_s: f64,
    pub agent_restarts: u32,
    pub before: &'a Status,
    pub after: Option<&'a Status>,
    pub flushed: Option<&'a Moved>,
    /// The faster tiers are to be measured.
    pub measures: bool,
}

impl Report {
    pub fn new(facts: Facts) -> Report {
        let nothing = Status::default();
        let after = facts.after.unwrap_or(&nothing);
        // A new agent counts from zero.
        let before = if after.agent_pid == facts.before.agent_pid { facts.before } else { &nothing };
        let counters = since(&before.counters, &after.counters);
        let tiers: Vec<TierStatus> = after.tiers.iter().map(|tier| tier_since(before, tier)).collect();
        let opens = counters.opens_tier + counters.opens_durable;
        let mut bandwidths = if facts.measures { bandwidth::of_fast_tiers(&tiers) } else { vec![] };
        bandwidths.extend(flush_bandwidth(facts.resolved, &counters).map(|write_bytes_s| Bandwidth {
            tier: "root".into(),
            in_memory: false,
            read_bytes_s: None,
            write_bytes_s: Some(write_bytes_s),
            measured_by: "the run's flushes",
        }));
        Report {
            bandwidths,
            version: 2,
            terrace: env!("CARGO_PKG_VERSION"),
            command: facts.command.to_vec(),
            root: facts.resolved.settings.root.clone(),
            started_unix_s: facts.started_unix_s,
            door: facts.door,
            exit_code: facts.program_exit_code,
            program_exit_code: facts.program_exit_code,
            program_s: facts.program_s,
            flush_wait_s: facts.flush_wait_s,
            total_s: facts.total_s,
            hits: Hits {
                opens_tier: counters.opens_tier,
                opens_durable: counters.opens_durable,
                ratio: (opens > 0).then(|| counters.opens_tier as f64 / opens as f64),
            },
            final_flush: facts.flushed.map(FinalFlush::of),
            nodes: vec![],
            prediction: predict(facts.resolved, &tiers, &counters),
            agent_restarts: facts.agent_restarts,
            shared: facts.before.runs.len() > 1 || after.runs.len() > 1,
            warnings: after.warnings.clone(),
            tiers,
            counters,
        }
    }
}

fn since(before: &Counters, after: &Counters) -> Counters {
    let n = |after: u64, before: u64| after.saturating_sub(before);
    let s = |after: f64, before: f64| (after - before).max(0.0);
    Counters {
        opens_tier: n(after.opens_tier, before.opens_tier),
        opens_durable: n(after.opens_durable, before.opens_durable),
        creates_tier: n(after.creates_tier, before.creates_tier),
        creates_durable: n(after.creates_durable, before.creates_durable),
        creates_small: n(after.creates_small, before.creates_small),
        unplaced_directories: n(after.unplaced_directories, before.unplaced_directories),
        flushed_files: n(after.flushed_files, before.flushed_files),
        flushed_bytes: n(after.flushed_bytes, before.flushed_bytes),
        flush_s: s(after.flush_s, before.flush_s),
        evicted_files: n(after.evicted_files, before.evicted_files),
        evicted_bytes: n(after.evicted_bytes, before.evicted_bytes),
        evict_s: s(after.evict_s, before.evict_s),
        prefetched_files: n(after.prefetched_files, before.prefetched_files),
        prefetched_bytes: n(after.prefetched_bytes, before.prefetched_bytes),
        prefetch_s: s(after.prefetch_s, before.prefetch_s),
        moved_live_files: n(after.moved_live_files, before.moved_live_files),
        moved_live_bytes: n(after.moved_live_bytes, before.moved_live_bytes),
        given_files: n(after.given_files, before.given_files),
        given_bytes: n(after.given_bytes, before.given_bytes),
        taken_files: n(after.taken_files, before.taken_files),
        taken_bytes: n(after.taken_bytes, before.taken_bytes),
        removed_files: n(after.removed_files, before.removed_files),
        removed_bytes: n(after.removed_bytes, before.removed_bytes),
        input_bytes: n(after.input_bytes, before.input_bytes),
        read_back_bytes: n(after.read_back_bytes, before.read_back_bytes),
        reread_bytes: n(after.reread_bytes, before.reread_bytes),
    }
}

fn tier_since(before: &Status, tier: &TierStatus) -> TierStatus {
    let earlier = before.tiers.iter().find(|earlier| earlier.name == tier.name);
    let (bytes, files) = earlier.map_or((0, 0), |earlier| (earlier.written_bytes, earlier.written_files));
    TierStatus {
        written_bytes: tier.written_bytes.saturating_sub(bytes),
        written_files: tier.written_files.saturating_sub(files),
        ..tier.clone()
    }
}

/// The closed form of the writes and the flush: reads and computing are not counted, for nobody saw how long they took.
fn predict(resolved: &Resolved, tiers: &[TierStatus], counters: &Counters) -> Prediction {
    let none = |reason: &str| Prediction::None { reason: reason.into() };
    let given = resolved.wanted.number("model.write_bandwidth").map(|rate| rate as f64);
    let measured = flush_bandwidth(resolved, counters);
    let (durable_rate, source) = match (given, measured) {
        (Some(rate), _) => (rate, "as given"),
        (None, Some(rate)) => (rate, "as measured by this run's flushes"),
        (None, None) => {
            return none(
                "the bandwidth of the durable tier is unknown: set `model.write_bandwidth`, or flush more than 8 MiB in files of 1 MiB or more",
            );
        }
    };
    let mut profile = RunProfile { flushed_bytes: counters.flushed_bytes, ..RunProfile::default() };
    let mut rates = vec![];
    let mut unknown = vec![];
    for tier in tiers.iter().filter(|tier| !tier.durable) {
        let wanted = resolved.wanted_tiers.iter().find(|wanted| wanted.name == tier.name);
        let rate = wanted.and_then(|wanted| wanted.write_bytes_s).map(|rate| rate as f64);
        if rate.is_none() && tier.written_bytes > 0 {
            unknown.push(format!("`{}`", tier.name));
        }
        profile.tiers.push(TierTraffic { written_bytes: tier.written_bytes, ..TierTraffic::default() });
        rates.push(rates_of(&tier.name, rate.unwrap_or(f64::INFINITY)));
    }
    let durable_bytes: u64 = tiers.iter().filter(|tier| tier.durable).map(|tier| tier.written_bytes).sum();
    profile.tiers.push(TierTraffic { written_bytes: durable_bytes, ..TierTraffic::default() });
    rates.push(rates_of("durable", durable_rate));
    match predict_run(&profile, &rates) {
        Ok(found) => {
            let mut basis = format!(
                "writes and flush only, at {}/s to the durable tier ({source})",
                show_bytes(durable_rate as u64)
            );
            if !unknown.is_empty() {
                basis.push_str(&format!(
                    "; writes to {} are taken as free, for no `write_bandwidth` is set",
                    unknown.join(", ")
                ));
            }
            Prediction::Of {
                basis,
                without_page_cache_s: found.without_page_cache_s,
                with_page_cache_s: found.with_page_cache_s,
                durable_alone_s: found.durable_alone_s,
                flush_s: found.flush_s,
            }
        }
        Err(error) => none(&error.to_string()),
    }
}

/// What the durable tier gave to this run's flushes, if they say something about it.
fn flush_bandwidth(resolved: &Resolved, counters: &Counters) -> Option<f64> {
    let is_measurable = counters.flushed_bytes >= MEASURABLE_BYTES
        && counters.flushed_bytes / counters.flushed_files.max(1) >= MEASURABLE_FILE_BYTES;
    (is_measurable && counters.flush_s > 0.0)
        .then(|| counters.flushed_bytes as f64 / counters.flush_s * busy_movers(resolved, counters) as f64)
}

/// Mover threads that can have been busy at the same time.
fn busy_movers(resolved: &Resolved, counters: &Counters) -> u64 {
    counters.flushed_files.clamp(1, resolved.settings.mover.threads as u64)
}

fn rates_of(tier: &str, write_bytes_s: f64) -> TierRates {
    TierRates {
        tier: tier.into(),
        read_bytes_s: f64::INFINITY,
        write_bytes_s,
        cached_read_bytes_s: None,
        cached_write_bytes_s: None,
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = &self.counters;
        let tasks: u32 = self.nodes.iter().map(|node| node.tasks).sum();
        if tasks > 0 {
            let longest = self.nodes.iter().fold(0.0, |longest: f64, node| longest.max(node.program_s));
            let failed: u32 = self.nodes.iter().map(|node| node.tasks_failed).sum();
            writeln!(
                f,
                "terrace: {tasks} tasks ran for up to {}, and {failed} of them exited with another code than 0",
                show_seconds(longest)
            )?;
            return self.show_nodes(f);
        }
        writeln!(
            f,
            "terrace: the program ran for {} and exited with code {}; the final flush took {} more",
            show_seconds(self.program_s),
            self.program_exit_code,
            show_seconds(self.flush_wait_s)
        )?;
        writeln!(f, "  programs were intercepted by {}", self.door.describe())?;
        if !self.nodes.is_empty() {
            return self.show_nodes(f);
        }
        let mut table =
            Table::new(&["tier", ">files created", ">written", ">files flushed here", ">held now", ">capacity"]);
        for tier in &self.tiers {
            let capacity = if tier.durable { "-".into() } else { show_bytes(tier.capacity_bytes) };
            let held = if tier.durable { "-".into() } else { show_bytes(tier.used_bytes) };
            let flushed = if tier.durable { counters.flushed_files.to_string() } else { "-".into() };
            table.row([
                tier.name.clone(),
                tier.written_files.to_string(),
                show_bytes(tier.written_bytes),
                flushed,
                held,
                capacity,
            ]);
        }
        indented(f, &table)?;
        let mut moves = Table::new(&["moved", ">files", ">bytes", ">time, all movers"]);
        for (what, files, bytes, seconds) in [
            ("flushed", counters.flushed_files, counters.flushed_bytes, Some(counters.flush_s)),
            ("evicted", counters.evicted_files, counters.evicted_bytes, Some(counters.evict_s)),
            ("prefetched", counters.prefetched_files, counters.prefetched_bytes, Some(counters.prefetch_s)),
            ("moved down while open", counters.moved_live_files, counters.moved_live_bytes, None),
            ("to other nodes", counters.given_files, counters.given_bytes, None),
            ("from other nodes", counters.taken_files, counters.taken_bytes, None),
            ("removed at the end", counters.removed_files, counters.removed_bytes, None),
        ] {
            if files > 0 {
                moves.row([
                    what.into(),
                    files.to_string(),
                    show_bytes(bytes),
                    seconds.map_or("-".into(), show_seconds),
                ]);
            }
        }
        if !moves.is_empty() {
            indented(f, &moves)?;
        }
        if let Some(ratio) = self.hits.ratio {
            let opens = self.hits.opens_tier + self.hits.opens_durable;
            writeln!(
                f,
                "terrace: {} of {opens} opens of existing files were served by a faster tier ({:.0}%)",
                self.hits.opens_tier,
                ratio * 100.0
            )?;
        }
        write!(f, "{}", gain::Gain::of(self))?;
        if self.shared {
            writeln!(f, "terrace: other runs shared the agent; the numbers are for all of them together")?;
        }
        if self.agent_restarts > 0 {
            writeln!(
                f,
                "terrace: the agent was restarted {} times; the numbers are since the last restart",
                self.agent_restarts
            )?;
        }
        for warning in &self.warnings {
            writeln!(f, "terrace: warning: {warning}")?;
        }
        Ok(())
    }
}

impl Report {
    fn show_nodes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        indented(f, &nodes::table(&self.nodes))?;
        if let Some(idle) = nodes::idle(&self.nodes) {
            writeln!(
                f,
                "terrace: no program on {idle} used its agent. If programs ran there, what started them passed no environment on: pass \
                 LD_PRELOAD and TERRACE_INDEX (Open MPI: mpirun -x LD_PRELOAD -x TERRACE_INDEX)"
            )?;
        }
        for node in &self.nodes {
            if node.agent_restarts > 0 {
                writeln!(
                    f,
                    "terrace: {}: the agent was restarted {} times; its numbers are since the last restart",
                    node.host, node.agent_restarts
                )?;
            }
            for warning in &node.warnings {
                writeln!(f, "terrace: warning: {}: {warning}", node.host)?;
            }
        }
        Ok(())
    }
}

fn indented(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    table.to_string().lines().try_for_each(|line| writeln!(f, "  {line}"))
}
