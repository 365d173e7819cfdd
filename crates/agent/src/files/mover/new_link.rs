//! A link that is made beside the tree, and then takes a name in it.

use crate::files::Files;
use rustix::io::{Errno, Result};
use std::path::{Path, PathBuf};
use terrace_tier::{DirectoryTier, Left};

/// Dropped before it has its name, it goes.
pub struct NewLink {
    place: PathBuf,
    /// What lies at its place is not it any more.
    is_placed: bool,
}

impl Files {
    /// A link with this text, which is to take the name of the record's file.
    pub fn new_link(&self, number: u32, text: &Path) -> Result<NewLink> {
        let place = self.tmp_dir().join(self.object_name(number));
        match rustix::fs::symlink(text, &place) {
            // Left by an agent that was killed.
            Err(Errno::EXIST) => {
                let _ = std::fs::remove_file(&place);
                rustix::fs::symlink(text, &place)?;
            }
            made => made?,
        }
        Ok(NewLink { place, is_placed: false })
    }
}

impl NewLink {
    pub fn inode(&self) -> Result<u64> {
        rustix::fs::lstat(&self.place).map(|found| found.st_ino)
    }

    /// Gives it the name `to`, over whatever has it.
    pub fn rename(&mut self, to: &Path) -> Result<()> {
        rustix::fs::rename(&self.place, to)?;
        self.is_placed = true;
        Ok(())
    }

    /// Gives it the name `to`, over what `is_expected` only (`DirectoryTier::replace`).
    pub fn replace(&mut self, root: &DirectoryTier, to: &Path, is_expected: &dyn Fn(&Path) -> bool) -> Result<()> {
        let replaced = root.replace(&self.place, to, &|| is_expected(&self.place));
        // What could not be put back lies where the link was, and is kept.
        self.is_placed = !matches!(replaced, Err((_, Left::Ours)));
        replaced.map_err(|(error, _)| error)
    }
}

impl Drop for NewLink {
    fn drop(&mut self) {
        if !self.is_placed {
            let _ = std::fs::remove_file(&self.place);
        }
    }
}
