//! Walks of the root: which links of ours are there, and where the files of records went.
//!
//! The tree is the truth; a walk is what makes up for tidings that were lost, and what a recovery begins with.

use crate::files::Files;
use crate::files::events::EventReader;
use crate::shared::path::read_link;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use terrace_index::{ARRIVING_DIR, DIRECTORY_SUFFIX, NAME_LEN, PRIVATE_DIR, State, parse_name};

/// A link into one of our object directories.
pub struct FoundLink {
    pub path: Vec<u8>,
    pub device: usize,
    pub number: u32,
    pub random: u64,
    /// To a placed directory.
    pub is_directory: bool,
}

#[derive(Default)]
pub struct Walked {
    pub links: Vec<FoundLink>,
    /// Real files with the inodes that were asked for.
    pub files: HashMap<u64, Vec<u8>>,
    /// Directories that could not be looked into: what lies there was not found.
    pub closed_directories: usize,
}

impl Files {
    /// All links of ours below the root, and the names of `wanted` inodes.
    pub fn walk(&self, wanted: &HashMap<u64, u32>) -> Walked {
        let mut walked = Walked::default();
        if self.root_is_away() {
            walked.closed_directories = 1;
            return walked;
        }
        let mut pending: Vec<PathBuf> = vec![self.settings.root.clone()];
        let arriving = self.settings.root.join(PRIVATE_DIR).join(ARRIVING_DIR);
        pending.extend(Some(arriving).filter(|directory| directory.is_dir()));
        while let Some(directory) = pending.pop() {
            let entries = match std::fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) => {
                    walked.closed_directories += (error.kind() != std::io::ErrorKind::NotFound) as usize;
                    continue;
                }
            };
            for entry in entries {
                let Ok(entry) = entry else {
                    walked.closed_directories += 1;
                    continue;
                };
                let Ok(kind) = entry.file_type() else { continue };
                let path = entry.path();
                let bytes = path.as_os_str().as_bytes();
                if kind.is_dir() {
                    if self.relative(bytes).is_some() {
                        pending.push(path);
                    }
                } else if kind.is_symlink() {
                    if let Some((device, number, random, is_directory)) = self.parse_link(bytes) {
                        walked.links.push(FoundLink { path: bytes.to_vec(), device, number, random, is_directory });
                    }
                } else if kind.is_file() && wanted.contains_key(&entry.ino()) {
                    walked.files.insert(entry.ino(), bytes.to_vec());
                }
            }
        }
        walked
    }

    fn parse_link(&self, path: &[u8]) -> Option<(usize, u32, u64, bool)> {
        let whole = read_link(path)?;
        let text = whole.strip_suffix(DIRECTORY_SUFFIX.as_bytes()).unwrap_or(&whole);
        let (dir, name) = text.split_at_checked(text.len().checked_sub(NAME_LEN)?)?;
        let (number, random) = parse_name(name)?;
        let device = self.index.devices().iter().position(|device| device.dir.get() == dir)?;
        Some((device, number, random, text.len() < whole.len()))
    }

    /// Finds the names of records by the tree itself. False: part of it could not be looked into.
    pub fn walk_tree(&self) -> bool {
        let mut wanted = HashMap::new();
        for number in 0..self.index.records_end() {
            let record = self.record(number);
            let ino = record.durable_ino.load(Acquire);
            // What lost its name has none to be found: its inode number may be another file's by now.
            if matches!(record.state(), State::Clean | State::Durable) && self.is_of_durable(number, ino) {
                let serial = record.serial.load(Acquire);
                if self.catalogue().path(number, serial).is_none() {
                    wanted.insert(ino, number);
                }
            }
        }
        let walked = self.walk(&wanted);
        for link in walked.links {
            let is_known = self
                .index
                .record(link.number)
                .is_some_and(|record| record.random.load(Acquire) == link.random && record.serial.load(Acquire) != 0);
            if is_known {
                self.named(link.number, &link.path);
            }
        }
        for (ino, path) in walked.files {
            let number = wanted[&ino];
            let serial = self.serial(number);
            self.catalogue().set_path(number, serial, &path);
        }
        walked.closed_directories == 0
    }

    /// Carries out what the reader of events found to be needed.
    pub fn make_up_for_losses(&self) {
        let (walk, rescan) = {
            let mut reader: std::sync::MutexGuard<'_, EventReader> = self.event_reader.lock().unwrap();
            (std::mem::take(&mut reader.wants_walk), std::mem::take(&mut reader.wants_rescan))
        };
        if walk {
            self.walk_tree();
        }
        if rescan || walk {
            self.rescan();
        }
    }
}
