//! Files that the experiment did not make stay as they are.

use crate::support::{PROGRAM, Place, rows, text};
use serde_json::{Value, json};
use std::process::Command;

const WORKLOAD: &str = r#"{ "offset": { "data_size": "64K", "request_size": "16K" } }"#;

fn base(settings: Value) -> Value {
    let mut base = json!({ "file_name": "precious", "workload": serde_json::from_str::<Value>(WORKLOAD).unwrap() });
    terrace_bench::plan::merge(&mut base, &settings);
    json!({ "base": base })
}

fn refused(place: &Place, name: &str, experiment: Value) {
    let output = place.run(name, experiment);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let said = rows(&place.path(name))[0]["error"].as_str().unwrap().to_owned();
    assert!(said.contains("precious") && said.contains("did not make it"), "{said}");
}

#[test]
fn a_users_directory_is_no_tree_of_a_metadata_workload() {
    let place = Place::new();
    let file = place.data().join("precious/thesis");
    std::fs::create_dir_all(place.data().join("precious")).unwrap();
    std::fs::write(&file, "years").unwrap();
    let workload = json!({ "metadata": { "files": 4 } });
    refused(&place, "r", base(json!({ "operations": ["create", "unlink"], "workload": workload })));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "years");
    // Operations that make nothing may fail there, and remove nothing.
    place.run("s", base(json!({ "operations": ["stat"], "workload": workload })));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "years");
}

#[test]
fn a_users_file_is_not_written_over() {
    let place = Place::new();
    std::fs::create_dir(place.data()).unwrap();
    for (name, files) in [("precious", "shared"), ("precious.00000001", "per_worker")] {
        let file = place.data().join(name);
        std::fs::write(&file, "years").unwrap();
        refused(&place, files, base(json!({ "workers": 2, "files": files })));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "years");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_file_that_is_only_read_stays() {
    let place = Place::new();
    place.rows("write", base(json!({ "operations": ["write"], "keep": true, "seed": 4 })));
    place.rows("read", base(json!({ "operations": ["read"], "seed": 4 })));
    assert_eq!(place.left(), [place.data().join("precious")]);
}

#[test]
fn a_file_of_an_earlier_repetition_or_an_interrupted_one_is_made_anew() {
    let place = Place::new();
    for settings in [
        json!({ "keep": true, "operations": ["write"] }),
        json!({ "keep": true, "operations": ["create"], "workload": { "metadata": { "files": 4 } } }),
    ] {
        let mut experiment = base(settings.clone());
        let name = settings["operations"][0].as_str().unwrap();
        let tree = name == "create";
        if tree {
            experiment["base"]["keep"] = json!(false);
        }
        experiment["replications"] = json!(2);
        place.rows(name, experiment);
        // As if a crash had come in the last repetition: its row is not there, what it made is.
        let results = place.path(name);
        let all = std::fs::read_to_string(results.join("rows.jsonl")).unwrap();
        std::fs::write(results.join("rows.jsonl"), format!("{}\n", all.lines().next().unwrap())).unwrap();
        if tree {
            let files = std::fs::read_to_string(results.join("files.jsonl")).unwrap();
            let noted = files.lines().count() - 1;
            let cut: String = files.lines().take(noted).map(|line| format!("{line}\n")).collect();
            std::fs::write(results.join("files.jsonl"), cut).unwrap();
            std::fs::create_dir_all(place.data().join("precious/mdtest_tree.0.0")).unwrap();
            std::fs::write(place.data().join("precious/mdtest_tree.0.0/file.mdtest.0.0"), "half").unwrap();
        }
        let resumed = Command::new(PROGRAM).args(["resume", "--quiet"]).arg(&results).output().unwrap();
        assert!(resumed.status.success(), "{}", text(&resumed.stderr));
        assert_eq!(rows(&results).len(), 2);
        let _ = std::fs::remove_file(place.data().join("precious"));
    }
    assert_eq!(place.left(), [] as [std::path::PathBuf; 0]);
}
