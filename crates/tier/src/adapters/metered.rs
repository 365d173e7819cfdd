//! A tier that counts: operations, bytes and seconds of each kind.

use super::{Operation, Watch, Watched};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub type Metered<T> = Watched<T, Meter>;

#[derive(Debug, Default)]
pub struct Meter {
    counters: [Counter; Operation::ALL.len()],
}

#[derive(Debug, Default)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

/// What a meter shows for one kind of operation. Only those that succeeded count.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MeterReading {
    pub count: u64,
    pub bytes: u64,
    /// Summed over threads.
    pub elapsed: Duration,
}

impl Meter {
    pub fn new() -> Meter {
        Meter::default()
    }

    pub fn of(&self, operation: Operation) -> MeterReading {
        let counter = &self.counters[operation as usize];
        MeterReading {
            count: counter.count.load(Relaxed),
            bytes: counter.bytes.load(Relaxed),
            elapsed: Duration::from_nanos(counter.nanoseconds.load(Relaxed)),
        }
    }
}

impl Watch for Meter {
    fn after(&self, operation: Operation, bytes: usize, elapsed: Duration) {
        let counter = &self.counters[operation as usize];
        counter.count.fetch_add(1, Relaxed);
        counter.bytes.fetch_add(bytes as u64, Relaxed);
        counter.nanoseconds.fetch_add(elapsed.as_nanos() as u64, Relaxed);
    }
}
