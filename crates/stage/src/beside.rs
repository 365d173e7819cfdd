//! Objects become files beside a program that runs already.
//!
//! ```text
//!   names (links that lead nowhere) ─▶ "ready" ─▶ the program starts
//!   agent ──Awaited──▶ at once        the others ─▶ one after the other       a whole file ──rename──▶ over its link
//! ```
//!
//! What is at a name before that (another version of the file) is replaced before the program starts. Names whose files don't come are
//! removed by the agent, when our connection to it ends.
//!
//! Two ways lead to the file system: `rustix` makes its own system calls, which the preload library does not see, and is for links; `std`
//! goes through the library, and is for the files, which belong into tiers.

use crate::Options;
use crate::journal::{Journal, Way};
use crate::remote::Remote;
use crate::stage_in::{bring, fill, is_there, list, part_name, wanted};
use crate::telling::Telling;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectMeta;
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use terrace_core::arrivals::{Arrival, object_name, object_of};
use terrace_core::control::{Request, Response};
use terrace_index::{ARRIVING_DIR, PRIVATE_DIR};
use terrace_tool::control_client::{Client, lost, unexpected};
use terrace_tool::failure::{Failure, Result};
use terrace_tool::{errln, outln};
use tokio::signal::unix::{SignalKind, signal};

/// For an agent that was killed to be there again.
const AGENT_PATIENCE: Duration = Duration::from_secs(30);
const REST: Duration = Duration::from_millis(50);
/// Names that one message carries.
const NAMES: usize = 4096;

#[derive(clap::Args)]
pub struct Place {
    /// The root that the run is on
    #[arg(long)]
    root: PathBuf,
    /// The agent's control socket
    #[arg(long)]
    control: PathBuf,
    /// What the links to files that are still to come begin with
    #[arg(long)]
    links: PathBuf,
}

struct Coming {
    /// The object's name in its link.
    name: String,
    place: PathBuf,
    object: ObjectMeta,
    is_taken: AtomicBool,
    is_done: AtomicBool,
}

struct Beside {
    remote: Remote,
    journal: Journal,
    at: Place,
    coming: Vec<Coming>,
    by_name: HashMap<String, usize>,
    /// Where somebody has met the name, if not at its place.
    met: Mutex<HashMap<usize, PathBuf>>,
    /// Whose name is no longer at its place.
    astray: Mutex<Vec<usize>>,
    failures: Mutex<BTreeMap<PathBuf, Failure>>,
    /// Files that are not whole yet.
    parts: Mutex<HashSet<PathBuf>>,
    telling: Telling,
    tell: mpsc::Sender<Told>,
}

/// By its object's name; with the reason why it can't be brought.
struct Told(String, Option<String>);

pub async fn run(url: &str, directory: &Path, options: &Options, at: Place) -> Result<()> {
    let remote = Remote::of(url)?;
    let objects = list(&remote).await?;
    let wanted = wanted(directory, &objects)?;
    make_directories(directory)?;
    let journal = Journal::open(Way::In, directory, &remote)?;
    let bytes: u64 = objects.values().map(|object| object.size).sum();
    let telling = Telling::begin("bringing", bytes, true);

    let (mut missing, mut stale) = (vec![], vec![]);
    for (place, object) in wanted {
        match rustix::fs::statat(CWD, &place, AtFlags::SYMLINK_NOFOLLOW) {
            _ if is_there(&journal, &place, object) => telling.is_there(object.size),
            Err(Errno::NOENT | Errno::NOTDIR) => missing.push((place, object.clone())),
            Ok(_) if link_at(&place).is_some_and(|text| object_of(&text, &at.links).is_some()) => {
                return Err(Failure::new(format!("another run brings {} from elsewhere", place.display()))
                    .hint("wait until it has ended, or bring the objects into another directory"));
            }
            _ => stale.push((place, object.clone())),
        }
    }
    // Programs would find the old ones.
    let replaced = stream::iter(&stale)
        .map(|(place, object)| bring(&remote, &journal, place.clone(), object, &telling))
        .buffer_unordered(options.jobs.into())
        .try_collect::<Vec<()>>()
        .await;
    replaced?;

    let coming: Vec<Coming> = missing.into_iter().map(|(place, object)| Coming::new(place, object)).collect();
    let by_name = coming.iter().enumerate().map(|(index, coming)| (coming.name.clone(), index)).collect();
    let (tell, told) = mpsc::channel();
    let beside = Arc::new(Beside {
        remote,
        journal,
        at,
        coming,
        by_name,
        met: Mutex::default(),
        astray: Mutex::default(),
        failures: Mutex::default(),
        parts: Mutex::default(),
        telling,
        tell,
    });
    let failed = |error| Failure::new(format!("can't hear of the program's end: {error}"));
    // It has had what it needs: or has failed, and the same may be asked for again.
    let mut unneeded = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupted = signal(SignalKind::interrupt()).map_err(failed)?;
    let mut client = Client::connect_to(&beside.at.control).map_err(lost)?;
    let arriving = Arc::new(AtomicU64::new(beside.announce(&mut client).map_err(lost)?));
    for coming in &beside.coming {
        coming.make_name(&beside.at.links)?;
    }
    outln!("ready");

    let (ask, mut awaited) = tokio::sync::mpsc::unbounded_channel();
    let (asking, number) = (beside.clone(), arriving.clone());
    std::thread::spawn(move || asking.hear(client, &number, &ask));
    let telling = beside.clone();
    let teller = std::thread::spawn(move || telling.say(&told, &arriving));

    let next = Arc::new(AtomicU64::new(0));
    let mut work = tokio::task::JoinSet::new();
    for _ in 0..options.jobs.into() {
        let (beside, next) = (beside.clone(), next.clone());
        work.spawn(async move {
            while let Some(index) = beside.next(&next) {
                beside.come(index).await;
            }
        });
    }
    let mut end = loop {
        tokio::select! {
            _ = unneeded.recv() => break Some(End::Unneeded),
            _ = interrupted.recv() => break Some(End::Interrupted),
            Some(Arrival { object, path }) = awaited.recv() => {
                if let Some(index) = beside.take(&object, path) {
                    let beside = beside.clone();
                    work.spawn(async move { beside.come(index).await });
                }
            }
            done = work.join_next() => if done.is_none() { break None },
        }
    };
    if end.is_some() {
        work.shutdown().await;
    } else {
        beside.find_astray().await;
        let _ = beside.tell.send(Told(String::new(), None));
        let _ = tokio::task::spawn_blocking(|| teller.join()).await;
    }
    if end.is_none() && !beside.failures.lock().unwrap().is_empty() {
        // Until the run's end the names say that something is wrong with them.
        end = Some(tokio::select! {
            _ = unneeded.recv() => End::Unneeded,
            _ = interrupted.recv() => End::Interrupted,
        });
    }
    beside.finish(options.quiet, end)
}

/// Of the program.
#[derive(PartialEq)]
enum End {
    Unneeded,
    Interrupted,
}

fn link_at(place: &Path) -> Option<PathBuf> {
    let text = rustix::fs::readlink(place, vec![]).ok()?;
    Some(std::ffi::OsStr::from_bytes(text.as_bytes()).into())
}

/// Real ones: a directory that lies in a tier as a whole would hide what its links are.
fn make_directories(place: &Path) -> Result<()> {
    let Some(parent) = place.parent() else { return Ok(()) };
    match rustix::fs::mkdir(place, Mode::from_raw_mode(0o777)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) if !parent.as_os_str().is_empty() => {
            make_directories(parent)?;
            make_directories(place)
        }
        Err(error) => Err(Failure::io("make", place, std::io::Error::from(error))),
    }
}

impl Coming {
    fn new(place: PathBuf, object: ObjectMeta) -> Coming {
        let mut random = [0; 14];
        std::fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random))
            .expect("the kernel gives random bytes");
        Coming { name: object_name(&random), place, object, is_taken: false.into(), is_done: false.into() }
    }

    fn make_name(&self, links: &Path) -> Result<()> {
        make_directories(self.place.parent().expect("it lies in the directory"))?;
        rustix::fs::symlink(links.join(&self.name), &self.place)
            .map_err(|error| Failure::io("make", &self.place, std::io::Error::from(error)))
    }
}

impl Beside {
    /// All that have not come are told to the agent.
    fn announce(&self, client: &mut Client) -> std::io::Result<u64> {
        let left = self.coming.iter().filter(|coming| !coming.is_done.load(Acquire));
        let files: Vec<Arrival> =
            left.map(|coming| Arrival { object: coming.name.clone(), path: coming.place.clone() }).collect();
        let none: &[Arrival] = &[];
        let mut number = 0;
        for files in files.chunks(NAMES).chain(files.is_empty().then_some(none)) {
            match client.ask(&Request::Arrive { files: files.to_vec() }, |_| {})? {
                Response::Arriving { arriving } => number = arriving,
                other => return Err(unexpected(other)),
            }
        }
        Ok(number)
    }

    /// Passes on what is waited for. The names live as long as this connection.
    fn hear(&self, mut client: Client, arriving: &AtomicU64, awaited: &tokio::sync::mpsc::UnboundedSender<Arrival>) {
        let mut heard = Instant::now();
        loop {
            match client.ask(&Request::NextAwaited { arriving: arriving.load(Acquire) }, |_| {}) {
                Ok(Response::Awaited { files }) => {
                    heard = Instant::now();
                    if files.into_iter().any(|file| awaited.send(file).is_err()) {
                        return;
                    }
                }
                // It was killed, and another one comes.
                _ => {
                    std::thread::sleep(REST);
                    if let Ok(mut again) = Client::connect_to(&self.at.control)
                        && let Ok(number) = self.announce(&mut again)
                    {
                        arriving.store(number, Release);
                        client = again;
                    } else if heard.elapsed() > AGENT_PATIENCE {
                        errln!("terrace: error: nobody hears what has come: the run's agent has gone");
                        std::process::exit(1);
                    }
                }
            }
        }
    }

    /// Says what has come, until all has been said. Who waits looks by himself, too, if a message is lost with an agent.
    fn say(&self, told: &mpsc::Receiver<Told>, arriving: &AtomicU64) {
        let mut client = None;
        while let Ok(first) = told.recv() {
            let (mut objects, mut failed, mut is_all) = (vec![], vec![], false);
            for Told(name, reason) in std::iter::once(first).chain(told.try_iter()) {
                match reason {
                    _ if name.is_empty() => is_all = true,
                    None => objects.push(name),
                    Some(reason) => failed.push((name, reason)),
                }
            }
            let say = Request::Arrived { arriving: arriving.load(Acquire), objects, failed };
            let mut connected = client.take().or_else(|| Client::connect_to(&self.at.control).ok());
            if connected.as_mut().is_some_and(|client| client.ask(&say, |_| {}).is_ok()) {
                client = connected;
            }
            if is_all {
                return;
            }
        }
    }

    /// The next one that nobody has taken.
    fn next(&self, from: &AtomicU64) -> Option<usize> {
        loop {
            let index = from.fetch_add(1, AcqRel) as usize;
            let coming = self.coming.get(index)?;
            if !coming.is_taken.swap(true, AcqRel) {
                return Some(index);
            }
        }
    }

    fn take(&self, name: &str, met: PathBuf) -> Option<usize> {
        let index = *self.by_name.get(name)?;
        let coming = &self.coming[index];
        if met != coming.place {
            self.met.lock().unwrap().insert(index, met);
            let mut astray = self.astray.lock().unwrap();
            if let Some(at) = astray.iter().position(|&other| other == index) {
                astray.remove(at);
                return Some(index);
            }
        }
        (!coming.is_taken.swap(true, AcqRel)).then_some(index)
    }

    /// Where its name is now, as far as that is known.
    fn place_of(&self, index: usize) -> Option<PathBuf> {
        let coming = &self.coming[index];
        let text = self.at.links.join(&coming.name);
        let met = self.met.lock().unwrap().get(&index).cloned();
        let mut places = std::iter::once(coming.place.clone()).chain(met);
        places.find(|place| link_at(place).is_some_and(|found| found == text))
    }

    /// Where a file is until it is whole: no program's listing shows it, and nobody renames it or its directory.
    fn part_of(&self, object: &ObjectMeta) -> PathBuf {
        self.arriving().join(part_name(object.location.filename().expect("an object has a name"), object))
    }

    fn arriving(&self) -> PathBuf {
        self.at.root.join(PRIVATE_DIR).join(ARRIVING_DIR)
    }

    async fn come(&self, index: usize) {
        let coming = &self.coming[index];
        let told = match self.try_come(index).await {
            Ok(true) => None,
            Ok(false) => return self.astray.lock().unwrap().push(index),
            Err(failure) => {
                let reason = failure.message.clone();
                self.failures.lock().unwrap().insert(coming.place.clone(), failure);
                Some(reason)
            }
        };
        coming.is_done.store(told.is_none(), Release);
        let _ = self.tell.send(Told(coming.name.clone(), told));
    }

    /// False: its name is not where it was.
    async fn try_come(&self, index: usize) -> Result<bool> {
        let Coming { object, .. } = &self.coming[index];
        if self.place_of(index).is_none() {
            return Ok(false);
        }
        let part = self.part_of(object);
        self.parts.lock().unwrap().insert(part.clone());
        let state = fill(&self.remote, &part, object, &self.telling).await?;
        // It may have been renamed meanwhile, with its directory.
        let Some(place) = self.place_of(index) else { return Ok(false) };
        match std::fs::rename(&part, &place) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && part.exists() => return Ok(false),
            Err(error) => return Err(Failure::io("make", &place, error)),
        }
        self.parts.lock().unwrap().remove(&part);
        if let Some(etag) = &object.e_tag {
            self.journal.note_same(object.location.as_ref(), state, etag.clone())?;
        }
        self.telling.file_is_done();
        Ok(true)
    }

    /// Names that were taken elsewhere with their directories are looked for; what is found nowhere has been removed.
    async fn find_astray(&self) {
        let astray = std::mem::take(&mut *self.astray.lock().unwrap());
        if astray.is_empty() {
            return;
        }
        let walk = walkdir::WalkDir::new(&self.at.root).into_iter();
        for entry in walk.filter_entry(|entry| entry.file_name() != PRIVATE_DIR).flatten() {
            if let Some(name) = link_at(entry.path()).and_then(|text| object_of(&text, &self.at.links))
                && let Some(&index) = self.by_name.get(&name)
            {
                self.met.lock().unwrap().insert(index, entry.into_path());
            }
        }
        for index in astray {
            self.come(index).await;
        }
    }

    fn finish(&self, quiet: bool, end: Option<End>) -> Result<()> {
        // After an interruption the next one goes on with them.
        if end != Some(End::Interrupted) {
            self.parts.lock().unwrap().iter().for_each(|part| drop(std::fs::remove_file(part)));
        }
        let _ = std::fs::remove_dir(self.arriving());
        let failed = std::mem::take(&mut *self.failures.lock().unwrap());
        let came = self.coming.iter().filter(|coming| coming.is_done.load(Acquire)).count();
        let left = self.coming.len() - came - failed.len();
        if !quiet {
            let unneeded = match left {
                0 => String::new(),
                left => format!("; {left} that nobody has asked for were not brought"),
            };
            outln!("terrace: {}{unneeded}", self.telling.in_words("staged in", &self.remote));
        }
        match failed.into_iter().next() {
            None => Ok(()),
            Some((_, first)) => Err(first),
        }
    }
}
