//! What is seen while an experiment runs: a bar and the last result on a terminal, a line for each row elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use terrace_bench::execute::Progress;
use terrace_bench::plan::{Run, describe};
use terrace_bench::report::show_rate;
use terrace_bench::results::{Row, Status};

pub struct Live {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Live {
    pub fn new(quiet: bool) -> Live {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed} ({eta} left)  {msg}");
            bar.set_style(style.expect("the template is valid"));
            bar
        });
        Live { bar, quiet }
    }
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }
}

impl Progress for Live {
    fn begins(&mut self, done: u64, all: u64, run: &Run, replication: u32) {
        if let Some(bar) = &self.bar {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(format!("replication {}: {}", replication + 1, describe(&run.factors)));
        }
    }
    fn row(&mut self, row: &Row) {
        if self.quiet && row.status == Status::Ok {
            return;
        }
        let what = format!("run {} ({}) {}", row.run, describe(&row.factors), row.operation);
        match (row.status, &row.error) {
            (Status::Ok, _) => self.say(&format!(
                "{what}: {} in {:.4} s, median latency {:.1} us",
                show_rate(row.rate(), row.unit()),
                row.elapsed_s,
                row.latency_median_ns as f64 / 1e3
            )),
            (_, Some(error)) => self.say(&format!("{what}: FAILED: {error}")),
            (_, None) => self.say(&format!("{what}: FAILED")),
        }
    }
    fn warns(&mut self, message: &str) {
        self.say(&format!("warning: {message}"));
    }
}
