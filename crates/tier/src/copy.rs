//! Copies one file's bytes and attributes, and knows whether the source held still meanwhile.
//!
//!   stat ─▶ data ranges ─▶ size ─▶ attributes ─▶ stat again: equal, or `SourceChanged`
//!
//! The copy is not synced and not committed: those are steps of their own. Between chunks it looks at the lease, the abort
//! flag and the bandwidth cap, so a program that waits to write the source waits for one chunk at most.
//!
//! A copy can begin while the source is still being written (`begin`). What it took is noted with a hash of its bytes, and the copy that
//! finishes it, when nobody writes any more, reads the source again and copies what has another hash by then.

use crate::buffer::{BUFFER_BYTES, with_buffer};
use crate::tier::{AttributesReport, Reading, ReadingExt, Writing, WritingExt};
use crate::{BandwidthCap, Error, Lease, Result};
use rustix::fs::copy_file_range;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use twox_hash::XxHash3_128;

/// Bytes between two looks at the lease and the abort flag.
pub const CHUNK_BYTES: usize = BUFFER_BYTES;
const CHUNK: u64 = CHUNK_BYTES as u64;
/// Written pages are handed to the disk this often, so that the sync at the end has little left to do.
const WRITE_BEHIND_BYTES: u64 = 8 << 20;

/// From here on, what a copy was begun with is compared by another thread.
const COMPARED_BESIDE: u64 = 32 << 20;

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
    /// For who syncs the sink meanwhile.
    pub behind: Option<&'a Behind>,
}

impl CopyOptions<'_> {
    fn may_go_on(&self, source: &dyn Reading) -> Result<()> {
        if self.abort.is_some_and(|abort| abort.load(Ordering::Relaxed)) {
            return Err(aborted(source));
        }
        if self.lease.is_some_and(Lease::is_broken) {
            return Err(Error::LeaseBroken { path: source.path().to_path_buf() });
        }
        Ok(())
    }

    fn note_progress(&self, count: u64) {
        if let Some(progress) = self.progress {
            progress.fetch_add(count, Ordering::Relaxed);
        }
    }
}

fn aborted(source: &dyn Reading) -> Error {
    Error::Aborted { path: source.path().to_path_buf() }
}

/// What a copy tells of itself to a thread that syncs its sink.
#[derive(Default)]
pub struct Behind {
    /// Bytes that were written to the sink.
    pub written: AtomicU64,
    /// What is still to come is a comparison: most of the bytes are there.
    pub is_there: AtomicBool,
}

/// A copy that is complete in the sink.
#[derive(Debug)]
pub struct Copied {
    /// The source's size.
    pub bytes: u64,
    /// The source as it was before and after.
    pub source: crate::Stat,
    /// Of what was begun with, so many bytes were another by now.
    pub replaced: u64,
    /// Attributes that the sink could not take.
    pub attributes: AttributesReport,
}

/// The beginning of a copy: which chunks of the source the sink has, each by the hash of its bytes.
pub struct Begun {
    hashes: BTreeMap<u64, u128>,
    /// Up to here the source was looked at.
    position: u64,
    /// Nobody can know it, and so write two chunks with one hash.
    seed: u64,
}

impl Default for Begun {
    fn default() -> Begun {
        Begun { hashes: BTreeMap::new(), position: 0, seed: RandomState::new().build_hasher().finish() }
    }
}

impl Begun {
    /// Bytes that the sink has.
    pub fn bytes(&self) -> u64 {
        self.hashes.len() as u64 * CHUNK
    }

    /// Where the next chunk begins that the sink has, at or after `offset`.
    fn next(&self, offset: u64) -> Option<u64> {
        self.hashes.range(offset..).next().map(|(start, _)| *start)
    }

    fn hash(&self, bytes: &[u8]) -> u128 {
        XxHash3_128::oneshot_with_seed(self.seed, bytes)
    }
}

/// Goes on with a copy of a file that is being written, from where it has come to: by whole chunks without holes up to the last one but one,
/// each of them once, until `is_enough`. How many bytes it took.
pub fn begin(
    begun: &mut Begun,
    source: &dyn Reading,
    sink: &mut dyn Writing,
    options: &CopyOptions<'_>,
    is_enough: &dyn Fn() -> bool,
) -> Result<u64> {
    let stat = source.stat()?;
    let mut pump = Pump::new(source, sink, &stat, options);
    let whole = (stat.size / CHUNK).saturating_sub(1) * CHUNK;
    let mut taken = 0;
    // Where data ends is looked for once, for that takes as long as there is data: a file system in memory looks at each page.
    let mut data = begun.position;
    while begun.position < whole && !is_enough() {
        let mut chunk = begun.position;
        if chunk + CHUNK > data {
            let Some((start, end)) = source.next_data(chunk)? else { break };
            (chunk, data) = (start.next_multiple_of(CHUNK), end.min(whole));
        }
        if chunk + CHUNK > data {
            // The last data may still grow to a whole chunk; others have a hole behind them.
            if data >= whole {
                break;
            }
            begun.position = data.next_multiple_of(CHUNK).min(whole);
            continue;
        }
        pump.may_go_on()?;
        if options.cap.is_some_and(|cap| !cap.take(CHUNK, is_enough)) {
            break;
        }
        let hash = with_chunk(source, chunk, CHUNK, |bytes| {
            pump.sink.write_all_at(bytes, chunk)?;
            Ok(begun.hash(bytes))
        })?;
        begun.hashes.insert(chunk, hash);
        begun.position = chunk + CHUNK;
        pump.start_writing(begun.position, CHUNK);
        taken += CHUNK;
    }
    pump.write_back(begun.position);
    Ok(taken)
}

/// Fills `sink`, which must be empty, with the bytes, holes and attributes of `source`.
pub fn copy(source: &dyn Reading, sink: &mut dyn Writing, options: &CopyOptions<'_>) -> Result<Copied> {
    finish(&Begun::default(), source, sink, options)
}

/// As `copy`, of a sink that has what was begun with, and nothing else.
pub fn finish(
    begun: &Begun,
    source: &dyn Reading,
    sink: &mut dyn Writing,
    options: &CopyOptions<'_>,
) -> Result<Copied> {
    let before = source.stat()?;
    let attributes = source.attributes()?;
    let mut pump = Pump::new(source, sink, &before, options);
    let has_failed = AtomicBool::new(false);
    let compare = || changed(begun, source, before.size, options, &has_failed);
    let replaced = std::thread::scope(|scope| {
        // While this thread waits for the sink, another one looks at what the sink has.
        let is_long = begun.bytes() >= COMPARED_BESIDE;
        let beside = is_long.then(|| std::thread::Builder::new().name("compare".into()).spawn_scoped(scope, compare));
        pump.others(begun, before.size).inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?;
        // The disk writes what is there while memory is compared.
        if let Some(behind) = options.behind {
            behind.is_there.store(true, Ordering::Release);
        }
        let changed = match beside {
            Some(Ok(thread)) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            _ => compare()?,
        };
        for &(start, end) in &changed {
            pump.run(start, end)?;
        }
        Ok(changed.iter().map(|(start, end)| end - start).sum())
    })?;
    sink.set_size(before.size)?;
    let attributes = sink.set_attributes(&attributes)?;
    let after = source.stat()?;
    if after.version() != before.version() {
        return Err(Error::SourceChanged { path: source.path().to_path_buf() });
    }
    Ok(Copied { bytes: before.size, source: after, replaced, attributes })
}

/// Of what was begun with, the parts that are another by now.
fn changed(
    begun: &Begun,
    source: &dyn Reading,
    size: u64,
    options: &CopyOptions<'_>,
    has_failed: &AtomicBool,
) -> Result<Vec<(u64, u64)>> {
    let mut changed = vec![];
    for (&start, &hash) in begun.hashes.range(..size) {
        options.may_go_on(source)?;
        if has_failed.load(Ordering::Relaxed) {
            return Err(aborted(source));
        }
        let end = (start + CHUNK).min(size);
        let is_equal = end - start == CHUNK && with_chunk(source, start, CHUNK, |bytes| Ok(begun.hash(bytes) == hash))?;
        if is_equal {
            options.note_progress(CHUNK);
        } else {
            changed.push((start, end));
        }
    }
    Ok(changed)
}

/// Reads a part of the source, a chunk at most, into this thread's buffer.
fn with_chunk<R>(source: &dyn Reading, offset: u64, count: u64, use_it: impl FnOnce(&[u8]) -> Result<R>) -> Result<R> {
    let read = with_buffer(|buffer| {
        let part = &mut buffer[..count as usize];
        source.read_exact_at(part, offset).and_then(|()| use_it(part))
    });
    read.map_err(|error| Error::io("make room for", source.path(), error))?
}

/// Moves ranges, chunk by chunk, the fastest way that works: within a file system the kernel copies (or shares) the
/// extents; between two, `read` and `write` of 1 MiB are as fast as `sendfile`, which writes by 64 KiB, and make fewer requests.
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
            let count = (end - offset).min(CHUNK);
            self.may_take(count)?;
            self.chunk(offset, count)?;
            offset += count;
            self.options.note_progress(count);
            self.start_writing(offset, count);
        }
        Ok(())
    }

    /// What was not begun with.
    fn others(&mut self, begun: &Begun, size: u64) -> Result<()> {
        let (mut offset, mut data) = (0, (0, 0));
        while offset < size {
            if begun.hashes.contains_key(&offset) {
                offset += CHUNK;
                continue;
            }
            if offset >= data.1 {
                let Some(found) = self.source.next_data(offset)? else { break };
                data = found;
            }
            let limit = begun.next(offset).unwrap_or(size).min(size);
            let (start, end) = (data.0.max(offset), data.1.min(limit));
            if start < end {
                self.run(start, end)?;
            }
            offset = if start < limit { end } else { limit };
        }
        Ok(())
    }

    /// Waits for its turn under the cap.
    fn may_take(&self, count: u64) -> Result<()> {
        self.may_go_on()?;
        if let Some(cap) = self.options.cap
            && !cap.take(count, || self.may_go_on().is_err())
        {
            return Err(self.may_go_on().err().unwrap_or_else(|| aborted(self.source)));
        }
        Ok(())
    }

    fn may_go_on(&self) -> Result<()> {
        self.options.may_go_on(self.source)
    }

    fn chunk(&mut self, offset: u64, count: u64) -> Result<()> {
        let done = if self.in_kernel { self.chunk_in_kernel(offset, count)? } else { 0 };
        if done == count {
            return Ok(());
        }
        let (source, offset) = (self.source, offset + done);
        with_chunk(source, offset, count - done, |bytes| self.sink.write_all_at(bytes, offset))
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
        if let Some(behind) = self.options.behind {
            behind.written.fetch_add(count, Ordering::Release);
        }
        if self.written >= WRITE_BEHIND_BYTES {
            self.write_back(end);
        }
    }

    fn write_back(&mut self, end: u64) {
        let bytes = std::mem::take(&mut self.written);
        if self.options.write_behind
            && bytes > 0
            && let Some(fd) = self.sink.as_fd()
        {
            start_write_back(fd, end.saturating_sub(bytes), bytes);
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
