//! A client on another node: what it would do by itself here, this agent does for it, as a client of its own node.

use super::server::{has_left, send};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use terrace_client::{Array, Bytes, Create, Identity, LockMode, RegionLock, Session};
use terrace_core::objects::wire::{FileRef, PAYLOAD_BYTES_MAX, Request, Response};
use terrace_core::objects::{Kind, ObjectError, Region, Result, few};

/// How often a client that waits for a lock is looked after.
const LOOK: Duration = Duration::from_millis(200);
/// Arrays that stay open between requests.
const OPEN_MAX: usize = 64;
/// Files that all clients together may have open; of those that are closed for want of room the name leads on.
const FILES_MAX: usize = 4096;

/// By their names, each with what the name led to.
type Arrays<T> = HashMap<String, (Option<Identity>, T)>;

/// Arrays that connections have open. They share them, so that room of cells which one of them has put is used again by all: memory
/// that was touched before is several times as fast. And files that clients have open, by whatever connection they come.
#[derive(Default)]
pub struct Opened {
    arrays: Mutex<Arrays<Weak<Array>>>,
    files: Mutex<HashMap<u64, File>>,
}

/// A file that a client has open.
struct File {
    bytes: Arc<Bytes>,
    writable: bool,
    /// Connections that have used it: it is closed when they have all ended, if not before.
    users: usize,
    /// The one that was not used for longest is closed when there are too many.
    used_at: Instant,
}

impl Opened {
    fn array(
        &self,
        path: &str,
        identity: Option<Identity>,
        open: impl FnOnce() -> Result<Array>,
    ) -> Result<Arc<Array>> {
        if let Some(array) = self.known(path, identity) {
            return Ok(array);
        }
        // It may have to wait for a generation: others are not held up.
        let array = Arc::new(open()?);
        let mut known = self.arrays.lock().unwrap();
        known.retain(|_, (_, array)| array.strong_count() > 0);
        let (found, place) = known.entry(path.into()).or_insert_with(|| (identity, Arc::downgrade(&array)));
        match place.upgrade().filter(|_| *found == identity) {
            Some(others) => Ok(others),
            None => {
                (*found, *place) = (identity, Arc::downgrade(&array));
                Ok(array)
            }
        }
    }

    /// The name is another object's now.
    fn forget(&self, path: &str) {
        self.arrays.lock().unwrap().remove(path);
    }

    fn known(&self, path: &str, identity: Option<Identity>) -> Option<Arc<Array>> {
        let known = self.arrays.lock().unwrap();
        known.get(path).filter(|(found, _)| *found == identity).and_then(|(_, array)| array.upgrade())
    }
}

pub struct RemoteClient {
    session: Session,
    opened: Arc<Opened>,
    arrays: Arrays<Arc<Array>>,
    /// Files that came by this connection.
    files: HashSet<u64>,
    /// Released when the connection ends.
    locks: Vec<(u64, RegionLock)>,
    next_lock: u64,
    /// Another name for the connection, to see whether the client is still there.
    socket: OwnedFd,
}

type Answer = Result<(Response, Vec<u8>)>;

impl RemoteClient {
    pub fn new(index: &Path, opened: Arc<Opened>, socket: OwnedFd) -> Result<RemoteClient> {
        let session = Session::open_alone(index)?;
        let (arrays, files) = (HashMap::new(), HashSet::new());
        Ok(RemoteClient { session, opened, arrays, files, locks: vec![], next_lock: 0, socket })
    }

    /// `Err(request)`: not for us.
    #[allow(clippy::result_large_err)] // no error: handed back as it came, without being copied to the heap
    pub fn answer(&mut self, request: Request, payload: Vec<u8>) -> std::result::Result<Answer, Request> {
        let answer = match request {
            Request::Resize { path, shape } => self.array(&path).and_then(|array| array.grow(&shape)),
            Request::WriteBytes { file, position } => self.file(&file).and_then(|file| {
                file.write_at(position, &payload)?;
                file.flush()
            }),
            Request::SetLength { file, length } => self.file(&file).and_then(|file| file.set_len(length)),
            Request::PutFew { path, region, count } => self.put_few(&path, &region, count, &payload),
            Request::CreateContainer { path } => self.session.create_container(&path, Create::New),
            Request::Remove { path, with_contents } => {
                self.forget(&path);
                let removed = self.session.remove(&path, with_contents);
                removed.inspect(|()| self.opened.forget(&path))
            }
            Request::Rename { from, to } => {
                self.forget(&from);
                self.opened.forget(&from);
                self.session.rename(&from, &to)
            }
            Request::CreateArray { path, spec } => {
                self.forget(&path);
                // One that is there stays what it is to all.
                self.session.create_array(&path, &spec, Create::New).map(|_| self.opened.forget(&path))
            }
            Request::CreateBytes { file, exclusive } => {
                self.forget(&file.path);
                let create = if exclusive { Create::New } else { Create::Replace };
                self.session.create_bytes(&file.path, create).map(|bytes| self.keep(&file, Arc::new(bytes)))
            }
            Request::Unlock { lock, .. } => {
                let before = self.locks.len();
                self.locks.retain(|(held, _)| *held != lock);
                match self.locks.len() < before {
                    true => Ok(()),
                    false => Err(ObjectError::new(Kind::NotFound, "this connection holds no such lock")),
                }
            }
            other => return self.answer_with_payload(other, payload),
        };
        Ok(answer.map(|()| (Response::Done, vec![])))
    }

    /// Straight from the connection into the tier.
    pub fn put(
        &mut self,
        path: &str,
        region: &Region,
        payload_bytes: u64,
        connection: &mut impl Read,
    ) -> std::io::Result<Result<()>> {
        let mut left = payload_bytes;
        let mut broken = None;
        let put = self.put_by(path, region, payload_bytes, |place| {
            connection.read_exact(place).map_err(|error| {
                let lost = ObjectError::new(Kind::Protocol, format!("the client has left: {error}"));
                broken = Some(error);
                lost
            })?;
            left = 0;
            Ok(())
        });
        if let Some(error) = broken {
            return Err(error);
        }
        // What was refused is still on its way.
        if std::io::copy(&mut connection.take(left), &mut std::io::sink())? < left {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(put)
    }

    fn put_few(&mut self, path: &str, region: &Region, count: u64, payload: &[u8]) -> Result<()> {
        let fill = self.array(path)?.spec().fill.clone();
        let bytes = few::check(region, fill.len(), count, PAYLOAD_BYTES_MAX)?;
        self.put_by(path, region, bytes as u64, |place| few::scatter(payload, count, &fill, place))
    }

    /// `bring` writes the cells straight into the tier.
    pub fn put_by(
        &mut self,
        path: &str,
        region: &Region,
        bytes: u64,
        bring: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        match self.array(path)?.handle() {
            Some(handle) => handle.put_by(region, bytes as usize, 0, bring),
            None => Err(ObjectError::new(Kind::System, "an agent puts on its own node only")),
        }
    }

    /// `take` gets the cells where they lie, if they are one run there, else a copy; with the verdict.
    pub fn lend_or_copy(
        &mut self,
        path: &str,
        region: &Region,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let lent = match self.array(path)?.handle() {
            Some(handle) => handle.lend(region, &mut *take)?,
            None => None,
        };
        match lent {
            Some((Err(error), _)) => return Err(error),
            Some((Ok(()), true)) => return Ok(()),
            // Overwritten meanwhile, or in several places.
            Some((Ok(()), false)) | None => {}
        }
        let (_, cells) = self.get(path, region, vec![])?;
        take(&cells)
    }

    /// Straight from the tier to the connection, with the verdict. False: it is not one run there, and nothing was sent.
    pub fn lend(&mut self, path: &str, region: &Region, connection: &mut impl Write) -> std::io::Result<bool> {
        let lent = self.array(path).and_then(|array| match array.handle() {
            Some(handle) => handle.lend(region, |cells| send(connection, &Response::Bytes, cells)),
            None => Ok(None),
        });
        // The copying way finds what is wrong, and says so.
        let Ok(Some((sent, is_whole))) = lent else { return Ok(false) };
        sent?;
        let overwritten = || ObjectError::new(Kind::Busy, "the region was overwritten while it was read");
        let verdict = if is_whole { Response::Done } else { Response::Failed(overwritten()) };
        send(connection, &verdict, &[])?;
        Ok(true)
    }

    /// A copy, into memory that was used before.
    pub fn get(&mut self, path: &str, region: &Region, mut spare: Vec<u8>) -> Answer {
        let array = self.array(path)?;
        region.check_within(&array.shape()?)?;
        spare.resize(payload_of(region.cells(), array.spec().data_type.size())?, 0);
        array.get(region, &mut spare)?;
        Ok((Response::Bytes, spare))
    }

    #[allow(clippy::result_large_err)] // as `answer`
    fn answer_with_payload(&mut self, request: Request, mut spare: Vec<u8>) -> std::result::Result<Answer, Request> {
        Ok(match request {
            Request::GetRegion { path, region } => self.get(&path, &region, spare),
            Request::OpenBytes { file } | Request::LengthOf { file } => {
                let length = self.file(&file).and_then(|file| file.len());
                length.map(|bytes| (Response::Length { bytes }, vec![]))
            }
            Request::ReadBytes { file, position, count } => self.file(&file).and_then(|file| {
                let left = file.len()?.saturating_sub(position);
                spare.resize(payload_of(count.min(left), 1)?, 0);
                let got = file.read_at(position, &mut spare)?;
                spare.truncate(got);
                Ok((Response::Bytes, spare))
            }),
            Request::Stat { path } => self.session.stat(&path).map(|status| (Response::Status(status), vec![])),
            Request::List { path } => self.session.list(&path).map(|entries| (Response::Entries { entries }, vec![])),
            Request::Regions { path, dimension, from } => self.array(&path).and_then(|array| {
                let dimension = dimension as usize;
                let Some(handle) = array.handle().filter(|_| dimension < array.spec().rank()) else {
                    return Err(ObjectError::invalid(format!("`{path}` has no dimension {dimension}")));
                };
                let part = handle.staged_part(dimension, from)?;
                Ok((Response::Regions { shape: part.shape, base: part.base, regions: part.regions }, vec![]))
            }),
            Request::Lock { path, region, exclusive, patience_ms } => {
                let mode = if exclusive { LockMode::Write } else { LockMode::Read };
                let patience = patience_ms.map(Duration::from_millis);
                self.lock(&path, &region, mode, patience).map(|lock| {
                    self.next_lock += 1;
                    self.locks.push((self.next_lock, lock));
                    (Response::Locked { lock: self.next_lock }, vec![])
                })
            }
            other => return Err(other),
        })
    }

    /// As long as the client waits, and no longer: nobody else would give back what it is granted after it has left.
    fn lock(&mut self, path: &str, region: &Region, mode: LockMode, patience: Option<Duration>) -> Result<RegionLock> {
        let begun = Instant::now();
        loop {
            let left = patience.map(|patience| patience.saturating_sub(begun.elapsed()));
            let turn = left.map_or(LOOK, |left| left.min(LOOK));
            match self.array(path)?.lock(region, mode, Some(turn)) {
                Err(error) if error.kind == Kind::Busy && left != Some(turn) => {}
                locked => return locked,
            }
            if has_left(&self.socket) {
                return Err(ObjectError::new(Kind::Protocol, "the client has left"));
            }
        }
    }

    /// Which file or directory the name leads to now: others remove and make objects as well.
    fn identity(&self, path: &str) -> Option<Identity> {
        Identity::of(&self.session.root().join(path)).ok()
    }

    fn array(&mut self, path: &str) -> Result<&Array> {
        let identity = self.identity(path);
        if self.arrays.get(path).is_none_or(|(known, _)| *known != identity) {
            if self.arrays.len() >= OPEN_MAX {
                self.arrays.clear();
            }
            let array = self.opened.array(path, identity, || match self.session.open_array(path, true) {
                // An array with encoded chunks can be read.
                Err(error) if error.kind == Kind::WrongKind => self.session.open_array(path, false),
                opened => opened,
            })?;
            self.arrays.insert(path.into(), (identity, array));
        }
        Ok(&self.arrays[path].1)
    }

    fn file(&mut self, file: &FileRef) -> Result<Arc<Bytes>> {
        let known = self.opened.files.lock().unwrap().get_mut(&file.open).map(|known| {
            known.users += usize::from(self.files.insert(file.open));
            known.used_at = Instant::now();
            (known.bytes.clone(), known.writable)
        });
        match known {
            Some((bytes, writable)) if writable || !file.writable => Ok(bytes),
            Some(_) => Err(ObjectError::new(Kind::WrongKind, format!("`{}` was opened for reading only", file.path))),
            None => {
                let bytes = Arc::new(self.session.open_bytes(&file.path, file.writable)?);
                self.keep(file, bytes.clone());
                Ok(bytes)
            }
        }
    }

    fn keep(&mut self, file: &FileRef, bytes: Arc<Bytes>) {
        let mut files = self.opened.files.lock().unwrap();
        if files.len() >= FILES_MAX
            && let Some(oldest) = files.iter().min_by_key(|(_, file)| file.used_at).map(|(open, _)| *open)
        {
            files.remove(&oldest);
        }
        self.files.insert(file.open);
        files.insert(file.open, File { bytes, writable: file.writable, users: 1, used_at: Instant::now() });
    }

    pub fn close(&mut self, open: u64) {
        self.files.remove(&open);
        self.opened.files.lock().unwrap().remove(&open);
    }

    /// The name is to be another object's.
    fn forget(&mut self, path: &str) {
        self.arrays.remove(path);
    }
}

impl Drop for RemoteClient {
    fn drop(&mut self) {
        let mut files = self.opened.files.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for open in &self.files {
            if let Entry::Occupied(mut file) = files.entry(*open) {
                file.get_mut().users -= 1;
                if file.get().users == 0 {
                    file.remove();
                }
            }
        }
    }
}

/// A length that may be allocated for one answer.
fn payload_of(cells: u64, size: usize) -> Result<usize> {
    let bytes = cells.saturating_mul(size as u64);
    match bytes <= terrace_core::objects::wire::PAYLOAD_BYTES_MAX {
        true => Ok(bytes as usize),
        false => Err(ObjectError::invalid(format!("{bytes} bytes are more than travel at once: ask for parts"))),
    }
}
