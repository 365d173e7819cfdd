//! Commands of SAVIME's language, for C and for `staging.hpp`: asked of the program `terrace-query`, by pipes.
//!
//!   terrace_savime_run ─▶ length and text ─▶ `terrace-query worker` ─▶ how it went, length and rows
//!
//! Invariant: one command is under way at a time; a forked child asks a program of its own. Why a program: its library (DataFusion)
//! would make this one fifty times as large.

use crate::call::{Failure, Outcome, call, call_close, call_open, out, text, used};
use crate::handles::handle;
use std::ffi::{CString, c_char, c_int};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use terrace_client::Kind;

/// A conversation in SAVIME's language.
#[allow(non_camel_case_types)]
pub struct terrace_savime {
    _private: (),
}

pub struct Conversation {
    target: String,
    worker: Mutex<Option<Worker>>,
}

struct Worker {
    child: Child,
    /// Whose pipes these are.
    owner: u32,
}

handle!(terrace_savime, Conversation, "the conversation", "conversations");

/// As `crates/query/src/worker.rs` reads them.
const IS_SAVIME: u32 = 1 << 31;
const AS_TEXT: u32 = 1 << 30;
const COMMAND_BYTES_MAX: usize = 16 << 20;
const ROWS: u8 = 0;

/// `terrace-query`: named by TERRACE_QUERY, or on the path, or beside `terrace`.
fn program() -> Outcome<PathBuf> {
    if let Some(named) = std::env::var_os("TERRACE_QUERY") {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        std::env::split_paths(&path).filter(|path| !path.as_os_str().as_bytes().is_empty()).collect();
    let found = |name: &str| directories.iter().map(|directory| directory.join(name)).find(|file| file.is_file());
    if let Some(program) = found("terrace-query") {
        return Ok(program);
    }
    let beside =
        found("terrace").and_then(|terrace| Some(terrace.canonicalize().ok()?.with_file_name("terrace-query")));
    beside.filter(|program| program.is_file()).ok_or_else(|| {
        Failure::new(
            Kind::NotFound,
            "the program terrace-query is not on the path\nhint: set TERRACE_QUERY to where it is",
        )
    })
}

impl Worker {
    fn start(target: &str) -> Outcome<Worker> {
        let program = program()?;
        let mut command = Command::new(&program);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !target.is_empty() {
            command.args(["--connect", target]);
        }
        let failed = |error| Failure::new(Kind::System, format!("{} can't be run: {error}", program.display()));
        Ok(Worker { child: command.spawn().map_err(failed)?, owner: std::process::id() })
    }

    /// The rows, or what was wrong with the commands.
    fn ask(&mut self, text: &str) -> std::io::Result<Outcome<Vec<u8>>> {
        let (Some(input), Some(output)) = (&mut self.child.stdin, &mut self.child.stdout) else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let mut asked = (text.len() as u32 | IS_SAVIME | AS_TEXT).to_le_bytes().to_vec();
        asked.extend(text.as_bytes());
        input.write_all(&asked)?;
        input.flush()?;
        let mut went = [0; 1];
        output.read_exact(&mut went)?;
        if went[0] == ROWS {
            let mut length = [0; 8];
            output.read_exact(&mut length)?;
            let mut rows = vec![];
            output.take(u64::from_le_bytes(length)).read_to_end(&mut rows)?;
            return match rows.len() as u64 == u64::from_le_bytes(length) {
                true => Ok(Ok(rows)),
                false => Err(std::io::ErrorKind::UnexpectedEof.into()),
            };
        }
        let mut length = [0; 4];
        output.read_exact(&mut length)?;
        let mut told = vec![0; u32::from_le_bytes(length) as usize];
        output.read_exact(&mut told)?;
        let told = String::from_utf8_lossy(&told);
        let message = match told.split_once('\0') {
            Some((message, "")) => message.to_owned(),
            Some((message, hint)) => format!("{message}\nhint: {hint}"),
            None => told.into_owned(),
        };
        Ok(Err(Failure::invalid(message)))
    }

    /// What it said before it ended.
    fn end(mut self) -> String {
        drop((self.child.stdin.take(), self.child.stdout.take()));
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            // What can't be read is not told.
            let _ = errors.read_to_string(&mut said);
        }
        let _ = self.child.wait();
        said
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        let worker = self.worker.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(worker) = worker.filter(|worker| worker.owner == std::process::id()) {
            worker.end();
        }
    }
}

/// Begins a conversation in SAVIME's language with the agent of a root; `target` as for terrace_connect, or tcp://ADDRESS:PORT.
/// The program `terrace-query` answers: on the path, beside `terrace`, or named by TERRACE_QUERY.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_savime_open(target: *const c_char, savime: *mut *mut terrace_savime) -> c_int {
    call_open(savime, || {
        let target = if target.is_null() { "" } else { text(target, "the target")? };
        let conversation = Conversation { target: target.into(), worker: Mutex::new(None) };
        Ok(conversation)
    })
}

/// Runs commands, ended by semicolons, one after the other. `rows` (which may be NULL) is what the last one says: a line as
/// `#x,d,int64|v,a,double:1`, then rows of values between commas; to be given back by terrace_text_free. At an error it stops.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_savime_run(
    savime: *const terrace_savime,
    commands: *const c_char,
    rows: *mut *mut c_char,
) -> c_int {
    call(|| {
        let conversation = used(savime)?;
        let commands = text(commands, "the commands")?;
        if commands.len() > COMMAND_BYTES_MAX {
            return Err(Failure::invalid(format!("commands of {} bytes: at most {COMMAND_BYTES_MAX}", commands.len())));
        }
        let mut slot = conversation.worker.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // After a fork the pipes are the parent's.
        if let Some(foreign) = slot.take_if(|worker| worker.owner != std::process::id()) {
            std::mem::forget(foreign);
        }
        let mut worker = match slot.take() {
            Some(worker) => worker,
            None => Worker::start(&conversation.target)?,
        };
        let answer = match worker.ask(commands) {
            Ok(answer) => {
                *slot = Some(worker);
                answer?
            }
            Err(error) => {
                let said = worker.end();
                let said = said.trim().strip_prefix("error: ").unwrap_or(said.trim());
                let message = if said.is_empty() {
                    format!("the program that answers has ended: {error}")
                } else {
                    said.to_owned()
                };
                return Err(Failure::new(Kind::NoAgent, message));
            }
        };
        if !rows.is_null() {
            let mut answer = answer;
            answer.retain(|&byte| byte != 0);
            *out(rows, "the rows")? = CString::new(answer).expect("zero bytes were taken out").into_raw();
        }
        Ok(())
    })
}

/// Gives back a text that a call gave; NULL is nothing.
///
/// # Safety
/// `text` is NULL, or came from a call that says so and was not given back yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: as the caller promises; made by `CString::into_raw`.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Ends a conversation.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_savime_close(savime: *mut terrace_savime) -> c_int {
    call_close(savime)
}
