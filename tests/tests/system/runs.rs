//! What `terrace run` does around a program: agents, signals, exit codes, modes, lists, reports, wall time.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};
use terrace_tests::{Outcome, Wish, Workplace, is_root, is_root_among_users, wait_until};

#[test]
fn concurrent_runs_on_one_root_agree_and_share_one_agent() {
    let place = Workplace::new();
    let (mut first, mut second) = (place.shell(), place.shell());
    let status = place.status().expect("an agent");
    assert_eq!(status.runs.len(), 2, "{status:?}");
    first.does("echo one > f; mkdir d; echo g > d/g");
    assert_eq!(second.says("cat f; stat -c '%F %s' f; cat d/g"), "one\nregular file 4\ng");
    assert_eq!(first.says("stat -c %i f"), second.says("stat -c %i f"));
    second.does("echo two >> f; mv d e; rm e/g; echo new > e/h");
    assert_eq!(first.says("cat f e/h; ls e"), "one\ntwo\nnew\nh");
    assert_eq!(first.exit(0), 0);
    second.does("echo three >> f; [ $(wc -l < f) = 3 ]");
    assert_eq!(place.status().unwrap().agent_pid, status.agent_pid, "the agent stays while a run is there");
    let tree = second.ends_and_leaves();
    assert_eq!((tree.bytes("f"), tree.bytes("e/h"), tree.0.len()), (&b"one\ntwo\nthree\n"[..], &b"new\n"[..], 3));
}

#[test]
fn two_runs_that_start_at_once_start_one_agent() {
    let place = Workplace::new();
    let running: Vec<_> = (0..4).map(|i| place.start(&format!("echo {i} > f{i}; sleep 1; cat f*"))).collect();
    assert!(wait_until(20, || place.status().is_some_and(|status| status.runs.len() == 4)), "{:?}", place.status());
    for run in running {
        assert_eq!(Outcome::of_child(120, run).ok().stdout, "0\n1\n2\n3\n");
    }
    assert_eq!(place.settled_tree().0.len(), 4);
}

/// What agents of several users make beside each other is the first one's.
#[test]
fn a_run_of_root_does_with_directories_that_another_users_agent_has_made() {
    if !is_root_among_users() {
        return;
    }
    let place = Workplace::new();
    for name in [".terrace", ".terrace/nodes"] {
        let directory = place.root().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, Some(12_345), None).unwrap();
    }
    place.sh("echo a >f; echo b >>f").ok();
    assert_eq!(std::fs::read_to_string(place.root().join("f")).unwrap(), "a\nb\n");
}

#[test]
fn an_agent_that_is_killed_is_started_again() {
    let place = Workplace::new();
    let mut shell = place.shell();
    shell.does("for i in $(seq 50); do echo $i > before$i; done; exec 7> open; echo a >&7");
    let first = place.status().unwrap().agent_pid;
    // SAFETY: this workplace's own agent.
    unsafe { libc::kill(first as i32, libc::SIGKILL) };
    shell.does("for i in $(seq 50); do echo $i > after$i; done; rm before7; mv before8 renamed; echo b >&7; head -c 7000000 /dev/zero > big; echo x >> before9");
    let restarted = wait_until(20, || place.status().is_some_and(|status| status.agent_pid != first));
    assert!(restarted, "no new agent\n{}", place.agent_log());
    shell.does("exec 7>&-; [ $(cat before* after* | wc -l) = 99 ]; [ ! -e before7 ]");
    let tree = shell.ends_and_leaves();
    assert_eq!(tree.0.len(), 101, "{:?}", tree.0.keys());
    assert_eq!(
        (tree.bytes("renamed"), tree.bytes("before9"), tree.bytes("open")),
        (&b"8\n"[..], &b"9\nx\n"[..], &b"a\nb\n"[..])
    );
}

#[test]
fn the_agent_ends_with_the_last_run() {
    let place = Workplace::new();
    place.sh("echo x > f").ok();
    place.settled_tree();
    for gone in [place.runtime().join("control"), place.runtime().join("index"), place.root().join(".terrace")] {
        assert!(!gone.exists(), "{} is left", gone.display());
    }
}

#[test]
fn a_root_that_was_removed_and_made_again_is_served_anew() {
    let place = Workplace::new();
    for round in 0..3 {
        place.sh(&format!("echo {round} > f; cat f")).ok();
        std::fs::remove_dir_all(place.root()).unwrap();
        std::fs::create_dir(place.root()).unwrap();
    }
    place.sh("echo last > g").ok();
    place.settled_tree();
    assert_eq!(std::fs::read_to_string(place.root().join("g")).unwrap(), "last\n");
}

/// Where the root is not, no name can be looked up, and none is missing.
#[test]
fn a_root_that_was_renamed_during_a_run_loses_nothing() {
    let place = Wish::default().settle("60s").build();
    let running = place.start("echo precious >f; while [ ! -e $SCRATCH/end ]; do sleep 0.05; done");
    assert!(wait_until(20, || std::fs::read(place.root().join("f")).is_ok_and(|text| text == b"precious\n")));
    let away = place.root().with_file_name("away");
    std::fs::rename(place.root(), &away).unwrap();
    std::fs::write(place.scratch().join("end"), "").unwrap();
    let outcome = Outcome::of_child(120, running);
    assert_eq!(outcome.code, 74, "{outcome:?}");
    for word in ["could not be made durable", "/f: ", "put it back"] {
        assert!(outcome.stderr.contains(word), "`{word}` is not said: {}", outcome.stderr);
    }
    assert!(away.join("f").is_symlink() && std::fs::read(away.join("f")).unwrap() == b"precious\n");
    std::fs::rename(&away, place.root()).unwrap();
    assert_eq!(place.settled_tree().bytes("f"), b"precious\n");
    assert!(wait_until(20, || !place.root().join(".terrace").exists()));
}

#[test]
fn an_agent_that_cannot_begin_says_why_and_leaves_nothing() {
    // Root may raise its limits.
    let place = if is_root() { Wish::default().user(65534) } else { Wish::default() }.build();
    let binary = terrace_tests::terrace_binary();
    // The fewest stop the command, more stop its agent, at other places.
    for limit in ["-n 20", "-n 12", "-n 11", "-n 8", "-n 7", "-n 5", "-v 60000", "-f 100"] {
        let run = format!(
            "ulimit {limit}; exec {} run -q --config {} -- sh -c 'echo never >f'",
            binary.display(),
            place.config().display()
        );
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &run]).current_dir(place.root());
        if is_root() {
            command.uid(65534).gid(65534);
        }
        let outcome = Outcome::within(60, &mut command);
        assert!(!matches!(outcome.code, 0 | 137) && outcome.stderr.contains("error: "), "{limit}: {outcome:?}");
        assert!(!place.root().join("f").exists(), "{limit}: the program ran");
        assert_clean(&place);
        assert!(!place.runtime().exists(), "{limit}: {} is left", place.runtime().display());
    }
    place.sh("echo x >f").ok();
    assert_eq!(place.settled_tree().bytes("f"), b"x\n");
}

#[test]
fn exit_codes_are_the_programs_own() {
    let place = Workplace::new();
    place.sh("exit 0").ends_with(0);
    place.sh("exit 3").ends_with(3);
    place.sh("kill -9 $$").ends_with(128 + 9);
    place.sh("kill -TERM $$").ends_with(128 + 15);
    place.run(&["no-such-program"]).ends_with(127);
    place.native_sh("echo text > not_executable").ok();
    place.run(&["./not_executable"]).ends_with(126);
    place.native_sh("mkfifo -m 755 pipe").ok();
    place.run(&["./pipe"]).ends_with(126);
}

#[test]
fn signals_are_forwarded_and_a_terminated_run_is_flushed() {
    let place = Wish::default().settle("60s").build();
    let running = place.start("trap 'echo usr1 >> log' USR1; trap 'echo term >> log; exit 5' TERM; echo ready > log; while :; do sleep 0.05; done");
    let ready = wait_until(20, || place.root().join("log").exists());
    assert!(ready);
    let signal = |signal| {
        // SAFETY: our own child.
        unsafe { libc::kill(running.id() as i32, signal) };
        std::thread::sleep(Duration::from_millis(300));
    };
    signal(libc::SIGUSR1);
    signal(libc::SIGTERM);
    let outcome = Outcome::of_child(120, running);
    assert!(outcome.code == 5 || outcome.code == 143, "{outcome:?}");
    assert_eq!(place.settled_tree().bytes("log"), b"ready\nusr1\nterm\n");
}

#[test]
fn a_program_that_is_killed_still_gets_its_flush() {
    let place = Wish::default().settle("60s").build();
    let running = place.start("echo $$ > $SCRATCH/pid; echo kept > f; exec 7> open; echo held >&7; sleep 100");
    assert!(wait_until(20, || place.root().join("open").exists()));
    std::thread::sleep(Duration::from_millis(100));
    let pid: i32 = std::fs::read_to_string(place.scratch().join("pid")).unwrap().trim().parse().unwrap();
    // SAFETY: the program of this test.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    Outcome::of_child(120, running).ends_with(137);
    let tree = place.settled_tree();
    assert_eq!((tree.bytes("f"), tree.bytes("open")), (&b"kept\n"[..], &b"held\n"[..]));
}

#[test]
fn a_killed_run_still_gets_its_flush() {
    let place = Wish::default().settle("60s").build();
    let mut running = place.start("echo $$ > $SCRATCH/pid; echo kept > f; sleep 2");
    assert!(wait_until(20, || place.root().join("f").exists()));
    std::thread::sleep(Duration::from_millis(100));
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(place.settled_tree().bytes("f"), b"kept\n");
}

#[test]
fn the_wall_time_leaves_room_for_the_flush() {
    let place = Wish::default().settle("60s").build();
    let start = Instant::now();
    let outcome =
        place.run_with(&["--walltime", "4s", "--walltime-margin", "2s"], &["sh", "-c", "echo x > f; exec sleep 60"]);
    assert!((1..6).contains(&start.elapsed().as_secs()), "it took {:?}", start.elapsed());
    outcome.ends_with(143);
    assert_eq!(place.settled_tree().bytes("f"), b"x\n");
}

#[test]
fn each_mode_does_what_it_says() {
    let policy = "flush = [\"copy/**\", \"move/**\"]\nevict = [\"move/**\", \"remove/**\"]";
    let place = Wish::default().tier("ram", "16MiB").policy(policy).top("directories = \"off\"").build();
    let mut shell = place.shell();
    shell.does("mkdir copy move remove keep; for d in copy move remove keep; do echo $d > $d/f; done");
    let is = |name: &str, state: &str| wait_until(10, || place.state_of(name) == state);
    assert!(is("copy/f", "clean"), "{:?}", place.entry("copy/f"));
    assert!(is("move/f", "durable"), "{:?}", place.entry("move/f"));
    assert_eq!((place.state_of("remove/f"), place.state_of("keep/f")), ("current".into(), "current".into()));
    assert_eq!(shell.says("cat */f"), "copy\nkeep\nmove\nremove");
    assert_eq!(shell.exit(0), 0);
    place.wait_for_the_agents_end();
    // `keep` stays in the tier: another run finds it, and it can still be made durable by hand.
    assert!(std::fs::symlink_metadata(place.root().join("keep/f")).unwrap().is_symlink());
    assert!(!place.root().join("remove/f").exists() && !place.root().join("remove/f").is_symlink());
    let mut shell = place.shell();
    assert_eq!(shell.says("cat */f; stat -c %F keep/f"), "copy\nkeep\nmove\nregular file");
    place.flush(&["keep/f"]);
    assert_eq!(shell.ends_and_leaves().bytes("keep/f"), b"keep\n");
}

#[test]
fn rename_gives_a_file_the_mode_of_its_new_name() {
    let place = Wish::default().policy("flush = [\"out/**\"]\nevict = [\"work/**\"]").build();
    let mut shell = place.shell();
    shell.does("mkdir out work; echo result > work/f.tmp; mv work/f.tmp out/f; echo dropped > work/g; mv out/none work 2>/dev/null || true");
    assert!(wait_until(10, || place.state_of("out/f") == "clean"));
    let tree = shell.ends_and_leaves();
    assert!(tree.has("out/f") && !tree.has("work/g"), "{:?}", tree.0.keys());
}

#[test]
fn prefetch_lists_bring_files_up_before_use() {
    let place = Wish::default().tier("ram", "8MiB").policy("prefetch = [\"in/*.dat\"]").build();
    place
        .native_sh(
            "mkdir in; for i in 1 2 3; do head -c 400000 /dev/zero | tr '\\0' $i > in/$i.dat; done; echo no > in/other",
        )
        .ok();
    let mut shell = place.shell();
    let up = wait_until(10, || (1..4).all(|i| place.state_of(&format!("in/{i}.dat")) == "clean"));
    assert!(up, "{:?}", place.status());
    assert_eq!(place.state_of("in/other"), "durable");
    shell.does("[ $(cat in/*.dat | wc -c) = 1200000 ]; [ \"$(head -c 3 in/2.dat)\" = 222 ]; echo changed > in/3.dat; printf X | dd of=in/1.dat conv=notrunc 2> /dev/null; [ \"$(head -c 2 in/1.dat)\" = X1 ]; [ \"$(cat in/3.dat)\" = changed ]");
    let status = place.status().unwrap();
    assert!(status.counters.prefetched_files >= 3 && status.counters.opens_tier > 0, "{:?}", status.counters);
    let tree = shell.ends_and_leaves();
    assert_eq!(
        (tree.bytes("in/3.dat"), tree.bytes("in/1.dat").len(), &tree.bytes("in/1.dat")[..2]),
        (&b"changed\n"[..], 400_000, &b"X1"[..])
    );
}

#[test]
fn a_file_changed_behind_the_replica_is_read_as_it_is() {
    let place = Workplace::new();
    place.native_sh("head -c 100000 /dev/zero > f").ok();
    let mut shell = place.shell();
    place.prefetch(&["f"]);
    std::fs::write(place.root().join("f"), "changed outside").unwrap();
    assert_eq!(shell.says("cat f"), "changed outside");
    shell.ends_and_leaves();
}

#[test]
fn sea_settings_and_lists_are_accepted() {
    let place = Workplace::new();
    let (mount, fast) = (place.root().display(), place.tier("ram"));
    let ini = place.scratch().join("sea.ini");
    let text = format!(
        "[Sea]\n\tmount_dir = {mount} ;\n\tn_levels = 2 ;\n\tsource_0 = {} ;\n\tsource_1 = {mount} ;\n\tn_threads = 1 ;\n\tmax_fs = 1048576 ;\n\tlog_level = 0 ;\n",
        fast.display()
    );
    std::fs::write(&ini, text).unwrap();
    std::fs::write(place.scratch().join(".sea_flushlist"), ".*\\.out\n").unwrap();
    std::fs::write(place.scratch().join(".sea_evictlist"), ".*\\.tmp\n").unwrap();
    std::fs::write(place.scratch().join(".sea_prefetchlist"), "").unwrap();
    let outcome = Outcome::of(
        std::process::Command::new(terrace_tests::terrace_binary())
            .current_dir(place.root())
            .args(["run", "--sea", ini.to_str().unwrap(), "--", "sh", "-c", "echo a > a.out; echo b > b.tmp"])
            .output()
            .unwrap(),
    );
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    let settled = wait_until(20, || std::fs::read(place.root().join("a.out")).is_ok_and(|bytes| bytes == b"a\n"));
    assert!(settled && !place.root().join("b.tmp").is_symlink(), "flushed what the flush list names, dropped the rest");
    assert!(wait_until(20, || !place.root().join(".terrace").exists()));
}

#[test]
fn the_report_says_what_happened() {
    let place = Wish::default().tier("ram", "8MiB").build();
    let outcome = place.sh("for i in $(seq 10); do head -c 100000 /dev/zero > f$i; done; cat f1 f2 > /dev/null").ok();
    let report = outcome.report.expect("a JSON report");
    assert!(report["counters"]["creates_tier"].as_u64() >= Some(10), "{report:#}");
    assert!(report["counters"]["flushed_bytes"].as_u64() >= Some(1_000_000), "{report:#}");
    let tiers = report["tiers"].as_array().expect("tiers");
    assert!(tiers.iter().any(|tier| tier["name"] == "ram" && tier["written_files"].as_u64() >= Some(10)), "{report:#}");
    let said = Outcome::of(place.terrace("run").args(["--", "sh", "-c", "echo x > g"]).output().unwrap()).ok();
    assert!(said.stderr.contains("ram"), "the report names the tier:\n{}", said.stderr);
    assert_eq!(said.stdout, "", "the program's own stdout is left alone");
}

#[test]
fn a_report_that_is_a_page_shows_the_run_over_time() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let page = place.scratch().join("run.html");
    let flags = ["--report", page.to_str().unwrap()];
    let script = "for i in 1 2 3 4; do head -c 2000000 /dev/zero >f$i; sleep 0.3; done # <b>";
    Outcome::within(60, &mut place.run_command(&flags, &["sh", "-c", script])).ok();
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<svg").count(), 2, "{html}");
    for said in ["written to tiers", "flushed", "the wait for the final flush", "the program ran for"] {
        assert!(html.contains(said), "{said}: {html}");
    }
    assert!(
        !html.contains("<b>") && !html.contains("src=") && !html.contains("href="),
        "it needs nothing else: {html}"
    );
    let json = html.split_once("id=\"report\">").unwrap().1.split_once("</script>").unwrap().0;
    let report: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(report["counters"]["creates_tier"], 4, "{report:#}");
    // A program that fails, and one that is too short to be seen twice.
    let outcome = Outcome::within(60, &mut place.run_command(&flags, &["false"])).ends_with(1);
    assert!(std::fs::read_to_string(&page).unwrap().contains("exited with code 1"), "{outcome:?}");
    let refused = place.run_command(&["--report", "none/run.html"], &["touch", "ran"]).output().unwrap();
    assert!(refused.status.code() == Some(2) && !place.root().join("ran").exists());
}

#[test]
fn the_report_counts_what_was_removed_at_the_end() {
    let place = Wish::default().tier("ram", "8MiB").policy("flush = [\"*.out\"]\nevict = [\"*.tmp\"]").build();
    let outcome = place
        .sh("for i in 1 2 3 4 5 6 7 8; do echo $i > f$i.out; done; for i in 1 2 3 4; do echo $i > f$i.tmp; done")
        .ok();
    let report = outcome.report.expect("a JSON report");
    assert_eq!(report["counters"]["removed_files"], 4, "{report:#}");
    assert_eq!(report["tiers"][0]["written_files"], 12, "{report:#}");
    assert_eq!(report["tiers"][0]["written_bytes"], 24, "{report:#}");
}

#[test]
fn a_dry_run_says_what_policy_would_do_and_does_nothing() {
    let place = Wish::default().policy("flush = [\"out/**\"]\nevict = [\"work/**\"]\nprefetch = [\"in/**\"]").build();
    place.native_sh("mkdir in out work; echo 1 > in/a; echo 2 > out/b; echo 3 > work/c; echo 4 > d").ok();
    let outcome =
        Outcome::of(place.terrace("run").args(["--dry-run", "--", "sh", "-c", "echo no > never"]).output().unwrap())
            .ok();
    for (name, mode) in [("out/b", "copy"), ("work/c", "remove"), ("d", "keep")] {
        assert!(
            outcome.stdout.lines().any(|line| line.contains(name) && line.contains(mode)),
            "{name}: {}",
            outcome.stdout
        );
    }
    assert!(!place.root().join("never").exists() && !place.root().join(".terrace").exists());
}

#[test]
fn zero_configuration_accelerates_the_current_directory() {
    let place = Workplace::new();
    let terrace = |arguments: &[&str]| {
        let mut command = std::process::Command::new(terrace_tests::terrace_binary());
        command.current_dir(place.root()).args(arguments);
        Outcome::of(command.output().unwrap())
    };
    let outcome = terrace(&[
        "run",
        "--",
        "sh",
        "-c",
        "echo zero > f; stat -c %F f; find /dev/shm/terrace-$(id -u)-*/ -maxdepth 1 -type f | wc -l",
    ]);
    assert!(
        outcome.clone().ok().stdout.starts_with("regular file\n") && !outcome.stdout.ends_with("\n0\n"),
        "{outcome:?}"
    );
    assert!(wait_until(20, || std::fs::read(place.root().join("f")).is_ok_and(|bytes| bytes == b"zero\n")));
    assert!(wait_until(20, || !place.root().join(".terrace").exists()));
    // SAFETY: geteuid has no preconditions.
    let state =
        format!("/var/tmp/terrace-{}/{}", unsafe { libc::geteuid() }, terrace_core::settings::root_id(place.root()));
    let _ = std::fs::remove_dir_all(state);
}

#[test]
fn programs_in_a_scrubbed_environment_are_still_accelerated() {
    let place = Wish::default().settle("60s").build();
    let mut shell = place.shell();
    shell.does("env -i /bin/sh -c 'echo a > f'; env -i PATH=/usr/bin:/bin sh -c '/usr/bin/python3 -c \"open(\\\"g\\\", \\\"w\\\").write(\\\"b\\\")\"'");
    assert_eq!(["f", "g"].map(|name| place.state_of(name)), ["current", "current"]);
    assert_eq!(shell.says("env -i stat -c %F f g"), "regular file\nregular file");
    shell.ends_and_leaves();
}

#[test]
fn outside_the_root_nothing_changes() {
    let place = Workplace::new();
    let outcome = place.sh("cd $SCRATCH; echo x > f; ln -s f l; readlink l; stat -c '%F %h' l f; cd /tmp; readlink -f $SCRATCH/l | sed 's:.*/::'").ok();
    assert_eq!(outcome.stdout, "f\nsymbolic link 1\nregular file 1\nf\n");
    assert!(place.scratch().join("f").symlink_metadata().unwrap().is_file());
}

#[test]
fn runs_that_begin_at_the_same_moment_all_run() {
    for _ in 0..5 {
        let place = Workplace::new();
        let runs: Vec<_> = (0..6).map(|n| place.start(&format!("echo {n} > f{n}"))).collect();
        for mut run in runs {
            assert!(run.wait().unwrap().success());
        }
        let tree = place.settled_tree();
        (0..6).for_each(|n| assert_eq!(tree.bytes(&format!("f{n}")), format!("{n}\n").as_bytes()));
    }
}

/// As scratch: nothing is flushed, and all is removed at the end of the run.
const AS_SCRATCH: &[&str] = &["--flush", "!**", "--evict", "**"];

#[test]
fn a_run_that_begins_when_another_has_just_ended_has_its_own_settings() {
    let place = Workplace::new();
    for round in 0..4 {
        place.run_with(AS_SCRATCH, &["sh", "-c", "echo scratch >scratch"]).ok();
        place.sh(&format!("echo precious {round} >result.txt")).ok();
        assert_eq!(std::fs::read_to_string(place.root().join("result.txt")).unwrap(), format!("precious {round}\n"));
        assert!(place.root().join("scratch").symlink_metadata().is_err(), "scratch of another run was kept");
    }
    assert_eq!(place.settled_tree().0.len(), 1);
}

#[test]
fn a_tier_that_only_the_last_run_had_is_not_in_force() {
    let place = Workplace::new();
    let other = place.scratch().join("other");
    std::fs::create_dir(&other).unwrap();
    let tier = format!("other={}:1MiB", other.display());
    let tiers_of = |flags: &[&str]| {
        let outcome = place.run_with(flags, &["sh", "-c", "echo x >f"]).ok();
        outcome.report.expect("a report")["tiers"].to_string()
    };
    assert!(tiers_of(&["--tier", &tier]).contains("other"));
    let then = tiers_of(&[]);
    assert!(then.contains("ram") && !then.contains("other"), "{then}");
}

#[test]
fn a_run_that_contradicts_a_living_one_is_refused_by_name() {
    let place = Workplace::new();
    let mut first = place.shell();
    first.does("echo mine >f");
    let run = place.status().unwrap().runs[0].pid.to_string();
    let refused = Outcome::within(60, &mut place.run_command(AS_SCRATCH, &["sh", "-c", "echo never >g"]));
    assert_eq!(refused.code, 2, "{refused:?}");
    for word in ["policy.flush", "policy.evict", "hint: ", &run] {
        assert!(refused.stderr.contains(word), "`{word}` is not said: {}", refused.stderr);
    }
    assert!(!place.root().join("g").exists(), "the program ran");
    first.does("echo more >>f");
    assert_eq!(first.ends_and_leaves().bytes("f"), b"mine\nmore\n");
}

#[test]
fn what_decides_on_no_file_contradicts_nobody() {
    let place = Wish::default().top("quota = \"50%\"").build();
    let first = place.shell();
    let agent = place.status().unwrap().agent_pid;
    // What half of it is has changed.
    std::fs::write(place.tier("ram").join("ballast"), vec![7; 3 << 20]).unwrap();
    let report = place.scratch().join("second.json");
    let mut joins = place.terrace("run");
    joins.args(["--report", report.to_str().unwrap(), "--walltime", "1h", "--", "sh", "-c", "echo joined >f"]);
    let outcome = Outcome::within(60, &mut joins);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert_eq!(place.status().unwrap().agent_pid, agent);
    assert_eq!(first.ends_and_leaves().bytes("f"), b"joined\n");
}

/// What the moment finds in which a run has ended.
fn assert_clean(place: &Workplace) {
    assert!(!place.root().join(".terrace").exists(), "`.terrace` is left");
    assert!(place.status().is_none() && !place.is_locked(), "the agent is left");
    assert_eq!(std::fs::read_dir(place.tier("ram")).unwrap().count(), 0, "something is left in the tier");
}

#[test]
fn a_run_returns_when_its_agent_has_left_and_the_root_is_clean() {
    let place = Workplace::new();
    for (script, code) in [("echo x >f", 0), ("echo x >g; exit 3", 3), ("echo x >h; kill -9 $$", 137), ("true", 0)] {
        place.sh(script).ends_with(code);
        assert_clean(&place);
    }
    assert_eq!(place.settled_tree().0.len(), 3);
}

#[test]
fn of_several_runs_the_last_one_waits_for_the_agent() {
    let place = Workplace::new();
    let running: Vec<_> = (0..6).map(|i| place.start(&format!("sleep 0.{i}; echo {i} >f{i}"))).collect();
    for run in running {
        Outcome::of_child(120, run).ok();
    }
    assert_clean(&place);
    assert_eq!(place.settled_tree().0.len(), 6);
}

#[test]
fn a_run_that_is_terminated_or_killed_leaves_a_clean_root_too() {
    let place = Wish::default().settle("60s").build();
    let start = || {
        let running = place.start("echo $$ >$SCRATCH/pid; echo result >f; exec sleep 100");
        assert!(wait_until(20, || std::fs::read(place.root().join("f")).is_ok_and(|text| text == b"result\n")));
        running
    };
    let running = start();
    // SAFETY: our own child.
    unsafe { libc::kill(running.id() as i32, libc::SIGTERM) };
    Outcome::of_child(120, running).ends_with(143);
    assert_clean(&place);
    std::fs::remove_file(place.root().join("f")).unwrap();

    let mut running = start();
    running.kill().unwrap();
    running.wait().unwrap();
    // The program goes on, and an agent is held for it: it ends, too.
    let program = std::fs::read_to_string(place.scratch().join("pid")).unwrap().trim().parse().unwrap();
    // SAFETY: what this test has started.
    unsafe { libc::kill(program, libc::SIGKILL) };
    let is_clean = || place.status().is_none() && !place.root().join(".terrace").exists();
    assert!(wait_until(60, is_clean), "nobody clears up: {:?}", place.status());
    assert_eq!(place.settled_tree().bytes("f"), b"result\n");
}

#[test]
fn what_a_killed_run_left_is_dealt_with_by_its_own_settings() {
    let place = Wish::default().settle("60s").build();
    let mut running =
        place.start_with(&["--preload-only"], &["sh", "-c", "echo precious >f; echo $$ >$SCRATCH/pid; exec sleep 100"]);
    assert!(wait_until(20, || place.scratch().join("pid").exists() && place.root().join("f").exists()));
    let pid_of = || std::fs::read_to_string(place.scratch().join("pid")).ok()?.trim().parse::<i32>().ok();
    assert!(wait_until(20, || pid_of().is_some()));
    let (program, agent) = (pid_of().unwrap(), place.status().unwrap().agent_pid as i32);
    // All of them at once: the run is not to start another agent, nor the agent to flush for a run that has gone.
    for (pid, signal) in [(running.id() as i32, libc::SIGSTOP), (agent, libc::SIGKILL), (program, libc::SIGKILL)] {
        // SAFETY: processes that this test has started.
        unsafe { libc::kill(pid, signal) };
    }
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(wait_until(20, || place.status().is_none()));
    assert!(place.root().join("f").is_symlink(), "the test shows nothing: the file is durable already");
    place.run_with(AS_SCRATCH, &["sh", "-c", "echo scratch >g"]).ok();
    let tree = place.settled_tree();
    assert_eq!((tree.bytes("f"), tree.0.len()), (&b"precious\n"[..], 1));
}

#[test]
fn an_agent_that_dies_on_its_way_out_is_replaced_by_one_that_clears_up() {
    let place = Workplace::new();
    for round in 0..5 {
        let running = place.start(&format!("echo {round} >f{round}; sleep 0.2"));
        assert!(wait_until(20, || place.root().join(format!("f{round}")).exists()));
        let agent = place.status().unwrap().agent_pid as i32;
        std::thread::sleep(Duration::from_millis(200 + 10 * round));
        // SAFETY: this workplace's own agent, if it has not ended.
        unsafe { libc::kill(agent, libc::SIGKILL) };
        Outcome::of_child(120, running).ok();
        assert_clean(&place);
    }
    assert_eq!(place.settled_tree().0.len(), 5);
}

#[test]
fn a_terminal_is_shown_a_screen_of_the_status_until_q_is_pressed() {
    let place = Workplace::new();
    let shell = place.shell();
    let command = place.terrace("status");
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| word.to_str().unwrap());
    // `script` (util-linux) gives it a terminal.
    let line = format!("stty rows 30 cols 120; exec {} --watch", words.collect::<Vec<_>>().join(" "));
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(place.root()).env("TERM", "xterm");
    let mut watching = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut shown = vec![];
    let mut screen = watching.stdout.take().unwrap();
    while !String::from_utf8_lossy(&shown).contains("q: quit") {
        let mut part = [0; 4096];
        let length = screen.read(&mut part).unwrap();
        assert!(length > 0, "it ended: {}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..length]);
    }
    let agent = format!("agent {}", place.status().unwrap().agent_pid);
    assert!(String::from_utf8_lossy(&shown).contains(&agent), "{}", String::from_utf8_lossy(&shown));
    watching.stdin.take().unwrap().write_all(b"q").unwrap();
    let mut rest = String::new();
    screen.read_to_string(&mut rest).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(0));
    // The screen is left as it was.
    assert!(rest.contains("\x1b[?1049l"), "{rest:?}");
    shell.ends_and_leaves();
}
