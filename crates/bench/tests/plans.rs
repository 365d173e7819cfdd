//! From an experiment's text to its plan.

mod support;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;
use support::{PROGRAM, Place, refused, text};

const FOURTEEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fourteen.json");

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
fn bad_input_is_refused_by_name_before_anything_runs() {
    let place = Place::new();
    let said = |experiment: Value| {
        let path = place.experiment("bad", experiment);
        refused(&["plan", path.to_str().unwrap()])
    };
    let cases = [
        (json!({"colour": 1}), "colour"),
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
        (json!({"base": {"files": "per_worker", "backend": {"mpiio": {"view": true}}}}), "shared files only"),
        (json!({"base": {"operations": ["stat"]}}), "no operation `stat`"),
    ];
    for (experiment, named) in cases {
        let said = said(experiment.clone());
        assert!(said.contains(named), "{experiment}: {said}");
        assert!(said.contains("hint:"), "{experiment}: {said}");
    }
    let nowhere = refused(&["plan", "/nonexistent/e.txt"]);
    assert!(nowhere.contains("/nonexistent/e.txt"), "{nowhere}");
}
