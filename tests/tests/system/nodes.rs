//! Several nodes that share a root, each with memory and state of its own: what one has in its tiers, no other one touches.

use std::path::Path;
use terrace_tests::{Node, Nodes, Outcome};

const REMOTE: &str = "Object is remote";

fn is_link(nodes: &Nodes, name: &str) -> bool {
    nodes.root().join(name).is_symlink()
}

fn private(nodes: &Nodes) -> Vec<String> {
    let walk = walkdir::WalkDir::new(nodes.root().join(".terrace")).into_iter().flatten();
    walk.map(|entry| entry.path().strip_prefix(nodes.root()).unwrap().display().to_string()).collect()
}

/// Nothing of Terrace is in the root, and each file has these bytes.
#[track_caller]
fn assert_durable(nodes: &Nodes, files: &[(&str, &str)]) {
    assert!(!nodes.root().join(".terrace").exists(), "{:?}", private(nodes));
    for (name, text) in files {
        assert!(!is_link(nodes, name), "{name} is a link");
        assert_eq!(&std::fs::read_to_string(nodes.root().join(name)).unwrap(), text, "{name}");
    }
}

fn two(nodes: &Nodes) -> (Node, Node) {
    (nodes.node("nodea"), nodes.node("nodeb"))
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
    let run =
        command.arg(whole).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
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

#[test]
fn nothing_is_written_through_another_nodes_link() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("echo from-a >f");
    let text = std::fs::read_link(nodes.root().join("f")).unwrap();
    for (script, natively_too) in [
        ("echo x >>f", true),
        ("echo x >f", true),
        ("echo x >g; cp g f", false),
        ("cat f", true),
        ("truncate -s 0 f", false),
        ("dd if=/dev/zero of=f bs=1 count=1 conv=notrunc", true),
        ("stat -L f", true),
        ("python3 -c 'import os; os.truncate(\"f\", 0)'", true),
    ] {
        for flags in [&["--preload-only"][..], &[]] {
            let mut arguments = vec!["run", "-q", "--tier", "ram=/dev/shm:64MiB"];
            arguments.extend(flags);
            arguments.extend(["--", "bash", "-euc", script]);
            let outcome = b.terrace(&arguments);
            assert!(outcome.code != 0 && outcome.stderr.contains(REMOTE), "{script} {flags:?}: {outcome:?}");
        }
        if natively_too {
            let outcome = b.native(script);
            assert!(outcome.code != 0, "natively, {script}: {outcome:?}");
        }
        assert_eq!(std::fs::read_link(nodes.root().join("f")).unwrap(), text, "{script} replaced the link");
        assert!(!b.native(&format!("test -e {}", text.display())).code.eq(&0), "{script} wrote on the other node");
    }
    assert_eq!(a.native("cat f").ok().stdout, "from-a\n");
    // What needs no bytes is done.
    b.run("mv f h; ! [ -e h ]; echo again >i; mv i j").ok();
    a.end(run).ok();
    assert_durable(&nodes, &[("h", "from-a\n"), ("j", "again\n")]);
    assert!(!nodes.root().join("f").exists());
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
