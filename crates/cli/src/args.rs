//! The command line's grammar. Flags that set a setting are named in `terrace_core::declared`; a test compares the two.

use crate::door::DoorArgs;
use crate::hdf5::Hdf5;
use crate::service::{self, Service};
use clap::error::{ContextKind, ContextValue};
use clap::{ArgGroup, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
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
    about = "Run unmodified programs on faster storage tiers, and flush what they write",
    help_template = "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\nOptions:\n{options}\n\n\
                     Run `terrace COMMAND --help` for a command's options."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Commands as `--help` lists them. Clap groups flags, not commands.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Run", &["run", "join", "flush", "evict", "prefetch", "stage-in", "stage-out", "recover", "drain"]),
    ("Inspect", &["status", "ls", "explain", "config", "doctor"]),
    ("Objects", &["stat", "get", "put", "rm", "tag", "import", "export", "sql", "savime"]),
    ("Services", &["serve", "web"]),
    ("Tools", &["predict", "bench", "completions"]),
];

/// The grammar, with the groups of commands.
pub fn grammar() -> clap::Command {
    let grammar = Cli::command();
    let mut text = String::new();
    for (group, names) in GROUPS {
        text.push_str(&format!("\n{group}:\n"));
        for name in names {
            let command = grammar.find_subcommand(name).expect("a test compares the groups with the commands");
            text.push_str(&format!("  {name:<11} {}\n", command.get_about().unwrap_or_default()));
        }
    }
    grammar.after_help(text.trim().to_owned())
}

/// The command line, or what is wrong with it.
pub fn parse_from(words: impl IntoIterator<Item = impl Into<OsString>>) -> Result<Cli, clap::Error> {
    let words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    if let Some(service) = service::parse(&words) {
        return Ok(Cli { command: Command::Service(service) });
    }
    let mut grammar = grammar();
    let matches = grammar.try_get_matches_from_mut(words).map_err(|error| with_suggestion(error, &grammar))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut grammar))
}

/// Clap's own suggestions don't know letters that changed places (`rnu`), but do know commands that are hidden.
fn with_suggestion(mut error: clap::Error, grammar: &clap::Command) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    let known = || grammar.get_subcommands().filter(|known| !known.is_hide_set()).map(clap::Command::get_name);
    let meant: Vec<String> = match (nearest(word, known()), error.get(ContextKind::SuggestedSubcommand)) {
        (Some(nearest), _) => vec![nearest.to_owned()],
        (None, Some(ContextValue::Strings(others))) => {
            others.iter().filter(|other| known().any(|known| known == *other)).cloned().collect()
        }
        (None, _) => vec![],
    };
    error.remove(ContextKind::SuggestedSubcommand);
    if !meant.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    }
    error
}

const COMPLETIONS_HELP: &str = "\
Where they go:
  bash  ~/.local/share/bash-completion/completions/terrace
  zsh   a directory of $fpath, as _terrace
  fish  ~/.config/fish/completions/terrace.fish";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run a command with its files on faster tiers, then flush them
    Run(RunArgs),
    /// Hold an agent on this node for a launch (started by `run --nodes` on each node)
    Join(JoinArgs),
    /// Serve a root's tiers and objects until interrupted
    Serve(ServeArgs),
    /// Serve a root's objects over HTTP: a web page and a Zarr store
    Web(WebArgs),
    /// Show objects and their tags
    Stat(ObjectsArgs),
    /// Copy an object to a file (arrays as .npy or raw cells)
    Get(GetArgs),
    /// Create an object from a file (.npy becomes an array)
    Put(PutArgs),
    /// Remove objects
    Rm(RemoveArgs),
    /// Show, set, delete or search tags
    Tag(TagArgs),
    /// Show what a root's agent is doing
    Status(StatusArgs),
    /// List files on the faster tiers, with their state
    Ls(ListArgs),
    /// Show which rule and tier apply to a path, and why
    Explain(PathArgs),
    /// Import HDF5, NetCDF, FITS, NumPy or Zarr as arrays
    Import(ImportArgs),
    /// Export arrays to HDF5, NetCDF, FITS, NumPy or Zarr
    Export(ExportArgs),
    /// Flush files to the root now
    Flush(FlushArgs),
    /// Flush files, then drop their copies on the faster tiers
    Evict(PathsArgs),
    /// Copy files to the faster tiers
    Prefetch(PathsArgs),
    /// Bring objects from an object store (S3, GCS, Azure, HTTP) into a directory
    #[command(disable_help_flag = true)]
    StageIn {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
        arguments: Vec<OsString>,
    },
    /// Send the files of a directory to an object store
    #[command(disable_help_flag = true)]
    StageOut {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
        arguments: Vec<OsString>,
    },
    /// Flush what a crashed agent left on the faster tiers
    Recover(RecoverArgs),
    /// Flush what a user's ended jobs left on this node, for all roots (for a batch system's epilog)
    Drain(DrainArgs),
    /// Check tiers, limits, and whether a program is supported
    Doctor(DoctorArgs),
    /// Check the settings and print those in effect
    #[command(after_help = declarations_help())]
    Config(ConfigArgs),
    /// Predict a job's run time with and without Terrace
    #[command(disable_help_flag = true)]
    Predict {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
        arguments: Vec<OsString>,
    },
    /// Query arrays and the catalogue in SQL
    Sql(SqlArgs),
    /// Run commands in SAVIME's language
    Savime(AskedArgs),
    /// Measure storage
    #[command(disable_help_flag = true)]
    Bench {
        /// A command of the tool and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARG")]
        arguments: Vec<OsString>,
    },
    /// Print a shell's completions
    #[command(after_help = COMPLETIONS_HELP)]
    Completions { shell: clap_complete::Shell },
    /// Write a man page for each command
    #[command(hide = true)]
    ManPages { directory: PathBuf },
    #[command(flatten)]
    Service(Service),
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    #[command(flatten)]
    pub doors: DoorArgs,
    /// Stop the program after this time, less the margin, to leave time for the flush [default: what Slurm or PBS says]
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "TERRACE_WALLTIME")]
    pub walltime: Option<Duration>,
    /// Time reserved for the flush before the walltime ends
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "TERRACE_WALLTIME_MARGIN", default_value = "60s")]
    pub walltime_margin: Duration,
    /// Time between a SIGTERM of the batch system and its SIGKILL [default: Slurm's KillWait; 10s in PBS]
    #[arg(long, value_name = "DURATION", value_parser = duration, env = "TERRACE_KILL_WAIT")]
    pub kill_wait: Option<Duration>,
    /// Accelerate all nodes of the job: slurm, pbs, mpi, hosts:FILE or hosts:HOST,HOST…
    #[arg(long, value_name = "NODES")]
    pub nodes: Option<String>,
    /// Command that starts a program on other nodes; with {host} once for each node, else once for all
    /// [default: srun, mpirun or ssh, by --nodes]
    #[arg(long, value_name = "COMMAND", requires = "nodes")]
    pub launcher: Option<String>,
    /// Use the CFITSIO driver (for programs that load libcfitsio)
    #[arg(long, env = "TERRACE_CFITSIO", conflicts_with = "mount")]
    pub cfitsio: bool,
    /// Use the HDF5 connector (HDF5 1.14 and later): what is written is asked for while the program runs; `both` keeps it as Zarr, too
    #[arg(long, value_name = "KEEP", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "file", env = "TERRACE_HDF5",
        conflicts_with_all = ["mount", "nodes"])]
    pub hdf5: Option<Hdf5>,
    /// Bring objects from an object store into a directory below the root, beside the command; may be repeated
    #[arg(long, value_name = "[DIR=]URL")]
    pub stage_in: Vec<String>,
    /// Start the command when all of that is there
    #[arg(long)]
    pub stage_wait: bool,
    /// Send a directory below the root to an object store, as its files become durable; may be repeated
    #[arg(long, value_name = "[DIR=]URL")]
    pub stage_out: Vec<String>,
    /// Write a report to this file: JSON, or with a name that ends in .html a page that shows the run over time
    #[arg(long, value_name = "FILE", env = "TERRACE_REPORT")]
    pub report: Option<PathBuf>,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Show what the policy would do with the files below the root; run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Command to run, with its arguments
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct JoinArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// The launch that this node joins
    #[arg(long, hide = true)]
    pub launch: Option<String>,
    /// Nodes of the launch
    #[arg(long, hide = true, requires = "launch")]
    pub of: Option<usize>,
    /// The tag of the node that the launch was started on
    #[arg(long, hide = true, requires = "launch")]
    pub head: Option<String>,
}

#[derive(Args, Debug)]
pub struct ConvertSettings {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// File format: hdf5, netcdf, fits, numpy or zarr [default: by file name]
    #[arg(long)]
    pub format: Option<String>,
    /// Print only what was skipped
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct ImportArgs {
    #[command(flatten)]
    pub convert: ConvertSettings,
    /// Replace existing arrays
    #[arg(long)]
    pub replace: bool,
    pub file: PathBuf,
    /// Container below the root; created if missing
    pub name: String,
}

#[derive(Args, Debug)]
pub struct ExportArgs {
    #[command(flatten)]
    pub convert: ConvertSettings,
    /// Array or container below the root
    pub name: String,
    pub file: PathBuf,
}

#[derive(Args, Debug)]
#[command(group(ArgGroup::new("queries").args(["flight", "http"]).multiple(true)))]
pub struct ServeArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Also serve remote clients by TCP. Addresses other than loopback use TLS with a self-signed certificate, created beside the token
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: Option<String>,
    /// Also serve Arrow Flight SQL (ADBC, JDBC) with the same token and the same TLS rules as --listen; of several agents, the first one does
    #[arg(long, value_name = "ADDRESS:PORT", requires = "token_file")]
    pub flight: Option<String>,
    /// Memory limit for all Flight SQL queries together [default: 50% of free memory]
    #[arg(long, value_name = "SIZE", requires = "flight")]
    pub query_memory: Option<OsString>,
    /// Memory limit for each query of Flight SQL or of the page [default: as for all together; of the page: 10% of free memory]
    #[arg(long, value_name = "SIZE", requires = "queries")]
    pub query_memory_each: Option<OsString>,
    /// Time limit for each query of Flight SQL or of the page [default: none; of the page: 5min]
    #[arg(long, value_name = "DURATION", requires = "queries")]
    pub query_timeout: Option<OsString>,
    /// Let sorts and joins of queries that exceed their memory go on in this directory
    #[arg(long, value_name = "DIR", requires = "queries")]
    pub query_spill: Option<PathBuf>,
    /// Also serve objects over HTTP with the same token; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["hosts", "slurm"])]
    pub http: Option<String>,
    /// File with the token clients must present (at least 16 characters); created if missing
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Use TLS on loopback addresses too
    #[arg(long)]
    pub tls: bool,
    /// Disable TLS; token and data are sent in clear text
    #[arg(long, conflicts_with = "tls")]
    pub plain: bool,
    /// Start one agent on each host listed in this file, one per line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "slurm", "mpi"])]
    pub hosts: Option<PathBuf>,
    /// Start one agent on each node of this Slurm allocation
    #[arg(long, conflicts_with_all = ["listen", "mpi"])]
    pub slurm: bool,
    /// Run as one of several agents started by mpirun or srun
    #[arg(long)]
    pub mpi: bool,
    /// Command that starts a program on another host; {host} is replaced by its name
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<String>,
    /// One of several agents: its number, and how many there are
    #[arg(long, value_name = "NUMBER/COUNT", hide = true, conflicts_with = "mpi")]
    pub member: Option<String>,
    #[arg(long, hide = true, requires = "member")]
    pub launch: Option<String>,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args, Debug)]
pub struct WebArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Serve objects of a remote agent, tcp://ADDRESS:PORT; token from TERRACE_TOKEN or TERRACE_TOKEN_FILE
    #[arg(long, value_name = "TARGET", requires = "token_file")]
    pub connect: Option<String>,
    /// Listen here; port 0 takes a free one. Addresses other than loopback use TLS
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// File with the token clients must present (at least 16 characters); created if missing [default: in the state directory]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Use TLS on loopback addresses too
    #[arg(long)]
    pub tls: bool,
    /// Disable TLS; token and data are sent in clear text
    #[arg(long, conflicts_with = "tls")]
    pub plain: bool,
    /// Memory limit for each query of the page [default: 10% of free memory]
    #[arg(long, value_name = "SIZE")]
    pub query_memory: Option<OsString>,
    /// Time limit for each query of the page [default: 5min]
    #[arg(long, value_name = "DURATION")]
    pub query_timeout: Option<OsString>,
    /// Let sorts and joins of queries that exceed their memory go on in this directory
    #[arg(long, value_name = "DIR")]
    pub query_spill: Option<PathBuf>,
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
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Queries to run [default: standard input, or a prompt on a terminal]
    pub query: Option<OsString>,
    /// Read queries from a file, separated by semicolons
    #[arg(long, short, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// Output format: table, csv, json, ndjson, arrow, parquet; for savime also savime [default: table, or by the output's name]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<OsString>,
    /// Query a remote agent, tcp://ADDRESS:PORT; token from TERRACE_TOKEN or TERRACE_TOKEN_FILE
    #[arg(long, value_name = "TARGET")]
    pub connect: Option<String>,
    /// Write rows to this file
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Memory limit for queries
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<OsString>,
    /// Time limit for each query
    #[arg(long, value_name = "DURATION")]
    pub query_timeout: Option<OsString>,
    /// Spill sorts and joins that exceed the memory limit to this directory
    #[arg(long, value_name = "DIR")]
    pub spill: Option<PathBuf>,
    /// Query threads [default: one per CPU]
    #[arg(long, value_name = "N")]
    pub query_threads: Option<OsString>,
    /// Disable array-native plans (for comparison)
    #[arg(long)]
    pub generic: bool,
}

#[derive(Args, Debug)]
pub struct SqlArgs {
    #[command(flatten)]
    pub asked: AskedArgs,
    /// Run the query for each completed step of this container until interrupted; $step is the step's number
    #[arg(long, value_name = "CONTAINER", requires = "query")]
    pub watch: Option<OsString>,
    /// First step to watch [default: 0]
    #[arg(long, value_name = "STEP", requires = "watch")]
    pub from: Option<OsString>,
    /// Cancel a running query of this root; terrace.queries lists their IDs
    #[arg(long, value_name = "ID", conflicts_with_all = ["query", "file", "output", "watch"])]
    pub cancel: Option<OsString>,
    /// Exit after this many steps
    #[arg(long, value_name = "N", requires = "watch")]
    pub steps: Option<OsString>,
}

#[derive(Args, Debug)]
pub struct PutArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Replace an existing object
    #[arg(long)]
    pub replace: bool,
    pub file: PathBuf,
    /// Path below the root; missing containers are created
    pub name: String,
}

#[derive(Args, Debug)]
pub struct RemoveArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Remove containers and their contents
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
    /// Find objects with this tag (below NAME, if given)
    #[arg(long, value_name = "KEY", conflicts_with = "changes")]
    pub find: Option<String>,
    /// Find: value equals
    #[arg(long, requires = "find")]
    pub value: Option<String>,
    /// Find: value starts with
    #[arg(long, requires = "find", conflicts_with = "value")]
    pub prefix: Option<String>,
    /// Find: value ends with
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix"])]
    pub suffix: Option<String>,
    /// Find: value contains
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix", "suffix"])]
    pub infix: Option<String>,
    /// Find: value fits a pattern (`*`, `?`); KEY is a pattern, too
    #[arg(long, requires = "find", value_name = "PATTERN", conflicts_with_all = ["value", "prefix", "suffix", "infix"])]
    pub like: Option<String>,
    /// Find: value is at least
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix", "suffix", "infix", "like"])]
    pub from: Option<String>,
    /// Find: value is at most
    #[arg(long, requires = "find", conflicts_with_all = ["value", "prefix", "suffix", "infix", "like"])]
    pub to: Option<String>,
    /// Delete the named tags
    #[arg(long)]
    pub delete: bool,
    /// A path below the root
    pub name: Option<String>,
    /// KEY=VALUE sets a tag, KEY shows it; without either, all tags are shown
    pub changes: Vec<String>,
}

#[derive(Args, Debug)]
pub struct StatusArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Show a screen that is drawn anew each second until the agent exits; without a terminal, print every second
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
    /// Only this file, or files below this directory
    pub path: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct PathArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// File below the root; it need not exist
    pub path: PathBuf,
}

#[derive(Args, Debug)]
pub struct FlushArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Also flush what the policy keeps on its tier
    #[arg(long)]
    pub all: bool,
    /// Also flush what lies on other nodes of the root, by their agents
    #[arg(long)]
    pub all_nodes: bool,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Files or directories, regardless of policy [default: what the policy flushes]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Debug)]
pub struct PathsArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Print only errors
    #[arg(long, short)]
    pub quiet: bool,
    /// Files or directories [default: all; for prefetch, what the policy names]
    pub paths: Vec<PathBuf>,
}

#[derive(Args, Debug, Default)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub settings: SettingArgs,
    /// Declare a node gone for good, by its host name or tag: its files are what the root last had of them
    #[arg(long, value_name = "NAME")]
    pub node_is_gone: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct DrainArgs {
    /// The user, by number [default: you]
    #[arg(long, value_name = "UID")]
    pub uid: Option<u32>,
    /// Where the user's agents keep their state, if not below /var/tmp
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
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
    /// Program to check, with its arguments
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
    fn each_command_is_listed_in_one_group() {
        let grammar = Cli::command();
        let mut visible: Vec<&str> =
            grammar.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        visible.sort_unstable();
        listed.sort_unstable();
        assert_eq!(visible, listed);
        let help = super::grammar().render_help().to_string();
        assert!(help.contains("Inspect:\n") && help.contains("  ls          List files"), "{help}");
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
