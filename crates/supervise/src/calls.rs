//! Which call is answered how.
//!
//! Each answer is the library's decision about a path of ours that leads where the program's does: its directory is reached by
//! `/proc/TID`, its text is read from its memory. What lies outside the root goes on in the kernel.
//!
//! Reason to do a call here and not to let the kernel go on after a look: between the two, the text or the name could change,
//! and what we decided must be about what is done.

use crate::attributes::Times;
use crate::filter::{
    ARCH_X86_64, NEW_VIEW, SYS_FCHMODAT2, SYS_GETXATTRAT, SYS_LANDLOCK_CREATE_RULESET, SYS_LISTXATTRAT,
    SYS_REMOVEXATTRAT, SYS_SETXATTRAT,
};
use crate::listener::{Answer, Notification};
use crate::serve::Worker;
use crate::state::{RIGHTS_VARY, UMASKS_VARY, VIEWS_VARY};
use crate::target::{Target, is_of_its_reader, is_of_the_system, names_its_reader};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};

pub const CWD: i32 = libc::AT_FDCWD;
const NOFOLLOW: i32 = libc::AT_SYMLINK_NOFOLLOW;

/// A path of a program, for our own calls.
pub struct Place {
    pub dirfd: i32,
    pub path: CString,
    /// Its `..` out of a placed directory was spelt out: the kernel, with the program's own text, would go elsewhere.
    pub is_led: bool,
    _directory: Option<OwnedFd>,
}

impl Place {
    pub fn absolute(path: CString) -> Place {
        Place { dirfd: CWD, path, is_led: false, _directory: None }
    }

    pub fn below(directory: OwnedFd, path: CString) -> Place {
        Place { dirfd: directory.as_raw_fd(), path, is_led: false, _directory: Some(directory) }
    }

    pub fn led(path: CString) -> Place {
        Place { is_led: true, ..Place::absolute(path) }
    }

    pub fn text(&self) -> *const libc::c_char {
        self.path.as_ptr()
    }

    /// As one text, for calls that take no directory.
    pub fn whole(&self) -> CString {
        match self.dirfd {
            CWD => self.path.clone(),
            fd => {
                let mut text = format!("/proc/self/fd/{fd}/").into_bytes();
                text.extend_from_slice(self.path.to_bytes());
                CString::new(text).expect("no zero in either part")
            }
        }
    }
}

/// It changes something, so that the disk, a lease or the agent may hold it up.
pub fn may_take_long(call: &Notification) -> bool {
    !matches!(
        call.nr as i64,
        libc::SYS_stat
            | libc::SYS_lstat
            | libc::SYS_fstat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_readlink
            | libc::SYS_readlinkat
    )
}

/// Why a call is not done here: the kernel goes on, or the program gets this error.
pub type Taken<T> = Result<T, Answer>;

/// What can't be reached is for the kernel to tell. But if only we lack descriptors, its way would be a wrong one.
pub fn unreachable_for_us(errno: i32) -> Answer {
    match errno {
        libc::EMFILE | libc::ENFILE => Answer::Error(libc::ENFILE),
        _ => Answer::Continue,
    }
}

/// What becomes of a program that is not served.
const LEFT_ALONE: &str =
    "it reads the right bytes, but sees links where files are in a tier, and what it creates is durable at once";

/// The first directory and path of a call that has any.
fn path_of(call: &Notification) -> Option<(i32, u64)> {
    match call.nr as i64 {
        libc::SYS_open
        | libc::SYS_creat
        | libc::SYS_stat
        | libc::SYS_lstat
        | libc::SYS_readlink
        | libc::SYS_unlink
        | libc::SYS_rename
        | libc::SYS_link
        | libc::SYS_truncate
        | libc::SYS_execve => Some((CWD, call.args[0])),
        libc::SYS_openat
        | libc::SYS_openat2
        | libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_readlinkat
        | libc::SYS_unlinkat
        | libc::SYS_renameat
        | libc::SYS_renameat2
        | libc::SYS_linkat => Some((call.args[0] as i32, call.args[1])),
        _ => None,
    }
}

impl Worker {
    pub fn answer(&mut self, call: &Notification, again: bool) -> Answer {
        let target = Target { thread: call.thread };
        if call.thread == 0 {
            return Answer::Continue; // in another pid namespace: nothing of it can be seen
        }
        if call.arch != ARCH_X86_64 {
            self.warn_of(target, "is a program of 32 bits, which nothing here reaches", LEFT_ALONE);
            return Answer::Continue;
        }
        let varies = match call.nr as i64 {
            libc::SYS_umask if call.args[0] as u32 & 0o777 == self.shared.state.umask() => 0,
            libc::SYS_umask => UMASKS_VARY,
            // make(1) says so before each program that it starts, and has no other.
            libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
                if self.asks_for_own_rights(call) =>
            {
                return Answer::Continue;
            }
            libc::SYS_setuid
            | libc::SYS_setgid
            | libc::SYS_setreuid
            | libc::SYS_setregid
            | libc::SYS_setresuid
            | libc::SYS_setresgid
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_setgroups
            | libc::SYS_capset => RIGHTS_VARY,
            libc::SYS_chroot | libc::SYS_pivot_root | libc::SYS_setns | libc::SYS_unshare | libc::SYS_clone => {
                VIEWS_VARY | RIGHTS_VARY
            }
            // Without the right to look, take it for one that does.
            libc::SYS_clone3
                if target.read_word(call.args[0]).map_or(u64::MAX, |flags| flags) & NEW_VIEW as u64 == 0 =>
            {
                return Answer::Continue;
            }
            libc::SYS_clone3 => VIEWS_VARY | RIGHTS_VARY,
            _ => 0,
        };
        if varies != 0 {
            self.shared.state.note(varies);
            return Answer::Continue;
        }
        if let Some(answer) = self.refuse(call) {
            return answer;
        }
        if self.shared.state.varies(VIEWS_VARY) && !target.shares_our_view() {
            self.warn_of_another_view(call);
            return Answer::Continue;
        }
        if self.shared.state.varies(RIGHTS_VARY) {
            match target.status() {
                Ok(status) if !self.own.are(&status.rights) => {
                    return self.with_other_rights(&status.rights, call, again);
                }
                Err(errno @ (libc::EMFILE | libc::ENFILE)) => return unreachable_for_us(errno),
                _ => {}
            }
        }
        self.dispatch(call, again).unwrap_or_else(|taken| taken)
    }

    /// Users or groups that are all our own, which the run began with: nothing varies by that.
    fn asks_for_own_rights(&self, call: &Notification) -> bool {
        let (count, own) = match call.nr as i64 {
            libc::SYS_setuid | libc::SYS_setfsuid => (1, self.own.user()),
            libc::SYS_setgid | libc::SYS_setfsgid => (1, self.own.group()),
            libc::SYS_setreuid => (2, self.own.user()),
            libc::SYS_setregid => (2, self.own.group()),
            libc::SYS_setresuid => (3, self.own.user()),
            _ => (3, self.own.group()),
        };
        call.args[..count].iter().all(|&id| id as u32 == own || id as u32 == u32::MAX)
    }

    /// What would go past us, or what we would go past: refused as by a kernel that lacks it, which programs expect.
    fn refuse(&self, call: &Notification) -> Option<Answer> {
        let target = Target { thread: call.thread };
        match call.nr as i64 {
            // It opens files unseen.
            libc::SYS_io_uring_setup => {
                let then = "most programs then use ordinary reads and writes (--preload-only lets it on, and io_uring sees links)";
                self.warn_of(target, "was refused io_uring, as where it is switched off", then);
                Some(Answer::Error(libc::EPERM))
            }
            // What is opened here would be opened with our rights, and the object of a file lies where no rule of its names.
            SYS_LANDLOCK_CREATE_RULESET => {
                let then = "it does not confine itself in this run; run it outside of `terrace run` if it should";
                self.warn_of(target, "was refused Landlock, as where the kernel lacks it", then);
                Some(Answer::Error(libc::EOPNOTSUPP))
            }
            _ => None,
        }
    }

    pub fn warn_of(&self, target: Target, what: &str, then: &str) {
        self.shared.warn_once(format!("{} {what}: {then}", target.program()));
    }

    /// Its paths lead elsewhere than ours: another tree, or another user's rights.
    fn warn_of_another_view(&self, call: &Notification) {
        let Some((dirfd, address)) = path_of(call) else { return };
        let target = Target { thread: call.thread };
        let Ok(path) = target.read_text(address) else { return };
        if let Some(whole) = target.as_seen_from_here(dirfd, &path)
            // SAFETY: a C string.
            && unsafe { (self.shared.table.may_be_below_root)(whole.as_ptr()) }
        {
            self.warn_of(
                target,
                "has another root directory, mount or user namespace, where nothing reaches it",
                LEFT_ALONE,
            );
        }
    }

    fn with_other_rights(&mut self, rights: &crate::target::Rights, call: &Notification, again: bool) -> Answer {
        let own = self.own.clone();
        own.with(rights, || self.dispatch(call, again).unwrap_or_else(|taken| taken)).unwrap_or(Answer::Continue)
    }

    fn dispatch(&mut self, call: &Notification, again: bool) -> Taken<Answer> {
        let args = &call.args;
        let int = |number: usize| args[number] as i32;
        match call.nr as i64 {
            libc::SYS_getcwd => self.getcwd(call, args[0], args[1]),
            libc::SYS_chdir => self.chdir(call, args[0]),
            libc::SYS_mkdir => self.mkdir(call, CWD, args[0], args[1] as u32),
            libc::SYS_mkdirat => self.mkdir(call, int(0), args[1], args[2] as u32),
            libc::SYS_rmdir => self.unlink(call, CWD, args[0], libc::AT_REMOVEDIR, again),
            libc::SYS_access => self.access(call, CWD, args[0], int(1), 0),
            libc::SYS_faccessat => self.access(call, int(0), args[1], int(2), 0),
            libc::SYS_faccessat2 => self.access(call, int(0), args[1], int(2), int(3)),
            libc::SYS_symlink => self.symlink(call, args[0], CWD, args[1]),
            libc::SYS_symlinkat => self.symlink(call, args[0], int(1), args[2]),
            libc::SYS_mknod => self.mknod(call, CWD, args[0], args[1] as u32, args[2]),
            libc::SYS_mknodat => self.mknod(call, int(0), args[1], args[2] as u32, args[3]),
            libc::SYS_open => self.open(call, CWD, args[0], int(1), args[2] as u32, again),
            libc::SYS_creat => {
                self.open(call, CWD, args[0], libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, args[1] as u32, again)
            }
            libc::SYS_openat => self.open(call, int(0), args[1], int(2), args[3] as u32, again),
            libc::SYS_openat2 => self.open_how(call, again),
            libc::SYS_stat => self.stat(call, CWD, args[0], args[1], 0),
            libc::SYS_lstat => self.stat(call, CWD, args[0], args[1], NOFOLLOW),
            libc::SYS_fstat => self.stat_descriptor(call, int(0), args[1]),
            libc::SYS_newfstatat => self.stat(call, int(0), args[1], args[2], int(3)),
            libc::SYS_statx => self.statx(call),
            libc::SYS_readlink => self.readlink(call, CWD, args[0], args[1], args[2]),
            libc::SYS_readlinkat => self.readlink(call, int(0), args[1], args[2], args[3]),
            libc::SYS_getdents64 | libc::SYS_getdents => self.getdents(call, int(0), args[1], args[2], again),
            libc::SYS_unlink => self.unlink(call, CWD, args[0], 0, again),
            libc::SYS_unlinkat => self.unlink(call, int(0), args[1], int(2), again),
            libc::SYS_rename => self.rename(call, (CWD, args[0]), (CWD, args[1]), 0, again),
            libc::SYS_renameat => self.rename(call, (int(0), args[1]), (int(2), args[3]), 0, again),
            libc::SYS_renameat2 => self.rename(call, (int(0), args[1]), (int(2), args[3]), args[4] as u32, again),
            libc::SYS_link => self.link(call, (CWD, args[0]), (CWD, args[1]), 0, again),
            libc::SYS_linkat => self.link(call, (int(0), args[1]), (int(2), args[3]), int(4), again),
            libc::SYS_truncate => self.truncate(call, args[0], args[1] as i64),
            libc::SYS_copy_file_range => self.copy_range(call, again),
            libc::SYS_lchown => self.chown(call, CWD, args[0], (args[1] as u32, args[2] as u32), NOFOLLOW),
            libc::SYS_fchownat => self.chown(call, int(0), args[1], (args[2] as u32, args[3] as u32), int(4)),
            SYS_FCHMODAT2 => self.chmod(call, int(0), args[1], args[2] as u32, int(3)),
            libc::SYS_chown => self.chown(call, CWD, args[0], (args[1] as u32, args[2] as u32), 0),
            libc::SYS_fchown => self.chown_open(call, int(0), (args[1] as u32, args[2] as u32)),
            libc::SYS_chmod => self.chmod(call, CWD, args[0], args[1] as u32, 0),
            libc::SYS_fchmodat => self.chmod(call, int(0), args[1], args[2] as u32, 0),
            libc::SYS_fchmod => self.chmod_open(call, int(0), args[1] as u32),
            libc::SYS_utimensat => self.utimens(call, int(0), args[1], (args[2], Times::Nanoseconds), int(3)),
            libc::SYS_futimesat => self.utimens(call, int(0), args[1], (args[2], Times::Microseconds), 0),
            libc::SYS_utimes => self.utimens(call, CWD, args[0], (args[1], Times::Microseconds), 0),
            libc::SYS_utime => self.utimens(call, CWD, args[0], (args[1], Times::Seconds), 0),
            libc::SYS_setxattr
            | libc::SYS_lsetxattr
            | libc::SYS_removexattr
            | libc::SYS_lremovexattr
            | libc::SYS_getxattr
            | libc::SYS_listxattr
            | libc::SYS_lgetxattr
            | libc::SYS_llistxattr => self.xattr(call),
            libc::SYS_fsetxattr | libc::SYS_fremovexattr => self.xattr_open(call),
            SYS_SETXATTRAT | SYS_GETXATTRAT | SYS_LISTXATTRAT | SYS_REMOVEXATTRAT => self.xattr_at(call),
            libc::SYS_inotify_add_watch => self.watch(call, args[1]),
            libc::SYS_statfs => self.statfs(call, args[0]),
            libc::SYS_fstatfs => self.statfs_descriptor(call, int(0), args[1]),
            libc::SYS_execve => self.exec(call, CWD, args[0]),
            libc::SYS_execveat => self.exec(call, int(0), args[1]),
            _ => Ok(Answer::Continue),
        }
    }

    /// The text of a path, with what is the thread's own in `/proc` translated.
    pub fn text(&self, call: &Notification, address: u64) -> Taken<CString> {
        let target = Target { thread: call.thread };
        match target.read_text(address) {
            Ok(text) => {
                let text = target.translate(text);
                // What is left of a reader's own in it would be ours, when we read it.
                if is_of_its_reader(&text) { Err(Answer::Continue) } else { Ok(text) }
            }
            // The kernel says of a bad address, or a text too long, what it says.
            Err(libc::EFAULT | libc::ENAMETOOLONG) => Err(Answer::Continue),
            Err(errno) => {
                self.cannot_see(target, errno);
                Err(Answer::Continue)
            }
        }
    }

    fn cannot_see(&self, target: Target, errno: i32) {
        if errno != libc::ESRCH {
            self.shared.warn_once(format!(
                "{} does not let itself be looked at (it was made not dumpable, or has other rights): it reads the right \
                 bytes, but sees links where files are in a tier, and what it creates is durable at once",
                target.program()
            ));
        }
    }

    /// Where a path leads, if that may be below the root; what certainly isn't goes on in the kernel.
    pub fn place(&self, call: &Notification, dirfd: i32, address: u64) -> Taken<Place> {
        let path = self.text(call, address)?;
        self.place_of(call, dirfd, path)
    }

    /// As `place`; and also a text that lies outside, if a link leads from there to something of ours.
    pub fn place_by_any_way(&self, call: &Notification, dirfd: i32, address: u64) -> Taken<Place> {
        let path = self.text(call, address)?;
        match self.place_of(call, dirfd, path.clone()) {
            Err(Answer::Continue) => {
                let place = self.anywhere(call, dirfd, path)?;
                if self.leads_to_ours(&place) { Ok(place) } else { Err(Answer::Continue) }
            }
            found => found,
        }
    }

    pub fn leads_to_ours(&self, place: &Place) -> bool {
        // SAFETY: a place of ours.
        unsafe { (self.shared.table.leads_to_ours)(place.dirfd, place.text()) }
    }

    /// A place wherever it is.
    pub fn anywhere(&self, call: &Notification, dirfd: i32, path: CString) -> Taken<Place> {
        let is_its_own = path.to_bytes().starts_with(format!("/proc/{}/", call.thread).as_bytes());
        if path.is_empty() || path.to_bytes().starts_with(b"/proc/") && !is_its_own {
            return Err(Answer::Continue);
        }
        if path.to_bytes()[0] == b'/' {
            return Ok(Place::absolute(path));
        }
        let target = Target { thread: call.thread };
        if names_its_reader(&path, &target.text_of(dirfd)) {
            return Err(Answer::Continue);
        }
        let directory = target.directory(dirfd).map_err(unreachable_for_us)?;
        Ok(Place::below(directory, path))
    }

    pub fn place_of(&self, call: &Notification, dirfd: i32, path: CString) -> Taken<Place> {
        if !self.shared.directories {
            return self.place_as_said(call, dirfd, path);
        }
        // What leads out of a placed directory is wherever that is in the root, or above it.
        let is_plain = path.to_bytes().first() == Some(&b'/') && !path.to_bytes().windows(2).any(|two| two == b"..");
        let led = match is_plain || path.is_empty() {
            true => None,
            false => self.anywhere(call, dirfd, path.clone()).ok().and_then(|place| self.translated(&place)),
        };
        match led {
            Some(text) => Ok(Place::led(text)),
            None => self.place_as_said(call, dirfd, path),
        }
    }

    fn place_as_said(&self, call: &Notification, dirfd: i32, path: CString) -> Taken<Place> {
        if path.is_empty() {
            return Err(Answer::Continue);
        }
        if path.to_bytes()[0] == b'/' {
            // SAFETY: a C string.
            let near = !is_of_the_system(&path) && unsafe { (self.shared.table.may_be_below_root)(path.as_ptr()) };
            return if near { Ok(Place::absolute(path)) } else { Err(Answer::Continue) };
        }
        let target = Target { thread: call.thread };
        if names_its_reader(&path, &target.text_of(dirfd)) {
            return Err(Answer::Continue);
        }
        let directory = target.directory(dirfd).map_err(unreachable_for_us)?;
        if !self.is_near(&directory, &path) {
            return Err(Answer::Continue);
        }
        Ok(Place::below(directory, path))
    }

    /// On the root's file system, or in a placed directory whose tier is full, or with a text that may lead there from elsewhere.
    fn is_near(&self, directory: &OwnedFd, path: &CStr) -> bool {
        // SAFETY: a zeroed stat is valid; our own descriptor; a C string.
        unsafe {
            let mut status: libc::stat = std::mem::zeroed();
            libc::fstat(directory.as_raw_fd(), &mut status) == 0 && status.st_dev == self.shared.root_dev
                || path.to_bytes().windows(2).any(|two| two == b"..")
                || (self.shared.table.may_be_spilled)(directory.as_raw_fd())
        }
    }

    /// What was read of the thread is its own; and the call is about to be done.
    pub fn begin(&self, call: &Notification) -> Taken<()> {
        if !self.shared.listener.is_valid(call.id) {
            return Err(Answer::Continue);
        }
        self.slot.acting.store(1, std::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Gives the thread what it asked for. That it still waits is not asked again, which would cost as much as a stat: numbers of
    /// threads are given out in turn, so none comes again within the time of a look.
    pub fn deliver(&self, call: &Notification, address: u64, bytes: &[u8], result: isize) -> Answer {
        match (Target { thread: call.thread }).write(address, bytes) {
            Ok(()) => Answer::from(result),
            Err(errno) => Answer::Error(errno),
        }
    }

    /// The thread's text at the address, which need not be there.
    pub fn optional_text(&self, call: &Notification, address: u64) -> Taken<Option<CString>> {
        if address == 0 { Ok(None) } else { self.text(call, address).map(Some) }
    }
}
