//! What the nodes of a launch tell each other through the root: ROOT/.terrace/launches/LAUNCH/
//!
//!   end         the launch is over: for launchers that pass no standard input on
//!   TAG.json    what a node did; written before the node says that it is done
//!   told        of a step (`srun terrace run`): somebody tells of it
//!
//! A name is looked up only when it is known to be there: file systems remember for long that a name was not there.

use crate::report::NodeReport;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use terrace_tool::failure::{Failure, Result};

const LAUNCHES: &str = "launches";
const END: &str = "end";
const TOLD: &str = "told";

pub struct Board(PathBuf);

impl Board {
    pub fn of(root: &Path, launch: &str) -> Result<Board> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if launch.is_empty() || launch.starts_with('.') || !launch.bytes().all(is_plain) {
            return Err(Failure::invalid(format!("`{}` is no launch", launch.escape_debug())));
        }
        Ok(Board(root.join(terrace_index::PRIVATE_DIR).join(LAUNCHES).join(launch)))
    }

    pub fn make(&self) -> Result<()> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.0);
        made.map_err(|error| Failure::io("make the directory", &self.0, error))
    }

    pub fn say_end(&self) -> Result<()> {
        let file = self.0.join(END);
        std::fs::write(&file, "").map_err(|error| Failure::io("write", &file, error))
    }

    pub fn is_over(&self) -> bool {
        self.0.join(END).exists()
    }

    /// It was removed, or never made.
    pub fn is_gone(&self) -> bool {
        std::fs::symlink_metadata(&self.0).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    }

    pub fn put(&self, report: &NodeReport) -> Result<()> {
        let (file, fresh) = (self.file(&report.tag), self.0.join(format!("{}.new", report.tag)));
        let text = serde_json::to_vec_pretty(report).expect("a report is plain data");
        std::fs::write(&fresh, text)
            .and_then(|()| std::fs::rename(&fresh, &file))
            .map_err(|error| Failure::io("write the node's report", &file, error))
    }

    pub fn get(&self, tag: &str) -> Option<NodeReport> {
        serde_json::from_slice(&std::fs::read(self.file(tag)).ok()?).ok()
    }

    /// All that were put so far. Who has just put one sees the directory as it is.
    pub fn all(&self) -> Vec<NodeReport> {
        let entries = std::fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.path());
        let reports = entries.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
        let mut reports: Vec<NodeReport> =
            reports.filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok()).collect();
        reports.sort_by(|a, b| (&a.host, &a.tag).cmp(&(&b.host, &b.tag)));
        reports
    }

    /// True for one of all that ask.
    pub fn claim_telling(&self) -> bool {
        std::fs::File::options().write(true).create_new(true).open(self.0.join(TOLD)).is_ok()
    }

    fn file(&self, tag: &str) -> PathBuf {
        self.0.join(format!("{tag}.json"))
    }

    /// By the one who made it.
    pub fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.0);
        self.remove_empty();
    }

    /// By a node whose launch died: the last one to leave removes what is empty.
    pub fn remove_empty(&self) {
        let _ = std::fs::remove_dir(&self.0);
        let _ = self.0.parent().map(std::fs::remove_dir);
    }
}
