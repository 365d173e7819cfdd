//! What `terrace status` says of staging: containers with their steps, and how far each target is.

use super::Forwarder;
use super::sender::{LATELY, Phase};
use super::step_of;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use terrace_core::control::{ContainerStatus, ForwardStatus};
use terrace_core::objects::complete_steps;
use terrace_objects::array::{Log, Next, Stage, Tail};

/// A log with so many records that have passed is begun anew: they take room, too.
const PASSED_MAX: u64 = 1 << 16;

impl Forwarder {
    /// Containers that have staged arrays.
    pub fn container_status(&self) -> Vec<ContainerStatus> {
        let mut found: BTreeMap<String, ContainerStatus> = BTreeMap::new();
        for (name, log) in self.staged_arrays() {
            let container = container_of(&name);
            let status =
                found.entry(container.clone()).or_insert_with(|| ContainerStatus { container, ..Default::default() });
            status.arrays += 1;
            let Ok(Some(handle)) = self.own_handle(&name) else { continue };
            if let Ok(regions) = handle.staged_regions() {
                status.staged_regions += regions.len() as u64;
                status.staged_bytes += regions.iter().map(|(_, bytes)| bytes).sum::<u64>();
            }
            if terrace_objects::array::is_dirty(&log) {
                status.undurable_arrays += 1;
            }
            let Some(dimension) = handle.spec().grows_along() else { continue };
            let Ok(part) = handle.staged_part(dimension, 0) else { continue };
            let begun = part.shape[dimension];
            let start = part.base.map_or(0, |base| base[dimension]);
            let whole = complete_steps(start, &part.shape, &part.regions, dimension);
            status.steps_begun = status.steps_begun.max(begun);
            status.steps = Some(status.steps.map_or(whole, |least| least.min(whole)));
        }
        found.into_values().collect()
    }

    /// One line for each container and each target that it is sent to.
    pub fn forward_status(&self) -> Vec<ForwardStatus> {
        let (forwards, place) = (&self.forwards, &self.place);
        if forwards.senders.is_empty() {
            return vec![];
        }
        let mut logs: BTreeMap<String, (Stage, Log)> = BTreeMap::new();
        for stage in terrace_objects::array::stages(place) {
            let Ok(log) = Log::open(&stage.log(place)) else { continue };
            let Some(directory) = terrace_objects::array::directory_of(place, &stage, &log) else { continue };
            let Some(name) = terrace_objects::array::relative(place, &directory) else { continue };
            logs.insert(name, (stage, log));
        }
        let mut lines = vec![];
        for sender in &forwards.senders {
            let mut names = forwards.unsent.names();
            names.extend(logs.keys().cloned());
            let state = sender.state.lock().unwrap();
            names.extend(state.arrays.keys().cloned());
            let mut found: BTreeMap<String, ForwardStatus> = BTreeMap::new();
            for name in names {
                let Some(way) = forwards.way(sender, &name) else { continue };
                let container = container_of(&name);
                let line = found.entry(container.clone()).or_insert_with(|| ForwardStatus {
                    container,
                    target: sender.target.address.clone(),
                    state: match state.phase {
                        Phase::Idle => "idle",
                        Phase::Sending => "sending",
                        Phase::Away => "away",
                        Phase::Refused => "refused",
                    }
                    .into(),
                    reason: (!state.reason.is_empty()).then(|| state.reason.clone()),
                    ..Default::default()
                });
                if let Some(sent) = state.arrays.get(&name) {
                    line.sent_regions += sent.regions;
                    line.sent_bytes += sent.bytes;
                    line.lag_s = line.lag_s.max(sent.lag_s());
                }
                let lately = state.lately.iter().filter(|(at, array, _)| *array == name && at.elapsed() <= LATELY);
                line.bytes_s += lately.map(|(.., bytes)| *bytes).sum::<u64>() as f64 / LATELY.as_secs_f64();
                let cut = forwards.unsent.all(way.id, &name);
                line.queued_regions += cut.len() as u64;
                let spec = self.spec_of(&name);
                let (size, grows) = spec.map_or((0, None), |spec| (spec.data_type.size() as u64, spec.grows_along()));
                line.queued_bytes += cut.iter().map(|region| region.cells() * size).sum::<u64>();
                let Some((stage, log)) = logs.get(&name) else { continue };
                let Ok(tail) = Tail::open(place, stage) else { continue };
                for record in log.forwarded(way.id).unwrap_or(0)..log.tail() {
                    if let Next::Data(region, bytes) = tail.look(record)
                        && way.takes(&name, step_of(&region, grows))
                    {
                        line.queued_regions += 1;
                        line.queued_bytes += bytes;
                    }
                }
            }
            lines.extend(found.into_values());
        }
        lines
    }

    fn spec_of(&self, name: &str) -> Option<terrace_client::ArraySpec> {
        let metadata = terrace_objects::array::read_metadata(&self.settings.root.join(name)).ok().flatten()?;
        Some(metadata.array?.spec)
    }

    /// The threads that forward.
    pub fn start_senders(self: &Arc<Self>) -> std::io::Result<Vec<std::thread::JoinHandle<()>>> {
        let numbers = 0..self.forwards.senders.len();
        numbers
            .map(|number| {
                let agent = self.clone();
                std::thread::Builder::new().name("forward".into()).spawn(move || agent.run_sender(number))
            })
            .collect()
    }

    /// The room of what has been forwarded is given back to the tier, of arrays that nothing is to be kept of. Until then whoever puts
    /// uses it again: a new generation of the log takes that from him, so it is for when others need the room, or when nobody puts.
    pub fn drop_forwarded(&self, stage: &Stage, log: &Log, least_bytes: u64) -> terrace_core::objects::Result<()> {
        let name = log.array_path().unwrap_or_default();
        let ways = self.forwards.ways_of(&name);
        let mark = ways.iter().map(|way| log.forwarded(way.id).unwrap_or(0)).min().unwrap_or(0);
        let place = &self.place;
        let Ok(tail) = Tail::open(place, stage) else { return Ok(()) };
        let left: u64 = (mark..log.tail())
            .map(|record| match tail.look(record) {
                Next::Data(_, bytes) => bytes,
                _ => 0,
            })
            .sum();
        let bytes = terrace_objects::array::stage_bytes(place, stage).saturating_sub(left);
        if mark == 0 || bytes == 0 || (bytes < least_bytes && mark < PASSED_MAX) {
            return Ok(());
        }
        let freed = self.compact_log(stage, terrace_objects::array::Drops::Forwarded)?;
        self.totals.evicted_bytes.fetch_add(freed, Relaxed);
        Ok(())
    }
}

fn container_of(array: &str) -> String {
    array.rsplit_once('/').map_or(String::new(), |(container, _)| container.to_owned())
}
