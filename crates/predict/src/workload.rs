//! The workload that is asked about: a file, a report, and flags, which go before both.

use crate::args::{StorageArgs, WorkloadArgs};
use crate::darshan::Log;
use serde::{Deserialize, Deserializer};
use std::path::Path;
use terrace_core::size::{show_bytes, show_seconds};
use terrace_model::{Flush, Job, Layout, NextStep, Platform, Workload, closed_form};
use terrace_tool::failure::{Failure, Result};

/// What is known of the workload, before defaults.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Asked {
    #[serde(deserialize_with = "bytes")]
    input: Option<u64>,
    #[serde(deserialize_with = "bytes")]
    intermediate: Option<u64>,
    #[serde(deserialize_with = "bytes")]
    output: Option<u64>,
    #[serde(deserialize_with = "bytes")]
    file_size: Option<u64>,
    nodes: Option<u32>,
    processes: Option<u32>,
    iterations: Option<u32>,
    #[serde(deserialize_with = "duration")]
    compute: Option<f64>,
    flush: Option<Flush>,
    layout: Option<Layout>,
    next_step: Option<NextStep>,
    /// What the program of a report took, with its input and output.
    #[serde(skip)]
    program_s: Option<f64>,
    /// The report tells what was read, and how much of it more than once.
    #[serde(skip)]
    reads_known: bool,
    #[serde(skip)]
    reread: u64,
    /// What each process of a log did besides reading and writing.
    #[serde(skip)]
    each_computes_s: Option<f64>,
}

/// The part of a run's report that is looked at; the report's other fields may be as they are.
#[derive(Deserialize)]
struct Report {
    version: u32,
    program_s: f64,
    tiers: Vec<ReportTier>,
    counters: ReportCounters,
    prediction: Option<ReportPrediction>,
    /// Since version 2.
    #[serde(default)]
    bandwidths: Vec<ReportBandwidth>,
}

/// What a tier gave, as measured by the run.
#[derive(Clone, Deserialize)]
pub struct ReportBandwidth {
    pub tier: String,
    pub in_memory: bool,
    pub read_bytes_s: Option<f64>,
    pub write_bytes_s: Option<f64>,
}

/// Without its fields where the run could not be predicted.
#[derive(Deserialize)]
struct ReportPrediction {
    flush_s: Option<f64>,
}

#[derive(Deserialize)]
pub struct ReportTier {
    pub name: String,
    pub capacity_bytes: u64,
    pub durable: bool,
    written_bytes: u64,
    written_files: u64,
}

#[derive(Deserialize)]
struct ReportCounters {
    flushed_bytes: u64,
    /// Since version 2.
    input_bytes: Option<u64>,
    read_back_bytes: Option<u64>,
    reread_bytes: Option<u64>,
}

const REPORT_VERSIONS: std::ops::RangeInclusive<u32> = 1..=2;

/// The tiers that a run had.
pub fn report_tiers(file: &Path) -> Result<Vec<ReportTier>> {
    Ok(report(file)?.tiers)
}

/// The faster tiers that a run had, with their bandwidths where the run has measured all of them.
pub fn report_measured_tiers(file: &Path) -> Result<Option<Vec<(ReportTier, ReportBandwidth)>>> {
    let report = report(file)?;
    let of = |name: &str| {
        let known = report.bandwidths.iter().find(|known| known.tier == name)?;
        (known.read_bytes_s.is_some() && known.write_bytes_s.is_some()).then(|| known.clone())
    };
    Ok(report
        .tiers
        .into_iter()
        .filter(|tier| !tier.durable)
        .map(|tier| of(&tier.name).map(|rate| (tier, rate)))
        .collect())
}

/// Bandwidths of the durable tier that nobody has said are those that the run's own flushes had. Returns notes on that.
pub fn put_report_bandwidths(file: &Path, args: &mut StorageArgs) -> Result<Vec<String>> {
    let mut notes = vec![];
    if args.platform.is_some() || args.tiers.is_some() {
        return Ok(notes);
    }
    let report = report(file)?;
    let flush_s = report.prediction.and_then(|prediction| prediction.flush_s).filter(|seconds| *seconds > 0.0);
    let Some(seconds) = flush_s.filter(|_| report.counters.flushed_bytes > 0) else { return Ok(notes) };
    let rate = ((report.counters.flushed_bytes as f64 / seconds) as u64).max(1);
    for (flag, name) in [(&mut args.write_bandwidth, "write"), (&mut args.read_bandwidth, "read")] {
        if flag.is_none() {
            *flag = Some(rate);
            let what = if name == "write" { "as the run's flushes had" } else { "as much as it was written with" };
            notes.push(format!("--{name}-bandwidth is not given: {}/s, {what}", show_bytes(rate)));
        }
    }
    Ok(notes)
}

fn report(file: &Path) -> Result<Report> {
    let report: Report =
        parse_json(file, "is not the report of a run", "give a file that `terrace run --report FILE` wrote")?;
    match report.version {
        known if REPORT_VERSIONS.contains(&known) => Ok(report),
        other => Err(Failure::bad_input(
            format!(
                "{} is a report of version {other}; this program reads versions {} to {}",
                file.display(),
                REPORT_VERSIONS.start(),
                REPORT_VERSIONS.end()
            ),
            "run it again, with this version of Terrace",
        )),
    }
}

pub fn read(file: &Path) -> Result<String> {
    std::fs::read_to_string(file).map_err(|error| {
        Failure::bad_input(format!("can't read {}: {error}", file.display()), "give a file that exists and is text")
    })
}

/// A file that another command wrote: `what` it is not, if it is not, and how to get one.
pub fn parse_json<T: serde::de::DeserializeOwned>(file: &Path, what: &str, hint: &str) -> Result<T> {
    let text = read(file)?;
    serde_json::from_str(&text).map_err(|error| Failure::bad_input(format!("{} {what}: {error}", file.display()), hint))
}

/// TOML, or JSON where the file's name ends so.
pub fn parse<T: serde::de::DeserializeOwned>(file: &Path, what: &str) -> Result<T> {
    let text = read(file)?;
    let json = file.extension().is_some_and(|extension| extension == "json");
    let parsed = match json {
        true => serde_json::from_str(&text).map_err(|error| error.to_string()),
        false => toml::from_str(&text).map_err(|error| error.to_string()),
    };
    parsed.map_err(|reason| {
        let format = if json { "JSON" } else { "TOML" };
        Failure::bad_input(
            format!("{} is not {what} ({format}): {}", file.display(), reason.trim_end()),
            "docs/guide/predict.md has an example of each file",
        )
    })
}

impl Asked {
    pub fn read(args: &WorkloadArgs, log: Option<&Log>) -> Result<Asked> {
        let mut asked = match (&args.workload, &args.report) {
            _ if log.is_some() => log.map(|log| Asked::of_log(log, args.nodes.unwrap_or(1))).unwrap_or_default(),
            (Some(file), _) => parse(file, "a workload")?,
            (None, Some(file)) => Asked::of_report(&report(file)?),
            (None, None) => Asked::default(),
        };
        asked.input = args.input.or(asked.input);
        asked.intermediate = args.intermediate.or(asked.intermediate);
        asked.output = args.output.or(asked.output);
        asked.file_size = args.file_size.or(asked.file_size);
        asked.nodes = args.nodes.or(asked.nodes);
        asked.processes = args.processes.or(asked.processes);
        asked.iterations = args.iterations.or(asked.iterations);
        if args.compute.is_some() {
            (asked.compute, asked.program_s, asked.each_computes_s) = (args.compute, None, None);
        }
        asked.flush = args.flush.map(Flush::from).or(asked.flush);
        asked.next_step = args.next_step.map(NextStep::from).or(asked.next_step);
        Ok(asked)
    }

    fn of_log(log: &Log, nodes: u32) -> Asked {
        Asked {
            input: Some(log.input),
            intermediate: Some(log.intermediate),
            output: Some(log.output),
            file_size: Some(log.file_bytes()),
            nodes: Some(nodes),
            processes: Some(log.processes_on(nodes)),
            each_computes_s: Some(log.compute_s() / f64::from(log.processes.max(1))),
            ..Asked::default()
        }
    }

    /// Where only a part was flushed, that is the output, and what else was written is intermediate. Where all was, what programs read
    /// back is.
    fn of_report(report: &Report) -> Asked {
        let written: u64 = report.tiers.iter().map(|tier| tier.written_bytes).sum();
        let files: u64 = report.tiers.iter().map(|tier| tier.written_files).sum();
        let durable: u64 = report.tiers.iter().filter(|tier| tier.durable).map(|tier| tier.written_bytes).sum();
        let counters = &report.counters;
        let output = counters.flushed_bytes.saturating_add(durable).min(written);
        let read_back = counters.read_back_bytes.unwrap_or(0).min(written);
        let (intermediate, output, flush) = match output == written && read_back > 0 {
            true => (read_back, written - read_back, Flush::All),
            false => (written - output, output, Flush::Final),
        };
        let file_size = match (written, counters.input_bytes.unwrap_or(0)) {
            (0, 0) => None,
            (0, input) => Some(input),
            (written, _) => Some((written / files.max(1)).max(1)),
        };
        Asked {
            input: Some(counters.input_bytes.unwrap_or(0)),
            intermediate: Some(intermediate),
            output: Some(output),
            file_size,
            nodes: Some(1),
            flush: Some(flush),
            program_s: Some(report.program_s),
            reads_known: counters.input_bytes.is_some(),
            reread: counters.reread_bytes.unwrap_or(0),
            ..Asked::default()
        }
    }

    pub fn put_counts(&self, platform: &mut Platform) {
        platform.nodes = self.nodes.unwrap_or(platform.nodes);
        platform.processes_per_node = self.processes.unwrap_or(platform.processes_per_node);
    }

    /// The job, and notes on what was assumed.
    pub fn job(&self, platform: &Platform) -> Result<(Job, Vec<String>)> {
        let mut notes = vec![];
        if self.input.is_none() && self.output.is_none() && self.intermediate.is_none() {
            return Err(Failure::bad_input(
                "no workload is given",
                "say what is read and written (--input 100GiB --iterations 5 --file-size 1GiB), or give --workload or --report",
            ));
        }
        let input = self.input.unwrap_or(0);
        let output = self.output.unwrap_or(input);
        let rounds = u64::from(self.iterations.unwrap_or(1)).saturating_sub(1);
        let intermediate = match self.intermediate {
            Some(bytes) => bytes,
            None => input.checked_mul(rounds).ok_or_else(|| {
                Failure::bad_input(
                    format!("`iterations` is {}: that many times the input is more than can be counted", rounds + 1),
                    "give a smaller --iterations",
                )
            })?,
        };
        let file_bytes = self.file_size.ok_or_else(|| {
            Failure::bad_input("`file_size` is not given", "add --file-size, the size of one file, such as 1GiB")
        })?;
        let total = input.checked_add(intermediate).and_then(|sum| sum.checked_add(output));
        if total.is_none_or(|total| total > 1 << 62) {
            return Err(Failure::bad_input(
                "the workload's data is more than can be counted",
                "check the units of --input, --intermediate and --output",
            ));
        }
        let workload =
            Workload { input_bytes: input, intermediate_bytes: intermediate, final_bytes: output, file_bytes };
        let mut job = Job {
            compute_s: self.compute.unwrap_or(0.0),
            flush: self.flush.unwrap_or_default(),
            layout: self.layout.clone().unwrap_or_default(),
            next_step: self.next_step.unwrap_or_default(),
            ..Job::of(workload)
        };
        if let Some(iterations) = self.iterations {
            job.iterations = iterations;
        }
        job.check().map_err(crate::refused)?;
        if job.items().saturating_mul(u64::from(job.iterations)) > 1 << 32 {
            return Err(Failure::bad_input(
                format!("the workload has {} files of `file_size` in each iteration", job.items()),
                "give a larger --file-size, or less data",
            ));
        }
        if let Some(each_s) = self.each_computes_s {
            // Where there are fewer pieces than processes, the model has so many work.
            let workers = platform.processes().min(job.items()).max(1) as f64;
            job.compute_s = each_s * platform.cores_per_node.map_or(workers, |cores| workers.min(cores));
        }
        if let Some(program_s) = self.program_s {
            notes.push(match self.reads_known {
                false => {
                    "the report does not tell how much input was read: it is taken as none; --input says otherwise".into()
                }
                true => format!(
                    "{} of input: the files that the run opened for reading, as wholes; --input says otherwise. Another {} were opened \
                     again, and are taken as read from the page cache",
                    show_bytes(input),
                    show_bytes(self.reread)
                ),
            });
            let known = closed_form(platform, &Job { flush: Flush::None, ..job.clone() }).map_err(crate::refused)?;
            let workers = platform.processes().min(job.items()) as f64;
            let rest_s = (program_s - known.terrace.without_page_cache_s).max(0.0);
            job.compute_s = rest_s * platform.cores_per_node.map_or(workers, |cores| workers.min(cores));
            notes.push(format!(
                "of the {} that the program ran, {} are not explained by its writes: taken as computing; --compute says otherwise",
                show_seconds(program_s),
                show_seconds(rest_s)
            ));
        }
        Ok((job, notes))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Quantity {
    Whole(u64),
    Number(f64),
    Text(String),
}

/// A number of bytes, or text such as `8GiB`.
fn bytes<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u64>, D::Error> {
    match Quantity::deserialize(from)? {
        Quantity::Whole(bytes) => Ok(Some(bytes)),
        Quantity::Number(number) => Err(serde::de::Error::custom(format!("`{number}` is not a whole number of bytes"))),
        Quantity::Text(text) => crate::units::size(&text).map(Some).map_err(serde::de::Error::custom),
    }
}

/// Seconds, or text such as `1h30m`.
fn duration<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<f64>, D::Error> {
    match Quantity::deserialize(from)? {
        Quantity::Whole(seconds) => Ok(Some(seconds as f64)),
        Quantity::Number(seconds) => Ok(Some(seconds)),
        Quantity::Text(text) => crate::units::seconds(&text).map(Some).map_err(serde::de::Error::custom),
    }
}
