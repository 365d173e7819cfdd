//! What a directory holds, read natively: names, types, modes, owners, sizes, bytes, links, times, extended attributes.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    File(Vec<u8>),
    Directory,
    Link(PathBuf),
    Fifo,
    Socket,
    Device(u64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub kind: Kind,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u64,
    /// The first name (in order) of the same file, for hard links.
    pub same_as: PathBuf,
    pub modified_ns: i128,
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree(pub BTreeMap<PathBuf, Entry>);

impl Tree {
    pub fn of(root: &Path) -> Tree {
        let mut first_names = BTreeMap::new();
        let mut entries = BTreeMap::new();
        let walk = walkdir::WalkDir::new(root).min_depth(1).sort_by_file_name();
        for found in walk {
            let found = found.unwrap_or_else(|e| panic!("{} can't be walked: {e}", root.display()));
            let metadata = found.path().symlink_metadata().unwrap();
            let file_type = metadata.file_type();
            let path = found.path();
            let kind = if file_type.is_file() {
                Kind::File(std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
            } else if file_type.is_dir() {
                Kind::Directory
            } else if file_type.is_symlink() {
                Kind::Link(path.read_link().unwrap())
            } else if file_type.is_fifo() {
                Kind::Fifo
            } else if file_type.is_socket() {
                Kind::Socket
            } else {
                Kind::Device(metadata.rdev())
            };
            let name = path.strip_prefix(root).unwrap().to_owned();
            let same_as = first_names.entry(metadata.ino()).or_insert_with(|| name.clone()).clone();
            let attributes = match kind {
                Kind::File(_) | Kind::Directory => attributes(path),
                _ => BTreeMap::new(),
            };
            let entry = Entry {
                mode: metadata.mode(),
                owner: (metadata.uid(), metadata.gid()),
                links: metadata.nlink(),
                same_as,
                modified_ns: metadata.mtime() as i128 * 1_000_000_000 + metadata.mtime_nsec() as i128,
                attributes,
                kind,
            };
            entries.insert(name, entry);
        }
        Tree(entries)
    }

    /// Every difference to `other`, a line each. Times count when either is older than `since_ns`: those were set, not taken
    /// from the clock. Links that lead below `self`'s or `other`'s root are compared relative to it.
    pub fn differences(&self, root: &Path, other: &Tree, other_root: &Path, since_ns: i128) -> Vec<String> {
        let mut lines = vec![];
        for name in self.0.keys().filter(|name| !other.0.contains_key(*name)) {
            lines.push(format!("{}: only natively", name.display()));
        }
        for (name, theirs) in &other.0 {
            let Some(ours) = self.0.get(name) else {
                lines.push(format!("{}: only under Terrace", name.display()));
                continue;
            };
            let mut differs = |what: &str, native: String, accelerated: String| {
                if native != accelerated {
                    lines.push(format!("{}: {what}: natively {native}, under Terrace {accelerated}", name.display()));
                }
            };
            differs("kind", ours.kind.describe(root), theirs.kind.describe(other_root));
            differs("mode", format!("{:o}", ours.mode), format!("{:o}", theirs.mode));
            differs("owner", format!("{:?}", ours.owner), format!("{:?}", theirs.owner));
            differs("links", ours.links.to_string(), theirs.links.to_string());
            differs("same file as", format!("{:?}", ours.same_as), format!("{:?}", theirs.same_as));
            differs("attributes", format!("{:?}", ours.attributes), format!("{:?}", theirs.attributes));
            if ours.modified_ns < since_ns || theirs.modified_ns < since_ns {
                differs("mtime", ours.modified_ns.to_string(), theirs.modified_ns.to_string());
            }
            if let (Kind::File(ours), Kind::File(theirs)) = (&ours.kind, &theirs.kind)
                && ours != theirs
            {
                let at = ours.iter().zip(theirs).position(|(a, b)| a != b).unwrap_or(ours.len().min(theirs.len()));
                lines.push(format!(
                    "{}: bytes differ from {at} on (natively {}, under Terrace {})",
                    name.display(),
                    ours.len(),
                    theirs.len()
                ));
            }
        }
        lines
    }

    /// Names of files that lie in a tier still, or that are Terrace's own.
    pub fn leftovers(&self) -> Vec<String> {
        let in_a_tier =
            |entry: &Entry| matches!(&entry.kind, Kind::Link(to) if to.to_string_lossy().contains("/terrace-"));
        self.0
            .iter()
            .filter(|(name, entry)| name.starts_with(terrace_index::PRIVATE_DIR) || in_a_tier(entry))
            .map(|(name, entry)| match &entry.kind {
                Kind::Link(to) => format!("{} -> {}", name.display(), to.display()),
                _ => name.display().to_string(),
            })
            .collect()
    }

    #[track_caller]
    pub fn bytes(&self, name: &str) -> &[u8] {
        match self.0.get(Path::new(name)).map(|entry| &entry.kind) {
            Some(Kind::File(bytes)) => bytes,
            other => panic!("{name} is not a file but {:?}", other.map(|kind| kind.describe(Path::new("/")))),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(Path::new(name))
    }
}

impl Kind {
    fn describe(&self, root: &Path) -> String {
        match self {
            Kind::File(_) => "file".into(),
            Kind::Directory => "directory".into(),
            Kind::Link(to) => match to.strip_prefix(root) {
                Ok(below) => format!("link to ROOT/{}", below.display()),
                Err(_) => format!("link to {}", to.display()),
            },
            Kind::Fifo => "fifo".into(),
            Kind::Socket => "socket".into(),
            Kind::Device(number) => format!("device {number:#x}"),
        }
    }
}

fn attributes(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let Ok(names) = xattr::list(path) else { return BTreeMap::new() };
    names.filter_map(|name| Some((name.as_bytes().to_vec(), xattr::get(path, &name).ok().flatten()?))).collect()
}
