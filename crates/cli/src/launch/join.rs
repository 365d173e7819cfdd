//! `terrace join`: this node's part in a launch. An agent, held until the launch ends; then a flush, and word of what was done.
//!
//!   run --nodes ──launcher──▶ join ──▶ agent of this node ◀── tasks that the program starts here
//!
//! The launch speaks by standard input: a line first, so that a launcher which passes none on is known; `flush`; and its end, which
//! comes also when the launch has died. Where nothing comes, the launch's directory is looked at instead.
//! The node speaks by standard output, in lines that begin with `terrace-join`: short ones, for launchers mix up long ones.
//!
//! Invariant: a join returns when its files are durable, or says which are not.

use super::board::Board;
use super::said::Said;
use crate::args::JoinArgs;
use crate::keeper::Keeper;
use crate::report::NodeReport;
use crate::signals::{Signals, wake};
use crate::{check, hosts, run};
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use terrace_agent::node;
use terrace_core::control::{Request, Response};
use terrace_core::settings::Settings;
use terrace_core::size::show_bytes;
use terrace_tool::control_client::Client;
use terrace_tool::errln;
use terrace_tool::failure::{Failure, Result, code};
use terrace_tool::resolve;

/// How often the launch's directory is looked at, where standard input says nothing.
const LOOK: Duration = Duration::from_secs(1);
/// How often a flush says how far it is.
const TELL: Duration = Duration::from_millis(500);

pub fn join(args: &JoinArgs) -> Result<i32> {
    let mut resolved = resolve::resolve_here(&args.run.settings)?;
    let board = match &args.launch {
        Some(launch) => Some(Board::of(&resolved.settings.root, launch)?),
        None => None,
    };
    let of = args.of.or_else(|| hosts::from_mpi(|name| std::env::var(name).ok()).ok().map(|place| place.of as usize));
    let signals = Signals::block().map_err(|error| Failure::new(format!("can't take signals: {error}")))?;
    let heard = Heard::listen();
    if args.head.is_some() && args.head == own_tag(&resolved.settings) {
        say(&Said::Same { of: of.unwrap_or(1) });
        await_end(&heard, board.as_ref(), &signals, || {});
        return Ok(0);
    }
    if !args.run.quiet {
        resolved.print_warnings();
    }
    check::settings(&resolved.settings, terrace_tool::control_client::running(&resolved.settings)?.is_some())?;
    let library = resolved.settings.library.clone();
    resolved.settings.library = run::loadable(&resolved.settings, &library, resolve::LIBRARY)?;
    check::library_version(&resolved.settings.library)?;
    let settings = &resolved.settings;
    let (keeper, begun) = Keeper::begin(settings, &["terrace join".into()], args.run.quiet)?;
    let tag = own_tag(settings).unwrap_or_default();
    if board.is_none() {
        let library = settings.library.display().to_string();
        say(&Said::Reach { library, index: begun.index.display().to_string() });
    }
    say(&Said::Joined { tag: tag.clone(), host: node::host(), of: of.unwrap_or(1) });
    await_end(&heard, board.as_ref(), &signals, || flush_in_passing(settings));

    let mut told = Instant::now();
    let flushed = run::flush(settings, |response| {
        if let Response::Progress { files_done, files_total, bytes_done, bytes_total } = response
            && told.elapsed() > TELL
        {
            told = Instant::now();
            let (files, bytes) = (files_total - files_done, bytes_total.saturating_sub(*bytes_done));
            say(&Said::Left { tag: tag.clone(), files, bytes });
        }
    });
    let after = Client::connect(settings).and_then(|mut client| client.status()).ok();
    let report = NodeReport::of(&tag, &node::host(), &begun.before, after.as_ref(), &flushed, keeper.restarts());
    // A launch that is not there any more, or has died without a word, reads nothing.
    let told = match &board {
        Some(board) if board.is_over() => board.put(&report),
        Some(board) => {
            board.remove_empty();
            Ok(())
        }
        None => Ok(()),
    };
    keeper.end();
    told?;
    say(&Said::Done { tag });
    match flushed {
        Ok(moved) if moved.failures.is_empty() => {
            if board.is_none() && !args.run.quiet {
                let (files, bytes) = (report.counters.flushed_files, report.counters.flushed_bytes);
                errln!("terrace: {}: {files} files ({}) were flushed", report.host, show_bytes(bytes));
            }
            Ok(0)
        }
        Ok(moved) => Err(run::not_durable(&moved, settings)),
        Err(failure) => Err(failure.code(code::NOT_DURABLE)),
    }
}

fn own_tag(settings: &Settings) -> Option<String> {
    Some(std::fs::read_to_string(settings.node_file()).ok()?.trim().to_owned())
}

fn say(said: &Said) {
    // In one piece. A launch that has gone needs no word.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{said}\n").as_bytes()).and_then(|()| out.flush());
}

/// What came by standard input.
#[derive(Default)]
struct Heard {
    has_spoken: AtomicBool,
    has_ended: AtomicBool,
    flushes_wanted: AtomicU32,
}

impl Heard {
    fn listen() -> Arc<Heard> {
        let heard = Arc::new(Heard::default());
        let shared = heard.clone();
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines() {
                let Ok(line) = line else { break };
                shared.has_spoken.store(true, SeqCst);
                if line.trim() == super::FLUSH {
                    shared.flushes_wanted.fetch_add(1, SeqCst);
                    wake();
                }
            }
            // From a launcher that passes nothing on this is no word of the launch's.
            shared.has_ended.store(shared.has_spoken.load(SeqCst), SeqCst);
            wake();
        });
        heard
    }
}

/// Until the launch is over. `flush`: what can be made durable already, for little time may be left.
fn await_end(heard: &Heard, board: Option<&Board>, signals: &Signals, flush: impl Fn()) {
    let mut flushed = 0;
    loop {
        let taken = signals.next(LOOK).map(|taken| taken.signal);
        let is_told = matches!(taken, Some(libc::SIGTERM | libc::SIGINT | libc::SIGHUP | libc::SIGQUIT));
        let is_led = heard.has_spoken.load(SeqCst);
        if heard.has_ended.load(SeqCst) {
            return;
        }
        let wanted = heard.flushes_wanted.load(SeqCst);
        if wanted > flushed || is_told && is_led {
            // A scheduler's signal is for all of the job, whose programs still run: the launch says when they have ended.
            flushed = wanted;
            flush();
        } else if is_told {
            return;
        }
        if !is_led && taken.is_none() && board.is_some_and(|board| board.is_over() || board.is_gone()) {
            return;
        }
    }
}

fn flush_in_passing(settings: &Settings) {
    let settings = settings.clone();
    std::thread::spawn(move || {
        let request = Request::Flush { paths: vec![], all: false, end_of_run: false };
        // The flush at the end says what could not be done.
        let _ = Client::connect(&settings).and_then(|mut client| client.move_files(&request, |_| {}));
    });
}
