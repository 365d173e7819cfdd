//! Messages between the command line and the agent: one JSON object a line, over the `control` socket.
//!
//! A client sends one `Request` at a time and reads `Response`s until one that `is_last`. `RunBegin` ties the run to the
//! connection: when the connection ends, however it ends, the run has ended.

use crate::arrivals::Arrival;
use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// A run starts: the agent stays at least as long as this connection. Answered by `RunStarted`; by `Leaving` where the
    /// agent has other settings and no run; by `Error` where a run that lives has other settings.
    /// When the client shuts its sending side, the run has ended: `Staying` is the answer where others are there, else the
    /// connection ends when the agent has left.
    RunBegin {
        pid: u32,
        command: Vec<String>,
        settings: Box<Settings>,
        #[serde(default)]
        origin: Origin,
    },
    /// Make durable what policy says is to be flushed (`all`: everything), below `paths` (empty: everywhere). Also ends
    /// `remove` files when `end_of_run`. Answered by `Progress`…, then `Flushed`.
    Flush {
        #[serde(with = "crate::paths::list")]
        paths: Vec<PathBuf>,
        all: bool,
        end_of_run: bool,
    },
    /// As `Flush`, by the agents of all other nodes that are registered at the root, each with its own policy. Answered by `FlushedElsewhere`.
    FlushElsewhere {
        #[serde(with = "crate::paths::list")]
        paths: Vec<PathBuf>,
        all: bool,
    },
    /// Free the faster tiers of what lies below `paths` (empty: everywhere), flushing first what is not durable.
    /// `Progress`…, then `Flushed`.
    Evict {
        #[serde(with = "crate::paths::list")]
        paths: Vec<PathBuf>,
    },
    /// Bring up files below `paths`, or (empty) those that match the policy's prefetch patterns. `Progress`…, then `Flushed`.
    Prefetch {
        #[serde(with = "crate::paths::list")]
        paths: Vec<PathBuf>,
    },
    /// Names of files that this connection's process brings, as long as the connection lasts; then names whose files have not come go.
    /// Answered by `Arriving`.
    Arrive { files: Vec<Arrival> },
    /// Which of them somebody waits for; the path is where he met the name. Answered by `Awaited`, after a second at most.
    NextAwaited { arriving: u64 },
    /// These have come, and these can't be brought, with the reason. Answered by `Awaited`, with none.
    Arrived { arriving: u64, objects: Vec<String>, failed: Vec<(String, String)> },
    /// Answered by `Files`.
    List {
        #[serde(with = "crate::paths::option", default)]
        prefix: Option<PathBuf>,
    },
    /// Files that lie in other nodes' tiers. Answered by `Elsewhere`.
    ListElsewhere {
        #[serde(with = "crate::paths::option", default)]
        prefix: Option<PathBuf>,
    },
    /// Answered by `Status`.
    Status,
    /// Moves and runs that have ended, from this number on. Answered by `Ended`.
    Ended { since: u64 },
    /// End now if no run is left: flush, then exit. Answered by `Progress`…, `Flushed`.
    Shutdown,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "response", rename_all = "snake_case")]
// One at a time is made, written or read, and dropped.
#[allow(clippy::large_enum_variant)]
pub enum Response {
    RunStarted {
        run: u64,
        #[serde(with = "crate::paths")]
        index: PathBuf,
        agent_pid: u32,
    },
    /// The agent leaves, so that one with the settings that were asked for can come: the connection ends when it has.
    Leaving,
    /// The agent goes on without the run that has ended.
    Staying,
    Progress {
        files_done: u64,
        files_total: u64,
        bytes_done: u64,
        bytes_total: u64,
    },
    Flushed {
        files: u64,
        bytes: u64,
        failures: Vec<Failure>,
        #[serde(with = "crate::paths::list")]
        open_files: Vec<PathBuf>,
    },
    FlushedElsewhere {
        nodes: Vec<NodeFlushed>,
    },
    /// To be named in what is said of them.
    Arriving {
        arriving: u64,
    },
    Awaited {
        files: Vec<Arrival>,
    },
    Files {
        files: Vec<FileEntry>,
    },
    Elsewhere {
        files: Vec<Elsewhere>,
    },
    Status {
        status: Status,
    },
    Ended {
        ended: Ended,
    },
    /// The request could not be done. `hint` says what to do.
    Error {
        message: String,
        hint: Option<String>,
    },
}

impl Response {
    pub fn is_last(&self) -> bool {
        !matches!(self, Response::Progress { .. })
    }
}

/// Where a run comes from: the same for each agent that serves it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Origin {
    /// When it began; 0: it was not said. This and all times that end in `_ns`: nanoseconds since 1970.
    pub begun_ns: u64,
    /// The W3C's trace context that its environment had: of who started it.
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    /// It is somebody's program, of which a trace tells; others only hold the agent.
    pub is_traced: bool,
}

/// What has ended lately. An agent keeps the last 4,096 moves, and the last 256 runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Ended {
    /// When the agent began, which tells it from others: numbers are its own.
    pub agent_ns: u64,
    /// How many had ended since the number that was asked for, and were forgotten before that.
    pub lost: u64,
    /// The number to ask for next.
    pub next: u64,
    /// Runs that ended, and those that live.
    pub runs: Vec<RunSpan>,
    pub moves: Vec<MoveSpan>,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct RunSpan {
    pub run: u64,
    pub pid: u32,
    pub command: Vec<String>,
    pub origin: Origin,
    pub begin_ns: u64,
    /// `None`: it lives.
    pub end_ns: Option<u64>,
}

/// A move of one file, array or placed directory, whether it worked or not.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct MoveSpan {
    pub kind: MoveKind,
    #[serde(with = "crate::paths")]
    pub path: PathBuf,
    pub bytes: u64,
    /// The faster tier: which it left, or came to.
    pub tier: Option<String>,
    /// The oldest run that lived when it ended.
    pub run: Option<u64>,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum MoveKind {
    Flush,
    Evict,
    Prefetch,
    /// To another tier or into the root, while programs have it open.
    LiveMove,
    /// To another node.
    Give,
    /// From another node.
    Take,
    /// Policy drops it.
    Remove,
}

impl MoveKind {
    pub fn name(self) -> &'static str {
        match self {
            MoveKind::Flush => "flush",
            MoveKind::Evict => "evict",
            MoveKind::Prefetch => "prefetch",
            MoveKind::LiveMove => "live_move",
            MoveKind::Give => "give",
            MoveKind::Take => "take",
            MoveKind::Remove => "remove",
        }
    }
}

/// What another node's flush came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct NodeFlushed {
    pub node: String,
    pub files: u64,
    pub bytes: u64,
    pub failures: Vec<Failure>,
    #[serde(with = "crate::paths::list")]
    pub open_files: Vec<PathBuf>,
    /// Why it was not reached: nothing is known of its files.
    pub unreached: Option<String>,
}

/// A file that could not be made durable, and why.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Failure {
    #[serde(with = "crate::paths")]
    pub path: PathBuf,
    pub reason: String,
}

/// One line of `terrace ls`.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct FileEntry {
    #[serde(with = "crate::paths")]
    pub path: PathBuf,
    pub tier: String,
    /// `current` (only here), `clean` (durable, with a replica here), `moving`, `durable`.
    pub state: String,
    pub mode: crate::policy::Mode,
    pub size: u64,
    pub open_for_writing: bool,
}

/// A file whose bytes lie in another node's tier.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct Elsewhere {
    #[serde(with = "crate::paths")]
    pub path: PathBuf,
    /// The node's; `None`: of an older build.
    pub tag: Option<String>,
    /// Whose tier it is in, for people.
    #[serde(rename = "node")]
    pub whose: String,
    /// That host was started again since: what was in its memory is gone.
    #[serde(rename = "lost")]
    pub is_lost: bool,
    /// That node was declared gone.
    #[serde(rename = "gone")]
    pub is_gone: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Status {
    #[serde(with = "crate::paths")]
    pub root: PathBuf,
    pub agent_pid: u32,
    pub uptime_s: f64,
    pub runs: Vec<RunStatus>,
    pub tiers: Vec<TierStatus>,
    pub counters: Counters,
    /// Files that exist only in a faster tier and are to be flushed, and their bytes.
    pub unflushed_files: u64,
    pub unflushed_bytes: u64,
    /// Files that are on their way from an object store.
    #[serde(default)]
    pub arriving_files: u64,
    /// Flushes, evictions, prefetches under way.
    #[serde(with = "crate::paths::list")]
    pub moving: Vec<PathBuf>,
    pub failures: Vec<Failure>,
    pub warnings: Vec<String>,
    /// Containers that have staged arrays.
    #[serde(default)]
    pub containers: Vec<ContainerStatus>,
    /// One for each container and each agent that it is forwarded to.
    #[serde(default)]
    pub forwards: Vec<ForwardStatus>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ContainerStatus {
    /// Below the root; empty: the root itself.
    pub container: String,
    pub arrays: u64,
    /// Steps that all of its growing arrays have whole; `None`: it has no such array.
    pub steps: Option<u64>,
    /// Steps that some array has begun.
    pub steps_begun: u64,
    pub staged_regions: u64,
    pub staged_bytes: u64,
    /// Arrays whose newest cells are not in the root.
    pub undurable_arrays: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ForwardStatus {
    pub container: String,
    pub target: String,
    /// `idle`, `sending`, `away` (not reached: it is tried again), `refused` (the target does not take something).
    pub state: String,
    /// Why it is away or refuses.
    pub reason: Option<String>,
    /// Since the agent's start.
    pub sent_regions: u64,
    pub sent_bytes: u64,
    pub queued_regions: u64,
    pub queued_bytes: u64,
    /// How long the oldest region that has not arrived has been waiting.
    pub lag_s: f64,
    /// Over the last five seconds.
    pub bytes_s: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct RunStatus {
    pub run: u64,
    pub pid: u32,
    pub command: Vec<String>,
    pub elapsed_s: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct TierStatus {
    pub name: String,
    #[serde(with = "crate::paths::list")]
    pub paths: Vec<PathBuf>,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub files: u64,
    /// Bytes that programs wrote into new files of this tier, and files made there, since the agent's start.
    pub written_bytes: u64,
    pub written_files: u64,
    pub durable: bool,
}

/// Totals since the agent's start. Seconds are summed over mover threads.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Counters {
    pub opens_tier: u64,
    pub opens_durable: u64,
    pub creates_tier: u64,
    pub creates_durable: u64,
    /// Of these: small files, which cost more by a tier (`small_files`).
    #[serde(default)]
    pub creates_small: u64,
    /// Directories made in the root that `directories = "all"` might have placed, and gained by it.
    #[serde(default)]
    pub unplaced_directories: u64,
    pub flushed_files: u64,
    pub flushed_bytes: u64,
    pub flush_s: f64,
    pub evicted_files: u64,
    pub evicted_bytes: u64,
    pub evict_s: f64,
    pub prefetched_files: u64,
    pub prefetched_bytes: u64,
    pub prefetch_s: f64,
    pub moved_live_files: u64,
    pub moved_live_bytes: u64,
    /// Files that went to other nodes, whose programs opened them, and that came from them so.
    #[serde(default)]
    pub given_files: u64,
    #[serde(default)]
    pub given_bytes: u64,
    #[serde(default)]
    pub taken_files: u64,
    #[serde(default)]
    pub taken_bytes: u64,
    pub removed_files: u64,
    pub removed_bytes: u64,
    /// Bytes of files that programs opened for reading, taken as wholes: files that were there before, files that programs had made in
    /// a tier, and either of them opened again.
    #[serde(default)]
    pub input_bytes: u64,
    #[serde(default)]
    pub read_back_bytes: u64,
    #[serde(default)]
    pub reread_bytes: u64,
}
