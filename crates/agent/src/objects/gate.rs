//! Who has connected from elsewhere and has not said who he is yet: a *stranger*.
//!
//! ```text
//!  accept ─▶ stranger: one descriptor, a few hundred bytes ─▶ TLS, where it is spoken ─▶ Hello ─▶ a thread of his own
//!              └─ deadline, or newer strangers than there is room for ─▶ closed
//! ```
//!
//! One thread looks after all strangers, so whoever knows no token can take one descriptor at a time and no thread, and only so many
//! of them: idle connections cost nobody but each other.
//!
//! Invariant: of a stranger nothing is read but a frame that is no longer than a greeting can be, and nothing is allocated by what he claims.

use super::server::send;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_client::TlsSocket;
use terrace_core::objects::wire::{FRAME_BYTES, Frame, Request, Response, decode};
use terrace_core::objects::{Kind, ObjectError};

/// Longest token that is looked at.
pub const TOKEN_MAX: usize = 4096;
/// A greeting's message is a token, and a few bytes.
const GREETING_MAX: usize = TOKEN_MAX + 64;
/// Whoever connects has to have said who he is within so long, however he spreads it.
const GREETING: Duration = Duration::from_secs(10);
/// Strangers at a time, and which part of the process's descriptors they may have.
const STRANGERS_MAX: usize = 1024;
const DESCRIPTORS_PART: u64 = 8;
/// Connections that are accepted before the others are looked at again.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long accepting rests when it has failed: out of descriptors.
const REST: Duration = Duration::from_millis(10);
/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// A connection whose client knows the token.
pub enum Known {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TlsSocket>>),
}

struct Stranger {
    socket: TcpStream,
    from: IpAddr,
    since: Instant,
    tls: Option<Box<ServerConnection>>,
    heard: Vec<u8>,
    has_spoken: bool,
}

enum Next {
    Wait,
    Greeted,
    Refused(ObjectError),
    Gone,
}

/// Hands each connection that has shown the token to `known`, until the agent ends and the listener is shut down.
pub fn keep(
    has_ended: impl Fn() -> bool,
    listener: &TcpListener,
    token: &str,
    tls: Option<&Arc<ServerConfig>>,
    known: impl Fn(Known),
) -> Result<()> {
    listener.set_nonblocking(true)?;
    let mut strangers: Vec<Stranger> = vec![];
    loop {
        let (is_called, ready) = wait(listener, &strangers)?;
        if has_ended() {
            return Ok(());
        }
        // Those who have spoken come first: a greeting that has arrived is heard before newer strangers need its place.
        let mut at = strangers.len();
        while at > 0 {
            at -= 1;
            let is_late = strangers[at].since.elapsed() > GREETING;
            let next = match ready[at] {
                true => strangers[at].listen(token, tls).unwrap_or(Next::Gone),
                false => Next::Wait,
            };
            match next {
                Next::Wait if !is_late => {}
                Next::Wait | Next::Gone => drop(strangers.swap_remove(at)),
                Next::Refused(error) => strangers.swap_remove(at).refuse(error),
                Next::Greeted => {
                    if let Ok(connection) = strangers.swap_remove(at).known() {
                        known(connection);
                    }
                }
            }
        }
        if is_called && !accept(listener, &mut strangers) {
            std::thread::sleep(REST);
        }
    }
}

/// Until somebody calls, or one of the strangers says something or is late.
fn wait(listener: &TcpListener, strangers: &[Stranger]) -> Result<(bool, Vec<bool>)> {
    let mut looked: Vec<PollFd<'_>> = vec![PollFd::new(listener, PollFlags::IN)];
    looked.extend(strangers.iter().map(|stranger| PollFd::new(&stranger.socket, stranger.wanted())));
    let oldest = strangers.iter().map(|stranger| stranger.since).min();
    let left = oldest.map(|since| GREETING.saturating_sub(since.elapsed()) + Duration::from_millis(1));
    let timeout = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
    match poll(&mut looked, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mut ready = looked.iter().map(|looked| !looked.revents().is_empty());
    let is_called = ready.next().unwrap_or(false);
    Ok((is_called, ready.collect()))
}

/// False: nobody could be accepted now.
fn accept(listener: &TcpListener, strangers: &mut Vec<Stranger>) -> bool {
    for _ in 0..ACCEPTED_AT_ONCE {
        match listener.accept() {
            Ok((socket, from)) => {
                if socket.set_nonblocking(true).is_err() || socket.set_nodelay(true).is_err() {
                    continue;
                }
                let (from, since) = (from.ip(), Instant::now());
                strangers.push(Stranger { socket, from, since, tls: None, heard: vec![], has_spoken: false });
                if strangers.len() > room() {
                    send_away(strangers);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            // He has left already.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(_) => {
                // Out of descriptors: strangers give theirs first.
                send_away(strangers);
                return false;
            }
        }
    }
    true
}

fn room() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    STRANGERS_MAX.min((descriptors / DESCRIPTORS_PART) as usize).max(8)
}

/// One goes: from the address that has most, of those who have said nothing if there are any, the oldest.
fn send_away(strangers: &mut Vec<Stranger>) {
    let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
    strangers.iter().for_each(|stranger| *by_address.entry(stranger.from).or_default() += 1);
    let rank = |stranger: &Stranger| {
        let others = by_address.get(&stranger.from).copied().unwrap_or(0);
        (std::cmp::Reverse(others), stranger.has_spoken, stranger.since)
    };
    if let Some(at) = (0..strangers.len()).min_by_key(|&at| rank(&strangers[at])) {
        strangers.swap_remove(at);
    }
}

/// Takes the same time for every wrong token of one length.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

impl Stranger {
    fn wanted(&self) -> PollFlags {
        let is_telling = self.tls.as_ref().is_some_and(|tls| tls.wants_write());
        if is_telling { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    }

    /// What has arrived since.
    fn listen(&mut self, token: &str, tls: Option<&Arc<ServerConfig>>) -> Result<Next> {
        if let (Some(config), None) = (tls, &self.tls) {
            let mut first = [0];
            match self.socket.peek(&mut first) {
                Ok(0) => return Ok(Next::Gone),
                Ok(_) if first[0] != HANDSHAKE => {
                    let refused = ObjectError::new(Kind::Denied, "this agent speaks TLS only")
                        .hint("connect to tls://, with the certificate's fingerprint");
                    return Ok(Next::Refused(refused));
                }
                Ok(_) => {
                    self.tls = Some(Box::new(ServerConnection::new(config.clone()).map_err(Error::other)?));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) => return Err(error),
            }
        }
        self.has_spoken = true;
        let wrong = || ObjectError::new(Kind::Denied, "the token is wrong").hint("TERRACE_TOKEN_FILE names its file");
        loop {
            let wanted = match self.heard.first_chunk::<FRAME_BYTES>() {
                None => FRAME_BYTES,
                Some(head) => match Frame::decode(head) {
                    Ok(Frame { message_bytes, payload_bytes: 0 }) if message_bytes as usize <= GREETING_MAX => {
                        FRAME_BYTES + message_bytes as usize
                    }
                    _ => return Ok(Next::Refused(wrong())),
                },
            };
            if wanted == self.heard.len() && wanted > FRAME_BYTES {
                return Ok(match decode(&self.heard[FRAME_BYTES..]) {
                    Ok(Request::Hello { token: given }) if is_same(&given, token) => Next::Greeted,
                    _ => Next::Refused(wrong()),
                });
            }
            if wanted == self.heard.len() {
                return Ok(Next::Refused(wrong()));
            }
            let mut piece = vec![0; wanted - self.heard.len()];
            match self.read(&mut piece) {
                Ok(0) => return Ok(Next::Refused(wrong())),
                Ok(count) => self.heard.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Wait),
                Err(error) => return Err(error),
            }
        }
    }

    /// No more than asked for: what follows the greeting is left where it is.
    fn read(&mut self, piece: &mut [u8]) -> Result<usize> {
        let Some(tls) = &mut self.tls else { return self.socket.read(piece) };
        loop {
            while tls.wants_write() {
                match tls.write_tls(&mut self.socket) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            match tls.reader().read(piece) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            if let Err(error) = tls.process_new_packets() {
                // An alert says why.
                let _ = tls.write_tls(&mut self.socket);
                return Err(Error::new(ErrorKind::InvalidData, error));
            }
        }
    }

    /// He is told if that costs no waiting.
    fn refuse(self, error: ObjectError) {
        let Stranger { mut socket, tls, .. } = self;
        let refusal = Response::Failed(error);
        let _ = match tls {
            Some(tls) if !tls.is_handshaking() => send(&mut StreamOwned::new(*tls, socket), &refusal, &[]),
            Some(_) => Ok(()),
            None => send(&mut socket, &refusal, &[]).and_then(|()| socket.flush()),
        };
    }

    fn known(self) -> Result<Known> {
        self.socket.set_nonblocking(false)?;
        Ok(match self.tls {
            Some(tls) => Known::Tls(Box::new(StreamOwned::new(*tls, TlsSocket::new(self.socket)))),
            None => Known::Plain(self.socket),
        })
    }
}
