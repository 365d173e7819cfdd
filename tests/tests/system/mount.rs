//! The private mount (`terrace run --mount`): every program gets files at the root's path, by whatever calls.
//!
//! Each claim is shown as root and as an ordinary user, whose programs are in a user namespace. The C program is static, so that
//! nothing but the mount can be what reaches it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use terrace_tests::{
    Kind, Outcome, Wish, Workplace, compile, fetched, has_mounts, has_user_namespaces, is_root, is_root_among_users,
    skipped, wait_until,
};

/// "nobody".
const USER: u32 = 65534;

/// A workplace of root's and one of a user's, whose programs are reached by a mount. What is closed stays in its tier for a while.
fn places(settle: &str) -> Vec<Workplace> {
    if !has_mounts() {
        return vec![];
    }
    let wish = || Wish::default().tier("ram", "64MiB").settle(settle).mount();
    let mut places = vec![wish().build()];
    if is_root_among_users() && has_user_namespaces() {
        places.push(wish().user(USER).build());
    }
    places
}

/// The static program of `mount/files.c`.
fn files(place: &Workplace) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/mount/files.c");
    let binary = place.scratch().join("files");
    let made =
        Command::new("cc").args(["-O1", "-Wall", "-static", "-D_GNU_SOURCE", "-o"]).arg(&binary).arg(source).status();
    assert!(made.unwrap().success(), "files.c does not compile");
    binary.to_str().unwrap().to_owned()
}

/// Does one behaviour of `files.c` natively and by the mount: what is left must be alike.
#[track_caller]
fn behaves(what: &str) {
    for place in places("1h") {
        let program = files(&place);
        assert_eq!(place.native(&[&program, what]).code, 0, "{what}, natively");
        let native = terrace_tests::Tree::of(place.root());
        for entry in std::fs::read_dir(place.root()).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => std::fs::remove_dir_all(entry.path()).unwrap(),
                false => std::fs::remove_file(entry.path()).unwrap(),
            }
        }
        let outcome = place.run(&[&program, what]).ok();
        assert!(made(&outcome) > 0, "{what}: nothing was made in a tier: {outcome:?}");
        let tree = place.settled_tree();
        let contents = |tree: &terrace_tests::Tree| {
            tree.0
                .iter()
                .filter(|(_, entry)| matches!(entry.kind, Kind::File(_)))
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(contents(&tree), contents(&native), "{what}");
    }
}

/// Files that a run made in its tier.
fn made(outcome: &Outcome) -> u64 {
    let report = outcome.report.as_ref().unwrap_or_else(|| panic!("no report: {outcome:?}"));
    report["tiers"][0]["written_files"].as_u64().unwrap_or(0)
}

/// A command that programs of the run may give, too.
fn terrace(place: &Workplace, command: &str) -> String {
    format!("{} {command} --config {}", terrace_tests::terrace_binary().display(), place.config().display())
}

/// The server of this workplace's mount.
fn server(place: &Workplace) -> Option<i32> {
    let settings = place.state().join("settings.json");
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = words.split(|byte| *byte == 0);
        let is_it = words.nth(1) == Some(b"view") && words.any(|word| word == settings.as_os_str().as_encoded_bytes());
        is_it.then_some(pid)
    })
}

#[test]
fn a_static_program_makes_reads_renames_lists_and_removes_files() {
    behaves("files");
}

#[test]
fn what_is_shared_in_memory_is_seen_by_all_and_kept() {
    behaves("map");
}

#[test]
fn two_processes_that_append_lose_nothing() {
    behaves("append");
}

#[test]
fn a_file_without_a_name_lives_while_it_is_open() {
    behaves("unlinked");
}

#[test]
fn hard_links_are_one_file() {
    behaves("links");
}

#[test]
fn renames_may_exchange_and_refuse_to_replace() {
    behaves("renames");
}

#[test]
fn locks_hold_among_the_programs_of_the_mount() {
    behaves("locks");
}

#[test]
fn a_program_that_uses_io_uring_writes_into_a_tier() {
    for place in places("1h") {
        let program = files(&place);
        let outcome = place.run(&[&program, "uring"]);
        if outcome.code == 77 {
            skipped("this kernel has no io_uring");
            return;
        }
        let outcome = outcome.ok();
        assert_eq!(made(&outcome), 1, "{outcome:?}");
        assert_eq!(place.settled_tree().bytes("ring"), b"by a ring");
    }
}

#[test]
fn a_program_that_confines_itself_by_landlock_works_where_it_may() {
    for place in places("1h") {
        let program = files(&place);
        let outcome = place.run(&[&program, "landlock"]);
        if outcome.code == 77 {
            skipped("this kernel has no Landlock");
            return;
        }
        assert_eq!(made(&outcome.ok()), 1);
        assert_eq!(place.settled_tree().bytes("mine/f"), b"allowed");
    }
}

#[test]
fn a_program_of_32_bits_makes_files_in_a_tier() {
    for place in places("1h") {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/mount/bits32.c");
        let binary = place.scratch().join("bits32");
        let flags = ["-m32", "-nostdlib", "-static", "-fno-pic", "-no-pie", "-Wno-pointer-to-int-cast", "-o"];
        let made_it = Command::new("cc").args(flags).arg(&binary).arg(source).output().unwrap();
        if !made_it.status.success() {
            skipped("the compiler makes no programs of 32 bits");
            return;
        }
        let outcome = place.run(&[binary.to_str().unwrap()]);
        if outcome.stderr.contains("Exec format error") {
            skipped("this kernel runs no programs of 32 bits");
            return;
        }
        assert_eq!(made(&outcome.ok()), 1);
        assert_eq!(place.settled_tree().bytes("made"), b"32 bits\n");
    }
}

#[test]
fn the_programs_see_files_while_the_root_has_links_and_at_the_end_all_is_durable() {
    for place in places("1h") {
        let mut shell = place.shell();
        shell.does("head -c 100000 /dev/urandom > f; mkdir d; echo text > d/g");
        assert_eq!(shell.says("stat -c '%F %s' f; readlink f; find . -type l"), "regular file 100000");
        let link = std::fs::symlink_metadata(place.root().join("f")).unwrap();
        assert!(link.is_symlink(), "from outside it is what it is: a link into its tier");
        let bytes = std::fs::read(place.root().join("f")).unwrap();
        // Flushed, evicted, brought back: the programs see one file all the time.
        let ino = shell.says("stat -c %i f d/g");
        for act in ["flush --all", "evict", "prefetch"] {
            shell.does(&format!("{} f d/g > $SCRATCH/said 2>&1 || cat $SCRATCH/said", terrace(&place, act)));
            assert_eq!(shell.says("stat -c %i f d/g; cat d/g"), format!("{ino}\ntext"));
            assert_eq!(
                shell.says("sha256sum < f"),
                shell.says(&format!("sha256sum < {}", place.root().join("f").display()))
            );
        }
        let tree = shell.ends_and_leaves();
        assert!(tree.bytes("f") == bytes && tree.bytes("d/g") == b"text\n");
    }
}

#[test]
fn a_link_from_outside_leads_to_the_same_files() {
    for place in places("1h") {
        let outside = place.scratch().join("outside");
        std::os::unix::fs::symlink(place.root(), &outside).unwrap();
        let script =
            format!("echo x > {0}/f; stat -c %F {0}/f; mv {0}/f {0}/g; cat g; [ {0}/g -ef g ]", outside.display());
        assert_eq!(place.sh(&script).ok().stdout, "regular file\nx\n");
        assert_eq!(place.settled_tree().bytes("g"), b"x\n");
    }
}

#[test]
fn a_program_that_was_just_built_below_the_root_runs() {
    for place in places("20ms") {
        let script = "printf '#include <stdio.h>\\nint main(void) { return puts(\"built\") < 0; }' > p.c; cc -o p p.c; ./p; \
                      cc -shared -fPIC -o l.so p.c; LD_PRELOAD=$PWD/l.so ./p";
        assert_eq!(place.sh(script).ok().stdout, "built\nbuilt\n");
        assert!(place.settled_tree().has("p"));
    }
}

#[test]
fn a_debugger_from_inside_sees_files() {
    if !Path::new("/usr/bin/strace").exists() {
        skipped("strace is not installed");
        return;
    }
    for place in places("1h") {
        let outcome = place.sh("echo x > f; strace -f -o $SCRATCH/trace stat -c %F f").ok();
        assert_eq!(outcome.stdout, "regular file\n");
    }
}

#[test]
fn programs_outside_and_inside_agree_at_once() {
    for place in places("1h") {
        let mut inside = place.shell();
        inside.does("echo one > f");
        std::fs::write(place.root().join("outside"), "from outside").unwrap();
        assert_eq!(inside.says("cat outside"), "from outside");
        std::fs::rename(place.root().join("outside"), place.root().join("moved")).unwrap();
        assert_eq!(inside.says("ls; cat moved"), "f\nmoved\nfrom outside");
        std::fs::remove_file(place.root().join("moved")).unwrap();
        assert_eq!(inside.says("ls"), "f");
        inside.ends_and_leaves();
    }
}

#[test]
fn an_agent_that_is_killed_is_started_again_and_the_mount_goes_on() {
    // The agent of another user's doesn't answer the tests.
    let Some(place) = places("1h").into_iter().next() else { return };
    let mut shell = place.shell();
    shell.does("for i in $(seq 30); do echo $i > before$i; done");
    let first = place.status().expect("an agent").agent_pid;
    // SAFETY: this workplace's own agent.
    unsafe { libc::kill(first as i32, libc::SIGKILL) };
    shell.does("for i in $(seq 30); do echo $i > after$i; done; mv before1 moved; cat before2 moved > both");
    assert!(wait_until(20, || place.status().is_some_and(|status| status.agent_pid != first)), "{}", place.agent_log());
    let tree = shell.ends_and_leaves();
    assert_eq!((tree.0.len(), tree.bytes("both")), (61, &b"2\n1\n"[..]));
}

#[test]
fn a_server_that_is_killed_is_told_of_and_the_run_fails() {
    for place in places("1h") {
        let script = "echo safe > f; echo ready; while cat f > /dev/null 2>&1; do sleep 0.02; done; (cat f 2>&1 || true) | grep -o 'not connected'";
        let child = place.start(script);
        assert!(
            wait_until(30, || std::fs::read(place.root().join("f")).is_ok_and(|bytes| bytes == b"safe\n")),
            "no file"
        );
        // SAFETY: the server of this test's own run.
        unsafe { libc::kill(server(&place).expect("a server"), libc::SIGKILL) };
        let outcome = Outcome::of_child(60, child);
        assert_eq!(outcome.code, 70, "{outcome:?}");
        assert!(outcome.stdout.contains("not connected"), "{outcome:?}");
        assert!(outcome.stderr.contains("the private mount's server was killed"), "{outcome:?}");
        assert_eq!(place.settled_tree().bytes("f"), b"safe\n");
    }
}

#[test]
fn what_goes_on_after_its_run_keeps_its_mount_and_is_flushed() {
    for place in places("20ms") {
        place.sh("(sleep 1; echo late > late; stat -c %F late > kind) > /dev/null 2>&1 &").ok();
        assert!(wait_until(30, || place.root().join("kind").exists()), "it did not go on");
        let tree = place.settled_tree();
        assert_eq!((tree.bytes("late"), tree.bytes("kind")), (&b"late\n"[..], &b"regular file\n"[..]));
        assert!(wait_until(30, || server(&place).is_none()), "the server stays");
    }
}

#[test]
fn the_mount_is_the_runs_alone_and_goes_with_it() {
    for place in places("1h") {
        let outside = std::fs::metadata(place.root()).unwrap().dev();
        let outcome =
            place.sh(&format!("[ $(stat -c %d .) != {outside} ]; grep -c fuse.terrace /proc/self/mountinfo")).ok();
        assert_eq!(outcome.stdout, "1\n");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(place.root().to_str().unwrap()));
        assert!(server(&place).is_none(), "the server stays");
    }
}

#[test]
fn exit_codes_signals_and_what_cannot_be_run_are_as_in_any_run() {
    for place in places("1h") {
        place.sh("exit 7").ends_with(7);
        place.sh("kill -TERM $$").ends_with(143);
        place.run(&["no-such-program"]).ends_with(127);
        place.settled_tree();
    }
}

#[test]
fn what_it_costs_is_said_at_the_start_and_in_the_help() {
    if !has_mounts() {
        return;
    }
    let place = Workplace::new();
    let outcome = Outcome::within(60, place.terrace("run").args(["--mount", "--", "true"])).ok();
    assert!(outcome.stderr.contains("each look-up, read and write passes through user space"), "{outcome:?}");
    let help = Outcome::within(60, place.terrace("run").arg("--help")).ok();
    assert!(help.stdout.contains("--mount") && help.stdout.contains("passes through user space"));
}

#[test]
fn conflicting_flags_and_a_run_inside_are_refused_by_name() {
    let place = Workplace::new();
    for flags in [
        &["--mount", "--preload-only"][..],
        &["--mount", "--supervise-only"],
        &["--mount", "--door", "both"],
        &["--mount", "--cfitsio"],
    ] {
        let outcome = place.run_with(flags, &["true"]).ends_with(2);
        assert!(outcome.stderr.contains("cannot be used with"), "{outcome:?}");
    }
    for place in places("1h") {
        let terrace = terrace_tests::terrace_binary();
        let inner = [terrace.to_str().unwrap(), "run", "--config", place.config().to_str().unwrap(), "--", "true"];
        let outcome = place.run(&inner).ends_with(2);
        assert!(outcome.stderr.contains("private mount, and this is inside that run"), "{outcome:?}");
    }
}

#[test]
fn where_no_mount_can_be_had_the_run_says_what_is_missing() {
    if !is_root() || !has_mounts() {
        skipped("to take /dev/fuse away takes root's rights");
        return;
    }
    let place = Workplace::new();
    let run = place.run_command(&["--mount"], &["true"]);
    for (without, says) in [
        ("mount --bind /dev/null /dev/fuse", "can't be mounted over the root"),
        (
            "mount -t tmpfs none /mnt; mkdir /mnt/shm; mount --bind /dev/shm /mnt/shm; touch /mnt/null; mount --bind /dev/null /mnt/null; mount --rbind /mnt /dev",
            "/dev/fuse can't be opened: No such file",
        ),
        ("echo 0 > /proc/sys/user/max_mnt_namespaces", "a mount namespace can't be made"),
    ] {
        // The limit is of a user namespace of its own.
        let unshare: &[&str] = if without.starts_with("echo") { &["-Urm"] } else { &["-m"] };
        let mut command = Command::new("unshare");
        command.args(unshare).args(["bash", "-euc", &format!("{without}; exec \"$0\" \"$@\"")]);
        command.arg(run.get_program()).args(run.get_args()).current_dir(place.root());
        let outcome = Outcome::within(60, &mut command).ends_with(2);
        assert!(outcome.stderr.contains("a private mount can't be had here"), "{outcome:?}");
        assert!(outcome.stderr.contains(says) && outcome.stderr.contains("hint: "), "{outcome:?}");
        place.wait_for_the_agents_end();
    }
}

#[test]
fn doctor_names_the_mount_where_a_program_goes_past_both_doors() {
    let place = Workplace::new();
    let source = "#include <sys/syscall.h>\n#include <unistd.h>\nint io_uring_setup(void) { return syscall(SYS_io_uring_setup, 0, 0); }\n\
                  const char *name = \"io_uring_setup\"; int main(void) { return io_uring_setup() > 0 && name[0]; }";
    let program = compile(&place.scratch(), "ring", source);
    let outcome = Outcome::within(60, place.terrace("doctor").arg("--").arg(&program));
    assert!(outcome.stdout.contains("io_uring") && outcome.stdout.contains("`terrace run --mount`"), "{outcome:?}");
    let outcome = Outcome::within(60, place.terrace("doctor").arg("--").arg("true"));
    assert!(!outcome.stdout.contains("--mount"), "{outcome:?}");
}

#[test]
fn fsx_finds_no_mismatch_while_the_file_is_flushed_and_evicted() {
    for place in places("1ms") {
        let fsx = fetched("tools/bin/fsx");
        let script = format!(
            "(while [ ! -e done ]; do {} file || true; {} file || true; done > /dev/null 2>&1) & \
             for i in 1 2 3 4 5 6; do {} -N 1000 -S $i -P $SCRATCH file 2>&1 || exit 1; done; touch done; wait",
            terrace(&place, "flush --all"),
            terrace(&place, "evict"),
            fsx.display()
        );
        let outcome = place.sh(&script).ok();
        let counters = outcome.report.as_ref().expect("a report")["counters"].clone();
        let left = counters["moved_live_files"].as_u64().unwrap_or(0) + counters["evicted_files"].as_u64().unwrap_or(0);
        assert!(left > 3, "the file left its tier {left} times: {counters}");
        assert_eq!(outcome.stdout.matches("A-OK").count(), 6, "{outcome:?}");
        place.settled_tree();
    }
}
