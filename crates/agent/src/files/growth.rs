//! Files that grow unseen: a program without the library writes natively, so nobody counts its bytes on the way.
//!
//! While such a file is open for writing, its size is looked at every few milliseconds, and its tier's reservations are made after
//! the fact, with as much ahead as it grew since the last look. So new files are placed lower, and clean replicas evicted,
//! before the tier's file system is full. (The file itself stays where it is: its descriptors can't be exchanged.)

use crate::files::Files;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::*;
use terrace_index::{FLAG_MAPPED, FLAG_WATCHED, State};

/// By record: its serial, and the bytes that it had at the last look.
pub type GrowthTracker = BTreeMap<u32, (u64, i64)>;

impl Files {
    pub fn watch_growth(&self, number: u32) {
        self.growth.lock().unwrap().insert(number, (self.serial(number), 0));
    }

    /// Looks at each of them once. True while there are any.
    pub fn count_growth(&self) -> bool {
        let mut growth = self.growth.lock().unwrap();
        let mut has_grown = false;
        growth.retain(|&number, (serial, before)| {
            let record = self.record(number);
            let is_open = record.flags.load(SeqCst) & FLAG_MAPPED != 0
                && matches!(record.state(), State::New | State::Current | State::Committing);
            if self.serial(number) != *serial {
                return false;
            }
            if !is_open {
                // Whoever opens it from now on tells us again; who did so meanwhile has set the other flag before.
                record.flags.fetch_and(!FLAG_WATCHED, SeqCst);
                return record.flags.load(SeqCst) & FLAG_MAPPED != 0 && record.state() == State::Current;
            }
            let Ok(found) = rustix::fs::stat(self.object_path(number)) else { return record.state() == State::New };
            let allocated = found.st_blocks * 512;
            let ahead = (allocated - *before).max(0);
            *before = allocated;
            let missing = allocated + ahead - record.reserved.load(Acquire);
            if ahead > 0 && missing > 0 {
                // More than the device has, if need be: the bytes are there already.
                self.index.header.devices[self.device_of(number)].used.fetch_add(missing, AcqRel);
                record.reserved.fetch_add(missing, AcqRel);
                has_grown = true;
                self.plan_early(number);
            }
            true
        });
        let any = !growth.is_empty();
        drop(growth);
        if has_grown {
            self.adjust_capacity();
            self.keep_watermarks();
        }
        any
    }
}
