//! What objects cost on this machine: put and get beside memcpy between the same buffers, appends, and calls without cells.
//!
//! `measure INDEX [CLIENTS]` prints one JSON object. Buffers and segments are touched before anything is timed; medians.

use std::time::{Duration, Instant};
use terrace_client::{ArraySpec, Create, DataType, LockMode, Region, Result, Session};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [usize; 3] = [4 * KIB, MIB, 64 * MIB];
/// Each figure is the median of so many batches.
const BATCHES: usize = 15;
const BATCH_TIME: Duration = Duration::from_millis(60);

/// Median seconds of one `act`.
fn median(mut act: impl FnMut()) -> f64 {
    let begun = Instant::now();
    act();
    act();
    let once = begun.elapsed() / 2;
    let count = (BATCH_TIME.as_nanos() / once.as_nanos().max(1)).clamp(1, 1 << 20) as u32;
    let mut times: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let begun = Instant::now();
            (0..count).for_each(|_| act());
            begun.elapsed().as_secs_f64() / count as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[BATCHES / 2]
}

fn client(session: &Session, number: usize) -> Result<Vec<String>> {
    let mut lines = vec![];
    for size in SIZES {
        let name = format!("measure/{number}-{size}");
        let array = session.create_array(&name, &ArraySpec::new(DataType::UInt8, &[size as u64]), Create::Replace)?;
        let region = Region::whole(&[size as u64])?;
        let source = vec![3u8; size];
        let mut target = vec![5u8; size];
        let copy = median(|| std::hint::black_box(&mut target).copy_from_slice(std::hint::black_box(&source)));
        let put = median(|| array.put(&region, &source).expect("put"));
        let get = median(|| array.get(&region, &mut target).expect("get"));
        let rate = |seconds: f64| size as f64 / seconds / 1e9;
        lines.push(format!(
            r#"{{"bytes": {size}, "memcpy_gb_s": {:.2}, "put_gb_s": {:.2}, "get_gb_s": {:.2}, "put_us": {:.2}, "get_us": {:.2}}}"#,
            rate(copy),
            rate(put),
            rate(get),
            put * 1e6,
            get * 1e6
        ));
        drop(array);
        session.remove(&name, false)?;
    }
    Ok(lines)
}

fn calls(session: &Session) -> Result<String> {
    let block = [7u8; 2880];
    let table = session.create_bytes("measure/table", Create::Replace)?;
    let mut appended = 0u64;
    let append = median(|| {
        // Bounded, so that the tier is: what is written over is written the same way.
        table.write_at(appended % (64 << 20), &block).expect("append");
        appended += block.len() as u64;
    });
    table.close()?;
    let read = session.open_bytes("measure/table", false)?;
    let mut got = [0u8; 2880];
    let mut position = 0;
    let read_at = median(|| {
        read.read_exact_at(position % (32 << 20), &mut got).expect("read");
        position += 2880;
    });
    let spec = ArraySpec::new(DataType::Float64, &[100, 100]);
    let array = session.create_array("measure/calls", &spec, Create::Replace)?;
    let region = Region::block(&[0, 0], &[10, 10])?;
    let lock = median(|| array.lock(&region, LockMode::Write, None).expect("lock").release());
    let open = median(|| drop(session.open_array("measure/calls", true).expect("open")));
    let stat = median(|| drop(session.stat("measure/calls").expect("stat")));
    let mut number = 0;
    let create = median(|| {
        number += 1;
        drop(session.create_array(&format!("measure/new{number}"), &spec, Create::Replace).expect("create"));
    });
    let create_bytes = median(|| {
        drop(session.create_bytes("measure/newbytes", Create::Replace).expect("create"));
    });
    let large =
        session.create_array("measure/large", &ArraySpec::new(DataType::UInt8, &[256 << 20]), Create::Replace)?;
    let whole = Region::whole(&[256 << 20])?;
    let mut buffer = vec![1u8; 256 << 20];
    let (mut visible, mut whole_s) = (f64::MAX, f64::MAX);
    for _ in 0..3 {
        let begun = Instant::now();
        let transfer = large.start_put(&whole, std::mem::take(&mut buffer));
        visible = visible.min(begun.elapsed().as_secs_f64());
        buffer = transfer.wait()?;
        whole_s = whole_s.min(begun.elapsed().as_secs_f64());
    }
    Ok(format!(
        r#"{{"append_2880_us": {:.3}, "read_2880_us": {:.3}, "lock_release_us": {:.3}, "open_us": {:.1}, "stat_us": {:.1}, "create_array_us": {:.1}, "create_bytes_us": {:.1}, "async_256mb_visible_ms": {:.3}, "async_256mb_whole_ms": {:.1}}}"#,
        append * 1e6,
        read_at * 1e6,
        lock * 1e6,
        open * 1e6,
        stat * 1e6,
        create * 1e6,
        create_bytes * 1e6,
        visible * 1e3,
        whole_s * 1e3
    ))
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let index = arguments.next().unwrap_or_default();
    let clients: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
    let session = if index.is_empty() { Session::connect("")? } else { Session::open(std::path::Path::new(&index))? };
    session.create_container("measure", Create::IfMissing)?;
    let workers: Vec<_> = (0..clients)
        .map(|number| {
            let session = session.clone();
            std::thread::spawn(move || client(&session, number))
        })
        .collect();
    let mut all = vec![];
    for worker in workers {
        all.push(format!("[{}]", worker.join().expect("a worker does not panic")?.join(", ")));
    }
    let calls = if clients == 1 { calls(&session)? } else { "null".into() };
    println!(r#"{{"clients": {clients}, "transfers": [{}], "calls": {calls}}}"#, all.join(", "));
    session.remove("measure", true)
}
