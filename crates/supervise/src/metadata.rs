//! Looking: stat, statx, readlink, listings, statfs. What is looked at is not only what lies below the root by its text: a link
//! from outside may lead there. So the kernel's answer decides: what is on another file system goes on in the kernel.

use crate::calls::{CWD, Taken, unreachable_for_us};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::target::{Target, is_of_the_system, names_its_reader};
use std::ffi::CString;
use std::mem::zeroed;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::*;
use terrace_index::proxy::LEAVE;

const EMPTY_PATH: i32 = libc::AT_EMPTY_PATH;
const STAT_FLAGS: i32 = EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT;
/// Most of a listing or a link text that is handed over at once: a shorter answer than was asked for is a right one.
const LISTING_MAX: usize = 64 << 10;

fn bytes_of<T>(value: &T) -> &[u8] {
    // SAFETY: a structure without padding that the kernel filled, or was zeroed before.
    unsafe { std::slice::from_raw_parts((&raw const *value).cast(), size_of::<T>()) }
}

/// The agent of the node that has the file can't be reached, or keeps it: of its link the kernel would say that nothing is there.
fn is_unreached(result: isize) -> bool {
    [libc::EIO, libc::EBUSY].iter().any(|&errno| result == -(errno as isize))
}

/// What is asked about.
enum Subject {
    /// By a text that leads there from here.
    Text(CString),
    Descriptor(i32),
}

impl Worker {
    /// What a call of the form `(dirfd, path, …, flags)` is about.
    fn subject(&self, call: &Notification, dirfd: i32, path: u64, flags: i32) -> Taken<Subject> {
        let by_descriptor = flags & EMPTY_PATH != 0;
        if by_descriptor && path == 0 {
            return Ok(Subject::Descriptor(dirfd));
        }
        let text = self.text(call, path)?;
        if text.is_empty() {
            return if by_descriptor { Ok(Subject::Descriptor(dirfd)) } else { Err(Answer::Continue) };
        }
        if text.to_bytes()[0] == b'/' {
            let is_descriptor = text.to_bytes().starts_with(format!("/proc/{}/fd/", call.thread).as_bytes());
            return if is_of_the_system(&text) && !is_descriptor {
                Err(Answer::Continue)
            } else {
                Ok(Subject::Text(text))
            };
        }
        if dirfd < 0 && dirfd != CWD {
            return Err(Answer::Continue);
        }
        let from = Target { thread: call.thread }.text_of(dirfd);
        if names_its_reader(&text, &from) {
            return Err(Answer::Continue);
        }
        let mut whole = from.into_bytes();
        whole.push(b'/');
        whole.extend_from_slice(text.to_bytes());
        if whole.len() >= crate::target::PATH_MAX {
            return Err(Answer::Continue);
        }
        Ok(Subject::Text(CString::new(whole).expect("no zero in either part")))
    }

    fn text_of(&self, call: &Notification, subject: Subject) -> Taken<(CString, bool)> {
        match subject {
            Subject::Text(text) => Ok((text, false)),
            Subject::Descriptor(fd) if fd < 0 => Err(Answer::Continue),
            Subject::Descriptor(fd) => {
                let text = Target { thread: call.thread }.text_of(fd);
                Ok((CString::new(text).expect("digits and letters"), true))
            }
        }
    }

    pub fn stat(&self, call: &Notification, dirfd: i32, path: u64, out: u64, flags: i32) -> Taken<Answer> {
        if flags & !STAT_FLAGS != 0 {
            return Ok(Answer::Continue);
        }
        let subject = self.subject(call, dirfd, path, flags)?;
        self.stat_subject(call, subject, out, flags)
    }

    pub fn stat_descriptor(&self, call: &Notification, fd: i32, out: u64) -> Taken<Answer> {
        self.stat_subject(call, Subject::Descriptor(fd), out, EMPTY_PATH)
    }

    /// The text leads out of a placed directory by `..`: the kernel would go elsewhere, whatever is found.
    fn is_led(&self, text: &CString) -> bool {
        self.shared.directories && self.translated(&crate::calls::Place::absolute(text.clone())).is_some()
    }

    /// Nothing was at the name of the root's file system itself: the kernel, asked now, may see the link of a file that was made meanwhile.
    fn is_absent(&self, result: isize, text: &CString) -> bool {
        if result != -(libc::ENOENT as isize) {
            return false;
        }
        let bytes = text.to_bytes();
        let parent = bytes.iter().rposition(|byte| *byte == b'/').map_or(&b"."[..], |at| &bytes[..at.max(1)]);
        let Ok(parent) = CString::new(parent) else { return false };
        // SAFETY: a zeroed stat is valid; a text of ours.
        unsafe {
            let mut status: libc::stat = zeroed();
            libc::stat(parent.as_ptr(), &mut status) == 0 && self.shared.is_for_us(status.st_dev, status.st_ino)
        }
    }

    fn stat_subject(&self, call: &Notification, subject: Subject, out: u64, flags: i32) -> Taken<Answer> {
        let is_led = matches!(&subject, Subject::Text(text) if self.is_led(text));
        let named = match &subject {
            Subject::Text(text) if flags & libc::AT_SYMLINK_NOFOLLOW != 0 => Some(text.clone()),
            _ => None,
        };
        // SAFETY: a zeroed stat is valid; a text, or a descriptor, of ours.
        unsafe {
            let mut status: libc::stat = zeroed();
            let out_here = (&raw mut status).cast();
            let result = match subject {
                Subject::Text(text) => {
                    (self.shared.table.stat)(CWD, text.as_ptr(), out_here, flags & libc::AT_SYMLINK_NOFOLLOW)
                }
                Subject::Descriptor(fd) => {
                    let target = Target { thread: call.thread };
                    let file = self.handles.borrow_mut().descriptor(target, fd).map_err(unreachable_for_us)?;
                    (self.shared.table.stat)(file.as_raw_fd(), c"".as_ptr(), out_here, EMPTY_PATH)
                }
            };
            if is_led && result != 0 || is_unreached(result) || named.is_some_and(|text| self.is_absent(result, &text))
            {
                return Ok(Answer::from(result));
            }
            if result != 0 || !is_led && !self.shared.is_for_us(status.st_dev, status.st_ino) {
                return Ok(Answer::Continue);
            }
            Ok(self.deliver(call, out, bytes_of(&status), 0))
        }
    }

    pub fn statx(&self, call: &Notification) -> Taken<Answer> {
        let [dirfd, path, flags, mask, out, _] = call.args;
        let (dirfd, flags) = (dirfd as i32, flags as i32);
        let subject = self.subject(call, dirfd, path, flags)?;
        let (text, by_descriptor) = self.text_of(call, subject)?;
        let kept = match by_descriptor {
            true => flags & !(EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW),
            false => flags & !EMPTY_PATH,
        };
        let is_led = !by_descriptor && self.is_led(&text);
        // SAFETY: a zeroed statx is valid; a text of ours.
        unsafe {
            let mut status: libc::statx = zeroed();
            let result = (self.shared.table.statx)(CWD, text.as_ptr(), kept, mask as u32, (&raw mut status).cast());
            let device = libc::makedev(status.stx_dev_major, status.stx_dev_minor);
            let is_of_name = !by_descriptor && flags & libc::AT_SYMLINK_NOFOLLOW != 0;
            if is_led && result != 0 || is_unreached(result) || is_of_name && self.is_absent(result, &text) {
                return Ok(Answer::from(result));
            }
            if result != 0 || !is_led && !self.shared.is_for_us(device, status.stx_ino) {
                return Ok(Answer::Continue);
            }
            Ok(self.deliver(call, out, bytes_of(&status), 0))
        }
    }

    pub fn readlink(&mut self, call: &Notification, dirfd: i32, path: u64, out: u64, size: u64) -> Taken<Answer> {
        let text = self.text(call, path)?;
        if text.is_empty() || size as i32 <= 0 {
            return Ok(Answer::Continue);
        }
        // A descriptor's link, whoever's it is: the library shows the name of a placed file, not its object's.
        let is_link_of_process = text.to_bytes().starts_with(b"/proc/");
        let place = match is_link_of_process {
            true => None,
            false => Some(self.place_by_any_way(call, dirfd, path)?),
        };
        let (at, name) = place.as_ref().map_or((CWD, &text), |place| (place.dirfd, &place.path));
        let size = (size as usize).min(self.buffer.len());
        // SAFETY: a place and a buffer of ours.
        let result = unsafe { (self.shared.table.readlink)(at, name.as_ptr(), self.buffer.as_mut_ptr().cast(), size) };
        if result < 0 {
            // Only that a link of ours is no link is for us to say.
            let is_ours = result == -(libc::EINVAL as isize);
            if place.as_ref().is_some_and(|place| place.is_led) {
                return Ok(Answer::from(result));
            }
            return Ok(if is_ours { Answer::Error(libc::EINVAL) } else { Answer::Continue });
        }
        let text = &self.buffer[..result as usize];
        // What names this process is not for others.
        if is_link_of_process && !text.starts_with(b"/") {
            return Ok(Answer::Continue);
        }
        Ok(self.deliver(call, out, text, result))
    }

    pub fn getdents(&mut self, call: &Notification, fd: i32, out: u64, size: u64, again: bool) -> Taken<Answer> {
        let target = Target { thread: call.thread };
        let directory = self.handles.borrow_mut().descriptor(target, fd).map_err(unreachable_for_us)?;
        // SAFETY: a zeroed stat is valid; our own descriptor.
        let status = unsafe {
            let mut status: libc::stat = zeroed();
            libc::fstat(directory.as_raw_fd(), &mut status);
            status
        };
        let is_ours = |text: std::path::PathBuf| {
            CString::new(text.into_os_string().into_encoded_bytes()).is_ok_and(|text| self.is_inside(&text))
        };
        let is_placed = status.st_dev != self.shared.root_dev
            && std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).is_ok_and(is_ours);
        if status.st_dev != self.shared.root_dev && !is_placed || status.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return Ok(Answer::Continue);
        }
        let size = (size as usize).min(LISTING_MAX);
        // SAFETY: a directory and a buffer of ours.
        let result = unsafe {
            // The offset is the program's: a listing that was read and not delivered is read again.
            if again && self.slot.acting.load(Acquire) != 0 {
                libc::lseek(directory.as_raw_fd(), self.slot.before.load(Acquire) as i64, libc::SEEK_SET);
            }
            self.slot.before.store(libc::lseek(directory.as_raw_fd(), 0, libc::SEEK_CUR) as u64, Release);
            self.begin(call)?;
            let read = match call.nr as i64 {
                libc::SYS_getdents => self.shared.table.getdents_old,
                _ => self.shared.table.getdents,
            };
            read(directory.as_raw_fd(), self.buffer.as_mut_ptr().cast(), size)
        };
        match result {
            count if count > 0 => {
                let answer = self.deliver(call, out, &self.buffer[..count as usize], count);
                if matches!(answer, Answer::Error(_)) {
                    // What was not delivered was not read.
                    // SAFETY: our own descriptor, and the offset that it had.
                    unsafe {
                        libc::lseek(directory.as_raw_fd(), self.slot.before.load(Acquire) as i64, libc::SEEK_SET)
                    };
                }
                Ok(answer)
            }
            raw => Ok(Answer::from(raw)),
        }
    }

    /// What happens to the bytes of a placed file happens at its object, which lies in another directory.
    pub fn watch(&self, call: &Notification, path: u64) -> Taken<Answer> {
        self.place(call, CWD, path)?;
        let what = "watches names below the root with inotify";
        let then = "it is told of names that come and go, not of opens and writes of files in a tier; and a watched file that \
                    leaves its tier seems to be removed";
        self.warn_of(Target { thread: call.thread }, what, then);
        Ok(Answer::Continue)
    }

    pub fn statfs(&self, call: &Notification, path: u64) -> Taken<Answer> {
        let subject = self.subject(call, CWD, path, 0)?;
        self.statfs_subject(call, subject, call.args[1])
    }

    pub fn statfs_descriptor(&self, call: &Notification, fd: i32, out: u64) -> Taken<Answer> {
        self.statfs_subject(call, Subject::Descriptor(fd), out)
    }

    fn statfs_subject(&self, call: &Notification, subject: Subject, out: u64) -> Taken<Answer> {
        let (text, _) = self.text_of(call, subject)?;
        // SAFETY: a zeroed statfs is valid; a text of ours.
        unsafe {
            let mut status: libc::statfs = zeroed();
            match (self.shared.table.statfs)(CWD, text.as_ptr(), (&raw mut status).cast()) {
                0 => Ok(self.deliver(call, out, bytes_of(&status), 0)),
                LEAVE => Ok(Answer::Continue),
                raw => Ok(Answer::from(raw)),
            }
        }
    }
}
