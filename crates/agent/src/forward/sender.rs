//! A sender at work: a thread that sends the regions of its arrays to one target, in order, several on their way at a time.
//!
//! Containers take turns, by bytes, whichever rules they are of. Of what a container's arrays have to send, the lowest step goes first; each array's regions go in
//! the order of its log.

use super::Forwarder;
use super::conversation::{FLIGHT_BYTES_MAX, FLIGHT_MAX, Flight, LogReaders, Shares, Stop, Talk, make_array};
use super::message::Sending;
use super::reader::{LogReader, Work};
use super::tags::TagPass;
use super::{Sender, container_of};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};
use terrace_client::{FINGERPRINT_SUFFIX, Link, checked_fingerprint};
use terrace_core::objects::wire::{Request, Response};
use terrace_core::objects::{Kind, ObjectError, Region, Result, key_of_name};
use terrace_core::settings::TargetSettings;
use terrace_objects::array::{self, Log};

/// A target that takes nothing and says nothing for so long is taken to be away.
const SILENCE: Duration = Duration::from_secs(15);
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// How often new arrays are looked for.
const DISCOVER: Duration = Duration::from_millis(50);
const NAP_MIN: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(20);
/// How long one turn sends before it looks around.
const TURN: Duration = Duration::from_millis(100);
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Phase {
    #[default]
    Idle,
    Sending,
    /// Not reached; it is tried again.
    Away,
    /// It is there, and does not take something.
    Refused,
}

#[derive(Default)]
pub struct SenderState {
    pub phase: Phase,
    pub reason: String,
    pub arrays: BTreeMap<String, Sent>,
    /// Of the sender as a whole.
    refused: Option<Refusal>,
    /// Bytes that have arrived lately, and when.
    pub lately: VecDeque<(Instant, String, u64)>,
}

/// What has arrived of an array since the agent's start.
#[derive(Clone, Default)]
pub struct Sent {
    pub regions: u64,
    pub bytes: u64,
    refused: Option<Refusal>,
    /// How long its log was, and when that was seen; those that have arrived are left out.
    waiting: VecDeque<(Instant, u64)>,
}

/// What a target has said, and when that was begun which it refused.
#[derive(Clone)]
pub struct Refusal {
    pub attempted: Instant,
    pub error: ObjectError,
}

impl Refusal {
    /// It says the same until somebody sets something right; other troubles pass.
    pub fn is_final(&self) -> bool {
        use Kind::*;
        matches!(self.error.kind, Denied | WrongKind | Exists | Invalid | OutOfBounds | Protocol)
    }
}

/// How often it is looked how long a log is, when there are few such looks and when there are many.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOKS_MANY: usize = 1000;

impl Sent {
    /// How long the oldest region that has not arrived has been waiting.
    pub fn lag_s(&self) -> f64 {
        self.waiting.front().map_or(0.0, |(since, _)| since.elapsed().as_secs_f64())
    }

    fn look(&mut self, mark: u64, tail: u64) {
        // In a new generation records have other numbers: what waited still does.
        if self.waiting.back().is_some_and(|(_, known)| *known > tail) {
            self.waiting.truncate(1);
            self.waiting.iter_mut().for_each(|(_, known)| *known = tail);
        }
        while self.waiting.front().is_some_and(|(_, known)| *known <= mark) {
            self.waiting.pop_front();
        }
        let pause = if self.waiting.len() < LOOKS_MANY { LOOK_MIN } else { LOOK_MAX };
        let is_longer = self.waiting.back().map_or(mark, |(_, known)| *known) < tail;
        if is_longer && self.waiting.back().is_none_or(|(at, _)| at.elapsed() >= pause) {
            self.waiting.push_back((Instant::now(), tail));
        }
    }
}

/// How far back a rate looks.
pub const LATELY: Duration = Duration::from_secs(5);

impl Sender {
    fn note(&self, phase: Phase, reason: String) {
        let mut state = self.state.lock().unwrap();
        (state.phase, state.reason) = (phase, reason);
    }

    /// What the target has last said against this array, or against all of them, in attempts that were begun since.
    pub fn refusal(&self, array: &str, since: Instant) -> Option<Refusal> {
        let state = self.state.lock().unwrap();
        let of_array = state.arrays.get(array).and_then(|sent| sent.refused.as_ref());
        let mut said = state.refused.iter().chain(of_array);
        said.find(|refusal| refusal.attempted >= since && refusal.is_final()).cloned()
    }

    /// What keeps it from sending.
    pub fn trouble(&self) -> Option<String> {
        let state = self.state.lock().unwrap();
        let is_trouble = matches!(state.phase, Phase::Away | Phase::Refused);
        is_trouble.then(|| format!("{}: {}", self.target.address, state.reason))
    }

    fn connect(&self, who: u64) -> Result<Link> {
        let target = &self.target;
        let file = &target.token_file;
        let token = std::fs::read_to_string(file).map_err(|error| {
            ObjectError::new(Kind::Denied, format!("the token {} can't be read: {error}", file.display()))
        })?;
        let mut beside = file.clone().into_os_string();
        beside.push(FINGERPRINT_SUFFIX);
        let fingerprint = target.fingerprint.clone().or_else(|| std::fs::read_to_string(beside).ok());
        let fingerprint = fingerprint.map(|text| checked_fingerprint(&text)).transpose()?;
        let mut link = Link::connect(&target.address, token.trim(), fingerprint, SILENCE)?;
        let away = |error: std::io::Error| ObjectError::new(Kind::NoAgent, format!("{}: {error}", target.address));
        match link.ask(&Request::Members).map_err(away)? {
            Response::Members { members, .. } if members.len() > 1 => {
                return Err(ObjectError::new(
                    Kind::WrongKind,
                    format!("{} is one of several agents of a root: forward to agents that are alone", target.address),
                ));
            }
            Response::Failed(error) => return Err(error),
            _ => {}
        }
        match link.ask(&Request::Forwarder { who }).map_err(away)? {
            Response::Done => Ok(link),
            Response::Failed(error) => Err(error),
            other => Err(ObjectError::new(Kind::Protocol, format!("{} answered {other:?}", target.address))),
        }
    }
}

impl Forwarder {
    /// Until the agent ends.
    pub fn run_sender(&self, number: usize) {
        let forwards = &self.forwards;
        let sender = &forwards.senders[number];
        let who = self.sender_identity(sender);
        let mut readers = LogReaders::new();
        let mut talk: Option<Talk> = None;
        let mut tags = TagPass::default();
        let mut discovered: Option<Instant> = None;
        let (mut nap, mut retry) = (NAP_MIN, RETRY_MIN);
        while !self.schedule.has_ended() {
            let attempted = Instant::now();
            if discovered.is_none_or(|last| last.elapsed() >= DISCOVER) {
                self.discover(sender, &mut readers);
                discovered = Some(Instant::now());
            }
            self.follow_generations(&mut readers);
            tags.look(self, sender, &mut readers);
            let has_work = readers.values_mut().any(|reader| reader.peek(forwards).is_some());
            note_waiting(sender, &readers);
            if !has_work && !tags.is_due(&readers) {
                if talk.is_some() || readers.values().all(|reader| reader.is_idle(forwards)) {
                    rest(sender, &readers);
                }
                self.schedule.rest(nap);
                nap = (nap * 2).min(NAP_MAX);
                continue;
            }
            nap = NAP_MIN;
            let Some(conversation) = &mut talk else {
                match sender.connect(who) {
                    Ok(link) => {
                        talk = Some(Talk { link, flight: VecDeque::new(), bytes: 0, shares: Shares::default() });
                        retry = RETRY_MIN;
                        readers.values_mut().for_each(|reader| reader.is_made = false);
                        tags.begin_anew();
                    }
                    Err(error) => {
                        let phase = if error.kind == Kind::NoAgent { Phase::Away } else { Phase::Refused };
                        sender.note(phase, error.message.clone());
                        sender.state.lock().unwrap().refused = Some(Refusal { attempted, error });
                        self.rest_before_retry(&mut retry);
                    }
                }
                continue;
            };
            let done =
                self.turn(sender, &mut readers, conversation).and_then(|()| tags.send(&mut readers, conversation));
            match done {
                Ok(()) => {}
                Err(Stop::Refused(array, error)) => {
                    sender.note(Phase::Refused, format!("`{array}`: {error}"));
                    if let Some(reader) = readers.get_mut(&array) {
                        reader.refuse();
                        let mut state = sender.state.lock().unwrap();
                        state.arrays.entry(array).or_default().refused = Some(Refusal { attempted, error });
                    }
                    // What was sent after it is answered, or sent again.
                    if self.land(sender, &mut readers, conversation).is_err() {
                        talk = None;
                    }
                    readers.values_mut().for_each(|reader| reader.rewind());
                }
                Err(Stop::Lost(error)) => {
                    sender.note(Phase::Away, error.to_string());
                    talk = None;
                    readers.values_mut().for_each(|reader| reader.rewind());
                    self.rest_before_retry(&mut retry);
                }
            }
        }
    }

    fn rest_before_retry(&self, retry: &mut Duration) {
        let until = Instant::now() + *retry;
        while Instant::now() < until && !self.schedule.has_ended() {
            self.schedule.rest(NAP_MAX);
        }
        *retry = (*retry * 2).min(RETRY_MAX);
    }

    /// What the target knows this sender by: no other sender is called so, and the agent of this root that comes next calls it the same.
    fn sender_identity(&self, sender: &Sender) -> u64 {
        let settings = &self.settings;
        let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let member = settings.member.as_ref().map_or(0, |member| member.number);
        let TargetSettings { address, token_file, fingerprint } = &sender.target;
        let way_in = format!("{address}\n{}\n{}", token_file.display(), fingerprint.as_deref().unwrap_or_default());
        key_of_name(&format!("{node}\n{}\n{member}\n{way_in}", settings.state.display()))
    }

    /// Arrays that are staged, or of which regions left the log unsent.
    fn discover(&self, sender: &Sender, readers: &mut LogReaders) {
        let (place, forwards) = (&self.place, &self.forwards);
        for stage in array::stages(place) {
            // Those that are known need no look at the log.
            if readers
                .values()
                .any(|reader| reader.tail.as_ref().is_some_and(|tail| tail.stage == stage && tail.is_current()))
            {
                continue;
            }
            let Ok(log) = Log::open(&stage.log(place)) else { continue };
            let Some(directory) = array::directory_of(place, &stage, &log) else { continue };
            let Some(name) = array::relative(place, &directory) else { continue };
            let Some(way) = forwards.way(sender, &name) else { continue };
            let known = readers.get(&name).is_some_and(|reader| reader.tail.is_some() || reader.in_flight > 0);
            if known {
                continue;
            }
            let Ok(Some(mut reader)) = LogReader::new(place, &name, way, forwards.passing(&name)) else { continue };
            match reader.stage(place, &stage) {
                Ok(true) => {
                    readers.insert(name, reader);
                }
                Ok(false) => {
                    self.warn(format!("`{name}` is forwarded to too many agents: not to {}", sender.target.address))
                }
                Err(_) => {} // it has just ended; it is looked for again
            }
        }
        for name in forwards.unsent.names() {
            let Some(way) = forwards.way(sender, &name) else { continue };
            if readers.contains_key(&name) || forwards.unsent.count(way.id, &name) == 0 {
                continue;
            }
            match LogReader::new(place, &name, way, forwards.passing(&name)) {
                Ok(Some(reader)) => {
                    readers.insert(name, reader);
                }
                // The array was removed: there is nothing to send.
                Ok(None) => forwards.unsent.forget(way.id, &name),
                Err(error) => sender.note(Phase::Refused, format!("`{name}`: {error}")),
            }
        }
    }

    /// Logs that have ended are left for those in their place.
    fn follow_generations(&self, readers: &mut LogReaders) {
        let place = &self.place;
        // Another array has got its name.
        readers.retain(|_, reader| !reader.has_ended() || reader.in_flight > 0 || reader.is_the_same());
        for reader in readers.values_mut().filter(|reader| reader.has_ended() && reader.in_flight == 0) {
            reader.tail = None;
            if let Some(stage) = reader.current_stage(place) {
                // One that has ended meanwhile is found by the next look.
                let _ = reader.stage(place, &stage);
            }
        }
        readers.retain(|_, reader| {
            let is_left = reader.tail.is_some() || reader.in_flight > 0;
            is_left || self.forwards.unsent.count(reader.way.id, &reader.name) > 0
        });
    }

    /// Sends what there is for a while, and takes the answers in.
    fn turn(&self, sender: &Sender, readers: &mut LogReaders, talk: &mut Talk) -> std::result::Result<(), Stop> {
        let forwards = &self.forwards;
        let begun = Instant::now();
        sender.note(Phase::Sending, String::new());
        while begun.elapsed() < TURN && !self.schedule.has_ended() {
            let next = readers.values_mut().filter_map(|reader| {
                let (step, work) = reader.peek(forwards)?;
                Some(((talk.shares.of(container_of(&reader.name)), step), reader.name.clone(), work))
            });
            let Some((_, name, work)) = next.min_by_key(|(turn, ..)| *turn) else {
                match talk.flight.is_empty() {
                    true => break,
                    false => self.receive(sender, readers, talk)?,
                }
                continue;
            };
            // By what is looked at: a condition may leave little of it.
            let looked_at = match &work {
                Work::Unsent(region) | Work::Record { region, .. } => region.cells(),
                Work::Shape(_) => 0,
            };
            let size = readers.get(&name).map_or(1, |reader| reader.spec.data_type.size()) as u64;
            self.send_work(sender, readers, talk, &name, work)?;
            talk.shares.add(container_of(&name), looked_at.saturating_mul(size).max(1));
            while talk.flight.len() >= FLIGHT_MAX || talk.bytes >= FLIGHT_BYTES_MAX {
                self.receive(sender, readers, talk)?;
            }
        }
        self.land(sender, readers, talk)
    }

    /// Until nothing is on its way.
    fn land(&self, sender: &Sender, readers: &mut LogReaders, talk: &mut Talk) -> std::result::Result<(), Stop> {
        let mut refused = Ok(());
        while !talk.flight.is_empty() {
            match self.receive(sender, readers, talk) {
                Err(Stop::Refused(array, error)) => refused = refused.and(Err(Stop::Refused(array, error))),
                received => received?,
            }
        }
        refused
    }

    /// The answer to the oldest that is on its way.
    fn receive(&self, sender: &Sender, readers: &mut LogReaders, talk: &mut Talk) -> std::result::Result<(), Stop> {
        let answer = talk.link.receive()?;
        let Some(flight) = talk.flight.pop_front() else { return Ok(()) };
        talk.bytes -= flight.bytes;
        match answer {
            Response::Done => {}
            Response::Failed(error) => {
                // What is on its way after it is no progress: this comes first.
                if let Some(reader) = readers.get_mut(&flight.array) {
                    reader.refuse();
                }
                return Err(Stop::Refused(flight.array, error));
            }
            other => return Err(std::io::Error::other(format!("the target answered {other:?}")).into()),
        }
        let Some(reader) = readers.get_mut(&flight.array) else { return Ok(()) };
        if reader.is_blocked() {
            return Ok(());
        }
        let is_region = matches!(flight.work, Some(Work::Unsent(_) | Work::Record { .. }));
        if let Some(work) = &flight.work {
            reader.arrived(&self.forwards, work);
        }
        let mut state = sender.state.lock().unwrap();
        state.lately.push_back((Instant::now(), flight.array.clone(), flight.bytes));
        while state.lately.front().is_some_and(|(at, ..)| at.elapsed() > LATELY) {
            state.lately.pop_front();
        }
        let sent = state.arrays.entry(flight.array).or_default();
        sent.bytes += flight.bytes;
        sent.regions += u64::from(is_region);
        Ok(())
    }

    fn send_work(
        &self,
        sender: &Sender,
        readers: &mut LogReaders,
        talk: &mut Talk,
        name: &str,
        work: Work,
    ) -> std::result::Result<(), Stop> {
        let is_made = readers.get(name).is_some_and(|reader| reader.is_made);
        if !is_made {
            self.land(sender, readers, talk)?;
            let Some(reader) = readers.get_mut(name) else { return Ok(()) };
            make_array(reader, talk)?;
        }
        let Some(reader) = readers.get_mut(name) else { return Ok(()) };
        let refused = |error: ObjectError| Stop::Refused(name.into(), error);
        let sending = Sending { spec: &reader.spec, condition: &reader.way.condition };
        match &work {
            Work::Shape(shape) => {
                talk.link.send(&Request::Resize { path: name.into(), shape: shape.clone() }, &[])?;
                talk.flight.push_back(Flight { array: name.into(), work: Some(work.clone()), bytes: 0 });
            }
            Work::Unsent(region) => {
                let Some(cut) = self.read_back(reader, region).map_err(refused)? else { return Ok(()) };
                sending.send(talk, name, region, &cut, &work).map_err(refused)??;
            }
            Work::Record { number, region } => {
                let tail = reader.tail.as_mut().expect("a record is one of a log");
                let lent = tail
                    .lend(&self.place, reader.way.id, *number, |cells| sending.send(talk, name, region, cells, &work));
                match lent.map_err(refused)? {
                    Some(sent) => sent.map_err(refused)??,
                    None => {
                        // The generation has ended, and what has become of it is told by the next; or a newer one covers it.
                        if tail.is_current() {
                            reader.pass(*number);
                        }
                        return Ok(());
                    }
                }
            }
        }
        reader.sent(&work);
        Ok(())
    }

    /// A region that has left the log, from wherever it is now. `None`: the array is not there any more.
    fn read_back(&self, reader: &LogReader, region: &Region) -> Result<Option<Vec<u8>>> {
        let Some(array) = self.own_handle(&reader.name)? else {
            self.forwards.unsent.forget(reader.way.id, &reader.name);
            return Ok(None);
        };
        let mut buffer = vec![0; region.cells() as usize * reader.spec.data_type.size()];
        match array.get(region, &mut buffer) {
            // Another array has got its name.
            Err(error) if error.kind == Kind::OutOfBounds => {
                self.forwards.unsent.forget(reader.way.id, &reader.name);
                Ok(None)
            }
            got => got.map(|()| Some(buffer)),
        }
    }
}

/// Takes down how far each array is.
fn note_waiting(sender: &Sender, readers: &LogReaders) {
    let mut state = sender.state.lock().unwrap();
    for reader in readers.values() {
        let log = reader.tail.as_ref().map(|tail| tail.log());
        let (mark, tail) = log.map_or((0, 0), |log| (log.forwarded(reader.way.id).unwrap_or(0), log.tail()));
        state.arrays.entry(reader.name.clone()).or_default().look(mark, tail);
    }
}

/// Nothing is left to be sent, unless some array is refused.
fn rest(sender: &Sender, readers: &LogReaders) {
    let mut state = sender.state.lock().unwrap();
    if !readers.values().any(LogReader::is_refused) {
        (state.phase, state.reason) = (Phase::Idle, String::new());
    }
}
