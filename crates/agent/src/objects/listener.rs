//! TCP: clients of other nodes, with a token, and by TLS wherever others can listen.
//!
//! Invariant: nothing but the token is looked at before it is right (`gate`), and it is not sent in the clear to where others can read it.

use super::Server;
use super::fabric::Beside;
use super::gate::{self, Known, TOKEN_MAX};
use super::remote::RemoteClient;
use super::server::{has_left, receive_payload, receive_request, send};
use crate::shared::runs::Serving;
use rustix::net::sockopt;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use terrace_core::members::Member;
use terrace_core::objects::wire::{PAYLOAD_BYTES_MAX, Request, Response};
use terrace_core::settings::{ListenSettings, Protection};

/// A client of which nothing was heard for so long is asked whether it is there, for as long again.
const SILENCE: Duration = Duration::from_secs(60);
/// Most memory that a connection keeps between requests.
const SPARE_MAX: usize = 64 << 20;

pub struct TcpListening {
    listener: TcpListener,
    token: String,
    tls: Option<Arc<ServerConfig>>,
    fingerprint: Option<String>,
}

impl TcpListening {
    /// Listens where the settings say; in the clear only on this machine's loopback, unless the user has said so.
    /// `before`: where it listened in an earlier life, for a port that nobody chose.
    pub fn open(wanted: &ListenSettings, before: Option<String>) -> std::io::Result<TcpListening> {
        let refused = |reason: String| Error::new(ErrorKind::InvalidInput, reason);
        let addresses: Vec<SocketAddr> = wanted.address.to_socket_addrs()?.collect();
        let is_loopback = addresses.iter().all(|address| address.ip().is_loopback());
        if wanted.protection == Protection::Loopback && !is_loopback {
            return Err(refused(format!(
                "{} is not a loopback address, and a token must not travel in the clear: use TLS",
                wanted.address
            )));
        }
        let token = std::fs::read_to_string(&wanted.token_file)?.trim().to_owned();
        if token.len() < 16 || token.len() > TOKEN_MAX {
            return Err(refused(format!("the token in {} has fewer than 16 characters", wanted.token_file.display())));
        }
        let mut fingerprint = None;
        let tls = match &wanted.protection {
            Protection::Tls { certificate, key } => {
                let unusable = |what: &std::path::Path, error: &dyn std::fmt::Display| {
                    refused(format!("{} can't be used: {error}", what.display()))
                };
                let chain =
                    CertificateDer::from_pem_file(certificate).map_err(|error| unusable(certificate, &error))?;
                fingerprint = Some(terrace_client::fingerprint(&chain));
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
                let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
                    .with_protocol_versions(&[&rustls::version::TLS13])
                    .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![chain], secret))
                    .map_err(|error| unusable(certificate, &error))?;
                Some(Arc::new(config))
            }
            Protection::Loopback | Protection::Plain => None,
        };
        let before = before.and_then(|before| before.parse::<SocketAddr>().ok());
        let same = before.filter(|before| addresses.contains(&SocketAddr::new(before.ip(), 0)));
        let listener = match same.map(TcpListener::bind) {
            Some(Ok(listener)) => listener,
            _ => TcpListener::bind(addresses.as_slice())?,
        };
        Ok(TcpListening { listener, token, tls, fingerprint })
    }

    /// What clients need to know of it, besides the token.
    pub fn member(&self) -> std::io::Result<Member> {
        Ok(Member { address: self.listener.local_addr()?.to_string(), fingerprint: self.fingerprint.clone() })
    }

    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }
}

/// Accepts clients of other nodes until the socket is shut down.
pub fn serve_remote(server: &Arc<Server>, listening: &TcpListening) {
    let shared = server.clone();
    let known = move |connection| {
        let server = shared.clone();
        // Who leaves in the middle of something is nobody's loss.
        let attend = move || drop(server.attend_remote(connection));
        if let Err(error) = std::thread::Builder::new().name("elsewhere".into()).spawn(attend) {
            eprintln!("terrace agent: can't start a thread for a client: {error}");
        }
    };
    let has_ended = || server.schedule.has_ended();
    if let Err(error) = gate::keep(has_ended, &listening.listener, &listening.token, listening.tls.as_ref(), known) {
        eprintln!("terrace agent: clients of other nodes are served no more: {error}");
    }
}

/// Memory that is used again, unless it is much.
fn kept(buffer: Vec<u8>) -> Vec<u8> {
    if buffer.capacity() <= SPARE_MAX { buffer } else { vec![] }
}

/// The connection ends when the client's node is gone without a word: its locks are others' then, and the agent may end.
fn notice_silence(socket: &TcpStream) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(socket, SILENCE)?;
    sockopt::set_tcp_keepintvl(socket, SILENCE / 6)?;
    sockopt::set_tcp_keepcnt(socket, 6)?;
    sockopt::set_socket_keepalive(socket, true)
}

impl Server {
    fn attend_remote(&self, connection: Known) -> std::io::Result<()> {
        match connection {
            Known::Plain(mut connection) => {
                let socket = connection.try_clone()?;
                self.attend_stream(&mut connection, &socket)
            }
            Known::Tls(mut connection) => {
                let socket = connection.sock.stream().try_clone()?;
                self.attend_stream(&mut *connection, &socket)
            }
        }
    }

    /// What this node's clients do by themselves is done for one who has shown the token, until he leaves.
    fn attend_stream(&self, connection: &mut (impl Read + Write), socket: &TcpStream) -> std::io::Result<()> {
        notice_silence(socket)?;
        send(connection, &Response::Done, &[])?;
        let _serving = Serving::new(&self.runs);
        let mut client =
            match RemoteClient::new(&self.settings.index(), self.opened.clone(), socket.try_clone()?.into()) {
                Ok(client) => client,
                Err(error) => return send(connection, &Response::Failed(error), &[]),
            };
        let mut spare = vec![];
        let mut fabric = Beside::new(socket.try_clone()?);
        let mut attended = None;
        loop {
            let (request, payload_bytes) = match receive_request(connection, PAYLOAD_BYTES_MAX) {
                Ok(Some(received)) => received,
                Ok(None) => return Ok(()),
                Err(error) => return send(connection, &Response::Failed(error), &[]),
            };
            let request = match request {
                Request::PutRegion { path, region, .. } => {
                    let answer = client.put(&path, &region, payload_bytes, connection)?;
                    let response = answer.map_or_else(Response::Failed, |()| Response::Done);
                    send(connection, &response, &[])?;
                    continue;
                }
                Request::Forwarder { who } => {
                    drop(attended.take());
                    let taken = self.incoming.take_over(who, socket);
                    let response = match taken {
                        Ok(taken) => {
                            attended = Some(taken);
                            Response::Done
                        }
                        Err(error) => Response::Failed(error),
                    };
                    send(connection, &response, &[])?;
                    continue;
                }
                Request::LendRegion { path, region } => {
                    if client.lend(&path, &region, connection)? {
                        continue;
                    }
                    let answer = client.get(&path, &region, std::mem::take(&mut spare));
                    let (response, payload) = answer.unwrap_or_else(|error| (Response::Failed(error), vec![]));
                    send(connection, &response, &payload)?;
                    if response == Response::Bytes {
                        send(connection, &Response::Done, &[])?;
                    }
                    spare = kept(payload);
                    continue;
                }
                Request::CloseBytes { open } => {
                    client.close(open);
                    continue;
                }
                Request::Fabric { provider, address } => {
                    send(connection, &fabric.meet(&provider, &address), &[])?;
                    continue;
                }
                Request::PullRegion { path, region, bytes, from } => {
                    send(connection, &fabric.pull(&mut client, &path, &region, bytes, from), &[])?;
                    continue;
                }
                Request::PushRegion { path, region, bytes, to } => {
                    send(connection, &fabric.push(&mut client, &path, &region, bytes, to), &[])?;
                    continue;
                }
                request => request,
            };
            let Some(payload) = receive_payload(connection, payload_bytes, std::mem::take(&mut spare)) else {
                return Ok(());
            };
            let answer = match client.answer(request, payload) {
                Ok(answer) => answer,
                Err(request) => self.answer_object(request, &|| has_left(socket)),
            };
            let (response, payload) = answer.unwrap_or_else(|error| (Response::Failed(error), vec![]));
            send(connection, &response, &payload)?;
            spare = kept(payload);
        }
    }
}
