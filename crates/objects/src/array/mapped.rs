//! A file mapped shared, for reading and writing; its room is taken before it is touched, so that a full file system is an
//! error and not a signal.

use crate::calls;
use crate::failure::Context;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use terrace_core::objects::Result;

/// One entry of the processor's tables is for so much, where memory and addresses are cut at multiples of it.
const LARGE_PAGE: usize = 2 << 20;
/// Memory that was read so many times is likely to be read again: to gather it takes as long as to read it some five times more.
const READ_OFTEN: u64 = 2;

pub struct MappedFile {
    base: *mut u8,
    len: usize,
    fd: OwnedFd,
    path: PathBuf,
    ino: u64,
    read_bytes: AtomicU64,
    is_gathered: AtomicBool,
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
                place_for(len as usize),
                (len as usize).max(1),
                protection,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }
        .context("map", path)?;
        let ino = calls::fstat(&fd).context("look at", path)?.st_ino;
        let (read_bytes, is_gathered) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(MappedFile { base: base.cast(), len: len as usize, fd, path: path.into(), ino, read_bytes, is_gathered })
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

    pub fn was_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Relaxed);
    }

    /// It has been read so often that it is worth it to gather its memory, and that was not done yet.
    pub fn is_to_be_gathered(&self) -> bool {
        self.len >= LARGE_PAGE
            && self.read_bytes.load(Relaxed) >= READ_OFTEN * self.len as u64
            && !self.is_gathered.load(Relaxed)
    }

    /// Has the kernel put the file's memory into large pages, for all who map it: MADV_COLLAPSE of madvise(2), since Linux 6.1. In a
    /// virtual machine that is twice as fast to read. Where files have no such pages, nothing is done.
    pub fn gather(&self) {
        if self.is_gathered.swap(true, Relaxed) {
            return;
        }
        let first = (self.base as usize).next_multiple_of(LARGE_PAGE) - self.base as usize;
        for at in (first..(self.len + 1).saturating_sub(LARGE_PAGE)).step_by(LARGE_PAGE) {
            // SAFETY: inside the mapping; the bytes are left as they are, whoever reads and writes them meanwhile.
            let is_done = unsafe { libc::madvise(self.base.add(at).cast(), LARGE_PAGE, libc::MADV_COLLAPSE) } == 0;
            // A page that somebody is at just now stays as it is.
            let is_held = || matches!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EBUSY));
            if !is_done && !is_held() {
                return;
            }
        }
    }

    /// Takes room for a part of the file that nobody has touched.
    pub fn allocate(&self, position: u64, bytes: u64) -> Result<()> {
        allocate(&self.fd, position, bytes).context("find room for", &self.path)
    }
}

/// Where a mapping of so many bytes may begin, so that large pages fit. Nothing is there now; where somebody else is faster, the kernel finds
/// another place.
fn place_for(len: usize) -> *mut libc::c_void {
    if len < LARGE_PAGE {
        return std::ptr::null_mut();
    }
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new mapping that nobody else knows, and that nobody has used when it is gone again.
    unsafe {
        match rustix::mm::mmap_anonymous(std::ptr::null_mut(), len + LARGE_PAGE, ProtFlags::empty(), flags) {
            Ok(room) => {
                let _ = rustix::mm::munmap(room, len + LARGE_PAGE);
                (room as usize).next_multiple_of(LARGE_PAGE) as *mut libc::c_void
            }
            Err(_) => std::ptr::null_mut(),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_gathered_has_the_same_bytes_and_is_not_gathered_again() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let len = 3 * LARGE_PAGE + 4096;
        let file = MappedFile::create(&directory.path().join("segment"), len as u64, len as u64).unwrap();
        let bytes: Vec<u8> = (0..len).map(|at| (at / 4096 + at) as u8).collect();
        // SAFETY: all of it was made, and is written from here alone.
        unsafe { file.write(0, bytes.as_ptr(), len).unwrap() };
        // SAFETY: as above.
        let seen = || unsafe { std::slice::from_raw_parts(file.base(), len) };
        file.was_read(2 * len as u64 - 1);
        assert!(!file.is_to_be_gathered());
        file.was_read(1);
        assert!(file.is_to_be_gathered());
        file.gather();
        assert!(!file.is_to_be_gathered());
        assert!(seen() == bytes.as_slice());
        // Others write into it as before.
        // SAFETY: as above.
        unsafe { file.write(LARGE_PAGE as u64 - 1, [7; 2].as_ptr(), 2).unwrap() };
        assert_eq!(seen()[LARGE_PAGE - 1..][..2], [7; 2]);
    }
}
