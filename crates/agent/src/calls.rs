//! The call socket: what programs ask for, one connection and one message each.
//!
//! A call may take as long as moving a file takes, so each has a thread. Who may call: this user's programs, and for
//! root's agent also those that have the index mapped and switched to another user.

use crate::agent::Agent;
use crate::shared::path::as_path;
use crate::shared::request::{FlushOptions, Scope};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use terrace_index::calls::{Call, CallKind, Looks, Reply};
use terrace_index::ring::NO_RECORD;
use terrace_index::{PATH_MAX, State};

const BACKLOG: i32 = 1024;
/// A call's thread only makes system calls, with one message on its stack.
const STACK_BYTES: usize = 256 << 10;

/// Programs may make files while those that are there are flushed: it is done again so often.
const SETTLE_TRIES: usize = 3;

pub fn listen(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let _ = std::fs::remove_file(path);
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Programs of root that switched to another user connect as that one.
    let mode = if rustix::process::geteuid().is_root() { 0o666 } else { 0o600 };
    rustix::fs::chmod(path, rustix::fs::Mode::from_raw_mode(mode))?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Accepts until the socket is shut down.
pub fn serve(agent: &Arc<Agent>, socket: &OwnedFd) {
    loop {
        let connection = match rustix::net::accept_with(socket, SocketFlags::CLOEXEC) {
            Ok(connection) => connection,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => continue,
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE | rustix::io::Errno::NOMEM) => {
                std::thread::sleep(std::time::Duration::from_millis(10));
                continue;
            }
            Err(_) => return,
        };
        let agent = agent.clone();
        let spawned = std::thread::Builder::new().name("call".into()).stack_size(STACK_BYTES).spawn(move || {
            if agent.may_call(connection.as_fd()) {
                agent.answer(&connection);
            }
        });
        if let Err(error) = spawned {
            eprintln!("terrace agent: can't start a thread for a call: {error}");
        }
    }
}

/// Whose message it is, as the kernel says.
struct Caller {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl Agent {
    fn may_call(&self, connection: BorrowedFd<'_>) -> bool {
        let Ok(peer) = rustix::net::sockopt::socket_peercred(connection) else { return false };
        let us = rustix::process::geteuid();
        if peer.uid == us {
            return true;
        }
        // Only who opened the index as root can be in a slot: the slot's pid is vouched for by the kernel here.
        let pid = peer.pid.as_raw_nonzero().get() as u32;
        us.is_root() && self.index.processes.iter().any(|slot| slot.pid.load(Acquire) == pid)
    }

    fn answer(&self, connection: &OwnedFd) {
        let Some((call, fd)) = receive(connection) else { return };
        let path = &call.path[..(call.path_len as usize).min(PATH_MAX)];
        let mut reply = Box::new(Reply { status: 0, record: call.record, path_len: 0, _pad: 0, path: [0; PATH_MAX] });
        let _in_hand = (call.kind == CallKind::Exchange as u32).then(|| self.exchanges.take_in_hand());
        let mut given = None;
        let Ok(peer) = rustix::net::sockopt::socket_peercred(connection) else { return };
        let caller =
            Caller { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), pid: peer.pid.as_raw_nonzero().get() as u32 };
        reply.status = match self.serve_call(&caller, &call, path, fd, &mut reply, &mut given) {
            Ok(()) => 0,
            Err(errno) => errno,
        };
        send(connection, &reply, given.as_ref().map(AsFd::as_fd));
    }

    fn serve_call(
        &self,
        caller: &Caller,
        call: &Call,
        path: &[u8],
        fd: Option<OwnedFd>,
        reply: &mut Reply,
        given: &mut Option<OwnedFd>,
    ) -> Result<(), i32> {
        let is = |kind: CallKind| call.kind == kind as u32;
        // Another node may have the root's file open at this moment: it would go on in one that has lost its name.
        if self.has_others() && is(CallKind::Replace) {
            return Err(libc::EBUSY);
        }
        if is(CallKind::Replace) {
            reply.record = self.replace(path)?;
            return Ok(());
        }
        if is(CallKind::MakeDirectory) {
            reply.record = self.prepare_directory(path, (caller.uid, caller.gid))?;
            return Ok(());
        }
        if is(CallKind::Cross) {
            let (from, to) = path.split_at_checked(call.size as usize).ok_or(libc::EINVAL)?;
            return self.cross(from, to);
        }
        if is(CallKind::LinkAcross) {
            let (from, to) = path.split_at_checked(call.size as usize).ok_or(libc::EINVAL)?;
            return self.link_across(from, to, caller.uid);
        }
        if is(CallKind::Bring) {
            let (text, met) = text_and_name(path);
            return self.peers.bring(text, met, caller.pid, u64::try_from(call.size).unwrap_or(0));
        }
        if is(CallKind::Look) {
            let (text, met) = text_and_name(path);
            let found = self.peers.look(text, met).ok_or(libc::EAGAIN)?;
            let looks = Looks {
                ino: found.ino,
                size: found.size,
                blocks: found.blocks,
                atime_ns: found.atime_ns,
                mtime_ns: found.mtime_ns,
                ctime_ns: found.ctime_ns,
                mode: found.mode,
                nlink: found.nlink,
                uid: found.uid,
                gid: found.gid,
                xattrs: found.xattrs,
                _pad: 0,
            };
            // SAFETY: plain numbers, at the beginning of a buffer that is longer.
            unsafe { std::ptr::write_unaligned(reply.path.as_mut_ptr().cast(), looks) };
            return Ok(());
        }
        if is(CallKind::Break) {
            self.peers.break_promises();
            return Ok(());
        }
        if is(CallKind::Settle) && call.record == NO_RECORD {
            return self.settle_below(path);
        }
        if is(CallKind::MakeRoom) && call.record == NO_RECORD {
            self.let_go_of_exchanged();
            return Ok(());
        }
        if is(CallKind::Grow) && call.record == NO_RECORD {
            reply.record = self.grow_unrecorded(&fd.ok_or(libc::EBADF)?, call.size)?;
            return Ok(());
        }
        let number = match &fd {
            Some(fd) => self.record_behind(fd.as_fd()).unwrap_or(call.record),
            None => call.record,
        };
        if self.index.record(number).is_none() {
            return Err(libc::EINVAL);
        }
        if fd.is_none() && call.serial != 0 && call.serial != self.serial(number) {
            return Err(libc::ESTALE);
        }
        reply.record = number;
        if is(CallKind::MakeRoom) {
            return self.make_room_for_names(number);
        }
        if is(CallKind::Grow) {
            match self.grow(number, &fd.ok_or(libc::EBADF)?, call.size) {
                0 => Ok(()),
                errno => Err(errno),
            }
        } else if is(CallKind::Exchange) {
            *given = Some(self.exchange(number, &fd.ok_or(libc::EBADF)?)?);
            Ok(())
        } else if is(CallKind::Settle) {
            self.settle(number)
        } else if is(CallKind::Promote) && self.has_others() {
            // The root's file is about to be written: who reads the replica reads that from now on.
            self.let_go_of(number);
            Err(libc::EBUSY)
        } else if is(CallKind::Promote) {
            self.promote(number, path)
        } else if is(CallKind::Carry) {
            self.carry_replica(number)
        } else if is(CallKind::PathOf) {
            let found = self.path_of(number).ok_or(libc::ENOENT)?;
            let len = found.len().min(PATH_MAX);
            reply.path[..len].copy_from_slice(&found[..len]);
            reply.path_len = len as u32;
            Ok(())
        } else if is(CallKind::OpenFor) {
            *given = Some(open_for(&fd.ok_or(libc::EBADF)?, call.size as i32, caller.uid, caller.gid)?);
            Ok(())
        } else {
            Err(libc::ENOSYS)
        }
    }

    /// Makes all files below a directory real ones, also while they are open: the directory is about to leave the root.
    fn settle_below(&self, directory: &[u8]) -> Result<(), i32> {
        let scope = Scope(vec![as_path(directory).into()]);
        let options = FlushOptions { all: true, end_of_run: false, settle_open: true };
        for _ in 0..SETTLE_TRIES {
            let outcome = self.flush(&scope, &options, &mut |_, _, _, _| true);
            let is_placed = self.catalogue().below(directory).any(|(_, number)| {
                matches!(self.record(number).state(), State::Current | State::Committing | State::Moving)
            });
            if !is_placed {
                return Ok(());
            }
            if !outcome.failures.is_empty() {
                break;
            }
        }
        Err(libc::EXDEV)
    }

    fn record_behind(&self, fd: BorrowedFd<'_>) -> Option<u32> {
        let stat = rustix::fs::fstat(fd).ok()?;
        self.index.record_of_object(stat.st_dev, stat.st_ino, stat.st_nlink as u64)
    }

    /// A record's name now: checked, and searched for if the check fails.
    pub fn path_of(&self, number: u32) -> Option<Vec<u8>> {
        self.drain_events();
        let serial = self.serial(number);
        match self.record(number).state() {
            State::Current | State::Committing | State::Moving | State::Directory => {
                self.located(number, serial).or_else(|| {
                    self.walk_tree();
                    self.located(number, serial)
                })
            }
            State::Clean | State::Durable => self.catalogue().path(number, serial),
            State::Moved => self.path_of(self.record(number).moved_to.load(Acquire).checked_sub(1)?),
            _ => None,
        }
    }
}

/// Of `Bring` and `Look`: the link's text, and the link's own path where it is known.
fn text_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
    (&path[..end], path.get(end + 1..).unwrap_or_default())
}

/// The calling thread acts as another user on file systems until this is dropped.
struct ActingAs;

impl ActingAs {
    fn user(uid: u32, gid: u32) -> ActingAs {
        // SAFETY: these change only how this thread is seen by file systems.
        unsafe {
            libc::setfsgid(gid);
            libc::setfsuid(uid);
        }
        ActingAs
    }
}

impl Drop for ActingAs {
    fn drop(&mut self) {
        // SAFETY: back to the process's own user.
        unsafe {
            libc::setfsuid(libc::geteuid());
            libc::setfsgid(libc::getegid());
        }
    }
}

/// Opens the file behind `fd` with the caller's own rights: the directory was in its way, the file's mode must not be passed by.
fn open_for(fd: &OwnedFd, flags: i32, uid: u32, gid: u32) -> Result<OwnedFd, i32> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = rustix::fs::OFlags::from_bits_retain(flags as u32) | rustix::fs::OFlags::CLOEXEC;
    let forbidden = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::EXCL | rustix::fs::OFlags::NOFOLLOW;
    let _acting = ActingAs::user(uid, gid);
    rustix::fs::open(&path, flags & !forbidden, rustix::fs::Mode::empty()).map_err(rustix::io::Errno::raw_os_error)
}

fn receive(connection: &OwnedFd) -> Option<(Box<Call>, Option<OwnedFd>)> {
    let mut call: Box<MaybeUninit<Call>> = Box::new(MaybeUninit::zeroed());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    // SAFETY: `Call` is plain old data of this length.
    let bytes = unsafe { std::slice::from_raw_parts_mut(call.as_mut_ptr().cast::<u8>(), size_of::<Call>()) };
    let got = loop {
        let result =
            rustix::net::recvmsg(connection, &mut [IoSliceMut::new(bytes)], &mut ancillary, RecvFlags::CMSG_CLOEXEC);
        match result {
            Err(rustix::io::Errno::INTR) => {}
            result => break result.ok()?.bytes,
        }
    };
    let mut fd = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            fd = fds.last();
        }
    }
    // SAFETY: zeroed, then filled; every bit pattern is a `Call`.
    (got == size_of::<Call>()).then(|| (unsafe { call.assume_init() }, fd))
}

fn send(connection: &OwnedFd, reply: &Reply, fd: Option<BorrowedFd<'_>>) {
    // SAFETY: `Reply` is plain old data without padding bytes that were never written.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const *reply).cast::<u8>(), size_of::<Reply>()) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<BorrowedFd<'_>> = fd.into_iter().collect();
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    // A program that was killed meanwhile needs no answer.
    let _ = rustix::net::sendmsg(connection, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
}
