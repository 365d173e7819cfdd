//! `terrace run` with real programs: exit codes, signals, the agent's life, the report.
//!
//! Needs the preload library beside the program: `cargo build --release -p terrace-intercept`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const TERRACE: &str = env!("CARGO_BIN_EXE_terrace");

struct Place {
    base: tempfile::TempDir,
    fast: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let library = Path::new(TERRACE).with_file_name("libterrace_intercept.so");
        assert!(
            library.exists(),
            "{} is not built: run `cargo build --release -p terrace-intercept`",
            library.display()
        );
        let fast = tempfile::Builder::new().prefix("cli-").tempdir_in("/dev/shm").unwrap();
        let place = Place { base: tempfile::tempdir_in("/var/tmp").unwrap(), fast };
        std::fs::create_dir(place.root()).unwrap();
        std::fs::create_dir(place.fast.path().join("ram")).unwrap();
        place
    }
    fn root(&self) -> PathBuf {
        self.base.path().join("root")
    }
    fn report_file(&self) -> PathBuf {
        self.base.path().join("report.json")
    }
    fn terrace(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TERRACE);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TERRACE_")) {
            command.env_remove(name);
        }
        command
            .env("TERRACE_STATE", self.base.path().join("state"))
            .env("TERRACE_RUNTIME", self.fast.path().join("run"));
        command.env("TERRACE_TIER", format!("ram={}:64MiB", self.fast.path().join("ram").display()));
        command.env("TERRACE_MOVER_SETTLE", "10ms").current_dir(self.root()).args(arguments);
        // Whoever runs the tests in the background (nohup, a shell's &) has them ignore signals, and a shell can't trap those.
        // SAFETY: signal(2) only, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                Ok(())
            })
        };
        command
    }
    /// Runs a shell script to its end, with a report.
    fn run(&self, flags: &[&str], script: &str) -> Said {
        let mut command = self.terrace(&["run", "--report", self.report_file().to_str().unwrap()]);
        let output = command.args(flags).args(["--", "sh", "-c", script]).output().unwrap();
        Said {
            status: output.status,
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
    /// Starts a shell script that says `ready` on its standard output.
    fn start(&self, flags: &[&str], script: &str) -> Child {
        let mut command = self.terrace(&["run"]);
        let mut child = command
            .args(flags)
            .args(["--", "sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        child
    }
    fn status(&self) -> Option<serde_json::Value> {
        let output = self.terrace(&["status", "--json"]).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }
    fn report(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.report_file()).unwrap()).unwrap()
    }
    fn is_durable(&self, name: &str, content: &str) -> bool {
        let path = self.root().join(name);
        path.symlink_metadata().is_ok_and(|m| m.is_file())
            && std::fs::read_to_string(path).is_ok_and(|text| text == content)
    }
}

impl Drop for Place {
    /// The agent goes by itself soon after the last run.
    fn drop(&mut self) {
        wait_until(|| self.status().is_none());
    }
}

#[derive(Debug)]
struct Said {
    status: ExitStatus,
    out: String,
    err: String,
}

fn wait_until(mut is_so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: kill has no memory effects; the process is one that this test started.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

#[test]
fn the_exit_code_and_output_are_the_programs_and_its_files_are_durable() {
    let place = Place::new();
    let said = place.run(&["--quiet"], "echo data > a; mkdir d; echo more > d/b; cat a; exit 7");
    assert_eq!((said.status.code(), said.out.as_str(), said.err.as_str()), (Some(7), "data\n", ""), "{said:?}");
    assert!(place.is_durable("a", "data\n") && place.is_durable("d/b", "more\n"));
    let report = place.report();
    assert_eq!((report["exit_code"].as_i64(), report["program_exit_code"].as_i64()), (Some(7), Some(7)));
    assert_eq!(report["counters"]["creates_tier"], 2, "{report:#}");
    assert_eq!(report["counters"]["flushed_bytes"], 10);
    assert_eq!(report["tiers"][0]["written_files"], 2);
    assert!(report["prediction"]["reason"].is_string());
    let documented = include_str!("../../../../docs/reference/report.md");
    for key in report.as_object().unwrap().keys() {
        assert!(documented.contains(&format!("`{key}`")), "docs/reference/report.md does not explain `{key}`");
    }
}

#[test]
fn a_program_that_a_signal_ends_gives_128_and_the_signal() {
    let place = Place::new();
    let said = place.run(&["--quiet"], "echo data > a; kill -SEGV $$");
    assert_eq!(said.status.code(), Some(128 + libc::SIGSEGV), "{said:?}");
    assert!(place.is_durable("a", "data\n"));
}

#[test]
fn sigterm_reaches_the_program_and_the_flush_follows() {
    let place = Place::new();
    let mut child = place.start(&["--quiet"], "echo data > a; echo ready; exec sleep 3");
    kill(child.id(), libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(place.is_durable("a", "data\n"));
}

#[test]
fn a_program_that_handles_a_signal_decides_how_it_ends() {
    let place = Place::new();
    for (signal, name) in [(libc::SIGUSR1, "USR1"), (libc::SIGHUP, "HUP"), (libc::SIGINT, "INT")] {
        let script = format!("trap 'echo got > {name}; exit 9' {name}; echo ready; while :; do sleep 0.05; done");
        let mut child = place.start(&["--quiet"], &script);
        kill(child.id(), signal);
        assert_eq!(child.wait().unwrap().code(), Some(9), "{name}");
        assert!(place.is_durable(name, "got\n"));
    }
}

#[test]
fn a_run_that_is_killed_still_gets_its_flush() {
    let place = Place::new();
    let mut child = place.start(&["--quiet"], "echo data > a; echo ready; exec sleep 1");
    kill(child.id(), libc::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(wait_until(|| place.is_durable("a", "data\n")));
}

#[test]
fn the_walltime_ends_the_program_and_all_that_it_started_in_time_for_the_flush() {
    let place = Place::new();
    let begun = Instant::now();
    let script = "echo data > a; (trap '' TERM; sleep 60) & trap '' TERM; sleep 60 & wait; sleep 60";
    let said = place.run(&["--walltime", "31s", "--walltime-margin", "30s"], script);
    assert!(begun.elapsed() < Duration::from_secs(15), "{said:?}");
    assert_eq!(said.status.code(), Some(137), "{said:?}");
    assert!(said.err.contains("walltime"), "{said:?}");
    assert!(place.is_durable("a", "data\n"));
}

#[test]
fn an_agent_that_dies_is_started_again_and_nothing_is_lost() {
    let place = Place::new();
    let script =
        "echo one > a; echo ready; while [ ! -e /proc/$0/x ] && [ ! -e go ]; do sleep 0.05; done; cat a; echo two > b";
    let child = place.start(&[], script);
    let first = place.status().unwrap()["agent_pid"].as_u64().unwrap();
    kill(first as u32, libc::SIGKILL);
    assert!(wait_until(|| place.status().is_some_and(|status| status["agent_pid"].as_u64() != Some(first))));
    std::fs::write(place.root().join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && err.contains("started again"), "{err}");
    assert!(place.is_durable("a", "one\n") && place.is_durable("b", "two\n"));
}

#[test]
fn two_runs_at_once_share_one_agent_and_see_each_others_files() {
    let place = Place::new();
    let script = |own: &str, other: &str| {
        format!(
            "echo {own} > {own}; n=0; while [ ! -e {other} ] && [ $n -lt 400 ]; do sleep 0.05; n=$((n+1)); done; cat {other} > {own}-saw"
        )
    };
    let runs: Vec<Child> = [("x", "y"), ("y", "x")]
        .map(|(own, other)| place.terrace(&["run", "--quiet", "--", "sh", "-c", &script(own, other)]).spawn().unwrap())
        .into();
    for mut run in runs {
        assert!(run.wait().unwrap().success());
    }
    assert!(place.is_durable("x-saw", "y\n") && place.is_durable("y-saw", "x\n"));
    let log =
        std::fs::read_dir(place.base.path().join("state")).unwrap().next().unwrap().unwrap().path().join("agent.log");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}

#[test]
fn a_run_is_told_which_of_its_settings_contradict_one_that_is_alive() {
    let place = Place::new();
    let mut first = place.start(&[], "echo ready; while [ ! -e go ]; do sleep 0.05; done");
    let said = place.run(&["--evict", "**"], "true");
    assert!(said.status.code() == Some(2) && said.err.contains("policy.evict ([], wanted: [\"**\"])"), "{said:?}");
    std::fs::write(place.root().join("go"), "").unwrap();
    assert!(first.wait().unwrap().success());
}

#[test]
fn the_modes_of_policy_are_kept_to() {
    let place = Place::new();
    let flags = ["--quiet", "--flush", "copy", "--flush", "move", "--evict", "move", "--evict", "remove"];
    let said = place.run(&flags, "for f in copy move remove keep; do echo $f > $f; done");
    assert!(said.status.success(), "{said:?}");
    assert!(place.is_durable("copy", "copy\n") && place.is_durable("move", "move\n"));
    assert!(place.root().join("remove").symlink_metadata().is_err());
    let kept = place.root().join("keep");
    assert!(kept.is_symlink() && std::fs::read_to_string(&kept).unwrap() == "keep\n");
    assert!(wait_until(|| place.status().is_none()));
    let list = place.terrace(&["ls", "--json"]).output().unwrap();
    let files: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap();
    assert_eq!((files[0]["state"].as_str(), files[0]["tier"].as_str()), (Some("current"), Some("ram")), "{files}");
    // A file that policy keeps is made durable when it is asked for by name.
    let flush = place.terrace(&["flush", "keep"]).output().unwrap();
    assert!(flush.status.success(), "{}", String::from_utf8_lossy(&flush.stderr));
    assert!(place.is_durable("keep", "keep\n"));
}

#[test]
fn a_file_is_flushed_evicted_and_brought_up_on_request() {
    let place = Place::new();
    std::fs::write(place.root().join("input"), "input\n").unwrap();
    let mut run = place
        .start(&["--quiet", "--settle", "1h"], "echo data > a; echo ready; while [ ! -e go ]; do sleep 0.05; done");
    let ask = |arguments: &[&str]| {
        let output = place.terrace(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(ask(&["ls"]).contains("current"));
    assert!(ask(&["explain", "a"]).contains("mode      copy"));
    assert!(ask(&["flush", "a"]).contains("flushed 1 files"));
    assert!(place.is_durable("a", "data\n"));
    assert!(ask(&["ls", "a"]).contains("clean"));
    assert!(ask(&["evict", "a"]).contains("evicted 1 files"));
    assert!(ask(&["prefetch", "input"]).contains("prefetched 1 files"));
    assert!(ask(&["ls", "input"]).contains("clean"));
    assert!(ask(&["status"]).contains("run 1"));
    std::fs::write(place.root().join("go"), "").unwrap();
    assert!(run.wait().unwrap().success());
}

#[test]
fn what_a_dead_run_and_agent_left_is_recovered() {
    let place = Place::new();
    let mut run = place.start(&["--quiet", "--settle", "1h"], "echo data > a; echo ready; exec sleep 3");
    let status = place.status().unwrap();
    kill(run.id(), libc::SIGKILL);
    run.wait().unwrap();
    kill(status["agent_pid"].as_u64().unwrap() as u32, libc::SIGKILL);
    assert!(wait_until(|| place.status().is_none()));
    assert!(place.root().join("a").is_symlink());
    let output = place.terrace(&["recover"]).output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && out.contains("1 files made durable"), "{output:?}");
    assert!(place.is_durable("a", "data\n"));
    assert!(!place.root().join(".terrace").exists());
}

#[test]
fn files_whose_tier_is_gone_are_named_as_lost() {
    let place = Place::new();
    let mut run = place.start(&["--quiet", "--settle", "1h"], "echo data > a; echo ready; exec sleep 3");
    let status = place.status().unwrap();
    kill(run.id(), libc::SIGKILL);
    run.wait().unwrap();
    kill(status["agent_pid"].as_u64().unwrap() as u32, libc::SIGKILL);
    assert!(wait_until(|| place.status().is_none()));
    // As after a reboot: memory is empty.
    for directory in ["ram", "run"] {
        std::fs::remove_dir_all(place.fast.path().join(directory)).unwrap();
        std::fs::create_dir(place.fast.path().join(directory)).unwrap();
    }
    let output = place.terrace(&["recover"]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && err.contains("/a"), "{output:?}");
}

#[test]
fn a_capacity_that_is_not_there_is_refused_beside_an_agent_too() {
    let place = Place::new();
    let mut child = place.start(&[], "echo ready; sleep 3");
    let tier = format!("ram={}:900TiB", place.fast.path().join("ram").display());
    let output = place.terrace(&["run", "--tier", &tier, "--", "touch", "ran"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!place.root().join("ran").exists());
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_report_says_what_the_run_gained_and_no_bandwidth_of_small_files() {
    let place = Place::new();
    let said = place.run(&[], "for i in 1 2 3 4 5 6 7 8; do echo $i >f$i; done");
    assert!(said.status.success(), "{said:?}");
    let gained = ["gained up to", "no gain from writes", "lost about"].iter().any(|word| said.err.contains(word));
    assert!(gained && said.err.contains("8 files ("), "{said:?}");
    assert!(!said.err.contains("B/s") && !said.err.contains("predicted"), "{said:?}");
    let root = said.err.lines().find(|line| line.trim_start().starts_with("root ")).expect("a row of the root");
    assert!(root.split_whitespace().any(|cell| cell == "8"), "what was flushed there is in its row: {root}");
}
