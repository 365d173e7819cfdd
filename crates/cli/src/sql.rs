//! `terrace sql` and `terrace savime`: call the program `terrace-query`, which lies beside this one, with the agent of these
//! settings.
//!
//! A program of its own, because its library (DataFusion) would make every other command several times as large.

use crate::args::{AskedArgs, SqlArgs};
use crate::programs::beside;
use crate::reach::reach;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use terrace_tool::failure::{Failure, Result, code};

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
    // Kept into the program.
    let reached = reach(asked.connect.as_deref(), &asked.settings)?;
    reached.tell(&mut command)?;
    let error = command.args(told.0).exec();
    drop(reached);
    Err(Failure::io("run", &program, error).code(code::NOT_EXECUTABLE))
}
