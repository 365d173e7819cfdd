//! The progress bar of a flush, on stderr when that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use terrace_core::control::Response;

const APPEARS_AFTER: Duration = Duration::from_millis(300);

pub struct Progress {
    bar: ProgressBar,
    may_show: bool,
}

impl Progress {
    pub fn new(what: &'static str, quiet: bool) -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("terrace: {prefix} {msg} [{wide_bar}] {bytes}/{total_bytes} {eta}");
        bar.set_style(style.expect("the template is valid").progress_chars("=> "));
        bar.set_prefix(what);
        Progress { bar, may_show: std::io::stderr().is_terminal() && !quiet }
    }

    pub fn show(&self, response: &Response) {
        if let Response::Progress { files_done, files_total, bytes_done, bytes_total } = response {
            self.bar.set_message(format!("{files_done}/{files_total} files"));
            self.bar.update(|state| {
                state.set_len(*bytes_total);
                state.set_pos(*bytes_done);
            });
            // A flush that is over at once shows no bar.
            if self.may_show && self.bar.is_hidden() && *bytes_total > 0 && self.bar.elapsed() > APPEARS_AFTER {
                self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
