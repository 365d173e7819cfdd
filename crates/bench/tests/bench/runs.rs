//! Whole experiments: processes, files, verified data, and what happens when something breaks.

use crate::support::{PROGRAM, Place, rows, skipped, text};
use serde_json::{Value, json};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn offset(data: &str, request: &str) -> Value {
    json!({ "offset": { "data_size": data, "request_size": request } })
}

#[test]
fn iore_throughput_counts_the_bytes_of_all_ranks() {
    let place = Place::new();
    let rows = place.rows("r", json!({ "base": { "workers": 4, "workload": offset("1M", "64K") } }));
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!(row["bytes"], 4 << 20);
        assert_eq!(row["requests"], 64);
        assert_eq!(row["request_sizes"], json!({ "65536": 64 }));
        let (rate, elapsed) = (row["rate_bytes_s"].as_f64().unwrap(), row["elapsed_s"].as_f64().unwrap());
        assert!((rate * elapsed - f64::from(4 << 20)).abs() < 1.0, "the rate is all bytes over the whole time");
    }
    assert_eq!(rows[1]["bytes_verified"], 4 << 20);
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn every_local_backend_writes_the_same_file_and_reads_it_back() {
    let place = Place::new();
    let backends = json!({
        "posix": { "backend": { "posix": {} }, "file_name": "posix" },
        "seek": { "backend": { "posix": { "seek": true } }, "file_name": "seek" },
        "direct": { "backend": { "posix": { "direct": true } }, "file_name": "direct" },
        "cstream": { "backend": { "cstream": {} }, "file_name": "cstream" },
        "mmap": { "backend": { "mmap": {} }, "file_name": "mmap" },
        "uring": { "backend": { "io_uring": {} }, "file_name": "uring" },
        "coalesced": { "backend": { "posix": {} }, "coalesce": "on", "file_name": "coalesced" }
    });
    for pattern in ["sequential", "random", "strided", "segmented"] {
        let workload =
            json!({ "offset": { "pattern": pattern, "data_size": "512K", "request_size": "16K", "segments": 4 } });
        let rows = place.rows(
            pattern,
            json!({ "base": { "workers": 3, "keep": true, "seed": 5, "workload": workload }, "factors": { "backend": backends } }),
        );
        assert_eq!(rows.len(), 14);
        let files = place.left();
        let first = std::fs::read(&files[0]).unwrap();
        assert_eq!(first.len(), 3 << 19);
        for file in &files {
            assert!(std::fs::read(file).unwrap() == first, "{pattern}: {} is another file", file.display());
            std::fs::remove_file(file).unwrap();
        }
    }
}

/// Writes a file that stays, lets `harm` at it, and returns what the reading run says.
fn read_after(harm: impl FnOnce(&std::path::Path), settings: Value) -> String {
    let place = Place::new();
    let mut base =
        json!({ "workers": 2, "keep": true, "seed": 9, "file_name": "kept", "workload": offset("256K", "32K") });
    terrace_bench::plan::merge(&mut base, &settings);
    let mut write = base.clone();
    write["operations"] = json!(["write"]);
    place.rows("write", json!({ "base": write }));
    harm(&place.data());
    let mut read = base;
    read["operations"] = json!(["read"]);
    let output = place.run("read", json!({ "base": read }));
    assert_eq!(output.status.code(), Some(1), "the harm was not noticed");
    let rows = rows(&place.path("read"));
    assert_eq!(rows[0]["status"], "wrong");
    rows[0]["error"].as_str().unwrap().to_owned()
}

fn swap(path: &std::path::Path, one: u64, two: u64, bytes: usize) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (mut first, mut second) = (vec![0; bytes], vec![0; bytes]);
    file.read_exact_at(&mut first, one).unwrap();
    file.read_exact_at(&mut second, two).unwrap();
    file.write_all_at(&second, one).unwrap();
    file.write_all_at(&first, two).unwrap();
}

#[test]
fn ior_a_swapped_block_of_one_rank_is_named_with_its_offset() {
    let said = read_after(|data| swap(&data.join("kept"), 65536, 131_072, 32768), json!({}));
    assert!(said.contains("from offset 65536") && said.contains("data of offset 131072"), "{said}");
}

#[test]
fn iore_reads_are_verified_and_one_flipped_bit_is_named_with_its_offset() {
    let said = read_after(
        |data| {
            let mut file = std::fs::OpenOptions::new().read(true).write(true).open(data.join("kept")).unwrap();
            let mut byte = [0];
            file.seek(SeekFrom::Start(77_777)).unwrap();
            file.read_exact(&mut byte).unwrap();
            file.seek(SeekFrom::Start(77_777)).unwrap();
            file.write_all(&[byte[0] ^ 4]).unwrap();
        },
        json!({}),
    );
    assert!(said.contains("from offset 77777") && said.contains("1 flipped bit"), "{said}");
}

#[test]
fn wrong_data_leaves_nobody_waiting_at_the_stonewall() {
    let wall = json!({ "verify": true, "stonewall": { "after": "300ms", "wear_out": true },
        "backend": { "posix": { "added_delay": "5ms" } }, "workload": offset("4M", "32K") });
    let place = Place::new();
    let base = json!({ "workers": 2, "keep": true, "seed": 9, "file_name": "kept", "workload": offset("4M", "32K") });
    let mut write = base.clone();
    write["operations"] = json!(["write"]);
    place.rows("write", json!({ "base": write }));
    // The first worker's second block.
    swap(&place.data().join("kept"), 32768, 65536, 32768);
    let mut read = base;
    terrace_bench::plan::merge(&mut read, &wall);
    read["operations"] = json!(["read"]);
    assert_eq!(within_a_minute(place.start("read", json!({ "base": read }))), Some(1));
    let rows = rows(&place.path("read"));
    assert_eq!(rows[0]["status"], "wrong", "{}", rows[0]["error"]);
}

/// Its exit code; a run that waits for ever is a failure.
fn within_a_minute(mut command: Command) -> Option<i32> {
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > deadline {
            // SAFETY: it has not been waited for, so its number is still its own.
            unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            child.wait().unwrap();
            panic!("it waits for ever");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_short_file_and_a_request_that_direct_io_cannot_do_are_told_in_words() {
    let place = Place::new();
    let base = |operation: &str, settings: Value| {
        let mut base = json!({ "operations": [operation], "keep": true, "seed": 9, "file_name": "kept", "workload": offset("64K", "4K") });
        terrace_bench::plan::merge(&mut base, &settings);
        json!({ "base": base })
    };
    place.rows("write", base("write", json!({})));
    std::fs::File::options().write(true).open(place.data().join("kept")).unwrap().set_len(10_000).unwrap();
    let mut ways = vec![json!({ "posix": {} }), json!({ "cstream": {} }), json!({ "mmap": {} })];
    if terrace_bench::backend::try_io_uring().is_ok() {
        ways.push(json!({ "io_uring": {} }));
    }
    for (at, way) in ways.iter().enumerate() {
        let name = format!("short{at}");
        assert_eq!(place.run(&name, base("read", json!({ "backend": way }))).status.code(), Some(1));
        let said = rows_error(&place, &name);
        assert!(said.contains("kept") && said.contains("the file is shorter"), "{way}: {said}");
    }
    let odd = json!({ "file_name": "odd", "keep": false, "workload": offset("10000", "1000"), "backend": { "posix": { "direct": true } } });
    let output = place.run("odd", base("write", odd));
    if output.status.success() {
        return skipped("this file system does direct I/O of any size");
    }
    assert!(rows_error(&place, "odd").contains("multiples of the block size"), "{}", rows_error(&place, "odd"));
}

#[test]
fn a_swapped_file_is_named() {
    let said = read_after(
        |data| {
            let (one, two, aside) = (data.join("kept.00000000"), data.join("kept.00000001"), data.join("aside"));
            std::fs::rename(&one, &aside).unwrap();
            std::fs::rename(&two, &one).unwrap();
            std::fs::rename(&aside, &two).unwrap();
        },
        json!({ "files": "per_worker" }),
    );
    assert!(said.contains("data of file"), "{said}");
}

#[test]
fn ior_a_shift_by_4_gib_in_a_sparse_file_is_named() {
    let start = json!({ "workload": { "offset": { "start": "4G", "gap": "4G" } } });
    let said = read_after(|data| swap(&data.join("kept"), 4 << 30, (8 << 30) + (256 << 10), 32768), start);
    assert!(said.contains(&format!("data of offset {}", (8_u64 << 30) + (256 << 10))), "{said}");
}

#[test]
fn iore_more_than_4_gib_of_each_worker_are_counted_whole() {
    let place = Place::new();
    let base =
        json!({ "workers": 2, "operations": ["write"], "backend": { "null": {} }, "workload": offset("5G", "16M") });
    let rows = place.rows("r", json!({ "base": base }));
    assert_eq!((&rows[0]["bytes"], &rows[0]["requests"]), (&json!(10_u64 << 30), &json!(640)));
}

#[test]
fn offsets_beyond_4_tib_are_written_and_read() {
    let place = Place::new();
    let workload = json!({ "offset": { "data_size": "128K", "request_size": "32K", "start": "4T", "gap": "1T" } });
    let rows = place.rows("r", json!({ "base": { "workers": 3, "workload": workload, "cache": "as_is" } }));
    assert_eq!(rows[1]["bytes_verified"], 3 * (128 << 10));
}

#[test]
fn caches_are_cold_and_warm_as_asked_and_the_row_says_so() {
    let place = Place::new();
    let rows = place.rows(
        "r",
        json!({ "order": "fixed", "base": { "workload": offset("2M", "64K") }, "factors": { "cache": ["cold", "warm"] } }),
    );
    let read = |cache: &str| {
        let row = rows.iter().find(|row| row["operation"] == "read" && row["cache"] == cache).unwrap();
        row["resident_fraction"].as_f64().unwrap()
    };
    assert_eq!((read("cold"), read("warm")), (0.0, 1.0));
}

#[test]
fn a_cold_cache_on_a_memory_file_system_is_refused_and_the_files_are_cleaned_up() {
    let place = Place::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let output = place
        .run("r", json!({ "directory": memory.path(), "base": { "cache": "cold", "workload": offset("1M", "64K") } }));
    assert_eq!(output.status.code(), Some(1));
    let said = rows(&place.path("r"))[1]["error"].as_str().unwrap().to_owned();
    assert!(said.contains("can't be made cold"), "{said}");
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_worker_ends_its_run_at_once_marked_and_the_next_run_goes_on() {
    let place = Place::new();
    let slow = json!({ "posix": { "added_delay": "20ms" } });
    let mut running = place
        .start(
            "r",
            json!({ "order": "fixed", "base": { "workers": 3, "operations": ["write"] },
                "factors": { "a": {
                    "1": { "backend": slow, "workload": offset("64M", "16K") }, "2": { "workload": offset("64K", "16K") } } } }),
        )
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = wait_for_worker(running.id());
    std::thread::sleep(Duration::from_millis(300));
    let killed = Instant::now();
    // SAFETY: kill takes numbers only; the process is a worker of our own child.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    let output = running.wait().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(5), "the run ended only after {:?}", killed.elapsed());
    assert_eq!(output.code(), Some(1));
    let rows = rows(&place.path("r"));
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0]["status"], "partial");
    let said = rows[0]["error"].as_str().unwrap();
    assert!(said.contains("died: signal 9") && said.contains(&pid.to_string()), "{said}");
    assert_eq!(rows[1]["status"], "ok");
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
}

/// Number of a worker process of this coordinator, once there is one.
fn wait_for_worker(coordinator: u32) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        let children =
            std::fs::read_to_string(format!("/proc/{coordinator}/task/{coordinator}/children")).unwrap_or_default();
        if let Some(pid) = children.split_whitespace().nth(1) {
            return pid.parse().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no worker was started");
}

#[test]
fn an_interrupted_experiment_is_resumed_and_each_run_is_there_once() {
    let place = Place::new();
    let experiment = json!({ "replications": 4, "seed": 3, "delay": "100ms",
        "base": { "workload": offset("64K", "16K") }, "factors": { "workers": [1, 2] } });
    let mut running = place.start("r", experiment).spawn().unwrap();
    let live = place.path("r").join("rows.jsonl");
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::fs::read_to_string(&live).unwrap_or_default().lines().count() < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    // A crash may cut the last line off, or come between the write and the read of a run.
    let text_so_far = std::fs::read_to_string(&live).unwrap();
    let write = text_so_far.lines().rfind(|line| line.contains("\"operation\":\"write\"")).unwrap();
    let end = text_so_far.find(write).unwrap() + write.len() + 1;
    std::fs::write(&live, format!("{}{{\"experiment\": \"exp", &text_so_far[..end])).unwrap();
    let resumed = Command::new(PROGRAM).args(["resume", "--quiet"]).arg(place.path("r")).output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    let rows = rows(&place.path("r"));
    let mut complete: Vec<String> =
        rows.iter().map(|row| format!("{} {} {}", row["run"], row["replication"], row["operation"])).collect();
    assert_eq!(complete.len(), 2 * 4 * 2);
    complete.sort();
    complete.dedup();
    assert_eq!(complete.len(), 2 * 4 * 2, "a run counts twice");
    let again =
        Command::new(PROGRAM).args(["run", "--quiet", "-o"]).arg(place.path("r")).arg(place.path("r.json")).output();
    assert!(text(&again.unwrap().stderr).contains("has results already"));
}

#[test]
fn an_interrupt_cleans_up_and_says_how_to_go_on() {
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    let slow = json!({ "posix": { "added_delay": "5ms" } });
    let base = json!({ "workers": 2, "operations": ["write"], "backend": slow, "workload": offset("4M", "16K") });
    let mut running = place
        .start("r", json!({ "replications": 2, "base": base }))
        .process_group(0)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_worker(running.id());
    let deadline = Instant::now() + Duration::from_secs(30);
    while place.left().is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    // As a terminal does: to the whole group.
    // SAFETY: kill takes numbers only; the group is that of our own child.
    unsafe { libc::kill(-(running.id() as i32), libc::SIGINT) };
    let mut said = String::new();
    running.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(130), "{said}");
    assert!(said.contains("terrace bench resume"), "{said}");
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
    let resumed = Command::new(PROGRAM).args(["resume", "--quiet"]).arg(place.path("r")).output().unwrap();
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert_eq!(rows(&place.path("r")).iter().filter(|row| row["status"] == "ok").count(), 2);
}

#[test]
fn a_stonewall_ends_all_workers_and_wear_out_evens_their_requests() {
    let place = Place::new();
    let slow = |wear_out: bool| json!({ "backend": { "posix": { "added_delay": "2ms" } }, "stonewall": { "after": "100ms", "wear_out": wear_out } });
    let rows = place.rows(
        "r",
        json!({ "order": "fixed", "base": { "workers": 3, "operations": ["write"], "workload": offset("64M", "4K") },
            "factors": { "wall": { "hard": slow(false), "worn": slow(true) } } }),
    );
    for row in &rows {
        assert!(row["bytes"].as_u64().unwrap() < row["bytes_planned"].as_u64().unwrap());
        assert_eq!(row["before_stonewall"].as_array().unwrap().len(), 3);
    }
    let before: Vec<u64> =
        rows[1]["before_stonewall"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!(rows[1]["requests"].as_u64().unwrap(), 3 * before.iter().max().unwrap());
}

#[test]
fn an_open_loop_issues_at_its_rate_and_counts_waiting_as_latency() {
    let place = Place::new();
    // A storage that takes 4 ms, asked every millisecond, falls behind: latencies must grow far beyond 4 ms.
    let rows = place.rows(
        "r",
        json!({ "base": { "operations": ["write"], "workload": offset("256K", "4K"), "flush": "never",
            "backend": { "posix": { "added_delay": "4ms" } }, "rate": { "requests_per_second": 1000 } } }),
    );
    assert!(rows[0]["latency_max_ns"].as_u64().unwrap() > 100_000_000, "{}", rows[0]["latency_max_ns"]);
    // One that keeps up takes as long as the arrivals.
    let rows = place.rows(
        "s",
        json!({ "base": { "operations": ["write"], "workload": offset("256K", "4K"), "flush": "never",
            "rate": { "requests_per_second": 200, "arrivals": "poisson" } } }),
    );
    assert!(rows[0]["elapsed_s"].as_f64().unwrap() > 0.1);
}

#[test]
fn io_uring_in_an_open_loop_counts_each_request_from_when_it_was_due_to_its_own_end() {
    if terrace_bench::backend::try_io_uring().is_err() {
        return skipped("io_uring is not allowed here");
    }
    let place = Place::new();
    let rows = place.rows(
        "r",
        json!({ "base": { "workload": offset("128K", "4K"), "flush": "never",
            "backend": { "io_uring": { "depth": 8 } }, "rate": { "requests_per_second": 100 } } }),
    );
    // A slot is free for each, so none waits for the arrival of others, which come every 10 ms.
    for row in rows {
        assert_eq!(row["requests"], 32);
        assert!(row["latency_median_ns"].as_u64().unwrap() < 8_000_000, "{}", row["latency_median_ns"]);
        assert!(row["elapsed_s"].as_f64().unwrap() > 0.3);
    }
}

#[test]
fn joined_requests_of_io_uring_need_as_many_buffers_as_there_are_requests() {
    if terrace_bench::backend::try_io_uring().is_err() {
        return skipped("io_uring is not allowed here");
    }
    let place = Place::new();
    let experiment = place.experiment(
        "joined",
        json!({ "base": { "workload": offset("64M", "1M"), "coalesce": "on", "backend": { "io_uring": { "depth": 64 } } } }),
    );
    // 64 buffers of 64 MiB would be 4 GiB.
    let output = Command::new("sh")
        .args(["-c", "ulimit -v 2000000; exec \"$@\"", "-", PROGRAM, "run", "--quiet", "--output"])
        .arg(place.path("joined"))
        .arg(experiment)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = rows(&place.path("joined"));
    assert_eq!((&rows[0]["requests"], &rows[1]["bytes_verified"]), (&json!(1), &json!(64 << 20)));
}

#[test]
fn a_stonewall_that_is_over_at_once_lets_each_worker_issue_one_request() {
    let place = Place::new();
    let mut ways = json!({ "posix": { "backend": { "posix": {} } } });
    if terrace_bench::backend::try_io_uring().is_ok() {
        ways["io_uring"] = json!({ "backend": { "io_uring": {} } });
    }
    let base = json!({ "workers": 2, "operations": ["write"], "stonewall": { "after": 1e-9 }, "workload": offset("1M", "4K") });
    for row in place.rows("r", json!({ "base": base, "factors": { "way": ways } })) {
        assert_eq!(row["requests"], 2, "{row}");
    }
}

#[test]
fn mixed_operations_read_and_write_in_the_ratio_and_verify() {
    let place = Place::new();
    let workload =
        json!({ "offset": { "pattern": "random", "data_size": "4M", "request_size": "4K", "read_fraction": 0.7 } });
    let rows = place
        .rows("r", json!({ "base": { "workers": 2, "operations": ["write", "mixed", "read"], "workload": workload } }));
    let share = rows[1]["read_requests"].as_f64().unwrap() / rows[1]["requests"].as_f64().unwrap();
    assert!((0.65..0.75).contains(&share), "{share}");
    assert_eq!(rows[1]["bytes_verified"], rows[1]["read_bytes"]);
    assert_eq!(rows[2]["bytes_verified"], 8 << 20);
}

#[test]
fn reads_of_others_data_and_phases_apart() {
    let place = Place::new();
    let rows = place.rows(
        "r",
        json!({ "base": { "workers": 3, "files": "per_worker", "directory_per_worker": true, "barriers": true,
            "reorder": { "shift": 1 }, "workload": offset("256K", "32K") } }),
    );
    assert_eq!(rows[1]["bytes_verified"], 3 * (256 << 10));
    assert_eq!(rows[1]["own_node_reads"], 3);
    for phase in ["open_s", "transfer_s", "flush_s", "close_s"] {
        assert!(rows[0][phase].as_f64().unwrap() > 0.0, "{phase}");
    }
    assert!(rows[0]["remove_s"].is_null() && rows[1]["remove_s"].as_f64().unwrap() > 0.0);
    assert!(rows[0]["open_to_close_s"].as_f64() > rows[0]["transfer_s"].as_f64());
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
    let output = place.run("n", json!({ "base": { "workers": 2, "reorder": "node" } }));
    assert_eq!(output.status.code(), Some(1));
    assert!(rows_error(&place, "n").contains("one node"));
}

fn rows_error(place: &Place, name: &str) -> String {
    rows(&place.path(name))[0]["error"].as_str().unwrap().to_owned()
}

#[test]
fn metadata_trees_are_created_looked_at_listed_and_removed() {
    let place = Place::new();
    let workload = json!({ "metadata": { "files": 40, "depth": 2, "fanout": 2, "file_size": 100 } });
    let rows = place.rows(
        "r",
        json!({ "base": { "workers": 2, "operations": ["create", "stat", "list", "unlink"], "workload": workload },
            "factors": { "workload.metadata.shared_tree": [false, true] } }),
    );
    assert_eq!(rows.len(), 8);
    for row in rows.iter().filter(|row| row["operation"] != "list") {
        assert_eq!(row["requests"], 80);
    }
    assert_eq!(std::fs::read_dir(place.data()).unwrap().count(), 0);
}

#[test]
fn a_full_disk_is_named_and_the_files_are_cleaned_up() {
    let place = Place::new();
    let mount = place.path("small");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&mount)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skipped("mounting a small file system needs root");
    }
    let said: Vec<String> = ["posix", "cstream", "mmap", "io_uring"]
        .into_iter()
        .map(|backend| {
            let output = place.run(
                backend,
                json!({ "directory": mount, "base": { "workers": 2, "operations": ["write"],
                    "backend": { backend: {} }, "workload": offset("4M", "64K") } }),
            );
            let left = std::fs::read_dir(&mount).unwrap().count();
            format!("{backend}: {:?}, {left} files left, {}", output.status.code(), rows_error(&place, backend))
        })
        .collect();
    // What a process had open by io_uring is closed some time after it has ended.
    let unmounted = || Command::new("umount").arg(&mount).stderr(Stdio::null()).status().unwrap().success();
    assert!((0..200).any(|_| unmounted() || {
        std::thread::sleep(Duration::from_millis(50));
        false
    }));
    for said in said {
        assert!(said.contains("Some(1), 0 files left") && said.contains("make room"), "{said}");
    }
}

#[test]
fn an_iore_file_runs_to_its_end() {
    let place = Place::new();
    let file = include_str!("iore.json");
    // What needs MPI and Lustre is another test's.
    let file = file.replace(
        r#""MPIIO": { "seek_rw_single_op": "true", "collective_io": "true", "file_view": "true" }"#,
        r#""POSIX": {}"#,
    );
    let mut value: Value = serde_json::from_str(&file).unwrap();
    value["runs"][1]["test"].as_object_mut().unwrap().remove("afsb");
    let path = place.path("iore.json");
    std::fs::write(&path, value.to_string()).unwrap();
    let output = Command::new(PROGRAM).args(["run", "-q", "-o"]).arg(place.path("out")).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows = rows(&place.path("out"));
    // Two replications of: two repetitions of write and read; write and read; write.
    assert_eq!(rows.len(), 2 * (2 * 2 + 2 + 1));
    assert!(rows.iter().all(|row| row["status"] == "ok"));
    // Tasks take the sizes of the list in turn.
    assert!(rows.iter().any(|row| row["bytes"] == 2 * (1 << 20) + 2 * (2 << 20)));
}

#[test]
fn rows_are_exported_with_every_factor() {
    let place = Place::new();
    place.rows("r", json!({ "base": { "workload": offset("64K", "16K") }, "factors": { "workers": [1, 2] } }));
    let mut csv = csv::Reader::from_path(place.path("r").join("rows.csv")).unwrap();
    let header = csv.headers().unwrap().clone();
    for column in ["factor.workers", "bytes", "requests", "rate_bytes_s", "latency_p99_ns", "status"] {
        assert!(header.iter().any(|name| name == column), "{column}");
    }
    assert_eq!(csv.records().count(), 4);
    let parquet = std::fs::File::open(place.path("r").join("rows.parquet")).unwrap();
    let parquet = parquet::file::reader::SerializedFileReader::new(parquet).unwrap();
    let metadata = parquet::file::reader::FileReader::metadata(&parquet).file_metadata();
    assert_eq!(metadata.num_rows(), 4);
    assert_eq!(metadata.schema_descr().num_columns(), header.len());
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(place.path("r").join("manifest.json")).unwrap()).unwrap();
    // In a plain chroot no mount that is seen has the directory.
    let has_mount = std::fs::read_to_string("/proc/self/mountinfo")
        .unwrap()
        .lines()
        .any(|line| line.split(' ').nth(4) == Some("/"));
    for fact in ["kernel", "cpu", "mount", "plan_hash", "program"].iter().filter(|fact| has_mount || **fact != "mount")
    {
        assert!(!manifest[*fact].is_null(), "{fact}");
    }
}

#[test]
fn a_worker_without_the_token_is_refused() {
    let output = Command::new(PROGRAM).args(["worker", "--connect", "127.0.0.1:1"]).output().unwrap();
    assert!(text(&output.stderr).contains("TERRACE_BENCH_TOKEN"));
}

#[test]
fn tiers_of_one_name_are_refused_and_numbers_that_cannot_be_stored_are_shown() {
    let place = Place::new();
    let tier = format!("disk={}", place.directory.path().display());
    let said = crate::support::refused(&["tiers", "--size", "1MiB", "--tier", &tier, "--tier", &tier]);
    assert!(said.contains("two tiers are called `disk`"), "{said}");
    let output = Command::new(PROGRAM)
        .args(["tiers", "--size", "1MiB", "--replications", "1", "--quiet", "--tier", &tier])
        .args(["--output", "/nonexistent/tiers.json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("disk  "), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("/nonexistent/tiers.json"), "{}", text(&output.stderr));
}

#[test]
fn tiers_are_measured_each_by_itself_and_nothing_is_left_behind() {
    let place = Place::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::create_dir(place.data()).unwrap();
    let tiers = [format!("ram={}", memory.path().display()), format!("disk={}", place.data().display())];
    let file = place.path("tiers.json");
    let output = Command::new(PROGRAM)
        .args([
            "tiers",
            "--size",
            "8MiB",
            "--replications",
            "3",
            "--workers",
            "2",
            "--tier",
            &tiers[0],
            "--tier",
            &tiers[1],
        ])
        .arg("--output")
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("ram ") && shown.contains("disk "), "{shown}");
    let document: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let tiers = document["tiers"].as_array().unwrap();
    assert_eq!((tiers.len(), &document["bytes"], &document["workers"]), (2, &json!(8 << 20), &json!(2)));
    for (tier, name) in tiers.iter().zip(["ram", "disk"]) {
        let in_memory = name == "ram";
        assert_eq!((&tier["rates"]["tier"], &tier["in_memory"]), (&json!(name), &json!(in_memory)));
        for measured in ["read_bytes_s", "write_bytes_s", "cached_read_bytes_s", "cached_write_bytes_s"] {
            let rate = &tier["rates"][measured];
            if in_memory && measured.starts_with("cached") {
                assert!(rate.is_null(), "memory has no page cache before it");
                continue;
            }
            let rate = rate.as_f64().unwrap();
            let interval = |end: &str| tier["intervals"][measured][end].as_f64().unwrap();
            assert!(interval("low") <= rate && rate <= interval("high") && rate > 1e6, "{name} {measured}: {rate}");
        }
        let latency = |of: &str| tier[of].as_f64().unwrap();
        assert!(latency("read_latency_s") > 0.0 && latency("write_latency_s") > 0.0);
    }
    assert_eq!(std::fs::read_dir(memory.path()).unwrap().count() + std::fs::read_dir(place.data()).unwrap().count(), 0);
    let said = crate::support::refused(&["tiers", "--tier", "gone=/nonexistent"]);
    assert!(said.contains("tier `gone`") && said.contains("hint:"), "{said}");
    for wrong in ["gone", "=/tmp", "gone="] {
        assert!(crate::support::refused(&["tiers", "--tier", wrong]).contains("NAME=DIRECTORY"));
    }
}
