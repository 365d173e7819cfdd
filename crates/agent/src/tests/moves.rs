//! Files that change while they move, and files that move while they are open.

use super::simulated::{Place, Program};
use super::{QUIET, flush};
use crate::shared::request::Scope;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::*};
use terrace_index::State;

/// Flushes and evicts all the time until the work is done.
fn while_all_moves(place: &Place, work: impl FnOnce() + Send) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            work();
            is_done.store(true, SeqCst);
        });
        while !is_done.load(SeqCst) {
            place.agent().flush(&Scope(vec![]), &QUIET, &mut |_, _, _, _| true);
            place.agent().evict_all(&Scope(vec![]), &mut |_, _, _, _| true);
        }
    });
}

#[test]
fn a_file_renamed_during_its_flush_is_durable_under_its_last_name_only() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    while_all_moves(&place, || {
        for round in 0..60 {
            let bytes = format!("round {round}").into_bytes();
            program.write("a", &bytes);
            for step in 0..3 {
                program.rename(["a", "b", "c"][step], ["b", "c", "d"][step]);
            }
            assert_eq!(place.read("d"), bytes);
            for name in ["a", "b", "c"] {
                assert!(!place.path(name).exists() && !place.is_link(name), "{name} came back");
            }
            program.unlink("d");
        }
    });
}

#[test]
fn a_file_unlinked_during_its_flush_does_not_come_back() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    while_all_moves(&place, || {
        for round in 0..200 {
            program.write("f", format!("round {round}").as_bytes());
            if round % 3 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(round % 7));
            }
            program.unlink("f");
            assert!(std::fs::symlink_metadata(place.path("f")).is_err(), "round {round}: it came back");
        }
    });
    place.wait_for("the objects to go", || {
        flush(&place);
        place.objects() == 0
    });
}

#[test]
fn a_writer_that_comes_during_the_copy_wins() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    program.write("f", &vec![1; 4 << 20]);
    for round in 0..20u8 {
        place.agent().schedule.now(crate::shared::schedule::Work::Flush, 0);
        std::thread::sleep(std::time::Duration::from_micros(300 * round as u64));
        if !place.is_link("f") {
            break;
        }
        // The open waits for the mover's lease at most for a chunk.
        let opened = std::time::Instant::now();
        let mut file = std::fs::File::options().append(true).open(place.path("f")).unwrap();
        assert!(opened.elapsed() < std::time::Duration::from_secs(2));
        if place.is_link("f") {
            file.write_all(b"x").unwrap();
        }
        drop(file);
        let expected = std::fs::read(place.path("f")).unwrap();
        assert!(expected.starts_with(&[1; 1000]));
    }
    let before = place.read("f");
    place.wait_for("the flush", || !place.is_link("f"));
    assert_eq!(place.read("f"), before);
}

#[test]
fn a_file_that_outgrows_its_tier_goes_to_the_next_one_and_its_descriptors_follow() {
    let place = Place::new(&[1 << 20, 8 << 20]);
    let program = Program::new(&place);
    let (number, file) = program.create("f", b"begin ");
    let copy = file.try_clone().unwrap(); // one offset
    let agent = place.agent();
    let old: OwnedFd = file.into();
    assert_eq!(agent.grow(number, &old, 4 << 20), 0);
    assert_eq!(agent.record(number).state(), State::Moved);
    let mut new = std::fs::File::from(agent.exchange(number, &old).unwrap());
    new.write_all(b"middle ").unwrap();
    let mut also_new = std::fs::File::from(agent.exchange(number, &copy.into()).unwrap());
    also_new.write_all(b"end").unwrap();
    assert_eq!(place.read("f"), b"begin middle end");
    let target = agent.record(number).moved_to.load(SeqCst) - 1;
    assert_eq!(agent.record(target).device.load(SeqCst), 1);
    assert_eq!(agent.record(target).ino.load(SeqCst), agent.index.shown_ino(agent.serial(number)));
    drop((old, new, also_new));
    place.wait_for("the flush", || !place.is_link("f"));
    assert_eq!(place.read("f"), b"begin middle end");
}

#[test]
fn the_new_place_is_not_flushed_before_its_writer_has_come() {
    let place = Place::new(&[1 << 20, 8 << 20]);
    let program = Program::new(&place);
    let (number, file) = program.create("f", b"");
    let old: OwnedFd = file.into();
    assert_eq!(place.agent().grow(number, &old, 4 << 20), 0);
    let outcome = flush(&place);
    assert_eq!((outcome.files, place.is_link("f")), (0, true), "its writer still has the old descriptor");
    let mut new = std::fs::File::from(place.agent().exchange(number, &old).unwrap());
    new.write_all(b"late").unwrap();
    drop((old, new));
    place.wait_for("the flush", || !place.is_link("f"));
    assert_eq!(place.read("f"), b"late");
}

#[test]
fn an_unlinked_file_moves_as_well() {
    let place = Place::new(&[1 << 20]);
    let program = Program::new(&place);
    let (number, file) = program.create("f", b"nameless");
    program.unlink("f");
    let old: OwnedFd = file.into();
    assert_eq!(place.agent().grow(number, &old, 4 << 20), 0);
    let mut new = std::fs::File::from(place.agent().exchange(number, &old).unwrap());
    new.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    new.read_to_string(&mut text).unwrap();
    assert_eq!(text, "nameless");
    assert_eq!(rustix::fs::fstat(&new).unwrap().st_nlink, 0);
    assert!(std::fs::read_dir(place.agent().tmp_dir()).unwrap().next().is_none());
}

#[test]
fn a_locked_file_stays_and_may_grow_beyond_its_tier() {
    let place = Place::new(&[1 << 20]);
    let program = Program::new(&place);
    let (number, file) = program.create("f", b"x");
    file.lock().unwrap();
    let old: OwnedFd = file.into();
    assert_eq!(place.agent().grow(number, &old, 4 << 20), 0);
    assert_eq!(place.agent().record(number).state(), State::Current);
    assert!(place.agent().record(number).reserved.load(SeqCst) >= 4 << 20);
}

#[test]
fn a_settled_file_is_a_real_one_although_it_is_open() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let (number, file) = program.create("f", b"open ");
    place.agent().settle(number).unwrap();
    assert!(!place.is_link("f"));
    let mut new = std::fs::File::from(place.agent().exchange(number, &file.into()).unwrap());
    new.write_all(b"and written").unwrap();
    assert_eq!(place.read("f"), b"open and written");
}

#[test]
fn a_reader_of_an_evicted_replica_is_given_the_roots_file() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let number = program.write("f", b"version 1");
    flush(&place);
    let reader = std::fs::File::open(place.agent().object_path(number)).unwrap();
    let outcome = place.agent().evict_all(&Scope(vec![place.path("f")]), &mut |_, _, _, _| true);
    assert_eq!((outcome.files, place.objects()), (1, 0));
    std::fs::write(place.path("f"), b"version 2").unwrap();
    let new = place.agent().exchange(number, &reader.as_fd().try_clone_to_owned().unwrap()).unwrap();
    let mut text = String::new();
    std::fs::File::from(new).read_to_string(&mut text).unwrap();
    assert_eq!(text, "version 2");
}
