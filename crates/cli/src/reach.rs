//! What commands on objects talk to: who the command line names, the agent that the environment names, those that serve the root together, or
//! the root's own, which is started if none runs.

use crate::agent_process::ensure;
use crate::check;
use std::path::PathBuf;
use std::process::Command;
use terrace_client::Session;
use terrace_core::settings::Settings;
use terrace_index::{INDEX_ENV, PRIVATE_DIR};
use terrace_tool::control_client::{Client, running};
use terrace_tool::failure::{Failure, Result};
use terrace_tool::resolve::{named_agent, resolve_here};
use terrace_tool::setting_args::SettingArgs;
use terrace_tool::settings_file::last_in_force;

pub enum Reached {
    /// By `--connect`.
    Target(String),
    /// The agent with this index, which runs.
    Index(PathBuf),
    /// Those that have written themselves down in the root; none of them is on this node.
    Root(Box<Settings>),
    /// It stays for as long as somebody is connected.
    Kept(Box<Settings>, Client),
}

pub fn reach(connect: Option<&str>, args: &SettingArgs) -> Result<Reached> {
    if let Some(target) = connect {
        return Ok(Reached::Target(target.to_owned()));
    }
    if let Some(index) = named_agent(args) {
        return Ok(Reached::Index(index));
    }
    let settings = resolve_here(args)?.settings;
    if settings.member.is_some() {
        return Ok(Reached::Index(settings.index()));
    }
    // Before one that is alone here: arrays of the root are theirs.
    if are_elsewhere(&settings) {
        return Ok(Reached::Root(Box::new(settings)));
    }
    let settings = match running(&settings)? {
        Some(_) => settings,
        None => last_in_force(&settings),
    };
    check::settings(&settings, true)?;
    let kept = ensure(&settings, false)?;
    Ok(Reached::Kept(Box::new(settings), kept))
}

/// Several agents serve the root, and none of them is on this node.
pub fn are_elsewhere(settings: &Settings) -> bool {
    let agents = terrace_core::members::directory(&settings.root, PRIVATE_DIR);
    settings.member.is_none() && terrace_core::members::registered(&agents, 0).is_some()
}

impl Reached {
    pub fn session(&self) -> Result<Session> {
        Ok(match self {
            Reached::Target(target) => Session::connect(target)?,
            Reached::Index(index) => Session::open(index)?,
            Reached::Root(settings) => Session::connect_by_root(&settings.root, settings.runtime.parent())?,
            Reached::Kept(settings, _) => Session::open(&settings.index())?,
        })
    }

    /// Tells a program that this process becomes; it goes on being connected.
    pub fn tell(&self, command: &mut Command) -> Result<()> {
        match self {
            Reached::Target(target) => {
                command.args(["--connect", target]);
            }
            Reached::Index(index) => {
                command.env(INDEX_ENV, index);
            }
            Reached::Root(settings) => {
                command.arg("--connect").arg(&settings.root);
                // Where agents of this node keep their indexes.
                command.envs(settings.runtime.parent().map(|base| ("TERRACE_RUNTIME", base)));
            }
            Reached::Kept(settings, kept) => {
                kept.keep_through_exec().map_err(|error| Failure::new(format!("can't keep the agent: {error}")))?;
                command.env(INDEX_ENV, settings.index());
            }
        }
        Ok(())
    }
}
