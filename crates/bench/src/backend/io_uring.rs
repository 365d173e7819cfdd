//! io_uring: several requests under way, one system call for many.

use super::{Backend, Queue, Target, not_open, posix};
use io_uring::{IoUring, opcode, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// Between two looks where the kernel can't wait for a time.
const LOOK: Duration = Duration::from_micros(20);

/// A request under way: what is left of it.
#[derive(Clone, Copy)]
struct Pending {
    write: bool,
    offset: u64,
    buffer: *mut u8,
    bytes: usize,
}

pub struct Uring {
    ring: IoUring,
    depth: usize,
    direct: bool,
    file: Option<File>,
    pending: Vec<Option<Pending>>,
}

impl Uring {
    pub fn new(depth: u32, direct: bool) -> io::Result<Uring> {
        let depth_entries = depth.next_power_of_two();
        let ring = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(depth_entries);
        // Older kernels don't know the flags.
        let ring = ring.or_else(|_| IoUring::new(depth_entries))?;
        Ok(Uring { ring, depth: depth as usize, direct, file: None, pending: vec![None; depth as usize] })
    }

    fn push(&mut self, slot: usize) -> io::Result<()> {
        let file = types::Fd(self.file.as_ref().ok_or_else(not_open)?.as_raw_fd());
        let Pending { write, offset, buffer, bytes } = self.pending[slot].expect("a slot is pushed after it is set");
        let bytes = u32::try_from(bytes).unwrap_or(1 << 30).min(1 << 30);
        let entry = if write {
            opcode::Write::new(file, buffer, bytes).offset(offset).build()
        } else {
            opcode::Read::new(file, buffer, bytes).offset(offset).build()
        };
        // SAFETY: whoever submitted promised that the buffer stays valid until the slot is complete.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(slot as u64)) };
        pushed.map_err(|_| io::Error::other("io_uring's queue is full"))?;
        Ok(())
    }

    /// Takes a completion into account; false when the request needs another turn.
    fn advance(&mut self, slot: usize, result: i32) -> io::Result<bool> {
        let Some(request) = self.pending[slot].as_mut() else {
            return Err(io::Error::other("io_uring completed a request that was not made"));
        };
        if result < 0 {
            let error = io::Error::from_raw_os_error(-result);
            let again = error.kind() == io::ErrorKind::Interrupted || error.raw_os_error() == Some(libc::EAGAIN);
            return if again { Ok(false) } else { Err(error) };
        }
        if result == 0 && request.bytes > 0 {
            return Err(if request.write { io::ErrorKind::WriteZero } else { io::ErrorKind::UnexpectedEof }.into());
        }
        let moved = result as usize;
        request.bytes -= moved;
        request.offset += moved as u64;
        // SAFETY: the kernel moved so many bytes of the buffer, so this is within it or at its end.
        request.buffer = unsafe { request.buffer.add(moved) };
        Ok(request.bytes == 0)
    }

    fn next_done(&mut self) -> Option<(usize, i32)> {
        self.ring.completion().next().map(|done| (done.user_data() as usize, done.result()))
    }

    /// A request that is done, if there is one.
    fn done(&mut self) -> io::Result<Option<usize>> {
        while let Some((slot, result)) = self.next_done() {
            if self.advance(slot, result)? {
                self.pending[slot] = None;
                return Ok(Some(slot));
            }
            self.push(slot)?;
        }
        Ok(None)
    }

    fn one(&mut self, write: bool, offset: u64, buffer: *mut u8, bytes: usize) -> io::Result<()> {
        // SAFETY: the buffer is the caller's for the whole call, and this waits for the only request.
        unsafe { self.submit(0, write, offset, buffer, bytes) }?;
        self.complete().map(|_| ())
    }
}

impl Queue for Uring {
    fn depth(&self) -> usize {
        self.depth
    }
    unsafe fn submit(
        &mut self,
        slot: usize,
        write: bool,
        offset: u64,
        buffer: *mut u8,
        bytes: usize,
    ) -> io::Result<()> {
        self.pending[slot] = Some(Pending { write, offset, buffer, bytes });
        self.push(slot)
    }
    fn issue(&mut self) -> io::Result<()> {
        self.ring.submit().map(|_| ())
    }
    fn complete(&mut self) -> io::Result<usize> {
        loop {
            if let Some(slot) = self.done()? {
                return Ok(slot);
            }
            self.ring.submit_and_wait(1)?;
        }
    }
    fn complete_within(&mut self, time: Duration) -> io::Result<Option<usize>> {
        let end = Instant::now() + time;
        loop {
            if let Some(slot) = self.done()? {
                return Ok(Some(slot));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if self.ring.params().is_feature_ext_arg() {
                let time = types::Timespec::from(left);
                let waited = self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time));
                match waited {
                    Err(error) if !matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR)) => {
                        return Err(error);
                    }
                    _ => {}
                }
            } else {
                // A kernel before 5.11 waits for ever or not at all.
                self.ring.submit()?;
                std::thread::sleep(left.min(LOOK));
            }
        }
    }
}

impl Backend for Uring {
    fn open(&mut self, target: &Target) -> io::Result<()> {
        self.file = Some(posix::open(target, self.direct)?);
        Ok(())
    }
    fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.one(true, offset, data.as_ptr().cast_mut(), data.len())
    }
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.one(false, offset, buffer.as_mut_ptr(), buffer.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.as_ref().ok_or_else(not_open)?.sync_all()
    }
    fn close(&mut self) -> io::Result<()> {
        posix::close(self.file.take().ok_or_else(not_open)?)
    }
    fn remove(&mut self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
    fn queue(&mut self) -> Option<&mut dyn Queue> {
        Some(self)
    }
}
