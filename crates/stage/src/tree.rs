//! The files of a directory, as they are to be sent.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use terrace_index::PRIVATE_DIR;
use terrace_tool::failure::{Failure, Result};
use walkdir::WalkDir;

/// Ends the name of a file that is being brought.
pub const PART_SUFFIX: &str = ".terrace-part";

/// What tells that a file has not changed, as rsync has it: a run of Terrace keeps both, and neither inode nor ctime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct State {
    pub size: u64,
    pub mtime: (i64, i64),
}

impl State {
    pub fn of(metadata: &std::fs::Metadata) -> State {
        State { size: metadata.len(), mtime: (metadata.mtime(), metadata.mtime_nsec()) }
    }
}

pub struct File {
    pub path: PathBuf,
    /// Below the directory, with `/`.
    pub name: String,
    pub state: State,
}

#[derive(Default)]
pub struct Tree {
    pub files: Vec<File>,
    /// Links that lead nowhere: files that are in a tier, here or on another node, or that are lost.
    pub dangling: Vec<PathBuf>,
    /// What an object store can't hold: directories behind links, pipes, sockets, devices.
    pub left_out: Vec<PathBuf>,
}

/// All files below a directory. A link to a file is sent as what it leads to. Without `with_links` links are not looked at: while a run
/// goes, they are files that are not durable yet.
pub fn walk(directory: &Path, with_links: bool) -> Result<Tree> {
    let failed = |error: walkdir::Error| {
        let path = error.path().unwrap_or(directory).to_owned();
        Failure::io(
            "read",
            &path,
            error.into_io_error().map_or("a loop of links".to_owned(), |error| error.to_string()),
        )
    };
    if !std::fs::metadata(directory).map_err(|error| Failure::io("read", directory, error))?.is_dir() {
        return Err(Failure::bad_input(
            format!("{} is no directory", directory.display()),
            "give the directory that holds it",
        ));
    }
    let mut tree = Tree::default();
    let walked = WalkDir::new(directory).min_depth(1).sort_by_file_name().into_iter();
    for entry in walked.filter_entry(|entry| entry.file_name() != PRIVATE_DIR) {
        let entry = match entry {
            Ok(entry) => entry,
            // Removed while it was looked for.
            Err(error) if error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound) => {
                continue;
            }
            Err(error) => return Err(failed(error)),
        };
        let path = entry.path();
        let kind = entry.file_type();
        if kind.is_dir() || (kind.is_symlink() && !with_links) {
            continue;
        }
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if kind.is_symlink() {
                    tree.dangling.push(path.to_owned());
                }
                continue;
            }
            Err(error) => return Err(Failure::io("look at", path, error)),
        };
        if !metadata.is_file() {
            tree.left_out.push(path.to_owned());
            continue;
        }
        let name = path.strip_prefix(directory).expect("what is walked lies below");
        let Some(name) = name.to_str() else {
            return Err(Failure::bad_input(
                format!("{} can't be the name of an object: it is not UTF-8", path.display()),
                "rename the file",
            ));
        };
        if !name.ends_with(PART_SUFFIX) {
            tree.files.push(File { path: path.to_owned(), name: name.to_owned(), state: State::of(&metadata) });
        }
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_found_and_what_is_none_is_named() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir_all(at("d/.terrace")).unwrap();
        for name in ["d/b", "d/a.terrace-part", "d/.terrace/x", "c"] {
            std::fs::write(at(name), name).unwrap();
        }
        symlink(at("c"), at("d/link")).unwrap();
        symlink(at("none"), at("d/dangling")).unwrap();
        symlink(place.path(), at("d/up")).unwrap();
        let names = |tree: &Tree| tree.files.iter().map(|file| file.name.clone()).collect::<Vec<_>>();
        let tree = walk(&at("d"), true).unwrap();
        assert_eq!(names(&tree), ["b", "link"]);
        assert_eq!((tree.dangling, tree.left_out), (vec![at("d/dangling")], vec![at("d/up")]));
        assert_eq!(names(&walk(&at("d"), false).unwrap()), ["b"]);
        assert!(walk(&at("c"), true).is_err() && walk(&at("none"), true).is_err());
    }
}
