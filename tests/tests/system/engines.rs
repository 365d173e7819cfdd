//! Workflow engines as they are on PyPI and on Maven Central, with the examples that docs/guide/workflows.md shows: the same results natively and under
//! Terrace on a slow durable tier, nothing done again by a second run, and what an interrupt or a kill of everything left is gone on with.
//!
//! Each example reduces 48 samples by `cksum`. Here that is a script before it in PATH, which notes that it began and may wait at a gate:
//!
//!   cksum ──notes its process──▶ begun ──20 may pass──▶ gate ──▶ the real cksum
//!
//! So a workflow stands still in its middle, for as long as a test wants, and jobs can be counted whatever the engine says of them.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;
use terrace_tests::{Outcome, SlowTier, Wish, Workplace, checkout, fetched, skipped, terrace_binary, told, wait_until};

const SAMPLES: usize = 48;
/// So many jobs pass the gate while it is closed; the engines start four at a time.
const PASS: usize = 20;
/// It knows its place by heart: cwltool gives jobs an environment of their own. The lock gives each its own number.
const CKSUM: &str = r#"#!/bin/sh
exec 9>>SCRATCH/begun
flock 9
echo $$ >&9
number=$(wc -l <SCRATCH/begun)
exec 9>&-
if [ ! -e SCRATCH/gate ] && [ "$number" -gt 20 ]; then
    while [ ! -e SCRATCH/gate ]; do sleep 0.05; done
fi
exec /usr/bin/cksum "$@"
"#;

struct Engine {
    name: &'static str,
    /// Below examples/.
    example: &'static str,
    /// The example's, for Terrace.
    settings: &'static str,
    /// Shell, in the directory of the example's files.
    command: &'static str,
    /// The same for Ctrl-C.
    interrupted: &'static str,
    /// The same after a kill.
    after_kill: &'static str,
    /// Where a job's row lies is the engine's matter; the table of all is here.
    table: &'static str,
    /// So many jobs stand at the gate when an interrupt or a kill comes.
    standing: usize,
}

const SNAKEMAKE: Engine = Engine {
    name: "snakemake",
    example: "snakemake",
    settings: "terrace.toml",
    command: "snakemake --quiet all --cores 4",
    // Natively too, the jobs that an interrupt ended leave an incomplete output in every second trial.
    interrupted: "snakemake --cores 4 --rerun-incomplete",
    after_kill: "snakemake --quiet all --unlock; snakemake --quiet all --cores 4 --rerun-incomplete",
    table: "results/table.txt",
    // All it can start: an interrupt would not reach one that is only being started, and that one would wait for the gate.
    standing: 4,
};
const CWLTOOL: Engine = Engine {
    name: "cwltool",
    example: "cwl",
    settings: "terrace.toml",
    command: "cwltool --quiet --parallel --parallel-max 4 --cachedir cache --outdir results workflow.cwl samples.yml",
    // With --parallel it doesn't end at Ctrl-C, natively neither: its threads wait for jobs that failed.
    interrupted: "cwltool --quiet --cachedir cache --outdir results workflow.cwl samples.yml",
    after_kill: "cwltool --quiet --parallel --parallel-max 4 --cachedir cache --outdir results workflow.cwl samples.yml",
    table: "results/table.txt",
    standing: 1,
};
const DASK: Engine = Engine {
    name: "dask",
    example: "dask",
    settings: "terrace.toml",
    command: "python workflow.py",
    interrupted: "python workflow.py",
    after_kill: "python workflow.py",
    table: "results/table.txt",
    standing: 1,
};

const NEXTFLOW: Engine = Engine {
    name: "nextflow",
    example: "nextflow",
    settings: "terrace.toml",
    command: "nextflow -q run main.nf -resume -ansi-log false",
    interrupted: "nextflow -q run main.nf -resume -ansi-log false",
    after_kill: "nextflow -q run main.nf -resume -ansi-log false",
    table: "results/table.txt",
    standing: 1,
};

/// Nobody goes on with what its jobs have made.
const CWLTOOL_SCRATCH: Engine = Engine {
    name: "cwltool, jobs' files dropped",
    settings: "scratch.toml",
    command: "cwltool --quiet --parallel --parallel-max 4 --tmpdir-prefix work/ --tmp-outdir-prefix work/ --outdir results workflow.cwl samples.yml",
    ..CWLTOOL
};
const NEXTFLOW_SCRATCH: Engine = Engine {
    name: "nextflow, jobs' files dropped",
    settings: "scratch.toml",
    command: "nextflow -q run main.nf -ansi-log false",
    ..NEXTFLOW
};

impl Engine {
    fn files(&self) -> PathBuf {
        checkout().join("examples").join(self.example)
    }

    /// Workplaces have the settings that the example has.
    fn wish(&self) -> Wish {
        let settings = std::fs::read_to_string(self.files().join(self.settings)).unwrap();
        let (top, policy) = settings.split_once("[policy]\n").expect("the example has a policy");
        let top = format!("small_files = \"learn\"\n{top}");
        Wish::default().tier("ram", "1GiB").settle("200ms").top(&top).policy(policy)
    }

    fn workplace(&self, wish: Wish) -> Site {
        let place = wish.build();
        let bin = place.scratch().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let cksum = CKSUM.replace("SCRATCH", place.scratch().to_str().unwrap());
        std::fs::write(bin.join("cksum"), cksum).unwrap();
        let script = "cp \"$0\"/* .; rm *.toml; chmod +x \"$SCRATCH/bin/cksum\"";
        place.native(&["bash", "-euc", script, self.files().to_str().unwrap()]).ok();
        Site { place, table: self.table, standing: self.standing }
    }
}

/// A workplace with an example's files, and the gate.
struct Site {
    place: Workplace,
    table: &'static str,
    standing: usize,
}

impl Site {
    /// The engine and the gate stand before all others in PATH.
    fn words(&self, script: &str) -> Vec<String> {
        let engines = fetched("engines-venv/bin");
        // Nextflow's own files are not the example's; and what it looks for in the network is none of the tests' business.
        let nextflow = format!("{}; export NXF_HOME=$SCRATCH/nextflow NXF_OFFLINE=true", nextflow().display());
        let path = format!("PATH=$SCRATCH/bin:{}:$PATH:{nextflow}", engines.display());
        ["bash", "-euc", &format!("{path}; {script}")].map(str::to_owned).to_vec()
    }

    fn run(&self, script: &str) -> Outcome {
        let words = self.words(script);
        self.place.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn native(&self, script: &str) -> Outcome {
        let words = self.words(script);
        self.place.native(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn open(&self) {
        std::fs::write(self.place.scratch().join("gate"), "").unwrap();
    }

    /// The processes of the jobs that began.
    fn begun(&self) -> Vec<i32> {
        let text = std::fs::read_to_string(self.place.scratch().join("begun")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Until jobs wait at the gate. Not as many as may: Dask leaves a worker idle rather than take a task from another's queue.
    #[track_caller]
    fn wait_until_it_stands(&self, child: &mut Child) {
        let stands = wait_until(120, || self.begun().len() >= PASS + self.standing);
        assert!(stands, "{} jobs began; the engine: {:?}", self.begun().len(), child.try_wait());
    }

    /// What the workflow is for, seen without Terrace.
    #[track_caller]
    fn is_right(&self) {
        self.place.settled_tree();
        let table = std::fs::read_to_string(self.place.root().join(self.table)).expect("a table");
        let mut sums: Vec<&str> = table.lines().map(checksum).collect();
        sums.sort_unstable();
        assert_eq!(sums, expected(), "{table}");
    }

    /// Every result file, as a native run and one under Terrace must leave it.
    fn results(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(self.place.root().join("results")).unwrap();
        let read = |path: &Path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap());
        entries.map(|entry| read(&entry.unwrap().path())).collect()
    }
}

/// The checksum in a row of a table: its last but one word.
fn checksum(row: &str) -> &str {
    row.split(' ').rev().nth(1).unwrap_or(row)
}

/// The samples' checksums as a shell computes them.
fn expected() -> &'static [String] {
    static SUMS: OnceLock<Vec<String>> = OnceLock::new();
    SUMS.get_or_init(|| {
        let each = format!("for i in $(seq 0 {}); do seq $i 1200000 | cksum; done", SAMPLES - 1);
        let output = Command::new("sh").args(["-c", &each]).output().unwrap();
        let mut sums: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(|row| checksum(row).to_owned()).collect();
        sums.sort_unstable();
        assert_eq!(sums.len(), SAMPLES);
        sums
    })
}

fn gives_the_same_results_and_nothing_to_do_again(engine: &Engine) {
    gives_the_same_results(engine, true);
}

/// Natively and under Terrace, each on a slow durable tier of its own; times are told, not judged. Then once more, for which nothing is
/// left to do if what jobs have made `is_kept`.
fn gives_the_same_results(engine: &Engine, is_kept: bool) {
    let mut seconds = vec![];
    let mut results = vec![];
    for by_terrace in [false, true] {
        let Some(tier) = SlowTier::mount(SlowTier::LIKE_A_PARALLEL_FILE_SYSTEM) else { return };
        let site = engine.workplace(engine.wish().root(&tier.root()));
        site.open();
        let run = |script: &str| if by_terrace { site.run(script) } else { site.native(script) };
        let begin = Instant::now();
        let outcome = run(engine.command).ok();
        seconds.push(begin.elapsed().as_secs_f64());
        assert_eq!(site.begun().len(), SAMPLES, "{}", outcome.stderr);
        if let Some(report) = &outcome.report {
            assert!(
                report["counters"]["creates_tier"].as_u64() > Some(0),
                "no file was placed in the tier: {report:#}"
            );
        }
        run(engine.command).ok();
        assert_eq!(site.begun().len(), if is_kept { SAMPLES } else { 2 * SAMPLES }, "jobs of both runs");
        site.is_right();
        results.push(site.results());
    }
    assert!(results[0] == results[1], "{:?} natively, {:?} under Terrace", results[0].keys(), results[1].keys());
    let [native, ours] = seconds[..] else { unreachable!("there are two ways") };
    told(&format!("{}: {native:.2} s natively, {ours:.2} s under Terrace, ratio {:.2}", engine.name, native / ours));
}

/// By a terminal, as a user does: Ctrl-C reaches all processes, those of jobs too.
fn goes_on_after_ctrl_c(engine: &Engine) {
    let site = engine.workplace(engine.wish());
    let words = site.words(engine.interrupted);
    let inner = site.place.run_command(&[], &words.iter().map(String::as_str).collect::<Vec<_>>());
    let quoted: Vec<String> = std::iter::once(inner.get_program())
        .chain(inner.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap().replace('\'', "'\\''")))
        .collect();
    let mut script = Command::new("script");
    script.args(["-qec", &quoted.join(" "), "/dev/null"]).current_dir(site.place.root());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    // Who starts the tests in the background of a shell has them ignore Ctrl-C, and what is ignored is inherited.
    // SAFETY: between fork and exec, a call that may be made there.
    unsafe {
        script.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    site.wait_until_it_stands(&mut child);
    let mut terminal = child.stdin.take().unwrap();
    terminal.write_all(b"\x03").unwrap();
    let outcome = Outcome::of_child(120, child);
    drop(terminal);
    assert!(![0, 137].contains(&outcome.code), "code {}: {}{}", outcome.code, outcome.stdout, outcome.stderr);
    goes_on(&site, engine.interrupted);
}

/// Of the engine, its jobs, `terrace run` and the agent, as when a node loses its job at once; what is in the tiers stays.
fn goes_on_after_a_kill(engine: &Engine) {
    let site = engine.workplace(engine.wish());
    let words = site.words(engine.command);
    let mut command = site.place.run_command(&[], &words.iter().map(String::as_str).collect::<Vec<_>>());
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    site.wait_until_it_stands(&mut child);
    let agent = site.place.status().expect("an agent").agent_pid as i32;
    for process in [agent, -(child.id() as i32)].into_iter().chain(site.begun().split_off(PASS)) {
        // SAFETY: the agent's own word, a group that this test made, and jobs that wait for a gate that nobody opens.
        unsafe { libc::kill(process, libc::SIGKILL) };
    }
    child.wait().unwrap();
    goes_on(&site, engine.after_kill);
}

/// What was done is not done again, what was not is, and the result is right.
#[track_caller]
fn goes_on(site: &Site, script: &str) {
    let before = site.begun().len();
    site.open();
    site.run(script).ok();
    let again = site.begun().len() - before;
    // Those at the gate had not ended. Of those that passed it the last may not have been noted: an engine notes them in its own time.
    assert!((SAMPLES - PASS..=SAMPLES - PASS / 2).contains(&again), "{again} jobs after {before}");
    site.is_right();
}

#[test]
fn snakemake_gives_the_same_results_and_has_nothing_to_do_again() {
    gives_the_same_results_and_nothing_to_do_again(&SNAKEMAKE);
}

#[test]
fn snakemake_goes_on_after_ctrl_c() {
    goes_on_after_ctrl_c(&SNAKEMAKE);
}

#[test]
fn snakemake_goes_on_after_a_kill_of_everything() {
    goes_on_after_a_kill(&SNAKEMAKE);
}

#[test]
fn cwltool_gives_the_same_results_and_has_nothing_to_do_again() {
    gives_the_same_results_and_nothing_to_do_again(&CWLTOOL);
}

#[test]
fn cwltool_gives_the_same_results_when_its_jobs_files_are_dropped() {
    gives_the_same_results(&CWLTOOL_SCRATCH, false);
}

#[test]
fn cwltool_goes_on_after_ctrl_c() {
    goes_on_after_ctrl_c(&CWLTOOL);
}

#[test]
fn cwltool_goes_on_after_a_kill_of_everything() {
    goes_on_after_a_kill(&CWLTOOL);
}

#[test]
fn dask_gives_the_same_results_and_has_nothing_to_do_again() {
    gives_the_same_results_and_nothing_to_do_again(&DASK);
}

#[test]
fn dask_goes_on_after_ctrl_c() {
    goes_on_after_ctrl_c(&DASK);
}

#[test]
fn dask_goes_on_after_a_kill_of_everything() {
    goes_on_after_a_kill(&DASK);
}

fn nextflow() -> PathBuf {
    checkout().join("build/nextflow")
}

/// It is not everywhere that Maven is.
fn has_nextflow() -> bool {
    let has = nextflow().join("nextflow").exists();
    if !has {
        skipped("Nextflow is missing (tests/setup.sh, with Maven)");
    }
    has
}

#[test]
fn nextflow_gives_the_same_results_and_has_nothing_to_do_again() {
    if has_nextflow() {
        gives_the_same_results_and_nothing_to_do_again(&NEXTFLOW);
    }
}

#[test]
fn nextflow_gives_the_same_results_when_its_jobs_files_are_dropped() {
    if has_nextflow() {
        gives_the_same_results(&NEXTFLOW_SCRATCH, false);
    }
}

#[test]
fn nextflow_goes_on_after_ctrl_c() {
    if has_nextflow() {
        goes_on_after_ctrl_c(&NEXTFLOW);
    }
}

#[test]
fn nextflow_goes_on_after_a_kill_of_everything() {
    if has_nextflow() {
        goes_on_after_a_kill(&NEXTFLOW);
    }
}

/// Jobs that are processes here, by dask-jobqueue's kind without a batch system; each has a run of its own, and all share an agent.
#[test]
fn workers_that_dask_jobqueue_starts_have_runs_of_their_own() {
    let site = DASK.workplace(DASK.wish());
    site.open();
    let terrace = terrace_binary();
    let own = format!("TERRACE='{} run --quiet --config {} --'", terrace.display(), site.place.config().display());
    let script = format!("export {own}; python workflow.py --workers-by local");
    let words = site.words(&script);
    let mut client = site.place.start_with(&[], &words.iter().map(String::as_str).collect::<Vec<_>>());
    let shared = wait_until(60, || site.place.status().is_some_and(|status| status.runs.len() >= 5));
    assert!(shared, "{:?} {:?}", client.try_wait(), site.place.status());
    Outcome::of_child(120, client).ok();
    assert_eq!(site.begun().len(), SAMPLES);
    site.is_right();
}
