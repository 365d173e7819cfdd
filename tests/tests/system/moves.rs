//! A file can be opened, read, written, renamed or removed at any moment of its move, and evicted at any time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_core::control::Request;
use terrace_tests::{Outcome, Wish, Workplace, compile};

/// Runs a Python program in the root under `terrace run` while everything is flushed, evicted and brought up all the time.
pub fn under_constant_moves(place: &Workplace, python: &str) -> Outcome {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0u64.. {
                if done.load(Relaxed) {
                    break;
                }
                place.ask(&match turn % 4 {
                    0 | 2 => Request::Flush { paths: vec![], all: true, end_of_run: false },
                    1 => Request::Evict { paths: vec![] },
                    _ => Request::Prefetch { paths: vec![place.root().to_owned()] },
                });
                std::thread::sleep(std::time::Duration::from_millis(turn * 7 % 13));
            }
        });
        let script = place.scratch().join("program.py");
        std::fs::write(&script, python).unwrap();
        let outcome = place.run(&["/usr/bin/python3", script.to_str().unwrap()]);
        done.store(true, Relaxed);
        outcome
    })
}

fn small_tiers() -> Workplace {
    Wish::default().tier("ram", "3MiB").tier("ssd", "6MiB").settle("1ms").mover("fsync = false").build()
}

const HEAD: &str = "
import os, time, random, hashlib, multiprocessing as mp
random.seed(7); END = time.time() + 6
def block(tag, size): return (('%08d' % tag).encode() * (size // 8 + 1))[:size]
def check(data): assert data == block(int(data[:8]), len(data)), ('torn', data[:16], len(data))
";

#[test]
fn a_second_name_is_given_to_a_whole_file_while_its_first_one_is_replaced_all_the_time() {
    for door in ["preload", "supervise", "both"] {
        let place = Wish::default().top(&format!("door = {door:?}")).tier("ram", "64MiB").settle("1h").build();
        let python = r#"
import os
open("a", "w").write("first")
pid = os.fork()
if pid == 0:
    for i in range(3000):
        with open("new", "w") as f: f.write(str(i))
        os.rename("new", "a")
    os._exit(0)
links = 0
while os.waitpid(pid, os.WNOHANG) == (0, 0):
    os.link("a", "b"); assert open("b").read(); assert os.stat("b").st_nlink in (1, 2); os.unlink("b"); links += 1
assert open("a").read() == "2999" and os.listdir(".") == ["a"], os.listdir("."); print("done" if links else "too fast")
"#;
        std::fs::write(place.scratch().join("p.py"), python).unwrap();
        let outcome = place.sh("/usr/bin/python3 $SCRATCH/p.py").ok();
        assert_eq!(outcome.stdout, "done\n", "{door}: {outcome:?}");
        assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new(), "{door}");
    }
}

#[test]
fn readers_see_whole_files_while_they_move_and_are_replaced() {
    let place = small_tiers();
    let python = HEAD.to_owned()
        + r#"
def writer(w):
    n = 0
    while time.time() < END:
        n += 1; name = f"f{w}-{n % 5}"
        with open(name + ".new", "wb") as f: f.write(block(n, 200000 + n % 977))
        os.rename(name + ".new", name)
def reader(r):
    random.seed(r); reads = 0
    while time.time() < END:
        name = f"f{random.randrange(2)}-{random.randrange(5)}"
        try: data = open(name, "rb").read()
        except FileNotFoundError: assert time.time() < END - 5, name + " vanished"; continue
        check(data); assert len(data) >= 200000, (name, len(data)); s = os.lstat(name); assert s.st_mode & 0o170000 == 0o100000 and s.st_size >= 200000, s; reads += 1
    assert reads > 50
ps = [mp.Process(target=writer, args=(i,)) for i in range(2)] + [mp.Process(target=reader, args=(i,)) for i in range(2)]
[p.start() for p in ps]; [p.join() for p in ps]; assert [p.exitcode for p in ps] == [0] * 4
"#;
    under_constant_moves(&place, &python).ok();
    let tree = place.settled_tree();
    assert_eq!(tree.0.len(), 10, "{:?}", tree.0.keys());
    for name in tree.0.keys() {
        let bytes = tree.bytes(name.to_str().unwrap());
        assert!(bytes.chunks(8).all(|chunk| bytes.starts_with(chunk)), "{} is torn", name.display());
    }
}

#[test]
fn writes_at_any_moment_of_a_move_are_kept() {
    let place = small_tiers();
    let python = HEAD.to_owned()
        + r#"
def appender(w):
    n = 0
    while time.time() < END:
        with open("log", "ab", 0) as f:
            for _ in range(random.randrange(1, 9)): f.write(b"%02d %07d\n" % (w, n)); n += 1
        fd = os.open(f"own{w}", os.O_RDWR | os.O_CREAT); os.pwrite(fd, b"%07d\n" % n, 8 * (n % 4000)); os.close(fd)
        time.sleep(random.random() / 300)
    held = open("log", "ab", 0); held.write(b"%02d %07d\n" % (w, n)); open(f"count{w}", "w").write(str(n + 1))
ps = [mp.Process(target=appender, args=(i,)) for i in range(3)]; [p.start() for p in ps]; [p.join() for p in ps]; assert [p.exitcode for p in ps] == [0] * 3
seen = {}
for line in open("log"):
    w, n = line.split(); assert seen.get(w, -1) + 1 == int(n), (line, seen); seen[w] = int(n)
for w in range(3): assert seen[f"{w:02d}"] + 1 == int(open(f"count{w}").read())
print(sum(seen.values()))
"#;
    let outcome = under_constant_moves(&place, &python).ok();
    let tree = place.settled_tree();
    let lines = tree.bytes("log").iter().filter(|&&byte| byte == b'\n').count();
    assert_eq!(lines, outcome.stdout.trim().parse::<usize>().unwrap() + 3);
}

#[test]
fn renames_and_removals_at_any_moment_of_a_move_hold() {
    let place = small_tiers();
    let python = HEAD.to_owned()
        + r#"
def worker(w):
    os.makedirs(f"d{w}/x", exist_ok=True); names = set(); dirs = 0
    random.seed(w); n = 0; here = f"d{w}"
    while time.time() < END:
        n += 1; act = random.randrange(7); some = lambda: random.choice(sorted(names))
        if act <= 2 or not names:
            name = f"f{n}"; open(f"{here}/{name}", "wb").write(block(n, random.randrange(8, 60000))); names.add(name)
        elif act == 3: a = some(); b = f"r{n}"; os.rename(f"{here}/{a}", f"{here}/{b}"); names.remove(a); names.add(b)
        elif act == 4: a, b = some(), some(); os.replace(f"{here}/{a}", f"{here}/{b}"); (a != b) and names.remove(a)
        elif act == 5: a = some(); os.unlink(f"{here}/{a}"); names.remove(a); assert not os.path.lexists(f"{here}/{a}")
        else: there = f"d{w}-{n}"; os.rename(here, there); here = there
        if n % 20 == 0: assert set(os.listdir(here)) == names | {"x"}, set(os.listdir(here)) ^ (names | {"x"})
        for a in random.sample(sorted(names), min(2, len(names))): check(open(f"{here}/{a}", "rb").read())
        while len(names) > 60: a = names.pop(); os.unlink(f"{here}/{a}")
    os.rename(here, f"end{w}"); open(f"names{w}", "w").write("\n".join(sorted(names)))
ps = [mp.Process(target=worker, args=(i,)) for i in range(3)]; [p.start() for p in ps]; [p.join() for p in ps]; assert [p.exitcode for p in ps] == [0] * 3
"#;
    under_constant_moves(&place, &python).ok();
    let tree = place.settled_tree();
    for worker in 0..3 {
        let prefix = format!("end{worker}/");
        let found: Vec<&str> =
            tree.0.keys().filter_map(|name| name.to_str()?.strip_prefix(&prefix)).filter(|name| *name != "x").collect();
        let expected = String::from_utf8(tree.bytes(&format!("names{worker}")).to_vec()).unwrap();
        let mut expected: Vec<&str> = expected.lines().collect();
        expected.sort();
        assert_eq!(found, expected);
        for name in found {
            let bytes = tree.bytes(&format!("{prefix}{name}"));
            assert!(bytes.chunks(8).all(|chunk| bytes.starts_with(chunk)), "{name} is torn");
        }
    }
    assert!(!tree.0.keys().any(|name| name.to_string_lossy().starts_with('d')), "{:?}", tree.0.keys());
}

#[test]
fn a_reader_keeps_its_file_through_flush_and_eviction() {
    let place = Workplace::new();
    let mut shell = place.shell();
    shell.does("head -c 2000000 /dev/zero | openssl enc -aes-128-ctr -K 00000000000000000000000000000001 -iv 00000000000000000000000000000001 > f; exec 7< f; head -c 1000 <&7 > /dev/null; ino=$(stat -c %i f)");
    place.flush(&["f"]);
    assert_eq!(place.state_of("f"), "clean");
    // Its room would not come back while it is open: the object goes when the reader does.
    place.evict(&["f"]);
    shell.does("tail -c 1000000 f > $SCRATCH/tail; tail -c 1000000 <&7 | cmp - $SCRATCH/tail; [ $(stat -c %i f) = $ino ]; [ $(stat -L -c %i - <&7) = $ino ]; exec 7<&-");
    place.evict(&["f"]);
    assert_eq!(place.state_of("f"), "durable");
    shell.does("tail -c 1000000 f | cmp - $SCRATCH/tail; [ $(stat -c %i f) = $ino ]");
    shell.ends_and_leaves();
}

#[test]
fn a_path_keeps_its_inode_device_and_times_in_every_tier() {
    let place = Wish::default().settle("60s").build();
    let mut shell = place.shell();
    shell.does("echo x > f; touch -d '2020-01-01 01:02:03.456' f; chmod 640 f; sleep 0.02");
    let look = "stat -c '%i %d %a %h %s %Y %y %z %F %u' f; /usr/bin/python3 -c 'import os; e=[e for e in os.scandir(\".\") if e.name==\"f\"][0]; print(e.inode()==os.stat(\"f\").st_ino, e.is_symlink())'; fd=$(exec 8<f; stat -L -c '%i %d' /proc/self/fd/8); [ \"$fd\" = \"$(stat -c '%i %d' f)\" ] && echo same";
    let first = shell.says(look);
    assert!(first.ends_with("True False\nsame"), "{first}");
    assert_eq!(place.state_of("f"), "current");
    place.flush(&["f"]);
    assert_eq!((place.state_of("f").as_str(), shell.says(look)), ("clean", first.clone()));
    place.evict(&["f"]);
    assert_eq!((place.state_of("f").as_str(), shell.says(look)), ("durable", first.clone()));
    place.prefetch(&["f"]);
    assert_eq!((place.state_of("f").as_str(), shell.says(look)), ("clean", first.clone()));
    let inode = |text: &str| text.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    shell.does("echo y >> f");
    assert_eq!(inode(&shell.says(look)), inode(&first));
    assert_eq!(
        shell.says(
            "stat -c %d:%d . f | awk -F: '$1==$2' | wc -l; [ $(stat -c %d .) = $(stat -c %d f) ] && echo one device"
        ),
        "2\none device"
    );
    place.flush(&["f"]);
    assert_eq!(inode(&shell.says(look)), inode(&first));
    shell.does(": > f; echo z > f");
    assert_eq!(inode(&shell.says(look)), inode(&first));
    assert_eq!(shell.ends_and_leaves().bytes("f"), b"z\n");
}

#[test]
fn a_writer_that_opens_during_a_flush_wins() {
    let place = Wish::default().tier("ram", "64MiB").mover("bandwidth = \"15MiB\"").settle("1ms").build();
    let mut shell = place.shell();
    for round in 0..4 {
        shell.does(&format!(
            "head -c 5000000 /dev/zero > f; sleep 0.0{}; echo tail{round} >> f; [ $(tail -c 6 f) = tail{round} ]",
            3 + 2 * round
        ));
    }
    let tree = shell.ends_and_leaves();
    assert_eq!((tree.bytes("f").len(), &tree.bytes("f")[5_000_000..]), (5_000_006, &b"tail3\n"[..]));
}

#[test]
fn an_open_writer_is_not_flushed_half_done() {
    let place = Wish::default().settle("1ms").build();
    let mut shell = place.shell();
    shell.does("exec 7> f; echo first >&7; sleep 0.3");
    assert!(
        std::fs::symlink_metadata(place.root().join("f")).unwrap().is_symlink(),
        "not committed while it is written"
    );
    shell.does("echo second >&7; exec 7>&-");
    assert_eq!(shell.ends_and_leaves().bytes("f"), b"first\nsecond\n");
}

#[test]
fn unlinked_but_open_files_live_until_they_are_closed() {
    let place = small_tiers();
    let mut shell = place.shell();
    shell.does("exec 7<> f; printf hello >&7; rm f; [ ! -e f ]; head -c 5000000 /dev/zero >&7; echo end >&7");
    place.flush(&[]);
    place.evict(&[]);
    let look = "stat -L -c '%h %s' - <&7; head -c 5 /proc/self/fd/7; tail -c 4 /proc/self/fd/7";
    assert_eq!(shell.says(look), "0 5000009\nhelloend");
    assert!(shell.ends_and_leaves().0.is_empty());
}

#[test]
fn mapped_files_keep_their_bytes() {
    let place = small_tiers();
    let program = compile(
        &place.scratch(),
        "maps",
        r#"
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/mman.h>
int main(void) {
  for (int n = 0; n < 6; n++) {
    char name[16]; snprintf(name, sizeof name, "m%d", n); size_t size = 1500000;
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644); if (fd < 0 || ftruncate(fd, size)) return 1;
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); if (p == MAP_FAILED) return 2; close(fd);
    for (size_t i = 0; i < size; i++) { p[i] = (char)(i * 31 + n); if (i % 100000 == 0) usleep(1000); }
    if (n % 2) msync(p, size, MS_SYNC); usleep(30000); p[7] = 'x'; munmap(p, size); }
  return 0; }
"#,
    );
    place.run(&[program.to_str().unwrap()]).ok();
    let tree = place.settled_tree();
    for n in 0..6usize {
        let expected = (0..1_500_000usize).map(|i| if i == 7 { b'x' } else { (i * 31 + n) as u8 });
        assert!(tree.bytes(&format!("m{n}")).iter().copied().eq(expected), "m{n} differs");
    }
}

#[test]
fn a_static_program_reads_the_right_bytes() {
    let place = Workplace::new();
    let source = place.scratch().join("s.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(int c,char**v){FILE*f=fopen(v[1],\"r\");char b[99];if(!f||!fgets(b,99,f))return 1;fputs(b,stdout);return 0;}").unwrap();
    place.native_sh("cc -static -o $SCRATCH/s $SCRATCH/s.c").ok();
    let outcome = place.sh("echo bytes > f; $SCRATCH/s f; cp $SCRATCH/s s; ./s f").ok();
    assert_eq!(outcome.stdout, "bytes\nbytes\n");
}
