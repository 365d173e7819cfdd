//! `fsx` from crates.io: random operations on one file, each read compared with what must be there, while that file is
//! flushed and evicted at random moments. Run again with `TERRACE_FSX_SEED` to repeat a failure.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use terrace_core::control::Request;
use terrace_tests::{Outcome, Wish, Workplace, fetched};

/// Over all tests of this file; each takes its share.
const OPERATIONS: u64 = 1_000_000;

/// Weights of fsx's operations. Maps keep a descriptor from being moved live, so each mix shows another part of the runtime.
const MAPPED: &str =
    "close_open = 10\nmapread = 5\nmapwrite = 5\nread = 10\nwrite = 10\ntruncate = 10\ninvalidate = 1\n";
const UNMAPPED: &str = "close_open = 5\nmapread = 0\nmapwrite = 0\nread = 10\nwrite = 10\ntruncate = 10\nfdatasync = 0.01\nposix_fallocate = 2\npunch_hole = 2\nsendfile = 2\ncopy_file_range = 2\n";
const REOPENED: &str = "close_open = 40\nmapread = 2\nmapwrite = 1\nread = 10\nwrite = 10\ntruncate = 5\nposix_fadvise = 1\nfsync = 0.01\n";

#[test]
fn fsx_finds_no_mismatch_with_mapped_files() {
    exercise("mapped", MAPPED, OPERATIONS * 3 / 10);
}

#[test]
fn fsx_finds_no_mismatch_with_holes_and_copies() {
    exercise("unmapped", UNMAPPED, OPERATIONS * 4 / 10);
}

#[test]
fn fsx_finds_no_mismatch_when_the_file_is_reopened_all_the_time() {
    exercise("reopened", REOPENED, OPERATIONS * 3 / 10);
}

fn exercise(name: &str, weights: &str, operations: u64) {
    let seed = std::env::var("TERRACE_FSX_SEED").unwrap_or_else(|_| "20261121".into());
    println!("fsx {name}: {operations} operations, seed {seed}");
    let place = Wish::default()
        .tier("ram", "2MiB")
        .tier("ssd", "8MiB")
        .settle("1ms")
        .mover("fsync = false")
        .patience(2000)
        .build();
    let settings = place.scratch().join("fsx.toml");
    std::fs::write(&settings, format!("flen = 131072\n[opsize]\nmax = 16384\n[weights]\n{weights}")).unwrap();
    let forced = Forced::default();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| force(&place, seed.parse().unwrap_or(1), &forced));
        let program = fetched("tools/bin/fsx");
        let (settings, scratch) = (settings.to_str().unwrap().to_owned(), place.scratch());
        let (count, scratch) = (operations.to_string(), scratch.to_str().unwrap().to_owned());
        let command = [program.to_str().unwrap(), "-N", &count, "-S", &seed, "-f", &settings, "-P", &scratch, "file"]
            .map(str::to_owned);
        let outcome = place.run(&command.iter().map(String::as_str).collect::<Vec<_>>());
        forced.done.store(true, Relaxed);
        outcome
    });
    assert_no_mismatch(&outcome, &seed);
    let (flushes, evictions) = (forced.flushes.load(Relaxed), forced.evictions.load(Relaxed));
    println!("fsx {name}: {flushes} flushes and {evictions} evictions were forced: {}", counters(&outcome));
    assert!(flushes > 100 && evictions > 100, "too few: {flushes} flushes, {evictions} evictions");
    assert!(place.settled_tree().has("file"));
}

#[derive(Default)]
struct Forced {
    done: AtomicBool,
    flushes: AtomicU64,
    evictions: AtomicU64,
}

/// Flushes, evicts and brings up the file again and again, with pauses of 0 to 15 ms.
fn force(place: &Workplace, seed: u64, forced: &Forced) {
    let path = place.root().join("file");
    let mut random = seed | 1;
    while !forced.done.load(Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let paths = vec![path.clone()];
        let (request, count) = match random % 5 {
            0 | 1 => (Request::Flush { paths, all: true, end_of_run: false }, Some(&forced.flushes)),
            2 | 3 => (Request::Evict { paths }, Some(&forced.evictions)),
            _ => (Request::Prefetch { paths }, None),
        };
        if place.ask(&request).is_some()
            && let Some(count) = count
        {
            count.fetch_add(1, Relaxed);
        }
        std::thread::sleep(Duration::from_micros((random >> 32) % 15_000));
    }
}

fn assert_no_mismatch(outcome: &Outcome, seed: &str) {
    assert!(
        outcome.code == 0 && (outcome.stdout.clone() + &outcome.stderr).contains("A-OK"),
        "fsx with seed {seed} ended with {}:\n{}\n{}",
        outcome.code,
        outcome.stdout,
        outcome.stderr
    );
}

fn counters(outcome: &Outcome) -> String {
    outcome.report.as_ref().map_or("no report".into(), |report| report["counters"].to_string())
}
