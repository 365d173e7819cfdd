//! System calls by libc's functions, with their errors.
//!
//! By libc and never by the kernel's own numbers (as `rustix` makes them): the preload library stands in for libc's functions, and
//! it is what makes a file of the root out of a link. Errors are those of the manual page of the same name.

use fuser::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

pub type Answer<T> = Result<T, Errno>;

fn last() -> Errno {
    Errno::from(std::io::Error::last_os_error())
}

fn done(result: libc::c_int) -> Answer<()> {
    if result < 0 { Err(last()) } else { Ok(()) }
}

fn length(result: libc::ssize_t) -> Answer<usize> {
    usize::try_from(result).map_err(|_| last())
}

fn owned(fd: libc::c_int) -> Answer<OwnedFd> {
    done(fd)?;
    // SAFETY: new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel gives it has no zero byte.
pub fn name(name: &OsStr) -> Answer<CString> {
    CString::new(name.as_bytes()).map_err(|_| Errno::EINVAL)
}

pub fn open_at(dir: &OwnedFd, name: &CStr, flags: i32, mode: u32) -> Answer<OwnedFd> {
    // SAFETY: a live descriptor and a terminated name.
    owned(unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode) })
}

/// Opens what an `O_PATH` descriptor, or one of another mode, leads to.
pub fn open_held(held: &OwnedFd, flags: i32) -> Answer<OwnedFd> {
    open_at(held, &Target::Held(held).path(), flags, 0)
}

/// Never follows a link.
pub fn stat_at(dir: &OwnedFd, name: &CStr) -> Answer<libc::stat> {
    // SAFETY: a live descriptor, a terminated name, and a buffer that the call fills.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        done(libc::fstatat(dir.as_raw_fd(), name.as_ptr(), &mut status, libc::AT_SYMLINK_NOFOLLOW))?;
        Ok(status)
    }
}

pub fn stat(file: &OwnedFd) -> Answer<libc::stat> {
    // SAFETY: a live descriptor, and a buffer that the call fills.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        done(libc::fstat(file.as_raw_fd(), &mut status))?;
        Ok(status)
    }
}

pub fn stat_vfs(dir: &OwnedFd) -> Answer<libc::statvfs> {
    // SAFETY: a live descriptor, and a buffer that the call fills.
    unsafe {
        let mut status: libc::statvfs = std::mem::zeroed();
        done(libc::fstatvfs(dir.as_raw_fd(), &mut status))?;
        Ok(status)
    }
}

pub fn read_link(dir: &OwnedFd, name: &CStr) -> Answer<Vec<u8>> {
    let mut text = vec![0; libc::PATH_MAX as usize];
    // SAFETY: a live descriptor, a terminated name, and a buffer of the size that is said.
    let length =
        length(unsafe { libc::readlinkat(dir.as_raw_fd(), name.as_ptr(), text.as_mut_ptr().cast(), text.len()) })?;
    text.truncate(length);
    Ok(text)
}

pub fn make_node(dir: &OwnedFd, name: &CStr, mode: u32, device: u64) -> Answer<()> {
    if mode & libc::S_IFMT == libc::S_IFREG {
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
        return open_at(dir, name, flags, mode & 0o7777).map(drop);
    }
    // SAFETY: a live descriptor and a terminated name, here and below.
    done(unsafe { libc::mknodat(dir.as_raw_fd(), name.as_ptr(), mode, device) })
}

pub fn make_directory(dir: &OwnedFd, name: &CStr, mode: u32) -> Answer<()> {
    // SAFETY: as above.
    done(unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), mode) })
}

pub fn make_link(dir: &OwnedFd, name: &CStr, target: &CStr) -> Answer<()> {
    // SAFETY: as above.
    done(unsafe { libc::symlinkat(target.as_ptr(), dir.as_raw_fd(), name.as_ptr()) })
}

pub fn unlink_at(dir: &OwnedFd, name: &CStr, flags: i32) -> Answer<()> {
    // SAFETY: as above.
    done(unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), flags) })
}

pub fn rename(from: (&OwnedFd, &CStr), to: (&OwnedFd, &CStr), flags: u32) -> Answer<()> {
    let (old, new) = (from.0.as_raw_fd(), to.0.as_raw_fd());
    // SAFETY: as above.
    done(unsafe { libc::renameat2(old, from.1.as_ptr(), new, to.1.as_ptr(), flags) })
}

pub fn link(from: (&OwnedFd, &CStr), to: (&OwnedFd, &CStr)) -> Answer<()> {
    let (old, new) = (from.0.as_raw_fd(), to.0.as_raw_fd());
    // SAFETY: as above.
    done(unsafe { libc::linkat(old, from.1.as_ptr(), new, to.1.as_ptr(), 0) })
}

/// A further name of what an `O_PATH` descriptor leads to.
pub fn link_held(held: &OwnedFd, to: (&OwnedFd, &CStr)) -> Answer<()> {
    let (path, flags) = (Target::Held(held).path(), libc::AT_SYMLINK_FOLLOW);
    // SAFETY: as above.
    done(unsafe { libc::linkat(libc::AT_FDCWD, path.as_ptr(), to.0.as_raw_fd(), to.1.as_ptr(), flags) })
}

/// What attributes are of: a name, or what is open and may have none.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    Name(&'a OwnedFd, &'a CStr),
    File(&'a OwnedFd),
    /// By a descriptor that only names it (`O_PATH`), so that nobody needs the right to search or open it.
    Held(&'a OwnedFd),
}

impl Target<'_> {
    pub fn stat(self) -> Answer<libc::stat> {
        match self {
            Target::Name(dir, name) => stat_at(dir, name),
            Target::File(file) | Target::Held(file) => stat(file),
        }
    }

    pub fn change_mode(self, mode: u32) -> Answer<()> {
        // SAFETY: as above.
        done(match self {
            // The kernel changes no mode of a symbolic link, so none is followed here.
            Target::Name(dir, name) => unsafe { libc::fchmodat(dir.as_raw_fd(), name.as_ptr(), mode, 0) },
            Target::File(file) => unsafe { libc::fchmod(file.as_raw_fd(), mode) },
            Target::Held(_) => unsafe { libc::chmod(self.path().as_ptr(), mode) },
        })
    }

    /// `u32::MAX`: as it is.
    pub fn change_owner(self, user: u32, group: u32) -> Answer<()> {
        // SAFETY: as above.
        done(match self {
            Target::Name(dir, name) => unsafe {
                libc::fchownat(dir.as_raw_fd(), name.as_ptr(), user, group, libc::AT_SYMLINK_NOFOLLOW)
            },
            Target::File(file) => unsafe { libc::fchown(file.as_raw_fd(), user, group) },
            Target::Held(dir) => unsafe {
                libc::fchownat(dir.as_raw_fd(), c"".as_ptr(), user, group, libc::AT_EMPTY_PATH)
            },
        })
    }

    pub fn change_times(self, times: &[libc::timespec; 2]) -> Answer<()> {
        // SAFETY: as above; two times, as the call wants.
        done(match self {
            Target::Name(dir, name) => unsafe {
                libc::utimensat(dir.as_raw_fd(), name.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW)
            },
            Target::File(file) => unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) },
            Target::Held(_) => unsafe { libc::utimensat(libc::AT_FDCWD, self.path().as_ptr(), times.as_ptr(), 0) },
        })
    }

    pub fn cut(self, size: u64) -> Answer<()> {
        let size = i64::try_from(size).map_err(|_| Errno::EFBIG)?;
        let cut = |file: &OwnedFd| {
            // SAFETY: a live descriptor.
            done(unsafe { libc::ftruncate(file.as_raw_fd(), size) })
        };
        match self {
            Target::Name(dir, name) => {
                // To nothing: whatever was there needn't be read, moved or kept.
                let flags = if size == 0 { libc::O_TRUNC } else { 0 };
                let file = open_at(dir, name, libc::O_WRONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK | flags, 0)?;
                cut(&file)
            }
            Target::File(file) => cut(file),
            Target::Held(held) => cut(&open_held(held, libc::O_WRONLY)?),
        }
    }

    pub fn set_xattr(self, key: &CStr, value: &[u8], flags: i32) -> Answer<()> {
        let (data, size) = (value.as_ptr().cast(), value.len());
        // SAFETY: as above; `value` has the size that is said.
        done(match self {
            Target::Name(..) => unsafe { libc::lsetxattr(self.path().as_ptr(), key.as_ptr(), data, size, flags) },
            Target::File(file) => unsafe { libc::fsetxattr(file.as_raw_fd(), key.as_ptr(), data, size, flags) },
            Target::Held(_) => unsafe { libc::setxattr(self.path().as_ptr(), key.as_ptr(), data, size, flags) },
        })
    }

    pub fn get_xattr(self, key: &CStr, buffer: &mut [u8]) -> Answer<usize> {
        let (data, size) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: as above; `buffer` has the size that is said.
        length(match self {
            Target::Name(..) => unsafe { libc::lgetxattr(self.path().as_ptr(), key.as_ptr(), data, size) },
            Target::File(file) => unsafe { libc::fgetxattr(file.as_raw_fd(), key.as_ptr(), data, size) },
            Target::Held(_) => unsafe { libc::getxattr(self.path().as_ptr(), key.as_ptr(), data, size) },
        })
    }

    pub fn list_xattr(self, buffer: &mut [u8]) -> Answer<usize> {
        let (data, size) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: as above.
        length(match self {
            Target::Name(..) => unsafe { libc::llistxattr(self.path().as_ptr(), data, size) },
            Target::File(file) => unsafe { libc::flistxattr(file.as_raw_fd(), data, size) },
            Target::Held(_) => unsafe { libc::listxattr(self.path().as_ptr(), data, size) },
        })
    }

    pub fn remove_xattr(self, key: &CStr) -> Answer<()> {
        // SAFETY: as above.
        done(match self {
            Target::Name(..) => unsafe { libc::lremovexattr(self.path().as_ptr(), key.as_ptr()) },
            Target::File(file) => unsafe { libc::fremovexattr(file.as_raw_fd(), key.as_ptr()) },
            Target::Held(_) => unsafe { libc::removexattr(self.path().as_ptr(), key.as_ptr()) },
        })
    }

    /// Whether this process may do what `mask` says.
    pub fn access(self, mask: i32) -> Answer<()> {
        // SAFETY: a terminated path.
        done(unsafe { libc::access(self.path().as_ptr(), mask) })
    }

    /// For the calls that take no directory.
    fn path(self) -> CString {
        let path = match self {
            Target::Name(dir, name) => {
                [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), name.to_bytes()].concat()
            }
            Target::File(file) | Target::Held(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into_bytes(),
        };
        CString::new(path).expect("a name ends before its zero byte")
    }
}

/// As much as there is: FUSE takes a short answer for the end of the file.
pub fn read(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Answer<usize> {
    let mut have = 0;
    while have < buffer.len() {
        let rest = &mut buffer[have..];
        let at = i64::try_from(offset + have as u64).map_err(|_| Errno::EINVAL)?;
        // SAFETY: a live descriptor, and a buffer of the size that is said.
        match length(unsafe { libc::pread(file.as_raw_fd(), rest.as_mut_ptr().cast(), rest.len(), at) }) {
            Ok(0) => break,
            Ok(count) => have += count,
            // What was read is an answer; the error comes again with the next request.
            Err(_) if have > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

pub fn write(file: &OwnedFd, data: &[u8], offset: u64) -> Answer<usize> {
    let at = i64::try_from(offset).map_err(|_| Errno::EFBIG)?;
    // SAFETY: a live descriptor, and data of the size that is said.
    length(unsafe { libc::pwrite(file.as_raw_fd(), data.as_ptr().cast(), data.len(), at) })
}

/// At the end of the file, wherever it is by now.
pub fn append(file: &OwnedFd, data: &[u8]) -> Answer<usize> {
    let vector = libc::iovec { iov_base: data.as_ptr() as *mut libc::c_void, iov_len: data.len() };
    // SAFETY: a live descriptor, and one vector of live data. The offset means nothing in an append.
    length(unsafe { libc::pwritev2(file.as_raw_fd(), &vector, 1, 0, libc::RWF_APPEND) })
}

/// Closes a copy, so that the root's file system says what it has to say of failed writes.
pub fn close_a_copy(file: &OwnedFd) -> Answer<()> {
    // SAFETY: a live descriptor; the copy is nobody else's.
    unsafe {
        let copy = libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0);
        done(copy)?;
        done(libc::close(copy))
    }
}

pub fn sync(file: &OwnedFd, data_only: bool) -> Answer<()> {
    // SAFETY: a live descriptor.
    done(unsafe { if data_only { libc::fdatasync(file.as_raw_fd()) } else { libc::fsync(file.as_raw_fd()) } })
}

pub fn allocate(file: &OwnedFd, mode: i32, offset: u64, length: u64) -> Answer<()> {
    // SAFETY: a live descriptor; numbers that are too large become negative, which the call refuses.
    done(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) })
}

pub fn seek(file: &OwnedFd, offset: i64, whence: i32) -> Answer<i64> {
    // SAFETY: a live descriptor, whose offset nobody uses.
    match unsafe { libc::lseek(file.as_raw_fd(), offset, whence) } {
        at @ 0.. => Ok(at),
        _ => Err(last()),
    }
}

pub fn copy_range(from: (&OwnedFd, u64), to: (&OwnedFd, u64), count: usize) -> Answer<usize> {
    let (mut at_from, mut at_to) = (from.1 as i64, to.1 as i64);
    // SAFETY: live descriptors and offsets.
    length(unsafe { libc::copy_file_range(from.0.as_raw_fd(), &mut at_from, to.0.as_raw_fd(), &mut at_to, count, 0) })
}

/// The same by a number from `lowest` on; as it is where there is none.
pub fn out_of_the_way(fd: OwnedFd, lowest: i32) -> OwnedFd {
    // SAFETY: a live descriptor; the copy is new.
    unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) {
            copy @ 0.. => OwnedFd::from_raw_fd(copy),
            _ => fd,
        }
    }
}

pub struct ListedName {
    pub ino: u64,
    /// `DT_…`
    pub kind: u8,
    pub name: Vec<u8>,
}

/// All names of a directory, with `.` and `..`.
pub fn list(dir: &OwnedFd) -> Answer<Vec<ListedName>> {
    let fd = open_at(dir, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut names = vec![];
    // SAFETY: the stream owns the descriptor from here on; an entry is valid until the next is read.
    unsafe {
        let stream = libc::fdopendir(fd.as_raw_fd());
        if stream.is_null() {
            return Err(last());
        }
        std::mem::forget(fd);
        loop {
            *libc::__errno_location() = 0;
            let entry = libc::readdir(stream);
            if entry.is_null() {
                let errno = *libc::__errno_location();
                libc::closedir(stream);
                return if errno == 0 { Ok(names) } else { Err(Errno::from_i32(errno)) };
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr()).to_bytes().to_vec();
            names.push(ListedName { ino: (*entry).d_ino, kind: (*entry).d_type, name });
        }
    }
}
