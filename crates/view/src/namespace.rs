//! The mount namespace of one run's programs, with the mount in it.
//!
//! All is prepared beforehand and done in the new process, between fork and exec: there a call that allocates or takes a lock could
//! hang. Root needs a mount namespace alone; anybody else (and root without its rights, as in a container) also a user
//! namespace, in which the one user that there is, is the same as outside. /dev/fuse is opened inside: the kernel wants
//! the connection and the mount to be of one user namespace.
//!
//! Sources: mount_namespaces(7), user_namespaces(7), mount(2), fuse(4).

use std::ffi::{CStr, CString};
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What was refused, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Refused {
    step: Step,
    errno: i32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u8)]
enum Step {
    Namespace,
    UserNamespace,
    Map,
    Device,
    Private,
    Mount,
    Directory,
    Process,
}

const STEPS: [Step; 8] = [
    Step::Namespace,
    Step::UserNamespace,
    Step::Map,
    Step::Device,
    Step::Private,
    Step::Mount,
    Step::Directory,
    Step::Process,
];

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Namespace => "a mount namespace can't be made",
            Step::UserNamespace => "a user namespace can't be made",
            Step::Map => "the user can't be mapped into a user namespace",
            Step::Device => "/dev/fuse can't be opened",
            Step::Private => "mounts can't be kept private",
            Step::Mount => "the FUSE file system can't be mounted over the root",
            Step::Directory => "the working directory can't be entered by its path",
            Step::Process => "no process can be started to try it",
        };
        write!(f, "{what}: {}", io::Error::from_raw_os_error(self.errno))
    }
}

impl Refused {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self.step {
            Step::Device if self.errno == libc::ENOENT => {
                "load the kernel's FUSE module (modprobe fuse), or give the container its /dev/fuse"
            }
            Step::Device => {
                "ask for /dev/fuse with rights for everybody, as distributions have it (chmod 666 /dev/fuse)"
            }
            Step::Namespace | Step::UserNamespace | Step::Map => {
                "ask for user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, \
                 kernel.apparmor_restrict_unprivileged_userns; a container's seccomp profile), or run without --mount"
            }
            _ => "run without --mount",
        }
    }

    /// For a pipe between processes.
    pub fn bytes(&self) -> [u8; 5] {
        let errno = self.errno.to_le_bytes();
        [self.step as u8, errno[0], errno[1], errno[2], errno[3]]
    }

    pub fn of_bytes(bytes: &[u8]) -> Option<Refused> {
        let (step, errno) = bytes.split_first()?;
        Some(Refused { step: *STEPS.get(usize::from(*step))?, errno: i32::from_le_bytes(errno.try_into().ok()?) })
    }
}

/// The way in, prepared.
pub struct Namespace {
    root: CString,
    flags: libc::c_ulong,
    uid: libc::uid_t,
    gid: libc::gid_t,
    uid_map: String,
    gid_map: String,
    in_user_namespace: bool,
    directory: Option<CString>,
}

impl Namespace {
    /// Errors: those of statvfs(3) on the root, and EINVAL for a path with a zero byte.
    pub fn new(root: &Path) -> io::Result<Namespace> {
        let path = CString::new(root.as_os_str().as_bytes())?;
        // SAFETY: a terminated path, and a buffer that the call fills; geteuid and getegid have no preconditions.
        let (status, uid, gid) = unsafe {
            let mut status: libc::statvfs = std::mem::zeroed();
            if libc::statvfs(path.as_ptr(), &mut status) != 0 {
                return Err(io::Error::last_os_error());
            }
            (status, libc::geteuid(), libc::getegid())
        };
        // What the root's own mount forbids stays forbidden.
        let kept = [
            (libc::ST_NOSUID, libc::MS_NOSUID),
            (libc::ST_NODEV, libc::MS_NODEV),
            (libc::ST_NOEXEC, libc::MS_NOEXEC),
            (libc::ST_NOATIME, libc::MS_NOATIME),
            (libc::ST_RELATIME, libc::MS_RELATIME),
        ];
        let flags = kept.iter().filter(|(of, _)| status.f_flag & of != 0).map(|(_, flag)| flag).sum();
        let directory = std::env::current_dir().ok().and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
        Ok(Namespace {
            root: path,
            flags,
            uid,
            gid,
            uid_map: format!("{uid} {uid} 1\n"),
            gid_map: format!("{gid} {gid} 1\n"),
            in_user_namespace: uid != 0,
            directory,
        })
    }

    /// True if the programs are in a user namespace, where other users' files belong to nobody.
    pub fn in_user_namespace(&self) -> bool {
        self.in_user_namespace
    }

    /// Takes this process into a new mount namespace, in which the root is the mount; gives the mount's other end, to be served. Until
    /// somebody does, calls below the root wait. Async-signal-safe.
    pub fn enter(&self) -> Result<OwnedFd, Refused> {
        if self.in_user_namespace {
            did(Step::UserNamespace, || unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) })?;
            // A user who isn't root may map groups only where setgroups(2) is refused; old kernels have no such file.
            let _ = put(c"/proc/self/setgroups", b"deny");
            put(c"/proc/self/uid_map", self.uid_map.as_bytes())?;
            put(c"/proc/self/gid_map", self.gid_map.as_bytes())?;
        } else {
            did(Step::Namespace, || unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
        }
        // What is mounted outside later shows here, and not the other way round.
        let none = std::ptr::null();
        did(Step::Private, || unsafe {
            libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_SLAVE, none.cast())
        })?;
        let fuse = did(Step::Device, || unsafe { libc::open(c"/dev/fuse".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })?;
        // SAFETY: new, and nobody else's.
        let fuse = unsafe { OwnedFd::from_raw_fd(fuse) };
        let mut options = [0u8; 160];
        let mut rest = &mut options[..159];
        let (fd, uid, gid) = (fuse.as_raw_fd(), self.uid, self.gid);
        write!(rest, "fd={fd},rootmode=40000,user_id={uid},group_id={gid},default_permissions,allow_other")
            .map_err(|_| Refused { step: Step::Mount, errno: libc::EINVAL })?;
        did(Step::Mount, || unsafe {
            let kind = c"fuse.terrace".as_ptr();
            libc::mount(c"terrace".as_ptr(), self.root.as_ptr(), kind, self.flags, options.as_ptr().cast())
        })?;
        Ok(fuse)
    }

    /// Enters the working directory again, by its path, so that it is in the mount. Waits for the server. Async-signal-safe.
    pub fn enter_directory(&self) -> Result<(), Refused> {
        let Some(directory) = &self.directory else { return Ok(()) };
        did(Step::Directory, || unsafe { libc::chdir(directory.as_ptr()) }).map(drop)
    }
}

/// One system call. SAFETY of the callers: live, terminated strings.
fn did(step: Step, call: impl FnOnce() -> libc::c_int) -> Result<libc::c_int, Refused> {
    match call() {
        result @ 0.. => Ok(result),
        _ => Err(Refused { step, errno: io::Error::last_os_error().raw_os_error().unwrap_or(0) }),
    }
}

fn put(file: &CStr, text: &[u8]) -> Result<(), Refused> {
    let fd = did(Step::Map, || unsafe { libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC) })?;
    // SAFETY: new, and nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    did(Step::Map, || unsafe { libc::write(fd.as_raw_fd(), text.as_ptr().cast(), text.len()) as libc::c_int }).map(drop)
}

/// The way in that can be had here, tried in a process of its own; or what stands against it.
pub fn probe(root: &Path) -> io::Result<Result<Namespace, Refused>> {
    let mut namespace = Namespace::new(root)?;
    let refused = tried(&namespace)?;
    // Root without its rights is like anybody.
    if refused.is_some_and(|refused| refused.step == Step::Namespace && refused.errno == libc::EPERM) {
        namespace.in_user_namespace = true;
        return Ok(tried(&namespace)?.map_or(Ok(namespace), Err));
    }
    Ok(refused.map_or(Ok(namespace), Err))
}

fn tried(namespace: &Namespace) -> io::Result<Option<Refused>> {
    let (mut said, say) = io::pipe()?;
    // SAFETY: the child makes system calls only, and ends without running anything of ours.
    let child = unsafe { libc::fork() };
    match child {
        -1 => {
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            Ok(Some(Refused { step: Step::Process, errno }))
        }
        0 => {
            if let Err(refused) = namespace.enter() {
                let bytes = refused.bytes();
                // SAFETY: a live pipe and buffer.
                unsafe { libc::write(say.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
            }
            // SAFETY: ends this process at once.
            unsafe { libc::_exit(0) }
        }
        _ => {
            drop(say);
            let mut bytes = vec![];
            let read = io::Read::read_to_end(&mut said, &mut bytes);
            // SAFETY: our own child.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            read.map(|_| Refused::of_bytes(&bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_comes_through_a_pipe_as_it_was() {
        for step in STEPS {
            let refused = Refused { step, errno: libc::EPERM };
            assert_eq!(Refused::of_bytes(&refused.bytes()), Some(refused));
            assert!(refused.to_string().contains("not permitted"), "{refused}");
        }
        assert_eq!(Refused::of_bytes(b""), None);
        assert_eq!(Refused::of_bytes(&[99, 0, 0, 0, 0]), None);
    }
}
