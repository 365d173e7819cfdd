//! Which object a name leads to, so that another one that was made in its place is told from it.

use crate::session::Session;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;
use terrace_core::objects::{Kind, ObjectError, Result};

/// Inodes are given again: so when it was made, too, where the file system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    inode: u64,
    made: Option<SystemTime>,
}

impl Identity {
    pub fn of(path: &Path) -> io::Result<Identity> {
        let found = std::fs::metadata(path)?;
        Ok(Identity { inode: found.ino(), made: found.created().ok() })
    }
}

impl Session {
    /// Of the array that has this name now.
    pub fn identity(&self, name: &str) -> Result<Identity> {
        if self.is_elsewhere() {
            return Ok(Identity { inode: self.stat(name)?.identity, made: None });
        }
        Identity::of(&self.full_path(name)?).map_err(|error| {
            let kind = if error.kind() == io::ErrorKind::NotFound { Kind::NotFound } else { Kind::System };
            ObjectError::new(kind, format!("can't look at `{name}`: {error}"))
        })
    }
}
