//! The requests that the kernel sends, each answered from the source.
//!
//! What is a decision lies in `passthrough`; here is one short method for each request, in the order of FUSE's own list.

use crate::passthrough::{BACKGROUND_MAX, SlowFs, TRANSFER_MAX};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use terrace_passthrough::{
    Change, Handle, Target, attributes, calls, drop_privileges, listed_type, reply_attributes, reply_data, reply_empty,
    reply_entry, reply_open, reply_written, reply_xattr,
};

impl Filesystem for SlowFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel may lack any of these; each is a matter of speed, except write-back, which was asked for.
        let _ = config.set_max_write(TRANSFER_MAX);
        let _ = config.set_max_readahead(TRANSFER_MAX).or_else(|max| config.set_max_readahead(max));
        let _ = config.set_max_background(BACKGROUND_MAX);
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_ASYNC_DIO,
            // A link's text never changes, and clients of parallel file systems keep it.
            InitFlags::FUSE_CACHE_SYMLINKS,
            // Else each write would first ask for the file's capabilities.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        if self.caching.write_back {
            config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE).map_err(|_| {
                std::io::Error::other("the kernel has no FUSE write-back cache; leave out --write-back")
            })?;
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let answer = self.at("lookup", parent, name, |parent, name| self.entry(parent, name));
        reply_entry(answer, self.caching.ttl, reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.inodes.forget(ino.0, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        self.limits.metadata("getattr");
        reply_attributes(self.attributes_of(ino, handle), self.caching.ttl, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, user: uid, group: gid, size, accessed: atime, modified: mtime };
        reply_attributes(self.change(request, ino, change, handle), self.caching.ttl, reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.limits.metadata("readlink");
        reply_data(self.inodes.get(ino).and_then(|node| calls::read_link(&node, c"")), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let make = |parent: &OwnedFd, name: &CString| calls::make_node(parent, name, mode, rdev.into());
        reply_entry(self.make("mknod", request, parent, name, mode, make), self.caching.ttl, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let make = |parent: &OwnedFd, name: &CString| calls::make_directory(parent, name, mode & 0o7777);
        // A directory's set-group-id bit is its parent's to give.
        reply_entry(self.make("mkdir", request, parent, name, 0, make), self.caching.ttl, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.at("unlink", parent, name, |parent, name| calls::unlink_at(parent, name, 0)), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let answer = self.at("rmdir", parent, name, |parent, name| calls::unlink_at(parent, name, libc::AT_REMOVEDIR));
        reply_empty(answer, reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let answer = calls::name(target.as_os_str()).and_then(|target| {
            self.make("symlink", request, parent, name, 0, |parent, name| calls::make_link(parent, name, &target))
        });
        reply_entry(answer, self.caching.ttl, reply);
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
        let answer = self.at("rename", parent, name, |parent, name| {
            let (new_parent, new_name) = (self.inodes.get(new_parent)?, calls::name(new_name)?);
            calls::rename((parent, name), (&*new_parent, &new_name), flags.bits())
        });
        reply_empty(answer, reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let answer = self.at("link", new_parent, new_name, |new_parent, new_name| {
            calls::link_held(&*self.inodes.get(ino)?, (new_parent, new_name))?;
            self.entry(new_parent, new_name)
        });
        reply_entry(answer, self.caching.ttl, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.limits.metadata("open");
        reply_open(self.open_file(ino, flags.0), FopenFlags::FOPEN_KEEP_CACHE, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(request, parent, name, mode, flags) {
            Ok((attributes, handle)) => {
                reply.created(&self.caching.ttl, &attributes, Generation(0), handle, FopenFlags::FOPEN_KEEP_CACHE)
            }
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; size as usize];
        let answer = self.handles.file(handle).and_then(|file| {
            let length = self.limits.read(|| calls::read(&file, &mut buffer, offset))?;
            buffer.truncate(length);
            Ok(buffer)
        });
        reply_data(answer, reply);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let answer = self.handles.file(handle).and_then(|file| {
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                drop_privileges(Target::Held(&*self.inodes.get(ino)?))?;
            }
            self.limits.write(|| calls::write(&file, data, offset))
        });
        reply_written(answer, reply);
    }

    fn flush(&self, _: &Request, _ino: INodeNo, handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply_empty(self.handles.file(handle).and_then(|file| calls::close_a_copy(&file)), reply);
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.handles.close(handle);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _ino: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.limits.sync("fsync");
        reply_empty(self.handles.file(handle).and_then(|file| calls::sync(&file, data_only)), reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let open = |node: Arc<OwnedFd>| calls::open_at(&node, c".", libc::O_RDONLY | libc::O_DIRECTORY, 0);
        let dir = self.inodes.get(ino).and_then(open);
        let handle = dir.map(|dir| self.handles.add(Handle::of_directory(Arc::new(dir))));
        reply_open(handle, FopenFlags::empty(), reply);
    }

    fn readdir(&self, _: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.limits.metadata("readdir");
        match self.handles.get(handle).and_then(|handle| handle.listing(offset)) {
            Ok(names) => {
                for (at, entry) in names.iter().enumerate().skip(offset as usize) {
                    let (ino, name) = (INodeNo(self.inodes.shown(entry.ino)), OsStr::from_bytes(&entry.name));
                    if reply.add(ino, at as u64 + 1, listed_type(entry.kind), name) {
                        break;
                    }
                }
                reply.ok()
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.limits.metadata("readdirplus");
        let answer = self.handles.get(handle).and_then(|handle| {
            let parent = self.inodes.get(ino)?;
            let names = handle.listing(offset)?;
            for (at, entry) in names.iter().enumerate().skip(offset as usize) {
                let shown = self.inodes.shown(entry.ino);
                let is_dot = entry.name == b"." || entry.name == b"..";
                let name = OsStr::from_bytes(&entry.name);
                let mut found = if is_dot {
                    calls::stat(&parent)?
                } else {
                    match calls::name(name).and_then(|name| self.inodes.look_up(&parent, &name)) {
                        Ok(stat) => stat,
                        // Gone since the listing was made.
                        Err(_) => continue,
                    }
                };
                let looked_up = found.st_ino;
                found.st_ino = shown;
                let attributes = attributes(&found);
                if reply.add(INodeNo(shown), at as u64 + 1, name, &self.caching.ttl, &attributes, Generation(0)) {
                    if !is_dot {
                        self.inodes.forget(looked_up, 1);
                    }
                    break;
                }
            }
            Ok(())
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _: &Request, _ino: INodeNo, handle: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        self.handles.close(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _ino: INodeNo, handle: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        self.limits.sync("fsyncdir");
        let answer = self.handles.get(handle).and_then(|handle| calls::sync(handle.directory()?, false));
        reply_empty(answer, reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.limits.metadata("statfs");
        match self.inodes.get(ino).and_then(|node| calls::stat_vfs(&node)) {
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
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let set = |key: CString| self.on("setxattr", ino, |target| target.set_xattr(&key, value, flags));
        reply_empty(calls::name(name).and_then(set), reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(size, reply, |buffer| {
            let key = calls::name(name)?;
            self.on("getxattr", ino, |target| target.get_xattr(&key, buffer))
        });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(size, reply, |buffer| self.on("listxattr", ino, |target| target.list_xattr(buffer)));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = |key: CString| self.on("removexattr", ino, |target| target.remove_xattr(&key));
        reply_empty(calls::name(name).and_then(remove), reply);
    }

    fn access(&self, _: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        reply_empty(self.on("access", ino, |target| target.access(mask.bits())), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.limits.metadata("fallocate");
        reply_empty(self.handles.file(handle).and_then(|file| calls::allocate(&file, mode, offset, length)), reply);
    }

    fn lseek(&self, _: &Request, _ino: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.limits.metadata("lseek");
        match self.handles.file(handle).and_then(|file| calls::seek(&file, offset, whence)) {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        _new_ino: INodeNo,
        new_handle: FileHandle,
        new_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let answer = self.handles.file(handle).and_then(|from| {
            let to = self.handles.file(new_handle)?;
            let count = length.min(TRANSFER_MAX.into()) as usize;
            self.limits.write(|| calls::copy_range((&*from, offset), (&*to, new_offset), count))
        });
        reply_written(answer, reply);
    }
}
