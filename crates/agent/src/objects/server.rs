//! The objects socket: one thread for each client, frames both ways.

use super::Server;
use super::codecs::decoded_chunk;
use crate::shared::accept;
use crate::shared::request::{Outcome, Scope};
use crate::shared::runs::Serving;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use terrace_core::members;
use terrace_core::objects::wire::{FRAME_BYTES, Frame, Request, Response, decode, encode};
use terrace_core::objects::{Kind, ObjectError, Result, check_key};
use terrace_index::PRIVATE_DIR;
use terrace_objects::{normal_path, placed};

/// Memory for a message before any of it has come; nearly all are shorter.
const MESSAGE_AT_ONCE: usize = 64 << 10;

/// Accepts until the socket is shut down.
pub fn serve(server: &Arc<Server>, listener: &UnixListener) {
    accept::each(
        server,
        &server.schedule,
        "objects",
        || accept::own(listener),
        |server, connection| server.attend(&connection),
    );
}

impl Server {
    /// Until the client leaves, or says something that can't be understood.
    fn attend(&self, mut connection: &UnixStream) {
        // The agent stays as long as a session does.
        let _serving = Serving::new(&self.runs);
        loop {
            let request = match receive(&mut connection, 0) {
                Ok(Some((request, _))) => request,
                Ok(None) => return,
                Err(error) => {
                    let _ = send(&mut connection, &Response::Failed(error), &[]);
                    return;
                }
            };
            let (response, payload) = match self.answer_object(request, &|| has_left(connection)) {
                Ok(answer) => answer,
                Err(error) => (Response::Failed(error), vec![]),
            };
            if send(&mut connection, &response, &payload).is_err() {
                return;
            }
        }
    }

    /// `has_left`: nobody waits for the answer any more.
    pub fn answer_object(&self, request: Request, has_left: &dyn Fn() -> bool) -> Result<(Response, Vec<u8>)> {
        let root = &self.settings.root;
        let scope = |path: &str| -> Result<Scope> {
            let relative = normal_path(root, path)?;
            Ok(Scope(if relative.as_os_str().is_empty() { vec![] } else { vec![root.join(relative)] }))
        };
        let done = Ok((Response::Done, vec![]));
        match request {
            Request::Hello { .. } => done,
            Request::Flush { path } => outcome(self.requests.flush(&scope(&path)?)),
            Request::Evict { path } => outcome(self.requests.evict(&scope(&path)?)),
            Request::Prefetch { path } => {
                let Scope(paths) = scope(&path)?;
                let paths = if paths.is_empty() { vec![root.clone()] } else { paths };
                outcome(self.requests.prefetch(&Scope(paths)))
            }
            Request::Compact { path } => {
                self.compact_array(&self.checked_path(&path)?)?;
                done
            }
            Request::MakeRoom { bytes } => {
                self.make_room_for_objects(bytes.min(i64::MAX as u64 / 4))?;
                done
            }
            Request::PutTags { path, tags } => {
                for (key, value) in &tags {
                    check_key(key)?;
                    value.check()?;
                }
                let name = self.checked_name(&path)?;
                if self.object_path_of(&name).symlink_metadata().is_err() {
                    return Err(ObjectError::new(Kind::NotFound, format!("there is no object `{path}`")));
                }
                // What zarr.json says is not to be forgotten by saying more.
                self.learn_tags(&name);
                self.tags.lock().unwrap().put(&name, tags).map_err(|error| not_written(&error))?;
                done
            }
            Request::DeleteTag { path, key } => {
                let name = self.checked_name(&path)?;
                self.learn_tags(&name);
                let deleted = self.tags.lock().unwrap().delete(&name, &key);
                match deleted.map_err(|error| not_written(&error))? {
                    true => done,
                    false => Err(ObjectError::new(Kind::NotFound, format!("`{path}` has no tag `{key}`"))),
                }
            }
            Request::ForgetTags { path } => {
                let name = self.checked_name(&path)?;
                self.forget_missing(&name)?;
                done
            }
            Request::Renamed { from, to } => {
                self.object_was_renamed(&self.checked_name(&from)?, &self.checked_name(&to)?)?;
                done
            }
            Request::Reshape { path, shape } => {
                self.reshape_array(&self.checked_path(&path)?, &shape)?;
                done
            }
            Request::Tags { path } => {
                let tags = self.tags_of(&self.checked_name(&path)?);
                Ok((Response::Tags { tags }, vec![]))
            }
            Request::Tag { path, key } => {
                let name = self.checked_name(&path)?;
                self.learn_tags(&name);
                let found = self.tags.lock().unwrap().one(&name, &key);
                Ok((Response::Tags { tags: found.map(|value| (key, value)).into_iter().collect() }, vec![]))
            }
            Request::Query { query } => {
                let found = self.tags.lock().unwrap().query(&query);
                // Programs remove files without telling of their tags.
                let paths =
                    found.into_iter().filter(|name| self.object_path_of(name).symlink_metadata().is_ok()).collect();
                Ok((Response::Paths { paths }, vec![]))
            }
            Request::Members => {
                let Some(membership) = &self.settings.member else {
                    return Ok((Response::Members { number: 0, members: vec![], token: String::new() }, vec![]));
                };
                let members = terrace_client::agents_of(root)?.ok_or_else(|| {
                    ObjectError::new(Kind::NoAgent, format!("agent 0 of {} is not there yet", root.display()))
                })?;
                let token = match &self.settings.listen {
                    Some(listen) => std::fs::read_to_string(&listen.token_file).unwrap_or_default().trim().to_owned(),
                    None => String::new(),
                };
                Ok((Response::Members { number: membership.number, members, token }, vec![]))
            }
            Request::QueryNode => {
                let Some(membership) = &self.settings.member else {
                    return Ok((Response::QueryNode { address: None }, vec![]));
                };
                let file = members::directory(root, PRIVATE_DIR).join(members::queries(membership.number));
                let address = std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned());
                Ok((Response::QueryNode { address }, vec![]))
            }
            Request::Whose { path } => {
                Ok((Response::Whose { member: placed::member_of(&self.checked_path(&path)?) }, vec![]))
            }
            Request::SyncForwards { path, patience_ms } => {
                self.sync_forwards(&self.checked_name(&path)?, patience_ms.map(Duration::from_millis), has_left)?;
                done
            }
            Request::Root => Ok((Response::Root { path: root.display().to_string() }, vec![])),
            Request::Chunk { path, chunk } => match decoded_chunk(&self.checked_path(&path)?, &chunk)? {
                Some(cells) => Ok((Response::Bytes, cells)),
                None => done,
            },
            other => Err(ObjectError::new(Kind::Protocol, format!("{other:?} is not for clients of this node"))),
        }
    }

    /// Tags of the object, and of containers above it, as far as they are not there: what has the name next is another object.
    fn forget_missing(&self, name: &str) -> Result<()> {
        // Looked at with the lock: whoever makes the object meanwhile tags it afterwards.
        let mut tags = self.tags.lock().unwrap();
        let is_missing = |path: &Path| {
            let looked = self.object_path_of(&path.to_string_lossy()).symlink_metadata();
            looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        };
        let missing = Path::new(name).ancestors().take_while(|path| is_missing(path)).last();
        match missing {
            Some(path) => tags.forget(&path.to_string_lossy()).map_err(|error| not_written(&error)),
            None => Ok(()),
        }
    }

    fn checked_path(&self, path: &str) -> Result<PathBuf> {
        Ok(self.settings.root.join(normal_path(&self.settings.root, path)?))
    }

    fn checked_name(&self, path: &str) -> Result<String> {
        let relative = normal_path(&self.settings.root, path)?;
        relative.into_os_string().into_string().map_err(|_| ObjectError::invalid("a name that is not UTF-8"))
    }
}

pub fn not_written(error: &std::io::Error) -> ObjectError {
    ObjectError::new(Kind::System, format!("the tag could not be written down: {error}"))
}

fn outcome(outcome: Outcome) -> Result<(Response, Vec<u8>)> {
    match outcome.failures.first() {
        None => Ok((Response::Written { bytes: outcome.bytes }, vec![])),
        Some(first) => {
            let others = outcome.failures.len() - 1;
            let others = if others == 0 { String::new() } else { format!(", and {others} others") };
            let message = format!("{} could not be moved: {}{others}", first.path.display(), first.reason);
            Err(ObjectError::new(Kind::System, message))
        }
    }
}

/// Whoever is at the other end has closed the connection, or was killed.
pub fn has_left(connection: impl AsFd) -> bool {
    let left = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut looked = [PollFd::new(&connection, PollFlags::RDHUP)];
    poll(&mut looked, Some(&Timespec::default())).is_ok() && looked[0].revents().intersects(left)
}

/// The next request; `None`: the client has left.
pub fn receive(connection: &mut impl Read, payload_max: u64) -> Result<Option<(Request, Vec<u8>)>> {
    let Some((request, payload_bytes)) = receive_request(connection, payload_max)? else { return Ok(None) };
    Ok(receive_payload(connection, payload_bytes, vec![]).map(|payload| (request, payload)))
}

/// The next request, and how long the payload is that follows it.
pub fn receive_request(connection: &mut impl Read, payload_max: u64) -> Result<Option<(Request, u64)>> {
    let mut head = [0; FRAME_BYTES];
    if connection.read_exact(&mut head).is_err() {
        return Ok(None);
    }
    let frame = Frame::decode(&head)?;
    if frame.payload_bytes > payload_max {
        return Err(ObjectError::new(Kind::Protocol, "a payload that was not expected"));
    }
    // Nothing is allocated by what is claimed: a long message's memory comes with it.
    let room = Vec::with_capacity((frame.message_bytes as usize).min(MESSAGE_AT_ONCE));
    let Some(message) = receive_payload(connection, frame.message_bytes.into(), room) else { return Ok(None) };
    decode(&message).map(|request| Some((request, frame.payload_bytes)))
}

/// Into memory that was used before. It grows with what comes, not with what is claimed.
pub fn receive_payload(connection: &mut impl Read, payload_bytes: u64, mut buffer: Vec<u8>) -> Option<Vec<u8>> {
    let warm = buffer.capacity().min(payload_bytes as usize);
    // What was there is overwritten; only what is longer than before has to be cleared.
    buffer.resize(warm, 0);
    connection.read_exact(&mut buffer[..warm]).ok()?;
    let rest = payload_bytes - warm as u64;
    let got = connection.take(rest).read_to_end(&mut buffer).ok()?;
    (got as u64 == rest).then_some(buffer)
}

pub fn send(connection: &mut impl Write, response: &Response, payload: &[u8]) -> std::io::Result<()> {
    let head = encode(response, payload.len() as u64).map_err(|error| std::io::Error::other(error.message))?;
    connection.write_all(&head)?;
    connection.write_all(payload)?;
    connection.flush()
}
