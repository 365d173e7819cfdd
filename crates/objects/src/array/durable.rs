//! What the agent does with a staged array: write its chunks into the root, and begin new generations of its log.
//!
//! ```text
//!  flush:    chunks that extents since the last flush touch ─▶ beside their place, synced ─▶ renamed ─▶ zarr.json ─▶ mark
//!  compact:  freeze ─▶ settle claims ─▶ new log of what is still needed ─▶ rename over the old one ─▶ free segments
//! ```
//!
//! Invariant: an extent leaves the log only after the chunks that it touches, and the shape, are synced in the root.
//! A reader may overlay extents over chunks that have them already: the result is the same.

use super::base::Base;
use super::extents::{Extent, Extents};
use super::flush::{Flush, check_writable};
use super::handle::{ArrayHandle, Services};
use super::locks::LockTable;
use super::log::{Body, FROZEN, Log, SUPERSEDED, State, ValueRange};
use super::metadata::{read_metadata, write_metadata};
use super::segments::remove_segment;
use super::stage::{Stage, all_devices, remove_stage, stage_of, staged_link, take_room};
use crate::calls;
use crate::failure::Context;
use crate::place::Place;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use terrace_core::objects::{Kind, ObjectError, Region, Result};

/// What a flush wrote.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Flushed {
    pub chunks: u64,
    pub bytes: u64,
}

/// The array's directory, if the stage is still its own.
pub fn directory_of(place: &Place, stage: &Stage, log: &Log) -> Option<PathBuf> {
    let directory = place.root().join(log.array_path()?);
    (stage_of(place, &directory).as_ref() == Some(stage)).then_some(directory)
}

/// Something is newer than the durable form.
pub fn is_dirty(log: &Log) -> bool {
    let flushed = log.header().flushed.load(Acquire);
    (flushed..log.tail()).any(|number| log.state(number) == State::Committed)
}

/// Makes the array durable as it is at this moment, or a little later.
pub fn flush_stage(place: &Arc<Place>, stage: &Stage, services: Arc<dyn Services>, durable: bool) -> Result<Flushed> {
    let log = Log::open(&stage.log(place))?;
    let directory = directory_of(place, stage, &log)
        .ok_or_else(|| ObjectError::new(Kind::NotFound, format!("no array has the stage {}", stage.name)))?;
    let unreadable = || ObjectError::new(Kind::Damaged, format!("{} has no metadata of an array", directory.display()));
    let metadata = read_metadata(&directory)?.ok_or_else(unreadable)?;
    let array = metadata.array.clone().ok_or_else(unreadable)?;
    let source: Arc<dyn super::ChunkSource> = services.clone();
    let base = Base::new(&directory, &array, Some(source));
    let handle = ArrayHandle::open(place.clone(), &directory, &array, false, services)?;

    let (mark, regions) = changed_regions(&log);
    let mut chunks: BTreeSet<Vec<u64>> = BTreeSet::new();
    for region in &regions {
        base.for_each_chunk(region, |chunk| {
            chunks.insert(chunk.to_vec());
            Ok(())
        })?;
    }
    let chunks: Vec<Vec<u64>> = chunks.into_iter().collect();
    if !chunks.is_empty() {
        check_writable(array.is_raw)?;
    }
    log.header().has_base.store(1, Release);
    let flush = Flush { handle: &handle, base: &base, durable };
    let written = std::thread::scope(|scope| {
        // The cells are read now anyway, and queries leave out what they need not look at.
        let ranges = scope.spawn(|| handle.say_ranges());
        let written = flush.chunks(&chunks);
        ranges.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).and(written)
    })?;
    // Other agents of the root may have written a larger one.
    let shape = handle.shape()?;
    place.alone(|| {
        let mut metadata = read_metadata(&directory)?.ok_or_else(unreadable)?;
        let durable_shape = metadata.array.as_ref().map_or(vec![], |array| array.spec.shape.clone());
        if shape.iter().zip(&durable_shape).all(|(now, durable)| now <= durable) {
            return Ok(());
        }
        let larger: Vec<u64> = shape.iter().zip(&durable_shape).map(|(now, durable)| *now.max(durable)).collect();
        metadata.set_shape(&larger);
        write_metadata(&directory, &metadata, durable)
    })?;
    if durable {
        flush.sync_names(written.directories)?;
    }
    log.header().flushed.fetch_max(mark, SeqCst);
    Ok(Flushed { chunks: chunks.len() as u64, bytes: written.bytes })
}

/// Regions of extents that the last flush has not written, and the record before which all are settled.
fn changed_regions(log: &Log) -> (u64, Vec<Region>) {
    let (first, tail) = (log.header().flushed.load(Acquire), log.tail());
    let mut mark = tail;
    let mut regions = vec![];
    for number in first..tail {
        match log.state(number) {
            State::Free => mark = mark.min(number),
            State::Committed | State::Dead => regions.extend(log.body(number).and_then(|body| data_region(&body))),
            State::Aborted => {}
        }
    }
    (mark, regions)
}

fn data_region(body: &Body) -> Option<Region> {
    body.region().filter(|_| body.kind == super::log::DATA)
}

/// What a new generation leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drops {
    Nothing,
    /// What the durable form has.
    Flushed,
    /// What all lanes have sent on, whether it is durable or not.
    Forwarded,
}

/// Hears of regions that leave the log before a lane has sent them, so that it finds them in the durable form.
pub type Cut<'a> = &'a mut dyn FnMut(u64, Vec<Region>) -> Result<()>;

/// Begins a new generation, without what is dropped. Gives the bytes that it freed; the stage is gone when nothing is left in it.
pub fn compact(place: &Place, stage: &Stage, drops: Drops, cut: Cut<'_>) -> Result<u64> {
    let old = Log::open(&stage.log(place))?;
    let frozen = old.header().tail.fetch_or(FROZEN, SeqCst) & !FROZEN;
    let tail = frozen.min(old.header().capacity.load(Acquire));
    (0..tail).for_each(|number| old.abort(number));
    let made = next_generation(place, stage, &old, drops, cut);
    if made.is_err() {
        old.thaw();
    }
    made
}

fn next_generation(place: &Place, stage: &Stage, old: &Log, drops: Drops, cut: Cut<'_>) -> Result<u64> {
    let header = old.header();
    let flushed = header.flushed.load(Acquire);
    let lanes = old.forwards();
    let dropped_below = match drops {
        Drops::Nothing => 0,
        Drops::Flushed => flushed,
        Drops::Forwarded => lanes.iter().map(|(_, mark)| *mark).min().unwrap_or(0),
    };
    let mut extents = Extents::default();
    extents.catch_up(old, |_| {});
    let (dropped, kept): (Vec<&Extent>, Vec<&Extent>) =
        extents.iter().partition(|extent| extent.record < dropped_below);
    let mut kept: Vec<(u64, Body)> =
        kept.into_iter().filter_map(|extent| Some((extent.record, old.body(extent.record)?))).collect();
    // What is left of the log says itself how far it reaches: a step that is there in part only is not taken for whole.
    let mut shape = old.shape();
    let grow = |shape: &mut Vec<u64>, end: &[u64]| {
        shape.iter_mut().zip(end).for_each(|(extent, end)| *extent = (*extent).max(*end));
    };
    dropped.iter().for_each(|extent| grow(&mut shape, &extent.region.end()));
    let mut whole = shape.clone();
    grow(&mut whole, &extents.reach);
    for (lane, mark) in &lanes {
        let lost = dropped.iter().filter(|extent| extent.record >= *mark).map(|extent| extent.region);
        let lost: Vec<Region> = lost.collect();
        if !lost.is_empty() {
            cut(*lane, lost)?;
        }
    }

    if kept.is_empty() && may_end(place, stage, old, &whole) {
        return Ok(end(place, stage, old));
    }
    if let Some((record, growth)) = last_growth(old)? {
        if record < dropped_below {
            grow(&mut shape, &growth.end());
        } else {
            let at = if record < flushed { 0 } else { kept.len() };
            kept.insert(at, (record, Body::growth(&growth)));
        }
    }
    let dir = stage.dir(place, stage.device);
    let fresh_path = dir.join("log.new");
    let _ = calls::unlink(&fresh_path);
    let ino = header.directory_ino.load(Relaxed);
    let fresh = Log::create(&fresh_path, old.rank(), &shape, ino, kept.len() as u64 * 2)?;
    let fresh_header = fresh.header();
    fresh_header.has_base.store(header.has_base.load(Acquire), Relaxed);
    let next_segment = header.next_segment.load(Acquire);
    fresh_header.next_segment.store(next_segment, Relaxed);
    fresh_header.generation.store(header.generation.load(Acquire) + 1, Relaxed);
    if let Some(path) = old.array_path() {
        fresh.set_array_path(&path);
    }
    let mut segments = BTreeSet::new();
    let mut still_flushed = 0;
    for (number, (record, body)) in kept.iter().enumerate() {
        fresh.put_at(number as u64, body);
        match old.range(*record) {
            ValueRange::Known(low, high) => fresh.say_range(number as u64, Some((low, high))),
            ValueRange::None => fresh.say_range(number as u64, None),
            ValueRange::Unknown => {}
        }
        if body.kind == super::log::DATA {
            segments.insert(body.segment);
        }
        still_flushed += u64::from(*record < flushed);
    }
    for (lane, mark) in lanes {
        fresh.begin_forward(lane);
        fresh.set_forwarded(lane, kept.iter().take_while(|(record, _)| *record < mark).count() as u64);
    }
    fresh_header.flushed.store(still_flushed, Relaxed);
    fresh_header.tail.store(kept.len() as u64, SeqCst);
    let path = stage.log(place);
    calls::rename(&fresh_path, &path).context("replace", &path)?;
    header.life.store(SUPERSEDED, SeqCst);
    take_room(place, stage.device, fresh.growth() - old.growth());
    Ok(remove_other_segments(place, stage, &segments, next_segment))
}

/// How far the array was made to grow without cells, and by which record.
fn last_growth(log: &Log) -> Result<Option<(u64, Region)>> {
    let mut found: Option<(u64, Vec<u64>)> = None;
    for number in 0..log.tail() {
        let Some(region) =
            log.body(number).filter(|body| body.kind == super::log::GROWTH).and_then(|body| body.region())
        else {
            continue;
        };
        let (_, shape) = found.take().unwrap_or((number, vec![0; region.rank()]));
        let larger = shape.iter().zip(region.count()).map(|(a, b)| *a.max(b)).collect();
        found = Some((number, larger));
    }
    found.map(|(number, shape)| Ok((number, Region::whole(&shape)?))).transpose()
}

/// Nothing is left that the durable form does not have, and nobody has a lock.
fn may_end(place: &Place, stage: &Stage, old: &Log, shape: &[u64]) -> bool {
    let Some(directory) = directory_of(place, stage, old) else { return false };
    let durable = read_metadata(&directory).ok().flatten().and_then(|metadata| metadata.array);
    durable.is_some_and(|array| array.spec.shape.iter().zip(shape).all(|(durable, now)| durable >= now))
        && !is_locked(place, stage)
}

/// Somebody has a lock of the array, or it can't be told.
pub fn is_locked(place: &Place, stage: &Stage) -> bool {
    let locks = stage.locks(place);
    locks.exists() && !LockTable::open(&locks).is_ok_and(|table| table.held() == 0)
}

fn end(place: &Place, stage: &Stage, old: &Log) -> u64 {
    if let Some(directory) = directory_of(place, stage, old) {
        let _ = calls::unlink(directory.join(staged_link(place)));
    }
    old.header().life.store(SUPERSEDED, SeqCst);
    let bytes = stage_bytes(place, stage);
    remove_stage(place, stage);
    bytes
}

/// Bytes of a stage's segments.
pub fn stage_bytes(place: &Place, stage: &Stage) -> u64 {
    segment_files(place, stage).map(|(_, bytes)| bytes).sum()
}

fn segment_files(place: &Place, stage: &Stage) -> impl Iterator<Item = (u32, u64)> {
    let dirs: Vec<(u32, PathBuf)> = all_devices(place).map(|device| (device, stage.dir(place, device))).collect();
    dirs.into_iter().flat_map(|(device, dir)| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(move |entry| {
            let name = entry.file_name().into_string().ok()?;
            let number = u32::from_str_radix(name.strip_prefix('s')?, 16).ok()?;
            Some((device << 24 | number, entry.metadata().ok()?.len()))
        })
    })
}

/// Segments from `next` on are of the new generation: clients make some, and put into them, as soon as it has its name.
fn remove_other_segments(place: &Place, stage: &Stage, kept: &BTreeSet<u32>, next: u64) -> u64 {
    let all: Vec<u32> = segment_files(place, stage).map(|(segment, _)| segment).collect();
    all.into_iter()
        .filter(|&segment| is_left_over(segment, kept, next))
        .map(|segment| remove_segment(place, stage, segment))
        .sum()
}

/// A segment of the old generation that the new one has nothing in.
fn is_left_over(segment: u32, kept: &BTreeSet<u32>, next: u64) -> bool {
    u64::from(segment & 0xff_ffff) < next && !kept.contains(&segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Between the new log's getting its name and the look at the segments, clients have made some of the new generation.
    #[test]
    fn segments_of_the_new_generation_are_not_left_over_from_the_old_one() {
        let on = |device: u32, number: u32| device << 24 | number;
        let all = [on(0, 0), on(0, 1), on(1, 2), on(0, 3), on(1, 4), on(255, 5)];
        let kept = BTreeSet::from([on(0, 1)]);
        let left: Vec<u32> = all.into_iter().filter(|&segment| is_left_over(segment, &kept, 3)).collect();
        assert_eq!(left, [on(0, 0), on(1, 2)]);
    }
}
