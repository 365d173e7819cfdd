//! The steps of the mover, by name, so that a test can kill the agent at each.
//!
//! The mover calls `reached(step)` right after the step's effect. With `TERRACE_KILL_AT=NAME` or `NAME:n` in the environment
//! the process ends itself by SIGKILL when it reaches that step for the nth time. Reason for a real kill: it runs no
//! destructor, as a crash doesn't.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

pub const KILL_ENV: &str = "TERRACE_KILL_AT";

macro_rules! steps {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A point in the mover's work where a crash leaves a different picture than at the point before.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum Step {
            $($(#[$doc])* $name,)*
        }
        impl Step {
            pub const ALL: &[Step] = &[$(Step::$name,)*];
            pub fn name(self) -> &'static str {
                match self {
                    $(Step::$name => stringify!($name),)*
                }
            }
        }
    };
}

steps! {
    /// The object is leased; nothing is written.
    FlushLeased,
    /// The temporary in the root has all bytes and attributes, in memory.
    FlushCopied,
    /// The temporary is durable.
    FlushSynced,
    /// The journal says that the commit is about to happen.
    FlushCommitJournaled,
    /// The real file has replaced the link.
    FlushRenamed,
    /// The real file's name is durable.
    FlushDirectorySynced,
    /// The journal says that it is done.
    FlushDone,
    /// The journal says that the object is about to be removed.
    EvictJournaled,
    EvictUnlinked,
    EvictDone,
    /// A replica that programs read is to go: it moves, nothing is changed.
    ExchangeBegun,
    /// The replica is gone, and a record of the root's file stands; the replica's own does not say so yet.
    ExchangeUnlinked,
    /// The temporary in the tier has all bytes.
    PrefetchCopied,
    /// The replica has its object name.
    PrefetchCommitted,
    PrefetchDone,
    PromoteJournaled,
    /// The durable file has a second name in `held`.
    PromoteHeld,
    /// The link has replaced the durable file.
    PromoteRenamed,
    PromoteDone,
    ReplaceJournaled,
    /// The new, empty object exists.
    ReplaceCreated,
    ReplaceHeld,
    ReplaceRenamed,
    ReplaceDone,
    MoveJournaled,
    /// The destination has all bytes, as a temporary.
    MoveCopied,
    /// The destination's object has its name (only when it goes to another tier).
    MoveCommitted,
    /// The name in the root leads to the destination.
    MoveRenamed,
    /// Nothing is left to be done at the name; the record does not say so yet.
    MoveNamed,
    /// The old object is gone.
    MoveUnlinked,
    MoveDone,
    /// Another node's link has replaced the file's own; the object is still there.
    GiveRenamed,
    GiveDone,
    /// All bytes of another node's file are in an object of this one; the name leads to the other.
    TakeReady,
    /// The name leads here.
    TakeNamed,
    /// `remove` files: the link in the root is gone, its object is not.
    RemoveUnlinked,
    RemoveDone,
}

impl Step {
    /// No node alone reaches it.
    pub fn is_between_nodes(self) -> bool {
        matches!(self, Step::GiveRenamed | Step::GiveDone | Step::TakeReady | Step::TakeNamed)
    }

    pub fn from_name(name: &str) -> Option<Step> {
        Step::ALL.iter().copied().find(|step| step.name() == name)
    }
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

struct KillPoint {
    step: Step,
    nth: u64,
    seen: AtomicU64,
}

impl KillPoint {
    /// `None` for what names no step: an experiment that is misspelt must not look like one that passed.
    fn parse(text: &str) -> Option<KillPoint> {
        let (name, nth) = match text.split_once(':') {
            Some((name, nth)) => (name, nth.parse().ok().filter(|&n| n > 0)?),
            None => (text, 1),
        };
        Some(KillPoint { step: Step::from_name(name)?, nth, seen: AtomicU64::new(0) })
    }

    fn is_hit(&self, step: Step) -> bool {
        step == self.step && self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.nth
    }
}

static KILL_POINT: LazyLock<Option<KillPoint>> = LazyLock::new(|| {
    let text = std::env::var(KILL_ENV).ok().filter(|text| !text.is_empty())?;
    let point = KillPoint::parse(&text);
    if point.is_none() {
        eprintln!("terrace: {KILL_ENV}={text} names no step of the mover; nothing will be killed");
    }
    point
});

/// The step's effect has just happened. Does nothing unless the environment asks for a crash here.
pub fn reached(step: Step) {
    if let Some(point) = &*KILL_POINT
        && point.is_hit(step)
    {
        // SAFETY: kill has no memory effects; it does not return to this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        loop {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_found_by_its_name_and_names_are_distinct() {
        for &step in Step::ALL {
            assert_eq!(Step::from_name(step.name()), Some(step));
        }
        assert_eq!(Step::from_name("FlushNever"), None);
    }

    #[test]
    fn a_kill_point_is_hit_once_at_its_nth_time() {
        let point = KillPoint::parse("FlushRenamed:3").unwrap();
        let hits: Vec<bool> =
            [Step::FlushRenamed, Step::FlushDone, Step::FlushRenamed, Step::FlushRenamed, Step::FlushRenamed]
                .map(|step| point.is_hit(step))
                .to_vec();
        assert_eq!(hits, [false, false, false, true, false]);
        assert!(KillPoint::parse("FlushRenamed:0").is_none());
        assert!(KillPoint::parse("flushrenamed").is_none());
    }

    #[test]
    fn a_process_ends_itself_without_destructors_at_the_step_it_was_asked_to() {
        const NAME: &str = "step::tests::a_process_ends_itself_without_destructors_at_the_step_it_was_asked_to";
        if std::env::var_os(KILL_ENV).is_some() {
            [Step::FlushLeased, Step::FlushCopied, Step::FlushSynced, Step::FlushCopied].into_iter().for_each(reached);
            return;
        }
        use std::os::unix::process::ExitStatusExt;
        let signal_with = |point: &str| {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", NAME]).env(KILL_ENV, point).output().unwrap().status.signal()
        };
        assert_eq!(signal_with("FlushCopied"), Some(libc::SIGKILL));
        assert_eq!(signal_with("FlushCopied:2"), Some(libc::SIGKILL));
        assert_eq!(signal_with("FlushCopied:3"), None);
        assert_eq!(signal_with("nonsense"), None);
    }
}
