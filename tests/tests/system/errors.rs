//! What calls refuse: the same errno natively and by each door.
//!
//! `errors.c` makes every wrapped call with bad addresses, flags and sizes, on directories, links, files in a tier, durable ones and missing
//! names, and prints a line for each. A call that hangs ends it by its alarm.

use std::path::Path;
use std::process::Command;
use terrace_tests::{Outcome, Wish, Workplace, is_root, skipped};

const FILES: &str = "mkdir full; echo durable > durable; ln -s file link; ln -s full to_full; ln -s nowhere dangling; ln -s loop loop; \
     chmod 666 durable";
const DOORS: [&str; 3] = ["--preload-only", "--supervise-only", "--both"];

fn program(place: &Workplace, name: &str, flags: &[&str]) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/system/{name}.c"));
    let binary = place.scratch().join(name);
    let made = Command::new("cc").args(["-O1", "-w"]).args(flags).arg("-o").arg(&binary).arg(source).status().unwrap();
    assert!(made.success(), "{name}.c does not compile");
    binary.to_str().unwrap().to_owned()
}

/// The program says the same natively and by each of these doors: so many lines at least, else the test shows nothing.
fn agrees(name: &str, link: &[&str], doors: &[&str], lines_min: usize) {
    let lines = |run: &dyn Fn(&Workplace, &str) -> Outcome| {
        let place = Workplace::new();
        let program = program(&place, name, link);
        place.native_sh(FILES).ok();
        let outcome = run(&place, &format!("{program} make && {program} check"));
        assert_eq!(outcome.code, 0, "{outcome:?}");
        outcome.stdout
    };
    let native = lines(&|place, script| place.native_sh(script));
    assert!(native.lines().count() > lines_min, "{native}");
    for door in doors {
        let flags: &[&str] = if *door == "--both" { &["--door", "both"] } else { &[door] };
        let accelerated = lines(&|place, script| place.run_with(flags, &["sh", "-c", script]));
        let differ: Vec<String> = native
            .lines()
            .zip(accelerated.lines())
            .filter(|(native, accelerated)| native != accelerated)
            .map(|(native, accelerated)| format!("natively {native}, with {door} {accelerated}"))
            .collect();
        assert!(differ.is_empty(), "{}", differ.join("\n"));
        assert_eq!(native.lines().count(), accelerated.lines().count());
    }
}

#[test]
fn calls_refuse_what_they_refuse_natively() {
    agrees("errors", &[], &DOORS, 2000);
}

#[test]
fn calls_of_a_static_program_refuse_what_they_refuse_natively() {
    agrees("errors", &["-static"], &DOORS[1..], 2000);
}

#[test]
fn walks_of_trees_meet_what_they_meet_natively() {
    // The supervisor alone has no part in them: libc walks by itself.
    agrees("walks", &[], &["--preload-only", "--both"], 800);
}

#[test]
fn owners_and_groups_count_in_sticky_and_setgid_directories_as_natively() {
    if !is_root() {
        return skipped("only root can make files of another user");
    }
    agrees("owners", &[], &DOORS, 40);
    agrees("owners", &["-static"], &DOORS[1..], 40);
}

#[test]
fn a_program_that_takes_a_directory_below_the_root_for_its_own_finds_its_files() {
    if !is_root() || Command::new("busybox").output().is_err() {
        return skipped("only root can change its root directory, and busybox is needed in it");
    }
    for flags in [&["--preload-only"][..], &["--door", "both"]] {
        let place = Workplace::new();
        let script = "mkdir -p jail/d; cp $(command -v busybox) jail/; echo bytes > jail/d/f; \
                      chroot jail /busybox sh -c '/busybox cat /d/f; /busybox stat -c %F /d/f; echo more >> /d/f'; cat jail/d/f";
        let outcome = place.run_with(flags, &["sh", "-c", script]).ok();
        assert_eq!(outcome.stdout, "bytes\nregular file\nbytes\nmore\n", "{flags:?}: {outcome:?}");
    }
}

/// As in containers whose filter is older than the calls.
#[test]
fn a_program_in_a_sandbox_that_refuses_newer_calls_sees_what_it_sees_natively() {
    let script = format!(
        "
import ctypes, os, struct
with open('placed', 'w') as file: file.write('data')
with open('other', 'w') as file: file.write('other')
LOAD, IS, RETURN, ERRNO, ALLOW = 0x20, 0x15, 0x06, 0x50000, 0x7fff0000
lines = [(LOAD, 0, 0, 0), (IS, 1, 0, {statx}), (IS, 0, 1, {renameat2}), (RETURN, 0, 0, ERRNO | 1), (RETURN, 0, 0, ALLOW)]
text = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in lines))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(lines), ctypes.addressof(text)))) == 0
assert all(entry.is_file(follow_symlinks=False) and not entry.is_symlink() for entry in os.scandir('.'))
os.rename('placed', 'renamed')
os.rename('renamed', 'other')
os.mkdir('first')
os.rename('other', 'first/inside')
os.rename('first', 'second')
assert os.listdir('.') == ['second'] and open('second/inside').read() == 'data'
try: os.rename('none', 'any')
except FileNotFoundError: print('done')
",
        statx = libc::SYS_statx,
        renameat2 = libc::SYS_renameat2,
    );
    for door in ["preload", "both"] {
        let place = Wish::default().settle("1h").top(&format!("door = {door:?}")).build();
        std::fs::write(place.scratch().join("p.py"), &script).unwrap();
        assert_eq!(place.sh("exec python3 $SCRATCH/p.py").ok().stdout, "done\n", "{door}");
        assert_eq!(place.settled_tree().bytes("second/inside"), b"data");
    }
}
