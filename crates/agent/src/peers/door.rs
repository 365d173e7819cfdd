//! Where other agents of the root knock: a TCP port that the kernel chooses, TLS with a certificate of this life, a token.
//!
//! All three are told in a file beside the node's registration, which only this user can read; it goes with the agent. Nothing is
//! read of who has not shown the token but a greeting (`objects::gate`).

use super::giving::Connection;
use super::{FlushAll, Peers};
use crate::error::{Context, Result};
use crate::objects::gate::{self, Known};
use crate::objects::server::{receive_request, send};
use crate::shared::index_file::random_half;
use crate::shared::runs::Serving;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::ffi::CStr;
use std::io::{Error, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use terrace_core::objects::wire::{Request, Response};
use terrace_core::objects::{Kind, ObjectError};
use terrace_core::peers::{Ask, DOOR, Door};

pub struct DoorKeeper {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    door: Door,
}

impl DoorKeeper {
    pub fn open() -> std::io::Result<DoorKeeper> {
        // One socket for both families, where the machine has the newer one.
        let listener =
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        let port = listener.local_addr()?.port();
        let made = rcgen::generate_simple_self_signed(vec!["terrace".into()]).map_err(Error::other)?;
        let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let fingerprint = terrace_client::fingerprint(made.cert.der());
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], secret))
            .map_err(Error::other)?;
        let addresses = addresses().into_iter().map(|ip| SocketAddr::new(ip, port).to_string()).collect();
        let token = (0..4).map(|_| format!("{:016x}", random_half())).collect();
        Ok(DoorKeeper { listener, tls: Arc::new(tls), door: Door { addresses, fingerprint, token } })
    }

    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }
}

/// Of this machine, those by which others most likely reach it first. The loopback last: nodes may be containers of one machine.
fn addresses() -> Vec<IpAddr> {
    let mut found: Vec<(u8, IpAddr)> = vec![];
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: getifaddrs(3) gives a list that is read, and freed once.
    unsafe {
        if libc::getifaddrs(&raw mut list) != 0 {
            return vec![Ipv4Addr::LOCALHOST.into()];
        }
        let mut next = list;
        while let Some(entry) = next.as_ref() {
            next = entry.ifa_next;
            if entry.ifa_flags & libc::IFF_UP as u32 == 0 || entry.ifa_addr.is_null() {
                continue;
            }
            let ip: IpAddr = match i32::from((*entry.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in>();
                    Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into()
                }
                libc::AF_INET6 => {
                    let address = &*entry.ifa_addr.cast::<libc::sockaddr_in6>();
                    Ipv6Addr::from(address.sin6_addr.s6_addr).into()
                }
                _ => continue,
            };
            // Of the link's own addresses none says by which interface it is reached.
            let is_of_link = match ip {
                IpAddr::V4(ip) => ip.is_link_local(),
                IpAddr::V6(ip) => ip.is_unicast_link_local(),
            };
            // Bridges of containers have the same addresses on every machine.
            let name = CStr::from_ptr(entry.ifa_name).to_bytes();
            let is_bridge = [&b"docker"[..], b"virbr", b"br-", b"cni", b"lxc"].iter().any(|of| name.starts_with(of));
            let rank = match () {
                () if ip.is_loopback() => 3,
                () if is_bridge => 2,
                () if ip.is_ipv6() => 1,
                () => 0,
            };
            if !is_of_link {
                found.push((rank, ip));
            }
        }
        libc::freeifaddrs(list);
    }
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, ip)| ip).collect()
}

impl Peers {
    fn door_path(&self) -> PathBuf {
        self.settings.root.join(self.private_name()).join(DOOR)
    }

    /// Others can knock from now on.
    pub fn tell_door(&self, keeper: &DoorKeeper) -> Result<()> {
        let (target, fresh) = (self.door_path(), self.door_path().with_extension("new"));
        let text = serde_json::to_vec(&keeper.door).expect("this is plain data");
        if self.was_here_before {
            let _ = std::fs::remove_file(&fresh);
        }
        let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
        file.and_then(|mut file| file.write_all(&text)).context("write", &fresh)?;
        std::fs::rename(&fresh, &target).context("put in place", &target)
    }

    pub fn close_door(&self) {
        let _ = std::fs::remove_file(self.door_path());
    }
}

/// Accepts other agents until the socket is shut down.
pub fn serve(peers: &Arc<Peers>, keeper: &DoorKeeper, flush: &Arc<FlushAll>) {
    let shared = peers.clone();
    let known = move |connection| {
        let (peers, flush) = (shared.clone(), flush.clone());
        // Who leaves in the middle of something is nobody's loss.
        let attend = move || {
            let _ = match connection {
                Known::Plain(_) => Ok(()),
                Known::Tls(mut connection) => peers.attend(&mut connection, &*flush),
            };
        };
        if let Err(error) = std::thread::Builder::new().name("peer".into()).spawn(attend) {
            eprintln!("terrace agent: can't start a thread for another agent: {error}");
        }
    };
    let has_ended = || peers.schedule.has_ended();
    if let Err(error) = gate::keep(has_ended, &keeper.listener, &keeper.door.token, Some(&keeper.tls), known) {
        eprintln!("terrace agent: agents of other nodes are served no more: {error}");
    }
}

impl Peers {
    fn attend(&self, connection: &mut Connection, flush: &FlushAll) -> std::io::Result<()> {
        send(connection, &Response::Done, &[])?;
        loop {
            let request = match receive_request(connection, 0) {
                Ok(Some((request, _))) => request,
                Ok(None) => return Ok(()),
                Err(error) => return send(connection, &Response::Failed(error), &[]),
            };
            // Whose life has ended knows nothing of the files any more; another may have begun.
            if self.schedule.has_ended() {
                return Ok(());
            }
            match request {
                Request::Peer(Ask::Take { object, path, most, mode }) => {
                    self.give(connection, &object, &path, (most, mode))?
                }
                // Answered at once: no word is needed meanwhile.
                Request::Peer(ask @ (Ask::Look { .. } | Ask::Break { .. } | Ask::StatMany { .. })) => {
                    let _serving = Serving::new(&self.runs);
                    send(connection, &Response::Peer(self.do_for(ask, flush)), &[])?;
                }
                Request::Peer(ask) => {
                    self.answer(ask, flush, |answer| send(connection, &Response::Peer(answer), &[]))?
                }
                other => {
                    let error = ObjectError::new(Kind::Protocol, format!("{other:?} is not what agents ask for here"));
                    return send(connection, &Response::Failed(error), &[]);
                }
            }
        }
    }
}
