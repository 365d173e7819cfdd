//! Whether a history is linearizable: just in time, breadth first (Lowe's form of Wing and Gong's algorithm).
//!
//! The operations' starts and ends pass by in the order of time. A *configuration* is a state, and which of the pending operations
//! have happened in it. When an operation ends, each configuration in which it has not happened is led, by letting pending operations
//! happen in each order, to those in which it has; equal ones are one. If none is left, nothing explains that operation's result.
//!
//! A look that gives in a state what was seen happens there at once: that forbids nothing that waiting would allow.

use super::explain::explain;
use super::model::{Rules, State, Step};
use super::operation::{Action, Client, Operation, Seen};
use std::cell::Cell;
use std::collections::HashSet;

pub struct Verdict {
    pub operations: usize,
    /// The most configurations that there were at one moment: what it cost.
    pub configurations: usize,
    /// In words: what can't be explained, what was known before, and what happened meanwhile.
    pub wrong: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Configuration {
    pub state: State,
    /// Those of the pending operations that have happened, by number, sorted.
    pub done: Vec<u32>,
}

/// A history that gets too many configurations shows nothing; the recorder must be made slower.
const CONFIGURATIONS_MAX: usize = 400_000;
/// In all: where a moment has nearly as many, so have the next ones, and each takes seconds.
const LOOKED_AT_MAX: usize = 20_000_000;

/// In what is said of such a history.
pub const UNDECIDED: &str = "the history can't be decided";

/// A moment from which the rest can be checked again.
#[derive(Clone)]
pub(super) struct Moment {
    /// The next event.
    pub event: usize,
    pub configurations: HashSet<Configuration>,
    pub pending: Vec<u32>,
}

pub(super) struct Failure {
    /// The operation whose end no configuration survives.
    pub operation: u32,
    pub event: usize,
    /// Moments before it, the latest last.
    pub moments: Vec<Moment>,
    /// What there was just before.
    pub last: HashSet<Configuration>,
}

pub(super) type Event = (u64, bool, u32);

/// Starts and ends in the order of time. At one time starts come first: then both orders are allowed.
pub(super) fn events(operations: &[Operation]) -> Vec<Event> {
    let mut events = Vec::with_capacity(2 * operations.len());
    for (number, operation) in operations.iter().enumerate() {
        events.push((operation.start, false, number as u32));
        events.push((operation.end, true, number as u32));
    }
    events.sort_unstable();
    events
}

/// Checks the operations on one group of names; `names` is for words only.
pub fn check(operations: &[Operation], names: &[String], rules: &Rules) -> Verdict {
    let events = events(operations);
    let first = Moment { event: 0, configurations: HashSet::from([Configuration::default()]), pending: vec![] };
    let mut most = 0;
    let failure = run(operations, &events, first, rules, &|_| true, &mut most);
    let wrong = match failure {
        Ok(()) => None,
        Err(Stop::TooMany) => Some(format!(
            "{UNDECIDED}: more than {CONFIGURATIONS_MAX} configurations at a moment, or {LOOKED_AT_MAX} in all.\nhint: fewer clients, or longer pauses"
        )),
        Err(Stop::Wrong(failure)) => Some(explain(operations, &events, names, rules, &failure)),
    };
    Verdict { operations: operations.len(), configurations: most, wrong }
}

pub(super) enum Stop {
    Wrong(Box<Failure>),
    TooMany,
}

/// From a moment on. Operations that `counts` refuses are taken out.
pub(super) fn run(
    operations: &[Operation],
    events: &[Event],
    from: Moment,
    rules: &Rules,
    counts: &dyn Fn(u32) -> bool,
    most: &mut usize,
) -> Result<(), Stop> {
    let Moment { event: first, mut configurations, mut pending } = from;
    let mut moments: Vec<Moment> = vec![];
    let looked_at = Cell::new(0);
    pending.retain(|&number| counts(number));
    for (at, &(_, is_end, number)) in events.iter().enumerate().skip(first) {
        if !counts(number) {
            continue;
        }
        let operation = &operations[number as usize];
        if !is_end {
            if pending.is_empty() && configurations.len() <= 8 {
                if moments.len() == 4 {
                    moments.remove(0);
                }
                moments.push(Moment { event: at, configurations: configurations.clone(), pending: vec![] });
            }
            pending.push(number);
            if operation.is_look() {
                let search = Search { operations, pending: &pending, rules, looked_at: &looked_at };
                configurations = configurations.into_iter().map(|one| search.look(one, number)).collect();
            }
            continue;
        }
        let search = Search { operations, pending: &pending, rules, looked_at: &looked_at };
        if operation.action == Action::Die {
            configurations.extend(search.last_acts(&configurations, operation.client)?);
        }
        let after = match operation.action {
            Action::Close { .. } | Action::Die => {
                let closed = |mut one: Configuration| {
                    one.state.close(operation.client, operation.session());
                    one
                };
                configurations.iter().cloned().map(closed).collect()
            }
            // Done or not: both go on.
            _ if operation.seen == Seen::Unknown => {
                configurations.iter().cloned().map(|one| without(one, number)).collect()
            }
            _ => search.until_done(&configurations, number)?,
        };
        if after.is_empty() {
            let failure = Failure { operation: number, event: at, moments, last: configurations };
            return Err(Stop::Wrong(Box::new(failure)));
        }
        *most = (*most).max(after.len());
        configurations = after;
        pending.retain(|&other| other != number);
    }
    Ok(())
}

fn without(mut configuration: Configuration, number: u32) -> Configuration {
    configuration.done.retain(|&done| done != number);
    configuration
}

struct Search<'a> {
    operations: &'a [Operation],
    pending: &'a [u32],
    rules: &'a Rules,
    /// Configurations so far, of all moments.
    looked_at: &'a Cell<usize>,
}

impl Search<'_> {
    /// All configurations in which `number` has happened, one step after those in which it had not.
    fn until_done(&self, before: &HashSet<Configuration>, number: u32) -> Result<HashSet<Configuration>, Stop> {
        let (mut seen, mut after) = (HashSet::new(), HashSet::new());
        let mut open: Vec<Configuration> = before.iter().cloned().collect();
        while let Some(configuration) = open.pop() {
            if configuration.done.contains(&number) {
                after.insert(without(configuration, number));
                continue;
            }
            if !seen.insert(configuration.clone()) {
                continue;
            }
            self.looked_at.set(self.looked_at.get() + 1);
            if seen.len() + after.len() > CONFIGURATIONS_MAX || self.looked_at.get() > LOOKED_AT_MAX {
                return Err(Stop::TooMany);
            }
            for &next in self.pending {
                if !configuration.done.contains(&next)
                    && let Some(changed) = self.happen(&configuration, next)
                {
                    open.push(changed);
                }
            }
        }
        Ok(after)
    }

    /// What a client was at when it was killed has happened before its descriptors were closed, if at all.
    fn last_acts(&self, before: &HashSet<Configuration>, client: Client) -> Result<HashSet<Configuration>, Stop> {
        let is_last = |number: &&u32| {
            let operation = &self.operations[**number as usize];
            let is_by_descriptor = !matches!(operation.action, Action::Open { .. }) && operation.session().is_some();
            operation.client == client && operation.seen == Seen::Unknown && is_by_descriptor
        };
        match self.pending.iter().find(is_last) {
            Some(&number) => self.until_done(before, number),
            None => Ok(HashSet::new()),
        }
    }

    fn happen(&self, configuration: &Configuration, number: u32) -> Option<Configuration> {
        let operation = &self.operations[number as usize];
        if matches!(operation.action, Action::Close { .. } | Action::Die) {
            return None;
        }
        match configuration.state.step(number, operation, self.rules) {
            Step::No => None,
            // Looks have happened by themselves; what else changes nothing here need not happen, but when it ends.
            Step::Same => Some(with(configuration.clone(), number)),
            Step::Changed(state) => {
                let mut done = configuration.done.clone();
                insert(&mut done, number);
                let mut changed = Configuration { state, done };
                for &look in self.pending {
                    if self.operations[look as usize].is_look() && !changed.done.contains(&look) {
                        changed = self.look(changed, look);
                    }
                }
                Some(changed)
            }
        }
    }

    /// Lets a look happen if it would see what it saw.
    fn look(&self, configuration: Configuration, number: u32) -> Configuration {
        match configuration.state.step(number, &self.operations[number as usize], self.rules) {
            Step::Same => with(configuration, number),
            _ => configuration,
        }
    }
}

fn with(mut configuration: Configuration, number: u32) -> Configuration {
    insert(&mut configuration.done, number);
    configuration
}

fn insert(done: &mut Vec<u32>, number: u32) {
    if let Err(at) = done.binary_search(&number) {
        done.insert(at, number);
    }
}
