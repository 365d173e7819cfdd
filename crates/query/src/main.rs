//! `terrace-query`: what `terrace sql` calls. A program of its own, because DataFusion would make every other command several
//! times as large.
//!
//!   sql: a query, a file of them, or a prompt ─▶ rows in a format
//!   worker: queries of a program that started it, by pipe                flight: queries of Flight SQL's clients
//!   node: parts of queries of other nodes' programs

mod chunks;
mod flight;
#[cfg(test)]
mod fuzz;
mod interrupt;
mod language;
mod lending;
mod listening;
mod node;
mod output;
mod prepared;
mod progress;
mod prompt;
mod sql_info;
mod statements;
mod threads;
mod tickets;
mod worker;

use clap::{Args, Parser, Subcommand};
use language::Language;
use output::Format;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::Duration;
use terrace_analysis::{Engine, Options, Watch};
use terrace_client::Session;
use terrace_core::size::{DURATION_HINT, SIZE_HINT, parse_duration};
use terrace_tool::failure::Failure;
use terrace_tool::server_args::ServerArgs;

#[derive(Parser)]
#[command(name = "terrace-query", version, about = "Queries on objects (called by `terrace sql`)")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer SQL: given, from a file, from the standard input, or at a prompt
    Sql(SqlArgs),
    /// Run commands of SAVIME's language: given, from a file, from the standard input, or at a prompt
    Savime(SavimeArgs),
    /// Answer queries that come by the standard input, as the Python package and the C library ask them
    Worker(WorkerArgs),
    /// Answer SQL of Arrow Flight SQL's clients, until a signal comes; `terrace serve --flight` starts it
    Flight(FlightArgs),
    /// Answer parts of queries on arrays that several agents share, until a signal comes; `terrace serve` starts it beside each agent
    Node(FlightArgs),
}

#[derive(Args)]
struct EngineArgs {
    /// A root's path, or tcp://ADDRESS:PORT of an agent elsewhere [default: the root of this run]
    #[arg(long, value_name = "TARGET", default_value = "")]
    connect: String,
    /// Most memory that queries may hold
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Most memory that one query may hold
    #[arg(long, value_name = "SIZE")]
    query_memory: Option<String>,
    /// How long a query may take
    #[arg(long, value_name = "DURATION")]
    query_timeout: Option<String>,
    /// Let sorts and joins that don't fit go on in this directory
    #[arg(long, value_name = "DIR")]
    spill: Option<PathBuf>,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Answer without array-native plans, for comparison
    #[arg(long)]
    generic: bool,
}

#[derive(Args)]
struct WorkerArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// A socket of packets, inherited: rows are in memory whose descriptors are sent there
    #[arg(long, value_name = "DESCRIPTOR")]
    lend: Option<i32>,
}

/// What is asked, and where the answers go.
#[derive(Args)]
struct Asked {
    /// The query; without it, the standard input, or a prompt
    query: Option<String>,
    /// Read queries, ended by semicolons, from a file
    #[arg(long, short, value_name = "FILE", conflicts_with = "query")]
    file: Option<PathBuf>,
    /// How rows are written [default: table, or what the output's name says]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write rows into this file
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args)]
struct SavimeArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Args)]
struct SqlArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    asked: Asked,
    /// Ask the query, which says $step, once for each step of this container when it is complete, until a signal comes
    #[arg(long, value_name = "CONTAINER", requires = "query", conflicts_with_all = ["file", "output"])]
    watch: Option<String>,
    /// The first step that is watched
    #[arg(long, value_name = "STEP", requires = "watch", default_value_t = 0)]
    from: u64,
    /// End this query, of any process on this root, and return when it has ended
    #[arg(long, value_name = "ID", conflicts_with_all = ["query", "file", "output", "watch"])]
    cancel: Option<String>,
    /// End after so many steps
    #[arg(long, value_name = "N", requires = "watch")]
    steps: Option<u64>,
}

#[derive(Args)]
struct FlightArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// For a query of another process to end.
const CANCEL_PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let command = Cli::parse().command;
    // Expressions are evaluated level by level, on this thread too.
    let begun = std::thread::Builder::new().stack_size(terrace_analysis::STACK_BYTES).spawn(move || run(&command));
    let done = match begun.map(|thread| thread.join()) {
        Ok(Ok(done)) => done,
        // It has said why.
        Ok(Err(_)) => std::process::exit(101),
        Err(error) => Err(Failure::new(format!("no thread can be started: {error}"))),
    };
    if let Err(failure) = done.map_err(interrupt::as_told) {
        failure.print_as("");
        std::process::exit(failure.code);
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Sql(args) => sql(args),
        Command::Savime(args) => answer(&engine(&args.engine)?, &args.asked, Language::Savime),
        Command::Worker(args) => {
            let lender = args.lend.map(lending::Lender::new).transpose()?.flatten();
            let engine = engine(&args.engine)?;
            interrupt::ends_with_the_asker(&engine);
            worker::serve(&engine, lender.as_ref())
        }
        Command::Flight(args) => flight(args),
        Command::Node(args) => {
            listening::keep_little_memory();
            node::serve(options(&args.engine)?, args.engine.connect.clone(), &args.server)
        }
    }
}

fn engine(args: &EngineArgs) -> Result<Engine, Failure> {
    let options = options(args)?;
    let session = Session::connect(&args.connect).map_err(terrace_analysis::Error::from)?;
    Ok(Engine::new(session, &options)?)
}

fn options(args: &EngineArgs) -> Result<Options, Failure> {
    let size = |flag: &str, given: &Option<String>| {
        let parsed = given.as_ref().map(|text| {
            let size = terrace_core::size::Size::parse(text)
                .map_err(|error| Failure::invalid(format!("{flag} {text}: {error}")).hint(SIZE_HINT))?;
            Ok::<_, Failure>(size.bytes(terrace_tool::filesystem::memory_available_bytes().unwrap_or(0)) as usize)
        });
        parsed.transpose()
    };
    let memory_bytes_max = size("--memory", &args.memory)?;
    let query_memory_bytes_max = size("--query-memory", &args.query_memory)?;
    let query_time_max = match &args.query_timeout {
        None => None,
        Some(text) => Some(
            parse_duration(text)
                .map_err(|error| Failure::invalid(format!("--query-timeout: {error}")).hint(DURATION_HINT))?,
        ),
    };
    if let Some(directory) = args.spill.as_ref().filter(|directory| !directory.is_dir()) {
        return Err(Failure::invalid(format!("--spill {}: there is no such directory", directory.display())));
    }
    Ok(Options {
        memory_bytes_max,
        spill: args.spill.clone(),
        threads: args.threads,
        query_memory_bytes_max,
        query_time_max,
        who: interrupt::who(),
        array_plans: !args.generic,
    })
}

fn flight(args: &FlightArgs) -> Result<(), Failure> {
    listening::keep_little_memory();
    flight::serve(&engine(&args.engine)?, &args.server)
}

fn sql(args: &SqlArgs) -> Result<(), Failure> {
    let engine = engine(&args.engine)?;
    if let Some(id) = &args.cancel {
        return Ok(engine.queries().objects().queries.cancel(id, CANCEL_PATIENCE)?);
    }
    if let (Some(container), Some(query)) = (&args.watch, &args.asked.query) {
        return watch(&engine, container, query, args, format(&args.asked)?);
    }
    answer(&engine, &args.asked, Language::Sql)
}

fn format(args: &Asked) -> Result<Format, Failure> {
    Ok(match (args.format, &args.output) {
        (Some(format), _) => format,
        (None, Some(path)) => Format::of_path(path).ok_or_else(|| {
            Failure::invalid(format!("{}: its name does not say which format is wanted", path.display()))
                .hint("give --format, or a name that ends in .csv, .json, .ndjson, .arrow or .parquet")
        })?,
        (None, None) => Format::Table,
    })
}

fn answer(engine: &Engine, args: &Asked, language: Language) -> Result<(), Failure> {
    interrupt::ends_queries(engine)?;
    let format = format(args)?;
    let texts = match (&args.query, &args.file) {
        (Some(query), _) => query.clone(),
        (None, Some(file)) => std::fs::read_to_string(file)
            .map_err(|error| Failure::invalid(format!("can't read {}: {error}", file.display())))?,
        (None, None) if std::io::stdin().is_terminal() => return prompt::run(engine, format, language),
        (None, None) => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::invalid(format!("can't read the standard input: {error}")))?;
            text
        }
    };
    let queries = language.split(&texts);
    if queries.is_empty() {
        return Err(Failure::invalid("there is no query").hint(language.example()));
    }
    if queries.len() > 1 && args.output.is_some() {
        return Err(Failure::invalid(format!("{} queries, and one file for their rows", queries.len()))
            .hint("give one query with --output"));
    }
    for query in queries {
        let shown = progress::show(engine);
        let batches = language.run(engine, query)?.showing(shown);
        match &args.output {
            Some(path) => output::to_file(batches, format, path)?,
            None => output::to_stdout(batches, format)?,
        }
    }
    Ok(())
}

/// Rows of each step as they come; a step without rows says nothing.
fn watch(engine: &Engine, container: &str, query: &str, args: &SqlArgs, format: Format) -> Result<(), Failure> {
    let mut watch = Watch::new(engine.queries(), container, query, args.from)?;
    let mut left = args.steps.unwrap_or(u64::MAX);
    let mut is_first = true;
    while left > 0 {
        let Some(answer) = engine.runtime().block_on(watch.next(None))? else { continue };
        match output::step(&answer, format, is_first) {
            Err(failure) if output::is_reader_gone(&failure) => return Ok(()),
            done => done?,
        }
        is_first &= answer.rows.iter().all(|batch| batch.num_rows() == 0);
        left -= 1;
    }
    Ok(())
}
