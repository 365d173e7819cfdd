//! The sharing by classes against plain max-min sharing of single activities, on small networks.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// An activity as the test knows it.
struct Known {
    uses: Vec<(usize, f64)>,
    bound: f64,
    left: f64,
    work: f64,
}

impl Known {
    fn full_speed(&self) -> f64 {
        if self.bound.is_finite() { self.bound } else { FULL_SPEED }
    }
}

/// Progressive filling by the book (Bertsekas and Gallager, Data Networks, 6.5.2): all levels rise together until a resource
/// is full or a bound is met; those stop, the others go on.
fn plain_rates(capacities: &[f64], all: &BTreeMap<ActivityId, Known>) -> BTreeMap<ActivityId, f64> {
    let mut rates = BTreeMap::new();
    while rates.len() < all.len() {
        let open: Vec<_> = all.iter().filter(|(id, _)| !rates.contains_key(*id)).collect();
        let full_at: Vec<f64> = (0..capacities.len())
            .map(|at| {
                let taken = |known: &Known, rate: f64| -> f64 {
                    known.uses.iter().filter(|(used, _)| *used == at).map(|(_, coefficient)| coefficient * rate).sum()
                };
                let fixed: f64 = rates.iter().map(|(id, &rate)| taken(&all[id], rate)).sum();
                let weight: f64 = open.iter().map(|(_, known)| taken(known, known.full_speed())).sum();
                if weight > 0.0 { (capacities[at] - fixed).max(0.0) / weight } else { f64::INFINITY }
            })
            .collect();
        let own = |known: &Known| if known.bound.is_finite() { 1.0 } else { f64::INFINITY };
        let level_of = |known: &Known| known.uses.iter().map(|(at, _)| full_at[*at]).fold(own(known), f64::min);
        let level = open.iter().map(|(_, known)| level_of(known)).fold(f64::INFINITY, f64::min);
        for (id, known) in open {
            if level_of(known) <= level * (1.0 + 1e-12) {
                rates.insert(*id, known.full_speed() * level);
            }
        }
    }
    rates
}

/// Nodes, servers and disks in the order in which the fabric has them.
#[derive(Clone, Debug)]
struct Network {
    nodes: usize,
    servers: usize,
    disks: usize,
    link: f64,
    server_link: f64,
    memory: f64,
    processors: f64,
    metadata: f64,
}

impl Network {
    fn capacities(&self) -> Vec<f64> {
        let each = |count: usize, capacity: f64| std::iter::repeat_n(capacity, count);
        each(self.nodes, self.link)
            .chain(each(self.nodes, self.memory))
            .chain(each(self.nodes, self.processors))
            .chain(each(self.servers, self.server_link))
            .chain(each(self.disks, 1.0))
            .chain([self.metadata])
            .collect()
    }

    /// What an activity of this kind uses, and its bound.
    fn activity(&self, kind: u32, node: usize, disk: usize) -> (Vec<(usize, f64)>, f64) {
        let (node, disk) = (node % self.nodes, disk % self.disks);
        let (memory, processors) = (self.nodes + node, 2 * self.nodes + node);
        let server = 3 * self.nodes + disk % self.servers;
        let (disk, metadata) = (3 * self.nodes + self.servers + disk, 3 * self.nodes + self.servers + self.disks);
        match kind {
            0 => (vec![(node, 1.0), (server, 1.0), (disk, 1.0 / 1400.0)], f64::INFINITY),
            1 => (vec![(node, 1.0), (server, 1.0), (disk, 1.0 / 120.0)], f64::INFINITY),
            2 => (vec![(memory, 1.0 / 2500.0)], f64::INFINITY),
            3 => (vec![(processors, 1.0)], 1.0),
            4 => (vec![(metadata, 1.0), (processors, 0.01)], 100.0),
            5 => (vec![(memory, 1.0 / 6000.0), (node, 1.0), (server, 1.0), (disk, 1.0 / 120.0)], f64::INFINITY),
            6 => (vec![(processors, 0.002), (node, 1.0), (server, 1.0), (disk, 1.0 / 1400.0)], 500.0),
            _ => (vec![], 1.0),
        }
    }
}

fn networks() -> impl Strategy<Value = Network> {
    let some = |values: &'static [f64]| proptest::sample::select(values);
    (1usize..6, 1usize..3, 1usize..5, some(&[100.0, 3000.0, 1e5]), some(&[300.0, 3000.0, 1e5])).prop_flat_map(
        move |(nodes, servers, disks, link, server_link)| {
            (some(&[0.1, 1.0, 50.0]), some(&[0.5, 4.0, 32.0]), some(&[50.0, 20_000.0])).prop_map(
                move |(memory, processors, metadata)| Network {
                    nodes,
                    servers,
                    disks,
                    link,
                    server_link,
                    memory,
                    processors,
                    metadata,
                },
            )
        },
    )
}

/// Bounds hold, and what isn't contended has room for all its users at their bounds.
fn check_invariants(fabric: &Fabric) -> Result<(), TestCaseError> {
    let mut most = vec![0.0; fabric.resources.len()];
    for activity in fabric.activities.iter().filter(|activity| activity.stamp != 0) {
        let class = &fabric.classes[activity.class as usize];
        prop_assert!(class.level <= class.bound * (1.0 + 1e-12));
        for used in &activity.uses {
            most[used.id.0 as usize] += used.coefficient * activity.full_speed * class.bound;
        }
    }
    for (resource, most) in fabric.resources.iter().zip(most) {
        prop_assert!((resource.most - most).abs() <= 1e-9 * (most + resource.capacity));
        prop_assert!(resource.contended || most <= resource.capacity * (1.0 + 1e-9));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn classes_get_what_plain_max_min_sharing_gives(
        network in networks(),
        starts in proptest::collection::vec(
            (0u32..8, 0usize..6, 0usize..5, proptest::sample::select(&[0.0, 1.0, 10.0, 10.0, 1000.0, 777.0][..]), 0u32..3), 1..80),
    ) {
        let capacities = network.capacities();
        let mut fabric = Fabric::default();
        let ids: Vec<ResourceId> = capacities.iter().map(|&capacity| fabric.resource(capacity)).collect();
        let mut known: BTreeMap<ActivityId, Known> = BTreeMap::new();
        let mut starts = starts.into_iter();
        let mut done = vec![0.0; capacities.len()];
        loop {
            // Some start together, until one that waits for something to finish.
            let mut more = false;
            for (kind, node, disk, work, after) in starts.by_ref() {
                let (uses, bound) = network.activity(kind, node, disk);
                let named: Vec<_> = uses.iter().map(|&(at, coefficient)| (ids[at], coefficient)).collect();
                let bound_of_start = if uses.is_empty() { f64::INFINITY } else { bound };
                known.insert(fabric.start(work, bound_of_start, &named), Known { uses, bound, left: work, work });
                more = true;
                if after == 0 {
                    break;
                }
            }
            if known.is_empty() && !more {
                break;
            }
            fabric.share();
            check_invariants(&fabric)?;
            let rates = plain_rates(&capacities, &known);
            for (id, rate) in &rates {
                prop_assert!((fabric.rate(*id) - rate).abs() <= 1e-7 * rate, "{} instead of {rate}", fabric.rate(*id));
            }
            let before_s = fabric.now_s();
            let Some(finished) = fabric.advance() else { return Err(TestCaseError::fail("it never ends")) };
            let passed_s = fabric.now_s() - before_s;
            for (id, known) in &mut known {
                known.left -= rates[id] * passed_s;
            }
            for id in finished {
                let Some(gone) = known.remove(&id) else { return Err(TestCaseError::fail("it was not under way")) };
                // What finishes within a moment finishes together.
                let together = 2.0 * rates[&id] * (fabric.now_s() * TOGETHER).max(1e-10);
                prop_assert!(gone.left.abs() <= 1e-6 * gone.work.max(1.0) + together, "{} of {} left", gone.left, gone.work);
                for (at, coefficient) in gone.uses {
                    done[at] += coefficient * gone.work;
                }
            }
            prop_assert!(known.values().all(|known| known.left >= -1e-6 * known.work.max(1.0)));
        }
        for (at, &id) in ids.iter().enumerate() {
            let busy = done[at] / (capacities[at] * fabric.now_s().max(1e-300));
            prop_assert!((fabric.busy(id) - busy).abs() <= 1e-9 * busy);
        }
        prop_assert!(fabric.by_key.is_empty() || !fabric.changed.is_empty());
    }
}

#[test]
fn a_class_has_one_finish_time_however_many_members_it_has() {
    let mut fabric = Fabric::default();
    let disk = fabric.resource(1.0);
    let links: Vec<ResourceId> = (0..1000).map(|_| fabric.resource(1e6)).collect();
    for (number, &link) in links.iter().enumerate() {
        fabric.start(1000.0 + number as f64, f64::INFINITY, &[(disk, 0.01), (link, 1.0)]);
    }
    while fabric.advance().is_some() {}
    assert_eq!(fabric.events(), 1000);
    // One level for each event; members by themselves only when the disk gets contended and where the bound halves or doubles.
    assert!(fabric.steps() < 15_000, "{}", fabric.steps());
    assert!(links.iter().all(|link| !fabric.resources[link.0 as usize].contended));
}
