use super::*;
use crate::adapters::{Meter, Metered, Operation};
use crate::conformance::pattern;
use crate::tier::{Stat, Tier, TierExt};
use crate::{Attributes, DirectoryTier, FileReading};
use proptest::prelude::*;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

struct Pair {
    from: DirectoryTier,
    to: DirectoryTier,
    _scratch: Option<[tempfile::TempDir; 2]>,
}

/// From memory to disk, as a flush goes.
fn pair() -> Pair {
    let scratch = ["/dev/shm", "/var/tmp"].map(|base| tempfile::tempdir_in(base).unwrap());
    let [from, to] = [0, 1].map(|i| DirectoryTier::open("tier", scratch[i].path()).unwrap());
    Pair { from, to, _scratch: Some(scratch) }
}

const NAME: &str = "file";

impl Pair {
    fn copy(&self, options: &CopyOptions<'_>) -> Result<Copied> {
        let reading = self.from.open(Path::new(NAME))?;
        let mut writing = self.to.create(Path::new(NAME))?;
        let copied = copy(&*reading, &mut *writing, options)?;
        writing.commit(Path::new(NAME))?;
        Ok(copied)
    }
    fn source(&self) -> PathBuf {
        self.from.path_of(Path::new(NAME)).unwrap()
    }
}

#[test]
fn bytes_and_attributes_arrive_whichever_way_they_go() {
    let pair = pair();
    let back = Pair { from: pair.to.clone(), to: pair.from.clone(), _scratch: None };
    for bytes in [0, 1, 4096, CHUNK_BYTES, CHUNK_BYTES + 1, 20_000_003] {
        let contents = pattern(bytes, bytes as u64);
        pair.from.write(Path::new(NAME), &contents).unwrap();
        let progress = AtomicU64::new(0);
        let options = CopyOptions { progress: Some(&progress), write_behind: true, ..Default::default() };
        let copied = pair.copy(&options).unwrap();
        assert_eq!((copied.bytes, progress.load(Ordering::Relaxed)), (bytes as u64, bytes as u64));
        assert!(copied.attributes.is_complete(), "{}", copied.attributes);
        assert!(pair.to.read(Path::new(NAME)).unwrap() == contents);
        let attributes = |tier: &DirectoryTier| tier.open(Path::new(NAME)).unwrap().attributes().unwrap();
        let before: Attributes = attributes(&pair.from);
        assert_eq!(before, attributes(&pair.to));
        pair.from.remove(Path::new(NAME)).unwrap();
        back.copy(&CopyOptions::default()).unwrap();
        assert_eq!(before, attributes(&pair.from));
        assert!(pair.from.read(Path::new(NAME)).unwrap() == contents);
    }
}

#[test]
fn within_one_file_system_the_kernel_copies_and_the_result_is_the_same() {
    let pair = pair();
    let contents = pattern(5_000_001, 9);
    pair.to.write(Path::new("original"), &contents).unwrap();
    let reading = pair.to.open(Path::new("original")).unwrap();
    let mut writing = pair.to.create(Path::new(NAME)).unwrap();
    let progress = AtomicU64::new(0);
    copy(&*reading, &mut *writing, &CopyOptions { progress: Some(&progress), ..Default::default() }).unwrap();
    writing.commit(Path::new(NAME)).unwrap();
    assert_eq!(progress.load(Ordering::Relaxed), contents.len() as u64);
    assert!(pair.to.read(Path::new(NAME)).unwrap() == contents);
}

/// Changes its file while it is read for the first time.
struct Changing<'a> {
    inner: Box<dyn Reading>,
    change: &'a (dyn Fn() + Sync),
    is_changed: AtomicBool,
}

impl Reading for Changing<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        if !self.is_changed.swap(true, Ordering::Relaxed) {
            (self.change)();
        }
        self.inner.read_at(buffer, offset)
    }
    fn stat(&self) -> Result<Stat> {
        self.inner.stat()
    }
    fn attributes(&self) -> Result<Attributes> {
        self.inner.attributes()
    }
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        self.inner.next_data(offset)
    }
    fn path(&self) -> &Path {
        self.inner.path()
    }
}

#[test]
fn a_source_that_changes_meanwhile_is_noticed_however_it_changes() {
    let pair = pair();
    let source = pair.source();
    let open = || File::options().write(true).open(&source).unwrap();
    let write = || drop(open().write_at(b"x", 10));
    let append = || drop(open().write_at(b"x", 3 << 20));
    let truncate = || drop(open().set_len(5));
    let change_mode = || {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    let set_times_back = || {
        let times = open().metadata().unwrap().modified().unwrap();
        open().write_at(b"y", 1 << 20).unwrap();
        open().set_modified(times).unwrap();
    };
    let changes: [&(dyn Fn() + Sync); 5] = [&write, &append, &truncate, &change_mode, &set_times_back];
    for (i, change) in changes.into_iter().enumerate() {
        pair.from.write(Path::new(NAME), &pattern(3 << 20, 1)).unwrap();
        std::thread::sleep(Duration::from_millis(20)); // the clock that stamps files ticks in between
        let inner = pair.from.open(Path::new(NAME)).unwrap();
        let reading = Changing { inner, change, is_changed: AtomicBool::new(false) };
        let mut writing = pair.to.create(Path::new(NAME)).unwrap();
        let result = copy(&reading, &mut *writing, &CopyOptions::default());
        assert!(matches!(result, Err(Error::SourceChanged { .. })), "change {i}: {result:?}");
    }
}

/// A file system on which two changes have one time of change.
struct WithinOneTick<'a>(Changing<'a>);

impl Reading for WithinOneTick<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.0.read_at(buffer, offset)
    }
    fn stat(&self) -> Result<Stat> {
        Ok(Stat { ctime: crate::Timestamp::default(), ..self.0.stat()? })
    }
    fn attributes(&self) -> Result<Attributes> {
        self.0.attributes()
    }
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>> {
        self.0.next_data(offset)
    }
    fn path(&self) -> &Path {
        self.0.path()
    }
}

#[test]
fn a_mode_that_is_set_within_one_tick_of_the_clock_is_noticed() {
    let pair = pair();
    let source = pair.source();
    pair.from.write(Path::new(NAME), &pattern(1 << 20, 1)).unwrap();
    let change = || {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o700)).unwrap();
    };
    let inner = pair.from.open(Path::new(NAME)).unwrap();
    let reading = WithinOneTick(Changing { inner, change: &change, is_changed: AtomicBool::new(false) });
    let mut writing = pair.to.create(Path::new(NAME)).unwrap();
    let result = copy(&reading, &mut *writing, &CopyOptions::default());
    assert!(matches!(result, Err(Error::SourceChanged { .. })), "{result:?}");
}

#[test]
fn an_abort_stops_a_copy_that_waits_for_bandwidth() {
    let pair = pair();
    pair.from.write(Path::new(NAME), &pattern(4 << 20, 1)).unwrap();
    let cap = BandwidthCap::new(100_000);
    let abort = AtomicBool::new(false);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(100));
            abort.store(true, Ordering::Relaxed);
        });
        let options = CopyOptions { cap: Some(&cap), abort: Some(&abort), ..Default::default() };
        assert!(matches!(pair.copy(&options), Err(Error::Aborted { .. })));
    });
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(!pair.to.exists(Path::new(NAME)).unwrap());
}

#[test]
fn a_cap_holds_for_all_copies_together() {
    let pair = pair();
    pair.from.write(Path::new(NAME), &pattern(6 << 20, 1)).unwrap();
    let cap = BandwidthCap::new(40 << 20);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| pair.copy(&CopyOptions { cap: Some(&cap), ..Default::default() }).unwrap());
        }
    });
    let elapsed = start.elapsed().as_secs_f64(); // 18 MiB at 40 MiB/s, 50 ms of it saved up
    assert!((0.39..3.0).contains(&elapsed), "{elapsed} s");
}

#[test]
fn a_program_that_wants_to_write_ends_the_copy_and_waits_only_for_a_moment() {
    let pair = pair();
    pair.from.write(Path::new(NAME), &pattern(8 << 20, 1)).unwrap();
    let reading = pair.from.open(Path::new(NAME)).unwrap();
    let lease = Lease::read(reading.as_fd().unwrap()).unwrap().expect("nobody has it open for writing");
    let cap = BandwidthCap::new(1 << 20);
    let waited = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            let start = Instant::now();
            File::options().write(true).open(pair.source()).unwrap();
            start.elapsed()
        });
        let mut writing = pair.to.create(Path::new(NAME)).unwrap();
        let options = CopyOptions { cap: Some(&cap), lease: Some(&lease), ..Default::default() };
        let result = copy(&*reading, &mut *writing, &options);
        assert!(matches!(result, Err(Error::LeaseBroken { .. })), "{result:?}");
        drop(lease);
        writer.join().unwrap()
    });
    assert!(waited < Duration::from_millis(500), "the writer waited {waited:?}");
}

#[test]
fn holes_stay_holes_from_memory_to_disk_and_back() {
    let pair = pair();
    let file = File::create(pair.source()).unwrap();
    file.write_at(b"start", 0).unwrap();
    file.write_at(b"far", 1 << 30).unwrap();
    file.set_len(2 << 30).unwrap();
    drop(file);
    let copied = pair.copy(&CopyOptions::default()).unwrap();
    assert_eq!(copied.bytes, 2 << 30);
    let stat = pair.to.stat(Path::new(NAME)).unwrap();
    assert_eq!(stat.size, 2 << 30);
    assert!(stat.allocated < 4 << 20, "{} bytes are allocated", stat.allocated);
    let mut far = [0; 3];
    pair.to.open(Path::new(NAME)).unwrap().read_exact_at(&mut far, 1 << 30).unwrap();
    assert_eq!(&far, b"far");
}

#[test]
fn a_file_without_a_name_is_copied_through_its_descriptor() {
    let pair = pair();
    pair.from.write(Path::new(NAME), b"unlinked").unwrap();
    let file = File::open(pair.source()).unwrap();
    pair.from.remove(Path::new(NAME)).unwrap();
    let reading = FileReading::from_fd(file.as_fd().try_clone_to_owned().unwrap(), "an unlinked file");
    let mut writing = pair.to.create(Path::new(NAME)).unwrap();
    copy(&reading, &mut *writing, &CopyOptions::default()).unwrap();
    writing.commit(Path::new(NAME)).unwrap();
    assert_eq!(pair.to.read(Path::new(NAME)).unwrap(), b"unlinked");
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, usize),
    Truncate(u64),
    Punch(u64, u64),
    Begin,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = 0..6 * CHUNK;
    let step = prop_oneof![
        3 => (place.clone(), 1..2 * CHUNK_BYTES).prop_map(|(offset, bytes)| Step::Write(offset, bytes)),
        1 => place.clone().prop_map(Step::Truncate),
        1 => (place, 1..2 * CHUNK).prop_map(|(offset, bytes)| Step::Punch(offset, bytes)),
        3 => Just(Step::Begin),
    ];
    prop::collection::vec(step, 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_copy_that_began_while_its_source_was_written_has_what_the_source_has_at_its_end(steps in steps()) {
        let pair = pair();
        let file = File::options().write(true).create_new(true).open(pair.source()).unwrap();
        let reading = pair.from.open(Path::new(NAME)).unwrap();
        let mut writing = pair.to.create(Path::new(NAME)).unwrap();
        let (mut begun, options) = (Begun::default(), CopyOptions::default());
        let mut taken = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Write(offset, bytes) => file.write_all_at(&pattern(bytes, number as u64), offset).unwrap(),
                Step::Truncate(bytes) => file.set_len(bytes).unwrap(),
                Step::Punch(offset, bytes) => {
                    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
                    rustix::fs::fallocate(&file, flags, offset, bytes).unwrap();
                }
                Step::Begin => taken += begin(&mut begun, &*reading, &mut *writing, &options, &|| false).unwrap(),
            }
        }
        prop_assert_eq!(begun.bytes(), taken);
        drop(file);
        finish(&begun, &*reading, &mut *writing, &options).unwrap();
        writing.commit(Path::new(NAME)).unwrap();
        prop_assert!(pair.to.read(Path::new(NAME)).unwrap() == pair.from.read(Path::new(NAME)).unwrap());
    }
}

#[test]
fn a_copy_that_began_reads_what_it_has_and_writes_only_what_has_changed() {
    // A long one is compared by another thread.
    for mib in [8, 40] {
        let pair = pair();
        pair.from.write(Path::new(NAME), &pattern(mib << 20, 1)).unwrap();
        let reading = pair.from.open(Path::new(NAME)).unwrap();
        let to = Metered::new(pair.to.clone(), Meter::new());
        let mut writing = to.create(Path::new(NAME)).unwrap();
        let mut begun = Begun::default();
        let progress = AtomicU64::new(0);
        let options = CopyOptions { progress: Some(&progress), ..CopyOptions::default() };
        assert_eq!(begin(&mut begun, &*reading, &mut *writing, &options, &|| true).unwrap(), 0);
        // The last chunk but one may be the one that is being written.
        let whole = (mib as u64 - 1) * CHUNK;
        assert_eq!(begin(&mut begun, &*reading, &mut *writing, &options, &|| false).unwrap(), whole);
        assert_eq!(begin(&mut begun, &*reading, &mut *writing, &options, &|| false).unwrap(), 0);
        let file = File::options().write(true).open(pair.source()).unwrap();
        file.write_at(b"changed", 2 << 20).unwrap();
        drop(file);
        let before = to.watch().of(Operation::WriteAt).bytes;
        let copied = finish(&begun, &*reading, &mut *writing, &options).unwrap();
        // One that has changed, and the last.
        assert_eq!(to.watch().of(Operation::WriteAt).bytes - before, 2 * CHUNK);
        assert_eq!((copied.replaced, progress.load(Ordering::Relaxed)), (CHUNK, copied.bytes));
        writing.commit(Path::new(NAME)).unwrap();
        assert!(pair.to.read(Path::new(NAME)).unwrap() == pair.from.read(Path::new(NAME)).unwrap());
    }
}

#[test]
fn a_copy_that_began_has_no_more_than_its_source_has_between_holes() {
    let pair = pair();
    let file = File::create(pair.source()).unwrap();
    for chunk in 0..64 {
        file.write_at(b"data", chunk * CHUNK + 4096).unwrap();
    }
    file.write_at(&pattern(3 * CHUNK_BYTES, 1), 64 * CHUNK).unwrap();
    file.write_at(b"the end", 70 * CHUNK).unwrap();
    drop(file);
    let reading = pair.from.open(Path::new(NAME)).unwrap();
    let mut writing = pair.to.create(Path::new(NAME)).unwrap();
    let (mut begun, options) = (Begun::default(), CopyOptions::default());
    assert_eq!(begin(&mut begun, &*reading, &mut *writing, &options, &|| false).unwrap(), 3 * CHUNK);
    finish(&begun, &*reading, &mut *writing, &options).unwrap();
    writing.commit(Path::new(NAME)).unwrap();
    let [from, to] = [&pair.from, &pair.to].map(|tier| tier.stat(Path::new(NAME)).unwrap());
    assert!(to.allocated <= from.allocated + CHUNK, "{} bytes are allocated, of {}", to.allocated, from.allocated);
    assert!(pair.to.read(Path::new(NAME)).unwrap() == pair.from.read(Path::new(NAME)).unwrap());
}
