//! Holds a run's connection to its agent; starts the agent again when it dies while the program runs.
//!
//! The index is kept by the next agent, so programs go on with what they have mapped and notice nothing.
//!
//!   begin ──▶ (an agent with other settings and no run leaves, ours comes) ──▶ the run ──▶ end ──▶ the agent has left, or
//!                                                                                     others are there
//!
//! Invariant: when `end` returns and no other run is there, nothing of Terrace is in the root.

use crate::agent_process::{await_end, await_next, ensure};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use terrace_core::control::{Origin, Request, Response, Status};
use terrace_core::settings::Settings;
use terrace_tool::control_client::{Client, lost, unexpected};
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, code};

/// An agent that dies so often in a row is given time: whoever kills it, or what it dies of, may pass. Each time twice as much.
const DEATHS_AT_ONCE: u32 = 5;
const PAUSE_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// An agent that lived so long was well; its death starts the count again.
const WELL: Duration = Duration::from_secs(30);
/// How long a run tries to begin.
const PATIENCE: Duration = Duration::from_secs(120);
/// After so long the user is told for whom a run waits.
const SILENCE: Duration = Duration::from_secs(3);
/// How often the end of an agent that died on its way out is done again.
const ENDS_MAX: u32 = 3;

pub struct Begun {
    pub index: PathBuf,
    pub agent_pid: u32,
    /// The agent's totals before this run.
    pub before: Status,
}

pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    wanted: Wanted,
}

/// What is asked of each agent that serves the run.
#[derive(Clone)]
struct Wanted {
    settings: Settings,
    command: Vec<String>,
    origin: Origin,
}

struct Shared {
    ending: AtomicBool,
    /// The agent has said that it goes on without this run.
    stays: AtomicBool,
    stream: Mutex<Option<UnixStream>>,
    restarts: AtomicU32,
}

impl Keeper {
    /// Connects, begins the run, and keeps watch.
    pub fn begin(settings: &Settings, command: &[String], quiet: bool) -> Result<(Keeper, Begun)> {
        Keeper::start(settings, command, origin(), quiet)
    }

    /// As `begin`, for what is no program's run, and only keeps the agent there.
    pub fn hold(settings: &Settings, word: &str, quiet: bool) -> Result<(Keeper, Begun)> {
        Keeper::start(settings, &[word.to_owned()], Origin::default(), quiet)
    }

    fn start(settings: &Settings, command: &[String], origin: Origin, quiet: bool) -> Result<(Keeper, Begun)> {
        let wanted = Wanted { settings: settings.clone(), command: command.to_vec(), origin };
        let (client, begun) = begin(&wanted, false)?;
        let shared = Arc::new(Shared {
            ending: AtomicBool::new(false),
            stays: AtomicBool::new(false),
            stream: Mutex::new(client.handle().ok()),
            restarts: AtomicU32::new(0),
        });
        let (watch, kept) = (shared.clone(), wanted.clone());
        let thread = std::thread::spawn(move || keep(client, &watch, &kept, quiet));
        Ok((Keeper { shared, thread: Some(thread), wanted }, begun))
    }

    pub fn restarts(&self) -> u32 {
        self.shared.restarts.load(SeqCst)
    }

    /// The run has ended: waits until its agent has left, if nobody else needs it.
    pub fn end(mut self) {
        self.part(std::net::Shutdown::Write);
        for _ in 0..ENDS_MAX {
            if self.shared.stays.load(SeqCst) || !self.wanted.settings.unfinished().exists() {
                return;
            }
            // It died on its way out, and another one does the rest; or others' is there already.
            let Ok((mut client, _)) = begin(&self.wanted, true) else { return };
            let pid = client.agent_pid();
            let _ = client.handle().map(|stream| stream.shutdown(std::net::Shutdown::Write));
            match client.wait_for_word() {
                Some(_) => return,
                None => await_end(pid),
            }
        }
    }

    fn part(&mut self, how: std::net::Shutdown) {
        self.shared.ending.store(true, SeqCst);
        if let Some(stream) = &*self.shared.stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            let _ = stream.shutdown(how);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Keeper {
    /// The run has ended, or never began; nobody waits.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.part(std::net::Shutdown::Both);
        }
    }
}

fn refused(message: String, hint: Option<String>) -> Failure {
    let failure = Failure::new(message).code(code::BAD_INPUT);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// Now, for who traces runs: a workflow engine's trace goes on by these variables.
fn origin() -> Origin {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Origin {
        begun_ns: now.as_nanos() as u64,
        traceparent: variable("TRACEPARENT"),
        tracestate: variable("TRACESTATE"),
        is_traced: true,
    }
}

fn begin(wanted: &Wanted, again: bool) -> Result<(Client, Begun)> {
    let settings = &wanted.settings;
    let request = Request::RunBegin {
        pid: std::process::id(),
        command: wanted.command.clone(),
        settings: Box::new(settings.clone()),
        origin: wanted.origin.clone(),
    };
    let mut last = None;
    let begun = Instant::now();
    let mut is_told = false;
    while begun.elapsed() < PATIENCE {
        let mut client = ensure(settings, again)?;
        let pid = client.agent_pid();
        let asked = client.status().and_then(|before| Ok((before, client.ask(&request, |_| {})?)));
        match asked {
            Ok((before, Response::RunStarted { index, agent_pid, .. })) => {
                return Ok((client, Begun { index, agent_pid, before }));
            }
            Ok((_, Response::Leaving)) => match client.wait_for_word_within(SILENCE) {
                Ok(Some(Response::Error { message, hint })) => return Err(refused(message, hint)),
                Ok(_) => await_next(settings, pid),
                Err(_) if is_told => {}
                // It is asked again: it leaves for whoever waits.
                Err(_) => {
                    is_told = true;
                    errln!(
                        "terrace: waiting for the agent of {} (process {pid}), which has other settings and is still busy",
                        settings.root.display()
                    );
                }
            },
            Ok((_, Response::Error { message, hint })) => return Err(refused(message, hint)),
            Ok((_, other)) => return Err(lost(unexpected(other))),
            // It was just about to end.
            Err(error) => {
                last = Some(error);
                await_next(settings, pid);
            }
        }
    }
    Err(last.map_or_else(|| Failure::new("the agent could not be reached"), lost))
}

fn keep(mut client: Client, shared: &Shared, wanted: &Wanted, quiet: bool) {
    let mut deaths = 0;
    loop {
        let since = Instant::now();
        let pid = client.agent_pid();
        let word = client.wait_for_word();
        if shared.ending.load(SeqCst) {
            match word {
                Some(_) => shared.stays.store(true, SeqCst),
                None => await_end(pid),
            }
            return;
        }
        if word.is_some() {
            continue;
        }
        deaths = if since.elapsed() > WELL { 1 } else { deaths + 1 };
        if deaths > DEATHS_AT_ONCE {
            let pause = (Duration::from_millis(500) * (1 << (deaths - DEATHS_AT_ONCE).min(6))).min(PAUSE_MAX);
            terrace_tool::failure::warn(format!(
                "the agent died {deaths} times in a row; it is started again in {:.0} s, and programs wait meanwhile",
                pause.as_secs_f64()
            ));
            let begun = Instant::now();
            while begun.elapsed() < pause {
                if shared.ending.load(SeqCst) {
                    return;
                }
                std::thread::sleep(LOOK);
            }
        }
        match begin(wanted, true) {
            Ok((new, begun)) => {
                shared.restarts.fetch_add(1, SeqCst);
                if !quiet {
                    terrace_tool::failure::warn(format!(
                        "the agent had died and was started again (process {})",
                        begun.agent_pid
                    ));
                }
                client = new;
                *shared.stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = client.handle().ok();
                if shared.ending.load(SeqCst) {
                    // The run ended meanwhile: its end is what this agent is told.
                    let _ = client.handle().map(|stream| stream.shutdown(std::net::Shutdown::Write));
                }
            }
            Err(failure) => {
                failure.print();
                errln!("terrace: the program goes on; its files are safe in their tiers until `terrace recover`");
                return;
            }
        }
    }
}
