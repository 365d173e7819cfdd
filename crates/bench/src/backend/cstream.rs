//! The C library's streams.

use super::{Backend, Target, not_open, posix};
use std::io;
use std::os::fd::IntoRawFd;
use std::path::Path;
use std::ptr::NonNull;

pub struct Cstream {
    stream: Option<NonNull<libc::FILE>>,
    buffer: Option<u64>,
}

impl Cstream {
    pub fn new(buffer: Option<u64>) -> Cstream {
        Cstream { stream: None, buffer }
    }
    fn seek(&self, offset: u64) -> io::Result<NonNull<libc::FILE>> {
        let stream = self.stream.ok_or_else(not_open)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // A stream that is at the offset keeps its buffer; a seek would write it out.
        // SAFETY: the stream is open: `close` takes it out of `self`.
        let there = unsafe { libc::ftello(stream.as_ptr()) } == offset;
        // SAFETY: as above.
        if !there && unsafe { libc::fseeko(stream.as_ptr(), offset, libc::SEEK_SET) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stream)
    }
}

impl Backend for Cstream {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        let mode = if target.write { c"r+" } else { c"r" };
        let file = posix::open(target, false)?;
        // SAFETY: the descriptor is ours to give away, the mode is a C string.
        let stream = unsafe { libc::fdopen(file.into_raw_fd(), mode.as_ptr()) };
        let stream = NonNull::new(stream).ok_or_else(io::Error::last_os_error)?;
        if let Some(bytes) = self.buffer {
            let kind = if bytes == 0 { libc::_IONBF } else { libc::_IOFBF };
            // SAFETY: the stream is new; with a null buffer the library allocates.
            unsafe { libc::setvbuf(stream.as_ptr(), std::ptr::null_mut(), kind, bytes as usize) };
        }
        self.stream = Some(stream);
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let stream = self.seek(offset)?;
        // SAFETY: `data` is valid for its length, the stream is open.
        let written = unsafe { libc::fwrite(data.as_ptr().cast(), 1, data.len(), stream.as_ptr()) };
        if written == data.len() { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let stream = self.seek(offset)?;
        // SAFETY: `buffer` is valid for its length, the stream is open.
        let read = unsafe { libc::fread(buffer.as_mut_ptr().cast(), 1, buffer.len(), stream.as_ptr()) };
        if read == buffer.len() {
            return Ok(());
        }
        // SAFETY: the stream is open.
        let ended = unsafe { libc::feof(stream.as_ptr()) } != 0;
        Err(if ended { io::ErrorKind::UnexpectedEof.into() } else { io::Error::last_os_error() })
    }
    fn flush(&mut self) -> io::Result<()> {
        let stream = self.stream.ok_or_else(not_open)?;
        // SAFETY: the stream is open.
        let failed = unsafe { libc::fflush(stream.as_ptr()) != 0 || libc::fsync(libc::fileno(stream.as_ptr())) != 0 };
        if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
    fn close(&mut self) -> io::Result<()> {
        let stream = self.stream.take().ok_or_else(not_open)?;
        // SAFETY: the stream was open and is not used again.
        if unsafe { libc::fclose(stream.as_ptr()) } != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}
