//! What is told of many files at once, and holds until it is broken: a listing with attributes asks for a directory, not for each file.
//!
//! ```text
//!  asker ──Look { beside }──▶ owner: promised = 1, then looks at each file ──Looks──▶ asker keeps them for `PROMISED`
//!  program of the owner: opens one to write, or changes it ──▶ promised? ──Break (call socket)──▶ owner ──Break──▶ asker forgets
//!                                                                       ◀─────────── goes on ◀──────── Done ◀──────┘
//! ```
//!
//! These are the callback promises of AFS (Howard et al., "Scale and Performance in a Distributed File System", 1988), with a short end.
//!
//! Invariants:
//! - What is told is of files that nobody has open. So each change of one begins, or ends, with a call that looks whether something is promised;
//!   and who was told before the change has forgotten it, or its time is over, before the program goes on.
//! - The asker counts the time from its question, the owner from when it hears that: the owner's ends last.
//! - An answer that was under way when its promises were broken is kept by nobody.
//! - What a name leads to is never kept: the asker's program has looked at its link just before.

use super::Peers;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_core::peers::{Answer, Ask, Look, PROMISED};

/// Clocks of two nodes may differ in how long a second is.
const MARGIN: Duration = Duration::from_millis(100);
/// A listing asks for so many more files with its second miss, for more with each, and for so many at most.
const BESIDE_MIN: u32 = 8;
const BESIDE_GROWTH: u32 = 8;
pub(super) const BESIDE_MAX: u32 = 4096;

/// To whom this node has promised something.
#[derive(Default)]
pub(super) struct Promises {
    given: Mutex<Vec<Promise>>,
}

#[derive(Clone)]
struct Promise {
    /// Another one for each question, so that one that was broken meanwhile is told from the next.
    id: u64,
    /// `None`: to whomever an agent before this one told something.
    asker: Option<String>,
    until: Instant,
}

impl Promises {
    /// Before any of the files is looked at. `shown`: what programs of this node see of it.
    fn give(&self, asker: Option<&str>, shown: &AtomicU32) {
        let mut given = self.given.lock().unwrap();
        let id = given.iter().map(|promise| promise.id).max().unwrap_or(0) + 1;
        given.retain(|promise| promise.asker.as_deref() != asker);
        given.push(Promise { id, asker: asker.map(Into::into), until: Instant::now() + PROMISED + MARGIN });
        shown.store(1, SeqCst);
    }

    /// Those that somebody may still rely on.
    fn open(&self) -> Vec<Promise> {
        self.given.lock().unwrap().clone()
    }

    fn end(&self, broken: &[Promise], shown: &AtomicU32) {
        let mut given = self.given.lock().unwrap();
        given.retain(|promise| !broken.iter().any(|broken| broken.id == promise.id));
        if given.is_empty() {
            shown.store(0, SeqCst);
        }
    }
}

/// What other nodes have promised to this one.
#[derive(Default)]
pub(super) struct Promised {
    by_owner: Mutex<HashMap<String, FromOwner>>,
}

#[derive(Default)]
struct FromOwner {
    /// How often its promises were broken.
    broken: u64,
    looks: HashMap<String, (Look, Instant)>,
    listing: Option<Listing>,
}

/// Files of a directory are looked at one after the other.
struct Listing {
    directory: Vec<u8>,
    last: String,
    at: Instant,
    beside: u32,
}

/// A question for a file that is not known.
#[derive(Debug)]
pub(super) struct Question {
    pub beside: u32,
    broken: u64,
    until: Instant,
}

impl Promised {
    /// What is known of the file, or what to ask its owner for.
    pub fn find(&self, owner: &str, directory: &[u8], object: &str, now: Instant) -> Result<Look, Question> {
        let mut by_owner = self.by_owner.lock().unwrap();
        let from = by_owner.entry(owner.into()).or_default();
        if let Some((look, until)) = from.looks.get(object)
            && *until > now
        {
            return Ok(look.clone());
        }
        let listing = from.listing.take().filter(|listing| listing.directory == directory);
        let beside = match listing.filter(|listing| now.duration_since(listing.at) < PROMISED) {
            Some(listing) if listing.last == object => listing.beside,
            Some(listing) => (listing.beside * BESIDE_GROWTH).clamp(BESIDE_MIN, BESIDE_MAX),
            None => 0,
        };
        if !directory.is_empty() {
            from.listing = Some(Listing { directory: directory.into(), last: object.into(), at: now, beside });
        }
        Err(Question { beside, broken: from.broken, until: now + PROMISED })
    }

    /// The answer has come.
    pub fn keep(&self, owner: &str, question: &Question, looks: &[Look], now: Instant) {
        let mut by_owner = self.by_owner.lock().unwrap();
        let from = by_owner.entry(owner.into()).or_default();
        if from.broken != question.broken {
            return;
        }
        from.looks.retain(|_, (_, until)| *until > now);
        from.looks.extend(looks.iter().map(|look| (look.object.clone(), (look.clone(), question.until))));
    }

    /// A directory whose files are being changed is asked for file by file at first.
    pub fn forget(&self, owner: &str) {
        let mut by_owner = self.by_owner.lock().unwrap();
        let from = by_owner.entry(owner.into()).or_default();
        *from = FromOwner { broken: from.broken + 1, ..FromOwner::default() };
    }
}

impl Peers {
    /// Before any of the files is looked at that `asker` is told of.
    pub(super) fn promise(&self, asker: &str) {
        self.promises.give(Some(asker), &self.index.header.promised);
    }

    /// An agent that was here before, and ended in the middle of something, may have promised anything to anybody.
    pub fn promise_as_before(&self) {
        if self.was_here_before {
            self.promises.give(None, &self.index.header.promised);
        }
    }

    /// Nobody relies any more on what was told before.
    pub fn break_promises(self: &Arc<Peers>) {
        let open = self.promises.open();
        let mut silent: Vec<&Promise> = open.iter().filter(|promise| promise.until > Instant::now()).collect();
        let (told, hears) = channel();
        for asker in silent.iter().filter_map(|promise| promise.asker.clone()) {
            let (peers, told) = (self.clone(), told.clone());
            // Who is not told is waited for.
            let _ = std::thread::Builder::new().name("break".into()).spawn(move || {
                let ask = Ask::Break { owner: peers.own_tag().into() };
                if matches!(peers.ask(&asker, &ask), Ok(Answer::Done)) {
                    let _ = told.send(asker);
                }
            });
        }
        drop(told);
        while let Some(until) = silent.iter().map(|promise| promise.until).max() {
            let rest = until.saturating_duration_since(Instant::now());
            match hears.recv_timeout(rest) {
                Ok(asker) => silent.retain(|promise| promise.asker.as_ref() != Some(&asker)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(rest);
                    break;
                }
            }
        }
        self.promises.end(&open, &self.index.header.promised);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::peers::Attributes;
    use terrace_core::policy::Mode;

    fn look(object: &str) -> Look {
        let attributes = Attributes {
            ino: 1,
            size: 2,
            blocks: 8,
            mode: 0o100_644,
            uid: 0,
            gid: 0,
            nlink: 1,
            xattrs: 0,
            atime_ns: 0,
            mtime_ns: 0,
            ctime_ns: 0,
        };
        Look { object: object.into(), mode: Mode::Copy, attributes }
    }

    /// How many others are asked for with this one.
    fn beside(promised: &Promised, directory: &str, object: &str, now: Instant) -> u32 {
        promised.find("a", directory.as_bytes(), object, now).err().expect("it is not known").beside
    }

    #[test]
    fn a_listing_asks_for_more_with_each_file_and_one_that_looks_at_a_file_again_does_not() {
        let (promised, now) = (Promised::default(), Instant::now());
        let asked = |object: &str| beside(&promised, "/r/d", object, now);
        assert_eq!(["1", "1", "2", "2", "3", "4", "5", "6"].map(asked), [0, 0, 8, 8, 64, 512, 4096, BESIDE_MAX]);
        assert_eq!(beside(&promised, "/r/e", "7", now), 0);
        // Of a name that is not known nothing is asked but itself, and after a pause it is another listing.
        assert_eq!(beside(&promised, "", "8", now), 0);
        assert_eq!(beside(&promised, "", "9", now), 0);
        assert_eq!(beside(&promised, "/r/d", "1", now), 0);
        assert_eq!(beside(&promised, "/r/d", "2", now + PROMISED), 0);
    }

    #[test]
    fn what_is_kept_holds_for_its_time_and_until_it_is_broken() {
        let (promised, now) = (Promised::default(), Instant::now());
        let asks = || promised.find("a", b"/r/d", "1", now).expect_err("it is not known");
        let question = asks();
        promised.keep("a", &question, &[look("1"), look("2")], now + PROMISED / 2);
        let is_known = |object: &str, after| promised.find("a", b"/r/d", object, now + after).is_ok();
        assert!(is_known("2", PROMISED / 2) && !is_known("3", PROMISED / 2));
        assert!(!is_known("2", PROMISED));
        promised.forget("b");
        assert!(is_known("2", PROMISED / 2));
        promised.forget("a");
        assert_eq!(asks().beside, 0, "a directory that changes is asked for file by file");
        assert!(!is_known("2", PROMISED / 2));
        // The answer to a question from before that.
        promised.keep("a", &question, &[look("1")], now);
        assert!(!is_known("1", Duration::ZERO));
    }

    #[test]
    fn a_promise_that_is_given_while_others_are_broken_goes_on() {
        let (promises, shown) = (Promises::default(), AtomicU32::new(0));
        promises.give(Some("b"), &shown);
        promises.give(Some("c"), &shown);
        let open = promises.open();
        promises.give(Some("b"), &shown);
        promises.end(&open, &shown);
        assert_eq!(promises.open().iter().map(|promise| promise.asker.as_deref()).collect::<Vec<_>>(), [Some("b")]);
        assert_eq!(shown.load(SeqCst), 1);
        promises.end(&promises.open(), &shown);
        assert_eq!(shown.load(SeqCst), 0);
    }
}
