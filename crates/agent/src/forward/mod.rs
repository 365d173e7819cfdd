//! Forwarding: regions of staged arrays are sent on to other agents as they are published, straight from the tier.
//!
//! ```text
//!  log of an array ──in its order──▶ sender (a target as it is reached, one thread) ══TCP or TLS══▶ agent there: an ordinary put
//!        ▲ mark: all before it have arrived               ▲
//!        │                                                │ unsent: regions that left the log before they were sent
//!  client publishes                                       new generation of the log (agent)
//! ```
//!
//! An array goes the ways of the first rule that it meets, one for each of the rule's targets. A way says which steps and which cells,
//! and by which sender: rules that reach a target with the same token and certificate share one, others have senders of their own, so that
//! nothing travels by what another rule knows.
//!
//! The progress of an array on a way is a mark in the log itself, in the tier's memory: a kill of the agent loses nothing of it. What
//! leaves the log (it is durable, and room was needed) is written down beforehand by whoever compacts the log (`unsent`), and read back
//! from the root. Whatever is sent twice is the same put again, in the same order.
//!
//! Invariants:
//! 1. A record before the mark has arrived: the target has acknowledged the put.
//! 2. An array goes to a target by one sender, and one connection at a time speaks for a sender: the target ends an older one before it
//!    greets the next, so that no put that was on its way when the network was cut comes after newer ones.
//! 3. A writer never waits for a sender: what can't be sent stays where it is.

mod conversation;
mod message;
mod reader;
mod sender;
mod status;
mod sync;
mod tags;
mod unsent;

use crate::arrays::Arrays;
use crate::error::{Error, Result};
use sender::SenderState;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_core::objects::few::Condition;
use terrace_core::objects::{Kind, ObjectError, Region, choose, key_of_chunk, key_of_name};
use terrace_core::policy::Patterns;
use terrace_core::settings::{ForwardSettings, Keep, Settings, TargetSettings};
use terrace_objects::array::{self, Drops, Log, Stage};
use unsent::Unsent;

/// What is staged, and what of it is sent on. What is in `Arrays` and `Shared` is reached as if it were here.
pub struct Forwarder {
    arrays: Arc<Arrays>,
    pub forwards: Forwards,
}

impl Deref for Forwarder {
    type Target = Arrays;

    fn deref(&self) -> &Arrays {
        &self.arrays
    }
}

impl Forwarder {
    pub fn new(arrays: Arc<Arrays>) -> Result<Forwarder> {
        let forwards = Forwards::new(&arrays.settings)?;
        Ok(Forwarder { arrays, forwards })
    }
}

pub struct Forwards {
    rules: Vec<Rule>,
    pub senders: Vec<Sender>,
    pub unsent: Unsent,
    /// Since when the agent has nothing else to do.
    leaving: Mutex<Option<Instant>>,
    /// What has not been sent is made durable, whatever its rule says.
    gave_up: AtomicBool,
}

struct Rule {
    containers: Patterns,
    arrays: Option<Patterns>,
    keep: Keep,
    ways: Vec<Way>,
}

/// What of a rule's arrays goes to one of its targets.
#[derive(Clone)]
pub struct Way {
    /// What marks and unsent regions are known by: the same as long as the targets, the share and the condition are, whatever the token is.
    pub id: u64,
    /// Which share of the steps, of how many.
    number: u32,
    of: u32,
    /// Cells that don't meet it are not sent.
    condition: Condition,
    sender: usize,
}

/// A target, and how it is reached.
pub struct Sender {
    number: usize,
    pub target: TargetSettings,
    pub state: Mutex<SenderState>,
}

impl Forwards {
    pub fn new(settings: &Settings) -> Result<Forwards> {
        let (mut rules, mut senders): (Vec<Rule>, Vec<Sender>) = (vec![], vec![]);
        for rule in &settings.forwards {
            let condition = Condition::parse(&rule.conditions).map_err(|reason| Error::Settings { reason })?;
            let mut ways = vec![];
            for (number, target) in rule.targets.iter().enumerate() {
                let sender = senders.iter().position(|sender| sender.target == *target).unwrap_or_else(|| {
                    senders.push(Sender { number: senders.len(), target: target.clone(), state: Mutex::default() });
                    senders.len() - 1
                });
                let (number, of) = (number as u32, rule.targets.len() as u32);
                ways.push(Way { id: way_id(rule, number), number, of, condition: condition.clone(), sender });
            }
            rules.push(Rule {
                containers: Patterns::compile("forward.container", &rule.containers)?,
                arrays: match rule.arrays.is_empty() {
                    true => None,
                    false => Some(Patterns::compile("forward.arrays", &rule.arrays)?),
                },
                keep: rule.keep,
                ways,
            });
        }
        let unsent = Unsent::open(&settings.state.join("forwards"));
        Ok(Forwards { rules, senders, unsent, leaving: Mutex::default(), gave_up: AtomicBool::new(false) })
    }

    /// The rule that counts for an array.
    fn rule_of(&self, name: &str) -> Option<&Rule> {
        let path = Path::new(name);
        let (container, own) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
        self.rules.iter().find(|rule| {
            (rule.containers.has(container) || rule.containers.has(path))
                && rule.arrays.as_ref().is_none_or(|arrays| arrays.has(Path::new(own)))
        })
    }

    pub fn ways_of(&self, name: &str) -> &[Way] {
        self.rule_of(name).map_or(&[], |rule| &rule.ways)
    }

    /// How an array goes by this sender, if it does.
    pub fn way(&self, sender: &Sender, name: &str) -> Option<&Way> {
        self.ways_of(name).iter().find(|way| way.sender == sender.number)
    }

    /// A container whose tags go by this sender: of several senders to a target one tells it.
    fn has_container(&self, sender: &Sender, name: &str) -> bool {
        for rule in self.rules.iter().filter(|rule| rule.containers.has(Path::new(name))) {
            let mut senders = rule.ways.iter().map(|way| &self.senders[way.sender]);
            if let Some(first) = senders.find(|other| other.target.address == sender.target.address) {
                return first.number == sender.number;
            }
            // None of its arrays is left for another rule.
            if rule.arrays.is_none() {
                return false;
            }
        }
        false
    }

    /// All ways of an array that nothing is to be kept of; none of another one.
    pub fn passing(&self, name: &str) -> Vec<u64> {
        let rule = self.rule_of(name).filter(|rule| rule.keep == Keep::None);
        rule.map_or(vec![], |rule| rule.ways.iter().map(|way| way.id).collect())
    }

    /// Nothing of it is to be kept here.
    pub fn is_passing(&self, name: &str) -> bool {
        !self.gave_up.load(Acquire) && self.rule_of(name).is_some_and(|rule| rule.keep == Keep::None)
    }
}

impl Way {
    /// One of several targets has whole steps; what has no steps goes to all of them.
    fn takes(&self, name: &str, step: Option<u64>) -> bool {
        let Some(step) = step.filter(|_| self.of > 1) else { return true };
        choose(key_of_chunk(key_of_name(container_of(name)), &[step]), self.of) == self.number
    }
}

/// What an array lies in.
fn container_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(container, _)| container)
}

/// Depends on all that decides which regions of an array the target has to get.
fn way_id(rule: &ForwardSettings, number: u32) -> u64 {
    let targets: Vec<&str> = rule.targets.iter().map(|target| target.address.as_str()).collect();
    let mut text = format!("{}\n\n{number}", targets.join(" "));
    if !rule.conditions.is_empty() {
        text += &format!("\n{}", rule.conditions.join(" "));
    }
    key_of_name(&text).max(1)
}

/// `grows`: the dimension that steps are counted by.
pub fn step_of(region: &Region, grows: Option<usize>) -> Option<u64> {
    grows.map(|dimension| region.offset()[dimension])
}

impl Forwarder {
    /// A new generation of an array's log; what leaves it unsent is written down for its ways.
    pub fn compact_log(&self, stage: &Stage, drops: Drops) -> terrace_core::objects::Result<u64> {
        let place = &self.place;
        let forwards = &self.forwards;
        let log = Log::open(&stage.log(place))?;
        let name = log.array_path().unwrap_or_default();
        let ways = forwards.ways_of(&name);
        // One that does not say whose it is keeps all it has.
        if !name.is_empty() {
            log.keep_forwards(|id| ways.iter().any(|way| way.id == id));
        }
        for way in ways {
            log.begin_forward(way.id);
        }
        let metadata = array::read_metadata(&place.root().join(&name))?.and_then(|metadata| metadata.array);
        let grows = metadata.and_then(|metadata| metadata.spec.grows_along());
        array::compact(place, stage, drops, &mut |id, mut regions| {
            // A way passes by what is another target's.
            let way = ways.iter().find(|way| way.id == id);
            regions.retain(|region| way.is_none_or(|way| way.takes(&name, step_of(region, grows))));
            if regions.is_empty() {
                return Ok(());
            }
            forwards.unsent.add(id, &name, regions).map_err(|error| {
                ObjectError::new(Kind::System, format!("what is to be forwarded could not be written down: {error}"))
            })
        })
    }

    /// Something of an array has not arrived at all targets yet.
    pub fn is_behind(&self, name: &str, log: Option<&Log>) -> bool {
        let forwards = &self.forwards;
        forwards.ways_of(name).iter().any(|way| self.is_behind_on(way, name, log))
    }

    fn is_behind_on(&self, way: &Way, name: &str, log: Option<&Log>) -> bool {
        self.forwards.unsent.count(way.id, name) > 0
            || log.is_some_and(|log| log.forwarded(way.id).unwrap_or(0) < log.tail())
    }

    /// A directory that is no array.
    fn is_container(&self, name: &str) -> bool {
        let directory = self.settings.root.join(name);
        directory.is_dir()
            && !matches!(array::read_metadata(&directory), Ok(Some(metadata)) if metadata.array.is_some())
    }

    fn some_is_behind(&self) -> bool {
        let forwards = &self.forwards;
        if forwards.senders.is_empty() {
            return false;
        }
        forwards.unsent.names().iter().any(|name| self.is_behind(name, None))
            || self.staged_arrays().iter().any(|(name, log)| self.is_behind(name, Some(log)))
    }

    /// The agent has nothing else to do: should it wait for targets that it can't reach?
    pub fn waits_for_forwards(&self, is_leaving: bool) -> bool {
        let forwards = &self.forwards;
        let mut leaving = forwards.leaving.lock().unwrap();
        if !is_leaving {
            *leaving = None;
            forwards.gave_up.store(false, Release);
            return false;
        }
        let patience = Duration::from_millis(self.settings.forward_patience_ms);
        let since = *leaving.get_or_insert_with(Instant::now);
        let waits = self.some_is_behind();
        if waits && since.elapsed() >= patience {
            if !forwards.gave_up.swap(true, AcqRel) {
                self.warn(
                    "some regions have not arrived where they are forwarded to; the next agent of this root goes on with them".into(),
                );
            }
            return false;
        }
        waits
    }
}
