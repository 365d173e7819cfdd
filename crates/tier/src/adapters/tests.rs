use super::*;
use crate::tier::{TierExt, WritingExt};
use crate::{CopyOptions, DirectoryTier, conformance, copy};

fn directory(path: &Path) -> DirectoryTier {
    DirectoryTier::open("ssd", path).unwrap()
}

fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn a_throttled_tier_is_a_tier() {
    let throttle = || Throttle { latency: Duration::from_micros(10), ..Throttle::bytes_per_s(1 << 32, 1 << 32) };
    conformance::run(|path| Throttled::new(directory(path), throttle()));
}

#[test]
fn a_faulty_tier_without_faults_is_a_tier() {
    conformance::run(|path| Faulty::new(directory(path), Faults::new()));
}

#[test]
fn short_reads_and_writes_keep_the_contract() {
    conformance::run(|path| {
        let tier = Faulty::new(directory(path), Faults::new());
        tier.watch().short(4099);
        tier
    });
}

#[test]
fn a_metered_tier_is_a_tier() {
    conformance::run(|path| Metered::new(directory(path), Meter::new()));
}

#[test]
fn adapters_stack_and_a_boxed_tier_is_one_too() {
    conformance::run(|path| {
        let metered: Box<dyn Tier> = Box::new(Metered::new(directory(path), Meter::new()));
        Faulty::new(metered, Faults::new())
    });
}

#[test]
fn the_nth_operation_of_a_kind_fails_once_or_from_then_on() {
    let scratch = scratch();
    let tier = Faulty::new(directory(scratch.path()), Faults::new());
    let name = Path::new("file");
    tier.watch().fail(Operation::Commit, 2, libc::EIO);
    tier.write(name, b"1").unwrap();
    assert_eq!(tier.write(name, b"2").unwrap_err().errno(), libc::EIO);
    assert_eq!(tier.read(name).unwrap(), b"1");
    tier.write(name, b"3").unwrap();
    tier.watch().fail_from(Operation::WriteAt, 1, libc::ENOSPC);
    for _ in 0..2 {
        let error = tier.write(name, b"4").unwrap_err();
        assert!(error.is_no_space() && error.hint().is_some(), "{error}");
    }
    assert_eq!(tier.read(name).unwrap(), b"3");
    tier.watch().clear();
    tier.write(name, b"5").unwrap();
    assert_eq!(tier.inner().walk(Path::new("")).unwrap().len(), 1, "no temporary is left");
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn space_can_lie() {
    let scratch = scratch();
    let tier = Faulty::new(directory(scratch.path()), Faults::new());
    let lie = Space { capacity: 100, free: 1 };
    tier.watch().claim_space(lie);
    assert_eq!(tier.space().unwrap(), lie);
    tier.watch().clear();
    assert_ne!(tier.space().unwrap(), lie);
}

#[test]
fn a_meter_counts_what_succeeded() {
    let scratch = scratch();
    let tier = Metered::new(directory(scratch.path()), Meter::new());
    tier.write(Path::new("file"), &[7; 1000]).unwrap();
    tier.read(Path::new("file")).unwrap();
    tier.open(Path::new("absent")).err().unwrap();
    let meter = tier.watch();
    assert_eq!((meter.of(Operation::WriteAt).count, meter.of(Operation::WriteAt).bytes), (1, 1000));
    assert_eq!(meter.of(Operation::ReadAt).bytes, 1000);
    assert_eq!(meter.of(Operation::Open).count, 1);
    assert_eq!(meter.of(Operation::Remove), MeterReading::default());
    assert!(meter.of(Operation::WriteAt).elapsed > Duration::ZERO);
}

#[test]
fn a_throttled_tier_keeps_its_rate_for_all_threads_together() {
    let scratch = scratch();
    let tier = Throttled::new(directory(scratch.path()), Throttle::bytes_per_s(1 << 40, 40 << 20));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let tier = &tier;
            scope.spawn(move || {
                let mut writing = tier.create(Path::new(name)).unwrap();
                for turn in 0..8u64 {
                    writing.write_all_at(&[1; 1 << 20], turn << 20).unwrap();
                }
            });
        }
    });
    // 16 MiB at 40 MiB/s, of which 50 ms may have been saved up.
    let elapsed = start.elapsed().as_secs_f64();
    assert!((0.34..2.0).contains(&elapsed), "{elapsed} s");
}

#[test]
fn whatever_step_of_a_copy_fails_the_name_stays_as_it_was() {
    let (from, to) = (scratch(), scratch());
    let bytes = conformance::pattern(2_500_000, 5);
    directory(from.path()).write(Path::new("file"), &bytes).unwrap();
    directory(to.path()).write(Path::new("file"), b"old").unwrap();
    for operation in Operation::ALL {
        for nth in 1..4 {
            let source = Faulty::new(directory(from.path()), Faults::new());
            let sink = Faulty::new(directory(to.path()), Faults::new());
            source.watch().fail(*operation, nth, libc::EIO);
            sink.watch().fail(*operation, nth, libc::EIO);
            let attempt = || -> Result<()> {
                let reading = source.open(Path::new("file"))?;
                let mut writing = sink.create(Path::new("file"))?;
                copy(&*reading, &mut *writing, &CopyOptions::default())?;
                writing.sync()?;
                writing.commit(Path::new("file"))?;
                sink.sync_name(Path::new("file"))
            };
            let result = attempt();
            let found = directory(to.path()).read(Path::new("file")).unwrap();
            assert!(found == bytes || (found == b"old" && result.is_err()), "{operation:?} {nth}");
            assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 1, "{operation:?} {nth} left a temporary");
            directory(to.path()).write(Path::new("file"), b"old").unwrap();
        }
    }
}
