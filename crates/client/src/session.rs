//! A session: one root, seen by one program.

use crate::array::{Array, Backend};
use crate::bytes::{Bytes, File};
use crate::cluster::Cluster;
use crate::creating::with_parents;
use crate::identity::made_ns;
use crate::members::{check_all_stages_have_agents, check_no_others_keep};
use crate::remote::{RemoteArray, status};
use crate::routing;
use crate::rpc::{Address, Agent, Security, security_for, unexpected};
use crate::tls::checked_fingerprint;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use terrace_core::objects::wire::{Entry, ObjectKind, Request, Response, Status};
use terrace_core::objects::{ArraySpec, Kind, ObjectError, Result, TagQuery, TagValue};
use terrace_core::settings::{root_id, user_dir};
use terrace_index::{INDEX_ENV, PRIVATE_DIR};
use terrace_objects::array::{self, ArrayHandle, Metadata};
use terrace_objects::{Place, normal_path, placed};

/// What becomes of an object that is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Create {
    /// It is an error.
    New,
    /// It is emptied, or made anew.
    Replace,
    /// It is used as it is (containers; an array must have the same type and shape).
    IfMissing,
}

/// Cheap to clone; all clones are one session.
#[derive(Clone)]
pub struct Session(Arc<Shared>);

struct Shared {
    /// `None`: the agent is on another node.
    place: Option<Arc<Place>>,
    root: PathBuf,
    agent: Arc<Agent>,
    /// Where the root has several agents.
    cluster: Option<Arc<Cluster>>,
}

/// Which agent a program connects to that names none: a root's path, or `tcp://ADDRESS:PORT`.
const AGENT_ENV: &str = "TERRACE_AGENT";
/// The fingerprint of an agent's certificate lies in a file of the token's name and this.
pub const FINGERPRINT_SUFFIX: &str = ".fingerprint";

/// How long a name that is waited for is looked for without a rest, and how often afterwards.
const LOOK: Duration = Duration::from_millis(2);

impl Session {
    /// `target`: a root's path; or "", for the root of the run that this program belongs to (`TERRACE_INDEX`, which `terrace
    /// run` and `terrace serve` set), or else what `TERRACE_AGENT` says, or the root `TERRACE_ROOT`; or
    /// `tcp://ADDRESS:PORT` of an agent elsewhere, with the token in
    /// `TERRACE_TOKEN`, or in the file that `TERRACE_TOKEN_FILE` names. Outside this machine's loopback that is TLS, with the
    /// certificate whose fingerprint `TERRACE_FINGERPRINT` says, or the file beside the token's. `tls://` is TLS anywhere,
    /// `plain://` is not encrypted: for networks that nobody else is on.
    pub fn connect(target: &str) -> Result<Session> {
        let index = match target {
            "" => match (std::env::var_os(INDEX_ENV), std::env::var_os(AGENT_ENV), std::env::var_os("TERRACE_ROOT")) {
                (Some(index), ..) => PathBuf::from(index),
                (None, Some(agent), _) if !agent.is_empty() => return Session::connect(&agent.to_string_lossy()),
                (None, _, Some(root)) => return Session::connect_by_root(Path::new(&root), None),
                (None, _, None) => {
                    return Err(ObjectError::new(
                        Kind::NoAgent,
                        "no agent is named: this program is not under `terrace run`",
                    )
                    .hint("give the root's path, or set TERRACE_ROOT"));
                }
            },
            target => match target.split_once("://") {
                Some((scheme, address)) => {
                    let security = security_of(scheme, address, fingerprint_of_environment)?;
                    return Session::connect_by(address, &token_of_environment()?, security);
                }
                None => return Session::connect_by_root(Path::new(target), None),
            },
        };
        Session::open(&index)
    }

    /// By the path of the shared index.
    pub fn open(index: &Path) -> Result<Session> {
        routing::with_all(|| Session::open_alone(index))
    }

    /// The same agent, and the others of its root; they may not all be there yet.
    pub(crate) fn with_those_around(self) -> Result<Session> {
        let is_here = self.0.place.is_some();
        if self.0.place.as_ref().is_some_and(|place| place.member().is_none()) {
            return Ok(self);
        }
        let cluster = Cluster::around(&self.0.agent, is_here)?.map(Arc::new);
        let (place, root, agent) = (self.0.place.clone(), self.0.root.clone(), self.0.agent.clone());
        Ok(Session(Arc::new(Shared { place, root, agent, cluster })))
    }

    /// One agent by itself, whatever others its root has.
    #[doc(hidden)]
    pub fn open_alone(index: &Path) -> Result<Session> {
        let place = Place::open(index).map_err(|error| match error.kind {
            Kind::NotFound => ObjectError::new(
                Kind::NoAgent,
                format!("no agent serves the root: there is no index {}", index.display()),
            )
            .hint("start one: terrace serve --root ROOT"),
            Kind::Denied => ObjectError::new(
                Kind::Denied,
                format!("the agent whose index is {} is another user's, and serves that user alone", index.display()),
            )
            .hint(
                "start one of your own, on a root of your own; or connect to that one by its address, with its token",
            ),
            _ => error,
        })?;
        let root = place.root().to_owned();
        let socket = index.with_file_name(terrace_core::settings::OBJECTS_SOCKET);
        let agent = Arc::new(Agent::new(&root, Address::Socket(socket)));
        agent.announce();
        Ok(Session(Arc::new(Shared { place: Some(Arc::new(place)), root, agent, cluster: None })))
    }

    /// An agent by TCP on this machine's loopback (or the near end of a tunnel), by its address and token.
    pub fn connect_to(address: &str, token: &str) -> Result<Session> {
        Session::connect_by(address, token, Security::Loopback)
    }

    /// An agent elsewhere, by its address and token, if it has the certificate with this fingerprint.
    pub fn connect_tls(address: &str, token: &str, fingerprint: &str) -> Result<Session> {
        Session::connect_by(address, token, Security::Tls(checked_fingerprint(fingerprint)?))
    }

    pub(crate) fn connect_by(address: &str, token: &str, security: Security) -> Result<Session> {
        routing::with_all(|| Session::connect_alone(address, token, security.clone()))
    }

    pub(crate) fn connect_alone(address: &str, token: &str, security: Security) -> Result<Session> {
        let agent = Arc::new(Agent::elsewhere(address, token.into(), security)?);
        let root = agent.root().to_owned();
        Ok(Session(Arc::new(Shared { place: None, root, agent, cluster: None })))
    }

    pub(crate) fn agent(&self) -> &Arc<Agent> {
        &self.0.agent
    }
    pub(crate) fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.0.cluster.as_ref()
    }

    pub fn is_elsewhere(&self) -> bool {
        self.0.place.is_none()
    }

    /// Where the agent of this node keeps its index and its sockets; `None`: it is on another node.
    pub fn runtime_directory(&self) -> Option<&Path> {
        self.0.place.as_ref().and_then(|place| place.index_path().parent())
    }

    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// Of a session on this node.
    pub(crate) fn place(&self) -> Arc<Place> {
        self.0.place.clone().expect("calls of a session elsewhere are messages")
    }

    pub(crate) fn full_path(&self, name: &str) -> Result<PathBuf> {
        let relative = normal_path(self.root(), name)?;
        Ok(if relative.as_os_str().is_empty() { self.root().to_owned() } else { self.root().join(relative) })
    }

    pub(crate) fn name_of(&self, name: &str) -> Result<String> {
        let relative = normal_path(self.root(), name)?;
        let text = relative.into_os_string().into_string();
        text.map_err(|_| ObjectError::invalid(format!("`{name}` is not UTF-8")))
    }

    /// A container, with those that it lies in.
    pub fn create_container(&self, name: &str, create: Create) -> Result<()> {
        if self.is_elsewhere() {
            let path = self.name_of(name)?;
            return match self.0.agent.done(&Request::CreateContainer { path }) {
                Err(error) if error.kind == Kind::Exists && create != Create::New => Ok(()),
                done => done,
            };
        }
        let path = self.full_path(name)?;
        self.check_inside(name, &path)?;
        self.forget_tags(name)?;
        let failed = |error: std::io::Error| {
            let kind = match error.kind() {
                std::io::ErrorKind::AlreadyExists => Kind::Exists,
                std::io::ErrorKind::NotADirectory => Kind::WrongKind,
                std::io::ErrorKind::PermissionDenied => Kind::Denied,
                std::io::ErrorKind::StorageFull => Kind::NoSpace,
                _ => Kind::System,
            };
            ObjectError::new(kind, format!("can't create the container {}: {error}", path.display()))
        };
        if create == Create::New {
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent).map_err(failed)?;
            }
            return std::fs::create_dir(&path).map_err(failed);
        }
        std::fs::create_dir_all(&path).map_err(failed)
    }

    /// What a container holds, sorted by name.
    pub fn list(&self, name: &str) -> Result<Vec<Entry>> {
        if self.is_elsewhere() {
            return match self.0.agent.ask(&Request::List { path: self.name_of(name)? })?.0 {
                Response::Entries { entries } => Ok(entries),
                other => Err(unexpected(&other)),
            };
        }
        let path = self.full_path(name)?;
        let place = self.place();
        if !placed::look(&place, &path)?.is_directory() {
            return Err(ObjectError::new(Kind::WrongKind, format!("`{name}` is not a container")));
        }
        let failed =
            |error: std::io::Error| ObjectError::new(Kind::System, format!("can't list {}: {error}", path.display()));
        let mut entries = vec![];
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name == PRIVATE_DIR && path == self.root() || name == array::METADATA_FILE {
                continue;
            }
            let Ok(found) = placed::look(&place, &entry.path()) else {
                // In another agent's tier, on another node; or removed since, or a link to nothing.
                if placed::member_of(&entry.path()).is_some_and(|member| place.member() != Some(member)) {
                    entries.push(Entry { name, kind: ObjectKind::Bytes });
                }
                continue;
            };
            let kind = match () {
                () if found.is_directory() => match array::read_metadata(&entry.path()) {
                    Ok(Some(Metadata { array: Some(_), .. })) => ObjectKind::Array,
                    _ => ObjectKind::Container,
                },
                () if found.is_file() => ObjectKind::Bytes,
                () => continue,
            };
            entries.push(Entry { name, kind });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    pub fn stat(&self, name: &str) -> Result<Status> {
        match self.cluster() {
            Some(cluster) => self.stat_among(cluster, name),
            None => self.stat_alone(name),
        }
    }

    /// As the agent that this session met first knows it.
    pub(crate) fn stat_alone(&self, name: &str) -> Result<Status> {
        if self.is_elsewhere() {
            return status(&self.0.agent, &self.name_of(name)?);
        }
        let path = self.full_path(name)?;
        let place = self.place();
        let found = placed::look(&place, &path)?;
        let index = place.index();
        let tier = found.record.and_then(|number| {
            let device = index.record(number)?.device.load(Relaxed) as usize;
            index.devices().get(device).map(|device| device.tier.load(Relaxed))
        });
        if found.is_directory() {
            let made_ns = made_ns(&path);
            if let Some(Metadata { array: Some(array), .. }) = array::read_metadata(&path)? {
                return Ok(Status { made_ns, ..self.stat_array(&path, &array, found.stat.st_ino)? });
            }
            return Ok(Status {
                kind: ObjectKind::Container,
                bytes: 0,
                spec: None,
                tier: "root".into(),
                is_durable: true,
                identity: found.stat.st_ino,
                made_ns,
            });
        }
        Ok(Status {
            kind: ObjectKind::Bytes,
            bytes: found.stat.st_size as u64,
            spec: None,
            tier: tier_name(tier),
            is_durable: tier.is_none(),
            identity: found.stat.st_ino,
            made_ns: None,
        })
    }

    fn stat_array(&self, path: &Path, array: &array::ArrayMetadata, identity: u64) -> Result<Status> {
        let place = self.place();
        let handle = self.handle(path, array, false)?;
        let spec = ArraySpec { shape: handle.shape()?, ..array.spec.clone() };
        let (devices, has_all) = handle.devices()?;
        let index = place.index();
        let tier_of = |device: u32| index.devices().get(device as usize).map(|found| found.tier.load(Relaxed));
        let mut tiers: Vec<String> = vec![];
        let below = (!has_all && path.join(array::CHUNKS).exists()).then_some(array::ROOT_DEVICE);
        for device in devices.into_iter().chain(below) {
            let name = tier_name(tier_of(device));
            if !tiers.contains(&name) {
                tiers.push(name);
            }
        }
        let tier = if tiers.is_empty() { tier_name(None) } else { tiers.join(", ") };
        let cells = terrace_core::objects::cells(&spec.shape).unwrap_or(0);
        Ok(Status {
            kind: ObjectKind::Array,
            bytes: cells * spec.data_type.size() as u64,
            tier,
            is_durable: !handle.is_dirty()?,
            identity,
            made_ns: None,
            spec: Some(spec),
        })
    }

    pub fn exists(&self, name: &str) -> Result<bool> {
        match self.stat(name) {
            Ok(_) => Ok(true),
            Err(error) if error.kind == Kind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes an object; a container only when it is empty, unless `with_contents`.
    pub fn remove(&self, name: &str, with_contents: bool) -> Result<()> {
        match self.cluster() {
            Some(cluster) => self.remove_among(cluster, name, with_contents),
            None => self.remove_alone(name, with_contents),
        }
    }

    pub(crate) fn remove_alone(&self, name: &str, with_contents: bool) -> Result<()> {
        let path = self.full_path(name)?;
        if path == self.root() {
            return Err(ObjectError::invalid("the root itself can't be removed"));
        }
        if self.is_elsewhere() {
            return self.0.agent.done(&Request::Remove { path: self.name_of(name)?, with_contents });
        }
        let place = self.place();
        if placed::member_of(&path).is_some() {
            check_no_others_keep(&place, &path)?;
        }
        if !placed::look(&place, &path)?.is_directory() {
            placed::remove(&place, &path)?;
            return self.forget_tags(name);
        }
        self.check_no_others_keep_below(name)?;
        if matches!(array::read_metadata(&path), Ok(Some(Metadata { array: Some(_), .. }))) {
            array::remove_directory(&place, &path)?;
            return self.forget_tags(name);
        }
        if with_contents {
            array::remove_directory(&place, &path)?;
            return self.forget_tags(name);
        }
        // A group's own metadata is nothing that a user has put there.
        if self.list(name)?.is_empty() && path.join(array::METADATA_FILE).exists() {
            array::remove_directory(&place, &path)?;
            return self.forget_tags(name);
        }
        rustix::fs::rmdir(&path).map_err(|errno| {
            let reason = std::io::Error::from(errno);
            let error =
                ObjectError::new(Kind::System, format!("can't remove the container {}: {reason}", path.display()));
            if errno == rustix::io::Errno::NOTEMPTY { error.hint("remove it with its contents") } else { error }
        })?;
        self.forget_tags(name)
    }

    /// Of an object, and of all that a container has.
    fn check_no_others_keep_below(&self, name: &str) -> Result<()> {
        let place = self.place();
        let agents = terrace_core::members::directory(self.root(), PRIVATE_DIR);
        if place.member().is_some() || !agents.exists() {
            return Ok(());
        }
        let path = self.full_path(name)?;
        check_no_others_keep(&place, &path)?;
        if !path.is_dir() || matches!(array::read_metadata(&path), Ok(Some(Metadata { array: Some(_), .. }))) {
            return Ok(());
        }
        let below = self.list(name)?.into_iter().map(|entry| format!("{name}/{}", entry.name));
        below.into_iter().try_for_each(|name| self.check_no_others_keep_below(&name))
    }

    /// What an object that is not there, and all below it, was tagged with goes: it was removed, or is to be made. Programs remove
    /// objects without telling of their tags.
    pub(crate) fn forget_tags(&self, name: &str) -> Result<()> {
        self.tags_agent().done(&Request::ForgetTags { path: self.name_of(name)? })
    }

    /// Waits until there is an object of this name. `None`: for as long as it takes.
    pub fn wait_for(&self, name: &str, patience: Option<Duration>) -> Result<Status> {
        let start = Instant::now();
        loop {
            match self.stat(name) {
                Err(error) if error.kind == Kind::NotFound => {}
                result => return result,
            }
            if patience.is_some_and(|patience| start.elapsed() >= patience) {
                return Err(ObjectError::new(Kind::Busy, format!("`{name}` did not appear in the time given")));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// A new bytes object, open for reading and writing; with containers that it is to lie in and that are missing.
    pub fn create_bytes(&self, name: &str, create: Create) -> Result<Bytes> {
        match self.cluster() {
            Some(cluster) => self.create_bytes_among(cluster, name, create),
            None if self.is_elsewhere() => self.create_bytes_at(&self.0.agent, name, create),
            None => self.create_bytes_here(name, create),
        }
    }

    pub(crate) fn create_bytes_here(&self, name: &str, create: Create) -> Result<Bytes> {
        let path = self.full_path(name)?;
        self.check_inside(name, &path)?;
        let place = self.place();
        let file = with_parents(&path, || match create {
            Create::New => placed::create(&place, &path, true),
            Create::Replace => placed::create(&place, &path, false),
            Create::IfMissing => match placed::create(&place, &path, true) {
                Err(error) if error.kind == Kind::Exists => placed::open(&place, &path, true),
                result => result,
            },
        })?;
        Ok(Bytes::new(self.clone(), File::Here(file, place), true, None))
    }

    pub fn open_bytes(&self, name: &str, writable: bool) -> Result<Bytes> {
        match self.cluster() {
            Some(cluster) => self.open_bytes_among(cluster, name, writable),
            None if self.is_elsewhere() => self.open_bytes_at(&self.0.agent, name, writable),
            None => self.open_bytes_here(name, writable),
        }
    }

    pub(crate) fn open_bytes_here(&self, name: &str, writable: bool) -> Result<Bytes> {
        let place = self.place();
        let file = placed::open(&place, &self.full_path(name)?, writable)?;
        Ok(Bytes::new(self.clone(), File::Here(file, place), writable, None))
    }

    /// A new array, with containers that it is to lie in and that are missing; `IfMissing`: the one that is there, if it has the same type, rank and growing dimensions.
    pub fn create_array(&self, name: &str, spec: &ArraySpec, create: Create) -> Result<Array> {
        let path = self.full_path(name)?;
        let spec = spec.clone().checked()?;
        if let Some(cluster) = self.cluster() {
            return self.create_array_among(cluster, name, spec, create);
        }
        if self.is_elsewhere() {
            return self.create_array_elsewhere(name, spec, create);
        }
        let metadata = Metadata::of_array(&spec);
        for _ in 0..100 {
            match (self.create_array_here(name, &metadata), create) {
                (Ok(()), _) => {
                    let array = metadata.array.as_ref().expect("it was made of an array's spec");
                    return self.opened(&path, array, true);
                }
                (Err(error), Create::IfMissing) if error.kind == Kind::Exists => {
                    let found = self.open_array(name, true)?;
                    check_same(name, found.spec(), &spec)?;
                    return Ok(found);
                }
                (Err(error), Create::Replace) if error.kind == Kind::Exists => {
                    check_no_others_keep(&self.place(), &path)?;
                    match array::remove_directory(&self.place(), &path) {
                        Err(error) if error.kind != Kind::NotFound => return Err(error),
                        _ => {}
                    }
                }
                (Err(error), _) => return Err(error),
            }
        }
        Err(ObjectError::new(Kind::Busy, format!("`{name}` is created and removed again and again by others")))
    }

    fn create_array_elsewhere(&self, name: &str, spec: ArraySpec, create: Create) -> Result<Array> {
        let path = self.name_of(name)?;
        let request = Request::CreateArray { path: path.clone(), spec: spec.clone() };
        let mut created = self.0.agent.done(&request);
        if create == Create::Replace && created.as_ref().is_err_and(|error| error.kind == Kind::Exists) {
            self.remove(name, false)?;
            created = self.0.agent.done(&request);
        }
        match created {
            Err(error) if error.kind == Kind::Exists && create == Create::IfMissing => {
                let found = self.open_array(name, true)?;
                check_same(name, found.spec(), &spec)?;
                Ok(found)
            }
            created => {
                created?;
                let array = RemoteArray { agent: self.0.agent.clone(), path, spec, writable: true };
                Ok(Array::new(self.clone(), Backend::Elsewhere(array)))
            }
        }
    }

    pub fn open_array(&self, name: &str, writable: bool) -> Result<Array> {
        if let Some(cluster) = self.cluster() {
            return self.open_array_among(cluster, name, writable);
        }
        if self.is_elsewhere() {
            let path = self.name_of(name)?;
            let Some(spec) = status(&self.0.agent, &path)?.spec else {
                return Err(ObjectError::new(Kind::WrongKind, format!("`{name}` is not an array")));
            };
            let array = RemoteArray { agent: self.0.agent.clone(), path, spec, writable };
            return Ok(Array::new(self.clone(), Backend::Elsewhere(array)));
        }
        let path = self.full_path(name)?;
        match array::read_metadata(&path)? {
            Some(Metadata { array: Some(array), .. }) => self.opened(&path, &array, writable),
            _ => {
                let found = placed::look(&self.place(), &path)?;
                let kind = if found.is_directory() { "a container" } else { "a bytes object" };
                Err(ObjectError::new(Kind::WrongKind, format!("`{name}` is {kind}, not an array")))
            }
        }
    }

    fn opened(&self, path: &Path, array: &array::ArrayMetadata, writable: bool) -> Result<Array> {
        Ok(Array::new(self.clone(), Backend::Here(self.handle(path, array, writable)?)))
    }

    pub(crate) fn handle(&self, path: &Path, array: &array::ArrayMetadata, writable: bool) -> Result<ArrayHandle> {
        if writable && !array.is_raw {
            return Err(ObjectError::new(
                Kind::WrongKind,
                format!("the chunks of {} are encoded: it can be read, not written", path.display()),
            ));
        }
        check_all_stages_have_agents(&self.place(), path)?;
        ArrayHandle::open(self.place(), path, array, writable, self.0.agent.clone())
    }

    /// Makes durable in the root what lies at and below this name, whatever policy says of it.
    pub fn flush(&self, name: &str) -> Result<()> {
        self.all_do(&Request::Flush { path: self.name_of(name)? })
    }

    /// Frees the faster tiers of what lies at and below this name, flushing first what is not durable.
    pub fn evict(&self, name: &str) -> Result<()> {
        self.all_do(&Request::Evict { path: self.name_of(name)? })
    }

    /// Brings files at and below this name into the faster tiers.
    pub fn prefetch(&self, name: &str) -> Result<()> {
        self.all_do(&Request::Prefetch { path: self.name_of(name)? })
    }

    /// Sets a tag of an object; one that is there is replaced.
    pub fn put_tag(&self, name: &str, key: &str, value: TagValue) -> Result<()> {
        self.put_tags(name, vec![(key.into(), value)])
    }

    /// Sets several tags at once: all, or none.
    pub fn put_tags(&self, name: &str, tags: Vec<(String, TagValue)>) -> Result<()> {
        for (key, value) in &tags {
            terrace_core::objects::check_key(key)?;
            value.check()?;
        }
        self.stat_exists(name)?;
        self.tags_agent().done(&Request::PutTags { path: self.name_of(name)?, tags })
    }

    /// `None`: the object has no such tag.
    pub fn get_tag(&self, name: &str, key: &str) -> Result<Option<TagValue>> {
        self.stat_exists(name)?;
        let request = Request::Tag { path: self.name_of(name)?, key: key.into() };
        Ok(self.tags_agent().tags(&request)?.pop().map(|(_, value)| value))
    }

    /// Removing a tag that is not there is an error.
    pub fn delete_tag(&self, name: &str, key: &str) -> Result<()> {
        self.tags_agent().done(&Request::DeleteTag { path: self.name_of(name)?, key: key.into() })
    }

    /// All tags of an object, by key.
    pub fn tags(&self, name: &str) -> Result<Vec<(String, TagValue)>> {
        self.stat_exists(name)?;
        self.tags_agent().tags(&Request::Tags { path: self.name_of(name)? })
    }

    /// Names of objects whose tag matches, sorted.
    pub fn query(&self, query: &TagQuery) -> Result<Vec<String>> {
        let query = TagQuery { below: self.name_of(&query.below)?, ..query.clone() };
        self.tags_agent().paths(&Request::Query { query })
    }

    fn stat_exists(&self, name: &str) -> Result<()> {
        if self.is_elsewhere() || self.cluster().is_some() {
            return Ok(()); // the agent looks
        }
        placed::look(&self.place(), &self.full_path(name)?).map(|_| ())
    }
}

pub(crate) fn check_same(name: &str, has: &ArraySpec, wanted: &ArraySpec) -> Result<()> {
    match (has.data_type, has.rank(), &has.unlimited) == (wanted.data_type, wanted.rank(), &wanted.unlimited) {
        true => Ok(()),
        false => Err(ObjectError::new(
            Kind::Exists,
            format!("`{name}` is an array of another type or shape: {} {:?}", has.data_type, has.shape),
        )),
    }
}

pub(crate) fn security_of(
    scheme: &str,
    address: &str,
    fingerprint: impl FnOnce() -> Result<Option<String>>,
) -> Result<Security> {
    match scheme {
        "plain" => Ok(Security::Plain),
        "tcp" => Ok(security_for(address, fingerprint()?)),
        "tls" => fingerprint()?.map(Security::Tls).ok_or_else(|| {
            ObjectError::new(Kind::Denied, format!("the fingerprint of the certificate of {address} is not known"))
                .hint("set TERRACE_FINGERPRINT, or keep the file that `terrace serve` wrote beside the token's")
        }),
        _ => Err(ObjectError::invalid(format!("`{scheme}://`: agents are reached by tcp://, tls:// or plain://"))),
    }
}

/// `TERRACE_FINGERPRINT`, or what lies beside the token: `TOKEN_FILE.fingerprint`.
fn fingerprint_of_environment() -> Result<Option<String>> {
    if let Ok(text) = std::env::var("TERRACE_FINGERPRINT") {
        return checked_fingerprint(&text).map(Some);
    }
    let Some(mut file) = std::env::var_os("TERRACE_TOKEN_FILE") else { return Ok(None) };
    file.push(FINGERPRINT_SUFFIX);
    match std::fs::read_to_string(&file) {
        Ok(text) => checked_fingerprint(&text).map(Some),
        Err(_) => Ok(None),
    }
}

pub(crate) fn token_of_environment() -> Result<String> {
    if let Ok(token) = std::env::var("TERRACE_TOKEN") {
        return Ok(token);
    }
    let missing = |why: String| {
        ObjectError::new(Kind::Denied, format!("an agent elsewhere wants a token: {why}"))
            .hint("set TERRACE_TOKEN, or TERRACE_TOKEN_FILE to the file that `terrace serve --token-file` was given")
    };
    let file = std::env::var_os("TERRACE_TOKEN_FILE").ok_or_else(|| missing("none is set".into()))?;
    let text = std::fs::read_to_string(&file).map_err(|error| missing(error.to_string()))?;
    Ok(text.trim().to_owned())
}

fn tier_name(tier: Option<u32>) -> String {
    tier.map_or("root".into(), |tier| format!("tier {tier}"))
}

/// Where the agent of a root keeps its index, unless its settings say otherwise (then `TERRACE_RUNTIME` must say so here too).
pub(crate) fn index_of(root: &Path, runtime: Option<&Path>, member: Option<u32>) -> Result<PathBuf> {
    let canonical = root.canonicalize().map_err(|error| {
        ObjectError::new(Kind::NotFound, format!("the root {} can't be used: {error}", root.display()))
    })?;
    let base = match (runtime, std::env::var_os("TERRACE_RUNTIME")) {
        (Some(base), _) => base.to_owned(),
        (None, Some(base)) => PathBuf::from(base),
        (None, None) => user_dir(Path::new("/dev/shm"), rustix::process::geteuid().as_raw()),
    };
    let id = root_id(&canonical) + &member.map_or(String::new(), terrace_core::members::suffix);
    Ok(base.join(id).join("index"))
}
