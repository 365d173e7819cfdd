//! `/metrics`: the agent's status as OpenMetrics text, for Prometheus and whatever else reads it.
//!
//! Nothing is kept between two readings: each asks the agent, whose counters begin with it.

use crate::agent;
use crate::refusal::{Answer, Refusal};
use crate::reply::Reply;
use crate::store::Store;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use terrace_core::control::Status;

const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;
type Rows<V> = Vec<(Labels, V)>;

pub fn reply(store: &Store) -> Answer<Reply> {
    let status = agent::status(store.session())?;
    let mut text = String::new();
    encode(&mut text, &registry(&status))
        .map_err(|error| Refusal::bad(format!("the metrics can't be written: {error}")))?;
    Ok(Reply::new(KIND, text))
}

/// Gauges and counters with labels, in a registry that has a prefix and the root's name.
struct Sheet(Registry);

impl Sheet {
    fn gauge(&mut self, name: &str, help: &str, unit: Option<Unit>, rows: Rows<f64>) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }

    /// Its name gets `_total`.
    fn counter(&mut self, name: &str, help: &str, unit: Option<Unit>, rows: Rows<f64>) {
        let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).inc_by(value);
        }
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }
}

fn registry(status: &Status) -> Registry {
    let root = [("root".into(), status.root.to_string_lossy().into_owned().into())];
    let mut sheet = Sheet(Registry::with_prefix_and_labels("terrace", root.into_iter()));
    of_tiers(&mut sheet, status);
    of_moves(&mut sheet, status);
    of_arrays(&mut sheet, status);
    let one = |value: f64| vec![(vec![], value)];
    sheet.gauge("uptime", "Time since the agent's start", Some(Unit::Seconds), one(status.uptime_s));
    sheet.gauge("runs", "Runs that are going on", None, one(status.runs.len() as f64));
    sheet.gauge(
        "failed_files",
        "Files that could not be moved at the last try",
        None,
        one(status.failures.len() as f64),
    );
    sheet.0
}

fn of_tiers(sheet: &mut Sheet, status: &Status) {
    let rows = |value: fn(&terrace_core::control::TierStatus) -> u64| -> Rows<f64> {
        status.tiers.iter().map(|tier| (vec![("tier", tier.name.clone())], value(tier) as f64)).collect()
    };
    // The durable tier has none of its own.
    let mut capacity = rows(|tier| tier.capacity_bytes);
    capacity.retain(|(_, bytes)| *bytes > 0.0);
    sheet.gauge("tier_capacity", "Room for files and arrays", Some(Unit::Bytes), capacity);
    sheet.gauge("tier_used", "Room that files and arrays take", Some(Unit::Bytes), rows(|tier| tier.used_bytes));
    sheet.gauge("tier_files", "Files", None, rows(|tier| tier.files));
    sheet.counter(
        "tier_written",
        "What programs wrote into new files",
        Some(Unit::Bytes),
        rows(|tier| tier.written_bytes),
    );
    sheet.counter("tier_written_files", "Files that programs made", None, rows(|tier| tier.written_files));
}

fn of_moves(sheet: &mut Sheet, status: &Status) {
    let counters = &status.counters;
    let one = |value: u64| vec![(vec![], value as f64)];
    sheet.gauge("unflushed", "What is to be flushed and is not yet", Some(Unit::Bytes), one(status.unflushed_bytes));
    sheet.gauge("unflushed_files", "Files that are to be flushed and are not yet", None, one(status.unflushed_files));
    sheet.gauge("moving_files", "Files that are being moved", None, one(status.moving.len() as u64));
    let moves = [
        ("flush", counters.flushed_files, counters.flushed_bytes, Some(counters.flush_s)),
        ("evict", counters.evicted_files, counters.evicted_bytes, Some(counters.evict_s)),
        ("prefetch", counters.prefetched_files, counters.prefetched_bytes, Some(counters.prefetch_s)),
        ("live_move", counters.moved_live_files, counters.moved_live_bytes, None),
        ("give", counters.given_files, counters.given_bytes, None),
        ("take", counters.taken_files, counters.taken_bytes, None),
        ("remove", counters.removed_files, counters.removed_bytes, None),
    ];
    let labels = |what: &str| vec![("move", what.to_owned())];
    let files = moves.iter().map(|(what, files, ..)| (labels(what), *files as f64)).collect();
    let bytes = moves.iter().map(|(what, _, bytes, _)| (labels(what), *bytes as f64)).collect();
    let seconds = moves.iter().filter_map(|(what, .., seconds)| Some((labels(what), (*seconds)?))).collect();
    sheet.counter("moved_files", "Files that were moved", None, files);
    sheet.counter("moved", "What was moved", Some(Unit::Bytes), bytes);
    sheet.counter("moving", "Time that moves took, summed over threads", Some(Unit::Seconds), seconds);
    let of_place = |tier: u64, durable: u64| -> Rows<f64> {
        vec![(vec![("place", "tier".into())], tier as f64), (vec![("place", "durable".into())], durable as f64)]
    };
    let opens = of_place(counters.opens_tier, counters.opens_durable);
    sheet.counter("opens", "Files that programs opened", None, opens);
    let creates = of_place(counters.creates_tier, counters.creates_durable);
    sheet.counter("creates", "Files that programs created", None, creates);
}

fn of_arrays(sheet: &mut Sheet, status: &Status) {
    let of_container = |container: &str| vec![("container", container.to_owned())];
    let steps =
        status.containers.iter().filter_map(|at| Some((of_container(&at.container), at.steps? as f64))).collect();
    let staged = status.containers.iter().map(|at| (of_container(&at.container), at.staged_bytes as f64)).collect();
    sheet.gauge("container_steps", "Steps that all growing arrays have whole", None, steps);
    sheet.gauge("container_staged", "Cells in tiers", Some(Unit::Bytes), staged);
    let rows = |value: fn(&terrace_core::control::ForwardStatus) -> f64| -> Rows<f64> {
        let labels = |at: &terrace_core::control::ForwardStatus| {
            vec![("container", at.container.clone()), ("target", at.target.clone())]
        };
        status.forwards.iter().map(|at| (labels(at), value(at))).collect()
    };
    sheet.gauge("forward_queued", "What has not arrived yet", Some(Unit::Bytes), rows(|at| at.queued_bytes as f64));
    sheet.gauge(
        "forward_lag",
        "Age of the oldest region that has not arrived",
        Some(Unit::Seconds),
        rows(|at| at.lag_s),
    );
    sheet.gauge(
        "forward_away",
        "1: the target is not reached, or refuses",
        None,
        rows(|at| matches!(at.state.as_str(), "away" | "refused") as u8 as f64),
    );
    sheet.counter("forward_sent", "What was sent", Some(Unit::Bytes), rows(|at| at.sent_bytes as f64));
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::control::{ForwardStatus, TierStatus};

    #[test]
    fn names_have_units_labels_are_escaped_and_counters_are_totals() {
        let tier = TierStatus {
            name: "ram".into(),
            capacity_bytes: 4096,
            used_bytes: 100,
            written_bytes: 7,
            ..Default::default()
        };
        let forward =
            ForwardStatus { container: "a\"b".into(), target: "t".into(), state: "away".into(), ..Default::default() };
        let status = Status { root: "/r".into(), tiers: vec![tier], forwards: vec![forward], ..Default::default() };
        let mut text = String::new();
        encode(&mut text, &registry(&status)).unwrap();
        for line in [
            "# TYPE terrace_tier_used_bytes gauge",
            "# UNIT terrace_tier_used_bytes bytes",
            "terrace_tier_used_bytes{root=\"/r\",tier=\"ram\"} 100.0",
            "terrace_tier_written_bytes_total{root=\"/r\",tier=\"ram\"} 7.0",
            "terrace_forward_away{root=\"/r\",container=\"a\\\"b\",target=\"t\"} 1.0",
            "terrace_moved_bytes_total{root=\"/r\",move=\"flush\"} 0.0",
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
