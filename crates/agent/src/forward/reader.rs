//! One array on one way: which region is the next to be sent, and what has arrived.

use super::{Forwards, Way, step_of};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terrace_client::ArraySpec;
use terrace_core::objects::{Region, Result};
use terrace_objects::Place;
use terrace_objects::array::{self, Next, Stage, Tail, read_metadata};

/// A record is claimed and published within microseconds. One that is still open after so long is its client's who was killed or
/// stopped: it is given up, so that what comes after it is sent in order. A client that was only stopped puts again.
const OPEN_PATIENCE: Duration = Duration::from_secs(1);
/// How long an array that the target refuses is left alone.
const REFUSED_REST: Duration = Duration::from_secs(1);

pub struct LogReader {
    pub name: String,
    pub directory: PathBuf,
    /// `None`: nothing is staged; only what has left the log is to be sent.
    pub tail: Option<Tail>,
    pub spec: ArraySpec,
    pub way: Way,
    /// All ways of the array, if nothing is to be kept of it here: what has gone all of them is dropped.
    passing: Vec<u64>,
    /// The dimension that steps are counted by.
    pub grows: Option<usize>,
    /// The next record to be sent; all before it have arrived or are in flight.
    cursor: u64,
    /// Unsent regions that are in flight.
    unsent_in_flight: usize,
    pub in_flight: usize,
    /// The target has the array.
    pub is_made: bool,
    /// It was made there just now, without any tags.
    pub is_new_there: bool,
    /// The connection went while it was asked to make the array.
    pub may_be_made: bool,
    refused: Option<Instant>,
    /// Answers to what was sent after a refused region are no progress, until it is sent again.
    is_blocked: bool,
    /// Which array this is, whatever it is called.
    pub identity: String,
    open_since: Option<Instant>,
    /// How far what was sent reaches, and growth without cells.
    reach: Vec<u64>,
    /// The shape that the target was told.
    told: Vec<u64>,
}

/// What is to be sent next.
#[derive(Clone, Debug)]
pub enum Work {
    Unsent(Region),
    Record { number: u64, region: Region },
    Shape(Vec<u64>),
}

impl LogReader {
    /// `None`: it is no array (any more).
    pub fn new(place: &Place, name: &str, way: &Way, passing: Vec<u64>) -> Result<Option<LogReader>> {
        let directory = place.root().join(name);
        let Some(metadata) = read_metadata(&directory)?.and_then(|metadata| metadata.array) else { return Ok(None) };
        let spec = metadata.spec;
        let rank = spec.rank();
        Ok(Some(LogReader {
            name: name.into(),
            tail: None,
            grows: spec.grows_along(),
            spec,
            way: way.clone(),
            passing,
            cursor: 0,
            unsent_in_flight: 0,
            in_flight: 0,
            is_made: false,
            is_new_there: false,
            may_be_made: false,
            refused: None,
            is_blocked: false,
            identity: identity_of(&directory),
            open_since: None,
            reach: vec![0; rank],
            told: vec![0; rank],
            directory,
        }))
    }

    /// The log of this moment. False: this way has no place in it.
    pub fn stage(&mut self, place: &Place, stage: &Stage) -> Result<bool> {
        let tail = Tail::open(place, stage)?;
        if !tail.log().begin_forward(self.way.id) {
            return Ok(false);
        }
        self.cursor = tail.log().forwarded(self.way.id).unwrap_or(0);
        self.tail = Some(tail);
        self.open_since = None;
        Ok(true)
    }

    /// Whose log has ended: nothing of it is to be looked at any more.
    pub fn has_ended(&self) -> bool {
        self.tail.as_ref().is_some_and(|tail| !tail.is_current())
    }

    /// What was in flight may not have arrived.
    pub fn rewind(&mut self) {
        (self.in_flight, self.unsent_in_flight, self.is_blocked) = (0, 0, false);
        if let Some(tail) = &self.tail {
            self.cursor = tail.log().forwarded(self.way.id).unwrap_or(0);
        }
    }

    pub fn refuse(&mut self) {
        self.refused = Some(Instant::now());
        self.is_blocked = true;
        self.is_made = false;
    }

    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    pub fn is_refused(&self) -> bool {
        self.refused.is_some_and(|since| since.elapsed() < REFUSED_REST)
    }

    /// What comes next, and its step; records that need not be sent are passed by.
    pub fn peek(&mut self, forwards: &Forwards) -> Option<(u64, Work)> {
        if self.is_refused() {
            return None;
        }
        if let Some(region) = forwards.unsent.get(self.way.id, &self.name, self.unsent_in_flight) {
            return Some((step_of(&region, self.grows).unwrap_or(0), Work::Unsent(region)));
        }
        let tail = self.tail.as_ref().filter(|tail| tail.is_current())?;
        while self.cursor < tail.log().tail() {
            match tail.look(self.cursor) {
                Next::Open => {
                    let since = *self.open_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < OPEN_PATIENCE {
                        return None;
                    }
                    tail.give_up(self.cursor);
                    self.open_since = None;
                    continue;
                }
                Next::Nothing => {}
                Next::Growth(region) => grow(&mut self.reach, region.count()),
                Next::Data(region, _) => {
                    let step = step_of(&region, self.grows);
                    if self.way.takes(&self.name, step) {
                        return Some((step.unwrap_or(0), Work::Record { number: self.cursor, region }));
                    }
                }
            }
            self.open_since = None;
            self.cursor += 1;
        }
        if self.in_flight > 0 {
            return None;
        }
        tail.log().set_forwarded(self.way.id, self.cursor);
        tail.log().pass(self.passing.iter().copied());
        // Everything has arrived: now the target may know how large the array is.
        let mut shape = tail.log().shape();
        grow(&mut shape, &self.reach);
        let has_grown =
            shape.iter().zip(&self.told).zip(&self.spec.unlimited).any(|((now, told), grows)| *grows && now > told);
        (has_grown && self.is_made && self.way.of == 1).then(|| (u64::MAX, Work::Shape(self.whole_shape(&shape))))
    }

    /// A shape with the fixed dimensions as they are.
    fn whole_shape(&self, shape: &[u64]) -> Vec<u64> {
        shape
            .iter()
            .zip(&self.spec.shape)
            .zip(&self.spec.unlimited)
            .map(|((now, fixed), grows)| if *grows { *now } else { *fixed })
            .collect()
    }

    /// It is on its way now.
    pub fn sent(&mut self, work: &Work) {
        self.in_flight += 1;
        match work {
            Work::Unsent(_) => self.unsent_in_flight += 1,
            Work::Record { number, region } => {
                self.cursor = number + 1;
                let end = region.end();
                grow(&mut self.reach, &end);
            }
            Work::Shape(_) => {}
        }
    }

    /// It was overwritten before it could be sent: what covers it comes later.
    pub fn pass(&mut self, number: u64) {
        self.cursor = number + 1;
    }

    pub fn arrived(&mut self, forwards: &Forwards, work: &Work) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.refused = None;
        match work {
            Work::Unsent(_) => {
                self.unsent_in_flight = self.unsent_in_flight.saturating_sub(1);
                forwards.unsent.arrived(self.way.id, &self.name);
            }
            Work::Record { number, region } => {
                if let Some(tail) = &self.tail {
                    tail.log().set_forwarded(self.way.id, number + 1);
                    tail.log().pass(self.passing.iter().copied());
                }
                grow(&mut self.told, &region.end());
            }
            Work::Shape(shape) => grow(&mut self.told, shape),
        }
    }

    /// Nothing of it is left to do.
    pub fn is_idle(&self, forwards: &Forwards) -> bool {
        let is_at_end =
            self.tail.as_ref().is_none_or(|tail| tail.log().forwarded(self.way.id).unwrap_or(0) >= tail.log().tail());
        is_at_end && self.in_flight == 0 && forwards.unsent.count(self.way.id, &self.name) == 0
    }

    pub fn is_the_same(&self) -> bool {
        self.identity == identity_of(&self.directory)
    }

    /// The stage that the array has now.
    pub fn current_stage(&self, place: &Place) -> Option<Stage> {
        array::stage_of(place, &self.directory)
    }
}

/// The directory's inode and when it was made: inodes are given again.
fn identity_of(directory: &Path) -> String {
    use std::os::unix::fs::MetadataExt;
    let Ok(found) = std::fs::metadata(directory) else { return String::new() };
    let born = found.created().ok().and_then(|born| born.duration_since(std::time::UNIX_EPOCH).ok());
    format!("{:x}-{:x}", found.ino(), born.map_or(0, |born| born.as_nanos()))
}

fn grow(shape: &mut [u64], end: &[u64]) {
    shape.iter_mut().zip(end).for_each(|(extent, end)| *extent = (*extent).max(*end));
}
