//! The measured loop: requests one by one, several at once, or whole blocks of arrays.
//!
//! A request costs two looks at the clock: when its call begins and when it ends. What lies between calls (making the
//! data, checking it) is the tool's own time and reported as such; in the buffers that all requests share, it is small.
//! In an open loop a latency begins when the request was due, so that a stalled storage is charged for all it delays.

use super::Meeting;
use super::pass::failed;
use crate::backend::Backend;
use crate::clock::{now_ns, sleep_until};
use crate::error::{Error, Result};
use crate::latencies::{encode, histogram};
use crate::protocol::{Assignment, PassReport};
use crate::settings::{Arrivals, BackendSettings, Check, Flush, Operation, Rate, Verify};
use crate::signature::{Mismatch, Signature};
use crate::workload::{self, Request, mix};
use hdrhistogram::Histogram;
use memmap2::MmapMut;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::time::Duration;

pub struct Work<'a> {
    assignment: &'a Assignment,
    part: workload::Part,
    signature: Signature,
    /// Page-aligned, touched before the start. One for each request under way.
    buffers: Vec<MmapMut>,
    /// Calls that the worker with most makes, where all call together.
    rounds: Option<u64>,
    latencies: Histogram<u64>,
    arrivals: Option<Due>,
    deadline_ns: Option<u64>,
    limit: u64,
    /// What is read is checked as it comes.
    checks: bool,
    /// All is read once more to be checked: nothing is measured, and nobody is met at a stonewall.
    again: bool,
}

/// A request whose data is made, and that waits until it is due.
struct Next {
    slot: usize,
    request: Request,
    read: bool,
    due_ns: Option<u64>,
}

/// A request about to be issued.
struct Ready {
    read: bool,
    /// In an open loop.
    due_ns: Option<u64>,
    began_ns: u64,
}

impl<'a> Work<'a> {
    pub fn prepare(
        assignment: &'a Assignment,
        owner: u32,
        signature: Signature,
        backend: &mut dyn Backend,
    ) -> Result<Work<'a>> {
        let settings = &assignment.settings;
        let part = workload::written_part(settings, assignment.draw_seed, owner, assignment.written)?;
        let whole_blocks = backend.blocks().is_some() && !part.blocks.is_empty();
        let largest = if whole_blocks {
            part.blocks.iter().map(workload::Block::bytes).max().unwrap_or(0)
        } else {
            part.request_bytes_max
        };
        let depth = if whole_blocks { 1 } else { backend.queue().map_or(1, |queue| queue.depth()) };
        let (count, largest) = if depth == 1 { (1, largest) } else { slots(assignment, owner, depth, largest)? };
        let buffers = (0..count).map(|_| buffer(largest)).collect::<Result<_>>()?;
        // Of a file of its own a worker makes collective calls alone.
        let together = backend.collective() && settings.files == crate::settings::Files::Shared;
        let rounds = if together && !whole_blocks {
            let all: Result<Vec<u64>> = (0..settings.workers)
                .map(|worker| Ok(workload::part(settings, assignment.draw_seed, worker)?.requests.count() as u64))
                .collect();
            all?.into_iter().max()
        } else {
            None
        };
        Ok(Work {
            assignment,
            part,
            signature,
            buffers,
            rounds,
            latencies: histogram(),
            arrivals: settings.rate.map(|rate| Due::new(rate, assignment)),
            deadline_ns: None,
            limit: u64::MAX,
            checks: checks_within(assignment) && backend.virtual_ns().is_none(),
            again: false,
        })
    }

    pub fn run(
        &mut self,
        backend: &mut dyn Backend,
        meeting: &mut dyn Meeting,
        path: &Path,
        report: &mut PassReport,
    ) -> Result<()> {
        report.bytes_planned = self.part.bytes;
        report.first_ns = now_ns();
        report.last_ns = report.first_ns;
        self.deadline_ns = self.assignment.settings.stonewall.map(|wall| report.first_ns + wall.after.nanoseconds());
        if let Some(due) = &mut self.arrivals {
            due.next_ns = report.first_ns;
        }
        let done = self.all(backend, meeting, path, report);
        report.latencies = encode(&self.latencies);
        note_wrong(done, report)
    }

    /// Reads once more what was read, and checks it: outside of the measured time, so that a rate is the storage's.
    pub fn check_all(
        &mut self,
        backend: &mut dyn Backend,
        meeting: &mut dyn Meeting,
        path: &Path,
        report: &mut PassReport,
    ) -> Result<()> {
        let assignment = self.assignment;
        let settings = &assignment.settings;
        self.part = workload::written_part(settings, assignment.draw_seed, assignment.owner(), assignment.written)?;
        (self.arrivals, self.deadline_ns, self.limit) = (None, None, report.requests);
        (self.checks, self.again) = (true, true);
        let mut found = PassReport::default();
        let done = self.all(backend, meeting, path, &mut found);
        report.bytes_verified = found.bytes_verified;
        note_wrong(done, report)
    }

    fn all(
        &mut self,
        backend: &mut dyn Backend,
        meeting: &mut dyn Meeting,
        path: &Path,
        report: &mut PassReport,
    ) -> Result<()> {
        if backend.blocks().is_some() && !self.part.blocks.is_empty() {
            self.blocks(backend, path, report)
        } else if backend.queue().is_some() {
            self.queued(backend, meeting, path, report)
        } else {
            self.one_by_one(backend, meeting, path, report)
        }
    }

    fn direct(&self) -> bool {
        match &self.assignment.settings.backend {
            BackendSettings::Posix(posix) => posix.direct,
            BackendSettings::IoUring(uring) => uring.direct,
            _ => false,
        }
    }

    fn reads(&self, request: &Request) -> bool {
        match self.assignment.operation {
            Operation::Read => true,
            Operation::Mixed => request.read,
            _ => false,
        }
    }

    fn count(&mut self, report: &mut PassReport, request: &Request, read: bool, latency_ns: u64) {
        let bytes = request.bytes;
        report.requests += 1;
        report.bytes += bytes;
        report.end = report.end.max(request.offset + bytes);
        if read {
            report.read_requests += 1;
            report.read_bytes += bytes;
        }
        *report.sizes.entry(bytes).or_insert(0) += 1;
        self.latencies.saturating_record(latency_ns.max(1));
    }

    /// Whether another request may be issued at this time. The first one after the stonewall asks the others.
    fn goes_on(&mut self, now: u64, meeting: &mut dyn Meeting, report: &mut PassReport) -> Result<bool> {
        // One request is issued however short the time is: a rate of nothing is none.
        if let Some(deadline) = self.deadline_ns
            && now >= deadline
            && report.requests > 0
        {
            self.deadline_ns = None;
            report.before_stonewall = Some(report.requests);
            let wears_out = self.assignment.settings.stonewall.is_some_and(|wall| wall.wear_out);
            self.limit = if wears_out { meeting.stonewalled(report.requests)? } else { 0 };
        }
        Ok(report.requests < self.limit)
    }

    /// The last to finish still meets those who wait at the stonewall.
    fn leave(&mut self, meeting: &mut dyn Meeting, report: &mut PassReport) -> Result<()> {
        let wears_out = self.assignment.settings.stonewall.is_some_and(|wall| wall.wear_out);
        if wears_out && !self.again && report.before_stonewall.is_none() {
            report.before_stonewall = Some(report.requests);
            meeting.stonewalled(report.requests)?;
        }
        Ok(())
    }

    /// Makes the data of a write; whether the request reads.
    fn fill(&mut self, slot: usize, request: &Request) -> bool {
        let read = self.reads(request);
        if !read {
            self.signature.fill(request.offset, &mut self.buffers[slot][..request.bytes as usize]);
        }
        read
    }

    /// Makes the data of a write, waits until the request is due, and looks at the clock.
    fn ready(&mut self, slot: usize, request: &Request, report: &mut PassReport) -> Ready {
        let read = self.fill(slot, request);
        let due_ns = self.arrivals.as_mut().map(Due::next);
        if let Some(due) = due_ns {
            wait_until(due, report);
        }
        Ready { read, due_ns, began_ns: now_ns() }
    }

    /// Whether what was read is what was written.
    fn check(&self, slot: usize, request: &Request, path: &Path, report: &mut PassReport) -> Result<()> {
        let found = self.signature.verify(request.offset, &self.buffers[slot][..request.bytes as usize]);
        found.map_err(|mismatch| wrong(path, &mismatch))?;
        report.bytes_verified += request.bytes;
        Ok(())
    }

    fn one_by_one(
        &mut self,
        backend: &mut dyn Backend,
        meeting: &mut dyn Meeting,
        path: &Path,
        report: &mut PassReport,
    ) -> Result<()> {
        let flush = self.assignment.settings.flush == Flush::Request;
        let verify = self.checks;
        let mut now = report.first_ns;
        let mut calls = 0;
        // Where all call together, wrong data is told when all calls are made: the others would wait for ours for ever.
        let mut wrong = Ok(());
        while self.goes_on(now, meeting, report)? {
            let Some(request) = self.part.requests.next() else { break };
            let Ready { read, due_ns, began_ns: began } = self.ready(0, &request, report);
            let buffer = &mut self.buffers[0][..request.bytes as usize];
            let moved = if read {
                backend.read(request.offset, buffer)
            } else {
                backend.write(request.offset, buffer).and_then(|()| if flush { backend.flush() } else { Ok(()) })
            };
            let ended = now_ns();
            moved.map_err(|error| at(request.offset, read, self.direct(), path, error))?;
            report.own_ns += began - now;
            now = ended;
            calls += 1;
            report.last_ns = ended;
            self.count(report, &request, read, ended - due_ns.unwrap_or(began));
            if read && verify && wrong.is_ok() {
                wrong = self.check(0, &request, path, report);
                now = now_ns();
                report.own_ns += now - ended;
                if wrong.is_err() && self.rounds.is_none() {
                    break;
                }
            }
        }
        self.leave(meeting, report)?;
        if let Some(rounds) = self.rounds {
            let write = self.assignment.operation != Operation::Read;
            for _ in calls..rounds {
                backend.join_call(write).map_err(|error| failed("join the others' call on", path, error))?;
            }
            report.last_ns = now_ns();
        }
        wrong
    }

    fn queued(
        &mut self,
        backend: &mut dyn Backend,
        meeting: &mut dyn Meeting,
        path: &Path,
        report: &mut PassReport,
    ) -> Result<()> {
        let flush = self.assignment.settings.flush == Flush::Request;
        let verify = self.checks;
        let mut free: Vec<usize> = (0..self.buffers.len()).collect();
        let mut under_way: Vec<Option<(Request, bool, u64)>> = vec![None; self.buffers.len()];
        let mut next: Option<Next> = None;
        let mut busy = 0;
        let mut more = true;
        let mut issued = 0;
        let mut outcome = Ok(());
        loop {
            if next.is_none() && more && outcome.is_ok() && !free.is_empty() {
                let now = now_ns();
                // The stonewall counts what was issued.
                let counted = std::mem::replace(&mut report.requests, issued);
                more = self.goes_on(now, meeting, report)?;
                report.requests = counted;
                if let Some(request) = more.then(|| self.part.requests.next()).flatten() {
                    let slot = free.pop().expect("a slot is free");
                    let read = self.fill(slot, &request);
                    let due_ns = self.arrivals.as_mut().map(Due::next);
                    report.own_ns += now_ns() - now;
                    next = Some(Next { slot, request, read, due_ns });
                } else {
                    more = false;
                }
            }
            let now = now_ns();
            // While the next request isn't due, others end: they are looked at when they do.
            let early = next.as_ref().and_then(|next| next.due_ns).map_or(0, |due| due.saturating_sub(now));
            if outcome.is_ok()
                && (early == 0 || busy == 0)
                && let Some(Next { slot, request, read, due_ns }) = next.take()
            {
                if let Some(due) = due_ns {
                    wait_until(due, report);
                }
                let began = now_ns();
                let pointer = self.buffers[slot].as_mut_ptr();
                let queue = backend.queue().expect("the backend has a queue");
                // SAFETY: the slot's buffer is touched again only after `complete` has returned it, and lives in `self`.
                let submitted = unsafe { queue.submit(slot, !read, request.offset, pointer, request.bytes as usize) };
                if let Err(error) = submitted {
                    outcome = Err(at(request.offset, read, self.direct(), path, error));
                    continue;
                }
                if due_ns.is_some() {
                    outcome = queue.issue().map_err(|error| at(request.offset, read, false, path, error));
                }
                under_way[slot] = Some((request, read, due_ns.unwrap_or(began)));
                issued += 1;
                busy += 1;
                continue;
            }
            if busy == 0 {
                break;
            }
            // Also after an error: the kernel still has the other buffers.
            let queue = backend.queue().expect("the backend has a queue");
            let completed = match early {
                0 => queue.complete().map(Some),
                early => queue.complete_within(Duration::from_nanos(early)),
            };
            let Some(completed) = completed.transpose() else { continue };
            let ended = now_ns();
            busy -= 1;
            let slot = match completed {
                Ok(slot) => slot,
                Err(error) => {
                    let doing = if self.direct() { "directly move data of" } else { "move data of" };
                    outcome = outcome.and(Err(failed(doing, path, error)));
                    continue;
                }
            };
            let (request, read, began) = under_way[slot].take().expect("a completed slot was submitted");
            free.push(slot);
            if outcome.is_err() {
                continue;
            }
            if !read && flush {
                outcome = backend.flush().map_err(|error| failed("flush", path, error));
            }
            let ended = if flush { now_ns() } else { ended };
            report.last_ns = ended;
            self.count(report, &request, read, ended - began);
            if read && verify {
                outcome = self.check(slot, &request, path, report);
                report.own_ns += now_ns() - ended;
            }
        }
        self.leave(meeting, report)?;
        outcome
    }

    fn blocks(&mut self, backend: &mut dyn Backend, path: &Path, report: &mut PassReport) -> Result<()> {
        let read = self.assignment.operation == Operation::Read;
        let flush = self.assignment.settings.flush == Flush::Request;
        let verify = self.checks;
        // Told when all blocks are read: others may be in the same calls, and would wait for ours for ever.
        let mut found = Ok(());
        for index in 0..self.part.blocks.len() {
            let block = self.part.blocks[index].clone();
            let entered = now_ns();
            let buffer = &mut self.buffers[0][..block.bytes() as usize];
            if !read {
                let mut rest = &mut buffer[..];
                for row in block.rows() {
                    let (now, later) = rest.split_at_mut(row.bytes as usize);
                    self.signature.fill(row.offset, now);
                    rest = later;
                }
            }
            let blocks = backend.blocks().expect("the backend takes blocks");
            let began = now_ns();
            let moved = if read { blocks.read_block(&block, buffer) } else { blocks.write_block(&block, buffer) };
            let moved = moved.and_then(|()| if flush && !read { backend.flush() } else { Ok(()) });
            let ended = now_ns();
            moved.map_err(|error| at(block.base, read, false, path, error))?;
            report.last_ns = ended;
            report.own_ns += began - entered;
            // A stonewall does not end such calls, so where the last one ends is known without looking.
            let whole = Request { offset: 0, bytes: block.bytes(), read };
            self.count(report, &whole, read, ended - began);
            if read && verify && found.is_ok() {
                found = self.check_block(&block, path);
                if found.is_ok() {
                    report.bytes_verified += block.bytes();
                }
                // The last block's check lies behind the measured time.
                if index + 1 < self.part.blocks.len() {
                    report.own_ns += now_ns() - ended;
                }
            }
        }
        found
    }

    fn check_block(&self, block: &workload::Block, path: &Path) -> Result<()> {
        let mut rest = &self.buffers[0][..block.bytes() as usize];
        for row in block.rows() {
            let (now, later) = rest.split_at(row.bytes as usize);
            self.signature.verify(row.offset, now).map_err(|mismatch| wrong(path, &mismatch))?;
            rest = later;
        }
        Ok(())
    }
}

/// Reads are checked after all of them are done, when nothing is measured. Where reads and writes are mixed, or somebody wants it,
/// each is checked as it comes.
fn checks_within(assignment: &Assignment) -> bool {
    match assignment.operation {
        Operation::Read => assignment.settings.verify == Verify::Named(Check::Within),
        _ => is_checked(assignment),
    }
}

/// Whether what is read is checked at all.
pub fn is_checked(assignment: &Assignment) -> bool {
    match assignment.settings.verify {
        Verify::Plain(verify) => verify,
        Verify::Named(Check::Noted) => assignment.noted,
        Verify::Named(Check::Within) => true,
    }
}

/// What was read before the wrong data still counts, and the run is marked.
fn note_wrong(done: Result<()>, report: &mut PassReport) -> Result<()> {
    match done {
        Err(Error::Wrong(message)) => {
            report.mismatch.get_or_insert(message);
            Ok(())
        }
        other => other,
    }
}

/// Requests that are looked at to know how large they are; of more than these the largest that there may be is meant.
const LOOKED_AT: usize = 1 << 20;

/// How many buffers, and of what size: requests that were joined are few and large.
fn slots(assignment: &Assignment, owner: u32, depth: usize, largest: u64) -> Result<(usize, u64)> {
    let part = workload::written_part(&assignment.settings, assignment.draw_seed, owner, assignment.written)?;
    let mut looked = 0;
    let mut found = 0;
    for request in part.requests.take(LOOKED_AT) {
        looked += 1;
        found = found.max(request.bytes);
    }
    let largest = if looked < LOOKED_AT { found } else { largest };
    Ok((depth.min(looked).max(1), largest))
}

fn buffer(bytes: u64) -> Result<MmapMut> {
    let bytes = usize::try_from(bytes.max(1)).map_err(|_| Error::failed("a request is larger than the memory"))?;
    let mut buffer =
        MmapMut::map_anon(bytes).map_err(|error| Error::io("allocate", format!("{bytes} bytes"), error))?;
    // Page faults belong before the start.
    for page in buffer.chunks_mut(4096) {
        page[0] = 1;
    }
    Ok(buffer)
}

fn at(offset: u64, read: bool, direct: bool, path: &Path, error: std::io::Error) -> Error {
    let doing = match (read, direct) {
        (true, false) => "read",
        (false, false) => "write",
        (true, true) => "directly read",
        (false, true) => "directly write",
    };
    Error::io(doing, format!("{} at offset {offset}", path.display()), error)
}

fn wrong(path: &Path, mismatch: &Mismatch) -> Error {
    Error::Wrong(format!("{}: {mismatch}", path.display()))
}

/// Until a request is due; one that is late already is issued at once, and it is noted how late it was.
fn wait_until(due_ns: u64, report: &mut PassReport) {
    let now = now_ns();
    if now < due_ns {
        sleep_until(due_ns);
    } else {
        report.late_ns_max = report.late_ns_max.max(now - due_ns);
    }
}

/// When the requests of an open loop are due.
struct Due {
    interval_ns: f64,
    poisson: Option<ChaCha8Rng>,
    next_ns: u64,
    /// Parts of a nanosecond, so that a long run keeps its rate.
    rest: f64,
}

impl Due {
    fn new(rate: Rate, assignment: &Assignment) -> Due {
        let seed = mix(assignment.draw_seed ^ mix(u64::from(assignment.worker) + 77));
        Due {
            interval_ns: 1e9 / rate.requests_per_second,
            poisson: (rate.arrivals == Arrivals::Poisson).then(|| ChaCha8Rng::seed_from_u64(seed)),
            next_ns: 0,
            rest: 0.0,
        }
    }
    /// When the next request is due.
    fn next(&mut self) -> u64 {
        let due = self.next_ns;
        let factor = self.poisson.as_mut().map_or(1.0, |random| -(1.0 - random.random::<f64>()).ln());
        let step = self.interval_ns * factor + self.rest;
        self.next_ns += step as u64;
        self.rest = step.fract();
        due
    }
}
