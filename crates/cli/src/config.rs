//! `terrace config`: checks the settings and prints what is in force, and where each value came from.

use crate::args::ConfigArgs;
use crate::door::Door;
use terrace_core::declared::{FORWARD, SETTINGS, TIER, is_list_of_tables};
use terrace_core::policy::Policy;
use terrace_core::settings::Keep;
use terrace_core::size::show_bytes;
use terrace_tool::failure::{Result, warn};
use terrace_tool::resolve::{Resolved, resolve_here};
use terrace_tool::table::Table;
use terrace_tool::table::json;
use terrace_tool::{out, outln};

pub fn config(args: &ConfigArgs) -> Result<i32> {
    let resolved = resolve_here(&args.settings)?;
    Policy::compile(&resolved.settings.policy).map_err(terrace_core::refusal::Refusal::from)?;
    crate::check::forwards(&resolved.settings)?;
    if args.json {
        let origins: serde_json::Map<String, serde_json::Value> = SETTINGS
            .iter()
            .map(|declared| (declared.key.to_owned(), resolved.wanted.origin(declared.key).into()))
            .collect();
        outln!(
            "{}",
            json(
                &serde_json::json!({ "settings": resolved.settings, "door": Door::of(&resolved), "origins": origins, "warnings": resolved.warnings })
            )
        );
        return Ok(0);
    }
    resolved.print_warnings();
    // No refusal: these may be settings for another machine.
    resolved.settings.tiers.iter().filter_map(|tier| crate::check::capacity(tier).err()).for_each(|e| warn(e.message));
    let mut table = Table::new(&["key", "value", "from"]);
    for declared in SETTINGS.iter().filter(|declared| !is_list_of_tables(declared.key)) {
        table.row([
            declared.key.into(),
            in_force(&resolved, declared.key),
            resolved.wanted.origin(declared.key).into(),
        ]);
    }
    out!("{table}");
    let mut tiers = Table::new(&["tier", ">capacity", ">reserve", "directories", "from"]);
    for tier in &resolved.settings.tiers {
        let paths: Vec<String> = tier.paths.iter().map(|path| path.display().to_string()).collect();
        tiers.row([
            tier.name.clone(),
            show_bytes(tier.capacity_bytes),
            show_bytes(tier.reserve_bytes),
            paths.join(", "),
            resolved.wanted.origin(TIER).into(),
        ]);
    }
    outln!();
    out!("{tiers}");
    let mut forwards = Table::new(&["forward", "to", "where", "keep", "from"]);
    for rule in &resolved.settings.forwards {
        let targets: Vec<&str> = rule.targets.iter().map(|target| target.address.as_str()).collect();
        let keep = if rule.keep == Keep::None { "none" } else { "durable" };
        let origin = resolved.wanted.origin(FORWARD).into();
        forwards.row([rule.containers.join(" "), targets.join(", "), rule.conditions.join(", "), keep.into(), origin]);
    }
    if !forwards.is_empty() {
        outln!();
        out!("{forwards}");
    }
    Ok(0)
}

fn in_force(resolved: &Resolved, key: &str) -> String {
    let settings = &resolved.settings;
    let list = |list: &[String]| if list.is_empty() { "-".into() } else { list.join(" ") };
    let rate = |rate: Option<u64>| rate.map_or("-".into(), |rate| format!("{}/s", show_bytes(rate)));
    match key {
        "root" => settings.root.display().to_string(),
        "door" => Door::of(resolved).to_string(),
        "directories" => settings.directories.as_str().into(),
        "small_files" => settings.small_files.as_str().into(),
        "quota" => settings.quota_bytes.map_or("-".into(), show_bytes),
        "policy.flush" => list(&settings.policy.flush),
        "policy.evict" => list(&settings.policy.evict),
        "policy.prefetch" => list(&settings.policy.prefetch),
        "stage.in" | "stage.out" => list(&resolved.wanted.list(key)),
        "stage.wait" => resolved.wanted.switch(key).unwrap_or(false).to_string(),
        "mover.threads" => settings.mover.threads.to_string(),
        "mover.bandwidth" => rate(settings.mover.bandwidth_bytes_s),
        "mover.settle" => format!("{}ms", settings.mover.settle_ms),
        "mover.high_watermark" => settings.mover.high_watermark.to_string(),
        "mover.low_watermark" => settings.mover.low_watermark.to_string(),
        "mover.fsync" => settings.mover.fsync.to_string(),
        "mover.early_copies" => settings.mover.early_copies.to_string(),
        "state" => settings.state.display().to_string(),
        "runtime" => settings.runtime.display().to_string(),
        "library" => settings.library.display().to_string(),
        "forward_patience" => format!("{}ms", settings.forward_patience_ms),
        _ => rate(resolved.wanted.number(key)),
    }
}
