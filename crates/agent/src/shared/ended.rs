//! The last moves and runs that ended, for who asks in time: a server of pages that exports traces.
//!
//! Nobody may ask at all, so what is noted costs one short lock of a mover's thread, and no memory but that of the moves forgotten:
//! a new one takes the place of the oldest, with its allocations.

use crate::shared::path::as_path;
use crate::shared::runs::Runs;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::{SystemTime, UNIX_EPOCH};
use terrace_core::control::{self, MoveKind, MoveSpan, RunSpan};

const MOVES: usize = 4096;
const RUNS: usize = 256;
/// Of a reason, which may name many things.
const ERROR_BYTES_MAX: usize = 1000;
/// Of what is no number of a tier or run.
const NONE: usize = usize::MAX;

/// Since 1970; a clock that stands before that says 0.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A move that is done with.
pub struct Move<'a> {
    pub kind: MoveKind,
    pub path: &'a [u8],
    pub bytes: u64,
    /// The number of the faster tier.
    pub tier: Option<usize>,
    pub begin_ns: u64,
    /// Why it did not work.
    pub error: Option<&'a str>,
}

struct Kept {
    kind: MoveKind,
    path: Vec<u8>,
    bytes: u64,
    tier: usize,
    run: u64,
    begin_ns: u64,
    end_ns: u64,
    /// Empty: it worked.
    error: String,
}

#[derive(Default)]
struct Last {
    /// Of moves and runs together.
    next: u64,
    moves: VecDeque<(u64, Kept)>,
    runs: VecDeque<(u64, RunSpan)>,
}

pub struct Ended {
    agent_ns: u64,
    /// The oldest run that lives; 0: none does.
    oldest_run: AtomicU64,
    last: Mutex<Last>,
}

impl Default for Ended {
    fn default() -> Ended {
        Ended { agent_ns: now_ns(), oldest_run: AtomicU64::new(0), last: Mutex::default() }
    }
}

impl Ended {
    pub fn note(&self, done: &Move<'_>) {
        let end_ns = now_ns();
        let mut last = self.last.lock().unwrap();
        let number = last.take_number();
        let mut kept = match last.moves.len() < MOVES {
            true => Kept::empty(),
            false => last.moves.pop_front().expect("it is full").1,
        };
        kept.path.clear();
        kept.path.extend_from_slice(done.path);
        kept.error.clear();
        if let Some(error) = done.error {
            kept.error.push_str(&error[..error.floor_char_boundary(ERROR_BYTES_MAX)]);
        }
        (kept.kind, kept.bytes, kept.tier) = (done.kind, done.bytes, done.tier.unwrap_or(NONE));
        (kept.begin_ns, kept.end_ns, kept.run) = (done.begin_ns.min(end_ns), end_ns, self.oldest_run.load(Relaxed));
        last.moves.push_back((number, kept));
    }

    /// A run has begun, or one has ended: which one is the oldest now.
    pub fn note_oldest(&self, run: Option<u64>) {
        self.oldest_run.store(run.unwrap_or(0), Relaxed);
    }

    pub fn note_run(&self, run: RunSpan) {
        let mut last = self.last.lock().unwrap();
        let number = last.take_number();
        if last.runs.len() == RUNS {
            last.runs.pop_front();
        }
        last.runs.push_back((number, run));
    }

    /// What ended from this number on, and the runs that live. `runs` is locked, so that no run is in neither list.
    pub fn since(&self, since: u64, runs: &Runs, tier_name: impl Fn(usize) -> String) -> control::Ended {
        let living = runs.spans();
        let last = self.last.lock().unwrap();
        let moves = last.moves.iter().skip(last.moves.partition_point(|(number, _)| *number < since));
        let moves: Vec<MoveSpan> = moves.map(|(_, kept)| kept.told(&tier_name)).collect();
        let ended = last.runs.iter().filter(|(number, _)| *number >= since).map(|(_, run)| run.clone());
        let mut runs: Vec<RunSpan> = ended.collect();
        let told = (moves.len() + runs.len()) as u64;
        runs.extend(living);
        let lost = last.next.saturating_sub(since) - told;
        control::Ended { agent_ns: self.agent_ns, lost, next: last.next, runs, moves }
    }
}

impl Last {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Kept {
    fn empty() -> Kept {
        let (path, error) = (vec![], String::new());
        Kept { kind: MoveKind::Flush, path, bytes: 0, tier: NONE, run: 0, begin_ns: 0, end_ns: 0, error }
    }

    fn told(&self, tier_name: impl Fn(usize) -> String) -> MoveSpan {
        MoveSpan {
            kind: self.kind,
            path: as_path(&self.path).into(),
            bytes: self.bytes,
            tier: (self.tier != NONE).then(|| tier_name(self.tier)),
            run: (self.run != 0).then_some(self.run),
            begin_ns: self.begin_ns,
            end_ns: self.end_ns,
            error: (!self.error.is_empty()).then(|| self.error.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::control::Origin;

    fn flush(ended: &Ended, bytes: u64, error: Option<&str>) {
        let path = format!("/r/{bytes}");
        let begin_ns = now_ns();
        ended.note(&Move { kind: MoveKind::Flush, path: path.as_bytes(), bytes, tier: Some(0), begin_ns, error });
    }

    fn since(ended: &Ended, since: u64) -> control::Ended {
        ended.since(since, &Runs::default(), |_| "ram".into())
    }

    #[test]
    fn each_asker_is_told_once_what_has_ended_since() {
        let ended = Ended::default();
        flush(&ended, 1, None);
        flush(&ended, 2, Some("no room"));
        let first = since(&ended, 0);
        assert_eq!(first.moves.iter().map(|done| done.bytes).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((first.lost, first.next), (0, 2));
        assert_eq!(first.moves[0].error, None);
        assert_eq!(first.moves[1].error.as_deref(), Some("no room"));
        assert_eq!(first.moves[1].tier.as_deref(), Some("ram"));
        assert!(since(&ended, first.next).moves.is_empty());
        flush(&ended, 3, None);
        assert_eq!(since(&ended, first.next).moves.len(), 1);
    }

    #[test]
    fn what_is_asked_for_too_late_is_counted() {
        let ended = Ended::default();
        for bytes in 0..MOVES as u64 + 10 {
            flush(&ended, bytes, Some("no room"));
        }
        let told = since(&ended, 4);
        assert_eq!((told.lost, told.next), (6, MOVES as u64 + 10));
        assert_eq!(told.moves.len(), MOVES);
        assert_eq!(told.moves[0].path, std::path::Path::new("/r/10"));
        // An asker of another agent may know a number that is not there yet.
        let ahead = since(&ended, 1 << 40);
        assert_eq!((ahead.lost, ahead.moves.len()), (0, 0));
    }

    #[test]
    fn a_move_is_of_the_oldest_run_that_lives() {
        let ended = Ended::default();
        let mut runs = Runs::default();
        let traced = Origin { is_traced: true, ..Origin::default() };
        runs.begin(1, vec!["a server".into()], Origin::default());
        let first = runs.begin(2, vec!["a".into()], traced.clone());
        runs.begin(3, vec!["b".into()], traced);
        ended.note_oldest(runs.oldest());
        flush(&ended, 1, None);
        ended.note_oldest(None);
        flush(&ended, 2, None);
        let told = ended.since(0, &runs, |_| "ram".into());
        assert_eq!(told.moves[0].run, Some(first));
        assert_eq!(told.moves[1].run, None);
        assert_eq!(told.runs.len(), 2);
        assert!(told.runs.iter().all(|run| run.end_ns.is_none()));
    }
}
