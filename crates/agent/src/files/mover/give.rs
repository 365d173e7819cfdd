//! A file goes to another node as it is: its bytes by a connection, its name by one rename.
//!
//! ```text
//!  lease ─▶ bytes, a link to the other's object ─▶ the other has them ─▶ Committing ─▶ grace ─▶ ROOT/P ⇄ the link ─▶ Dead
//!                                                                              (from here on the other node is the owner)
//! ```
//!
//! This is a flush whose copy is a link. As with a flush only the owner replaces its own link, so no two nodes ever think that they own a
//! file; and it keeps its object until the other has said that it looks after the file.

use crate::files::Files;
use crate::files::mover::flush::{Declined, Flushing, PrepareOptions};
use crate::files::mover::new_link::NewLink;
use crate::shared::ended::Move;
use crate::shared::path::{as_path, read_link};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use terrace_core::control::MoveKind;
use terrace_core::peers::{Attributes, Offer};
use terrace_core::policy::Mode;
use terrace_index::State;
use terrace_index::guard::Domain;
use terrace_tier::buffer::BUFFER_BYTES;
use terrace_tier::{Lease, ReadingExt, Stat, Step, Timestamp, reached, with_buffer};

/// A file that came from another node is not given on at once: one that several nodes want is best a real file in the root.
const REST: Duration = Duration::from_secs(10);
/// What another node was told of a file, its inode number above all, holds until its program has opened it, if it does so at once: before that
/// the file is not flushed without need.
pub const TOLD: Duration = Duration::from_millis(300);
/// A look, or an offer, waits so long for the mover to be done with the file: a turn of an early copy, above all.
pub const LOOKING: Duration = Duration::from_secs(1);
/// Bytes in one message.
pub const PART_BYTES: usize = BUFFER_BYTES;

/// What another node is told of a file: what it looks like, how many extended attributes it has, and what policy does with it.
pub struct Looks {
    pub stat: Stat,
    pub xattrs: u32,
    pub mode: Mode,
}

/// A file that another node is being given. Dropped before its name is: nothing has happened.
pub struct Giving<'a> {
    files: &'a Files,
    file: Flushing<'a>,
    pub offer: Offer,
}

/// One whose name leads to the other node, and which has its object here still.
pub struct Given<'a> {
    giving: Giving<'a>,
    /// What the name leads to.
    text: Vec<u8>,
    /// Its directory before and after that.
    directory: Option<[Stat; 2]>,
}

impl Files {
    /// `None`: it can't be given, or should not be.
    pub fn offer(&self, number: u32, path: &[u8], most: u64, mode: Mode) -> Option<Giving<'_>> {
        let options =
            PrepareOptions { whatever_mode: true, seen_as: Some(path), patience: LOOKING, ..PrepareOptions::default() };
        let file = match self.prepare(number, &options) {
            Ok(file) => file,
            Err(Declined::NotNeeded | Declined::Busy | Declined::Read | Declined::BlockReason(_)) => return None,
        };
        let stat = file.stat;
        if self.goes(number, file.serial) != Some(mode) || stat.size > most || stat.nlink != 1 {
            return None;
        }
        let attributes = file.reading.attributes().ok()?;
        let device = &self.index.header.devices[self.device_of(number)];
        let offer = Offer {
            path: file.path.clone(),
            size: stat.size,
            allocated: stat.allocated,
            tier: device.tier.load(Relaxed),
            in_memory: self.is_in_memory(self.device_of(number)),
            ino: self.record(number).ino.load(Acquire),
            mode: attributes.mode,
            uid: attributes.uid,
            gid: attributes.gid,
            atime_ns: attributes.atime.as_ns(),
            mtime_ns: attributes.mtime.as_ns(),
            xattrs: attributes.xattrs.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value)).collect(),
        };
        Some(Giving { files: self, file, offer })
    }

    /// `None`: it stays here. Else what policy does with it. The last durable version of a file that was rewritten stays with the node that can
    /// put it back; what policy does not flush goes at the end of a run, which must be that of who made it; and see `REST`.
    fn goes(&self, number: u32, serial: u64) -> Option<Mode> {
        let catalogue = self.catalogue();
        let entry = catalogue.get(number, serial)?;
        let rests = entry.came.is_some_and(|came| came.elapsed() < REST);
        Some(self.mode(&entry.path)).filter(|mode| mode.flushes() && !entry.held && !rests)
    }

    /// What a file looks like that would be given now, to an asker with the same policy for it.
    pub fn looks_of_givable(&self, number: u32, patience: Duration, holds: Duration) -> Option<Looks> {
        let _claim = self.claims.take(number, patience)?;
        let serial = self.serial(number);
        let is_current = || self.record(number).state() == State::Current && !self.exchanges.is_awaited(number);
        let mode = self.goes(number, serial).filter(|_| is_current())?;
        let reading = self.open_object(number).ok()?;
        let fd = reading.as_fd().expect("an object is a file of a directory");
        // Nobody has it open: what is said now is what will be sent.
        drop(Lease::exclusive(fd).ok()??);
        let stat = reading.stat().ok().filter(|stat| stat.nlink == 1)?;
        let xattrs = reading.attributes().ok()?.xattrs.len() as u32;
        self.catalogue().entry(number, serial).tell(Instant::now(), holds);
        (is_current() && self.serial(number) == serial).then_some(Looks { stat, xattrs, mode })
    }

    /// Up to so many other files of the file's directory, in the order of their names, from its own on.
    pub fn beside(&self, number: u32, most: usize) -> Vec<u32> {
        let catalogue = self.catalogue();
        let Some(path) = catalogue.path(number, self.serial(number)).filter(|_| most > 0) else { return vec![] };
        catalogue.beside(&path).filter(|other| *other != number).take(most).collect()
    }
}

impl<'a> Giving<'a> {
    /// Its bytes, part by part. False: it changed meanwhile, or a program here waits to write it.
    pub fn each_part(&self, mut send: impl FnMut(u64, &[u8]) -> std::io::Result<()>) -> std::io::Result<bool> {
        let reading = &*self.file.reading;
        let mut offset = 0;
        while offset < self.offer.size {
            let Some((start, end)) = reading.next_data(offset).map_err(|error| error_of(&error))? else { break };
            let end = end.min(self.offer.size);
            offset = start;
            while offset < end {
                if !self.is_still() {
                    return Ok(false);
                }
                let count = ((end - offset) as usize).min(PART_BYTES);
                with_buffer(|buffer| -> std::io::Result<()> {
                    let part = &mut buffer[..count];
                    reading.read_exact_at(part, offset).map_err(|error| error_of(&error))?;
                    send(offset, part)
                })??;
                offset += count as u64;
            }
        }
        Ok(self.is_still())
    }

    fn is_still(&self) -> bool {
        self.file.lease.as_ref().is_some_and(|lease| !lease.is_broken())
    }

    pub fn number(&self) -> u32 {
        self.file.number
    }

    /// Gives the name to the other node's object, by a link with this text. `None`: the file, or its name, is another by now, or the time is
    /// over; nothing has happened.
    pub fn give_name(mut self, (mut link, text): (NewLink, Vec<u8>), until: Instant) -> Option<Given<'a>> {
        let (files, number, path) = (self.files, self.file.number, self.file.path.clone());
        let record = files.record(number);
        let mut directory = None;
        let barrier = files.commit_barrier();
        let is_ours = barrier.is_some() && record.change_state(State::Current, State::Committing);
        let is_given = is_ours && files.synchronize(Domain::Names) && self.is_ready(files) && {
            let target = as_path(&path);
            files.forget_link(number);
            let (replaced, times) = files.seen_around(target.parent().unwrap_or(Path::new("/")), || {
                // Another commit in the directory may have been waited for.
                if Instant::now() >= until {
                    return Err(Errno::TIMEDOUT);
                }
                link.replace(&files.root_tier, target, &|replaced| files.is_link_to(replaced, number))
            });
            directory = times;
            replaced.is_ok()
        };
        if !is_given {
            if is_ours {
                record.change_state(State::Committing, State::Current);
                files.named(number, &path);
            }
            return None;
        }
        // Who waited in an open for our lease has the object, and looks at this.
        files.index.header.evictions_seq.fetch_add(1, SeqCst);
        reached(Step::GiveRenamed);
        Some(Given { giving: self, text, directory })
    }

    /// Nobody has it open, it is what was sent, and it has its name, to which no program outside has added another.
    fn is_ready(&mut self, files: &Files) -> bool {
        self.file.lease.as_mut().is_some_and(Lease::upgrade)
            && self.is_still()
            && self.file.reading.stat().is_ok_and(|now| now.version() == self.file.stat.version())
            && files.looked_at(&self.file.path).is_none_or(|link| link.stx_nlink == 1)
            && files.is_link_to(as_path(&self.file.path), self.file.number)
    }
}

impl Given<'_> {
    pub fn path(&self) -> &[u8] {
        &self.giving.file.path
    }

    /// What the name leads to.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The directory of the name before it was given and after that: what the other node is to show for it, and instead of what.
    pub fn directory(&self) -> Option<[Attributes; 2]> {
        self.directory.map(|both| both.map(|stat| attributes_of(&stat)))
    }

    /// The other node looks after it.
    pub fn let_go(self) {
        let (files, number) = (self.giving.files, self.giving.file.number);
        let bytes = self.giving.offer.size;
        let _ = files.remove_object(number);
        files.unreserve(number);
        files.record(number).set_state(State::Dead);
        files.index.table_remove(files.object_key(number), number);
        files.removed(number);
        files.totals.given(bytes);
        files.judge_given(bytes);
        let (path, begin_ns) = (&self.giving.file.path, self.giving.file.begin_ns);
        let tier = Some(files.devices[files.device_of(number)].tier);
        files.ended.note(&Move { kind: MoveKind::Give, path, bytes, tier, begin_ns, error: None });
        reached(Step::GiveDone);
    }

    /// The other node does not have it, and never will: the name leads here again. False: it leads elsewhere by now.
    pub fn take_back(&self) -> bool {
        let (files, number) = (self.giving.files, self.giving.file.number);
        let Ok(mut link) = files.new_link(number, &files.object_path(number)) else { return false };
        let is_theirs =
            |replaced: &Path| read_link(replaced.as_os_str().as_bytes()).is_some_and(|text| text == self.text);
        let put = link.replace(&files.root_tier, as_path(self.path()), &is_theirs).is_ok();
        if put {
            files.record(number).change_state(State::Committing, State::Current);
            files.named(number, self.path());
            files.written(number);
        }
        put
    }

    /// The name still leads to the other node's object.
    pub fn is_named(&self) -> bool {
        read_link(self.path()).is_some_and(|text| text == self.text)
    }
}

/// What another node is told of a file, or of a directory.
pub fn attributes_of(found: &Stat) -> Attributes {
    Attributes {
        ino: found.ino,
        size: found.size,
        blocks: found.allocated / 512,
        mode: found.mode,
        uid: found.uid,
        gid: found.gid,
        nlink: found.nlink as u32,
        xattrs: 0,
        atime_ns: found.atime.as_ns(),
        mtime_ns: found.mtime.as_ns(),
        ctime_ns: found.ctime.as_ns(),
    }
}

/// And the other way: what was told.
pub fn stat_of(told: &Attributes) -> Stat {
    Stat {
        dev: 0,
        ino: told.ino,
        nlink: told.nlink.into(),
        mode: told.mode,
        uid: told.uid,
        gid: told.gid,
        size: told.size,
        allocated: told.blocks * 512,
        atime: Timestamp::from_ns(told.atime_ns),
        mtime: Timestamp::from_ns(told.mtime_ns),
        ctime: Timestamp::from_ns(told.ctime_ns),
    }
}

fn error_of(error: &terrace_tier::Error) -> std::io::Error {
    std::io::Error::from_raw_os_error(error.errno())
}
