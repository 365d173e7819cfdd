//! A request for what has arrived: waits as long as its client does, and not for a target that refuses.

use super::Forwarder;
use super::{Way, sender::Refusal};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_objects::array::{LIVE, Log};

/// How long it sleeps between looks.
const LOOK: Duration = Duration::from_millis(2);

/// What of an array has to arrive.
struct Awaited {
    name: String,
    /// Records of the log, up to this one; `None`: what has left the log.
    log: Option<(Log, u64)>,
}

impl Forwarder {
    /// Waits until what was put at and below `path` before has arrived at all targets. A target that refuses it is an error; one that
    /// is away is waited for.
    pub fn sync_forwards(&self, path: &str, patience: Option<Duration>, has_left: &dyn Fn() -> bool) -> Result<()> {
        let forwards = &self.forwards;
        let is_below = |name: &str| {
            path.is_empty() || name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let staged = self.staged_arrays().into_iter();
        let cut = || forwards.unsent.names().into_iter().map(|name| Awaited { name, log: None });
        let mut left: Vec<Awaited> = staged
            .map(|(name, log)| Awaited { name, log: Some((log.tail(), log)).map(|(tail, log)| (log, tail)) })
            .chain(cut())
            .filter(|awaited| is_below(&awaited.name))
            .collect();
        let is_known = forwards.rules.iter().any(|rule| rule.containers.has(Path::new(path)));
        if !is_known && left.iter().all(|awaited| forwards.ways_of(&awaited.name).is_empty()) {
            let is_there = self.settings.root.join(path).exists();
            let what = if is_there { "is not forwarded" } else { "is not there" };
            return Err(ObjectError::new(Kind::Invalid, format!("`{path}` {what}: there is nothing to wait for"))
                .hint("rules for forwarding are `[[forward]]` in terrace.toml, or `terrace serve --forward`"));
        }
        let begun = Instant::now();
        loop {
            self.follow_logs(&mut left);
            left.retain(|awaited| self.ways_behind(awaited).next().is_some());
            // What leaves the log while we wait is waited for as well.
            if left.is_empty() {
                left = cut()
                    .filter(|awaited| is_below(&awaited.name) && self.ways_behind(awaited).next().is_some())
                    .collect();
                if left.is_empty() {
                    return Ok(());
                }
            }
            if let Some((name, refusal)) = self.refusal_since(begun, &left) {
                let message = format!("`{name}` does not arrive: {}", refusal.error.message);
                return Err(ObjectError::new(refusal.error.kind, message)
                    .hint("`terrace status` says what each target refuses; what was put is kept, and tried again"));
            }
            if patience.is_some_and(|patience| begun.elapsed() >= patience) {
                let mut states: Vec<String> = vec![];
                let ways = left.iter().flat_map(|awaited| self.ways_behind(awaited));
                for trouble in ways.filter_map(|way| forwards.senders[way.sender].trouble()) {
                    if !states.contains(&trouble) {
                        states.push(trouble);
                    }
                }
                let states = if states.is_empty() { "it is still being sent".into() } else { states.join("; ") };
                return Err(ObjectError::new(
                    Kind::Busy,
                    format!("not all of `{path}` has arrived in the time given: {states}"),
                ));
            }
            if self.schedule.has_ended() {
                return Err(ObjectError::new(Kind::NoAgent, "the agent ends"));
            }
            if has_left() {
                return Err(ObjectError::new(Kind::Protocol, "the client has left"));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Logs that have ended are left for those in their place, where records have other numbers: all that is there by now is waited for.
    fn follow_logs(&self, left: &mut Vec<Awaited>) {
        let has_ended = |log: &Log| log.header().life.load(SeqCst) != LIVE;
        if !left.iter().any(|awaited| awaited.log.as_ref().is_some_and(|(log, _)| has_ended(log))) {
            return;
        }
        let mut current: BTreeMap<String, Log> = self.staged_arrays().into_iter().collect();
        left.retain_mut(|awaited| {
            if !awaited.log.as_ref().is_some_and(|(log, _)| has_ended(log)) {
                return true;
            }
            // None is in its place: nothing is left of it here.
            let Some(log) = current.remove(&awaited.name) else { return false };
            let tail = log.tail();
            awaited.log = Some((log, tail));
            true
        });
    }

    /// Where it has not arrived yet.
    fn ways_behind(&self, awaited: &Awaited) -> impl Iterator<Item = &Way> {
        let forwards = &self.forwards;
        let is_behind = move |way: &&Way| {
            let Some((log, tail)) = &awaited.log else { return forwards.unsent.count(way.id, &awaited.name) > 0 };
            log.forwarded(way.id).unwrap_or(0) < *tail
        };
        forwards.ways_of(&awaited.name).iter().filter(is_behind)
    }

    /// What a target refuses now: what it has said before may have been set right.
    fn refusal_since(&self, begun: Instant, left: &[Awaited]) -> Option<(String, Refusal)> {
        let forwards = &self.forwards;
        left.iter().find_map(|awaited| {
            let mut ways = self.ways_behind(awaited);
            let refusal = ways.find_map(|way| forwards.senders[way.sender].refusal(&awaited.name, begun))?;
            Some((awaited.name.clone(), refusal))
        })
    }
}
