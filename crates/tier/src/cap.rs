//! A bandwidth cap: a token bucket that mover threads share.
//!
//! Each taker books the next free stretch of time and sleeps until it begins, so the cap holds for all of them together
//! and none is starved. Reason for booking before waiting: no thread wakes another.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Idle time is saved up to this much, so that a small file after a pause doesn't wait.
const SAVED_MAX: Duration = Duration::from_millis(50);
/// A taker looks at its caller's reasons to give up this often.
const NAP: Duration = Duration::from_millis(2);

#[derive(Debug)]
pub struct BandwidthCap {
    bytes_per_s: f64,
    /// When all that was booked will have passed.
    booked_until: Mutex<Instant>,
}

impl BandwidthCap {
    pub fn new(bytes_per_s: u64) -> BandwidthCap {
        BandwidthCap { bytes_per_s: bytes_per_s.max(1) as f64, booked_until: Mutex::new(Instant::now()) }
    }

    /// Waits until `bytes` may pass. False when `give_up` said so meanwhile: then nothing was taken.
    pub fn take(&self, bytes: u64, give_up: impl Fn() -> bool) -> bool {
        let length = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let end = {
            let mut booked_until = self.booked_until.lock().unwrap();
            let oldest = Instant::now().checked_sub(SAVED_MAX).unwrap_or_else(Instant::now);
            *booked_until = (*booked_until).max(oldest) + length;
            *booked_until
        };
        loop {
            let now = Instant::now();
            if now >= end {
                return true;
            }
            if give_up() {
                let mut booked_until = self.booked_until.lock().unwrap();
                *booked_until = booked_until.checked_sub(length).unwrap_or(now);
                return false;
            }
            std::thread::sleep(NAP.min(end - now));
        }
    }
}
