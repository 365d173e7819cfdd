//! Containers as tables, through the whole system: a client that puts, an agent, `terrace sql`.

use std::io::Read;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use terrace_client::{Array, ArraySpec, Create, DataType, Region, Session, TagValue};
use terrace_tests::{Outcome, Wish, Workplace, wait_until};

fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

fn say(place: &Workplace, arguments: &[&str]) -> Outcome {
    Outcome::of(place.terrace("sql").args(arguments).output().unwrap())
}

/// Rows as CSV without the header, sorted.
#[track_caller]
fn rows(place: &Workplace, query: &str) -> Vec<String> {
    let outcome = say(place, &["--format", "csv", query]);
    assert_eq!(outcome.code, 0, "{query}: {}", outcome.stderr);
    let mut rows: Vec<String> = outcome.stdout.lines().skip(1).map(String::from).collect();
    rows.sort();
    rows
}

fn create(session: &Session, name: &str, spec: &ArraySpec) -> Array {
    session.create_container(name.rsplit_once('/').unwrap().0, Create::IfMissing).unwrap();
    session.create_array(name, spec, Create::New).unwrap()
}

fn region(offset: &[u64], count: &[u64]) -> Region {
    Region::block(offset, count).unwrap()
}

/// `study`: v and w along x (3 to 6, step 1) and y (coordinates of their own).
fn study(session: &Session) {
    let spec = |data_type| ArraySpec::new(data_type, &[4, 3]).dimensions(&["x", "y"]);
    let v = create(session, "study/v", &spec(DataType::Float64));
    v.put_values(&region(&[0, 0], &[2, 3]), &[0.5f64, 1.5, 2.5, 3.5, 4.5, 5.5]).unwrap();
    v.put_values(&region(&[2, 0], &[2, 3]), &[6.5f64, 7.5, 8.5, 9.5, 10.5, 11.5]).unwrap();
    let w = create(session, "study/w", &spec(DataType::Int32));
    w.put_values(&region(&[0, 1], &[4, 2]), &[1i32, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    let y = create(session, "study/y", &ArraySpec::new(DataType::Float32, &[3]).dimensions(&["y"]));
    y.put_values(&region(&[0], &[3]), &[10f32, 20.0, 40.0]).unwrap();
    session.put_tag("study", "terrace.dimension.x", TagValue::Ints(vec![3, 6, 1])).unwrap();
}

#[test]
fn a_container_is_a_table_staged_flushed_and_evicted() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    study(&session);
    for state in ["staged", "flushed", "evicted"] {
        assert_eq!(
            rows(&place, "SELECT x, y, v, w FROM study WHERE x BETWEEN 4 AND 5 AND y > 10"),
            ["4,20.0,4.5,3", "4,40.0,5.5,4", "5,20.0,7.5,5", "5,40.0,8.5,6"],
            "{state}"
        );
        assert_eq!(
            rows(&place, "SELECT x, avg(v), sum(w) FROM study GROUP BY x"),
            ["3,1.5,3", "4,4.5,7", "5,7.5,11", "6,10.5,15"]
        );
        assert_eq!(rows(&place, "SELECT y, max(v) FROM study WHERE w <> 0 GROUP BY y"), ["20.0,10.5", "40.0,11.5"]);
        assert_eq!(rows(&place, "SELECT count(*), sum(v) FROM \"study/v\" WHERE v > 4"), ["8,64.0"]);
        match state {
            "staged" => session.flush("study").unwrap(),
            _ => session.evict("study").unwrap(),
        }
    }
    drop(session);
    shell.ends_and_leaves();
}

/// Durable cells are read by the array's name.
#[test]
fn a_query_of_which_a_durable_array_is_replaced_meanwhile_has_no_answer() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let make = |name: &str, value: f64| {
        let array = create(&session, name, &ArraySpec::new(DataType::Float64, &[40, 50]).dimensions(&["y", "x"]));
        array.put_values(&region(&[0, 0], &[40, 50]), &vec![value; 2000]).unwrap();
        drop(array);
        session.evict(name).unwrap();
    };
    for query in [
        "SELECT y, x, v FROM swapped, generate_series(1, 40)",
        "SELECT interpolate('swapped', 'v', i % 30, i % 40) AS v FROM generate_series(1, 200000) t(i)",
    ] {
        make("swapped/v", 1.0);
        make("next/v", 2.0);
        let mut asked = place.terrace("sql");
        asked.args(["--format", "csv", query]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = asked.spawn().unwrap();
        // It waits for who reads its rows.
        running.stdout.as_mut().unwrap().read_exact(&mut [0; 16]).unwrap();
        session.remove("swapped/v", false).unwrap();
        session.rename("next/v", "swapped/v").unwrap();
        let outcome = Outcome::of(running.wait_with_output().unwrap());
        assert!(outcome.code != 0 && outcome.stderr.contains("swapped/v"), "{query}: {}", outcome.stderr);
        assert_eq!(rows(&place, "SELECT min(v), max(v) FROM swapped"), ["2.0,2.0"]);
        session.remove("swapped", true).unwrap();
        session.remove("next", true).unwrap();
    }
    drop(session);
    shell.ends_and_leaves();
}

#[test]
fn a_query_of_which_a_durable_array_is_made_smaller_meanwhile_has_no_answer() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let spec = ArraySpec::new(DataType::Float64, &[400, 500]).chunks(&[1, 500]).dimensions(&["y", "x"]);
    for (rows_left, succeeds) in [(10, false), (500, true)] {
        let array = session.create_array("cut/v", &spec, Create::Replace).unwrap();
        array.put_values(&region(&[0, 0], &[400, 500]), &vec![1.5; 200_000]).unwrap();
        session.evict("cut/v").unwrap();
        let mut asked = place.terrace("sql");
        asked.args(["--format", "csv", "SELECT y, x, v FROM cut"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = asked.spawn().unwrap();
        running.stdout.as_mut().unwrap().read_exact(&mut [0; 16]).unwrap();
        array.resize(&[rows_left, 500]).unwrap();
        let outcome = Outcome::of(running.wait_with_output().unwrap());
        assert_eq!(outcome.code == 0, succeeds, "{}", outcome.stderr);
        assert!(succeeds || outcome.stderr.contains("cut/v` was made smaller"), "{}", outcome.stderr);
    }
    drop(session);
    shell.ends_and_leaves();
}

#[test]
fn rows_are_written_in_every_format() {
    let place = Workplace::new();
    let shell = place.shell();
    study(&session(&place));
    let query = "SELECT x, v FROM study WHERE v < 1";
    assert!(say(&place, &[query]).ok().stdout.contains("| 3 | 0.5 |\n"));
    assert_eq!(say(&place, &["--format", "csv", query]).ok().stdout, "x,v\n3,0.5\n");
    assert_eq!(say(&place, &["--format", "json", query]).ok().stdout.trim(), r#"[{"x":3,"v":0.5}]"#);
    assert_eq!(say(&place, &["--format", "ndjson", query]).ok().stdout.trim(), r#"{"x":3,"v":0.5}"#);
    let file = |name: &str| place.scratch().join(name).display().to_string();
    for (name, magic) in [("a.parquet", b"PAR1".as_slice()), ("a.arrow", b"\xff\xff\xff\xff"), ("a.csv", b"x,v\n")] {
        say(&place, &["--output", &file(name), query]).ok();
        assert!(std::fs::read(file(name)).unwrap().starts_with(magic), "{name}");
    }
    let unknown = say(&place, &["--output", &file("a.xyz"), query]);
    assert!(unknown.code == 2 && unknown.stderr.contains("hint: give --format"), "{}", unknown.stderr);
    shell.ends_and_leaves();
}

#[test]
fn an_output_goes_where_links_lead_and_into_pipes_and_keeps_its_rights() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    let place = Workplace::new();
    let shell = place.shell();
    let path = |name: &str| place.scratch().join(name);
    let write =
        |name: &str| say(&place, &["--format", "csv", "--output", path(name).to_str().unwrap(), "SELECT 1 AS n"]);
    let mode = |name: &str| std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
    std::fs::create_dir(path("inner")).unwrap();
    std::fs::write(path("inner/kept"), "old").unwrap();
    std::fs::set_permissions(path("inner/kept"), std::fs::Permissions::from_mode(0o600)).unwrap();
    symlink("inner/kept", path("link")).unwrap();
    symlink("link", path("link to the link")).unwrap();
    symlink("inner/new", path("link to nothing")).unwrap();
    symlink("loop", path("loop")).unwrap();
    for (link, target) in [("link to the link", "inner/kept"), ("link to nothing", "inner/new")] {
        write(link).ok();
        assert_eq!(std::fs::read_to_string(path(target)).unwrap(), "n\n1\n");
        assert!(path(link).is_symlink() && path("link").is_symlink());
    }
    assert_eq!((mode("inner/kept"), std::fs::read_dir(path("inner")).unwrap().count()), (0o600, 2));
    // A pipe's reader has the rows; the pipe is still there.
    assert!(std::process::Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
    let pipe = path("pipe");
    let reader = std::thread::spawn(move || std::fs::read_to_string(pipe).unwrap());
    write("pipe").ok();
    assert_eq!(reader.join().unwrap(), "n\n1\n");
    assert!(std::fs::metadata(path("pipe")).unwrap().file_type().is_fifo());
    for refused in ["loop", "inner", "nowhere/file"] {
        let outcome = write(refused);
        assert!(outcome.code == 1 && outcome.stderr.contains(refused), "{refused}: {}", outcome.stderr);
    }
    // What fails leaves what was there.
    let file = path("inner/kept");
    let failing =
        ["--format", "csv", "--output", file.to_str().unwrap(), "SELECT 1 / (v - 1) FROM generate_series(1, 3) t(v)"];
    assert_eq!(say(&place, &failing).code, 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "n\n1\n");
    assert_eq!(std::fs::read_dir(path("inner")).unwrap().count(), 2);
    shell.ends_and_leaves();
}

#[test]
fn a_statement_of_any_length_is_answered_or_refused() {
    let place = Workplace::new();
    let shell = place.shell();
    study(&session(&place));
    let file = place.scratch().join("long.sql");
    let asked = |text: String| {
        std::fs::write(&file, text).unwrap();
        say(&place, &["--format", "csv", "--file", file.to_str().unwrap()])
    };
    type Shape = fn(usize) -> String;
    let shapes: [(Shape, usize); 9] = [
        (|n| format!("SELECT {} AS n", vec!["1"; n].join("+")), 1900),
        (|n| format!("SELECT sum({}) AS n FROM study", vec!["v"; n].join("+")), 1900),
        (|n| format!("SELECT count(*) AS n FROM study WHERE {}", vec!["v + w = 1"; n].join(" OR ")), 600),
        (|n| format!("SELECT count(*) AS n FROM study WHERE {}", vec!["x = 1"; n].join(" OR ")), 900),
        (|n| vec!["SELECT 1 AS n"; n].join(" UNION ALL "), 300),
        (|n| format!("SELECT {}true AS n", "NOT ".repeat(n)), 10),
        (|n| format!("SELECT {}1{} AS n", "CASE WHEN true THEN ".repeat(n), " END".repeat(n)), 10),
        (
            |n| {
                format!(
                    "SELECT 1 AS n FROM {}",
                    (0..n).map(|i| format!("(SELECT 1) t{i}")).collect::<Vec<_>>().join(", ")
                )
            },
            40,
        ),
        (|n| format!("SELECT CAST(1 AS {}INT{}) AS n", "ARRAY<".repeat(n), ">".repeat(n)), 0),
    ];
    for (shape, count) in shapes {
        let outcome = asked(shape(count));
        assert!(outcome.code == 0 && outcome.stdout.starts_with("n\n"), "{}: {}", shape(2), outcome.stderr);
        for more in [5_000, 100_000] {
            let outcome = asked(shape(more));
            assert!(outcome.code == 1 && outcome.stderr.contains("nested"), "{}: {}", shape(2), outcome.stderr);
        }
    }
    // A list is flat.
    let numbers = (0..50_000).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    assert_eq!(asked(format!("SELECT count(*) AS n FROM study WHERE x IN ({numbers})")).ok().stdout, "n\n12\n");
    shell.ends_and_leaves();
}

#[test]
fn queries_come_from_a_file_and_from_the_standard_input() {
    let place = Workplace::new();
    let shell = place.shell();
    study(&session(&place));
    let text = "SELECT count(*) AS n FROM study; -- a comment; with a semicolon\nSELECT ';' AS n;";
    let file = place.scratch().join("queries.sql");
    std::fs::write(&file, text).unwrap();
    let told = say(&place, &["--format", "csv", "--file", file.to_str().unwrap()]).ok().stdout;
    assert_eq!(told, "n\n12\nn\n;\n");
    let mut command = place.terrace("sql");
    command.args(["--format", "csv"]).stdin(std::fs::File::open(&file).unwrap());
    assert_eq!(Outcome::of(command.stdout(Stdio::piped()).output().unwrap()).ok().stdout, told);
    shell.ends_and_leaves();
}

#[test]
fn what_is_wrong_with_a_query_is_told_with_names() {
    let place = Workplace::new();
    let shell = place.shell();
    study(&session(&place));
    let wrong = |query: &str, wanted: &str| {
        let outcome = say(&place, &[query]);
        assert!(outcome.code != 0 && outcome.stderr.contains(wanted), "{query}: {}", outcome.stderr);
        assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    };
    wrong("SELECT q FROM study", "q");
    wrong("SELECT * FROM stud", "stud");
    wrong("SELEC 1", "SELEC");
    wrong("SELECT v FROM study WHERE", "");
    wrong("", "there is no query");
    for change in [
        "DROP TABLE study",
        "CREATE TABLE t AS SELECT 1",
        "INSERT INTO study VALUES (1, 2, 3, 4)",
        "SET a.b = 1",
        "COPY study TO '/tmp/x.csv'",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
    ] {
        wrong(change, "not supported");
    }
    let outcome = say(&place, &["--query-threads", "100000", "SELECT 1"]);
    assert!(outcome.code == 1 && outcome.stderr.contains("at most 1024"), "{}", outcome.stderr);
    // As deep as a text may be.
    wrong(&format!("SELECT {}1{}", "(".repeat(3000), ")".repeat(3000)), "");
    let sum = format!("SELECT 1{} AS n", "+1".repeat(1900));
    let outcome = say(&place, &["--format", "csv", &sum]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "n\n1901\n"), "{}", outcome.stderr);
    shell.ends_and_leaves();
}

#[test]
fn the_catalogue_is_tables() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    study(&session);
    session.create_bytes("study/notes", Create::New).unwrap().close().unwrap();
    session.put_tag("study/v", "units", TagValue::Text("m/s".into())).unwrap();
    assert_eq!(
        rows(&place, "SELECT path, kind, bytes FROM terrace.objects WHERE container = 'study'"),
        ["study/notes,bytes,0", "study/v,array,96", "study/w,array,48", "study/y,array,12"]
    );
    assert_eq!(rows(&place, "SELECT path, arrays FROM terrace.containers WHERE arrays > 0"), ["study,3"]);
    assert_eq!(
        rows(&place, "SELECT name, data_type, shape, dimensions FROM terrace.arrays WHERE name <> 'v'"),
        ["w,int32,\"[4, 3]\",\"[x, y]\"", "y,float32,[3],[y]"]
    );
    assert_eq!(rows(&place, "SELECT path, key, value FROM terrace.tags WHERE kind = 'text'"), ["study/v,units,m/s"]);
    assert_eq!(rows(&place, "SELECT count(*) FROM terrace.regions WHERE path = 'study/v'"), ["2"]);
    assert_eq!(rows(&place, "SELECT name, is_durable FROM terrace.tiers"), ["ram,false", "root,true"]);
    // What was put is flushed meanwhile, and a disk takes its time.
    assert!(wait_until(60, || rows(&place, "SELECT count(*) FROM terrace.transfers") == ["0"]));
    assert!(rows(&place, "SHOW TABLES").iter().any(|row| row.contains("root,study,")));
    // Metadata and data in one language.
    assert_eq!(
        rows(
            &place,
            "SELECT a.name, m.top FROM terrace.arrays a JOIN (SELECT max(v) AS top FROM study) m ON a.name = 'v'"
        ),
        ["v,11.5"]
    );
    drop(session);
    shell.ends_and_leaves();
}

fn steps(session: &Session, names: &[&str], extent: u64) -> Vec<Array> {
    let spec = ArraySpec::new(DataType::Float64, &[0, extent]).unlimited(0).dimensions(&["step", "x"]);
    names.iter().map(|name| create(session, name, &spec)).collect()
}

#[test]
fn a_step_is_seen_when_all_its_arrays_have_all_of_it() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let arrays = steps(&session, &["run/p", "run/q"], 4);
    let count = || rows(&place, "SELECT count(*), sum(p), sum(q) FROM run").concat();
    let put = |array: &Array, step: u64, x: u64, values: &[f64]| {
        array.put_values(&region(&[step, x], &[1, values.len() as u64]), values).unwrap();
    };
    put(&arrays[0], 0, 0, &[1.0; 4]);
    assert_eq!(count(), "0,,");
    put(&arrays[1], 0, 0, &[2.0; 2]);
    assert_eq!(count(), "0,,");
    // The later step is there before the earlier one is whole.
    put(&arrays[0], 1, 0, &[1.0; 4]);
    put(&arrays[1], 1, 0, &[2.0; 4]);
    assert_eq!(count(), "0,,");
    put(&arrays[1], 0, 2, &[2.0; 2]);
    assert_eq!(count(), "8,8.0,16.0");
    put(&arrays[0], 2, 0, &[1.0; 4]);
    assert_eq!(rows(&place, "SELECT path, begun, complete FROM terrace.steps"), ["run/p,3,3", "run/q,2,2"]);
    session.put_tag("run", "terrace.steps", TagValue::Int(1)).unwrap();
    assert_eq!(count(), "4,4.0,8.0");
    session.put_tag("run", "terrace.steps", TagValue::Text("some".into())).unwrap();
    let outcome = say(&place, &["SELECT * FROM run"]);
    assert!(outcome.stderr.contains("terrace.steps") && outcome.stderr.contains("hint:"), "{}", outcome.stderr);
    drop((arrays, session));
    shell.ends_and_leaves();
}

/// The queries of one process, while another puts.
fn asked_meanwhile(place: &Workplace, query: &str, times: usize, put: impl FnMut(u64) + Send) -> Vec<String> {
    let text = format!("{query};\n").repeat(times);
    let file = place.scratch().join("queries.sql");
    std::fs::write(&file, text).unwrap();
    let done = AtomicBool::new(false);
    let mut put = put;
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| (0..).take_while(|_| !done.load(Relaxed)).for_each(&mut put));
        let outcome = say(place, &["--format", "csv", "--file", file.to_str().unwrap()]);
        done.store(true, Relaxed);
        outcome
    });
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    outcome.stdout.lines().filter(|line| !line.contains('p')).map(String::from).collect()
}

#[test]
fn a_reader_sees_complete_steps_while_a_writer_appends() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let shell = place.shell();
    let session = session(&place);
    let arrays = steps(&session, &["run/p", "run/q"], 500);
    let query =
        "SELECT step, min(p), max(p), min(q), max(q), count(p) FROM run GROUP BY step ORDER BY step DESC LIMIT 3";
    let lines = asked_meanwhile(&place, query, 150, |step| {
        if step < 20_000 {
            for array in &arrays {
                array.put_values(&region(&[step, 0], &[1, 500]), &[step as f64; 500]).unwrap();
            }
        }
    });
    let mut seen = 0;
    for line in lines {
        let numbers: Vec<f64> = line.split(',').map(|number| number.parse().unwrap()).collect();
        assert!(numbers[1..5].iter().all(|value| *value == numbers[0]) && numbers[5] == 500.0, "{line}");
        seen = seen.max(numbers[0] as u64);
    }
    assert!(seen > 10, "the writer has come to step {seen} only");
    drop((arrays, session));
    shell.ends_and_leaves();
}

#[test]
fn a_query_sees_one_moment_of_an_array_that_is_put_again_and_again() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let shell = place.shell();
    let session = session(&place);
    let cells = 200_000;
    let array = create(&session, "run/p", &ArraySpec::new(DataType::Float64, &[cells]).dimensions(&["x"]));
    array.put_values(&region(&[0], &[cells]), &vec![0f64; cells as usize]).unwrap();
    let query = "SELECT min(p), max(p), avg(p) FROM run";
    let lines = asked_meanwhile(&place, query, 300, |turn| {
        array.put_values(&region(&[0], &[cells]), &vec![turn as f64; cells as usize]).unwrap();
    });
    let mut kinds = std::collections::BTreeSet::new();
    for line in lines {
        let numbers: Vec<f64> = line.split(',').map(|number| number.parse().unwrap()).collect();
        assert!(numbers.iter().all(|value| *value == numbers[0]), "{line}");
        kinds.insert(numbers[0] as u64);
    }
    assert!(kinds.len() > 5, "{kinds:?}");
    drop((array, session));
    shell.ends_and_leaves();
}

#[test]
fn a_query_that_needs_more_memory_than_it_may_have_says_so_or_spills() {
    let place = Wish::default().tier("ram", "128MiB").build();
    let shell = place.shell();
    let session = session(&place);
    let cells = 4_000_000u64;
    let array = create(&session, "run/p", &ArraySpec::new(DataType::Float64, &[cells]).dimensions(&["x"]));
    // Each number once, in another order.
    let values: Vec<f64> = (0..cells).map(|i| (i * 7919 % cells) as f64).collect();
    array.put_values(&region(&[0], &[cells]), &values).unwrap();
    let query = "SELECT p FROM (SELECT p, row_number() OVER (ORDER BY p DESC) AS n FROM run) WHERE n = 2000001";
    let outcome = say(&place, &["--format", "csv", "--memory", "48MiB", query]);
    assert!(outcome.code == 1 && outcome.stderr.contains("needs more memory"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("--spill"), "{}", outcome.stderr);
    let spill = place.scratch().join("spill");
    std::fs::create_dir(&spill).unwrap();
    let outcome = say(&place, &["--format", "csv", "--memory", "48MiB", "--spill", spill.to_str().unwrap(), query]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "p\n1999999.0\n"), "{}", outcome.stderr);
    drop((array, session));
    shell.ends_and_leaves();
}

#[test]
fn cells_with_their_fill_value_are_no_rows_of_a_sparse_container() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let spec =
        |fill: f64| ArraySpec::new(DataType::Float64, &[100, 100]).dimensions(&["x", "y"]).fill(&fill.to_le_bytes());
    let a = create(&session, "points/a", &spec(f64::NAN));
    let b = create(&session, "points/b", &spec(-1.0));
    a.put_values(&region(&[7, 8], &[1, 2]), &[1f64, 2.0]).unwrap();
    b.put_values(&region(&[7, 9], &[1, 1]), &[5f64]).unwrap();
    b.put_values(&region(&[50, 3], &[1, 1]), &[6f64]).unwrap();
    assert_eq!(rows(&place, "SELECT count(*) FROM points"), ["10000"]);
    session.put_tag("points", "terrace.sparse", TagValue::Bool(true)).unwrap();
    for _ in 0..2 {
        assert_eq!(rows(&place, "SELECT x, y, b FROM points"), ["50,3,6.0", "7,8,-1.0", "7,9,5.0"]);
        assert_eq!(rows(&place, "SELECT x, count(*), max(b) FROM points GROUP BY x"), ["50,1,6.0", "7,2,5.0"]);
        session.flush("points").unwrap();
    }
    drop((a, b, session));
    shell.ends_and_leaves();
}

#[test]
fn a_standing_query_is_asked_once_for_each_step() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let arrays = steps(&session, &["run/p", "run/q"], 10);
    let query = "SELECT step, max(p) AS top FROM run WHERE step = $step GROUP BY step HAVING max(p) > 6";
    let watch = |from: &str, count: &str| {
        let mut command = place.terrace("sql");
        command.args(["--format", "csv", "--watch", "run", "--from", from, "--steps", count, query]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let child = watch("0", "20");
    for step in 0..20u64 {
        // q first: p makes the step whole.
        for array in arrays.iter().rev() {
            array.put_values(&region(&[step, 0], &[1, 10]), &[(step % 10) as f64; 10]).unwrap();
        }
    }
    let told = Outcome::of_child(60, child).ok().stdout;
    assert_eq!(told, "step,top\n7,7.0\n8,8.0\n9,9.0\n17,7.0\n18,8.0\n19,9.0\n");
    // A reader that was ended at step 8 goes on from 9.
    assert_eq!(Outcome::of_child(60, watch("9", "11")).ok().stdout, "step,top\n9,9.0\n17,7.0\n18,8.0\n19,9.0\n");
    drop((arrays, session));
    shell.ends_and_leaves();
}
