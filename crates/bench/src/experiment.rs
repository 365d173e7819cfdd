//! The experiment: what a user writes, in JSON, YAML or TOML.
//!
//!   text ──read──▶ Experiment { base, factors, exclude, replications, order, seed } ──plan──▶ runs
//!
//! A run's settings are `base` with the levels of each factor merged over it (RFC 7396), so a factor may vary
//! anything that a run has. Unknown keys are refused everywhere, with the path of the key.

use crate::error::{Error, Result};
use crate::quantity::Span;
use crate::settings::RunSettings;
use crate::strict::Strict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Names the results.
    #[serde(default = "default_name")]
    pub name: String,
    /// Where the files of the experiment are made; relative to the experiment's file.
    pub directory: PathBuf,
    /// Everything that is drawn at random (the order of runs, random offsets, sizes) follows from it.
    #[serde(default)]
    pub seed: u64,
    #[serde(default)]
    pub replications: Replications,
    /// The order of the runs in each replication.
    #[serde(default)]
    pub order: Order,
    /// Time between two runs.
    #[serde(default)]
    pub delay: Span,
    /// No run begins after this time; `resume` goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// What all runs have in common.
    #[serde(default)]
    pub base: Value,
    /// What varies. A list of values is put at the factor's name, a dotted path (`workload.offset.request_size`);
    /// an object gives each level a name and a patch that is merged over `base`.
    #[serde(default)]
    pub factors: BTreeMap<String, Levels>,
    /// Combinations that are left out: for each factor named, one level or a list of them.
    #[serde(default)]
    pub exclude: Vec<BTreeMap<String, Labels>>,
    /// Runs without factors, each a patch over `base`; instead of `factors`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<NamedRun>,
    /// Where the workers run.
    #[serde(default)]
    pub launch: Launch,
}

fn default_name() -> String {
    "experiment".into()
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedRun {
    pub name: String,
    #[serde(default)]
    pub settings: Value,
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of levels, or an object that gives each level a name and a patch")]
pub enum Levels {
    Values(Vec<Value>),
    Patches(BTreeMap<String, Value>),
}

#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Labels {
    Several(Vec<Value>),
    One(Value),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As written, in every replication.
    Fixed,
    /// Shuffled anew in every replication, by the seed.
    #[default]
    Random,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a number from 1 to 4294967295, or a stopping rule { relative_width, confidence, min, max }"
)]
pub enum Replications {
    Fixed(u32),
    Until(StoppingRule),
}

/// Replicate until the interval of each run's median rate is narrow enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoppingRule {
    /// Width of the interval over the median.
    pub relative_width: f64,
    #[serde(default = "default_confidence")]
    pub confidence: f64,
    #[serde(default = "default_min")]
    pub min: u32,
    pub max: u32,
}

fn default_confidence() -> f64 {
    0.95
}
fn default_min() -> u32 {
    6
}

impl Default for Replications {
    fn default() -> Self {
        Replications::Fixed(1)
    }
}

impl Replications {
    pub fn max(self) -> u32 {
        match self {
            Replications::Fixed(n) => n,
            Replications::Until(rule) => rule.max,
        }
    }
}

/// How worker processes are started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Hosts to start workers on by `ssh`, taking turns; none: this machine.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// A command that starts all workers of a run, such as `mpirun --oversubscribe -n {workers}` or `srun -n {workers}`;
    /// the worker's own command is put behind it.
    #[serde(default)]
    pub command: Option<String>,
    /// The address on which workers find the coordinator, when they are not on this machine.
    #[serde(default)]
    pub address: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
    Toml,
}

impl Format {
    pub fn of(path: &Path) -> Result<Format> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => Ok(Format::Json),
            Some("yaml" | "yml") => Ok(Format::Yaml),
            Some("toml") => Ok(Format::Toml),
            _ => Err(Error::input(
                format!("{}: the name does not tell the format", path.display()),
                "name it .json, .yaml or .toml",
            )),
        }
    }
}

impl Experiment {
    /// Reads an experiment, in our own format or IORE's; relative directories become relative to the file's.
    pub fn read(path: &Path) -> Result<Experiment> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Error::input(format!("can't read the experiment {}: {error}", path.display()), "name an existing file")
        })?;
        let mut experiment = Experiment::parse(&text, Format::of(path)?)
            .map_err(|error| Error::input(format!("{}: {error}", path.display()), error.hint().unwrap_or_default()))?;
        if experiment.directory.is_relative() {
            let base = path.parent().map(Path::to_owned).unwrap_or_default();
            let base = std::path::absolute(if base.as_os_str().is_empty() { Path::new(".") } else { &base })
                .map_err(|error| Error::io("resolve", base.display(), error))?;
            experiment.directory = base.join(&experiment.directory);
        }
        Ok(experiment)
    }

    pub fn parse(text: &str, format: Format) -> Result<Experiment> {
        let refused = |error: String, format: &str| {
            let twice = error.contains("twice") || error.contains("uplicate");
            let hint = if twice { "leave one of them out".to_owned() } else { format!("this is not {format}") };
            Error::input(error, hint)
        };
        let Strict(value) = match format {
            Format::Json => serde_json::from_str(text).map_err(|error| refused(error.to_string(), "JSON"))?,
            Format::Yaml => serde_norway::from_str(text).map_err(|error| refused(error.to_string(), "YAML"))?,
            Format::Toml => toml::from_str(text).map_err(|error| refused(error.to_string(), "TOML"))?,
        };
        if crate::iore::looks_like(&value) {
            return crate::iore::translate(value);
        }
        let experiment: Experiment = crate::settings::read(value)?;
        experiment.check()?;
        Ok(experiment)
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.replications.max() == 0 {
            return Err(Error::input("`replications` is 0: nothing would run", "give at least 1"));
        }
        if let Replications::Until(rule) = self.replications {
            let sensible =
                rule.relative_width > 0.0 && rule.confidence > 0.5 && rule.confidence < 1.0 && rule.min <= rule.max;
            if !sensible {
                return Err(Error::input(
                    "`replications`: relative_width must be above 0, confidence between 0.5 and 1, min at most max",
                    "for example { \"relative_width\": 0.05, \"min\": 6, \"max\": 50 }",
                ));
            }
        }
        if !self.runs.is_empty() && !self.factors.is_empty() {
            return Err(Error::input("`runs` and `factors` are both given", "use one of them"));
        }
        for factor in self.exclude.iter().flat_map(BTreeMap::keys) {
            if !self.factors.contains_key(factor) {
                let known = self.factors.keys().map(String::as_str);
                let near = terrace_core::refusal::nearest(factor, known);
                return Err(Error::input(
                    format!("`exclude` names the factor `{factor}`, which there is not"),
                    near.map_or("name a factor of `factors`".into(), |near| format!("did you mean `{near}`?")),
                ));
            }
        }
        Ok(())
    }

    /// The published schema, with that of a run's settings in it.
    pub fn schema() -> Value {
        let mut schema = schemars::schema_for!(Experiment).to_value();
        let mut settings = schemars::schema_for!(RunSettings).to_value();
        let definitions = settings.as_object_mut().and_then(|settings| settings.remove("$defs"));
        let object = schema.as_object_mut().expect("a schema is an object");
        let all = object.entry("$defs").or_insert_with(|| serde_json::json!({}));
        if let (Some(all), Some(Value::Object(more))) = (all.as_object_mut(), definitions) {
            all.extend(more);
        }
        if let Some(settings) = settings.as_object_mut() {
            settings.remove("$schema");
            // `base` is a part of a run's settings: factors may give the rest.
            settings.remove("required");
        }
        all["RunSettings"] = settings;
        object["properties"]["base"] = serde_json::json!({ "$ref": "#/$defs/RunSettings" });
        schema
    }
}
