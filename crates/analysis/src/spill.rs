//! Where sorts, joins and aggregates put what does not fit into memory.
//!
//! Invariant: what one process has put there goes with it. What a killed one has left is removed when the next one begins there.

use crate::error::{Error, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::{Path, PathBuf};
use terrace_client::Kind;

const PREFIX: &str = "terrace-spill-";
/// Locked for as long as its process lives.
const LOCK: &str = "lock";

/// A directory of this process's own, removed when it is let go of.
#[derive(Debug)]
pub struct Spill {
    directory: PathBuf,
    _lock: File,
}

impl Spill {
    pub fn new(within: &Path) -> Result<Spill> {
        let failed = |error: std::io::Error| {
            Error::new(Kind::System, format!("can't spill into {}: {error}", within.display()))
                .hint("name a directory that can be written with --spill")
        };
        remove_left(within);
        let id = std::process::id();
        for number in 0u32.. {
            let directory = within.join(format!("{PREFIX}{id}-{number}"));
            use std::os::unix::fs::DirBuilderExt;
            match std::fs::DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(error)),
            }
            // One that begins just now may hold it to be left by a killed one: then another is made.
            let lock = File::create(directory.join(LOCK))
                .and_then(|lock| Ok(flock(&lock, FlockOperation::NonBlockingLockExclusive).map(|()| lock)?));
            match lock {
                Ok(lock) if directory.join(LOCK).exists() => return Ok(Spill { directory, _lock: lock }),
                _ if !directory.exists() => {}
                Ok(_) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        unreachable!("some number is free")
    }

    /// For a process that ends without letting go of everything.
    pub fn remove(&self) {
        // Else the next process does it.
        let _ = std::fs::remove_dir_all(&self.directory);
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Directories whose process is gone.
fn remove_left(within: &Path) {
    for entry in std::fs::read_dir(within).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path();
        // One without a lock is about to get it, or about to be removed.
        let Ok(lock) = File::open(path.join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_has_spilled_goes_with_it_and_with_the_next_one_if_it_was_killed() {
        let within = std::env::temp_dir().join(format!("terrace-spill-test-{}", std::process::id()));
        std::fs::create_dir(&within).unwrap();
        let count = || std::fs::read_dir(&within).unwrap().count();
        let living = Spill::new(&within).unwrap();
        std::fs::write(living.directory().join("rows"), "x").unwrap();
        // As a killed process leaves it: nobody holds its lock.
        let left = within.join(format!("{PREFIX}1-0"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        std::fs::write(left.join("rows"), "x").unwrap();
        let other = Spill::new(&within).unwrap();
        assert!(!left.exists() && living.directory().join("rows").exists() && count() == 2);
        drop((living, other));
        assert_eq!(count(), 0);
        std::fs::remove_dir(&within).unwrap();
    }
}
