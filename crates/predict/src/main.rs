//! `terrace-predict`, which `terrace predict` becomes: how long a job takes on the durable tier alone and with Terrace, and why.
//!
//! ```text
//!   workload (flags, --workload, --report, --darshan) ─▶ Job      ─┐              ┌─▶ table, --json
//!                                                       ├─▶ answer ────┤
//!   storage (--platform, --tiers, settings) ─▶ Platform ┘   each point └─▶ --plot over --sweep
//! ```
//!
//! With `--run-page` it draws what a run was, for `terrace run --report FILE.html`.
//!
//! A program of its own, because what draws pictures (plotters, image, a font) would be a third of what `terrace run` is compiled of.
//! All arithmetic is `terrace_model`'s; here input is read and refused, and answers are shown.

// They panic when nobody reads; `terrace_tool::output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod answer;
mod args;
mod darshan;
mod page;
mod plot;
mod storage;
mod sweep;
mod units;
mod workload;

use self::answer::{Answer, Simulation};
use args::PredictArgs;
use clap::Parser;
use terrace_model::ModelError;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::out;
use terrace_tool::table::json;

fn main() {
    let code = match predict(&PredictArgs::parse()) {
        Ok(()) => 0,
        Err(failure) => {
            failure.print();
            failure.code
        }
    };
    std::process::exit(terrace_tool::output::finish(code));
}

fn predict(args: &PredictArgs) -> Result<()> {
    if let Some(file) = &args.run_page {
        return page::write(file);
    }
    let log = args.workload.darshan.as_deref().map(darshan::read).transpose()?;
    let asked = workload::Asked::read(&args.workload, log.as_ref())?;
    let mut storage = args.storage.clone();
    let of_log = match (&log, &args.workload.report) {
        (Some(log), _) => log.put_bandwidths(&mut storage),
        (None, Some(report)) => workload::put_report_bandwidths(report, &mut storage)?,
        (None, None) => vec![],
    };
    let (mut platform, mut notes) = storage::platform(&storage, args.workload.report.as_deref())?;
    notes.extend(of_log);
    asked.put_counts(&mut platform);
    let (job, more) = asked.job(&platform)?;
    let notes: Vec<String> = notes.into_iter().chain(more).collect();
    let simulation = args.simulate.then_some(Simulation { seed: args.seed, runs: args.runs });
    let Some(text) = &args.sweep else {
        let found = Answer::of(&platform, &job, simulation, notes).map_err(refused)?;
        match args.json {
            true => out!("{}\n", json(&found)),
            false => out!("{found}"),
        }
        return Ok(());
    };
    let sweep = sweep::Sweep::parse(text)?;
    if let Some(file) = &args.plot {
        plot::check(file)?;
    }
    let points = sweep.answers(&platform, &job, simulation)?;
    if let Some(file) = &args.plot {
        plot::draw(file, &sweep, &points)?;
    }
    if args.json {
        out!("{}\n", json(&serde_json::json!({ "sweep": sweep.name(), "points": points, "notes": notes })));
        return Ok(());
    }
    out!("{}", sweep::table(&sweep, &points));
    notes.iter().for_each(|note| out!("note: {note}\n"));
    Ok(())
}

/// The model's own refusals name the number; the hint says where numbers come from.
fn refused(error: ModelError) -> Failure {
    Failure::bad_input(error.to_string(), "`terrace predict --help` names the flag of each number")
}
