//! `terrace doctor`: is everything in place for a run, and can a program be reached? Exit code 1 if something is broken.

use crate::args::DoctorArgs;
use crate::check;
use crate::door::Door;
use crate::program::{Limit, Program, Reach, Way, Weight, reach};
use serde::Serialize;
use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use terrace_core::size::show_bytes;
use terrace_tool::control_client::running;
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::filesystem::{FileSystem, memory_available_bytes};
use terrace_tool::resolve::{Resolved, resolve_here};
use terrace_tool::{out, outln};

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Note,
    Warning,
    Broken,
}

#[derive(Serialize)]
struct Finding {
    state: State,
    what: String,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, state: State, what: &str, text: impl Display, hint: Option<&str>) {
        let (what, text, hint) = (what.to_owned(), text.to_string(), hint.map(str::to_owned));
        self.list.push(Finding { state, what, text, hint });
    }
    fn good(&mut self, what: &str, text: impl Display) {
        self.add(State::Ok, what, text, None);
    }
    fn warn(&mut self, what: &str, text: impl Display) {
        self.add(State::Warning, what, text, None);
    }
    fn broken(&mut self, what: &str, text: impl Display, hint: Option<&str>) {
        self.add(State::Broken, what, text, hint);
    }
    fn failure(&mut self, what: &str, failure: &Failure) {
        self.broken(what, &failure.message, failure.hint.as_deref());
    }
    fn is_broken(&self) -> bool {
        self.list.iter().any(|finding| finding.state == State::Broken)
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Ok => "ok     ",
            State::Note => "note   ",
            State::Warning => "warning",
            State::Broken => "broken ",
        };
        writeln!(f, "{state} {}: {}", self.what, self.text)?;
        match &self.hint {
            Some(hint) => writeln!(f, "        hint: {hint}"),
            None => Ok(()),
        }
    }
}

/// What `--json` prints of a program.
#[derive(Serialize)]
struct Looked {
    /// The file that was looked up, then its interpreters.
    chain: Vec<Step>,
    door: Door,
    #[serde(flatten)]
    reach: Reach,
}

#[derive(Serialize)]
struct Step {
    path: PathBuf,
    kind: String,
}

impl Looked {
    fn new(program: &Program, door: Door, reach: Reach) -> Looked {
        let mut chain = vec![];
        let mut next = Some(program);
        while let Some(program) = next {
            chain.push(Step { path: program.path.clone(), kind: program.kind_in_words() });
            next = program.interpreter();
        }
        Looked { chain, door, reach }
    }
}

pub fn doctor(args: &DoctorArgs) -> Result<i32> {
    let resolved = resolve_here(&args.settings)?;
    let mut findings = Findings::default();
    let looked = match args.command.is_empty() {
        true => None,
        false => Some(program(&mut findings, args, Door::of(&resolved), &resolved.settings.root)?),
    };
    resolved.warnings.iter().for_each(|warning| findings.warn("settings", warning));
    root(&mut findings, &resolved.settings.root);
    let agent = running(&resolved.settings)?;
    tiers(&mut findings, &resolved);
    match check::settings(&resolved.settings, agent.is_some()) {
        Ok(()) => findings.good("settings", "a run can start with them"),
        Err(failure) => findings.failure("settings", &failure),
    }
    match check::library_version(&resolved.settings.library) {
        Ok(()) => findings.good("preload library", resolved.settings.library.display()),
        Err(failure) => findings.failure("preload library", &failure),
    }
    limits(&mut findings, &resolved);
    if let Some(words) = crate::elsewhere::in_words(&resolved.settings) {
        findings.warn("other nodes", words);
    }
    if let Some(words) = crate::elsewhere::above_in_words(&resolved.settings) {
        findings.warn("roots above", words);
    }
    match agent {
        Some((_, status)) => findings.good(
            "agent",
            format!(
                "process {} with {} runs, {} files to be flushed; its log is {}",
                status.agent_pid,
                status.runs.len(),
                status.unflushed_files,
                resolved.settings.log().display()
            ),
        ),
        None => left_behind(&mut findings, &resolved),
    }
    if args.json {
        let all = serde_json::json!({ "program": looked, "findings": findings.list });
        outln!("{all:#}");
    } else {
        findings.list.iter().for_each(|finding| out!("{finding}"));
    }
    Ok(if findings.is_broken() { code::FAILED } else { 0 })
}

fn program(findings: &mut Findings, args: &DoctorArgs, setting: Door, root: &Path) -> Result<Looked> {
    let program = Program::of_command(&args.command);
    let door = args.doors.door(setting)?;
    let reach = reach(&program, door, rustix::process::geteuid().is_root());
    let state = if reach.refusal().is_some() { State::Broken } else { State::Ok };
    findings.add(state, "program", &program, None);
    findings.add(state, "way", reach.way, None);
    for Limit { weight, what, advice } in &reach.limits {
        let state = match weight {
            Weight::Note => State::Note,
            Weight::Warning => State::Warning,
            Weight::Refusal => State::Broken,
        };
        findings.add(state, "way", what, Some(advice));
    }
    if door != Door::Mount && reach.way != Way::Nowhere && !reach.limits.is_empty() {
        mount(findings, root);
    }
    Ok(Looked::new(&program, door, reach))
}

/// The way past the limits of the other doors, and whether it can be had.
fn mount(findings: &mut Findings, root: &Path) {
    match crate::private_mount::namespace(root) {
        Ok(_) => findings.add(
            State::Note,
            "mount",
            "`terrace run --mount` reaches it whatever calls it makes; each look-up, read and write then passes through user space",
            None,
        ),
        Err(failure) => {
            let text = format!("`terrace run --mount` would reach it whatever calls it makes, but {}", failure.message);
            findings.add(State::Note, "mount", text, failure.hint.as_deref());
        }
    }
}

fn root(findings: &mut Findings, root: &Path) {
    match (check::root(root), FileSystem::of(root)) {
        (Ok(()), Ok(system)) => {
            let text =
                format!("{} on {}, {} available", root.display(), system.kind, show_bytes(system.available_bytes));
            findings.good("root", text);
            if system.is_memory() {
                findings.warn("root", "it lies in memory: nothing there is durable");
            }
        }
        (Err(failure), _) => findings.failure("root", &failure),
        (_, Err(error)) => findings.broken("root", format!("{}: {error}", root.display()), None),
    }
}

fn tiers(findings: &mut Findings, resolved: &Resolved) {
    for tier in &resolved.settings.tiers {
        let name = format!("tier {}", tier.name);
        for path in &tier.paths {
            let system = match FileSystem::of(path) {
                Ok(system) => system,
                Err(error) => {
                    findings.broken(&name, format!("{}: {error}", path.display()), Some("correct the tier's `path`"));
                    continue;
                }
            };
            let leases = match check::has_leases(path) {
                Ok(true) => "leases",
                Ok(false) => "no leases",
                Err(_) => "not writable",
            };
            let text = format!(
                "{} on {}, {} of {} available, {} for this tier, {leases}",
                path.display(),
                system.kind,
                show_bytes(system.available_bytes),
                show_bytes(system.total_bytes),
                show_bytes(tier.capacity_bytes)
            );
            match leases {
                "leases" => findings.good(&name, text),
                _ => findings.broken(&name, text, Some("use a local file system where you may write")),
            }
            if system.no_exec {
                findings.warn(
                    &name,
                    "mounted noexec: programs that are built below the root are made durable before they run",
                );
            }
        }
    }
}

fn limits(findings: &mut Findings, resolved: &Resolved) {
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    match open_files {
        Some(limit) if limit < 1024 => {
            findings.warn("open files", format!("the limit is {limit}; raise it with `ulimit -n 4096`"))
        }
        Some(limit) => findings.good("open files", format!("the limit is {limit}")),
        None => findings.good("open files", "no limit"),
    }
    let directories = resolved.settings.tiers.iter().map(|tier| tier.paths.len() as u64).sum::<u64>();
    for (file, needed) in [("max_user_watches", directories), ("max_user_instances", 1)] {
        let limit: Option<u64> = std::fs::read_to_string(Path::new("/proc/sys/fs/inotify").join(file))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        match limit {
            Some(limit) if limit < needed => findings.broken(
                &format!("inotify {file}"),
                format!("{limit}, {needed} are needed"),
                Some("ask for a higher limit (sysctl fs.inotify)"),
            ),
            Some(limit) => findings.good(&format!("inotify {file}"), limit),
            None => findings.warn(&format!("inotify {file}"), "unknown"),
        }
    }
    if let Some(memory) = memory_available_bytes() {
        findings.good("memory", format!("{} available", show_bytes(memory)));
    }
}

fn left_behind(findings: &mut Findings, resolved: &Resolved) {
    findings.good("agent", format!("none runs; its log is {}", resolved.settings.log().display()));
    let settings = terrace_tool::settings_file::last_in_force(&resolved.settings);
    let links = crate::places::links_into_tiers(&settings);
    let lost = links.iter().filter(|(_, object)| !object.exists()).count();
    match links.len() {
        0 => {}
        count => findings.warn(
            "files",
            format!("{count} files below the root are still in a tier; `terrace recover` flushes what policy flushes"),
        ),
    }
    if lost > 0 {
        findings.broken(
            "files",
            format!("{lost} of them lead nowhere: their tier is gone"),
            Some("`terrace recover` names them"),
        );
    }
}
