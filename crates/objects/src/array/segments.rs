//! Segments: files of packed cells in the tiers. A client writes only into segments that it made itself, so room inside
//! them is found without asking anybody; everybody maps and reads all of them.
//!
//! Segments are kept while the array is open: memory that was touched before is ten times as fast.

use super::mapped::MappedFile;
use super::stage::{ROOT_DEVICE, Stage, give_room};
use crate::calls;
use crate::place::Place;
use crate::placed::best_device;
use foldhash::{HashMap, HashSet};
use std::collections::VecDeque;
use std::sync::Arc;
use terrace_core::objects::{Kind, ObjectError, Result};

/// A first segment of an array that is put in small pieces.
const SEGMENT_FIRST: u64 = 256 << 10;
const SEGMENT_MAX: u64 = 256 << 20;
/// A new segment is so-maniest part of those that there are.
const SEGMENT_PART: u64 = 8;
const PAGE: u64 = 4096;
/// An extent from here on has pages of its own.
const LARGE: u64 = 64 << 10;

/// So much free room is looked at: each lane reads one extent at a time.
const LOOKED_AT_MAX: usize = 16;

/// Where an extent's cells are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spot {
    pub segment: u32,
    pub position: u64,
    pub bytes: u64,
}

/// Segments that are mapped, by number.
#[derive(Default)]
pub struct Mapped {
    files: HashMap<u32, Arc<MappedFile>>,
}

impl Mapped {
    /// `NotFound`: its generation has ended.
    pub fn get(&mut self, place: &Place, stage: &Stage, segment: u32) -> Result<Arc<MappedFile>> {
        if let Some(file) = self.files.get(&segment) {
            return Ok(file.clone());
        }
        let file = Arc::new(MappedFile::open(&stage.segment(place, segment))?);
        self.files.insert(segment, file.clone());
        Ok(file)
    }
}

/// Room in this client's own segments.
#[derive(Default)]
pub struct Allocator {
    own: Vec<Own>,
    /// Room of buried extents, oldest first, by size; with the record that led to it, if one did.
    free: HashMap<u64, VecDeque<(Spot, Option<u64>)>>,
    /// Large spots that were written through the mapping: segment and position.
    mapped_spots: HashSet<(u32, u64)>,
}

/// How the cells get into a spot fastest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Memory that this process has touched.
    Map,
    /// Memory of the tier that this process has not looked at yet: its pages are mapped all at once, not one by one.
    MapAnew,
    /// Nobody has touched it: the kernel puts the cells into new pages, and need not clear these first.
    Write,
}

struct Own {
    number: u32,
    len: u64,
    used: u64,
}

/// So much room does an extent take: whole cache lines, whole pages where it is large.
fn rounded(bytes: u64) -> u64 {
    let unit = if bytes >= LARGE { PAGE } else { 64 };
    bytes.next_multiple_of(unit).max(64)
}

impl Allocator {
    pub fn owns(&self, segment: u32) -> bool {
        self.own.iter().any(|own| own.number == segment)
    }

    /// The generation has ended: what lies in the segments belongs to the agent now.
    pub fn forget(&mut self) {
        self.own.clear();
        self.free.clear();
        self.mapped_spots.clear();
    }

    /// Room in a segment of ours; `None`: a new segment is needed. `may_reuse`: nobody reads what this record led to.
    pub fn take(&mut self, bytes: u64, may_reuse: impl Fn(Option<u64>) -> bool) -> Option<(Spot, Way)> {
        let room = rounded(bytes);
        let is_large = room >= LARGE;
        let free = self.free.get_mut(&room);
        let free = free.and_then(|spots| {
            let place = spots.iter().take(LOOKED_AT_MAX).position(|(_, record)| may_reuse(*record))?;
            spots.remove(place)
        });
        if let Some((spot, _)) = free {
            let is_new = is_large && self.mapped_spots.insert((spot.segment, spot.position));
            return Some((Spot { bytes, ..spot }, if is_new { Way::MapAnew } else { Way::Map }));
        }
        let own = self.own.iter_mut().rev().find(|own| own.len - own.used >= room)?;
        let position = own.used;
        own.used += room;
        Some((Spot { segment: own.number, position, bytes }, if is_large { Way::Write } else { Way::Map }))
    }

    /// The bytes of an extent that nobody is to read any more; `record`: what led to it.
    pub fn give(&mut self, spot: Spot, record: Option<u64>) {
        self.free.entry(rounded(spot.bytes)).or_default().push_back((spot, record));
    }

    /// Makes a new segment with room for `bytes`, in the fastest tier that has it. `None`: no tier has.
    pub fn grow(
        &mut self,
        place: &Place,
        stage: &Stage,
        number: impl Fn() -> u64,
        mapped: &mut Mapped,
        bytes: u64,
    ) -> Result<Option<()>> {
        let room = rounded(bytes).next_multiple_of(PAGE);
        // What is not used yet of the last one is the smaller part of all.
        let all: u64 = self.own.iter().map(|own| own.len).sum();
        // Whole extents of this size: nothing is left over where all are as large.
        let comfortable = (all / SEGMENT_PART).clamp(SEGMENT_FIRST, SEGMENT_MAX).next_multiple_of(room);
        let mut tried = 0u32;
        while let Some(device) = best_device(place, tried, room as i64) {
            tried |= 1 << device;
            let slot = &place.index().header.devices[device as usize % terrace_index::DEVICES];
            // A generous segment only where it does not fill the tier.
            let sizes = [comfortable, room].into_iter().filter(|&size| size == room || (size as i64) < slot.free() / 4);
            for size in sizes {
                if !slot.reserve(size as i64) {
                    continue;
                }
                match self.make(place, stage, device, &number, mapped, size) {
                    Ok(()) => return Ok(Some(())),
                    Err(error) => {
                        slot.unreserve(size as i64);
                        if error.kind != Kind::NoSpace {
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// The same in the root's own storage, the last tier.
    pub fn grow_in_root(
        &mut self,
        place: &Place,
        stage: &Stage,
        number: impl Fn() -> u64,
        mapped: &mut Mapped,
        bytes: u64,
    ) -> Result<()> {
        let room = rounded(bytes).next_multiple_of(PAGE);
        self.make(place, stage, ROOT_DEVICE, number, mapped, room)
    }

    fn make(
        &mut self,
        place: &Place,
        stage: &Stage,
        device: u32,
        number: impl Fn() -> u64,
        mapped: &mut Mapped,
        size: u64,
    ) -> Result<()> {
        stage.make_dir(place, device)?;
        let (segment, file) = loop {
            let number = number();
            if number >= 1 << 24 {
                return Err(ObjectError::new(Kind::NoSpace, "an array of 16 million segments takes no more: flush it"));
            }
            let segment = device << 24 | number as u32;
            match MappedFile::create(&stage.segment(place, segment), size, size) {
                Ok(file) => break (segment, file),
                // By a client that asked for a number of the generation before, just as that ended.
                Err(error) if error.kind == Kind::Exists => {}
                Err(error) => return Err(error),
            }
        };
        mapped.files.insert(segment, Arc::new(file));
        self.own.push(Own { number: segment, len: size, used: 0 });
        Ok(())
    }
}

/// Removes a segment that nothing lies in any more, and gives its room back.
pub fn remove_segment(place: &Place, stage: &Stage, segment: u32) -> u64 {
    let path = stage.segment(place, segment);
    let Ok(found) = std::fs::symlink_metadata(&path) else { return 0 };
    if calls::unlink(&path).is_err() {
        return 0;
    }
    give_room(place, segment >> 24, found.len() as i64);
    found.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_used_again_oldest_first_but_not_while_somebody_reads_it() {
        let mut allocator = Allocator::default();
        let spot = |position| Spot { segment: 3, position, bytes: 100 };
        (0..3).for_each(|number| allocator.give(spot(number * 128), Some(number)));
        let taken = |allocator: &mut Allocator, lent: u64| {
            allocator.take(100, |record| record != Some(lent)).map(|(spot, _)| spot.position)
        };
        assert_eq!(taken(&mut allocator, 0), Some(128));
        assert_eq!(taken(&mut allocator, 0), Some(256));
        assert_eq!(taken(&mut allocator, 0), None);
        assert_eq!(taken(&mut allocator, 1), Some(0));
    }
}
