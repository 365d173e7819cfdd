//! Backends and layouts that need other programs: MPI, HDF5, NetCDF, an S3 store, Lustre's and BeeGFS's commands.

use crate::support::{Place, has, rows, skipped, text};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn mpi() -> bool {
    let there = has("mpicc") && has("mpirun");
    if !there {
        skipped("no MPI (tests/setup.sh installs one)");
    }
    there
}

/// Rows of 376 bytes, in parts that are not contiguous.
fn grid(dimensions: [u64; 3]) -> Value {
    json!({ "dataset": { "variables": ["float32"], "dimensions": dimensions, "divisions": [2, 2, 1] } })
}

#[test]
fn the_papers_file_is_the_same_whichever_backend_wrote_it() {
    if !mpi() {
        return;
    }
    let place = Place::new();
    let way = |name: &str, backend: Value| json!({ "file_name": name, "backend": backend });
    let rows = place.rows(
        "r",
        json!({ "base": { "workers": 4, "keep": true, "seed": 1, "flush": "never", "workload": grid([1152, 576, 94]) },
            "factors": { "way": {
                "posix": way("posix", json!({ "posix": {} })),
                "coalesced": { "file_name": "coalesced", "coalesce": "on" },
                "cstream": { "file_name": "cstream", "backend": { "cstream": {} } },
                "mmap": { "file_name": "mmap", "backend": { "mmap": {} }, "coalesce": "on" },
                "io_uring": { "file_name": "io_uring", "backend": { "io_uring": {} }, "coalesce": "on" },
                "independent": way("independent", json!({ "mpiio": {} })),
                "view": way("view", json!({ "mpiio": { "view": true } })),
                "both": way("both", json!({ "mpiio": { "view": true, "collective": true } })) } } }),
    );
    assert!(rows.iter().all(|row| row["status"] == "ok" && row["bytes"] == 1152_u64 * 576 * 94 * 4));
    let files = place.left();
    assert_eq!(files.len(), 8);
    let first = std::fs::read(&files[0]).unwrap();
    for file in &files[1..] {
        assert!(std::fs::read(file).unwrap() == first, "{} is another file", file.display());
    }
}

#[test]
fn collective_calls_without_a_view_write_the_same_file_even_when_the_parts_are_uneven() {
    if !mpi() {
        return;
    }
    let place = Place::new();
    let workload =
        json!({ "dataset": { "variables": ["float32", "int16"], "dimensions": [13, 7, 5], "divisions": [3, 1, 1] } });
    let mpi = |collective: bool, view: bool, seek: bool| json!({ "mpiio": { "collective": collective, "view": view, "seek": seek } });
    place.rows(
        "r",
        json!({ "base": { "workers": 3, "keep": true, "seed": 1, "workload": workload },
            "factors": { "way": {
                "posix": { "file_name": "posix" },
                "collective": { "file_name": "collective", "backend": mpi(true, false, false) },
                "seek": { "file_name": "seek", "backend": mpi(false, false, true) },
                "both": { "file_name": "both", "backend": mpi(true, true, false) } } } }),
    );
    let contents: std::collections::BTreeSet<Vec<u8>> =
        place.left().iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert_eq!(contents.len(), 1);
}

#[test]
fn wrong_data_and_short_files_end_collective_reads_and_leave_nobody_waiting() {
    if !mpi() {
        return;
    }
    let place = Place::new();
    let base = |file: &str, operation: &str, settings: &Value| {
        let mut base = json!({ "workers": 2, "keep": true, "seed": 3, "file_name": file, "operations": [operation],
            "workload": { "dataset": { "variables": ["float32", "float64"], "dimensions": [8, 512], "divisions": [2, 1] } } });
        terrace_bench::plan::merge(&mut base, settings);
        json!({ "base": base })
    };
    let flip = |file: &std::path::Path| {
        let mut content = std::fs::read(file).unwrap();
        // In the first variable, and in the first worker's part.
        content[4097] ^= 4;
        std::fs::write(file, content).unwrap();
    };
    let cut =
        |file: &std::path::Path| std::fs::File::options().write(true).open(file).unwrap().set_len(30_001).unwrap();
    #[allow(clippy::type_complexity)] // a name and what does it
    let harms: [(&str, &dyn Fn(&std::path::Path)); 2] = [("flip", &flip), ("cut", &cut)];
    for (way, settings) in [
        ("rows", json!({ "backend": { "mpiio": { "collective": true } } })),
        ("views", json!({ "backend": { "mpiio": { "collective": true, "view": true } } })),
        ("barriers", json!({ "barriers": true, "backend": { "mpiio": {} } })),
    ] {
        for (harm, act) in harms {
            let name = format!("{way}-{harm}");
            place.rows(&format!("{name}-w"), base(&name, "write", &settings));
            act(&place.data().join(&name));
            let mut child = place.start(&name, base(&name, "read", &settings)).stderr(Stdio::null()).spawn().unwrap();
            let deadline = Instant::now() + Duration::from_secs(40);
            let code = loop {
                if let Some(status) = child.try_wait().unwrap() {
                    break status.code();
                }
                if Instant::now() > deadline {
                    // SAFETY: it has not been waited for, so its number is still its own.
                    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
                    child.wait().unwrap();
                    panic!("{name}: it waits for ever");
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            assert_eq!(code, Some(1), "{name}");
            let said = rows(&place.path(&name))[0]["error"].to_string();
            if harm == "flip" {
                assert!(said.contains("from offset 4097") && said.contains("1 flipped bit"), "{name}: {said}");
            }
        }
    }
}

#[test]
fn views_and_coalescing_make_few_requests_of_many_each_of_which_bears_the_added_delay() {
    if !mpi() {
        return;
    }
    let place = Place::new();
    let slow = json!({ "posix": { "added_delay": "1ms" } });
    let rows = place.rows(
        "r",
        json!({ "base": { "workers": 4, "operations": ["write"], "flush": "never", "workload": grid([32, 128, 94]) },
            "factors": { "way": {
                "rows": { "backend": slow },
                "coalesced": { "backend": slow, "coalesce": "on" },
                "collective-view": { "backend": { "mpiio": { "collective": true, "view": true, "added_delay": "1ms" } } } } } }),
    );
    assert_eq!(rows.len(), 3);
    for row in rows {
        let of_each_worker = match row["factors"]["way"].as_str().unwrap() {
            "rows" => 16 * 64,
            "coalesced" => 16,
            _ => 1,
        };
        assert_eq!(row["requests"], 4 * of_each_worker, "{row}");
        // What a request costs more is waited for, never left out; how much the rest takes is for benchmarks/instrument.
        assert!(row["elapsed_s"].as_f64().unwrap() >= f64::from(of_each_worker) * 0.001, "{row}");
    }
}

#[test]
fn more_than_2_gib_in_one_mpi_call_are_moved_whole() {
    if !mpi() {
        return;
    }
    let place = Place::new();
    // One call of 2.25 GiB, past MPI's int counts of bytes.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let workload = json!({ "dataset": { "variables": ["int8"], "dimensions": [2304, 1_048_576] } });
    let rows = place.rows(
        "r",
        json!({ "directory": memory.path(), "base": { "workers": 1, "flush": "never", "workload": workload,
            "backend": { "mpiio": { "view": true, "collective": true } } } }),
    );
    assert_eq!(rows[1]["bytes_verified"], 2304_u64 << 20);
    assert_eq!(rows[1]["requests"], 1);
}

#[test]
fn hdf5_and_netcdf_hold_the_same_variables() {
    if !mpi() {
        return;
    }
    let place = Place::new();
    let workload = json!({ "dataset": { "variables": ["float32", "float64"], "dimensions": [24, 10, 6], "divisions": [2, 2, 1] } });
    for backend in ["hdf5", "netcdf"] {
        for files in ["shared", "per_worker"] {
            let name = format!("{backend}-{files}");
            let output = place.run(
                &name,
                json!({ "base": { "workers": 4, "files": files, "workload": workload }, "factors": {
                    "collective": { "no": { "backend": { backend: {} } }, "yes": { "backend": { backend: { "collective": true } } } } } }),
            );
            let rows = rows(&place.path(&name));
            if let Some(error) = rows[0]["error"].as_str().filter(|error| error.contains("can't be built")) {
                skipped(&format!("{backend}: {}", error.lines().next().unwrap_or_default()));
                break;
            }
            assert!(output.status.success(), "{name}: {:?}", rows.iter().map(|row| &row["error"]).collect::<Vec<_>>());
            assert!(
                rows.iter()
                    .filter(|row| row["operation"] == "read")
                    .all(|row| row["bytes_verified"] == 24 * 10 * 6 * 12)
            );
        }
    }
}

/// What is said of an experiment that lacks a program; nothing of it has run.
fn refused_at_once(place: &Place, name: &str, experiment: Value, environment: &[(&str, &str)]) -> String {
    let output = place.start(name, experiment).envs(environment.iter().copied()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(!place.path(name).exists() && !place.data().exists(), "something ran");
    assert!(said.contains("hint:"), "{said}");
    said
}

#[test]
fn a_missing_mpi_is_named_with_what_to_install_before_anything_runs() {
    let place = Place::new();
    // The run that needs it would come last.
    let with = |backend: Value| json!({ "order": "fixed", "factors": { "way": { "a": { "backend": { "posix": {} } }, "b": { "backend": backend } } } });
    let said = refused_at_once(&place, "m", with(json!({ "mpiio": {} })), &[("PATH", "/nonexistent")]);
    for word in ["run 1 (way=b)", "mpi", "libopenmpi-dev"] {
        assert!(said.contains(word), "{said}");
    }
    assert!(!said.contains("run 0"), "{said}");
    let mut hdf5 = with(json!({ "hdf5": {} }));
    hdf5["launch"] = json!({ "command": "/bin/true" });
    let said = refused_at_once(&place, "h", hdf5.clone(), &[("MPICC", "/bin/true"), ("PATH", "/nonexistent")]);
    assert!(said.contains("run 1 (way=b)") && said.contains("libhdf5-openmpi-dev"), "{said}");
    // An experiment that was begun elsewhere is not gone on with either.
    hdf5["launch"] = json!({ "command": "/nonexistent/srun -n {workers}" });
    let said = refused_at_once(&place, "s", hdf5, &[]);
    assert!(said.contains("/nonexistent/srun") && said.contains("launch.command"), "{said}");
    // Those that need none are run.
    let output = place.start("p", json!({})).env("PATH", "/nonexistent").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_cache_directory_that_is_empty_or_relative_counts_as_not_set() {
    if !mpi() {
        return;
    }
    let place = Place::new();
    let experiment = json!({ "base": { "operations": ["write"], "backend": { "mpiio": {} } } });
    for (name, value) in [("empty", ""), ("relative", "relative")] {
        let mut command = place.start(name, experiment.clone());
        let here = place.path(&format!("{name}.json")).parent().unwrap().to_owned();
        let output = command.env("XDG_CACHE_HOME", value).env("HOME", place.path("home")).current_dir(here).output();
        assert!(output.unwrap().status.success());
        assert!(place.path("home/.cache/terrace/bench").exists());
        assert!(!place.path("relative").join("terrace").exists() && !place.path("terrace").exists());
        std::fs::remove_dir_all(place.path("home")).unwrap();
    }
}

/// Puts a program of this name before all others.
fn fake(place: &Place, name: &str, script: &str) -> String {
    let directory = place.path("programs");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", directory.display(), std::env::var("PATH").unwrap())
}

#[test]
fn iore_storage_layouts_are_set_before_the_file_is_made_and_read_back() {
    let place = Place::new();
    let log = place.path("log");
    let script = format!(
        r#"echo "$@" >> {log}
case "$1 $2" in
    "setstripe -S") : > "$6" ;;
    "getstripe -S") echo 1048576 ;;
    "getstripe -c") echo ${{FAKE_COUNT:-4}} ;;
esac"#,
        log = log.display()
    );
    let path = fake(&place, "lfs", &script);
    let experiment =
        json!({ "base": { "workers": 2, "layout": { "lustre": { "stripe_size": "1M", "stripe_count": 4 } } } });
    let output = place.start("r", experiment.clone()).env("PATH", &path).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let calls = std::fs::read_to_string(&log).unwrap();
    assert!(calls.starts_with("setstripe -S 1048576 -c 4 "), "{calls}");
    assert_eq!(rows(&place.path("r"))[0]["layout"], "stripe_size=1048576 stripe_count=4");

    // A file system that gives another layout than it was asked for is no measurement of that layout.
    let output = place.start("other", experiment).env("PATH", &path).env("FAKE_COUNT", "1").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = rows(&place.path("other"))[0]["error"].as_str().unwrap().to_owned();
    assert!(said.contains("stripe_count=1 instead"), "{said}");
}

#[test]
fn beegfs_and_local_layouts_are_set_and_read_back() {
    let place = Place::new();
    let path = fake(
        &place,
        "beegfs-ctl",
        "case $1 in --getentryinfo) echo '+ Number of storage targets: desired: 2'; echo '+ Chunksize: 512K';; esac",
    );
    let output = place
        .start("b", json!({ "base": { "layout": { "beegfs": { "stripe_size": "512K", "stripe_count": 2 } } } }))
        .env("PATH", &path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(rows(&place.path("b"))[0]["layout"].as_str().unwrap().contains("Chunksize: 512K"));
    let other = json!({ "base": { "layout": { "beegfs": { "stripe_size": "1M", "stripe_count": 2 } } } });
    let output = place.start("other", other).env("PATH", &path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = rows(&place.path("other"))[0]["error"].as_str().unwrap().to_owned();
    assert!(said.contains("stripe_size=512K stripe_count=2 instead"), "{said}");
    let rows = place.rows("l", json!({ "base": { "layout": { "local": { "preallocate": true } } } }));
    assert!(rows[0]["layout"].as_str().unwrap().starts_with("allocated="));
}

#[test]
fn a_layout_without_its_program_is_named_before_anything_runs() {
    let place = Place::new();
    for (layout, program) in [("lustre", "`lfs`"), ("beegfs", "`beegfs-ctl`")] {
        let layouts = json!({ "factors": { "layout": ["as_is", { layout: {} }] } });
        let said = refused_at_once(&place, layout, layouts, &[("PATH", "/nonexistent")]);
        assert!(said.contains("run 1") && said.contains(program) && said.contains("install"), "{said}");
    }
}

/// A local S3 server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn objects_are_written_and_read_in_an_s3_store() {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/tests-venv/bin/python");
    let there = Command::new(python).args(["-c", "import moto.server"]).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return skipped("no moto, the S3 server of the tests (tests/setup.sh installs it)");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new(python);
    server.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
    let _server = Server(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let address = format!("127.0.0.1:{port}");
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::net::TcpStream::connect(&address).is_err() {
        assert!(Instant::now() < deadline, "moto does not start");
        std::thread::sleep(Duration::from_millis(100));
    }
    let made = Command::new(python)
        .args(["-c", "import sys, urllib.request as u; u.urlopen(u.Request(sys.argv[1], method='PUT'))"])
        .arg(format!("http://{address}/bench"))
        .status()
        .unwrap();
    assert!(made.success());
    let place = Place::new();
    let output = place
        .start(
            "r",
            json!({ "base": { "workers": 2, "files": "per_worker",
                "backend": { "s3": { "bucket": "bench", "endpoint": format!("http://{address}") } } },
                "factors": { "workload.offset.data_size": ["1M", "20M"] } }),
        )
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .output()
        .unwrap();
    let rows = rows(&place.path("r"));
    assert!(output.status.success(), "{:?}", rows.iter().map(|row| &row["error"]).collect::<Vec<_>>());
    assert!(rows.iter().any(|row| row["bytes_verified"] == 40 << 20));
    // The upload ends with the flush, which the rate counts; nothing is left for the close.
    for row in rows.iter().filter(|row| row["operation"] == "write") {
        assert!(row["flush_s"].as_f64().unwrap() > row["close_s"].as_f64().unwrap(), "{row}");
    }

    // Objects that the experiment did not make stay; those that it made are known to the next one.
    let ask = |method: &str, key: &str, data: &str| {
        // boto3 comes with moto; a key that is not there is an exception.
        let script = "import sys, boto3; address, method, key, data = sys.argv[1:]
s3 = boto3.client('s3', endpoint_url=address, region_name='us-east-1', aws_access_key_id='test', aws_secret_access_key='test')
of = {'Bucket': 'bench', 'Key': key}
if method == 'PUT': s3.put_object(Body=data.encode(), **of)
elif method == 'DELETE': s3.delete_object(**of)
else: print(s3.get_object(**of)['Body'].read(5).decode('latin1'))";
        let output = Command::new(python)
            .args(["-c", script, &format!("http://{address}"), method, key, data])
            .output()
            .unwrap();
        output.status.success().then(|| text(&output.stdout).trim().to_owned())
    };
    let base = |keep: bool, operation: &str| {
        json!({ "base": { "workers": 2, "files": "per_worker", "file_name": "precious", "keep": keep,
            "operations": [operation],
            "backend": { "s3": { "bucket": "bench", "endpoint": format!("http://{address}") } } } })
    };
    let run = |name: &str, experiment: Value| {
        let keys = [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")];
        let output = place.start(name, experiment).envs(keys).output().unwrap();
        (
            output.status.code(),
            crate::support::rows(&place.path(name))[0]["error"].as_str().unwrap_or_default().to_owned(),
        )
    };
    ask("PUT", "precious.00000001", "years").unwrap();
    let (code, said) = run("strange", base(false, "write"));
    assert_eq!(code, Some(1));
    assert!(said.contains("precious.00000001") && said.contains("did not make it"), "{said}");
    assert_eq!(ask("GET", "precious.00000001", "").as_deref(), Some("years"));
    assert_eq!(ask("GET", "precious.00000000", ""), None);
    ask("DELETE", "precious.00000001", "").unwrap();
    assert_eq!(run("kept", base(true, "write")), (Some(0), String::new()));
    assert_eq!(run("read", base(false, "read")), (Some(0), String::new()));
    assert_eq!(run("again", base(false, "write")).0, Some(1));
    assert!(ask("GET", "precious.00000000", "").is_some());
}

/// Arguments of `terrace run` with a tier and a state of this test's own.
fn terrace_run(place: &Place, tier: &tempfile::TempDir) -> Option<Value> {
    let beside = std::path::Path::new(crate::support::PROGRAM).with_file_name("terrace");
    if !beside.exists() || !beside.with_file_name("libterrace_intercept.so").exists() {
        skipped("`terrace` is not built beside terrace-bench");
        return None;
    }
    let ram = format!("ram={}:64MiB", tier.path().display());
    Some(json!(["--tier", ram, "--state", place.path("state")]))
}

#[test]
fn programs_under_terrace_run_are_a_backend() {
    let place = Place::new();
    let tier = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(arguments) = terrace_run(&place, &tier) else { return };
    let rows = place.rows(
        "r",
        json!({ "base": { "workers": 2, "files": "per_worker", "flush": "never",
            "backend": { "terrace_files": { "arguments": arguments } } } }),
    );
    assert_eq!(rows[1]["bytes_verified"], 2 << 20);
}

#[test]
fn objects_of_terrace_are_a_backend_for_files_and_for_arrays() {
    let place = Place::new();
    let tier = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(arguments) = terrace_run(&place, &tier) else { return };
    let objects = |datasets: &str| json!({ "terrace_objects": { "arguments": arguments, "datasets": datasets } });
    let dataset = json!({ "dataset": { "variables": ["float32", "float64"], "dimensions": [13, 10, 6], "divisions": [2, 2, 1] } });
    let strided = json!({ "offset": { "pattern": "strided", "data_size": "256K", "request_size": "16K" } });
    let rows = place.rows(
        "r",
        json!({ "base": { "workers": 4 }, "factors": {
            "files": ["shared", "per_worker"],
            "flush": ["never", "end"],
            "way": {
                "arrays": { "workload": dataset, "backend": objects("arrays") },
                "bytes": { "workload": dataset, "backend": objects("bytes") },
                "offsets": { "workload": strided, "backend": objects("arrays") } } } }),
    );
    assert_eq!(rows.len(), 2 * 2 * 3 * 2);
    for row in rows.iter().filter(|row| row["operation"] == "read") {
        let offsets = row["factors"]["way"] == "offsets";
        assert_eq!(row["bytes_verified"], if offsets { 1 << 20 } else { 13 * 10 * 6 * 12 });
    }
    // A worker's whole part of each variable is one put.
    assert!(rows.iter().filter(|row| row["factors"]["way"] == "arrays").all(|row| row["requests"] == 4 * 2));
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
}

#[test]
fn objects_of_terrace_become_the_same_file_and_a_zarr_array_in_the_root() {
    let place = Place::new();
    let tier = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(arguments) = terrace_run(&place, &tier) else { return };
    let way = |name: &str, datasets: &str| json!({ "file_name": name, "backend": { "terrace_objects": { "arguments": arguments, "datasets": datasets, "chunks": [8, 8, 94] } } });
    place.rows(
        "r",
        json!({ "base": { "workers": 4, "keep": true, "seed": 1, "operations": ["write"], "workload": grid([32, 24, 94]) },
            "factors": { "way": { "posix": { "file_name": "posix" }, "bytes": way("bytes", "bytes"), "arrays": way("arrays", "arrays") } } }),
    );
    let data = place.data();
    let posix = std::fs::read(data.join("posix")).unwrap();
    assert!(std::fs::read(data.join("bytes")).unwrap() == posix);
    let metadata: Value = serde_json::from_slice(&std::fs::read(data.join("arrays/v0/zarr.json")).unwrap()).unwrap();
    assert_eq!(metadata["shape"], json!([32, 24, 94]));
    // The chunk 1, 2 holds cells from (8, 16, 0) on, row by row as the file does.
    let chunk = std::fs::read(data.join("arrays/v0/c/1/2/0")).unwrap();
    let row_bytes = 94 * 4;
    for (row, found) in chunk.chunks(row_bytes).enumerate() {
        let at = ((8 + row / 8) * 24 + 16 + row % 8) * row_bytes;
        assert!(found == &posix[at..at + row_bytes], "row {row}");
    }
}

#[test]
fn the_flush_of_a_bytes_object_takes_until_it_is_in_the_root() {
    let place = Place::new();
    let tier = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(mut arguments) = terrace_run(&place, &tier) else { return };
    // Nothing is flushed unasked, and what is asked for goes into the root at 8 MiB/s.
    for word in ["--settle", "1h", "--bandwidth", "8MiB"] {
        arguments.as_array_mut().unwrap().push(json!(word));
    }
    for files in ["shared", "per_worker"] {
        let rows = place.rows(
            files,
            json!({ "base": { "workers": 2, "files": files, "operations": ["write"],
                "workload": { "offset": { "data_size": "8M" } },
                "backend": { "terrace_objects": { "arguments": arguments } } } }),
        );
        assert!(rows[0]["elapsed_s"].as_f64().unwrap() > 0.9, "{files}: {}", rows[0]["elapsed_s"]);
    }
}

#[test]
fn what_terrace_run_cannot_make_durable_at_its_end_is_told_of() {
    let place = Place::new();
    let tier = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(arguments) = terrace_run(&place, &tier) else { return };
    let mount = place.data();
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=6m,mode=755", "tmpfs"])
        .arg(&mount)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return skipped("mounting a small file system needs root");
    }
    let output = place.run(
        "r",
        json!({ "base": { "keep": true, "operations": ["write"], "workload": { "offset": { "data_size": "16M" } },
            "backend": { "terrace_files": { "arguments": arguments } } } }),
    );
    // The agent still has what it could not move, and ends when nobody wants it any more.
    for entry in std::fs::read_dir(&mount).unwrap().flatten().filter(|entry| entry.file_name() != ".terrace") {
        std::fs::remove_file(entry.path()).unwrap();
    }
    let is_unmounted = || Command::new("umount").arg(&mount).stderr(Stdio::null()).status().unwrap().success();
    let begun = Instant::now();
    while !is_unmounted() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the agent stays");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("could not be made durable"), "{}", text(&output.stderr));
}

#[test]
fn objects_that_the_experiment_did_not_make_stay() {
    let place = Place::new();
    let tier = tempfile::tempdir_in("/dev/shm").unwrap();
    let Some(arguments) = terrace_run(&place, &tier) else { return };
    std::fs::create_dir_all(place.data()).unwrap();
    let workload = json!({ "dataset": { "dimensions": [8, 8] } });
    for (name, workload) in [("bytes", offset()), ("arrays", workload)] {
        // A container or an object, of a program that ended before.
        let theirs = place.data().join(name);
        match name {
            "arrays" => {
                std::fs::create_dir(&theirs).unwrap();
                std::fs::write(theirs.join("thesis"), "years").unwrap();
            }
            _ => std::fs::write(&theirs, "years").unwrap(),
        }
        let base = json!({ "workers": 2, "file_name": name, "workload": workload, "backend": { "terrace_objects": { "arguments": arguments } } });
        let output = place.run(name, json!({ "base": base }));
        assert_eq!(output.status.code(), Some(1));
        let said = rows(&place.path(name))[0]["error"].as_str().unwrap().to_owned();
        assert!(said.contains(name) && said.contains("did not make it"), "{said}");
        let content = if name == "arrays" { theirs.join("thesis") } else { theirs };
        assert_eq!(std::fs::read_to_string(content).unwrap(), "years");
    }
}

fn offset() -> Value {
    json!({ "offset": { "data_size": "64K", "request_size": "16K" } })
}

#[test]
fn objects_without_an_agent_are_named() {
    let place = Place::new();
    let backend = json!({ "terrace_objects": { "connect": place.directory.path() } });
    let output = place.run("r", json!({ "base": { "backend": backend } }));
    assert_eq!(output.status.code(), Some(1));
    let said = rows(&place.path("r"))[0]["error"].as_str().unwrap().to_owned();
    assert!(said.contains("no agent serves"), "{said}");
}
