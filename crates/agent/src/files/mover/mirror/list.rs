//! What of a mirror is whole, a line a file: for who has nothing but the mirror.
//!
//! Invariant: a line is written when its file is durable. A file that is being replaced is whole by its old line or by its new one.

use super::TREE;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const LIST: &str = "copied";

/// A line of the list.
#[derive(Serialize, Deserialize)]
pub struct Line {
    #[serde(with = "terrace_core::paths")]
    pub path: PathBuf,
    pub size: u64,
    pub mtime: (i64, i64),
}

pub fn add_lines(place: &Path, lines: &[Line], fsync: bool) -> io::Result<()> {
    let mut text = vec![];
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    let mut list = File::options().create(true).append(true).mode(0o600).open(place.join(LIST))?;
    list.write_all(&text)?;
    if fsync { list.sync_all() } else { Ok(()) }
}

/// After the directory itself was lost with its tier: the copy's tree, with those files in it that are whole. `None`: there is no copy.
pub fn restore(place: &Path) -> io::Result<Option<PathBuf>> {
    let tree = place.join(TREE);
    if !std::fs::symlink_metadata(&tree).is_ok_and(|found| found.is_dir()) {
        return Ok(None);
    }
    let mut whole: HashMap<PathBuf, Vec<Line>> = HashMap::new();
    match File::open(place.join(LIST)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        list => {
            // A last line that was not written whole is of files that need not be.
            let lines = io::BufReader::new(list?).lines().collect::<io::Result<Vec<String>>>()?;
            for line in lines.iter().filter_map(|line| serde_json::from_str::<Line>(line).ok()) {
                whole.entry(line.path.clone()).or_default().push(line);
            }
        }
    }
    let is_whole = |relative: &Path, status: &Metadata| {
        let is_as_listed = |line: &Line| {
            let (seconds, ns) = line.mtime;
            // A file system may keep no more than seconds, or microseconds.
            let is_mtime =
                status.mtime_nsec() == ns || status.mtime_nsec() == 0 || status.mtime_nsec() / 1000 == ns / 1000;
            line.size == status.size() && seconds == status.mtime() && is_mtime
        };
        whole.get(relative).is_some_and(|lines| lines.iter().any(is_as_listed))
    };
    let mut pending = vec![tree.clone()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let path = entry?.path();
            let status = std::fs::symlink_metadata(&path)?;
            if status.is_dir() {
                pending.push(path);
            } else if status.is_file() && !path.strip_prefix(&tree).is_ok_and(|relative| is_whole(relative, &status)) {
                std::fs::remove_file(&path)?;
            }
        }
    }
    Ok(Some(tree))
}
