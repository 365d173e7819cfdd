//! What a command said and how it ended.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
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
    /// Starts a command and waits for its end; after `seconds` it is killed, which gives code 137.
    pub fn within(seconds: u64, command: &mut Command) -> Outcome {
        Outcome::of_child(seconds, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// As `within`, for a command that was started with pipes.
    pub fn of_child(seconds: u64, mut child: Child) -> Outcome {
        let collect = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = vec![];
                pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
                bytes
            })
        };
        let stdout = collect(child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let stderr = collect(child.stderr.take().map(|pipe| Box::new(pipe) as _));
        let ended = wait_until(seconds, || child.try_wait().unwrap().is_some());
        if !ended {
            eprintln!("killed after {seconds} s:\n{}", what_runs(child.id(), 0));
            child.kill().unwrap();
        }
        let status = child.wait().unwrap();
        if !ended {
            // Its children may hold the pipes.
            return Outcome {
                code: 137,
                stdout: String::new(),
                stderr: format!("killed after {seconds} s"),
                report: None,
            };
        }
        Outcome::of(Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() })
    }

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

/// A process and its children, each with the system call that it is in.
fn what_runs(pid: u32, depth: usize) -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let command = read("cmdline").replace('\0', " ");
    let line =
        format!("{}{pid} {}: {}; in {}", "  ".repeat(depth), read("wchan"), command.trim(), read("syscall").trim());
    let children = read(&format!("task/{pid}/children"));
    let below =
        children.split_whitespace().filter_map(|child| child.parse().ok()).map(|child| what_runs(child, depth + 1));
    std::iter::once(line).chain(below).collect::<Vec<_>>().join("\n")
}
