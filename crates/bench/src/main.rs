//! `terrace bench`: this program does the work; the `terrace` program calls it.

mod commands;

use clap::Parser;
use std::io::Write;
use terrace_bench::error::Error;

fn main() {
    let code = match commands::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            let mut said = format!("terrace-bench: error: {error}\n");
            if let Some(hint) = error.hint() {
                said.push_str(&format!("terrace-bench: hint: {hint}\n"));
            }
            // If nobody takes it, the exit code still says it.
            let _ = std::io::stderr().write_all(said.as_bytes());
            match error {
                Error::Input { .. } => 2,
                Error::Stopped(signal) => 128 + signal,
                _ => 1,
            }
        }
    };
    std::process::exit(code);
}
