//! TLS towards agents elsewhere. An agent's certificate is its own: it is known by its fingerprint, as an SSH host's key is,
//! and no authority is asked.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use sha2::{Digest, Sha256};
use std::io::{BufReader, Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use terrace_core::forwards::plain_fingerprint;
use terrace_core::objects::{Kind, ObjectError, Result};

pub type TlsStream = StreamOwned<ClientConnection, Socket>;

/// What is read of the socket at a time: rustls asks for 4 KiB.
const READ_BYTES: usize = 128 << 10;

/// A socket below TLS, read in large pieces.
#[derive(Debug)]
pub struct Socket(BufReader<TcpStream>);

impl Socket {
    pub fn new(stream: TcpStream) -> Socket {
        Socket(BufReader::with_capacity(READ_BYTES, stream))
    }

    /// To set options, and to shut down; what is read from it is missing above.
    pub fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.get_mut().write(bytes)
    }
    fn write_vectored(&mut self, pieces: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
        self.0.get_mut().write_vectored(pieces)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// SHA-256 of a certificate, as 64 hexadecimal digits.
pub fn fingerprint(certificate: &[u8]) -> String {
    Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// As people write it: with colons, in capitals, or as it is.
pub fn checked_fingerprint(text: &str) -> Result<String> {
    plain_fingerprint(text).ok_or_else(|| {
        ObjectError::new(
            Kind::Invalid,
            format!("`{}` is not a fingerprint: 64 hexadecimal digits", text.trim().escape_debug()),
        )
        .hint("`terrace serve` writes it beside the token, into a file that ends in .fingerprint")
    })
}

#[derive(Debug)]
struct Pinned {
    fingerprint: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        match fingerprint(certificate) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// How a client speaks TLS with whoever has the certificate of this fingerprint, and nobody else.
pub fn client_config(pinned: &str) -> std::io::Result<ClientConfig> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Pinned { fingerprint: pinned.into(), provider: provider.clone() };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Speaks TLS over a new connection; the certificate is looked at before this returns.
pub fn greet(stream: TcpStream, address: &str, pinned: &str) -> std::io::Result<TlsStream> {
    let config = client_config(pinned)?;
    // Certificates are known by their fingerprint: the name says nothing.
    let name = ServerName::try_from("terrace").expect("a name that is right");
    let mut connection = ClientConnection::new(Arc::new(config), name).map_err(Error::other)?;
    let mut stream = Socket::new(stream);
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|error| explained(error, address))?;
    }
    Ok(StreamOwned::new(connection, stream))
}

fn explained(error: Error, address: &str) -> Error {
    let told = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match told {
        Some(rustls::Error::InvalidCertificate(_)) => Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "the agent at {address} shows another certificate than the one whose fingerprint is known: the token was not \
                 sent to it"
            ),
        ),
        Some(told) => Error::new(ErrorKind::InvalidData, format!("no TLS with the agent at {address}: {told}")),
        None => error,
    }
}
