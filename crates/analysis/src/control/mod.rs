//! A query that runs can be ended, and be seen.
//!
//! ```text
//!   who wants its end (a client that left, Ctrl-C, --cancel, a time limit) ──▶ Control ◀── looked at by all that computes for it:
//!   leaves, tile by tile; operators that make many rows of few, batch by batch; filters of joins; every request for memory
//! ```
//!
//! Invariant: what computes for a query looks at its control at least every few thousand rows, so that the query's end is an
//! error that goes up through its plan. DataFusion's own way, to let go of the stream, ends nothing between two yields: a
//! nested-loop join that finds no pair yields once in hours.

mod checked;
mod memory;
mod register;
mod shares;

pub use checked::checked;
pub use memory::with_memory_of;
pub use register::{Limits, Query, Record, Register, answer};
pub use shares::Shares;

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use terrace_client::Kind;

/// How often is looked whether a query has given back what it held.
const LOOK: Duration = Duration::from_millis(2);
/// For how long, at most.
const GIVING_BACK_MAX: Duration = Duration::from_secs(10);

/// What ends queries, and what is counted of one.
#[derive(Debug)]
pub struct Control {
    end: AtomicU8,
    /// Told once, when the end is wanted.
    wanted: tokio::sync::Notify,
    /// Most memory that this query may hold.
    pub memory_bytes_max: Option<usize>,
    pub time_max: Option<Duration>,
    pub memory_bytes: AtomicU64,
    pub memory_bytes_peak: AtomicU64,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    answered: AtomicBool,
    /// Read so far, and known to be read in all.
    pub cells: AtomicU64,
    pub planned: AtomicU64,
}

/// Why a query is to end before it has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Cancelled = 1,
    TimedOut = 2,
    /// Whoever asked is gone.
    Left = 3,
}

impl Control {
    pub fn new(memory_bytes_max: Option<usize>, time_max: Option<Duration>) -> Control {
        Control {
            end: AtomicU8::new(0),
            wanted: tokio::sync::Notify::new(),
            memory_bytes_max,
            time_max,
            memory_bytes: AtomicU64::new(0),
            memory_bytes_peak: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            cells: AtomicU64::new(0),
            planned: AtomicU64::new(0),
        }
    }

    /// The first reason stays.
    pub fn end(&self, why: End) {
        if self.end.compare_exchange(0, why as u8, Relaxed, Relaxed).is_ok() {
            self.wanted.notify_waiters();
        }
    }

    pub fn wanted_end(&self) -> Option<End> {
        match self.end.load(Relaxed) {
            0 => None,
            1 => Some(End::Cancelled),
            2 => Some(End::TimedOut),
            _ => Some(End::Left),
        }
    }

    /// An error where the end is wanted.
    pub fn check(&self) -> Result<()> {
        match self.wanted_end() {
            None => Ok(()),
            Some(why) => Err(self.error(why)),
        }
    }

    pub fn error(&self, why: End) -> Error {
        match why {
            End::Cancelled => Error::new(Kind::Busy, "the query was cancelled"),
            End::Left => Error::new(Kind::Busy, "the query was ended: whoever asked it is gone"),
            End::TimedOut => {
                let limit = self.time_max.unwrap_or_default().as_secs_f64();
                Error::new(Kind::Busy, format!("the query was ended: it took longer than it may, {limit} s"))
                    .hint("ask for less at once, or allow more with --query-timeout")
            }
        }
    }

    /// Whether all of its rows were told.
    pub fn is_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }
    pub(super) fn answered(&self) {
        self.answered.store(true, Relaxed);
    }

    /// When nothing is held any more, or after a while.
    pub async fn has_given_back(&self) {
        within(GIVING_BACK_MAX, || self.memory_bytes.load(Relaxed) == 0).await;
    }

    /// When the end is wanted.
    pub async fn ending(&self) -> Error {
        loop {
            let told = self.wanted.notified();
            tokio::pin!(told);
            // From here on no notice is missed.
            told.as_mut().enable();
            if let Some(why) = self.wanted_end() {
                return self.error(why);
            }
            told.await;
        }
    }
}

/// When it is so, or when that time is over: tasks that nobody waits for let go of what they hold when they are next looked at.
pub async fn within(time_max: Duration, is_so: impl Fn() -> bool) {
    let looked = async {
        while !is_so() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let _ = tokio::time::timeout(time_max, looked).await;
}

tokio::task_local! {
    /// For whom a plan is made and run, where a query is known.
    static CURRENT: Arc<Control>;
}

/// All streams that `asking` starts are of this query.
pub async fn on_behalf<T>(control: Arc<Control>, asking: impl Future<Output = T>) -> T {
    CURRENT.scope(control, asking).await
}

/// One of nobody, where no query is known: programs that run plans by themselves let go of their streams.
pub fn current() -> Arc<Control> {
    CURRENT.try_with(Clone::clone).unwrap_or_else(|_| Arc::new(Control::new(None, None)))
}

thread_local! {
    /// For whom this thread reads: what is computed when it is read, deep in a grid, has no other way to know.
    static READING: std::cell::RefCell<Option<Arc<Control>>> = const { std::cell::RefCell::new(None) };
}

/// Until its end this thread, which is the query's alone, reads for it.
pub fn reading<T>(control: &Arc<Control>, work: impl FnOnce() -> T) -> T {
    let before = READING.replace(Some(control.clone()));
    let done = work();
    READING.set(before);
    done
}

/// That of whom this thread reads for.
pub fn of_thread() -> Arc<Control> {
    READING.with_borrow(Clone::clone).unwrap_or_else(|| Arc::new(Control::new(None, None)))
}

/// That of a plan's task.
pub fn of_task(context: &datafusion::execution::TaskContext) -> Arc<Control> {
    of_config(context.session_config())
}

pub fn of_config(config: &datafusion::prelude::SessionConfig) -> Arc<Control> {
    config.get_extension::<Control>().unwrap_or_else(|| Arc::new(Control::new(None, None)))
}
