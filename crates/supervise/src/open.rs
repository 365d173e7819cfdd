//! The open family: the library opens, the program gets the descriptor.

use crate::board::RIGHTS_VARY;
use crate::calls::{CWD, Taken};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::target::Target;
use std::ffi::CStr;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::*;

/// `struct open_how` of openat2(2).
#[derive(Default)]
#[repr(C)]
struct How {
    flags: u64,
    mode: u64,
    resolve: u64,
}

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
        if flags & libc::O_TMPFILE == libc::O_TMPFILE || flags & libc::O_PATH != 0 {
            return Ok(Answer::Continue);
        }
        let place = match flags & (libc::O_NOFOLLOW | libc::O_DIRECTORY) {
            libc::O_NOFOLLOW => self.place_by_any_way(call, dirfd, path)?,
            _ => self.place(call, dirfd, path)?,
        };
        let mut flags = flags;
        if flags & libc::O_CREAT != 0 {
            self.take_umask(Target { thread: call.thread });
            if again && self.was_created(&place) {
                flags &= !(libc::O_CREAT | libc::O_EXCL);
            }
        }
        self.begin(call)?;
        // SAFETY: a place of ours.
        let raw = unsafe { (self.shared.table.open)(place.dirfd, place.text(), flags, mode) };
        if raw < 0 {
            return Ok(Answer::from(raw));
        }
        let given = self.shared.listener.give(call.id, raw as i32, flags & libc::O_CLOEXEC != 0);
        // SAFETY: the library's descriptor, of which the program has its own now.
        unsafe { libc::close(raw as i32) };
        Ok(match given {
            Ok(number) => {
                self.desk.given.store(number as u32 + 1, Release);
                Answer::Value(number as i64)
            }
            Err(errno) => Answer::Error(errno),
        })
    }

    /// The name is of the file that the supervisor before us was about to create for this very call.
    fn was_created(&self, place: &crate::calls::Place) -> bool {
        let announced = self.desk.intent.record.load(Acquire);
        let mut serial = 0;
        // SAFETY: a place and a variable of ours.
        let found = unsafe { (self.shared.table.record_at)(place.dirfd, place.text(), &mut serial) };
        announced != 0 && found == announced && serial == self.desk.intent.serial.load(Acquire)
    }

    pub fn open_how(&self, call: &Notification, again: bool) -> Taken<Answer> {
        let (address, size) = (call.args[2], call.args[3] as usize);
        let mut bytes = [0u8; size_of::<How>()];
        if size < bytes.len() || (Target { thread: call.thread }).read(address, &mut bytes).is_err() {
            return Ok(Answer::Continue);
        }
        let word = |number: usize| u64::from_ne_bytes(bytes[8 * number..8 * number + 8].try_into().expect("8 bytes"));
        let how = How { flags: word(0), mode: word(1), resolve: word(2) };
        // Restricted look-ups, and flags or modes that only openat2 refuses, are the kernel's.
        if how.resolve != 0 || how.flags >> 32 != 0 || how.mode & !0o7777 != 0 || size != bytes.len() {
            return Ok(Answer::Continue);
        }
        self.open(call, call.args[0] as i32, call.args[1], how.flags as i32, how.mode as u32, again)
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
                raw => Ok(Answer::from(raw)),
            }
        }
    }

    /// A setuid program changes its rights without a call. Under the filter that can happen to root's programs only.
    fn note_new_rights(&self, call: &Notification, dirfd: i32, path: &CStr) {
        if !self.own.is_root() || self.shared.board.varies(RIGHTS_VARY) {
            return;
        }
        let directory = Target { thread: call.thread }.directory(dirfd);
        let from = directory.as_ref().map_or(CWD, |directory| directory.as_raw_fd());
        // SAFETY: a zeroed stat is valid; a C string.
        let found = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            (libc::fstatat(from, path.as_ptr(), &mut status, 0) == 0).then_some(status)
        };
        if found.is_some_and(|status| status.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0) {
            self.shared.board.note(RIGHTS_VARY);
        }
    }

    /// A placed program is made a real file first, as the library does; then the kernel goes on.
    pub fn exec(&self, call: &Notification, dirfd: i32, path: u64) -> Taken<Answer> {
        let path = self.text(call, path)?;
        self.note_new_rights(call, dirfd, &path);
        self.warn_of_lost_rights(&path);
        let place = self.place_of(call, dirfd, path)?;
        if self.shared.listener.is_valid(call.id) {
            // SAFETY: a place of ours.
            unsafe { (self.shared.table.settle)(place.dirfd, place.text()) };
        }
        Ok(Answer::Continue)
    }

    /// Without root, the filter takes from every program the rights that its file would give it.
    fn warn_of_lost_rights(&self, path: &CStr) {
        if self.own.is_root() || !path.to_bytes().starts_with(b"/") {
            return;
        }
        // SAFETY: a zeroed stat is valid; a C string.
        let status = unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            if libc::stat(path.as_ptr(), &mut status) != 0 {
                return;
            }
            status
        };
        let gives_user = status.st_mode & libc::S_ISUID != 0 && !self.own.is_user(status.st_uid);
        let gives_group = status.st_mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP;
        if gives_user || gives_group {
            self.shared.warn_once(format!(
                "{} is setuid or setgid: under the supervisor it runs without these rights; run it outside of `terrace run`, \
                 or with --preload-only",
                path.to_string_lossy()
            ));
        }
    }
}
