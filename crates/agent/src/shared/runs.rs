//! The runs that are connected. A run lives as long as its control connection.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;
use terrace_core::control::RunStatus;

#[derive(Default)]
pub struct Runs {
    next: u64,
    connected: BTreeMap<u64, Run>,
    /// When the last one left.
    pub idle_since: Option<Instant>,
    /// Requests being served: the agent stays for their answers.
    pub requests: usize,
}

struct Run {
    pid: u32,
    command: Vec<String>,
    started: Instant,
}

impl Runs {
    pub fn begin(&mut self, pid: u32, command: Vec<String>) -> u64 {
        self.next += 1;
        self.connected.insert(self.next, Run { pid, command, started: Instant::now() });
        self.idle_since = None;
        self.next
    }

    pub fn end(&mut self, run: u64) {
        self.connected.remove(&run);
        if self.connected.is_empty() {
            self.idle_since = Some(Instant::now());
        }
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
        let mut runs = self.0.lock().unwrap();
        runs.requests -= 1;
        if runs.count() == 0 {
            runs.idle_since = Some(Instant::now());
        }
    }
}
