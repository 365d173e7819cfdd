//! `fsx` from crates.io: random operations on one file, each read compared with what must be there, while that file is
//! flushed and evicted at random moments. Run again with `TERRACE_FSX_SEED` to repeat a failure; `TERRACE_FSX_OPERATIONS` sets how
//! many operations there are over all tests of this file.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use terrace_core::control::Request;
use terrace_tests::{Wish, Workplace, fetched};

/// Over all tests of this file; each takes its share.
fn operations() -> u64 {
    match std::env::var("TERRACE_FSX_OPERATIONS") {
        Ok(text) => text.parse().expect("TERRACE_FSX_OPERATIONS is a number"),
        Err(_) => 1_000_000,
    }
}
/// In one life of the file.
const EACH: u64 = 2000;

/// After each tenth life, `force` has the closed file to itself: so often at least it is flushed and leaves the tier, on a machine of any
/// speed. It is a new one, for the old one may have been moved live.
const PAUSE: &str = "((i % 10)) || { cp file new; mv new file; touch $SCRATCH/pause; while test -e $SCRATCH/pause; do sleep 0.01; done; }";

/// Weights of fsx's operations. Maps keep a descriptor from being moved live, so each mix shows another part of the runtime.
const MAPPED: &str =
    "close_open = 10\nmapread = 5\nmapwrite = 5\nread = 10\nwrite = 10\ntruncate = 10\ninvalidate = 1\n";
const UNMAPPED: &str = "close_open = 5\nmapread = 0\nmapwrite = 0\nread = 10\nwrite = 10\ntruncate = 10\nfdatasync = 0.01\nposix_fallocate = 2\npunch_hole = 2\nsendfile = 2\ncopy_file_range = 2\n";
const REOPENED: &str = "close_open = 40\nmapread = 2\nmapwrite = 1\nread = 10\nwrite = 10\ntruncate = 5\nposix_fadvise = 1\nfsync = 0.01\n";

#[test]
fn fsx_finds_no_mismatch_with_mapped_files() {
    exercise("mapped", MAPPED, operations() * 3 / 10);
}

#[test]
fn fsx_finds_no_mismatch_with_holes_and_copies() {
    exercise("unmapped", UNMAPPED, operations() * 4 / 10);
}

#[test]
fn fsx_finds_no_mismatch_when_the_file_is_reopened_all_the_time() {
    exercise("reopened", REOPENED, operations() * 3 / 10);
}

fn exercise(name: &str, weights: &str, operations: u64) {
    let seed = std::env::var("TERRACE_FSX_SEED").unwrap_or_else(|_| "20261121".into());
    let operations = operations.max(EACH);
    println!("fsx {name}: {operations} operations, seed {seed}");
    let place = Wish::default()
        .tier("ram", "2MiB")
        .tier("ssd", "8MiB")
        .settle("1ms")
        .mover("fsync = false")
        .patience(2000)
        .build();
    let settings = place.scratch().join("fsx.toml");
    std::fs::write(&settings, format!("flen = 131072\n[opsize]\nmin = 1\nmax = 16384\n[weights]\n{weights}")).unwrap();
    let forced = Forced::default();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| force(&place, seed.parse().unwrap_or(1), &forced));
        // Many short lives of one file: each begins empty in the fast tier, and is then moved about.
        let script = format!(
            "for i in $(seq {}); do {} -N {EACH} -S $(({seed} + i)) -f {} -P $SCRATCH file 2> $SCRATCH/said || {{ cat $SCRATCH/said; exit 1; }}; sleep 0.0$((i % 5)); {PAUSE}; done",
            operations / EACH,
            fetched("tools/bin/fsx").display(),
            settings.display()
        );
        let outcome = place.sh(&script);
        forced.done.store(true, Relaxed);
        outcome
    });
    assert_eq!(outcome.code, 0, "fsx {name}, seed {seed}:\n{}\n{}", outcome.stdout, outcome.stderr);
    assert_eq!(outcome.stdout.matches("A-OK").count() as u64, operations / EACH);
    let counters = outcome.report.expect("a report")["counters"].clone();
    println!(
        "fsx {name}: {} flushes and {} evictions were asked for: {counters}",
        forced.flushes.load(Relaxed),
        forced.evictions.load(Relaxed)
    );
    let count = |name: &str| counters[name].as_u64().unwrap_or(0);
    // On a busy machine more of the flushes that were asked for meet an open file: those are live moves.
    let (flushed, moved_live) = (count("flushed_files"), count("moved_live_files"));
    let left = count("evicted_files") + moved_live;
    let wanted = operations / EACH / 10;
    assert!(
        flushed > 0 && flushed + moved_live >= wanted && left >= wanted,
        "{flushed} flushes, the tier was left {left} times: {counters}"
    );
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
    let pause = place.scratch().join("pause");
    while !forced.done.load(Relaxed) {
        if pause.exists() {
            place.ask(&Request::Flush { paths: vec![path.clone()], all: true, end_of_run: false });
            place.ask(&Request::Evict { paths: vec![path.clone()] });
            let _ = std::fs::remove_file(&pause);
        }
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
