//! The asker's side of a file that comes from another node: its bytes at the speed of the network, and then its name.
//!
//! Whatever goes wrong before the owner has given the name, the file stays with it, and is asked to be a real file in the root instead.
//! Who does not hear whether the name was given looks where it leads, for longer than the owner may still give it.

use super::Peers;
use crate::files::mover::give::PART_BYTES;
use crate::files::mover::take::Taking;
use crate::shared::path::as_path;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_client::Link;
use terrace_core::objects::wire::{Request, Response};
use terrace_core::peers::{Answer, Ask};

/// Longer than the owner may take to give a name after it has heard that the bytes are here.
const NAMING: Duration = Duration::from_secs(15);
const REST: Duration = Duration::from_millis(20);

impl Peers {
    /// The file of another node's object becomes one of this node. False: it does not; nothing has happened.
    pub(super) fn take(&self, tag: &str, object: &str, path: &[u8], most: u64) -> bool {
        let most = most.min(self.room_for_one());
        if most == 0 || self.relative(path).is_none() {
            return false;
        }
        let ask = Ask::Take { object: object.into(), path: path.to_vec(), most, mode: self.mode(path) };
        match self.ask_on(tag, &ask) {
            Ok((link, Answer::Offer(offer))) => {
                // Without an end to the conversation the connection is of no use: it is not kept.
                let Some(mut taking) = self.begin_taking(&offer) else { return false };
                let mut link = link;
                match receive_into(&mut link, &mut taking, offer.size) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.keep(tag, link);
                        return false;
                    }
                    Err(_) => return false,
                }
                let Some(text) = taking.finish(&offer) else { return false };
                // Programs here did not change the directory, either: `tar` looks whether it stays as it is.
                let directory = as_path(&offer.path).parent().unwrap_or(Path::new("/"));
                let placed = self.unseen_in(directory, || {
                    link.send(&Request::Peer(Ask::Placed { text }), &[])?;
                    super::asking::heard(&mut link)
                });
                match placed {
                    Ok(Answer::Done) => {
                        taking.named(&offer.path);
                        if link.send(&Request::Peer(Ask::Taken), &[]).is_ok()
                            && matches!(super::asking::heard(&mut link), Ok(Answer::Done))
                        {
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
            Ok((link, _)) => {
                self.keep(tag, link);
                false
            }
            Err(_) => false,
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
    let mut part = vec![];
    loop {
        match link.receive_with(&mut part, PART_BYTES)? {
            Response::Peer(Answer::Part { offset }) if offset.saturating_add(part.len() as u64) <= size => {
                taking.write(&part, offset).map_err(|error| std::io::Error::from_raw_os_error(error.errno()))?;
            }
            Response::Peer(Answer::Whole) => return Ok(true),
            Response::Peer(Answer::Stays) => return Ok(false),
            other => return Err(std::io::Error::other(format!("it answered {other:?}"))),
        }
    }
}
