//! Where an agent listens for clients elsewhere: its token, and the certificate that clients know by its fingerprint.
//!
//! Beside the token's file lie `.certificate`, `.key` and `.fingerprint`. They are made once: an agent that is started again is
//! the one that its clients know.

use crate::args::ServeArgs;
use crate::failure::{Failure, Result};
use std::io::Write;
use std::net::ToSocketAddrs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use terrace_client::FINGERPRINT_SUFFIX;
use terrace_core::settings::{ListenSettings, Protection};

/// What the flags say; makes what is missing of token and certificate.
pub fn wanted(args: &ServeArgs) -> Result<Option<ListenSettings>> {
    let (Some(address), Some(file)) = (&args.listen, &args.token_file) else { return Ok(None) };
    let token_file = std::path::absolute(file).map_err(|error| Failure::io("find", file, error))?;
    let protection = match (args.plain, args.tls || !is_loopback(address)?) {
        (true, _) => Protection::Plain,
        (false, true) => tls(&token_file)?,
        (false, false) => Protection::Loopback,
    };
    if !token_file.exists() {
        write_private(&token_file, &format!("{}\n", random_token()?))?;
    }
    Ok(Some(ListenSettings { address: address.clone(), token_file, protection }))
}

fn is_loopback(address: &str) -> Result<bool> {
    let mut found = address.to_socket_addrs().map_err(|error| {
        Failure::bad_input(format!("{address} is no address to listen on: {error}"), "give one as --listen ADDRESS:PORT")
    })?;
    Ok(found.all(|found| found.ip().is_loopback()))
}

fn random_token() -> Result<String> {
    let mut bytes = [0u8; 24];
    let random = Path::new("/dev/urandom");
    std::fs::File::open(random)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|error| Failure::io("read", random, error))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn beside(token_file: &Path, suffix: &str) -> PathBuf {
    let mut name = token_file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn tls(token_file: &Path) -> Result<Protection> {
    let (certificate, key) = (beside(token_file, ".certificate"), beside(token_file, ".key"));
    if !certificate.exists() || !key.exists() {
        let failed = |error: rcgen::Error| Failure::new(format!("no certificate can be made: {error}"));
        let made = rcgen::generate_simple_self_signed(vec!["terrace".into()]).map_err(failed)?;
        write_private(&key, &made.signing_key.serialize_pem())?;
        write_private(&certificate, &made.cert.pem())?;
        let known = format!("{}\n", terrace_client::fingerprint(made.cert.der()));
        write_private(&beside(token_file, FINGERPRINT_SUFFIX), &known)?;
    }
    Ok(Protection::Tls { certificate, key })
}

/// Whole or not at all, for this user alone.
fn write_private(path: &Path, text: &str) -> Result<()> {
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
