//! Agents that forward to this one. Each has one conversation at a time: when the network was cut, puts of an older one may still be
//! on their way, and must not come after newer ones.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use terrace_core::objects::{Kind, ObjectError, Result};

/// How long a put that has arrived whole may take, when its conversation has been ended.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Incoming {
    by_lane: Mutex<HashMap<u64, Arc<Conversation>>>,
}

struct Conversation {
    socket: TcpStream,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// Held by the thread of the conversation.
pub struct Attended(Arc<Conversation>);

impl Drop for Attended {
    fn drop(&mut self) {
        *self.0.has_ended.lock().unwrap() = true;
        self.0.ended.notify_all();
    }
}

impl Incoming {
    /// From now on this conversation speaks for the lane; an older one has ended.
    pub fn take_over(&self, who: u64, socket: &TcpStream) -> Result<Attended> {
        let failed = |error: std::io::Error| ObjectError::new(Kind::System, format!("a socket can't be used: {error}"));
        let socket = socket.try_clone().map_err(failed)?;
        let fresh = Arc::new(Conversation { socket, has_ended: Mutex::new(false), ended: Condvar::new() });
        let older = self.by_lane.lock().unwrap().insert(who, fresh.clone());
        if let Some(older) = older {
            // It may be closed already.
            let _ = older.socket.shutdown(Shutdown::Both);
            let has_ended = older.has_ended.lock().unwrap();
            let waited = older.ended.wait_timeout_while(has_ended, PATIENCE, |ended| !*ended).unwrap().1;
            if waited.timed_out() {
                drop(Attended(fresh));
                return Err(ObjectError::new(Kind::Busy, "an earlier put of this agent is still being done"));
            }
        }
        Ok(Attended(fresh))
    }
}
