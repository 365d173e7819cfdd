//! Which door a run gets: what chooses it, what is in its way, and what is said of it before a program runs.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use terrace_tests::{Outcome, Wish, Workplace, is_root_among_users, library, skipped, terrace_binary};

const LOOKS: &str = "echo x > f; cat f; test ! -L f; busybox test ! -L f; busybox sh -c 'echo y > g; cat g'";

/// `terrace run`, with all that it says.
fn aloud(place: &Workplace, flags: &[&str], command: &[&str]) -> Outcome {
    Outcome::within(100, place.terrace("run").env_remove("TERRACE_DOOR").args(flags).arg("--").args(command))
}

fn is_installed(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        skipped(&format!("{program} is not installed"));
    }
    there
}

/// A copy of a program, with an owner and a mode.
fn copy(place: &Workplace, of: &str, owner: u32, mode: u32) -> PathBuf {
    let copy = place.scratch().join("copy");
    assert!(Command::new("cp").arg(of).arg(&copy).status().unwrap().success());
    std::os::unix::fs::chown(&copy, Some(owner), None).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).unwrap();
    copy
}

#[test]
fn the_door_is_a_setting_and_flags_win() {
    let place = Wish::default().top("door = \"preload\"").build();
    let door = |flags: &[&str], environment: Option<&str>| {
        let report = place.scratch().join("report");
        let mut run = place.terrace("run");
        run.env_remove("TERRACE_DOOR").arg("--report").arg(&report).args(flags).args(["--", "true"]);
        let outcome = Outcome::within(100, run.envs(environment.map(|door| ("TERRACE_DOOR", door))));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let report: serde_json::Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
        report["door"].as_str().unwrap().to_owned()
    };
    assert_eq!(door(&[], None), "preload");
    assert_eq!(door(&[], Some("supervise")), "supervise");
    assert_eq!(door(&["--door", "both"], Some("supervise")), "both");
    assert_eq!(door(&["--supervise-only"], Some("both")), "supervise");
    let config = Outcome::within(20, place.terrace("config").env("TERRACE_DOOR", "supervise"));
    let line = config.stdout.lines().find(|line| line.starts_with("door ")).unwrap_or_default();
    assert!(line.contains("supervise") && line.contains("TERRACE_DOOR"), "{config:?}");
    let wrong = aloud(&place, &["--door", "window"], &["true"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("`window` is none of both, preload, supervise"), "{wrong:?}");
}

#[test]
fn a_library_of_another_version_is_refused_by_name() {
    let place = Workplace::new();
    let mut bytes = std::fs::read(library("libterrace_intercept.so")).unwrap();
    let version = terrace_index::VERSION.as_bytes();
    let at = bytes.windows(version.len()).position(|found| found == version).expect("the library tells its version");
    bytes[at] = b'9';
    let other = place.scratch().join("libother.so");
    std::fs::write(&other, bytes).unwrap();
    for door in ["both", "preload", "supervise"] {
        let outcome = aloud(&place, &["--door", door, "--library", other.to_str().unwrap()], &["touch", "f"]);
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains("libother.so is of another version than this program: 9"), "{outcome:?}");
        assert!(outcome.stderr.contains("hint: build or install both together"), "{outcome:?}");
    }
    assert!(!place.root().join("f").exists());
    let other = place.scratch().join("text.so");
    std::fs::write(&other, "no library").unwrap();
    let outcome = aloud(&place, &["--library", other.to_str().unwrap()], &["true"]);
    assert!(outcome.code == 2 && outcome.stderr.contains("text.so is of another version"), "{outcome:?}");
}

#[test]
fn a_library_that_is_replaced_during_a_run_is_not_taken_by_its_next_supervisor() {
    let place = Workplace::new();
    let ours = place.scratch().join("libours.so");
    std::fs::copy(library("libterrace_intercept.so"), &ours).unwrap();
    // Installed in its place, as a package manager does; then the supervisor is killed.
    let script = format!(
        "echo no library > {0}.new; mv {0}.new {0}; for p in /proc/[0-9]*; do \
         if grep -zqx supervise $p/cmdline 2>/dev/null && grep -zq '{1}' $p/cmdline; then kill -9 ${{p#/proc/}}; fi; done; {2}",
        ours.display(),
        place.runtime().display(),
        LOOKS
    );
    let outcome = aloud(&place, &["--library", ours.to_str().unwrap(), "--supervise-only"], &["sh", "-ec", &script]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "x\ny\n"), "{outcome:?}");
}

#[test]
fn a_program_under_strace_or_a_debugger_is_served() {
    let place = Workplace::new();
    let gdb = ["gdb", "-q", "-batch", "-ex", "run", "-ex", "quit $_exitcode", "--args", "sh", "-ec", LOOKS];
    for command in [&["strace", "-f", "-o", "/dev/null", "sh", "-ec", LOOKS][..], &gdb[..]] {
        if !is_installed(command[0]) {
            continue;
        }
        for door in ["both", "supervise"] {
            let outcome = aloud(&place, &["--door", door], command);
            assert_eq!(outcome.code, 0, "{door}: {outcome:?}");
            assert!(["x\n", "y\n"].iter().all(|said| outcome.stdout.contains(said)), "{door}: {outcome:?}");
        }
    }
}

#[test]
fn a_run_under_strace_is_served() {
    if !is_installed("strace") {
        return;
    }
    let place = Workplace::new();
    let mut run = Command::new("strace");
    run.args(["-f", "-o", "/dev/null"]).arg(terrace_binary()).args(["run", "--config"]).arg(place.config());
    run.current_dir(place.root()).args(["--", "sh", "-ec", LOOKS]);
    let outcome = Outcome::within(100, &mut run);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "x\ny\n"), "{outcome:?}");
}

#[test]
fn a_run_under_another_supervisor_says_so_and_uses_the_library_alone() {
    let place = Workplace::new();
    let source = include_str!("supervise/listener.c");
    let listener = terrace_tests::compile(&place.scratch(), "listener", source);
    let run = |flags: &[&str]| {
        let mut run = Command::new(&listener);
        run.arg(terrace_binary()).args(["run", "--config"]).arg(place.config()).args(flags).current_dir(place.root());
        Outcome::within(100, run.args(["--", "sh", "-ec", "echo x > f; cat f; test ! -L f"]))
    };
    let outcome = run(&[]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "x\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("this process is under another supervisor"), "{outcome:?}");
    let refused = run(&["--supervise-only"]);
    assert!(refused.code == 2 && refused.stderr.contains("can't be supervised here"), "{refused:?}");
}

#[test]
fn a_program_that_gains_rights_is_told_of_by_name_before_it_runs() {
    if !is_root_among_users() {
        return;
    }
    for (user, code, what) in
        [(0, 0, "runs as another user: what it creates is durable at once"), (1234, 2, "a program gains no rights")]
    {
        let place = match user {
            0 => Workplace::new(),
            user => Wish::default().user(user).build(),
        };
        let setuid = copy(&place, "/bin/true", 1, 0o4755);
        let outcome = aloud(&place, &[], &[setuid.to_str().unwrap()]);
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(outcome.stderr.contains("copy") && outcome.stderr.contains(what), "{outcome:?}");
    }
}

#[test]
fn a_program_that_nobody_may_look_into_is_warned_of_by_name_before_it_runs() {
    if !is_root_among_users() {
        return;
    }
    let place = Wish::default().user(1234).build();
    let unreadable = copy(&place, "/bin/true", 0, 0o711);
    let outcome = aloud(&place, &[], &[unreadable.to_str().unwrap()]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stderr.contains("copy") && outcome.stderr.contains("no other process look into"), "{outcome:?}");
    assert!(outcome.stderr.contains("make it readable"), "{outcome:?}");
    let refused = aloud(&place, &["--supervise-only"], &[unreadable.to_str().unwrap()]);
    assert!(refused.code == 2 && refused.stderr.contains("copy"), "{refused:?}");
}
