//! A job: the workload in the shape that the simulation runs, and that the closed form adds up.
//!
//! Items are independent (a block of an image, say). A process does one after another:
//!
//! ```text
//!   read input ─▶ compute ─▶ write ─▶ read it back ─▶ compute ─▶ write … ─▶ compute ─▶ write output
//!                 └───────────── iterations − 1 times ───────┘
//! ```

use crate::error::ModelError;
use crate::platform::Platform;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    pub workload: Workload,
    /// How often each item is computed and saved: one less of them are intermediate.
    pub iterations: u32,
    /// Processor seconds over all processes.
    #[serde(default)]
    pub compute_s: f64,
    #[serde(default)]
    pub flush: Flush,
    #[serde(default)]
    pub layout: Layout,
    #[serde(default)]
    pub next_step: NextStep,
}

/// Where what one iteration saved is read by the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NextStep {
    #[default]
    SameNode,
    /// On the node after it, as steps of a pipeline that a scheduler puts anywhere. With one node that is the same.
    OtherNode,
}

/// Which files Terrace makes durable. Those that are not are removed at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flush {
    /// All that is written: what a run without any settings does.
    #[default]
    All,
    /// The final output.
    Final,
    None,
}

/// On which of the durable tier's disks a new file begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Drawn for each file from the seed, as hashing does.
    #[default]
    Random,
    /// One after another.
    RoundRobin,
    /// Item `i` on disk `list[i mod length]`, in each directory shifted by a drawn number: a hash of the file's name.
    /// What Terrace flushes has a name of its own at first, so its disk is drawn.
    Names(Vec<u32>),
}

impl Job {
    /// The usual shape of a workload: as many iterations as make intermediate files no larger than the input or the output.
    pub fn of(workload: Workload) -> Job {
        let one_round = workload.input_bytes.max(workload.final_bytes).max(1);
        let rounds = workload.intermediate_bytes.div_ceil(one_round).min(10_000) as u32;
        Job {
            workload,
            iterations: rounds + 1,
            compute_s: 0.0,
            flush: Flush::default(),
            layout: Layout::default(),
            next_step: NextStep::default(),
        }
    }

    pub fn check(&self) -> Result<(), ModelError> {
        if self.iterations == 0 {
            return Err(ModelError::NotPositive { what: "iterations", value: 0.0 });
        }
        if self.workload.file_bytes == 0 {
            return Err(ModelError::NotPositive { what: "file_bytes", value: 0.0 });
        }
        if self.iterations == 1 && self.workload.intermediate_bytes > 0 {
            return Err(ModelError::Missing {
                what: "iterations",
                why: "intermediate data is written in all iterations but the last, so there must be two at least",
            });
        }
        if !(self.compute_s >= 0.0 && self.compute_s.is_finite()) {
            return Err(ModelError::Negative { what: "compute_s", value: self.compute_s });
        }
        if matches!(&self.layout, Layout::Names(disks) if disks.is_empty()) {
            return Err(ModelError::Missing { what: "layout.names", why: "it needs one disk at least" });
        }
        Ok(())
    }

    /// Files go from node to node between iterations.
    pub fn changes_nodes(&self, platform: &Platform) -> bool {
        self.next_step == NextStep::OtherNode && platform.nodes > 1
    }

    /// Items: so many that no file is larger than F.
    pub fn items(&self) -> u64 {
        let rounds = u64::from(self.iterations - 1).max(1);
        let one =
            self.workload.input_bytes.max(self.workload.final_bytes).max(self.workload.intermediate_bytes / rounds);
        one.div_ceil(self.workload.file_bytes).max(1)
    }

    /// Bytes of an item's input, of each of its intermediate files, and of its output.
    pub fn item_bytes(&self) -> (f64, f64, f64) {
        let items = self.items() as f64;
        let rounds = f64::from(self.iterations - 1).max(1.0);
        let workload = &self.workload;
        (
            workload.input_bytes as f64 / items,
            workload.intermediate_bytes as f64 / items / rounds,
            workload.final_bytes as f64 / items,
        )
    }

    /// Bytes to be flushed if all of them are in tiers.
    pub fn flushed_bytes(&self) -> u64 {
        match self.flush {
            Flush::All => self.workload.written_bytes(),
            Flush::Final => self.workload.final_bytes,
            Flush::None => 0,
        }
    }
}
