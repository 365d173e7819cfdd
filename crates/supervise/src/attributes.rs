//! Attributes: the calls that say "of the link itself", and those that change a file which may be committed meanwhile, or has a
//! replica. By a descriptor they are the calls by the path of our own copy of it.

use crate::calls::{CWD, Place, Taken};
use crate::filter::{SYS_LISTXATTRAT, SYS_REMOVEXATTRAT, SYS_SETXATTRAT};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::target::Target;
use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{null, null_mut};

/// Largest value of an attribute (XATTR_SIZE_MAX).
const VALUE_MAX: usize = 64 << 10;

/// How a call says two times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// `struct timespec[2]`
    Nanoseconds,
    /// `struct timeval[2]`
    Microseconds,
    /// `struct utimbuf`
    Seconds,
}

impl Worker {
    /// The thread's open file, and the path by which it is reached here.
    fn opened(&self, call: &Notification, fd: i32) -> Taken<(OwnedFd, Place)> {
        let target = Target { thread: call.thread };
        let file = self.handles.borrow_mut().descriptor(target, fd).map_err(|_| Answer::Continue)?;
        // SAFETY: our own descriptor.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) } & libc::O_PATH != 0 {
            return Err(Answer::Continue); // EBADF
        }
        let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd())).expect("digits and letters");
        Ok((file, Place::absolute(path)))
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
        // SAFETY: a place of ours, here and below.
        let raw = unsafe { (self.shared.table.chown)(place.dirfd, place.text(), user, group, flags) };
        Ok(self.or_here(&place, raw, |path| unsafe { libc::fchownat(CWD, path, user, group, flags) }))
    }

    pub fn chown_open(&self, call: &Notification, fd: i32, (user, group): (u32, u32)) -> Taken<Answer> {
        let (_file, place) = self.opened(call, fd)?;
        self.begin(call)?;
        Ok(Answer::from(unsafe { (self.shared.table.chown)(place.dirfd, place.text(), user, group, 0) }))
    }

    pub fn chmod(&self, call: &Notification, dirfd: i32, path: u64, mode: u32, flags: i32) -> Taken<Answer> {
        let place = self.place(call, dirfd, path)?;
        self.begin(call)?;
        let raw = unsafe { (self.shared.table.chmod)(place.dirfd, place.text(), mode, flags) };
        Ok(self.or_here(&place, raw, |path| unsafe { libc::fchmodat(CWD, path, mode, flags) }))
    }

    pub fn chmod_open(&self, call: &Notification, fd: i32, mode: u32) -> Taken<Answer> {
        let (_file, place) = self.opened(call, fd)?;
        self.begin(call)?;
        Ok(Answer::from(unsafe { (self.shared.table.chmod)(place.dirfd, place.text(), mode, 0) }))
    }

    /// Without a path, of the descriptor.
    pub fn utimens(
        &self,
        call: &Notification,
        dirfd: i32,
        path: u64,
        (times, form): (u64, Times),
        flags: i32,
    ) -> Taken<Answer> {
        let mut words = [0i64; 4];
        if times != 0 {
            let mut bytes = [0u8; 32];
            let read = if form == Times::Seconds { &mut bytes[..16] } else { &mut bytes[..] };
            if (Target { thread: call.thread }).read(times, read).is_err() {
                return Ok(Answer::Continue); // EFAULT
            }
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = i64::from_ne_bytes(bytes.try_into().expect("8 bytes"));
            }
        }
        let [first, second, third, fourth] = words;
        let time = |seconds, nanoseconds| libc::timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let is_wrong = |microseconds: i64| !(0..1_000_000).contains(&microseconds);
        let values = match form {
            Times::Nanoseconds => [time(first, second), time(third, fourth)],
            Times::Microseconds if is_wrong(second) || is_wrong(fourth) => return Ok(Answer::Continue), // EINVAL
            Times::Microseconds => [time(first, second * 1000), time(third, fourth * 1000)],
            Times::Seconds => [time(first, 0), time(second, 0)],
        };
        let (_file, place) = match path {
            0 if form == Times::Seconds => return Ok(Answer::Continue), // EFAULT
            0 if dirfd < 0 => return Ok(Answer::Continue),              // EBADF, or a directory's
            0 => self.opened(call, dirfd).map(|(file, place)| (Some(file), place))?,
            path => (None, self.place(call, dirfd, path)?),
        };
        self.begin(call)?;
        let values = if times == 0 { null() } else { values.as_ptr().cast() };
        Ok(Answer::from(unsafe { (self.shared.table.utimens)(place.dirfd, place.text(), values, flags) }))
    }

    pub fn xattr(&mut self, call: &Notification) -> Taken<Answer> {
        let place = self.place(call, CWD, call.args[0])?;
        self.xattr_of(call, call.nr as i64, &place, call.args)
    }

    /// Of a descriptor, as the call of a path that it stands for.
    pub fn xattr_open(&mut self, call: &Notification) -> Taken<Answer> {
        let (_file, place) = self.opened(call, call.args[0] as i32)?;
        let nr = match call.nr as i64 {
            libc::SYS_fsetxattr => libc::SYS_setxattr,
            _ => libc::SYS_removexattr,
        };
        self.xattr_of(call, nr, &place, call.args)
    }

    /// As the call of the link itself that it stands for.
    pub fn xattr_at(&mut self, call: &Notification) -> Taken<Answer> {
        let [dirfd, path, flags, fourth, fifth, sixth] = call.args;
        if flags as i32 != libc::AT_SYMLINK_NOFOLLOW {
            return Ok(Answer::Continue);
        }
        let place = self.place(call, dirfd as i32, path)?;
        let nr = match call.nr as i64 {
            SYS_LISTXATTRAT => {
                return self.xattr_of(call, libc::SYS_llistxattr, &place, [path, fourth, fifth, 0, 0, 0]);
            }
            SYS_REMOVEXATTRAT => {
                return self.xattr_of(call, libc::SYS_lremovexattr, &place, [path, fourth, 0, 0, 0, 0]);
            }
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
        self.xattr_of(call, nr, &place, [path, fourth, value, half(8), half(12), 0])
    }

    fn xattr_of(&mut self, call: &Notification, nr: i64, place: &Place, args: [u64; 6]) -> Taken<Answer> {
        let [_, second, third, fourth, fifth, _] = args;
        let whole = place.whole();
        let (name, value, size) = match nr {
            libc::SYS_listxattr | libc::SYS_llistxattr => (None, second, third),
            libc::SYS_lremovexattr | libc::SYS_removexattr => (self.optional_text(call, second)?, 0, 0),
            _ => (self.optional_text(call, second)?, third, fourth),
        };
        let is_set = matches!(nr, libc::SYS_setxattr | libc::SYS_lsetxattr);
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
        let mut result =
            unsafe { (self.shared.table.xattr)(nr, whole.as_ptr(), name, buffer.cast(), size, fifth as i32) };
        if result == terrace_index::proxy::LEAVE && place.is_led {
            result = xattr_here(nr, &whole, name, (buffer, size), fifth);
        }
        let reads = [libc::SYS_getxattr, libc::SYS_listxattr, libc::SYS_lgetxattr, libc::SYS_llistxattr].contains(&nr);
        let gives = reads && size > 0 && result > 0;
        Ok(if gives {
            self.deliver(call, value, &self.buffer[..result as usize], result)
        } else {
            Answer::from(result)
        })
    }
}

/// What the library leaves to the kernel, of a path that the program's own would not lead to.
fn xattr_here(nr: i64, path: &CStr, name: *const c_char, (value, size): (*mut u8, usize), flags: u64) -> isize {
    let path = path.as_ptr() as usize;
    let rest = match nr {
        libc::SYS_listxattr | libc::SYS_llistxattr => [value as usize, size, 0, 0],
        libc::SYS_removexattr | libc::SYS_lremovexattr => [name as usize, 0, 0, 0],
        _ => [name as usize, value as usize, size, flags as usize],
    };
    // SAFETY: texts and a buffer of ours.
    let result = unsafe { libc::syscall(nr, path, rest[0], rest[1], rest[2], rest[3]) };
    match result {
        0.. => result as isize,
        // SAFETY: this thread's own.
        _ => -(unsafe { *libc::__errno_location() } as isize),
    }
}
