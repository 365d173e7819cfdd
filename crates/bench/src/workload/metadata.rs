//! Trees of small files: the directories that a worker's files lie in, and the files.

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

/// One worker's files, spread evenly over the directories at the tree's bottom.
#[derive(Clone, Debug)]
pub struct Tree {
    pub top: PathBuf,
    workload: MetadataWorkload,
    worker: u32,
}

impl Tree {
    pub fn new(base: &Path, workload: &MetadataWorkload, worker: u32) -> Tree {
        let top = if workload.shared_tree { base.to_owned() } else { base.join(format!("worker{worker:06}")) };
        Tree { top, workload: workload.clone(), worker }
    }

    /// All directories, parents first.
    pub fn directories(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..=self.workload.depth).flat_map(move |level| {
            let count = u64::from(self.workload.fanout).pow(level);
            (0..count).map(move |index| self.directory(level, index))
        })
    }

    pub fn leaves(&self) -> impl Iterator<Item = PathBuf> + '_ {
        (0..self.leaf_count()).map(|index| self.directory(self.workload.depth, index))
    }

    pub fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let leaves = self.leaf_count();
        (0..self.workload.files).map(move |index| {
            let directory = self.directory(self.workload.depth, u64::from(index) % leaves);
            directory.join(format!("w{:06}.f{index:08}", self.worker))
        })
    }

    pub fn file_count(&self) -> u64 {
        u64::from(self.workload.files)
    }

    pub fn file_bytes(&self) -> usize {
        usize::try_from(self.workload.file_size.0).unwrap_or(usize::MAX)
    }

    fn leaf_count(&self) -> u64 {
        u64::from(self.workload.fanout).pow(self.workload.depth)
    }

    fn directory(&self, level: u32, index: u64) -> PathBuf {
        let fanout = u64::from(self.workload.fanout);
        let mut path = self.top.clone();
        for above in (0..level).rev() {
            path.push(format!("d{}", index / fanout.pow(above) % fanout));
        }
        path
    }
}
