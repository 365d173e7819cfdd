//! Connections to the agent, for the rare things that need it. Each request takes one from the pool, or makes one.
//!
//! An agent that was killed is restarted by who started it: a request waits for that, connects again and is sent again
//! (all requests may be done twice).

use crate::fabric::{self, Cells, Fabric};
use crate::tls::{self, TlsStream};
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use terrace_core::objects::wire::{FRAME_BYTES, Frame, Request, Response, There, decode, encode};
use terrace_core::objects::{Kind, ObjectError, Result, TagValue};
use terrace_objects::array::{ChunkSource, Services};
use terrace_objects::fork_generation;

/// An agent that does not come back within so long is not being restarted.
const PATIENCE: Duration = Duration::from_secs(20);
const RETRY: Duration = Duration::from_millis(10);
/// Most answers that wait in their connections for somebody to need them.
const BEGUN_MAX: usize = 8;

/// Where the agent listens.
#[derive(Clone, Debug)]
pub enum Address {
    Socket(PathBuf),
    Tcp { address: String, token: String, security: Security },
}

/// What keeps others from reading along.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Security {
    /// Nothing; for this machine's loopback.
    Loopback,
    /// Nothing, and the user has said so: a network that nobody else is on.
    Plain,
    /// TLS with the certificate that has this fingerprint.
    Tls(String),
}

/// One conversation with an agent.
pub struct Stream {
    line: Line,
    pub fabric: Fabric,
}

enum Line {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    /// The socket below; `None`: the agent is on this node.
    pub fn socket(&self) -> Option<&TcpStream> {
        match &self.line {
            Line::Unix(_) => None,
            Line::Tcp(stream) => Some(stream),
            Line::Tls(stream) => Some(stream.sock.stream()),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match &mut self.line {
            Line::Unix(stream) => stream.read(buffer),
            Line::Tcp(stream) => stream.read(buffer),
            Line::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match &mut self.line {
            Line::Unix(stream) => stream.write(bytes),
            Line::Tcp(stream) => stream.write(bytes),
            Line::Tls(stream) => stream.write(bytes),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        match &mut self.line {
            Line::Tls(stream) => stream.flush(),
            _ => Ok(()),
        }
    }
}

pub struct Agent {
    root: PathBuf,
    address: Address,
    pool: Mutex<Vec<Stream>>,
    forks: AtomicU32,
    /// A fabric has failed: cells go over the connection.
    without_fabric: AtomicBool,
    /// As many as are begun, and one.
    begun: Arc<()>,
}

/// A request that was sent, and whose answer was not yet received.
pub struct Begun {
    stream: Option<Stream>,
    forks: u32,
    _turn: Arc<()>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // As in `take`.
        if self.forks != fork_generation()
            && let Some(stream) = self.stream.take()
        {
            std::mem::forget(stream.fabric);
        }
    }
}

impl Agent {
    pub fn new(root: &Path, address: Address) -> Agent {
        Agent {
            root: root.into(),
            address,
            pool: Mutex::default(),
            forks: AtomicU32::new(fork_generation()),
            without_fabric: AtomicBool::new(false),
            begun: Arc::default(),
        }
    }

    /// ADDRESS:PORT, where it is reached by that.
    pub fn address(&self) -> Option<&str> {
        match &self.address {
            Address::Tcp { address, .. } => Some(address),
            Address::Socket(_) => None,
        }
    }

    /// An agent elsewhere, by its address; learns its root.
    pub fn elsewhere(address: &str, token: String, security: Security) -> Result<Agent> {
        check_security(address, &security)?;
        let mut agent = Agent::new(Path::new("/"), Address::Tcp { address: address.into(), token, security });
        match agent.ask(&Request::Root)?.0 {
            Response::Root { path } => agent.root = path.into(),
            other => return Err(unexpected(&other)),
        }
        Ok(agent)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn connect(&self) -> std::io::Result<(Stream, Response)> {
        match &self.address {
            Address::Socket(path) => {
                let mut stream = Stream { line: Line::Unix(UnixStream::connect(path)?), fabric: Fabric::Off };
                let (greeting, _) = exchange(&mut stream, &Request::Hello { token: String::new() }, &[])?;
                Ok((stream, greeting))
            }
            Address::Tcp { address, .. } => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                greeted(stream, &self.address)
            }
        }
    }

    /// A connection that is nobody else's.
    pub fn take(&self) -> std::io::Result<Stream> {
        let mut pool = self.pool.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if self.forks.swap(fork_generation(), AcqRel) != fork_generation() {
            // A connection is one conversation: the parent goes on with these, and with their endpoints.
            pool.drain(..).for_each(|stream| std::mem::forget(stream.fabric));
        }
        if let Some(stream) = pool.pop() {
            return Ok(stream);
        }
        drop(pool);
        match self.connect()? {
            (_, Response::Failed(refused)) => {
                Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, refused.message))
            }
            (stream, _) => Ok(stream),
        }
    }

    /// The agent's answer, with its payload; its refusals are errors.
    pub fn ask(&self, request: &Request) -> Result<(Response, Vec<u8>)> {
        self.ask_with(request, &[])
    }

    pub fn ask_with(&self, request: &Request, payload: &[u8]) -> Result<(Response, Vec<u8>)> {
        self.converse(|stream| exchange(stream, request, payload))
    }

    /// Sends a request whose answer is fetched later, by `end`. `None`: not now; it can be asked for when it is needed.
    pub fn begin(&self, request: &Request) -> Option<Begun> {
        let turn = self.begun.clone();
        if Arc::strong_count(&turn) > BEGUN_MAX + 1 {
            return None;
        }
        let mut stream = self.take().ok()?;
        send(&mut stream, request, &[]).ok()?;
        Some(Begun { stream: Some(stream), forks: fork_generation(), _turn: turn })
    }

    /// Says what is not answered, if a connection is there: nothing depends on it.
    pub fn tell(&self, request: &Request) {
        let pooled = self.pool.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        if let Some(mut stream) = pooled
            && send(&mut stream, request, &[]).is_ok()
        {
            self.give(stream);
        }
    }

    /// The answer to what was begun; `None`: it is to be asked for again.
    pub fn end(&self, mut begun: Begun) -> Option<(Response, Vec<u8>)> {
        // The conversation of a parent is not its child's.
        if begun.forks != fork_generation() {
            return None;
        }
        let mut stream = begun.stream.take()?;
        let answer = receive_whole(&mut stream).ok()?;
        self.give(stream);
        Some(answer)
    }

    /// The answer's payload goes into `buffer`; how many bytes it had.
    pub fn ask_into(&self, request: &Request, buffer: &mut [u8]) -> Result<usize> {
        let (answer, got) = self.converse(|stream| {
            send(stream, request, &[])?;
            receive_into(stream, buffer)
        })?;
        match answer {
            Response::Bytes => Ok(got),
            other => Err(unexpected(&other)),
        }
    }

    /// As `ask_into`, of an agent that says afterwards whether what it sent is any good.
    pub fn ask_lent(&self, request: &Request, buffer: &mut [u8]) -> Result<usize> {
        let (answer, (got, verdict)) = self.converse(|stream| {
            send(stream, request, &[])?;
            let (answer, got) = receive_into(stream, buffer)?;
            let verdict = match &answer {
                Response::Bytes => receive(stream)?.0,
                _ => Response::Done,
            };
            Ok((answer, (got, verdict)))
        })?;
        match (answer, verdict) {
            (Response::Bytes, Response::Done) => Ok(got),
            (Response::Bytes, Response::Failed(error)) => Err(error),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Cells to the agent, or from it, by the fabric; false: there is none, they are to go over the connection.
    pub fn by_fabric(&self, mut cells: Cells<'_>, request: impl Fn(There) -> Request) -> Result<bool> {
        if cells.len() < fabric::BYTES_MIN || self.without_fabric.load(Relaxed) {
            return Ok(false);
        }
        let (answer, refused) = self.converse(|stream| fabric::talk(stream, &mut cells, &request))?;
        match answer {
            Response::Done => {}
            Response::Unmoved { .. } => self.without_fabric.store(true, Relaxed),
            other => return Err(unexpected(&other)),
        }
        refused.map_or(Ok(answer == Response::Done), Err)
    }

    /// Cells go over connections, whatever is asked.
    pub fn is_without_fabric(&self) -> bool {
        let is_private = matches!(&self.address, Address::Tcp { security: Security::Plain, .. });
        self.without_fabric.load(Relaxed) || !fabric::is_wanted(is_private)
    }

    /// Requests without answers of their own, one after the other: each is sent before the one before it is answered, so that a long way
    /// is kept full. What became of each. What was not answered when a conversation ended is sent again, in order, in one that the
    /// agent begins only when the older one has ended: none of its requests takes effect later.
    pub fn each_done(&self, requests: &[(Request, &[u8])]) -> Vec<Result<()>> {
        let who = RandomState::new().hash_one(std::process::id());
        let mut done: Vec<Result<()>> = vec![];
        // Since when nothing was answered.
        let mut begun = Instant::now();
        while done.len() < requests.len() {
            let before = done.len();
            let ended = self.take().and_then(|mut stream| {
                // Answers are short: what the agent writes while we send fits into the socket.
                send(&mut stream, &Request::Forwarder { who }, &[])?;
                for (request, payload) in &requests[before..] {
                    send(&mut stream, request, payload)?;
                }
                match receive(&mut stream)? {
                    (Response::Done, 0) => {}
                    (other, _) => return Err(std::io::Error::other(unexpected(&other).message)),
                }
                while done.len() < requests.len() {
                    done.push(match receive(&mut stream)? {
                        (Response::Done, 0) => Ok(()),
                        (Response::Failed(error), 0) => Err(error),
                        (other, _) => return Err(broken(unexpected(&other))),
                    });
                }
                self.give(stream);
                Ok(())
            });
            let Err(error) = ended else { break };
            if done.len() > before {
                begun = Instant::now();
            }
            match self.lost(&error, begun) {
                // This one is given up, and the next has its own patience.
                Some(error) => {
                    done.push(Err(error));
                    begun = Instant::now();
                }
                None => std::thread::sleep(RETRY),
            }
        }
        done
    }

    /// Why a conversation that has ended so is not begun again.
    fn lost(&self, error: &std::io::Error, begun: Instant) -> Option<ObjectError> {
        match error.kind() {
            std::io::ErrorKind::InvalidData => Some(ObjectError::new(Kind::Protocol, error.to_string())),
            std::io::ErrorKind::PermissionDenied => Some(ObjectError::new(Kind::Denied, error.to_string())),
            _ if begun.elapsed() < PATIENCE => None,
            _ => {
                let root = self.root.display();
                let away = ObjectError::new(Kind::NoAgent, format!("the agent of {root} does not answer: {error}"));
                Some(away.hint(format!("start one: terrace serve --root {root}")))
            }
        }
    }

    fn converse<T>(
        &self,
        mut talk: impl FnMut(&mut Stream) -> std::io::Result<(Response, T)>,
    ) -> Result<(Response, T)> {
        let begun = Instant::now();
        loop {
            let answer = self.take().and_then(|mut stream| Ok((talk(&mut stream)?, stream)));
            match answer {
                Ok(((Response::Failed(error), _), stream)) => {
                    self.give(stream);
                    return Err(error);
                }
                Ok((answer, stream)) => {
                    self.give(stream);
                    return Ok(answer);
                }
                Err(error) => match self.lost(&error, begun) {
                    Some(error) => return Err(error),
                    None => std::thread::sleep(RETRY),
                },
            }
        }
    }

    /// The agent stays while a session is connected. One that is just being restarted hears of us with the next request.
    pub fn announce(&self) {
        if let Ok(stream) = self.take() {
            self.give(stream);
        }
    }

    fn give(&self, stream: Stream) {
        let mut pool = self.pool.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if pool.len() < 4 {
            pool.push(stream);
        }
    }

    pub fn done(&self, request: &Request) -> Result<()> {
        self.ask(request).map(|_| ())
    }

    pub fn tags(&self, request: &Request) -> Result<Vec<(String, TagValue)>> {
        match self.ask(request)?.0 {
            Response::Tags { tags } => Ok(tags),
            other => Err(unexpected(&other)),
        }
    }

    pub fn paths(&self, request: &Request) -> Result<Vec<String>> {
        match self.ask(request)?.0 {
            Response::Paths { paths } => Ok(paths),
            other => Err(unexpected(&other)),
        }
    }

    fn name_of(&self, directory: &Path) -> String {
        directory.strip_prefix(&self.root).unwrap_or(directory).to_string_lossy().into_owned()
    }
}

/// A connection that was made, as far as the agent's greeting.
pub fn greeted(stream: TcpStream, to: &Address) -> std::io::Result<(Stream, Response)> {
    let Address::Tcp { address, token, security } = to else { unreachable!("a connection by TCP has such an address") };
    let line = match security {
        Security::Tls(pinned) => Line::Tls(Box::new(tls::greet(stream, address, pinned)?)),
        Security::Loopback | Security::Plain => Line::Tcp(stream),
    };
    let mut stream = Stream { line, fabric: Fabric::Untried { is_private: *security == Security::Plain } };
    let (greeting, _) = exchange(&mut stream, &Request::Hello { token: token.clone() }, &[])?;
    Ok((stream, greeting))
}

/// In the clear only to this machine's loopback, unless the user has said so.
pub fn check_security(address: &str, security: &Security) -> Result<()> {
    if *security != Security::Loopback || is_loopback(address) {
        return Ok(());
    }
    Err(ObjectError::new(
        Kind::Denied,
        format!("{address} is not this machine's loopback: a token must not travel in the clear"),
    )
    .hint("give the certificate's fingerprint (TERRACE_FINGERPRINT), or say plain:// where nobody can listen"))
}

pub fn unexpected(response: &Response) -> ObjectError {
    ObjectError::new(Kind::Protocol, format!("the agent answered {response:?}: is it of another version?"))
}

fn is_loopback(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut found| found.all(|found| found.ip().is_loopback()))
}

/// What protects a connection to this address, if nobody says otherwise.
pub fn security_for(address: &str, fingerprint: Option<String>) -> Security {
    match fingerprint {
        Some(fingerprint) if !is_loopback(address) => Security::Tls(fingerprint),
        _ => Security::Loopback,
    }
}

pub fn broken(error: ObjectError) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, error.message)
}

/// Sends a request and its payload, and receives the answer and its payload.
pub fn exchange(stream: &mut Stream, request: &Request, payload: &[u8]) -> std::io::Result<(Response, Vec<u8>)> {
    send(stream, request, payload)?;
    receive_whole(stream)
}

fn receive_whole(stream: &mut Stream) -> std::io::Result<(Response, Vec<u8>)> {
    let (answer, payload_bytes) = receive(stream)?;
    let mut payload = vec![0; payload_bytes as usize];
    stream.read_exact(&mut payload)?;
    Ok((answer, payload))
}

pub fn send(stream: &mut Stream, request: &Request, payload: &[u8]) -> std::io::Result<()> {
    stream.write_all(&encode(request, payload.len() as u64).map_err(broken)?)?;
    stream.write_all(payload)?;
    stream.flush()
}

/// An answer, and how long the payload is that follows it.
pub fn receive(stream: &mut Stream) -> std::io::Result<(Response, u64)> {
    let mut head = [0; FRAME_BYTES];
    stream.read_exact(&mut head)?;
    let frame = Frame::decode(&head).map_err(broken)?;
    let mut message = vec![0; frame.message_bytes as usize];
    stream.read_exact(&mut message)?;
    Ok((decode(&message).map_err(broken)?, frame.payload_bytes))
}

fn receive_into(stream: &mut Stream, buffer: &mut [u8]) -> std::io::Result<(Response, usize)> {
    let (answer, payload_bytes) = receive(stream)?;
    if payload_bytes > buffer.len() as u64 {
        return Err(broken(ObjectError::new(Kind::Protocol, "the agent answered with more bytes than were asked for")));
    }
    let got = payload_bytes as usize;
    stream.read_exact(&mut buffer[..got])?;
    Ok((answer, got))
}

impl ChunkSource for Agent {
    fn chunk(&self, directory: &Path, chunk: &[u64]) -> Result<Option<Vec<u8>>> {
        let request = Request::Chunk { path: self.name_of(directory), chunk: chunk.to_vec() };
        match self.ask(&request)? {
            (Response::Bytes, payload) => Ok(Some(payload)),
            (Response::Done, _) => Ok(None),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

impl Services for Agent {
    fn compact(&self, directory: &Path) -> Result<()> {
        self.done(&Request::Compact { path: self.name_of(directory) })
    }
    fn make_room(&self, bytes: u64) -> Result<()> {
        self.done(&Request::MakeRoom { bytes })
    }
}
