//! `terrace bench io500`: one experiment of thirteen runs below a directory of its own, and the score of its rows.

use super::{Io500Args, live, print, print_json, show, warn};
use std::path::PathBuf;
use terrace_bench::error::{Error, Result};
use terrace_bench::execute::Executor;
use terrace_bench::experiment::{Experiment, Format, Launch};
use terrace_bench::io500::{self, Wish};
use terrace_bench::plan::Plan;
use terrace_bench::results::{self, Store};
use terrace_bench::{needs, stop};

pub fn run(args: &Io500Args) -> Result<i32> {
    if args.stonewall == 0 || args.files == 0 || args.hard_segments == 0 {
        return Err(Error::input("--stonewall, --files and --hard-segments must be at least 1", "leave them out"));
    }
    let wish = Wish {
        workers: args.workers,
        stonewall_s: args.stonewall,
        easy_block: args.easy_block.clone(),
        hard_segments: args.hard_segments,
        files: args.files,
        cold: args.cold,
    };
    let base =
        std::path::absolute(&args.directory).map_err(|error| Error::io("resolve", args.directory.display(), error))?;
    let named = format!("io500-{}-{}", results::unix_seconds() as u64, std::process::id());
    let directory = base.join(&named);
    let document = io500::experiment(&wish, &directory)?;
    let mut experiment = Experiment::parse(&document.to_string(), Format::Json)?;
    experiment.launch = Launch { hosts: args.hosts.clone(), command: None, address: args.address.clone() };
    let plan = Plan::of(&experiment)?;
    if args.dry_run {
        return print_json(&document);
    }
    needs::check(&experiment, &plan)?;
    // Only what this run makes is removed at its end.
    std::fs::create_dir_all(&base).map_err(|error| Error::io("create", base.display(), error))?;
    std::fs::create_dir(&directory).map_err(|error| Error::io("create", directory.display(), error))?;
    let output = args.output.clone().unwrap_or_else(|| PathBuf::from(&named));
    let outcome = measure(args, &experiment, &plan, &output);
    if let Err(error) = std::fs::remove_dir_all(&directory) {
        warn(&format!("can't remove {}: {error}", directory.display()));
    }
    let (rows, stopped) = outcome?;
    if let Some(signal) = stopped {
        return Err(Error::Stopped(signal));
    }
    let score = io500::score(&rows, &wish);
    results::write_json(&output.join("io500.json"), &score)?;
    print(&format!("{}\nresults: {}\n", show::io500(&score), output.display()))?;
    let whole = score.phases.iter().all(|phase| phase.ok) && score.found == score.to_find;
    Ok(i32::from(!whole))
}

fn measure(
    args: &Io500Args,
    experiment: &Experiment,
    plan: &Plan,
    output: &std::path::Path,
) -> Result<(Vec<results::Row>, Option<i32>)> {
    let store = Store::create(output, experiment, plan, &results::manifest(experiment, plan))?;
    let stop = stop::by_signals()?;
    let mut executor = Executor::new(experiment, plan, store, vec![], &stop);
    let mut live = live::Live::new(args.quiet);
    let tally = executor.run(&mut live);
    live.finish();
    let tally = tally?;
    results::to_csv(executor.rows(), &output.join("rows.csv"))?;
    Ok((executor.rows().to_vec(), tally.stopped))
}
