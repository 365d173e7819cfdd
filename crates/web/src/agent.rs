//! What the agent of this node says of its tiers and of what moves between them.

use crate::refusal::{Answer, Refusal};
use axum::http::StatusCode;
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use terrace_client::Session;
use terrace_core::control::{Request, Response, Status};

const PATIENCE: Duration = Duration::from_secs(10);
const SOCKET: &str = "control";
/// An answer that is longer is none.
const ANSWER_MAX: u64 = 64 << 20;

pub fn status(session: &Session) -> Answer<Status> {
    let Some(directory) = session.runtime_directory() else {
        return Err(Refusal::new(
            StatusCode::NOT_IMPLEMENTED,
            "the tiers of an agent on another node are not to be seen from here",
        ));
    };
    ask(directory).map_err(|error| {
        let message = format!("the agent of {} does not answer: {error}", session.root().display());
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message)
    })
}

fn ask(directory: &Path) -> std::io::Result<Status> {
    // A socket's address holds 108 bytes; a directory's descriptor makes any path short.
    let handle = std::fs::File::open(directory)?;
    let short = Path::new("/proc/self/fd").join(handle.as_raw_fd().to_string()).join(SOCKET);
    let stream = UnixStream::connect(short)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(&Request::Status)?;
    line.push(b'\n');
    (&stream).write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(&stream).take(ANSWER_MAX).read_line(&mut answer)?;
    match serde_json::from_str(&answer)? {
        Response::Status { status } => Ok(status),
        _ => Err(Error::other("it said something else")),
    }
}
