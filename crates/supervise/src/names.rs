//! Names and attributes: unlink, rename, link, and the calls that say "of the link itself".
//!
//! A call that a killed supervisor may have done already (`again`) is done once: what it would find afterwards tells.

use crate::calls::{CWD, Place, Taken};
use crate::filter::{SYS_LISTXATTRAT, SYS_REMOVEXATTRAT, SYS_SETXATTRAT};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::target::Target;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::*;

/// A directory descriptor and the address of a path.
type Named = (i32, u64);

/// Largest value of an attribute (XATTR_SIZE_MAX).
const VALUE_MAX: usize = 64 << 10;

/// The inode of a name itself; 0: there is none.
fn inode(place: &Place) -> u64 {
    // SAFETY: a zeroed stat is valid; a place of ours.
    unsafe {
        let mut status: libc::stat = zeroed();
        match libc::fstatat(place.dirfd, place.text(), &mut status, libc::AT_SYMLINK_NOFOLLOW) {
            0 => status.st_ino,
            _ => 0,
        }
    }
}

impl Worker {
    fn may_be_done(&self, again: bool) -> bool {
        again && self.desk.acting.load(Acquire) != 0
    }

    pub fn unlink(&self, call: &Notification, dirfd: i32, path: u64, flags: i32, again: bool) -> Taken<Answer> {
        let place = self.place_by_any_way(call, dirfd, path)?;
        let may_be_done = self.may_be_done(again);
        self.begin(call)?;
        // SAFETY: a place of ours, here and below.
        let result = unsafe { (self.shared.table.unlink)(place.dirfd, place.text(), flags) };
        let is_done = may_be_done && result == -(libc::ENOENT as isize);
        Ok(if is_done { Answer::Value(0) } else { Answer::from(result) })
    }

    pub fn rename(&self, call: &Notification, old: Named, new: Named, flags: u32, again: bool) -> Taken<Answer> {
        let (from, to) = self.both(call, old, new)?;
        let (source, before) = (inode(&from), self.desk.before.load(Acquire));
        // The name that was there is gone, and its file is at the other (by its link, or by now as a real file).
        let has_moved = source != before && inode(&to) == before || source == 0 && inode(&to) != 0;
        if self.may_be_done(again) && before != 0 && has_moved {
            return Ok(Answer::Value(0));
        }
        self.desk.before.store(source, Release);
        self.begin(call)?;
        let result = unsafe { (self.shared.table.rename)(from.dirfd, from.text(), to.dirfd, to.text(), flags) };
        Ok(Answer::from(result))
    }

    pub fn link(&self, call: &Notification, old: Named, new: Named, flags: i32, again: bool) -> Taken<Answer> {
        if flags & libc::AT_EMPTY_PATH != 0 {
            return Ok(Answer::Continue);
        }
        let (from, to) = self.both(call, old, new)?;
        let may_be_done = self.may_be_done(again);
        self.begin(call)?;
        let result = unsafe { (self.shared.table.link)(from.dirfd, from.text(), to.dirfd, to.text(), flags) };
        let is_done = may_be_done && result == -(libc::EEXIST as isize) && inode(&from) == inode(&to);
        Ok(if is_done { Answer::Value(0) } else { Answer::from(result) })
    }

    /// Two places, if either may be below the root, or leads there from outside.
    fn both(&self, call: &Notification, old: Named, new: Named) -> Taken<(Place, Place)> {
        let (old_text, new_text) = (self.text(call, old.1)?, self.text(call, new.1)?);
        match (self.place_of(call, old.0, old_text.clone()), self.place_of(call, new.0, new_text.clone())) {
            (Err(error @ Answer::Error(_)), _) | (_, Err(error @ Answer::Error(_))) => Err(error),
            (Ok(from), Ok(to)) => Ok((from, to)),
            (Ok(from), Err(_)) => Ok((from, self.anywhere(call, new.0, new_text)?)),
            (Err(_), Ok(to)) => Ok((self.anywhere(call, old.0, old_text)?, to)),
            (Err(_), Err(_)) => {
                let from = self.anywhere(call, old.0, old_text)?;
                let to = self.anywhere(call, new.0, new_text)?;
                let is_ours = self.leads_to_ours(&from) || self.leads_to_ours(&to);
                if is_ours { Ok((from, to)) } else { Err(Answer::Continue) }
            }
        }
    }

    pub fn chown(
        &self,
        call: &Notification,
        dirfd: i32,
        path: u64,
        (user, group): (u32, u32),
        flags: i32,
    ) -> Taken<Answer> {
        let place = self.place(call, dirfd, path)?;
        self.begin(call)?;
        Ok(Answer::from(unsafe { (self.shared.table.chown)(place.dirfd, place.text(), user, group, flags) }))
    }

    pub fn chmod(&self, call: &Notification, dirfd: i32, path: u64, mode: u32, flags: i32) -> Taken<Answer> {
        let place = self.place(call, dirfd, path)?;
        self.begin(call)?;
        Ok(Answer::from(unsafe { (self.shared.table.chmod)(place.dirfd, place.text(), mode, flags) }))
    }

    pub fn utimens(&self, call: &Notification, dirfd: i32, path: u64, times: u64, flags: i32) -> Taken<Answer> {
        let mut bytes = [0u8; 32];
        if times != 0 && (Target { thread: call.thread }).read(times, &mut bytes).is_err() {
            return Ok(Answer::Continue);
        }
        let place = self.place(call, dirfd, path)?;
        self.begin(call)?;
        let word = |at: usize| i64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let values = [(0, 8), (16, 24)].map(|(s, ns)| libc::timespec { tv_sec: word(s), tv_nsec: word(ns) });
        let values = if times == 0 { null() } else { values.as_ptr().cast() };
        Ok(Answer::from(unsafe { (self.shared.table.utimens)(place.dirfd, place.text(), values, flags) }))
    }

    pub fn xattr(&mut self, call: &Notification) -> Taken<Answer> {
        self.xattr_of(call, call.nr as i64, CWD, call.args)
    }

    /// As the call of the link itself that it stands for.
    pub fn xattr_at(&mut self, call: &Notification) -> Taken<Answer> {
        let [dirfd, path, flags, fourth, fifth, sixth] = call.args;
        if flags as i32 != libc::AT_SYMLINK_NOFOLLOW {
            return Ok(Answer::Continue);
        }
        let dirfd = dirfd as i32;
        let nr = match call.nr as i64 {
            SYS_LISTXATTRAT => return self.xattr_of(call, libc::SYS_llistxattr, dirfd, [path, fourth, fifth, 0, 0, 0]),
            SYS_REMOVEXATTRAT => return self.xattr_of(call, libc::SYS_lremovexattr, dirfd, [path, fourth, 0, 0, 0, 0]),
            SYS_SETXATTRAT => libc::SYS_lsetxattr,
            _ => libc::SYS_lgetxattr,
        };
        // `struct xattr_args`: the value's address, its size, flags.
        let mut bytes = [0u8; 16];
        if sixth as usize != bytes.len() || (Target { thread: call.thread }).read(fifth, &mut bytes).is_err() {
            return Ok(Answer::Continue);
        }
        let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as u64;
        let value = u64::from_ne_bytes(bytes[..8].try_into().expect("8 bytes"));
        if nr == libc::SYS_lgetxattr && half(12) != 0 {
            return Ok(Answer::Continue); // EINVAL
        }
        self.xattr_of(call, nr, dirfd, [path, fourth, value, half(8), half(12), 0])
    }

    fn xattr_of(&mut self, call: &Notification, nr: i64, dirfd: i32, args: [u64; 6]) -> Taken<Answer> {
        let [path, second, third, fourth, fifth, _] = args;
        let place = self.place(call, dirfd, path)?;
        let whole = place.whole();
        let (name, value, size) = match nr {
            libc::SYS_llistxattr => (None, second, third),
            libc::SYS_lremovexattr => (self.optional_text(call, second)?, 0, 0),
            _ => (self.optional_text(call, second)?, third, fourth),
        };
        let is_set = nr == libc::SYS_lsetxattr;
        if size as usize > VALUE_MAX && is_set {
            return Ok(Answer::Continue); // E2BIG
        }
        let size = (size as usize).min(VALUE_MAX);
        if is_set && size > 0 && (Target { thread: call.thread }).read(value, &mut self.buffer[..size]).is_err() {
            return Ok(Answer::Continue);
        }
        self.begin(call)?;
        let buffer = if size == 0 { null_mut() } else { self.buffer.as_mut_ptr() };
        let name = name.as_ref().map_or(null(), |name| name.as_ptr());
        let result = unsafe { (self.shared.table.xattr)(nr, whole.as_ptr(), name, buffer.cast(), size, fifth as i32) };
        let gives = matches!(nr, libc::SYS_lgetxattr | libc::SYS_llistxattr) && size > 0 && result > 0;
        Ok(if gives {
            self.deliver(call, value, &self.buffer[..result as usize], result)
        } else {
            Answer::from(result)
        })
    }
}
