//! How a server of ours listens: the token, TLS, and its end.
//!
//! Invariant: no call is answered without the token; addresses that others reach are served with TLS alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace_tool::failure::Failure;
use terrace_tool::server_args::ServerArgs;
use tonic::service::Interceptor;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Status};

const TOKEN_LENGTH_MIN: usize = 16;
/// For queries that are being answered when the end comes.
const END_PATIENCE: Duration = Duration::from_secs(3);
const ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const ALIVE_PATIENCE: Duration = Duration::from_secs(20);

/// Called before there are threads. By default glibc has up to eight arenas for each processor, and each keeps 64 MiB and more of what queries had
/// at most: with 64 clients that is ten times what they hold. One for each processor is as fast. (To map large pieces one by one makes some
/// queries six times as slow.) What the environment says of arenas stays.
pub fn keep_little_memory() {
    #[cfg(target_env = "gnu")]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() && std::env::var_os("GLIBC_TUNABLES").is_none() {
        let count = std::thread::available_parallelism().map_or(1, usize::from).max(2);
        // SAFETY: a plain call; where it is refused, all is as it was.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, count.try_into().unwrap_or(i32::MAX)) };
    }
}

/// Lets in who shows the token.
#[derive(Clone)]
pub struct Guard(Arc<str>);

impl Guard {
    pub fn token(&self) -> &str {
        &self.0
    }
}

impl Interceptor for Guard {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        match is_known(&request, &self.0) {
            true => Ok(request),
            false => {
                Err(Status::unauthenticated("the token is missing or wrong: send it as `authorization: Bearer TOKEN`"))
            }
        }
    }
}

/// Until a signal comes. Says on the standard output where it listens.
pub fn serve(
    listening: &ServerArgs,
    threads: usize,
    route: impl FnOnce(&mut Server, Guard) -> Result<Router, Failure>,
) -> Result<(), Failure> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| Failure::invalid(format!("can't read {}: {error}", path.display())))
    };
    let token = String::from_utf8_lossy(&read(&listening.token_file)?).trim().to_owned();
    if token.len() < TOKEN_LENGTH_MIN {
        return Err(Failure::invalid(format!("the token in {} is short", listening.token_file.display()))
            .hint(format!("{TOKEN_LENGTH_MIN} characters or more: openssl rand -hex 32")));
    }
    let wrong_address = |why: String| Failure::invalid(format!("can't listen on {}: {why}", &listening.listen));
    let address: SocketAddr = listening
        .listen
        .to_socket_addrs()
        .map_err(|error| wrong_address(error.to_string()))?
        .next()
        .ok_or_else(|| wrong_address("it is no address".into()))?;
    if listening.tls().is_none() && !listening.plain && !address.ip().is_loopback() {
        return Err(wrong_address("others reach it, and the token would travel in the clear".into())
            .hint("give --certificate and --key, or listen on a loopback address and tunnel to it"));
    }
    // A client whose node is gone says nothing.
    let mut server =
        Server::builder().http2_keepalive_interval(Some(ALIVE_INTERVAL)).http2_keepalive_timeout(Some(ALIVE_PATIENCE));
    if let Some((certificate, key)) = listening.tls() {
        let identity = Identity::from_pem(read(certificate)?, read(key)?);
        server = server
            .tls_config(ServerTlsConfig::new().identity(identity))
            .map_err(|error| Failure::invalid(format!("the certificate or its key can't be used: {error}")))?;
    }
    let router = route(&mut server, Guard(token.into()))?;
    let serving = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(terrace_analysis::STACK_BYTES)
        .enable_all()
        .build();
    let serving = serving.map_err(|error| Failure::new(format!("no runtime for clients can be started: {error}")))?;
    let served = serving.block_on(async {
        let incoming = TcpIncoming::bind(address).map_err(|error| wrong_address(error.to_string()))?;
        let incoming = incoming.with_nodelay(Some(true));
        let bound = incoming.local_addr().map_err(|error| wrong_address(error.to_string()))?;
        // For whoever started it; a reader that has gone needs no line.
        let scheme = if listening.tls().is_some() { "grpc+tls" } else { "grpc+tcp" };
        let mut out = std::io::stdout();
        let _ = writeln!(out, "{scheme}://{bound}").and_then(|()| out.flush());
        let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|error| Failure::new(format!("can't take signals: {error}")))?;
        let (ending, ended) = tokio::sync::oneshot::channel();
        let end = async move {
            tokio::select! { _ = tokio::signal::ctrl_c() => {}, _ = term.recv() => {} }
            let _ = ending.send(());
        };
        let patience = async move {
            let _ = ended.await;
            tokio::time::sleep(END_PATIENCE).await;
        };
        let served = router.serve_with_incoming_shutdown(incoming, end);
        tokio::select! {
            served = served => served.map_err(|error| Failure::new(format!("serving has ended: {error}"))),
            () = patience => Ok(()),
        }
    });
    // What is still computed is not waited for.
    serving.shutdown_background();
    served
}

/// Takes as long for every wrong token of the same length.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

/// The token as a bearer's, or as the password of any user, as clients send it in a handshake.
fn is_known<T>(request: &Request<T>, token: &str) -> bool {
    let Some(text) = request.metadata().get("authorization").and_then(|value| value.to_str().ok()) else {
        return false;
    };
    if let Some(given) = text.strip_prefix("Bearer ") {
        return is_same(given.as_bytes(), token.as_bytes());
    }
    let Some(encoded) = text.strip_prefix("Basic ") else { return false };
    // Go's driver leaves the padding out.
    let Ok(pair) = STANDARD_NO_PAD.decode(encoded.trim_end_matches('=')) else { return false };
    pair.iter().position(|&byte| byte == b':').is_some_and(|colon| is_same(&pair[colon + 1..], token.as_bytes()))
}
