//! Settings: what the agent is told, complete and checked, as one JSON file.
//!
//! The command line makes it from defaults, `terrace.toml`, the environment and flags (`wanted`); the agent reads it and
//! asks nobody else. All paths are absolute.

use crate::members::{self, Membership};
use crate::paths;
use crate::policy::{Policy, PolicySettings};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories that all tiers may have together (the index has so many places).
pub const DEVICES_MAX: usize = 16;
/// Longest path of a root: a name below it must still fit into the kernel's 4096 bytes.
pub const ROOT_LEN_MAX: usize = 2048;

/// Name, beside the index, of the socket that clients of the objects door use.
pub const OBJECTS_SOCKET: &str = "objects";

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The accelerated directory, canonical.
    #[serde(with = "paths")]
    pub root: PathBuf,
    /// Other spellings of the root that programs may use: as the user gave it, `$PWD`.
    #[serde(with = "paths::list", default)]
    pub aliases: Vec<PathBuf>,
    /// Fast to slow; the root's own storage is the last tier and is not listed.
    pub tiers: Vec<TierSettings>,
    #[serde(default)]
    pub policy: PolicySettings,
    #[serde(default)]
    pub mover: MoverSettings,
    /// Which directories that programs make are placed as a whole.
    #[serde(default)]
    pub directories: Directories,
    #[serde(default)]
    pub small_files: SmallFiles,
    /// Most bytes over all tiers together.
    #[serde(default)]
    pub quota_bytes: Option<u64>,
    /// Directory of this root's journal and `agent.log`: `/var/tmp/terrace-UID/ROOTID` (the root's id is already part of it).
    #[serde(with = "paths")]
    pub state: PathBuf,
    /// Directory of this root's index, sockets and lock: `/dev/shm/terrace-UID/ROOTID` (the root's id is already part of it).
    #[serde(with = "paths")]
    pub runtime: PathBuf,
    /// The preload library.
    #[serde(with = "paths")]
    pub library: PathBuf,
    /// Clients of the objects door on other nodes.
    #[serde(default)]
    pub listen: Option<ListenSettings>,
    /// One of several agents of this root.
    #[serde(default)]
    pub member: Option<Membership>,
    /// What is sent on to other agents; of the rules that an array meets, the first one counts.
    #[serde(default)]
    pub forwards: Vec<ForwardSettings>,
    /// How long an agent that is to end goes on trying to reach targets.
    #[serde(default)]
    pub forward_patience_ms: u64,
    /// This node's tag; the agent puts it here (`nodes`).
    #[serde(default)]
    pub node: Option<String>,
    /// Sizes as the user gave them, by what they are of: a percentage is other bytes at each moment (`contradictions`).
    #[serde(default)]
    pub sizes_as_given: BTreeMap<String, String>,
}

/// Which directories that programs make lie in a tier as a whole (docs/design/placed-directories.md).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Directories {
    /// None: each file is placed by itself.
    Off,
    /// Those in which policy drops every file at the end of the run.
    #[default]
    Scratch,
    /// Also those in which policy flushes every file.
    All,
}

impl Directories {
    pub const WORDS: [&'static str; 3] = ["off", "scratch", "all"];

    pub fn of(word: &str) -> Directories {
        match word {
            "all" => Directories::All,
            "scratch" => Directories::Scratch,
            _ => Directories::Off,
        }
    }

    /// A directory of this name, relative to the root, lies in a tier when a program makes it.
    pub fn places(self, policy: &Policy, relative: &Path) -> bool {
        self != Directories::Off && policy.drops_all_below(relative)
            || self == Directories::All && policy.flushes_all_below(relative)
    }

    /// There may be such a directory. Where there can be none, nothing has to look for them.
    pub fn may_place(self, policy: &Policy) -> bool {
        self != Directories::Off && policy.may_drop_directories()
            || self == Directories::All && policy.may_flush_directories()
    }

    pub fn as_str(self) -> &'static str {
        Directories::WORDS[self as usize]
    }
}

/// Where a program's small files are made (docs/design/small-files.md).
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum SmallFiles {
    /// In a tier, as all others.
    Place,
    /// In the root, where policy flushes every file, as soon as the program was seen to make small ones.
    #[default]
    Learn,
}

impl SmallFiles {
    pub const WORDS: [&'static str; 2] = ["place", "learn"];

    pub fn of(word: &str) -> SmallFiles {
        if word == "learn" { SmallFiles::Learn } else { SmallFiles::Place }
    }

    pub fn as_str(self) -> &'static str {
        SmallFiles::WORDS[self as usize]
    }

    /// Habits of programs are learnt. Not where policy drops some files: one that is made in the root stays there.
    pub fn learns(self, policy: &Policy) -> bool {
        self == SmallFiles::Learn && policy.flushes_everything()
    }
}

/// A rule: regions of these containers are sent to other agents as they are published.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ForwardSettings {
    /// Patterns of containers, or of arrays.
    pub containers: Vec<String>,
    /// Several share the steps.
    pub targets: Vec<TargetSettings>,
    /// Names of arrays, as patterns; empty: all of them.
    #[serde(default)]
    pub arrays: Vec<String>,
    /// Only cells that meet all of these comparisons (`objects::few`).
    #[serde(default)]
    pub conditions: Vec<String>,
    #[serde(default)]
    pub keep: Keep,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TargetSettings {
    /// `tcp://ADDRESS:PORT`, `tls://` or `plain://`.
    pub address: String,
    #[serde(with = "paths")]
    pub token_file: PathBuf,
    /// Of the target's certificate; if it is not given, what lies beside the token's file.
    #[serde(default)]
    pub fingerprint: Option<String>,
}

/// What becomes of a region here when it has arrived.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// What policy says, as if it were not forwarded.
    #[default]
    Durable,
    /// Nothing: it leaves the tier, and is not written into the root.
    None,
}

/// Targets that all rules may have together (the log of an array has so many places for their progress).
pub const TARGETS_MAX: usize = 16;

/// Where an agent listens for clients on other nodes, and what they must know.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct ListenSettings {
    pub address: String,
    #[serde(with = "paths")]
    pub token_file: PathBuf,
    #[serde(default)]
    pub protection: Protection,
}

/// What keeps others from reading along.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub enum Protection {
    /// Nothing: only loopback addresses are listened on.
    #[default]
    Loopback,
    /// Nothing, and the user has said so.
    Plain,
    /// TLS, with a certificate and its key in PEM files.
    Tls {
        #[serde(with = "paths")]
        certificate: PathBuf,
        #[serde(with = "paths")]
        key: PathBuf,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct TierSettings {
    pub name: String,
    /// The user's directories; ours are made below them (`object_dir`).
    #[serde(with = "paths::list")]
    pub paths: Vec<PathBuf>,
    /// Of the whole tier.
    pub capacity_bytes: u64,
    /// Left free on each of the tier's file systems.
    pub reserve_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(default, deny_unknown_fields)]
pub struct MoverSettings {
    pub threads: usize,
    /// Most bytes a second that all mover threads write into the root together.
    pub bandwidth_bytes_s: Option<u64>,
    /// A closed file waits so long before it is flushed, for programs that open it again at once.
    pub settle_ms: u64,
    /// Above this part of a tier's capacity, clean replicas are evicted, least recently used first…
    pub high_watermark: f64,
    /// …until this part is left.
    pub low_watermark: f64,
    /// Sync a flushed file before its commit. Off: a crash of the node may lose files that were reported as flushed.
    pub fsync: bool,
    /// Copy what is written of a large file before it is closed.
    pub early_copies: bool,
}

impl Default for MoverSettings {
    fn default() -> Self {
        MoverSettings {
            threads: 2,
            bandwidth_bytes_s: None,
            settle_ms: 200,
            high_watermark: 0.9,
            low_watermark: 0.7,
            fsync: true,
            early_copies: true,
        }
    }
}

impl Settings {
    /// All defaults: everything is flushed, the directories of state and runtime are those of `uid`.
    pub fn new(root: PathBuf, tiers: Vec<TierSettings>, uid: u32, library: PathBuf) -> Settings {
        let id = root_id(&root);
        Settings {
            aliases: vec![],
            tiers,
            policy: PolicySettings::default(),
            mover: MoverSettings::default(),
            directories: Directories::default(),
            small_files: SmallFiles::default(),
            quota_bytes: None,
            state: user_dir(Path::new("/var/tmp"), uid).join(&id),
            runtime: user_dir(Path::new("/dev/shm"), uid).join(&id),
            library,
            listen: None,
            member: None,
            forwards: vec![],
            forward_patience_ms: 0,
            node: None,
            sizes_as_given: BTreeMap::new(),
            root,
        }
    }
    /// One of several agents: what it keeps on its node has a name of its own, for two may share a node.
    pub fn join(&mut self, membership: Membership) {
        self.go_by_number(membership.number);
        self.member = Some(membership);
    }
    /// Where the agent of this number keeps what it has on its node.
    pub fn go_by_number(&mut self, number: u32) {
        let id = root_id(&self.root) + &members::suffix(number);
        self.state.set_file_name(&id);
        self.runtime.set_file_name(&id);
    }
    /// The name of the root, of the agent where there are several, and of the node, in tiers.
    pub fn id(&self) -> String {
        let member = self.member.as_ref().map_or(String::new(), |member| members::suffix(member.number));
        let node = self.node.as_ref().map_or(String::new(), |tag| format!(".{tag}"));
        root_id(&self.root) + &member + &node
    }
    pub fn index(&self) -> PathBuf {
        self.runtime.join("index")
    }
    pub fn call_socket(&self) -> PathBuf {
        self.runtime.join("call")
    }
    pub fn control_socket(&self) -> PathBuf {
        self.runtime.join("control")
    }
    pub fn objects_socket(&self) -> PathBuf {
        self.runtime.join(OBJECTS_SOCKET)
    }
    pub fn lock(&self) -> PathBuf {
        self.runtime.join("lock")
    }
    pub fn journal(&self) -> PathBuf {
        self.state.join("journal.redb")
    }
    /// The settings of the agent that serves, or last served, this root.
    pub fn in_force(&self) -> PathBuf {
        self.state.join("settings.json")
    }
    /// Holds this node's tag.
    pub fn node_file(&self) -> PathBuf {
        self.state.join("node")
    }
    /// There while an agent has not left of its own accord: `in_force` is then what its files are to be dealt with by.
    pub fn unfinished(&self) -> PathBuf {
        self.state.join("unfinished")
    }
    /// Not empty: names of files that are still to come may be there (`arrivals`). Locked, shared, by who brings them.
    pub fn arrivals(&self) -> PathBuf {
        self.state.join("arrivals")
    }
    pub fn log(&self) -> PathBuf {
        self.state.join("agent.log")
    }
}

/// 8 hexadecimal digits that stand for a root: 64-bit FNV-1a of its canonical path, folded to 32 bits.
pub fn root_id(canonical_root: &Path) -> String {
    let hash = canonical_root
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ *byte as u64).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:08x}", (hash >> 32) as u32 ^ hash as u32)
}

/// The directory below `base` that is this user's.
pub fn user_dir(base: &Path, uid: u32) -> PathBuf {
    base.join(format!("terrace-{uid}"))
}

/// Where the objects of one tier directory lie. One directory, for the kernel walks this path whenever it follows a link.
pub fn object_dir(tier_path: &Path, uid: u32, root_id: &str) -> PathBuf {
    tier_path.join(format!("terrace-{uid}-{root_id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_the_same_id_for_ever() {
        assert_eq!(root_id(Path::new("/lustre/me/study")), root_id(Path::new("/lustre/me/study")));
        assert_ne!(root_id(Path::new("/lustre/me/study")), root_id(Path::new("/lustre/me/study2")));
        assert_eq!(root_id(Path::new("")), "4fd0bfc1");
        assert_eq!(root_id(Path::new("/data")).len(), 8);
    }

    #[test]
    fn objects_lie_below_the_tier_by_user_and_root() {
        assert_eq!(object_dir(Path::new("/dev/shm"), 1000, "1f2e3d4c"), Path::new("/dev/shm/terrace-1000-1f2e3d4c"));
    }

    #[test]
    fn settings_survive_their_json() {
        let tier = TierSettings {
            name: "ram".into(),
            paths: vec!["/dev/shm".into()],
            capacity_bytes: 1 << 30,
            reserve_bytes: 0,
        };
        let mut settings = Settings::new("/lustre/me".into(), vec![tier], 7, "/lib/x.so".into());
        settings.aliases.push(Path::new(std::ffi::OsStr::from_bytes(b"/l\xff")).into());
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    }
}
