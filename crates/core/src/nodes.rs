//! The nodes that share a root: a tag for each, and whose object a link leads to.
//!
//!   TIERPATH/terrace-UID-ROOTID.TAG/NAME        an object: the directory exists on its node alone
//!   ROOT/.terrace/nodes/TAG/node.json           what the node says of itself, until its agent has left
//!                           tmp/, held/, kept/  its unfinished copies, last durable versions, and mirrors of directories
//!   STATE/node                                  the tag, made once
//!
//! Invariant: an agent touches the links, copies and held versions of its own tag, and no others. A link of another tag is "on
//! node X", never "lost".

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// What a node says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Node {
    pub tag: String,
    pub host: String,
    /// Of the installation (`/etc/machine-id`); empty: it has none.
    #[serde(default)]
    pub machine: String,
    /// Of the kernel: with another one, what was in the host's memory is gone.
    pub boot_id: String,
    pub agent_pid: u32,
    pub tiers: Vec<PathBuf>,
}

impl Node {
    /// It is surely this host, before its last start. Names alone don't tell: two machines may be `localhost`.
    pub fn was_here_before(&self, host: &str, machine: &str, boot_id: &str) -> bool {
        self.host == host && !machine.is_empty() && self.machine == machine && self.boot_id != boot_id
    }
}

pub const REGISTRATION: &str = "node.json";
const TAG_LEN: usize = 8;

/// Where nodes register; `private` is the root's own directory.
pub fn directory(root: &Path, private: &str) -> PathBuf {
    root.join(private).join("nodes")
}

/// The part of the root's own directory that is a node's, relative to the root.
pub fn private(private: &str, tag: Option<&str>) -> PathBuf {
    tag.map_or_else(|| private.into(), |tag| Path::new(private).join("nodes").join(tag))
}

pub fn is_tag(text: &str) -> bool {
    text.len() == TAG_LEN && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub fn new_tag(random: u64) -> String {
    format!("{:08x}", random as u32)
}

/// The name of an object directory without its tag, and the tag.
pub fn split_tag(directory: &str) -> (&str, Option<&str>) {
    match directory.rsplit_once('.') {
        Some((name, tag)) if is_tag(tag) => (name, Some(tag)),
        _ => (directory, None),
    }
}

/// What the text of a link says of the node whose object it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Node(String),
    /// Made by a build that had no tags.
    OlderBuild,
}

/// `None`: no link of Terrace's.
pub fn owner(text: &Path, is_object: impl Fn(&[u8]) -> bool) -> Option<Owner> {
    if !text.is_absolute() || !is_object(text.file_name()?.as_encoded_bytes()) {
        return None;
    }
    let (name, tag) = split_tag(text.parent()?.file_name()?.to_str()?);
    let mut parts = name.strip_prefix("terrace-")?.splitn(2, '-');
    let (uid, root) = (parts.next()?, parts.next()?.split('.').next()?);
    let is_ours = !uid.is_empty() && uid.bytes().all(|byte| byte.is_ascii_digit()) && is_tag(root);
    is_ours.then(|| tag.map_or(Owner::OlderBuild, |tag| Owner::Node(tag.into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_tells_its_node() {
        let owner = |text: &str| owner(Path::new(text), |name| name.len() == 14);
        let node = |tag: &str| Some(Owner::Node(tag.into()));
        assert_eq!(owner("/dev/shm/terrace-1000-ca067f75.5f3a9c01/AAAJostQsBGD0d"), node("5f3a9c01"));
        assert_eq!(owner("/dev/shm/terrace-1000-ca067f75.12.5f3a9c01/AAAJostQsBGD0d"), node("5f3a9c01"));
        assert_eq!(owner("/dev/shm/terrace-1000-ca067f75/AAAJostQsBGD0d"), Some(Owner::OlderBuild));
        for other in [
            "/dev/shm/terrace-1000-ca067f75.5f3a9c01/short",
            "/dev/shm/terrace-x-ca067f75.5f3a9c01/AAAJostQsBGD0d",
            "terrace-1000-ca067f75.5f3a9c01/AAAJostQsBGD0d",
            "/home/me/data/AAAJostQsBGD0d",
        ] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn a_links_text_fits_an_inode() {
        // 59 bytes are what ext4 keeps in the inode itself.
        assert_eq!("/dev/shm/terrace-1000-ca067f75.5f3a9c01/AAAJostQsBGD0d".len(), 54);
        assert!("/dev/shm/terrace-100000-ca067f75.5f3a9c01/AAAJostQsBGD0d".len() <= 59);
    }
}
