//! Programs of ours that lie beside this one: what only some commands need (a SQL engine, an HTTP server, a benchmark, a plotter) is
//! theirs, so that `terrace` stays small and quickly built.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use terrace_tool::failure::{Failure, Result, code};

/// Becomes the program: signals, terminal and exit code are its own.
pub fn become_program(name: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<i32> {
    let program = beside(name)?;
    let error = Command::new(&program).args(arguments).exec();
    Err(Failure::io("run", &program, error).code(code::NOT_EXECUTABLE))
}

/// A program of ours that lies where this one lies.
pub fn beside(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(|error| Failure::new(format!("can't find this program: {error}")))?;
    let beside = own.with_file_name(name);
    if beside.exists() {
        return Ok(beside);
    }
    Err(Failure::new(format!("{} is not there", beside.display()))
        .hint("build it with `make build`, or put it beside `terrace`")
        .code(code::NOT_FOUND))
}
