//! Staged arrays: flushed when they are quiet, at a run's end, or when asked; dropped from the tiers when room is short.

use super::Objects;
use crate::arrays::Own;
use crate::shared::ended::{Move, now_ns};
use crate::shared::request::{Outcome, Scope};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use terrace_core::control::{Failure, MoveKind};
use terrace_core::objects::{Kind, ObjectError, Result, TagValue};
use terrace_core::policy::Mode;
use terrace_objects::array::{self, Drops, Flushed, Log, METADATA_FILE, ROOT_DEVICE, Stage};

const TICK: Duration = Duration::from_millis(100);
/// An array that nobody put to for so long is flushed in the background, and no sooner than files are.
const QUIET: Duration = Duration::from_secs(2);
/// Stages on the root's own device are looked for so seldom: each look is a request to a server that all jobs share.
const LOOK_FOR_ROOTS_STAGES: Duration = Duration::from_secs(2);
/// While no array is staged at all.
const LOOK_FOR_ROOTS_STAGES_IDLE: Duration = Duration::from_secs(10);
/// A stage that no array leads to is somebody's who is just making it, or was removed with its directory.
const ORPHAN: Duration = Duration::from_secs(30);
/// Room of what has been sent on is given back at once if it is a tier's so-maniest part; else when the array is quiet, or others need it.
const PASSING_PART: u64 = 2;
const LOOK_FOR_ORPHANS: Duration = Duration::from_secs(5);
/// Arrays that are flushed at a time.
const ARRAYS_AT_ONCE: usize = 4;

/// A staged array and where it is.
struct Staged {
    stage: Stage,
    log: Log,
    directory: PathBuf,
}

impl Objects {
    /// Staged arrays whose place in the root is known.
    fn staged(&self) -> Vec<Staged> {
        self.staged_of(array::stages(&self.place))
    }

    fn staged_of(&self, stages: Vec<Stage>) -> Vec<Staged> {
        let place = &self.place;
        let found = stages.into_iter().filter_map(|stage| {
            let log = Log::open(&stage.log(place)).ok()?;
            let directory = array::directory_of(place, &stage, &log)?;
            Some(Staged { stage, log, directory })
        });
        found.collect()
    }

    fn array_mode(&self, directory: &Path) -> Mode {
        self.mode(directory.as_os_str().as_bytes())
    }

    /// Some array's newest cells are only in a tier, and policy wants them in the root.
    pub fn has_unflushed_arrays(&self) -> bool {
        self.staged().iter().any(|staged| array::is_dirty(&staged.log) && self.wants_flush(staged))
    }

    /// What is only passing through here is made durable if it could not be sent on.
    fn wants_flush(&self, staged: &Staged) -> bool {
        let name = array::relative(&self.place, &staged.directory).unwrap_or_default();
        let is_passing = self.forwards.is_passing(&name);
        self.array_mode(&staged.directory).flushes() && (!is_passing || self.is_behind(&name, Some(&staged.log)))
    }

    /// Regions of it are dropped when they have been sent on.
    fn is_passing(&self, staged: &Staged) -> bool {
        let name = array::relative(&self.place, &staged.directory);
        name.is_some_and(|name| self.forwards.is_passing(&name))
    }

    fn flush_array(&self, stage: &Stage) -> Result<Flushed> {
        let _turn = self.turn.lock().unwrap();
        self.flush_in_turn(stage)
    }

    fn flush_in_turn(&self, stage: &Stage) -> Result<Flushed> {
        let (begun, begin_ns, path) = (Instant::now(), now_ns(), self.path_of(stage));
        let done = array::flush_stage(&self.place, stage, Arc::new(Own), self.settings.mover.fsync);
        self.note_array_move(MoveKind::Flush, &path, begin_ns, done.as_ref().map(|flushed| flushed.bytes));
        let flushed = done?;
        self.totals.flushed_files.fetch_add(flushed.chunks, Relaxed);
        self.totals.flushed_bytes.fetch_add(flushed.bytes, Relaxed);
        self.totals.flush_us.fetch_add(begun.elapsed().as_micros() as u64, Relaxed);
        Ok(flushed)
    }

    /// Drops what is durable from the tiers.
    fn drop_array(&self, stage: &Stage) -> Result<u64> {
        let _turn = self.turn.lock().unwrap();
        let (begin_ns, path) = (now_ns(), self.path_of(stage));
        let done = self.compact_log(stage, Drops::Flushed);
        self.note_array_move(MoveKind::Evict, &path, begin_ns, done.as_ref().copied());
        let freed = done?;
        self.totals.evicted_bytes.fetch_add(freed, Relaxed);
        Ok(freed)
    }

    /// Nothing is noted where nothing was to be done, nor of an array that was removed meanwhile.
    fn note_array_move(
        &self,
        kind: MoveKind,
        path: &Path,
        begin_ns: u64,
        done: std::result::Result<u64, &ObjectError>,
    ) {
        let (bytes, error) = match done {
            Ok(0) => return,
            Ok(bytes) => (bytes, None),
            Err(error) if error.kind == Kind::NotFound => return,
            Err(error) => (0, Some(error.message.as_str())),
        };
        let path = path.as_os_str().as_bytes();
        self.ended.note(&Move { kind, path, bytes, tier: None, begin_ns, error });
    }

    /// Of its array.
    fn path_of(&self, stage: &Stage) -> PathBuf {
        let name = Log::open(&stage.log(&self.place)).ok().and_then(|log| log.array_path());
        self.settings.root.join(name.unwrap_or_default())
    }

    /// In one turn: while the names of one array are synced, chunks of another are written.
    fn flush_together(&self, group: &[Staged]) -> Vec<Result<Flushed>> {
        let _turn = self.turn.lock().unwrap();
        std::thread::scope(|scope| {
            let flush = |staged: &Staged| self.flush_in_turn(&staged.stage);
            let start =
                |staged| std::thread::Builder::new().name("flush".into()).spawn_scoped(scope, move || flush(staged));
            let threads: Vec<_> = group.iter().map(|staged| (staged, start(staged).ok())).collect();
            let ended = |(staged, thread): (&Staged, Option<ScopedJoinHandle<_>>)| match thread {
                Some(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // No thread can be had.
                None => flush(staged),
            };
            threads.into_iter().map(ended).collect()
        })
    }

    /// Makes arrays in scope durable; `all`: also those that policy keeps.
    pub fn flush_arrays(&self, scope: &Scope, all: bool, outcome: &mut Outcome) {
        let is_wanted = |staged: &Staged| {
            scope.has(staged.directory.as_os_str().as_bytes())
                && (all || self.wants_flush(staged))
                && array::is_dirty(&staged.log)
                // As long as there is hope that it can be sent on, it is not made durable.
                && (all || !self.is_passing(staged))
        };
        self.look_for_stages_in_root();
        let wanted: Vec<Staged> = self.staged().into_iter().filter(is_wanted).collect();
        for group in wanted.chunks(ARRAYS_AT_ONCE) {
            for (staged, flushed) in group.iter().zip(self.flush_together(group)) {
                match flushed {
                    Ok(flushed) => {
                        outcome.files += flushed.chunks;
                        outcome.bytes += flushed.bytes;
                        outcome.done.push(staged.directory.clone());
                    }
                    // Removed meanwhile.
                    Err(error) if error.kind == Kind::NotFound => {}
                    Err(error) => {
                        outcome.failures.push(Failure { path: staged.directory.clone(), reason: error.message });
                    }
                }
            }
        }
        self.flush_tags(scope);
    }

    /// At a run's end: arrays that policy drops go, those that had to go into the root for a while as well.
    pub fn remove_arrays(&self, scope: &Scope, outcome: &mut Outcome) {
        let place = &self.place;
        let staged = self.staged().into_iter().map(|staged| (Some(staged.stage), staged.directory));
        let spilled = std::mem::take(&mut *self.spilled.lock().unwrap());
        let spilled = spilled.into_iter().filter(|directory| directory.join(METADATA_FILE).exists());
        let mut gone = BTreeSet::new();
        for (stage, directory) in staged.chain(spilled.map(|directory| (None, directory))) {
            if !scope.has(directory.as_os_str().as_bytes())
                || self.array_mode(&directory) != Mode::Remove
                || gone.contains(&directory)
            {
                continue;
            }
            if stage.as_ref().is_some_and(|stage| array::is_locked(place, stage)) {
                outcome.open_files.push(directory);
                continue;
            }
            let log = stage.as_ref().and_then(|stage| Log::open(&stage.log(place)).ok());
            if self.is_behind(&array::relative(place, &directory).unwrap_or_default(), log.as_ref()) {
                // It goes when it has been sent on.
                continue;
            }
            let _turn = self.turn.lock().unwrap();
            let begin_ns = now_ns();
            let bytes = stage.map_or(0, |stage| array::stage_bytes(place, &stage));
            match array::remove_directory(place, &directory) {
                Ok(()) => {
                    self.totals.removed_files.fetch_add(1, Relaxed);
                    self.totals.removed_bytes.fetch_add(bytes, Relaxed);
                    let (kind, path) = (MoveKind::Remove, directory.as_os_str().as_bytes());
                    self.ended.note(&Move { kind, path, bytes, tier: None, begin_ns, error: None });
                    if let Some(name) = array::relative(place, &directory) {
                        // A tag that is left says nothing of an object that is not there.
                        let _ = self.tags.lock().unwrap().forget(&name);
                    }
                    gone.insert(directory);
                }
                Err(error) if error.kind == Kind::NotFound => {}
                Err(error) => outcome.failures.push(Failure { path: directory, reason: error.message }),
            }
        }
    }

    /// Frees the tiers of arrays in scope.
    pub fn evict_arrays(&self, scope: &Scope, outcome: &mut Outcome) {
        self.flush_arrays(scope, true, outcome);
        for staged in self.staged() {
            if scope.has(staged.directory.as_os_str().as_bytes()) {
                match self.drop_array(&staged.stage) {
                    Ok(freed) => outcome.bytes += freed,
                    Err(error) if error.kind == Kind::NotFound => {}
                    Err(error) => outcome.failures.push(Failure { path: staged.directory, reason: error.message }),
                }
            }
        }
    }

    /// Until some device has room for `bytes` of objects: clean replicas go first, then arrays, the largest first.
    pub fn make_room_for_objects(&self, bytes: u64) -> Result<()> {
        let has_room = |objects: &Objects| {
            objects.adjust_capacity();
            objects.index.devices().iter().any(|device| device.free() >= bytes as i64)
        };
        for device in 0..self.devices.len() {
            let short = bytes as i64 - self.index.devices()[device].free();
            if short > 0 {
                self.room.make_room(device, short as u64);
            }
            if has_room(self) {
                return Ok(());
            }
        }
        let place = &self.place;
        let mut staged = self.staged();
        staged.sort_by_key(|staged| std::cmp::Reverse(array::stage_bytes(place, &staged.stage)));
        // What is only passing and has arrived need not be written anywhere.
        for staged in staged.iter().filter(|staged| self.is_passing(staged)) {
            let turn = self.turn.lock().unwrap();
            let dropped = self.drop_forwarded(&staged.stage, &staged.log, 1);
            drop(turn);
            if dropped.is_ok() && has_room(self) {
                return Ok(());
            }
        }
        let mut trouble = None;
        for staged in staged {
            if self.array_mode(&staged.directory) == Mode::Remove {
                self.spilled.lock().unwrap().insert(staged.directory.clone());
            }
            let freed = self.flush_array(&staged.stage).and_then(|_| self.drop_array(&staged.stage));
            // One that is not found was made durable and dropped by somebody else.
            if let Err(error) = freed
                && error.kind != Kind::NotFound
            {
                trouble = Some(error);
            }
            if has_room(self) {
                return Ok(());
            }
        }
        Err(trouble
            .unwrap_or_else(|| ObjectError::new(Kind::NoSpace, format!("no tier can make room for {bytes} bytes"))))
    }

    /// A log that is full, and that is not to grow: begins a new generation, without what is durable if that is not enough.
    pub fn compact_array(&self, directory: &Path) -> Result<()> {
        let place = &self.place;
        let Some(stage) = array::stage_of(place, directory) else { return Ok(()) };
        let before;
        {
            let _turn = self.turn.lock().unwrap();
            let Ok(log) = Log::open(&stage.log(place)) else { return Ok(()) };
            before = log.capacity();
            if log.tail() < before {
                // Somebody else has asked for it, too.
                return Ok(());
            }
            match self.compact_log(&stage, Drops::Nothing) {
                Err(error) if error.kind == Kind::NotFound => return Ok(()),
                compacted => compacted?,
            };
        }
        // Most of it is in use: there is no room for a longer one.
        if Log::open(&stage.log(place)).is_ok_and(|log| log.tail() > before / 2) {
            self.flush_array(&stage)?;
            self.drop_array(&stage)?;
        }
        Ok(())
    }

    /// Writes changed tags into `zarr.json` of arrays and groups; other objects' tags stay in the journal.
    fn flush_tags(&self, scope: &Scope) {
        let changed: Vec<String> = self.tags.lock().unwrap().changed.iter().cloned().collect();
        for object in changed {
            let directory = self.object_path_of(&object);
            if !scope.has(directory.as_os_str().as_bytes()) {
                continue;
            }
            let tags = self.tags.lock().unwrap().of(&object).unwrap_or_default();
            let written = self.place.alone(|| {
                let Ok(Some(mut metadata)) = array::read_metadata(&directory) else { return Ok(()) };
                let before = metadata.attributes.clone();
                metadata.attributes.retain(|key, value| key.starts_with("terrace_") || from_json(value).is_none());
                metadata.attributes.extend(tags.iter().map(|(key, value)| (key.clone(), to_json(value))));
                if metadata.attributes == before {
                    return Ok(());
                }
                let _turn = self.turn.lock().unwrap();
                array::write_metadata(&directory, &metadata, self.settings.mover.fsync)
            });
            if let Err(error) = written {
                self.warn(format!("the tags of {} are not in {METADATA_FILE} yet: {error}", directory.display()));
                continue;
            }
            let mut known = self.tags.lock().unwrap();
            if known.of(&object).unwrap_or_default() == tags {
                known.changed.remove(&object);
            }
        }
    }

    /// Tags of one object, from `zarr.json` where nothing else is known.
    pub fn tags_of(&self, name: &str) -> Vec<(String, TagValue)> {
        self.learn_tags(name);
        self.tags.lock().unwrap().of(name).unwrap_or_default()
    }

    /// Sees to it that what `zarr.json` says of an object is known. Its tags are not looked at: an object may have many.
    pub fn learn_tags(&self, name: &str) {
        let mut tags = self.tags.lock().unwrap();
        if tags.knows(name) {
            return;
        }
        let attributes = array::read_metadata(&self.object_path_of(name)).ok().flatten().map(|found| found.attributes);
        let learnt: Vec<(String, TagValue)> = attributes
            .into_iter()
            .flatten()
            .filter(|(key, _)| !key.starts_with("terrace_"))
            .filter_map(|(key, value)| Some((key, from_json(&value)?)))
            .collect();
        tags.learn(name, learnt);
    }

    /// Before any program runs: logs that an agent was killed over go on, and what it had not removed is removed.
    pub fn recover_stages(&self) {
        let place = &self.place;
        self.look_for_stages_in_root();
        for stage in array::stages(place) {
            let Ok(log) = Log::open(&stage.log(place)) else { continue };
            log.thaw();
            if array::directory_of(place, &stage, &log).is_some()
                && let Err(error) = self.compact_log(&stage, Drops::Nothing)
            {
                self.warn(format!("a staged array can't be taken over: {error}"));
            }
        }
        if self.index_is_new {
            for device in 0..self.devices.len() as u32 {
                let stages = std::fs::read_dir(array::stages_dir(place, device)).into_iter().flatten().flatten();
                let files = stages.flat_map(|stage| std::fs::read_dir(stage.path()).into_iter().flatten().flatten());
                let bytes: i64 = files.map(|file| array::room_of(&file.path())).sum();
                self.index.header.devices[device as usize].used.fetch_add(bytes, AcqRel);
            }
        }
    }

    /// An earlier agent's, or of a program that has an earlier index.
    fn look_for_stages_in_root(&self) {
        if !matches!(array::stages_dir(&self.place, ROOT_DEVICE).try_exists(), Ok(false)) {
            self.index.header.stages_in_root.store(1, SeqCst);
        }
    }

    /// Until the agent ends.
    pub fn keep_objects(&self) {
        let place = &self.place;
        let mut looked = Instant::now();
        let (mut on_root, mut looked_at_root) = (vec![], None::<Instant>);
        while !self.schedule.has_ended() {
            self.schedule.rest(TICK);
            let in_tiers = array::all_devices(place).filter(|&device| device != ROOT_DEVICE);
            let mut stages: Vec<Stage> = in_tiers.flat_map(|device| array::stages_on(place, device)).collect();
            let is_idle = stages.is_empty() && on_root.is_empty();
            let wait = if is_idle { LOOK_FOR_ROOTS_STAGES_IDLE } else { LOOK_FOR_ROOTS_STAGES };
            if looked_at_root.is_none_or(|at| at.elapsed() >= wait) {
                (on_root, looked_at_root) = (array::stages_on(place, ROOT_DEVICE), Some(Instant::now()));
            }
            stages.extend_from_slice(&on_root);
            if looked.elapsed() >= LOOK_FOR_ORPHANS {
                looked = Instant::now();
                self.remove_orphans(&stages);
            }
            self.flush_quiet_arrays(stages);
        }
    }

    fn flush_quiet_arrays(&self, stages: Vec<Stage>) {
        let known: BTreeSet<String> = stages.iter().map(|stage| stage.name.clone()).collect();
        self.quiet.lock().unwrap().retain(|stage, _| known.contains(stage));
        let settle = Duration::from_millis(self.settings.mover.settle_ms).max(QUIET);
        for staged in self.staged_of(stages) {
            let tail = staged.log.tail();
            let is_quiet = {
                let mut quiet = self.quiet.lock().unwrap();
                let known = quiet.entry(staged.stage.name.clone()).or_insert((tail, Instant::now()));
                if known.0 != tail {
                    *known = (tail, Instant::now());
                }
                known.1.elapsed() >= settle
            };
            let mode = self.array_mode(&staged.directory);
            if self.is_passing(&staged) {
                let device = self.index.devices().get(staged.stage.device as usize);
                let capacity = device.map_or(0, |device| device.capacity.load(Relaxed).max(0) as u64);
                let least = if is_quiet { 0 } else { capacity / PASSING_PART };
                let _turn = self.turn.lock().unwrap();
                let done = self.drop_forwarded(&staged.stage, &staged.log, least);
                self.note_array(&staged.directory, done);
                continue;
            }
            if !is_quiet || !mode.flushes() {
                continue;
            }
            let done = match array::is_dirty(&staged.log) {
                true => self.flush_array(&staged.stage).map(|_| ()),
                false if mode == Mode::Move => self.drop_array(&staged.stage).map(|_| ()),
                false => continue,
            };
            self.note_array(&staged.directory, done);
        }
    }

    fn note_array(&self, directory: &Path, done: Result<()>) {
        let path = directory.as_os_str().as_bytes().to_vec();
        let mut failures = self.failures.lock().unwrap();
        match done {
            Err(error) if error.kind != Kind::NotFound => failures.insert(path, error.message),
            _ => failures.remove(&path),
        };
    }

    /// Stages whose array a program has removed or renamed by files.
    fn remove_orphans(&self, stages: &[Stage]) {
        let place = &self.place;
        let mut lost = vec![];
        for stage in stages {
            let Ok(log) = Log::open(&stage.log(place)) else { continue };
            if array::directory_of(place, stage, &log).is_none() {
                lost.push((stage.clone(), log));
            }
        }
        let mut unlocated = self.unlocated.lock().unwrap();
        unlocated.retain(|name, _| lost.iter().any(|(stage, _)| stage.name == *name));
        for (stage, log) in lost {
            let since = *unlocated.entry(stage.name.clone()).or_insert_with(Instant::now);
            if since.elapsed() < ORPHAN {
                continue;
            }
            match self.find_array(&self.settings.root, &stage) {
                Some(directory) => {
                    if let Some(path) = array::relative(place, &directory) {
                        log.set_array_path(&path);
                    }
                }
                None => array::remove_stage(place, &stage),
            }
            unlocated.remove(&stage.name);
        }
    }

    /// The directory whose link leads to the stage, wherever it was renamed to.
    fn find_array(&self, directory: &Path, stage: &Stage) -> Option<PathBuf> {
        for entry in std::fs::read_dir(directory).ok()?.flatten() {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if entry.file_name().to_str() == Some(array::staged_link(&self.place).as_str())
                && array::stage_of(&self.place, directory).as_ref() == Some(stage)
            {
                return Some(directory.into());
            }
            if is_directory && self.relative(entry.path().as_os_str().as_bytes()).is_some() {
                let found = self.find_array(&entry.path(), stage);
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// At the end: what is durable leaves the tiers, and the directories of stages go.
    pub fn clear_up_objects(&self) {
        let scope = Scope(vec![]);
        self.flush_tags(&scope);
        for staged in self.staged() {
            if !array::is_dirty(&staged.log) {
                let _ = self.drop_array(&staged.stage);
            }
        }
        let place = &self.place;
        for stage in array::stages(place) {
            let Ok(log) = Log::open(&stage.log(place)) else { continue };
            if array::directory_of(place, &stage, &log).is_none()
                && self.find_array(&self.settings.root, &stage).is_none()
            {
                array::remove_stage(place, &stage);
            }
        }
        for device in array::all_devices(place).filter(|&device| array::may_have_stages(place, device)) {
            let dir = array::stages_dir(place, device);
            for stage in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                // Only empty ones go.
                let _ = std::fs::remove_dir(stage.path());
            }
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// A tag as an attribute of Zarr.
fn to_json(value: &TagValue) -> serde_json::Value {
    use serde_json::json;
    match value {
        TagValue::Bool(value) => json!(value),
        TagValue::Int(value) => json!(value),
        TagValue::Float(value) => json!(value),
        TagValue::Text(value) => json!(value),
        TagValue::Ints(values) => json!(values),
        TagValue::Floats(values) => json!(values),
    }
}

/// Other attributes (objects, mixed lists) are not tags, and stay as they are.
fn from_json(value: &serde_json::Value) -> Option<TagValue> {
    use serde_json::Value;
    Some(match value {
        Value::Bool(value) => TagValue::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(number) => TagValue::Int(number),
            None => TagValue::Float(number.as_f64()?),
        },
        Value::String(text) => TagValue::Text(text.clone()),
        Value::Array(values) => {
            let ints: Option<Vec<i64>> = values.iter().map(Value::as_i64).collect();
            match ints {
                Some(ints) => TagValue::Ints(ints),
                None => TagValue::Floats(values.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()?),
            }
        }
        Value::Null | Value::Object(_) => return None,
    })
}
