//! Time: how long a request has to wait, and what went through.
//!
//! A bandwidth is a virtual clock: the moment at which the device is free again. A request moves it on by the time that
//! its bytes take, and waits until then, so requests of all files share one rate in the order in which they came.

use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// An idle device may lag so far behind: without it, each sleep that ends late would lose bandwidth for ever.
const CREDIT_MAX: Duration = Duration::from_millis(10);
const MIB: f64 = 1024.0 * 1024.0;

/// What is wanted; 0 means no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct LimitsSpec {
    pub write_mib_s: f64,
    pub read_mib_s: f64,
    pub latency: Duration,
}

struct Bandwidth {
    bytes_per_s: f64,
    free_at: Mutex<Instant>,
}

impl Bandwidth {
    fn new(mib_s: f64) -> Option<Bandwidth> {
        (mib_s > 0.0).then(|| Bandwidth { bytes_per_s: mib_s * MIB, free_at: Mutex::new(Instant::now()) })
    }

    /// Reserves the time for `bytes`; the request that came at `now` is done at the returned moment.
    fn reserve(&self, bytes: usize, now: Instant) -> Instant {
        let mut free_at = self.free_at.lock().expect("no holder of this lock panics");
        let earliest = now.checked_sub(CREDIT_MAX).unwrap_or(now);
        *free_at = (*free_at).max(earliest) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        *free_at
    }
}

pub struct Limits {
    write: Option<Bandwidth>,
    read: Option<Bandwidth>,
    latency: Duration,
    traffic: TrafficCounters,
}

#[derive(Default)]
struct TrafficCounters {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    read_requests: AtomicU64,
    write_requests: AtomicU64,
    metadata_requests: AtomicU64,
    synced_files: AtomicU64,
    /// Metadata requests by FUSE's names for them.
    by_kind: Mutex<BTreeMap<&'static str, u64>>,
}

/// What reached the source since the mount.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq, Eq)]
pub struct Traffic {
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub read_requests: u64,
    pub write_requests: u64,
    pub metadata_requests: u64,
    pub synced_files: u64,
}

impl Limits {
    pub fn new(spec: LimitsSpec) -> Limits {
        Limits {
            write: Bandwidth::new(spec.write_mib_s),
            read: Bandwidth::new(spec.read_mib_s),
            latency: spec.latency,
            traffic: TrafficCounters::default(),
        }
    }

    /// Does a read and waits for as long as the bytes it gave take.
    pub fn read<E>(&self, io: impl FnOnce() -> Result<usize, E>) -> Result<usize, E> {
        self.traffic.read_requests.fetch_add(1, Relaxed);
        transfer(self.read.as_ref(), &self.traffic.read_bytes, io)
    }

    /// Does a write and waits for as long as the bytes it took take.
    pub fn write<E>(&self, io: impl FnOnce() -> Result<usize, E>) -> Result<usize, E> {
        self.traffic.write_requests.fetch_add(1, Relaxed);
        transfer(self.write.as_ref(), &self.traffic.written_bytes, io)
    }

    /// Waits for as long as a server takes to answer a metadata request.
    pub fn metadata(&self, kind: &'static str) {
        self.traffic.metadata_requests.fetch_add(1, Relaxed);
        *self.traffic.by_kind.lock().expect("no holder of this lock panics").entry(kind).or_default() += 1;
        if !self.latency.is_zero() {
            std::thread::sleep(self.latency);
        }
    }

    pub fn sync(&self, kind: &'static str) {
        self.traffic.synced_files.fetch_add(1, Relaxed);
        self.metadata(kind);
    }

    /// How many metadata requests of each kind there were.
    pub fn metadata_by_kind(&self) -> BTreeMap<&'static str, u64> {
        self.traffic.by_kind.lock().expect("no holder of this lock panics").clone()
    }

    pub fn traffic(&self) -> Traffic {
        let t = &self.traffic;
        Traffic {
            read_bytes: t.read_bytes.load(Relaxed),
            written_bytes: t.written_bytes.load(Relaxed),
            read_requests: t.read_requests.load(Relaxed),
            write_requests: t.write_requests.load(Relaxed),
            metadata_requests: t.metadata_requests.load(Relaxed),
            synced_files: t.synced_files.load(Relaxed),
        }
    }
}

fn transfer<E>(
    bandwidth: Option<&Bandwidth>,
    total: &AtomicU64,
    io: impl FnOnce() -> Result<usize, E>,
) -> Result<usize, E> {
    let came = Instant::now();
    let bytes = io()?;
    total.fetch_add(bytes as u64, Relaxed);
    if let Some(bandwidth) = bandwidth {
        let done = bandwidth.reserve(bytes, came);
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_share_one_bandwidth_in_their_order() {
        let bandwidth = Bandwidth::new(100.0).unwrap();
        let now = Instant::now() + Duration::from_secs(1);
        let first = bandwidth.reserve(10 << 20, now);
        let second = bandwidth.reserve(10 << 20, now);
        assert_eq!(first, now - CREDIT_MAX + Duration::from_millis(100));
        assert_eq!(second, first + Duration::from_millis(100));
    }

    #[test]
    fn an_idle_device_saves_up_only_a_little() {
        let bandwidth = Bandwidth::new(1.0).unwrap();
        let much_later = Instant::now() + Duration::from_secs(1000);
        assert_eq!(bandwidth.reserve(1 << 20, much_later), much_later - CREDIT_MAX + Duration::from_secs(1));
    }

    #[test]
    fn no_limit_means_no_wait() {
        let limits = Limits::new(LimitsSpec::default());
        let start = Instant::now();
        assert_eq!(limits.write(|| Ok::<_, ()>(1 << 40)), Ok(1 << 40));
        limits.metadata("lookup");
        assert!(start.elapsed() < Duration::from_secs(1));
        assert_eq!(limits.traffic().written_bytes, 1 << 40);
    }

    #[test]
    fn a_failed_request_takes_no_bandwidth() {
        let limits = Limits::new(LimitsSpec { write_mib_s: 0.001, ..LimitsSpec::default() });
        assert_eq!(limits.write(|| Err("no")), Err("no"));
        assert_eq!(limits.traffic().written_bytes, 0);
    }
}
