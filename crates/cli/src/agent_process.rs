//! Starts the agent of a root when none is there, joins it when one is.
//!
//! Two commands may do this at once: each connects, or else starts an agent and connects. The agents settle by their
//! lock who serves; the other one exits quietly, and its starter joins the winner.
//!
//! Invariant: `state/settings.json` has the settings of the agent that serves, or last served. It is written by the
//! command whose own agent won.

use crate::control_client::Client;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use terrace_core::settings::Settings;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result};

/// An agent that lives but does not listen yet is recovering a large tree.
const PATIENCE: Duration = Duration::from_secs(120);
const STARTS_MAX: u32 = 20;

/// How a connection came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    Started,
    Existing,
}

pub struct Connection {
    pub client: Client,
    pub joined: Joined,
}

/// `again`: an agent of this run died; a fault that was asked for by the environment is not repeated.
pub fn ensure(settings: &Settings, again: bool) -> Result<Connection> {
    let begun = Instant::now();
    let mut own: Option<Child> = None;
    let mut starts = 0;
    let mut told = false;
    loop {
        // Status also proves that it is not just about to end.
        if let Ok(mut client) = Client::connect(settings)
            && let Ok(status) = client.status()
        {
            let joined = match &own {
                Some(child) if child.id() == status.agent_pid => Joined::Started,
                _ => Joined::Existing,
            };
            match joined {
                Joined::Started => put_in_force(settings)?,
                Joined::Existing => {
                    let _ = std::fs::remove_file(own_settings(settings));
                    await_in_force(settings);
                }
            }
            if let Some(mut child) = own.take() {
                // Whoever dies before us is not to stay a zombie.
                std::thread::spawn(move || child.wait());
            }
            return Ok(Connection { client, joined });
        }
        match own.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => {}
            Some(Ok(Some(status))) if !status.success() => return Err(died(settings, &status.to_string())),
            _ if starts >= STARTS_MAX => {
                return Err(died(settings, "another agent holds its lock and does not answer"));
            }
            // A program of a supervised run, or of one with a private mount, sees files where an agent must see links: the run itself starts its agent again.
            _ if is_inside_a_run(settings) || crate::mounts::is_at(&settings.root) => {}
            _ => {
                if starts > 0 {
                    // Another one holds the lock: it is starting, or ending.
                    std::thread::sleep(Duration::from_millis(100));
                }
                own = Some(spawn(settings, again || starts > 0)?);
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
        std::thread::sleep(Duration::from_millis(if begun.elapsed() < Duration::from_millis(200) { 2 } else { 20 }));
    }
}

/// True in a program of a supervised run on the same root.
fn is_inside_a_run(settings: &Settings) -> bool {
    // SAFETY: asks only.
    let is_filtered = unsafe { libc::prctl(libc::PR_GET_SECCOMP) } == libc::SECCOMP_MODE_FILTER as i32;
    is_filtered && std::env::var_os("TERRACE_INDEX").is_some_and(|index| settings.index() == Path::new(&index))
}

fn spawn(settings: &Settings, again: bool) -> Result<Child> {
    make_runtime(settings)?;
    make_private(&settings.state)?;
    let file = own_settings(settings);
    write_settings(settings, &file)?;
    let log_path = settings.log();
    let open_log = || std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&log_path);
    let log = open_log().map_err(|error| Failure::io("write the agent's log", &log_path, error))?;
    let log_too = log.try_clone().map_err(|error| Failure::io("write the agent's log", &log_path, error))?;
    let program =
        std::env::current_exe().map_err(|error| Failure::new(format!("can't find this program itself: {error}")))?;
    let mut command = Command::new(program);
    command.arg("agent").arg("--settings").arg(&file);
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

/// What this process gives to an agent that it starts.
fn own_settings(settings: &Settings) -> std::path::PathBuf {
    settings.state.join(format!("settings-{}.json", std::process::id()))
}

fn put_in_force(settings: &Settings) -> Result<()> {
    let own = own_settings(settings);
    let target = settings.in_force();
    if own.exists() { std::fs::rename(&own, &target) } else { Ok(()) }
        .map_err(|error| Failure::io("write the settings", &target, error))
}

/// Who started the agent that answers puts its settings in force a moment later, if it is not killed before.
fn await_in_force(settings: &Settings) {
    let begun = Instant::now();
    while !settings.in_force().exists() && begun.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The settings of the agent that serves, or last served, this root.
pub fn in_force(settings: &Settings) -> Option<Settings> {
    read_settings(&settings.in_force()).ok()
}

pub fn read_settings(file: &Path) -> Result<Settings> {
    let text = std::fs::read(file).map_err(|error| Failure::io("read the settings", file, error))?;
    serde_json::from_slice(&text).map_err(|error| {
        Failure::new(format!("{} is not settings of this version: {error}", file.display()))
            .hint("remove it; it is written again")
    })
}

/// What a joining command asked for and does not get: the keys that differ.
pub fn differences(wanted: &Settings, in_force: &Settings) -> Vec<&'static str> {
    let mut keys = vec![];
    let places = |settings: &Settings| -> Vec<(String, Vec<std::path::PathBuf>)> {
        settings.tiers.iter().map(|tier| (tier.name.clone(), tier.paths.clone())).collect()
    };
    // Capacities in percent differ from moment to moment: only places count.
    if places(wanted) != places(in_force) {
        keys.push("tier");
    }
    if wanted.policy != in_force.policy {
        keys.push("policy");
    }
    if wanted.mover != in_force.mover {
        keys.push("mover");
    }
    if wanted.quota_bytes != in_force.quota_bytes {
        keys.push("quota");
    }
    keys
}
