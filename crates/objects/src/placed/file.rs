//! One open bytes object: reads by `pread`, writes in a guard.
//!
//! A descriptor of a placed file may be left behind when the agent moves the file: before each use the number of moves is
//! compared with the last one seen (one load), and the descriptor exchanged if it is not the file's any more.

use super::names;
use crate::agent_call::{About, call};
use crate::calls;
use crate::failure::{Context, system};
use crate::place::{Place, sleep_us};
use rustix::fs::{Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::*;
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_index::State;
use terrace_index::calls::CallKind;
use terrace_index::guard::Domain;

/// A durable file's replica that is read in its place, as long as the two are equal.
#[derive(Clone, Copy)]
pub(crate) struct Replica {
    /// Of its record, which may be given to another file.
    pub random: u64,
    pub durable_ino: u64,
}

pub struct BytesFile {
    path: PathBuf,
    fd: OwnedFd,
    writable: bool,
    /// The record of its object; `None`: a real file of the root.
    record: Option<u32>,
    replica: Option<Replica>,
    /// `moves_seq` when the descriptor was last known to be the file's.
    seen: u64,
    /// The file may have this many bytes without asking for room.
    room_until: i64,
}

impl BytesFile {
    pub(crate) fn new(path: &Path, fd: OwnedFd, writable: bool, record: Option<u32>, seen: u64) -> BytesFile {
        BytesFile { path: path.into(), fd, writable, record, replica: None, seen, room_until: 0 }
    }

    pub(crate) fn of_replica(path: &Path, fd: OwnedFd, number: u32, replica: Replica, seen: u64) -> BytesFile {
        BytesFile { replica: Some(replica), ..BytesFile::new(path, fd, false, Some(number), seen) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
    pub fn is_writable(&self) -> bool {
        self.writable
    }
    pub fn is_placed(&self) -> bool {
        self.record.is_some()
    }

    fn stat(&self) -> Result<Stat> {
        calls::fstat(&self.fd).context("look at", &self.path)
    }

    /// By a seek (the descriptor's own position is not used), because a supervised process's looks at files go to the supervisor.
    pub fn len(&mut self, place: &Place) -> Result<u64> {
        self.follow(place)?;
        rustix::fs::seek(&self.fd, SeekFrom::End(0)).context("look at", &self.path)
    }

    /// The descriptor is the file's again.
    fn follow(&mut self, place: &Place) -> Result<()> {
        let index = place.index();
        self.leave_replica(place);
        loop {
            let seq = index.header.moves_seq.load(SeqCst);
            let Some(number) = self.record.filter(|_| self.seen != seq) else { return Ok(()) };
            match index.records[number as usize].state() {
                State::Moving => sleep_us(200),
                State::Moved => self.exchange(place, number)?,
                State::Dead if index.records[number as usize].moved_to.load(Acquire) != 0 => {
                    self.exchange(place, number)?;
                }
                _ => self.seen = seq,
            }
        }
    }

    /// A replica whose file was written in the root is not equal any more: the root's file is read from now on.
    fn leave_replica(&mut self, place: &Place) {
        let Some((replica, number)) = self.replica.zip(self.record) else { return };
        let record = &place.index().records[number as usize];
        let is_kept = record.random.load(Acquire) == replica.random
            && !matches!(record.state(), State::Durable | State::Dead | State::Free | State::New);
        // Where there are other nodes, one of their programs may write to the root's file, and tells nobody.
        let is_written_elsewhere = || {
            place.index().header.others.load(Acquire) > 0
                && record.state() == State::Clean
                && !calls::lstat(&self.path).is_ok_and(|stat| names::is_equal_to(record, &stat))
        };
        if is_kept && !is_written_elsewhere() {
            return;
        }
        self.replica = None;
        self.record = None;
        let evictions = &place.index().header.evictions_seq;
        let opened = loop {
            let before = evictions.load(Acquire);
            let opened = calls::open(&self.path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty());
            // It may have waited while the name was given to the object again: then it has an old one.
            if evictions.load(Acquire) == before {
                break opened;
            }
        };
        // Under this name there may be another file by now; of the old one there is nothing but what we have.
        let is_it = |fd: &OwnedFd| calls::fstat(fd).is_ok_and(|found| found.st_ino == replica.durable_ino);
        if let Some(durable) = opened.ok().filter(is_it) {
            self.fd = durable;
        }
    }

    fn exchange(&mut self, place: &Place, number: u32) -> Result<()> {
        let (status, fd) = call(place, CallKind::Exchange, About::Descriptor(number, self.fd.as_fd()), 0)?;
        match (status, fd) {
            (0, Some(fd)) => self.fd = fd,
            (status, _) => {
                let errno = Errno::from_raw_os_error(if status == 0 { libc::EIO } else { status });
                return Err(system("follow to its new tier", &self.path, errno));
            }
        }
        let stat = self.stat()?;
        self.record = place.index().record_of_object(stat.st_dev, stat.st_ino, stat.st_nlink);
        self.room_until = 0;
        Ok(())
    }

    /// Bytes read; fewer than asked for only at the end.
    pub fn read_at(&mut self, place: &Place, position: u64, buffer: &mut [u8]) -> Result<usize> {
        self.follow(place)?;
        let mut done = 0;
        while done < buffer.len() {
            match rustix::io::pread(&self.fd, &mut buffer[done..], position + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(system("read", &self.path, errno)),
            }
        }
        Ok(done)
    }

    pub fn write_at(&mut self, place: &Place, position: u64, bytes: &[u8]) -> Result<()> {
        let end = position.checked_add(bytes.len() as u64).filter(|&end| end < 1 << 62);
        let Some(end) = end else {
            return Err(ObjectError::new(
                Kind::OutOfBounds,
                format!("{}: a position beyond 2^62", self.path.display()),
            ));
        };
        self.changing(place, end as i64, |file| {
            let mut done = 0;
            while done < bytes.len() {
                match rustix::io::pwrite(&file.fd, &bytes[done..], position + done as u64) {
                    Ok(0) => return Err(Errno::IO),
                    Ok(count) => done += count,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(())
        })
    }

    pub fn set_len(&mut self, place: &Place, length: u64) -> Result<()> {
        if length >= 1 << 62 {
            return Err(ObjectError::new(Kind::OutOfBounds, format!("{}: a length beyond 2^62", self.path.display())));
        }
        // Shrinking needs no room; growing makes a hole, which takes none either until it is written.
        self.changing(place, 0, |file| rustix::fs::ftruncate(&file.fd, length))?;
        self.room_until = 0;
        Ok(())
    }

    /// Runs a call that changes the file's bytes, in a guard, when the file has room for `end` bytes and stays where it is.
    fn changing(&mut self, place: &Place, end: i64, act: impl Fn(&BytesFile) -> rustix::io::Result<()>) -> Result<()> {
        if !self.writable {
            return Err(ObjectError::new(Kind::Denied, format!("{} was opened for reading only", self.path.display())));
        }
        let index = place.index();
        loop {
            self.follow(place)?;
            let Some(number) = self.record else {
                return act(self).map_err(|errno| system("write", &self.path, errno));
            };
            if !self.reserve(place, number, end)? {
                continue;
            }
            let outcome = place.guarded(Domain::Data, || {
                let is_still = index.header.moves_seq.load(SeqCst) == self.seen;
                is_still.then(|| act(self))
            });
            match outcome {
                Some(Ok(())) => return Ok(()),
                Some(Err(Errno::NOSPC | Errno::DQUOT)) => self.grow(place, number, end)?,
                Some(Err(errno)) => return Err(system("write", &self.path, errno)),
                None => {}
            }
        }
    }

    /// Takes what is missing from the tier's room; asks the agent when there is none. False: look again what the file is.
    fn reserve(&mut self, place: &Place, number: u32, end: i64) -> Result<bool> {
        if end <= self.room_until {
            return Ok(true);
        }
        let index = place.index();
        let record = &index.records[number as usize];
        let stat = self.stat()?;
        let total = end.max(stat.st_size.max(stat.st_blocks * 512));
        let reserved = record.reserved.load(Acquire);
        if reserved >= total {
            self.room_until = reserved;
            return Ok(true);
        }
        let device = &index.header.devices[record.device.load(Relaxed) as usize % terrace_index::DEVICES];
        let missing = total - reserved;
        let grant = missing.max(device.grant_max.load(Relaxed));
        let taken = [grant, missing].into_iter().find(|&bytes| device.reserve(bytes));
        match taken {
            Some(bytes) => {
                self.room_until = record.reserved.fetch_add(bytes, AcqRel) + bytes;
                Ok(true)
            }
            None => self.grow(place, number, end).map(|()| false),
        }
    }

    /// The tier is full: the agent makes room, or moves the file down.
    fn grow(&mut self, place: &Place, number: u32, end: i64) -> Result<()> {
        self.room_until = 0;
        let stat = self.stat()?;
        let wanted = end.max(stat.st_size.max(stat.st_blocks * 512));
        let (status, _) = call(place, CallKind::Grow, About::Descriptor(number, self.fd.as_fd()), wanted)?;
        match status {
            0 => {
                self.follow(place)?;
                Ok(())
            }
            errno => Err(system("find room for", &self.path, Errno::from_raw_os_error(errno))),
        }
    }

    /// Makes the bytes as safe as the tier is.
    pub fn sync(&mut self, place: &Place) -> Result<()> {
        self.follow(place)?;
        rustix::fs::fdatasync(&self.fd).context("sync", &self.path)
    }
}
