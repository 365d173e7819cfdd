//! Queries on arrays that several agents share: parts of them are answered beside the agents, with the answers of one.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use terrace_client::{ArraySpec, Create, DataType, Region, Session, TagValue};
use terrace_tests::{Agents, Outcome, Wish, Workplace, binaries, wait_until};

fn kept() -> Workplace {
    // Nothing is flushed before it is asked for.
    Wish::default().tier("ram", "256MiB").settle("1h").build()
}

fn query(agents: &Agents, number: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(binaries().join("terrace-query"));
    command.args(["sql", "--format", "csv"]).args(arguments).env("TERRACE_INDEX", agents.index(number));
    command
}

fn asked(agents: &Agents, number: usize, arguments: &[&str]) -> Outcome {
    Outcome::of(query(agents, number, arguments).output().unwrap())
}

fn answer(agents: &Agents, number: usize, arguments: &[&str]) -> String {
    let outcome = asked(agents, number, arguments);
    assert!(outcome.code == 0, "{arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

const SHAPE: [u64; 3] = [24, 30, 40];

/// Two arrays in chunks that do not meet, one of fewer dimensions, and one that most have not put anything into.
fn fill(session: &Session) {
    let cells = SHAPE.iter().product::<u64>() as usize;
    let named = |data_type: DataType, chunks: [u64; 3]| {
        ArraySpec::new(data_type, &SHAPE).chunks(&chunks).dimensions(&["z", "y", "x"])
    };
    let whole = Region::whole(&SHAPE).unwrap();
    let a: Vec<f64> = (0..cells).map(|cell| ((cell * 7919) % 1000) as f64 / 8.0).collect();
    let b: Vec<i32> = (0..cells).map(|cell| ((cell * 104_729) % 977) as i32 - 400).collect();
    let spec = named(DataType::Float64, [5, 7, 40]);
    session.create_array("run/a", &spec, Create::New).unwrap().put_values(&whole, &a).unwrap();
    let spec = named(DataType::Int32, [8, 10, 11]);
    session.create_array("run/b", &spec, Create::New).unwrap().put_values(&whole, &b).unwrap();
    let spec = ArraySpec::new(DataType::Float32, &[40]).chunks(&[9]).dimensions(&["x"]);
    let height: Vec<f32> = (0..40).map(|x| (x * x) as f32).collect();
    let array = session.create_array("run/height", &spec, Create::New).unwrap();
    array.put_values(&Region::whole(&[40]).unwrap(), &height).unwrap();
    let spec = named(DataType::UInt8, [6, 30, 40]).fill(&[3]);
    let corner = Region::block(&[7, 3, 2], &[9, 4, 30]).unwrap();
    let sparse = session.create_array("run/c", &spec, Create::New).unwrap();
    sparse.put_values(&corner, &vec![9u8; corner.cells() as usize]).unwrap();
    let spec = ArraySpec::new(DataType::Int64, &[24, 30]).chunks(&[4, 30]).dimensions(&["z", "y"]);
    let counted: Vec<i64> = (0..720).map(|cell| i64::MAX - cell).collect();
    let array = session.create_array("other/n", &spec, Create::New).unwrap();
    array.put_values(&Region::whole(&[24, 30]).unwrap(), &counted).unwrap();
}

const QUERIES: &[&str] = &[
    "SELECT count(*), sum(a), min(b), max(b), avg(a), sum(b) FROM run",
    "SELECT z, avg(a), max(b), count(*) FROM run GROUP BY z ORDER BY z",
    "SELECT x, y, min(a), sum(b) FROM run GROUP BY x, y ORDER BY x, y",
    "SELECT x / 7 AS block, sum(a), min(c) FROM run GROUP BY x / 7 ORDER BY block",
    "SELECT z, sum(a * b) FROM run WHERE b > 300 GROUP BY z ORDER BY z",
    "SELECT y, count(*), min(b) FROM run WHERE a BETWEEN 20 AND 21 AND x > 4 GROUP BY y ORDER BY y",
    "SELECT z, y, x, a, b FROM run WHERE b = 7 ORDER BY z, y, x",
    "SELECT b % 10 AS class, count(*), sum(a) FROM run GROUP BY b % 10 ORDER BY class",
    "SELECT z, y, x, b FROM run ORDER BY b DESC, z, y, x LIMIT 7",
    "SELECT count(*) FROM run l JOIN run r ON l.x = r.x + 1 AND l.y = r.y AND l.z = r.z WHERE l.b > r.b",
    "SELECT z, sum(run.b * (n - 9223372036854775000)) FROM run JOIN other USING (z, y) GROUP BY z ORDER BY z",
    "SELECT count(*), sum(l.a) FROM run l JOIN run r ON l.b = r.b + 3 WHERE l.z = 3 AND r.z = 4 AND l.y < 6 AND r.y < 6",
    "SELECT max(m) FROM (SELECT z, avg(a) AS m FROM run GROUP BY z)",
    "SELECT z, max(height) FROM run GROUP BY z ORDER BY z LIMIT 3",
    "SELECT min(n), max(n), count(*) FROM other",
    "SELECT count(*), max(c), min(c) FROM run WHERE c <> 3",
    "SELECT avg(a) FROM run WHERE z > 1000",
    "SELECT x, avg(a) FROM run WHERE b > 100000 GROUP BY x",
    "SELECT z FROM run WHERE a > (SELECT avg(a) + 62 FROM run) GROUP BY z HAVING count(*) > 1 ORDER BY z",
    "SELECT 'a' AS k, sum(a) AS s FROM run UNION ALL SELECT 'b', sum(b) FROM run ORDER BY k",
    "SELECT stddev(b) AS s FROM run WHERE z = 0 AND y = 0 AND x < 5 UNION ALL SELECT stddev(b) FROM run WHERE z = 1 AND y = 0 AND x < 5 ORDER BY s",
    "SELECT median(b) FROM run GROUP BY z ORDER BY 1",
    "SELECT stddev(b), corr(a, b) FROM run",
];

/// Floating-point sums are rounded in another order.
fn assert_same(one: &str, other: &str, query: &str) {
    let lines = |text: &str| text.lines().map(|line| line.split(',').map(String::from).collect()).collect();
    let (one, other): (Vec<Vec<String>>, Vec<Vec<String>>) = (lines(one), lines(other));
    assert_eq!(one.len(), other.len(), "{query}\n{one:?}\n{other:?}");
    for (one, other) in one.iter().zip(&other) {
        assert_eq!(one.len(), other.len(), "{query}");
        for (one, other) in one.iter().zip(other) {
            let is_near = || match (one.parse::<f64>(), other.parse::<f64>()) {
                (Ok(one), Ok(other)) => (one - other).abs() <= 1e-12 * one.abs().max(other.abs()),
                _ => false,
            };
            assert!(one == other || one.contains('.') && is_near(), "{query}: {one} and {other}");
        }
    }
}

#[test]
fn queries_are_answered_beside_the_agents_as_one_agent_answers_them() {
    let place = kept();
    let agents = Agents::start(&place, 3);
    fill(&agents.beside(0));
    for query in QUERIES {
        let plain = answer(&agents, 0, &["--generic", query]);
        for number in 0..3 {
            assert_same(&answer(&agents, number, &[query]), &plain, query);
        }
        assert_same(&answer(&agents, 0, &["--threads", "1", query]), &plain, query);
    }
    // The same when some cells are durable, and some of them are covered again.
    agents.beside(1).flush("run/a").unwrap();
    agents.beside(1).evict("run/b").unwrap();
    let again = agents.beside(2).open_array("run/a", true).unwrap();
    let part = Region::block(&[3, 4, 5], &[11, 12, 13]).unwrap();
    again.put_values(&part, &vec![-2.5f64; part.cells() as usize]).unwrap();
    for query in QUERIES {
        assert_same(&answer(&agents, 1, &[query]), &answer(&agents, 2, &["--generic", query]), query);
    }
    drop(again);
    agents.end();
    place.settled_tree();
}

#[test]
fn explain_shows_what_runs_where_and_explain_analyze_the_bytes_between_nodes() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    fill(&agents.beside(0));
    let plan = answer(&agents, 1, &["EXPLAIN SELECT z, avg(a) FROM run GROUP BY z"]);
    assert!(plan.contains("GridMerge") && plan.contains("agent 0 at 127.0.0.1:"), "{plan}");
    assert!(plan.contains("agent 1 at 127.0.0.2:"), "{plan}");
    let plan = answer(&agents, 0, &["EXPLAIN ANALYZE SELECT b % 10, count(*) FROM run GROUP BY b % 10"]);
    assert!(plan.contains("bytes_transferred"), "{plan}");
    let (_, read) = plan.split_once("cells_read=").expect("cells are counted");
    assert!(!read.starts_with('0'), "{plan}");
    agents.end();
}

#[test]
fn a_node_that_dies_fails_the_query_with_its_name_and_the_next_one_runs() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    fill(&agents.beside(0));
    let nodes = agents.query_nodes();
    assert_eq!(nodes.len(), 2);
    // Some ten billion pairs: it takes longer than the node lives.
    let long = "SELECT count(*) FROM run l JOIN run r ON l.a * r.a > 1e9";
    let mut running = query(&agents, 0, &[long]);
    let running = running.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(nodes[1] as i32, libc::SIGKILL) };
    let outcome = Outcome::of(running.wait_with_output().unwrap());
    assert!(outcome.code != 0, "{}", outcome.stdout);
    assert!(outcome.stderr.contains("127.0.0."), "{}", outcome.stderr);
    let sum = "SELECT z, sum(b) FROM run GROUP BY z ORDER BY z";
    let is_there = || agents.query_nodes().iter().filter(|pid| !nodes.contains(pid)).count() == 1;
    assert!(wait_until(30, is_there), "the node is not started again");
    assert!(wait_until(30, || asked(&agents, 0, &[sum]).code == 0));
    assert_same(&answer(&agents, 0, &[sum]), &answer(&agents, 1, &["--generic", sum]), sum);
    agents.end();
}

#[test]
fn a_query_that_is_ended_runs_on_no_node() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    fill(&agents.beside(0));
    let long = "SELECT count(*) FROM run l JOIN run r ON l.a * r.a > 1e9";
    let outcome = asked(&agents, 1, &["--query-timeout", "1s", long]);
    assert!(outcome.code != 0 && outcome.stderr.contains("took longer than it may"), "{}", outcome.stderr);
    let ticks = |pid: u32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let is_idle = || {
        let before: u64 = agents.query_nodes().into_iter().map(ticks).sum();
        std::thread::sleep(Duration::from_millis(500));
        agents.query_nodes().into_iter().map(ticks).sum::<u64>() <= before + 5
    };
    let begun = Instant::now();
    assert!(wait_until(10, is_idle), "a node computes on");
    println!("idle after {:?}", begun.elapsed());
    let running = answer(&agents, 0, &["SELECT count(*) FROM terrace.queries WHERE state = 'running'"]);
    assert_eq!(running.lines().last(), Some("1"), "this one: {running}");
    agents.end();
}

#[test]
fn an_array_that_is_removed_and_made_again_is_the_new_one_to_every_node() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let session = agents.beside(1);
    let whole = Region::whole(&SHAPE).unwrap();
    for value in 1..4i32 {
        let spec = ArraySpec::new(DataType::Int32, &SHAPE).chunks(&[3, 10, 10]);
        let array = session.create_array("again/u", &spec, Create::New).unwrap();
        array.put_values(&whole, &vec![value; whole.cells() as usize]).unwrap();
        let sums = "SELECT sum(u), min(u) FROM again";
        for number in 0..2 {
            let expected = format!("{},{value}", i64::from(value) * whole.cells() as i64);
            let plain = answer(&agents, number, &["--generic", sums]);
            assert_eq!(plain.lines().last(), Some(expected.as_str()), "agent {number}, by one node");
            assert_eq!(answer(&agents, number, &[sums]).lines().last(), Some(expected.as_str()), "agent {number}");
        }
        drop(array);
        session.remove("again", true).unwrap();
    }
    drop(session);
    agents.end();
}

/// Cells that other nodes keep are read by the array's name.
#[test]
fn a_query_of_which_an_array_is_replaced_meanwhile_has_no_answer() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let session = agents.beside(1);
    let whole = Region::whole(&SHAPE).unwrap();
    let make = |name: &str, value: i32| {
        let spec = ArraySpec::new(DataType::Int32, &SHAPE).chunks(&[1, 10, 10]);
        let array = session.create_array(name, &spec, Create::New).unwrap();
        array.put_values(&whole, &vec![value; whole.cells() as usize]).unwrap();
    };
    for (turn, flags) in [&[][..], &["--generic"], &["--threads", "1"]].into_iter().enumerate() {
        make("swapped/u", 1);
        let mut asked = query(&agents, 0, flags);
        asked.arg("SELECT * FROM swapped").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = asked.spawn().unwrap();
        // It waits for who reads its rows.
        let mut first = [0; 16];
        running.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        make("other", 2);
        session.remove("swapped/u", false).unwrap();
        session.rename("other", "swapped/u").unwrap();
        let outcome = Outcome::of(running.wait_with_output().unwrap());
        assert!(outcome.code != 0 && outcome.stderr.contains("swapped/u"), "turn {turn}: {}", outcome.stderr);
        assert_eq!(answer(&agents, 0, &["SELECT min(u) AS u FROM swapped"]), "u\n2\n");
        session.remove("swapped", true).unwrap();
    }
    // Asked on no node of theirs. The directory that is made in its place mostly has the same inode.
    for _ in 0..3 {
        make("swapped/u", 1);
        let mut asked = place.terrace("sql");
        asked.env("TERRACE_RUNTIME", place.scratch().join("other")).args(["--format", "csv", "SELECT * FROM swapped"]);
        let mut running = asked.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        running.stdout.as_mut().unwrap().read_exact(&mut [0; 16]).unwrap();
        session.remove("swapped/u", false).unwrap();
        make("swapped/u", 2);
        let outcome = Outcome::of(running.wait_with_output().unwrap());
        assert!(outcome.code != 0 && outcome.stderr.contains("swapped/u"), "{}", outcome.stderr);
        session.remove("swapped", true).unwrap();
    }
    drop(session);
    agents.end();
}

#[test]
fn a_query_of_several_agents_sees_whole_steps_only() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    let session = agents.beside(0);
    let spec = ArraySpec::new(DataType::Int32, &[0, 8, 8]).chunks(&[1, 4, 4]).unlimited(0).dimensions(&["t", "y", "x"]);
    let array = session.create_array("sim/u", &spec, Create::New).unwrap();
    let put = |step: u64, y: u64, rows: u64| {
        let region = Region::block(&[step, y, 0], &[1, rows, 8]).unwrap();
        array.put_values(&region, &vec![step as i32 + 1; region.cells() as usize]).unwrap();
    };
    put(0, 0, 8);
    put(1, 0, 8);
    put(2, 0, 5);
    let count = "SELECT count(*), max(u) FROM sim";
    for number in 0..2 {
        assert_eq!(answer(&agents, number, &[count]).lines().last(), Some("128,2"), "agent {number}");
    }
    put(2, 5, 3);
    assert_eq!(answer(&agents, 1, &[count]).lines().last(), Some("192,3"));
    put(3, 0, 1);
    session.put_tag("sim", "terrace.steps", TagValue::Text("all".into())).unwrap();
    assert_eq!(answer(&agents, 1, &["SELECT count(*) FROM sim WHERE u > 0"]).lines().last(), Some("200"));
    drop((session, array));
    agents.end();
}

#[test]
fn what_fails_on_a_node_is_told_in_the_same_words_as_anywhere() {
    let place = kept();
    let agents = Agents::start(&place, 2);
    fill(&agents.beside(0));
    agents.beside(0).flush("run/a").unwrap();
    agents.beside(0).evict("run/a").unwrap();
    let chunk = place.root().join("run/a/c/1/2/0");
    std::fs::OpenOptions::new().write(true).open(&chunk).unwrap().set_len(5).unwrap();
    let sum = "SELECT sum(a) FROM run";
    for number in 0..2 {
        let (found, plain) = (asked(&agents, number, &[sum]), asked(&agents, number, &["--generic", sum]));
        assert!(plain.code != 0 && plain.stderr.contains("run/a/c/1/2/0 has 5 bytes"), "{}", plain.stderr);
        assert_eq!((found.code, found.stderr), (plain.code, plain.stderr), "agent {number}");
    }
    agents.end();
}

#[test]
fn what_is_joined_on_equal_dimensions_lies_on_the_same_agents() {
    let place = kept();
    let agents = Agents::start(&place, 3);
    let session = agents.beside(0);
    let whole = Region::whole(&SHAPE).unwrap();
    let made: Vec<_> = (["one/p", "other/q"].iter().zip([DataType::Float64, DataType::Int16]))
        .map(|(name, data_type)| {
            let spec = ArraySpec::new(data_type, &SHAPE).chunks(&[4, 10, 40]).dimensions(&["z", "y", "x"]);
            session.create_array(name, &spec, Create::New).unwrap()
        })
        .collect();
    made[0].put_values(&whole, &(0..whole.cells()).map(|cell| cell as f64).collect::<Vec<_>>()).unwrap();
    made[1].put_values(&whole, &(0..whole.cells()).map(|cell| (cell % 7) as i16).collect::<Vec<_>>()).unwrap();
    let (mut shares, mut apart) = ([0; 3], 0);
    for (z, y) in (0..SHAPE[0]).step_by(4).flat_map(|z| (0..SHAPE[1]).step_by(10).map(move |y| (z, y))) {
        let keepers: Vec<u32> = made.iter().map(|array| array.keeper(&[z, y, 0]).unwrap()).collect();
        shares[keepers[0] as usize] += 1;
        apart += u32::from(keepers[0] != keepers[1]);
    }
    assert_eq!(apart, 0, "chunks of one are kept by another agent than those of the other");
    assert!(shares.iter().all(|share| (5..=7).contains(share)), "{shares:?}");
    let query = "SELECT z, sum(p * q) FROM one JOIN other USING (z, y, x) GROUP BY z ORDER BY z";
    assert_same(&answer(&agents, 1, &[query]), &answer(&agents, 1, &["--generic", query]), query);
    drop((session, made));
    agents.end();
}
