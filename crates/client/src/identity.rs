//! Which object a name leads to, so that another one that was made in its place is told from it.

use crate::session::Session;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;
use terrace_core::objects::{Kind, ObjectError, Result};

/// Inodes are given again: so when it was made, too, where the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    inode: u64,
    made_ns: Option<u64>,
}

/// Since 1970, where the file system tells.
pub fn made_ns(path: &Path) -> Option<u64> {
    made(&std::fs::metadata(path).ok()?)
}

fn made(found: &Metadata) -> Option<u64> {
    found.created().ok()?.duration_since(UNIX_EPOCH).ok().map(|since| since.as_nanos() as u64)
}

impl Identity {
    pub fn of(path: &Path) -> io::Result<Identity> {
        let found = std::fs::metadata(path)?;
        Ok(Identity { inode: found.ino(), made_ns: made(&found) })
    }
}

impl Session {
    /// Of the array that has this name now.
    pub fn identity(&self, name: &str) -> Result<Identity> {
        if self.is_elsewhere() {
            let found = self.stat(name)?;
            return Ok(Identity { inode: found.identity, made_ns: found.made_ns });
        }
        Identity::of(&self.full_path(name)?).map_err(|error| {
            let kind = if error.kind() == io::ErrorKind::NotFound { Kind::NotFound } else { Kind::System };
            ObjectError::new(kind, format!("can't look at `{name}`: {error}"))
        })
    }
}
