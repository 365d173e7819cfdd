//! One node's tiers and movers under Terrace: what has room, what waits to be flushed, what may be dropped.
//!
//! ```text
//!   written ─▶ settling ─▶ waiting ─▶ a mover's thread: metadata operations, copy ─▶ clean ─▶ dropped above the watermark
//! ```

use crate::platform::Platform;
use std::collections::VecDeque;

/// A closed file on its way to the durable tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flushing {
    /// Its number among all that were closed.
    pub id: usize,
    pub tier: usize,
    pub device: usize,
    pub bytes: f64,
    /// Somebody waits for it: a thread of its own does it.
    pub is_asked_for: bool,
}

struct TierState {
    capacity: f64,
    used: f64,
    clean: VecDeque<f64>,
    devices: usize,
    device_next: usize,
}

pub struct NodeMovers {
    tiers: Vec<TierState>,
    waiting: VecDeque<Flushing>,
    idle: u32,
    high: f64,
    low: f64,
}

impl NodeMovers {
    pub fn new(platform: &Platform) -> NodeMovers {
        NodeMovers {
            tiers: platform
                .tiers
                .iter()
                .map(|tier| TierState {
                    capacity: tier.capacity_bytes as f64,
                    used: 0.0,
                    clean: VecDeque::new(),
                    devices: tier.devices as usize,
                    device_next: 0,
                })
                .collect(),
            waiting: VecDeque::new(),
            idle: platform.mover.threads,
            high: platform.mover.high_watermark,
            low: platform.mover.low_watermark,
        }
    }

    /// Room for a new file in the fastest tier from `first` on that has it: tier, device, bytes of clean replicas dropped for it.
    pub fn place(&mut self, first: usize, bytes: f64) -> Option<(usize, usize, f64)> {
        for (number, tier) in self.tiers.iter_mut().enumerate().skip(first) {
            let mut dropped = 0.0;
            let reachable = tier.used - tier.clean.iter().sum::<f64>() + bytes <= tier.capacity;
            while reachable && tier.used + bytes > tier.capacity {
                let Some(oldest) = tier.clean.pop_front() else { break };
                tier.used -= oldest;
                dropped += oldest;
            }
            if tier.used + bytes <= tier.capacity {
                tier.used += bytes;
                let device = tier.device_next;
                tier.device_next = (device + 1) % tier.devices.max(1);
                return Some((number, device, dropped));
            }
        }
        None
    }

    pub fn wait(&mut self, file: Flushing) {
        self.waiting.push_back(file);
    }

    /// A file has gone.
    pub fn release(&mut self, tier: usize, bytes: f64) {
        self.tiers[tier].used -= bytes;
    }

    /// The next file and a thread for it, if there are both.
    pub fn begin(&mut self) -> Option<Flushing> {
        if self.idle == 0 {
            return None;
        }
        let file = self.waiting.pop_front()?;
        self.idle -= 1;
        Some(file)
    }

    /// The file is durable, its thread free. Bytes that the watermark made it drop; without replicas, the file's own.
    pub fn finish(&mut self, file: Flushing, has_replicas: bool) -> f64 {
        self.idle += u32::from(!file.is_asked_for);
        let tier = &mut self.tiers[file.tier];
        if !has_replicas {
            tier.used -= file.bytes;
            return file.bytes;
        }
        tier.clean.push_back(file.bytes);
        let mut dropped = 0.0;
        if tier.used > self.high * tier.capacity {
            while tier.used > self.low * tier.capacity {
                let Some(oldest) = tier.clean.pop_front() else { break };
                tier.used -= oldest;
                dropped += oldest;
            }
        }
        dropped
    }
}
