//! `terrace flush`, `evict`, `prefetch`: moves that the user asks for.

use crate::agent_process::{self, ensure};
use crate::args::{FlushArgs, PathsArgs, SettingArgs};
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
    let (settings, mut client) = connect(&args.settings)?;
    let paths = all_below_root(&args.paths, &settings)?;
    let request = Request::Flush { all: args.all || !paths.is_empty(), paths, end_of_run: false };
    tell(ask(&mut client, &request, "flushing", args.quiet)?, "flushed", args.quiet)
}

pub fn evict(args: &PathsArgs) -> Result<i32> {
    let (settings, mut client) = connect(&args.settings)?;
    let request = Request::Evict { paths: all_below_root(&args.paths, &settings)? };
    tell(ask(&mut client, &request, "evicting", args.quiet)?, "evicted", args.quiet)
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

/// The agent that runs, or a new one with the settings that were last in force: it may have left files in its tiers.
fn connect(args: &SettingArgs) -> Result<(Settings, Client)> {
    let resolved = resolve(args)?;
    if let Some((client, _)) = running(&resolved.settings)? {
        return Ok((resolved.settings, client));
    }
    let settings = agent_process::in_force(&resolved.settings).unwrap_or_else(|| resolved.settings.clone());
    check::settings(&settings, true)?;
    let client = ensure(&settings, false)?.client;
    agent_process::tidy(&settings);
    Ok((resolved.settings, client))
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
