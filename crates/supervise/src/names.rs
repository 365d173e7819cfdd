//! Names: unlink, rename, link.
//!
//! A call that a killed supervisor may have done already (`again`) is done once: what it would find afterwards tells.

use crate::calls::{Place, Taken};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use std::mem::zeroed;
use std::sync::atomic::Ordering::*;

/// A directory descriptor and the address of a path.
type Named = (i32, u64);

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
        again && self.slot.acting.load(Acquire) != 0
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
        let (source, before) = (inode(&from), self.slot.before.load(Acquire));
        // The name that was there is gone, and its file is at the other (by its link, or by now as a real file).
        let has_moved = source != before && inode(&to) == before || source == 0 && inode(&to) != 0;
        if self.may_be_done(again) && before != 0 && has_moved {
            return Ok(Answer::Value(0));
        }
        self.slot.before.store(source, Release);
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
}
