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
    assert!(said.contains("`colour`") && said.contains("docs/guide/bench.md"), "{said}");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/bench.md")).unwrap();
    let part = page.split_once("### IORE's files").expect("the page has the part that the hint names").1;
    let part = part.split("\n#").next().unwrap();
    let source = include_str!("../../src/iore.rs").split("#[cfg(test)]").next().unwrap();
    let mut keys = 0;
    for way in ["take(\"", "number(\"", "boolean(\"", "text(\"", "list(\""] {
        for key in source.split(way).skip(1).map(|rest| rest.split('"').next().unwrap()) {
            keys += 1;
            assert!(part.contains(&format!("`{key}`")), "docs/guide/bench.md does not list IORE's key `{key}`");
        }
    }
    assert!(keys > 25, "{keys} keys were found in the source");
}

/// What `from-ior` or `from-mdtest` makes of a line.
fn translated(tool: &str, line: &str) -> Value {
    let output = Command::new(PROGRAM).args([tool, "--"]).args(line.split(' ')).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn run_line(place: &Place, name: &str, tool: &str, line: &str) -> Vec<Value> {
    run_file(place, name, &translated(tool, line))
}

#[test]
fn ior_sets_have_iors_names_whichever_tool_wrote_them() {
    let place = Place::new();
    let data = place.path("d");
    let line = |more: &str| format!("-b 64k -t 16k -N 3 -F -k -o {}/f {more}", data.display());
    run_line(&place, "plain", "from-ior", &line("-w"));
    run_line(&place, "own", "from-ior", &line("-w -u"));
    run_line(&place, "several", "from-ior", &line("-w -m -i 2"));
    let wanted = ["0/f.00000000", "1/f.00000001", "2/f.00000002", "f.00000000", "f.00000000.0", "f.00000000.1"];
    let more = ["f.00000001", "f.00000001.0", "f.00000001.1", "f.00000002", "f.00000002.0", "f.00000002.1"];
    let kept: Vec<String> = below(&data).into_iter().filter(|name| name != ".terrace-bench.jsonl").collect();
    assert_eq!(kept, [&wanted[..], &more[..]].concat());
    // A set that another tool wrote, of which nobody knows what is in it: read as IOR's -r reads, without a check.
    let foreign = place.path("foreign");
    std::fs::create_dir(&foreign).unwrap();
    for task in 0..2 {
        std::fs::write(foreign.join(format!("g.{task:08}")), vec![task; 64 << 10]).unwrap();
    }
    let rows = run_line(&place, "read", "from-ior", &format!("-b 64k -t 16k -N 2 -F -k -r -o {}/g", foreign.display()));
    assert_eq!((&rows[0]["bytes"], &rows[0]["bytes_verified"]), (&json!(128 << 10), &json!(0)));
    // Our own is checked.
    let rows = run_line(&place, "check", "from-ior", &line("-r"));
    assert_eq!(rows[0]["bytes_verified"], 3 * (64 << 10));
}

#[test]
fn ior_several_names_are_taken_in_turn_by_files_of_each_task() {
    let place = Place::new();
    let (one, two) = (place.path("one"), place.path("two"));
    let line = format!("-b 64k -t 16k -N 3 -F -k -w -o {}/f@{}/g", one.display(), two.display());
    run_line(&place, "r", "from-ior", &line);
    assert_eq!(below(&one), ["f.00000000", "f.00000002"]);
    assert_eq!(below(&two), ["g.00000001"]);
}

#[test]
fn ior_what_it_refuses_is_refused_for_its_reasons() {
    for (line, named) in [
        ("-z -b 64k -t 64k", "only one"),
        ("-z -C -b 1m -t 64k", "needs -F"),
        ("-z -Z -b 1m -t 64k", "needs -F"),
        ("-z -w -R -F -b 1m -t 64k", "--random-offset-seed"),
        ("-z -a HDF5 -b 1m -t 64k", "HDF5"),
        ("-z -z -b 1m -t 64k", "overlap"),
        ("-C -Z", "exclude each other"),
        ("-b 3m -t 2m", "multiple"),
        ("-b 12 -t 12", "multiples of 8"),
        ("-O stoneWallingWearOut=1", "-D"),
        ("-O stoneWallingStatusFile=f", "-k"),
        ("-F -u -o a/x@b/x", "several names"),
        ("-l zeros", "-l zeros"),
        ("-J 4096", "HDF5"),
        ("-O minTimeDuration=5", "minTimeDuration"),
        ("-M 2g", "`-M`"),
    ] {
        let words: Vec<&str> = ["from-ior", "--"].into_iter().chain(line.split(' ')).collect();
        let said = crate::support::refused(&words);
        assert!(said.contains(named) && said.contains("hint:"), "{line}: {said}");
    }
}

#[test]
fn ior_the_options_of_scripts_and_sites_are_understood() {
    let base = |line: &str| translated("from-ior", line)["base"].clone();
    assert_eq!(base("-C -Q 2")["reorder"], json!({ "nodes": 2 }));
    assert_eq!(base("-Z -X 5 -F")["reorder"], json!({ "random": { "nodes": 1, "each_once": false, "seed": 5 } }));
    assert_eq!(base("-Z -Z -X -5 -F")["reorder"], json!({ "random": { "nodes": 1, "each_once": true } }));
    assert_eq!(
        base("-O lustreStripeCount=4,lustreStripeSize=1m")["layout"],
        json!({ "lustre": { "stripe_count": 4, "stripe_size": 1 << 20 } })
    );
    assert_eq!(base("--posix.lustre.stripecount=8")["layout"], json!({ "lustre": { "stripe_count": 8 } }));
    assert_eq!(base("-a HDF5 -J 4k")["backend"], json!({ "hdf5": { "collective": false, "alignment": 4096 } }));
    assert_eq!(base("-E -k -w")["existing"], json!("overwrite"));
    assert_eq!(translated("from-ior", "-T 2")["time_limit"], json!("120s"));
    assert_ne!(
        translated("from-ior", "-z --random-offset-seed 1")["seed"],
        translated("from-ior", "-z --random-offset-seed=2")["seed"]
    );
    for ignored in ["-l i", "--dataPacketType=t", "-O summaryFormat=JSON", "-O verbose=2", "-A 3"] {
        assert_eq!(base(ignored), base("-v"), "{ignored}");
    }
}

#[test]
fn ior_a_script_runs_test_by_test() {
    let place = Place::new();
    let script = place.path("script");
    std::fs::write(
        &script,
        format!(
            "# a comment\nIOR START\n  testFile={0}/one  # where\n  blockSize=64k, transferSize=16k\n  numTasks=2\n  keepFile=1\nRUN\n  testFile={0}/two\n  filePerProc=1\n  repetitions=2\nrun\nIOR STOP\nnonsense\n",
            place.path("d").display()
        ),
    )
    .unwrap();
    let rows = run_line(&place, "r", "from-ior", &format!("-e -f {}", script.display()));
    let told: Vec<_> =
        rows.iter().map(|row| (row["run"].as_u64().unwrap(), row["operation"].as_str().unwrap())).collect();
    assert_eq!(told, [(0, "write"), (0, "read"), (1, "write"), (1, "read"), (1, "write"), (1, "read")]);
    let kept: Vec<String> = below(&place.path("d")).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(kept, ["one", "two.00000000", "two.00000001"]);
    std::fs::write(&script, "IOR START\n colour=1\nRUN\nIOR STOP\n").unwrap();
    let said = crate::support::refused(&["from-ior", "--", "-f", script.to_str().unwrap()]);
    assert!(said.contains("line 2") && said.contains("colour"), "{said}");
}

#[test]
fn ior_views_and_alignment_move_the_same_bytes() {
    if !has("mpirun") || !has("mpicc") {
        return skipped("no MPI");
    }
    let place = Place::new();
    let line = |api: &str, name: &str| {
        format!("-a {api} -b 64k -t 16k -s 3 -N 2 -G 5 -k -w -r -R -o {}/{name}", place.path("d").display())
    };
    run_line(&place, "rows", "from-ior", &line("POSIX", "rows"));
    let rows = run_line(&place, "view", "from-ior", &line("MPIIO -c -V", "view"));
    assert!(rows.iter().all(|row| row["bytes"] == 2 * 3 * (64 << 10)));
    let read = |name: &str| std::fs::read(place.path("d").join(name)).unwrap();
    assert!(read("rows") == read("view"), "a view of blocks is another file than the blocks are");
}

#[test]
fn ior_a_file_that_is_there_is_written_over_only_if_that_is_asked_for() {
    let place = Place::new();
    std::fs::create_dir(place.data()).unwrap();
    let file = place.data().join("f");
    std::fs::write(&file, vec![1; 100_000]).unwrap();
    let line = |more: &str| format!("-b 64k -t 16k -w -r -o {} {more}", file.display());
    let path = place.path("no.json");
    std::fs::write(&path, translated("from-ior", &line("-k")).to_string()).unwrap();
    let output = Command::new(PROGRAM).args(["run", "-q", "-o"]).arg(place.path("no")).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(std::fs::read(&file).unwrap(), vec![1; 100_000]);
    let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&file).unwrap());
    let before = inode();
    let rows = run_line(&place, "yes", "from-ior", &line("-E"));
    assert!(rows.iter().all(|row| row["status"] == "ok"));
    assert_eq!(inode(), before, "written over in place");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 64 << 10, "and what was longer is cut off");
}

#[test]
fn no_run_begins_after_the_time_limit_and_the_rest_is_resumed() {
    let place = Place::new();
    let base = json!({ "workload": { "offset": { "data_size": "64K", "request_size": "16K" } } });
    let experiment = json!({ "base": base, "replications": 50, "delay": "100ms", "time_limit": "300ms" });
    let output = place.run("r", experiment);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("time limit") && said.contains("resume"), "{said}");
    let first = rows(&place.path("r")).len();
    assert!((2..100).contains(&first), "{first} rows");
    let resumed = Command::new(PROGRAM).args(["resume", "-q"]).arg(place.path("r")).output().unwrap();
    assert!(resumed.status.success());
    assert!(rows(&place.path("r")).len() > first);
}

#[test]
fn mdtest_trees_are_made_looked_at_read_and_removed_by_its_words() {
    let place = Place::new();
    let line =
        |more: &str| format!("--tasks 2 -F -n 4 -b 2 -z 1 -L -u -w 100 -e 100 -d {} {more}", place.path("d").display());
    let rows = run_line(&place, "create", "from-mdtest", &line("-C -Y"));
    assert_eq!((&rows[0]["operation"], &rows[0]["requests"]), (&json!("create"), &json!(8)));
    let made: Vec<String> = below(&place.path("d")).into_iter().filter(|name| !name.starts_with('.')).collect();
    let name = |task, item| {
        format!("test-dir.0-0/mdtest_tree.{task}.0/mdtest_tree.{task}.{}/file.mdtest.{task}.{item}", item / 2)
    };
    let wanted: Vec<String> = (0..2).flat_map(|task| (2..6).map(move |item| name(task, item))).collect();
    assert_eq!(made, wanted);
    let rows = run_line(&place, "look", "from-mdtest", &line("-T -N 1"));
    assert_eq!((&rows[0]["operation"], &rows[0]["requests"]), (&json!("stat"), &json!(8)));
    let rows = run_line(&place, "read", "from-mdtest", &line("-E -X -N 1"));
    assert_eq!((&rows[0]["operation"], &rows[0]["bytes_verified"]), (&json!("read_files"), &json!(800)));
    // A file of which a byte is another is named.
    let harmed = place.path("d").join(&wanted[5]);
    std::fs::write(&harmed, vec![0; 100]).unwrap();
    let path = place.path("harmed.json");
    std::fs::write(&path, translated("from-mdtest", &line("-E -X")).to_string()).unwrap();
    let output = Command::new(PROGRAM).args(["run", "-q", "-o"]).arg(place.path("harmed")).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&wanted[5]), "{}", text(&output.stderr));
    let rows = run_line(&place, "remove", "from-mdtest", &line("-r"));
    assert_eq!((&rows[0]["operation"], &rows[0]["requests"]), (&json!("unlink"), &json!(8)));
    let left: Vec<String> = below(&place.path("d")).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(left, [] as [String; 0]);
    let said = crate::support::refused(&["from-mdtest", "--", "-n", "5"]);
    assert!(said.contains("-F"), "{said}");
}

#[test]
fn mdtest_what_a_stonewall_left_is_what_later_phases_use() {
    let place = Place::new();
    let line = |more: &str| format!("--tasks 2 -F -n 1000000 -u -d {} {more}", place.path("d").display());
    let rows = run_line(&place, "create", "from-mdtest", &line("-C -W 1"));
    let made = rows[0]["requests"].as_u64().unwrap();
    assert!(made > 0 && made < 2_000_000 && made.is_multiple_of(2), "everybody makes as many: {made}");
    let rows = run_line(&place, "stat", "from-mdtest", &line("-T -N 1"));
    assert_eq!(rows[0]["requests"], made);
    let rows = run_line(&place, "remove", "from-mdtest", &line("-r"));
    assert_eq!(rows[0]["requests"], made);
}

#[test]
fn io500_all_phases_run_and_nothing_but_the_results_is_left() {
    let place = Place::new();
    std::fs::create_dir(place.data()).unwrap();
    std::fs::write(place.data().join("thesis"), "years").unwrap();
    let output = Command::new(PROGRAM)
        .args(["io500", "--quiet", "--workers", "2", "--stonewall", "1", "--files", "300", "--easy-block", "8m"])
        .args(["--hard-segments", "50", "--output"])
        .arg(place.path("out"))
        .arg(place.data())
        .output()
        .unwrap();
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}\n{shown}", text(&output.stderr));
    let score: Value = serde_json::from_slice(&std::fs::read(place.path("out/io500.json")).unwrap()).unwrap();
    let names: Vec<&str> =
        score["phases"].as_array().unwrap().iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "ior-easy-write",
            "mdtest-easy-write",
            "ior-hard-write",
            "mdtest-hard-write",
            "find",
            "ior-easy-read",
            "mdtest-easy-stat",
            "ior-hard-read",
            "mdtest-hard-stat",
            "mdtest-easy-delete",
            "mdtest-hard-read",
            "mdtest-hard-delete"
        ]
    );
    // Of 2 * 300 files named by task and item, those with "01" in the name.
    let named = |task: u32| (0..300).filter(|item| format!("{task}.{item}").contains("01")).count();
    assert_eq!((&score["found"], &score["to_find"]), (&json!(named(0) + named(1)), &json!(named(0) + named(1))));
    assert!(score["score"].as_f64().unwrap() > 0.0);
    assert!(shown.contains("not for the io500 list") && shown.contains("300 s are wanted"), "{shown}");
    let rows = rows(&place.path("out"));
    let of = |name: &str| rows.iter().find(|row| row["factors"]["run"] == name).unwrap().clone();
    assert_eq!(of("ior-hard-write")["request_sizes"], json!({ "47008": 100 }));
    assert_eq!(of("ior-hard-read")["bytes_verified"], 100 * 47008);
    assert_eq!(of("mdtest-hard-read")["bytes_verified"], 600 * 3901);
    assert_eq!(below(&place.data()), ["thesis"]);
}
