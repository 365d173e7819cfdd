//! The queries of a root: those that run, in any process, and the last that ended.
//!
//! They are told to other processes by files (`terrace_client::queries`). Without a runtime directory (an agent on another node) a
//! process knows its own queries only.

use super::{Control, End};
use crate::error::Result;
use arrow::array::{Array, ArrayRef};
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, Weak};
use std::time::{Duration, Instant, SystemTime};
use terrace_client::queries::{self, HISTORY, Process, cancel, forget_old, in_order, read, runs_no_more, write};

pub use terrace_client::queries::{Record, State};

/// How soon a query's end is seen by its process.
const LOOK: Duration = Duration::from_millis(40);
/// How often the record of one that runs is written again, in looks.
const LOOKS_PER_RECORD: u64 = 10;
const TEXT_BYTES_MAX: usize = 4096;
/// How often a process looks for records that are too many.
const ENDS_PER_CLEANING: u64 = 16;

/// The queries that this process runs.
pub struct Register {
    directory: Option<PathBuf>,
    process: Process,
    next: AtomicU64,
    ends: AtomicU64,
    /// Set by whoever has a time limit for all of its queries, or a limit of memory for each.
    pub limits: Limits,
    shared: Arc<Shared>,
    looking: Once,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Limits {
    pub memory_bytes_max: Option<usize>,
    pub time_max: Option<Duration>,
}

#[derive(Default)]
struct Shared {
    running: Mutex<BTreeMap<String, Arc<Entry>>>,
    is_any: Condvar,
    /// Where there is no directory.
    ended: Mutex<VecDeque<Record>>,
}

struct Entry {
    id: String,
    who: String,
    text: String,
    started: SystemTime,
    begun: Instant,
    control: Arc<Control>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Entry {
    fn record(&self, state: State, error: Option<String>, process: Process) -> Record {
        Record {
            id: self.id.clone(),
            who: self.who.clone(),
            text: self.text.clone(),
            state,
            started: self.started,
            elapsed: self.begun.elapsed(),
            rows: self.control.rows.load(Relaxed),
            bytes: self.control.bytes.load(Relaxed),
            cells: self.control.cells.load(Relaxed),
            planned: self.control.planned.load(Relaxed),
            memory_bytes_peak: self.control.memory_bytes_peak.load(Relaxed),
            error,
            process,
        }
    }
}

impl Register {
    /// `runtime`: the agent's runtime directory.
    pub fn new(runtime: Option<&Path>, limits: Limits) -> Arc<Register> {
        // Where it can't be made, the process knows its own queries.
        let directory = runtime.map(queries::directory).filter(|directory| {
            use std::os::unix::fs::DirBuilderExt;
            let made = std::fs::DirBuilder::new().mode(0o700).create(directory);
            made.is_ok() || directory.is_dir()
        });
        let process = Process::own();
        let (shared, looking) = (Arc::default(), Once::new());
        Arc::new(Register {
            directory,
            process,
            next: AtomicU64::new(1),
            ends: AtomicU64::new(0),
            limits,
            shared,
            looking,
        })
    }

    /// A query that is asked from now on.
    pub fn begin(self: &Arc<Register>, text: &str, who: &str) -> Query {
        let id = format!("{}-{}", self.process.id, self.next.fetch_add(1, Relaxed));
        let control = Arc::new(Control::new(self.limits.memory_bytes_max, self.limits.time_max));
        let mut text = text.trim().to_owned();
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            text.push('…');
        }
        let entry = Arc::new(Entry {
            id: id.clone(),
            who: who.to_owned(),
            text,
            started: SystemTime::now(),
            begun: Instant::now(),
            control,
        });
        if let Some(directory) = &self.directory {
            write(directory, "running", &entry.record(State::Running, None, self.process));
        }
        locked(&self.shared.running).insert(id, entry.clone());
        self.shared.is_any.notify_one();
        self.looking.call_once(|| {
            let (shared, directory, process) = (Arc::downgrade(&self.shared), self.directory.clone(), self.process);
            // Without it nothing is cancelled from elsewhere; queries are answered all the same.
            let _ = std::thread::Builder::new().name("queries".into()).spawn(move || look(&shared, directory, process));
        });
        Query { register: self.clone(), entry, outcome: Mutex::new(None) }
    }

    /// Those that this process runs.
    pub fn running_here(&self) -> Vec<Record> {
        locked(&self.shared.running).values().map(|entry| entry.record(State::Running, None, self.process)).collect()
    }

    /// All queries, those that run first, then by their start, the latest first.
    pub fn records(&self) -> Vec<Record> {
        let mut records: Vec<Record> = match &self.directory {
            None => locked(&self.shared.ended).iter().cloned().collect(),
            Some(directory) => {
                // What runs elsewhere, and what ended.
                let of_others = |record: &Record| record.process != self.process || record.state != State::Running;
                read(directory).into_iter().filter(of_others).collect()
            }
        };
        records.extend(self.running_here());
        in_order(records)
    }

    /// Ends a query of any process of this root, and waits until it has.
    pub fn cancel(&self, id: &str, patience: Duration) -> Result<()> {
        if let Some(entry) = locked(&self.shared.running).get(id) {
            entry.control.end(End::Cancelled);
            return Ok(());
        }
        let Some(directory) = &self.directory else { return Err(runs_no_more(id, self.records()).into()) };
        Ok(cancel(directory, id, patience)?)
    }

    /// Ends all that this process runs.
    pub fn end_all(&self, why: End) -> usize {
        let running = locked(&self.shared.running);
        running.values().for_each(|entry| entry.control.end(why));
        running.len()
    }

    fn ended(&self, entry: &Entry, state: State, error: Option<String>) {
        let record = entry.record(state, error, self.process);
        // Until its last record is there it runs, and nobody writes that it does.
        let mut running = locked(&self.shared.running);
        running.remove(&entry.id);
        match &self.directory {
            Some(directory) => {
                write(directory, "ended", &record);
                for kind in ["running", "cancel"] {
                    let _ = std::fs::remove_file(directory.join(format!("{}.{kind}", entry.id)));
                }
                // Programs that ask once, too.
                if self.ends.fetch_add(1, Relaxed).is_multiple_of(ENDS_PER_CLEANING) {
                    forget_old(directory);
                }
            }
            None => {
                let mut ended = locked(&self.shared.ended);
                ended.push_back(record);
                if ended.len() > HISTORY {
                    ended.pop_front();
                }
            }
        }
    }
}

/// Time limits, and ends that are wanted elsewhere. Ends with the register.
fn look(shared: &Weak<Shared>, directory: Option<PathBuf>, process: Process) {
    for turn in 1u64.. {
        let Some(shared) = shared.upgrade() else { return };
        let mut running = locked(&shared.running);
        if running.is_empty() {
            // Woken by the next query; the pause is for a register that is let go of.
            let waited = shared.is_any.wait_timeout(running, Duration::from_secs(1));
            running = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(running, _)| running);
        }
        let entries: Vec<Arc<Entry>> = running.values().cloned().collect();
        drop(running);
        for entry in &entries {
            if entry.control.time_max.is_some_and(|most| entry.begun.elapsed() >= most) {
                entry.control.end(End::TimedOut);
            }
            let Some(directory) = &directory else { continue };
            if directory.join(format!("{}.cancel", entry.id)).exists() {
                entry.control.end(End::Cancelled);
            }
            // Under the lock: one that has ended meanwhile gets no record of running again.
            let running = locked(&shared.running);
            if turn.is_multiple_of(LOOKS_PER_RECORD) && running.contains_key(&entry.id) {
                write(directory, "running", &entry.record(State::Running, None, process));
            }
        }
        drop((entries, shared));
        std::thread::sleep(LOOK);
    }
}

/// A query that was begun; it has ended when this is let go of.
pub struct Query {
    register: Arc<Register>,
    entry: Arc<Entry>,
    outcome: Mutex<Option<(State, Option<String>)>>,
}

impl Query {
    pub fn id(&self) -> &str {
        &self.entry.id
    }
    pub fn control(&self) -> &Arc<Control> {
        &self.entry.control
    }

    /// The first outcome stays.
    pub fn finished(&self) {
        self.control().answered();
        locked(&self.outcome).get_or_insert((State::Finished, None));
    }

    pub fn failed(&self, error: &str) {
        let state = match self.control().wanted_end() {
            None => State::Failed,
            Some(End::Cancelled) => State::Cancelled,
            Some(End::TimedOut) => State::TimedOut,
            Some(End::Left) => State::Left,
        };
        locked(&self.outcome).get_or_insert((state, Some(error.to_owned())));
    }
}

/// The rows of a query as they come, until its end is wanted.
pub fn answer(query: Query, stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = stream.schema();
    let batches = futures::stream::unfold(Some((query, stream)), |held| async {
        let (query, mut stream) = held?;
        let control = query.control().clone();
        let batch = tokio::select! {
            biased;
            error = control.ending() => Some(Err(error)),
            // What fails because the end is wanted is that end, whatever it says.
            batch = stream.next() => batch.map(|batch| batch.map_err(|error| control.check().err().unwrap_or(error.into()))),
        };
        match batch {
            None => {
                query.finished();
                None
            }
            Some(Err(error)) => {
                query.failed(&error.message);
                Some((Err(DataFusionError::from(error)), None))
            }
            Some(Ok(batch)) => {
                control.rows.fetch_add(batch.num_rows() as u64, Relaxed);
                let bytes = |column: &ArrayRef| column.to_data().get_slice_memory_size().unwrap_or(0) as u64;
                control.bytes.fetch_add(batch.columns().iter().map(bytes).sum(), Relaxed);
                Some((Ok(batch), Some((query, stream))))
            }
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches.boxed()))
}

impl Drop for Query {
    fn drop(&mut self) {
        // Whatever still computes for it is of no use.
        self.control().end(End::Left);
        let outcome = locked(&self.outcome).take();
        let (state, error) = outcome.unwrap_or((State::Left, None));
        self.register.ended(&self.entry, state, error);
    }
}
