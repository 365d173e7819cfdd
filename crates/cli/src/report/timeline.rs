//! What filled the tiers and left them over the time of a run, for the page that `--report FILE.html` is. The agent is asked beside the run.

use serde::Serialize;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_core::control::Status;
use terrace_core::settings::Settings;
use terrace_tool::control_client::Client;

const EACH: Duration = Duration::from_millis(200);
/// With more than these every second one goes, and looks are half as frequent.
const MOMENTS_MAX: usize = 1000;

/// All but the last three are counted from the run's start; times in seconds, sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    pub t_s: f64,
    /// To faster tiers, and to the root by programs.
    pub written_tiers_bytes: u64,
    pub written_root_bytes: u64,
    pub flushed_bytes: u64,
    pub held_bytes: u64,
    /// Exist in a faster tier only, and are to be flushed.
    pub unflushed_bytes: u64,
    pub moving_files: u64,
}

impl Moment {
    fn of(t_s: f64, status: &Status) -> Moment {
        let sum = |durable: bool| status.tiers.iter().filter(move |tier| tier.durable == durable);
        Moment {
            t_s,
            written_tiers_bytes: sum(false).map(|tier| tier.written_bytes).sum(),
            written_root_bytes: sum(true).map(|tier| tier.written_bytes).sum(),
            flushed_bytes: status.counters.flushed_bytes,
            held_bytes: sum(false).map(|tier| tier.used_bytes).sum(),
            unflushed_bytes: status.unflushed_bytes,
            moving_files: status.moving.len() as u64,
        }
    }
}

/// Counts go on where an agent that died has left them.
#[derive(Default)]
struct Counted {
    agent_pid: u32,
    /// What the agent had counted when it was seen first.
    first: Moment,
    /// Of agents before.
    before: Moment,
    last: Moment,
}

impl Counted {
    fn from(status: &Status) -> Counted {
        Counted { agent_pid: status.agent_pid, first: Moment::of(0.0, status), ..Counted::default() }
    }

    fn moment(&mut self, t_s: f64, status: &Status) -> Moment {
        if self.agent_pid != status.agent_pid {
            *self = Counted { agent_pid: status.agent_pid, before: self.last, last: self.last, ..Counted::default() };
        }
        let now = Moment::of(t_s, status);
        let since = |now: u64, first: u64, before: u64| now.saturating_sub(first) + before;
        let (first, before) = (&self.first, &self.before);
        self.last = Moment {
            written_tiers_bytes: since(now.written_tiers_bytes, first.written_tiers_bytes, before.written_tiers_bytes),
            written_root_bytes: since(now.written_root_bytes, first.written_root_bytes, before.written_root_bytes),
            flushed_bytes: since(now.flushed_bytes, first.flushed_bytes, before.flushed_bytes),
            ..now
        };
        self.last
    }
}

pub struct Timeline {
    end: Sender<()>,
    looking: JoinHandle<Vec<Moment>>,
}

impl Timeline {
    /// `before`: the agent's status when the run began. `None`: there is no thread for it.
    pub fn begin(settings: &Settings, before: &Status, begun: Instant) -> Option<Timeline> {
        let (end, ended) = channel();
        let (settings, mut counted) = (settings.clone(), Counted::from(before));
        let look = move || {
            let (mut moments, mut each) = (vec![], EACH);
            let mut is_last = false;
            loop {
                // An agent that is started anew answers later.
                let status = Client::connect(&settings).and_then(|mut client| client.status());
                moments.extend(status.ok().map(|status| counted.moment(begun.elapsed().as_secs_f64(), &status)));
                if is_last {
                    return moments;
                }
                if moments.len() > MOMENTS_MAX {
                    let mut number = 0;
                    moments.retain(|_| {
                        number += 1;
                        number % 2 == 1
                    });
                    each *= 2;
                }
                // What it is at the end is looked at, too.
                is_last = ended.recv_timeout(each) != Err(RecvTimeoutError::Timeout);
            }
        };
        let looking = std::thread::Builder::new().name("timeline".into()).spawn(look).ok()?;
        Some(Timeline { end, looking })
    }

    pub fn end(self) -> Vec<Moment> {
        drop(self.end);
        self.looking.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_core::control::TierStatus;

    #[test]
    fn counts_are_of_this_run_and_go_on_with_another_agent() {
        let status = |agent_pid, written_bytes| Status {
            agent_pid,
            tiers: vec![TierStatus { written_bytes, used_bytes: 7, ..TierStatus::default() }],
            ..Status::default()
        };
        let mut counted = Counted::from(&status(1, 100));
        let mut written = |status: &Status| counted.moment(1.0, status).written_tiers_bytes;
        assert_eq!(written(&status(1, 100)), 0);
        assert_eq!(written(&status(1, 130)), 30);
        assert_eq!(written(&status(2, 0)), 30);
        assert_eq!(written(&status(2, 5)), 35);
        assert_eq!(written(&status(3, 1)), 36);
        assert_eq!(counted.last.held_bytes, 7);
    }
}
