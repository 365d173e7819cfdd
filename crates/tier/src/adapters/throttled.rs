//! A tier as slow as somebody wants it: bytes a second each way, and a latency for each operation.
//! For tests and demonstrations on a machine whose disks are all fast.

use super::{Operation, Watch, Watched};
use crate::BandwidthCap;
use std::io;
use std::time::Duration;

pub type Throttled<T> = Watched<T, Throttle>;

#[derive(Debug, Default)]
pub struct Throttle {
    /// Shared by all reads of the tier.
    pub read: Option<BandwidthCap>,
    /// Shared by all writes of the tier.
    pub write: Option<BandwidthCap>,
    pub latency: Duration,
}

impl Throttle {
    pub fn bytes_per_s(read: u64, write: u64) -> Throttle {
        let cap = |bytes_per_s| Some(BandwidthCap::new(bytes_per_s));
        Throttle { read: cap(read), write: cap(write), latency: Duration::ZERO }
    }
}

impl Watch for Throttle {
    fn before(&self, operation: Operation, bytes: usize) -> io::Result<usize> {
        std::thread::sleep(self.latency);
        let cap = match operation {
            Operation::ReadAt => &self.read,
            Operation::WriteAt => &self.write,
            _ => &None,
        };
        if let Some(cap) = cap {
            cap.take(bytes as u64, || false);
        }
        Ok(bytes)
    }
}
