//! Starts the agent of a root when none is there, joins it when one is.
//!
//! Two commands may do this at once: each connects, or else starts an agent and connects. The agents settle by their
//! lock who serves; the other one exits quietly, and its starter joins the winner.
//!
//! `state/settings.json` has the settings of the agent that serves, or last served: the agent itself writes it.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use terrace_core::settings::Settings;
use terrace_tool::control_client::Client;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result};

/// An agent that lives but does not listen yet is recovering a large tree.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_MIN: Duration = Duration::from_micros(500);
const LOOK_MAX: Duration = Duration::from_millis(20);
const STARTS_MAX: u32 = 20;
/// Somebody who kills an agent that starts may kill the next one, too, but not for ever.
const KILLS_MAX: u32 = 3;
/// An agent whose connections have ended is gone after so long at the latest.
const LAST_STEPS: Duration = Duration::from_secs(10);

/// `again`: an agent of this run died; a fault that was asked for by the environment is not repeated.
pub fn ensure(settings: &Settings, again: bool) -> Result<Client> {
    let file = own_settings(settings);
    let reached = reach(settings, &file, again);
    let _ = std::fs::remove_file(&file);
    if reached.is_err() {
        // Made for an agent that never began. One that did has files in it.
        let _ = std::fs::remove_dir(&settings.runtime);
    }
    reached
}

fn reach(settings: &Settings, file: &Path, again: bool) -> Result<Client> {
    let begun = Instant::now();
    let mut own: Option<Child> = None;
    let (mut starts, mut killed) = (0, 0);
    let mut told = false;
    loop {
        // Status also proves that it is not just about to end.
        if let Ok(mut client) = Client::connect(settings)
            && client.status().is_ok()
        {
            if let Some(mut child) = own.take() {
                // Whoever dies before us is not to stay a zombie.
                std::thread::spawn(move || child.wait());
            }
            return Ok(client);
        }
        match own.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => {}
            Some(Ok(Some(status))) if !status.success() && (status.signal().is_none() || killed == KILLS_MAX) => {
                return Err(died(settings, &status.to_string()));
            }
            _ if starts >= STARTS_MAX => {
                return Err(died(settings, "another agent holds its lock and does not answer"));
            }
            // A program of a supervised run, or of one with a private mount, sees files where an agent must see links: the run itself starts its agent again.
            _ if is_inside_a_run(settings) || crate::mounts::is_at(&settings.root) => {}
            _ => {
                if starts > 0 {
                    // Another one holds the lock: it is starting, or ending. Or ours was killed.
                    std::thread::sleep(Duration::from_millis(100));
                }
                killed += own.is_some_and(|mut own| own.wait().is_ok_and(|status| status.signal().is_some())) as u32;
                own = Some(spawn(settings, file, again || starts > 0)?);
                starts += 1;
            }
        }
        if begun.elapsed() > PATIENCE {
            return Err(died(settings, "it did not listen in time"));
        }
        if !told && begun.elapsed() > Duration::from_secs(3) {
            told = true;
            errln!(
                "terrace: waiting for the agent of {}: it looks through what an earlier one left",
                settings.root.display()
            );
        }
        // A tenth of what has passed: an agent that starts at once is met at once, one that recovers is not disturbed.
        std::thread::sleep((begun.elapsed() / 10).clamp(LOOK_MIN, LOOK_MAX));
    }
}

/// True in a program of a supervised run on the same root.
fn is_inside_a_run(settings: &Settings) -> bool {
    // SAFETY: asks only.
    let is_filtered = unsafe { libc::prctl(libc::PR_GET_SECCOMP) } == libc::SECCOMP_MODE_FILTER as i32;
    is_filtered && std::env::var_os("TERRACE_INDEX").is_some_and(|index| settings.index() == Path::new(&index))
}

fn spawn(settings: &Settings, file: &Path, again: bool) -> Result<Child> {
    make_runtime(settings)?;
    make_private(&settings.state)?;
    write_settings(settings, file)?;
    let log_path = settings.log();
    let open_log = || std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path);
    let log = open_log().map_err(|error| Failure::io("write the agent's log", &log_path, error))?;
    let log_too = log.try_clone().map_err(|error| Failure::io("write the agent's log", &log_path, error))?;
    let program =
        std::env::current_exe().map_err(|error| Failure::new(format!("can't find this program itself: {error}")))?;
    let mut command = Command::new(program);
    command.arg("agent").arg("--settings").arg(file);
    command.stdin(Stdio::null()).stdout(log).stderr(log_too).current_dir("/");
    // An agent that was started from inside a run is not a program of that run.
    command.env_remove("LD_PRELOAD").env_remove("TERRACE_INDEX");
    if again {
        command.env_remove("TERRACE_KILL_AT");
    }
    // SAFETY: setsid and sigprocmask are async-signal-safe, and nothing else happens between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // Signals of the terminal are for the program; the agent outlives it until all is flushed.
            rustix::process::setsid()?;
            crate::signals::unblock_all()
        });
    }
    command.spawn().map_err(|error| Failure::new(format!("can't start the agent: {error}")))
}

fn died(settings: &Settings, how: &str) -> Failure {
    let log = settings.log();
    let tail = last_lines(&log, 5);
    let said = if tail.is_empty() { String::new() } else { format!("\n  it said: {tail}") };
    Failure::new(format!("the agent of {} could not be reached: {how}{said}", settings.root.display()))
        .hint(format!("its log is {}", log.display()))
}

fn last_lines(file: &Path, count: usize) -> String {
    let mut text = String::new();
    if let Ok(mut file) = std::fs::File::open(file) {
        let length = file.metadata().map_or(0, |m| m.len());
        let _ = file.seek(SeekFrom::Start(length.saturating_sub(4096)));
        let mut bytes = vec![];
        let _ = file.read_to_end(&mut bytes);
        text = String::from_utf8_lossy(&bytes).into_owned();
    }
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n  ")
}

pub fn make_private(directory: &Path) -> Result<()> {
    make_directory(directory, 0o700)
}

/// The directory of the shared memory and the sockets. Programs of root that switched to another user reach the agent's socket
/// in it; all else in it is root's own.
pub fn make_runtime(settings: &Settings) -> Result<()> {
    make_directory(&settings.runtime, if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 })
}

fn make_directory(directory: &Path, mode: u32) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(directory);
    made.map_err(|error| {
        Failure::io("make the directory", directory, error).hint("`state` and `runtime` in the settings move it")
    })
}

fn write_settings(settings: &Settings, file: &Path) -> Result<()> {
    let text = serde_json::to_vec_pretty(settings).expect("settings are plain data");
    let written = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file);
    written
        .and_then(|mut out| std::io::Write::write_all(&mut out, &text))
        .map_err(|error| Failure::io("write the settings", file, error))
}

/// What this process gives to an agent that it starts. Several of its threads may each start one.
fn own_settings(settings: &Settings) -> PathBuf {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Relaxed);
    settings.state.join(format!("settings-{}-{number}.json", std::process::id()))
}

/// Waits until a process has ended, and with it all that it held. Not for ever, and not at all for one that can't be seen.
pub fn await_end(pid: u32) {
    has_ended_within(pid, LAST_STEPS);
}

/// The same; or until an agent serves the root again, which may be this process: it deals with what an earlier agent left by that one's
/// settings, and then goes on by its own.
pub fn await_next(settings: &Settings, pid: u32) {
    let begun = Instant::now();
    while !has_ended_within(pid, LOOK_MAX) && begun.elapsed() < LAST_STEPS {
        if Client::connect(settings).is_ok_and(|mut client| client.status().is_ok()) {
            return;
        }
    }
}

fn has_ended_within(pid: u32, patience: Duration) -> bool {
    let Some(pid) = rustix::process::Pid::from_raw(pid as i32) else { return true };
    let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return true };
    let mut fds = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    let patience =
        rustix::event::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    rustix::event::poll(&mut fds, Some(&patience)) != Ok(0)
}
