//! Claims: at any time at most one thread of the agent works on a record.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

#[derive(Default)]
pub struct Claims {
    taken: Mutex<Taken>,
    given_back: Condvar,
}

#[derive(Default)]
struct Taken {
    records: HashSet<u32>,
    /// Those that somebody else wanted meanwhile.
    wanted: HashSet<u32>,
}

impl Taken {
    /// True: it is the caller's now.
    fn insert(&mut self, record: u32) -> bool {
        let is_new = self.records.insert(record);
        if !is_new {
            self.wanted.insert(record);
        }
        is_new
    }
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

    /// Somebody was refused the record, or waits for it, since it was taken.
    pub fn is_wanted(&self, record: u32) -> bool {
        self.taken.lock().unwrap().wanted.contains(&record)
    }

    pub fn all(&self) -> Vec<u32> {
        self.taken.lock().unwrap().records.iter().copied().collect()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut taken = self.claims.taken.lock().unwrap();
        taken.records.remove(&self.record);
        taken.wanted.remove(&self.record);
        drop(taken);
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
        assert!(!claims.is_wanted(1));
        assert!(claims.try_take(1).is_none());
        assert!(claims.is_wanted(1));
        assert!(claims.try_take(2).is_some());
        assert!(claims.take(1, Duration::from_millis(5)).is_none());
        drop(first);
        let second = claims.take(1, Duration::from_millis(5));
        assert!(second.is_some() && !claims.is_wanted(1));
    }
}
