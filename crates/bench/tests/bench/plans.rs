//! From an experiment's text to its plan.

use crate::support::{PROGRAM, Place, refused, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

const FOURTEEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bench/fourteen.json");

fn plan(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).arg("plan").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn the_papers_experiment_expands_to_its_fourteen_runs() {
    let plan: Value = serde_json::from_str(&plan(&[FOURTEEN, "--json"])).unwrap();
    let runs: BTreeSet<(String, String, String)> = plan["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| {
            let level = |factor: &str| run["factors"][factor].as_str().unwrap().to_owned();
            (level("num_tasks"), level("file_mode"), level("afio"))
        })
        .collect();
    let mut wanted = BTreeSet::new();
    for tasks in ["2", "4"] {
        for afio in ["posix", "mpiio", "mpiio-collective", "mpiio-view", "mpiio-collective-view"] {
            wanted.insert((tasks.to_owned(), "Nx1".to_owned(), afio.to_owned()));
        }
        for afio in ["posix", "mpiio"] {
            wanted.insert((tasks.to_owned(), "NxN".to_owned(), afio.to_owned()));
        }
    }
    assert_eq!(runs, wanted);
    assert_eq!(runs.len(), 14);
    for block in plan["blocks"].as_array().unwrap() {
        let mut order: Vec<u64> = block.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
        assert!(!order.is_sorted(), "a replication is in the order of the file");
        order.sort_unstable();
        assert!(order.into_iter().eq(0..14), "a replication is a complete block");
    }
}

#[test]
fn the_same_seed_gives_the_same_plan_to_the_byte_and_another_seed_another_order() {
    let first = plan(&[FOURTEEN, "--json"]);
    assert_eq!(first, plan(&[FOURTEEN, "--json"]));
    assert_ne!(first, plan(&[FOURTEEN, "--json", "--seed", "2"]));
}

#[test]
fn factors_that_undo_each_others_levels_are_refused_by_name() {
    let place = Place::new();
    let plan_of = |factors: Value, exclude: Value| {
        let path = place.path("undone.json");
        let experiment = json!({ "directory": "data", "factors": factors, "exclude": exclude });
        std::fs::write(&path, experiment.to_string()).unwrap();
        Command::new(PROGRAM).args(["plan", "--json"]).arg(path).output().unwrap()
    };
    // The depth would make io_uring of what is called posix.
    let backends = json!({ "backend": [{ "posix": {} }, { "io_uring": {} }], "backend.io_uring.depth": [1, 16] });
    let output = plan_of(backends.clone(), json!([]));
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.contains("level `posix` of factor `backend`") && said.contains("backend.io_uring.depth=1"), "{said}");
    // By exclusion it has one meaning only.
    assert!(plan_of(backends, json!([{ "backend": "posix" }])).status.success());
    let trees = json!({ "workload": [{ "metadata": {} }], "workload.offset.request_size": ["4K"] });
    assert!(text(&plan_of(trees, json!([])).stderr).contains("level `metadata` of factor `workload`"));
    let twice = json!({ "a": { "one": { "workers": 2 } }, "b": { "two": { "workers": 3 } } });
    assert!(text(&plan_of(twice, json!([])).stderr).contains("level `one` of factor `a`"));
    // Levels that add to each other, and nulls in what is new, are no contradiction.
    let added = json!({
        "a": { "one": { "stonewall": { "after": "5s", "wear_out": null } } },
        "b": { "two": { "backend": { "io_uring": {} } }, "three": { "backend": { "io_uring": { "direct": true } } } },
        "backend.io_uring.depth": [1, 16]
    });
    let output = plan_of(added, json!([]));
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn json_yaml_and_toml_say_the_same() {
    let place = Place::new();
    let (json_file, yaml, toml) = (place.path("e.json"), place.path("e.yaml"), place.path("e.toml"));
    std::fs::write(
        &json_file,
        r#"{"directory": "d", "replications": 2, "base": {"workers": 3}, "factors": {"workload.offset.request_size": ["4K", "64K"]}}"#,
    )
    .unwrap();
    std::fs::write(
        &yaml,
        "directory: d\nreplications: 2\nbase:\n  workers: 3\nfactors:\n  workload.offset.request_size: [4K, 64K]\n",
    )
    .unwrap();
    std::fs::write(
        &toml,
        "directory = \"d\"\nreplications = 2\n[base]\nworkers = 3\n[factors]\n\"workload.offset.request_size\" = [\"4K\", \"64K\"]\n",
    )
    .unwrap();
    let plans: BTreeSet<String> =
        [json_file, yaml, toml].iter().map(|path| plan(&[path.to_str().unwrap(), "--json"])).collect();
    assert_eq!(plans.len(), 1);
}

#[test]
fn the_published_schema_knows_every_key_of_a_run() {
    let output = Command::new(PROGRAM).arg("schema").output().unwrap();
    let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
    let properties = schema["$defs"]["RunSettings"]["properties"].as_object().unwrap();
    let defaults = serde_json::to_value(terrace_bench::settings::RunSettings::default()).unwrap();
    for key in defaults.as_object().unwrap().keys() {
        assert!(properties.contains_key(key), "{key}");
    }
    assert_eq!(schema["properties"]["base"]["$ref"], "#/$defs/RunSettings");
    assert_eq!(schema["additionalProperties"], json!(false));
}

#[test]
fn the_published_schema_accepts_experiments_and_refuses_unknown_keys() {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/tests-venv/bin/python");
    let there = Command::new(python).args(["-c", "import jsonschema"]).stderr(std::process::Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        return crate::support::skipped("no Python with jsonschema (tests/setup.sh makes one)");
    }
    let place = Place::new();
    let schema = place.path("schema.json");
    std::fs::write(&schema, Command::new(PROGRAM).arg("schema").output().unwrap().stdout).unwrap();
    let errors = |experiment: &std::path::Path| -> usize {
        let script = "import json, sys, jsonschema as j\nschema, experiment = (json.load(open(name)) for name in sys.argv[1:])\n\
                      j.Draft202012Validator.check_schema(schema)\n\
                      print(len(list(j.Draft202012Validator(schema).iter_errors(experiment))))";
        let output = Command::new(python).args(["-c", script]).args([&schema, experiment]).output().unwrap();
        text(&output.stdout).trim().parse().unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
    };
    assert_eq!(errors(FOURTEEN.as_ref()), 0);
    let all = json!({ "replications": { "relative_width": 0.1, "max": 9 }, "delay": "1s", "exclude": [{ "workers": [1, 2] }],
        "base": { "coalesce": { "up_to": "4M" }, "reorder": { "shift": 1 }, "rate": { "requests_per_second": 5 },
            "layout": { "beegfs": { "stripe_count": 2 } }, "stonewall": { "after": "3s" }, "cache": "cold",
            "workload": { "offset": { "data_size": ["1M", 5], "request_size": { "normal": { "mean": "64K", "standard_deviation": 9 } } } } },
        "factors": { "workers": [1, 2], "way": { "a": { "backend": { "terrace_objects": { "datasets": "bytes" } } } } } });
    assert_eq!(errors(&place.experiment("all", all)), 0);
    assert_eq!(errors(&place.experiment("typo", json!({ "base": { "wrkers": 2 } }))), 1);
    assert_eq!(errors(&place.experiment("other", json!({ "reps": 2 }))), 1);
}

#[test]
fn bad_input_is_refused_by_name_before_anything_runs() {
    let place = Place::new();
    let said = |experiment: Value| {
        let path = place.experiment("bad", experiment);
        refused(&["plan", path.to_str().unwrap()])
    };
    let cases = [
        (json!({"colour": 1}), "colour"),
        (json!({"base": {"workers": -1}}), "`workers`: invalid value: integer `-1`"),
        (json!({"base": {"workload": {"offset": {"data_size": "12Q"}}}}), "12Q"),
        (json!({"base": {"workload": {"offset": {"data_size": {"uniform": {"min": 1}}}}}}), "missing field `max`"),
        (json!({"base": {"workload": {"offset": {"segments": "x"}}}}), "`workload.offset.segments`"),
        (json!({"base": {"backend": "posix"}}), "`{ \"posix\": {} }`"),
        (json!({"base": {"backend": {"posix": {}, "mmap": {}}}}), "one of them only"),
        (json!({"base": 5}), "not an object: 5"),
        (json!({"factors": {"workers": 3}}), "`factors.workers`"),
        (json!({"replications": 4_000_000_000_u32}), "ten million"),
        (json!({"replications": "many"}), "`replications`"),
        (
            json!({"base": {"operations": ["stat"], "workload": {"metadata": {}}, "backend": {"mmap": {}}}}),
            "POSIX calls",
        ),
        (json!({"base": {"cache": "cold", "backend": {"null": {}}}}), "no page cache"),
        (json!({"base": {"layout": {"lustre": {}}, "backend": {"terrace_objects": {}}}}), "no files"),
        (
            json!({"base": {"rate": {"requests_per_second": 5}, "backend": {"hdf5": {}}, "workload": {"dataset": {"dimensions": [4]}}}}),
            "whole part in one call",
        ),
        (json!({"base": {"wrkers": 2}}), "wrkers"),
        (json!({"base": {"workload": {"offset": {"request_size": 0}}}}), "request_size"),
        (
            json!({"base": {"workers": 4, "workload": {"dataset": {"dimensions": [8, 8], "divisions": [3, 1]}}}}),
            "3 parts for 4",
        ),
        (json!({"base": {"backend": {"posixx": {}}}}), "posixx"),
        (json!({"factors": {"workers": [1, 2]}, "exclude": [{"worker": 1}]}), "did you mean `workers`"),
        (json!({"factors": {"workers": [1, 2]}, "exclude": [{"workers": 3}]}), "level `3`"),
        (json!({"factors": {"workers": [1]}, "exclude": [{"workers": 1}]}), "no run is left"),
        (json!({"factors": {"workers": []}}), "no levels"),
        (json!({"replications": 0}), "replications"),
        (json!({"base": {"file_name": "../escape"}}), "../escape"),
        (json!({"base": {"file_name": "."}}), "`.`"),
        (json!({"base": {"file_name": "a/./b"}}), "a/./b"),
        (json!({"base": {"file_name": "/etc/absolute"}}), "/etc/absolute"),
        (json!({"base": {"files": "per_worker", "backend": {"mpiio": {"view": true}}}}), "needs a dataset"),
        (json!({"base": {"file_name": "f.{worker}"}}), "all workers use one"),
        (json!({"base": {"file_name": "f.{rank}"}}), "`{rank}` is not known"),
        (json!({"base": {"operations": ["stat"]}}), "no operation `stat`"),
        (
            json!({"base": {"files": "per_worker", "flush": "never", "backend": {"s3": {"bucket": "b"}}}}),
            "`\"flush\": \"end\"`",
        ),
        (
            json!({"base": {"files": "per_worker", "operations": ["mixed"], "backend": {"s3": {"bucket": "b"}}}}),
            "written anew",
        ),
        (
            json!({"base": {"workers": 2, "flush": "request", "backend": {"terrace_objects": {}}}}),
            "made durable after each request",
        ),
    ];
    for (experiment, named) in cases {
        let said = said(experiment.clone());
        assert!(said.contains(named), "{experiment}: {said}");
        assert!(said.contains("hint:"), "{experiment}: {said}");
    }
    for (name, text) in [
        ("twice.json", r#"{"directory": "d", "base": {"workers": 1, "keep": true, "workers": 2}}"#),
        ("twice.yaml", "directory: d\nbase: {workers: 1, workers: 2}\n"),
        ("twice.toml", "directory = 'd'\n[base]\nworkers = 1\nworkers = 2\n"),
        (
            "iore.json",
            r#"{"num_replications": 1, "runs": [{"test": {"workers": 1, "file_name": "a", "File_Name": "b"}}]}"#,
        ),
    ] {
        let path = place.path(name);
        std::fs::write(&path, text).unwrap();
        let said = refused(&["plan", path.to_str().unwrap()]);
        let key = if name == "iore.json" { "file_name" } else { "workers" };
        assert!(said.contains(key) && (said.contains("twice") || said.contains("uplicate")), "{name}: {said}");
    }
    let nowhere = refused(&["plan", "/nonexistent/e.txt"]);
    assert!(nowhere.contains("/nonexistent/e.txt"), "{nowhere}");
}

#[test]
fn what_a_metadata_workload_cannot_do_is_refused_and_not_said_of_it() {
    let place = Place::new();
    for (key, value) in [
        ("cache", json!("cold")),
        ("rate", json!({ "requests_per_second": 5 })),
        ("layout", json!({ "local": { "preallocate": true } })),
        ("flush", json!("request")),
        ("coalesce", json!("on")),
    ] {
        let mut base = json!({ "operations": ["create", "stat"], "workload": { "metadata": {} } });
        base[key] = value;
        let path = place.experiment("tree", json!({ "base": base }));
        let said = refused(&["plan", path.to_str().unwrap()]);
        assert!(said.contains(&format!("knows no `{key}`")), "{said}");
    }
}

#[test]
fn a_check_of_iors_reads_writes_nothing() {
    let operations = |options: &str| {
        let output = Command::new(PROGRAM).args(["from-ior", "--"]).args(options.split(' ')).output().unwrap();
        let experiment: Value = serde_json::from_slice(&output.stdout).unwrap();
        experiment["base"]["operations"].clone()
    };
    assert_eq!(operations("-r -R -k -o f"), json!(["read"]));
    assert_eq!(operations("-R"), json!(["read"]));
    assert_eq!(operations("-w -W"), json!(["write", "read"]));
    assert_eq!(operations("-W"), json!(["write", "read"]));
    assert_eq!(operations("-w"), json!(["write"]));
    assert_eq!(operations("-k"), json!(["write", "read"]));
    // A view is of MPI's files.
    let said = refused(&["from-ior", "--", "-a", "POSIX", "-V"]);
    assert!(said.contains("-V") && said.contains("MPIIO"), "{said}");
}

#[test]
fn an_iore_file_without_replications_is_refused() {
    let place = Place::new();
    let path = place.path("none.json");
    std::fs::write(&path, r#"{ "num_replications": 0, "runs": [{ "test": {} }] }"#).unwrap();
    let said = refused(&["plan", path.to_str().unwrap()]);
    assert!(said.contains("nothing would run"), "{said}");
}

#[test]
fn the_page_names_tests_that_exist() {
    let crate_directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = [
        "tests/bench/backends.rs",
        "tests/bench/claims.rs",
        "tests/bench/compatibility.rs",
        "tests/bench/ends.rs",
        "tests/bench/nodes.rs",
        "tests/bench/origins.rs",
        "tests/bench/own_files.rs",
        "tests/bench/plans.rs",
        "tests/bench/report.rs",
        "tests/bench/runs.rs",
        "tests/bench/statistics.rs",
        "src/workload/tests.rs",
    ]
    .map(|file| std::fs::read_to_string(crate_directory.join(file)).unwrap())
    .concat();
    let page = std::fs::read_to_string(crate_directory.join("../../docs/guide/bench.md")).unwrap();
    let table = page.split_once("\n## What is tested\n").expect("the page says what is tested").1;
    let cells = table.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.rsplit_once(" | "));
    let named: Vec<&str> = cells.flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 20);
    for test in named {
        assert!(sources.contains(&format!("fn {test}(")), "docs/guide/bench.md names `{test}`, which there is not");
    }
}
