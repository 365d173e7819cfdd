//! Threads for the queries of Flight SQL's clients: each query has its own, so that the system gives a short one its turn beside
//! those that compute for minutes, whatever their operators do between two yields. After `SHORT` a query's threads are those of a long one:
//! the system then prefers all others, however many long ones there are. It gives processors that nobody else wants to long ones.
//!
//! Invariant: threads are lent to one query at a time. Those of a query that was cut short are not lent again: something of it may
//! still be on them. Nor are those of a long one, whose priority can't be raised again.

use rustix::process::setpriority_process;
use rustix::thread::{Pid, gettid};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use terrace_analysis::{Control, STACK_BYTES};
use tokio::runtime::{Builder, Handle, Runtime};

/// Kept for the next queries.
const IDLE_MAX: usize = 16;
/// What a query may take until others are preferred, as a tenth of it is to be little.
const SHORT: Duration = Duration::from_secs(1);
/// A short query gets ten times the time of a long one.
const NICE_OF_LONG: i32 = 10;

#[derive(Default)]
pub struct Threads {
    /// For each query; 0: one for each processor.
    count: usize,
    idle: Mutex<Vec<Set>>,
}

/// The threads of one query.
struct Set {
    runtime: Runtime,
    ranks: Arc<Mutex<Ranks>>,
}

#[derive(Default)]
struct Ranks {
    is_long: bool,
    threads: Vec<Pid>,
}

impl Ranks {
    fn lower(thread: Pid) {
        // Where it may not be, it has its turn as all others have.
        let _ = setpriority_process(Some(thread), NICE_OF_LONG);
    }
}

/// One query's threads, and the end of what they do for it.
pub struct Lent {
    /// Until it is given back.
    set: Option<Set>,
    control: Arc<Control>,
    of: Arc<Threads>,
}

impl Threads {
    pub fn new(count: Option<usize>) -> Arc<Threads> {
        Arc::new(Threads { count: count.unwrap_or(0), idle: Mutex::default() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Set>> {
        locked(&self.idle)
    }

    /// Called where time is kept.
    pub fn lend(self: &Arc<Threads>, control: &Arc<Control>) -> std::io::Result<Lent> {
        let idle = self.idle().pop();
        let set = match idle {
            Some(set) => set,
            None => {
                let ranks = Arc::<Mutex<Ranks>>::default();
                let (begun, ended) = (ranks.clone(), ranks.clone());
                let mut builder = Builder::new_multi_thread();
                if self.count > 0 {
                    builder.worker_threads(self.count);
                }
                builder.thread_stack_size(STACK_BYTES).thread_name("query").enable_all();
                builder.on_thread_start(move || {
                    let mut ranks = locked(&begun);
                    ranks.threads.push(gettid());
                    if ranks.is_long {
                        Ranks::lower(gettid());
                    }
                });
                builder.on_thread_stop(move || locked(&ended).threads.retain(|&thread| thread != gettid()));
                Set { runtime: builder.build()?, ranks }
            }
        };
        tokio::spawn(lower_in_time(Arc::downgrade(control), set.ranks.clone()));
        Ok(Lent { set: Some(set), control: control.clone(), of: self.clone() })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Threads that these start begin as they are.
async fn lower_in_time(control: Weak<Control>, ranks: Arc<Mutex<Ranks>>) {
    tokio::time::sleep(SHORT).await;
    // Under the lock: threads that are given back just now are seen to be those of a long query, or are not.
    let mut ranks = locked(&ranks);
    let Some(control) = control.upgrade() else { return };
    if !control.is_answered() && control.wanted_end().is_none() {
        ranks.is_long = true;
        ranks.threads.iter().for_each(|&thread| Ranks::lower(thread));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Where others wait for their turn, nobody may wait for threads.
        self.idle().drain(..).for_each(|set| set.runtime.shutdown_background());
    }
}

impl Lent {
    pub fn handle(&self) -> Handle {
        self.set.as_ref().expect("it is not given back yet").runtime.handle().clone()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(set) = self.set.take() else { return };
        // A query that has ended by itself is not told anything by this.
        let was_whole = self.control.is_answered();
        self.control.end(terrace_analysis::End::Left);
        let is_long = locked(&set.ranks).is_long;
        let mut idle = self.of.idle();
        match was_whole && !is_long && idle.len() < IDLE_MAX {
            true => idle.push(set),
            false => set.runtime.shutdown_background(),
        }
    }
}
