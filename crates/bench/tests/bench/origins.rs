//! What a file that is read was written by: another run, repetition, experiment, or only in part.

use crate::support::{PROGRAM, Place, rows, text};
use serde_json::{Value, json};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use terrace_bench::signature::{Identity, Signature};

const BYTES: usize = 64 << 10;

fn workload(request: &str) -> Value {
    json!({ "offset": { "data_size": "64K", "request_size": request } })
}

/// A kept file, and a run that reads it.
fn write_and_read(write: &Value, read: &Value) -> Value {
    let run =
        |operations: &Value| json!({ "operations": [operations["operation"]], "workload": operations["workload"] });
    json!([
        { "name": "write", "settings": run(write) },
        { "name": "read", "settings": run(read) }
    ])
}

#[test]
fn a_run_that_only_reads_knows_which_run_repetition_and_replication_wrote() {
    let place = Place::new();
    let runs = write_and_read(
        &json!({ "operation": "write", "workload": workload("16K") }),
        &json!({ "operation": "read", "workload": workload("4K") }),
    );
    for files in ["shared", "per_worker"] {
        let base = json!({ "workers": 2, "files": files, "keep": true, "file_name": files, "repetitions": 2 });
        let name = format!("one-{files}");
        let experiment = json!({ "order": "fixed", "replications": 2, "base": base, "runs": runs });
        let rows = place.rows(&name, experiment);
        assert_eq!(rows.len(), 8);
        let read = rows.iter().filter(|row| row["operation"] == "read");
        assert!(read.clone().all(|row| row["bytes_verified"] == 2 * BYTES));
        // Another experiment, whose seed is its own, reads them as well.
        let mut base = base.clone();
        terrace_bench::plan::merge(&mut base, &json!({ "operations": ["read"], "workload": workload("8K") }));
        let rows = place.rows(&format!("other-{files}"), json!({ "seed": 99, "replications": 2, "base": base }));
        assert_eq!(rows.len(), 4);
    }
}

#[test]
fn what_ior_writes_with_w_and_k_it_reads_with_r_and_k_whatever_i_says() {
    let place = Place::new();
    let file = place.path("ior.data");
    for (name, flags) in [("write", ["-w", "-k"]), ("read", ["-r", "-k"]), ("again", ["-r", "-k"])] {
        let translated = Command::new(PROGRAM)
            .args(["from-ior", "--", "-i", "2", "-b", "256k", "-t", "64k", "-N", "2", "-o"])
            .arg(&file)
            .args(flags)
            .output()
            .unwrap();
        let experiment = place.path(&format!("{name}.json"));
        std::fs::write(&experiment, &translated.stdout).unwrap();
        let output =
            Command::new(PROGRAM).args(["run", "-q", "-o"]).arg(place.path(name)).arg(&experiment).output().unwrap();
        let rows = rows(&place.path(name));
        assert!(output.status.success(), "{name}: {} {:?}", text(&output.stderr), rows[0]["error"]);
        assert_eq!(rows.len(), 2);
        assert!(name == "write" || rows.iter().all(|row| row["bytes_verified"] == 512 << 10));
    }
    assert!(file.exists());
}

fn put(file: &Path, identity: Identity, at: usize, bytes: usize) {
    let mut block = vec![0; bytes];
    Signature::new(identity).fill(at as u64, &mut block);
    std::fs::OpenOptions::new().write(true).open(file).unwrap().write_all_at(&block, at as u64).unwrap();
}

#[test]
fn a_stale_replicate_is_named() {
    let place = Place::new();
    let base =
        json!({ "keep": true, "seed": 3, "file_name": "kept", "workload": workload("16K"), "operations": ["write"] });
    place.rows("write", json!({ "replications": 3, "base": base }));
    let mut base = base;
    base["operations"] = json!(["read"]);
    let last = Identity { seed: 3, run: 0, replication: 2, repetition: 0, file: 0 };
    let file = place.data().join("kept");
    // One block of the file, then all of it, is what an earlier replication wrote.
    for (name, from, bytes) in [("block", 32768, 16384), ("whole", 0, BYTES)] {
        put(&file, Identity { replication: 1, ..last }, from, bytes);
        let output = place.run(name, json!({ "base": base }));
        assert_eq!(output.status.code(), Some(1));
        let said = rows(&place.path(name))[0]["error"].as_str().unwrap().to_owned();
        assert!(said.contains(&format!("wrong data from offset {from} ")), "{said}");
        assert!(said.contains("written by replication 1"), "{said}");
        put(&file, last, from, bytes);
    }
    place.rows("mended", json!({ "base": base }));
}

#[test]
fn what_a_stonewall_left_out_is_not_read() {
    let place = Place::new();
    for pattern in ["sequential", "random", "strided"] {
        for (way, backend) in [
            ("posix", json!({ "posix": { "added_delay": "2ms" } })),
            ("cstream", json!({ "cstream": {} })),
            ("io_uring", json!({ "io_uring": { "depth": 4 } })),
        ] {
            for files in ["shared", "per_worker"] {
                let name = format!("{pattern}-{way}-{files}");
                let base = json!({ "workers": 2, "files": files, "keep": true, "file_name": name, "flush": "request",
                    "operations": ["write", "read"], "backend": backend, "stonewall": { "after": "30ms" },
                    "workload": { "offset": { "pattern": pattern, "data_size": "4G", "request_size": "16K" } } });
                let written = place.rows(&name, json!({ "base": base }));
                assert!(written[0]["bytes"].as_u64() < written[0]["bytes_planned"].as_u64(), "{name}: nothing was cut");
                assert_eq!(written[1]["bytes_planned"], written[0]["bytes"], "{name}");
                // Another run reads all that there is.
                let mut base = base;
                terrace_bench::plan::merge(
                    &mut base,
                    &json!({ "operations": ["read"], "stonewall": null, "backend": { "posix": {} } }),
                );
                let read = place.rows(&format!("{name}-read"), json!({ "base": base }));
                assert_eq!(read[0]["bytes_verified"], written[0]["bytes"], "{name}");
                // Other requests can't tell what is there.
                base["workload"]["offset"]["request_size"] = json!("4K");
                let output = place.run(&format!("{name}-other"), json!({ "base": base }));
                assert_eq!(output.status.code(), Some(1));
                let said = rows(&place.path(&format!("{name}-other")))[0]["error"].as_str().unwrap().to_owned();
                assert!(said.contains(&name) && said.contains("stonewall"), "{said}");
                for file in place.left() {
                    std::fs::remove_file(file).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_partial_verification_is_called_one() {
    let place = Place::new();
    let told = |name: &str, experiment: Value| {
        let path = place.experiment(name, experiment);
        let output = Command::new(PROGRAM).arg("run").arg(path).arg("-o").arg(place.path(name)).output().unwrap();
        (text(&output.stdout), text(&output.stderr))
    };
    let slow = json!({ "operations": ["write"], "keep": true, "file_name": "kept", "workload": workload("4K") });
    place.rows("write", json!({ "base": slow }));
    let mut base = slow;
    terrace_bench::plan::merge(
        &mut base,
        &json!({ "operations": ["read"], "backend": { "posix": { "added_delay": "20ms" } }, "stonewall": { "after": "50ms" } }),
    );
    for said in <[String; 2]>::from(told("cut", json!({ "base": base }))) {
        assert!(said.contains("verified in part") && said.contains("of 64.0 KiB"), "{said}");
    }
    let mut unchecked = base.clone();
    terrace_bench::plan::merge(&mut unchecked, &json!({ "stonewall": null, "verify": false }));
    for said in <[String; 2]>::from(told("unchecked", json!({ "base": unchecked }))) {
        assert!(said.contains("not verified"), "{said}");
    }
    let mut whole = base;
    terrace_bench::plan::merge(&mut whole, &json!({ "stonewall": null }));
    let (shown, said) = told("whole", json!({ "base": whole }));
    assert!(!shown.contains("verified") && !said.contains("verified"), "{shown}{said}");
    // Wrong data ends a check as well.
    std::fs::OpenOptions::new().write(true).open(place.data().join("kept")).unwrap().write_all_at(b"!", 40000).unwrap();
    told("wrong", json!({ "base": whole }));
    let said = rows(&place.path("wrong"))[0]["error"].as_str().unwrap().to_owned();
    assert!(said.contains("36.0 KiB of 64.0 KiB"), "{said}");
}

#[test]
fn an_operation_that_is_there_twice_is_done_twice_after_a_resume_too() {
    let place = Place::new();
    let experiment = json!({ "base": { "operations": ["write", "read", "read"], "workload": workload("16K") } });
    let all = place.rows("r", experiment);
    assert_eq!(all.len(), 3);
    // As if it had been interrupted before the second read.
    let live = place.path("r/rows.jsonl");
    let kept: String =
        std::fs::read_to_string(&live).unwrap().lines().take(2).map(|line| format!("{line}\n")).collect();
    std::fs::write(&live, kept).unwrap();
    let resumed = Command::new(PROGRAM).args(["resume", "--quiet"]).arg(place.path("r")).output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let operations: Vec<Value> = rows(&place.path("r")).iter().map(|row| row["operation"].clone()).collect();
    assert_eq!(operations, ["write", "read", "read"]);
    // All are there: nothing more is done.
    let resumed = Command::new(PROGRAM).args(["resume", "--quiet"]).arg(place.path("r")).output().unwrap();
    assert!(resumed.status.success());
    assert_eq!(rows(&place.path("r")).len(), 3);
}
