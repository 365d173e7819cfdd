//! The io500's phases, from IOR's and mdtest's own command lines, and its score.
//!
//! ```text
//!   ior-easy-write  mdtest-easy-write  timestamp  ior-hard-write  mdtest-hard-write
//!   find  ior-easy-read  mdtest-easy-stat  ior-hard-read  mdtest-hard-stat
//!   mdtest-easy-delete  mdtest-hard-read  mdtest-hard-delete            ──rows──▶ score
//! ```
//!
//! Order, options and formula are those of github.com/IO500/io500: bandwidths in GiB/s from the first open to the last close, metadata in
//! thousand operations a second; of each kind the geometric mean, and of both again.

use crate::error::{Error, Result};
use crate::ior::{self, Translation};
use crate::mdtest;
use crate::results::Row;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;

pub struct Wish {
    pub workers: u32,
    /// Seconds after which a writing phase ends.
    pub stonewall_s: u64,
    /// IOR's -b of the easy phases.
    pub easy_block: String,
    /// IOR's -s of the hard ones.
    pub hard_segments: u64,
    /// mdtest's -n of either.
    pub files: u64,
    /// Drop the page cache before reads.
    pub cold: bool,
}

/// What the rules of the list want of a writing phase.
pub const STONEWALL_S: u64 = 300;

const TIMESTAMP: &str = "timestamp/mdtest_tree.0/file.mdtest.0.0";

/// One experiment with a run for each phase.
pub fn experiment(wish: &Wish, directory: &Path) -> Result<Value> {
    let Wish { workers, stonewall_s, easy_block, hard_segments, files, .. } = wish;
    let easy = format!("-N {workers} -C -Q 1 -g -G 271 -k -e -o D/ior-easy/ior_file_easy -t 2m -b {easy_block} -F");
    let hard = format!("-N {workers} -C -Q 1 -g -G 27 -k -e -o D/ior-hard/file -t 47008 -b 47008 -s {hard_segments}");
    let wall = format!("-D {stonewall_s} -O stoneWallingWearOut=1");
    let easy_files = format!("--tasks {workers} -n {files} -u -L -F -P -G 1 -d D/mdtest-easy");
    let hard_files = format!("--tasks {workers} -n {files} -t -w 3901 -e 3901 -P -G 1 -F -d D/mdtest-hard");
    let ior = |line: String| run(ior::translate, &line);
    let mdtest = |line: String| run(mdtest::translate, &line);
    let find = json!({ "operations": ["find"], "workers": workers,
        "workload": { "find": { "name_contains": "01", "size": 3901, "newer_than": TIMESTAMP } } });
    let stamp = json!({ "operations": ["create"], "keep": true, "file_name": "timestamp",
        "workload": { "metadata": { "files": 1, "depth": 0, "shared_tree": true } } });
    let mut runs = vec![
        ("ior-easy-write", ior(format!("{easy} -w {wall}"))?),
        ("mdtest-easy-write", mdtest(format!("{easy_files} -C -Y -W {stonewall_s}"))?),
        ("timestamp", stamp),
        ("ior-hard-write", ior(format!("{hard} -w {wall}"))?),
        ("mdtest-hard-write", mdtest(format!("{hard_files} -C -Y -W {stonewall_s}"))?),
        ("find", find),
        ("ior-easy-read", ior(format!("{easy} -r"))?),
        ("mdtest-easy-stat", mdtest(format!("{easy_files} -T -N 1"))?),
        ("ior-hard-read", ior(format!("{hard} -r -R"))?),
        ("mdtest-hard-stat", mdtest(format!("{hard_files} -T -N 1"))?),
        ("mdtest-easy-delete", mdtest(format!("{easy_files} -r -N 3"))?),
        ("mdtest-hard-read", mdtest(format!("{hard_files} -E -X -N 2"))?),
        ("mdtest-hard-delete", mdtest(format!("{hard_files} -r -N 3"))?),
    ];
    for (name, settings) in &mut runs {
        if wish.cold && name.starts_with("ior") && name.ends_with("read") {
            settings["cache"] = json!("cold");
        }
        // Phases of one kind use one workload, or a later one would not know what a stonewall left.
        if name.starts_with("mdtest") {
            settings["workload"]["metadata"]["sync"] = json!(true);
        }
    }
    let runs: Vec<Value> =
        runs.into_iter().map(|(name, settings)| json!({ "name": name, "settings": settings })).collect();
    Ok(json!({ "name": "io500", "directory": directory, "order": "fixed", "seed": 500, "runs": runs }))
}

/// A phase's settings, with its files below the experiment's own directory `D`.
fn run(translate: fn(&[String]) -> Result<Translation>, line: &str) -> Result<Value> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let Value::Object(mut experiment) = translate(&words)?.experiment else {
        return Err(Error::failed("an experiment is an object"));
    };
    let directory =
        experiment["directory"].as_str().unwrap_or_default().trim_start_matches("D").trim_matches('/').to_owned();
    let mut settings = experiment.remove("base").unwrap_or_default();
    let name = settings["file_name"].as_str().unwrap_or_default().to_owned();
    settings["file_name"] = json!(format!("{directory}/{name}"));
    Ok(settings)
}

#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    pub name: String,
    /// GiB/s, or thousand operations a second.
    pub value: f64,
    pub unit: &'static str,
    pub seconds: f64,
    pub ok: bool,
    pub error: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Score {
    pub phases: Vec<Phase>,
    pub bandwidth_gib_s: f64,
    pub iops_k: f64,
    pub score: f64,
    /// Files that find had to find, and those that it found.
    pub to_find: u64,
    pub found: u64,
    /// Why the list would not take it.
    pub not_for_the_list: Vec<String>,
}

pub fn score(rows: &[Row], wish: &Wish) -> Score {
    let mut phases = Vec::new();
    let mut reasons = Vec::new();
    let (mut to_find, mut found) = (0, 0);
    for row in rows {
        let name = row.factors.get("run").cloned().unwrap_or_default();
        if name == "timestamp" {
            continue;
        }
        let is_data = name.starts_with("ior");
        let seconds = if is_data { row.open_to_close_s } else { row.elapsed_s };
        let amount = if is_data { row.bytes as f64 / f64::from(1 << 30) } else { row.requests as f64 / 1e3 };
        let value = if seconds > 0.0 { amount / seconds } else { 0.0 };
        if name.ends_with("write") && seconds < STONEWALL_S as f64 {
            reasons.push(format!("{name} took {seconds:.1} s, and {STONEWALL_S} s are wanted"));
        }
        if name == "mdtest-hard-write" {
            to_find = names_with_01(row.requests / u64::from(wish.workers.max(1)), wish.workers);
        }
        if name == "find" {
            found = row.found.unwrap_or(0);
        }
        let unit = if is_data { "GiB/s" } else { "kIOPS" };
        phases.push(Phase { name, value, unit, seconds, ok: row.counts(), error: row.error.clone() });
    }
    if phases.len() != 12 || phases.iter().any(|phase| !phase.ok) {
        reasons.push("not all phases ended well".into());
    }
    if found != to_find {
        reasons.push(format!("find found {found} files of {to_find}"));
    }
    let mean = |unit: &str| {
        let of: Vec<f64> = phases.iter().filter(|phase| phase.unit == unit).map(|phase| phase.value).collect();
        let whole = !of.is_empty() && of.iter().all(|value| *value > 0.0);
        if whole { (of.iter().map(|value| value.ln()).sum::<f64>() / of.len() as f64).exp() } else { 0.0 }
    };
    let (bandwidth_gib_s, iops_k) = (mean("GiB/s"), mean("kIOPS"));
    let score = (bandwidth_gib_s * iops_k).sqrt();
    Score { phases, bandwidth_gib_s, iops_k, score, to_find, found, not_for_the_list: reasons }
}

/// Of the files `file.mdtest.WORKER.ITEM`, those that have "01" in the name.
fn names_with_01(items: u64, workers: u32) -> u64 {
    let named =
        |worker: u32| (0..items).filter(|item| format!("file.mdtest.{worker}.{item}").contains("01")).count() as u64;
    (0..workers).map(named).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Status;

    fn row(name: &str, bytes: u64, requests: u64, seconds: f64) -> Row {
        Row {
            workers: 2,
            factors: [("run".to_owned(), name.to_owned())].into(),
            bytes,
            requests,
            elapsed_s: seconds,
            open_to_close_s: seconds,
            status: Status::Ok,
            found: (name == "find").then(|| names_with_01(500, 2)),
            ..Row::default()
        }
    }

    #[test]
    fn the_score_is_the_geometric_mean_of_two_geometric_means() {
        let wish =
            Wish { workers: 2, stonewall_s: 1, easy_block: "1m".into(), hard_segments: 1, files: 500, cold: false };
        let gib = 1 << 30;
        // 1, 2, 4 and 8 GiB/s: their mean is 2^1.5. Eight phases of 4,000 operations a second.
        let data = ["ior-easy-write", "ior-hard-write", "ior-easy-read", "ior-hard-read"];
        let mut rows: Vec<Row> = data.iter().enumerate().map(|(at, name)| row(name, gib << at, 1, 1.0)).collect();
        let names = ["mdtest-easy-write", "mdtest-hard-write", "find", "mdtest-easy-stat", "mdtest-hard-stat"];
        let names = names.into_iter().chain(["mdtest-easy-delete", "mdtest-hard-read", "mdtest-hard-delete"]);
        rows.extend(names.map(|name| row(name, 0, 1000, 0.25)));
        rows.push(row("timestamp", 0, 1, 9.0));
        let score = score(&rows, &wish);
        assert!((score.bandwidth_gib_s - 2f64.powf(1.5)).abs() < 1e-9, "{score:?}");
        assert!((score.iops_k - 4.0).abs() < 1e-9, "{score:?}");
        assert!((score.score - (2f64.powf(1.5) * 4.0).sqrt()).abs() < 1e-9);
        assert_eq!(score.found, score.to_find);
        assert!(score.not_for_the_list.iter().any(|reason| reason.contains("ior-easy-write took 1.0 s")), "{score:?}");
        rows[0].status = Status::Partial;
        let partial = super::score(&rows, &wish);
        assert!(partial.not_for_the_list.iter().any(|reason| reason.contains("not all phases")));
    }
}
