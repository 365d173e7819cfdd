//! What the agent of this node says of its tiers and of what moves between them.

use crate::refusal::{Answer, Refusal};
use axum::http::StatusCode;
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use terrace_client::Session;
use terrace_core::control::{Ended, Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(10);
const SOCKET: &str = "control";
/// An answer that is longer is none.
const ANSWER_MAX: u64 = 64 << 20;

pub fn status(session: &Session) -> Answer<Status> {
    match asked(session, &Request::Status)? {
        Response::Status { status } => Ok(status),
        _ => Err(unexpected(session)),
    }
}

/// What has ended, from this number on.
pub fn ended(session: &Session, since: u64) -> Answer<Ended> {
    match asked(session, &Request::Ended { since })? {
        Response::Ended { ended } => Ok(ended),
        _ => Err(unexpected(session)),
    }
}

fn asked(session: &Session, request: &Request) -> Answer<Response> {
    let Some(directory) = session.runtime_directory() else {
        return Err(Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "the tiers of an agent on another node are not to be seen from here",
        ));
    };
    ask(directory, request).map_err(|error| refused(session, &error))
}

fn refused(session: &Session, error: &Error) -> Refusal {
    let message = format!("the agent of {} does not answer: {error}", session.root().display());
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
}

fn unexpected(session: &Session) -> Refusal {
    refused(session, &Error::other("it said something else"))
}

fn ask(directory: &Path, request: &Request) -> std::io::Result<Response> {
    // A socket's address holds 108 bytes; a directory's descriptor makes any path short.
    let handle = std::fs::File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(handle.as_raw_fd().to_string()).join(SOCKET);
    let stream = UnixStream::connect(short)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(&stream).take(ANSWER_MAX).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}
