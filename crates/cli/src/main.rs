//! The `terrace` program: each subcommand is a module of the same or a near name.
//!
//!   args ─▶ terrace_tool::resolve (settings) ─▶ check ─▶ agent_process / terrace_tool::control_client ─▶ what the command does
//!
//! Exit codes: the program's own for `run`, 0; 1 could not be done; 2 bad input; 74 data is not durable; 126 and 127 as in env(1).

// They panic when nobody reads; `terrace_tool::output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agent_process;
mod args;
mod bench;
mod check;
mod child;
mod config;
mod convert;
mod doctor;
mod door;
mod drain;
mod dry_run;
mod elsewhere;
mod engine;
mod explain;
mod hdf5;
mod hosts;
mod keeper;
mod launch;
mod limits;
mod list;
mod manual;
mod mounts;
mod move_files;
mod npy;
mod object_storage;
mod objects;
mod places;
mod private_mount;
mod program;
mod programs;
mod progress;
mod reach;
mod recover;
mod report;
mod run;
mod scheduler;
mod serve;
mod service;
mod shell_words;
mod signals;
mod sql;
mod step;
mod supervision;
mod watch;
mod web;

use args::Command;
use service::Service;

fn main() {
    limits::crash_only();
    let command = args::parse_from(std::env::args_os()).unwrap_or_else(|error| error.exit()).command;
    if matches!(command, Command::Service(_)) {
        limits::be_a_service();
    }
    // They serve the run's programs until the last one has ended, and the run decides when that is: a scheduler's SIGTERM, which goes
    // to every process of a job, is for the programs.
    if matches!(command, Command::Service(Service::Keep { .. } | Service::Supervise(_) | Service::View { .. })) {
        signals::ignore_termination();
    }
    if matches!(command, Command::Service(Service::Agent { .. } | Service::View { .. })) {
        limits::take_large_files();
    }
    let done = match command {
        Command::Run(args) => run::run(&args),
        Command::Join(args) => launch::join(&args),
        Command::Serve(args) => serve::serve(&args),
        Command::Web(args) => web::web(&args),
        Command::Stat(args) => objects::stat(&args),
        Command::Get(args) => objects::get(&args),
        Command::Put(args) => objects::put(&args),
        Command::Rm(args) => objects::remove(&args),
        Command::Tag(args) => objects::tag(&args),
        Command::Status(args) => list::status(&args),
        Command::Ls(args) => list::ls(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Import(args) => convert::import(&args),
        Command::Export(args) => convert::export(&args),
        Command::Flush(args) => move_files::flush(&args),
        Command::Evict(args) => move_files::evict(&args),
        Command::Prefetch(args) => move_files::prefetch(&args),
        Command::StageIn { arguments } => object_storage::stage("stage-in", &arguments),
        Command::StageOut { arguments } => object_storage::stage("stage-out", &arguments),
        Command::Recover(args) => recover::recover(&args),
        Command::Drain(args) => drain::drain(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Config(args) => config::config(&args),
        Command::Service(Service::Keep { settings, socket }) => supervision::keep(&settings, socket).map(|()| 0),
        Command::Service(Service::Supervise(args)) => supervision::supervise(args).map(|()| 0),
        Command::Service(Service::View { settings, socket }) => private_mount::view(&settings, socket).map(|()| 0),
        Command::Predict { arguments } => programs::become_program("terrace-predict", arguments),
        Command::Sql(args) => sql::sql(&args),
        Command::Savime(args) => sql::savime(&args),
        Command::Bench { arguments } => bench::bench(&arguments),
        Command::Completions { shell } => manual::completions(shell).map(|()| 0),
        Command::ManPages { directory } => manual::man_pages(&directory).map(|()| 0),
        Command::Service(Service::Agent { settings }) => engine::serve(&settings).map(|()| 0),
    };
    let code = done.unwrap_or_else(|failure| {
        failure.print();
        failure.code
    });
    std::process::exit(terrace_tool::output::finish(code));
}
