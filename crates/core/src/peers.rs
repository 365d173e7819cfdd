//! What agents of one root say to each other about files, in the frames of objects (`objects::wire`).
//!
//! ```text
//!  link in the root ──tag──▶ ROOT/.terrace/nodes/TAG/door.json ──address, fingerprint, token──▶ the owner's agent
//! ```
//!
//! Whoever may read the door's file is this user (or root): no other secret is needed, and it goes with the agent.

use crate::policy::Mode;
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

/// Paths are relative to the root, which may have another path on each node; empty: not known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Ask {
    /// A node has registered: from now on names may lead to it.
    Here,
    /// Make the file of this object a real one in the root. `path`: where the asker met its link.
    Settle { object: String, path: Vec<u8> },
    /// Give the file of this object, if nobody there has it open and it has no more than `most` bytes: answered by `Offer` and its bytes, or
    /// by `Stays`. `path`: where the asker met its link.
    /// `mode`: what the asker's policy does with a file of that name; where the owner's does something else the file stays.
    Take { object: String, path: Vec<u8>, most: u64, mode: Mode },
    /// After an `Offer`: the bytes will be in the object that this text leads to. The owner makes a link of it while it sends them.
    Place { text: Vec<u8> },
    /// After `Whole`: the asker has all bytes. The owner is to put that link in the place of its own one, and answers by `Named`.
    Placed,
    /// After that: the asker's agent looks after the file. The owner lets go of its bytes, and does not answer.
    Taken,
    /// What the file of this object looks like, if it would be given to who asked now, and what up to `beside` others of its directory do:
    /// answered by `Looks`, or by `Stays`. With others, what is told is promised to the asker, a node by its tag, for `PROMISED_MS`
    /// (`terrace_index::calls`).
    Look { object: String, beside: u32, asker: String },
    /// What this owner, a node by its tag, has promised holds no more: answered by `Done`. Only then does it change.
    Break { owner: String },
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
    /// It is not given: it is to be asked to be a real file in the root.
    Stays,
    /// It is given. When the owner has heard where it will be, `Part`s follow, and `Whole` after the last one.
    Offer(Offer),
    /// Bytes of the file from this offset on, as payload. What no part has is a hole.
    Part {
        offset: u64,
    },
    Whole,
    /// The name leads to the asker's object. Its directory before it changed and after its times were put back, if they were.
    Named {
        directory: Option<[Attributes; 2]>,
    },
    /// An errno, and why.
    Failed {
        errno: i32,
        reason: String,
    },
    Attributes(Vec<Option<Attributes>>),
    /// The file that was asked for is the first.
    Looks(Vec<Look>),
    Flushed(Flushed),
}

/// A file that would be given: what it looks like, and what its owner's policy does with it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Look {
    pub object: String,
    pub mode: Mode,
    pub attributes: Attributes,
}

/// A file that goes to another node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Its name, relative to the root.
    pub path: Vec<u8>,
    /// In bytes: its length, and what it occupies.
    pub size: u64,
    pub allocated: u64,
    /// The tier that it lies in. It may go to one as slow or slower.
    pub tier: u32,
    /// If it does not lie in memory it goes to a disk, and is synced there: what was synced stays synced.
    pub in_memory: bool,
    /// The inode number by which programs know it.
    pub ino: u64,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a flush came to. Paths are relative to the root.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Flushed {
    pub files: u64,
    pub bytes: u64,
    pub open_files: Vec<Vec<u8>>,
    /// Each with its reason.
    pub failures: Vec<(Vec<u8>, String)>,
}

/// Of a file, as programs on its own node see them; or of a directory of the root.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Attributes {
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// It has so many extended attributes, ACLs among them.
    pub xattrs: u32,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}
