//! `terrace sql`: calls the program `terrace-query`, which lies beside this one, with the agent of these settings.
//!
//! A program of its own, because its library (DataFusion) would make every other command several times as large.

use crate::agent_process::{self, ensure};
use crate::args::SqlArgs;
use crate::bench::beside;
use crate::check;
use crate::failure::{Failure, Result, code};
use crate::resolve::resolve;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;
use terrace_index::INDEX_ENV;

pub fn sql(args: &SqlArgs) -> Result<i32> {
    let program = beside("terrace-query")?;
    let mut command = Command::new(&program);
    command.arg("sql").args(arguments(args));
    // Kept open into the program: the agent stays for as long as somebody is connected.
    let mut connection = None;
    match &args.connect {
        Some(target) => {
            command.args(["--connect", target]);
        }
        None => {
            let settings = resolve(&args.settings)?.settings;
            let settings = match crate::control_client::running(&settings)? {
                Some(_) => settings,
                None => agent_process::in_force(&settings).unwrap_or(settings),
            };
            check::settings(&settings, true)?;
            let kept = ensure(&settings, false)?;
            kept.client.keep_through_exec().map_err(|error| Failure::new(format!("can't keep the agent: {error}")))?;
            command.env(INDEX_ENV, settings.index());
            connection = Some(kept);
        }
    }
    let error = command.exec();
    drop(connection);
    Err(Failure::io("run", &program, error).code(code::NOT_EXECUTABLE))
}

fn arguments(args: &SqlArgs) -> Vec<OsString> {
    let mut told: Vec<OsString> = vec![];
    let mut option = |name: &str, value: Option<OsString>| {
        if let Some(value) = value {
            told.extend([name.into(), value]);
        }
    };
    option("--file", args.file.as_ref().map(|path| path.into()));
    option("--format", args.format.clone());
    option("--output", args.output.as_ref().map(|path| path.into()));
    option("--watch", args.watch.clone());
    option("--from", args.from.clone());
    option("--steps", args.steps.clone());
    option("--memory", args.memory.clone());
    option("--spill", args.spill.as_ref().map(|path| path.into()));
    option("--threads", args.query_threads.clone());
    if args.generic {
        told.push("--generic".into());
    }
    if let Some(query) = &args.query {
        told.extend(["--".into(), query.clone()]);
    }
    told
}
