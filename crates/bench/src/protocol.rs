//! What the coordinator and its workers say to each other: one JSON text a message, behind its length, over TCP.
//!
//! ```text
//!   worker                                coordinator
//!   Hello (token, host, rank) ──────────▶ refuses a wrong token
//!   Pong ◀──── Ping, sixteen times ────── clock offset
//!   Looked ◀──── Look ───────────────────  objects in a store: are there some of this name?
//!         ◀─── Prepare (assignment) ─────
//!   Prepared (cache state) ─────────────▶ waits for all
//!         ◀─── Start (time on your clock)
//!   Barrier / Stonewalled ──────────────▶ waits for all ── Start / WearOut ──▶
//!   Done (report) or Failed ────────────▶
//! ```
//!
//! Everybody blocks in `read`; nobody polls. A connection that ends is a death.

use crate::cache::Residency;
use crate::settings::{Operation, RunSettings};
use crate::signature::Identity;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;

/// Environment of a worker: where its coordinator is, the secret, and which worker it is if that is known.
pub const TOKEN_VARIABLE: &str = "TERRACE_BENCH_TOKEN";
pub const WORKER_VARIABLE: &str = "TERRACE_BENCH_WORKER";

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToWorker {
    Ping,
    Prepare(Box<Assignment>),
    /// Go on when your clock shows this.
    Start {
        at_ns: u64,
    },
    /// Go on until you have issued so many requests.
    WearOut {
        requests: u64,
    },
    /// Says whether the file that this worker would make is there already.
    Look(Box<Assignment>),
    /// Removes the run's files that are this worker's.
    Remove(Box<Assignment>),
    /// Leave what you are doing, but stay.
    Bye,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FromWorker {
    Hello { token: String, host: String, pid: u32, rank: Option<u32>, clock: String },
    Pong { at_ns: u64 },
    Prepared { cache: Residency },
    Barrier,
    Stonewalled { requests: u64 },
    Done(Box<PassReport>),
    Looked { there: bool },
    Removed { ns: u64 },
    Failed { message: String, wrong_data: bool },
}

/// One operation of one run, for one worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    pub settings: RunSettings,
    pub operation: Operation,
    pub identity: Identity,
    /// Seed of what is drawn: orders, sizes, arrival times.
    pub draw_seed: u64,
    pub directory: PathBuf,
    /// Name of the run's file, or what its files' names begin with.
    pub file_stem: String,
    /// A file that is there is of this experiment, and a write makes it anew.
    pub replaces: bool,
    pub worker: u32,
    /// Whose data this worker reads.
    pub reads_of: u32,
    /// So many of the owner's first requests were written; without it all.
    pub written: Option<u64>,
    /// Who wrote the file is known.
    #[serde(default)]
    pub noted: bool,
    /// How long the file was when it had been written, where that is known.
    #[serde(default)]
    pub file_bytes: Option<u64>,
}

impl Assignment {
    /// Whose data the operation is about.
    pub fn owner(&self) -> u32 {
        if self.operation.reads() && self.operation != Operation::Mixed { self.reads_of } else { self.worker }
    }
}

/// What one worker did in one operation. Times are nanoseconds of its monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassReport {
    pub began_ns: u64,
    pub opened_ns: u64,
    pub first_ns: u64,
    pub last_ns: u64,
    pub flushed_ns: u64,
    pub closed_ns: u64,
    /// Time within first..last that was the tool's own: making data, checking it.
    pub own_ns: u64,
    /// On the backend's own clock.
    pub virtual_ns: Option<u64>,
    pub requests: u64,
    pub bytes: u64,
    pub read_requests: u64,
    pub read_bytes: u64,
    pub bytes_planned: u64,
    pub bytes_verified: u64,
    /// Where the last byte of this worker's requests ends in the file.
    #[serde(default)]
    pub end: u64,
    /// Size of a request to how many there were.
    pub sizes: BTreeMap<u64, u64>,
    /// Latencies in nanoseconds: an HDR histogram, serialised, in base 64.
    pub latencies: String,
    /// Requests that were issued before the stonewall.
    pub before_stonewall: Option<u64>,
    /// Largest delay of an open loop's request behind its time.
    pub late_ns_max: u64,
    /// What the storage says of the file's layout.
    pub layout: Option<String>,
    /// What a find found.
    #[serde(default)]
    pub found: u64,
    /// Wrong data was read.
    pub mismatch: Option<String>,
}

/// Messages are small: a histogram is the largest part.
const MESSAGE_MAX: u32 = 64 << 20;

pub fn send(stream: &mut TcpStream, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(|_| io::Error::other("a message is too long"))?;
    // One write, so that one packet goes out.
    let mut packet = length.to_be_bytes().to_vec();
    packet.extend(text);
    stream.write_all(&packet)
}

pub fn receive<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length > MESSAGE_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// A peer whose machine is gone is noticed within four seconds, without a word of the program's own.
pub fn notice_death(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    use std::time::Duration;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(1))?;
    sockopt::set_tcp_keepcnt(stream, 2)?;
    sockopt::set_tcp_user_timeout(stream, 3000)?;
    Ok(())
}
