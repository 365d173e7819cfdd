//! The commands and their arguments.

mod live;
mod show;

use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_bench::error::{Error, Result};
use terrace_bench::execute::{Executor, Tally};
use terrace_bench::experiment::Experiment;
use terrace_bench::plan::Plan;
use terrace_bench::results::{self, Store};

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
        if !matches!(self.command, Command::Run(_) | Command::Resume(_) | Command::Tiers(_) | Command::Worker { .. }) {
            end_when_nobody_reads();
        }
        match self.command {
            Command::Plan(args) => plan(&args),
            Command::Run(args) => run(&args),
            Command::Resume(args) => resume(&args),
            Command::Report(args) => report(&args),
            Command::Compare(args) => compare(&args),
            Command::FromIor { arguments } => {
                let experiment = terrace_bench::ior::translate(&arguments)?;
                println!("{}", serde_json::to_string_pretty(&experiment).expect("an experiment is plain data"));
                Ok(0)
            }
            Command::Tiers(args) => tiers(&args),
            Command::Schema => {
                println!("{}", serde_json::to_string_pretty(&Experiment::schema()).expect("a schema is plain data"));
                Ok(0)
            }
            Command::Worker { connect, token_from_stdin } => {
                terrace_bench::worker::serve(&connect, token_from_stdin).map(|()| 0)
            }
        }
    }
}

fn plan(args: &PlanArgs) -> Result<i32> {
    let mut experiment = Experiment::read(&args.experiment)?;
    experiment.seed = args.seed.unwrap_or(experiment.seed);
    let plan = Plan::of(&experiment)?;
    if args.json {
        print!("{}", plan.text());
    } else {
        show::plan(&plan);
    }
    Ok(0)
}

fn run(args: &RunArgs) -> Result<i32> {
    let mut experiment = Experiment::read(&args.experiment)?;
    experiment.seed = args.seed.unwrap_or(experiment.seed);
    if let Some(directory) = &args.directory {
        experiment.directory =
            std::path::absolute(directory).map_err(|error| Error::io("resolve", directory.display(), error))?;
    }
    let plan = Plan::of(&experiment)?;
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
    Store::mend(&args.results, &plan)?;
    let rows = Store::rows(&args.results)?;
    let store = Store::open(&args.results)?;
    go_on(&experiment, &plan, store, rows, &args.results, args.quiet)
}

/// Whoever reads a table may have seen enough (`| head`). An experiment goes on, so this is for when all is done.
fn end_when_nobody_reads() {
    // SAFETY: the call takes numbers only, and no handler is replaced: the Rust runtime ignores the signal.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// An interrupted experiment removes the files of the run that it is in. A second signal ends it at once.
fn notice_signals() {
    extern "C" fn noticed(_: libc::c_int) {
        INTERRUPTED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the structure is valid when it is zero, and the handler does nothing but store a flag.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = noticed as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

fn go_on(
    experiment: &Experiment,
    plan: &Plan,
    store: Store,
    rows: Vec<results::Row>,
    output: &Path,
    quiet: bool,
) -> Result<i32> {
    let mut executor = Executor::new(experiment, plan, store, rows);
    let mut live = live::Live::new(quiet);
    notice_signals();
    let tally = executor.run(&mut live);
    live.finish();
    let tally: Tally = tally?;
    results::to_csv(executor.rows(), &output.join("rows.csv"))?;
    results::to_parquet(executor.rows(), &output.join("rows.parquet"))?;
    results::write_json(
        &output.join("summary.json"),
        &serde_json::json!({ "runs": terrace_bench::report::summarise_rows(executor.rows(), 0.95) }),
    )?;
    end_when_nobody_reads();
    if !quiet {
        show::summary(executor.rows());
        println!("\nresults: {}", output.display());
    }
    if tally.stopped {
        eprintln!("terrace-bench: interrupted; go on with `terrace bench resume {}`", output.display());
        return Ok(130);
    }
    if tally.failed + tally.wrong > 0 {
        eprintln!(
            "terrace-bench: {} of {} operations did not end as they should, {} read wrong data",
            tally.failed + tally.wrong,
            tally.rows,
            tally.wrong
        );
        return Ok(1);
    }
    Ok(0)
}

fn report(args: &ReportArgs) -> Result<i32> {
    let rows = Store::rows(&args.results)?;
    show::summary(&rows);
    if !args.no_page {
        let page = terrace_bench::report::page(&args.results, &rows)?;
        println!("\npage: {}", page.display());
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
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table.lines).expect("a comparison is plain data"));
    } else {
        show::comparison(&table);
    }
    Ok(0)
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
    let wish =
        terrace_bench::tiers::Wish { tiers, bytes: args.size, workers: args.workers, replications: args.replications };
    let mut live = live::Live::new(true);
    let document = terrace_bench::tiers::measure(&wish, &mut live)?;
    if let Some(output) = &args.output {
        results::write_json(output, &document)?;
    }
    end_when_nobody_reads();
    if !args.quiet {
        show::tiers(&document);
    }
    Ok(0)
}
