//! `terrace-web`: objects over HTTP. A program of its own, so that `terrace` stays small, and so that what is sent to it by others
//! harms no agent: to that it is a client like any other.
//!
//!   connection ─▶ access (token, cookie) ─▶ route ─▶ zarr: keys of a store ─┐
//!                                                 ─▶ api: status, objects, slices, events ─┼─▶ store (a session; whole steps)
//!                                                 ─▶ query: SQL, by a process of the engine for each; queries: their list
//!                                                 ─▶ page: files that are in this program ─┘
//!
//! Invariant: no object is written, and whatever a request says, it is answered: a path that makes no sense is an error of the request.

// They panic when nobody reads.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod agent;
mod api;
mod events;
mod listener;
mod metrics;
mod page;
mod path;
mod queries;
mod query;
mod refusal;
mod reply;
mod route;
mod slice;
mod store;
mod traces;
mod zarr;

use access::Access;
use clap::Parser;
use listener::Listener;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use terrace_client::Session;
use terrace_tool::failure::Failure;
use terrace_tool::server_args::ServerArgs;
use tokio::sync::Semaphore;
use traces::Traces;

/// Threads that read objects; requests beyond wait for their turn.
const READERS: usize = 16 + events::READERS_MAX + query::QUERIES_MAX;
/// How long answers that are being sent may take when the program ends.
const END: Duration = Duration::from_secs(2);

#[derive(Parser)]
#[command(
    name = "terrace-web",
    version,
    about = "Objects over HTTP (called by `terrace web` and `terrace serve --http`)"
)]
struct Cli {
    /// A root's path, or tcp://ADDRESS:PORT of an agent elsewhere [default: the root of this run]
    #[arg(long, value_name = "TARGET", default_value = "")]
    connect: String,
    #[command(flatten)]
    server: ServerArgs,
    /// Most memory that one query of the page may hold
    #[arg(long, value_name = "SIZE", default_value = "10%")]
    query_memory: String,
    /// How long a query of the page may take
    #[arg(long, value_name = "DURATION", default_value = "5min")]
    query_timeout: String,
    /// Let sorts and joins of queries that exceed their memory go on in this directory
    #[arg(long, value_name = "DIR")]
    query_spill: Option<PathBuf>,
    /// Exit at the end of standard input
    #[arg(long, hide = true)]
    until_input_ends: bool,
}

/// All that a request may need.
pub struct App {
    pub access: Access,
    pub store: Arc<Store>,
    /// Places for pages that are told of changes.
    pub watchers: Arc<Semaphore>,
    pub engine: query::Engine,
}

fn main() {
    if let Err(failure) = serve(&Cli::parse()) {
        failure.print_as("terrace-web: ");
        std::process::exit(failure.code);
    }
}

fn serve(cli: &Cli) -> Result<(), Failure> {
    let listener = Listener::open(&cli.server)?;
    let token = access::read_token(&cli.server.token_file)?;
    let session = Session::connect(&cli.connect)?;
    let access = Access::new(token, listener.address.port(), listener.tls.is_some())?;
    say_where(&listener, &access, &cli.server.token_file);
    let app = Arc::new(App {
        access,
        store: Arc::new(Store::new(session)),
        watchers: Arc::new(Semaphore::new(events::READERS_MAX)),
        engine: query::Engine::new(&cli.connect, &cli.query_memory, &cli.query_timeout, cli.query_spill.as_deref())?,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(READERS)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no threads can be started: {error}")))?;
    let handle = axum_server::Handle::new();
    if cli.until_input_ends {
        let handle = handle.clone();
        std::thread::spawn(move || {
            let _ = std::io::stdin().read_to_end(&mut vec![]);
            handle.graceful_shutdown(Some(END));
        });
    }
    let ended = runtime.block_on(async {
        tokio::spawn(end_by_signal(handle.clone()));
        let traces = Traces::start(&app.store)?;
        let ended = listener.serve(route::router(app), handle).await;
        if let Some(traces) = traces {
            traces.end(END).await;
        }
        ended.map_err(|error| Failure::new(format!("can't serve any longer: {error}")))
    });
    // What still reads is not waited for.
    runtime.shutdown_background();
    ended
}

/// For people, and for `terrace serve`, which reads the first line.
fn say_where(listener: &Listener, access: &Access, token_file: &std::path::Path) {
    let base = listener.url();
    let mut lines = format!("page: {base}/?token={} (works once)\n", access.code());
    lines.push_str(&format!("zarr: {base}/zarr/ (with the token in {})\n", token_file.display()));
    if let Some(fingerprint) = &listener.fingerprint {
        lines.push_str(&format!("fingerprint: {fingerprint}\n"));
    }
    // A reader that has gone needs no lines.
    let mut out = std::io::stdout();
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
}

async fn end_by_signal(handle: axum_server::Handle<std::net::SocketAddr>) {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return; // they end the program at once then
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    handle.graceful_shutdown(Some(END));
}
