//! A worker of `benchmarks/objects`: does one kind of operation for a while, and says how long one took.
//!
//! `measure NUMBER [INDEX]`: each line of the input is an operation and a size; the answer is a line with nanoseconds of one.
//! All memory (buffers and segments) is touched before anything is timed.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_client::{Array, ArraySpec, Bytes, Create, DataType, LockMode, Region, Result, Session};

const MIB: usize = 1 << 20;
const BATCH_TIME: Duration = Duration::from_millis(60);
const BLOCK: usize = 2880;
/// The table that blocks are appended to begins anew at this length, so that the tier's memory is bounded and was touched.
const TABLE_BYTES: u64 = 64 << 20;
/// Appended to a table that is new: the tier's memory is touched for the first time.
const NEW_BLOCKS: u64 = 20_000;
const ASYNCHRONOUS: usize = 256 * MIB;
/// What the program computes while a transfer runs.
const COMPUTING: Duration = Duration::from_millis(500);

/// Nanoseconds of one `act`, which is done over and over for the time of a batch.
fn timed(mut act: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    let (mut count, mut step) = (0u64, 1u64);
    loop {
        for _ in 0..step {
            act(count)?;
            count += 1;
        }
        let elapsed = begun.elapsed();
        if elapsed >= BATCH_TIME {
            return Ok(elapsed.as_nanos() as f64 / count as f64);
        }
        // The clock is looked at about every millisecond.
        step = (count as u128 * 1_000_000 / elapsed.as_nanos().max(1)).clamp(1, 1 << 20) as u64;
    }
}

/// Buffers and an array of one size.
struct Sized {
    source: Vec<u8>,
    target: Vec<u8>,
    /// A file of the tier's storage, mapped: where cells of an array lie.
    mapped: memmap2::MmapMut,
    array: Array,
    region: Region,
}

impl Sized {
    fn new(session: &Session, container: &str, size: usize) -> Result<Sized> {
        let spec = ArraySpec::new(DataType::UInt8, &[size as u64]);
        let array = session.create_array(&format!("{container}/cells{size}"), &spec, Create::Replace)?;
        let region = Region::whole(&[size as u64])?;
        let source: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let mut target = vec![5u8; size];
        let file = tempfile::tempfile_in("/dev/shm").expect("a file in memory");
        file.set_len(size as u64).expect("room in memory");
        // SAFETY: nobody else has this file.
        let mut mapped = unsafe { memmap2::MmapMut::map_mut(&file) }.expect("a mapping of a file in memory");
        mapped.copy_from_slice(&source);
        // Twice: a put takes room beside the one before, whose room the next one takes.
        for _ in 0..3 {
            array.put(&region, &source)?;
            array.get(&region, &mut target)?;
        }
        assert!(target == source, "what was got is what was put");
        Ok(Sized { source, target, mapped, array, region })
    }

    fn act(&mut self, operation: &str) -> Result<f64> {
        use std::hint::black_box;
        let Sized { source, target, mapped, array, region } = self;
        match operation {
            "copy" => timed(|_| {
                black_box(&mut *target).copy_from_slice(black_box(source));
                Ok(())
            }),
            "copy-in" => timed(|_| {
                black_box(&mut **mapped).copy_from_slice(black_box(source));
                Ok(())
            }),
            "copy-out" => timed(|_| {
                black_box(&mut *target).copy_from_slice(black_box(&**mapped));
                Ok(())
            }),
            "put" => timed(|_| array.put(region, source)),
            "get" => timed(|_| array.get(region, target)),
            other => panic!("no operation `{other}` of a size"),
        }
    }
}

struct Worker {
    session: Session,
    container: String,
    sized: HashMap<usize, Sized>,
    table: Option<Bytes>,
    calls: Option<Array>,
    plain: PathBuf,
}

impl Worker {
    fn act(&mut self, operation: &str, size: usize) -> Result<f64> {
        let Worker { session, container, .. } = self;
        let name = |what: &str| format!("{container}/{what}");
        match operation {
            "append" => {
                if self.table.is_none() {
                    let table = session.create_bytes(&name("table"), Create::Replace)?;
                    for at in 0..TABLE_BYTES / MIB as u64 {
                        table.write_at(at * MIB as u64, &vec![1; MIB])?;
                    }
                    self.table = Some(table);
                }
                let (table, block) = (self.table.as_ref().expect("just made"), [7u8; BLOCK]);
                let blocks = TABLE_BYTES / BLOCK as u64;
                timed(|count| table.write_at(count % blocks * BLOCK as u64, &block))
            }
            "append-new" => {
                let block = [7u8; BLOCK];
                let begun = Instant::now();
                let table = session.create_bytes(&name("new"), Create::Replace)?;
                for _ in 0..NEW_BLOCKS {
                    table.append(&block)?;
                }
                table.close()?;
                Ok(begun.elapsed().as_nanos() as f64 / NEW_BLOCKS as f64)
            }
            "write" | "write-new" => {
                let path = self.plain.join(operation);
                let block = [7u8; BLOCK];
                if operation == "write-new" {
                    let begun = Instant::now();
                    let mut file = std::fs::File::create(&path).expect("a file in the tier's storage");
                    (0..NEW_BLOCKS).for_each(|_| file.write_all(&block).expect("room in memory"));
                    return Ok(begun.elapsed().as_nanos() as f64 / NEW_BLOCKS as f64);
                }
                let file = std::fs::File::create(&path).expect("a file in the tier's storage");
                file.write_all_at(&vec![1; TABLE_BYTES as usize], 0).expect("room in memory");
                let blocks = TABLE_BYTES / BLOCK as u64;
                timed(|count| {
                    file.write_all_at(&block, count % blocks * BLOCK as u64).expect("room in memory");
                    Ok(())
                })
            }
            "read" => {
                let table = session.open_bytes(&name("table"), false)?;
                let mut block = [0u8; BLOCK];
                let blocks = TABLE_BYTES / BLOCK as u64;
                timed(|count| table.read_exact_at(count % blocks * BLOCK as u64, &mut block))
            }
            "lock" | "open" | "stat" | "stat-bytes" => {
                if self.calls.is_none() {
                    let spec = ArraySpec::new(DataType::Float64, &[100, 100]);
                    let array = session.create_array(&name("calls"), &spec, Create::Replace)?;
                    array.put(&Region::whole(&[100, 100])?, &[1; 80_000])?;
                    self.calls = Some(array);
                    session.create_bytes(&name("file"), Create::Replace)?.close()?;
                }
                let array = self.calls.as_ref().expect("just made");
                let region = Region::block(&[0, 0], &[10, 10])?;
                let (of_array, of_file) = (name("calls"), name("file"));
                match operation {
                    "lock" => timed(|_| array.lock(&region, LockMode::Write, None).map(|lock| lock.release())),
                    "open" => timed(|_| session.open_array(&of_array, true).map(drop)),
                    "stat" => timed(|_| session.stat(&of_array).map(drop)),
                    _ => timed(|_| session.stat(&of_file).map(drop)),
                }
            }
            "create" => {
                let spec = ArraySpec::new(DataType::Float64, &[100, 100]);
                let directory = name("created");
                session.create_container(&directory, Create::New)?;
                let time =
                    timed(|count| session.create_array(&format!("{directory}/{count}"), &spec, Create::New).map(drop))?;
                session.remove(&directory, true)?;
                Ok(time)
            }
            "create-bytes" => {
                let directory = name("created");
                session.create_container(&directory, Create::New)?;
                let time = timed(|count| session.create_bytes(&format!("{directory}/{count}"), Create::New)?.close())?;
                session.remove(&directory, true)?;
                Ok(time)
            }
            _ if operation.starts_with("async") => self.asynchronous(operation),
            _ => {
                if !self.sized.contains_key(&size) {
                    let made = Sized::new(&self.session, &self.container, size)?;
                    self.sized.insert(size, made);
                }
                self.sized.get_mut(&size).expect("just made").act(operation)
            }
        }
    }

    /// What the program sees of a put of 256 MB: starting, and waiting after it has computed something; or waiting at once; and
    /// until it is durable in the root.
    fn asynchronous(&self, operation: &str) -> Result<f64> {
        let name = format!("{}/large", self.container);
        let whole = Region::whole(&[ASYNCHRONOUS as u64])?;
        let array = self.session.create_array(
            &name,
            &ArraySpec::new(DataType::UInt8, &[ASYNCHRONOUS as u64]),
            Create::Replace,
        )?;
        let buffer = vec![1u8; ASYNCHRONOUS];
        let begun = Instant::now();
        let transfer = array.start_put(&whole, buffer);
        let started = begun.elapsed();
        let waited = |transfer: terrace_client::Transfer| {
            let begun = Instant::now();
            let buffer = transfer.wait()?;
            // Giving the buffer's memory back is no part of the transfer.
            let took = begun.elapsed();
            drop(buffer);
            Ok::<Duration, terrace_client::ObjectError>(took)
        };
        let seen = match operation {
            "async-start" => {
                waited(transfer)?;
                started
            }
            "async-computing" => {
                let computing = Instant::now();
                while computing.elapsed() < COMPUTING {
                    std::hint::spin_loop();
                }
                started + waited(transfer)?
            }
            "async-wait" => started + waited(transfer)?,
            "async-durable" => {
                let took = started + waited(transfer)?;
                let flushing = Instant::now();
                array.flush()?;
                took + flushing.elapsed()
            }
            other => panic!("no operation `{other}`"),
        };
        drop(array);
        self.session.remove(&name, false)?;
        Ok(seen.as_nanos() as f64)
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let number = arguments.next().expect("usage: measure NUMBER [INDEX]");
    let index = arguments.next().unwrap_or_default();
    let session = if index.is_empty() { Session::connect("")? } else { Session::open(Path::new(&index))? };
    let container = format!("measure{number}");
    session.create_container(&container, Create::IfMissing)?;
    let plain = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let mut worker = Worker {
        session: session.clone(),
        container: container.clone(),
        sized: HashMap::new(),
        table: None,
        calls: None,
        plain: plain.path().into(),
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("the input is text");
        let mut words = line.split_whitespace();
        let operation = words.next().expect("an operation");
        let size = words.next().map_or(0, |word| word.parse().expect("a size in bytes"));
        println!("{:.1}", worker.act(operation, size)?);
        std::io::stdout().flush().expect("somebody listens");
    }
    drop(worker);
    session.remove(&container, true)
}
