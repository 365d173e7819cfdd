//! What the journal's rows say.

use crate::step::Step;
use crate::tier::{Stat, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use terrace_core::policy::Mode;

/// A record of the shared index and its serial: records are used again, serials are not.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct FileKey {
    pub record: u32,
    pub serial: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct StepId(pub u64);

/// States that outlive an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileState {
    Current,
    Clean,
    Durable,
}

/// A file's bytes: raw path of a tier directory's object directory, and the object's name in it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    directory: Vec<u8>,
    name: Vec<u8>,
}

impl Place {
    pub fn new(directory: impl AsRef<OsStr>, name: impl AsRef<OsStr>) -> Place {
        Place { directory: directory.as_ref().as_bytes().to_vec(), name: name.as_ref().as_bytes().to_vec() }
    }
    pub fn directory(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.directory))
    }
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(&self.name)
    }
    pub fn path(&self) -> PathBuf {
        self.directory().join(self.name())
    }
}

/// The durable file as it was when it was equal to the object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DurableVersion {
    pub ino: u64,
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}

impl From<&Stat> for DurableVersion {
    fn from(stat: &Stat) -> DurableVersion {
        DurableVersion {
            ino: stat.ino,
            size: stat.size,
            mtime_ns: Timestamp::as_ns(stat.mtime),
            ctime_ns: Timestamp::as_ns(stat.ctime),
        }
    }
}

/// One placed file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileEntry {
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    pub object: Place,
    pub state: FileState,
    /// `st_ino` that programs were shown.
    pub ino: u64,
    /// `st_ctime` that programs were shown, if it is not the object's own; else 0.
    pub ctime_ns: i64,
    pub durable: Option<DurableVersion>,
    pub mode: Mode,
}

/// Kinds of work that change what others see.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Task {
    Flush,
    Evict,
    Prefetch,
    Promote,
    Replace,
    Move,
    Remove,
}

/// Work under way: enough to finish or undo it after a crash, together with the tree.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StepEntry {
    pub task: Task,
    /// The last step that was reached before the row was written.
    pub step: Step,
    pub file: FileKey,
    /// The name in the root.
    #[serde(with = "raw_path")]
    pub path: PathBuf,
    /// The object before, if there is one.
    pub source: Option<Place>,
    /// The object after (move, promote, replace, prefetch), if there is one.
    pub destination: Option<Place>,
    /// Temporary or held file in the root; empty if there is none.
    #[serde(with = "raw_path")]
    pub temporary: PathBuf,
    pub ino: u64,
}

/// Changes that go to the journal together. A later change of a row replaces an earlier one.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(super) files: BTreeMap<FileKey, Option<FileEntry>>,
    pub(super) steps: BTreeMap<StepId, Option<StepEntry>>,
}

impl Batch {
    pub fn put_file(&mut self, key: FileKey, entry: FileEntry) {
        self.files.insert(key, Some(entry));
    }
    pub fn remove_file(&mut self, key: FileKey) {
        self.files.insert(key, None);
    }
    /// Adds or replaces the row of this work (`Journal::new_step` gives the id).
    pub fn begin(&mut self, id: StepId, entry: StepEntry) {
        self.steps.insert(id, Some(entry));
    }
    pub fn finish(&mut self, id: StepId) {
        self.steps.insert(id, None);
    }
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.steps.is_empty()
    }
    pub(super) fn append(&mut self, later: Batch) {
        self.files.extend(later.files);
        self.steps.extend(later.steps);
    }
}

/// What the journal says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub files: Vec<(FileKey, FileEntry)>,
    pub steps: Vec<(StepId, StepEntry)>,
}

/// Paths are bytes: serde's own form of `PathBuf` refuses what is not UTF-8.
mod raw_path {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().as_bytes().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        Ok(PathBuf::from(OsString::from_vec(Vec::deserialize(deserializer)?)))
    }
}
