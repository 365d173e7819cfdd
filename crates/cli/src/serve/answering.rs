//! Queries beside an agent: processes of their own (`terrace-query`), so that a query that goes wrong takes no agent with it. One
//! answers clients of Flight SQL; beside each of several agents one answers parts of the others' queries.
//!
//! Invariant: while `terrace serve` lives, so does it: one that dies is started again at the same address.

use crate::args::ServeArgs;
use crate::programs::beside;
use crate::signals::{self, Signals};
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_core::settings::{ListenSettings, Protection};
use terrace_index::INDEX_ENV;
use terrace_tool::failure::{Failure, Result, warn};

/// For queries that are answered when the end comes.
const END_PATIENCE: Duration = Duration::from_secs(6);
const END_LOOK: Duration = Duration::from_millis(5);
const PROGRAM: &str = "terrace-query";
/// One that lived shorter than this is not started again at once.
const LIFE_MIN: Duration = Duration::from_secs(1);
/// Of what is free: the agent's tiers in memory are not.
const MEMORY: &str = "50%";

pub struct Answering {
    /// Of `terrace-query`.
    command: &'static str,
    words: Vec<OsString>,
    index: OsString,
    address: String,
    /// With its scheme, for clients.
    pub location: String,
    child: Child,
    begun: Instant,
    is_gone: bool,
}

/// What a program needs to listen as an agent does.
fn listening(listen: &ListenSettings) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--token-file".into(), listen.token_file.clone().into()];
    match &listen.protection {
        Protection::Tls { certificate, key } => {
            words.extend(["--certificate".into(), certificate.into(), "--key".into(), key.into()]);
        }
        Protection::Plain => words.push("--plain".into()),
        Protection::Loopback => {}
    }
    words
}

impl Answering {
    /// Clients of Flight SQL.
    pub fn flight(args: &ServeArgs, listen: &ListenSettings, index: &Path, signals: &Signals) -> Result<Answering> {
        let mut words = listening(listen);
        words.extend(["--memory".into(), args.query_memory.clone().unwrap_or_else(|| MEMORY.into())]);
        for (flag, value) in [("--query-memory", &args.query_memory_each), ("--query-timeout", &args.query_timeout)] {
            words.extend(value.iter().flat_map(|value| [flag.into(), value.clone()]));
        }
        words.extend(args.query_spill.iter().flat_map(|directory| ["--spill".into(), directory.clone().into()]));
        Answering::begin("flight", words, &listen.address, index, signals)
    }

    /// The nodes of the other agents, beside this one; `None`: the program is not here.
    pub fn others(listen: &ListenSettings, index: &Path, signals: &Signals) -> Result<Option<Answering>> {
        if beside(PROGRAM).is_err() {
            return Ok(None);
        }
        let mut words = listening(listen);
        words.extend(["--memory".into(), MEMORY.into()]);
        let host = listen.address.rsplit_once(':').map_or(listen.address.as_str(), |(host, _)| host);
        Answering::begin("node", words, &format!("{host}:0"), index, signals).map(Some)
    }

    fn begin(
        command: &'static str,
        words: Vec<OsString>,
        address: &str,
        index: &Path,
        signals: &Signals,
    ) -> Result<Answering> {
        let (child, location) = start(command, &words, address, index.as_os_str(), signals)?;
        // The port, where the system has chosen it.
        let address = location.rsplit('/').next().unwrap_or_default().to_owned();
        let index = index.as_os_str().to_owned();
        Ok(Answering { command, words, index, address, location, child, begun: Instant::now(), is_gone: false })
    }

    /// ADDRESS:PORT
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How long until the next look is needed at the latest, if one is.
    pub fn look(&mut self, signals: &Signals) -> Option<Duration> {
        if !self.is_gone {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    warn(format!("`{PROGRAM} {}` has ended ({status}); it is started again", self.command));
                    self.is_gone = true;
                }
                _ => return None,
            }
        }
        if let Some(rest) = LIFE_MIN.checked_sub(self.begun.elapsed()) {
            return Some(rest);
        }
        self.begun = Instant::now();
        match start(self.command, &self.words, &self.address, &self.index, signals) {
            Ok((child, _)) => {
                (self.child, self.is_gone) = (child, false);
                None
            }
            Err(failure) => {
                failure.print();
                Some(LIFE_MIN)
            }
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !self.is_gone {
            signals::send(self.child.id(), libc::SIGTERM);
            let begun = Instant::now();
            while matches!(self.child.try_wait(), Ok(None)) {
                // What the agent has to make durable does not wait for it.
                if begun.elapsed() > END_PATIENCE {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return;
                }
                std::thread::sleep(END_LOOK);
            }
        }
    }
}

/// When it has said where it listens.
fn start(
    what: &str,
    words: &[OsString],
    address: &str,
    index: &std::ffi::OsStr,
    signals: &Signals,
) -> Result<(Child, String)> {
    let program = beside(PROGRAM)?;
    let mut command = Command::new(&program);
    command.args([what, "--listen", address]).args(words).env(INDEX_ENV, index);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let unblock = signals.mask_for_program();
    // SAFETY: it has no memory effects.
    let with_us = || match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: sigprocmask and prctl are async-signal-safe, and nothing else happens between fork and exec.
    unsafe { command.pre_exec(move || with_us().and_then(|()| unblock())) };
    let mut child = command.spawn().map_err(|error| Failure::io("run", &program, error))?;
    let mut line = String::new();
    let told = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    match told {
        Some(Ok(length)) if length > 0 => Ok((child, line.trim().to_owned())),
        _ => {
            let _ = child.kill();
            let _ = child.wait();
            Err(Failure::new(format!("`{PROGRAM} {what}` can't listen on {address}")))
        }
    }
}
