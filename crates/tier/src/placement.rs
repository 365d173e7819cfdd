//! Where data goes, and what makes room: pure decisions over numbers that the caller read a moment ago.
//!
//! Placement takes the fastest tier with room, and within it the least loaded directory. Eviction takes clean replicas,
//! the longest unused first, until the low watermark is met. The caller carries a decision out with an atomic
//! reservation, which may fail because others were faster; then it asks again.

/// One directory of one tier, as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Device {
    /// 0 is the fastest.
    pub tier: u32,
    /// May be negative: the file system may have lost room to others since files were placed.
    pub capacity: i64,
    pub used: i64,
    /// New files may be placed here.
    pub accepts: bool,
}

impl Device {
    pub fn free(&self) -> i64 {
        self.capacity.saturating_sub(self.used)
    }
    fn fits(&self, bytes: u64) -> bool {
        self.accepts && i64::try_from(bytes).is_ok_and(|bytes| bytes <= self.free())
    }
    /// Used share of the capacity.
    fn load(&self) -> f64 {
        if self.capacity > 0 { self.used as f64 / self.capacity as f64 } else { f64::INFINITY }
    }
}

/// The device for a file of `bytes`: index into `devices`. `None`: it belongs on the durable tier.
pub fn choose(devices: &[Device], bytes: u64) -> Option<usize> {
    choose_from(devices, bytes, 0)
}

/// The same among the tiers slower than `tier`: where a file goes that has outgrown it.
pub fn choose_below(devices: &[Device], tier: u32, bytes: u64) -> Option<usize> {
    choose_from(devices, bytes, tier.checked_add(1)?)
}

fn choose_from(devices: &[Device], bytes: u64, tier_min: u32) -> Option<usize> {
    let candidates = devices.iter().enumerate().filter(|(_, device)| device.tier >= tier_min && device.fits(bytes));
    candidates
        .min_by(|(_, a), (_, b)| {
            let by_load = a.load().total_cmp(&b.load()).then(b.free().cmp(&a.free()));
            a.tier.cmp(&b.tier).then(by_load)
        })
        .map(|(index, _)| index)
}

/// Shares of a device's capacity, 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Watermarks {
    /// Eviction starts above it…
    pub high: f64,
    /// …and stops at this.
    pub low: f64,
}

impl Watermarks {
    /// Bytes to free so that `used` comes down to the low watermark; 0 while it is not above the high one.
    pub fn excess(&self, capacity: i64, used: i64) -> u64 {
        let share = |part: f64| (capacity.max(0) as f64 * part).floor() as i64;
        if used <= share(self.high) {
            return 0;
        }
        (used - share(self.low.min(self.high))).max(0) as u64
    }
}

/// A clean replica: its object may be dropped at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// The caller's own number for it.
    pub id: u32,
    /// Bytes that dropping it gives back.
    pub bytes: u64,
    /// When it was last used, on any clock.
    pub used_at: u64,
    /// Its policy wants it out of the tier: it goes before all others.
    pub evicts: bool,
}

/// Which of one device's replicas to drop so that at least `bytes` are given back, in order. All, if even they don't suffice.
pub fn evictions(replicas: &[Replica], bytes: u64) -> Vec<u32> {
    let mut candidates: Vec<&Replica> = replicas.iter().filter(|replica| replica.bytes > 0).collect();
    candidates.sort_by_key(|replica| (!replica.evicts, replica.used_at, replica.id));
    let mut freed = 0u64;
    candidates
        .into_iter()
        .take_while(|replica| {
            let is_needed = freed < bytes;
            freed = freed.saturating_add(replica.bytes);
            is_needed
        })
        .map(|replica| replica.id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(tier: u32, capacity: i64, used: i64) -> Device {
        Device { tier, capacity, used, accepts: true }
    }

    #[test]
    fn the_fastest_tier_with_room_is_taken_and_in_it_the_least_loaded_device() {
        let devices = [device(1, 1000, 0), device(0, 100, 60), device(0, 100, 40), device(0, 100, 99)];
        assert_eq!(choose(&devices, 30), Some(2));
        assert_eq!(choose(&devices, 60), Some(2));
        assert_eq!(choose(&devices, 61), Some(0));
        assert_eq!(choose(&devices, 1001), None);
        assert_eq!(choose_below(&devices, 0, 1), Some(0));
        assert_eq!(choose_below(&devices, 1, 1), None);
        assert_eq!(choose_below(&devices, u32::MAX, 0), None);
    }

    #[test]
    fn the_longest_unused_goes_first_and_what_policy_wants_out_before_it() {
        let replica = |id, bytes, used_at, evicts| Replica { id, bytes, used_at, evicts };
        let replicas = [replica(1, 10, 5, false), replica(2, 10, 3, false), replica(3, 10, 9, true)];
        assert_eq!(evictions(&replicas, 1), [3]);
        assert_eq!(evictions(&replicas, 15), [3, 2]);
        assert_eq!(evictions(&replicas, 1000), [3, 2, 1]);
        assert!(evictions(&replicas, 0).is_empty());
    }

    fn devices() -> impl Strategy<Value = Vec<Device>> {
        let one = (0u32..4, -10i64..2000, -10i64..2000, any::<bool>())
            .prop_map(|(tier, capacity, used, accepts)| Device { tier, capacity, used, accepts });
        proptest::collection::vec(one, 0..10)
    }

    fn replicas() -> impl Strategy<Value = Vec<Replica>> {
        let one = (0u64..100, 0u64..50, any::<bool>());
        proptest::collection::vec(one, 0..30).prop_map(|all| {
            let numbered = all.into_iter().enumerate();
            numbered.map(|(i, (bytes, used_at, evicts))| Replica { id: i as u32, bytes, used_at, evicts }).collect()
        })
    }

    proptest! {
        #[test]
        fn nothing_is_placed_where_it_does_not_fit(devices in devices(), bytes in 0u64..2500) {
            if let Some(chosen) = choose(&devices, bytes) {
                prop_assert!(devices[chosen].accepts);
                prop_assert!(bytes as i64 <= devices[chosen].capacity - devices[chosen].used);
            }
        }

        #[test]
        fn no_faster_tier_with_room_is_passed_over(devices in devices(), bytes in 0u64..2500) {
            let chosen = choose(&devices, bytes);
            for device in devices.iter().filter(|device| device.fits(bytes)) {
                let chosen = chosen.expect("some device has room");
                prop_assert!(devices[chosen].tier <= device.tier);
                prop_assert!(devices[chosen].tier < device.tier || devices[chosen].load() <= device.load());
            }
        }

        #[test]
        fn what_outgrows_a_tier_goes_to_a_slower_one(devices in devices(), bytes in 0u64..2500, tier in 0u32..4) {
            if let Some(chosen) = choose_below(&devices, tier, bytes) {
                prop_assert!(devices[chosen].tier > tier);
            }
        }

        #[test]
        fn placing_until_none_is_chosen_never_exceeds_capacity(mut devices in devices(), bytes in 1u64..300) {
            let before: Vec<bool> = devices.iter().map(|device| device.free() >= 0).collect();
            while let Some(chosen) = choose(&devices, bytes) {
                devices[chosen].used += bytes as i64;
            }
            for (device, had_room) in devices.iter().zip(before) {
                prop_assert!(!had_room || device.used <= device.capacity);
            }
        }

        #[test]
        fn eviction_frees_enough_and_not_one_replica_more(replicas in replicas(), bytes in 0u64..2000) {
            let chosen = evictions(&replicas, bytes);
            let size = |id: &u32| replicas[*id as usize].bytes;
            let freed: u64 = chosen.iter().map(size).sum();
            let total: u64 = replicas.iter().map(|replica| replica.bytes).sum();
            prop_assert!(freed >= bytes.min(total));
            if let Some(last) = chosen.last() {
                prop_assert!(freed - size(last) < bytes, "the last was needed");
            }
        }

        #[test]
        fn nothing_that_stays_was_unused_for_longer_than_what_goes(replicas in replicas(), bytes in 0u64..2000) {
            let chosen = evictions(&replicas, bytes);
            let goes = |replica: &&Replica| chosen.contains(&replica.id);
            for gone in replicas.iter().filter(goes) {
                for kept in replicas.iter().filter(|replica| replica.bytes > 0 && !goes(replica)) {
                    prop_assert!((!gone.evicts, gone.used_at) <= (!kept.evicts, kept.used_at));
                }
            }
        }

        #[test]
        fn freeing_the_excess_ends_at_the_low_watermark(capacity in 0i64..1_000_000, used in 0i64..1_000_000) {
            let watermarks = Watermarks { high: 0.9, low: 0.7 };
            let excess = watermarks.excess(capacity, used);
            let share = |part: f64| (capacity as f64 * part).floor() as i64;
            prop_assert_eq!(used - excess as i64, if used <= share(0.9) { used } else { share(0.7) });
        }
    }
}
