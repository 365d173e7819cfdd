//! The open family: the library opens, the program gets the descriptor.

use crate::calls::{CWD, Place, Taken, unreachable_for_us};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::state::RIGHTS_VARY;
use crate::target::Target;
use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::*;
use terrace_index::proxy::How;

impl Worker {
    pub fn open(
        &self,
        call: &Notification,
        dirfd: i32,
        path: u64,
        flags: i32,
        mode: u32,
        again: bool,
    ) -> Taken<Answer> {
        if flags & libc::O_DIRECTORY != 0 && flags & (libc::O_TMPFILE | libc::O_CREAT) & !libc::O_DIRECTORY == 0
            || flags & libc::O_PATH != 0 && flags & libc::O_NOFOLLOW == 0
        {
            return self.open_directory(call, dirfd, path, flags);
        }
        let by_name_only = flags & libc::O_PATH != 0 && flags & libc::O_NOFOLLOW == 0;
        if flags & libc::O_TMPFILE == libc::O_TMPFILE || by_name_only {
            return Ok(Answer::Continue);
        }
        let place = match flags & (libc::O_NOFOLLOW | libc::O_DIRECTORY) {
            libc::O_NOFOLLOW => self.place_by_any_way(call, dirfd, path)?,
            _ => self.place(call, dirfd, path)?,
        };
        // SAFETY: a place of ours.
        if flags & libc::O_NOFOLLOW != 0
            && unsafe { (self.shared.table.is_placed_directory)(place.dirfd, place.text()) }
        {
            return self.open_directory(call, dirfd, path, flags);
        }
        self.open_place(call, &place, How { flags: flags as u64, mode: mode as u64, resolve: 0 }, again)
    }

    fn open_place(&self, call: &Notification, place: &Place, how: How, again: bool) -> Taken<Answer> {
        let (mut how, target) = (how, Target { thread: call.thread });
        let flags = how.flags as i32;
        // The kernel looks for a number first, too: nothing is made or cut that the program then can't have.
        if flags & (libc::O_CREAT | libc::O_TRUNC) != 0 && !self.handles.borrow_mut().has_room(target) {
            return Ok(Answer::Error(libc::EMFILE));
        }
        if flags & libc::O_CREAT != 0 {
            self.take_umask(target);
            if again && self.was_created(place) {
                how.flags &= !(libc::O_CREAT | libc::O_EXCL) as u64;
            }
        }
        self.begin(call)?;
        // SAFETY: a place of ours.
        let raw = unsafe {
            match how.resolve {
                0 => (self.shared.table.open)(place.dirfd, place.text(), how.flags as i32, how.mode as u32),
                _ => (self.shared.table.open_restricted)(place.dirfd, place.text(), &how),
            }
        };
        let raw = match raw {
            terrace_index::proxy::LEAVE if place.is_led => {
                // SAFETY: a place of ours.
                let opened = unsafe { libc::open(place.text(), flags | libc::O_CLOEXEC, how.mode as libc::mode_t) };
                if opened < 0 { -(last_errno() as isize) } else { opened as isize }
            }
            raw => raw,
        };
        if raw < 0 {
            return Ok(Answer::from(raw));
        }
        let given = self.shared.listener.give(call.id, raw as i32, flags & libc::O_CLOEXEC != 0);
        // SAFETY: the library's descriptor, of which the program has its own now.
        unsafe { libc::close(raw as i32) };
        Ok(match given {
            Ok(number) => {
                self.slot.given.store(number as u32 + 1, Release);
                Answer::Value(number as i64)
            }
            Err(errno) => Answer::Error(errno),
        })
    }

    /// The name is of the file that the supervisor before us was about to create for this very call.
    fn was_created(&self, place: &Place) -> bool {
        let announced = self.slot.intent.record.load(Acquire);
        let mut serial = 0;
        // SAFETY: a place and a variable of ours.
        let found = unsafe { (self.shared.table.record_at)(place.dirfd, place.text(), &mut serial) };
        announced != 0 && found == announced && serial == self.slot.intent.serial.load(Acquire)
    }

    pub fn open_how(&self, call: &Notification, again: bool) -> Taken<Answer> {
        let (address, size) = (call.args[2], call.args[3] as usize);
        let mut bytes = [0u8; size_of::<How>()];
        if size < bytes.len() || (Target { thread: call.thread }).read(address, &mut bytes).is_err() {
            return Ok(Answer::Continue);
        }
        let word = |number: usize| u64::from_ne_bytes(bytes[8 * number..8 * number + 8].try_into().expect("8 bytes"));
        let how = How { flags: word(0), mode: word(1), resolve: word(2) };
        let (dirfd, path) = (call.args[0] as i32, call.args[1]);
        if !self.has_no_more(call, address, size) || !is_well_formed(&how) {
            return Ok(Answer::Continue);
        }
        match how.resolve {
            0 => self.open(call, dirfd, path, how.flags as i32, how.mode as u32, again),
            _ => self.open_place(call, &self.start_of(call, dirfd, path, &how)?, how, again),
        }
    }

    /// What a program knows of beyond our `How` is nothing but zeros, as the kernel wants it.
    fn has_no_more(&self, call: &Notification, address: u64, size: usize) -> bool {
        let mut page = [0u8; 4096];
        let Some(rest) = page.get_mut(size_of::<How>()..size) else { return false };
        let from = address.wrapping_add(size_of::<How>() as u64);
        rest.is_empty()
            || (Target { thread: call.thread }).read(from, rest).is_ok() && rest.iter().all(|byte| *byte == 0)
    }

    /// From where a restricted look-up starts. Whether it leads to a file of ours is seen on the way.
    fn start_of(&self, call: &Notification, dirfd: i32, path: u64, how: &How) -> Taken<Place> {
        let target = Target { thread: call.thread };
        // Below another top the text is not what it seems to be.
        if how.resolve & libc::RESOLVE_IN_ROOT == 0 {
            let path = self.text(call, path)?;
            return self.anywhere(call, dirfd, path);
        }
        let path = target.read_text(path).map_err(|_| Answer::Continue)?;
        let directory = target.directory(dirfd).map_err(unreachable_for_us)?;
        Ok(Place::below(directory, path))
    }

    /// truncate(2): as an open for writing, and ftruncate.
    pub fn truncate(&self, call: &Notification, path: u64, length: i64) -> Taken<Answer> {
        let place = self.place(call, CWD, path)?;
        self.begin(call)?;
        // SAFETY: a place of ours; a descriptor that is ours alone.
        unsafe {
            match (self.shared.table.open)(place.dirfd, place.text(), libc::O_WRONLY, 0) {
                fd if fd >= 0 => {
                    let result = (self.shared.table.ftruncate)(fd as i32, length);
                    libc::close(fd as i32);
                    Ok(Answer::from(result))
                }
                raw => Ok(self.or_here(&place, raw, |path| libc::truncate(path, length))),
            }
        }
    }

    /// A setuid program changes its rights without a call: that can happen to root's programs only. From those of everybody
    /// else the filter takes the rights that their files would give them.
    fn look_at_rights(&self, call: &Notification, dirfd: i32, path: &CStr) {
        let is_root = self.own.is_root();
        if is_root && self.shared.state.varies(RIGHTS_VARY) {
            return;
        }
        let target = Target { thread: call.thread };
        let whole = match path.to_bytes().first() {
            None => target.text_of(dirfd).into_bytes(),
            Some(b'/') => path.to_bytes().to_vec(),
            Some(_) => [target.text_of(dirfd).as_bytes(), b"/", path.to_bytes()].concat(),
        };
        let whole = PathBuf::from(OsString::from_vec(whole));
        let Ok(found) = whole.metadata() else { return };
        let (mode, set_both) = (found.mode(), libc::S_ISGID | libc::S_IXGRP);
        if is_root {
            if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
                self.shared.state.note(RIGHTS_VARY);
            }
        } else if mode & libc::S_ISUID != 0 && !self.own.is_user(found.uid()) || mode & set_both == set_both {
            // Its name, not how it was reached.
            let name = std::fs::canonicalize(&whole).unwrap_or(whole);
            self.shared.warn_once(format!(
                "{} is setuid or setgid: under the supervisor it runs without these rights; run it outside of `terrace run`, \
                 or with --preload-only",
                name.display()
            ));
        }
    }

    /// A placed program is made a real file first, as the library does; then the kernel goes on.
    pub fn exec(&self, call: &Notification, dirfd: i32, path: u64) -> Taken<Answer> {
        if self.shared.directories && !self.makes_way(call, dirfd, path)? {
            return Ok(Answer::Error(libc::ENOENT));
        }
        let path = self.text(call, path)?;
        self.look_at_rights(call, dirfd, &path);
        let place = self.place_of(call, dirfd, path)?;
        if self.shared.listener.is_valid(call.id) {
            // SAFETY: a place of ours.
            unsafe { (self.shared.table.materialise)(place.dirfd, place.text()) };
        }
        Ok(Answer::Continue)
    }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Flags, modes and sizes are looked at before the path: of a good request, the kernel minds only that there is none.
fn is_well_formed(how: &How) -> bool {
    // SAFETY: a live structure of the size named.
    let raw = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            std::ptr::null::<libc::c_char>(),
            &raw const *how,
            size_of::<How>(),
        )
    };
    raw < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}
