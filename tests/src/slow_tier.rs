//! A durable tier like a parallel file system that many share: `terrace-slowfs`, mounted, which counts what it is asked.

use crate::{Outcome, binaries, skipped, wait_until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct SlowTier {
    directory: tempfile::TempDir,
    is_mounted: bool,
}

impl SlowTier {
    /// Bandwidths and latency as in the benchmarks (benchmarks/small-files).
    pub const LIKE_A_PARALLEL_FILE_SYSTEM: &[&str] =
        &["--write-mib", "121", "--read-mib", "1381", "--latency-us", "500", "--cache-ttl-ms", "1000", "--write-back"];

    /// Mounts one with these flags; none, and said loudly, where FUSE can't be had.
    pub fn mount(flags: &[&str]) -> Option<SlowTier> {
        let directory = tempfile::Builder::new().prefix("tt-").tempdir_in("/var/tmp").unwrap();
        let tier = SlowTier { directory, is_mounted: true };
        for name in ["source", "mount"] {
            std::fs::create_dir(tier.path(name)).unwrap();
        }
        let mut command = Command::new(binaries().join("terrace-slowfs"));
        command.arg("--source").arg(tier.path("source")).arg("--mount").arg(tier.path("mount"));
        command.args(flags).arg("--report").arg(tier.path("report"));
        let mounted = Outcome::within(30, &mut command);
        if mounted.code != 0 {
            skipped(&format!("FUSE can't be had here: {}", mounted.stderr));
            return None;
        }
        Some(tier)
    }

    /// The directory to use.
    pub fn root(&self) -> PathBuf {
        self.path("mount")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// How many metadata requests there were, after the end.
    pub fn count(mut self) -> i64 {
        self.is_mounted = !wait_until(30, || unmount(&self.root()));
        assert!(!self.is_mounted, "{} is still busy", self.root().display());
        let report = || std::fs::read(self.path("report")).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut found: Option<Value> = None;
        wait_until(30, || {
            found = report();
            found.is_some()
        });
        found.expect("a report")["metadata_requests"].as_i64().expect("a count")
    }
}

impl Drop for SlowTier {
    fn drop(&mut self) {
        // A program's last process may be on its way out.
        if self.is_mounted {
            wait_until(5, || unmount(&self.root()));
        }
    }
}

fn unmount(mount: &Path) -> bool {
    let ways: [&[&str]; 2] = [&["umount"], &["fusermount3", "-u"]];
    ways.iter().any(|words| {
        let done = Command::new(words[0]).args(&words[1..]).arg(mount).output();
        done.is_ok_and(|output| output.status.success())
    })
}
