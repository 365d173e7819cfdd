//! An agent's life: lock, recover, listen, keep house, and leave when nothing is left to do.
//!
//!   start ──▶ serve while a run is connected, or a file is not durable ──▶ stop accepting ──▶ flush ──▶ clear up
//!
//! Invariant: the agent leaves only when every file that policy flushes is in the root. A file that can't be flushed is
//! tried for as long as it takes: the data is safe in its tier meanwhile.

use crate::agent::Agent;
use crate::error::{Context, Error, Result};
use crate::files::mover;
use crate::files::recover::RecoverReport;
use crate::shared::accept;
use crate::shared::index_file::{live_programs, make_private, take_over};
use crate::shared::request::{FlushOptions, Outcome, Scope};
use crate::{calls, objects, server};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_core::settings::Settings;
use terrace_index::State;
use terrace_tier::Journal;

const TICK: Duration = Duration::from_millis(100);
const RESCAN: Duration = Duration::from_secs(5);
/// How long an agent that nobody has talked to yet waits for the run that started it.
const FIRST_RUN_PATIENCE: Duration = Duration::from_secs(5);
const LINGER: Duration = Duration::from_secs(1);
/// How often an agent that can't leave because of a failure tries again.
const RETRY: Duration = Duration::from_secs(5);
/// A program that looked at `accepts` just before it was cleared has made its file after so long.
const CREATION: Duration = Duration::from_millis(50);

/// How often programs' tidings are taken in while there are some, and while there are none.
const NAP_MIN: Duration = Duration::from_millis(4);
const NAP_MAX: Duration = Duration::from_millis(50);

static TERMINATED: AtomicBool = AtomicBool::new(false);

/// The first time: flush and leave. The second time, wherever the flush hangs: leave at once, which is as safe as a crash.
extern "C" fn on_terminate(_: i32) {
    if TERMINATED.swap(true, SeqCst) {
        const WORD: &str =
            "told twice to end: what is not flushed stays in its tier, for the next run or `terrace recover`\n";
        // SAFETY: both are async-signal-safe.
        unsafe {
            libc::write(libc::STDERR_FILENO, WORD.as_ptr().cast(), WORD.len());
            libc::_exit(1);
        }
    }
}

/// Held for as long as the agent lives.
pub struct Lock {
    _file: OwnedFd,
}

impl Lock {
    pub fn take(settings: &Settings) -> Result<Lock> {
        make_private(&settings.runtime)?;
        let path = settings.lock();
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).context("open", &path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(Error::AlreadyServed { root: settings.root.clone() });
                }
                Err(error) => return Err(error).context("lock", &path),
            }
            // An agent that left may have removed it between our open and our lock.
            let ours = rustix::fs::fstat(&file).context("look at", &path)?.st_ino;
            if std::fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == ours) {
                return Ok(Lock { _file: file });
            }
        }
    }
}

/// An agent with its threads.
pub struct Running {
    pub agent: Arc<Agent>,
    pub report: RecoverReport,
    /// Movers first: they end when their job is done.
    threads: Vec<JoinHandle<()>>,
    /// Shut down to end the threads that accept on them.
    sockets: Vec<OwnedFd>,
    _lock: Lock,
}

/// Takes the lock, recovers what an earlier agent left, and starts all threads. Programs may run when this returns.
pub fn start(settings: Settings) -> Result<Running> {
    let lock = Lock::take(&settings)?;
    std::fs::create_dir_all(&settings.state).context("make the directory", &settings.state)?;
    let (journal, trouble) = open_journal(&settings.journal());
    let agent = Agent::new(settings, journal)?;
    if let Some(trouble) = trouble {
        agent.warn(trouble);
    }
    take_over(agent.index, &agent.devices);
    let quota = agent.settings.quota_bytes.unwrap_or(0).min(i64::MAX as u64) as i64;
    agent.index.header.quota.store(quota, Relaxed);
    agent.adjust_capacity();
    let report = agent.recover_at_start();
    agent.objects.recover_stages();
    agent.tick_clock();
    let calls_path = agent.settings.call_socket();
    let call_socket = calls::listen(&calls_path).context("listen on", &calls_path)?;
    let agent = Arc::new(agent);
    let mut threads = mover::start(&agent.files).context("start the threads of", &agent.settings.runtime)?;
    let control_path = agent.settings.control_socket();
    let control = accept::listen(&control_path).context("listen on", &control_path)?;
    let objects_path = agent.settings.objects_socket();
    let clients = accept::listen(&objects_path).context("listen on", &objects_path)?;
    let mut sockets = vec![
        clients.as_fd().try_clone_to_owned().context("use the socket", &objects_path)?,
        call_socket.try_clone().context("use the socket", &calls_path)?,
        control.as_fd().try_clone_to_owned().context("use the socket", &control_path)?,
    ];
    let listening = match &agent.settings.listen {
        Some(wanted) => {
            let before = agent.listened_on();
            Some(objects::TcpListening::open(wanted, before).context("listen on", Path::new(&wanted.address))?)
        }
        None => None,
    };
    agent.index.header.accepts.store(1, SeqCst);
    if let Some(listening) = listening {
        sockets.push(listening.socket().context("use the socket", &agent.settings.runtime)?);
        if agent.settings.member.is_some() {
            agent.withdraw();
            let member = listening.member().context("use the socket", &agent.settings.runtime)?;
            let shared = agent.clone();
            threads.push(spawn("member", move || shared.join_others(&member))?);
        }
        let server = server_of_objects(&agent);
        threads.push(spawn("elsewhere", move || objects::serve_remote(&server, &listening))?);
    }
    let shared = agent.clone();
    threads.push(spawn("events", move || shared.watch_events())?);
    let shared = agent.clone();
    threads.push(spawn("calls", move || calls::serve(&shared, &call_socket))?);
    let server = server_of_objects(&agent);
    threads.push(spawn("clients", move || objects::serve(&server, &clients))?);
    let objects = agent.objects.clone();
    threads.push(spawn("arrays", move || objects.keep_objects())?);
    threads.extend(agent.forwarder.start_senders().context("start the threads of", &agent.settings.runtime)?);
    let shared = agent.clone();
    threads.push(spawn("control", move || server::serve(&shared, &control))?);
    agent.rescan();
    Ok(Running { agent, report, threads, sockets, _lock: lock })
}

fn server_of_objects(agent: &Arc<Agent>) -> Arc<objects::Server> {
    Arc::new(objects::Server { objects: agent.objects.clone(), requests: agent.clone() })
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(work).context("start the thread", Path::new(name))
}

/// A journal that can't be used is moved aside: the tree says where the files are.
fn open_journal(path: &Path) -> (Option<Journal>, Option<String>) {
    match Journal::open(path) {
        Ok(journal) => (Some(journal), None),
        Err(terrace_tier::Error::JournalCorrupt { reason, .. }) => {
            let aside = path.with_extension("redb.damaged");
            let moved = std::fs::rename(path, &aside);
            let trouble = format!("the journal was damaged ({reason}) and moved to {}", aside.display());
            match moved.map(|()| Journal::open(path)) {
                Ok(Ok(journal)) => (Some(journal), Some(trouble)),
                _ => (None, Some(trouble)),
            }
        }
        Err(error) => (None, Some(format!("{error}; working without it"))),
    }
}

impl Running {
    /// Until the last run has ended and all is flushed.
    pub fn serve(self) -> Result<()> {
        // SAFETY: the handler only stores to an atomic.
        unsafe {
            let handler = on_terminate as extern "C" fn(i32) as libc::sighandler_t;
            libc::signal(libc::SIGTERM, handler);
            libc::signal(libc::SIGINT, handler);
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
        let agent = self.agent.clone();
        agent.runs.lock().unwrap().idle_since = Some(Instant::now() + FIRST_RUN_PATIENCE - LINGER);
        let mut house = HouseKeeping::default();
        let mut not_before = Instant::now();
        loop {
            std::thread::sleep(TICK);
            agent.keep_house(&mut house);
            let ends = TERMINATED.load(SeqCst) || agent.ends.load(SeqCst);
            let is_leaving = ends || agent.is_idle();
            if !agent.forwarder.waits_for_forwards(is_leaving) && is_leaving && Instant::now() >= not_before {
                if agent.flush_before_leaving(ends).is_some() {
                    break;
                }
                not_before = Instant::now() + RETRY;
            }
        }
        self.leave();
        Ok(())
    }

    /// Ends the threads and removes what only a living agent needs.
    pub fn leave(self) {
        self.agent.schedule.end();
        for socket in &self.sockets {
            // Fails for one that is shut down already.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        self.agent.clear_up();
    }
}

/// How long a file that grows unseen is not looked at.
const GROWTH_LOOK: Duration = Duration::from_millis(5);

#[derive(Default)]
pub struct HouseKeeping {
    rescanned: Option<Instant>,
}

impl Agent {
    fn watch_events(&self) {
        let mut nap = NAP_MIN;
        while !self.schedule.has_ended() {
            let count = self.drain_events();
            self.make_up_for_losses();
            nap = if count > 0 { NAP_MIN } else { (nap * 2).min(NAP_MAX) };
            if self.count_growth() {
                nap = nap.min(GROWTH_LOOK);
            }
            self.sleep_until_bell(nap);
        }
    }

    pub fn keep_house(&self, house: &mut HouseKeeping) {
        self.tick_clock();
        self.adjust_capacity();
        self.keep_watermarks();
        self.forget_exchanged();
        self.forget_late_keys();
        if house.rescanned.is_none_or(|last| last.elapsed() >= RESCAN) {
            house.rescanned = Some(Instant::now());
            self.recycle_records();
            self.trim_unlinked();
            if self.rescan() {
                self.drain_events();
                self.walk_tree();
            }
        }
    }

    fn is_idle(&self) -> bool {
        let runs = self.runs.lock().unwrap();
        runs.count() == 0 && runs.requests == 0 && runs.idle_since.is_some_and(|since| since.elapsed() >= LINGER)
    }

    /// Flushes all that is to be flushed. `None`: something is left to do here; the agent stays.
    pub fn flush_before_leaving(&self, must_end: bool) -> Option<Outcome> {
        if self.root_is_gone() && self.runs.lock().unwrap().count() == 0 {
            return Some(Outcome::default());
        }
        let options = FlushOptions {
            all: false,
            end_of_run: !must_end || self.runs.lock().unwrap().count() == 0,
            settle_open: must_end,
        };
        let everything = Scope(vec![]);
        // A run that was killed has left its program: it ends by itself, and its files with it.
        if !must_end && live_programs(&self.index).next().is_some() && self.has_unflushed() {
            let background = FlushOptions { all: false, end_of_run: false, settle_open: false };
            self.flush(&everything, &background, &mut |_, _, _, _| true);
            if self.has_unflushed() {
                return None;
            }
        }
        let outcome = self.flush(&everything, &options, &mut |_, _, _, _| true);
        if self.has_unflushed() || !self.exchanges.is_empty() {
            return None;
        }
        self.index.header.accepts.store(0, SeqCst);
        std::thread::sleep(CREATION);
        self.drain_events();
        let is_busy = {
            let runs = self.runs.lock().unwrap();
            (runs.count() > 0 || runs.requests > 0) && !must_end
        };
        if is_busy || self.has_unflushed() {
            self.index.header.accepts.store(1, SeqCst);
            return None;
        }
        Some(outcome)
    }

    /// Some file's newest bytes are only in a tier, and policy wants them in the root.
    fn has_unflushed(&self) -> bool {
        self.catch_up();
        self.objects.has_unflushed_arrays() || self.has_unflushed_files()
    }

    /// Removes what only a living agent needs.
    fn clear_up(&self) {
        self.withdraw();
        self.objects.clear_up_objects();
        let is_used = self.files.clear_up_files();
        let keeps_index = is_used;
        let settings = &self.settings;
        let _ = std::fs::remove_file(settings.objects_socket());
        let _ = std::fs::remove_file(settings.control_socket());
        let _ = std::fs::remove_file(settings.call_socket());
        if !keeps_index {
            self.index.header.magic.store(0, SeqCst);
            if std::fs::symlink_metadata(settings.index()).is_ok_and(|found| found.ino() == self.index_ino) {
                let _ = std::fs::remove_file(settings.index());
            }
        } else {
            self.index.header.agent_pid.store(0, SeqCst);
        }
        self.remove_directories(keeps_index);
    }

    /// Only empty directories go: whatever is in them is somebody's data.
    fn remove_directories(&self, keeps_index: bool) {
        if let Ok(entries) = std::fs::read_dir(self.held_dir()) {
            for entry in entries.flatten() {
                // A kept file's last durable version stays: its object may be lost with its tier.
                let number = terrace_index::parse_name(entry.file_name().as_encoded_bytes()).map(|(number, _)| number);
                let is_newer = number.and_then(|number| self.index.record(number));
                if !is_newer.is_some_and(|record| record.state() == State::Current) {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        }
        let _ = self.root_tier.discard_temporaries([]);
        self.leave_others();
        let own = self.settings.root.join(self.private_name());
        let private = self.settings.root.join(terrace_index::PRIVATE_DIR);
        for directory in [self.tmp_dir(), self.held_dir(), own, private] {
            let _ = std::fs::remove_dir(directory);
        }
        for place in &self.devices {
            let _ = std::fs::remove_dir(&place.dir);
        }
        if !keeps_index {
            let _ = std::fs::remove_file(self.settings.lock());
        }
        for directory in [Some(self.settings.runtime.as_path()), self.settings.runtime.parent()].into_iter().flatten() {
            if std::fs::remove_dir(directory).is_err() {
                break;
            }
        }
    }
}
