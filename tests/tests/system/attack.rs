//! Races, odd places and small stacks: each of these once lost bytes, crashed a program, or showed a wrong file.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_core::control::Request;
use terrace_tests::{Wish, Workplace, compile};

const RENAME_RACE: &str = include_str!("attack/rename_race.c");
const STALE_DESCRIPTOR: &str = include_str!("attack/stale_descriptor.c");
const INODE_AGAIN: &str = include_str!("attack/inode_again.c");
const SMALL_STACK: &str = include_str!("attack/small_stack.c");
const MODEL: &str = include_str!("attack/model.py");

fn program(place: &Workplace, name: &str, source: &str) -> String {
    compile(&place.scratch(), name, source).to_str().unwrap().to_owned()
}

#[test]
fn a_file_that_got_away_before_its_name_was_replaced_is_kept() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let race = program(&place, "rename_race", RENAME_RACE);
    place.run(&[&race]).ok();
}

#[test]
fn files_and_directories_leave_the_root_as_real_files() {
    let place = Wish::default().settle("10s").build();
    let said = place
        .sh(r#"mkdir d; echo one > d/closed; exec 5> d/open; echo two >&5
               mv d "$SCRATCH/d"; echo three >&5; cat "$SCRATCH/d/closed" "$SCRATCH/d/open"
               echo four > f; mv f "$SCRATCH/f"; cat "$SCRATCH/f"
               mkdir e; echo five > e/g; mv e "$SCRATCH/e/"; cat "$SCRATCH/e/g""#)
        .ok();
    assert_eq!(said.stdout, "one\ntwo\nthree\nfour\nfive\n");
    place.wait_for_the_agents_end();
    for (name, bytes) in [("d/closed", "one\n"), ("d/open", "two\nthree\n"), ("f", "four\n"), ("e/g", "five\n")] {
        let path = place.scratch().join(name);
        assert!(path.symlink_metadata().unwrap().is_file(), "{name} is no file");
        assert_eq!(std::fs::read_to_string(path).unwrap(), bytes);
    }
}

#[test]
fn a_file_elsewhere_that_gets_a_removed_files_inode_is_left_alone() {
    let place = Workplace::new();
    let (tier, elsewhere) = (place.scratch().join("tier"), place.scratch().join("elsewhere"));
    [&tier, &elsewhere].into_iter().for_each(|directory| std::fs::create_dir(directory).unwrap());
    // The tier on the durable file system, which gives inode numbers again at once.
    let settings = std::fs::read_to_string(place.config()).unwrap();
    let quoted = |path: &Path| format!("{path:?}");
    let settings = settings.replace(&quoted(&place.tier("ram")), &quoted(&tier));
    std::fs::write(place.config(), settings).unwrap();
    let again = program(&place, "inode_again", INODE_AGAIN);
    assert_eq!(place.run(&[&again, elsewhere.to_str().unwrap()]).ok().stdout, "");
}

#[test]
fn what_a_vfork_child_does_with_its_descriptors_is_not_taken_for_its_parents() {
    let place = Workplace::new();
    std::fs::write(place.root().join("durable"), "durable\n").unwrap();
    let stale = program(&place, "stale_descriptor", STALE_DESCRIPTOR);
    assert_eq!(place.run(&[&stale, "vfork"]).ok().stdout, "BYTES\n");
    assert!(place.settled_tree().bytes("file").starts_with(b"BYTES"));
}

#[test]
fn a_vfork_childs_working_directory_is_not_taken_for_its_parents() {
    let place = Wish::default().settle("10s").build();
    let python = "
import os, subprocess
subprocess.run(['./true'], cwd='/bin')
open('a', 'w').write('x'); os.rename('a', 'b'); print(os.path.islink('b'), os.listdir('.'))";
    let said = place.run(&["/usr/bin/python3", "-c", python]).ok();
    assert_eq!(said.stdout, "False ['b']\n");
    assert_eq!(place.settled_tree().bytes("b"), b"x");
}

#[test]
fn an_asynchronous_write_to_a_file_that_outgrew_its_tier_is_kept() {
    let place = Workplace::new();
    let stale = program(&place, "stale_descriptor", STALE_DESCRIPTOR);
    assert_eq!(place.run(&[&stale, "aio"]).ok().stdout, "BYTES\n");
    assert!(place.settled_tree().bytes("file").starts_with(b"BYTES"));
}

#[test]
fn a_thread_with_the_smallest_stack_can_make_rename_and_link_files() {
    let place = Workplace::new();
    let small = program(&place, "small_stack", SMALL_STACK);
    assert_eq!(place.run(&[&small]).ok().stdout, "fine\n");
}

/// Runs the model in the root; `act` is called all the while with a growing number.
fn model_holds(place: &Workplace, seed: u32, act: impl Fn(u64) + Sync) {
    let script = place.scratch().join("model.py");
    std::fs::write(&script, MODEL).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..).take_while(|_| !done.load(Relaxed)).for_each(&act));
        let outcome = place.run(&["/usr/bin/python3", script.to_str().unwrap(), &seed.to_string(), "5", "2"]);
        done.store(true, Relaxed);
        outcome.ok();
    });
    let tree = place.settled_tree();
    for worker in 0..2 {
        assert!(!tree.bytes(&format!("sums{worker}")).is_empty());
        place.native_sh(&format!("sha1sum -c --quiet sums{worker}")).ok();
    }
}

#[test]
fn every_file_is_what_a_model_says_while_it_is_flushed_evicted_and_brought_up() {
    let place = Wish::default().settle("1ms").mover("fsync = false").build();
    model_holds(&place, 1, |turn| {
        place.ask(&match turn % 3 {
            0 => Request::Flush { paths: vec![], all: true, end_of_run: false },
            1 => Request::Evict { paths: vec![] },
            _ => Request::Prefetch { paths: vec![place.root().to_owned()] },
        });
        std::thread::sleep(std::time::Duration::from_millis(turn * 7 % 13));
    });
}
