//! The progress bar of a flush, on stderr when that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use terrace_core::control::Response;

pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub fn new(what: &'static str, quiet: bool) -> Progress {
        let bar = ProgressBar::new(0);
        bar.set_draw_target(match std::io::stderr().is_terminal() && !quiet {
            true => ProgressDrawTarget::stderr_with_hz(8),
            false => ProgressDrawTarget::hidden(),
        });
        let style = ProgressStyle::with_template(
            "terrace: {prefix} {msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}",
        );
        bar.set_style(style.expect("the template is valid").progress_chars("=> "));
        bar.set_prefix(what);
        Progress { bar }
    }

    pub fn show(&self, response: &Response) {
        if let Response::Progress { files_done, files_total, bytes_done, bytes_total } = response {
            self.bar.set_length(*bytes_total);
            self.bar.set_position(*bytes_done);
            self.bar.set_message(format!("{files_done}/{files_total} files"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
