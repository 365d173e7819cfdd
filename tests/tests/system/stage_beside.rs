//! What is brought while the program runs: names first, and who looks at one waits for its file.

use crate::object_storage::{MIB, Store, noise, of, run};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use terrace_tests::{Outcome, Proxy, Wish, Workplace, skipped, wait_until};

const IN: [&str; 2] = ["--stage-in", "s3://bucket/in"];

/// A program with its standard input, which it can wait for.
fn spawn(place: &Workplace, address: &str, flags: &[&str], script: &str) -> Child {
    let mut command = place.terrace("run");
    command.args(flags).args(["--", "bash", "-euo", "pipefail", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    of(&mut command, address).spawn().unwrap()
}

/// As a program outside sees it: a link that leads nowhere.
fn is_on_its_way(path: &Path) -> bool {
    path.is_symlink() && !path.exists()
}

fn agent_of(place: &Workplace) -> i32 {
    place.status().map_or(0, |status| status.agent_pid as i32)
}

#[test]
fn a_program_starts_when_the_names_are_there_and_waits_where_it_looks_at_a_file() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let store = Store::start(&place);
    let (big, small) = (noise(48 * MIB), noise(3000));
    store.put("in/d/big", &big);
    store.put("in/small", &small);
    let proxy = Proxy::to(&store.address);
    proxy.allow(u64::MAX, 4 * MIB);
    let script = "find in -type f | sort >names; touch $SCRATCH/started; read -r _ || true
        test -s in/small; stat -c %s in/d/big; cmp in/d/big $SCRATCH/big; cat in/small >copy";
    std::fs::write(place.scratch().join("big"), &big).unwrap();
    let mut child = spawn(&place, &proxy.address, &IN, script);
    assert!(wait_until(60, || place.scratch().join("started").exists()), "{:?}", child.try_wait());
    let name = place.root().join("in/d/big");
    assert!(is_on_its_way(&name), "the test's network is too fast");
    drop(child.stdin.take());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(child.try_wait().unwrap(), None, "it did not wait");
    proxy.allow(u64::MAX, u64::MAX);
    let outcome = Outcome::of_child(120, child).ok();
    assert_eq!(outcome.stdout, format!("{}\n", big.len()));
    assert!(outcome.stderr.contains("staged in s3://bucket/in: 2 files, 48.0 MiB"), "{}", outcome.stderr);
    place.settled_tree();
    assert_eq!(std::fs::read_to_string(place.root().join("names")).unwrap(), "in/d/big\nin/small\n");
    assert!(std::fs::read(name).unwrap() == big && std::fs::read(place.root().join("copy")).unwrap() == small);
    run(&place, &store.address, &IN, "cmp in/d/big $SCRATCH/big").ok();
}

#[test]
fn what_a_program_waits_for_comes_before_the_others() {
    let place = Wish::default().tier("ram", "512MiB").build();
    let store = Store::start(&place);
    let name = |number: u64| format!("in/{number:02}");
    for number in 0..40 {
        store.put(&name(number), &noise(2 * MIB + number));
    }
    let proxy = Proxy::to(&store.address);
    proxy.allow(u64::MAX, 0);
    let mut child = spawn(
        &place,
        &proxy.address,
        &IN,
        "cat in/39 >/dev/null; touch $SCRATCH/came; read -r _ || true; cat in/* | wc -c",
    );
    let came = place.scratch().join("came");
    let is_let_in_slowly = || {
        proxy.allow(u64::MAX, MIB);
        came.exists()
    };
    assert!(wait_until(120, is_let_in_slowly), "{:?}", child.try_wait());
    let left = (0..39).filter(|&number| is_on_its_way(&place.root().join(name(number)))).count();
    assert!(left > 15, "{left} of 39 had not come");
    proxy.allow(u64::MAX, u64::MAX);
    drop(child.stdin.take());
    let all: u64 = (0..40).map(|number| 2 * MIB + number).sum();
    assert_eq!(Outcome::of_child(120, child).ok().stdout.trim(), all.to_string());
}

#[test]
fn what_nobody_has_asked_for_when_the_program_ends_is_not_brought_and_leaves_no_name() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let store = Store::start(&place);
    store.put("in/one", b"1");
    store.put("in/two", &noise(64 * MIB));
    let proxy = Proxy::to(&store.address);
    proxy.allow(u64::MAX, 2 * MIB);
    let outcome = Outcome::of_child(120, spawn(&place, &proxy.address, &IN, "cat in/one; touch in/own")).ok();
    assert_eq!(outcome.stdout, "1");
    assert!(outcome.stderr.contains("1 that nobody has asked for were not brought"), "{}", outcome.stderr);
    let tree = place.settled_tree();
    assert!(!tree.has("in/two") && tree.has("in/one") && tree.has("in/own"), "{tree:?}");
    let left: Vec<_> = std::fs::read_dir(place.root().join("in")).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "{left:?}");
    // The next run has it.
    run(&place, &store.address, &IN, "test $(stat -c %s in/two) = 67108864").ok();
    // --stage-wait has all of it before the program.
    std::fs::remove_dir_all(place.root().join("in")).unwrap();
    run(&place, &store.address, &["--stage-wait", IN[0], IN[1]], "true").ok();
    place.settled_tree();
    assert_eq!(std::fs::metadata(place.root().join("in/two")).unwrap().len(), 64 * MIB);
}

#[test]
fn an_object_that_does_not_come_is_an_error_of_the_call_and_of_the_run() {
    let place = Workplace::new();
    let store = Store::start(&place);
    store.put("in/good", b"good");
    store.put("in/bad", &noise(20 * MIB));
    let proxy = Proxy::to(&store.address);
    proxy.allow(u64::MAX, MIB);
    let script =
        "cat in/good; touch $SCRATCH/started; read -r _ || true; cat in/bad || echo \" $?\"; test ! -s in/none";
    let mut child = spawn(&place, &proxy.address, &IN, script);
    assert!(wait_until(60, || place.scratch().join("started").exists()), "{:?}", child.try_wait());
    // It is another one, of another size: ranges of two versions are never put together.
    store.put("in/bad", b"other");
    proxy.allow(u64::MAX, u64::MAX);
    proxy.sever();
    drop(child.stdin.take());
    let outcome = Outcome::of_child(120, child).ends_with(74);
    assert_eq!(outcome.stdout, "good 1\n");
    for words in ["in/bad: Input/output error", "not everything was brought: s3://bucket/in", "in/bad"] {
        assert!(outcome.stderr.contains(words), "{}", outcome.stderr);
    }
    assert!(!place.settled_tree().has("in/bad"));
}

#[test]
fn an_agent_that_is_killed_while_a_program_waits_costs_nothing() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let store = Store::start(&place);
    let big = noise(32 * MIB);
    store.put("in/big", &big);
    store.put("in/other", b"other");
    let proxy = Proxy::to(&store.address);
    proxy.allow(u64::MAX, 4 * MIB);
    let child = spawn(&place, &proxy.address, &IN, "touch $SCRATCH/started; cat in/big | wc -c; cat in/other");
    assert!(wait_until(60, || place.scratch().join("started").exists()));
    std::thread::sleep(Duration::from_millis(200));
    let killed = agent_of(&place);
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(killed, libc::SIGKILL) };
    assert!(wait_until(60, || ![0, killed].contains(&agent_of(&place))));
    assert!(is_on_its_way(&place.root().join("in/big")));
    proxy.allow(u64::MAX, u64::MAX);
    assert_eq!(Outcome::of_child(120, child).ok().stdout, format!("{}\nother", big.len()));
    place.settled_tree();
    assert!(std::fs::read(place.root().join("in/big")).unwrap() == big);
}

#[test]
fn a_run_that_is_killed_with_all_of_its_processes_leaves_names_that_the_next_one_fills() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let store = Store::start(&place);
    let big = noise(32 * MIB);
    store.put("in/big", &big);
    let proxy = Proxy::to(&store.address);
    proxy.allow(u64::MAX, 4 * MIB);
    let mut child = spawn(&place, &proxy.address, &IN, "touch $SCRATCH/started; read -r _");
    assert!(wait_until(60, || place.scratch().join("started").exists()));
    let agent = agent_of(&place);
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(agent, libc::SIGSTOP) };
    child.kill().unwrap();
    // SAFETY: as above.
    unsafe { libc::kill(agent, libc::SIGKILL) };
    drop(child.stdin.take());
    child.wait().unwrap();
    let name = place.root().join("in/big");
    assert!(is_on_its_way(&name), "{:?}", std::fs::symlink_metadata(&name));
    proxy.allow(u64::MAX, u64::MAX);
    run(&place, &store.address, &IN, "cat in/big | wc -c").ok();
    place.settled_tree();
    assert!(std::fs::read(name).unwrap() == big);
}

#[test]
fn names_that_are_renamed_removed_and_replaced_meanwhile_are_where_the_program_has_them() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let store = Store::start(&place);
    for name in ["a/one", "a/two", "b/gone", "old"] {
        store.put(&format!("in/{name}"), &noise(3 * MIB));
    }
    std::fs::create_dir(place.root().join("in")).unwrap();
    std::fs::write(place.root().join("in/old"), "an older version").unwrap();
    let proxy = Proxy::to(&store.address);
    proxy.allow(u64::MAX, 4 * MIB);
    // What was there in another version is replaced before the program starts.
    let script = "stat -c %s in/old; mv in/a in/moved; touch $SCRATCH/started; read -r _ || true
        stat -c %s in/moved/two; rm in/b/gone; ls in/b | wc -l; ln in/moved/one in/second; stat -c %h in/second";
    let mut child = spawn(&place, &proxy.address, &IN, script);
    assert!(wait_until(60, || place.scratch().join("started").exists()), "{:?}", child.try_wait());
    proxy.allow(u64::MAX, u64::MAX);
    drop(child.stdin.take());
    let outcome = Outcome::of_child(120, child).ok();
    assert_eq!(outcome.stdout, "3145728\n3145728\n0\n2\n");
    let tree = place.settled_tree();
    assert!(tree.has("in/moved/one") && tree.has("in/moved/two") && !tree.has("in/a/one") && !tree.has("in/b/gone"));
}

#[test]
fn programs_that_the_supervisor_or_a_mount_serves_wait_too() {
    for flag in ["--supervise-only", "--mount"] {
        if flag == "--mount" && !terrace_tests::has_mounts() {
            skipped("no private mounts here");
            continue;
        }
        let place = Workplace::new();
        let store = Store::start(&place);
        let big = noise(8 * MIB);
        store.put("in/big", &big);
        let proxy = Proxy::to(&store.address);
        proxy.allow(u64::MAX, 2 * MIB);
        let mut child = spawn(
            &place,
            &proxy.address,
            &[flag, IN[0], IN[1]],
            "touch $SCRATCH/started; test -f in/big; cat in/big | wc -c",
        );
        assert!(wait_until(60, || place.scratch().join("started").exists()), "{flag}: {:?}", child.try_wait());
        assert!(is_on_its_way(&place.root().join("in/big")));
        proxy.allow(u64::MAX, u64::MAX);
        assert_eq!(Outcome::of_child(120, child).ok().stdout.trim(), big.len().to_string(), "{flag}");
    }
}
