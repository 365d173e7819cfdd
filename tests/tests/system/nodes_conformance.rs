//! The POSIX suite and fsx on one node, with their files brought into another node's tier all the time.
//!
//! They show something only where nodes serve each other's files; where a node refuses them (`EREMOTE`) these tests say so and end.

use std::path::Path;
use std::process::Stdio;
use terrace_tests::{Node, Nodes, Outcome, fetched, skipped};

const SETTINGS: &str = "[features]\nfile_flags = []\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.01\n[dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";

/// Opens each file for reading and writing, and changes nothing: by that it comes into this node's tier.
const TAKE: &str = "import os, sys, time
while not os.path.lexists('end'):
    for place, _, files in os.walk('work'):
        for name in files:
            try: os.close(os.open(os.path.join(place, name), os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW))
            except OSError: pass
    time.sleep(0.005)
";

/// None, and said so, where a node can't open what another one has.
fn two(nodes: &Nodes) -> Option<(Node, Node)> {
    let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
    std::fs::create_dir(nodes.root().join("work")).unwrap();
    let run = a.start("echo there >f");
    let seen = b.run("cat f");
    a.end(run).ok();
    if seen.code != 0 {
        skipped("nodes refuse each other's files");
        return None;
    }
    Some((a, b))
}

/// Does `script` on one node while another takes all files.
fn while_taken(nodes: &Nodes, taker: &Node, worker: &Node, script: &str) -> Outcome {
    let mut command = taker.command(&terrace_tests::terrace_binary());
    command.args([
        "run",
        "-q",
        "--settle",
        "50ms",
        "--tier",
        "ram=/dev/shm:64MiB",
        "--",
        "/usr/bin/python3",
        "-c",
        TAKE,
    ]);
    let taken = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let outcome = worker.run(script);
    std::fs::write(nodes.root().join("end"), "").unwrap();
    Outcome::of_child(120, taken).ok();
    std::fs::remove_file(nodes.root().join("end")).unwrap();
    outcome
}

fn suite(nodes: &Nodes) -> String {
    let settings = nodes.root().parent().unwrap().join("pjdfstest.toml");
    std::fs::write(&settings, SETTINGS).unwrap();
    let program = fetched("tools/bin/pjdfstest");
    format!(
        "mkdir -p /dev/shm/other; {} -c {} -p work -s /dev/shm/other || true",
        program.display(),
        settings.display()
    )
}

/// Names of tests that passed.
fn passed(outcome: &Outcome) -> Vec<String> {
    let plain = |line: &str| {
        let mut parts = line.split('\u{1b}');
        let first = parts.next().unwrap_or("").to_owned();
        parts.fold(first, |text, part| text + part.split_once('m').map_or("", |(_, rest)| rest))
    };
    let lines = outcome.stdout.lines().map(plain);
    lines.filter_map(|line| line.trim().strip_suffix(" ok").map(|name| name.trim().to_owned())).collect()
}

fn open_up(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for directory in path.ancestors().take(2) {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn pjdfstest_passes_on_one_node_with_its_files_in_anothers_tier() {
    let Some(nodes) = Nodes::new() else { return };
    let Some((a, b)) = two(&nodes) else { return };
    open_up(&nodes.root());
    let natively = passed(&b.native(&suite(&nodes)).ok());
    assert!(natively.len() > 300, "the suite did not run: {} passed", natively.len());
    let under = passed(&while_taken(&nodes, &a, &b, &suite(&nodes)).ok());
    // They ask for the times of a directory in which a program and a flush both change names within a second, which may be the
    // flush's (docs/reference/semantics.md, limits). Here each file is flushed as soon as it is made.
    let asks_for_directory = |name: &str| name.contains("unchanged_ctime") || name == "open::exists_no_update";
    let wrong: Vec<_> = natively.iter().filter(|name| !under.contains(name) && !asks_for_directory(name)).collect();
    assert!(wrong.is_empty(), "pass natively, not with the files elsewhere: {wrong:#?}");
}

#[test]
fn fsx_finds_no_mismatch_on_one_node_with_its_file_in_anothers_tier() {
    let Some(nodes) = Nodes::new() else { return };
    let Some((a, b)) = two(&nodes) else { return };
    let settings = nodes.root().parent().unwrap().join("fsx.toml");
    let weights = "close_open = 40\nmapread = 2\nmapwrite = 1\nread = 10\nwrite = 10\ntruncate = 5\nfsync = 0.01\n";
    std::fs::write(&settings, format!("flen = 131072\n[opsize]\nmin = 1\nmax = 16384\n[weights]\n{weights}")).unwrap();
    let script = format!(
        "for seed in $(seq 20); do {} -N 1000 -S $seed -f {} -P /tmp work/file; done",
        fetched("tools/bin/fsx").display(),
        settings.display()
    );
    let outcome = while_taken(&nodes, &a, &b, &script).ok();
    assert_eq!(outcome.stdout.matches("A-OK").count(), 20, "{outcome:?}");
}
