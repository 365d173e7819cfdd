//! Calls that matter only where directories are placed: those that tell where a program is, and those that lead out of a placed
//! directory by `..`. What does neither goes on in the kernel.

use crate::calls::{CWD, Place, Taken};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::target::{PATH_MAX, Target};
use std::ffi::{CStr, CString};
use std::os::fd::AsRawFd;

impl Worker {
    /// The path, where it leads out of a placed directory by `..`: spelt out, absolute.
    fn led_out(&self, call: &Notification, dirfd: i32, path: u64) -> Taken<CString> {
        let text = self.text(call, path)?;
        let place = self.anywhere(call, dirfd, text)?;
        self.translated(&place).ok_or(Answer::Continue)
    }

    pub fn translated(&self, place: &Place) -> Option<CString> {
        let mut out = [0 as libc::c_char; PATH_MAX];
        // SAFETY: a place and a buffer of ours; what is written has a terminator.
        unsafe {
            let len = (self.shared.table.translate)(place.dirfd, place.text(), out.as_mut_ptr());
            (len > 0).then(|| CStr::from_ptr(out.as_ptr()).to_owned())
        }
    }

    /// A canonical path in a placed directory, or of one.
    pub fn is_inside(&self, text: &CStr) -> bool {
        self.shown(text).is_some()
    }

    /// The library's answer; where it leaves the call to the kernel, and that would go elsewhere, the call is done here.
    pub fn or_here(&self, place: &Place, raw: isize, act: impl FnOnce(*const libc::c_char) -> i32) -> Answer {
        match raw {
            terrace_index::proxy::LEAVE if place.is_led => said(act(place.text())),
            raw => Answer::from(raw),
        }
    }

    fn shown(&self, text: &CStr) -> Option<CString> {
        let mut out = [0 as libc::c_char; PATH_MAX];
        // SAFETY: as above.
        unsafe {
            let len = (self.shared.table.shown)(text.as_ptr(), out.as_mut_ptr());
            (len > 0).then(|| CStr::from_ptr(out.as_ptr()).to_owned())
        }
    }

    pub fn getcwd(&self, call: &Notification, out: u64, size: u64) -> Taken<Answer> {
        let target = Target { thread: call.thread };
        let Ok(here) = std::fs::read_link(target.text_of(CWD)) else { return Ok(Answer::Continue) };
        let Ok(here) = CString::new(here.into_os_string().into_encoded_bytes()) else { return Ok(Answer::Continue) };
        let Some(shown) = self.shown(&here) else { return Ok(Answer::Continue) };
        let bytes = shown.as_bytes_with_nul();
        if (size as usize) < bytes.len() {
            return Ok(Answer::Error(libc::ERANGE));
        }
        Ok(self.deliver(call, out, bytes, bytes.len() as isize))
    }

    /// Nobody but the program itself can change where it is, and the kernel would lead it into the tier.
    pub fn chdir(&self, call: &Notification, path: u64) -> Taken<Answer> {
        match self.makes_way(call, CWD, path)? {
            true => Ok(Answer::Continue),
            false => {
                let then = "it is refused (EXDEV): nobody but the program itself can change where it is (--directories off runs it as it is)";
                self.warn_of(Target { thread: call.thread }, "goes up by `..` from beside a placed directory", then);
                Ok(Answer::Error(libc::EXDEV))
            }
        }
    }

    /// The kernel will find what the path leads to, also where it goes up from a placed directory.
    pub fn makes_way(&self, call: &Notification, dirfd: i32, path: u64) -> Taken<bool> {
        let text = self.text(call, path)?;
        let is_plain = text.to_bytes().first() == Some(&b'/') && !text.to_bytes().windows(2).any(|two| two == b"..");
        if is_plain {
            return Ok(true);
        }
        let place = self.anywhere(call, dirfd, text)?;
        // SAFETY: a place of ours.
        Ok(unsafe { (self.shared.table.make_way)(place.dirfd, place.text()) })
    }

    pub fn mkdir(&self, call: &Notification, dirfd: i32, path: u64, mode: u32) -> Taken<Answer> {
        let place = self.place(call, dirfd, path)?;
        self.take_umask(Target { thread: call.thread });
        self.begin(call)?;
        // SAFETY: a place of ours.
        Ok(Answer::from(unsafe { (self.shared.table.mkdir)(place.dirfd, place.text(), mode) }))
    }

    pub fn access(&self, call: &Notification, dirfd: i32, path: u64, mode: i32, flags: i32) -> Taken<Answer> {
        let path = self.led_out(call, dirfd, path)?;
        self.begin(call)?;
        // SAFETY: a C string.
        let result = unsafe { libc::faccessat(CWD, path.as_ptr(), mode, flags) };
        Ok(said(result))
    }

    pub fn symlink(&self, call: &Notification, target: u64, dirfd: i32, path: u64) -> Taken<Answer> {
        let target = (Target { thread: call.thread }).read_text(target).map_err(|_| Answer::Continue)?;
        let text = self.text(call, path)?;
        let place = self.anywhere(call, dirfd, text)?;
        // Below the root, or in a directory whose tier may be full.
        // SAFETY: a place of ours, here and below.
        let is_near = unsafe {
            match place.dirfd {
                CWD => (self.shared.table.may_be_below_root)(place.text()),
                directory => (self.shared.table.may_be_spilled)(directory),
            }
        };
        if !is_near && !target.to_bytes().starts_with(b"..") && self.translated(&place).is_none() {
            return Ok(Answer::Continue);
        }
        self.begin(call)?;
        // SAFETY: a C string, and a place of ours.
        Ok(Answer::from(unsafe { (self.shared.table.symlink)(target.as_ptr(), place.dirfd, place.text()) }))
    }

    pub fn mknod(&self, call: &Notification, dirfd: i32, path: u64, mode: u32, device: u64) -> Taken<Answer> {
        let path = self.led_out(call, dirfd, path)?;
        self.take_umask(Target { thread: call.thread });
        self.begin(call)?;
        // SAFETY: a C string.
        let result = unsafe { libc::mknod(path.as_ptr(), mode, device) };
        Ok(said(result))
    }

    /// An open that the filter passes where no directories are placed: of a directory, or for the name alone. `None`: it is for the kernel.
    pub fn open_directory(&self, call: &Notification, dirfd: i32, path: u64, flags: i32) -> Taken<Answer> {
        let text = self.text(call, path)?;
        let is_plain = text.to_bytes().first() == Some(&b'/') && !text.to_bytes().windows(2).any(|two| two == b"..");
        if is_plain && flags & libc::O_NOFOLLOW == 0 {
            return Ok(Answer::Continue);
        }
        let place = self.anywhere(call, dirfd, text)?;
        let led_out = self.translated(&place);
        // SAFETY: a place of ours.
        let is_placed = unsafe { (self.shared.table.is_placed_directory)(place.dirfd, place.text()) };
        if led_out.is_none() && !is_placed {
            return Ok(Answer::Continue);
        }
        self.begin(call)?;
        let (at, name) = led_out.as_ref().map_or((place.dirfd, &place.path), |path| (CWD, path));
        // SAFETY: a place of ours, here too.
        let is_placed = unsafe { (self.shared.table.is_placed_directory)(at, name.as_ptr()) };
        let followed = if is_placed { flags & !libc::O_NOFOLLOW } else { flags };
        // The kernel hands no descriptor that stands only for a name from one process to another: this one can read too.
        let flags_here = followed & !libc::O_PATH | libc::O_CLOEXEC;
        // SAFETY: a place of ours; the descriptor is ours until it is given.
        let opened = unsafe { libc::openat(at, name.as_ptr(), flags_here) };
        if opened < 0 {
            return Ok(said(-1));
        }
        self.give(call, opened, flags & libc::O_CLOEXEC != 0)
    }

    fn give(&self, call: &Notification, opened: i32, closes: bool) -> Taken<Answer> {
        // SAFETY: a descriptor of ours, closed when the program has its own.
        let opened = unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(opened) };
        Ok(match self.shared.listener.give(call.id, opened.as_raw_fd(), closes) {
            Ok(number) => {
                self.slot.given.store(number as u32 + 1, std::sync::atomic::Ordering::Release);
                Answer::Value(number as i64)
            }
            Err(errno) => Answer::Error(errno),
        })
    }
}

/// What a function of the C library said.
fn said(result: i32) -> Answer {
    match result {
        0.. => Answer::Value(result as i64),
        _ => Answer::Error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)),
    }
}
