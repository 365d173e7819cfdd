//! The command line's grammar. Flags that set a setting are named in `terrace_core::declared`; a test compares the two.

use crate::door::DoorArgs;
use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use terrace_core::refusal::nearest;
use terrace_core::size::parse_duration;
use terrace_tool::setting_args::{SettingArgs, declarations_help};

#[derive(Parser, Debug)]
#[command(
    name = "terrace",
    version,
    about = "Runs unmodified programs on faster storage tiers, and flushes what they write."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The command line, or what is wrong with it. Clap's own suggestions don't know letters that changed places (`rnu`).
pub fn parse_from(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(words).map_err(|mut error| {
        let (Some(ContextValue::String(word)), None) =
            (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::SuggestedSubcommand))
        else {
            return error;
        };
        let grammar = Cli::command();
        let known = grammar.get_subcommands().filter(|known| !known.is_hide_set()).map(clap::Command::get_name);
        if let Some(meant) = nearest(word, known) {
            let meant = ContextValue::Strings(vec![meant.to_owned()]);
            error.insert(ContextKind::SuggestedSubcommand, meant);
        }
        error
    })
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a command with its files in the faster tiers, then make them durable
    Run(RunArgs),
    /// Serve a root's tiers until a signal comes, for programs that use objects
    Serve(ServeArgs),
    /// Serve a root's objects over HTTP until a signal comes: a page for people, a Zarr store for programs
    Web(WebArgs),
    /// Show what an object is, with its tags
    Stat(ObjectsArgs),
    /// Copy an object into a file: an array into NAME.npy (or its plain cells), a bytes object as it is
    Get(GetArgs),
    /// Make an object of a file: a .npy file becomes an array, any other a bytes object
    Put(PutArgs),
    /// Remove objects
    Rm(RemoveArgs),
    /// Show, set and delete tags of an object, or find objects by a tag
    Tag(TagArgs),
    /// Show what the agent of a root does
    Status(StatusArgs),
    /// List which tier holds what, in which state
    Ls(ListArgs),
    /// Say which rule and tier a path gets, and why
    Explain(PathArgs),
    /// Take over a file of HDF5, NetCDF, FITS, NumPy or Zarr as arrays (by the Python package)
    Import(ImportArgs),
    /// Write an array or a container into a file of HDF5, NetCDF, FITS, NumPy or Zarr (by the Python package)
    Export(ExportArgs),
    /// Make files durable now
    Flush(FlushArgs),
    /// Free the faster tiers of files, making them durable first
    Evict(PathsArgs),
    /// Bring files up into the faster tiers
    Prefetch(PathsArgs),
    /// Make durable what a dead agent left
    Recover(RecoverArgs),
    /// Check tiers, limits, and what kind of program a command is
    Doctor(DoctorArgs),
    /// Check the settings and print what is in force
    #[command(after_help = declarations_help())]
    Config(ConfigArgs),
    /// Predict how long a job takes on the durable tier alone and with Terrace, and what limits it
    #[command(disable_help_flag = true)]
    Predict {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
        arguments: Vec<OsString>,
    },
    /// Ask questions of arrays and of the catalogue in SQL: a query, a file of them, or at a prompt
    Sql(SqlArgs),
    /// Run commands of SAVIME's language: definitions and queries of arrays, a file of them, or at a prompt
    Savime(SavimeArgs),
    /// Measure storage: experiments, tiers (`terrace bench --help`)
    #[command(disable_help_flag = true)]
    Bench {
        /// A command of the tool and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
        arguments: Vec<OsString>,
    },
    /// Serve a root's tiers (started by `run`)
    #[command(hide = true)]
    Agent {
        #[arg(long)]
        settings: PathBuf,
    },
    /// Keep a supervisor at work while a run's programs live (started by `run`)
    #[command(hide = true)]
    Keep {
        #[arg(long)]
        settings: PathBuf,
        #[arg(long)]
        socket: i32,
    },
    /// Serve a run's private mount (started by `run --mount`)
    #[command(hide = true)]
    View {
        #[arg(long)]
        settings: PathBuf,
        #[arg(long)]
        socket: i32,
    },
    /// Answer a run's programs' calls (started by `keep`)
    #[command(hide = true)]
    Supervise(SuperviseArgs),
}

/// Descriptors by their numbers.
#[derive(Args, Debug)]
pub struct SuperviseArgs {
    #[arg(long)]
    pub library: PathBuf,
    #[arg(long)]
    pub index: PathBuf,
    #[arg(long)]
    pub listener: i32,
    #[arg(long)]
    pub board: i32,
    #[arg(long)]
    pub socket: i32,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    #[command(flatten)]
    pub doors: DoorArgs,
    /// End the program so long after its start, in time for the flush
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "TERRACE_WALLTIME")]
    pub walltime: Option<Duration>,
    /// Time kept for the flush before the walltime's end
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "TERRACE_WALLTIME_MARGIN", default_value = "60s")]
    pub walltime_margin: Duration,
    /// Serve CFITSIO's reads and writes by its own driver (for programs that load libcfitsio)
    #[arg(long, env = "TERRACE_CFITSIO", conflicts_with = "mount")]
    pub cfitsio: bool,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE", env = "TERRACE_REPORT")]
    pub report: Option<PathBuf>,
    /// Print nothing of our own but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Print what policy would do to the files that are below the root now, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct ConvertSettings {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// hdf5, netcdf, fits, numpy or zarr, where the file's name does not tell
    #[arg(long)]
    pub format: Option<String>,
    /// Tell only what is left out
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct ImportArgs {
    #[command(flatten)]
    pub convert: ConvertSettings,
    /// Replace arrays that are there already
    #[arg(long)]
    pub replace: bool,
    pub file: PathBuf,
    /// A container below the root, which is made if it is not there
    pub name: String,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    pub convert: ConvertSettings,
    /// An array or a container below the root
    pub name: String,
    pub file: PathBuf,
}

#[derive(Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Also serve clients that come by TCP; outside this machine's loopback they need TLS, with a certificate that is made
    /// beside the token
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Also answer SQL of Arrow Flight SQL's clients (ADBC, JDBC), with the same token; outside loopback by TLS, as --listen
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token_file", conflicts_with_all = ["hosts", "slurm", "mpi"])]
    pub flight: Option<String>,
    /// Most memory that queries of Flight SQL may hold, all together [default: 50% of what is free at the start]
    #[arg(long, value_name = "SIZE", requires = "flight")]
    pub query_memory: Option<OsString>,
    /// Also serve objects over HTTP, with the same token; port 0: one that is free
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["hosts", "slurm"])]
    pub http: Option<String>,
    /// File with the token that such clients must show (16 characters or more); made if it is not there
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// TLS on a loopback address too
    #[arg(long)]
    pub tls: bool,
    /// No TLS anywhere: token and data can be read by whoever listens on the network
    #[arg(long, conflicts_with = "tls")]
    pub plain: bool,
    /// One agent on each host of this file, a host on each line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "slurm", "mpi"])]
    pub hosts: Option<PathBuf>,
    /// One agent on each node of this Slurm allocation
    #[arg(long, conflicts_with_all = ["listen", "mpi"])]
    pub slurm: bool,
    /// One of several agents that MPI's launcher (or srun) starts
    #[arg(long)]
    pub mpi: bool,
    /// How a command is started on another host; {host} stands for its name
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<String>,
    /// One of several agents: its number, and how many there are
    #[arg(long, value_name = "NUMBER/COUNT", hide = true, conflicts_with = "mpi")]
    pub member: Option<String>,
    #[arg(long, hide = true, requires = "member")]
    pub launch: Option<String>,
    /// Print nothing of our own but errors
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct WebArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Serve the objects of an agent elsewhere: tcp://ADDRESS:PORT, with its token in TERRACE_TOKEN or TERRACE_TOKEN_FILE
    #[arg(long, value_name = "TARGET", requires = "token_file")]
    pub connect: Option<String>,
    /// Where to listen; port 0: one that is free. Outside this machine's loopback it is TLS
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// File with the token that clients must show (16 characters or more); made if it is not there [default: in the root's state]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// TLS on a loopback address too
    #[arg(long)]
    pub tls: bool,
    /// No TLS anywhere: token and data can be read by whoever listens on the network
    #[arg(long, conflicts_with = "tls")]
    pub plain: bool,
}

#[derive(Args, Debug)]
pub struct ObjectsArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Paths below the root
    #[arg(required = true)]
    pub names: Vec<String>,
}

#[derive(Args, Debug)]
pub struct GetArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// A path below the root
    pub name: String,
    pub file: PathBuf,
}

/// What queries of every language have in common.
#[derive(Args, Debug)]
pub struct AskedArgs {
    /// Ask an agent elsewhere: tcp://ADDRESS:PORT, with the token in TERRACE_TOKEN or TERRACE_TOKEN_FILE
    #[arg(long, value_name = "TARGET")]
    pub connect: Option<String>,
    /// Write rows into this file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Most memory that queries may hold
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<OsString>,
    /// Let sorts and joins that don't fit go on in this directory
    #[arg(long, value_name = "DIR")]
    pub spill: Option<PathBuf>,
    /// Threads of queries [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub query_threads: Option<OsString>,
    /// Answer without array-native plans, for comparison
    #[arg(long)]
    pub generic: bool,
}

#[derive(Args, Debug)]
pub struct SqlArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// The query; without it, the standard input, or a prompt
    pub query: Option<OsString>,
    /// Read queries, ended by semicolons, from a file
    #[arg(long, short, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// How rows are written: table, csv, json, ndjson, arrow, parquet [default: table, or what the output's name says]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<OsString>,
    /// Ask the query, which says $step, once for each step of this container when it is complete, until a signal comes
    #[arg(long, value_name = "CONTAINER", requires = "query")]
    pub watch: Option<OsString>,
    /// The first step that is watched [default: 0]
    #[arg(long, value_name = "STEP", requires = "watch")]
    pub from: Option<OsString>,
    /// End after so many steps
    #[arg(long, value_name = "N", requires = "watch")]
    pub steps: Option<OsString>,
    #[command(flatten)]
    pub asked: AskedArgs,
}

#[derive(Args, Debug)]
pub struct SavimeArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// The commands; without them, the standard input, or a prompt
    pub query: Option<OsString>,
    /// Read commands, ended by semicolons, from a file
    #[arg(long, short, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// How rows are written: table, csv, json, ndjson, arrow, parquet, savime [default: table, or what the output's name says]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<OsString>,
    #[command(flatten)]
    pub asked: AskedArgs,
}

#[derive(Args, Debug)]
pub struct PutArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Replace an object of this name
    #[arg(long)]
    pub replace: bool,
    pub file: PathBuf,
    /// A path below the root; containers above it are made
    pub name: String,
}

#[derive(Args, Debug)]
pub struct RemoveArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Also containers with what is in them
    #[arg(long, short)]
    pub recursive: bool,
    /// Paths below the root
    #[arg(required = true)]
    pub names: Vec<String>,
}

#[derive(Args, Debug)]
pub struct TagArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Find objects that have this tag (below NAME, if one is given)
    #[arg(long, value_name = "KEY", conflicts_with = "changes")]
    pub find: Option<String>,
    /// … with this value
    #[arg(long, requires = "find")]
    pub value: Option<String>,
    /// … whose text begins so
    #[arg(long, requires = "find", conflicts_with = "value")]
    pub prefix: Option<String>,
    /// … whose text ends so
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix"])]
    pub suffix: Option<String>,
    /// … whose text has this in it
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix", "suffix"])]
    pub infix: Option<String>,
    /// … from this value on
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix", "suffix", "infix"])]
    pub from: Option<String>,
    /// … up to this value
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix", "suffix", "infix"])]
    pub to: Option<String>,
    /// Delete the tags whose keys are named
    #[arg(long)]
    pub delete: bool,
    /// A path below the root
    pub name: Option<String>,
    /// KEY=VALUE sets, KEY shows; none shows all
    pub changes: Vec<String>,
}

#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print again every second until the agent ends
    #[arg(long, short)]
    pub watch: bool,
}

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Only this file, or what lies below this directory
    pub path: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct PathArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A file below the root; it need not exist
    pub path: PathBuf,
}

#[derive(Args, Debug)]
pub struct FlushArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Also what policy keeps in its tier
    #[arg(long)]
    pub all: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Files or directories, whatever policy says of them [default: what policy flushes]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub struct PathsArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print nothing but errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Files or directories [default: everywhere; for prefetch what policy says]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct DoctorArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    #[command(flatten)]
    pub doors: DoorArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A program to look at; its arguments may follow
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|reason| format!("{reason}; {}", terrace_core::size::DURATION_HINT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::declared::SETTINGS;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_declared_setting_has_its_flag() {
        let run = Cli::command().find_subcommand("run").unwrap().clone();
        for declared in &SETTINGS {
            let found = run.get_arguments().any(|argument| argument.get_long() == Some(declared.flag));
            assert!(found, "--{} of `{}` is missing", declared.flag, declared.key);
        }
    }

    #[test]
    fn the_programs_own_flags_are_the_programs() {
        let cli = Cli::parse_from(["terrace", "run", "--quiet", "--", "ls", "--quiet", "-l"]);
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.command, ["ls", "--quiet", "-l"]);
        let cli = Cli::parse_from(["terrace", "run", "ls", "--root", "x"]);
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.command, ["ls", "--root", "x"]);
        assert!(run.settings.root.is_none());
    }

    #[test]
    fn what_looks_like_a_flag_before_the_command_is_one_of_ours_or_a_mistake() {
        let error = Cli::try_parse_from(["terrace", "run", "--flsh", "x", "--", "true"]).unwrap_err().to_string();
        assert!(error.contains("'--flsh'") && error.contains("'--flush'"), "{error}");
        let cli = Cli::parse_from(["terrace", "run", "--", "--flsh", "x"]);
        let Command::Run(run) = cli.command else { panic!() };
        assert_eq!(run.command, ["--flsh", "x"]);
    }

    #[test]
    fn letters_that_changed_places_are_a_known_command() {
        let said = |word: &str| parse_from(["terrace", word]).unwrap_err().to_string();
        assert!(said("rnu").contains("similar subcommand exists: 'run'"), "{}", said("rnu"));
        assert!(said("stauts").contains("'status'"), "{}", said("stauts"));
        assert!(!said("xyzzy").contains("similar"), "{}", said("xyzzy"));
        assert!(!said("agnt").contains("agent"), "what is hidden is not suggested: {}", said("agnt"));
    }
}
