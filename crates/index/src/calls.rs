//! Messages from the preload library to the agent, for the rare cases that need one.
//!
//! One `SOCK_SEQPACKET` connection for each call: connect, send one `Call` (with a descriptor as `SCM_RIGHTS` where it says so),
//! receive one `Reply` (with a descriptor where it says so), close. No state stays in the program.

/// How long, in milliseconds, what another node was told of several files holds, counted from its question, if it is not called back before.
pub const PROMISED_MS: u64 = 1000;
/// Clocks of two nodes may differ in how long a second is.
pub const PROMISED_MARGIN_MS: u64 = 100;

/// What the library asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum CallKind {
    /// The object behind the sent descriptor needs `size` bytes in all and its device has no room, or said ENOSPC. The agent
    /// evicts or moves the object. `status` 0: try again (after checking `moves_seq`); else an errno for the program.
    Grow = 1,
    /// The sent descriptor's record is `Moved`: the reply carries the descriptor to use instead, at the same offset.
    Exchange = 2,
    /// Make the `Current` file of `record` a real file in the root and drop its object, even while it is open. With
    /// `NO_RECORD`: all such files below the directory `path`.
    Settle = 3,
    /// Make the `Clean` file of `record` `Current` again: somebody wants to write it.
    Promote = 4,
    /// Somebody truncates the durable file at `path`: replace it by a new, empty object with its attributes (held until
    /// flushed) and link. `status` EBUSY, EMLINK…: leave it durable.
    Replace = 5,
    /// Where is `record` now? The reply's `path`.
    PathOf = 6,
    /// The object behind the sent descriptor: open it again on behalf of a program whose user may not enter the tier's
    /// directory. `size` has the open flags; the reply carries the descriptor.
    OpenFor = 7,
    /// Owner, mode, times or extended attributes of the replica of `record` changed: the root's file is to have them too.
    Carry = 8,
    /// A link to another node's object: its file is to be a real one in the root. `path` has the link's text, a zero byte, and
    /// the link's own path where it is known. A file of up to `size` bytes may become one of this node's tiers instead. `status` 0: look at
    /// the name again.
    Bring = 9,
    /// A program makes the directory `path`, with the mode in `size`: place it if policy lets. `status` EOPNOTSUPP: it is to be made
    /// in the root; 0 or another errno: what mkdir(2) answers.
    MakeDirectory = 10,
    /// What lies at the first part of `path` goes to its second part (`size` has the first one's length), one of them in a placed
    /// directory and the other not. `status` EXDEV: it can't be done without copying.
    Cross = 11,
    /// A link to another node's object, `path` as for `Bring`: what its file looks like, as a `Looks` at the beginning of the reply's `path`.
    /// `status` EAGAIN: it is to be brought.
    Look = 12,
    /// The tier of the placed directory `record` has no room for another name; without a record: the root has no room for more bytes.
    /// `status` 0: it may have by now.
    MakeRoom = 13,
    /// As `Cross`: what lies at the first part of `path` gets its second part as another name.
    LinkAcross = 14,
    /// Other nodes are not to rely on what they were told of this node's files: one of them has changed, or is open to be written.
    Break = 15,
}

/// What stat(2) says of a file in another node's tier. `st_dev` is the root's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Looks {
    pub ino: u64,
    pub size: u64,
    /// Of 512 bytes.
    pub blocks: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// It has so many extended attributes, ACLs among them.
    pub xattrs: u32,
    pub _pad: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Call {
    pub kind: u32,
    pub record: u32,
    pub serial: u64,
    pub size: i64,
    pub path_len: u32,
    pub _pad: u32,
    pub path: [u8; crate::PATH_MAX],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Reply {
    /// 0, or an errno.
    pub status: i32,
    pub record: u32,
    pub path_len: u32,
    pub _pad: u32,
    pub path: [u8; crate::PATH_MAX],
}
