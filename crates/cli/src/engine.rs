//! The agent's two entry points, as commands of this program.

use std::path::Path;
use terrace_core::settings::Settings;
use terrace_tool::failure::Result;

/// `terrace agent --settings FILE`: serves until its work is done. Another agent that was faster is no failure.
pub fn serve(file: &Path) -> Result<()> {
    match terrace_agent::serve(terrace_tool::settings_file::read_settings(file)?) {
        Err(terrace_agent::Error::AlreadyServed { .. }) => Ok(()),
        done => Ok(done?),
    }
}

/// `None`: an agent serves the root, or did a moment ago.
pub fn recover(settings: &Settings) -> Result<Option<terrace_agent::RecoverReport>> {
    match terrace_agent::recover(settings) {
        Err(terrace_agent::Error::AlreadyServed { .. }) => Ok(None),
        done => Ok(Some(done?)),
    }
}
