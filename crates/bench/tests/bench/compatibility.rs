//! Files and command lines of the tools that came before: IORE, IOR, mdtest, the io500.

use crate::support::{PROGRAM, Place, has, rows, skipped, text};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Runs an experiment's file as a user would; the rows.
fn run_file(place: &Place, name: &str, experiment: &Value) -> Vec<Value> {
    let path = place.path(&format!("{name}.json"));
    std::fs::write(&path, experiment.to_string()).unwrap();
    let output = Command::new(PROGRAM).args(["run", "-q", "-o"]).arg(place.path(name)).arg(&path).output().unwrap();
    let told = std::fs::read_to_string(place.path(name).join("rows.jsonl")).unwrap_or_default();
    assert!(output.status.success(), "{}\n{told}", text(&output.stderr));
    rows(&place.path(name))
}

fn below(directory: &Path) -> Vec<String> {
    let mut found: Vec<String> = walkdir(directory, directory);
    found.sort();
    found
}

fn walkdir(top: &Path, directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    let paths = entries.map(|entry| entry.unwrap().path());
    let named = |path: &Path| path.strip_prefix(top).unwrap().to_str().unwrap().to_owned();
    paths.flat_map(|path| if path.is_dir() { walkdir(top, &path) } else { vec![named(&path)] }).collect()
}

/// The kinds of runs that IORE's own example of all options has: each interface on shared files and on own ones, with views and
/// collective calls in all combinations, whether the workload has use for them or not.
fn all_of_iores_options() -> Vec<Value> {
    let grid = json!({ "num_tasks": 4, "dataset": {
        "num_vars": 5, "var_types": ["integer", "double", "float", "long long", "char"],
        "cartesian": { "num_dims": 2, "dim_sizes": [8, 16], "dim_divs": [2, 2] } } });
    let sizes = |pattern: &str| json!({ "num_tasks": 2, "offset": { "access_pattern": pattern, "data_sizes": ["1M"], "request_sizes": ["262144"] } });
    let mpi = |mode: &str, single: &str, collective: &str, view: &str| {
        json!({ "test": { "file_mode": mode, "workload": { "num_tasks": 2 }, "afio": { "mpiio": {
            "seek_rw_single_op": single, "collective_io": collective, "file_view": view } } } })
    };
    vec![
        json!({}),
        json!({ "num_repetitions": 3, "test": {
            "type": ["write", "read"], "write_flush": true, "write_flush_per_req": true, "read_reorder_offset": 1,
            "intra_test_barrier": true, "file_mode": "NxN", "file_name": "./test_opts_true",
            "file_name_append_sequence_num": true, "file_name_append_task_id": true, "file_dir_per_task": true, "file_keep": true,
            "workload": { "num_tasks": 4, "offset": { "access_pattern": "random",
                "data_size_distrib": { "unif": { "min": "256K", "max": "1048576" } }, "request_sizes": ["262144"] } },
            "afio": { "posix": {} } } }),
        json!({ "num_repetitions": 2, "test": { "type": ["write"], "file_mode": "NxN", "file_name": "./test_opts_false",
            "workload": { "num_tasks": 3, "offset": { "access_pattern": "sequential", "data_sizes": ["1M", "2M"],
                "request_size_distrib": { "norm": { "mean": "512K", "stdev": "65535" } } } },
            "afio": { "cstream": {} } } }),
        json!({ "test": { "file_mode": "Nx1", "workload": sizes("sequential"), "afio": { "mpiio": {} } } }),
        json!({ "test": { "file_mode": "Nx1", "workload": sizes("random"), "afio": { "mpiio": {} } } }),
        json!({ "test": { "workload": { "num_tasks": 2 }, "afio": { "posix": { "seek_rw_single_op": "true" } } } }),
        json!({ "test": { "file_mode": "Nx1", "workload": { "num_tasks": 2 }, "afio": { "mpiio": { "seek_rw_single_op": "true" } } } }),
        mpi("NxN", "true", "false", "false"),
        mpi("NxN", "true", "true", "true"),
        mpi("Nx1", "false", "false", "true"),
        mpi("NxN", "false", "true", "false"),
        mpi("NxN", "false", "true", "true"),
        mpi("NxN", "true", "false", "true"),
        mpi("NxN", "true", "true", "false"),
        mpi("NxN", "true", "true", "true"),
        json!({ "test": { "file_mode": "NxN", "workload": grid } }),
        json!({ "test": { "file_mode": "Nx1", "workload": grid } }),
        json!({ "test": { "file_mode": "Nx1", "workload": grid, "afio": { "cstream": {} } } }),
        json!({ "test": { "file_mode": "Nx1", "workload": grid, "afio": { "mpiio": {} } } }),
        json!({ "test": { "file_mode": "Nx1", "file_name": "./test_mpiio_cart", "file_keep": true, "workload": grid,
            "afio": { "mpiio": { "collective_io": "true", "file_view": "true" } } } }),
    ]
}

#[test]
fn iore_all_twenty_kinds_of_runs_of_its_example_run_as_they_are() {
    if !has("mpirun") || !has("mpicc") {
        return skipped("no MPI");
    }
    let place = Place::new();
    let exporter = json!({ "report_type": ["task", "test"], "data_format": "csv", "export_dir": "." });
    let runs = all_of_iores_options();
    let experiment = json!({ "stats_exporter": exporter, "num_replications": 1, "run_order": "fixed", "runs": runs });
    let rows = run_file(&place, "all", &experiment);
    assert_eq!(rows.iter().filter_map(|row| row["run"].as_u64()).collect::<std::collections::BTreeSet<_>>().len(), 20);
    assert!(rows.iter().all(|row| row["status"] == "ok"));
    // What is kept has the names that IORE gives.
    let kept = below(place.directory.path());
    for name in ["task.3/test_opts_true.0.1.2.3", "task.0/test_opts_true.0.1.0.0", "test_mpiio_cart"] {
        assert!(kept.iter().any(|kept| kept == name), "{name}: {kept:?}");
    }
}

#[test]
fn iore_a_view_of_own_files_writes_what_rows_write() {
    if !has("mpirun") || !has("mpicc") {
        return skipped("no MPI");
    }
    let place = Place::new();
    let base = json!({ "workers": 4, "files": "per_worker", "keep": true, "seed": 3, "operations": ["write", "read"],
        "workload": { "dataset": { "dimensions": [6, 10], "divisions": [2, 2], "variables": ["int16", "float64"] } } });
    let rows = place.rows(
        "views",
        json!({ "base": base, "factors": { "way": {
            "view": { "file_name": "view", "backend": { "mpiio": { "collective": true, "view": true } } },
            "rows": { "file_name": "rows", "backend": { "posix": {} } } } } }),
    );
    assert!(rows.iter().all(|row| row["status"] == "ok" && row["bytes"] == 600));
    for worker in 0..4 {
        let read = |way: &str| std::fs::read(place.data().join(format!("{way}.{worker:08}"))).unwrap();
        assert_eq!(read("view"), read("rows"));
    }
}

#[test]
fn iore_two_experiments_in_one_directory_have_files_of_their_own_names() {
    let place = Place::new();
    let experiment = |name: &str| {
        json!({ "runs": [{ "num_repetitions": 2, "test": { "type": ["write"], "file_keep": true, "file_name": name,
            "file_name_append_sequence_num": true, "workload": { "num_tasks": 2 } } }] })
    };
    run_file(&place, "one", &experiment("./first"));
    run_file(&place, "two", &experiment("./second"));
    let kept = below(place.directory.path());
    for name in ["first.0.0.0", "first.0.0.1", "second.0.0.0", "second.0.0.1"] {
        assert!(kept.iter().any(|kept| kept == name), "{name}: {kept:?}");
    }
}

#[test]
fn iore_every_key_is_on_the_page_that_the_hint_names() {
    let place = Place::new();
    let path = place.path("unknown.json");
    std::fs::write(&path, r#"{ "num_replications": 1, "runs": [{ "test": { "colour": 1 } }] }"#).unwrap();
    let said = crate::support::refused(&["plan", path.to_str().unwrap()]);
    assert!(said.contains("`colour`") && said.contains("docs/bench.md"), "{said}");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.md")).unwrap();
    let part = page.split_once("### IORE's files").expect("the page has the part that the hint names").1;
    let part = part.split("\n#").next().unwrap();
    let source = include_str!("../../src/iore.rs").split("#[cfg(test)]").next().unwrap();
    let mut keys = 0;
    for way in ["take(\"", "number(\"", "boolean(\"", "text(\"", "list(\""] {
        for key in source.split(way).skip(1).map(|rest| rest.split('"').next().unwrap()) {
            keys += 1;
            assert!(part.contains(&format!("`{key}`")), "docs/bench.md does not list IORE's key `{key}`");
        }
    }
    assert!(keys > 25, "{keys} keys were found in the source");
}
