//! `terrace doctor`: is everything in place for a run, and can a program be reached? Exit code 1 if something is broken.

use crate::args::DoctorArgs;
use crate::check;
use crate::control_client::running;
use crate::failure::{Failure, Result, code};
use crate::filesystem::{FileSystem, has_leases, memory_available_bytes};
use crate::program::{Kind, Program};
use crate::resolve::{Resolved, resolve};
use std::fmt::Display;
use std::path::Path;
use terrace_core::size::show_bytes;

#[derive(Default)]
struct Findings {
    broken: u32,
}

impl Findings {
    fn good(&mut self, what: &str, text: impl Display) {
        println!("ok      {what}: {text}");
    }
    fn warn(&mut self, what: &str, text: impl Display) {
        println!("warning {what}: {text}");
    }
    fn broken(&mut self, what: &str, text: impl Display, hint: Option<&str>) {
        self.broken += 1;
        println!("broken  {what}: {text}");
        if let Some(hint) = hint {
            println!("        hint: {hint}");
        }
    }
    fn failure(&mut self, what: &str, failure: &Failure) {
        self.broken(what, &failure.message, failure.hint.as_deref());
    }
}

pub fn doctor(args: &DoctorArgs) -> Result<i32> {
    let resolved = resolve(&args.settings)?;
    let mut findings = Findings::default();
    if let Some(command) = &args.program {
        program(&mut findings, &Program::find(command));
    }
    resolved.warnings.iter().for_each(|warning| findings.warn("settings", warning));
    root(&mut findings, &resolved.settings.root);
    let agent = running(&resolved.settings)?;
    tiers(&mut findings, &resolved);
    match check::settings(&resolved.settings, agent.is_some()) {
        Ok(()) => findings.good("settings", "a run can start with them"),
        Err(failure) => findings.failure("settings", &failure),
    }
    match resolved.settings.library.is_file() {
        true => findings.good("preload library", resolved.settings.library.display()),
        false => {
            findings.broken("preload library", format!("{} does not exist", resolved.settings.library.display()), None)
        }
    }
    limits(&mut findings, &resolved);
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
    Ok(if findings.broken > 0 { code::FAILED } else { 0 })
}

fn program(findings: &mut Findings, program: &Program) {
    match &program.last().kind {
        Kind::Dynamic | Kind::Unknown => findings.good("program", format!("{program}: everything it does is served")),
        Kind::NotFound | Kind::NotExecutable(_) => findings.broken("program", program, None),
        Kind::Static | Kind::StaticGo => findings.broken(
            "program",
            format!("{program}: the preload library can't reach it"),
            Some("it reads the right bytes, but sees links where files are in a tier, and what it creates is durable at once; use a dynamically linked build"),
        ),
        _ => findings.broken("program", program, Some("use a build for this machine's glibc that needs no extra rights")),
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
            let leases = match has_leases(path) {
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
    let settings = crate::agent_process::in_force(&resolved.settings).unwrap_or_else(|| resolved.settings.clone());
    let links = crate::move_files::links_into_tiers(&settings);
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
