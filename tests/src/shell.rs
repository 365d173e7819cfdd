//! A bash that lives under `terrace run` (or natively) and does one command after the other, so that a test can act between them.

use crate::{Outcome, Workplace, wait_until};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Output, Stdio};
use terrace_core::control::{FileEntry, Request, Response};

pub struct Shell<'a> {
    place: &'a Workplace,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

const MARK: &str = "::done::";

impl Workplace {
    pub fn shell(&self) -> Shell<'_> {
        self.shell_with(&[])
    }

    /// With flags of `terrace run`.
    pub fn shell_with(&self, flags: &[&str]) -> Shell<'_> {
        let mut command = self.run_command(flags, &["bash"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut shell = Shell { place: self, child, stdin, stdout };
        assert_eq!(shell.says("exec 2>&1; echo ready"), "ready");
        shell
    }

    /// Makes files durable now, in whatever mode; gives what the agent answered.
    #[track_caller]
    pub fn flush(&self, names: &[&str]) -> Response {
        self.told(Request::Flush { paths: self.paths(names), all: true, end_of_run: false })
    }
    #[track_caller]
    pub fn evict(&self, names: &[&str]) -> Response {
        self.told(Request::Evict { paths: self.paths(names) })
    }
    #[track_caller]
    pub fn prefetch(&self, names: &[&str]) -> Response {
        self.told(Request::Prefetch { paths: self.paths(names) })
    }

    /// What the agent knows of one file; `None` when it is only durable and was never placed.
    #[track_caller]
    pub fn entry(&self, name: &str) -> Option<FileEntry> {
        match self.told(Request::List { prefix: None }) {
            Response::Files { files } => files.into_iter().find(|file| file.path == self.root().join(name)),
            other => panic!("List was answered by {other:?}"),
        }
    }

    /// `current`, `clean`, `moving` or `durable`.
    #[track_caller]
    pub fn state_of(&self, name: &str) -> String {
        self.entry(name).map_or("durable".into(), |entry| entry.state)
    }

    #[track_caller]
    fn told(&self, request: Request) -> Response {
        self.ask(&request).unwrap_or_else(|| panic!("no agent answers {request:?}\n{}", self.agent_log()))
    }

    fn paths(&self, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| self.root().join(name)).collect()
    }
}

impl Shell<'_> {
    /// Does commands and gives what they wrote (stdout and stderr), without the last newline.
    #[track_caller]
    pub fn says(&mut self, commands: &str) -> String {
        let stdin = self.stdin.as_mut().expect("the shell has not ended");
        writeln!(stdin, "{commands}\necho {MARK}$?").expect("the shell lives");
        let mut text = String::new();
        loop {
            let mut line = Vec::new();
            let count = self.stdout.read_until(b'\n', &mut line).unwrap();
            assert!(count > 0, "the shell ended in `{commands}`, having said: {text}");
            let line = String::from_utf8_lossy(&line);
            if let Some((before, _)) = line.split_once(MARK) {
                text.push_str(before);
                return text.trim_end_matches('\n').to_owned();
            }
            text.push_str(&line);
        }
    }

    /// Does commands that must succeed and say nothing.
    #[track_caller]
    pub fn does(&mut self, commands: &str) {
        let said = self.says(&format!("{{ {commands}\n}} && echo well"));
        assert_eq!(said, "well", "`{commands}`");
    }

    /// The process id of `terrace run`.
    pub fn run_pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Ends the shell with `code` and gives how `terrace run` ended.
    #[track_caller]
    pub fn exit(mut self, code: i32) -> i32 {
        let mut stdin = self.stdin.take().expect("the shell has not ended");
        let _ = writeln!(stdin, "exit {code}");
        drop(stdin);
        let ended = wait_until(120, || self.child.try_wait().unwrap().is_some());
        assert!(ended, "`terrace run` does not end\n{}", self.place.agent_log());
        Outcome::of(Output { status: self.child.wait().unwrap(), stdout: vec![], stderr: vec![] }).code
    }

    /// Ends the shell well and looks at the tree that it left.
    #[track_caller]
    pub fn ends_and_leaves(self) -> crate::Tree {
        let place: &Workplace = self.place;
        assert_eq!(self.exit(0), 0, "exit code of `terrace run`\n{}", place.agent_log());
        place.settled_tree()
    }
}

impl Drop for Shell<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
