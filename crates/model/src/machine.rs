//! The machine: compute nodes with memory and disks, joined by a network to a durable tier.

use crate::error::{ModelError, positive};
use serde::{Deserialize, Serialize};

/// The hardware side of the model. The paper's symbol stands behind each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// c: compute nodes.
    pub compute_nodes: u32,
    /// p: processes of the application on each compute node.
    pub processes_per_node: u32,
    /// s: storage nodes of the durable tier.
    pub storage_nodes: u32,
    /// d: disks of the durable tier, over all storage nodes.
    pub durable_disks: u32,
    /// N: network bandwidth of one node. `None`: the network does not limit.
    pub network_bytes_s: Option<f64>,
    /// d_r: read bandwidth of one durable disk.
    pub durable_read_bytes_s: f64,
    /// d_w: write bandwidth of one durable disk.
    pub durable_write_bytes_s: f64,
    /// g: local disks of one compute node (zero: none).
    pub local_disks: u32,
    /// r: space of one local disk.
    pub local_disk_bytes: u64,
    /// G_r: read bandwidth of one local disk.
    pub local_read_bytes_s: f64,
    /// G_w: write bandwidth of one local disk.
    pub local_write_bytes_s: f64,
    /// t: space in memory (tmpfs) of one compute node (zero: none).
    pub memory_bytes: u64,
    /// C_r: read bandwidth of one node's memory.
    pub memory_read_bytes_s: f64,
    /// C_w: write bandwidth of one node's memory.
    pub memory_write_bytes_s: f64,
}

impl Machine {
    /// Refuses a machine for which the equations would divide by zero. Local disks may be absent; then their bandwidths
    /// are not looked at.
    pub fn check(&self) -> Result<(), ModelError> {
        positive("compute_nodes", f64::from(self.compute_nodes))?;
        positive("processes_per_node", f64::from(self.processes_per_node))?;
        positive("storage_nodes", f64::from(self.storage_nodes))?;
        positive("durable_disks", f64::from(self.durable_disks))?;
        positive("network_bytes_s", self.network())?;
        positive("durable_read_bytes_s", self.durable_read_bytes_s)?;
        positive("durable_write_bytes_s", self.durable_write_bytes_s)?;
        positive("memory_read_bytes_s", self.memory_read_bytes_s)?;
        positive("memory_write_bytes_s", self.memory_write_bytes_s)?;
        if self.local_disks > 0 {
            positive("local_read_bytes_s", self.local_read_bytes_s)?;
            positive("local_write_bytes_s", self.local_write_bytes_s)?;
        }
        Ok(())
    }

    /// L_r = min(cN, sN, d_r·min(d, cp)): read bandwidth of the whole durable tier, bytes a second (equation 2).
    pub fn durable_read_total_bytes_s(&self) -> f64 {
        self.durable_total(self.durable_read_bytes_s)
    }

    /// L_w = min(cN, sN, d_w·min(d, cp)): write bandwidth of the whole durable tier, bytes a second (equation 3).
    pub fn durable_write_total_bytes_s(&self) -> f64 {
        self.durable_total(self.durable_write_bytes_s)
    }

    /// A file lies on one durable disk, so `cp` processes keep at most `cp` disks busy.
    fn durable_total(&self, disk_bytes_s: f64) -> f64 {
        let nodes = f64::from(self.compute_nodes);
        let busy_disks = f64::from(self.durable_disks).min(nodes * f64::from(self.processes_per_node));
        let network = self.network();
        (nodes * network).min(f64::from(self.storage_nodes) * network).min(disk_bytes_s * busy_disks)
    }

    fn network(&self) -> f64 {
        self.network_bytes_s.unwrap_or(f64::INFINITY)
    }
}

#[cfg(test)]
proptest::prop_compose! {
    /// Any that `check` takes, for the tests of what is computed from it.
    pub fn any_machine(local_disks: std::ops::Range<u32>)(
        counts in (1u32..9, 1u32..65, 1u32..9, 1u32..65, local_disks),
        network in proptest::option::of(1.0..1e11f64),
        rates in (1.0..1e11f64, 1.0..1e11f64, 1.0..1e11f64, 1.0..1e11f64, 1.0..1e11f64, 1.0..1e11f64),
        space in (0u64..1 << 40, 0u64..1 << 40),
    ) -> Machine {
        Machine {
            compute_nodes: counts.0, processes_per_node: counts.1, storage_nodes: counts.2, durable_disks: counts.3,
            local_disks: counts.4, network_bytes_s: network, durable_read_bytes_s: rates.0,
            durable_write_bytes_s: rates.1, local_read_bytes_s: rates.2, local_write_bytes_s: rates.3,
            memory_read_bytes_s: rates.4, memory_write_bytes_s: rates.5, memory_bytes: space.0, local_disk_bytes: space.1,
        }
    }
}
