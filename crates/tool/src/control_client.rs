//! The agent's control socket, from the client's side: one request, progress, one last response.

use crate::failure::{Failure, Result};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use terrace_core::control::{Request, Response, Status};
use terrace_core::settings::Settings;

const LOOK_PATIENCE: Duration = Duration::from_secs(30);

pub struct Client {
    stream: BufReader<UnixStream>,
}

/// What a move of files came to.
#[derive(Debug, Default)]
pub struct Moved {
    pub files: u64,
    pub bytes: u64,
    pub failures: Vec<terrace_core::control::Failure>,
    pub open_files: Vec<std::path::PathBuf>,
}

impl Client {
    pub fn connect(settings: &Settings) -> io::Result<Client> {
        Client::connect_to(&settings.control_socket())
    }

    pub fn connect_to(socket: &Path) -> io::Result<Client> {
        // A socket's address holds 108 bytes; a directory's descriptor makes any path short.
        let directory = socket.parent().expect("a socket lies in a directory");
        let name = socket.file_name().expect("a socket has a name");
        let handle = std::fs::File::open(directory)?;
        let short = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&handle).to_string()).join(name);
        Ok(Client { stream: BufReader::new(UnixStream::connect(short)?) })
    }

    /// A program that this one becomes goes on being connected.
    pub fn keep_through_exec(&self) -> io::Result<()> {
        Ok(rustix::io::fcntl_setfd(self.stream.get_ref(), rustix::io::FdFlags::empty())?)
    }

    /// A second handle, to end a blocked `ask` from another thread.
    pub fn handle(&self) -> io::Result<UnixStream> {
        self.stream.get_ref().try_clone()
    }

    /// Sends a request and gives its last response; `progress` sees the others.
    pub fn ask(&mut self, request: &Request, mut progress: impl FnMut(&Response)) -> io::Result<Response> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        loop {
            let response = self.receive()?;
            if response.is_last() {
                return Ok(response);
            }
            progress(&response);
        }
    }

    fn receive(&mut self) -> io::Result<Response> {
        let mut line = vec![];
        self.stream.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the agent ended the connection"));
        }
        Ok(serde_json::from_slice(&line)?)
    }

    /// Blocks until the agent ends the connection (`None`), or says something.
    pub fn wait_for_word(&mut self) -> Option<Response> {
        self.receive().ok()
    }

    /// As `wait_for_word`, but an error when nothing is heard for so long.
    pub fn wait_for_word_within(&mut self, patience: Duration) -> io::Result<Option<Response>> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        let heard = self.receive();
        self.stream.get_ref().set_read_timeout(None)?;
        match heard {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => Err(error),
            heard => Ok(heard.ok()),
        }
    }

    /// Whoever serves the other end. 0: it lies in another PID namespace.
    pub fn agent_pid(&self) -> u32 {
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let fd = std::os::fd::AsRawFd::as_raw_fd(self.stream.get_ref());
        // SAFETY: the buffer has the length that is said; on failure it stays as it is.
        unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &mut length) };
        peer.pid.max(0) as u32
    }

    pub fn status(&mut self) -> io::Result<Status> {
        // A look is answered at once, or the agent is not well; moves may take as long as they need.
        self.stream.get_ref().set_read_timeout(Some(LOOK_PATIENCE))?;
        let answer = self.ask(&Request::Status, |_| {});
        self.stream.get_ref().set_read_timeout(None)?;
        match answer? {
            Response::Status { status } => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    pub fn move_files(&mut self, request: &Request, progress: impl FnMut(&Response)) -> io::Result<Moved> {
        match self.ask(request, progress)? {
            Response::Flushed { files, bytes, failures, open_files } => {
                Ok(Moved { files, bytes, failures, open_files })
            }
            other => Err(unexpected(other)),
        }
    }
}

/// An answer of another kind; an `Error`'s own words.
pub fn unexpected(response: Response) -> io::Error {
    match response {
        Response::Error { message, hint: Some(hint) } => io::Error::other(format!("{message} ({hint})")),
        Response::Error { message, hint: None } => io::Error::other(message),
        other => io::Error::other(format!("the agent answered {other:?}; is it of another version?")),
    }
}

pub fn lost(error: io::Error) -> Failure {
    Failure::new(format!("the agent could not answer: {error}"))
        .hint("`terrace status` shows whether it runs; `terrace doctor` names its log")
}

/// The agent of these settings, if one runs.
pub fn running(settings: &Settings) -> Result<Option<(Client, Status)>> {
    let Ok(mut client) = Client::connect(settings) else { return Ok(None) };
    match client.status() {
        Ok(status) => Ok(Some((client, status))),
        // It ended in this moment.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(lost(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn progress_is_seen_before_the_last_response_and_a_dead_agent_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("d".repeat(120));
        std::fs::create_dir(&deep).unwrap();
        // A listener can't be made at a path that long: make it and move it.
        let listener = UnixListener::bind(place.path().join("control")).unwrap();
        std::fs::rename(place.path().join("control"), deep.join("control")).unwrap();
        let server = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request: Request = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            assert_eq!(request, Request::Evict { paths: vec!["/x".into()] });
            let say = |response: &Response| {
                (&stream).write_all(format!("{}\n", serde_json::to_string(response).unwrap()).as_bytes()).unwrap();
            };
            say(&Response::Progress { files_done: 1, files_total: 2, bytes_done: 3, bytes_total: 4 });
            say(&Response::Flushed { files: 2, bytes: 4, failures: vec![], open_files: vec![] });
            lines.next().unwrap().unwrap();
        });
        let mut client = Client::connect_to(&deep.join("control")).unwrap();
        let mut seen = 0;
        let moved = client.move_files(&Request::Evict { paths: vec!["/x".into()] }, |_| seen += 1).unwrap();
        assert_eq!((moved.files, moved.bytes, seen), (2, 4, 1));
        assert_eq!(client.status().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        server.join().unwrap();
    }
}
