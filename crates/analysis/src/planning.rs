//! Threads that plans are made on. A plan may compute for long, as expressions of constants are then, and it calls itself once for each level
//! of a statement: neither is for threads that others wait for. To start one takes as long as a small plan, so some are kept.

use crate::error::{Error, Result};
use crate::exec::STACK_BYTES;
use crate::session::engine_failed;
use futures::FutureExt;
use rustix::process::{getpid, getpriority_process};
use rustix::thread::gettid;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_client::Kind;
use tokio::runtime::Handle;

const IDLE_MAX: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// Each waits for its next plan.
static IDLE: Mutex<Vec<Sender<Job>>> = Mutex::new(vec![]);

fn idle() -> MutexGuard<'static, Vec<Sender<Job>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a plan on another thread.
pub async fn aside<T: Send + 'static>(planning: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let runtime = Handle::current();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let job: Job = Box::new(move || {
        let planned = runtime.block_on(AssertUnwindSafe(planning).catch_unwind());
        // Whoever asked may have gone.
        let _ = sender.send(planned.unwrap_or_else(|_| Err(engine_failed())));
    });
    let waiting = idle().pop();
    match waiting {
        // It waits for as long as somebody may send to it.
        Some(waiting) => waiting.send(job).map_err(|_| engine_failed())?,
        None => begin(job)?,
    }
    receiver.await.unwrap_or_else(|_| Err(engine_failed()))
}

fn begin(job: Job) -> Result<()> {
    let (sender, jobs) = channel();
    let work = move || {
        job();
        serve(sender, &jobs);
    };
    let begun = std::thread::Builder::new().name("plan".into()).stack_size(STACK_BYTES).spawn(work);
    begun.map_err(|error| Error::new(Kind::System, format!("no thread can be started to plan a query: {error}")))?;
    Ok(())
}

fn serve(sender: Sender<Job>, jobs: &Receiver<Job>) {
    // One that a long query has begun has its low priority, which can't be raised again.
    if getpriority_process(Some(gettid())).ok() != getpriority_process(Some(getpid())).ok() {
        return;
    }
    loop {
        {
            let mut idle = idle();
            if idle.len() >= IDLE_MAX {
                return;
            }
            idle.push(sender.clone());
        }
        let Ok(job) = jobs.recv() else { return };
        job();
    }
}
