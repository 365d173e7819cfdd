//! How bytes reach storage: one small trait, one file for each way.
//!
//! A backend opens one file at a time and moves requests that are complete or an error. Two extensions are asked for by
//! name: `Queue` for several requests under way at once, `Blocks` for calls that take a part of an array as a whole.
//! A new backend needs the six required methods, and its first test is the line in `tests` that runs the conformance suite.

mod cstream;
mod delayed;
mod io_uring;
mod mmap;
mod null;
mod objects;
mod posix;
#[cfg(feature = "s3")]
mod s3;
mod shim;

pub use shim::{Shim, build as build_shim, cache_directory};

use crate::error::{Error, Result};
use crate::settings::{BackendSettings, RunSettings};
use crate::workload::Block;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What a worker opens.
pub struct Target<'a> {
    pub path: &'a Path,
    pub directory: &'a Path,
    /// Size of the whole file when all workers have written.
    pub file_bytes: u64,
    pub write: bool,
    /// This worker's parts of the file's variables, where it has some.
    pub blocks: &'a [Block],
    /// Several workers have it open.
    pub shared: bool,
    /// Index of the worker that opens the file.
    pub worker: u32,
}

pub trait Backend {
    fn open(&mut self, target: &Target) -> io::Result<()>;
    /// Writes all of it.
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Reads all of it; an early end of the file is an error.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Returns when all that was written is on the storage.
    fn flush(&mut self) -> io::Result<()>;
    fn close(&mut self) -> io::Result<()>;
    fn remove(&mut self, path: &Path) -> io::Result<()>;

    /// Names are of files below this directory; said before anything else.
    fn place(&mut self, _directory: &Path) {}
    /// Whether there is something of this name.
    fn exists(&mut self, path: &Path) -> io::Result<bool> {
        Ok(path.symlink_metadata().is_ok())
    }
    fn queue(&mut self) -> Option<&mut dyn Queue> {
        None
    }
    fn blocks(&mut self) -> Option<&mut dyn Blocks> {
        None
    }
    /// Workers make each call together, so each makes as many as the one that has most.
    fn collective(&self) -> bool {
        false
    }
    /// A call that moves nothing, so that others' collective calls can end.
    fn join_call(&mut self, _write: bool) -> io::Result<()> {
        Ok(())
    }
    /// Nanoseconds that requests took on a clock of the backend's own, instead of the real one.
    fn virtual_ns(&self) -> Option<u64> {
        None
    }
}

/// Several requests under way. A slot has one buffer; it is the backend's from `submit` until `complete` names it.
pub trait Queue {
    fn depth(&self) -> usize;
    /// # Safety
    /// `buffer` must stay valid and untouched until `complete` has returned this slot.
    unsafe fn submit(&mut self, slot: usize, write: bool, offset: u64, buffer: *mut u8, bytes: usize)
    -> io::Result<()>;
    /// Hands what was submitted to the kernel now, where `complete` would do it later with more.
    fn issue(&mut self) -> io::Result<()>;
    /// Waits for a request that is done, and names its slot.
    fn complete(&mut self) -> io::Result<usize>;
    /// The same, but waits for so long only.
    fn complete_within(&mut self, time: Duration) -> io::Result<Option<usize>>;
}

/// A part of an array in one call. The buffer holds it densely, in row-major order.
pub trait Blocks {
    fn write_block(&mut self, block: &Block, data: &[u8]) -> io::Result<()>;
    fn read_block(&mut self, block: &Block, buffer: &mut [u8]) -> io::Result<()>;
}

pub fn make(settings: &RunSettings, seed: u64) -> Result<Box<dyn Backend>> {
    let backend: Box<dyn Backend> = match &settings.backend {
        BackendSettings::Posix(posix) => Box::new(posix::Posix::new(posix.direct, posix.seek)),
        BackendSettings::TerraceFiles(_) => Box::new(posix::Posix::new(false, false)),
        BackendSettings::TerraceObjects(settings) => Box::new(objects::Objects::new(settings)?),
        BackendSettings::Cstream(stream) => Box::new(cstream::Cstream::new(stream.buffer.map(|buffer| buffer.0))),
        BackendSettings::Mmap(_) => Box::new(mmap::Mapped::default()),
        BackendSettings::IoUring(uring) => {
            Box::new(io_uring::Uring::new(uring.depth, uring.direct).map_err(|error| {
                Error::io("set up", "io_uring (is it allowed here? see kernel.io_uring_disabled)", error)
            })?)
        }
        BackendSettings::Null(null) => Box::new(null::Null::new(null, seed)?),
        BackendSettings::Mpiio(_) | BackendSettings::Hdf5(_) | BackendSettings::Netcdf(_) => {
            Box::new(Shim::load(&settings.backend)?)
        }
        #[cfg(feature = "s3")]
        BackendSettings::S3(s3) => Box::new(s3::Store::new(s3)?),
        #[cfg(not(feature = "s3"))]
        BackendSettings::S3(_) => {
            return Err(Error::input("this build has no S3 backend", "build with `--features s3`"));
        }
    };
    let delay = settings.backend.added_delay();
    Ok(if delay.0 > 0.0 { Box::new(delayed::Delayed::new(backend, delay.duration())) } else { backend })
}

/// Whether the kernel lets this process have a ring.
pub fn try_io_uring() -> Result<()> {
    let made = io_uring::Uring::new(1, false);
    made.map(drop).map_err(|error| {
        Error::input(
            format!("io_uring can't be set up: {error}"),
            "allow it (kernel.io_uring_disabled = 0, and the container's rules), or use another backend",
        )
    })
}

fn not_open() -> io::Error {
    io::Error::other("no file is open")
}

#[cfg(test)]
mod tests;
