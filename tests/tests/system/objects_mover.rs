//! Policy for arrays: dropped at the end of a run, moved to the root, brought up before they are read.

use std::path::Path;
use terrace_client::{ArraySpec, Create, DataType, Region, Session, TagMatch, TagQuery, TagValue};
use terrace_objects::Place;
use terrace_objects::array::{Log, stages};
use terrace_tests::{Wish, Workplace, wait_until};

fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

/// An array of some rows of numbers, in chunks of a row.
fn create(session: &Session, name: &str, rows: u64) -> terrace_client::Array {
    let spec = ArraySpec::new(DataType::Float64, &[rows, 1000]).chunks(&[1, 1000]);
    let array = session.create_array(name, &spec, Create::New).unwrap();
    for row in 0..rows {
        let values: Vec<f64> = (0..1000).map(|column| (row * 1000 + column) as f64).collect();
        array.put_values(&Region::block(&[row, 0], &[1, 1000]).unwrap(), &values).unwrap();
    }
    array
}

fn used(place: &Workplace) -> u64 {
    place.status().unwrap().tiers[0].used_bytes
}

#[test]
fn an_array_that_policy_removes_is_gone_at_the_runs_end_and_others_stay() {
    let place =
        Wish::default().tier("ram", "16MiB").policy("flush = [\"**\", \"!work/**\"]\nevict = [\"work/**\"]").build();
    let shell = place.shell();
    let session = session(&place);
    session.create_container("work", Create::New).unwrap();
    drop((create(&session, "work/temporary", 10), create(&session, "kept", 10)));
    session.put_tag("work/temporary", "k", TagValue::Int(1)).unwrap();
    drop(session);
    shell.ends_and_leaves();
    let tree = place.settled_tree();
    assert!(!tree.has("work/temporary") && !tree.has("work/temporary/zarr.json"), "{tree:?}");
    assert!(tree.has("kept/zarr.json") && tree.has("kept/c/9/0"));

    // Nor does anything remember it.
    let shell = place.shell();
    let session = self::session(&place);
    let query = TagQuery { key: "k".into(), matches: TagMatch::Any, below: String::new() };
    assert!(session.query(&query).unwrap().is_empty());
    drop(session);
    shell.ends_and_leaves();
}

#[test]
fn an_array_that_policy_removes_is_gone_even_if_it_had_to_go_into_the_root_for_a_while() {
    let place =
        Wish::default().tier("ram", "1MiB").policy("flush = [\"**\", \"!work/**\"]\nevict = [\"work/**\"]").build();
    let shell = place.shell();
    let session = session(&place);
    session.create_container("work", Create::New).unwrap();
    // Three MiB in a tier of one.
    let arrays: Vec<_> = (0..4).map(|number| create(&session, &format!("work/a{number}"), 100)).collect();
    assert!(place.root().join("work/a0/c/0/0").exists(), "the tier was large enough: nothing was tested");
    let value = arrays[0].get_values::<f64>(&Region::block(&[99, 999], &[1, 1]).unwrap()).unwrap();
    assert_eq!(value, [99_999.0]);
    drop((session, arrays));
    shell.ends_and_leaves();
    let tree = place.settled_tree();
    assert!((0..4).all(|number| !tree.has(&format!("work/a{number}"))), "{tree:?}");
}

#[test]
fn an_array_that_policy_moves_leaves_the_tier_when_it_is_quiet_and_reads_the_same() {
    let place = Wish::default().tier("ram", "16MiB").policy("evict = [\"**\"]").build();
    let shell = place.shell();
    let session = session(&place);
    let array = create(&session, "moved", 20);
    assert!(used(&place) >= 20 * 8000);
    assert!(wait_until(30, || used(&place) < 8000), "{} bytes are still in the tier", used(&place));
    assert!(place.root().join("moved/c/19/0").exists());
    let row = array.get_values::<f64>(&Region::block(&[7, 0], &[1, 1000]).unwrap()).unwrap();
    assert_eq!((row[0], row[999]), (7000.0, 7999.0));
    drop((session, array));
    shell.ends_and_leaves();
}

#[test]
fn an_array_is_brought_up_by_its_name_in_the_prefetch_list() {
    let place = Wish::default().tier("ram", "16MiB").policy("prefetch = [\"input/wanted\"]").build();
    let shell = place.shell();
    let session = session(&place);
    session.create_container("input", Create::New).unwrap();
    drop((create(&session, "input/wanted", 12), create(&session, "input/other", 12)));
    drop(session);
    shell.ends_and_leaves();

    let shell = place.shell();
    let session = self::session(&place);
    let prefetched = || place.status().unwrap().counters.prefetched_files;
    assert!(wait_until(30, || prefetched() >= 12), "{} files were brought up", prefetched());
    // Its chunks and its metadata, and nothing of the other one.
    assert_eq!(prefetched(), 13);
    let array = session.open_array("input/wanted", true).unwrap();
    let values = array.get_values::<f64>(&Region::block(&[11, 5], &[1, 2]).unwrap()).unwrap();
    assert_eq!(values, [11_005.0, 11_006.0]);
    // A chunk that is written anew is not read from what was brought up.
    array.put_values(&Region::block(&[11, 5], &[1, 1]).unwrap(), &[-1.0]).unwrap();
    session.evict("input/wanted").unwrap();
    let values = array.get_values::<f64>(&Region::block(&[11, 5], &[1, 2]).unwrap()).unwrap();
    assert_eq!(values, [-1.0, 11_006.0]);
    drop((session, array));
    shell.ends_and_leaves();
}

#[test]
fn a_flush_says_least_and_greatest_values_of_regions_and_a_new_log_keeps_them() {
    let place = Wish::default().tier("ram", "16MiB").build();
    let shell = place.shell();
    let session = session(&place);
    let array = session.create_array("a", &ArraySpec::new(DataType::Float64, &[300, 100]), Create::New).unwrap();
    let row = |row: u64| Region::block(&[row, 0], &[1, 100]).unwrap();
    array.put_values(&row(0), &[2.5; 100]).unwrap();
    let mixed: Vec<f64> = (0..100).map(|i| (i as f64 - 50.0) * 10.0).collect();
    array.put_values(&row(1), &mixed).unwrap();
    let mut with_nan = mixed.clone();
    with_nan[70] = f64::NAN;
    array.put_values(&row(2), &with_nan).unwrap();

    let ranges = || {
        let index = Place::open(&place.runtime().join("index")).unwrap();
        let stage = stages(&index).pop().expect("the array is staged");
        let log = Log::open(&stage.log(&index)).unwrap();
        (0..3).map(|record| log.known_range(record)).collect::<Vec<_>>()
    };
    assert_eq!(ranges(), [None; 3]);
    session.flush("a").unwrap();
    let known = [Some((2.5, 2.5)), Some((-500.0, 490.0)), None];
    assert_eq!(ranges(), known);
    // A new generation of the log; and what a client looks at by itself.
    array.put_values(&row(3), &[7.0; 100]).unwrap();
    array.put_values(&row(0), &[9.0; 100]).unwrap();
    array.say_ranges().unwrap();
    let index = Place::open(&place.runtime().join("index")).unwrap();
    let stage = stages(&index).pop().unwrap();
    terrace_objects::array::compact(&index, &stage, terrace_objects::array::Drops::Nothing, &mut |_, _| Ok(()))
        .unwrap();
    let after: Vec<_> = ranges();
    assert_eq!(after, [known[1], known[2], Some((7.0, 7.0))]);
    assert!(Path::new(&place.root().join("a/zarr.json")).exists());
    drop((session, array));
    shell.ends_and_leaves();
}
