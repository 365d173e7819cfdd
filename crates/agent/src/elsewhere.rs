//! Files below a root whose bytes lie in other nodes' tiers: by links and registrations alone, so that a node without any agent can tell (a
//! login node).

use crate::node;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use terrace_core::arrivals::turned;
use terrace_core::control::Elsewhere;
use terrace_core::nodes::{Node, Owner, owner};
use terrace_core::settings::Settings;

fn own_tag(settings: &Settings) -> Option<String> {
    Some(std::fs::read_to_string(settings.node_file()).ok()?.trim().to_owned())
}

/// Nodes other than this one that have registered: they may have files in their tiers.
pub fn nodes(settings: &Settings) -> Vec<Node> {
    node::registered_but(&settings.root, own_tag(settings).as_deref())
}

/// All links to objects of other nodes. A walk of the root.
pub fn files(settings: &Settings, below: Option<&Path>) -> Vec<Elsewhere> {
    let own = own_tag(settings);
    let nodes: BTreeMap<String, Node> = nodes(settings).into_iter().map(|node| (node.tag.clone(), node)).collect();
    let gone: BTreeMap<String, Node> =
        node::gone(&settings.root).into_iter().map(|node| (node.tag.clone(), node)).collect();
    let (host, machine, boot_id) = (node::host(), node::machine(), node::boot_id());
    let private = settings.root.join(terrace_index::PRIVATE_DIR);
    let walk =
        walkdir::WalkDir::new(below.unwrap_or(&settings.root)).follow_root_links(false).sort_by_file_name().into_iter();
    let walk = walk.filter_entry(|entry| entry.path() != private).flatten();
    let found = walk.filter_map(|entry| {
        let text = entry.path_is_symlink().then(|| std::fs::read_link(entry.path()).ok()).flatten()?;
        let whose = owner(&text, |name| terrace_index::parse_name(name).is_some())?;
        let tag = match &whose {
            Owner::Node(tag) => Some(tag.clone()),
            Owner::OlderBuild => None,
        };
        let is_gone = tag.as_ref().is_some_and(|tag| gone.contains_key(tag));
        let (whose, is_lost) = match &whose {
            Owner::Node(tag) if Some(tag) == own.as_ref() => return None,
            Owner::Node(tag)
                if turned(tag).is_some_and(|node| Some(&node) == own.as_ref() || nodes.contains_key(&node)) =>
            {
                ("on its way from an object store".into(), false)
            }
            Owner::Node(tag) => match nodes.get(tag).or_else(|| gone.get(tag)) {
                Some(node) if node.was_here_before(&host, &machine, &boot_id) => (node.host.clone(), true),
                Some(node) => (node.host.clone(), false),
                None => (format!("with tag {tag}, which is not registered"), false),
            },
            Owner::OlderBuild => ("of an older build of Terrace (recover with that build)".into(), false),
        };
        Some(Elsewhere { path: entry.into_path(), tag, whose, is_lost, is_gone })
    });
    found.collect()
}

/// Nodes whose root is a directory above this one, with that: what they keep of this root is not found here. In the root's own file system: above
/// may be an automounter, which would look for a server of any name.
pub fn nodes_above(root: &Path) -> Vec<(PathBuf, Node)> {
    let (host, boot_id) = (node::host(), node::boot_id());
    let is_another = |node: &Node| node.host != host || node.boot_id != boot_id;
    let device = |directory: &Path| std::fs::metadata(directory).map(|found| found.dev()).ok();
    let own = device(root);
    let above = root.ancestors().skip(1);
    above
        .take_while(|above| device(above) == own)
        .flat_map(|above| node::registered(above).into_iter().map(|node| (above.to_path_buf(), node)))
        .filter(|(_, node)| is_another(node))
        .collect()
}
