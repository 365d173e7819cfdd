//! A worker of `benchmarks/objects/flush.py`: makes staged arrays durable, and writes the same bytes to plain files and syncs them.
//!
//! `flush INDEX DIRECTORY`: each line of the input is an operation and a number of arrays; the answer is a line with seconds. All memory
//! (the program's and the tier's) is touched before anything is timed; what an operation replaces is removed before it is timed, too.

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;
use terrace_client::{Array, ArraySpec, Create, DataType, Region, Result, Session};

const TOTAL_BYTES: u64 = 256 << 20;
const ROW: u64 = 4096;

struct Worker {
    session: Session,
    directory: PathBuf,
    cells: Vec<u8>,
}

fn arrays(session: &Session, count: u64, cells: &[u8]) -> Result<Vec<Array>> {
    let bytes = TOTAL_BYTES / count;
    let rows = bytes / (ROW * 8);
    let whole = Region::whole(&[rows, ROW])?;
    (0..count)
        .map(|number| {
            let spec = ArraySpec::new(DataType::Float64, &[rows, ROW]);
            let array = session.create_array(&format!("flush{count}/a{number}"), &spec, Create::IfMissing)?;
            // Twice: the second takes room that the first has touched.
            array.put(&whole, &cells[..bytes as usize])?;
            array.put(&whole, &cells[..bytes as usize])?;
            Ok(array)
        })
        .collect()
}

fn write_and_sync(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

impl Worker {
    fn act(&self, operation: &str, count: u64) -> Result<f64> {
        let container = format!("flush{count}");
        match operation {
            "terrace" => {
                let _ = self.session.remove(&container, true);
                let _arrays = arrays(&self.session, count, &self.cells)?;
                let begun = Instant::now();
                self.session.flush(&container)?;
                Ok(begun.elapsed().as_secs_f64())
            }
            // One after the other, as a program does.
            "plain" => {
                let path = |number: u64| self.directory.join(format!("plain{number}"));
                (0..count).for_each(|number| drop(std::fs::remove_file(path(number))));
                let bytes = (TOTAL_BYTES / count) as usize;
                let begun = Instant::now();
                for number in 0..count {
                    write_and_sync(&path(number), &self.cells[..bytes]).expect("room for a plain file");
                }
                Ok(begun.elapsed().as_secs_f64())
            }
            other => panic!("no operation `{other}`"),
        }
    }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, index, directory] = words.as_slice() else { panic!("flush INDEX DIRECTORY") };
    let session = Session::open(Path::new(index))?;
    // No zeroes: chunks of the fill value are not stored.
    let cells = (0..TOTAL_BYTES / 8).flat_map(|i| (i as f64 + 0.5).to_le_bytes()).collect();
    let worker = Worker { session, directory: directory.into(), cells };
    for line in std::io::stdin().lock().lines().map_while(|line| line.ok()) {
        let (operation, count) = line.split_once(' ').expect("an operation and a number");
        let seconds = worker.act(operation, count.parse().expect("a number of arrays"))?;
        println!("{seconds}");
    }
    Ok(())
}
