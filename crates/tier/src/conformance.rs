//! The contract of a tier, executed: `conformance::run(|directory| make(directory))` in a test.
//!
//! Each claim gets a tier of its own, made in a fresh directory. A tier that stores elsewhere may leave that directory
//! alone; it must be empty but for a directory `nested`.
//!
//! A claim that fails panics with its name. Claims about attributes need only what the tier's file system can keep: what
//! it can't must be in the report.

mod attributes;
mod names;

use crate::tier::{ReadingExt, Tier, TierExt, WritingExt};
use std::path::Path;

/// The directory that exists in every tier under test.
pub const NESTED: &str = "nested";

/// Executes all claims. `make` gets a directory that contains `nested`, and makes a tier of it.
pub fn run<T: Tier>(make: impl Fn(&Path) -> T) {
    let base = if Path::new("/var/tmp").is_dir() { Path::new("/var/tmp") } else { Path::new("/tmp") };
    run_in(base, make);
}

/// The same, on the file system of `base`.
pub fn run_in<T: Tier>(base: &Path, make: impl Fn(&Path) -> T) {
    for (name, claim) in CLAIMS.iter().chain(names::CLAIMS).chain(attributes::CLAIMS) {
        let scratch = tempfile::Builder::new().prefix("terrace-conformance-").tempdir_in(base);
        let scratch = scratch.expect("a scratch directory can be made");
        std::fs::create_dir(scratch.path().join(NESTED)).expect("the scratch directory is writable");
        let tier = make(scratch.path());
        let marker = Marker(name);
        claim(&tier);
        std::mem::forget(marker);
    }
}

/// Says which claim was being executed when a panic passes by.
struct Marker(&'static str);

impl Drop for Marker {
    fn drop(&mut self) {
        eprintln!("conformance: the claim `{}` does not hold", self.0);
    }
}

type Claim = (&'static str, fn(&dyn Tier));

const CLAIMS: &[Claim] = &[
    ("what was committed is read back", what_was_committed_is_read_back),
    ("nothing is visible before commit", nothing_is_visible_before_commit),
    ("commit replaces atomically", commit_replaces_atomically),
    ("an open reader keeps what it opened", an_open_reader_keeps_what_it_opened),
    ("dropping removes the temporary", dropping_removes_the_temporary),
    ("a commit that fails leaves nothing", a_commit_that_fails_leaves_nothing),
    ("writes may come in any order and leave holes", writes_may_come_in_any_order_and_leave_holes),
    ("size can be set both ways", size_can_be_set_both_ways),
    ("a read ends at the end", a_read_ends_at_the_end),
    ("sparse files stay sparse", sparse_files_stay_sparse),
    ("data ranges cover all data", data_ranges_cover_all_data),
    ("remove removes, once", remove_removes_once),
    ("what is missing is not found", what_is_missing_is_not_found),
    ("a version changes with the contents", a_version_changes_with_the_contents),
    ("space is plausible", space_is_plausible),
    ("what is synced and named can be read", what_is_synced_and_named_can_be_read),
    ("threads use one tier at once", threads_use_one_tier_at_once),
];

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        })
        .collect()
}

fn listed(tier: &dyn Tier, directory: &str) -> Vec<std::path::PathBuf> {
    let mut names: Vec<_> = tier.list(path(directory)).unwrap().into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

fn what_was_committed_is_read_back(tier: &dyn Tier) {
    for (name, bytes) in [("empty", vec![]), ("one", vec![7]), ("large", pattern(3_000_001, 1))] {
        let stat = tier.write(path(name), &bytes).unwrap();
        assert_eq!(stat.size, bytes.len() as u64);
        assert!(stat.is_file());
        assert!(tier.read(path(name)).unwrap() == bytes, "{name} differs");
        assert_eq!(tier.stat(path(name)).unwrap().ino, stat.ino);
    }
}

fn nothing_is_visible_before_commit(tier: &dyn Tier) {
    let mut writing = tier.create(path("file")).unwrap();
    writing.write_all_at(b"bytes", 0).unwrap();
    writing.sync().unwrap();
    assert!(!tier.exists(path("file")).unwrap());
    assert_eq!(listed(tier, ""), [path(NESTED)]);
    writing.commit(path("file")).unwrap();
    assert_eq!(tier.read(path("file")).unwrap(), b"bytes");
    assert_eq!(listed(tier, ""), [path("file"), path(NESTED)]);
}

fn commit_replaces_atomically(tier: &dyn Tier) {
    let (old, new) = (pattern(300_000, 1), pattern(200_000, 2));
    tier.write(path("file"), &old).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen_new = false;
            while !seen_new {
                let bytes = tier.read(path("file")).expect("the name is never missing");
                seen_new = bytes == new;
                assert!(seen_new || bytes == old, "a reader saw a mixture of {} bytes", bytes.len());
            }
        });
        for _ in 0..50 {
            tier.write(path("file"), &old).unwrap();
        }
        tier.write(path("file"), &new).unwrap();
        reader.join().unwrap();
    });
}

fn an_open_reader_keeps_what_it_opened(tier: &dyn Tier) {
    tier.write(path("file"), b"before").unwrap();
    let reading = tier.open(path("file")).unwrap();
    tier.write(path("file"), b"after!").unwrap();
    let mut bytes = [0; 6];
    reading.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before");
    tier.remove(path("file")).unwrap();
    reading.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"before");
}

fn dropping_removes_the_temporary(tier: &dyn Tier) {
    tier.write(path("file"), b"kept").unwrap();
    let mut writing = tier.create(path("file")).unwrap();
    writing.write_all_at(&pattern(100_000, 3), 0).unwrap();
    let temporary = writing.path().to_path_buf();
    drop(writing);
    assert!(!temporary.exists(), "{} is still there", temporary.display());
    assert_eq!(tier.read(path("file")).unwrap(), b"kept");
}

fn a_commit_that_fails_leaves_nothing(tier: &dyn Tier) {
    let mut writing = tier.create(path("file")).unwrap();
    writing.write_all_at(b"bytes", 0).unwrap();
    let temporary = writing.path().to_path_buf();
    let error = writing.commit(path("absent/file")).unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(!temporary.exists());
    // A directory is not replaced by a file.
    tier.create(path("file")).unwrap().commit(path(NESTED)).unwrap_err();
    assert_eq!(listed(tier, ""), [path(NESTED)]);
}

fn writes_may_come_in_any_order_and_leave_holes(tier: &dyn Tier) {
    let mut writing = tier.create(path("file")).unwrap();
    writing.write_all_at(b"end", 100_000).unwrap();
    writing.write_all_at(b"start", 0).unwrap();
    writing.write_all_at(b"S", 0).unwrap();
    writing.commit(path("file")).unwrap();
    let bytes = tier.read(path("file")).unwrap();
    assert_eq!(bytes.len(), 100_003);
    assert_eq!((&bytes[..5], &bytes[100_000..]), (b"Start".as_slice(), b"end".as_slice()));
    assert!(bytes[5..100_000].iter().all(|&byte| byte == 0));
}

fn size_can_be_set_both_ways(tier: &dyn Tier) {
    let mut writing = tier.create(path("file")).unwrap();
    writing.write_all_at(b"0123456789", 0).unwrap();
    writing.set_size(4).unwrap();
    writing.set_size(6).unwrap();
    assert_eq!(writing.stat().unwrap().size, 6);
    writing.commit(path("file")).unwrap();
    assert_eq!(tier.read(path("file")).unwrap(), b"0123\0\0");
}

fn a_read_ends_at_the_end(tier: &dyn Tier) {
    tier.write(path("file"), b"0123456789").unwrap();
    let reading = tier.open(path("file")).unwrap();
    let mut buffer = [0; 8];
    assert_eq!(reading.read_at(&mut buffer, 10).unwrap(), 0);
    assert_eq!(reading.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    assert_eq!(reading.read_at(&mut [], 0).unwrap(), 0);
    let count = reading.read_at(&mut buffer, 7).unwrap();
    assert!((1..=3).contains(&count));
    assert_eq!(buffer[..count], b"789"[..count]);
}

const SPARSE_BYTES: u64 = 64 << 20;

fn write_sparse(tier: &dyn Tier) -> crate::Stat {
    let mut writing = tier.create(path("sparse")).unwrap();
    writing.write_all_at(b"first", 0).unwrap();
    writing.write_all_at(b"middle", SPARSE_BYTES / 2).unwrap();
    writing.set_size(SPARSE_BYTES).unwrap();
    writing.sync().unwrap();
    writing.commit(path("sparse")).unwrap()
}

fn sparse_files_stay_sparse(tier: &dyn Tier) {
    let stat = write_sparse(tier);
    assert_eq!(stat.size, SPARSE_BYTES);
    assert!(stat.allocated < SPARSE_BYTES / 8, "{} bytes are allocated", stat.allocated);
    let reading = tier.open(path("sparse")).unwrap();
    let mut writing = tier.create(path("copy")).unwrap();
    crate::copy(&*reading, &mut *writing, &Default::default()).unwrap();
    writing.sync().unwrap();
    let copied = writing.commit(path("copy")).unwrap();
    assert_eq!(copied.size, SPARSE_BYTES);
    assert!(copied.allocated < SPARSE_BYTES / 8, "{} bytes of the copy are allocated", copied.allocated);
    let mut middle = [0; 6];
    tier.open(path("copy")).unwrap().read_exact_at(&mut middle, SPARSE_BYTES / 2).unwrap();
    assert_eq!(&middle, b"middle");
}

fn data_ranges_cover_all_data(tier: &dyn Tier) {
    write_sparse(tier);
    let reading = tier.open(path("sparse")).unwrap();
    let mut covered = 0;
    let mut offset = 0;
    let mut has_middle = false;
    while let Some((start, end)) = reading.next_data(offset).unwrap() {
        assert!(start >= offset && end > start, "({start}, {end}) after {offset}");
        has_middle |= start <= SPARSE_BYTES / 2 && end >= SPARSE_BYTES / 2 + 6;
        covered += end - start;
        offset = end;
    }
    assert!(has_middle && covered < SPARSE_BYTES, "{covered} bytes are said to be data");
    assert_eq!(reading.next_data(SPARSE_BYTES).unwrap(), None);
    tier.write(path("empty"), b"").unwrap();
    assert_eq!(tier.open(path("empty")).unwrap().next_data(0).unwrap(), None);
}

fn remove_removes_once(tier: &dyn Tier) {
    tier.write(path("nested/file"), b"bytes").unwrap();
    tier.remove(path("nested/file")).unwrap();
    assert!(!tier.exists(path("nested/file")).unwrap());
    assert!(tier.remove(path("nested/file")).unwrap_err().is_not_found());
    assert!(!tier.remove_if_present(path("nested/file")).unwrap());
}

fn what_is_missing_is_not_found(tier: &dyn Tier) {
    assert!(tier.open(path("absent")).err().is_some_and(|error| error.is_not_found()));
    assert!(tier.open(path("absent/file")).err().is_some_and(|error| error.is_not_found()));
    assert!(tier.list(path("absent")).unwrap_err().is_not_found());
    assert!(tier.remove(path("absent")).unwrap_err().is_not_found());
    tier.open(path(NESTED)).err().expect("a directory is not a file");
    tier.remove(path(NESTED)).expect_err("a directory is not a file");
}

fn a_version_changes_with_the_contents(tier: &dyn Tier) {
    let first = tier.write(path("file"), b"one").unwrap();
    assert_eq!(tier.stat(path("file")).unwrap().version(), first.version());
    std::thread::sleep(std::time::Duration::from_millis(20)); // file systems stamp times by a clock that ticks
    let second = tier.write(path("file"), b"two").unwrap();
    assert_ne!(first.version(), second.version());
}

fn space_is_plausible(tier: &dyn Tier) {
    let space = tier.space().unwrap();
    assert!(space.capacity > 0 && space.free <= space.capacity, "{space:?}");
    assert!(!tier.label().is_empty());
}

fn what_is_synced_and_named_can_be_read(tier: &dyn Tier) {
    for name in ["file", "nested/file"] {
        let mut writing = tier.create(path(name)).unwrap();
        writing.write_all_at(b"durable", 0).unwrap();
        writing.sync().unwrap();
        writing.commit(path(name)).unwrap();
        tier.sync_name(path(name)).unwrap();
        assert_eq!(tier.read(path(name)).unwrap(), b"durable");
    }
    assert!(tier.sync_name(path("absent/file")).unwrap_err().is_not_found());
}

fn threads_use_one_tier_at_once(tier: &dyn Tier) {
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                for turn in 0..25 {
                    let name = format!("nested/{thread}-{turn}");
                    let bytes = pattern(10_000, thread * 100 + turn);
                    tier.write(path(&name), &bytes).unwrap();
                    assert!(tier.read(path(&name)).unwrap() == bytes);
                    if turn % 2 == 0 {
                        tier.remove(path(&name)).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(tier.list(path(NESTED)).unwrap().len(), 4 * 12);
}
