//! SQL of the page: asked of the engine, `terrace-query worker`, a process for each query, by pipes.
//!
//! ```text
//!   POST /api/query ─▶ a place ─▶ process: text in, a table as JSON out ─▶ the page
//!   the page goes away ─▶ the request's future is dropped ─▶ the process's input ends ─▶ so does its query, and the process
//! ```
//!
//! Invariant: no query outlives its request. A process for each, so that one that takes all of its memory takes neither this server nor
//! another query with it, and so that what the engine can't cut short is killed.

use crate::refusal::{Answer, Refusal};
use crate::reply::Reply;
use axum::http::StatusCode;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_core::size::{DURATION_HINT, SIZE_HINT, Size, parse_duration};
use terrace_tool::failure::Failure;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queries of pages at once.
pub const QUERIES_MAX: usize = 4;
pub const TEXT_BYTES_MAX: usize = 1 << 20;
const PROGRAM: &str = "terrace-query";
/// As `terrace-query worker` has them: the answer is wanted as a text, the one that the page shows.
const AS_TEXT_FOR_PAGE: u32 = 1 << 30 | 1 << 29;
const ROWS: u8 = 0;
/// More is no answer of the engine, which tells a limited number of cells.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// For a query that nobody waits for to end by itself.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);

pub struct Engine {
    program: PathBuf,
    words: Vec<OsString>,
    places: Arc<Semaphore>,
}

impl Engine {
    pub fn new(connect: &str, memory: &str, timeout: &str, spill: Option<&Path>) -> Result<Engine, Failure> {
        // What is wrong is told at the start, and not to each page.
        Size::parse(memory)
            .map_err(|error| Failure::invalid(format!("--query-memory {memory}: {error}")).hint(SIZE_HINT))?;
        parse_duration(timeout)
            .map_err(|error| Failure::invalid(format!("--query-timeout: {error}")).hint(DURATION_HINT))?;
        let own = std::env::current_exe().map_err(|error| Failure::new(format!("can't find this program: {error}")))?;
        let mut words = ["worker", "--memory", memory, "--query-timeout", timeout].map(OsString::from).to_vec();
        if !connect.is_empty() {
            words.extend(["--connect", connect].map(OsString::from));
        }
        if let Some(directory) = spill {
            if !directory.is_dir() {
                let message = format!("--query-spill {}: there is no such directory", directory.display());
                return Err(Failure::invalid(message));
            }
            words.extend(["--spill".into(), directory.into()]);
        }
        Ok(Engine { program: own.with_file_name(PROGRAM), words, places: Arc::new(Semaphore::new(QUERIES_MAX)) })
    }

    pub async fn ask(&self, text: String) -> Answer<Reply> {
        let full =
            || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, format!("{QUERIES_MAX} queries of pages run already"));
        let place = self.places.clone().try_acquire_owned().map_err(|_| full())?;
        let mut child = Command::new(&self.program)
            .args(&self.words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| self.not_started(&error))?;
        let input = child.stdin.take().expect("it is piped");
        let output = child.stdout.take().expect("it is piped");
        let writer = input.as_fd().try_clone_to_owned();
        let _asked = Asked { input: Some(input), child: Some(child), place: Some(place) };
        let writer = File::from(writer.map_err(|error| broken(&error))?);
        let answered = tokio::task::spawn_blocking(move || exchange(writer, output, &text)).await;
        answered.map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending"))?
    }

    fn not_started(&self, error: &Error) -> Refusal {
        let message = format!("queries can't be answered: {}: {error}", self.program.display());
        let hint = Some("install the SQL engine, terrace-query, beside terrace-web".to_owned());
        Refusal { hint, ..Refusal::new(StatusCode::NOT_IMPLEMENTED, message) }
    }
}

/// The process of a query that is waited for. It ends when this is let go of, be it answered or not.
struct Asked {
    input: Option<ChildStdin>,
    child: Option<Child>,
    place: Option<OwnedSemaphorePermit>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.input.take());
        let (Some(mut child), place) = (self.child.take(), self.place.take()) else { return };
        let reap = move || {
            let begun = Instant::now();
            while matches!(child.try_wait(), Ok(None)) {
                if begun.elapsed() > PATIENCE {
                    // One step of the engine is not cut short.
                    let _ = child.kill();
                    let _ = child.wait();
                }
                std::thread::sleep(LOOK);
            }
            // Its place is free when its memory is.
            drop(place);
        };
        // Without the thread it ends by itself, and is reaped with this program.
        let _ = std::thread::Builder::new().name("query".into()).spawn(reap);
    }
}

/// What the engine says: rows, or its own sentence.
fn exchange(mut input: File, mut output: ChildStdout, text: &str) -> Answer<Reply> {
    let failed = |error: Error| broken(&error);
    // A text that is no longer read was the engine's end, which is told below.
    let _ = input
        .write_all(&(text.len() as u32 | AS_TEXT_FOR_PAGE).to_le_bytes())
        .and_then(|()| input.write_all(text.as_bytes()));
    drop(input);
    let mut kind = [0];
    output.read_exact(&mut kind).map_err(failed)?;
    if kind[0] == ROWS {
        let mut length = [0; 8];
        output.read_exact(&mut length).map_err(failed)?;
        return Ok(Reply::new("application/json", read(&mut output, u64::from_le_bytes(length)).map_err(failed)?));
    }
    let mut length = [0; 4];
    output.read_exact(&mut length).map_err(failed)?;
    let told = read(&mut output, u32::from_le_bytes(length).into()).map_err(failed)?;
    let told = String::from_utf8_lossy(&told);
    let (message, hint) = told.split_once('\0').unwrap_or((&told, ""));
    Err(Refusal { hint: Some(hint.to_owned()).filter(|hint| !hint.is_empty()), ..Refusal::bad(message) })
}

fn read(output: &mut ChildStdout, length: u64) -> Result<Vec<u8>, Error> {
    if length > ANSWER_BYTES_MAX {
        return Err(Error::other(format!("an answer of {length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    output.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn broken(error: &Error) -> Refusal {
    let why = match error.kind() {
        ErrorKind::UnexpectedEof => {
            "the program that answers queries has ended: the query may need more memory than there is".into()
        }
        _ => format!("the program that answers queries can't be asked: {error}"),
    };
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, why)
}
