//! A place (root, tiers, agent) and a program that does what the preload library does.

use crate::agent::Agent;
use crate::lifetime::{self, Running};
use crate::shared::index_file::random_half;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_core::settings::{Settings, TierSettings};
use terrace_index::guard::Domain;
use terrace_index::ring::EventKind;
use terrace_index::{Index, State};

/// Everything of one test: its directories go with it.
pub struct Place {
    settings: Settings,
    running: Option<Running>,
    _root: TempDir,
    memory: TempDir,
}

impl Place {
    /// Flushes everything; one tier of 8 MiB, or tiers of these bytes.
    pub fn new(tiers: &[u64]) -> Place {
        let mut place = Place::unstarted(tiers);
        place.start();
        place
    }

    pub fn with_policy(flush: &[&str], evict: &[&str]) -> Place {
        let mut place = Place::unstarted(&[]);
        let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect();
        (place.settings.policy.flush, place.settings.policy.evict) = (texts(flush), texts(evict));
        place.start();
        place
    }

    pub fn unstarted(tiers: &[u64]) -> Place {
        let root = TempDir::with_prefix_in("terrace-test-", "/var/tmp").unwrap();
        let memory = TempDir::with_prefix_in("terrace-test-", "/dev/shm").unwrap();
        let settings = Place::settings_in(root.path(), memory.path(), tiers);
        Place { settings, running: None, _root: root, memory }
    }

    pub fn settings_in(root: &std::path::Path, memory: &std::path::Path, tiers: &[u64]) -> Settings {
        let sizes = if tiers.is_empty() { &[8 << 20] } else { tiers };
        let tier = |(number, size): (usize, &u64)| {
            let path = memory.join(format!("tier{number}"));
            std::fs::create_dir_all(&path).unwrap();
            TierSettings { name: format!("t{number}"), paths: vec![path], capacity_bytes: *size, reserve_bytes: 0 }
        };
        let tiers = sizes.iter().enumerate().map(tier).collect();
        let root = root.canonicalize().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let mut settings = Settings::new(root, tiers, uid, "/nowhere/library.so".into());
        settings.state = memory.join("state");
        settings.runtime = memory.join("runtime");
        settings.mover.settle_ms = 20;
        settings
    }

    pub fn start(&mut self) {
        self.running = Some(lifetime::start(self.settings.clone()).unwrap());
    }

    pub fn leave(&mut self) {
        let running = self.running.take().unwrap();
        assert!(running.agent.flush_before_leaving(false).is_some());
        running.leave();
    }

    /// Takes the agent away without its leave, as a crash does.
    pub fn take_running(&mut self) -> Option<Running> {
        self.running.take()
    }

    pub fn agent(&self) -> &Arc<Agent> {
        &self.running.as_ref().unwrap().agent
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn memory(&self) -> &std::path::Path {
        self.memory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.settings.root.join(name)
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    pub fn inode(&self, name: &str) -> u64 {
        std::fs::symlink_metadata(self.path(name)).unwrap().ino()
    }

    pub fn is_link(&self, name: &str) -> bool {
        std::fs::symlink_metadata(self.path(name)).is_ok_and(|found| found.is_symlink())
    }

    /// Objects in all tiers.
    pub fn objects(&self) -> usize {
        let uid = rustix::process::geteuid().as_raw();
        let node = crate::node::tag(&self.settings).unwrap();
        let id = Settings { node: Some(node), ..self.settings.clone() }.id();
        let dirs = self.settings.tiers.iter().map(|tier| terrace_core::settings::object_dir(&tier.paths[0], uid, &id));
        let files = dirs.flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten());
        files.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).count()
    }

    pub fn wait_for(&self, what: &str, mut is_done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !is_done() {
            assert!(start.elapsed() < Duration::from_secs(20), "waited too long for {what}");
            std::thread::sleep(Duration::from_millis(5));
            self.agent().forget_exchanged();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.leave();
        }
    }
}

/// What the preload library does in a program, without its hooks.
pub struct Program {
    index: Index,
    root: PathBuf,
    slot: u32,
}

impl Drop for Program {
    fn drop(&mut self) {
        self.index.processes[self.slot as usize].pid.store(0, SeqCst);
    }
}

impl Program {
    pub fn new(place: &Place) -> Program {
        Program::on(place.agent().index, place.settings().root.clone())
    }

    pub fn on(index: Index, root: PathBuf) -> Program {
        // Each simulated program claims a slot of its own under this process's id.
        let slot = index.claim_process(std::process::id(), |_| false);
        Program { index, root, slot }
    }

    fn publish(&self, kind: EventKind, record: u32, path: &[u8], path2: &[u8]) {
        while !self.index.ring_push(std::process::id(), kind, record, path, path2) {
            std::thread::yield_now();
        }
    }

    /// A new file, still open for writing.
    pub fn create(&self, name: &str, bytes: &[u8]) -> (u32, File) {
        let made = self.create_untold(name, bytes);
        self.publish(EventKind::Created, made.0, self.root.join(name).as_os_str().as_bytes(), b"");
        made
    }

    /// As by a program that is killed before it tells the agent.
    pub fn create_untold(&self, name: &str, bytes: &[u8]) -> (u32, File) {
        let number = self.index.take_record().unwrap();
        let record = &self.index.records[number as usize];
        record.random.store(random_half(), SeqCst);
        record.device.store(0, SeqCst);
        let object = self.object(number);
        let mut file = File::options().read(true).write(true).create_new(true).open(&object).unwrap();
        record.object_ino.store(file.metadata().unwrap().ino(), SeqCst);
        self.index.table_put(self.index.object_key(0, record.object_ino.load(SeqCst)), number);
        assert!(self.index.header.devices[0].reserve(bytes.len() as i64), "the test's tier is too small");
        record.reserved.store(bytes.len() as i64, SeqCst);
        record.set_state(State::Current);
        symlink(&object, self.root.join(name)).unwrap();
        file.write_all(bytes).unwrap();
        (number, file)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> u32 {
        self.create(name, bytes).0
    }

    pub fn object(&self, number: u32) -> PathBuf {
        let record = &self.index.records[number as usize];
        let dir = self.index.header.devices[record.device.load(SeqCst) as usize].dir.get();
        let name = crate::shared::index_file::object_name(number, record.random.load(SeqCst));
        crate::shared::path::as_path(dir).join(name)
    }

    /// Does `act` on a name in a guard, when its record (if it is a link) is not busy.
    fn on_name(&self, name: &str, mut act: impl FnMut(Option<u32>)) {
        loop {
            let entered = self.index.guard_enter(self.slot, Domain::Names);
            let text = crate::shared::path::read_link(self.root.join(name).as_os_str().as_bytes());
            let record = text.and_then(|text| self.index.record_of_link(&text));
            let is_busy = record.is_some_and(|number| self.index.records[number as usize].state().is_busy());
            if !is_busy {
                act(record);
            }
            self.index.guard_leave(entered);
            if !is_busy {
                return;
            }
            std::thread::yield_now();
        }
    }

    pub fn rename(&self, from: &str, to: &str) {
        let mut moved = None;
        self.on_name(from, |record| {
            std::fs::rename(self.root.join(from), self.root.join(to)).unwrap();
            moved = record;
        });
        if let Some(number) = moved {
            self.publish(EventKind::Renamed, number, b"", self.root.join(to).as_os_str().as_bytes());
        }
    }

    pub fn unlink(&self, name: &str) {
        let mut removed = None;
        self.on_name(name, |record| {
            let durable = std::fs::symlink_metadata(self.root.join(name)).unwrap().ino();
            std::fs::remove_file(self.root.join(name)).unwrap();
            if record.is_none() {
                let known = self.index.record_of_root_ino(durable);
                removed = known.filter(|&number| self.index.records[number as usize].state() == State::Clean);
            }
            if let Some(number) = record {
                let record = &self.index.records[number as usize];
                record.set_state(State::Dead);
                std::fs::remove_file(self.object(number)).unwrap();
                self.index.header.devices[0].unreserve(record.reserved.swap(0, SeqCst));
                removed = Some(number);
            }
        });
        if let Some(number) = removed {
            self.publish(EventKind::Removed, number, b"", b"");
        }
    }
}
