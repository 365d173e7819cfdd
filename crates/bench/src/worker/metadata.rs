//! Metadata operations: create, stat, list, read and unlink the files of a tree.

use super::Meeting;
use super::pass::failed;
use crate::clock::now_ns;
use crate::error::{Error, Result};
use crate::latencies::{encode, histogram};
use crate::protocol::{Assignment, PassReport};
use crate::settings::{Operation, Workload};
use crate::signature::{Identity, Signature};
use crate::workload::Tree;
use hdrhistogram::Histogram;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

pub fn tree(assignment: &Assignment, worker: u32) -> Result<Tree> {
    let Workload::Metadata(workload) = &assignment.settings.workload else {
        return Err(Error::failed("the workload has no tree"));
    };
    let written = assignment.written.filter(|_| assignment.operation != Operation::Create);
    Ok(Tree::new(&assignment.directory.join(&assignment.file_stem), workload, worker, written))
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

/// What is measured, file by file.
struct Measured {
    report: PassReport,
    latencies: Histogram<u64>,
}

impl Measured {
    fn act(&mut self, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let began = now_ns();
        act()?;
        self.report.last_ns = now_ns();
        self.report.requests += 1;
        self.latencies.saturating_record((self.report.last_ns - began).max(1));
        Ok(())
    }
}

pub fn perform(assignment: &Assignment, meeting: &mut dyn Meeting) -> Result<PassReport> {
    let tree = tree(assignment, assignment.owner())?;
    let now = now_ns();
    let report = PassReport { began_ns: now, opened_ns: now, first_ns: now, last_ns: now, ..PassReport::default() };
    let mut measured = Measured { report, latencies: histogram() };
    match assignment.operation {
        Operation::List => list(&tree, &mut measured)?,
        Operation::Create => create_all(assignment, &tree, meeting, &mut measured)?,
        Operation::ReadFiles => read_all(assignment, &tree, &mut measured)?,
        Operation::Stat => {
            let bytes = tree.file_bytes() as u64;
            for file in tree.files() {
                measured.act(|| {
                    let found = std::fs::metadata(&file).map_err(|error| failed("stat", &file, error))?;
                    if found.len() == bytes {
                        return Ok(());
                    }
                    Err(Error::Wrong(format!("{}: {} bytes instead of {bytes}", file.display(), found.len())))
                })?;
            }
        }
        operation => {
            for file in tree.files() {
                measured.act(|| std::fs::remove_file(&file).map_err(|error| failed(operation.name(), &file, error)))?;
            }
        }
    }
    let Measured { mut report, latencies } = measured;
    report.bytes_planned = report.bytes;
    report.flushed_ns = report.last_ns;
    report.closed_ns = report.last_ns;
    report.latencies = encode(&latencies);
    Ok(report)
}

fn list(tree: &Tree, measured: &mut Measured) -> Result<()> {
    let mut listed = 0;
    for directory in tree.leaves() {
        measured.act(|| {
            for entry in std::fs::read_dir(&directory).map_err(|error| failed("list", &directory, error))? {
                entry.map_err(|error| failed("list", &directory, error))?;
                listed += 1;
            }
            Ok(())
        })?;
    }
    if listed < tree.file_count() {
        let (top, made) = (tree.top.display(), tree.file_count());
        return Err(Error::Wrong(format!("{top}: {listed} files listed, {made} made")));
    }
    Ok(())
}

/// Until all are there, or the time is up and everybody has made as many as the fastest had.
fn create_all(assignment: &Assignment, tree: &Tree, meeting: &mut dyn Meeting, measured: &mut Measured) -> Result<()> {
    let signature = signature(assignment);
    let mut content = vec![0; tree.file_bytes()];
    let wall = assignment.settings.stonewall;
    let mut deadline = wall.map(|wall| measured.report.first_ns + wall.after.nanoseconds());
    let mut limit = u64::MAX;
    for (index, file) in tree.files().enumerate() {
        if let (Some(wall), Some(at)) = (wall, deadline)
            && measured.report.last_ns >= at
            && index > 0
        {
            deadline = None;
            measured.report.before_stonewall = Some(index as u64);
            limit = if wall.wear_out { meeting.stonewalled(index as u64)? } else { index as u64 };
        }
        if index as u64 >= limit {
            break;
        }
        signature.fill(offset(index, content.len()), &mut content);
        measured.act(|| create(&file, &content).map_err(|error| failed("create", &file, error)))?;
        measured.report.bytes += content.len() as u64;
    }
    if wall.is_some_and(|wall| wall.wear_out) && deadline.is_some() {
        // Who has made all still meets those who wait.
        measured.report.before_stonewall = Some(measured.report.requests);
        meeting.stonewalled(measured.report.requests)?;
    }
    let Workload::Metadata(workload) = &assignment.settings.workload else { return Ok(()) };
    if workload.sync {
        let top = &tree.top;
        File::open(top)
            .and_then(|directory| Ok(rustix::fs::syncfs(directory)?))
            .map_err(|error| failed("sync the file system of", top, error))?;
        measured.report.last_ns = now_ns();
    }
    Ok(())
}

fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(content)
}

/// The reads are measured, what they found is looked at between them.
fn read_all(assignment: &Assignment, tree: &Tree, measured: &mut Measured) -> Result<()> {
    let signature = signature(assignment);
    let bytes = tree.file_bytes();
    // One byte more than there should be.
    let mut buffer = vec![0; bytes + 1];
    for (index, path) in tree.files().enumerate() {
        let mut found = 0;
        measured.act(|| {
            let mut file = File::open(&path).map_err(|error| failed("open", &path, error))?;
            found = read(&mut file, &mut buffer).map_err(|error| failed("read", &path, error))?;
            Ok(())
        })?;
        let began = now_ns();
        measured.report.bytes += found as u64;
        if found != bytes {
            return Err(Error::Wrong(format!("{}: {found} bytes or more instead of {bytes}", path.display())));
        }
        if super::loops::is_checked(assignment) {
            let right = signature.verify(offset(index, bytes), &buffer[..bytes]);
            right.map_err(|mismatch| Error::Wrong(format!("{}: {mismatch}", path.display())))?;
            measured.report.bytes_verified += bytes as u64;
        }
        measured.report.own_ns += now_ns() - began;
    }
    (measured.report.read_bytes, measured.report.read_requests) = (measured.report.bytes, measured.report.requests);
    Ok(())
}

/// Until the buffer is full or the file has ended.
fn read(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < buffer.len() {
        match file.read(&mut buffer[found..]) {
            Ok(0) => break,
            Ok(bytes) => found += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// A worker's files are parts of one signed sequence.
fn signature(assignment: &Assignment) -> Signature {
    Signature::new(Identity { file: assignment.owner(), ..assignment.identity })
}

fn offset(index: usize, bytes: usize) -> u64 {
    index as u64 * bytes.next_multiple_of(8) as u64
}
