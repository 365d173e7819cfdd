//! Memory that the program that asks maps: rows are written into it once, and read where they lie.
//!
//! ```text
//!   segment: a file in memory without a name ──descriptor and number, by a socket──▶ mapped, read, let go of ──number──▶ idle
//! ```
//!
//! Memory that was touched before is several times as fast, so what is let go of is kept for the next rows: at most `IDLE_BYTES_MAX`, and
//! not when nothing is asked for a while. Both keep their mappings of it, under the segment's number; when it is not kept any longer its
//! memory is given back, whoever has it mapped; the borrower lets go of its mappings when it forks, and when this process has ended.
//!
//! Invariant: what was lent is not written again before the borrower has let go of it. Where it has forked, that is never: its child may
//! look at the same memory. Such segments live as long as their mappings.

use memmap2::{MmapOptions, MmapRaw};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::collections::HashMap;
use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_analysis::arrow::buffer::Buffer;
use terrace_tool::failure::Failure;
use terrace_tool::filesystem::memory_available_bytes;

const IDLE_BYTES_MAX: u64 = 1 << 30;
/// More is kept where it is less than this part of the memory that is free.
const IDLE_SHARE: u64 = 4;
/// As the Python package has it.
const SLOT_BYTES: u64 = 1 << 40;
/// One thread copies 5 GB/s and more; many of them share the same memory.
const COPIERS_MAX: usize = 4;
/// For less it takes longer to start a thread.
const COPIER_BYTES_MIN: usize = 1 << 20;
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
    /// By which the borrower knows it, as long as it is kept.
    number: u32,
    file: File,
    slots: Vec<Slot>,
    is_lent: bool,
}

#[derive(Default)]
struct Slot {
    /// Written of this answer.
    bytes: u64,
    /// Written ever: there is memory for it.
    touched: u64,
    mapped: Option<MmapRaw>,
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
        let best = held.idle.iter().enumerate().max_by_key(|(_, segment)| segment.memory()).map(|(place, _)| place);
        let segment = match best {
            Some(place) => held.idle.remove(place),
            None => {
                held.last = held.last.wrapping_add(1).max(1);
                Segment::new(held.last)?
            }
        };
        Ok(segment.begun(slots))
    }

    /// The number by which the borrower knows it.
    pub fn lend(&self, mut segment: Segment) -> std::io::Result<u32> {
        let mut held = locked(&self.held);
        let number = segment.number;
        let descriptors = [segment.file.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let packet = number.to_le_bytes();
        rustix::net::sendmsg(&self.socket, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL)?;
        segment.is_lent = true;
        held.lent.insert(number, segment);
        Ok(number)
    }
}

impl Segment {
    fn new(number: u32) -> std::io::Result<Segment> {
        let file = rustix::fs::memfd_create("terrace rows", MemfdFlags::CLOEXEC)?;
        Ok(Segment { number, file: file.into(), slots: vec![], is_lent: false })
    }

    /// Memory that it is.
    fn memory(&self) -> u64 {
        self.slots.iter().map(|slot| slot.touched).sum()
    }

    /// Nothing is written yet, in so many slots at least.
    fn begun(mut self, slots: usize) -> Segment {
        for slot in &mut self.slots {
            slot.bytes = 0;
        }
        self.slots.resize_with(slots.max(self.slots.len()), Slot::default);
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.mapped.as_ref().map_or(0, MmapRaw::len) < slot.touched as usize {
                let options = MmapOptions::new().offset(number as u64 * SLOT_BYTES).len(slot.touched as usize).clone();
                // Without it all is written by system calls.
                slot.mapped = options.map_raw(&self.file).ok();
            }
        }
        self
    }

    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes).sum()
    }

    /// Each piece behind what its slot has.
    ///
    /// Memory that was touched before is copied to, by several threads. What nobody has touched is written by a system call, which need not
    /// clear it first, and which several threads would only wait for.
    pub fn append(&mut self, pieces: &[(usize, Buffer)]) -> std::io::Result<()> {
        let mut copies = vec![];
        for (number, piece) in pieces {
            let slot = &mut self.slots[*number];
            let (offset, end) = (slot.bytes, slot.bytes + piece.len() as u64);
            match &slot.mapped {
                Some(mapped) if end <= mapped.len() as u64 => copies.push((*number, offset as usize, piece)),
                _ => self.file.write_all_at(piece, *number as u64 * SLOT_BYTES + offset)?,
            }
            slot.bytes = end;
            slot.touched = slot.touched.max(end);
        }
        let (slots, next) = (&self.slots, AtomicUsize::new(0));
        let copy = || {
            while let Some((number, offset, piece)) = copies.get(next.fetch_add(1, Relaxed)) {
                let mapped = slots[*number].mapped.as_ref().expect("it was looked at above");
                // SAFETY: the mapping reaches further, each piece has its own place, and nobody reads there: what was lent is not here.
                unsafe { mapped.as_mut_ptr().add(*offset).copy_from_nonoverlapping(piece.as_ptr(), piece.len()) }
            }
        };
        let bytes: usize = copies.iter().map(|(_, _, piece)| piece.len()).sum();
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = threads.min(COPIERS_MAX).min(bytes / COPIER_BYTES_MIN);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // As many as there may be; whoever can't be started leaves its part to the others.
                let _ = std::thread::Builder::new().name("rows".into()).spawn_scoped(scope, copy);
            }
            copy();
        });
        Ok(())
    }
}

/// What nobody looks at is given back; the borrower may have it mapped still.
impl Drop for Segment {
    fn drop(&mut self) {
        if !self.is_lent {
            let _ = rustix::fs::ftruncate(&self.file, 0);
        }
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
                let segment = held.lent.remove(&number).map(|mut segment| {
                    segment.is_lent = false;
                    segment
                });
                held.idle.extend(segment);
                let mut sum: u64 = held.idle.iter().map(Segment::memory).sum();
                while sum > IDLE_BYTES_MAX && sum > memory_available_bytes().unwrap_or(0) / IDLE_SHARE {
                    sum -= held.idle.remove(0).memory();
                }
            }
        }
    }
}
