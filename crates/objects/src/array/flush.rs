//! Writes a staged array's chunks into the root.
//!
//! ```text
//!  chunks ─▶ workers: from the tier, where a chunk is one run there ─▶ file beside its place, on its way to the storage
//!              └─ so many bytes: each synced, renamed     meanwhile: ranges of the extents     then: directories, zarr.json
//! ```
//!
//! The storage is to be busy from the first chunk on, and the cells are copied once: so several chunks are written at a time, straight
//! from the tier, each is sent to the storage before it is waited for, and what waits for the same journal waits together.
//!
//! Invariant: a chunk has its name after its bytes are synced. A chunk that was overwritten while it was written is written again.

use super::base::Base;
use super::copying::{copy_overlap, fill};
use super::handle::ArrayHandle;
use super::metadata::METADATA_FILE;
use crate::calls;
use crate::failure::Context;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use terrace_core::objects::{Kind, ObjectError, Overlap, RANK_MAX, Region, Result, cells};

/// Chunks that are written at a time; the storage's waiting is most of it, so there are more than cores.
const WORKERS_MAX: usize = 8;
/// Bytes that a worker writes before they are put in place together: so much more than before may the root need meanwhile.
const BATCH_BYTES: usize = 32 << 20;
const BATCH_FILES: usize = 256;

pub struct Flush<'a> {
    pub handle: &'a ArrayHandle,
    pub base: &'a Base,
    pub durable: bool,
}

/// What came of it: bytes, and directories whose names have changed.
#[derive(Default)]
pub struct Written {
    pub bytes: u64,
    pub directories: BTreeSet<PathBuf>,
}

impl Flush<'_> {
    pub fn chunks(&self, chunks: &[Vec<u64>]) -> Result<Written> {
        let next = AtomicUsize::new(0);
        let written = Mutex::new(Written::default());
        at_once("flush", chunks.len(), || {
            let mut worker =
                Worker { flush: self, batch: vec![], bytes: 0, written: Written::default(), spare: vec![] };
            // Who has failed takes no more; what others have begun, they end.
            while let Some(chunk) = chunks.get(next.fetch_add(1, Relaxed)) {
                worker.write(chunk).inspect_err(|_| next.store(chunks.len(), Relaxed))?;
            }
            worker.commit()?;
            let mine = std::mem::take(&mut worker.written);
            let mut all = written.lock().unwrap();
            all.bytes += mine.bytes;
            all.directories.extend(mine.directories);
            Ok(())
        })?;
        Ok(written.into_inner().unwrap())
    }

    /// Names that have changed, and the metadata, which was made without waiting for the storage.
    pub fn sync_names(&self, mut directories: BTreeSet<PathBuf>) -> Result<()> {
        let directory = self.handle.directory();
        directories.insert(directory.into());
        directories.extend(directory.parent().map(Path::to_owned));
        let mut paths: Vec<PathBuf> = directories.into_iter().collect();
        paths.push(directory.join(METADATA_FILE));
        let next = AtomicUsize::new(0);
        at_once("flush", paths.len(), || {
            while let Some(path) = paths.get(next.fetch_add(1, Relaxed)) {
                let fd = calls::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).context("open", path)?;
                rustix::fs::fsync(&fd).context("sync", path)?;
            }
            Ok(())
        })
    }
}

/// Several threads do the same until there is no more of it; one, where there is little.
pub(super) fn at_once(name: &str, tasks: usize, act: impl Fn() -> Result<()> + Sync) -> Result<()> {
    if tasks <= 1 {
        return act();
    }
    std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().name(name.into()).spawn_scoped(scope, &act);
        // Where no thread can be had, this one does it all.
        let others: Vec<_> = (1..tasks.min(WORKERS_MAX)).map_while(|number| start(number).ok()).collect();
        let mine = act();
        let theirs =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        theirs.fold(mine, |first, next| first.and(next))
    })
}

/// A chunk that is written beside its place.
struct Prepared {
    chunk: Vec<u64>,
    file: File,
    path: PathBuf,
}

struct Worker<'a> {
    flush: &'a Flush<'a>,
    batch: Vec<Prepared>,
    bytes: usize,
    written: Written,
    /// Memory that is used again.
    spare: Vec<u8>,
}

impl Worker<'_> {
    fn write(&mut self, chunk: &[u64]) -> Result<()> {
        let Flush { handle, base, .. } = *self.flush;
        let region = base.chunk_region(chunk);
        let shape = handle.shape()?;
        let is_inside = region.end().iter().zip(&shape).all(|(end, extent)| end <= extent);
        let straight = if is_inside { handle.lend(&region, |cells| self.prepare(chunk, cells))? } else { None };
        let prepared = match straight {
            Some((prepared, true)) => prepared?,
            overwritten => {
                // It is not one run in the tier, or was overwritten while it was written.
                if let Some((Ok(Some(prepared)), false)) = overwritten {
                    let _ = calls::unlink(&prepared.path);
                }
                let mut cells = std::mem::take(&mut self.spare);
                whole_chunk(handle, base, chunk, &mut cells)?;
                let prepared = self.prepare(chunk, &cells);
                self.spare = cells;
                prepared?
            }
        };
        let bytes = cells(region.count()).unwrap_or(0) as usize * handle.spec().data_type.size();
        self.written.bytes += bytes as u64;
        let Some(prepared) = prepared else { return base.remove_chunk(chunk) };
        self.batch.push(prepared);
        self.bytes += bytes;
        if self.bytes >= BATCH_BYTES || self.batch.len() >= BATCH_FILES { self.commit() } else { Ok(()) }
    }

    /// `None`: as Zarr's own libraries do, a chunk of fill values is not stored.
    fn prepare(&self, chunk: &[u64], cells: &[u8]) -> Result<Option<Prepared>> {
        let Flush { handle, base, durable } = *self.flush;
        let value = &handle.spec().fill;
        if cells.chunks_exact(value.len()).all(|cell| cell == value) {
            return Ok(None);
        }
        let place = base.chunk_path(chunk);
        let directory = place.parent().expect("a chunk lies in its array");
        let path = directory.join(format!(".chunk.{:016x}", crate::place::random()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let create = || calls::open(&path, flags, Mode::from_raw_mode(0o666));
        let fd = match create() {
            Err(rustix::io::Errno::NOENT) => {
                std::fs::create_dir_all(directory).context("make the directory", directory)?;
                create()
            }
            created => created,
        };
        let mut file = File::from(fd.context("create", &path)?);
        let written = file.write_all(cells).context("write", &path);
        if let Err(error) = written {
            let _ = calls::unlink(&path);
            return Err(error);
        }
        if durable {
            // On its way while the next one is written. Only a hint: it is synced before it gets its name.
            // SAFETY: a descriptor of ours.
            unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
        Ok(Some(Prepared { chunk: chunk.into(), file, path }))
    }

    fn commit(&mut self) -> Result<()> {
        self.bytes = 0;
        let base = self.flush.base;
        if self.flush.durable {
            for Prepared { file, path, .. } in &self.batch {
                rustix::fs::fdatasync(file).context("sync", path)?;
            }
        }
        while let Some(Prepared { chunk, path, .. }) = self.batch.last() {
            base.commit_chunk(chunk, path)?;
            let place = base.chunk_path(chunk);
            self.written.directories.extend(place.ancestors().skip(1).take(chunk.len() + 1).map(Path::to_owned));
            self.batch.pop();
        }
        Ok(())
    }
}

impl Drop for Worker<'_> {
    fn drop(&mut self) {
        for Prepared { path, .. } in &self.batch {
            let _ = calls::unlink(path);
        }
    }
}

/// A chunk's cells as they are now; the fill value beyond the array's bounds.
fn whole_chunk(handle: &ArrayHandle, base: &Base, chunk: &[u64], buffer: &mut Vec<u8>) -> Result<()> {
    let spec = handle.spec();
    let size = spec.data_type.size();
    let whole = base.chunk_region(chunk);
    let bytes = cells(whole.count()).unwrap_or(0) as usize * size;
    // What was there is overwritten.
    buffer.resize(bytes, 0);
    let shape = handle.shape()?;
    let mut count = [0; RANK_MAX];
    for d in 0..whole.rank() {
        count[d] = whole.count()[d].min(shape[d].saturating_sub(whole.offset()[d]));
    }
    let inside = Region::block(whole.offset(), &count[..whole.rank()])?;
    if inside == whole {
        return handle.get(&whole, buffer);
    }
    fill(buffer, &spec.fill);
    let mut part = vec![0u8; inside.cells() as usize * size];
    handle.get(&inside, &mut part)?;
    if let Some(overlap) = Overlap::of(&inside, &whole) {
        // SAFETY: both buffers have all cells of their regions.
        unsafe { copy_overlap(&overlap, size, part.as_ptr(), buffer.as_mut_ptr()) };
    }
    Ok(())
}

/// Only cells as they are can be written.
pub fn check_writable(is_raw: bool) -> Result<()> {
    match is_raw {
        true => Ok(()),
        false => Err(ObjectError::new(Kind::WrongKind, "an array with encoded chunks can't be written")),
    }
}
