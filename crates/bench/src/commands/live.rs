//! What is seen while an experiment runs. On a terminal: how far it is, and a line for each run's operation with its median
//! and interval so far. Elsewhere: a line for each row.

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use terrace_bench::execute::Progress;
use terrace_bench::plan::{Run, describe};
use terrace_bench::report::{show_interval, show_rate};
use terrace_bench::results::{Row, Status};
use terrace_bench::statistics::{median, median_interval};

const CONFIDENCE: f64 = 0.95;
const TICK: Duration = Duration::from_millis(250);

pub struct Live {
    view: Option<View>,
    quiet: bool,
}

struct View {
    all: MultiProgress,
    bar: ProgressBar,
    /// The rates so far, and where they are shown, of each run's operation.
    runs: BTreeMap<(u32, String), (Vec<f64>, ProgressBar)>,
    /// In the order in which they came: the terminal has only so many lines, and the oldest goes.
    shown: Vec<(u32, String)>,
    lines: usize,
}

impl View {
    fn new() -> View {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let bar = all.add(ProgressBar::new(0));
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed} ({eta} left)  {wide_msg}");
        bar.set_style(style.expect("the template is valid"));
        bar.enable_steady_tick(TICK);
        View { all, bar, runs: BTreeMap::new(), shown: vec![], lines: terminal_lines().saturating_sub(4).max(4) }
    }

    fn row(&mut self, row: &Row) {
        let key = (row.run, row.operation.clone());
        if !self.runs.contains_key(&key) {
            let line = ProgressBar::hidden();
            line.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is valid"));
            self.runs.insert(key.clone(), (vec![], line));
        }
        let (rates, line) = self.runs.get_mut(&key).expect("it was put there just now");
        rates.push(row.rate());
        rates.sort_by(f64::total_cmp);
        let interval = median_interval(rates, CONFIDENCE);
        line.set_message(format!(
            "  {:32} {:8} {:4} × {:>14}   {}",
            describe(&row.factors),
            row.operation,
            rates.len(),
            show_rate(median(rates), row.unit()),
            show_interval(&interval, row.unit())
        ));
        if !self.shown.contains(&key) {
            let line = self.all.add(line.clone());
            line.tick();
            self.runs.get_mut(&key).expect("it is there").1 = line;
            self.shown.push(key);
            if self.shown.len() > self.lines {
                let longest_there = self.shown.remove(0);
                self.all.remove(&self.runs[&longest_there].1);
            }
        }
    }
}

fn terminal_lines() -> usize {
    // SAFETY: the structure is plain numbers, and the call fills it or leaves it.
    let size = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size);
        size
    };
    if size.ws_row == 0 { 24 } else { usize::from(size.ws_row) }
}

impl Live {
    pub fn new(quiet: bool) -> Live {
        Live { view: (!quiet && std::io::stderr().is_terminal()).then(View::new), quiet }
    }
    /// Takes everything off the terminal, so that what is printed next stays.
    pub fn finish(&mut self) {
        if let Some(view) = self.view.take() {
            view.bar.finish_and_clear();
            let _ = view.all.clear();
            view.all.set_draw_target(ProgressDrawTarget::hidden());
        }
    }
    fn say(&self, line: &str) {
        match &self.view {
            Some(view) => drop(view.all.println(line)),
            None => drop(writeln!(std::io::stderr(), "{line}")),
        }
    }
}

impl Progress for Live {
    fn begins(&mut self, done: u64, all: u64, run: &Run, replication: u32) {
        if let Some(view) = &self.view {
            view.bar.set_length(all);
            view.bar.set_position(done);
            view.bar.set_message(format!("replication {}: {}", replication + 1, describe(&run.factors)));
        }
    }
    fn row(&mut self, row: &Row) {
        if row.status == Status::Ok {
            match &mut self.view {
                Some(view) => return view.row(row),
                None if self.quiet => return,
                None => {}
            }
        }
        let what = format!("run {} ({}) {}", row.run, describe(&row.factors), row.operation);
        match (row.status, &row.error) {
            (Status::Ok, _) => self.say(&format!(
                "{what}: {} in {:.4} s, median latency {:.1} us{}",
                show_rate(row.rate(), row.unit()),
                row.elapsed_s,
                row.latency_median_ns as f64 / 1e3,
                row.verified().map(|verified| format!(", {verified}")).unwrap_or_default()
            )),
            (_, Some(error)) => self.say(&format!("{what}: FAILED: {error}")),
            (_, None) => self.say(&format!("{what}: FAILED")),
        }
    }
    fn warns(&mut self, message: &str) {
        self.say(&format!("warning: {message}"));
    }
}
