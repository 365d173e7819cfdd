//! What is to be moved, and when: jobs that are due at a time, and jobs that are ready for a mover thread.
//!
//!   written ──settle──▶ due ──▶ ready ──▶ a mover thread
//!
//! A record has at most one look, one flush and one eviction here; being told again postpones it, so that a file which is
//! opened again at once isn't copied twice.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Work {
    /// Is it closed, and small? Its program is about to make the next one.
    Learn,
    /// Is it closed, and quiet for a while?
    Look,
    Flush,
    Evict,
    /// It is open and large: what was written of it is copied before it is closed.
    Early,
}

/// What became of the files of one prefetch request.
#[derive(Default)]
pub struct Tally {
    pub pending: AtomicU64,
    pub files: AtomicU64,
    pub bytes: AtomicU64,
    pub failures: Mutex<Vec<(Vec<u8>, String)>>,
}

pub enum Job {
    Learn(u32),
    Look(u32),
    Flush(u32),
    Evict(u32),
    Early(u32),
    Prefetch(Vec<u8>, Arc<Tally>),
}

#[derive(Default)]
struct Inner {
    due: BTreeMap<(Instant, Work, u32), ()>,
    due_at: HashMap<(Work, u32), Instant>,
    ready: VecDeque<(Work, u32)>,
    queued: HashSet<(Work, u32)>,
    prefetches: VecDeque<(Vec<u8>, Arc<Tally>)>,
    /// Work for when there is no other.
    early: VecDeque<u32>,
    working: usize,
    ended: bool,
}

#[derive(Default)]
pub struct Schedule {
    inner: Mutex<Inner>,
    wake: Condvar,
    at_end: Condvar,
    /// How many wait for a flush.
    hurries: AtomicUsize,
    /// When a program last told of a name that it made or took away.
    told: Mutex<Option<Instant>>,
}

/// Somebody waits for what is to be flushed; until it is dropped.
pub struct Hurry<'a>(&'a Schedule);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.hurries.fetch_sub(1, SeqCst);
    }
}

impl Schedule {
    pub fn hurry(&self) -> Hurry<'_> {
        self.hurries.fetch_add(1, SeqCst);
        Hurry(self)
    }

    pub fn is_hurried(&self) -> bool {
        self.hurries.load(SeqCst) > 0
    }

    /// A program works on names in the root just now.
    pub fn note_told(&self) {
        *self.told.lock().unwrap() = Some(Instant::now());
    }

    pub fn since_told(&self) -> Option<Duration> {
        self.told.lock().unwrap().map(|told| told.elapsed())
    }

    /// Do it after `delay`; replaces an earlier appointment, but not one that is ready already.
    pub fn after(&self, delay: Duration, work: Work, record: u32) {
        let mut inner = self.inner.lock().unwrap();
        if inner.queued.contains(&(work, record)) {
            return;
        }
        let at = Instant::now() + delay;
        if let Some(before) = inner.due_at.insert((work, record), at) {
            inner.due.remove(&(before, work, record));
        }
        inner.due.insert((at, work, record), ());
        if inner.due.first_key_value().is_some_and(|(first, ())| *first == (at, work, record)) {
            self.wake.notify_one();
        }
    }

    /// As `after`, unless there is an appointment.
    pub fn after_unless_planned(&self, delay: Duration, work: Work, record: u32) {
        if !self.is_planned(work, record) {
            self.after(delay, work, record);
        }
    }

    /// Something waits for a thread that copies early.
    pub fn is_awaited(&self) -> bool {
        let inner = self.inner.lock().unwrap();
        let now = Instant::now();
        let mut overdue = inner.due.keys().take_while(|(at, ..)| *at <= now);
        !inner.ready.is_empty()
            || !inner.prefetches.is_empty()
            || self.is_hurried()
            || overdue.any(|(_, work, _)| *work != Work::Early)
    }

    /// There is an appointment, or it is ready.
    pub fn is_planned(&self, work: Work, record: u32) -> bool {
        let inner = self.inner.lock().unwrap();
        inner.due_at.contains_key(&(work, record)) || inner.queued.contains(&(work, record))
    }

    pub fn now(&self, work: Work, record: u32) {
        let mut inner = self.inner.lock().unwrap();
        if let Some(before) = inner.due_at.remove(&(work, record)) {
            inner.due.remove(&(before, work, record));
        }
        if inner.make_ready(work, record) {
            self.wake.notify_one();
        }
    }

    pub fn prefetch(&self, path: Vec<u8>, tally: Arc<Tally>) {
        let mut inner = self.inner.lock().unwrap();
        inner.prefetches.push_back((path, tally));
        self.wake.notify_one();
    }

    /// The next job; waits for one. `None`: the agent ends.
    pub fn next(&self) -> Option<Job> {
        let mut inner = self.inner.lock().unwrap();
        loop {
            if inner.ended {
                return None;
            }
            inner.take_due();
            if let Some((work, record)) = inner.ready.pop_front() {
                inner.queued.remove(&(work, record));
                inner.working += 1;
                return Some(match work {
                    Work::Learn => Job::Learn(record),
                    Work::Look => Job::Look(record),
                    Work::Flush => Job::Flush(record),
                    Work::Evict => Job::Evict(record),
                    Work::Early => unreachable!("it has a queue of its own"),
                });
            }
            if let Some((path, tally)) = inner.prefetches.pop_front() {
                inner.working += 1;
                return Some(Job::Prefetch(path, tally));
            }
            if let Some(record) = inner.early.pop_front() {
                inner.queued.remove(&(Work::Early, record));
                inner.working += 1;
                return Some(Job::Early(record));
            }
            let patience = match inner.due.first_key_value() {
                Some(((at, ..), ())) => at.saturating_duration_since(Instant::now()),
                None => Duration::from_secs(1),
            };
            inner = self.wake.wait_timeout(inner, patience.max(Duration::from_micros(100))).unwrap().0;
        }
    }

    /// Another flush that is ready, for the same thread to do together with the one it has; at most a fair part of all.
    pub fn next_flush(&self, threads: usize) -> Option<u32> {
        let mut inner = self.inner.lock().unwrap();
        inner.take_due();
        if inner.ready.len() < threads && inner.working < threads {
            return None;
        }
        match inner.ready.front() {
            Some(&(Work::Flush, record)) => {
                inner.ready.pop_front();
                inner.queued.remove(&(Work::Flush, record));
                Some(record)
            }
            _ => None,
        }
    }

    /// A thread is done with the job that `next` gave it.
    pub fn done(&self) {
        self.inner.lock().unwrap().working -= 1;
    }

    #[cfg(test)]
    fn load(&self) -> usize {
        let inner = self.inner.lock().unwrap();
        inner.ready.len() + inner.prefetches.len() + inner.early.len() + inner.working
    }

    pub fn has_ended(&self) -> bool {
        self.inner.lock().unwrap().ended
    }

    /// Sleeps, but not longer than the agent lives.
    pub fn rest(&self, duration: Duration) {
        let inner = self.inner.lock().unwrap();
        drop(self.at_end.wait_timeout_while(inner, duration, |inner| !inner.ended).unwrap());
    }

    pub fn end(&self) {
        self.inner.lock().unwrap().ended = true;
        self.wake.notify_all();
        self.at_end.notify_all();
    }
}

impl Inner {
    fn take_due(&mut self) {
        let now = Instant::now();
        while let Some((&(at, work, record), ())) = self.due.first_key_value() {
            if at > now {
                break;
            }
            self.due.remove(&(at, work, record));
            self.due_at.remove(&(work, record));
            self.make_ready(work, record);
        }
    }

    /// False: it is already.
    fn make_ready(&mut self, work: Work, record: u32) -> bool {
        let is_new = self.queued.insert((work, record));
        match work {
            _ if !is_new => {}
            Work::Early => self.early.push_back(record),
            _ => self.ready.push_back((work, record)),
        }
        is_new
    }
}

impl Tally {
    pub fn fail(&self, path: Vec<u8>, reason: String) {
        self.failures.lock().unwrap().push((path, reason));
    }
    pub fn succeed(&self, bytes: u64) {
        self.files.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_again_is_done_once_and_later() {
        let schedule = Schedule::default();
        schedule.after(Duration::from_millis(1), Work::Flush, 1);
        schedule.after(Duration::from_millis(30), Work::Flush, 1);
        schedule.after(Duration::from_millis(10), Work::Flush, 2);
        let start = Instant::now();
        assert!(matches!(schedule.next(), Some(Job::Flush(2))));
        assert!(matches!(schedule.next(), Some(Job::Flush(1))));
        assert!(start.elapsed() >= Duration::from_millis(29));
        assert_eq!(schedule.load(), 2);
        schedule.done();
        schedule.done();
        assert_eq!(schedule.load(), 0);
    }

    #[test]
    fn what_is_wanted_now_does_not_wait_for_its_appointment() {
        let schedule = Schedule::default();
        schedule.after(Duration::from_secs(60), Work::Flush, 1);
        schedule.now(Work::Flush, 1);
        assert!(matches!(schedule.next(), Some(Job::Flush(1))));
        schedule.end();
        assert!(schedule.next().is_none());
    }
}
