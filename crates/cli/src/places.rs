//! Places of files: what a user names on the command line as the agent knows it (absolute, below the canonical root), and what
//! lies in the tiers as the tree shows it.

use std::path::{Path, PathBuf};
use terrace_core::settings::{Settings, object_dir};
use terrace_tool::absolute;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::resolve::uid;

/// The file need not exist; a last component that is a link is not followed, for it may be one of ours.
pub fn below_root(path: &Path, settings: &Settings) -> Result<PathBuf> {
    let here = std::env::current_dir().unwrap_or_else(|_| settings.root.clone());
    let spelled = absolute(&here, path);
    let resolved = match in_placed_directory(&spelled, settings) {
        Some(whole) => whole,
        None => resolve_parent(&spelled),
    };
    if !resolved.starts_with(&settings.root) {
        return Err(Failure::bad_input(
            format!("{} is not below the root {}", path.display(), settings.root.display()),
            "name a path below it, or its root with --root DIR",
        ));
    }
    Ok(resolved)
}

/// A path whose parents go through a placed directory: by that one's name in the root, not by where it lies.
fn in_placed_directory(spelled: &Path, settings: &Settings) -> Option<PathBuf> {
    let directories = object_directories(settings);
    let is_placed = |path: &&Path| {
        std::fs::read_link(path).is_ok_and(|target| directories.iter().any(|directory| target.starts_with(directory)))
    };
    let top = spelled.ancestors().skip(1).filter(|above| above.is_symlink()).find(is_placed)?;
    Some(resolve_parent(top).join(spelled.strip_prefix(top).ok()?))
}

pub fn all_below_root(paths: &[PathBuf], settings: &Settings) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| below_root(path, settings)).collect()
}

/// Resolves as much of the path's parent as exists; `..` in the rest is taken by its text.
fn resolve_parent(path: &Path) -> PathBuf {
    let Some(name) = path.file_name() else {
        return path.canonicalize().unwrap_or_else(|_| path.to_owned());
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    match parent.canonicalize() {
        Ok(parent) => parent.join(name),
        Err(_) => resolve_parent(parent).join(name),
    }
}

pub fn directories_of<'a>(settings: &Settings, paths: &'a [PathBuf]) -> impl Iterator<Item = PathBuf> + use<'a> {
    let id = settings.id();
    paths.iter().map(move |path| object_dir(path, uid(), &id))
}

pub fn object_directories(settings: &Settings) -> Vec<PathBuf> {
    settings.tiers.iter().flat_map(|tier| directories_of(settings, &tier.paths)).collect()
}

/// Files in the tiers as the tree shows them, without an agent: (link, object).
pub fn links_into_tiers(settings: &Settings) -> Vec<(PathBuf, PathBuf)> {
    let directories = object_directories(settings);
    let walk = walkdir::WalkDir::new(&settings.root).sort_by_file_name().into_iter().flatten();
    let link = |entry: walkdir::DirEntry| {
        let target = entry.path_is_symlink().then(|| std::fs::read_link(entry.path()).ok()).flatten()?;
        directories.iter().any(|directory| target.starts_with(directory)).then(|| (entry.into_path(), target))
    };
    walk.filter_map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_resolved_up_to_its_last_component() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("d")).unwrap();
        std::os::unix::fs::symlink(root.join("d"), root.join("link")).unwrap();
        std::os::unix::fs::symlink("/dev/shm/object", root.join("d/file")).unwrap();
        let settings = Settings::new(root.clone(), vec![], 0, "".into());
        let at = |text: &str| below_root(&root.join(text), &settings).map_err(|failure| failure.code);
        assert_eq!(at("link/file").unwrap(), root.join("d/file"));
        assert_eq!(at("new/deep/file").unwrap(), root.join("new/deep/file"));
        assert_eq!(at("d/../d/x").unwrap(), root.join("d/x"));
        assert_eq!(at("d/../../x"), Err(2));
        assert_eq!(below_root(&root, &settings).unwrap(), root);
    }
}
