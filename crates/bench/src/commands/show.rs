//! Tables for the terminal.

use serde_json::Value;
use terrace_bench::compare::Table;
use terrace_bench::plan::{Plan, describe};
use terrace_bench::report::{show_rate, summarise_rows};
use terrace_bench::results::Row;

pub fn plan(plan: &Plan) {
    println!(
        "{}: {} runs, {} replications, seed {}, plan {}",
        plan.name,
        plan.runs.len(),
        plan.blocks.len(),
        plan.seed,
        plan.hash()
    );
    for run in &plan.runs {
        println!("  run {:3}  {}", run.id, describe(&run.factors));
    }
    const SHOWN: usize = 20;
    for (replication, block) in plan.blocks.iter().enumerate().take(SHOWN) {
        let order: Vec<String> = block.iter().map(u32::to_string).collect();
        println!("  replication {}: {}", replication + 1, order.join(" "));
    }
    if plan.blocks.len() > SHOWN {
        println!("  … and {} more", plan.blocks.len() - SHOWN);
    }
}

pub fn summary(rows: &[Row]) {
    let mut table = vec![
        ["run", "factors", "operation", "n", "median", "95% interval", "harmonic mean", "latency p50/p99"]
            .map(String::from),
    ];
    for run in summarise_rows(rows, 0.95) {
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
    print_table(&table);
    if table.iter().any(|line| line[5].ends_with('*')) {
        println!("* by the bootstrap: too few replications for an interval of order statistics");
    }
    let failed = rows.iter().filter(|row| !row.counts()).count();
    if failed > 0 {
        println!("{failed} operations failed and are not in the table");
    }
}

pub fn comparison(table: &Table) {
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
    print_table(&lines);
    println!("p: permutation test of the rank sums, corrected for {} comparisons (Holm)", table.lines.len());
    if table.unmatched > 0 {
        println!("{} runs are on one side only", table.unmatched);
    }
}

pub fn tiers(document: &Value) {
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
    print_table(&lines);
}

fn print_table<const N: usize>(table: &[[String; N]]) {
    let widths: Vec<usize> =
        (0..N).map(|column| table.iter().map(|line| line[column].chars().count()).max().unwrap_or(0)).collect();
    for line in table {
        let cells: Vec<String> = line
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.chars().count())))
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
}
