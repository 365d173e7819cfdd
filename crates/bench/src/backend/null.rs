//! No storage: requests take drawn times on a clock of the backend's own. What statistics find can be compared with what
//! was planted, and nothing of the machine disturbs it.

use super::{Backend, Target};
use crate::error::{Error, Result};
use crate::settings::NullSettings;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};
use std::io;
use std::path::Path;

pub struct Null {
    times: LogNormal<f64>,
    random: ChaCha8Rng,
    elapsed_s: f64,
}

impl Null {
    pub fn new(settings: &NullSettings, seed: u64) -> Result<Null> {
        let median = (settings.request_time.0 * settings.factor).ln();
        let times =
            LogNormal::new(median, settings.noise).map_err(|error| Error::failed(format!("null backend: {error}")))?;
        Ok(Null { times, random: ChaCha8Rng::seed_from_u64(seed), elapsed_s: 0.0 })
    }
    fn request(&mut self) {
        self.elapsed_s += self.times.sample(&mut self.random);
    }
}

impl Backend for Null {
    fn open(&mut self, _: &Target) -> io::Result<()> {
        self.elapsed_s = 0.0;
        Ok(())
    }
    fn write(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        self.request();
        Ok(())
    }
    fn read(&mut self, _: u64, _: &mut [u8]) -> io::Result<()> {
        self.request();
        Ok(())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn close(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn exists(&mut self, _: &Path) -> io::Result<bool> {
        Ok(false)
    }
    fn remove(&mut self, _: &Path) -> io::Result<()> {
        Ok(())
    }
    fn virtual_ns(&self) -> Option<u64> {
        Some((self.elapsed_s * 1e9) as u64)
    }
}
