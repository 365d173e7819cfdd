//! What a command said and how it ended.

use std::os::unix::process::ExitStatusExt;
use std::process::Output;
use std::time::{Duration, Instant};

#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// As a shell gives it: 128 + signal for a program that a signal ended.
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    /// What `--report` wrote; `None` natively.
    pub report: Option<serde_json::Value>,
}

impl Outcome {
    pub fn of(output: Output) -> Outcome {
        Outcome {
            code: output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0)),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            report: None,
        }
    }

    /// The outcome itself, or the end of the test with all that was said.
    #[track_caller]
    pub fn ok(self) -> Outcome {
        self.ends_with(0)
    }

    #[track_caller]
    pub fn ends_with(self, code: i32) -> Outcome {
        assert_eq!(self.code, code, "exit code\n--- stdout\n{}\n--- stderr\n{}", self.stdout, self.stderr);
        self
    }
}

/// Looks every few milliseconds until `is_so`, for at most `seconds`; false if it never was.
pub fn wait_until(seconds: u64, mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
