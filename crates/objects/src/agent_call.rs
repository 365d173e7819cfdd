//! The agent's call socket: the rare things about placed files that need it. One connection and one message each, as the
//! preload library makes them.

use crate::failure::system;
use crate::place::{Place, sleep_us};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering::*;
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_index::PATH_MAX;
use terrace_index::calls::{Call, CallKind, Reply};
use terrace_index::ring::NO_RECORD;

/// An agent that died is restarted by who started it; a call waits for it so long.
const PATIENCE_MS: u64 = 15_000;
const RETRY_MS: u64 = 10;

/// What the call is about.
#[derive(Clone, Copy)]
pub enum About<'a> {
    Record(u32),
    /// With its name in the root.
    Named(u32, &'a Path),
    Descriptor(u32, BorrowedFd<'a>),
}

/// The errno that the agent answers with (0: done), and a descriptor where the kind has one.
pub fn call(place: &Place, kind: CallKind, about: About<'_>, size: i64) -> Result<(i32, Option<OwnedFd>)> {
    let mut waited = 0;
    loop {
        match try_call(place, kind, about, size) {
            Ok(answer) => return Ok(answer),
            Err(_) if waited < PATIENCE_MS => {
                sleep_us(RETRY_MS * 1000);
                waited += RETRY_MS;
            }
            Err(errno) => {
                let root = place.root().display();
                let reason =
                    system("reach", Path::new(OsStr::from_bytes(place.index().header.call_socket.get())), errno);
                return Err(ObjectError::new(Kind::NoAgent, format!("the agent of {root} does not answer: {reason}"))
                    .hint(format!("start one: terrace serve --root {root}")));
            }
        }
    }
}

fn try_call(
    place: &Place,
    kind: CallKind,
    about: About<'_>,
    size: i64,
) -> std::result::Result<(i32, Option<OwnedFd>), Errno> {
    let index = place.index();
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(OsStr::from_bytes(index.header.call_socket.get()))?;
    rustix::net::connect(&socket, &address)?;

    // SAFETY: plain integers and bytes: zero is a value of each.
    let mut message: Box<Call> = unsafe { Box::new_zeroed().assume_init() };
    message.kind = kind as u32;
    message.record = NO_RECORD;
    message.size = size;
    let mut fds: Vec<BorrowedFd<'_>> = vec![];
    match about {
        About::Record(record) => message.record = record,
        About::Descriptor(record, fd) => {
            message.record = record;
            fds.push(fd);
        }
        About::Named(record, path) => {
            message.record = record;
            let path = path.as_os_str().as_bytes();
            let len = path.len().min(PATH_MAX);
            message.path[..len].copy_from_slice(&path[..len]);
            message.path_len = len as u32;
        }
    }
    if let Some(record) = index.record(message.record) {
        message.serial = record.serial.load(Acquire);
    }
    // SAFETY: `Call` is plain old data, zeroed when it was made, so its padding has values as well.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const *message).cast::<u8>(), size_of::<Call>()) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    }
    rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;

    // SAFETY: as above.
    let mut reply: Box<Reply> = unsafe { Box::new_zeroed().assume_init() };
    // SAFETY: every bit pattern is a `Reply`.
    let bytes = unsafe { std::slice::from_raw_parts_mut((&raw mut *reply).cast::<u8>(), size_of::<Reply>()) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let vectors = &mut [IoSliceMut::new(bytes)];
        match rustix::net::recvmsg(&socket, vectors, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            result => break result?.bytes,
        }
    };
    if got != size_of::<Reply>() {
        return Err(Errno::CONNRESET);
    }
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((reply.status, received))
}
