//! Sizes of each worker: given, or drawn from a distribution by the seed.

use crate::error::{Error, Result};
use crate::quantity::Bytes;
use crate::settings::{Distribution, Sizes};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Geometric, Normal};

/// `purpose` keeps the draws of data sizes and request sizes apart.
pub fn size_of(sizes: &Sizes, worker: u32, seed: u64, purpose: u64) -> Result<u64> {
    let drawn = match sizes {
        Sizes::One(Bytes(bytes)) => return Ok(*bytes),
        Sizes::Each(each) => return Ok(each[worker as usize % each.len()].0),
        Sizes::Drawn(drawn) => drawn,
    };
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(u64::from(worker) << 1 | purpose);
    let value = match drawn {
        Distribution::Uniform(range) => random.random_range(range.min.0..=range.max.0),
        Distribution::Normal(normal) => {
            let distribution = Normal::new(normal.mean.0 as f64, normal.standard_deviation.0 as f64)
                .map_err(|error| Error::failed(format!("normal distribution: {error}")))?;
            distribution.sample(&mut random).round().max(1.0) as u64
        }
        Distribution::Geometric(geometric) => {
            let distribution = Geometric::new(1.0 / geometric.mean.0 as f64)
                .map_err(|error| Error::failed(format!("geometric distribution: {error}")))?;
            distribution.sample(&mut random).saturating_add(1)
        }
    };
    Ok(value.max(1))
}

pub fn check(name: &str, sizes: &Sizes) -> Result<()> {
    let wrong = |what: &str| Err(Error::input(format!("`{name}` {what}"), "sizes are at least 1 byte, such as `64K`"));
    match sizes {
        Sizes::One(Bytes(0)) => wrong("is 0"),
        Sizes::Each(each) if each.is_empty() => wrong("is an empty list"),
        Sizes::Each(each) if each.contains(&Bytes(0)) => wrong("has a size of 0"),
        Sizes::Drawn(Distribution::Uniform(range)) if range.min.0 == 0 || range.min > range.max => {
            wrong("needs 1 <= min <= max")
        }
        Sizes::Drawn(Distribution::Normal(normal)) if normal.mean.0 == 0 => wrong("has a mean of 0"),
        Sizes::Drawn(Distribution::Geometric(geometric)) if geometric.mean.0 == 0 => wrong("has a mean of 0"),
        _ => Ok(()),
    }
}
