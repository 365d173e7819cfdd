//! A file that comes from another node: an object of this one, first without a name.
//!
//! ```text
//!  offer ─▶ room, record, temporary ─▶ bytes, attributes ─▶ object ─▶ the owner gives it the name ─▶ as any file that was made here
//! ```
//!
//! Until it has its name it is like a file that a program is just making: recovery leaves it alone while this node's programs run, and
//! the name, when it comes, is found by a walk.

use crate::files::Files;
use crate::shared::ended::{Move, now_ns};
use crate::shared::index_file::{object_name, random_half};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use std::time::Instant;
use terrace_core::control::MoveKind;
use terrace_core::peers::Offer;
use terrace_index::State;
use terrace_tier::{Attributes, Step, Tier, Timestamp, Writing, WritingExt, reached};

/// Dropped without a name, it leaves nothing.
pub struct Taking<'a> {
    files: &'a Files,
    number: u32,
    name: PathBuf,
    bytes: i64,
    sink: Option<Box<dyn Writing>>,
    is_kept: bool,
    begin_ns: u64,
}

impl Files {
    /// So many bytes may a file have that comes here: what the roomiest device has free.
    pub fn room_for_one(&self) -> u64 {
        let takes = self.index.devices().iter().filter(|device| device.accepts.load(Relaxed) != 0);
        takes.map(|device| device.free().max(0) as u64).max().unwrap_or(0)
    }

    /// The device's file system keeps nothing when the machine stops.
    pub fn is_in_memory(&self, device: usize) -> bool {
        const KINDS: [i64; 2] = [libc::TMPFS_MAGIC, 0x8584_58f6]; // and ramfs
        rustix::fs::statfs(&self.devices[device].dir).is_ok_and(|found| KINDS.contains(&found.f_type))
    }

    /// `None`: no tier has room for it.
    pub fn begin_taking(&self, offer: &Offer) -> Option<Taking<'_>> {
        let begin_ns = now_ns();
        let bytes = i64::try_from(offer.allocated.max(offer.size)).ok()?;
        let device = self.reserve_on(bytes, offer.tier, |device| offer.in_memory || !self.is_in_memory(device))?;
        let made = self.index.take_record().and_then(|number| {
            let record = self.record(number);
            record.random.store(random_half(), Release);
            record.device.store(device as u32, Release);
            record.ino.store(offer.ino, Release);
            record.reserved.store(bytes, Release);
            let name = object_name(number, record.random.load(Acquire));
            match self.object_tiers[device].create(&name) {
                Ok(sink) => {
                    Some(Taking { files: self, number, name, bytes, sink: Some(sink), is_kept: false, begin_ns })
                }
                Err(_) => {
                    record.reserved.store(0, Release);
                    self.index.free_record(number);
                    None
                }
            }
        });
        if made.is_none() {
            self.index.header.devices[device].unreserve(bytes);
        }
        made
    }
}

impl Taking<'_> {
    pub fn write(&mut self, part: &[u8], offset: u64) -> terrace_tier::Result<()> {
        self.sink.as_mut().expect("it is not whole yet").write_all_at(part, offset)
    }

    /// What the name is to lead to.
    pub fn text(&self) -> Vec<u8> {
        self.files.object_path(self.number).into_os_string().into_vec()
    }

    /// All bytes are there. `None`: it can't be kept here as it is.
    pub fn finish(&mut self, offer: &Offer) -> Option<()> {
        let (files, number) = (self.files, self.number);
        let mut sink = self.sink.take()?;
        sink.set_size(offer.size).ok()?;
        let attributes = Attributes {
            mode: offer.mode,
            uid: offer.uid,
            gid: offer.gid,
            atime: Timestamp::from_ns(offer.atime_ns),
            mtime: Timestamp::from_ns(offer.mtime_ns),
            xattrs: offer
                .xattrs
                .iter()
                .map(|(name, value)| (OsString::from_vec(name.clone()), value.clone()))
                .collect(),
        };
        if !sink.set_attributes(&attributes).ok()?.is_complete() {
            return None;
        }
        // What its programs synced there, on a disk, stays synced.
        if !offer.in_memory {
            sink.sync().ok()?;
        }
        let object = sink.commit(&self.name).ok()?;
        let record = files.record(number);
        record.object_ino.store(object.ino, Release);
        record.used_at.store(files.index.header.now.load(Relaxed), Relaxed);
        files.index.reads.made(object.ino);
        if !files.index.table_put(files.object_key(number), number) {
            return None;
        }
        record.set_state(State::Current);
        reached(Step::TakeReady);
        Some(())
    }

    /// The name leads here.
    pub fn named(mut self, path: &[u8]) {
        self.is_kept = true;
        let (files, number) = (self.files, self.number);
        files.named(number, path);
        files.catalogue().entry(number, files.serial(number)).came = Some(Instant::now());
        files.written(number);
        let bytes = self.bytes.max(0) as u64;
        files.totals.taken(bytes);
        let (tier, begin_ns) = (Some(files.devices[files.device_of(number)].tier), self.begin_ns);
        files.ended.note(&Move { kind: MoveKind::Take, path, bytes, tier, begin_ns, error: None });
        reached(Step::TakeNamed);
    }

    /// The name leads to this object.
    pub fn has_name(&self, path: &[u8]) -> bool {
        self.files.links_to(path, self.number)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        if self.is_kept {
            return;
        }
        let (files, number) = (self.files, self.number);
        self.sink = None;
        files.record(number).set_state(State::Dead);
        if files.record(number).object_ino.load(Acquire) != 0 {
            files.index.table_remove(files.object_key(number), number);
            let _ = files.object_tiers[files.device_of(number)].remove(&self.name);
        }
        files.unreserve(number);
        files.catalogue().remove(number);
        files.index.free_record(number);
    }
}
