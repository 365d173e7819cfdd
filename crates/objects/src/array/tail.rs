//! Reads a log in the order of its records, as it grows: for the agent, which sends regions on.
//!
//! Invariant: cells that are lent are those that were put. While they are lent, their owner leaves their room alone; an extent that was
//! buried before is not lent, for a newer one covers it.

use super::log::{DATA, GROWTH, LIVE, Log, State};
use super::segments::{Mapped, Spot};
use super::stage::Stage;
use crate::place::Place;
use std::sync::atomic::Ordering::*;
use terrace_core::objects::{Kind, ObjectError, Region, Result};

pub struct Tail {
    pub stage: Stage,
    log: Log,
    mapped: Mapped,
}

/// What a record is about, if it is settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Claimed by somebody who has not published it yet.
    Open,
    /// Nothing to be seen: aborted, or a newer one covers it.
    Nothing,
    /// The array was made larger.
    Growth(Region),
    /// Bytes of packed cells.
    Data(Region, u64),
}

impl Tail {
    pub fn open(place: &Place, stage: &Stage) -> Result<Tail> {
        let log = Log::open(&stage.log(place))?;
        Ok(Tail { stage: stage.clone(), log, mapped: Mapped::default() })
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    /// No other generation has taken its place, and the array is there.
    pub fn is_current(&self) -> bool {
        self.log.header().life.load(Acquire) == LIVE
    }

    pub fn look(&self, record: u64) -> Next {
        match self.log.state(record) {
            State::Free => Next::Open,
            State::Dead | State::Aborted => Next::Nothing,
            State::Committed => match self.log.body(record) {
                Some(body) => match (body.kind, body.region()) {
                    (DATA, Some(region)) => Next::Data(region, body.bytes),
                    (GROWTH, Some(region)) => Next::Growth(region),
                    _ => Next::Nothing,
                },
                None => Next::Nothing,
            },
        }
    }

    /// Gives a record up that was claimed and is not published: whoever claimed it puts again.
    pub fn give_up(&self, record: u64) {
        self.log.abort(record);
    }

    /// The cells of a record, for as long as `take` lasts. `None`: they are not there any more, or a newer extent covers them.
    pub fn lend<T>(
        &mut self,
        place: &Place,
        lane: u64,
        record: u64,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        let Some(body) = self.log.body(record).filter(|body| body.kind == DATA) else { return Ok(None) };
        let spot = Spot { segment: body.segment, position: body.position, bytes: body.bytes };
        let file = match self.mapped.get(place, &self.stage, spot.segment) {
            Ok(file) => file,
            // The generation has ended: whoever ends one says what becomes of what was not sent.
            Err(error) if error.kind == Kind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if (spot.position + spot.bytes) as usize > file.len() {
            let stage = &self.stage.name;
            return Err(ObjectError::new(Kind::Damaged, format!("an extent of {stage} lies beyond its segment's end")));
        }
        let _lent = Lent::new(&self.log, lane, record);
        if self.log.state(record) != State::Committed {
            return Ok(None);
        }
        // SAFETY: the spot lies in the segment; its bytes don't change, for it was not buried when it was said to be lent.
        Ok(Some(take(unsafe {
            std::slice::from_raw_parts(file.base().add(spot.position as usize), spot.bytes as usize)
        })))
    }
}

/// The owner leaves the room of this one extent alone. Of all others it is used again: a lane that is busy reads all the time, and room
/// that is new each time is several times as slow.
struct Lent<'a>(&'a Log, u64);

impl Lent<'_> {
    fn new(log: &Log, lane: u64, record: u64) -> Lent<'_> {
        log.lend(lane, Some(record));
        Lent(log, lane)
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.lend(self.1, None);
    }
}

/// The regions of an array that are staged, and what lies below them.
pub struct StagedPart {
    pub shape: Vec<u64>,
    /// The shape below the staged regions, where the durable form may have cells.
    pub base: Option<Vec<u64>>,
    pub regions: Vec<Region>,
}
