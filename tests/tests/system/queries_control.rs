//! Queries that run are seen and ended, from the process that asks and from others.

use std::process::{Child, Stdio};
use terrace_tests::{Outcome, Workplace, wait_until};

/// They would take for hours; none of them tells a row before its end.
const LONG: [(&str, &str); 4] = [
    (
        "nested loops",
        "SELECT count(*) FROM generate_series(1, 3000000) a(i) JOIN generate_series(1, 3000000) b(j) ON i + j < 0",
    ),
    (
        "hash join",
        "SELECT sum(i * j) FROM generate_series(1, 3000000) a(i) JOIN generate_series(1, 3000000) b(j) ON i % 2 = j % 2",
    ),
    (
        "sort",
        "SELECT i * j AS k FROM generate_series(1, 3000000) a(i), generate_series(1, 3000000) b(j) ORDER BY k LIMIT 3",
    ),
    ("recursion", "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n % 10 + 1 FROM t) SELECT count(*) FROM t"),
];

fn ask(place: &Workplace, arguments: &[&str]) -> Child {
    let mut command = place.terrace("sql");
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn say(place: &Workplace, arguments: &[&str]) -> Outcome {
    Outcome::of(place.terrace("sql").args(arguments).output().unwrap())
}

/// Rows of the list of queries, without those that ask it.
fn listed(place: &Workplace, columns: &str, condition: &str) -> Vec<String> {
    let query = format!("SELECT {columns} FROM terrace.queries WHERE sql NOT LIKE '%terrace.queries%' AND {condition}");
    say(place, &["--format", "csv", &query]).ok().stdout.lines().skip(1).map(String::from).collect()
}

/// The number of the one query that runs.
fn running(place: &Workplace) -> String {
    let mut found = vec![];
    let is_one = || {
        found = listed(place, "id", "state = 'running'");
        found.len() == 1
    };
    assert!(wait_until(60, is_one), "no query runs");
    found.remove(0)
}

fn ended(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().unwrap())
}

#[test]
fn a_query_of_any_plan_is_ended_by_its_number_from_another_process() {
    let place = Workplace::new();
    let shell = place.shell();
    for (plan, query) in LONG {
        let child = ask(&place, &[query]);
        let id = running(&place);
        say(&place, &["--cancel", &id]).ok();
        let outcome = ended(child);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (1, "error: the query was cancelled\n"), "{plan}");
        assert_eq!(
            listed(&place, "state, error", &format!("id = '{id}'")),
            ["cancelled,the query was cancelled"],
            "{plan}"
        );
        let again = say(&place, &["--cancel", &id]);
        assert!(again.code == 1 && again.stderr.contains("runs no more"), "{plan}: {}", again.stderr);
    }
    let unknown = say(&place, &["--cancel", "1-1"]);
    assert!(unknown.stderr.contains("no query 1-1") && unknown.stderr.contains("hint:"), "{}", unknown.stderr);
    shell.ends_and_leaves();
}

#[test]
fn ctrl_c_ends_a_query_and_says_so() {
    let place = Workplace::new();
    let shell = place.shell();
    let child = ask(&place, &[LONG[0].1]);
    let id = running(&place);
    // SAFETY: a signal to a child that is waited for below.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
    let outcome = ended(child);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (130, "error: the query was cancelled\n"));
    assert_eq!(listed(&place, "state", &format!("id = '{id}'")), ["cancelled"]);
    shell.ends_and_leaves();
}

#[test]
fn a_query_that_takes_longer_than_it_may_is_ended() {
    let place = Workplace::new();
    let shell = place.shell();
    for (plan, query) in LONG {
        let outcome = say(&place, &["--query-timeout", "200ms", query]);
        assert!(
            outcome.code == 1 && outcome.stderr.contains("longer than it may, 0.2 s"),
            "{plan}: {}",
            outcome.stderr
        );
        assert!(outcome.stderr.contains("hint: ask for less"), "{}", outcome.stderr);
    }
    assert_eq!(listed(&place, "count(*)", "state = 'timed out' AND elapsed_s >= 0.2"), ["4"]);
    say(&place, &["--query-timeout", "1h", "SELECT 1"]).ok();
    let wrong = say(&place, &["--query-timeout", "soon", "SELECT 1"]);
    assert!(wrong.code == 2 && wrong.stderr.contains("hint: write a number and a unit"), "{}", wrong.stderr);
    shell.ends_and_leaves();
}

/// It reads all cells, and compares each with millions.
const READING: &str = "SELECT count(*) FROM generate_series(1, 3000000) a(i) JOIN g ON g.v + i < 0";

#[test]
fn how_far_a_query_is_is_told_in_the_list_and_on_a_terminal() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = terrace_client::Session::open(&place.runtime().join("index")).unwrap();
    let spec = terrace_client::ArraySpec::new(terrace_client::DataType::Float32, &[64, 64, 256]);
    session.create_array("g/v", &spec, terrace_client::Create::New).unwrap();
    let written = place.scratch().join("terminal");
    let mut inner = place.terrace("sql");
    inner.arg(READING);
    let words = std::iter::once(inner.get_program()).chain(inner.get_args());
    let words: Vec<String> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-qefc", &words.join(" ")]).arg(&written).current_dir(place.root()).env("TERM", "xterm");
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => terminal.env(name, value),
            None => terminal.env_remove(name),
        };
    }
    let child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = running(&place);
    let shown = || std::fs::read_to_string(&written).unwrap_or_default();
    assert!(wait_until(60, || shown().contains("% of the cells")), "{}", shown());
    let of_it = format!("id = '{id}' AND progress > 0 AND progress <= 1 AND cells_read > 0");
    assert!(wait_until(60, || listed(&place, "state", &of_it) == ["running"]), "{:?}", listed(&place, "*", "true"));
    say(&place, &["--cancel", &id]).ok();
    assert_eq!(ended(child).code, 1);
    // Without a terminal nothing is shown.
    say(&place, &["SELECT count(*) FROM g"]).ok();
    assert_eq!(listed(&place, "progress", "sql = 'SELECT count(*) FROM g'"), ["1.0"]);
    drop(session);
    shell.ends_and_leaves();
}

#[test]
fn the_list_of_queries_tells_what_runs_and_what_ended() {
    let place = Workplace::new();
    let shell = place.shell();
    assert_eq!(listed(&place, "id", "true"), Vec::<String>::new());
    let file = place.scratch().join("many.sql");
    std::fs::write(&file, "SELECT * FROM generate_series(1, 10);\n".repeat(150)).unwrap();
    say(&place, &["--file", file.to_str().unwrap()]).ok();
    assert_eq!(listed(&place, "DISTINCT state, rows, bytes", "true"), ["finished,10,80"]);
    let kept: usize = listed(&place, "count(*)", "true")[0].parse().unwrap();
    assert!((90..=100).contains(&kept), "{kept} queries are kept");
    assert_eq!(say(&place, &["SELECT 1 / (v - 2) FROM generate_series(1, 3) t(v)"]).code, 1);
    assert_eq!(listed(&place, "sql", "state = 'failed' AND error LIKE '%ivide by zero%'").len(), 1);
    // A process that is killed says nothing.
    let mut child = ask(&place, &[LONG[0].1]);
    let id = running(&place);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(wait_until(60, || listed(&place, "state", &format!("id = '{id}'")) == ["died"]));
    assert_eq!(listed(&place, "id", "state = 'running'"), Vec::<String>::new());
    // What it needed, at most.
    say(&place, &["SELECT v FROM generate_series(1, 100000) t(v) ORDER BY -v LIMIT 1 OFFSET 99999"]).ok();
    assert_eq!(listed(&place, "rows", "sql LIKE '%OFFSET%' AND memory_bytes_peak > 100000"), ["1"]);
    shell.ends_and_leaves();
}
