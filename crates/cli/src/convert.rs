//! `terrace import` and `terrace export`: HDF5, NetCDF, FITS, NumPy and Zarr, which the Python package reads and writes.
//!
//!   find an interpreter that has the package ─▶ an agent for the root ─▶ python -m terrace.convert, as a client of it
//!
//! Reason: those formats' own libraries are at home in Python, and the binary stays free of them.

use crate::agent_process::ensure;
use crate::args::{ConvertSettings, ExportArgs, ImportArgs};
use crate::check;
use crate::reach::are_elsewhere;
use std::ffi::{OsStr, OsString};
use std::process::{Command, Stdio};
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::resolve::resolve_here;

/// Names the interpreter, where it is not `python3`.
const PYTHON_ENV: &str = "TERRACE_PYTHON";

pub fn import(args: &ImportArgs) -> Result<i32> {
    let replace = args.replace.then_some("--replace");
    convert("import", replace, args.file.as_os_str(), OsStr::new(&args.name), &args.convert)
}

pub fn export(args: &ExportArgs) -> Result<i32> {
    convert("export", None, OsStr::new(&args.name), args.file.as_os_str(), &args.convert)
}

fn convert(what: &str, flag: Option<&str>, from: &OsStr, to: &OsStr, args: &ConvertSettings) -> Result<i32> {
    let python = interpreter()?;
    let settings = resolve_here(&args.settings)?.settings;
    if are_elsewhere(&settings) {
        let message = format!("agents of other nodes serve {}, and none is on this one", settings.root.display());
        return Err(Failure::new(message).hint("run this command on a node of theirs"));
    }
    check::settings(&settings, true)?;
    // The agent stays as long as this connection does.
    let mut connection = ensure(&settings, false)?;
    let is_alone = connection.status().is_ok_and(|status| status.runs.is_empty());
    let mut command = Command::new(&python);
    command.args(["-m", "terrace.convert", what]).args(flag).arg("--index").arg(settings.index());
    if let Some(format) = &args.format {
        command.arg("--format").arg(format);
    }
    if args.quiet {
        command.arg("--quiet");
    }
    if what == "import" && is_alone {
        // Nobody else will: the agent is here for this command alone, and ends with it.
        command.arg("--flush");
    }
    let failed = |error: std::io::Error| Failure::new(format!("can't run {}: {error}", python.display()));
    let status = command.arg("--").arg(from).arg(to).status().map_err(failed)?;
    drop(connection);
    Ok(status.code().unwrap_or(code::FAILED))
}

fn interpreter() -> Result<OsString> {
    let named = std::env::var_os(PYTHON_ENV);
    let python = named.unwrap_or_else(|| "python3".into());
    let mut probe = Command::new(&python);
    probe.args(["-c", "import terrace.convert"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match probe.status() {
        Ok(status) if status.success() => Ok(python),
        Ok(_) => Err(Failure::new(format!("{} does not have the Python package `terrace`", python.display()))
            .hint(format!("make python, then pip install build/wheels/terrace-*.whl; or name an interpreter that has it in {PYTHON_ENV}"))),
        Err(error) => Err(Failure::new(format!("can't run {}: {error}", python.display()))
            .hint(format!("install Python 3.11 or later, or name an interpreter in {PYTHON_ENV}"))),
    }
}
