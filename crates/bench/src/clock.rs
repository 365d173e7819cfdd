//! The monotonic clock, and how far another process's is from ours.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Processes in which this is equal have one monotonic clock: that of a boot of a machine, in one time namespace.
pub fn identity() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    if boot.is_empty() { boot } else { format!("{} {}", boot.trim(), namespace.display()) }
}

/// Sleeps until the clock shows this; the kernel wakes us, nobody spins.
pub fn sleep_until(at_ns: u64) {
    let until = libc::timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
    // SAFETY: `until` is a valid time, nothing is written back with an absolute time.
    while unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const until, std::ptr::null_mut())
    } == libc::EINTR
    {}
}

/// Lets the kernel wake this thread as exactly as it can, instead of within 50 microseconds.
pub fn exact_timers() {
    // SAFETY: the call takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
}

pub fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

/// Another clock's distance from ours, from questions and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// Add it to our time to have the other clock's.
    pub ns: i64,
    /// The true offset lies within so much of `ns`: half of the fastest answer's way there and back.
    pub uncertainty_ns: u64,
}

impl Offset {
    /// `samples`: (our time before, the other's time, our time after). The fastest says most.
    pub fn from_samples(samples: &[(u64, u64, u64)]) -> Option<Offset> {
        let (before, other, after) = samples.iter().min_by_key(|(before, _, after)| after - before)?;
        let middle = before + (after - before) / 2;
        Some(Offset { ns: other.wrapping_sub(middle) as i64, uncertainty_ns: (after - before).div_ceil(2) })
    }
    pub fn to_other(self, ours_ns: u64) -> u64 {
        ours_ns.wrapping_add_signed(self.ns)
    }
    pub fn to_ours(self, other_ns: u64) -> u64 {
        other_ns.wrapping_add_signed(-self.ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_answer_bounds_the_offset() {
        // The other clock is 1000 ahead; answers take 10 there, and 10, 90 or 30 back.
        let samples = [(0, 1010, 20), (100, 1110, 200), (300, 1310, 340)];
        let offset = Offset::from_samples(&samples).unwrap();
        assert_eq!(offset, Offset { ns: 1000, uncertainty_ns: 10 });
        assert_eq!(offset.to_ours(offset.to_other(77)), 77);
        assert_eq!(Offset::from_samples(&[]), None);
        let behind = Offset::from_samples(&[(5000, 10, 5000)]).unwrap();
        assert_eq!(behind.to_other(5000), 10);
    }
}
