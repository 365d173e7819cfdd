//! Staging: puts that a program starts and does not wait for, as many as fit into a queue of so many bytes.
//!
//! ```text
//!   put ─▶ queue of the array's container ─▶ I/O thread: small neighbours joined, large ones in a row ─▶ array
//!                 │ full: put waits, or says that it dropped                            │ failed: kept for sync
//!                 ▼                                                                     ▼
//!            counters                       sync: all earlier puts have arrived where it was asked
//! ```
//!
//! Invariant: puts of one container take effect one after the other, in the order in which they were made; different containers
//! keep several threads busy. A put that failed does not keep later ones from being done: `sync` tells.

use crate::array::Array;
use crate::rpc::Agent;
use crate::session::Session;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_core::objects::wire::Request;
use terrace_core::objects::{Kind, ObjectError, Region, Result};
use terrace_objects::fork_generation;

/// What becomes of a put that the queue has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Full {
    /// It waits for room.
    #[default]
    Block,
    /// It is not done, and says so.
    Drop,
}

/// Where puts are to have arrived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Arrived {
    /// The agent has them: everybody who asks it sees them, and they survive a kill of any process.
    Staged,
    /// All agents have them that they are forwarded to.
    Analysis,
    /// The root's own storage has them.
    Durable,
}

/// What became of a put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Staged {
    Queued,
    /// The queue was full: nothing of it will be put.
    Dropped,
}

#[derive(Clone, Copy, Debug)]
pub struct StagerSpec {
    /// Bytes of cells that may be queued. A put that is larger than that goes alone.
    pub queue_bytes: u64,
    pub full: Full,
    pub threads: usize,
}

impl Default for StagerSpec {
    fn default() -> StagerSpec {
        StagerSpec { queue_bytes: 256 << 20, full: Full::Block, threads: 1 }
    }
}

/// Since the stager was made.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct StagerCounters {
    /// Now.
    pub queued_puts: u64,
    pub queued_bytes: u64,
    pub queued_bytes_max: u64,
    pub done_puts: u64,
    pub done_bytes: u64,
    /// Puts that were done together with one before.
    pub joined_puts: u64,
    pub dropped_puts: u64,
    pub dropped_bytes: u64,
    /// Steps that were not admitted.
    pub dropped_steps: u64,
    pub failed_puts: u64,
    /// How long the program waited for room.
    pub blocked_s: f64,
    /// How long the threads were putting, all together.
    pub busy_s: f64,
}

/// Puts that are smaller than this are joined with their neighbours, up to so many bytes.
const SMALL: usize = 64 << 10;
const JOINED_MAX: usize = 1 << 20;
/// Larger ones to an agent elsewhere are sent without waiting for each other, so many and so many bytes at a time.
const ROW_MAX: usize = 64;
const ROW_BYTES_MAX: u64 = 64 << 20;
/// More errors than this are counted, not kept.
const ERRORS_MAX: usize = 16;

/// Dropping it waits until what is queued has been put.
pub struct Stager {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    forks: u32,
}

struct Shared {
    session: Session,
    spec: StagerSpec,
    state: Mutex<State>,
    /// Something is queued, or the stager ends.
    queued: Condvar,
    /// Something is done.
    done: Condvar,
}

#[derive(Default)]
struct State {
    queues: HashMap<String, Queue>,
    /// Containers that have jobs and no thread.
    ready: VecDeque<String>,
    /// Numbers of jobs that are not done.
    open: BTreeSet<u64>,
    next: u64,
    /// Room that was promised to puts of a step.
    promised: u64,
    counters: StagerCounters,
    errors: Vec<ObjectError>,
    /// Memory of large copies that were put, for the next ones: first touch is slow. With what is queued it is no more than the queue
    /// may have.
    spare: VecDeque<Vec<u8>>,
    spare_bytes: u64,
    /// Containers that were put to since the last such `sync`.
    unsent: BTreeSet<String>,
    undurable: BTreeSet<String>,
    ends: bool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    is_attended: bool,
}

struct Job {
    number: u64,
    work: Work,
}

impl Job {
    fn bytes(&self) -> u64 {
        match &self.work {
            Work::Put { cells, .. } => cells.bytes().len() as u64,
            Work::Publish { .. } => 0,
        }
    }

    /// What may be used again of it.
    fn copy(self) -> Option<Vec<u8>> {
        match self.work {
            Work::Put { cells: Cells::Owned(copy), .. } => Some(copy).filter(|copy| copy.capacity() >= SMALL),
            _ => None,
        }
    }

    /// Puts it, if it is a put.
    fn put(&self) -> Result<()> {
        match &self.work {
            Work::Put { array, region, cells } => array.put(region, cells.bytes()),
            Work::Publish { .. } => Ok(()),
        }
    }
}

#[allow(clippy::large_enum_variant)] // nearly all are puts
enum Work {
    Put { array: Array, region: Region, cells: Cells },
    Publish { steps: u64 },
}

enum Cells {
    Owned(Vec<u8>),
    /// The program's own, until `sync`.
    Borrowed(*const u8, usize),
}

// SAFETY: borrowed cells stay and do not change until `sync`, as the caller of `put_borrowed` promises.
unsafe impl Send for Cells {}

impl Cells {
    fn bytes(&self) -> &[u8] {
        match self {
            Cells::Owned(cells) => cells,
            // SAFETY: as was promised.
            Cells::Borrowed(start, bytes) => unsafe { std::slice::from_raw_parts(*start, *bytes) },
        }
    }
}

impl Session {
    pub fn stager(&self, spec: StagerSpec) -> Result<Stager> {
        let shared = Arc::new(Shared {
            session: self.clone(),
            spec,
            state: Mutex::default(),
            queued: Condvar::new(),
            done: Condvar::new(),
        });
        let mut stager = Stager { shared: shared.clone(), threads: vec![], forks: fork_generation() };
        for _ in 0..spec.threads.clamp(1, 64) {
            let shared = shared.clone();
            let spawned = std::thread::Builder::new().name("terrace-stager".into()).spawn(move || shared.work());
            let thread =
                spawned.map_err(|error| ObjectError::new(Kind::System, format!("can't start a thread: {error}")))?;
            stager.threads.push(thread);
        }
        Ok(stager)
    }
}

impl Stager {
    /// Queues a put of a copy of these cells.
    pub fn put(&self, array: &Array, region: &Region, cells: &[u8]) -> Result<Staged> {
        self.check(array, region, cells.len())?;
        // Copied when there is room: a copy that waits would be memory without a bound.
        self.admit(array, region, cells.len(), true, |mut spare| {
            spare.clear();
            spare.extend_from_slice(cells);
            Cells::Owned(spare)
        })
    }

    /// Queues a put of these cells.
    pub fn put_owned(&self, array: &Array, region: &Region, cells: Vec<u8>) -> Result<Staged> {
        self.check(array, region, cells.len())?;
        self.admit(array, region, cells.len(), false, |_| Cells::Owned(cells))
    }

    /// Queues a put from the program's own memory, without a copy.
    ///
    /// # Safety
    /// `cells` has `bytes` readable bytes, which stay and do not change until the next `sync` has returned.
    pub unsafe fn put_borrowed(
        &self,
        array: &Array,
        region: &Region,
        cells: *const u8,
        bytes: usize,
    ) -> Result<Staged> {
        self.check(array, region, bytes)?;
        self.admit(array, region, bytes, false, |_| Cells::Borrowed(cells, bytes))
    }

    /// Room for a whole step of so many bytes: the puts that follow have it. `Dropped`: there is none, and the step is counted as
    /// dropped; its puts are not to be made.
    pub fn begin_step(&self, bytes: u64) -> Result<Staged> {
        self.check_process()?;
        let mut state = self.shared.locked();
        state.promised = 0;
        let (mut state, has_room) = self.wait_for_room(state, bytes);
        if !has_room {
            state.counters.dropped_steps += 1;
            return Ok(Staged::Dropped);
        }
        state.promised = bytes;
        Ok(Staged::Queued)
    }

    /// Says, after all earlier puts of the container, that its first `steps` steps are whole: for readers that can't tell by its
    /// cells. Where several processes put parts of a step, one says it when all have put.
    pub fn publish(&self, container: &str, steps: u64) -> Result<()> {
        self.check_process()?;
        let container = self.shared.session.name_of(container)?;
        self.shared.locked().queue(container, Work::Publish { steps }, 0);
        self.shared.queued.notify_one();
        Ok(())
    }

    /// Waits until all earlier puts have arrived. The first of the errors since the last `sync`, if there were some: all else has
    /// been put. `None`: waits for as long as it takes.
    pub fn sync(&self, arrived: Arrived, patience: Option<Duration>) -> Result<()> {
        self.check_process()?;
        let begun = Instant::now();
        let left = || patience.map(|patience| patience.saturating_sub(begun.elapsed()));
        let mut state = self.shared.locked();
        let last = state.next;
        while state.open.first().is_some_and(|first| *first < last) {
            let wait = left().unwrap_or(Duration::from_secs(3600));
            if wait.is_zero() {
                let queued = state.counters.queued_puts;
                return Err(ObjectError::new(Kind::Busy, format!("{queued} puts are still queued")));
            }
            state = self.shared.done.wait_timeout(state, wait).unwrap_or_else(|poisoned| poisoned.into_inner()).0;
        }
        let errors = std::mem::take(&mut state.errors);
        let (unsent, undurable) = match arrived {
            Arrived::Staged => (BTreeSet::new(), BTreeSet::new()),
            Arrived::Analysis => (std::mem::take(&mut state.unsent), BTreeSet::new()),
            Arrived::Durable => (BTreeSet::new(), std::mem::take(&mut state.undurable)),
        };
        drop(state);
        let synced = self.arrive(&unsent, &undurable, &left);
        if synced.is_err() {
            // Next time they are waited for again.
            let mut state = self.shared.locked();
            state.unsent.extend(unsent);
            state.undurable.extend(undurable);
        }
        first_of(errors)?;
        synced
    }

    fn arrive(
        &self,
        unsent: &BTreeSet<String>,
        undurable: &BTreeSet<String>,
        left: &dyn Fn() -> Option<Duration>,
    ) -> Result<()> {
        let session = &self.shared.session;
        for container in unsent {
            let patience_ms = left().map(|left| left.as_millis() as u64);
            session.all_do(&Request::SyncForwards { path: container.clone(), patience_ms })?;
        }
        undurable.iter().try_for_each(|container| session.flush(container))
    }

    pub fn counters(&self) -> StagerCounters {
        self.shared.locked().counters
    }

    /// Puts what is queued, and ends; the errors that no `sync` has told.
    pub fn close(mut self) -> Result<()> {
        self.check_process()?;
        self.end();
        let errors = std::mem::take(&mut self.shared.locked().errors);
        first_of(errors)
    }

    fn end(&mut self) {
        self.shared.locked().ends = true;
        self.shared.queued.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    fn check_process(&self) -> Result<()> {
        match self.forks == fork_generation() {
            true => Ok(()),
            false => {
                Err(ObjectError::invalid("a stager that was made before a fork is the parent's: make another one"))
            }
        }
    }

    /// What can be told at once is no error of `sync`.
    fn check(&self, array: &Array, region: &Region, bytes: usize) -> Result<()> {
        self.check_process()?;
        if !array.is_writable() {
            return Err(ObjectError::new(Kind::WrongKind, format!("`{}` was opened for reading only", array.name())));
        }
        region.check_rank(array.spec().rank())?;
        let wanted = region.cells().checked_mul(array.spec().data_type.size() as u64);
        match wanted == Some(bytes as u64) {
            true => Ok(()),
            false => Err(ObjectError::invalid(format!("{region} does not have the buffer's {bytes} bytes"))),
        }
    }

    fn admit(
        &self,
        array: &Array,
        region: &Region,
        bytes: usize,
        is_copied: bool,
        cells: impl FnOnce(Vec<u8>) -> Cells,
    ) -> Result<Staged> {
        let container = self.container_of(array)?;
        let state = self.shared.locked();
        let (mut state, has_room) = self.wait_for_room(state, bytes as u64);
        if !has_room {
            state.counters.dropped_puts += 1;
            state.counters.dropped_bytes += bytes as u64;
            return Ok(Staged::Dropped);
        }
        state.promised = state.promised.saturating_sub(bytes as u64);
        // The room is taken; the copy needs no lock.
        state.counters.queued_bytes += bytes as u64;
        let spare = if is_copied { state.take_spare(bytes) } else { vec![] };
        let dropped = state.drop_spare(self.shared.spec.queue_bytes);
        drop(state);
        drop(dropped);
        let cells = cells(spare);
        let mut state = self.shared.locked();
        state.counters.queued_bytes -= bytes as u64;
        state.queue(container, Work::Put { array: array.clone(), region: *region, cells }, bytes as u64);
        self.shared.queued.notify_one();
        Ok(Staged::Queued)
    }

    fn container_of(&self, array: &Array) -> Result<String> {
        let name = self.shared.session.name_of(&array.name())?;
        Ok(name.rsplit_once('/').map_or(String::new(), |(container, _)| container.to_owned()))
    }

    /// Until there is room for so many bytes, besides what was promised to others; false: there is none, and nobody waits.
    fn wait_for_room<'a>(&'a self, mut state: MutexGuard<'a, State>, bytes: u64) -> (MutexGuard<'a, State>, bool) {
        let most = self.shared.spec.queue_bytes;
        let mut begun: Option<Instant> = None;
        loop {
            let is_promised = state.promised >= bytes && bytes > 0;
            let queued = state.counters.queued_bytes;
            if is_promised || queued == 0 || queued + bytes <= most {
                if let Some(begun) = begun {
                    state.counters.blocked_s += begun.elapsed().as_secs_f64();
                }
                return (state, true);
            }
            if self.shared.spec.full == Full::Drop {
                return (state, false);
            }
            begun.get_or_insert_with(Instant::now);
            state = self.shared.done.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

impl Drop for Stager {
    fn drop(&mut self) {
        if self.forks == fork_generation() {
            self.end();
        } else {
            // The parent's threads are not in this process.
            self.threads.drain(..).for_each(std::mem::forget);
        }
    }
}

fn first_of(errors: Vec<ObjectError>) -> Result<()> {
    let others = errors.len().saturating_sub(1);
    match errors.into_iter().next() {
        None => Ok(()),
        Some(first) if others == 0 => Err(first),
        Some(first) => Err(ObjectError { message: format!("{} (and {others} others)", first.message), ..first }),
    }
}

impl State {
    fn queue(&mut self, container: String, work: Work, bytes: u64) {
        let number = self.next;
        self.next += 1;
        self.open.insert(number);
        self.counters.queued_puts += 1;
        self.counters.queued_bytes += bytes;
        self.counters.queued_bytes_max = self.counters.queued_bytes_max.max(self.counters.queued_bytes);
        self.unsent.insert(container.clone());
        self.undurable.insert(container.clone());
        let queue = self.queues.entry(container.clone()).or_default();
        queue.jobs.push_back(Job { number, work });
        if !queue.is_attended {
            queue.is_attended = true;
            self.ready.push_back(container);
        }
    }

    /// Memory for a copy of so many bytes.
    fn take_spare(&mut self, bytes: usize) -> Vec<u8> {
        let fits = |spare: &Vec<u8>| (bytes..=bytes + bytes / 8).contains(&spare.capacity());
        let found = self.spare.iter().position(fits).and_then(|place| self.spare.remove(place));
        self.spare_bytes -= found.as_ref().map_or(0, |spare| spare.capacity() as u64);
        found.unwrap_or_default()
    }

    fn give_spare(&mut self, spare: Vec<u8>) {
        self.spare_bytes += spare.capacity() as u64;
        self.spare.push_back(spare);
    }

    /// The oldest of what is too much, to be dropped without the lock.
    fn drop_spare(&mut self, most: u64) -> Vec<Vec<u8>> {
        let mut dropped = vec![];
        while self.spare_bytes + self.counters.queued_bytes > most
            && let Some(spare) = self.spare.pop_front()
        {
            self.spare_bytes -= spare.capacity() as u64;
            dropped.push(spare);
        }
        dropped
    }

    /// Puts that go on behind these, each by itself.
    fn take_row(&mut self, container: &str, first: &[Job], most: u64) -> Vec<Job> {
        let mut row = vec![];
        let ([first], Some(queue)) = (first, self.queues.get_mut(container)) else { return row };
        let Some((agent, mut bytes)) = alone(first) else { return row };
        while let Some((other, more)) = queue.jobs.front().and_then(alone) {
            bytes += more;
            if row.len() + 1 >= ROW_MAX || bytes > most || !Arc::ptr_eq(agent, other) {
                break;
            }
            row.extend(queue.jobs.pop_front());
        }
        row
    }

    /// The next job of a container, and those that can be done with it: their regions are neighbours, and their packed cells, one
    /// after the other, are those of one region.
    fn take(&mut self, container: &str) -> Vec<Job> {
        let Some(queue) = self.queues.get_mut(container) else { return vec![] };
        let Some(first) = queue.jobs.pop_front() else { return vec![] };
        let mut whole = small(&first).map(|(array, region, bytes)| (array.clone(), *region, bytes));
        let mut taken = vec![first];
        while let (Some((array, region, bytes)), Some(next)) = (&mut whole, queue.jobs.front()) {
            let joined = small(next).filter(|(other, ..)| array.is_same(other)).and_then(|(_, next, more)| {
                let all = joined(region, next)?;
                (*bytes + more <= JOINED_MAX).then_some((all, *bytes + more))
            });
            let Some(joined) = joined else { break };
            (*region, *bytes) = joined;
            taken.extend(queue.jobs.pop_front());
        }
        taken
    }
}

/// A put of few cells.
fn small(job: &Job) -> Option<(&Array, &Region, usize)> {
    match &job.work {
        Work::Put { array, region, cells } => Some((array, region, cells.bytes().len())).filter(|put| put.2 < SMALL),
        Work::Publish { .. } => None,
    }
}

/// A large put to an agent elsewhere, and its bytes.
fn alone(job: &Job) -> Option<(&Arc<Agent>, u64)> {
    let Work::Put { array, cells, .. } = &job.work else { return None };
    let agent = &array.elsewhere()?.agent;
    Some((agent, cells.bytes().len() as u64)).filter(|(_, bytes)| *bytes >= SMALL as u64)
}

fn joined(first: &Region, next: &Region) -> Option<Region> {
    if first.rank() != next.rank() || !first.is_block() || !next.is_block() {
        return None;
    }
    let leading = first.count().iter().position(|&count| count != 1).unwrap_or(first.rank().saturating_sub(1));
    let differs = (0..first.rank()).find(|&d| first.offset()[d] != next.offset()[d])?;
    let is_neighbour = differs <= leading
        && next.offset()[differs] == first.offset()[differs] + first.count()[differs]
        && (0..first.rank())
            .all(|d| d == differs || (first.offset()[d], first.count()[d]) == (next.offset()[d], next.count()[d]));
    if !is_neighbour {
        return None;
    }
    let mut count = first.count().to_vec();
    count[differs] += next.count()[differs];
    Region::block(first.offset(), &count).ok()
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn work(&self) {
        let mut state = self.locked();
        loop {
            let Some(container) = state.ready.pop_front() else {
                if state.ends {
                    return;
                }
                state = self.queued.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
                continue;
            };
            let mut jobs = state.take(&container);
            // The program fills the other half of the queue meanwhile.
            let row = state.take_row(&container, &jobs, ROW_BYTES_MAX.min(self.spec.queue_bytes / 2));
            drop(state);
            let begun = Instant::now();
            let together = jobs.len();
            jobs.extend(row);
            let bytes = jobs.iter().map(Job::bytes).sum::<u64>();
            let (failures, done_bytes) = match jobs.len() > together {
                true => self.run_row(&jobs),
                false => self.run(&container, &jobs),
            };
            let busy = begun.elapsed().as_secs_f64();
            let numbers: Vec<u64> = jobs.iter().map(|job| job.number).collect();
            // The arrays may be closed by this: not under the lock.
            let copies: Vec<Vec<u8>> = jobs.into_iter().filter_map(Job::copy).collect();
            state = self.locked();
            let counters = &mut state.counters;
            counters.queued_puts -= numbers.len() as u64;
            counters.queued_bytes -= bytes;
            counters.busy_s += busy;
            counters.failed_puts += failures.len() as u64;
            counters.done_puts += (numbers.len() - failures.len()) as u64;
            counters.done_bytes += done_bytes;
            if failures.is_empty() {
                counters.joined_puts += together as u64 - 1;
            }
            for number in numbers {
                state.open.remove(&number);
            }
            copies.into_iter().for_each(|copy| state.give_spare(copy));
            let dropped = state.drop_spare(self.spec.queue_bytes);
            for error in failures {
                if state.errors.len() < ERRORS_MAX {
                    state.errors.push(error);
                }
            }
            let is_empty = state.queues.get(&container).is_none_or(|queue| queue.jobs.is_empty());
            if is_empty {
                state.queues.remove(&container);
            } else {
                state.ready.push_back(container);
                self.queued.notify_one();
            }
            self.done.notify_all();
            if !dropped.is_empty() {
                drop(state);
                drop(dropped);
                state = self.locked();
            }
        }
    }

    /// Puts to one agent elsewhere, each sent before the one before it is answered: the failures, and the bytes that were put.
    fn run_row(&self, jobs: &[Job]) -> (Vec<ObjectError>, u64) {
        let messages = jobs.iter().filter_map(|job| {
            let Work::Put { array, region, cells } = &job.work else { return None };
            let array = array.elsewhere()?;
            Some((&array.agent, array.put_request(region, cells.bytes().len())?, cells.bytes()))
        });
        let messages: Vec<(&Arc<Agent>, Request, &[u8])> = messages.collect();
        let outcomes: Vec<Result<()>> = match messages.first() {
            Some((agent, ..)) if messages.len() == jobs.len() => {
                let agent = (*agent).clone();
                let requests: Vec<(Request, &[u8])> =
                    messages.into_iter().map(|(_, request, cells)| (request, cells)).collect();
                agent.each_done(&requests)
            }
            // Some go by a fabric, or in a way of their own.
            _ => jobs.iter().map(Job::put).collect(),
        };
        let done = outcomes.iter().zip(jobs).filter(|(outcome, _)| outcome.is_ok());
        let bytes = done.map(|(_, job)| job.bytes()).sum();
        (outcomes.into_iter().filter_map(Result::err).collect(), bytes)
    }

    /// The failures of these jobs, and the bytes that were put.
    fn run(&self, container: &str, jobs: &[Job]) -> (Vec<ObjectError>, u64) {
        let mut bytes = 0;
        let mut whole: Option<(Array, Region, Vec<u8>)> = None;
        for job in jobs {
            let Work::Put { array, region, cells } = &job.work else { continue };
            bytes += cells.bytes().len() as u64;
            if jobs.len() == 1 {
                return match job.put() {
                    Ok(()) => (vec![], bytes),
                    Err(error) => (vec![error], 0),
                };
            }
            match &mut whole {
                None => whole = Some((array.clone(), *region, cells.bytes().to_vec())),
                Some((_, all, packed)) => {
                    *all = joined(all, region).unwrap_or(*all);
                    packed.extend_from_slice(cells.bytes());
                }
            }
        }
        if let Some((array, region, packed)) = whole {
            if array.put(&region, &packed).is_ok() {
                return (vec![], bytes);
            }
            // One by one, so that only those fail that can't be done.
            let outcomes: Vec<Result<()>> = jobs.iter().map(Job::put).collect();
            let done = outcomes.iter().zip(jobs).filter(|(outcome, _)| outcome.is_ok());
            let bytes = done.map(|(_, job)| job.bytes()).sum();
            return (outcomes.into_iter().filter_map(Result::err).collect(), bytes);
        }
        let published = jobs.iter().map(|job| match job.work {
            Work::Publish { steps } => self.session.publish_steps(container, steps),
            Work::Put { .. } => Ok(()),
        });
        (published.filter_map(Result::err).collect(), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_region_when_their_packed_cells_are() {
        let block = |offset: &[u64], count: &[u64]| Region::block(offset, count).unwrap();
        let rows = joined(&block(&[0, 0], &[1, 5]), &block(&[1, 0], &[1, 5])).unwrap();
        assert_eq!(rows, block(&[0, 0], &[2, 5]));
        assert_eq!(joined(&rows, &block(&[2, 0], &[3, 5])).unwrap(), block(&[0, 0], &[5, 5]));
        // Two halves of a row are a row; two halves of two rows are not.
        assert_eq!(joined(&block(&[7, 0], &[1, 2]), &block(&[7, 2], &[1, 3])).unwrap(), block(&[7, 0], &[1, 5]));
        assert!(joined(&block(&[0, 0], &[2, 2]), &block(&[0, 2], &[2, 3])).is_none());
        assert!(joined(&block(&[0, 0], &[1, 5]), &block(&[2, 0], &[1, 5])).is_none());
        assert!(joined(&block(&[0, 0], &[1, 5]), &block(&[1, 0], &[1, 4])).is_none());
        assert!(joined(&block(&[0, 0], &[1, 5]), &block(&[0, 0], &[1, 5])).is_none());
    }
}
