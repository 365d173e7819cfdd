//! What the user wants: layers of settings, a later one overriding an earlier one, key by key.
//!
//!   defaults < terrace.toml < environment < flags          (`sea.ini` takes the place of terrace.toml)
//!
//! Pure: the command line reads files and the environment and hands in their text; it then turns paths and
//! percentages into `Settings`. Each value remembers where it came from.

use crate::declared::{
    Checked, Declaration, FORWARD, FORWARD_SETTINGS, SETTINGS, TIER, TIER_SETTINGS, declaration, is_list_of_tables,
    split_list,
};
use crate::forwards::{self, WantedForward};
use crate::refusal::{Refusal, nearest};
use crate::size::Size;
use std::collections::BTreeMap;
use std::path::PathBuf;
use toml::{Table, Value};

#[derive(Clone, Debug, Default)]
pub struct Wanted {
    values: BTreeMap<&'static str, (Checked, String)>,
    tiers: Option<(Vec<WantedTier>, String)>,
    forwards: Option<(Vec<WantedForward>, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WantedTier {
    pub name: String,
    pub paths: Vec<PathBuf>,
    /// `None`: the default, which also looks at memory.
    pub capacity: Option<Size>,
    pub reserve: Size,
    pub read_bytes_s: Option<u64>,
    pub write_bytes_s: Option<u64>,
}

impl Wanted {
    /// The lowest layer.
    pub fn defaults() -> Wanted {
        let mut wanted = Wanted::default();
        for declared in SETTINGS.iter().filter(|d| !d.default.is_empty() && !is_list_of_tables(d.key)) {
            let value = declared.kind.check_text(declared.default).expect("defaults fit their declarations");
            wanted.values.insert(declared.key, (value, "default".into()));
        }
        wanted
    }

    /// Puts a `terrace.toml` over what is there. `origin` is its path.
    pub fn put_file(&mut self, text: &str, origin: &str) -> Result<(), Refusal> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(String::new(), |span| {
                format!(" line {}:", 1 + text[..span.start.min(text.len())].matches('\n').count())
            });
            Refusal::new(
                format!("{origin}:{line} this is not TOML: {}", error.message()),
                "text is in quotes, a list in brackets, each tier starts with `[[tier]]`",
            )
        })?;
        for (key, value) in &table {
            match (key.as_str(), value) {
                (TIER, Value::Array(entries)) => {
                    let tiers = entries.iter().enumerate().map(|(i, entry)| tier_of_value(entry, i, origin));
                    self.put_tiers(tiers.collect::<Result<_, _>>()?, origin)?;
                }
                (TIER, _) => {
                    return Err(Refusal::new(
                        format!("{origin}: `tier` is not a list of tiers"),
                        "start each tier with a line `[[tier]]` (two brackets)",
                    ));
                }
                (FORWARD, Value::Array(entries)) => {
                    let rules = entries.iter().enumerate().map(|(i, entry)| forwards::of_value(entry, i, origin));
                    self.forwards = Some((rules.collect::<Result<_, _>>()?, origin.into()));
                }
                (FORWARD, _) => {
                    return Err(Refusal::new(
                        format!("{origin}: `forward` is not a list of rules"),
                        "start each rule with a line `[[forward]]` (two brackets)",
                    ));
                }
                (section, Value::Table(entries)) if is_section(section) => {
                    for (key, value) in entries {
                        self.put_value(&format!("{section}.{key}"), value, origin)?;
                    }
                }
                (section, _) if is_section(section) => {
                    return Err(Refusal::new(
                        format!("{origin}: `{section}` is not a section"),
                        format!("start it with a line `[{section}]`"),
                    ));
                }
                (key, value) => self.put_value(key, value, origin)?,
            }
        }
        Ok(())
    }

    fn put_value(&mut self, key: &str, value: &Value, origin: &str) -> Result<(), Refusal> {
        let declared =
            declaration(key).filter(|d| !is_list_of_tables(d.key)).ok_or_else(|| unknown_key(key, origin))?;
        let checked = declared.kind.check(value).map_err(|wrong| misfit(key, origin, wrong))?;
        self.values.insert(declared.key, (checked, origin.into()));
        Ok(())
    }

    /// Puts the environment over what is there.
    pub fn put_environment(&mut self, get: impl Fn(&str) -> Option<String>) -> Result<(), Refusal> {
        for declared in &SETTINGS {
            if let Some(text) = get(&declared.env()).filter(|text| !text.is_empty()) {
                self.put_texts(declared, &split_if_list(declared, text), &declared.env())?;
            }
        }
        Ok(())
    }

    /// Puts one flag's values over what is there.
    pub fn put_flag(&mut self, key: &str, texts: &[String]) -> Result<(), Refusal> {
        let declared = declaration(key).expect("flags are made from the declarations");
        self.put_texts(declared, texts, &format!("--{}", declared.flag))
    }

    /// Puts a value that needs no check: one made by the program itself.
    pub fn put_list(&mut self, key: &'static str, list: Vec<String>, origin: &str) {
        self.values.insert(key, (Checked::List(list), origin.into()));
    }
    pub fn put_text(&mut self, key: &'static str, text: String, origin: &str) {
        self.values.insert(key, (Checked::Text(text), origin.into()));
    }

    fn put_texts(&mut self, declared: &'static Declaration, texts: &[String], origin: &str) -> Result<(), Refusal> {
        if declared.key == TIER {
            let tiers = texts.iter().enumerate().map(|(i, text)| tier_of_text(text, i, origin));
            return self.put_tiers(tiers.collect::<Result<_, _>>()?, origin);
        }
        if declared.key == FORWARD {
            let rules = texts.iter().enumerate().map(|(i, text)| forwards::of_text(text, i, origin));
            self.forwards = Some((rules.collect::<Result<_, _>>()?, origin.into()));
            return Ok(());
        }
        let checked = if matches!(declared.kind, crate::declared::Kind::Patterns | crate::declared::Kind::Urls) {
            Checked::List(texts.to_vec())
        } else {
            let text = texts.last().map_or("", String::as_str);
            declared
                .kind
                .check_text(text)
                .map_err(|(reason, hint)| Refusal::new(format!("{origin}: {reason}"), hint))?
        };
        self.values.insert(declared.key, (checked, origin.into()));
        Ok(())
    }

    pub fn put_tiers(&mut self, tiers: Vec<WantedTier>, origin: &str) -> Result<(), Refusal> {
        if tiers.is_empty() {
            return Err(Refusal::new(
                format!("{origin}: the list of tiers is empty"),
                "give at least one faster tier, or leave `tier` out to use a share of /dev/shm",
            ));
        }
        for (i, tier) in tiers.iter().enumerate() {
            if tiers[..i].iter().any(|earlier| earlier.name == tier.name) {
                return Err(Refusal::new(
                    format!("{origin}: two tiers are called `{}`", tier.name),
                    "give each tier its own `name`",
                ));
            }
        }
        self.tiers = Some((tiers, origin.into()));
        Ok(())
    }

    /// `None`: not given, so a share of /dev/shm.
    pub fn tiers(&self) -> Option<&[WantedTier]> {
        self.tiers.as_ref().map(|(tiers, _)| tiers.as_slice())
    }

    pub fn forwards(&self) -> &[WantedForward] {
        self.forwards.as_ref().map_or(&[], |(rules, _)| rules)
    }

    /// Where a key's value came from: `default`, a file's path, an environment name, a flag.
    pub fn origin(&self, key: &str) -> &str {
        match key {
            TIER => self.tiers.as_ref().map_or("default", |(_, origin)| origin),
            FORWARD => self.forwards.as_ref().map_or("default", |(_, origin)| origin),
            _ => self.values.get(key).map_or("default", |(_, origin)| origin),
        }
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match &self.values.get(key)?.0 {
            Checked::Text(text) => Some(text),
            _ => None,
        }
    }
    pub fn list(&self, key: &str) -> Vec<String> {
        match self.values.get(key) {
            Some((Checked::List(list), _)) => list.clone(),
            _ => vec![],
        }
    }
    pub fn size(&self, key: &str) -> Option<Size> {
        match self.values.get(key)?.0 {
            Checked::Size(size) => Some(size),
            _ => None,
        }
    }
    /// A `Rate` in bytes a second, a `Count`, or a `Duration` in milliseconds.
    pub fn number(&self, key: &str) -> Option<u64> {
        match self.values.get(key)?.0 {
            Checked::Count(n) | Checked::Millis(n) | Checked::Size(Size::Bytes(n)) => Some(n),
            _ => None,
        }
    }
    pub fn fraction(&self, key: &str) -> Option<f64> {
        match self.values.get(key)?.0 {
            Checked::Fraction(n) => Some(n),
            _ => None,
        }
    }
    pub fn switch(&self, key: &str) -> Option<bool> {
        match self.values.get(key)?.0 {
            Checked::Switch(on) => Some(on),
            _ => None,
        }
    }
}

/// The part of a key before its dot.
fn is_section(name: &str) -> bool {
    SETTINGS.iter().any(|declared| declared.key.split_once('.').is_some_and(|(section, _)| section == name))
}

fn split_if_list(declared: &Declaration, text: String) -> Vec<String> {
    match declared.kind {
        crate::declared::Kind::Patterns | crate::declared::Kind::Urls => split_list(&text),
        _ if is_list_of_tables(declared.key) => split_list(&text),
        _ => vec![text],
    }
}

fn misfit(key: &str, origin: &str, (reason, hint): (String, String)) -> Refusal {
    Refusal::new(format!("{origin}: `{key}`: {reason}"), hint)
}

fn unknown_key(key: &str, origin: &str) -> Refusal {
    let message = format!("{origin}: unknown key `{key}`");
    let known = || SETTINGS.iter().map(|declared| declared.key);
    let last = |key: &'static str| key.rsplit('.').next().unwrap_or(key);
    let meant = nearest(key, known())
        .or_else(|| known().find(|known| last(known) == key.rsplit('.').next().unwrap_or(key)))
        .or_else(|| TIER_SETTINGS.iter().map(|d| d.key).find(|known| *known == key))
        .or_else(|| FORWARD_SETTINGS.iter().map(|d| d.key).find(|known| *known == key));
    let hint = match meant {
        Some(tier_key) if TIER_SETTINGS.iter().any(|d| d.key == tier_key) => {
            format!("`{tier_key}` belongs below a line `[[tier]]`")
        }
        Some(key) if FORWARD_SETTINGS.iter().any(|d| d.key == key) => {
            format!("`{key}` belongs below a line `[[forward]]`")
        }
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("the known keys are {}", known().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")),
    };
    Refusal::new(message, hint)
}

fn tier_of_value(entry: &Value, number: usize, origin: &str) -> Result<WantedTier, Refusal> {
    let Value::Table(table) = entry else {
        return Err(Refusal::new(
            format!("{origin}: tier {number} is not a table"),
            "start each tier with a line `[[tier]]`, then `name`, `path`, `capacity`",
        ));
    };
    let mut tier = empty_tier(number);
    for (key, value) in table {
        let place = format!("tier.{key}");
        let Some(declared) = TIER_SETTINGS.iter().find(|declared| declared.key == key) else {
            let hint = match nearest(key, TIER_SETTINGS.iter().map(|d| d.key)) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!(
                    "a tier has the keys {}",
                    TIER_SETTINGS.iter().map(|d| format!("`{}`", d.key)).collect::<Vec<_>>().join(", ")
                ),
            };
            return Err(Refusal::new(format!("{origin}: unknown key `{place}`"), hint));
        };
        let checked = declared.kind.check(value).map_err(|wrong| misfit(&place, origin, wrong))?;
        match (declared.key, checked) {
            ("name", Checked::Text(name)) => tier.name = name,
            ("path", Checked::List(paths)) => tier.paths = paths.into_iter().map(PathBuf::from).collect(),
            ("capacity", Checked::Size(size)) => tier.capacity = Some(size),
            ("reserve", Checked::Size(size)) => tier.reserve = size,
            ("read_bandwidth", Checked::Size(Size::Bytes(rate))) => tier.read_bytes_s = Some(rate),
            ("write_bandwidth", Checked::Size(Size::Bytes(rate))) => tier.write_bytes_s = Some(rate),
            (key, _) => unreachable!("`{key}` is checked against its kind"),
        }
    }
    check_tier(tier, origin)
}

/// `NAME=PATH[,PATH…][:CAPACITY[:RESERVE]]`; the name may be left out.
fn tier_of_text(text: &str, number: usize, origin: &str) -> Result<WantedTier, Refusal> {
    let mut tier = empty_tier(number);
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) if !name.contains('/') => (Some(name), rest),
        _ => (None, text),
    };
    if let Some(name) = name {
        tier.name = name.trim().to_owned();
    }
    let mut parts = rest.split(':');
    tier.paths = parts.next().unwrap_or("").split(',').filter(|p| !p.is_empty()).map(PathBuf::from).collect();
    let mut size = |key: &str| {
        let text = parts.next().filter(|text| !text.is_empty());
        text.map(|text| {
            Size::parse(text).map_err(|reason| misfit(key, origin, (reason, crate::size::SIZE_HINT.into())))
        })
        .transpose()
    };
    tier.capacity = size("capacity")?;
    tier.reserve = size("reserve")?.unwrap_or(tier.reserve);
    if let Some(extra) = parts.next() {
        return Err(Refusal::new(
            format!("{origin}: `{text}` has `{extra}` after its reserve"),
            "write NAME=PATH[,PATH…][:CAPACITY[:RESERVE]]; a path with a colon or a comma goes into terrace.toml",
        ));
    }
    check_tier(tier, origin)
}

fn empty_tier(number: usize) -> WantedTier {
    WantedTier {
        name: format!("tier{number}"),
        paths: vec![],
        capacity: None,
        reserve: Size::Bytes(0),
        read_bytes_s: None,
        write_bytes_s: None,
    }
}

fn check_tier(tier: WantedTier, origin: &str) -> Result<WantedTier, Refusal> {
    let name = &tier.name;
    if name.is_empty() || name == "durable" || name == "root" || name.contains(['\n', '/']) {
        return Err(Refusal::new(
            format!("{origin}: a tier can't be called `{name}`"),
            "choose a short word, such as `ram` or `ssd` (`root` and `durable` mean the root's own storage)",
        ));
    }
    if tier.paths.is_empty() {
        return Err(Refusal::new(
            format!("{origin}: tier `{name}` has no `path`"),
            "add the directory that it lies in, such as path = \"/dev/shm\"",
        ));
    }
    match tier.capacity {
        Some(Size::Bytes(0)) => Err(no_capacity(name, origin)),
        Some(Size::Percent(0.0)) => Err(no_capacity(name, origin)),
        _ => Ok(tier),
    }
}

fn no_capacity(name: &str, origin: &str) -> Refusal {
    Refusal::new(
        format!("{origin}: tier `{name}` has capacity 0: nothing could be placed there"),
        "give it a capacity, such as `8GiB` or `50%`, or take the tier out",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::MoverSettings;

    fn file(text: &str) -> Result<Wanted, Refusal> {
        let mut wanted = Wanted::defaults();
        wanted.put_file(text, "terrace.toml").map(|()| wanted)
    }

    #[test]
    fn the_declared_defaults_are_those_of_the_settings() {
        let (wanted, mover) = (Wanted::defaults(), MoverSettings::default());
        assert_eq!(wanted.number("mover.threads"), Some(mover.threads as u64));
        assert_eq!(wanted.number("mover.settle"), Some(mover.settle_ms));
        assert_eq!(wanted.number("mover.bandwidth"), mover.bandwidth_bytes_s);
        assert_eq!(wanted.fraction("mover.high_watermark"), Some(mover.high_watermark));
        assert_eq!(wanted.fraction("mover.low_watermark"), Some(mover.low_watermark));
        assert_eq!(wanted.switch("mover.fsync"), Some(mover.fsync));
        assert_eq!(wanted.switch("mover.early_copies"), Some(mover.early_copies));
        assert_eq!(wanted.list("policy.flush"), crate::policy::PolicySettings::default().flush);
    }

    #[test]
    fn the_example_of_the_design_is_read() {
        let wanted = file(
            r#"
            root = "/lustre/me/study"
            [[tier]]
            name = "ram"
            path = "/dev/shm"
            capacity = "8GiB"
            [[tier]]
            name = "ssd"
            path = ["/local/ssd0", "/local/ssd1"]
            [policy]
            flush    = ["derivatives/**"]
            evict    = ["work/**", "derivatives/**"]
            prefetch = ["sub-*/anat/*.nii.gz"]
            "#,
        )
        .unwrap();
        assert_eq!(wanted.text("root"), Some("/lustre/me/study"));
        let tiers = wanted.tiers().unwrap();
        assert_eq!((tiers[0].name.as_str(), tiers[0].capacity), ("ram", Some(Size::Bytes(8 << 30))));
        assert_eq!(tiers[1].paths.len(), 2);
        assert_eq!(wanted.list("policy.evict"), ["work/**", "derivatives/**"]);
        assert_eq!((wanted.origin("root"), wanted.origin("mover.threads")), ("terrace.toml", "default"));
    }

    #[test]
    fn a_later_layer_overrides_key_by_key() {
        let mut wanted = file("[mover]\nthreads = 4\nsettle = \"1s\"\n[policy]\nflush = [\"a\"]").unwrap();
        let env = |name: &str| match name {
            "TERRACE_MOVER_THREADS" => Some("8".to_owned()),
            "TERRACE_POLICY_FLUSH" => Some("b/{c,d}; !e".to_owned()),
            "TERRACE_TIER" => Some("ram=/dev/shm:1GiB;/ssd0,/ssd1".to_owned()),
            _ => None,
        };
        wanted.put_environment(env).unwrap();
        wanted.put_flag("mover.threads", &["16".into()]).unwrap();
        assert_eq!(wanted.number("mover.threads"), Some(16));
        assert_eq!(wanted.origin("mover.threads"), "--threads");
        assert_eq!(wanted.number("mover.settle"), Some(1000));
        assert_eq!(wanted.list("policy.flush"), ["b/{c,d}", "!e"]);
        let tiers = wanted.tiers().unwrap();
        assert_eq!((tiers[0].name.as_str(), tiers[1].name.as_str()), ("ram", "tier1"));
        assert_eq!(tiers[1].paths, [PathBuf::from("/ssd0"), "/ssd1".into()]);
    }

    #[test]
    fn an_unknown_key_is_named_with_the_nearest_known_one() {
        for (text, message, hint) in [
            ("rot = \"/x\"", "unknown key `rot`", "`root`"),
            ("[policy]\nflsh = []", "unknown key `policy.flsh`", "`policy.flush`"),
            ("[[tier]]\npath = \"/x\"\ncapcity = \"1G\"", "unknown key `tier.capcity`", "`capacity`"),
            ("capacity = \"1G\"", "unknown key `capacity`", "[[tier]]"),
            ("flush = []", "unknown key `flush`", "`policy.flush`"),
            ("zebra = 1", "unknown key `zebra`", "the known keys are"),
            ("[zebra]\nx = 1", "unknown key `zebra`", "the known keys are"),
        ] {
            let refusal = file(text).unwrap_err();
            assert!(refusal.message.contains(message), "{text}: {refusal:?}");
            assert!(refusal.hint.contains(hint), "{text}: {refusal:?}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_named_with_a_way_out() {
        for (text, message) in [
            ("[[tier]]\nname = \"ram\"", "tier `ram` has no `path`"),
            ("[[tier]]\npath = \"/x\"\ncapacity = 0", "capacity 0"),
            ("[[tier]]\npath = \"/x\"\ncapacity = \"0%\"", "capacity 0"),
            ("[[tier]]\npath = \"/x\"\ncapacity = \"many\"", "`tier.capacity`: `many` is not a size"),
            (
                "[[tier]]\nname = \"a\"\npath = \"/x\"\n[[tier]]\nname = \"a\"\npath = \"/y\"",
                "two tiers are called `a`",
            ),
            ("tier = \"/dev/shm\"", "not a list of tiers"),
            ("tier = []", "empty"),
            ("policy = 3", "not a section"),
            ("[mover]\nthreads = \"x\"", "`mover.threads`: `x` is not a whole number"),
            ("[mover]\nhigh_watermark = 90", "`mover.high_watermark`: 90 is not between 0 and 1"),
            ("[policy]\nflush = [1]", "not text"),
            ("root = ", "line 1: this is not TOML"),
        ] {
            let refusal = file(text).unwrap_err();
            assert!(refusal.message.contains(message), "{text}: {refusal:?}");
            assert!(refusal.message.starts_with("terrace.toml"), "{text}: {refusal:?}");
            assert!(!refusal.hint.is_empty());
        }
        let mut wanted = Wanted::defaults();
        let refusal = wanted.put_flag("mover.threads", &["many".into()]).unwrap_err();
        assert_eq!(refusal.message, "--threads: `many` is not a whole number");
        let refusal = wanted.put_flag(TIER, &["ram=/dev/shm:1G:1G:x".into()]).unwrap_err();
        assert!(refusal.message.contains("`x`"));
    }
}
