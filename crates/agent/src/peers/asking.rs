//! What this node asks the others for.

use super::Peers;
use crate::node::{gone, registered, registered_but};
use crate::shared::path::{as_path, read_link};
use crate::shared::request::Scope;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_client::Link;
use terrace_core::control::{Failure, NodeFlushed};
use terrace_core::nodes::{Node, Owner, owner};
use terrace_core::objects::wire::{Request, Response};
use terrace_core::peers::{Answer, Ask, Attributes, DOOR, Door};
use terrace_index::{DIRECTORY_SUFFIX, NAME_LEN};

/// An owner that was not reached for so long is EIO.
const PATIENCE: Duration = Duration::from_secs(10);
/// After that, of whatever else it has, for a while: a walk through its files is not to wait for each.
const PATIENCE_AGAIN: Duration = Duration::from_millis(500);
const SILENCE: Duration = Duration::from_secs(30);
/// A connection to one of its addresses; and a word on it.
const CONNECTING: Duration = Duration::from_secs(2);
const HEARING: Duration = Duration::from_secs(5);
const REST_MIN: Duration = Duration::from_millis(2);
const REST_MAX: Duration = Duration::from_millis(100);
/// Connections that are kept for the next need, to one node.
const IDLE_MAX: usize = 8;

/// What a link's text says.
pub(super) struct Place {
    pub tag: String,
    pub object: String,
}

pub(super) fn place(text: &[u8]) -> Option<Place> {
    let text = text.strip_suffix(DIRECTORY_SUFFIX.as_bytes()).unwrap_or(text);
    let path = Path::new(OsStr::from_bytes(text));
    let is_object = |name: &[u8]| name.len() == NAME_LEN && terrace_index::parse_name(name).is_some();
    match owner(path, is_object)? {
        Owner::Node(tag) => Some(Place { tag, object: path.file_name()?.to_str()?.into() }),
        Owner::OlderBuild => None,
    }
}

impl Peers {
    /// Has the file that the link `text` leads to made durable by its owner. `path`: the link's own, or empty. `Ok`: the name is
    /// to be looked at again. Err: an errno.
    ///
    /// `pid`: who asks. `most`: a file of up to so many bytes may come to this node instead.
    pub fn bring(&self, text: &[u8], path: &[u8], pid: u32, most: u64) -> Result<(), i32> {
        if let Some(arrived) = self.await_arrival(text, path, pid) {
            return arrived;
        }
        let Some(Place { tag, object }) = place(text).filter(|place| place.tag != self.own_tag()) else {
            return Err(libc::EINVAL);
        };
        let is_known = self.idle.lock().unwrap().contains_key(&tag);
        let tag = if is_known { tag } else { self.brought_by(tag) };
        if most > 0 && self.take(&tag, &object, path, most) {
            self.silent.lock().unwrap().remove(&tag);
            return Ok(());
        }
        let begun = Instant::now();
        let patience = match self.silent.lock().unwrap().get(&tag) {
            Some(since) if since.elapsed() < SILENCE => PATIENCE_AGAIN,
            _ => PATIENCE,
        };
        let ask = Ask::Settle { object, path: self.to_others(path) };
        let mut rest = REST_MIN;
        loop {
            let (errno, why) = match self.ask(&tag, &ask) {
                Ok(Answer::Done) => {
                    self.silent.lock().unwrap().remove(&tag);
                    return Ok(());
                }
                Ok(Answer::Gone) => (libc::EIO, "it does not have the file's object any more".into()),
                Ok(Answer::Busy) => (libc::EBUSY, "a program there has it mapped or locked".into()),
                Ok(Answer::Failed { errno, reason }) => (errno, reason),
                Ok(answer) => (libc::EIO, format!("its agent answered {answer:?}")),
                Err(error) => (libc::EIO, error),
            };
            if !path.is_empty() && !self.leads_to(path, text) {
                return Ok(());
            }
            if begun.elapsed() >= patience || self.schedule.has_ended() || self.nodes().join(&tag).is_file() {
                if errno == libc::EIO {
                    self.silent.lock().unwrap().insert(tag.clone(), Instant::now());
                }
                let file = if path.is_empty() { as_path(text) } else { as_path(path) };
                self.warn(format!("{} is on {}: {why}", file.display(), self.name_of(&tag)));
                return Err(errno);
            }
            std::thread::sleep(rest);
            rest = (rest * 2).min(REST_MAX);
        }
    }

    /// What the file looks like that the link `text` leads to, if its owner would give it now. `None`: it is to be brought.
    pub fn look(&self, text: &[u8], path: &[u8]) -> Option<Attributes> {
        let Place { tag, object } = place(text).filter(|place| place.tag != self.own_tag())?;
        // One that can't be reached is waited for once.
        if self.silent.lock().unwrap().contains_key(&tag) {
            return None;
        }
        let now = Instant::now();
        let directory = as_path(path).parent().map(|parent| parent.as_os_str().as_bytes()).unwrap_or_default();
        let look = match self.promised.find(&tag, directory, &object, now) {
            Ok(look) => look,
            Err(question) => {
                let ask = Ask::Look { object, beside: question.beside, asker: self.own_tag().into() };
                let Ok(Answer::Looks(looks)) = self.ask(&tag, &ask) else { return None };
                if question.beside > 0 {
                    self.promised.keep(&tag, directory, &question, &looks);
                }
                looks.into_iter().next()?
            }
        };
        (look.mode == self.mode(path)).then_some(look.attributes)
    }

    /// The node that brings a file from an object store, or has it.
    fn brought_by(&self, tag: String) -> String {
        let is_there = |tag: &str| self.nodes().join(tag).exists();
        match terrace_core::arrivals::turned(&tag) {
            Some(node) if !is_there(&tag) && is_there(&node) => node,
            _ => tag,
        }
    }

    /// The name is still this link.
    pub fn leads_to(&self, path: &[u8], text: &[u8]) -> bool {
        let _ = self.looked_at(path);
        read_link(path).is_some_and(|now| now == text)
    }

    fn name_of(&self, tag: &str) -> String {
        let called = |nodes: Vec<Node>| nodes.into_iter().find(|node| node.tag == tag).map(|node| node.host);
        match (called(registered(&self.settings.root)), called(gone(&self.settings.root))) {
            (Some(host), _) => format!("node {host}"),
            (None, Some(host)) => format!("node {host}, which was declared gone"),
            (None, None) => format!("a node that has left (tag {tag})"),
        }
    }

    /// All registered nodes hear of this one, so that their programs look for what it has. Before a program of this one runs.
    pub fn announce(&self) {
        let others = self.others();
        std::thread::scope(|threads| {
            for node in &others {
                threads.spawn(move || {
                    // One that was killed has left its registration, and listens no more: its next agent looks for others.
                    let _ = self.ask(&node.tag, &Ask::Here);
                });
            }
        });
    }

    /// Every other node makes what it has below these paths durable.
    pub fn flush_others(&self, scope: &Scope, all: bool) -> Vec<NodeFlushed> {
        let others = self.others();
        let paths = scope.0.iter().map(|path| self.to_others(path.as_os_str().as_bytes())).collect();
        let ask = Ask::Flush { paths, all };
        std::thread::scope(|threads| {
            let started: Vec<_> = others.iter().map(|node| threads.spawn(|| self.ask(&node.tag, &ask))).collect();
            let asked = started.into_iter().map(|asked| asked.join().expect("asking panics never"));
            let all = others.iter().zip(asked);
            // One that has left meanwhile has left nothing to be flushed.
            let is_there = |node: &Node| self.nodes().join(&node.tag).exists();
            let all = all.filter(|(node, answer)| answer.is_ok() || is_there(node));
            all.map(|(node, answer)| self.flushed_by(&node.host, answer)).collect()
        })
    }

    fn flushed_by(&self, node: &str, answer: Result<Answer, String>) -> NodeFlushed {
        let node = node.to_owned();
        let unreached = |reason| NodeFlushed { node: node.clone(), unreached: Some(reason), ..NodeFlushed::default() };
        let whole = |path: &[u8]| self.settings.root.join(as_path(path));
        match answer {
            Ok(Answer::Flushed(done)) => NodeFlushed {
                files: done.files,
                bytes: done.bytes,
                open_files: done.open_files.iter().map(|path| whole(path)).collect(),
                failures: done
                    .failures
                    .into_iter()
                    .map(|(path, reason)| Failure { path: whole(&path), reason })
                    .collect(),
                node,
                unreached: None,
            },
            Ok(Answer::Failed { reason, .. }) | Err(reason) => unreached(reason),
            Ok(answer) => unreached(format!("its agent answered {answer:?}")),
        }
    }

    /// Nodes that are registered at this root, but for this one.
    fn others(&self) -> Vec<Node> {
        registered_but(&self.settings.root, Some(self.own_tag()))
    }

    /// One question. Err: the node was not reached.
    pub(super) fn ask(&self, tag: &str, ask: &Ask) -> Result<Answer, String> {
        let (link, answer) = self.ask_on(tag, ask)?;
        self.keep(tag, link);
        Ok(answer)
    }

    /// As `ask`, and the connection on which the answer came.
    pub(super) fn ask_on(&self, tag: &str, ask: &Ask) -> Result<(Link, Answer), String> {
        let request = Request::Peer(ask.clone());
        // A connection that was kept may be of an agent that has ended: then a new one is made.
        let kept = self.idle.lock().unwrap().get_mut(tag).and_then(Vec::pop);
        if let Some(mut link) = kept
            && let Ok(answer) = hear(&mut link, &request)
        {
            return Ok((link, answer));
        }
        self.idle.lock().unwrap().remove(tag);
        let mut link = self.connect(tag)?;
        let answer = hear(&mut link, &request).map_err(|error| format!("its agent does not answer: {error}"))?;
        Ok((link, answer))
    }

    pub(super) fn keep(&self, tag: &str, link: Link) {
        let mut idle = self.idle.lock().unwrap();
        let kept = idle.entry(tag.into()).or_default();
        if kept.len() < IDLE_MAX {
            kept.push(link);
        }
    }

    fn connect(&self, tag: &str) -> Result<Link, String> {
        reach(&self.nodes().join(tag))
    }
}

/// A connection to the agent that has registered in a directory.
pub fn reach(registered_in: &Path) -> Result<Link, String> {
    let read = std::fs::read(registered_in.join(DOOR));
    let door: Door = read.ok().and_then(|text| serde_json::from_slice(&text).ok()).ok_or("no agent of it is there")?;
    // Of the address that it is most likely reached by; the last one is this machine's own, where nodes are containers.
    let mut first = None;
    for address in &door.addresses {
        let target = format!("tls://{address}");
        match Link::connect_within(&target, &door.token, Some(door.fingerprint.clone()), CONNECTING, HEARING) {
            Ok(link) => return Ok(link),
            Err(error) => first = first.or(Some(error.message)),
        }
    }
    Err(first.unwrap_or_else(|| "it has no address".into()))
}

/// Asks, and gives the next answer that says something.
pub(super) fn hear(link: &mut Link, request: &Request) -> std::io::Result<Answer> {
    link.send(request, &[])?;
    loop {
        match link.receive()? {
            Response::Peer(Answer::Working) => {}
            Response::Peer(answer) => return Ok(answer),
            other => return Err(std::io::Error::other(format!("it answered {other:?}"))),
        }
    }
}
