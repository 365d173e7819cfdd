//! The list of queries of a root: those that run, in any process, and the last that ended.
//!
//! ```text
//!   RUNTIME/queries/ID.running   a query's record, by its process; written again while it runs
//!   RUNTIME/queries/ID.cancel    somebody wants its end; looked for by its process, many times a second
//!   RUNTIME/queries/ID.ended     its last record
//! ```
//!
//! Files, because those who ask are processes of their own (`terrace sql`, each Python program, `terrace serve --flight`), and come
//! and go. They lie here and not with the engine (`crates/analysis`), because the page and Python tell of queries without it.

use crate::Session;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace_core::objects::{Kind, ObjectError, Result};

const DIRECTORY: &str = "queries";
/// How often it is looked whether a query has ended.
const LOOK: Duration = Duration::from_millis(10);
/// Queries that ended and are still told of.
pub const HISTORY: usize = 100;
/// So many more, before the oldest are removed.
const HISTORY_SLACK: usize = 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Running,
    Finished,
    Failed,
    Cancelled,
    TimedOut,
    /// Whoever asked was gone before all was told.
    Left,
    /// Its process was.
    Died,
}

impl State {
    const ALL: [(State, &'static str); 7] = [
        (State::Running, "running"),
        (State::Finished, "finished"),
        (State::Failed, "failed"),
        (State::Cancelled, "cancelled"),
        (State::TimedOut, "timed out"),
        (State::Left, "left"),
        (State::Died, "died"),
    ];

    pub fn name(self) -> &'static str {
        State::ALL.iter().find(|(state, _)| *state == self).expect("all are listed").1
    }
    fn named(name: &str) -> State {
        State::ALL.iter().find(|(_, known)| *known == name).map_or(State::Died, |(state, _)| *state)
    }
}

/// What is known of a query.
#[derive(Clone, Debug)]
pub struct Record {
    pub id: String,
    pub who: String,
    pub text: String,
    pub state: State,
    pub started: SystemTime,
    pub elapsed: Duration,
    pub rows: u64,
    pub bytes: u64,
    pub cells: u64,
    /// Cells that it is known to read in all.
    pub planned: u64,
    pub memory_bytes_peak: u64,
    pub error: Option<String>,
    pub process: Process,
}

/// A number may be another process's later; with its start it is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pub id: u32,
    start: u64,
}

impl Process {
    pub fn own() -> Process {
        let id = std::process::id();
        Process::of(id).unwrap_or(Process { id, start: 0 })
    }
    fn of(id: u32) -> Option<Process> {
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // Behind the name, which may have anything in it.
        let start = text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        Some(Process { id, start })
    }
    fn is_alive(self) -> bool {
        Process::of(self.id) == Some(self)
    }
}

impl Record {
    /// The share that has been read of what is known to be read; `None` before that is known.
    pub fn progress(&self) -> Option<f64> {
        match self.state {
            State::Finished => Some(1.0),
            _ if self.planned == 0 => None,
            _ => Some((self.cells as f64 / self.planned as f64).min(1.0)),
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "id": self.id, "who": self.who, "text": self.text, "state": self.state.name(),
            "started_us": self.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64,
            "elapsed_us": self.elapsed.as_micros() as u64,
            "rows": self.rows, "bytes": self.bytes, "cells": self.cells, "planned": self.planned,
            "memory_bytes_peak": self.memory_bytes_peak, "error": self.error,
            "process": self.process.id, "process_start": self.process.start,
        })
    }

    fn of_json(value: &Value) -> Option<Record> {
        let text = |key: &str| value.get(key)?.as_str().map(str::to_owned);
        let number = |key: &str| value.get(key)?.as_u64();
        Some(Record {
            id: text("id")?,
            who: text("who")?,
            text: text("text")?,
            state: State::named(&text("state")?),
            started: UNIX_EPOCH + Duration::from_micros(number("started_us")?),
            elapsed: Duration::from_micros(number("elapsed_us")?),
            rows: number("rows")?,
            bytes: number("bytes")?,
            cells: number("cells")?,
            // Of another version.
            planned: number("planned").unwrap_or(0),
            memory_bytes_peak: number("memory_bytes_peak")?,
            error: text("error"),
            process: Process { id: number("process")? as u32, start: number("process_start")? },
        })
    }
}

/// A record appears whole. What can't be written is not seen; its query goes on.
pub fn write(directory: &Path, kind: &str, record: &Record) {
    let partial = directory.join(format!("{}.partial", record.id));
    let written = std::fs::write(&partial, record.to_json().to_string())
        .and_then(|()| std::fs::rename(&partial, directory.join(format!("{}.{kind}", record.id))));
    if written.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
}

/// In no order.
pub fn read(directory: &Path) -> Vec<Record> {
    let mut records: BTreeMap<String, Record> = BTreeMap::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let kind = path.extension().and_then(|kind| kind.to_str()).unwrap_or_default();
        if !matches!(kind, "running" | "ended") {
            continue;
        }
        // It may have ended meanwhile, and is there by its other name.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let Some(mut record) = serde_json::from_str(&text).ok().as_ref().and_then(Record::of_json) else { continue };
        if record.state == State::Running && !record.process.is_alive() {
            record.state = State::Died;
            write(directory, "ended", &record);
            let _ = std::fs::remove_file(&path);
        }
        match records.get(&record.id) {
            Some(known) if known.state != State::Running => {}
            _ => drop(records.insert(record.id.clone(), record)),
        }
    }
    records.into_values().collect()
}

/// Only so many that ended are kept.
pub fn forget_old(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let ended: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|kind| kind == "ended")).collect();
    if ended.len() <= HISTORY + HISTORY_SLACK {
        return;
    }
    let when = |path: &PathBuf| std::fs::metadata(path).and_then(|found| found.modified()).unwrap_or(UNIX_EPOCH);
    let mut ended: Vec<(SystemTime, PathBuf)> = ended.into_iter().map(|path| (when(&path), path)).collect();
    ended.sort();
    for (_, path) in &ended[..ended.len() - HISTORY] {
        let _ = std::fs::remove_file(path);
    }
}

/// Where a root's queries are told; `runtime`: the agent's runtime directory.
pub fn directory(runtime: &Path) -> PathBuf {
    runtime.join(DIRECTORY)
}

/// The queries of a session's root, and where they are told.
pub fn of_session(session: &Session) -> Result<PathBuf> {
    session.runtime_directory().map(directory).ok_or_else(|| {
        ObjectError::new(
            Kind::Invalid,
            "queries on the objects of an agent on another node are not to be seen from here",
        )
        .hint("ask there, or SELECT * FROM terrace.queries, which tells of the queries of the process that is asked")
    })
}

/// Those that run first, then by their start, the latest first; the oldest of those that ended are left out.
pub fn in_order(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by_key(|record| (record.state != State::Running, Reverse(record.started)));
    let running = records.iter().take_while(|record| record.state == State::Running).count();
    records.truncate(running + HISTORY);
    records
}

/// Ends a query of any process, and waits until it has.
pub fn cancel(directory: &Path, id: &str, patience: Duration) -> Result<()> {
    let is_running = || read(directory).iter().any(|record| record.id == id && record.state == State::Running);
    // So only what is in the list is made a file's name.
    if !is_running() {
        return Err(runs_no_more(id, read(directory)));
    }
    let request = directory.join(format!("{id}.cancel"));
    std::fs::write(&request, []).map_err(|error| {
        ObjectError::new(Kind::System, format!("can't ask for the end of {id}: {}: {error}", request.display()))
    })?;
    let begun = Instant::now();
    while is_running() {
        if begun.elapsed() > patience {
            let message = format!("the query {id} was told to end, and has not in {} s", patience.as_secs());
            return Err(ObjectError::new(Kind::Busy, message)
                .hint("one step of the engine, as sorting what it holds, is not cut short"));
        }
        std::thread::sleep(LOOK);
    }
    let _ = std::fs::remove_file(&request);
    Ok(())
}

/// Why there is nothing to end.
pub fn runs_no_more(id: &str, records: Vec<Record>) -> ObjectError {
    let message = match records.into_iter().find(|record| record.id == id) {
        Some(record) => format!("the query {id} runs no more: it is {}", record.state.name()),
        None => format!("there is no query {id}"),
    };
    ObjectError::new(Kind::NotFound, message).hint("SELECT id, who, sql FROM terrace.queries WHERE state = 'running'")
}
