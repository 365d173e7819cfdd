//! Flags that set a setting, as every command has them. They are named in `terrace_core::declared`; a test compares the two.

use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use terrace_core::declared::{FORWARD_SETTINGS, SETTINGS, TIER_SETTINGS, is_list_of_tables};
use terrace_core::refusal::Refusal;
use terrace_core::wanted::Wanted;

/// Flags that override terrace.toml and the environment.
#[derive(Args, Debug, Default, Clone)]
pub struct SettingArgs {
    /// Read this file instead of ./terrace.toml or ROOT/terrace.toml
    #[arg(long, value_name = "FILE", env = "TERRACE_CONFIG", help_heading = "Settings")]
    pub config: Option<PathBuf>,
    /// Read a Sea configuration (sea.ini, with its lists beside it)
    #[arg(long, value_name = "SEA.INI", conflicts_with = "config", help_heading = "Settings")]
    pub sea: Option<PathBuf>,
    /// Directory to accelerate [default: the current directory]
    #[arg(long, value_name = "DIR", help_heading = "Settings")]
    pub root: Option<OsString>,
    /// Faster tier, fastest first: NAME=PATH[,PATH…][:CAPACITY[:RESERVE]] (repeatable)
    #[arg(long, value_name = "TIER", help_heading = "Settings")]
    pub tier: Vec<String>,
    /// Flush files that match this pattern (repeatable; replaces the list in terrace.toml)
    #[arg(long, value_name = "PATTERN", help_heading = "Settings")]
    pub flush: Vec<String>,
    /// Evict files that match this pattern from the faster tiers (repeatable)
    #[arg(long, value_name = "PATTERN", help_heading = "Settings")]
    pub evict: Vec<String>,
    /// Copy files that match this pattern to the faster tiers at start (repeatable)
    #[arg(long, value_name = "PATTERN", help_heading = "Settings")]
    pub prefetch: Vec<String>,
    /// Limit for all faster tiers together
    #[arg(long, value_name = "SIZE", help_heading = "Settings")]
    pub quota: Option<String>,
    /// How to intercept programs: both, preload or supervise
    #[arg(long, value_name = "DOOR", help_heading = "Settings")]
    pub door: Option<String>,
    /// Place whole directories that programs make: off, scratch (those in which policy drops every file), or all (also those in which it flushes every file)
    #[arg(long, value_name = "WHICH", help_heading = "Settings")]
    pub directories: Option<String>,
    /// Where small files are made: learn (in the root, by programs that were seen to make many) or place (in a tier)
    #[arg(long, value_name = "WHERE", help_heading = "Settings")]
    pub small_files: Option<String>,
    /// Files to move in parallel
    #[arg(long, value_name = "N", help_heading = "Settings")]
    pub threads: Option<String>,
    /// Bandwidth limit for flushes to the root
    #[arg(long, value_name = "RATE", help_heading = "Settings")]
    pub bandwidth: Option<String>,
    /// Delay between a file's close and its flush
    #[arg(long, value_name = "DURATION", help_heading = "Settings")]
    pub settle: Option<String>,
    /// Start eviction at this fraction of a tier's capacity
    #[arg(long, value_name = "PART", help_heading = "Settings")]
    pub high_watermark: Option<String>,
    /// Stop eviction at this fraction of a tier's capacity
    #[arg(long, value_name = "PART", help_heading = "Settings")]
    pub low_watermark: Option<String>,
    /// Sync each flushed file before committing it
    #[arg(long, value_name = "BOOL", help_heading = "Settings")]
    pub fsync: Option<String>,
    /// Copy what is written of a large file before it is closed
    #[arg(long, value_name = "BOOL", help_heading = "Settings")]
    pub early_copies: Option<String>,
    /// Read bandwidth of the root's storage (for predictions)
    #[arg(long, value_name = "RATE", help_heading = "Settings")]
    pub model_read_bandwidth: Option<String>,
    /// Write bandwidth of the root's storage (for predictions)
    #[arg(long, value_name = "RATE", help_heading = "Settings")]
    pub model_write_bandwidth: Option<String>,
    /// Directory for the journal and the agent's log
    #[arg(long, value_name = "DIR", help_heading = "Settings")]
    pub state: Option<String>,
    /// Directory for the shared index and the sockets
    #[arg(long, value_name = "DIR", help_heading = "Settings")]
    pub runtime: Option<String>,
    /// Preload library to use
    #[arg(long, value_name = "FILE", help_heading = "Settings")]
    pub library: Option<String>,
    /// Forward regions of a container to other agents: CONTAINER=TARGET[,TARGET…] token_file=FILE [KEY=VALUE]…
    #[arg(long, value_name = "RULE", help_heading = "Settings")]
    pub forward: Vec<String>,
    /// How long to wait for unreachable targets at the end
    #[arg(long, value_name = "DURATION", help_heading = "Settings")]
    pub forward_patience: Option<String>,
}

impl SettingArgs {
    /// Puts the given flags over what is there. `root` is not text only, so the resolver takes it.
    pub fn put(&self, wanted: &mut Wanted) -> Result<(), Refusal> {
        let lists = [
            ("tier", &self.tier),
            ("forward", &self.forward),
            ("policy.flush", &self.flush),
            ("policy.evict", &self.evict),
            ("policy.prefetch", &self.prefetch),
        ];
        for (key, texts) in lists.into_iter().filter(|(_, texts)| !texts.is_empty()) {
            wanted.put_flag(key, texts)?;
        }
        let singles = [
            ("quota", &self.quota),
            ("door", &self.door),
            ("directories", &self.directories),
            ("small_files", &self.small_files),
            ("mover.threads", &self.threads),
            ("mover.bandwidth", &self.bandwidth),
            ("mover.settle", &self.settle),
            ("mover.high_watermark", &self.high_watermark),
            ("mover.low_watermark", &self.low_watermark),
            ("mover.fsync", &self.fsync),
            ("mover.early_copies", &self.early_copies),
            ("model.read_bandwidth", &self.model_read_bandwidth),
            ("model.write_bandwidth", &self.model_write_bandwidth),
            ("state", &self.state),
            ("runtime", &self.runtime),
            ("library", &self.library),
            ("forward_patience", &self.forward_patience),
        ];
        for (key, text) in singles {
            if let Some(text) = text {
                wanted.put_flag(key, std::slice::from_ref(text))?;
            }
        }
        Ok(())
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
