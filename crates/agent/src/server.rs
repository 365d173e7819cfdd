//! The control socket: one thread for each connection of the command line, JSON lines both ways.

use crate::agent::Agent;
use crate::shared::accept;
use crate::shared::request::{FlushOptions, Outcome, Progress, Scope};
use crate::shared::runs::Serving;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;
use terrace_core::contradictions::Contradiction;
use terrace_core::control::{Counters, Failure, FileEntry, Origin, Request, Response, Status, TierStatus};
use terrace_core::settings::Settings;
use terrace_index::State;
use terrace_tier::Lease;

/// An early copy gives way after a chunk; what is moved otherwise is shown as that.
const LOOKING: Duration = Duration::from_millis(50);

/// Accepts until the socket is shut down.
pub fn serve(agent: &Arc<Agent>, listener: &UnixListener) {
    accept::each(
        agent,
        &agent.schedule,
        "control",
        || accept::own(listener),
        |agent, connection| agent.converse(connection),
    );
}

/// Somebody answers on the control socket.
pub fn listens(settings: &Settings) -> bool {
    UnixStream::connect(settings.control_socket()).is_ok()
}

/// Asks the agent of a root whether a run is connected to it. False also when nobody answers.
pub fn has_runs(settings: &Settings) -> bool {
    let ask = || -> std::io::Result<bool> {
        let stream = UnixStream::connect(settings.control_socket())?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut line = serde_json::to_vec(&Request::Status)?;
        line.push(b'\n');
        (&stream).write_all(&line)?;
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer)?;
        Ok(match serde_json::from_str(&answer)? {
            Response::Status { status } => !status.runs.is_empty(),
            _ => false,
        })
    };
    ask().unwrap_or(false)
}

impl Agent {
    fn converse(&self, connection: UnixStream) {
        let Ok(writer) = connection.try_clone() else { return };
        let mut run = None;
        let mut arriving = None;
        for line in BufReader::new(connection).lines() {
            let Ok(line) = line else { break };
            let request = serde_json::from_str::<Request>(&line);
            if self.root_is_gone() && self.root_is_replaced() && self.runs.lock().unwrap().count() == 0 {
                // The root was removed and made again: an agent of the new one answers, when we have left.
                self.ends.store(true, Release);
                break;
            }
            // Who only looks doesn't keep the agent from ending (`status --watch`).
            let is_a_look = matches!(
                request,
                Ok(Request::Status | Request::Ended { .. } | Request::List { .. } | Request::ListElsewhere { .. })
            );
            let _serving = (!is_a_look).then(|| Serving::new(&self.runs));
            let answer = match request {
                Ok(Request::RunBegin { .. }) if self.root_is_replaced() => Response::Error {
                    message: format!(
                        "{} is another directory than the one that its agent serves",
                        self.settings.root.display()
                    ),
                    hint: Some(
                        "the root was renamed or removed while runs or unflushed files were there: put it back, or wait \
                         until they have ended"
                            .into(),
                    ),
                },
                Ok(Request::RunBegin { pid, command, settings, origin }) => {
                    match self.begin_run(&mut run, (pid, command, origin), &settings, &writer) {
                        Some(answer) => answer,
                        None => break,
                    }
                }
                Ok(Request::Arrive { files }) => {
                    let pid = rustix::net::sockopt::socket_peercred(&writer).map_or(0, |peer| peer.pid.as_raw_nonzero().get());
                    let number = self.arrivals.begin(pid as u32, arriving, files);
                    arriving = Some(number);
                    self.tell_of_others();
                    Response::Arriving { arriving: number }
                }
                Ok(request) => self.serve(request, &writer),
                Err(error) => Response::Error {
                    message: format!("the agent doesn't understand this request: {error}"),
                    hint: Some("an agent of another version may still run: wait until its runs have ended".into()),
                },
            };
            if !accept::send(&writer, &answer) {
                break;
            }
        }
        if let Some(arriving) = arriving {
            self.peers.end_arrivals(arriving);
        }
        if let Some(run) = run {
            let mut runs = self.runs.lock().unwrap();
            let ended = runs.end(run, writer);
            self.ended.note_oldest(runs.oldest());
            ended.into_iter().for_each(|ended| self.ended.note_run(ended));
        }
    }

    /// `None`: it is too late; the connection ends, and whoever asked asks the next agent.
    fn begin_run(
        &self,
        run: &mut Option<u64>,
        (pid, command, origin): (u32, Vec<String>, Origin),
        wanted: &Settings,
        writer: &UnixStream,
    ) -> Option<Response> {
        let differ = self.settings.contradictions(wanted);
        let mut runs = self.runs.lock().unwrap();
        if runs.is_over {
            return None;
        }
        if let Some(first) = differ.first().filter(|_| runs.count() > 0) {
            return Some(contradicted(&self.settings, first, &differ[1..], &runs.status()));
        }
        if !differ.is_empty() || runs.gives_way() {
            runs.wait(writer.try_clone().ok()?, true);
            return Some(Response::Leaving);
        }
        let number = *run.get_or_insert_with(|| runs.begin(pid, command, origin));
        self.ended.note_oldest(runs.oldest());
        Some(Response::RunStarted { run: number, index: self.settings.index(), agent_pid: std::process::id() })
    }

    fn serve(&self, request: Request, writer: &UnixStream) -> Response {
        let mut progress = |files_done, files_total, bytes_done, bytes_total| {
            accept::send(writer, &Response::Progress { files_done, files_total, bytes_done, bytes_total })
        };
        let progress: Progress<'_> = &mut progress;
        let scope = |paths: Vec<PathBuf>| Scope(paths.iter().map(|path| self.canonical(path)).collect());
        match request {
            Request::RunBegin { .. } | Request::Arrive { .. } => unreachable!("answered by the conversation"),
            Request::NextAwaited { arriving } => Response::Awaited { files: self.arrivals.awaited(arriving) },
            Request::Arrived { arriving, objects, failed } => {
                self.arrivals.arrived(arriving, objects, failed);
                Response::Awaited { files: vec![] }
            }
            Request::Flush { paths, all, end_of_run } => {
                self.flush(&scope(paths), &FlushOptions { all, end_of_run, settle_open: false }, progress).response()
            }
            Request::FlushElsewhere { paths, all } => {
                Response::FlushedElsewhere { nodes: self.peers.flush_others(&scope(paths), all) }
            }
            Request::Evict { paths } => self.evict_all(&scope(paths), progress).response(),
            Request::Prefetch { paths } => self.prefetch_all(&scope(paths), progress).response(),
            Request::List { prefix } => {
                let prefix = prefix.map(|prefix| self.canonical(&prefix));
                Response::Files { files: self.list(&Scope(prefix.into_iter().collect())) }
            }
            Request::ListElsewhere { prefix } => {
                let prefix = prefix.map(|prefix| self.canonical(&prefix));
                Response::Elsewhere { files: crate::elsewhere::files(&self.settings, prefix.as_deref()) }
            }
            Request::Status => Response::Status { status: self.status() },
            Request::Ended { since } => {
                let runs = self.runs.lock().unwrap();
                let name =
                    |tier: usize| self.settings.tiers.get(tier).map_or_else(String::new, |tier| tier.name.clone());
                Response::Ended { ended: self.ended.since(since, &runs, name) }
            }
            Request::Shutdown => {
                if self.runs.lock().unwrap().count() > 0 {
                    return Response::Error {
                        message: "a run is still connected".into(),
                        hint: Some("`terrace status` shows which; end it first".into()),
                    };
                }
                let options = FlushOptions { all: false, end_of_run: true, settle_open: true };
                let outcome: Outcome = self.flush(&Scope(vec![]), &options, progress);
                self.ends.store(true, Release);
                outcome.response()
            }
        }
    }

    fn list(&self, scope: &Scope) -> Vec<FileEntry> {
        self.catch_up();
        let known: Vec<(u32, u64, Vec<u8>)> = self
            .catalogue()
            .iter()
            .filter(|(_, entry)| !entry.path.is_empty() && scope.has(&entry.path))
            .map(|(number, entry)| (number, entry.serial, entry.path.clone()))
            .collect();
        let mut files: Vec<FileEntry> =
            known.into_iter().filter_map(|(number, serial, path)| self.describe(number, serial, &path)).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files
    }

    fn describe(&self, number: u32, serial: u64, path: &[u8]) -> Option<FileEntry> {
        let record = self.record(number);
        let state = match record.state() {
            _ if self.serial(number) != serial => return None,
            State::Current => "current",
            State::Committing | State::Moving => "moving",
            State::Clean => "clean",
            State::Durable => "durable",
            State::Directory => "directory",
            _ => return None,
        };
        let size = match state {
            "durable" => {
                let found = rustix::fs::lstat(crate::shared::path::as_path(path)).ok()?;
                if found.st_ino != record.durable_ino.load(Acquire) {
                    return None;
                }
                found.st_size as u64
            }
            "directory" => self.size_of_directory(number).1,
            _ => rustix::fs::lstat(self.object_path(number)).ok()?.st_size as u64,
        };
        let tier = match state {
            "durable" => "root".into(),
            _ => self.settings.tiers[self.devices[self.device_of(number)].tier].name.clone(),
        };
        let path_buf: PathBuf = crate::shared::path::as_path(path).into();
        let open_for_writing = state == "current" && self.is_open_for_writing(number);
        Some(FileEntry {
            path: path_buf,
            tier,
            state: state.into(),
            mode: self.mode_of(number, path),
            size,
            open_for_writing,
        })
    }

    fn is_open_for_writing(&self, number: u32) -> bool {
        let Some(_claim) = self.claims.take(number, LOOKING) else { return false };
        let Ok(object) = self.open_object(number) else { return false };
        let fd = object.as_fd().expect("an object is a file of a directory");
        matches!(Lease::read(fd), Ok(None))
    }

    pub fn status(&self) -> Status {
        self.drain_events();
        let header = &self.index.header;
        let mut tiers: Vec<TierStatus> = self.settings.tiers.iter().map(tier_status).collect();
        for (device, place) in self.index.devices().iter().zip(&self.devices) {
            let tier = &mut tiers[place.tier];
            tier.used_bytes += device.used.load(Relaxed).max(0) as u64;
        }
        let (mut unflushed_files, mut unflushed_bytes) = (0, 0);
        for number in 0..self.index.records_end() {
            let record = self.record(number);
            let state = record.state();
            if record.serial.load(Acquire) == 0 {
                continue;
            }
            let is_newest = matches!(state, State::Current | State::Committing | State::Moving);
            if state == State::Directory {
                let (files, bytes) = self.size_of_directory(number);
                let tier = &mut tiers[self.devices[self.device_of(number)].tier];
                tier.files += files;
                tier.written_files += files;
                tier.written_bytes += bytes;
                let path = self.catalogue().path(number, self.serial(number)).unwrap_or_default();
                if !self.is_scratch(&path) {
                    let (files, bytes) = self.unmirrored(number);
                    unflushed_files += files;
                    unflushed_bytes += bytes;
                }
                continue;
            }
            if !is_newest && state != State::Clean {
                continue;
            }
            let tier = &mut tiers[self.devices[self.device_of(number)].tier];
            tier.files += 1;
            if is_newest {
                let size = rustix::fs::lstat(self.object_path(number)).map_or(0, |stat| stat.st_size as u64);
                tier.written_files += 1;
                tier.written_bytes += size;
                let path = self.catalogue().path(number, self.serial(number)).unwrap_or_default();
                if self.mode(&path).flushes() {
                    unflushed_files += 1;
                    unflushed_bytes += size;
                }
            }
        }
        for (tier, (files, bytes)) in tiers.iter_mut().zip(&self.totals.written) {
            tier.written_files += files.load(Relaxed);
            tier.written_bytes += bytes.load(Relaxed);
        }
        tiers.push(self.root_status());
        let catalogue = self.catalogue();
        let moving = self.claims.all();
        let moving = moving.iter().filter_map(|number| catalogue.path(*number, self.serial(*number)));
        let moving = moving.map(|path| crate::shared::path::as_path(&path).into()).collect();
        drop(catalogue);
        let reads = &self.index.reads;
        let to_failure = |(path, reason): (&Vec<u8>, &String)| Failure {
            path: crate::shared::path::as_path(path).into(),
            reason: reason.clone(),
        };
        Status {
            root: self.settings.root.clone(),
            agent_pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            runs: self.runs.lock().unwrap().status(),
            tiers,
            counters: Counters {
                opens_tier: header.opens_tier.load(Relaxed),
                opens_durable: header.opens_durable.load(Relaxed),
                creates_tier: header.creates_tier.load(Relaxed),
                creates_durable: header.creates_durable.load(Relaxed),
                creates_small: header.creates_small.load(Relaxed),
                unplaced_directories: header.unplaced_directories.load(Relaxed),
                input_bytes: reads.input_bytes.load(Relaxed),
                read_back_bytes: reads.read_back_bytes.load(Relaxed),
                reread_bytes: reads.reread_bytes.load(Relaxed),
                ..self.totals.counters()
            },
            unflushed_files,
            unflushed_bytes,
            arriving_files: self.arrivals.count(),
            moving,
            failures: self.failures.lock().unwrap().iter().map(to_failure).collect(),
            warnings: self.warnings.lock().unwrap().clone(),
            containers: self.forwarder.container_status(),
            forwards: self.forwarder.forward_status(),
        }
    }

    fn root_status(&self) -> TierStatus {
        let space = self.root_space().unwrap_or_default();
        TierStatus {
            name: "root".into(),
            paths: vec![self.settings.root.clone()],
            capacity_bytes: space.capacity,
            used_bytes: space.capacity.saturating_sub(space.free),
            written_files: self.index.header.creates_durable.load(Relaxed),
            durable: true,
            ..TierStatus::default()
        }
    }
}

/// Runs with other settings are alive.
fn contradicted(
    settings: &Settings,
    first: &Contradiction,
    others: &[Contradiction],
    runs: &[terrace_core::control::RunStatus],
) -> Response {
    let mut message = format!("another run on {} has other settings: {first}", settings.root.display());
    others.iter().for_each(|other| message.push_str(&format!(", {other}")));
    let alive: Vec<String> =
        runs.iter().take(3).map(|run| format!("process {} (`{}`)", run.pid, run.command.join(" "))).collect();
    let more = if runs.len() > 3 { format!(" and {} more", runs.len() - 3) } else { String::new() };
    Response::Error {
        message,
        hint: Some(format!(
            "wait until it has ended: {}{more}; or run with the same settings, or on another root",
            alive.join(", ")
        )),
    }
}

fn tier_status(tier: &terrace_core::settings::TierSettings) -> TierStatus {
    TierStatus {
        name: tier.name.clone(),
        paths: tier.paths.clone(),
        capacity_bytes: tier.capacity_bytes,
        ..TierStatus::default()
    }
}
