use super::*;
use crate::conformance;
use crate::tier::{Attributes, TierExt, WritingExt};

#[test]
fn an_object_directory_is_a_tier() {
    conformance::run(|directory| DirectoryTier::open("ssd", directory).unwrap());
}

#[test]
fn a_root_is_a_tier() {
    conformance::run(|directory| DirectoryTier::open_root("root", directory).unwrap());
}

#[test]
fn a_directory_in_memory_is_a_tier() {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        conformance::run_in(memory, |directory| DirectoryTier::open("memory", directory).unwrap());
    }
}

#[test]
fn a_roots_temporaries_lie_in_one_private_place_and_are_discarded_after_a_crash() {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(scratch.path().join("nested")).unwrap();
    let tier = DirectoryTier::open_root("root", scratch.path()).unwrap();
    assert_eq!(tier.discard_temporaries([]).unwrap(), 0, "there is no such directory yet");
    for name in ["file", "nested/file"] {
        let writing = tier.create(Path::new(name)).unwrap();
        assert!(writing.path().starts_with(scratch.path().join(".terrace/tmp")));
        std::mem::forget(writing); // as a crash would
    }
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(scratch.path().join(".terrace")).unwrap().mode() & 0o777, 0o700);
    tier.write(Path::new("kept"), b"").unwrap();
    assert_eq!(tier.discard_temporaries([]).unwrap(), 2);
    assert_eq!(tier.discard_temporaries([]).unwrap(), 0);
    assert!(tier.exists(Path::new("kept")).unwrap());
}

#[test]
fn temporaries_of_several_lanes_are_committed_and_discarded_as_others_are() {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = DirectoryTier::open_root("root", scratch.path()).unwrap();
    for lane in 0..20 {
        let mut writing = tier.create_with_mode(Path::new("file"), 0o640, Some(lane)).unwrap();
        writing.write_all_at(&[lane as u8], 0).unwrap();
        if lane < 12 {
            writing.commit(Path::new("file")).unwrap();
            assert_eq!(tier.read(Path::new("file")).unwrap(), [lane as u8]);
        } else {
            std::mem::forget(writing); // as a crash would
        }
    }
    assert_eq!(tier.discard_temporaries([]).unwrap(), 8);
    assert_eq!(std::fs::read_dir(scratch.path().join(".terrace/tmp")).unwrap().count(), 0, "no lane stays");
}

#[test]
fn a_file_is_committed_over_what_is_expected_and_nothing_else() {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = DirectoryTier::open_root("root", scratch.path()).unwrap();
    let file = scratch.path().join("file");
    let is_link = |path: &Path| path.is_symlink();
    let commit = || {
        let mut writing = tier.create(Path::new("file")).unwrap();
        writing.write_all_at(b"new", 0).unwrap();
        writing.commit_over(Path::new("file"), &is_link)
    };
    // The name is gone: it stays so.
    assert!(commit().unwrap_err().is_not_found());
    assert!(!file.exists());
    std::fs::write(&file, "another").unwrap();
    assert!(commit().unwrap_err().is_not_found());
    assert_eq!(std::fs::read(&file).unwrap(), b"another");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("anywhere", &file).unwrap();
    let committed = commit().unwrap();
    assert_eq!((committed.size, std::fs::read(&file).unwrap()), (3, b"new".to_vec()));
    let left = std::fs::read_dir(scratch.path().join(".terrace/tmp")).unwrap().count();
    assert_eq!(left, 0, "the link that was replaced, and what was not committed, is gone");
}

#[test]
fn an_exchange_that_was_refused_is_asked_for_no_more_but_below_other_mounts() {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = DirectoryTier::open_root("root", scratch.path()).unwrap();
    drop(tier.create(Path::new("file")).unwrap());
    for name in ["one", "other", ".terrace/tmp/mine"] {
        std::fs::write(scratch.path().join(name), name).unwrap();
    }
    let (mine, one, other) = (Path::new(".terrace/tmp/mine"), Path::new("one"), Path::new("other"));
    let holds = |name: &Path, text: &str| std::fs::read(scratch.path().join(name)).unwrap() == text.as_bytes();
    tier.exchange(mine, one).unwrap();
    assert!(holds(mine, "one") && holds(one, ".terrace/tmp/mine"));
    tier.refuses_exchange.store(true, Ordering::Relaxed);
    assert_eq!(tier.exchange(&scratch.path().join(mine), one), Err(Errno::NOTSUP));
    assert!(holds(mine, "one"));
    tier.exchange(one, other).unwrap();
    assert!(holds(one, "other"));
    tier.replace(mine, one, &|| true).unwrap();
    assert!(holds(one, "one") && !scratch.path().join(mine).exists());
}

#[test]
fn a_temporary_is_made_with_its_files_mode_and_gets_it_whatever_the_umask() {
    use std::os::unix::fs::MetadataExt;
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = DirectoryTier::open_root("root", scratch.path()).unwrap();
    for mode in [0o600, 0o644, 0o666, 0o755, 0o400, 0o000, 0o4711, 0o2070] {
        let mut writing = tier.create_with_mode(Path::new("file"), mode, None).unwrap();
        let now = writing.stat().unwrap();
        let wanted = Attributes { mode, uid: now.uid, gid: now.gid, ..Attributes::default() };
        assert!(writing.set_attributes(&wanted).unwrap().is_complete());
        writing.commit(Path::new("file")).unwrap();
        let made = std::fs::metadata(scratch.path().join("file")).unwrap().mode() & 0o7777;
        assert_eq!(made, mode, "{mode:o}");
    }
}

#[test]
fn an_object_directorys_temporaries_are_not_listed_and_are_discarded() {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = DirectoryTier::open("ssd", scratch.path()).unwrap();
    std::mem::forget(tier.create(Path::new("object")).unwrap());
    tier.write(Path::new("kept"), b"").unwrap();
    assert_eq!(tier.list(Path::new("")).unwrap().len(), 1);
    assert_eq!(tier.discard_temporaries([Path::new("")]).unwrap(), 1);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
}

#[test]
fn a_name_on_a_mount_below_the_root_gets_its_temporary_there() {
    // A link into memory stands for a mount: another file system under a name of the root.
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    std::os::unix::fs::symlink(memory.path(), scratch.path().join("mount")).unwrap();
    let tier = DirectoryTier::open_root("root", scratch.path()).unwrap();
    tier.write(Path::new("mount/file"), b"bytes").unwrap();
    assert_eq!(std::fs::read(memory.path().join("file")).unwrap(), b"bytes");
}

#[test]
fn a_link_is_not_followed_and_a_fifo_is_not_waited_for() {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let tier = DirectoryTier::open("ssd", scratch.path()).unwrap();
    tier.write(Path::new("file"), b"bytes").unwrap();
    std::os::unix::fs::symlink("file", scratch.path().join("link")).unwrap();
    let fifo = std::ffi::CString::new(scratch.path().join("fifo").as_os_str().as_bytes()).unwrap();
    // SAFETY: a valid C string.
    assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
    assert_eq!(tier.open(Path::new("link")).err().unwrap().errno(), libc::ELOOP);
    assert_eq!(tier.open(Path::new("fifo")).err().unwrap().errno(), libc::EINVAL);
    let kinds: Vec<_> = tier.list(Path::new("")).unwrap().into_iter().map(|entry| entry.kind).collect();
    assert!(kinds.contains(&EntryKind::Link) && kinds.contains(&EntryKind::Other));
}

#[test]
fn a_tier_that_is_missing_says_which() {
    let error = DirectoryTier::open("ssd", "/nonexistent/tier").unwrap_err();
    assert!(error.is_not_found());
    assert!(error.to_string().contains("/nonexistent/tier"), "{error}");
}

/// A tier that shows its temporaries under their final name.
struct Hasty(DirectoryTier);

impl Tier for Hasty {
    fn label(&self) -> &str {
        self.0.label()
    }
    fn space(&self) -> Result<Space> {
        self.0.space()
    }
    fn create(&self, name: &Path) -> Result<Box<dyn Writing>> {
        self.0.create(name)?.commit(name)?;
        self.0.create(name)
    }
    fn open(&self, name: &Path) -> Result<Box<dyn Reading>> {
        self.0.open(name)
    }
    fn remove(&self, name: &Path) -> Result<()> {
        self.0.remove(name)
    }
    fn list(&self, directory: &Path) -> Result<Vec<Entry>> {
        self.0.list(directory)
    }
    fn sync_name(&self, name: &Path) -> Result<()> {
        self.0.sync_name(name)
    }
}

#[test]
#[should_panic]
fn the_suite_refuses_a_tier_that_shows_files_before_they_are_whole() {
    conformance::run(|directory| Hasty(DirectoryTier::open("hasty", directory).unwrap()));
}
