//! One worker: does what the coordinator assigns, one operation at a time.
//!
//! The main thread works; a second one does nothing but read from the coordinator, so that a run that is called off, or a
//! coordinator that dies, ends the worker even in the middle of its requests.

mod find;
mod loops;
mod metadata;
mod pass;

use crate::clock;
use crate::error::{Error, Result};
use crate::names;
use crate::protocol::{Assignment, FromWorker, TOKEN_VARIABLE, ToWorker, WORKER_VARIABLE, notice_death, receive, send};
use crate::settings::Files;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};

/// How an operation asks for what only the coordinator can decide.
pub trait Meeting {
    /// Waits until all workers are here; returns when all go on.
    fn barrier(&mut self) -> Result<()>;
    /// Tells how many requests were issued when time was up, and returns how many to issue.
    fn stonewalled(&mut self, requests: u64) -> Result<u64>;
}

/// A run of one worker meets nobody.
pub struct Alone;

impl Meeting for Alone {
    fn barrier(&mut self) -> Result<()> {
        Ok(())
    }
    fn stonewalled(&mut self, requests: u64) -> Result<u64> {
        Ok(requests)
    }
}

pub use pass::{Keeper, Pass};

/// The file that `worker` of this assignment has its data in.
pub fn path_of(assignment: &Assignment, worker: u32) -> PathBuf {
    let name = match assignment.settings.files {
        Files::Shared => assignment.file_stem.clone(),
        Files::PerWorker => names::of_worker(&assignment.file_stem, worker),
    };
    let mut path = assignment.directory.join(name);
    if assignment.settings.directory_per_worker
        && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
    {
        path = parent.join(worker.to_string()).join(name);
    }
    path
}

/// Removes the directories that were made for the file, where they are empty: others' files may be there.
pub fn leave_directory(assignment: &Assignment, path: &Path) {
    let own = assignment.settings.directory_per_worker || names::has_own_directory(&assignment.file_stem);
    let mut parent = path.parent();
    while own
        && let Some(directory) = parent.filter(|directory| **directory != assignment.directory)
        && directory.starts_with(&assignment.directory)
    {
        if std::fs::remove_dir(directory).is_err() {
            return;
        }
        parent = directory.parent();
    }
}

/// Rank that a launcher gave this process.
fn rank() -> Option<u32> {
    [WORKER_VARIABLE, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]
        .into_iter()
        .find_map(|variable| std::env::var(variable).ok()?.parse().ok())
}

struct Link {
    stream: TcpStream,
    messages: Receiver<ToWorker>,
}

impl Link {
    fn say(&mut self, message: &FromWorker) -> Result<()> {
        send(&mut self.stream, message).map_err(|error| Error::failed(format!("the coordinator is gone: {error}")))
    }
    fn next(&self) -> Result<ToWorker> {
        self.messages.recv().map_err(|_| Error::failed("the coordinator is gone"))
    }
}

impl Meeting for Link {
    fn barrier(&mut self) -> Result<()> {
        self.say(&FromWorker::Barrier)?;
        match self.next()? {
            ToWorker::Start { at_ns } => clock::sleep_until(at_ns),
            other => return Err(Error::failed(format!("unexpected message at a barrier: {other:?}"))),
        }
        Ok(())
    }
    fn stonewalled(&mut self, requests: u64) -> Result<u64> {
        self.say(&FromWorker::Stonewalled { requests })?;
        match self.next()? {
            ToWorker::WearOut { requests } => Ok(requests),
            other => Err(Error::failed(format!("unexpected message at the stonewall: {other:?}"))),
        }
    }
}

/// Serves the coordinator until it says goodbye.
pub fn serve(address: &str, token_from_stdin: bool) -> Result<()> {
    let token = if token_from_stdin {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map_err(|error| Error::io("read", "the token", error))?;
        line.trim().to_owned()
    } else {
        std::env::var(TOKEN_VARIABLE).map_err(|_| {
            Error::input(format!("{TOKEN_VARIABLE} is not set"), "`terrace bench run` starts its workers itself")
        })?
    };
    let mut stream = TcpStream::connect(address).map_err(|error| Error::io("connect to", address, error))?;
    notice_death(&stream).map_err(|error| Error::io("set up the connection to", address, error))?;
    clock::exact_timers();
    let uname = rustix::system::uname();
    let host = uname.nodename().to_string_lossy().into_owned();
    let hello = FromWorker::Hello { token, host, pid: std::process::id(), rank: rank(), clock: clock::identity() };
    send(&mut stream, &hello).map_err(|error| Error::io("greet", address, error))?;

    let (sender, messages) = channel();
    let mut reading = stream.try_clone().map_err(|error| Error::io("set up the connection to", address, error))?;
    let mut answering = stream.try_clone().map_err(|error| Error::io("set up the connection to", address, error))?;
    std::thread::spawn(move || {
        loop {
            match receive::<ToWorker>(&mut reading) {
                // Answered here, so that the answer is as fast as it can be.
                Ok(ToWorker::Ping) => {
                    if send(&mut answering, &FromWorker::Pong { at_ns: clock::now_ns() }).is_err() {
                        std::process::exit(3);
                    }
                }
                Ok(ToWorker::Bye) => {
                    if sender.send(ToWorker::Bye).is_err() {
                        return;
                    }
                }
                Ok(message) => {
                    if sender.send(message).is_err() {
                        return;
                    }
                }
                // The coordinator removes the files of a run that it calls off.
                Err(_) => std::process::exit(3),
            }
        }
    });
    let mut link = Link { stream, messages };
    let mut keeper = pass::Keeper::default();
    loop {
        match link.next()? {
            ToWorker::Prepare(assignment) => {
                let outcome = one(&mut link, &assignment, &mut keeper);
                if let Err(error) = outcome {
                    let wrong_data = matches!(error, Error::Wrong(_));
                    link.say(&FromWorker::Failed { message: error.to_string(), wrong_data })?;
                }
            }
            ToWorker::Look(assignment) => {
                let answer = match pass::look(&assignment, &mut keeper) {
                    Ok(there) => FromWorker::Looked { there },
                    Err(error) => FromWorker::Failed { message: error.to_string(), wrong_data: false },
                };
                link.say(&answer)?;
            }
            ToWorker::Remove(assignment) => {
                let answer = match pass::remove(&assignment, &mut keeper) {
                    Ok(ns) => FromWorker::Removed { ns },
                    Err(error) => FromWorker::Failed { message: error.to_string(), wrong_data: false },
                };
                link.say(&answer)?;
            }
            ToWorker::Bye => {
                keeper.finish();
                return Ok(());
            }
            // A start whose operation failed here.
            ToWorker::Start { .. } | ToWorker::WearOut { .. } | ToWorker::Ping => {}
        }
    }
}

fn one(link: &mut Link, assignment: &Assignment, keeper: &mut pass::Keeper) -> Result<()> {
    let mut pass = Pass::prepare(assignment, keeper)?;
    link.say(&FromWorker::Prepared { cache: pass.cache() })?;
    match link.next()? {
        ToWorker::Start { at_ns } => clock::sleep_until(at_ns),
        ToWorker::Bye => return Err(Error::failed("called off")),
        other => return Err(Error::failed(format!("unexpected message before the start: {other:?}"))),
    }
    let report = pass.perform(link)?;
    link.say(&FromWorker::Done(Box::new(report)))
}
