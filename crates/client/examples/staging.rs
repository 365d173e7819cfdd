//! What staging reaches beside a plain stream and memcpy. Prints one line of JSON for each measurement.
//!
//!   staging sink ADDRESS:PORT                       the other end of plain streams
//!   staging relay ADDRESS:PORT SINK:PORT            passes plain streams on to a sink
//!   staging memcpy    BLOCK BYTES THREADS
//!   staging stream    BLOCK BYTES THREADS ADDRESS:PORT
//!   staging terrace   BLOCK BYTES THREADS TARGET    puts by a stager, to `sync staged`; TARGET: an index, or tcp://…
//!   staging forwarded BLOCK BYTES THREADS INDEX     the same, to `sync analysis`
//!   staging compute   BLOCK STEPS SECONDS [INDEX]   a simulation's own time, with staging or without
//!
//! Memory was touched before. Each of the threads has its own container, array and stream, and a part of the bytes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_client::{ArraySpec, Arrived, Create, DataType, Region, Session, Stager, StagerSpec};

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn sink(address: &str) -> Outcome {
    let listener = TcpListener::bind(address)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        std::thread::spawn(move || -> std::io::Result<()> {
            let mut buffer = vec![0u8; 4 << 20];
            let mut left = [0; 8];
            stream.read_exact(&mut left)?;
            let mut left = u64::from_le_bytes(left);
            while left > 0 {
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    got => left -= got as u64,
                }
            }
            stream.write_all(&[1])
        });
    }
}

/// What forwarding is measured by: all bytes pass two sockets, and nothing is kept.
fn relay(address: &str, sink: &str) -> Outcome {
    let listener = TcpListener::bind(address)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        let mut onward = TcpStream::connect(sink)?;
        onward.set_nodelay(true)?;
        std::thread::spawn(move || -> std::io::Result<()> {
            let mut buffer = vec![0u8; 1 << 20];
            let mut left = [0; 8];
            stream.read_exact(&mut left)?;
            onward.write_all(&left)?;
            let mut left = u64::from_le_bytes(left);
            while left > 0 {
                match stream.read(&mut buffer)? {
                    0 => return Ok(()),
                    got => {
                        onward.write_all(&buffer[..got])?;
                        left -= got as u64;
                    }
                }
            }
            onward.read_exact(&mut buffer[..1])?;
            stream.write_all(&buffer[..1])
        });
    }
}

/// One block for each thread, of memory that was touched.
fn blocks(block: usize, threads: usize) -> Vec<Vec<u8>> {
    (0..threads).map(|thread| vec![thread as u8 + 1; block]).collect()
}

fn tell(what: &str, block: usize, bytes: u64, threads: usize, seconds: f64) {
    println!(
        "{{\"what\": \"{what}\", \"block\": {block}, \"bytes\": {bytes}, \"threads\": {threads}, \"seconds\": {seconds}, \"mb_s\": {:.1}}}",
        bytes as f64 / seconds / 1e6
    );
}

fn each(threads: usize, work: impl Fn(usize) -> Outcome + Sync) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread).expect("a measurement"));
        }
    });
    begun.elapsed().as_secs_f64()
}

fn memcpy(block: usize, bytes: u64, threads: usize) {
    let sources = blocks(block, threads);
    let part = (bytes / threads as u64) as usize;
    let targets: Vec<std::sync::Mutex<Vec<u8>>> = (0..threads).map(|_| std::sync::Mutex::new(vec![1; part])).collect();
    let seconds = each(threads, |thread| {
        let mut target = targets[thread].lock().unwrap();
        for piece in target.chunks_mut(block) {
            piece.copy_from_slice(&sources[thread][..piece.len()]);
        }
        Ok(())
    });
    tell("memcpy", block, bytes, threads, seconds);
}

fn stream(block: usize, bytes: u64, threads: usize, address: &str) {
    let sources = blocks(block, threads);
    let part = bytes / threads as u64;
    let seconds = each(threads, |thread| {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&part.to_le_bytes())?;
        let mut left = part;
        while left > 0 {
            let count = left.min(block as u64) as usize;
            stream.write_all(&sources[thread][..count])?;
            left -= count as u64;
        }
        stream.read_exact(&mut [0])?;
        Ok(())
    });
    tell("stream", block, bytes, threads, seconds);
}

fn connect(target: &str) -> terrace_client::Result<Session> {
    if target.contains("://") { Session::connect(target) } else { Session::open(Path::new(target)) }
}

fn field(session: &Session, thread: usize, block: usize) -> terrace_client::Result<terrace_client::Array> {
    let container = format!("staging{thread}");
    session.create_container(&container, Create::IfMissing)?;
    let spec = ArraySpec::new(DataType::UInt8, &[0, block as u64]).unlimited(0);
    session.create_array(&format!("{container}/field"), &spec, Create::Replace)
}

fn put(stager: &Stager, array: &terrace_client::Array, step: u64, cells: &[u8]) -> terrace_client::Result<()> {
    let region = Region::block(&[step, 0], &[1, cells.len() as u64])?;
    // SAFETY: what is measured changes nothing until `sync`.
    unsafe { stager.put_borrowed(array, &region, cells.as_ptr(), cells.len()).map(|_| ()) }
}

fn terrace(what: &str, block: usize, bytes: u64, threads: usize, target: &str, arrived: Arrived) {
    let sources = blocks(block, threads);
    let steps = (bytes / threads as u64 / block as u64).max(1);
    let session = connect(target).expect("an agent");
    let spec = StagerSpec {
        queue_bytes: (block as u64 * 4 * threads as u64).max(256 << 20),
        threads,
        ..StagerSpec::default()
    };
    let stager = session.stager(spec).expect("a stager");
    let arrays: Vec<_> = (0..threads).map(|thread| field(&session, thread, block).expect("an array")).collect();
    let stage = || {
        let seconds = each(threads, |thread| {
            (0..steps).try_for_each(|step| put(&stager, &arrays[thread], step, &sources[thread]))?;
            Ok(())
        });
        let begun = Instant::now();
        stager.sync(arrived, None).expect("all puts");
        seconds + begun.elapsed().as_secs_f64()
    };
    // Twice before: then all memory has been touched. A region is there until the one in its place is, so of each array there is one
    // more than it has steps, which the second time takes.
    stage();
    stage();
    let seconds = stage();
    tell(what, block, steps * threads as u64 * block as u64, threads, seconds);
    for thread in 0..threads {
        session.remove(&format!("staging{thread}"), true).expect("nobody else removes it");
    }
}

/// Steps of so many seconds of computing; the field of each is staged.
fn compute(block: usize, steps: u64, seconds: f64, target: Option<&str>) {
    let mut cells = vec![1u8; block];
    let staging = target.map(|target| {
        let session = connect(target).expect("an agent");
        let stager = session.stager(StagerSpec::default()).expect("a stager");
        let array = field(&session, 0, block).expect("an array");
        (session, stager, array)
    });
    // So many turns are a step's computing: counted when nothing else is done.
    let turns = {
        let begun = Instant::now();
        let mut turns = 0u64;
        while begun.elapsed() < Duration::from_secs_f64(seconds) {
            turn(&mut cells, turns);
            turns += 1;
        }
        turns
    };
    let begun = Instant::now();
    for step in 0..steps {
        (0..turns).for_each(|number| turn(&mut cells, number));
        if let Some((_, stager, array)) = &staging {
            let region = Region::block(&[step, 0], &[1, block as u64]).expect("a region");
            stager.put(array, &region, &cells).map(|_| ()).expect("a put");
        }
    }
    let took = begun.elapsed().as_secs_f64();
    let what = if staging.is_some() { "compute staged" } else { "compute" };
    let blocked = staging.as_ref().map_or(0.0, |(_, stager, _)| stager.counters().blocked_s);
    println!(
        "{{\"what\": \"{what}\", \"block\": {block}, \"steps\": {steps}, \"turns\": {turns}, \"seconds\": {took}, \"per_turn_us\": {}, \"blocked_s\": {blocked}}}",
        took / (steps * turns) as f64 * 1e6
    );
    if let Some((session, stager, _)) = staging {
        stager.close().expect("all puts");
        session.remove("staging0", true).expect("nobody else removes it");
    }
}

/// Some arithmetic on a part of the field that stays in a core's cache.
fn turn(cells: &mut [u8], number: u64) {
    let count = cells.len().min(32 << 10);
    for cell in &mut cells[..count] {
        *cell = cell.wrapping_mul(31).wrapping_add(number as u8);
    }
    std::hint::black_box(cells);
}

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("`{text}` is not a number"));
    match words.as_slice() {
        ["sink", address] => return sink(address),
        ["relay", address, onward] => return relay(address, onward),
        ["memcpy", block, bytes, threads] => memcpy(number(block) as usize, number(bytes), number(threads) as usize),
        ["stream", block, bytes, threads, address] => {
            stream(number(block) as usize, number(bytes), number(threads) as usize, address)
        }
        ["terrace", block, bytes, threads, target] => {
            terrace("terrace", number(block) as usize, number(bytes), number(threads) as usize, target, Arrived::Staged)
        }
        ["forwarded", block, bytes, threads, target] => terrace(
            "forwarded",
            number(block) as usize,
            number(bytes),
            number(threads) as usize,
            target,
            Arrived::Analysis,
        ),
        ["compute", block, steps, seconds, target @ ..] => {
            compute(number(block) as usize, number(steps), seconds.parse()?, target.first().copied())
        }
        _ => return Err("see the head of examples/staging.rs".into()),
    }
    Ok(())
}
