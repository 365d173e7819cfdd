//! An open array: put and get of regions.
//!
//! ```text
//!  put: room in a segment ─▶ copy ─▶ claim, publish ─▶ bury what it covers
//!  get: extents, newest first, until one covers ─▶ base or fill below ─▶ copy ─▶ are all of them still what they were?
//! ```
//!
//! The copying is done without the handle's lock, so several threads put and get at once.

mod ranges;
mod view;

use super::base::{Base, ChunkSource};
use super::copying::{copy, copy_overlap, fill};
use super::extents::{Extent, Extents};
use super::locks::{LockMode, LockTable, RegionLock};
use super::log::{Body, Claimed, LIVE, Log, STRIDE_MAX, State};
use super::mapped::MappedFile;
use super::metadata::{ArrayMetadata, read_metadata};
use super::segments::{Allocator, Mapped, Spot, Way};
use super::stage::{ROOT_DEVICE, Stage, ensure, give_room, open_log, reserve_room, stage_of};
use super::tail::StagedPart;
use crate::calls;
use crate::place::{Place, fork_generation, sleep_us};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use terrace_core::objects::{ArraySpec, Kind, ObjectError, Overlap, Region, Result};

pub use ranges::{Zones, whole};
pub use view::{ExtentId, Layer, OftenRead, View};

/// What only the agent can do.
pub trait Services: ChunkSource {
    /// The log is full: begin a new generation.
    fn compact(&self, directory: &Path) -> Result<()>;
    /// No tier has room.
    fn make_room(&self, bytes: u64) -> Result<()>;
}

pub struct ArrayHandle {
    place: Arc<Place>,
    directory: PathBuf,
    writable: bool,
    spec: ArraySpec,
    base: Base,
    services: Arc<dyn Services>,
    inner: Mutex<Inner>,
}

struct Inner {
    forks: u32,
    staged: Option<Staged>,
    /// The durable form's, or the log's.
    shape: Vec<u64>,
    has_base: bool,
    locks: Option<Arc<LockTable>>,
}

struct Staged {
    stage: Stage,
    log: Arc<Log>,
    extents: Extents,
    mapped: Mapped,
    allocator: Allocator,
}

impl Staged {
    fn extent_id(&self, record: u64) -> ExtentId {
        let generation = self.log.header().generation.load(Acquire);
        ExtentId { stage: self.stage.name.as_str().into(), generation, record }
    }
}

/// An agent that is killed while it ends a generation is restarted within seconds.
const FROZEN_PATIENCE: Duration = Duration::from_secs(60);
/// A log of so many records is looked at before it grows: what is buried in it may be most of it.
const COMPACTED_FROM: u64 = 6000;
/// A reader that lost so many races asks owners to leave the space of buried extents alone for a while.
const RACES_MAX: usize = 8;

impl ArrayHandle {
    pub fn open(
        place: Arc<Place>,
        directory: &Path,
        array: &ArrayMetadata,
        writable: bool,
        services: Arc<dyn Services>,
    ) -> Result<ArrayHandle> {
        let source: Arc<dyn ChunkSource> = services.clone();
        let handle = ArrayHandle {
            base: Base::new(directory, array, Some(source)),
            place,
            directory: directory.into(),
            writable,
            spec: array.spec.clone(),
            services,
            inner: Mutex::new(Inner {
                forks: fork_generation(),
                staged: None,
                shape: array.spec.shape.clone(),
                has_base: true,
                locks: None,
            }),
        };
        handle.current(&mut handle.locked(), false)?;
        Ok(handle)
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// With the shape that it had when it was opened.
    pub fn spec(&self) -> &ArraySpec {
        &self.spec
    }

    /// As it is now.
    pub fn shape(&self) -> Result<Vec<u64>> {
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        Ok(inner.shape_now(&self.spec))
    }

    /// What is staged is what the array's name leads to. A log may be live for a while after its array was removed, or made again, by a program
    /// of another node.
    pub fn is_in_force(&self) -> bool {
        let inner = self.locked();
        inner.staged.as_ref().is_some_and(|staged| self.is_in_place(&staged.stage, &staged.log))
    }

    /// Devices that have cells of it, that of the newest extent first; and whether they have all of its cells.
    pub fn devices(&self) -> Result<(Vec<u32>, bool)> {
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        let all = terrace_core::objects::cells(&inner.shape_now(&self.spec)).unwrap_or(u64::MAX);
        let (mut devices, mut staged_cells) = (vec![], 0u64);
        let extents = inner.staged.iter().flat_map(|staged| staged.extents.iter()).collect::<Vec<_>>();
        for extent in extents.into_iter().rev() {
            let device = extent.spot.segment >> 24;
            if !devices.contains(&device) {
                devices.push(device);
            }
            staged_cells = staged_cells.saturating_add(extent.region.cells());
        }
        Ok((devices, staged_cells >= all))
    }

    /// Something is newer than the durable form.
    pub fn is_dirty(&self) -> Result<bool> {
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        Ok(inner.staged.as_ref().is_some_and(|staged| super::durable::is_dirty(&staged.log)))
    }

    /// Regions that are staged, in the order of their puts, and the bytes of each.
    pub fn staged_regions(&self) -> Result<Vec<(Region, u64)>> {
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        let staged = inner.staged.as_ref();
        Ok(staged
            .map_or(vec![], |staged| staged.extents.iter().map(|extent| (extent.region, extent.spot.bytes)).collect()))
    }

    /// Staged regions that end beyond `from` along a dimension, and what lies below them.
    pub fn staged_part(&self, dimension: usize, from: u64) -> Result<StagedPart> {
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        let base = inner.has_base.then(|| inner.base_shape());
        let extents = inner.staged.iter().flat_map(|staged| staged.extents.iter());
        let regions = extents.map(|extent| extent.region).filter(|region| region.end()[dimension] > from).collect();
        Ok(StagedPart { shape: inner.shape_now(&self.spec), base, regions })
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if inner.forks != fork_generation() {
            // The parent goes on writing into its segments: they are not ours.
            inner.forks = fork_generation();
            if let Some(staged) = &mut inner.staged {
                staged.allocator.forget();
            }
        }
        inner
    }

    fn gone(&self) -> ObjectError {
        ObjectError::new(Kind::NotFound, format!("the array {} was removed", self.directory.display()))
    }

    /// Sees to it that `inner` has the log of this moment, if there is one. `stages`: makes one, and waits while it is frozen.
    fn current(&self, inner: &mut Inner, stages: bool) -> Result<()> {
        let mut begun: Option<Instant> = None;
        loop {
            if let Some(staged) = &mut inner.staged {
                if staged.log.is_live() {
                    staged.catch_up();
                    return Ok(());
                }
                if self.is_in_place(&staged.stage, &staged.log) {
                    if !stages {
                        staged.catch_up();
                        return Ok(());
                    }
                    let begun = begun.get_or_insert_with(Instant::now);
                    if begun.elapsed() > FROZEN_PATIENCE {
                        return Err(ObjectError::new(
                            Kind::NoAgent,
                            format!("the log of {} is frozen, and no agent ends that", self.directory.display()),
                        )
                        .hint(format!("start one: terrace serve --root {}", self.place.root().display())));
                    }
                    sleep_us(if begun.elapsed() < Duration::from_millis(5) { 50 } else { 1000 });
                    continue;
                }
                inner.staged = None;
                inner.locks = None;
                self.base.forget();
            }
            let stage = stage_of(&self.place, &self.directory);
            let log = match &stage {
                Some(stage) => open_log(&self.place, stage, &self.directory)?,
                None => None,
            };
            let (stage, log) = match (stage, log, stages) {
                (Some(stage), Some(log), _) => (stage, log),
                (_, _, false) => {
                    self.read_durable(inner)?;
                    return Ok(());
                }
                (_, _, true) => {
                    self.read_durable(inner)?;
                    ensure(&self.place, &self.directory, &inner.shape, inner.has_base)?
                }
            };
            if log.rank() != self.spec.rank() {
                return Err(ObjectError::new(
                    Kind::WrongKind,
                    format!("{} is another array now: open it again", self.directory.display()),
                ));
            }
            inner.shape = log.shape();
            inner.has_base = log.header().has_base.load(Acquire) != 0;
            inner.staged = Some(Staged {
                stage,
                log: Arc::new(log),
                extents: Extents::default(),
                mapped: Mapped::default(),
                allocator: Allocator::default(),
            });
        }
    }

    fn is_in_place(&self, stage: &Stage, log: &Log) -> bool {
        log.header().life.load(SeqCst) == LIVE
            && stage_of(&self.place, &self.directory).as_ref() == Some(stage)
            && calls::lstat(stage.log(&self.place)).is_ok_and(|found| found.st_ino == log.ino())
    }

    /// What the root's own storage says.
    fn read_durable(&self, inner: &mut Inner) -> Result<()> {
        let array = read_metadata(&self.directory)?.and_then(|metadata| metadata.array).ok_or_else(|| self.gone())?;
        if array.spec.rank() != self.spec.rank() || array.spec.data_type != self.spec.data_type {
            return Err(ObjectError::new(
                Kind::WrongKind,
                format!("{} is another array now: open it again", self.directory.display()),
            ));
        }
        inner.shape = array.spec.shape;
        inner.has_base = true;
        Ok(())
    }

    fn check_put(&self, region: &Region, bytes: usize) -> Result<()> {
        if !self.writable {
            return Err(ObjectError::new(
                Kind::WrongKind,
                format!("the array {} was opened for reading only", self.directory.display()),
            ));
        }
        self.check_bytes(region, bytes)?;
        if region.stride().iter().any(|&stride| stride > STRIDE_MAX) {
            return Err(ObjectError::invalid(format!("{region}: a put's stride is at most {STRIDE_MAX}")));
        }
        Ok(())
    }

    fn check_bytes(&self, region: &Region, bytes: usize) -> Result<()> {
        region.check_rank(self.spec.rank())?;
        let wanted = region.cells().checked_mul(self.spec.data_type.size() as u64);
        if wanted != Some(bytes as u64) {
            return Err(ObjectError::invalid(format!(
                "{region} has {} cells of {} bytes, the buffer has {bytes} bytes",
                region.cells(),
                self.spec.data_type.size()
            )));
        }
        Ok(())
    }

    /// Inside the shape, where a dimension does not grow.
    fn check_bounds(&self, region: &Region, shape: &[u64]) -> Result<()> {
        let end = region.end();
        let bounds: Vec<u64> =
            (0..shape.len()).map(|d| if self.spec.unlimited[d] { shape[d].max(end[d]) } else { shape[d] }).collect();
        region.check_within(&bounds)
    }

    /// Puts packed cells into a region. When this returns, everybody sees them, and they survive a kill of any process.
    pub fn put(&self, region: &Region, cells: &[u8]) -> Result<()> {
        self.check_put(region, cells.len())?;
        // SAFETY: the slice is readable for as long as this call lasts.
        unsafe { self.put_from(region, cells.as_ptr(), cells.len(), 0) }
    }

    /// # Safety
    /// `cells` has so many readable bytes.
    pub unsafe fn put_from(&self, region: &Region, cells: *const u8, bytes: usize, step: u64) -> Result<()> {
        self.put_into(region, bytes, step, |file, position, way| {
            if way == Way::MapAnew {
                file.populate(position, bytes);
            }
            // SAFETY: the cells are the caller's; the spot is as long, lies in the segment, and does not overlap them.
            unsafe {
                match way {
                    Way::Write => file.write(position, cells, bytes),
                    Way::Map | Way::MapAnew => {
                        copy(cells, file.base().add(position as usize), bytes, true);
                        Ok(())
                    }
                }
            }
        })
    }

    /// `bring` writes the packed cells straight into the tier. Asked once, whatever becomes of the generation meanwhile.
    pub fn put_by(
        &self,
        region: &Region,
        bytes: usize,
        step: u64,
        bring: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut bring = Some(bring);
        let mut brought: Option<(Arc<MappedFile>, usize)> = None;
        self.put_into(region, bytes, step, |file, position, _| {
            // SAFETY: the spot lies in the segment, and is ours alone until its record is buried.
            let place = unsafe { std::slice::from_raw_parts_mut(file.base().add(position as usize), bytes) };
            match (bring.take(), &brought) {
                (Some(bring), _) => bring(place)?,
                // SAFETY: what was brought is still mapped, and no record leads to it.
                (None, Some((file, at))) => unsafe { copy(file.base().add(*at), place.as_mut_ptr(), bytes, true) },
                (None, None) => unreachable!("cells that were brought are kept"),
            }
            brought = Some((file.clone(), position as usize));
            Ok(())
        })
    }

    /// `place` brings the cells to a position of a segment; again, if the generation ends meanwhile.
    fn put_into(
        &self,
        region: &Region,
        bytes: usize,
        step: u64,
        mut place: impl FnMut(&Arc<MappedFile>, u64, Way) -> Result<()>,
    ) -> Result<()> {
        self.check_put(region, bytes)?;
        // Once for this put: what the agent flushes to make room may be this very array, again and again, and free nothing.
        let mut has_asked = false;
        loop {
            let mut inner = self.locked();
            self.current(&mut inner, true)?;
            self.check_bounds(region, &inner.shape_now(&self.spec))?;
            if region.is_empty() {
                return Ok(());
            }
            let Some((spot, way, file)) = self.find_room(&mut inner, bytes as u64, &mut has_asked)? else { continue };
            let log = inner.staged.as_ref().expect("a put has staged the array").log.clone();
            drop(inner);
            place(&file, spot.position, way).inspect_err(|_| self.give_back(&log, spot))?;
            let body = Body::data(spot.segment, spot.position, spot.bytes, region, step);
            if self.publish(&log, &body)? {
                let mut inner = self.locked();
                if let Some(staged) = &mut inner.staged
                    && staged.log.ino() == log.ino()
                {
                    staged.catch_up();
                }
                return Ok(());
            }
        }
    }

    /// Room that was taken and not used.
    fn give_back(&self, log: &Log, spot: Spot) {
        let mut inner = self.locked();
        if let Some(staged) = &mut inner.staged
            && staged.log.ino() == log.ino()
            && staged.allocator.owns(spot.segment)
        {
            staged.allocator.give(spot, None);
        }
    }

    /// False: the generation has ended, and with it the segment that the cells are in.
    fn publish(&self, log: &Log, body: &Body) -> Result<bool> {
        let (device, live) = {
            let inner = self.locked();
            let staged = inner.staged.as_ref();
            staged.map_or((ROOT_DEVICE, 0), |staged| (staged.stage.device, staged.extents.len() as u64))
        };
        // A log of which most is buried is made anew instead, so that an array which is put to for ever needs bounded room.
        let is_mostly_buried = || log.capacity() >= COMPACTED_FROM && live <= log.capacity() / 2;
        let reserve = |bytes: u64| reserve_room(&self.place, device, bytes as i64);
        // Where the tier is full, the agent is asked for room, as for cells; that may end this very generation.
        let grows = |bytes: u64| {
            !is_mostly_buried() && (reserve(bytes) || (self.services.make_room(bytes).is_ok() && reserve(bytes)))
        };
        match log.claim(grows, |bytes| give_room(&self.place, device, bytes as i64))? {
            Claimed::Record(number) => Ok(log.publish(number, body)),
            Claimed::Frozen => Ok(false),
            Claimed::Full => {
                self.services.compact(&self.directory)?;
                Ok(false)
            }
        }
    }

    /// Room for an extent. `None`: look again which log is the current one.
    fn find_room(
        &self,
        inner: &mut Inner,
        bytes: u64,
        has_asked: &mut bool,
    ) -> Result<Option<(Spot, Way, Arc<MappedFile>)>> {
        let place = &self.place;
        let Staged { stage, log, mapped, allocator, .. } = inner.staged.as_mut().expect("a put has staged the array");
        let may_reuse = |record: Option<u64>| {
            log.header().starved.load(SeqCst) == 0 && !record.is_some_and(|record| log.is_lent(record))
        };
        let next = || log.header().next_segment.fetch_add(1, AcqRel);
        let mut spot = allocator.take(bytes, may_reuse);
        while spot.is_none() {
            if allocator.grow(place, stage, next, mapped, bytes)?.is_none() {
                if *has_asked {
                    allocator.grow_in_root(place, stage, next, mapped, bytes).map_err(|error| {
                        error.hint("all tiers are full, and so is the root's storage: remove something")
                    })?;
                } else {
                    *has_asked = true;
                    // It may flush this very array, and end this generation; without an agent the root has to do.
                    let _ = self.services.make_room(bytes);
                    if !log.is_live() {
                        return Ok(None);
                    }
                }
            }
            spot = allocator.take(bytes, may_reuse);
        }
        let (spot, way) = spot.expect("the loop ended with room");
        match mapped.get(place, stage, spot.segment) {
            Ok(file) => Ok(Some((spot, way, file))),
            Err(error) if error.kind == Kind::NotFound => {
                allocator.forget();
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Gets a region's cells, packed.
    pub fn get(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        // SAFETY: the slice is writable for as long as this call lasts.
        unsafe { self.get_into(region, cells.as_mut_ptr(), cells.len()) }
    }

    /// # Safety
    /// `cells` has so many writable bytes that nobody else uses.
    pub unsafe fn get_into(&self, region: &Region, cells: *mut u8, bytes: usize) -> Result<()> {
        self.check_bytes(region, bytes)?;
        let mut starving: Option<Arc<Log>> = None;
        let mut races = 0;
        let result = loop {
            // SAFETY: as the caller promised.
            match unsafe { self.get_once(region, cells, bytes, &mut starving, races) } {
                Ok(true) => break Ok(()),
                Ok(false) => races += 1,
                Err(error) => break Err(error),
            }
        };
        if let Some(log) = starving {
            log.header().starved.fetch_sub(1, AcqRel);
        }
        result
    }

    /// False: some extent was buried meanwhile.
    unsafe fn get_once(
        &self,
        region: &Region,
        cells: *mut u8,
        bytes: usize,
        starving: &mut Option<Arc<Log>>,
        races: usize,
    ) -> Result<bool> {
        let mut layers: Vec<(Extent, Overlap)> = vec![];
        let mut files: Vec<Arc<MappedFile>> = vec![];
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        region.check_within(&inner.shape_now(&self.spec))?;
        if region.is_empty() {
            return Ok(true);
        }
        let (mut is_covered, has_base) = (false, inner.has_base);
        let mut log = None;
        if let Some(staged) = &mut inner.staged {
            is_covered = staged.extents.covering(region, &mut layers);
            for (extent, _) in &layers {
                match staged.mapped.get(&self.place, &staged.stage, extent.spot.segment) {
                    Ok(file) if (extent.spot.position + extent.spot.bytes) as usize <= file.len() => files.push(file),
                    Ok(_) => {
                        return Err(ObjectError::new(
                            Kind::Damaged,
                            format!("an extent of {} lies beyond its segment's end", self.directory.display()),
                        ));
                    }
                    // Its generation has just ended.
                    Err(error) if error.kind == Kind::NotFound && !self.is_in_place(&staged.stage, &staged.log) => {
                        inner.staged = None;
                        return Ok(false);
                    }
                    Err(error) => return Err(error),
                }
            }
            log = Some(staged.log.clone());
            if races >= RACES_MAX && starving.is_none() {
                staged.log.header().starved.fetch_add(1, AcqRel);
                *starving = log.clone();
            }
        }
        drop(inner);
        if !is_covered {
            // SAFETY: the caller's buffer.
            let buffer = unsafe { std::slice::from_raw_parts_mut(cells, bytes) };
            if has_base {
                self.base.read(&self.place, region, buffer)?;
            } else {
                fill(buffer, &self.spec.fill);
            }
        }
        let size = self.spec.data_type.size();
        for ((extent, overlap), file) in layers.iter().zip(&files).rev() {
            // SAFETY: the extent lies in its segment, as was looked at; the caller's buffer has all cells of the region.
            unsafe {
                let source = file.base().add(extent.spot.position as usize) as *const u8;
                if extent.region == *region {
                    copy(source, cells, bytes, false);
                } else {
                    copy_overlap(overlap, size, source, cells);
                }
            }
        }
        std::sync::atomic::fence(SeqCst);
        let Some(log) = log else { return Ok(true) };
        let is_buried = |extent: &Extent| log.state(extent.record) != State::Committed;
        if !layers.iter().any(|(extent, _)| is_buried(extent)) {
            return Ok(true);
        }
        // What buried them is in the log: the next look finds it. That also leaves out what has passed, and uses its room again.
        let mut inner = self.locked();
        if let Some(staged) = inner.staged.as_mut().filter(|staged| staged.log.ino() == log.ino()) {
            let is_to_go = |extent: &Extent| extent.record >= log.passed() && is_buried(extent);
            layers.iter().filter(|(extent, _)| is_to_go(extent)).for_each(|(extent, _)| {
                staged.extents.remove(extent.record);
            });
        }
        Ok(false)
    }

    /// Lends the region's cells from where they lie in the tier, if they are one run of one extent. `None`: they are not, and
    /// nothing was lent. `false`: they were overwritten meanwhile, and what was made of them is worth nothing.
    pub fn lend<T>(&self, region: &Region, take: impl FnOnce(&[u8]) -> T) -> Result<Option<(T, bool)>> {
        let mut layers: Vec<(Extent, Overlap)> = vec![];
        let mut inner = self.locked();
        self.current(&mut inner, false)?;
        region.check_within(&inner.shape_now(&self.spec))?;
        let Some(staged) = &mut inner.staged else { return Ok(None) };
        if region.is_empty() || !staged.extents.covering(region, &mut layers) || layers.len() != 1 {
            return Ok(None);
        }
        let (extent, overlap) = layers[0];
        let mut runs = vec![];
        overlap.for_each_run(|run| runs.extend((runs.len() < 2).then_some(run)));
        let ([run], size) = (runs.as_slice(), self.spec.data_type.size()) else { return Ok(None) };
        let (start, bytes) = (extent.spot.position as usize + run.from as usize * size, run.cells as usize * size);
        let Ok(file) = staged.mapped.get(&self.place, &staged.stage, extent.spot.segment) else { return Ok(None) };
        if run.from_step != 1 || run.to_step != 1 || start + bytes > file.len() {
            return Ok(None);
        }
        let log = staged.log.clone();
        drop(inner);
        // SAFETY: the run lies in the segment, which stays mapped; whoever takes it is told below whether it changed.
        let taken = take(unsafe { std::slice::from_raw_parts(file.base().add(start), bytes) });
        std::sync::atomic::fence(SeqCst);
        Ok(Some((taken, log.state(extent.record) == State::Committed)))
    }

    /// Makes the array larger in dimensions that grow, without putting anything.
    pub fn grow(&self, shape: &[u64]) -> Result<()> {
        let region = Region::whole(shape)?;
        self.check_put(&region, region.cells() as usize * self.spec.data_type.size())?;
        loop {
            let mut inner = self.locked();
            self.current(&mut inner, true)?;
            let now = inner.shape_now(&self.spec);
            if let Some(d) = (0..now.len()).find(|&d| !self.spec.unlimited[d] && shape[d] != now[d]) {
                return Err(ObjectError::new(
                    Kind::OutOfBounds,
                    format!(
                        "dimension {d} of {}, of shape {now:?}, does not grow: {shape:?} was asked for",
                        self.directory.display()
                    ),
                )
                .hint("a dimension that is to grow is made unlimited when the array is created"));
            }
            if shape.iter().zip(&now).any(|(wanted, now)| wanted < now) {
                return Err(ObjectError::invalid(format!(
                    "an array of shape {now:?} can't be made smaller, to {shape:?}"
                )));
            }
            let log = inner.staged.as_ref().expect("growing has staged the array").log.clone();
            drop(inner);
            if self.publish(&log, &Body::growth(&region))? {
                return Ok(());
            }
        }
    }

    /// Waits so long for the region (`None`: as long as it takes; zero: does not wait).
    pub fn lock(&self, region: &Region, mode: LockMode, patience: Option<Duration>) -> Result<RegionLock> {
        region.check_rank(self.spec.rank())?;
        loop {
            let table = self.lock_table()?;
            let lock = table.lock(region, mode, patience)?;
            // The array's staged form may have ended meanwhile, and with it this table.
            if self.lock_table()?.ino() == table.ino() {
                return Ok(lock);
            }
        }
    }

    fn lock_table(&self) -> Result<Arc<LockTable>> {
        let mut inner = self.locked();
        self.current(&mut inner, true)?;
        self.table_of(&mut inner)
    }

    fn table_of(&self, inner: &mut Inner) -> Result<Arc<LockTable>> {
        if let Some(table) = &inner.locks {
            return Ok(table.clone());
        }
        let stage = &inner.staged.as_ref().expect("locking has staged the array").stage;
        let table = LockTable::open(&stage.locks(&self.place))?;
        inner.locks = Some(table.clone());
        Ok(table)
    }
}

impl Inner {
    fn shape_now(&self, spec: &ArraySpec) -> Vec<u64> {
        let Some(staged) = &self.staged else { return self.shape.clone() };
        let reach = staged.extents.reach;
        let shape = self.base_shape();
        (0..shape.len()).map(|d| if spec.unlimited[d] { shape[d].max(reach[d]) } else { shape[d] }).collect()
    }

    /// Of what lies below the extents. The log's own grows when extents are dropped that were sent on: it is looked at after the extents.
    fn base_shape(&self) -> Vec<u64> {
        self.staged.as_ref().map_or_else(|| self.shape.clone(), |staged| staged.log.shape())
    }
}

impl Staged {
    /// Takes in what was published; own extents that newer ones cover are buried, and their room used again.
    fn catch_up(&mut self) {
        let Staged { log, extents, allocator, .. } = self;
        extents.catch_up(log, |covered| {
            if allocator.owns(covered.spot.segment) && log.bury(covered.record) {
                allocator.give(covered.spot, Some(covered.record));
            }
        });
        // Whoever ends the generation looks at what has passed after he has frozen it: if it is not frozen yet, he keeps none of these.
        let passed = log.passed();
        let is_ours = !log.is_frozen();
        extents.leave_out_below(passed, |extent| {
            if is_ours && allocator.owns(extent.spot.segment) {
                allocator.give(extent.spot, Some(extent.record));
            }
        });
    }
}
