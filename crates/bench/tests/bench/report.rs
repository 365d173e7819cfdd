//! What a user sees of results: the page with its plots, comparisons, the view in the terminal.

use crate::support::{PROGRAM, Place, rows, skipped, text};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn python() -> Option<PathBuf> {
    let named = std::env::var_os("TERRACE_BENCH_PYTHON").map(PathBuf::from);
    let python =
        named.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/tests-venv/bin/python").into());
    let works = Command::new(&python).args(["-c", "import statsmodels, matplotlib"]).stderr(Stdio::null()).status();
    if works.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    skipped("no Python with statsmodels and matplotlib (tests/setup.sh makes one)");
    None
}

fn report(results: &Path, python: &Path) -> Output {
    Command::new(PROGRAM).arg("report").arg(results).env("TERRACE_BENCH_PYTHON", python).output().unwrap()
}

/// On storage whose times are drawn: level `slow` takes half as long again.
fn planted(factor: f64, seed: u64) -> Value {
    let drawn =
        |factor: f64| json!({ "backend": { "null": { "request_time": "1ms", "noise": 0.1, "factor": factor } } });
    json!({ "name": "planted", "seed": seed, "replications": 10,
        "base": { "operations": ["write", "read"], "workload": { "offset": { "data_size": "1M", "request_size": "64K" } } },
        "factors": { "workers": [1, 2], "storage": { "fast": drawn(1.0), "slow": drawn(factor) } } })
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = bytes.chunks(3).flat_map(|chunk| {
        let bits = chunk.iter().chain([0, 0].iter()).take(3).fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
        (0..4).map(move |at| if at <= chunk.len() { DIGITS[bits >> (18 - 6 * at) & 63] as char } else { '=' })
    });
    digits.collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}

/// Cells of the lines of a page's first table.
fn first_table(page: &str) -> Vec<Vec<String>> {
    let body = page.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let cells =
        |line: &str| line.split("<td>").skip(1).map(|cell| cell.split("</td>").next().unwrap().to_owned()).collect();
    body.split("<tr>").skip(1).map(cells).collect()
}

#[test]
fn the_page_is_one_file_with_every_plot_and_the_numbers_of_the_rows() {
    let Some(python) = python() else { return };
    let place = Place::new();
    let rows = place.rows("r", planted(1.5, 3));
    let results = place.path("r");
    let output = report(&results, &python);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(results.join("report.html")).unwrap();

    // Nothing is fetched from elsewhere, and each picture of the page is the file beside it.
    for fetched in ["http://", "https://", "<script", "<link", "url(", "src=\"/"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
    for picture in ["rates", "scaling", "latency"] {
        let png = std::fs::read(results.join(format!("{picture}.png"))).unwrap();
        assert_eq!(&png[..8], b"\x89PNG\r\n\x1a\n", "{picture}");
        let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        assert!(side(16) > 400 && side(20) > 250, "{picture}: {} x {}", side(16), side(20));
        assert!(page.contains(&base64(&png)), "{picture} is not in the page");
    }
    assert_eq!(page.matches("<img ").count(), 3);

    let lines = first_table(&page);
    assert_eq!(lines.len(), 4 * 2);
    for line in lines {
        let of_run: Vec<f64> = rows
            .iter()
            .filter(|row| row["run"].as_u64() == line[0].parse().ok() && row["operation"] == line[2].as_str())
            .map(|row| row["rate_bytes_s"].as_f64().unwrap() / 1_048_576.0)
            .collect();
        assert_eq!(line[3], of_run.len().to_string());
        let harmonic = of_run.len() as f64 / of_run.iter().map(|rate| 1.0 / rate).sum::<f64>();
        assert_eq!(line[6], format!("{harmonic:.1} MiB/s"));
        assert_eq!(line[4], format!("{:.1} MiB/s", median(of_run)));
    }

    let effects: Value = serde_json::from_slice(&std::fs::read(results.join("effects.json")).unwrap()).unwrap();
    let term = |name: &str| {
        let terms = effects["write"]["terms"].as_array().unwrap();
        terms.iter().find(|term| term["term"] == name).unwrap_or_else(|| panic!("{name}: {terms:?}")).clone()
    };
    assert!(term("storage")["p"].as_f64().unwrap() < 0.001);
    assert_eq!(term("storage")["best"], "fast");
    let ratio = term("storage")["largest_ratio"].as_f64().unwrap();
    assert!((1.4..1.6).contains(&ratio), "{ratio}");
    term("storage x workers");
}

#[test]
fn every_measurement_is_within_its_picture() {
    let Some(python) = python() else { return };
    let place = Place::new();
    // Panels of one line share an axis: the last one's rates are a hundred times the first one's.
    let rows = place.rows(
        "r",
        json!({ "replications": 4, "base": { "operations": ["write"], "backend": { "null": {} } },
            "factors": { "workers": [1, 2, 4], "workload.offset.request_size": ["4K", "64K"],
                "storage": {
                    "a": { "backend": { "null": { "factor": 100.0 } } },
                    "b": { "backend": { "null": { "factor": 1.0 } } } } } }),
    );
    assert_eq!(rows.len(), 4 * 3 * 2 * 2);
    let script = "import pathlib, sys; sys.path.insert(0, sys.argv[1]); import report
seen = []
def look(figure, path):
    figure.canvas.draw()
    for axis in figure.axes:
        low, high = axis.get_ylim()
        seen.extend(y for line in axis.lines for y in line.get_ydata() if not low <= y <= high)
    return ''
report.picture = look
rows = report.read_rows(pathlib.Path(sys.argv[2]))
report.plot_rates(rows, report.factors_of(rows), {}, pathlib.Path('x'))
report.plot_scaling(rows, report.factors_of(rows), pathlib.Path('x'))
report.plot_latency(rows, report.factors_of(rows), pathlib.Path('x'))
print(seen)";
    let output = Command::new(python)
        .args(["-B", "-c", script, concat!(env!("CARGO_MANIFEST_DIR"), "/report")])
        .arg(place.path("r").join("rows.jsonl"))
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout).trim(), "[]", "{}", text(&output.stderr));
}

#[test]
fn the_page_names_what_failed_and_a_hundred_runs_are_drawn() {
    let Some(python) = python() else { return };
    let place = Place::new();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let small = json!({ "offset": { "data_size": "64K", "request_size": "64K" } });
    // A memory file system has no cold cache, so each read fails.
    let output = place.run("r", json!({ "directory": memory.path(), "base": { "cache": "cold", "workload": small } }));
    assert_eq!(output.status.code(), Some(1));
    let output = report(&place.path("r"), &python);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(place.path("r").join("report.html")).unwrap();
    assert!(page.contains("1 operations did not end") && page.contains("made cold"));

    let levels: Vec<u32> = (1..=100).collect();
    place.rows(
        "many",
        json!({ "base": { "operations": ["write"], "backend": { "null": {} } }, "factors": { "seed": levels } }),
    );
    let output = report(&place.path("many"), &python);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(place.path("many").join("rates.png").exists());
}

#[test]
fn compare_finds_the_run_that_became_slower_and_no_other() {
    let place = Place::new();
    place.rows("a", planted(1.0, 1));
    place.rows("b", planted(1.5, 2));
    let compare = |arguments: &[&str]| {
        let output =
            Command::new(PROGRAM).arg("compare").args([place.path("a"), place.path("b")]).args(arguments).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let lines: Vec<Value> = serde_json::from_str(&compare(&["--json"])).unwrap();
    assert_eq!(lines.len(), 8);
    for line in &lines {
        let slower = line["factors"]["storage"] == "slow";
        assert_eq!(line["comparison"]["differs"], slower, "{line}");
        let comparison = |name: &str| line["comparison"][name].as_f64().unwrap();
        let expected = if slower { 1.0 / 1.5 } else { 1.0 };
        assert!((comparison("ratio") / expected - 1.0).abs() < 0.15, "{line}");
        assert!(comparison("low") <= comparison("ratio") && comparison("ratio") <= comparison("high"));
    }
    let shown = compare(&[]);
    assert_eq!(shown.lines().filter(|line| line.ends_with("differs")).count(), 4, "{shown}");
    // What is no factor is not compared: that it may differ is said, where the plans do.
    assert!(shown.contains("the plans are not the same"), "{shown}");
    let itself = Command::new(PROGRAM).arg("compare").args([place.path("a"), place.path("a")]).output().unwrap();
    assert!(!text(&itself.stdout).contains("the plans"), "{}", text(&itself.stdout));
}

#[test]
fn compare_refuses_results_that_have_nothing_in_common() {
    let place = Place::new();
    place.rows("a", planted(1.0, 1));
    place.rows("b", json!({ "base": { "backend": { "null": {} } }, "factors": { "workers": [7] } }));
    let said = |a: &Path, b: &Path| {
        let output = Command::new(PROGRAM).arg("compare").args([a, b]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(said(&place.path("a"), &place.path("b")).contains("no run in common"));
    let nowhere = said(&place.path("a"), &place.path("nowhere"));
    assert!(nowhere.contains("nowhere") && nowhere.contains("hint:"), "{nowhere}");
}

#[test]
fn a_terminal_shows_each_run_with_its_median_so_far() {
    let place = Place::new();
    let path = place.experiment("e", planted(1.5, 1));
    let command = format!("stty rows 40 cols 160; {PROGRAM} run {} -o {}", path.display(), place.path("r").display());
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let seen = text(&output.stdout);
    assert!(output.status.success(), "{seen}");
    assert!(seen.contains("/40 runs"), "{seen}");
    let after_the_view = seen.rsplit("\x1b[").next().unwrap();
    assert!(after_the_view.contains("harmonic mean"), "the table was drawn over: {seen}");
    let all = rows(&place.path("r"));
    // The last line of a run has the median of all its rows.
    for run in 0..4 {
        let mine = all.iter().filter(|row| row["run"] == run && row["operation"] == "write");
        let rates: Vec<f64> = mine.map(|row| row["rate_bytes_s"].as_f64().unwrap() / 1_048_576.0).collect();
        let wanted = format!("  10 × {:>14}", format!("{:.1} MiB/s", median(rates)));
        assert!(seen.contains(&wanted), "{wanted} is not in: {seen}");
    }
}

#[test]
fn a_python_without_the_packages_is_an_error_that_names_them() {
    let place = Place::new();
    place.rows("r", planted(1.5, 3));
    // Without site-packages no Python has them.
    let bare = place.path("bare-python");
    std::fs::write(&bare, "#!/bin/sh\nexec python3 -I -S \"$@\"\n").unwrap();
    std::fs::set_permissions(&bare, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = report(&place.path("r"), &bare);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for named in ["pandas", "matplotlib", "statsmodels", "bare-python", "TERRACE_BENCH_PYTHON", "hint:"] {
        assert!(said.contains(named), "{named}: {said}");
    }
    assert!(!said.contains("Traceback"), "{said}");
    // What needs no Python is told all the same.
    assert!(text(&output.stdout).contains("median"), "{}", text(&output.stdout));
    let nowhere = report(&place.path("r"), Path::new("/nonexistent/python"));
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(text(&nowhere.stderr).contains("/nonexistent/python"), "{}", text(&nowhere.stderr));
}

#[test]
fn the_first_report_says_what_it_downloads_before_it_does() {
    let place = Place::new();
    place.rows("r", planted(1.5, 3));
    // A `python3` that makes no environment: what was said before it is all there is.
    let programs = place.path("programs");
    std::fs::create_dir(&programs).unwrap();
    let python = programs.join("python3");
    std::fs::write(&python, "#!/bin/sh\necho no venv here >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = Command::new(PROGRAM)
        .arg("report")
        .arg(place.path("r"))
        .env_remove("TERRACE_BENCH_PYTHON")
        .env("XDG_CACHE_HOME", place.path("cache"))
        .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
        .output()
        .unwrap();
    let said = text(&output.stderr);
    for named in ["downloading matplotlib==", "statsmodels==", "MB", "cache/terrace/bench", "--no-page"] {
        assert!(said.contains(named), "{named}: {said}");
    }
    assert!(said.contains("no venv here"), "{said}");
}
