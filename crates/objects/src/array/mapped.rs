//! A file mapped shared, for reading and writing; its room is taken before it is touched, so that a full file system is an
//! error and not a signal.

use crate::calls;
use crate::failure::Context;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use terrace_core::objects::Result;

pub struct MappedFile {
    base: *mut u8,
    len: usize,
    fd: OwnedFd,
    path: PathBuf,
    ino: u64,
}

// SAFETY: shared between processes anyway: whoever uses the bytes takes care of that, thread or process.
unsafe impl Send for MappedFile {}
// SAFETY: as above.
unsafe impl Sync for MappedFile {}

impl MappedFile {
    /// A new file with `room` bytes of its `len` taken.
    pub fn create(path: &Path, len: u64, room: u64) -> Result<MappedFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let fd = calls::open(path, flags, Mode::RUSR | Mode::WUSR).context("create", path)?;
        let made = (|| {
            // Its length first: whoever removes what a killed client has left tells by it how much room was taken.
            rustix::fs::ftruncate(&fd, len).context("size", path)?;
            allocate(&fd, 0, room).context("find room for", path)?;
            MappedFile::map(fd, path, len)
        })();
        if made.is_err() {
            let _ = calls::unlink(path);
        }
        made
    }

    pub fn open(path: &Path) -> Result<MappedFile> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = calls::open(path, flags, Mode::empty()).context("open", path)?;
        let len = calls::fstat(&fd).context("look at", path)?.st_size as u64;
        MappedFile::map(fd, path, len)
    }

    fn map(fd: OwnedFd, path: &Path, len: u64) -> Result<MappedFile> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping that nobody else knows.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                (len as usize).max(1),
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }
        .context("map", path)?;
        let ino = calls::fstat(&fd).context("look at", path)?.st_ino;
        Ok(MappedFile { base: base.cast(), len: len as usize, fd, path: path.into(), ino })
    }

    pub fn base(&self) -> *mut u8 {
        self.base
    }
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn path(&self) -> &Path {
        &self.path
    }
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Writes by a system call what others see in their mappings.
    ///
    /// # Safety
    /// `from` has `count` readable bytes.
    pub unsafe fn write(&self, position: u64, from: *const u8, count: usize) -> Result<()> {
        // SAFETY: as the caller promises.
        let bytes = unsafe { std::slice::from_raw_parts(from, count) };
        let mut done = 0;
        while done < count {
            match rustix::io::pwrite(&self.fd, &bytes[done..], position + done as u64) {
                Ok(0) => return Err(rustix::io::Errno::IO).context("write", &self.path),
                Ok(written) => done += written,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno).context("write", &self.path),
            }
        }
        Ok(())
    }

    /// Maps the pages of a range, as far as the kernel can do it at once; the others are mapped when they are touched.
    pub fn populate(&self, position: u64, count: usize) {
        let start = position as usize & !4095;
        let end = (position as usize + count).min(self.len);
        if start < end {
            // SAFETY: inside the mapping; a page that is there is mapped, and its bytes are left alone.
            unsafe { libc::madvise(self.base.add(start).cast(), end - start, libc::MADV_POPULATE_READ) };
        }
    }

    /// Takes room for a part of the file that nobody has touched.
    pub fn allocate(&self, position: u64, bytes: u64) -> Result<()> {
        allocate(&self.fd, position, bytes).context("find room for", &self.path)
    }
}

fn allocate(fd: &OwnedFd, position: u64, bytes: u64) -> rustix::io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    match rustix::fs::fallocate(fd, FallocateFlags::empty(), position, bytes) {
        // A file system without it: a full one is then a signal, as for every program that maps files.
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped by us; whoever keeps a pointer keeps this as well.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len.max(1)) };
    }
}
