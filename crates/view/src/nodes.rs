//! What the kernel knows: nodes by their numbers, with the names and open files that lead to each.
//!
//! A node's number is the file's `st_ino` as the preload library shows it, which a file keeps for life, so programs see by the
//! mount what they see without it. A file is held by its names and not by a descriptor: its bytes change their place while
//! it is flushed and evicted, and a name always leads to where they are. A name may have been given to another file by somebody
//! outside, so each is looked at before it is used, and one that leads elsewhere is dropped (ESTALE then has the kernel look
//! again). A file without a name is reached by what is open of it.
//!
//! Directories stay where they are, and are held by descriptors as long as those suffice; then again by their names.
//!
//! Invariants: a node is in the table exactly as long as the kernel's look-ups outnumber its forgets. No lock is held during a
//! call on the root, which may wait for the agent.

use fuser::{Errno, INodeNo};
use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_passthrough::{Answer, Target, calls};

const ROOT: u64 = INodeNo::ROOT.0;
/// Directories' descriptors begin here: the library counts without a look only on low numbers, which are for files.
const DIRECTORIES_FROM: i32 = 4096;
/// Directories that are held at least, however low the limit on descriptors.
const HELD_MIN: usize = 16;
const DIRECTORY: i32 = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;

type Name = (u64, CString);

#[derive(Default)]
struct Node {
    names: Vec<Name>,
    is_directory: bool,
    descriptor: Option<Arc<OwnedFd>>,
    /// Open files, by their handles.
    files: Vec<(u64, Arc<OwnedFd>)>,
    lookups: u64,
}

#[derive(Default)]
struct Tables {
    nodes: HashMap<u64, Node>,
    names: HashMap<Name, u64>,
    /// Directories with descriptors, the one that was opened first at the front. Some may be forgotten by now.
    held: VecDeque<u64>,
}

pub struct Nodes {
    root: Arc<OwnedFd>,
    root_ino: u64,
    root_dev: u64,
    held_max: usize,
    tables: Mutex<Tables>,
}

/// Where a node is just now.
pub enum Place {
    Name(Arc<OwnedFd>, CString),
    File(Arc<OwnedFd>),
    Directory(Arc<OwnedFd>),
}

impl Place {
    pub fn target(&self) -> Target<'_> {
        match self {
            Place::Name(dir, name) => Target::Name(dir, name),
            Place::File(file) => Target::File(file),
            Place::Directory(dir) => Target::Held(dir),
        }
    }
}

impl Nodes {
    /// `descriptors_max`: how many this process may have.
    pub fn new(root: OwnedFd, descriptors_max: usize) -> Answer<Nodes> {
        let status = calls::stat(&root)?;
        let mut tables = Tables::default();
        tables.nodes.insert(ROOT, Node { is_directory: true, lookups: 1, ..Node::default() });
        Ok(Nodes {
            root: Arc::new(root),
            root_ino: status.st_ino,
            root_dev: status.st_dev,
            held_max: (descriptors_max / 2).max(HELD_MIN),
            tables: Mutex::new(tables),
        })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().expect("a panic ends the process")
    }

    /// FUSE's root is node 1. A file that has number 1 takes the root's own.
    fn number(&self, status: &libc::stat) -> u64 {
        if status.st_ino == ROOT { self.root_ino } else { status.st_ino }
    }

    /// Looks a name up and counts it as one look-up of the kernel's. Errors: stat(2)'s; EXDEV for another file system's,
    /// whose numbers could be those of the root's files.
    pub fn look_up(&self, parent: u64, name: &CStr) -> Answer<libc::stat> {
        let dir = self.directory(parent)?;
        let mut status = calls::stat_at(&dir, name)?;
        if status.st_dev != self.root_dev {
            return Err(Errno::EXDEV);
        }
        status.st_ino = self.number(&status);
        let mut tables = self.tables();
        tables.name(status.st_ino, parent, name);
        let node = tables.nodes.get_mut(&status.st_ino).expect("it was named just now");
        node.lookups += 1;
        node.is_directory = status.st_mode & libc::S_IFMT == libc::S_IFDIR;
        Ok(status)
    }

    pub fn forget(&self, node: u64, lookups: u64) {
        let mut tables = self.tables();
        let Some(found) = tables.nodes.get_mut(&node) else { return };
        found.lookups = found.lookups.saturating_sub(lookups);
        if found.lookups > 0 || node == ROOT {
            return;
        }
        let gone = tables.nodes.remove(&node).unwrap_or_default();
        for name in gone.names {
            tables.names.remove(&name);
        }
    }

    /// A descriptor of a directory, for calls on the names in it. Errors: ENOTDIR, ESTALE, open(2)'s.
    pub fn directory(&self, node: u64) -> Answer<Arc<OwnedFd>> {
        if node == ROOT {
            return Ok(self.root.clone());
        }
        let (parent, name) = {
            let tables = self.tables();
            let found = tables.nodes.get(&node).ok_or(Errno::ESTALE)?;
            if let Some(descriptor) = &found.descriptor {
                return Ok(descriptor.clone());
            }
            if !found.is_directory {
                return Err(Errno::ENOTDIR);
            }
            found.names.first().cloned().ok_or(Errno::ESTALE)?
        };
        let dir = calls::open_at(&*self.directory(parent)?, &name, DIRECTORY, 0)?;
        if self.number(&calls::stat(&dir)?) != node {
            return Err(Errno::ESTALE);
        }
        let dir = Arc::new(calls::out_of_the_way(dir, DIRECTORIES_FROM));
        let mut tables = self.tables();
        if let Some(found) = tables.nodes.get_mut(&node) {
            if found.descriptor.replace(dir.clone()).is_none() {
                tables.held.push_back(node);
            }
            while tables.held.len() > self.held_max {
                let first = tables.held.pop_front().expect("there are more than none");
                tables.nodes.get_mut(&first).and_then(|node| node.descriptor.take());
            }
        }
        Ok(dir)
    }

    /// Where a node is, and what it is. Errors: ESTALE if no name and no open file leads to it any more.
    pub fn find(&self, node: u64) -> Answer<(Place, libc::stat)> {
        let (is_directory, names, file) = {
            let tables = self.tables();
            let found = tables.nodes.get(&node).ok_or(Errno::ESTALE)?;
            (found.is_directory, found.names.clone(), found.files.first().map(|(_, file)| file.clone()))
        };
        if is_directory {
            let dir = self.directory(node)?;
            let status = calls::stat(&dir)?;
            return Ok((Place::Directory(dir), status));
        }
        for (parent, name) in names {
            let Ok(dir) = self.directory(parent) else { continue };
            match calls::stat_at(&dir, &name) {
                Ok(mut status) if self.number(&status) == node => {
                    status.st_ino = node;
                    return Ok((Place::Name(dir, name), status));
                }
                Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR) => self.tables().unname(node, &(parent, name)),
                Err(error) => return Err(error),
            }
        }
        let file = file.ok_or(Errno::ESTALE)?;
        let mut status = calls::stat(&file)?;
        status.st_ino = node;
        Ok((Place::File(file), status))
    }

    /// A name went from one place to another; `exchanged`: each has the other's.
    pub fn renamed(&self, from: Name, to: Name, exchanged: bool) {
        let mut tables = self.tables();
        let (moved, replaced) = (tables.names.get(&from).copied(), tables.names.get(&to).copied());
        for (node, name) in [(moved, &from), (replaced, &to)] {
            if let Some(node) = node {
                tables.unname(node, name);
            }
        }
        if let Some(node) = moved {
            tables.name(node, to.0, &to.1);
        }
        if let (Some(node), true) = (replaced, exchanged) {
            tables.name(node, from.0, &from.1);
        }
    }

    pub fn removed(&self, name: Name) {
        let mut tables = self.tables();
        if let Some(node) = tables.names.get(&name).copied() {
            // A directory that is gone may still be somebody's working directory: its descriptor leads to it.
            tables.unname(node, &name);
        }
    }

    pub fn opened(&self, node: u64, handle: u64, file: Arc<OwnedFd>) {
        if let Some(found) = self.tables().nodes.get_mut(&node) {
            found.files.push((handle, file));
        }
    }

    pub fn closed(&self, node: u64, handle: u64) {
        if let Some(found) = self.tables().nodes.get_mut(&node) {
            found.files.retain(|(open, _)| *open != handle);
        }
    }
}

impl Tables {
    fn name(&mut self, node: u64, parent: u64, name: &CStr) {
        let name = (parent, name.to_owned());
        match self.names.insert(name.clone(), node) {
            Some(before) if before == node => return,
            Some(before) => {
                if let Some(before) = self.nodes.get_mut(&before) {
                    before.names.retain(|known| *known != name);
                }
            }
            None => {}
        }
        let names = &mut self.nodes.entry(node).or_default().names;
        // The newest first: it is the likeliest to be right.
        names.insert(0, name);
    }

    fn unname(&mut self, node: u64, name: &Name) {
        if self.names.get(name) == Some(&node) {
            self.names.remove(name);
        }
        if let Some(found) = self.nodes.get_mut(&node) {
            found.names.retain(|known| known != name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, create_dir_all, rename, write};
    use std::path::PathBuf;

    fn nodes() -> (PathBuf, Nodes) {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("terrace-view-{}-{number}", std::process::id()));
        create_dir_all(&root).unwrap();
        let nodes = Nodes::new(std::fs::File::open(&root).unwrap().into(), 0).unwrap();
        (root, nodes)
    }

    /// Of nodes, and of names.
    fn counts(nodes: &Nodes) -> (usize, usize) {
        let tables = nodes.tables();
        (tables.nodes.len(), tables.names.len())
    }

    #[test]
    fn more_directories_than_descriptors_are_all_reached() {
        let (root, nodes) = nodes();
        let mut parent = ROOT;
        let mut all = vec![];
        let mut path = root.clone();
        for _ in 0..10 * HELD_MIN {
            path.push("d");
            create_dir(&path).unwrap();
            parent = nodes.look_up(parent, c"d").unwrap().st_ino;
            nodes.directory(parent).unwrap();
            all.push(parent);
        }
        assert!(nodes.tables().held.len() <= HELD_MIN);
        for node in &all {
            assert_eq!(calls::stat(&nodes.directory(*node).unwrap()).unwrap().st_ino, *node);
        }
        all.iter().for_each(|node| nodes.forget(*node, 1));
        assert_eq!(counts(&nodes), (1, 0));
        assert!(matches!(nodes.directory(all[0]), Err(Errno::ESTALE)));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_name_that_somebody_outside_gave_to_another_file_leads_nowhere() {
        let (root, nodes) = nodes();
        write(root.join("a"), "a").unwrap();
        write(root.join("b"), "bb").unwrap();
        let a = nodes.look_up(ROOT, c"a").unwrap().st_ino;
        let open: Arc<OwnedFd> = Arc::new(std::fs::File::open(root.join("a")).unwrap().into());
        rename(root.join("b"), root.join("a")).unwrap();
        assert!(matches!(nodes.find(a), Err(Errno::ESTALE)));
        nodes.opened(a, 7, open);
        assert!(matches!(nodes.find(a), Ok((Place::File(_), status)) if status.st_size == 1));
        nodes.closed(a, 7);
        assert!(matches!(nodes.find(a), Err(Errno::ESTALE)));
        assert_ne!(nodes.look_up(ROOT, c"a").unwrap().st_ino, a);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn names_follow_renames_and_exchanges() {
        let (root, nodes) = nodes();
        write(root.join("a"), "").unwrap();
        write(root.join("b"), "").unwrap();
        let (a, b) = (nodes.look_up(ROOT, c"a").unwrap().st_ino, nodes.look_up(ROOT, c"b").unwrap().st_ino);
        let name = |name: &CStr| (ROOT, name.to_owned());
        nodes.renamed(name(c"a"), name(c"b"), true);
        assert_eq!(nodes.tables().names, HashMap::from([(name(c"a"), b), (name(c"b"), a)]));
        nodes.renamed(name(c"a"), name(c"b"), false);
        assert_eq!(nodes.tables().names, HashMap::from([(name(c"b"), b)]));
        nodes.removed(name(c"b"));
        assert_eq!(counts(&nodes), (3, 0));
        std::fs::remove_dir_all(root).unwrap();
    }
}
