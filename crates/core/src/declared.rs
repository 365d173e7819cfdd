//! Every setting, declared once: file key, default, meaning. Its environment name follows from the key, its flag is named here.
//!
//! `terrace.toml`, the environment and the flags are checked against this table and `terrace config` prints it, so
//! they can't disagree.

use crate::settings::{Directories, SmallFiles};
use crate::size::{DURATION_HINT, SIZE_HINT, Size, parse_duration};
use toml::Value;

/// What a setting's value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Path,
    Text,
    Paths,
    Patterns,
    /// `[DIR=]URL` each.
    Urls,
    Size,
    /// Bytes a second, written as a size.
    Rate,
    Count,
    Fraction,
    Duration,
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
}

#[derive(Clone, Copy, Debug)]
pub struct Declaration {
    /// As in `terrace.toml`, with its section: `mover.threads`.
    pub key: &'static str,
    /// Long flag, without the dashes.
    pub flag: &'static str,
    pub kind: Kind,
    /// As one would write it; empty: none.
    pub default: &'static str,
    pub doc: &'static str,
}

impl Declaration {
    pub fn env(&self) -> String {
        format!("TERRACE_{}", self.key.replace('.', "_").to_uppercase())
    }
}

const fn setting(
    key: &'static str,
    flag: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Declaration {
    Declaration { key, flag, kind, default, doc }
}

/// By which way a run's programs are reached.
pub const DOORS: [&str; 3] = ["both", "preload", "supervise"];

/// The key of the list of tiers; its flag and environment name take `NAME=PATH[,PATH…][:CAPACITY[:RESERVE]]`.
pub const TIER: &str = "tier";

/// The key of the list of rules for forwarding; its flag and environment name take `CONTAINER=TARGET[,TARGET…] [KEY=VALUE]…`.
pub const FORWARD: &str = "forward";

/// Keys that are lists of tables, and no single values.
pub fn is_list_of_tables(key: &str) -> bool {
    key == TIER || key == FORWARD
}

pub const SETTINGS: [Declaration; 26] = [
    setting("root", "root", Kind::Path, ".", "The directory to accelerate. Programs keep using its real path."),
    setting("quota", "quota", Kind::Size, "", "Most bytes that all faster tiers together may hold."),
    setting(
        "policy.flush",
        "flush",
        Kind::Patterns,
        "**",
        "Files to make durable in the root: globs below the root, `re:` for a regular expression, `!` takes back, the last match wins.",
    ),
    setting(
        "policy.evict",
        "evict",
        Kind::Patterns,
        "",
        "Files to drop from the faster tiers: after their flush if they are flushed, else at the end of the run.",
    ),
    setting(
        "policy.prefetch",
        "prefetch",
        Kind::Patterns,
        "",
        "Files to bring up into the fastest tier at the start of the run.",
    ),
    setting(
        "stage.in",
        "stage-in",
        Kind::Urls,
        "",
        "What a run brings from an object store: `[DIR=]URL`, into a directory below the root.",
    ),
    setting(
        "stage.wait",
        "stage-wait",
        Kind::Switch,
        "false",
        "Whether the program starts when all of it is there, and not when its names are.",
    ),
    setting(
        "stage.out",
        "stage-out",
        Kind::Urls,
        "",
        "What a run sends to an object store as it becomes durable: `[DIR=]URL`, a directory below the root.",
    ),
    setting(
        "door",
        "door",
        Kind::Choice(&DOORS),
        "both",
        "How a run's programs are reached: by the preload library (`preload`), by the supervisor (`supervise`), or by each where it is best.",
    ),
    setting(
        "directories",
        "directories",
        Kind::Choice(&Directories::WORDS),
        "scratch",
        "Directories that programs make and that lie in a tier as a whole: those in which policy drops every file (`scratch`), also those in which it flushes every file (`all`), or none (`off`).",
    ),
    setting(
        "small_files",
        "small-files",
        Kind::Choice(&SmallFiles::WORDS),
        "learn",
        "Small files of a program that was seen to make such: in the root at once, where policy flushes every file (`learn`), or in a tier as all others (`place`).",
    ),
    setting("mover.threads", "threads", Kind::Count, "2", "Files moved at the same time."),
    setting(
        "mover.bandwidth",
        "bandwidth",
        Kind::Rate,
        "",
        "Most bytes a second written into the root by flushes, all together.",
    ),
    setting(
        "mover.settle",
        "settle",
        Kind::Duration,
        "200ms",
        "A closed file waits so long before it is flushed, for programs that open it again at once.",
    ),
    setting(
        "mover.high_watermark",
        "high-watermark",
        Kind::Fraction,
        "0.9",
        "Part of a tier's capacity above which clean replicas are evicted, least recently used first.",
    ),
    setting(
        "mover.low_watermark",
        "low-watermark",
        Kind::Fraction,
        "0.7",
        "Part of a tier's capacity at which that eviction ends.",
    ),
    setting(
        "mover.fsync",
        "fsync",
        Kind::Switch,
        "true",
        "Sync each flushed file before it is committed. Without it a crash of the node may lose files that were reported as flushed.",
    ),
    setting(
        "mover.early_copies",
        "early-copies",
        Kind::Switch,
        "true",
        "Copy what a program has written of a large file (8 MiB or more) while it writes on, so that little is left when it closes the file.",
    ),
    setting(
        "model.read_bandwidth",
        "model-read-bandwidth",
        Kind::Rate,
        "",
        "Read bandwidth of the root's storage, for the report's prediction.",
    ),
    setting(
        "model.write_bandwidth",
        "model-write-bandwidth",
        Kind::Rate,
        "",
        "Write bandwidth of the root's storage, for the report's prediction. If not given, the flush's measured bandwidth is used.",
    ),
    setting("state", "state", Kind::Path, "/var/tmp/terrace-UID", "Directory of the journal and the agent's log."),
    setting(
        "runtime",
        "runtime",
        Kind::Path,
        "/dev/shm/terrace-UID",
        "Directory of the shared index and the sockets; best in memory.",
    ),
    setting("library", "library", Kind::Path, "", "The preload library, if it is not beside the `terrace` program."),
    setting(TIER, "tier", Kind::Text, "ram=/dev/shm", "Faster tiers, fast to slow."),
    setting(
        "forward_patience",
        "forward-patience",
        Kind::Duration,
        "60s",
        "How long an agent that has nothing else to do waits for targets that it can't reach. What is left is sent by the next one.",
    ),
    setting(FORWARD, "forward", Kind::Text, "", "Containers whose regions are sent to other agents."),
];

/// What becomes here of a region that has arrived.
pub const KEEPS: [&str; 2] = ["durable", "none"];

/// Keys of one `[[forward]]` entry.
pub const FORWARD_SETTINGS: [Declaration; 7] = [
    setting("container", "", Kind::Patterns, "", "Patterns of containers below the root (or of single arrays)."),
    setting(
        "target",
        "",
        Kind::Paths,
        "",
        "`tcp://ADDRESS:PORT` of an agent, or a list of them, which share the steps.",
    ),
    setting("token_file", "", Kind::Paths, "", "File with the target's token, or a list: one for each target."),
    setting(
        "fingerprint",
        "",
        Kind::Paths,
        "",
        "Of the target's certificate, or one for each target. If not given: what is in TOKEN_FILE.fingerprint.",
    ),
    setting("arrays", "", Kind::Patterns, "", "Only arrays of these names (patterns)."),
    setting(
        "where",
        "",
        Kind::Patterns,
        "",
        "Only cells that meet all of these, such as `> 3.5`; others have the fill value there.",
    ),
    setting(
        "keep",
        "",
        Kind::Choice(&KEEPS),
        "durable",
        "What becomes of a region here when it has arrived: what policy says (`durable`), or nothing is kept (`none`).",
    ),
];

/// Keys of one `[[tier]]` entry.
pub const TIER_SETTINGS: [Declaration; 6] = [
    setting("name", "", Kind::Text, "", "What reports call it. If not given: `tier0`, `tier1`…"),
    setting("path", "", Kind::Paths, "", "One directory or a list of them. A private directory is made below each."),
    setting(
        "capacity",
        "",
        Kind::Size,
        "50%",
        "Most bytes in this tier, over all its directories; at most half of the free memory if it is in memory.",
    ),
    setting("reserve", "", Kind::Size, "0", "Bytes left free on each of its file systems."),
    setting("read_bandwidth", "", Kind::Rate, "", "For the report's prediction."),
    setting("write_bandwidth", "", Kind::Rate, "", "For the report's prediction."),
];

/// A value of the right form. Text from flags and the environment has been turned into this as well.
#[derive(Clone, Debug, PartialEq)]
pub enum Checked {
    Text(String),
    List(Vec<String>),
    Size(Size),
    Count(u64),
    Fraction(f64),
    Millis(u64),
    Switch(bool),
}

/// Why a value doesn't fit, and what would.
pub type Wrong = (String, String);

impl Kind {
    /// Checks a value from a file. A string is read as it would be from a flag.
    pub fn check(self, value: &Value) -> Result<Checked, Wrong> {
        match (self, value) {
            (_, Value::String(text)) => self.check_text(text),
            (Kind::Paths | Kind::Patterns | Kind::Urls, Value::Array(items)) => items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
                .map(Checked::List)
                .ok_or_else(|| ("it has an entry that is not text".into(), "put each entry in quotes".into())),
            (Kind::Size | Kind::Rate, Value::Integer(n)) if *n >= 0 => Ok(Checked::Size(Size::Bytes(*n as u64))),
            (Kind::Count, Value::Integer(n)) if *n >= 0 => Ok(Checked::Count(*n as u64)),
            (Kind::Fraction, Value::Float(n)) => fraction(*n),
            (Kind::Fraction, Value::Integer(n)) => fraction(*n as f64),
            (Kind::Switch, Value::Boolean(on)) => Ok(Checked::Switch(*on)),
            _ => Err((format!("`{value}` has the wrong type ({})", value.type_str()), self.hint().into())),
        }
    }

    /// Checks a value from a flag, the environment, or a default.
    pub fn check_text(self, text: &str) -> Result<Checked, Wrong> {
        let wrong = |reason: String| (reason, self.hint().to_owned());
        match self {
            Kind::Path | Kind::Text if text.is_empty() => Err(wrong("it is empty".into())),
            Kind::Path | Kind::Text => Ok(Checked::Text(text.into())),
            Kind::Paths | Kind::Patterns | Kind::Urls => Ok(Checked::List(split_list(text))),
            Kind::Size => Size::parse(text).map(Checked::Size).map_err(wrong),
            Kind::Rate => match Size::parse(text.trim().trim_end_matches("/s")) {
                Ok(Size::Bytes(bytes)) if bytes > 0 => Ok(Checked::Size(Size::Bytes(bytes))),
                Ok(_) => Err(wrong(format!("`{text}` is not a bandwidth"))),
                Err(reason) => Err(wrong(reason)),
            },
            Kind::Count => {
                text.trim().parse().map(Checked::Count).map_err(|_| wrong(format!("`{text}` is not a whole number")))
            }
            Kind::Fraction => fraction(text.trim().parse().map_err(|_| wrong(format!("`{text}` is not a number")))?),
            Kind::Duration => parse_duration(text).map(|d| Checked::Millis(d.as_millis() as u64)).map_err(wrong),
            Kind::Switch => match text.trim().to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Ok(Checked::Switch(true)),
                "false" | "no" | "off" | "0" => Ok(Checked::Switch(false)),
                _ => Err(wrong(format!("`{text}` is neither true nor false"))),
            },
            Kind::Choice(words) => match words.contains(&text.trim()) {
                true => Ok(Checked::Text(text.trim().into())),
                false => Err(wrong(format!("`{text}` is none of {}", words.join(", ")))),
            },
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Kind::Path => "write a directory's path in quotes",
            Kind::Text => "write text in quotes",
            Kind::Paths => "write a path in quotes, or a list of them in brackets",
            Kind::Patterns => "write a list of patterns, such as [\"derivatives/**\", \"!**/*.tmp\"]",
            Kind::Urls => "write a list of URLs, such as [\"input=s3://study/in\"]",
            Kind::Size => SIZE_HINT,
            Kind::Rate => "write bytes a second as a size greater than zero, such as `400MiB`",
            Kind::Count => "write a whole number",
            Kind::Fraction => "write a part between 0 and 1, such as 0.9",
            Kind::Duration => DURATION_HINT,
            Kind::Switch => "write true or false",
            Kind::Choice(_) => "write one of these words, in quotes",
        }
    }
}

fn fraction(n: f64) -> Result<Checked, Wrong> {
    if (0.0..=1.0).contains(&n) {
        Ok(Checked::Fraction(n))
    } else {
        Err((format!("{n} is not between 0 and 1"), Kind::Fraction.hint().into()))
    }
}

/// Lists in the environment: entries separated by `;` or a new line (a comma or a colon may be part of a pattern).
pub fn split_list(text: &str) -> Vec<String> {
    text.split([';', '\n']).map(str::trim).filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

pub fn declaration(key: &str) -> Option<&'static Declaration> {
    SETTINGS.iter().find(|declared| declared.key == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_fits_its_own_declaration() {
        for declared in SETTINGS.iter().chain(&TIER_SETTINGS).chain(&FORWARD_SETTINGS).filter(|d| !d.default.is_empty())
        {
            declared.kind.check_text(declared.default).unwrap_or_else(|e| panic!("{}: {e:?}", declared.key));
        }
    }

    #[test]
    fn keys_flags_and_environment_names_are_unique() {
        for names in
            [SETTINGS.map(|d| d.key.to_owned()), SETTINGS.map(|d| d.flag.to_owned()), SETTINGS.map(|d| d.env())]
        {
            let mut sorted = names.to_vec();
            sorted.sort();
            sorted.dedup();
            assert_eq!(sorted.len(), SETTINGS.len());
        }
    }

    #[test]
    fn a_value_may_be_text_or_of_its_own_type() {
        assert_eq!(Kind::Count.check(&Value::Integer(3)), Kind::Count.check_text("3"));
        assert_eq!(Kind::Fraction.check(&Value::Float(0.5)), Kind::Fraction.check_text("0.5"));
        assert_eq!(Kind::Switch.check(&Value::Boolean(false)), Kind::Switch.check_text("off"));
        assert_eq!(Kind::Rate.check_text("400MiB/s"), Ok(Checked::Size(Size::Bytes(400 << 20))));
        assert_eq!(Kind::Choice(&DOORS).check_text(" preload"), Ok(Checked::Text("preload".into())));
        assert!(Kind::Choice(&DOORS).check_text("window").is_err());
        assert!(Kind::Count.check(&Value::Boolean(true)).is_err());
        assert!(Kind::Rate.check_text("10%").is_err());
        assert!(Kind::Fraction.check_text("1.5").is_err());
    }
}
