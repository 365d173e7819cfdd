//! A large file is copied while it is written (docs/design/moves.md): the copy is a temporary until the file is flushed, and has what the
//! file has at that moment, whatever was done to it in between.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use terrace_tests::{Outcome, Shell, Wish, Workplace, wait_until};

const MIB: u64 = 1 << 20;

/// Temporaries in the root, with their sizes.
fn temporaries(root: &Path) -> Vec<(PathBuf, u64)> {
    let nodes = std::fs::read_dir(root.join(".terrace/nodes")).into_iter().flatten().flatten();
    let inside = nodes.flat_map(|node| std::fs::read_dir(node.path().join("tmp")).into_iter().flatten().flatten());
    inside.filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.len()))).collect()
}

/// The only one, when it has so many bytes.
#[track_caller]
fn copied(place: &Workplace, bytes: u64) -> PathBuf {
    let mut found = vec![];
    let is_there = wait_until(30, || {
        found = temporaries(place.root());
        matches!(found[..], [(_, size)] if size >= bytes)
    });
    assert!(is_there, "{bytes} bytes are to be copied early, and there are {found:?}");
    found.remove(0).0
}

/// Writes 48 MiB into `big`, which stays open as descriptor 7.
fn writes(shell: &mut Shell<'_>) {
    shell.does("exec 7>big; head -c 48M /dev/urandom >&7");
}

#[test]
fn a_large_file_is_copied_while_it_is_open_and_its_copy_becomes_the_file() {
    let place = Wish::default().tier("ram", "1GiB").build();
    let mut shell = place.shell();
    writes(&mut shell);
    let copy = std::fs::metadata(copied(&place, 46 * MIB)).unwrap().ino();
    assert_eq!(place.state_of("big"), "current");
    assert!(std::fs::symlink_metadata(place.root().join("big")).unwrap().is_symlink());
    // What has been copied changes: in the middle, to a hole, and by an end that comes earlier, and later again.
    shell.does(
        "exec 8<>big; printf changed | dd of=/dev/fd/8 bs=1 seek=5000000 conv=notrunc status=none
         fallocate --punch-hole --offset 20000000 --length 3000000 big; truncate -s 40M big; truncate -s 45M big
         exec 7>&- 8>&-; sha256sum big >sum",
    );
    place.flush(&["big"]);
    assert_eq!(std::fs::symlink_metadata(place.root().join("big")).unwrap().ino(), copy, "another copy was made");
    place.native(&["sha256sum", "--quiet", "--check", "sum"]).ok();
    shell.ends_and_leaves();
    place.native(&["sha256sum", "--quiet", "--check", "sum"]).ok();
}

#[test]
fn an_early_copy_goes_with_its_file_and_none_is_made_of_what_is_not_to_be_durable() {
    let policy = "flush = [\"**\", \"!scratch*\", \"!work/**\"]\nevict = [\"work/**\"]";
    let place = Wish::default().tier("ram", "1GiB").top("directories = \"off\"").policy(policy).build();
    let none_is_left =
        || assert!(wait_until(10, || temporaries(place.root()).is_empty()), "{:?}", temporaries(place.root()));
    let mut shell = place.shell();
    writes(&mut shell);
    copied(&place, 46 * MIB);
    shell.does("rm big; exec 7>&-");
    none_is_left();
    // By its new name it is to be dropped.
    writes(&mut shell);
    copied(&place, 46 * MIB);
    shell.does("mkdir work; mv big work/big; head -c 1M /dev/zero >&7");
    none_is_left();
    shell.does("exec 7>&-");
    // The only copy is that of the later file.
    shell.does("exec 8>scratch; head -c 48M /dev/zero >&8");
    writes(&mut shell);
    copied(&place, 46 * MIB);
    shell.does("exec 7>&- 8>&-; rm big scratch");
    let tree = shell.ends_and_leaves();
    assert!(!tree.has("work/big") && !tree.has("big") && !tree.has("scratch"));
    // Nor where nobody wants it.
    let place = Wish::default().tier("ram", "1GiB").mover("early_copies = false").build();
    let mut shell = place.shell();
    writes(&mut shell);
    shell.does("sleep 0.5");
    assert_eq!(temporaries(place.root()), []);
    shell.does("exec 7>&-");
    assert_eq!(shell.ends_and_leaves().bytes("big").len() as u64, 48 * MIB);
}

#[test]
fn a_file_that_gets_another_name_or_another_tier_meanwhile_is_whole() {
    let place = Wish::default().tier("ram", "64MiB").tier("ssd", "1GiB").build();
    let mut shell = place.shell();
    writes(&mut shell);
    let copy = std::fs::metadata(copied(&place, 46 * MIB)).unwrap().ino();
    shell.does("mv big renamed; exec 7>&-; sha256sum renamed >sum1");
    place.flush(&["renamed"]);
    assert_eq!(std::fs::symlink_metadata(place.root().join("renamed")).unwrap().ino(), copy);
    writes(&mut shell);
    copied(&place, 46 * MIB);
    shell.does("mkdir d; mv big d; exec 7>&-; sha256sum d/big >sum2");
    place.flush(&["d/big"]);
    place.evict(&["renamed", "d/big"]);
    writes(&mut shell);
    copied(&place, 46 * MIB);
    // It outgrows its tier.
    shell.does("head -c 48M /dev/urandom >&7; exec 7>&-; sha256sum big >sum3");
    shell.ends_and_leaves();
    place.native_sh("sha256sum --quiet --check sum1 sum2 sum3").ok();
}

#[test]
fn an_agent_that_is_killed_leaves_no_early_copy_that_is_taken_for_the_file() {
    let place = Wish::default().tier("ram", "1GiB").build();
    let mut shell = place.shell();
    writes(&mut shell);
    let copy = copied(&place, 46 * MIB);
    let agent = place.status().expect("an agent").agent_pid as i32;
    // SAFETY: the agent's own word.
    unsafe { libc::kill(agent, libc::SIGKILL) };
    let is_new = || place.status().is_some_and(|status| status.agent_pid as i32 != agent);
    assert!(wait_until(30, is_new), "no new agent\n{}", place.agent_log());
    assert!(!copy.exists());
    shell.does("printf changed | dd of=big bs=1 seek=1000 conv=notrunc status=none; head -c 9M /dev/zero >&7");
    shell.does("exec 7>&-; sha256sum big >sum");
    shell.ends_and_leaves();
    assert_eq!(temporaries(place.root()), []);
    place.native(&["sha256sum", "--quiet", "--check", "sum"]).ok();
}

/// By descriptor, by mappings, with holes and new ends, for as long as it takes to copy it a few times.
const AT_RANDOM: &str = r#"
import hashlib, mmap, os, random, sys, time
random.seed(int(sys.argv[1])); MIB = 1 << 20
model = bytearray(20 * MIB)
fd = os.open("big", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, bytes(model), 0)
end = time.time() + 3
while time.time() < end:
    act, at, count = random.randrange(8), random.randrange(len(model)), random.randrange(1, 2 * MIB)
    data = random.randbytes(count)
    if act == 7 and random.random() < 0.5:
        os.close(fd); time.sleep(0.05); fd = os.open("big", os.O_RDWR)
    elif act <= 3 and len(model) < 64 * MIB:
        os.pwrite(fd, data, len(model)); model += data
    elif act <= 5:
        data = data[:len(model) - at]; os.pwrite(fd, data, at); model[at:at + len(data)] = data
    elif act == 6:
        with mmap.mmap(fd, len(model)) as m: data = data[:len(model) - at]; m[at:at + len(data)] = data
        model[at:at + len(data)] = data
    elif len(model) > 18 * MIB:
        size = len(model) - random.randrange(MIB); os.ftruncate(fd, size); del model[size:]
os.close(fd)
print(hashlib.sha256(model).hexdigest())
"#;

#[test]
fn whatever_a_program_does_to_its_file_what_is_flushed_is_what_it_left() {
    for seed in ["1", "2", "3"] {
        let place = Wish::default().tier("ram", "2GiB").settle("1ms").build();
        let script = place.scratch().join("program.py");
        std::fs::write(&script, AT_RANDOM).unwrap();
        let program = place.start_with(&[], &["/usr/bin/python3", script.to_str().unwrap(), seed]);
        copied(&place, 8 * MIB);
        let sum = Outcome::of_child(120, program).ok().stdout;
        let found = place.native(&["sha256sum", "big"]).ok().stdout;
        assert_eq!(found.split(' ').next(), Some(sum.trim()), "seed {seed}");
        assert_eq!(temporaries(place.root()), []);
    }
}
