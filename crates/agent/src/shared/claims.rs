//! Claims: at any time at most one thread of the agent works on a record.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct Claims {
    taken: Mutex<HashSet<u32>>,
    given_back: Condvar,
}

/// Given back when dropped.
pub struct Claim<'a> {
    claims: &'a Claims,
    record: u32,
}

impl Claims {
    pub fn try_take(&self, record: u32) -> Option<Claim<'_>> {
        // A claim that was not got must not exist: dropping it would give back somebody else's.
        let is_new = self.taken.lock().unwrap().insert(record);
        is_new.then(|| Claim { claims: self, record })
    }

    /// Waits for it at most this long.
    pub fn take(&self, record: u32, patience: Duration) -> Option<Claim<'_>> {
        let deadline = Instant::now() + patience;
        let mut taken = self.taken.lock().unwrap();
        while !taken.insert(record) {
            let left = deadline.checked_duration_since(Instant::now())?;
            taken = self.given_back.wait_timeout(taken, left).unwrap().0;
        }
        Some(Claim { claims: self, record })
    }

    pub fn all(&self) -> Vec<u32> {
        self.taken.lock().unwrap().iter().copied().collect()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.taken.lock().unwrap().remove(&self.record);
        self.claims.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_worked_on_by_one_thread_at_a_time() {
        let claims = Claims::default();
        let first = claims.try_take(1).unwrap();
        assert!(claims.try_take(1).is_none());
        assert!(claims.try_take(2).is_some());
        assert!(claims.take(1, Duration::from_millis(5)).is_none());
        drop(first);
        assert!(claims.take(1, Duration::from_millis(5)).is_some());
    }
}
