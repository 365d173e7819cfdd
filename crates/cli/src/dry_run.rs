//! `terrace run --dry-run`: what policy would do if a run made the files that are below the root now.

use crate::list::shown;
use std::collections::BTreeMap;
use terrace_core::policy::{Mode, Policy};
use terrace_core::size::show_bytes;
use terrace_tool::failure::Result;
use terrace_tool::resolve::Resolved;
use terrace_tool::table::Table;
use terrace_tool::{out, outln};

pub fn run(resolved: &Resolved) -> Result<i32> {
    let settings = &resolved.settings;
    let policy = Policy::compile(&settings.policy).map_err(terrace_core::refusal::Refusal::from)?;
    let mut room: Vec<(&str, u64)> =
        settings.tiers.iter().map(|tier| (tier.name.as_str(), tier.capacity_bytes)).collect();
    let mut quota = settings.quota_bytes.unwrap_or(u64::MAX);
    let mut table = Table::new(&["mode", "tier", ">size", "prefetch", "path"]);
    let mut modes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut tiers: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut prefetched = (0, 0);

    let is_ours = |entry: &walkdir::DirEntry| entry.depth() == 1 && entry.file_name() == ".terrace";
    let walk = walkdir::WalkDir::new(&settings.root).sort_by_file_name().into_iter();
    for entry in walk.filter_entry(|entry| !is_ours(entry)) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                terrace_tool::failure::warn(error);
                continue;
            }
        };
        // Follows a link into a tier to the file's size.
        let Ok(metadata) = entry.path().metadata() else { continue };
        if !metadata.is_file() || (entry.path_is_symlink() && !leads_to_a_tier(resolved, entry.path())) {
            continue;
        }
        let relative = entry.path().strip_prefix(&settings.root).unwrap_or(entry.path());
        let decision = policy.decide(relative);
        let size = metadata.len();
        let place = room.iter_mut().find(|(_, left)| *left >= size && quota >= size);
        let tier = match place {
            Some((name, left)) => {
                *left -= size;
                quota -= size;
                name.to_string()
            }
            None => "durable".into(),
        };
        add(modes.entry(decision.mode.as_str()).or_default(), size);
        add(tiers.entry(tier.clone()).or_default(), size);
        if decision.prefetch {
            add(&mut prefetched, size);
        }
        let prefetch = if decision.prefetch { "yes" } else { "-" };
        table.row([decision.mode.to_string(), tier, show_bytes(size), prefetch.into(), shown(relative)]);
    }
    if table.is_empty() {
        outln!("there is no file below {}", settings.root.display());
        return Ok(0);
    }
    out!("{table}");
    outln!();
    for mode in [Mode::Copy, Mode::Move, Mode::Keep, Mode::Remove] {
        if let Some((files, bytes)) = modes.get(mode.as_str()) {
            outln!("{mode}: {files} files, {}: {}", show_bytes(*bytes), crate::explain::meaning(mode));
        }
    }
    for (tier, (files, bytes)) in &tiers {
        outln!("tier `{tier}` would take {files} files, {}", show_bytes(*bytes));
    }
    if prefetched.0 > 0 {
        outln!("prefetched at the start: {} files, {}", prefetched.0, show_bytes(prefetched.1));
    }
    Ok(0)
}

fn add(total: &mut (u64, u64), size: u64) {
    total.0 += 1;
    total.1 += size;
}

fn leads_to_a_tier(resolved: &Resolved, link: &std::path::Path) -> bool {
    let directories =
        crate::places::object_directories(&terrace_tool::settings_file::last_in_force(&resolved.settings));
    std::fs::read_link(link).is_ok_and(|target| directories.iter().any(|directory| target.starts_with(directory)))
}
