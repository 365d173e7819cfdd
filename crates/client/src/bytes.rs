//! A bytes object, as a program uses it: small writes are gathered.
//!
//!   write ─▶ window (one run of bytes, up to 1 MiB) ──full, elsewhere, flush, close──▶ the file in its tier
//!   read  ─▶ window, where it has the bytes; else the file
//!
//! Files are not mapped: where another program cuts one off, a copy out of its mapping ends with a signal, and one read is one
//! call of the system either way, since a mapping's length would have to be asked for.
//!
//! Invariant: what `flush` or `close` returned for is in the file, where every other program sees it.

use crate::remote::{RemoteFile, is_on};
use crate::session::Session;
use std::sync::{Arc, Mutex, MutexGuard};
use terrace_core::objects::{Kind, ObjectError, Result};
use terrace_objects::Place;
use terrace_objects::placed::BytesFile;

/// Bytes that are gathered before they are written.
const WINDOW: usize = 1 << 20;
/// Longer than any file can be.
const END_MAX: u64 = 1 << 62;

/// Set to `0`, small writes are not gathered.
const AGGREGATE: &str = "TERRACE_AGGREGATE";

pub struct Bytes {
    session: Session,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    writable: bool,
    window: Window,
    /// The file's length, as far as this handle's own writes and looks tell; the window may reach further.
    length: u64,
    /// Forks seen when the window was begun: a child does not write what its parent gathered.
    generation: u32,
}

/// Where the object is.
pub(crate) enum File {
    Here(BytesFile, Arc<Place>),
    Elsewhere(RemoteFile),
}

impl File {
    fn name(&self) -> String {
        match self {
            File::Here(file, _) => file.path().display().to_string(),
            File::Elsewhere(file) => file.path().to_owned(),
        }
    }
    fn len(&mut self) -> Result<u64> {
        match self {
            File::Here(file, place) => file.len(place),
            File::Elsewhere(file) => file.len(),
        }
    }
    /// `keeps`: nobody changes it by this handle, so what was fetched ahead may be used.
    fn read_at(&mut self, position: u64, buffer: &mut [u8], keeps: bool) -> Result<usize> {
        match self {
            File::Here(file, place) => file.read_at(place, position, buffer),
            File::Elsewhere(file) => file.read_at(position, buffer, keeps),
        }
    }
    fn write_at(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        match self {
            File::Here(file, place) => file.write_at(place, position, bytes),
            File::Elsewhere(file) => file.write_at(position, bytes),
        }
    }
    fn set_len(&mut self, length: u64) -> Result<()> {
        match self {
            File::Here(file, place) => file.set_len(place, length),
            File::Elsewhere(file) => file.set_len(length),
        }
    }
    /// An agent elsewhere answers when the bytes are in its tier; its disk is its own affair.
    fn sync(&mut self) -> Result<()> {
        match self {
            File::Here(file, place) => file.sync(place),
            File::Elsewhere(_) => Ok(()),
        }
    }
}

#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Takes the bytes if they lie in the window or go on where it ends.
    fn take(&mut self, position: u64, bytes: &[u8]) -> bool {
        if !is_on(AGGREGATE) {
            return false;
        }
        if self.bytes.is_empty() {
            if bytes.len() > WINDOW / 2 {
                return false;
            }
            self.start = position;
        }
        if position < self.start || position > self.end() {
            return false;
        }
        let at = (position - self.start) as usize;
        let inside = bytes.len().min(self.bytes.len() - at);
        if at + bytes.len() > WINDOW {
            return false;
        }
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(WINDOW);
        }
        self.bytes[at..at + inside].copy_from_slice(&bytes[..inside]);
        self.bytes.extend_from_slice(&bytes[inside..]);
        true
    }
}

impl Bytes {
    /// `length`: where it is known already.
    pub(crate) fn new(session: Session, mut file: File, writable: bool, length: Option<u64>) -> Bytes {
        let generation = terrace_objects::fork_generation();
        let length = length.or_else(|| file.len().ok()).unwrap_or(0);
        let inner = Inner { file, writable, window: Window::default(), length, generation };
        Bytes { session, inner: Mutex::new(inner) }
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        let mut inner = self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let generation = terrace_objects::fork_generation();
        if inner.generation != generation {
            inner.generation = generation;
            inner.window.bytes.clear();
        }
        inner
    }

    pub fn session(&self) -> &Session {
        &self.session
    }

    /// With what is gathered and not yet published.
    pub fn len(&self) -> Result<u64> {
        let mut inner = self.locked();
        let length = inner.file.len()?;
        inner.length = length;
        Ok(if inner.window.bytes.is_empty() { length } else { length.max(inner.window.end()) })
    }

    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Bytes read; fewer than asked for only at the end.
    pub fn read_at(&self, position: u64, buffer: &mut [u8]) -> Result<usize> {
        self.locked().read_at(position, buffer)
    }

    /// All of `buffer`, or an error that names the bounds.
    pub fn read_exact_at(&self, position: u64, buffer: &mut [u8]) -> Result<()> {
        let got = self.read_at(position, buffer)?;
        if got == buffer.len() {
            return Ok(());
        }
        let (wanted, length) = (buffer.len(), self.len()?);
        Err(ObjectError::new(
            Kind::OutOfBounds,
            format!("{wanted} bytes from {position} on were to be read of {length}: {}", self.locked().file.name()),
        ))
    }

    /// Past the end the object grows; what lies between is zero.
    pub fn write_at(&self, position: u64, bytes: &[u8]) -> Result<()> {
        self.locked().write_at(position, bytes)
    }

    /// Writes at the end that this handle knows; where it went.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let mut inner = self.locked();
        let is_gathered = !inner.window.bytes.is_empty();
        let position = if is_gathered { inner.length.max(inner.window.end()) } else { inner.length };
        inner.write_at(position, bytes)?;
        Ok(position)
    }

    pub fn set_len(&self, length: u64) -> Result<()> {
        let mut inner = self.locked();
        inner.publish()?;
        inner.file.set_len(length)?;
        inner.length = length;
        Ok(())
    }

    /// Publishes what is gathered: every other program sees it.
    pub fn flush(&self) -> Result<()> {
        self.locked().publish()
    }

    /// Publishes, and makes it as safe as the tier is. (`Session::flush` makes it durable in the root.)
    pub fn sync(&self) -> Result<()> {
        let mut inner = self.locked();
        inner.publish()?;
        inner.file.sync()
    }

    /// Publishes and closes. Dropping does the same, but can't tell of a failure.
    pub fn close(self) -> Result<()> {
        self.flush()
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            eprintln!("terrace: what was gathered for an object is lost: {error}");
            self.locked().window.bytes.clear();
        }
    }
}

impl Inner {
    fn publish(&mut self) -> Result<()> {
        if !self.window.bytes.is_empty() {
            self.file.write_at(self.window.start, &self.window.bytes)?;
            self.length = self.length.max(self.window.end());
            self.window.bytes.clear();
        }
        Ok(())
    }

    fn write_at(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(ObjectError::new(Kind::WrongKind, format!("{} was opened for reading only", self.file.name())));
        }
        if position.checked_add(bytes.len() as u64).is_none_or(|end| end >= END_MAX) {
            let path = self.file.name();
            return Err(ObjectError::new(
                Kind::OutOfBounds,
                format!("{path}: a write to beyond 2^62 (from {position} on)"),
            ));
        }
        if self.window.take(position, bytes) {
            return Ok(());
        }
        self.publish()?;
        if self.window.take(position, bytes) {
            return Ok(());
        }
        self.file.write_at(position, bytes)?;
        self.length = self.length.max(position + bytes.len() as u64);
        Ok(())
    }

    fn read_at(&mut self, position: u64, buffer: &mut [u8]) -> Result<usize> {
        if !self.writable {
            return self.file.read_at(position, buffer, true);
        }
        let end = position.saturating_add(buffer.len() as u64);
        let window = &self.window;
        if window.bytes.is_empty() || end <= window.start || position >= window.end() {
            let window_end = if window.bytes.is_empty() { 0 } else { window.end() };
            let got = self.file.read_at(position, buffer, false)?;
            // What lies between the file's end and the window is zero.
            let reaches = window_end.saturating_sub(position).min(buffer.len() as u64) as usize;
            if got < reaches {
                buffer[got..reaches].fill(0);
            }
            return Ok(got.max(reaches));
        }
        if position >= window.start && end <= window.end() {
            let at = (position - window.start) as usize;
            buffer.copy_from_slice(&window.bytes[at..at + buffer.len()]);
            return Ok(buffer.len());
        }
        self.publish()?;
        self.file.read_at(position, buffer, false)
    }
}
