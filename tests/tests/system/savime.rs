//! SAVIME's language through the whole system: definitions, every operator, libstaging's calls in C++, and what was wrong there.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use terrace_client::{ArraySpec, Create, DataType, Region, Session, TagValue};
use terrace_tests::{Outcome, Random, Served, Wish, Workplace, checkout, library, skipped};

fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

fn say(place: &Workplace, text: &str) -> Outcome {
    Outcome::of(place.terrace("savime").args(["--format", "savime", text]).output().unwrap())
}

/// Runs commands that must succeed; everything that they say.
#[track_caller]
fn done(place: &Workplace, text: &str) -> String {
    let outcome = say(place, text);
    assert_eq!(outcome.code, 0, "{text}: {}", outcome.stderr);
    outcome.stdout
}

#[track_caller]
fn refused(place: &Workplace, text: &str, because: &str) {
    let outcome = say(place, text);
    assert_ne!(outcome.code, 0, "{text} was not refused: {}", outcome.stdout);
    assert!(outcome.stderr.contains(because), "{text}: {}", outcome.stderr);
    assert!(!outcome.stderr.contains("panicked"), "{text}: {}", outcome.stderr);
}

/// The header and the rows of a query, rows sorted.
#[track_caller]
fn rows(place: &Workplace, query: &str) -> Vec<String> {
    let said = done(place, query);
    let mut lines: Vec<String> = said.lines().map(String::from).collect();
    assert!(lines.first().is_some_and(|line| line.starts_with('#')), "{query}: {said}");
    lines[1..].sort();
    lines
}

/// Rows of SQL, sorted.
#[track_caller]
fn sql(place: &Workplace, query: &str) -> Vec<String> {
    let outcome = Outcome::of(place.terrace("sql").args(["--format", "csv", query]).output().unwrap()).ok();
    let mut rows: Vec<String> = outcome.stdout.lines().skip(1).map(String::from).collect();
    rows.sort();
    rows
}

/// `io`: a along x (1 to 4) and y (10, 20, 30); b of the same.
const IO: &str = "create_tar('io', '*', 'implicit,x,int,1,4,1 | implicit,y,int,10,30,10', 'a,int | b,double');
    create_dataset('a:int', literal(5, 1, 2, 7, 7, 3, 4, 9, 6, 8, 0, 11));
    create_dataset('b:double', '0:1:11:1');
    load_subtar('io', 'ordered,x,0,3 | ordered,y,0,2', 'a,a | b,b');";

#[test]
fn definitions_lie_as_containers_arrays_and_tags() {
    let place = Workplace::new();
    let shell = place.shell();
    let text = "create_type('Grid(X, Y, *when)');
        create_dataset('ys:float', literal(0.5, 1.5, 4));
        create_tar('run', 'Grid', 'implicit,x,long,10,18,4 | explicit,y,ys', 'v,double | w,int:2 | n,char:3', 'x,X,y,Y');
        create_dataset('v:double', literal(0, 1, 2, 3, 4, 5, 6, 7, 8)); create_dataset('w:int:2', '0:1:17:1');
        create_dataset('n:char:3', literal('a','b','c','d','e','f','g','h','ijk'));
        load_subtar('run', 'ordered,x,0,2 | ordered,y,0,2', 'v,v | w,w | n,n')";
    done(&place, text);
    let session = session(&place);
    let v = session.open_array("run/v", false).unwrap();
    assert_eq!((v.shape().unwrap(), v.spec().dimensions.join(",")), (vec![3, 3], "x,y".into()));
    let w: Vec<i32> =
        session.open_array("run/w:1", false).unwrap().get_values(&Region::whole(&[3, 3]).unwrap()).unwrap();
    assert_eq!(w, [1, 3, 5, 7, 9, 11, 13, 15, 17]);
    assert_eq!(session.get_tag("run", "terrace.dimension.x").unwrap(), Some(TagValue::Ints(vec![10, 18, 4])));
    assert_eq!(session.get_tag("run", "terrace.role.y").unwrap(), Some(TagValue::Text("Y".into())));
    // The same in SQL, and in this language; staged and durable.
    for _ in 0..2 {
        assert_eq!(sql(&place, "SELECT x, y, v, \"w:0\" FROM run WHERE n = 'ijk'"), ["18,4.0,8.0,16"]);
        let found = rows(&place, "select(where(run, n like 'i%'), x, y, v, w)");
        assert_eq!(found, ["#x,d,int64|y,d,float|v,a,double:1|w,a,int32:2", "18,4.0,8.0,16,17"]);
        session.flush("run").unwrap();
    }
    let shown = done(&place, "show()");
    for part in [
        "type,Grid,,\"X,Y,*when\"",
        "dataset,w,int32:2,9 elements",
        "TAR,run,Grid,",
        "implicit,x,long,10,18,4 | explicit,y",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // A container that others made is a TAR, too.
    let spec = ArraySpec::new(DataType::Int16, &[2, 2]).dimensions(&["p", "q"]);
    session.create_container("made/elsewhere", Create::IfMissing).unwrap();
    let other = session.create_array("made/elsewhere/k", &spec, Create::New).unwrap();
    other.put_values(&Region::whole(&[2, 2]).unwrap(), &[1i16, 2, 3, 4]).unwrap();
    assert_eq!(
        rows(&place, "where(\"made/elsewhere\", k > 2)"),
        ["#p,d,int64|q,d,int64|k,a,int16:1", "1,0,3", "1,1,4"]
    );
    done(&place, "drop_tar('run'); drop_dataset('w'); drop_type('Grid')");
    assert!(session.stat("run").is_err() && session.stat("datasets/w").is_err() && session.stat("datasets/v").is_ok());
    drop((v, other, session));
    shell.ends_and_leaves();
}

#[test]
fn what_is_wrong_with_a_definition_is_told_with_names() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, IO);
    done(&place, "create_type('T(r, *o)'); create_dataset('text:char:2', literal('ab'))");
    for (text, because) in [
        ("create_tar('io', '*', 'implicit,x,int,0,1,1', 'a,int')", "already"),
        ("create_tar('t', 'None', 'implicit,x,int,0,1,1', 'a,int')", "no type `None`"),
        ("create_tar('t', 'T', 'implicit,x,int,0,1,1', 'a,int')", "role `r`"),
        ("create_tar('t', 'T', 'implicit,x,int,0,1,1', 'a,int', 'x,r,z,o')", "no element `z`"),
        ("create_tar('t', '*', 'implicit,x,double,0,*,1', 'a,int')", "whole numbers"),
        ("create_tar('t', '*', 'implicit,x,int,0,1,1 | implicit,x,int,0,1,1', 'a,int')", "two elements"),
        ("create_tar('t', '*', 'explicit,x,none', 'a,int')", "no dataset `none`"),
        ("create_tar('../t', '*', 'implicit,x,int,0,1,1', 'a,int')", "not a name"),
        ("create_tar('datasets', '*', 'implicit,x,int,0,1,1', 'a,int')", "where datasets are"),
        ("create_type('T(r)')", "already"),
        ("create_type('T r')", "defines no type"),
        ("create_dataset('a:int', literal(1))", "already"),
        ("create_dataset('c:int', literal(1.5))", "not a value of type int32"),
        ("create_dataset('c:int8', literal(128))", "not a value of type int8"),
        ("create_dataset('c:int', '5:1:1:1')", "no or too many"),
        ("create_dataset('c:int:3', literal(1, 2))", "no elements of type"),
        ("create_dataset('c:int', '@/nowhere/at/all')", "can't read"),
        ("create_dataset('c', literal(1))", "says no type"),
        ("load_subtar('io', 'ordered,x,0,3 | ordered,y,0,2', 'a,a | b,b')", "overlaps"),
        ("load_subtar('io', 'ordered,x,0,4 | ordered,y,0,2', 'a,a | b,b')", "not in the dimension `x`"),
        ("load_subtar('io', 'ordered,x,0,3', 'a,a | b,b')", "nothing is said about the dimension `y`"),
        ("load_subtar('io', 'ordered,x,0,3 | ordered,z,0,2', 'a,a | b,b')", "no dimension `z`"),
        ("load_subtar('io', 'ordered,x,0,3 | ordered,y,#11,#30', 'a,a | b,b')", "the coordinate 11"),
        ("load_subtar('nothing', 'ordered,x,0,3', 'a,a')", "no TAR `nothing`"),
        ("drop_tar('nothing')", "no TAR `nothing`"),
        ("drop_tar('datasets')", "no TAR"),
        ("drop_type('nothing')", "nothing"),
        ("drop_dataset('nothing')", "no dataset `nothing`"),
        ("delete(io)", "refused"),
        ("nonsense(io)", "no command `nonsense`"),
        ("batch(create_type('U(r)'), create_type('T(r)'))", "its command 2"),
    ] {
        refused(&place, text, because);
    }
    done(&place, "create_tar('t', '*', 'implicit,x,int,0,1,1', 'a,int | b,double')");
    refused(&place, "load_subtar('t', 'ordered,x,0,1', 'a,a')", "`b` has not one dataset");
    refused(&place, "load_subtar('t', 'ordered,x,0,1', 'a,b | b,b')", "is of type int32");
    done(&place, "create_dataset('one:int', literal(1))");
    refused(&place, "load_subtar('t', 'ordered,x,0,1', 'a,one | b,b')", "1 elements: 2 are needed");
    // What was refused has loaded nothing.
    assert_eq!(rows(&place, "scan(t)").len(), 1);
    shell.ends_and_leaves();
}

#[test]
fn datasets_come_from_literals_ranges_and_files() {
    let place = Workplace::new();
    let shell = place.shell();
    let numbers: Vec<u8> = (0..6i32).flat_map(|number| (number * number).to_le_bytes()).collect();
    let client = place.scratch().join("client.bin");
    std::fs::write(&client, &numbers).unwrap();
    let session = session(&place);
    let stored = session.create_bytes("night/stored.bin", Create::New).unwrap();
    stored.append(&numbers).unwrap();
    stored.close().unwrap();
    let root = place.root().display();
    let text = format!(
        "create_dataset('c:int', '@{}'); create_dataset('s:int', '{root}/night/stored.bin'); create_dataset('r:int', '3:2:7:2');
         create_dataset('l:int', literal(1, -2, 3, 4, 5, 6));
         create_tar('t', '*', 'implicit,i,int,0,5,1', 'c,int | s,int | r,int | l,int');
         load_subtar('t', 'ordered,i,0,5', 'c,c | s,s | r,r | l,l')",
        client.display()
    );
    done(&place, &text);
    let expected = [
        "#i,d,int64|c,a,int32:1|l,a,int32:1|r,a,int32:1|s,a,int32:1",
        "0,0,1,3,0",
        "1,1,-2,3,1",
        "2,4,3,5,4",
        "3,9,4,5,9",
        "4,16,5,7,16",
        "5,25,6,7,25",
    ];
    assert_eq!(rows(&place, "scan(t)"), expected);
    drop(session);
    shell.ends_and_leaves();
}

#[test]
fn subtars_are_ordered_partial_or_total() {
    let place = Workplace::new();
    let shell = place.shell();
    // Ordered, the inner dimension listed first: the cells lie the other way round.
    done(
        &place,
        "create_tar('o', '*', 'implicit,x,int,1,3,1 | implicit,y,int,0,1,1', 'v,int'); create_dataset('v:int', '0:1:5:1');
         load_subtar('o', 'ordered,y,#0,#1 | ordered,x,#1,#3', 'v,v')",
    );
    assert_eq!(
        rows(&place, "scan(o)"),
        ["#x,d,int64|y,d,int64|v,a,int32:1", "1,0,0", "1,1,3", "2,0,1", "2,1,4", "3,0,2", "3,1,5"]
    );
    // Two ordered ones that leave a gap; nothing is where nothing was loaded.
    done(
        &place,
        "create_tar('g', '*', 'implicit,x,int,0,*,1 | implicit,y,int,0,9,1', 'v,int'); create_dataset('w:int', literal(7, 8));
         load_subtar('g', 'ordered,x,2,2 | ordered,y,3,4', 'v,w'); load_subtar('g', 'ordered,x,5,6 | ordered,y,0,0', 'v,w')",
    );
    let gap = ["#x,d,int64|y,d,int64|v,a,int32:1", "2,3,7", "2,4,8", "5,0,7", "6,0,8"];
    assert_eq!(rows(&place, "scan(g)"), gap);
    assert_eq!(sql(&place, "SELECT x, y, v FROM g"), gap[1..]);
    assert_eq!(sql(&place, "SELECT x, count(*), sum(v) FROM g GROUP BY x"), ["2,2,15", "5,1,7", "6,1,8"]);
    // Partial along x, by coordinates of an implicit dimension; ordered along y.
    done(
        &place,
        "create_tar('p', '*', 'implicit,x,int,100,200,10 | implicit,y,int,0,1,1', 'v,int'); create_dataset('xs:long', literal(190, 120, 130));
         load_subtar('p', 'partial,x,0,10,xs | ordered,y,0,1', 'v,v')",
    );
    let partial =
        ["#x,d,int64|y,d,int64|v,a,int32:1", "120,0,2", "120,1,3", "130,0,4", "130,1,5", "190,0,0", "190,1,1"];
    assert_eq!(rows(&place, "scan(p)"), partial);
    // Total over explicit dimensions, by indexes.
    done(
        &place,
        "create_dataset('e:double', literal(0.25, 0.5, 8)); create_tar('t', '*', 'explicit,x,e | explicit,y,e', 'v,int');
         create_dataset('xi:long', literal(2, 0, 1)); create_dataset('yi:long', literal(0, 0, 2));
         load_subtar('t', 'total,x,0,2,xi | total,y,0,2,yi', 'v,v')",
    );
    let total = ["#x,d,double|y,d,double|v,a,int32:1", "0.25,0.25,1", "0.5,8.0,2", "8.0,0.25,0"];
    assert_eq!(rows(&place, "scan(t)"), total);
    assert_eq!(rows(&place, "aggregate(t, count, v, n, y)"), ["#y,d,double|n,a,int64:1", "0.25,2", "8.0,1"]);
    session(&place).flush("").unwrap();
    assert_eq!(
        (rows(&place, "scan(t)"), rows(&place, "scan(p)"), rows(&place, "scan(g)")),
        (total.map(String::from).into(), partial.map(String::from).into(), gap.map(String::from).into())
    );
    done(
        &place,
        "create_dataset('bad:long', literal(2, 2, 1)); create_tar('u', '*', 'explicit,x,e | explicit,y,e', 'v,int')",
    );
    refused(&place, "load_subtar('u', 'total,x,0,2,bad | total,y,0,2,bad', 'v,v')", "there twice");
    refused(&place, "load_subtar('u', 'total,x,0,2,bad | ordered,y,0,2', 'v,v')", "then all are");
    refused(&place, "load_subtar('u', 'partial,x,0,2,bad | ordered,y,0,0', 'v,v')", "there twice");
    refused(&place, "load_subtar('u', 'partial,x,0,1,bad | ordered,y,0,0', 'v,v')", "within its bounds");
    shell.ends_and_leaves();
}

#[test]
fn every_operator_answers() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, IO);
    for (query, expected) in [
        ("scan(select(io))", &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1"][..]),
        ("where(io, a * 2 > 17 and not x = 3)", &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1", "4,30,11,11.0"]),
        ("select(where(io, a > 8), a)", &["#ID,d,int64|a,a,int32:1", "1,9", "2,11"]),
        ("select(where(io, a > 8), x, a)", &["#ID,d,int64|x,a,int64:1|a,a,int32:1", "1,3,9", "2,4,11"]),
        ("select(where(io, a > 8), y, b, x)", &["#y,d,int64|x,d,int64|b,a,double:1", "20,3,7.0", "30,4,11.0"]),
        (
            "subset(io, x, 1.5, 2.5, y, 15, 30)",
            &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1", "2,20,7,4.0", "2,30,3,5.0"],
        ),
        (
            "derive(where(io, a > 8), c, a % 2 + x ^ 2)",
            &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1|c,a,double:1", "3,20,9,7.0,10.0", "4,30,11,11.0,17.0"],
        ),
        (
            "derive(where(io, a = 9), q, a / 2)",
            &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1|q,a,double:1", "3,20,9,7.0,4.5"],
        ),
        (
            "aggregate(io, max, a, m, avg, b, mean, count, a, n, x)",
            &[
                "#x,d,int64|m,a,int32:1|mean,a,double:1|n,a,int64:1",
                "1,5,1.0,3",
                "2,7,4.0,3",
                "3,9,7.0,3",
                "4,11,10.0,3",
            ],
        ),
        ("aggregate(io, sum, a, s, min, b, l)", &["#ID,d,int32|s,a,int64:1|l,a,double:1", "0,63,0.0"]),
        ("aggregate(where(io, a > 8), sum, a, s, y)", &["#y,d,int64|s,a,int64:1", "20,9", "30,11"]),
        (
            "cross(where(io, a = 9), aggregate(io, max, a, m))",
            &[
                "#left_x,d,int64|left_y,d,int64|right_ID,d,int32|left_a,a,int32:1|left_b,a,double:1|right_m,a,int32:1",
                "3,20,0,9,7.0,11",
            ],
        ),
        (
            "cross(where(io, a = 9), where(io, a = 11))",
            &[
                "#left_x,d,int64|left_y,d,int64|right_x,d,int64|right_y,d,int64|left_a,a,int32:1|left_b,a,double:1\
                 |right_a,a,int32:1|right_b,a,double:1",
                "3,20,4,30,9,7.0,11,11.0",
            ],
        ),
        (
            "select(dimjoin(where(io, a > 8), io, x, x, y, y), left_x, left_y, right_a)",
            &["#left_x,d,int64|left_y,d,int64|right_a,a,int32:1", "3,20,9", "4,30,11"],
        ),
        (
            "dimjoin(where(io, a = 9), aggregate(io, sum, a, s, x), x, x)",
            &["#left_x,d,int64|left_y,d,int64|left_a,a,int32:1|left_b,a,double:1|right_s,a,int64:1", "3,20,9,7.0,19"],
        ),
        ("aggregate(equijoin(io, io, a, a), count, left_a, n)", &["#ID,d,int32|n,a,int64:1", "0,14"]),
        ("slice(io, x, 4)", &["#y,d,int64|a,a,int32:1|b,a,double:1", "10,8,9.0", "20,0,10.0", "30,11,11.0"]),
        (
            "aggregate(att2dim(io, a), count, b, n, a)",
            &["#a,d,int32|n,a,int64:1", "0,1", "1,1", "11,1", "2,1", "3,1", "4,1", "5,1", "6,1", "7,2", "8,1", "9,1"],
        ),
        (
            "union(slice(where(io, a > 8), y, 20), slice(io, y, 30))",
            &["#x,d,int64|a,a,int32:1|b,a,double:1", "1,2,2.0", "2,3,5.0", "3,9,7.0", "4,11,11.0"],
        ),
        (
            "subset(translate(where(io, a > 6), x, 100), x, 103, 104)",
            &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1", "103,20,9,7.0", "104,10,8,9.0", "104,30,11,11.0"],
        ),
        (
            "split(where(io, a > 8), 1)",
            &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1", "3,20,9,7.0", "4,30,11,11.0"],
        ),
        ("select(io, x, y, a); WHERE(io, a = 0);", &["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1", "4,20,0,10.0"]),
    ] {
        let query = query.rsplit_once("; ").map_or(query, |(_, last)| last);
        let found = rows(&place, query);
        match expected.len() {
            1 => assert_eq!((found.len(), found[0].as_str()), (13, expected[0]), "{query}"),
            _ => assert_eq!(found, expected, "{query}"),
        }
    }
    // Turned round, the other dimension is the slow one.
    let turned = done(&place, "reorient(select(where(io, a > 7), x, y, a), y)");
    assert_eq!(turned.lines().collect::<Vec<_>>(), ["#y,d,int64|x,d,int64|a,a,int32:1", "10,4,8", "20,3,9", "30,4,11"]);
    // The example that SAVIME's own pages have.
    let example =
        "aggregate(where(cross(io,aggregate(io,max,a,max_a,x)),left_a=right_max_a),max,left_y,y_at_max,left_x);";
    assert_eq!(rows(&place, example), ["#left_x,d,int64|y_at_max,a,int64:1", "1,10", "2,20", "3,20", "4,30"]);
    let functions = "derive(where(io, a = 9), f, sin(b) + cos(b) + tan(b) + asin(0.5) + acos(0.5) + atan(b) + sinh(1) + cosh(1) + tanh(b) \
        + asinh(b) + acosh(b) + atanh(0.5) + atan2(b, a) + exp(1) + log(b) + log10(b) + pow(b, 2) + sqrt(b) + ceil(b / 2) + floor(b / 2) \
        + round(b / 3) + abs(-a))";
    let (b, a) = (7f64, 9f64);
    let expected = b.sin()
        + b.cos()
        + b.tan()
        + 0.5f64.asin()
        + 0.5f64.acos()
        + b.atan()
        + 1f64.sinh()
        + 1f64.cosh()
        + b.tanh()
        + b.asinh()
        + b.acosh()
        + 0.5f64.atanh()
        + b.atan2(a)
        + 1f64.exp()
        + b.ln()
        + b.log10()
        + b.powi(2)
        + b.sqrt()
        + 4.0
        + 3.0
        + 2.0
        + a;
    let found: f64 = rows(&place, functions)[1].rsplit(',').next().unwrap().parse().unwrap();
    assert!((found - expected).abs() < 1e-12 * expected.abs(), "{found} {expected}");
    for (query, because) in [
        ("where(io, a)", "a condition is expected"),
        ("where(io, q > 1)", "no element `q`"),
        ("where(io, a != 1)", "`!`"),
        ("where(nothing, a > 1)", "no TAR `nothing`"),
        ("subset(io, x, 0, 3)", "from 1 to 4"),
        ("subset(io, x, 3, 2)", "wrong way round"),
        ("subset(io, a, 1, 2)", "not a dimension"),
        ("derive(io, a, 1)", "two elements"),
        ("derive(io, c, foo(a))", "not a function"),
        ("derive(io, c, pow(a))", "takes 2"),
        ("aggregate(io, median, a, m)", "aggregate"),
        ("aggregate(io, max, a, m, b)", "not a dimension"),
        ("slice(io, x, 7)", "no coordinate 7"),
        ("union(io, aggregate(io, max, a, m, x))", "different elements"),
        ("split(io, 0)", "split"),
        ("scan(io, io)", "scan(t)"),
        ("dimjoin(io, io, x)", "dimjoin(left"),
        ("dimjoin(io, io, a, x)", "not a dimension"),
    ] {
        refused(&place, query, because);
    }
    shell.ends_and_leaves();
}

#[test]
fn queries_of_a_grid_are_what_a_loop_computes() {
    const N: [u64; 3] = [21, 50, 51];
    let place = Wish::default().tier("ram", "256MiB").build();
    let shell = place.shell();
    let mut random = Random::new(7);
    let mut field = || {
        (0..N.iter().product::<u64>()).map(|_| random.below(1_000_000) as f64 / 100.0 - 5000.0).collect::<Vec<f64>>()
    };
    let (v, w) = (field(), field());
    for (name, values) in [("v", &v), ("w", &w)] {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        std::fs::write(place.scratch().join(name), bytes).unwrap();
    }
    let scratch = place.scratch().display().to_string();
    // By two loads, as two writers would; the second dataset begins where the first ends.
    done(
        &place,
        &format!(
            "create_tar('grid', '*', 'implicit,x,int,0,20,1 | implicit,y,int,0,49,1 | implicit,z,int,0,50,1', 'v,double | w,double');
             create_dataset('v:double', '@{scratch}/v'); create_dataset('w:double', '@{scratch}/w');
             load_subtar('grid', 'ordered,x,0,20 | ordered,y,0,49 | ordered,z,0,50', 'v,v | w,w')"
        ),
    );
    let cells = || (0..N[0]).flat_map(|x| (0..N[1]).flat_map(move |y| (0..N[2]).map(move |z| (x, y, z))));
    let at = |(x, y, z): (u64, u64, u64)| ((x * N[1] + y) * N[2] + z) as usize;
    let compare = |query: &str, keys: usize, expected: Vec<(Vec<u64>, Vec<f64>)>| {
        let said = done(&place, query);
        let mut found: Vec<(Vec<u64>, Vec<f64>)> = said
            .lines()
            .skip(1)
            .map(|line| {
                let parts: Vec<&str> = line.split(',').collect();
                (
                    parts[..keys].iter().map(|part| part.parse().unwrap()).collect(),
                    parts[keys..].iter().map(|part| part.parse().unwrap()).collect(),
                )
            })
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found.len(), expected.len(), "{query}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.0, expected.0, "{query}");
            let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
            assert!(found.1.iter().zip(&expected.1).all(is_near), "{query}: {found:?} {expected:?}");
        }
    };
    let inside = |(x, y, z): &(u64, u64, u64)| (3..=9).contains(x) && (10..=19).contains(y) && *z <= 7;
    let grouped = |key: &dyn Fn((u64, u64, u64)) -> u64, of: &dyn Fn((u64, u64, u64)) -> Option<f64>| {
        let mut groups: std::collections::BTreeMap<u64, (f64, f64)> = Default::default();
        for cell in cells() {
            if let Some(value) = of(cell) {
                let group = groups.entry(key(cell)).or_default();
                *group = (group.0 + value, group.1 + 1.0);
            }
        }
        groups.into_iter().map(|(key, (sum, count))| (vec![key], vec![sum / count])).collect::<Vec<_>>()
    };
    const BOX: &str = "subset(grid, x, 3, 9, y, 10, 19, z, 0, 7)";
    compare(
        &format!("select({BOX}, x, y, z, v)"),
        3,
        cells().filter(inside).map(|c| (vec![c.0, c.1, c.2], vec![v[at(c)]])).collect(),
    );
    compare(&format!("aggregate({BOX}, avg, v, m, x)"), 1, grouped(&|c| c.0, &|c| inside(&c).then(|| v[at(c)])));
    compare("aggregate(grid, avg, v, m, x)", 1, grouped(&|c| c.0, &|c| Some(v[at(c)])));
    compare("aggregate(grid, avg, v, m, z)", 1, grouped(&|c| c.2, &|c| Some(v[at(c)])));
    let high = |c: &(u64, u64, u64)| v[at(*c)] > 4900.0;
    compare(
        "select(where(grid, v > 4900), x, y, z, v)",
        3,
        cells().filter(high).map(|c| (vec![c.0, c.1, c.2], vec![v[at(c)]])).collect(),
    );
    let (count, sum) = cells().filter(high).fold((0.0, 0.0), |(count, sum), c| (count + 1.0, sum + v[at(c)]));
    compare("aggregate(where(grid, v > 4900), count, v, n, sum, v, s)", 1, vec![(vec![0], vec![count, sum])]);
    let joined = "aggregate(derive(dimjoin(grid, grid, x, x, y, y, z, z), d, left_v * right_w), avg, d, m, left_x)";
    compare(joined, 1, grouped(&|c| c.0, &|c| Some(v[at(c)] * w[at(c)])));
    let means: std::collections::HashMap<u64, f64> =
        grouped(&|c| c.0, &|c| Some(v[at(c)])).into_iter().map(|(key, mean)| (key[0], mean[0])).collect();
    let own = "aggregate(where(dimjoin(grid, aggregate(grid, avg, v, m, x), x, x), left_v > right_m + 4000), count, left_v, n, left_x)";
    let above = |c: (u64, u64, u64)| v[at(c)] > means[&c.0] + 4000.0;
    let mut counts: std::collections::BTreeMap<u64, f64> = Default::default();
    cells().filter(|c| above(*c)).for_each(|c| *counts.entry(c.0).or_default() += 1.0);
    compare(own, 1, counts.into_iter().map(|(x, count)| (vec![x], vec![count])).collect());
    done(
        &place,
        "create_tar('small', '*', 'implicit,k,int,1,3,1', 'f,double'); create_dataset('f:double', literal(1, 10, 100)); load_subtar('small', 'ordered,k,0,2', 'f,f')",
    );
    let crossed = "aggregate(derive(cross(where(grid, v > 4900), small), p, left_v * right_f), sum, p, s, right_k)";
    compare(crossed, 1, (0..3).map(|k| (vec![k + 1], vec![sum * 10f64.powi(k as i32)])).collect());
    shell.ends_and_leaves();
}

#[test]
fn a_result_is_stored_as_a_tar() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, IO);
    done(
        &place,
        "store(subset(io, x, 2, 3), 'part'); store(where(io, a > 8), 'sparse'); store(aggregate(io, max, a, m, y), 'tops')",
    );
    assert_eq!(rows(&place, "scan(part)"), rows(&place, "subset(io, x, 2, 3)"));
    assert_eq!(
        rows(&place, "scan(sparse)"),
        ["#x,d,int64|y,d,int64|a,a,int32:1|b,a,double:1", "3,20,9,7.0", "4,30,11,11.0"]
    );
    assert_eq!(sql(&place, "SELECT * FROM tops"), ["10,8", "20,9", "30,11"]);
    let shown = done(&place, "show()");
    assert!(shown.contains("implicit,x,long,2,3,1 | implicit,y,long,10,30,10"), "{shown}");
    refused(&place, "store(io, 'part')", "already");
    done(&place, "store(aggregate(io, max, a, m), 'one')");
    assert_eq!(rows(&place, "scan(one)"), ["#ID,d,int64|m,a,int32:1", "0,11"]);
    refused(&place, "subset(part, x, 1, 2)", "from 2 to 3");
    // A join stored and asked again.
    done(&place, "store(dimjoin(part, tops, y, y), 'both'); store(att2dim(sparse, a), 'wide')");
    assert_eq!(
        rows(&place, "where(both, left_a = right_m)"),
        ["#left_x,d,int64|left_y,d,int64|left_a,a,int32:1|left_b,a,double:1|right_m,a,int32:1", "3,20,9,7.0,9"]
    );
    assert_eq!(
        rows(&place, "scan(wide)"),
        ["#x,d,int64|y,d,int64|a,d,int64|b,a,double:1", "3,20,9,7.0", "4,30,11,11.0"]
    );
    shell.ends_and_leaves();
}

#[test]
fn commands_come_from_a_file_and_rows_go_in_every_format() {
    let place = Workplace::new();
    let shell = place.shell();
    let file = place.scratch().join("commands.savime");
    std::fs::write(&file, format!("{IO}\nselect(where(io, a = 9), x, y, a);")).unwrap();
    let said = Outcome::of(place.terrace("savime").args(["--format", "csv", "--file"]).arg(&file).output().unwrap())
        .ok()
        .stdout;
    assert!(said.ends_with("x,y,a\n3,20,9\n"), "{said}");
    let mut command = place.terrace("savime");
    std::fs::write(&file, "where(io, a = 9);").unwrap();
    command.args(["--format", "ndjson"]).stdin(std::fs::File::open(&file).unwrap()).stdout(Stdio::piped());
    assert_eq!(Outcome::of(command.output().unwrap()).ok().stdout, "{\"x\":3,\"y\":20,\"a\":9,\"b\":7.0}\n");
    let output = place.scratch().join("rows.parquet");
    let mut command = place.terrace("savime");
    Outcome::of(command.arg("--output").arg(&output).arg("scan(io)").output().unwrap()).ok();
    assert!(std::fs::read(output).unwrap().starts_with(b"PAR1"));
    let mut command = place.terrace("savime");
    let both = |command: &mut Command| Outcome::of(command.output().unwrap()).ok().stdout;
    let generic = both(command.args(["--generic", "--format", "csv", "aggregate(io, sum, a, s)"]));
    assert_eq!(generic, "ID,s\n0,63\n");
    shell.ends_and_leaves();
}

/// A raw array of a VTK file, by its name.
fn vtk_array(file: &[u8], name: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(file);
    let after = text.split_once(&format!("Name=\"{name}\"")).unwrap_or_else(|| panic!("no array {name}")).1;
    let offset: usize = after.split_once("offset=\"").unwrap().1.split('"').next().unwrap().parse().unwrap();
    const MARK: &[u8] = b"<AppendedData encoding=\"raw\">\n_";
    let data = file.windows(MARK.len()).position(|window| window == MARK).unwrap() + MARK.len() + offset;
    let length = u64::from_le_bytes(file[data..data + 8].try_into().unwrap()) as usize;
    file[data + 8..data + 8 + length].to_vec()
}

fn reals(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(8).map(|cell| f64::from_le_bytes(cell.try_into().unwrap())).collect()
}

#[test]
fn fields_are_drawn_as_vtk_files_by_their_roles() {
    let place = Workplace::new();
    let shell = place.shell();
    let out = place.scratch().join("out");
    let at = |name: &str| std::fs::read(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    done(
        &place,
        &format!(
            "create_tar('f', 'CartesianFieldData2d', 'implicit,when,int,5,6,1 | implicit,i,double,0,1,0.5 | implicit,j,int,0,1,1', 'p,double',
                'when,time,i,x,j,y');
             create_dataset('p:double', '0:1:11:1'); load_subtar('f', 'ordered,when,0,1 | ordered,i,0,2 | ordered,j,0,1', 'p,p');
             catalyze(f, '@{0}'); catalyze(where(f, p > 6), '@{0}'); catalyze('f', 'pictures')",
            out.display()
        ),
    );
    let second = at("f_t000001.vti");
    let text = String::from_utf8_lossy(&second);
    assert!(text.contains("WholeExtent=\"0 2 0 1 0 0\" Origin=\"0.0 0.0 0.0\" Spacing=\"0.5 1.0 1.0\""), "{text}");
    // x runs fastest in VTK.
    assert_eq!(reals(&vtk_array(&second, "p")), [6.0, 8.0, 10.0, 7.0, 9.0, 11.0]);
    let collection = String::from_utf8(at("f.pvd")).unwrap();
    assert!(collection.contains("timestep=\"6\" group=\"0\" part=\"0\" file=\"f_t000001.vti\""), "{collection}");
    let filtered = at("field_t000000.vti");
    assert!(reals(&vtk_array(&filtered, "p"))[0].is_nan());
    assert_eq!(vtk_array(&filtered, "vtkValidPointMask"), [0, 1, 1, 1, 1, 1]);
    assert!(session(&place).stat("pictures/f_t000000.vti").is_ok());
    // Coordinates of their own: a rectilinear grid. Without a type, names say what is what.
    done(
        &place,
        &format!(
            "create_dataset('e:double', literal(1, 2, 4)); create_tar('r', '*', 'explicit,x,e | implicit,y,int,0,1,1', 'q,float');
             create_dataset('q:float', '0:1:5:1'); load_subtar('r', 'ordered,x,0,2 | ordered,y,0,1', 'q,q'); catalyze(r, '@{}')",
            out.display()
        ),
    );
    assert_eq!(reals(&vtk_array(&at("r.vtr"), "x")), [1.0, 2.0, 4.0]);
    // A mesh of two triangles.
    done(
        &place,
        &format!(
            "create_tar('top', 'IncidenceTopology', 'implicit,cell,int,0,1,1 | implicit,corner,int,0,2,1', 'val,long', 'cell,incidentee,corner,incident');
             create_tar('geo', 'CartesianGeometry', 'implicit,index,long,0,3,1', 'at,double:2', 'index,index,at,coords');
             create_tar('data', 'UnstructuredFieldData', 'implicit,time,int,0,0,1 | implicit,index,long,0,3,1', 't,double', 'time,time,index,index');
             create_dataset('c:long', literal(0,1,2, 0,2,3)); load_subtar('top', 'ordered,cell,0,1 | ordered,corner,0,2', 'val,c');
             create_dataset('g:double:2', literal(0,0, 1,0, 1,1, 0,1)); load_subtar('geo', 'ordered,index,0,3', 'at,g');
             create_dataset('t:double', literal(10, 11, 12, 13)); load_subtar('data', 'ordered,time,0,0 | ordered,index,0,3', 't,t');
             catalyze(data, geo, top, '@{}')",
            out.display()
        ),
    );
    let mesh = at("data_t000000.vtu");
    assert_eq!(reals(&vtk_array(&mesh, "points")), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
    let connectivity: Vec<i64> = vtk_array(&mesh, "connectivity")
        .chunks_exact(8)
        .map(|cell| i64::from_le_bytes(cell.try_into().unwrap()))
        .collect();
    assert_eq!((connectivity, vtk_array(&mesh, "types")), (vec![0, 1, 2, 0, 2, 3], vec![5, 5]));
    assert_eq!(reals(&vtk_array(&mesh, "t")), [10.0, 11.0, 12.0, 13.0]);
    refused(&place, "catalyze(f, '@/tmp/x', 'script.py')", "no Catalyst script");
    refused(&place, "catalyze(f, '/etc/pictures')", "does not lie below the root");
    refused(&place, "catalyze(data, 'p')", "no dimension of the field has the role");
    shell.ends_and_leaves();
}

#[test]
fn python_asks_in_this_language_too() {
    let place = Workplace::new();
    let Some(python) = terrace_tests::python() else {
        return skipped("the Python package is not there; `make python` installs it");
    };
    let script = "
import terrace
session = terrace.connect()
print(session.savime(\"create_tar('t', '*', 'implicit,x,int,0,2,1', 'v,double'); create_dataset('v:double', literal(1, 2.5, 4))\").arrow().to_pylist())
session.savime(\"load_subtar('t', 'ordered,x,0,2', 'v,v')\").arrow()
answer = session.savime('where(t, v > 1)').arrow()
print(answer.to_pylist(), [field.metadata[b'terrace.element'].decode() for field in answer.schema])
print(session.sql('SELECT sum(v) AS s FROM t').arrow().to_pylist())
try:
    session.savime('scan(none)')
except terrace.TerraceError as error:
    print(error)
";
    let file = place.scratch().join("ask.py");
    std::fs::write(&file, script).unwrap();
    let query = library("terrace-query");
    let said = place.sh(&format!("TERRACE_QUERY={} {} {}", query.display(), python.display(), file.display()));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let expected = "[{'done': 'dataset v: 3 elements of double'}]\n[{'x': 1, 'v': 2.5}, {'x': 2, 'v': 4.0}] ['dimension', 'attribute']\n[{'s': 7.5}]\n";
    assert!(said.stdout.starts_with(expected) && said.stdout.contains("no TAR `none`"), "{}", said.stdout);
}

#[test]
fn no_text_breaks_the_language() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, IO);
    const WORDS: [&str; 44] = [
        "where",
        "select",
        "subset",
        "derive",
        "aggregate",
        "cross",
        "dimjoin",
        "split",
        "reorient",
        "scan",
        "slice",
        "union",
        "att2dim",
        "translate",
        "equijoin",
        "store",
        "show",
        "batch",
        "io",
        "io",
        "io",
        "x",
        "y",
        "a",
        "b",
        "1",
        "2",
        "30",
        "1e308",
        "'io'",
        "avg",
        "max",
        "count",
        "not",
        "and",
        "or",
        "like",
        "sqrt",
        "-",
        "*",
        "/",
        "=",
        "<",
        "%",
    ];
    let mut random = Random::new(11);
    let mut text = String::new();
    for _ in 0..1500 {
        let mut depth = 0;
        for _ in 0..random.below(14) + 1 {
            text += WORDS[random.below(WORDS.len() as u64) as usize];
            match random.below(5) {
                0 | 1 => {
                    text.push('(');
                    depth += 1;
                }
                2 if depth > 0 => {
                    text.push(')');
                    depth -= 1;
                }
                3 => text.push(' '),
                _ => text.push(','),
            }
        }
        text += &")".repeat(depth);
        text += "\n";
    }
    // Each by itself, asked of one process, as another program would.
    use std::io::{Read, Write};
    let mut worker = Command::new(library("terrace-query"))
        .arg("worker")
        .env("TERRACE_INDEX", place.runtime().join("index"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (worker.stdin.take().unwrap(), worker.stdout.take().unwrap());
    let mut answered = [0; 2];
    let nested = format!("scan({}io{})", "scan(".repeat(5000), ")".repeat(5000));
    let long = format!("where(io, a > 1{})", " and a > 1".repeat(50_000));
    for line in text.lines().chain([
        nested.as_str(),
        long.as_str(),
        "\u{0}",
        "scan(io)\u{0}",
        "'",
        "((((",
        "aggregate(io,max,a,m);;;",
    ]) {
        input.write_all(&(line.len() as u32 | 3 << 30).to_le_bytes()).unwrap();
        input.write_all(line.as_bytes()).unwrap();
        let mut went = [9];
        output.read_exact(&mut went).unwrap_or_else(|error| panic!("{line}: {error}"));
        answered[went[0] as usize] += 1;
        let length = if went[0] == 0 {
            let mut length = [0; 8];
            output.read_exact(&mut length).unwrap();
            u64::from_le_bytes(length)
        } else {
            let mut length = [0; 4];
            output.read_exact(&mut length).unwrap();
            u32::from_le_bytes(length) as u64
        };
        let mut told = vec![];
        (&mut output).take(length).read_to_end(&mut told).unwrap();
        assert_eq!(told.len() as u64, length);
    }
    assert!(answered[0] > 0 && answered[1] > 1000, "{answered:?}");
    drop(input);
    assert!(worker.wait().unwrap().success());
    shell.ends_and_leaves();
}

// What was wrong in SAVIME and libstaging.

/// `tests/tests/system/savime/staging.cpp`, or another program in C++, as its users build it.
fn compiled(place: &Workplace, source: &str) -> Option<PathBuf> {
    if Command::new("c++").arg("--version").output().is_err() {
        skipped("no C++ compiler here; scripts/setup.sh installs one");
        return None;
    }
    let source = checkout().join(source);
    let program = place.scratch().join(source.file_stem().unwrap());
    let libraries = library("libterrace.so");
    let output = Command::new("c++")
        .args(["-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(checkout().join("crates/capi/include"))
        .arg(&source)
        .arg(&libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.parent().unwrap().display()))
        .args(["-pthread", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Runs it with an agent that is reached by TCP.
fn staged(place: &Workplace, program: &PathBuf, arguments: &[&str]) -> Outcome {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("TERRACE_TOKEN_FILE", place.scratch().join("token"))
        .env("TERRACE_QUERY", library("terrace-query"));
    Outcome::within(900, &mut command)
}

const STAGING: &str = "tests/tests/system/savime/staging.cpp";

#[test]
fn listing_1_of_the_paper_runs_unchanged() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let Some(program) = compiled(&place, "examples/cpp/listing1.cpp") else { return };
    let served = Served::begin(&place, &[]);
    let outcome = staged(&place, &program, &[&served.address]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{}", outcome.stdout);
    let session = Session::open(&served.index).unwrap();
    let cells: Vec<f64> =
        session.open_array("grid/a", false).unwrap().get_values(&Region::whole(&[1000, 1000]).unwrap()).unwrap();
    assert!(cells.iter().enumerate().all(|(i, cell)| *cell == i as f64 * 0.5));
    assert!(session.stat("datasets/D").is_err());
    drop(session);
    served.end();
}

#[test]
fn sync_returns_when_what_was_written_is_there_so_memory_may_be_used_again() {
    let place = Wish::default().tier("ram", "512MiB").patience(300).build();
    let Some(program) = compiled(&place, STAGING) else { return };
    let served = Served::begin(&place, &[]);
    let times = 10_000;
    let outcome = staged(&place, &program, &["overwrite", &served.address, "2", &times.to_string()]);
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "", ""));
    let session = Session::open(&served.index).unwrap();
    for number in 0..times {
        let name = format!("datasets/D{number}");
        let mut cells = [0u8; 512];
        session.open_bytes(&name, false).unwrap().read_exact_at(0, &mut cells).unwrap();
        assert!(cells.chunks_exact(8).all(|cell| cell == i64::to_le_bytes(number)), "{name}");
    }
    drop(session);
    served.end();
}

#[test]
fn sync_tells_all_that_failed_once() {
    let place = Workplace::new();
    let Some(program) = compiled(&place, STAGING) else { return };
    let served = Served::begin(&place, &[]);
    let said = staged(&place, &program, &["failures", &served.address]).ok().stdout;
    for part in [
        "the dataset `twice` was not written",
        "no TAR `nothing`",
        "then none\n",
        "79 bytes are no elements of type double",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    drop(served);
}

#[test]
fn as_many_threads_write_as_were_asked_for() {
    let place = Wish::default().tier("ram", "512MiB").build();
    let Some(program) = compiled(&place, STAGING) else { return };
    let served = Served::begin(&place, &[]);
    let threads = |wanted: &str| {
        staged(&place, &program, &["threads", &served.address, wanted]).ok().stdout.trim().parse::<i32>().unwrap()
    };
    assert_eq!((threads("1"), threads("4")), (1, 4));
    let said = staged(&place, &program, &["large", &served.address, "4"]).ok().stdout;
    assert_eq!(said, "#ID,d,int32|n,a,int64:1\n0,5242880\n#i,d,int64|v,a,int32:2\n0,1,10\n1,2,20\n2,3,30\n");
    let session = Session::open(&served.index).unwrap();
    let parts = session.open_array("datasets/large", false).unwrap().staged_regions().unwrap().len();
    assert_eq!(parts, 4, "one part for each thread");
    drop(session);
    drop(served);
}

#[test]
fn commands_do_not_overtake_the_datasets_that_they_need() {
    let place = Wish::default().tier("ram", "256MiB").build();
    let Some(program) = compiled(&place, STAGING) else { return };
    let served = Served::begin(&place, &[]);
    let said = staged(&place, &program, &["ordered", &served.address, "4", "40"]).ok().stdout;
    let mut sums: Vec<(u64, u64)> = said
        .lines()
        .skip(1)
        .map(|line| line.split_once(',').map(|(step, sum)| (step.parse().unwrap(), sum.parse().unwrap())).unwrap())
        .collect();
    sums.sort_unstable();
    assert_eq!(sums, (0..40).map(|step| (step, step * 65536)).collect::<Vec<_>>());
    drop(served);
}

#[test]
fn the_greatest_of_negative_numbers_is_negative() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, "create_tar('t', '*', 'implicit,x,int,0,2,1', 'i,int | d,double | f,float'); create_dataset('i:int', literal(-5, -3, -1));
        create_dataset('d:double', literal(-5, -3, -1)); create_dataset('f:float', literal(-5, -3, -1)); load_subtar('t', 'ordered,x,0,2', 'i,i | d,d | f,f')");
    for (query, found) in [("max", "0,-1,-1.0,-1.0"), ("min", "0,-5,-5.0,-5.0")] {
        assert_eq!(rows(&place, &format!("aggregate(t, {query}, i, a, {query}, d, b, {query}, f, c)"))[1], found);
    }
    assert_eq!(rows(&place, "aggregate(where(t, d < -2), max, i, m)")[1], "0,-3");
    shell.ends_and_leaves();
}

#[test]
fn and_and_or_keep_savimes_order_here_and_sql_has_its_own() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, IO);
    // From the left: (x = 1 or x = 2) and y = 10; SQL: x = 1 or (x = 2 and y = 10).
    let count = |query: &str| rows(&place, &format!("aggregate({query}, count, a, n)"))[1].clone();
    assert_eq!(count("where(io, x = 1 or x = 2 and y = 10)"), "0,2");
    assert_eq!(sql(&place, "SELECT count(*) FROM io WHERE x = 1 OR x = 2 AND y = 10"), ["4"]);
    assert_eq!(count("where(io, x = 1 or (x = 2 and y = 10))"), "0,4");
    shell.ends_and_leaves();
}

#[test]
fn sums_of_large_integers_are_exact() {
    let place = Workplace::new();
    let shell = place.shell();
    done(
        &place,
        "create_tar('t', '*', 'implicit,x,int,0,1,1', 'v,long'); create_dataset('v:long', literal(9007199254740992, 1)); load_subtar('t', 'ordered,x,0,1', 'v,v')",
    );
    assert_eq!(
        rows(&place, "aggregate(t, sum, v, s, max, v, m)"),
        ["#ID,d,int32|s,a,int64:1|m,a,int64:1", "0,9007199254740993,9007199254740992"]
    );
    done(
        &place,
        "create_dataset('h:long', literal(9223372036854775807, 9223372036854775807)); create_tar('u', '*', 'implicit,x,int,0,1,1', 'v,long'); load_subtar('u', 'ordered,x,0,1', 'v,h')",
    );
    refused(&place, "aggregate(u, sum, v, s)", "does not fit in 64-bit integers");
    // What is made of narrow elements has room.
    done(
        &place,
        "create_dataset('i:int', literal(67515, -3)); create_tar('n', '*', 'implicit,x,int,0,1,1', 'i,int'); load_subtar('n', 'ordered,x,0,1', 'i,i')",
    );
    assert_eq!(rows(&place, "derive(n, q, i * i)")[1], "0,67515,4558275225");
    assert_eq!(rows(&place, "aggregate(n, sum, i * i, s)")[1], "0,4558275234");
    let root = rows(&place, "derive(n, r, sqrt(i))");
    assert_eq!((root[1].as_str(), root[2].as_str()), ("0,67515,259.8364870452185", "1,-3,NaN"));
    assert_eq!(rows(&place, "derive(subset(t, x, 0, 0), w, v + 1)")[1], "0,9007199254740992,9007199254740993");
    shell.ends_and_leaves();
}

#[test]
fn what_save_writes_makes_the_same_on_an_empty_root() {
    let place = Workplace::new();
    let shell = place.shell();
    let saved = place.scratch().join("saved");
    done(&place, IO);
    done(
        &place,
        "create_type('Grid(X, *Y)'); create_dataset('e:double', literal(0.5, 1, 4)); create_dataset('xi:long', literal(2, 0));
         create_dataset('when:long', literal(30, 10));
         create_tar('deep/t', 'Grid', 'explicit,x,e | implicit,t,int,0,*,10', 'v,int:2 | n,char:2', 'x,X');
         create_dataset('v:int:2', literal(1, 2, 3, 4)); create_dataset('n:char:2', literal('ab', 'c'));
         load_subtar('deep/t', 'total,x,0,2,xi | total,t,0,3,when', 'v,v | n,n')",
    );
    done(&place, &format!("save('@{}')", saved.display()));
    let asked = ["scan(io)", "scan('deep/t')", "show()"];
    let before = asked.map(|query| rows(&place, query));
    shell.ends_and_leaves();
    let other = Workplace::new();
    let shell = other.shell();
    Outcome::of(other.terrace("savime").arg("--file").arg(&saved).output().unwrap()).ok();
    assert_eq!(asked.map(|query| rows(&other, query)), before);
    // Below the root, too.
    done(&other, "drop_tar('io'); save('kept/all')");
    assert!(session(&other).stat("kept/all").is_ok());
    refused(&other, "save('/etc/savime')", "does not lie below the root");
    shell.ends_and_leaves();
}

#[test]
fn two_clients_with_equal_element_names_have_their_own_results() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, IO);
    std::thread::scope(|scope| {
        for factor in [3i64, -7] {
            let place = &place;
            scope.spawn(move || {
                let query = format!("aggregate(derive(io, c, a * {factor}), sum, c, s);").repeat(40);
                let said = Outcome::of(place.terrace("savime").args(["--format", "csv", &query]).output().unwrap())
                    .ok()
                    .stdout;
                assert_eq!(said, format!("ID,s\n0,{}\n", 63 * factor).repeat(40));
            });
        }
    });
    shell.ends_and_leaves();
}

#[test]
fn nobody_is_answered_without_the_token_and_only_the_address_that_was_named_listens() {
    let place = Workplace::new();
    let Some(program) = compiled(&place, STAGING) else { return };
    let served = Served::begin(&place, &[]);
    let wrong = place.scratch().join("wrong-token");
    std::fs::write(&wrong, "0000000000000000-and-less").unwrap();
    let mut command = Command::new(&program);
    command.args(["threads", &served.address]).env("TERRACE_TOKEN_FILE", &wrong);
    let outcome = Outcome::within(60, &mut command);
    assert!(outcome.stdout.starts_with("refused: "), "{}{}", outcome.stdout, outcome.stderr);
    let query = Command::new(library("terrace-query"))
        .args(["savime", "--connect", &format!("tcp://{}", served.address), "show()"])
        .env("TERRACE_TOKEN_FILE", &wrong)
        .output()
        .unwrap();
    assert!(!query.status.success() && query.stdout.is_empty());
    // The port is bound on loopback alone.
    let port: u16 = served.address.rsplit_once(':').unwrap().1.parse().unwrap();
    let listening = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let wanted = format!(":{port:04X} 00000000:0000 0A");
    let own: Vec<&str> = listening.lines().filter(|line| line.contains(&wanted)).collect();
    assert!(own.len() == 1 && own[0].contains(&format!("0100007F:{port:04X}")), "{own:?}");
    drop(served);
}

#[test]
fn no_client_stops_the_agent_or_reaches_past_the_root() {
    let place = Workplace::new();
    let shell = place.shell();
    done(&place, IO);
    let secret = place.scratch().join("secret");
    std::fs::write(&secret, [7u8; 64]).unwrap();
    for path in [
        secret.display().to_string(),
        format!("{}/../secret", place.root().display()),
        "../secret".into(),
        "/etc/passwd".into(),
    ] {
        refused(&place, &format!("create_dataset('s:int8', '{path}')"), "does not lie below the root");
        refused(&place, &format!("save('{path}')"), "does not lie below the root");
        refused(&place, &format!("catalyze(io, '{path}')"), "does not lie below the root");
    }
    for text in [
        "store(io, '../out')",
        "drop_tar('..')",
        "drop_dataset('../io/a')",
        "shutdown()",
        "scan('../x')",
        "create_dataset('../s:int', literal(1))",
    ] {
        refused(&place, text, "");
    }
    assert_eq!(std::fs::read(&secret).unwrap(), [7u8; 64]);
    assert_eq!(rows(&place, "aggregate(io, count, a, n)")[1], "0,12");
    shell.ends_and_leaves();
}

#[test]
fn a_subtar_is_seen_with_all_its_attributes_or_not_at_all() {
    let place = Wish::default().tier("ram", "512MiB").build();
    let shell = place.shell();
    done(&place, "create_tar('s', '*', 'implicit,t,int,0,*,1 | implicit,x,int,0,9999,1', 'p,long | q,long')");
    let mut load = String::new();
    for step in 0..60 {
        load += &format!(
            "create_dataset('p:long', '{step}:1:{step}:10000'); create_dataset('q:long', '{step}:1:{step}:10000');
             load_subtar('s', 'ordered,t,{step},{step} | ordered,x,0,9999', 'p,p | q,q'); drop_dataset('p'); drop_dataset('q');\n"
        );
    }
    let file = place.scratch().join("load");
    std::fs::write(&file, load).unwrap();
    let mut loader = place.terrace("savime").arg("--file").arg(&file).stdout(Stdio::null()).spawn().unwrap();
    let mut seen = 0;
    while loader.try_wait().unwrap().is_none() {
        let said =
            done(&place, &"aggregate(s, count, p, n, min, p, p0, max, p, p1, min, q, q0, max, q, q1, t);".repeat(5));
        for line in said.lines().filter(|line| !line.starts_with('#')) {
            let numbers: Vec<u64> = line.split(',').map(|number| number.parse().unwrap()).collect();
            assert!(numbers[1] == 10000 && numbers[2..].iter().all(|value| *value == numbers[0]), "{line}");
            seen += 1;
        }
    }
    assert!(loader.wait().unwrap().success() && seen > 0);
    assert_eq!(
        rows(&place, "aggregate(s, count, p, n, sum, q, s)")[1],
        format!("0,600000,{}", (0..60).sum::<u64>() * 10000)
    );
    assert_eq!(sql(&place, "SELECT count(*) FROM s WHERE p = q AND p = t"), ["600000"]);
    shell.ends_and_leaves();
}
