//! Tables for the terminal, as text.

use serde_json::Value;
use std::fmt::Write;
use terrace_bench::compare::Table;
use terrace_bench::plan::{Plan, describe};
use terrace_bench::report::{show_rate, summarise_rows};
use terrace_bench::results::Row;

pub fn plan(plan: &Plan) -> String {
    let mut text = format!(
        "{}: {} runs, {} replications, seed {}, plan {}\n",
        plan.name,
        plan.runs.len(),
        plan.blocks.len(),
        plan.seed,
        plan.hash()
    );
    for run in &plan.runs {
        let _ = writeln!(text, "  run {:3}  {}", run.id, describe(&run.factors));
    }
    const SHOWN: usize = 20;
    for (replication, block) in plan.blocks.iter().enumerate().take(SHOWN) {
        let order: Vec<String> = block.iter().map(u32::to_string).collect();
        let _ = writeln!(text, "  replication {}: {}", replication + 1, order.join(" "));
    }
    if plan.blocks.len() > SHOWN {
        let _ = writeln!(text, "  … and {} more", plan.blocks.len() - SHOWN);
    }
    text
}

pub fn summary(rows: &[Row]) -> String {
    let mut table = vec![
        ["run", "factors", "operation", "n", "median", "95% interval", "harmonic mean", "latency p50/p99"]
            .map(String::from),
    ];
    let runs = summarise_rows(rows, 0.95);
    let verified: Vec<String> = runs
        .iter()
        .filter_map(|run| Some(format!("run {} {}: {}\n", run.run, run.operation, run.verified.as_ref()?)))
        .collect();
    for run in runs {
        table.push([
            run.run.to_string(),
            run.label,
            run.operation,
            run.count.to_string(),
            run.median_text,
            run.interval_text,
            run.harmonic_mean_text,
            format!("{:.1}/{:.1} us", run.latency_median_ns as f64 / 1e3, run.latency_p99_ns as f64 / 1e3),
        ]);
    }
    let mut text = show_table(&table);
    if table.iter().any(|line| line[5].ends_with('*')) {
        text.push_str("* by the bootstrap: too few replications for an interval of order statistics\n");
    }
    text.extend(verified);
    let failed = rows.iter().filter(|row| !row.counts()).count();
    if failed > 0 {
        let _ = writeln!(text, "{failed} operations failed and are not in the table");
    }
    text
}

pub fn comparison(table: &Table) -> String {
    let mut lines = vec![["factors", "operation", "A", "B", "B/A", "95% interval", "p", "verdict"].map(String::from)];
    for line in &table.lines {
        let comparison = &line.comparison;
        lines.push([
            describe(&line.factors),
            line.operation.clone(),
            show_rate(line.median_a, line.unit),
            show_rate(line.median_b, line.unit),
            format!("{:.3}", comparison.ratio),
            format!("{:.3} … {:.3}", comparison.low, comparison.high),
            format!("{:.3}", line.p_corrected),
            if comparison.differs { "differs".into() } else { "-".into() },
        ]);
    }
    let mut text = show_table(&lines);
    let _ =
        writeln!(text, "p: permutation test of the rank sums, corrected for {} comparisons (Holm)", table.lines.len());
    if table.plans_differ {
        text.push_str("the plans are not the same: seeds, or settings that are no factors, may differ as well\n");
    }
    if table.unmatched > 0 {
        let _ = writeln!(text, "{} runs are on one side only", table.unmatched);
    }
    text
}

pub fn tiers(document: &Value) -> String {
    let rate = |value: &Value| value.as_f64().map_or("-".into(), |rate| show_rate(rate, "bytes/s"));
    let time = |value: &Value| value.as_f64().map_or("-".into(), |seconds| format!("{:.1} us", seconds * 1e6));
    let mut lines = vec![
        ["tier", "read", "cached read", "write", "cached write", "read latency", "write latency"].map(String::from),
    ];
    for tier in document["tiers"].as_array().into_iter().flatten() {
        let rates = &tier["rates"];
        lines.push([
            rates["tier"].as_str().unwrap_or_default().to_owned(),
            rate(&rates["read_bytes_s"]),
            rate(&rates["cached_read_bytes_s"]),
            rate(&rates["write_bytes_s"]),
            rate(&rates["cached_write_bytes_s"]),
            time(&tier["read_latency_s"]),
            time(&tier["write_latency_s"]),
        ]);
    }
    show_table(&lines)
}

/// The lines that the io500 prints, and why the list would not take them.
pub fn io500(score: &terrace_bench::io500::Score) -> String {
    let mut lines = vec![["phase", "value", "unit", "time", ""].map(String::from)];
    for phase in &score.phases {
        let failed = phase.error.as_ref().map(|error| format!("FAILED: {error}")).unwrap_or_default();
        lines.push([
            phase.name.clone(),
            format!("{:.6}", phase.value),
            phase.unit.to_owned(),
            format!("{:.3} s", phase.seconds),
            failed,
        ]);
    }
    let mut text = show_table(&lines);
    let _ = writeln!(
        text,
        "bandwidth {:.6} GiB/s, metadata {:.6} kIOPS, score {:.6}; find found {} of {} files",
        score.bandwidth_gib_s, score.iops_k, score.score, score.found, score.to_find
    );
    if !score.not_for_the_list.is_empty() {
        let _ = writeln!(text, "not for the io500 list: {}", score.not_for_the_list.join("; "));
    }
    text
}

fn show_table<const N: usize>(table: &[[String; N]]) -> String {
    let mut text = String::new();
    let widths: Vec<usize> =
        (0..N).map(|column| table.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    for line in table {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}
