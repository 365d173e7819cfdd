//! Several agents of one root: who they are. Membership is given at launch; each agent writes down where it listens.
//!
//!   ROOT/.terrace/agents/0, 1 …    one file for each agent, for this user alone
//!                        0.queries where parts of queries are answered beside agent 0
//!                        token     what all of them want to see
//!
//! Invariant: agents are complete when 0 to N-1 are written down with the same N and the same launch.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Which of several agents one is.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    pub number: u32,
    pub of: u32,
    /// The same for all that were started together.
    pub launch: String,
}

/// Where an agent listens.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Member {
    pub address: String,
    /// Of its certificate; `None`: in the clear.
    pub fingerprint: Option<String>,
}

/// What an agent writes down of itself.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Registered {
    pub membership: Membership,
    pub member: Member,
}

/// Most agents of one root.
pub const AGENTS_MAX: u32 = 4096;
pub const TOKEN: &str = "token";
/// The launch that uses the directory now.
pub const LAUNCH: &str = "launch";

/// The directory in which agents write down where they listen; `private` is the root's own directory.
pub fn directory(root: &Path, private: &str) -> PathBuf {
    root.join(private).join("agents")
}

/// What the agent of this number has written down; `None`: it is not there, or not ready.
pub fn registered(directory: &Path, number: u32) -> Option<Registered> {
    serde_json::from_slice(&std::fs::read(directory.join(number.to_string())).ok()?).ok()
}

/// The file with the address at which parts of queries are answered beside an agent.
pub fn queries(number: u32) -> String {
    format!("{number}.queries")
}

/// What is added to names that must differ between the agents of one root.
pub fn suffix(number: u32) -> String {
    format!(".{number}")
}

/// The agent that a name made with `suffix` belongs to.
pub fn number_of(name: &str) -> Option<u32> {
    let (_, digits) = name.rsplit_once('.')?;
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|&number| is_plain && number < AGENTS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_names_tell_its_number() {
        assert_eq!(number_of(&format!("terrace-1000-1f2e3d4c{}", suffix(12))), Some(12));
        for other in ["terrace-1000-1f2e3d4c", "a.", "a.x", "a.-1", "a.99999"] {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
