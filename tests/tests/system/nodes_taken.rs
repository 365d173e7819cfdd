//! A file that nobody has open goes to the node whose program opens it: its bytes by the network, its name by one rename.

use crate::nodes::{assert_durable, two};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terrace_tests::{Node, Nodes};

/// Where the name leads, if it is a link.
fn leads_to(nodes: &Nodes, name: &str) -> Option<PathBuf> {
    std::fs::read_link(nodes.root().join(name)).ok()
}

/// Objects in a node's memory.
fn objects(node: &Node) -> usize {
    let found = node.native("find /dev/shm -path '*/terrace-*.*/*' -type f | wc -l").ok();
    found.stdout.trim().parse().unwrap()
}

const RAM: &[&str] = &["--tier", "ram=/dev/shm:64MiB"];

#[test]
fn a_file_comes_with_its_bytes_holes_attributes_and_inode_number() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let looks = "stat -c '%i %s %b %a %Y' f; sha1sum <f; getfattr -d f";
    let run = a.start(&format!(
        "head -c 300000 /dev/urandom >f; truncate -s 9000000 f; echo end >>f; chmod 640 f
         setfattr -n user.kind -v test f 2>/dev/null || true; touch -d @1000000000 f; ({looks}) >said 2>&1"
    ));
    let before = leads_to(&nodes, "f").expect("it is in its tier");
    let seen = b.run(&format!("cat f >/dev/null; ({looks}) 2>&1; cat said >&2"));
    assert!(seen.stdout.lines().count() >= 2 && seen.stderr.contains(&seen.stdout), "{seen:?}");
    a.end(run).ok();
    assert_ne!(leads_to(&nodes, "f"), Some(before));
    assert_durable(&nodes, &[]);
}

#[test]
fn it_is_the_other_nodes_own_from_then_on_and_leaves_nothing_where_it_was() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("echo from-a >f");
    let before = leads_to(&nodes, "f").expect("it is in its tier");
    let there = b.start("cat f");
    let after = leads_to(&nodes, "f").expect("it went to the other node's tier");
    assert_ne!(before.parent(), after.parent());
    assert!(!a.native(&format!("ls {}", before.display())).stdout.contains("AA"), "its object is left");
    assert_eq!(b.native(&format!("cat {}", after.display())).ok().stdout, "from-a\n");
    b.end(there).ok();
    // Flushed where it is.
    assert_eq!(leads_to(&nodes, "f"), None);
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "from-a\n")]);
}

#[test]
fn a_file_that_a_second_node_wants_is_made_a_real_one_for_all() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let c = nodes.node("nodec");
    let run = a.start("echo from-a >f; echo from-a >g");
    let there = b.start("cat f g; echo from-b >>g");
    assert!(leads_to(&nodes, "f").is_some());
    assert_eq!(c.run("cat f").ok().stdout, "from-a\n");
    assert_eq!(leads_to(&nodes, "f"), None);
    let seen = a.run("cat g; echo again >>g");
    assert!(seen.stdout.starts_with("from-a\nfrom-b\n"), "{seen:?}");
    assert_eq!(leads_to(&nodes, "g"), None);
    b.end(there).ok();
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "from-a\n"), ("g", "from-a\nfrom-b\nagain\n")]);
}

#[test]
fn what_a_program_has_open_or_the_other_tier_has_no_room_for_is_made_a_real_one() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let ram = ["--tier", "ram=/dev/shm:300MiB"];
    let run = a.start_with(&ram, None, "echo open >f; exec 5<f; head -c 100000000 /dev/zero >large");
    assert!(leads_to(&nodes, "f").is_some() && leads_to(&nodes, "large").is_some());
    let there = b.start("cat f; cmp -n 100000000 large /dev/zero");
    for name in ["f", "large"] {
        assert_eq!(leads_to(&nodes, name), None, "{name} came");
    }
    b.end(there).ok();
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "open\n")]);
}

#[test]
fn an_update_whose_last_durable_version_is_held_stays_with_the_node_that_can_put_that_back() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    std::fs::write(nodes.root().join("p"), "v1\n").unwrap();
    let run = a.start("echo v2 >p");
    assert!(leads_to(&nodes, "p").is_some(), "the test shows nothing: p was written in place");
    let there = b.start("test $(cat p) = v2");
    assert_eq!(leads_to(&nodes, "p"), None);
    b.end(there).ok();
    a.end(run).ok();
    assert_durable(&nodes, &[("p", "v2\n")]);
}

#[test]
fn a_file_stays_with_the_policy_of_the_node_that_made_it() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("echo data >x.in; echo data >y.out");
    for other in ["--flush=*.out", "--evict=x.*"] {
        let read = b.terrace(&["run", "-q", "--tier", RAM[1], other, "--", "cat", "x.in"]);
        assert_eq!(read.ok().stdout, "data\n", "{other}");
        assert_eq!(a.native("cat x.in").ok().stdout, "data\n", "{other}");
    }
    a.end(run).ok();
    assert_durable(&nodes, &[("x.in", "data\n"), ("y.out", "data\n")]);
}

#[test]
fn a_change_by_name_finds_a_file_that_goes_to_another_node_at_that_moment() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let there = b.start("true");
    let changes = "
import os, time
for i in range(150):
    name = f\"f{i}\"
    with open(name, \"w\") as file: file.write(\"abc\")
    end = time.time() + 0.02
    while time.time() < end:
        os.chmod(name, 0o640); os.utime(name); os.setxattr(name, \"user.a\", b\"x\"); os.truncate(name, 3)
        os.listxattr(name, follow_symlinks=False); os.lchown(name, 0, 0); os.removexattr(name, \"user.a\")
    assert os.stat(name).st_size == 3 and os.stat(name).st_mode & 0o777 == 0o640
open(\"made\", \"w\").close()";
    let opens = "
import os, time
for i in range(150):
    while not os.path.exists(\"made\"):
        try:
            assert open(f\"f{i}\").read() in (\"\", \"abc\")
            break
        except FileNotFoundError: time.sleep(0.001)";
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| b.run(&format!("python3 -c '{opens}'")));
        a.run(&format!("python3 -c '{changes}'")).ok();
        reader.join().unwrap().ok();
    });
    b.end(there).ok();
}

#[test]
fn programs_of_both_nodes_that_open_one_file_at_once_find_all_that_was_closed() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let (here, there) = (a.start("true"), b.start("true"));
    // Each appends lines by descriptors of their own, and counts what it sees: no line that was there may be missing later.
    let script = |who: &str| {
        format!(
            "for i in $(seq 40); do flock lock sh -c 'echo {who} >>f; wc -l <f >n.{who}; cat n.{who} >>seen.{who}'; done"
        )
    };
    std::thread::scope(|threads| {
        let one = threads.spawn(|| a.run(&script("a")));
        let other = threads.spawn(|| b.run(&script("b")));
        one.join().unwrap().ok();
        other.join().unwrap().ok();
    });
    b.end(there).ok();
    a.end(here).ok();
    let text = |name: &str| std::fs::read_to_string(nodes.root().join(name)).unwrap();
    assert_eq!(text("f").lines().count(), 80);
    let mut seen: Vec<u32> = ["seen.a", "seen.b"]
        .iter()
        .flat_map(|name| text(name).lines().map(|line| line.trim().parse().unwrap()).collect::<Vec<u32>>())
        .collect();
    seen.sort();
    assert_eq!(seen, (1..=80).collect::<Vec<_>>(), "a line was not seen when its writer had closed the file");
}

#[test]
fn two_nodes_that_read_each_others_files_in_one_directory_at_once_take_all_of_them() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let script = |own: &str, others: &str| {
        format!(
            "for i in {{1..50}}; do head -c 100000 /dev/zero >{own}$i.dat; done
             : >made.{own}; while [ ! -e made.{others} ]; do sleep 0.02; done; cat {others}*.dat | wc -c >../read.{own}"
        )
    };
    let begun = Instant::now();
    let (here, there) = std::thread::scope(|threads| {
        let there = threads.spawn(|| b.start(&script("b", "a")));
        (a.start(&script("a", "b")), there.join().unwrap())
    });
    // Nodes that wait for each other do so for five seconds: that may happen to four of the hundred files.
    assert!(begun.elapsed() < Duration::from_secs(20), "they waited for each other: {:?}", begun.elapsed());
    for who in ["a", "b"] {
        let read = std::fs::read_to_string(nodes.root().parent().unwrap().join(format!("read.{who}"))).unwrap();
        assert_eq!(read.trim(), "5000000");
        let names = (1..=50).map(|number| format!("{who}{number}.dat"));
        let stayed: Vec<String> = names.filter(|name| leads_to(&nodes, name).is_none()).collect();
        assert!(stayed.is_empty(), "they could not go, and were made real ones: {stayed:?}");
    }
    b.end(there).ok();
    a.end(here).ok();
}

#[test]
fn a_tree_of_small_files_is_copied_elsewhere_as_it_is() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("mkdir -p d/e; for i in $(seq 300); do echo $i >d/$i; echo $i >d/e/$i; done");
    let there = b.start("cp -a d copy; tar cf t d; diff -r d copy; mkdir x; tar xf t -C x; diff -r d x/d; rm t");
    a.end(run).ok();
    b.end(there).ok();
    assert_eq!(std::fs::read_to_string(nodes.root().join("copy/e/300")).unwrap(), "300\n");
    assert_durable(&nodes, &[("d/7", "7\n"), ("x/d/e/8", "8\n")]);
}

#[test]
fn a_large_file_comes_also_while_it_is_copied_early() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let ram = ["--tier", "ram=/dev/shm:400MiB"];
    // Early copies begin while a file is written.
    let each = "{ head -c 40000000 /dev/zero; sleep 0.1; head -c 1000000 /dev/zero; }";
    let run = a.start_with(&ram, None, &format!("for i in 0 1 2 3 4; do {each} >f$i & done; wait"));
    let there = b.start_with(&ram, None, "for i in 0 1 2 3 4; do cmp -n 41000000 f$i /dev/zero; done");
    for i in 0..5 {
        let place = leads_to(&nodes, &format!("f{i}")).unwrap_or_else(|| panic!("f{i} was made a real file"));
        assert!(!a.native(&format!("ls {}", place.display())).stdout.contains("AA"), "f{i} has not come");
    }
    b.end(there).ok();
    a.end(run).ok();
}

#[test]
fn tar_finds_no_change_in_a_directory_whose_files_come_as_it_reads_them() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("mkdir d; for i in $(seq 20); do echo $i >d/$i; done");
    let there = b.start("tar cf t d; tar xOf t d/7 | grep -qx 7");
    a.end(run).ok();
    b.end(there).ok();
    assert_durable(&nodes, &[("d/7", "7\n")]);
}

#[test]
fn what_policy_drops_or_keeps_stays_with_the_run_that_made_it() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let policy = ["--tier", RAM[1], "--flush", "*.out", "--evict", "*.tmp"];
    let run = a.start_with(&policy, None, "echo scratch >x.tmp; echo kept >y");
    for name in ["x.tmp", "y"] {
        let mut arguments = vec!["run", "-q"];
        arguments.extend(policy);
        arguments.extend(["--", "cat", name]);
        let read = b.terrace(&arguments).ok().stdout;
        assert_eq!(a.native(&format!("cat {name}")).ok().stdout, read);
    }
    a.end(run).ok();
}

#[test]
fn an_agent_that_is_killed_at_any_step_leaves_the_file_whole_with_one_owner() {
    let Some(nodes) = Nodes::new() else { return };
    for (of_a, of_b) in
        [(Some("GiveRenamed"), None), (Some("GiveDone"), None), (None, Some("TakeReady")), (None, Some("TakeNamed"))]
    {
        let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
        let run = a.start_with(RAM, of_a, "seq 10000 >f; seq 5 >g");
        let before = leads_to(&nodes, "f").expect("it is in its tier");
        let there = b.start_with(RAM, of_b, "seq 10000 | cmp - f; seq 5 | cmp - g");
        assert_ne!(leads_to(&nodes, "f"), Some(before), "{of_a:?} {of_b:?}: the test shows nothing");
        let again = a.run("seq 10000 | cmp - f; seq 5 | cmp - g; echo more >>f");
        assert!(again.code == 0, "{of_a:?} {of_b:?}: {again:?}");
        for (outcome, step) in [(b.end(there).ok(), of_b), (a.end(run).ok(), of_a)] {
            let was_killed = outcome.stderr.contains("was started again");
            assert_eq!(was_killed, step.is_some(), "{of_a:?} {of_b:?}: {outcome:?}");
        }
        let text = std::fs::read_to_string(nodes.root().join("f")).unwrap();
        assert!(text.ends_with("10000\nmore\n") && text.lines().count() == 10_001, "{of_a:?} {of_b:?}");
        assert_durable(&nodes, &[("g", "1\n2\n3\n4\n5\n")]);
        assert_eq!((objects(&a), objects(&b)), (0, 0), "{of_a:?} {of_b:?}");
        std::fs::read_dir(nodes.root())
            .unwrap()
            .flatten()
            .for_each(|entry| std::fs::remove_file(entry.path()).unwrap());
    }
}

#[test]
fn a_network_that_is_cut_while_a_file_goes_gives_no_file_two_owners() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let ram = ["--tier", "ram=/dev/shm:300MiB"];
    let run = a.start_with(&ram, None, "seq 20000000 | head -c 100000000 >f");
    let there = b.start_with(&ram, None, "true");
    std::thread::scope(|threads| {
        let cut = threads.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(60));
            a.cut();
            std::thread::sleep(std::time::Duration::from_secs(7));
            a.mend();
        });
        let seen = b.terrace(&[
            "run",
            "--settle",
            "1h",
            "--tier",
            "ram=/dev/shm:300MiB",
            "--",
            "bash",
            "-c",
            "sha1sum <f || sha1sum <f",
        ]);
        assert!(seen.stdout.contains(SUM), "{seen:?}");
        cut.join().unwrap();
    });
    let seen = a.terrace(&["run", "--settle", "1h", "--tier", "ram=/dev/shm:300MiB", "--", "sh", "-c", "sha1sum <f"]);
    assert!(seen.stdout.contains(SUM), "{seen:?}");
    b.end(there).ok();
    a.end(run).ok();
    assert_durable(&nodes, &[]);
    assert_eq!(std::fs::metadata(nodes.root().join("f")).unwrap().len(), 100_000_000);
}

/// Of the first 100,000,000 bytes of `seq`.
const SUM: &str = "5d22c6b92332c5c69ed67c6f389aeceae6752f07";

#[test]
fn who_only_looks_at_a_file_sees_what_it_is_and_leaves_it_where_it_is() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let says = "stat -c '%n %i %s %b %a %h %u %g %Y %F' f large d/*; ls -ln f large d | tail -n +2; du -b d; find . -name '[fl]*' -size +3c";
    let run = a.start(&format!(
        "echo from-a >f; chmod 640 f; touch -d @1000000000 f; head -c 5000000 /dev/zero >large; mkdir d
         for i in $(seq 50); do echo $i >d/$i; done; ({says}) >said 2>&1"
    ));
    let names = ["f", "large", "d/7"];
    let before = names.map(|name| leads_to(&nodes, name).expect("it is in its tier"));
    let looks = format!(
        "test -e f; test -r f; test -w f; ! test -x f; ! test -L f; ! getfattr -n user.no f 2>/dev/null
         python3 -c 'import os; assert os.path.getsize(\"large\") == 5000000 and not os.access(\"f\", os.X_OK)'
         ({says}) 2>&1; cat said >&2"
    );
    let seen = b.run(&looks).ok();
    assert_eq!(seen.stderr.lines().filter(|line| !line.starts_with("terrace:")).take(2).count(), 2, "{seen:?}");
    for line in seen.stdout.lines() {
        assert!(seen.stderr.contains(line), "{line:?} is not what its node sees:\n{}", seen.stderr);
    }
    assert_eq!(names.map(|name| leads_to(&nodes, name).expect("it was moved")), before);
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "from-a\n"), ("d/50", "50\n")]);
}

#[test]
fn a_file_has_the_inode_number_that_was_seen_when_it_is_opened_then() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("for i in $(seq 100); do head -c 70000 /dev/urandom >f$i; done");
    let there = b.start(
        "python3 -c '
import os
for i in range(1, 101):
    seen, fd = os.stat(f\"f{i}\"), os.open(f\"f{i}\", os.O_RDONLY)
    opened = os.fstat(fd)
    assert (seen.st_dev, seen.st_ino, seen.st_size) == (opened.st_dev, opened.st_ino, opened.st_size), i
    assert len(os.read(fd, 100000)) == 70000
    assert os.stat(f\"f{i}\").st_ino == seen.st_ino'",
    );
    b.end(there).ok();
    a.end(run).ok();
    assert_durable(&nodes, &[]);
}
