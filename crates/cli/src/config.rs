//! `terrace config`: checks the settings and prints what is in force, and where each value came from.

use crate::args::ConfigArgs;
use crate::failure::Result;
use crate::list::json;
use crate::resolve::{Resolved, resolve};
use crate::table::Table;
use terrace_core::declared::{FORWARD, FORWARD_SETTINGS, SETTINGS, TIER, TIER_SETTINGS, is_list_of_tables};
use terrace_core::policy::Policy;
use terrace_core::settings::Keep;
use terrace_core::size::show_bytes;

pub fn config(args: &ConfigArgs) -> Result<i32> {
    let resolved = resolve(&args.settings)?;
    Policy::compile(&resolved.settings.policy).map_err(terrace_core::refusal::Refusal::from)?;
    crate::check::forwards(&resolved.settings)?;
    if args.json {
        let origins: serde_json::Map<String, serde_json::Value> = SETTINGS
            .iter()
            .map(|declared| (declared.key.to_owned(), resolved.wanted.origin(declared.key).into()))
            .collect();
        println!(
            "{}",
            json(
                &serde_json::json!({ "settings": resolved.settings, "door": resolved.door(), "origins": origins, "warnings": resolved.warnings })
            )
        );
        return Ok(0);
    }
    resolved.print_warnings();
    let mut table = Table::new(&["key", "value", "from"]);
    for declared in SETTINGS.iter().filter(|declared| !is_list_of_tables(declared.key)) {
        table.row([
            declared.key.into(),
            in_force(&resolved, declared.key),
            resolved.wanted.origin(declared.key).into(),
        ]);
    }
    print!("{table}");
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
    println!();
    print!("{tiers}");
    let mut forwards = Table::new(&["forward", "to", "where", "keep", "from"]);
    for rule in &resolved.settings.forwards {
        let targets: Vec<&str> = rule.targets.iter().map(|target| target.address.as_str()).collect();
        let keep = if rule.keep == Keep::None { "none" } else { "durable" };
        let origin = resolved.wanted.origin(FORWARD).into();
        forwards.row([rule.containers.join(" "), targets.join(", "), rule.conditions.join(", "), keep.into(), origin]);
    }
    if !forwards.is_empty() {
        println!();
        print!("{forwards}");
    }
    Ok(0)
}

fn in_force(resolved: &Resolved, key: &str) -> String {
    let settings = &resolved.settings;
    let list = |list: &[String]| if list.is_empty() { "-".into() } else { list.join(" ") };
    let rate = |rate: Option<u64>| rate.map_or("-".into(), |rate| format!("{}/s", show_bytes(rate)));
    match key {
        "root" => settings.root.display().to_string(),
        "door" => resolved.door().to_string(),
        "quota" => settings.quota_bytes.map_or("-".into(), show_bytes),
        "policy.flush" => list(&settings.policy.flush),
        "policy.evict" => list(&settings.policy.evict),
        "policy.prefetch" => list(&settings.policy.prefetch),
        "mover.threads" => settings.mover.threads.to_string(),
        "mover.bandwidth" => rate(settings.mover.bandwidth_bytes_s),
        "mover.settle" => format!("{}ms", settings.mover.settle_ms),
        "mover.high_watermark" => settings.mover.high_watermark.to_string(),
        "mover.low_watermark" => settings.mover.low_watermark.to_string(),
        "mover.fsync" => settings.mover.fsync.to_string(),
        "state" => settings.state.display().to_string(),
        "runtime" => settings.runtime.display().to_string(),
        "library" => settings.library.display().to_string(),
        "forward_patience" => format!("{}ms", settings.forward_patience_ms),
        _ => rate(resolved.wanted.number(key)),
    }
}

/// Every setting with its default, flag and environment name: the end of `terrace config --help`.
pub fn declarations_help() -> String {
    let mut text = String::from("Settings in terrace.toml (defaults < file < environment < flags):\n");
    for declared in SETTINGS.iter().filter(|declared| !is_list_of_tables(declared.key)) {
        let default = if declared.default.is_empty() { "none" } else { declared.default };
        text.push_str(&format!(
            "\n  {} [default: {default}]  --{}  {}\n      {}\n",
            declared.key,
            declared.flag,
            declared.env(),
            declared.doc
        ));
    }
    text.push_str("\n  [[tier]] [default: a share of /dev/shm]  --tier  TERRACE_TIER\n      Faster tiers, fast to slow. As a flag: NAME=PATH[,PATH…][:CAPACITY[:RESERVE]]. Keys of each:\n");
    for declared in &TIER_SETTINGS {
        let default =
            if declared.default.is_empty() { String::new() } else { format!(" [default: {}]", declared.default) };
        text.push_str(&format!("        {}{default}: {}\n", declared.key, declared.doc));
    }
    text.push_str("\n  [[forward]] [default: none]  --forward  TERRACE_FORWARD\n      Containers whose regions are sent to other agents. As a flag: CONTAINER=TARGET[,TARGET…] [KEY=VALUE]…. Keys of each:\n");
    for declared in &FORWARD_SETTINGS {
        let default =
            if declared.default.is_empty() { String::new() } else { format!(" [default: {}]", declared.default) };
        text.push_str(&format!("        {}{default}: {}\n", declared.key, declared.doc));
    }
    text.push_str("\nSizes: 8GiB, 500MB, 10% (of what is available). Durations: 200ms, 60s, 1h30m, HH:MM:SS. Lists in the environment are separated by `;`.");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_explained() {
        let help = declarations_help();
        for declared in &SETTINGS {
            assert!(
                help.contains(&format!("--{}", declared.flag)) && help.contains(&declared.env()),
                "{}",
                declared.key
            );
        }
    }
}
