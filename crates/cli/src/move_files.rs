//! `terrace flush`, `evict`, `prefetch`: moves that the user asks for.

use crate::agent_process::{self, ensure};
use crate::args::{FlushArgs, PathsArgs};
use crate::check;
use crate::control_client::{Client, Moved, lost, running};
use crate::failure::{Failure, Result, code, warn};
use crate::places::all_below_root;
use crate::progress::Progress;
use crate::resolve::resolve;
use std::path::PathBuf;
use terrace_core::control::Request;
use terrace_core::settings::Settings;
use terrace_core::size::show_bytes;

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
                ensure(&last, false)?.client
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
        println!("{done} {} files, {}", moved.files, show_bytes(moved.bytes));
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

/// Files in the tiers as the tree shows them, without an agent: (link, object).
pub fn links_into_tiers(settings: &Settings) -> Vec<(PathBuf, PathBuf)> {
    let directories = crate::list::object_directories(settings);
    let walk = walkdir::WalkDir::new(&settings.root).sort_by_file_name().into_iter().flatten();
    let link = |entry: walkdir::DirEntry| {
        let target = entry.path_is_symlink().then(|| std::fs::read_link(entry.path()).ok()).flatten()?;
        directories.iter().any(|directory| target.starts_with(directory)).then(|| (entry.into_path(), target))
    };
    walk.filter_map(link).collect()
}
