//! A node that is declared gone: it has no more say in the root, and its files are what the root last had of them.
//!
//!   nodes/TAG              ─▶ nodes/TAG.gone-0, and a file takes the name
//!   nodes/TAG.gone-0/tmp   ─▶ removed
//!   links with that tag    ─▶ the held version, or the mirror of a directory, takes their name; without one they stay, and are told as lost
//!   nodes/TAG.gone-0       ─▶ removed; the file stays until the node's next agent
//!
//! Invariant: when the first name changes, an agent of that node that lives after all, behind a broken network, can't put anything in
//! place any more. Its copies begin and end in `nodes/TAG/tmp`: new ones can't be made below a file (ENOTDIR), and those it had are
//! gone. What it committed before is a real file, which is left alone. So no point in time has two owners of a name.
//!
//! Every step may be repeated: a declaration that was interrupted is declared again.

use crate::error::{Context, Error, Result};
use crate::files::mover::mirror;
use crate::node::{gone, registered};
use crate::peers::reach;
use crate::shared::index_file::make_private;
use rustix::fs::{AtFlags, StatxFlags};
use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotFound};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use terrace_core::nodes::{Node, Owner, directory, is_tag, owner};
use terrace_core::settings::Settings;
use terrace_index::{DIRECTORY_SUFFIX, PRIVATE_DIR, parse_name};

/// What a declaration did.
#[derive(Debug, Default)]
pub struct Declared {
    pub nodes: Vec<Node>,
    /// The node's bytes are lost; the last durable version is back.
    pub restored: Vec<PathBuf>,
    /// Links to files, and to placed directories, of which the root has no version. They stay.
    pub lost: Vec<PathBuf>,
    /// Directories that could not be read: what lies there is as it was.
    pub unread: Vec<PathBuf>,
}

/// A link to an object of a node that is gone.
struct Link {
    path: PathBuf,
    text: PathBuf,
    object: std::ffi::OsString,
    is_directory: bool,
}

/// Declares the nodes of this host, or of this tag, gone.
pub fn declare_gone(settings: &Settings, name: &str) -> Result<Declared> {
    let root = &settings.root;
    let nodes = directory(root, PRIVATE_DIR);
    let own = std::fs::read_to_string(settings.node_file()).unwrap_or_default();
    let mut declared = Declared { nodes: called(root, name, own.trim()), ..Declared::default() };
    let tags: Vec<&str> = match declared.nodes.is_empty() {
        true => vec![name],
        false => declared.nodes.iter().map(|node| node.tag.as_str()).collect(),
    };
    let (links, unread) = links(root, &tags);
    if declared.nodes.is_empty() {
        if !is_tag(name) || name == own.trim() || links.is_empty() {
            let known = everyone(root, own.trim()).iter().map(|node| node.host.clone()).collect();
            return Err(Error::NoSuchNode { name: name.into(), root: root.clone(), known });
        }
        declared.nodes = vec![unregistered(name)];
    }
    for node in &declared.nodes {
        if reach(&nodes.join(&node.tag)).is_ok() {
            return Err(Error::NodeLives { host: node.host.clone(), agent_pid: node.agent_pid });
        }
    }
    for node in &declared.nodes {
        take_name(&nodes, node)?;
        for place in set_aside(&nodes, &node.tag) {
            empty(&place.join("tmp"))?;
        }
    }
    let places: Vec<PathBuf> = declared.nodes.iter().flat_map(|node| set_aside(&nodes, &node.tag)).collect();
    for link in links {
        match restore(&link, &places)? {
            Some(true) => declared.restored.push(link.path),
            Some(false) => declared.lost.push(link.path),
            None => {}
        }
    }
    // A held version is needed as long as a link to its object may be somewhere.
    if unread.is_empty() {
        for place in places {
            empty(&place)?;
        }
    }
    declared.unread = unread;
    Ok(declared)
}

/// All other nodes of which the root says anything.
fn everyone(root: &Path, own: &str) -> Vec<Node> {
    let mut all = registered(root);
    let others = gone(root).into_iter().filter(|node| !all.iter().any(|known| known.tag == node.tag));
    all.extend(others.collect::<Vec<_>>());
    all.retain(|node| node.tag != own);
    all
}

fn called(root: &Path, name: &str, own: &str) -> Vec<Node> {
    let mut called = everyone(root, own);
    called.retain(|node| node.host == name || node.tag == name);
    called
}

/// One that has left its links and no registration.
fn unregistered(tag: &str) -> Node {
    Node { tag: tag.into(), host: format!("with tag {tag}"), ..Node::default() }
}

/// Puts a file in the place of the node's directory, which is moved aside if it is there.
fn take_name(nodes: &Path, node: &Node) -> Result<()> {
    let place = nodes.join(&node.tag);
    let text = serde_json::to_vec_pretty(node).expect("this is plain data");
    loop {
        make_private(nodes)?;
        match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place) {
            Ok(mut file) => return file.write_all(&text).and_then(|()| file.sync_all()).context("write", &place),
            Err(error) if matches!(error.kind(), AlreadyExists | NotFound) => {}
            Err(error) => return Err(error).context("make", &place),
        }
        if std::fs::symlink_metadata(&place).is_ok_and(|found| found.is_file()) {
            return Ok(());
        }
        let free = (0..).map(|number| nodes.join(format!("{}.gone-{number}", node.tag))).find(|aside| !aside.exists());
        match std::fs::rename(&place, free.expect("numbers do not end")) {
            Err(error) if !matches!(error.kind(), NotFound | AlreadyExists | DirectoryNotEmpty) => {
                return Err(error).context("move aside", &place);
            }
            _ => {}
        }
    }
}

/// Directories that a node had, by this and by interrupted declarations.
fn set_aside(nodes: &Path, tag: &str) -> Vec<PathBuf> {
    let prefix = format!("{tag}.gone-");
    let entries = std::fs::read_dir(nodes).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)));
    ours.map(|entry| entry.path()).collect()
}

/// Removes a directory, in which an agent may just be making something.
fn empty(directory: &Path) -> Result<()> {
    loop {
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() == NotFound => return Ok(()),
            Err(error) if error.kind() == DirectoryNotEmpty => {}
            done => return done.context("remove", directory),
        }
    }
}

/// Links into tiers of these nodes, and directories that could not be read.
fn links(root: &Path, tags: &[&str]) -> (Vec<Link>, Vec<PathBuf>) {
    let private = root.join(PRIVATE_DIR);
    let (mut links, mut unread, mut pending) = (vec![], vec![], vec![root.to_owned()]);
    while let Some(directory) = pending.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == NotFound => continue,
            Err(_) => {
                unread.push(directory);
                continue;
            }
        };
        for entry in entries {
            let Ok((path, kind)) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) else {
                unread.push(directory.clone());
                continue;
            };
            if kind.is_dir() && path != private {
                pending.push(path);
            } else if kind.is_symlink() {
                links.extend(link(path, tags));
            }
        }
    }
    (links, unread)
}

fn link(path: PathBuf, tags: &[&str]) -> Option<Link> {
    let text = std::fs::read_link(&path).ok()?;
    let is_directory = text.ends_with(&DIRECTORY_SUFFIX[1..]);
    let object = if is_directory { text.parent()? } else { &text };
    match owner(object, |name| parse_name(name).is_some())? {
        Owner::Node(tag) if tags.contains(&tag.as_str()) => {
            Some(Link { object: object.file_name()?.to_owned(), path, text, is_directory })
        }
        _ => None,
    }
}

/// True: the last durable version is back; false: there is none. `None`: the name is another file's meanwhile.
fn restore(link: &Link, places: &[PathBuf]) -> Result<Option<bool>> {
    // What this node has cached of the name may be older than a commit.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
    let _ = rustix::fs::statx(rustix::fs::CWD, &link.path, flags, StatxFlags::TYPE | StatxFlags::INO);
    if std::fs::read_link(&link.path).ok().as_ref() != Some(&link.text) {
        return Ok(None);
    }
    if link.is_directory {
        return restore_directory(link, places);
    }
    let mut held = places.iter().map(|place| place.join("held").join(&link.object));
    let is_file = |held: &PathBuf| std::fs::symlink_metadata(held).is_ok_and(|found| found.is_file());
    let Some(held) = held.find(is_file) else { return Ok(Some(false)) };
    std::fs::rename(&held, &link.path).context("put the last durable version in place of", &link.path)?;
    Ok(Some(true))
}

/// What its mirror has of a placed directory. Where the root's file system exchanges no names, the name is absent for a moment.
fn restore_directory(link: &Link, places: &[PathBuf]) -> Result<Option<bool>> {
    for kept in places.iter().map(|place| place.join("kept").join(&link.object)) {
        let Some(tree) = mirror::restore(&kept).context("read", &kept)? else { continue };
        let aside = kept.join("link");
        std::fs::rename(&link.path, &aside).context("move aside", &link.path)?;
        if let Err(error) = std::fs::rename(&tree, &link.path) {
            let _ = std::fs::rename(&aside, &link.path);
            return Err(error).context("put its last copy in place of", &link.path);
        }
        return Ok(Some(true));
    }
    Ok(Some(false))
}

/// True: this node had been declared gone, and is here. Its agent begins anew with what the names still say, as soon as those that
/// have a durable version are back. Called under the agent's lock.
pub fn come_back(settings: &Settings) -> Result<bool> {
    let (tag, nodes) = (settings.node.as_deref().unwrap_or_default(), directory(&settings.root, PRIVATE_DIR));
    let place = nodes.join(tag);
    if !std::fs::symlink_metadata(&place).is_ok_and(|found| found.is_file()) {
        return Ok(false);
    }
    if !set_aside(&nodes, tag).is_empty() {
        return Err(Error::BeingDeclaredGone { root: settings.root.clone(), tag: tag.into() });
    }
    std::fs::remove_file(&place).context("remove", &place)?;
    Ok(true)
}
