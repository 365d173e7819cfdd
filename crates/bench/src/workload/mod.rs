//! What each worker moves: requests at 64-bit offsets of a file, computed anew from the settings and a seed wherever needed.
//!
//!   RunSettings + seed + worker ──part──▶ Part { requests, blocks }
//!
//! Invariant: over all workers, each byte of the data is in exactly one request. Nobody keeps a list of requests: a
//! part is an iterator, so that a terabyte in small requests needs no memory, and any worker can say what another one
//! did (reads in another order, clean-up after a death).

mod dataset;
mod metadata;
mod offset;
mod particles;
mod permutation;
mod sizes;

pub use dataset::Block;
pub use metadata::Tree;
pub use permutation::{Permutation, mix};

use crate::error::{Error, Result};
use crate::settings::{Files, RunSettings, Workload};

/// Bytes of one file that are moved by one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub offset: u64,
    pub bytes: u64,
    /// In a mixed operation.
    pub read: bool,
}

pub type Requests = Box<dyn Iterator<Item = Request> + Send>;

/// What one worker does.
pub struct Part {
    pub requests: Requests,
    pub bytes: u64,
    /// The largest request.
    pub request_bytes_max: u64,
    /// The same bytes as blocks of arrays, for calls that take those; empty where the workload has no arrays.
    pub blocks: Vec<Block>,
}

/// Which file a worker's data is in: 0 when all share one.
pub fn file_of(settings: &RunSettings, worker: u32) -> u32 {
    if settings.files == Files::Shared { 0 } else { worker }
}

pub fn check(settings: &RunSettings) -> Result<()> {
    match &settings.workload {
        Workload::Offset(workload) => offset::check(workload, settings),
        Workload::Dataset(workload) => dataset::check(workload, settings),
        Workload::Particles(workload) => particles::check(workload, settings),
        Workload::Metadata(workload) => metadata::check(workload),
        Workload::Find(_) => Ok(()),
    }
}

/// The part of `worker`, with requests merged where the settings say so.
pub fn part(settings: &RunSettings, seed: u64, worker: u32) -> Result<Part> {
    let mut part = match &settings.workload {
        Workload::Offset(workload) => offset::part(workload, settings, seed, worker)?,
        Workload::Dataset(workload) => dataset::part(workload, settings, worker),
        Workload::Particles(workload) => particles::part(workload, settings, worker),
        Workload::Metadata(_) | Workload::Find(_) => return Err(Error::failed("the workload has no requests")),
    };
    if let Some(limit) = settings.coalesce.limit() {
        part.requests = Box::new(Coalesced { requests: part.requests, waiting: None, limit });
        // Sizes after merging follow from the requests alone.
        part.request_bytes_max = limit.min(part.bytes).max(part.request_bytes_max.min(part.bytes));
    }
    Ok(part)
}

/// The first `requests` of the part, where a stonewall left the rest out.
pub fn written_part(settings: &RunSettings, seed: u64, worker: u32, requests: Option<u64>) -> Result<Part> {
    let mut part = part(settings, seed, worker)?;
    if let Some(requests) = requests {
        let count = usize::try_from(requests).unwrap_or(usize::MAX);
        let again = self::part(settings, seed, worker)?;
        part.bytes = again.requests.take(count).map(|request| request.bytes).sum();
        part.requests = Box::new(part.requests.take(count));
    }
    Ok(part)
}

/// Size of the file of `file_of(worker)` when all is written.
pub fn file_bytes(settings: &RunSettings, seed: u64, worker: u32) -> Result<u64> {
    match &settings.workload {
        Workload::Offset(workload) => offset::file_bytes(workload, settings, seed, worker),
        Workload::Dataset(_) | Workload::Particles(_) => {
            if settings.files == Files::PerWorker {
                return Ok(part(settings, seed, worker)?.bytes);
            }
            Ok(match &settings.workload {
                Workload::Dataset(workload) => dataset::total_bytes(workload),
                Workload::Particles(workload) => particles::total_bytes(workload),
                _ => 0,
            })
        }
        Workload::Metadata(_) | Workload::Find(_) => Ok(0),
    }
}

/// Joins requests that follow each other in the file, up to a limit.
struct Coalesced {
    requests: Requests,
    waiting: Option<Request>,
    limit: u64,
}

impl Iterator for Coalesced {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let mut joined = self.waiting.take().or_else(|| self.requests.next())?;
        for request in self.requests.by_ref() {
            let follows = request.offset == joined.offset + joined.bytes
                && request.read == joined.read
                && joined.bytes + request.bytes <= self.limit;
            if !follows {
                self.waiting = Some(request);
                break;
            }
            joined.bytes += request.bytes;
        }
        Some(joined)
    }
}

#[cfg(test)]
mod tests;
