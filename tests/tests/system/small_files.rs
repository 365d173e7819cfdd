//! Small files of programs that were seen to make such: they are made in the root at once (docs/design/small-files.md).

use std::process::Command;
use terrace_tests::{Outcome, SlowTier, Wish, Workplace, is_root, skipped};

/// Runs Python with `make(NAME, SIZE, THEN)`, and settings beside the learning of habits.
fn run(settings: &str, wish: Wish, program: &str) -> (Workplace, Outcome) {
    // Nothing is flushed meanwhile: what is looked at lies where it was made.
    let place = wish.top(&format!("small_files = \"learn\"\n{settings}")).settle("1h").tier("ram", "64MiB").build();
    let script = format!(
        "import os, subprocess, time\n\
         def make(name, size, then=lambda file: None):\n\
         \twith open(name, 'wb') as file:\n\
         \t\tfile.write(name.encode().ljust(size, b'.'))\n\
         \t\tfile.flush()\n\
         \t\tthen(file)\n\
         {program}"
    );
    std::fs::write(place.scratch().join("script.py"), script).unwrap();
    let outcome = place.sh("python3 $SCRATCH/script.py").ok();
    (place, outcome)
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    outcome.report.as_ref().unwrap()["counters"][name].as_u64().unwrap()
}

/// In turn, with time to look at each.
const LESSONS: &str = "for i in range(9):\n\tmake(f'lesson{i}.dat', 100)\n\ttime.sleep(0.05)\n";

#[test]
fn a_program_that_makes_small_files_makes_the_next_ones_in_the_root() {
    let program = format!(
        "{LESSONS}for i in range(64): make(f'f{{i}}.dat', 100)\n\
         for i in range(64):\n\
         \tassert open(f'f{{i}}.dat').read().rstrip('.') == f'f{{i}}.dat'\n"
    );
    for door in ["preload", "supervise", "both"] {
        let (place, outcome) = run(&format!("door = {door:?}"), Wish::default(), &program);
        let small = counter(&outcome, "creates_small");
        // All but samples; the last lessons are made when the first ones are over.
        assert!((60..=70).contains(&small), "{door}: {small}");
        assert_eq!(counter(&outcome, "creates_tier") + small, 73, "{door}");
        for i in 0..64 {
            assert_eq!(std::fs::read(place.root().join(format!("f{i}.dat"))).unwrap().len(), 100);
        }
    }
}

#[test]
fn a_run_that_made_many_small_files_in_directories_of_its_own_is_told_of_the_setting_that_places_them() {
    let Some(durable) = SlowTier::mount(&["--cache-ttl-ms", "0"]) else { return };
    let program = "os.makedirs('made')\nfor i in range(300): make(f'made/f{i}.dat', 100)\n";
    let beside = "here = os.getcwd()\nos.chdir(os.environ['SCRATCH'])\nos.mkdir('one')\nos.mkdir('one/../two')\nos.chdir(here)\n\
                  for i in range(300): make(f'f{i}.dat', 100)\n";
    // What the report says of it is a test of its own (crates/cli/src/report/gain.rs).
    let is_told = |settings: &str, wish, program: &str| {
        let (_place, outcome) = run(settings, wish, program);
        counter(&outcome, "creates_small") >= 200 && counter(&outcome, "unplaced_directories") > 0
    };
    let on_server = || Wish::default().root(&durable.root());
    assert!(is_told("", on_server(), program));
    assert!(!is_told("directories = \"all\"", on_server(), &program.replace("made", "placed")));
    assert!(!is_told("", on_server(), beside), "no directory was made in the root");
    assert!(!is_told("", Wish::default(), program), "a disk of this machine gains little");
}

/// Who closes a file sees how large it has become: the agent, which looks later, would let a program that is quick make many more in tiers.
#[test]
fn a_program_that_makes_many_small_files_at_once_makes_the_sixth_in_the_root() {
    let written = "for i in range(300): make(f'f{i}.dat', 100)\n";
    let stdio = "subprocess.run(['awk', 'BEGIN { for (i = 0; i < 300; i++) { f = \"f\" i \".dat\"; print \"x\" > f; close(f) } }'], check=True)\n";
    for (program, door) in [(written, "preload"), (written, "both"), (stdio, "both")] {
        let (_place, outcome) = run(&format!("door = {door:?}"), Wish::default(), program);
        let in_tier = counter(&outcome, "creates_tier");
        assert!((5..=5 + 10).contains(&in_tier), "{door}: {in_tier} of 300 files in a tier");
    }
}

#[test]
fn habits_are_of_a_program_and_a_suffix() {
    let program = format!(
        "{LESSONS}for i in range(4): make(f'f{{i}}.other', 100)\n\
         for i in range(4): subprocess.run(['cp', 'lesson0.dat', f'copy{{i}}.dat'], check=True)\n"
    );
    let (_place, outcome) = run("", Wish::default(), &program);
    assert!(counter(&outcome, "creates_small") <= 4);
}

#[test]
fn large_files_go_to_tiers() {
    let program = "for i in range(30):\n\tmake(f'f{i}.dat', 100_000)\n\ttime.sleep(0.02)\n";
    let (_place, outcome) = run("", Wish::default(), program);
    assert_eq!(counter(&outcome, "creates_small"), 0);
}

/// The first one lies in the root, as its name said that it would be small.
#[test]
fn a_large_file_of_a_program_that_makes_small_ones_sends_the_next_to_a_tier() {
    let stdio = "subprocess.run(['awk', '''BEGIN {
        for (i = 0; i < 9; i++) { f = \"lesson\" i \".dat\"; print \"x\" > f; close(f); system(\"sleep 0.05\") }
        for (i = 0; i < 5; i++) { f = \"f\" i \".dat\"; for (k = 0; k < 20000; k++) print \"line \" k > f; close(f) } }'''], check=True)\n";
    let written = format!("{LESSONS}for i in range(5): make(f'f{{i}}.dat', 1_000_000)\n");
    let made_large =
        format!("{LESSONS}for i in range(5): make(f'f{{i}}.dat', 9, lambda file: file.truncate(1_000_000))\n");
    let copied = "open('large', 'wb').write(b'.' * 1_000_000)\nfor i in range(9): make(f'lesson{i}.dat', 100); subprocess.run(['cp', \
                  f'lesson{i}.dat', f'copy{i}.dat'], check=True); time.sleep(0.05)\n\
                  for i in range(5): subprocess.run(['cp', 'large', f'f{i}.dat'], check=True)\n";
    for program in [stdio, &written, &made_large, copied] {
        let (place, outcome) = run("", Wish::default(), program);
        let small = counter(&outcome, "creates_small");
        let in_tier = counter(&outcome, "creates_tier");
        let most = if program == copied { 10 } else { 6 };
        assert!((1..=most).contains(&small) && in_tier >= 14 - small, "{small} and {in_tier}: {program}");
        for i in 0..5 {
            assert!(std::fs::metadata(place.root().join(format!("f{i}.dat"))).unwrap().len() > 200_000, "{program}");
        }
    }
}

#[test]
fn a_small_file_that_is_written_over_and_over_ends_no_habit() {
    let program = format!(
        "{LESSONS}make('over.dat', 4096, lambda file: [(os.pwrite(file.fileno(), b'.' * 4096, 0)) for _ in range(100)])\n\
         for i in range(40): make(f'f{{i}}.dat', 100)\n"
    );
    let (_place, outcome) = run("", Wish::default(), &program);
    assert!(counter(&outcome, "creates_small") >= 40, "{outcome:?}");
}

#[test]
fn small_files_that_are_read_again_and_again_go_to_tiers() {
    let program = format!(
        "{LESSONS}for _ in range(10): open('lesson0.dat').read()\n\
         for i in range(40): make(f'f{{i}}.dat', 100)\n"
    );
    let (_place, outcome) = run("door = \"preload\"", Wish::default(), &program);
    assert!(counter(&outcome, "creates_small") <= 4);
}

#[test]
fn small_files_that_are_synced_go_to_tiers() {
    let program = "for i in range(40):\n\
                   \tmake(f'f{i}.dat', 100, lambda file: os.fsync(file.fileno()))\n\
                   \ttime.sleep(0.02)\n";
    let (_place, outcome) = run("door = \"preload\"", Wish::default(), program);
    assert_eq!(counter(&outcome, "creates_small"), 0);
}

/// What is in the root when a run ends stays there, by whatever name it was made.
#[test]
fn where_policy_drops_some_files_nothing_is_learnt() {
    let program = "os.makedirs('out', exist_ok=True); os.makedirs('work', exist_ok=True)\n\
                   for i in range(12):\n\
                   \tmake(f'out/lesson{i}.dat', 100)\n\
                   \tmake(f'lesson{i}.tmp', 100)\n\
                   \tmake(f'work/lesson{i}.dat', 100)\n\
                   \ttime.sleep(0.05)\n\
                   for i in range(40):\n\
                   \tmake(f'out/f{i}.dat', 100)\n\
                   \tos.rename(f'out/f{i}.dat', f'work/moved{i}.dat')\n\
                   \tmake(f'work/f{i}.dat', 100)\n\
                   \tmake(f'f{i}.tmp', 100)\n";
    let policy = "flush = [\"**\", \"!work/**\", \"!*.tmp\"]\nevict = [\"work/**\", \"*.tmp\"]";
    let (place, outcome) = run("directories = \"off\"", Wish::default().policy(policy), program);
    assert_eq!(counter(&outcome, "creates_small"), 0);
    assert_eq!(std::fs::read_dir(place.root().join("work")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(place.root().join("out")).unwrap().count(), 12);
    assert_eq!(std::fs::read_dir(place.root()).unwrap().count(), 2);
}

#[test]
fn small_files_that_are_written_again_and_again_go_to_tiers() {
    let program = format!(
        "{LESSONS}for _ in range(2): open('lesson0.dat', 'r+').write('again')\n\
         for i in range(40): make(f'f{{i}}.dat', 100)\n"
    );
    let (_place, outcome) = run("door = \"preload\"", Wish::default(), &program);
    assert!(counter(&outcome, "creates_small") <= 4);
}

#[test]
fn names_that_are_there_are_counted_for_nothing() {
    let program = format!(
        "{LESSONS}for i in range(10): make(f'f{{i}}.dat', 100)\n\
         for i in range(200):\n\
         \twith open(f'f{{i % 10}}.dat', 'a') as file: file.write('more')\n"
    );
    let (place, outcome) = run("", Wish::default(), &program);
    assert!(counter(&outcome, "creates_small") <= 14);
    for i in 0..10 {
        assert_eq!(std::fs::read(place.root().join(format!("f{i}.dat"))).unwrap().len(), 100 + 20 * 4);
    }
}

/// A tier has room for what the root has not until the program has removed something.
#[test]
fn a_root_without_room_is_left_to_what_must_be_there() {
    if !is_root() {
        return skipped("a file system of 4 MiB is mounted by root");
    }
    let program = format!(
        "{LESSONS}for i in range(900):\n\
         \tmake(f'f{{i}}.dat', 8000)\n\
         \tif i >= 450: os.unlink(f'f{{i - 450}}.dat')\n\
         for i in range(450, 900):\n\
         \tif i % 3: os.unlink(f'f{{i}}.dat')\n"
    );
    assert_eq!(counter(&run_in_a_root_of("4m", 0, &program), "creates_small"), 0);
}

#[test]
fn a_root_that_has_room_again_gets_small_files_again() {
    if !is_root() {
        return skipped("a file system of 100 MiB is mounted by root");
    }
    let program = format!(
        "{LESSONS}os.unlink('large')\n\
         time.sleep(3)\n\
         for i in range(100):\n\
         \tmake(f'f{{i}}.dat', 100)\n\
         \ttime.sleep(0.02)\n"
    );
    assert!(counter(&run_in_a_root_of("100m", 60 << 20, &program), "creates_small") > 0);
}

/// Of which so many bytes are taken by `large`.
fn run_in_a_root_of(size: &str, taken: usize, program: &str) -> Outcome {
    let root = tempfile::tempdir_in("/var/tmp").unwrap();
    let mount = |arguments: &[&str]| Command::new(arguments[0]).args(&arguments[1..]).status().unwrap().success();
    let at = root.path().to_str().unwrap();
    assert!(mount(&["mount", "-t", "tmpfs", "-o", &format!("size={size},mode=755"), "small", at]));
    std::fs::write(root.path().join("large"), vec![0; taken]).unwrap();
    let outcome = std::panic::catch_unwind(|| run("", Wish::default().root(root.path()), program).1);
    assert!(mount(&["umount", "-l", at]));
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[test]
fn a_program_that_writes_its_small_files_anew_writes_them_where_they_are() {
    let program = format!(
        "if not os.path.exists('old0.dat'):\n\
         \tfor i in range(20): make(f'old{{i}}.dat', 100)\n\
         else:\n\
         \t{}\n\
         \tfor i in range(20): make(f'old{{i}}.dat', 50)\n",
        LESSONS.trim_end().replace('\n', "\n\t")
    );
    let (place, _) = run("", Wish::default(), &program);
    let again = place.sh("python3 $SCRATCH/script.py").ok();
    // Lessons, and samples.
    assert!(counter(&again, "creates_tier") <= 14, "{}", counter(&again, "creates_tier"));
    for i in 0..20 {
        assert_eq!(std::fs::read(place.root().join(format!("old{i}.dat"))).unwrap().len(), 50);
    }
}
