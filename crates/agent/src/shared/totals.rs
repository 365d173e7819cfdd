//! What has been done since the start, for `terrace status` and the report of a run.

use std::sync::atomic::{AtomicU64, Ordering::*};
use terrace_core::control::Counters;

/// Totals since the start, as `control::Counters` tells them; seconds in microseconds.
#[derive(Default)]
pub struct Totals {
    pub flushed_files: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub flush_us: AtomicU64,
    pub evicted_files: AtomicU64,
    pub evicted_bytes: AtomicU64,
    pub evict_us: AtomicU64,
    pub prefetched_files: AtomicU64,
    pub prefetched_bytes: AtomicU64,
    pub prefetch_us: AtomicU64,
    pub moved_live_files: AtomicU64,
    pub moved_live_bytes: AtomicU64,
    /// Files that went to other nodes, and that came from them.
    pub given_files: AtomicU64,
    pub given_bytes: AtomicU64,
    pub taken_files: AtomicU64,
    pub taken_bytes: AtomicU64,
    pub removed_files: AtomicU64,
    pub removed_bytes: AtomicU64,
    /// Bytes of flushes under way that are copied already.
    pub in_flight_bytes: AtomicU64,
    /// By tier: files made there and their bytes, counted when a file is durable or removed by policy. Those of which neither is
    /// true yet are added where the totals are told; what the program itself removed is in none.
    pub written: Vec<(AtomicU64, AtomicU64)>,
}

impl Totals {
    /// A file of this tier, with so many bytes, is durable now.
    pub fn flushed(&self, tier: usize, size: u64) {
        let (files, bytes) = &self.written[tier];
        for (total, more) in [(&self.flushed_files, 1), (&self.flushed_bytes, size), (files, 1), (bytes, size)] {
            total.fetch_add(more, Relaxed);
        }
    }

    /// Policy has removed a file of this tier, with so many bytes.
    pub fn removed(&self, tier: usize, size: u64) {
        let (files, bytes) = &self.written[tier];
        for (total, more) in [(&self.removed_files, 1), (&self.removed_bytes, size), (files, 1), (bytes, size)] {
            total.fetch_add(more, Relaxed);
        }
    }

    /// A file of so many bytes went to another node.
    pub fn given(&self, bytes: u64) {
        self.given_files.fetch_add(1, Relaxed);
        self.given_bytes.fetch_add(bytes, Relaxed);
    }

    /// A file of so many bytes came from another node.
    pub fn taken(&self, bytes: u64) {
        self.taken_files.fetch_add(1, Relaxed);
        self.taken_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn counters(&self) -> Counters {
        let count = |value: &AtomicU64| value.load(Relaxed);
        let seconds = |value: &AtomicU64| value.load(Relaxed) as f64 / 1e6;
        Counters {
            flushed_files: count(&self.flushed_files),
            flushed_bytes: count(&self.flushed_bytes),
            flush_s: seconds(&self.flush_us),
            evicted_files: count(&self.evicted_files),
            evicted_bytes: count(&self.evicted_bytes),
            evict_s: seconds(&self.evict_us),
            prefetched_files: count(&self.prefetched_files),
            prefetched_bytes: count(&self.prefetched_bytes),
            prefetch_s: seconds(&self.prefetch_us),
            moved_live_files: count(&self.moved_live_files),
            moved_live_bytes: count(&self.moved_live_bytes),
            given_files: count(&self.given_files),
            given_bytes: count(&self.given_bytes),
            taken_files: count(&self.taken_files),
            taken_bytes: count(&self.taken_bytes),
            removed_files: count(&self.removed_files),
            removed_bytes: count(&self.removed_bytes),
            ..Counters::default()
        }
    }
}
