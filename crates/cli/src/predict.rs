//! `terrace predict`: how long a job takes on the durable tier alone and with Terrace, and why.
//!
//! ```text
//!   workload (flags, --workload, --report) ─▶ Job      ─┐              ┌─▶ table, --json
//!                                                       ├─▶ answer ────┤
//!   storage (--platform, --tiers, settings) ─▶ Platform ┘   each point └─▶ --plot over --sweep
//! ```
//!
//! All arithmetic is `terrace_model`'s; here input is read and refused, and answers are shown.

mod answer;
mod plot;
mod storage;
mod sweep;
mod workload;

use self::answer::{Answer, Simulation};
use crate::failure::{Result, answer};
use crate::list::json;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use terrace_core::size::Size;
use terrace_model::{Flush, ModelError};

#[derive(Args, Debug)]
pub struct PredictArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
    #[command(flatten)]
    storage: StorageArgs,
    /// Also simulate the run event by event: contention, metadata, page cache, processors, the flush beside the program
    #[arg(long, help_heading = "Simulation")]
    simulate: bool,
    /// Seed of the simulation's placement of files
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Simulation")]
    seed: u64,
    /// Simulated runs, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Simulation")]
    runs: u32,
    /// Predict for each value of a parameter: NAME=FROM..TO (doubling), NAME=FROM..TO:STEP, or NAME=A,B,C
    #[arg(long, value_name = "SWEEP")]
    sweep: Option<String>,
    /// Draw the sweep (.png or .svg)
    #[arg(long, value_name = "FILE", requires = "sweep")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug, Default)]
pub struct WorkloadArgs {
    /// The workload as a file (TOML, or JSON); flags go before what it says
    #[arg(long, value_name = "FILE", conflicts_with = "report", help_heading = "Workload")]
    workload: Option<PathBuf>,
    /// The report of an earlier run (`terrace run --report FILE`)
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    report: Option<PathBuf>,
    /// Data that is read first, over all processes
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    input: Option<u64>,
    /// Data that is written and read again [default: the input, in all iterations but the last]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    intermediate: Option<u64>,
    /// Data that is left at the end [default: as much as the input]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    output: Option<u64>,
    /// Size of one file
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    file_size: Option<u64>,
    /// Compute nodes
    #[arg(long, value_name = "N", help_heading = "Workload")]
    nodes: Option<u32>,
    /// Processes on each node
    #[arg(long, value_name = "N", help_heading = "Workload")]
    processes: Option<u32>,
    /// How often each piece of data is computed and saved
    #[arg(long, value_name = "N", help_heading = "Workload")]
    iterations: Option<u32>,
    /// Processor time over all processes
    #[arg(long, value_name = "DURATION", value_parser = seconds, help_heading = "Workload")]
    compute: Option<f64>,
    /// What is made durable [default: all]
    #[arg(long, value_name = "WHAT", help_heading = "Workload")]
    flush: Option<FlushArg>,
}

#[derive(Args, Debug, Default)]
pub struct StorageArgs {
    /// Measured tiers (written by `terrace bench tiers`)
    #[arg(long, value_name = "FILE", help_heading = "Storage")]
    tiers: Option<PathBuf>,
    /// The whole machine as a file (TOML or JSON, as `--json` prints it)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tiers", "config"], help_heading = "Storage")]
    platform: Option<PathBuf>,
    /// Settings whose tiers are meant [default: ./terrace.toml]
    #[arg(long, value_name = "FILE", help_heading = "Storage")]
    config: Option<PathBuf>,
    /// Capacity of a tier in each node: NAME=SIZE (repeat)
    #[arg(long, value_name = "NAME=SIZE", help_heading = "Storage")]
    capacity: Vec<String>,
    /// A fast tier, fast to slow, instead of the settings': NAME=CAPACITY,READ,WRITE (repeat; bandwidths in bytes a second)
    #[arg(long, value_name = "NAME=CAPACITY,READ,WRITE", help_heading = "Storage")]
    fast_tier: Vec<String>,
    /// Read bandwidth of one disk (or server) of the durable tier
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    read_bandwidth: Option<u64>,
    /// Write bandwidth of one disk (or server) of the durable tier
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    write_bandwidth: Option<u64>,
    /// Disks of the durable tier
    #[arg(long, value_name = "N", help_heading = "Storage")]
    disks: Option<u32>,
    /// Storage nodes of the durable tier
    #[arg(long, value_name = "N", help_heading = "Storage")]
    servers: Option<u32>,
    /// Disks that a file is striped over
    #[arg(long, value_name = "N", help_heading = "Storage")]
    stripe: Option<u32>,
    /// Network bandwidth of one node
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    network: Option<u64>,
    /// Time of one metadata operation of the durable tier
    #[arg(long, value_name = "DURATION", value_parser = seconds, help_heading = "Storage")]
    latency: Option<f64>,
    /// Metadata operations a second that the durable tier can do
    #[arg(long, value_name = "N", help_heading = "Storage")]
    metadata_rate: Option<f64>,
    /// Processors of a node, where they limit
    #[arg(long, value_name = "N", help_heading = "Storage")]
    cores: Option<f64>,
    /// Bytes that a node may hold in its page cache before they are in the durable tier
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Storage")]
    dirty: Option<u64>,
    /// Mover threads of Terrace in each node
    #[arg(long, value_name = "N", help_heading = "Storage")]
    threads: Option<u32>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FlushArg {
    All,
    Final,
    None,
}

impl From<FlushArg> for Flush {
    fn from(flush: FlushArg) -> Flush {
        match flush {
            FlushArg::All => Flush::All,
            FlushArg::Final => Flush::Final,
            FlushArg::None => Flush::None,
        }
    }
}

pub fn predict(args: &PredictArgs) -> Result<i32> {
    let asked = workload::Asked::read(&args.workload)?;
    let (mut platform, notes) = storage::platform(&args.storage, args.workload.report.as_deref())?;
    asked.put_counts(&mut platform);
    let (job, more) = asked.job(&platform)?;
    let notes: Vec<String> = notes.into_iter().chain(more).collect();
    let simulation = args.simulate.then_some(Simulation { seed: args.seed, runs: args.runs });
    let Some(text) = &args.sweep else {
        let found = Answer::of(&platform, &job, simulation, notes).map_err(refused)?;
        answer(&if args.json { format!("{}\n", json(&found)) } else { found.to_string() })?;
        return Ok(0);
    };
    let sweep = sweep::Sweep::parse(text)?;
    if let Some(file) = &args.plot {
        plot::check(file)?;
    }
    let points = sweep.answers(&platform, &job, simulation)?;
    if let Some(file) = &args.plot {
        plot::draw(file, &sweep, &points)?;
    }
    answer(&match args.json {
        true => {
            format!("{}\n", json(&serde_json::json!({ "sweep": sweep.name(), "points": points, "notes": notes })))
        }
        false => {
            let notes: String = notes.iter().map(|note| format!("note: {note}\n")).collect();
            format!("{}{notes}", sweep::table(&sweep, &points))
        }
    })?;
    Ok(0)
}

/// The model's own refusals name the number; the hint says where numbers come from.
fn refused(error: ModelError) -> crate::failure::Failure {
    crate::failure::Failure::bad_input(error.to_string(), "`terrace predict --help` names the flag of each number")
}

fn size(text: &str) -> std::result::Result<u64, String> {
    let text = text.trim_end_matches("/s");
    match Size::parse(text) {
        Ok(Size::Bytes(bytes)) => Ok(bytes),
        Ok(Size::Percent(_)) => Err(format!("`{text}` is a part of something; a number of bytes is needed")),
        Err(reason) => Err(format!("{reason}; write a number and a unit, such as `8GiB` or `500MB`")),
    }
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    terrace_core::size::parse_duration(text)
        .map(|duration| duration.as_secs_f64())
        .map_err(|reason| format!("{reason}; {}", terrace_core::size::DURATION_HINT))
}
