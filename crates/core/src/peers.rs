//! What agents of one root say to each other about files, in the frames of objects (`objects::wire`).
//!
//! ```text
//!  link in the root ──tag──▶ ROOT/.terrace/nodes/TAG/door.json ──address, fingerprint, token──▶ the owner's agent
//! ```
//!
//! Whoever may read the door's file is this user (or root): no other secret is needed, and it goes with the agent.

use serde::{Deserialize, Serialize};

/// Where an agent is reached by the others, beside its registration. For this user's eyes only.
#[derive(Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Door {
    /// `ADDRESS:PORT`, in the order in which they are tried.
    pub addresses: Vec<String>,
    /// Of the agent's certificate, made for this life of it.
    pub fingerprint: String,
    pub token: String,
}

pub const DOOR: &str = "door.json";

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// A node has registered: from now on names may lead to it.
    Here,
    /// Make the file of this object a real one in the root. `path`: where the asker met its link.
    Settle { object: String, path: Vec<u8> },
    /// What the file of each of these objects looks like; answered by `Attributes`, in the same order.
    StatMany { objects: Vec<String> },
    /// Make durable what is below these paths of the root (none: everywhere), and what policy keeps, too, if `all`; answered by `Flushed`.
    Flush { paths: Vec<Vec<u8>>, all: bool },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// The answer comes: the one who asks is to wait on.
    Working,
    /// No file has this object (any more): the name says where it is.
    Gone,
    /// The file can't be moved as long as a program has it mapped or locked.
    Busy,
    /// An errno, and why.
    Failed {
        errno: i32,
        reason: String,
    },
    Attributes(Vec<Option<Attributes>>),
    Flushed(Flushed),
}

/// What a flush came to. Paths are of the root.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Flushed {
    pub files: u64,
    pub bytes: u64,
    pub open_files: Vec<Vec<u8>>,
    /// Each with its reason.
    pub failures: Vec<(Vec<u8>, String)>,
}

/// Of a file, as programs on its own node see them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attributes {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}
