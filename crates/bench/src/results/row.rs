//! From the reports of all workers to one tidy row.
//!
//! Bytes and requests are sums over all workers; a rate is all bytes over the time from the first worker's first request
//! to the last one's last byte (flushed, for writes). Rates of workers are never averaged.

use crate::clock::{self, Offset};
use crate::coordinator::{Outcome, start_spread_s};
use crate::latencies::{decode, encode, histogram};
use crate::plan::Run;
use crate::protocol::PassReport;
use crate::settings::{Files, Flush, Operation};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace_core::size::show_bytes;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    #[default]
    Ok,
    /// Ended before its time: a worker died, a storage refused. What there is of it is not to be summarised.
    Partial,
    /// Wrong data was read.
    Wrong,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub experiment: String,
    pub plan: String,
    pub run: u32,
    pub replication: u32,
    pub repetition: u32,
    /// Count of operations since the experiment began.
    pub sequence: u64,
    pub operation: String,
    /// Which of the run's operations: one may be there twice.
    #[serde(default)]
    pub position: u32,
    pub status: Status,
    pub error: Option<String>,
    pub factors: BTreeMap<String, String>,
    pub started_unix_s: f64,
    pub workers: u32,
    pub nodes: u32,
    pub backend: String,
    pub files: String,
    pub bytes_planned: u64,
    pub bytes: u64,
    pub bytes_verified: u64,
    pub requests: u64,
    pub read_bytes: u64,
    pub read_requests: u64,
    /// Request size to count.
    pub request_sizes: BTreeMap<u64, u64>,
    /// The slowest worker's time in each phase.
    pub open_s: f64,
    pub transfer_s: f64,
    pub flush_s: f64,
    pub close_s: f64,
    pub remove_s: Option<f64>,
    /// First request to last byte, over all workers.
    pub elapsed_s: f64,
    /// First open to last close, over all workers.
    pub open_to_close_s: f64,
    /// The tool's own share of the slowest worker's transfer.
    pub own_s: f64,
    pub rate_bytes_s: f64,
    pub requests_s: f64,
    pub latency_min_ns: u64,
    pub latency_median_ns: u64,
    pub latency_p90_ns: u64,
    pub latency_p99_ns: u64,
    pub latency_p999_ns: u64,
    pub latency_max_ns: u64,
    /// All latencies: an HDR histogram (V2, hexadecimal), merged over the workers.
    pub latencies: String,
    pub start_spread_s: f64,
    pub clock_uncertainty_s: f64,
    pub cache: String,
    /// Part of the files' pages that were in memory before the start.
    pub resident_fraction: f64,
    /// Most that an open loop's request was issued behind its time.
    pub late_s_max: f64,
    /// Requests of each worker before the stonewall.
    pub before_stonewall: Vec<u64>,
    pub layout: Option<String>,
    /// What a find found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
    /// Workers whose reads were of data that was written on their own node.
    pub own_node_reads: u32,
}

pub struct Facts<'a> {
    pub run: &'a Run,
    pub operation: Operation,
    pub hosts: &'a [String],
    pub offsets: &'a [Offset],
}

pub fn row(facts: &Facts, outcome: &Outcome, base: Row) -> Row {
    let settings = &facts.run.settings;
    let mut row = Row {
        run: facts.run.id,
        operation: facts.operation.name().into(),
        factors: facts.run.factors.clone(),
        workers: settings.workers,
        nodes: facts.hosts.iter().collect::<std::collections::BTreeSet<_>>().len() as u32,
        backend: settings.backend.name().into(),
        files: if settings.files == Files::Shared { "shared".into() } else { "per_worker".into() },
        cache: serde_json::to_value(settings.cache)
            .ok()
            .and_then(|value| Some(value.as_str()?.to_owned()))
            .unwrap_or_default(),
        resident_fraction: outcome.residency.fraction(),
        clock_uncertainty_s: clock::seconds(
            facts.offsets.iter().map(|offset| offset.uncertainty_ns).max().unwrap_or(0),
        ),
        error: outcome.failure.clone(),
        ..base
    };
    let done: Vec<(&PassReport, Offset)> = outcome
        .reports
        .iter()
        .zip(facts.offsets)
        .filter_map(|(report, offset)| Some((report.as_ref()?, *offset)))
        .collect();
    if outcome.failure.is_some() {
        row.status = Status::Partial;
    }
    if let Some(mismatch) = done.iter().find_map(|(report, _)| report.mismatch.clone()) {
        row.status = Status::Wrong;
        row.error.get_or_insert(mismatch);
    }
    amounts(&mut row, &done);
    if row.status == Status::Wrong
        && let Some(error) = &mut row.error
    {
        let (verified, planned) = (show_bytes(row.bytes_verified), show_bytes(row.bytes_planned));
        error.push_str(&format!(" ({verified} of {planned} were found right before the check ended)"));
    }
    times(&mut row, &done, settings.flush != Flush::Never && facts.operation != Operation::Read);
    row.start_spread_s = start_spread_s(&done);
    row
}

fn amounts(row: &mut Row, done: &[(&PassReport, Offset)]) {
    let mut merged = histogram();
    for (report, _) in done {
        row.bytes_planned += report.bytes_planned;
        row.bytes += report.bytes;
        row.bytes_verified += report.bytes_verified;
        row.requests += report.requests;
        row.read_bytes += report.read_bytes;
        row.read_requests += report.read_requests;
        for (size, count) in &report.sizes {
            *row.request_sizes.entry(*size).or_insert(0) += count;
        }
        if let Some(histogram) = decode(&report.latencies) {
            // Both have the same bounds, so each bucket's count is added to the same bucket.
            let _ = merged.add(histogram);
        }
        row.before_stonewall.extend(report.before_stonewall);
        row.layout = row.layout.take().or_else(|| report.layout.clone());
        if row.operation == Operation::Find.name() {
            *row.found.get_or_insert(0) += report.found;
        }
        row.late_s_max = row.late_s_max.max(clock::seconds(report.late_ns_max));
    }
    if !merged.is_empty() {
        row.latency_min_ns = merged.min();
        row.latency_median_ns = merged.value_at_quantile(0.5);
        row.latency_p90_ns = merged.value_at_quantile(0.9);
        row.latency_p99_ns = merged.value_at_quantile(0.99);
        row.latency_p999_ns = merged.value_at_quantile(0.999);
        row.latency_max_ns = merged.max();
    }
    row.latencies = encode(&merged);
}

fn times(row: &mut Row, done: &[(&PassReport, Offset)], with_flush: bool) {
    let slowest = |phase: &dyn Fn(&PassReport) -> u64| {
        clock::seconds(done.iter().map(|(report, _)| phase(report)).max().unwrap_or(0))
    };
    row.open_s = slowest(&|report| report.opened_ns.saturating_sub(report.began_ns));
    row.transfer_s = slowest(&|report| report.last_ns.saturating_sub(report.first_ns));
    row.flush_s = slowest(&|report| if with_flush { report.flushed_ns.saturating_sub(report.last_ns) } else { 0 });
    row.close_s = slowest(&|report| report.closed_ns.saturating_sub(report.flushed_ns));
    row.own_s = slowest(&|report| report.own_ns);
    let span = |from: &dyn Fn(&PassReport) -> u64, to: &dyn Fn(&PassReport) -> u64| {
        let first = done.iter().map(|(report, offset)| offset.to_ours(from(report))).min();
        let last = done.iter().map(|(report, offset)| offset.to_ours(to(report))).max();
        clock::seconds(last.unwrap_or(0).saturating_sub(first.unwrap_or(0)))
    };
    row.elapsed_s =
        span(&|report| report.first_ns, &|report| if with_flush { report.flushed_ns } else { report.last_ns });
    row.open_to_close_s = span(&|report| report.began_ns, &|report| report.closed_ns);
    if let Some(elapsed) = done.iter().filter_map(|(report, _)| report.virtual_ns).max() {
        row.elapsed_s = clock::seconds(elapsed);
        row.transfer_s = row.elapsed_s;
        row.open_to_close_s = row.elapsed_s;
    }
    if row.elapsed_s > 0.0 {
        row.rate_bytes_s = row.bytes as f64 / row.elapsed_s;
        row.requests_s = row.requests as f64 / row.elapsed_s;
    }
}

impl Row {
    /// Of `rate`.
    pub fn unit(&self) -> &'static str {
        if self.moves_bytes() { "bytes/s" } else { "operations/s" }
    }
    fn moves_bytes(&self) -> bool {
        self.bytes > 0
            && !matches!(self.operation.as_str(), "create" | "stat" | "list" | "read_files" | "unlink" | "find")
    }
    /// What is compared between runs: bytes a second, or operations where no bytes move.
    pub fn rate(&self) -> f64 {
        if self.moves_bytes() { self.rate_bytes_s } else { self.requests_s }
    }
    /// What of the data that was to be read was checked, in words, where that is not all.
    pub fn verified(&self) -> Option<String> {
        let to_check = if self.operation == "read" { self.bytes_planned } else { self.read_bytes };
        if self.backend == "null" || self.read_bytes == 0 || self.bytes_verified >= to_check {
            return None;
        }
        Some(match self.bytes_verified {
            0 => "not verified".into(),
            some => format!("verified in part: {} of {}", show_bytes(some), show_bytes(to_check)),
        })
    }
    pub fn counts(&self) -> bool {
        self.status == Status::Ok && self.elapsed_s > 0.0
    }
}
