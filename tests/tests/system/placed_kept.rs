//! Directories that are to be durable and lie in a tier as a whole while their run works in them (`directories = "all"`): what they end
//! as is what a native run leaves, and what of them was copied in time survives their tier.

use crate::placed::{await_file, kill_all, lose, placed_at};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use terrace_tests::{Comparison, Outcome, Wish, Workplace, wait_until};
use terrace_tier::step::KILL_ENV;

const DOORS: [&str; 3] = ["preload", "both", "supervise"];

fn wish(door: &str) -> Wish {
    Wish::default().top(&format!("directories = \"all\"\ndoor = {door:?}")).tier("ram", "64MiB")
}

fn mirrors(place: &Workplace) -> Vec<std::path::PathBuf> {
    let nodes = std::fs::read_dir(place.root().join(".terrace/nodes")).into_iter().flatten().flatten();
    let kept = nodes.flat_map(|node| std::fs::read_dir(node.path().join("kept")).into_iter().flatten().flatten());
    kept.map(|entry| entry.path().join("d")).collect()
}

#[test]
fn a_directory_that_a_run_makes_lies_in_the_tier_until_its_end_and_is_whole_in_the_root_then() {
    for door in DOORS {
        let place = wish(door).build();
        std::fs::create_dir(place.root().join("old")).unwrap();
        let run = place.start(
            "mkdir -m 750 out; mkdir -p out/a/b; echo one > out/f; chmod 640 out/f; echo two > out/a/b/g; ln out/f out/a/h; ln -s ../f out/a/l; \
             mkfifo out/pipe; echo none > out/a/none; chmod 0 out/a/none; touch -d @1000 out/f out/a; mkdir old/new; echo three > old/new/f; \
             touch $SCRATCH/made; until [ -e $SCRATCH/seen ]; do sleep 0.05; done; cat out/a/b/g",
        );
        await_file(&place.scratch().join("made"));
        assert!(placed_at(&place, "out").is_some() && placed_at(&place, "old/new").is_some(), "{door}: not placed");
        assert!(placed_at(&place, "old").is_none(), "{door}: it was there before");
        std::fs::write(place.scratch().join("seen"), "").unwrap();
        assert_eq!(Outcome::of_child(100, run).ok().stdout, "two\n");
        let tree = place.settled_tree();
        assert_eq!(tree.leftovers(), Vec::<String>::new(), "{door}");
        let stat = |name: &str| std::fs::symlink_metadata(place.root().join(name)).unwrap();
        assert_eq!((stat("out").mode() & 0o7777, stat("out/f").mode() & 0o7777), (0o750, 0o640));
        assert_eq!((stat("out/f").nlink(), stat("out/f").mtime(), stat("out/a").mtime()), (2, 1000, 1000));
        assert_eq!(stat("out/f").ino(), stat("out/a/h").ino());
        assert_eq!(std::fs::read_link(place.root().join("out/a/l")).unwrap().to_str(), Some("../f"));
        assert_eq!(stat("out/pipe").mode() & libc::S_IFMT, libc::S_IFIFO);
        assert_eq!(stat("out/a/none").mode() & 0o7777, 0);
        assert_eq!((tree.bytes("out/a/b/g"), tree.bytes("old/new/f")), (&b"two\n"[..], &b"three\n"[..]), "{door}");
    }
}

#[test]
fn programs_leave_what_they_leave_natively() {
    let scripts = [
        "mkdir src; for i in $(seq 60); do mkdir -p src/d$((i % 7)); echo $i > src/d$((i % 7))/f$i; done; find src -exec touch -d @1000 {} +; tar cf a.tar src; rm -r src; tar xf a.tar; rm a.tar; \
         mv src/d1 src/e1; mv src moved; cd moved/d2; pwd -P | sed 's/.*\\(moved\\)/\\1/'; cd ..; ls | sort; rm -r d3; cp -a d4 ../copy; find .. | sort",
        "git init -q repo; cd repo; git config user.email a@b; git config user.name a; echo one > f; git add f; git commit -qm one; \
         git clone -q . ../clone; cd ../clone; git status --short; git worktree add -q ../tree; ls ../tree; git log --format=%s; cd ..; cat */f; rm -rf repo/.git clone/.git tree/.git",
        "mkdir scratch; echo new > scratch/new; mv scratch/new result; mkdir build; cd build; echo x > x; echo y > y; cd ..; mv result build/; cat build/result; mv build/x up; \
         ls build up; mkdir -p deep/er; mv build deep/er/; ls deep/er/build; rmdir scratch",
    ];
    for door in DOORS {
        for script in scripts {
            eprintln!("by {door}:");
            Comparison::with(wish(door)).agrees_on(script).ok();
        }
    }
}

/// A run that waits in the middle, with all that it has made copied by then.
fn mirrored(place: &Workplace, script: &str, last: &str) -> std::process::Child {
    let run = place.start(&format!("{script}; touch $SCRATCH/made; until [ -e $SCRATCH/go ]; do sleep 0.05; done"));
    await_file(&place.scratch().join("made"));
    let is_there = || mirrors(place).iter().any(|mirror| mirror.join(last).exists());
    assert!(wait_until(60, is_there), "no copy: {:?}", mirrors(place));
    run
}

#[test]
fn what_was_copied_in_time_survives_the_tier() {
    let place = wish("preload").build();
    let run = mirrored(&place, "mkdir out; mkdir out/d; echo one > out/d/f; echo old > out/g", "g");
    // What is written after that is lost, and what is half copied as well.
    let mirror = mirrors(&place).pop().unwrap();
    assert!(wait_until(60, || mirror.parent().unwrap().join("copied").exists()));
    std::fs::write(mirror.join("half"), "ha").unwrap();
    let tier = placed_at(&place, "out").unwrap();
    kill_all(&place, run);
    lose(&tier);
    let recovered = Outcome::within(100, &mut place.terrace("recover"));
    assert!(recovered.stdout.contains("out: back in its last durable version"), "{recovered:?}");
    let tree = place.settled_tree();
    assert_eq!(tree.leftovers(), Vec::<String>::new());
    assert_eq!((tree.bytes("out/d/f"), tree.bytes("out/g")), (&b"one\n"[..], &b"old\n"[..]));
    assert!(!place.root().join("out/half").exists());
}

#[test]
fn a_directory_that_was_lost_before_it_was_copied_is_told() {
    let place = wish("preload").build();
    let run = place.start("mkdir out; echo one > out/f; touch $SCRATCH/made; sleep 60");
    await_file(&place.scratch().join("made"));
    let tier = placed_at(&place, "out").unwrap();
    kill_all(&place, run);
    for mirror in mirrors(&place) {
        std::fs::remove_dir_all(mirror.parent().unwrap()).unwrap();
    }
    lose(&tier);
    let recovered = Outcome::within(100, &mut place.terrace("recover"));
    assert!(recovered.code != 0 && recovered.stderr.contains("out"), "{recovered:?}");
}

#[test]
fn what_changed_after_it_was_copied_is_copied_again() {
    // By a mapping as well, which in memory changes no time.
    let place = wish("preload").build();
    std::fs::write(
        place.scratch().join("map.py"),
        "import mmap, os, sys\nf = os.open('out/mapped', os.O_RDWR)\nm = mmap.mmap(f, 0)\nos.close(f)\n\
         s = os.stat('out/mapped')\nm[:5] = b'after'\nm.close()\n",
    )
    .unwrap();
    let script = "mkdir out; mkdir out/gone; printf before > out/mapped; printf before > out/written; printf x > out/renamed; printf y > out/gone/f";
    let run = place.start(&format!(
        "{script}; touch $SCRATCH/made; until [ -e $SCRATCH/go ]; do sleep 0.05; done; python3 $SCRATCH/map.py; \
         printf after > out/written; mv out/renamed out/again; rm -r out/gone; mkdir out/renamed; printf z > out/renamed/z"
    ));
    await_file(&place.scratch().join("made"));
    let are_there =
        || mirrors(&place).iter().any(|mirror| mirror.join("gone/f").exists() && mirror.join("renamed").exists());
    assert!(wait_until(60, are_there));
    std::fs::write(place.scratch().join("go"), "").unwrap();
    Outcome::of_child(100, run).ok();
    let tree = place.settled_tree();
    assert_eq!(tree.leftovers(), Vec::<String>::new());
    assert_eq!((tree.bytes("out/mapped"), tree.bytes("out/written")), (&b"aftere"[..], &b"after"[..]));
    assert_eq!((tree.bytes("out/again"), tree.bytes("out/renamed/z")), (&b"x"[..], &b"z"[..]));
    assert!(!place.root().join("out/gone").exists());
}

#[test]
fn flush_makes_a_directory_real_where_nobody_is_in_it_and_durable_where_somebody_is() {
    let place = wish("both").build();
    let run = place.start(
        "mkdir out in; echo one > out/f; cd in; echo two > g; touch $SCRATCH/made; until [ -e $SCRATCH/go ]; do sleep 0.05; done; echo three >> g; echo more > ../out/h",
    );
    await_file(&place.scratch().join("made"));
    let flushed = Outcome::within(60, &mut place.terrace("flush"));
    let real = std::fs::symlink_metadata(place.root().join("out")).unwrap();
    assert!(real.is_dir(), "{flushed:?}");
    assert_eq!(std::fs::read_to_string(place.root().join("out/f")).unwrap(), "one\n");
    assert!(placed_at(&place, "in").is_some(), "a program is in it");
    assert!(mirrors(&place).iter().any(|mirror| mirror.join("g").exists()), "{flushed:?}");
    std::fs::write(place.scratch().join("go"), "").unwrap();
    Outcome::of_child(100, run).ok();
    let tree = place.settled_tree();
    assert_eq!(tree.leftovers(), Vec::<String>::new());
    assert_eq!((tree.bytes("in/g"), tree.bytes("out/h")), (&b"two\nthree\n"[..], &b"more\n"[..]));
}

#[test]
fn a_kill_of_the_agent_at_any_moment_leaves_the_directory_whole() {
    let script =
        "mkdir out; mkdir out/d; for i in 1 2 3 4 5 6 7 8; do echo $i > out/d/$i; done; sleep 1.5; echo nine > out/d/9";
    let is_whole = |place: &Workplace| {
        let tree = place.settled_tree();
        assert_eq!(tree.leftovers(), Vec::<String>::new());
        (1..=8).for_each(|i| assert_eq!(tree.bytes(&format!("out/d/{i}")), format!("{i}\n").as_bytes()));
        assert_eq!(tree.bytes("out/d/9"), b"nine\n");
    };
    let place = wish("preload").build();
    let mut run = place.terrace("run");
    run.args(["--", "sh", "-c", script]).env(KILL_ENV, "FlushRenamed");
    let _ = Outcome::within(100, &mut run);
    let _ = Outcome::within(100, &mut place.terrace("recover"));
    is_whole(&place);
    for wait in [0.2, 1.2, 1.45] {
        let place = wish("preload").build();
        let run = place.start(&format!("touch $SCRATCH/made; {script}"));
        await_file(&place.scratch().join("made"));
        std::thread::sleep(std::time::Duration::from_secs_f64(wait));
        let pid = place.status().unwrap().agent_pid;
        assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
        Outcome::of_child(100, run).ok();
        is_whole(&place);
    }
}

#[test]
fn a_full_tier_spills_and_what_it_spilled_is_in_its_place_afterwards() {
    for tiers in [1, 2] {
        let mut wished = Wish::default().top("directories = \"all\"\ndoor = \"preload\"").tier("ram", "4MiB");
        if tiers == 2 {
            wished = wished.tier("disk", "64MiB");
        }
        let place = wished.build();
        place
            .sh("mkdir out; for i in 1 2 3 4 5 6; do head -c 2000000 /dev/zero | tr '\\0' $i > out/$i; done; sha256sum out/* > sums")
            .ok();
        let tree = place.settled_tree();
        assert_eq!(tree.leftovers(), Vec::<String>::new());
        for i in 1..=6 {
            let bytes = tree.bytes(&format!("out/{i}"));
            assert!(bytes.len() == 2_000_000 && bytes.iter().all(|&byte| byte == b'0' + i as u8), "{tiers} tiers, {i}");
        }
    }
}

#[test]
fn explain_and_status_tell_of_it() {
    let place = wish("preload").build();
    let mut explain = place.terrace("explain");
    let explained = Outcome::within(20, explain.arg(place.root().join("out"))).ok().stdout;
    assert!(explained.contains("policy flushes all that may be in it"), "{explained}");
    let run = mirrored(&place, "mkdir out; echo one > out/f; echo two > out/g", "g");
    let is_told = || place.status().is_some_and(|status| status.tiers[0].files == 2 && status.unflushed_files == 0);
    assert!(wait_until(30, is_told), "{:?}", place.status());
    std::fs::write(place.scratch().join("go"), "").unwrap();
    Outcome::of_child(100, run).ok();
}
