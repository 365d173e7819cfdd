//! Small files of programs that were seen to make such: they are made in the root at once (docs/design/small-files.md).

use terrace_tests::{Outcome, Wish, Workplace};

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
const LESSONS: &str = "for i in range(12):\n\tmake(f'lesson{i}.dat', 100)\n\ttime.sleep(0.05)\n";

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
        assert_eq!(counter(&outcome, "creates_tier") + small, 76, "{door}");
        for i in 0..64 {
            assert_eq!(std::fs::read(place.root().join(format!("f{i}.dat"))).unwrap().len(), 100);
        }
    }
}

#[test]
fn habits_are_of_a_program_and_a_suffix() {
    let program = format!(
        "{LESSONS}for i in range(7): make(f'f{{i}}.other', 100)\n\
         for i in range(7): subprocess.run(['cp', 'lesson0.dat', f'copy{{i}}.dat'], check=True)\n"
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

#[test]
fn what_policy_drops_is_not_made_in_the_root() {
    let program = "os.mkdir('out'); os.mkdir('work')\n\
                   for i in range(12):\n\
                   \tmake(f'out/lesson{i}.dat', 100)\n\
                   \tmake(f'work/lesson{i}.dat', 100)\n\
                   \ttime.sleep(0.05)\n\
                   for i in range(64):\n\
                   \tmake(f'out/f{i}.dat', 100)\n\
                   \tmake(f'work/f{i}.dat', 100)\n";
    let policy = "flush = [\"**\", \"!work/**\"]\nevict = [\"work/**\"]";
    let (place, outcome) = run("directories = \"off\"", Wish::default().policy(policy), program);
    let small = counter(&outcome, "creates_small");
    assert!((60..=70).contains(&small), "{small}");
    // What is in the root when the run ends stays there.
    assert_eq!(std::fs::read_dir(place.root().join("work")).unwrap().count(), 0);
    assert_eq!(std::fs::read_dir(place.root().join("out")).unwrap().count(), 76);
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
