//! What an agent was started with, as it is written down where it keeps its state.

use crate::failure::{Failure, Result};
use std::path::Path;
use terrace_core::settings::Settings;

/// The settings of the agent that serves, or last served, this root.
pub fn in_force(settings: &Settings) -> Option<Settings> {
    read_settings(&settings.in_force()).ok()
}

/// The same; where none has served it, what an agent would be started with.
pub fn last_in_force(wanted: &Settings) -> Settings {
    in_force(wanted).unwrap_or_else(|| wanted.clone())
}

pub fn read_settings(file: &Path) -> Result<Settings> {
    let text = std::fs::read(file).map_err(|error| Failure::io("read the settings", file, error))?;
    serde_json::from_slice(&text).map_err(|error| {
        Failure::new(format!("{} is not settings of this version: {error}", file.display()))
            .hint("remove it; it is written again")
    })
}
