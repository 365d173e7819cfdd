//! `--sweep NAME=VALUES`: the same question with one number changed.

use crate::answer::{Answer, Simulation};
use serde::Serialize;
use terrace_core::refusal::nearest;
use terrace_core::size::{show_bytes, show_seconds};
use terrace_model::simulate::Spread;
use terrace_model::{Job, Platform};
use terrace_tool::failure::{Failure, Result};
use terrace_tool::table::Table;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Parameter {
    Nodes,
    Processes,
    Iterations,
    FileSize,
    Data,
    Disks,
    Stripe,
    Capacity,
    ReadBandwidth,
    WriteBandwidth,
    Network,
    Threads,
}

const PARAMETERS: [(&str, Parameter); 12] = [
    ("nodes", Parameter::Nodes),
    ("processes", Parameter::Processes),
    ("iterations", Parameter::Iterations),
    ("file-size", Parameter::FileSize),
    ("data", Parameter::Data),
    ("disks", Parameter::Disks),
    ("stripe", Parameter::Stripe),
    ("capacity", Parameter::Capacity),
    ("read-bandwidth", Parameter::ReadBandwidth),
    ("write-bandwidth", Parameter::WriteBandwidth),
    ("network", Parameter::Network),
    ("threads", Parameter::Threads),
];

/// More points than this are a slip.
const POINTS_MAX: usize = 1000;

pub struct Sweep {
    name: &'static str,
    parameter: Parameter,
    values: Vec<u64>,
}

#[derive(Serialize)]
pub struct Point {
    pub value: u64,
    pub answer: Answer,
}

impl Sweep {
    pub fn parse(text: &str) -> Result<Sweep> {
        let wrong = |reason: String| {
            Failure::bad_input(
                format!("--sweep {text}: {reason}"),
                "for example --sweep processes=1..64, --sweep nodes=1..100:10, or --sweep capacity=8GiB,64GiB",
            )
        };
        let (name, values) = text.split_once('=').ok_or_else(|| wrong("this is not NAME=VALUES".into()))?;
        let names = PARAMETERS.map(|(name, _)| name);
        let &(name, parameter) = PARAMETERS.iter().find(|(known, _)| *known == name).ok_or_else(|| {
            let meant = nearest(name, names).map_or(String::new(), |near| format!(" (did you mean `{near}`?)"));
            wrong(format!("`{name}` can't be swept{meant}; these can: {}", names.join(", ")))
        })?;
        let number = |text: &str| crate::units::size(text.trim()).map_err(wrong);
        let values = match values.split_once("..") {
            None => values.split(',').map(number).collect::<Result<Vec<u64>>>()?,
            Some((from, to)) => {
                let (to, step) = match to.split_once(':') {
                    Some((to, step)) => (number(to)?, Some(number(step)?)),
                    None => (number(to)?, None),
                };
                let from = number(from)?;
                if from == 0 || from > to || step == Some(0) {
                    return Err(wrong("a range goes upwards, from one or more".into()));
                }
                range(from, to, step)
            }
        };
        if values.contains(&0) && parameter != Parameter::Capacity {
            return Err(wrong(format!("`{name}` can't be zero")));
        }
        if values.len() > POINTS_MAX {
            return Err(wrong(format!("these are {} or more points; {POINTS_MAX} are the most", values.len())));
        }
        Ok(Sweep { name, parameter, values })
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn answers(&self, platform: &Platform, job: &Job, simulation: Option<Simulation>) -> Result<Vec<Point>> {
        self.values
            .iter()
            .map(|&value| {
                let (mut platform, mut job) = (platform.clone(), job.clone());
                self.put(value, &mut platform, &mut job)?;
                let answer = Answer::of(&platform, &job, simulation, vec![]).map_err(crate::refused)?;
                Ok(Point { value, answer })
            })
            .collect()
    }

    fn put(&self, value: u64, platform: &mut Platform, job: &mut Job) -> Result<()> {
        let count = u32::try_from(value).map_err(|_| {
            Failure::bad_input(format!("--sweep {}: {value} is too many", self.name), "give a smaller number")
        });
        let bandwidth = value as f64;
        let workload = &mut job.workload;
        match self.parameter {
            Parameter::Nodes => platform.nodes = count?,
            Parameter::Processes => platform.processes_per_node = count?,
            Parameter::Disks => platform.durable.disks = count?,
            Parameter::Stripe => platform.durable.stripe_disks = count?,
            Parameter::Threads => platform.mover.threads = count?,
            Parameter::ReadBandwidth => platform.durable.read_bytes_s = bandwidth,
            Parameter::WriteBandwidth => platform.durable.write_bytes_s = bandwidth,
            Parameter::Network => platform.network_bytes_s = Some(bandwidth),
            Parameter::FileSize => workload.file_bytes = value,
            // As often as before, or as the new number of iterations says.
            Parameter::Iterations => {
                job.iterations = count?;
                workload.intermediate_bytes =
                    workload.input_bytes.max(workload.final_bytes).saturating_mul(u64::from(job.iterations) - 1);
            }
            Parameter::Data => {
                let factor = bandwidth / (workload.input_bytes.max(workload.final_bytes).max(1)) as f64;
                let scaled = |bytes: u64| (bytes as f64 * factor).round() as u64;
                workload.input_bytes = scaled(workload.input_bytes);
                workload.intermediate_bytes = scaled(workload.intermediate_bytes);
                workload.final_bytes = scaled(workload.final_bytes);
            }
            Parameter::Capacity => match platform.tiers.first_mut() {
                Some(tier) => tier.capacity_bytes = value,
                None => {
                    return Err(Failure::bad_input(
                        "--sweep capacity: there is no fast tier",
                        "name one with --fast-tier, or give --tiers or --config",
                    ));
                }
            },
        }
        Ok(())
    }

    pub fn show(&self, value: u64) -> String {
        match self.parameter {
            Parameter::FileSize | Parameter::Data | Parameter::Capacity => show_bytes(value),
            Parameter::ReadBandwidth | Parameter::WriteBandwidth | Parameter::Network => {
                format!("{}/s", show_bytes(value))
            }
            _ => value.to_string(),
        }
    }
}

fn range(from: u64, to: u64, step: Option<u64>) -> Vec<u64> {
    let next = |value: &u64| step.map_or(value.checked_mul(2), |step| value.checked_add(step));
    let mut values: Vec<u64> =
        std::iter::successors(Some(from), next).take_while(|value| *value <= to).take(POINTS_MAX + 1).collect();
    if step.is_none() && values.last() != Some(&to) {
        values.push(to);
    }
    values
}

fn spread(of: &Spread) -> String {
    format!("{} ({} to {})", show_seconds(of.median_s), show_seconds(of.least_s), show_seconds(of.most_s))
}

/// The simulation and, without and with the page cache, the closed form.
pub fn table(sweep: &Sweep, points: &[Point]) -> Table {
    let heading = format!(">{}", sweep.name);
    let mut table = Table::new(&[
        &heading,
        ">alone, simulated",
        ">no page cache",
        ">with page cache",
        ">Terrace, simulated",
        ">no page cache",
        ">with page cache",
        "limited by",
    ]);
    for point in points {
        let found = &point.answer.closed_form;
        let simulated = point.answer.simulation.as_ref();
        table.row([
            sweep.show(point.value),
            simulated.map_or("-".into(), |simulated| spread(&simulated.durable_alone)),
            show_seconds(found.durable_alone.without_page_cache_s),
            show_seconds(found.durable_alone.with_page_cache_s),
            simulated.map_or("-".into(), |simulated| spread(&simulated.terrace)),
            show_seconds(found.terrace.without_page_cache_s),
            show_seconds(found.terrace.with_page_cache_s),
            simulated.map_or(point.answer.limited_by.clone(), |simulated| simulated.terrace.limited_by.clone()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<u64> {
        Sweep::parse(text).unwrap().values
    }

    #[test]
    fn a_range_doubles_or_steps_and_ends_where_it_says() {
        assert_eq!(values("processes=1..64"), [1, 2, 4, 8, 16, 32, 64]);
        assert_eq!(values("nodes=3..10"), [3, 6, 10]);
        assert_eq!(values("nodes=1..10:4"), [1, 5, 9]);
        assert_eq!(values("capacity=0,1KiB"), [0, 1024]);
    }

    #[test]
    fn what_can_not_be_swept_is_refused_by_name() {
        for (text, word) in [
            ("procesess=1..2", "did you mean `processes`"),
            ("nodes", "NAME=VALUES"),
            ("nodes=0..4", "upwards"),
            ("nodes=4..1", "upwards"),
            ("nodes=1..9:0", "upwards"),
            ("nodes=0", "zero"),
            ("nodes=many", "many"),
            ("nodes=1..99999:1", "points"),
        ] {
            let message = Sweep::parse(text).err().unwrap().message;
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
