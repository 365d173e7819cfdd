//! `terrace bench`: this program does the work; the `terrace` program calls it.

mod commands;

use clap::Parser;
use terrace_bench::error::Error;

fn main() {
    let code = match commands::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("terrace-bench: error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("terrace-bench: hint: {hint}");
            }
            if matches!(error, Error::Input { .. }) { 2 } else { 1 }
        }
    };
    std::process::exit(code);
}
