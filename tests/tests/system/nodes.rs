//! Several nodes that share a root, each with memory and state of its own: what one has in its tiers, no other one touches.

use std::path::Path;
use std::process::Stdio;
use terrace_tests::{Node, Nodes, Outcome, wait_until};

fn is_link(nodes: &Nodes, name: &str) -> bool {
    nodes.root().join(name).is_symlink()
}

fn private(nodes: &Nodes) -> Vec<String> {
    let walk = walkdir::WalkDir::new(nodes.root().join(".terrace")).into_iter().flatten();
    walk.map(|entry| entry.path().strip_prefix(nodes.root()).unwrap().display().to_string()).collect()
}

/// Nothing of Terrace is in the root, and each file has these bytes.
#[track_caller]
pub fn assert_durable(nodes: &Nodes, files: &[(&str, &str)]) {
    assert!(!nodes.root().join(".terrace").exists(), "{:?}", private(nodes));
    for (name, text) in files {
        assert!(!is_link(nodes, name), "{name} is a link");
        assert_eq!(&std::fs::read_to_string(nodes.root().join(name)).unwrap(), text, "{name}");
    }
}

pub fn two(nodes: &Nodes) -> (Node, Node) {
    (nodes.node("nodea"), nodes.node("nodeb"))
}

#[test]
fn what_another_node_changes_of_a_file_at_the_moment_at_which_it_becomes_durable_stays() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let there = b.start("true");
    let makes = "
import os, time
for i in range(60):
    open(f\"f{i}\", \"w\").close()
    while not os.path.isdir(f\"done{i}\"): time.sleep(0.001)";
    // The one has it made a real file; the other, which is not served, changes it as soon as there is one.
    let [brings, changes] = [("os.utime", "(5, 5)"), ("os.chmod", "0o600")].map(|(call, to)| {
        format!(
            "
import os
for i in range(60):
    while True:
        try: {call}(f\"f{{i}}\", {to}); break
        except FileNotFoundError: pass
    if {call} is os.utime: os.mkdir(f\"done{{i}}\")"
        )
    });
    std::thread::scope(|threads| {
        threads.spawn(|| a.run(&format!("exec python3 -c '{makes}'")).ok());
        threads.spawn(|| b.native(&format!("exec python3 -c '{changes}'")).ok());
        b.run(&format!("exec python3 -c '{brings}'")).ok();
    });
    b.end(there).ok();
    let modes = b.native("stat -c '%a %Y' f*").ok().stdout;
    assert_eq!(modes, "600 5\n".repeat(60));
}

#[test]
fn a_run_elsewhere_does_not_revert_an_update() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    std::fs::write(nodes.root().join("p"), "v1\n").unwrap();
    let run = a.start("cat p >/dev/null; terrace() { :; }; echo v2 >p; mkdir -p d; echo new >d/q");
    assert!(is_link(&nodes, "d/q"), "the test shows nothing: the file is durable already");
    b.run("true").ok();
    b.terrace(&["recover"]).ok();
    b.run("echo mine >b").ok();
    assert!(a.native("cat p d/q").ok().stdout == "v2\nnew\n");
    a.end(run).ok();
    assert_durable(&nodes, &[("p", "v2\n"), ("d/q", "new\n"), ("b", "mine\n")]);
}

#[test]
fn an_update_of_a_durable_file_keeps_its_held_version_when_another_node_starts() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    // Large enough to be promoted when it is opened for writing, not written anew.
    std::fs::write(nodes.root().join("p"), "v1\n").unwrap();
    let prefetch = "exec 3<>p; echo v2 >&3; exec 3>&-";
    let mut command = a.command(&terrace_tests::terrace_binary());
    command.args(["run", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--prefetch", "**", "--", "bash", "-euc"]);
    let whole = format!(
        "while ! {}/terrace ls | grep -q clean; do sleep 0.05; done; {prefetch}; : >ready; while [ ! -e end ]; do sleep 0.02; done",
        terrace_tests::binaries().display()
    );
    let run = command.arg(whole).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(terrace_tests::wait_until(60, || nodes.root().join("ready").symlink_metadata().is_ok()));
    assert!(is_link(&nodes, "p"), "the test shows nothing: p was not promoted");
    assert!(
        private(&nodes).iter().any(|path| path.contains("/held/")),
        "the test shows nothing: {:?}",
        private(&nodes)
    );
    b.run("true").ok();
    b.terrace(&["recover"]).ok();
    assert!(
        private(&nodes).iter().any(|path| path.contains("/held/")),
        "its held version is gone: {:?}",
        private(&nodes)
    );
    assert_eq!(a.native("cat p").ok().stdout, "v2\n");
    std::fs::write(nodes.root().join("end"), "").unwrap();
    Outcome::of_child(60, run).ok();
    assert_durable(&nodes, &[("p", "v2\n")]);
}

/// Each of these works on a file of another node as on any file.
const EVERY_CALL: &[(&str, &str)] = &[
    ("cat f", "from-a\n"),
    ("echo x >>f", "from-a\nx\n"),
    ("echo x >f", "x\n"),
    ("echo x >g; cp g f", "x\n"),
    ("truncate -s 4 f", "from"),
    ("printf X | dd of=f bs=1 count=1 conv=notrunc", "Xrom-a\n"),
    ("test \"$(stat -L -c %s:%F f)\" = '7:regular file'", "from-a\n"),
    ("test \"$(stat -c %s:%F f)\" = '7:regular file'", "from-a\n"),
    ("test -e f; test -f f; ! test -L f; test -r f", "from-a\n"),
    ("python3 -c 'import os; os.truncate(\"f\", 2); assert os.access(\"f\", os.W_OK)'", "fr"),
    (
        "python3 -c 'import os; f = os.open(\"f\", os.O_RDWR | os.O_CREAT | os.O_APPEND); os.write(f, b\"y\")'",
        "from-a\ny",
    ),
    ("! (set -C; echo no >f) 2>/dev/null", "from-a\n"),
    ("test \"$(echo *)\" = 'f ready-on-nodea'; test \"$(find . -type f -name f)\" = ./f", "from-a\n"),
    ("! readlink f; test \"$(realpath f)\" = $ROOT/f", "from-a\n"),
    ("ln -s f s; cat s | grep from-a; echo z >>s; rm s", "from-a\nz\n"),
    ("chmod 640 f; test $(stat -c %a f) = 640; touch -d @7 f; test $(stat -c %Y f) = 7", "from-a\n"),
    ("ln f l; test $(stat -c %h f) = 2; rm l", "from-a\n"),
    ("mv f h; ! [ -e f ]; mv h f", "from-a\n"),
    ("echo new >n; mv n f", "new\n"),
    ("flock f cat f", "from-a\n"),
    ("cp -a f c; cmp f c; tar cf t f; tar xOf t | cmp - f; rm c t", "from-a\n"),
    (
        "python3 -c 'import mmap; f = open(\"f\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b\"M\"; m.close()'",
        "Mrom-a\n",
    ),
];

#[test]
fn every_call_on_another_nodes_file_finds_the_file() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    for flags in [&["--preload-only"][..], &[]] {
        for (script, expected) in EVERY_CALL {
            let run = a.start("echo from-a >f");
            assert!(is_link(&nodes, "f"), "the test shows nothing: f is durable");
            let mut arguments = vec!["run", "-q", "--tier", "ram=/dev/shm:64MiB"];
            arguments.extend(flags);
            arguments.extend(["--", "bash", "-euc", script]);
            let outcome = b.terrace(&arguments);
            assert!(outcome.code == 0, "{script} {flags:?}: {outcome:?}");
            a.end(run).ok();
            assert_eq!(&std::fs::read_to_string(nodes.root().join("f")).unwrap(), expected, "{script} {flags:?}");
            for name in ["f", "g"] {
                let _ = std::fs::remove_file(nodes.root().join(name));
            }
            assert_durable(&nodes, &[]);
        }
    }
}

/// Where both agents start at the same moment, neither is there to be told of the other when that looks for it.
#[test]
fn nodes_that_begin_at_the_same_moment_know_of_each_other() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let barrier = tempfile::Builder::new().prefix("tt-").tempdir_in("/tmp").unwrap();
    let barrier = barrier.path().display().to_string();
    let read_the_others = |node: &Node, own: &str, other: &str| {
        let script = format!(
            "meet() {{ : >{barrier}/$1-{own}; while [ ! -e {barrier}/$1-{other} ]; do sleep 0.002; done; }}
             echo from-{own} >{own}; meet written; cat {other} || true; meet read"
        );
        let mut command = node.command(&terrace_tests::terrace_binary());
        command.args(["run", "-q", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--", "bash", "-euc", &script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..50 {
        let runs = [read_the_others(&a, "a", "b"), read_the_others(&b, "b", "a")];
        let [first, second] = runs.map(|run| Outcome::of_child(60, run).ok());
        assert_eq!((&*first.stdout, &*second.stdout), ("from-b\n", "from-a\n"), "{first:?} {second:?}");
        assert_durable(&nodes, &[("a", "from-a\n"), ("b", "from-b\n")]);
        for place in [&barrier, &nodes.root().display().to_string()] {
            let entries = std::fs::read_dir(place).unwrap().flatten();
            entries
                .filter(|entry| entry.path().is_file())
                .for_each(|entry| std::fs::remove_file(entry.path()).unwrap());
        }
    }
}

#[test]
fn natively_nothing_is_written_through_another_nodes_link() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("echo from-a >f");
    let text = std::fs::read_link(nodes.root().join("f")).unwrap();
    for script in [
        "echo x >>f",
        "echo x >f",
        "cat f",
        "dd if=/dev/zero of=f bs=1 count=1 conv=notrunc",
        "stat -L f",
        "python3 -c 'import os; os.truncate(\"f\", 0)'",
    ] {
        let outcome = b.native(script);
        assert!(outcome.code != 0, "natively, {script}: {outcome:?}");
        assert_eq!(std::fs::read_link(nodes.root().join("f")).unwrap(), text, "{script} replaced the link");
        assert!(!b.native(&format!("test -e {}", text.display())).code.eq(&0), "{script} wrote on the other node");
    }
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "from-a\n")]);
}

#[test]
fn an_owner_that_cannot_be_reached_is_an_error_by_name_and_never_old_data() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    std::fs::write(nodes.root().join("p"), "v1\n").unwrap();
    let run = a.start("echo v2 >p; echo new >f");
    assert!(is_link(&nodes, "p") && is_link(&nodes, "f"), "the test shows nothing");
    a.cut();
    for script in ["cat p", "cat f", "echo x >>f", "echo x >f", "stat f", "test $(cat p) = v1"] {
        let outcome = b.run(script);
        assert!(outcome.code != 0 && outcome.stdout.is_empty(), "{script}: {outcome:?}");
        assert!(outcome.stderr.contains("nodea") && outcome.stderr.contains("/root/"), "{script}: {outcome:?}");
    }
    assert!(b.run("cat p").stderr.contains("Input/output error"));
    a.mend();
    assert_eq!(b.run("cat p f").ok().stdout, "v2\nnew\n");
    a.end(run).ok();
    assert_durable(&nodes, &[("p", "v2\n"), ("f", "new\n")]);
}

/// From a node without any agent, whoever wrote it; and what could not be reached is an error by name.
#[test]
fn one_command_has_all_nodes_of_a_root_flush_what_they_have() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let login = nodes.node("login");
    let running = [(&a, a.start("mkdir d; echo one >d/f; echo two >g")), (&b, b.start("echo three >h"))];
    assert!(["d/f", "g", "h"].iter().all(|name| is_link(&nodes, name)), "the test shows nothing");
    let own = login.terrace(&["flush"]).ok();
    assert!(own.stderr.contains("--all-nodes") && is_link(&nodes, "g"), "{own:?}");

    let part = login.terrace(&["flush", "--all-nodes", "d"]).ok();
    assert!(part.stdout.contains("node nodea: flushed 1 files, 4 B"), "{part:?}");
    assert!(part.stdout.contains("node nodeb: flushed 0 files") && is_link(&nodes, "h"), "{part:?}");
    assert_eq!(login.native("cat d/f").ok().stdout, "one\n");

    b.cut();
    let cut = login.terrace(&["flush", "--all-nodes"]);
    assert!(cut.code == 74 && cut.stderr.contains("nodeb: ") && cut.stdout.contains("nodea: flushed "), "{cut:?}");
    assert!(is_link(&nodes, "h") && !is_link(&nodes, "g"));
    b.mend();
    // The wire finds its way again in a moment.
    let is_reached = || login.terrace(&["flush", "--all-nodes"]).stdout.contains("node nodeb: flushed ");
    assert!(wait_until(60, is_reached));
    assert_eq!(login.native("cat d/f g h").ok().stdout, "one\ntwo\nthree\n");
    for (node, run) in running {
        node.end(run).ok();
    }
    // The login node's agent stays for a moment.
    assert!(wait_until(20, || !nodes.root().join(".terrace").exists()));
    assert_durable(&nodes, &[("d/f", "one\n"), ("g", "two\n"), ("h", "three\n")]);
}

#[test]
fn what_was_closed_here_is_read_there_after_a_barrier() {
    let Some(nodes) = Nodes::new() else { return };
    let names = ["nodea", "nodeb", "nodec"];
    let three: Vec<Node> = names.iter().map(|name| nodes.node(name)).collect();
    // Each writes, waits for all, and reads its neighbour's: again and again, in runs that go on.
    let script = r#"
        me=$(hostname); shift=0
        for round in $(seq 10); do
            echo "$me $round" >out.$me; mkdir -p barrier.$round/$me
            while [ $(ls -d barrier.$round/*/ | wc -l) -lt 3 ]; do sleep 0.005; done
            for other in nodea nodeb nodec; do test "$(cat out.$other)" = "$other $round"; done
            mkdir -p after.$round/$me
            while [ $(ls -d after.$round/*/ | wc -l) -lt 3 ]; do sleep 0.005; done
        done"#;
    let outcomes: Vec<Outcome> = std::thread::scope(|threads| {
        let runs: Vec<_> = three.iter().map(|node| threads.spawn(|| node.run(script))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    outcomes.into_iter().for_each(|outcome| drop(outcome.ok()));
    for name in names {
        assert_eq!(std::fs::read_to_string(nodes.root().join(format!("out.{name}"))).unwrap(), format!("{name} 10\n"));
    }
    assert_durable(&nodes, &[]);
}

#[test]
fn many_ranks_on_three_nodes_write_one_file() {
    let Some(nodes) = Nodes::new() else { return };
    let names = ["nodea", "nodeb", "nodec"];
    let three: Vec<Node> = names.iter().map(|name| nodes.node(name)).collect();
    const PROGRAM: &str = r#"
import os, sys, time
node = sys.argv[1]; BLOCK, ROUNDS = 4096, 64
def barrier(name, count, rank):
    os.makedirs(f"{name}/{rank}")
    while len(os.listdir(name)) < count: time.sleep(0.002)
first = {"nodea": 0, "nodeb": 2, "nodec": 4}[node]
children = []
for rank in (first, first + 1):
    pid = os.fork()
    if pid: children.append(pid); continue
    if rank == 0:
        fd = os.open("shared", os.O_RDWR | os.O_CREAT | os.O_TRUNC); os.pwrite(fd, b"h" * 16, 0)
    barrier("created", 6, rank)
    if rank != 0: fd = os.open("shared", os.O_RDWR | os.O_CREAT)
    for i in range(ROUNDS):
        os.pwrite(fd, bytes([65 + rank]) * BLOCK, 16 + (i * 6 + rank) * BLOCK)
    os.close(fd)
    barrier("written", 6, rank)
    with open("shared", "rb") as f: data = f.read()
    wanted = b"h" * 16 + b"".join(bytes([65 + r]) * BLOCK for _ in range(ROUNDS) for r in range(6))
    os._exit(0 if data == wanted else 1)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"#;
    std::fs::write(nodes.root().join("ranks.py"), PROGRAM).unwrap();
    let outcomes: Vec<Outcome> = std::thread::scope(|threads| {
        let runs: Vec<_> =
            three.iter().map(|node| threads.spawn(|| node.run("python3 ranks.py $(hostname)"))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    outcomes.into_iter().for_each(|outcome| drop(outcome.ok()));
    let data = std::fs::read(nodes.root().join("shared")).unwrap();
    assert_eq!(data.len(), 16 + 6 * 64 * 4096);
    for (at, byte) in data[16..].iter().enumerate() {
        assert_eq!(*byte, b'A' + ((at / 4096) % 6) as u8, "at {at}");
    }
    assert_durable(&nodes, &[]);
}

#[test]
fn a_file_that_is_open_for_writing_is_appended_to_from_elsewhere() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    // As a log: both have it open with O_APPEND, one line each in turn.
    let script = r#"
        exec 3>>log; echo "start $(hostname)" >&3
        while [ ! -d go ]; do sleep 0.01; done
        for i in $(seq 50); do echo "$(hostname) $i" >&3; done; exec 3>&-"#;
    let (on_a, on_b) = std::thread::scope(|threads| {
        let runs = [&a, &b].map(|node| threads.spawn(|| node.run(script)));
        let is_begun = || {
            [&a, &b].iter().all(|node| node.native("grep -q start log 2>/dev/null || test -L log").code == 0)
                && std::fs::read_to_string(nodes.root().join("log"))
                    .is_ok_and(|text| text.matches("start").count() == 2)
        };
        let begun = terrace_tests::wait_until(60, is_begun);
        std::fs::create_dir(nodes.root().join("go")).unwrap();
        let [on_a, on_b] = runs.map(|run| run.join().unwrap());
        assert!(begun, "the second writer does not come: {on_a:?} {on_b:?}");
        (on_a, on_b)
    });
    on_a.ok();
    on_b.ok();
    let text = std::fs::read_to_string(nodes.root().join("log")).unwrap();
    for node in ["nodea", "nodeb"] {
        for i in 1..=50 {
            let line = format!("{node} {i}");
            assert_eq!(text.lines().filter(|found| *found == line).count(), 1, "{line} in {text}");
        }
    }
    assert_durable(&nodes, &[]);
}

#[test]
fn a_tree_of_another_nodes_files_is_copied_packed_and_built() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start(
        "mkdir -p src/deep; for i in $(seq 40); do echo $i >src/deep/$i; done; cd src; \
         printf 'all: out\nout: in\n\tcp in out\n' >Makefile; echo input >in",
    );
    assert!(is_link(&nodes, "src/in"), "the test shows nothing: it is durable");
    let rsync = b.native("command -v rsync").code == 0;
    let copy = if rsync { "rsync -a src/ synced/; diff -r src synced; " } else { "" };
    let script = format!(
        "test $(ls src/deep | wc -l) = 40; test $(find src -type f | wc -l) = 42; cp -a src copied; diff -r src copied; \
         {copy}tar cf all.tar src; mkdir -p un; tar xf all.tar -C un; diff -r src un/src; make -s -C src; cmp src/in src/out; \
         make -C src | grep -q 'Nothing to be done'; printf '#!/bin/sh\necho ran\n' >tool; chmod +x tool"
    );
    b.run(&script).ok();
    a.native("test \"$(cat src/deep/7)\" = 7").ok();
    a.end(run).ok();
    assert_durable(&nodes, &[("src/out", "input\n"), ("copied/deep/9", "9\n"), ("un/src/deep/40", "40\n")]);
}

#[test]
fn a_program_that_another_node_made_is_executed() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("printf '#!/bin/sh\necho ran\n' >tool; chmod +x tool; cp /bin/echo binary; chmod +x binary");
    assert!(is_link(&nodes, "binary"), "the test shows nothing: it is durable");
    assert_eq!(b.run("./tool; ./binary there").ok().stdout, "ran\nthere\n");
    a.end(run).ok();
    assert_durable(&nodes, &[]);
}

#[test]
fn names_that_change_elsewhere_during_flushes_stay_as_they_were_changed() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    // A flushes each file as it is made; B renames, links and removes them at the same time.
    let maker = "mkdir -p d; for i in $(seq 200); do echo $i >d/r$i; echo $i >d/l$i; echo $i >d/u$i; done; mkdir done";
    let flusher = format!(
        "while ! [ -d done ]; do {0} flush -q >/dev/null 2>&1 || :; done",
        terrace_tests::terrace_binary().display()
    );
    let changer = r#"
        for i in $(seq 200); do
            while ! [ -e d/u$i ]; do ! [ -d done ] || [ -e d/u$i ] || exit 9; done
            mv d/r$i d/to$i; ln d/l$i d/m$i; rm d/u$i
        done"#;
    let (on_a, on_b) = std::thread::scope(|threads| {
        let on_a = threads.spawn(|| {
            let run = ["run", "--tier", "ram=/dev/shm:64MiB", "--settle", "0s", "--", "bash", "-euc"];
            a.terrace(&[&run[..], &[&format!("({flusher}) & {maker}; wait")]].concat())
        });
        let on_b = threads.spawn(|| b.run(changer));
        (on_a.join().unwrap(), on_b.join().unwrap())
    });
    on_a.ok();
    on_b.ok();
    for i in 1..=200 {
        let text = format!("{i}\n");
        for name in ["to", "l", "m"] {
            let found = std::fs::read_to_string(nodes.root().join(format!("d/{name}{i}")));
            assert_eq!(found.ok().as_ref(), Some(&text), "d/{name}{i}");
        }
        for name in ["r", "u"] {
            assert!(!nodes.root().join(format!("d/{name}{i}")).exists(), "d/{name}{i} came back");
        }
    }
    assert_durable(&nodes, &[]);
}

#[test]
fn a_name_that_is_removed_or_replaced_elsewhere_stays_so() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("echo gone >f; echo old >g");
    b.run("rm f; echo new >n; mv n g").ok();
    a.end(run).ok();
    assert_durable(&nodes, &[("g", "new\n")]);
    assert!(!nodes.root().join("f").exists());
}

#[test]
fn files_of_other_nodes_are_told_by_node_and_never_called_lost() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let login = nodes.node("login");
    let run = a.start("echo one >f; echo two >g");
    let said = b.run("echo mine >h").ok();
    assert!(said.stderr.contains("3 files below the root are on other nodes (nodea: 3)"), "{said:?}");
    for node in [&b, &login] {
        let listed = node.terrace(&["ls"]).ok().stdout;
        let row = listed.lines().find(|line| line.ends_with(" f")).unwrap_or_else(|| panic!("{listed}")).to_owned();
        assert!(row.contains("node nodea") && row.contains("elsewhere"), "{listed}");
        let explained = node.terrace(&["explain", "f"]).ok().stdout;
        assert!(explained.contains("in a tier of node nodea"), "{explained}");
        let recovered = node.terrace(&["recover"]).ok();
        assert!(!recovered.stdout.contains("lost") && recovered.stdout.contains("nodea: 3"), "{recovered:?}");
        let doctor = node.terrace(&["doctor"]);
        assert!(doctor.stdout.contains("nodea: 3"), "{doctor:?}");
        let status = node.terrace(&["status"]);
        assert!(status.stderr.contains("nodea: 3"), "{status:?}");
    }
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "one\n"), ("g", "two\n"), ("h", "mine\n")]);
    let said = b.run("cat f").ok();
    assert!(said.stdout == "one\n" && !said.stderr.contains("other nodes"), "{said:?}");
}

#[test]
fn unfinished_copies_of_another_node_survive_an_agents_start() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("echo x >f");
    let tmp = private(&nodes).into_iter().find(|path| path.ends_with("/tmp")).expect("a place for copies");
    // As the mover names them.
    for name in [".terrace-tmp-1", "copy"] {
        std::fs::write(nodes.root().join(&tmp).join(name), "half").unwrap();
    }
    b.run("echo y >g").ok();
    b.terrace(&["recover"]).ok();
    for name in [".terrace-tmp-1", "copy"] {
        assert!(nodes.root().join(&tmp).join(name).exists(), "{name} of the other node was removed");
        std::fs::remove_file(nodes.root().join(&tmp).join(name)).unwrap();
    }
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "x\n"), ("g", "y\n")]);
}

#[test]
fn a_node_whose_agent_was_killed_finds_its_own_again_and_no_other_node_takes_them() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let mut run = a.start("echo precious >f");
    a.kill_all();
    run.wait().unwrap();
    assert!(is_link(&nodes, "f"), "the test shows nothing: f is durable");
    let on_b = b.terrace(&["recover"]).ok();
    assert!(!on_b.stdout.contains("lost") && is_link(&nodes, "f"), "{on_b:?}");
    b.run("echo b >g").ok();
    let on_a = a.terrace(&["recover"]).ok();
    assert!(on_a.stdout.contains("f: durable"), "{on_a:?}");
    std::fs::remove_file(nodes.root().join("ready-on-nodea")).unwrap();
    assert_durable(&nodes, &[("f", "precious\n"), ("g", "b\n")]);
}

#[test]
fn what_a_restart_of_a_node_took_is_lost_by_name_there_and_only_there() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let mut run = a.start("echo gone >f");
    a.reboot();
    run.wait().unwrap();
    assert!(is_link(&nodes, "f"), "the test shows nothing: f is durable");
    let on_b = b.terrace(&["recover"]).ok();
    assert!(!on_b.stdout.contains("lost"), "{on_b:?}");
    let on_a = a.terrace(&["recover"]);
    assert!(on_a.code == 1 && on_a.stderr.contains("files are lost") && on_a.stderr.contains("/f: "), "{on_a:?}");
    assert!(is_link(&nodes, "f"), "a link of a lost file is the user's to remove");
}

#[test]
fn files_on_a_nodes_disk_come_back_with_it() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    a.native("mkdir /var/tmp/ssd").ok();
    let script = "echo kept >f; : >$ROOT/ready; exec sleep 1000";
    let tier = ["--tier", "ssd=/var/tmp/ssd:8MiB", "--settle", "1h"];
    let mut command = a.command(&terrace_tests::terrace_binary());
    let mut run = command.arg("run").args(tier).args(["--", "bash", "-euc", script]).spawn().unwrap();
    assert!(terrace_tests::wait_until(60, || nodes.root().join("ready").symlink_metadata().is_ok()));
    a.reboot();
    run.wait().unwrap();
    assert!(is_link(&nodes, "f"), "the test shows nothing: f is durable");
    b.run("true").ok();
    let on_a = a.terrace(&["recover"]).ok();
    assert!(on_a.stdout.contains("f: durable"), "{on_a:?}");
    assert_durable(&nodes, &[("f", "kept\n")]);
}

#[test]
fn two_nodes_work_in_one_directory_at_once_and_leave_it_clean() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    std::thread::scope(|threads| {
        for node in [&a, &b] {
            threads.spawn(move || {
                for round in 0..4 {
                    node.run(&format!("for i in $(seq 20); do echo $HOSTNAME >$(hostname)-{round}-$i; done")).ok();
                }
            });
        }
    });
    assert_durable(&nodes, &[]);
    assert_eq!(std::fs::read_dir(nodes.root()).unwrap().count(), 160);
}

#[test]
fn a_host_of_the_same_name_is_not_taken_for_this_one_before_its_restart() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = (nodes.node("localhost"), nodes.node("localhost"));
    let run = a.start("echo one >f");
    let place = std::fs::read_dir(nodes.root().join(".terrace/nodes")).unwrap().next().unwrap().unwrap().path();
    let registered = std::fs::read_to_string(place.join("node.json")).unwrap();
    let of = |machine: &str| {
        let mut node: serde_json::Value = serde_json::from_str(&registered).unwrap();
        (node["machine"], node["boot_id"]) = (machine.into(), "of another start".into());
        std::fs::write(place.join("node.json"), node.to_string()).unwrap();
        b.terrace(&["ls"]).ok().stdout
    };
    for other in [of("another machine"), of("")] {
        assert!(other.contains("elsewhere") && !other.contains("lost"), "{other}");
    }
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if !machine.trim().is_empty() {
        let same = of(machine.trim());
        assert!(same.contains("lost") && !same.contains("elsewhere"), "{same}");
    }
    a.end(run).ok();
    assert_durable(&nodes, &[("f", "one\n")]);
}

#[test]
fn what_a_killed_agent_left_waits_for_the_directory_that_it_served() {
    let Some(nodes) = Nodes::new() else { return };
    let a = nodes.node("nodea");
    let mut run = a.start("echo precious >f");
    a.kill_all();
    run.wait().unwrap();
    let away = nodes.root().with_file_name("away");
    std::fs::rename(nodes.root(), &away).unwrap();
    std::fs::create_dir(nodes.root()).unwrap();
    for refused in [a.run("echo x >g"), a.terrace(&["recover"])] {
        assert!(refused.code != 0 && refused.stderr.contains("is another directory than"), "{refused:?}");
        assert!(refused.stderr.contains("put that directory back"), "{refused:?}");
    }
    assert!(!nodes.root().join("g").exists(), "the program ran");
    std::fs::remove_dir_all(nodes.root()).unwrap();
    std::fs::rename(&away, nodes.root()).unwrap();
    let recovered = a.terrace(&["recover"]).ok();
    assert!(recovered.stdout.contains("f: durable"), "{recovered:?}");
    assert_durable(&nodes, &[("f", "precious\n")]);
}

#[test]
fn the_text_of_a_link_fits_an_inode() {
    let Some(nodes) = Nodes::new() else { return };
    let a = nodes.node("nodea");
    let run = a.start("echo x >f");
    let text = std::fs::read_link(nodes.root().join("f")).unwrap();
    let directory = text.parent().unwrap();
    assert_eq!(directory.parent(), Some(Path::new("/dev/shm")));
    // This is user 0; another has at most five digits more than it in a text of 59 bytes.
    assert!(text.as_os_str().len() + 3 <= 54 && directory.to_str().unwrap().rsplit_once('.').unwrap().1.len() == 8);
    a.end(run).ok();
}

/// Policy by which `work` is placed as a whole.
const SCRATCH: &str = "run --settle 1h --flush ** --flush !work/** --evict work/**";

#[test]
fn a_placed_directory_becomes_a_real_one_when_another_node_looks_into_it() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
    let begin = |script: &str| {
        let mut command = a.command(&terrace_tests::terrace_binary());
        command.args(SCRATCH.split(' ')).args(["--", "bash", "-euc", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let here = begin(
        "mkdir -p work/d; echo data >work/d/f; ln -s ../../top work/d/l; echo top >top; touch ready; cd work; \
         while [ ! -e ../leave ]; do sleep 0.02; done; cd ..; touch left; while [ ! -e end ]; do sleep 0.02; done; cat work/d/f",
    );
    let is_there = |name: &str| wait_until(60, || nodes.root().join(name).symlink_metadata().is_ok());
    assert!(is_there("ready") && nodes.root().join("work").is_symlink());
    // Somebody is in it: who looks is told so, and nothing moves under his feet.
    let busy = b.run("cat work/d/f");
    assert!(busy.code == 1 && busy.stderr.contains("busy"), "{busy:?}");
    std::fs::write(nodes.root().join("leave"), "").unwrap();
    assert!(is_there("left"));
    let seen = b.run("ls work; cat work/d/f work/d/l; readlink work/d/l; test -d work; mkdir work/e").ok();
    assert_eq!(seen.stdout, "d\ndata\ntop\n../../top\n", "{seen:?}");
    std::fs::write(nodes.root().join("end"), "").unwrap();
    assert_eq!(Outcome::of_child(60, here).ok().stdout, "data\n");
    assert!(!nodes.root().join("work").is_symlink());
    // Where other nodes are, none is placed.
    let there = b.start("true");
    let here = begin("mkdir work/new tmp; touch made; while [ ! -e stop ]; do sleep 0.02; done");
    assert!(is_there("made") && !nodes.root().join("work/new").is_symlink());
    std::fs::write(nodes.root().join("stop"), "").unwrap();
    Outcome::of_child(60, here).ok();
    b.end(there).ok();
}
