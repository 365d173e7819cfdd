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
use terrace_core::peers::{Answer, Ask, Look};
use terrace_index::calls::{PROMISED_MARGIN_MS, PROMISED_MS};

pub(super) const PROMISED: Duration = Duration::from_millis(PROMISED_MS);
const MARGIN: Duration = Duration::from_millis(PROMISED_MARGIN_MS);
/// The owner looks at other files for so long; what has not come until then is asked for again.
pub(super) const ANSWERING: Duration = Duration::from_millis(PROMISED_MS / 4);
/// Who could not be told that a promise is broken is promised nothing for a while.
const SILENCE: Duration = Duration::from_secs(30);
/// A listing asks for so many more files with its second miss, for more with each, and for so many at most.
const BESIDE_MIN: u32 = 8;
const BESIDE_GROWTH: u32 = 8;
pub(super) const BESIDE_MAX: u32 = 16_384;
/// After the largest answer: one of so many told files was looked at, or the next ones are asked for one by one.
const USED: u32 = 16;
/// Directories of one owner that are listed at the same time.
const LISTINGS: usize = 16;

/// To whom this node has promised something.
#[derive(Default)]
pub(super) struct Promises {
    given: Mutex<Given>,
    /// Held by who breaks: others that come meanwhile find nothing left to do.
    breaking: Mutex<()>,
}

#[derive(Default)]
struct Given {
    last_id: u64,
    open: Vec<Promise>,
    silent: HashMap<String, Instant>,
}

#[derive(Clone)]
struct Promise {
    /// Another one for each question: one that was broken meanwhile is told from the next.
    id: u64,
    /// `None`: to whomever an agent before this one told something.
    asker: Option<String>,
    until: Instant,
}

impl Promises {
    /// Before any of the files is looked at. `shown`: what programs of this node see of it. False: the asker gets no promise.
    fn give(&self, asker: Option<&str>, shown: &AtomicU32) -> bool {
        let (mut given, now) = (self.given.lock().unwrap(), Instant::now());
        given.silent.retain(|_, since| now.duration_since(*since) < SILENCE);
        if asker.is_some_and(|asker| given.silent.contains_key(asker)) {
            return false;
        }
        given.last_id += 1;
        let promise = Promise { id: given.last_id, asker: asker.map(Into::into), until: now + PROMISED + MARGIN };
        given.open.retain(|promise| promise.asker.as_deref() != asker);
        given.open.push(promise);
        shown.store(1, SeqCst);
        true
    }

    /// Those that somebody may still rely on.
    fn open(&self) -> Vec<Promise> {
        self.given.lock().unwrap().open.clone()
    }

    /// These are over; who has not said so is silent.
    fn end(&self, broken: &[Promise], silent: &[&Promise], shown: &AtomicU32) {
        let (mut given, now) = (self.given.lock().unwrap(), Instant::now());
        given.silent.extend(silent.iter().filter_map(|promise| Some((promise.asker.clone()?, now))));
        given.open.retain(|promise| !broken.iter().any(|broken| broken.id == promise.id));
        if given.open.is_empty() {
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
    /// When the last of these is over.
    until: Option<Instant>,
    listings: HashMap<Vec<u8>, Listing>,
}

/// Files of a directory are looked at one after the other.
struct Listing {
    last: String,
    at: Instant,
    beside: u32,
    /// What came with the last answer, and how many looks it has served.
    told: u32,
    used: u32,
    /// They are looked at in an order in which it is of no use to ask for several.
    is_scattered: bool,
}

impl Listing {
    /// How many others are asked for with this file.
    fn next(&self, object: &str) -> u32 {
        match () {
            () if self.is_scattered => 0,
            () if self.last == object => self.beside,
            () => (self.beside * BESIDE_GROWTH).clamp(BESIDE_MIN, BESIDE_MAX),
        }
    }
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
            if let Some(listing) = from.listings.get_mut(directory) {
                (listing.at, listing.used) = (now, listing.used + 1);
            }
            return Ok(look.clone());
        }
        if from.until.is_some_and(|until| until <= now) {
            (from.looks, from.until) = (HashMap::new(), None);
        }
        from.listings.retain(|_, listing| now.duration_since(listing.at) < PROMISED);
        let mut beside = 0;
        if let Some(listing) = from.listings.get_mut(directory) {
            listing.is_scattered |= listing.beside == BESIDE_MAX && listing.used < listing.told / USED;
            beside = listing.next(object);
            (listing.last, listing.at, listing.beside) = (object.into(), now, beside);
            (listing.told, listing.used) = (0, 0);
        } else if !directory.is_empty() && from.listings.len() < LISTINGS {
            let listing = Listing { last: object.into(), at: now, beside, told: 0, used: 0, is_scattered: false };
            from.listings.insert(directory.into(), listing);
        }
        Err(Question { beside, broken: from.broken, until: now + PROMISED })
    }

    /// The answer has come.
    pub fn keep(&self, owner: &str, directory: &[u8], question: &Question, looks: &[Look]) {
        let mut by_owner = self.by_owner.lock().unwrap();
        let from = by_owner.entry(owner.into()).or_default();
        if from.broken != question.broken {
            return;
        }
        if let Some(listing) = from.listings.get_mut(directory) {
            listing.told = looks.len() as u32;
        }
        from.until = Some(from.until.map_or(question.until, |until| until.max(question.until)));
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
    /// Before any of the files is looked at that `asker` is told of. False: nothing is promised to that one now.
    pub(super) fn promise(&self, asker: &str) -> bool {
        self.promises.give(Some(asker), &self.index.header.promised)
    }

    /// An agent that was here before, and ended in the middle of something, may have promised anything to anybody.
    pub fn promise_as_before(&self) {
        if self.was_here_before {
            self.promises.give(None, &self.index.header.promised);
        }
    }

    /// Nobody relies any more on what was told before.
    pub fn break_promises(self: &Arc<Peers>) {
        let _alone = self.promises.breaking.lock().unwrap();
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
            let rest = || until.saturating_duration_since(Instant::now());
            match hears.recv_timeout(rest()) {
                Ok(asker) => silent.retain(|promise| promise.asker.as_ref() != Some(&asker)),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(rest());
                    break;
                }
            }
        }
        self.promises.end(&open, &silent, &self.index.header.promised);
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
        promised.find("a", directory.as_bytes(), object, now).expect_err("it is not known").beside
    }

    #[test]
    fn a_listing_asks_for_more_with_each_file_and_one_that_looks_at_a_file_again_does_not() {
        let (promised, now) = (Promised::default(), Instant::now());
        let asked = |object: &str| beside(&promised, "/r/d", object, now);
        assert_eq!(["1", "1", "2", "2", "3", "4", "5", "6"].map(asked), [0, 0, 8, 8, 64, 512, 4096, BESIDE_MAX]);
        // Another listing at the same time.
        assert_eq!(["1", "2"].map(|object| beside(&promised, "/r/e", object, now)), [0, 8]);
        assert_eq!(asked("7"), BESIDE_MAX);
        // Of a name that is not known nothing is asked but itself, and after a pause it is another listing.
        assert_eq!(beside(&promised, "", "8", now), 0);
        assert_eq!(beside(&promised, "", "9", now), 0);
        assert_eq!(beside(&promised, "/r/d", "2", now + PROMISED), 0);
    }

    #[test]
    fn what_is_kept_holds_for_its_time_and_until_it_is_broken() {
        let (promised, now) = (Promised::default(), Instant::now());
        let asks = || promised.find("a", b"/r/d", "1", now).expect_err("it is not known");
        let question = asks();
        promised.keep("a", b"/r/d", &question, &[look("1"), look("2")]);
        let is_known = |object: &str, after| promised.find("a", b"/r/d", object, now + after).is_ok();
        assert!(is_known("2", PROMISED / 2) && !is_known("3", PROMISED / 2));
        promised.forget("b");
        assert!(is_known("2", PROMISED / 2) && !is_known("2", PROMISED));
        promised.keep("a", b"/r/d", &question, &[look("2")]);
        promised.forget("a");
        assert_eq!(asks().beside, 0, "a directory that changes is asked for file by file");
        assert!(!is_known("2", PROMISED / 2));
        // The answer to a question from before that.
        promised.keep("a", b"/r/d", &question, &[look("1")]);
        assert!(!is_known("1", Duration::ZERO));
    }

    #[test]
    fn a_listing_in_another_order_than_the_owners_asks_file_by_file() {
        let (promised, now) = (Promised::default(), Instant::now());
        let told: Vec<Look> = (0..1000).map(|number| look(&format!("told {number}"))).collect();
        // Of each answer one file in twenty is looked at before one that is not known; then one in ten.
        let asked = |miss: &str, used: usize| {
            let question = promised.find("a", b"/r/d", miss, now).expect_err("it is not known");
            if question.beside > 0 {
                promised.keep("a", b"/r/d", &question, &told);
                assert!(told[..used].iter().all(|look| promised.find("a", b"/r/d", &look.object, now).is_ok()));
            }
            question.beside
        };
        let misses = ["1", "2", "3", "4", "5", "6"];
        assert_eq!(misses.map(|miss| asked(miss, 100)), [0, 8, 64, 512, 4096, BESIDE_MAX]);
        assert_eq!([asked("7", 50), asked("8", 50), asked("9", 100)], [BESIDE_MAX, 0, 0]);
    }

    #[test]
    fn a_promise_that_is_given_while_others_are_broken_goes_on() {
        let (promises, shown) = (Promises::default(), AtomicU32::new(0));
        let open = || promises.open().into_iter().filter_map(|promise| promise.asker).collect::<Vec<_>>();
        assert!(promises.give(Some("b"), &shown) && promises.give(Some("c"), &shown));
        let (one, other) = (promises.open(), promises.open());
        promises.give(Some("b"), &shown);
        promises.end(&one, &[], &shown);
        assert_eq!((open(), shown.load(SeqCst)), (vec!["b".into()], 1));
        promises.end(&promises.open(), &[], &shown);
        assert_eq!((open(), shown.load(SeqCst)), (vec![], 0));
        // One who was slow to break the first ones.
        promises.give(Some("b"), &shown);
        promises.end(&other, &[], &shown);
        assert_eq!((open(), shown.load(SeqCst)), (vec!["b".into()], 1));
    }

    #[test]
    fn who_cannot_be_told_is_promised_nothing_more() {
        let (promises, shown) = (Promises::default(), AtomicU32::new(0));
        assert!(promises.give(Some("b"), &shown));
        let open = promises.open();
        promises.end(&open, &[&open[0]], &shown);
        assert!(!promises.give(Some("b"), &shown) && promises.give(Some("c"), &shown));
    }
}
