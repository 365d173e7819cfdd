//! Placed directories whose tier is full: the write goes on. New files lie in a lower tier or in the root, as links that programs do
//! not see.

use crate::placed::{await_file, kill_all, placed_at};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_tests::{Outcome, Wish, Workplace, binaries, is_root, skipped, wait_until};
use terrace_tier::step::KILL_ENV;

const DOORS: [&str; 3] = ["preload", "both", "supervise"];
const POLICY: &str = "flush = [\"**\", \"!work/**\"]\nevict = [\"work/**\"]";

fn wish(door: &str) -> Wish {
    Wish::default()
        .top(&format!("directories = \"scratch\"\ndoor = {door:?}"))
        .policy(POLICY)
        .tier("ram", "2MiB")
        .settle("1h")
}

/// `full()`: makes `work`, and fills its tier, until a new file in it lies elsewhere; where that is. A descriptor's own link tells.
const FULL: &str = "
import os, sys, time, stat, errno, subprocess, shutil
def lies(f):
    return os.readlink(f'/proc/self/fd/{f.fileno()}')
def full():
    os.mkdir('work')
    with open('work/fill', 'wb') as f: f.write(bytes(2080768))
    while True:
        with open('work/probe', 'w') as f: at = lies(f)
        os.unlink('work/probe')
        if '/spill/' in at: return os.path.dirname(at)
        time.sleep(0.02)
def fails(what, *args, **kw):
    try: what(*args, **kw)
    except OSError as e: return errno.errorcode[e.errno]
";

fn python(place: &Workplace, script: &str) -> Outcome {
    std::fs::write(place.scratch().join("p.py"), format!("{FULL}{script}")).unwrap();
    place.run(&["bash", "-c", "exec python3 $SCRATCH/p.py"]).ok()
}

/// The run has ended, and nothing of its files is left.
fn assert_clean(place: &Workplace) {
    place.wait_for_the_agents_end();
    assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new());
    let work = place.root().join("work");
    assert!(std::fs::symlink_metadata(&work).unwrap().is_dir());
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    assert!(!place.root().join(".terrace").exists());
    for tier in ["ram", "disk"].map(|name| place.tier(name)) {
        let left: Vec<PathBuf> =
            std::fs::read_dir(&tier).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

#[test]
fn new_files_go_to_the_root_when_the_tier_is_full_and_look_like_any_file() {
    for door in DOORS {
        let place = wish(door).build();
        let outcome = python(
            &place,
            "
at = full()
assert at.startswith(os.environ['ROOT'] + '/.terrace/'), at
os.mkdir('work/d')
with open('work/d/f', 'w') as f: f.write('hello'); f.flush(); assert '/spill/' in lies(f); inside = os.fstat(f.fileno())
for look in os.stat, os.lstat:
    s = look('work/d/f'); assert stat.S_ISREG(s.st_mode) and s.st_size == 5, s; assert (s.st_dev, s.st_ino) == (inside.st_dev, inside.st_ino)
assert s.st_dev == os.stat('.').st_dev and not os.path.islink('work/d/f')
os.symlink('f', 'work/d/l')
entries = sorted((e.name, e.is_file(follow_symlinks=False), e.is_symlink(), e.inode() == os.lstat(e.path).st_ino) for e in os.scandir('work/d'))
assert entries == [('f', True, False, True), ('l', False, True, True)], entries
assert fails(os.readlink, 'work/d/f') == 'EINVAL' and os.readlink('work/d/l') == 'f'
assert fails(os.open, 'work/d/f', os.O_CREAT | os.O_EXCL | os.O_WRONLY) == 'EEXIST'
assert fails(os.mkdir, 'work/d/f') == 'EEXIST' and fails(os.rmdir, 'work/d/f') == 'ENOTDIR'
fd = os.open('work/d/f', os.O_RDONLY | os.O_NOFOLLOW); assert os.read(fd, 9) == b'hello'; os.close(fd)
assert os.path.realpath('work/d/f') == os.environ['ROOT'] + '/work/d/f', os.path.realpath('work/d/f')
os.chmod('work/d/f', 0o640); os.utime('work/d/f', (1, 2), follow_symlinks=False); os.chown('work/d/f', -1, -1, follow_symlinks=False)
s = os.lstat('work/d/f'); assert (stat.S_IMODE(s.st_mode), s.st_mtime) == (0o640, 2), s
os.chdir('work/d')
with open('rel', 'a+') as f: f.write('x'); assert '/spill/' in lies(f)
assert stat.S_ISREG(os.lstat('rel').st_mode) and os.getcwd() == os.environ['ROOT'] + '/work/d'
os.link('rel', 'linked'); os.unlink('rel'); assert open('linked').read() == 'x'
os.rename('linked', '../g'); assert open('../g').read() == 'x' and sorted(os.listdir('.')) == ['f', 'l']
with open('f', 'r+') as f: f.truncate(1)
os.chdir('../..')
assert open('work/d/f').read() == 'h' and len(os.listdir(at)) == 2, os.listdir(at)
with open('work/h', 'w') as f: f.write('over')
os.rename('work/h', 'work/g'); assert open('work/g').read() == 'over' and len(os.listdir(at)) == 2, os.listdir(at)
assert fails(os.rename, 'work/g', 'out') == 'EXDEV'
os.link('work/g', 'second'); assert os.path.samefile('work/g', 'second') and os.lstat('work/g').st_nlink == os.stat('second').st_nlink == 2
shutil.move('work/g', 'out'); assert open('out').read() == 'over'
run = lambda *c: subprocess.run(c, check=True, capture_output=True, text=True).stdout
assert run('find', 'work/d', '-type', 'f').split() == ['work/d/f']
assert run('ls', '-l', 'work/d/f').startswith('-rw-r-----'), run('ls', '-l', 'work/d/f')
assert run('tar', '-cf', '-', 'work/d').count('') > 5000
run('cp', '-a', 'work/d', 'copy'); assert open('copy/f').read() == 'h' and not os.path.islink('copy/f')
run('rm', '-r', 'work/d'); assert os.listdir(at) == [], os.listdir(at)
shutil.rmtree('copy'); print('done')
",
        );
        assert_eq!(outcome.stdout, "done\n", "{door}: {outcome:?}");
        assert_eq!(std::fs::read(place.root().join("out")).unwrap(), b"over");
        assert_clean(&place);
    }
}

#[test]
fn new_files_go_to_a_lower_tier_first_and_its_room_is_counted() {
    for door in DOORS {
        let place = wish(door).tier("disk", "32MiB").build();
        let run = place.start(&format!(
            "cat > $SCRATCH/p.py <<'END'\n{FULL}
at = full()
with open('work/f', 'wb') as f: f.write(bytes(3000000)); f.flush(); assert lies(f).startswith(at); inside = os.fstat(f.fileno())
s = os.lstat('work/f'); assert (s.st_dev, s.st_ino) == (inside.st_dev, inside.st_ino) and s.st_dev == os.stat('.').st_dev
assert [e.inode() for e in os.scandir('work') if e.name == 'f'] == [s.st_ino]
print(at); open(os.environ['SCRATCH'] + '/made', 'w')
while not os.path.exists(os.environ['SCRATCH'] + '/seen'): time.sleep(0.05)
assert open('work/f', 'rb').read() == bytes(3000000)
END\nexec python3 $SCRATCH/p.py"
        ));
        await_file(&place.scratch().join("made"));
        let used = || place.status().map_or(0, |status| status.tiers[1].used_bytes);
        assert!(wait_until(30, || used() >= 3_000_000), "{door}: {} bytes", used());
        std::fs::write(place.scratch().join("seen"), "").unwrap();
        let outcome = Outcome::of_child(100, run).ok();
        assert!(outcome.stdout.starts_with(place.tier("disk").to_str().unwrap()), "{door}: {outcome:?}");
        assert_clean(&place);
    }
}

#[test]
fn a_killed_agent_leaves_spilled_files_and_the_next_one_takes_them_over() {
    let place = wish("preload").build();
    let run = place.start(&format!(
        "cat > $SCRATCH/p.py <<'END'\n{FULL}
full()
with open('work/f', 'w') as f: f.write('kept')
open(os.environ['SCRATCH'] + '/made', 'w')
while not os.path.exists(os.environ['SCRATCH'] + '/seen'): time.sleep(0.05)
assert open('work/f').read() == 'kept' and stat.S_ISREG(os.lstat('work/f').st_mode)
with open('work/g', 'w') as f: f.write('new')
open('out', 'w').write('out'); print(open('work/g').read())
END\nexec python3 $SCRATCH/p.py"
    ));
    await_file(&place.scratch().join("made"));
    let pid = place.status().unwrap().agent_pid;
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    std::fs::write(place.scratch().join("seen"), "").unwrap();
    let outcome = Outcome::of_child(100, run).ok();
    assert_eq!(outcome.stdout, "new\n", "{outcome:?}");
    assert_eq!(std::fs::read(place.root().join("out")).unwrap(), b"out");
    assert_clean(&place);
}

#[test]
fn recover_removes_spilled_files_of_a_run_that_was_killed_with_all_it_had() {
    let place = wish("preload").build();
    let run = place.start(&format!(
        "cat > $SCRATCH/p.py <<'END'\n{FULL}
full()
with open('work/f', 'w') as f: f.write('lost')
open(os.environ['SCRATCH'] + '/made', 'w'); time.sleep(100)
END\nexec python3 $SCRATCH/p.py"
    ));
    await_file(&place.scratch().join("made"));
    assert!(placed_at(&place, "work").is_some_and(|tier| tier.join("f").is_symlink()));
    kill_all(&place, run);
    Outcome::within(100, &mut place.terrace("recover")).ok();
    assert_clean(&place);
}

#[test]
fn what_policy_needs_after_all_is_made_durable_with_its_spilled_files() {
    let place = Wish::default()
        .top("directories = \"scratch\"\ndoor = \"preload\"")
        .policy("flush = [\"**\", \"!a/work/**\"]\nevict = [\"a/work/**\"]")
        .tier("ram", "2MiB")
        .build();
    python(
        &place,
        "
os.mkdir('a'); os.chdir('a'); full()
with open('work/f', 'w') as f: f.write('data'); assert '/spill/' in lies(f)
os.chmod('work/f', 0o640); os.link('work/f', 'work/g')
os.chdir('..'); os.rename('a', 'b'); assert open('b/work/g').read() == 'data'
",
    );
    let tree = place.settled_tree();
    assert_eq!((tree.bytes("b/work/f"), tree.leftovers()), (&b"data"[..], vec![]));
    let found = |name: &str| std::fs::symlink_metadata(place.root().join(name)).unwrap();
    let (file, second) = (found("b/work/f"), found("b/work/g"));
    assert!(file.is_file() && file.mode() & 0o7777 == 0o640, "{file:?}");
    assert!(file.ino() == second.ino(), "{file:?} {second:?}");
}

/// A file grows until it lies elsewhere, by calls of every kind; each part of it is there afterwards, and to all who have it open.
const GROWING: &str = "
import mmap
def grows(f, write):
    n = 0
    while '/spill/' not in lies(f): write(n); n += 1; time.sleep(0.005)
    return n
def block(n): return bytes([n % 251]) * 65536
def check(name, n, start=b''): data = open(name, 'rb').read(); assert data == start + b''.join(map(block, range(n))), (name, n, len(data))
os.mkdir('work'); os.mkdir('work/d')
f = open('work/d/f', 'w+b', buffering=0); f.write(b'start'); other = os.dup(f.fileno()); reader = open('work/d/f', 'rb', buffering=0)
before = os.stat('work/d/f').st_mtime
n = grows(f, lambda n: f.write(block(n)))
assert reader.read(5) == b'start' and os.fstat(other).st_size == 5 + 65536 * n and os.lseek(other, 0, os.SEEK_CUR) == 5 + 65536 * n
assert stat.S_ISREG(os.lstat('work/d/f').st_mode) and os.fstat(f.fileno()).st_ino == os.lstat('work/d/f').st_ino
os.write(other, block(n)); n += 1; os.close(other); f.write(block(n)); n += 1; f.close()
check('work/d/f', n, b'start'); assert reader.read() == open('work/d/f', 'rb').read()[5:]
os.chdir('work')
with open('stream', 'wb') as s:
    assert not subprocess.run(['cat'], stdin=open('d/f', 'rb'), stdout=s).returncode
assert open('stream', 'rb').read() == open('d/f', 'rb').read()
with open('sized', 'w+b', buffering=0) as s: os.ftruncate(s.fileno(), 9 << 20); s.seek(8 << 20); s.write(b'end')
with open('sized', 'rb') as s: s.seek(8 << 20); assert s.read(3) == b'end' and os.fstat(s.fileno()).st_size == 9 << 20
with open('given', 'w+b', buffering=0) as s: os.posix_fallocate(s.fileno(), 0, 4 << 20); s.write(b'given')
assert open('given', 'rb').read(6) == b'given\\0' and os.stat('given').st_size == 4 << 20
with open('map', 'w+b', buffering=0) as s:
    s.truncate(4096); m = mmap.mmap(s.fileno(), 4096); m[:3] = b'map'
    for i in range(40): s.write(block(i))
    m[3:6] = b'ped'; m.flush(); m.close()
with open('map', 'rb') as s: data = s.read(); assert len(data) == 40 * 65536 and data[65536:] == b''.join(map(block, range(1, 40)))
os.chdir('..'); print('done')
";

#[test]
fn a_file_that_outgrows_its_tier_goes_on_elsewhere_with_all_who_have_it_open() {
    for (door, tiers) in [("preload", 1), ("both", 1), ("both", 2)] {
        let wish = if tiers == 2 { wish(door).tier("disk", "512MiB") } else { wish(door) };
        let place = wish.build();
        let outcome = python(&place, GROWING);
        assert_eq!(outcome.stdout, "done\n", "{door}: {outcome:?}");
        assert_clean(&place);
    }
}

#[test]
fn a_file_that_can_not_move_goes_on_where_it_is_however_slowly_it_grows() {
    for door in DOORS {
        let place = wish(door).build();
        let outcome = python(
            &place,
            "
import fcntl, mmap
os.mkdir('work'); os.chdir('work')
with open('map', 'w+b', buffering=0) as f:
    f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); m[:3] = b'map'
    # Longer than the agent takes to count what is there.
    for i in range(40): f.write(bytes([i]) * 65536); time.sleep(0.02 if i < 30 else 0.3)
    high = fcntl.fcntl(f.fileno(), fcntl.F_DUPFD, 5000)
    os.write(high, b'high'); time.sleep(0.3); os.write(high, b'high'); assert '/spill/' not in lies(f)
    assert os.fstat(high).st_size == 40 * 65536 + 8; os.close(high); m.close()
data = open('map', 'rb').read(); assert all(data[i * 65536] == i for i in range(40)) and data.endswith(b'highhigh')
os.chdir('..'); print('done')
",
        );
        assert_eq!(outcome.stdout, "done\n", "{door}: {outcome:?}");
        assert_clean(&place);
    }
}

#[test]
fn a_kill_at_any_step_of_a_file_that_outgrows_its_tier_loses_nothing() {
    for step in ["MoveCopied", "MoveCommitted", "MoveRenamed", "MoveUnlinked", "MoveDone"] {
        let place = wish("preload").build();
        std::fs::write(place.scratch().join("p.py"), format!("{FULL}{}", GROWING.split("os.chdir").next().unwrap()))
            .unwrap();
        // Not quiet: it tells when an agent died.
        let mut run = place.terrace("run");
        run.args(["--", "bash", "-c", "exec python3 $SCRATCH/p.py"]).env(KILL_ENV, step);
        let outcome = Outcome::within(120, &mut run).ok();
        assert!(outcome.stderr.contains("was started again"), "{step} was never reached: {outcome:?}");
        assert_clean(&place);
    }
}

#[test]
fn what_many_processes_append_is_all_there_when_their_file_outgrows_its_tier() {
    let place = wish("both").build();
    let outcome = python(
        &place,
        "
import threading
def work(p, t):
    f = open('log', 'ab', buffering=0); i = 0; left = 300
    while left:
        assert f.write(f'{p} {t} {i} '.ljust(999, '.').encode() + b'\\n') == 1000; i += 1
        assert os.write(shared, f'{p} {t} {i} '.ljust(999, '.').encode() + b'\\n') == 1000
        left -= '/spill/' in lies(f)
    open(os.environ['SCRATCH'] + f'/count-{p}-{t}', 'w').write(str(i))
os.mkdir('work'); os.chdir('work'); pids = []
shared = os.open('shared', os.O_CREAT | os.O_WRONLY, 0o644)
for p in range(3):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=work, args=(p, t)) for t in range(2)]
        [t.start() for t in threads]; [t.join() for t in threads]; os._exit(0)
    pids.append(pid)
assert [os.waitpid(p, 0)[1] for p in pids] == [0, 0, 0]
count = {(p, t): int(open(os.environ['SCRATCH'] + f'/count-{p}-{t}').read()) for p in range(3) for t in range(2)}
for name, first in ('log', 0), ('shared', 1):
    assert os.stat(name).st_size == 1000 * sum(count.values()), (name, os.stat(name), count)
    got = sorted(tuple(map(int, line.split()[:3])) for line in open(name))
    assert got == sorted((*k, first + i) for k, n in count.items() for i in range(n)), (name, len(got), count)
print('done')
",
    );
    assert_eq!(outcome.stdout, "done\n", "{outcome:?}");
    assert_clean(&place);
}

/// As one of a server is whose links are not known any more (ESTALE) once their name is gone.
#[test]
fn what_a_removed_file_took_elsewhere_is_free_at_once_also_if_its_tier_forgets_links() {
    let place = wish("both").build();
    let source = place.scratch().join("source");
    std::fs::create_dir(&source).unwrap();
    let mount = |tier: &PathBuf| {
        let mut server = Command::new(binaries().join("terrace-slowfs"));
        server.args(["--cache-ttl-ms", "0", "--stale", "--source"]).arg(&source).arg("--mount").arg(tier).status()
    };
    let Some(_tier) = Small::with(place.tier("ram"), mount) else { return };
    python(
        &place,
        "
spill = full()
before = len(os.listdir(spill))
for i in range(5):
    with open(f'work/s{i}', 'w') as f: f.write('data')
assert len(os.listdir(spill)) == before + 5
for i in range(5): os.unlink(f'work/s{i}')
assert len(os.listdir(spill)) == before, os.listdir(spill)
",
    );
    place.wait_for_the_agents_end();
}

/// A tier whose file system is as large as itself, so that the kernel says ENOSPC before anybody has counted.
struct Small(PathBuf);

impl Small {
    fn mount(tier: PathBuf) -> Option<Small> {
        Small::with(tier, |tier| {
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(tier).status()
        })
    }

    /// A disk, on which a directory, and a link with a long text, need a block.
    fn disk(tier: PathBuf, image: &Path) -> Option<Small> {
        Small::with(tier, |tier| {
            let script = "truncate -s 8M $0 && mkfs.ext4 -q -b 4096 -m 0 -O ^has_journal -N 4096 $0 && mount -o loop $0 $1 && rmdir $1/lost+found";
            Command::new("sh").args(["-c", script]).arg(image).arg(tier).status()
        })
    }

    fn with(tier: PathBuf, mount: impl Fn(&PathBuf) -> std::io::Result<std::process::ExitStatus>) -> Option<Small> {
        if !is_root() || !mount(&tier).is_ok_and(|status| status.success()) {
            skipped("a small file system can't be mounted here");
            return None;
        }
        Some(Small(tier))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        wait_until(20, || Command::new("umount").arg(&self.0).status().is_ok_and(|status| status.success()));
    }
}

const WRITERS: &str = r#"
    #include <fcntl.h>
    #include <stdio.h>
    #include <string.h>
    #include <unistd.h>
    int main(int count, char **name) {
        static char block[65536];
        if (count == 3) {
            FILE *stream = fopen(name[1], "w");
            for (int i = 0; i < 1000000; i++) if (!stream || fprintf(stream, "line %d\n", i) < 0) return 1;
            return fclose(stream) != 0;
        }
        for (int i = 0; i < 20; i++) {
            char one[64];
            sprintf(one, "%s%d", name[1], i);
            int fd = open(one, O_CREAT | O_WRONLY | O_EXCL, 0644);
            memset(block, 'a' + i, sizeof block);
            for (int k = 0; k < 8; k++)
                for (long at = 0, n; at < (long)sizeof block; at += n)
                    if ((n = write(fd, block + at, sizeof block - at)) <= 0) { perror(one); return 2; }
            if (close(fd)) return 3;
        }
        return 0;
    }"#;

#[test]
fn a_file_system_that_is_full_before_anybody_has_counted_ends_no_write() {
    // Whose writes nobody sees has room for each of its files when it makes them: by that door no file grows beyond the tier.
    for (door, how) in [("both", ""), ("both", "-static"), ("supervise", "")] {
        let place = wish(door).build();
        let Some(small) = Small::mount(place.tier("ram")) else { return };
        let settings = std::fs::read_to_string(place.config()).unwrap().replace("2MiB", "4MiB");
        std::fs::write(place.config(), settings).unwrap();
        std::fs::write(place.scratch().join("w.c"), WRITERS).unwrap();
        let stream = if how.is_empty() && door == "both" {
            "$SCRATCH/w s stdio; seq -f 'line %.0f' 0 999999 | cmp - s; "
        } else {
            ""
        };
        let outcome = place.sh(&format!(
            "cc -O1 {how} -o $SCRATCH/w $SCRATCH/w.c; mkdir work; $SCRATCH/w work/f; cat work/f* | wc -c; ls work | wc -l; \
             for i in $(seq 0 19); do tr -d $(printf \\\\$(printf %o $((97 + i)))) < work/f$i | wc -c; done | sort -u; \
             cd work; {stream}cd ..; rm -r work/*"
        ));
        assert_eq!(outcome.ok().stdout, "10485760\n20\n0\n", "{door} {how}");
        place.wait_for_the_agents_end();
        assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new(), "{door} {how}");
        drop(small);
    }
}

/// Four writers take, and give back, more than the tier's file system has at times.
const ROUNDS: &str = "
import os
def work(p):
    for i in range(100):
        fd = os.open(f'work/f{p}', os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
        for k in range(20):
            left = memoryview(bytes(65536))
            while left: left = left[os.write(fd, left):]
        assert os.fstat(fd).st_size == 20 * 65536
        os.close(fd); os.unlink(f'work/f{p}')
os.mkdir('work'); pids = []
for p in range(4):
    pid = os.fork()
    if pid == 0: work(p); os._exit(0)
    pids.append(pid)
assert [os.waitpid(p, 0)[1] for p in pids] == [0] * 4
print('done')
";

#[test]
fn a_write_for_which_room_was_made_after_the_kernel_refused_it_goes_on() {
    for door in ["preload", "both"] {
        let place = wish(door).build();
        let Some(small) = Small::mount(place.tier("ram")) else { return };
        let settings = std::fs::read_to_string(place.config()).unwrap().replace("2MiB", "4MiB");
        std::fs::write(place.config(), settings).unwrap();
        std::fs::write(place.scratch().join("p.py"), ROUNDS).unwrap();
        let outcome = place.run(&["bash", "-c", "exec python3 $SCRATCH/p.py"]).ok();
        assert_eq!(outcome.stdout, "done\n", "{door}: {outcome:?}");
        place.wait_for_the_agents_end();
        assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new(), "{door}");
        drop(small);
    }
}

/// Files nearly fill the disk; then directories, links and a file without a name are made, for most of which there is no block left.
const NAMES: &str = "
import os, tempfile, time
os.mkdir('work')
for i in range(24):
    with open(f'work/f{i}', 'wb') as f: f.write(bytes([i]) * 262144)
for i in range(400): os.mkdir(f'work/d{i}')
for i in range(400): os.symlink('f' * 200 + str(i), f'work/l{i}')
os.chdir('work/d7')
for i in range(100): os.mkdir(f'sub{i}'); os.mkfifo(f'sub{i}/fifo')
os.chdir('../..')
fd = os.open('work', os.O_TMPFILE | os.O_RDWR, 0o600)
for i in range(24): assert os.write(fd, bytes([i]) * 262144) == 262144
os.lseek(fd, 0, 0); assert b''.join(iter(lambda: os.read(fd, 1 << 20), b'')) == b''.join(bytes([i]) * 262144 for i in range(24)); os.close(fd)
assert sum(os.path.isdir(f'work/d{i}') for i in range(400)) == 400 and len(os.listdir('work/d7')) == 100
assert all(os.readlink(f'work/l{i}') == 'f' * 200 + str(i) for i in range(400))
assert all(open(f'work/f{i}', 'rb').read() == bytes([i]) * 262144 for i in range(24)) and len(os.listdir('work')) == 824
print('done')
";

#[test]
fn new_directories_links_and_unnamed_files_have_room_in_a_placed_directory_whose_tier_is_full() {
    for door in ["preload", "both"] {
        let place = wish(door).build();
        let Some(small) = Small::disk(place.tier("ram"), &place.scratch().join("image")) else { return };
        let settings = std::fs::read_to_string(place.config()).unwrap().replace("2MiB", "6MiB");
        std::fs::write(place.config(), settings).unwrap();
        std::fs::write(place.scratch().join("p.py"), NAMES).unwrap();
        let outcome = place.run(&["bash", "-c", "python3 $SCRATCH/p.py && rm -r work/*"]).ok();
        assert_eq!(outcome.stdout, "done\n", "{door}: {outcome:?}");
        place.wait_for_the_agents_end();
        assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new(), "{door}");
        drop(small);
    }
}

const SLOW_WRITER: &str = r#"
    #include <fcntl.h>
    #include <string.h>
    #include <unistd.h>
    int main(int count, char **name) {
        static char block[65536];
        int fd = open(name[1], O_CREAT | O_WRONLY | O_EXCL, 0644);
        for (int k = 0; k < 48; k++, usleep(250000)) {
            memset(block, 'a' + k % 26, sizeof block);
            if (write(fd, block, sizeof block) != sizeof block) return 2;
        }
        return close(fd);
    }"#;

/// Nobody sees what it writes. So that it has room, files that nobody has open move down before the tier's file system is full.
#[test]
fn a_growing_file_of_a_static_program_gets_the_room_of_files_that_are_closed() {
    for door in ["both", "supervise"] {
        let place = wish(door).build();
        let Some(small) = Small::disk(place.tier("ram"), &place.scratch().join("image")) else { return };
        let settings = std::fs::read_to_string(place.config()).unwrap().replace("2MiB", "6MiB");
        std::fs::write(place.config(), settings).unwrap();
        std::fs::write(place.scratch().join("w.c"), SLOW_WRITER).unwrap();
        let outcome = place.sh(
            "cc -O1 -static -o $SCRATCH/w $SCRATCH/w.c; mkdir work; for i in 1 2 3 4 5; do head -c 1000000 /dev/zero > work/f$i; done; \
             $SCRATCH/w work/grows; cat work/f? | wc -c; wc -c < work/grows; ls work | wc -l; rm -r work/*",
        );
        assert_eq!(outcome.ok().stdout, "5000000\n3145728\n6\n", "{door}");
        place.wait_for_the_agents_end();
        assert_eq!(place.settled_tree().leftovers(), Vec::<String>::new(), "{door}");
        drop(small);
    }
}
