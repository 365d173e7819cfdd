//! What is done for other nodes with files that lie in this one's tiers.

use super::promises::{ANSWERING, BESIDE_MAX, PROMISED};
use super::{FlushAll, Peers};
use crate::files::mover::give::{LOOKING, TOLD, attributes_of};
use crate::shared::path::as_path;
use crate::shared::request::{FlushOptions, Outcome, Scope};
use crate::shared::runs::Serving;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use terrace_core::peers::{Answer, Ask, Attributes, Flushed, Look};
use terrace_index::{NAME_LEN, State};
use terrace_tier::Stat;

/// How often one who waits hears that he is not forgotten.
const WORD: Duration = Duration::from_secs(1);

impl Peers {
    /// Does it, and says so by `tell`.
    pub fn answer(
        &self,
        ask: Ask,
        flush: &FlushAll,
        mut tell: impl FnMut(Answer) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        // The agent stays until it has answered, and not as long as somebody might ask.
        let _serving = Serving::new(&self.runs);
        std::thread::scope(|threads| {
            let (done, answers) = channel();
            threads.spawn(move || {
                let _ = done.send(self.do_for(ask, flush));
            });
            loop {
                match answers.recv_timeout(WORD) {
                    Ok(answer) => return tell(answer),
                    Err(RecvTimeoutError::Timeout) => tell(Answer::Working)?,
                    Err(RecvTimeoutError::Disconnected) => {
                        return tell(Answer::Failed { errno: libc::EIO, reason: "it failed there".into() });
                    }
                }
            }
        })
    }

    pub(super) fn do_for(&self, ask: Ask, flush: &FlushAll) -> Answer {
        match ask {
            Ask::Here => {
                self.look_for_nodes();
                Answer::Done
            }
            Ask::Settle { object, path } => self.settle_for(&object, &self.of_others(&path)),
            // Words of a conversation that is not under way.
            Ask::Take { .. } | Ask::Place { .. } | Ask::Placed | Ask::Taken => Answer::Stays,
            Ask::Look { object, beside, asker } => self.look_for(&object, beside, &asker),
            Ask::Break { owner } => {
                self.promised.forget(&owner);
                Answer::Done
            }
            Ask::StatMany { objects } => {
                Answer::Attributes(objects.iter().map(|object| self.attributes(object)).collect())
            }
            Ask::Flush { paths, all } => {
                let scope = Scope(paths.iter().map(|path| self.settings.root.join(as_path(path))).collect());
                let options = FlushOptions { all, end_of_run: false, settle_open: false };
                Answer::Flushed(self.flushed(flush(&scope, &options)))
            }
        }
    }

    fn flushed(&self, outcome: Outcome) -> Flushed {
        let below = |path: &Path| self.to_others(path.as_os_str().as_bytes());
        Flushed {
            files: outcome.files,
            bytes: outcome.bytes,
            open_files: outcome.open_files.iter().map(|path| below(path)).collect(),
            failures: outcome.failures.into_iter().map(|failure| (below(&failure.path), failure.reason)).collect(),
        }
    }

    /// The record of an object by its name, in whatever state.
    fn record_named(&self, object: &str) -> Option<u32> {
        let (number, random) = terrace_index::parse_name(object.as_bytes()).filter(|_| object.len() == NAME_LEN)?;
        self.index.record(number).filter(|record| record.random.load(Acquire) == random).map(|_| number)
    }

    /// The same, while it is a file's newest bytes.
    pub(super) fn record_of(&self, object: &str) -> Option<u32> {
        let is_live =
            |state| matches!(state, State::New | State::Current | State::Committing | State::Moving | State::Clean);
        self.record_named(object).filter(|&number| is_live(self.record(number).state()))
    }

    fn settle_for(&self, object: &str, path: &[u8]) -> Answer {
        if let Some(directory) = self.record_named(object).filter(|&number| self.is_directory(number)) {
            return self.settle_directory_for(directory, path);
        }
        let Some(number) = self.record_of(object) else {
            return match self.await_arrival_for(object, path) {
                None => Answer::Gone,
                Some(Ok(())) => Answer::Done,
                Some(Err(reason)) => Answer::Failed { errno: libc::EIO, reason },
            };
        };
        if self.record(number).state() == State::New {
            return Answer::Gone; // its program is about to give it a name
        }
        self.note_name(number, path);
        match self.settle(number) {
            Ok(()) => Answer::Done,
            Err(libc::ENOENT) => Answer::Gone,
            Err(libc::EBUSY) => Answer::Busy,
            Err(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                Answer::Failed { errno, reason: format!("{} can't be made durable: {error}", as_path(path).display()) }
            }
        }
    }

    /// Another node may have given it this name: then it need not be searched for. True: it is news.
    pub(super) fn note_name(&self, number: u32, path: &[u8]) -> bool {
        let serial = self.serial(number);
        let is_news =
            self.relative(path).is_some() && self.located(number, serial).is_none() && self.links_to(path, number);
        if is_news {
            self.catalogue().set_path(number, serial, path);
        }
        is_news
    }

    /// The other node will see a directory; what programs here are in the middle of stays where they have it.
    fn settle_directory_for(&self, number: u32, path: &[u8]) -> Answer {
        match self.publish_directory_for_others(number) {
            Ok(()) => Answer::Done,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Answer::Busy,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                Answer::Failed { errno, reason: format!("{} can't be made durable: {error}", as_path(path).display()) }
            }
        }
    }

    fn look_for(&self, object: &str, beside: u32, asker: &str) -> Answer {
        let begun = Instant::now();
        let beside = if beside > 0 && self.promise(asker) { beside.min(BESIDE_MAX) } else { 0 };
        let holds = if beside > 0 { PROMISED + TOLD } else { TOLD };
        let Some(number) = self.record_of(object) else { return Answer::Stays };
        let Some(first) = self.look_at(number, LOOKING, holds).filter(|first| first.object == object) else {
            return Answer::Stays;
        };
        let others = self.beside(number, beside as usize).into_iter().take_while(|_| begun.elapsed() < ANSWERING);
        let others = others.filter_map(|other| self.look_at(other, Duration::ZERO, holds));
        Answer::Looks(std::iter::once(first).chain(others).collect())
    }

    /// What a file looks like that would be given.
    fn look_at(&self, number: u32, patience: Duration, holds: Duration) -> Option<Look> {
        let object = self.object_name(number).to_str()?.to_owned();
        let looks = self.looks_of_givable(number, patience, holds)?;
        let attributes = Attributes { xattrs: looks.xattrs, ..self.attributes_of(number, &looks.stat) };
        (self.record_of(&object) == Some(number)).then_some(Look { object, mode: looks.mode, attributes })
    }

    fn attributes(&self, object: &str) -> Option<Attributes> {
        let number = self.record_of(object)?;
        let found = Stat::from(&rustix::fs::lstat(self.object_path(number)).ok()?);
        (self.record_of(object) == Some(number)).then(|| self.attributes_of(number, &found))
    }

    /// As programs here know it.
    fn attributes_of(&self, number: u32, found: &Stat) -> Attributes {
        Attributes { ino: self.record(number).ino.load(Acquire), ..attributes_of(found) }
    }
}
