use super::*;
use crate::step::Step;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;
use terrace_core::policy::Mode;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = scratch.path().join("journal.redb");
    (scratch, path)
}

fn key(record: u32) -> FileKey {
    FileKey { record, serial: record as u64 + 1000 }
}

fn file(path: &[u8]) -> FileEntry {
    FileEntry {
        path: PathBuf::from(OsStr::from_bytes(path)),
        object: Place::new("/dev/shm/terrace-0/1f2e3d4c/o", "0000002a9c00000000000000"),
        state: FileState::Clean,
        ino: u64::MAX,
        ctime_ns: -1,
        durable: Some(DurableVersion { ino: 7, size: 1 << 40, mtime_ns: -5, ctime_ns: i64::MAX }),
        mode: Mode::Move,
    }
}

fn step(record: u32) -> StepEntry {
    StepEntry {
        task: Task::Flush,
        step: Step::FlushSynced,
        file: key(record),
        path: PathBuf::from(OsStr::from_bytes(b"study/\xff\n")),
        source: Some(Place::new("/dev/shm/o", "object")),
        destination: None,
        temporary: PathBuf::from(".terrace/tmp/x"),
        ino: 3,
    }
}

#[test]
fn what_was_written_is_there_when_it_is_opened_again() {
    let (_scratch, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    assert_eq!(journal.load().unwrap(), Snapshot::default());
    journal.put_files([(key(2), file(b"b\xff\n")), (key(1), file(b"a"))], Safety::Process).unwrap();
    let first = journal.begin(step(1), Safety::Process).unwrap();
    let second = journal.begin(step(2), Safety::Power).unwrap();
    journal.finish(first, Safety::Process).unwrap();
    journal.remove_files([key(1)], Safety::Process).unwrap();
    drop(journal);
    let journal = Journal::open(&path).unwrap();
    let snapshot = journal.load().unwrap();
    assert_eq!(snapshot.files, [(key(2), file(b"b\xff\n"))]);
    assert_eq!(snapshot.steps, [(second, step(2))]);
    assert!(journal.new_step() > second, "numbers are not given again while their step is there");
}

#[test]
fn a_journal_in_use_is_locked_and_says_what_to_do() {
    let (_scratch, path) = scratch();
    let _journal = Journal::open(&path).unwrap();
    let error = Journal::open(&path).err().unwrap();
    assert!(matches!(error, Error::JournalLocked { .. }), "{error}");
    assert!(error.hint().unwrap().contains("terrace status"));
}

#[test]
fn a_file_that_is_no_journal_is_refused_by_name_and_can_be_moved_aside() {
    for bytes in [b"hello".to_vec(), vec![0xab; 100_000], vec![0; 5000]] {
        let (_scratch, path) = scratch();
        std::fs::write(&path, &bytes).unwrap();
        let error = Journal::open(&path).err().unwrap();
        assert!(matches!(error, Error::JournalCorrupt { .. }), "{error}");
        assert!(error.to_string().contains("journal.redb"));
        assert!(error.hint().unwrap().contains("terrace recover"));
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "it is left as it was");
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        Journal::open(&path).unwrap();
    }
}

#[test]
fn a_journal_that_cannot_be_made_says_where() {
    let error = Journal::open(Path::new("/nonexistent/journal.redb")).err().unwrap();
    assert_eq!(error.errno(), libc::ENOENT);
    assert!(error.to_string().contains("/nonexistent/journal.redb"));
}

/// The file as it is at this moment is what a killed agent leaves: the kernel has all its writes.
fn as_after_a_kill(path: &Path) -> (tempfile::TempDir, PathBuf) {
    let (scratch, copy) = scratch();
    std::fs::copy(path, &copy).unwrap();
    (scratch, copy)
}

#[test]
fn every_batch_survives_a_kill_right_after_it() {
    let (_scratch, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    for record in 0..50 {
        let mut batch = Batch::default();
        batch.put_file(key(record), file(b"x"));
        if let Some(before) = record.checked_sub(10) {
            batch.remove_file(key(before));
        }
        batch.begin(StepId(record as u64), step(record));
        journal.write(batch, Safety::Process).unwrap();
        let (_copy, copied) = as_after_a_kill(&path);
        let snapshot = Journal::open(&copied).unwrap().load().unwrap();
        assert_eq!(snapshot, journal.load().unwrap());
        assert_eq!(snapshot.steps.len(), record as usize + 1);
    }
}

#[test]
fn a_real_kill_at_any_moment_leaves_whole_batches() {
    const ROUNDS: u32 = 8;
    let (_scratch, path) = scratch();
    for round in 0..ROUNDS {
        // SAFETY: the child only writes the journal and is killed; it returns to no test code.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let journal = Journal::open(&path).unwrap();
            let start = journal.load().unwrap().files.len() as u32 / 2;
            for pair in start.. {
                let both = [2 * pair, 2 * pair + 1].map(|record| (key(record), file(b"pair")));
                journal.put_files(both, Safety::Process).unwrap();
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(40 + 17 * round as u64));
        // SAFETY: our own child.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        let files = Journal::open(&path).unwrap().load().unwrap().files;
        assert_eq!(files.len() % 2, 0, "half a batch is there");
        let records: Vec<u32> = files.iter().map(|(key, _)| key.record).collect();
        assert_eq!(records, (0..files.len() as u32).collect::<Vec<_>>());
    }
}

#[test]
fn a_damaged_journal_is_an_error_or_an_older_state_but_never_a_crash() {
    let (_scratch, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    for record in 0..200 {
        journal.put_files([(key(record), file(b"some/path"))], Safety::Process).unwrap();
    }
    let (_copy, copied) = as_after_a_kill(&path);
    let bytes = std::fs::read(&copied).unwrap();
    let mut state = 1u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % below
    };
    for turn in 0..300 {
        let mut damaged = bytes.clone();
        if turn % 5 == 0 {
            damaged.truncate(random(bytes.len()));
        } else {
            // A page that was never written, or a few bits of one.
            let reach = if turn % 2 == 0 { bytes.len() } else { 4096 * 8 };
            let start = random(reach);
            let len = if turn % 3 == 0 { 4096 } else { 1 + random(8) };
            for byte in damaged.iter_mut().skip(start).take(len) {
                *byte = if turn % 3 == 0 { 0 } else { *byte ^ (1 << random(8)) };
            }
        }
        std::fs::write(&copied, &damaged).unwrap();
        let opened = std::panic::catch_unwind(|| Journal::open(&copied).and_then(|journal| journal.load()));
        let result = opened.unwrap_or_else(|_| panic!("turn {turn} panicked"));
        if let Ok(snapshot) = result {
            assert!(snapshot.files.len() <= 200);
        }
    }
}

#[test]
fn batches_of_many_threads_are_written_together() {
    let (_scratch, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let journal = &journal;
            scope.spawn(move || {
                for turn in 0..25 {
                    let record = thread * 100 + turn;
                    let id = journal.begin(step(record), Safety::Power).unwrap();
                    journal.put_files([(key(record), file(b"x"))], Safety::Process).unwrap();
                    journal.finish(id, Safety::Process).unwrap();
                }
            });
        }
    });
    let snapshot = journal.load().unwrap();
    assert_eq!((snapshot.files.len(), snapshot.steps.len()), (200, 0));
    assert!(start.elapsed().as_secs() < 60);
}

#[test]
fn after_a_full_disk_the_journal_goes_on() {
    let (_scratch, path) = scratch();
    let journal = Journal::open(&path).unwrap();
    journal.put_files([(key(1), file(b"before"))], Safety::Process).unwrap();
    journal.backend.refuse_writes(2);
    // The first refused write fails the transaction, the second one fails its repetition.
    let error = journal.put_files([(key(2), file(b"lost"))], Safety::Process).unwrap_err();
    assert!(error.is_no_space(), "{error}");
    assert!(error.hint().unwrap().contains("state"));
    journal.put_files([(key(3), file(b"after"))], Safety::Process).unwrap();
    let records: Vec<u32> = journal.load().unwrap().files.iter().map(|(key, _)| key.record).collect();
    assert_eq!(records, [1, 3]);
}
