//! `terrace status` and `terrace ls`: what an agent does, and where files are.

use crate::args::{ListArgs, StatusArgs};
use crate::places::{below_root, directories_of, links_into_tiers};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_core::control::{FileEntry, Request, Response, Status};
use terrace_core::policy::Policy;
use terrace_core::settings::Settings;
use terrace_core::size::{show_bytes, show_seconds};
use terrace_tool::control_client::{lost, running, unexpected};
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::resolve::resolve_here;
use terrace_tool::settings_file::last_in_force;
use terrace_tool::table::{Table, json};
use terrace_tool::{out, outln};

pub fn status(args: &StatusArgs) -> Result<i32> {
    let settings = resolve_here(&args.settings)?.settings;
    let has_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.watch && !args.json && has_terminal && running(&settings)?.is_some() {
        crate::watch::watch(&settings)?;
        return Ok(0);
    }
    let mut seen = false;
    loop {
        let Some((_, status)) = running(&settings)? else {
            if seen {
                return Ok(0);
            }
            return no_agent(&settings, args.json);
        };
        seen = true;
        if args.json {
            outln!("{}", json(&Shown { status: Some(&status), elsewhere: files_elsewhere(&settings) }));
        } else {
            print_status(&status);
            if let Some(words) = crate::elsewhere::in_words(&settings) {
                outln!("{words}");
            }
        }
        if !args.watch || terrace_tool::output::is_over() {
            return Ok(0);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// What `status --json` prints: the agent's own, and the files that are on other nodes.
#[derive(serde::Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: Option<&'a Status>,
    elsewhere: Vec<crate::elsewhere::Elsewhere>,
}

fn files_elsewhere(settings: &Settings) -> Vec<crate::elsewhere::Elsewhere> {
    match crate::elsewhere::nodes(settings).is_empty() {
        true => vec![],
        false => crate::elsewhere::files(settings, None),
    }
}

fn no_agent(settings: &Settings, as_json: bool) -> Result<i32> {
    // Of several, those that are on other nodes.
    let agents: Vec<String> = terrace_client::agents_of(&settings.root)
        .ok()
        .flatten()
        .unwrap_or_default()
        .into_iter()
        .map(|agent| agent.address)
        .collect();
    if as_json {
        outln!(
            "{}",
            json(&serde_json::json!({
                "running": false, "root": settings.root.to_string_lossy(), "agents": agents, "elsewhere": files_elsewhere(settings),
            }))
        );
        return Ok(code::FAILED);
    }
    let elsewhere = crate::elsewhere::in_words(settings).map_or(String::new(), |words| format!("\n  {words}"));
    let root = settings.root.display();
    if !agents.is_empty() {
        let told =
            format!("no agent of this node serves {root}; {} of others do, at {}", agents.len(), agents.join(", "));
        return Err(Failure::new(told + &elsewhere).hint("ask on a node of theirs; programs reach them from here, too"));
    }
    Err(Failure::new(format!("no agent serves {root}{elsewhere}"))
        .hint("one runs as long as a `terrace run` there does; `terrace ls` shows what the tiers still hold"))
}

fn print_status(status: &Status) {
    outln!("agent {} serves {} for {}", status.agent_pid, status.root.display(), show_seconds(status.uptime_s));
    let mut tiers = Table::new(&["tier", ">used", ">capacity", ">files", "directories"]);
    for tier in &status.tiers {
        let paths: Vec<String> = tier.paths.iter().map(|path| path.display().to_string()).collect();
        let (used, capacity) = match tier.durable {
            true => ("-".into(), "-".into()),
            false => (show_bytes(tier.used_bytes), show_bytes(tier.capacity_bytes)),
        };
        tiers.row([tier.name.clone(), used, capacity, tier.files.to_string(), paths.join(", ")]);
    }
    out!("{tiers}");
    outln!("to be flushed: {} files, {}", status.unflushed_files, show_bytes(status.unflushed_bytes));
    let counters = &status.counters;
    outln!(
        "so far: flushed {} files ({}), evicted {}, prefetched {}, moved down while open {}, removed {}",
        counters.flushed_files,
        show_bytes(counters.flushed_bytes),
        counters.evicted_files,
        counters.prefetched_files,
        counters.moved_live_files,
        counters.removed_files
    );
    outln!(
        "opens: {} in a faster tier, {} in the durable one; new files: {} and {}{}",
        counters.opens_tier,
        counters.opens_durable,
        counters.creates_tier,
        counters.creates_durable,
        match counters.creates_small {
            0 => String::new(),
            small => format!(", {small} of these because they are small"),
        }
    );
    print_staging(status);
    for run in &status.runs {
        outln!("run {} (process {}) for {}: {}", run.run, run.pid, show_seconds(run.elapsed_s), run.command.join(" "));
    }
    for path in &status.moving {
        outln!("moving: {}", path.display());
    }
    for failure in &status.failures {
        outln!("failed: {}: {}", failure.path.display(), failure.reason);
    }
    for warning in &status.warnings {
        outln!("warning: {warning}");
    }
}

/// Containers with their steps, and how far each agent is that they are forwarded to.
fn print_staging(status: &Status) {
    let named = |container: &str| if container.is_empty() { ".".to_owned() } else { shown(Path::new(container)) };
    let mut containers = Table::new(&["container", ">arrays", ">steps", ">begun", ">staged", ">regions"]);
    for found in &status.containers {
        containers.row([
            named(&found.container),
            found.arrays.to_string(),
            found.steps.map_or("-".into(), |steps| steps.to_string()),
            found.steps_begun.to_string(),
            show_bytes(found.staged_bytes),
            found.staged_regions.to_string(),
        ]);
    }
    if !containers.is_empty() {
        out!("{containers}");
    }
    let mut forwards = Table::new(&["forward", "to", "state", ">queued", ">lag", ">rate", ">sent"]);
    for line in &status.forwards {
        forwards.row([
            named(&line.container),
            line.target.clone(),
            line.state.clone(),
            show_bytes(line.queued_bytes),
            show_seconds(line.lag_s),
            format!("{}/s", show_bytes(line.bytes_s as u64)),
            show_bytes(line.sent_bytes),
        ]);
    }
    if !forwards.is_empty() {
        out!("{forwards}");
    }
    let mut told = vec![];
    for line in &status.forwards {
        if let Some(reason) = line.reason.as_ref().filter(|reason| !told.contains(*reason)) {
            outln!("forward to {}: {reason}", line.target);
            told.push(reason.clone());
        }
    }
}

pub fn ls(args: &ListArgs) -> Result<i32> {
    let settings = resolve_here(&args.settings)?.settings;
    let prefix = args.path.as_deref().map(|path| below_root(path, &settings)).transpose()?;
    let mut files = match running(&settings)? {
        Some((mut client, _)) => match client.ask(&Request::List { prefix: prefix.clone() }, |_| {}).map_err(lost)? {
            Response::Files { files } => files,
            other => return Err(lost(unexpected(other))),
        },
        None => left_in_tiers(&settings, prefix.as_deref())?,
    };
    if !crate::elsewhere::nodes(&settings).is_empty() {
        files.extend(crate::elsewhere::files(&settings, prefix.as_deref()).into_iter().map(of_another_node));
    }
    if args.json {
        outln!("{}", json(&files));
        return Ok(0);
    }
    let mut table = Table::new(&["tier", "state", "mode", ">size", "path"]);
    for file in &files {
        let path = file.path.strip_prefix(&settings.root).unwrap_or(&file.path);
        let state = if file.open_for_writing { format!("{}, being written", file.state) } else { file.state.clone() };
        // Their node knows how large they are, and what becomes of them.
        let is_known = file.state != "elsewhere";
        let (mode, size) = match is_known {
            true => (file.mode.to_string(), show_bytes(file.size)),
            false => ("-".into(), "-".into()),
        };
        table.row([file.tier.clone(), state, mode, size, shown(path)]);
    }
    match table.is_empty() {
        true => outln!("no file below {} is in a faster tier", prefix.unwrap_or(settings.root).display()),
        false => out!("{table}"),
    }
    Ok(0)
}

fn of_another_node(file: crate::elsewhere::Elsewhere) -> FileEntry {
    FileEntry {
        tier: format!("node {}", file.whose),
        state: if file.is_lost || file.is_gone { "lost" } else { "elsewhere" }.into(),
        mode: terrace_core::policy::Mode::Copy,
        size: 0,
        open_for_writing: false,
        path: file.path,
    }
}

/// Names with control characters would mix up a table or a terminal.
pub fn shown(path: &Path) -> String {
    path.display().to_string().chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// What the tree says when no agent runs.
fn left_in_tiers(settings: &Settings, prefix: Option<&Path>) -> Result<Vec<FileEntry>> {
    let settings = last_in_force(settings);
    let policy = Policy::compile(&settings.policy).map_err(terrace_core::refusal::Refusal::from)?;
    let entry = |(path, object): (PathBuf, PathBuf)| {
        let tier = settings
            .tiers
            .iter()
            .find(|tier| directories_of(&settings, &tier.paths).any(|dir| object.starts_with(dir)));
        let size = object.metadata().ok().map(|metadata| metadata.len());
        FileEntry {
            mode: policy.mode(path.strip_prefix(&settings.root).unwrap_or(&path)),
            tier: tier.map_or_else(String::new, |tier| tier.name.clone()),
            state: if size.is_some() { "current" } else { "lost" }.into(),
            size: size.unwrap_or(0),
            open_for_writing: false,
            path,
        }
    };
    let links = links_into_tiers(&settings).into_iter();
    Ok(links.filter(|(path, _)| prefix.is_none_or(|prefix| path.starts_with(prefix))).map(entry).collect())
}
