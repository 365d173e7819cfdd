//! The closed form on a `Platform`: equations 1 to 11 for any number of tiers, with computing, flush, and what limits.
//!
//! With two tiers, memory and local disks, and no computing, the bounds are those of `equations` to the last digit; a test
//! holds them to it. What the paper has no term for is added as it is least (lower) and most (upper):
//!
//! ```text
//!   alone    lower: eq. 4 + computing                                    upper: eq. 1 + computing
//!   Terrace  lower: max(eq. 4 + computing, D_I/L_r + flushed/L_w)        upper: eq. 5 + computing + flushed/L_w
//! ```

use crate::equations::seconds;
use crate::error::ModelError;
use crate::job::{Flush, Job};
use crate::platform::{FastTier, NODE_NETWORK, Platform, STREAMS};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    pub with_page_cache_s: f64,
    pub without_page_cache_s: f64,
}

/// One part of the time without page cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// What is done, in words.
    pub what: String,
    pub bytes: f64,
    /// Zero for computing.
    pub bytes_s: f64,
    pub seconds: f64,
    /// What its bandwidth comes from.
    pub limited_by: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClosedForm {
    pub durable_alone: Times,
    pub terrace: Times,
    /// Of Terrace's time without page cache, longest first; what takes no time is left out.
    pub terms: Vec<Term>,
    pub alone_terms: Vec<Term>,
    /// What each tier, fast to slow and the durable one last, gets: bytes written, and intermediate bytes read.
    pub written_bytes: Vec<f64>,
    pub read_bytes: Vec<f64>,
    pub flushed_bytes: f64,
}

/// What another capacity of one tier would give.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargerTier {
    pub tier: String,
    /// In each node.
    pub capacity_bytes: u64,
    pub without_page_cache_s: f64,
}

pub fn closed_form(platform: &Platform, job: &Job) -> Result<ClosedForm, ModelError> {
    platform.check()?;
    job.check()?;
    let workload = &job.workload;
    let nodes = f64::from(platform.nodes);
    let (read_rate, read_limit) = platform.durable_read();
    let (write_rate, write_limit) = platform.durable_write();
    let (input, intermediate) = (workload.input_bytes as f64, workload.intermediate_bytes as f64);
    let written = workload.written_bytes() as f64;

    // Computing shares processors at best, and is never faster than one processor a process.
    let workers = platform.processes().min(job.items()) as f64;
    let cores = platform.cores_per_node.map_or(f64::INFINITY, |cores| cores * nodes);
    let computing = Term {
        what: "compute".into(),
        bytes: 0.0,
        bytes_s: 0.0,
        seconds: job.compute_s / workers.min(cores),
        limited_by: if cores < workers { "processors" } else { "processes" }.into(),
    };
    let term = |what: String, bytes: f64, bytes_s: f64, limited_by: &str| Term {
        what,
        bytes,
        bytes_s,
        seconds: seconds(bytes, bytes_s),
        limited_by: limited_by.into(),
    };

    let mut terms = vec![computing.clone(), term("read the input".into(), input, read_rate, read_limit)];
    let kept_free = f64::from(platform.processes_per_node) * workload.file_bytes as f64;
    let (mut to_read, mut to_write) = (intermediate, written);
    let (mut read_bytes, mut written_bytes) = (vec![], vec![]);
    let (goes_elsewhere, mut bring_s) = (job.changes_nodes(platform), 0.0);
    // What policy does not flush goes to no other node's tier: it is made durable for whoever reads it there.
    let is_brought = goes_elsewhere && job.flush == Flush::All;
    let mut made_durable = 0.0;
    for tier in &platform.tiers {
        let room = (nodes * (tier.capacity_bytes as f64 - kept_free)).max(0.0);
        let devices = nodes * f64::from(tier.devices);
        let (here_left, here_written) = (to_read.min(room), to_write.min(room));
        let here_read = if goes_elsewhere && !is_brought { 0.0 } else { here_left };
        let limit = format!("tier `{}`", tier.name);
        terms.push(term(format!("read from `{}`", tier.name), here_read, devices * tier.read_bytes_s, &limit));
        terms.push(term(format!("write to `{}`", tier.name), here_written, devices * tier.write_bytes_s, &limit));
        if is_brought {
            let (rate, limit) = bring_rate(platform, tier, workers);
            let bring = term(format!("bring to the next step's node, from `{}`", tier.name), here_read, rate, &limit);
            bring_s += bring.seconds;
            terms.push(bring);
        }
        made_durable += here_left - here_read;
        to_read -= here_left;
        to_write -= here_written;
        read_bytes.push(here_read);
        written_bytes.push(here_written);
    }
    to_read += made_durable;
    terms.push(term("read intermediate data from the durable tier".into(), to_read, read_rate, read_limit));
    terms.push(term("write to the durable tier".into(), to_write, write_rate, write_limit));
    read_bytes.push(to_read);
    written_bytes.push(to_write);
    // What lies in the durable tier already needs no flush.
    let flushed_last = (job.flushed_bytes() as f64).min(written - to_write);
    let flushed = flushed_last + made_durable;
    terms.push(term("flush".into(), flushed, write_rate, write_limit));

    let alone_terms = vec![
        computing.clone(),
        term("read the input".into(), input, read_rate, read_limit),
        term("read intermediate data".into(), intermediate, read_rate, read_limit),
        term("write".into(), written, write_rate, write_limit),
    ];
    let sum = |terms: &[Term]| terms.iter().map(|term| term.seconds).sum::<f64>();
    let alone_upper_s = sum(&alone_terms);
    let without_page_cache_s = sum(&terms);
    // Without a page cache there is none to hide behind; a cache can't be slower than what it caches.
    // What one node wrote is in no other node's, and has to be durable before it is read there.
    let (past_read, past_written) = if goes_elsewhere { (to_read, to_write) } else { (0.0, 0.0) };
    let cached = platform.cache.as_ref().map(|cache| {
        computing.seconds
            + seconds(input + past_read, read_rate)
            + seconds(past_written + made_durable, write_rate)
            + seconds(intermediate - past_read, nodes * cache.read_bytes_s)
            + seconds(written - past_written, nodes * cache.write_bytes_s)
            + bring_s
    });
    let cached_alone = cached.filter(|_| !goes_elsewhere);
    let flush_floor_s = seconds(input, read_rate) + seconds(flushed, write_rate);
    let alone_lower_s = cached_alone.unwrap_or(alone_upper_s).min(alone_upper_s);
    let with_page_cache_s = cached
        .unwrap_or(without_page_cache_s - seconds(flushed_last, write_rate))
        .max(flush_floor_s)
        .min(without_page_cache_s);
    Ok(ClosedForm {
        durable_alone: Times { with_page_cache_s: alone_lower_s, without_page_cache_s: alone_upper_s },
        terrace: Times { with_page_cache_s, without_page_cache_s },
        terms: longest_first(terms),
        alone_terms: longest_first(alone_terms),
        written_bytes,
        read_bytes,
        flushed_bytes: flushed,
    })
}

/// At which rate files go from each node's tier to the next node's, and what limits it. A device is read and written at the same time.
fn bring_rate(platform: &Platform, tier: &FastTier, workers: f64) -> (f64, String) {
    let nodes = f64::from(platform.nodes);
    let device = 1.0 / (1.0 / tier.read_bytes_s + 1.0 / tier.write_bytes_s);
    [
        (nodes * f64::from(tier.devices) * device, format!("tier `{}`", tier.name)),
        (nodes * platform.network(), NODE_NETWORK.into()),
        (workers * platform.peers.stream_bytes_s.unwrap_or(f64::INFINITY), STREAMS.into()),
    ]
    .into_iter()
    .min_by(|a, b| a.0.total_cmp(&b.0))
    .expect("the list above has three entries")
}

/// Terrace's upper bound with each tier twice as large, and with the fastest large enough for all that is written.
pub fn larger_tiers(platform: &Platform, job: &Job) -> Result<Vec<LargerTier>, ModelError> {
    let per_node = (job.workload.written_bytes() as f64 / f64::from(platform.nodes.max(1))).ceil() as u64;
    let enough =
        per_node.saturating_add(u64::from(platform.processes_per_node).saturating_mul(job.workload.file_bytes));
    let mut found = vec![];
    for (place, tier) in platform.tiers.iter().enumerate() {
        let mut capacities = vec![tier.capacity_bytes.saturating_mul(2)];
        if place == 0 {
            capacities.push(enough.max(tier.capacity_bytes));
        }
        for capacity_bytes in capacities {
            let mut larger = platform.clone();
            larger.tiers[place].capacity_bytes = capacity_bytes;
            let without_page_cache_s = closed_form(&larger, job)?.terrace.without_page_cache_s;
            found.push(LargerTier { tier: tier.name.clone(), capacity_bytes, without_page_cache_s });
        }
    }
    Ok(found)
}

fn longest_first(mut terms: Vec<Term>) -> Vec<Term> {
    terms.retain(|term| term.seconds > 0.0);
    terms.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::any_machine;
    use crate::platform::{CopyCost, DurableTier, FastTier, Mover, PageCache, Peers};
    use crate::{Flush, Incrementation, MIB, Machine, Workload, durable_alone_s, page_cache_s, tiers};
    use proptest::prelude::*;

    fn platform(machine: &Machine) -> Platform {
        let tier = |name: &str, in_memory, devices: u32, capacity_bytes, read_bytes_s, write_bytes_s| FastTier {
            name: name.into(),
            in_memory,
            devices,
            capacity_bytes,
            read_bytes_s,
            write_bytes_s,
            latency_s: 0.0,
            processor: CopyCost::default(),
        };
        let disks = u64::from(machine.local_disks) * machine.local_disk_bytes;
        Platform {
            nodes: machine.compute_nodes,
            processes_per_node: machine.processes_per_node,
            cores_per_node: None,
            other_threads: 0,
            network_bytes_s: machine.network_bytes_s,
            tiers: vec![
                tier(
                    "memory",
                    true,
                    1,
                    machine.memory_bytes,
                    machine.memory_read_bytes_s,
                    machine.memory_write_bytes_s,
                ),
                tier(
                    "disks",
                    false,
                    machine.local_disks,
                    disks,
                    machine.local_read_bytes_s,
                    machine.local_write_bytes_s,
                ),
            ],
            durable: DurableTier {
                servers: machine.storage_nodes,
                disks: machine.durable_disks,
                ..durable(machine.durable_read_bytes_s, machine.durable_write_bytes_s)
            },
            cache: Some(PageCache {
                bytes: 1 << 40,
                read_bytes_s: machine.memory_read_bytes_s,
                write_bytes_s: machine.memory_write_bytes_s,
                dirty_bytes: 0,
                processor: CopyCost::default(),
            }),
            mover: Mover::default(),
            peers: Peers::default(),
        }
    }

    fn durable(read_bytes_s: f64, write_bytes_s: f64) -> DurableTier {
        serde_json::from_value(serde_json::json!({ "read_bytes_s": read_bytes_s, "write_bytes_s": write_bytes_s }))
            .unwrap()
    }

    fn job(workload: Workload) -> Job {
        Job { flush: Flush::None, ..Job::of(workload) }
    }

    proptest! {
        #[test]
        fn with_two_tiers_it_is_the_papers_equations(
            machine in any_machine(1..9), blocks in 1u64..500, block_bytes in 1u64..1 << 28, iterations in 1u64..20,
        ) {
            let workload = Incrementation { blocks, block_bytes, iterations }.workload();
            let found = closed_form(&platform(&machine), &job(workload))?;
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.max(b).max(1e-9);
            let (alone, on_tiers) = (durable_alone_s(&machine, &workload)?, tiers(&machine, &workload)?.total_s());
            prop_assert!(near(found.durable_alone.without_page_cache_s, alone));
            prop_assert!(near(found.terrace.without_page_cache_s, on_tiers));
            prop_assert!(near(found.durable_alone.with_page_cache_s, page_cache_s(&machine, &workload)?.min(alone)));
        }

        #[test]
        fn a_larger_tier_that_is_faster_is_never_slower(
            machine in any_machine(1..9), blocks in 1u64..500, block_bytes in 1u64..1 << 28, iterations in 1u64..20,
        ) {
            let job = Job { flush: Flush::All, ..Job::of(Incrementation { blocks, block_bytes, iterations }.workload()) };
            let mut platform = platform(&machine);
            platform.tiers.truncate(1);
            platform.tiers[0].read_bytes_s = platform.durable_read().0;
            platform.tiers[0].write_bytes_s = platform.durable_write().0 * 2.0;
            let free_of_flush = Job { flush: Flush::None, ..job };
            let without_page_cache_s = closed_form(&platform, &free_of_flush)?.terrace.without_page_cache_s;
            for larger in larger_tiers(&platform, &free_of_flush)? {
                prop_assert!(larger.without_page_cache_s <= without_page_cache_s * (1.0 + 1e-9), "{larger:?} over {without_page_cache_s}");
            }
        }

        #[test]
        fn a_lower_bound_is_below_its_upper(machine in any_machine(1..9), blocks in 1u64..500, block_bytes in 1u64..1 << 28, compute_s in 0.0..1e4f64) {
            let workload = Incrementation { blocks, block_bytes, iterations: 3 }.workload();
            let found = closed_form(&platform(&machine), &Job { compute_s, ..Job::of(workload) })?;
            prop_assert!(found.durable_alone.with_page_cache_s <= found.durable_alone.without_page_cache_s);
            prop_assert!(found.terrace.with_page_cache_s <= found.terrace.without_page_cache_s);
        }
    }

    #[test]
    fn what_takes_longest_is_named_first() {
        let machine = Machine {
            compute_nodes: 1,
            processes_per_node: 2,
            storage_nodes: 4,
            durable_disks: 4,
            network_bytes_s: None,
            durable_read_bytes_s: 1000.0 * MIB,
            durable_write_bytes_s: 100.0 * MIB,
            local_disks: 1,
            local_disk_bytes: 0,
            local_read_bytes_s: 1.0,
            local_write_bytes_s: 1.0,
            memory_bytes: 1 << 40,
            memory_read_bytes_s: 4000.0 * MIB,
            memory_write_bytes_s: 2000.0 * MIB,
        };
        let workload = Incrementation { blocks: 8, block_bytes: 64 << 20, iterations: 5 }.workload();
        let found = closed_form(&platform(&machine), &Job { flush: Flush::Final, ..Job::of(workload) }).unwrap();
        // 512 MiB flushed by two busy disks: 2.56 s; 2560 MiB into memory: 1.28 s.
        assert_eq!(found.terms[0].what, "flush");
        assert!((found.terms[0].seconds - 2.56).abs() < 1e-9);
        assert_eq!(found.terms[0].limited_by, crate::platform::PROCESSES);
        let more = Machine { processes_per_node: 64, memory_write_bytes_s: 8000.0 * MIB, ..machine };
        let found = closed_form(&platform(&more), &Job { flush: Flush::Final, ..Job::of(workload) }).unwrap();
        assert_eq!(found.terms[0].limited_by, crate::platform::DISKS);
    }

    #[test]
    fn a_file_size_of_zero_is_refused_by_name() {
        let workload = Workload { input_bytes: 1, intermediate_bytes: 0, final_bytes: 0, file_bytes: 0 };
        assert!(job(workload).check().unwrap_err().to_string().contains("file_bytes"));
        let iterations = Job { iterations: 1, ..job(Workload { intermediate_bytes: 5, file_bytes: 1, ..workload }) };
        assert!(iterations.check().unwrap_err().to_string().contains("iterations"));
    }
}
