//! Advisory locks: who has one has the file as it is now, wherever that has moved, and nobody else has one that excludes it.

use crate::moves::under_constant_moves;
use crate::nodes_open::two;
use terrace_tests::{Nodes, Wish, wait_until};

/// `lock(fd, way)` locks exclusively, or raises at once where somebody else has the lock.
const LOCK: &str = r#"
import fcntl, os, struct, sys, time
def lock(fd, way, waits=False):
    now = 0 if waits else fcntl.LOCK_NB
    if way == "flock": fcntl.flock(fd, fcntl.LOCK_EX | now)
    elif way == "fcntl": fcntl.lockf(fd, fcntl.LOCK_EX | now)
    elif way == "ofd":
        fcntl.fcntl(fd, 38 if waits else 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    else: os.lockf(fd, os.F_LOCK if waits else os.F_TLOCK, 0)
def unlock(fd, way):
    if way == "flock": fcntl.flock(fd, fcntl.LOCK_UN)
    else: fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
"#;

#[test]
fn a_lock_that_is_taken_when_its_file_has_moved_keeps_programs_of_other_nodes_out() {
    for way in ["flock", "fcntl", "ofd", "lockf"] {
        let Some(nodes) = Nodes::new() else { return };
        let (a, b, there) = two(&nodes);
        let locks = nodes.root().join("locks.py");
        let program = format!(
            r#"{LOCK}
fd, other = os.open("f", os.O_RDWR | os.O_CREAT), os.open("f", os.O_RDWR)
os.mkdir("opened")
while not os.path.exists("go"): time.sleep(0.005)
lock(fd, "{way}")
# Which is a descriptor of the file as it was until then.
os.pread(other, 1, 0)
os.mkdir("locked")
while not os.path.exists("asked"): time.sleep(0.005)
"#
        );
        std::fs::write(&locks, program).unwrap();
        let here = a.start("python3 locks.py & while [ ! -e opened ]; do sleep 0.01; done");
        b.run("cat f").ok();
        assert!(!nodes.root().join("f").is_symlink(), "the test shows nothing: f has not moved");
        std::fs::write(nodes.root().join("go"), "").unwrap();
        assert!(wait_until(60, || nodes.root().join("locked").exists()), "{way}: nothing was locked");
        let asks =
            format!("{LOCK}\ntry: lock(os.open(\"f\", os.O_RDWR), \"{way}\")\nexcept OSError: print(\"locked\")");
        std::fs::write(nodes.root().join("asks.py"), asks).unwrap();
        assert_eq!(b.run("python3 asks.py").ok().stdout, "locked\n", "{way}: two have the lock");
        std::fs::write(nodes.root().join("asked"), "").unwrap();
        a.end(here).ok();
        b.end(there).ok();
    }
}

#[test]
fn a_lock_ends_with_the_program_that_has_it_also_where_another_has_the_file_open_as_it_was() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b, there) = two(&nodes);
    let here = a.start(
        "(exec 9>>f; mkdir one; while [ ! -e go ]; do sleep 0.01; done; flock 9; mkdir locked) &
         (exec 9>>f; mkdir two; while [ ! -e locked ]; do sleep 0.01; done; flock 9; mkdir got) &
         while [ ! -e one -o ! -e two ]; do sleep 0.01; done",
    );
    b.run("cat f").ok();
    assert!(!nodes.root().join("f").is_symlink(), "the test shows nothing: f has not moved");
    std::fs::write(nodes.root().join("go"), "").unwrap();
    assert!(wait_until(60, || nodes.root().join("got").exists()), "the lock of a program that has ended is held");
    a.end(here).ok();
    b.end(there).ok();
}

#[test]
fn a_database_that_programs_of_two_nodes_have_open_loses_no_transaction() {
    let Some(nodes) = Nodes::new() else { return };
    let (a, b, there) = two(&nodes);
    let program = r#"
import os, sqlite3, sys, time
db = sqlite3.connect("db", timeout=60, isolation_level=None)
if sys.argv[1] == "a": db.execute("create table t (n integer)"); db.execute("insert into t values (0)")
db.execute("select n from t").fetchall()
os.mkdir("ready-" + sys.argv[1])
while not os.path.exists({"a": "ready-b", "b": "began"}[sys.argv[1]]): time.sleep(0.005)
for i in range(150):
    db.execute("begin immediate")
    n, = db.execute("select n from t").fetchone()
    # The file has moved since it was opened, and the other one goes on meanwhile.
    if sys.argv[1] == "a" and i == 0: os.mkdir("began"); time.sleep(1)
    db.execute("update t set n = ?", (n + 1,))
    db.execute("commit")
"#;
    std::fs::write(nodes.root().join("counts.py"), program).unwrap();
    let here = a.start("python3 counts.py a & while [ ! -e ready-a ]; do sleep 0.01; done");
    b.run("python3 counts.py b; while [ -e db-journal ]; do sleep 0.01; done").ok();
    let ask = "import sqlite3\ndb = sqlite3.connect(\"db\", timeout=60)\n\
               print(db.execute(\"select n from t\").fetchone()[0], db.execute(\"pragma integrity_check\").fetchone()[0])";
    std::fs::write(nodes.root().join("ask.py"), ask).unwrap();
    a.terrace(&["run", "-q", "--settle", "1h", "--tier", "ram=/dev/shm:64MiB", "--", "true"]).ok();
    let counted = || b.run("python3 ask.py").ok().stdout;
    assert!(wait_until(60, || counted() == "300 ok\n"), "{}", counted());
    a.end(here).ok();
    b.end(there).ok();
}

#[test]
fn locks_at_any_moment_of_a_move_keep_others_out() {
    let place = Wish::default().tier("ram", "2MiB").tier("ssd", "4MiB").settle("1ms").mover("fsync = false").build();
    let python = LOCK.to_owned()
        + r#"
import multiprocessing as mp, random
END = time.time() + 6
def counter(w):
    random.seed(w); n = 0
    held = os.open("count", os.O_RDWR | os.O_CREAT)
    while time.time() < END:
        if random.randrange(4) == 0: os.close(held); held = os.open("count", os.O_RDWR)
        # Each of these excludes only its own kind.
        lock(held, "flock", True); lock(held, "ofd", True)
        last = os.pread(held, 8, 0); os.pwrite(held, b"%08d" % (int(last or b"0") + 1), 0); n += 1
        if random.randrange(10) == 0: os.ftruncate(held, 8)
        unlock(held, "ofd"); unlock(held, "flock")
        # It moves when it outgrows its tier, and nobody has it locked.
        with open(f"own{w}", "ab") as own: own.write(bytes(200000))
        if n % 7 == 0: os.unlink(f"own{w}")
        try: os.pwrite(held, bytes(random.randrange(1, 300000)), random.randrange(8, 5 << 20))
        except OSError as error: assert error.errno == 28, error
        time.sleep(random.random() / 500)
    open(f"n{w}", "w").write(str(n))
ps = [mp.Process(target=counter, args=(i,)) for i in range(3)]; [p.start() for p in ps]; [p.join() for p in ps]
assert [p.exitcode for p in ps] == [0] * 3
print(int(open("count", "rb").read(8)) - sum(int(open(f"n{w}").read()) for w in range(3)))
"#;
    assert_eq!(under_constant_moves(&place, &python).ok().stdout, "0\n", "increments were lost");
}
