//! `terrace run --stage-in`, `--stage-out`: what an object store has is brought while the program runs, and what the program wrote is
//! sent when it is durable. The program `terrace-stage` does both, and `terrace stage-in` and `stage-out` by themselves.
//!
//!   in:  a program of the run: what it brings lands in the tiers as what any program writes
//!        it makes the names, says "ready", and goes on beside the program, which waits where it looks at a name (`terrace_core::arrivals`)
//!   out: beside the run, for files that are durable already; and after the final flush, for all

use crate::args::RunArgs;
use crate::child::{self, Ended, Start};
use crate::keeper::Begun;
use crate::programs::{become_program, beside};
use crate::scheduler::TimeLeft;
use crate::signals::{Signals, Taken, send, stop_self};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};
use terrace_core::arrivals;
use terrace_core::settings::Settings;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::resolve::Resolved;

/// `terrace stage-in`, `terrace stage-out`.
pub fn stage(command: &str, arguments: &[OsString]) -> Result<i32> {
    become_program("terrace-stage", std::iter::once(&OsString::from(command)).chain(arguments))
}

/// A directory below the root, and its place in an object store.
struct Pair {
    directory: PathBuf,
    url: String,
}

pub struct Staging {
    program: PathBuf,
    wanted_in: Vec<Pair>,
    wanted_out: Vec<Pair>,
    quiet: bool,
    /// Start the program when all is there.
    waits: bool,
    bringers: Vec<Bringer>,
    /// Locked while names of files that are to come may be there.
    note: Option<File>,
    senders: Vec<Child>,
}

/// One that brings what lies below a URL.
struct Bringer {
    child: Child,
    url: String,
    /// The lines that it prints.
    lines: Receiver<String>,
}

/// What ends before the names are there. Err: an exit code.
enum Awaited {
    Ready,
    Ended(i32),
    OutOfTime,
}

/// What it says before the program may start.
const READY: &str = "ready";
/// To hear signals, and whether it is ready.
const LOOK: Duration = Duration::from_millis(10);
/// It removes what is not whole.
const BRINGER_PATIENCE: Duration = Duration::from_secs(10);

impl Staging {
    pub fn wanted(args: &RunArgs, resolved: &Resolved) -> Result<Option<Staging>> {
        let pairs = |key: &str, flag: &str, given: &[String]| -> Result<Vec<Pair>> {
            let (origin, values) = match given {
                [] => (format!("{}: {key}", resolved.wanted.origin(key)), resolved.wanted.list(key)),
                given => (flag.to_owned(), given.to_vec()),
            };
            values.iter().map(|value| pair(&origin, value, &resolved.settings.root)).collect()
        };
        let wanted_in = pairs("stage.in", "--stage-in", &args.stage_in)?;
        let wanted_out = pairs("stage.out", "--stage-out", &args.stage_out)?;
        if wanted_in.is_empty() && wanted_out.is_empty() {
            return Ok(None);
        }
        Ok(Some(Staging {
            program: beside("terrace-stage")?,
            wanted_in,
            wanted_out,
            quiet: args.quiet,
            waits: args.stage_wait || resolved.wanted.switch("stage.wait").unwrap_or(false),
            bringers: vec![],
            note: None,
            senders: vec![],
        }))
    }

    /// With the run's library and no other door: this program is known to need none. `Some`: it could not be done.
    pub fn bring(
        &mut self,
        begun: &Begun,
        deadline: Option<Instant>,
        settings: &Settings,
        signals: &Signals,
        time: &mut TimeLeft,
    ) -> Result<Option<Ended>> {
        if !self.waits && !self.wanted_in.is_empty() {
            return self.begin_bringing(begun, deadline, settings, signals);
        }
        let library = settings.library.as_path();
        for pair in &self.wanted_in {
            let words = self.command(pair.bring(self.flags()));
            let start = Start { library: Some(library), deadline, ..natively(&words, begun) };
            let ended = child::run(&start, signals, time)?;
            if ended.code != 0 {
                errln!("terrace: error: the program was not started: {} could not be brought", pair.url);
                return Ok(Some(Ended { elapsed: Duration::ZERO, ..ended }));
            }
        }
        Ok(None)
    }

    /// Until all names are there.
    fn begin_bringing(
        &mut self,
        begun: &Begun,
        deadline: Option<Instant>,
        settings: &Settings,
        signals: &Signals,
    ) -> Result<Option<Ended>> {
        let note = settings.arrivals();
        let failed = |error: std::io::Error| Failure::io("write", &note, error);
        let mut file = File::options().create(true).append(true).open(&note).map_err(failed)?;
        file.lock_shared().and_then(|()| file.write_all(b"\n")).map_err(failed)?;
        self.note = Some(file);
        let tag = std::fs::read_to_string(settings.node_file()).unwrap_or_default();
        let uid = rustix::process::geteuid().as_raw();
        let links = arrivals::link_directory(settings, uid, tag.trim())
            .ok_or_else(|| Failure::io("use the node's tag in", &settings.node_file(), "it has none"))?;
        for number in 0..self.wanted_in.len() {
            self.begin_one(number, begun, settings, &links, signals)?;
        }
        for bringer in &mut self.bringers {
            let code = match bringer.await_names(deadline, signals) {
                Awaited::Ready => continue,
                Awaited::Ended(code) => code,
                Awaited::OutOfTime => 128 + libc::SIGTERM,
            };
            errln!("terrace: error: the program was not started: {} could not be brought", bringer.url);
            let out_of_time = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            self.end_bringing(false);
            return Ok(Some(Ended { code, elapsed: Duration::ZERO, out_of_time }));
        }
        Ok(None)
    }

    fn begin_one(
        &mut self,
        number: usize,
        begun: &Begun,
        settings: &Settings,
        links: &Path,
        signals: &Signals,
    ) -> Result<()> {
        let pair = &self.wanted_in[number];
        let mut flags: Vec<&OsStr> = self.flags().iter().map(OsStr::new).collect();
        let control = settings.control_socket();
        let root = settings.root.as_os_str();
        flags.extend([
            "--root".as_ref(),
            root,
            "--control".as_ref(),
            control.as_os_str(),
            "--links".as_ref(),
            links.as_ref(),
        ]);
        let mut command = Command::new(&self.program);
        command.args(words("stage-beside", &flags, [pair.url.as_ref(), pair.directory.as_ref()])).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.env("LD_PRELOAD", child::preload(&[&settings.library], std::env::var_os("LD_PRELOAD")));
        command.env("TERRACE_INDEX", &begun.index);
        let mut child = start(&mut command, signals)
            .map_err(|error| Failure::new(format!("can't run {}: {error}", self.program.display())))?;
        let output = child.stdout.take().expect("it is a pipe");
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                let _ = tell.send(line);
            }
        });
        self.bringers.push(Bringer { child, url: pair.url.clone(), lines });
        Ok(())
    }

    /// What nobody has asked for is not brought. `is_whole`: the program ended well. Some: what could not be brought.
    pub fn end_bringing(&mut self, is_whole: bool) -> Option<Failure> {
        let mut unbrought = vec![];
        for mut bringer in self.bringers.drain(..) {
            if !bringer.end(is_whole) {
                unbrought.push(bringer.url.clone());
            }
            if !self.quiet {
                bringer.lines.iter().filter(|line| line != READY).for_each(|line| errln!("{line}"));
            }
        }
        if let Some(file) = self.note.take()
            && file.unlock().is_ok()
            && file.try_lock().is_ok()
        {
            let _ = file.set_len(0);
        }
        let what = unbrought.join(", ");
        (!what.is_empty()).then(|| Failure::new(format!("not everything was brought: {what}")).code(code::NOT_DURABLE))
    }

    /// Sends what is durable while the program runs. What it can't do, `send` does and tells of.
    pub fn begin_sending(&mut self, signals: &Signals) {
        for pair in &self.wanted_out {
            let mut command = Command::new(&self.program);
            command.args(pair.send(&["--quiet", "--follow", "--jobs", "2"])).process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            self.senders.extend(start(&mut command, signals));
        }
    }

    /// What was noted as sent is not sent again.
    pub fn end_sending(&mut self) {
        for sender in &mut self.senders {
            let _ = sender.kill();
            let _ = sender.wait();
        }
        self.senders.clear();
    }

    /// After the final flush.
    ///
    /// `is_whole`: the program ended well. One that did not may have made no directory.
    pub fn send(&mut self, is_whole: bool, begun: &Begun, signals: &Signals, time: &mut TimeLeft) -> Option<Failure> {
        self.end_sending();
        let mut unsent = vec![];
        for pair in self.wanted_out.iter().filter(|pair| is_whole || pair.directory.exists()) {
            let words = self.command(pair.send(self.flags()));
            let sent = child::run(&natively(&words, begun), signals, time);
            if !sent.is_ok_and(|ended| ended.code == 0) {
                unsent.push(format!("`terrace stage-out {} {}`", pair.directory.display(), pair.url));
            }
        }
        let first = unsent.first()?.clone();
        let hint = format!("it is durable here; {first} goes on from there");
        Some(Failure::new(format!("not everything was sent: {}", unsent.join(", "))).code(code::NOT_DURABLE).hint(hint))
    }

    fn flags(&self) -> &[&str] {
        if self.quiet { &["--quiet"] } else { &[] }
    }

    fn command(&self, words: Vec<OsString>) -> Vec<OsString> {
        std::iter::once(self.program.clone().into()).chain(words).collect()
    }
}

impl Pair {
    /// Words of `terrace-stage`.
    fn bring(&self, flags: &[&str]) -> Vec<OsString> {
        words(
            "stage-in",
            &flags.iter().map(OsStr::new).collect::<Vec<_>>(),
            [self.url.as_ref(), self.directory.as_ref()],
        )
    }

    fn send(&self, flags: &[&str]) -> Vec<OsString> {
        words(
            "stage-out",
            &flags.iter().map(OsStr::new).collect::<Vec<_>>(),
            [self.directory.as_ref(), self.url.as_ref()],
        )
    }
}

/// What follows the two dashes is no flag, whatever it is called.
fn words(command: &str, flags: &[&OsStr], pair: [&OsStr; 2]) -> Vec<OsString> {
    let flags = flags.iter().map(|&flag| OsString::from(flag));
    let before = std::iter::once(OsString::from(command)).chain(flags).chain([OsString::from("--")]);
    before.chain(pair.map(OsString::from)).collect()
}

/// Beside us, and not longer than we are there.
fn start(command: &mut Command, signals: &Signals) -> std::io::Result<Child> {
    let mask = signals.mask_for_program();
    let end_with_us = || rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    // SAFETY: both closures make nothing but system calls.
    unsafe { command.pre_exec(mask).pre_exec(move || Ok(end_with_us()?)) };
    command.spawn()
}

impl Bringer {
    fn await_names(&mut self, deadline: Option<Instant>, signals: &Signals) -> Awaited {
        loop {
            match self.lines.try_recv() {
                Ok(line) if line == READY => return Awaited::Ready,
                Ok(line) => errln!("{line}"),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    let code = self.child.wait().ok().and_then(|status| status.code());
                    return Awaited::Ended(code.unwrap_or(1));
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Awaited::OutOfTime;
            }
            match signals.next(LOOK) {
                None | Some(Taken { signal: libc::SIGCHLD | libc::SIGCONT, .. }) => {}
                Some(Taken { signal: libc::SIGTSTP, .. }) => stop_self(),
                Some(Taken { signal, .. }) => return Awaited::Ended(128 + signal),
            }
        }
    }

    /// False: it could not bring all that it was to.
    fn end(&mut self, is_whole: bool) -> bool {
        let pid = self.child.id();
        if matches!(self.child.try_wait(), Ok(None)) {
            send(pid, if is_whole { libc::SIGTERM } else { libc::SIGINT });
        }
        let begun = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if begun.elapsed() < BRINGER_PATIENCE => std::thread::sleep(LOOK),
                _ => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return false;
                }
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.end_bringing(false);
        self.end_sending();
    }
}

/// Another program of the same run, natively.
fn natively<'a>(command: &'a [OsString], begun: &'a Begun) -> Start<'a> {
    Start {
        command,
        library: None,
        driver: None,
        environment: vec![],
        supervision: None,
        mount: None,
        index: &begun.index,
        deadline: None,
        agent_pid: begun.agent_pid,
        ending: &|| (),
    }
}

/// `DIRECTORY=URL`, or a URL whose last part names the directory.
fn pair(origin: &str, value: &str, root: &Path) -> Result<Pair> {
    let refused = |why: String| {
        Failure::bad_input(
            format!("{origin} {value}: {why}"),
            "give [DIRECTORY=]URL, with a directory below the root and s3://BUCKET/PREFIX or another URL",
        )
    };
    let named = value.split_once('=').filter(|(directory, _)| !directory.contains("://"));
    let (directory, url) = match named {
        Some((directory, url)) => (directory, url),
        None => {
            let parts = value.split_once("://").map(|(_, rest)| rest.trim_end_matches('/'));
            let last = parts.and_then(|parts| parts.rsplit_once('/')).map(|(_, last)| last);
            (last.ok_or_else(|| refused("it does not name a directory".to_owned()))?, value)
        }
    };
    if !url.contains("://") {
        return Err(refused(format!("{url:?} is no URL")));
    }
    let path = root.join(directory);
    let is_plain = |path: &Path| path.components().all(|part| !matches!(part, Component::ParentDir));
    if directory.is_empty() || !is_plain(Path::new(directory)) || !path.starts_with(root) {
        return Err(refused(format!("{directory:?} is no directory below the root {}", root.display())));
    }
    Ok(Pair { directory: path, url: url.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_named_or_has_the_last_part_of_the_url() {
        let root = Path::new("/r");
        let of = |value: &str| pair("--stage-in", value, root).map(|pair| (pair.directory, pair.url));
        let is = |directory: &str, url: &str| (PathBuf::from(directory), url.to_owned());
        assert_eq!(of("s3://b/in").unwrap(), is("/r/in", "s3://b/in"));
        assert_eq!(of("s3://b/x=1/").unwrap(), is("/r/x=1", "s3://b/x=1/"));
        assert_eq!(of("d/e=s3://b/in").unwrap(), is("/r/d/e", "s3://b/in"));
        assert_eq!(of("/r/d=s3://b").unwrap(), is("/r/d", "s3://b"));
        assert_eq!(of(".=s3://b/in").unwrap(), is("/r/.", "s3://b/in"));
        for bad in ["s3://b", "in", "../x=s3://b/in", "/other=s3://b/in", "=s3://b/in", "d=in"] {
            let failure = of(bad).unwrap_err();
            assert!(failure.message.contains(bad) && failure.code == 2, "{failure:?}");
        }
    }
}
