//! Requests at offsets: sequential, segmented, strided, random without repetition.

use super::permutation::mix;
use super::{Part, Permutation, Request, Requests, sizes};
use crate::error::{Error, Result};
use crate::settings::{Files, OffsetWorkload, Pattern, RunSettings};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Requests that a random order of unequal sizes may have: their order is a list.
const LISTED_MAX: u64 = 1 << 26;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Amount {
    data: u64,
    request: u64,
}

impl Amount {
    fn requests(self) -> u64 {
        self.data.div_ceil(self.request)
    }
    fn bytes_of(self, index: u64) -> u64 {
        self.request.min(self.data - index * self.request)
    }
    /// Segments are equal but the last, which has the rest.
    fn segment(self, segment: u64, segments: u64) -> u64 {
        let whole = self.data / segments;
        if segment + 1 == segments { self.data - whole * (segments - 1) } else { whole }
    }
}

fn amounts(workload: &OffsetWorkload, settings: &RunSettings, seed: u64) -> Result<Vec<Amount>> {
    (0..settings.workers)
        .map(|worker| {
            let data = sizes::size_of(&workload.data_size, worker, seed, 0)?;
            let request = sizes::size_of(&workload.request_size, worker, seed, 1)?;
            Ok(Amount { data, request: request.min(data) })
        })
        .collect()
}

pub fn check(workload: &OffsetWorkload, settings: &RunSettings) -> Result<()> {
    sizes::check("data_size", &workload.data_size)?;
    sizes::check("request_size", &workload.request_size)?;
    if workload.segments == 0 {
        return Err(Error::input("`segments` is 0", "give at least 1"));
    }
    if !(0.0..=1.0).contains(&workload.read_fraction) {
        return Err(Error::input("`read_fraction` is not between 0 and 1", "for example 0.7"));
    }
    let amounts = amounts(workload, settings, settings.seed.unwrap_or(0))?;
    let segments = u64::from(workload.segments);
    let mut end = u128::from(workload.start.0);
    for amount in &amounts {
        end += u128::from(amount.data) + u128::from(workload.gap.0) * u128::from(segments.max(amount.requests()));
        end += u128::from(amount.request) * u128::from(amount.requests());
        if workload.pattern == Pattern::Segmented && amount.data < segments {
            return Err(Error::input(
                format!("{} bytes can't be cut into {segments} segments", amount.data),
                "use fewer",
            ));
        }
    }
    // A file's offsets are signed 64-bit numbers.
    if end > i64::MAX as u128 {
        return Err(Error::input("the file would end past 8 EiB", "make `start`, `gap` or the data smaller"));
    }
    let listed = workload.pattern == Pattern::Random && settings.files == Files::Shared && !equal(&amounts);
    if listed && amounts.iter().map(|amount| amount.requests()).sum::<u64>() > LISTED_MAX {
        return Err(Error::input(
            format!("a random order of more than {LISTED_MAX} requests of different sizes"),
            "make requests larger, or all of one size that divides the data",
        ));
    }
    Ok(())
}

fn equal(amounts: &[Amount]) -> bool {
    amounts.iter().all(|amount| *amount == amounts[0] && amount.data.is_multiple_of(amount.request))
}

pub fn part(workload: &OffsetWorkload, settings: &RunSettings, seed: u64, worker: u32) -> Result<Part> {
    let all = amounts(workload, settings, seed)?;
    let own = all[worker as usize];
    let shared = settings.files == Files::Shared;
    let (start, gap) = (workload.start.0, workload.gap.0);
    let before = &all[..worker as usize];
    let requests: Requests = match workload.pattern {
        Pattern::Sequential => {
            let base = start + if shared { before.iter().map(|amount| amount.data + gap).sum() } else { 0 };
            Box::new((0..own.requests()).map(move |index| at(base + index * own.request, own.bytes_of(index))))
        }
        Pattern::Strided => {
            let (stride, first) = if shared {
                (all.iter().map(|amount| amount.request).sum(), before.iter().map(|amount| amount.request).sum())
            } else {
                (own.request + gap, 0_u64)
            };
            let base = start + first;
            Box::new((0..own.requests()).map(move |index| at(base + index * stride, own.bytes_of(index))))
        }
        Pattern::Segmented => segmented(workload, &all, worker, shared),
        Pattern::Random if !shared => {
            let order = Permutation::new(own.requests(), mix(seed ^ mix(u64::from(worker) + 1)));
            Box::new((0..own.requests()).map(move |index| {
                let slot = order.at(index);
                at(start + slot * own.request, own.bytes_of(slot))
            }))
        }
        Pattern::Random if equal(&all) => {
            let order = Permutation::new(own.requests() * all.len() as u64, mix(seed));
            let first = own.requests() * u64::from(worker);
            Box::new(
                (0..own.requests()).map(move |index| at(start + order.at(first + index) * own.request, own.request)),
            )
        }
        Pattern::Random => listed(start, &all, seed, worker),
    };
    // Which requests of a mixed operation read is drawn for each of them.
    let limit = (workload.read_fraction * 2f64.powi(64)) as u128;
    let drawn = mix(seed.wrapping_add(0x5eed) ^ mix(u64::from(worker)));
    let requests = requests.enumerate().map(move |(index, request)| Request {
        read: u128::from(mix(drawn.wrapping_add(index as u64))) < limit,
        ..request
    });
    let requests: Requests = if settings.operations.contains(&crate::settings::Operation::Mixed) {
        Box::new(requests)
    } else {
        Box::new(requests.map(|request| Request { read: false, ..request }))
    };
    Ok(Part { requests, bytes: own.data, request_bytes_max: own.request, blocks: vec![] })
}

fn at(offset: u64, bytes: u64) -> Request {
    Request { offset, bytes, read: false }
}

fn segmented(workload: &OffsetWorkload, all: &[Amount], worker: u32, shared: bool) -> Requests {
    let segments = u64::from(workload.segments);
    let (start, gap, own) = (workload.start.0, workload.gap.0, all[worker as usize]);
    let row: u64 = if shared {
        all.iter().map(|amount| amount.segment(0, segments) + gap).sum()
    } else {
        own.segment(0, segments) + gap
    };
    let sum_before = |segment: u64| -> u64 {
        all[..worker as usize].iter().map(|amount| amount.segment(segment, segments) + gap).sum()
    };
    // All segments but the last are alike.
    let (first, last) = if shared { (sum_before(0), sum_before(segments - 1)) } else { (0, 0) };
    Box::new((0..segments).flat_map(move |segment| {
        let inside = if segment + 1 == segments { last } else { first };
        let base = start + segment * row + inside;
        let bytes = own.segment(segment, segments);
        (0..bytes.div_ceil(own.request))
            .map(move |index| at(base + index * own.request, own.request.min(bytes - index * own.request)))
    }))
}

/// Requests of different sizes in a shared file: the file is laid out in a shuffled order of all requests, and each worker
/// visits its own in another one.
fn listed(start: u64, all: &[Amount], seed: u64, worker: u32) -> Requests {
    let mut slots: Vec<(u32, u64)> = all
        .iter()
        .enumerate()
        .flat_map(|(owner, amount)| (0..amount.requests()).map(move |index| (owner as u32, amount.bytes_of(index))))
        .collect();
    slots.shuffle(&mut ChaCha8Rng::seed_from_u64(mix(seed)));
    let mut offset = start;
    let mut own = Vec::new();
    for (owner, bytes) in slots {
        if owner == worker {
            own.push(at(offset, bytes));
        }
        offset += bytes;
    }
    let mut random = ChaCha8Rng::seed_from_u64(mix(seed));
    random.set_stream(u64::from(worker) + 1);
    own.shuffle(&mut random);
    Box::new(own.into_iter())
}

pub fn file_bytes(workload: &OffsetWorkload, settings: &RunSettings, seed: u64, worker: u32) -> Result<u64> {
    let all = amounts(workload, settings, seed)?;
    let shared = settings.files == Files::Shared;
    let users: &[Amount] = if shared { &all } else { std::slice::from_ref(&all[worker as usize]) };
    let data: u64 = users.iter().map(|amount| amount.data).sum();
    let (start, gap, count) = (workload.start.0, workload.gap.0, users.len() as u64);
    let segments = u64::from(workload.segments);
    Ok(start
        + match workload.pattern {
            Pattern::Random => data,
            Pattern::Sequential => data + gap * (count - 1),
            Pattern::Segmented => data + gap * (count * segments - 1),
            Pattern::Strided => {
                let stride: u64 =
                    if shared { users.iter().map(|amount| amount.request).sum() } else { users[0].request + gap };
                let mut before = 0;
                let mut end = 0;
                for amount in users {
                    let last = amount.requests() - 1;
                    end = end.max(before + last * stride + amount.bytes_of(last));
                    before += amount.request;
                }
                end
            }
        })
}
