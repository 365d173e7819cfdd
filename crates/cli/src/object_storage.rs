//! `terrace run --stage-in`, `--stage-out`: what an object store has is brought before the program starts, and what the program wrote is
//! sent when it is durable. The program `terrace-stage` does both, and `terrace stage-in` and `stage-out` by themselves.
//!
//!   in:  a program of the run: what it brings lands in the tiers as what any program writes
//!   out: beside the run, for files that are durable already; and after the final flush, for all

use crate::args::RunArgs;
use crate::child::{self, Ended, Start};
use crate::keeper::Begun;
use crate::programs::{become_program, beside};
use crate::scheduler::TimeLeft;
use crate::signals::Signals;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
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
    senders: Vec<Child>,
}

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
            senders: vec![],
        }))
    }

    /// With the run's library and no other door: this program is known to need none. `Some`: it could not be done.
    pub fn bring(
        &self,
        begun: &Begun,
        deadline: Option<Instant>,
        library: &Path,
        signals: &Signals,
        time: &mut TimeLeft,
    ) -> Result<Option<Ended>> {
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

    /// Sends what is durable while the program runs. What it can't do, `send` does and tells of.
    pub fn begin_sending(&mut self, signals: &Signals) {
        for pair in &self.wanted_out {
            let mut command = Command::new(&self.program);
            command.args(pair.send(&["--quiet", "--follow", "--jobs", "2"])).process_group(0);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let mask = signals.mask_for_program();
            let end_with_us = || rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
            // SAFETY: both closures make nothing but system calls.
            unsafe { command.pre_exec(mask).pre_exec(move || Ok(end_with_us()?)) };
            self.senders.extend(command.spawn());
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
        words("stage-in", flags, [self.url.as_ref(), self.directory.as_ref()])
    }

    fn send(&self, flags: &[&str]) -> Vec<OsString> {
        words("stage-out", flags, [self.directory.as_ref(), self.url.as_ref()])
    }
}

/// What follows the two dashes is no flag, whatever it is called.
fn words(command: &str, flags: &[&str], pair: [&OsStr; 2]) -> Vec<OsString> {
    let before = std::iter::once(&command).chain(flags).chain(&["--"]).map(OsString::from);
    before.chain(pair.map(OsString::from)).collect()
}

impl Drop for Staging {
    fn drop(&mut self) {
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
