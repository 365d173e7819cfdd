//! A directory of files that lie in another node's tier: listed with few messages, and never shown as it was before a change.

use crate::nodes::two;
use terrace_tests::{Node, Nodes, compile, compile_statically, wait_until};

/// More than come with any answer but the largest.
const FILES: usize = 6000;

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
    // By name, and in the order of the directory.
    let listed = b.run(&format!("ls -l d; test $(find d -type f -size -2 | wc -l) = {FILES}")).ok().stdout;
    let messages = sent(&b) - before;
    assert_eq!(listed.lines().filter(|line| line.starts_with("-rw-r--r-- 1 ")).count(), FILES, "{listed}");
    assert!(nodes.root().join("d/f7").is_symlink(), "the test shows nothing: the files were made real ones");
    // An answer is several packets, each of which is acknowledged.
    assert!(messages < FILES as u64 / 4, "{messages} packets for {FILES} files, looked at twice");
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

/// What A may do to `d/f5`. `OUTSIDE` is a link to it that is no name of the root.
const COMMON: &str = r#"
import os, subprocess, sys, time
f, OUTSIDE, PROGRAM = "d/f5", "/var/tmp/outside", sys.argv[1]
def opened(name, flags, act=lambda fd: None):
    fd = os.open(name, flags)
    act(fd)
    os.close(fd)
def append(fd): os.write(fd, b"more\n")
def again(flags, act):
    opened(f, os.O_RDONLY, lambda fd: opened(f"/proc/self/fd/{fd}", flags, act))
def run(*command): subprocess.run(command, check=True)
def wait(name):
    while not os.path.lexists(name): time.sleep(0.001)
def looks():
    try: s = os.stat(f)
    except FileNotFoundError: return "gone"
    return f"{s.st_size} {s.st_mode:o} {s.st_uid} {s.st_gid} {s.st_mtime_ns} {s.st_nlink} {os.listxattr(f)}"
if not os.path.lexists(OUTSIDE): os.symlink(os.path.abspath(f), OUTSIDE)
"#;
const CHANGES: &str = r#"
changes = [
    lambda: opened(f, os.O_WRONLY | os.O_APPEND, append),
    lambda: open(f, "w").close(),
    lambda: os.truncate(f, 700),
    lambda: opened(f, os.O_RDWR, lambda fd: os.ftruncate(fd, 5)),
    lambda: opened(f, os.O_RDONLY | os.O_TRUNC),
    lambda: again(os.O_WRONLY | os.O_APPEND, append),
    lambda: run("sh", "-c", f"exec 3<{f}; echo more >>/dev/fd/3"),
    lambda: os.chmod(f, 0o600),
    lambda: opened(f, os.O_RDONLY, lambda fd: os.fchmod(fd, 0o640)),
    lambda: opened(f, os.O_RDONLY, lambda fd: os.chmod(f"/proc/self/fd/{fd}", 0o644)),
    lambda: os.utime(f, (1, 1)),
    lambda: opened(f, os.O_RDONLY, lambda fd: os.utime(fd, (2, 2))),
    lambda: os.chown(f, 7, 8),
    lambda: os.setxattr(f, "user.kind", b"test"),
    lambda: opened(f, os.O_RDONLY, lambda fd: os.removexattr(fd, "user.kind")),
    lambda: opened(OUTSIDE, os.O_WRONLY | os.O_APPEND, append),
    lambda: os.truncate(OUTSIDE, 300),
    lambda: os.chmod(OUTSIDE, 0o600),
    lambda: os.utime(OUTSIDE, (3, 3)),
    lambda: os.rename("d/f6", f),
    lambda: run("dd", "if=/dev/zero", "of=" + f, "bs=99", "count=1", "conv=notrunc", "status=none"),
    lambda: run(PROGRAM, f),
    lambda: run(PROGRAM, OUTSIDE),
]
"#;

/// Appends by streams of the C library: one that is opened so, and one that was opened for reading.
const STREAMS: &str = r#"
#include <stdio.h>
int main(int argc, char **argv)
{
    FILE *stream = fopen(argv[1], "a");
    if (!stream || fputs("one\n", stream) < 0 || fclose(stream)) return 1;
    stream = fopen(argv[1], "r");
    if (!stream || !(stream = freopen(NULL, "a", stream))) return 2;
    return fputs("two\n", stream) < 0 || fclose(stream);
}
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

/// Programs on A make the changes, one after the other, each when B has been told of all files of `d`: what B sees then is what A sees.
fn each_change_is_shown(changes: &str, program: (&str, bool)) -> Option<Nodes> {
    let nodes = Nodes::new()?;
    let (a, b) = two(&nodes);
    let beside = nodes.root().parent().unwrap().to_owned();
    let program = match program {
        (source, true) => compile_statically(&beside, "program", source),
        (source, false) => compile(&beside, "program", source),
    };
    let script = |name: &str, text: &str| {
        let path = beside.join(name);
        std::fs::write(&path, format!("{COMMON}{changes}{text}")).unwrap();
        format!("python3 {} {}", path.display(), program.display())
    };
    let makes = script(
        "makes.py",
        "
for number, change in enumerate(changes):
    wait(f\"told{number}\")
    change()
    said = looks()
    os.mkdir(f\"changed{number}\")
    print(number, said)
wait(\"seen\")",
    );
    let follows = script(
        "follows.py",
        "
for number in range(len(changes)):
    before = looks()
    for name in os.listdir(\"d\"): os.stat(\"d/\" + name)
    os.mkdir(f\"told{number}\")
    wait(f\"changed{number}\")
    after = looks()
    assert before != after, (number, after)
    print(number, after)",
    );
    let there = b.start("true");
    let here = a.start(&makes_files(40));
    let (said, seen, stayed) = std::thread::scope(|threads| {
        let making = threads.spawn(|| a.run(&makes).ok().stdout);
        let seen = b.run(&follows).ok().stdout;
        // The end of a run makes its node's files durable.
        let stayed = ["d/f5", "d/f7"].map(|name| nodes.root().join(name).is_symlink());
        std::fs::create_dir(nodes.root().join("seen")).unwrap();
        (making.join().unwrap(), seen, stayed)
    });
    assert_eq!(seen, said);
    assert!(stayed[1], "the test shows nothing: files were made real ones");
    b.end(there).ok();
    a.end(here).ok();
    stayed[0].then_some(nodes)
}

#[test]
fn what_was_told_of_a_directory_is_never_shown_after_a_file_of_it_has_changed() {
    if Nodes::new().is_none() {
        return;
    }
    let stayed = each_change_is_shown(CHANGES, (STREAMS, false));
    assert!(stayed.is_some(), "the test shows nothing: d/f5 was made a real file");
    each_change_is_shown("changes = [lambda: run(PROGRAM), lambda: os.unlink(f)]", (STATIC, true));
}

/// How long `d/f5` is for B, which has been told of all files of `d`, when this has been done with the two nodes. Programs of a run on A append to
/// the file when there is `go`, and then make `changed`.
fn length_seen_after(act: impl FnOnce(&Nodes, &Node, &Node) + Send) -> Option<u64> {
    let nodes = Nodes::new()?;
    let (a, b) = two(&nodes);
    let appends = "(while [ ! -e go ]; do sleep 0.001; done; echo more >>d/f5; mkdir changed) &";
    let looks = "
import os, time
for name in os.listdir(\"d\"): os.stat(\"d/\" + name)
os.mkdir(\"told\")
while not os.path.lexists(\"changed\"): time.sleep(0.001)
print(os.stat(\"d/f5\").st_size)";
    let there = b.start("true");
    let here = a.start(&format!("{}; {appends}", makes_files(40)));
    let seen = std::thread::scope(|threads| {
        threads.spawn(|| {
            wait_for(&nodes, "told");
            act(&nodes, &a, &b);
        });
        b.run(&format!("exec python3 -c '{looks}'")).ok().stdout
    });
    // It ends when it has appended, if it has not yet.
    std::fs::create_dir_all(nodes.root().join("go")).unwrap();
    b.end(there).ok();
    a.end(here).ok();
    Some(seen.trim().parse().unwrap())
}

fn wait_for(nodes: &Nodes, name: &str) {
    let place = nodes.root().join(name);
    assert!(wait_until(60, || place.symlink_metadata().is_ok()), "{name} does not come");
}

fn go(nodes: &Nodes) {
    std::fs::create_dir(nodes.root().join("go")).unwrap();
}

#[test]
fn an_agent_that_was_killed_has_what_it_had_promised_forgotten_before_a_file_changes() {
    let seen = length_seen_after(|nodes, a, _| {
        let agent = a.agent().expect("a run has an agent");
        // SAFETY: kill takes any number; the process is one of the test's nodes.
        unsafe { libc::kill(agent, libc::SIGKILL) };
        go(nodes);
    });
    assert!(seen.is_none_or(|length| length == 7), "{seen:?}");
}

#[test]
fn a_writer_goes_on_when_a_node_that_was_told_of_its_files_cannot_be_reached() {
    // Whoever can't be told has forgotten it by then.
    let seen = length_seen_after(|nodes, _, b| {
        b.cut();
        go(nodes);
        wait_for(nodes, "changed");
        b.mend();
    });
    assert!(seen.is_none_or(|length| length == 7), "{seen:?}");
}

#[test]
fn what_a_program_without_the_library_has_changed_is_shown_a_second_later() {
    let seen = length_seen_after(|_, a, _| {
        a.native("echo native >>d/f5; sleep 1.1; mkdir changed").ok();
    });
    assert!(seen.is_none_or(|length| length == 9), "{seen:?}");
}
