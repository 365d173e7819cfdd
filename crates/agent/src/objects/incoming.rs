//! Agents that forward to this one. Each has one conversation at a time: when the network was cut, puts of an older one may still be
//! on their way, and must not come after newer ones.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use terrace_core::objects::{Kind, ObjectError, Result};

/// How long a put that has arrived whole may take, when its conversation has been ended.
const PATIENCE: Duration = Duration::from_secs(60);

type BySender = Arc<Mutex<HashMap<u64, Arc<Conversation>>>>;

#[derive(Default)]
pub struct Incoming {
    by_sender: BySender,
}

struct Conversation {
    socket: TcpStream,
    has_ended: Mutex<bool>,
    ended: Condvar,
}

/// Held by the thread of the conversation.
pub struct Attended {
    who: u64,
    conversation: Arc<Conversation>,
    by_sender: BySender,
}

impl Drop for Attended {
    fn drop(&mut self) {
        {
            let mut by_sender = self.by_sender.lock().unwrap();
            if by_sender.get(&self.who).is_some_and(|known| Arc::ptr_eq(known, &self.conversation)) {
                by_sender.remove(&self.who);
            }
        }
        *self.conversation.has_ended.lock().unwrap() = true;
        self.conversation.ended.notify_all();
    }
}

impl Incoming {
    /// From now on this conversation speaks for the sender; an older one has ended.
    pub fn take_over(&self, who: u64, socket: &TcpStream) -> Result<Attended> {
        let failed = |error: std::io::Error| ObjectError::new(Kind::System, format!("a socket can't be used: {error}"));
        let socket = socket.try_clone().map_err(failed)?;
        let conversation = Arc::new(Conversation { socket, has_ended: Mutex::new(false), ended: Condvar::new() });
        let older = self.by_sender.lock().unwrap().insert(who, conversation.clone());
        let attended = Attended { who, conversation, by_sender: self.by_sender.clone() };
        if let Some(older) = older {
            // It may be closed already.
            let _ = older.socket.shutdown(Shutdown::Both);
            let has_ended = older.has_ended.lock().unwrap();
            let (has_ended, waited) = older.ended.wait_timeout_while(has_ended, PATIENCE, |ended| !*ended).unwrap();
            drop(has_ended);
            if waited.timed_out() {
                // Whoever comes next waits for that one, too.
                self.by_sender.lock().unwrap().insert(who, older);
                return Err(ObjectError::new(Kind::Busy, "an earlier put of this agent is still being done"));
            }
        }
        Ok(attended)
    }
}
