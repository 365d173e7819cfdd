//! From what the user wants to `Settings`: reads the files and the environment, makes paths absolute and sizes bytes.
//!
//!   defaults ─▶ terrace.toml or sea.ini ─▶ TERRACE_* ─▶ flags ─▶ Resolved
//!
//! Nothing is checked here that a command may do without: `check` says whether a run may start.

use crate::failure::{Failure, Result, warn};
use crate::filesystem::{FileSystem, memory_available_bytes};
use crate::paths::{absolute, canonical_or_same};
use crate::setting_args::SettingArgs;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use terrace_core::contradictions::size_key;
use terrace_core::declared::SETTINGS;
use terrace_core::policy::{Patterns, PolicySettings};
use terrace_core::refusal::nearest;
use terrace_core::sea;
use terrace_core::settings::{
    Directories, ForwardSettings, MoverSettings, Settings, SmallFiles, TARGETS_MAX, TargetSettings, TierSettings,
    root_id, user_dir,
};
use terrace_core::size::Size;
use terrace_core::wanted::{Wanted, WantedTier};
use terrace_index::INDEX_ENV;

pub struct Resolved {
    pub settings: Settings,
    pub wanted: Wanted,
    /// The tiers as wanted, in the order of `settings.tiers`.
    pub wanted_tiers: Vec<WantedTier>,
    pub warnings: Vec<String>,
}

/// The user that files and directories belong to.
pub fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The index of the agent that the environment names (`terrace serve`, `terrace run`), where nothing names a root.
pub fn named_agent(args: &SettingArgs) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|text| !text.is_empty());
    let is_said = args.root.is_some() || args.config.is_some() || args.sea.is_some();
    let is_placed = args.state.is_some() || args.runtime.is_some();
    let names = ["TERRACE_ROOT", "TERRACE_STATE", "TERRACE_RUNTIME"];
    if is_said || is_placed || names.iter().any(|name| variable(name).is_some()) || find_file(args).is_some() {
        return None;
    }
    variable(INDEX_ENV).map(PathBuf::from)
}

/// As `resolve`; where several agents serve the root and one of them is on this node, of that one.
pub fn resolve_here(args: &SettingArgs) -> Result<Resolved> {
    let mut resolved = resolve(args)?;
    crate::this_node::join(&mut resolved.settings, &resolved.wanted);
    Ok(resolved)
}

pub fn resolve(args: &SettingArgs) -> Result<Resolved> {
    let mut warnings = vec![];
    let mut wanted = Wanted::defaults();
    let mut root: (PathBuf, PathBuf) = (".".into(), current_directory()?);
    let mut mount = None;

    let file = match (&args.config, &args.sea) {
        (Some(file), _) => Some(file.clone()),
        (None, Some(_)) => None,
        (None, None) => find_file(args),
    };
    if let Some(file) = &file {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::bad_input(
                format!("can't read the settings {}: {error}", file.display()),
                "give an existing file to --config, or leave it out",
            )
        })?;
        wanted.put_file(&text, &file.display().to_string())?;
    }
    if let Some(ini) = &args.sea {
        let sea = read_sea(ini, &mut wanted, &mut warnings)?;
        root = (sea.root, current_directory()?);
        mount = Some(sea.mount);
    }
    if let (Some(text), Some(file)) = (wanted.text("root").filter(|_| wanted.origin("root") != "default"), &file) {
        root = (text.into(), directory_of(file)?);
    }
    wanted.put_environment(|name| std::env::var(name).ok())?;
    warnings.extend(unknown_variables(std::env::vars_os().map(|(name, _)| name)));
    if let Some(text) = std::env::var_os("TERRACE_ROOT").filter(|text| !text.is_empty()) {
        root = (text.into(), current_directory()?);
    }
    args.put(&mut wanted)?;
    if let Some(text) = &args.root {
        wanted.put_text("root", text.to_string_lossy().into_owned(), "--root");
        root = (text.into(), current_directory()?);
    }
    let spelled = absolute(&root.1, &root.0);
    let canonical = canonical_root(&spelled)?;

    let base_of = |key: &str| match &file {
        Some(file) if wanted.origin(key) == file.display().to_string() => directory_of(file),
        _ => current_directory(),
    };
    let wanted_tiers: Vec<WantedTier> = match wanted.tiers() {
        Some(tiers) => {
            let base = base_of("tier")?;
            let place = |tier: &WantedTier| WantedTier {
                paths: tier.paths.iter().map(|path| absolute(&base, path)).map(canonical_or_same).collect(),
                ..tier.clone()
            };
            tiers.iter().map(place).collect()
        }
        None => vec![default_tier()],
    };
    let id = root_id(&canonical);
    let own_directory = |key: &str| -> Result<PathBuf> {
        let base = match (wanted.origin(key), key) {
            ("default", "state") => user_dir(Path::new("/var/tmp"), uid()),
            ("default", _) => user_dir(Path::new("/dev/shm"), uid()),
            _ => absolute(&base_of(key)?, Path::new(wanted.text(key).unwrap_or_default())),
        };
        Ok(base.join(&id))
    };
    let library = match wanted.text("library") {
        Some(text) => absolute(&base_of("library")?, Path::new(text)),
        None => find_library(),
    };
    let mover = MoverSettings {
        threads: wanted.number("mover.threads").unwrap_or(1).clamp(1, 256) as usize,
        bandwidth_bytes_s: wanted.number("mover.bandwidth"),
        settle_ms: wanted.number("mover.settle").unwrap_or_default(),
        high_watermark: wanted.fraction("mover.high_watermark").unwrap_or(1.0),
        low_watermark: wanted.fraction("mover.low_watermark").unwrap_or(1.0),
        fsync: wanted.switch("mover.fsync").unwrap_or(true),
        early_copies: wanted.switch("mover.early_copies").unwrap_or(true),
    };
    if mover.low_watermark > mover.high_watermark {
        return Err(Failure::bad_input(
            format!("the low watermark {} is above the high one {}", mover.low_watermark, mover.high_watermark),
            "set `mover.low_watermark` below `mover.high_watermark`",
        ));
    }
    let forwards = forward_settings(&wanted, &base_of("forward")?)?;
    let settings = Settings {
        aliases: aliases(&canonical, &spelled, mount.as_deref()),
        tiers: wanted_tiers.iter().map(tier_settings).collect(),
        policy: PolicySettings {
            flush: wanted.list("policy.flush"),
            evict: wanted.list("policy.evict"),
            prefetch: wanted.list("policy.prefetch"),
        },
        mover,
        directories: Directories::of(wanted.text("directories").unwrap_or_default()),
        small_files: SmallFiles::of(wanted.text("small_files").unwrap_or_default()),
        quota_bytes: wanted.size("quota").map(|quota| quota.bytes(tiers_available(&wanted_tiers))),
        state: own_directory("state")?,
        runtime: own_directory("runtime")?,
        library,
        listen: None,
        member: None,
        forwards,
        forward_patience_ms: wanted.number("forward_patience").unwrap_or_default(),
        node: None,
        sizes_as_given: sizes_as_given(&wanted, &wanted_tiers),
        root: canonical,
    };
    if let Some(mount) = mount.filter(|mount| canonical_or_same(mount.clone()) != settings.root) {
        warnings.push(format!(
            "Sea's `mount_dir` {} is not the root: programs use {} itself (or make `mount_dir` a symbolic link to it)",
            mount.display(),
            settings.root.display()
        ));
    }
    Ok(Resolved { settings, wanted, wanted_tiers, warnings })
}

fn forward_settings(wanted: &Wanted, base: &Path) -> Result<Vec<ForwardSettings>> {
    let mut rules = vec![];
    for rule in wanted.forwards() {
        let of = |index: usize, count: usize| if count == 1 { 0 } else { index };
        let targets = rule.targets.iter().enumerate().map(|(number, address)| TargetSettings {
            address: address.clone(),
            token_file: absolute(base, &rule.token_files[of(number, rule.token_files.len())]),
            fingerprint: rule.fingerprints.get(of(number, rule.fingerprints.len())).cloned(),
        });
        let (containers, arrays) = (rule.containers.clone(), rule.arrays.clone());
        for (list, patterns) in [("forward.container", &containers), ("forward.arrays", &arrays)] {
            Patterns::compile(list, patterns).map_err(terrace_core::refusal::Refusal::from)?;
        }
        let conditions = rule.conditions.clone();
        rules.push(ForwardSettings { containers, targets: targets.collect(), arrays, conditions, keep: rule.keep });
    }
    let targets: usize = rules.iter().map(|rule| rule.targets.len()).sum();
    if targets > TARGETS_MAX {
        return Err(Failure::bad_input(
            format!("{targets} targets in all rules for forwarding: at most {TARGETS_MAX} are possible"),
            "forward to fewer agents, or let those forward in their turn",
        ));
    }
    Ok(rules)
}

impl Resolved {
    pub fn print_warnings(&self) {
        self.warnings.iter().for_each(warn);
    }
}

fn current_directory() -> Result<PathBuf> {
    std::env::current_dir().map_err(|error| {
        Failure::bad_input(format!("the current directory is gone: {error}"), "change into a directory that exists")
    })
}

fn directory_of(file: &Path) -> Result<PathBuf> {
    let whole = absolute(&current_directory()?, file);
    Ok(whole.parent().unwrap_or(Path::new("/")).to_owned())
}

fn find_file(args: &SettingArgs) -> Option<PathBuf> {
    let here = Path::new("terrace.toml");
    let root = args.root.clone().or_else(|| std::env::var_os("TERRACE_ROOT"));
    let in_root = root.map(|root| Path::new(&root).join("terrace.toml"));
    [Some(here.to_owned()), in_root].into_iter().flatten().find(|file| file.exists())
}

fn read_sea(ini: &Path, wanted: &mut Wanted, warnings: &mut Vec<String>) -> Result<sea::SeaSettings> {
    let file = if ini.is_dir() { ini.join("sea.ini") } else { ini.to_owned() };
    let origin = file.display().to_string();
    let text = std::fs::read_to_string(&file).map_err(|error| {
        Failure::bad_input(
            format!("can't read {origin}: {error}"),
            "give Sea's own `sea.ini`, or the directory it is in, to --sea",
        )
    })?;
    let sea = sea::parse_ini(&text, &origin, |name| std::env::var(name).ok())?;
    wanted.put_tiers(sea.tiers.clone(), &origin)?;
    wanted.put_text("root", sea.root.display().to_string(), &origin);
    warnings.extend(sea.not_needed.iter().map(|text| format!("{origin}: {text}")));

    let prefixes: Vec<String> = std::iter::once(&sea.mount)
        .chain(std::iter::once(&sea.root))
        .chain(sea.tiers.iter().flat_map(|tier| &tier.paths))
        .map(|path| path.display().to_string())
        .collect();
    let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
    let directory = directory_of(&file)?;
    for (key, name) in [
        ("policy.flush", ".sea_flushlist"),
        ("policy.evict", ".sea_evictlist"),
        ("policy.prefetch", ".sea_prefetchlist"),
    ] {
        let list = directory.join(name);
        let text = match std::fs::read_to_string(&list) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::io("read", &list, error).code(crate::failure::code::BAD_INPUT)),
        };
        let (patterns, list_warnings) = sea::parse_list(&text, &list.display().to_string(), &prefixes);
        if key == "policy.flush" && patterns.is_empty() {
            warnings.push(format!("{} is empty or missing: as with Sea, nothing will be flushed", list.display()));
        }
        warnings.extend(list_warnings);
        wanted.put_list(key, patterns, &origin);
    }
    Ok(sea)
}

/// Environment names that look like a misspelt setting.
fn unknown_variables(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let known: Vec<String> = SETTINGS.iter().map(|declared| declared.env()).collect();
    let near = |name: &OsString| -> Option<String> {
        let name = name.to_str().filter(|name| name.starts_with("TERRACE_"))?;
        let others = [
            "TERRACE_CONFIG",
            "TERRACE_WALLTIME",
            "TERRACE_WALLTIME_MARGIN",
            "TERRACE_KILL_WAIT",
            "TERRACE_REPORT",
            "TERRACE_INDEX",
            "TERRACE_AGENT",
            "TERRACE_AGGREGATE",
            "TERRACE_PREFETCH",
            "TERRACE_TOKEN",
            "TERRACE_TOKEN_FILE",
            "TERRACE_FINGERPRINT",
            "TERRACE_QUERY",
            "TERRACE_FLIGHT",
        ];
        let is_known = others.contains(&name) || known.iter().any(|known| known == name);
        let meant = nearest(name, known.iter().map(String::as_str)).filter(|_| !is_known)?;
        Some(format!("the environment has `{name}`, which means nothing here: did you mean `{meant}`?"))
    };
    names.filter_map(|name| near(&name)).collect()
}

fn canonical_root(spelled: &Path) -> Result<PathBuf> {
    let hint = "give the directory to accelerate with --root DIR, or `root` in terrace.toml";
    let canonical = spelled
        .canonicalize()
        .map_err(|error| Failure::bad_input(format!("the root {} can't be used: {error}", spelled.display()), hint))?;
    if !canonical.is_dir() {
        return Err(Failure::bad_input(format!("the root {} is not a directory", spelled.display()), hint));
    }
    if canonical.as_os_str().len() >= terrace_core::settings::ROOT_LEN_MAX {
        return Err(Failure::bad_input(
            format!("the root's path is longer than {} bytes", terrace_core::settings::ROOT_LEN_MAX),
            "use a directory with a shorter path",
        ));
    }
    Ok(canonical)
}

/// Other spellings of the root: as the user gave it, by the shell's `$PWD`, Sea's mount.
fn aliases(canonical: &Path, spelled: &Path, mount: Option<&Path>) -> Vec<PathBuf> {
    let mut found = vec![spelled.to_owned()];
    if let Some(pwd) = std::env::var_os("PWD").map(PathBuf::from).filter(|pwd| pwd.is_absolute()) {
        found.extend(pwd.ancestors().map(Path::to_owned));
    }
    found.extend(mount.map(Path::to_owned));
    let mut aliases: Vec<PathBuf> = vec![];
    for path in found {
        let is_other = path != canonical && path.canonicalize().is_ok_and(|resolved| resolved == canonical);
        if is_other && !aliases.contains(&path) {
            aliases.push(path);
        }
    }
    aliases
}

fn default_tier() -> WantedTier {
    WantedTier {
        name: "ram".into(),
        paths: vec!["/dev/shm".into()],
        capacity: None,
        reserve: Size::Bytes(0),
        read_bytes_s: None,
        write_bytes_s: None,
    }
}

fn available(tier: &WantedTier) -> Vec<FileSystem> {
    tier.paths.iter().filter_map(|path| FileSystem::of(path).ok()).collect()
}

fn tiers_available(tiers: &[WantedTier]) -> u64 {
    tiers.iter().flat_map(available).map(|fs| fs.available_bytes).sum()
}

fn tier_settings(tier: &WantedTier) -> TierSettings {
    let systems = available(tier);
    let total: u64 = systems.iter().map(|fs| fs.available_bytes).sum();
    let capacity_bytes = match tier.capacity {
        Some(capacity) => capacity.bytes(total),
        None => {
            let in_memory = systems.iter().any(FileSystem::is_memory);
            let memory = if in_memory { memory_available_bytes() } else { None };
            memory.map_or(total / 2, |memory| (total / 2).min(memory / 2))
        }
    };
    TierSettings {
        name: tier.name.clone(),
        paths: tier.paths.clone(),
        capacity_bytes,
        reserve_bytes: tier.reserve.bytes(systems.iter().map(|fs| fs.total_bytes).max().unwrap_or(0)),
    }
}

/// Only sizes that are other bytes at another moment: parts of what is free, and what nobody gave.
fn sizes_as_given(wanted: &Wanted, tiers: &[WantedTier]) -> BTreeMap<String, String> {
    let part = |size: Size| match size {
        Size::Percent(percent) => Some(format!("{percent}%")),
        Size::Bytes(_) => None,
    };
    let mut sizes = BTreeMap::new();
    let mut put = |key: String, text: Option<String>| text.map(|text| sizes.insert(key, text));
    put("quota".into(), wanted.size("quota").and_then(part));
    for tier in tiers {
        put(size_key(&tier.name, "capacity"), tier.capacity.map_or(Some("half of what is free".into()), part));
        put(size_key(&tier.name, "reserve"), part(tier.reserve));
    }
    sizes
}

pub const LIBRARY: &str = "libterrace_intercept.so";

/// Beside this program, or where a package puts it. If there is none: where it should be.
fn find_library() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let directory = program.parent().unwrap_or(Path::new("/"));
    let places = [directory.join(LIBRARY), directory.join("../lib/terrace").join(LIBRARY)];
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.unwrap_or_else(|| places[0].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_environment_name_is_noticed() {
        let names = [
            "TERRACE_ROOTS",
            "TERRACE_ROOT",
            "TERRACE_KILL_AT",
            "TERRACE_INDEX",
            "TERRACE_QUERY",
            "PATH",
            "TERRACE_MOVER_THREAD",
        ];
        let warnings = unknown_variables(names.map(OsString::from).into_iter());
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].contains("`TERRACE_ROOT`"));
    }

    #[test]
    fn another_spelling_of_the_root_is_an_alias() {
        let place = tempfile::tempdir().unwrap();
        let (root, link) = (place.path().join("root"), place.path().join("link"));
        std::fs::create_dir(&root).unwrap();
        std::os::unix::fs::symlink(&root, &link).unwrap();
        let root = root.canonicalize().unwrap();
        assert_eq!(aliases(&root, &link, None), std::slice::from_ref(&link));
        assert_eq!(aliases(&root, &root, Some(&link)), [link]);
    }
}
