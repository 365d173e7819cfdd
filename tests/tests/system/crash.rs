//! kill -9 of the agent at every step of the mover, alone or together with the program and `terrace run`; then `terrace
//! recover`. No acknowledged byte is lost, nothing half-copied is visible, nothing that was removed comes back.
//!
//! The program tells on a file outside the root what is true from then on: `has NAME SUM` after a file was closed,
//! `gone NAME` after it was removed. Each line is a promise that the tree must keep.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use terrace_tests::{Outcome, Tree, Wish, Workplace, wait_until};
use terrace_tier::step::{KILL_ENV, Step};

const POLICY: &str = "flush = [\"**\", \"!work/**\"]\nevict = [\"move/**\", \"work/**\"]\nprefetch = [\"in/**\"]";

/// Makes files of every mode, changes durable ones, outgrows the tier, renames and removes; a promise after each act.
const PROGRAM: &str = r#"
import hashlib, os, subprocess, time
promises = open(os.environ["SCRATCH"] + "/promises", "a", 1)
def has(name, data=None): promises.write("has %s %s\n" % (name, hashlib.sha256(data or open(name, "rb").read()).hexdigest()))
def pending(name): promises.write("pending %s\n" % name)
def put(name, data, mode="wb"):
    pending(name)
    with open(name, mode) as f: f.write(data)
    has(name, data if mode == "wb" else None)
def remove(name): pending(name); os.unlink(name); promises.write("gone %s\n" % name)
for d in ("copy", "move", "work", "deep/er"): os.makedirs(d, exist_ok=True)
for i in range(12):
    put(f"copy/f{i}", os.urandom(30000 + i)); put(f"move/f{i}", os.urandom(20000 + i)); put(f"work/f{i}", b"w" * 9000)
    if i % 4 == 1: remove(f"copy/f{i-1}")
    if i % 4 == 3: pending(f"copy/f{i}"); pending(f"deep/er/f{i}"); os.rename(f"copy/f{i}", f"deep/er/f{i}"); promises.write(f"gone copy/f{i}\n"); has(f"deep/er/f{i}")
time.sleep(0.5)
reader = open("copy/f5", "rb"); reader.read(1); subprocess.run(os.environ["EVICT"].split() + ["copy/f5"]); put("copy/f5", b"read meanwhile", "ab"); reader.seek(0)
if reader.read() != open("copy/f5", "rb").read(): raise SystemExit("who has copy/f5 open reads what it was")
put("copy/f1", b"appended", "ab"); put("old/a", b"replaced"); put("old/b", b"more", "ab"); put("in/p1", b"changed", "r+b"); os.truncate("old/c", 0); has("old/c")
pending("big"); parts = [os.urandom(100000) for i in range(60)]
with open("big", "wb") as f:
    for part in parts: f.write(part)
has("big", b"".join(parts)); pending("linked"); os.link("copy/f2", "linked"); has("linked"); os.rename("deep", "deeper")
for i in (3, 7, 11): promises.write(f"gone deep/er/f{i}\n"); has(f"deeper/er/f{i}")
for i in range(4): put(f"late{i}", os.urandom(50000)); remove(f"late{i}") if i % 2 else None
time.sleep(0.4); promises.write("end\n")
"#;

const PREPARE: &str = "mkdir old in; for f in old/a old/b old/c in/p1 in/p2; do head -c 40000 /dev/zero | tr '\\0' $(basename $f) > $f; done";

fn workplace() -> Workplace {
    let place = Wish::default().tier("ram", "1MiB").tier("ssd", "3MiB").policy(POLICY).settle("30ms");
    // What is dropped is dropped file by file: that has steps.
    let place = place.top("directories = \"off\"").build();
    place.native_sh(PREPARE).ok();
    std::fs::write(place.scratch().join("program.py"), PROGRAM).unwrap();
    place
}

/// The run, in a process group of its own, with its agent doomed at a step.
fn doomed(place: &Workplace, at: &str) -> Command {
    let script = place.scratch().join("program.py");
    // Not quiet: it tells when an agent died.
    let mut command = place.terrace("run");
    command.args(["--", "/usr/bin/python3", script.to_str().unwrap()]);
    let evict = place.terrace("evict");
    let words = std::iter::once(evict.get_program()).chain(evict.get_args()).map(|word| word.to_str().unwrap());
    command.env("EVICT", words.collect::<Vec<_>>().join(" "));
    command.env(KILL_ENV, at).process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Checks every promise against the tree. A name with a `pending` act may be in either state.
fn check_promises(place: &Workplace, tree: &Tree) -> Vec<String> {
    let mut last: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let text = std::fs::read_to_string(place.scratch().join("promises")).unwrap_or_default();
    for line in text.lines() {
        let mut words = line.split(' ').map(str::to_owned);
        let (kind, name) = (words.next().unwrap(), words.next().unwrap_or_default());
        last.insert(name, std::iter::once(kind).chain(words).collect());
    }
    let is_renamed = text.contains("has deeper/");
    let mut broken = vec![];
    for (name, promise) in &last {
        let is_work = name.starts_with("work/");
        match promise[0].as_str() {
            "has" if !is_work && tree.has(name) && sum(tree.bytes(name)) == promise[1] => {}
            "has" if !is_work && tree.has(name) => {
                broken.push(format!("{name} has other bytes ({} of them)", tree.bytes(name).len()));
            }
            "has" if !is_work && (is_renamed || !name.starts_with("deep/")) => broken.push(format!("{name} is lost")),
            "gone" if tree.has(name) => broken.push(format!("{name} came back")),
            _ => {}
        }
    }
    let known = |name: &str| last.contains_key(name) || name.starts_with("old") || name.starts_with("in");
    for (name, entry) in &tree.0 {
        let name = name.to_str().unwrap();
        if matches!(entry.kind, terrace_tests::Kind::File(_)) && !known(name) && !name.starts_with("deeper/") {
            broken.push(format!("{name} appeared from nowhere"));
        }
    }
    broken
}

fn sum(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut stdin, bytes).unwrap());
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
    })
}

/// `terrace recover`, then what is in the root.
fn recovered(place: &Workplace) -> Tree {
    let outcome = Outcome::within(120, &mut place.terrace("recover"));
    assert_eq!(outcome.code, 0, "terrace recover:\n{}\n{}\n{}", outcome.stdout, outcome.stderr, place.agent_log());
    place.settled_tree()
}

/// Does `test` for each step, some at a time, and gathers what they found wrong.
fn for_each_step(test: impl Fn(Step) -> Result<(), String> + Sync) {
    let (next, wrong) = (AtomicUsize::new(0), std::sync::Mutex::new(vec![]));
    let steps: Vec<Step> = Step::ALL.iter().copied().filter(|step| !step.is_between_nodes()).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(&step) = steps.get(next.fetch_add(1, Relaxed)) {
                    if let Err(message) = test(step) {
                        eprintln!("{step}: {message}");
                        wrong.lock().unwrap().push(format!("{step}: {message}"));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {} steps:\n{}", wrong.len(), steps.len(), wrong.join("\n"));
}

fn promises_kept(place: &Workplace) -> Result<(), String> {
    let broken = check_promises(place, &recovered(place));
    if broken.is_empty() {
        return Ok(());
    }
    let log = place.agent_log();
    let tail: Vec<&str> = log.lines().rev().take(12).collect();
    Err(format!("{}\n    {}", broken.join("; "), tail.into_iter().rev().collect::<Vec<_>>().join("\n    ")))
}

/// The agent's process id as the kernel tells it, 0 when none runs.
fn agent_pid(place: &Workplace) -> u32 {
    place.status().map_or(0, |status| status.agent_pid)
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn an_agent_killed_at_any_step_loses_nothing_and_the_program_goes_on() {
    for_each_step(|step| {
        let place = workplace();
        let mut run = doomed(&place, step.name()).spawn().unwrap();
        let ended = wait_until(120, || run.try_wait().unwrap().is_some());
        if !ended {
            // SAFETY: the group was made for this run.
            unsafe { libc::kill(-(run.id() as i32), libc::SIGKILL) };
            return Err("the run did not end".into());
        }
        let outcome = Outcome::of_child(120, run);
        let promises = std::fs::read_to_string(place.scratch().join("promises")).unwrap_or_default();
        if outcome.code != 0 || !promises.ends_with("end\n") {
            return Err(format!("the program did not end well: {outcome:?}\n{}", place.agent_log()));
        }
        if !outcome.stderr.contains("was started again") {
            return Err(format!("the step was never reached: {outcome:?}\n{}", place.agent_log()));
        }
        promises_kept(&place)
    });
}

#[test]
fn everything_killed_at_any_step_is_recovered() {
    for_each_step(|step| {
        let place = workplace();
        let mut run = doomed(&place, step.name()).spawn().unwrap();
        if !wait_until(30, || agent_pid(&place) != 0 || run.try_wait().unwrap().is_some()) {
            return Err("no agent started".into());
        }
        let agent = agent_pid(&place);
        wait_until(120, || !is_alive(agent) || run.try_wait().unwrap().is_some());
        // SAFETY: the group was made for this run; a new agent, if there is one by now, is killed too.
        unsafe { libc::kill(-(run.id() as i32), libc::SIGKILL) };
        let _ = run.wait();
        let second = agent_pid(&place);
        if second != 0 && second != agent {
            // SAFETY: this workplace's own agent.
            unsafe { libc::kill(second as i32, libc::SIGKILL) };
        }
        wait_until(10, || !place.is_locked());
        promises_kept(&place)
    });
}

/// What a run leaves for its end is flushed many files at a time: some are renamed, some copied, some neither.
const MANY_SMALL: &str = r#"
import hashlib, os
promises = open(os.environ["SCRATCH"] + "/promises", "a", 1)
for i in range(120):
    os.makedirs(f"many{i % 3}", exist_ok=True)
    data = os.urandom(500 + i)
    with open(f"many{i % 3}/f{i}", "wb") as f: f.write(data)
    os.chmod(f.name, 0o600 + i % 64)
    promises.write("has %s %s\n" % (f.name, hashlib.sha256(data).hexdigest()))
promises.write("end\n")
"#;

#[test]
fn an_agent_killed_among_many_small_files_leaves_each_whole_and_no_copy_behind() {
    let points = "FlushLeased:20 FlushCopied FlushSynced FlushCommitJournaled FlushRenamed FlushRenamed:9 FlushRenamed:40 \
                  FlushDirectorySynced FlushDone";
    for point in points.split_whitespace() {
        let place = Wish::default().tier("ram", "64MiB").settle("1h").build();
        std::fs::write(place.scratch().join("program.py"), MANY_SMALL).unwrap();
        let outcome = Outcome::within(120, &mut doomed(&place, point));
        assert_eq!(outcome.code, 0, "{point}: {outcome:?}\n{}", place.agent_log());
        assert!(outcome.stderr.contains("was started again"), "{point} was never reached: {outcome:?}");
        place.wait_for_the_agents_end();
        let tree = Tree::of(place.root());
        let broken = check_promises(&place, &tree);
        assert!(broken.is_empty(), "{point}: {broken:?}\n{}", place.agent_log());
        for i in 0..120 {
            let name = format!("many{}/f{i}", i % 3);
            let found = std::fs::symlink_metadata(place.root().join(&name)).unwrap();
            assert!(found.is_file(), "{point}: {name} is no file");
            assert_eq!(found.mode() & 0o7777, 0o600 + i % 64, "{point}: {name}");
        }
        assert!(!place.root().join(".terrace").exists(), "{point}: something is left in the root");
    }
}

/// A run flushes with so many more agents at its end. Then it says what is left, with an exit code of its own.
const FLUSHES_KILLED_MAX: u32 = 2;

#[test]
fn an_agent_killed_at_random_moments_loses_nothing() {
    for seed in 1..=6u64 {
        let place = workplace();
        let mut run = doomed(&place, "").env_remove(KILL_ENV).spawn().unwrap();
        let mut delay = seed * 37;
        let mut flushes_killed = 0;
        while run.try_wait().unwrap().is_none() {
            delay = delay * 1103515245 % 65537;
            std::thread::sleep(std::time::Duration::from_millis(30 + delay % 400));
            let pid = agent_pid(&place);
            if pid > 1 && delay % 3 != 0 && flushes_killed < FLUSHES_KILLED_MAX {
                let promises = std::fs::read_to_string(place.scratch().join("promises")).unwrap_or_default();
                flushes_killed += promises.ends_with("end\n") as u32;
                // SAFETY: this workplace's own agent.
                unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            }
        }
        let ended = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(0), "seed {seed}\n{said}\n{}", place.agent_log());
        let broken = check_promises(&place, &recovered(&place));
        assert!(broken.is_empty(), "seed {seed}: {broken:?}\n{}", place.agent_log());
    }
}

#[test]
fn recover_finds_nothing_to_do_after_a_good_end() {
    let place = workplace();
    place.sh("echo x > f").ok();
    place.wait_for_the_agents_end();
    let before = Tree::of(place.root());
    assert!(recovered(&place) == before);
}

#[test]
fn a_tier_that_is_lost_is_told_by_name() {
    let place = Wish::default().settle("60s").build();
    let mut shell = place.shell();
    shell.does("echo lost > only_in_memory; echo kept > flushed");
    place.flush(&["flushed"]);
    let agent = agent_pid(&place);
    // The run goes first, so that it starts no new agent, and the agent does not see that.
    for (pid, signal) in
        [(agent as i32, libc::SIGSTOP), (shell.run_pid(), libc::SIGKILL), (agent as i32, libc::SIGKILL)]
    {
        // SAFETY: this workplace's own processes.
        unsafe { libc::kill(pid, signal) };
    }
    wait_until(10, || !place.is_locked());
    // A restart of the node empties memory.
    std::fs::remove_dir_all(place.tier("ram")).unwrap();
    std::fs::create_dir(place.tier("ram")).unwrap();
    let _ = std::fs::remove_dir_all(place.runtime());
    let outcome = Outcome::within(120, &mut place.terrace("recover"));
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let said = outcome.stdout + &outcome.stderr;
    assert!(said.contains("only_in_memory") && !said.contains("flushed:"), "{said}");
    assert_eq!(std::fs::read(place.root().join("flushed")).unwrap(), b"kept\n");
    assert!(Path::new(place.root()).join("flushed").symlink_metadata().unwrap().is_file());
}
