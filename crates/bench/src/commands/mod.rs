//! The commands and their arguments.

mod io500;
mod live;
mod show;

use clap::{Args, Parser, Subcommand};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use terrace_bench::error::{Error, Result};
use terrace_bench::execute::{Executor, Tally};
use terrace_bench::experiment::Experiment;
use terrace_bench::plan::Plan;
use terrace_bench::results::{self, Store};
use terrace_bench::{needs, stop};

#[derive(Parser)]
#[command(
    name = "terrace bench",
    version,
    about = "Measures storage: declared experiments, verified data, honest statistics"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the runs of an experiment, in order, and run nothing
    Plan(PlanArgs),
    /// Run an experiment
    Run(RunArgs),
    /// Go on with an experiment that was interrupted
    Resume(ResultArgs),
    /// Print the results of an experiment, and make its page with plots and the table of effects
    Report(ReportArgs),
    /// Compare the runs of two results
    Compare(CompareArgs),
    /// Translate IOR's command line into an experiment: `from-ior -- -a POSIX -b 32m …`
    FromIor {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Translate mdtest's command line into an experiment: `from-mdtest -- -n 1000 -F -u …`
    FromMdtest {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        arguments: Vec<String>,
    },
    /// Run the io500's easy and hard phases, find included, and compute its score
    Io500(Io500Args),
    /// Measure storage tiers: read, cached read, write, latency
    Tiers(TiersArgs),
    /// Print the JSON Schema of experiments
    Schema,
    /// Serve a coordinator (started by `run`)
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        connect: String,
        #[arg(long)]
        token_from_stdin: bool,
    },
}

#[derive(Args)]
struct PlanArgs {
    /// The experiment: JSON, YAML or TOML
    experiment: PathBuf,
    /// Print the whole plan as JSON
    #[arg(long)]
    json: bool,
    /// Instead of the experiment's seed
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Args)]
struct RunArgs {
    /// The experiment: JSON, YAML or TOML
    experiment: PathBuf,
    /// Directory of the results [default: the experiment's name and the time]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Instead of the experiment's seed
    #[arg(long)]
    seed: Option<u64>,
    /// Where the files are made, instead of the experiment's directory
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct ResultArgs {
    /// A directory that `run` made
    results: PathBuf,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct ReportArgs {
    /// A directory that `run` made
    results: PathBuf,
    /// Print the table only
    #[arg(long)]
    no_page: bool,
}

#[derive(Args)]
struct CompareArgs {
    /// A directory that `run` made
    a: PathBuf,
    /// Another one
    b: PathBuf,
    #[arg(long, default_value_t = 0.95)]
    confidence: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Io500Args {
    /// Where a directory for the phases' files is made, and removed at the end
    directory: PathBuf,
    /// Directory of the results [default: io500 and the time]
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Processes
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Seconds after which a writing phase ends; the list wants 300
    #[arg(long, value_name = "SECONDS", default_value_t = terrace_bench::io500::STONEWALL_S)]
    stonewall: u64,
    /// Most that each process writes in ior-easy (IOR's -b)
    #[arg(long, value_name = "SIZE", default_value = "9920000m")]
    easy_block: String,
    /// Most writes of 47008 bytes of each process in ior-hard (IOR's -s)
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    hard_segments: u64,
    /// Most files of each process in either mdtest (mdtest's -n)
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    files: u64,
    /// Drop the page cache before IOR's reads
    #[arg(long)]
    cold: bool,
    /// Hosts to start the processes on by ssh, taking turns
    #[arg(long, value_delimiter = ',')]
    hosts: Vec<String>,
    /// An address of this machine that those hosts reach
    #[arg(long, requires = "hosts")]
    address: Option<String>,
    /// Print the experiment, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// Print nothing but the score and errors
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Args)]
struct TiersArgs {
    /// A tier to measure: NAME=DIRECTORY (repeat, fast to slow)
    #[arg(long, value_name = "NAME=DIRECTORY", required = true)]
    tier: Vec<String>,
    /// Bytes to write and read in each tier
    #[arg(long, default_value = "1GiB", value_parser = bytes)]
    size: u64,
    #[arg(long, default_value_t = 1)]
    workers: u32,
    #[arg(long, default_value_t = 6)]
    replications: u32,
    /// Write the numbers as JSON, for `terrace predict`
    #[arg(long, short)]
    output: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    match terrace_core::size::Size::parse(text)? {
        terrace_core::size::Size::Bytes(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("a size such as `1GiB`".into()),
    }
}

impl Cli {
    pub fn run(self) -> Result<i32> {
        match self.command {
            Command::Plan(args) => plan(&args),
            Command::Run(args) => run(&args),
            Command::Resume(args) => resume(&args),
            Command::Report(args) => report(&args),
            Command::Compare(args) => compare(&args),
            Command::FromIor { arguments } => translated(terrace_bench::ior::translate(&arguments)?),
            Command::FromMdtest { arguments } => translated(terrace_bench::mdtest::translate(&arguments)?),
            Command::Io500(args) => io500::run(&args),
            Command::Tiers(args) => tiers(&args),
            Command::Schema => print_json(&Experiment::schema()),
            Command::Worker { connect, token_from_stdin } => {
                terrace_bench::worker::serve(&connect, token_from_stdin).map(|()| 0)
            }
        }
    }
}

/// All of it at once. Whoever reads it may have seen enough (`| head`), but a disk that is full is an error.
fn print(text: &str) -> Result<i32> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::io("write", "standard output", error)),
        _ => Ok(0),
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<i32> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::failed(format!("JSON: {error}")))?;
    print(&format!("{text}\n"))
}

/// The exit code says it, too, if nobody takes it.
fn warn(text: &str) {
    let _ = writeln!(std::io::stderr(), "terrace-bench: {text}");
}

fn translated(translation: terrace_bench::ior::Translation) -> Result<i32> {
    translation.notes.iter().for_each(|note| warn(&format!("note: {note}")));
    print_json(&translation.experiment)
}

fn plan(args: &PlanArgs) -> Result<i32> {
    let mut experiment = Experiment::read(&args.experiment)?;
    experiment.seed = args.seed.unwrap_or(experiment.seed);
    let plan = Plan::of(&experiment)?;
    print(&if args.json { plan.text() } else { show::plan(&plan) })
}

fn run(args: &RunArgs) -> Result<i32> {
    let mut experiment = Experiment::read(&args.experiment)?;
    experiment.seed = args.seed.unwrap_or(experiment.seed);
    if let Some(directory) = &args.directory {
        experiment.directory =
            std::path::absolute(directory).map_err(|error| Error::io("resolve", directory.display(), error))?;
    }
    if experiment.directory.to_str().is_none() {
        return Err(Error::input(
            format!("the directory {} is no UTF-8, and can't be noted in the results", experiment.directory.display()),
            "give it another name",
        ));
    }
    let plan = Plan::of(&experiment)?;
    needs::check(&experiment, &plan)?;
    let output = args.output.clone().unwrap_or_else(|| {
        PathBuf::from(format!("{}-{}", experiment.name.replace('/', "_"), results::unix_seconds() as u64))
    });
    std::fs::create_dir_all(&experiment.directory)
        .map_err(|error| Error::io("create", experiment.directory.display(), error))?;
    let store = Store::create(&output, &experiment, &plan, &results::manifest(&experiment, &plan))?;
    go_on(&experiment, &plan, store, vec![], &output, args.quiet)
}

fn resume(args: &ResultArgs) -> Result<i32> {
    let (experiment, recorded) = Store::experiment(&args.results)?;
    let plan = Plan::of(&experiment)?;
    if plan.text() != recorded {
        return Err(Error::input(
            format!("{}: this version makes another plan of the experiment", args.results.display()),
            "results of two plans don't belong together: run it anew",
        ));
    }
    needs::check(&experiment, &plan)?;
    let (store, rows) = Store::resume(&args.results, &plan)?;
    go_on(&experiment, &plan, store, rows, &args.results, args.quiet)
}

fn go_on(
    experiment: &Experiment,
    plan: &Plan,
    store: Store,
    rows: Vec<results::Row>,
    output: &Path,
    quiet: bool,
) -> Result<i32> {
    let stop = stop::by_signals()?;
    let mut executor = Executor::new(experiment, plan, store, rows, &stop);
    let mut live = live::Live::new(quiet);
    let tally = executor.run(&mut live);
    live.finish();
    let tally: Tally = tally?;
    results::to_csv(executor.rows(), &output.join("rows.csv"))?;
    results::to_parquet(executor.rows(), &output.join("rows.parquet"))?;
    results::write_json(
        &output.join("summary.json"),
        &serde_json::json!({ "runs": terrace_bench::report::summarise_rows(executor.rows(), 0.95) }),
    )?;
    let shown = match quiet {
        true => Ok(0),
        false => print(&format!("{}\nresults: {}\n", show::summary(executor.rows()), output.display())),
    };
    if let Some(signal) = tally.stopped {
        warn(&format!("interrupted; go on with `terrace bench resume {}`", output.display()));
        return Ok(128 + signal);
    }
    if tally.out_of_time > 0 {
        warn(&format!(
            "the time limit has come with {} runs to go; go on with `terrace bench resume {}`",
            tally.out_of_time,
            output.display()
        ));
    }
    if tally.failed + tally.wrong > 0 {
        warn(&format!(
            "{} of {} operations did not end as they should, {} read wrong data",
            tally.failed + tally.wrong,
            tally.rows,
            tally.wrong
        ));
        return Ok(1);
    }
    if tally.not_durable > 0 { Ok(1) } else { shown }
}

fn report(args: &ReportArgs) -> Result<i32> {
    let rows = Store::rows(&args.results)?;
    print(&show::summary(&rows))?;
    if !args.no_page {
        let page = terrace_bench::report::page(&args.results, &rows)?;
        print(&format!("\npage: {}\n", page.display()))?;
    }
    Ok(0)
}

fn compare(args: &CompareArgs) -> Result<i32> {
    if !(0.5..1.0).contains(&args.confidence) {
        return Err(Error::input("--confidence must be at least 0.5 and below 1", "for example 0.95"));
    }
    let table = terrace_bench::compare::tables(&Store::rows(&args.a)?, &Store::rows(&args.b)?, args.confidence);
    if table.lines.is_empty() {
        return Err(Error::input(
            "the two results have no run in common",
            "compare results of experiments with equal factors",
        ));
    }
    if args.json { print_json(&table.lines) } else { print(&show::comparison(&table)) }
}

fn tiers(args: &TiersArgs) -> Result<i32> {
    let tiers = args
        .tier
        .iter()
        .map(|text| match text.split_once('=') {
            Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), PathBuf::from(path))),
            _ => Err(Error::input(
                format!("--tier {text}: this is not NAME=DIRECTORY"),
                "for example --tier ram=/dev/shm",
            )),
        })
        .collect::<Result<Vec<_>>>()?;
    let names: Vec<_> = tiers.iter().map(|(name, _)| name).collect();
    if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(Error::input(format!("--tier: two tiers are called `{}`", twice.1), "give each a name of its own"));
    }
    let wish =
        terrace_bench::tiers::Wish { tiers, bytes: args.size, workers: args.workers, replications: args.replications };
    let mut live = live::Live::new(true);
    let document = terrace_bench::tiers::measure(&wish, &mut live, &stop::by_signals()?)?;
    // What was measured is told even if it can't be stored.
    let stored = args.output.as_ref().map_or(Ok(()), |output| results::write_json(output, &document));
    let shown = if args.quiet && stored.is_ok() { Ok(0) } else { print(&show::tiers(&document)) };
    stored.and(shown)
}
