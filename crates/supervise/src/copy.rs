//! copy_file_range(2) between a file in a tier and one that isn't: one file system to the program, two to the kernel, which refuses.
//!
//!   both below the root, on two file systems ─▶ bytes copied by explicit offsets ─▶ the end noted ─▶ the program's offsets set
//!
//! Invariant: the program's offsets change only after what they become is on the slot. So a call that a killed supervisor had
//! received is either done again from where it began, or only its offsets are set once more.

use crate::calls::{Taken, unreachable_for_us};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::target::Target;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::*;

/// Most bytes of one call: a short count is a right answer, and the program asks for the rest.
const COPY_MAX: usize = 4 << 20;
/// `Slot::acting`: the bytes are there, the offsets may not be.
const COPIED: u32 = 2;

/// One file of the two, and where in it.
struct End {
    file: OwnedFd,
    /// Where the program has its offset; 0: in the descriptor.
    address: u64,
    at: i64,
}

impl Worker {
    pub fn copy_range(&mut self, call: &Notification, again: bool) -> Taken<Answer> {
        let [from, from_at, to, to_at, size, flags] = call.args;
        let source = self.end(call, from as i32, from_at)?;
        let sink = self.end(call, to as i32, to_at)?;
        if flags != 0 || !self.is_between_tiers(&source.file, &sink.file) {
            return Ok(Answer::Continue);
        }
        let slot = self.slot;
        if again && slot.acting.load(Acquire) == COPIED {
            let count = slot.intent.record.load(Acquire) as i64;
            let (source_at, sink_at) = (slot.before.load(Acquire) as i64, slot.intent.serial.load(Acquire) as i64);
            return Ok(self.arrive(call, &source, source_at + count, &sink, sink_at + count, count));
        }
        self.begin(call)?;
        let count = match self.carry(&source, &sink, (size as usize).min(COPY_MAX)) {
            Ok(count) => count as i64,
            Err(errno) => return Ok(Answer::Error(errno)),
        };
        slot.before.store(source.at as u64, Release);
        slot.intent.serial.store(sink.at as u64, Release);
        slot.intent.record.store(count as u32, Release);
        slot.acting.store(COPIED, Release);
        Ok(self.arrive(call, &source, source.at + count, &sink, sink.at + count, count))
    }

    fn end(&self, call: &Notification, fd: i32, address: u64) -> Taken<End> {
        let target = Target { thread: call.thread };
        let file = self.handles.borrow_mut().descriptor(target, fd).map_err(unreachable_for_us)?;
        let mut bytes = [0; 8];
        let at = match address {
            // SAFETY: our own descriptor.
            0 => unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) },
            _ => {
                target.read(address, &mut bytes).map_err(|_| Answer::Continue)?;
                i64::from_ne_bytes(bytes)
            }
        };
        if at < 0 { Err(Answer::Continue) } else { Ok(End { file, address, at }) }
    }

    /// Two regular files that are on the root's file system to programs, and on two to the kernel.
    fn is_between_tiers(&self, source: &OwnedFd, sink: &OwnedFd) -> bool {
        let [(source, source_shown), (sink, sink_shown)] = [source, sink].map(|file| {
            // SAFETY: zeroed structures are valid; our own descriptor.
            unsafe {
                let (mut native, mut shown): (libc::stat, libc::stat) = (zeroed(), zeroed());
                libc::fstat(file.as_raw_fd(), &mut native);
                let (fd, path) = (file.as_raw_fd(), c"".as_ptr());
                (self.shared.table.stat)(fd, path, (&raw mut shown).cast(), libc::AT_EMPTY_PATH);
                (native, shown)
            }
        });
        let are_files = [&source, &sink].iter().all(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG);
        are_files
            && source.st_dev != sink.st_dev
            && source_shown.st_dev == self.shared.root_dev
            && sink_shown.st_dev == self.shared.root_dev
    }

    fn carry(&mut self, source: &End, sink: &End, size: usize) -> Result<usize, i32> {
        let last_errno = || std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        // SAFETY: our own descriptors.
        let [reads, writes] = [source, sink].map(|end| unsafe { libc::fcntl(end.file.as_raw_fd(), libc::F_GETFL) });
        let is_right = reads & libc::O_ACCMODE != libc::O_WRONLY
            && writes & libc::O_ACCMODE != libc::O_RDONLY
            && writes & libc::O_APPEND == 0;
        if !is_right {
            return Err(libc::EBADF);
        }
        let mut done = 0;
        while done < size {
            let wanted = (size - done).min(self.buffer.len());
            // SAFETY: our own descriptors and buffer.
            let moved = unsafe {
                let (from, to) = (source.file.as_raw_fd(), sink.file.as_raw_fd());
                let read = libc::pread(from, self.buffer.as_mut_ptr().cast(), wanted, source.at + done as i64);
                match read {
                    1.. => libc::pwrite(to, self.buffer.as_ptr().cast(), read as usize, sink.at + done as i64),
                    other => other,
                }
            };
            match moved {
                1.. => done += moved as usize,
                0 => break,
                _ if done > 0 => break,
                _ => return Err(last_errno()),
            }
        }
        Ok(done)
    }

    /// The program's offsets are where the copy ended.
    fn arrive(&self, call: &Notification, source: &End, from: i64, sink: &End, to: i64, count: i64) -> Answer {
        let target = Target { thread: call.thread };
        for (end, at) in [(source, from), (sink, to)] {
            match end.address {
                0 => {
                    // SAFETY: our own descriptor, which had an offset before.
                    unsafe { libc::lseek(end.file.as_raw_fd(), at, libc::SEEK_SET) };
                }
                address => {
                    if let Err(errno) = target.write(address, &at.to_ne_bytes()) {
                        return Answer::Error(errno);
                    }
                }
            }
        }
        Answer::Value(count)
    }
}
