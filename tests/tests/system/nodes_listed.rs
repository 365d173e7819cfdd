//! A directory of files that lie in another node's tier: listed with few messages, and never shown as it was before a change.

use crate::nodes::two;
use terrace_tests::{Node, Nodes, compile_statically, wait_until};

const FILES: usize = 1500;

/// Files in the tier of a node that knows of the other one: none of them is in a placed directory.
fn makes_files(count: usize) -> String {
    format!("mkdir d; for ((i = 0; i < {count}; i++)); do echo $i >d/f$i; done")
}

/// Packets that the node has sent to the others.
fn sent(node: &Node) -> u64 {
    let lines = node.native("cat /proc/net/dev").ok().stdout;
    let eth0 = lines.lines().find_map(|line| line.trim().strip_prefix("eth0:")).expect("the node has a cable");
    eth0.split_whitespace().nth(9).unwrap().parse().unwrap()
}

#[test]
fn a_listing_with_attributes_of_another_nodes_files_is_a_handful_of_messages() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let there = b.start("true");
    let here = a.start(&makes_files(FILES));
    let before = sent(&b);
    let listed = b.run(&format!("ls -l d; test $(find d -type f -size -2 | wc -l) = {FILES}")).ok().stdout;
    let messages = sent(&b) - before;
    assert_eq!(listed.lines().filter(|line| line.starts_with("-rw-r--r-- 1 ")).count(), FILES, "{listed}");
    assert!(nodes.root().join("d/f7").is_symlink(), "the test shows nothing: the files were made real ones");
    assert!(messages < FILES as u64 / 2, "{messages} packets for {FILES} files, looked at twice");
    b.end(there).ok();
    a.end(here).ok();
}

#[test]
fn a_file_of_another_node_is_one_for_every_look_whatever_that_nodes_tiers_are_called() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    b.native("mkdir /var/tmp/another-length").ok();
    let there = b.start_with(&["--tier", "disk=/var/tmp/another-length:64MiB"], None, "true");
    let here = a.start(&makes_files(30));
    let looks = "
import os
def looks(name): return [(s.st_mode, s.st_size) for s in (os.stat(name), os.lstat(name), os.stat(name, dir_fd=os.open(\".\", os.O_RDONLY)))]
for i in range(30):
    assert looks(f\"d/f{i}\") == [(0o100644, len(str(i)) + 1)] * 3, (i, looks(f\"d/f{i}\"))
";
    // By statx(2), of the name and of what is behind it; and files of the root among them.
    let names = "d/f1 d/f2 own d/f3 d/f4 own";
    let kinds = format!("echo own >own; sync own; stat -c '%F %s' {names}; stat -L -c '%F %s' {names}");
    let disk = ["run", "-q", "--settle", "1h", "--tier", "disk=/var/tmp/another-length:64MiB", "--", "bash", "-euc"];
    b.terrace(&[&disk[..], &[&format!("python3 -c '{looks}'")]].concat()).ok();
    let found = b.terrace(&[&disk[..], &[&kinds]].concat()).ok().stdout;
    let one = "regular file 2\nregular file 2\nregular file 4\nregular file 2\nregular file 2\nregular file 4\n";
    assert_eq!(found, [one, one].concat());
    b.end(there).ok();
    a.end(here).ok();
}

/// What A does to `d/f5`, one after the other, each when B says that it was told of all files of `d`.
const CHANGES: &str = r#"
import os, subprocess, sys, time
f = "d/f5"
def opened(flags, act):
    fd = os.open(f, flags)
    act(fd)
    os.close(fd)
def wait(name):
    while not os.path.lexists(name): time.sleep(0.001)
changes = [
    lambda: opened(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"more\n")),
    lambda: open(f, "w").close(),
    lambda: os.truncate(f, 700),
    lambda: opened(os.O_RDWR, lambda fd: os.ftruncate(fd, 5)),
    lambda: os.chmod(f, 0o600),
    lambda: opened(os.O_RDONLY, lambda fd: os.fchmod(fd, 0o640)),
    lambda: os.utime(f, (1, 1)),
    lambda: opened(os.O_RDONLY, lambda fd: os.utime(fd, (2, 2))),
    lambda: os.chown(f, 7, 8),
    lambda: os.rename("d/f6", f),
    lambda: subprocess.run(["dd", "if=/dev/zero", "of=" + f, "bs=99", "count=1", "conv=notrunc", "status=none"], check=True),
    lambda: subprocess.run([sys.argv[1]], check=True),
    lambda: os.unlink(f),
]
"#;
const LOOKS: &str = r#"
def looks():
    try: s = os.stat(f)
    except FileNotFoundError: return "gone"
    return f"{s.st_size} {s.st_mode:o} {s.st_uid} {s.st_gid} {s.st_mtime_ns} {s.st_nlink}"
"#;

/// A static program, which is served by the supervisor.
const STATIC: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(void)
{
    int fd = open("d/f5", O_WRONLY | O_APPEND);
    return fd < 0 || write(fd, "static\n", 7) != 7 || close(fd);
}
"#;

#[test]
fn what_was_told_of_a_directory_is_never_shown_after_a_file_of_it_has_changed() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let beside = nodes.root().parent().unwrap().to_owned();
    let program = compile_statically(&beside, "appends", STATIC);
    let changes = format!(
        "{CHANGES}{LOOKS}
for number, change in enumerate(changes):
    wait(f\"told{{number}}\")
    change()
    said = looks()
    os.mkdir(f\"changed{{number}}\")
    print(number, said)"
    );
    let follows = format!(
        "{CHANGES}{LOOKS}
for number in range(len(changes)):
    before = looks()
    for name in os.listdir(\"d\"): os.stat(\"d/\" + name)
    os.mkdir(f\"told{{number}}\")
    wait(f\"changed{{number}}\")
    after = looks()
    assert before != after, (number, after)
    print(number, after)"
    );
    let script = |name: &str, text: &str| {
        let path = beside.join(name);
        std::fs::write(&path, text).unwrap();
        format!("python3 {} {}", path.display(), program.display())
    };
    let there = b.start("true");
    let here = a.start(&makes_files(40));
    let (follows, changes) = (script("follows.py", &follows), script("changes.py", &changes));
    let (said, seen) = std::thread::scope(|threads| {
        let changing = threads.spawn(|| a.run(&changes).ok().stdout);
        let seen = b.run(&follows).ok().stdout;
        (changing.join().unwrap(), seen)
    });
    assert_eq!(seen, said);
    assert!(seen.ends_with("12 gone\n"), "{seen}");
    b.end(there).ok();
    a.end(here).ok();
}

/// B has been told of all files of `d` when it makes `told`, and looks at one again when there is `changed`.
fn told_and_then(b: &Node, act: impl FnOnce() + Send) -> String {
    let looks = "
import os, time
for name in os.listdir(\"d\"): os.stat(\"d/\" + name)
os.mkdir(\"told\")
while not os.path.lexists(\"changed\"): time.sleep(0.001)
print(os.stat(\"d/f5\").st_size)";
    std::thread::scope(|threads| {
        threads.spawn(act);
        b.run(&format!("exec python3 -c '{looks}'")).ok().stdout
    })
}

fn wait_for(nodes: &Nodes, name: &str) {
    let place = nodes.root().join(name);
    assert!(wait_until(60, || place.symlink_metadata().is_ok()), "{name} does not come");
}

/// A run on A that waits for `go`, appends to a file, and says so.
const APPENDS: &str = "(while [ ! -e go ]; do sleep 0.001; done; echo more >>d/f5; mkdir changed) &";

#[test]
fn an_agent_that_was_killed_has_what_it_had_promised_forgotten_before_a_file_changes() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let there = b.start("true");
    let here = a.start(&format!("{}; {APPENDS}", makes_files(40)));
    let seen = told_and_then(&b, || {
        wait_for(&nodes, "told");
        let agent = a.agent().expect("a run has an agent");
        // SAFETY: kill takes any number; the process is one of the test's nodes.
        unsafe { libc::kill(agent, libc::SIGKILL) };
        std::fs::create_dir(nodes.root().join("go")).unwrap();
    });
    assert_eq!(seen, "7\n");
    b.end(there).ok();
    a.end(here).ok();
}

#[test]
fn a_writer_goes_on_when_a_node_that_was_told_of_its_files_cannot_be_reached() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let there = b.start("true");
    let here = a.start(&format!("{}; {APPENDS}", makes_files(40)));
    let seen = told_and_then(&b, || {
        wait_for(&nodes, "told");
        b.cut();
        std::fs::create_dir(nodes.root().join("go")).unwrap();
        wait_for(&nodes, "changed");
        b.mend();
    });
    // Whoever can't be told has forgotten it by then.
    assert_eq!(seen, "7\n");
    b.end(there).ok();
    a.end(here).ok();
    assert_eq!(std::fs::read_to_string(nodes.root().join("d/f5")).unwrap(), "5\nmore\n");
}

#[test]
fn what_a_program_without_the_library_has_changed_is_shown_a_second_later() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = two(&nodes);
    let there = b.start("true");
    let here = a.start(&makes_files(40));
    let seen = told_and_then(&b, || {
        wait_for(&nodes, "told");
        a.native("echo native >>d/f5; sleep 1.1; mkdir changed").ok();
    });
    assert_eq!(seen, "9\n");
    b.end(there).ok();
    a.end(here).ok();
}
