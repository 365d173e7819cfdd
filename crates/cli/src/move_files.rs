//! `terrace flush`, `evict`, `prefetch`: moves that the user asks for.

use crate::agent_process::ensure;
use crate::args::{FlushArgs, PathsArgs};
use crate::check;
use crate::elsewhere;
use crate::places::all_below_root;
use crate::progress::Progress;
use crate::reach::are_elsewhere;
use terrace_core::control::{NodeFlushed, Request, Response};
use terrace_core::settings::Settings;
use terrace_core::size::show_bytes;
use terrace_tool::control_client::{Client, Moved, lost, running, unexpected};
use terrace_tool::failure::{Failure, Result, code, warn};
use terrace_tool::outln;
use terrace_tool::resolve::resolve_here;
use terrace_tool::settings_file::last_in_force;

pub fn flush(args: &FlushArgs) -> Result<i32> {
    let settings = resolve_here(&args.settings)?.settings;
    let paths = all_below_root(&args.paths, &settings)?;
    let all = args.all || !paths.is_empty();
    let request = Request::Flush { all, paths: paths.clone(), end_of_run: false };
    let mut flushed = vec![(None, ask_an_agent(&settings, &request, "flushing", args.quiet)?)];
    let mut unreached = vec![];
    if args.all_nodes {
        for node in flush_elsewhere(&settings, &Request::FlushElsewhere { paths, all })? {
            match node.unreached {
                Some(reason) => unreached.push(format!("\n  {}: {reason}", node.node)),
                None => {
                    let NodeFlushed { files, bytes, failures, open_files, .. } = node;
                    flushed.push((Some(node.node), Moved { files, bytes, failures, open_files }));
                }
            }
        }
    } else if !args.quiet
        && let Some(words) = elsewhere::in_words(&settings)
    {
        warn(format!("{words}; `terrace flush --all-nodes` has them flushed"));
    }
    let mut failed = vec![];
    for (node, moved) in flushed {
        let beginning = node.map_or_else(|| "flushed".into(), |node| format!("node {node}: flushed"));
        failed.extend(tell_of(moved, "flushed", &beginning, args.quiet).err());
    }
    if !unreached.is_empty() {
        let nodes = format!("{} nodes could not be reached:{}", unreached.len(), unreached.concat());
        let hint =
            "what they have stays in their tiers; `terrace ls` lists it, `terrace recover` on them finds it again";
        failed.push(Failure::new(nodes).hint(hint).code(code::NOT_DURABLE));
    }
    let last = failed.pop();
    failed.iter().for_each(Failure::print);
    last.map_or(Ok(0), Err)
}

fn flush_elsewhere(settings: &Settings, request: &Request) -> Result<Vec<NodeFlushed>> {
    match an_agent(settings)?.ask(request, |_| {}).map_err(lost)? {
        Response::FlushedElsewhere { nodes } => Ok(nodes),
        other => Err(lost(unexpected(other))),
    }
}

pub fn evict(args: &PathsArgs) -> Result<i32> {
    let settings = resolve_here(&args.settings)?.settings;
    let request = Request::Evict { paths: all_below_root(&args.paths, &settings)? };
    tell(ask_an_agent(&settings, &request, "evicting", args.quiet)?, "evicted", args.quiet)
}

pub fn prefetch(args: &PathsArgs) -> Result<i32> {
    let settings = resolve_here(&args.settings)?.settings;
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

/// The agent that runs, or a new one with the settings that were last in force.
fn an_agent(settings: &Settings) -> Result<Client> {
    if let Some((client, _)) = running(settings)? {
        return Ok(client);
    }
    if are_elsewhere(settings) {
        warn(format!(
            "agents of other nodes serve {}: what they keep is theirs, and this is about what is on this node",
            settings.root.display()
        ));
    }
    let last = last_in_force(settings);
    check::settings(&last, true)?;
    ensure(&last, false)
}

/// Asks the agent that runs, or a new one with the settings that were last in force: it may have left files in its tiers.
fn ask_an_agent(settings: &Settings, request: &Request, what: &'static str, quiet: bool) -> Result<Moved> {
    let mut tries = 0;
    loop {
        tries += 1;
        let mut client = an_agent(settings)?;
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
    tell_of(moved, done, done, quiet)
}

fn tell_of(moved: Moved, done: &str, beginning: &str, quiet: bool) -> Result<i32> {
    if !quiet {
        outln!("{beginning} {} files, {}", moved.files, show_bytes(moved.bytes));
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
