//! By which way a run's programs are reached: the preload library, the supervisor, or both; or a private mount.

use clap::Args;
use serde::Serialize;
use std::fmt;
use terrace_tool::failure::{Failure, Result, warn};
use terrace_tool::resolve::Resolved;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// The library where it can be loaded, the supervisor for everything that goes past it.
    #[default]
    Both,
    Preload,
    Supervise,
    /// A file system over the root, in a mount namespace of the run's programs: every system call of every program.
    Mount,
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Door::Both => "both",
            Door::Preload => "preload",
            Door::Supervise => "supervise",
            Door::Mount => "mount",
        })
    }
}

impl Door {
    /// For a report: programs were reached by…
    pub fn describe(self) -> &'static str {
        match self {
            Door::Both => "the preload library and the supervisor",
            Door::Preload => "the preload library",
            Door::Supervise => "the supervisor",
            Door::Mount => "a private mount",
        }
    }
}

impl Door {
    /// The setting `door`, which was checked when it was read.
    pub fn of(resolved: &Resolved) -> Door {
        match resolved.wanted.text("door").unwrap_or_default() {
            "preload" => Door::Preload,
            "supervise" => Door::Supervise,
            _ => Door::Both,
        }
    }
}

/// The flags that choose it for one run, whatever the setting `door` says.
#[derive(Args, Debug, Default, Clone)]
pub struct DoorArgs {
    /// Intercept with the preload library only (dynamically linked programs)
    #[arg(long, conflicts_with_all = ["supervise_only", "door"])]
    pub preload_only: bool,
    /// Intercept with the supervisor only (all programs; calls below the root are slower)
    #[arg(long, conflicts_with = "door")]
    pub supervise_only: bool,
    /// Use a private FUSE mount over the root: works for every program, also with io_uring, debuggers, 32-bit code or links from
    /// outside. Each look-up, read and write passes through user space: stat and open are about 50x slower
    /// (docs/reference/programs-matrix.md). Needs /dev/fuse, and user namespaces unless root
    #[arg(long, conflicts_with_all = ["preload_only", "supervise_only", "door"])]
    pub mount: bool,
}

impl DoorArgs {
    fn wanted(&self, setting: Door) -> Door {
        match (self.preload_only, self.supervise_only, self.mount) {
            (true, ..) => Door::Preload,
            (_, true, _) => Door::Supervise,
            (.., true) => Door::Mount,
            _ => setting,
        }
    }

    /// The door that a run gets here: programs that can't be supervised are still reached by the library. Whether a mount can
    /// be had, the run sees when it knows its root.
    pub fn door(&self, setting: Door) -> Result<Door> {
        let wanted = self.wanted(setting);
        if matches!(wanted, Door::Preload | Door::Mount) {
            return Ok(wanted);
        }
        match (terrace_supervise::probe(), wanted) {
            (None, door) => Ok(door),
            (Some(reason), Door::Supervise) => Err(Failure::bad_input(
                format!("programs can't be supervised here: {reason}"),
                "choose another door than `supervise`: dynamically linked programs are reached by the preload library",
            )),
            (Some(reason), _) => {
                warn(format!(
                    "programs are reached by the preload library only, so static ones are not: {reason} \
                     (--preload-only or `door = \"preload\"` silences this)"
                ));
                Ok(Door::Preload)
            }
        }
    }
}
