//! The agent is killed at each step of the mover, in a child process; then it is recovered.

use super::simulated::{Place, Program};
use crate::lifetime;
use crate::shared::request::Scope;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use terrace_tier::step::{KILL_ENV, Step};

const ROOT_ENV: &str = "TERRACE_TEST_CRASH_ROOT";
const MEMORY_ENV: &str = "TERRACE_TEST_CRASH_MEMORY";
const TIERS: &[u64] = &[1 << 20, 8 << 20];

/// What the child does: every kind of work once. Not a test of its own: it runs only as a child of the one below.
#[test]
fn child_that_moves_files_until_it_is_killed() {
    let (Some(root), Some(memory)) = (std::env::var_os(ROOT_ENV), std::env::var_os(MEMORY_ENV)) else { return };
    let mut settings = Place::settings_in(&PathBuf::from(root), &PathBuf::from(memory), TIERS);
    settings.policy.flush = vec!["**".into(), "!work/**".into()];
    settings.policy.evict = vec!["work/**".into()];
    let root = settings.root.clone();
    let running = lifetime::start(settings).unwrap();
    let agent = &running.agent;
    let program = Program::on(agent.index, root.clone());
    let all = || Scope(vec![]);
    let quiet = &mut |_: u64, _: u64, _: u64, _: u64| true;
    std::fs::create_dir(root.join("work")).unwrap();
    let number = program.write("flushed", b"flushed bytes");
    let read = program.write("read", b"read bytes");
    program.write("promoted", b"promoted bytes");
    program.write("work/scratch", b"scratch");
    let (grown, file) = program.create("grown", b"grown bytes");
    agent.flush(&all(), &super::QUIET, quiet);
    agent.evict_all(&Scope(vec![root.join("flushed")]), quiet);
    // Its replica is open: who reads it is to have the root's file.
    let _reader = std::fs::File::open(agent.object_path(read)).unwrap();
    agent.evict_all(&Scope(vec![root.join("read")]), quiet);
    agent.prefetch_all(&Scope(vec![root.join("old")]), quiet);
    let promoted = (0..agent.index.records_end())
        .find(|&n| agent.catalogue().path(n, agent.serial(n)).is_some_and(|path| path.ends_with(b"/promoted")));
    let _ = agent.promote(promoted.unwrap(), b"");
    let _ = agent.replace(root.join("replaced").as_os_str().as_encoded_bytes());
    agent.grow(grown, &file.into(), 4 << 20);
    let end = crate::shared::request::FlushOptions { all: false, end_of_run: true, settle_open: false };
    agent.flush(&all(), &end, quiet);
    assert!(agent.record(number).ino.load(std::sync::atomic::Ordering::SeqCst) != 0);
    std::process::exit(3); // reached the end: the step was never reached
}

#[test]
fn a_crash_at_any_step_is_recovered() {
    for &step in Step::ALL.iter().filter(|step| !step.is_between_nodes()) {
        let mut place = Place::unstarted(TIERS);
        std::fs::write(place.path("old"), b"old bytes").unwrap();
        std::fs::write(place.path("replaced"), b"to be truncated").unwrap();
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "tests::crash::child_that_moves_files_until_it_is_killed", "--nocapture"])
            .env(ROOT_ENV, &place.settings().root)
            .env(MEMORY_ENV, place.memory())
            .env(KILL_ENV, step.name())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_ne!(status.code(), Some(3), "{step} was never reached");
        assert_eq!(status.code(), None, "{step}: the child ended by itself: {status}");
        let report = crate::recover(place.settings()).unwrap();
        assert!(report.lost.is_empty() && report.failures.is_empty(), "{step}: {report:?}");
        let expected: &[(&str, &[u8])] = &[
            ("flushed", b"flushed bytes"),
            ("read", b"read bytes"),
            ("promoted", b"promoted bytes"),
            ("grown", b"grown bytes"),
            ("old", b"old bytes"),
        ];
        for (name, bytes) in expected {
            assert!(!place.is_link(name), "{step}: {name} is still a link");
            assert_eq!(&place.read(name), bytes, "{step}: {name}");
        }
        // A program that truncates while it opens has asked for either of these.
        assert!([b"".as_slice(), b"to be truncated"].contains(&place.read("replaced").as_slice()), "{step}");
        assert!(!place.path(".terrace").exists(), "{step}: something is left in the root");
        assert_eq!(place.objects(), 0, "{step}: an object is left");
        // And a new agent finds a root like any other.
        place.start();
    }
}

#[test]
fn a_link_whose_tier_is_gone_is_told_by_name_and_its_last_version_comes_back() {
    let mut place = Place::new(&[]);
    let program = Program::new(&place);
    let (lost, file) = program.create("lost", b"only here");
    let promoted = program.write("promoted", b"version 1");
    super::flush(&place);
    place.agent().promote(promoted, b"").unwrap();
    let objects = [program.object(lost), program.object(promoted)];
    drop((program, file));
    // The machine stops: the tier's bytes and the index are gone, the root stays.
    std::fs::remove_file(place.settings().index()).unwrap();
    objects.iter().for_each(|object| std::fs::remove_file(object).unwrap());
    std::mem::forget(place.take_running());
    let _ = std::fs::remove_file(place.settings().lock());
    let _ = std::fs::remove_file(place.settings().journal());
    let report = crate::recover(place.settings()).unwrap();
    assert_eq!(report.lost.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>(), [place.path("lost")]);
    assert_eq!(report.restored, [place.path("promoted")]);
    assert_eq!(place.read("promoted"), b"version 1");
}
