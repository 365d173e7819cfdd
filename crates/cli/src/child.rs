//! The program of a run: started with the preload library, given the signals that come to us, waited for.
//!
//! It stays in our process group, so a terminal treats both as one job: what the terminal sends, the program gets by
//! itself, and only what a process sent to us is passed on.

use crate::private_mount::PrivateMount;
use crate::scheduler::TimeLeft;
use crate::signals::{Signals, Taken, send, stop_self};
use crate::supervision::Supervision;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use terrace_tool::failure::{Failure, Result, code};

pub struct Ended {
    /// As a shell gives it: 128 + signal for a program that a signal ended.
    pub code: i32,
    pub elapsed: Duration,
    /// The walltime ended it.
    pub out_of_time: bool,
}

pub struct Start<'a> {
    pub command: &'a [OsString],
    /// `None`: the program is reached by the supervisor only.
    pub library: Option<&'a Path>,
    /// The CFITSIO driver, where it is wanted.
    pub driver: Option<&'a Path>,
    /// Variables that drivers and connectors are found by.
    pub environment: Vec<(&'static str, OsString)>,
    pub supervision: Option<&'a Supervision>,
    /// Reaches the program instead of both.
    pub mount: Option<&'a PrivateMount>,
    pub index: &'a Path,
    /// When the program must have ended.
    pub deadline: Option<Instant>,
    pub agent_pid: u32,
    /// Called once, when the program is told to end.
    pub ending: &'a dyn Fn(),
}

/// A program that was told to end has this long before it is killed.
const LAST_WORDS: Duration = Duration::from_secs(5);

pub fn run(start: &Start, signals: &Signals, time: &mut TimeLeft) -> Result<Ended> {
    let begun = Instant::now();
    let mut command = Command::new(&start.command[0]);
    command.args(&start.command[1..]);
    let ours: Vec<&Path> = [start.library, start.driver].into_iter().flatten().collect();
    if !ours.is_empty() {
        command.env("LD_PRELOAD", preload(&ours, std::env::var_os("LD_PRELOAD")));
    }
    match start.mount {
        None => command.env("TERRACE_INDEX", start.index),
        // A library that somebody preloads must not see links where the mount shows files.
        Some(_) => command.env_remove("TERRACE_INDEX"),
    };
    command.envs(start.environment.iter().map(|(name, value)| (name, value)));
    let mask = signals.mask_for_program();
    // SAFETY: the closure only calls sigprocmask, which is async-signal-safe.
    unsafe { command.pre_exec(mask) };
    if let Some(supervision) = start.supervision {
        // SAFETY: the closure makes nothing but system calls on what was made before.
        unsafe { command.pre_exec(supervision.enter()) };
    }
    if let Some(mount) = start.mount {
        // SAFETY: as above.
        unsafe { command.pre_exec(mount.enter()) };
    }
    let child = command.spawn().map_err(|error| {
        if let Some(failure) = start.mount.and_then(PrivateMount::refused) {
            return failure;
        }
        let how = match error.kind() {
            std::io::ErrorKind::NotFound => code::NOT_FOUND,
            _ => code::NOT_EXECUTABLE,
        };
        Failure::new(format!("can't run {}: {error}", Path::new(&start.command[0]).display())).code(how)
    })?;
    let pid = child.id();
    // When it was told to end, and how long it has for that.
    let mut told_to_end: Option<(Instant, Duration)> = None;
    let (mut killed, mut out_of_time) = (false, false);
    loop {
        match wait(pid) {
            Waited::Ended(status) => {
                let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                return Ok(Ended { code, elapsed: begun.elapsed(), out_of_time });
            }
            Waited::Stopped(signal) => {
                // Stopped by the terminal, or by itself as an editor does: the whole job stops.
                if matches!(signal, libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) {
                    stop_self();
                }
            }
            Waited::Nothing => {}
        }
        let now = Instant::now();
        if told_to_end.is_none() && start.deadline.is_some_and(|deadline| now >= deadline) {
            terrace_tool::failure::warn(
                "the walltime is near its end: the program is told to end, then its files are flushed",
            );
            (told_to_end, out_of_time) = (Some((now, LAST_WORDS)), true);
            send_to_all(pid, libc::SIGTERM, start.agent_pid);
            (start.ending)();
        }
        if !killed && told_to_end.is_some_and(|(when, patience)| now >= when + patience) {
            killed = true;
            send_to_all(pid, libc::SIGKILL, start.agent_pid);
        }
        if let Some(taken) = signals.next(next_look(start.deadline, told_to_end, now)) {
            pass_on(taken, pid);
            if matches!(taken, Taken { signal: libc::SIGTERM, by_process: true }) && told_to_end.is_none() {
                time.begin();
                // Without a batch system nobody is going to kill it, and it decides itself.
                told_to_end = time.of_program().map(|patience| (Instant::now(), patience));
                (start.ending)();
            }
        }
    }
}

fn next_look(deadline: Option<Instant>, told_to_end: Option<(Instant, Duration)>, now: Instant) -> Duration {
    let moment = told_to_end.map(|(when, patience)| when + patience).or(deadline);
    let left = moment.map_or(Duration::from_secs(3600), |moment| moment.saturating_duration_since(now));
    left.clamp(Duration::from_millis(10), Duration::from_secs(3600))
}

fn pass_on(taken: Taken, pid: u32) {
    match taken {
        Taken { signal: libc::SIGCHLD, .. } => {}
        Taken { signal: libc::SIGTSTP, by_process } => {
            if by_process {
                send(pid, libc::SIGTSTP);
            }
            stop_self();
        }
        Taken { signal, by_process: true } => send(pid, signal),
        // The terminal sent it to the whole foreground group.
        Taken { .. } => {}
    }
}

enum Waited {
    Ended(ExitStatus),
    Stopped(libc::c_int),
    Nothing,
}

fn wait(pid: u32) -> Waited {
    let mut status = 0;
    // SAFETY: `status` is a live integer; no other thread waits for this child.
    let found = unsafe { libc::waitpid(pid as libc::pid_t, &mut status, libc::WNOHANG | libc::WUNTRACED) };
    if found != pid as libc::pid_t {
        return Waited::Nothing;
    }
    if libc::WIFSTOPPED(status) {
        return Waited::Stopped(libc::WSTOPSIG(status));
    }
    Waited::Ended(ExitStatus::from_raw(status))
}

/// Sends a signal to the program and to all that descend from it, except the agent.
fn send_to_all(program: u32, signal: libc::c_int, agent_pid: u32) {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent_in_stat(&stat) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut waiting = vec![program];
    while let Some(pid) = waiting.pop() {
        if pid != agent_pid {
            send(pid, signal);
            waiting.extend(children.remove(&pid).unwrap_or_default());
        }
    }
}

/// `PID (NAME) STATE PARENT …`; the name may have any characters, so count from its last parenthesis.
fn parent_in_stat(stat: &[u8]) -> Option<u32> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[after_name + 1..]).ok()?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Ours first, then what was there.
pub fn preload(ours: &[&Path], before: Option<OsString>) -> OsString {
    let before = before.unwrap_or_default();
    let others = before.as_bytes().split(|byte| matches!(byte, b' ' | b':')).map(OsStr::from_bytes);
    let others = others.filter(|other| !other.is_empty() && !ours.iter().any(|path| path.as_os_str() == *other));
    let all: Vec<&OsStr> = ours.iter().map(|path| path.as_os_str()).chain(others).collect();
    all.join(OsStr::new(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_libraries_come_first_and_once() {
        let (library, driver) = (Path::new("/l/terrace.so"), Path::new("/l/driver.so"));
        assert_eq!(preload(&[library], None), "/l/terrace.so");
        assert_eq!(preload(&[library], Some("/a.so /l/terrace.so:/b.so".into())), "/l/terrace.so:/a.so:/b.so");
        assert_eq!(preload(&[library, driver], Some("/l/driver.so:/a.so".into())), "/l/terrace.so:/l/driver.so:/a.so");
    }

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent_in_stat(b"7 (a) b) S 42 7 7"), Some(42));
        assert_eq!(parent_in_stat(b"7"), None);
    }
}
