//! Paths as the index and the ring have them: bytes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

pub fn read_link(path: &[u8]) -> Option<Vec<u8>> {
    rustix::fs::readlink(OsStr::from_bytes(path), Vec::new()).ok().map(|text| text.into_bytes())
}
