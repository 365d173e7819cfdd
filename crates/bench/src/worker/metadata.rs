//! Metadata operations: create, stat, list and unlink the files of a tree.

use super::pass::failed;
use crate::clock::now_ns;
use crate::error::{Error, Result};
use crate::latencies::{encode, histogram};
use crate::protocol::{Assignment, PassReport};
use crate::settings::{Operation, Workload};
use crate::workload::Tree;
use std::fs::OpenOptions;
use std::io::{self, Write};

pub fn tree(assignment: &Assignment, worker: u32) -> Result<Tree> {
    let Workload::Metadata(workload) = &assignment.settings.workload else {
        return Err(Error::failed("the workload has no tree"));
    };
    Ok(Tree::new(&assignment.directory.join(&assignment.file_stem), workload, worker))
}

/// Directories are made before the start: what is measured is files.
pub fn prepare(assignment: &Assignment) -> Result<()> {
    if assignment.operation == Operation::Create {
        for directory in tree(assignment, assignment.worker)?.directories() {
            std::fs::create_dir_all(&directory).map_err(|error| failed("create", &directory, error))?;
        }
    }
    Ok(())
}

pub fn perform(assignment: &Assignment) -> Result<PassReport> {
    let tree = tree(assignment, assignment.reads_of)?;
    let content = vec![0x5a; tree.file_bytes()];
    let mut latencies = histogram();
    let now = now_ns();
    let mut report = PassReport { began_ns: now, opened_ns: now, first_ns: now, last_ns: now, ..PassReport::default() };
    let mut timed = |report: &mut PassReport, act: &mut dyn FnMut() -> Result<()>| {
        let began = now_ns();
        act()?;
        report.last_ns = now_ns();
        report.requests += 1;
        latencies.saturating_record((report.last_ns - began).max(1));
        Ok::<(), Error>(())
    };
    match assignment.operation {
        Operation::List => {
            let mut listed = 0;
            for directory in tree.leaves() {
                timed(&mut report, &mut || {
                    for entry in std::fs::read_dir(&directory).map_err(|error| failed("list", &directory, error))? {
                        entry.map_err(|error| failed("list", &directory, error))?;
                        listed += 1;
                    }
                    Ok(())
                })?;
            }
            if listed < tree.file_count() {
                return Err(Error::Wrong(format!(
                    "{}: {listed} files listed, {} made",
                    tree.top.display(),
                    tree.file_count()
                )));
            }
        }
        operation => {
            for file in tree.files() {
                timed(&mut report, &mut || {
                    match operation {
                        Operation::Create => create(&file, &content),
                        Operation::Stat => std::fs::metadata(&file).and_then(|found| {
                            let right = found.len() == content.len() as u64;
                            if right { Ok(()) } else { Err(io::Error::other(format!("its size is {}", found.len()))) }
                        }),
                        _ => std::fs::remove_file(&file),
                    }
                    .map_err(|error| failed(operation.name(), &file, error))
                })?;
                if operation == Operation::Create {
                    report.bytes += content.len() as u64;
                }
            }
        }
    }
    report.bytes_planned = report.bytes;
    report.flushed_ns = report.last_ns;
    report.closed_ns = report.last_ns;
    report.latencies = encode(&latencies);
    Ok(report)
}

fn create(path: &std::path::Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content)
}
