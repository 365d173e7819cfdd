//! A node that will not come back is declared gone: what is done with its files, and that it has no more say.

use crate::nodes::two;
use std::process::{Child, Stdio};
use terrace_tests::{Node, Nodes, Outcome, binaries, terrace_binary, wait_until};

/// A run on a node that has updated `p` (v1 in the root, v2 in its tier, v1 held) and made `d/q`; it ends when `end` is there.
fn update(nodes: &Nodes, a: &Node) -> Child {
    std::fs::write(nodes.root().join("p"), "v1\n").unwrap();
    let script = format!(
        "while ! {}/terrace ls | grep -q clean; do sleep 0.05; done; exec 3<>p; echo v2 >&3; exec 3>&-\n\
         mkdir d; echo new >d/q; : >ready; while [ ! -e end ]; do sleep 0.02; done",
        binaries().display()
    );
    let mut command = a.command(&terrace_binary());
    command.args(["run", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--prefetch", "p", "--", "bash", "-euc"]);
    let run = command.arg(script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(wait_until(60, || nodes.root().join("ready").symlink_metadata().is_ok()), "the run does not come");
    for name in ["p", "d/q"] {
        assert!(nodes.root().join(name).is_symlink(), "the test shows nothing: {name} is durable");
    }
    assert_eq!(a.native("cat p d/q").ok().stdout, "v2\nnew\n");
    run
}

fn text(nodes: &Nodes, name: &str) -> String {
    let path = nodes.root().join(name);
    assert!(!path.is_symlink(), "{name} is a link");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn a_node_that_is_declared_gone_leaves_its_files_last_durable_versions_and_all_else_is_told_as_lost() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let mut run = update(&nodes, &a);
    a.reboot();
    run.wait().unwrap();
    // Without the word of a user they are the other node's.
    b.terrace(&["recover"]).ok();
    assert!(nodes.root().join("p").is_symlink());
    for _ in 0..2 {
        let declared = b.terrace(&["recover", "--node-is-gone", "nodea"]);
        assert_eq!(declared.code, 1, "{declared:?}");
        assert!(declared.stdout.contains("node nodea") && declared.stdout.contains("is declared gone"), "{declared:?}");
        assert!(
            declared.stderr.contains("are lost with their node") && declared.stderr.contains("/d/q"),
            "{declared:?}"
        );
        assert_eq!(text(&nodes, "p"), "v1\n");
        assert!(nodes.root().join("d/q").is_symlink(), "a link of a lost file is the user's to remove");
    }
    let explained = b.terrace(&["explain", "d/q"]);
    assert!(explained.stdout.contains("nodea, which was declared gone"), "{explained:?}");
    let found = b.run("! cat d/q; echo v3 >>p; cat p").ok();
    assert_eq!(found.stdout, "v1\nv3\n");
    for lost in ["d/q", "ready"] {
        std::fs::remove_file(nodes.root().join(lost)).unwrap();
    }
    b.terrace(&["recover", "--node-is-gone", "nodea"]).ok();
    // It comes back all the same.
    a.run("cat p; echo again >r").ok();
    assert_eq!((text(&nodes, "p"), text(&nodes, "r")), ("v1\nv3\n".into(), "again\n".into()));
    assert!(!nodes.root().join(".terrace").exists(), "something of Terrace stays");
}

#[test]
fn a_node_that_answers_or_is_unknown_is_not_declared_gone() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = a.start("echo new >f");
    let refused = b.terrace(&["recover", "--node-is-gone", "nodea"]);
    assert!(refused.code == 1 && refused.stderr.contains("node nodea is not gone"), "{refused:?}");
    let unknown = b.terrace(&["recover", "--node-is-gone", "nodex"]);
    assert!(unknown.code == 1 && unknown.stderr.contains("known are nodea"), "{unknown:?}");
    let own = a.terrace(&["recover", "--node-is-gone", "nodea"]);
    assert!(own.code == 1 && own.stderr.contains("no node `nodea`"), "{own:?}");
    a.end(run).ok();
    assert_eq!(text(&nodes, "f"), "new\n");
    assert!(!nodes.root().join(".terrace").exists());
}

#[test]
fn an_agent_behind_a_broken_network_puts_nothing_in_place_once_its_node_is_declared_gone() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = update(&nodes, &a);
    a.cut();
    let declared = b.terrace(&["recover", "--node-is-gone", "nodea"]);
    assert!(declared.code == 1 && declared.stderr.contains("/d/q"), "{declared:?}");
    assert_eq!(text(&nodes, "p"), "v1\n");
    b.native("echo v3 >p").ok();
    std::fs::write(nodes.root().join("end"), "").unwrap();
    let ended = Outcome::of_child(120, run);
    assert!(ended.code != 0 && ended.stderr.contains("this node was declared gone"), "{ended:?}");
    assert_eq!(text(&nodes, "p"), "v3\n");
    assert!(nodes.root().join("d/q").is_symlink());
    // Its agent begins anew, and names that still lead to it are its own.
    a.kill_all();
    a.mend();
    let back = a.terrace(&["recover"]).ok();
    assert!(back.stdout.contains("d/q: durable"), "{back:?}");
    assert_eq!((text(&nodes, "p"), text(&nodes, "d/q")), ("v3\n".into(), "new\n".into()));
    assert!(!nodes.root().join(".terrace").exists());
}

#[test]
fn a_run_on_a_node_that_was_declared_gone_fails_also_when_its_files_are_all_somebody_elses_now() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let run = update(&nodes, &a);
    a.cut();
    assert_eq!(b.terrace(&["recover", "--node-is-gone", "nodea"]).code, 1);
    b.native("rm -r d ready").ok();
    std::fs::write(nodes.root().join("end"), "").unwrap();
    let ended = Outcome::of_child(120, run);
    assert!(ended.code != 0 && ended.stderr.contains("this node was declared gone"), "{ended:?}");
    assert_eq!(text(&nodes, "p"), "v1\n");
}

#[test]
fn a_declaration_that_was_interrupted_is_finished_by_the_next_and_until_then_the_node_stays_out() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let mut run = update(&nodes, &a);
    a.kill_all();
    run.wait().unwrap();
    let all = nodes.root().join(".terrace/nodes");
    let tag = std::fs::read_link(nodes.root().join("p")).unwrap();
    let tag = tag.parent().unwrap().extension().unwrap().to_str().unwrap().to_owned();
    for step in ["the directory is aside", "and its name is taken"] {
        if step.starts_with("the") {
            std::fs::rename(all.join(&tag), all.join(format!("{tag}.gone-0"))).unwrap();
        } else {
            std::fs::write(all.join(&tag), "").unwrap();
            let refused = a.run("true");
            assert!(refused.code != 0 && refused.stderr.contains("declared gone"), "{step}: {refused:?}");
        }
    }
    let declared = b.terrace(&["recover", "--node-is-gone", "nodea"]);
    assert!(declared.code == 1 && declared.stderr.contains("/d/q"), "{declared:?}");
    assert_eq!(text(&nodes, "p"), "v1\n");
    let back = a.run("cat d/q").ok();
    assert_eq!(back.stdout, "new\n");
    assert_eq!((text(&nodes, "p"), text(&nodes, "d/q")), ("v1\n".into(), "new\n".into()));
    assert!(!nodes.root().join(".terrace").exists());
}
