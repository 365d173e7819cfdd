//! Transfers: puts and gets that a thread of this process does while the program goes on.
//!
//!   start ─▶ queue ─▶ worker thread ─▶ done ─▶ wait
//!
//! The thread begins with the first transfer, and again in a child after a fork (transfers that the parent started are the
//! parent's; a child that waits for one is told so).

use crate::array::Array;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use terrace_core::objects::{Kind, ObjectError, Region, Result};
use terrace_objects::fork_generation;

/// A started transfer. Dropping it does not stop it, but its buffer must live on: the safe calls own theirs.
pub struct Transfer {
    shared: Arc<Shared>,
    forks: u32,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

enum State {
    Waiting,
    Done(Result<Vec<u8>>),
    Taken,
}

enum Buffer {
    Owned(Vec<u8>),
    Raw(*mut u8, usize),
}

struct Job {
    array: Array,
    region: Region,
    is_put: bool,
    buffer: Buffer,
    shared: Arc<Shared>,
}

// SAFETY: a raw buffer is the worker's alone until the transfer is done, as the caller of `start_*_raw` promises.
unsafe impl Send for Job {}

struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    wake: Condvar,
}

/// The queue of this process: a child makes its own.
static QUEUE: Mutex<Option<(u32, Arc<Queue>)>> = Mutex::new(None);
/// One core goes on with the program.
const WORKERS: usize = 1;

impl Transfer {
    pub(crate) fn start_put(array: &Array, region: &Region, cells: Vec<u8>) -> Transfer {
        Transfer::start(array, region, true, Buffer::Owned(cells))
    }

    pub(crate) fn start_get(array: &Array, region: &Region) -> Transfer {
        let bytes = array.shape().and_then(|shape| {
            region.check_within(&shape)?;
            Ok(region.cells() as usize * array.spec().data_type.size())
        });
        match bytes {
            Ok(bytes) => Transfer::start(array, region, false, Buffer::Owned(vec![0; bytes])),
            Err(error) => Transfer::finished(Err(error)),
        }
    }

    /// Starts a put from the caller's own memory.
    ///
    /// # Safety
    /// `cells` has `bytes` readable bytes, which stay and do not change until the transfer is done.
    pub unsafe fn start_put_raw(array: &Array, region: &Region, cells: *const u8, bytes: usize) -> Transfer {
        Transfer::start(array, region, true, Buffer::Raw(cells.cast_mut(), bytes))
    }

    /// Starts a get into the caller's own memory.
    ///
    /// # Safety
    /// `cells` has `bytes` writable bytes, which stay and which nobody else uses until the transfer is done.
    pub unsafe fn start_get_raw(array: &Array, region: &Region, cells: *mut u8, bytes: usize) -> Transfer {
        Transfer::start(array, region, false, Buffer::Raw(cells, bytes))
    }

    fn finished(result: Result<Vec<u8>>) -> Transfer {
        let shared = Shared { state: Mutex::new(State::Done(result)), changed: Condvar::new() };
        Transfer { shared: Arc::new(shared), forks: fork_generation() }
    }

    fn start(array: &Array, region: &Region, is_put: bool, buffer: Buffer) -> Transfer {
        let shared = Arc::new(Shared { state: Mutex::new(State::Waiting), changed: Condvar::new() });
        let job = Job { array: array.clone(), region: *region, is_put, buffer, shared: shared.clone() };
        match queue() {
            Ok(queue) => {
                queue.jobs.lock().unwrap().push_back(job);
                queue.wake.notify_one();
            }
            // No thread to be had: done here and now.
            Err(_) => job.run(),
        }
        Transfer { shared, forks: fork_generation() }
    }

    /// True when it is done, well or not.
    pub fn test(&self) -> bool {
        !matches!(*self.shared.state.lock().unwrap(), State::Waiting)
    }

    /// Waits until it is done. The buffer of a safe call comes back; of a raw one it may be used again.
    pub fn wait(self) -> Result<Vec<u8>> {
        self.wait_for(None).expect("waited for as long as it took")
    }

    /// Waits so long; `None`: it is not done yet.
    pub fn wait_for(&self, patience: Option<Duration>) -> Option<Result<Vec<u8>>> {
        if self.forks != fork_generation() {
            return Some(Err(ObjectError::new(
                Kind::Invalid,
                "a transfer that was started before a fork is the parent's",
            )));
        }
        let state = self.shared.state.lock().unwrap();
        let is_waiting = |state: &mut State| matches!(state, State::Waiting);
        let mut state = match patience {
            None => self.shared.changed.wait_while(state, is_waiting).unwrap(),
            Some(patience) => self.shared.changed.wait_timeout_while(state, patience, is_waiting).unwrap().0,
        };
        match std::mem::replace(&mut *state, State::Taken) {
            State::Waiting => {
                *state = State::Waiting;
                None
            }
            State::Done(result) => Some(result),
            State::Taken => Some(Err(ObjectError::invalid("the transfer was waited for already"))),
        }
    }

    /// Waits for all of them; the first failure, if there is one.
    pub fn wait_all(transfers: impl IntoIterator<Item = Transfer>) -> Result<Vec<Vec<u8>>> {
        let results: Vec<Result<Vec<u8>>> = transfers.into_iter().map(Transfer::wait).collect();
        results.into_iter().collect()
    }
}

fn queue() -> std::io::Result<Arc<Queue>> {
    let forks = fork_generation();
    let mut queue = QUEUE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some((made, queue)) = &*queue
        && *made == forks
    {
        return Ok(queue.clone());
    }
    if let Some((_, parents)) = queue.take() {
        // Its lock may have been held by a thread that this process does not have.
        std::mem::forget(parents);
    }
    let fresh = Arc::new(Queue { jobs: Mutex::default(), wake: Condvar::new() });
    for _ in 0..WORKERS {
        let queue = fresh.clone();
        std::thread::Builder::new().name("terrace-transfer".into()).spawn(move || queue.work())?;
    }
    *queue = Some((forks, fresh.clone()));
    Ok(fresh)
}

impl Queue {
    fn work(&self) {
        loop {
            let jobs = self.jobs.lock().unwrap();
            let mut jobs = self.wake.wait_while(jobs, |jobs| jobs.is_empty()).unwrap();
            let job = jobs.pop_front().expect("waited until there is one");
            drop(jobs);
            job.run();
        }
    }
}

impl Job {
    fn run(self) {
        let Job { array, region, is_put, mut buffer, shared } = self;
        let (start, bytes) = match &mut buffer {
            Buffer::Owned(cells) => (cells.as_mut_ptr(), cells.len()),
            Buffer::Raw(start, bytes) => (*start, *bytes),
        };
        // SAFETY: an owned buffer is ours; a raw one was promised.
        let result = unsafe {
            match is_put {
                true => array.put_raw(&region, start, bytes),
                false => array.get_raw(&region, start, bytes),
            }
        };
        let cells = match buffer {
            Buffer::Owned(cells) => cells,
            Buffer::Raw(..) => vec![],
        };
        *shared.state.lock().unwrap() = State::Done(result.map(|()| cells));
        shared.changed.notify_all();
    }
}
