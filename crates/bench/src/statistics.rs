//! What a sample of rates says: median and harmonic mean, with intervals that assume no distribution.
//!
//! Rates are ratios of bytes to time. Their arithmetic mean is no rate of anything; for equal bytes, all bytes over all
//! time is the harmonic mean. The median's interval is of order statistics (binomial): exact whatever the distribution. Where
//! the sample is too small for it, it is the bootstrap's, and says so.

use crate::workload::mix;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    pub low: f64,
    pub high: f64,
    pub method: Method,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    OrderStatistics,
    Bootstrap,
    /// One value has no interval.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub count: usize,
    pub median: f64,
    pub harmonic_mean: f64,
    pub min: f64,
    pub max: f64,
    pub interval: Interval,
}

const RESAMPLES: usize = 2000;

pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

/// All bytes over all time, when each rate moved as many bytes.
pub fn harmonic_mean(values: &[f64]) -> f64 {
    values.len() as f64 / values.iter().map(|value| 1.0 / value).sum::<f64>()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// `None` without values.
pub fn summarise(values: &[f64], confidence: f64) -> Option<Summary> {
    if values.is_empty() {
        return None;
    }
    let sorted = sorted(values);
    Some(Summary {
        count: sorted.len(),
        median: median(&sorted),
        harmonic_mean: harmonic_mean(&sorted),
        min: sorted[0],
        max: sorted[sorted.len() - 1],
        interval: median_interval(&sorted, confidence),
    })
}

/// Interval of the median. `sorted` is in ascending order.
pub fn median_interval(sorted: &[f64], confidence: f64) -> Interval {
    let count = sorted.len();
    if count < 2 {
        let value = sorted.first().copied().unwrap_or(f64::NAN);
        return Interval { low: value, high: value, method: Method::None };
    }
    // The k-th smallest to the k-th largest covers the median with 1 - 2 P(X < k), X binomial(n, 1/2).
    let binomial = Binomial::new(0.5, count as u64).expect("a half is a probability");
    let covers = |rank: usize| 1.0 - 2.0 * binomial.cdf(rank as u64 - 1);
    let rank = (1..=count / 2).take_while(|rank| covers(*rank) >= confidence).last();
    match rank {
        Some(rank) => Interval { low: sorted[rank - 1], high: sorted[count - rank], method: Method::OrderStatistics },
        None => {
            let medians = bootstrap(count as u64, |random| median(&self::sorted(&resample(sorted, random))));
            let (low, high) = percentiles(&medians, confidence);
            Interval { low, high, method: Method::Bootstrap }
        }
    }
}

fn resample(values: &[f64], random: &mut ChaCha8Rng) -> Vec<f64> {
    (0..values.len()).map(|_| values[random.random_range(0..values.len())]).collect()
}

fn bootstrap(seed: u64, mut statistic: impl FnMut(&mut ChaCha8Rng) -> f64) -> Vec<f64> {
    let mut random = ChaCha8Rng::seed_from_u64(mix(seed));
    let values: Vec<f64> = (0..RESAMPLES).map(|_| statistic(&mut random)).collect();
    sorted(&values)
}

fn percentiles(sorted: &[f64], confidence: f64) -> (f64, f64) {
    let tail = (1.0 - confidence) / 2.0;
    let at = |part: f64| sorted[((part * (sorted.len() - 1) as f64).round() as usize).min(sorted.len() - 1)];
    (at(tail), at(1.0 - tail))
}

/// How two samples of rates differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Median of B over median of A.
    pub ratio: f64,
    /// Of the ratio, by the bootstrap.
    pub low: f64,
    pub high: f64,
    /// Chance of a difference this large between samples of one population: a permutation test of the rank sums.
    pub p_value: f64,
    pub differs: bool,
}

/// Compares `b` with `a`. It differs when the permutation test says so at the confidence asked for.
pub fn compare(a: &[f64], b: &[f64], confidence: f64) -> Option<Comparison> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let ratio = median(&sorted(b)) / median(&sorted(a));
    let seed = a.len() as u64 * 1000 + b.len() as u64;
    let ratios =
        bootstrap(seed, |random| median(&sorted(&resample(b, random))) / median(&sorted(&resample(a, random))));
    let (low, high) = percentiles(&ratios, confidence);
    let p_value = rank_test(a, b, seed);
    Some(Comparison { ratio, low, high, p_value, differs: p_value <= 1.0 - confidence })
}

/// Two-sided permutation test on the sum of ranks (Wilcoxon, Mann and Whitney), ties at their middle rank.
fn rank_test(a: &[f64], b: &[f64], seed: u64) -> f64 {
    let all: Vec<f64> = a.iter().chain(b).copied().collect();
    let order = sorted(&all);
    let rank = |value: &f64| {
        let below = order.partition_point(|other| other < value);
        let upto = order.partition_point(|other| other <= value);
        (below + upto + 1) as f64 / 2.0
    };
    let mut ranks: Vec<f64> = all.iter().map(rank).collect();
    let expected = b.len() as f64 * (all.len() + 1) as f64 / 2.0;
    let distance = |ranks: &[f64]| (ranks[a.len()..].iter().sum::<f64>() - expected).abs();
    let observed = distance(&ranks);
    let mut random = ChaCha8Rng::seed_from_u64(mix(seed ^ 0xa11));
    let mut as_far = 1;
    let rounds = 2 * RESAMPLES;
    for _ in 0..rounds {
        // A shuffle of the tail is enough: it is the second sample.
        for at in (a.len()..ranks.len()).rev() {
            let other = random.random_range(0..=at);
            ranks.swap(at, other);
        }
        if distance(&ranks) >= observed - 1e-9 {
            as_far += 1;
        }
    }
    f64::from(as_far) / (rounds + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ior_rates_are_not_averaged_arithmetically() {
        // Half of the bytes at 1, half at 3: all bytes took (1/1 + 1/3) / 2 of a second each, so the rate is 1.5, not 2.
        assert!((harmonic_mean(&[1.0, 3.0]) - 1.5).abs() < 1e-12);
        let summary = summarise(&[1.0, 3.0], 0.95).unwrap();
        assert!((summary.harmonic_mean - 1.5).abs() < 1e-12);
        let fields = serde_json::to_value(summary).unwrap();
        assert!(fields.get("mean").is_none());
    }

    #[test]
    fn the_interval_of_ten_values_is_of_the_second_smallest_and_largest() {
        // Known table: n = 10, 95%: ranks 2 and 9 (coverage 97.9%).
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        let interval = median_interval(&values, 0.95);
        assert_eq!((interval.low, interval.high, interval.method), (2.0, 9.0, Method::OrderStatistics));
        // n = 6: the smallest and largest, 96.9%. With 5 there is none.
        assert_eq!(median_interval(&values[..6], 0.95).method, Method::OrderStatistics);
        assert_eq!(median_interval(&values[..5], 0.95).method, Method::Bootstrap);
        assert_eq!(median_interval(&values[..1], 0.95).method, Method::None);
    }

    #[test]
    fn the_interval_covers_the_true_median_as_often_as_it_says() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let covered = (0..1000)
            .filter(|_| {
                let values: Vec<f64> = (0..15).map(|_| random.random::<f64>().powi(3)).collect();
                let interval = median_interval(&sorted(&values), 0.95);
                (interval.low..=interval.high).contains(&0.125)
            })
            .count();
        assert!((940..=990).contains(&covered), "{covered} of 1000");
    }
}
