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

#[test]
fn a_file_that_has_grown_is_wrong() {
    for (files, name) in [("shared", "kept"), ("per_worker", "kept.00000001")] {
        let place = Place::new();
        let base = json!({ "workers": 2, "keep": true, "files": files, "file_name": "kept",
            "workload": { "offset": { "data_size": "256K", "request_size": "32K" } } });
        let only = |operation: &str| {
            let mut base = base.clone();
            base["operations"] = json!([operation]);
            json!({ "base": base })
        };
        place.rows("write", only("write"));
        assert!(place.rows("read", only("read")).iter().all(|row| row["status"] == "ok"));
        let file = std::fs::OpenOptions::new().append(true).open(place.data().join(name)).unwrap();
        std::io::Write::write_all(&mut &file, b"one byte more").unwrap();
        let output = place.run("grown", only("read"));
        assert_eq!(output.status.code(), Some(1), "{files}: the growth was not noticed");
        let row = &rows(&place.path("grown"))[0];
        assert_eq!(row["status"], "wrong");
        let said = row["error"].as_str().unwrap();
        assert!(said.contains("has grown") && said.contains(name) && said.contains("13 lie behind"), "{said}");
    }
}

#[test]
fn a_part_of_a_longer_file_is_read_and_is_not_called_grown() {
    let place = Place::new();
    let base = |operation: &str, data: &str| {
        json!({ "base": { "keep": true, "file_name": "kept", "operations": [operation],
            "workload": { "offset": { "data_size": data, "request_size": "32K" } } } })
    };
    place.rows("write", base("write", "1M"));
    let rows = place.rows("read", base("read", "256K"));
    assert_eq!((&rows[0]["status"], &rows[0]["bytes_verified"]), (&json!("ok"), &json!(256 << 10)));
}

#[test]
fn checking_is_no_part_of_the_measured_time_unless_it_is_asked_to_be() {
    let place = Place::new();
    // What the tool takes between requests is in the rows: the least of five, so that no other program's turn is in it.
    let own = |name: &str, verify: Value| {
        let base = json!({ "operations": ["write", "read"], "verify": verify, "cache": "warm",
            "workload": { "offset": { "data_size": "64M", "request_size": "4M" } } });
        let rows = place.rows(name, json!({ "base": base, "replications": 5 }));
        let reads: Vec<&Value> = rows.iter().filter(|row| row["operation"] == "read").collect();
        for row in &reads {
            assert_eq!(row["bytes_verified"], if verify == json!(false) { 0 } else { 64 << 20 }, "{name}");
            // What is checked later is not counted again.
            assert_eq!((&row["requests"], &row["bytes"]), (&json!(16), &json!(64 << 20)), "{name}");
        }
        reads.iter().map(|row| row["own_s"].as_f64().unwrap()).fold(f64::INFINITY, f64::min)
    };
    let (within, after, never) =
        (own("within", json!("within")), own("after", json!(true)), own("never", json!(false)));
    assert!(after < within / 4.0 && never < within / 4.0, "the tool's own seconds: {within}, {after}, {never}");
}

#[test]
fn a_file_that_nobody_noted_is_read_without_a_check_if_that_is_asked_for() {
    let place = Place::new();
    std::fs::create_dir(place.data()).unwrap();
    std::fs::write(place.data().join("foreign"), vec![7; 256 << 10]).unwrap();
    let read = |verify: Value| {
        json!({ "base": { "operations": ["read"], "file_name": "foreign", "verify": verify,
            "workload": { "offset": { "data_size": "256K", "request_size": "32K" } } } })
    };
    let rows = place.rows("noted", read(json!("noted")));
    assert_eq!((&rows[0]["bytes"], &rows[0]["bytes_verified"]), (&json!(256 << 10), &json!(0)));
    assert_eq!(place.run("always", read(json!(true))).status.code(), Some(1));
}
