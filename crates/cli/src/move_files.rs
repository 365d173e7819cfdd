//! `terrace flush`, `evict`, `prefetch`: moves that the user asks for.

use crate::agent_process::{self, ensure};
use crate::args::{FlushArgs, PathsArgs};
use crate::check;
use crate::control_client::{Client, Moved, lost, running};
use crate::places::all_below_root;
use crate::progress::Progress;
use terrace_core::control::Request;
use terrace_core::settings::Settings;
use terrace_core::size::show_bytes;
use terrace_tool::failure::{Failure, Result, code, warn};
use terrace_tool::outln;
use terrace_tool::resolve::resolve;

pub fn flush(args: &FlushArgs) -> Result<i32> {
    let settings = resolve(&args.settings)?.settings;
    let paths = all_below_root(&args.paths, &settings)?;
    let request = Request::Flush { all: args.all || !paths.is_empty(), paths, end_of_run: false };
    tell(ask_an_agent(&settings, &request, "flushing", args.quiet)?, "flushed", args.quiet)
}

pub fn evict(args: &PathsArgs) -> Result<i32> {
    let settings = resolve(&args.settings)?.settings;
    let request = Request::Evict { paths: all_below_root(&args.paths, &settings)? };
    tell(ask_an_agent(&settings, &request, "evicting", args.quiet)?, "evicted", args.quiet)
}

pub fn prefetch(args: &PathsArgs) -> Result<i32> {
    let settings = resolve(&args.settings)?.settings;
    let Some((mut client, _)) = running(&settings)? else {
        return Err(Failure::new(format!(
            "no agent serves {}, and replicas live only as long as one",
            settings.root.display()
        ))
        .hint("prefetch while a run is on, or let `--prefetch PATTERN` of `terrace run` do it"));
    };
    let request = Request::Prefetch { paths: all_below_root(&args.paths, &settings)? };
    tell(ask(&mut client, &request, "prefetching", args.quiet)?, "prefetched", args.quiet)
}

/// Asks the agent that runs, or a new one with the settings that were last in force: it may have left files in its tiers.
fn ask_an_agent(settings: &Settings, request: &Request, what: &'static str, quiet: bool) -> Result<Moved> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut client = match running(settings)? {
            Some((client, _)) => client,
            None => {
                let last = agent_process::in_force(settings).unwrap_or_else(|| settings.clone());
                check::settings(&last, true)?;
                ensure(&last, false)?
            }
        };
        match ask(&mut client, request, what, quiet) {
            // It was just about to end.
            Err(_) if tries < 5 && Client::connect(settings).is_err() => {}
            answered => return answered,
        }
    }
}

fn ask(client: &mut Client, request: &Request, what: &'static str, quiet: bool) -> Result<Moved> {
    let progress = Progress::new(what, quiet);
    client.move_files(request, |response| progress.show(response)).map_err(lost)
}

fn tell(moved: Moved, done: &str, quiet: bool) -> Result<i32> {
    if !quiet {
        outln!("{done} {} files, {}", moved.files, show_bytes(moved.bytes));
        for path in &moved.open_files {
            warn(format!("{} is open for writing", path.display()));
        }
    }
    if moved.failures.is_empty() {
        return Ok(0);
    }
    let lines: Vec<String> = moved.failures.iter().map(|f| format!("\n  {}: {}", f.path.display(), f.reason)).collect();
    Err(Failure::new(format!("{} files could not be {done}:{}", lines.len(), lines.concat()))
        .hint("they are safe where they are; remove the cause and try again")
        .code(if done == "flushed" { code::NOT_DURABLE } else { code::FAILED }))
}
