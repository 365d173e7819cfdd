//! Threads for the queries of Flight SQL's clients: each query has its own, so that the system gives a short one its turn beside
//! those that compute for minutes, whatever their operators do between two yields.
//!
//! Invariant: threads are lent to one query at a time. Those of a query that was cut short are not lent again: something of it may
//! still be on them.

use std::sync::{Arc, Mutex, MutexGuard};
use terrace_analysis::{Control, STACK_BYTES};
use tokio::runtime::{Builder, Handle, Runtime};

/// Kept for the next queries.
const IDLE_MAX: usize = 16;

#[derive(Default)]
pub struct Threads {
    /// For each query; 0: one for each processor.
    count: usize,
    idle: Mutex<Vec<Runtime>>,
}

/// One query's threads, and the end of what they do for it.
pub struct Lent {
    /// Until it is given back.
    runtime: Option<Runtime>,
    control: Arc<Control>,
    of: Arc<Threads>,
}

impl Threads {
    pub fn new(count: Option<usize>) -> Arc<Threads> {
        Arc::new(Threads { count: count.unwrap_or(0), idle: Mutex::default() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Runtime>> {
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn lend(self: &Arc<Threads>, control: &Arc<Control>) -> std::io::Result<Lent> {
        let idle = self.idle().pop();
        let runtime = match idle {
            Some(runtime) => runtime,
            None => {
                let mut builder = Builder::new_multi_thread();
                if self.count > 0 {
                    builder.worker_threads(self.count);
                }
                builder.thread_stack_size(STACK_BYTES).thread_name("query").enable_all().build()?
            }
        };
        Ok(Lent { runtime: Some(runtime), control: control.clone(), of: self.clone() })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Where others wait for their turn, nobody may wait for threads.
        self.idle().drain(..).for_each(Runtime::shutdown_background);
    }
}

impl Lent {
    pub fn handle(&self) -> Handle {
        self.runtime.as_ref().expect("it is not given back yet").handle().clone()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        // A query that has ended by itself is not told anything by this.
        let was_whole = self.control.is_answered();
        self.control.end(terrace_analysis::End::Left);
        let mut idle = self.of.idle();
        match was_whole && idle.len() < IDLE_MAX {
            true => idle.push(runtime),
            false => runtime.shutdown_background(),
        }
    }
}
