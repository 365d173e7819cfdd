//! Sea's own configuration, taken as it is: `sea.ini` and its lists.
//!
//! `source_0` … `source_N` (`cache_0` … in later versions; each a comma-separated list) are the tiers, fast to slow; the last
//! one is the durable root. `mount_dir` was the view that programs had to use: here they use the root itself.
//! The lists (`.sea_flushlist`, `.sea_evictlist`, `.sea_prefetchlist`, beside `sea.ini`) have one regular expression a
//! line, which must match a file's whole path below the mount.

use crate::refusal::Refusal;
use crate::size::Size;
use crate::wanted::WantedTier;
use ini::{Ini, ParseOption};
use std::path::PathBuf;

/// What a `sea.ini` says, in our words.
#[derive(Clone, Debug, PartialEq)]
pub struct SeaSettings {
    pub root: PathBuf,
    /// The view that programs were told to use.
    pub mount: PathBuf,
    pub tiers: Vec<WantedTier>,
    /// Keys that are accepted and have no effect, each with the reason.
    pub not_needed: Vec<String>,
}

/// `variable` looks up an environment variable: a source may be the name of one (`SLURM_TMPDIR`).
pub fn parse_ini(text: &str, origin: &str, variable: impl Fn(&str) -> Option<String>) -> Result<SeaSettings, Refusal> {
    let options = ParseOption { enabled_quote: false, enabled_escape: false, ..ParseOption::default() };
    // Sea's examples indent every line.
    let flat: String = text.lines().map(|line| format!("{}\n", line.trim())).collect();
    let ini = Ini::load_from_str_opt(&flat, options).map_err(|error| {
        Refusal::new(
            format!("{origin}: line {}: {}", error.line, error.msg),
            "write `key = value ;` below a line `[Sea]`",
        )
    })?;
    let section =
        ini.iter().find(|(name, _)| name.is_some_and(|n| n.eq_ignore_ascii_case("sea"))).map(|(_, keys)| keys);
    let section = section.ok_or_else(|| {
        Refusal::new(
            format!("{origin}: there is no section `[Sea]`"),
            "this must be a file as Sea reads it (`sea.ini`)",
        )
    })?;
    let get = |key: &str| -> Option<String> {
        let (_, value) = section.iter().find(|(name, _)| name.eq_ignore_ascii_case(key))?;
        let value = value.split([';', '#']).next().unwrap_or("").trim();
        (!value.is_empty()).then(|| value.to_owned())
    };
    let missing = |key: &str, hint: &str| Refusal::new(format!("{origin}: `{key}` is missing"), hint);
    let levels = get("n_levels").or_else(|| get("n_sources"));
    let levels = levels.ok_or_else(|| missing("n_levels", "add the number of levels, such as `n_levels = 2 ;`"))?;
    let levels: usize = levels.parse().map_err(|_| {
        Refusal::new(
            format!("{origin}: `n_levels`: `{levels}` is not a whole number"),
            "write the number of `source_` lines",
        )
    })?;
    if levels < 2 {
        return Err(Refusal::new(
            format!("{origin}: `n_levels` is {levels}: there is no faster tier above the durable one"),
            "add a faster `source_0`, such as /dev/shm, make the durable directory `source_1` and `n_levels = 2 ;`",
        ));
    }
    let mut sources = (0..levels)
        .map(|i| {
            let found = get(&format!("source_{i}")).or_else(|| get(&format!("cache_{i}")));
            let found = found.ok_or_else(|| {
                missing(&format!("source_{i}"), "each level from 0 to n_levels - 1 needs its `source_` line")
            })?;
            Ok(found.split(',').map(|path| resolve_source(path.trim(), &variable)).collect::<Vec<_>>())
        })
        .collect::<Result<Vec<Vec<PathBuf>>, Refusal>>()?;
    let last = sources.pop().expect("there are at least two levels");
    let [root] = &last[..] else {
        return Err(Refusal::new(
            format!("{origin}: the last level, `source_{}`, has {} directories", levels - 1, last.len()),
            "the durable level is one directory",
        ));
    };
    let tiers = sources.into_iter().enumerate().map(|(i, paths)| WantedTier {
        name: format!("source_{i}"),
        paths,
        capacity: None,
        reserve: Size::Bytes(0),
        read_bytes_s: None,
        write_bytes_s: None,
    });
    let not_needed = [
        ("max_fs", "files may grow to any size"),
        ("n_threads", "any number of processes may write"),
        ("log_file", "the agent's log is named by `terrace doctor`"),
        ("log_level", "the agent logs what matters"),
    ];
    Ok(SeaSettings {
        root: root.clone(),
        mount: get("mount_dir").ok_or_else(|| missing("mount_dir", "add the directory that programs used"))?.into(),
        tiers: tiers.collect(),
        not_needed: not_needed
            .iter()
            .filter(|(key, _)| get(key).is_some())
            .map(|(key, reason)| format!("`{key}` is not needed: {reason}"))
            .collect(),
    })
}

fn resolve_source(text: &str, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let name = text.strip_prefix('$').unwrap_or(text);
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then(|| variable(name)).flatten().unwrap_or_else(|| text.to_owned()).into()
}

/// One of Sea's lists as patterns of ours, and what is to be warned of. `prefixes`: directories that an expression may start with
/// and that stand for the root (the mount, the sources).
pub fn parse_list(text: &str, origin: &str, prefixes: &[&str]) -> (Vec<String>, Vec<String>) {
    let mut warnings = vec![];
    let mut patterns = vec![];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let stripped = prefixes.iter().find_map(|prefix| line.strip_prefix(prefix.trim_end_matches('/')));
        let relative = stripped.unwrap_or(line).trim_start_matches('/');
        if looks_like_a_glob(relative) {
            warnings.push(format!(
                "{origin}: `{line}` looks like a file pattern of the shell; in Sea's lists `*` repeats what is before it: write `.*`"
            ));
        }
        patterns.push(format!("re:^(?:{relative})$"));
    }
    (patterns, warnings)
}

/// A `*` after something that nobody repeats: a letter, a digit, `-`, `_`, `/`, or nothing.
fn looks_like_a_glob(expression: &str) -> bool {
    let mut before = '/';
    for c in expression.chars() {
        if c == '*' && (before.is_alphanumeric() || "-_/".contains(before)) {
            return true;
        }
        // `\d*` repeats a class.
        before = if before == '\\' { ')' } else { c };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Mode, Policy, PolicySettings};
    use std::path::Path;

    const EXAMPLE: &str = "
          # Sea configuration
          [Sea]
          mount_dir = /lustre/seamount ;
          n_levels = 3 ;
          source_0 = /dev/shm/seasource ;
          source_1 = /disk0/sea,/disk1/sea ;  # two disks
          source_2 = /lustre/seasource ;
          log_level = 0 ; # 4 crashes tests
          log_file = /lustre/sea.log ;
          max_fs = 646971392 ;
          n_threads = 16 ;
    ";

    #[test]
    fn the_example_of_seas_own_manual_is_read() {
        let sea = parse_ini(EXAMPLE, "sea.ini", |_| None).unwrap();
        assert_eq!(
            (sea.root.as_path(), sea.mount.as_path()),
            (Path::new("/lustre/seasource"), Path::new("/lustre/seamount"))
        );
        assert_eq!(sea.tiers.len(), 2);
        assert_eq!(sea.tiers[1].paths, [PathBuf::from("/disk0/sea"), "/disk1/sea".into()]);
        assert_eq!(sea.not_needed.len(), 4);
    }

    #[test]
    fn a_source_may_be_the_name_of_a_variable() {
        let text = "[Sea]\nmount_dir=/m\nn_levels=2\nsource_0=SLURM_TMPDIR\nsource_1=$DATA\n";
        let sea = parse_ini(text, "sea.ini", |name| Some(format!("/job/{name}"))).unwrap();
        assert_eq!(sea.tiers[0].paths, [PathBuf::from("/job/SLURM_TMPDIR")]);
        assert_eq!(sea.root, Path::new("/job/DATA"));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, message) in [
            ("x = 1", "`[Sea]`"),
            ("[Sea]\nmount_dir = /m", "`n_levels` is missing"),
            ("[Sea]\nn_levels = many", "`many` is not a whole number"),
            ("[Sea]\nn_levels = 1\nsource_0 = /a", "no faster tier"),
            ("[Sea]\nn_levels = 2\nsource_0 = /a", "`source_1` is missing"),
            ("[Sea]\nn_levels = 2\nsource_0 = /a\nsource_1 = /b,/c", "2 directories"),
            ("[Sea]\nn_levels = 2\nsource_0 = /a\nsource_1 = /b", "`mount_dir` is missing"),
        ] {
            let refusal = parse_ini(text, "sea.ini", |_| None).unwrap_err();
            assert!(refusal.message.contains(message), "{text}: {refusal:?}");
        }
    }

    #[test]
    fn an_expression_matches_the_whole_path_below_the_mount() {
        let (flush, warnings) = parse_list(".*_final\\.nii\n/lustre/seamount/out/.*\n\n", "l", &["/lustre/seamount/"]);
        assert!(warnings.is_empty());
        let policy = Policy::compile(&PolicySettings { flush, evict: vec![], prefetch: vec![] }).unwrap();
        for (path, mode) in [
            ("a/b_final.nii", Mode::Copy),
            ("a/b_final.nii.gz", Mode::Keep),
            ("out/x", Mode::Copy),
            ("y/out/x", Mode::Keep),
        ] {
            assert_eq!(policy.decide(Path::new(path)).mode, mode, "{path}");
        }
    }

    #[test]
    fn a_shell_pattern_in_a_list_is_warned_of() {
        for (line, warned) in
            [("4-*.nii", true), ("*.nii", true), ("sub-.*", false), (r"\d*", false), ("[ab]*x", false)]
        {
            assert_eq!(!parse_list(line, "l", &[]).1.is_empty(), warned, "{line}");
        }
    }
}
