//! Fuzzing the language that clients and agents speak about objects: its codec, and whole connections to a live agent.
//!
//! Here, random inputs for the time that each target says. `cargo bolero test -p terrace-tests --test fuzz TARGET` runs the same targets
//! with an engine that is led by coverage; `BOLERO_RANDOM_TEST_TIME_MS` makes them longer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use terrace_client::{ArraySpec, Create, DataType, Region, Session, TagMatch, TagQuery, TagValue};
use terrace_core::objects::wire::{
    FRAME_BYTES, FileRef, Frame, MESSAGE_BYTES_MAX, Request, Response, There, decode, encode,
};
use terrace_core::objects::{Kind, Overlap};
use terrace_tests::{Served, Wish, wait_until};

const CODEC_TIME: Duration = Duration::from_secs(20);
const CONNECTIONS_TIME: Duration = Duration::from_secs(30);

/// One of each kind, on the objects of `furnish`.
fn requests() -> Vec<Request> {
    let path = |name: &str| name.to_owned();
    // Each client has the same one, and so each other's.
    let file = |name: &str, writable| FileRef { path: name.into(), open: 1 + u64::from(writable), writable };
    let region = Region::strided(&[1, 2], &[3, 4], &[5, 6]).unwrap();
    let corner = Region::block(&[0, 0], &[4, 4]).unwrap();
    let spec = ArraySpec::new(DataType::Int32, &[0, 9]).unlimited(0).chunks(&[4, 9]).dimensions(&["t", "x"]);
    let query = |matches| Request::Query { query: TagQuery { key: "k".into(), matches, below: path("c") } };
    vec![
        Request::Hello { token: "fedcba9876543210-and-more".into() },
        Request::Flush { path: path("c") },
        Request::Evict { path: path("c/array") },
        Request::Prefetch { path: path("c") },
        Request::Compact { path: path("c/array") },
        Request::MakeRoom { bytes: 1 << 20 },
        Request::Chunk { path: path("c/array"), chunk: vec![0, 1] },
        Request::PutTags { path: path("c/array"), tags: vec![("k".into(), TagValue::Floats(vec![1.5, f64::NAN]))] },
        Request::PutTags { path: path("c"), tags: vec![("k".into(), TagValue::Text("words".into()))] },
        Request::DeleteTag { path: path("c/array"), key: "k".into() },
        Request::ForgetTags { path: path("c/array") },
        Request::Tags { path: path("c/array") },
        Request::Tag { path: path("c/array"), key: "k".into() },
        Request::Regions { path: path("c/array"), dimension: 1, from: 3 },
        Request::SyncForwards { path: path("c"), patience_ms: Some(5) },
        Request::Forwarder { who: 7 },
        query(TagMatch::Range { low: Some(TagValue::Int(-5)), high: None }),
        query(TagMatch::Prefix("wor".into())),
        Request::Root,
        Request::Stat { path: path("c/array") },
        Request::List { path: path("c") },
        Request::CreateContainer { path: path("c/new") },
        Request::Remove { path: path("c/new"), with_contents: true },
        Request::CreateArray { path: path("c/made"), spec },
        Request::PutRegion { path: path("c/array"), region: corner, step: 0 },
        Request::PutRegion { path: path("c/array"), region, step: 3 },
        Request::GetRegion { path: path("c/array"), region },
        Request::GetRegion { path: path("../outside/array"), region: corner },
        Request::Resize { path: path("c/array"), shape: vec![40, 30] },
        Request::Rename { from: path("c/array"), to: path("c/moved") },
        Request::Rename { from: path("c/file"), to: path("../outside/file") },
        Request::Renamed { from: path("c/moved"), to: path("c/array") },
        Request::Reshape { path: path("c/array"), shape: vec![9, 7] },
        Request::CreateBytes { file: file("c/file", true), exclusive: false },
        Request::OpenBytes { file: file("c/file", false) },
        Request::WriteBytes { file: file("c/file", true), position: 7 },
        Request::ReadBytes { file: file("c/file", true), position: 2, count: 100 },
        Request::ReadBytes { file: file("../outside/secret", false), position: 0, count: 100 },
        Request::ReadBytes { file: file(".terrace/tmp/x", false), position: 0, count: 100 },
        Request::SetLength { file: file("c/file", true), length: 3000 },
        Request::LengthOf { file: file("c/file", false) },
        Request::CloseBytes { open: 2 },
        Request::Lock { path: path("c/array"), region: corner, exclusive: true, patience_ms: Some(5) },
        Request::Lock { path: path("c/array"), region: corner, exclusive: true, patience_ms: None },
        Request::Unlock { path: path("c/array"), lock: 1 },
        Request::Fabric { provider: "tcp".into(), address: vec![2, 0, 0, 9, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0] },
        Request::PullRegion { path: path("c/array"), region: corner, bytes: 64, from: There { at: 0, key: 1 } },
        Request::PushRegion { path: path("c/array"), region, bytes: 64, to: There { at: 4096, key: 0 } },
    ]
}

fn responses() -> Vec<Response> {
    let refused = terrace_client::ObjectError::invalid("no").hint("do");
    vec![
        Response::Done,
        Response::Failed(refused),
        Response::Bytes,
        Response::Written { bytes: 7 },
        Response::Tags { tags: vec![("k".into(), TagValue::Ints(vec![1, -1]))] },
        Response::Paths { paths: vec!["a".into(), "b/c".into()] },
        Response::Locked { lock: 9 },
    ]
}

/// What is done to a message: which it is, bytes that are set, bytes that are put in, and where it is cut off (most are not).
type Damage = (u8, Vec<(u16, u8)>, Vec<(u16, u8)>, u16);

fn damaged(messages: &[Vec<u8>], (which, set, put_in, cut): &Damage) -> Vec<u8> {
    let mut bytes = messages[*which as usize % messages.len()].clone();
    for (at, value) in set.iter().take(4) {
        let at = *at as usize % bytes.len();
        bytes[at] = *value;
    }
    for (at, value) in put_in.iter().take(3) {
        bytes.insert(*at as usize % (bytes.len() + 1), *value);
    }
    if cut % 4 == 0 {
        bytes.truncate(*cut as usize % (bytes.len() + 1));
    }
    bytes
}

/// A message that can be read is written again as one that reads the same, and makes sense.
fn check_message(bytes: &[u8]) {
    if let Ok(request) = decode::<Request>(bytes) {
        let again = encode(&request, 0).expect("what was read can be written");
        let read: Request = decode(&again[FRAME_BYTES..]).expect("what was written can be read");
        // By their bytes: not every number equals itself.
        assert_eq!(encode(&read, 0).unwrap(), again);
        match request {
            Request::PutRegion { region, .. } | Request::GetRegion { region, .. } | Request::Lock { region, .. } => {
                let corner = Region::block(&[0; 8][..region.rank()], &[7; 8][..region.rank()]).unwrap();
                if let Some(common) = Overlap::of(&region, &corner) {
                    assert!(common.cells() <= corner.cells() && common.cells() <= region.cells());
                }
                assert!(region.end().iter().all(|&end| end <= 1 << 62));
            }
            Request::CreateArray { spec, .. } => {
                if let Ok(spec) = spec.checked() {
                    assert!(Region::whole(&spec.shape).is_ok() && spec.fill.len() == spec.data_type.size());
                    assert_eq!(spec.clone().checked(), Ok(spec), "what was checked passes again");
                }
            }
            _ => {}
        }
    }
    if let Ok(response) = decode::<Response>(bytes) {
        let again = encode(&response, 0).expect("what was read can be written");
        assert!(decode::<Response>(&again[FRAME_BYTES..]).is_ok());
    }
    if let Ok(head) = <[u8; FRAME_BYTES]>::try_from(&bytes[..bytes.len().min(FRAME_BYTES)])
        && let Ok(frame) = Frame::decode(&head)
    {
        assert!(frame.message_bytes <= MESSAGE_BYTES_MAX);
        assert_eq!(frame.encode(), head);
    }
}

fn bodies() -> Vec<Vec<u8>> {
    let requests = requests().into_iter().map(|request| encode(&request, 0).unwrap());
    let responses = responses().into_iter().map(|response| encode(&response, 0).unwrap());
    requests.chain(responses).map(|mut message| message.split_off(FRAME_BYTES)).collect()
}

#[test]
fn every_message_is_read_as_what_it_says_or_refused() {
    let messages = bodies();
    messages.iter().for_each(|message| check_message(message));
    bolero::check!().with_test_time(CODEC_TIME).with_iterations(usize::MAX).with_type::<(Damage, Vec<u8>)>().for_each(
        |(damage, noise)| {
            check_message(&damaged(&messages, damage));
            check_message(noise);
        },
    );
}

const TOKEN: &str = Served::TOKEN;
/// In a file outside the root that the agent may read.
const SECRET: &str = "what-nobody-else-may-see";

/// What a process holds: descriptors, threads, MiB of memory.
fn holdings(pid: u32) -> (usize, usize, u64) {
    let count = |what: &str| std::fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    let kib: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    (count("fd"), count("task"), kib >> 10)
}

/// What requests are about. Conversations may have made other things of these names, of other shapes; what could be put is there.
fn furnish(session: &Session) {
    let _ = session.create_container("c", Create::IfMissing);
    let spec = ArraySpec::new(DataType::UInt8, &[0, 30]).unlimited(0).chunks(&[8, 30]);
    if let Ok(array) = session.create_array("c/array", &spec, Create::IfMissing) {
        let all = Region::whole(&[20, 30]).unwrap();
        if array.put(&all, &[7; 600]).is_ok() {
            assert_eq!(array.get_values::<u8>(&all).unwrap(), [7; 600], "what was put after a conversation has ended");
        }
    }
    if let Ok(file) = session.create_bytes("c/file", Create::Replace) {
        let _ = file.append(&[7; 5000]);
    }
}

/// Says all that to the agent, and gives what it answers until it hangs up.
fn say(mut stream: impl Read + Write, conversation: &[u8], end: impl FnOnce()) -> Vec<u8> {
    let _ = stream.write_all(conversation);
    end();
    let mut answers = vec![];
    let _ = stream.read_to_end(&mut answers);
    answers
}

/// Answers one after the other; `None`: they are not frames.
fn answers(mut bytes: &[u8]) -> Option<Vec<Response>> {
    let mut found = vec![];
    while !bytes.is_empty() {
        let frame = Frame::decode(bytes.get(..FRAME_BYTES)?.try_into().ok()?).ok()?;
        let message = bytes.get(FRAME_BYTES..FRAME_BYTES + frame.message_bytes as usize)?;
        found.push(decode(message).ok()?);
        bytes = bytes.get(FRAME_BYTES + frame.message_bytes as usize + frame.payload_bytes as usize..)?;
    }
    Some(found)
}

#[test]
fn an_agent_outlives_damaged_conversations_and_gives_nothing_away() {
    let place = Wish::default().tier("ram", "16MiB").build();
    let outside = place.root().parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), SECRET).unwrap();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    furnish(&here);
    let agent = place.status().expect("the agent answers").agent_pid;

    // Each request with the payload that belongs to it, as frames.
    let frames: Vec<Vec<u8>> = requests()
        .into_iter()
        .map(|request| {
            let bytes = match &request {
                Request::PutRegion { region, .. } => region.cells() as usize,
                Request::WriteBytes { .. } => 2880,
                _ => 0,
            };
            let mut frame = encode(&request, bytes as u64).unwrap();
            frame.resize(frame.len() + bytes, 7);
            frame
        })
        .collect();
    let greeting = encode(&Request::Hello { token: TOKEN.into() }, 0).unwrap();
    let socket = place.runtime().join(terrace_core::settings::OBJECTS_SOCKET);
    let turns = std::sync::atomic::AtomicU32::new(0);
    let after_a_while = std::sync::OnceLock::new();
    let begun = std::time::Instant::now();
    // What a panic leaves in the session's shared memory is looked at no more.
    let shared = std::panic::AssertUnwindSafe(&here);

    bolero::check!().with_test_time(CONNECTIONS_TIME).with_iterations(usize::MAX).with_type::<(u8, Vec<Damage>)>().for_each(
        |(way, damages)| {
            let said: Vec<u8> = damages.iter().take(4).flat_map(|damage| damaged(&frames, damage)).collect();
            // To the socket of this node, by TCP with the token, or by TCP without a right one.
            let (is_local, is_greeted) = (way % 3 == 0, way % 3 != 2);
            let mut conversation = if !is_local && is_greeted { greeting.clone() } else { vec![] };
            conversation.extend(&said);
            let heard = if is_local {
                let stream = UnixStream::connect(&socket).expect("the agent listens");
                let other = stream.try_clone().unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                say(stream, &conversation, || drop(other.shutdown(Shutdown::Write)))
            } else {
                let stream = TcpStream::connect(&served.address).expect("the agent listens");
                let other = stream.try_clone().unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
                say(stream, &conversation, || drop(other.shutdown(Shutdown::Write)))
            };
            let text = |needle: &str| heard.windows(needle.len()).any(|window| window == needle.as_bytes());
            assert!(!text(SECRET) && !text(TOKEN), "a secret was told");
            let answers = answers(&heard).expect("an agent's answers are frames");
            let is_refusal = |answer: &Response| {
                matches!(answer, Response::Failed(error) if matches!(error.kind, Kind::Denied | Kind::Protocol))
            };
            // The token can't come about by damage to another one within the few bytes that are damaged.
            assert!(is_greeted || answers.iter().all(is_refusal), "a stranger was told {answers:?}");
            let turn = turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if turn.is_multiple_of(100) {
                furnish(&shared);
                assert_eq!(place.status().map(|status| status.agent_pid), Some(agent), "the agent died");
            }
            // The allocator's holdings grow at first and then no more: what is left behind grows all the time.
            if begun.elapsed() > CONNECTIONS_TIME / 2 && after_a_while.get().is_none() {
                let _ = after_a_while.set(holdings(agent));
            }
        },
    );

    let turns = turns.into_inner();
    assert!(turns > 100, "only {turns} conversations");
    // One of a name that damage hardly comes to: `c/array` may have been made smaller, and its cells overwritten, as it was asked for.
    let spec = ArraySpec::new(DataType::UInt8, &[0, 30]).unlimited(0).chunks(&[8, 30]);
    let array = here.create_array("afterwards", &spec, Create::New).unwrap();
    array.put(&Region::whole(&[20, 30]).unwrap(), &[7; 600]).unwrap();
    assert_eq!(array.get_values::<u8>(&Region::block(&[3, 3], &[1, 2]).unwrap()).unwrap(), [7, 7]);
    let middle = *after_a_while.get().expect("looked at in the middle");
    let told = || format!("{middle:?} at half-time, {:?} after {turns} conversations", holdings(agent));
    // The codecs' pool comes with its first work, which may be late, and stays: a thread a core.
    let pool = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    assert!(wait_until(30, || holdings(agent).1 <= middle.1 + pool + 2), "threads stay behind: {}", told());
    assert!(holdings(agent).0 <= middle.0 + 20, "descriptors stay behind: {}", told());
    assert!(holdings(agent).2 <= middle.2 + 48, "memory stays behind: {}", told());
    assert!(!Path::new(&outside).join("array").exists());
    drop((here, array));
    served.end();
}
