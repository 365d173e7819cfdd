//! Replicas, leases and the taking over of a file: three nodes, one file, messages in any order, one of them lost or doubled, one agent
//! restarted, one node dead.
//!
//!   reader  ──Open n──▶ owner   lends: keeps (reader, n) for LENT ticks
//!   reader  ◀─Grant n── owner   the replica is good for HELD ticks from when the reader *asked*
//!   reader  ◀─Recall n─ owner   before a write-open returns; ──Recalled n──▶, or the owner's LENT ticks are over
//!   writer  ──Take n──▶ owner   leaves: no write, no lending; ◀─Taken n──, the writer renames its link over the owner's
//!
//! Other files share nothing with this one; names are the model beside this one's matter (`names`).

use super::explore::{Bounds, Model, changes};
use std::fmt::Arguments;

const NODES: usize = 3;
/// What the owner counts, and what the borrower does (0.8 of it, in ticks of one clock).
const LENT: u8 = 3;
const HELD: u8 = 2;
const ASKS_MAX: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    None,
    /// A write-open returns while replicas are out.
    WritesWhileLent,
    /// The lease begins when the grant arrives.
    LeaseFromGrant,
    /// A borrower goes on for as long as the owner counts, and one tick more.
    HoldsTooLong,
    /// A grant is taken whatever was asked last.
    AnyGrant,
    /// A recall of what has not arrived yet is answered and forgotten.
    ForgetsRecall,
    /// A restarted owner writes at once, though it has forgotten to whom it has lent.
    NoGrace,
    /// An owner does not look at the link again before a write-open returns.
    TrustsMemory,
    /// A restarted borrower keeps the replicas that it finds.
    KeepsReplicas,
    /// The owner gives its object away before the new link is there.
    DropsEarly,
    /// The taker renames whenever the answer comes.
    TakesLate,
    /// The owner goes on writing while it leaves.
    WritesWhileLeaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Message {
    Open { from: usize, number: u8, take: bool },
    Grant { owner: usize, to: usize, number: u8, version: u8, take: bool },
    Recall { owner: usize, to: usize, number: u8 },
    Recalled { from: usize, owner: usize, number: u8 },
    TakeDone { owner: usize, number: u8 },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Node {
    /// Of the file, where this node is or was its owner.
    object: Option<u8>,
    /// Version, its request, and ticks left.
    replica: Option<(u8, u8, u8)>,
    /// Number, ticks since it was sent, for taking.
    asked: Option<(u8, u8, bool)>,
    /// Borrower, number, ticks left.
    lent: Vec<(usize, u8, u8)>,
    /// To whom, number, ticks left.
    leaving: Option<(usize, u8, u8)>,
    wants_write: bool,
    writing: bool,
    grace: u8,
    dead: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The tag in the link.
    owner: usize,
    nodes: [Node; NODES],
    messages: Vec<Message>,
    /// What the last close that returned has written.
    latest: u8,
    asks: u8,
    ticks: u8,
    may_disturb: bool,
    /// Agents may yet restart, and nodes die, so often.
    crashes: u8,
}

pub struct Replicas {
    pub slip: Slip,
    pub bounds: Bounds,
}

impl State {
    fn send(&mut self, message: Message) {
        self.messages.push(message);
        self.messages.sort_unstable();
    }
}

impl Replicas {
    fn deliver(&self, state: &mut State, message: Message) {
        let owner_now = state.owner;
        match message {
            Message::Open { from, number, take } => {
                // Of another owner's file: the asker reads the link again.
                let at = owner_now;
                let node = &mut state.nodes[at];
                // Not in its grace either: whom it has promised the file it has forgotten.
                let waits = node.grace > 0 && self.slip != Slip::NoGrace;
                if at == from || node.dead || node.wants_write || node.writing || node.leaving.is_some() || waits {
                    return;
                }
                let Some(version) = node.object else { return };
                if take {
                    if !node.lent.is_empty() {
                        return;
                    }
                    node.leaving = Some((from, number, LENT));
                    if self.slip == Slip::DropsEarly {
                        node.object = None;
                    }
                } else if !node.lent.contains(&(from, number, LENT)) {
                    node.lent.push((from, number, LENT));
                    node.lent.sort_unstable();
                }
                state.send(Message::Grant { owner: at, to: from, number, version, take });
            }
            Message::Grant { owner, to, number, version, take } => {
                let node = &mut state.nodes[to];
                let asked = node.asked.filter(|(asked, _, for_taking)| *asked == number && *for_taking == take);
                let elapsed = match asked {
                    Some((_, elapsed, _)) => elapsed,
                    None if self.slip == Slip::AnyGrant && !take => 0,
                    None => return,
                };
                node.asked = None;
                let left = match self.slip {
                    Slip::LeaseFromGrant if !take => HELD,
                    Slip::HoldsTooLong if !take => (LENT + 2).saturating_sub(elapsed),
                    _ => HELD.saturating_sub(elapsed),
                };
                if !take {
                    node.replica = Some((version, number, left)).filter(|_| left > 0);
                } else if left > 0 || self.slip == Slip::TakesLate {
                    // The object, then the link by one rename, in the time in which the owner still waits.
                    node.object = Some(version);
                    node.replica = None;
                    state.owner = to;
                    state.send(Message::TakeDone { owner, number });
                }
            }
            Message::Recall { owner, to, number } => {
                let node = &mut state.nodes[to];
                node.replica = node.replica.filter(|replica| replica.1 != number);
                if self.slip != Slip::ForgetsRecall {
                    node.asked = node.asked.filter(|asked| asked.0 != number);
                }
                state.send(Message::Recalled { from: to, owner, number });
            }
            Message::Recalled { from, owner, number } => {
                state.nodes[owner].lent.retain(|(to, lent, _)| (*to, *lent) != (from, number));
            }
            Message::TakeDone { owner, number } => {
                let node = &mut state.nodes[owner];
                if node.leaving.is_some_and(|(_, leaving, _)| leaving == number) && owner_now != owner {
                    node.leaving = None;
                    node.object = None;
                }
            }
        }
    }

    fn tick(&self, state: &mut State) {
        state.ticks += 1;
        let owner = state.owner;
        for (at, node) in state.nodes.iter_mut().enumerate() {
            node.grace = node.grace.saturating_sub(1);
            node.lent.iter_mut().for_each(|lent| lent.2 -= 1);
            node.lent.retain(|lent| lent.2 > 0);
            node.replica =
                node.replica.map(|(version, number, left)| (version, number, left - 1)).filter(|one| one.2 > 0);
            node.asked = node.asked.map(|(number, elapsed, take)| (number, (elapsed + 1).min(LENT + 1), take));
            if let Some((to, number, left)) = node.leaving {
                node.leaving = Some((to, number, left - 1)).filter(|one| one.2 > 0);
                // The link decides, looked up anew.
                if node.leaving.is_none() && owner != at {
                    node.object = None;
                }
            }
        }
    }
}

impl Model for Replicas {
    type State = State;

    fn first(&self) -> State {
        let mut nodes: [Node; NODES] = Default::default();
        nodes[0].object = Some(0);
        State {
            owner: 0,
            nodes,
            messages: vec![],
            latest: 0,
            asks: 0,
            ticks: 0,
            may_disturb: true,
            crashes: self.bounds.crashes,
        }
    }

    fn next(&self, state: &State, happens: &mut dyn FnMut(Arguments, State)) {
        let mut add = changes(state, happens);
        for (at, message) in state.messages.iter().copied().enumerate() {
            let to_dead = match message {
                Message::Open { .. } => state.nodes[state.owner].dead,
                Message::Grant { to, .. } | Message::Recall { to, .. } => state.nodes[to].dead,
                Message::Recalled { owner, .. } | Message::TakeDone { owner, .. } => state.nodes[owner].dead,
            };
            add(format_args!("arrives: {message:?}"), &|state| {
                state.messages.remove(at);
                if !to_dead {
                    self.deliver(state, message);
                }
            });
            if state.may_disturb {
                add(format_args!("lost: {message:?}"), &|state| {
                    state.messages.remove(at);
                    state.may_disturb = false;
                });
                add(format_args!("doubled: {message:?}"), &|state| {
                    state.may_disturb = false;
                    state.send(message);
                });
            }
        }
        for at in 0..NODES {
            let node = &state.nodes[at];
            if node.dead {
                continue;
            }
            let is_owner = state.owner == at;
            if !is_owner && node.asked.is_none() && node.replica.is_none() && state.asks < ASKS_MAX {
                for take in [false, true] {
                    add(format_args!("node {at} asks, take {take}"), &|state| {
                        let number = state.asks;
                        state.asks += 1;
                        state.nodes[at].asked = Some((number, 0, take));
                        state.send(Message::Open { from: at, number, take });
                    });
                }
            }
            if node.asked.is_some_and(|asked| asked.1 > HELD) {
                add(format_args!("node {at} gives up"), &|state| state.nodes[at].asked = None);
            }
            let may_leave = node.leaving.is_some() && self.slip != Slip::WritesWhileLeaving;
            if is_owner && !node.wants_write && !node.writing && !may_leave && state.latest < self.bounds.writes {
                add(format_args!("a program on node {at} opens for writing"), &|state| {
                    state.nodes[at].wants_write = true;
                    for (to, number, _) in state.nodes[at].lent.clone() {
                        state.send(Message::Recall { owner: at, to, number });
                    }
                });
            }
            let is_alone = node.lent.is_empty() || self.slip == Slip::WritesWhileLent;
            let waits = node.grace > 0 && self.slip != Slip::NoGrace;
            // The link decides, looked up anew: before the restart it may have been promised.
            let is_own = is_owner || self.slip == Slip::TrustsMemory;
            if node.wants_write && is_alone && is_own && !waits && !may_leave {
                add(format_args!("its open on node {at} returns"), &|state| {
                    state.nodes[at].wants_write = false;
                    state.nodes[at].writing = true;
                });
            }
            if node.writing {
                add(format_args!("its close on node {at} returns"), &|state| {
                    state.latest += 1;
                    state.nodes[at].writing = false;
                    state.nodes[at].object = Some(state.latest);
                });
            }
            if state.crashes > 0 {
                add(format_args!("the agent of node {at} restarts"), &|state| {
                    state.crashes -= 1;
                    let slip = self.slip;
                    let owner = state.owner;
                    let node = &mut state.nodes[at];
                    node.lent.clear();
                    node.leaving = None;
                    node.asked = None;
                    node.grace = LENT;
                    if slip != Slip::KeepsReplicas {
                        node.replica = None;
                    } else if let Some(replica) = &mut node.replica {
                        replica.2 = LENT + 2;
                    }
                    // An object whose link is another's goes.
                    if owner != at {
                        node.object = None;
                    }
                });
            }
            if state.crashes > 0 {
                add(format_args!("node {at} dies"), &|state| {
                    state.crashes -= 1;
                    state.nodes[at] = Node { dead: true, ..Node::default() };
                });
            }
        }
        if state.ticks < self.bounds.ticks {
            add(format_args!("time passes"), &|state| self.tick(state));
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        let owner = &state.nodes[state.owner];
        if !owner.dead && owner.object != Some(state.latest) {
            return Some("F1: the owner that the link names has the current version");
        }
        let writers = state.nodes.iter().filter(|node| node.writing).count();
        let writes_elsewhere = state.nodes.iter().enumerate().any(|(at, node)| node.writing && at != state.owner);
        if writers > 1 || writes_elsewhere {
            return Some("F1: only the owner writes");
        }
        let is_stale = |node: &Node| node.replica.is_some_and(|replica| replica.0 != state.latest);
        if state.nodes.iter().any(is_stale) {
            return Some("F2, F5: a replica that can be opened is the current version");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::explore::explore;

    #[test]
    fn replicas_are_current_and_the_owner_is_one() {
        explore(&Replicas { slip: Slip::None, bounds: Bounds::wanted() }).must_hold();
    }

    #[test]
    fn each_slip_with_replicas_breaks_its_invariant() {
        for (slip, expected) in [
            (Slip::WritesWhileLent, "F2"),
            (Slip::LeaseFromGrant, "F2"),
            (Slip::HoldsTooLong, "F2"),
            (Slip::AnyGrant, "F2"),
            (Slip::ForgetsRecall, "F2"),
            (Slip::NoGrace, "F"),
            (Slip::TrustsMemory, "F1"),
            (Slip::KeepsReplicas, "F2"),
            (Slip::DropsEarly, "F1"),
            (Slip::TakesLate, "F1"),
            (Slip::WritesWhileLeaving, "F1"),
        ] {
            explore(&Replicas { slip, bounds: Bounds { ticks: 4, ..Bounds::NARROW } }).must_break(expected, &slip);
        }
    }
}
