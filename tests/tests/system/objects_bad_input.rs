//! Bad input to objects: an error of the right kind that names the thing, and nothing changed.

use std::process::Command;
use terrace_client::{ArraySpec, Create, DataType, Kind, ObjectError, Region, Session, TagValue};
use terrace_tests::{Wish, Workplace, is_root, skipped};

fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

#[track_caller]
fn refused<T>(result: Result<T, ObjectError>, kind: Kind, names: &str) {
    match result {
        Ok(_) => panic!("this was accepted; {kind:?} about {names} was expected"),
        Err(error) => assert!(error.kind == kind && error.message.contains(names), "{kind:?}, {names}: {error:?}"),
    }
}

#[test]
fn bad_input_to_objects_is_refused_by_name_and_leaves_things_as_they_were() {
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let spec = ArraySpec::new(DataType::Float32, &[4, 5]);
    session.create_container("c", Create::New).unwrap();
    let array = session.create_array("c/a", &spec, Create::New).unwrap();
    session.create_bytes("c/file", Create::New).unwrap().close().unwrap();
    let whole = Region::whole(&[4, 5]).unwrap();
    array.put_values(&whole, &[1.5f32; 20]).unwrap();
    let block = |offset: &[u64], count: &[u64]| Region::block(offset, count).unwrap();

    // Types, ranks, bounds, lengths.
    refused(array.put_values(&whole, &[1.5f64; 20]), Kind::Invalid, "float32");
    refused(array.get_values::<i32>(&whole), Kind::Invalid, "float32");
    refused(array.put(&block(&[0], &[4]), &[0; 16]), Kind::Invalid, "1 dimensions, the array has 2");
    refused(array.get(&block(&[0; 3], &[1; 3]), &mut [0; 4]), Kind::Invalid, "3 dimensions");
    refused(array.put(&whole, &[0; 79]), Kind::Invalid, "79 bytes");
    refused(array.put(&block(&[4, 0], &[1, 1]), &[0; 4]), Kind::OutOfBounds, "[4, 5]");
    refused(array.get(&block(&[0, 5], &[1, 1]), &mut [0; 4]), Kind::OutOfBounds, "dimension 1");
    refused(array.grow(&[9, 5]), Kind::OutOfBounds, "[4, 5]");
    refused(Region::strided(&[0], &[2], &[0]), Kind::Invalid, "stride");
    refused(Region::block(&[u64::MAX], &[2]), Kind::OutOfBounds, "2^62");
    refused(array.lock(&block(&[0], &[1]), terrace_client::LockMode::Read, None), Kind::Invalid, "dimensions");

    // Arrays that can't be.
    let bad_specs = [
        (ArraySpec::new(DataType::UInt8, &[1; 9]), "9 dimensions"),
        (ArraySpec::new(DataType::UInt8, &[1 << 40, 1 << 40]), "too many cells"),
        (ArraySpec::new(DataType::UInt8, &[4]).chunks(&[0]), "chunks"),
        (ArraySpec::new(DataType::Int16, &[4]).fill(&[1]), "fill value of 1 bytes"),
        (ArraySpec::new(DataType::Bytes(0), &[4]), "strings of 0 bytes"),
    ];
    for (spec, names) in bad_specs {
        refused(session.create_array("c/bad", &spec, Create::New), Kind::Invalid, names);
        assert!(!session.exists("c/bad").unwrap(), "a refused array is there");
    }
    refused(DataType::parse("float128"), Kind::Invalid, "float128");

    // Names that are not there, are taken, or are another kind of object.
    refused(session.open_array("c/none", false), Kind::NotFound, "none");
    refused(session.open_bytes("c/none", false), Kind::NotFound, "none");
    refused(session.stat("none/at/all"), Kind::NotFound, "none");
    refused(session.remove("c/none", false), Kind::NotFound, "none");
    refused(session.list("none"), Kind::NotFound, "none");
    refused(session.put_tag("c/none", "k", TagValue::Int(1)), Kind::NotFound, "none");
    refused(session.create_array("c/a", &spec, Create::New), Kind::Exists, "c/a");
    refused(session.create_bytes("c/file", Create::New), Kind::Exists, "c/file");
    refused(session.create_array("c/file/a", &spec, Create::New), Kind::WrongKind, "c/file");
    refused(session.open_array("c/file", false), Kind::WrongKind, "a bytes object");
    refused(session.open_array("c", false), Kind::WrongKind, "a container");
    refused(session.open_bytes("c/a", false), Kind::WrongKind, "c/a");
    refused(session.list("c/file"), Kind::WrongKind, "c/file");
    let other = ArraySpec::new(DataType::Int8, &[4, 5]);
    refused(session.create_array("c/a", &other, Create::IfMissing), Kind::Exists, "float32");
    for name in ["../outside", "c/../../outside", "/etc/passwd", ".terrace/tmp/x", "a\0b"] {
        refused(session.open_bytes(name, false), Kind::Invalid, "is not an object's name");
        refused(session.create_array(name, &spec, Create::New), Kind::Invalid, "is not an object's name");
        refused(session.remove(name, true), Kind::Invalid, "is not an object's name");
    }
    refused(session.remove("", true), Kind::Invalid, "root");

    // Tags.
    refused(session.put_tag("c/a", "", TagValue::Int(1)), Kind::Invalid, "tag's key");
    refused(session.put_tag("c/a", "two\nlines", TagValue::Int(1)), Kind::Invalid, "two\\nlines");
    refused(session.put_tag("c/a", "k", TagValue::Text("x".repeat(2 << 20))), Kind::Invalid, "2097152 bytes");
    refused(session.delete_tag("c/a", "k"), Kind::NotFound, "k");

    assert_eq!(array.get_values::<f32>(&whole).unwrap(), [1.5; 20]);
    let names: Vec<String> = session.list("c").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["a", "file"]);
    assert_eq!(session.tags("c/a").unwrap(), []);
    drop((session, array));
    shell.ends_and_leaves();
}

/// A file system of a few MiB, unmounted at the end.
struct Small(tempfile::TempDir);

impl Small {
    fn mount(mib: u32) -> Option<Small> {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let script = format!(
            "cd {} && mkdir m && mount -t tmpfs -o size={mib}m,mode=755 none m && mkdir m/root",
            directory.path().display()
        );
        let is_mounted = is_root() && Command::new("sh").args(["-c", &script]).status().unwrap().success();
        if !is_mounted {
            skipped("a small file system can't be mounted here");
        }
        is_mounted.then_some(Small(directory))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        for _ in 0..100 {
            if Command::new("umount").arg(self.0.path().join("m")).status().is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
}

#[test]
fn a_full_last_tier_is_an_error_that_says_so_and_what_was_put_before_is_there() {
    let Some(small) = Small::mount(8) else { return };
    let place = Wish::default().root(&small.0.path().join("m/root")).tier("ram", "1MiB").build();
    let shell = place.shell();
    let session = session(&place);
    const ROW: u64 = 1 << 16;
    let array = session.create_array("a", &ArraySpec::new(DataType::UInt64, &[100, ROW]), Create::New).unwrap();
    let row = |number: u64| Region::block(&[number, 0], &[1, ROW]).unwrap();
    // Half a MiB each: 50 MiB do not go into 9.
    let mut last = 0;
    let full = loop {
        assert!(last < 100, "more was put than there is room for");
        match array.put_values(&row(last), &vec![last + 1; ROW as usize]) {
            Ok(()) => last += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind, Kind::NoSpace, "{full:?}");
    assert!(full.hint.as_ref().is_some_and(|hint| hint.contains("remove something")), "{full:?}");
    assert!(last >= 4, "only {last} rows had room");
    for number in 0..last {
        assert!(array.get_values::<u64>(&row(number)).unwrap().iter().all(|&cell| cell == number + 1), "row {number}");
    }
    assert_eq!(array.get_values::<u64>(&row(last)).unwrap()[0], 0, "half of a put that failed is there");
    // What the error says helps.
    session.remove("a", false).unwrap();
    let other = session.create_array("b", &ArraySpec::new(DataType::UInt64, &[1, ROW]), Create::New).unwrap();
    other.put_values(&row(0), &vec![7u64; ROW as usize]).unwrap();
    drop((session, array, other));
    shell.ends_and_leaves();
}

#[test]
fn bounds_and_strides_of_any_size_cost_what_the_cells_cost() {
    // The largest stride of a put.
    const FAR: u64 = u32::MAX as u64;
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    let spec = ArraySpec::new(DataType::Int32, &[0]).unlimited(0).chunks(&[4]);
    let array = session.create_array("a", &spec, Create::New).unwrap();
    let apart = Region::strided(&[1], &[3], &[FAR]).unwrap();
    array.put_values(&apart, &[7i32, 8, 9]).unwrap();
    for _ in 0..2 {
        assert_eq!(array.get_values::<i32>(&apart).unwrap(), [7, 8, 9]);
        session.evict("a").unwrap();
    }
    let near = Region::block(&[FAR], &[4]).unwrap();
    assert_eq!(array.get_values::<i32>(&near).unwrap(), [0, 8, 0, 0]);
    // What is cut off is gone, what is left is there: at the bound within a chunk, too.
    array.resize(&[FAR + 2]).unwrap();
    array.grow(&[2 * FAR + 2]).unwrap();
    assert_eq!(array.get_values::<i32>(&apart).unwrap(), [7, 8, 0]);
    array.resize(&[FAR + 1]).unwrap();
    array.grow(&[2 * FAR + 2]).unwrap();
    assert_eq!(array.get_values::<i32>(&apart).unwrap(), [7, 0, 0]);
    array.resize(&[0]).unwrap();
    array.grow(&[2 * FAR + 2]).unwrap();
    assert_eq!(array.get_values::<i32>(&apart).unwrap(), [0, 0, 0]);
    drop((session, array));
    shell.ends_and_leaves();
}
