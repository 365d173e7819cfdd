//! Visits each state that a model can reach, breadth first: the first broken invariant has a shortest way to it.
//!
//! Of a state that was visited only a fingerprint of 128 bits and the number of the one before it are kept; the way is found again.

use std::collections::{HashSet, VecDeque};
use std::fmt::{Arguments, Debug};
use std::hash::{Hash, Hasher};
use twox_hash::XxHash3_128;

pub trait Model {
    type State: Clone + Eq + Hash + Debug;

    fn first(&self) -> Self::State;
    /// What may happen next, each with its words.
    fn next(&self, state: &Self::State, happens: &mut dyn FnMut(Arguments, Self::State));
    /// The invariant that does not hold here.
    fn broken(&self, state: &Self::State) -> Option<&'static str>;
}

/// By which a model tells what may happen to a state: its words, and what it changes.
pub fn changes<S: Clone>(state: &S, happens: &mut dyn FnMut(Arguments, S)) -> impl FnMut(Arguments, &dyn Fn(&mut S)) {
    |words, change| {
        let mut changed = state.clone();
        change(&mut changed);
        happens(words, changed);
    }
}

/// How much may happen on a way. `TERRACE_MODEL_BOUNDS=wide` takes minutes and gigabytes.
#[derive(Clone, Copy)]
pub struct Bounds {
    pub writes: u8,
    pub ticks: u8,
    pub crashes: u8,
}

impl Bounds {
    pub const NARROW: Bounds = Bounds { writes: 1, ticks: 3, crashes: 1 };
    pub const WIDE: Bounds = Bounds { writes: 2, ticks: 6, crashes: 2 };

    pub fn wanted() -> Bounds {
        match std::env::var("TERRACE_MODEL_BOUNDS").as_deref() {
            Ok("wide") => Bounds::WIDE,
            Ok(other) => panic!("TERRACE_MODEL_BOUNDS is `{other}`; it is `wide` or not set"),
            Err(_) => Bounds::NARROW,
        }
    }
}

#[derive(Debug)]
pub enum Explored {
    /// All invariants hold in so many states.
    Holds(usize),
    /// One does not: which, and the steps that lead there.
    Broken { invariant: &'static str, steps: Vec<String> },
}

impl Explored {
    /// All of more than a few states hold.
    #[track_caller]
    pub fn must_hold(self) {
        match self {
            Explored::Holds(states) => {
                println!("{states} states");
                assert!(states > 10_000, "only {states} states");
            }
            Explored::Broken { invariant, steps } => panic!("{invariant}:\n{}", steps.join("\n")),
        }
    }

    /// One does not hold whose words begin so.
    #[track_caller]
    pub fn must_break(self, expected: &str, slip: &impl Debug) {
        match self {
            Explored::Broken { invariant, .. } if invariant.starts_with(expected) => {}
            other => panic!("{slip:?} should break {expected}: {other:?}"),
        }
    }
}

/// What a state is made of, one after the other.
struct Written(Vec<u8>);

impl Hasher for Written {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        unreachable!("only what was written is asked for")
    }
}

fn fingerprint(state: &impl Hash) -> u128 {
    let mut written = Written(Vec::with_capacity(256));
    state.hash(&mut written);
    XxHash3_128::oneshot(&written.0)
}

pub fn explore<M: Model>(model: &M) -> Explored {
    let first = model.first();
    let mut known = HashSet::from([fingerprint(&first)]);
    // Of each state visited, the one before it and itself.
    let mut ways: Vec<(usize, u128)> = vec![(0, fingerprint(&first))];
    let mut open = VecDeque::from([(first, 0)]);
    while let Some((state, at)) = open.pop_front() {
        if let Some(invariant) = model.broken(&state) {
            return Explored::Broken { invariant, steps: way(model, &ways, at) };
        }
        model.next(&state, &mut |_, next| {
            let print = fingerprint(&next);
            if known.insert(print) {
                ways.push((at, print));
                open.push_back((next, ways.len() - 1));
            }
        });
    }
    Explored::Holds(ways.len())
}

/// The steps to a state, and the state.
fn way<M: Model>(model: &M, ways: &[(usize, u128)], mut at: usize) -> Vec<String> {
    let mut prints = vec![];
    while at != 0 {
        prints.push(ways[at].1);
        at = ways[at].0;
    }
    let mut state = model.first();
    let mut steps = vec![];
    for print in prints.into_iter().rev() {
        let mut found = None;
        model.next(&state, &mut |words, next| {
            if found.is_none() && fingerprint(&next) == print {
                steps.push(words.to_string());
                found = Some(next);
            }
        });
        state = found.expect("each state has a way from the first");
    }
    steps.push(format!("{state:?}"));
    steps
}
