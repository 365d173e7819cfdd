//! Files that a process of a run brings from an object store, while programs run already (`terrace_core::arrivals`).
//!
//! ```text
//!  program ──Bring (call socket)──▶ agent ──Awaited (control socket)──▶ the one who brings ──▶ a file takes the name
//!     ▲                               └──────────────── Arrived ◀────────────┘
//!     └── makes its call again
//! ```
//!
//! Invariants:
//! - The link decides, as between nodes: a wait is over when the name leads elsewhere.
//! - A name goes with the connection of who brings it: nothing waits for a process that has ended, and no name stays without a file.
//! - Who brings a file never waits for its name.

use super::Peers;
use crate::files::Files;
use crate::shared::path::{as_path, read_link};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use terrace_core::arrivals::{Arrival, link_directory, object_of};

/// Names are looked at again so often.
const LOOK: Duration = Duration::from_secs(1);
/// Who brings a file has so long to say so, after its agent was killed, or before it has begun.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Arrivals {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    next: u64,
    bringers: BTreeMap<u64, Bringer>,
    /// By the object's name.
    coming: HashMap<String, Coming>,
    /// An agent before us was killed while files came: who brings them will say so again.
    expected_until: Option<Instant>,
}

struct Bringer {
    pid: u32,
    awaited: VecDeque<Arrival>,
}

struct Coming {
    bringer: u64,
    path: PathBuf,
    state: Stage,
}

#[derive(PartialEq)]
enum Stage {
    Coming,
    Awaited,
    Here,
    Failed(String),
}

impl Arrivals {
    pub fn begin(&self, pid: u32, arriving: Option<u64>, files: Vec<Arrival>) -> u64 {
        let mut known = self.known.lock().unwrap();
        let number = arriving.unwrap_or_else(|| {
            known.next += 1;
            known.next
        });
        known.bringers.entry(number).or_insert(Bringer { pid, awaited: VecDeque::new() });
        for Arrival { object, path } in files {
            known.coming.insert(object, Coming { bringer: number, path, state: Stage::Coming });
        }
        known.expected_until = None;
        self.changed.notify_all();
        number
    }

    /// What somebody waits for; none after a while.
    pub fn awaited(&self, arriving: u64) -> Vec<Arrival> {
        let mut known = self.known.lock().unwrap();
        let begun = Instant::now();
        loop {
            let Some(bringer) = known.bringers.get_mut(&arriving) else { return vec![] };
            if !bringer.awaited.is_empty() || begun.elapsed() >= LOOK {
                return bringer.awaited.drain(..).collect();
            }
            known = self.changed.wait_timeout(known, LOOK).unwrap().0;
        }
    }

    pub fn arrived(&self, arriving: u64, objects: Vec<String>, failed: Vec<(String, String)>) {
        let mut known = self.known.lock().unwrap();
        let here = objects.into_iter().map(|object| (object, Stage::Here));
        let failed = failed.into_iter().map(|(object, reason)| (object, Stage::Failed(reason)));
        for (object, state) in here.chain(failed) {
            if let Some(coming) = known.coming.get_mut(&object).filter(|coming| coming.bringer == arriving) {
                coming.state = state;
            }
        }
        self.changed.notify_all();
    }

    /// The names whose files have not come.
    fn end(&self, arriving: u64) -> Vec<Arrival> {
        let mut known = self.known.lock().unwrap();
        known.bringers.remove(&arriving);
        let (ended, rest) = std::mem::take(&mut known.coming)
            .into_iter()
            .partition(|(_, coming): &(String, Coming)| coming.bringer == arriving);
        let ended: HashMap<String, Coming> = ended;
        known.coming = rest;
        self.changed.notify_all();
        let missing = ended.into_iter().filter(|(_, coming)| coming.state != Stage::Here);
        missing.map(|(object, coming)| Arrival { object, path: coming.path }).collect()
    }

    pub fn count(&self) -> u64 {
        let known = self.known.lock().unwrap();
        known.coming.values().filter(|coming| matches!(coming.state, Stage::Coming | Stage::Awaited)).count() as u64
    }

    /// Names of files that are to come may be in the root.
    pub fn is_possible(&self) -> bool {
        let known = self.known.lock().unwrap();
        !known.bringers.is_empty() || known.expected_until.is_some_and(|until| Instant::now() < until)
    }

    fn is_brought_by(&self, pid: u32) -> bool {
        self.known.lock().unwrap().bringers.values().any(|bringer| bringer.pid == pid)
    }

    fn expect(&self) {
        self.known.lock().unwrap().expected_until = Some(Instant::now() + PATIENCE);
    }
}

impl Peers {
    /// The directory in the texts of names of files that this node brings.
    fn arrivals_directory(&self) -> Option<PathBuf> {
        arrivals_directory(&self.files)
    }

    /// Waits until the file has come. `None`: the link is not of a file that this node brings. `pid`: who asks; 0: another node.
    pub fn await_arrival(&self, text: &[u8], path: &[u8], pid: u32) -> Option<Result<(), i32>> {
        let object = object_of(as_path(text), &self.arrivals_directory()?)?;
        if self.files.arrivals.is_brought_by(pid) {
            return Some(Err(libc::ECANCELED)); // it is about to put the file there
        }
        Some(self.await_object(&object, path, text).map_err(|reason| {
            let file = if path.is_empty() { as_path(text) } else { as_path(path) };
            self.warn(format!("{} has not come from its object store: {reason}", file.display()));
            libc::EIO
        }))
    }

    /// The same for another node.
    pub fn await_arrival_for(&self, object: &str, path: &[u8]) -> Option<Result<(), String>> {
        let text = self.arrivals_directory()?.join(object);
        let is_known = self.files.arrivals.known.lock().unwrap().coming.contains_key(object);
        let is_link = || read_link(path).is_some_and(|found| found == text.as_os_str().as_bytes());
        (is_known || is_link()).then(|| self.await_object(object, path, text.as_os_str().as_bytes()))
    }

    fn await_object(&self, object: &str, path: &[u8], text: &[u8]) -> Result<(), String> {
        let arrivals = &self.files.arrivals;
        let begun = Instant::now();
        let mut known = arrivals.known.lock().unwrap();
        loop {
            let known_here = &mut *known;
            match known_here.coming.get_mut(object) {
                Some(Coming { state: Stage::Here, .. }) => {
                    drop(known);
                    // A second link with this text, that a native program has made.
                    let leads = !path.is_empty() && self.leads_to(path, text);
                    return if leads { Err("the file took another name".into()) } else { Ok(()) };
                }
                Some(Coming { state: Stage::Failed(reason), .. }) => return Err(reason.clone()),
                Some(coming) if coming.state == Stage::Coming => {
                    coming.state = Stage::Awaited;
                    let met = if path.is_empty() { coming.path.clone() } else { as_path(path).to_owned() };
                    if let Some(bringer) = known_here.bringers.get_mut(&coming.bringer) {
                        bringer.awaited.push_back(Arrival { object: object.into(), path: met });
                        arrivals.changed.notify_all();
                    }
                }
                Some(_) => {}
                None if begun.elapsed() >= PATIENCE => return Err("nobody brings it any more".into()),
                None => {}
            }
            let (held, timeout) = arrivals.changed.wait_timeout(known, LOOK).unwrap();
            known = held;
            let is_settled =
                known.coming.get(object).is_some_and(|coming| matches!(coming.state, Stage::Here | Stage::Failed(_)));
            if timeout.timed_out() && !is_settled || !known.coming.contains_key(object) {
                drop(known);
                if !path.is_empty() && !self.leads_to(path, text) {
                    return Ok(());
                }
                if self.schedule.has_ended() {
                    return Err("the agent ends".into());
                }
                known = arrivals.known.lock().unwrap();
            }
        }
    }

    /// Whose connection has ended brings nothing any more.
    pub fn end_arrivals(&self, arriving: u64) {
        if let Some(directory) = self.arrivals_directory() {
            for Arrival { object, path } in self.files.arrivals.end(arriving) {
                remove_name(&path, &directory.join(object));
            }
        }
        self.tell_of_others();
    }
}

/// No name stays whose file will not come.
fn remove_name(path: &Path, text: &Path) {
    if std::fs::read_link(path).is_ok_and(|found| found == text) {
        let _ = std::fs::remove_file(path);
    }
}

fn arrivals_directory(files: &Files) -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    link_directory(&files.settings, uid, files.settings.node.as_deref()?)
}

impl Files {
    /// Names that a killed agent has left: their files come as long as who brings them lives; else they go.
    pub fn look_for_arrivals(&self) {
        let note = self.settings.arrivals();
        if !std::fs::metadata(&note).is_ok_and(|found| found.len() > 0) {
            return;
        }
        let Ok(file) = std::fs::File::options().write(true).open(&note) else { return };
        if file.try_lock().is_err() {
            self.arrivals.expect();
            return;
        }
        let Some(directory) = arrivals_directory(self) else { return };
        let private = self.settings.root.join(terrace_index::PRIVATE_DIR);
        let mut pending = vec![self.settings.root.clone()];
        while let Some(place) = pending.pop() {
            for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else { continue };
                let path = entry.path();
                if kind.is_dir() && path != private {
                    pending.push(path);
                } else if kind.is_symlink()
                    && std::fs::read_link(&path).is_ok_and(|text| text.parent() == Some(directory.as_path()))
                {
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
        let _ = file.set_len(0);
    }
}
