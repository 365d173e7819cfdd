//! The workload: how many bytes an application reads and writes, and in files of what size.

use serde::{Deserialize, Serialize};

/// Data of one application run, over all processes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// D_I: input, read once from the durable tier.
    pub input_bytes: u64,
    /// D_m: intermediate data, written once and read once.
    pub intermediate_bytes: u64,
    /// D_f: final output, written once.
    pub final_bytes: u64,
    /// F: size of one file. Space for one file of each process is kept free, as placement decides before a file is written.
    pub file_bytes: u64,
}

impl Workload {
    /// D_r = D_I + D_m.
    pub fn read_bytes(&self) -> u64 {
        self.input_bytes + self.intermediate_bytes
    }

    /// D_w = D_m + D_f.
    pub fn written_bytes(&self) -> u64 {
        self.intermediate_bytes + self.final_bytes
    }
}

/// The paper's incrementation application (its Algorithm 1): each block is read, incremented and saved `iterations`
/// times; each iteration reads what the one before saved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Incrementation {
    pub blocks: u64,
    pub block_bytes: u64,
    /// n: at least one, or nothing is written.
    pub iterations: u64,
}

impl Incrementation {
    /// D_I = B·F, D_m = (n − 1)·B·F, D_f = B·F.
    pub fn workload(&self) -> Workload {
        let data = self.blocks * self.block_bytes;
        Workload {
            input_bytes: data,
            intermediate_bytes: self.iterations.saturating_sub(1) * data,
            final_bytes: if self.iterations == 0 { 0 } else { data },
            file_bytes: self.block_bytes,
        }
    }
}
