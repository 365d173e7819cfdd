//! The calls of shim/fabric.c.

use crate::PATIENCE;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_void};
use std::marker::PhantomData;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{NonNull, null, null_mut};
use terrace_core::objects::wire::There;
use terrace_core::objects::{Kind, ObjectError, Result};

enum Raw {}
enum RawMemory {}

unsafe extern "C" {
    fn terrace_fabric_open(provider: *const c_char, host: *const c_char, error: *mut c_char, size: usize) -> *mut Raw;
    fn terrace_fabric_close(endpoint: *mut Raw);
    fn terrace_fabric_provider(endpoint: *const Raw) -> *const c_char;
    fn terrace_fabric_reason(code: c_long) -> *const c_char;
    fn terrace_fabric_address(endpoint: *const Raw, buffer: *mut c_void, size: usize) -> usize;
    fn terrace_fabric_peer(endpoint: *mut Raw, address: *const c_void, peer: *mut u64) -> c_int;
    fn terrace_fabric_register(
        endpoint: *mut Raw,
        start: *mut c_void,
        bytes: usize,
        access: c_int,
        memory: *mut *mut RawMemory,
        at: *mut u64,
        key: *mut u64,
    ) -> c_int;
    fn terrace_fabric_unregister(memory: *mut RawMemory);
    fn terrace_fabric_move(
        endpoint: *mut Raw,
        is_write: c_int,
        peer: u64,
        start: *mut c_void,
        bytes: usize,
        at: u64,
        key: u64,
        watched: c_int,
        patience_ms: c_uint,
    ) -> c_int;
    fn terrace_fabric_attend(endpoint: *mut Raw, descriptor: c_int, patience_ms: c_uint) -> c_int;
}

/// What a peer may do with memory, as the shim counts.
const REMOTE_READ: c_int = 1;
const REMOTE_WRITE: c_int = 2;
/// Longest address of an endpoint (fi_getname(3)).
const ADDRESS_MAX: usize = 512;

pub struct Endpoint {
    raw: NonNull<Raw>,
    peer: Option<u64>,
}

// SAFETY: an endpoint is used by one thread at a time (`&mut`), whichever that is (FI_THREAD_DOMAIN).
unsafe impl Send for Endpoint {}
// SAFETY: what needs no `&mut` only reads what stays as it was when the endpoint was opened.
unsafe impl Sync for Endpoint {}

/// A buffer that the peer may read and write while this lives.
pub struct Exposed<'a> {
    memory: NonNull<RawMemory>,
    there: There,
    buffer: PhantomData<&'a mut [u8]>,
}

fn failed(what: &str, code: c_int) -> ObjectError {
    // SAFETY: libfabric's own constant text.
    let reason = unsafe { CStr::from_ptr(terrace_fabric_reason(code.into())) };
    ObjectError::new(Kind::System, format!("libfabric could not {what}: {}", reason.to_string_lossy()))
}

const ONE_MACHINE: &str = "shm";

impl Endpoint {
    /// `provider`: `None`, the best there is. `at`: the address to be reached at, else any.
    pub fn open(provider: Option<&str>, at: Option<IpAddr>) -> Result<Endpoint> {
        // Its version 1.17 crashes a process when another endpoint there is closed.
        if provider.is_some_and(|names| names.split(';').any(|name| name.trim().eq_ignore_ascii_case(ONE_MACHINE))) {
            return Err(ObjectError::invalid("libfabric's shm is for processes of one machine")
                .hint("an agent of this machine is reached by TERRACE_INDEX, without libfabric"));
        }
        let host = at.map(|at| at.to_string());
        let text = |text: &str| CString::new(text).map_err(|_| ObjectError::invalid("a zero byte in a name"));
        let (provider, host) = (provider.map(text).transpose()?, host.as_deref().map(text).transpose()?);
        let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        let mut error = [0; 256];
        // SAFETY: texts that end, and a buffer of the size that is said.
        let raw = unsafe { terrace_fabric_open(pointer(&provider), pointer(&host), error.as_mut_ptr(), error.len()) };
        NonNull::new(raw).map(|raw| Endpoint { raw, peer: None }).ok_or_else(|| {
            // SAFETY: the shim has ended the text.
            let reason = unsafe { CStr::from_ptr(error.as_ptr()) }.to_string_lossy().into_owned();
            ObjectError::new(Kind::System, reason).hint("`fi_info` lists the providers of this machine")
        })
    }

    pub fn provider(&self) -> String {
        // SAFETY: a text of the endpoint's, which lives.
        unsafe { CStr::from_ptr(terrace_fabric_provider(self.raw.as_ptr())) }.to_string_lossy().into_owned()
    }

    /// What `meet` of another endpoint wants.
    pub fn address(&self) -> Result<Vec<u8>> {
        let mut address = vec![0; ADDRESS_MAX];
        // SAFETY: a buffer of the size that is said.
        let length = unsafe { terrace_fabric_address(self.raw.as_ptr(), address.as_mut_ptr().cast(), address.len()) };
        match length {
            0 => Err(ObjectError::new(Kind::System, "libfabric does not tell the endpoint's address")),
            length => {
                address.truncate(length);
                Ok(address)
            }
        }
    }

    pub fn meet(&mut self, address: &[u8]) -> Result<()> {
        // A provider reads as much as its own addresses have.
        let mut padded = address.to_vec();
        padded.resize(ADDRESS_MAX, 0);
        let mut peer = 0;
        // SAFETY: longer than any address.
        match unsafe { terrace_fabric_peer(self.raw.as_ptr(), padded.as_ptr().cast(), &mut peer) } {
            0 => {
                self.peer = Some(peer);
                Ok(())
            }
            code => Err(failed("take the other side's address", code)),
        }
    }

    /// For the peer to read.
    pub fn expose<'a>(&mut self, buffer: &'a [u8]) -> Result<Exposed<'a>> {
        self.register(buffer.as_ptr().cast_mut(), buffer.len(), REMOTE_READ)
    }

    /// For the peer to write.
    pub fn expose_mut<'a>(&mut self, buffer: &'a mut [u8]) -> Result<Exposed<'a>> {
        self.register(buffer.as_mut_ptr(), buffer.len(), REMOTE_WRITE)
    }

    fn register<'a>(&mut self, start: *mut u8, bytes: usize, access: c_int) -> Result<Exposed<'a>> {
        let (mut memory, mut there) = (null_mut(), There { at: 0, key: 0 });
        let (raw, at, key) = (self.raw.as_ptr(), &mut there.at, &mut there.key);
        // SAFETY: memory that is borrowed for as long as it is exposed.
        let code = unsafe { terrace_fabric_register(raw, start.cast(), bytes, access, &mut memory, at, key) };
        match NonNull::new(memory) {
            Some(memory) if code == 0 => Ok(Exposed { memory, there, buffer: PhantomData }),
            _ => Err(failed("expose memory", code)),
        }
    }

    /// All of `to`, from the peer's memory. Fails when the connection's other end is gone.
    pub fn read(&mut self, from: There, to: &mut [u8], connection: BorrowedFd<'_>) -> Result<()> {
        self.transfer(false, to.as_mut_ptr(), to.len(), from, connection)
    }

    /// All of `from`, into the peer's memory: when this returns, it has arrived there.
    pub fn write(&mut self, from: &[u8], to: There, connection: BorrowedFd<'_>) -> Result<()> {
        self.transfer(true, from.as_ptr().cast_mut(), from.len(), to, connection)
    }

    fn transfer(
        &mut self,
        is_write: bool,
        start: *mut u8,
        bytes: usize,
        there: There,
        connection: BorrowedFd<'_>,
    ) -> Result<()> {
        let Some(peer) = self.peer else { return Err(ObjectError::new(Kind::Protocol, "the endpoint has met nobody")) };
        let (raw, patience) = (self.raw.as_ptr(), PATIENCE.as_millis() as c_uint);
        let socket = connection.as_raw_fd();
        // SAFETY: `bytes` of a slice that lives until this returns; a write does not change it.
        match unsafe {
            terrace_fabric_move(raw, is_write.into(), peer, start.cast(), bytes, there.at, there.key, socket, patience)
        } {
            0 => Ok(()),
            code => Err(failed("move cells", code)),
        }
    }

    /// Lets the peer read and write what is exposed, until it says something over the connection.
    pub fn attend(&mut self, connection: BorrowedFd<'_>) -> Result<()> {
        // SAFETY: an open descriptor.
        match unsafe {
            terrace_fabric_attend(self.raw.as_ptr(), connection.as_raw_fd(), 4 * PATIENCE.as_millis() as c_uint)
        } {
            0 => Ok(()),
            code => Err(failed("let cells be moved", code)),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // SAFETY: nothing is exposed any more: that is used with a borrowed endpoint's connection.
        unsafe { terrace_fabric_close(self.raw.as_ptr()) };
    }
}

impl Exposed<'_> {
    pub fn there(&self) -> There {
        self.there
    }
}

impl Drop for Exposed<'_> {
    fn drop(&mut self) {
        // SAFETY: it was registered, and is given back once.
        unsafe { terrace_fabric_unregister(self.memory.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn cells_are_moved_both_ways_by_tcp() {
        let open = || Endpoint::open(Some("tcp"), Some(std::net::Ipv4Addr::LOCALHOST.into()));
        let (mut client, mut agent) = match (open(), open()) {
            (Ok(client), Ok(agent)) => (client, agent),
            (Err(error), _) | (_, Err(error)) => return println!("SKIPPED: {error}"),
        };
        client.meet(&agent.address().unwrap()).unwrap();
        agent.meet(&client.address().unwrap()).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let wanted: Vec<u8> = (0..5_000_003u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let mut buffer = vec![0; wanted.len()];
        let (source, sink) = (client.expose(&wanted).unwrap(), client.expose_mut(&mut buffer).unwrap());
        let (from, to) = (source.there(), sink.there());
        let moving = std::thread::spawn(move || {
            let mut got = vec![0; 5_000_003];
            agent.read(from, &mut got, far.as_fd()).unwrap();
            agent.write(&got, to, far.as_fd()).unwrap();
            std::io::Write::write_all(&mut &far, b"!").unwrap();
            (got, agent, far)
        });
        client.attend(near.as_fd()).unwrap();
        drop((source, sink));
        let (got, mut agent, far) = moving.join().unwrap();
        assert!(got == wanted && buffer == wanted);
        // Who exposes and is gone fails the other, and does not hold it for ever.
        drop((near, client));
        agent.read(from, &mut [0; 100], far.as_fd()).unwrap_err();
    }

    #[test]
    fn a_provider_that_is_not_there_is_named() {
        let Err(error) = Endpoint::open(Some("nobodys"), None) else { panic!("it was opened") };
        assert!(error.message.contains("nobodys") || error.message.contains("can't be loaded"), "{error}");
    }

    #[test]
    fn the_provider_that_crashes_its_process_is_refused() {
        let Err(error) = Endpoint::open(Some("shm"), None) else { panic!("it was opened") };
        assert!(error.message.contains("shm") && error.hint.is_some(), "{error}");
    }
}
