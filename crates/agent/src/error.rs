//! Why an agent could not start, or had to stop. Failures of single files are not errors of the agent: they are kept in its
//! status and tried again, for the file is safe where it is.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Somebody else does what we were asked to do; the caller talks to that agent instead.
    #[error("another agent already serves {}", root.display())]
    AlreadyServed { root: PathBuf },
    #[error("can't {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} is not safe to use: {reason}", path.display())]
    Unsafe { path: PathBuf, reason: String },
    #[error("the settings can't be used: {reason}")]
    Settings { reason: String },
    #[error("process {pid} of an earlier run on {} still runs, and its run had other settings: {differs}", root.display())]
    StillUsed { root: PathBuf, pid: u32, differs: String },
    #[error("{} is left from a run with other settings ({differs}), and can't be made durable: {reason}", path.display())]
    Unfinished { path: PathBuf, reason: String, differs: String },
    #[error(
        "{} is another directory than the one that was served here when its agent was killed, and that one's files are still in {}",
        root.display(), place.display()
    )]
    OtherRoot { root: PathBuf, place: PathBuf, noted: PathBuf },
    #[error("{} is in use by another user's runs (uid {uid}), or has files of theirs", root.display())]
    OtherUser { root: PathBuf, uid: u32 },
    #[error("no node `{name}` has files of {}", root.display())]
    NoSuchNode { name: String, root: PathBuf, known: Vec<String> },
    #[error("node {host} is not gone: its agent (process {agent_pid}) answers")]
    NodeLives { host: String, agent_pid: u32 },
    #[error("this node (tag {tag}) is just being declared gone at {}, or that was interrupted", root.display())]
    BeingDeclaredGone { root: PathBuf, tag: String },
    #[error("an agent needs {needed} open files at least, and may have {most}")]
    Descriptors { most: u64, needed: u64 },
    #[error(transparent)]
    Policy(#[from] terrace_core::policy::PolicyError),
    #[error(transparent)]
    Tier(#[from] terrace_tier::Error),
}

pub type Result<T> = std::result::Result<T, Error>;

impl terrace_core::refusal::Explained for Error {
    fn hint(&self) -> Option<String> {
        match self {
            Error::AlreadyServed { .. } => Some("`terrace status` shows what it does".into()),
            Error::Io { .. } => None,
            Error::Unsafe { .. } => Some("remove it, or choose another directory in the settings".into()),
            Error::Settings { .. } => Some("`terrace config` prints what is in force".into()),
            Error::StillUsed { .. } => Some("wait until it has ended, or end it; or run with those settings".into()),
            Error::Unfinished { .. } => Some(
                "remove the cause (free space, permissions), then run `terrace recover`; the file is safe in its tier"
                    .into(),
            ),
            Error::OtherRoot { noted, .. } => Some(format!(
                "put that directory back, and run `terrace recover`; if it was removed for good, remove {}: then its files in the tiers go, too",
                noted.display()
            )),
            Error::OtherUser { .. } => {
                Some("wait until they have ended (their `terrace recover` ends what was killed), or choose another root (--root DIR)".into())
            }
            Error::NoSuchNode { known, .. } => Some(match known.is_empty() {
                true => "no other node is known there; `terrace status` lists files of other nodes".into(),
                false => format!("known are {}", known.join(", ")),
            }),
            Error::NodeLives { .. } => {
                Some("end its runs, or make its files durable: terrace flush --all-nodes".into())
            }
            Error::BeingDeclaredGone { tag, .. } => Some(format!(
                "try again; if that does not help, say `terrace recover --node-is-gone {tag}` on another node first"
            )),
            Error::Descriptors { .. } => Some("raise the hard limit on open files (`ulimit -Hn`)".into()),
            Error::Policy(error) => Some(error.hint.clone()),
            Error::Tier(error) => error.hint(),
        }
    }
}

/// Adds what was done, on what, to a bare system error.
pub trait Context<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T, E: Into<std::io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { action, path: path.to_path_buf(), source: source.into() })
    }
}

/// An error of a tier, with its hint, as `status` shows it.
pub fn text_of(error: &terrace_tier::Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}
