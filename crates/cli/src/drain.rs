//! `terrace drain`: what a user's jobs left on this node, below every root, is made durable while the node is still held.
//!
//!   STATE/ROOTID/settings.json, for each root ─▶ unfinished? ─▶ an agent lives: it is told to end, unless runs use it
//!                                                            └▶ none: as `terrace recover` with the settings that were in force
//!
//! Invariant: all of it is done as the user: root gives its rights away before it looks at anything of theirs.

use crate::args::{DrainArgs, RecoverArgs};
use crate::recover::recover_alone;
use std::path::Path;
use terrace_core::control::Request;
use terrace_core::settings::{Settings, user_dir};
use terrace_tool::control_client::{lost, running};
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::outln;
use terrace_tool::resolve::uid;
use terrace_tool::settings_file::read_settings;

pub fn drain(args: &DrainArgs) -> Result<i32> {
    if let Some(user) = args.uid.filter(|user| *user != uid()) {
        become_user(user)?;
    }
    let place = args.state.clone().unwrap_or_else(|| user_dir(Path::new("/var/tmp"), uid()));
    let mut worst = 0;
    let mut roots: Vec<_> = match std::fs::read_dir(&place) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => vec![],
        Err(error) => return Err(Failure::io("look at", &place, error)),
    };
    roots.sort();
    for state in roots {
        let Ok(settings) = read_settings(&state.join("settings.json")) else { continue };
        if !settings.unfinished().exists() {
            continue;
        }
        let drained = drain_root(&settings).unwrap_or_else(|failure| {
            failure.print();
            failure.code
        });
        worst = worst.max(drained);
    }
    Ok(worst)
}

fn drain_root(settings: &Settings) -> Result<i32> {
    let root = settings.root.display();
    if let Some((mut client, status)) = running(settings)? {
        if !status.runs.is_empty() {
            outln!(
                "{root}: {} runs still use the agent (process {}); it is left to them",
                status.runs.len(),
                status.agent_pid
            );
            return Ok(0);
        }
        let moved = client.move_files(&Request::Shutdown, |_| {}).map_err(lost)?;
        outln!("{root}: the agent (process {}) has flushed {} files and ends", status.agent_pid, moved.files);
        return Ok(if moved.failures.is_empty() { 0 } else { code::NOT_DURABLE });
    }
    if !settings.root.is_dir() {
        return Err(Failure::new(format!("{root} is not there: what belongs there stays in its tiers"))
            .hint("mount it, and drain again"));
    }
    match recover_alone(&RecoverArgs::default(), settings)? {
        Some(code) => Ok(code),
        None => {
            outln!("{root}: an agent has just begun; it is left to it");
            Ok(0)
        }
    }
}

/// For good.
fn become_user(user: u32) -> Result<()> {
    let failed = |what: &str| {
        Failure::bad_input(
            format!("can't {what} user {user}: {}", std::io::Error::last_os_error()),
            "run this as root, or as that user without --uid",
        )
    };
    // SAFETY: getpwuid's answer is read before any other call of its family; no other thread runs yet.
    unsafe {
        let found = libc::getpwuid(user);
        let group = if found.is_null() { user } else { (*found).pw_gid };
        let has_groups = match found.is_null() {
            true => libc::setgroups(1, &group) == 0,
            false => libc::initgroups((*found).pw_name, group) == 0,
        };
        if !has_groups || libc::setgid(group) != 0 || libc::setuid(user) != 0 {
            return Err(failed("become"));
        }
    }
    Ok(())
}
