//! Recovery: what an agent finds that comes after one which was killed, or after a machine that stopped.
//!
//!   walk the root ─▶ links to objects     ─▶ Current again
//!                 ─▶ links to nothing     ─▶ the held version, or a loss that is told by name
//!   steps under way ─▶ finished or undone, by what the tree says
//!   objects without a link, temporaries ─▶ removed
//!
//! Invariant: no object is removed that a link leads to, and no link is removed whose object is there.

use crate::files::Files;
use crate::files::walk::{FoundLink, Walked};
use crate::shared::path::as_path;
use rustix::fs::FileType;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, SystemTime};
use terrace_core::control::Failure;
use terrace_index::table::root_key;
use terrace_index::{DIRECTORY_SUFFIX, FLAG_RENAMING, FLAG_UNLINKED, RECORDS, State, parse_name};
use terrace_tier::journal::{Batch, Snapshot, Task};
use terrace_tier::{Stat, Tier};

/// What a recovery did.
#[derive(Debug, Default)]
pub struct RecoverReport {
    /// Made durable now.
    pub flushed: Vec<PathBuf>,
    /// Files that policy keeps in their tier.
    pub kept: Vec<PathBuf>,
    /// Half-made copies that were removed.
    pub discarded_temporaries: usize,
    /// Objects that no name leads to.
    pub discarded_objects: usize,
    /// The tier's copy is lost; the last durable version is back.
    pub restored: Vec<PathBuf>,
    /// The bytes are gone with their tier: each file and why.
    pub lost: Vec<(PathBuf, String)>,
    /// Still only in a tier, and why.
    pub failures: Vec<Failure>,
}

/// A program that is just creating a file has not linked it yet.
const CREATION_GRACE: Duration = Duration::from_secs(10);

impl Files {
    pub fn recover_at_start(&self) -> RecoverReport {
        let mut report = RecoverReport::default();
        let snapshot = self.journal.as_ref().and_then(|journal| match journal.load() {
            Ok(snapshot) => Some(snapshot),
            Err(error) => {
                self.warn(error.to_string());
                None
            }
        });
        let snapshot = snapshot.unwrap_or_default();
        report.discarded_temporaries = self.discard_temporaries();
        if !self.has_history(&snapshot) {
            self.end_spilled();
            return report;
        }
        let walked = self.walk(&self.wanted_inodes());
        let is_fresh = self.index.records_end() == 0;
        if is_fresh {
            self.adopt(&walked, &snapshot);
        } else {
            self.resume(&walked, &snapshot);
        }
        self.look_for_losses(&walked, &mut report);
        (0..self.index.records_end())
            .filter(|&number| self.is_directory(number))
            .for_each(|number| self.plan_mirror(number));
        self.sort_held(&walked);
        if walked.closed_directories == 0 {
            report.discarded_objects = self.discard_orphans(&walked, is_fresh);
            self.discard_mirrors(|name| walked.links.iter().any(|link| (link.number, link.random) == name));
            self.end_spilled();
        } else {
            let count = walked.closed_directories;
            self.warn(format!("{count} directories below the root can't be read: links in them were not found"));
        }
        self.forget_steps(&snapshot);
        report
    }

    fn discard_temporaries(&self) -> usize {
        let mut count = 0;
        for tier in &self.object_tiers {
            count += tier.discard_temporaries([std::path::Path::new("")]).unwrap_or(0);
        }
        if !self.was_here_before {
            return count;
        }
        count += self.root_tier.discard_temporaries([]).unwrap_or(0);
        if let Ok(entries) = std::fs::read_dir(self.tmp_dir()) {
            // Links on their way into the tree, whose files are found without them; directories of which there is a copy.
            let remove = |path: &std::path::Path| std::fs::remove_file(path).or_else(|_| std::fs::remove_dir_all(path));
            count += entries.flatten().filter(|entry| remove(&entry.path()).is_ok()).count();
        }
        count
    }

    /// Anything that an earlier agent may have left. Without it a walk would find nothing.
    fn has_history(&self, snapshot: &Snapshot) -> bool {
        let has_entries =
            |path: &std::path::Path| std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some());
        self.index.records_end() > 0
            || !snapshot.files.is_empty()
            || !snapshot.steps.is_empty()
            || self.was_here_before && (has_entries(&self.held_dir()) || has_entries(&self.kept_dir()))
            || self.devices.iter().any(|place| has_entries(&place.dir))
    }

    fn wanted_inodes(&self) -> HashMap<u64, u32> {
        let has_file = |state| matches!(state, State::Committing | State::Moving | State::Clean | State::Durable);
        (0..self.index.records_end())
            .filter(|&number| has_file(self.record(number).state()))
            .map(|number| (self.record(number).durable_ino.load(Acquire), number))
            .filter(|(ino, _)| *ino != 0)
            .collect()
    }

    fn object_stat(&self, link: &FoundLink) -> Option<Stat> {
        let mut name = crate::shared::index_file::object_name(link.number, link.random);
        if link.is_directory {
            name.push(&DIRECTORY_SUFFIX[1..]);
        }
        let found = rustix::fs::lstat(self.devices[link.device].dir.join(name)).ok()?;
        let is_as_said = |stat: &Stat| {
            stat.is_file() != link.is_directory && (stat.is_file() || FileType::from_raw_mode(found.st_mode).is_dir())
        };
        Some(Stat::from(&found)).filter(is_as_said)
    }

    /// A new index: records are made for the links that are there, under the numbers that the links say.
    fn adopt(&self, walked: &Walked, snapshot: &Snapshot) {
        let shown: HashMap<PathBuf, u64> =
            snapshot.files.iter().map(|(_, entry)| (entry.object.path(), entry.ino)).collect();
        let mut found: HashMap<u32, (&FoundLink, Stat)> = HashMap::new();
        for link in &walked.links {
            if (link.number as usize) < RECORDS
                && let Some(stat) = self.object_stat(link)
            {
                found.entry(link.number).or_insert((link, stat));
            }
        }
        let mut numbers: Vec<u32> = found.keys().copied().collect();
        numbers.sort();
        self.index.adopt_records(&numbers);
        for number in numbers {
            let (link, stat) = &found[&number];
            let record = self.record(number);
            let bytes = if link.is_directory { 0 } else { stat.allocated.max(stat.size) as i64 };
            record.random.store(link.random, Release);
            record.device.store(link.device as u32, Release);
            record.object_ino.store(stat.ino, Release);
            record.reserved.store(bytes, Release);
            self.index.header.devices[link.device].used.fetch_add(bytes, AcqRel);
            if let Some(ino) = shown.get(&self.object_path(number)) {
                record.ino.store(*ino, Release);
            }
            self.index.table_put(self.object_key(number), number);
            if link.is_directory {
                record.set_state(State::Directory);
                self.index.header.directories.fetch_add(1, SeqCst);
            } else {
                record.set_state(State::Current);
            }
            self.named(number, &link.path);
        }
        // Two agents' links with one number: the later ones become real files at once.
        for link in &walked.links {
            let is_taken = found.get(&link.number).is_some_and(|(taken, _)| taken.random != link.random);
            if is_taken && link.is_directory {
                let reason =
                    format!("{} can't be looked after: its record has another use", as_path(&link.path).display());
                self.warn(reason);
            } else if is_taken && self.object_stat(link).is_some() {
                self.settle_foreign(link);
            }
        }
    }

    /// Makes a real file of a link that has no record.
    fn settle_foreign(&self, link: &FoundLink) {
        let name = crate::shared::index_file::object_name(link.number, link.random);
        let settled = (|| {
            let relative = self.relative(&link.path).ok_or(libc::EINVAL)?;
            let tier = &self.object_tiers[link.device];
            let source = tier.open(&name).map_err(|error| error.errno())?;
            let mut sink = self.root_tier.create(relative).map_err(|error| error.errno())?;
            terrace_tier::copy(&*source, &mut *sink, &Default::default()).map_err(|error| error.errno())?;
            sink.sync().map_err(|error| error.errno())?;
            sink.commit(relative).map_err(|error| error.errno())?;
            tier.remove(&name).map_err(|error| error.errno())
        })();
        if let Err(errno) = settled {
            let reason = std::io::Error::from_raw_os_error(errno);
            self.warn(format!("can't make {} durable: {reason}", as_path(&link.path).display()));
        }
    }

    /// The index of a killed agent: programs may still use it, so records go on from where they are.
    fn resume(&self, walked: &Walked, snapshot: &Snapshot) {
        let links: HashMap<(u32, u64), &FoundLink> =
            walked.links.iter().map(|link| ((link.number, link.random), link)).collect();
        let header = &self.index.header;
        let (mut clean, mut durable, mut directories) = (0, 0, 0);
        let mut exchanges = vec![];
        for number in 0..self.index.records_end() {
            let record = self.record(number);
            let serial = record.serial.load(Acquire);
            if serial == 0 {
                continue;
            }
            let link = links.get(&(number, record.random.load(Acquire))).copied();
            match record.state() {
                State::Committing => self.resume_commit(number, link, walked),
                State::Moving => match self.roots_file_of(number, link, walked) {
                    Some(path) if self.exchanged_for(number).is_none() => exchanges.push((number, path)),
                    _ => self.resume_move(number, link, snapshot),
                },
                _ => {}
            }
            match record.state() {
                State::Current => {
                    if let Some(link) = link {
                        self.named(number, &link.path);
                    }
                }
                State::Directory => match link {
                    Some(link) => {
                        directories += 1;
                        self.named(number, &link.path);
                    }
                    // Its program was killed as it made or removed it.
                    None if walked.closed_directories == 0 => record.set_state(State::Dead),
                    None => directories += 1,
                },
                State::Clean | State::Durable => {
                    record.flags.fetch_and(!FLAG_RENAMING, SeqCst);
                    let ino = record.durable_ino.load(Acquire);
                    if let Some(path) = walked.files.get(&ino) {
                        self.catalogue().set_path(number, serial, path);
                    }
                }
                State::Dead => self.catalogue().entry(number, serial).path.clear(),
                State::Moved => {
                    let target = record.moved_to.load(Acquire).saturating_sub(1);
                    self.exchanges.inherit(number, target);
                }
                _ => {}
            }
            let counted = self.counted(number);
            self.catalogue().recount(number, serial, counted);
            clean += counted.0 as i64;
            durable += counted.1 as i64;
        }
        header.directories.store(directories, SeqCst);
        header.clean_count.store(clean, SeqCst);
        header.durable_count.store(durable, SeqCst);
        for (number, path) in exchanges {
            if !self.resume_exchange(number, path) {
                self.count_as(number, self.serial(number), (true, true));
                self.record(number).set_state(State::Clean);
            }
        }
    }

    /// Of a record `Moving`, the root's file that is equal to its replica, or was: there is nothing to be told by a journal. A file that is not
    /// durable has none.
    fn roots_file_of<'a>(&self, number: u32, link: Option<&FoundLink>, walked: &'a Walked) -> Option<&'a Vec<u8>> {
        let record = self.record(number);
        let is_named = link.is_none() && record.flags.load(SeqCst) & FLAG_UNLINKED == 0;
        let ino = Some(record.durable_ino.load(Acquire)).filter(|&ino| is_named && ino != 0)?;
        walked.files.get(&ino)
    }

    /// The record of the root's file that readers of this one's replica are to have instead.
    fn exchanged_for(&self, number: u32) -> Option<u32> {
        let of = |record: u32| (self.record(record).ino.load(Acquire), self.record(record).durable_ino.load(Acquire));
        let is_it =
            |&other: &u32| other != number && of(other) == of(number) && self.record(other).state() == State::Durable;
        (0..self.index.records_end()).find(is_it).filter(|_| of(number).1 != 0)
    }

    /// A commit was under way: the tree says whether its rename happened.
    fn resume_commit(&self, number: u32, link: Option<&FoundLink>, walked: &Walked) {
        let record = self.record(number);
        if link.is_some() {
            let ino = record.durable_ino.swap(0, AcqRel);
            if ino != 0 {
                self.index.table_remove(root_key(ino), number);
            }
            record.set_state(State::Current);
            return;
        }
        let ino = record.durable_ino.load(Acquire);
        let durable = walked.files.get(&ino).filter(|_| ino != 0);
        let found = durable.and_then(|path| rustix::fs::lstat(as_path(path)).ok());
        match found {
            Some(found) => {
                let stat = Stat::from(&found);
                record.durable_size.store(stat.size, Release);
                record.durable_mtime_ns.store(stat.mtime.as_ns(), Release);
                record.durable_ctime_ns.store(stat.ctime.as_ns(), Release);
                self.index.table_put(root_key(ino), number);
                let has_object = rustix::fs::lstat(self.object_path(number)).is_ok();
                record.set_state(if has_object { State::Clean } else { State::Durable });
            }
            // Its name was being removed.
            None => {
                record.set_state(State::Dead);
                self.unreserve(number);
                let _ = self.remove_object(number);
            }
        }
    }

    /// A live move was under way. Without its last step it didn't happen; with it, descriptors are exchanged as before. Of an exchange for the
    /// root's file that is the record of that.
    fn resume_move(&self, number: u32, link: Option<&FoundLink>, snapshot: &Snapshot) {
        if self.resume_spill(number) {
            return;
        }
        let record = self.record(number);
        let (ino, serial) = (record.ino.load(Acquire), self.serial(number));
        let step = snapshot
            .steps
            .iter()
            .find(|(_, step)| step.task == Task::Move && step.file.record == number && step.file.serial == serial);
        let target = (0..self.index.records_end()).find(|&other| {
            other != number
                && self.record(other).ino.load(Acquire) == ino
                && matches!(self.record(other).state(), State::Current | State::Durable | State::Clean)
        });
        if link.is_some() {
            // The copy has no name, and nobody has it open.
            if let Some(copy) = target {
                self.forget_durable(copy);
                self.index.table_remove(self.object_key(copy), copy);
                if self.record(copy).object_ino.load(Acquire) != 0 {
                    let _ = self.remove_object(copy);
                }
                self.unreserve(copy);
                self.record(copy).set_state(State::Dead);
            }
            record.set_state(State::Current);
            return;
        }
        match target {
            Some(target) if step.is_some() || self.exchanged_for(number) == Some(target) => {
                if step.is_none() {
                    self.index.table_put(root_key(record.durable_ino.load(Acquire)), target);
                }
                record.moved_to.store(target + 1, Release);
                record.set_state(State::Moved);
                let _ = self.remove_object(number);
                self.unreserve(number);
            }
            // A file without a name: its copy went with the agent, the object is still what programs have open.
            _ => record.set_state(State::Dead),
        }
    }

    /// Links whose object is gone.
    fn look_for_losses(&self, walked: &Walked, report: &mut RecoverReport) {
        for link in &walked.links {
            if self.object_stat(link).is_some() {
                continue;
            }
            // The object may have been evicted, and the link replaced, since the walk.
            let still = crate::shared::path::read_link(&link.path).is_some_and(|text| {
                let text = text.strip_suffix(DIRECTORY_SUFFIX.as_bytes()).unwrap_or(&text);
                text.ends_with(
                    crate::shared::index_file::object_name(link.number, link.random).as_os_str().as_encoded_bytes(),
                )
            });
            if !still {
                continue;
            }
            let path = PathBuf::from(as_path(&link.path));
            if link.is_directory {
                let name = crate::shared::index_file::object_name(link.number, link.random);
                match self.replace_lost_directory(&link.path, &name) {
                    Ok(true) => report.restored.push(path),
                    Ok(false) if self.is_scratch(&link.path) => {}
                    Ok(false) => report.lost.push((path, self.lost_with(link.device))),
                    Err(error) => self.warn(format!("can't make the directory {} again: {error}", path.display())),
                }
                continue;
            }
            let held = self.held_dir().join(crate::shared::index_file::object_name(link.number, link.random));
            let is_file = rustix::fs::lstat(&held).is_ok_and(|found| Stat::from(&found).is_file());
            if is_file && rustix::fs::rename(&held, &path).is_ok() {
                report.restored.push(path);
            } else {
                report.lost.push((path, self.lost_with(link.device)));
            }
        }
    }

    fn lost_with(&self, device: usize) -> String {
        let place = &self.devices[device];
        let tier = &self.settings.tiers[place.tier].name;
        format!("its bytes were only in tier `{tier}`, and {} no longer has them", place.dir.display())
    }

    /// A held version is needed while its object is newer, that is while the link to the object is in the tree.
    fn sort_held(&self, walked: &Walked) {
        let linked: HashSet<(u32, u64)> = walked.links.iter().map(|link| (link.number, link.random)).collect();
        let Ok(entries) = std::fs::read_dir(self.held_dir()) else { return };
        for entry in entries.flatten() {
            let name = parse_name(entry.file_name().as_encoded_bytes());
            let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
            match name {
                Some((number, random)) if is_file && linked.contains(&(number, random)) => {
                    let is_ours = self.index.record(number).is_some_and(|record| record.random.load(Acquire) == random);
                    if is_ours {
                        self.catalogue().entry(number, self.serial(number)).held = true;
                    }
                }
                _ => {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
    }

    /// Objects that neither a link nor a record needs.
    fn discard_orphans(&self, walked: &Walked, is_fresh: bool) -> usize {
        let linked: HashSet<(u32, u64)> = walked.links.iter().map(|link| (link.number, link.random)).collect();
        let mut count = 0;
        for (device, place) in self.devices.iter().enumerate() {
            let Ok(entries) = std::fs::read_dir(&place.dir) else { continue };
            for entry in entries.flatten() {
                let Some((number, random)) = parse_name(entry.file_name().as_encoded_bytes()) else { continue };
                if linked.contains(&(number, random)) {
                    continue;
                }
                let is_needed = !is_fresh
                    && self.index.record(number).is_some_and(|record| {
                        record.random.load(Acquire) == random
                            && record.device.load(Acquire) as usize == device
                            && !matches!(record.state(), State::Free | State::Dead | State::Durable | State::Moved)
                    });
                let is_young =
                    entry.metadata().ok().and_then(|found| found.modified().ok()).is_some_and(|time| {
                        SystemTime::now().duration_since(time).is_ok_and(|age| age < CREATION_GRACE)
                    });
                // With a fresh index no program is creating anything.
                let discard = || match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    true => self.discard_container(&entry.path()),
                    false => std::fs::remove_file(entry.path()).is_ok(),
                };
                if !is_needed && (is_fresh || !is_young) && discard() {
                    count += 1;
                }
            }
        }
        count
    }

    fn forget_steps(&self, snapshot: &Snapshot) {
        let mut batch = Batch::default();
        snapshot.steps.iter().for_each(|(id, _)| batch.finish(*id));
        snapshot.files.iter().for_each(|(key, _)| batch.remove_file(*key));
        self.write_journal(batch);
    }
}
