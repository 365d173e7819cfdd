//! One conversation with an agent elsewhere, which gives up after a while: for agents, which try again by their own rules.
//!
//! Several requests may be under way: the answers come in their order.

use crate::rpc::{self, Address, Security, Stream};
use crate::session::security_of;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;
use terrace_core::objects::wire::{Request, Response};
use terrace_core::objects::{Kind, ObjectError, Result};

pub struct Link {
    stream: Stream,
}

impl Link {
    /// `target`: `tcp://ADDRESS:PORT`, `tls://` or `plain://`, as for a session. `patience`: for the connection, and for each
    /// piece that is sent or received later.
    pub fn connect(target: &str, token: &str, fingerprint: Option<String>, patience: Duration) -> Result<Link> {
        Link::connect_within(target, token, fingerprint, patience, patience)
    }

    /// `connecting`: for the connection alone.
    pub fn connect_within(
        target: &str,
        token: &str,
        fingerprint: Option<String>,
        connecting: Duration,
        patience: Duration,
    ) -> Result<Link> {
        let (scheme, address) = target.split_once("://").ok_or_else(|| {
            ObjectError::invalid(format!("`{target}` is no agent's address: tcp://ADDRESS:PORT is one"))
        })?;
        let security = security_of(scheme, address, || Ok(fingerprint))?;
        rpc::check_security(address, &security)?;
        let away =
            |error: std::io::Error| ObjectError::new(Kind::NoAgent, format!("{target} does not answer: {error}"));
        let found = address.to_socket_addrs().map_err(away)?;
        let mut last = std::io::Error::other("the name has no address");
        for socket in found {
            match TcpStream::connect_timeout(&socket, connecting) {
                Ok(stream) => {
                    return Link::greet(stream, address, token, security, patience)
                        .map_err(|error| refusal(target, error));
                }
                Err(error) => last = error,
            }
        }
        Err(away(last))
    }

    fn greet(
        stream: TcpStream,
        address: &str,
        token: &str,
        security: Security,
        patience: Duration,
    ) -> std::io::Result<Link> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let to = Address::Tcp { address: address.into(), token: token.into(), security };
        let (stream, greeting) = rpc::greeted(stream, &to)?;
        match greeting {
            Response::Failed(refused) => {
                Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, refused.message))
            }
            _ => Ok(Link { stream }),
        }
    }

    pub fn send(&mut self, request: &Request, payload: &[u8]) -> std::io::Result<()> {
        rpc::send(&mut self.stream, request, payload)?;
        self.stream.flush()
    }

    /// The next answer; none of those that are asked for here has a payload.
    pub fn receive(&mut self) -> std::io::Result<Response> {
        match rpc::receive(&mut self.stream)? {
            (answer, 0) => Ok(answer),
            _ => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "an answer with more than was asked for")),
        }
    }

    /// The next answer, and its payload in `payload`, which has at most `most` bytes.
    pub fn receive_with(&mut self, payload: &mut Vec<u8>, most: usize) -> std::io::Result<Response> {
        let (answer, bytes) = rpc::receive(&mut self.stream)?;
        if bytes > most as u64 {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "an answer with more than was asked for"));
        }
        payload.resize(bytes as usize, 0);
        self.stream.read_exact(payload)?;
        Ok(answer)
    }

    /// Only while nothing else is under way.
    pub fn ask(&mut self, request: &Request) -> std::io::Result<Response> {
        self.send(request, &[])?;
        self.receive()
    }
}

fn refusal(target: &str, error: std::io::Error) -> ObjectError {
    let kind = match error.kind() {
        std::io::ErrorKind::PermissionDenied => Kind::Denied,
        std::io::ErrorKind::InvalidData => Kind::Protocol,
        _ => Kind::NoAgent,
    };
    ObjectError::new(kind, format!("{target}: {error}"))
}
