//! What is planted is found, and what is not planted is not.

use serde_json::{Value, json};
use std::io::Write;
use std::process::{Command, Stdio};
use terrace_bench::clock::Offset;
use terrace_bench::coordinator::Outcome;
use terrace_bench::experiment::{Experiment, Format};
use terrace_bench::plan::Plan;
use terrace_bench::protocol::Assignment;
use terrace_bench::results::{Facts, Row, row};
use terrace_bench::signature::Identity;
use terrace_bench::worker::{Alone, Keeper, Pass};
use terrace_bench::workload::mix;

/// An experiment on the null backend, whose second level is slower by `factor`, in this process.
fn experiment(seed: u64, factor: f64) -> Vec<Row> {
    let text = json!({
        "name": format!("{factor} {seed}"), "directory": "/nonexistent", "seed": seed, "replications": 16,
        "base": { "operations": ["write"], "workload": { "offset": { "data_size": "160K", "request_size": "16K" } } },
        "factors": { "level": {
            "a": { "backend": { "null": { "request_time": "1ms", "noise": 0.35 } } },
            "b": { "backend": { "null": { "request_time": "1ms", "noise": 0.35, "factor": factor } } } } }
    });
    let experiment = Experiment::parse(&text.to_string(), Format::Json).unwrap();
    let plan = Plan::of(&experiment).unwrap();
    let mut rows = Vec::new();
    for (replication, block) in plan.blocks.iter().enumerate() {
        for id in block {
            let run = &plan.runs[*id as usize];
            let numbers = [u64::from(run.id), replication as u64];
            let assignment = Assignment {
                settings: run.settings.clone(),
                operation: run.settings.operations[0],
                identity: Identity { seed, run: run.id, replication: replication as u32, repetition: 0, file: 0 },
                draw_seed: numbers.into_iter().fold(mix(seed), |drawn, number| mix(drawn ^ mix(number + 1))),
                directory: "/nonexistent".into(),
                file_stem: "none".into(),
                worker: 0,
                reads_of: 0,
                written: None,
                noted: false,
                file_bytes: None,
                replaces: false,
            };
            let mut keeper = Keeper::default();
            let mut pass = Pass::prepare(&assignment, &mut keeper).unwrap();
            let report = pass.perform(&mut Alone).unwrap();
            let outcome = Outcome { reports: vec![Some(report)], residency: Default::default(), failure: None };
            let facts = Facts {
                run,
                operation: assignment.operation,
                hosts: &["here".to_owned()],
                offsets: &[Offset { ns: 0, uncertainty_ns: 0 }],
            };
            let base = Row { experiment: plan.name.clone(), replication: replication as u32, ..Row::default() };
            rows.push(row(&facts, &outcome, base));
        }
    }
    rows
}

fn rates(rows: &[Row], level: &str) -> Vec<f64> {
    rows.iter().filter(|row| row.factors["level"] == level).map(Row::rate).collect()
}

fn found_by_comparison(factor: f64) -> usize {
    (0..100)
        .filter(|seed| {
            let rows = experiment(*seed, factor);
            terrace_bench::statistics::compare(&rates(&rows, "a"), &rates(&rows, "b"), 0.95).unwrap().differs
        })
        .count()
}

#[test]
fn a_planted_effect_of_20_percent_is_found_in_95_of_100_seeds() {
    let found = found_by_comparison(1.2);
    assert!(found >= 95, "found in {found} of 100");
}

#[test]
fn where_nothing_is_planted_at_most_7_of_100_seeds_find_something() {
    let found = found_by_comparison(1.0);
    assert!(found <= 7, "found in {found} of 100");
}

#[test]
fn the_effects_table_finds_what_is_planted_and_no_more() {
    let Some(python) = std::env::var_os("TERRACE_BENCH_PYTHON").or_else(checkout_python) else {
        return crate::support::skipped("no Python with statsmodels (tests/setup.sh makes one)");
    };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for factor in [1.2, 1.0] {
        for seed in 0..100 {
            for row in experiment(seed, factor) {
                writeln!(file, "{}", serde_json::to_string(&row).unwrap()).unwrap();
            }
        }
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/report/report.py");
    let output =
        Command::new(python).arg(script).arg("effects").arg(file.path()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success());
    let mut found = [0, 0];
    for line in crate::support::text(&output.stdout).lines() {
        let effects: Value = serde_json::from_str(line).unwrap();
        let p = effects["terms"][0]["p"].as_f64().unwrap();
        let planted = effects["experiment"].as_str().unwrap().starts_with("1.2");
        found[usize::from(!planted)] += usize::from(p < 0.05);
    }
    assert!(found[0] >= 95 && found[1] <= 7, "planted: found in {} of 100; not planted: in {}", found[0], found[1]);
}

fn checkout_python() -> Option<std::ffi::OsString> {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/tests-venv/bin/python");
    let works = Command::new(python).args(["-c", "import statsmodels, matplotlib"]).stderr(Stdio::null()).status();
    works.is_ok_and(|status| status.success()).then(|| python.into())
}

#[test]
fn replication_stops_when_the_interval_is_narrow_enough() {
    let place = crate::support::Place::new();
    let rows = place.rows(
        "r",
        json!({ "replications": { "relative_width": 0.2, "min": 6, "max": 60 },
            "base": { "operations": ["write"], "workload": { "offset": { "data_size": "1M", "request_size": "64K" } } },
            "factors": { "noise": {
                "quiet": { "backend": { "null": { "noise": 0.01 } } },
                "loud": { "backend": { "null": { "noise": 0.6 } } } } } }),
    );
    let count = |level: &str| rows.iter().filter(|row| row["factors"]["noise"] == level).count();
    assert_eq!(count("quiet"), 6);
    assert!((7..=60).contains(&count("loud")), "{}", count("loud"));
}

#[test]
fn the_stopping_rule_needs_an_interval_that_is_one() {
    let place = crate::support::Place::new();
    // One value has no interval, and of two the bootstrap's is narrow in half of all cases: 6 are the fewest for 95%.
    for min in [1, 2] {
        let rows = place.rows(
            &format!("min{min}"),
            json!({ "replications": { "relative_width": 10.0, "min": min, "max": 30 },
                "base": { "operations": ["write"], "backend": { "null": { "noise": 0.3 } } } }),
        );
        assert_eq!(rows.len(), 6, "min {min}");
    }
}
