//! State of the page cache before reads: forced, and proven by counting the pages that mincore finds.

use crate::error::{Error, Result};
use crate::settings::Cache;
use memmap2::MmapOptions;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Pages of a file's data on this machine; holes have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residency {
    pub pages: u64,
    pub resident: u64,
}

impl Residency {
    pub fn fraction(self) -> f64 {
        if self.pages == 0 { 0.0 } else { self.resident as f64 / self.pages as f64 }
    }
}

/// Brings the file's cached pages into the wanted state and returns what is there then.
pub fn force(path: &Path, wanted: Cache) -> Result<Residency> {
    let mut file = File::open(path).map_err(|error| Error::io("open", path.display(), error))?;
    match wanted {
        Cache::AsIs => {}
        Cache::Cold => {
            // Dirty pages can't be dropped.
            file.sync_all().map_err(|error| Error::io("sync", path.display(), error))?;
            // SAFETY: the descriptor is open; the call takes no pointers.
            unsafe { libc::posix_fadvise(std::os::fd::AsRawFd::as_raw_fd(&file), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
        Cache::Warm => {
            let mut buffer = vec![0; 1 << 20];
            loop {
                match file.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::io("read", path.display(), error)),
                }
            }
        }
    }
    let mut found = residency(&file, path)?;
    if wanted == Cache::Cold && found.resident > 0 {
        // Pages that somebody else maps or that were just being written; root may drop them all.
        let _ = std::fs::write("/proc/sys/vm/drop_caches", "1");
        found = residency(&file, path)?;
    }
    match wanted {
        Cache::Cold if found.resident > 0 => Err(Error::failed(format!(
            "{} can't be made cold: {} of {} pages stay in memory (is it on a memory file system, or mapped by another program?)",
            path.display(),
            found.resident,
            found.pages
        ))),
        Cache::Warm if found.resident < found.pages => Err(Error::failed(format!(
            "{} can't be made warm: only {} of {} pages are in memory (is it larger than the memory?)",
            path.display(),
            found.resident,
            found.pages
        ))),
        _ => Ok(found),
    }
}

const WINDOW: u64 = 1 << 34;

/// The next piece of the file that is no hole; a file system that knows no holes has one piece.
fn next_data(file: &File, at: u64, len: u64) -> std::io::Result<Option<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    if at >= len {
        return Ok(None);
    }
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(Some((start, seek(file, SeekFrom::Hole(start))?.min(len)))),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(Some((at, len))),
        Err(error) => Err(error.into()),
    }
}

fn residency(file: &File, path: &Path) -> Result<Residency> {
    let len = file.metadata().map_err(|error| Error::io("stat", path.display(), error))?.len();
    if len == 0 {
        return Ok(Residency::default());
    }
    // SAFETY: the call takes a number only.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64;
    let mut found = Residency::default();
    let mut states = Vec::new();
    let mut at = 0;
    // Data only, a window at a time: a sparse file may be larger than any list of its pages.
    while let Some((start, end)) =
        next_data(file, at, len).map_err(|error| Error::io("look for data in", path.display(), error))?
    {
        let start = start / page * page;
        let bytes = WINDOW.min(end - start);
        let map = MmapOptions::new()
            .offset(start)
            .len(bytes as usize)
            .map_raw_read_only(file)
            .map_err(|error| Error::io("map", path.display(), error))?;
        let pages = bytes.div_ceil(page);
        states.clear();
        states.resize(pages as usize, 0_u8);
        // SAFETY: the mapping covers `bytes`, `states` has a byte for each of its pages.
        if unsafe { libc::mincore(map.as_mut_ptr().cast(), bytes as usize, states.as_mut_ptr()) } != 0 {
            return Err(Error::io("ask mincore about", path.display(), std::io::Error::last_os_error()));
        }
        found.pages += pages;
        found.resident += states.iter().filter(|state| **state & 1 == 1).count() as u64;
        at = start + pages * page;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(base: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir_in(base).unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        (directory, path)
    }

    #[test]
    fn cold_and_warm_are_forced_and_proven() {
        let (_directory, path) = file("/var/tmp");
        let cold = force(&path, Cache::Cold).unwrap();
        assert_eq!(cold, Residency { pages: 256, resident: 0 });
        let warm = force(&path, Cache::Warm).unwrap();
        assert_eq!(warm, Residency { pages: 256, resident: 256 });
        assert_eq!(force(&path, Cache::AsIs).unwrap().resident, 256);
    }

    #[test]
    fn what_cannot_be_cold_is_refused() {
        let (_directory, path) = file("/dev/shm");
        let refusal = force(&path, Cache::Cold).unwrap_err().to_string();
        assert!(refusal.contains("can't be made cold") && refusal.contains("256 of 256"), "{refusal}");
    }
}
