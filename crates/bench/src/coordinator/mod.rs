//! The coordinator: starts workers, lets them begin together, and notices at once when one of them dies.
//!
//!   launch ──▶ join (token, clock offset) ──▶ Group ──operation──▶ one report a worker, or what ended it
//!
//! One thread for each connection does nothing but read; all messages come through one channel, so the coordinator waits
//! at one place. Invariant: an operation ends for all workers or the group is ended; a group is never half alive.

mod launch;

pub use launch::{LaunchKind, is_on_path, launcher};

use crate::clock::{self, Offset, now_ns};
use crate::error::{Error, Result};
use crate::experiment::Launch;
use crate::protocol::{Assignment, FromWorker, PassReport, ToWorker, notice_death, receive, send};
use crate::stop::Stop;
use launch::Launched;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How long workers may take to join: a batch system may start them one by one.
const JOIN_PATIENCE: Duration = Duration::from_secs(60);
/// Time between the order to start and the start, so that the order has reached everybody.
const START_MARGIN_NS: u64 = 3_000_000;
const PINGS: usize = 16;
/// Clocks drift apart by tens of microseconds a second.
const CLOCKS_GOOD_FOR: Duration = Duration::from_secs(1);

pub struct Group {
    peers: Vec<Peer>,
    messages: Receiver<Event>,
    launched: Launched,
    /// Workers are below `terrace run`, which makes their files durable at its end.
    flushes: bool,
    clocks_measured: Instant,
    stop: Arc<Stop>,
}

/// What the coordinator waits for.
enum Event {
    Said(usize, io::Result<FromWorker>),
    /// The experiment is to end.
    Stop,
}

pub struct Peer {
    stream: TcpStream,
    pub host: String,
    pub pid: u32,
    pub offset: Offset,
}

/// What came of an operation.
pub struct Outcome {
    /// One for each worker; `None` for one that has not ended it.
    pub reports: Vec<Option<PassReport>>,
    pub residency: crate::cache::Residency,
    /// Why it did not end as it should.
    pub failure: Option<String>,
}

impl Group {
    /// Starts so many workers and waits until all have joined, or somebody wants the experiment to end.
    pub fn start(launch: &Launch, kind: &LaunchKind, workers: u32, stop: &Arc<Stop>) -> Result<Group> {
        let address = listening_address(launch.address.as_deref());
        let listener = TcpListener::bind(&address).map_err(|error| {
            Error::input(
                format!("can't listen on {address}: {error}"),
                "`launch.address` must be an address of this machine",
            )
        })?;
        let address = listener.local_addr().map_err(|error| Error::io("listen on", &address, error))?;
        let token = launch::token()?;
        let mut launched = Launched::start(launch, kind, workers, &address.to_string(), &token)?;
        let streams = join(&listener, workers, &token, &mut launched, stop)?;
        let (sender, messages) = channel();
        let mut peers = Vec::new();
        for (index, (stream, hello)) in streams.into_iter().enumerate() {
            peers.push(peer(index, stream, hello, &sender)?);
        }
        stop.tell(move || drop(sender.send(Event::Stop)));
        let flushes = matches!(kind, LaunchKind::TerraceRun(_));
        let mut group =
            Group { peers, messages, launched, flushes, clocks_measured: Instant::now(), stop: Arc::clone(stop) };
        group.measure_clocks()?;
        Ok(group)
    }

    pub fn len(&self) -> usize {
        self.peers.len()
    }
    pub fn is_empty(&self) -> bool {
        self.peers.is_empty()
    }
    pub fn hosts(&self) -> Vec<String> {
        self.peers.iter().map(|peer| peer.host.clone()).collect()
    }
    pub fn offsets(&self) -> Vec<Offset> {
        self.peers.iter().map(|peer| peer.offset).collect()
    }

    fn measure_clocks(&mut self) -> Result<()> {
        self.clocks_measured = Instant::now();
        for index in 0..self.peers.len() {
            if self.peers[index].offset.uncertainty_ns == 0 {
                continue;
            }
            let mut samples = Vec::new();
            for _ in 0..PINGS {
                let before = now_ns();
                self.tell(index, &ToWorker::Ping)?;
                match self.next()? {
                    (_, Ok(FromWorker::Pong { at_ns })) => samples.push((before, at_ns, now_ns())),
                    (who, Ok(other)) => return Err(Error::failed(format!("worker {who} says {other:?} too early"))),
                    (who, Err(_)) => return Err(Error::failed(self.death(who))),
                }
            }
            self.peers[index].offset = Offset::from_samples(&samples).expect("there are samples");
        }
        Ok(())
    }

    fn tell(&mut self, index: usize, message: &ToWorker) -> Result<()> {
        send(&mut self.peers[index].stream, message).map_err(|_| Error::failed(self.death(index)))
    }
    fn tell_all(&mut self, message: &ToWorker) -> Result<()> {
        (0..self.peers.len()).try_for_each(|index| self.tell(index, message))
    }
    fn start_all(&mut self) -> Result<()> {
        let uncertainty = self.peers.iter().map(|peer| peer.offset.uncertainty_ns).max().unwrap_or(0);
        let at = now_ns() + START_MARGIN_NS + 4 * uncertainty;
        for index in 0..self.peers.len() {
            let at_ns = self.peers[index].offset.to_other(at);
            self.tell(index, &ToWorker::Start { at_ns })?;
        }
        Ok(())
    }
    fn event(&self) -> Result<Event> {
        self.messages.recv().map_err(|_| Error::failed("all workers are gone"))
    }
    /// What the next worker says. That the experiment is to end is seen before the next operation.
    fn next(&self) -> Result<(usize, io::Result<FromWorker>)> {
        loop {
            if let Event::Said(index, message) = self.event()? {
                return Ok((index, message));
            }
        }
    }

    /// Lets all workers do one operation. A failure ends the group: the caller starts a new one.
    pub fn perform(&mut self, assignments: &[Assignment]) -> Outcome {
        let mut outcome = Outcome {
            reports: vec![None; self.peers.len()],
            residency: crate::cache::Residency::default(),
            failure: None,
        };
        if let Err(error) = self.try_perform(assignments, &mut outcome) {
            outcome.failure = Some(error.to_string());
            self.end_now();
        }
        outcome
    }

    fn try_perform(&mut self, assignments: &[Assignment], outcome: &mut Outcome) -> Result<()> {
        if self.clocks_measured.elapsed() > CLOCKS_GOOD_FOR {
            self.measure_clocks()?;
        }
        if let Some(signal) = self.stop.asked() {
            return Err(Error::Stopped(signal));
        }
        for (index, assignment) in assignments.iter().enumerate() {
            self.tell(index, &ToWorker::Prepare(Box::new(assignment.clone())))?;
        }
        let mut waiting = self.peers.len();
        let mut done = 0;
        let mut walls: BTreeMap<usize, u64> = BTreeMap::new();
        let mut started = false;
        while done < self.peers.len() {
            let (index, message) = match self.event()? {
                Event::Said(index, message) => (index, message),
                Event::Stop => return Err(Error::Stopped(self.stop.asked().unwrap_or(0))),
            };
            match message {
                Ok(FromWorker::Prepared { cache }) if !started => {
                    outcome.residency.pages += cache.pages;
                    outcome.residency.resident += cache.resident;
                    waiting -= 1;
                    if waiting == 0 {
                        started = true;
                        waiting = self.peers.len();
                        self.start_all()?;
                    }
                }
                Ok(FromWorker::Barrier) => {
                    waiting -= 1;
                    if waiting == 0 {
                        waiting = self.peers.len();
                        self.start_all()?;
                    }
                }
                Ok(FromWorker::Stonewalled { requests }) => {
                    walls.insert(index, requests);
                    if walls.len() == self.peers.len() {
                        let requests = walls.values().copied().max().unwrap_or(0);
                        walls.clear();
                        self.tell_all(&ToWorker::WearOut { requests })?;
                    }
                }
                Ok(FromWorker::Done(report)) => {
                    outcome.reports[index] = Some(*report);
                    done += 1;
                }
                Ok(FromWorker::Failed { message, .. }) => {
                    return Err(Error::failed(format!("worker {index}: {message}")));
                }
                Ok(other) => return Err(Error::failed(format!("worker {index} says {other:?} out of turn"))),
                Err(_) => return Err(Error::failed(self.death(index))),
            }
        }
        Ok(())
    }

    /// Which workers find a file of the name that they would make.
    pub fn look(&mut self, assignments: &[Assignment]) -> Result<Vec<usize>> {
        for (index, assignment) in assignments.iter().enumerate() {
            self.tell(index, &ToWorker::Look(Box::new(assignment.clone())))?;
        }
        let mut found = vec![];
        let mut failure = None;
        for _ in 0..self.peers.len() {
            match self.next()? {
                (index, Ok(FromWorker::Looked { there })) => found.extend(there.then_some(index)),
                (index, Ok(FromWorker::Failed { message, .. })) => failure = Some(format!("worker {index}: {message}")),
                (index, Ok(other)) => return Err(Error::failed(format!("worker {index} says {other:?} out of turn"))),
                (index, Err(_)) => return Err(Error::failed(self.death(index))),
            }
        }
        failure.map_or(Ok(found), |failure| Err(Error::failed(failure)))
    }

    /// Lets the workers remove the run's files; returns how long the slowest took.
    pub fn remove(&mut self, assignments: &[Assignment]) -> Result<u64> {
        for (index, assignment) in assignments.iter().enumerate() {
            self.tell(index, &ToWorker::Remove(Box::new(assignment.clone())))?;
        }
        let mut slowest = 0;
        let mut failure = None;
        for _ in 0..self.peers.len() {
            match self.next()? {
                (_, Ok(FromWorker::Removed { ns })) => slowest = slowest.max(ns),
                (index, Ok(FromWorker::Failed { message, .. })) => failure = Some(format!("worker {index}: {message}")),
                (index, Ok(other)) => return Err(Error::failed(format!("worker {index} says {other:?} out of turn"))),
                (index, Err(_)) => return Err(Error::failed(self.death(index))),
            }
        }
        failure.map_or(Ok(slowest), |failure| Err(Error::failed(failure)))
    }

    fn death(&mut self, index: usize) -> String {
        let (host, pid) = (self.peers[index].host.clone(), self.peers[index].pid);
        let how = self.launched.how_it_ended(pid);
        let how = if how.is_empty() { " or can't be reached any more" } else { &how };
        format!("worker {index} (process {pid} on {host}) died{how}")
    }

    /// Ends all workers, whatever they do.
    fn end_now(&mut self) {
        for peer in &self.peers {
            // Its reading thread sees the end and leaves the process.
            let _ = peer.stream.shutdown(std::net::Shutdown::Both);
        }
        self.launched.kill();
    }

    /// Ends the workers in peace; the reason, where a `terrace run` could not make all files durable.
    pub fn finish(mut self) -> Option<String> {
        let _ = self.tell_all(&ToWorker::Bye);
        // A flush takes as long as it takes. Whoever wants the end has it after the patience.
        while self.flushes && self.stop.asked().is_none() && !self.launched.have_ended() {
            self.stop.sleep(Duration::from_millis(2));
        }
        self.launched.wait(Duration::from_secs(20));
        if self.flushes { self.launched.failure() } else { None }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end_now();
    }
}

/// `launch.address`: a name or an address, with a port or without one; an IPv6 address may stand in brackets.
fn listening_address(wanted: Option<&str>) -> String {
    let wanted = wanted.unwrap_or("127.0.0.1");
    let plain = wanted.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = plain.parse::<IpAddr>() {
        return SocketAddr::new(address, 0).to_string();
    }
    if wanted.contains(':') { wanted.to_owned() } else { format!("{wanted}:0") }
}

struct Hello {
    host: String,
    pid: u32,
    same_clock: bool,
}

fn join(
    listener: &TcpListener,
    workers: u32,
    token: &str,
    launched: &mut Launched,
    stop: &Stop,
) -> Result<Vec<(TcpStream, Hello)>> {
    let own_clock = clock::identity();
    let deadline = Instant::now() + JOIN_PATIENCE;
    let mut ranked: BTreeMap<u32, (TcpStream, Hello)> = BTreeMap::new();
    let mut others = Vec::new();
    while ranked.len() + others.len() < workers as usize {
        if let Some(reason) = launched.failed_early() {
            return Err(Error::failed(format!("the workers could not be started: {reason}")));
        }
        if let Some(signal) = stop.asked() {
            return Err(Error::Stopped(signal));
        }
        if Instant::now() > deadline {
            let joined = ranked.len() + others.len();
            return Err(Error::failed(format!(
                "{joined} of {workers} workers joined within {} s (can they reach {:?}? see `launch.address`)",
                JOIN_PATIENCE.as_secs(),
                listener.local_addr().ok()
            )));
        }
        let mut waits = [rustix::event::PollFd::from_borrowed_fd(listener.as_fd(), rustix::event::PollFlags::IN)];
        let patience = rustix::event::Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        if !matches!(rustix::event::poll(&mut waits, Some(&patience)), Ok(ready) if ready > 0) {
            continue;
        }
        let Ok((mut stream, from)) = listener.accept() else { continue };
        // Somebody who says nothing must not hold up the others for long.
        let heard =
            stream.set_read_timeout(Some(Duration::from_secs(2))).and_then(|()| receive::<FromWorker>(&mut stream));
        let Ok(FromWorker::Hello { token: theirs, host, pid, rank, clock: theirs_clock }) = heard else { continue };
        if !equal(&theirs, token) {
            let warning = format!("terrace-bench: warning: a connection from {from} with a wrong token was refused\n");
            let _ = io::stderr().write_all(warning.as_bytes());
            continue;
        }
        stream
            .set_read_timeout(None)
            .and_then(|()| notice_death(&stream))
            .map_err(|error| Error::io("set up the connection to", from, error))?;
        let hello = Hello { host, pid, same_clock: !own_clock.is_empty() && own_clock == theirs_clock };
        match rank.filter(|rank| *rank < workers && !ranked.contains_key(rank)) {
            Some(rank) => drop(ranked.insert(rank, (stream, hello))),
            None => others.push((stream, hello)),
        }
    }
    let mut others = others.into_iter();
    Ok((0..workers).filter_map(|index| ranked.remove(&index).or_else(|| others.next())).collect())
}

/// Without telling by its time how much of the token was right.
fn equal(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |wrong, (a, b)| wrong | (a ^ b)) == 0
}

fn peer(index: usize, stream: TcpStream, hello: Hello, sender: &Sender<Event>) -> Result<Peer> {
    let mut reading = stream.try_clone().map_err(|error| Error::io("set up the connection to", &hello.host, error))?;
    let sender = sender.clone();
    std::thread::spawn(move || {
        loop {
            let message = receive::<FromWorker>(&mut reading);
            let ended = message.is_err();
            if sender.send(Event::Said(index, message)).is_err() || ended {
                return;
            }
        }
    });
    let uncertainty_ns = if hello.same_clock { 0 } else { u64::MAX };
    Ok(Peer { stream, host: hello.host, pid: hello.pid, offset: Offset { ns: 0, uncertainty_ns } })
}

/// Spread of the workers' first requests on our clock.
pub fn start_spread_s(reports: &[(&PassReport, Offset)]) -> f64 {
    let starts = reports.iter().map(|(report, offset)| offset.to_ours(report.began_ns));
    match (starts.clone().min(), starts.max()) {
        (Some(first), Some(last)) => clock::seconds(last - first),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_of_either_kind_with_a_port_or_without() {
        for (wanted, listens) in [
            (None, "127.0.0.1:0"),
            (Some("10.0.0.1"), "10.0.0.1:0"),
            (Some("10.0.0.1:7000"), "10.0.0.1:7000"),
            (Some("::1"), "[::1]:0"),
            (Some("[::1]"), "[::1]:0"),
            (Some("[::1]:7000"), "[::1]:7000"),
            (Some("node1"), "node1:0"),
            (Some("node1:7000"), "node1:7000"),
        ] {
            assert_eq!(listening_address(wanted), listens);
        }
    }
}
