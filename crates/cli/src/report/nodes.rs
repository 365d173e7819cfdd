//! What each node of a launch did, and all of them together.

use super::{FinalFlush, since, tier_since};
use serde::{Deserialize, Serialize};
use terrace_core::control::{Counters, Status, TierStatus};
use terrace_core::size::show_bytes;
use terrace_tool::control_client::Moved;
use terrace_tool::failure::Result;
use terrace_tool::table::Table;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeReport {
    pub tag: String,
    pub host: String,
    pub tiers: Vec<TierStatus>,
    pub counters: Counters,
    pub final_flush: Option<FinalFlush>,
    /// What policy says is to be durable and is not.
    pub left_files: u64,
    pub left_bytes: u64,
    /// Why the node has not done its part, or is not known to have.
    pub trouble: Option<String>,
    pub agent_restarts: u32,
    pub warnings: Vec<String>,
    /// Of a step: how many tasks had a run here, how long the longest one's program ran, how many ended with another code than 0.
    pub tasks: u32,
    pub program_s: f64,
    pub tasks_failed: u32,
}

impl NodeReport {
    pub fn of(
        tag: &str,
        host: &str,
        before: &Status,
        after: Option<&Status>,
        flushed: &Result<Moved>,
        agent_restarts: u32,
    ) -> NodeReport {
        let nothing = Status::default();
        let after = after.unwrap_or(&nothing);
        let before = if after.agent_pid == before.agent_pid { before } else { &nothing };
        NodeReport {
            tag: tag.into(),
            host: host.into(),
            tiers: after.tiers.iter().map(|tier| tier_since(before, tier)).collect(),
            counters: since(&before.counters, &after.counters),
            final_flush: flushed.as_ref().ok().map(FinalFlush::of),
            left_files: after.unflushed_files,
            left_bytes: after.unflushed_bytes,
            trouble: flushed.as_ref().err().map(|failure| failure.message.clone()),
            agent_restarts,
            warnings: after.warnings.clone(),
            ..NodeReport::default()
        }
    }

    /// A program of a step.
    pub fn ran(mut self, program_s: f64, exit_code: i32) -> NodeReport {
        (self.program_s, self.tasks_failed) = (program_s, (exit_code != 0) as u32);
        self
    }

    /// What an earlier run of the same node and step knew.
    pub fn take_in(&mut self, earlier: Option<NodeReport>) {
        let Some(earlier) = earlier else { return };
        self.program_s = self.program_s.max(earlier.program_s);
        self.tasks_failed += earlier.tasks_failed;
        self.agent_restarts += earlier.agent_restarts;
        self.trouble = self.trouble.take().or(earlier.trouble);
        if let (Some(now), Some(before)) = (&mut self.final_flush, earlier.final_flush) {
            now.files += before.files;
            now.bytes += before.bytes;
            now.failures.extend(before.failures);
            now.open_files.extend(before.open_files);
        }
    }

    /// A node that said nothing of what it did.
    pub fn silent(tag: &str, host: &str, trouble: String) -> NodeReport {
        NodeReport { tag: tag.into(), host: host.into(), trouble: Some(trouble), ..NodeReport::default() }
    }

    fn written(&self) -> (u64, u64) {
        let faster = || self.tiers.iter().filter(|tier| !tier.durable);
        (faster().map(|tier| tier.written_files).sum(), faster().map(|tier| tier.written_bytes).sum())
    }

    fn held_bytes(&self) -> u64 {
        self.tiers.iter().filter(|tier| !tier.durable).map(|tier| tier.used_bytes).sum()
    }

    /// Nothing that was to be durable is left on it.
    pub fn is_durable(&self) -> bool {
        self.trouble.is_none() && self.final_flush.as_ref().is_some_and(|flush| flush.failures.is_empty())
    }
}

/// A line a node, and their sums.
pub fn table(nodes: &[NodeReport]) -> Table {
    let mut table = Table::new(&[
        "node",
        ">files created",
        ">written",
        ">files flushed",
        ">flushed",
        ">opens",
        ">in a tier",
        ">held now",
    ]);
    let mut sums = [0; 7];
    for node in nodes {
        let (files, bytes) = node.written();
        let counters = &node.counters;
        let opens = counters.opens_tier + counters.opens_durable;
        let held = node.held_bytes();
        let cells = [files, bytes, counters.flushed_files, counters.flushed_bytes, opens, counters.opens_tier, held];
        sums.iter_mut().zip(cells).for_each(|(sum, cell)| *sum += cell);
        match node.tiers.is_empty() {
            true => table.row(std::iter::once(node.host.clone()).chain(std::iter::repeat_n("?".to_owned(), 7))),
            false => table.row(row(&node.host, cells)),
        }
    }
    table.row(row(&format!("{} nodes", nodes.len()), sums));
    table
}

/// Nodes where no file was made or opened, while others were busy.
pub fn idle(nodes: &[NodeReport]) -> Option<String> {
    let is_idle = |node: &&NodeReport| {
        let counters = &node.counters;
        node.trouble.is_none()
            && counters.opens_tier + counters.opens_durable + counters.creates_tier + counters.creates_durable == 0
    };
    let idle: Vec<&str> = nodes.iter().filter(is_idle).map(|node| node.host.as_str()).collect();
    (!idle.is_empty() && idle.len() < nodes.len()).then(|| idle.join(", "))
}

fn row(name: &str, cells: [u64; 7]) -> Vec<String> {
    let is_bytes = [false, true, false, true, false, false, true];
    let shown = cells.iter().zip(is_bytes).map(|(cell, is_bytes)| match is_bytes {
        true => show_bytes(*cell),
        false => cell.to_string(),
    });
    std::iter::once(name.to_owned()).chain(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_a_line_each_and_their_sums() {
        let node = |host: &str, files: u64| {
            let ram =
                TierStatus { name: "ram".into(), written_files: files, written_bytes: 1024, ..TierStatus::default() };
            let root = TierStatus { name: "root".into(), written_files: 9, durable: true, ..TierStatus::default() };
            let counters = Counters { flushed_files: files, opens_tier: 2, opens_durable: 1, ..Counters::default() };
            NodeReport { host: host.into(), tiers: vec![ram, root], counters, ..NodeReport::default() }
        };
        let shown = table(&[node("n1", 3), node("n2", 4), NodeReport::silent("t", "n3", "gone".into())]).to_string();
        let lines: Vec<Vec<&str>> = shown.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0][..2], ["n1", "3"]);
        assert_eq!(lines[2][..2], ["n3", "?"]);
        assert_eq!(lines[3][..3], ["3", "nodes", "7"], "{shown}");
    }
}
