//! Where the program listens: by TLS wherever others can read along.

use axum::Router;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use terrace_tool::failure::Failure;
use terrace_tool::server_args::ServerArgs;

pub struct Listener {
    socket: TcpListener,
    pub address: SocketAddr,
    pub tls: Option<Arc<ServerConfig>>,
    pub fingerprint: Option<String>,
}

impl Listener {
    pub fn open(args: &ServerArgs) -> Result<Listener, Failure> {
        let bad = |error: std::io::Error| {
            Failure::invalid(format!("can't listen on {}: {error}", args.listen))
                .hint("give an address of this machine, as --http ADDRESS:PORT; port 0 is one that is free")
        };
        let addresses: Vec<SocketAddr> = args.listen.to_socket_addrs().map_err(bad)?.collect();
        let tls = args.tls().map(|(certificate, key)| tls(certificate, key)).transpose()?;
        let is_loopback = addresses.iter().all(|address| address.ip().is_loopback());
        if tls.is_none() && !is_loopback && !args.plain {
            return Err(Failure::invalid(format!(
                "{} is not a loopback address, and a token must not travel in the clear",
                args.listen
            ))
            .hint("give --certificate and --key"));
        }
        let socket = TcpListener::bind(addresses.as_slice()).map_err(bad)?;
        socket.set_nonblocking(true).map_err(bad)?;
        let address = socket.local_addr().map_err(bad)?;
        let (tls, fingerprint) = tls.unzip();
        Ok(Listener { socket, address, tls, fingerprint })
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Small answers are sent at once: a reader waits for each before it asks for more.
    pub async fn serve(self, router: Router, handle: Handle<SocketAddr>) -> std::io::Result<()> {
        let service = router.into_make_service();
        match self.tls {
            None => {
                let server = axum_server::from_tcp(self.socket)?.acceptor(NoDelayAcceptor::new());
                server.handle(handle).serve(service).await
            }
            Some(config) => {
                let acceptor = RustlsAcceptor::new(RustlsConfig::from_config(config)).acceptor(NoDelayAcceptor::new());
                axum_server::from_tcp(self.socket)?.acceptor(acceptor).handle(handle).serve(service).await
            }
        }
    }
}

/// What is spoken, and how the certificate is known.
fn tls(certificate: &Path, key: &Path) -> Result<(Arc<ServerConfig>, String), Failure> {
    let unusable = |what: &Path, error: &dyn std::fmt::Display| {
        Failure::invalid(format!("{} can't be used: {error}", what.display()))
    };
    let chain = CertificateDer::from_pem_file(certificate).map_err(|error| unusable(certificate, &error))?;
    let fingerprint = terrace_client::fingerprint(&chain);
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![chain], secret))
        .map_err(|error| unusable(certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((Arc::new(config), fingerprint))
}
