//! Which settings of a run an agent can't keep, because it works by others.
//!
//! Settings belong to the run: what becomes of a file is what the run that made it says. An agent works by one set of them, so
//! runs share an agent when they say the same, and the difference is told by name when they don't.
//!
//! What does not count: other spellings of the root, and the preload library, which change no file; nor that somebody does not
//! ask for what the agent does besides (listen for clients elsewhere, forward). Sizes count as they were given: `50%` is the same
//! wish at another moment.

use crate::settings::{MoverSettings, Settings, TierSettings};
use std::fmt::{self, Debug, Display};

/// A setting, as the agent has it and as it was wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    pub key: &'static str,
    pub in_force: String,
    pub wanted: String,
}

impl Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, wanted: {})", self.key, self.in_force, self.wanted)
    }
}

/// `reserve` and `capacity` of a tier, in `Settings::sizes_as_given`.
pub fn size_key(tier: &str, what: &str) -> String {
    format!("tier.{tier}.{what}")
}

impl Settings {
    /// What `wanted` says otherwise than these settings, which are in force.
    pub fn contradictions(&self, wanted: &Settings) -> Vec<Contradiction> {
        let mut found = vec![];
        let mut compare = |key: &'static str, in_force: String, wanted: String| {
            if in_force != wanted {
                found.push(Contradiction { key, in_force, wanted });
            }
        };
        compare("tier", self.tiers_in_words(), wanted.tiers_in_words());
        compare("quota", self.quota_in_words(), wanted.quota_in_words());
        compare("directories", self.directories.as_str().into(), wanted.directories.as_str().into());
        compare("small_files", self.small_files.as_str().into(), wanted.small_files.as_str().into());
        let (before, now) = (&self.policy, &wanted.policy);
        for (key, before, now) in [
            ("policy.flush", &before.flush, &now.flush),
            ("policy.evict", &before.evict, &now.evict),
            ("policy.prefetch", &before.prefetch, &now.prefetch),
        ] {
            compare(key, format!("{before:?}"), format!("{now:?}"));
        }
        for ((key, before), (_, now)) in mover_in_words(&self.mover).into_iter().zip(mover_in_words(&wanted.mover)) {
            compare(key, before, now);
        }
        let plain = |value: &dyn Debug| format!("{value:?}");
        if !wanted.forwards.is_empty() {
            compare("forward", plain(&self.forwards), plain(&wanted.forwards));
            compare("forward_patience", self.forward_patience_ms.to_string(), wanted.forward_patience_ms.to_string());
        }
        if wanted.listen.is_some() {
            compare("listen", plain(&self.listen), plain(&wanted.listen));
        }
        compare("member", plain(&self.member), plain(&wanted.member));
        found
    }

    fn size_in_words(&self, key: &str, bytes: u64) -> String {
        self.sizes_as_given.get(key).cloned().unwrap_or_else(|| format!("{bytes} B"))
    }

    fn tiers_in_words(&self) -> String {
        let tier = |tier: &TierSettings| {
            let paths: Vec<String> = tier.paths.iter().map(|path| path.display().to_string()).collect();
            let capacity = self.size_in_words(&size_key(&tier.name, "capacity"), tier.capacity_bytes);
            let reserve = self.size_in_words(&size_key(&tier.name, "reserve"), tier.reserve_bytes);
            let reserve = if tier.reserve_bytes == 0 { String::new() } else { format!(" less {reserve}") };
            format!("{}={}:{capacity}{reserve}", tier.name, paths.join(","))
        };
        let tiers: Vec<String> = self.tiers.iter().map(tier).collect();
        if tiers.is_empty() { "none".into() } else { tiers.join(" ") }
    }

    fn quota_in_words(&self) -> String {
        self.quota_bytes.map_or("none".into(), |bytes| self.size_in_words("quota", bytes))
    }
}

fn mover_in_words(mover: &MoverSettings) -> [(&'static str, String); 7] {
    [
        ("mover.threads", mover.threads.to_string()),
        ("mover.bandwidth", mover.bandwidth_bytes_s.map_or("none".into(), |bytes| format!("{bytes} B/s"))),
        ("mover.settle", format!("{} ms", mover.settle_ms)),
        ("mover.high_watermark", mover.high_watermark.to_string()),
        ("mover.low_watermark", mover.low_watermark.to_string()),
        ("mover.fsync", mover.fsync.to_string()),
        ("mover.early_copies", mover.early_copies.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(capacity_bytes: u64, as_given: &str) -> Settings {
        let tier =
            TierSettings { name: "ram".into(), paths: vec!["/dev/shm".into()], capacity_bytes, reserve_bytes: 0 };
        let mut settings = Settings::new("/lustre/me".into(), vec![tier], 7, "/lib/x.so".into());
        settings.sizes_as_given.insert(size_key("ram", "capacity"), as_given.into());
        settings
    }

    #[test]
    fn the_same_wish_at_another_moment_is_no_contradiction() {
        let (before, now) = (settings(100, "50%"), settings(90, "50%"));
        assert_eq!(before.contradictions(&now), []);
        let found = before.contradictions(&settings(90, "40%"));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "tier (ram=/dev/shm:50%, wanted: ram=/dev/shm:40%)");
    }

    #[test]
    fn what_changes_no_file_is_no_contradiction() {
        let before = settings(1, "1");
        let mut wanted = before.clone();
        wanted.aliases.push("/home/me/study".into());
        wanted.library = "/other/lib.so".into();
        assert_eq!(before.contradictions(&wanted), []);
    }

    #[test]
    fn each_setting_that_decides_on_files_is_named() {
        let before = settings(1, "1");
        let mut wanted = before.clone();
        wanted.policy.evict = vec!["**".into()];
        wanted.mover.fsync = false;
        wanted.quota_bytes = Some(7);
        let keys: Vec<&str> = before.contradictions(&wanted).iter().map(|found| found.key).collect();
        assert_eq!(keys, ["quota", "policy.evict", "mover.fsync"]);
    }
}
