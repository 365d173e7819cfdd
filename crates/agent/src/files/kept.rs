//! Placed directories that are to be durable (`directories = "all"`, and what policy does not drop after all): their mirrors.
//!
//!   made ─▶ looks, while programs work in it ─▶ end of the run, or asked for, and nobody is in it ─▶ the last look ─▶ its name
//!
//! Invariant: a directory gets its name only while no process is in it or has something of it open: who is would go on in a directory
//! without a name, and what it writes there would be lost.

use crate::files::Files;
use crate::files::directories::{PATIENCE, count, errno, used_places};
use crate::files::mover::mirror::{Look, Mirror, Seen};
use crate::shared::ended::{Move, now_ns};
use crate::shared::path::as_path;
use crate::shared::request::{Outcome, Scope};
use crate::shared::schedule::Work;
use crate::shared::threads::in_threads;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_core::control::{Failure, MoveKind};
use terrace_index::parse_name;

/// Files that live shorter are never copied.
const QUIET: Duration = Duration::from_secs(1);
/// Between two looks pass so many times what the last one took.
const LOOK_SHARE: u32 = 10;
/// Requests to the root that are under way at once when somebody waits for them: a server's time is mostly waiting.
const THREADS: usize = 8;

const TRIES: usize = 3;

/// By their directories' records.
#[derive(Default)]
pub struct Mirrors(Mutex<HashMap<u32, OfSerial>>);

struct OfSerial {
    serial: u64,
    mirror: Arc<Mutex<Mirror>>,
}

impl Files {
    fn mirror_of(&self, number: u32) -> Arc<Mutex<Mirror>> {
        let serial = self.serial(number);
        let new = || {
            let mirror = Mirror::new(self.object_path(number), self.kept_dir().join(self.object_name(number)));
            OfSerial { serial, mirror: Arc::new(Mutex::new(mirror)) }
        };
        let mut mirrors = self.mirrors.0.lock().unwrap();
        let known = mirrors.entry(number).or_insert_with(new);
        if known.serial != serial {
            known.mirror.lock().unwrap().discard();
            *known = new();
        }
        known.mirror.clone()
    }

    /// The directory has gone, or has its name.
    pub fn forget_mirror(&self, number: u32) {
        let mirror = self.mirrors.0.lock().unwrap().remove(&number);
        if let Some(known) = mirror {
            known.mirror.lock().unwrap().discard();
        }
    }

    /// Mirrors whose directories are not `wanted`, after a killed agent.
    pub fn discard_mirrors(&self, wanted: impl Fn((u32, u64)) -> bool) {
        for entry in std::fs::read_dir(self.kept_dir()).into_iter().flatten().flatten() {
            if !parse_name(entry.file_name().as_encoded_bytes()).is_some_and(&wanted) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    pub fn plan_mirror(&self, number: u32) {
        self.schedule.after_unless_planned(QUIET, Work::Look, number);
    }

    /// All of a tree is copied, and nobody works on it.
    pub fn last_look(&self, threads: usize) -> Look<'_> {
        Look {
            settle: None,
            fsync: self.settings.mover.fsync,
            threads,
            cap: self.cap.as_ref(),
            spilled: &|_| None,
            written: &|link| std::fs::read_link(link),
            goes_on: &|| true,
        }
    }

    /// As `last_look`, of a placed directory, in which files may be spilled, and links climb out of it. Its mirror is locked meanwhile.
    fn with_mirror<T>(&self, number: u32, threads: usize, act: impl FnOnce(&mut Mirror, Look<'_>) -> T) -> T {
        let mirror = self.mirror_of(number);
        let mut mirror = mirror.lock().unwrap();
        let look = Look {
            spilled: &|link| self.spilled_at(link),
            written: &|link| self.written_in(link),
            ..self.last_look(threads)
        };
        act(&mut mirror, look)
    }

    /// A mover thread's job, again and again.
    pub fn look_into(&self, number: u32) {
        let path = self.catalogue().path(number, self.serial(number));
        if path.is_none_or(|path| self.is_scratch(&path)) {
            return self.schedule.after(QUIET * LOOK_SHARE, Work::Look, number);
        }
        if self.has_others() && self.publish_directory_for_others(number).is_ok() {
            return; // to them the link leads nowhere
        }
        let begun = Instant::now();
        let settle = QUIET.max(Duration::from_millis(self.settings.mover.settle_ms));
        let goes_on = || !self.schedule.is_hurried() && !self.schedule.has_ended();
        let _ = self.mirror(number, Some(settle), 1, &goes_on);
        self.schedule.after((begun.elapsed() * LOOK_SHARE).max(QUIET), Work::Look, number);
    }

    fn mirror(
        &self,
        number: u32,
        settle: Option<Duration>,
        threads: usize,
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> std::io::Result<Seen> {
        self.with_mirror(number, threads, |mirror, look| mirror.look(&Look { settle, goes_on, ..look }))
    }

    /// Files and bytes of it that are in no copy yet.
    pub fn unmirrored(&self, number: u32) -> (u64, u64) {
        let (files, bytes) = count(&self.object_path(number));
        let mirror = self.mirrors.0.lock().unwrap().get(&number).map(|known| known.mirror.clone());
        let seen = mirror.and_then(|mirror| Some(mirror.try_lock().ok()?.seen())).unwrap_or_default();
        (files.saturating_sub(seen.files - seen.files_left), bytes.saturating_sub(seen.bytes - seen.bytes_left))
    }

    /// Those that policy does not drop become durable, and get their names where nobody is in them.
    pub fn flush_directories(&self, scope: &Scope, outcome: &mut Outcome) {
        if self.index.header.directories.load(SeqCst) <= 0 {
            return;
        }
        let mut kept = self.directories_in(scope);
        kept.retain(|(_, _, path)| !self.is_scratch(path));
        if kept.is_empty() {
            return;
        }
        let _hurry = self.schedule.hurry();
        let used = used_places();
        let outer = kept.len().min(THREADS);
        let done = Mutex::new((outcome, BTreeSet::new()));
        let flush = |(number, serial, path): &(u32, u64, Vec<u8>)| {
            if self.serial(*number) != *serial || !self.is_directory(*number) {
                return Ok(());
            }
            let path = PathBuf::from(as_path(path));
            let container = self.container(*number);
            let is_used = used.iter().any(|place| place.starts_with(&container));
            let flushed = match is_used {
                true => self.mirror(*number, Some(Duration::ZERO), THREADS / outer, &|| true).map(|_| None),
                false => self.publish_patiently(*number, THREADS / outer).map(Some),
            };
            let mut done = done.lock().unwrap();
            match flushed {
                Ok(Some((seen, place))) => {
                    done.0.files += seen.files;
                    done.0.bytes += seen.bytes;
                    done.0.done.push(path);
                    done.1.extend(place.parent().map(Path::to_path_buf));
                }
                Ok(None) => done.0.open_files.push(path),
                Err(error) => done.0.failures.push(Failure { path, reason: error.to_string() }),
            }
            Ok(())
        };
        in_threads(outer, &kept, flush).expect("each has told of its own failure");
        let (outcome, parents) = done.into_inner().unwrap();
        if self.settings.mover.fsync {
            for parent in parents {
                if let Err(error) = std::fs::File::open(&parent).and_then(|directory| directory.sync_all()) {
                    outcome.failures.push(Failure { path: parent, reason: error.to_string() });
                }
            }
        }
    }

    /// As `publish_directory`, while programs may be at work. EBUSY: there are some in it.
    pub fn publish_directory_for_others(&self, number: u32) -> std::io::Result<()> {
        let container = self.container(number);
        if used_places().iter().any(|place| place.starts_with(&container)) {
            return Err(errno(libc::EBUSY));
        }
        let published = self.publish_directory(number, THREADS);
        published.map(drop).map_err(|error| match error.raw_os_error() {
            None => errno(libc::EBUSY), // it changed meanwhile
            Some(_) => error,
        })
    }

    /// A file of it that has a name in another directory changes when that one goes.
    fn publish_patiently(&self, number: u32, threads: usize) -> std::io::Result<(Seen, PathBuf)> {
        let (begin_ns, serial) = (now_ns(), self.serial(number));
        let published = (1..TRIES).map(|_| self.publish_directory(number, threads)).find(Result::is_ok);
        published.unwrap_or_else(|| self.publish_directory(number, threads)).inspect_err(|error| {
            self.note_move(MoveKind::Flush, number, serial, 0, begin_ns, Some(&error.to_string()));
        })
    }

    /// All that is in it becomes durable, and the copy takes its name: what was copied, and the name.
    fn publish_directory(&self, number: u32, threads: usize) -> std::io::Result<(Seen, PathBuf)> {
        let begin_ns = now_ns();
        let _claim = self.claims.take(number, PATIENCE).ok_or_else(|| errno(libc::EBUSY))?;
        let Some(path) = self.located_directory(number) else { return Ok(Default::default()) };
        let seen = self.with_mirror(number, threads, |mirror, look| {
            let seen = mirror.look(&look)?;
            let is_as_copied = || match mirror.difference(&look)? {
                None => Ok(()),
                Some(name) => Err(std::io::Error::other(format!("{} changed while it was copied", name.display()))),
            };
            self.put_directory(number, &mirror.tree(), &path, is_as_copied)?;
            Ok::<Seen, std::io::Error>(seen)
        })?;
        self.forget_mirror(number);
        self.totals.flushed_files.fetch_add(seen.files, Relaxed);
        self.totals.flushed_bytes.fetch_add(seen.bytes, Relaxed);
        let tier = Some(self.devices[self.device_of(number)].tier);
        let (kind, bytes) = (MoveKind::Flush, seen.bytes);
        self.ended.note(&Move { kind, path: &path, bytes, tier, begin_ns, error: None });
        Ok((seen, as_path(&path).into()))
    }
}
