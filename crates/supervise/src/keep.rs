//! The keeper: holds the listener and the shared state, and starts the supervisor again when it dies.
//!
//! Reason: when the last descriptor of a listener is closed, every trapped call of every program fails. A supervisor does much
//! and may be killed; a keeper does nothing but wait.

use crate::state::SharedState;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

/// A supervisor that dies sooner is started again only after a moment.
const WELL: Duration = Duration::from_millis(20);

/// The exit code of a supervisor that would fail again (EX_CONFIG): its library or its index is of another version.
pub const HOPELESS: i32 = 78;

/// Keeps a supervisor at work until the last program under the filter has ended. `start` starts one, with these two
/// descriptors. Returns how often one had to be started again.
pub fn keep(
    listener: &OwnedFd,
    umask: u32,
    mut start: impl FnMut(BorrowedFd<'_>, BorrowedFd<'_>) -> io::Result<Child>,
    mut died: impl FnMut(String),
) -> io::Result<u32> {
    use std::os::fd::AsFd;
    let state = SharedState::create(umask)?;
    let mut restarts = 0;
    loop {
        let begun = Instant::now();
        // Programs wait meanwhile: there is nothing better than to try again.
        let how = match start(listener.as_fd(), state.fd()) {
            Ok(mut child) => match child.wait() {
                Ok(status) if status.success() => return Ok(restarts),
                // Without a listener the programs' calls fail, which is better than to wait for ever.
                Ok(status) if status.code() == Some(HOPELESS) => return Err(io::ErrorKind::Unsupported.into()),
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if has_hung_up(listener) {
            return Ok(restarts);
        }
        restarts += 1;
        died(how);
        if begun.elapsed() < WELL {
            std::thread::sleep(WELL);
        }
    }
}

/// The last program under the filter has ended.
fn has_hung_up(listener: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one live structure.
    unsafe { libc::poll(&mut poll, 1, 0) > 0 && poll.revents & libc::POLLHUP != 0 }
}
