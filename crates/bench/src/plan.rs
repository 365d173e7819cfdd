//! From an experiment to its runs, in order.
//!
//!   factors ──all combinations, less the excluded──▶ runs ──each replication a block, shuffled by the seed──▶ steps ──SHA-256──▶ hash
//!
//! Invariant: the plan follows from the experiment alone. The same experiment gives the same plan, to the byte, anywhere.
//! Blocks are complete: whatever drifts with time (a filling disk, other users) falls on all runs of a block alike.

use crate::error::{Error, Result};
use crate::experiment::{Experiment, Labels, Levels, Order};
use crate::settings::RunSettings;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub name: String,
    pub seed: u64,
    pub runs: Vec<Run>,
    /// Numbers of runs in the order in which each replication does them.
    pub blocks: Vec<Vec<u32>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub id: u32,
    /// Factor to level.
    pub factors: BTreeMap<String, String>,
    pub settings: RunSettings,
}

/// More runs than this are a mistake in the factors.
const RUNS_MAX: usize = 1_000_000;
const STEPS_MAX: usize = 10_000_000;

impl Plan {
    pub fn of(experiment: &Experiment) -> Result<Plan> {
        let combinations = combinations(experiment)?;
        let mut runs = Vec::new();
        for (factors, settings) in combinations {
            let id = u32::try_from(runs.len()).expect("runs are bounded");
            let told = if factors.is_empty() { String::new() } else { format!(" ({})", describe(&factors)) };
            let settings = crate::settings::read::<RunSettings>(settings)
                .and_then(|settings| settings.check().map(|()| settings))
                .map_err(|error| Error::input(format!("run {id}{told}: {error}"), error.hint().unwrap_or_default()))?;
            runs.push(Run { id, factors, settings });
        }
        if runs.is_empty() {
            return Err(Error::input("no run is left", "`exclude` leaves out every combination of the factors"));
        }
        if runs.len().saturating_mul(experiment.replications.max() as usize) > STEPS_MAX {
            return Err(Error::input(
                format!(
                    "{} runs with {} replications are more than ten million",
                    runs.len(),
                    experiment.replications.max()
                ),
                "make `replications` smaller",
            ));
        }
        let blocks = (0..experiment.replications.max()).map(|block| order(experiment, runs.len(), block)).collect();
        Ok(Plan { name: experiment.name.clone(), seed: experiment.seed, runs, blocks })
    }

    pub fn text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a plan is plain data");
        text.push('\n');
        text
    }

    /// Results of different plans don't belong together.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(self.text().as_bytes());
        digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

pub fn describe(factors: &BTreeMap<String, String>) -> String {
    factors.iter().map(|(factor, level)| format!("{factor}={level}")).collect::<Vec<_>>().join(", ")
}

fn order(experiment: &Experiment, runs: usize, block: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(runs).expect("runs are bounded")).collect();
    if experiment.order == Order::Random {
        // A stream of its own for each block, so that the first blocks don't change when more are added.
        let mut random = ChaCha8Rng::seed_from_u64(experiment.seed);
        random.set_stream(u64::from(block) + 1);
        order.shuffle(&mut random);
    }
    order
}

type Combination = (BTreeMap<String, String>, Value);

/// Of a combination, each factor's level and what it merges.
type Merged = (BTreeMap<String, String>, Vec<Value>);

fn combinations(experiment: &Experiment) -> Result<Vec<Combination>> {
    let base = match &experiment.base {
        Value::Null => Value::Object(serde_json::Map::new()),
        base => base.clone(),
    };
    if !experiment.runs.is_empty() {
        let named = experiment.runs.iter().map(|run| {
            let mut settings = base.clone();
            merge(&mut settings, &run.settings);
            (BTreeMap::from([("run".to_owned(), run.name.clone())]), settings)
        });
        return Ok(named.collect());
    }
    let mut combinations: Vec<Merged> = vec![(BTreeMap::new(), vec![])];
    for (factor, levels) in &experiment.factors {
        let levels = patches(factor, levels)?;
        if levels.is_empty() {
            return Err(Error::input(format!("factor `{factor}` has no levels"), "give at least one"));
        }
        if combinations.len().saturating_mul(levels.len()) > RUNS_MAX {
            return Err(Error::input("the factors expand to more than a million runs", "leave some levels out"));
        }
        let mut more = Vec::with_capacity(combinations.len() * levels.len());
        for (labels, patches) in &combinations {
            for (label, patch) in &levels {
                let mut labels = labels.clone();
                labels.insert(factor.clone(), label.clone());
                let mut patches = patches.clone();
                patches.push(patch.clone());
                more.push((labels, patches));
            }
        }
        combinations = more;
    }
    for excluded in &experiment.exclude {
        check_labels(experiment, excluded)?;
    }
    combinations.retain(|(labels, _)| !experiment.exclude.iter().any(|excluded| excludes(excluded, labels)));
    let merged = combinations.into_iter().map(|(labels, patches)| {
        let mut settings = base.clone();
        patches.iter().for_each(|patch| merge(&mut settings, patch));
        check_kept(&labels, &patches, &settings)?;
        Ok((labels, settings))
    });
    merged.collect()
}

/// What a factor's level says is in the settings still when all factors are merged: or the run would have a level's name and not
/// what the level says.
fn check_kept(labels: &BTreeMap<String, String>, patches: &[Value], settings: &Value) -> Result<()> {
    for ((factor, label), patch) in labels.iter().zip(patches) {
        let mut again = settings.clone();
        merge(&mut again, patch);
        if again != *settings {
            return Err(Error::input(
                format!("another factor undoes the level `{label}` of factor `{factor}` ({})", describe(labels)),
                "leave such combinations out by `exclude`, or make one factor of both, whose levels have a name and a patch each",
            ));
        }
    }
    Ok(())
}

/// Levels of a factor as (label, patch).
fn patches(factor: &str, levels: &Levels) -> Result<Vec<(String, Value)>> {
    match levels {
        Levels::Patches(patches) => Ok(patches.iter().map(|(label, patch)| (label.clone(), patch.clone())).collect()),
        Levels::Values(values) => {
            let named: Vec<_> = values
                .iter()
                .map(|value| {
                    let patch = factor.rsplit('.').fold(value.clone(), |inner, key| {
                        Value::Object([(key.to_owned(), inner)].into_iter().collect())
                    });
                    (label(value), patch)
                })
                .collect();
            let mut labels: Vec<_> = named.iter().map(|(label, _)| label).collect();
            labels.sort();
            if let Some(twice) = labels.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Error::input(
                    format!("factor `{factor}` has the level `{}` twice", twice[0]),
                    "leave one out",
                ));
            }
            Ok(named)
        }
    }
}

fn label(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // {"posix": {}} is called posix.
        Value::Object(object) if object.len() == 1 && object.values().all(is_empty) => {
            object.keys().next().cloned().unwrap_or_default()
        }
        other => other.to_string(),
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn check_labels(experiment: &Experiment, excluded: &BTreeMap<String, Labels>) -> Result<()> {
    for (factor, labels) in excluded {
        let known = patches(factor, &experiment.factors[factor])?;
        for wanted in listed(labels) {
            if !known.iter().any(|(label, _)| *label == wanted) {
                let all: Vec<_> = known.iter().map(|(label, _)| format!("`{label}`")).collect();
                return Err(Error::input(
                    format!("`exclude` names the level `{wanted}` of factor `{factor}`, which there is not"),
                    format!("its levels are {}", all.join(", ")),
                ));
            }
        }
    }
    Ok(())
}

fn listed(labels: &Labels) -> Vec<String> {
    match labels {
        Labels::Several(values) => values.iter().map(label).collect(),
        Labels::One(value) => vec![label(value)],
    }
}

fn excludes(excluded: &BTreeMap<String, Labels>, labels: &BTreeMap<String, String>) -> bool {
    !excluded.is_empty()
        && excluded
            .iter()
            .all(|(factor, wanted)| labels.get(factor).is_some_and(|label| listed(wanted).contains(label)))
}

/// Enumerations are objects with one key (`{"posix": {}}`): a patch with another key replaces them.
const CHOICES: [&str; 4] = ["backend", "workload", "layout", "reorder"];

/// RFC 7396, but for choices, where the patch's alternative replaces another one.
pub fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(patch), true) = (patch, target.is_object()) else {
        *target = patch.clone();
        return;
    };
    let target = target.as_object_mut().expect("it was an object just now");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
            continue;
        }
        let slot = target.entry(key.clone()).or_insert(Value::Null);
        let other_choice = CHOICES.contains(&key.as_str())
            && match (&*slot, value) {
                (Value::Object(old), Value::Object(new)) => new.keys().any(|choice| !old.contains_key(choice)),
                _ => true,
            };
        // What is new takes a patch's keys, too, so that nulls in it are no values.
        if slot.is_null() || other_choice {
            *slot = Value::Object(serde_json::Map::new());
        }
        merge(slot, value);
    }
}
