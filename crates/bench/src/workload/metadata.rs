//! Trees of small files: the directories that a worker's files lie in, and the files. Names are mdtest's, so that either tool looks at,
//! reads and removes what the other one made.
//!
//! ```text
//!   TOP/mdtest_tree.0/mdtest_tree.1/…     one tree for all:       directory n, whose children are n*fanout+1 and on
//!   TOP/mdtest_tree.WORKER.0/…            or one for each worker
//!       file.mdtest.WORKER.ITEM           items of directory n: n * (files in a directory) and on
//! ```

use crate::error::{Error, Result};
use crate::settings::MetadataWorkload;
use std::path::{Path, PathBuf};

/// Directories that a tree may have.
const DIRECTORIES_MAX: u64 = 10_000_000;

pub fn check(workload: &MetadataWorkload) -> Result<()> {
    if workload.files == 0 || workload.fanout == 0 {
        return Err(Error::input("a tree needs at least one file and a fanout of 1", "see docs/guide/bench.md"));
    }
    let directories = (0..=workload.depth)
        .try_fold(0_u64, |sum, level| sum.checked_add(u64::from(workload.fanout).checked_pow(level)?));
    if directories.is_none_or(|directories| directories > DIRECTORIES_MAX) {
        return Err(Error::input("the tree would have more than ten million directories", "lower `depth` or `fanout`"));
    }
    Ok(())
}

/// One worker's files, a directory's after the other.
#[derive(Clone, Debug)]
pub struct Tree {
    /// What all trees are below.
    pub top: PathBuf,
    workload: MetadataWorkload,
    worker: u32,
    /// Only so many of the files were made.
    written: Option<u64>,
}

impl Tree {
    pub fn new(top: &Path, workload: &MetadataWorkload, worker: u32, written: Option<u64>) -> Tree {
        Tree { top: top.to_owned(), workload: workload.clone(), worker, written }
    }

    /// All directories, parents first.
    pub fn directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..self.before_level(self.workload.depth + 1)).map(|index| self.directory(index))
    }

    /// Those that files are in.
    pub fn leaves(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (self.first()..self.first() + self.holders()).map(|index| self.directory(index))
    }

    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let (first, each) = (self.first(), u64::from(self.workload.files).div_ceil(self.holders()));
        (0..self.file_count()).map(move |index| {
            let directory = first + index / each;
            let item = directory * each + index % each;
            self.directory(directory).join(format!("file.mdtest.{}.{item}", self.worker))
        })
    }

    pub fn file_count(&self) -> u64 {
        self.written.unwrap_or(u64::MAX).min(u64::from(self.workload.files))
    }

    pub fn file_bytes(&self) -> usize {
        usize::try_from(self.workload.file_size.0).unwrap_or(usize::MAX)
    }

    /// Directories above this level.
    fn before_level(&self, level: u32) -> u64 {
        (0..level).map(|level| u64::from(self.workload.fanout).pow(level)).sum()
    }

    /// The first directory that has files.
    fn first(&self) -> u64 {
        if self.workload.leaf_only { self.before_level(self.workload.depth) } else { 0 }
    }

    fn holders(&self) -> u64 {
        self.before_level(self.workload.depth + 1) - self.first()
    }

    fn directory(&self, index: u64) -> PathBuf {
        let name = |index: u64| match self.workload.shared_tree {
            true => format!("mdtest_tree.{index}"),
            false => format!("mdtest_tree.{}.{index}", self.worker),
        };
        let mut names = vec![name(index)];
        let mut above = index;
        while above > 0 {
            above = (above - 1) / u64::from(self.workload.fanout);
            names.push(name(above));
        }
        names.iter().rev().fold(self.top.clone(), |path, name| path.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(workload: MetadataWorkload, worker: u32) -> Vec<String> {
        let tree = Tree::new(Path::new("t"), &workload, worker, None);
        tree.files().map(|path| path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn files_have_mdtests_names() {
        let flat = MetadataWorkload { files: 2, depth: 0, shared_tree: true, ..Default::default() };
        assert_eq!(tree(flat, 3), ["t/mdtest_tree.0/file.mdtest.3.0", "t/mdtest_tree.0/file.mdtest.3.1"]);
        let own = MetadataWorkload { files: 4, depth: 1, fanout: 2, ..Default::default() };
        assert_eq!(
            tree(own.clone(), 1),
            [2, 3, 4, 5].map(|item| format!("t/mdtest_tree.1.0/mdtest_tree.1.{}/file.mdtest.1.{item}", item / 2))
        );
        let all = MetadataWorkload { files: 3, leaf_only: false, ..own };
        assert_eq!(
            tree(all, 0),
            [
                "t/mdtest_tree.0.0/file.mdtest.0.0",
                "t/mdtest_tree.0.0/mdtest_tree.0.1/file.mdtest.0.1",
                "t/mdtest_tree.0.0/mdtest_tree.0.2/file.mdtest.0.2"
            ]
        );
    }
}
