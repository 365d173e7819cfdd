//! Tags travel after the data that they may speak of: what is in the logs when tags are looked at is sent before them.

use super::Forwarder;
use super::Sender;
use super::conversation::{LogReaders, SOURCE_TAG, Stop, Talk, make_array};
use std::collections::BTreeMap;
use terrace_core::objects::wire::Request;
use terrace_core::objects::{Kind, TagValue};

type Tags = BTreeMap<String, TagValue>;

#[derive(Default)]
pub struct TagPass {
    /// The index of tags, and the arrays there were, when they were last looked at.
    seen: Option<(u64, Vec<String>)>,
    /// What the target was told, by object.
    told: BTreeMap<String, Tags>,
    /// What it is to be told, when these marks are reached: array, generation of its log, record.
    wanted: Option<(BTreeMap<String, Tags>, Vec<Mark>)>,
}

/// An array, the generation of its log, a record.
type Mark = (String, u64, u64);

impl TagPass {
    /// Another conversation: the target may be another one.
    pub fn begin_anew(&mut self) {
        self.told.clear();
        self.seen = None;
    }

    pub fn look(&mut self, agent: &Forwarder, sender: &Sender, readers: &mut LogReaders) {
        let forwards = &agent.forwards;
        for reader in readers.values_mut().filter(|reader| reader.is_new_there) {
            reader.is_new_there = false;
            self.told.remove(&reader.name);
            self.seen = None;
        }
        let (version, mut objects) = {
            let tags = agent.tags.lock().unwrap();
            let is_seen =
                |(version, arrays): &(u64, Vec<String>)| *version == tags.version && arrays.iter().eq(readers.keys());
            if self.wanted.is_some() || self.seen.as_ref().is_some_and(is_seen) {
                return;
            }
            (tags.version, tags.all())
        };
        objects.retain(|name, _| {
            readers.contains_key(name)
                || self.told.contains_key(name)
                || (forwards.has_container(sender, name) && agent.is_container(name))
        });
        for tags in objects.values_mut() {
            tags.remove(SOURCE_TAG);
        }
        // Objects whose tags are all gone are told so.
        for name in self.told.keys() {
            objects.entry(name.clone()).or_default();
        }
        let marks = readers.values().filter_map(|reader| {
            let log = reader.tail.as_ref()?.log();
            Some((reader.name.clone(), log.ino(), log.tail()))
        });
        self.seen = Some((version, readers.keys().cloned().collect()));
        if objects.iter().any(|(name, tags)| self.told.get(name).unwrap_or(&Tags::new()) != tags) {
            self.wanted = Some((objects, marks.collect()));
        }
    }

    /// What comes before the tags has arrived.
    pub fn is_due(&self, readers: &LogReaders) -> bool {
        let Some((_, marks)) = &self.wanted else { return false };
        marks.iter().all(|(name, generation, record)| {
            let Some(reader) = readers.get(name) else { return true };
            let Some(log) = reader.tail.as_ref().map(|tail| tail.log()) else { return true };
            let mark = log.forwarded(reader.way.id).unwrap_or(0);
            // In another generation records have other numbers: all of it then.
            if log.ino() == *generation { mark >= *record } else { mark >= log.tail() }
        })
    }

    pub fn send(&mut self, readers: &mut LogReaders, talk: &mut Talk) -> Result<(), Stop> {
        if !self.is_due(readers) {
            return Ok(());
        }
        let Some((wanted, _)) = self.wanted.take() else { return Ok(()) };
        // What is refused is looked at again.
        let seen = self.seen.take();
        for (name, tags) in &wanted {
            let told = self.told.entry(name.clone()).or_default();
            if told == tags {
                continue;
            }
            match readers.get_mut(name) {
                Some(reader) if !reader.is_made => make_array(reader, talk)?,
                Some(_) => {}
                None => talk.make_container(name)?,
            }
            let changed = tags.iter().filter(|(key, value)| told.get(*key) != Some(value));
            let changed: Vec<(String, TagValue)> = changed.map(|(key, value)| (key.clone(), value.clone())).collect();
            if !changed.is_empty() {
                talk.ask_for(name, &Request::PutTags { path: name.clone(), tags: changed })?;
            }
            for key in told.keys().filter(|key| !tags.contains_key(*key)) {
                match talk.ask_for(name, &Request::DeleteTag { path: name.clone(), key: key.clone() }) {
                    // It is gone already.
                    Err(Stop::Refused(_, error)) if error.kind == Kind::NotFound => {}
                    deleted => deleted?,
                }
            }
            *told = tags.clone();
        }
        self.seen = seen;
        Ok(())
    }
}
