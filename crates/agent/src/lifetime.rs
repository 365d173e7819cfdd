//! An agent's life: lock, recover, listen, keep house, and leave when nothing is left to do.
//!
//!   start ──▶ serve while a run is connected, or a file is not durable ──▶ stop accepting ──▶ flush ──▶ clear up
//!
//! Invariant: the agent leaves only when every file that policy flushes is in the root. A file that can't be flushed is
//! tried for as long as it takes: the data is safe in its tier meanwhile.

use crate::agent::Agent;
use crate::error::{Context, Error, Result};
use crate::files::directories::RoomCount;
use crate::files::mover;
use crate::files::recover::RecoverReport;
use crate::gone::come_back;
use crate::shared::accept;
use crate::shared::index_file::{live_programs, make_private, take_over};
use crate::shared::request::{FlushOptions, Outcome, Scope};
use crate::shared::runs::{RUNS, Runs};
use crate::{calls, node, objects, peers, preconditions, server};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use terrace_core::control::Failure;
use terrace_core::settings::Settings;
use terrace_index::State;
use terrace_tier::Journal;

const TICK: Duration = Duration::from_millis(100);
const RESCAN: Duration = Duration::from_secs(5);
/// Who comes says so; this finds out who has left. On a parallel file system a listing is dozens of packets.
const LOOK_FOR_NODES: Duration = Duration::from_secs(30);
/// How long an agent that nobody has talked to yet waits for the run that started it.
const FIRST_RUN_PATIENCE: Duration = Duration::from_secs(5);
/// How long an agent stays that was started without a run (`terrace flush`), after what it was asked for.
const LINGER: Duration = Duration::from_secs(1);
/// An agent that is leaving holds the journal a moment longer than the lock.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(10);
/// How often an agent that can't leave because of a failure tries again.
const RETRY: Duration = Duration::from_secs(5);
/// A program that looked at `accepts` just before it was cleared has made its file after so long.
const CREATION: Duration = Duration::from_millis(50);

/// How often programs' tidings are taken in while there are some, and while there are none.
const NAP_MIN: Duration = Duration::from_millis(4);
const NAP_MAX: Duration = Duration::from_millis(50);

static TERMINATED: AtomicBool = AtomicBool::new(false);

/// The first time: flush and leave. The second time, wherever the flush hangs: leave at once, which is as safe as a crash.
/// Not while runs are connected: a batch system tells every process of a job, and some twice. The runs know what comes of it.
extern "C" fn on_terminate(_: i32) {
    if TERMINATED.swap(true, SeqCst) && RUNS.load(SeqCst) == 0 {
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
#[derive(Clone)]
pub struct Lock {
    _file: Arc<OwnedFd>,
}

impl Lock {
    pub fn take(settings: &Settings) -> Result<Lock> {
        make_private(&settings.runtime)?;
        let path = settings.lock();
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
                // An agent that left has taken the directory along.
                Err(rustix::io::Errno::NOENT) => {
                    make_private(&settings.runtime)?;
                    continue;
                }
                opened => opened.context("open", &path)?,
            };
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
                return Ok(Lock { _file: Arc::new(file) });
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
    let mut lock = Lock::take(&settings)?;
    std::fs::create_dir_all(&settings.state).context("make the directory", &settings.state)?;
    preconditions::check_root(&settings)?;
    if finish_for_earlier(&settings, &mut lock)? {
        lock = Lock::take(&settings)?;
    }
    let before = preconditions::Before::look(&settings);
    let begun = begin(settings.clone(), lock.clone());
    match &begun {
        // The tag, and all that bears it, is another node's, which shares our state directory.
        Ok(_) | Err(Error::Tier(terrace_tier::Error::JournalLocked { .. })) => {}
        Err(_) => preconditions::undo_start(&settings, &before),
    }
    begun
}

fn begin(mut settings: Settings, lock: Lock) -> Result<Running> {
    settings.node = Some(node::tag(&settings)?);
    let was_gone = come_back(&settings)?;
    let (journal, trouble) = open_journal(&settings.journal())?;
    let agent = Agent::new(settings, journal)?;
    put_in_force(&agent.settings)?;
    agent.look_for_arrivals();
    agent.register()?;
    if let Some(trouble) = trouble {
        agent.warn(trouble);
    }
    if was_gone {
        agent.warn(
            "this node had been declared gone: what names in the root still lead to goes on, all else of it is lost"
                .into(),
        );
    }
    take_over(agent.index, &agent.devices);
    let quota = agent.settings.quota_bytes.unwrap_or(0).min(i64::MAX as u64) as i64;
    agent.index.header.quota.store(quota, Relaxed);
    agent.index.header.places_directories.store(agent.places_directories() as u32, Relaxed);
    agent.index.header.counts_directories.store(agent.would_gain_by_placing_more() as u32, Relaxed);
    agent.learn_while_the_root_has_room();
    agent.adjust_capacity();
    let report = agent.recover_at_start();
    agent.let_go_of_earlier_replicas();
    agent.make_spill_dirs()?;
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
    preconditions::check_descriptors()?;
    let peers = agent.peers.clone();
    match peers::DoorKeeper::open() {
        Ok(keeper) => {
            sockets.push(keeper.socket().context("use the socket", &agent.settings.runtime)?);
            peers.tell_door(&keeper)?;
            let (shared, all) = (peers.clone(), agent.clone());
            let flush: Arc<peers::FlushAll> =
                Arc::new(move |scope, options| all.flush(scope, options, &mut |_, _, _, _| true));
            threads.push(spawn("peers", move || peers::serve(&shared, &keeper, &flush))?);
        }
        Err(error) => agent.warn(format!("other nodes of this root can't reach this one: {error}")),
    }
    // One that began at the same moment: it either saw our registration and asked at our door, or registered before this look.
    let is_known = agent.look_for_nodes();
    if !is_known || agent.has_others() {
        peers.promise_as_before();
        peers.announce();
    }
    agent.index.header.accepts.store(1, SeqCst);
    agent.place_existing_directories();
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

/// From now on these settings decide on what is in the tiers, until all of it is dealt with.
fn put_in_force(settings: &Settings) -> Result<()> {
    let (target, fresh) = (settings.in_force(), settings.in_force().with_extension("new"));
    let text = serde_json::to_vec_pretty(settings).expect("settings are plain data");
    let _ = std::fs::remove_file(&fresh);
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
    file.and_then(|mut file| file.write_all(&text)).context("write", &fresh)?;
    std::fs::rename(&fresh, &target).context("put in place", &target)?;
    let root = std::fs::metadata(&settings.root).context("look at", &settings.root)?.ino();
    std::fs::write(settings.unfinished(), format!("{root}\n")).context("write", &settings.unfinished())
}

/// What a killed agent left is dealt with by the settings that it had, before others are in force: its files are its run's.
/// True: that was done, and the lock is free again.
fn finish_for_earlier(settings: &Settings, lock: &mut Lock) -> Result<bool> {
    let text = std::fs::read(settings.in_force()).unwrap_or_default();
    let Ok(earlier) = serde_json::from_slice::<Settings>(&text) else { return Ok(false) };
    let differ = earlier.contradictions(settings);
    let Some(first) = differ.first() else { return Ok(false) };
    if !settings.unfinished().exists() {
        // A process that outlived its run goes on without us: what it makes is not for these settings to decide.
        let _ = std::fs::remove_file(settings.index());
        return Ok(false);
    }
    if let Some(index) = crate::shared::index_file::peek(&settings.index())?
        && let Some(pid) = live_programs(&index).next()
    {
        return Err(Error::StillUsed { root: settings.root.clone(), pid, differs: first.to_string() });
    }
    let mut running = match begin(earlier, lock.clone()) {
        Ok(running) => running,
        Err(error) => {
            eprintln!("terrace agent: what an agent with other settings left ({first}) can't be looked after: {error}");
            return Ok(false);
        }
    };
    let report = running.finish();
    let agent = running.agent.clone();
    let is_finished = !agent.has_unflushed();
    running.leave();
    for (path, reason) in &report.lost {
        eprintln!("terrace agent: {} is lost: {reason}", path.display());
    }
    match report.failures.into_iter().next() {
        Some(failure) if !is_finished => {
            Err(Error::Unfinished { path: failure.path, reason: failure.reason, differs: first.to_string() })
        }
        _ => Ok(true),
    }
}

/// A journal that can't be used is moved aside: the tree says where the files are.
fn open_journal(path: &Path) -> Result<(Option<Journal>, Option<String>)> {
    let begun = Instant::now();
    let opened = loop {
        match Journal::open(path) {
            Err(terrace_tier::Error::JournalLocked { .. }) if begun.elapsed() < JOURNAL_PATIENCE => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => break opened,
        }
    };
    Ok(match opened {
        Ok(journal) => (Some(journal), None),
        // We have this node's lock: the other one is on another node.
        Err(error @ terrace_tier::Error::JournalLocked { .. }) => return Err(error.into()),
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
    })
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
        let mut is_flushed = false;
        loop {
            agent.await_change(TICK);
            agent.keep_house(&mut house);
            let is_told = TERMINATED.load(SeqCst);
            if is_told && !is_flushed && RUNS.load(SeqCst) > 0 {
                // Little time may be left: what is closed is made durable while the runs end.
                is_flushed = true;
                let options = FlushOptions { all: false, end_of_run: false, settle_open: false };
                agent.flush(&Scope(vec![]), &options, &mut |_, _, _, _| true);
            }
            let ends = agent.ends.load(SeqCst) || is_told && agent.runs.lock().unwrap().count() == 0;
            let is_leaving = ends || agent.is_idle();
            if agent.forwarder.waits_for_forwards(is_leaving) {
                agent.runs.lock().unwrap().stay("it forwards what was staged");
            } else if !is_leaving {
                agent.runs.lock().unwrap().tire();
            } else if Instant::now() >= not_before || agent.runs.lock().unwrap().has_waiting() {
                if agent.flush_before_leaving(ends).is_some() {
                    break;
                }
                agent.runs.lock().unwrap().stay(&agent.why_it_stays());
                not_before = Instant::now() + RETRY;
            }
        }
        self.leave();
        Ok(())
    }

    /// Makes durable what an earlier agent left.
    pub fn finish(&mut self) -> RecoverReport {
        let mut report = std::mem::take(&mut self.report);
        let options = FlushOptions { all: false, end_of_run: true, settle_open: false };
        let outcome = self.agent.flush(&Scope(vec![]), &options, &mut |_, _, _, _| true);
        report.flushed = outcome.done;
        report.failures = outcome.failures;
        for path in outcome.open_files {
            let reason = "a program has it open for writing; recover again when it has ended".into();
            report.failures.push(Failure { path, reason });
        }
        report.kept = self.agent.kept_files();
        report
    }

    /// Ends the threads and removes what only a living agent needs.
    pub fn leave(self) {
        self.agent.schedule.end();
        self.agent.wake_from_sleep();
        for socket in &self.sockets {
            // Fails for one that is shut down already.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        for thread in self.threads {
            let _ = thread.join();
        }
        self.agent.clear_up();
        // This process may go on, with other settings: who waited for that hears of it.
        self.agent.runs.lock().unwrap().end_waiting();
    }
}

/// How long a file that grows unseen is not looked at.
const GROWTH_LOOK: Duration = Duration::from_millis(5);
/// How often the root's room is looked at while small files are made there.
const ROOT_LOOK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct HouseKeeping {
    rescanned: Option<Instant>,
    looked_for_nodes: Option<Instant>,
    room: RoomCount,
    /// Small files that had been made in the root when its room was last looked at, and when that was.
    small_files: u64,
    root_looked: Option<Instant>,
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
        self.count_directories(&mut house.room);
        self.look_at_the_roots_room(house);
        self.adjust_capacity();
        self.keep_watermarks();
        self.forget_exchanged();
        self.forget_early_copies();
        self.forget_late_keys();
        if house.looked_for_nodes.is_none_or(|last| last.elapsed() >= LOOK_FOR_NODES) {
            house.looked_for_nodes = self.look_for_nodes().then(Instant::now);
        }
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

    /// While small files are made there, and while none are because it had no room.
    fn look_at_the_roots_room(&self, house: &mut HouseKeeping) {
        let small_files = self.index.header.creates_small.load(Relaxed);
        let is_wanted = house.small_files != small_files
            || self.index.header.learning.load(Relaxed) == 0 && self.settings.small_files.learns(&self.policy);
        if is_wanted && house.root_looked.is_none_or(|looked| looked.elapsed() >= ROOT_LOOK) {
            (house.small_files, house.root_looked) = (small_files, Some(Instant::now()));
            self.learn_while_the_root_has_room();
        }
    }

    fn is_idle(&self) -> bool {
        self.has_no_use(&self.runs.lock().unwrap())
    }

    fn has_no_use(&self, runs: &Runs) -> bool {
        let is_wanted = || !runs.had_one && !runs.gives_way() && runs.idle_since.is_none_or(|at| at.elapsed() < LINGER);
        runs.count() == 0 && runs.requests == 0 && !is_wanted()
    }

    /// Until it is time to look after the house, or to leave.
    fn await_change(&self, patience: Duration) {
        let runs = self.runs.lock().unwrap();
        let changed = runs.changed.clone();
        let begun = Instant::now();
        // After a try that failed, the time is what ends the wait.
        if !runs.has_waiting() || !self.has_no_use(&runs) {
            let is_unchanged =
                |runs: &mut Runs| begun.elapsed() < patience && !(runs.has_waiting() && self.has_no_use(runs));
            drop(changed.wait_timeout_while(runs, patience, is_unchanged).unwrap());
        }
    }

    /// For who waits for our end: why it does not come.
    fn why_it_stays(&self) -> String {
        if let Some((path, reason)) = self.failures.lock().unwrap().first_key_value() {
            return format!("{} can't be made durable: {reason}", crate::shared::path::as_path(path).display());
        }
        match live_programs(&self.index).next() {
            Some(pid) => format!("process {pid} of an earlier run still writes"),
            None => "files of an earlier run are not durable yet".into(),
        }
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
        if live_programs(&self.index).next().is_some() {
            std::thread::sleep(CREATION);
        }
        self.drain_events();
        let is_done = !self.has_unflushed() && {
            let mut runs = self.runs.lock().unwrap();
            runs.is_over = must_end || (runs.count() == 0 && runs.requests == 0);
            runs.is_over
        };
        if !is_done {
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
        let is_finished = self.root_is_gone() || !(self.objects.has_unflushed_arrays() || self.has_unflushed_files());
        self.withdraw();
        self.objects.clear_up_objects();
        let is_used = self.files.clear_up_files();
        let keeps_index = is_used;
        let settings = &self.settings;
        let _ = std::fs::remove_file(settings.objects_socket());
        let _ = std::fs::remove_file(settings.control_socket());
        let _ = std::fs::remove_file(settings.call_socket());
        // Records of queries (crates/analysis), of nobody's data.
        let _ = std::fs::remove_dir_all(settings.runtime.join("queries"));
        if !keeps_index {
            self.index.header.magic.store(0, SeqCst);
            if std::fs::symlink_metadata(settings.index()).is_ok_and(|found| found.ino() == self.index_ino) {
                let _ = std::fs::remove_file(settings.index());
            }
        } else {
            self.index.header.agent_pid.store(0, SeqCst);
        }
        self.remove_directories(keeps_index, is_finished);
    }

    /// What lies in our own directory of the root.
    fn remove_private_directories(&self) {
        for entry in std::fs::read_dir(self.held_dir()).into_iter().flatten().flatten() {
            // A kept file's last durable version stays: its object may be lost with its tier.
            let number = terrace_index::parse_name(entry.file_name().as_encoded_bytes()).map(|(number, _)| number);
            let is_newer = number.and_then(|number| self.index.record(number));
            if !is_newer.is_some_and(|record| record.state() == State::Current) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
        let _ = self.root_tier.discard_temporaries([]);
        for directory in [self.tmp_dir(), self.held_dir(), self.kept_dir()] {
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// Only empty directories go: whatever is in them is somebody's data.
    fn remove_directories(&self, keeps_index: bool, is_finished: bool) {
        self.leave_others();
        let own = self.settings.root.join(self.private_name());
        let private = self.settings.root.join(terrace_index::PRIVATE_DIR);
        self.peers.close_door();
        self.withdraw_node();
        let nodes = terrace_core::nodes::directory(&self.settings.root, terrace_index::PRIVATE_DIR);
        self.remove_spill_dirs();
        // Most runs leave nothing else, and what is not looked for costs no request.
        let _ = std::fs::remove_dir(self.tmp_dir());
        if std::fs::remove_dir(&own).is_err() {
            self.remove_private_directories();
            let _ = std::fs::remove_dir(&own);
        }
        for directory in [nodes, private] {
            let _ = std::fs::remove_dir(directory);
        }
        for place in &self.devices {
            let _ = std::fs::remove_dir(&place.dir);
        }
        // Who finds us killed before this knows that the root is not clean.
        if is_finished {
            let _ = std::fs::remove_file(self.settings.unfinished());
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
