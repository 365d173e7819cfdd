//! Where an agent listens for clients elsewhere: its token, and the certificate that clients know by its fingerprint.
//!
//! Beside the token's file lie `.certificate`, `.key` and `.fingerprint`. They are made once: an agent that is started again is
//! the one that its clients know.

use crate::args::ServeArgs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use terrace_client::FINGERPRINT_SUFFIX;
use terrace_core::members;
use terrace_core::settings::{ListenSettings, Protection, Settings};
use terrace_tool::failure::{Failure, Result};

/// The token of a server of HTTP that was given none.
const HTTP_TOKEN: &str = "web.token";

/// What the flags say; makes what is missing of token and certificate.
pub fn wanted(args: &ServeArgs, settings: &Settings) -> Result<Option<ListenSettings>> {
    let address = match (&args.listen, &settings.member) {
        (Some(address), _) => address.clone(),
        (None, Some(_)) => format!("{}:0", rustix::system::uname().nodename().to_string_lossy()),
        (None, None) => return Ok(None),
    };
    let addresses = resolved(&address, "--listen")?;
    if let Some(member) = &settings.member {
        let directory = members::directory(&settings.root, terrace_index::PRIVATE_DIR);
        crate::agent_process::make_private(&directory)?;
        write_private(&directory.join(members::LAUNCH), &format!("{}\n", member.launch))?;
    }
    let (token_file, certificate) = match (&args.token_file, &settings.member) {
        (Some(file), member) => {
            let file = std::path::absolute(file).map_err(|error| Failure::io("find", file, error))?;
            let suffix = member.as_ref().map_or(String::new(), |member| members::suffix(member.number));
            (file.clone(), beside(&file, &suffix))
        }
        (None, Some(member)) => {
            let directory = members::directory(&settings.root, terrace_index::PRIVATE_DIR);
            (directory.join(members::TOKEN), directory.join(format!("agent{}", members::suffix(member.number))))
        }
        (None, None) => {
            return Err(Failure::bad_input("--listen needs a token", "say where it is to lie with --token-file FILE"));
        }
    };
    if settings.member.is_some() && addresses.iter().any(|address| address.ip().is_unspecified()) {
        return Err(Failure::bad_input(
            format!("{address} is no address that others can connect to"),
            "give this host's own: --listen HOST:0",
        ));
    }
    let protection = protection(&named(args, &address), &addresses, args.tls, args.plain, &certificate)?;
    make_token(&token_file)?;
    Ok(Some(ListenSettings { address, token_file, protection }))
}

/// The same token and certificate, at another address; of several agents, of the first one's alone.
pub fn of_flight(args: &ServeArgs, settings: &Settings) -> Result<Option<ListenSettings>> {
    if settings.member.as_ref().is_some_and(|member| member.number > 0) {
        return Ok(None);
    }
    let Some(address) = &args.flight else { return Ok(None) };
    let addresses = resolved(address, "--flight")?;
    // It is told on the host where the agents were asked for.
    let is_of_this_host =
        |agent: &ListenSettings| resolved(&agent.address, "--listen").is_ok_and(|all| are_loopback(&all));
    let is_elsewhere = settings.member.is_some() && !settings.listen.as_ref().is_some_and(is_of_this_host);
    if is_elsewhere && addresses.iter().any(|address| address.ip().is_unspecified() || address.ip().is_loopback()) {
        return Err(Failure::bad_input(
            format!("--flight {address} is no address that clients on other hosts can connect to"),
            "give the first host's own: --flight HOST:PORT",
        ));
    }
    let Some(file) = &args.token_file else {
        return Err(Failure::bad_input("--flight needs a token", "say where it is to lie with --token-file FILE"));
    };
    let file = std::path::absolute(file).map_err(|error| Failure::io("find", file, error))?;
    let protection = protection(&named(args, address), &addresses, args.tls, args.plain, &file)?;
    make_token(&file)?;
    Ok(Some(ListenSettings { address: address.clone(), token_file: file, protection }))
}

fn are_loopback(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| address.ip().is_loopback())
}

/// What clients may call this host, whichever address the certificate is made for first.
fn named<'a>(args: &'a ServeArgs, address: &'a str) -> Vec<&'a str> {
    [Some(address), args.listen.as_deref(), args.flight.as_deref()].into_iter().flatten().collect()
}

/// `named`: addresses of which the certificate has the hosts.
fn protection(
    named: &[&str],
    addresses: &[SocketAddr],
    tls_wanted: bool,
    plain: bool,
    certificate: &Path,
) -> Result<Protection> {
    match (plain, tls_wanted || !are_loopback(addresses)) {
        (true, _) => Ok(Protection::Plain),
        (false, true) => tls(certificate, named),
        (false, false) => Ok(Protection::Loopback),
    }
}

/// Where HTTP is served; makes what is missing of token and certificate. Without a file of its own the token lies in the state.
pub fn for_http(
    address: &str,
    token_file: Option<&Path>,
    tls_wanted: bool,
    plain: bool,
    settings: &Settings,
) -> Result<ListenSettings> {
    let token_file = match token_file {
        Some(file) => std::path::absolute(file).map_err(|error| Failure::io("find", file, error))?,
        None => {
            crate::agent_process::make_private(&settings.state)?;
            settings.state.join(HTTP_TOKEN)
        }
    };
    let protection = protection(&[address], &resolved(address, "--http")?, tls_wanted, plain, &token_file)?;
    make_token(&token_file)?;
    Ok(ListenSettings { address: address.into(), token_file, protection })
}

fn resolved(address: &str, flag: &str) -> Result<Vec<SocketAddr>> {
    address.to_socket_addrs().map(Iterator::collect).map_err(|error| {
        Failure::bad_input(
            format!("{address} is no address to listen on: {error}"),
            format!("give one as {flag} ADDRESS:PORT"),
        )
    })
}

/// Several agents may do so at once: one of them makes it.
fn make_token(file: &Path) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    let own = beside(file, &format!(".made-{}", std::process::id()));
    write_private(&own, &format!("{}\n", random_token()?))?;
    let linked = std::fs::hard_link(&own, file);
    let _ = std::fs::remove_file(&own);
    match linked {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(Failure::io("write", file, error)),
        _ => Ok(()),
    }
}

fn random_token() -> Result<String> {
    let mut bytes = [0u8; 24];
    let random = Path::new("/dev/urandom");
    std::fs::File::open(random)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|error| Failure::io("read", random, error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Ours know the certificate itself; other clients (of Flight SQL) look for the name that they have called.
fn names(named: &[&str]) -> Vec<String> {
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_plain = !own.is_empty() && own.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    let mut names: Vec<String> = ["terrace", "localhost", "127.0.0.1", "::1"].map(String::from).into();
    names.extend(is_plain.then_some(own));
    for address in named {
        let host = address.rsplit_once(':').map_or(*address, |(host, _)| host).trim_matches(['[', ']']);
        let is_unspecified = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        let is_known = host.is_empty() || is_unspecified || names.iter().any(|known| known == host);
        names.extend((!is_known).then(|| host.into()));
    }
    names
}

/// `stem`: what the names of the files begin with; `named`: where clients come to.
fn tls(stem: &Path, named: &[&str]) -> Result<Protection> {
    let (certificate, key) = (beside(stem, ".certificate"), beside(stem, ".key"));
    if !certificate.exists() || !key.exists() {
        let failed = |error: rcgen::Error| Failure::new(format!("no certificate can be made: {error}"));
        let made = rcgen::generate_simple_self_signed(names(named)).map_err(failed)?;
        write_private(&key, &made.signing_key.serialize_pem())?;
        write_private(&certificate, &made.cert.pem())?;
        let known = format!("{}\n", terrace_client::fingerprint(made.cert.der()));
        write_private(&beside(stem, FINGERPRINT_SUFFIX), &known)?;
    }
    Ok(Protection::Tls { certificate, key })
}

/// Whole or not at all, for this user alone.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    let temporary = beside(path, &format!(".{}", std::process::id()));
    let written = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|error| Failure::io("write", path, error))
}
