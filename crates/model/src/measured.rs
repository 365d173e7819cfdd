//! Measured tiers: the file that `terrace bench tiers` writes and `terrace predict --tiers` reads.
//!
//! The last tier is the durable one. What a measurement has besides (its environment, intervals) is not looked at.

use crate::error::{ModelError, positive};
use crate::run::TierRates;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierMeasurements {
    /// Grows when a field changes its meaning or goes.
    pub version: u32,
    /// Processes that `rates` were measured with.
    #[serde(default)]
    pub workers: u32,
    /// Fast to slow.
    pub tiers: Vec<MeasuredTier>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredTier {
    pub rates: TierRates,
    #[serde(default)]
    pub in_memory: bool,
    #[serde(default)]
    pub capacity_bytes: Option<u64>,
    /// One small request.
    #[serde(default)]
    pub read_latency_s: f64,
    #[serde(default)]
    pub write_latency_s: f64,
    /// One file.
    #[serde(default)]
    pub create_s: Option<f64>,
    #[serde(default)]
    pub open_s: Option<f64>,
    #[serde(default)]
    pub stat_s: Option<f64>,
    /// The same rates for other numbers of processes, where they were measured.
    #[serde(default)]
    pub by_processes: Vec<RatesOfProcesses>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatesOfProcesses {
    pub processes: u32,
    pub read_bytes_s: f64,
    pub write_bytes_s: f64,
    #[serde(default)]
    pub cached_read_bytes_s: Option<f64>,
    #[serde(default)]
    pub cached_write_bytes_s: Option<f64>,
}

/// The version that this crate reads.
pub const MEASUREMENTS_VERSION: u32 = 1;

impl TierMeasurements {
    pub fn check(&self) -> Result<(), ModelError> {
        if self.version != MEASUREMENTS_VERSION {
            return Err(ModelError::TooLarge {
                what: "version",
                value: f64::from(self.version),
                limit: f64::from(MEASUREMENTS_VERSION),
            });
        }
        if self.tiers.is_empty() {
            return Err(ModelError::Missing { what: "tiers", why: "name the durable tier at least" });
        }
        for tier in &self.tiers {
            positive("read_bytes_s", tier.rates.read_bytes_s)?;
            positive("write_bytes_s", tier.rates.write_bytes_s)?;
            for rates in &tier.by_processes {
                positive("by_processes.read_bytes_s", rates.read_bytes_s)?;
                positive("by_processes.write_bytes_s", rates.write_bytes_s)?;
            }
        }
        Ok(())
    }

    /// The durable tier, and the others fast to slow.
    pub fn durable_and_fast(&self) -> Option<(&MeasuredTier, &[MeasuredTier])> {
        self.tiers.split_last()
    }
}

impl MeasuredTier {
    /// The rates that were measured with the number of processes that is nearest to `processes` and not above it.
    pub fn rates_with(&self, processes: u32) -> TierRates {
        let nearest =
            self.by_processes.iter().filter(|rates| rates.processes <= processes).max_by_key(|rates| rates.processes);
        nearest.map_or_else(
            || self.rates.clone(),
            |rates| TierRates {
                tier: self.rates.tier.clone(),
                read_bytes_s: rates.read_bytes_s,
                write_bytes_s: rates.write_bytes_s,
                cached_read_bytes_s: rates.cached_read_bytes_s,
                cached_write_bytes_s: rates.cached_write_bytes_s,
            },
        )
    }

    /// Time to create or open a file; where that was not measured, one small read, which is a round trip as well.
    pub fn file_latency_s(&self) -> f64 {
        self.create_s.or(self.open_s).unwrap_or(self.read_latency_s)
    }
}
