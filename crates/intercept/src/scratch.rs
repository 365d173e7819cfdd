//! Buffers off the stack: hooks run on threads with the smallest stack that there is, and in signal handlers on an alternate one.
//!
//! A fixed set of frames, of which the untouched ones take no memory; when all are taken, a mapping of its own.
//!
//! Invariant: a frame has one owner, said by its bit. What is never given back (a handler that jumped out, a thread that
//! fork left behind) makes later buffers mappings, nothing worse.

use crate::gate;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A path, or a message of the agent's.
pub const FRAME_BYTES: usize = 4352;
const FRAMES: usize = 32;

const _: () = assert!(FRAME_BYTES >= size_of::<terrace_index::calls::Call>());
const _: () = assert!(FRAME_BYTES >= size_of::<terrace_index::calls::Reply>());

#[repr(C, align(64))]
struct Frame(UnsafeCell<[u8; FRAME_BYTES]>);

// SAFETY: a frame is touched only by who set its bit in `TAKEN`.
unsafe impl Sync for Frame {}

static POOL: [Frame; FRAMES] = [const { Frame(UnsafeCell::new([0; FRAME_BYTES])) }; FRAMES];
static TAKEN: AtomicU32 = AtomicU32::new(0);

/// `FRAME_BYTES` bytes with whatever was left in them. Gives itself back.
pub struct Scratch {
    at: *mut u8,
    /// `None`: a mapping, or (when there is no memory left) nothing.
    number: Option<u32>,
}

impl Scratch {
    /// The end of the process if there is no memory at all: no call could be made with half a path.
    pub fn new() -> Scratch {
        let mut taken = TAKEN.load(Relaxed);
        while taken != u32::MAX {
            let number = taken.trailing_ones();
            match TAKEN.compare_exchange_weak(taken, taken | 1 << number, Acquire, Relaxed) {
                Ok(_) => return Scratch { at: POOL[number as usize].0.get() as *mut u8, number: Some(number) },
                Err(now) => taken = now,
            }
        }
        // SAFETY: an anonymous mapping of our own.
        let made = unsafe {
            gate::call6(
                libc::SYS_mmap,
                0,
                FRAME_BYTES,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
                usize::MAX,
                0,
            )
        };
        assert!(made > 0, "no memory for a path");
        Scratch { at: made as *mut u8, number: None }
    }

    pub fn as_ptr(&self) -> *const u8 {
        self.at
    }

    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at
    }

    pub fn bytes(&self) -> &[u8; FRAME_BYTES] {
        // SAFETY: ours alone until it is dropped.
        unsafe { &*(self.at as *const [u8; FRAME_BYTES]) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8; FRAME_BYTES] {
        // SAFETY: ours alone until it is dropped.
        unsafe { &mut *(self.at as *mut [u8; FRAME_BYTES]) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        match self.number {
            Some(number) => {
                TAKEN.fetch_and(!(1 << number), Release);
            }
            // SAFETY: our own mapping, which nobody uses any more.
            None => unsafe {
                gate::call2(libc::SYS_munmap, self.at as usize, FRAME_BYTES);
            },
        }
    }
}
