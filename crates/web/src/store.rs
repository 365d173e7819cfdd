//! The session that everything is read by, the arrays that it has open, and how many steps of them are shown.
//!
//! Invariant: along a dimension that grows, readers see the steps that are complete in all arrays of the container that share the
//! dimension by name, as tables do; so whoever reads a container's metadata sees all arrays of a step, or none.

use crate::refusal::{Answer, Refusal};
use crate::reply::Reply;
use axum::body::Bytes;
use axum::http::StatusCode;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use terrace_client::{Array, Kind, ObjectError, ObjectKind, Session, TagValue};
use terrace_core::objects::complete_steps;
use terrace_objects::array::{METADATA_FILE, Metadata};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are read and not yet sent, of all requests together, in MiB.
const ROOM_MIB: u32 = 1024;
/// How long a request waits for room.
const PATIENCE: Duration = Duration::from_secs(30);
/// Arrays that are kept open.
const OPEN_MAX: usize = 1024;
/// A `zarr.json` is small; what is larger is something else.
const METADATA_BYTES_MAX: u64 = 64 << 20;
/// The container's tag that says which steps are shown: "complete" (the default), "all", or how many.
const STEPS_TAG: &str = "terrace.steps";

/// Steps by the name of a dimension that grows.
pub type Steps = BTreeMap<String, u64>;

pub struct Store {
    session: Session,
    room: Arc<Semaphore>,
    open: Mutex<HashMap<String, Open>>,
    /// Of containers, as they were when somebody last looked.
    steps: Mutex<HashMap<String, Steps>>,
}

#[derive(Clone)]
struct Open {
    /// Another one when the array was made again, or flushed.
    signature: (u64, i64, i64),
    /// `None`: its chunks are encoded, they are files to us.
    array: Option<Array>,
}

/// What a name stands for in a Zarr hierarchy.
pub enum Node {
    /// With what its own `zarr.json` says, if it has one.
    Group(Option<Box<Metadata>>),
    /// Chunks are regions.
    Array(Box<Metadata>, Array),
    /// An array that other programs have written, with its `zarr.json` as it is: chunks are files.
    Encoded(serde_json::Value),
}

/// Bytes with the room that they take until they are sent.
struct Held(Vec<u8>, #[allow(dead_code)] OwnedSemaphorePermit);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Room for bytes that are about to be read.
pub struct Room(OwnedSemaphorePermit);

impl Room {
    pub fn holds(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Held(bytes, self.0))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The container of a name, and the name in it.
pub fn parent(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

pub fn below(container: &str, name: &str) -> String {
    if container.is_empty() { name.into() } else { format!("{container}/{name}") }
}

impl Store {
    pub fn new(session: Session) -> Store {
        let room = Arc::new(Semaphore::new(ROOM_MIB as usize));
        Store { session, room, open: Mutex::new(HashMap::new()), steps: Mutex::new(HashMap::new()) }
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Does what blocks, beside the threads that serve.
    pub async fn read(&self, act: impl FnOnce() -> Answer<Reply> + Send + 'static) -> Answer<Reply> {
        let ended = |_| Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending"));
        tokio::task::spawn_blocking(act).await.unwrap_or_else(ended)
    }

    /// Waits until so many bytes more may be held.
    pub fn room(&self, bytes: u64) -> Answer<Room> {
        let wanted = u32::try_from(bytes >> 20).unwrap_or(u32::MAX).saturating_add(1).min(ROOM_MIB);
        let acquired = tokio::time::timeout(PATIENCE, self.room.clone().acquire_many_owned(wanted));
        match Handle::current().block_on(acquired) {
            Ok(Ok(permit)) => Ok(Room(permit)),
            _ => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too much is being sent already")),
        }
    }

    /// What an object's `zarr.json` says; `None`: it has none.
    pub fn document(&self, name: &str) -> Answer<Option<Vec<u8>>> {
        self.file(&below(name, METADATA_FILE), METADATA_BYTES_MAX)
    }

    /// A bytes object, whole; `None`: there is none of this name.
    fn file(&self, name: &str, bytes_max: u64) -> Answer<Option<Vec<u8>>> {
        let file = match self.session.open_bytes(name, false) {
            Err(error) if matches!(error.kind, Kind::NotFound | Kind::WrongKind) => return Ok(None),
            Err(error) if is_not_a_name(&error) => return Ok(None),
            other => other?,
        };
        let length = file.len()?;
        if length > bytes_max {
            return Err(Refusal::bad(format!("`{name}` has {length} bytes: more than is sent at once")));
        }
        let mut bytes = vec![0; length as usize];
        let got = file.read_at(0, &mut bytes)?;
        bytes.truncate(got);
        Ok(Some(bytes))
    }

    /// A chunk's file of an encoded array.
    pub fn chunk_file(&self, name: &str) -> Answer<Option<Bytes>> {
        let length = match self.session.stat(name) {
            Ok(status) if status.kind == ObjectKind::Bytes => status.bytes,
            Ok(_) => return Ok(None),
            Err(error) if error.kind == Kind::NotFound || is_not_a_name(&error) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let room = self.room(length)?;
        Ok(self.file(name, (ROOM_MIB as u64) << 20)?.map(|bytes| room.holds(bytes)))
    }

    /// `None`: there is no such object, or it is a bytes object.
    pub fn node(&self, name: &str) -> Answer<Option<Node>> {
        let Some(text) = self.document(name)? else {
            return match self.session.stat(name) {
                Ok(status) => Ok((status.kind == ObjectKind::Container).then_some(Node::Group(None))),
                Err(error) if error.kind == Kind::NotFound || is_not_a_name(&error) => Ok(None),
                Err(error) => Err(error.into()),
            };
        };
        match Metadata::parse(&text) {
            Ok(metadata) if metadata.array.is_none() => Ok(Some(Node::Group(Some(Box::new(metadata))))),
            Ok(metadata) => match self.array(name)? {
                Some(array) => Ok(Some(Node::Array(Box::new(metadata), array))),
                None => Ok(serde_json::from_slice(&text).ok().map(Node::Encoded)),
            },
            // A type or a rank that Terrace has no arrays of.
            Err(_) => match serde_json::from_slice::<serde_json::Value>(&text) {
                Ok(document) if document["node_type"] == "array" => Ok(Some(Node::Encoded(document))),
                _ => Ok(None),
            },
        }
    }

    fn signature(&self, name: &str) -> terrace_client::Result<(u64, i64, i64)> {
        if self.session.is_elsewhere() {
            return self.session.stat(name).map(|status| (status.identity, 0, 0));
        }
        let path = self.session.root().join(name).join(METADATA_FILE);
        let found = std::fs::metadata(&path)
            .map_err(|error| ObjectError::new(Kind::NotFound, format!("`{name}` is not an array: {error}")))?;
        Ok((found.ino(), found.mtime(), found.mtime_nsec()))
    }

    /// What another array that is made in this one's place has not.
    pub fn identity(&self, name: &str) -> Answer<String> {
        let mut hasher = DefaultHasher::new();
        self.session.identity(name)?.hash(&mut hasher);
        Ok(format!("{:016x}", hasher.finish()))
    }

    /// The array of this name as it is there now, open; `None`: there is no array, or its chunks are encoded.
    pub fn array(&self, name: &str) -> Answer<Option<Array>> {
        let signature = match self.signature(name) {
            Err(error) if error.kind == Kind::NotFound => {
                locked(&self.open).remove(name);
                return Ok(None);
            }
            other => other?,
        };
        if let Some(known) = locked(&self.open).get(name).filter(|known| known.signature == signature) {
            return Ok(known.array.clone());
        }
        locked(&self.steps).remove(parent(name).0);
        let metadata = self.document(name)?.and_then(|text| Metadata::parse(&text).ok());
        let Some(found) = metadata.and_then(|metadata| metadata.array) else { return Ok(None) };
        let array = match found.is_raw {
            true => Some(self.session.open_array(name, false)?),
            false => None,
        };
        let mut open = locked(&self.open);
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(name.into(), Open { signature, array: array.clone() });
        Ok(array)
    }

    /// The arrays of a container, by their names in it; those that are removed meanwhile are left out.
    pub fn arrays(&self, container: &str) -> Answer<Vec<(String, Array)>> {
        let mut arrays = vec![];
        for entry in self.session.list(container)?.into_iter().filter(|entry| entry.kind == ObjectKind::Array) {
            match self.array(&below(container, &entry.name)) {
                Ok(Some(array)) => arrays.push((entry.name, array)),
                Ok(None) => {}
                Err(refusal) if refusal.status == StatusCode::NOT_FOUND => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(arrays)
    }

    /// How many steps are shown of each dimension of a container that has a name and grows.
    pub fn steps(&self, container: &str) -> Answer<Steps> {
        let arrays = self.arrays(container)?;
        let mut steps = Steps::new();
        let growing: Vec<String> = arrays
            .iter()
            .flat_map(|(_, array)| {
                let spec = array.spec();
                spec.dimensions.iter().zip(&spec.unlimited).filter(|(name, grows)| **grows && !name.is_empty())
            })
            .map(|(name, _)| name.clone())
            .collect();
        if !growing.is_empty() {
            let tag = self.session.tags(container)?.into_iter().find(|(key, _)| key == STEPS_TAG);
            let wanted = Wanted::of(tag.map(|(_, value)| value))?;
            for name in growing {
                let Entry::Vacant(place) = steps.entry(name) else { continue };
                let along = arrays.iter().filter_map(|(_, array)| {
                    array.spec().dimensions.iter().position(|own| own == place.key()).map(|d| (array, d))
                });
                let counts = along.map(|(array, d)| wanted.steps(array, d)).collect::<Answer<Vec<u64>>>()?;
                place.insert(counts.into_iter().min().unwrap_or(0));
            }
        }
        let mut known = locked(&self.steps);
        if known.len() >= OPEN_MAX {
            known.clear();
        }
        known.insert(container.into(), steps.clone());
        Ok(steps)
    }

    /// As far as readers see an array.
    pub fn shape(&self, array: &Array, steps: &Steps) -> Answer<Vec<u64>> {
        let mut shape = array.shape()?;
        let spec = array.spec();
        for (d, extent) in shape.iter_mut().enumerate() {
            let name = spec.dimensions.get(d).filter(|name| !name.is_empty());
            match name.map(|name| steps.get(name)) {
                Some(Some(steps)) => *extent = (*extent).min(*steps),
                Some(None) => {}
                None if spec.unlimited[d] => *extent = (*extent).min(Wanted::Complete.steps(array, d)?),
                None => {}
            }
        }
        Ok(shape)
    }

    /// The shape of an array with this name, if what somebody has seen already is enough for `covers`; else as it is now.
    pub fn shape_for(&self, name: &str, array: &Array, covers: impl Fn(&[u64]) -> bool) -> Answer<Vec<u64>> {
        let container = parent(name).0;
        let known = locked(&self.steps).get(container).cloned();
        if let Some(steps) = known {
            let shape = self.shape(array, &steps)?;
            if covers(&shape) {
                return Ok(shape);
            }
        }
        self.shape(array, &self.steps(container)?)
    }
}

/// A part of a path is a file: nothing lies below it.
fn is_not_a_name(error: &ObjectError) -> bool {
    error.kind == Kind::WrongKind || (error.kind == Kind::System && error.message.contains("ot a directory"))
}

/// Which steps a container shows.
enum Wanted {
    Complete,
    All,
    Published(u64),
}

impl Wanted {
    fn of(tag: Option<TagValue>) -> Answer<Wanted> {
        match tag {
            None => Ok(Wanted::Complete),
            Some(TagValue::Text(text)) if text == "complete" => Ok(Wanted::Complete),
            Some(TagValue::Text(text)) if text == "all" => Ok(Wanted::All),
            Some(TagValue::Int(published)) if published >= 0 => Ok(Wanted::Published(published as u64)),
            Some(other) => Err(Refusal {
                hint: Some("\"complete\", \"all\", or the number of steps that are published".into()),
                ..Refusal::bad(format!("the tag `{STEPS_TAG}` is {other}"))
            }),
        }
    }

    fn steps(&self, array: &Array, d: usize) -> Answer<u64> {
        match self {
            Wanted::All => Ok(array.shape()?[d]),
            Wanted::Published(published) => Ok(array.shape()?[d].min(*published)),
            Wanted::Complete => {
                // Of an array on other nodes its staged regions are not to be seen: its steps are those that were begun.
                let Some(handle) = array.handle() else { return Ok(array.shape()?[d]) };
                let view = handle.view()?;
                let durable = if view.has_base { view.base_shape[d] } else { 0 };
                let regions: Vec<_> = view.layers.iter().map(|layer| layer.region).collect();
                Ok(complete_steps(durable, &view.shape, &regions, d))
            }
        }
    }
}
