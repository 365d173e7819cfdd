//! Kinds of programs, ways to reach them, users: each program does one behaviour (tests/programs/README.md) below an accelerated
//! root, and says and leaves what it says and leaves natively, or is refused with its reason.
//!
//! docs/reference/programs-matrix.md is the table of what happened. A test compares its row; with `TERRACE_MATRIX_WRITE` set it writes it.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};
use terrace_tests::{Tree, Wish, Workplace, checkout, is_root, is_root_among_users, skipped, wait_until};

/// "nobody".
const USER: u32 = 65534;
/// "daemon": whom a setuid program becomes when root starts it.
const OTHER_USER: u32 = 1;
const DOORS: [&str; 3] = ["both", "preload", "supervise"];
/// Regular files that a worker creates; a shell may make more.
const CREATED: u64 = 7;

/// A program of the matrix, made for one workplace.
struct Row {
    /// As in the table.
    title: &'static str,
    test: &'static str,
    /// What must be there for it: a file, or a command on PATH.
    needs: Vec<PathBuf>,
    /// The command line, given a directory outside the root that its user owns.
    command: fn(&Path, u32) -> Vec<String>,
    expected: &'static str,
    leaves_the_run: bool,
}

impl Row {
    fn new(title: &'static str, test: &'static str, command: fn(&Path, u32) -> Vec<String>) -> Row {
        let expected = include_str!("../../programs/expected.txt");
        Row { title, test, needs: vec![], command, expected, leaves_the_run: false }
    }
    fn needs(mut self, what: impl Into<PathBuf>) -> Row {
        self.needs.push(what.into());
        self
    }
}

/// A file below tests/programs.
fn source(name: &str) -> String {
    checkout().join("tests/programs").join(name).to_str().unwrap().to_owned()
}

/// A compiled program; the compilers run once.
fn made(name: &str) -> String {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let directory = MADE.get_or_init(|| {
        let directory = checkout().join("build/programs");
        let make = Command::new("make")
            .args(["-s", "-k", "-C", &source("")])
            .arg(format!("OUT={}", directory.display()))
            // Of the `make test` that may run us.
            .env_remove("MAKEFLAGS")
            .stdout(Stdio::null())
            .output()
            .expect("make is installed");
        eprint!("{}", String::from_utf8_lossy(&make.stderr));
        directory
    });
    directory.join(name).to_str().unwrap().to_owned()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

fn is_there(what: &Path) -> bool {
    match what.is_absolute() {
        true => what.exists(),
        false => std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|directory| directory.join(what).exists()),
    }
}

#[test]
fn dynamic_c() {
    compare(Row::new("C, dynamically linked", "dynamic_c", |_, _| words(&[&made("dynamic")])).needs(made("dynamic")));
}

#[test]
fn static_c() {
    compare(Row::new("C, statically linked", "static_c", |_, _| words(&[&made("static")])).needs(made("static")));
}

#[test]
fn static_musl() {
    let row = Row::new("C with musl, statically linked", "static_musl", |_, _| words(&[&made("musl-static")]));
    compare(row.needs(made("musl-static")));
}

#[test]
fn dynamic_musl() {
    let row = Row::new("C with musl, dynamically linked", "dynamic_musl", |_, _| words(&[&made("musl-dynamic")]));
    compare(row.needs(made("musl-dynamic")));
}

#[test]
fn inline_assembly() {
    let row = Row::new("C whose system calls are inline assembly", "inline_assembly", |_, _| words(&[&made("raw")]));
    compare(row.needs(made("raw")));
}

#[test]
fn go_without_cgo() {
    compare(Row::new("Go (`CGO_ENABLED=0`)", "go_without_cgo", |_, _| words(&[&made("go")])).needs(made("go")));
}

#[test]
fn static_rust() {
    let row = Row::new("Rust, statically linked (`+crt-static`)", "static_rust", |_, _| words(&[&made("rust-static")]));
    compare(row.needs(made("rust-static")));
}

#[test]
fn busybox() {
    let row = Row::new("busybox, statically linked: its shell and applets", "busybox", |_, _| {
        let busybox = "/bin/busybox";
        words(&["/bin/busybox", "env", "BUSYBOX=/bin/busybox", busybox, "sh", &source("worker.sh"), busybox])
    });
    compare(row.needs("/bin/busybox"));
}

#[test]
fn java() {
    let row = Row::new("Java", "java", |_, _| words(&["java", "-Xshare:auto", "-cp", &made("java"), "Worker"]));
    compare(row.needs("java").needs(made("java/Worker.class")));
}

#[test]
fn node() {
    compare(Row::new("Node.js", "node", |_, _| words(&["node", &source("worker.js")])).needs("node"));
}

#[test]
fn python() {
    let row = Row::new("Python", "python", |_, _| words(&["/usr/bin/python3", &source("worker.py")]));
    compare(row.needs("/usr/bin/python3"));
}

#[test]
fn perl() {
    compare(Row::new("Perl", "perl", |_, _| words(&["/usr/bin/perl", &source("worker.pl")])).needs("/usr/bin/perl"));
}

#[test]
fn shell_in_a_scrubbed_environment() {
    let row = Row::new("a shell script through `env -i`", "shell_in_a_scrubbed_environment", |_, _| {
        words(&["env", "-i", "PATH=/usr/bin:/bin", "sh", &source("worker.sh")])
    });
    compare(row);
}

#[test]
fn daemonised() {
    let row = Row::new("a child that outlives its run", "daemonised", |scratch, _| {
        let daemon = format!("/usr/bin/setsid -f sh {} $0 $1 > /dev/null 2>&1 < /dev/null", source("daemon.sh"));
        words(&["sh", "-c", &daemon, scratch.to_str().unwrap(), &made("dynamic")])
    });
    compare(Row { leaves_the_run: true, ..row.needs(made("dynamic")) });
}

#[test]
fn daemonised_static() {
    let row = Row::new("a static child that outlives its run", "daemonised_static", |scratch, _| {
        let daemon = format!("/usr/bin/setsid -f sh {} $0 $1 > /dev/null 2>&1 < /dev/null", source("daemon.sh"));
        words(&["/bin/busybox", "sh", "-c", &daemon, scratch.to_str().unwrap(), &made("static")])
    });
    compare(Row { leaves_the_run: true, ..row.needs(made("static")).needs("/bin/busybox") });
}

#[test]
fn threads_and_signals() {
    let row = Row::new("200 threads under an interval timer's signals", "threads_and_signals", |_, _| {
        words(&[&made("threads")])
    });
    compare(Row { expected: "200 threads, 4000 files, 0 errors\n", ..row.needs(made("threads")) });
}

/// A copy of the dynamic worker in `scratch`, with a mode and an owner.
fn copy_of_the_worker(scratch: &Path, owner: u32, mode: u32) -> Vec<String> {
    let copy = scratch.join("copy");
    // Copied by another process: a program that is started meanwhile would inherit our descriptor, and the file be busy.
    assert!(Command::new("cp").arg(made("dynamic")).arg(&copy).status().unwrap().success());
    std::os::unix::fs::chown(&copy, Some(owner), None).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).unwrap();
    vec![copy.to_str().unwrap().to_owned()]
}

#[test]
fn not_readable() {
    let row = Row::new("C, dynamically linked, not readable (mode 711)", "not_readable", |scratch, user| {
        copy_of_the_worker(scratch, if user == 0 { 0 } else { OTHER_USER }, 0o711)
    });
    compare(row.needs(made("dynamic")));
}

#[test]
fn setuid() {
    let row = Row::new("C, setuid to another user", "setuid", |scratch, user| {
        copy_of_the_worker(scratch, if user == 0 { OTHER_USER } else { 0 }, 0o4755)
    });
    compare(row.needs(made("dynamic")));
}

fn compare(row: Row) {
    let row = &row;
    if let Some(missing) = row.needs.iter().find(|what| !is_there(what)) {
        skipped(&format!("{}: {} is missing", row.title, missing.display()));
        return;
    }
    let users: &[u32] = match is_root() {
        true if is_root_among_users() => &[0, USER],
        true => &[0],
        false => &[USER],
    };
    // Most of a cell is waiting for the end of its agent.
    let results: Vec<Vec<Result<String, String>>> = std::thread::scope(|scope| {
        let started =
            DOORS.map(|door| users.iter().map(|&user| scope.spawn(move || cell(row, door, user))).collect::<Vec<_>>());
        started.map(|cells| cells.into_iter().map(|cell| cell.join().unwrap()).collect()).into()
    });
    let mut cells = vec![];
    let mut wrong = vec![];
    for (door, results) in DOORS.iter().zip(results) {
        let mut said = vec![];
        for (result, user) in results.into_iter().zip(users) {
            match result {
                Ok(text) => said.push(text),
                Err(text) => wrong.push(format!("--door {door}, user {user}: {text}")),
            }
        }
        let distinct: BTreeSet<&String> = said.iter().collect();
        cells.push(match (distinct.len(), &said[..]) {
            (2, [root, user]) => format!("root: {root}; a user: {user}"),
            _ => said.pop().unwrap_or_default(),
        });
    }
    assert!(wrong.is_empty(), "{}:\n{}", row.title, wrong.join("\n\n"));
    if users.len() < 2 {
        skipped(&format!("{}: its row needs runs as root and as a user; it passed as one of them", row.title));
        return;
    }
    in_the_table(row, &format!("| {} | {} | `{}` |", row.title, cells.join(" | "), row.test));
}

/// What the table says of one run; an error if it is not what it must be.
fn cell(row: &Row, door: &str, user: u32) -> Result<String, String> {
    let wish = |user: u32| if is_root() { Wish::default().user(user) } else { Wish::default() };
    let place = wish(user).build();
    let native = wish(user).build();
    open_up(&native);
    open_up(&place);
    let natively = native_run(row, &native, user);
    let command = (row.command)(&place.scratch(), user);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let outcome = place.run_with(&["--door", door], &command);
    if outcome.code == 2 && outcome.stderr.starts_with("terrace: error: ") {
        let reason = outcome.stderr.lines().next().unwrap_or_default().rsplit(": ").next().unwrap_or_default();
        return match Tree::of(place.root()).0.is_empty() {
            true => Ok(format!("refused: {reason}")),
            false => Err("it was refused, and left files".into()),
        };
    }
    let said = match row.leaves_the_run {
        true => said_afterwards(&place),
        false => outcome.stdout.clone(),
    };
    if outcome.code != 0 || said != row.expected || natively != row.expected {
        return Err(format!(
            "exit code {}\n--- stdout\n{said}\n--- stderr\n{}\n--- natively\n{natively}",
            outcome.code, outcome.stderr
        ));
    }
    place.wait_for_the_agents_end();
    let tree = Tree::of(place.root());
    let leftovers = tree.leftovers();
    if !leftovers.is_empty() {
        return Err(format!("not flushed: {leftovers:#?}\n--- log\n{}", place.agent_log()));
    }
    // All times come from the clock.
    let differences = Tree::of(native.root()).differences(native.root(), &tree, place.root(), 0);
    if !differences.is_empty() {
        return Err(format!("the trees differ:\n{}", differences.join("\n")));
    }
    let count = |of: &str| outcome.report.as_ref().and_then(|report| report["counters"][of].as_u64()).unwrap_or(0);
    // One or the other goes to the root: the tier has no room while an earlier file is still being flushed.
    let created = match count("creates_tier") {
        0 => 0,
        in_the_tier => in_the_tier + count("creates_durable").min(CREATED / 2),
    };
    // The report of a run is written before what outlives it begins.
    match (created, door) {
        (CREATED.., _) => Ok("passes".into()),
        _ if row.leaves_the_run => Ok("passes".into()),
        (0, "preload") => Ok("not reached: its files are made in the root".into()),
        // Root's tier is root's: a program that became somebody else can't create there.
        (0, _) if row.test == "setuid" => Ok("passes, its files are made in the root".into()),
        _ => Err(format!("only {created} files were created by Terrace: {:#}", outcome.report.unwrap_or_default())),
    }
}

fn native_run(row: &Row, place: &Workplace, user: u32) -> String {
    let command = (row.command)(&place.scratch(), user);
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let outcome = place.native(&command);
    match row.leaves_the_run {
        true => said_afterwards(place),
        false => outcome.stdout,
    }
}

/// Lets a daemon work, and gives what it said.
fn said_afterwards(place: &Workplace) -> String {
    let scratch = place.scratch();
    std::fs::write(scratch.join("go"), "").unwrap();
    let has_ended = wait_until(60, || scratch.join("ended").exists());
    let said = std::fs::read_to_string(scratch.join("said")).unwrap_or_default();
    match has_ended.then(|| std::fs::read_to_string(scratch.join("ended")).unwrap()).as_deref() {
        Some("ended with 0\n") => said,
        Some(how) => format!("{said}{how}"),
        None => format!("{said}it did not end"),
    }
}

/// Lets other users reach the root and the tier.
fn open_up(place: &Workplace) {
    for directory in [place.root(), &place.tier("ram")] {
        let above = directory.parent().expect("it lies in a temporary directory");
        std::fs::set_permissions(above, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
}

/// The table has this row; or gets it.
fn in_the_table(row: &Row, line: &str) {
    static TABLE: Mutex<()> = Mutex::new(());
    let _one_at_a_time = TABLE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let page = checkout().join("docs/reference/programs-matrix.md");
    let text = std::fs::read_to_string(&page).unwrap();
    if text.lines().any(|found| found == line) {
        return;
    }
    if std::env::var_os("TERRACE_MATRIX_WRITE").is_none() {
        let found = text.lines().find(|found| found.ends_with(&format!("| `{}` |", row.test))).unwrap_or("nothing");
        panic!(
            "docs/reference/programs-matrix.md has another row\n   is: {line}\n  has: {found}\n hint: TERRACE_MATRIX_WRITE=1 writes it"
        );
    }
    let mark = format!("| `{}` |", row.test);
    let mut lines: Vec<&str> = text.lines().collect();
    match lines.iter().position(|found| found.ends_with(&mark)) {
        Some(at) => lines[at] = line,
        None => {
            let last = lines.iter().rposition(|found| found.starts_with('|')).expect("the page has a table");
            lines.insert(last + 1, line);
        }
    }
    std::fs::write(&page, lines.join("\n") + "\n").unwrap();
}
