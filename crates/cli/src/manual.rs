//! What is generated from the grammar: completions for shells, and man pages. Packages contain both (`make dist`).

use crate::args::grammar;
use clap_complete::Shell;
use std::path::Path;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::out;

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> Result<()> {
    let mut text = vec![];
    clap_complete::generate(shell, &mut visible(grammar()), "terrace", &mut text);
    out!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

/// Writes `terrace.1` and a page for each command that `--help` lists.
pub fn man_pages(directory: &Path) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|error| Failure::io("make", directory, error))?;
    clap_mangen::generate_to(visible(grammar()), directory).map_err(|error| Failure::io("write to", directory, error))
}

/// Without the commands that programs of ours start.
fn visible(grammar: clap::Command) -> clap::Command {
    let names: Vec<String> = grammar
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().into())
        .collect();
    let shown: Vec<clap::Command> = names.iter().filter_map(|name| grammar.find_subcommand(name).cloned()).collect();
    let about = grammar.get_about().cloned().unwrap_or_default();
    clap::Command::new("terrace")
        .about(about)
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .subcommands(shown)
}
