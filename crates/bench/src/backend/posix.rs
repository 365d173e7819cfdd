//! pread and pwrite, or lseek with read and write; past the page cache if asked.

use super::{Backend, Target, not_open};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

pub struct Posix {
    file: Option<File>,
    direct: bool,
    seek: bool,
}

impl Posix {
    pub fn new(direct: bool, seek: bool) -> Posix {
        Posix { file: None, direct, seek }
    }
    fn file(&mut self) -> io::Result<&mut File> {
        self.file.as_mut().ok_or_else(not_open)
    }
}

/// Opens for reading, or for both without truncation: other workers may have written already.
pub fn open(target: &Target, direct: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(target.write).create(target.write).truncate(false);
    if direct {
        options.custom_flags(libc::O_DIRECT);
    }
    options.open(target.path)
}

impl Backend for Posix {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        self.file = Some(open(target, self.direct)?);
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let seek = self.seek;
        let file = self.file()?;
        if seek {
            file.seek(SeekFrom::Start(offset))?;
            return file.write_all(data);
        }
        file.write_all_at(data, offset)
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let seek = self.seek;
        let file = self.file()?;
        if seek {
            file.seek(SeekFrom::Start(offset))?;
            return file.read_exact(buffer);
        }
        file.read_exact_at(buffer, offset)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file()?.sync_all()
    }
    fn close(&mut self) -> io::Result<()> {
        close(self.file.take().ok_or_else(not_open)?)
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// Dropping a file hides the error that a network file system reports only here.
pub fn close(file: File) -> io::Result<()> {
    use std::os::fd::IntoRawFd;
    // SAFETY: the descriptor was owned by `file`, which gave it up.
    if unsafe { libc::close(file.into_raw_fd()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
