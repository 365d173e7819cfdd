//! What is told of a directory's files, and promised: one owner, one asker, one file of many, messages in any order, one of them lost,
//! agents restarted.
//!
//!   asker   ──Look n──▶ owner    promises first (the mark, LENT ticks), then looks at the file
//!   asker   ◀─Looks n── owner    good for HELD ticks from the question, if nothing was broken since
//!   program                      changes the file, then sees the mark: has the agent break what it had promised until then
//!   asker   ◀─Break b── owner    ──Broken b──▶, or the LENT ticks are over: then the program goes on
//!
//! That a name leads to this file at all, its asker looks up each time: it is no part of this.

use super::explore::{Bounds, Model, changes};
use std::fmt::Arguments;

/// What the owner counts, and what the asker does, in ticks of one clock.
const LENT: u8 = 3;
const HELD: u8 = 2;
const ASKS_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    None,
    /// The owner looks at the file before it promises.
    LooksFirst,
    /// The asker counts from the answer.
    CountsFromAnswer,
    /// The asker keeps an answer whose promise was broken before it came.
    KeepsBroken,
    /// The program sees no mark, and then changes the file.
    MarkFirst,
    /// The program goes on when the message is sent.
    GoesOn,
    /// Promises that were given while others were broken go with them.
    EndsAll,
    /// An agent that begins holds nobody to what an earlier one has told.
    NoGrace,
    /// An asker's agent that begins finds what was kept.
    KeptOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Look { number: u8 },
    Looks { number: u8, version: u8 },
    Break { number: u8 },
    Broken { number: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Program {
    Rests,
    /// It has seen whether there is a mark, and not yet changed the file (a slip).
    Saw(bool),
    /// It has changed the file, and not yet looked for the mark.
    Changed,
    /// Its agent breaks the promises up to this number.
    Waits {
        number: u8,
        left: u8,
        is_broken: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    version: u8,
    /// Of the last change whose call has returned.
    latest: u8,
    mark: bool,
    /// Promises that hold for the owner: number and ticks left. 0 is of an agent before this one.
    given: Vec<(u8, u8)>,
    /// A question that the owner has promised for, or (a slip) looked for, and the version that it saw.
    under_way: Option<(u8, Option<u8>)>,
    program: Program,
    /// The asker's: a question, the breaks before it, and the ticks since.
    asked: Option<(u8, u8, u8)>,
    breaks: u8,
    /// Version and ticks left.
    kept: Option<(u8, u8)>,
    asks: u8,
    changes: u8,
    ticks: u8,
    crashes: u8,
    may_lose: bool,
    messages: Vec<Message>,
}

pub struct Promises {
    pub slip: Slip,
    pub bounds: Bounds,
}

impl State {
    fn send(&mut self, message: Message) {
        self.messages.push(message);
        self.messages.sort_unstable();
    }

    fn promise(&mut self, number: u8) {
        self.given.push((number, LENT));
        self.mark = true;
    }

    /// The program's agent begins to break what it has promised.
    fn call_back(&mut self) {
        let number = self.given.iter().map(|promise| promise.0).max().unwrap_or(0);
        let left = self.given.iter().map(|promise| promise.1).max().unwrap_or(0);
        self.program = Program::Waits { number, left, is_broken: self.given.is_empty() };
        if number > 0 {
            self.send(Message::Break { number });
        }
    }

    fn returns(&mut self) {
        self.latest = self.version;
        self.program = Program::Rests;
    }
}

impl Promises {
    fn deliver(&self, state: &mut State, message: Message) {
        match message {
            Message::Look { number } => {
                if self.slip == Slip::LooksFirst {
                    state.under_way = Some((number, Some(state.version)));
                } else {
                    state.promise(number);
                    state.under_way = Some((number, None));
                }
            }
            Message::Looks { number, version } => {
                let Some((_, breaks, elapsed)) = state.asked.filter(|asked| asked.0 == number) else { return };
                state.asked = None;
                let left = if self.slip == Slip::CountsFromAnswer { HELD } else { HELD.saturating_sub(elapsed) };
                if breaks == state.breaks || self.slip == Slip::KeepsBroken {
                    state.kept = Some((version, left)).filter(|_| left > 0);
                }
            }
            Message::Break { number } => {
                state.kept = None;
                state.breaks += 1;
                state.send(Message::Broken { number });
            }
            Message::Broken { number } => {
                if let Program::Waits { number: waited, is_broken, .. } = &mut state.program
                    && *waited == number
                {
                    *is_broken = true;
                }
            }
        }
    }

    fn tick(state: &mut State) {
        state.ticks += 1;
        state.given.iter_mut().for_each(|promise| promise.1 = promise.1.saturating_sub(1));
        state.asked = state.asked.map(|(number, breaks, elapsed)| (number, breaks, elapsed + 1));
        state.kept = state.kept.map(|(version, left)| (version, left - 1)).filter(|kept| kept.1 > 0);
        if let Program::Waits { left, .. } = &mut state.program {
            *left = left.saturating_sub(1);
        }
    }
}

impl Model for Promises {
    type State = State;

    fn first(&self) -> State {
        State {
            version: 0,
            latest: 0,
            mark: false,
            given: vec![],
            under_way: None,
            program: Program::Rests,
            asked: None,
            breaks: 0,
            kept: None,
            asks: 0,
            changes: 0,
            ticks: 0,
            crashes: self.bounds.crashes,
            may_lose: true,
            messages: vec![],
        }
    }

    fn next(&self, state: &State, happens: &mut dyn FnMut(Arguments, State)) {
        let mut add = changes(state, happens);
        for (at, message) in state.messages.iter().copied().enumerate() {
            // A connection has one question at a time.
            if !matches!(message, Message::Look { .. }) || state.under_way.is_none() {
                add(format_args!("arrives: {message:?}"), &|state| {
                    state.messages.remove(at);
                    self.deliver(state, message);
                });
            }
            if state.may_lose {
                add(format_args!("lost: {message:?}"), &|state| {
                    state.messages.remove(at);
                    state.may_lose = false;
                });
            }
        }
        if state.asked.is_none() && state.kept.is_none() && state.asks < ASKS_MAX {
            add(format_args!("the asker asks"), &|state| {
                state.asks += 1;
                state.asked = Some((state.asks, state.breaks, 0));
                state.send(Message::Look { number: state.asks });
            });
        }
        if state.asked.is_some_and(|asked| asked.2 > HELD) {
            add(format_args!("the asker gives up"), &|state| state.asked = None);
        }
        match state.under_way {
            Some((number, None)) => add(format_args!("the owner looks at the file for {number}"), &|state| {
                state.under_way = None;
                state.send(Message::Looks { number, version: state.version });
            }),
            Some((number, Some(version))) => add(format_args!("the owner promises for {number}"), &|state| {
                state.under_way = None;
                state.promise(number);
                state.send(Message::Looks { number, version });
            }),
            None => {}
        }
        self.program(state, &mut add);
        if state.crashes > 0 {
            add(format_args!("the owner's agent restarts"), &|state| {
                state.crashes -= 1;
                state.under_way = None;
                state.given.clear();
                if self.slip != Slip::NoGrace {
                    state.promise(0);
                }
                // The program's call is made again, of the new one.
                if matches!(state.program, Program::Waits { .. }) {
                    state.call_back();
                }
            });
            add(format_args!("the asker's agent restarts"), &|state| {
                state.crashes -= 1;
                state.asked = None;
                state.kept = state.kept.filter(|_| self.slip == Slip::KeptOver).map(|kept| (kept.0, LENT + 1));
            });
        }
        if state.ticks < self.bounds.ticks + 2 {
            add(format_args!("time passes"), &Self::tick);
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let is_old = |(version, _): (u8, u8)| version < state.latest;
        state.kept.is_some_and(is_old).then_some("P1: what is shown was so after the last change that has returned")
    }
}

impl Promises {
    fn program(&self, state: &State, add: &mut impl FnMut(Arguments, &dyn Fn(&mut State))) {
        let sees = |state: &mut State, mark: bool| match mark {
            true => state.call_back(),
            false => state.returns(),
        };
        match state.program {
            Program::Rests if state.changes <= self.bounds.writes => match self.slip {
                Slip::MarkFirst => add(format_args!("a program looks for the mark"), &|state| {
                    state.changes += 1;
                    state.program = Program::Saw(state.mark);
                }),
                _ => add(format_args!("a program changes the file"), &|state| {
                    state.changes += 1;
                    state.version += 1;
                    state.program = Program::Changed;
                }),
            },
            Program::Rests => {}
            Program::Saw(mark) => add(format_args!("it changes the file"), &|state| {
                state.version += 1;
                sees(state, mark);
            }),
            Program::Changed => add(format_args!("it looks for the mark"), &|state| sees(state, state.mark)),
            Program::Waits { number, left, is_broken } => {
                // To whom an earlier agent has promised is not known, so its time is waited for.
                let of_earlier = state.given.iter().any(|promise| promise.0 == 0 && promise.1 > 0);
                if is_broken && !of_earlier || left == 0 || self.slip == Slip::GoesOn {
                    add(format_args!("its call returns"), &|state| {
                        state.given.retain(|promise| promise.0 > number && self.slip != Slip::EndsAll);
                        state.mark = !state.given.is_empty();
                        state.returns();
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::explore::explore;

    #[test]
    fn what_was_told_is_never_older_than_the_last_change_that_has_returned() {
        explore(&Promises { slip: Slip::None, bounds: Bounds::wanted() }).must_hold();
    }

    #[test]
    fn each_slip_with_promises_shows_an_old_file() {
        for slip in [
            Slip::LooksFirst,
            Slip::CountsFromAnswer,
            Slip::KeepsBroken,
            Slip::MarkFirst,
            Slip::GoesOn,
            Slip::EndsAll,
            Slip::NoGrace,
            Slip::KeptOver,
        ] {
            explore(&Promises { slip, bounds: Bounds::NARROW }).must_break("P1", &slip);
        }
    }
}
