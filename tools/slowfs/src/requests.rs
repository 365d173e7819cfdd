//! The requests that the kernel sends, each answered from the source.
//!
//! What is a decision lies in `passthrough`; here is one short method for each request, in the order of FUSE's own list.

use crate::attributes::attributes;
use crate::files::{Directory, Handle};
use crate::inodes::{errno, proc_path};
use crate::passthrough::{BACKGROUND_MAX, SlowFs, TRANSFER_MAX, read_fully, reply_empty, reply_xattr};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use rustix::fs::{self, AtFlags, FallocateFlags, Mode, OFlags, SeekFrom, XattrFlags};
use std::ffi::OsStr;
use std::path::Path;
use std::time::SystemTime;

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
        self.limits.metadata();
        let answer = self.inodes.get(parent).and_then(|parent| self.entry(&parent, name));
        self.reply_entry(answer, reply);
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.inodes.forget(ino.0, lookups);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        self.limits.metadata();
        self.reply_attributes(self.attributes_of(ino, handle), reply);
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
        self.limits.metadata();
        self.reply_attributes(self.change(request, ino, mode, uid, gid, size, (atime, mtime), handle), reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.limits.metadata();
        match self.inodes.get(ino).and_then(|node| fs::readlinkat(&*node, "", Vec::new()).map_err(errno)) {
            Ok(target) => reply.data(target.to_bytes()),
            Err(error) => reply.error(error),
        }
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
        let kind = fs::FileType::from_raw_mode(mode);
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        let answer = self.make(request, parent, name, Some(mode), |parent| {
            fs::mknodat(parent, name, kind, permissions, rdev as u64)
        });
        self.reply_entry(answer, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let answer = self
            .make(request, parent, name, None, |parent| fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o7777)));
        self.reply_entry(answer, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.limits.metadata();
        let parent = self.inodes.get(parent);
        reply_empty(parent.and_then(|parent| fs::unlinkat(&*parent, name, AtFlags::empty()).map_err(errno)), reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.limits.metadata();
        let parent = self.inodes.get(parent);
        reply_empty(parent.and_then(|parent| fs::unlinkat(&*parent, name, AtFlags::REMOVEDIR).map_err(errno)), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let answer = self.make(request, parent, name, None, |parent| fs::symlinkat(target, parent, name));
        self.reply_entry(answer, reply);
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
        self.limits.metadata();
        let flags = fs::RenameFlags::from_bits_retain(flags.bits());
        let answer = self.inodes.get(parent).and_then(|parent| {
            let new_parent = self.inodes.get(new_parent)?;
            fs::renameat_with(&*parent, name, &*new_parent, new_name, flags).map_err(errno)
        });
        reply_empty(answer, reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        self.limits.metadata();
        let answer = self.inodes.get(ino).and_then(|node| {
            let new_parent = self.inodes.get(new_parent)?;
            let from = proc_path(&*node);
            fs::linkat(fs::CWD, &from, &*new_parent, new_name, AtFlags::SYMLINK_FOLLOW).map_err(errno)?;
            self.entry(&new_parent, new_name)
        });
        self.reply_entry(answer, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.limits.metadata();
        match self.open_file(ino, flags.0) {
            Ok(handle) => reply.opened(handle, FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error),
        }
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
        self.limits.metadata();
        let answer = self.inodes.get(parent).and_then(|parent| {
            let exclusive = OFlags::from_bits_retain((flags & libc::O_EXCL) as u32);
            let how = self.source_flags(flags) | OFlags::CREATE | OFlags::NOFOLLOW | exclusive;
            // Asked for exclusively first: only what this request made is given to the caller.
            let permissions = Mode::from_raw_mode(mode & 0o7777);
            let file = match fs::openat(&*parent, name, how | OFlags::EXCL, permissions) {
                Ok(file) => {
                    self.give_to_caller(request, &parent, name, Some(mode))?;
                    file
                }
                Err(rustix::io::Errno::EXIST) if exclusive.is_empty() => {
                    fs::openat(&*parent, name, how - OFlags::CREATE, Mode::empty()).map_err(errno)?
                }
                Err(error) => return Err(errno(error)),
            };
            Ok((self.entry(&parent, name)?, self.handles.add(Handle::File(file))))
        });
        match answer {
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
        let answer = self.handles.get(handle).and_then(|handle| {
            let file = handle.file()?;
            self.limits.read(|| read_fully(file, &mut buffer, offset)).map_err(errno)
        });
        match answer {
            Ok(length) => reply.data(&buffer[..length]),
            Err(error) => reply.error(error),
        }
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
        let answer = self.handles.get(handle).and_then(|handle| {
            let file = handle.file()?;
            if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                self.drop_privilege_bits(&*self.inodes.get(ino)?)?;
            }
            self.limits.write(|| rustix::io::pwrite(file, data, offset)).map_err(errno)
        });
        match answer {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _: &Request, _ino: INodeNo, handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Closing a copy of the descriptor lets the source say what it has to say about a failed write.
        let answer =
            self.handles.get(handle).and_then(|handle| handle.file()?.try_clone().map(drop).map_err(Errno::from));
        reply_empty(answer, reply);
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
        self.limits.sync();
        let answer = self.handles.get(handle).and_then(|handle| {
            let file = handle.file()?;
            if data_only { fs::fdatasync(file) } else { fs::fsync(file) }.map_err(errno)
        });
        reply_empty(answer, reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match self.inodes.get(ino).and_then(|node| fs::openat(&*node, ".", flags, Mode::empty()).map_err(errno)) {
            Ok(descriptor) => {
                let directory = Directory { descriptor, entries: Default::default() };
                reply.opened(self.handles.add(Handle::Directory(directory)), FopenFlags::empty())
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdir(&self, _: &Request, _ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.limits.metadata();
        let listing = self.handles.get(handle).and_then(|handle| handle.directory()?.listing(offset, &self.inodes));
        match listing {
            Ok(entries) => {
                for (position, entry) in entries.iter().enumerate().skip(offset as usize) {
                    if reply.add(INodeNo(entry.ino), position as u64 + 1, entry.kind, &entry.name) {
                        break;
                    }
                }
                reply.ok()
            }
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        self.limits.metadata();
        let answer = self.handles.get(handle).and_then(|handle| {
            let parent = self.inodes.get(ino)?;
            let entries = handle.directory()?.listing(offset, &self.inodes)?;
            for (position, entry) in entries.iter().enumerate().skip(offset as usize) {
                let next = position as u64 + 1;
                let is_dot = entry.name == "." || entry.name == "..";
                let found = if is_dot {
                    fs::fstat(&*parent).map_err(errno)
                } else {
                    match self.inodes.look_up(&parent, &entry.name) {
                        Ok((stat, _)) => Ok(stat),
                        // Gone since the listing was made.
                        Err(_) => continue,
                    }
                }?;
                let attributes = attributes(&found, entry.ino);
                if reply.add(INodeNo(entry.ino), next, &entry.name, &self.caching.ttl, &attributes, Generation(0)) {
                    if !is_dot {
                        self.inodes.forget(self.inodes.shown(found.st_ino), 1);
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
        self.limits.sync();
        let answer =
            self.handles.get(handle).and_then(|handle| fs::fsync(&handle.directory()?.descriptor).map_err(errno));
        reply_empty(answer, reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        self.limits.metadata();
        match self.inodes.get(ino).and_then(|node| fs::fstatvfs(&*node).map_err(errno)) {
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
        self.limits.metadata();
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let answer =
            self.xattr_target(ino).and_then(|(_held, path)| fs::setxattr(path, name, value, flags).map_err(errno));
        reply_empty(answer, reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.limits.metadata();
        match self.xattr_target(ino) {
            Ok((_held, path)) => reply_xattr(size, reply, |buffer| fs::getxattr(&path, name, buffer)),
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.limits.metadata();
        match self.xattr_target(ino) {
            Ok((_held, path)) => reply_xattr(size, reply, |buffer| fs::listxattr(&path, buffer)),
            Err(error) => reply.error(error),
        }
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.limits.metadata();
        let answer = self.xattr_target(ino).and_then(|(_held, path)| fs::removexattr(path, name).map_err(errno));
        reply_empty(answer, reply);
    }

    fn access(&self, _: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        self.limits.metadata();
        let wanted = fs::Access::from_bits_retain(mask.bits() as u32);
        let answer = self.xattr_target(ino).and_then(|(_held, path)| fs::access(path, wanted).map_err(errno));
        reply_empty(answer, reply);
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
        self.limits.metadata();
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let answer = self
            .handles
            .get(handle)
            .and_then(|handle| fs::fallocate(handle.file()?, mode, offset, length).map_err(errno));
        reply_empty(answer, reply);
    }

    fn lseek(&self, _: &Request, _ino: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        self.limits.metadata();
        let answer = self.handles.get(handle).and_then(|handle| {
            let from = match whence {
                libc::SEEK_DATA => SeekFrom::Data(offset as u64),
                libc::SEEK_HOLE => SeekFrom::Hole(offset as u64),
                libc::SEEK_END => SeekFrom::End(offset),
                libc::SEEK_SET => SeekFrom::Start(offset as u64),
                _ => return Err(Errno::EINVAL),
            };
            fs::seek(handle.file()?, from).map_err(errno)
        });
        match answer {
            Ok(position) => reply.offset(position as i64),
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
        let answer = self.handles.get(handle).and_then(|from| {
            let to = self.handles.get(new_handle)?;
            let (from, to, length) = (from.file()?, to.file()?, length.min(TRANSFER_MAX as u64) as usize);
            let (mut offset, mut new_offset) = (offset, new_offset);
            let copy = || fs::copy_file_range(from, Some(&mut offset), to, Some(&mut new_offset), length);
            self.limits.write(copy).map_err(errno)
        });
        match answer {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(error),
        }
    }
}
