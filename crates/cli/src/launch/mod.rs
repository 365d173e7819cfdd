//! `terrace run --nodes`: an agent on every node of a job, held by a `terrace join` there, for as long as one program runs.
//!
//!   nodes (which, and what starts something there) ─▶ join on each node ─▶ all have joined ─▶ the program ─▶ end ─▶ their reports
//!
//!   said    the lines by which a node speaks        board    what the nodes leave in the root for the launch
//!
//! The program's tasks on another node find that node's agent by the path that the environment names, which is the same everywhere.
//!
//! Invariant: when a launch has ended, each node's files are durable, or the report says what is left, and on which node.
//! A launch that dies ends its nodes: their standard input ends with it.

pub mod board;
mod join;
mod nodes;
mod said;

pub use join::join;

use crate::args::RunArgs;
use crate::elsewhere;
use crate::report::NodeReport;
use crate::shell_words::quoted;
use crate::signals::{Signals, wake};
use board::Board;
use nodes::{Launcher, Nodes};
use said::Said;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};
use terrace_core::settings::Settings;
use terrace_core::size::show_bytes;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, warn};

const FLUSH: &str = "flush";
/// The first line: standard input is passed on.
const HELLO: &str = "terrace";
/// A node that starts an agent may have to look through what an earlier one left.
const PATIENCE: Duration = Duration::from_secs(180);
/// Who waits says so often for whom.
const TELL: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(200);
/// A launcher that has ended is listened to so long.
const LAST_LINES: Duration = Duration::from_secs(1);
/// A second interrupt ends the wait for nodes.
const INTERRUPTS: u32 = 2;

pub struct Launch {
    board: Board,
    starters: Vec<Starter>,
    /// How many nodes there are, if that is known before they say it.
    of: Option<usize>,
    shared: Arc<Shared>,
}

/// A process of the launcher's: of one node, or of all.
struct Starter {
    /// For people: the host, or the launcher.
    name: String,
    stdin: Option<ChildStdin>,
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    /// How many said that they are there, the launch's own node included, and how many there are to be by their own word.
    present: usize,
    of: Option<usize>,
    nodes: BTreeMap<String, Joined>,
    ended: Vec<(String, ExitStatus)>,
    is_ending: bool,
}

struct Joined {
    host: String,
    /// Files and bytes that were not durable when it last said so.
    left: Option<(u64, u64)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn hear(&self, said: Said) {
        let mut state = self.state();
        match said {
            Said::Reach { .. } => {}
            Said::Joined { tag, host, of } => {
                state.present += 1;
                state.of = Some(of);
                state.nodes.insert(tag, Joined { host, left: None });
            }
            Said::Same { of } => {
                state.present += 1;
                state.of = Some(of);
            }
            Said::Left { tag, files, bytes } => {
                if let Some(node) = state.nodes.get_mut(&tag) {
                    node.left = Some((files, bytes));
                }
            }
            Said::Done { tag } => {
                if let Some(node) = state.nodes.get_mut(&tag) {
                    node.left = Some((0, 0));
                }
            }
        }
        drop(state);
        wake();
    }
}

impl Launch {
    /// What `--nodes` asks for, checked before anything is started.
    pub fn wanted(args: &RunArgs) -> Result<Option<Wanted>> {
        let Some(wanted) = &args.nodes else { return Ok(None) };
        let environment = |name: &str| std::env::var(name).ok();
        Ok(Some(Wanted(Nodes::find(wanted, args.launcher.as_deref(), environment)?)))
    }

    /// Starts all nodes, and returns when each has its agent. The agent of this node is there already.
    pub fn begin(wanted: Wanted, args: &RunArgs, settings: &Settings, signals: &Signals) -> Result<Launch> {
        let Wanted(nodes) = wanted;
        let id = format!("{:x}-{:x}", std::process::id(), since_1970().as_nanos());
        let board = Board::of(&settings.root, &id)?;
        board.make()?;
        let of = nodes.hosts.as_ref().map(Vec::len);
        let mut launch = Launch { board, starters: vec![], of, shared: Arc::default() };
        let script = script(args, settings, &id, of)?;
        let begun = launch.start_all(&nodes, &script, signals).and_then(|()| launch.await_all(signals));
        match begun {
            Ok(()) => Ok(launch),
            Err(failure) => {
                launch.say_end();
                launch.await_ended(signals, None);
                launch.board.remove();
                Err(failure)
            }
        }
    }

    fn start_all(&mut self, nodes: &Nodes, script: &str, signals: &Signals) -> Result<()> {
        match (&nodes.launcher, &nodes.hosts) {
            (Launcher::Each(words), Some(hosts)) => hosts.iter().try_for_each(|host| {
                let words: Vec<String> = words.iter().map(|word| word.replace("{host}", host)).collect();
                self.start(host.clone(), &words, script, signals)
            }),
            (Launcher::All(words), _) => self.start(words[0].clone(), words, script, signals),
            (Launcher::Each(_), None) => unreachable!("`Nodes::find` has refused it"),
        }
    }

    fn start(&mut self, name: String, words: &[String], script: &str, signals: &Signals) -> Result<()> {
        let (program, flags) = words.split_first().expect("a launcher has words");
        let mut command = Command::new(program);
        command.args(flags);
        // ssh gives what it gets to a shell; others run a program.
        let is_shell = matches!(Path::new(program).file_name().and_then(|name| name.to_str()), Some("ssh" | "rsh"));
        if !is_shell {
            command.args(["sh", "-c"]);
        }
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A launch from inside a run: what it starts is none of that run's programs.
        command.env_remove("LD_PRELOAD").env_remove(terrace_index::INDEX_ENV);
        let unblock = signals.mask_for_program();
        let apart = || rustix::process::setsid().map(|_| ()).map_err(std::io::Error::from);
        // SAFETY: setsid and sigprocmask are async-signal-safe. What a terminal sends is for the program; the launch ends its nodes itself.
        unsafe { command.pre_exec(move || apart().and_then(|()| unblock())) };
        let mut child = command
            .spawn()
            .map_err(|error| Failure::new(format!("can't start an agent on {name} by `{program}`: {error}")))?;
        let mut stdin = child.stdin.take();
        if let Some(stdin) = &mut stdin {
            // A launcher that has gone already is found by its end.
            let _ = writeln!(stdin, "{HELLO}");
        }
        let (shared, told, stdout) = (self.shared.clone(), name.clone(), child.stdout.take());
        std::thread::spawn(move || attend(child, stdout, &told, &shared));
        self.starters.push(Starter { name, stdin });
        Ok(())
    }

    fn await_all(&self, signals: &Signals) -> Result<()> {
        let (begun, mut told) = (Instant::now(), Instant::now());
        loop {
            {
                let state = self.shared.state();
                let of = self.of.or(state.of);
                if of.is_some_and(|of| state.present >= of) {
                    return Ok(());
                }
                if let Some((name, status)) = state.ended.first() {
                    return Err(Failure::new(format!("{name}: no agent could be started there ({status})")).hint(
                        "what it said is above; the `terrace` program, its library and the root must be at the same paths on each node",
                    ));
                }
                let progress = match of {
                    Some(of) => format!("{} of {of} nodes have joined", state.present),
                    None => "no node has joined yet".into(),
                };
                if begun.elapsed() > PATIENCE {
                    return Err(Failure::new(format!("only {progress} in {} s", PATIENCE.as_secs())));
                }
                if told.elapsed() > TELL {
                    told = Instant::now();
                    errln!("terrace: waiting: {progress}");
                }
            }
            let taken = signals.next(LOOK).map(|taken| taken.signal);
            if let Some(signal @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT)) = taken {
                return Err(Failure::new("told to end before all nodes had joined").code(128 + signal));
            }
        }
    }

    /// Little time may be left: what is closed can be made durable while the program ends.
    pub fn flush_now(&self) {
        for mut stdin in self.starters.iter().filter_map(|starter| starter.stdin.as_ref()) {
            let _ = writeln!(stdin, "{FLUSH}");
        }
    }

    /// The program has ended: each node flushes what is left there, and goes.
    pub fn say_end(&mut self) {
        self.shared.state().is_ending = true;
        if let Err(failure) = self.board.say_end() {
            failure.print();
        }
        self.starters.iter_mut().for_each(|starter| starter.stdin = None);
    }

    /// What each node did. `until`: no longer; what is not durable then is said.
    pub fn end(self, settings: &Settings, signals: &Signals, until: Option<Instant>) -> Vec<NodeReport> {
        let is_over = self.await_ended(signals, until);
        let state = self.shared.state();
        let reports = state.nodes.iter().map(|(tag, node)| {
            self.board.get(tag).unwrap_or_else(|| {
                let trouble = match node.left {
                    Some((files, bytes)) if !is_over => {
                        format!("{files} files ({}) were not durable yet when time was up", show_bytes(bytes))
                    }
                    _ if !is_over => "it was still busy when time was up".into(),
                    _ => "it has left the launch without a word".into(),
                };
                NodeReport::silent(tag, &node.host, trouble)
            })
        });
        let mut reports: Vec<NodeReport> = reports.collect();
        reports.sort_by(|a, b| (&a.host, &a.tag).cmp(&(&b.host, &b.tag)));
        drop(state);
        if reports.iter().any(|report| report.trouble.is_some()) {
            let files = elsewhere::files(settings, None);
            for report in reports.iter_mut().filter(|report| report.trouble.is_some()) {
                report.left_files = files.iter().filter(|file| file.tag.as_ref() == Some(&report.tag)).count() as u64;
            }
        }
        // A node that is late still writes into it, and removes it when it is empty.
        self.board.remove();
        reports
    }

    /// False: time was up, or the user has stopped waiting.
    fn await_ended(&self, signals: &Signals, until: Option<Instant>) -> bool {
        let (mut told, mut interrupts) = (Instant::now(), 0);
        loop {
            {
                let state = self.shared.state();
                if state.ended.len() >= self.starters.len() {
                    return true;
                }
                if told.elapsed() > TELL {
                    told = Instant::now();
                    errln!("terrace: waiting for {}", self.busy(&state));
                }
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
            if signals.next(LOOK).is_some_and(|taken| taken.signal == libc::SIGINT) {
                interrupts += 1;
                if interrupts >= INTERRUPTS {
                    return false;
                }
                errln!("terrace: the nodes still flush (interrupt again to stop waiting)");
            }
        }
    }

    fn busy(&self, state: &State) -> String {
        let is_busy = |node: &&Joined| node.left != Some((0, 0));
        let line = |node: &Joined| match node.left {
            Some((files, bytes)) => format!("{} ({files} files, {})", node.host, show_bytes(bytes)),
            None => node.host.clone(),
        };
        let busy: Vec<String> = state.nodes.values().filter(is_busy).map(line).collect();
        if !busy.is_empty() {
            return busy.join(", ");
        }
        let has_ended = |starter: &&Starter| !state.ended.iter().any(|(name, _)| *name == starter.name);
        self.starters.iter().filter(has_ended).map(|starter| starter.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Nodes that were found.
pub struct Wanted(Nodes);

fn since_1970() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

/// Hears what a launcher's nodes say, until it ends.
fn attend(mut child: Child, stdout: Option<ChildStdout>, name: &str, shared: &Arc<Shared>) {
    let (all_heard, wait) = mpsc::channel();
    let hearing = shared.clone();
    std::thread::spawn(move || {
        let lines = stdout.map(BufReader::new).map(BufReader::<ChildStdout>::lines);
        for line in lines.into_iter().flatten().map_while(std::result::Result::ok) {
            match Said::parse(&line) {
                Some(said) => hearing.hear(said),
                // A login script's, or the launcher's.
                None => errln!("{line}"),
            }
        }
        let _ = all_heard.send(());
    });
    let status = child.wait().unwrap_or_default();
    // What it left behind may hold its output for ever.
    let _ = wait.recv_timeout(LAST_LINES);
    let mut state = shared.state();
    // Before that, whoever waits for it to join says so.
    if !state.is_ending && state.present > 0 && !status.success() {
        warn(format!(
            "{name} has left the launch ({status}): what its nodes' tiers hold stays there until `terrace recover` runs on them"
        ));
    }
    state.ended.push((name.to_owned(), status));
    drop(state);
    wake();
}

/// What a shell on each node is to do: the words of this very run, as a part of it.
fn script(args: &RunArgs, settings: &Settings, launch: &str, of: Option<usize>) -> Result<String> {
    let here =
        std::env::current_dir().map_err(|error| Failure::new(format!("the current directory is gone: {error}")))?;
    let program =
        std::env::current_exe().map_err(|error| Failure::new(format!("can't find this program itself: {error}")))?;
    let mut own: Vec<OsString> = vec!["--launch".into(), launch.into()];
    own.extend(of.iter().flat_map(|of| ["--of".into(), of.to_string().into()]));
    if let Ok(tag) = std::fs::read_to_string(settings.node_file()) {
        own.extend(["--head".into(), tag.trim().into()]);
    }
    let all: Vec<OsString> = std::env::args_os().collect();
    let words = own_words(&all, args.command.len()).iter().chain(&own);
    let words: Vec<String> = words.map(|word| quoted(word.as_encoded_bytes())).collect();
    let variables = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy();
        name.starts_with("TERRACE_") && !["TERRACE_INDEX", "TERRACE_KILL_AT", "TERRACE_REPORT"].contains(&&*name)
    });
    let variables: String = variables
        .map(|(name, value)| format!("{}={} ", name.to_string_lossy(), quoted(value.as_encoded_bytes())))
        .collect();
    let (here, program) = (quoted(here.as_os_str().as_encoded_bytes()), quoted(program.as_os_str().as_encoded_bytes()));
    Ok(format!("cd {here} && {variables}exec {program} join {}", words.join(" ")))
}

/// The words between `run` and the program's.
fn own_words(all: &[OsString], of_program: usize) -> &[OsString] {
    let words = all.get(2..all.len() - of_program).unwrap_or_default();
    match words.split_last() {
        Some((last, before)) if last == "--" => before,
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_gets_the_words_of_its_launch_without_the_programs() {
        let words = |line: &str, of_program: usize| {
            let all: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            own_words(&all, of_program)
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(words("terrace run --nodes slurm --tier a=/b -- srun ./x --y", 3), "--nodes slurm --tier a=/b");
        assert_eq!(words("terrace run --nodes slurm ls -l", 2), "--nodes slurm");
        assert_eq!(words("terrace run -- ls", 1), "");
        assert_eq!(words("terrace run ls", 1), "");
    }
}
