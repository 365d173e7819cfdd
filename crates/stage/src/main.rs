//! `terrace-stage`: files from an object store before a program, and to one after it. A program of its own: only this needs HTTP and TLS.
//!
//!   in:  URL ─▶ list ─▶ ranges, several at once ─▶ part file ─▶ rename     (under a run: into its tiers, by the preload library)
//!   beside a program: names first, then the same, by what is waited for first
//!   out: DIR ─▶ walk ─▶ whole, or in parts ─▶ completed ─▶ noted in the journal
//!
//! Invariants: a name has a whole file or none, here and there; nothing is removed on either side; what was done before an interrupt, a
//! kill or a network that went away is not done again. An object that is already there as it should be is not moved.

// They panic when nobody reads.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod beside;
mod credentials;
mod journal;
mod remote;
mod stage_in;
mod stage_out;
mod telling;
mod tree;

use clap::{Parser, Subcommand};
use remote::Remote;
use std::path::PathBuf;
use terrace_tool::failure::{Failure, Result};

#[derive(Parser)]
#[command(
    name = "terrace-stage",
    bin_name = "terrace",
    version,
    about = "Files to and from object stores (called by `terrace`)"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Bring objects into a directory
    #[command(name = "stage-in")]
    In {
        /// An object, or all objects below a prefix: s3://, gs://, az://, https://, file://
        url: String,
        /// Where they go; made if it is missing [default: the last part of the URL]
        directory: Option<PathBuf>,
        #[command(flatten)]
        options: Options,
    },
    /// Bring objects while a program runs that may ask for them
    #[command(name = "stage-beside", hide = true)]
    Beside {
        url: String,
        directory: PathBuf,
        #[command(flatten)]
        options: Options,
        #[command(flatten)]
        at: beside::Place,
    },
    /// Send the files of a directory
    #[command(name = "stage-out")]
    Out {
        directory: PathBuf,
        /// The prefix that they get
        url: String,
        #[command(flatten)]
        options: Options,
        /// Send what is durable again and again, until this is ended
        #[arg(long, hide = true)]
        follow: bool,
    },
}

#[derive(clap::Args)]
pub struct Options {
    /// Files at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: u16,
    /// Say what would be moved, and move nothing
    #[arg(long)]
    dry_run: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

fn run(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("can't start the threads that transfer: {error}")))?;
    runtime.block_on(async {
        match command {
            Command::In { url, directory, options } => {
                let remote = Remote::of(&url)?;
                let directory = match directory {
                    Some(directory) => directory,
                    None => remote.last_part()?.into(),
                };
                stage_in::run(&remote, &directory, &options).await
            }
            Command::Beside { url, directory, options, at } => beside::run(&url, &directory, &options, at).await,
            Command::Out { directory, url, options, follow } => {
                let remote = Remote::of(&url)?;
                if follow {
                    return stage_out::follow(&remote, &directory, &options).await;
                }
                stage_out::run(&remote, &directory, &options).await
            }
        }
    })
}

fn main() {
    let code = match run(Cli::parse().command) {
        Ok(()) => terrace_tool::output::finish(0),
        Err(failure) => {
            failure.print();
            failure.code
        }
    };
    std::process::exit(code);
}
