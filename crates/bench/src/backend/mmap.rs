//! Memory-mapped files: a request is a copy to or from the mapping.
//!
//! A page that finds no room on the storage ends the process (SIGBUS), so writes reserve their blocks first where the file
//! system can: one more call for each request, which a program without SIGBUS handling needs as well.

use super::{Backend, Target, not_open, posix};
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::path::Path;

#[derive(Default)]
pub struct Mapped {
    open: Option<(File, MmapRaw)>,
}

impl Mapped {
    /// Address of so many bytes at the offset, if the mapping has them.
    fn at(&self, offset: u64, bytes: usize) -> io::Result<*mut u8> {
        let (_, map) = self.open.as_ref().ok_or_else(not_open)?;
        let end = offset.checked_add(bytes as u64);
        if end.is_none_or(|end| end > map.len() as u64) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the offset lies within the mapping.
        Ok(unsafe { map.as_mut_ptr().add(offset as usize) })
    }
}

impl Backend for Mapped {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        let file = posix::open(target, false)?;
        if target.write && file.metadata()?.len() < target.file_bytes {
            file.set_len(target.file_bytes)?;
        }
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
        if len == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "an empty file can't be mapped"));
        }
        let mut options = MmapOptions::new();
        let map =
            if target.write { options.len(len).map_raw(&file) } else { options.len(len).map_raw_read_only(&file) }?;
        self.open = Some((file, map));
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let to = self.at(offset, data.len())?;
        let (file, _) = self.open.as_ref().ok_or_else(not_open)?;
        match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, data.len() as u64) {
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        // SAFETY: the mapping has these bytes and is writable; other processes may write other bytes of it, none writes these.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        Ok(())
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let from = self.at(offset, buffer.len())?;
        // SAFETY: the mapping has these bytes.
        unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }
    fn flush(&mut self) -> io::Result<()> {
        let (file, map) = self.open.as_ref().ok_or_else(not_open)?;
        map.flush()?;
        file.sync_all()
    }
    fn close(&mut self) -> io::Result<()> {
        let (file, map) = self.open.take().ok_or_else(not_open)?;
        drop(map);
        posix::close(file)
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}
