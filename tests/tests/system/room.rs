//! An application that outgrows a tier moves down under its own feet; it sees ENOSPC only when the last tier is full.

use std::path::{Path, PathBuf};
use std::process::Command;
use terrace_tests::{Comparison, SlowTier, Wish, Workplace, compile, is_root, skipped};

/// A fast tier of 2 MiB above one of 6.
fn wish() -> Wish {
    Wish::default().tier("ram", "2MiB").tier("ssd", "6MiB").settle("10ms")
}

/// Bytes that lie below a directory, allocated.
fn bytes_below(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = walkdir(directory);
    files.iter().filter_map(|path| path.symlink_metadata().ok()).map(|m| m.blocks() * 512).sum()
}

fn walkdir(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    entries
        .flatten()
        .flat_map(|entry| if entry.path().is_dir() { walkdir(&entry.path()) } else { vec![entry.path()] })
        .collect()
}

#[test]
fn a_file_may_outgrow_every_tier() {
    Comparison::with(wish()).agrees_and_uses_the_tier(
        "exec 7> f; for i in $(seq 100 299); do head -c 100000 /dev/zero | tr '\\0' $i >&7; done; exec 7>&-; sha256sum f; stat -c %s f; dd if=/dev/urandom bs=1M count=20 2>/dev/null | tee u | sha256sum > sum; sha256sum < u | diff - sum; rm sum u",
    );
}

/// Each asks for the one descriptor's successor; one of them is given it, and the others must not take it for the old one.
#[test]
fn threads_and_processes_with_one_descriptor_outgrow_a_tier() {
    let place = Wish::default().tier("ram", "2MiB").build();
    let script = "
import os, threading
fd = os.open('shared', os.O_CREAT | os.O_WRONLY, 0o644)
def work(p, t):
    for i in range(500): assert os.write(fd, f'{p} {t} {i} '.ljust(999, '.').encode() + b'\\n') == 1000
pids = []
for p in range(3):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=work, args=(p, t)) for t in range(4)]
        [t.start() for t in threads]; [t.join() for t in threads]; os._exit(0)
    pids.append(pid)
assert [os.waitpid(p, 0)[1] for p in pids] == [0, 0, 0]
assert os.fstat(fd).st_size == 6000000, os.fstat(fd).st_size
got = sorted(tuple(map(int, line.split()[:3])) for line in open('shared'))
assert got == [(p, t, i) for p in range(3) for t in range(4) for i in range(500)], len(got)
";
    std::fs::write(place.scratch().join("p.py"), script).unwrap();
    place.run(&["bash", "-c", "exec python3 $SCRATCH/p.py"]).ok();
    assert_eq!(place.settled_tree().bytes("shared").len(), 6_000_000);
}

#[test]
fn direct_writes_outgrow_a_tier() {
    let place = wish().build();
    let program = compile(
        &place.scratch(),
        "direct",
        r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
int main(void) {
  int fd = open("f", O_RDWR | O_CREAT, 0644), other = dup(fd); char block[10000]; long at = 0;
  for (int i = 0; i < 1500; i++) { memset(block, 'a' + i % 26, sizeof block); ssize_t n;
    switch (i % 4) { case 0: n = write(fd, block, sizeof block); break; case 1: n = write(other, block, sizeof block); break;
      case 2: n = pwrite(fd, block, sizeof block, at); lseek(other, at + n, SEEK_SET); break;
      default: { struct iovec v[2] = {{block, 4000}, {block + 4000, 6000}}; n = writev(fd, v, 2); } }
    if (n != sizeof block) { perror("write"); return 1; } at += n;
    if (lseek(other, 0, SEEK_CUR) != at) { fprintf(stderr, "offset %ld, not %ld\n", (long)lseek(fd, 0, SEEK_CUR), at); return 2; } }
  for (int i = 0; i < 1500; i++) { if (pread(other, block, sizeof block, i * 10000L) != sizeof block || block[0] != 'a' + i % 26 || block[9999] != block[0]) return 3; }
  return 0; }
"#,
    );
    place.run(&[program.to_str().unwrap()]).ok();
    let tree = place.settled_tree();
    let expected = (0..15_000_000usize).map(|i| b'a' + (i / 10_000 % 26) as u8);
    assert!(tree.bytes("f").iter().copied().eq(expected));
}

#[test]
fn stdio_outgrows_a_tier() {
    let place = wish().build();
    let program = compile(
        &place.scratch(),
        "stdio",
        r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  FILE *f = fopen("w", "w+"), *p = fopen("p", "w"), *c = fopen("c", "a"); char block[3000]; long sum = 0;
  static char big[1 << 16]; setvbuf(p, big, _IOFBF, sizeof big);
  for (int i = 0; i < 3000; i++) { memset(block, 'a' + i % 26, sizeof block); if (fwrite(block, 1, sizeof block, f) != sizeof block) return 1;
    if (fprintf(p, "line %d %.500s\n", i, block) < 0) return 2; for (int k = 0; k < 1000; k++) if (putc('0' + i % 10, c) == EOF) return 3;
    if (i % 500 == 499) { if (fseek(f, i * 10L, SEEK_SET) || fputs("MARK", f) < 0 || fseek(f, 0, SEEK_END) || fflush(f)) return 4; } }
  rewind(f); int ch; while ((ch = getc(f)) != EOF) sum += ch; printf("%ld\n", sum);
  return fclose(f) || fclose(p) || fclose(c); }
"#,
    );
    let (program, native) = (program.to_str().unwrap(), Workplace::new());
    let expected = native.native(&[program]).ok().stdout;
    assert_eq!(place.run(&[program]).ok().stdout, expected);
    let (tree, native) = (place.settled_tree(), native.settled_tree());
    for name in ["w", "p", "c"] {
        assert!(tree.bytes(name) == native.bytes(name), "{name} differs");
    }
}

#[test]
fn sparse_files_and_mapped_growth_outgrow_a_tier() {
    let place = wish().build();
    let program = compile(
        &place.scratch(),
        "mapped",
        r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  int fd = open("m", O_RDWR | O_CREAT, 0644); if (ftruncate(fd, 12000000)) return 1;
  char *p = mmap(0, 12000000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0); if (p == MAP_FAILED) return 2;
  for (long i = 0; i < 12000000; i++) p[i] = (char)(i % 251); munmap(p, 12000000); close(fd);
  fd = open("s", O_RDWR | O_CREAT, 0644); if (pwrite(fd, "end", 3, 50000000) != 3 || pwrite(fd, "mid", 3, 3000000) != 3) return 3; close(fd);
  fd = open("a", O_RDWR | O_CREAT, 0644); if (posix_fallocate(fd, 0, 9000000)) return 4; pwrite(fd, "x", 1, 8999999); close(fd); return 0; }
"#,
    );
    place.run(&[program.to_str().unwrap()]).ok();
    let tree = place.settled_tree();
    assert!(tree.bytes("m").iter().copied().eq((0..12_000_000u32).map(|i| (i % 251) as u8)));
    assert_eq!(
        (tree.bytes("s").len(), &tree.bytes("s")[50_000_000..], &tree.bytes("s")[3_000_000..3_000_003]),
        (50_000_003, &b"end"[..], &b"mid"[..])
    );
    assert_eq!((tree.bytes("a").len(), tree.bytes("a")[8_999_999]), (9_000_000, b'x'));
    use std::os::unix::fs::MetadataExt;
    let blocks = std::fs::metadata(place.root().join("s")).unwrap().blocks();
    assert!(blocks < 2000, "the sparse file took {blocks} blocks");
}

#[test]
fn a_shared_offset_survives_a_live_move() {
    Comparison::with(wish()).agrees_and_uses_the_tier(
        "(for i in $(seq 40); do head -c 100000 /dev/zero | tr '\\0' a; echo a$i >&2; done; for i in $(seq 40); do head -c 100000 /dev/zero | tr '\\0' b; echo b$i >&2; done) > out 2>&1
         stat -c %s out; sha256sum out; exec 7> two; (head -c 3000000 /dev/zero >&7); echo parent >&7; (head -c 4000000 /dev/zero >&7; echo child >&7); echo last >&7; exec 7>&-; sha256sum two
         { echo begin; /usr/bin/python3 -c 'import os,sys; sys.stdout.write(\"p\"*5000000); sys.stdout.flush(); os.write(2,b\"err\\n\")'; echo end; } > three 2>&1; sha256sum three; exec 8<> rw; head -c 2500000 /dev/zero >&8; echo tail >&8; exec 9<&8; exec 8>&-; echo more >&9; exec 9>&-; sha256sum rw",
    );
}

#[test]
fn a_tier_never_holds_more_than_its_capacity() {
    let place = Wish::default().tier("ram", "4MiB").settle("5ms").build();
    let mut running = place.start(
        "for i in $(seq 60); do head -c 500000 /dev/zero > f$i; done; head -c 9000000 /dev/zero > big; sleep 0.1",
    );
    let mut most = 0;
    while running.try_wait().unwrap().is_none() {
        most = most.max(bytes_below(&place.tier("ram")));
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    assert!(most > 1 << 20, "the tier was used: {most}");
    assert!(most <= (4 << 20) + (256 << 10), "the tier of 4 MiB held {most} bytes");
    assert_eq!(place.settled_tree().0.len(), 61);
}

#[test]
fn a_quota_holds_over_all_tiers() {
    let place = Wish::default().tier("ram", "8MiB").tier("ssd", "16MiB").top("quota = \"3MiB\"").settle("60s").build();
    let mut running = place.start(
        "for i in $(seq 30); do head -c 400000 /dev/zero > f$i; done; head -c 5000000 /dev/zero > big; sleep 0.1",
    );
    let mut most = 0;
    while running.try_wait().unwrap().is_none() {
        most = most.max(bytes_below(&place.tier("ram")) + bytes_below(&place.tier("ssd")));
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    assert!(running.wait().unwrap().success());
    assert!(most > 1 << 20, "the tiers were used: {most}");
    assert!(most <= (3 << 20) + (256 << 10), "the quota of 3 MiB was {most} bytes");
    assert_eq!(place.settled_tree().0.len(), 31);
}

/// A small ext4 file system in a file; unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn of(mib: u32) -> Option<SmallDisk> {
        SmallDisk::mounted(&format!("truncate -s {mib}M image && mkfs.ext4 -q -m 0 image && mount -o loop image mount"))
    }

    /// Of which so many names are a disk full.
    fn of_names(names: u32) -> Option<SmallDisk> {
        SmallDisk::mounted(&format!("mount -t tmpfs -o size=24m,nr_inodes={names} none mount"))
    }

    fn mounted(mount: &str) -> Option<SmallDisk> {
        let directory = tempfile::Builder::new().prefix("tt-").tempdir_in("/var/tmp").unwrap();
        let script = format!("cd {} && mkdir mount && {mount}", directory.path().display());
        let is_mounted = is_root() && Command::new("sh").args(["-c", &script]).status().unwrap().success();
        if !is_mounted {
            skipped("needs root and a loop device");
        }
        is_mounted.then_some(SmallDisk(directory))
    }
    fn root(&self) -> PathBuf {
        self.0.path().join("mount/root")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        for _ in 0..50 {
            if Command::new("umount").arg(self.0.path().join("mount")).status().is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

#[test]
fn no_space_is_said_only_when_the_last_tier_is_full() {
    let Some(disk) = SmallDisk::of(24) else { return };
    let place = wish().root(&disk.root()).build();
    let mut shell = place.shell();
    shell.does(
        "for i in $(seq 30); do head -c 500000 /dev/zero > f$i || exit 1; done; [ $(cat f* | wc -c) = 15000000 ]",
    );
    let said = shell.says("head -c 60000000 /dev/zero > huge; [ $(stat -c %s huge) -gt 3000000 ] && echo some");
    assert!(said.contains("No space left on device") && said.ends_with("some"), "{said}");
    shell.does("rm huge; echo still works > small; [ $(cat f* | wc -c) = 15000000 ]");
    let tree = shell.ends_and_leaves();
    assert_eq!(tree.bytes("small"), b"still works\n");
    assert_eq!(tree.bytes("f30").len(), 500_000);
}

#[test]
fn what_a_removed_file_took_of_the_root_is_there_for_the_next_one_also_if_it_moved_while_it_was_open() {
    let Some(disk) = SmallDisk::of(24) else { return };
    let place = Wish::default().tier("ram", "1MiB").root(&disk.root()).settle("10ms").build();
    let mut shell = place.shell();
    for _ in 0..10 {
        shell.does("head -c 12000000 /dev/zero > first && rm first && head -c 12000000 /dev/zero > next && rm next");
    }
}

#[test]
fn what_a_removed_file_took_of_the_root_is_there_for_directories_and_links_too() {
    let Some(disk) = SmallDisk::of(24) else { return };
    let place = Wish::default().tier("ram", "1MiB").root(&disk.root()).settle("10ms").build();
    let mut shell = place.shell();
    shell.does("text=$(printf '%200s' | tr ' ' x)");
    for _ in 0..5 {
        // Both need a block of the disk, of which none is left but the removed file's.
        shell.does("exec 9> first; head -c 12000000 /dev/zero >&9; cat /dev/zero > fill 2> /dev/null || true");
        shell.does("i=0; while mkdir full$i 2> /dev/null; do i=$((i + 1)); done; rm first");
        shell.does("exec 9>&-; mkdir d && ln -s $text d/l && rm -r d full* fill");
    }
}

#[test]
fn what_a_removed_file_took_of_the_root_is_there_for_second_names_too() {
    let Some(disk) = SmallDisk::of_names(200) else { return };
    let place = Wish::default().tier("ram", "1MiB").root(&disk.root()).settle("10ms").build();
    let mut shell = place.shell();
    for _ in 0..5 {
        shell.does("echo a > a; exec 9> first; head -c 12000000 /dev/zero >&9");
        shell.does("i=0; while mkfifo full$i 2> /dev/null; do i=$((i + 1)); done; rm first");
        shell.does("exec 9>&-; ln a b && rm a b full*");
    }
}

/// GlusterFS, and others with servers, know nothing of a link any more once its name is gone.
#[test]
fn what_a_removed_file_took_of_its_tier_is_free_at_once_also_if_the_server_forgets_its_name() {
    let Some(durable) = SlowTier::mount(&["--cache-ttl-ms", "0", "--stale"]) else { return };
    let place = wish().root(&durable.root()).settle("1h").build();
    let mut shell = place.shell();
    shell.does("for i in $(seq 3); do head -c 500000 /dev/zero > f$i; done");
    assert!(bytes_below(&place.tier("ram")) >= 1_500_000);
    shell.does("rm f1; mv f2 f3; for i in $(seq 9); do head -c 500000 /dev/zero > f && rm f || exit 1; done");
    let held = bytes_below(&place.tier("ram")) + bytes_below(&place.tier("ssd"));
    assert!(held < 1_000_000, "one file of 500,000 bytes is left, and {held} are held");
    shell.does("[ $(stat -c %s f3) = 500000 ] && rm f3 && [ -z \"$(ls)\" ]");
}

#[test]
fn a_file_without_a_name_may_outgrow_every_tier_where_a_server_opens_none_again() {
    let Some(durable) = SlowTier::mount(&["--cache-ttl-ms", "0", "--stale"]) else { return };
    let script = "
import os
first = os.open('f', os.O_CREAT | os.O_RDWR); second = os.open('f', os.O_RDWR); os.unlink('f')
for i in range(24): assert os.write(first, bytes([i]) * 500000) == 500000
assert all(os.pread(second, 500000, 500000 * i) == bytes([i]) * 500000 for i in range(24))
assert os.pwrite(second, b'end', 12000000) == 3 and os.pread(first, 9, 12000000) == b'end' and os.listdir('.') == []
";
    for settings in ["", "directories = \"all\""] {
        let place = wish().root(&durable.root()).top(settings).build();
        std::fs::write(place.scratch().join("p.py"), script).unwrap();
        place.sh("python3 $SCRATCH/p.py && mkdir d && cd d && exec python3 $SCRATCH/p.py").ok();
        place.wait_for_the_agents_end();
        assert!(!place.root().join(".terrace").exists(), "something is left in the root");
        place.native_sh("rm -rf d").ok();
    }
}

#[test]
fn what_the_last_tier_cannot_take_is_named_and_kept() {
    let Some(disk) = SmallDisk::of(16) else { return };
    let place = Wish::default().tier("ram", "64MiB").root(&disk.root()).settle("1ms").build();
    let outcome = place.sh("head -c 30000000 /dev/zero > toobig; echo fits > small");
    assert_eq!(outcome.code, 74, "{outcome:?}");
    assert!(outcome.stderr.contains("toobig") && outcome.stderr.contains("hint:"), "{}", outcome.stderr);
    // The bytes wait in the tier; a later run finds them and can make room.
    assert_eq!(place.sh("stat -c %s toobig; cat small; rm toobig").ok().stdout, "30000000\nfits\n");
    assert_eq!(place.settled_tree().bytes("small"), b"fits\n");
}

#[test]
fn an_agent_that_cannot_flush_ends_at_the_second_sigterm_and_the_next_run_has_the_bytes() {
    let Some(disk) = SmallDisk::of(16) else { return };
    let place = Wish::default().tier("ram", "64MiB").root(&disk.root()).settle("1ms").build();
    assert_eq!(place.sh("head -c 30000000 /dev/zero > toobig").code, 74);
    let agent = place.status().expect("the agent stays with what it could not flush").agent_pid as i32;
    for _ in 0..2 {
        // SAFETY: the pid is this workplace's own agent's, which answered just now.
        assert_eq!(unsafe { libc::kill(agent, libc::SIGTERM) }, 0);
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    place.wait_for_the_agents_end();
    assert_eq!(place.sh("stat -c %s toobig; rm toobig").ok().stdout, "30000000\n");
}
