//! Clients that are killed while they put: nothing half there, no lock left, no room lost.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::Duration;
use terrace_client::{ArraySpec, Create, DataType, LockMode, Region, Session, TagValue};
use terrace_tests::{Random, Served, Wish, Workplace, again, wait_until};

fn session(place: &Workplace) -> Session {
    Session::open(&place.runtime().join("index")).expect("a run has an index")
}

const CELLS: u64 = 2 << 20;
const KILLS: u64 = 15;

/// Puts whole arrays of one number, the next one each time, under a lock, and says after each put that it has returned.
#[test]
#[ignore = "run by other tests, as a process of its own"]
fn act() {
    let session = Session::open(std::path::Path::new(&std::env::var("ACT_INDEX").unwrap())).unwrap();
    let mut turn: u64 = std::env::var("ACT_TURN").unwrap().parse().unwrap();
    let array = session.open_array("a", true).unwrap();
    let whole = Region::whole(&[CELLS]).unwrap();
    let _lock = array.lock(&whole, LockMode::Write, Some(Duration::ZERO)).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "\nLOCKED").unwrap();
    loop {
        turn += 1;
        array.put_values(&whole, &vec![turn; CELLS as usize]).unwrap();
        // Past the test harness, in one write: a line is there or not.
        out.write_all(format!("PUT {turn}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    }
}

fn start(place: &Workplace, turn: u64) -> Child {
    let mut command = again(module_path!(), "act");
    command.arg("--ignored").stdout(Stdio::piped());
    command.env("ACT_TURN", turn.to_string()).env("ACT_INDEX", place.runtime().join("index")).spawn().unwrap()
}

#[test]
fn a_client_that_is_killed_in_the_middle_of_a_put_leaves_nothing_half_and_no_lock() {
    let place = Wish::default().tier("ram", "512MiB").policy("flush = [\"!**\"]").build();
    let shell = place.shell();
    let session = session(&place);
    let array = session.create_array("a", &ArraySpec::new(DataType::UInt64, &[CELLS]), Create::New).unwrap();
    let whole = Region::whole(&[CELLS]).unwrap();
    let mut random = Random::new(17);
    let (mut last, mut puts) = (0, 0);
    for kill in 0..KILLS {
        let mut client = start(&place, last);
        let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "LOCKED"), "the client did not get the lock that the dead one had");
        // Somewhere in its first puts, of which each takes some milliseconds; every other time there was one before.
        let first =
            if kill % 2 == 0 { None } else { Some(lines.next().expect("it goes on until it is killed").unwrap()) };
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        client.kill().unwrap();
        client.wait().unwrap();
        let said = first.into_iter().chain(lines.map_while(Result::ok));
        let acknowledged: u64 = said.filter_map(|line| line.strip_prefix("PUT ")?.parse().ok()).last().unwrap_or(last);

        // At once: a lock of the dead is no obstacle.
        let lock = array.lock(&whole, LockMode::Write, Some(Duration::from_secs(2))).expect("the dead hold no lock");
        let cells = array.get_values::<u64>(&whole).unwrap();
        let seen = cells[0];
        assert!(cells.iter().all(|&cell| cell == seen), "half of a put is there after kill {kill}");
        // What had returned is there; what was under way is whole, or not there.
        assert!(seen == acknowledged || seen == acknowledged + 1, "{seen} after {acknowledged} was acknowledged");
        puts += seen - last;
        last = seen;
        lock.release();
    }
    assert!(puts >= KILLS / 2, "{puts} puts were done");
    // What the dead had of the tier comes back.
    session.evict("a").unwrap();
    let used = || place.status().unwrap().tiers[0].used_bytes;
    assert!(wait_until(10, || used() < 1 << 20), "{} bytes of the tier are still taken", used());
    assert_eq!(array.get_values::<u64>(&Region::block(&[CELLS - 1], &[1]).unwrap()).unwrap(), [last]);
    drop((session, array));
    shell.ends_and_leaves();
}

/// The second half of a put by pieces: each piece is there or not, and the pieces that had returned are.
#[test]
fn a_bytes_object_whose_writer_is_killed_has_what_was_published_and_no_more() {
    let place = Wish::default().tier("ram", "64MiB").build();
    let shell = place.shell();
    let session = session(&place);
    // SAFETY: the child uses the client, which is made for that, and leaves without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let table = session.create_bytes("table", Create::New).unwrap();
        table.append(&[1; 2880 * 100]).unwrap();
        table.flush().unwrap();
        table.append(&[2; 2880]).unwrap();
        session.create_bytes("ready", Create::New).unwrap().close().unwrap();
        std::thread::sleep(Duration::from_secs(600));
    }
    session.wait_for("ready", Some(Duration::from_secs(60))).unwrap();
    // SAFETY: our own child.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    let table = session.open_bytes("table", false).unwrap();
    assert_eq!(table.len().unwrap(), 2880 * 100);
    let mut bytes = vec![0; 2880 * 100];
    table.read_exact_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 1));
    drop((table, session));
    shell.ends_and_leaves();
}

#[test]
fn an_agent_that_dies_seven_times_in_a_row_is_started_again() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let session = Session::open(&served.index).unwrap();
    for death in 0..7 {
        session.put_tag("", "death", TagValue::Int(death)).unwrap();
        served.kill_agent(&place);
    }
    assert_eq!(session.get_tag("", "death").unwrap(), Some(TagValue::Int(6)));
    drop(session);
    served.end();
}
