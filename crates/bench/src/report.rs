//! The report of an experiment: a summary by ourselves; plots and the analysis of variance by Python, where the field has them.
//!
//!   rows ──▶ summary.json ──report.py (matplotlib, statsmodels)──▶ report.html, *.png, effects.json
//!
//! Python's packages lie in an environment of their own, made once: in the user's cache, or wherever
//! `TERRACE_BENCH_PYTHON` says that there is a Python that has them.

use crate::error::{Error, Result};
use crate::plan::describe;
use crate::results::{Row, write, write_json};
use crate::statistics::{Interval, Method, Summary, summarise};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("../report/report.py");
const REQUIREMENTS: &str = include_str!("../report/requirements.txt");
pub const PYTHON_VARIABLE: &str = "TERRACE_BENCH_PYTHON";

/// One run's operation over all replications.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    pub run: u32,
    pub factors: BTreeMap<String, String>,
    pub label: String,
    pub operation: String,
    pub count: usize,
    /// Bytes or operations a second.
    pub rate: Summary,
    pub unit: &'static str,
    pub median_text: String,
    pub interval_text: String,
    pub harmonic_mean_text: String,
    /// Medians over the replications.
    pub latency_median_ns: u64,
    pub latency_p99_ns: u64,
    pub own_share: f64,
    /// What of the data that was read was checked, in words, where that was not all.
    pub verified: Option<String>,
}

pub fn summarise_rows(rows: &[Row], confidence: f64) -> Vec<RunSummary> {
    let mut groups: BTreeMap<(u32, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.counts()) {
        groups.entry((row.run, &row.operation)).or_default().push(row);
    }
    let middle = |mut values: Vec<u64>| {
        values.sort_unstable();
        values[values.len() / 2]
    };
    let mut summaries = Vec::new();
    for ((run, operation), rows) in groups {
        let rates: Vec<f64> = rows.iter().map(|row| row.rate()).collect();
        let Some(rate) = summarise(&rates, confidence) else { continue };
        let (first, unit) = (rows[0], rows[0].unit());
        let interval_text = show_interval(&rate.interval, unit);
        let transfer: f64 = rows.iter().map(|row| row.transfer_s).sum();
        let own: f64 = rows.iter().map(|row| row.own_s).sum();
        summaries.push(RunSummary {
            run,
            factors: first.factors.clone(),
            label: describe(&first.factors),
            operation: operation.to_owned(),
            count: rate.count,
            median_text: show_rate(rate.median, unit),
            interval_text,
            harmonic_mean_text: show_rate(rate.harmonic_mean, unit),
            rate,
            unit,
            latency_median_ns: middle(rows.iter().map(|row| row.latency_median_ns).collect()),
            latency_p99_ns: middle(rows.iter().map(|row| row.latency_p99_ns).collect()),
            verified: rows.iter().find_map(|row| row.verified()),
            own_share: if transfer > 0.0 { own / transfer } else { 0.0 },
        });
    }
    summaries
}

pub fn show_rate(value: f64, unit: &str) -> String {
    if unit == "bytes/s" { format!("{:.1} MiB/s", value / 1_048_576.0) } else { format!("{value:.0} /s") }
}

/// Marked where it is the bootstrap's.
pub fn show_interval(interval: &Interval, unit: &str) -> String {
    let mark = if interval.method == Method::Bootstrap { " *" } else { "" };
    match interval.method {
        Method::None => "-".into(),
        _ => format!("{} … {}{mark}", show_rate(interval.low, unit), show_rate(interval.high, unit)),
    }
}

/// Writes summary.json, and with Python report.html, the plots and effects.json.
pub fn page(directory: &Path, rows: &[Row]) -> Result<PathBuf> {
    write_json(&directory.join("summary.json"), &serde_json::json!({ "runs": summarise_rows(rows, 0.95) }))?;
    let python = python()?;
    let work = tempfile::tempdir().map_err(|error| Error::io("make", "a temporary directory", error))?;
    let script = work.path().join("report.py");
    write(&script, SCRIPT)?;
    let output = Command::new(&python)
        .arg(&script)
        .arg("page")
        .arg(directory)
        .env("MPLCONFIGDIR", work.path())
        .output()
        .map_err(|error| Error::io("run", python.display(), error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::failed(format!("the report's Python failed: {}", said.trim())));
    }
    Ok(directory.join("report.html"))
}

/// A Python that has the packages; makes the environment if there is none yet.
fn python() -> Result<PathBuf> {
    if let Some(python) = std::env::var_os(PYTHON_VARIABLE) {
        let python = PathBuf::from(python);
        check_packages(&python)?;
        return Ok(python);
    }
    let hash: String = Sha256::digest(REQUIREMENTS).iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    let environment = crate::backend::cache_directory()?.join(format!("python-{hash}"));
    let python = environment.join("bin/python");
    let stamp = environment.join("complete");
    if stamp.exists() {
        return Ok(python);
    }
    say(&format!(
        "the page's plots need Python packages: downloading {} (some 100 MB) into {}, once; this takes a minute or two, and `--no-page` does without",
        REQUIREMENTS.split_whitespace().collect::<Vec<_>>().join(", "),
        environment.display()
    ));
    let hint = format!(
        "the report needs Python 3.10 or newer with venv and pip, and a package index; or set {PYTHON_VARIABLE} to a Python that has: {}",
        REQUIREMENTS.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    let run = |command: &mut Command| {
        let output =
            command.output().map_err(|error| Error::input(format!("can't run {command:?}: {error}"), &hint))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.trim().lines().last().unwrap_or_default().to_owned();
        Err(Error::input(format!("{command:?} failed: {reason}"), &hint))
    };
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&environment))?;
    let requirements = environment.join("requirements.txt");
    write(&requirements, REQUIREMENTS)?;
    let install = ["-m", "pip", "install", "--progress-bar=off", "--disable-pip-version-check", "-r"];
    told(Command::new(&python).args(install).arg(&requirements), &hint)?;
    write(&stamp, "")?;
    say("the packages are installed");
    Ok(python)
}

/// If nobody takes it, the page is made all the same.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "terrace-bench: {text}");
}

/// Runs pip, and tells of each package that it fetches.
fn told(command: &mut Command, hint: &str) -> Result<()> {
    let failed = |reason: &str| Error::input(format!("installing the report's packages failed: {reason}"), hint);
    let mut errors = tempfile::tempfile().map_err(|error| Error::io("make", "a temporary file", error))?;
    let its = errors.try_clone().map_err(|error| Error::io("use", "a temporary file", error))?;
    let mut child = command.stdout(Stdio::piped()).stderr(its).spawn().map_err(|error| failed(&error.to_string()))?;
    let output = child.stdout.take().expect("its output is a pipe");
    for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
        let line = line.trim();
        if ["Downloading ", "Using cached ", "Installing "].iter().any(|word| line.starts_with(word)) {
            say(line);
        }
    }
    let status = child.wait().map_err(|error| failed(&error.to_string()))?;
    if status.success() {
        return Ok(());
    }
    let mut said = String::new();
    let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut said));
    Err(failed(said.trim().lines().last().unwrap_or("pip did not say why")))
}

/// The packages that the report needs, asked of a Python that somebody named: a traceback would not say what to do.
fn check_packages(python: &Path) -> Result<()> {
    let names: Vec<&str> = REQUIREMENTS.lines().filter_map(|line| line.split("==").next()).collect();
    let hint = format!("install them there, name another Python in {PYTHON_VARIABLE}, or leave it out");
    let script = "import importlib.util as u, sys; print(' '.join(n for n in sys.argv[1:] if u.find_spec(n) is None))";
    let output = Command::new(python).args(["-c", script]).args(&names).output().map_err(|error| {
        Error::input(format!("can't run {} (from {PYTHON_VARIABLE}): {error}", python.display()), &hint)
    })?;
    let missing = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.trim().lines().last().unwrap_or_default().to_owned();
        return Err(Error::input(format!("{} is no Python that works: {reason}", python.display()), hint));
    }
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Error::input(
            format!(
                "the Python {} (from {PYTHON_VARIABLE}) lacks what the page needs: {}",
                python.display(),
                missing.replace(' ', ", ")
            ),
            hint,
        )),
    }
}
