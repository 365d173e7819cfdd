//! The owner's side of a file that goes to another node.
//!
//! ```text
//!  Take ─▶ Offer ─▶ Place ─▶ Part…, Whole ─▶ Placed (the asker has all bytes) ─▶ the name goes ─▶ Named ─▶ Taken ─▶ the object goes
//!                     └▶ a link to the asker's object, not in its place yet
//! ```
//!
//! A conversation that ends before `Placed` leaves the file here. One that ends after it, with the name gone, leaves its object here until
//! it is known whether the asker has the file: a name that leads to nothing there is taken back.

use super::Peers;
use super::asking::{Place, place};
use crate::files::mover::give::{Given, Giving};
use crate::objects::server::{receive_request, send};
use crate::shared::path::as_path;
use crate::shared::runs::Serving;
use rustls::{ServerConnection, StreamOwned};
use std::io::Result;
use std::time::{Duration, Instant};
use terrace_client::TlsSocket;
use terrace_core::objects::wire::{Request, Response};
use terrace_core::peers::{Answer, Ask, Offer};
use terrace_core::policy::Mode;

/// Programs here may wait for the file meanwhile: a word of the asker's that does not come for so long ends it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The name goes within so long after the asker has said that it has the bytes, or not at all: it waits longer before it lets them go.
/// A grace period may take most of it.
const NAMING: Duration = Duration::from_secs(7);
/// How long it is looked for whether an asker that has fallen silent has the file.
const DOUBT: Duration = Duration::from_secs(60);
const REST: Duration = Duration::from_millis(100);

pub type Connection = StreamOwned<ServerConnection, TlsSocket>;

impl Peers {
    /// Answers a `Take`, to the end of its conversation. Err: the connection is of no use any more.
    pub(super) fn give(
        &self,
        connection: &mut Connection,
        object: &str,
        path: &[u8],
        (most, mode): (u64, Mode),
    ) -> Result<()> {
        // The agent stays until it has answered.
        let _serving = Serving::new(&self.runs);
        let answer = |connection: &mut Connection, answer| send(connection, &Response::Peer(answer), &[]);
        let path = &*self.of_others(path);
        let offered = self.record_of(object).and_then(|number| {
            self.offer(number, path, most, mode)
                .or_else(|| self.note_name(number, path).then(|| self.offer(number, path, most, mode))?)
                // It may have been waited for.
                .filter(|_| self.record_of(object) == Some(number))
        });
        let Some(giving) = offered else {
            return answer(connection, Answer::Stays);
        };
        hold_to(connection, Some(PATIENCE))?;
        let Some(given) = self.hand_over(connection, giving)? else {
            answer(connection, Answer::Stays)?;
            return hold_to(connection, None);
        };
        let told = answer(connection, Answer::Named { directory: given.directory() });
        match told.and_then(|()| receive_request(connection, 0).map_err(broken)) {
            Ok(Some((Request::Peer(Ask::Taken), _))) => {
                given.let_go();
                hold_to(connection, None)
            }
            told => {
                self.resolve(given);
                told.map(|_| ()).and(Err(std::io::ErrorKind::InvalidData.into()))
            }
        }
    }

    /// Its bytes, and then its name. `None`: it is here as before.
    fn hand_over<'a>(&'a self, connection: &mut Connection, giving: Giving<'a>) -> Result<Option<Given<'a>>> {
        let offer = Offer { path: self.to_others(&giving.offer.path), ..giving.offer.clone() };
        send(connection, &Response::Peer(Answer::Offer(offer)), &[])?;
        let Some((Request::Peer(Ask::Place { text }), _)) = receive_request(connection, 0).map_err(broken)? else {
            return Err(std::io::ErrorKind::InvalidData.into());
        };
        if place(&text).is_none_or(|place| place.tag == self.own_tag()) {
            return Ok(None);
        }
        let number = giving.number();
        // To make a link takes a server of the root as long as to send a small file.
        let (link, is_whole) = std::thread::scope(|threads| {
            let make = || self.new_link(number, as_path(&text)).ok();
            let making = std::thread::Builder::new().name("link".into()).spawn_scoped(threads, make);
            let sent =
                giving.each_part(|offset, part| send(connection, &Response::Peer(Answer::Part { offset }), part));
            let made = making.map(|making| making.join().expect("making a link does not panic"));
            (made.unwrap_or_else(|_| make()), sent)
        });
        let (Some(link), true) = (link, is_whole?) else { return Ok(None) };
        send(connection, &Response::Peer(Answer::Whole), &[])?;
        let Some((Request::Peer(Ask::Placed), _)) = receive_request(connection, 0).map_err(broken)? else {
            return Err(std::io::ErrorKind::InvalidData.into());
        };
        let until = Instant::now() + NAMING;
        Ok(giving.give_name((link, text), until))
    }

    /// The asker fell silent when the name was its own already.
    fn resolve(&self, given: Given<'_>) {
        let path = as_path(given.path()).display().to_string();
        let begun = Instant::now();
        while begun.elapsed() < DOUBT && !self.schedule.has_ended() {
            // Whoever has changed the name since had the file.
            if !given.is_named() {
                return given.let_go();
            }
            let Place { tag, object } = place(given.text()).expect("it was looked at before");
            match self.ask(&tag, &Ask::StatMany { objects: vec![object] }) {
                Ok(Answer::Attributes(found)) if found.first().is_some_and(Option::is_some) => return given.let_go(),
                Ok(Answer::Attributes(_)) if given.take_back() => return,
                _ => std::thread::sleep(REST),
            }
        }
        self.warn(format!("{path} was given to another node, which has not said since that it has it"));
        given.let_go();
    }
}

/// Each word of the asker's comes, or is taken, within so long.
fn hold_to(connection: &Connection, patience: Option<Duration>) -> Result<()> {
    connection.sock.stream().set_write_timeout(patience)?;
    connection.sock.stream().set_read_timeout(patience)
}

fn broken(error: terrace_core::objects::ObjectError) -> std::io::Error {
    std::io::Error::other(error.message)
}
