//! Directories that are there and empty when the first run begins, as the run before left them: they are placed as if a program had made
//! them, so that a second run costs what the first one did.
//!
//! Invariant: no program of a run is there yet. Whoever else is in such a directory, or has it open, keeps it from being placed.

use crate::files::Files;
use crate::files::directories::{CONTAINER_MODE, give_attributes, used_places};
use rustix::fs::{CWD, RenameFlags};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::*;

const STICKY_FOR_ALL: u32 = libc::S_ISVTX | libc::S_IWOTH;

impl Files {
    pub fn place_existing_directories(&self) {
        if !self.places_directories() || self.has_others() {
            return;
        }
        let mut found = self.policy.dropped_directories(&self.settings.root);
        found.retain(|directory| self.is_scratch(directory.as_os_str().as_bytes()) && self.may_be_placed(directory));
        if found.is_empty() {
            return;
        }
        let used = used_places();
        for directory in found.iter().filter(|directory| !used.iter().any(|place| place.starts_with(directory))) {
            self.place_existing(directory);
        }
    }

    fn may_be_placed(&self, directory: &Path) -> bool {
        let Ok(found) = std::fs::symlink_metadata(directory) else { return false };
        let above = directory.parent().and_then(|above| std::fs::metadata(above).ok());
        found.is_dir()
            && found.uid() == rustix::process::geteuid().as_raw()
            && found.dev() == self.index.header.root_dev.load(Acquire)
            && above.is_some_and(|above| above.mode() & STICKY_FOR_ALL != STICKY_FOR_ALL)
            && is_plain(directory)
            && std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
    }

    /// The link takes the directory's name in one step. What is not empty after all gets it back.
    fn place_existing(&self, directory: &Path) {
        let path = directory.as_os_str().as_bytes();
        let user = rustix::process::geteuid().as_raw();
        let Ok(number) = self.prepare_directory(path, (user, 0)) else { return };
        let (container, contents) = (self.container(number), self.object_path_of_directory(number));
        let beside = self.tmp_dir().join(self.object_name(number));
        let made = std::fs::create_dir(&contents)
            .and_then(|()| give_attributes(directory, &contents))
            .and_then(|()| std::fs::set_permissions(&container, PermissionsExt::from_mode(CONTAINER_MODE)))
            .and_then(|()| std::os::unix::fs::symlink(&contents, &beside));
        let exchange = || rustix::fs::renameat_with(CWD, &beside, CWD, directory, RenameFlags::EXCHANGE).is_ok();
        let is_placed = made.is_ok() && exchange() && (std::fs::remove_dir(&beside).is_ok() || !exchange());
        if is_placed {
            self.adopt_directory(number);
            self.index.header.directories.fetch_add(1, SeqCst);
            self.index.header.ways.fetch_add(1, SeqCst);
            self.named(number, path);
        } else {
            let _ = std::fs::remove_file(&beside);
            self.discard_container(&container);
            self.index.free_record(number);
        }
    }
}

/// No ACL for what is made in it, and nothing of the user's that the tier would have to keep.
fn is_plain(directory: &Path) -> bool {
    let mut names = [0; 4096];
    let Ok(count) = rustix::fs::listxattr(directory, &mut names[..]) else { return false };
    names[..count].split(|&byte| byte == 0).all(|name| name.is_empty() || name.starts_with(b"security."))
}
