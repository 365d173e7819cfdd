//! What users are told of several nodes: where files are, and which runs don't go together.

use crate::nodes::{assert_durable, two};
use std::path::Path;
use terrace_tests::{Nodes, terrace_binary};

/// For a program of the run, as the command is there, they are files like any others.
#[test]
fn inside_a_run_commands_tell_of_other_nodes_files_as_outside() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let there = a.start("echo one >f; mkdir d; echo two >d/g");
    let terrace = terrace_binary().display().to_string();
    let told = b
        .run(&format!(
            "{terrace} ls; {terrace} explain f; {terrace} status --json; {terrace} doctor || true; {terrace} flush f"
        ))
        .ok();
    let rows =
        |name: &str| told.stdout.lines().filter(|line| line.contains("node nodea") && line.ends_with(name)).count();
    assert!(rows(" f") == 1 && rows(" d/g") == 1, "{told:?}");
    for words in
        ["now       in a tier of node nodea", "\"node\": \"nodea\"", "3 files below the root are on other nodes"]
    {
        assert!(told.stdout.contains(words), "{words}: {told:?}");
    }
    assert_eq!(told.stderr.matches("terrace flush --all-nodes").count(), 1, "{told:?}");
    a.end(there).ok();
    assert_durable(&nodes, &[("f", "one\n"), ("d/g", "two\n")]);
}

/// Paths are told relative to the root.
#[test]
fn a_root_may_have_another_path_on_another_node() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let root = nodes.root();
    let other = root.with_file_name("other");
    std::fs::create_dir(&other).unwrap();
    b.native(&format!("mount --bind {} {}", root.display(), other.display())).ok();
    let other = other.display().to_string();
    let settings = ["run", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--root", &other, "--"];
    let run = |script: &str| b.terrace(&[&settings[..], &["bash", "-euc", script]].concat()).ok();
    let there = a.start("echo one >f; echo two >g; exec 7>>held; echo three >&7");
    let script = format!("cd {other}; cat f; echo more >>g; mv g h; ls -l >/dev/null; cat held; echo four >>held");
    assert_eq!(run(&script).stdout, "one\nthree\n");
    assert_eq!(a.native("cat f h held").ok().stdout, "one\ntwo\nmore\nthree\nfour\n");
    run("true");
    a.end(there).ok();
    assert_durable(&nodes, &[("f", "one\n"), ("h", "two\nmore\n"), ("held", "three\nfour\n")]);
}

#[test]
fn a_run_below_another_nodes_root_is_told_of_it() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    std::fs::create_dir(nodes.root().join("sub")).unwrap();
    let there = a.start("echo one >sub/f");
    let inner = nodes.root().join("sub").display().to_string();
    let run = ["run", "--root", &inner, "--tier", "ram=/dev/shm:64MiB", "--", "true"];
    let warning = format!("node nodea serves {}, above this root", nodes.root().display());
    let told = b.terrace(&run).ok();
    assert!(told.stderr.contains(&warning), "{told:?}");
    let doctor = b.terrace(&["doctor", "--root", &inner, "--tier", "ram=/dev/shm:64MiB"]);
    assert!(doctor.stdout.contains(&warning), "{doctor:?}");
    a.end(there).ok();
    let told = b.terrace(&run).ok();
    assert!(!told.stderr.contains("above this root"), "{told:?}");
}

#[test]
fn a_run_of_another_user_in_a_root_that_is_in_use_is_refused_by_name() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    b.native("chmod 2777 .; chmod 1777 /dev/shm /var/tmp").ok();
    let there = a.start("echo one >f");
    let terrace = terrace_binary();
    let terrace = terrace.to_str().unwrap();
    let run = ["--reuid=65534", "--clear-groups", terrace, "run", "--tier", "ram=/dev/shm:64MiB", "--", "true"];
    let other = |words: &[&str]| b.outcome(b.command(Path::new("setpriv")).env("HOME", "/var/tmp").args(words));
    let refused = other(&run);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("is in use by another user's runs (uid 0)"), "{refused:?}");
    a.end(there).ok();
    other(&run).ok();
    assert_durable(&nodes, &[("f", "one\n")]);
}
