//! Experiments in temporary directories, run by the program as a user would.
#![allow(dead_code, reason = "each test file uses its own part of it")]

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_terrace-bench");

pub struct Place {
    pub directory: tempfile::TempDir,
}

impl Place {
    /// On a disk file system, so that caches can be cold.
    pub fn new() -> Place {
        Place { directory: tempfile::Builder::new().prefix("tb-").tempdir_in("/var/tmp").unwrap() }
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
    /// Where an experiment's files are made.
    pub fn data(&self) -> PathBuf {
        self.path("data")
    }
    /// Writes `name.json` with this place's directory in it.
    pub fn experiment(&self, name: &str, mut experiment: Value) -> PathBuf {
        if experiment.get("directory").is_none() {
            experiment["directory"] = json!(self.data());
        }
        let path = self.path(&format!("{name}.json"));
        std::fs::write(&path, experiment.to_string()).unwrap();
        path
    }
    pub fn start(&self, name: &str, experiment: Value) -> Command {
        let path = self.experiment(name, experiment);
        let mut command = Command::new(PROGRAM);
        command.arg("run").arg(path).arg("--quiet").arg("--output").arg(self.path(name));
        command
    }
    pub fn run(&self, name: &str, experiment: Value) -> Output {
        self.start(name, experiment).output().unwrap()
    }
    /// Runs it, which must succeed, and returns the rows.
    pub fn rows(&self, name: &str, experiment: Value) -> Vec<Value> {
        let output = self.run(name, experiment);
        assert!(output.status.success(), "{}\n{}", text(&output.stderr), self.told(name));
        rows(&self.path(name))
    }
    fn told(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name).join("rows.jsonl")).unwrap_or_default()
    }
    /// Files left below the experiment's directory, but for the notes of who wrote what is kept.
    pub fn left(&self) -> Vec<PathBuf> {
        files(&self.data()).into_iter().filter(|path| !path.ends_with(".terrace-bench.jsonl")).collect()
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    let mut found = vec![];
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

pub fn rows(results: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(results.join("rows.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Arguments that must be refused; what was said.
pub fn refused(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// Tells that a test shows nothing here.
pub fn skipped(reason: &str) {
    use std::io::Write;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

pub fn has(program: &str) -> bool {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|directory| directory.join(program).is_file())
}
