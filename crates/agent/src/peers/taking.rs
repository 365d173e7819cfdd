//! The asker's side of a file that comes from another node: its bytes at the speed of the network, and then its name.
//!
//! Whatever goes wrong before the owner has given the name, the file stays with it, and is asked to be a real file in the root instead.
//! Who does not hear whether the name was given looks where it leads, for longer than the owner may still give it.

use super::Peers;
use super::asking::hear;
use crate::files::mover::give::{PART_BYTES, stat_of};
use crate::files::mover::take::Taking;
use std::sync::mpsc::{channel, sync_channel};
use std::time::{Duration, Instant};
use terrace_client::Link;
use terrace_core::objects::wire::{Request, Response};
use terrace_core::peers::{Answer, Ask, Offer};

/// Longer than the owner may take to give a name after it has heard that the bytes are here.
const NAMING: Duration = Duration::from_secs(15);
const REST: Duration = Duration::from_millis(20);
/// Parts that were received and are not written yet.
const PARTS_AHEAD: usize = 2;

impl Peers {
    /// The file of another node's object becomes one of this node. False: it does not; nothing has happened.
    pub(super) fn take(&self, tag: &str, object: &str, path: &[u8], most: u64) -> bool {
        let most = most.min(self.room_for_one());
        if most == 0 || self.relative(path).is_none() {
            return false;
        }
        let ask = Ask::Take { object: object.into(), path: self.to_others(path), most, mode: self.mode(path) };
        match self.ask_on(tag, &ask) {
            Ok((link, Answer::Offer(offer))) => {
                let offer = Offer { path: self.of_others(&offer.path), ..offer };
                self.accept(tag, link, &offer)
            }
            Ok((link, _)) => {
                self.keep(tag, link);
                false
            }
            Err(_) => false,
        }
    }

    /// A connection whose conversation has not come to its end is of no use, and is not kept.
    fn accept(&self, tag: &str, mut link: Link, offer: &Offer) -> bool {
        let Some(mut taking) = self.begin_taking(offer) else { return false };
        if link.send(&Request::Peer(Ask::Place { text: taking.text() }), &[]).is_err() {
            return false;
        }
        match receive_into(&mut link, &mut taking, offer.size) {
            Ok(true) => {}
            Ok(false) => {
                self.keep(tag, link);
                return false;
            }
            Err(_) => return false,
        }
        if taking.finish(offer).is_none() {
            return false;
        }
        match hear(&mut link, &Request::Peer(Ask::Placed)) {
            Ok(Answer::Named { directory }) => {
                // Programs here did not change the directory, either: `tar` looks whether it stays as it is.
                if let Some([before, after]) = directory {
                    self.changed_elsewhere(&stat_of(&before), &stat_of(&after));
                }
                taking.named(&offer.path);
                if link.send(&Request::Peer(Ask::Taken), &[]).is_ok() {
                    self.keep(tag, link);
                }
                true
            }
            Ok(_) => {
                self.keep(tag, link);
                false
            }
            Err(_) => self.look_for_name(taking, &offer.path),
        }
    }

    fn look_for_name(&self, taking: Taking<'_>, path: &[u8]) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < NAMING {
            if taking.has_name(path) {
                taking.named(path);
                return true;
            }
            std::thread::sleep(REST);
        }
        false
    }
}

/// False: the owner keeps it after all.
fn receive_into(link: &mut Link, taking: &mut Taking<'_>, size: u64) -> std::io::Result<bool> {
    let mut write = |part: &[u8], offset| {
        taking.write(part, offset).map_err(|error| std::io::Error::from_raw_os_error(error.errno()))
    };
    if size <= PART_BYTES as u64 {
        return receive_parts(link, size, |part, offset| write(&part, offset).map(|()| part));
    }
    // To receive and decrypt a part takes about as long as to write it: two threads do both at a time.
    std::thread::scope(|scope| {
        let (parts, received) = sync_channel::<(Vec<u8>, u64)>(PARTS_AHEAD);
        let (empty, used) = channel();
        let writer = scope.spawn(move || {
            received.into_iter().try_for_each(|(part, offset)| {
                write(&part, offset)?;
                // Nobody wants it any more when all has come.
                let _ = empty.send(part);
                Ok::<_, std::io::Error>(())
            })
        });
        let is_whole = receive_parts(link, size, |part, offset| {
            // What the writer says of it is told below.
            parts.send((part, offset)).map_err(|_| std::io::Error::other("a part could not be written"))?;
            Ok(used.try_recv().unwrap_or_default())
        });
        drop(parts);
        writer.join().expect("writing does not panic")?;
        is_whole
    })
}

/// Calls `take` with each part and where it belongs; a buffer for another one comes back.
fn receive_parts(
    link: &mut Link,
    size: u64,
    mut take: impl FnMut(Vec<u8>, u64) -> std::io::Result<Vec<u8>>,
) -> std::io::Result<bool> {
    let mut part = vec![];
    loop {
        match link.receive_with(&mut part, PART_BYTES)? {
            Response::Peer(Answer::Part { offset }) if offset.saturating_add(part.len() as u64) <= size => {
                part = take(std::mem::take(&mut part), offset)?;
            }
            Response::Peer(Answer::Whole) => return Ok(true),
            Response::Peer(Answer::Stays) => return Ok(false),
            other => return Err(std::io::Error::other(format!("it answered {other:?}"))),
        }
    }
}
