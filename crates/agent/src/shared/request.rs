//! What is asked of files and arrays alike: which ones, how, and what became of them.

use crate::shared::path::as_path;
use std::path::PathBuf;
use terrace_core::control::{Failure, Response};

/// Which files: below these paths; empty: all.
pub struct Scope(pub Vec<PathBuf>);

impl Scope {
    pub fn has(&self, path: &[u8]) -> bool {
        self.0.is_empty() || self.0.iter().any(|scope| as_path(path).starts_with(scope))
    }
}

#[derive(Default)]
pub struct Outcome {
    pub files: u64,
    pub bytes: u64,
    pub done: Vec<PathBuf>,
    pub failures: Vec<Failure>,
    pub open_files: Vec<PathBuf>,
}

impl Outcome {
    pub fn response(self) -> Response {
        let Outcome { files, bytes, failures, open_files, .. } = self;
        Response::Flushed { files, bytes, failures, open_files }
    }
}

pub struct FlushOptions {
    /// Also what policy keeps.
    pub all: bool,
    /// Files that are still open are moved under their programs; `remove` files are dropped.
    pub end_of_run: bool,
    /// Files that are still open are moved under their programs.
    pub settle_open: bool,
}

/// Called with (files done, files in all, bytes done, bytes in all); false: nobody listens any more.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64, u64, u64) -> bool;
