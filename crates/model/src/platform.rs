//! The machine as `terrace predict` and the simulation see it: any number of fast tiers, a durable tier with servers and a
//! layout, a page cache, and what the paper's model leaves out: processors and latencies.
//!
//! What is `None` or zero by default is not counted: then the simulation sees the closed form's machine.

use crate::error::{ModelError, positive};
use serde::{Deserialize, Serialize};

/// Everything that a run's time depends on besides its workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// c: compute nodes.
    #[serde(default = "one")]
    pub nodes: u32,
    /// p: processes of the application on each node.
    #[serde(default = "one")]
    pub processes_per_node: u32,
    /// Processors of one node. `None`: computing and copying don't compete for them.
    #[serde(default)]
    pub cores_per_node: Option<f64>,
    /// Threads of other programs on each node that compute all the time.
    #[serde(default)]
    pub other_threads: u32,
    /// N: network bandwidth of one node, compute or storage, in each direction. `None`: the network does not limit.
    #[serde(default)]
    pub network_bytes_s: Option<f64>,
    /// Fast to slow, without the durable tier.
    #[serde(default)]
    pub tiers: Vec<FastTier>,
    pub durable: DurableTier,
    #[serde(default)]
    pub cache: Option<PageCache>,
    #[serde(default)]
    pub mover: Mover,
    #[serde(default)]
    pub peers: Peers,
}

/// A tier in each compute node. Bandwidths are of one device; memory is one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FastTier {
    pub name: String,
    /// A tier in memory has no page cache before it.
    #[serde(default)]
    pub in_memory: bool,
    /// g: devices of one node.
    #[serde(default = "one")]
    pub devices: u32,
    /// Of the whole tier in one node.
    pub capacity_bytes: u64,
    pub read_bytes_s: f64,
    pub write_bytes_s: f64,
    /// Time to create or open a file.
    #[serde(default)]
    pub latency_s: f64,
    #[serde(default)]
    pub processor: CopyCost,
}

/// The storage that holds the root. Bandwidths are of one disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DurableTier {
    /// s: storage nodes.
    #[serde(default = "one")]
    pub servers: u32,
    /// d: disks over all storage nodes.
    #[serde(default = "one")]
    pub disks: u32,
    pub read_bytes_s: f64,
    pub write_bytes_s: f64,
    /// What the file system's client in one node can read and write at most, over all its processes.
    #[serde(default)]
    pub client_read_bytes_s: Option<f64>,
    #[serde(default)]
    pub client_write_bytes_s: Option<f64>,
    /// What one file reads at most, however fast the disks are: its requests wait for each other.
    #[serde(default)]
    pub stream_read_bytes_s: Option<f64>,
    /// Time of one metadata operation (create, open, rename, remove).
    #[serde(default)]
    pub latency_s: f64,
    /// Processor seconds of one metadata operation, of the client (and of servers on the compute nodes), one after another. It is a
    /// part of the latency, and grows with it when others want the processors.
    #[serde(default)]
    pub operation_processor_s: f64,
    /// Metadata operations a second of the whole file system.
    #[serde(default)]
    pub metadata_operations_s: Option<f64>,
    /// What all servers together bring from their memory to their own storage, in a second: what an fsync waits for.
    #[serde(default)]
    pub sync_bytes_s: Option<f64>,
    /// Disks that one file is striped over.
    #[serde(default = "one")]
    pub stripe_disks: u32,
    /// Bytes that a node may have written to its page cache and not yet to this tier.
    #[serde(default)]
    pub dirty_bytes: u64,
    /// What a node wrote or read is in its page cache when it is opened again.
    #[serde(default = "yes")]
    pub cached_on_reopen: bool,
    /// Reads and writes of one disk don't take each other's time (links that are limited in each direction).
    #[serde(default)]
    pub duplex: bool,
    /// The client's.
    #[serde(default)]
    pub processor: CopyCost,
    /// The servers'; counted where they run on the compute nodes.
    #[serde(default)]
    pub server_processor: CopyCost,
    #[serde(default)]
    pub servers_on_compute_nodes: bool,
}

/// Processor seconds for one byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopyCost {
    pub read_s_per_byte: f64,
    pub write_s_per_byte: f64,
}

/// Memory of one node that caches files of tiers that are not in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCache {
    pub bytes: u64,
    pub read_bytes_s: f64,
    pub write_bytes_s: f64,
    /// Bytes written to a fast tier's disks that may wait in memory; writing back starts at half of it.
    #[serde(default)]
    pub dirty_bytes: u64,
    #[serde(default)]
    pub processor: CopyCost,
}

/// How Terrace flushes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mover {
    /// Files moved at the same time in each node.
    pub threads: u32,
    /// Time that a closed file waits before its flush.
    pub settle_s: f64,
    /// Metadata operations on the durable tier: for each file that is flushed; by the program for each file that it makes in a tier
    /// and that it opens there; for each file that is removed and not flushed.
    pub operations_per_file: f64,
    pub operations_per_create: f64,
    pub operations_per_open: f64,
    pub operations_per_removal: f64,
    /// Start of the agent, and its end.
    pub start_s: f64,
    /// Clean replicas are dropped above the first part of a tier's capacity until the second is left.
    pub high_watermark: f64,
    pub low_watermark: f64,
}

/// How a file goes from a tier of one node to one of another, whose program opens it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Peers {
    /// What one file comes with at most, over whatever network.
    pub stream_bytes_s: Option<f64>,
    /// Besides what the tiers cost: of the node that has the file (`read`) and of the one that gets it (`write`).
    pub processor: CopyCost,
    /// Metadata operations on the durable tier until the name leads to the file's new place.
    pub operations_per_file: f64,
    /// Messages that wait for each other.
    pub latency_s: f64,
}

impl Default for Peers {
    fn default() -> Self {
        // Counted with strace(1): a link is made, the name looked at, read and renamed over, its directory looked at before and after and
        // given its time back; on the other node the directory is looked at twice, the name opened and read.
        Peers { stream_bytes_s: None, processor: CopyCost::default(), operations_per_file: 11.0, latency_s: 0.0 }
    }
}

impl Default for Mover {
    fn default() -> Self {
        // Counted with strace(1): a flush creates a file, syncs it, reads the link, renames over it, looks at it, and syncs the
        // directory; a program's new file is looked for and linked, and its link read when it is opened; a file that is not
        // flushed is looked at, its link read and removed. The rest are the defaults of Terrace's settings.
        Mover {
            threads: 2,
            settle_s: 0.2,
            operations_per_file: 6.0,
            operations_per_create: 2.0,
            operations_per_open: 1.0,
            operations_per_removal: 3.0,
            start_s: 0.0,
            high_watermark: 0.9,
            low_watermark: 0.7,
        }
    }
}

fn one() -> u32 {
    1
}
fn yes() -> bool {
    true
}

impl Platform {
    /// Refuses what a formula would divide by, or what can't be.
    pub fn check(&self) -> Result<(), ModelError> {
        positive("nodes", f64::from(self.nodes))?;
        positive("processes_per_node", f64::from(self.processes_per_node))?;
        positive("cores_per_node", self.cores_per_node.unwrap_or(1.0))?;
        positive("network_bytes_s", self.network())?;
        let durable = &self.durable;
        positive("durable.servers", f64::from(durable.servers))?;
        positive("durable.disks", f64::from(durable.disks))?;
        positive("durable.read_bytes_s", durable.read_bytes_s)?;
        positive("durable.write_bytes_s", durable.write_bytes_s)?;
        positive("durable.client_read_bytes_s", durable.client_read_bytes_s.unwrap_or(f64::INFINITY))?;
        positive("durable.client_write_bytes_s", durable.client_write_bytes_s.unwrap_or(f64::INFINITY))?;
        positive("durable.metadata_operations_s", durable.metadata_operations_s.unwrap_or(f64::INFINITY))?;
        positive("durable.sync_bytes_s", durable.sync_bytes_s.unwrap_or(f64::INFINITY))?;
        positive("durable.stripe_disks", f64::from(durable.stripe_disks))?;
        if durable.stripe_disks > durable.disks {
            return Err(ModelError::TooLarge {
                what: "durable.stripe_disks",
                value: f64::from(durable.stripe_disks),
                limit: f64::from(durable.disks),
            });
        }
        for tier in &self.tiers {
            positive("tier.devices", f64::from(tier.devices))?;
            positive("tier.read_bytes_s", tier.read_bytes_s)?;
            positive("tier.write_bytes_s", tier.write_bytes_s)?;
            not_negative("tier.latency_s", tier.latency_s)?;
            tier.processor.check()?;
        }
        if let Some(cache) = &self.cache {
            positive("cache.read_bytes_s", cache.read_bytes_s)?;
            positive("cache.write_bytes_s", cache.write_bytes_s)?;
            cache.processor.check()?;
        }
        positive("mover.threads", f64::from(self.mover.threads))?;
        not_negative("mover.settle_s", self.mover.settle_s)?;
        not_negative("mover.operations_per_file", self.mover.operations_per_file)?;
        not_negative("mover.operations_per_create", self.mover.operations_per_create)?;
        not_negative("mover.operations_per_open", self.mover.operations_per_open)?;
        not_negative("mover.operations_per_removal", self.mover.operations_per_removal)?;
        positive("durable.stream_read_bytes_s", durable.stream_read_bytes_s.unwrap_or(f64::INFINITY))?;
        not_negative("durable.operation_processor_s", durable.operation_processor_s)?;
        not_negative("mover.start_s", self.mover.start_s)?;
        positive("peers.stream_bytes_s", self.peers.stream_bytes_s.unwrap_or(f64::INFINITY))?;
        not_negative("peers.operations_per_file", self.peers.operations_per_file)?;
        not_negative("peers.latency_s", self.peers.latency_s)?;
        self.peers.processor.check()?;
        not_negative("durable.latency_s", durable.latency_s)?;
        durable.processor.check()?;
        durable.server_processor.check()
    }

    /// L_r (equation 2), bytes a second, and which of its terms is the least.
    pub fn durable_read(&self) -> (f64, &'static str) {
        self.least(self.durable.read_bytes_s, self.durable.client_read_bytes_s)
    }

    /// L_w (equation 3), bytes a second, and which of its terms is the least.
    pub fn durable_write(&self) -> (f64, &'static str) {
        self.least(self.durable.write_bytes_s, self.durable.client_write_bytes_s)
    }

    /// cN, sN, and the disks that cp processes keep busy; a striped file keeps several busy.
    fn least(&self, disk_bytes_s: f64, client_bytes_s: Option<f64>) -> (f64, &'static str) {
        let nodes = f64::from(self.nodes);
        let streams = nodes * f64::from(self.processes_per_node) * f64::from(self.durable.stripe_disks);
        let disks = f64::from(self.durable.disks);
        let busy = if streams < disks { (streams, PROCESSES) } else { (disks, DISKS) };
        [
            (disk_bytes_s * busy.0, busy.1),
            (nodes * self.network(), NODE_NETWORK),
            (f64::from(self.durable.servers) * self.network(), SERVER_NETWORK),
            (client_bytes_s.map_or(f64::INFINITY, |rate| nodes * rate), CLIENT),
        ]
        .into_iter()
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("the list above has four entries")
    }

    pub fn network(&self) -> f64 {
        self.network_bytes_s.unwrap_or(f64::INFINITY)
    }

    pub fn processes(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.processes_per_node)
    }
}

/// What can limit the durable tier, in words that a table and the simulation share.
pub const DISKS: &str = "the durable tier's disks";
pub const PROCESSES: &str = "too few processes to keep the durable tier's disks busy";
pub const NODE_NETWORK: &str = "the compute nodes' network";
pub const SERVER_NETWORK: &str = "the storage nodes' network";
pub const STREAMS: &str = "the rate at which one file comes from another node";
pub const CLIENT: &str = "the file system's clients";
pub const PROCESSORS: &str = "the compute nodes' processors";
pub const METADATA: &str = "the durable tier's metadata server";

impl CopyCost {
    fn check(&self) -> Result<(), ModelError> {
        not_negative("processor.read_s_per_byte", self.read_s_per_byte)?;
        not_negative("processor.write_s_per_byte", self.write_s_per_byte)
    }
}

fn not_negative(what: &'static str, value: f64) -> Result<(), ModelError> {
    if value >= 0.0 && value.is_finite() { Ok(()) } else { Err(ModelError::Negative { what, value }) }
}
