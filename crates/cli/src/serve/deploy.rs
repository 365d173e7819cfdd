//! One agent on each of several hosts: each is a `terrace serve` of its own, started by ssh, srun or what the user names.
//!
//! This process waits with them: a signal ends them all, and when one ends by itself, so do the others.

use super::FLIGHT_ENV;
use crate::args::ServeArgs;
use crate::shell_words::quoted;
use crate::signals::{self, Signals};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use terrace_core::objects::ObjectError;
use terrace_tool::failure::{Failure, Result, warn};
use terrace_tool::resolve;

const LOOK: Duration = Duration::from_millis(50);
/// An agent that has much to make durable first takes its time.
const PATIENCE: Duration = Duration::from_secs(600);
/// Who waits says so often for whom.
const TELL: Duration = Duration::from_secs(10);
/// Agents whose launcher has ended, but not waited for them (`ssh`), are waited for so long.
const AWAY: Duration = Duration::from_secs(30);

struct Started {
    host: String,
    child: Child,
    status: Option<ExitStatus>,
}

pub fn deploy(hosts: &[String], launcher: &str, args: &ServeArgs) -> Result<i32> {
    let root = resolve::resolve(&args.settings)?.settings.root;
    let signals = Signals::block().map_err(|error| Failure::new(format!("can't take signals: {error}")))?;
    let launch = format!("{:x}-{:x}", std::process::id(), since_1970().as_nanos());
    let mut started = vec![];
    for (number, host) in hosts.iter().enumerate() {
        match start(launcher, host, number, hosts.len(), &launch, &signals) {
            Ok(child) => started.push(Started { host: host.clone(), child, status: None }),
            Err(failure) => {
                end(&mut started, &root, &launch);
                return Err(failure);
            }
        }
    }
    // The first one tells where clients of Flight SQL come to.
    let mut flight = started.first_mut().and_then(|first| first.child.stdout.take()).map(line_of_flight);
    let begun = Instant::now();
    let (mut is_told, mut told_at) = (false, begun);
    loop {
        if let Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) =
            signals.next(LOOK).map(|taken| taken.signal)
        {
            return Ok(end(&mut started, &root, &launch));
        }
        if let Some(gone) = ended(&mut started) {
            end(&mut started, &root, &launch);
            return Err(gone);
        }
        if is_told && let Some(line) = flight.as_ref().and_then(|lines| lines.try_recv().ok()) {
            flight = None;
            let mut out = std::io::stdout();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
        if !is_told {
            match terrace_client::agents_of(&root) {
                Ok(Some(agents)) if agents.len() == hosts.len() && is_of(&root, &launch) => {
                    is_told = true;
                    let mut out = std::io::stdout();
                    // For `eval`: programs of this environment find the agents. A reader that has gone needs no line.
                    let line = format!("export TERRACE_ROOT={}", quoted(root.as_os_str().as_encoded_bytes()));
                    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
                }
                found => {
                    let missing = missing(&root, &launch, &started, found.err());
                    if begun.elapsed() > PATIENCE {
                        end(&mut started, &root, &launch);
                        return Err(Failure::new(format!("not all agents were there in time: {missing}"))
                            .hint("their logs are on their hosts"));
                    }
                    if told_at.elapsed() > TELL {
                        told_at = Instant::now();
                        warn(format!("waiting: {missing}; one makes durable first what it had kept earlier"));
                    }
                }
            }
        }
    }
}

/// Of what an agent prints; the rest is read and left aside.
fn line_of_flight(out: ChildStdout) -> Receiver<String> {
    let (found, told) = channel();
    let of_flight = format!("export {FLIGHT_ENV}=");
    std::thread::spawn(move || {
        for line in BufReader::new(out).split(b'\n').map_while(std::io::Result::ok) {
            // Whatever a login prints; a terminal's lines, by `ssh -tt`, end with two characters.
            let line = String::from_utf8_lossy(&line);
            if let Some(place) = line.find(&of_flight) {
                let _ = found.send(line[place..].trim_end().to_owned());
            }
        }
    });
    told
}

fn since_1970() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// What is written down is of this launch, and not of one that was killed.
fn is_of(root: &Path, launch: &str) -> bool {
    is_written_down(root, 0, launch)
}

fn is_written_down(root: &Path, number: usize, launch: &str) -> bool {
    let entry = terrace_core::members::directory(root, terrace_index::PRIVATE_DIR).join(number.to_string());
    std::fs::read_to_string(entry).is_ok_and(|text| text.contains(launch))
}

/// Who is not there yet.
fn missing(root: &Path, launch: &str, started: &[Started], otherwise: Option<ObjectError>) -> String {
    let away = started.iter().enumerate().filter(|(number, _)| !is_written_down(root, *number, launch));
    let away: Vec<String> = away.map(|(number, one)| format!("agent {number} on {}", one.host)).collect();
    match (away.is_empty(), otherwise) {
        (false, _) => format!("{} not there yet", away.join(", ")),
        (true, Some(error)) => error.message,
        (true, None) => "the agents do not know of each other yet".into(),
    }
}

fn start(launcher: &str, host: &str, number: usize, of: usize, launch: &str, signals: &Signals) -> Result<Child> {
    let words: Vec<String> = launcher.split_whitespace().map(|word| word.replace("{host}", host)).collect();
    let Some((program, flags)) = words.split_first() else {
        return Err(Failure::bad_input("the launcher is empty", "leave --launcher out, or say `ssh {host}`"));
    };
    let script = script(host, number, of, launch)?;
    let mut command = Command::new(program);
    command.args(flags);
    // ssh gives what it gets to a shell; others run a program.
    let is_shell = matches!(Path::new(program).file_name().and_then(|name| name.to_str()), Some("ssh" | "rsh"));
    if !is_shell {
        command.args(["sh", "-c"]);
    }
    command.arg(script).stdin(Stdio::null()).stdout(if number == 0 { Stdio::piped() } else { Stdio::null() });
    let unblock = signals.mask_for_program();
    // SAFETY: sigprocmask is async-signal-safe, and nothing else happens between fork and exec.
    unsafe { command.pre_exec(unblock) };
    command.spawn().map_err(|error| Failure::new(format!("can't start an agent on {host} by `{program}`: {error}")))
}

/// What a shell on the host is to do: this same command, as one of the agents.
fn script(host: &str, number: usize, of: usize, launch: &str) -> Result<String> {
    let here =
        std::env::current_dir().map_err(|error| Failure::new(format!("the current directory is gone: {error}")))?;
    let program =
        std::env::current_exe().map_err(|error| Failure::new(format!("can't find this program itself: {error}")))?;
    let listen = if host.contains(':') { format!("[{host}]:0") } else { format!("{host}:0") };
    let own = ["--member", &format!("{number}/{of}"), "--launch", launch, "--listen", &listen].map(OsString::from);
    let words = passed_on(std::env::args_os().skip(1), number == 0).chain(own);
    let quoted_words: Vec<String> = words.map(|word| quoted(word.as_encoded_bytes())).collect();
    let (here, program) = (quoted(here.as_os_str().as_encoded_bytes()), quoted(program.as_os_str().as_encoded_bytes()));
    Ok(format!("cd {here} && exec {program} {}", quoted_words.join(" ")))
}

/// Flags with a value that are for the one who deploys.
const OWN: &[&str] = &["--hosts", "--launcher"];
/// Those that are for the first agent alone: it answers clients of Flight SQL.
const OF_FIRST: &[&str] = &["--flight", "--query-memory", "--query-memory-each", "--query-timeout", "--query-spill"];

/// This command's own words, as far as they are for this agent.
fn passed_on(words: impl Iterator<Item = OsString>, is_first: bool) -> impl Iterator<Item = OsString> {
    let mut skips_next = false;
    let of_others = if is_first { &[] } else { OF_FIRST };
    words.filter(move |word| {
        if std::mem::take(&mut skips_next) {
            return false;
        }
        let text = word.to_string_lossy();
        let (flag, has_value) = text.split_once('=').map_or((text.as_ref(), false), |(flag, _)| (flag, true));
        let is_left_out = OWN.iter().chain(of_others).any(|known| *known == flag);
        skips_next = is_left_out && !has_value;
        !is_left_out && flag != "--slurm"
    })
}

/// Why, if one has ended by itself.
fn ended(started: &mut [Started]) -> Option<Failure> {
    let of = started.len();
    started.iter_mut().enumerate().find_map(|(number, started)| {
        let status = started.child.try_wait().ok()??;
        started.status = Some(status);
        let host = &started.host;
        Some(Failure::new(format!("agent {number} of {of}, on {host}, has ended ({status}): the others are ended too")))
    })
}

/// Ends all, each with what it has to make durable, and waits for that; the worst exit code.
fn end(started: &mut [Started], root: &Path, launch: &str) -> i32 {
    for one in started.iter().filter(|one| one.status.is_none()) {
        signals::send(one.child.id(), libc::SIGTERM);
    }
    let mut worst = 0;
    for one in started.iter_mut() {
        match one.status.map_or_else(|| one.child.wait(), Ok) {
            Ok(status) => worst = worst.max(status.code().unwrap_or(1)),
            Err(error) => {
                warn(format!("the agent on {} can't be waited for: {error}", one.host));
                worst = worst.max(1);
            }
        }
    }
    let (begun, mut told_at) = (Instant::now(), Instant::now());
    loop {
        let left = started.iter().enumerate().filter(|(number, _)| is_written_down(root, *number, launch));
        let left: Vec<String> = left.map(|(number, one)| format!("agent {number} on {}", one.host)).collect();
        // One that was killed stays written down: its command has ended with something else than 0.
        if left.is_empty() || worst != 0 {
            return worst;
        }
        if begun.elapsed() > AWAY {
            warn(format!("{} still lives: programs are connected to it", left.join(", ")));
            return worst;
        }
        if told_at.elapsed() > TELL {
            told_at = Instant::now();
            warn(format!("waiting for {} to end", left.join(", ")));
        }
        std::thread::sleep(LOOK);
    }
}
