//! A file mapped for reading.

use crate::failure::Context;
use crate::placed::BytesFile;
use rustix::mm::{MapFlags, ProtFlags};
use terrace_core::objects::Result;

pub struct Mapping {
    base: *mut std::ffi::c_void,
    len: usize,
}

// SAFETY: the mapping is only read, and unmapped when nobody has it any more.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `len` bytes; `None` for none.
    pub fn of(file: &BytesFile, len: u64) -> Result<Option<Mapping>> {
        if len == 0 {
            return Ok(None);
        }
        let flags = MapFlags::SHARED;
        // SAFETY: a new mapping, which nobody else knows.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len as usize, ProtFlags::READ, flags, file.descriptor(), 0)
        }
        .context("map", file.path())?;
        Ok(Some(Mapping { base, len: len as usize }))
    }

    pub fn len(&self) -> usize {
        self.len
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies from `start` on; the range must lie in the mapping.
    pub fn read(&self, start: usize, buffer: &mut [u8]) {
        assert!(start + buffer.len() <= self.len, "a read of a mapping stays inside");
        // SAFETY: inside the mapping, as just asserted; others may change the bytes meanwhile, which gives old or new ones.
        unsafe { std::ptr::copy_nonoverlapping(self.base.cast::<u8>().add(start), buffer.as_mut_ptr(), buffer.len()) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and no reference into it is left.
        let _ = unsafe { rustix::mm::munmap(self.base, self.len) };
    }
}
