//! The supervisor: programs that can't load the preload library, and what happens when it dies.
//!
//! Each C program is compiled by the test, statically, so that none of its calls can go through the library.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};
use terrace_core::control::Request;
use terrace_tests::{Outcome, Tree, Wish, Workplace, compile};

fn source_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/supervise")
}

fn source(name: &str) -> PathBuf {
    source_directory().join(format!("{name}.c"))
}

/// A static program, made from a source in `supervise/`.
fn program(place: &Workplace, name: &str) -> String {
    let source = source(name);
    let binary = place.scratch().join(name);
    let made = Command::new("cc").args(["-O1", "-static", "-pthread", "-o"]).arg(&binary).arg(source).status().unwrap();
    assert!(made.success(), "{name}.c does not compile");
    binary.to_str().unwrap().to_owned()
}

/// Runs it in every mode that reaches it; it says on stderr what it found wrong, and gives 0 when nothing was.
fn holds(place: &Workplace, command: &[&str]) {
    for flags in [&["--supervise-only"][..], &[]] {
        let outcome = place.run_with(flags, command);
        assert!(outcome.code == 0, "{command:?} with {flags:?}: {outcome:?}");
    }
}

/// The supervisor of this workplace's runs.
fn supervisors(place: &Workplace) -> Vec<u32> {
    let index = place.runtime().join("index");
    let numbers = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let words = std::fs::read(entry.path().join("cmdline")).ok()?;
        let mut words = words.split(|byte| *byte == 0);
        let is_one =
            words.nth(1) == Some(b"supervise") && words.any(|word| word == index.as_os_str().as_encoded_bytes());
        is_one.then_some(pid)
    });
    numbers.collect()
}

fn kill(pid: u32) {
    // SAFETY: a process of this test's own run.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
}

/// Kills the supervisor again and again, until told to stop or so often; gives how often.
fn kill_supervisors(place: &Workplace, stop: &AtomicBool, times: u32) -> u32 {
    let mut killed = 0;
    let mut last = 0;
    while killed < times && !stop.load(SeqCst) {
        for pid in supervisors(place) {
            if pid != last {
                // At a different point of its work each time.
                std::thread::sleep(Duration::from_micros(500 + 997 * (killed as u64 % 23)));
                kill(pid);
                last = pid;
                killed += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    killed
}

#[test]
fn a_static_program_sees_files_and_not_links() {
    let place = Workplace::new();
    holds(&place, &[&program(&place, "files")]);
}

#[test]
fn a_static_programs_files_are_made_in_a_tier_and_flushed() {
    let place = Wish::default().settle("1h").build();
    let outcome =
        place.run_with(&["--supervise-only"], &["busybox", "sh", "-c", "echo data > a; mkdir d; echo b > d/b"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert_eq!(outcome.report.unwrap()["counters"]["creates_tier"], 2);
    assert_eq!(std::fs::read_to_string(place.root().join("a")).unwrap(), "data\n");
    assert!(place.root().join("d/b").symlink_metadata().unwrap().is_file());
}

#[test]
fn calls_under_an_interval_timer_see_no_spurious_error() {
    let place = Workplace::new();
    holds(&place, &[&program(&place, "timer"), "40000"]);
}

#[test]
fn a_program_with_threads_forks_a_thousand_times() {
    let place = Workplace::new();
    holds(&place, &[&program(&place, "forks"), "1000"]);
}

#[test]
fn a_program_that_takes_another_umask_and_user_makes_files_with_them() {
    let place = Workplace::new();
    holds(&place, &[&program(&place, "rights")]);
}

#[test]
fn a_program_that_goes_on_after_its_run_keeps_working_and_is_flushed() {
    let place = Workplace::new();
    let script = "(trap '' HUP; exec >/dev/null 2>&1; sleep 1; echo late > late; cat late > copy; ls -l > listing) & echo early > early";
    let outcome = place.run_with(&["--supervise-only"], &["busybox", "sh", "-c", script]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let copy = place.root().join("copy");
    assert!(terrace_tests::wait_until(30, || {
        copy.symlink_metadata().is_ok_and(|found| found.is_file()) && supervisors(&place).is_empty()
    }));
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "late\n");
    let listing = std::fs::read_to_string(place.root().join("listing")).unwrap();
    assert!(!listing.contains("->"), "{listing}");
}

#[test]
fn room_that_a_static_program_takes_is_counted_while_it_writes() {
    let place = Wish::default().tier("ram", "8MiB").settle("1h").build();
    // The first file outgrows the tier while it is open; what is made then has its bytes elsewhere.
    let script = "exec 3>big; dd if=/dev/zero bs=1M count=8 >&3; sleep 1; echo other > other; exec 3>&-; cat other";
    let outcome = place.run_with(&["--supervise-only"], &["busybox", "sh", "-c", script]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "other\n"), "{}", outcome.stderr);
    let counters = &outcome.report.unwrap()["counters"];
    assert_eq!((&counters["creates_tier"], &counters["creates_durable"]), (&1.into(), &1.into()), "{counters}");
    assert_eq!(std::fs::metadata(place.root().join("big")).unwrap().len(), 8 << 20);
}

/// A C project of many small files.
fn project(at: &Path) {
    std::fs::create_dir_all(at).unwrap();
    let names: Vec<String> = (0..30).map(|number| format!("part{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        let text = format!(
            "#include \"parts.h\"\n#include <stdio.h>\nint {name}(int x) {{ return x * {number} + {}(x - 1 > 0 ? 0 : 0); }}\n",
            if number == 0 { "base".into() } else { format!("part{}", number - 1) }
        );
        std::fs::write(at.join(format!("{name}.c")), text).unwrap();
    }
    let declared: String = names.iter().map(|name| format!("int {name}(int);\n")).collect();
    std::fs::write(at.join("parts.h"), format!("int base(int);\n{declared}")).unwrap();
    let main = "#include \"parts.h\"\n#include <stdio.h>\nint base(int x) { return x; }\nint main(void) { printf(\"%d\\n\", part29(3)); }\n";
    std::fs::write(at.join("main.c"), main).unwrap();
    let makefile = "OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))\nprogram: libparts.a\n\tgcc -o $@ main.o libparts.a\n\
                    libparts.a: $(OBJECTS)\n\trm -f $@\n\tar crD $@ $(sort $(OBJECTS))\n%.o: %.c parts.h\n\tgcc -O1 -c -o $@ $<\n\
                    clean:\n\trm -f *.o *.a program\n";
    std::fs::write(at.join("Makefile"), makefile).unwrap();
}

#[test]
fn a_parallel_build_survives_its_supervisor_being_killed_a_hundred_times() {
    let place = Wish::default().tier("ram", "64MiB").patience(400).build();
    let native = place.scratch().join("project");
    project(&native);
    assert!(Command::new("make").args(["-s", "-j4"]).current_dir(&native).status().unwrap().success());
    project(&place.root().join("project"));

    let (stop, enough) = (AtomicBool::new(false), place.scratch().join("enough"));
    let script = format!(
        "cd project && make -s -j4 && while [ ! -e {0} ]; do make -s clean && make -s -j4 || exit 9; done && ./program",
        enough.display()
    );
    let killed = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let killed = kill_supervisors(&place, &stop, 100);
            std::fs::write(&enough, "").unwrap();
            killed
        });
        let outcome = place.run_with(&["--supervise-only"], &["sh", "-c", &script]);
        stop.store(true, SeqCst);
        assert_eq!(outcome.code, 0, "{outcome:?}\n{}", place.agent_log());
        killer.join().unwrap()
    });
    assert_eq!(killed, 100);
    let (native, ours) = (Tree::of(&native), Tree::of(&place.root().join("project")));
    let bytes = |tree: &Tree| tree.0.iter().map(|(name, entry)| (name.clone(), entry.kind.clone())).collect::<Vec<_>>();
    assert!(bytes(&native) == bytes(&ours), "{:?}", native.0.keys().collect::<Vec<_>>());
}

#[test]
fn a_call_that_a_killed_supervisor_had_received_is_done_once() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let stop = AtomicBool::new(false);
    let steps = program(&place, "steps");
    let until = Instant::now() + Duration::from_secs(8);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| kill_supervisors(&place, &stop, u32::MAX));
        // Creates, renames and removes, each of which would fail if it was done twice or not at all.
        while Instant::now() < until {
            let outcome = place.run_with(&["--supervise-only"], &[&steps, "500"]);
            if outcome.code != 0 {
                stop.store(true, SeqCst);
            }
            assert_eq!(outcome.code, 0, "{outcome:?}");
        }
        stop.store(true, SeqCst);
        assert!(killer.join().unwrap() > 0);
    });
}

#[test]
fn a_run_inside_a_run_says_that_only_the_library_reaches_its_programs() {
    let place = Workplace::new();
    let inner: PathBuf = terrace_tests::terrace_binary();
    let config = place.config().display().to_string();
    let inner = inner.to_str().unwrap();
    let outcome = place.run_with(
        &[],
        &[inner, "run", "--quiet", "--config", &config, "--", "sh", "-c", "echo x > inside; cat inside"],
    );
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "x\n"), "{outcome:?}");
    assert!(outcome.stderr.contains("under another supervisor"), "{outcome:?}");
    let refused = place.run_with(&[], &[inner, "run", "--supervise-only", "--config", &config, "--", "true"]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn a_static_program_finds_a_file_whole_while_it_moves_and_is_replaced() {
    let place = Wish::default().tier("ram", "64MiB").settle("5ms").build();
    let reader = program(&place, "reader");
    // A writer that the library serves replaces the file as fast as it can.
    let script = "import os, subprocess, sys\n\
                  def write(letter):\n  with open('next', 'w') as f: f.write(letter * 20000)\n  os.replace('next', 'data')\n\
                  write('a')\nreader = subprocess.Popen(sys.argv[1:])\n\
                  while reader.poll() is None: [write(letter) for letter in 'bcdef']\n\
                  sys.exit(reader.returncode)";
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let data = [place.root().join("data")];
            while !stop.load(SeqCst) {
                // Any of them may be refused: the file is open, or has another state just now.
                let _ = place.ask(&Request::Flush { paths: data.to_vec(), all: true, end_of_run: false });
                let _ = place.ask(&Request::Evict { paths: data.to_vec() });
                let _ = place.ask(&Request::Prefetch { paths: data.to_vec() });
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let outcome = place.run_with(&["--door", "both"], &["/usr/bin/python3", "-S", "-c", script, &reader, "8000"]);
        stop.store(true, SeqCst);
        assert_eq!(outcome.code, 0, "{outcome:?}");
    });
}

#[test]
fn a_call_that_says_eintr_was_not_done_and_can_be_repeated() {
    let place = Workplace::new();
    holds(&place, &[&program(&place, "eintr"), "20000"]);
}

#[test]
fn attributes_of_a_flushed_file_change_by_name_and_by_descriptor_alike() {
    let place = Wish::default().tier("ram", "64MiB").settle("1ms").mover("fsync = false").build();
    holds(&place, &[&program(&place, "attributes")]);
    // The same program, dynamically linked.
    let source = std::fs::read_to_string(source("attributes")).unwrap();
    let source = source.replace("\"check.h\"", &format!("{:?}", source_directory().join("check.h")));
    let dynamic = compile(&place.scratch(), "attributes_dynamic", &source);
    for flags in [&["--preload-only"][..], &[]] {
        place.run_with(flags, &[dynamic.to_str().unwrap()]).ok();
    }
}

#[test]
fn a_static_program_copies_a_range_between_the_root_and_a_tier() {
    let place = Wish::default().tier("ram", "64MiB").settle("1h").build();
    let bytes: Vec<u8> = (0..6_000_000u32).map(|number| (number.wrapping_mul(number) >> 3) as u8).collect();
    std::fs::write(place.root().join("durable"), &bytes).unwrap();
    holds(&place, &[&program(&place, "range"), "durable", "placed"]);
    assert!(std::fs::read(place.root().join("placed")).unwrap() == bytes);
}

#[test]
fn a_static_program_of_another_user_is_served_for_that_user() {
    if !terrace_tests::is_root_among_users() {
        return;
    }
    let place = Wish::default().user(1234).build();
    let outcome: Outcome = place.run_with(&["--supervise-only"], &["busybox", "sh", "-c", "echo mine > f; ls -l f"]);
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let found = place.root().join("f").symlink_metadata().unwrap();
    assert!(found.is_file() && found.uid() == 1234);
}

#[test]
fn a_link_from_outside_leads_to_files_and_not_to_links() {
    let place = Wish::default().settle("1h").build();
    let outside = place.scratch().join("way");
    std::os::unix::fs::symlink(place.root(), &outside).unwrap();
    let fixed = program(&place, "outside");
    std::fs::write(place.scratch().join("check.h"), include_str!("supervise/check.h")).unwrap();
    let dynamic = compile(&place.scratch(), "dynamic", include_str!("supervise/outside.c"));
    let runs: [(&str, &[&str]); 4] = [
        (&fixed, &["--supervise-only"]),
        (&fixed, &[]),
        (dynamic.to_str().unwrap(), &["--preload-only"]),
        (dynamic.to_str().unwrap(), &[]),
    ];
    for (number, (binary, flags)) in runs.into_iter().enumerate() {
        let elsewhere = place.scratch().join(format!("elsewhere-{number}"));
        std::fs::create_dir(&elsewhere).unwrap();
        let outcome = place.run_with(flags, &[binary, outside.to_str().unwrap(), elsewhere.to_str().unwrap()]);
        assert_eq!(outcome.code, 0, "{binary} {flags:?}: {outcome:?}");
    }
    place.wait_for_the_agents_end();
    for number in 0..runs.len() {
        for name in ["leaves", "follows", "directory/file"] {
            let path = place.scratch().join(format!("elsewhere-{number}")).join(name);
            assert!(path.symlink_metadata().unwrap().is_file(), "{path:?} is no file");
            assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
        }
    }
    assert_eq!(place.settled_tree().bytes("second"), b"precious");
}

#[test]
fn a_run_with_narrow_limits_is_served_whole_and_its_programs_keep_them() {
    let place = Wish::default().tier("ram", "64MiB").settle("1h").build();
    let script = "for n in $(seq 40); do
        (for m in 1 2 3 4 5; do echo $n > f$n-$m; test -f f$n-$m && test ! -L f$n-$m || echo wrong; done) &
        done; wait; ulimit -n; ulimit -f; head -c 65536 /dev/zero > large; cp large copy";
    let mut run = place.run_command(&["--supervise-only"], &["busybox", "sh", "-c", script]);
    let narrow = |resource, most| {
        // SAFETY: a zeroed limit is valid, and live.
        unsafe {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(resource, &mut limit);
            limit.rlim_cur = most;
            libc::setrlimit(resource, &limit);
        }
    };
    // SAFETY: two system calls between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut run, move || {
            narrow(libc::RLIMIT_NOFILE, 64);
            narrow(libc::RLIMIT_FSIZE, 64 << 10);
            Ok(())
        })
    };
    let outcome = Outcome::within(120, &mut run);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "64\n128\n"), "{outcome:?}");
    assert_eq!(std::fs::metadata(place.root().join("copy")).unwrap().len(), 64 << 10);
    assert_eq!(std::fs::read_to_string(place.root().join("f40-5")).unwrap(), "40\n");
}

#[test]
fn a_program_without_a_descriptor_left_makes_and_cuts_nothing() {
    let place = Workplace::new();
    holds(&place, &[&program(&place, "room")]);
}

/// A dynamic program from the same source: its calls go by the library's `syscall`.
fn dynamic(place: &Workplace, name: &str) -> String {
    let source = source(name);
    let binary = place.scratch().join(format!("{name}-dynamic"));
    let made = Command::new("cc").args(["-O1", "-o"]).arg(&binary).arg(source).status().unwrap();
    assert!(made.success(), "{name}.c does not compile");
    binary.to_str().unwrap().to_owned()
}

/// Static and dynamic, each by every door that reaches it.
fn holds_everywhere(place: &Workplace, name: &str) {
    holds(place, &[&program(place, name)]);
    let dynamic = dynamic(place, name);
    holds(place, &[&dynamic]);
    let outcome = place.run_with(&["--preload-only"], &[&dynamic]);
    assert!(outcome.code == 0, "{name} with --preload-only: {outcome:?}");
}

#[test]
fn an_open_that_is_restricted_finds_files_in_a_tier() {
    let place = Workplace::new();
    let native = place.native(&[&program(&place, "restricted")]);
    assert_eq!(native.code, 0, "{native:?}");
    std::fs::remove_dir_all(place.root().join("d")).unwrap();
    std::fs::remove_file(place.root().join("top")).unwrap();
    holds_everywhere(&place, "restricted");
}

#[test]
fn less_common_looks_see_files_and_not_links() {
    let place = Workplace::new();
    holds_everywhere(&place, "looks");
}

#[test]
fn paths_that_mean_their_reader_mean_the_program() {
    let place = Wish::default().settle("1h").build();
    holds_everywhere(&place, "self");
}

/// What a run said, as its report has it.
#[track_caller]
fn warnings(outcome: &Outcome) -> String {
    let report = outcome.report.as_ref().unwrap_or_else(|| panic!("no report: {outcome:?}"));
    report["warnings"].to_string()
}

#[test]
fn what_a_run_refuses_is_told_of_by_name() {
    let place = Workplace::new();
    let (fixed, dynamic) = (program(&place, "refused"), dynamic(&place, "refused"));
    let said =
        [("io_uring", "was refused io_uring"), ("landlock", "was refused Landlock"), ("inotify", "with inotify")];
    for (what, words) in said {
        for (binary, flags) in [(&fixed, &["--supervise-only"][..]), (&dynamic, &[])] {
            let outcome = place.run_with(flags, &[binary, what]);
            assert_eq!(outcome.code, 0, "{binary} {what}: {outcome:?}");
            let warnings = warnings(&outcome);
            assert!(warnings.contains(words) && warnings.contains("refused"), "{binary} {what}: {warnings}");
        }
    }
    let mut loud = place.terrace("run");
    let outcome = Outcome::within(60, loud.args(["--", &fixed, "io_uring"]));
    assert_eq!(outcome.stderr.matches("was refused io_uring").count(), 1, "{outcome:?}");
}

#[test]
fn a_program_in_another_tree_is_let_alone_there_and_told_of() {
    if !terrace_tests::is_root() {
        terrace_tests::skipped("another tree takes root's rights");
        return;
    }
    if !terrace_tests::has_user_namespaces() {
        return;
    }
    let place = Wish::default().settle("1h").build();
    let views = program(&place, "views");
    for how in ["clone3", "unshare", "chroot", "user"] {
        let elsewhere = place.scratch().join(format!("tree-{how}"));
        let below = elsewhere.join(place.root().strip_prefix("/").unwrap());
        std::fs::create_dir_all(&below).unwrap();
        std::fs::write(below.join("data"), "theirs").unwrap();
        let outcome = place.run_with(&["--supervise-only"], &[&views, how, elsewhere.to_str().unwrap()]);
        assert_eq!(outcome.code, 0, "{how}: {outcome:?}");
        // In a tree below another top, the same text is of another file; by its own top, none of ours.
        let warnings = warnings(&outcome);
        assert!(
            how == "chroot" || warnings.contains("another root directory, mount or user namespace"),
            "{how}: {warnings}"
        );
    }
}

#[test]
fn a_program_of_32_bits_is_let_on_and_told_of() {
    let place = Workplace::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/supervise/bits32.c");
    let binary = place.scratch().join("bits32");
    let flags = ["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-pic", "-fno-stack-protector", "-o"];
    let made = Command::new("cc").args(flags).arg(&binary).arg(source).status().unwrap();
    if !made.success() || !Command::new(&binary).output().is_ok_and(|output| output.status.success()) {
        terrace_tests::skipped("this machine makes or runs no programs of 32 bits");
        return;
    }
    for (flags, shell) in [(&["--supervise-only"][..], "busybox"), (&[], "bash")] {
        let script = format!("{}; echo $?", binary.display());
        let outcome = place.run_with(
            flags,
            if shell == "bash" { vec!["bash", "-c", &script] } else { vec!["busybox", "sh", "-c", &script] }.as_slice(),
        );
        assert_eq!(outcome.stdout, "ran\n0\n", "{outcome:?}");
        let warnings = warnings(&outcome);
        assert!(warnings.contains("bits32 is a program of 32 bits"), "{warnings}");
    }
}

#[test]
fn a_program_that_loses_its_rights_is_told_of_however_it_is_named() {
    use std::os::unix::fs::PermissionsExt;
    if !terrace_tests::is_root_among_users() {
        return;
    }
    let place = Wish::default().user(1234).build();
    let other = place.scratch().join("other");
    std::fs::copy("/bin/true", &other).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let (full, name) = (other.display().to_string(), "is setuid or setgid");
    for shell in [&["busybox", "sh"][..], &["dash"]] {
        for script in ["cd $SCRATCH && ./other", "cd / && $SCRATCH/other", "cd $SCRATCH && PATH=. other"] {
            let outcome = place.run(&[shell, &["-c", script]].concat());
            assert_eq!(outcome.code, 0, "{outcome:?}");
            let warnings = warnings(&outcome);
            assert!(warnings.contains(name) && warnings.contains(&full), "{shell:?} {script}: {warnings}");
        }
    }
}

/// The keeper of this supervisor.
fn keeper_of(supervisor: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{supervisor}/stat")).unwrap();
    stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_run_whose_supervisor_and_keeper_are_killed_says_so_and_fails() {
    let place = Workplace::new();
    let script = "echo first > first; echo ready; read line; echo second > second; exit 0";
    for (exit, code) in [("exit 0", 70), ("exit 7", 7)] {
        let mut run =
            place.start_with(&["--supervise-only"], &["busybox", "sh", "-c", &script.replace("exit 0", exit)]);
        let first = place.root().join("first");
        let is_written = || std::fs::read_to_string(&first).is_ok_and(|text| text == "first\n");
        assert!(terrace_tests::wait_until(30, || is_written() && !supervisors(&place).is_empty()));
        let supervisor = supervisors(&place)[0];
        let keeper = keeper_of(supervisor);
        kill(keeper);
        kill(supervisor);
        std::thread::sleep(Duration::from_millis(100));
        std::io::Write::write_all(&mut run.stdin.take().unwrap(), b"go\n").unwrap();
        let outcome = Outcome::of_child(60, run);
        assert_eq!(outcome.code, code, "{outcome:?}");
        assert!(outcome.stderr.contains("the supervisor and its keeper were killed"), "{outcome:?}");
        assert_eq!(std::fs::read_to_string(place.root().join("first")).unwrap(), "first\n");
        let _ = std::fs::remove_file(place.root().join("first"));
    }
}
