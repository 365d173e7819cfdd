//! `terrace explain PATH`: which rule decides, what happens to the file, where it would be placed, where it is now.

use crate::args::PathArgs;
use crate::places::{below_root, object_directories};
use terrace_core::control::{Request, Response, Status};
use terrace_core::policy::{Decision, Mode, Policy};
use terrace_core::settings::Settings;
use terrace_core::size::show_bytes;
use terrace_tool::control_client::running;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::outln;
use terrace_tool::resolve::resolve_here;
use terrace_tool::settings_file::last_in_force;
use terrace_tool::table::json;

pub fn explain(args: &PathArgs) -> Result<i32> {
    let resolved = resolve_here(&args.settings)?;
    let agent = running(&resolved.settings)?;
    let settings = match &agent {
        Some(_) => last_in_force(&resolved.settings),
        None => resolved.settings.clone(),
    };
    let path = below_root(&args.path, &settings)?;
    let relative = path.strip_prefix(&settings.root).unwrap_or(&path);
    if relative.as_os_str().is_empty() {
        return Err(Failure::bad_input("policy is about files, this is the root itself", "name a file below it"));
    }
    let policy = Policy::compile(&settings.policy).map_err(terrace_core::refusal::Refusal::from)?;
    let decision = policy.decide(relative);
    let (now, status) = match agent {
        Some((mut client, status)) => {
            let listed = client.ask(&Request::List { prefix: Some(path.clone()) }, |_| {}).ok();
            let entry = match listed {
                Some(Response::Files { files }) => files.into_iter().find(|file| file.path == path),
                _ => None,
            };
            (
                entry.map(|file| match file.state.as_str() {
                    "directory" => format!("a placed directory in tier `{}`, {}", file.tier, show_bytes(file.size)),
                    _ => format!("in tier `{}`, {}, {}", file.tier, file.state, show_bytes(file.size)),
                }),
                Some(status),
            )
        }
        None => (None, None),
    };
    let now = now.unwrap_or_else(|| seen_in_tree(&path, &settings));
    let (tier, reason) = placement(&settings, status.as_ref());
    if args.json {
        outln!(
            "{}",
            json(&serde_json::json!({
                "path": path.to_string_lossy(), "mode": decision.mode, "rule": decision.rule, "prefetch": decision.prefetch,
                "tier": tier, "placement": reason, "now": now, "agent": status.is_some(),
            }))
        );
        return Ok(0);
    }
    outln!("{}", relative.display());
    outln!("  mode      {}: {}", decision.mode, meaning(decision.mode));
    outln!("  rule      {}", rule(&decision));
    outln!("  prefetch  {}", if decision.prefetch { "yes: brought up at the start of a run" } else { "no" });
    outln!("  placed in {tier}: {reason}");
    if settings.directories.places(&policy, relative) {
        let does = if policy.drops_all_below(relative) { "drops" } else { "flushes" };
        outln!(
            "  directory placed as a whole if a program makes one of this name: policy {does} all that may be in it"
        );
    }
    if settings.small_files.learns(&policy) {
        outln!("  small     made in the root, by a program that was seen to make small files with this suffix");
    }
    outln!("  now       {now}");
    Ok(0)
}

fn rule(decision: &Decision) -> String {
    decision.rule.clone().unwrap_or_else(|| "none matches, so it is neither flushed nor evicted".into())
}

pub fn meaning(mode: Mode) -> &'static str {
    match mode {
        Mode::Keep => "stays in its tier, is not made durable",
        Mode::Copy => "made durable soon after it is closed; a replica stays in its tier while there is room",
        Mode::Remove => "dropped at the end of the run, never made durable",
        Mode::Move => "made durable soon after it is closed, then dropped from its tier",
    }
}

/// The tier that a new file gets now.
fn placement(settings: &Settings, status: Option<&Status>) -> (String, String) {
    let used = |name: &str| {
        let tier = status?.tiers.iter().find(|tier| tier.name == name)?;
        Some((tier.used_bytes, tier.capacity_bytes))
    };
    for tier in &settings.tiers {
        let (used, capacity) = used(&tier.name).unwrap_or((0, tier.capacity_bytes));
        if used < capacity {
            return (tier.name.clone(), format!("the fastest tier with room, {} free", show_bytes(capacity - used)));
        }
    }
    ("durable".into(), "all faster tiers are full".into())
}

/// A link of ours.
fn is_object(path: &std::path::Path, settings: &Settings) -> bool {
    std::fs::read_link(path).is_ok_and(|target| object_directories(settings).iter().any(|dir| target.starts_with(dir)))
}

fn seen_in_tree(path: &std::path::Path, settings: &Settings) -> String {
    // All below a directory would be looked at.
    let of_others = if path.is_dir() { vec![] } else { crate::elsewhere::files(settings, Some(path)) };
    if let Some(file) = of_others.into_iter().find(|file| file.path == path) {
        return match file.is_lost {
            _ if file.is_gone => format!("lost: it was in a tier of node {}, which was declared gone", file.whose),
            true => format!("lost: it was in the memory of node {}, which was started again since", file.whose),
            false => format!(
                "in a tier of node {}: programs of a run find it, others don't until it is flushed there",
                file.whose
            ),
        };
    }
    match path.symlink_metadata() {
        Err(_) => "does not exist".into(),
        Ok(found) if found.is_dir() => "a directory of the root itself".into(),
        Ok(found) if found.is_symlink() && path.is_dir() && is_object(path, settings) => {
            "a placed directory: all that is in it lies in a tier".into()
        }
        Ok(found) if found.is_symlink() => match std::fs::read_link(path) {
            Ok(target) => format!("a link to {}", target.display()),
            Err(error) => format!("a link that can't be read: {error}"),
        },
        Ok(found) => format!("durable, in the root, {}", show_bytes(found.len())),
    }
}
