//! Which calls move the data (backends), and how files are laid out on servers (layouts).

use crate::quantity::{Bytes, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackendSettings {
    /// pread and pwrite.
    Posix(PosixSettings),
    /// fread and fwrite of the C library.
    Cstream(StreamSettings),
    /// Memory-mapped files.
    Mmap(Plain),
    /// io_uring with several requests under way.
    IoUring(IoUringSettings),
    /// MPI-IO; needs `mpicc` and `mpirun`.
    Mpiio(MpiSettings),
    /// HDF5 over MPI-IO; needs its C library.
    Hdf5(LibrarySettings),
    /// NetCDF; needs its C library.
    Netcdf(LibrarySettings),
    /// Objects in an S3 store.
    S3(S3Settings),
    /// POSIX calls under `terrace run`.
    TerraceFiles(TerraceFilesSettings),
    /// Terrace's objects: bytes objects, and arrays for datasets.
    TerraceObjects(TerraceObjectsSettings),
    /// No storage at all: requests take as long as said, on a clock of their own.
    Null(NullSettings),
}

impl Default for BackendSettings {
    fn default() -> Self {
        BackendSettings::Posix(PosixSettings::default())
    }
}

impl BackendSettings {
    pub fn name(&self) -> &'static str {
        match self {
            BackendSettings::Posix(_) => "posix",
            BackendSettings::Cstream(_) => "cstream",
            BackendSettings::Mmap(_) => "mmap",
            BackendSettings::IoUring(_) => "io_uring",
            BackendSettings::Mpiio(_) => "mpiio",
            BackendSettings::Hdf5(_) => "hdf5",
            BackendSettings::Netcdf(_) => "netcdf",
            BackendSettings::S3(_) => "s3",
            BackendSettings::TerraceFiles(_) => "terrace_files",
            BackendSettings::TerraceObjects(_) => "terrace_objects",
            BackendSettings::Null(_) => "null",
        }
    }
    /// Time that is added to each request, whatever the backend.
    pub fn added_delay(&self) -> Span {
        match self {
            BackendSettings::Posix(settings) => settings.added_delay,
            BackendSettings::Mpiio(settings) => settings.added_delay,
            _ => Span(0.0),
        }
    }
    /// One call moves a worker's whole part of a variable.
    pub fn takes_blocks(&self) -> bool {
        match self {
            BackendSettings::Mpiio(settings) => settings.view,
            BackendSettings::Hdf5(_) | BackendSettings::Netcdf(_) => true,
            BackendSettings::TerraceObjects(settings) => settings.datasets == Datasets::Arrays,
            _ => false,
        }
    }
    /// Files that the page cache may hold.
    pub fn has_local_files(&self) -> bool {
        !matches!(self, BackendSettings::S3(_) | BackendSettings::TerraceObjects(_) | BackendSettings::Null(_))
    }
    pub fn needs_mpi(&self) -> bool {
        matches!(self, BackendSettings::Mpiio(_) | BackendSettings::Hdf5(_) | BackendSettings::Netcdf(_))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Plain {}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PosixSettings {
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// lseek and write instead of pwrite.
    pub seek: bool,
    /// Time added to each request: a slow storage, for tests.
    pub added_delay: Span,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StreamSettings {
    /// Size of the stream's buffer; 0: none. Without it, the C library's own.
    pub buffer: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IoUringSettings {
    pub direct: bool,
    /// Requests under way at once.
    pub depth: u32,
}

impl Default for IoUringSettings {
    fn default() -> Self {
        IoUringSettings { direct: false, depth: 32 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MpiSettings {
    /// All workers make each call together.
    pub collective: bool,
    /// A file view of each worker's part, so that one call moves all of it.
    pub view: bool,
    pub seek: bool,
    /// MPI_Info hints.
    pub hints: BTreeMap<String, String>,
    /// Time added to each call, for tests.
    pub added_delay: Span,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LibrarySettings {
    pub collective: bool,
    /// HDF5: what the library puts into the file begins at multiples of it.
    pub alignment: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct S3Settings {
    pub bucket: String,
    /// Address of the store, such as `http://localhost:9000`; keys come from the environment (AWS_ACCESS_KEY_ID, …).
    #[serde(default)]
    pub endpoint: Option<String>,
    #[serde(default)]
    pub region: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TerraceFilesSettings {
    /// Arguments of `terrace run` besides the root, such as `["--tier", "ram=/dev/shm:1GiB"]`.
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TerraceObjectsSettings {
    /// A root that an agent serves (`terrace serve`), or `tcp://ADDRESS:PORT` of an agent elsewhere, whose token is in TERRACE_TOKEN.
    /// Without it each worker runs under `terrace run`, with the experiment's directory as the root.
    pub connect: Option<String>,
    /// Arguments of `terrace run` besides the root.
    pub arguments: Vec<String>,
    pub datasets: Datasets,
    /// Cells of a chunk of an array's durable form, in each dimension; without them the array's own choice.
    pub chunks: Vec<u64>,
}

/// What a dataset becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Datasets {
    /// An array object for each variable; a request is a worker's whole part.
    #[default]
    Arrays,
    /// One bytes object with the same content as a file would have, written row by row.
    Bytes,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NullSettings {
    /// Median time of a request.
    pub request_time: Span,
    /// Spread of a request's time: standard deviation of its logarithm.
    pub noise: f64,
    /// Times are multiplied by it: a planted effect.
    pub factor: f64,
}

impl Default for NullSettings {
    fn default() -> Self {
        NullSettings { request_time: Span(0.001), noise: 0.1, factor: 1.0 }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LayoutSettings {
    /// Whatever the directory has.
    #[default]
    AsIs,
    Lustre(Stripes),
    #[serde(rename = "orangefs")]
    OrangeFs(Stripes),
    #[serde(rename = "beegfs")]
    BeeGfs(Stripes),
    Local(LocalLayout),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stripes {
    pub stripe_size: Option<Bytes>,
    /// Servers that a file is spread over.
    #[serde(alias = "stripe_width")]
    pub stripe_count: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LocalLayout {
    /// Reserve the file's blocks before it is written.
    pub preallocate: bool,
}
