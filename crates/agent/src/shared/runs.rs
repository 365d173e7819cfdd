//! The runs that are connected, and who waits for the agent to leave.
//!
//! A run lives until its connection ends, or its sending side. In the second case it waits for what comes then: the last
//! run's connection is kept until the agent has left, so that its end tells that the root is clean.

use super::ended::now_ns;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use terrace_core::control::{Origin, Response, RunSpan, RunStatus};

/// Who has ended its run waits so long for clients that are no runs; they may stay for ever.
const OTHERS_PATIENCE: Duration = Duration::from_secs(1);
/// Who wants other settings waits longer, for it can't begin.
const SETTINGS_PATIENCE: Duration = Duration::from_secs(10);

/// How many runs are connected to this process's agent, for its signal handler.
pub static RUNS: AtomicUsize = AtomicUsize::new(0);

#[derive(Default)]
pub struct Runs {
    next: u64,
    connected: BTreeMap<u64, Run>,
    /// Since when no run is connected, and no request served.
    pub idle_since: Option<Instant>,
    /// Requests being served: the agent stays for their answers.
    pub requests: usize,
    /// There has been one: after the last one, nobody is waited for.
    pub had_one: bool,
    /// No run may begin any more.
    pub is_over: bool,
    waiting: Vec<Waiting>,
    /// A run has ended, or a request, or somebody waits.
    pub changed: Arc<Condvar>,
}

struct Run {
    pid: u32,
    command: Vec<String>,
    started: Instant,
    begin_ns: u64,
    origin: Origin,
}

/// For the agent's end.
struct Waiting {
    connection: UnixStream,
    since: Instant,
    /// To begin with other settings; else its run has ended.
    wants_settings: bool,
}

impl Run {
    fn span(&self, run: u64, end_ns: Option<u64>) -> RunSpan {
        let (command, origin) = (self.command.clone(), self.origin.clone());
        RunSpan { run, pid: self.pid, command, origin, begin_ns: self.begin_ns, end_ns }
    }
}

impl Runs {
    pub fn begin(&mut self, pid: u32, command: Vec<String>, origin: Origin) -> u64 {
        self.next += 1;
        let begin_ns = if origin.begun_ns == 0 { now_ns() } else { origin.begun_ns };
        self.connected.insert(self.next, Run { pid, command, started: Instant::now(), begin_ns, origin });
        RUNS.store(self.connected.len(), SeqCst);
        (self.idle_since, self.had_one) = (None, true);
        // The agent does not leave now.
        self.answer_waiting(|waiting| !waiting.wants_settings, &Response::Staying);
        self.next
    }

    /// `connection`: it may wait for what comes now. What is to be told of the run.
    pub fn end(&mut self, run: u64, connection: UnixStream) -> Option<RunSpan> {
        let ended = self.connected.remove(&run).filter(|ended| ended.origin.is_traced);
        let ended = ended.map(|ended| ended.span(run, Some(now_ns())));
        RUNS.store(self.connected.len(), SeqCst);
        if !self.connected.is_empty() {
            super::accept::send(&connection, &Response::Staying);
            return ended;
        }
        self.idle_since = Some(Instant::now());
        self.wait(connection, false);
        ended
    }

    /// Of those that traces tell of.
    pub fn oldest(&self) -> Option<u64> {
        self.traced().next().map(|(&run, _)| run)
    }

    /// Of those that live.
    pub fn spans(&self) -> impl Iterator<Item = RunSpan> {
        self.traced().map(|(&number, run)| run.span(number, None))
    }

    fn traced(&self) -> impl Iterator<Item = (&u64, &Run)> {
        self.connected.iter().filter(|(_, run)| run.origin.is_traced)
    }

    /// The connection ends when the agent has left.
    pub fn wait(&mut self, connection: UnixStream, wants_settings: bool) {
        self.waiting.push(Waiting { connection, since: Instant::now(), wants_settings });
        self.changed.notify_all();
    }

    pub fn end_request(&mut self) {
        self.requests -= 1;
        if self.connected.is_empty() {
            self.idle_since = Some(Instant::now());
            self.changed.notify_all();
        }
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Somebody waits for an agent with other settings: no run begins before that.
    pub fn gives_way(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.wants_settings)
    }

    /// The agent can't leave, for this reason.
    pub fn stay(&mut self, reason: &str) {
        self.answer_waiting(|waiting| !waiting.wants_settings, &Response::Staying);
        self.refuse_waiting(|_| true, reason);
    }

    /// Who waits for clients that don't leave has waited long enough.
    pub fn tire(&mut self) {
        self.answer_waiting(
            |waiting| !waiting.wants_settings && waiting.since.elapsed() > OTHERS_PATIENCE,
            &Response::Staying,
        );
        self.refuse_waiting(
            |waiting| waiting.since.elapsed() > SETTINGS_PATIENCE,
            "clients that are no runs are connected to it (objects, SQL, the page)",
        );
    }

    /// The agent has left: nobody begins anything with it, and who waits for the next one asks that.
    pub fn end_waiting(&mut self) {
        self.is_over = true;
        for waiting in self.waiting.drain(..) {
            // Fails where nobody is at the other end any more.
            let _ = waiting.connection.shutdown(Shutdown::Both);
        }
    }

    fn refuse_waiting(&mut self, is_meant: impl Fn(&Waiting) -> bool, reason: &str) {
        let refusal = Response::Error {
            message: format!(
                "the agent (process {}) has other settings than this run, and can't leave yet: {reason}",
                std::process::id()
            ),
            hint: Some("`terrace status` shows what it does; end that, or run with its settings".into()),
        };
        self.answer_waiting(|waiting| waiting.wants_settings && is_meant(waiting), &refusal);
    }

    fn answer_waiting(&mut self, is_meant: impl Fn(&Waiting) -> bool, answer: &Response) {
        self.waiting.extract_if(.., |waiting| is_meant(waiting)).for_each(|waiting| {
            super::accept::send(&waiting.connection, answer);
        });
    }

    pub fn count(&self) -> usize {
        self.connected.len()
    }

    pub fn status(&self) -> Vec<RunStatus> {
        let connected = self.connected.iter();
        connected
            .map(|(&run, status)| RunStatus {
                run,
                pid: status.pid,
                command: status.command.clone(),
                elapsed_s: status.started.elapsed().as_secs_f64(),
            })
            .collect()
    }
}

/// Counts as a request for as long as it lives: the agent doesn't end meanwhile.
pub struct Serving<'a>(&'a Mutex<Runs>);

impl<'a> Serving<'a> {
    pub fn new(runs: &'a Mutex<Runs>) -> Serving<'a> {
        runs.lock().unwrap().requests += 1;
        Serving(runs)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap().end_request();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// The process may live on: it deals with what was left by the settings of that, and then serves by its own.
    #[test]
    fn who_waits_for_other_settings_hears_when_the_agent_has_left() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let kept_by_its_conversation = near.try_clone().unwrap();
        let mut runs = Runs::default();
        runs.wait(near, true);
        assert!(runs.gives_way());
        runs.end_waiting();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        assert!(runs.is_over && !runs.has_waiting());
        drop(kept_by_its_conversation);
    }
}
