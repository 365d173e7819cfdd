//! Removing what policy drops at the end of a run.

use crate::files::Files;
use crate::shared::ended::{Move, now_ns};
use crate::shared::path::as_path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::control::MoveKind;
use terrace_index::State;
use terrace_index::guard::Domain;
use terrace_index::table::root_key;
use terrace_tier::journal::Task;
use terrace_tier::{Lease, Reading, Step, reached};

/// What became of a file that is to go.
pub enum Removal {
    /// Name and object are gone. The kernel frees the object's blocks or memory, which takes a quarter of a second per GiB,
    /// when this is dropped: at a time when nobody waits.
    Done(Box<dyn Reading>),
    NotNeeded,
    /// A program has the file open, or its name changes just now.
    Refused,
}

impl Files {
    /// Link and object go.
    pub fn remove_placed(&self, number: u32) -> Removal {
        let begin_ns = now_ns();
        let Some(_claim) = self.claims.take(number, Duration::from_secs(1)) else { return Removal::Refused };
        let record = self.record(number);
        let serial = self.serial(number);
        let Some(path) = self.located(number, serial) else {
            return if record.state() == State::Current { Removal::Refused } else { Removal::NotNeeded };
        };
        let Ok(reading) = self.open_object(number) else { return Removal::Refused };
        let Ok(Some(lease)) = Lease::exclusive(reading.as_fd().expect("an object is a file of a directory")) else {
            return Removal::Refused;
        };
        let bytes = reading.stat().map_or(0, |stat| stat.size);
        let Some(barrier) = self.commit_barrier() else { return Removal::Refused };
        let ids = self.begin_steps(vec![self.step(Task::Remove, Step::RemoveUnlinked, number, &path)]);
        if !record.change_state(State::Current, State::Committing) {
            self.finish_steps(&ids);
            return Removal::NotNeeded;
        }
        let is_removed = self.synchronize(Domain::Names)
            && self.links_to(&path, number)
            && std::fs::remove_file(as_path(&path)).is_ok();
        if !is_removed {
            record.set_state(State::Current);
            self.finish_steps(&ids);
            return Removal::Refused;
        }
        reached(Step::RemoveUnlinked);
        let _ = self.remove_object(number);
        self.unreserve(number);
        record.set_state(State::Dead);
        let link = record.link_ino.swap(0, AcqRel);
        self.index.table_remove(root_key(link), number);
        drop((barrier, lease));
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
        let tier = self.devices[self.device_of(number)].tier;
        self.totals.removed(tier, bytes);
        let (path, tier) = (&path, Some(tier));
        self.ended.note(&Move { kind: MoveKind::Remove, path, bytes, tier, begin_ns, error: None });
        reached(Step::RemoveDone);
        Removal::Done(reading)
    }
}
