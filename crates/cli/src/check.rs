//! May a run start with these settings? Each refusal names the thing and a way out.

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use terrace_core::policy::Policy;
use terrace_core::settings::{Settings, TierSettings};
use terrace_core::size::show_bytes;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::filesystem::{FileSystem, is_writable, memory_total_bytes};

/// Less than this is no tier.
const ROOM_MIN_BYTES: u64 = 64 << 10;

/// `joining`: an agent serves this root already, so its tiers are in use and need no room of ours.
pub fn settings(settings: &Settings, joining: bool) -> Result<()> {
    Policy::compile(&settings.policy).map_err(|error| Failure::from(terrace_core::refusal::Refusal::from(error)))?;
    root(&settings.root)?;
    for tier in &settings.tiers {
        self::tier(tier, settings, joining)?;
    }
    overlaps(settings)?;
    quota(settings)?;
    if !joining {
        forwards(settings)?;
    }
    library(&settings.library)
}

/// An agent that goes without a token is refused by its targets, and nobody looks.
pub fn forwards(settings: &Settings) -> Result<()> {
    for rule in &settings.forwards {
        for target in &rule.targets {
            let (container, shown) = (rule.containers.join(" "), target.token_file.display());
            let refuse = |reason: String| {
                Err(Failure::bad_input(
                    format!(
                        "the rule that forwards `{container}` to {}: the token file {shown} {reason}",
                        target.address
                    ),
                    "give a copy of the target's token file (`terrace serve --token-file` there) as the rule's `token_file`",
                ))
            };
            match std::fs::read_to_string(&target.token_file) {
                Ok(text) if text.trim().is_empty() => return refuse("is empty".into()),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return refuse("does not exist".into()),
                Err(error) => return refuse(format!("can't be read: {error}")),
            }
        }
    }
    Ok(())
}

pub fn root(root: &Path) -> Result<()> {
    let refuse =
        |reason: &str, hint: &str| Err(Failure::bad_input(format!("the root {} {reason}", root.display()), hint));
    let system = FileSystem::of(root).map_err(|error| Failure::io("look at the root", root, error))?;
    if crate::mounts::is_at(root) {
        return refuse(
            "is shown by a run's private mount, and this is inside that run",
            "run the command as it is: the mount reaches it",
        );
    }
    if system.read_only {
        return refuse("is on a read-only file system", "choose a root where files can be written with --root DIR");
    }
    if !is_writable(root) {
        return refuse(
            "is not writable for you",
            "ask its owner for write permission, or choose another with --root DIR",
        );
    }
    if matches!(system.kind.as_str(), "vfat" | "exfat") {
        return refuse(
            &format!("is on {}, which has no symbolic links", system.kind),
            "choose a root on a POSIX file system with --root DIR",
        );
    }
    Ok(())
}

fn tier(tier: &TierSettings, settings: &Settings, joining: bool) -> Result<()> {
    let name = &tier.name;
    for path in &tier.paths {
        let shown = path.display();
        let refuse =
            |reason: String, hint: &str| Err(Failure::bad_input(format!("tier `{name}`: {shown} {reason}"), hint));
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return refuse("does not exist".into(), "create it, or correct the tier's `path`");
            }
            Err(error) => return refuse(format!("can't be used: {error}"), "correct the tier's `path`"),
        };
        if !metadata.is_dir() {
            return refuse("is not a directory".into(), "give a directory as the tier's `path`");
        }
        let root = &settings.root;
        if path == root {
            return refuse("is the root itself".into(), "a tier is another, faster directory outside the root");
        }
        if path.starts_with(root) {
            return refuse(format!("lies inside the root {}", root.display()), "choose a tier outside the root");
        }
        if root.starts_with(path) {
            return refuse(
                format!("contains the root {}", root.display()),
                "choose a directory beside the root as the tier, with --tier NAME=PATH or `path`",
            );
        }
        let system = FileSystem::of(path).map_err(|error| Failure::io("look at", path, error))?;
        if system.read_only {
            return refuse("is on a read-only file system".into(), "choose a tier where files can be written");
        }
        if !is_writable(path) {
            return refuse("is not writable for you".into(), "choose a directory of yours, or ask for permission");
        }
        let room = system.available_bytes.saturating_sub(tier.reserve_bytes);
        if room < ROOM_MIN_BYTES && !joining {
            return refuse(
                format!(
                    "has no room: {} available, {} of them reserved",
                    show_bytes(system.available_bytes),
                    show_bytes(tier.reserve_bytes)
                ),
                "free space there, lower the tier's `reserve`, or take the tier out",
            );
        }
        match has_leases(path) {
            Ok(true) => {}
            Ok(false) => {
                return refuse(
                    format!("is on {}, which has no file leases (F_SETLEASE)", system.kind),
                    "use a local file system (tmpfs, ext4, xfs) as a tier",
                );
            }
            Err(error) => {
                return refuse(format!("can't hold files: {error}"), "free space there, or choose another directory");
            }
        }
    }
    if !joining {
        capacity(tier)?;
    }
    if tier.capacity_bytes == 0 && !joining {
        return Err(Failure::bad_input(
            format!("tier `{name}` has capacity 0: nothing could be placed there"),
            "give it a `capacity`, or free its file system",
        ));
    }
    Ok(())
}

/// A tier that promises more than there is fills its file system, or memory, and programs fail where they should have gone on in the
/// next tier. Settings for machines of several sizes say a part (`90%`).
pub fn capacity(tier: &TierSettings) -> Result<()> {
    let mut seen = vec![];
    let (mut total, mut in_memory) = (0u64, false);
    for path in &tier.paths {
        let (Ok(metadata), Ok(system)) = (path.metadata(), FileSystem::of(path)) else { return Ok(()) };
        // Directories of one file system share its room.
        if !seen.contains(&metadata.dev()) {
            seen.push(metadata.dev());
            total = total.saturating_add(system.total_bytes);
            in_memory |= system.is_memory();
        }
    }
    let memory = memory_total_bytes().filter(|_| in_memory);
    let most = memory.map_or(total, |memory| memory.min(total));
    if tier.capacity_bytes <= most {
        return Ok(());
    }
    let (name, places) = (&tier.name, tier.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
    let holder = if most < total { "this machine's memory" } else { "its file system" };
    Err(Failure::bad_input(
        format!(
            "tier `{name}`: capacity {} is more than {holder} has: {} ({})",
            show_bytes(tier.capacity_bytes),
            show_bytes(most),
            places.join(", ")
        ),
        "lower the tier's `capacity`, give a part of what is free (`90%`), or leave it out",
    ))
}

/// Tries a lease on a new file there. `Ok(false)`: this file system has none.
pub fn has_leases(directory: &Path) -> std::io::Result<bool> {
    let file = tempfile::Builder::new().prefix(".terrace-probe-").tempfile_in(directory)?;
    // A read lease is refused while anybody, we included, has the file open for writing.
    let path = file.into_temp_path();
    let reader = std::fs::File::open(&path)?;
    match terrace_tier::Lease::read(std::os::fd::AsFd::as_fd(&reader)) {
        Ok(lease) => Ok(lease.is_some()),
        Err(error) if terrace_tier::Lease::is_unsupported(&error) => Ok(false),
        Err(error) => Err(std::io::Error::from_raw_os_error(error.errno())),
    }
}

fn overlaps(settings: &Settings) -> Result<()> {
    let places: Vec<(&str, &Path)> = settings
        .tiers
        .iter()
        .flat_map(|tier| tier.paths.iter().map(|path| (tier.name.as_str(), path.as_path())))
        .collect();
    for (i, (name, path)) in places.iter().enumerate() {
        for (other_name, other) in &places[..i] {
            let how = match () {
                () if path == other => "is the same directory as",
                () if path.starts_with(other) => "lies inside",
                () if other.starts_with(path) => "contains",
                () => continue,
            };
            return Err(Failure::bad_input(
                format!(
                    "tiers overlap: {} of tier `{name}` {how} {} of tier `{other_name}`",
                    path.display(),
                    other.display()
                ),
                "give each tier its own directories, none inside another",
            ));
        }
    }
    if places.len() > terrace_core::settings::DEVICES_MAX {
        return Err(Failure::bad_input(
            format!(
                "the tiers have {} directories; at most {} are served",
                places.len(),
                terrace_core::settings::DEVICES_MAX
            ),
            "use fewer directories",
        ));
    }
    Ok(())
}

fn quota(settings: &Settings) -> Result<()> {
    if settings.quota_bytes.is_some_and(|quota| quota < ROOM_MIN_BYTES) {
        return Err(Failure::bad_input(
            "the quota leaves no room for any file in the tiers",
            "raise `quota`, or leave it out to have none",
        ));
    }
    Ok(())
}

/// The preload library shares memory with this program: both must be of one build.
pub fn library_version(library: &Path) -> Result<()> {
    let bytes = std::fs::read(library).map_err(|error| Failure::io("read the preload library", library, error))?;
    let found = version_of(&bytes);
    if found.as_deref() == Some(terrace_index::VERSION) {
        return Ok(());
    }
    let found = found.unwrap_or_else(|| "which does not tell its version".into());
    Err(Failure::bad_input(
        format!(
            "the preload library {} is of another version than this program: {found}, and not {}",
            library.display(),
            terrace_index::VERSION
        ),
        "build or install both together (`make build`), or name the library that belongs to this program with --library FILE",
    ))
}

fn version_of(library: &[u8]) -> Option<String> {
    let file = ElfFile64::<Endianness>::parse(library).ok()?;
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(terrace_index::VERSION_SYMBOL))?;
    let bytes =
        file.sections().find_map(|section| section.data_range(symbol.address(), symbol.size()).ok().flatten())?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

fn library(library: &Path) -> Result<()> {
    if library.is_file() {
        return Ok(());
    }
    Err(Failure::bad_input(
        format!("the preload library {} does not exist", library.display()),
        "build or install it beside `terrace`, or name it with --library FILE or TERRACE_LIBRARY",
    ))
}
