//! The run itself: starts what each process, mover and pool does next when something of theirs has finished.
//!
//! Invariant: every activity of the fabric has one owner, and every owner has one activity at most.

use super::fabric::{ActivityId, Fabric};
use super::hardware::{Hardware, Transfer};
use super::movers::{Flushing, NodeMovers};
use super::program::{Place, Process, Step};
use super::{Simulated, Traffic, Way};
use crate::error::ModelError;
use crate::job::{Flush, Job, Layout};
use crate::platform::Platform;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Longer than any run: other programs don't end.
const OTHERS_S: f64 = 1e18;

#[derive(Clone, Copy)]
enum Owner {
    Nobody,
    Process(usize),
    /// The agent's start.
    Start,
    Settled(usize),
    /// A mover's thread: node, file, when it began.
    MoverOperations(usize, Flushing, f64),
    MoverCopy(usize, Flushing, f64),
    MoverSync(usize, Flushing, f64),
    /// Part of a node's files that were not to be flushed.
    Removal,
    /// Dirty pages that reach their disk: node, pool, bytes.
    WriteBack(usize, usize, f64),
}

/// Where a file that was closed in a tier, and is to be flushed, has come to.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Settling,
    Flushing,
    Durable,
    /// To another node.
    Gone,
}

struct Closed {
    node: usize,
    file: Flushing,
    stage: Stage,
    /// Of its durable copy.
    disk: u32,
    /// The process that waits for it to be durable.
    reader: Option<usize>,
}

/// Dirty pages of one node before one tier.
struct Pool {
    limit: f64,
    /// Writing back starts above this.
    begin: f64,
    dirty: f64,
    waiting: Vec<(Place, f64)>,
}

pub struct World<'a> {
    platform: &'a Platform,
    job: &'a Job,
    way: Way,
    fabric: Fabric,
    hardware: Hardware<'a>,
    processes: Vec<Process>,
    running: usize,
    movers: Vec<NodeMovers>,
    closed: Vec<Closed>,
    /// Flushes and removals that the end waits for.
    flushing: u64,
    /// Of each node, files in tiers that are not to be flushed.
    unflushed: Vec<u64>,
    /// Of each node, one for each tier, the durable tier's last.
    pools: Vec<Vec<Pool>>,
    owners: Vec<Owner>,
    random: ChaCha8Rng,
    directory_shift: Vec<u32>,
    disk_next: u32,
    input_bytes: f64,
    intermediate_bytes: f64,
    final_bytes: f64,
    compute_s: f64,
    traffic: Traffic,
    program_s: f64,
    /// Of all mover threads together.
    moving_s: f64,
}

impl<'a> World<'a> {
    pub fn new(platform: &'a Platform, job: &'a Job, way: Way, seed: u64) -> World<'a> {
        let mut fabric = Fabric::default();
        let hardware = Hardware::new(platform, &mut fabric);
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let directory_shift = (0..=job.iterations).map(|_| random.random_range(0..platform.durable.disks)).collect();
        let with_work = platform.processes().min(job.items());
        let processes: Vec<Process> = (0..with_work).map(|rank| Process::new(rank, platform, job)).collect();
        let (input_bytes, intermediate_bytes, final_bytes) = job.item_bytes();
        let tiers = platform.tiers.len();
        let pools = (0..platform.nodes)
            .map(|_| {
                (0..=tiers)
                    .map(|tier| {
                        let cached = platform.cache.as_ref().map_or(0, |cache| cache.dirty_bytes);
                        let in_memory = platform.tiers.get(tier).is_some_and(|tier| tier.in_memory);
                        let limit = match tier == tiers {
                            true if platform.cache.is_some() => platform.durable.dirty_bytes,
                            false if !in_memory => cached,
                            _ => 0,
                        } as f64;
                        Pool {
                            limit,
                            begin: if tier == tiers { 0.0 } else { limit / 2.0 },
                            dirty: 0.0,
                            waiting: vec![],
                        }
                    })
                    .collect()
            })
            .collect();
        World {
            platform,
            job,
            way,
            hardware,
            running: processes.iter().filter(|process| process.step != Step::Done).count(),
            processes,
            movers: (0..platform.nodes).map(|_| NodeMovers::new(platform)).collect(),
            closed: vec![],
            flushing: 0,
            unflushed: vec![0; platform.nodes as usize],
            pools,
            owners: vec![],
            random,
            directory_shift,
            disk_next: 0,
            input_bytes,
            intermediate_bytes,
            final_bytes,
            compute_s: job.compute_s / (job.items() as f64 * f64::from(job.iterations)),
            traffic: Traffic {
                tier_read_bytes: vec![0.0; tiers],
                tier_written_bytes: vec![0.0; tiers],
                ..Traffic::default()
            },
            program_s: 0.0,
            moving_s: 0.0,
            fabric,
        }
    }

    pub fn run(self) -> Result<Simulated, ModelError> {
        Ok(self.run_counted()?.0)
    }

    /// With the work that sharing was (`Fabric::steps`).
    pub fn run_counted(mut self) -> Result<(Simulated, u64), ModelError> {
        let start_s = if self.way == Way::Terrace { self.platform.mover.start_s } else { 0.0 };
        let start = self.fabric.wait(start_s);
        self.own(start, Owner::Start);
        let mut finish_s = 0.0;
        while self.running > 0 || self.flushing > 0 {
            let Some(finished) = self.fabric.advance() else {
                return Err(ModelError::Missing { what: "bandwidth", why: "a transfer would never end" });
            };
            // All owners first: what starts next may get the number of what has just finished.
            let owners: Vec<Owner> = finished
                .into_iter()
                .map(|id| std::mem::replace(&mut self.owners[id.0 as usize], Owner::Nobody))
                .collect();
            for owner in owners {
                self.finished(owner);
            }
            finish_s = self.fabric.now_s();
        }
        let threads = f64::from(self.platform.nodes) * f64::from(self.platform.mover.threads);
        let simulated = Simulated {
            makespan_s: finish_s,
            movers_busy: if finish_s > 0.0 { self.moving_s / (threads * finish_s) } else { 0.0 },
            program_s: self.program_s,
            busy: self.hardware.busy(&self.fabric),
            events: self.fabric.events(),
            traffic: self.traffic,
        };
        Ok((simulated, self.fabric.steps()))
    }

    fn own(&mut self, id: ActivityId, owner: Owner) {
        let place = id.0 as usize;
        if place >= self.owners.len() {
            self.owners.resize(place + 1, Owner::Nobody);
        }
        self.owners[place] = owner;
    }

    fn finished(&mut self, owner: Owner) {
        match owner {
            Owner::Nobody => {}
            Owner::Start => {
                for node in 0..self.platform.nodes as usize {
                    for _ in 0..self.platform.other_threads {
                        let id = self.hardware.compute(&mut self.fabric, node, OTHERS_S);
                        self.own(id, Owner::Nobody);
                    }
                }
                for number in 0..self.processes.len() {
                    if self.processes[number].step != Step::Done {
                        self.begin(number);
                    }
                }
            }
            Owner::Process(number) => self.step_done(number),
            Owner::Settled(id) => {
                let closed = &mut self.closed[id];
                if closed.stage == Stage::Settling {
                    closed.stage = Stage::Flushing;
                    let (node, file) = (closed.node, closed.file);
                    self.movers[node].wait(file);
                    self.move_next(node);
                }
            }
            Owner::MoverOperations(node, file, begin_s) => {
                let disk = self.draw_disk();
                self.closed[file.id].disk = disk;
                let from = self.file_read(node, Place::Tier { tier: file.tier, device: file.device }, file.bytes).0;
                let transfer = self.hardware.copy(from, self.hardware.durable_write(node, disk));
                self.transfer(file.bytes, &transfer, Owner::MoverCopy(node, file, begin_s));
            }
            Owner::MoverCopy(node, file, begin_s) if self.platform.durable.sync_bytes_s.is_some() => {
                let id = self.hardware.sync(&mut self.fabric, file.bytes);
                self.own(id, Owner::MoverSync(node, file, begin_s));
            }
            Owner::MoverCopy(node, file, begin_s) | Owner::MoverSync(node, file, begin_s) => {
                if !file.is_asked_for {
                    self.moving_s += self.fabric.now_s() - begin_s;
                }
                self.flushing -= 1;
                self.traffic.flushed_bytes += file.bytes;
                // No replica is read while there are other nodes.
                let has_replicas = !self.job.changes_nodes(self.platform);
                self.traffic.evicted_bytes += self.movers[node].finish(file, has_replicas);
                self.move_next(node);
                let closed = &mut self.closed[file.id];
                closed.stage = Stage::Durable;
                if let Some(reader) = closed.reader.take() {
                    self.processes[reader].place = Place::Durable { disk: closed.disk };
                    self.step_done(reader);
                }
            }
            Owner::Removal => self.flushing -= 1,
            Owner::WriteBack(node, pool, bytes) => self.pools[node][pool].dirty -= bytes,
        }
    }

    fn transfer(&mut self, bytes: f64, transfer: &Transfer, owner: Owner) {
        let id = self.hardware.start(&mut self.fabric, bytes, transfer);
        self.own(id, owner);
    }

    /// Starts the step that the process has come to.
    fn begin(&mut self, number: usize) {
        let process = &self.processes[number];
        let (node, step, place, item) = (process.node, process.step, process.place, process.item);
        let owner = Owner::Process(number);
        match step {
            Step::Open => {
                let disk = self.named_disk(item, 0);
                self.processes[number].place = Place::Durable { disk };
                let id = self.hardware.operations(&mut self.fabric, node, 1.0, 0.0);
                self.own(id, owner);
            }
            Step::Read => {
                let Place::Durable { disk } = place else { unreachable!("the input lies in the durable tier") };
                self.traffic.durable_read_bytes += self.input_bytes;
                let transfer = self.hardware.durable_read(node, disk);
                self.transfer(self.input_bytes, &transfer, owner);
            }
            Step::Compute => {
                let id = self.hardware.compute(&mut self.fabric, node, self.compute_s);
                self.own(id, owner);
            }
            Step::Create => {
                let place = self.place(number);
                self.processes[number].place = place;
                // A file in a tier has a link in the durable tier's namespace.
                let (count, extra_s) = match place {
                    Place::Tier { tier, .. } => {
                        (self.platform.mover.operations_per_create, self.platform.tiers[tier].latency_s)
                    }
                    Place::Durable { .. } => (1.0, 0.0),
                };
                let id = self.hardware.operations(&mut self.fabric, node, count, extra_s);
                self.own(id, owner);
            }
            Step::Write => self.write(number),
            Step::WriteThrough => {
                let bytes = self.processes[number].through_bytes;
                let transfer = self.file_write(node, place);
                self.transfer(bytes, &transfer, owner);
            }
            Step::Bring => self.bring(number),
            Step::Name => {
                let (count, extra_s) = match self.processes[number].brought_from {
                    Some(_) => (self.platform.peers.operations_per_file, self.platform.peers.latency_s),
                    None => (0.0, 0.0),
                };
                let id = self.hardware.operations(&mut self.fabric, node, count, extra_s);
                self.own(id, owner);
            }
            Step::OpenBack => {
                let (count, extra_s) = match place {
                    Place::Durable { .. } => (1.0, 0.0),
                    Place::Tier { tier, .. } => {
                        (self.platform.mover.operations_per_open, self.platform.tiers[tier].latency_s)
                    }
                };
                let id = self.hardware.operations(&mut self.fabric, node, count, extra_s);
                self.own(id, owner);
            }
            Step::ReadBack => {
                let bytes = self.intermediate_bytes;
                let (transfer, cached) = self.file_read(node, place, bytes);
                match place {
                    _ if cached => self.traffic.cache_read_bytes += bytes,
                    Place::Durable { .. } => self.traffic.durable_read_bytes += bytes,
                    Place::Tier { tier, .. } => self.traffic.tier_read_bytes[tier] += bytes,
                }
                self.transfer(bytes, &transfer, owner);
            }
            Step::Done => {}
        }
    }

    fn step_done(&mut self, number: usize) {
        let process = &self.processes[number];
        let (node, place, last) = (process.node, process.place, process.is_last());
        let (step, through_bytes) = (process.step, process.through_bytes);
        let bytes = self.write_bytes(number);
        if step == Step::Write && !self.is_read_elsewhere(number) {
            self.make_dirty(node, place, bytes - through_bytes);
        }
        let written = match step {
            Step::Write => through_bytes == 0.0,
            Step::WriteThrough => true,
            _ => false,
        };
        if step == Step::Name
            && let Some((from, tier)) = self.processes[number].brought_from.take()
        {
            self.movers[from].release(tier, self.intermediate_bytes);
            self.closed(number, node, place, self.intermediate_bytes, false);
        }
        let more = self.processes[number].advance();
        if written {
            self.processes[number].through_bytes = 0.0;
            self.closed(number, node, place, bytes, last);
        }
        if more {
            self.begin(number);
            return;
        }
        self.running -= 1;
        if self.running == 0 {
            self.program_s = self.fabric.now_s();
            // The final flush waits for nothing.
            for id in 0..self.closed.len() {
                self.finished(Owner::Settled(id));
            }
            self.remove_unflushed();
        }
    }

    fn write_bytes(&self, number: usize) -> f64 {
        if self.processes[number].is_last() { self.final_bytes } else { self.intermediate_bytes }
    }

    /// Into the page cache as far as it takes it, where the tier has one; the rest goes past it.
    fn write(&mut self, number: usize) {
        let (node, place) = (self.processes[number].node, self.processes[number].place);
        let bytes = self.write_bytes(number);
        match place {
            Place::Durable { .. } => self.traffic.durable_written_bytes += bytes,
            Place::Tier { tier, .. } => self.traffic.tier_written_bytes[tier] += bytes,
        }
        let owner = Owner::Process(number);
        let is_read_elsewhere = self.is_read_elsewhere(number);
        let number_of_pool = self.pool_of(place);
        let pool = &mut self.pools[node][number_of_pool];
        if pool.limit <= 0.0 || is_read_elsewhere {
            self.processes[number].through_bytes = 0.0;
            let transfer = self.file_write(node, place);
            return self.transfer(bytes, &transfer, owner);
        }
        let admitted = bytes.min(pool.limit - pool.dirty).max(0.0);
        pool.dirty += admitted;
        self.processes[number].through_bytes = bytes - admitted;
        let transfer = self.hardware.cache_write(node);
        self.transfer(admitted, &transfer, owner);
    }

    /// What another node reads next has to have reached the servers: the page cache takes nothing.
    fn is_read_elsewhere(&self, number: usize) -> bool {
        let process = &self.processes[number];
        matches!(process.place, Place::Durable { .. }) && !process.is_last() && self.job.changes_nodes(self.platform)
    }

    fn make_dirty(&mut self, node: usize, place: Place, bytes: f64) {
        let number = self.pool_of(place);
        let pool = &mut self.pools[node][number];
        if pool.limit <= 0.0 {
            return;
        }
        pool.waiting.push((place, bytes));
        if pool.dirty > pool.begin {
            for (place, bytes) in std::mem::take(&mut pool.waiting) {
                let transfer = self.file_write(node, place);
                self.transfer(bytes, &transfer, Owner::WriteBack(node, number, bytes));
            }
        }
    }

    fn pool_of(&self, place: Place) -> usize {
        match place {
            Place::Durable { .. } => self.platform.tiers.len(),
            Place::Tier { tier, .. } => tier,
        }
    }

    fn file_write(&self, node: usize, place: Place) -> Transfer {
        match place {
            Place::Durable { disk } => self.hardware.durable_write(node, disk),
            Place::Tier { tier, device } => self.hardware.tier_write(node, tier, device),
        }
    }

    /// Of a file that was written a moment ago; `true`: from the page cache, which still has it if it can hold the files that
    /// the node's processes have under way.
    fn file_read(&self, node: usize, place: Place, bytes: f64) -> (Transfer, bool) {
        let held = bytes * f64::from(self.platform.processes_per_node);
        let cached = self.platform.cache.as_ref().is_some_and(|cache| cache.bytes as f64 >= held);
        match place {
            Place::Tier { tier, .. } if cached && !self.platform.tiers[tier].in_memory => {
                (self.hardware.cache_read(node), true)
            }
            Place::Tier { tier, device } => (self.hardware.tier_read(node, tier, device), false),
            Place::Durable { .. }
                if cached && self.platform.durable.cached_on_reopen && !self.job.changes_nodes(self.platform) =>
            {
                (self.hardware.cache_read(node), true)
            }
            Place::Durable { disk } => (self.hardware.durable_read(node, disk), false),
        }
    }

    /// Where the process's new file goes.
    fn place(&mut self, number: usize) -> Place {
        let bytes = self.write_bytes(number);
        let (node, item, iteration) =
            (self.processes[number].node, self.processes[number].item, self.processes[number].iteration);
        if self.way == Way::Terrace
            && let Some((tier, device, dropped)) = self.movers[node].place(0, bytes)
        {
            self.traffic.evicted_bytes += dropped;
            return Place::Tier { tier, device };
        }
        Place::Durable { disk: self.named_disk(item, iteration + 1) }
    }

    /// The disk of item `item`'s file in directory `directory` (0: the input's).
    fn named_disk(&mut self, item: u64, directory: u32) -> u32 {
        match &self.job.layout {
            Layout::Names(list) => {
                let of_name = list[(item % list.len() as u64) as usize];
                let shift = self.directory_shift[directory as usize];
                (of_name % self.platform.durable.disks + shift) % self.platform.durable.disks
            }
            _ => self.draw_disk(),
        }
    }

    fn draw_disk(&mut self) -> u32 {
        let disks = self.platform.durable.disks;
        if self.job.layout == Layout::RoundRobin {
            self.disk_next = (self.disk_next + self.platform.durable.stripe_disks) % disks;
            return self.disk_next;
        }
        self.random.random_range(0..disks)
    }

    /// A file was closed: if policy flushes it, its flush may begin after the settle time.
    fn closed(&mut self, number: usize, node: usize, place: Place, bytes: f64, last: bool) {
        self.processes[number].file = None;
        let flushed = match self.job.flush {
            Flush::All => true,
            Flush::Final => last,
            Flush::None => false,
        };
        let Place::Tier { tier, device } = place else { return };
        if !flushed || bytes <= 0.0 {
            self.unflushed[node] += 1;
            return;
        }
        let id = self.flushed_later(node, (tier, device), bytes);
        self.processes[number].file = Some(id);
        if self.platform.mover.settle_s > 0.0 {
            let timer = self.fabric.wait(self.platform.mover.settle_s);
            self.own(timer, Owner::Settled(id));
        } else {
            self.finished(Owner::Settled(id));
        }
    }

    /// One more file that the end waits for.
    fn flushed_later(&mut self, node: usize, (tier, device): (usize, usize), bytes: f64) -> usize {
        let id = self.closed.len();
        let file = Flushing { id, tier, device, bytes, is_asked_for: false };
        self.closed.push(Closed { node, file, stage: Stage::Settling, disk: 0, reader: None });
        self.flushing += 1;
        id
    }

    /// The process's next step is on another node, which opens what this one has written.
    fn bring(&mut self, number: usize) {
        let (from, place, bytes) = (self.processes[number].node, self.processes[number].place, self.intermediate_bytes);
        let to = (from + 1) % self.platform.nodes as usize;
        self.processes[number].node = to;
        let owner = Owner::Process(number);
        let at_once = |world: &mut Self| {
            let id = world.fabric.wait(0.0);
            world.own(id, owner);
        };
        let Place::Tier { tier, device } = place else { return at_once(self) };
        let Some(id) = self.processes[number].file.take() else {
            // Policy does not flush it: it becomes a real file all the same.
            self.unflushed[from] -= 1;
            let id = self.flushed_later(from, (tier, device), bytes);
            return self.flush_for(number, id);
        };
        match self.closed[id].stage {
            Stage::Settling => match self.movers[to].place(tier, bytes) {
                Some((new_tier, new_device, dropped)) => {
                    self.closed[id].stage = Stage::Gone;
                    self.flushing -= 1;
                    self.traffic.evicted_bytes += dropped;
                    self.traffic.brought_bytes += bytes;
                    self.processes[number].brought_from = Some((from, tier));
                    self.processes[number].place = Place::Tier { tier: new_tier, device: new_device };
                    let read = self.file_read(from, place, bytes).0;
                    let write = self.hardware.tier_write(to, new_tier, new_device);
                    let transfer = self.hardware.bring((from, read), (to, write));
                    self.transfer(bytes, &transfer, owner);
                }
                None => self.flush_for(number, id),
            },
            Stage::Flushing => self.closed[id].reader = Some(number),
            Stage::Durable | Stage::Gone => {
                self.processes[number].place = Place::Durable { disk: self.closed[id].disk };
                at_once(self);
            }
        }
    }

    /// The process waits for the file, which becomes durable beside what the movers do.
    fn flush_for(&mut self, number: usize, id: usize) {
        let closed = &mut self.closed[id];
        (closed.stage, closed.reader, closed.file.is_asked_for) = (Stage::Flushing, Some(number), true);
        let (node, file) = (closed.node, closed.file);
        self.begin_flush(node, file);
    }

    /// What is not flushed is removed at the end, by all movers of its node.
    fn remove_unflushed(&mut self) {
        for node in 0..self.unflushed.len() {
            let parts = self.unflushed[node].min(u64::from(self.platform.mover.threads));
            for _ in 0..parts {
                let count = self.unflushed[node] as f64 / parts as f64 * self.platform.mover.operations_per_removal;
                let id = self.hardware.operations(&mut self.fabric, node, count, 0.0);
                self.own(id, Owner::Removal);
                self.flushing += 1;
            }
        }
    }

    fn move_next(&mut self, node: usize) {
        while let Some(file) = self.movers[node].begin() {
            self.begin_flush(node, file);
        }
    }

    fn begin_flush(&mut self, node: usize, file: Flushing) {
        let count = self.platform.mover.operations_per_file;
        let id = self.hardware.operations(&mut self.fabric, node, count, 0.0);
        self.own(id, Owner::MoverOperations(node, file, self.fabric.now_s()));
    }
}
