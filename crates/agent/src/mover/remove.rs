//! Removing what policy drops at the end of a run.

use crate::agent::Agent;
use crate::mover::flush::as_path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_index::State;
use terrace_index::guard::Domain;
use terrace_index::table::root_key;
use terrace_tier::journal::Task;
use terrace_tier::{Lease, Step, Tier, reached};

impl Agent {
    /// Link and object go. False: a program has the file open, or its name changes just now.
    pub fn remove_placed(&self, number: u32) -> bool {
        let Some(_claim) = self.claims.take(number, Duration::from_secs(1)) else { return false };
        let record = self.record(number);
        let serial = self.serial(number);
        let Some(path) = self.located(number, serial) else { return record.state() != State::Current };
        let Ok(reading) = self.open_object(number) else { return false };
        let Ok(Some(lease)) = Lease::exclusive(reading.as_fd().expect("an object is a file of a directory")) else {
            return false;
        };
        let bytes = reading.stat().map_or(0, |stat| stat.size);
        let Some(gate) = self.gate() else { return false };
        let ids = self.begin_steps(vec![self.step(Task::Remove, Step::RemoveUnlinked, number, &path)]);
        if !record.change_state(State::Current, State::Committing) {
            return false;
        }
        let is_removed = self.synchronize(Domain::Names)
            && self.links_to(&path, number)
            && std::fs::remove_file(as_path(&path)).is_ok();
        if !is_removed {
            record.set_state(State::Current);
            self.finish_steps(&ids);
            return false;
        }
        reached(Step::RemoveUnlinked);
        let _ = self.object_tiers[self.device_of(number)].remove(&self.object_name(number));
        self.unreserve(number);
        record.set_state(State::Dead);
        let link = record.link_ino.swap(0, AcqRel);
        self.index.table_remove(root_key(link), number);
        drop((gate, lease, reading));
        self.finish_steps(&ids);
        let mut catalogue = self.catalogue();
        catalogue.set_path(number, serial, b"");
        let entry = catalogue.entry(number, serial);
        entry.since = Instant::now();
        let was_held = std::mem::take(&mut entry.held);
        drop(catalogue);
        if was_held {
            let _ = std::fs::remove_file(self.held_dir().join(self.object_name(number)));
        }
        self.totals.removed_files.fetch_add(1, Relaxed);
        self.totals.removed_bytes.fetch_add(bytes, Relaxed);
        reached(Step::RemoveDone);
        true
    }
}
