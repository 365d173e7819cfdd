//! Bytes objects: a program that uses the client and programs that use files see the same things.

use std::time::{Duration, Instant};
use terrace_client::{Bytes, Create, Kind, ObjectKind, Session};
use terrace_tests::{Random, Served, Wish, Workplace, wait_until};

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

/// Each makes durable what it has written as soon as it has, while another one is just opening the file: several want the replica current again
/// at once, and who waits for the agent meanwhile must not have the file as it was.
#[test]
fn what_several_write_and_flush_at_once_is_all_there() {
    const WRITERS: u64 = 4;
    const PART: usize = 4096;
    let place = Workplace::new();
    let shell = place.shell();
    let session = session(&place);
    for round in 0..200 {
        let name = format!("shared{round}");
        let begun = std::sync::Barrier::new(WRITERS as usize);
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (place, name, begun) = (&place, &name, &begun);
                scope.spawn(move || {
                    let own = self::session(place);
                    begun.wait();
                    let file = own.create_bytes(name, Create::IfMissing).unwrap();
                    file.write_at(writer * PART as u64, &[writer as u8 + 1; PART]).unwrap();
                    file.close().unwrap();
                    own.flush(name).unwrap();
                });
            }
        });
        let file = session.open_bytes(&name, false).unwrap();
        let mut found = vec![0; WRITERS as usize * PART];
        file.read_exact_at(0, &mut found).unwrap();
        let firsts: Vec<u8> = found.chunks(PART).map(|part| part[0]).collect();
        assert_eq!(firsts, [1, 2, 3, 4], "round {round}");
        drop(file);
        session.remove(&name, false).unwrap();
    }
    drop(session);
    shell.ends_and_leaves();
}

pub fn text_of(file: &Bytes) -> String {
    let mut text = vec![0; file.len().unwrap() as usize];
    let got = file.read_at(0, &mut text).unwrap();
    String::from_utf8_lossy(&text[..got]).into_owned()
}

/// A session on the node, and two by TCP.
fn near_and_far(served: &Served) -> [Session; 3] {
    let far = || Session::connect_to(&served.address, Served::TOKEN).unwrap();
    [Session::open(&served.index).unwrap(), far(), far()]
}

/// A copy out of a mapping that is cut off ends with a signal: a reader's own, and the agent's for one elsewhere.
#[test]
fn a_file_that_is_cut_off_while_it_is_read_ends_nobody() {
    const LENGTH: usize = 4 << 20;
    let place = Wish::default().tier("ram", "64MiB").build();
    let served = Served::begin(&place, &[]);
    let [here, there, _] = near_and_far(&served);
    let written = here.create_bytes("file", Create::New).unwrap();
    let agent = place.status().unwrap().agent_pid;
    let end = Instant::now() + Duration::from_secs(4);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                written.set_len(4096).unwrap();
                written.set_len(0).unwrap();
                written.write_at(0, &vec![b'a'; LENGTH]).unwrap();
                written.flush().unwrap();
            }
        });
        for session in [&here, &there] {
            scope.spawn(|| {
                let read = session.open_bytes("file", false).unwrap();
                let mut got = vec![0; LENGTH];
                while Instant::now() < end {
                    let count = read.read_at(0, &mut got).unwrap();
                    assert!(got[..count].iter().all(|&byte| byte == b'a' || byte == 0));
                }
            });
        }
    });
    assert_eq!(place.status().unwrap().agent_pid, agent, "the agent has died");
    drop((here, there, written));
    served.end();
}

#[test]
fn handles_of_a_flushed_file_see_what_is_written_to_it() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let served = Served::begin(&place, &[]);
    let [here, there, other] = near_and_far(&served);
    for (number, writer) in [&here, &other].into_iter().enumerate() {
        for is_brought_back in [false, true] {
            let name = format!("file{number}{is_brought_back}");
            let made = here.create_bytes(&name, Create::New).unwrap();
            made.write_at(0, b"count=1").unwrap();
            made.close().unwrap();
            here.flush(&name).unwrap();
            if is_brought_back {
                here.evict(&name).unwrap();
                here.prefetch(&name).unwrap();
            }
            let (near, far) = (here.open_bytes(&name, false).unwrap(), there.open_bytes(&name, false).unwrap());
            assert_eq!((text_of(&near), text_of(&far)), ("count=1".into(), "count=1".into()));
            let written = writer.open_bytes(&name, true).unwrap();
            written.write_at(6, b"2").unwrap();
            written.close().unwrap();
            assert_eq!(text_of(&near), "count=2", "{name}");
            assert_eq!(text_of(&there.open_bytes(&name, false).unwrap()), "count=2", "{name}");
            assert!(wait_until(5, || text_of(&far) == "count=2"), "{name}: what was fetched is used for a second");
            // Read, changed and written back by one elsewhere.
            let changed = there.open_bytes(&name, true).unwrap();
            assert_eq!(text_of(&changed), "count=2", "{name}");
            changed.write_at(6, b"3").unwrap();
            changed.close().unwrap();
            assert_eq!(
                (text_of(&near), text_of(&there.open_bytes(&name, false).unwrap())),
                ("count=3".into(), "count=3".into())
            );
        }
    }
    drop((here, there, other));
    served.end();
}

#[test]
fn a_handle_stays_with_its_file_when_the_name_becomes_another_ones() {
    const LENGTH: usize = 600_000;
    let place = Wish::default().tier("ram", "64MiB").build();
    let served = Served::begin(&place, &[]);
    let [here, there, other] = near_and_far(&served);
    let mut random = Random::new(4);
    let (old, new) = (random.bytes(LENGTH), random.bytes(LENGTH));
    for (number, session) in [&here, &there].into_iter().enumerate() {
        let name = format!("file{number}");
        let put = |content: &[u8]| {
            let made = other.create_bytes(&name, Create::New).unwrap();
            made.write_at(0, content).unwrap();
            made.close().unwrap();
        };
        put(&old);
        let (read, write) = (session.open_bytes(&name, false).unwrap(), session.open_bytes(&name, true).unwrap());
        let mut got = vec![0; LENGTH];
        read.read_exact_at(0, &mut got[..100_000]).unwrap();
        other.remove(&name, false).unwrap();
        put(&new);
        read.read_exact_at(100_000, &mut got[100_000..]).unwrap();
        assert!(got == old, "{name}: bytes of two files");
        write.write_at(0, b"to the old one").unwrap();
        write.close().unwrap();
        let mut now = vec![0; LENGTH];
        other.open_bytes(&name, false).unwrap().read_exact_at(0, &mut now).unwrap();
        assert!(now == new, "{name}: written into another file");
    }
    drop((here, there, other));
    served.end();
}

#[test]
fn appends_by_several_threads_of_one_handle_are_all_there() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let [here, there, _] = near_and_far(&served);
    for (session, count) in [(&here, 50_000u32), (&there, 5_000)] {
        let file = session.create_bytes("file", Create::Replace).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..count).for_each(|number| _ = file.append(&number.to_le_bytes()).unwrap()));
            }
        });
        let mut all = vec![0; count as usize * 16];
        file.read_exact_at(0, &mut all).unwrap();
        let mut numbers: Vec<u32> = all.chunks(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect();
        numbers.sort_unstable();
        let wanted: Vec<u32> = (0..count).flat_map(|number| [number; 4]).collect();
        assert!(numbers == wanted && file.len().unwrap() == count as u64 * 16);
    }
    drop((here, there));
    served.end();
}
