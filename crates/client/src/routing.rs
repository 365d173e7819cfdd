//! Which agent a session talks to, where a root has several.

use crate::array::{Array, Backend};
use crate::bytes::{Bytes, File};
use crate::cluster::Cluster;
use crate::members;
use crate::remote::{RemoteFile, status};
use crate::rpc::{Agent, Security, unexpected};
use crate::session::{Create, Session, check_same};
use crate::spread::SpreadArray;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use terrace_core::members::Member;
use terrace_core::objects::wire::{ObjectKind, Request, Response, Status};
use terrace_core::objects::{ArraySpec, Kind, ObjectError, Placement, Result};
use terrace_objects::array::{self, ArrayHandle, Metadata};
use terrace_objects::placed;

/// How long agents that are not all there yet are waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(10);
const LOOK_MAX: Duration = Duration::from_millis(320);
/// A look whether an agent elsewhere listens.
const REACH_PATIENCE: Duration = Duration::from_secs(3);
/// So long agents that do not answer are waited for: they may be being started again.
const AWAY_MAX: Duration = Duration::from_secs(20);

/// One agent with the others of its root; waits until all are there. Meanwhile nobody stays connected: one of earlier settings is started
/// again with others only when its last client has left.
pub fn with_all(open: impl Fn() -> Result<Session>) -> Result<Session> {
    let (begun, mut rest) = (Instant::now(), LOOK);
    // Where nobody is, nobody is waited for.
    let mut alone = Ok(open()?);
    loop {
        match alone.and_then(Session::with_those_around) {
            Err(error) if error.kind == Kind::NoAgent && begun.elapsed() < PATIENCE => pause(&mut rest),
            result => return result,
        }
        alone = open();
    }
}

/// Longer from time to time.
fn pause(rest: &mut Duration) {
    std::thread::sleep(*rest);
    *rest = (*rest * 2).min(LOOK_MAX);
}

/// The agent with this index answers.
fn is_served(index: &Path) -> bool {
    UnixStream::connect(index.with_file_name(terrace_core::settings::OBJECTS_SOCKET)).is_ok()
}

fn no_answer(root: &Path, agents: &[Member]) -> ObjectError {
    let (of, root, address) = (agents.len(), root.display(), &agents[0].address);
    let message =
        format!("{of} agents have written down that they serve {root}, and the first, at {address}, does not answer");
    ObjectError::new(Kind::NoAgent, message)
        .hint("if they were killed, start as many again (terrace serve): they make durable what was kept")
}

fn is_reached(address: &str) -> bool {
    let found = address.to_socket_addrs().into_iter().flatten();
    found.into_iter().any(|socket| TcpStream::connect_timeout(&socket, REACH_PATIENCE).is_ok())
}

impl Session {
    /// The agents that a root's directory tells of: this node's if there is one, else the first. One that is alone on this node, as
    /// `terrace run` starts it, can't read what they keep: it comes last. `runtime`: where agents of this node keep their indexes; by itself, what
    /// `TERRACE_RUNTIME` says, or the user's own place in memory.
    pub fn connect_by_root(root: &Path, runtime: Option<&Path>) -> Result<Session> {
        let alone = crate::session::index_of(root, runtime, None)?;
        let root = root.canonicalize().unwrap_or_else(|_| root.to_owned());
        let open = |index: &Path| Session::open(index).map_err(|error| Session::explained_by_owner(&root, error));
        if !terrace_core::members::directory(&root, terrace_index::PRIVATE_DIR).exists() {
            return open(&alone);
        }
        let (begun, mut rest, mut were_there) = (Instant::now(), LOOK, false);
        loop {
            // Each time anew: agents that were killed are written down for as long as nobody starts them again, and then elsewhere.
            let failed = match members::of_root(&root) {
                Ok(None) if were_there && begun.elapsed() < PATIENCE => None,
                Ok(None) => return open(&alone),
                Ok(Some(agents)) => {
                    were_there = true;
                    match Session::to_one_of(&root, &agents, runtime) {
                        Ok(Some(session)) => return Ok(session),
                        Ok(None) if is_served(&alone) => return open(&alone),
                        Ok(None) if begun.elapsed() > AWAY_MAX => return Err(no_answer(&root, &agents)),
                        Ok(None) => None,
                        Err(error) => Some(error),
                    }
                }
                Err(error) => Some(error),
            };
            // Not all are there yet.
            if let Some(error) = failed.filter(|error| error.kind != Kind::NoAgent || begun.elapsed() > PATIENCE) {
                return Err(error);
            }
            pause(&mut rest);
        }
    }

    /// Of several agents the one of this node, else the first; `None`: they don't answer. An error (`NoAgent`): not all are there.
    fn to_one_of(root: &Path, agents: &[Member], runtime: Option<&Path>) -> Result<Option<Session>> {
        for number in 0..agents.len() as u32 {
            let index = crate::session::index_of(root, runtime, Some(number))?;
            if is_served(&index) {
                return Session::open_alone(&index)?.with_those_around().map(Some);
            }
        }
        let first = &agents[0];
        if !is_reached(&first.address) {
            return Ok(None);
        }
        let security = first.fingerprint.clone().map_or(Security::Plain, Security::Tls);
        Session::connect_alone(&first.address, &members::token_of_root(root)?, security)?.with_those_around().map(Some)
    }

    /// Where the root's agents listen, ADDRESS:PORT, in their order. Empty: there is one, on this node, which may listen nowhere.
    pub fn addresses(&self) -> Vec<String> {
        match self.cluster() {
            Some(cluster) => cluster.addresses(),
            None => self.agent().address().map(Into::into).into_iter().collect(),
        }
    }

    fn agent_at(&self, cluster: &Cluster, number: u32) -> Arc<Agent> {
        cluster.agent(self.root(), number)
    }

    /// The agent that has tags.
    pub(crate) fn tags_agent(&self) -> Arc<Agent> {
        match self.cluster() {
            Some(cluster) => self.agent_at(cluster, 0),
            None => self.agent().clone(),
        }
    }

    /// A request to all agents.
    pub(crate) fn all_do(&self, request: &Request) -> Result<()> {
        match self.cluster() {
            Some(cluster) => cluster.each(self.root(), request),
            None => self.agent().done(request),
        }
    }

    /// The agent whose object the name is; `None`: the root's own storage has it, or nobody.
    fn whose(&self, name: &str) -> Result<Option<u32>> {
        if !self.is_elsewhere() {
            return Ok(placed::member_of(&self.full_path(name)?));
        }
        match self.agent().ask(&Request::Whose { path: self.name_of(name)? })?.0 {
            Response::Whose { member } => Ok(member),
            other => Err(unexpected(&other)),
        }
    }

    /// Within the number of agents that there are: an agent of an earlier launch answers no more.
    fn keeper_of(&self, cluster: &Cluster, name: &str) -> Result<Option<u32>> {
        match self.whose(name)? {
            Some(number) if number >= cluster.count() => Err(ObjectError::new(
                Kind::NoAgent,
                format!("`{name}` is still in a tier of agent {number}, and there are {} agents now", cluster.count()),
            )
            .hint("run `terrace recover` on that agent's node")),
            keeper => Ok(keeper),
        }
    }

    pub(crate) fn stat_among(&self, cluster: &Cluster, name: &str) -> Result<Status> {
        let keeper = self.keeper_of(cluster, name)?;
        if let Some(keeper) = keeper.filter(|&keeper| cluster.here != Some(keeper)) {
            return status(&self.agent_at(cluster, keeper), &self.name_of(name)?);
        }
        let found = self.stat_alone(name)?;
        if found.kind != ObjectKind::Array {
            return Ok(found);
        }
        let path = self.name_of(name)?;
        let mut all = found;
        for number in cluster.numbers().filter(|&number| cluster.here != Some(number)) {
            let part = status(&self.agent_at(cluster, number), &path)?;
            all.is_durable &= part.is_durable;
            all.bytes = all.bytes.max(part.bytes);
            if all.tier == "root" {
                all.tier = part.tier;
            }
            if let (Some(spec), Some(other)) = (&mut all.spec, &part.spec)
                && spec.rank() == other.rank()
            {
                spec.shape.iter_mut().zip(&other.shape).for_each(|(extent, other)| *extent = (*extent).max(*other));
            }
        }
        Ok(all)
    }

    pub(crate) fn create_bytes_among(&self, cluster: &Cluster, name: &str, create: Create) -> Result<Bytes> {
        let keeper = match self.keeper_of(cluster, name)? {
            Some(keeper) => keeper,
            None => cluster.here.unwrap_or_else(|| cluster.home_of(name)),
        };
        match cluster.here == Some(keeper) {
            true => self.create_bytes_here(name, create),
            false => self.create_bytes_at(&self.agent_at(cluster, keeper), name, create),
        }
    }

    pub(crate) fn open_bytes_among(&self, cluster: &Cluster, name: &str, writable: bool) -> Result<Bytes> {
        let keeper = match self.keeper_of(cluster, name)? {
            Some(keeper) => keeper,
            // Whoever reads what is durable needs nobody else; whoever writes meets other writers.
            None => cluster.here.filter(|_| !writable).unwrap_or_else(|| cluster.home_of(name)),
        };
        match cluster.here == Some(keeper) {
            true => self.open_bytes_here(name, writable),
            false => self.open_bytes_at(&self.agent_at(cluster, keeper), name, writable),
        }
    }

    pub(crate) fn remove_among(&self, cluster: &Cluster, name: &str, with_contents: bool) -> Result<()> {
        let path = self.name_of(name)?;
        match self.keeper_of(cluster, name)? {
            Some(keeper) if cluster.here != Some(keeper) => {
                self.agent_at(cluster, keeper).done(&Request::Remove { path: path.clone(), with_contents })?;
            }
            _ => self.remove_alone(name, with_contents)?,
        }
        self.tags_agent().done(&Request::ForgetTags { path })
    }

    pub(crate) fn create_array_among(
        &self,
        cluster: &Arc<Cluster>,
        name: &str,
        mut spec: ArraySpec,
        create: Create,
    ) -> Result<Array> {
        if spec.placement == Placement::Local {
            spec.placement = Placement::At(cluster.first);
        }
        for _ in 0..100 {
            let made = match self.is_elsewhere() {
                true => self.agent().done(&Request::CreateArray { path: self.name_of(name)?, spec: spec.clone() }),
                false => self.create_array_here(name, &Metadata::of_array(&spec)),
            };
            match (made, create) {
                (Ok(()), _) => return self.open_array_among(cluster, name, true),
                (Err(error), Create::IfMissing) if error.kind == Kind::Exists => {
                    let found = self.open_array_among(cluster, name, true)?;
                    check_same(name, found.spec(), &spec)?;
                    return Ok(found);
                }
                (Err(error), Create::Replace) if error.kind == Kind::Exists => {
                    match self.remove_among(cluster, name, false) {
                        Err(error) if error.kind != Kind::NotFound => return Err(error),
                        _ => {}
                    }
                }
                (Err(error), _) => return Err(error),
            }
        }
        Err(ObjectError::new(Kind::Busy, format!("`{name}` is created and removed again and again by others")))
    }

    pub(crate) fn open_array_among(&self, cluster: &Arc<Cluster>, name: &str, writable: bool) -> Result<Array> {
        let found = self.stat_alone(name)?;
        let Some(spec) = found.spec else {
            return Err(ObjectError::new(Kind::WrongKind, format!("`{name}` is not an array")));
        };
        let (path, identity) = (self.name_of(name)?, found.identity);
        let opened = SpreadArray::open(self.clone(), cluster.clone(), path, spec, identity, writable)?;
        Ok(Array::new(self.clone(), Backend::Spread(opened)))
    }

    /// This node's part of an array.
    pub(crate) fn open_handle(&self, name: &str, writable: bool) -> Result<ArrayHandle> {
        let path = self.full_path(name)?;
        match array::read_metadata(&path)? {
            Some(Metadata { array: Some(array), .. }) => self.handle(&path, &array, writable),
            _ => Err(ObjectError::new(Kind::NotFound, format!("the array `{name}` was removed"))),
        }
    }

    pub(crate) fn create_bytes_at(&self, agent: &Arc<Agent>, name: &str, create: Create) -> Result<Bytes> {
        let path = self.name_of(name)?;
        let (file, length) = match RemoteFile::create(agent, path.clone(), create != Create::Replace) {
            Err(error) if error.kind == Kind::Exists && create == Create::IfMissing => {
                RemoteFile::open(agent, path, true)?
            }
            made => (made?, 0),
        };
        Ok(Bytes::new(self.clone(), File::Elsewhere(file), true, Some(length)))
    }

    pub(crate) fn open_bytes_at(&self, agent: &Arc<Agent>, name: &str, writable: bool) -> Result<Bytes> {
        let path = self.name_of(name)?;
        let (file, length) = RemoteFile::open(agent, path, writable)?;
        Ok(Bytes::new(self.clone(), File::Elsewhere(file), writable, Some(length)))
    }
}
