//! By which way a run's programs are reached: the preload library, the supervisor, or both.

use crate::failure::{Failure, Result, warn};
use clap::Args;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Door {
    /// The library where it can be loaded, the supervisor for everything that goes past it.
    #[default]
    Both,
    Preload,
    Supervise,
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Door::Both => "both",
            Door::Preload => "preload",
            Door::Supervise => "supervise",
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
        }
    }
}

impl FromStr for Door {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Door, String> {
        match text {
            "both" => Ok(Door::Both),
            "preload" => Ok(Door::Preload),
            "supervise" => Ok(Door::Supervise),
            _ => Err("it is one of both, preload, supervise".into()),
        }
    }
}

/// The flags and the environment name that choose it.
#[derive(Args, Debug, Default, Clone)]
pub struct DoorArgs {
    /// Reach programs by the preload library only: dynamically linked ones
    #[arg(long, conflicts_with = "supervise_only")]
    pub preload_only: bool,
    /// Reach programs by the supervisor only: every program, each call below the root a little slower
    #[arg(long)]
    pub supervise_only: bool,
    /// By which way programs are reached: both, preload or supervise
    #[arg(long = "door", value_name = "DOOR", env = "TERRACE_DOOR", default_value = "both", hide = true)]
    door: Door,
}

impl DoorArgs {
    /// A flag is stronger than the environment.
    pub fn wanted(&self) -> Door {
        match (self.preload_only, self.supervise_only) {
            (true, _) => Door::Preload,
            (_, true) => Door::Supervise,
            _ => self.door,
        }
    }

    /// The door that a run gets here: programs that can't be supervised are still reached by the library.
    pub fn door(&self) -> Result<Door> {
        let wanted = self.wanted();
        if wanted == Door::Preload {
            return Ok(wanted);
        }
        match (terrace_supervise::probe(), wanted) {
            (None, door) => Ok(door),
            (Some(reason), Door::Supervise) => Err(Failure::bad_input(
                format!("programs can't be supervised here: {reason}"),
                "leave out --supervise-only: dynamically linked programs are reached by the preload library",
            )),
            (Some(reason), _) => {
                warn(format!(
                    "programs are reached by the preload library only, so static ones are not: {reason} \
                     (--preload-only silences this)"
                ));
                Ok(Door::Preload)
            }
        }
    }
}
