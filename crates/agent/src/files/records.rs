//! Records that nobody needs any more: given back while the agent lives, and cleared up when it leaves.

use crate::files::Files;
use crate::shared::index_file::live_programs;
use crate::shared::path::as_path;
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::policy::Mode as PolicyMode;
use terrace_index::State;
use terrace_tier::journal::{Batch, FileEntry, FileKey, FileState};

/// Dead records keep telling open descriptors their inode number for so long.
const DEAD_KEPT: Duration = Duration::from_secs(60);

impl Files {
    /// Gives records back that nobody needs: dead ones after a while, and durable ones when records run short.
    pub fn recycle_records(&self) {
        let end = self.index.records_end();
        let used = end as usize;
        let is_short = used > terrace_index::RECORDS / 10 * 7;
        let dead_kept = if used > terrace_index::RECORDS / 2 { Duration::from_secs(1) } else { DEAD_KEPT };
        let mut durable: Vec<(Instant, u32)> = vec![];
        for number in 0..end {
            let serial = self.serial(number);
            if serial == 0 {
                continue;
            }
            let since = |files: &Files| files.catalogue().entry(number, serial).since;
            match self.record(number).state() {
                State::Dead if since(self).elapsed() > dead_kept && !self.exchanges.is_awaited(number) => {
                    self.free(number, serial);
                }
                State::Durable if is_short && self.record(number).object_ino.load(Acquire) == 0 => {
                    durable.push((since(self), number));
                }
                _ => {}
            }
        }
        durable.sort();
        for (_, number) in durable.into_iter().take(terrace_index::RECORDS / 10) {
            self.free(number, self.serial(number));
        }
    }

    /// The record is used again from now on.
    pub fn free(&self, number: u32, serial: u64) {
        let Some(_claim) = self.claims.try_take(number) else { return };
        let record = self.record(number);
        if self.serial(number) != serial || !matches!(record.state(), State::Dead | State::Durable | State::New) {
            return;
        }
        self.unreserve(number);
        self.index.table_remove(self.object_key(number), number);
        self.forget_durable(number);
        let link = record.link_ino.load(Acquire);
        if link != 0 {
            self.index.table_remove(terrace_index::table::root_key(link), number);
        }
        self.count_as(number, serial, (false, false));
        self.catalogue().remove(number);
        self.index.free_record(number);
    }

    pub fn has_unflushed_files(&self) -> bool {
        (0..self.index.records_end()).any(|number| {
            let record = self.record(number);
            let serial = record.serial.load(Acquire);
            if record.state() == State::Directory {
                return self.catalogue().path(number, serial).is_some_and(|path| !self.is_scratch(&path));
            }
            if serial == 0 || !matches!(record.state(), State::Current | State::Committing | State::Moving) {
                return false;
            }
            match self.catalogue().path(number, serial) {
                Some(path) => self.mode(&path).flushes(),
                // It has no name in the whole tree (a walk was made): a program was killed while it removed it.
                None => self.root_is_away(),
            }
        })
    }

    /// At the end. Files that policy keeps stay: a link, its object, and a line in the journal. True: programs still use the index.
    pub fn clear_up_files(&self) -> bool {
        self.drop_early_copies();
        let mut kept = Batch::default();
        let is_used = live_programs(&self.index).next().is_some();
        let is_gone = self.root_is_gone();
        for number in 0..self.index.records_end() {
            let record = self.record(number);
            let serial = record.serial.load(Acquire);
            if serial == 0 {
                continue;
            }
            let path = self.catalogue().path(number, serial).filter(|_| !is_gone);
            match (record.state(), path) {
                (State::Current, Some(path)) => {
                    kept.put_file(FileKey { record: number, serial }, self.journal_entry(number, &path))
                }
                (State::New | State::Current, None) | (State::Dead, _) if is_used => {}
                // It may lie in a directory that we couldn't look into.
                (State::Current, None) if !self.walk_tree() => {}
                (State::Clean | State::Durable | State::New | State::Dead | State::Current, _) => {
                    record.change_state(State::Clean, State::Durable);
                    self.index.header.evictions_seq.fetch_add(1, SeqCst);
                    if record.object_ino.swap(0, AcqRel) != 0 || record.state() != State::Durable {
                        let _ = self.remove_object(number);
                    }
                    self.unreserve(number);
                }
                _ => {}
            }
        }
        if !is_used {
            self.discard_strays();
        }
        self.forget_journal(kept);
        is_used
    }

    /// Objects that no record knows: a copy that was under way when an agent was killed. No program is there that creates one.
    fn discard_strays(&self) {
        let is_known = |device: usize, (record, random): (u32, u64)| {
            self.index.record(record).is_some_and(|record| {
                matches!(record.state(), State::Current | State::Directory)
                    && record.random.load(Acquire) == random
                    && record.device.load(Acquire) as usize == device
            })
        };
        let mut strays = vec![];
        for (number, place) in self.devices.iter().enumerate() {
            let entries = std::fs::read_dir(&place.dir).into_iter().flatten().flatten();
            strays.extend(entries.filter_map(|entry| {
                let name = terrace_index::parse_name(entry.file_name().as_encoded_bytes());
                let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let is_stray = match name {
                    Some(name) => !is_known(number, name),
                    None => !is_directory,
                };
                is_stray.then(|| (entry.path(), is_directory))
            }));
        }
        // A name that we couldn't look at may lead to one. The walk asks the root's server for every directory.
        if strays.is_empty() || !self.walk_tree() {
            return;
        }
        for (path, is_directory) in strays {
            if is_directory {
                self.discard_container(&path);
            } else {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Files that stay in their tier.
    pub fn kept_files(&self) -> Vec<PathBuf> {
        let catalogue = self.catalogue();
        let current = catalogue.iter().filter(|(number, entry)| {
            self.serial(*number) == entry.serial
                && self.record(*number).state() == State::Current
                && !entry.path.is_empty()
        });
        current.map(|(_, entry)| as_path(&entry.path).into()).collect()
    }

    fn journal_entry(&self, number: u32, path: &[u8]) -> FileEntry {
        FileEntry {
            path: as_path(path).into(),
            object: self.place(number),
            state: FileState::Current,
            ino: self.record(number).ino.load(Acquire),
            ctime_ns: 0,
            durable: None,
            mode: PolicyMode::Keep,
        }
    }

    /// Replaces all of the journal by what is kept.
    fn forget_journal(&self, mut kept: Batch) {
        let Some(journal) = &self.journal else { return };
        if let Ok(snapshot) = journal.load() {
            let mut gone = Batch::default();
            snapshot.files.into_iter().for_each(|(key, _)| gone.remove_file(key));
            snapshot.steps.into_iter().for_each(|(id, _)| kept.finish(id));
            self.write_journal(gone);
        }
        self.write_journal(kept);
    }
}
