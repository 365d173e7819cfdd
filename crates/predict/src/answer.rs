//! One prediction: the closed form, the simulation where it was asked for, and what a larger tier would give.

use serde::Serialize;
use std::fmt;
use terrace_core::size::{show_bytes, show_seconds};
use terrace_model::simulate::{Spread, Way, spread};
use terrace_model::{ClosedForm, Job, LargerTier, ModelError, Platform, closed_form, larger_tiers};
use terrace_tool::table::Table;

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Simulation {
    pub seed: u64,
    pub runs: u32,
}

/// Times are seconds, sizes bytes.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// First: it is the prediction, where it was asked for.
    pub simulation: Option<Simulated>,
    pub platform: Platform,
    pub job: Job,
    pub closed_form: ClosedForm,
    pub limited_by: String,
    pub alone_limited_by: String,
    pub larger_tiers: Vec<LargerTier>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct Simulated {
    #[serde(flatten)]
    pub of: Simulation,
    pub durable_alone: Spread,
    pub terrace: Spread,
}

impl Answer {
    pub fn of(
        platform: &Platform,
        job: &Job,
        simulation: Option<Simulation>,
        notes: Vec<String>,
    ) -> Result<Answer, ModelError> {
        let found = closed_form(platform, job)?;
        let limit = |terms: &[terrace_model::Term]| {
            terms
                .first()
                .map_or("nothing: there is nothing to do".into(), |term| format!("{}: {}", term.what, term.limited_by))
        };
        Ok(Answer {
            limited_by: limit(&found.terms),
            alone_limited_by: limit(&found.alone_terms),
            larger_tiers: larger_tiers(platform, job)?,
            simulation: simulation
                .map(|of| {
                    Ok(Simulated {
                        of,
                        durable_alone: spread(platform, job, Way::Alone, of.seed, of.runs)?,
                        terrace: spread(platform, job, Way::Terrace, of.seed, of.runs)?,
                    })
                })
                .transpose()?,
            closed_form: found,
            platform: platform.clone(),
            job: job.clone(),
            notes,
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workload, platform) = (&self.job.workload, &self.platform);
        writeln!(
            f,
            "{} in, {} intermediate, {} out, in files of {}; {} × {} processes, {} computing{}",
            show_bytes(workload.input_bytes),
            show_bytes(workload.intermediate_bytes),
            show_bytes(workload.final_bytes),
            show_bytes(workload.file_bytes),
            platform.nodes,
            platform.processes_per_node,
            if self.job.compute_s > 0.0 { show_seconds(self.job.compute_s) } else { "no".into() },
            if self.job.changes_nodes(platform) { "; each step on another node" } else { "" },
        )?;
        writeln!(f)?;
        // The simulation first: it is the prediction. The closed form bounds nothing; it has no contention, latency or overlap.
        let mut table = Table::new(&[
            "",
            ">simulated",
            ">least to most",
            ">closed form, no page cache",
            ">with page cache",
            "limited by",
        ]);
        let interval = |of: fn(&Simulated) -> &Spread| {
            self.simulation.as_ref().map_or("-".into(), |simulated| {
                format!("{} to {}", show_seconds(of(simulated).least_s), show_seconds(of(simulated).most_s))
            })
        };
        let simulated = |of: fn(&Simulated) -> &Spread| {
            self.simulation.as_ref().map_or("-".into(), |simulated| show_seconds(of(simulated).median_s))
        };
        let limits = |of: fn(&Simulated) -> &Spread, closed: &str| {
            self.simulation
                .as_ref()
                .map_or(closed.to_owned(), |simulated| format!("{closed}; simulated: {}", of(simulated).limited_by))
        };
        let found = &self.closed_form;
        for (name, bounds, of, closed) in [
            (
                "durable tier alone",
                found.durable_alone,
                (|simulated: &Simulated| &simulated.durable_alone) as fn(&Simulated) -> &Spread,
                &self.alone_limited_by,
            ),
            ("with Terrace", found.terrace, |simulated: &Simulated| &simulated.terrace, &self.limited_by),
        ] {
            table.row([
                name.into(),
                simulated(of),
                interval(of),
                show_seconds(bounds.without_page_cache_s),
                show_seconds(bounds.with_page_cache_s),
                limits(of, closed),
            ]);
        }
        write!(f, "{table}")?;
        let (alone, terrace, by) = match &self.simulation {
            Some(simulated) => (simulated.durable_alone.median_s, simulated.terrace.median_s, "the simulation"),
            None => (
                found.durable_alone.without_page_cache_s,
                found.terrace.without_page_cache_s,
                "the closed form without page cache",
            ),
        };
        if alone > 0.0 && terrace > 0.0 {
            let ratio = alone / terrace;
            let verdict = match ratio {
                ratio if ratio >= 1.05 => format!("{ratio:.1} times as fast with Terrace"),
                ratio if ratio <= 0.95 => format!("{:.1} times as slow with Terrace", 1.0 / ratio),
                _ => "Terrace changes nothing".to_owned(),
            };
            writeln!(f, "{verdict}, by {by}")?;
        }
        writeln!(f)?;
        let mut parts = Table::new(&["with Terrace, closed form, no page cache", ">bytes", ">bandwidth", ">time"]);
        for term in &found.terms {
            let moves = term.bytes_s > 0.0;
            parts.row([
                term.what.clone(),
                if moves { show_bytes(term.bytes as u64) } else { "-".into() },
                if moves { format!("{}/s", show_bytes(term.bytes_s as u64)) } else { "-".into() },
                show_seconds(term.seconds),
            ]);
        }
        write!(f, "{parts}")?;
        for larger in &self.larger_tiers {
            let change = found.terrace.without_page_cache_s - larger.without_page_cache_s;
            // Not what rounding makes of nothing.
            let verdict = match change.abs() < 0.001 * found.terrace.without_page_cache_s {
                true => "no difference".to_owned(),
                false => format!("{} by the closed form without page cache", show_seconds(larger.without_page_cache_s)),
            };
            writeln!(f, "`{}` with {} in each node: {verdict}", larger.tier, show_bytes(larger.capacity_bytes))?;
        }
        if let Some(simulated) = &self.simulation {
            for (name, spread) in [("alone", &simulated.durable_alone), ("with Terrace", &simulated.terrace)] {
                writeln!(
                    f,
                    "simulated {name}: the median of {} seeds; the program itself {}",
                    simulated.of.runs,
                    show_seconds(spread.median_run.program_s)
                )?;
            }
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
