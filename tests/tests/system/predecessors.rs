//! What Sea, the predecessor, got wrong: each defect is a test that names it.

use terrace_tests::{Comparison, Wish, Workplace, compile};

#[test]
fn a_flushed_file_that_is_removed_does_not_reappear() {
    let place = Workplace::new();
    let mut shell = place.shell();
    shell.does("mkdir d; echo one > d/f; echo two > d/kept");
    place.flush(&["d/f", "d/kept"]);
    shell.does("rm d/f; [ ! -e d/f ]");
    place.flush(&[]);
    place.evict(&[]);
    assert_eq!(shell.says("ls d; cat d/f; sleep 0.5; ls d"), "kept\ncat: d/f: No such file or directory\nkept");
    shell.does("rm -r d; sleep 0.3; [ ! -e d ]");
    let tree = shell.ends_and_leaves();
    assert!(tree.0.is_empty(), "{:?}", tree.0.keys());
}

#[test]
fn a_file_removed_while_it_is_flushed_does_not_reappear() {
    let place = Wish::default().tier("ram", "64MiB").mover("bandwidth = \"20MiB\"").build();
    let mut shell = place.shell();
    for round in 0..3 {
        shell.does("head -c 6000000 /dev/urandom > f");
        std::thread::sleep(std::time::Duration::from_millis(60 + 90 * round));
        shell.does("rm f; [ ! -e f ]; sleep 0.4; [ ! -e f ]");
    }
    assert!(shell.ends_and_leaves().0.is_empty());
}

#[test]
fn a_created_file_keeps_its_mode() {
    let place = Workplace::new();
    let mut shell = place.shell();
    shell.does("umask 027; echo a > plain; umask 0; echo b > open; umask 077; echo c > closed; umask 022; printf '#!/bin/sh\\necho ran\\n' > prog; chmod 4751 prog; install -m 440 plain read_only");
    let modes = "stat -c '%n %a' closed open plain prog read_only";
    let expected = "closed 600\nopen 666\nplain 640\nprog 4751\nread_only 440";
    assert_eq!(shell.says(modes), expected);
    place.flush(&[]);
    assert_eq!(shell.says(modes), expected);
    place.evict(&[]);
    assert_eq!(shell.says(modes), expected);
    assert_eq!(shell.says("./prog"), "ran");
    let tree = shell.ends_and_leaves();
    let modes: Vec<u32> = tree.0.values().map(|entry| entry.mode & 0o7777).collect();
    assert_eq!(modes, [0o600, 0o666, 0o640, 0o4751, 0o440]);
}

#[test]
fn find_does_not_crash() {
    Comparison::new().agrees_and_uses_the_tier(
        "mkdir -p a/b c; for i in 1 2 3; do echo $i > a/f$i; echo $i > a/b/g$i; done; find . -type f | sort; find a -name 'g*' -exec cat {} + | sort; find . -type l; find . -mindepth 2 -printf '%p %s %y\\n' | sort; find . -name f2 -delete; find $PWD -type f | wc -l",
    );
}

#[test]
fn du_does_not_crash() {
    Comparison::new().agrees_and_uses_the_tier(
        "mkdir -p a/b; head -c 300000 /dev/zero > a/x; head -c 5000 /dev/zero > a/b/y; ln a/x a/z; du -b a; du -a --apparent-size a | sort; du -sb --exclude=y a; du -L -b a",
    );
}

#[test]
fn git_does_not_crash() {
    Comparison::new().agrees_and_uses_the_tier(
        "git init -q -b main r; cd r; echo a > a; mkdir d; echo b > d/b; git add .; git commit -qm one; git status --short; echo c >> a; git diff --stat; git commit -qam two; git log --format=%H; git gc -q; git fsck; git status; rm .git/index; find .git -name '*.lock'",
    );
}

#[test]
fn a_doubled_slash_does_not_escape() {
    let place = Workplace::new();
    let mut shell = place.shell();
    shell.does("mkdir d; echo one > .//d///f; echo two >> \"$ROOT//d/./f\"; echo three >> \"/$ROOT/d/../d//f\"");
    assert_eq!(place.state_of("d/f"), "current", "placed in the tier by whatever spelling");
    assert_eq!(shell.says("cat d//f"), "one\ntwo\nthree");
    shell.does("mv $ROOT//d//f $ROOT/./d/g; rm -f //$ROOT//d/none; ln -s $ROOT//d link; echo four >> link//g; cd d//; echo five >> ..//d/g; cd ..");
    place.flush(&["d/g"]);
    shell.does("echo six >> .///d/g; stat .//d/g > /dev/null; [ ! -L .//d//g ]; [ ! -e d/f ]");
    let tree = shell.ends_and_leaves();
    assert_eq!(tree.bytes("d/g"), b"one\ntwo\nthree\nfour\nfive\nsix\n");
    assert_eq!(tree.0.len(), 3);
}

#[test]
fn a_program_that_fails_still_gets_its_flush() {
    let place = Wish::default().settle("60s").build();
    place.sh("echo kept > f; mkdir d; echo too > d/g; exit 9").ends_with(9);
    let tree = place.settled_tree();
    assert_eq!((tree.bytes("f"), tree.bytes("d/g")), (&b"kept\n"[..], &b"too\n"[..]));
}

#[test]
fn names_with_spaces_are_flushed() {
    let place = Workplace::new();
    let names = [
        "with space",
        " leading",
        "trailing ",
        "tab\there",
        "new\nline",
        "quote\"'",
        "-dash",
        "*glob?[a]",
        "ünïcode",
        "back\\slash",
        "%s%d",
        "#hash",
    ];
    let code = "import os\nfor n in ".to_owned()
        + &format!("{:?}", names.map(|name| name.as_bytes().to_vec()))
        + ":\n  n=bytes(n); os.mkdir(b'd'+n); open(b'd'+n+b'/'+n,'wb').write(n)\nopen(b'not utf-8 \\xff\\xfe','w').write('x'); open('a'*255,'w').write('long')";
    std::fs::write(place.scratch().join("names.py"), code).unwrap();
    place.sh("/usr/bin/python3 $SCRATCH/names.py").ok();
    let tree = place.settled_tree();
    for name in names {
        assert_eq!(tree.bytes(&format!("d{name}/{name}")), name.as_bytes());
    }
    assert_eq!(tree.bytes(&"a".repeat(255)), b"long");
    assert_eq!(tree.0.len(), 2 * names.len() + 2);
}

#[test]
fn a_file_can_be_opened_while_it_moves() {
    let place = Wish::default().tier("ram", "64MiB").mover("bandwidth = \"15MiB\"").build();
    let mut shell = place.shell();
    shell.does("head -c 9000000 /dev/zero | openssl enc -aes-128-ctr -K 00000000000000000000000000000001 -iv 00000000000000000000000000000001 > f; sum=$(sha256sum < f)");
    // The flush takes 0.6 s: each look falls into another part of it.
    for _ in 0..12 {
        shell.does("[ \"$(sha256sum < f)\" = \"$sum\" ]; cp f g; cmp f g");
    }
    place.evict(&["f"]);
    shell.does("[ \"$(sha256sum < f)\" = \"$sum\" ]; echo end >> f");
    let tree = shell.ends_and_leaves();
    assert_eq!(tree.bytes("f").len(), 9_000_004);
    assert_eq!(tree.bytes("f")[..9_000_000], tree.bytes("g")[..]);
}

#[test]
fn a_million_stats_leave_memory_flat() {
    let place = Workplace::new();
    let program = compile(
        &place.scratch(),
        "stats",
        r#"
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <fcntl.h>
#include <unistd.h>
#include <sys/stat.h>
static long kib(const char *key) { char line[256]; long found = -1, n = strlen(key); FILE *f = fopen("/proc/self/status", "r");
  while (fgets(line, sizeof line, f)) if (!strncmp(line, key, n) && sscanf(line + n, ": %ld", &found) == 1) break; fclose(f); return found; }
static void look(int i) { struct stat s; char name[64]; snprintf(name, sizeof name, i % 3 ? "./f%d" : "none/f%d", i % 10);
  if (i & 1) stat(name, &s); else lstat(name, &s);
  if (i % 50 == 0) { int fd = open("f1", O_RDONLY); if (fd < 0 || fstat(fd, &s)) exit(3); close(fd); access("f2", R_OK); } }
int main(void) {
  for (int i = 0; i < 10; i++) { char name[16]; snprintf(name, sizeof name, "f%d", i); FILE *f = fopen(name, "w"); if (!f || fputs(name, f) < 0 || fclose(f)) return 2; }
  for (int i = 0; i < 20000; i++) look(i);
  usleep(300000); /* until the files are flushed: from then on the same pages are looked at */
  for (int i = 0; i < 20000; i++) look(i);
  long rss = kib("VmRSS"), own = kib("RssAnon");
  for (int i = 0; i < 1000000; i++) look(i);
  printf("RSS %ld -> %ld KiB, of it private %ld -> %ld\n", rss, kib("VmRSS"), own, kib("RssAnon"));
  /* A byte a look would be a thousand KiB; mapped pages of files come when a flush does. */
  return kib("VmRSS") - rss > 900 || kib("RssAnon") - own > 100; }
"#,
    );
    let outcome = place.run(&[program.to_str().unwrap()]).ok();
    println!("1,000,000 stats: {}", outcome.stdout.trim());
}
