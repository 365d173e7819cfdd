//! The report as a page: what it says, two pictures of the run over time, and the JSON itself. `terrace-predict` has what draws.

use super::Report;
use super::timeline::Moment;
use crate::programs::beside;
use serde::Serialize;
use std::path::Path;
use std::process::{Command, Stdio};
use terrace_tool::failure::{Failure, Result};

/// Seconds since the run's start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Phases {
    pub program_from_s: f64,
    pub program_to_s: f64,
    pub flushed_s: f64,
}

#[derive(Serialize)]
struct Page<'a> {
    report: &'a Report,
    text: String,
    phases: Phases,
    moments: &'a [Moment],
}

/// By its name.
pub fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "html" || extension == "htm")
}

/// That it can be drawn, before the run.
pub fn check() -> Result<()> {
    beside("terrace-predict").map(drop)
}

pub fn write(file: &Path, report: &Report, phases: Phases, moments: &[Moment]) -> Result<()> {
    let page = Page { report, text: report.to_string(), phases, moments };
    let program = beside("terrace-predict")?;
    let failed = |error: std::io::Error| Failure::io("run", &program, error);
    let mut command = Command::new(&program);
    command.arg("--run-page").arg(file).stdin(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let input = child.stdin.take().expect("it is a pipe");
    let told = serde_json::to_writer(std::io::BufWriter::new(input), &page);
    let status = child.wait().map_err(failed)?;
    match (told, status.success()) {
        (Ok(()), true) => Ok(()),
        _ => Err(Failure::new(format!("the report {} could not be drawn", file.display()))
            .hint("`--report FILE.json` needs nothing to be drawn")),
    }
}
