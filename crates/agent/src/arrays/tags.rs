//! Tags of all objects, indexed by key and value, and their journal.
//!
//!   put ─▶ a line of the journal (one write) ─▶ the index ─▶ answered          flush ─▶ attributes of zarr.json
//!
//! Invariant: what was answered is in the journal's file: a kill of the agent loses nothing. A line that was cut off by a
//! kill is the last one, and was not answered.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use terrace_core::objects::{MEMBER_KEY, TagMatch, TagQuery, TagValue, fits, member_key};

#[derive(Default)]
pub struct Tags {
    journal: Option<File>,
    by_object: BTreeMap<String, BTreeMap<String, TagValue>>,
    by_key: HashMap<String, BTreeMap<Rank, BTreeSet<String>>>,
    /// Containers that an object was added to, by the object's name.
    added: BTreeMap<String, BTreeSet<String>>,
    /// Objects whose tags the root does not have yet.
    pub changed: BTreeSet<String>,
    /// Another one after each change.
    pub version: u64,
}

#[derive(Serialize, Deserialize)]
enum Line {
    Put(String, Vec<(String, TagValue)>),
    Delete(String, String),
    /// The object is gone, with all below it.
    Forget(String),
    /// The object, with all below it, has another name.
    Rename(String, String),
}

/// An order over all values, in which those that are equal or neighbours in a question are neighbours.
#[derive(Clone, PartialEq, PartialOrd)]
enum Rank {
    Bool(bool),
    Number(f64),
    Text(String),
    Other(String),
}

impl Eq for Rank {}

#[allow(clippy::derive_ord_xor_partial_ord)] // numbers by `total_cmp`, so that NaN has its place
impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> std::cmp::Ordering {
        match (self, other) {
            (Rank::Number(a), Rank::Number(b)) => a.total_cmp(b),
            _ => self.partial_cmp(other).unwrap_or(std::cmp::Ordering::Equal),
        }
    }
}

impl Rank {
    fn of(value: &TagValue) -> Rank {
        match value {
            TagValue::Bool(value) => Rank::Bool(*value),
            // Zero has two signs, and is one number.
            TagValue::Int(value) => Rank::Number(*value as f64 + 0.0),
            TagValue::Float(value) => Rank::Number(*value + 0.0),
            TagValue::Text(text) => Rank::Text(text.clone()),
            other => Rank::Other(other.to_string()),
        }
    }
}

impl Tags {
    /// Reads the journal, and goes on with it. A journal that can't be written is told of; tags then last as long as the agent.
    pub fn open(path: &Path) -> (Tags, Option<String>) {
        let mut tags = Tags::default();
        let mut lines = 0;
        if let Ok(file) = File::open(path) {
            for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
                let Some(line) = parse(&line) else { continue };
                tags.apply(line);
                lines += 1;
            }
        }
        tags.changed = tags.by_object.keys().cloned().collect();
        let live: usize = tags.by_object.values().map(BTreeMap::len).sum();
        let opened = if lines > 1000 && lines > 4 * live { tags.rewrite(path) } else { append_to(path) };
        match opened {
            Ok(file) => {
                tags.journal = Some(file);
                (tags, None)
            }
            Err(error) => (tags, Some(format!("the tags' journal {} can't be written: {error}", path.display()))),
        }
    }

    fn rewrite(&self, path: &Path) -> std::io::Result<File> {
        let temporary = path.with_extension("new");
        let _ = std::fs::remove_file(&temporary);
        let mut file = append_to(&temporary)?;
        for (object, tags) in &self.by_object {
            let all = tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            file.write_all(&text(&Line::Put(object.clone(), all)))?;
        }
        file.sync_data()?;
        std::fs::rename(&temporary, path)?;
        Ok(file)
    }

    fn write(&mut self, line: Line) -> std::io::Result<()> {
        if let Some(journal) = &mut self.journal {
            journal.write_all(&text(&line))?;
        }
        self.apply(line);
        Ok(())
    }

    fn apply(&mut self, line: Line) {
        self.version += 1;
        match line {
            Line::Put(object, tags) => {
                for (key, value) in tags {
                    self.unindex(&object, &key);
                    let ranks = self.by_key.entry(key.clone()).or_default();
                    ranks.entry(Rank::of(&value)).or_default().insert(object.clone());
                    if let Some(member) = member(&key, &value) {
                        self.added.entry(member.into()).or_default().insert(object.clone());
                    }
                    self.by_object.entry(object.clone()).or_default().insert(key, value);
                }
                self.changed.insert(object);
            }
            Line::Delete(object, key) => {
                self.unindex(&object, &key);
                if let Some(tags) = self.by_object.get_mut(&object) {
                    tags.remove(&key);
                }
                self.changed.insert(object);
            }
            Line::Forget(object) => {
                for gone in self.below(&object) {
                    let keys: Vec<String> = self.by_object[&gone].keys().cloned().collect();
                    keys.iter().for_each(|key| self.unindex(&gone, key));
                    self.by_object.remove(&gone);
                    self.changed.remove(&gone);
                }
                for (member, container) in self.memberships(&object) {
                    self.apply(Line::Delete(container, member_key(&member)));
                }
            }
            Line::Rename(from, to) => {
                // What was said of an object that had the new name before.
                self.apply(Line::Forget(to.clone()));
                for gone in self.below(&from) {
                    let tags: Vec<(String, TagValue)> = self.by_object[&gone].clone().into_iter().collect();
                    let name = format!("{to}{}", &gone[from.len()..]);
                    self.apply(Line::Put(name, tags));
                }
                for (member, container) in self.memberships(&from) {
                    let name = format!("{to}{}", &member[from.len()..]);
                    self.apply(Line::Delete(container.clone(), member_key(&member)));
                    // Of the container's two names, only the new one stays.
                    self.apply(Line::Put(container, vec![(member_key(&name), TagValue::Text(name))]));
                }
                self.apply(Line::Forget(from));
            }
        }
    }

    /// Objects with tags at and below a path; "" is the root.
    fn below(&self, path: &str) -> Vec<String> {
        self.by_object
            .range(path.to_owned()..)
            .map(|(object, _)| object)
            .take_while(|object| object.starts_with(path))
            .filter(|object| is_below(object, path))
            .cloned()
            .collect()
    }

    /// Objects at and below a path that were added to containers, each with one of these.
    fn memberships(&self, path: &str) -> Vec<(String, String)> {
        let from = self.added.range(path.to_owned()..).take_while(|(member, _)| member.starts_with(path));
        let below = from.filter(|(member, _)| is_below(member, path));
        below.flat_map(|(member, containers)| containers.iter().map(|of| (member.clone(), of.clone()))).collect()
    }

    fn is_said_of(&self, path: &str) -> bool {
        !self.below(path).is_empty() || !self.memberships(path).is_empty()
    }

    fn unindex(&mut self, object: &str, key: &str) {
        let Some(value) = self.by_object.get(object).and_then(|tags| tags.get(key)) else { return };
        if let Some(member) = member(key, value)
            && let Some(containers) = self.added.get_mut(member)
        {
            containers.remove(object);
            if containers.is_empty() {
                let member = member.to_owned();
                self.added.remove(&member);
            }
        }
        let rank = Rank::of(value);
        if let Some(ranks) = self.by_key.get_mut(key)
            && let Some(objects) = ranks.get_mut(&rank)
        {
            objects.remove(object);
            if objects.is_empty() {
                ranks.remove(&rank);
            }
        }
    }

    pub fn put(&mut self, object: &str, tags: Vec<(String, TagValue)>) -> std::io::Result<()> {
        self.write(Line::Put(object.into(), tags))
    }

    /// False: there was none.
    pub fn delete(&mut self, object: &str, key: &str) -> std::io::Result<bool> {
        if self.by_object.get(object).is_none_or(|tags| !tags.contains_key(key)) {
            return Ok(false);
        }
        self.write(Line::Delete(object.into(), key.into())).map(|()| true)
    }

    pub fn forget(&mut self, object: &str) -> std::io::Result<()> {
        if self.is_said_of(object) { self.write(Line::Forget(object.into())) } else { Ok(()) }
    }

    pub fn rename(&mut self, from: &str, to: &str) -> std::io::Result<()> {
        let is_something = self.is_said_of(from) || self.is_said_of(to);
        if is_something { self.write(Line::Rename(from.into(), to.into())) } else { Ok(()) }
    }

    /// All objects that have tags, with them.
    pub fn all(&self) -> BTreeMap<String, BTreeMap<String, TagValue>> {
        self.by_object.clone()
    }

    /// `None`: nothing was ever said here of this object; its `zarr.json` may know.
    pub fn of(&self, object: &str) -> Option<Vec<(String, TagValue)>> {
        let tags = self.by_object.get(object)?;
        Some(tags.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// One tag of an object of which something is known.
    pub fn one(&self, object: &str, key: &str) -> Option<TagValue> {
        self.by_object.get(object)?.get(key).cloned()
    }

    /// Something was said here of this object.
    pub fn knows(&self, object: &str) -> bool {
        self.by_object.contains_key(object)
    }

    /// What `zarr.json` says of an object that nothing is known of.
    pub fn learn(&mut self, object: &str, tags: Vec<(String, TagValue)>) {
        if !tags.is_empty() && !self.by_object.contains_key(object) {
            self.apply(Line::Put(object.into(), tags));
            self.changed.remove(object);
        }
    }

    pub fn query(&self, query: &TagQuery) -> Vec<String> {
        if let TagMatch::Wild(_) = &query.matches {
            return self.query_wild(query);
        }
        let Some(ranks) = self.by_key.get(&query.key) else { return vec![] };
        let wanted = &query.matches;
        let candidates: Box<dyn Iterator<Item = &BTreeSet<String>>> = match wanted {
            TagMatch::Exact(value) => Box::new(ranks.get(&Rank::of(value)).into_iter()),
            TagMatch::Range { low, high } => {
                let (low, high) = (low.as_ref().map(Rank::of), high.as_ref().map(Rank::of));
                if low.as_ref().zip(high.as_ref()).is_some_and(|(low, high)| low > high) {
                    return vec![];
                }
                let bounds = (
                    low.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Included),
                    high.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Included),
                );
                Box::new(ranks.range(bounds).map(|(_, objects)| objects))
            }
            TagMatch::Prefix(prefix) => {
                let start = Rank::Text(prefix.clone());
                let is_near = move |rank: &Rank| matches!(rank, Rank::Text(text) if text.starts_with(prefix.as_str()));
                Box::new(ranks.range(start..).take_while(move |(rank, _)| is_near(rank)).map(|(_, objects)| objects))
            }
            TagMatch::Any | TagMatch::Suffix(_) | TagMatch::Infix(_) | TagMatch::Wild(_) => Box::new(ranks.values()),
        };
        let found: BTreeSet<&String> = candidates
            .flatten()
            .filter(|object| is_below(object, &query.below) && wanted.accepts(&self.by_object[*object][&query.key]))
            .collect();
        found.into_iter().cloned().collect()
    }

    /// Keys that fit the pattern, each with the objects whose value fits.
    fn query_wild(&self, query: &TagQuery) -> Vec<String> {
        let keys = self.by_key.iter().filter(|(key, _)| fits(&query.key, key));
        let found: BTreeSet<&String> = keys
            .flat_map(|(key, ranks)| ranks.values().flatten().map(move |object| (key, object)))
            .filter(|(key, object)| {
                is_below(object, &query.below) && query.matches.accepts(&self.by_object[*object][*key])
            })
            .map(|(_, object)| object)
            .collect();
        found.into_iter().cloned().collect()
    }
}

/// The object that a container's tag adds to it.
fn member<'a>(key: &str, value: &'a TagValue) -> Option<&'a str> {
    match value {
        TagValue::Text(name) if key.starts_with(MEMBER_KEY) => Some(name),
        _ => None,
    }
}

/// The object itself, or one that lies below the path; "": all.
fn is_below(object: &str, path: &str) -> bool {
    path.is_empty() || object.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn append_to(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// A newline before the line as well: what a kill has cut off does not spoil the next one.
fn text(line: &Line) -> Vec<u8> {
    let body = serde_json::to_string(line).expect("a line is plain data");
    format!("\n{:08x} {body}\n", checksum(body.as_bytes())).into_bytes()
}

fn parse(line: &[u8]) -> Option<Line> {
    let (sum, body) = line.split_at_checked(8)?;
    let body = body.strip_prefix(b" ")?;
    let sum = u32::from_str_radix(std::str::from_utf8(sum).ok()?, 16).ok()?;
    if sum != checksum(body) { None } else { serde_json::from_slice(body).ok() }
}

fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ byte as u32).wrapping_mul(0x0100_0193))
}

pub fn journal_path(state: &Path) -> PathBuf {
    state.join("tags.log")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> TagValue {
        TagValue::Text(value.into())
    }
    fn ask(tags: &Tags, key: &str, matches: TagMatch) -> Vec<String> {
        tags.query(&TagQuery { key: key.into(), matches, below: String::new() })
    }
    fn filled(path: &Path) -> Tags {
        let (mut tags, trouble) = Tags::open(path);
        assert_eq!(trouble, None);
        for (object, band, seeing) in [("m31/j", "J", 0.7), ("m31/h", "H", 1.2), ("m51/j", "J-wide", 2.0)] {
            tags.put(object, vec![("band".into(), text(band)), ("seeing".into(), TagValue::Float(seeing))]).unwrap();
        }
        tags
    }

    #[test]
    fn a_member_is_followed_when_it_or_its_container_is_renamed_and_forgotten_with_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tags.log");
        let (mut tags, _) = Tags::open(&path);
        let add = |tags: &mut Tags, container: &str, object: &str| {
            tags.put(container, vec![(member_key(object), text(object))]).unwrap();
        };
        let of = |tags: &Tags, container: &str| -> Vec<String> {
            let all = tags.of(container).unwrap_or_default();
            all.iter().filter_map(|(key, value)| member(key, value)).map(String::from).collect()
        };
        add(&mut tags, "c", "a/x");
        add(&mut tags, "d/e", "a/x");
        add(&mut tags, "c", "ab/y");
        tags.rename("a", "b/new").unwrap();
        assert_eq!((of(&tags, "d/e"), of(&tags, "c").len()), (vec!["b/new/x".to_string()], 2));
        tags.rename("d", "z").unwrap();
        assert_eq!(ask(&tags, &member_key("b/new/x"), TagMatch::Exact(text("b/new/x"))), ["c", "z/e"]);
        // An object below a container that it is a member of, which gets another name.
        add(&mut tags, "z", "z/e/o");
        tags.rename("z", "q").unwrap();
        assert_eq!((of(&tags, "q"), of(&tags, "z")), (vec!["q/e/o".to_string()], vec![]));
        tags.forget("b/new/x").unwrap();
        assert_eq!((of(&tags, "q/e"), of(&tags, "c")), (vec![], vec!["ab/y".to_string()]));
        drop(tags);
        let (tags, _) = Tags::open(&path);
        assert_eq!((of(&tags, "q"), of(&tags, "c")), (vec!["q/e/o".to_string()], vec!["ab/y".to_string()]));
    }

    #[test]
    fn pdc_kept_the_old_value_of_a_tag_that_was_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tags.log");
        let mut tags = filled(&path);
        tags.put("m31/j", vec![("band".into(), text("K"))]).unwrap();
        assert!(ask(&tags, "band", TagMatch::Exact(text("J"))).is_empty());
        assert_eq!(ask(&tags, "band", TagMatch::Exact(text("K"))), ["m31/j"]);
        let (again, _) = Tags::open(&path);
        assert_eq!(again.of("m31/j"), tags.of("m31/j"));
    }

    #[test]
    fn tags_are_found_by_value_range_prefix_suffix_and_infix() {
        let place = tempfile::tempdir().unwrap();
        let tags = filled(&place.path().join("tags.log"));
        assert_eq!(ask(&tags, "band", TagMatch::Any).len(), 3);
        assert_eq!(ask(&tags, "band", TagMatch::Prefix("J".into())), ["m31/j", "m51/j"]);
        assert_eq!(ask(&tags, "band", TagMatch::Suffix("wide".into())), ["m51/j"]);
        assert_eq!(ask(&tags, "band", TagMatch::Infix("-w".into())), ["m51/j"]);
        let range = |low, high| TagMatch::Range { low, high };
        assert_eq!(ask(&tags, "seeing", range(Some(TagValue::Int(1)), Some(TagValue::Int(2)))), ["m31/h", "m51/j"]);
        assert_eq!(ask(&tags, "seeing", range(None, Some(TagValue::Float(0.9)))), ["m31/j"]);
        assert!(ask(&tags, "seeing", range(Some(TagValue::Int(3)), Some(TagValue::Int(1)))).is_empty());
        assert_eq!(ask(&tags, "seeing", TagMatch::Exact(TagValue::Int(2))), ["m51/j"]);
        assert_eq!(ask(&tags, "band", TagMatch::Wild("J*".into())), ["m31/j", "m51/j"]);
        assert_eq!(ask(&tags, "*", TagMatch::Wild("?-*de".into())), ["m51/j"]);
        assert_eq!(ask(&tags, "see*", TagMatch::Wild("*".into())).len(), 3);
        let below = TagQuery { key: "band".into(), matches: TagMatch::Any, below: "m31".into() };
        assert_eq!(tags.query(&below), ["m31/h", "m31/j"]);
    }

    #[test]
    fn what_was_answered_is_there_after_a_kill_and_a_cut_line_is_not() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("tags.log");
        drop(filled(&path));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 5);
        std::fs::write(&path, &bytes).unwrap();
        let (mut tags, _) = Tags::open(&path);
        assert_eq!(tags.of("m51/j"), None);
        assert_eq!(tags.of("m31/h").unwrap().len(), 2);
        tags.put("m51/j", vec![("band".into(), text("J"))]).unwrap();
        tags.forget("m31").unwrap();
        let (tags, _) = Tags::open(&path);
        assert_eq!(ask(&tags, "band", TagMatch::Any), ["m51/j"]);
    }
}
