//! Names of files that are being brought from an object store, before the files are there.
//!
//!   ROOT/in/field.nc ──▶ TIERPATH/terrace-UID-ROOTID.TAG'/NAME      a link that leads nowhere, on this node as on any other
//!   STATE/arrivals                                                  not empty: such links may be there; locked by who brings them
//!
//! `TAG'` is the node's tag with all bits turned: whoever meets the link knows the node, and no agent takes it for an object of its own.
//! It looks to programs as a file of another node does: who opens it asks the agent, and waits.

use crate::nodes::is_tag;
use crate::settings::{Settings, object_dir};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A name that a file is on its way to.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Arrival {
    /// What the link's text ends in.
    pub object: String,
    #[serde(with = "crate::paths")]
    pub path: PathBuf,
}

/// The tag in links to what a node brings; of that, the node's own.
pub fn turned(tag: &str) -> Option<String> {
    let bits = is_tag(tag).then(|| u32::from_str_radix(tag, 16).ok())??;
    Some(format!("{:08x}", !bits))
}

/// The link's text without the name at its end; `tag`: the node's.
pub fn link_directory(settings: &Settings, uid: u32, tag: &str) -> Option<PathBuf> {
    let without_tag = Settings { node: None, ..settings.clone() }.id();
    let base = settings.tiers.first()?.paths.first()?;
    Some(object_dir(base, uid, &format!("{without_tag}.{}", turned(tag)?)))
}

/// The object that a link leads to, if it is one of these.
pub fn object_of(text: &Path, directory: &Path) -> Option<String> {
    (text.parent()? == directory).then(|| text.file_name()?.to_str().map(str::to_owned))?
}

/// An object's name of 14 characters, as all objects have (`terrace_index::parse_name`).
pub fn object_name(random: &[u8; 14]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    random.iter().map(|byte| DIGITS[usize::from(byte % 64)] as char).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::{Owner, owner};
    use crate::settings::TierSettings;

    #[test]
    fn a_link_says_which_node_brings_the_file_and_is_no_object_of_that_node() {
        let tier = TierSettings { name: "ram".into(), paths: vec!["/t".into()], capacity_bytes: 1, reserve_bytes: 0 };
        let mut settings = Settings::new("/r".into(), vec![tier], 7, "lib".into());
        let directory = link_directory(&settings, 7, "5f3a9c01").unwrap();
        settings.node = Some("5f3a9c01".into());
        assert_eq!(link_directory(&settings, 7, "5f3a9c01").unwrap(), directory);
        let name = object_name(b"\x00\x3f\x40abcdefghijk");
        let text = directory.join(&name);
        assert_eq!(name.len(), 14);
        assert_eq!(owner(&text, |name| name.len() == 14), Some(Owner::Node("a0c563fe".into())));
        assert_eq!(turned("a0c563fe").as_deref(), Some("5f3a9c01"));
        assert_eq!((turned("no tag"), object_of(&text, &directory)), (None, Some(name)));
        assert_eq!(object_of(Path::new("/t/else"), &directory), None);
    }
}
