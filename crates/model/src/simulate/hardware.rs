//! A platform's resources, and what each kind of transfer uses of them.
//!
//! A device that reads and writes is one resource whose capacity is its time: a byte takes `1/bandwidth` of it, so reads and
//! writes together never take more than there is. A link has a resource for each direction.

use super::Busy;
use super::fabric::{ActivityId, Fabric, ResourceId};
use crate::platform::{CLIENT, DISKS, METADATA, NODE_NETWORK, PROCESSORS, Platform, SERVER_NETWORK};

/// Work on resources, before it starts.
pub struct Transfer {
    pub uses: Vec<(ResourceId, f64)>,
    /// Processor seconds a byte of the one thread that does it: it has one processor at most.
    thread_s_per_byte: f64,
    /// What its requests, which wait for each other, reach at most.
    stream_bytes_s: f64,
}

struct Node {
    processors: ResourceId,
    network_out: ResourceId,
    network_in: ResourceId,
    client_read: ResourceId,
    client_write: ResourceId,
    cache: ResourceId,
    /// Of each tier, each device.
    devices: Vec<Vec<ResourceId>>,
}

struct Disk {
    read: ResourceId,
    write: ResourceId,
}

pub struct Hardware<'a> {
    platform: &'a Platform,
    nodes: Vec<Node>,
    servers: Vec<(ResourceId, ResourceId)>,
    disks: Vec<Disk>,
    metadata: ResourceId,
    sync: ResourceId,
}

impl<'a> Hardware<'a> {
    pub fn new(platform: &'a Platform, fabric: &mut Fabric) -> Hardware<'a> {
        let durable = &platform.durable;
        let network = platform.network();
        let nodes = (0..platform.nodes)
            .map(|_| Node {
                processors: fabric.resource(platform.cores_per_node.unwrap_or(f64::INFINITY)),
                network_out: fabric.resource(network),
                network_in: fabric.resource(network),
                client_read: fabric.resource(durable.client_read_bytes_s.unwrap_or(f64::INFINITY)),
                client_write: fabric.resource(durable.client_write_bytes_s.unwrap_or(f64::INFINITY)),
                cache: fabric.resource(if platform.cache.is_some() { 1.0 } else { f64::INFINITY }),
                devices: platform
                    .tiers
                    .iter()
                    .map(|tier| (0..tier.devices).map(|_| fabric.resource(1.0)).collect())
                    .collect(),
            })
            .collect();
        let servers = (0..durable.servers).map(|_| (fabric.resource(network), fabric.resource(network))).collect();
        let disks = (0..durable.disks)
            .map(|_| {
                let read = fabric.resource(1.0);
                Disk { read, write: if durable.duplex { fabric.resource(1.0) } else { read } }
            })
            .collect();
        let metadata = fabric.resource(durable.metadata_operations_s.unwrap_or(f64::INFINITY));
        let sync = fabric.resource(durable.sync_bytes_s.unwrap_or(f64::INFINITY));
        Hardware { platform, nodes, servers, disks, metadata, sync }
    }

    pub fn start(&self, fabric: &mut Fabric, bytes: f64, transfer: &Transfer) -> ActivityId {
        let thread = transfer.thread_s_per_byte;
        let rate_max = if thread > 0.0 { 1.0 / thread } else { f64::INFINITY };
        fabric.start(bytes, rate_max.min(transfer.stream_bytes_s), &transfer.uses)
    }

    pub fn compute(&self, fabric: &mut Fabric, node: usize, seconds: f64) -> ActivityId {
        fabric.start(seconds, 1.0, &[(self.nodes[node].processors, 1.0)])
    }

    /// `count` metadata operations of the durable tier for a node, one after another.
    pub fn operations(&self, fabric: &mut Fabric, node: usize, count: f64, extra_s: f64) -> ActivityId {
        if count <= 0.0 {
            return fabric.wait(extra_s);
        }
        let processor_s = self.platform.durable.operation_processor_s;
        let latency_s = self.platform.durable.latency_s.max(processor_s) + extra_s / count;
        let rate_max = if latency_s > 0.0 { 1.0 / latency_s } else { f64::INFINITY };
        fabric.start(count, rate_max, &[(self.metadata, 1.0), (self.nodes[node].processors, processor_s)])
    }

    /// Until the servers' own storage has the bytes.
    pub fn sync(&self, fabric: &mut Fabric, bytes: f64) -> ActivityId {
        fabric.start(bytes, f64::INFINITY, &[(self.sync, 1.0)])
    }

    pub fn durable_read(&self, node: usize, disk: u32) -> Transfer {
        let (durable, at) = (&self.platform.durable, &self.nodes[node]);
        let mut uses =
            vec![(at.network_in, 1.0), (at.client_read, 1.0), (at.processors, durable.processor.read_s_per_byte)];
        self.each_disk(disk, |part, disk, server| {
            uses.push((self.disks[disk].read, part / durable.read_bytes_s));
            uses.push((self.servers[server].0, part));
            uses.extend(self.server_processor(server, part * durable.server_processor.read_s_per_byte));
        });
        Transfer {
            uses,
            thread_s_per_byte: durable.processor.read_s_per_byte,
            stream_bytes_s: durable.stream_read_bytes_s.unwrap_or(f64::INFINITY),
        }
    }

    pub fn durable_write(&self, node: usize, disk: u32) -> Transfer {
        let (durable, at) = (&self.platform.durable, &self.nodes[node]);
        let mut uses =
            vec![(at.network_out, 1.0), (at.client_write, 1.0), (at.processors, durable.processor.write_s_per_byte)];
        self.each_disk(disk, |part, disk, server| {
            uses.push((self.disks[disk].write, part / durable.write_bytes_s));
            uses.push((self.servers[server].1, part));
            uses.extend(self.server_processor(server, part * durable.server_processor.write_s_per_byte));
        });
        Transfer { uses, thread_s_per_byte: durable.processor.write_s_per_byte, stream_bytes_s: f64::INFINITY }
    }

    pub fn tier_read(&self, node: usize, tier: usize, device: usize) -> Transfer {
        let (spec, at) = (&self.platform.tiers[tier], &self.nodes[node]);
        let processor = spec.processor.read_s_per_byte;
        let uses = vec![(at.devices[tier][device], 1.0 / spec.read_bytes_s), (at.processors, processor)];
        Transfer { uses, thread_s_per_byte: processor, stream_bytes_s: f64::INFINITY }
    }

    pub fn tier_write(&self, node: usize, tier: usize, device: usize) -> Transfer {
        let (spec, at) = (&self.platform.tiers[tier], &self.nodes[node]);
        let processor = spec.processor.write_s_per_byte;
        let uses = vec![(at.devices[tier][device], 1.0 / spec.write_bytes_s), (at.processors, processor)];
        Transfer { uses, thread_s_per_byte: processor, stream_bytes_s: f64::INFINITY }
    }

    /// Between a program and the page cache. Only for platforms that have one.
    pub fn cache_read(&self, node: usize) -> Transfer {
        self.cached(node, |cache| (cache.read_bytes_s, cache.processor.read_s_per_byte))
    }

    pub fn cache_write(&self, node: usize) -> Transfer {
        self.cached(node, |cache| (cache.write_bytes_s, cache.processor.write_s_per_byte))
    }

    fn cached(&self, node: usize, of: impl Fn(&crate::platform::PageCache) -> (f64, f64)) -> Transfer {
        let (rate, processor) = self.platform.cache.as_ref().map_or((f64::INFINITY, 0.0), of);
        let at = &self.nodes[node];
        Transfer {
            uses: vec![(at.cache, 1.0 / rate), (at.processors, processor)],
            thread_s_per_byte: processor,
            stream_bytes_s: f64::INFINITY,
        }
    }

    /// One thread reads from one place and writes to another at the same pace.
    pub fn copy(&self, from: Transfer, to: Transfer) -> Transfer {
        let mut uses = from.uses;
        uses.extend(to.uses);
        Transfer {
            uses,
            thread_s_per_byte: from.thread_s_per_byte + to.thread_s_per_byte,
            stream_bytes_s: from.stream_bytes_s.min(to.stream_bytes_s),
        }
    }

    /// A file of a tier goes to a tier of another node: at each end a thread of its own, at the same pace.
    pub fn bring(&self, (from, read): (usize, Transfer), (to, write): (usize, Transfer)) -> Transfer {
        let peers = &self.platform.peers;
        let (sending, receiving) = (peers.processor.read_s_per_byte, peers.processor.write_s_per_byte);
        let mut uses = read.uses;
        uses.extend(write.uses);
        uses.extend([
            (self.nodes[from].network_out, 1.0),
            (self.nodes[to].network_in, 1.0),
            (self.nodes[from].processors, sending),
            (self.nodes[to].processors, receiving),
        ]);
        Transfer {
            uses,
            thread_s_per_byte: (read.thread_s_per_byte + sending).max(write.thread_s_per_byte + receiving),
            stream_bytes_s: peers.stream_bytes_s.unwrap_or(f64::INFINITY),
        }
    }

    /// The parts of a file that begins on `disk`: part, disk, server.
    fn each_disk(&self, disk: u32, mut visit: impl FnMut(f64, usize, usize)) {
        let durable = &self.platform.durable;
        for stripe in 0..durable.stripe_disks {
            let disk = (disk + stripe) % durable.disks;
            visit(1.0 / f64::from(durable.stripe_disks), disk as usize, (disk % durable.servers) as usize);
        }
    }

    fn server_processor(&self, server: usize, s_per_byte: f64) -> Option<(ResourceId, f64)> {
        let here = self.platform.durable.servers_on_compute_nodes;
        here.then(|| (self.nodes[server % self.nodes.len()].processors, s_per_byte))
    }

    pub fn busy(&self, fabric: &Fabric) -> Vec<Busy> {
        let kind = |what: String, ids: Vec<ResourceId>| {
            let parts: Vec<f64> = ids.into_iter().map(|id| fabric.busy(id)).collect();
            let most = parts.iter().copied().fold(0.0, f64::max);
            Busy { what, mean: parts.iter().sum::<f64>() / parts.len().max(1) as f64, most }
        };
        let of_nodes = |of: fn(&Node) -> ResourceId| self.nodes.iter().map(of).collect::<Vec<_>>();
        let mut all = vec![
            kind(PROCESSORS.into(), of_nodes(|node| node.processors)),
            kind(NODE_NETWORK.into(), self.nodes.iter().flat_map(|node| [node.network_out, node.network_in]).collect()),
            kind(SERVER_NETWORK.into(), self.servers.iter().flat_map(|&(out, into)| [out, into]).collect()),
            kind(CLIENT.into(), self.nodes.iter().flat_map(|node| [node.client_read, node.client_write]).collect()),
            kind("memory for the page cache".into(), of_nodes(|node| node.cache)),
            kind(format!("{DISKS}, reading and writing"), self.disks.iter().map(|disk| disk.write).collect()),
            kind(METADATA.into(), vec![self.metadata]),
            kind("the storage nodes' own storage".into(), vec![self.sync]),
        ];
        if self.platform.durable.duplex {
            all[5].what = format!("{DISKS}, writing");
            all.push(kind(format!("{DISKS}, reading"), self.disks.iter().map(|disk| disk.read).collect()));
        }
        for (place, tier) in self.platform.tiers.iter().enumerate() {
            let devices = self.nodes.iter().flat_map(|node| node.devices[place].iter().copied()).collect();
            all.push(kind(format!("tier `{}`", tier.name), devices));
        }
        all.retain(|busy| busy.most > 0.0);
        all.sort_by(|a, b| b.most.total_cmp(&a.most));
        all
    }
}
