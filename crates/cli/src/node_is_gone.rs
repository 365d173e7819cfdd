//! `terrace recover --node-is-gone NAME`: a node is declared dead, from any other one.
//!
//!   its agent answers? refused ─▶ fenced ─▶ held versions go back under their names ─▶ the rest is told as lost
//!
//! *Fencing* is one rename: the node's own directory in the root goes to `nodes/dead`. What the node has copied and not yet committed
//! goes with it, and it can make no other copy. So an owner that lives after all can't commit any more: it says that it could not
//! make its files durable, and keeps them. A new agent on that node registers anew, and finds what still has a link.

use crate::elsewhere;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace_client::Link;
use terrace_core::nodes::Node;
use terrace_core::peers::{DOOR, Door};
use terrace_core::settings::Settings;
use terrace_index::PRIVATE_DIR;
use terrace_tool::failure::{Failure, Result};
use terrace_tool::outln;

const PATIENCE: Duration = Duration::from_secs(2);
const DEAD: &str = "dead";

pub fn declare(settings: &Settings, name: &str) -> Result<i32> {
    let known = elsewhere::nodes(settings);
    let gone: Vec<&Node> = known.iter().filter(|node| node.host == name || node.tag == name).collect();
    if gone.is_empty() {
        let hosts: Vec<&str> = known.iter().map(|node| node.host.as_str()).collect();
        let listed = if hosts.is_empty() { "none".into() } else { hosts.join(", ") };
        return Err(Failure::new(format!("no other node `{name}` is registered at {}", settings.root.display()))
            .hint(format!("registered are: {listed}")));
    }
    let nodes = terrace_core::nodes::directory(&settings.root, PRIVATE_DIR);
    if let Some(node) = gone.iter().find(|node| answers(&nodes.join(&node.tag))) {
        return Err(Failure::new(format!(
            "node {} is not gone: its agent (process {}) answers",
            node.host, node.agent_pid
        ))
        .hint("end its runs, or end the agent: it flushes what it has"));
    }
    let mut lost = vec![];
    for node in gone {
        lost.extend(take_over(settings, &nodes, node)?);
    }
    if lost.is_empty() {
        return Ok(0);
    }
    let lines: String = lost.iter().map(|path| format!("\n  {}", path.display())).collect();
    Err(Failure::new(format!("{} files are lost with node {name}, unless it comes back:{lines}", lost.len()))
        .hint("remove their links if it does not"))
}

/// Its agent is there, and can be reached from here.
fn answers(directory: &Path) -> bool {
    let door = std::fs::read(directory.join(DOOR)).ok();
    let Some(door) = door.and_then(|text| serde_json::from_slice::<Door>(&text).ok()) else { return false };
    door.addresses.iter().any(|address| {
        let known = Some(door.fingerprint.clone());
        Link::connect_within(&format!("tls://{address}"), &door.token, known, PATIENCE, PATIENCE).is_ok()
    })
}

/// The files that have no durable version.
fn take_over(settings: &Settings, nodes: &Path, node: &Node) -> Result<Vec<PathBuf>> {
    let dead = nodes.join(DEAD);
    let fenced = dead.join(&node.tag);
    match std::fs::create_dir(&dead) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Failure::io("make the directory", &dead, error));
        }
        _ => {}
    }
    let own = nodes.join(&node.tag);
    std::fs::rename(&own, &fenced).map_err(|error| Failure::io("move aside", &own, error))?;
    let (mut restored, mut lost) = (0, vec![]);
    for file in elsewhere::files(settings, None) {
        if file.tag.as_ref() != Some(&node.tag) {
            continue;
        }
        let object = std::fs::read_link(&file.path).ok().and_then(|text| Some(text.file_name()?.to_owned()));
        let held = object.map(|object| fenced.join("held").join(object));
        match held.filter(|held| held.symlink_metadata().is_ok_and(|found| found.is_file())) {
            Some(held) => {
                std::fs::rename(&held, &file.path).map_err(|error| Failure::io("restore", &file.path, error))?;
                outln!("{}: its last durable version is restored", file.path.display());
                restored += 1;
            }
            None => lost.push(file.path),
        }
    }
    // Only what is known to be nobody's data goes: registration, unfinished copies, empty directories.
    for name in [terrace_core::nodes::REGISTRATION, DOOR] {
        let _ = std::fs::remove_file(fenced.join(name));
    }
    let _ = std::fs::remove_dir_all(fenced.join("tmp"));
    for directory in [fenced.join("held"), fenced, dead, nodes.to_path_buf(), settings.root.join(PRIVATE_DIR)] {
        let _ = std::fs::remove_dir(directory);
    }
    outln!("node {} is taken for dead: {restored} files restored, {} lost", node.host, lost.len());
    Ok(lost)
}
