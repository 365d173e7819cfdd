//! Memory that the program that asks maps: rows are written into it once, and read where they lie.
//!
//! ```text
//!   segment: a file in memory without a name ──descriptor and number, by a socket──▶ mapped, read, let go of ──number──▶ idle
//! ```
//!
//! Memory that was touched before is several times as fast, so what is let go of is kept for the next rows: at most `IDLE_BYTES_MAX`, and
//! not when nothing is asked for a while.
//!
//! Invariant: what was lent is not written again before the borrower has let go of it. Where it has forked, that is never: its child may
//! look at the same memory. Such segments live as long as their mappings.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::collections::HashMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_tool::failure::Failure;

const IDLE_BYTES_MAX: u64 = 1 << 30;
/// As the Python package has it.
const SLOT_BYTES: u64 = 1 << 40;
const IDLE_TIME: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };
/// Instead of a segment's number: the borrower has forked.
const ALL: u32 = 0;

pub struct Lender {
    socket: Arc<OwnedFd>,
    held: Arc<Mutex<Held>>,
}

#[derive(Default)]
struct Held {
    lent: HashMap<u32, Segment>,
    /// Oldest first.
    idle: Vec<Segment>,
    last: u32,
}

/// Bytes in slots that are `SLOT_BYTES` apart: the file has holes, and each slot is as long as it becomes.
pub struct Segment {
    file: OwnedFd,
    /// Written, in each slot.
    bytes: Vec<u64>,
    /// Most that was written in all slots together: so much memory it is.
    bytes_max: u64,
}

fn locked(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Lender {
    /// On this socket of packets, which the program that asks has given. `None`: files of this process have a limit, and memory too.
    pub fn new(socket: RawFd) -> Result<Option<Lender>, Failure> {
        if rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_some() {
            return Ok(None);
        }
        if socket <= 2 {
            return Err(Failure::invalid(format!("--lend {socket}: it is one of the three standard streams")));
        }
        // SAFETY: whoever started this program gave the descriptor for this alone; what is none is found by the next call.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let wrong = |errno: Errno| Failure::invalid(format!("--lend: it is no socket of packets: {errno}"));
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(wrong)?;
        if rustix::net::sockopt::socket_type(&socket).map_err(wrong)? != rustix::net::SocketType::SEQPACKET {
            return Err(wrong(Errno::PROTOTYPE));
        }
        let (socket, held) = (Arc::new(socket), Arc::<Mutex<Held>>::default());
        let (own, all) = (socket.clone(), held.clone());
        let failed = |error| Failure::new(format!("no thread can be started: {error}"));
        std::thread::Builder::new().name("lent".into()).spawn(move || take_back(&own, &all)).map_err(failed)?;
        Ok(Some(Lender { socket, held }))
    }

    /// One whose memory was touched before, where there is one.
    pub fn segment(&self, slots: usize) -> std::io::Result<Segment> {
        let mut held = locked(&self.held);
        let best = held.idle.iter().enumerate().max_by_key(|(_, segment)| segment.bytes_max).map(|(place, _)| place);
        let bytes = vec![0; slots];
        if let Some(place) = best {
            return Ok(Segment { bytes, ..held.idle.remove(place) });
        }
        let file = rustix::fs::memfd_create("terrace rows", MemfdFlags::CLOEXEC)?;
        Ok(Segment { file, bytes, bytes_max: 0 })
    }

    /// The number by which the borrower knows it.
    pub fn lend(&self, mut segment: Segment) -> std::io::Result<u32> {
        segment.bytes_max = segment.bytes_max.max(segment.bytes.iter().sum());
        let mut held = locked(&self.held);
        held.last = held.last.wrapping_add(1).max(1);
        let number = held.last;
        let descriptors = [segment.file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let packet = number.to_le_bytes();
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL)?;
        held.lent.insert(number, segment);
        Ok(number)
    }
}

impl Segment {
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Behind what the slot has. By a system call: memory that nobody has touched need not be cleared first.
    pub fn append(&mut self, slot: usize, mut bytes: &[u8]) -> std::io::Result<()> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.file, bytes, slot as u64 * SLOT_BYTES + self.bytes[slot]) {
                Ok(0) => return Err(Errno::NOSPC.into()),
                Ok(written) => {
                    self.bytes[slot] += written as u64;
                    bytes = &bytes[written..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}

/// Until the borrower is gone.
fn take_back(socket: &OwnedFd, held: &Mutex<Held>) {
    loop {
        let is_any_idle = !locked(held).idle.is_empty();
        let patience = is_any_idle.then_some(&IDLE_TIME);
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], patience) {
            Ok(0) => locked(held).idle.clear(),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        let mut packet = [0; 4];
        match rustix::net::recv(socket, &mut packet, RecvFlags::DONTWAIT) {
            Ok((4, _)) => {}
            Err(Errno::INTR | Errno::AGAIN) => continue,
            _ => return,
        }
        let mut held = locked(held);
        match u32::from_le_bytes(packet) {
            ALL => held.lent.clear(),
            number => {
                let segment = held.lent.remove(&number);
                held.idle.extend(segment);
                let mut sum: u64 = held.idle.iter().map(|segment| segment.bytes_max).sum();
                while sum > IDLE_BYTES_MAX {
                    sum -= held.idle.remove(0).bytes_max;
                }
            }
        }
    }
}
