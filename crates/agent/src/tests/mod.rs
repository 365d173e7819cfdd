//! The agent with programs that are simulated: they create, write, rename and unlink as the preload library does.

mod crash;
mod moves;
mod simulated;

use crate::files::mover::evict::Eviction;
use crate::shared::request::{FlushOptions, Outcome, Scope};
use simulated::{Place, Program};
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use terrace_index::State;

const QUIET: FlushOptions = FlushOptions { all: false, end_of_run: false, settle_open: false };

fn flush(place: &Place) -> Outcome {
    place.agent().flush(&Scope(vec![]), &QUIET, &mut |_, _, _, _| true)
}

#[test]
fn a_closed_file_becomes_durable_and_its_name_a_real_file() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    std::fs::create_dir(place.path("d e")).unwrap();
    let number = program.write("d e/f\n", b"hello");
    assert!(place.is_link("d e/f\n"));
    let outcome = flush(&place);
    assert_eq!((outcome.files, outcome.bytes, outcome.failures.len()), (1, 5, 0));
    assert!(!place.is_link("d e/f\n"));
    assert_eq!(place.read("d e/f\n"), b"hello");
    assert_eq!(place.agent().record(number).state(), State::Clean);
    assert_eq!(place.agent().index.header.clean_count.load(SeqCst), 1);
}

#[test]
fn a_flush_needs_no_request() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    program.write("f", b"hello");
    place.wait_for("the flush", || !place.is_link("f"));
    assert_eq!(place.read("f"), b"hello");
}

#[test]
fn a_file_open_for_writing_is_left_alone_until_it_is_closed() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let (_, file) = program.create("f", b"half");
    let outcome = flush(&place);
    assert_eq!((outcome.files, outcome.open_files), (0, vec![place.path("f")]));
    assert!(place.is_link("f"));
    drop(file);
    place.wait_for("the flush", || !place.is_link("f"));
}

#[test]
fn policy_says_what_is_flushed_and_what_is_evicted() {
    let place = Place::with_policy(&["**", "!keep/**"], &["move/**"]);
    let program = Program::new(&place);
    for dir in ["keep", "move"] {
        std::fs::create_dir(place.path(dir)).unwrap();
    }
    let kept = program.write("keep/f", b"kept");
    let moved = program.write("move/f", b"moved");
    flush(&place);
    assert_eq!(place.agent().record(kept).state(), State::Current);
    place.wait_for("the eviction", || place.agent().record(moved).state() == State::Durable && place.objects() == 1);
    // Renamed, it has another policy.
    program.rename("keep/f", "move/g");
    place.wait_for("the flush", || !place.is_link("move/g"));
    assert_eq!(place.read("move/g"), b"kept");
}

#[test]
fn eviction_gives_room_back_and_prefetch_brings_the_bytes_up_again() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let number = program.write("f", &[7; 100_000]);
    flush(&place);
    let agent = place.agent();
    let ino = agent.record(number).ino.load(SeqCst);
    let outcome = agent.evict_all(&Scope(vec![place.path("f")]), &mut |_, _, _, _| true);
    assert_eq!((outcome.files, outcome.bytes), (1, 100_000));
    assert_eq!((place.objects(), agent.index.header.devices[0].used.load(SeqCst)), (0, 0));
    assert_eq!(agent.record(number).state(), State::Durable);
    let outcome = agent.prefetch_all(&Scope(vec![place.path("f")]), &mut |_, _, _, _| true);
    assert_eq!((outcome.files, outcome.bytes), (1, 100_000));
    assert_eq!(agent.record(number).state(), State::Clean);
    assert_eq!(agent.record(number).ino.load(SeqCst), ino, "programs see one inode number for life");
    assert_eq!(std::fs::read(agent.object_path(number)).unwrap(), [7; 100_000]);
}

#[test]
fn a_replica_that_is_read_is_not_evicted_behind_its_reader() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let number = program.write("f", b"bytes");
    flush(&place);
    let reader = std::fs::File::open(place.agent().object_path(number)).unwrap();
    // Another thread of the agent may be at work on the record.
    let evict = || {
        let mut found = Eviction::Later(Duration::ZERO);
        place.wait_for("a turn at the record", || {
            found = place.agent().evict(number, Duration::ZERO);
            !matches!(found, Eviction::Later(_))
        });
        found
    };
    assert_eq!(evict(), Eviction::Open);
    drop(reader);
    assert_eq!(evict(), Eviction::Done);
}

#[test]
fn a_clean_file_is_promoted_for_its_writer_and_its_last_version_is_held_until_the_next_flush() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let number = program.write("f", b"one");
    flush(&place);
    place.agent().promote(number, b"").unwrap();
    assert!(place.is_link("f"));
    assert_eq!(std::fs::read_dir(place.agent().held_dir()).unwrap().count(), 1);
    std::fs::write(place.path("f"), b"two").unwrap();
    place.wait_for("the flush", || !place.is_link("f"));
    assert_eq!(place.read("f"), b"two");
    place.wait_for("the held version to go", || std::fs::read_dir(place.agent().held_dir()).unwrap().count() == 0);
}

#[test]
fn a_file_that_was_changed_in_the_root_is_not_promoted() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let number = program.write("f", b"one");
    flush(&place);
    std::fs::write(place.path("f"), b"other").unwrap();
    assert_eq!(place.agent().promote(number, b""), Err(libc::EBUSY));
    assert_eq!(place.read("f"), b"other");
}

#[test]
fn a_durable_file_that_is_truncated_is_replaced_only_if_nobody_has_it_open() {
    let place = Place::new(&[]);
    std::fs::write(place.path("f"), b"old").unwrap();
    let path = place.path("f");
    let path = path.as_os_str().as_encoded_bytes();
    let reader = std::fs::File::open(place.path("f")).unwrap();
    assert_eq!(place.agent().replace(path), Err(libc::EBUSY));
    drop(reader);
    let ino = place.inode("f");
    let number = place.agent().replace(path).unwrap();
    assert!(place.is_link("f"));
    assert_eq!(place.agent().record(number).ino.load(SeqCst), ino);
    assert_eq!(place.read("f"), b"");
}

#[test]
fn a_durable_file_that_policy_does_not_flush_is_written_where_it_lies() {
    let place = Place::with_policy(&["**", "!*.tmp"], &["*.tmp"]);
    std::fs::write(place.path("f.tmp"), b"mine").unwrap();
    let path = place.path("f.tmp");
    assert_eq!(place.agent().replace(path.as_os_str().as_encoded_bytes()), Err(libc::EBUSY));
    place.agent().prefetch_all(&Scope(vec![path.clone()]), &mut |_, _, _, _| true);
    let number = place.agent().index.record_of_root_ino(place.inode("f.tmp")).unwrap();
    assert_eq!(place.agent().promote(number, b""), Err(libc::EBUSY));
    assert_eq!(place.read("f.tmp"), b"mine");
}

#[test]
fn a_killed_producer_of_an_event_costs_a_walk_and_no_file() {
    let place = Place::new(&[]);
    let program = Program::new(&place);
    let (number, file) = program.create_untold("f", b"nobody was told of me");
    drop(file);
    let outcome = flush(&place);
    assert_eq!(outcome.files, 1);
    assert_eq!(place.agent().record(number).state(), State::Clean);
    assert_eq!(place.read("f"), b"nobody was told of me");
}

#[test]
fn a_second_agent_is_refused() {
    let place = Place::new(&[]);
    let error = crate::lifetime::start(place.settings().clone()).err().unwrap();
    assert!(matches!(error, crate::Error::AlreadyServed { .. }), "{error}");
}

#[test]
fn an_agent_that_leaves_leaves_nothing_but_the_files() {
    let mut place = Place::with_policy(&["**", "!keep*"], &[]);
    let program = Program::new(&place);
    program.write("f", b"flushed");
    let kept = program.write("keep", b"kept");
    let ino = place.agent().record(kept).ino.load(SeqCst);
    drop(program);
    place.leave();
    assert_eq!(place.read("f"), b"flushed");
    assert_eq!(place.read("keep"), b"kept");
    assert!(!place.path(".terrace").exists());
    assert_eq!(place.objects(), 1);
    // The next agent knows it again.
    place.start();
    let record = (0..place.agent().index.records_end()).find(|&n| place.agent().record(n).state() == State::Current);
    assert_eq!(place.agent().record(record.unwrap()).ino.load(SeqCst), ino);
    assert_eq!(place.agent().kept_files(), [place.path("keep")]);
}
