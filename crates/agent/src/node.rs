//! This node among those that share the root: its tag, and its registration.
//!
//! The tag is made once for a state directory, and kept there for as long as that is: it survives agents, runs and restarts
//! of the machine, so that a node knows its own links whatever it lost. The state directory must be the node's own, as it had
//! to be for the journal; two agents that share one are refused by the journal's lock.
//!
//! The registration is there while an agent is, and after one that was killed.

use crate::agent::Agent;
use crate::error::{Context, Error, Result};
use crate::files::Files;
use crate::shared::schedule::Work;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use terrace_core::nodes::{Node, REGISTRATION, directory, is_tag, new_tag};
use terrace_core::settings::Settings;
use terrace_index::{PRIVATE_DIR, State};

/// The tag of this node; made if it has none. Called under the agent's lock.
pub fn tag(settings: &Settings) -> Result<String> {
    let path = settings.node_file();
    if let Ok(text) = std::fs::read_to_string(&path) {
        let text = text.trim();
        return match is_tag(text) {
            true => Ok(text.into()),
            false => Err(Error::Unsafe { path, reason: "it does not hold this node's tag".into() }),
        };
    }
    let tag = new_tag(crate::shared::index_file::random_half());
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, format!("{tag}\n")).context("write", &fresh)?;
    // Before the first link says so.
    std::fs::File::open(&fresh).and_then(|file| file.sync_all()).context("sync", &fresh)?;
    std::fs::rename(&fresh, &path).context("put in place", &path)?;
    Ok(tag)
}

pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub fn machine() -> String {
    std::fs::read_to_string("/etc/machine-id").unwrap_or_default().trim().to_owned()
}

pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// All that have registered at a root.
pub fn registered(root: &Path) -> Vec<Node> {
    registered_but(root, None)
}

/// The same without the one that has this tag.
pub fn registered_but(root: &Path, own: Option<&str>) -> Vec<Node> {
    let read = |place: PathBuf| serde_json::from_slice(&std::fs::read(place.join(REGISTRATION)).ok()?).ok();
    nodes_by(root, |entry| {
        let name = entry.file_name();
        let is_another = name.to_str().is_some_and(|name| is_tag(name) && Some(name) != own);
        is_another.then(|| read(entry.path()))?
    })
}

/// Those that were declared gone, and have not come back ([`crate::declare_gone`]).
pub fn gone(root: &Path) -> Vec<Node> {
    nodes_by(root, |entry| {
        let name = entry.file_name();
        let tag = name.to_str()?.split(".gone-").next().filter(|tag| is_tag(tag))?;
        let is_there = entry.file_type().is_ok_and(|kind| kind.is_file()) || tag.len() < name.len();
        let unreadable = || Node { host: format!("with tag {tag}"), tag: tag.into(), ..Node::default() };
        let read = std::fs::read(entry.path()).or_else(|_| std::fs::read(entry.path().join(REGISTRATION)));
        is_there.then(|| read.ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_else(unreadable))
    })
}

fn nodes_by(root: &Path, read: impl FnMut(std::fs::DirEntry) -> Option<Node>) -> Vec<Node> {
    let entries = std::fs::read_dir(directory(root, PRIVATE_DIR)).into_iter().flatten().flatten();
    let mut nodes: Vec<Node> = entries.filter_map(read).collect();
    nodes.sort_by(|a, b| (&a.host, &a.tag).cmp(&(&b.host, &b.tag)));
    nodes.dedup_by(|a, b| a.tag == b.tag);
    nodes
}

impl Agent {
    fn registration(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join(REGISTRATION)
    }

    /// Others are told whose links with our tag are.
    pub fn register(&self) -> Result<()> {
        let node = Node {
            tag: self.settings.node.clone().unwrap_or_default(),
            host: host(),
            machine: machine(),
            boot_id: boot_id(),
            agent_pid: std::process::id(),
            tiers: self.settings.tiers.iter().flat_map(|tier| tier.paths.clone()).collect(),
        };
        let target = self.registration();
        let fresh = target.with_extension("new");
        let text = serde_json::to_vec_pretty(&node).expect("this is plain data");
        std::fs::write(&fresh, text).context("write", &fresh)?;
        std::fs::rename(&fresh, &target).context("put in place", &target)?;
        self.look_for_nodes();
        Ok(())
    }

    pub fn withdraw_node(&self) {
        let _ = std::fs::remove_file(self.registration());
    }
}

impl Files {
    /// Other nodes are registered at the root: its files may change at any time.
    pub fn has_others(&self) -> bool {
        *self.other_nodes.lock().unwrap() > 0
    }

    /// Programs look for what others have, and for files that are still to come, from now on.
    pub fn tell_of_others(&self) {
        self.tell_of(*self.other_nodes.lock().unwrap());
    }

    /// Under the lock of their number.
    fn tell_of(&self, others: u32) {
        self.index.header.others.store(others.saturating_add(self.arrivals.is_possible() as u32), Release);
    }

    /// Whether programs are to look for links of others, where an open finds nothing. False: it could not be seen, and is as before.
    pub fn look_for_nodes(&self) -> bool {
        // Counted under the lock: who counts later is heard last.
        let mut known = self.other_nodes.lock().unwrap();
        let Ok(others) = self.count_others() else { return false };
        let before = std::mem::replace(&mut *known, others);
        self.tell_of(others);
        drop(known);
        if before == 0 && others > 0 && self.policy.prefetches_nothing() {
            // What was flushed while this node was alone has replicas that others' writing will not reach.
            (0..self.index.records_end())
                .filter(|&number| self.record(number).state() == State::Clean)
                .for_each(|number| self.let_go_of(number));
        }
        true
    }

    /// After a recovery: an earlier agent's replicas are let go of, as they would have been by it.
    pub fn let_go_of_earlier_replicas(&self) {
        if self.has_others() && self.policy.prefetches_nothing() {
            (0..self.index.records_end())
                .filter(|&number| self.record(number).state() == State::Clean)
                .for_each(|number| self.schedule.now(Work::Evict, number));
        }
    }

    fn count_others(&self) -> std::io::Result<u32> {
        let own = self.settings.node.as_deref().unwrap_or_default();
        let mut others = 0;
        for entry in std::fs::read_dir(directory(&self.settings.root, PRIVATE_DIR))? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| is_tag(name) && name != own) {
                continue;
            }
            // A file has the name of one that is gone.
            others += match entry.file_type() {
                Ok(kind) => kind.is_dir() as u32,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
        }
        Ok(others)
    }
}
