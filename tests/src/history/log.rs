//! The recorder's logs (tests/tests/system/histories/recorder.c), read into histories, one a group of names.
//!
//! A log is one client's: `> NUMBER TIME CALL` before a call, `< NUMBER TIME RESULT` after it, and `dead TIME` when it was seen to be
//! gone, if it did not come to its `end`. Names are `WORD` and the group's number: no operation connects two groups.

use super::check::{UNDECIDED, Verdict, check};
use super::model::Rules;
use super::operation::{Action, Attribute, Client, Flags, Name, OF_A_CALL, Operation, Seen};
use std::collections::BTreeMap;
use std::path::Path;

/// What was called when a process was killed may happen until so long after it was seen to be gone: an agent may be at it.
const AFTER_DEATH_NS: u64 = 1_000_000_000;

#[derive(Default)]
pub struct History {
    pub names: Vec<String>,
    /// For each group its operations.
    pub groups: BTreeMap<u32, Vec<Operation>>,
    /// How often each call was made, and how often it failed with which number.
    pub calls: BTreeMap<String, usize>,
    /// The latest end.
    pub end: u64,
}

/// A call that is read, and what it gives for each group.
struct Call<'a> {
    start: u64,
    words: Vec<&'a str>,
}

impl History {
    /// All logs of a directory: their names are `NODE-CLIENT.log`.
    pub fn read(directory: &Path, names: &[String]) -> History {
        let mut history = History { names: names.to_vec(), ..History::default() };
        let mut logs: Vec<_> = std::fs::read_dir(directory)
            .expect("the logs' directory")
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
            .collect();
        logs.sort();
        for log in logs {
            let (node, client) = log.file_stem().unwrap().to_str().unwrap().split_once('-').expect("NODE-CLIENT.log");
            let text = std::fs::read_to_string(&log).unwrap();
            history.add(&text, node.parse().unwrap(), client.parse().unwrap());
        }
        history.mark_torn();
        history.mark_raced_links();
        history
    }

    /// One client's log.
    pub fn add(&mut self, log: &str, node: u8, client: Client) {
        let mut calls: BTreeMap<&str, Call> = BTreeMap::new();
        let mut groups_of_sessions: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut last, mut dead) = (0, None);
        let lines: Vec<&str> = log.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            // Where `dead` does not stand after an empty line, a kill has cut the one before it: at the end of a page, anywhere in a number.
            if !line.is_empty() && lines.get(at + 1).is_some_and(|next| next.starts_with("dead ")) {
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let (Some(kind), Some(time)) = (words.first(), words.get(2)) else {
                if words.len() == 2 && words[0] == "dead" {
                    // Who sees all of a dead node's programs to be gone sees those again that went before it.
                    dead = dead.or(words[1].parse().ok());
                }
                continue;
            };
            let Ok(time) = time.parse::<u64>() else { continue };
            last = last.max(time);
            match *kind {
                ">" => {
                    calls.insert(words[1], Call { start: time, words: words[3..].to_vec() });
                }
                "<" => {
                    let Some(call) = calls.remove(words[1]) else { continue };
                    let result = &words[3..];
                    self.called(&call, Some((time, result)), node, client, &mut groups_of_sessions);
                }
                _ => {}
            }
        }
        self.end = self.end.max(last);
        for call in calls.values() {
            self.called(call, None, node, client, &mut groups_of_sessions);
        }
        // It holds what it has open until it is gone.
        let gone = dead.unwrap_or(last).max(last);
        let groups: std::collections::BTreeSet<u32> = groups_of_sessions.values().copied().collect();
        for group in groups {
            let text = "is gone".to_owned();
            let operation =
                Operation { client, node, action: Action::Die, seen: Seen::Done, start: last, end: gone, text };
            self.groups.entry(group).or_default().push(operation);
        }
        for operation in self.groups.values_mut().flatten() {
            if operation.client == client && operation.seen == Seen::Unknown {
                operation.end = gone + AFTER_DEATH_NS;
            }
        }
    }

    fn name(&self, word: &str) -> (Name, u32) {
        let name = self.names.iter().position(|name| name == word).unwrap_or_else(|| panic!("no name: {word:?}"));
        (name as Name, group_of(word))
    }

    fn called(
        &mut self,
        call: &Call,
        result: Option<(u64, &[&str])>,
        node: u8,
        client: Client,
        sessions: &mut BTreeMap<u32, u32>,
    ) {
        let words = &call.words;
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let values = result.map_or(&[][..], |(_, words)| words.get(1..).unwrap_or(&[]));
        let failed = match result {
            None => Some(Seen::Unknown),
            Some((_, [error, ..])) if *error != "ok" => {
                let number = error.parse::<i32>();
                Some(number.map_or(Seen::Nonsense, Seen::Failed))
            }
            Some(_) => None,
        };
        let key = match &failed {
            Some(Seen::Failed(error)) => format!("{} {}", words[0], error_name(*error)),
            Some(Seen::Unknown) => format!("{} killed", words[0]),
            _ => words[0].to_owned(),
        };
        *self.calls.entry(key).or_default() += 1;
        let done = |seen: Seen| failed.clone().unwrap_or(seen);
        let result_words = result.map_or(String::new(), |(_, words)| words.join(" "));
        let text = format!("{} = {result_words}", words.join(" "));
        let (start, end) = (call.start, result.map_or(u64::MAX, |(end, _)| end));
        let operation =
            |action: Action, seen: Seen| Operation { client, node, action, seen, start, end, text: text.clone() };
        let session = number(1).map(|number| number as u32);
        // Of a session whose open is unknown nobody knows the group, nor needs it.
        let of_session = session.and_then(|session| sessions.get(&session).copied());
        let attributes = || match values {
            [slots, mode, links] => Some([
                (Attribute::Length, slots.parse().ok()?),
                (Attribute::Mode, u32::from_str_radix(mode, 8).ok()?),
                (Attribute::Links, links.parse().ok()?),
            ]),
            _ => None,
        };
        let mut add = |group: u32, action: Action, seen: Seen| {
            self.groups.entry(group).or_default().push(operation(action, seen));
        };
        match (words[0], session) {
            ("open", _) => {
                let (name, group) = self.name(words[1]);
                let session = number(3).expect("a session") as u32;
                sessions.insert(session, group);
                let mut flags = Flags::of(words[2]);
                // A file is found at one moment and truncated at another.
                let truncates = flags.truncate && failed.is_none();
                flags.truncate &= !truncates;
                let operations = self.groups.entry(group).or_default();
                operations.push(operation(Action::Open { name, flags, session }, done(Seen::Done)));
                if truncates {
                    operations.push(operation(Action::SetLength { session, slots: 0 }, Seen::Done));
                }
            }
            ("list", _) => {
                let strange = values.iter().any(|value| !self.names.iter().any(|name| name == value));
                for name in self.names.clone() {
                    let (number, group) = self.name(&name);
                    let directory = words.get(1).copied().unwrap_or("");
                    if name.rsplit_once('/').map_or("", |(directory, _)| directory) != directory {
                        continue;
                    }
                    let seen = if strange { Seen::Nonsense } else { Seen::Present(values.contains(&name.as_str())) };
                    let seen = failed.clone().unwrap_or(seen);
                    let action = Action::Listed { name: number };
                    self.groups.entry(group).or_default().push(operation(action, seen));
                }
            }
            ("stat" | "lstat" | "truncate" | "chmod", _) => {
                let (name, group) = self.name(words[1]);
                let session = OF_A_CALL | self.groups.values().map(Vec::len).sum::<usize>() as u32;
                let number = |at: usize| words[at].parse().expect("a length");
                let mode = || u16::from_str_radix(words[2], 8).expect("a mode");
                let flags = Flags { write: words[0] == "truncate", ..Flags::default() };
                let find = Action::Open { name, flags, session };
                let operations = match (&failed, words[0]) {
                    (Some(Seen::Unknown), "truncate") => {
                        vec![operation(Action::Truncate { name, slots: number(2) }, Seen::Unknown)]
                    }
                    (Some(seen), "chmod") => {
                        vec![operation(Action::Chmod { name, mode: mode() }, seen.clone())]
                    }
                    (Some(Seen::Unknown), _) => vec![],
                    (Some(seen), _) => vec![operation(find, seen.clone())],
                    (None, "truncate") => {
                        vec![
                            operation(find, Seen::Done),
                            operation(Action::SetLength { session, slots: number(2) }, Seen::Done),
                        ]
                    }
                    (None, "chmod") => {
                        vec![
                            operation(find, Seen::Done),
                            operation(Action::SetMode { session, mode: mode() }, Seen::Done),
                        ]
                    }
                    (None, _) => match attributes() {
                        None => vec![operation(find, Seen::Nonsense)],
                        Some(attributes) => {
                            let looks = attributes.map(|(which, value)| {
                                operation(Action::Attribute { session, which }, Seen::Number(value))
                            });
                            std::iter::once(operation(find, Seen::Done)).chain(looks).collect()
                        }
                    },
                };
                self.by_name(group, operations, session);
            }
            ("link", _) => {
                let ((from, group), (to, _)) = (self.name(words[1]), self.name(words[2]));
                let session = OF_A_CALL | self.groups.values().map(Vec::len).sum::<usize>() as u32;
                let operations = match &failed {
                    None => {
                        let find = Action::Open { name: from, flags: Flags::default(), session };
                        vec![operation(find, Seen::Done), operation(Action::LinkOpened { session, to }, Seen::Done)]
                    }
                    // It looked at two names, one after the other.
                    Some(Seen::Failed(libc::EEXIST)) => {
                        let names = [from, to];
                        names.map(|name| operation(Action::Listed { name }, Seen::Present(true))).into()
                    }
                    Some(seen) => vec![operation(Action::Link { from, to }, seen.clone())],
                };
                self.by_name(group, operations, session);
            }
            ("unlink", _) => {
                let (name, group) = self.name(words[1]);
                self.groups.entry(group).or_default().push(operation(Action::Unlink { name }, done(Seen::Done)));
            }
            (kind @ ("rename" | "rename-keep" | "rename-exchange"), _) => {
                let ((from, group), (to, _)) = (self.name(words[1]), self.name(words[2]));
                let (keep, exchange) = (kind == "rename-keep", kind == "rename-exchange");
                let action = Action::Rename { from, to, keep, exchange };
                self.groups.entry(group).or_default().push(operation(action, done(Seen::Done)));
            }
            (_, None) => panic!("not understood: {words:?}"),
            (kind, Some(session)) => {
                let Some(group) = of_session else { return };
                match kind {
                    "read" => match failed.clone() {
                        Some(Seen::Unknown) => {}
                        Some(seen) => add(group, Action::Read { session }, seen),
                        None => {
                            for (slot, value) in values.iter().enumerate() {
                                let action = Action::Slot { session, slot: slot as u32 };
                                let seen = value.parse().map_or(Seen::Nonsense, |value| Seen::Value(Some(value)));
                                add(group, action, seen);
                            }
                            add(group, Action::Slot { session, slot: values.len() as u32 }, Seen::Value(None));
                        }
                    },
                    "write" => {
                        let action = Action::Write {
                            session,
                            slot: number(2).expect("a slot") as u32,
                            value: number(3).expect("a value"),
                        };
                        add(group, action, done(Seen::Done));
                    }
                    "append" => {
                        add(group, Action::Append { session, value: number(2).expect("a value") }, done(Seen::Done));
                    }
                    "ftruncate" => {
                        let slots = number(2).expect("a length") as u32;
                        add(group, Action::SetLength { session, slots }, done(Seen::Done));
                    }
                    "fsync" => add(group, Action::Sync { session }, done(Seen::Done)),
                    "fstat" => match (failed.clone(), attributes()) {
                        (Some(Seen::Unknown), _) => {}
                        (Some(seen), _) => add(group, Action::Read { session }, seen),
                        (None, None) => add(group, Action::Read { session }, Seen::Nonsense),
                        (None, Some(attributes)) => {
                            for (which, value) in attributes {
                                add(group, Action::Attribute { session, which }, Seen::Number(value));
                            }
                        }
                    },
                    "close" => add(group, Action::Close { session }, done(Seen::Done)),
                    other => panic!("not understood: {other}"),
                }
            }
        }
    }

    /// A call by a name: what it opened for itself is closed when it has ended.
    fn by_name(&mut self, group: u32, operations: Vec<Operation>, session: u32) {
        let close = operations.last().cloned().filter(|_| operations.len() > 1).map(|last| Operation {
            action: Action::Close { session },
            seen: Seen::Done,
            start: last.end,
            ..last
        });
        self.groups.entry(group).or_default().extend(operations.into_iter().chain(close));
    }

    /// link(2) finds the file, then makes the name; if the file has lost its last name meanwhile the kernel says `ENOENT`. Such an
    /// answer shows nothing while another call takes the name away.
    pub(super) fn mark_raced_links(&mut self) {
        for operations in self.groups.values_mut() {
            let taken: Vec<(Name, u64, u64)> = operations
                .iter()
                .flat_map(|operation| {
                    let names = match operation.action {
                        Action::Unlink { name } => [Some(name), None],
                        Action::Rename { from, to, .. } => [Some(from), Some(to)],
                        _ => [None, None],
                    };
                    names.into_iter().flatten().map(|name| (name, operation.start, operation.end))
                })
                .collect();
            operations.retain(|operation| match operation.action {
                Action::Link { from, .. } if operation.seen == Seen::Failed(libc::ENOENT) => {
                    let meanwhile = |(name, start, end): &(Name, u64, u64)| {
                        *name == from && *start <= operation.end && operation.start <= *end
                    };
                    !taken.iter().any(meanwhile)
                }
                _ => true,
            });
        }
    }

    /// A slot with words of several values (`17|42`) is what a read may see while one of them is being written, and natively, too: such
    /// a read shows nothing of that slot. At any other time it stays nonsense. Nor does a slot of zeroes show anything that is cut off
    /// meanwhile: the kernel looks at the length before the bytes.
    pub(super) fn mark_torn(&mut self) {
        for operations in self.groups.values_mut() {
            // What is written, or nothing for a change of length.
            let changes: Vec<(Option<u64>, u64, u64)> = operations
                .iter()
                .filter_map(|operation| match operation.action {
                    Action::Write { value, .. } | Action::Append { value, .. } => {
                        Some((Some(value), operation.start, operation.end))
                    }
                    Action::SetLength { .. } | Action::Truncate { .. } => Some((None, operation.start, operation.end)),
                    _ => None,
                })
                .collect();
            operations.retain(|operation| {
                let is_zero = operation.seen == Seen::Value(Some(0));
                if operation.seen != Seen::Nonsense && !is_zero {
                    return true;
                }
                let mut meanwhile =
                    changes.iter().filter(|(_, start, end)| *start <= operation.end && operation.start <= *end);
                let Action::Slot { slot, .. } = operation.action else {
                    // A part of a slot (`3~`).
                    return !operation.text.contains('~') || meanwhile.next().is_none();
                };
                if is_zero {
                    return !meanwhile.any(|(value, _, _)| value.is_none());
                }
                let values = operation.text.rsplit_once("= ok ").map_or("", |(_, values)| values);
                let torn = values.split(' ').nth(slot as usize).unwrap_or("");
                let has = |value: u64| torn.split('|').any(|part| part.parse() == Ok(value));
                let explains = |(value, _, _): &(Option<u64>, u64, u64)| match value {
                    Some(value) => has(*value) || torn.ends_with('~'),
                    None => has(0) || torn.ends_with('~'),
                };
                !meanwhile.any(explains)
            });
        }
    }

    /// Checks each group; the words tell what is wrong, if something is, or else that some can't be decided.
    pub fn check(&self, rules: &Rules) -> Result<Vec<Verdict>, String> {
        let (mut verdicts, mut undecided) = (vec![], None);
        for (group, operations) in &self.groups {
            let verdict = check(operations, &self.names, rules);
            if let Some(wrong) = &verdict.wrong {
                let told = format!("names of group {group}: {wrong}");
                if !wrong.starts_with(UNDECIDED) {
                    return Err(told);
                }
                undecided = Some(told);
            }
            verdicts.push(verdict);
        }
        undecided.map_or(Ok(verdicts), Err)
    }
}

fn group_of(name: &str) -> u32 {
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    digits.parse().unwrap_or_else(|_| panic!("{name} has no group"))
}

fn error_name(error: i32) -> String {
    match error {
        libc::ENOENT => "ENOENT".into(),
        libc::EEXIST => "EEXIST".into(),
        libc::ENOTDIR => "ENOTDIR".into(),
        libc::EREMOTE => "EREMOTE".into(),
        libc::EIO => "EIO".into(),
        other => format!("errno {other}"),
    }
}
