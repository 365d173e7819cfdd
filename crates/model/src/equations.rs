//! Equations 1 to 11 of the paper: a workload's makespan on a machine.
//!
//! A term whose bytes are zero is zero seconds, whatever its bandwidth: a tier that is absent takes no time.

use crate::error::ModelError;
use crate::machine::Machine;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// Equation 1: M = D_r/L_r + D_w/L_w, seconds. Every byte is read from and written to the durable tier, as a run without
/// tiers and without a page cache would do: the upper bound of a run on the durable tier alone.
pub fn durable_alone_s(machine: &Machine, workload: &Workload) -> Result<f64, ModelError> {
    machine.check()?;
    let read_s = seconds(workload.read_bytes() as f64, machine.durable_read_total_bytes_s());
    let write_s = seconds(workload.written_bytes() as f64, machine.durable_write_total_bytes_s());
    Ok(read_s + write_s)
}

/// Equation 4: M = D_I/L_r + D_cr/(c·C_r) + D_cw/(c·C_w), seconds, with D_cr = D_m and D_cw = D_m + D_f. Only the input
/// comes from the durable tier; the page cache takes all else: the lower bound of a run, with or without tiers.
pub fn page_cache_s(machine: &Machine, workload: &Workload) -> Result<f64, ModelError> {
    machine.check()?;
    let nodes = f64::from(machine.compute_nodes);
    let input_s = seconds(workload.input_bytes as f64, machine.durable_read_total_bytes_s());
    let read_s = seconds(workload.intermediate_bytes as f64, nodes * machine.memory_read_bytes_s);
    let write_s = seconds(workload.written_bytes() as f64, nodes * machine.memory_write_bytes_s);
    Ok(input_s + read_s + write_s)
}

/// Where a workload's bytes go when tiers are filled fast to slow (equations 6 to 11). Bytes over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// D_tr (6): intermediate bytes read from memory.
    pub memory_read_bytes: f64,
    /// D_tw (7): bytes written to memory.
    pub memory_written_bytes: f64,
    /// D_gr (8): intermediate bytes read from local disks.
    pub local_read_bytes: f64,
    /// D_gw (9): bytes written to local disks.
    pub local_written_bytes: f64,
    /// D_Lr (10): intermediate bytes read from the durable tier.
    pub durable_read_bytes: f64,
    /// D_Lw (11): bytes written to the durable tier.
    pub durable_written_bytes: f64,
}

/// Equations 6 to 11:
///
/// ```text
///  6  D_tr = min(D_m,               max(c(t − pF), 0))       7  D_tw = min(D_m + D_f,        max(c(t − pF), 0))
///  8  D_gr = min(D_m − D_tr,        max(c(gr − pF), 0))      9  D_gw = min(D_m + D_f − D_tw, max(c(gr − pF), 0))
/// 10  D_Lr = D_m − D_gr − D_tr                              11  D_Lw = D_m + D_f − D_gw − D_tw
/// ```
pub fn place(machine: &Machine, workload: &Workload) -> Result<Placement, ModelError> {
    machine.check()?;
    let nodes = f64::from(machine.compute_nodes);
    let kept_free = f64::from(machine.processes_per_node) * workload.file_bytes as f64;
    let memory_room = (nodes * (machine.memory_bytes as f64 - kept_free)).max(0.0);
    let local_space = f64::from(machine.local_disks) * machine.local_disk_bytes as f64;
    let local_room = (nodes * (local_space - kept_free)).max(0.0);

    let intermediate = workload.intermediate_bytes as f64;
    let written = workload.written_bytes() as f64;
    let memory_read_bytes = intermediate.min(memory_room);
    let memory_written_bytes = written.min(memory_room);
    let local_read_bytes = (intermediate - memory_read_bytes).min(local_room);
    let local_written_bytes = (written - memory_written_bytes).min(local_room);
    Ok(Placement {
        memory_read_bytes,
        memory_written_bytes,
        local_read_bytes,
        local_written_bytes,
        durable_read_bytes: intermediate - local_read_bytes - memory_read_bytes,
        durable_written_bytes: written - local_written_bytes - memory_written_bytes,
    })
}

/// A run on tiers: seconds spent on each level, and where the bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TierPrediction {
    pub durable_s: f64,
    pub local_s: f64,
    pub memory_s: f64,
    pub placement: Placement,
}

impl TierPrediction {
    /// The makespan: the sum of the three.
    pub fn total_s(&self) -> f64 {
        self.durable_s + self.local_s + self.memory_s
    }
}

/// Equation 5, seconds: M = (D_I/L_r + D_Lr/L_r + D_Lw/L_w) + (D_gr/(g·c·G_r) + D_gw/(g·c·G_w)) + (D_tr/(c·C_r) + D_tw/(c·C_w)),
/// with the bytes of equations 6 to 11: the upper bound of a run on tiers. Flushing is not part of it.
pub fn tiers(machine: &Machine, workload: &Workload) -> Result<TierPrediction, ModelError> {
    let placement = place(machine, workload)?;
    let nodes = f64::from(machine.compute_nodes);
    let disks = nodes * f64::from(machine.local_disks);
    let durable_read_bytes = workload.input_bytes as f64 + placement.durable_read_bytes;
    Ok(TierPrediction {
        durable_s: seconds(durable_read_bytes, machine.durable_read_total_bytes_s())
            + seconds(placement.durable_written_bytes, machine.durable_write_total_bytes_s()),
        local_s: seconds(placement.local_read_bytes, disks * machine.local_read_bytes_s)
            + seconds(placement.local_written_bytes, disks * machine.local_write_bytes_s),
        memory_s: seconds(placement.memory_read_bytes, nodes * machine.memory_read_bytes_s)
            + seconds(placement.memory_written_bytes, nodes * machine.memory_write_bytes_s),
        placement,
    })
}

/// Seconds for `bytes` at `bytes_s`. No bytes take no time, even where the tier is absent (0/0).
pub(crate) fn seconds(bytes: f64, bytes_s: f64) -> f64 {
    if bytes == 0.0 { 0.0 } else { bytes / bytes_s }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MIB;
    use crate::machine::any_machine;
    use crate::workload::Incrementation;
    use proptest::prelude::*;

    const MIB_BYTES: u64 = 1 << 20;

    /// Two nodes of four processes, eight durable disks of 100 MiB/s written and 200 MiB/s read.
    fn machine() -> Machine {
        Machine {
            compute_nodes: 2,
            processes_per_node: 4,
            storage_nodes: 4,
            durable_disks: 8,
            network_bytes_s: Some(1000.0 * MIB),
            durable_read_bytes_s: 200.0 * MIB,
            durable_write_bytes_s: 100.0 * MIB,
            local_disks: 2,
            local_disk_bytes: 1000 * MIB_BYTES,
            local_read_bytes_s: 500.0 * MIB,
            local_write_bytes_s: 400.0 * MIB,
            memory_bytes: 1400 * MIB_BYTES,
            memory_read_bytes_s: 5000.0 * MIB,
            memory_write_bytes_s: 2500.0 * MIB,
        }
    }

    /// 80 blocks of 100 MiB, two iterations: 8000 MiB each of input, intermediate and final data.
    fn workload() -> Workload {
        Incrementation { blocks: 80, block_bytes: 100 * MIB_BYTES, iterations: 2 }.workload()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-12)
    }

    #[test]
    fn the_durable_tier_is_limited_by_its_disks_its_network_or_too_few_processes() {
        let mut machine = machine();
        // 8 disks, 8 processes: 8·200 = 1600 read, 8·100 = 800 written; network 2·1000 and 4·1000.
        assert!(close(machine.durable_read_total_bytes_s(), 1600.0 * MIB));
        assert!(close(machine.durable_write_total_bytes_s(), 800.0 * MIB));
        machine.network_bytes_s = Some(500.0 * MIB); // cN = 1000
        assert!(close(machine.durable_read_total_bytes_s(), 1000.0 * MIB));
        machine.storage_nodes = 1; // sN = 500
        assert!(close(machine.durable_read_total_bytes_s(), 500.0 * MIB));
        machine.network_bytes_s = None;
        machine.processes_per_node = 1; // cp = 2 disks busy
        assert!(close(machine.durable_write_total_bytes_s(), 200.0 * MIB));
    }

    #[test]
    fn durable_alone_adds_reads_and_writes() {
        // 16000/1600 + 16000/800 = 10 + 20.
        assert!(close(durable_alone_s(&machine(), &workload()).unwrap(), 30.0));
    }

    #[test]
    fn the_page_cache_bound_reads_only_the_input_from_the_durable_tier() {
        // 8000/1600 + 8000/(2·5000) + 16000/(2·2500) = 5 + 0.8 + 3.2.
        assert!(close(page_cache_s(&machine(), &workload()).unwrap(), 9.0));
    }

    #[test]
    fn tiers_are_filled_fast_to_slow() {
        // Room in memory 2·(1400 − 400) = 2000; on disks 2·(2000 − 400) = 3200 (MiB).
        let prediction = tiers(&machine(), &workload()).unwrap();
        let placement = prediction.placement;
        assert!(close(placement.memory_read_bytes, 2000.0 * MIB));
        assert!(close(placement.memory_written_bytes, 2000.0 * MIB));
        assert!(close(placement.local_read_bytes, 3200.0 * MIB));
        assert!(close(placement.local_written_bytes, 3200.0 * MIB));
        assert!(close(placement.durable_read_bytes, 2800.0 * MIB));
        assert!(close(placement.durable_written_bytes, 10800.0 * MIB));
        // Memory 2000/10000 + 2000/5000; disks 3200/(4·500) + 3200/(4·400); durable (8000 + 2800)/1600 + 10800/800.
        assert!(close(prediction.memory_s, 0.6));
        assert!(close(prediction.local_s, 3.6));
        assert!(close(prediction.durable_s, 20.25));
        assert!(close(prediction.total_s(), 24.45));
    }

    #[test]
    fn memory_that_holds_all_meets_the_page_cache_bound() {
        let roomy = Machine { memory_bytes: 1 << 50, ..machine() };
        let total = tiers(&roomy, &workload()).unwrap().total_s();
        assert!(close(total, page_cache_s(&roomy, &workload()).unwrap()));
    }

    #[test]
    fn memory_smaller_than_one_file_of_each_process_holds_nothing() {
        let small = Machine { memory_bytes: 399 * MIB_BYTES, ..machine() };
        assert_eq!(place(&small, &workload()).unwrap().memory_written_bytes, 0.0);
    }

    #[test]
    fn a_machine_without_nodes_processes_disks_or_bandwidth_is_refused_by_name() {
        let broken: [(&str, Machine); 6] = [
            ("compute_nodes", Machine { compute_nodes: 0, ..machine() }),
            ("processes_per_node", Machine { processes_per_node: 0, ..machine() }),
            ("storage_nodes", Machine { storage_nodes: 0, ..machine() }),
            ("durable_disks", Machine { durable_disks: 0, ..machine() }),
            ("durable_read_bytes_s", Machine { durable_read_bytes_s: 0.0, ..machine() }),
            ("memory_write_bytes_s", Machine { memory_write_bytes_s: f64::NAN, ..machine() }),
        ];
        for (name, machine) in broken {
            for error in [
                durable_alone_s(&machine, &workload()).unwrap_err(),
                page_cache_s(&machine, &workload()).unwrap_err(),
                tiers(&machine, &workload()).unwrap_err(),
            ] {
                assert!(error.to_string().contains(name), "{error}");
            }
        }
    }

    #[test]
    fn a_machine_without_local_disks_needs_no_bandwidth_for_them() {
        let diskless = Machine {
            local_disks: 0,
            local_disk_bytes: 0,
            local_read_bytes_s: 0.0,
            local_write_bytes_s: 0.0,
            ..machine()
        };
        let prediction = tiers(&diskless, &workload()).unwrap();
        assert_eq!(prediction.local_s, 0.0);
        assert!(prediction.total_s().is_finite());
    }

    #[test]
    fn no_data_takes_no_time() {
        let nothing = Incrementation { blocks: 0, block_bytes: MIB_BYTES, iterations: 5 }.workload();
        assert_eq!(durable_alone_s(&machine(), &nothing).unwrap(), 0.0);
        assert_eq!(tiers(&machine(), &nothing).unwrap().total_s(), 0.0);
    }

    prop_compose! {
        fn any_workload()(blocks in 0u64..2000, block_bytes in 1u64..1 << 30, iterations in 0u64..20) -> Workload {
            Incrementation { blocks, block_bytes, iterations }.workload()
        }
    }

    proptest! {
        #[test]
        fn more_bandwidth_is_never_slower(machine in any_machine(0..9), workload in any_workload(), which in 0usize..7, factor in 1.0..100.0f64) {
            let mut faster = machine.clone();
            match which {
                0 => faster.network_bytes_s = faster.network_bytes_s.map(|rate| rate * factor),
                1 => faster.durable_read_bytes_s *= factor,
                2 => faster.durable_write_bytes_s *= factor,
                3 => faster.local_read_bytes_s *= factor,
                4 => faster.local_write_bytes_s *= factor,
                5 => faster.memory_read_bytes_s *= factor,
                _ => faster.memory_write_bytes_s *= factor,
            }
            prop_assert!(durable_alone_s(&faster, &workload)? <= durable_alone_s(&machine, &workload)?);
            prop_assert!(page_cache_s(&faster, &workload)? <= page_cache_s(&machine, &workload)?);
            prop_assert!(tiers(&faster, &workload)?.total_s() <= tiers(&machine, &workload)?.total_s());
        }

        #[test]
        fn without_tiers_a_run_is_the_durable_tier_alone(machine in any_machine(0..9), workload in any_workload()) {
            let bare = Machine { memory_bytes: 0, local_disks: 0, ..machine };
            let alone = durable_alone_s(&bare, &workload)?;
            prop_assert!((tiers(&bare, &workload)?.total_s() - alone).abs() <= 1e-9 * alone.max(1e-9));
        }

        #[test]
        fn every_byte_is_placed_once(machine in any_machine(0..9), workload in any_workload()) {
            let placement = place(&machine, &workload)?;
            let read = placement.memory_read_bytes + placement.local_read_bytes + placement.durable_read_bytes;
            let written = placement.memory_written_bytes + placement.local_written_bytes + placement.durable_written_bytes;
            prop_assert!((read - workload.intermediate_bytes as f64).abs() <= 1.0);
            prop_assert!((written - workload.written_bytes() as f64).abs() <= 1.0);
            for bytes in [placement.memory_read_bytes, placement.local_read_bytes, placement.durable_read_bytes,
                          placement.memory_written_bytes, placement.local_written_bytes, placement.durable_written_bytes] {
                prop_assert!(bytes >= 0.0);
            }
        }

        #[test]
        fn more_data_is_never_faster(machine in any_machine(0..9), workload in any_workload(), more in 0u64..1 << 40) {
            let larger = Workload { intermediate_bytes: workload.intermediate_bytes + more, ..workload };
            let slack = 1.0 - 1e-12;
            prop_assert!(durable_alone_s(&machine, &larger)? >= durable_alone_s(&machine, &workload)? * slack);
            prop_assert!(tiers(&machine, &larger)?.total_s() >= tiers(&machine, &workload)?.total_s() * slack);
        }
    }
}
