//! Durable files that have a record: known by the root's inode, and by what they were when they were equal to their object.

use crate::link;
use core::sync::atomic::Ordering::*;
use terrace_index::{Index, Record, State};

/// The record of a durable file that is still as it was when it was equal to its object.
pub fn record_of_durable(index: Index, status: &libc::stat) -> Option<(u32, &'static Record)> {
    let number = index.record_of_root_ino(status.st_ino)?;
    // SAFETY: the index is mapped for the life of the process.
    let record: &'static Record = unsafe { &*(link::record(&index, number) as *const Record) };
    let same = record.durable_ino.load(Acquire) == status.st_ino
        && record.durable_size.load(Relaxed) == status.st_size as u64
        && record.durable_mtime_ns.load(Relaxed) == nanoseconds(status.st_mtime, status.st_mtime_nsec)
        && record.durable_ctime_ns.load(Relaxed) == nanoseconds(status.st_ctime, status.st_ctime_nsec);
    same.then_some((number, record))
}

/// The same, and the record of a file that is just getting its name: the rename gives it another change time than the record knows yet.
pub fn record_of_named(index: Index, status: &libc::stat) -> Option<(u32, &'static Record)> {
    let being_named = || {
        let number = index.record_of_root_ino(status.st_ino)?;
        // SAFETY: as above.
        let record: &'static Record = unsafe { &*(link::record(&index, number) as *const Record) };
        let same = record.durable_ino.load(Acquire) == status.st_ino && record.state() == State::Committing;
        same.then_some((number, record))
    };
    // The change time is stored before the state: who comes too late for the one finds the other.
    record_of_durable(index, status).or_else(being_named).or_else(|| record_of_durable(index, status))
}

pub fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}
