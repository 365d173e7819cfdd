//! A message to the agent, for the rare things that need one. One connection for each: no state, nothing to inherit over fork.

use crate::scratch::Scratch;
use crate::{gate, process};
use core::mem::{size_of, zeroed};
use core::sync::atomic::Ordering::*;
use terrace_index::Index;
use terrace_index::calls::{Call, CallKind, PROMISED_MARGIN_MS, PROMISED_MS, Reply};
use terrace_index::ring::NO_RECORD;

/// An agent that died is restarted by `terrace run`; a call waits for it this long.
const PATIENCE_MS: usize = 15_000;

pub struct Request<'a> {
    pub kind: CallKind,
    pub record: u32,
    pub size: i64,
    pub path: &'a [u8],
    pub fd: i32,
}

/// What came back: an errno or 0, and a descriptor where the kind has one.
pub struct Answer {
    pub status: i32,
    pub fd: i32,
    reply: Scratch,
}

impl Answer {
    /// Whole if `status` is 0.
    pub fn reply(&self) -> *const Reply {
        self.reply.as_ptr() as *const Reply
    }
}

#[repr(C, align(8))]
struct Control([u8; 64]);

/// EIO when there is no agent within the patience.
pub fn call(index: Index, request: &Request) -> Answer {
    crate::caller::about_to_wait();
    let mut answer = Answer { status: libc::EIO, fd: -1, reply: Scratch::new() };
    for attempt in 0..PATIENCE_MS / 10 {
        match try_call(index, request, &mut answer, None) {
            Ok(()) => return answer,
            // This program has other rights than the agent's programs: it may not even reach the socket.
            Err(errno) if errno == -(libc::EACCES as isize) => {
                answer.status = libc::EACCES;
                return answer;
            }
            Err(_) if attempt == 0 => process::sleep_us(1000),
            Err(_) => process::sleep_us(10_000),
        }
    }
    answer
}

/// An error is the kernel's, of what was tried last. `most_ms`: an answer that does not come for so long is one.
fn try_call(index: Index, request: &Request, answer: &mut Answer, most_ms: Option<i64>) -> Result<(), isize> {
    // The agent knows a program of another user by the slot that it has.
    process::slot(index);
    // SAFETY: system calls on structures of this frame.
    unsafe {
        let socket = gate::call3(
            libc::SYS_socket,
            libc::AF_UNIX as usize,
            (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as usize,
            0,
        );
        if socket < 0 {
            return Err(socket);
        }
        if let Some(most) = most_ms {
            let most = libc::timeval { tv_sec: most / 1000, tv_usec: most % 1000 * 1000 };
            gate::call5(
                libc::SYS_setsockopt,
                socket as usize,
                libc::SOL_SOCKET as usize,
                libc::SO_RCVTIMEO as usize,
                &raw const most as usize,
                size_of::<libc::timeval>(),
            );
        }
        let result = exchange_message(index, request, answer, socket as usize);
        gate::call1(libc::SYS_close, socket as usize);
        result
    }
}

unsafe fn exchange_message(index: Index, request: &Request, answer: &mut Answer, socket: usize) -> Result<(), isize> {
    // SAFETY: as in `try_call`.
    unsafe {
        let mut address: libc::sockaddr_un = zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        let path = index.header.call_socket.get();
        if path.len() >= address.sun_path.len() {
            return Err(-(libc::EIO as isize));
        }
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = *from as i8;
        }
        let connected =
            gate::call3(libc::SYS_connect, socket, &raw const address as usize, size_of::<libc::sockaddr_un>());
        if connected < 0 {
            return Err(connected);
        }
        let mut call = Scratch::new();
        let body = call.as_mut_ptr() as *mut Call;
        (*body).kind = request.kind as u32;
        (*body).record = request.record;
        (*body).serial = match index.record(request.record) {
            Some(record) => record.serial.load(Acquire),
            None => 0,
        };
        (*body).size = request.size;
        (*body).path_len = request.path.len() as u32;
        (*body)._pad = 0;
        let paths = &raw mut (*body).path as *mut u8;
        core::ptr::copy_nonoverlapping(request.path.as_ptr(), paths, request.path.len().min(terrace_index::PATH_MAX));
        core::ptr::write_bytes(paths.add(request.path.len()), 0, terrace_index::PATH_MAX - request.path.len());

        let mut control = Control([0; 64]);
        let mut body_vector = [libc::iovec { iov_base: body as *mut _, iov_len: size_of::<Call>() }];
        let mut message: libc::msghdr = zeroed();
        message.msg_iov = body_vector.as_mut_ptr();
        message.msg_iovlen = 1;
        if request.fd >= 0 {
            // A control message of one descriptor: cmsghdr (16 bytes) and an int, padded to 24.
            let header = &raw mut control as *mut libc::cmsghdr;
            (*header).cmsg_len = 20;
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            *((&raw mut control as *mut u8).add(16) as *mut i32) = request.fd;
            message.msg_control = &raw mut control as *mut _;
            message.msg_controllen = 24;
        }
        if gate::call3(libc::SYS_sendmsg, socket, &raw const message as usize, libc::MSG_NOSIGNAL as usize) < 0 {
            return Err(-(libc::EIO as isize));
        }
        let mut vector = [libc::iovec { iov_base: answer.reply.as_mut_ptr() as *mut _, iov_len: size_of::<Reply>() }];
        message.msg_iov = vector.as_mut_ptr();
        control = Control([0; 64]);
        message.msg_control = &raw mut control as *mut _;
        message.msg_controllen = 64;
        let got = loop {
            let got =
                gate::call3(libc::SYS_recvmsg, socket, &raw mut message as usize, libc::MSG_CMSG_CLOEXEC as usize);
            if got != -(libc::EINTR as isize) {
                break got;
            }
        };
        if got != size_of::<Reply>() as isize {
            return Err(-(libc::EIO as isize));
        }
        let header = &raw const control as *const libc::cmsghdr;
        if message.msg_controllen >= 20 && (*header).cmsg_type == libc::SCM_RIGHTS {
            answer.fd = *((&raw const control as *const u8).add(16) as *const i32);
        }
        answer.status = (*answer.reply()).status;
        Ok(())
    }
}

/// Asks the agent to make the record's file a real one in the root. 0, or an errno.
pub fn materialise(index: Index, record: u32) -> i32 {
    call(index, &Request { kind: CallKind::Settle, record, size: 0, path: b"", fd: -1 }).status
}

/// Tells the agent that attributes of the record's replica changed: the root's file gets them. What can't be done now is done at the
/// replica's eviction.
pub fn carry(index: Index, record: u32) {
    call(index, &Request { kind: CallKind::Carry, record, size: 0, path: b"", fd: -1 });
}

/// Before a program hears that it has changed a file, or may write it: no other node goes on with what it was told before. One that is told
/// anew from here on sees the change, or the open file.
#[inline]
pub fn call_back(index: Index) {
    // The agent marks, and then looks at the file; the change was before this.
    core::sync::atomic::fence(SeqCst);
    if index.header.promised.load(SeqCst) != 0 {
        break_promises(index);
    }
}

/// A call on a file's attributes, as the kernel returns it: if it has changed them, the program hears of it when others have.
pub fn changed(result: isize) -> isize {
    if result == 0
        && let Some(index) = process::index()
    {
        call_back(index);
    }
    result
}

/// Nobody relies on anything after this time, whether the agent has answered or not.
#[cold]
fn break_promises(index: Index) {
    const MOST_MS: i64 = (PROMISED_MS + PROMISED_MARGIN_MS) as i64;
    crate::caller::about_to_wait();
    let request = Request { kind: CallKind::Break, record: NO_RECORD, size: 0, path: b"", fd: -1 };
    let mut answer = Answer { status: libc::EIO, fd: -1, reply: Scratch::new() };
    let end = now_ms() + MOST_MS;
    let mut rest = MOST_MS;
    while rest > 0 && try_call(index, &request, &mut answer, Some(rest)).is_err() {
        process::sleep_us(10_000);
        rest = end - now_ms();
    }
}

fn now_ms() -> i64 {
    // SAFETY: a zeroed time is valid.
    unsafe {
        let mut now: libc::timespec = zeroed();
        gate::call2(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC as usize, &raw mut now as usize);
        now.tv_sec * 1000 + now.tv_nsec / 1_000_000
    }
}

/// Asks the agent to make all placed files below a directory real ones. 0, or an errno.
pub fn materialise_below(index: Index, directory: &[u8]) -> i32 {
    call(index, &Request { kind: CallKind::Settle, record: NO_RECORD, size: 0, path: directory, fd: -1 }).status
}
