//! The region log of one staged array: a header, then one record of 256 bytes for each put.
//!
//!   claim: tail += 1 ─▶ fill the record ─▶ FREE → COMMITTED
//!
//! A claimer that is killed leaves a record `FREE` for ever: nothing was acknowledged, and nothing is read. The agent turns
//! such records `ABORTED` when it freezes the log; a claimer that was only slow then fails to publish, and puts again.

use super::mapped::MappedFile;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use terrace_core::objects::{Kind, ObjectError, RANK_MAX, Region, Result};

const MAGIC: u64 = u64::from_le_bytes(*b"terlog04");
/// Set in the tail: no more claims in this generation.
pub const FROZEN: u64 = 1 << 63;
/// Records that a log can have: 256 MiB of address space, sparse.
pub const RECORDS_MAX: u64 = 1 << 20;
/// Records that a new log has room for; it grows by doubling.
const RECORDS_FIRST: u64 = 48;
const HEADER_BYTES: u64 = 4096;
const PATH_MAX: usize = 3072;

pub const LIVE: u64 = 0;
/// A new generation is in its place: open the log again.
pub const SUPERSEDED: u64 = 1;
/// The array was removed.
pub const REMOVED: u64 = 2;

#[repr(C)]
pub struct Header {
    magic: AtomicU64,
    pub tail: AtomicU64,
    /// Records that have room in the file.
    pub capacity: AtomicU64,
    pub life: AtomicU64,
    /// All records before this one are in the durable form.
    pub flushed: AtomicU64,
    /// The durable form may have cells: what no extent covers is to be looked for there.
    pub has_base: AtomicU64,
    /// Numbers given to segments so far.
    pub next_segment: AtomicU64,
    /// Readers that could not get a region for all the puts into it: space of dead extents is left alone while there are any.
    pub starved: AtomicU64,
    pub generation: AtomicU64,
    /// Inode of the array's directory: a copy of that directory is another array.
    pub directory_ino: AtomicU64,
    pub rank: AtomicU64,
    /// The shape without the extents of this log.
    pub shape: [AtomicU64; RANK_MAX],
    /// Odd while the path is being written.
    path_turn: AtomicU32,
    path_len: AtomicU32,
    path: [AtomicU32; PATH_MAX / 4],
    /// How far regions were sent on to other agents.
    forwards: [ForwardSlot; FORWARDS_MAX],
    /// Records below this one are not there any more: they have been sent on, and are to be kept nowhere.
    passed: AtomicU64,
}

/// Agents that one log can be forwarded to.
pub const FORWARDS_MAX: usize = terrace_core::settings::TARGETS_MAX;

/// All records before `mark` have arrived at the target, or need not.
#[repr(C)]
struct ForwardSlot {
    /// Which target, and what of the array it gets; 0: the slot is free.
    lane: AtomicU64,
    mark: AtomicU64,
    /// One more than the record whose cells the lane is reading; 0: none.
    lent: AtomicU64,
}

const _: () = assert!(size_of::<Header>() as u64 <= HEADER_BYTES);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub enum State {
    Free = 0,
    Committed = 1,
    /// A newer extent of the same owner covers it; its bytes may change.
    Dead = 2,
    Aborted = 3,
}

/// What a record is about.
pub const DATA: u32 = 1;
/// No cells: the shape grew to `count`.
pub const GROWTH: u32 = 2;

#[repr(C)]
pub struct Record {
    state: AtomicU64,
    checksum: AtomicU64,
    /// Whether `low` and `high` are known; said once, by whoever looks first (no part of the checksum).
    range: AtomicU64,
    /// Least and greatest value, as bits of a 64-bit float.
    low: AtomicU64,
    high: AtomicU64,
    body: std::cell::UnsafeCell<Body>,
}

const UNKNOWN: u64 = 0;
const BEING_SAID: u64 = 1;
const KNOWN: u64 = 2;
/// The cells have no order, or not all of them.
const NONE: u64 = 3;

/// What is known of the values of an extent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ValueRange {
    Unknown,
    /// Least and greatest.
    Known(f64, f64),
    /// There is no such thing: strings, complex numbers, or a NaN among the cells.
    None,
}

/// What a put says of itself. `step` is for groups of puts that are to be seen together; 0: none.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Body {
    pub kind: u32,
    /// Number of the segment (24 bits) and of its device.
    pub segment: u32,
    pub position: u64,
    pub bytes: u64,
    pub step: u64,
    pub rank: u64,
    offset: [u64; RANK_MAX],
    count: [u64; RANK_MAX],
    stride: [u32; RANK_MAX],
}

const _: () = assert!(size_of::<Record>() == 240);
/// Largest stride of a put.
pub const STRIDE_MAX: u64 = u32::MAX as u64;
const RECORD_BYTES: u64 = 256;

impl Body {
    pub fn data(segment: u32, position: u64, bytes: u64, region: &Region, step: u64) -> Body {
        Body::new(DATA, segment, position, bytes, region, step)
    }
    pub fn growth(region: &Region) -> Body {
        Body::new(GROWTH, 0, 0, 0, region, 0)
    }
    fn new(kind: u32, segment: u32, position: u64, bytes: u64, region: &Region, step: u64) -> Body {
        let mut body = Body {
            kind,
            segment,
            position,
            bytes,
            step,
            rank: region.rank() as u64,
            offset: [0; RANK_MAX],
            count: [0; RANK_MAX],
            stride: [1; RANK_MAX],
        };
        for d in 0..region.rank() {
            (body.offset[d], body.count[d], body.stride[d]) =
                (region.offset()[d], region.count()[d], region.stride()[d] as u32);
        }
        body
    }

    pub fn region(&self) -> Option<Region> {
        let rank = self.rank as usize;
        let stride = self.stride.map(u64::from);
        Region::strided(self.offset.get(..rank)?, &self.count[..rank], &stride[..rank]).ok()
    }

    fn checksum(&self) -> u64 {
        let mut hash = 0x9e37_79b9_7f4a_7c15u64;
        let scalars = [self.position, self.bytes, self.step, self.rank];
        let words = scalars.into_iter().chain(self.offset).chain(self.count).chain(self.stride.map(u64::from));
        for word in words.chain([(self.kind as u64) << 32 | self.segment as u64]) {
            hash = (hash ^ word).wrapping_mul(0xff51_afd7_ed55_8ccd).rotate_left(29);
        }
        hash
    }
}

/// A log, mapped.
pub struct Log {
    file: MappedFile,
}

pub enum Claimed {
    Record(u64),
    /// The generation ends or has ended.
    Frozen,
    /// All records are used, and it is not to grow: a new generation leaves out what is not needed.
    Full,
}

impl Log {
    /// A new log; nobody sees it before it is linked or renamed into place.
    pub fn create(path: &Path, rank: usize, shape: &[u64], directory_ino: u64, records: u64) -> Result<Log> {
        let records = records.clamp(RECORDS_FIRST, RECORDS_MAX);
        let file =
            MappedFile::create(path, HEADER_BYTES + RECORDS_MAX * RECORD_BYTES, HEADER_BYTES + records * RECORD_BYTES)?;
        let log = Log { file };
        let header = log.header();
        header.capacity.store(records, Relaxed);
        header.rank.store(rank as u64, Relaxed);
        header.directory_ino.store(directory_ino, Relaxed);
        header.shape.iter().zip(shape).for_each(|(slot, &extent)| slot.store(extent, Relaxed));
        header.magic.store(MAGIC, Release);
        Ok(log)
    }

    pub fn open(path: &Path) -> Result<Log> {
        let log = Log { file: MappedFile::open(path)? };
        let damaged = |reason: &str| {
            Err(ObjectError::new(Kind::Damaged, format!("the log {} can't be used: {reason}", path.display())))
        };
        if (log.file.len() as u64) < HEADER_BYTES + RECORDS_MAX * RECORD_BYTES {
            return damaged("it is too short");
        }
        let rank = log.header().rank.load(Relaxed);
        if log.header().magic.load(Acquire) != MAGIC || rank > RANK_MAX as u64 {
            return damaged("it is not one of this version");
        }
        Ok(log)
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }
    pub fn ino(&self) -> u64 {
        self.file.ino()
    }

    pub fn header(&self) -> &Header {
        // SAFETY: the file is at least this long and page-aligned; all fields are atomics.
        unsafe { &*(self.file.base() as *const Header) }
    }

    pub fn rank(&self) -> usize {
        self.header().rank.load(Relaxed) as usize
    }

    pub fn shape(&self) -> Vec<u64> {
        self.header().shape[..self.rank()].iter().map(|extent| extent.load(Acquire)).collect()
    }

    /// Records claimed so far.
    pub fn tail(&self) -> u64 {
        (self.header().tail.load(Acquire) & !FROZEN).min(self.header().capacity.load(Acquire))
    }

    /// Records that have room.
    pub fn capacity(&self) -> u64 {
        self.header().capacity.load(Acquire)
    }

    pub fn is_frozen(&self) -> bool {
        self.header().tail.load(SeqCst) & FROZEN != 0
    }

    /// Claims and state can be trusted without a look at the file system.
    pub fn is_live(&self) -> bool {
        !self.is_frozen() && self.header().life.load(Acquire) == LIVE
    }

    fn record(&self, number: u64) -> &Record {
        assert!(number < RECORDS_MAX, "records are counted up to the capacity");
        // SAFETY: inside the mapping, aligned; a record's body is written by its claimer alone, before it is published.
        unsafe { &*(self.file.base().add((HEADER_BYTES + number * RECORD_BYTES) as usize) as *const Record) }
    }

    pub fn state(&self, number: u64) -> State {
        match self.record(number).state.load(SeqCst) {
            1 if number < self.passed() => State::Dead,
            1 => State::Committed,
            2 => State::Dead,
            3 => State::Aborted,
            _ => State::Free,
        }
    }

    /// Takes the next record. `reserve` finds room in the tier for the log's own growth; false: it is not to grow.
    pub fn claim(&self, reserve: impl Fn(u64) -> bool, give_back: impl Fn(u64)) -> Result<Claimed> {
        let header = self.header();
        loop {
            let tail = header.tail.load(SeqCst);
            if tail & FROZEN != 0 {
                return Ok(Claimed::Frozen);
            }
            let capacity = header.capacity.load(Acquire);
            if tail >= capacity {
                if capacity >= RECORDS_MAX {
                    return Ok(Claimed::Full);
                }
                let wanted = (capacity * 2).min(RECORDS_MAX);
                let bytes = (wanted - capacity) * RECORD_BYTES;
                if !reserve(bytes) {
                    return Ok(Claimed::Full);
                }
                let allocated = self.file.allocate(HEADER_BYTES + capacity * RECORD_BYTES, bytes);
                // Whoever is the first has the room counted; the others give back what they took for the same records.
                if allocated.is_err() || header.capacity.fetch_max(wanted, AcqRel) != capacity {
                    give_back(bytes);
                }
                allocated?;
                continue;
            }
            if header.tail.compare_exchange_weak(tail, tail + 1, SeqCst, Relaxed).is_ok() {
                return Ok(Claimed::Record(tail));
            }
        }
    }

    /// Publishes a claimed record. False: the agent has aborted it.
    pub fn publish(&self, number: u64, body: &Body) -> bool {
        let record = self.record(number);
        // SAFETY: the record is the claimer's until its state changes.
        unsafe { *record.body.get() = *body };
        record.checksum.store(body.checksum(), Relaxed);
        record.state.compare_exchange(State::Free as u64, State::Committed as u64, SeqCst, SeqCst).is_ok()
    }

    /// Agent only, in a log that nobody else sees yet.
    pub fn put_at(&self, number: u64, body: &Body) {
        let published = self.publish(number, body);
        assert!(published, "a new log's records are free");
    }

    /// Agent only: a claimed record that is not published now never will be.
    pub fn abort(&self, number: u64) {
        let _ = self.record(number).state.compare_exchange(State::Free as u64, State::Aborted as u64, SeqCst, SeqCst);
    }

    /// The owner's own older extent is not needed any more. True if its bytes may be used again: the agent has not begun
    /// to end this generation.
    pub fn bury(&self, number: u64) -> bool {
        let buried = self
            .record(number)
            .state
            .compare_exchange(State::Committed as u64, State::Dead as u64, SeqCst, SeqCst)
            .is_ok();
        buried && !self.is_frozen()
    }

    /// A published record, if it is whole.
    pub fn body(&self, number: u64) -> Option<Body> {
        let record = self.record(number);
        if number < self.passed() {
            return None;
        }
        self.published(record)
    }

    fn published(&self, record: &Record) -> Option<Body> {
        if record.state.load(Acquire) != State::Committed as u64 {
            return None;
        }
        // SAFETY: published records do not change.
        let body = unsafe { *record.body.get() };
        (record.checksum.load(Relaxed) == body.checksum()).then_some(body)
    }

    /// Least and greatest value of a published extent.
    pub fn range(&self, number: u64) -> ValueRange {
        let record = self.record(number);
        let value = |bits: &AtomicU64| f64::from_bits(bits.load(Relaxed));
        match record.range.load(Acquire) {
            KNOWN => ValueRange::Known(value(&record.low), value(&record.high)),
            NONE => ValueRange::None,
            _ => ValueRange::Unknown,
        }
    }

    /// Says what the range of a published extent is; only what is said first counts. Whoever says it has looked at the
    /// record's state after it has looked at the cells.
    pub fn say_range(&self, number: u64, range: Option<(f64, f64)>) {
        let record = self.record(number);
        if record.range.compare_exchange(UNKNOWN, BEING_SAID, AcqRel, Relaxed).is_err() {
            return;
        }
        let (low, high) = range.unwrap_or_default();
        record.low.store(low.to_bits(), Relaxed);
        record.high.store(high.to_bits(), Relaxed);
        record.range.store(if range.is_some() { KNOWN } else { NONE }, Release);
    }

    /// Where the array is, below the root; written by whoever finds it elsewhere.
    pub fn set_array_path(&self, path: &str) {
        let header = self.header();
        let bytes = path.as_bytes();
        let turn = header.path_turn.load(Acquire);
        if bytes.len() > PATH_MAX || !turn.is_multiple_of(2) || self.array_path().as_deref() == Some(path) {
            return;
        }
        if header.path_turn.compare_exchange(turn, turn + 1, AcqRel, Relaxed).is_err() {
            return; // another one does the same
        }
        for (word, chunk) in header.path.iter().zip(bytes.chunks(4)) {
            let mut value = [0; 4];
            value[..chunk.len()].copy_from_slice(chunk);
            word.store(u32::from_le_bytes(value), Relaxed);
        }
        header.path_len.store(bytes.len() as u32, Relaxed);
        header.path_turn.store(turn + 2, Release);
    }

    pub fn array_path(&self) -> Option<String> {
        let header = self.header();
        for _ in 0..100 {
            let turn = header.path_turn.load(Acquire);
            let len = (header.path_len.load(Relaxed) as usize).min(PATH_MAX);
            let mut bytes: Vec<u8> =
                header.path[..len.div_ceil(4)].iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
            bytes.truncate(len);
            std::sync::atomic::fence(Acquire);
            if turn.is_multiple_of(2) && header.path_turn.load(Relaxed) == turn {
                return (len > 0).then(|| String::from_utf8_lossy(&bytes).into_owned());
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Agent only: how far the log was forwarded by this lane. `None`: it has no slot.
    pub fn forwarded(&self, lane: u64) -> Option<u64> {
        self.slot(lane).map(|slot| slot.mark.load(Acquire))
    }

    fn slot(&self, lane: u64) -> Option<&ForwardSlot> {
        self.header().forwards.iter().find(|slot| slot.lane.load(Acquire) == lane)
    }

    /// Agent only: from now on nothing is dropped that this lane has not sent. False: there are too many lanes.
    pub fn begin_forward(&self, lane: u64) -> bool {
        if self.slot(lane).is_some() {
            return true;
        }
        let free =
            self.header().forwards.iter().find(|slot| slot.lane.compare_exchange(0, lane, AcqRel, Relaxed).is_ok());
        free.is_some()
    }

    /// Agent only. Never goes back.
    pub fn set_forwarded(&self, lane: u64, mark: u64) {
        if let Some(slot) = self.slot(lane) {
            slot.mark.fetch_max(mark, AcqRel);
        }
    }

    /// Agent only: lanes that there are no more.
    pub fn keep_forwards(&self, keeps: impl Fn(u64) -> bool) {
        for slot in self.header().forwards.iter().filter(|slot| !keeps(slot.lane.load(Acquire))) {
            slot.mark.store(0, Release);
            slot.lent.store(0, Release);
            slot.lane.store(0, Release);
        }
    }

    /// Records below this one have been sent on and are kept nowhere: nobody sees them, and their owners use their room again.
    pub fn passed(&self) -> u64 {
        self.header().passed.load(SeqCst)
    }

    /// Agent only: drops what all these lanes have sent. Whoever opens the log later knows by the shape how far it reached.
    pub fn pass(&self, lanes: impl Iterator<Item = u64>) {
        let Some(mark) = lanes.map(|lane| self.forwarded(lane).unwrap_or(0)).min() else { return };
        let passed = self.passed();
        for record in passed..mark {
            let Some(region) = self.published(self.record(record)).and_then(|body| body.region()) else { continue };
            self.header().shape.iter().zip(region.end()).for_each(|(extent, end)| {
                extent.fetch_max(end, AcqRel);
            });
        }
        if passed < mark {
            self.header().passed.fetch_max(mark, SeqCst);
        }
    }

    /// Agent only: this lane reads the cells of a record, or of none. Their room is not used again meanwhile, if the record was there
    /// when it was looked at afterwards.
    pub fn lend(&self, lane: u64, record: Option<u64>) {
        if let Some(slot) = self.slot(lane) {
            slot.lent.store(record.map_or(0, |record| record + 1), SeqCst);
        }
    }

    /// Some lane reads the cells of this record.
    pub fn is_lent(&self, record: u64) -> bool {
        self.header().forwards.iter().any(|slot| slot.lent.load(SeqCst) == record + 1)
    }

    /// All lanes, and how far they are.
    pub fn forwards(&self) -> Vec<(u64, u64)> {
        let slots = self.header().forwards.iter().map(|slot| (slot.lane.load(Acquire), slot.mark.load(Acquire)));
        slots.filter(|(lane, _)| *lane != 0).collect()
    }

    /// What the log has taken of its tier's room since it had its first records.
    pub fn growth(&self) -> i64 {
        ((self.header().capacity.load(Relaxed) - RECORDS_FIRST) * RECORD_BYTES) as i64
    }

    /// Agent only, at its start: an agent was killed while it held the path or the tail.
    pub fn thaw(&self) {
        let header = self.header();
        header.tail.fetch_and(!FROZEN, SeqCst);
        if !header.path_turn.load(Acquire).is_multiple_of(2) {
            header.path_len.store(0, Relaxed);
            header.path_turn.fetch_add(1, AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_lanes_have_sent_is_passed_and_the_log_says_how_far_it_reached() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let log = Log::create(&path, 2, &[0, 4], 1, 0).unwrap();
        assert!(log.begin_forward(7) && log.begin_forward(9));
        for step in 0..3 {
            let Ok(Claimed::Record(number)) = log.claim(|_| true, |_| {}) else { panic!("a new log has room") };
            let region = Region::block(&[step, 0], &[1, 4]).unwrap();
            assert!(log.publish(number, &Body::data(0, step * 64, 4, &region, 0)));
        }
        let pass = || {
            log.pass([7, 9].into_iter());
            (log.passed(), log.shape())
        };
        log.set_forwarded(7, 2);
        assert_eq!(pass(), (0, vec![0, 4]));
        log.set_forwarded(9, 3);
        assert_eq!(pass(), (2, vec![2, 4]));
        let states = [0, 1, 2].map(|record| (log.state(record), log.body(record).is_some()));
        assert_eq!(states, [(State::Dead, false), (State::Dead, false), (State::Committed, true)]);
        // A lane that has no place in the log has sent nothing.
        log.set_forwarded(7, 3);
        log.pass([7, 11].into_iter());
        assert_eq!(log.passed(), 2);
        assert_eq!(pass(), (3, vec![3, 4]));
    }

    #[test]
    fn a_record_is_lent_as_long_as_some_lane_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let log = Log::create(&place.path().join("log"), 1, &[0], 1, 0).unwrap();
        assert!(log.begin_forward(7) && log.begin_forward(9));
        log.lend(7, Some(0));
        log.lend(9, Some(5));
        assert_eq!([0, 1, 5].map(|record| log.is_lent(record)), [true, false, true]);
        log.lend(7, None);
        assert_eq!([0, 1, 5].map(|record| log.is_lent(record)), [false, false, true]);
        // A lane that was killed while it read begins anew somewhere else.
        log.lend(9, Some(1));
        assert_eq!([0, 1, 5].map(|record| log.is_lent(record)), [false, true, false]);
    }
}
