//! Copies one file's bytes and attributes, and knows whether the source held still meanwhile.
//!
//!   stat ─▶ data ranges ─▶ size ─▶ attributes ─▶ stat again: equal, or `SourceChanged`
//!
//! The copy is not synced and not committed: those are steps of their own. Between chunks it looks at the lease, the abort
//! flag and the bandwidth cap, so a program that waits to write the source waits for one chunk at most.

use crate::tier::{AttributesReport, Reading, ReadingExt, Writing, WritingExt};
use crate::{BandwidthCap, Error, Lease, Result};
use rustix::fs::{Advice, copy_file_range, fadvise};
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes between two looks at the lease and the abort flag.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Written pages are handed to the disk this often, so that the sync at the end has little left to do.
const WRITE_BEHIND_BYTES: u64 = 8 << 20;

/// What a copy respects. `Default`: nothing but the source's version.
#[derive(Clone, Copy, Default)]
pub struct CopyOptions<'a> {
    /// Shared by all copies that are capped together.
    pub cap: Option<&'a BandwidthCap>,
    /// Set by another thread to stop this copy (`Aborted`).
    pub abort: Option<&'a AtomicBool>,
    /// The source's lease: the copy stops when it breaks (`LeaseBroken`).
    pub lease: Option<&'a Lease>,
    /// Grows by each chunk's bytes.
    pub progress: Option<&'a AtomicU64>,
    /// The sink is on a disk and will be synced: start writing early.
    pub write_behind: bool,
}

/// A copy that is complete in the sink.
#[derive(Debug)]
pub struct Copied {
    /// The source's size.
    pub bytes: u64,
    /// The source as it was before and after.
    pub source: crate::Stat,
    /// Attributes that the sink could not take.
    pub attributes: AttributesReport,
}

/// Fills `sink`, which must be empty, with the bytes, holes and attributes of `source`.
pub fn copy(source: &dyn Reading, sink: &mut dyn Writing, options: &CopyOptions<'_>) -> Result<Copied> {
    let before = source.stat()?;
    let attributes = source.attributes()?;
    let mut pump = Pump::new(source, sink, &before, options);
    let mut offset = 0;
    while offset < before.size {
        let Some((start, end)) = source.next_data(offset)? else { break };
        pump.run(start, end.min(before.size))?;
        offset = end;
    }
    sink.set_size(before.size)?;
    let attributes = sink.set_attributes(&attributes)?;
    let after = source.stat()?;
    if after.version() != before.version() {
        return Err(Error::SourceChanged { path: source.path().to_path_buf() });
    }
    Ok(Copied { bytes: before.size, source: after, attributes })
}

/// Lets go of a durable file's cached pages: its tier's copy is the one that will be read. Call it after `sync`.
pub fn drop_cache(file: &dyn Writing) {
    if let Some(fd) = file.as_fd() {
        let _ = fadvise(fd, 0, None, Advice::DontNeed); // advice: a kernel that doesn't take it loses us nothing
    }
}

thread_local! {
    /// One buffer for each mover thread: a fresh one would fault in its pages for every file.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Moves ranges, chunk by chunk, the fastest way that works: within a file system the kernel copies (or shares) the
/// extents; between two, `read` and `write` of 1 MiB beat `sendfile`, `mmap` and other sizes.
struct Pump<'a> {
    source: &'a dyn Reading,
    sink: &'a mut dyn Writing,
    options: &'a CopyOptions<'a>,
    in_kernel: bool,
    written: u64,
}

impl<'a> Pump<'a> {
    fn new(
        source: &'a dyn Reading,
        sink: &'a mut dyn Writing,
        stat: &crate::Stat,
        options: &'a CopyOptions<'a>,
    ) -> Pump<'a> {
        let is_same_fs = sink.stat().is_ok_and(|sink| sink.dev == stat.dev);
        let in_kernel = is_same_fs && source.as_fd().is_some() && sink.as_fd().is_some();
        Pump { source, sink, options, in_kernel, written: 0 }
    }

    fn run(&mut self, mut offset: u64, end: u64) -> Result<()> {
        while offset < end {
            let count = (end - offset).min(CHUNK_BYTES as u64);
            self.may_go_on()?;
            if let Some(cap) = self.options.cap
                && !cap.take(count, || self.may_go_on().is_err())
            {
                return Err(self.may_go_on().err().unwrap_or_else(|| self.aborted()));
            }
            self.chunk(offset, count)?;
            offset += count;
            if let Some(progress) = self.options.progress {
                progress.fetch_add(count, Ordering::Relaxed);
            }
            self.start_writing(offset, count);
        }
        Ok(())
    }

    fn may_go_on(&self) -> Result<()> {
        if self.options.abort.is_some_and(|abort| abort.load(Ordering::Relaxed)) {
            return Err(self.aborted());
        }
        if self.options.lease.is_some_and(Lease::is_broken) {
            return Err(Error::LeaseBroken { path: self.source.path().to_path_buf() });
        }
        Ok(())
    }

    fn aborted(&self) -> Error {
        Error::Aborted { path: self.source.path().to_path_buf() }
    }

    fn chunk(&mut self, offset: u64, count: u64) -> Result<()> {
        let done = if self.in_kernel { self.chunk_in_kernel(offset, count)? } else { 0 };
        if done == count {
            return Ok(());
        }
        let mut buffer = BUFFER.take();
        let wanted = (count - done) as usize;
        if buffer.len() < wanted {
            buffer.resize(wanted, 0);
        }
        let part = &mut buffer[..wanted];
        let result =
            self.source.read_exact_at(part, offset + done).and_then(|()| self.sink.write_all_at(part, offset + done));
        BUFFER.set(buffer);
        result
    }

    /// Bytes done. What it can't do is left to `read` and `write`, whose errors say which side failed.
    fn chunk_in_kernel(&mut self, offset: u64, count: u64) -> Result<u64> {
        let (Some(from), Some(to)) = (self.source.as_fd(), self.sink.as_fd()) else { return Ok(0) };
        let mut done = 0;
        while done < count {
            let (mut at_source, mut at_sink) = (offset + done, offset + done);
            let asked = (count - done) as usize;
            match copy_file_range(from, Some(&mut at_source), to, Some(&mut at_sink), asked) {
                Ok(0) => return Err(Error::SourceChanged { path: self.source.path().to_path_buf() }),
                Ok(bytes) => done += bytes as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    self.in_kernel = false;
                    break;
                }
            }
        }
        Ok(done)
    }

    fn start_writing(&mut self, end: u64, count: u64) {
        self.written += count;
        if self.options.write_behind && self.written >= WRITE_BEHIND_BYTES {
            if let Some(fd) = self.sink.as_fd() {
                start_write_back(fd, end.saturating_sub(self.written), self.written);
            }
            self.written = 0;
        }
    }
}

fn start_write_back(fd: BorrowedFd<'_>, offset: u64, bytes: u64) {
    use std::os::fd::AsRawFd;
    // SAFETY: plain system call on a borrowed descriptor. Its failure only means that the sync does it all.
    unsafe { libc::sync_file_range(fd.as_raw_fd(), offset as i64, bytes as i64, libc::SYNC_FILE_RANGE_WRITE) };
}

#[cfg(test)]
mod tests;
