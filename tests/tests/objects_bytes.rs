//! Bytes objects: a program that uses the client and programs that use files see the same things.

use terrace_client::{Create, Kind, ObjectKind, Session};
use terrace_tests::Workplace;

/// A session in the root of a run that stays as long as the shell.
fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

#[test]
fn a_bytes_object_is_an_ordinary_file_to_programs_and_the_other_way_round() {
    let place = Workplace::new();
    let mut shell = place.shell();
    let session = session(&place);
    session.create_container("study/a", Create::New).unwrap();
    assert_eq!(session.create_container("study/a", Create::New).unwrap_err().kind, Kind::Exists);
    let object = session.create_bytes("study/a/table", Create::New).unwrap();
    for block in 0..100u8 {
        assert_eq!(object.append(&[block; 2880]).unwrap(), block as u64 * 2880);
    }
    object.write_at(2880, b"again").unwrap();
    object.close().unwrap();
    let listed = shell.says("cd \"$ROOT/study/a\"; stat -c '%F %s' table; tail -c +2881 table | head -c 5; echo; printf words > from-a-program");
    assert_eq!(listed.trim(), "regular file 288000\nagain", "{listed}");

    let names: Vec<String> = session.list("study/a").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["from-a-program", "table"]);
    let found = session.stat("study/a/from-a-program").unwrap();
    assert_eq!((found.kind, found.bytes), (ObjectKind::Bytes, 5));
    let read = session.open_bytes("study/a/from-a-program", false).unwrap();
    let mut words = [0; 5];
    read.read_exact_at(0, &mut words).unwrap();
    assert_eq!(&words, b"words");
    assert_eq!(read.read_exact_at(3, &mut words).unwrap_err().kind, Kind::OutOfBounds);

    shell.says("rm \"$ROOT/study/a/table\"");
    assert_eq!(session.open_bytes("study/a/table", false).err().unwrap().kind, Kind::NotFound);
    session.remove("study/a/from-a-program", false).unwrap();
    assert_eq!(shell.says("ls \"$ROOT/study/a\"").trim(), "");
    drop((read, session));
    shell.ends_and_leaves();
}
