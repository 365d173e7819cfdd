//! Forwarding: regions of staged arrays are sent on to other agents as they are published, straight from the tier.
//!
//! ```text
//!  log of an array ──in its order──▶ lane (one target of one rule, one thread) ══TCP or TLS══▶ agent there: an ordinary put
//!        ▲ mark: all before it have arrived               ▲
//!        │                                                │ cuts: regions that left the log before they were sent
//!  client publishes                                       new generation of the log (agent)
//! ```
//!
//! A lane's progress in an array is a mark in the log itself, in the tier's memory: a kill of the agent loses nothing of it. What
//! leaves the log (it is durable, and room was needed) is written down beforehand by whoever cuts the log (`cuts`), and read back
//! from the root. Whatever is sent twice is the same put again, in the same order.
//!
//! Invariants:
//! 1. A record before the mark has arrived: the target has acknowledged the put.
//! 2. One connection at a time speaks for a lane: the target ends an older one before it greets the next, so that no put that was on
//!    its way when the network was cut comes after newer ones.
//! 3. A writer never waits for a lane: what can't be sent stays where it is.

mod cuts;
mod feed;
mod lane;
mod sending;
mod status;
mod tags;

use crate::agent::Agent;
use crate::error::{Error, Result};
use cuts::Cuts;
use lane::LaneState;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};
use terrace_core::objects::few::Condition;
use terrace_core::objects::{Kind, ObjectError, Region, choose, key_of_chunk, key_of_name};
use terrace_core::policy::Patterns;
use terrace_core::settings::{ForwardSettings, Keep, Settings, TargetSettings};
use terrace_objects::array::{self, Drops, Log, Stage};

pub struct Forwards {
    rules: Vec<Rule>,
    pub lanes: Vec<Lane>,
    pub cuts: Cuts,
    /// Since when the agent has nothing else to do.
    leaving: Mutex<Option<Instant>>,
    /// What has not been sent is made durable, whatever its rule says.
    gave_up: AtomicBool,
}

struct Rule {
    containers: Patterns,
    arrays: Option<Patterns>,
    keep: Keep,
    /// Numbers of its lanes.
    lanes: std::ops::Range<usize>,
}

/// One target of one rule.
pub struct Lane {
    /// The same as long as the rule and its targets are.
    pub id: u64,
    number: u32,
    of: u32,
    pub target: TargetSettings,
    /// Cells that don't meet it are not sent.
    condition: Condition,
    pub state: Mutex<LaneState>,
}

/// How long a request for what has arrived sleeps between looks.
const LOOK: Duration = Duration::from_millis(2);

impl Forwards {
    pub fn new(settings: &Settings) -> Result<Forwards> {
        let (mut rules, mut lanes) = (vec![], vec![]);
        for rule in &settings.forwards {
            let first = lanes.len();
            let condition = Condition::parse(&rule.conditions).map_err(|reason| Error::Settings { reason })?;
            for (number, target) in rule.targets.iter().enumerate() {
                let (number, of) = (number as u32, rule.targets.len() as u32);
                let state = Mutex::default();
                let (id, target, condition) = (lane_id(rule, number), target.clone(), condition.clone());
                lanes.push(Lane { id, number, of, target, condition, state });
            }
            rules.push(Rule {
                containers: Patterns::compile("forward.container", &rule.containers)?,
                arrays: match rule.arrays.is_empty() {
                    true => None,
                    false => Some(Patterns::compile("forward.arrays", &rule.arrays)?),
                },
                keep: rule.keep,
                lanes: first..lanes.len(),
            });
        }
        let cuts = Cuts::open(&settings.state.join("forwards"));
        Ok(Forwards { rules, lanes, cuts, leaving: Mutex::default(), gave_up: AtomicBool::new(false) })
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

    pub fn lanes_of(&self, name: &str) -> &[Lane] {
        self.rule_of(name).map_or(&[], |rule| &self.lanes[rule.lanes.clone()])
    }

    /// A container whose tags go to this lane.
    fn has_container(&self, lane: &Lane, name: &str) -> bool {
        let rule = self.rules.iter().find(|rule| rule.containers.has(Path::new(name)));
        rule.is_some_and(|rule| self.lanes[rule.lanes.clone()].iter().any(|other| other.id == lane.id))
    }

    /// Nothing of it is to be kept here.
    pub fn is_passing(&self, name: &str) -> bool {
        !self.gave_up.load(Acquire) && self.rule_of(name).is_some_and(|rule| rule.keep == Keep::None)
    }
}

impl Lane {
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

/// Depends on all that decides which regions the lane has to send.
fn lane_id(rule: &ForwardSettings, number: u32) -> u64 {
    let targets: Vec<&str> = rule.targets.iter().map(|target| target.address.as_str()).collect();
    let mut text = format!("{}\n{}\n{number}", targets.join(" "), rule.arrays.join(" "));
    if !rule.conditions.is_empty() {
        text += &format!("\n{}", rule.conditions.join(" "));
    }
    key_of_name(&text).max(1)
}

/// The dimension that steps are counted by: the first that grows.
pub fn step_of(region: &Region, grows: Option<usize>) -> Option<u64> {
    grows.map(|dimension| region.offset()[dimension])
}

impl Agent {
    /// A new generation of an array's log; lanes hear of what leaves it unsent.
    pub fn cut_log(&self, stage: &Stage, drops: Drops) -> terrace_core::objects::Result<u64> {
        let place = &self.objects.place;
        let forwards = &self.objects.forwards;
        let log = Log::open(&stage.log(place))?;
        let name = log.array_path().unwrap_or_default();
        log.keep_forwards(|lane| forwards.lanes.iter().any(|known| known.id == lane));
        for lane in forwards.lanes_of(&name) {
            log.begin_forward(lane.id);
        }
        array::compact(place, stage, drops, &mut |lane, regions| {
            forwards.cuts.add(lane, &name, regions).map_err(|error| {
                ObjectError::new(Kind::System, format!("what is to be forwarded could not be written down: {error}"))
            })
        })
    }

    /// Something of an array has not arrived at all targets yet.
    pub fn is_behind(&self, name: &str, log: Option<&Log>) -> bool {
        let forwards = &self.objects.forwards;
        forwards.lanes_of(name).iter().any(|lane| {
            forwards.cuts.count(lane.id, name) > 0
                || log.is_some_and(|log| log.forwarded(lane.id).unwrap_or(0) < log.tail())
        })
    }

    /// A directory that is no array.
    fn is_container(&self, name: &str) -> bool {
        let directory = self.settings.root.join(name);
        directory.is_dir()
            && !matches!(array::read_metadata(&directory), Ok(Some(metadata)) if metadata.array.is_some())
    }

    fn some_is_behind(&self) -> bool {
        let forwards = &self.objects.forwards;
        if forwards.lanes.is_empty() {
            return false;
        }
        forwards.cuts.names().iter().any(|name| self.is_behind(name, None))
            || self.staged_arrays().iter().any(|(name, log)| self.is_behind(name, Some(log)))
    }

    /// Staged arrays by their names, with their logs.
    pub fn staged_arrays(&self) -> Vec<(String, Log)> {
        let place = &self.objects.place;
        let found = array::stages(place).into_iter().filter_map(|stage| {
            let log = Log::open(&stage.log(place)).ok()?;
            let directory = array::directory_of(place, &stage, &log)?;
            Some((array::relative(place, &directory)?, log))
        });
        found.collect()
    }

    /// The agent has nothing else to do: should it wait for targets that it can't reach?
    pub fn waits_for_forwards(&self, is_leaving: bool) -> bool {
        let forwards = &self.objects.forwards;
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

    /// Waits until what was put at and below `path` before has arrived at all targets.
    pub fn sync_forwards(&self, path: &str, patience: Option<Duration>) -> terrace_core::objects::Result<()> {
        let forwards = &self.objects.forwards;
        let is_below = |name: &str| {
            path.is_empty() || name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let staged = self.staged_arrays().into_iter().filter(|(name, _)| is_below(name));
        let mut left: Vec<(String, Log, u64)> =
            staged.map(|(name, log)| (log.tail(), name, log)).map(|(t, n, l)| (n, l, t)).collect();
        let mut cut: Vec<String> = forwards.cuts.names().into_iter().filter(|name| is_below(name)).collect();
        let is_forwarded = |name: &str| !forwards.lanes_of(name).is_empty();
        let directory = self.settings.root.join(path);
        let is_known = forwards.rules.iter().any(|rule| rule.containers.has(Path::new(path)));
        if !is_known && !cut.iter().any(|name| is_forwarded(name)) && !left.iter().any(|(name, ..)| is_forwarded(name))
        {
            let is_there = directory.exists();
            let what = if is_there { "is not forwarded" } else { "is not there" };
            return Err(ObjectError::new(Kind::Invalid, format!("`{path}` {what}: there is nothing to wait for"))
                .hint("rules for forwarding are `[[forward]]` in terrace.toml, or `terrace serve --forward`"));
        }
        let begun = Instant::now();
        loop {
            left.retain(|(name, log, tail)| {
                forwards.lanes_of(name).iter().any(|lane| {
                    // In another generation records have other numbers: all of it then.
                    let is_current = log.header().life.load(SeqCst) == 0;
                    match is_current {
                        true => log.forwarded(lane.id).unwrap_or(0) < *tail,
                        false => self
                            .staged_arrays()
                            .iter()
                            .any(|(other, log)| other == name && self.is_behind(name, Some(log))),
                    }
                })
            });
            cut.retain(|name| forwards.lanes_of(name).iter().any(|lane| forwards.cuts.count(lane.id, name) > 0));
            // What leaves the log while we wait is waited for as well.
            if left.is_empty() && cut.is_empty() {
                cut = forwards
                    .cuts
                    .names()
                    .into_iter()
                    .filter(|name| is_below(name) && self.is_behind(name, None))
                    .collect();
                if cut.is_empty() {
                    return Ok(());
                }
            }
            if patience.is_some_and(|patience| begun.elapsed() >= patience) {
                let states: Vec<String> = forwards.lanes.iter().filter_map(|lane| lane.trouble()).collect();
                let states = if states.is_empty() { "it is still being sent".into() } else { states.join("; ") };
                return Err(ObjectError::new(
                    Kind::Busy,
                    format!("not all of `{path}` has arrived in the time given: {states}"),
                ));
            }
            if self.schedule.has_ended() {
                return Err(ObjectError::new(Kind::NoAgent, "the agent ends"));
            }
            std::thread::sleep(LOOK);
        }
    }
}
