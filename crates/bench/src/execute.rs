//! Carries a plan out: block by block, run by run, and writes a row for each operation.
//!
//! Groups of workers are kept as long as the next run needs the same. A run that fails ends its group, is marked and
//! cleaned up; the experiment goes on with the next one, because an unattended night should not end at its first error.

use crate::claims::{self, Claims};
use crate::coordinator::{Group, LaunchKind, Outcome};
use crate::error::{Error, Result};
use crate::experiment::{Experiment, Replications, StoppingRule};
use crate::plan::{Plan, Run};
use crate::protocol::Assignment;
use crate::results::{Facts, Row, Store, row, unix_seconds};
use crate::settings::{BackendSettings, Files, Operation, Reorder, RunSettings, Workload};
use crate::signature::Identity;
use crate::statistics::{Method, median_interval};
use crate::stop::Stop;
use crate::worker::{leave_directory, path_of};
use crate::workload::{Permutation, mix};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Who is told how it goes.
pub trait Progress {
    fn begins(&mut self, _done: u64, _all: u64, _run: &Run, _replication: u32) {}
    fn row(&mut self, _row: &Row) {}
    fn warns(&mut self, _message: &str) {}
}

pub struct Silent;
impl Progress for Silent {}

pub struct Executor<'a> {
    experiment: &'a Experiment,
    plan: &'a Plan,
    store: Store,
    rows: Vec<Row>,
    hash: String,
    claims: Claims,
    group: Option<(LaunchKind, u32, Group)>,
    stop: Arc<Stop>,
    /// What `terrace run` could not make durable at its end, in words.
    not_durable: Vec<String>,
}

/// How an experiment ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub rows: u64,
    pub failed: u64,
    pub wrong: u64,
    /// Groups of workers whose `terrace run` could not make all files durable.
    pub not_durable: u64,
    /// Runs that the time limit left out.
    pub out_of_time: u64,
    /// The signal by which somebody ended it before its end.
    pub stopped: Option<i32>,
}

impl<'a> Executor<'a> {
    /// `rows` are those of an interrupted experiment that is resumed.
    pub fn new(
        experiment: &'a Experiment,
        plan: &'a Plan,
        store: Store,
        rows: Vec<Row>,
        stop: &Arc<Stop>,
    ) -> Executor<'a> {
        let (hash, claims, stop) = (plan.hash(), Claims::default(), Arc::clone(stop));
        Executor { experiment, plan, store, rows, hash, claims, group: None, stop, not_durable: vec![] }
    }

    pub fn run(&mut self, progress: &mut dyn Progress) -> Result<Tally> {
        let directory = &self.experiment.directory;
        std::fs::create_dir_all(directory).map_err(|error| Error::io("create", directory.display(), error))?;
        self.claims = Claims::open(&self.store.directory)?;
        let complete = Store::complete(&self.rows, self.plan);
        let all = (self.plan.blocks.len() * self.plan.runs.len()) as u64;
        let mut tally = Tally::default();
        let mut done = 0;
        let until = self.experiment.time_limit.map(|limit| Instant::now() + limit.duration());
        'all: for (replication, block) in self.plan.blocks.iter().enumerate() {
            let replication = replication as u32;
            let settled = self.settled(replication);
            for id in block {
                let run = &self.plan.runs[*id as usize];
                progress.begins(done, all, run, replication);
                done += 1;
                // What is there already has had its delays.
                let mut ran = false;
                if until.is_some_and(|until| Instant::now() >= until) {
                    tally.out_of_time = all + 1 - done;
                    break 'all;
                }
                for repetition in 0..run.settings.repetitions {
                    if complete.contains(&(*id, replication, repetition)) || settled.contains(id) {
                        continue;
                    }
                    ran = true;
                    self.repetition(run, replication, repetition, &mut tally, progress)?;
                    self.stop.sleep(run.settings.delay.duration());
                    if self.stop.asked().is_some() {
                        break 'all;
                    }
                }
                if ran {
                    self.stop.sleep(self.experiment.delay.duration());
                }
                if self.stop.asked().is_some() {
                    break 'all;
                }
            }
        }
        tally.stopped = self.stop.asked();
        self.finish_group();
        tally.not_durable = self.not_durable.len() as u64;
        for reason in std::mem::take(&mut self.not_durable) {
            progress.warns(&format!("the workers' `terrace run` did not make all files durable: {reason}"));
        }
        Ok(tally)
    }

    fn finish_group(&mut self) {
        let failure = self.group.take().and_then(|(_, _, group)| group.finish());
        self.not_durable.extend(failure);
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Runs whose intervals are narrow enough by the stopping rule.
    fn settled(&self, replication: u32) -> BTreeSet<u32> {
        let Replications::Until(rule) = self.experiment.replications else { return BTreeSet::new() };
        if replication < rule.min {
            return BTreeSet::new();
        }
        settled(&self.rows, &rule)
    }

    fn repetition(
        &mut self,
        run: &Run,
        replication: u32,
        repetition: u32,
        tally: &mut Tally,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let prepared = self.assignments(run, replication, repetition).and_then(|mut assignments| {
            self.look(&run.settings, &mut assignments)?;
            let ours = self.claims.claim(&run.settings, &assignments)?;
            Ok((assignments, ours))
        });
        let (assignments, mut ours) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                self.failed_to_start(run, replication, repetition, &error, tally, progress)?;
                return Ok(());
            }
        };
        let mut failed = false;
        let mut last = None;
        for (position, operation) in run.settings.operations.iter().enumerate() {
            if let Some(row) = last.take() {
                self.keep(row, tally, progress)?;
            }
            let mut assignments = assignments.clone();
            for (assignment, replaces) in assignments.iter_mut().zip(&ours) {
                assignment.operation = *operation;
                assignment.replaces = *replaces;
            }
            let started_unix_s = unix_seconds();
            let outcome = match self.begin(&run.settings, *operation, &mut assignments) {
                Ok(()) => {
                    if operation.writes() {
                        ours.fill(true);
                    }
                    let (_, _, group) = self.group.as_mut().expect("it was there just now");
                    let outcome = group.perform(&assignments);
                    failed = outcome.failure.is_some();
                    outcome
                }
                Err(error) => failure(&error),
            };
            // Clocks are measured anew where the last time is long ago.
            let (_, _, group) = self.group.as_ref().expect("the assignments were made for a group");
            let (hosts, offsets) = (group.hosts(), group.offsets());
            let ended = outcome.failure.is_some();
            if operation.writes()
                && !ended
                && let Err(error) = self.claims.write_ended(&run.settings, &assignments, &outcome.reports)
            {
                progress.warns(&format!("what was written can't be noted, and later runs will not read it: {error}"));
            }
            let base = Row { started_unix_s, position: position as u32, ..self.base(replication, repetition) };
            let facts = Facts { run, operation: *operation, hosts: &hosts, offsets: &offsets };
            let mut row = row(&facts, &outcome, base);
            if *operation == Operation::Read {
                row.own_node_reads =
                    assignments.iter().filter(|a| hosts[a.worker as usize] == hosts[a.reads_of as usize]).count()
                        as u32;
            }
            last = Some(row);
            if failed {
                self.group = None;
            }
            if ended {
                break;
            }
        }
        // The last operation's row waits for the removal, whose time it has.
        let remove_s = self.clean_up(run, &assignments, failed, progress)?;
        match last {
            Some(row) => self.keep(Row { remove_s, ..row }, tally, progress),
            None => Ok(()),
        }
    }

    /// Notes what becomes of the files, and tells the workers what they will find in them.
    fn begin(&mut self, settings: &RunSettings, operation: Operation, assignments: &mut [Assignment]) -> Result<()> {
        match operation {
            _ if operation.writes() => self.claims.write_begins(settings, assignments),
            _ if operation.reads() => self.claims.tell_origins(settings, assignments),
            _ => Ok(()),
        }
    }

    /// Objects in a store can't be seen from here: the workers look for those that are somebody else's.
    fn look(&mut self, settings: &RunSettings, assignments: &mut [Assignment]) -> Result<()> {
        let null = matches!(settings.backend, BackendSettings::Null(_));
        if settings.backend.has_local_files() || null || !claims::makes_files(settings) {
            return Ok(());
        }
        let ours = self.claims.ours(settings, assignments);
        for (assignment, ours) in assignments.iter_mut().zip(ours) {
            assignment.replaces = ours;
        }
        let (_, _, group) = self.group.as_mut().expect("the assignments were made for a group");
        match group.look(assignments) {
            Ok(found) => found
                .first()
                .map_or(Ok(()), |worker| Err(claims::refused(&path_of(&assignments[*worker], *worker as u32)))),
            Err(error) => {
                self.group = None;
                Err(error)
            }
        }
    }

    fn keep(&mut self, row: Row, tally: &mut Tally, progress: &mut dyn Progress) -> Result<()> {
        tally.rows += 1;
        match row.status {
            crate::results::Status::Ok => {}
            crate::results::Status::Partial => tally.failed += 1,
            crate::results::Status::Wrong => tally.wrong += 1,
        }
        progress.row(&row);
        self.store.append(&row)?;
        self.rows.push(row);
        Ok(())
    }

    fn base(&self, replication: u32, repetition: u32) -> Row {
        Row {
            experiment: self.plan.name.clone(),
            plan: self.hash.clone(),
            replication,
            repetition,
            sequence: self.rows.len() as u64,
            started_unix_s: unix_seconds(),
            ..Row::default()
        }
    }

    /// Workers that could not be started are a row too, or the table would lack them silently.
    fn failed_to_start(
        &mut self,
        run: &Run,
        replication: u32,
        repetition: u32,
        error: &Error,
        tally: &mut Tally,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let outcome = failure(error);
        let facts = Facts { run, operation: run.settings.operations[0], hosts: &[], offsets: &[] };
        let row = row(&facts, &outcome, self.base(replication, repetition));
        self.keep(row, tally, progress)
    }

    /// Removes the run's files by the workers, or by ourselves where those are dead. Returns how long the workers took.
    fn clean_up(
        &mut self,
        run: &Run,
        assignments: &[Assignment],
        failed: bool,
        progress: &mut dyn Progress,
    ) -> Result<Option<f64>> {
        let null = matches!(run.settings.backend, BackendSettings::Null(_));
        if run.settings.keep || null || !claims::makes_files(&run.settings) {
            return Ok(None);
        }
        if matches!(run.settings.workload, Workload::Metadata(_)) {
            let top = assignments[0].directory.join(&assignments[0].file_stem);
            if remove_tree(&top, progress) {
                self.claims.release(&run.settings, assignments)?;
            }
            return Ok(None);
        }
        let local = run.settings.backend.has_local_files();
        if failed && !local {
            // Objects are removed by workers only: by new ones, also when the experiment is to end.
            let kind = launch_kind(&run.settings, &self.experiment.directory);
            let stop = Arc::new(Stop::default());
            match Group::start(&self.experiment.launch, &kind, run.settings.workers, &stop) {
                Ok(group) => self.group = Some((kind, run.settings.workers, group)),
                Err(error) => {
                    progress.warns(&format!("no workers could be started to remove the run's objects: {error}"))
                }
            }
        }
        if (!failed || !local)
            && let Some((_, _, group)) = &mut self.group
        {
            let removed = group.remove(assignments);
            if failed {
                // They don't hear of the wish to end.
                self.group = None;
            }
            match removed {
                Ok(ns) => {
                    self.claims.release(&run.settings, assignments)?;
                    return Ok((!failed).then(|| crate::clock::seconds(ns)));
                }
                Err(error) => {
                    progress.warns(&format!("the run's files were not removed: {error}"));
                    self.group = None;
                }
            }
        }
        if !local {
            return Ok(None);
        }
        for assignment in assignments {
            let path = path_of(assignment, assignment.worker);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    progress.warns(&format!("can't remove {}: {error}", path.display()));
                }
                _ => {}
            }
            leave_directory(assignment, &path);
            if run.settings.files == Files::Shared && !run.settings.directory_per_worker {
                break;
            }
        }
        Ok(None)
    }

    fn assignments(&mut self, run: &Run, replication: u32, repetition: u32) -> Result<Vec<Assignment>> {
        let settings = &run.settings;
        let kind = launch_kind(settings, &self.experiment.directory);
        if settings.backend.needs_mpi() {
            crate::backend::build_shim(&settings.backend)?;
        }
        if self.group.as_ref().is_none_or(|(have, workers, _)| *have != kind || *workers != settings.workers) {
            self.finish_group();
            let group = Group::start(&self.experiment.launch, &kind, settings.workers, &self.stop)?;
            self.group = Some((kind, settings.workers, group));
        }
        let hosts = self.group.as_ref().expect("there is a group now").2.hosts();
        let reads_of = readers(settings.reorder, &hosts, mix(self.experiment.seed ^ mix(u64::from(replication))))?;
        // A file that nobody has noted was written by the first run that has its seed, as far as can be said.
        let writes = settings.operations.iter().any(|operation| operation.writes());
        let (run_number, replication_number, repetition_number) = match (settings.seed, writes) {
            (_, false) => (0, 0, 0),
            (Some(_), true) => (0, replication, repetition),
            (None, true) => (run.id, replication, repetition),
        };
        let seed = settings.seed.unwrap_or(self.experiment.seed);
        let identity =
            Identity { seed, run: run_number, replication: replication_number, repetition: repetition_number, file: 0 };
        let draw_seed = [run_number, replication_number, repetition_number]
            .into_iter()
            .fold(mix(seed), |drawn, number| mix(drawn ^ mix(u64::from(number) + 1)));
        let file_stem = match &settings.file_name {
            Some(name) => crate::names::of_repetition(name, run.id, replication, repetition),
            None => format!("run{:04}-{replication:03}-{repetition:03}", run.id),
        };
        Ok(reads_of
            .into_iter()
            .enumerate()
            .map(|(worker, reads_of)| Assignment {
                settings: settings.clone(),
                operation: settings.operations[0],
                identity,
                draw_seed,
                directory: self.experiment.directory.clone(),
                file_stem: file_stem.clone(),
                replaces: false,
                worker: worker as u32,
                reads_of,
                written: None,
                noted: false,
                file_bytes: None,
            })
            .collect())
    }
}

fn failure(error: &Error) -> Outcome {
    let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let failure = Some(format!("{error}{hint}"));
    Outcome { reports: vec![], residency: crate::cache::Residency::default(), failure }
}

fn remove_tree(top: &Path, progress: &mut dyn Progress) -> bool {
    match std::fs::remove_dir_all(top) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            progress.warns(&format!("can't remove {}: {error}", top.display()));
            false
        }
        _ => true,
    }
}

fn launch_kind(settings: &RunSettings, directory: &Path) -> LaunchKind {
    match &settings.backend {
        BackendSettings::TerraceFiles(files) => {
            let mut arguments = vec!["--root".to_owned(), directory.to_string_lossy().into_owned()];
            arguments.extend(files.arguments.iter().cloned());
            LaunchKind::TerraceRun(arguments)
        }
        BackendSettings::TerraceObjects(objects) if objects.connect.is_none() => {
            let mut arguments = vec!["--root".to_owned(), directory.to_string_lossy().into_owned()];
            arguments.extend(objects.arguments.iter().cloned());
            LaunchKind::TerraceRun(arguments)
        }
        backend if backend.needs_mpi() => LaunchKind::Mpi,
        _ => LaunchKind::Plain,
    }
}

/// Runs of which every operation's median is known well enough.
pub fn settled(rows: &[Row], rule: &StoppingRule) -> BTreeSet<u32> {
    let mut samples: BTreeMap<(u32, &str), Vec<f64>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.counts()) {
        samples.entry((row.run, row.operation.as_str())).or_default().push(row.rate());
    }
    let mut narrow: BTreeMap<u32, bool> = BTreeMap::new();
    for ((run, _), mut rates) in samples {
        rates.sort_by(f64::total_cmp);
        let interval = median_interval(&rates, rule.confidence);
        let width = (interval.high - interval.low) / crate::statistics::median(&rates);
        // Of a few values the bootstrap's interval is narrow by chance, and one value has none.
        let known = interval.method == Method::OrderStatistics;
        let enough = known && rates.len() >= rule.min as usize && width <= rule.relative_width;
        *narrow.entry(run).or_insert(true) &= enough;
    }
    narrow.into_iter().filter(|(_, narrow)| *narrow).map(|(run, _)| run).collect()
}

/// Whose data each worker reads.
/// `drawn` is the seed of what is drawn anew in each replication.
pub fn readers(reorder: Reorder, hosts: &[String], drawn: u64) -> Result<Vec<u32>> {
    let workers = hosts.len() as u32;
    // Workers that a node has before the next one is filled; where they take turns, one.
    let each = match hosts.get(1) {
        Some(second) if *second != hosts[0] => 1,
        _ => hosts.iter().filter(|host| **host == hosts[0]).count() as u64,
    };
    let nodes_further = |nodes: u32| (u64::from(nodes) * each % u64::from(workers)) as u32;
    match reorder {
        Reorder::None => Ok((0..workers).collect()),
        Reorder::Shift(shift) => Ok((0..workers).map(|worker| (worker + shift % workers) % workers).collect()),
        Reorder::Nodes(nodes) => readers(Reorder::Shift(nodes_further(nodes)), hosts, drawn),
        Reorder::Random(random) => {
            let seed = random.seed.unwrap_or(drawn);
            if random.each_once {
                let order = Permutation::new(u64::from(workers), mix(seed));
                return Ok((0..workers).map(|worker| order.at(u64::from(worker)) as u32).collect());
            }
            let nearest = nodes_further(random.nodes);
            let further = |worker: u32| {
                let drawn = mix(mix(seed) ^ mix(u64::from(worker) + 1)) % u64::from(workers - nearest);
                (worker + nearest + drawn as u32) % workers
            };
            Ok((0..workers).map(further).collect())
        }
        Reorder::Node => {
            let mut nodes: Vec<(&String, Vec<u32>)> = Vec::new();
            for (worker, host) in hosts.iter().enumerate() {
                match nodes.iter_mut().find(|(known, _)| *known == host) {
                    Some((_, members)) => members.push(worker as u32),
                    None => nodes.push((host, vec![worker as u32])),
                }
            }
            if nodes.len() < 2 {
                return Err(Error::input(
                    format!("reads can't be reordered by node: all {workers} workers run on one node"),
                    "start workers on several hosts, or use `\"reorder\": {\"shift\": 1}`",
                ));
            }
            let each = nodes[0].1.len();
            if nodes.iter().any(|(_, members)| members.len() != each) {
                return Err(Error::input(
                    "reads can't be reordered by node: the nodes have different numbers of workers",
                    "start as many workers on each node",
                ));
            }
            let mut reads_of = vec![0; hosts.len()];
            for (index, (_, members)) in nodes.iter().enumerate() {
                let next = &nodes[(index + 1) % nodes.len()].1;
                for (worker, other) in members.iter().zip(next) {
                    reads_of[*worker as usize] = *other;
                }
            }
            Ok(reads_of)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RandomReorder;

    #[test]
    fn reads_by_node_go_to_another_node_and_to_all_data() {
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        // Workers lie as they come, not in blocks.
        let hosts_of_four = hosts(&["a", "b", "a", "b"]);
        let mut readers_of_four = readers(Reorder::Node, &hosts_of_four, 0).unwrap();
        for (worker, other) in readers_of_four.iter().enumerate() {
            assert_ne!(hosts_of_four[worker], hosts_of_four[*other as usize]);
        }
        readers_of_four.sort_unstable();
        assert_eq!(readers_of_four, [0, 1, 2, 3]);
        assert!(readers(Reorder::Node, &hosts(&["a", "a"]), 0).unwrap_err().to_string().contains("one node"));
        assert!(readers(Reorder::Node, &hosts(&["a", "a", "b"]), 0).is_err());
        assert_eq!(readers(Reorder::Shift(5), &hosts(&["a", "a", "a"]), 0).unwrap(), [2, 0, 1]);
    }

    #[test]
    fn ior_reads_go_so_many_nodes_further_whichever_way_workers_lie() {
        let hosts = |names: &str| names.chars().map(String::from).collect::<Vec<_>>();
        let nodes = |names: &str, further| readers(Reorder::Nodes(further), &hosts(names), 0).unwrap();
        assert_eq!(nodes("aabbcc", 1), [2, 3, 4, 5, 0, 1]);
        assert_eq!(nodes("aabbcc", 2), [4, 5, 0, 1, 2, 3]);
        assert_eq!(nodes("abcabc", 1), [1, 2, 3, 4, 5, 0]);
        // On one node IOR's tasks read their own data.
        assert_eq!(nodes("aaaa", 1), [0, 1, 2, 3]);
        let random = |each_once, seed, drawn| {
            let random = RandomReorder { seed, nodes: 1, each_once };
            readers(Reorder::Random(random), &hosts("aabbccdd"), drawn).unwrap()
        };
        let mut once = random(true, Some(3), 0);
        assert_eq!(once, random(true, Some(3), 9));
        assert_ne!(random(true, None, 1), random(true, None, 2));
        once.sort_unstable();
        assert_eq!(once, [0, 1, 2, 3, 4, 5, 6, 7]);
        for (worker, other) in random(false, Some(3), 0).into_iter().enumerate() {
            assert!((other + 8 - worker as u32) % 8 >= 2, "worker {worker} reads of its own node");
        }
    }
}
