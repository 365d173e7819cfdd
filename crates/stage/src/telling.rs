//! What a transfer says while it goes on, and at its end.

use indicatif::{ProgressBar, ProgressStyle};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use terrace_core::size::show_bytes;
use terrace_tool::errln;

pub struct Telling {
    bar: ProgressBar,
    begun: Instant,
    quiet: bool,
    files: AtomicU64,
    bytes: AtomicU64,
    /// Were there already.
    kept: AtomicU64,
}

impl Telling {
    /// A bar is shown on terminals only.
    pub fn begin(doing: &'static str, bytes: u64, quiet: bool) -> Telling {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(bytes) };
        let style = ProgressStyle::with_template(
            "{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
        );
        bar.set_style(style.expect("the template is right"));
        bar.set_message(doing);
        bar.enable_steady_tick(Duration::from_millis(500));
        Telling { bar, begun: Instant::now(), quiet, files: 0.into(), bytes: 0.into(), kept: 0.into() }
    }

    pub fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    /// Of a file that an earlier attempt has begun.
    pub fn is_brought(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    pub fn file_is_done(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    pub fn is_there(&self, bytes: u64) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        self.bar.inc(bytes);
    }

    pub fn end(self, doing: &str, place: impl fmt::Display) {
        self.bar.finish_and_clear();
        if !self.quiet {
            errln!("terrace: {}", self.in_words(doing, place));
        }
    }

    pub fn in_words(&self, doing: &str, place: impl fmt::Display) -> String {
        let seconds = self.begun.elapsed().as_secs_f64();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (files, bytes, kept) = (count(&self.files), count(&self.bytes), count(&self.kept));
        let kept = match kept {
            0 => String::new(),
            kept => format!("; {} there already", files_in_words(kept)),
        };
        format!("{doing} {place}: {}, {} in {seconds:.1} s{kept}", files_in_words(files), show_bytes(bytes))
    }
}

pub fn files_in_words(count: u64) -> String {
    format!("{count} file{}", if count == 1 { "" } else { "s" })
}
