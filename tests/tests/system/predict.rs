//! `terrace predict` as a user calls it: questions, answers, refusals.

use std::path::Path;
use std::process::{Command, Output};
use terrace_tests::{Wish, terrace_binary};

fn predict_in(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(terrace_binary())
        .current_dir(directory)
        .arg("predict")
        .args(arguments)
        .output()
        .expect("terrace starts")
}

fn answer(directory: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = predict_in(directory, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("--json prints JSON")
}

/// 8 blocks of 64 MiB, five iterations, one process; a memory tier that holds them all.
const QUESTION: [&str; 15] = [
    "--input",
    "512MiB",
    "--iterations",
    "5",
    "--file-size",
    "64MiB",
    "--processes",
    "1",
    "--read-bandwidth",
    "1000MiB",
    "--write-bandwidth",
    "100MiB",
    "--fast-tier",
    "ram=8GiB,4000MiB,2000MiB",
    "--flush=final",
];

fn number(value: &serde_json::Value, pointer: &str) -> f64 {
    value
        .pointer(pointer)
        .and_then(serde_json::Value::as_f64)
        .unwrap_or_else(|| panic!("{pointer} is no number: {value}"))
}

#[test]
fn the_closed_form_is_what_paper_and_pencil_say() {
    let place = tempfile::tempdir().unwrap();
    let found = answer(place.path(), &QUESTION);
    // Alone: 512/1000 + 2048/1000 read, 2560/100 written. Terrace: 512/1000, 2048/4000, 2560/2000, and 512/100 to flush.
    assert!((number(&found, "/closed_form/durable_alone/without_page_cache_s") - 28.16).abs() < 1e-6);
    assert!((number(&found, "/closed_form/terrace/without_page_cache_s") - 7.424).abs() < 1e-6);
    assert!(found["limited_by"].as_str().unwrap().starts_with("flush"), "{found}");
}

#[test]
fn the_simulation_is_the_same_for_the_same_seed_and_hides_the_flush() {
    let place = tempfile::tempdir().unwrap();
    let ask = || answer(place.path(), &[&QUESTION[..], &["--simulate", "--seed", "3", "--runs", "2"]].concat());
    let (found, again) = (ask(), ask());
    assert_eq!(found, again);
    let simulated = number(&found, "/simulation/terrace/median_s");
    assert!(simulated < number(&found, "/closed_form/terrace/without_page_cache_s"), "{simulated}");
    assert!(simulated > number(&found, "/closed_form/terrace/with_page_cache_s") * 0.99, "{simulated}");
}

#[test]
fn a_workload_may_be_a_file_and_flags_go_before_it() {
    let place = tempfile::tempdir().unwrap();
    let storage =
        ["--read-bandwidth", "1000MiB", "--write-bandwidth", "100MiB", "--fast-tier", "ram=8GiB,4000MiB,2000MiB"];
    std::fs::write(
        place.path().join("job.toml"),
        "input = \"512MiB\"\niterations = 5\nfile_size = \"64MiB\"\nprocesses = 1\nflush = \"final\"\n",
    )
    .unwrap();
    std::fs::write(
        place.path().join("job.json"),
        r#"{"input": 536870912, "iterations": 5, "file_size": 67108864, "flush": "final"}"#,
    )
    .unwrap();
    for file in ["job.toml", "job.json"] {
        let found = answer(place.path(), &[&["--workload", file][..], &storage].concat());
        assert!((number(&found, "/closed_form/terrace/without_page_cache_s") - 7.424).abs() < 1e-6, "{file}");
    }
    let longer = answer(place.path(), &[&["--workload", "job.toml", "--iterations", "10"][..], &storage].concat());
    assert!(number(&longer, "/job/workload/intermediate_bytes") == 9.0 * 512.0 * 1048576.0);
}

#[test]
fn measured_tiers_are_read_and_a_capacity_that_nobody_told_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(
        place.path().join("tiers.json"),
        r#"{"version": 1, "manifest": {"any": "thing"}, "workers": 2, "tiers": [
            {"rates": {"tier": "ram", "read_bytes_s": 4e9, "write_bytes_s": 2e9, "cached_read_bytes_s": null, "cached_write_bytes_s": null},
             "path": "/dev/shm", "in_memory": true, "read_latency_s": 1e-6, "write_latency_s": 1e-6, "intervals": {}},
            {"rates": {"tier": "root", "read_bytes_s": 1e9, "write_bytes_s": 1e8, "cached_read_bytes_s": 5e9, "cached_write_bytes_s": 3e9},
             "path": "/", "in_memory": false, "read_latency_s": 1e-4, "write_latency_s": 2e-3, "intervals": {}}]}"#,
    )
    .unwrap();
    let question = ["--input", "1GB", "--file-size", "100MB", "--tiers", "tiers.json"];
    let refused = predict_in(place.path(), &question);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--capacity ram=SIZE"), "{refused:?}");
    let found = answer(place.path(), &[&question[..], &["--capacity", "ram=16GiB"]].concat());
    // The page cache hides the writes of the durable tier alone: 1 s of input, a third of a second for the output.
    assert!(
        (number(&found, "/closed_form/durable_alone/with_page_cache_s") - (1.0 + 1.0 / 3.0)).abs() < 1e-6,
        "{found}"
    );
    assert!((number(&found, "/closed_form/durable_alone/without_page_cache_s") - 11.0).abs() < 1e-6);
}

#[test]
fn the_report_of_a_run_is_a_workload() {
    let outcome = Wish::default().build().sh("for i in 1 2 3; do head -c 300000 /dev/zero > f$i; done").ok();
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("report.json"), outcome.report.expect("a report").to_string()).unwrap();
    let question = ["--report", "report.json", "--read-bandwidth", "1GB", "--write-bandwidth", "100MB"];
    let found = answer(place.path(), &[&question[..], &["--fast-tier", "ram=1GB,4GB,2GB"]].concat());
    assert_eq!(number(&found, "/job/workload/final_bytes"), 900_000.0);
    assert_eq!(number(&found, "/job/workload/file_bytes"), 300_000.0);
    assert!(found["notes"].to_string().contains("--input"), "{found}");
}

#[test]
fn a_report_alone_is_enough() {
    let place = Wish::default().tier("ram", "256MiB").build();
    place.native_sh("head -c 3000000 /dev/zero > input").ok();
    // All is flushed; what is read back is intermediate all the same.
    let script = "cat input input > first; cat first input > second; cat second > third; rm -f gone; head -c 9000000 /dev/zero > fourth";
    let outcome = place.sh(script).ok();
    let report = outcome.report.expect("a report");
    let bytes = |key: &str| report["counters"][key].as_u64().unwrap_or_else(|| panic!("no {key}: {report:#}"));
    assert_eq!((bytes("input_bytes"), bytes("reread_bytes")), (3_000_000, 6_000_000), "{report:#}");
    assert_eq!(bytes("read_back_bytes"), 15_000_000, "{report:#}");
    let here = tempfile::tempdir().unwrap();
    std::fs::write(here.path().join("report.json"), report.to_string()).unwrap();
    let found = answer(here.path(), &["--report", "report.json"]);
    assert_eq!(number(&found, "/job/workload/input_bytes"), 3e6);
    assert_eq!(number(&found, "/job/workload/intermediate_bytes"), 15e6);
    assert_eq!(number(&found, "/job/workload/final_bytes"), 18e6);
    assert_eq!(found["platform"]["tiers"][0]["name"], "ram", "{found}");
    let rates = report["bandwidths"].as_array().expect("bandwidths");
    let of =
        |tier: &str| rates.iter().find(|rate| rate["tier"] == tier).unwrap_or_else(|| panic!("no {tier}: {report:#}"));
    assert_eq!(number(&found, "/platform/tiers/0/read_bytes_s"), of("ram")["read_bytes_s"].as_f64().unwrap());
    assert!(of("root")["write_bytes_s"].as_f64() > Some(0.0), "{report:#}");
}

#[test]
fn a_sweep_is_a_table_and_a_picture() {
    let place = tempfile::tempdir().unwrap();
    for (name, begin) in [("sweep.png", &b"\x89PNG"[..]), ("sweep.svg", &b"<svg"[..])] {
        let output =
            predict_in(place.path(), &[&QUESTION[..], &["--sweep", "iterations=1..8", "--plot", name]].concat());
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 5, "a heading, and 1, 2, 4, 8:\n{text}");
        let picture = std::fs::read(place.path().join(name)).unwrap();
        assert!(picture.starts_with(begin) && picture.len() > 4000, "{name} has {} bytes", picture.len());
    }
    let found = answer(place.path(), &[&QUESTION[..], &["--sweep", "iterations=1..8"]].concat());
    let points = found["points"].as_array().unwrap();
    let times: Vec<f64> =
        points.iter().map(|point| number(point, "/answer/closed_form/terrace/without_page_cache_s")).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn bad_input_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("typo.toml"), "inptu = \"1GiB\"\n").unwrap();
    std::fs::write(place.path().join("half.toml"), "input = 1.5\n").unwrap();
    std::fs::write(place.path().join("no.json"), "{").unwrap();
    let storage = ["--read-bandwidth", "1GB", "--write-bandwidth", "1GB", "--fast-tier", "ram=1GB,1GB,1GB"];
    let enough = ["--input", "1GB", "--file-size", "1MB"];
    let both = [&enough[..], &storage].concat();
    let with = |more: &[&'static str]| -> Vec<&str> { [&both[..], more].concat() };
    for (arguments, words) in [
        (storage.to_vec(), &["no workload", "--input"][..]),
        ([&["--input", "1GB"][..], &storage].concat(), &["file_size", "--file-size"]),
        (enough.to_vec(), &["bandwidth", "terrace bench tiers"]),
        ([&["--input", "1XB"][..], &storage].concat(), &["1XB", "XB"]),
        (with(&["--nodes", "0"]), &["nodes"]),
        (with(&["--fast-tier", "ram=2GB,1GB,1GB"]), &["ram=2GB,1GB,1GB", "another tier is called `ram`"]),
        (with(&["--nodes", "4000000000", "--simulate"]), &["nodes", "1000000"]),
        (
            [&["--input", "9000GB", "--file-size", "1MB", "--processes", "4000000000", "--simulate"][..], &storage]
                .concat(),
            &["processes_per_node", "most that"],
        ),
        (
            [&["--input", "1GB", "--file-size", "1GB", "--iterations", "4000000000", "--simulate"][..], &storage]
                .concat(),
            &["iterations", "most that"],
        ),
        (with(&["--disks", "4000000", "--stripe", "4000000", "--processes", "9", "--simulate"]), &["stripe_disks"]),
        (with(&["--iterations", "0"]), &["iterations"]),
        (with(&["--iterations", "1", "--intermediate", "1GB"]), &["iterations"]),
        (with(&["--stripe", "9"]), &["stripe"]),
        (with(&["--cores=-1"]), &["cores"]),
        (with(&["--cores", "nan"]), &["cores"]),
        (with(&["--capacity", "rams=1GB"]), &["rams", "did you mean `ram`"]),
        (with(&["--sweep", "procesess=1..4"]), &["procesess", "did you mean `processes`"]),
        (with(&["--sweep", "nodes=1..4", "--plot", "picture.gif"]), &["picture.gif", ".svg"]),
        (with(&["--sweep", "nodes=1..4", "--plot", "no/such/directory.svg"]), &["no/such/directory.svg"]),
        (with(&["--plot", "picture.svg"]), &["--sweep"]),
        ([&["--workload", "typo.toml"][..], &storage].concat(), &["typo.toml", "inptu"]),
        ([&["--workload", "half.toml"][..], &storage].concat(), &["half.toml", "1.5"]),
        ([&["--workload", "missing.toml"][..], &storage].concat(), &["missing.toml"]),
        ([&["--report", "no.json"][..], &storage].concat(), &["no.json", "terrace run --report"]),
        ([&enough[..], &["--tiers", "no.json"]].concat(), &["no.json", "terrace bench tiers"]),
        ([&enough[..], &["--platform", "no.json"]].concat(), &["no.json"]),
        (with(&["--fast-tier", "ram"]), &["--fast-tier ram", "NAME=CAPACITY"]),
    ] {
        let output = predict_in(place.path(), &arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.status.code().is_some(), "{arguments:?} was accepted");
        assert!(!text.contains("panicked"), "{arguments:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{arguments:?} does not name `{word}`: {text}");
        }
    }
}

#[test]
fn processes_without_work_cost_nothing() {
    let place = tempfile::tempdir().unwrap();
    let arguments = ["--processes", "4000000000", "--simulate", "--runs", "1"];
    let many = answer(place.path(), &[&QUESTION[..6], &arguments, &QUESTION[8..]].concat());
    let enough = answer(
        place.path(),
        &[&QUESTION[..6], &["--processes", "8", "--simulate", "--runs", "1"], &QUESTION[8..]].concat(),
    );
    let simulated = "/simulation/durable_alone/median_s";
    assert_eq!(number(&many, simulated), number(&enough, simulated));
}

#[test]
fn an_answer_that_nobody_takes_is_a_failure_or_an_end_and_never_a_panic() {
    let place = tempfile::tempdir().unwrap();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for more in [&[][..], &["--json"], &["--sweep", "nodes=1..4"], &["--sweep", "nodes=1..4", "--json"]] {
        let arguments = [&QUESTION[..], more].concat();
        let predict = |stdout: std::process::Stdio, stderr: std::process::Stdio| {
            let mut command = Command::new(terrace_binary());
            command.current_dir(place.path()).arg("predict").args(&arguments).stdout(stdout).stderr(stderr);
            command.spawn().unwrap().wait_with_output().unwrap()
        };
        let output = predict(full().into(), std::process::Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("standard output") && !said.contains("panicked"), "{said}");
        assert_eq!(predict(full().into(), full().into()).status.code(), Some(1));
        let (reading, writing) = std::io::pipe().unwrap();
        drop(reading);
        assert_eq!(predict(writing.into(), std::process::Stdio::piped()).status.code(), Some(0));
    }
}

/// What a table says, as a user sees it.
fn shown(directory: &Path, arguments: &[&str]) -> String {
    let output = predict_in(directory, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a table is text")
}

#[test]
fn the_simulations_interval_comes_first_and_nothing_is_called_a_bound() {
    let place = tempfile::tempdir().unwrap();
    for question in [&QUESTION[..], &[&QUESTION[..], &["--sweep", "iterations=1..4"]].concat()] {
        let text = shown(place.path(), &[question, &["--simulate", "--runs", "3"]].concat());
        let heading = text.lines().find(|line| line.contains("simulated")).expect("a heading");
        let (simulated, closed) = (heading.find("simulated").unwrap(), heading.find("no page cache").unwrap());
        assert!(simulated < closed && heading.contains("with page cache"), "{heading}");
        for word in ["at least", "at most", "bound"] {
            assert!(!text.contains(word), "`{word}` in:\n{text}");
        }
    }
    let text = shown(place.path(), &[&QUESTION[..], &["--simulate", "--runs", "3"]].concat());
    assert!(text.contains(" to ") && text.contains("times as fast with Terrace, by the simulation"), "{text}");
}

#[test]
fn steps_on_other_nodes_take_the_time_of_the_way_there() {
    let place = tempfile::tempdir().unwrap();
    let nodes =
        ["--nodes", "2", "--flush=all", "--simulate", "--cache-read-bandwidth=8GiB", "--cache-write-bandwidth=4GiB"];
    let question = [&QUESTION[..QUESTION.len() - 1], &nodes].concat();
    let elsewhere = [&question[..], &["--next-step", "other-node", "--peer-bandwidth", "500MiB"]].concat();
    let (here, there) = (answer(place.path(), &question), answer(place.path(), &elsewhere));
    // Two nodes, each with four of the eight blocks, which are read back four times: 16 blocks of 64 MiB come to each.
    let longer = |pointer: &str| number(&there, pointer) - number(&here, pointer);
    assert!((longer("/closed_form/terrace/without_page_cache_s") - 16.0 * 64.0 / 500.0).abs() < 1e-6, "{there}");
    let moved = number(&there, "/simulation/terrace/median_run/traffic/brought_bytes");
    assert_eq!(moved, f64::from(1 << 30) * 2.0, "no file was flushed within its settle time: {there}");
    // And no page cache has what another node wrote.
    assert!(longer("/closed_form/durable_alone/with_page_cache_s") > 0.0, "{there}");
    let text = String::from_utf8(predict_in(place.path(), &elsewhere).stdout).unwrap();
    assert!(text.contains("each step on another node"), "{text}");
    let one_node = answer(place.path(), &[&QUESTION[..], &["--next-step=other-node"]].concat());
    assert_eq!(
        one_node["closed_form"],
        answer(place.path(), &QUESTION)["closed_form"],
        "with one node there is no other"
    );
}

#[test]
fn a_page_caches_bandwidth_is_a_flag_and_changes_the_closed_form_with_it() {
    let place = tempfile::tempdir().unwrap();
    let cache = ["--cache-read-bandwidth", "4GiB", "--cache-write-bandwidth", "2GiB"];
    let (without, with) = (answer(place.path(), &QUESTION), answer(place.path(), &[&QUESTION[..], &cache].concat()));
    let cached = "/closed_form/durable_alone/with_page_cache_s";
    assert!(number(&with, cached) < number(&without, cached), "{with}");
    assert_eq!(number(&with, "/platform/cache/read_bytes_s"), f64::from(1 << 30) * 4.0);
    let output = predict_in(place.path(), &[&QUESTION[..], &cache[..2]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--cache-write-bandwidth"), "{output:?}");
}

#[test]
fn a_report_brings_the_bandwidth_that_its_flushes_had() {
    let place = tempfile::tempdir().unwrap();
    let report = |flushed: u64| {
        serde_json::json!({ "version": 1, "program_s": 10.0, "counters": { "flushed_bytes": flushed },
            "prediction": { "flush_s": 5.0 },
            "tiers": [{ "name": "ram", "capacity_bytes": 1 << 30, "durable": false, "written_bytes": 500_000_000, "written_files": 5 }] })
    };
    std::fs::write(place.path().join("report.json"), report(500_000_000).to_string()).unwrap();
    let question = ["--report", "report.json", "--fast-tier", "ram=1GB,4GB,2GB"];
    let found = answer(place.path(), &question);
    assert_eq!(number(&found, "/platform/durable/write_bytes_s"), 1e8);
    assert!(found["notes"].to_string().contains("as the run's flushes had"), "{found}");
    let found = answer(place.path(), &[&question[..], &["--write-bandwidth", "1GB"]].concat());
    assert_eq!(number(&found, "/platform/durable/write_bytes_s"), 1e9);
}

/// A Python that reads Darshan's logs, and the folder of the examples that its package brings.
fn darshan() -> Option<(std::path::PathBuf, std::path::PathBuf)> {
    let named = std::env::var_os("TERRACE_DARSHAN_PYTHON").map(std::path::PathBuf::from);
    let python = named.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../build/tests-venv/bin/python").into());
    let where_it_is = "import darshan, os; print(os.path.dirname(darshan.__file__))";
    let output = Command::new(&python).args(["-c", where_it_is]).output().ok().filter(|output| output.status.success());
    let Some(output) = output else {
        terrace_tests::skipped("no Python with pydarshan (tests/setup.sh makes one)");
        return None;
    };
    let package = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Some((python, Path::new(&package).join("examples")))
}

#[test]
fn a_darshan_log_is_a_workload() {
    let Some((python, examples)) = darshan() else { return };
    let place = tempfile::tempdir().unwrap();
    let ask = |log: &str, more: &[&str]| {
        let log = examples.join(log);
        let mut command = Command::new(terrace_binary());
        command.current_dir(place.path()).env("TERRACE_DARSHAN_PYTHON", &python).args([
            "predict",
            "--json",
            "--darshan",
        ]);
        let output = command.arg(log).args(["--fast-tier", "ram=64GiB,6GiB,2GiB"]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    // 2048 processes wrote one shared file of 2 TiB for 117 s, and read nothing.
    let found = ask("example_logs/example.darshan", &["--nodes", "64"]);
    assert_eq!(number(&found, "/job/workload/input_bytes"), 0.0);
    assert!(number(&found, "/job/workload/final_bytes") >= 2_199_023_259_968.0, "{found}");
    assert_eq!(number(&found, "/platform/processes_per_node"), 32.0);
    // Alone, with the bandwidth and the computing that the log has, it takes what it took.
    let alone = number(&found, "/closed_form/durable_alone/without_page_cache_s");
    assert!((110.0..125.0).contains(&alone), "{alone} s instead of 117 s");
    assert!(found["notes"].to_string().contains("2048 processes ran 117"), "{found}");
    // A pipeline of small logs: one read 10,000 bytes, another wrote as many.
    let logs = |part: &str| {
        let names = std::fs::read_dir(examples.join("darshan-graph")).unwrap();
        let mut names: Vec<String> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        format!("darshan-graph/{}", names.into_iter().find(|name| name.contains(part)).expect("an example"))
    };
    let read = ask(&logs("app_read_id71317"), &[]);
    assert_eq!(
        (number(&read, "/job/workload/input_bytes"), number(&read, "/job/workload/final_bytes")),
        (10_000.0, 0.0)
    );
    let wrote = ask(&logs("app_write_id71296"), &["--write-bandwidth", "1GB"]);
    assert_eq!(
        (number(&wrote, "/job/workload/input_bytes"), number(&wrote, "/job/workload/final_bytes")),
        (0.0, 10_000.0)
    );
    assert_eq!(number(&wrote, "/platform/durable/write_bytes_s"), 1e9, "flags go before the log");
}

#[test]
fn what_is_no_darshan_log_and_a_python_without_pydarshan_are_named() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("text"), "no log").unwrap();
    let bare = place.path().join("python");
    std::fs::write(&bare, "#!/bin/sh\nexec python3 -I -S \"$@\"\n").unwrap();
    std::fs::set_permissions(&bare, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = |python: &Path, log: &str| {
        let mut command = Command::new(terrace_binary());
        command.current_dir(place.path()).env("TERRACE_DARSHAN_PYTHON", python).args(["predict", "--darshan", log]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("hint:") && !said.contains("Traceback"), "{said}");
        said
    };
    assert!(refused(&bare, "gone").contains("no Darshan log gone"));
    let said = refused(&bare, "text");
    assert!(said.contains("no pydarshan") && said.contains("pip install darshan"), "{said}");
    if let Some((python, _)) = darshan() {
        assert!(refused(&python, "text").contains("text can't be read as a Darshan log"));
    }
}
