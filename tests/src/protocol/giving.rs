//! A file that goes from its owner to the node that opens it, by a conversation on one connection, which may break at any moment: the owner
//! (`GIVER`), the asker (`TAKER`), one file, agents that are killed.
//!
//!   taker ──Take──▶ giver   the giver holds its programs back, as for a flush
//!   taker ◀─Bytes── giver
//!   taker ─Placed─▶ giver   the object is there; the giver gives the name within NAMING ticks, by one rename, or not at all
//!   taker ◀─Named── giver
//!   taker ──Taken─▶ giver   it lets go of its own object
//!
//! What is under way on a connection that breaks is lost. Each side hears of that at a time of its own.

use super::explore::{Bounds, Model, changes};
use std::fmt::Arguments;

const GIVER: usize = 0;
const TAKER: usize = 1;
/// How long the giver may still give the name, and how long the taker looks for it, in ticks of one clock.
const NAMING: u8 = 1;
const LOOKING: u8 = 3;
const CONVERSATIONS_MAX: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    None,
    /// The giver lets go of its object when the name has gone.
    DropsEarly,
    /// A giver that hears nothing more believes that all went well.
    BelievesInTaken,
    /// The giver gives the name whenever it comes to it, and asks nobody afterwards.
    NamesLate,
    /// Programs of the giver's node may write while it gives.
    WritesWhileGiving,
    /// A giver in doubt takes the name back without asking.
    TakesBackUnasked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Message {
    Take,
    Bytes(u8),
    Placed,
    Named,
    Taken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Giver {
    Idle,
    /// Its bytes are sent.
    Sent(u8),
    /// It was told that they are there, so many ticks ago.
    Told(u8, u8),
    /// The name is given.
    Named,
    /// And then nothing was heard any more.
    Doubts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Taker {
    Idle,
    Asked,
    /// It has an object without a name.
    Ready,
    /// And the connection broke, so many ticks ago.
    Looks(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// To whose object the name leads.
    owner: usize,
    /// The version in each node's object.
    objects: [Option<u8>; 2],
    giver: Giver,
    taker: Taker,
    /// Under way, to each of the two, in order.
    to: [Option<Message>; 2],
    /// Each side's end of the connection is open, as far as it knows.
    open: [bool; 2],
    is_broken: bool,
    latest: u8,
    conversations: u8,
    ticks: u8,
    breaks: u8,
    crashes: u8,
}

pub struct Giving {
    pub slip: Slip,
    pub bounds: Bounds,
}

impl Giving {
    fn deliver(&self, state: &mut State, at: usize, message: Message) {
        match (at, message) {
            (GIVER, Message::Take) if state.giver == Giver::Idle && state.owner == GIVER => {
                if let Some(version) = state.objects[GIVER] {
                    state.giver = Giver::Sent(version);
                    state.to[TAKER] = Some(Message::Bytes(version));
                }
            }
            (TAKER, Message::Bytes(version)) if state.taker == Taker::Asked => {
                state.objects[TAKER] = Some(version);
                state.taker = Taker::Ready;
                state.to[GIVER] = Some(Message::Placed);
            }
            (GIVER, Message::Placed) => {
                if let Giver::Sent(version) = state.giver {
                    state.giver = Giver::Told(version, 0);
                }
            }
            (TAKER, Message::Named) if state.taker == Taker::Ready => {
                state.taker = Taker::Idle;
                state.to[GIVER] = Some(Message::Taken);
            }
            (GIVER, Message::Taken) if state.giver == Giver::Named => {
                state.giver = Giver::Idle;
                state.objects[GIVER] = None;
                state.open = [false; 2];
            }
            _ => {}
        }
    }

    /// This side finds that the connection has broken.
    fn hears(&self, state: &mut State, at: usize) {
        state.open[at] = false;
        if at == GIVER {
            state.giver = match state.giver {
                Giver::Named if self.slip == Slip::BelievesInTaken => {
                    state.objects[GIVER] = None;
                    Giver::Idle
                }
                Giver::Named => Giver::Doubts,
                // It is in the middle of giving the name, and hears of nothing.
                told @ Giver::Told(..) => {
                    state.open[at] = true;
                    told
                }
                Giver::Sent(_) => Giver::Idle,
                as_before => as_before,
            };
        } else {
            state.taker = match state.taker {
                Taker::Ready => Taker::Looks(0),
                Taker::Asked => Taker::Idle,
                as_before => as_before,
            };
        }
    }

    fn restarts(&self, state: &mut State, at: usize) {
        state.is_broken = true;
        state.to = [None; 2];
        state.open[at] = false;
        if at == GIVER {
            state.giver = Giver::Idle;
        } else {
            state.taker = Taker::Idle;
        }
        // An object that no name leads to goes.
        if state.owner != at {
            state.objects[at] = None;
        }
    }
}

impl Model for Giving {
    type State = State;

    fn first(&self) -> State {
        State {
            owner: GIVER,
            objects: [Some(0), None],
            giver: Giver::Idle,
            taker: Taker::Idle,
            to: [None; 2],
            open: [false; 2],
            is_broken: false,
            latest: 0,
            conversations: 0,
            ticks: 0,
            breaks: 1,
            crashes: self.bounds.crashes,
        }
    }

    fn next(&self, state: &State, happens: &mut dyn FnMut(Arguments, State)) {
        let mut add = changes(state, happens);
        for at in [GIVER, TAKER] {
            if let Some(message) = state.to[at].filter(|_| state.open[at]) {
                add(format_args!("arrives at {at}: {message:?}"), &|state| {
                    state.to[at] = None;
                    self.deliver(state, at, message);
                });
            }
            if state.is_broken && state.open[at] {
                add(format_args!("{at} hears that the connection broke"), &|state| self.hears(state, at));
            }
            if state.crashes > 0 {
                add(format_args!("the agent of {at} is killed, and another begins"), &|state| {
                    state.crashes -= 1;
                    self.restarts(state, at);
                });
            }
            // Its programs write while the name leads here, and the agent holds nobody back.
            let is_held = at == GIVER && state.giver != Giver::Idle && self.slip != Slip::WritesWhileGiving;
            if state.owner == at && state.objects[at].is_some() && !is_held && state.latest < self.bounds.writes {
                add(format_args!("a program of {at} opens, writes and closes"), &|state| {
                    state.latest += 1;
                    state.objects[at] = Some(state.latest);
                });
            }
        }
        if !state.is_broken && state.open == [true; 2] && state.breaks > 0 {
            add(format_args!("the connection breaks"), &|state| {
                state.breaks -= 1;
                state.is_broken = true;
                state.to = [None; 2];
            });
        }
        let is_idle = state.giver == Giver::Idle && state.taker == Taker::Idle && state.open == [false; 2];
        if is_idle && state.owner == GIVER && state.conversations < CONVERSATIONS_MAX {
            add(format_args!("a program of {TAKER} opens the file"), &|state| {
                state.conversations += 1;
                state.is_broken = false;
                state.open = [true; 2];
                state.taker = Taker::Asked;
                state.to[GIVER] = Some(Message::Take);
            });
        }
        if let Giver::Told(version, waited) = state.giver {
            let is_late = waited > NAMING && self.slip != Slip::NamesLate;
            // What changed meanwhile is not given, nor a name that leads elsewhere.
            let is_same = state.objects[GIVER] == Some(version) || self.slip == Slip::WritesWhileGiving;
            if is_late || !is_same || state.owner != GIVER {
                add(format_args!("the giver keeps it after all"), &|state| {
                    state.giver = Giver::Idle;
                    state.is_broken = true;
                    state.open[GIVER] = false;
                    state.to = [None; 2];
                });
            } else {
                add(format_args!("the giver gives the name"), &|state| {
                    state.owner = TAKER;
                    state.giver = if self.slip == Slip::NamesLate { Giver::Idle } else { Giver::Named };
                    if matches!(self.slip, Slip::DropsEarly | Slip::NamesLate) {
                        state.objects[GIVER] = None;
                    }
                    if !state.is_broken {
                        state.to[TAKER] = Some(Message::Named);
                    }
                });
            }
        }
        if state.giver == Giver::Doubts {
            // It asks the taker's agent, which may be another one by now, and whose answer is about what it has.
            let has_it = state.objects[TAKER].is_some();
            if has_it && self.slip != Slip::TakesBackUnasked {
                add(format_args!("the taker has it"), &|state| {
                    state.giver = Giver::Idle;
                    state.objects[GIVER] = None;
                });
            } else if state.owner == TAKER {
                add(format_args!("the giver takes the name back"), &|state| {
                    state.giver = Giver::Idle;
                    state.owner = GIVER;
                });
            }
        }
        if let Taker::Looks(waited) = state.taker {
            if state.owner == TAKER {
                add(format_args!("the taker finds that it has the name"), &|state| state.taker = Taker::Idle);
            } else if waited >= LOOKING {
                add(format_args!("the taker lets the bytes go"), &|state| {
                    state.taker = Taker::Idle;
                    state.objects[TAKER] = None;
                });
            }
        }
        if state.ticks < self.bounds.ticks + LOOKING {
            add(format_args!("time passes"), &|state| {
                state.ticks += 1;
                if let Giver::Told(version, waited) = state.giver {
                    state.giver = Giver::Told(version, (waited + 1).min(LOOKING + 1));
                }
                if let Taker::Looks(waited) = state.taker {
                    state.taker = Taker::Looks((waited + 1).min(LOOKING));
                }
            });
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let named = state.objects[state.owner];
        if named.is_some() && named != Some(state.latest) {
            return Some("G1: who opens by the name finds the current version");
        }
        let is_kept = matches!(state.giver, Giver::Named | Giver::Doubts) && state.objects[GIVER] == Some(state.latest);
        if named.is_none() && !is_kept {
            return Some("G2: the current version is somewhere from where the name can lead to it");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::explore::{Explored, explore};

    #[test]
    fn a_file_that_is_given_has_one_owner_and_is_never_lost() {
        // Two are too many: a taker that is killed with all of its programs when it has the bytes, and a giver when it has given the name.
        match explore(&Giving { slip: Slip::None, bounds: Bounds { crashes: 1, ..Bounds::wanted() } }) {
            Explored::Holds(states) => assert!(states > 500, "only {states} states"),
            broken => panic!("{broken:#?}"),
        }
    }

    #[test]
    fn each_slip_in_giving_breaks_its_invariant() {
        for (slip, expected) in [
            (Slip::DropsEarly, "G2"),
            (Slip::BelievesInTaken, "G2"),
            (Slip::NamesLate, "G2"),
            (Slip::WritesWhileGiving, "G1"),
            (Slip::TakesBackUnasked, "G1"),
        ] {
            explore(&Giving { slip, bounds: Bounds::NARROW }).must_break(expected, &slip);
        }
    }
}
