//! Sockets that clients connect to: one loop for each socket, one thread for each connection.

use super::schedule::Schedule;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use terrace_core::control::Response;

/// How long accepting rests when it has failed: out of descriptors, or the end.
const REST: Duration = Duration::from_millis(10);

/// A socket of this user alone.
pub fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// The next connection of this user; `None`: somebody else's.
pub fn own(listener: &UnixListener) -> std::io::Result<Option<UnixStream>> {
    let (connection, _) = listener.accept()?;
    let peer = rustix::net::sockopt::socket_peercred(connection.as_fd());
    Ok(peer.is_ok_and(|peer| peer.uid == rustix::process::geteuid()).then_some(connection))
}

/// Attends to each connection in a thread of its own, until the agent ends and the socket is shut down.
pub fn each<Server: Send + Sync + 'static, Connection: Send + 'static>(
    server: &Arc<Server>,
    schedule: &Schedule,
    thread: &str,
    accept: impl Fn() -> std::io::Result<Option<Connection>>,
    attend: impl Fn(&Server, Connection) + Clone + Send + 'static,
) {
    loop {
        let accepted = accept();
        if schedule.has_ended() {
            return;
        }
        let connection = match accepted {
            Ok(Some(connection)) => connection,
            Ok(None) => continue,
            Err(_) => {
                std::thread::sleep(REST);
                continue;
            }
        };
        let (server, attend) = (server.clone(), attend.clone());
        let spawned = std::thread::Builder::new().name(thread.into()).spawn(move || attend(&server, connection));
        if let Err(error) = spawned {
            eprintln!("terrace agent: can't start a thread for a client: {error}");
        }
    }
}

/// One line of JSON. False: nobody listens any more.
pub fn send(mut writer: &UnixStream, response: &Response) -> bool {
    let Ok(mut line) = serde_json::to_vec(response) else { return false };
    line.push(b'\n');
    writer.write_all(&line).is_ok()
}
