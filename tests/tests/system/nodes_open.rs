//! What a program has open on one node, while programs on another one change it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use terrace_tests::{Node, Nodes, binaries, wait_until};

/// Two nodes, both with an agent that knows of the other; a run on the second one is under way.
pub fn two(nodes: &Nodes) -> (Node, Node, std::process::Child) {
    let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
    let there = b.start("true");
    (a, b, there)
}

fn is_link(nodes: &Nodes, name: &str) -> bool {
    nodes.root().join(name).is_symlink()
}

fn wait_for(nodes: &Nodes, name: &str) {
    let place = nodes.root().join(name);
    assert!(wait_until(60, || place.symlink_metadata().is_ok()), "{name} does not come");
}

fn statically(nodes: &Nodes, source: &str) -> PathBuf {
    terrace_tests::compile_statically(nodes.root().parent().unwrap(), "program", source)
}

/// Opens it as told, says so by a directory, and looks again when it is told to: what it reads, and the length.
const LOOKS_TWICE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char text[100];
    struct stat s;
    int fd = open("f", argc > 1 ? O_RDWR | O_CREAT : O_RDONLY, 0644);
    if (fd < 0 || (argc > 1 && write(fd, "v1\n", 3) != 3)) { perror("f"); return 1; }
    if (pread(fd, text, sizeof text, 0) != 3) return 1;
    mkdir("opened", 0755);
    while (access("go", F_OK)) usleep(5000);
    ssize_t n = pread(fd, text, sizeof text, 0);
    fstat(fd, &s);
    FILE *said = fopen("said", "w");
    fprintf(said, "%ld %ld %.*s", (long)s.st_size, (long)s.st_nlink, (int)n, text);
    fclose(said);
    mkdir("done", 0755);
    return 0;
}
"#;

/// What the program on A, which has `f` open, sees of it when B has done this.
fn seen_after(script_of_a: &dyn Fn(&Path) -> String, is_static: bool, script_of_b: &str) -> String {
    let nodes = Nodes::new().expect("asked before");
    let program = match is_static {
        true => statically(&nodes, LOOKS_TWICE),
        false => terrace_tests::compile(nodes.root().parent().unwrap(), "program", LOOKS_TWICE),
    };
    let (a, b, there) = two(&nodes);
    let here = a.start(&format!("({}) & while [ ! -e opened ]; do sleep 0.01; done", script_of_a(&program)));
    b.run(script_of_b).ok();
    std::fs::write(nodes.root().join("go"), "").unwrap();
    wait_for(&nodes, "done");
    a.end(here).ok();
    b.end(there).ok();
    assert!(!nodes.root().join(".terrace").exists());
    std::fs::read_to_string(nodes.root().join("said")).unwrap()
}

#[test]
fn a_reader_sees_what_another_node_writes_after_it_has_opened_the_file() {
    if Nodes::new().is_none() {
        return;
    }
    for is_static in [false, true] {
        // In its tier when it is opened; and flushed before, with a replica or without.
        let placed = |program: &Path| format!("echo v1 >f; {}", program.display());
        assert_eq!(seen_after(&placed, is_static, "printf 'v2\\n' >>f"), "6 1 v1\nv2\n", "static: {is_static}");
        let flush = format!("{}/terrace flush -q --all", binaries().display());
        let durable = |program: &Path| format!("echo v1 >f; {flush}; {}", program.display());
        assert_eq!(seen_after(&durable, is_static, "printf 'v2\\n' >f"), "3 1 v2\n", "static: {is_static}");
    }
}

#[test]
fn a_writer_sees_what_another_node_writes_after_it_has_opened_the_file() {
    if Nodes::new().is_none() {
        return;
    }
    for is_static in [false, true] {
        let writes = |program: &Path| format!("{} w", program.display());
        assert_eq!(seen_after(&writes, is_static, "printf 'v2\\n' >>f"), "6 1 v1\nv2\n", "static: {is_static}");
        assert_eq!(seen_after(&writes, is_static, "ln f g; rm f"), "3 1 v1\n", "static: {is_static}");
    }
}

#[test]
fn a_reader_sees_what_its_own_node_writes_beside_other_nodes() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b, there) = two(&nodes);
    let terrace = format!("{}/terrace", binaries().display());
    let here = a.start(&format!(
        "echo v1 >f; echo v1 >g; {terrace} flush -q --all
         {terrace} prefetch -q g >/dev/null
         exec 3<f 4<g; echo v2 >f; echo v2 >>g
         test \"$(cat <&3)\" = v2; test \"$(cat <&4 | tail -n 1)\" = v2"
    ));
    assert!(!is_link(&nodes, "f"), "the test shows nothing: f was not flushed");
    a.end(here).ok();
    b.end(there).ok();
}

#[test]
fn a_hard_link_of_a_file_that_a_static_program_has_open_is_made_beside_other_nodes() {
    let Some(nodes) = Nodes::new() else { return };
    let program = statically(
        &nodes,
        r#"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void)
{
    int fd = open("f", O_RDWR | O_CREAT, 0644);
    if (fd < 0 || write(fd, "v1\n", 3) != 3 || link("f", "g") || write(fd, "v2\n", 3) != 3) { perror("link"); return 1; }
    return 0;
}
"#,
    );
    let (a, b, there) = two(&nodes);
    a.run(&program.display().to_string()).ok();
    b.end(there).ok();
    for name in ["f", "g"] {
        assert_eq!(std::fs::read_to_string(nodes.root().join(name)).unwrap(), "v1\nv2\n");
    }
}

/// Has `f` open, is told to go on, and then writes and reads by the descriptor: the errors, and what it reads.
const GOES_ON: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{
    char text[100];
    int fd = open("f", O_RDWR | O_CREAT, 0644);
    if (fd < 0 || write(fd, "v1\n", 3) != 3) { perror("f"); return 1; }
    mkdir("opened", 0755);
    while (access("go", F_OK)) usleep(5000);
    int written = pwrite(fd, "v2\n", 3, 3) == 3 ? 0 : errno;
    ssize_t n = pread(fd, text, sizeof text, 0);
    int got = n < 0 ? errno : 0;
    FILE *said = fopen("said", "w");
    fprintf(said, "%d %d %.*s", written, got, n < 0 ? 0 : (int)n, text);
    fclose(said);
    mkdir("done", 0755);
    return 0;
}
"#;

/// What a program on A says, which has `f` open: B has brought the file, A's agent was killed, and B has done this before the program went
/// on. `look` looks at the root in the end.
fn said_after_a_killed_agent(script_of_b: &str, look: impl Fn(&Nodes)) -> Option<String> {
    let nodes = Nodes::new()?;
    let program = terrace_tests::compile(nodes.root().parent().unwrap(), "program", GOES_ON);
    let (a, b, there) = two(&nodes);
    let here = a.start(&format!("{} & while [ ! -e opened ]; do sleep 0.01; done", program.display()));
    b.run("cat f >/dev/null").ok();
    assert!(!is_link(&nodes, "f"), "the test shows nothing: f has not moved");
    let agent = a.agent().expect("a run has an agent");
    // SAFETY: kill takes any number; the process is one of the test's nodes.
    unsafe { libc::kill(agent, libc::SIGKILL) };
    let is_there = || a.agent().is_some_and(|now| now != agent) && a.terrace(&["status"]).code == 0;
    assert!(wait_until(60, is_there), "the agent does not come again");
    b.run(script_of_b).ok();
    std::fs::write(nodes.root().join("go"), "").unwrap();
    wait_for(&nodes, "done");
    a.end(here).ok();
    b.end(there).ok();
    look(&nodes);
    Some(std::fs::read_to_string(nodes.root().join("said")).unwrap())
}

#[test]
fn a_descriptor_goes_on_in_its_file_when_that_was_renamed_elsewhere_after_its_agent_was_killed() {
    let look = |nodes: &Nodes| {
        assert_eq!(std::fs::read_to_string(nodes.root().join("f")).unwrap(), "another\n");
        assert_eq!(std::fs::read_to_string(nodes.root().join("g")).unwrap(), "v1\nv2\n");
    };
    let Some(said) = said_after_a_killed_agent("mv f g; echo another >f", look) else { return };
    assert_eq!(said, "0 0 v1\nv2\n");
}

#[test]
fn a_descriptor_never_gets_another_file_of_its_name_or_inode_number_after_its_agent_was_killed() {
    // What took the name, and what may have the inode number by now.
    let look = |nodes: &Nodes| {
        for name in ["f", "g", "h"] {
            let found = std::fs::read_to_string(nodes.root().join(name));
            assert!(found.as_ref().is_ok_and(|text| text == "another\n"), "{name}: {found:?}");
        }
    };
    let script = "rm f; for name in f g h; do echo another >$name; done; $TERRACE flush -q --all";
    let script = script.replace("$TERRACE", &format!("{}/terrace", binaries().display()));
    let Some(said) = said_after_a_killed_agent(&script, look) else { return };
    // Not what the file was once, either.
    assert_eq!(said, format!("{0} {0} ", libc::EIO));
}

#[test]
fn a_file_without_a_name_is_found_again_by_those_who_have_it_open_after_an_agent_was_killed() {
    let Some(nodes) = Nodes::new() else { return };
    let program = terrace_tests::compile(nodes.root().parent().unwrap(), "program", GOES_ON);
    let (a, b, there) = two(&nodes);
    // The shell's descriptor follows the file before the agent is killed, and holds it.
    let here = a.start(&format!(
        "{} & while [ ! -e opened ]; do sleep 0.01; done
         (exec <f; mkdir holds; while [ ! -e moved ]; do sleep 0.01; done
          read line; mkdir follows; while [ ! -e done ]; do sleep 0.01; done) &
         while [ ! -e holds ]; do sleep 0.01; done",
        program.display()
    ));
    b.run("cat f >/dev/null; mkdir moved").ok();
    wait_for(&nodes, "follows");
    let agent = a.agent().expect("a run has an agent");
    // SAFETY: kill takes any number; the process is one of the test's nodes.
    unsafe { libc::kill(agent, libc::SIGKILL) };
    b.run("rm f; echo another >f").ok();
    std::fs::write(nodes.root().join("go"), "").unwrap();
    wait_for(&nodes, "done");
    a.end(here).ok();
    b.end(there).ok();
    assert_eq!(std::fs::read_to_string(nodes.root().join("said")).unwrap(), "0 0 v1\nv2\n");
    assert_eq!(std::fs::read_to_string(nodes.root().join("f")).unwrap(), "another\n");
}

/// The call of a static program that is killed while its node waits for another one.
fn is_not_done(call: &str) {
    let Some(nodes) = Nodes::new() else { return };
    let source = format!(
        r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{{
    close(open("../asks", O_WRONLY | O_CREAT, 0644));
    return {call};
}}
"#
    );
    let program = statically(&nodes, &source);
    let beside = |name: &str| nodes.root().parent().unwrap().join(name);
    let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
    let here = a.start("echo whole >f");
    let agent = a.agent().expect("a run has an agent");
    // SAFETY: kill takes any number; the process is one of the test's nodes.
    let signal = |signal| unsafe { libc::kill(agent, signal) };
    signal(libc::SIGSTOP);
    let kills = b.start(&format!(
        "{} & until [ -e ../asks ]; do sleep 0.01; done; sleep 0.3; kill -9 $!
         wait $! || [ $? = 137 ]; : >../killed",
        program.display()
    ));
    assert!(
        beside("killed").exists() && is_link(&nodes, "f"),
        "the test shows nothing: f has moved before its writer was killed"
    );
    signal(libc::SIGCONT);
    assert!(wait_until(60, || !is_link(&nodes, "f")), "the test shows nothing: f has not moved, {call}");
    std::thread::sleep(std::time::Duration::from_millis(200));
    let found = nodes.root().join("f").metadata().unwrap_or_else(|error| panic!("{call}: {error}"));
    assert_eq!((found.len(), found.mode() & 0o777), (6, 0o644), "{call}");
    for (node, run) in [(&b, kills), (&a, here)] {
        node.end(run).ok();
    }
}

#[test]
fn what_a_static_program_asked_for_is_not_done_when_it_was_killed_while_another_node_was_waited_for() {
    is_not_done("open(\"f\", O_WRONLY | O_TRUNC) < 0");
    is_not_done("unlink(\"f\")");
    is_not_done("rename(\"f\", \"g\")");
    is_not_done("chmod(\"f\", 0600)");
    is_not_done("truncate(\"f\", 0)");
}

#[test]
fn a_static_program_finds_a_name_that_another_node_replaces_all_the_time() {
    let Some(nodes) = Nodes::new() else { return };
    let program = statically(
        &nodes,
        r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <unistd.h>
#define EACH(call) if (call) printf("%s: %m\n", #call)
static int opens(int flags)
{
    int fd = open("f", flags);
    return fd < 0 || close(fd);
}
int main(void)
{
    struct stat s;
    struct statfs fs;
    char text[9];
    long rounds = 0;
    for (struct stat stop; stat("stop", &stop); rounds++) {
        EACH(chmod("f", 0640));
        EACH(chown("f", -1, -1));
        EACH(utimensat(AT_FDCWD, "f", NULL, 0));
        EACH(removexattr("f", "user.none") != -1 || errno != ENODATA);
        EACH(truncate("f", 0));
        EACH(stat("f", &s));
        EACH(lstat("f", &s));
        EACH(statfs("f", &fs));
        EACH(readlink("f", text, sizeof text) != -1 || errno != EINVAL);
        EACH(opens(O_RDONLY));
        EACH(opens(O_RDWR | O_APPEND | O_NOFOLLOW));
        EACH(link("f", "h") || unlink("h"));
    }
    if (rounds > 10) puts("ended");
    return 0;
}
"#,
    );
    let (a, b, there) = two(&nodes);
    b.run(": >f").ok();
    let said = nodes.root().parent().unwrap().join("said");
    let here = a.start(&format!("{} >../said &", program.display()));
    b.run("for i in {1..300}; do : >g; mv g f; done").ok();
    std::fs::write(nodes.root().join("stop"), "").unwrap();
    let seen = || std::fs::read_to_string(&said).unwrap();
    assert!(wait_until(60, || seen().ends_with("ended\n")), "it does not come to its end: {}", seen());
    a.end(here).ok();
    b.end(there).ok();
    let seen = seen();
    let mut lines: Vec<&str> = seen.lines().collect();
    lines.sort();
    lines.dedup();
    assert_eq!(lines, ["ended"]);
}

#[test]
fn a_listing_shows_no_link_where_another_node_makes_and_removes_files_before_this_one_has_made_any() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b) = (nodes.node("nodea"), nodes.node("nodeb"));
    let here = a.start("(while [ ! -e stop ]; do : >f; rm f; done) &");
    let lists = "
import os, time
listed = links = 0
end = time.monotonic() + 3
while time.monotonic() < end:
    kinds = [entry.is_symlink() for entry in os.scandir() if entry.name == \"f\"]
    listed += len(kinds)
    links += sum(kinds)
print(listed > 10, links)";
    let seen = b.run(&format!("python3 -c '{lists}'")).ok();
    std::fs::write(nodes.root().join("stop"), "").unwrap();
    a.end(here).ok();
    assert_eq!(seen.stdout, "True 0\n");
}

#[test]
fn a_static_program_never_sees_a_link_where_another_node_makes_a_file_as_it_looks() {
    let Some(nodes) = Nodes::new() else { return };
    let program = statically(
        &nodes,
        r#"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
int main(void)
{
    struct stat s;
    long absent = 0, present = 0, strange = 0;
    while (access("stop", F_OK))
        for (int i = 0; i < 100; i++) {
            if (lstat("f", &s)) { if (errno == ENOENT) absent++; else strange++; }
            else if (S_ISREG(s.st_mode)) present++;
            else strange++;
        }
    printf("%d %d %ld\n", absent > 0, present > 0, strange);
    return 0;
}
"#,
    );
    let (a, b, there) = two(&nodes);
    let here = a.start(&format!("{} >said &", program.display()));
    b.run("for i in {1..400}; do : >f; rm f; done").ok();
    std::fs::write(nodes.root().join("stop"), "").unwrap();
    a.end(here).ok();
    b.end(there).ok();
    assert_eq!(std::fs::read_to_string(nodes.root().join("said")).unwrap(), "1 1 0\n");
}
