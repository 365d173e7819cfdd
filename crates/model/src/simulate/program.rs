//! What each process does, step by step.
//!
//! ```text
//!   Open ─▶ Read ─▶ Compute ─▶ Create ─▶ Write ─▶ (the last iteration? next item : OpenBack ─▶ ReadBack ─▶ Compute)
//!                                          └─▶ Bring ─▶ Name ─▶ OpenBack, where the next step runs on another node
//! ```

use crate::job::Job;
use crate::platform::Platform;

/// Where a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Place {
    Durable { disk: u32 },
    Tier { tier: usize, device: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Open,
    Read,
    Compute,
    Create,
    Write,
    /// What the page cache did not take of a write.
    WriteThrough,
    /// To the next step's node, or, where it can't go there, to the durable tier.
    Bring,
    /// The name of a file that was brought.
    Name,
    OpenBack,
    ReadBack,
    Done,
}

/// One process of the application.
pub struct Process {
    pub node: usize,
    pub step: Step,
    /// The present item and how many of its iterations are done.
    pub item: u64,
    pub iteration: u32,
    /// Of the file that is being written, or was last.
    pub place: Place,
    /// Bytes of the present write that go past the page cache.
    pub through_bytes: f64,
    /// Of the file that was written last, where it is to be flushed.
    pub file: Option<usize>,
    /// The node and the tier that the present file is being brought from.
    pub brought_from: Option<(usize, usize)>,
    changes_nodes: bool,
    stride: u64,
    items: u64,
    iterations: u32,
}

impl Process {
    pub fn new(rank: u64, platform: &Platform, job: &Job) -> Process {
        let items = job.items();
        Process {
            node: (rank / u64::from(platform.processes_per_node)) as usize,
            step: if rank < items { Step::Open } else { Step::Done },
            item: rank,
            iteration: 0,
            place: Place::Durable { disk: 0 },
            through_bytes: 0.0,
            file: None,
            brought_from: None,
            changes_nodes: job.changes_nodes(platform),
            stride: platform.processes(),
            items,
            iterations: job.iterations,
        }
    }

    /// The present write is the output, not an intermediate file.
    pub fn is_last(&self) -> bool {
        self.iteration + 1 == self.iterations
    }

    /// The step after the present one. `false`: that was the last.
    pub fn advance(&mut self) -> bool {
        self.step = match self.step {
            Step::Open => Step::Read,
            Step::Read | Step::ReadBack => Step::Compute,
            Step::Compute => Step::Create,
            Step::Create => Step::Write,
            Step::Write if self.through_bytes > 0.0 => Step::WriteThrough,
            Step::Write | Step::WriteThrough if !self.is_last() && self.changes_nodes => Step::Bring,
            Step::Bring => Step::Name,
            Step::Name => Step::OpenBack,
            Step::Write | Step::WriteThrough if !self.is_last() => Step::OpenBack,
            Step::Write | Step::WriteThrough => self.next_item(),
            Step::OpenBack => {
                self.iteration += 1;
                Step::ReadBack
            }
            Step::Done => Step::Done,
        };
        self.step != Step::Done
    }

    fn next_item(&mut self) -> Step {
        self.iteration = 0;
        self.item += self.stride;
        if self.item < self.items { Step::Open } else { Step::Done }
    }
}
