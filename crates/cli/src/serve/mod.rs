//! `terrace serve`: an agent without a program of its own. Programs come and go; what they leave is made durable at the end.

mod answering;
mod deploy;

mod leaving;
pub mod listening;

use crate::args::ServeArgs;
use crate::keeper::Keeper;
use crate::scheduler::TimeLeft;
use crate::signals::Signals;
use crate::web::{self, Web};
use crate::{check, hosts, run};
use answering::Answering;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;
use terrace_core::members::{self, AGENTS_MAX, Membership};
use terrace_core::settings::Settings;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::resolve;

/// How long one look for a signal lasts.
const LOOK: Duration = Duration::from_secs(3600);

/// Where clients of Flight SQL come to.
const FLIGHT_ENV: &str = "TERRACE_FLIGHT";

/// Open MPI's and others' way to a node of an allocation, and Slurm's.
const BY_SSH: &str = "ssh -tt -o BatchMode=yes {host}";
const BY_SRUN: &str = "srun --quiet --overlap --nodes=1 --ntasks=1 --nodelist={host}";

pub fn serve(args: &ServeArgs) -> Result<i32> {
    let environment = |name: &str| std::env::var(name).ok();
    if let Some(file) = &args.hosts {
        return deploy::deploy(&hosts::from_file(file)?, args.launcher.as_deref().unwrap_or(BY_SSH), args);
    }
    if args.slurm {
        let hosts = hosts::from_slurm(environment)?;
        return deploy::deploy(&hosts, args.launcher.as_deref().unwrap_or(BY_SRUN), args);
    }
    let member = match (&args.member, args.mpi) {
        (Some(text), _) => Some(membership(text, args.launch.as_deref())?),
        (None, true) => Some(hosts::from_mpi(environment)?),
        (None, false) => None,
    };
    serve_one(args, member)
}

/// The file by which the other agents' nodes know where parts of their queries are answered here.
struct Told(PathBuf);

impl Told {
    fn of(settings: &Settings) -> Option<Told> {
        let number = settings.member.as_ref()?.number;
        Some(Told(members::directory(&settings.root, terrace_index::PRIVATE_DIR).join(members::queries(number))))
    }

    fn to_others(settings: &Settings, address: &str) -> Result<Option<Told>> {
        let Some(told) = Told::of(settings) else { return Ok(None) };
        listening::write_private(&told.0, &format!("{address}\n"))?;
        Ok(Some(told))
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // Whoever still asks is told that nobody answers.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn membership(text: &str, launch: Option<&str>) -> Result<Membership> {
    let parsed = text.split_once('/').and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
    match parsed {
        Some((number, of)) if number < of && of <= AGENTS_MAX => {
            Ok(Membership { number, of, launch: launch.unwrap_or_default().into() })
        }
        _ => Err(Failure::bad_input(format!("`{text}` is not NUMBER/COUNT"), "0/2 is the first of two")),
    }
}

fn serve_one(args: &ServeArgs, member: Option<Membership>) -> Result<i32> {
    let mut resolved = match &member {
        Some(_) => resolve::resolve(&args.settings)?,
        None => resolve::resolve_here(&args.settings)?,
    };
    if !args.quiet {
        resolved.print_warnings();
    }
    match (member, &resolved.settings.member) {
        (Some(member), _) => resolved.settings.join(member),
        (None, Some(one)) => {
            let root = resolved.settings.root.display();
            return Err(Failure::new(format!(
                "several agents serve {root} already, and number {} of {} is on this node",
                one.number, one.of
            ))
            .hint(format!("programs reach them by TERRACE_ROOT={root}")));
        }
        (None, None) => {}
    }
    leaving::await_earlier(&resolved.settings)?;
    let is_there = terrace_tool::control_client::running(&resolved.settings)?.is_some();
    check::settings(&resolved.settings, is_there)?;
    if resolved.settings.library.exists() {
        let library = resolved.settings.library.clone();
        resolved.settings.library = run::loadable(&resolved.settings, &library, resolve::LIBRARY)?;
    }
    resolved.settings.listen = listening::wanted(args, &resolved.settings)?;
    let of_flight = listening::of_flight(args, &resolved.settings)?;
    let settings = &resolved.settings;
    let signals = Signals::block().map_err(|error| Failure::new(format!("can't take signals: {error}")))?;
    // Of one that was killed.
    drop(Told::of(settings));
    let (keeper, begun) = Keeper::hold(settings, "terrace serve", args.quiet)?;
    let mut lines = format!("export {}={}\n", terrace_index::INDEX_ENV, begun.index.display());
    let mut web = None;
    if let Some(address) = &args.http {
        let listen = listening::for_http(address, args.token_file.as_deref(), args.tls, args.plain, settings)?;
        let served = Web::start(&listen, &begun.index, args)?;
        lines.push_str(&format!("export {}={}\n", web::URL_ENV, served.url()));
        web = Some(served);
    }
    let mut for_others = match &settings.listen {
        Some(listen) if settings.member.is_some() => Answering::others(listen, &begun.index, &signals)?,
        _ => None,
    };
    let told = for_others.as_ref().map(|others| Told::to_others(settings, others.address())).transpose()?;
    // For `eval`: programs of this environment find the agent. A reader that has gone needs no line.
    let mut out = std::io::stdout();
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    let mut flight = match &of_flight {
        Some(listen) => Some(Answering::flight(args, listen, &begun.index, &signals)?),
        None => None,
    };
    if let Some(flight) = &flight {
        let _ = writeln!(out, "export {FLIGHT_ENV}={}", flight.location).and_then(|()| out.flush());
    }
    loop {
        let answering = flight.iter_mut().chain(for_others.as_mut());
        let look = answering.filter_map(|process| process.look(&signals)).min().unwrap_or(LOOK);
        let taken = signals.next(look).map(|taken| taken.signal);
        match taken {
            Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) => break,
            Some(libc::SIGTSTP) => crate::signals::stop_self(),
            _ => {}
        }
    }
    drop((flight, told, for_others, web));
    let flushed = run::flush_attended(settings, &signals, args.quiet, &mut TimeLeft::new(None))?;
    drop(keeper);
    leaving::await_end(settings, &signals);
    if flushed.failures.is_empty() {
        return Ok(0);
    }
    let failure = run::not_durable(&flushed, settings);
    let code = failure.code;
    failure.print();
    Ok(code)
}
