//! What policy does with a path.
//!
//! Three lists of patterns: what to flush (make durable), what to evict (drop from the faster tiers), what to prefetch.
//! In each list the last pattern that matches decides, so a later line refines an earlier one and `!pattern` takes back.
//!
//! | in flush | in evict | mode |
//! | --- | --- | --- |
//! | yes | no | copy |
//! | no | yes | remove |
//! | yes | yes | move |
//! | no | no | keep |
//!
//! Paths are relative to the root and any bytes: what is not UTF-8 is matched as bytes.

use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// keep: stays in its tier; copy: flushed; remove: dropped at the end of the run; move: flushed and evicted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Keep,
    Copy,
    Remove,
    Move,
}

impl Mode {
    pub fn of(flush: bool, evict: bool) -> Mode {
        match (flush, evict) {
            (true, false) => Mode::Copy,
            (false, true) => Mode::Remove,
            (true, true) => Mode::Move,
            (false, false) => Mode::Keep,
        }
    }
    /// The file ends up in the root.
    pub fn flushes(self) -> bool {
        matches!(self, Mode::Copy | Mode::Move)
    }
    /// The faster tier's copy goes.
    pub fn evicts(self) -> bool {
        matches!(self, Mode::Remove | Mode::Move)
    }
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Keep => "keep",
            Mode::Copy => "copy",
            Mode::Remove => "remove",
            Mode::Move => "move",
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// The three lists, as the user wrote them. The default flushes everything: nothing may be lost for want of a list.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields)]
pub struct PolicySettings {
    pub flush: Vec<String>,
    pub evict: Vec<String>,
    pub prefetch: Vec<String>,
}

/// Matches every file.
pub const EVERYTHING: &str = "**";

impl Default for PolicySettings {
    fn default() -> Self {
        PolicySettings { flush: vec![EVERYTHING.into()], evict: vec![], prefetch: vec![] }
    }
}

/// What policy says of one path.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Decision {
    pub mode: Mode,
    /// The patterns that decided, each with its list; `None` when none matched.
    pub rule: Option<String>,
    pub prefetch: bool,
}

/// A pattern that can't be used: which, why, and a way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy `{list}`: pattern `{pattern}` can't be parsed: {reason}")]
pub struct PolicyError {
    pub list: &'static str,
    pub pattern: String,
    pub reason: String,
    pub hint: String,
}

/// Compiled patterns. Cheap to clone is not needed: one per agent.
#[derive(Debug)]
pub struct Policy {
    flush: List,
    evict: List,
    prefetch: List,
}

impl Policy {
    pub fn compile(settings: &PolicySettings) -> Result<Policy, PolicyError> {
        Ok(Policy {
            flush: List::compile("flush", &settings.flush)?,
            evict: List::compile("evict", &settings.evict)?,
            prefetch: List::compile("prefetch", &settings.prefetch)?,
        })
    }

    /// `relative` is the file's path below the root, without a leading slash.
    pub fn decide(&self, relative: &Path) -> Decision {
        let path = relative.as_os_str().as_bytes();
        let (flush, evict) = (self.flush.last_match(path), self.evict.last_match(path));
        let rules: Vec<String> = [("flush", flush), ("evict", evict)]
            .into_iter()
            .filter_map(|(list, found)| Some(format!("{list} `{}`", found?.text)))
            .collect();
        Decision {
            mode: Mode::of(is_in(flush), is_in(evict)),
            rule: (!rules.is_empty()).then(|| rules.join(", ")),
            prefetch: is_in(self.prefetch.last_match(path)),
        }
    }

    /// `decide(..).mode` without the text of the rules.
    pub fn mode(&self, relative: &Path) -> Mode {
        let path = relative.as_os_str().as_bytes();
        Mode::of(is_in(self.flush.last_match(path)), is_in(self.evict.last_match(path)))
    }

    /// True: every file that there may ever be below this directory is dropped at the end of the run (`Mode::Remove`). False also
    /// where that can't be told from the patterns.
    pub fn drops_all_below(&self, directory: &Path) -> bool {
        let directory = directory.as_os_str().as_bytes();
        self.flush.all_below(directory) == Some(false) && self.evict.all_below(directory) == Some(true)
    }

    /// True: every file that there may ever be below this directory is made durable. False also where that can't be told.
    pub fn flushes_all_below(&self, directory: &Path) -> bool {
        self.flush.all_below(directory.as_os_str().as_bytes()) == Some(true)
    }

    /// True: every file that there may ever be is made durable. False also where that can't be told.
    pub fn flushes_everything(&self) -> bool {
        self.flush.has_everything()
    }

    /// There may be a directory that `flushes_all_below`.
    pub fn may_flush_directories(&self) -> bool {
        self.flush.may_have_all_below()
    }

    /// There may be a directory that `drops_all_below`. Where there is none, nothing has to look for them.
    pub fn may_drop_directories(&self) -> bool {
        self.evict.may_have_all_below() && !self.flush.has_everything()
    }

    /// Directories that are there and that `evict` takes in as a whole, by patterns without `**` in their directory's part: what
    /// could only be found by a walk of the tree is left out.
    pub fn dropped_directories(&self, root: &Path) -> Vec<PathBuf> {
        let patterns = self.evict.patterns.iter().filter(|pattern| !pattern.negated && pattern.directory.is_some());
        let wholes = patterns.map(|pattern| whole_glob(&pattern.text));
        let directories = wholes.filter_map(|whole| whole.strip_suffix("/**").map(str::to_owned));
        let mut found: Vec<PathBuf> = directories.flat_map(|text| matching(root, &text)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// No file is ever prefetched: a walk of the tree would find nothing.
    pub fn prefetches_nothing(&self) -> bool {
        self.prefetch.patterns.iter().all(|pattern| pattern.negated)
    }
}

/// One list of patterns by itself, for whoever else is set by paths.
#[derive(Debug)]
pub struct Patterns(List);

impl Patterns {
    pub fn compile(name: &'static str, texts: &[String]) -> Result<Patterns, PolicyError> {
        List::compile(name, texts).map(Patterns)
    }

    /// The last pattern that matches takes it in.
    pub fn has(&self, relative: &Path) -> bool {
        is_in(self.0.last_match(relative.as_os_str().as_bytes()))
    }
}

fn is_in(found: Option<&Pattern>) -> bool {
    found.is_some_and(|pattern| !pattern.negated)
}

#[derive(Debug)]
struct List {
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
struct Pattern {
    text: String,
    negated: bool,
    matcher: Matcher,
    /// Of a glob that ends with `/**`: what matches the directory itself.
    directory: Option<GlobMatcher>,
}

/// Which paths below a directory a pattern matches.
#[derive(PartialEq)]
enum Below {
    All,
    None,
    Some,
}

#[derive(Debug)]
enum Matcher {
    Everything,
    Glob(GlobMatcher),
    Regex(Regex),
}

impl Matcher {
    fn is_everything(&self) -> bool {
        matches!(self, Matcher::Everything)
    }
}

impl List {
    fn compile(list: &'static str, texts: &[String]) -> Result<List, PolicyError> {
        let patterns = texts.iter().map(|text| Pattern::compile(list, text)).collect::<Result<_, _>>()?;
        Ok(List { patterns })
    }

    /// Whether all paths below the directory are in the list, or none is; `None`: it can't be told, or differs.
    fn all_below(&self, directory: &[u8]) -> Option<bool> {
        let mut may_be = [false; 2];
        for pattern in self.patterns.iter().rev() {
            match pattern.below(directory) {
                Below::None => {}
                Below::Some => may_be[!pattern.negated as usize] = true,
                Below::All => {
                    may_be[!pattern.negated as usize] = true;
                    return (may_be[0] != may_be[1]).then_some(may_be[1]);
                }
            }
        }
        (!may_be[1]).then_some(false)
    }

    /// Some pattern takes in all that is below some directory.
    fn may_have_all_below(&self) -> bool {
        let is_whole = |pattern: &Pattern| pattern.matcher.is_everything() || pattern.directory.is_some();
        self.patterns.iter().any(|pattern| !pattern.negated && is_whole(pattern))
    }

    /// Every path there may be.
    fn has_everything(&self) -> bool {
        let last_whole = self.patterns.iter().rposition(|pattern| !pattern.negated && pattern.matcher.is_everything());
        last_whole.is_some_and(|at| self.patterns[at..].iter().all(|pattern| !pattern.negated))
    }

    fn last_match(&self, path: &[u8]) -> Option<&Pattern> {
        self.patterns.iter().rev().find(|pattern| pattern.matches(path))
    }
}

impl Pattern {
    fn compile(list: &'static str, text: &str) -> Result<Pattern, PolicyError> {
        let error = |reason: String, hint: String| PolicyError { list, pattern: text.into(), reason, hint };
        let (negated, body) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if body.is_empty() {
            return Err(error("it is empty".into(), "write `**` for every file, or take the entry out".into()));
        }
        let matcher = if let Some(expression) = body.strip_prefix("re:") {
            // `.` matches a newline too: a file's name may have one.
            let built = RegexBuilder::new(expression).dot_matches_new_line(true).unicode(false).build();
            let built = built.or_else(|_| RegexBuilder::new(expression).dot_matches_new_line(true).build());
            Matcher::Regex(built.map_err(|e| {
                let hint = "regular expressions are those of the Rust crate `regex` (no look-around, no back-references); \
                            a literal `.`, `(`, `[`, `{`, `*`, `+`, `?` is written with a backslash before it";
                error(last_line(&e.to_string()), hint.into())
            })?)
        } else if body == EVERYTHING {
            Matcher::Everything
        } else {
            Matcher::Glob(compile_glob(body).map_err(|(reason, hint)| error(reason, hint))?)
        };
        let directory = match &matcher {
            Matcher::Glob(_) => whole_glob(body).strip_suffix("/**").and_then(|directory| compile_glob(directory).ok()),
            _ => None,
        };
        Ok(Pattern { text: text.into(), negated, matcher, directory })
    }

    fn below(&self, directory: &[u8]) -> Below {
        match &self.matcher {
            Matcher::Everything => return Below::All,
            Matcher::Regex(_) => return Below::Some,
            Matcher::Glob(_) => {}
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(directory));
        if let Some(matcher) = &self.directory
            && path.ancestors().any(|above| !above.as_os_str().is_empty() && matcher.is_match(above))
        {
            return Below::All;
        }
        let glob = whole_glob(self.text.strip_prefix('!').unwrap_or(&self.text));
        let is_special = |byte: u8| matches!(byte, b'*' | b'?' | b'[' | b'{' | b'\\');
        let literal = glob.bytes().take_while(|&byte| !is_special(byte)).collect::<Vec<u8>>();
        let inside = if directory.is_empty() { vec![] } else { [directory, b"/"].concat() };
        let is_apart = !literal.starts_with(&inside) && !inside.starts_with(&literal);
        // Without `**`, alternatives and classes, which may have slashes (`[!x]` is one), it matches paths of its own depth only.
        let is_flat = !glob.contains("**") && !glob.contains(['{', '[']);
        let depth = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte == b'/').count();
        match is_apart || is_flat && depth(glob.as_bytes()) < depth(&inside) {
            true => Below::None,
            false => Below::Some,
        }
    }

    fn matches(&self, path: &[u8]) -> bool {
        match &self.matcher {
            Matcher::Everything => true,
            Matcher::Glob(glob) => glob.is_match(Path::new(std::ffi::OsStr::from_bytes(path))),
            Matcher::Regex(regex) => regex.is_match(path),
        }
    }
}

/// Paths below the root that a glob matches, component by component.
fn matching(root: &Path, glob: &str) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    for component in glob.split('/') {
        if component.contains("**") || component.contains('{') || glob.contains('\\') {
            return vec![];
        }
        if !component.contains(['*', '?', '[']) {
            found = found.iter().map(|above| above.join(component)).collect();
            continue;
        }
        let Ok(matcher) = compile_glob(component) else { return vec![] };
        let entries = found.iter().filter_map(|above| std::fs::read_dir(above).ok()).flatten().flatten();
        let entries = entries.filter(|entry| matcher.is_match(Path::new(&entry.file_name())));
        found = entries.map(|entry| entry.path()).collect();
    }
    found
}

/// A directory stands for all that is below it.
fn whole_glob(body: &str) -> String {
    let relative = body.strip_prefix("./").unwrap_or(body);
    if relative.ends_with('/') { format!("{relative}**") } else { relative.to_owned() }
}

fn compile_glob(body: &str) -> Result<GlobMatcher, (String, String)> {
    let relative = body.strip_prefix("./").unwrap_or(body);
    if let Some(rest) = relative.strip_prefix('/') {
        return Err((
            "patterns are relative to the root, this one starts with `/`".into(),
            format!("write `{rest}` if that is below the root"),
        ));
    }
    GlobBuilder::new(&whole_glob(relative)).literal_separator(true).backslash_escape(true).build().map(|glob| glob.compile_matcher()).map_err(
        |e| {
            (
                e.kind().to_string(),
                "write a special character as itself with a backslash before it (`\\[`), or use `re:` and a regular expression".into(),
            )
        },
    )
}

/// The regex crate draws the expression over several lines; its last line has the reason.
fn last_line(text: &str) -> String {
    let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or(text).trim();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(flush: &[&str], evict: &[&str]) -> Policy {
        let texts = |list: &[&str]| list.iter().map(|t| t.to_string()).collect();
        Policy::compile(&PolicySettings { flush: texts(flush), evict: texts(evict), prefetch: vec![] }).unwrap()
    }

    fn mode(policy: &Policy, path: &str) -> Mode {
        policy.decide(Path::new(path)).mode
    }

    #[test]
    fn no_configuration_flushes_everything() {
        let policy = Policy::compile(&PolicySettings::default()).unwrap();
        for path in ["a", "a/b/c.nii.gz", ".hidden", "with space/ü"] {
            assert_eq!(mode(&policy, path), Mode::Copy);
        }
    }

    #[test]
    fn the_two_lists_make_four_modes() {
        let policy = policy(&["derivatives/**"], &["work/**", "derivatives/tmp/**"]);
        assert_eq!(mode(&policy, "derivatives/a.nii"), Mode::Copy);
        assert_eq!(mode(&policy, "derivatives/tmp/x/y"), Mode::Move);
        assert_eq!(mode(&policy, "work/a"), Mode::Remove);
        assert_eq!(mode(&policy, "code/run.py"), Mode::Keep);
    }

    #[test]
    fn a_star_stays_in_its_directory_and_two_stars_do_not() {
        let policy = policy(&["*.nii"], &["sub-*/**/*.gz"]);
        assert_eq!(mode(&policy, "a.nii"), Mode::Copy);
        assert_eq!(mode(&policy, "d/a.nii"), Mode::Keep);
        assert_eq!(mode(&policy, "sub-01/a.gz"), Mode::Remove);
        assert_eq!(mode(&policy, "sub-01/anat/deep/a.gz"), Mode::Remove);
    }

    #[test]
    fn the_last_match_wins_and_an_exclamation_mark_takes_back() {
        let policy = policy(&["**", "!scratch/**", "scratch/keep/**"], &[]);
        assert_eq!(mode(&policy, "a"), Mode::Copy);
        assert_eq!(mode(&policy, "scratch/a"), Mode::Keep);
        assert_eq!(mode(&policy, "scratch/keep/a"), Mode::Copy);
    }

    #[test]
    fn a_directory_is_scratch_only_if_every_file_that_there_may_be_is() {
        let drops = |flush: &[&str], evict: &[&str], at: &str| policy(flush, evict).drops_all_below(Path::new(at));
        assert!(drops(&["**", "!work/**"], &["work/**"], "work"));
        assert!(drops(&["**", "!work/"], &["work/"], "work/a/b"));
        assert!(drops(&["*.nii", "out/**"], &["sub-*/work/**"], "sub-1/work"));
        assert!(!drops(&["**"], &["work/**"], "work"));
        assert!(!drops(&["**", "!work/**"], &["work/**"], "other"));
        assert!(!drops(&["**", "!work/**", "work/keep/**"], &["work/**"], "work"));
        assert!(drops(&["**", "!work/**", "work/keep/**"], &["work/**"], "work/x"));
        assert!(!drops(&["**", "!work/**", "**/*.log"], &["work/**"], "work/x"));
        assert!(!drops(&["!**"], &["work/*"], "work"));
        assert!(!drops(&["!**", r"re:\.log$"], &["work/**"], "work"));
        // A class may be a slash.
        assert!(!drops(&["work[!x]keep*"], &["**"], "work"));
        assert!(!drops(&[], &[], "work"));
    }

    #[test]
    fn the_root_itself_is_a_directory_in_which_some_files_may_be_dropped() {
        let flushes = |flush: &[&str]| policy(flush, &[]).flushes_all_below(Path::new(""));
        assert!(flushes(&["**"]));
        assert!(!flushes(&["**", "!*.tmp"]));
        assert!(!flushes(&["**", "!scratch*"]));
        assert!(!flushes(&["**", "!work/**"]));
    }

    #[test]
    fn policies_that_drop_no_directory_are_known() {
        let may = |flush: &[&str], evict: &[&str]| policy(flush, evict).may_drop_directories();
        assert!(may(&["**", "!work/**"], &["work/**"]));
        assert!(may(&["out/**"], &["**"]));
        assert!(may(&[], &["work/"]));
        assert!(!may(&["**"], &["**"]));
        assert!(!may(&["!work/**", "**"], &["work/**"]));
        assert!(!may(&["**", "!**/*.tmp"], &["**/*.tmp"]));
        assert!(!may(&["**"], &[]));
    }

    #[test]
    fn directories_that_are_dropped_whole_are_found_where_the_pattern_says_where_to_look() {
        let root = tempfile::tempdir().unwrap();
        for name in ["work", "sub-1/tmp", "sub-2/tmp", "other/tmp"] {
            std::fs::create_dir_all(root.path().join(name)).unwrap();
        }
        let policy = policy(&[], &["work/", "sub-*/tmp/**", "**/deep/**", "gone/**", "!other/**", "*.o"]);
        let found = policy.dropped_directories(root.path());
        let names: Vec<_> =
            found.iter().map(|path| path.strip_prefix(root.path()).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["gone", "sub-1/tmp", "sub-2/tmp", "work"]);
    }

    #[test]
    fn a_directory_with_a_slash_stands_for_all_below_it() {
        let policy = policy(&["out/"], &[]);
        assert_eq!(mode(&policy, "out/a/b"), Mode::Copy);
        assert_eq!(mode(&policy, "out"), Mode::Keep);
    }

    #[test]
    fn a_regular_expression_is_searched_unless_anchored() {
        let policy = policy(&[r"re:iter_\d+", "re:^final"], &[]);
        assert_eq!(mode(&policy, "a/iter_12.nii"), Mode::Copy);
        assert_eq!(mode(&policy, "a/final"), Mode::Keep);
        assert_eq!(mode(&policy, "final/a"), Mode::Copy);
    }

    #[test]
    fn names_that_are_not_text_are_matched_as_bytes() {
        let policy = policy(&["re:^x.y$"], &["x*"]);
        let path = Path::new(std::ffi::OsStr::from_bytes(b"x\xffy"));
        assert_eq!(policy.decide(path).mode, Mode::Move);
    }

    #[test]
    fn the_decision_names_its_rules() {
        let policy = policy(&["**", "!work/**"], &["work/**"]);
        assert_eq!(policy.decide(Path::new("work/a")).rule.unwrap(), "flush `!work/**`, evict `work/**`");
        assert_eq!(policy.decide(Path::new("a")).rule.unwrap(), "flush `**`");
    }

    #[test]
    fn a_pattern_that_cannot_be_parsed_names_itself_and_a_way_out() {
        for (text, reason) in
            [("[a", "unclosed"), ("re:(", "unclosed"), ("{a,b", "unclosed"), ("/abs/x", "relative"), ("!", "empty")]
        {
            let settings = PolicySettings { flush: vec!["**".into()], evict: vec![text.into()], prefetch: vec![] };
            let error = Policy::compile(&settings).unwrap_err();
            assert_eq!((error.list, error.pattern.as_str()), ("evict", text));
            assert!(error.to_string().contains(reason), "{text}: {error}");
            assert!(!error.hint.is_empty());
        }
    }

    proptest! {
        #[test]
        fn any_text_compiles_or_is_refused_by_name(text in ".{0,40}") {
            let settings = PolicySettings { flush: vec![text.clone()], evict: vec![], prefetch: vec![] };
            match Policy::compile(&settings) {
                Ok(policy) => { policy.decide(Path::new("a/b")); }
                Err(error) => prop_assert!(error.to_string().contains(&text)),
            }
        }

        #[test]
        fn a_pattern_and_then_its_negation_matches_nothing(path in "[a-c]{1,3}(/[a-c]{1,3}){0,3}", glob in "[a-c*/?]{1,8}") {
            prop_assume!(!glob.starts_with('/'));
            let negated = format!("!{glob}");
            let policy = policy(&[&glob, &negated], &[&glob, &negated]);
            prop_assert_eq!(mode(&policy, &path), Mode::Keep);
        }

        #[test]
        fn appending_everything_overrides_what_came_before(path in "[a-c./]{1,12}", globs in proptest::collection::vec("!?[a-c*?]{1,6}", 0..5)) {
            let mut list: Vec<&str> = globs.iter().map(String::as_str).collect();
            list.push("**");
            prop_assert_eq!(mode(&policy(&list, &[]), &path), Mode::Copy);
            list.push("!**");
            prop_assert_eq!(mode(&policy(&list, &[]), &path), Mode::Keep);
        }

        #[test]
        fn what_is_below_a_scratch_directory_is_dropped(
            flush in proptest::collection::vec("!?([ab*]|\\[!b\\]){1,3}(/[ab*]{1,2}){0,2}(/\\*\\*)?", 0..4),
            evict in proptest::collection::vec("!?([ab*]|\\[!b\\]){1,3}(/[ab*]{1,2}){0,2}(/\\*\\*)?", 0..4),
            dir in "[ab](/[ab]){0,2}", below in "[ab](/[ab]){0,2}",
        ) {
            let text = |list: &[String]| list.iter().map(String::as_str).map(str::to_owned).collect();
            let settings = PolicySettings { flush: text(&flush), evict: text(&evict), prefetch: vec![] };
            if let Ok(policy) = Policy::compile(&settings) && policy.drops_all_below(Path::new(&dir)) {
                prop_assert!(policy.may_drop_directories());
                prop_assert_eq!(mode(&policy, &format!("{dir}/{below}")), Mode::Remove);
            }
        }

        #[test]
        fn every_file_below_a_directory_is_matched_by_its_two_stars(dir in "[a-z]{1,5}", rest in "[a-z.]{1,5}(/[a-z]{1,5}){0,4}") {
            let glob = format!("{dir}/**");
            let policy = policy(&[], &[&glob]);
            prop_assert_eq!(mode(&policy, &format!("{dir}/{rest}")), Mode::Remove);
            prop_assert_eq!(mode(&policy, &format!("x{dir}/{rest}")), Mode::Keep);
        }
    }
}
