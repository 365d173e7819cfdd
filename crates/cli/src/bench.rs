//! `terrace bench`: calls the program `terrace-bench`, which lies beside this one.
//!
//! A program of its own, because what measures must not link the agent that it measures, and because its libraries (Parquet, S3)
//! would make every other command larger. Only `terrace bench tiers` is read here: the tiers are those of our settings.

use crate::programs::become_program;
use clap::Parser;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_tool::failure::Result;
use terrace_tool::resolve::resolve;
use terrace_tool::setting_args::SettingArgs;

/// Measure the tiers of the settings, and the root: read, cached read, write, latency
#[derive(Parser, Debug)]
#[command(name = "terrace bench tiers")]
struct TiersArgs {
    #[command(flatten)]
    settings: SettingArgs,
    /// Bytes to write and read in each tier
    #[arg(long, value_name = "SIZE")]
    size: Option<String>,
    /// Processes that read and write at once
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    #[arg(long, value_name = "N")]
    replications: Option<String>,
    /// Write the numbers as JSON, for `terrace predict`
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print nothing but errors
    #[arg(long, short)]
    quiet: bool,
}

pub fn bench(arguments: &[OsString]) -> Result<i32> {
    let arguments = match arguments.first() {
        Some(first) if first == "tiers" => tiers(&arguments[1..])?,
        _ => arguments.to_vec(),
    };
    become_program("terrace-bench", arguments)
}

fn tiers(arguments: &[OsString]) -> Result<Vec<OsString>> {
    let name = OsString::from("terrace bench tiers");
    let args = TiersArgs::parse_from(std::iter::once(&name).chain(arguments));
    let resolved = resolve(&args.settings)?;
    resolved.print_warnings();
    let mut told: Vec<OsString> = vec!["tiers".into()];
    let mut tier = |name: &str, path: &Path| {
        let mut text = OsString::from(format!("{name}="));
        text.push(path);
        told.extend(["--tier".into(), text]);
    };
    for settings in &resolved.settings.tiers {
        // The devices of a tier are equal by its meaning: one is measured.
        if let Some(path) = settings.paths.first() {
            tier(&settings.name, path);
        }
    }
    tier("root", &resolved.settings.root);
    for (flag, value) in [("--size", &args.size), ("--workers", &args.workers), ("--replications", &args.replications)]
    {
        if let Some(value) = value {
            told.extend([flag.into(), value.into()]);
        }
    }
    if let Some(output) = args.output {
        told.extend(["--output".into(), output.into()]);
    }
    if args.quiet {
        told.push("--quiet".into());
    }
    Ok(told)
}
