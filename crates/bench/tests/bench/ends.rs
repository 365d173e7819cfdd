//! How an experiment ends before its end, who else may be at its results, and where what is printed goes.

use crate::support::{PROGRAM, Place, rows, skipped, text};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn until(what: &str, mut there: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !there() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// To the process alone, as a batch system does, not to its group as a terminal does.
fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: kill takes numbers only; the process is our own child.
    unsafe { libc::kill(child.id() as i32, signal) };
}

/// Its exit code; one that does not end is killed, so that a delay of an hour fails and does not hang.
fn ended(child: &mut Child) -> Option<i32> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn lines(results: &Path) -> usize {
    std::fs::read_to_string(results.join("rows.jsonl")).unwrap_or_default().lines().count()
}

fn small() -> Value {
    json!({ "offset": { "data_size": "64K", "request_size": "16K" } })
}

fn count(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

#[test]
fn a_signal_during_a_delay_ends_the_experiment_and_it_is_resumed() {
    let place = Place::new();
    for (name, experiment) in [
        ("repetitions", json!({ "base": { "workload": small(), "repetitions": 2, "delay": "1h" } })),
        ("runs", json!({ "replications": 2, "delay": "1h", "base": { "workload": small() } })),
    ] {
        let mut running = place.start(name, experiment).stderr(Stdio::piped()).spawn().unwrap();
        until("the first repetition", || lines(&place.path(name)) >= 2);
        signal(&running, libc::SIGTERM);
        assert_eq!(ended(&mut running), Some(128 + libc::SIGTERM), "{name}: the delay was waited for");
        let mut said = String::new();
        running.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("terrace bench resume"), "{said}");
    }
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn a_signal_to_the_coordinator_alone_ends_the_run_that_it_is_in() {
    let place = Place::new();
    let slow = json!({ "posix": { "added_delay": "1s" } });
    let base = json!({ "workers": 2, "operations": ["write"], "backend": slow, "workload": { "offset": { "data_size": "64M", "request_size": "16K" } } });
    let mut running = place.start("r", json!({ "base": base })).spawn().unwrap();
    until("the run's file", || !place.left().is_empty());
    signal(&running, libc::SIGTERM);
    assert_eq!(ended(&mut running), Some(128 + libc::SIGTERM));
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
    assert_eq!(rows(&place.path("r"))[0]["status"], "partial");
}

#[test]
fn tiers_end_at_a_signal_and_leave_nothing() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let place = Place::new();
        std::fs::create_dir(place.data()).unwrap();
        let tier = format!("disk={}", place.data().display());
        let mut running = Command::new(PROGRAM)
            .args(["tiers", "--size", "16MiB", "--replications", "100000", "--tier", &tier])
            .spawn()
            .unwrap();
        until("the tier's files", || !place.left().is_empty());
        signal(&running, number);
        assert_eq!(ended(&mut running), Some(128 + number));
        assert_eq!(count(&place.data()), 0);
    }
}

#[test]
fn tiers_without_room_are_refused_before_anything_is_written() {
    let place = Place::new();
    let mount = place.path("small");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
        .arg(&mount)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skipped("mounting a small file system needs root");
    }
    std::fs::create_dir(place.data()).unwrap();
    let (disk, tier) = (format!("disk={}", place.data().display()), format!("small={}", mount.display()));
    let measure = |size: &str, replications: &str| {
        Command::new(PROGRAM)
            .args(["tiers", "--size", size, "--replications", replications, "--tier", &disk, "--tier", &tier])
            .output()
            .unwrap()
    };
    // All of it would fit, but the file system would be full.
    let full = measure("15900KiB", "1");
    let fits = measure("4MiB", "2");
    let left = count(&mount) + count(&place.data());
    assert!(Command::new("umount").arg(&mount).status().unwrap().success());
    let said = text(&full.stderr);
    assert_eq!(full.status.code(), Some(2), "{said}");
    assert!(said.contains("tier `small`") && said.contains("free") && said.contains("--size"), "{said}");
    assert!(fits.status.success(), "{}", text(&fits.stderr));
    assert_eq!(left, 0);
}

#[test]
fn a_second_process_on_the_same_results_is_refused_by_name() {
    let place = Place::new();
    let experiment = json!({ "replications": 2, "delay": "1h", "base": { "workload": small() } });
    let mut running = place.start("r", experiment.clone()).spawn().unwrap();
    until("the first run", || lines(&place.path("r")) >= 2);
    let before = std::fs::read_to_string(place.path("r/rows.jsonl")).unwrap();
    let resume = Command::new(PROGRAM).args(["resume", "--quiet"]).arg(place.path("r")).output().unwrap();
    let again = place.run("r", experiment);
    for output in [resume, again] {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        let (directory, process) = (place.path("r").display().to_string(), running.id().to_string());
        assert!(said.contains(&directory) && said.contains(&process) && said.contains("hint:"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(place.path("r/rows.jsonl")).unwrap(), before);
    running.kill().unwrap();
    running.wait().unwrap();
    // The lock is gone with its process.
    let mut resumed = Command::new(PROGRAM).args(["resume", "--quiet"]).arg(place.path("r")).spawn().unwrap();
    until("the second replication", || lines(&place.path("r")) >= 4);
    signal(&resumed, libc::SIGTERM);
    ended(&mut resumed);
    assert_eq!(rows(&place.path("r")).len(), 4);
}

#[test]
fn output_that_nobody_takes_is_an_error_or_an_end_and_never_a_panic() {
    let place = Place::new();
    let experiment =
        place.experiment("e", json!({ "base": { "workload": small() }, "factors": { "workers": [1, 2] } }));
    let mut run = place.start("r", json!({ "base": { "workload": small() } }));
    let run_arguments: Vec<_> = run.get_args().filter(|word| *word != "--quiet").map(OsStr::to_owned).collect();
    assert!(run.output().unwrap().status.success());
    let results = place.path("r").into_os_string();
    let words = |words: &[&str]| words.iter().map(Into::into).collect::<Vec<std::ffi::OsString>>();
    let with = |first: &[&str], last: &[&std::ffi::OsString]| {
        let mut all = words(first);
        all.extend(last.iter().map(|word| (*word).clone()));
        all
    };
    let experiment = experiment.into_os_string();
    let tier = std::ffi::OsString::from("ram=/dev/shm");
    for arguments in [
        with(&["plan"], &[&experiment]),
        with(&["plan", "--json"], &[&experiment]),
        with(&["report", "--no-page"], &[&results]),
        with(&["compare"], &[&results, &results]),
        with(&["compare", "--json"], &[&results, &results]),
        words(&["from-ior", "--", "-b", "1m"]),
        words(&["schema"]),
        words(&["--help"]),
        with(&["tiers", "--size", "1MiB", "--replications", "1", "--tier"], &[&tier]),
        run_arguments,
    ] {
        let name = format!("{arguments:?}");
        let again = |stdout: Stdio, stderr: Stdio| {
            let _ = std::fs::remove_dir_all(place.path("r/../again"));
            let output = place.path("again").into_os_string();
            let arguments =
                arguments.iter().map(|word| if *word == results && name.contains("\"run\"") { &output } else { word });
            Command::new(PROGRAM)
                .args(arguments)
                .stdout(stdout)
                .stderr(stderr)
                .spawn()
                .unwrap()
                .wait_with_output()
                .unwrap()
        };
        let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = again(full().into(), Stdio::piped());
        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "{name} > /dev/full: {said}");
        let help = name.contains("--help");
        assert!(
            help || output.status.code() == Some(1) && said.contains("standard output"),
            "{name} > /dev/full: {said}"
        );
        let code = again(full().into(), full().into()).status.code();
        assert!(help || code == Some(1), "{name} > /dev/full 2>&1: {code:?}");
        // A pipe that nobody reads.
        let (reading, writing) = std::io::pipe().unwrap();
        drop(reading);
        let output = again(writing.into(), Stdio::piped());
        let said = text(&output.stderr);
        assert!(!said.contains("panicked"), "{name} | true: {said}");
        assert_eq!(output.status.code(), Some(0), "{name} | true: {said}");
        let (reading, writing) = std::io::pipe().unwrap();
        drop(reading);
        assert_eq!(
            again(writing.try_clone().unwrap().into(), writing.into()).status.code(),
            Some(0),
            "{name} 2>&1 | true"
        );
    }
}

#[test]
fn arguments_that_are_no_utf_8_are_taken_or_refused_and_never_a_panic() {
    let place = Place::new();
    let experiment = place.experiment("e", json!({ "base": { "workload": small() } }));
    let strange = |name: &str| place.directory.path().join(OsStr::from_bytes(&[name.as_bytes(), b"\xff"].concat()));
    let run = |directory: Option<&Path>, output: &Path| {
        let mut command = Command::new(PROGRAM);
        command.args(["run", "--quiet"]).arg(&experiment).arg("--output").arg(output);
        if let Some(directory) = directory {
            command.arg("--directory").arg(directory);
        }
        command.output().unwrap()
    };
    let taken = run(None, &strange("results"));
    assert_eq!(taken.status.code(), Some(0), "{}", text(&taken.stderr));
    let refused = run(Some(&strange("files")), &place.path("r"));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("UTF-8") && !said.contains("panicked"), "{said}");
    for arguments in
        [&["plan"][..], &["report"], &["resume"], &["from-ior", "--"], &["tiers", "--tier"], &["compare"], &[]]
    {
        let output = Command::new(PROGRAM).args(arguments).arg(OsStr::from_bytes(b"a\xff=b")).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code().is_some() && !said.contains("panicked"), "{arguments:?}: {said}");
    }
}

#[test]
fn after_a_resume_that_completed_nothing_is_shown_as_failed() {
    let place = Place::new();
    let base = json!({ "operations": ["write", "read"], "file_name": "below/f",
        "workload": { "offset": { "data_size": "64K", "request_size": "16K" } } });
    // A file is where the first attempt wants a directory.
    std::fs::create_dir_all(place.data()).unwrap();
    std::fs::write(place.data().join("below"), "in the way").unwrap();
    let failed = place.run("r", json!({ "base": base, "replications": 2 }));
    assert_eq!(failed.status.code(), Some(1));
    assert!(rows(&place.path("r")).iter().all(|row| row["status"] == "partial"));
    std::fs::remove_file(place.data().join("below")).unwrap();
    let resumed = Command::new(PROGRAM).arg("resume").arg(place.path("r")).output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let shown = text(&resumed.stdout);
    assert!(!shown.contains("failed"), "{shown}");
    let now = rows(&place.path("r"));
    assert_eq!(now.len(), 4);
    assert!(now.iter().all(|row| row["status"] == "ok"));
    let attempts = std::fs::read_to_string(place.path("r").join("attempts.jsonl")).unwrap();
    assert_eq!(attempts.lines().count(), 2, "what failed is kept aside");
}
