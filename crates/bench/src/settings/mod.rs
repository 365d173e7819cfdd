//! The settings of one run: what workers do, to which files, by which calls.

mod check;
mod storage;

pub use storage::*;

use crate::error::{Error, Result};
use crate::quantity::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RunSettings {
    /// Worker processes.
    pub workers: u32,
    /// What is measured, one after the other. Metadata workloads: create, stat, list, unlink.
    pub operations: Vec<Operation>,
    /// How often the operations are done in each replication.
    pub repetitions: u32,
    pub files: Files,
    /// Below the experiment's directory; without one it is named after the run, the replication and the repetition. `{worker:08}`,
    /// `{run}`, `{replication}` and `{repetition}` stand for numbers, `{a|b}` for choices that workers take in turn.
    pub file_name: Option<String>,
    /// Each worker's file in a directory of its own.
    pub directory_per_worker: bool,
    /// Leave the files there.
    pub keep: bool,
    /// What becomes of a file that is there and that the experiment did not make.
    pub existing: Existing,
    pub workload: Workload,
    pub backend: BackendSettings,
    pub layout: LayoutSettings,
    /// When data is made durable.
    pub flush: Flush,
    /// State of the page cache before reads.
    pub cache: Cache,
    /// Each worker reads what another one wrote.
    pub reorder: Reorder,
    /// Wait for all workers after open and before close, so that phases don't overlap.
    pub barriers: bool,
    pub stonewall: Option<Stonewall>,
    /// Open loop: requests are issued when they are due, not when the last one is done.
    pub rate: Option<Rate>,
    /// Merge requests of one worker that follow each other in the file.
    pub coalesce: Coalesce,
    /// Check what is read: `true`, all is read once more for it, outside of the measured time. `within` checks each read as it comes,
    /// and what that takes is in the rate. `noted`, only what is known to be written by an experiment.
    pub verify: Verify,
    /// Time between two repetitions.
    pub delay: Span,
    /// Seed of the run, instead of the experiment's.
    pub seed: Option<u64>,
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            workers: 1,
            operations: vec![Operation::Write, Operation::Read],
            repetitions: 1,
            files: Files::Shared,
            file_name: None,
            directory_per_worker: false,
            keep: false,
            existing: Existing::Refuse,
            workload: Workload::Offset(OffsetWorkload::default()),
            backend: BackendSettings::default(),
            layout: LayoutSettings::default(),
            flush: Flush::End,
            cache: Cache::AsIs,
            reorder: Reorder::None,
            barriers: false,
            stonewall: None,
            rate: None,
            coalesce: Coalesce::Off,
            verify: Verify::Plain(true),
            delay: Span(0.0),
            seed: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    Write,
    Read,
    /// Reads and writes in the ratio of the workload's `read_fraction`, on files that were written before.
    Mixed,
    Create,
    Stat,
    List,
    /// Opens, reads and checks each file of a tree.
    ReadFiles,
    Unlink,
    /// Walks what is below a directory.
    Find,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Mixed => "mixed",
            Operation::Create => "create",
            Operation::Stat => "stat",
            Operation::List => "list",
            Operation::ReadFiles => "read_files",
            Operation::Find => "find",
            Operation::Unlink => "unlink",
        }
    }
    /// Of a tree of files.
    pub fn is_metadata(self) -> bool {
        !matches!(self, Operation::Write | Operation::Read | Operation::Mixed | Operation::Find)
    }
    /// Uses what was written before.
    pub fn reads(self) -> bool {
        !matches!(self, Operation::Write | Operation::Create | Operation::Find)
    }
    pub fn writes(self) -> bool {
        matches!(self, Operation::Write | Operation::Create)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Files {
    Shared,
    PerWorker,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Requests at offsets of a file.
    Offset(OffsetWorkload),
    /// Variables over an n-dimensional grid that is divided among the workers.
    Dataset(DatasetWorkload),
    /// Particles with properties, divided among the workers.
    Particles(ParticleWorkload),
    /// Trees of small files.
    Metadata(MetadataWorkload),
    /// What has a name, a size and an age, anywhere below a directory.
    Find(FindWorkload),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OffsetWorkload {
    pub pattern: Pattern,
    /// Bytes of each worker: one size, or one for each worker (taken in turn).
    pub data_size: Sizes,
    pub request_size: Sizes,
    /// Blocks that each worker's data is cut into (`segmented`): block by block, the workers follow each other.
    pub segments: u32,
    /// Where the data begins in the file.
    pub start: Bytes,
    /// Left free behind each worker's data (`sequential`) or each block (`segmented`).
    pub gap: Bytes,
    /// Part of the requests of a mixed operation that read.
    pub read_fraction: f64,
}

impl Default for OffsetWorkload {
    fn default() -> Self {
        OffsetWorkload {
            pattern: Pattern::Sequential,
            data_size: Sizes::One(Bytes(1 << 20)),
            request_size: Sizes::One(Bytes(256 << 10)),
            segments: 1,
            start: Bytes(0),
            gap: Bytes(0),
            read_fraction: 0.5,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each worker's requests one after the other; in a shared file worker after worker.
    Sequential,
    /// Every request once, in a random order, anywhere in the file.
    Random,
    /// The workers' requests take turns in a shared file.
    Strided,
    /// As sequential, in `segments` rounds.
    Segmented,
}

/// One size for all workers, a list of which each takes its own, or a distribution to draw each worker's from.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Sizes {
    One(Bytes),
    Each(Vec<Bytes>),
    Drawn(Distribution),
}

/// By what it looks like, so that an error is about that.
impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Sizes, D::Error> {
        let written = serde_json::Value::deserialize(deserializer)?;
        let sizes = match &written {
            serde_json::Value::Array(_) => serde_json::from_value(written).map(Sizes::Each),
            serde_json::Value::Object(_) => serde_json::from_value(written).map(Sizes::Drawn),
            _ => serde_json::from_value(written).map(Sizes::One),
        };
        sizes.map_err(serde::de::Error::custom)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    #[serde(alias = "unif")]
    Uniform(UniformParameters),
    #[serde(alias = "norm")]
    Normal(NormalParameters),
    #[serde(alias = "geom")]
    Geometric(GeometricParameters),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UniformParameters {
    pub min: Bytes,
    pub max: Bytes,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NormalParameters {
    pub mean: Bytes,
    #[serde(alias = "stdev")]
    pub standard_deviation: Bytes,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeometricParameters {
    pub mean: Bytes,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DatasetWorkload {
    /// One entry for each variable; they lie one after the other in the file, each in row-major order.
    #[serde(default = "one_float")]
    pub variables: Vec<DataType>,
    /// Cells along each dimension, the last one contiguous.
    pub dimensions: Vec<u64>,
    /// Into how many parts each dimension is divided; their product is the number of workers.
    /// Parts differ by one cell at most where a division is uneven. Without it the first dimension is divided.
    #[serde(default)]
    pub divisions: Vec<u32>,
}

fn one_float() -> Vec<DataType> {
    vec![DataType::Float32]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DataType {
    #[serde(alias = "char")]
    Int8,
    Int16,
    #[serde(alias = "integer")]
    Int32,
    #[serde(alias = "long", alias = "long long")]
    Int64,
    #[serde(alias = "float")]
    Float32,
    #[serde(alias = "double")]
    Float64,
}

impl DataType {
    pub fn bytes(self) -> u64 {
        match self {
            DataType::Int8 => 1,
            DataType::Int16 => 2,
            DataType::Int32 | DataType::Float32 => 4,
            DataType::Int64 | DataType::Float64 => 8,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ParticleWorkload {
    /// All particles; workers get numbers that differ by one at most.
    pub count: u64,
    pub properties: Vec<DataType>,
    #[serde(default)]
    pub arrangement: Arrangement,
    /// Largest request.
    #[serde(default = "default_particle_request")]
    pub request_size: Bytes,
}

fn default_particle_request() -> Bytes {
    Bytes(1 << 20)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrangement {
    /// One property of all particles after the other.
    #[default]
    Columns,
    /// All properties of one particle after the other.
    Records,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetadataWorkload {
    /// Files that each worker makes.
    pub files: u32,
    /// Levels of directories.
    pub depth: u32,
    /// Directories in each directory.
    pub fanout: u32,
    pub file_size: Bytes,
    /// All workers in one tree, or each in its own.
    pub shared_tree: bool,
    /// Files are at the tree's bottom only.
    pub leaf_only: bool,
    /// After the last file is created its file system is synced; part of the measured time.
    pub sync: bool,
}

impl Default for MetadataWorkload {
    fn default() -> Self {
        MetadataWorkload {
            files: 100,
            depth: 1,
            fanout: 2,
            file_size: Bytes(0),
            shared_tree: false,
            leaf_only: true,
            sync: false,
        }
    }
}

/// What is found below `file_name`, or below the experiment's directory; without a condition everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FindWorkload {
    pub name_contains: Option<String>,
    pub size: Option<Bytes>,
    /// A file below the experiment's directory: only what was changed after it.
    pub newer_than: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Flush {
    Never,
    /// Once after the last request; part of the measured time.
    End,
    /// After each request.
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Existing {
    Refuse,
    /// Write over it in place, and cut off what is longer. Needs `keep`.
    Overwrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, false, `within` or `noted`")]
pub enum Verify {
    Plain(bool),
    Named(Check),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// As each read comes, within the measured time.
    Within,
    /// As `true`, but a file that nobody has noted is read only.
    Noted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    AsIs,
    Cold,
    Warm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reorder {
    None,
    /// Read what a worker on another node wrote; refused where all workers run on one node.
    Node,
    /// Read what the worker so many places further wrote.
    Shift(u32),
    /// As IOR's -C: read what was written so many nodes further, where workers fill node after node; so many workers further, where they
    /// take turns. All on one node, each reads its own.
    Nodes(u32),
    /// As IOR's -Z: read what a worker drawn at random wrote.
    Random(RandomReorder),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RandomReorder {
    /// Without one another order in each replication.
    pub seed: Option<u64>,
    /// At least so many nodes further.
    pub nodes: u32,
    /// The data of each worker is read once; else by nobody, one or several.
    pub each_once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stonewall {
    /// Stop issuing requests after this time.
    pub after: Span,
    /// Then go on until all have issued as many as the fastest had.
    #[serde(default)]
    pub wear_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rate {
    /// Of each worker.
    pub requests_per_second: f64,
    #[serde(default)]
    pub arrivals: Arrivals,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    #[default]
    Constant,
    Poisson,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Coalesce {
    Off,
    /// Up to the worker's whole part.
    On,
    /// Up to so many bytes.
    UpTo(Bytes),
}

impl Coalesce {
    pub fn limit(self) -> Option<u64> {
        match self {
            Coalesce::Off => None,
            // One call moves at most 2 GiB less a page on Linux; a request is one call.
            Coalesce::On => Some(1 << 30),
            Coalesce::UpTo(Bytes(bytes)) => Some(bytes),
        }
    }
}

/// A part of an experiment, or an error that says at which key.
pub fn read<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> Result<T> {
    if !value.is_object() {
        return Err(Error::input(
            format!("this is not an object: {value}"),
            "begin with `{`, and give keys and values",
        ));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, reason) = (error.path().to_string(), error.inner().to_string());
        let hint = match reason.as_str() {
            reason if reason.contains("expected newtype variant") => "write it as an object: `{ \"posix\": {} }`",
            reason if reason.contains("map with a single key") => "give one of them only",
            _ => "`terrace bench schema` prints the format, docs/guide/bench.md explains it",
        };
        Error::input(if path == "." { reason } else { format!("`{path}`: {reason}") }, hint)
    })
}
