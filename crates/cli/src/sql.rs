//! `terrace sql` and `terrace savime`: call the program `terrace-query`, which lies beside this one, with the agent of these
//! settings.
//!
//! A program of its own, because its library (DataFusion) would make every other command several times as large.

use crate::agent_process::{self, ensure};
use crate::args::{AskedArgs, SqlArgs};
use crate::check;
use crate::programs::beside;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use terrace_index::INDEX_ENV;
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::resolve::{named_agent, resolve};

pub fn sql(args: &SqlArgs) -> Result<i32> {
    let mut told = Told::of(&args.asked);
    told.option("--watch", args.watch.clone());
    told.option("--from", args.from.clone());
    told.option("--steps", args.steps.clone());
    told.option("--cancel", args.cancel.clone());
    call("sql", told, &args.asked)
}

pub fn savime(args: &AskedArgs) -> Result<i32> {
    call("savime", Told::of(args), args)
}

/// Arguments that are handed on.
#[derive(Default)]
struct Told(Vec<OsString>);

impl Told {
    fn of(asked: &AskedArgs) -> Told {
        let path = |path: &Option<PathBuf>| path.clone().map(OsString::from);
        let mut told = Told::default();
        told.option("--file", path(&asked.file));
        told.option("--format", asked.format.clone());
        told.option("--output", path(&asked.output));
        told.option("--memory", asked.memory.clone());
        told.option("--query-timeout", asked.query_timeout.clone());
        told.option("--spill", path(&asked.spill));
        told.option("--threads", asked.query_threads.clone());
        if asked.generic {
            told.0.push("--generic".into());
        }
        told
    }

    fn option(&mut self, name: &str, value: Option<OsString>) {
        if let Some(value) = value {
            self.0.extend([name.into(), value]);
        }
    }

    fn query(&mut self, query: &Option<OsString>) {
        if let Some(query) = query {
            self.0.extend(["--".into(), query.clone()]);
        }
    }
}

fn call(language: &str, mut told: Told, asked: &AskedArgs) -> Result<i32> {
    told.query(&asked.query);
    let program = beside("terrace-query")?;
    let mut command = Command::new(&program);
    command.arg(language);
    // Kept open into the program: the agent stays for as long as somebody is connected.
    let mut connection = None;
    match &asked.connect {
        Some(target) => {
            command.args(["--connect", target]);
        }
        // It is in the environment already.
        None if named_agent(&asked.settings).is_some() => {}
        None => {
            let settings = resolve(&asked.settings)?.settings;
            let settings = match terrace_tool::control_client::running(&settings)? {
                Some(_) => settings,
                None => agent_process::in_force(&settings).unwrap_or(settings),
            };
            check::settings(&settings, true)?;
            let kept = ensure(&settings, false)?;
            kept.keep_through_exec().map_err(|error| Failure::new(format!("can't keep the agent: {error}")))?;
            command.env(INDEX_ENV, settings.index());
            connection = Some(kept);
        }
    }
    let error = command.args(told.0).exec();
    drop(connection);
    Err(Failure::io("run", &program, error).code(code::NOT_EXECUTABLE))
}
