//! `terrace recover`: makes durable what a dead agent left, and names what is lost.

use crate::args::RecoverArgs;
use crate::check;
use crate::places::links_into_tiers;
use crate::progress::Progress;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_core::control::Request;
use terrace_core::settings::Settings;
use terrace_tool::control_client::{lost, running};
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::outln;
use terrace_tool::resolve::resolve_here;
use terrace_tool::settings_file::in_force;
use terrace_tool::table::json;

/// How long an agent may take to begin or to end.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn recover(args: &RecoverArgs) -> Result<i32> {
    let resolved = resolve_here(&args.settings)?;
    check::root(&resolved.settings.root)?;
    if !args.node_is_gone.is_empty() {
        return declare_gone(args, &resolved.settings);
    }
    let begun = Instant::now();
    loop {
        if let Some((mut client, status)) = running(&resolved.settings)? {
            return flush_running(args, &mut client, status.agent_pid);
        }
        if let Some(code) = recover_alone(args, &resolved.settings)? {
            return Ok(code);
        }
        // An agent that listens no more, or not yet.
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(format!(
                "an agent holds {} and does not answer",
                resolved.settings.root.display()
            ))
            .hint("wait until it has ended, or end it; nothing is lost by that"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `None`: an agent was there first.
pub fn recover_alone(args: &RecoverArgs, wanted: &Settings) -> Result<Option<i32>> {
    // Where the dead agent had its tiers; those of now may be others.
    let settings = match in_force(wanted) {
        Some(last) => Settings { library: wanted.library.clone(), ..last },
        None => wanted.clone(),
    };
    for directory in [&settings.state, &settings.runtime] {
        std::fs::create_dir_all(directory).map_err(|error| Failure::io("make the directory", directory, error))?;
    }
    let Some(mut report) = crate::engine::recover(&settings)? else { return Ok(None) };
    // After a restart of the node nothing tells that there were files, but the links that they left.
    for (path, object) in links_into_tiers(&settings) {
        if !object.exists() && !report.lost.iter().any(|(lost, _)| *lost == path) {
            report.lost.push((path, format!("its tier no longer has {}", object.display())));
        }
    }
    tell(args, &settings, &report);
    if let Some(words) = crate::elsewhere::in_words(&settings).filter(|_| !args.json) {
        outln!("{words}");
    }
    let listed = |files: Vec<(&Path, &str)>| -> String {
        files.iter().map(|(path, reason)| format!("\n  {}: {reason}", path.display())).collect()
    };
    if !report.failures.is_empty() {
        let lines =
            listed(report.failures.iter().map(|failure| (failure.path.as_path(), failure.reason.as_str())).collect());
        return Err(Failure::new(format!("{} files could not be made durable:{lines}", report.failures.len()))
            .hint("they are safe in their tier; remove the cause (free space, permissions) and recover again")
            .code(code::NOT_DURABLE));
    }
    if !report.lost.is_empty() {
        let lines = listed(report.lost.iter().map(|(path, reason)| (path.as_path(), reason.as_str())).collect());
        return Err(Failure::new(format!("{} files are lost:{lines}", report.lost.len())).hint(
            "if their tier is only not mounted, mount it and recover again; else remove the links that they left",
        ));
    }
    Ok(Some(0))
}

fn texts(paths: &[PathBuf]) -> Vec<String> {
    paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
}

fn tell(args: &RecoverArgs, settings: &Settings, report: &terrace_agent::RecoverReport) {
    let pair = |path: &Path, reason: &str| serde_json::json!({ "path": path.to_string_lossy(), "reason": reason });
    if args.json {
        let lost: Vec<_> = report.lost.iter().map(|(path, reason)| pair(path, reason)).collect();
        let failures: Vec<_> = report.failures.iter().map(|failure| pair(&failure.path, &failure.reason)).collect();
        outln!(
            "{}",
            json(&serde_json::json!({
                "root": settings.root.to_string_lossy(),
                "flushed": texts(&report.flushed), "kept": texts(&report.kept), "restored": texts(&report.restored),
                "discarded_temporaries": report.discarded_temporaries, "discarded_objects": report.discarded_objects,
                "lost": lost, "failures": failures,
            }))
        );
        return;
    }
    outln!(
        "{}: {} files made durable; {} unfinished copies and {} files without a name removed",
        settings.root.display(),
        report.flushed.len(),
        report.discarded_temporaries,
        report.discarded_objects
    );
    for (what, paths) in [
        ("durable", &report.flushed),
        ("kept in its tier, as policy says", &report.kept),
        ("back in its last durable version, for its tier is gone", &report.restored),
    ] {
        paths.iter().for_each(|path| outln!("  {}: {what}", path.display()));
    }
}

/// Other nodes' files; this node's own are not touched.
fn declare_gone(args: &RecoverArgs, settings: &Settings) -> Result<i32> {
    let (mut nodes, mut restored, mut lost, mut unread) = (vec![], vec![], vec![], vec![]);
    for name in &args.node_is_gone {
        let declared = terrace_agent::declare_gone(settings, name)?;
        nodes.extend(declared.nodes);
        restored.extend(declared.restored);
        lost.extend(declared.lost);
        unread.extend(declared.unread);
    }
    if args.json {
        outln!(
            "{}",
            json(&serde_json::json!({
                "root": settings.root.to_string_lossy(),
                "gone": nodes.iter().map(|node| serde_json::json!({ "tag": node.tag, "host": node.host })).collect::<Vec<_>>(),
                "restored": texts(&restored), "lost": texts(&lost), "unread": texts(&unread),
            }))
        );
    } else {
        for node in &nodes {
            outln!("{}: node {} ({}) is declared gone", settings.root.display(), node.host, node.tag);
        }
        restored.iter().for_each(|path| outln!("  {}: back in its last durable version", path.display()));
    }
    let listed = |paths: &[PathBuf]| -> String { paths.iter().map(|path| format!("\n  {}", path.display())).collect() };
    if !unread.is_empty() {
        return Err(Failure::new(format!("{} directories can't be read:{}", unread.len(), listed(&unread)))
            .hint("files in them are as they were; make them readable, and say it again"));
    }
    if !lost.is_empty() {
        let what = format!("{} files and directories are lost with their node:{}", lost.len(), listed(&lost));
        return Err(Failure::new(what).hint(
            "their links stay, and lead to them again if the node comes back with its disks; if it never does, remove them",
        ));
    }
    Ok(0)
}

fn flush_running(args: &RecoverArgs, client: &mut terrace_tool::control_client::Client, agent_pid: u32) -> Result<i32> {
    let progress = Progress::new("flushing", args.json);
    let request = Request::Flush { paths: vec![], all: false, end_of_run: false };
    let moved = client.move_files(&request, |response| progress.show(response)).map_err(lost)?;
    drop(progress);
    if args.json {
        outln!(
            "{}",
            json(&serde_json::json!({ "agent": agent_pid, "flushed": moved.files, "failures": moved.failures }))
        );
    } else {
        outln!("the agent (process {agent_pid}) lives and owns these files; it flushed {} of them now", moved.files);
    }
    match moved.failures.is_empty() {
        true => Ok(0),
        false => {
            let lines: Vec<String> =
                moved.failures.iter().map(|f| format!("\n  {}: {}", f.path.display(), f.reason)).collect();
            Err(Failure::new(format!("{} files could not be made durable:{}", lines.len(), lines.concat()))
                .code(code::NOT_DURABLE))
        }
    }
}
