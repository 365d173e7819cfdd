//! `terrace serve`, and clients that reach its agent by TCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::panic::AssertUnwindSafe;
use std::process::Stdio;
use std::time::Duration;
use terrace_client::{ArraySpec, Create, DataType, Kind, LockMode, Region, Session, TagValue};
use terrace_core::objects::wire::{Request, encode};
use terrace_tests::{Random, Served, Wish, Workplace, compare_at_random, wait_until};

const TOKEN: &str = Served::TOKEN;

#[test]
fn a_client_elsewhere_sees_and_does_what_one_on_the_node_does() {
    let place = Wish::default().tier("ram", "32MiB").build();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let there = Session::connect_to(&served.address, TOKEN).unwrap();

    there.create_container("c/d", Create::New).unwrap();
    let spec = ArraySpec::new(DataType::Int32, &[60, 70]).chunks(&[20, 70]).fill(&7i32.to_le_bytes());
    let array = there.create_array("c/d/array", &spec, Create::New).unwrap();
    compare_at_random(&array, 11, 0..60, 200, |operation| {
        if operation % 60 == 30 {
            there.evict("c").unwrap();
        }
    });
    let region = Region::block(&[5, 5], &[2, 2]).unwrap();
    array.put_values(&region, &[1, 2, 3, 4]).unwrap();
    assert_eq!(here.open_array("c/d/array", false).unwrap().get_values::<i32>(&region).unwrap(), [1, 2, 3, 4]);
    assert_eq!(array.put(&Region::block(&[59, 0], &[2, 1]).unwrap(), &[0; 8]).unwrap_err().kind, Kind::OutOfBounds);

    let table = there.create_bytes("c/table", Create::New).unwrap();
    let content = Random::new(3).bytes(1_000_000);
    for block in content.chunks(2880) {
        table.append(block).unwrap();
    }
    table.close().unwrap();
    let read = there.open_bytes("c/table", false).unwrap();
    let mut got = vec![0; content.len()];
    for (number, block) in got.chunks_mut(2880).enumerate() {
        read.read_exact_at(number as u64 * 2880, block).unwrap();
    }
    assert!(got == content);
    let mut piece = [0; 100];
    read.read_exact_at(777_777, &mut piece).unwrap();
    assert_eq!(piece, content[777_777..777_877]);

    there.put_tag("c/table", "kind", TagValue::Text("table".into())).unwrap();
    assert_eq!(here.get_tag("c/table", "kind").unwrap(), Some(TagValue::Text("table".into())));
    let names: Vec<String> = there.list("c").unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["d", "table"]);
    there.remove("c/table", false).unwrap();
    assert!(!here.exists("c/table").unwrap());
    drop((here, there, array, read));
    served.end();
    place.settled_tree();
    assert!(place.root().join("c/d/array/zarr.json").exists());
}

/// Fetching ahead is under way in more files than it may be at a time, while one of them is read out of order, another by a child as well,
/// and the agent is killed.
#[test]
fn what_is_fetched_ahead_is_what_is_there() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let served = Served::begin(&place, &[]);
    let there = Session::connect_to(&served.address, TOKEN).unwrap();
    let mut random = Random::new(9);
    let contents: Vec<Vec<u8>> = (0..12).map(|_| random.bytes(1_500_000)).collect();
    for (number, content) in contents.iter().enumerate() {
        let file = there.create_bytes(&format!("file{number}"), Create::New).unwrap();
        file.write_at(0, content).unwrap();
        file.close().unwrap();
    }
    let open = |number: usize| there.open_bytes(&format!("file{number}"), false).unwrap();
    let files: Vec<_> = (0..12).map(open).collect();
    let same = |number: usize, at: usize, count: usize| {
        let mut got = vec![0xee; count];
        let wanted = &contents[number][at.min(1_500_000)..(at + count).min(1_500_000)];
        assert_eq!(files[number].read_at(at as u64, &mut got).unwrap(), wanted.len(), "file {number} at {at}");
        assert!(&got[..wanted.len()] == wanted, "file {number} at {at}");
    };
    for at in (0..400_000).step_by(2880) {
        (0..12).for_each(|number| same(number, at, 2880));
    }
    for at in [700_000, 702_880, 10, 300_000, 1_499_999, 1_500_000, 2_000_000] {
        same(0, at, 2880);
    }
    // SAFETY: the child reads, and ends without running anything of its parent's.
    match unsafe { libc::fork() } {
        0 => {
            let read = std::panic::catch_unwind(AssertUnwindSafe(|| {
                (400_000..1_500_000).step_by(2880).for_each(|at| same(1, at, 2880))
            }));
            // SAFETY: as above.
            unsafe { libc::_exit(read.is_err().into()) }
        }
        child => {
            (400_000..1_500_000).step_by(2880).for_each(|at| same(1, at, 2880));
            let mut status = -1;
            // SAFETY: the status is ours.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the child read something else");
        }
    }
    served.kill_agent(&place);
    for at in (400_000..1_500_000).step_by(28_800) {
        (2..12).for_each(|number| same(number, at, 28_800));
    }
    drop(files);
    drop(there);
    served.end();
}

#[test]
fn a_lock_from_elsewhere_ends_with_its_connection() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let there = Session::connect_to(&served.address, TOKEN).unwrap();
    let array = there.create_array("a", &ArraySpec::new(DataType::UInt8, &[10]), Create::New).unwrap();
    let region = Region::whole(&[10]).unwrap();
    let near = here.open_array("a", true).unwrap();
    let lock = array.lock(&region, LockMode::Write, Some(Duration::ZERO)).unwrap();
    assert_eq!(near.lock(&region, LockMode::Read, Some(Duration::ZERO)).err().unwrap().kind, Kind::Busy);
    drop(lock);
    near.lock(&region, LockMode::Read, Some(Duration::from_secs(30))).unwrap();
    drop((here, there, array, near));
    served.end();
}

#[test]
fn nobody_waits_for_a_lock_for_a_client_that_has_left() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let array = here.create_array("a", &ArraySpec::new(DataType::UInt8, &[10]), Create::New).unwrap();
    let region = Region::whole(&[10]).unwrap();
    let _held = array.lock(&region, LockMode::Write, None).unwrap();
    let agent = place.status().unwrap().agent_pid;
    let waiting = || {
        let threads = std::fs::read_dir(format!("/proc/{agent}/task")).unwrap().flatten();
        let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
        names.filter(|name| name.trim() == "elsewhere").count()
    };
    // Of which one accepts connections.
    assert_eq!(waiting(), 1);
    let mut client = TcpStream::connect(&served.address).unwrap();
    let lock = Request::Lock { path: "a".into(), region, exclusive: true, patience_ms: None };
    for request in [Request::Hello { token: TOKEN.into() }, lock] {
        client.write_all(&encode(&request, 0).unwrap()).unwrap();
    }
    assert!(wait_until(30, || waiting() == 2));
    drop(client);
    assert!(wait_until(30, || waiting() == 1), "a client that has left still waits");
}

#[test]
fn a_wrong_token_a_cut_message_and_noise_are_refused_and_nobody_else_is_hurt() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    for wrong in ["", "0123456789abcdef-and-mor", "0123456789abcdef-and-morE"] {
        assert_eq!(Session::connect_to(&served.address, wrong).err().unwrap().kind, Kind::Denied);
    }
    let there = Session::connect_to(&served.address, TOKEN).unwrap();
    let greeting = { encode(&Request::Hello { token: TOKEN.into() }, 0).unwrap() };
    let mut random = Random::new(5);
    for turn in 0..300 {
        let mut stream = TcpStream::connect(&served.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut noise = greeting.clone();
        let length = 1 + random.below(200) as usize;
        let message = match turn % 3 {
            0 => random.bytes(length),
            1 => {
                // A frame that is right, with a message that is not.
                let mut frame = greeting[..16].to_vec();
                frame[4..8].copy_from_slice(&(length as u32).to_le_bytes());
                frame.extend(random.bytes(length));
                frame
            }
            _ => {
                let at = random.below(noise.len() as u64) as usize;
                noise[at] ^= 1 << random.below(8);
                noise.clone()
            }
        };
        if turn % 3 != 2 {
            stream.write_all(&greeting).unwrap();
        }
        let _ = stream.write_all(&message);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = vec![];
        let _ = stream.read_to_end(&mut answer);
    }
    there.create_bytes("still", Create::New).unwrap().close().unwrap();
    assert!(there.exists("still").unwrap());
    drop(there);
    served.end();
}

#[test]
fn an_address_that_others_reach_is_reached_by_tls_only_because_a_token_would_travel_in_the_clear() {
    assert_eq!(Session::connect_to("192.0.2.1:7788", TOKEN).err().unwrap().kind, Kind::Denied);
    let place = Workplace::new();
    let token_file = place.scratch().join("made");
    let mut command = place.terrace("serve");
    command.args(["--quiet", "--listen", "0.0.0.0:0", "--token-file"]).arg(&token_file);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // What is missing is made, for this user alone, and used again by the next agent.
    let mut made = vec![];
    for suffix in ["", ".certificate", ".key", ".fingerprint"] {
        let file = place.scratch().join(format!("made{suffix}"));
        let found = std::fs::metadata(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777, 0o600, "{}", file.display());
        made.push(std::fs::read(&file).unwrap());
    }
    assert!(made[0].len() >= 16 && made[3].trim_ascii().len() == 64);
    // SAFETY: our own child.
    unsafe { libc::kill(process.id() as i32, libc::SIGTERM) };
    assert_eq!(process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_client_by_tls_sees_what_is_there_and_refuses_another_certificate() {
    let place = Workplace::new();
    let served = Served::begin(&place, &["--tls"]);
    let pinned = std::fs::read_to_string(place.scratch().join("token.fingerprint")).unwrap();
    let there = Session::connect_tls(&served.address, TOKEN, &pinned).unwrap();
    let content = Random::new(17).bytes(3_000_001);
    let spec = ArraySpec::new(DataType::UInt8, &[content.len() as u64]);
    let array = there.create_array("a", &spec, Create::New).unwrap();
    let whole = Region::whole(&[content.len() as u64]).unwrap();
    array.put(&whole, &content).unwrap();
    let here = Session::open(&served.index).unwrap();
    assert!(here.open_array("a", false).unwrap().get_values::<u8>(&whole).unwrap() == content);
    assert!(array.get_values::<u8>(&whole).unwrap() == content);

    let other = "00".repeat(32);
    let refused = Session::connect_tls(&served.address, TOKEN, &other).err().unwrap();
    assert!(refused.kind == Kind::Denied && refused.message.contains("another certificate"), "{refused}");
    let refused = Session::connect_tls(&served.address, "0123456789abcdef-wrong", &pinned).err().unwrap();
    assert!(refused.kind == Kind::Denied && refused.message.contains("token"), "{refused}");
    let refused = Session::connect_to(&served.address, TOKEN).err().unwrap();
    assert!(refused.kind == Kind::Denied && refused.message.contains("TLS"), "{refused}");
    assert_eq!(Session::connect_tls(&served.address, TOKEN, "no").err().unwrap().kind, Kind::Invalid);
    // An agent that speaks in the clear is not mistaken for one that speaks TLS.
    let plain = Workplace::new();
    let in_the_clear = Served::begin(&plain, &[]);
    let refused = Session::connect_tls(&in_the_clear.address, TOKEN, &pinned).err().unwrap();
    assert_eq!(refused.kind, Kind::Protocol, "{refused}");
    drop((there, here, array));
    served.end();
    in_the_clear.end();
}

/// As many connections as this process may have, up to 20,000, from the one address that the honest client has as well, to an agent
/// that may have 1,024 descriptors. Every other stranger says part of a greeting and no more.
#[test]
fn strangers_who_connect_and_wait_keep_no_honest_client_out() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure is ours.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
    let count = 20_000.min(limit.rlim_max.saturating_sub(500)) as usize;
    assert!(count > 3000, "{count} connections are no crowd");
    let place = Workplace::new();
    let served = Served::begin_in(&place, &Served::free_address(), &[], &["prlimit", "--nofile=1024:1024"]);
    let agent = place.status().unwrap().agent_pid;
    let holds = |what: &str| std::fs::read_dir(format!("/proc/{agent}/{what}")).unwrap().count();
    let threads = holds("task");
    let greeting = encode(&Request::Hello { token: TOKEN.into() }, 0).unwrap();
    let mut strangers = vec![];
    for number in 0..count {
        let mut stranger = TcpStream::connect(&served.address).unwrap_or_else(|error| panic!("{number}: {error}"));
        if number % 2 == 1 {
            // One who was sent away meanwhile can't say it any more.
            let _ = stranger.write_all(&greeting[..1 + number % (greeting.len() - 1)]);
        }
        strangers.push(stranger);
        if number % 2000 == 1999 || number + 1 == count {
            let there = Session::connect_to(&served.address, TOKEN).unwrap();
            there.create_bytes(&format!("file{number}"), Create::New).unwrap().close().unwrap();
            assert!(holds("fd") < 500, "{} descriptors after {number} strangers", holds("fd"));
            assert!(holds("task") < threads + 20, "{} threads after {number} strangers", holds("task"));
        }
    }
    // Whoever stays is sent away in the end, whatever he goes on saying.
    let mut slow = TcpStream::connect(&served.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut letters = greeting.iter();
    let ended = wait_until(60, || {
        let _ = letters.next().map(|letter| slow.write_all(&[*letter]));
        !matches!(slow.read(&mut [0; 64]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    });
    assert!(ended, "a stranger who says a byte at a time may stay for ever");
    drop(strangers);
    served.end();
}
