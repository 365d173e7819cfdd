//! What arrays take of a tier's room and of their programs' memory: logs are counted and shortened, segments are little larger than
//! what is put into them.

use terrace_client::{ArraySpec, Create, DataType, Region, Session};
use terrace_tests::{Wish, Workplace};

const MIB: u64 = 1 << 20;

fn used(place: &Workplace) -> u64 {
    place.status().unwrap().tiers[0].used_bytes
}

/// What the tier's directory really takes.
fn taken(place: &Workplace, tier: &str) -> u64 {
    let output = std::process::Command::new("du").arg("-sB1").arg(place.tier(tier)).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// Pages of this process that are in memory and belong to this tier's files.
fn mapped_of(tier: &std::path::Path) -> u64 {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut is_ours, mut kib) = (false, 0u64);
    for line in smaps.lines() {
        if line.split_whitespace().next().is_some_and(|word| word.contains('-') && !word.ends_with(':')) {
            is_ours = line.contains(tier.to_str().unwrap());
        }
        if is_ours && line.starts_with("Rss:") {
            kib += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap();
        }
    }
    kib << 10
}

#[test]
fn an_array_that_is_put_to_for_ever_needs_bounded_room_and_memory() {
    let place = Wish::default().tier("ram", "16MiB").policy("flush = [\"!**\"]").build();
    let shell = place.shell();
    let session = Session::open(&place.runtime().join("index")).unwrap();
    let array = session.create_array("a", &ArraySpec::new(DataType::UInt8, &[1000, 2048]), Create::New).unwrap();
    let mut newest = vec![0u8; 1000];
    for number in 0..200_000u64 {
        let row = number * 7 % 1000;
        newest[row as usize] = (number % 251) as u8;
        array.put(&Region::block(&[row, 0], &[1, 2048]).unwrap(), &[newest[row as usize]; 2048]).unwrap();
        if number % 20_000 == 19_999 {
            let (used, taken) = (used(&place), taken(&place, "ram"));
            assert!(used <= 16 * MIB && taken <= 17 * MIB, "{used} counted, {taken} taken after {number} puts");
            assert!(taken <= used + MIB, "{taken} are taken, of which {used} are counted");
            let mapped = mapped_of(&place.tier("ram"));
            assert!(mapped <= 16 * MIB, "{mapped} bytes of memory after {number} puts");
        }
    }
    let cells = array.get_values::<u8>(&Region::whole(&[1000, 2048]).unwrap()).unwrap();
    assert!(cells.chunks(2048).zip(&newest).all(|(row, value)| row.iter().all(|cell| cell == value)));
    drop(array);
    session.remove("a", false).unwrap();
    drop(session);
    shell.ends_and_leaves();
}

/// No record is buried, and the tier has no room for a longer log: it is flushed, and begins anew.
#[test]
fn a_log_for_which_a_tier_has_no_room_is_flushed() {
    let place = Wish::default().tier("ram", "2MiB").build();
    let shell = place.shell();
    let session = Session::open(&place.runtime().join("index")).unwrap();
    let spec = ArraySpec::new(DataType::Int32, &[20_000]).chunks(&[20_000]);
    let array = session.create_array("a", &spec, Create::New).unwrap();
    for number in 0..20_000u64 {
        array.put_values(&Region::block(&[number], &[1]).unwrap(), &[number as i32 + 1]).unwrap();
    }
    assert!(used(&place) <= 2 * MIB, "{} counted", used(&place));
    let cells = array.get_values::<i32>(&Region::whole(&[20_000]).unwrap()).unwrap();
    assert!(cells.iter().enumerate().all(|(number, cell)| *cell == number as i32 + 1));
    drop((array, session));
    shell.ends_and_leaves();
}

#[test]
fn what_is_staged_in_pieces_takes_little_more_room_than_it_has_bytes() {
    let place = Wish::default().tier("ram", "256MiB").policy("flush = [\"!**\"]").build();
    let shell = place.shell();
    let session = Session::open(&place.runtime().join("index")).unwrap();
    for (number, piece) in [64 << 10, 100_000, 1 << 20].into_iter().enumerate() {
        let before = used(&place);
        let pieces = (33 << 20) / piece;
        let spec = ArraySpec::new(DataType::UInt8, &[pieces, piece]);
        let array = session.create_array(&format!("a{number}"), &spec, Create::New).unwrap();
        let cells = vec![7u8; piece as usize];
        for row in 0..pieces {
            array.put(&Region::block(&[row, 0], &[1, piece]).unwrap(), &cells).unwrap();
        }
        let (bytes, room) = (pieces * piece, used(&place) - before);
        assert!(room <= bytes + bytes / 6 + MIB, "{bytes} bytes in pieces of {piece} took {room}");
        drop(array);
        session.remove(&format!("a{number}"), false).unwrap();
    }
    drop(session);
    shell.ends_and_leaves();
}
