//! The commands by which a run starts its own service processes. People don't type them, and each run starts several: they are
//! looked for before the whole grammar is made, which takes as long as the rest of a service's start.

use clap::{Args, FromArgMatches, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub enum Service {
    /// Serve a root's tiers (started by `run`)
    #[command(hide = true)]
    Agent {
        #[arg(long)]
        settings: PathBuf,
    },
    /// Keep a supervisor at work while a run's programs live (started by `run`)
    #[command(hide = true)]
    Keep {
        #[arg(long)]
        settings: PathBuf,
        #[arg(long)]
        socket: i32,
    },
    /// Serve a run's private mount (started by `run --mount`)
    #[command(hide = true)]
    View {
        #[arg(long)]
        settings: PathBuf,
        #[arg(long)]
        socket: i32,
    },
    /// Answer a run's programs' calls (started by `keep`)
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

/// Descriptors by their numbers.
#[derive(Args, Debug)]
pub struct SuperviseArgs {
    #[arg(long)]
    pub library: PathBuf,
    #[arg(long)]
    pub index: PathBuf,
    #[arg(long)]
    pub listener: i32,
    #[arg(long)]
    pub board: i32,
    #[arg(long)]
    pub socket: i32,
}

/// `None`: these words are for the whole grammar, which also says what is wrong with them.
pub fn parse(words: &[OsString]) -> Option<Service> {
    if !Service::has_subcommand(words.get(1)?.to_str()?) {
        return None;
    }
    let matches = Service::augment_subcommands(clap::Command::new("terrace")).try_get_matches_from(words).ok()?;
    Service::from_arg_matches(&matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Option<Service> {
        parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn only_whole_commands_of_services_are_taken() {
        let keep = parsed(&["terrace", "keep", "--settings", "/s", "--socket", "5"]);
        assert!(matches!(keep, Some(Service::Keep { socket: 5, .. })), "{keep:?}");
        assert!(matches!(parsed(&["terrace", "agent", "--settings", "/s"]), Some(Service::Agent { .. })));
        for words in
            [&["terrace"][..], &["terrace", "run", "agent"], &["terrace", "agent"], &["terrace", "keep", "--help"]]
        {
            assert!(parsed(words).is_none(), "{words:?}");
        }
    }
}
