//! What the runs of a plan need of this machine: looked for before anything runs, not when a night's last run comes.

use crate::backend;
use crate::coordinator;
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::plan::{Plan, Run, describe};
use crate::settings::{BackendSettings, LayoutSettings};
use std::collections::BTreeMap;

/// Refuses the experiment when a run lacks a program or a library, and says which runs and what to install.
pub fn check(experiment: &Experiment, plan: &Plan) -> Result<()> {
    #[allow(clippy::type_complexity)] // used here only; a backend or layout and its setting, what it lacks, the runs
    let mut lacking: BTreeMap<(&str, &str), (Option<Error>, Vec<&Run>)> = BTreeMap::new();
    for run in &plan.runs {
        let settings = &run.settings;
        let layout = match &settings.layout {
            LayoutSettings::Lustre(_) => "lustre",
            LayoutSettings::BeeGfs(_) => "beegfs",
            _ => "",
        };
        // Runs of one backend and layout lack the same.
        let (_, runs) = lacking.entry((settings.backend.name(), layout)).or_insert_with(|| {
            let found = of_backend(experiment, &settings.backend).and_then(|()| of_layout(experiment, layout));
            (found.err(), vec![])
        });
        runs.push(run);
    }
    let mut lines = Vec::new();
    let mut hints: Vec<String> = Vec::new();
    for (error, runs) in lacking.into_values() {
        let Some(error) = error else { continue };
        let factors = describe(&runs[0].factors);
        let factors = if factors.is_empty() { factors } else { format!(" ({factors})") };
        let more = if runs.len() > 1 { format!(" and {} more", runs.len() - 1) } else { String::new() };
        lines.push(format!("run {}{factors}{more} can't run here: {error}", runs[0].id));
        let hint = error.hint().unwrap_or("see docs/guide/bench.md").to_owned();
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    if lines.is_empty() { Ok(()) } else { Err(Error::input(lines.join("\n"), hints.join("; "))) }
}

/// Workers elsewhere have programs of their own.
fn is_elsewhere(experiment: &Experiment) -> bool {
    !experiment.launch.hosts.is_empty() || experiment.launch.command.is_some()
}

fn of_backend(experiment: &Experiment, settings: &BackendSettings) -> Result<()> {
    coordinator::launcher(&experiment.launch, settings)?;
    if settings.needs_mpi() {
        return backend::build_shim(settings).map(drop);
    }
    match settings {
        BackendSettings::IoUring(_) if !is_elsewhere(experiment) => backend::try_io_uring(),
        BackendSettings::S3(_) if !cfg!(feature = "s3") => {
            Err(Error::input("this build has no S3 backend", "build with `--features s3`"))
        }
        _ => Ok(()),
    }
}

fn of_layout(experiment: &Experiment, layout: &str) -> Result<()> {
    let (program, package) = match layout {
        "lustre" => ("lfs", "Lustre's client programs"),
        "beegfs" => ("beegfs-ctl", "beegfs-utils"),
        _ => return Ok(()),
    };
    if is_elsewhere(experiment) || coordinator::is_on_path(program) {
        return Ok(());
    }
    Err(Error::input(
        format!("the layout `{layout}` is set by `{program}`, which is not on the PATH"),
        format!("install {package}, or leave `layout` out"),
    ))
}
