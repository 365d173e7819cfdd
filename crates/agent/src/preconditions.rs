//! What must hold before an agent begins, and what is taken back when it can't.
//!
//! Invariant: an agent that could not begin has changed nothing for those before and after it.

use crate::error::{Error, Result};
use crate::node;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use terrace_core::nodes;
use terrace_core::settings::{Settings, object_dir};
use terrace_index::PRIVATE_DIR;

/// A killed agent's files belong to the directory that it served. Where another one is now, no name leads to them, and a
/// recovery would take them for ones that were removed.
pub fn check_root(settings: &Settings) -> Result<()> {
    let noted = std::fs::read_to_string(settings.unfinished()).unwrap_or_default();
    let Ok(served) = noted.trim().parse::<u64>() else { return Ok(()) };
    if std::fs::metadata(&settings.root).is_ok_and(|found| found.ino() == served) {
        return Ok(());
    }
    let Ok(tag) = std::fs::read_to_string(settings.node_file()) else { return Ok(()) };
    let own = Settings { node: Some(tag.trim().into()), ..settings.clone() };
    let uid = rustix::process::geteuid().as_raw();
    let bases = settings.tiers.iter().flat_map(|tier| &tier.paths);
    let places: Vec<_> = bases.map(|base| object_dir(base, uid, &own.id())).collect();
    let has_objects = |place: &PathBuf| {
        let mut entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        entries.any(|entry| terrace_index::parse_name(entry.file_name().as_encoded_bytes()).is_some())
    };
    // Some file systems number their files anew at each mount.
    match places.iter().find(|place| has_objects(place)) {
        Some(place) if !has_link_into(&settings.root, &places) => {
            Err(Error::OtherRoot { root: settings.root.clone(), place: place.clone(), noted: settings.unfinished() })
        }
        _ => Ok(()),
    }
}

fn has_link_into(root: &Path, places: &[PathBuf]) -> bool {
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => pending.push(entry.path()),
                Ok(kind) if kind.is_symlink() => {
                    let target = std::fs::read_link(entry.path()).unwrap_or_default();
                    if places.iter().any(|place| target.parent() == Some(place)) {
                        return true;
                    }
                }
                _ => {}
            }
        }
    }
    false
}

/// What an earlier agent left.
pub struct Before {
    index: bool,
    unfinished: bool,
}

impl Before {
    pub fn look(settings: &Settings) -> Before {
        Before { index: settings.index().exists(), unfinished: settings.unfinished().exists() }
    }
}

/// Nobody has used what this agent made before it failed. What an earlier one left stays as it was.
pub fn undo_start(settings: &Settings, before: &Before) {
    let made = [settings.index().with_extension("new"), settings.call_socket(), settings.control_socket()];
    for file in made.into_iter().chain([settings.objects_socket()]) {
        let _ = std::fs::remove_file(file);
    }
    if before.index {
        return;
    }
    let _ = std::fs::remove_file(settings.index());
    let Ok(tag) = node::tag(settings) else { return };
    let settings = Settings { node: Some(tag), ..settings.clone() };
    let uid = rustix::process::geteuid().as_raw();
    let bases = settings.tiers.iter().flat_map(|tier| &tier.paths);
    let places = bases.map(|base| object_dir(base, uid, &settings.id()));
    let is_empty = places.fold(true, |is_empty, place| {
        let _ = std::fs::remove_dir(&place);
        is_empty && !place.exists()
    });
    let own = settings.root.join(nodes::private(PRIVATE_DIR, settings.node.as_deref()));
    let _ = [own.join("tmp"), own.join("held"), own.join("kept")].map(std::fs::remove_dir);
    if is_empty && !before.unfinished && !own.join("held").exists() && !own.join("kept").exists() {
        let _ = std::fs::remove_file(own.join(nodes::REGISTRATION));
        let all = nodes::directory(&settings.root, PRIVATE_DIR);
        let _ = [own, all, settings.root.join(PRIVATE_DIR)].map(std::fs::remove_dir);
        let _ = std::fs::remove_file(settings.unfinished());
    }
    let _ = std::fs::remove_file(settings.lock());
    let _ = std::fs::remove_dir(&settings.runtime);
}

/// Connections and copies need so many descriptors beside those that an agent has when it starts.
const SPARE_DESCRIPTORS: u64 = 12;

/// With fewer it would serve nobody, and nobody would be told why.
pub fn check_descriptors() -> Result<()> {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return Ok(()) };
    let needed = open.count() as u64 + SPARE_DESCRIPTORS;
    match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        Some(most) if most < needed => Err(Error::Descriptors { most, needed }),
        _ => Ok(()),
    }
}
