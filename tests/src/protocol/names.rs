//! Owners, names and commits: three nodes, two names, a file for each; flushing on demand, renames and removals from elsewhere, name caches
//! that are one step old, an agent's restart, a node's death, and fencing, also of a node that lives.
//!
//!   owner    copies its object ── looks the name up ── renames the copy over it ── removes the object
//!   opener   sees a link of another node, asks its owner to commit, looks the name up anew, opens what is there
//!   renamer  asks the owners of both names to wait, does its one system call while their promise holds, says that it is done
//!   fencing  renames the dead node's directory below `.terrace/nodes`: in it lie its copies, so a commit of its finds none
//!
//! No call of a file system compares and renames at once: all of the order between a commit and a rename elsewhere is the promise's.

use super::explore::{Bounds, Model, changes};
use std::fmt::Arguments;

const NODES: usize = 3;
const NAMES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    None,
    /// The owner believes its name cache before it commits.
    TrustsCache,
    /// An opener believes its name cache.
    OpensFromCache,
    /// Names are changed without asking their owner.
    AsksNobody,
    /// Only the owner of the old name is asked, not of the one that is replaced.
    AsksOneOwner,
    /// A restarted agent commits before promises that it has forgotten are over.
    NoGrace,
    /// A renamer that was slow does its call after its promise was over.
    RenamesLate,
    /// `done` ends the promise that there is, whatever its number.
    EndsAnyPromise,
    /// The object goes when the copy is whole, before the commit.
    RemovesEarly,
    /// A commit does not look whether the object has changed since it was copied.
    CommitsOldCopy,
    /// Copies lie in a directory that fencing leaves (or are renamed by a descriptor of it).
    CommitsAfterFencing,
    /// A held version is restored while the node is only out of reach.
    RestoresUnfenced,
    /// Who can't reach the owner takes the last durable version.
    OpensHeldVersion,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Absent,
    /// A link to the object that a node has of a file.
    Link {
        node: usize,
        file: usize,
    },
    Durable {
        file: usize,
        version: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Flush {
    Idle,
    Copied {
        file: usize,
        name: usize,
        version: u8,
    },
    /// Looked up and found unchanged: the rename is next.
    Checked {
        file: usize,
        name: usize,
        version: u8,
    },
    Committed {
        file: usize,
    },
}

/// A change of names on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Change {
    /// Removal of name 0, or its renaming over name 1.
    renames: bool,
    number: u8,
    /// Owners that have promised to wait.
    asked: [bool; NODES],
    /// The links that it saw.
    saw: [Entry; NAMES],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    root: [Entry; NAMES],
    /// What a name was one step ago, where a node may still believe it.
    stale: [[Option<Entry>; NAMES]; NODES],
    objects: [[Option<u8>; NAMES]; NODES],
    held: [Option<u8>; NAMES],
    flush: [Flush; NODES],
    /// To whom a node has promised not to commit, by number.
    promise: [Option<u8>; NODES],
    change: [Option<Change>; NODES],
    changes: u8,
    /// `done` that arrives again.
    doubled: Option<(usize, u8)>,
    may_double: bool,
    /// After a restart, while promises may be forgotten.
    grace: [bool; NODES],
    /// Agents may yet restart, and nodes die, so often.
    crashes: u8,
    dead: [bool; NODES],
    fenced: Option<usize>,
    /// What acknowledged calls have made: the file of each name, and each file's last closed version.
    wanted: [Option<usize>; NAMES],
    latest: [u8; NAMES],
    writes: u8,
    /// What an open has shown that it must not.
    shown: Option<&'static str>,
}

type Effect<'a> = &'a dyn Fn(&mut State);

pub struct Names {
    pub slip: Slip,
    pub bounds: Bounds,
}

impl State {
    fn set(&mut self, by: usize, name: usize, entry: Entry) {
        for node in (0..NODES).filter(|node| *node != by) {
            self.stale[node][name] = Some(self.root[name]);
        }
        self.stale[by][name] = None;
        self.root[name] = entry;
    }

    fn is_fenced(&self, node: usize) -> bool {
        self.fenced == Some(node)
    }
}

impl Names {
    /// The owners that a change must have asked, as it sees the names.
    fn to_ask(&self, at: usize, change: &Change) -> Vec<usize> {
        let names = match self.slip {
            Slip::AsksNobody => 0,
            Slip::AsksOneOwner => 1,
            _ if change.renames => 2,
            _ => 1,
        };
        let owners = change.saw[..names].iter().filter_map(|entry| match entry {
            Entry::Link { node, .. } => Some(*node),
            _ => None,
        });
        let mut owners: Vec<usize> = owners.filter(|owner| *owner != at || self.slip != Slip::AsksNobody).collect();
        owners.dedup();
        owners
    }

    fn open(&self, state: &mut State, at: usize, name: usize, entry: Entry) {
        let wanted = state.wanted[name];
        state.shown = match entry {
            Entry::Durable { file, version } if wanted == Some(file) && version < state.latest[file] => {
                Some("F5: an open shows what the last close wrote")
            }
            Entry::Durable { file, .. } if wanted != Some(file) => Some("F5: an open shows the file that has the name"),
            Entry::Link { node, file } if node == at && state.objects[at][file].is_none() && wanted == Some(file) => {
                Some("F1: a node has what its links name")
            }
            Entry::Absent if wanted.is_some() => Some("F6: a file that is there is found"),
            _ => None,
        };
    }
}

impl Model for Names {
    type State = State;

    fn first(&self) -> State {
        State {
            root: [Entry::Durable { file: 0, version: 0 }, Entry::Durable { file: 1, version: 0 }],
            stale: [[None; NAMES]; NODES],
            objects: [[None; NAMES]; NODES],
            held: [None; NAMES],
            flush: [Flush::Idle; NODES],
            promise: [None; NODES],
            change: [None; NODES],
            changes: 0,
            doubled: None,
            may_double: true,
            grace: [false; NODES],
            crashes: self.bounds.crashes,
            dead: [false; NODES],
            fenced: None,
            wanted: [Some(0), Some(1)],
            latest: [0; NAMES],
            writes: 0,
            shown: None,
        }
    }

    fn next(&self, state: &State, happens: &mut dyn FnMut(Arguments, State)) {
        let slip = self.slip;
        let mut add = changes(state, happens);
        for at in (0..NODES).filter(|at| !state.dead[*at]) {
            for name in 0..NAMES {
                // A program opens, writes and closes; what is in another node's tier is asked for first.
                let writable = match state.root[name] {
                    Entry::Link { node, file } => (node == at).then_some((file, None)),
                    Entry::Durable { file, version } => (!state.is_fenced(at)).then_some((file, Some(version))),
                    Entry::Absent => None,
                };
                if let Some((file, durable)) = writable
                    && state.writes < self.bounds.writes
                    && state.change.iter().all(Option::is_none)
                {
                    add(format_args!("node {at} writes name {name}"), &|state| {
                        state.writes += 1;
                        state.latest[file] += 1;
                        state.objects[at][file] = Some(state.latest[file]);
                        if durable.is_some() {
                            state.held[file] = durable;
                            state.set(at, name, Entry::Link { node: at, file });
                        }
                    });
                }
                // An open for reading. The caches are those of a node's kernel.
                let seen = state.stale[at][name].filter(|_| slip == Slip::OpensFromCache).unwrap_or(state.root[name]);
                match seen {
                    Entry::Link { node, file } if node != at => {
                        let reaches = !state.dead[node] && !state.is_fenced(node);
                        if !reaches
                            && slip == Slip::OpensHeldVersion
                            && let Some(version) = state.held[file]
                        {
                            add(format_args!("node {at} opens name {name}"), &|state| {
                                self.open(state, at, name, Entry::Durable { file, version });
                            });
                        }
                    }
                    entry => {
                        add(format_args!("node {at} opens name {name}"), &|state| self.open(state, at, name, entry))
                    }
                }
                // A flush begins by itself or because somebody asked; the owner knows the name that its file has.
                if let Entry::Link { node, file } = state.root[name]
                    && node == at
                    && state.flush[at] == Flush::Idle
                    && let Some(version) = state.objects[at][file]
                {
                    add(format_args!("node {at} copies name {name}"), &|state| {
                        state.flush[at] = Flush::Copied { file, name, version };
                        if slip == Slip::RemovesEarly {
                            state.objects[at][file] = None;
                        }
                    });
                }
            }
            match state.flush[at] {
                Flush::Copied { file, name, version } => {
                    let waits = state.promise[at].is_some() || state.grace[at] && slip != Slip::NoGrace;
                    let seen = state.stale[at][name].filter(|_| slip == Slip::TrustsCache).unwrap_or(state.root[name]);
                    let is_same = state.objects[at][file] == Some(version)
                        || matches!(slip, Slip::CommitsOldCopy | Slip::RemovesEarly);
                    add(format_args!("node {at} gives its flush up"), &|state| state.flush[at] = Flush::Idle);
                    if !waits && is_same && seen == (Entry::Link { node: at, file }) {
                        add(format_args!("node {at} has looked at name {name}"), &|state| {
                            state.flush[at] = Flush::Checked { file, name, version };
                        });
                    }
                }
                Flush::Checked { file, name, version } => {
                    let is_same = state.objects[at][file] == Some(version)
                        || matches!(slip, Slip::CommitsOldCopy | Slip::RemovesEarly);
                    let finds_copy = !state.is_fenced(at) || slip == Slip::CommitsAfterFencing;
                    add(format_args!("node {at} commits name {name}"), &|state| {
                        state.flush[at] = Flush::Idle;
                        // Writers wait between the look and the commit: a changed object is no commit.
                        if finds_copy && is_same {
                            state.set(at, name, Entry::Durable { file, version });
                            state.flush[at] = Flush::Committed { file };
                        }
                    });
                }
                Flush::Committed { file } => {
                    add(format_args!("node {at} removes its object of file {file}"), &|state| {
                        let still = state.root.contains(&Entry::Link { node: at, file });
                        if !still {
                            state.objects[at][file] = None;
                        }
                        state.flush[at] = Flush::Idle;
                    })
                }
                Flush::Idle => {}
            }
            self.change_names(state, at, &mut add);
            if state.crashes > 0 {
                add(format_args!("the agent of node {at} restarts"), &|state| {
                    state.crashes -= 1;
                    state.flush[at] = Flush::Idle;
                    state.grace[at] = state.promise[at].take().is_some();
                });
            }
            if state.crashes > 0 && state.writes > 0 {
                add(format_args!("node {at} dies"), &|state| {
                    state.crashes -= 1;
                    state.dead[at] = true;
                    state.objects[at] = [None; NAMES];
                    state.flush[at] = Flush::Idle;
                    state.promise[at] = None;
                    state.change[at] = None;
                });
            }
            // By a person, the scheduler, or because its host says so; it may live after all.
            if state.fenced.is_none() {
                add(format_args!("node {at} is declared dead"), &|state| state.fenced = Some(at));
            }
        }
        for dead in (0..NODES).filter(|node| state.dead[*node]) {
            if state.fenced.is_none() {
                add(format_args!("node {dead} is declared dead"), &|state| state.fenced = Some(dead));
            }
        }
        for name in 0..NAMES {
            if let Entry::Link { node, file } = state.root[name]
                && let Some(version) = state.held[file]
                && (state.is_fenced(node) || slip == Slip::RestoresUnfenced)
                && state.change.iter().all(Option::is_none)
            {
                let by = (node + 1) % NODES;
                add(format_args!("the held version of name {name} is restored, by a person's word"), &|state| {
                    state.set(by, name, Entry::Durable { file, version });
                    // Who declares a node dead accepts the loss of what it had.
                    if state.is_fenced(node) {
                        state.latest[file] = version;
                    }
                });
            }
        }
        if let Some((owner, number)) = state.doubled {
            add(format_args!("`done` {number} arrives at node {owner} again"), &|state| {
                state.doubled = None;
                let promised = state.promise[owner];
                state.promise[owner] = promised.filter(|promised| *promised != number && slip != Slip::EndsAnyPromise);
            });
        }
    }

    fn broken(&self, state: &State) -> Option<&'static str> {
        if state.shown.is_some() {
            return state.shown;
        }
        for name in 0..NAMES {
            match (state.root[name], state.wanted[name]) {
                (Entry::Absent, None) => {}
                (Entry::Link { node, file }, Some(wanted)) if file == wanted => {
                    let lost = state.dead[node] || state.is_fenced(node);
                    if !lost && state.objects[node][file] != Some(state.latest[file]) {
                        return Some("F1: the owner has the current version");
                    }
                }
                (Entry::Durable { file, version }, Some(wanted)) if file == wanted => {
                    if version != state.latest[file] {
                        return Some("F1: a durable file is the current version");
                    }
                }
                _ => return Some("F3: a name is what the last call on it made"),
            }
        }
        None
    }
}

impl Names {
    fn change_names(&self, state: &State, at: usize, add: &mut dyn FnMut(Arguments, Effect)) {
        let slip = self.slip;
        let Some(change) = state.change[at] else {
            if state.changes < 2 && state.wanted[0].is_some() {
                for renames in [false, true] {
                    add(format_args!("node {at} wants to change name 0, rename {renames}"), &|state| {
                        let change = Change { renames, number: state.changes, asked: [false; NODES], saw: state.root };
                        state.changes += 1;
                        state.change[at] = Some(change);
                    });
                }
            }
            return;
        };
        let to_ask = self.to_ask(at, &change);
        for &owner in &to_ask {
            let can = !state.dead[owner] && !state.is_fenced(owner) && state.promise[owner].is_none();
            let is_between = matches!(state.flush[owner], Flush::Checked { .. });
            if !change.asked[owner] && can && !is_between {
                add(format_args!("node {owner} promises {} to wait", change.number), &|state| {
                    state.promise[owner] = Some(change.number);
                    state.change[at].as_mut().expect("it is on its way").asked[owner] = true;
                });
            }
        }
        // A fenced node's links need nobody's word.
        let has_asked = to_ask.iter().all(|&owner| change.asked[owner] || state.is_fenced(owner));
        // Names that are owned by others than those that were asked: it begins again.
        let is_as_seen = state.root == change.saw || slip == Slip::AsksNobody || slip == Slip::AsksOneOwner;
        let holds = |owner: &usize| state.promise[*owner] == Some(change.number) || state.grace[*owner];
        let in_time = to_ask.iter().filter(|owner| change.asked[**owner]).all(holds);
        // A promise that was ended by mistake is one that the renamer still believes in.
        let in_time = in_time || matches!(slip, Slip::RenamesLate | Slip::EndsAnyPromise | Slip::NoGrace);
        if has_asked && is_as_seen && in_time && state.wanted[0].is_some() {
            add(format_args!("node {at} changes name 0, rename {}", change.renames), &|state| {
                let entry = state.root[0];
                if change.renames {
                    state.set(at, 1, entry);
                    state.wanted[1] = state.wanted[0];
                }
                state.set(at, 0, Entry::Absent);
                state.wanted[0] = None;
                Names::done(state, at, &change);
            });
        }
        add(format_args!("node {at} gives its change up"), &|state| Names::done(state, at, &change));
        // The owner's patience is over before the change is made; it has said by when.
        for owner in (0..NODES).filter(|owner| change.asked[*owner]) {
            add(format_args!("the promise {} of node {owner} is over", change.number), &|state| {
                if state.promise[owner] == Some(change.number) {
                    state.promise[owner] = None;
                }
                state.grace[owner] = false;
                // Its own clock has told the renamer before.
                if slip != Slip::RenamesLate {
                    state.change[at] = None;
                }
            });
        }
    }

    fn done(state: &mut State, at: usize, change: &Change) {
        for owner in (0..NODES).filter(|owner| change.asked[*owner]) {
            if state.promise[owner] == Some(change.number) {
                state.promise[owner] = None;
            }
            state.grace[owner] = false;
            if state.may_double {
                state.may_double = false;
                state.doubled = Some((owner, change.number));
            }
        }
        state.change[at] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::explore::explore;

    #[test]
    fn names_lead_to_the_current_version_on_each_node() {
        explore(&Names { slip: Slip::None, bounds: Bounds::wanted() }).must_hold();
    }

    #[test]
    fn each_slip_with_names_breaks_its_invariant() {
        for (slip, expected) in [
            (Slip::TrustsCache, "F3"),
            (Slip::OpensFromCache, "F"),
            (Slip::AsksNobody, "F3"),
            (Slip::AsksOneOwner, "F3"),
            (Slip::NoGrace, "F3"),
            (Slip::RenamesLate, "F3"),
            (Slip::EndsAnyPromise, "F3"),
            (Slip::RemovesEarly, "F1"),
            (Slip::CommitsOldCopy, "F1"),
            (Slip::CommitsAfterFencing, "F"),
            (Slip::RestoresUnfenced, "F1"),
            (Slip::OpensHeldVersion, "F5"),
        ] {
            explore(&Names { slip, bounds: Bounds { writes: 2, ..Bounds::NARROW } }).must_break(expected, &slip);
        }
    }
}
