//! Particles with properties: each worker has a range of particles, numbers differing by one at most.

use super::{Part, Request};
use crate::error::{Error, Result};
use crate::settings::{Arrangement, Files, ParticleWorkload, RunSettings};

pub fn check(workload: &ParticleWorkload, settings: &RunSettings) -> Result<()> {
    if workload.properties.is_empty() || workload.count < u64::from(settings.workers) {
        return Err(Error::input(
            format!(
                "{} particles with {} properties for {} workers",
                workload.count,
                workload.properties.len(),
                settings.workers
            ),
            "each worker needs at least one particle, and a particle one property",
        ));
    }
    if workload.request_size.0 == 0 {
        return Err(Error::input("`request_size` is 0", "for example `1M`"));
    }
    if u128::from(workload.count) * u128::from(record_bytes(workload)) > i64::MAX as u128 {
        return Err(Error::input("the particles need more than 8 EiB", "use fewer"));
    }
    Ok(())
}

fn record_bytes(workload: &ParticleWorkload) -> u64 {
    workload.properties.iter().map(|property| property.bytes()).sum()
}

pub fn total_bytes(workload: &ParticleWorkload) -> u64 {
    workload.count * record_bytes(workload)
}

pub fn part(workload: &ParticleWorkload, settings: &RunSettings, worker: u32) -> Part {
    let edge = |worker: u32| (u128::from(worker) * u128::from(workload.count) / u128::from(settings.workers)) as u64;
    let count = edge(worker + 1) - edge(worker);
    let (first, all) = if settings.files == Files::PerWorker { (0, count) } else { (edge(worker), workload.count) };
    let record = record_bytes(workload);
    let ranges: Vec<(u64, u64)> = match workload.arrangement {
        Arrangement::Records => vec![(first * record, count * record)],
        Arrangement::Columns => {
            let mut base = 0;
            let mut ranges = Vec::new();
            for property in &workload.properties {
                ranges.push((base + first * property.bytes(), count * property.bytes()));
                base += all * property.bytes();
            }
            ranges
        }
    };
    let limit = workload.request_size.0;
    let request_bytes_max = ranges.iter().map(|(_, bytes)| limit.min(*bytes)).max().unwrap_or(0);
    let requests = ranges.into_iter().flat_map(move |(offset, bytes)| {
        (0..bytes.div_ceil(limit)).map(move |index| Request {
            offset: offset + index * limit,
            bytes: limit.min(bytes - index * limit),
            read: false,
        })
    });
    Part { requests: Box::new(requests), bytes: count * record, request_bytes_max, blocks: vec![] }
}
