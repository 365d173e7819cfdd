//! What PDC got wrong: each entry is a test of its own. (Overlapping locks, and tags that keep an old value, are tested beside
//! the lock table and the tags' index as well.)

use std::process::Command;
use std::time::Duration;
use terrace_client::{
    ArraySpec, Create, DataType, Kind, LockMode, ObjectKind, Region, Session, TagMatch, TagQuery, TagValue, Transfer,
};
use terrace_tests::{Served, Workplace, again, wait_until};

fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

fn block(offset: &[u64], count: &[u64]) -> Region {
    Region::block(offset, count).unwrap()
}

const NO_WAIT: Option<Duration> = Some(Duration::ZERO);

#[test]
fn overlapping_writes_lose_no_update() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let array = session.create_array("a", &ArraySpec::new(DataType::Int32, &[100]), Create::New).unwrap();
    array.put_values(&block(&[0], &[60]), &[1i32; 60]).unwrap();
    array.put_values(&block(&[40], &[60]), &[2i32; 60]).unwrap();
    array.put_values(&block(&[50], &[5]), &[3i32; 5]).unwrap();
    let values = array.get_values::<i32>(&block(&[0], &[100])).unwrap();
    let expected = |i: usize| match i {
        0..40 => 1,
        50..55 => 3,
        _ => 2,
    };
    assert!(values.iter().enumerate().all(|(i, &value)| value == expected(i)), "{values:?}");
    // Another client, and after the flush the durable form, say the same.
    let other = self::session(&place).open_array("a", false).unwrap();
    assert_eq!(other.get_values::<i32>(&block(&[0], &[100])).unwrap(), values);
    session.evict("a").unwrap();
    assert_eq!(other.get_values::<i32>(&block(&[0], &[100])).unwrap(), values);
    drop((session, array, other));
    shell.ends_and_leaves();
}

#[test]
fn cells_that_were_never_written_are_the_fill_value() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let zero = session.create_array("zero", &ArraySpec::new(DataType::Int64, &[30, 30]), Create::New).unwrap();
    let spec = ArraySpec::new(DataType::Float32, &[30, 30]).fill(&9.5f32.to_le_bytes());
    let filled = session.create_array("filled", &spec, Create::New).unwrap();
    for _ in 0..2 {
        assert_eq!(zero.get_values::<i64>(&block(&[3, 3], &[9, 9])).unwrap(), [0; 81]);
        assert_eq!(filled.get_values::<f32>(&block(&[3, 3], &[9, 9])).unwrap(), [9.5; 81]);
        // Beside cells that were written, and from the durable form as well.
        filled.put_values(&block(&[20, 20], &[1, 1]), &[1.0f32]).unwrap();
        session.evict("").unwrap();
    }
    assert_eq!(filled.get_values::<f32>(&block(&[20, 19], &[1, 3])).unwrap(), [9.5, 1.0, 9.5]);
    drop((session, zero, filled));
    shell.ends_and_leaves();
}

#[test]
fn reading_and_writing_past_the_end_is_an_error_that_names_the_bounds() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let array = session.create_array("a", &ArraySpec::new(DataType::UInt8, &[10, 10]), Create::New).unwrap();
    let beyond = block(&[8, 0], &[3, 10]);
    let errors = [array.put(&beyond, &[0; 30]).unwrap_err(), array.get(&beyond, &mut [0; 30]).unwrap_err()];
    for error in errors {
        assert_eq!(error.kind, Kind::OutOfBounds);
        assert!(error.message.contains("[10, 10]"), "{error}");
    }
    assert_eq!(array.put(&block(&[0, 0], &[2, 2]), &[0; 3]).unwrap_err().kind, Kind::Invalid);
    assert_eq!(array.put(&block(&[0], &[2]), &[0; 2]).unwrap_err().kind, Kind::Invalid);
    assert_eq!(array.get_values::<i16>(&block(&[0, 0], &[1, 1])).unwrap_err().kind, Kind::Invalid);
    let readable = session.open_array("a", false).unwrap();
    assert_eq!(readable.put(&block(&[0, 0], &[1, 1]), &[1]).unwrap_err().kind, Kind::WrongKind);
    assert_eq!(session.open_array("none", false).err().unwrap().kind, Kind::NotFound);
    drop((session, array, readable));
    shell.ends_and_leaves();
}

#[test]
fn a_tag_that_is_put_again_has_the_new_value() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    session.create_container("c", Create::New).unwrap();
    session.create_array("c/a", &ArraySpec::new(DataType::UInt8, &[1]), Create::New).unwrap();
    session.put_tag("c/a", "band", TagValue::Text("J".into())).unwrap();
    session.put_tag("c/a", "band", TagValue::Text("K".into())).unwrap();
    session.put_tag("c", "year", TagValue::Int(1999)).unwrap();
    assert_eq!(session.get_tag("c/a", "band").unwrap(), Some(TagValue::Text("K".into())));
    let ask = |matches| session.query(&TagQuery { key: "band".into(), matches, below: "c".into() }).unwrap();
    assert!(ask(TagMatch::Exact(TagValue::Text("J".into()))).is_empty());
    assert_eq!(ask(TagMatch::Prefix("K".into())), ["c/a"]);
    assert_eq!(session.delete_tag("c", "none").unwrap_err().kind, Kind::NotFound);
    assert_eq!(session.put_tag("none", "k", TagValue::Int(1)).unwrap_err().kind, Kind::NotFound);
    session.flush("").unwrap();
    let text = std::fs::read_to_string(place.root().join("c/a/zarr.json")).unwrap();
    assert!(text.contains("\"band\": \"K\""), "{text}");
    // A new object of the same name is another object.
    session.remove("c/a", false).unwrap();
    session.create_array("c/a", &ArraySpec::new(DataType::UInt8, &[1]), Create::New).unwrap();
    assert_eq!(session.tags("c/a").unwrap(), []);
    drop(session);
    shell.ends_and_leaves();
}

/// The two halves of tests that need another process: this program again, doing one act.
#[test]
#[ignore = "run by other tests, as a process of its own"]
fn act() {
    let session = Session::open(std::path::Path::new(&std::env::var("ACT_INDEX").unwrap())).unwrap();
    match std::env::var("ACT").unwrap().as_str() {
        "lock and wait" => {
            let array = session.open_array("a", true).unwrap();
            let region = block(&[0], &[10]);
            let mut buffer = [0u8; 10];
            let mut mapped = array.map(&region, &mut buffer).unwrap();
            mapped.lock(LockMode::Write, NO_WAIT).unwrap();
            mapped.buffer().fill(7);
            session.create_bytes("locked", Create::New).unwrap();
            std::thread::sleep(Duration::from_secs(600));
        }
        "list" => {
            let entries = session.list("c").unwrap();
            let names: Vec<String> = entries.iter().map(|entry| format!("{}:{:?}", entry.name, entry.kind)).collect();
            println!("LISTED {}", names.join(" "));
        }
        other => panic!("no act `{other}`"),
    }
}

fn another_process(place: &Workplace, act: &str) -> Command {
    let mut command = again(module_path!(), "act");
    command.arg("--ignored");
    command.env("ACT", act).env("ACT_INDEX", place.runtime().join("index"));
    command
}

#[test]
fn a_lock_dies_with_its_client_and_what_it_had_not_published_is_discarded() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let array = session.create_array("a", &ArraySpec::new(DataType::UInt8, &[10]), Create::New).unwrap();
    let mut child = another_process(&place, "lock and wait").stdout(std::process::Stdio::null()).spawn().unwrap();
    session.wait_for("locked", Some(Duration::from_secs(60))).unwrap();
    let region = block(&[5], &[5]);
    assert_eq!(array.lock(&region, LockMode::Read, NO_WAIT).err().unwrap().kind, Kind::Busy);
    child.kill().unwrap();
    child.wait().unwrap();
    let lock = array.lock(&region, LockMode::Write, Some(Duration::from_secs(30))).unwrap();
    assert_eq!(array.get_values::<u8>(&block(&[0], &[10])).unwrap(), [0; 10]);
    drop((lock, session, array));
    shell.ends_and_leaves();
}

#[test]
fn a_container_is_listed_by_another_process() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    session.create_container("c", Create::New).unwrap();
    session.create_array("c/array", &ArraySpec::new(DataType::UInt8, &[1]), Create::New).unwrap();
    session.create_bytes("c/bytes", Create::New).unwrap().close().unwrap();
    session.create_container("c/inner", Create::New).unwrap();
    let output = another_process(&place, "list").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("LISTED array:Array bytes:Bytes inner:Container\n"), "{said}");
    drop(session);
    shell.ends_and_leaves();
}

#[test]
fn a_read_between_a_started_write_and_its_wait_is_old_or_new_and_never_half() {
    let place = terrace_tests::Wish::default().tier("ram", "64MiB").build();
    let shell = place.shell();
    let session = session(&place);
    let array = session.create_array("a", &ArraySpec::new(DataType::UInt64, &[1 << 16]), Create::New).unwrap();
    let whole = block(&[0], &[1 << 16]);
    for turn in 1..200u64 {
        let cells: Vec<u8> = turn.to_le_bytes().repeat(1 << 16);
        let transfer = array.start_put(&whole, cells);
        let read = array.get_values::<u64>(&whole).unwrap();
        assert!(read.iter().all(|&value| value == read[0]), "half of a put was read");
        assert!(read[0] == turn || read[0] == turn - 1, "{} in turn {turn}", read[0]);
        transfer.wait().unwrap();
        assert_eq!(array.get_values::<u64>(&block(&[77], &[1])).unwrap(), [turn]);
    }
    let transfers: Vec<Transfer> = (0..8u64)
        .map(|part| array.start_put(&block(&[part * 8192], &[8192]), part.to_le_bytes().repeat(8192)))
        .collect();
    Transfer::wait_all(transfers).unwrap();
    let got = array.start_get(&block(&[3 * 8192], &[1])).wait().unwrap();
    assert_eq!(got, 3u64.to_le_bytes());
    let refused = array.start_get(&block(&[1 << 16], &[1])).wait().unwrap_err();
    assert_eq!(refused.kind, Kind::OutOfBounds);
    drop((session, array));
    shell.ends_and_leaves();
}

#[test]
fn an_unlimited_dimension_is_grown_by_two_clients() {
    let place = Workplace::new();
    let shell = place.shell();
    let (first, second) = (session(&place), session(&place));
    let spec = ArraySpec::new(DataType::Float64, &[0, 4]).unlimited(0).chunks(&[3, 4]);
    let one = first.create_array("grows", &spec, Create::New).unwrap();
    let two = second.open_array("grows", true).unwrap();
    for row in 0..20u64 {
        let array = if row % 2 == 0 { &one } else { &two };
        array.put_values(&block(&[row, 0], &[1, 4]), &[row as f64; 4]).unwrap();
        assert_eq!(one.shape().unwrap(), [row + 1, 4]);
        assert_eq!(two.shape().unwrap(), [row + 1, 4]);
        if row == 9 {
            first.evict("grows").unwrap();
        }
    }
    two.grow(&[25, 4]).unwrap();
    assert_eq!(one.shape().unwrap(), [25, 4]);
    assert_eq!(one.put_values(&block(&[0, 4], &[1, 1]), &[1.0]).unwrap_err().kind, Kind::OutOfBounds);
    let values = one.get_values::<f64>(&block(&[0, 0], &[25, 4])).unwrap();
    assert!(values.chunks(4).enumerate().all(|(row, cells)| cells == [if row < 20 { row as f64 } else { 0.0 }; 4]));
    assert_eq!(first.stat("grows").unwrap().kind, ObjectKind::Array);
    first.evict("grows").unwrap();
    assert_eq!(second.stat("grows").unwrap().spec.unwrap().shape, [25, 4]);
    assert!(wait_until(5, || !place.root().join("grows/.staged").is_symlink()));
    drop((first, second, one, two));
    shell.ends_and_leaves();
}

#[test]
fn an_object_is_a_member_of_several_containers_under_its_one_name() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let there = Session::connect_to(&served.address, Served::TOKEN).unwrap();
    let spec = ArraySpec::new(DataType::Int32, &[4]);
    let array = here.create_array("run/v", &spec, Create::New).unwrap();
    here.create_bytes("run/log", Create::New).unwrap().close().unwrap();
    for container in ["best", "all"] {
        here.create_container(container, Create::New).unwrap();
    }
    let names = |session: &Session, container: &str| -> Vec<String> {
        session.members(container).unwrap().into_iter().map(|(name, _)| name).collect()
    };
    // By either way, twice as once; what lies in a container is a member of it.
    for (session, container) in [(&here, "best"), (&there, "all"), (&there, "best"), (&here, "run")] {
        session.add_member(container, "run/v").unwrap();
    }
    for session in [&here, &there] {
        assert_eq!(
            (names(session, "best"), names(session, "run")),
            (vec!["run/v".into()], vec!["run/log".into(), "run/v".into()])
        );
        assert_eq!(session.containers_of("run/v").unwrap(), ["all", "best", "run"]);
        assert_eq!(session.members("all").unwrap()[0].1.kind, ObjectKind::Array);
    }
    // One object: what is put by its name is what every container's member has.
    array.put_values(&block(&[0], &[4]), &[1i32, 2, 3, 4]).unwrap();
    let member = there.open_array(&names(&there, "best")[0], false).unwrap();
    assert_eq!(member.get_values::<i32>(&block(&[0], &[4])).unwrap(), [1, 2, 3, 4]);
    let kind = |done: terrace_client::Result<()>| done.unwrap_err().kind;
    assert_eq!(kind(here.add_member("best", "run")), Kind::WrongKind);
    assert_eq!(kind(here.add_member("run/v", "run/log")), Kind::WrongKind);
    assert_eq!(kind(here.add_member("best", "nothing")), Kind::NotFound);
    assert_eq!(kind(here.add_member("nothing", "run/v")), Kind::NotFound);
    assert_eq!(kind(here.remove_member("best", "run/log")), Kind::NotFound);
    assert_eq!(kind(there.remove_member("run", "run/v")), Kind::Invalid);
    // They outlive the agent, are followed to another name, and go with the object.
    drop((array, member, there));
    served.kill_agent(&place);
    here.rename("run", "first").unwrap();
    assert_eq!((names(&here, "best"), names(&here, "all")), (vec!["first/v".to_string()], vec!["first/v".to_string()]));
    here.remove_member("all", "first/v").unwrap();
    assert_eq!(here.containers_of("first/v").unwrap(), ["best", "first"]);
    assert!(here.exists("first/v").unwrap() && names(&here, "all").is_empty());
    here.remove("first/v", false).unwrap();
    assert!(names(&here, "best").is_empty());
    here.create_array("first/v", &spec, Create::New).unwrap();
    assert!(names(&here, "best").is_empty(), "a new object of that name is a member of what it was not added to");
    drop(here);
    served.end();
}
