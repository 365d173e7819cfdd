//! The requests that the kernel sends, in the order of FUSE's own list: each is the system call that it came from, made in the root.
//!
//! - **Nothing is remembered.** Names and attributes are asked for each time, because other runs and other machines may change
//!   the root as well; the kernel's cache of a file's bytes lasts from open to open (as NFS promises).
//! - **Rights** are the kernel's to check (`default_permissions`), against what we show. A server of root's gives what it makes to the
//!   program that asked for it.
//! - **Locks** stay in the kernel: they hold among all programs of the mount.
//! - **Umask**: each thread has one of its own and takes the program's for a request that makes something, because whether it
//!   counts is for the root's file system to say (a directory's default access list overrides it).

use crate::nodes::{Nodes, Place};
use fuser::{
    BsdFileFlags, Config, CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session, SessionACL,
    TimeOrNow, WriteFlags,
};
use memmap2::MmapMut;
use std::cell::{Cell, RefCell};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};
use terrace_passthrough::{
    Answer, Change, Handle, Handles, Target, attributes, calls, drop_privileges, give, listed_type, reply_attributes,
    reply_data, reply_empty, reply_entry, reply_open, reply_written, reply_xattr,
};

/// How long the kernel takes names and attributes for known.
const KNOWN_FOR: Duration = Duration::ZERO;
/// One request moves at most so much.
const TRANSFER_MAX: u32 = 1 << 20;
/// Requests that are served at once: a program that waits for the agent holds up no other.
const THREADS: usize = 8;
/// Reads ahead that the kernel may have under way, fewer than the threads.
const BACKGROUND_MAX: u16 = 6;
/// What an open of the root's file takes from the program's. Offsets come with each request, and so do appends; creating,
/// links and alignment are the kernel's matter.
const FLAGS: i32 = libc::O_ACCMODE | libc::O_TRUNC | libc::O_SYNC | libc::O_DSYNC | libc::O_NOATIME;

struct View {
    nodes: Nodes,
    handles: Handles,
    is_root: bool,
}

/// Serves the mount whose end `fuse` is, until no process is left that has it.
///
/// `root`: the directory as it is outside of the mount. Errors: those of open(2) on it, and of the connection to the kernel.
pub fn serve(root: &Path, fuse: OwnedFd) -> io::Result<()> {
    let dir = std::fs::File::open(root)?;
    let nodes =
        Nodes::new(dir.into(), descriptors_max()).map_err(|error| io::Error::from_raw_os_error(error.code()))?;
    // SAFETY: geteuid has no preconditions.
    let is_root = unsafe { libc::geteuid() == 0 };
    let view = View { nodes, handles: Handles::default(), is_root };
    let mut config = Config::default();
    config.n_threads = Some(THREADS);
    Session::from_fd(view, fuse, SessionACL::All, config)?.run()
}

/// Takes a program's umask for what this thread makes next. Errors: unshare(2)'s, of which there are none but ENOMEM.
fn take_umask(umask: u32) -> Answer<()> {
    thread_local! { static IS_OWN: Cell<bool> = const { Cell::new(false) }; }
    if !IS_OWN.get() {
        // SAFETY: by value. From here on umask and working directory are this thread's alone.
        if unsafe { libc::unshare(libc::CLONE_FS) } != 0 {
            return Err(Errno::from(io::Error::last_os_error()));
        }
        IS_OWN.set(true);
    }
    // SAFETY: by value.
    unsafe { libc::umask(umask & 0o777) };
    Ok(())
}

fn descriptors_max() -> usize {
    // SAFETY: a buffer that the call fills.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
    }
}

impl View {
    fn add_file(&self, node: u64, file: OwnedFd) -> FileHandle {
        let file = Arc::new(file);
        let handle = self.handles.add(Handle::of_file(file.clone()));
        self.nodes.opened(node, handle.0, file);
        handle
    }

    fn close(&self, node: INodeNo, handle: FileHandle) {
        self.nodes.closed(node.0, handle.0);
        self.handles.close(handle);
    }

    fn entry(&self, parent: INodeNo, name: &CString) -> Answer<FileAttr> {
        self.nodes.look_up(parent.0, name).map(|status| attributes(&status))
    }

    /// Does `act` on a name in a directory.
    fn at<T>(
        &self,
        parent: INodeNo,
        name: &OsStr,
        act: impl FnOnce(&Arc<OwnedFd>, &CString) -> Answer<T>,
    ) -> Answer<T> {
        act(&self.nodes.directory(parent.0)?, &calls::name(name)?)
    }

    /// Does `act` on a node, wherever it is.
    fn on<T>(&self, node: INodeNo, act: impl FnOnce(Target<'_>) -> Answer<T>) -> Answer<T> {
        let (place, _) = self.nodes.find(node.0)?;
        act(place.target())
    }

    fn attributes_of(&self, node: INodeNo, handle: Option<FileHandle>) -> Answer<FileAttr> {
        if let Some(file) = handle.and_then(|handle| self.handles.file(handle).ok()) {
            let mut status = calls::stat(&file)?;
            status.st_ino = node.0;
            return Ok(attributes(&status));
        }
        self.nodes.find(node.0).map(|(_, status)| attributes(&status))
    }

    /// Does `make`, gives what it made to the program, and looks it up.
    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, umask): (u32, u32),
        make: impl FnOnce(&OwnedFd, &CString) -> Answer<()>,
    ) -> Answer<FileAttr> {
        take_umask(umask)?;
        self.at(parent, name, |dir, name| {
            make(dir, name)?;
            self.give(request, dir, name, mode)?;
            self.entry(parent, name)
        })
    }

    /// What a server of root's made belongs to the program that asked for it.
    fn give(&self, request: &Request, dir: &OwnedFd, name: &CString, mode: u32) -> Answer<()> {
        if self.is_root { give(request, dir, name, mode) } else { Ok(()) }
    }

    fn open_file(&self, request: &Request, node: INodeNo, flags: i32) -> Answer<FileHandle> {
        let (place, _) = self.nodes.find(node.0)?;
        let Place::Name(dir, name) = &place else {
            // By /proc/PID/fd, of a file that has no name any more.
            return self.open_again(node, flags);
        };
        let file = calls::open_at(dir, name, (flags & FLAGS) | libc::O_NOFOLLOW | libc::O_NONBLOCK, 0)?;
        if flags & libc::O_TRUNC != 0 && request.uid() != 0 {
            drop_privileges(Target::File(&file))?;
        }
        Ok(self.add_file(node.0, file))
    }

    fn open_again(&self, node: INodeNo, flags: i32) -> Answer<FileHandle> {
        let (place, _) = self.nodes.find(node.0)?;
        let Place::File(open) = &place else { return Err(Errno::ESTALE) };
        let file = calls::open_held(open, flags & FLAGS)?;
        Ok(self.add_file(node.0, file))
    }

    fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, umask): (u32, u32),
        flags: i32,
    ) -> Answer<(FileAttr, FileHandle)> {
        take_umask(umask)?;
        self.at(parent, name, |dir, name| {
            let how = (flags & FLAGS) | libc::O_NOFOLLOW | libc::O_NONBLOCK;
            // Asked for exclusively first: only what this request made is given to the program.
            let file = match calls::open_at(dir, name, how | libc::O_CREAT | libc::O_EXCL, mode & 0o7777) {
                Ok(file) => {
                    self.give(request, dir, name, mode)?;
                    file
                }
                Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => calls::open_at(dir, name, how, 0)?,
                Err(error) => return Err(error),
            };
            let attributes = self.entry(parent, name)?;
            let handle = self.add_file(attributes.ino.0, file);
            Ok((attributes, handle))
        })
    }

    fn change(&self, request: &Request, node: INodeNo, change: Change, handle: Option<FileHandle>) -> Answer<FileAttr> {
        let open = handle.and_then(|handle| self.handles.file(handle).ok());
        let (place, status) = self.nodes.find(node.0)?;
        // The library's `fchmodat` follows a link.
        if change.mode.is_some() && status.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return Err(Errno::EOPNOTSUPP);
        }
        change.apply(request, place.target(), open.as_deref())?;
        self.attributes_of(node, handle)
    }
}

impl Filesystem for View {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // An older kernel may lack some of these: matters of speed, and of access lists.
        let _ = config.set_max_write(TRANSFER_MAX);
        let _ = config.set_max_readahead(TRANSFER_MAX).or_else(|max| config.set_max_readahead(max));
        let _ = config.set_max_background(BACKGROUND_MAX);
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            // An open that cuts is one call, so that the library sees what it is.
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            // Else each write would first ask for the file's capabilities.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_DONT_MASK,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        if self.is_root {
            // A user's server has that user's rights; root's has all, so the kernel must check access lists, too.
            let _ = config.add_capabilities(InitFlags::FUSE_POSIX_ACL);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(calls::name(name).and_then(|name| self.entry(parent, &name)), KNOWN_FOR, reply);
    }

    fn forget(&self, _: &Request, node: INodeNo, lookups: u64) {
        self.nodes.forget(node.0, lookups);
    }

    fn getattr(&self, _: &Request, node: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(self.attributes_of(node, handle), KNOWN_FOR, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _changed_too: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, user, group, size, accessed, modified };
        reply_attributes(self.change(request, node, change, handle), KNOWN_FOR, reply);
    }

    fn readlink(&self, _: &Request, node: INodeNo, reply: ReplyData) {
        let answer = self.nodes.find(node.0).and_then(|(place, _)| match &place {
            Place::Name(dir, name) => calls::read_link(dir, name),
            Place::File(_) | Place::Directory(_) => Err(Errno::ESTALE),
        });
        reply_data(answer, reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let make = |dir: &OwnedFd, name: &CString| calls::make_node(dir, name, mode, device.into());
        reply_entry(self.make(request, parent, name, (mode, umask), make), KNOWN_FOR, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let make = |dir: &OwnedFd, name: &CString| calls::make_directory(dir, name, mode & 0o7777);
        // A directory's set-group-id bit is its parent's to give.
        reply_entry(self.make(request, parent, name, (0, umask), make), KNOWN_FOR, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let answer = self.at(parent, name, |dir, name| {
            calls::unlink_at(dir, name, 0)?;
            self.nodes.removed((parent.0, name.clone()));
            Ok(())
        });
        reply_empty(answer, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let answer = self.at(parent, name, |dir, name| {
            calls::unlink_at(dir, name, libc::AT_REMOVEDIR)?;
            self.nodes.removed((parent.0, name.clone()));
            Ok(())
        });
        reply_empty(answer, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let answer = calls::name(target.as_os_str()).and_then(|target| {
            self.make(request, parent, name, (0, 0), |dir, name| calls::make_link(dir, name, &target))
        });
        reply_entry(answer, KNOWN_FOR, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let answer = self.at(parent, name, |dir, name| {
            self.at(new_parent, new_name, |new_dir, new_name| {
                calls::rename((dir, name), (new_dir, new_name), flags.bits())?;
                let is_exchange = flags.bits() & libc::RENAME_EXCHANGE != 0;
                self.nodes.renamed((parent.0, name.clone()), (new_parent.0, new_name.clone()), is_exchange);
                Ok(())
            })
        });
        reply_empty(answer, reply);
    }

    fn link(&self, _: &Request, node: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let answer = self.at(new_parent, new_name, |new_dir, new_name| match self.nodes.find(node.0)?.0 {
            Place::Name(dir, name) => {
                calls::link((&*dir, &name), (&**new_dir, new_name))?;
                self.entry(new_parent, new_name)
            }
            Place::File(_) => Err(Errno::ENOENT),
            Place::Directory(_) => Err(Errno::EPERM),
        });
        reply_entry(answer, KNOWN_FOR, reply);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply_open(self.open_file(request, node, flags.0), FopenFlags::empty(), reply);
    }

    fn read(
        &self,
        _: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // A new megabyte for each request would cost as much as reading it. It begins with a page, where every processor reads fast.
        thread_local! { static BUFFER: RefCell<Option<MmapMut>> = const { RefCell::new(None) }; }
        BUFFER.with_borrow_mut(|lent| {
            if lent.as_ref().is_none_or(|buffer| buffer.len() < size as usize) {
                match MmapMut::map_anon(size.max(TRANSFER_MAX) as usize) {
                    Ok(buffer) => *lent = Some(buffer),
                    Err(_) => return reply.error(Errno::ENOMEM),
                }
            }
            let buffer = &mut lent.as_mut().expect("it was just made")[..size as usize];
            match self.handles.file(handle).and_then(|file| calls::read(&file, buffer, offset)) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(error) => reply.error(error),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let answer = self.handles.get(handle).and_then(|handle| {
            let Handle::File { file, is_written } = &*handle else { return Err(Errno::EISDIR) };
            is_written.store(true, Relaxed);
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                drop_privileges(Target::File(file))?;
            }
            // What the kernel writes back of a mapping has its place, by whatever descriptor it comes.
            let is_append = flags.0 & libc::O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
            if is_append { calls::append(file, data) } else { calls::write(file, data, offset) }
        });
        reply_written(answer, reply);
    }

    fn flush(&self, _: &Request, _node: INodeNo, handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        let answer = self.handles.get(handle).and_then(|handle| match &*handle {
            Handle::File { file, is_written } if is_written.load(Relaxed) => calls::close_a_copy(file),
            _ => Ok(()),
        });
        reply_empty(answer, reply);
    }

    fn release(
        &self,
        _: &Request,
        node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.close(node, handle);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _node: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply_empty(self.handles.file(handle).and_then(|file| calls::sync(&file, data_only)), reply);
    }

    fn opendir(&self, _: &Request, node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let dir = self.nodes.directory(node.0);
        let handle = dir.map(|dir| self.handles.add(Handle::of_directory(dir)));
        reply_open(handle, FopenFlags::empty(), reply);
    }

    fn readdir(&self, _: &Request, _node: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let listing = self.handles.get(handle).and_then(|handle| handle.listing(offset));
        match listing {
            Ok(names) => {
                for (at, entry) in names.iter().enumerate().skip(offset as usize) {
                    let name = OsStr::from_bytes(&entry.name);
                    if reply.add(INodeNo(entry.ino), at as u64 + 1, listed_type(entry.kind), name) {
                        break;
                    }
                }
                reply.ok()
            }
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _: &Request, node: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.close(node, handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _node: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        let answer = self.handles.get(handle).and_then(|handle| {
            let dir = calls::open_at(handle.directory()?, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
            calls::sync(&dir, data_only)
        });
        reply_empty(answer, reply);
    }

    fn statfs(&self, _: &Request, _node: INodeNo, reply: ReplyStatfs) {
        match self.nodes.directory(INodeNo::ROOT.0).and_then(|root| calls::stat_vfs(&root)) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        node: INodeNo,
        key: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = |key: CString| self.on(node, |target| target.set_xattr(&key, value, flags));
        reply_empty(calls::name(key).and_then(set), reply);
    }

    fn getxattr(&self, _: &Request, node: INodeNo, key: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(size, reply, |buffer| {
            let key = calls::name(key)?;
            self.on(node, |target| target.get_xattr(&key, buffer))
        });
    }

    fn listxattr(&self, _: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(size, reply, |buffer| self.on(node, |target| target.list_xattr(buffer)));
    }

    fn removexattr(&self, _: &Request, node: INodeNo, key: &OsStr, reply: ReplyEmpty) {
        let remove = |key: CString| self.on(node, |target| target.remove_xattr(&key));
        reply_empty(calls::name(key).and_then(remove), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(request, parent, name, (mode, umask), flags) {
            Ok((attributes, handle)) => {
                reply.created(&KNOWN_FOR, &attributes, Generation(0), handle, FopenFlags::empty())
            }
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.handles.file(handle).and_then(|file| calls::allocate(&file, mode, offset, length)), reply);
    }

    fn lseek(&self, _: &Request, _node: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.handles.file(handle).and_then(|file| calls::seek(&file, offset, whence)) {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        _new_node: INodeNo,
        new_handle: FileHandle,
        new_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let answer = self.handles.file(handle).and_then(|from| {
            let to = self.handles.file(new_handle)?;
            let count = length.min(TRANSFER_MAX.into()) as usize;
            calls::copy_range((&*from, offset), (&*to, new_offset), count)
        });
        reply_written(answer, reply);
    }
}
