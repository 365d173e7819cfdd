//! How far a query is, on the terminal: a bar from half a second on, until the first rows come.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_analysis::{Engine, Register};

const PATIENCE: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(200);
const PARTS: u64 = 1000;

/// Shown until it is let go of.
pub struct Shown {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Nothing where standard error is no terminal.
pub fn show(engine: &Engine) -> Shown {
    let queries = engine.queries().objects().queries.clone();
    let (end, ended) = channel();
    let draw = move || {
        if ended.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let bar = ProgressBar::new(PARTS);
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} % of the cells, {elapsed}{msg}");
        bar.set_style(style.expect("the template is right"));
        loop {
            look(&queries, &bar);
            if ended.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
                bar.finish_and_clear();
                return;
            }
        }
    };
    let is_seen = std::io::stderr().is_terminal();
    // Without the thread nothing is shown, and the query is answered.
    let thread = is_seen.then(|| std::thread::Builder::new().name("progress".into()).spawn(draw).ok()).flatten();
    Shown { end: Some(end), thread }
}

fn look(queries: &Arc<Register>, bar: &ProgressBar) {
    // By its start: as texts, 7-9 is after 7-10.
    let Some(record) = queries.running_here().into_iter().max_by_key(|record| record.started) else { return };
    bar.set_position((record.progress().unwrap_or(0.0) * PARTS as f64) as u64);
    bar.set_message(if record.progress() == Some(1.0) { "; all are read" } else { "" });
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.end.take();
        // The terminal is clear when rows are written.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
