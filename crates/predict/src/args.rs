//! The command line of a prediction.

use crate::units::{seconds, size};
use clap::{Args, Parser, ValueEnum};
use std::path::PathBuf;
use terrace_model::{Flush, NextStep};

#[derive(Parser, Debug)]
#[command(
    name = "terrace predict",
    bin_name = "terrace predict",
    version,
    about = "Predict how long a job takes on the durable tier alone and with Terrace, and what limits it"
)]
pub struct PredictArgs {
    #[command(flatten)]
    pub workload: WorkloadArgs,
    #[command(flatten)]
    pub storage: StorageArgs,
    /// Also simulate the run event by event: contention, metadata, page cache, processors, the flush beside the program
    #[arg(long, help_heading = "Simulation")]
    pub simulate: bool,
    /// Seed of the simulation's placement of files
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Simulation")]
    pub seed: u64,
    /// Simulated runs, each with the next seed
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000), help_heading = "Simulation")]
    pub runs: u32,
    /// Predict for each value of a parameter: NAME=FROM..TO (doubling), NAME=FROM..TO:STEP, or NAME=A,B,C
    #[arg(long, value_name = "SWEEP")]
    pub sweep: Option<String>,
    /// Draw the sweep (.png or .svg)
    #[arg(long, value_name = "FILE", requires = "sweep")]
    pub plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Draw a run, which is read from standard input
    #[arg(long, value_name = "FILE", hide = true)]
    pub run_page: Option<PathBuf>,
}

#[derive(Args, Debug, Default)]
pub struct WorkloadArgs {
    /// The workload as a file (TOML, or JSON); flags go before what it says
    #[arg(long, value_name = "FILE", conflicts_with = "report", help_heading = "Workload")]
    pub workload: Option<PathBuf>,
    /// The report of an earlier run (`terrace run --report FILE`)
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    pub report: Option<PathBuf>,
    /// A log of Darshan's: what that job did, and on what storage (needs pydarshan: `pip install darshan`)
    #[arg(long, value_name = "LOG", conflicts_with_all = ["workload", "report"], help_heading = "Workload")]
    pub darshan: Option<PathBuf>,
    /// Data that is read first, over all processes
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    pub input: Option<u64>,
    /// Data that is written and read again [default: the input, in all iterations but the last]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    pub intermediate: Option<u64>,
    /// Data that is left at the end [default: as much as the input]
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    pub output: Option<u64>,
    /// Size of one file
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Workload")]
    pub file_size: Option<u64>,
    /// Compute nodes
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub nodes: Option<u32>,
    /// Processes on each node
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub processes: Option<u32>,
    /// How often each piece of data is computed and saved
    #[arg(long, value_name = "N", help_heading = "Workload")]
    pub iterations: Option<u32>,
    /// Processor time over all processes
    #[arg(long, value_name = "DURATION", value_parser = seconds, help_heading = "Workload")]
    pub compute: Option<f64>,
    /// What is made durable [default: all]
    #[arg(long, value_name = "WHAT", help_heading = "Workload")]
    pub flush: Option<FlushArg>,
    /// Where what one iteration saved is read by the next one [default: same-node]
    #[arg(long, value_name = "WHERE", help_heading = "Workload")]
    pub next_step: Option<NextStepArg>,
}

#[derive(Args, Clone, Debug, Default)]
pub struct StorageArgs {
    /// Measured tiers (written by `terrace bench tiers`)
    #[arg(long, value_name = "FILE", help_heading = "Storage")]
    pub tiers: Option<PathBuf>,
    /// The whole machine as a file (TOML or JSON, as `--json` prints it)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tiers", "config"], help_heading = "Storage")]
    pub platform: Option<PathBuf>,
    /// Settings whose tiers are meant [default: ./terrace.toml]
    #[arg(long, value_name = "FILE", help_heading = "Storage")]
    pub config: Option<PathBuf>,
    /// Capacity of a tier in each node: NAME=SIZE (repeat)
    #[arg(long, value_name = "NAME=SIZE", help_heading = "Storage")]
    pub capacity: Vec<String>,
    /// A fast tier, fast to slow, instead of the settings': NAME=CAPACITY,READ,WRITE (repeat; bandwidths in bytes a second)
    #[arg(long, value_name = "NAME=CAPACITY,READ,WRITE", help_heading = "Storage")]
    pub fast_tier: Vec<String>,
    /// Read bandwidth of one disk (or server) of the durable tier
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    pub read_bandwidth: Option<u64>,
    /// Write bandwidth of one disk (or server) of the durable tier
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    pub write_bandwidth: Option<u64>,
    /// Disks of the durable tier
    #[arg(long, value_name = "N", help_heading = "Storage")]
    pub disks: Option<u32>,
    /// Storage nodes of the durable tier
    #[arg(long, value_name = "N", help_heading = "Storage")]
    pub servers: Option<u32>,
    /// Disks that a file is striped over
    #[arg(long, value_name = "N", help_heading = "Storage")]
    pub stripe: Option<u32>,
    /// Network bandwidth of one node
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    pub network: Option<u64>,
    /// Bandwidth at most of one file that comes from another node's tier
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    pub peer_bandwidth: Option<u64>,
    /// Time of one metadata operation of the durable tier
    #[arg(long, value_name = "DURATION", value_parser = seconds, help_heading = "Storage")]
    pub latency: Option<f64>,
    /// Metadata operations a second that the durable tier can do
    #[arg(long, value_name = "N", help_heading = "Storage")]
    pub metadata_rate: Option<f64>,
    /// Processors of a node, where they limit
    #[arg(long, value_name = "N", help_heading = "Storage")]
    pub cores: Option<f64>,
    /// Bytes that a node may hold in its page cache before they are in the durable tier
    #[arg(long, value_name = "SIZE", value_parser = size, help_heading = "Storage")]
    pub dirty: Option<u64>,
    /// Bandwidth of reads that the page cache of a node answers
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    pub cache_read_bandwidth: Option<u64>,
    /// Bandwidth of writes that the page cache of a node takes
    #[arg(long, value_name = "RATE", value_parser = size, help_heading = "Storage")]
    pub cache_write_bandwidth: Option<u64>,
    /// Mover threads of Terrace in each node
    #[arg(long, value_name = "N", help_heading = "Storage")]
    pub threads: Option<u32>,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum NextStepArg {
    SameNode,
    OtherNode,
}

impl From<NextStepArg> for NextStep {
    fn from(next_step: NextStepArg) -> NextStep {
        match next_step {
            NextStepArg::SameNode => NextStep::SameNode,
            NextStepArg::OtherNode => NextStep::OtherNode,
        }
    }
}
