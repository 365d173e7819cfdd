//! Agents that are on their way out: who has started one waits until it has ended, and who starts another one in its place as well.
//!
//! Reason: an agent stays for as long as programs use it, and a while longer. Whoever met one of an earlier launch would join it, and
//! wait for ever for one of its own.

use crate::signals::Signals;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_core::settings::Settings;
use terrace_tool::control_client::running;
use terrace_tool::failure::{Failure, Result, warn};
use terrace_tool::settings_file::in_force;

const LOOK: Duration = Duration::from_millis(20);
/// Who waits longer says for whom.
const TELL: Duration = Duration::from_secs(3);
/// An agent that programs still use is left to them after so long.
const LEFT: Duration = Duration::from_secs(30);
/// So long a start waits for an agent of an earlier launch.
const EARLIER: Duration = Duration::from_secs(120);

/// Some agent has the lock.
fn is_held(lock: &Path) -> bool {
    File::open(lock).is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(std::fs::TryLockError::WouldBlock)))
}

/// Until the agent that served has ended. One that has other runs is theirs now.
pub fn await_end(settings: &Settings, signals: &Signals) {
    let (begun, mut told) = (Instant::now(), false);
    while is_held(&settings.lock()) {
        let status = running(settings).ok().flatten().map(|(_, status)| status);
        if status.as_ref().is_some_and(|status| !status.runs.is_empty()) {
            return;
        }
        let who = status.map_or(String::new(), |status| format!(" (process {})", status.agent_pid));
        let who = format!("the agent of {}{who}", settings.root.display());
        if begun.elapsed() > LEFT {
            warn(format!("{who} still lives: programs are connected to it, and it ends when they have"));
            return;
        }
        if !told && begun.elapsed() > TELL {
            told = true;
            warn(format!(
                "waiting for {who} to end: programs are still connected to it, or it makes durable what they left"
            ));
        }
        // Told to end once more.
        if let Some(libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) =
            signals.next(LOOK).map(|taken| taken.signal)
        {
            return;
        }
    }
}

/// Until no agent of an earlier launch is in the place of this one.
pub fn await_earlier(settings: &Settings) -> Result<()> {
    let Some(mine) = &settings.member else { return Ok(()) };
    let (begun, mut told) = (Instant::now(), false);
    loop {
        let there = running(settings)?;
        let is_of_this_launch = || in_force(settings).is_some_and(|found| found.member.as_ref() == Some(mine));
        if (there.is_none() && !is_held(&settings.lock())) || (there.is_some() && is_of_this_launch()) {
            return Ok(());
        }
        let process = there.map_or(String::new(), |(_, status)| format!(", process {}", status.agent_pid));
        let who = format!("agent {} of an earlier launch on {}{process}", mine.number, settings.root.display());
        if begun.elapsed() > EARLIER {
            return Err(Failure::new(format!("{who} has not ended in {} s", EARLIER.as_secs()))
                .hint("end the programs that are connected to it; `terrace status` on its node says what it does"));
        }
        if !told && begun.elapsed() > TELL {
            told = true;
            warn(format!("waiting for {who} to end: programs are connected to it, or it makes durable what they left"));
        }
        std::thread::sleep(LOOK);
    }
}
