//! `terrace serve`: an agent without a program of its own. Programs come and go; what they leave is made durable at the end.

mod listening;

use crate::agent_process::Joined;
use crate::args::ServeArgs;
use crate::failure::{Failure, Result};
use crate::keeper::Keeper;
use crate::signals::Signals;
use crate::{check, resolve, run};
use std::io::Write;
use std::time::Duration;

/// How long one look for a signal lasts.
const LOOK: Duration = Duration::from_secs(3600);

pub fn serve(args: &ServeArgs) -> Result<i32> {
    let mut resolved = resolve::resolve(&args.settings)?;
    if !args.quiet {
        resolved.print_warnings();
    }
    let is_there = crate::control_client::running(&resolved.settings)?.is_some();
    check::settings(&resolved.settings, is_there)?;
    if resolved.settings.library.exists() {
        let library = resolved.settings.library.clone();
        resolved.settings.library = run::loadable(&resolved.settings, &library, resolve::LIBRARY)?;
    }
    resolved.settings.listen = listening::wanted(args)?;
    let settings = &resolved.settings;
    let signals = Signals::block().map_err(|error| Failure::new(format!("can't take signals: {error}")))?;
    let (keeper, begun) = Keeper::begin(settings, &["terrace serve".into()], args.quiet)?;
    if begun.joined == Joined::Existing && !args.quiet {
        run::tell_differences(settings);
    }
    // For `eval`: programs of this environment find the agent. A reader that has gone needs no line.
    let mut out = std::io::stdout();
    let _ = writeln!(out, "export {}={}", terrace_index::INDEX_ENV, begun.index.display()).and_then(|()| out.flush());
    loop {
        let taken = signals.next(LOOK).map(|taken| taken.signal);
        match taken {
            Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) => break,
            Some(libc::SIGTSTP) => crate::signals::stop_self(),
            _ => {}
        }
    }
    let flushed = run::flush_attended(settings, &signals, args.quiet)?;
    drop(keeper);
    if flushed.failures.is_empty() {
        return Ok(0);
    }
    let failure = run::not_durable(&flushed, settings);
    let code = failure.code;
    failure.print();
    Ok(code)
}
