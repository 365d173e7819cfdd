//! Predicts one finished run from the bytes that it really moved: what its report compares the measured time with.
//!
//! Equation 5 with the bytes of each tier known instead of derived (upper bound), and equation 4 (lower bound: what the
//! page cache can hide, it hides). Flushing runs beside the program; what is left of it after the program's end waits.

use crate::equations::seconds;
use crate::error::{ModelError, positive};
use serde::{Deserialize, Serialize};

/// Bandwidths of one tier as measured, bytes a second, over all processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierRates {
    pub tier: String,
    pub read_bytes_s: f64,
    pub write_bytes_s: f64,
    /// What reads and writes cost when the page cache takes them. `None`: this tier has none (it is memory), or it is
    /// not to be counted on.
    pub cached_read_bytes_s: Option<f64>,
    pub cached_write_bytes_s: Option<f64>,
}

/// Bytes that programs moved to and from one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierTraffic {
    /// Bytes read for the first time from this tier (input): no cache can hold them yet.
    pub first_read_bytes: u64,
    /// Bytes read that the run itself had written, or had read before.
    pub again_read_bytes: u64,
    pub written_bytes: u64,
}

/// What a run did. Tiers are ordered fast to slow, the last is the durable one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunProfile {
    pub tiers: Vec<TierTraffic>,
    /// Bytes that were flushed to the durable tier, at any time.
    pub flushed_bytes: u64,
    /// Seconds in which the program did neither read nor write (computing), if known; else zero.
    pub compute_s: f64,
}

/// A run's time by the closed form, seconds. Neither bounds what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The page cache takes all but first reads, and flushing is hidden behind the program's own time as far as it goes.
    pub with_page_cache_s: f64,
    /// Every byte moves at its tier's bandwidth, one after the other, and flushing comes after all of it.
    pub without_page_cache_s: f64,
    /// The same bytes with the durable tier alone (equation 1): a run without Terrace, without page cache.
    pub durable_alone_s: f64,
    /// Time that the flushed bytes need at the durable tier's write bandwidth. Part of both as said there.
    pub flush_s: f64,
}

/// Predicts a run from what it moved. `rates` has one entry for each of the profile's tiers, in the same order.
pub fn predict_run(profile: &RunProfile, rates: &[TierRates]) -> Result<Prediction, ModelError> {
    if profile.tiers.len() != rates.len() || rates.is_empty() {
        return Err(ModelError::TierCount { profile: profile.tiers.len(), rates: rates.len() });
    }
    for rate in rates {
        positive("read_bytes_s", rate.read_bytes_s)?;
        positive("write_bytes_s", rate.write_bytes_s)?;
        positive("cached_read_bytes_s", rate.cached_read_bytes_s.unwrap_or(f64::INFINITY))?;
        positive("cached_write_bytes_s", rate.cached_write_bytes_s.unwrap_or(f64::INFINITY))?;
    }
    let durable = &rates[rates.len() - 1];
    let compute_s = profile.compute_s.max(0.0);

    let mut direct_s = compute_s;
    let mut cached_s = compute_s;
    let mut durable_alone_s = compute_s;
    for (traffic, rate) in profile.tiers.iter().zip(rates) {
        let (first, again) = (traffic.first_read_bytes as f64, traffic.again_read_bytes as f64);
        let written = traffic.written_bytes as f64;
        // A cache can't be slower than what it caches: a tier measured faster than its cache keeps its own rate.
        let cached_read = rate.cached_read_bytes_s.map_or(rate.read_bytes_s, |cached| cached.max(rate.read_bytes_s));
        let cached_write =
            rate.cached_write_bytes_s.map_or(rate.write_bytes_s, |cached| cached.max(rate.write_bytes_s));
        direct_s += seconds(first + again, rate.read_bytes_s) + seconds(written, rate.write_bytes_s);
        cached_s += seconds(first, rate.read_bytes_s) + seconds(again, cached_read) + seconds(written, cached_write);
        durable_alone_s += seconds(first + again, durable.read_bytes_s) + seconds(written, durable.write_bytes_s);
    }
    let flush_s = seconds(profile.flushed_bytes as f64, durable.write_bytes_s);
    Ok(Prediction {
        with_page_cache_s: cached_s.max(flush_s),
        without_page_cache_s: direct_s + flush_s,
        durable_alone_s,
        flush_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIB;
    use proptest::prelude::*;

    const MIB_BYTES: u64 = 1 << 20;

    fn rates() -> Vec<TierRates> {
        vec![
            TierRates {
                tier: "ram".into(),
                read_bytes_s: 4000.0 * MIB,
                write_bytes_s: 2000.0 * MIB,
                cached_read_bytes_s: None,
                cached_write_bytes_s: None,
            },
            TierRates {
                tier: "durable".into(),
                read_bytes_s: 1000.0 * MIB,
                write_bytes_s: 100.0 * MIB,
                cached_read_bytes_s: Some(4000.0 * MIB),
                cached_write_bytes_s: Some(1000.0 * MIB),
            },
        ]
    }

    /// Reads 1000 MiB of input, keeps 4000 MiB in memory and reads them again, writes 500 MiB below, flushes 1000 MiB.
    fn profile() -> RunProfile {
        RunProfile {
            tiers: vec![
                TierTraffic {
                    first_read_bytes: 0,
                    again_read_bytes: 4000 * MIB_BYTES,
                    written_bytes: 4000 * MIB_BYTES,
                },
                TierTraffic { first_read_bytes: 1000 * MIB_BYTES, again_read_bytes: 0, written_bytes: 500 * MIB_BYTES },
            ],
            flushed_bytes: 1000 * MIB_BYTES,
            compute_s: 0.0,
        }
    }

    #[test]
    fn a_run_is_bounded_by_its_bytes_at_each_tiers_bandwidth() {
        let prediction = predict_run(&profile(), &rates()).unwrap();
        // Upper: 4000/4000 + 4000/2000 + 1000/1000 + 500/100 + flush 1000/100 = 1 + 2 + 1 + 5 + 10.
        assert!((prediction.without_page_cache_s - 19.0).abs() < 1e-9);
        // Lower: 1 + 2 + 1 + 500/1000 = 4.5, but flushing 1000 MiB takes 10 in any case.
        assert!((prediction.with_page_cache_s - 10.0).abs() < 1e-9);
        // Alone: 5000/1000 + 4500/100 = 5 + 45.
        assert!((prediction.durable_alone_s - 50.0).abs() < 1e-9);
        assert!((prediction.flush_s - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_without_flush_is_bounded_below_by_the_page_cache() {
        let kept = RunProfile { flushed_bytes: 0, ..profile() };
        assert!((predict_run(&kept, &rates()).unwrap().with_page_cache_s - 4.5).abs() < 1e-9);
    }

    #[test]
    fn each_tier_needs_its_bandwidth() {
        let error = predict_run(&profile(), &rates()[..1]).unwrap_err();
        assert_eq!(error, ModelError::TierCount { profile: 2, rates: 1 });
        assert!(predict_run(&RunProfile::default(), &[]).is_err());
        let mut zero = rates();
        zero[1].write_bytes_s = 0.0;
        assert!(predict_run(&profile(), &zero).unwrap_err().to_string().contains("write_bytes_s"));
    }

    proptest! {
        #[test]
        fn the_lower_bound_is_never_above_the_upper(
            traffic in proptest::collection::vec((0u64..1 << 42, 0u64..1 << 42, 0u64..1 << 42), 1..5),
            speeds in proptest::collection::vec((1.0..1e11f64, 1.0..1e11f64, proptest::option::of(1.0..1e11f64)), 5),
            flushed_bytes in 0u64..1 << 42,
            compute_s in 0.0..1e4f64,
        ) {
            let profile = RunProfile {
                tiers: traffic.iter().map(|&(first_read_bytes, again_read_bytes, written_bytes)|
                    TierTraffic { first_read_bytes, again_read_bytes, written_bytes }).collect(),
                flushed_bytes,
                compute_s,
            };
            let rates: Vec<TierRates> = speeds[..traffic.len()].iter().map(|&(read_bytes_s, write_bytes_s, cached)|
                TierRates { tier: "any".into(), read_bytes_s, write_bytes_s, cached_read_bytes_s: cached, cached_write_bytes_s: cached }).collect();
            let prediction = predict_run(&profile, &rates)?;
            prop_assert!(prediction.with_page_cache_s <= prediction.without_page_cache_s * (1.0 + 1e-12));
            prop_assert!(prediction.with_page_cache_s >= prediction.flush_s);
            prop_assert!(prediction.with_page_cache_s >= compute_s);
        }
    }
}
