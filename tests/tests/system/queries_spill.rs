//! Queries that have less memory than they would take: what does not fit goes to a directory, and goes from there.

use std::path::Path;
use std::process::Stdio;
use terrace_client::{ArraySpec, Create, DataType, Region, Session};
use terrace_tests::{Outcome, Served, Wish, Workplace, wait_until};

// With half of them, what is held fits into the limit or does not, as the partitions' turns fall.
const CELLS: u64 = 6_000_000;
const LIMIT: &str = "64MiB";

fn say(place: &Workplace, arguments: &[&str]) -> Outcome {
    Outcome::of(place.terrace("sql").args(["--format", "csv"]).args(arguments).output().unwrap())
}

/// The numbers below `CELLS`, each once, in two orders: `run/p` and `other/q`.
fn tables(place: &Workplace) {
    let session = Session::open(&place.runtime().join("index")).expect("a run has an index");
    for (container, name, by) in [("run", "p", 7919), ("other", "q", 104_729)] {
        session.create_container(container, Create::New).unwrap();
        let spec = ArraySpec::new(DataType::Int64, &[CELLS]).dimensions(&["x"]);
        let array = session.create_array(&format!("{container}/{name}"), &spec, Create::New).unwrap();
        let values: Vec<i64> = (0..CELLS).map(|i| (i * by % CELLS) as i64).collect();
        array.put_values(&Region::block(&[0], &[CELLS]).unwrap(), &values).unwrap();
    }
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn joins_groups_and_sorts_that_do_not_fit_into_memory_go_on_in_a_directory() {
    let place = Wish::default().tier("ram", "128MiB").build();
    let shell = place.shell();
    tables(&place);
    let spill = place.scratch().join("spill");
    std::fs::create_dir(&spill).unwrap();
    let (last, sum) = (CELLS - 1, CELLS * (CELLS - 1) / 2);
    for (query, wanted) in [
        ("SELECT count(*), sum(a.p), max(b.q) FROM run a JOIN other b ON a.p = b.q", format!("{CELLS},{sum},{last}")),
        // The side that is held has texts.
        (
            "SELECT count(*), max(b.t) FROM run a LEFT JOIN (SELECT q, 'number ' || q AS t FROM other) b ON a.p + 1 = b.q",
            format!("{CELLS},number 999999"),
        ),
        ("SELECT count(*) FROM run WHERE p IN (SELECT q * 2 FROM other)", format!("{}", CELLS.div_ceil(2))),
        ("SELECT count(*), sum(n) FROM (SELECT p, count(*) AS n FROM run GROUP BY p)", format!("{CELLS},{CELLS}")),
        // Rows of several columns take more to merge than they do.
        ("SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY p % 1000, x DESC) AS n FROM run)", format!("{CELLS}")),
        (
            "SELECT sum(r) FROM (SELECT rank() OVER (PARTITION BY p % 100 ORDER BY p) AS r FROM run)",
            format!("{}", 100 * (CELLS / 100) * (CELLS / 100 + 1) / 2),
        ),
        // What array plans make of joins and groups goes on from there.
        (
            "SELECT sum(s), max(n) FROM (SELECT a.p % 2000003 AS k, sum(a.p) AS s, count(*) AS n FROM run a JOIN other b ON a.x = b.x GROUP BY k)",
            format!("{sum},3"),
        ),
    ] {
        let outcome = say(&place, &["--memory", LIMIT, query]);
        assert!(outcome.code == 1 && outcome.stderr.contains("needs more memory"), "{query}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("--spill"), "{}", outcome.stderr);
        let outcome = say(&place, &["--memory", LIMIT, "--spill", spill.to_str().unwrap(), query]);
        let found = outcome.stdout.lines().nth(1).unwrap_or_default();
        assert_eq!((outcome.code, found), (0, wanted.as_str()), "{query}: {}", outcome.stderr);
        assert!(is_empty(&spill), "{query}");
    }
    shell.ends_and_leaves();
}

#[test]
fn what_was_spilled_goes_when_its_query_is_cancelled_and_when_the_next_one_begins_after_a_kill() {
    let place = Wish::default().tier("ram", "128MiB").build();
    let shell = place.shell();
    tables(&place);
    let spill = place.scratch().join("spill");
    std::fs::create_dir(&spill).unwrap();
    // Far more than the limit, for minutes.
    let query = "SELECT a.p * b.i AS k FROM run a, generate_series(1, 1000) b(i) ORDER BY k";
    let arguments = ["--memory", LIMIT, "--spill", spill.to_str().unwrap()];
    let spilling = || {
        let mut command = place.terrace("sql");
        let child = command.args(arguments).arg(query).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = child.spawn().unwrap();
        let has_files = || {
            let within = std::fs::read_dir(&spill).unwrap().flatten().flat_map(|own| std::fs::read_dir(own.path()));
            within.flatten().flatten().any(|entry| {
                entry.path().is_dir() && std::fs::read_dir(entry.path()).is_ok_and(|mut files| files.next().is_some())
            })
        };
        assert!(wait_until(60, has_files), "nothing was spilled");
        child
    };
    let mut child = spilling();
    // SAFETY: a signal to a child that is waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    child.wait().unwrap();
    assert!(is_empty(&spill));
    let mut child = spilling();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_empty(&spill));
    let mut living = spilling();
    // The next one removes what the killed one has left, and leaves the living one's alone.
    let outcome = say(&place, &[&arguments[..], &["SELECT count(*) FROM run"]].concat());
    assert_eq!(outcome.stdout.lines().nth(1), Some(CELLS.to_string().as_str()), "{}", outcome.stderr);
    assert_eq!(std::fs::read_dir(&spill).unwrap().count(), 1);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(living.id() as i32, libc::SIGINT) }, 0);
    living.wait().unwrap();
    assert!(is_empty(&spill));
    shell.ends_and_leaves();
}

#[test]
fn queries_of_the_page_go_on_in_a_directory_too() {
    let place = Wish::default().tier("ram", "128MiB").build();
    let spill = place.scratch().join("spill");
    std::fs::create_dir(&spill).unwrap();
    let directory = spill.to_str().unwrap();
    let flags = ["--http", "127.0.0.1:0", "--query-memory-each", LIMIT, "--query-spill", directory];
    let served = Served::begin(&place, &flags);
    let web = served.http.as_ref().expect("it serves the page");
    let lines = format!("Authorization: Bearer {}\r\n", web.token);
    let groups = "SELECT count(*) AS c, sum(n) FROM (SELECT i * 7919 % 3000017 AS k, count(*) AS n FROM generate_series(1, 3000000) t(i) GROUP BY k)";
    let answer = web.send("POST", "/api/query", &lines, groups.as_bytes());
    assert_eq!(answer.json()["rows"][0][0], "3000000", "{}", answer.text());
    assert!(wait_until(20, || is_empty(&spill)), "the query's process leaves what it spilled");
    let wrong = Outcome::of(place.terrace("web").args(["--query-spill", "/no/such/directory"]).output().unwrap());
    assert!(wrong.code != 0 && wrong.stderr.contains("/no/such/directory"), "{}", wrong.stderr);
}
