//! Holds a run's connection to its agent; starts the agent again when it dies while the program runs.
//!
//! The index is kept by the next agent, so programs go on with what they have mapped and notice nothing.

use crate::agent_process::{Connection, Joined, ensure};
use crate::control_client::{Client, lost, unexpected};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_core::control::{Request, Response, Status};
use terrace_core::settings::Settings;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result};

/// An agent that dies so often in a row is given time: whoever kills it, or what it dies of, may pass. Each time twice as much.
const DEATHS_AT_ONCE: u32 = 5;
const PAUSE_MAX: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(50);
/// An agent that lived so long was well; its death starts the count again.
const WELL: Duration = Duration::from_secs(30);

pub struct Begun {
    pub index: PathBuf,
    pub joined: Joined,
    pub agent_pid: u32,
    /// The agent's totals before this run.
    pub before: Status,
}

pub struct Keeper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    ending: AtomicBool,
    stream: Mutex<Option<UnixStream>>,
    restarts: AtomicU32,
}

impl Keeper {
    /// Connects, begins the run, and keeps watch.
    pub fn begin(settings: &Settings, command: &[String], quiet: bool) -> Result<(Keeper, Begun)> {
        let (client, begun) = begin(settings, command, false)?;
        let shared = Arc::new(Shared {
            ending: AtomicBool::new(false),
            stream: Mutex::new(client.handle().ok()),
            restarts: AtomicU32::new(0),
        });
        let (watch, settings, command) = (shared.clone(), settings.clone(), command.to_vec());
        let thread = std::thread::spawn(move || keep(client, &watch, settings, &command, quiet));
        Ok((Keeper { shared, thread: Some(thread) }, begun))
    }

    pub fn restarts(&self) -> u32 {
        self.shared.restarts.load(SeqCst)
    }
}

impl Drop for Keeper {
    /// The run has ended.
    fn drop(&mut self) {
        self.shared.ending.store(true, SeqCst);
        if let Some(stream) = &*self.shared.stream.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn begin(settings: &Settings, command: &[String], again: bool) -> Result<(Client, Begun)> {
    let request = Request::RunBegin { pid: std::process::id(), command: command.to_vec() };
    let mut last = None;
    for _ in 0..10 {
        let Connection { mut client, joined } = ensure(settings, again)?;
        let asked = client.status().and_then(|before| Ok((before, client.ask(&request, |_| {})?)));
        match asked {
            Ok((before, Response::RunStarted { index, agent_pid, .. })) => {
                return Ok((client, Begun { index, joined, agent_pid, before }));
            }
            Ok((_, other)) => return Err(lost(unexpected(other))),
            // It was just about to end.
            Err(error) => last = Some(error),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Err(last.map_or_else(|| Failure::new("the agent could not be reached"), lost))
}

fn keep(mut client: Client, shared: &Shared, settings: Settings, command: &[String], quiet: bool) {
    let mut deaths = 0;
    loop {
        let since = Instant::now();
        client.wait_for_end();
        if shared.ending.load(SeqCst) {
            return;
        }
        deaths = if since.elapsed() > WELL { 1 } else { deaths + 1 };
        let settings = crate::agent_process::in_force(&settings).unwrap_or_else(|| settings.clone());
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
        match begin(&settings, command, true) {
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
                    return;
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
