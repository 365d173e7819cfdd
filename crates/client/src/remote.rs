//! Objects of an agent elsewhere: the same calls, as messages. Cells and bytes travel as payloads.
//!
//! Reads of a bytes object are fetched ahead: a window that doubles while reading is sequential, and shrinks to what is asked
//! for when it is not. From the third on a window is asked for while the program reads the one before it.

use crate::fabric::Cells;
use crate::rpc::{Agent, Begun, Stream, exchange, unexpected};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use terrace_core::objects::wire::{FileRef, PAYLOAD_BYTES_MAX, Request, Response, Status};
use terrace_core::objects::{ArraySpec, Kind, ObjectError, Region, Result};
use terrace_objects::array::LockMode;
use terrace_objects::fork_generation;

/// From so many bytes on it pays to send them from where they lie.
const LENT_MIN: usize = 64 << 10;
/// Most bytes that are fetched ahead.
const AHEAD_MAX: usize = 4 << 20;
const AHEAD_FIRST: usize = 64 << 10;
/// What was fetched ahead is used for so long: what others write meanwhile is seen later.
const AHEAD_AGE_MAX: Duration = Duration::from_secs(1);

/// Set to `0`, nothing is fetched ahead.
const PREFETCH: &str = "TERRACE_PREFETCH";

/// What is done for speed can be switched off, by a variable that is `0`, `false` or `off`; looked at once.
pub fn is_on(variable: &'static str) -> bool {
    static SWITCHES: OnceLock<[(&str, bool); 2]> = OnceLock::new();
    let look = |name: &str| !std::env::var(name).is_ok_and(|text| matches!(text.as_str(), "0" | "false" | "off"));
    let switches = SWITCHES.get_or_init(|| ["TERRACE_AGGREGATE", PREFETCH].map(|name| (name, look(name))));
    switches.iter().all(|(name, on)| *name != variable || *on)
}

pub fn status(agent: &Agent, path: &str) -> Result<Status> {
    match agent.ask(&Request::Stat { path: path.into() })?.0 {
        Response::Status(status) => Ok(status),
        other => Err(unexpected(&other)),
    }
}

/// The shape, what lies below the staged regions, and those of them that end beyond `from`.
pub type StagedRegions = (Vec<u64>, Option<Vec<u64>>, Vec<Region>);

pub fn regions_at(agent: &Agent, path: &str, dimension: usize, from: u64) -> Result<StagedRegions> {
    let request = Request::Regions { path: path.into(), dimension: dimension as u32, from };
    match agent.ask(&request)?.0 {
        Response::Regions { shape, base, regions } => Ok((shape, base, regions)),
        other => Err(unexpected(&other)),
    }
}

pub struct RemoteArray {
    pub agent: Arc<Agent>,
    pub path: String,
    pub spec: ArraySpec,
    pub writable: bool,
}

impl RemoteArray {
    pub fn shape(&self) -> Result<Vec<u64>> {
        let spec = status(&self.agent, &self.path)?.spec;
        let gone = || ObjectError::new(Kind::NotFound, format!("the array `{}` was removed", self.path));
        spec.map(|spec| spec.shape).ok_or_else(gone)
    }

    fn check(&self, region: &Region, bytes: usize) -> Result<()> {
        region.check_rank(self.spec.rank())?;
        let wanted = region.cells().checked_mul(self.spec.data_type.size() as u64);
        if wanted != Some(bytes as u64) {
            return Err(ObjectError::invalid(format!("{region} does not have the buffer's {bytes} bytes")));
        }
        if bytes as u64 > PAYLOAD_BYTES_MAX {
            return Err(ObjectError::invalid(format!("{bytes} bytes are more than travel at once: put parts")));
        }
        Ok(())
    }

    /// A put as a message, where it goes as one: not too much at once, and not by a fabric.
    pub fn put_request(&self, region: &Region, bytes: usize) -> Option<Request> {
        let goes = bytes as u64 <= PAYLOAD_BYTES_MAX && self.agent.is_without_fabric();
        goes.then(|| Request::PutRegion { path: self.path.clone(), region: *region, step: 0 })
    }

    pub fn put(&self, region: &Region, cells: &[u8]) -> Result<()> {
        if !self.writable {
            return Err(ObjectError::new(Kind::WrongKind, format!("`{}` was opened for reading only", self.path)));
        }
        self.check(region, cells.len())?;
        let (path, region, bytes) = (self.path.clone(), *region, cells.len() as u64);
        let pull = |from| Request::PullRegion { path: path.clone(), region, bytes, from };
        if self.agent.by_fabric(Cells::ToAgent(cells), pull)? {
            return Ok(());
        }
        let request = Request::PutRegion { path, region, step: 0 };
        self.agent.ask_with(&request, cells).map(|_| ())
    }

    pub fn get(&self, region: &Region, cells: &mut [u8]) -> Result<()> {
        self.check(region, cells.len())?;
        let bytes = cells.len() as u64;
        let push = |to| Request::PushRegion { path: self.path.clone(), region: *region, bytes, to };
        if self.agent.by_fabric(Cells::FromAgent(cells), push)? {
            return Ok(());
        }
        let got = match cells.len() >= LENT_MIN {
            true => match self.agent.ask_lent(&Request::LendRegion { path: self.path.clone(), region: *region }, cells)
            {
                // Overwritten meanwhile: then the agent makes a copy first.
                Err(error) if error.kind == Kind::Busy => self.get_copied(region, cells)?,
                got => got?,
            },
            false => self.get_copied(region, cells)?,
        };
        match got {
            got if got == cells.len() => Ok(()),
            got => {
                let wanted = cells.len();
                Err(ObjectError::new(Kind::Protocol, format!("the agent answered with {got} bytes, not {wanted}")))
            }
        }
    }

    fn get_copied(&self, region: &Region, cells: &mut [u8]) -> Result<usize> {
        self.agent.ask_into(&Request::GetRegion { path: self.path.clone(), region: *region }, cells)
    }

    pub fn grow(&self, shape: &[u64]) -> Result<()> {
        self.agent.done(&Request::Resize { path: self.path.clone(), shape: shape.into() })
    }

    /// The connection holds the lock: when it ends, however it ends, the lock is released.
    pub fn lock(&self, region: &Region, mode: LockMode, patience: Option<Duration>) -> Result<Stream> {
        let request = Request::Lock {
            path: self.path.clone(),
            region: *region,
            exclusive: mode == LockMode::Write,
            patience_ms: patience.map(|patience| patience.as_millis() as u64),
        };
        let lost =
            |error: std::io::Error| ObjectError::new(Kind::NoAgent, format!("the agent does not answer: {error}"));
        let mut stream = self.agent.take().map_err(lost)?;
        match exchange(&mut stream, &request, &[]).map_err(lost)?.0 {
            Response::Locked { .. } => Ok(stream),
            Response::Failed(error) => Err(error),
            other => Err(unexpected(&other)),
        }
    }
}

/// The agent has it open as long as this is there, and longer than its name.
pub struct RemoteFile {
    agent: Arc<Agent>,
    file: FileRef,
    /// Forks before it was opened: it is its opener's to close.
    forks: u32,
    ahead: Ahead,
    /// Where a sequential reader goes on.
    next: u64,
}

/// What was fetched before it was asked for.
#[derive(Default)]
struct Ahead {
    from: u64,
    bytes: Vec<u8>,
    /// When they were asked for: they are not used for long, because others write.
    asked_at: Option<Instant>,
    /// How much is fetched at once; it grows while reading is sequential.
    size: usize,
    /// What follows, how much of it, and since when: asked for while the program is busy with `bytes`.
    coming: Option<(Begun, usize, Instant)>,
}

impl Ahead {
    fn end(&self) -> u64 {
        self.from + self.bytes.len() as u64
    }

    fn at(&self, position: u64) -> &[u8] {
        match position >= self.from && position < self.end() {
            true => &self.bytes[(position - self.from) as usize..],
            false => &[],
        }
    }
}

impl RemoteFile {
    /// One that is there, and its length.
    pub fn open(agent: &Arc<Agent>, path: String, writable: bool) -> Result<(RemoteFile, u64)> {
        let file = RemoteFile::new(agent, path, writable);
        let length = file.length_by(&Request::OpenBytes { file: file.file.clone() })?;
        Ok((file, length))
    }

    pub fn create(agent: &Arc<Agent>, path: String, exclusive: bool) -> Result<RemoteFile> {
        let file = RemoteFile::new(agent, path, true);
        agent.done(&Request::CreateBytes { file: file.file.clone(), exclusive })?;
        Ok(file)
    }

    fn new(agent: &Arc<Agent>, path: String, writable: bool) -> RemoteFile {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // A hasher of its own each time: its keys are random.
        let open = RandomState::new().hash_one((std::process::id(), COUNT.fetch_add(1, Relaxed)));
        let file = FileRef { path, open, writable };
        RemoteFile { agent: agent.clone(), file, forks: fork_generation(), ahead: Ahead::default(), next: 0 }
    }

    pub fn path(&self) -> &str {
        &self.file.path
    }

    pub fn len(&self) -> Result<u64> {
        self.length_by(&Request::LengthOf { file: self.file.clone() })
    }

    fn length_by(&self, request: &Request) -> Result<u64> {
        match self.agent.ask(request)?.0 {
            Response::Length { bytes } => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    fn request(&self, position: u64, count: usize) -> Request {
        Request::ReadBytes { file: self.file.clone(), position, count: count as u64 }
    }

    fn fetch(&self, position: u64, count: usize) -> Result<Vec<u8>> {
        match self.agent.ask(&self.request(position, count))? {
            (Response::Bytes, payload) if payload.len() <= count => Ok(payload),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Bytes read; fewer than asked for only at the end. `keeps`: what was fetched ahead may be used (opened for reading).
    pub fn read_at(&mut self, position: u64, buffer: &mut [u8], keeps: bool) -> Result<usize> {
        let keeps = keeps && is_on(PREFETCH);
        if self.ahead.asked_at.is_some_and(|asked| asked.elapsed() > AHEAD_AGE_MAX) {
            // What it grew to is kept: the reader may only be slow.
            self.ahead = Ahead { size: self.ahead.size, ..Ahead::default() };
        }
        let mut done = 0;
        while done < buffer.len() {
            let at = position + done as u64;
            let wanted = (buffer.len() - done).min(PAYLOAD_BYTES_MAX as usize);
            let fetched;
            let (got, is_last) = match keeps {
                true => {
                    let is_last = self.ahead.at(at).is_empty() && self.look_ahead(at, wanted)?;
                    (self.ahead.at(at), is_last)
                }
                false => {
                    fetched = self.fetch(at, wanted)?;
                    (&fetched[..], fetched.len() < wanted)
                }
            };
            let count = got.len().min(buffer.len() - done);
            buffer[done..done + count].copy_from_slice(&got[..count]);
            done += count;
            if is_last {
                break;
            }
        }
        self.next = position + done as u64;
        Ok(done)
    }

    /// Fetches at least `wanted` bytes from `position` on, if there are so many; true: what was fetched reaches to the end.
    fn look_ahead(&mut self, position: u64, wanted: usize) -> Result<bool> {
        let goes_on = position == self.ahead.end() && !self.ahead.bytes.is_empty();
        let is_sequential = position == self.next || goes_on;
        let coming = self.ahead.coming.take().filter(|(.., asked_at)| goes_on && asked_at.elapsed() <= AHEAD_AGE_MAX);
        let asked = coming.and_then(|(begun, count, asked_at)| match self.agent.end(begun)? {
            (Response::Bytes, bytes) if bytes.len() <= count => Some((bytes, count, asked_at)),
            _ => None,
        });
        let (bytes, count, asked_at) = match asked {
            Some(asked) => asked,
            None => {
                self.ahead.size = match is_sequential {
                    true => (self.ahead.size * 2).clamp(AHEAD_FIRST, AHEAD_MAX),
                    false => 0,
                };
                let count = wanted.max(self.ahead.size).min(PAYLOAD_BYTES_MAX as usize);
                let asked_at = Instant::now();
                (self.fetch(position, count)?, count, asked_at)
            }
        };
        let is_last = bytes.len() < count;
        (self.ahead.from, self.ahead.bytes, self.ahead.asked_at) = (position, bytes, Some(asked_at));
        // A program that reads a header only is not to wait for more than that.
        if !is_last && is_sequential && self.ahead.size > AHEAD_FIRST {
            self.ahead.size = (self.ahead.size * 2).min(AHEAD_MAX);
            let begun = self.agent.begin(&self.request(self.ahead.end(), self.ahead.size));
            self.ahead.coming = begun.map(|begun| (begun, self.ahead.size, Instant::now()));
        }
        Ok(is_last)
    }

    pub fn write_at(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        for (number, part) in bytes.chunks(PAYLOAD_BYTES_MAX as usize).enumerate() {
            let position = position + number as u64 * PAYLOAD_BYTES_MAX;
            self.agent.ask_with(&Request::WriteBytes { file: self.file.clone(), position }, part)?;
        }
        Ok(())
    }

    pub fn set_len(&mut self, length: u64) -> Result<()> {
        self.agent.done(&Request::SetLength { file: self.file.clone(), length })
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if self.forks == fork_generation() {
            self.agent.tell(&Request::CloseBytes { open: self.file.open });
        }
    }
}
