//! What files are, as far as a history can tell: names, inodes with slots, a mode and links, and what is open.
//!
//! A step answers whether an operation may have had this result in this state, and what the state is then. Everything is as on
//! one node natively, but for what `Rules` allows.

use super::operation::{Action, Attribute, Client, Flags, Name, OF_A_CALL, Operation, Seen, Session};
use std::collections::BTreeMap;

/// The number of the operation that made it: the same in each order in which the operations may have happened.
type Inode = u32;

/// What is allowed beyond a local file system's behaviour.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `EREMOTE` for a file that another node may have in its tiers: nodes don't talk to each other. Also what the kernel says of the
    /// link to calls that don't look whose it is, or can't: `ENOENT`, and `ELOOP` to `O_NOFOLLOW`.
    /// But nothing is done, and no other file is made.
    pub foreign_is_refused: bool,
    /// A descriptor may show what a slot had since it was opened, where another node has changed it meanwhile.
    pub descriptors_keep_versions: bool,
    /// Also where a program of the same node has changed it.
    pub also_on_own_node: bool,
    /// Programs that the supervisor serves: to them a link of their own node shows for a moment, too.
    pub has_no_library: Option<fn(Client) -> bool>,
    /// fstat's mode and link count are not looked at: the tier does not know what another node has done with the name of an open file.
    pub open_attributes_may_lag: bool,
    /// fstat of a file that has lost its only name may still say 1: a rename elsewhere looks whose file it replaces, and does it, in two
    /// steps, and in between a file may be made under the name.
    pub lost_names_may_lag: bool,
    /// Agents that were killed: a descriptor of a file without a name, that was opened before on the agent's node, may be `EIO` from then
    /// on. Only the agent knew the file that it had moved to; never is it another file, or older bytes.
    pub agents_killed: Vec<Killed>,
    /// When nodes can't be reached: then `EIO` or `EREMOTE` is the answer for what they may have. Their own files they reach.
    pub unreachable: Vec<Unreachable>,
}

impl Rules {
    /// Who may have a file's bytes is of no account, and makes no two states of one, where nobody may refuse it.
    fn touched_by(&self, nodes: u8) -> u8 {
        if self.tells_who_touched() { nodes } else { 0 }
    }

    fn tells_who_touched(&self) -> bool {
        self.foreign_is_refused || !self.unreachable.is_empty()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Unreachable {
    pub node: u8,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Killed {
    pub node: u8,
    pub at: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    pub names: BTreeMap<Name, Inode>,
    inodes: BTreeMap<Inode, Contents>,
    open: BTreeMap<(Client, Session), Descriptor>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Contents {
    slots: Vec<u64>,
    mode: u16,
    /// A bit for each node that may have the current bytes in its tiers: the last that opened it for writing, and those that had it
    /// open for writing then. Where nodes bring each other's files: all that ever did.
    touched: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Descriptor {
    inode: Inode,
    node: u8,
    flags: OpenFor,
    /// When it began to be opened.
    since: u64,
    /// Another node (or any) has changed the file since it was opened: it may stay with its version from then on.
    is_behind: bool,
    /// What slots had since then.
    older: BTreeMap<u32, Vec<Option<u64>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OpenFor {
    write: bool,
    append: bool,
}

/// What an operation with this result does in a state.
pub enum Step {
    /// It can't have had this result.
    No,
    /// It can, and nothing changes.
    Same,
    Changed(State),
}

const MODE_OF_NEW: u16 = 0o640;

impl State {
    pub fn step(&self, number: u32, operation: &Operation, rules: &Rules) -> Step {
        if operation.seen == Seen::Nonsense {
            return Step::No;
        }
        // Most operations are looks: they need no copy of the state.
        if let Some(natively) = self.look(operation) {
            let is_so = match (&natively, &operation.seen) {
                (Seen::Value(_), Seen::Value(seen)) => self.may_read(operation, *seen, &natively),
                (_, Seen::Unknown) => true,
                (_, Seen::Failed(error)) if natively != operation.seen => self.may_refuse(operation, *error, rules),
                (Seen::Number(0), Seen::Number(1)) if rules.lost_names_may_lag && operation.counts_links_of_open() => {
                    true
                }
                (Seen::Number(_), _) if rules.open_attributes_may_lag && operation.is_lasting_of_open() => true,
                (Seen::Number(_), Seen::Number(seen)) => {
                    natively == operation.seen || self.may_be_long(operation, *seen)
                }
                _ => natively == operation.seen,
            };
            return if is_so { Step::Same } else { Step::No };
        }
        let mut next = self.clone();
        let natively = next.perform(number, operation, rules);
        match (&natively, &operation.seen) {
            (Seen::Failed(_), Seen::Unknown) => Step::Same,
            (_, Seen::Unknown) => Step::Changed(next),
            (Seen::Failed(expected), Seen::Failed(seen)) if expected == seen => Step::Same,
            (_, Seen::Failed(seen)) if self.may_refuse(operation, *seen, rules) => Step::Same,
            _ if natively != operation.seen => Step::No,
            _ => Step::Changed(next),
        }
    }

    /// Closing changes nothing that anybody could see; it is done when the operation has ended.
    pub fn close(&mut self, client: Client, session: Option<Session>) {
        let closed: Vec<_> = self
            .open
            .keys()
            .filter(|key| key.0 == client && session.is_none_or(|session| session == key.1))
            .copied()
            .collect();
        for key in closed {
            self.open.remove(&key);
        }
        self.forget_unreachable();
    }

    fn forget_unreachable(&mut self) {
        let State { names, inodes, open } = self;
        inodes.retain(|inode, _| {
            names.values().any(|named| named == inode) || open.values().any(|open| open.inode == *inode)
        });
    }

    fn may_read(&self, operation: &Operation, seen: Option<u64>, natively: &Seen) -> bool {
        let Action::Slot { session, slot } = operation.action else { return false };
        let older = self.open.get(&(operation.client, session)).and_then(|open| open.older.get(&slot));
        *natively == Seen::Value(seen) || older.is_some_and(|older| older.contains(&seen))
    }

    /// A length that the file had since it was opened, where another node has changed it meanwhile.
    fn may_be_long(&self, operation: &Operation, length: u32) -> bool {
        let Action::Attribute { session, which: Attribute::Length } = operation.action else { return false };
        let Some(open) = self.open.get(&(operation.client, session)) else { return false };
        let slots = &self.inodes[&open.inode].slots;
        let ever = |slot: u32, is_there: bool| {
            let older = open.older.get(&slot).is_some_and(|older| older.iter().any(|one| one.is_some() == is_there));
            slots.get(slot as usize).is_some() == is_there || older
        };
        ever(length, false) && (length == 0 || ever(length - 1, true))
    }

    /// What a look sees here; `None` for what is none.
    fn look(&self, operation: &Operation) -> Option<Seen> {
        let key = operation.session().map(|session| (operation.client, session));
        let opened = || key.and_then(|key| self.open.get(&key)).map(|open| open.inode);
        let about_opened = |seen: &dyn Fn(Inode) -> Seen| opened().map_or(Seen::Failed(libc::EBADF), seen);
        Some(match operation.action {
            Action::Slot { slot, .. } => {
                about_opened(&|inode| Seen::Value(self.inodes[&inode].slots.get(slot as usize).copied()))
            }
            Action::Sync { .. } | Action::Read { .. } => about_opened(&|_| Seen::Done),
            Action::Attribute { which, .. } => about_opened(&|inode| Seen::Number(self.attribute(inode, which))),
            Action::Listed { name } => Seen::Present(self.names.contains_key(&name)),
            _ => return None,
        })
    }

    /// By a descriptor, of a file that has no name: where the agent that knew where it had moved to was killed.
    fn may_be_lost(&self, operation: &Operation, rules: &Rules) -> bool {
        let session = operation.session().filter(|session| *session < OF_A_CALL);
        let Some(open) = session.and_then(|session| self.open.get(&(operation.client, session))) else { return false };
        let since =
            |killed: &&Killed| killed.node == operation.node && open.since <= killed.at && killed.at <= operation.end;
        self.links(open.inode) == 0 && rules.agents_killed.iter().any(|killed| since(&killed))
    }

    /// Whether a node that isn't this one may have what this is about, and may not give it.
    fn may_refuse(&self, operation: &Operation, error: i32, rules: &Rules) -> bool {
        let about = |name: &Name| self.names.get(name).copied();
        let inodes = match &operation.action {
            Action::Rename { from, to, .. } | Action::Link { from, to } => [about(from), about(to)],
            Action::Open { name, .. }
            | Action::Truncate { name, .. }
            | Action::Unlink { name }
            | Action::Chmod { name, .. } => [about(name), None],
            _ => {
                let session = operation.session().map(|session| (operation.client, session));
                [session.and_then(|key| self.open.get(&key)).map(|open| open.inode), None]
            }
        };
        let is_supervised = rules.has_no_library.is_some_and(|is_such| is_such(operation.client));
        let here = 1 << operation.node;
        let touched = inodes.iter().flatten().filter_map(|inode| self.inodes.get(inode));
        let elsewhere = touched.fold(0, |nodes, contents| nodes | contents.touched) & !here;
        let is_cut = |node: u8| {
            let while_it_ran = |cut: &&Unreachable| cut.from <= operation.end && operation.start <= cut.to;
            rules.unreachable.iter().filter(while_it_ran).any(|cut| cut.node == node)
        };
        match error {
            libc::EREMOTE if rules.foreign_is_refused => {
                // Under the supervisor lstat shows a link of one's own, too, while a program with the library makes it.
                let looks = matches!(operation.action, Action::Open { session, .. } if session >= OF_A_CALL);
                elsewhere != 0 || looks && is_supervised
            }
            // Of a static program such an open goes to the kernel, which finds nothing behind another node's link.
            libc::ENOENT
                if is_supervised && matches!(operation.action, Action::Open { flags, .. } if flags.directory) =>
            {
                elsewhere != 0 || !rules.tells_who_touched()
            }
            // Also when its owner makes the file durable between two looks at its name.
            libc::ENOENT if rules.foreign_is_refused => elsewhere != 0,
            // Only `O_NOFOLLOW` hears that, and of a link of its own node, too, while another one renames it.
            libc::ELOOP => rules.foreign_is_refused && matches!(operation.action, Action::Open { .. }),
            libc::EIO if self.may_be_lost(operation, rules) => true,
            libc::EREMOTE | libc::EIO => {
                let nodes = (0..8).filter(|node| elsewhere & (1 << node) != 0);
                nodes.into_iter().any(|node| is_cut(node) || is_cut(operation.node))
            }
            _ => false,
        }
    }

    /// Does it, and says what a local file system would have said.
    fn perform(&mut self, number: u32, operation: &Operation, rules: &Rules) -> Seen {
        let here = operation.node;
        match operation.action {
            Action::Open { name, flags, session } => self.open(number, operation, name, flags, session, rules),
            Action::Truncate { name, slots } => {
                let Some(&inode) = self.names.get(&name) else { return Seen::Failed(libc::ENOENT) };
                self.touch(inode, here, rules);
                self.set_length(inode, slots, here, rules);
                Seen::Done
            }
            Action::Rename { from, to, keep, exchange } => self.rename(from, to, keep, exchange),
            Action::Link { from, to } => match (self.names.get(&from).copied(), self.names.contains_key(&to)) {
                (None, _) => Seen::Failed(libc::ENOENT),
                (_, true) => Seen::Failed(libc::EEXIST),
                (Some(inode), false) => {
                    self.names.insert(to, inode);
                    Seen::Done
                }
            },
            Action::Unlink { name } => {
                if self.names.remove(&name).is_none() {
                    return Seen::Failed(libc::ENOENT);
                }
                self.forget_unreachable();
                Seen::Done
            }
            Action::Chmod { name, mode } => {
                let Some(inode) = self.names.get(&name) else { return Seen::Failed(libc::ENOENT) };
                self.inodes.get_mut(inode).expect("a name leads to an inode").mode = mode;
                Seen::Done
            }
            Action::Close { .. } | Action::Die => Seen::Done,
            _ => self.change_opened(operation, rules),
        }
    }

    fn change_opened(&mut self, operation: &Operation, rules: &Rules) -> Seen {
        let here = operation.node;
        let key = (operation.client, operation.session().expect("it has a session"));
        let Some(descriptor) = self.open.get(&key) else { return Seen::Failed(libc::EBADF) };
        let (inode, opened) = (descriptor.inode, descriptor.flags);
        let length = self.inodes[&inode].slots.len() as u32;
        match operation.action {
            Action::SetMode { mode, .. } => {
                self.inodes.get_mut(&inode).expect("it is open").mode = mode;
                Seen::Done
            }
            Action::LinkOpened { to, .. } => {
                if self.names.contains_key(&to) {
                    return Seen::Failed(libc::EEXIST);
                }
                // Of a file without a name the kernel makes none.
                if self.links(inode) == 0 {
                    return Seen::Failed(libc::ENOENT);
                }
                self.names.insert(to, inode);
                Seen::Done
            }
            _ if !opened.write => Seen::Failed(libc::EBADF),
            Action::Write { slot, value, .. } => {
                // On Linux, pwrite of an O_APPEND descriptor appends.
                self.set(inode, if opened.append { length } else { slot }, value, here, rules);
                Seen::Done
            }
            Action::Append { value, .. } => {
                self.set(inode, length, value, here, rules);
                Seen::Done
            }
            Action::SetLength { slots, .. } => {
                self.set_length(inode, slots, here, rules);
                Seen::Done
            }
            _ => unreachable!("all others are looks or go by a name"),
        }
    }

    fn open(
        &mut self,
        number: u32,
        operation: &Operation,
        name: Name,
        flags: Flags,
        session: Session,
        rules: &Rules,
    ) -> Seen {
        let here = operation.node;
        let inode = match self.names.get(&name) {
            Some(_) if flags.create && flags.exclusive => return Seen::Failed(libc::EEXIST),
            Some(_) if flags.directory => return Seen::Failed(libc::ENOTDIR),
            Some(&inode) => inode,
            None if !flags.create => return Seen::Failed(libc::ENOENT),
            None => {
                self.names.insert(name, number);
                self.inodes.insert(
                    number,
                    Contents { slots: vec![], mode: MODE_OF_NEW, touched: rules.touched_by(1 << here) },
                );
                number
            }
        };
        // A file goes to the node of whoever opens it, also to read; for a static program it is made a real one.
        if flags.write || !rules.has_no_library.is_some_and(|is_such| is_such(operation.client)) {
            self.touch(inode, here, rules);
        }
        if flags.truncate {
            self.set_length(inode, 0, here, rules);
        }
        // Of a process that was killed meanwhile nobody has the descriptor.
        if operation.seen != Seen::Unknown {
            let flags = OpenFor { write: flags.write, append: flags.append };
            self.open.insert(
                (operation.client, session),
                Descriptor {
                    inode,
                    node: here,
                    flags,
                    since: operation.start,
                    is_behind: false,
                    older: BTreeMap::new(),
                },
            );
        }
        Seen::Done
    }

    fn rename(&mut self, from: Name, to: Name, keep: bool, exchange: bool) -> Seen {
        let (source, target) = (self.names.get(&from).copied(), self.names.get(&to).copied());
        match (source, target) {
            (None, _) => Seen::Failed(libc::ENOENT),
            (Some(_), Some(_)) if keep => Seen::Failed(libc::EEXIST),
            (Some(_), None) if exchange => Seen::Failed(libc::ENOENT),
            (Some(source), Some(target)) if exchange => {
                self.names.insert(from, target);
                self.names.insert(to, source);
                Seen::Done
            }
            // Two names of one file: rename(2) does nothing.
            (Some(source), Some(target)) if source == target => Seen::Done,
            (Some(source), _) => {
                self.names.remove(&from);
                self.names.insert(to, source);
                self.forget_unreachable();
                Seen::Done
            }
        }
    }

    fn links(&self, inode: Inode) -> u32 {
        self.names.values().filter(|named| **named == inode).count() as u32
    }

    fn attribute(&self, inode: Inode, which: Attribute) -> u32 {
        match which {
            Attribute::Length => self.inodes[&inode].slots.len() as u32,
            Attribute::Mode => self.inodes[&inode].mode.into(),
            Attribute::Links => self.links(inode),
        }
    }

    fn touch(&mut self, inode: Inode, here: u8, rules: &Rules) {
        let writers = self.open.values().filter(|open| open.inode == inode && open.flags.write);
        let touched = writers.fold(1 << here, |nodes, open| nodes | 1 << open.node);
        let contents = self.inodes.get_mut(&inode).expect("it is open or has a name");
        // Of nodes that may be out of reach all that ever had it count: which was the last would make many states of one.
        let before = if rules.foreign_is_refused { 0 } else { contents.touched };
        contents.touched = rules.touched_by(touched | before);
    }

    fn set(&mut self, inode: Inode, slot: u32, value: u64, here: u8, rules: &Rules) {
        let length = self.inodes[&inode].slots.len() as u32;
        for hole in length..slot {
            self.replace(inode, hole, Some(0), here, rules);
        }
        self.replace(inode, slot, Some(value), here, rules);
    }

    fn set_length(&mut self, inode: Inode, slots: u32, here: u8, rules: &Rules) {
        let length = self.inodes[&inode].slots.len() as u32;
        for hole in length..slots {
            self.replace(inode, hole, Some(0), here, rules);
        }
        for gone in (slots..length).rev() {
            self.replace(inode, gone, None, here, rules);
        }
    }

    /// A slot's new value; `None` only for the last one, which goes.
    fn replace(&mut self, inode: Inode, slot: u32, value: Option<u64>, here: u8, rules: &Rules) {
        let slots = &mut self.inodes.get_mut(&inode).expect("it is open or has a name").slots;
        let before = slots.get(slot as usize).copied();
        match value {
            Some(value) if before.is_some() => slots[slot as usize] = value,
            Some(value) => slots.push(value),
            None => slots.truncate(slot as usize),
        }
        if rules.descriptors_keep_versions {
            for open in self.open.values_mut().filter(|open| open.inode == inode) {
                open.is_behind |= open.node != here || rules.also_on_own_node;
                if !open.is_behind {
                    continue;
                }
                let older = open.older.entry(slot).or_default();
                if !older.contains(&before) {
                    older.push(before);
                }
            }
        }
    }

    /// For people: each name with its file.
    pub fn describe(&self, names: &[String]) -> String {
        let mut parts: Vec<String> = self
            .names
            .iter()
            .map(|(name, inode)| {
                let contents = &self.inodes[inode];
                format!(
                    "{} is file {inode} {:?} mode {:o}, may be in the tiers of nodes {:?}",
                    names[*name as usize],
                    contents.slots,
                    contents.mode,
                    (0..8).filter(|node| contents.touched & (1 << node) != 0).collect::<Vec<u8>>()
                )
            })
            .collect();
        parts.extend(self.open.iter().map(|((client, session), open)| {
            format!("client {client} has file {} {:?} open as {session}", open.inode, self.inodes[&open.inode].slots)
        }));
        if parts.is_empty() { "no file".into() } else { parts.join("; ") }
    }
}
